"""A slice of the random programs and one of each situation; and that what is wrong would be found."""

from __future__ import annotations

import subprocess
import time
import warnings
from typing import Any

import numpy as np
import pytest

import codegen
from codegen.call.memory_safety import MemorySafetyWarning
from tests.hostile import __main__ as command
from tests.hostile import judge, situations
from tests.hostile.programs import program
from tests.hostile.writer import Val

PROGRAMS, A_TEST = 175, 25  # programs, and how many a test has: each starts a process


@pytest.mark.parametrize("first", range(0, PROGRAMS, A_TEST))
def test_programs(first: int) -> None:
    outcome = command.run([f"p{seed}" for seed in range(first, first + A_TEST)])
    assert outcome.findings == []
    assert outcome.tried == {"p": A_TEST, "s": 0}


@pytest.mark.parametrize("name", situations.SITUATIONS)
def test_situation(name: str) -> None:
    if name not in situations.available():
        pytest.skip("this machine lacks what the situation needs")
    seed = situations.available().index(name)
    outcome = command.run([f"s{seed}"])
    assert outcome.findings == []
    assert outcome.tried == {"p": 0, "s": 1}


def test_a_seed_is_a_program() -> None:
    assert program(3) == program(3)
    assert program(3).text != program(4).text
    assert [a.tobytes() for a in program(3).arrays(1)] == [a.tobytes() for a in program(3).arrays(1)]
    assert judge.setting(3) == judge.setting(3)


# ---------------------------------------------------------------- what is wrong is found


def changed(array: Any) -> np.ndarray:
    """An array with one element that is another one."""
    found = np.array(array)
    flat = found.reshape(-1).view(np.uint8)
    flat[-1] ^= 0x41  # sign or exponent, or a high bit of an integer
    return found


def test_a_wrong_element_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        def __init__(self, plan: Any, **rest: Any) -> None:
            self.right = codegen.Executable(plan)

        def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
            return [changed(a) if np.size(a) and a.dtype != bool else a for a in self.right(*arrays)]

    seeds = [s for s in range(12) if any(v.elems and v.element != "i1" for v in program(s).results)]
    for name in ("TILEWRIGHT_TARGET", "TILEWRIGHT_DEBUG"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(codegen, "compile", Wrong)
    assert [s for s in seeds if not judge.tried(s)] == []


def test_a_refuted_plan_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(plan: Any, **rest: Any) -> codegen.Executable:
        warnings.warn("k0 is refuted and replaced", MemorySafetyWarning, stacklevel=2)
        return codegen.Executable(plan)

    for name in ("TILEWRIGHT_TARGET", "TILEWRIGHT_DEBUG"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(codegen, "compile", compile)
    assert judge.tried(0) == ["a plan is refuted: k0 is refuted and replaced"]


def test_what_neighbours_do_too_is_excused_and_nothing_else() -> None:
    v = Val("%v", (2,), "f32", exact=False)
    wanted = np.array([1.0, 100.0], np.float32)
    near = [wanted * np.float32(1 + 1e-6), wanted * np.float32(1 - 1e-6)]
    assert judge.is_unsure(wanted * np.float32(1 + 4e-6), wanted, near, v)
    assert not judge.is_unsure(wanted * np.float32(1.01), wanted, near, v)
    assert not judge.is_unsure(np.array([1.0, np.nan], np.float32), wanted, near, v)


def test_a_process_that_ends_early_is_a_finding_and_the_others_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies at p1, with p2 still to come."""
    monkeypatch.setenv(command.DIES_AT, "p1")
    outcome = command.run(["p0", "p1", "p2"])
    assert [case for case, _ in outcome.findings] == ["p1"] and outcome.tried["p"] == 3
    assert "ends its process with -6" in outcome.findings[0][1]


def test_one_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command.LIMIT_SECONDS, "s", 0.1)
    begun = time.monotonic()
    outcome = command.run(["s0"])
    assert [lines[0] for _, lines in outcome.findings] == ["hangs for 0 s"]
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("library", [command.CHECKS, "libno_such.so"])
def test_the_command_says_whether_malloc_checks(
    library: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    has = command.has_checks(library)
    assert not (has and library == "libno_such.so")
    monkeypatch.setattr(command, "has_checks", lambda: has)
    given: list[dict[str, str]] = []

    def popen(*args: Any, env: dict[str, str], **options: Any) -> Any:
        given.append(env)
        return real(*args, env=env, **options)

    real = subprocess.Popen
    monkeypatch.setattr(command.subprocess, "Popen", popen)
    monkeypatch.setenv(command.DIES_AT, "p0")
    assert command.main(["--only", "p0"]) == 1
    assert ("malloc checks what it is given" in capsys.readouterr().out) == has == (given[0].get("LD_PRELOAD") == command.CHECKS)


def test_the_command_names_what_repeats_a_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(command.DIES_AT, "p5")
    assert command.main(["--only", "p5", "--show"]) == 1
    said = capsys.readouterr().out
    assert "FOUND python -m tests.hostile --only p5" in said and "func.func @main" in said


def test_every_kind_of_step_is_drawn() -> None:
    """What the generator is for is in what it generates."""
    text = "".join(program(s).text for s in range(150))
    wanted = ("reduce", "reduce_window", "scatter", "select_and_scatter", "convolution", "dot_general", "sort", "gather", "if",
              "case", "bitcast_convert", "reshape", "complex", "reduce_precision", "while")  # fmt: skip
    assert [n for n in wanted if f"stablehlo.{n}" not in text] == []
    assert any(0 in v.shape for s in range(150) for v in program(s).results)
    elements = ("i4", "ui4", "ui8", "i64", "f8E5M2", "f8E4M3FN", "bf16", "f16", "f32", "f64", "complex<f32>", "complex<f64>")
    assert [e for e in elements if f"x{e}>" not in text] == []
