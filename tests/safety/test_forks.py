"""A child of a fork compiles, whatever other threads were compiling at that moment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

import codegen
import hlo
from tests.threads import needs_fork

ROOT = Path(codegen.__file__).resolve().parents[1]
pytestmark = needs_fork


def program(n: int) -> str:
    t = f"tensor<{n}xf32>"
    return f"func.func @main(%x: {t}) -> {t} {{ %0 = stablehlo.tanh %x : {t} %1 = stablehlo.add %0, %x : {t} return %1 : {t} }}"


def status_of(child: int, seconds: float) -> int | None:
    """The exit status of a child; None for one that has to be killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def test_a_child_compiles_while_other_threads_of_the_parent_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")
    ended = threading.Event()

    def compile_on(first: int) -> None:
        n = first
        while not ended.is_set():
            n += 1
            codegen.compile(hlo.parse(program(n)))

    threads = [threading.Thread(target=compile_on, args=(1000 * k,), daemon=True) for k in (1, 2)]
    for t in threads:
        t.start()
    try:
        for k in range(3):
            time.sleep(0.15)
            child = os.fork()
            if child == 0:
                n = 9000 + k
                (y,) = codegen.compile(hlo.parse(program(n)))(np.ones(n, np.float32))
                os._exit(0 if np.allclose(y, np.tanh(1) + 1) else 3)
            assert status_of(child, 30) == 0, f"fork {k}"
    finally:
        ended.set()
        for t in threads:
            t.join()


@pytest.mark.parametrize("whose", ["numba", "llvmlite"])
def test_a_fork_waits_for_a_thread_that_compiles_on_its_own_account(whose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numba's lock or llvmlite's, and no other: the child has both free, and compiles."""
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")
    codegen.compile(hlo.parse(program(8000)))  # both are imported
    lock = global_compiler_lock if whose == "numba" else llvmlite.binding.ffi.lib._lock
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(0.3)
            done.set()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    child = os.fork()
    if child == 0:
        code = 3
        try:
            (y,) = codegen.compile(hlo.parse(program(8001)))(np.ones(8001, np.float32))
            code = 0 if done.is_set() and np.allclose(y, np.tanh(1) + 1) else 4
        finally:
            os._exit(code)
    was_done = done.is_set()
    thread.join()
    assert status_of(child, 120) == 0 and was_done


IMPORTS = """
import os, sys, threading, time
import tilewright
text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.tanh %x : tensor<4xf32> return %0 : tensor<4xf32> }"
thread = threading.Thread(target=lambda: tilewright.compile(tilewright.parse(text)))
thread.start()
time.sleep(float(sys.argv[1]))
child = os.fork()
if child == 0:
    import numpy as np
    tilewright.compile(tilewright.parse(text))(np.ones(4, np.float32))
    os._exit(0)
thread.join()
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        sys.exit(status and 3)
    time.sleep(0.02)
os.kill(child, 9)
sys.exit(4)
"""


@pytest.mark.parametrize("seconds", [0.02, 0.2])
def test_a_child_imports_what_another_thread_was_importing(seconds: float) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_NO_CACHE": "1"}
    found = subprocess.run([sys.executable, "-P", "-c", IMPORTS, str(seconds)], env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_no_property_computes_with_a_lock_held() -> None:
    """Python 3.11's `functools.cached_property` holds one that all instances share: `hlo.lazy` has none."""
    for package in ("hlo", "indexing", "tiling", "codegen", "interp", "tilewright", "tilewright_runtime"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text("utf-8")
            assert not re.search(r"functools(\.| import [^\n]*)\bcached_property", text), path
