"""The test command: its layers have every test once, its extras are the project's, and its processes share one kernel cache."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tomllib

import pytest

import dev
from tests.commands.command_line import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_every_test_is_of_one_layer() -> None:
    owner: dict[pathlib.Path, str] = {}
    for name in dev.LAYERS:
        for path in dev.paths_of([name]):
            for file in [ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("*.py"):
                assert file not in owner, f"{file.relative_to(ROOT)} is of {owner[file]} and of {name}"
                owner[file] = name
    folders = PROJECT["tool"]["pytest"]["ini_options"]["testpaths"]
    files = {p for f in folders for p in (ROOT / f).rglob("*.py") if f != "tests" or p.name.startswith("test_")}
    assert not sorted(str(p.relative_to(ROOT)) for p in files - owner.keys())


def test_layers_stand_before_what_goes_to_pytest() -> None:
    assert dev.layers_of(["hlo", "docs", "-k", "tiling"]) == (["hlo", "docs"], ["-k", "tiling"])
    assert dev.layers_of(["tests/hlo", "hlo"]) == ([], ["tests/hlo", "hlo"])
    assert dev.paths_of(["hlo"]) == ["hlo", os.path.join("tests", "hlo")]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "ruff check --no-fix . | mypy | pytest -n auto --dist worksteal"),
        (["hlo", "-x"], "ruff check --no-fix hlo tests/hlo | pytest -n auto --dist worksteal hlo tests/hlo -x"),
        (["--slow", "-k", "dot"], "ruff check --no-fix . | mypy | pytest -n auto --dist worksteal --slow -k dot"),
    ],
)
def test_what_is_run(arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[str] = []

    def call(command: list[str]) -> int:
        run.append(" ".join(command[2:]).replace(os.sep, "/"))
        return 0

    monkeypatch.setattr(dev, "set_up", lambda extras: None)
    monkeypatch.setattr(dev, "run", call)
    assert dev.main(["test", *arguments]) == 0
    assert " | ".join(run) == expected


def test_every_extra_of_the_project_is_an_extra_of_the_commands() -> None:
    extras = ",".join(PROJECT["project"]["optional-dependencies"])
    for command in ("setup", "test"):
        assert dev.parser().parse_args([command, "--extras", extras]).extras == tuple(extras.split(","))


def test_processes_of_the_tests_find_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers often set the variable: then each process compiles all sources anew, which is a twelfth of the run."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "elsewhere")
    assert "PYTHONDONTWRITEBYTECODE" not in dev.clean_environment()
    assert dev.clean_environment()["PYTHONPYCACHEPREFIX"] == "elsewhere"


def test_processes_of_one_run_share_a_cache_that_is_gone_afterwards(tmp_path: pathlib.Path) -> None:
    """What one process compiled the other loads."""
    text = (
        "import os, pathlib\n\ndef test_{0}():\n"
        "    pathlib.Path({1!r}, os.environ['PYTEST_XDIST_WORKER']).write_text(os.environ['XDG_CACHE_HOME'])\n"
    )
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text("utf-8"))
    (folder / "machines.py").write_text("MACHINES = {}\n\ndef narrower_targets():\n    return []\n")  # no compiler is imported
    (folder / "mesh").mkdir()
    (folder / "mesh" / "__init__.py").write_text("")
    (folder / "mesh" / "launch.py").write_text("def starts_processes():\n    return False\n")
    for k in range(2):
        (folder / f"test_{k}.py").write_text(text.format(k, str(tmp_path)))
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers =\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    command += ["--import-mode=importlib", str(tmp_path)]
    paths = os.pathsep.join((str(tmp_path), str(ROOT), *(p for p in sys.path if p)))
    outside = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment = {**outside, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode()
    caches = {(tmp_path / name).read_text() for name in ("gw0", "gw1")}
    assert len(caches) == 1
    assert not pathlib.Path(*caches).exists()
