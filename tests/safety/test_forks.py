"""A child of a fork compiles, whatever other threads were compiling at that moment."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import codegen
import hlo

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a POSIX call")


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
