"""Loops without end end when a signal's handler raises: in one kernel, in the launcher, nested, and on the command line."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import codegen
import hlo
import interp

ROOT = Path(codegen.__file__).resolve().parents[1]
SECONDS = 0.15  # from the call to the signal

SMALL = """
func.func @main(%x: tensor<i64>) -> tensor<i64> {
  %r = stablehlo.while(%i = %x) : tensor<i64>
    cond { %t = stablehlo.constant dense<true> : tensor<i1> stablehlo.return %t : tensor<i1> }
    do {
      %one = stablehlo.constant dense<1> : tensor<i64>
      %n = stablehlo.add %i, %one : tensor<i64>
      stablehlo.return %n : tensor<i64>
    }
  return %r : tensor<i64>
}
"""
ODD = """cond {
        %one = stablehlo.constant dense<1> : tensor<i64>
        %b = stablehlo.and %i, %one : tensor<i64>
        %c = stablehlo.compare EQ, %b, %one : (tensor<i64>, tensor<i64>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }
"""
WHOLE = f"""
func.func @main(%x: tensor<i64>) -> tensor<i64> {{
  %r = stablehlo.while(%i = %x) : tensor<i64>
      {ODD} do {{
        %two = stablehlo.constant dense<2> : tensor<i64>
        %n = stablehlo.add %i, %two : tensor<i64>
        stablehlo.return %n : tensor<i64>
      }}
  return %r : tensor<i64>
}}
"""
NESTED = f"""
func.func @main(%x: tensor<i64>) -> tensor<i64> {{
  %r = stablehlo.while(%i = %x) : tensor<i64>
      {ODD} do {{
        %q = stablehlo.while(%j = %i) : tensor<i64>
            {ODD.replace("%i", "%j")} do {{
              %two = stablehlo.constant dense<2> : tensor<i64>
              %n = stablehlo.add %j, %two : tensor<i64>
              stablehlo.return %n : tensor<i64>
            }}
        stablehlo.return %q : tensor<i64>
      }}
  return %r : tensor<i64>
}}
"""
LARGE = """
func.func @main(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %r = stablehlo.while(%i = %x) : tensor<256x256xf32>
    cond { %t = stablehlo.constant dense<true> : tensor<i1> stablehlo.return %t : tensor<i1> }
    do {
      %d = stablehlo.dot_general %i, %i, contracting_dims = [1] x [0]
          : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
      %n = stablehlo.tanh %d : tensor<256x256xf32>
      stablehlo.return %n : tensor<256x256xf32>
    }
  return %r : tensor<256x256xf32>
}
"""
ARGUMENTS: dict[str, tuple[str, tuple[np.ndarray, ...]]] = {
    "small": (SMALL, (np.array(3),)),
    "whole": (WHOLE, (np.array(3),)),
    "nested": (NESTED, (np.array(3),)),
    "large": (LARGE, (np.ones((256, 256), np.float32),)),
}


def counted(limit: int) -> str:
    """A loop of about two nanoseconds a turn: a hash of the numbers below a limit."""
    return f"""
func.func @main(%x: tensor<i64>) -> tensor<i64> {{
  %one = stablehlo.constant dense<1> : tensor<i64>
  %odd = stablehlo.constant dense<6364136223846793005> : tensor<i64>
  %limit = stablehlo.constant dense<{limit}> : tensor<i64>
  %r:2 = stablehlo.while(%i = %x, %a = %one) : tensor<i64>, tensor<i64>
    cond {{
      %c = stablehlo.compare LT, %i, %limit : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }}
    do {{
      %m = stablehlo.multiply %a, %odd : tensor<i64>
      %h = stablehlo.xor %m, %i : tensor<i64>
      %n = stablehlo.add %i, %one : tensor<i64>
      stablehlo.return %n, %h : tensor<i64>, tensor<i64>
    }}
  return %r#1 : tensor<i64>
}}
"""


class Stopped(BaseException):
    """What the handler of the tests' signal raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Called: in a moment SIGALRM raises Stopped. A loop that does not hear it would hang the tests: the process is ended."""

    ended = LARGE.replace("dense<true>", "dense<false>")
    for text, arrays in ((NESTED, (np.array(2),)), (ended, ARGUMENTS["large"][1])):
        codegen.compile(hlo.parse(text))(*arrays)  # the launcher itself is compiled at the first call

    def handler(number: int, frame: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, handler)
    faulthandler.dump_traceback_later(90, exit=True)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    faulthandler.cancel_dump_traceback_later()


def test_loops_are_the_kernels_that_they_are_meant_to_be() -> None:
    """One kernel that asks, a kernel of the launcher's loop, one that several threads share."""
    for text, loops in ((WHOLE, 1), (NESTED, 2)):
        source = codegen.compile(hlo.parse(text)).source
        assert source.count("interrupted()") == source.count("while True") == loops
    for text in (SMALL, LARGE):
        assert "while" not in codegen.compile(hlo.parse(text)).source


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", [*ARGUMENTS])
def test_a_loop_without_end_ends_with_the_handlers_exception(alarm: Callable[[], None], name: str, threads: int) -> None:
    text, arrays = ARGUMENTS[name]
    executable = codegen.compile(hlo.parse(text), threads=threads)
    assert not executable.fallbacks
    for _ in range(2):  # what was interrupted can be called again
        started = time.monotonic()
        alarm()
        with pytest.raises(Stopped):
            executable(*arrays)
        assert time.monotonic() - started < 30


def test_profiles_and_the_evaluator_end_too(alarm: Callable[[], None]) -> None:
    module = hlo.parse(SMALL)
    executable = codegen.compile(module)
    alarm()
    with pytest.raises(Stopped):
        executable.profile(np.array(3))
    alarm()
    with pytest.raises(Stopped):
        interp.evaluate(module, np.array(3))


def test_a_handler_that_returns_changes_nothing() -> None:
    """The loop goes on where it was. It is made longer until two signals come: how long a turn takes is the CPU's affair."""
    executable = codegen.compile(hlo.parse(counted(0)))
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    turns = 100_000_000
    try:
        while len(seen) < 2 and turns < 10**12:
            seen.clear()
            turns *= 2
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            (result,) = executable(np.array(-turns))
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) >= 2
    assert result == executable(np.array(-turns))[0]


def test_a_thread_beside_the_main_one_is_not_interrupted_for_it(alarm: Callable[[], None]) -> None:
    """Handlers run in the main thread: its exception is not another thread's."""
    finite = codegen.compile(hlo.parse(counted(100_000_000)))
    endless = codegen.compile(hlo.parse(SMALL))
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.extend(int(finite(np.array(0))[0]) for _ in range(3)))
    thread.start()
    alarm()
    with pytest.raises(Stopped):
        endless(np.array(3))
    thread.join(60)
    assert results == [int(finite(np.array(0))[0])] * 3


@pytest.mark.parametrize("name", ["small", pytest.param("large", marks=pytest.mark.slow)])
def test_the_command_line_ends_with_130(tmp_path: Path, name: str) -> None:
    path = tmp_path / "endless.mlir"
    path.write_text(ARGUMENTS[name][0])
    command = [sys.executable, "-P", "-m", "tilewright", "run", str(path), "--no-check"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test command in the background of a shell ignores it
    try:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    output = errors = ""
    try:
        deadline = time.monotonic() + 60
        spent = 0.0
        while spent < 2.0 and time.monotonic() < deadline:  # in the loop once it has used the time of starting several times
            time.sleep(0.2)
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            spent = int(fields[11]) / os.sysconf("SC_CLK_TCK")
        for _ in range(3):  # once, where it is in the loop; what Python does in a finalizer while it starts loses an interrupt
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                output, errors = process.communicate(timeout=30)
                break
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, (output, errors)
    assert errors.strip().endswith("interrupted")
