"""What ten thousand different programs, compiled, called and dropped, leave with the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import codegen

ROOT = Path(codegen.__file__).resolve().parents[1]

PROGRAMS = """
import gc, sys
import numpy as np
import codegen, hlo

def held():
    gc.collect()
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096

def one(k):
    op, n = ("tanh", "negate", "abs", "sine", "floor")[k % 5], 3 + k % 997
    t = f"tensor<{n}xf32>"
    text = f"func.func @main(%x: {t}) -> {t} {{ %c = stablehlo.constant dense<{k}.5> : {t} %0 = stablehlo.{op} %x : {t} "
    text += f"%1 = stablehlo.multiply %0, %c : {t} return %1 : {t} }}"
    codegen.compile(hlo.parse(text))(np.ones(n, np.float32))

warm, count = 1000, int(sys.argv[1])
for k in range(warm):
    one(k)
before = held()
for k in range(warm, warm + count):
    one(k)
print((held() - before) / 1e6)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell what a process holds")
def test_ten_thousand_programs_leave_less_than_20_megabytes(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE": str(tmp_path), "TILEWRIGHT_COMPILE_PROCESSES": "1"}
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAMS, "10000"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 20
