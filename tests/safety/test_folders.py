"""What lies in the working folder is not imported: neither by compile helpers nor by the front door."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba  # noqa: F401 (found before the working folder is of any interest)
import numpy as np
import pytest

import codegen
from codegen.native import jit, library_objects, workers
from codegen.native.jit import compile_kernels
from codegen.native.signature import KernelSignature, Param
from codegen.tune.probe import run

ROOT = Path(codegen.__file__).resolve().parents[1]
SIGNATURE = KernelSignature((Param("x", "float32"), Param("y", "float32")))
PLANTED = "import pathlib\npathlib.Path({marker!r}).write_text('ran')\nraise SystemExit(3)\n"


def planted(folder: Path, names: list[str]) -> Path:
    """A folder of packages that leave a file behind when they are imported; returns that file's path."""
    marker = folder / "ran.txt"
    for name in names:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(PLANTED.format(marker=str(marker)))
    return marker


def source(k: int) -> str:
    return f"def kernel(begin, end, x, y):\n    for i in range(begin, end):\n        y[i] = x[i] + float32({k})\n"


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[workers.Job]:
    """An empty cache, two processes to compile in, and the list of what helpers made."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "2")
    monkeypatch.setattr(jit, "_kernels", {})
    monkeypatch.setattr(library_objects, "_loaded", {})
    arrived: list[workers.Job] = []
    original = workers.compile_jobs

    def watched(jobs, count, take, own):  # type: ignore[no-untyped-def]
        waiting = workers.threading.Event()

        def take_one(job, made):  # type: ignore[no-untyped-def]
            arrived.append(job)
            waiting.set()
            take(job, made)

        def own_one(job):  # type: ignore[no-untyped-def]
            waiting.wait(20)  # so that the helper has its turn on a busy machine
            own(job)

        original(jobs, count, take_one, own_one)

    monkeypatch.setattr(workers, "compile_jobs", watched)
    return arrived


def compiled(count: int) -> None:
    for k, kernel in enumerate(compile_kernels([(source(k), SIGNATURE) for k in range(count)])):
        x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
        run(kernel, 0, 4, x, y)
        assert y.tolist() == [1 + k] * 4


def test_helpers_import_nothing_from_the_working_folder(
    helpers: list[workers.Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = planted(tmp_path, ["codegen", "hlo", "numba", "numpy", "pickle", "logging"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    compiled(3)
    assert not marker.exists()
    assert helpers, "no helper compiled anything"


def test_helpers_import_nothing_from_a_pythonpath_with_empty_entries(
    helpers: list[workers.Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = planted(tmp_path, ["numba", "llvmlite"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    compiled(3)
    assert not marker.exists()
    assert helpers, "no helper compiled anything"


def test_helpers_find_packages_where_this_process_found_them(helpers: list[workers.Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    compiled(3)
    assert helpers, "no helper compiled anything"


def test_a_helper_of_another_package_ends_at_once(tmp_path: Path) -> None:
    marker = planted(tmp_path, ["codegen"])
    command = workers.command()
    at = command.index(str(ROOT))
    assert Path(command[at - 1]).name == "helper.py" and Path(command[at - 1]).is_absolute()
    found = subprocess.run([*command[:at], str(tmp_path / "nowhere"), *command[at + 1 :]], capture_output=True, text=True)
    assert found.returncode != 0
    assert "codegen" in found.stderr
    assert not marker.exists()


FRONT_DOOR = "import tilewright; print(tilewright.parse)"


@pytest.mark.parametrize("name", ["codegen", "hlo", "indexing", "interp", "tiling"])
def test_the_front_door_names_a_package_that_is_not_its_own(tmp_path: Path, name: str) -> None:
    marker = planted(tmp_path, [name])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    found = subprocess.run([sys.executable, "-P", "-c", FRONT_DOOR], env=environment, capture_output=True, text=True)
    assert found.returncode == 1
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: `{name}` was imported from {tmp_path / name}, which is not Tilewright's"), last
    assert str(ROOT / name) in last
    assert not marker.exists(), "it was named, but executed before"


def test_the_command_line_names_it_and_is_used_wrongly(tmp_path: Path) -> None:
    marker = planted(tmp_path, ["hlo"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tilewright", "doctor"]
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert found.returncode != 0
    assert "`hlo` was imported from" in found.stderr and "which is not Tilewright's" in found.stderr
    assert not marker.exists()


def test_a_module_that_was_imported_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "hlo.py").write_text("parse = 1\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    program = f"import hlo, sys; sys.path.remove({str(tmp_path)!r}); {FRONT_DOOR}"
    found = subprocess.run([sys.executable, "-P", "-c", program], env=environment, capture_output=True, text=True)
    assert f"`hlo` was imported from {tmp_path / 'hlo.py'}, which is not Tilewright's" in found.stderr


def test_no_process_is_started_with_a_program_that_imports_from_the_working_folder() -> None:
    """`python -c` and `python -m` put the working folder first: every process that the project starts says -P or -I."""
    for folder in ("codegen", "hlo", "indexing", "interp", "tiling", "tilewright", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                if "[sys.executable" in line and "orig_argv" not in line:
                    assert '"-P"' in line or '"-I"' in line, f"{path}:{number}: {line.strip()}"
