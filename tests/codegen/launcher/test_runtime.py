"""The runtime under several threads, with few and many of its own, on narrower machines, and over a long life."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import codegen
import hlo
import tiling
from codegen.launcher import launch
from codegen.launcher.launch import Step
from codegen.native.jit import compile_kernel
from codegen.native.signature import KernelSignature, Param
from tests.machines import narrower_targets
from tests.threads import in_threads
from tilewright.inputs import random_arrays

ROOT = Path(__file__).parents[3]
PROGRAMS = sorted([*(ROOT / "tests" / "programs").glob("*.mlir"), *(ROOT / "examples").glob("*.mlir")])

SOFTMAX = """func.func @main(%x: tensor<512x300xf32>) -> tensor<512x300xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<512x300xf32>, tensor<f32>) -> tensor<512xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<512xf32>) -> tensor<512x300xf32>
  %d = stablehlo.subtract %x, %mb : tensor<512x300xf32>
  %e = stablehlo.exponential %d : tensor<512x300xf32>
  %z = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<512x300xf32>, tensor<f32>) -> tensor<512xf32>
  %zb = stablehlo.broadcast_in_dim %z, dims = [0] : (tensor<512xf32>) -> tensor<512x300xf32>
  %y = stablehlo.divide %e, %zb : tensor<512x300xf32>
  return %y : tensor<512x300xf32>
}"""


def bits(results: tuple[np.ndarray, ...]) -> list[bytes]:
    return [np.ascontiguousarray(a).tobytes() for a in results]


def test_six_threads_call_one_program() -> None:
    exe = codegen.compile(hlo.parse(SOFTMAX), threads=3)
    inputs = [np.random.default_rng(k).standard_normal((512, 300), np.float32) for k in range(6)]
    want = [bits(exe(x)) for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(25):
            if bits(exe(inputs[k])) != want[k]:
                wrong.append(k)

    in_threads(work, 6)
    assert not wrong


@pytest.mark.parametrize("threads", [0, -1])
def test_fewer_than_one_thread_is_refused(threads: int) -> None:
    """Scratch is made for as many threads: with none of it a kernel wrote beyond."""
    module = hlo.parse(SOFTMAX)
    with pytest.raises(ValueError, match=f"threads: expected a positive number, found {threads}"):
        codegen.compile(module, threads=threads)
    exe = codegen.compile(module)
    exe.threads = threads
    with pytest.raises(ValueError, match=f"threads: expected a positive number, found {threads}"):
        exe(np.zeros((512, 300), np.float32))


def test_the_interpreters_lock_is_free_while_kernels_run() -> None:
    """A kernel waits for a word that another Python thread writes: with the lock held it would wait until it gives up."""
    source = (
        "def kernel(begin, end, x):\n    n = int64(0)\n"
        "    while atomic_load(x, 0) == 0 and n < 4000000000:\n        n += 1\n    x[1] = atomic_load(x, 0)\n"
    )
    kernel = compile_kernel(source, KernelSignature((Param("x", "int64", 8, "words"),)))
    words = np.zeros(2, np.int64)
    waits = threading.Thread(target=launch.Plan([Step(kernel, 1, (0,))]).run, args=(np.array([words.ctypes.data]),))
    waits.start()
    words[0] = 7
    waits.join()
    assert words[1] == 7


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_the_same_bits_whatever_the_threads_and_from_run_to_run(path: Path) -> None:
    module = hlo.load(path)
    arrays = random_arrays(module.entry, 0)
    exe = codegen.compile(module, threads=1)
    want = bits(exe(*arrays))
    for threads in (1, 2, 3):
        exe.threads = threads
        for _ in range(2):
            assert bits(exe(*arrays)) == want, threads


NARROW = """
import sys
import hlo, codegen, interp
import numpy as np
from tilewright.check import compare
from tilewright.inputs import random_arrays
for path in sys.argv[1:]:
    module = hlo.load(path)
    arrays = random_arrays(module.entry, 0)
    exe = codegen.compile(module)
    assert exe.kernels[0].compiled.target.vector_bytes < 64
    for a, b in zip(exe(*arrays), interp.evaluate(module, *arrays), strict=True):
        c = compare(np.asarray(a), np.asarray(b))
        assert c.passed, (path, c)
print("all", len(sys.argv) - 1)
"""


def narrow(target: str, paths: list[Path], folder: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_TARGET": target, "TILEWRIGHT_CACHE": str(folder)}
    made = subprocess.run(
        [sys.executable, "-c", NARROW, *map(str, paths)], env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.stdout.strip() == f"all {len(paths)}", made.stderr[-2000:]


@pytest.mark.slow  # (in short: what is marked `every_target`, and tests/test_machines.py)
@pytest.mark.parametrize("target", narrower_targets())
def test_narrower_machines_are_slower_and_right(target: str, tmp_path: Path) -> None:
    programs = ROOT / "tests" / "programs"
    # (Of heads that share their keys some are rows of one product there.)
    paths = [ROOT / "examples" / "softmax.mlir", programs / "rotary.mlir", programs / "grouped_query_attention.mlir"]
    narrow(target, paths, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", narrower_targets())
def test_every_program_on_narrower_machines(target: str, tmp_path: Path) -> None:
    narrow(target, PROGRAMS, tmp_path)


MEMORY = """
import sys
import hlo, codegen
import numpy as np
from tilewright.inputs import random_arrays

def kilobytes(what):
    return int(next(l for l in open("/proc/self/status") if l.startswith(what)).split()[1])

module = hlo.parse(sys.stdin.read())
arrays = random_arrays(module.entry, 0)
exe = codegen.compile(module, threads=2)
results = exe(*arrays)
out = sum(a.nbytes for a in results)
del results
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before = kilobytes("VmRSS")
exe(*arrays)
print(exe.stats.scratch_bytes, max(0, kilobytes("VmHWM") - before) * 1024, out)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not say what a call's peak is")
@pytest.mark.parametrize(
    ("text", "most_bytes"),
    [
        # packed keys of 8 MB, and a row tile of scores a thread; the scores would be 512 MB
        ((ROOT / "examples" / "causal_attention.mlir").read_text().replace("1024", "4096"), 16_000_000),
        (SOFTMAX.replace("512", "4096").replace("300", "4096"), 2 << 20),
    ],
    ids=["attention", "softmax"],
)
def test_scratch_is_small_and_counted(text: str, most_bytes: int, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE": str(tmp_path)}
    made = subprocess.run(
        [sys.executable, "-c", MEMORY], env=env, cwd=ROOT, input=text, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    counted, peak, out = map(int, made.stdout.split())
    assert counted < most_bytes
    assert peak <= out + most_bytes, "the second call took more than its results and its scratch"


def test_executables_are_collected() -> None:
    text = """func.func @main(%x: tensor<{0}x8xf32>) -> tensor<{0}x8xf32> {{
      %0 = stablehlo.abs %x : tensor<{0}x8xf32>
      return %0 : tensor<{0}x8xf32>
    }}"""
    gone = []
    for k in range(3, 9):
        exe = codegen.compile(hlo.parse(text.format(k)))
        exe(np.zeros((k, 8), np.float32))
        gone.append(weakref.ref(exe))
    del exe
    gc.collect()
    assert [r() for r in gone] == [None] * 6


def test_text_is_no_module() -> None:
    for call in (codegen.compile, tiling.plan, hlo.verify):
        with pytest.raises(TypeError, match=r"expected a module, found str: hlo\.parse makes one of a text"):
            call("func.func @main")  # type: ignore[operator]
