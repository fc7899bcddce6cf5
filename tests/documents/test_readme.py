"""What the documentation says is true: its commands exist, its code runs, its links lead somewhere."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

import dev
from tests.commands.command_line import ROOT
from tilewright import cli

DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text("utf-8")


def commands(program: str) -> list[tuple[str, list[str]]]:
    """(document, arguments) of every call of a program that stands on a line of its own, or inline with `python3` before it."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text("utf-8")
        inline = re.findall(rf"`{program} ([^`…\n]+)`", text) if program.startswith("python3") else []
        for line in re.findall(rf"^(?:    )?{program} (.+)$", text, re.M) + inline:
            found.append((str(path.relative_to(ROOT)), shlex.split(line, comments=True)))
    return found


def test_the_readme_has_its_two_commands() -> None:
    assert "    python3 dev.py example\n" in README
    assert "    python3 dev.py test\n" in README


def test_the_readmes_times_are_those_of_the_page() -> None:
    """A table of speed that nobody measures anew would grow old."""
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    measured = {c[1].strip(" `"): (c[4].strip(), c[6].strip()) for c in rows}
    shown = {n: (mine, jax) for n, mine, jax in re.findall(r"^\| .*\(`(\w+)`\) \| (\S+) \| (\S+) \|$", README, re.M)}
    assert len(shown) >= 5 and shown == {n: measured[n] for n in shown}


@pytest.mark.parametrize(("document", "arguments"), commands("python3 dev.py"))
def test_dev_commands_parse(document: str, arguments: list[str]) -> None:
    args, rest = dev.parser().parse_known_args(arguments)
    assert not rest or args.command in dev.PASSES_ON
    if args.command == "example":
        assert (ROOT / args.file).is_file()


@pytest.mark.parametrize(("document", "arguments"), [c for c in commands("tilewright") if "COMMAND" not in c[1]])
def test_tilewright_commands_parse_and_name_files_that_exist(document: str, arguments: list[str]) -> None:
    args = cli.parser().parse_args(arguments)
    assert args.command in ("doctor", "cache", "completion") or (ROOT / args.file).is_file()


def test_there_are_commands_to_look_at() -> None:
    assert {a[0] for _, a in commands("tilewright")} >= {"run", "check", "maps", "plan", "source"}
    assert {a[0] for _, a in commands("python3 dev.py")} >= {"example", "test", "lint", "setup", "bench"}


def pages_with_code() -> list[object]:
    pages = {p: p.read_text("utf-8") for p in DOCUMENTS}
    needs = {
        "import jax": pytest.mark.jax,
        "import torch": pytest.mark.torch,
        "from tilewright import pictures": pytest.mark.notebook,
    }
    return [
        pytest.param(p, id=str(p.relative_to(ROOT)), marks=[m for line, m in needs.items() if f">>> {line}" in text])
        for p, text in pages.items()
        if ">>> " in text
    ]


@pytest.fixture(scope="module")
def pages() -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.documents.page_server"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        yield server


def run_page(server: subprocess.Popen[str], path: pathlib.Path) -> tuple[int, str]:
    """The exit code and the output of a page's code, in a process of its own: a page may register an op."""
    assert server.stdin is not None and server.stdout is not None
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server.stdin.write(json.dumps({"path": str(path), "environment": environment}) + "\n")
    server.stdin.flush()
    done = json.loads(server.stdout.readline())
    return done["code"], done["output"]


@pytest.mark.machine("avx512")  # the plans that pages show are one machine's
@pytest.mark.parametrize("path", pages_with_code())
def test_code_in_the_documents_runs(path: pathlib.Path, pages: subprocess.Popen[str]) -> None:
    assert run_page(pages, path) == (0, "")


def test_code_that_fails_is_found_and_spoils_no_other_page(tmp_path: pathlib.Path, pages: subprocess.Popen[str]) -> None:
    wrong, ends, right = (tmp_path / f"{name}.md" for name in ("wrong", "ends", "right"))
    wrong.write_text(">>> import hlo\n>>> hlo.parse = None\n>>> 1 + 1\n3\n")
    ends.write_text(">>> import os\n>>> os.abort()\n")
    right.write_text(">>> import hlo\n>>> callable(hlo.parse)\nTrue\n")
    code, output = run_page(pages, wrong)
    assert code == 1 and "Expected:\n    3\nGot:\n    2" in output
    assert run_page(pages, ends)[0] < 0
    assert run_page(pages, right) == (0, "")
    assert run_page(pages, ROOT / "LICENSE")[0] == 1


@pytest.mark.parametrize("path", pages_with_code())
def test_code_can_be_typed_as_it_stands(path: pathlib.Path) -> None:
    """A prompt waits for an empty line after a function's body; without it the next statement was a syntax error."""
    lines = path.read_text("utf-8").splitlines()
    for k, line in enumerate(lines):
        if re.match(r">>> (@|(def|class|for|while|if|with|try)\b)", line):
            end = next(j for j in range(k + 1, len(lines)) if not lines[j].startswith("... "))
            assert lines[end] == "...", f"{path.name}:{end + 1}: expected a line of `...` before {lines[end]!r}"


def test_there_is_code_to_run() -> None:
    for name in ("README.md", "docs/adding-an-op.md"):
        assert (ROOT / name).read_text("utf-8").count(">>> ") >= 5


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: pathlib.Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+://", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{path.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text("utf-8"), re.M)
            assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}, target


PRESENT = [p for p in DOCUMENTS if p.name != "CHANGELOG.md"]  # which names what was there then
TO_BE_WRITTEN = {"tiling/passes/reverse_loops.py"}  # by the reader, who adds a pass


@pytest.mark.parametrize("path", PRESENT, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_modules_that_are_named_exist(path: pathlib.Path) -> None:
    """`benchmarks.ulp` had moved into a folder."""
    text = path.read_text("utf-8")
    own = "tests|benchmarks|docs|examples|hlo|indexing|interp|tiling|codegen|tilewright|tilewright_runtime"
    named = set(re.findall(rf"(?<![\w/.~-])((?:{own})/[\w/.-]*\.(?:py|md|mlir|hlo|c))\b", text)) - TO_BE_WRITTEN
    modules = [m.replace(".", "/") for m in re.findall(rf"\bpython3? (?:-\w )*-m ((?:{own})(?:\.\w+)*)", text)]
    lacking = [n for n in named if not (ROOT / n).is_file()]
    lacking += [m for m in modules if not (ROOT / f"{m}.py").is_file() and not (ROOT / m).is_dir()]
    assert not lacking, f"{path.name}: {', '.join(sorted(lacking))}"


def test_an_old_python_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(dev.sys, "version_info", (3, 9, 2, "final", 0))
    monkeypatch.setattr(dev.shutil, "which", lambda name: None)
    assert dev.main(["test"]) == 2
    assert "Python 3.11 or later is needed" in capsys.readouterr().err


def test_a_failing_step_fails_the_command_and_the_others_still_run(capfd: pytest.CaptureFixture[str]) -> None:
    python = sys.executable
    steps = {
        "one": [python, "-c", "raise SystemExit(3)"],
        "two": [python, "-c", "print('two ran')"],
        "three": [python, "-c", "raise SystemExit(4)"],
    }
    assert dev.run_steps(steps) == 3
    shown = capfd.readouterr()
    assert "two ran" in shown.out
    assert "failed: one, three" in shown.err
    assert dev.run_steps({"two": steps["two"]}) == 0


def test_a_set_up_folder_is_set_up_no_more(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def run(command: list[str], quiet: bool = False) -> int:
        calls.append(command)
        if "venv" in command:
            (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
            (tmp_path / ".venv" / "bin" / "python").write_text("")
        return 0

    (tmp_path / "pyproject.toml").write_text("[project]\n")
    for name, value in {
        "ROOT": tmp_path,
        "VENV": tmp_path / ".venv",
        "PYTHON": tmp_path / ".venv/bin/python",
        "STAMP": tmp_path / ".venv/stamp.json",
    }.items():
        monkeypatch.setattr(dev, name, str(value))
    monkeypatch.setattr(dev, "run", run)

    def installs() -> list[str]:
        found = [c[-1] for c in calls if "install" in c]
        calls.clear()
        return found

    dev.set_up({"test"})
    assert installs() == [".[test]"]
    dev.set_up({"test"})
    dev.set_up(set())
    assert calls == []
    dev.set_up({"jax"})
    assert installs() == [".[jax,test]"]
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    dev.set_up(set())
    assert installs() == [".[jax,test]"]


def test_the_ci_script_runs_the_readmes_test_command() -> None:
    script = ROOT / ".ci" / "run"
    text = script.read_text("utf-8")
    assert "python3 dev.py test" in text
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert script.stat().st_mode & 0o111
