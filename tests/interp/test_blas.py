"""Forks beside products: OpenBLAS alone would hang there for ever."""

from __future__ import annotations

import subprocess
import sys

from tests.threads import needs_fork

BESIDE_A_FORK = """
import os, threading, time, warnings
import numpy as np
import hlo, interp

warnings.simplefilter("ignore")
program = hlo.parse("HloModule m\\nENTRY e { x = f32[300,300] parameter(0) ROOT r = f32[300,300] dot(x, x), "
                    "lhs_contracting_dims={1}, rhs_contracting_dims={0} }")
x = np.ones((300, 300), np.float32)
calls = 0

def work():
    global calls
    while True:
        interp.evaluate(program, x)
        calls += 1

threading.Thread(target=work, daemon=True).start()
while calls < 2:
    time.sleep(0.001)
for _ in range(10):
    child = os.fork()
    if child == 0:
        interp.evaluate(program, x)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
before = calls
while calls < before + 2:
    time.sleep(0.001)
print("done", flush=True)
os._exit(0)
"""


@needs_fork
def test_a_fork_waits_for_products_and_they_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", BESIDE_A_FORK], capture_output=True, text=True, timeout=60)
    assert done.stdout == "done\n", done.stderr
