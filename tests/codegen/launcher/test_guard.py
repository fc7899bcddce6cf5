"""TILEWRIGHT_DEBUG=guard: what overruns its memory is found, what does not runs as ever."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
from codegen.kernel.print_numba import print_numba
from codegen.launcher.guard import Block, GuardError, Guards, ScratchUse, StepUse
from codegen.native.jit import compile_kernels
from hlo.errors import SettingError

MODES = ["guard", "guard-before"]
SIZE = 16_385  # 65,540 bytes: large enough to be aligned to lines, and 60 bytes short of one
TEXT = """func.func @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{
  %0 = stablehlo.multiply %x, %x : tensor<{n}xf32>
  return %0 : tensor<{n}xf32>
}}"""
PROGRAMS = Path(__file__).parents[2] / "programs"
SLICE = """
import sys
from pathlib import Path
import numpy as np
import codegen, hlo, interp
for path in sys.argv[1:]:
    module = hlo.load(path)
    rng = np.random.default_rng(0)
    given = [rng.uniform(0.1, 2, v.shape) if v.tensor.dtype.kind == "f" else rng.integers(0, 3, v.shape)
             for v in module.function().arguments]
    given = [np.asarray(a, v.tensor.dtype) for a, v in zip(given, module.function().arguments)]
    exe = codegen.compile(module)
    assert exe._debug
    for a, b in zip(exe(*given), interp.evaluate(module, *given), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)
    print(Path(path).stem, flush=True)
"""


def run(code: str, mode: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, *arguments], env={**os.environ, "TILEWRIGHT_DEBUG": mode, **more},
        cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("mode", "names"), [("guard", "group_norm max_pooling mlp_gradient"), ("guard-before", "rotary top_k")])
def test_programs_run_between_guards(mode: str, names: str) -> None:
    """Fused contractions, windows, reductions, sorting: each on two threads."""
    found = run(SLICE, mode, *(str(PROGRAMS / f"{n}.mlir") for n in names.split()), TILEWRIGHT_NUM_THREADS="2")
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == names.split()


@pytest.mark.parametrize("mode", MODES)
def test_loops_and_choices_run_between_guards(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """func.func @main(%x: tensor<7xf32>, %n: tensor<i32>) -> (tensor<7xf32>, tensor<i32>, tensor<7xf32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<7xf32>
      cond {
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %j = stablehlo.add %i, %one : tensor<i32>
        %w = stablehlo.reverse %v, dims = [0] : tensor<7xf32>
        %y = stablehlo.add %w, %x : tensor<7xf32>
        stablehlo.return %j, %y : tensor<i32>, tensor<7xf32>
      }
      return %r#1, %r#0, %x : tensor<7xf32>, tensor<i32>, tensor<7xf32>
    }"""
    x, n = np.arange(7, dtype=np.float32), np.array(5, np.int32)
    plain = codegen.compile(hlo.parse(text))(x, n)
    monkeypatch.setenv("TILEWRIGHT_DEBUG", mode)
    guarded = codegen.compile(hlo.parse(text))
    for _ in range(2):
        for a, b in zip(guarded(x, n), plain, strict=True):
            np.testing.assert_array_equal(a, b)


def overrunning(monkeypatch: pytest.MonkeyPatch, mode: str, n: int, place: int) -> codegen.Executable:
    """x * x, by a kernel that writes one element too many, too."""

    class Worse:
        def compile(self, kernels: Any) -> Any:
            ((kernel, signature),) = kernels
            name = next(p.name for p in signature.params if p.name != "x")
            return compile_kernels([(f"{print_numba(kernel).rstrip()}\n    {name}[{place}] = float32(7)\n", signature)])

    monkeypatch.setenv("TILEWRIGHT_DEBUG", mode)
    return codegen.compile(hlo.parse(TEXT.format(n=n)), target=Worse())


@pytest.mark.parametrize(
    ("mode", "n", "place", "said"),
    [
        ("guard", SIZE, SIZE, r"4 bytes behind result 0 multiply\w* \(65540 bytes\), at 65540"),
        ("guard", 5, -1, r"4 bytes before result 0 multiply\w* \(20 bytes\), at -4"),
        ("guard-before", 5, 5, r"4 bytes behind result 0 multiply\w* \(20 bytes\), at 20"),
    ],
)
def test_a_kernel_that_writes_outside_is_named(
    mode: str, n: int, place: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = overrunning(monkeypatch, mode, n, place)
    with pytest.raises(GuardError, match=rf"k0_multiply\w* \(step 0\) has written {said}"):
        exe(np.ones(n, np.float32))


CRASH = """
import numpy as np, pytest
from tests.codegen.launcher.test_guard import overrunning
mode, n, place = __import__("sys").argv[1:]
exe = overrunning(pytest.MonkeyPatch(), mode, int(n), int(place))
exe(np.ones(int(n), np.float32))
"""


@pytest.mark.parametrize(("mode", "place"), [("guard", 5), ("guard-before", -1)])
def test_a_page_without_access_stops_a_kernel(mode: str, place: int) -> None:
    found = run(CRASH, mode, mode, "5", str(place))
    assert found.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in found.stderr and "in run" in found.stderr


def test_arguments_cannot_be_written() -> None:
    code = """
import ctypes, numpy as np
from codegen.launcher.guard import Block
b = Block("x", 8, 4)
b.array((2,), np.float32)[:] = 1
b.close_for_writing()
assert b.array((2,), np.float32).sum() == 2
ctypes.memset(b.address, 0, 1)
"""
    assert run(code, "guard").returncode == -signal.SIGSEGV


def test_results_are_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "guard")
    exe = codegen.compile(hlo.parse(TEXT.format(n=5)))
    x = np.arange(5, dtype=np.float32)
    first, second = exe(x)[0], exe(x)[0]
    first[:] = -1
    assert second.tolist() == [0, 1, 4, 9, 16] == exe(x)[0].tolist() and x.tolist() == [0, 1, 2, 3, 4]
    assert len(exe.profile(x)[1]) == 1 and exe.timeline(x)[1][0].kind == "kernel"


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("size", [0, 1, 60, 4096, 5000])
def test_a_block_lies_where_it_should(size: int, before: bool) -> None:
    block = Block("b", size, 64, before)
    assert block.address % 64 == 0 and block.damage() is None
    a = block.array((size,), np.uint8)
    a[:] = 1
    assert block.damage() is None
    if size:
        assert a.ctypes.data == block.address
    room = (-block.address - size) % mmap.PAGESIZE
    if not before:
        assert room < 64


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (-1, "1 byte before a (100 bytes), at -1"),
        (100, "1 byte behind a (100 bytes), at 100"),
        (192 + 50, "1 byte behind b (50 bytes), at 50"),
    ],
)
@pytest.mark.parametrize("thread", [0, 2])
def test_scratch_has_its_canaries(place: int, said: str, thread: int) -> None:
    use = StepUse("k", 320, (ScratchUse("a", 0, 100), ScratchUse("b", 192, 50)))
    guards = Guards({4: use}, {}, before=False)
    base, room = guards.before(4, 3)
    assert base % 64 == 0 and room % mmap.PAGESIZE == 0
    for inside in (0, 99, 192, 241):
        ctypes.memset(base + inside, 0, 1)
    guards.after(4)
    base, room = guards.before(4, 3)
    ctypes.memset(base + thread * room + place, 0, 1)
    with pytest.raises(GuardError) as caught:
        guards.after(4)
    assert str(caught.value) == f"k (step 4) has written {said}, in the scratch of thread {thread}"


def test_another_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "gaurd")
    with pytest.raises(SettingError, match="TILEWRIGHT_DEBUG: expected check, guard, guard-before, prove, found 'gaurd'"):
        codegen.compile(hlo.parse(TEXT.format(n=5)))
