"""`doctor`, `cache`, `diff`, `completion`: what they print, what they leave alone, their exit codes."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import codegen
import hlo
import tiling
from tilewright.cli import main, parser

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOFTMAX, NORM = str(ROOT / "examples" / "softmax.mlir"), str(ROOT / "examples" / "layer_norm.mlir")


def test_doctor_tries_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernel_works"] is True
    assert found["libraries"]["numpy"]
    assert found["cache"]["folder"].endswith("tilewright")
    assert main(["doctor"]) == 0
    assert "a kernel      ok" in capsys.readouterr().out


def test_cache_shows_prunes_and_clears_its_own_files(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    (tmp_path / "objects").mkdir()
    for k in range(3):
        path = tmp_path / "objects" / f"{k}.o"
        path.write_bytes(b"x" * 1000)
        os.utime(path, (1e9 + k, 1e9 + k))
    mine = tmp_path / "objects" / "notes.txt"
    mine.write_text("keep")

    def call(*args: str) -> dict[str, int]:
        assert main(["cache", *args, "--json"]) == 0
        found: dict[str, int] = json.loads(capsys.readouterr().out)
        return found

    assert (call()["files"], call("show")["size_bytes"]) == (3, 3000)
    assert call("prune", "--days", "1e6", "--max-bytes", "2000")["removed_files"] == 1
    assert not (tmp_path / "objects" / "0.o").exists()  # the oldest
    assert call("prune", "--days", "1")["files"] == 0
    assert call("clear")["files"] == 0
    assert mine.read_text() == "keep"


def test_diff_of_equal_and_different_plans(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", SOFTMAX, SOFTMAX]) == 0
    assert main(["plan", SOFTMAX, "--json"]) == 0
    capsys.readouterr()
    assert main(["diff", SOFTMAX, NORM, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["diff"][0].startswith("---")
    before = tmp_path / "before.json"
    before.write_text(json.dumps({"schema": "tilewright.plan/1", "fusions": [], "explanation": "none"}))
    assert main(["diff", str(before), SOFTMAX]) == 1
    plan = tiling.plan(hlo.load(SOFTMAX), supports=codegen.supports)
    before.write_text(plan.explain("json"))
    assert main(["diff", str(before), str(before)]) == 0  # it had no "fusions"
    plan.save(kept := tmp_path / "kept.json")
    assert main(["diff", str(before), str(kept)]) == 0
    capsys.readouterr()
    main(["plan", SOFTMAX, "--json"])
    assert json.loads(capsys.readouterr().out).keys() == {*plan.to_json(), "file"}
    before.write_text('{"schema": "tilewright.plan/1"}')
    assert main(["diff", str(before), SOFTMAX]) == 2
    before.write_text("{}")
    assert main(["diff", str(before), SOFTMAX]) == 2
    assert "tilewright plan --json" in capsys.readouterr().err


def test_output_in_a_pipe_has_no_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diff", SOFTMAX, NORM])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in ("run", "check", "maps", "plan", "source", "diff", "picture", "doctor", "calibrate", "cache", "completion"):
        assert command in script
    if shell == "bash" and shutil.which("bash"):
        probe = script + '\nCOMP_WORDS=(tilewright do); COMP_CWORD=1; _tilewright; echo "${COMPREPLY[@]}"'
        assert subprocess.run(["bash", "-c", probe], capture_output=True, text=True, check=True).stdout.split()[0] == "doctor"


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last of some words."""
    line = " ".join(f"'{w}'" for w in words)
    probe = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _tilewright; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return subprocess.run(["bash", "-c", probe], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
def test_completion_in_bash(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file with a space in its name came as two words, and files where no file can stand."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.mlir").write_text("")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, "tilewright", "p") == ["plan", "picture", "passes"]
    assert completed(script, "tilewright", "plan", "a") == ["a b.mlir"]
    assert completed(script, "tilewright", "maps", "--o") == ["--op"]
    assert completed(script, "tilewright", "run", "--input", "") == ["a b.mlir"]
    assert completed(script, "tilewright", "run", "--seed", "") == [""]
    assert completed(script, "tilewright", "doctor", "a") == [""]
    assert completed(script, "tilewright", "cache", "c") == ["clear"]


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish here")
def test_completion_in_fish(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    (tmp_path / "a b.mlir").write_text("")
    script = tmp_path / "tilewright.fish"
    script.write_text(capsys.readouterr().out)

    def offered(line: str) -> list[str]:
        command = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
        shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        return [text.partition("\t")[0] for text in shown.splitlines()]

    assert offered("tilewright pl") == ["plan"]
    assert offered("tilewright plan a") == ["a b.mlir"]
    assert offered("tilewright doctor a") == []
    assert offered("tilewright cache c") == ["clear"]


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh here")
def test_completion_loads_in_a_zsh_without_settings(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`compdef` was missing where nothing had called compinit."""
    assert main(["completion", "zsh"]) == 0
    script = tmp_path / "_tilewright"
    script.write_text(capsys.readouterr().out)
    command = ["zsh", "-f", "-c", f"source {script} && print $_comps[tilewright]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "ZDOTDIR": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "_tilewright\n", "")


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "maps", "diff", "picture", "cache"):
        with pytest.raises(SystemExit):
            parser().parse_args([command, "--help"])
        assert f"  tilewright {command}" in capsys.readouterr().out


def test_output_that_is_closed_is_no_error() -> None:
    """`tilewright plan … >&-` ended in two tracebacks."""
    command = f"{sys.executable} -m tilewright completion bash >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0


def test_what_a_stream_cannot_show_is_written_plainly() -> None:
    """A pipe in ASCII had `\\xd7` in the place of every ×, which moved the columns of tables."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    shown = subprocess.run(
        [sys.executable, "-m", "tilewright", "plan", SOFTMAX], env=environment, capture_output=True, check=True
    )
    assert b"reduce x2" in shown.stdout
    assert b"\\x" not in shown.stdout
