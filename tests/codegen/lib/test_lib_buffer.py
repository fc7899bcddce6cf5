"""Buffers: every element type, shifting, and what LLVM is told about aliasing."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from codegen.lib.buffer import ELEMENTS, Buf
from codegen.lib.narrow import NARROW_FLOATS, NARROW_INTEGERS
from codegen.native.jit import compile_kernel, kernel_assembly, kernel_ir
from codegen.native.signature import KernelSignature, Param, Scratch
from codegen.target import Target, host_target
from codegen.tune.probe import apply, run


@pytest.mark.parametrize("dtype", sorted(ELEMENTS))
def test_load_and_store_of_every_element_type(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    raw = np.random.default_rng(0).integers(0, 256, 64 * kind.itemsize, dtype=np.uint8)
    bits = NARROW_INTEGERS[dtype][0] if dtype in NARROW_INTEGERS else NARROW_FLOATS[dtype].bits if dtype in NARROW_FLOATS else 8
    raw &= (1 << bits) - 1  # the upper bits of a byte that holds fewer are clear
    x = (raw & 1).astype(bool) if dtype == "bool" else raw.view(kind)
    if kind.kind in "fcV":
        with np.errstate(all="ignore"):
            x = np.where(np.isnan(x), np.ones_like(x), x)
    np.testing.assert_array_equal(apply("x", x).view(np.uint8), x.view(np.uint8))


def test_an_unknown_element_type_is_refused() -> None:
    with pytest.raises(ValueError, match="no element type 'int3'"):
        Buf("int3", "x", 1)


def test_shifted_buffers() -> None:
    source = "def kernel(begin, end, x, y):\n    s = at(x, begin + 2)\n    for i in range(3):\n        at(y, 1)[i] = s[i]\n"
    kernel = compile_kernel(source, KernelSignature((Param("x", "int32", 4), Param("y", "int32", 4))))
    x, y = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    run(kernel, 1, 2, x, y)
    assert y.tolist() == [0, 3, 4, 5, 0, 0, 0, 0]
    y[:] = 0
    kernel.python(1, 2, x, y)
    assert y.tolist() == [0, 3, 4, 5, 0, 0, 0, 0]


SUM = "def kernel(begin, end, x, y, z):\n    for i in range(begin, end):\n        z[i] = x[i] + y[i]\n"


def test_scopes_decide_whether_overlap_is_checked() -> None:
    apart = KernelSignature(tuple(Param(n, "float32") for n in "xyz"))
    text = kernel_ir(SUM, apart)
    assert "vector.body" in text and "memcheck" not in text
    shared = KernelSignature(tuple(Param(n, "float32", scope="all") for n in "xyz"))
    assert "memcheck" in kernel_ir(SUM, shared)


def test_scratch_buffers_do_not_alias_either() -> None:
    source = SUM.replace("x, y, z", "x, z, y")
    params, scratch = (Param("x", "float32"), Param("z", "float32")), (Scratch("y", "float32", 128),)
    text = kernel_ir(source, KernelSignature(params, scratch))
    assert "vector.body" in text and "memcheck" not in text


def test_overlapping_buffers_of_one_scope_stay_correct() -> None:
    kernel = compile_kernel(SUM, KernelSignature(tuple(Param(n, "float32", 4, scope="all") for n in "xyz")))
    x = np.ones(100, np.float32)
    run(kernel, 0, 99, x, x, x[1:])
    assert x[:8].tolist() == [1, 2, 4, 8, 16, 32, 64, 128]


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="instruction names are those of x86")
def test_streamed_parameters_store_past_the_caches() -> None:
    source = SUM.replace("range(begin, end)", "range(begin * 1024, end * 1024)")
    params = (Param("x", "float32"), Param("y", "float32"))
    plain, streamed = (KernelSignature((*params, Param("z", "float32", stream=s))) for s in (False, True))
    assert "movnt" not in kernel_assembly(source, plain)
    text = kernel_assembly(source, streamed)
    assert "movnt" in text and "sfence" in text
    # where alignment cannot be proved the stores stay ordinary
    assert "movnt" not in kernel_assembly(source, KernelSignature((*params, Param("z", "float32", 4, stream=True))))
    arrays = [np.zeros(4096 + 16, np.float32) for _ in range(3)]
    x, y, z = (a[(-a.ctypes.data % 64) // 4 :][:4096] for a in arrays)
    x[:], y[:] = np.arange(4096), 1
    run(compile_kernel(source, streamed), 0, 4, x, y, z)
    np.testing.assert_array_equal(z, x + y)


def test_targets_choose_the_instructions() -> None:
    if not host_target().triple.startswith("x86_64"):
        return
    signature = KernelSignature(tuple(Param(n, "float32") for n in "xyz"))
    avx2 = kernel_assembly(SUM, signature, Target.named("avx2"))
    assert "%ymm" in avx2 and "%zmm" not in avx2
    base = kernel_assembly(SUM, signature, Target.named("baseline"))
    assert "%xmm" in base and "%ymm" not in base and "vaddps" not in base


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="instruction names are those of x86")
def test_inputs_asked_for_ahead_are_prefetched_once_a_line() -> None:
    source = "def kernel(begin, end, x, y):\n    for i in range(begin, end):\n        y[i] = x[i] + x[i]\n"
    for dtype, distance in (("float32", 8192), ("float32", 2048), ("int8", 8192), ("float64", 2048)):
        plain, ahead = (KernelSignature((Param("x", dtype, ahead=a), Param("y", dtype))) for a in (0, distance))
        assert "prefetch" not in kernel_assembly(source, plain)
        text = kernel_assembly(source, ahead)
        assert "prefetcht0" in text, dtype
        places = re.findall(r"prefetcht0\s+(-?\d*)\((.*)\)", text)
        assert len(set(places)) == len(places), dtype
        asked = kernel_ir(source, ahead)
        assert f"i64 {distance}\n" in asked and f"i64 {10240 - distance}\n" not in asked
    x = np.arange(1000, dtype=np.float64)
    y = np.zeros_like(x)
    run(compile_kernel(source, ahead), 0, 1000, x, y)
    np.testing.assert_array_equal(y, 2 * x)
