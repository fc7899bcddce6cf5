#!/usr/bin/env python3
"""Contractions and convolutions of many shapes against XLA on the CPU (and NumPy's BLAS): GFLOP/s and ratios, checked.

    python -m benchmarks.contractions                       every shape
    python -m benchmarks.contractions --only 'mm_*,conv_*'  some of them
    python -m benchmarks.contractions --blas                also NumPy's matrix product, where the shape is one

Each row: the median milliseconds of this project's kernel and of XLA's, taking turns in one process, the rate, and XLA's time
over ours (above 1 we are faster). `how` says which steps the schedule has: `block` is the register-blocked micro-kernel, `loops`
are plain loops, `evaluator` is NumPy step by step.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import pathlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A JAX function, its operands' shapes and types, and its floating-point (or integer) operations."""

    name: str
    function: Callable[..., Any]
    operands: tuple[tuple[Shape, str], ...]
    flops: float
    blas: Callable[..., Any] | None = None


def product(name: str, m: int, n: int, k: int, dtype: str = "float32", ta: bool = False, tb: bool = False,
            batch: int = 0, result: str | None = None) -> Case:  # fmt: skip
    """C = op(A) op(B) for [m, k] by [k, n], each perhaps stored transposed, perhaps in a batch."""
    import jax.numpy as jnp
    from jax import lax

    lead = (batch,) if batch else ()
    first = len(lead)
    left, right = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))
    contracting = ((first + (0 if ta else 1),), (first + (1 if tb else 0),))
    batching = ((0,), (0,)) if batch else ((), ())

    def function(a: Any, b: Any) -> Any:
        wanted = jnp.dtype(result) if result else None
        return lax.dot_general(a, b, (contracting, batching), preferred_element_type=wanted)

    def blas(a: Any, b: Any) -> Any:
        return (a.swapaxes(-1, -2) if ta else a) @ (b.swapaxes(-1, -2) if tb else b)

    work = 2.0 * m * n * k * (batch or 1) * (4 if dtype.startswith("complex") else 1)
    kinds = dtype.split("*")
    return Case(name, function, ((lead + left, kinds[0]), (lead + right, kinds[-1])), work,
                blas if dtype in ("float32", "float64") else None)  # fmt: skip


def convolution(name: str, x: Shape, w: Shape, layout: str = "NHWC", stride: int = 1, padding: Any = "SAME", dilate: int = 1,
                spread: int = 1, groups: int = 1, dtype: str = "float32", grad: int | None = None) -> Case:  # fmt: skip
    """A convolution of x by w (HWIO, or OIHW with an N C layout), or its gradient by operand `grad`."""
    import jax
    from jax import lax

    rank = len(x) - 2
    spatial = "DHW"[3 - rank :] if rank < 4 else ""
    data = layout.replace("HW", spatial)
    kernel = spatial + "IO" if layout.endswith("C") else "OI" + spatial

    def function(a: Any, b: Any) -> Any:
        return lax.conv_general_dilated(
            a, b, (stride,) * rank, padding, (dilate,) * rank, (spread,) * rank, (data, kernel, data), groups
        )

    struct: Any = jax.ShapeDtypeStruct
    shape = jax.eval_shape(function, struct(x, dtype), struct(w, dtype)).shape
    outputs = shape[data.index("C")]
    work = 2.0
    for n in (*shape, *w):
        work *= n
    work /= outputs * dilate**rank
    if grad is None:
        return Case(name, function, ((x, dtype), (w, dtype)), work)

    def gradient(a: Any, b: Any, g: Any) -> Any:
        return jax.vjp(function, a, b)[1](g)[grad]

    return Case(name, gradient, ((x, dtype), (w, dtype), (shape, dtype)), work)


def einsum(name: str, equation: str, *shapes: Shape, dtype: str = "float32", result: str | None = None) -> Case:
    """A contraction as it is written with indices; its operations are two for each point of all indices, factor by factor."""
    import jax.numpy as jnp

    inputs, output = equation.split("->")
    extents: dict[str, int] = {}
    for term, shape in zip(inputs.split(","), shapes, strict=True):
        extents.update(zip(term, shape, strict=True))
    work, known = 0.0, inputs.split(",")[0]
    for term in inputs.split(",")[1:]:
        step = 2.0
        for letter in {*known, *term}:
            step *= extents[letter]
        work, known = work + step, output

    def function(*arrays: Any) -> Any:
        return jnp.einsum(equation, *arrays, preferred_element_type=jnp.dtype(result) if result else None)

    return Case(name, function, tuple((s, dtype) for s in shapes), work)


def cases() -> list[Case]:
    """Every shape of the table, and the layers of `benchmarks/cases/convolutions.py`."""
    found = [product(f"mm_{n}", n, n, n) for n in (127, 256, 512, 513, 1000, 1024, 2048)]
    for ta, tb in ((False, True), (True, False), (True, True)):
        tag = ("t" if ta else "n") + ("t" if tb else "n")
        found += [product(f"mm_{tag}_{n}", n, n, n, ta=ta, tb=tb) for n in (512, 1024)]
    found += [
        product("wide_512x3072x768", 512, 3072, 768),
        product("flat_3072x768x512", 3072, 768, 512, ta=True),
        product("batch_64x100", 64, 64, 64, batch=100),
        product("batch_64x100_nt", 64, 64, 64, batch=100, tb=True),
        product("batch_32x512", 32, 32, 32, batch=512),
        product("batch_8x4096", 8, 8, 8, batch=4096),
        product("batch_4x10000", 4, 4, 4, batch=10000),
        product("batch_128x256x64x12", 128, 256, 64, batch=12),
        product("batch_1x4096", 1, 64, 64, batch=4096),
        product("one_row_4096", 1, 4096, 4096),
        product("one_row_nt_4096", 1, 4096, 4096, tb=True),
        product("one_column_4096", 4096, 1, 4096),
        product("one_column_tn_4096", 4096, 1, 4096, ta=True),
        product("rows_2x4096", 2, 4096, 4096),
        product("rows_4x4096", 4, 4096, 4096),
        product("rows_8x4096", 8, 4096, 4096),
        product("rows_8x4096_nt", 8, 4096, 4096, tb=True),
        product("columns_2x4096", 4096, 2, 4096),
        product("columns_8x4096", 4096, 8, 4096),
        product("columns_3x4096_nt", 4096, 3, 4096, tb=True),
        product("deep_64x64x65536", 64, 64, 65536),
        product("deep_16x16x262144", 16, 16, 262144, tb=True),
        product("deep_tn_64x64x65536", 64, 64, 65536, ta=True),
        product("dot_1048576", 1, 1, 1 << 20),
        product("thin_k8_2048", 2048, 2048, 8),
        product("outer_2048", 2048, 2048, 1),
        product("f64_512", 512, 512, 512, "float64"),
        product("f64_1024", 1024, 1024, 1024, "float64"),
        product("bf16_1024", 1024, 1024, 1024, "bfloat16"),
        product("bf16_f32_1024", 1024, 1024, 1024, "bfloat16", result="float32"),
        product("bf16_nt_1024", 1024, 1024, 1024, "bfloat16", tb=True),
        product("bf16_rows_4x4096", 4, 4096, 4096, "bfloat16"),
        product("f16_1024", 1024, 1024, 1024, "float16"),
        product("i8_1024", 1024, 1024, 1024, "int8", result="int32"),
        product("i8_512", 512, 512, 512, "int8", result="int32"),
        product("i8_2048", 2048, 2048, 2048, "int8", result="int32"),
        product("i8_nt_1024", 1024, 1024, 1024, "int8", tb=True, result="int32"),
        product("i8_1023", 1023, 1023, 1023, "int8", result="int32"),
        product("u8i8_1024", 1024, 1024, 1024, "uint8*int8", result="int32"),
        product("u8u8_1024", 1024, 1024, 1024, "uint8", result="int32"),
        product("i32_512", 512, 512, 512, "int32"),
        product("i64_256", 256, 256, 256, "int64"),
        product("i16_512", 512, 512, 512, "int16", result="int32"),
        product("c64_512", 512, 512, 512, "complex64"),
        product("c128_256", 256, 256, 256, "complex128"),
    ]
    x = (1, 56, 56, 64)
    for size in (1, 3, 5, 7):
        found.append(convolution(f"conv{size}x{size}", x, (size, size, 64, 64)))
        found.append(convolution(f"conv{size}x{size}_s2", x, (size, size, 64, 64), stride=2))
    found += [
        convolution("conv3x3_valid", x, (3, 3, 64, 64), padding="VALID"),
        convolution("conv3x3_b8", (8, 28, 28, 128), (3, 3, 128, 128)),
        convolution("conv1x1_256_64", (*x[:3], 256), (1, 1, 256, 64)),
        convolution("conv3x3_14_512", (1, 14, 14, 512), (3, 3, 512, 512)),
        convolution("conv3x3_dilated", x, (3, 3, 64, 64), spread=2),
        convolution("conv3x3_transposed", (1, 28, 28, 64), (3, 3, 64, 64), dilate=2, padding=((1, 2), (1, 2))),
        convolution("conv3x3_g4", x, (3, 3, 16, 64), groups=4),
        convolution("conv3x3_g32", (1, 56, 56, 128), (3, 3, 4, 128), groups=32),
        convolution("stem7x7_s2", (1, 224, 224, 3), (7, 7, 3, 64), stride=2),
        convolution("stem3x3_s2", (1, 224, 224, 3), (3, 3, 3, 32), stride=2),
        convolution("nchw3x3", (1, 64, 56, 56), (64, 64, 3, 3), "NCHW"),
        convolution("nchw1x1", (1, 64, 56, 56), (256, 64, 1, 1), "NCHW"),
        convolution("nchw3x3_s2_b8", (8, 64, 28, 28), (128, 64, 3, 3), "NCHW", stride=2),
        convolution("nchw_stem7x7", (1, 3, 224, 224), (64, 3, 7, 7), "NCHW", stride=2),
        convolution("dw3x3", x, (3, 3, 1, 64), groups=64),
        convolution("dw3x3_s2", (1, 112, 112, 64), (3, 3, 1, 64), groups=64, stride=2),
        convolution("dw5x5_b8", (8, 28, 28, 96), (5, 5, 1, 96), groups=96),
        convolution("dw3x3_m2", x, (3, 3, 1, 128), groups=64),
        convolution("dw3x3_nchw", (1, 64, 56, 56), (64, 1, 3, 3), "NCHW", groups=64),
        convolution("conv1d_k3", (8, 512, 64), (3, 64, 128), "NHWC"),
        convolution("conv1d_k4_causal_dw", (8, 512, 256), (4, 1, 256), "NHWC", padding=((3, 0),), groups=256),
        convolution("conv3d_3", (1, 16, 28, 28, 32), (3, 3, 3, 32, 32), "NHWC"),
        convolution("conv3x3_f64", (1, 28, 28, 64), (3, 3, 64, 64), dtype="float64"),
        convolution("conv3x3_bf16", x, (3, 3, 64, 64), dtype="bfloat16"),
        convolution("grad_x_3x3", (4, 28, 28, 64), (3, 3, 64, 64), grad=0),
        convolution("grad_w_3x3", (4, 28, 28, 64), (3, 3, 64, 64), grad=1),
        convolution("grad_x_3x3_s2", (4, 28, 28, 64), (3, 3, 64, 64), stride=2, grad=0),
        convolution("grad_w_3x3_s2", (4, 28, 28, 64), (3, 3, 64, 64), stride=2, grad=1),
        convolution("grad_x_dw", (4, 28, 28, 64), (3, 3, 1, 64), groups=64, grad=0),
        convolution("grad_w_dw", (4, 28, 28, 64), (3, 3, 1, 64), groups=64, grad=1),
        convolution("grad_x_nchw", (4, 64, 28, 28), (64, 64, 3, 3), "NCHW", grad=0),
        convolution("grad_w_nchw", (4, 64, 28, 28), (64, 64, 3, 3), "NCHW", grad=1),
    ]
    found += [
        product("rows_16x2048_nt", 16, 2048, 2048, tb=True),
        product("rows_64x1024_nt", 64, 1024, 1024, tb=True),
        product("columns_4x2048", 2048, 4, 2048),
        product("columns_16x2048", 2048, 16, 2048),
        product("columns_8x4096_nt", 4096, 8, 4096, tb=True),
        product("columns_5x3000_tn", 3000, 5, 3000, ta=True),
        product("one_column_1000", 1000, 1, 1000),
        product("one_column_300x20000", 300, 1, 20000),
        product("one_column_20000x300", 20000, 1, 300),
        product("one_row_1000", 1, 1000, 1000),
        product("one_column_f64", 2048, 1, 2048, "float64"),
        product("one_row_f64", 1, 2048, 2048, "float64"),
        product("one_column_bf16", 4096, 1, 4096, "bfloat16"),
        product("one_row_bf16", 1, 4096, 4096, "bfloat16"),
        product("one_column_f16", 4096, 1, 4096, "float16"),
        product("one_column_i8", 4096, 1, 4096, "int8", result="int32"),
        product("one_row_i8", 1, 4096, 4096, "int8", result="int32"),
        product("one_column_i32", 2048, 1, 2048, "int32"),
        product("one_column_c64", 1024, 1, 1024, "complex64"),
        product("deep_32x32x32768_nt", 32, 32, 32768, tb=True),
        product("deep_128x128x16384", 128, 128, 16384),
        product("deep_8x8x100000_tn", 8, 8, 100000, ta=True),
        product("deep_256x10x60000_tn", 256, 10, 60000, ta=True),
        product("dot_f64_262144", 1, 1, 1 << 18, "float64"),
        product("dot_1000", 1, 1, 1000),
        product("thin_k1_1024x64", 1024, 64, 1),
        product("thin_k2_2048", 2048, 2048, 2),
        product("thin_k3_4096x512", 4096, 512, 3),
        product("thin_k16_2048", 2048, 2048, 16),
        product("thin_k32_1024_nt", 1024, 1024, 32, tb=True),
        product("thin_k64_2048", 2048, 2048, 64),
        product("batch_16x1024", 16, 16, 16, batch=1024),
        product("batch_16x1024_nt", 16, 16, 16, batch=1024, tb=True),
        product("batch_16x1024_tn", 16, 16, 16, batch=1024, ta=True),
        product("batch_3x20000", 3, 3, 3, batch=20000),
        product("batch_64x64", 64, 64, 64, batch=64),
        product("batch_64x64_tn", 64, 64, 64, batch=64, ta=True),
        product("batch_128x16_f64", 128, 128, 128, "float64", batch=16),
        product("batch_matvec_256x64", 256, 1, 256, batch=64),
        product("batch_matvec_64x1024", 64, 1, 64, batch=1024),
        product("batch_dot_64x4096", 1, 1, 64, batch=4096),
        product("batch_bf16_64x64", 64, 64, 64, "bfloat16", batch=64),
        product("batch_i8_64x64", 64, 64, 64, "int8", batch=64, result="int32"),
        product("f64_nt_512", 512, 512, 512, "float64", tb=True),
        product("f64_tn_512", 512, 512, 512, "float64", ta=True),
        product("bf16_f32_nt_512", 512, 512, 512, "bfloat16", tb=True, result="float32"),
        product("bf16_tn_512", 512, 512, 512, "bfloat16", ta=True),
        product("bf16_f32_tn_512", 512, 512, 512, "bfloat16", ta=True, result="float32"),
        product("bf16_wide_256x1024x4096", 256, 1024, 4096, "bfloat16"),
        product("bf16_rows_8x4096_nt", 8, 4096, 4096, "bfloat16", tb=True),
        product("f16_nt_512", 512, 512, 512, "float16", tb=True),
        product("i8_tn_512", 512, 512, 512, "int8", ta=True, result="int32"),
        product("i8_tt_512", 512, 512, 512, "int8", ta=True, tb=True, result="int32"),
        product("i8_rows_8x4096", 8, 4096, 4096, "int8", result="int32"),
        product("i8_rows_8x4096_nt", 8, 4096, 4096, "int8", tb=True, result="int32"),
        product("i8u8_512", 512, 512, 512, "int8*uint8", result="int32"),
        product("u8i8_nt_512", 512, 512, 512, "uint8*int8", tb=True, result="int32"),
        product("i8_i8_512", 512, 512, 512, "int8"),
        product("i32_nt_512", 512, 512, 512, "int32", tb=True),
        product("c64_nt_256", 256, 256, 256, "complex64", tb=True),
        product("c128_128", 128, 128, 128, "complex128"),
        product("tri_100x200x300", 100, 200, 300),
        product("tri_33x77x1025", 33, 77, 1025),
        einsum("ein_bij_bjk", "bij,bjk->bik", (32, 128, 96), (32, 96, 64)),
        einsum("ein_bhqd_bkhd", "bhqd,bkhd->bhqk", (2, 8, 256, 64), (2, 256, 8, 64)),
        einsum("ein_bqhd_bkhd", "bqhd,bkhd->bhqk", (2, 256, 8, 64), (2, 256, 8, 64)),
        einsum("ein_bhqk_bkhd", "bhqk,bkhd->bqhd", (2, 8, 256, 256), (2, 256, 8, 64)),
        einsum("ein_ij_kj", "ij,kj->ik", (384, 512), (640, 512)),
        einsum("ein_ij_kj_ki", "ij,kj->ki", (384, 512), (640, 512)),
        einsum("ein_ij_jk_kl", "ij,jk,kl->il", (256, 256), (256, 256), (256, 256)),
        einsum("ein_ibj_jbk", "ibj,jbk->bik", (64, 32, 64), (64, 32, 64)),
        einsum("ein_ijb_jkb", "ijb,jkb->ikb", (32, 32, 64), (32, 32, 64)),
        einsum("ein_ijk_jkl", "ijk,jkl->il", (64, 32, 48), (32, 48, 128)),
        einsum("ein_ijk_kjl", "ijk,kjl->il", (64, 32, 48), (48, 32, 128)),
        einsum("ein_btd_dhk", "btd,dhk->bhtk", (4, 128, 256), (256, 8, 32)),
        einsum("ein_bthk_hkd", "bthk,hkd->btd", (4, 128, 8, 32), (8, 32, 256)),
        einsum("ein_btd_btf", "btd,btf->df", (8, 512, 256), (8, 512, 128)),
        einsum("ein_bd_bd", "bd,bd->b", (4096, 512), (4096, 512)),
        einsum("ein_i_j", "i,j->ij", (2000,), (3000,)),
        einsum("ein_bi_bj", "bi,bj->bij", (512, 64), (512, 64)),
        einsum("ein_bilinear", "bi,oij,bj->bo", (128, 64), (32, 64, 64), (128, 64)),
        einsum("ein_moe", "ebd,edf->ebf", (8, 64, 256), (8, 256, 512)),
        einsum("ein_nd_md_f64", "nd,md->nm", (512, 3), (700, 3), dtype="float64"),
        convolution("conv1x1_s2", (1, 56, 56, 64), (1, 1, 64, 128), stride=2),
        convolution("conv3x3_b1_7_512", (1, 7, 7, 512), (3, 3, 512, 512)),
        convolution("conv3x3_112_32", (1, 112, 112, 32), (3, 3, 32, 32)),
        convolution("conv3x3_16ch", (2, 64, 64, 16), (3, 3, 16, 16)),
        convolution("conv3x3_1to8", (4, 64, 64, 1), (3, 3, 1, 8)),
        convolution("conv3x3_to1", (1, 128, 128, 32), (3, 3, 32, 1)),
        convolution("conv4x4_s4_patch", (4, 64, 64, 3), (4, 4, 3, 96), stride=4, padding="VALID"),
        convolution("conv16_s16_patch", (1, 224, 224, 3), (16, 16, 3, 384), stride=16, padding="VALID"),
        convolution("conv3x3_g2", (2, 28, 28, 64), (3, 3, 32, 64), groups=2),
        convolution("nchw3x3_32", (4, 32, 32, 32), (32, 32, 3, 3), "NCHW"),
        convolution("nchw3x3_14_256", (1, 256, 14, 14), (256, 256, 3, 3), "NCHW"),
        convolution("nchw3x3_b16_28", (16, 32, 28, 28), (64, 32, 3, 3), "NCHW"),
        convolution("nchw1x1_b4_s2", (4, 128, 28, 28), (256, 128, 1, 1), "NCHW", stride=2),
        convolution("nchw3x3_dilated", (1, 64, 56, 56), (64, 64, 3, 3), "NCHW", spread=2),
        convolution("nchw3x3_g4", (1, 64, 56, 56), (64, 16, 3, 3), "NCHW", groups=4),
        convolution("nchw_transposed", (1, 64, 28, 28), (32, 64, 3, 3), "NCHW", dilate=2, padding=((1, 2), (1, 2))),
        convolution("nchw_transposed_4x4", (1, 64, 28, 28), (64, 64, 4, 4), "NCHW", dilate=2, padding=((2, 2), (2, 2))),
        convolution("dw7x7_nchw", (1, 96, 56, 56), (96, 1, 7, 7), "NCHW", groups=96),
        convolution("dw3x3_nchw_s2", (1, 64, 112, 112), (64, 1, 3, 3), "NCHW", groups=64, stride=2),
        convolution("conv1d_nch", (8, 64, 512), (128, 64, 5), "NCHW"),
        convolution("conv1d_nch_wave", (4, 1, 16000), (64, 1, 400), "NCHW", stride=160, padding="VALID"),
        convolution("conv1d_long", (1, 16384, 16), (9, 16, 16)),
        convolution("conv3d_ncdhw", (1, 16, 16, 32, 32), (32, 16, 3, 3, 3), "NCHW"),
        convolution("conv3x3_bf16_nchw", (1, 64, 56, 56), (64, 64, 3, 3), "NCHW", dtype="bfloat16"),
        convolution("grad_w_nchw_s2", (4, 64, 28, 28), (128, 64, 3, 3), "NCHW", stride=2, grad=1),
        convolution("grad_x_nchw_s2", (4, 64, 28, 28), (128, 64, 3, 3), "NCHW", stride=2, grad=0),
        convolution("grad_w_nchw_1x1", (4, 64, 28, 28), (128, 64, 1, 1), "NCHW", grad=1),
        convolution("grad_w_1d_nch", (8, 64, 256), (64, 64, 5), "NCHW", grad=1),
        convolution("grad_w_nchw_dw", (4, 64, 28, 28), (64, 1, 3, 3), "NCHW", groups=64, grad=1),
        convolution("grad_x_nchw_dw", (4, 64, 28, 28), (64, 1, 3, 3), "NCHW", groups=64, grad=0),
        product("batch_2x100000", 2, 2, 2, batch=100000),
        product("batch_5x5000", 5, 5, 5, batch=5000),
        product("batch_6x7x9x3000", 6, 7, 9, batch=3000),
        product("batch_12x1000", 12, 12, 12, batch=1000),
        product("batch_24x300_tn", 24, 24, 24, batch=300, ta=True),
        product("batch_48x200_f64", 48, 48, 48, "float64", batch=200),
        product("batch_100x4_nt", 100, 100, 100, batch=4, tb=True),
        product("batch_c64_16x200", 16, 16, 16, "complex64", batch=200),
        product("batch_i32_16x500", 16, 16, 16, "int32", batch=500),
        product("batch_vecmat_512x16", 1, 512, 512, batch=16),
        product("batch_rows_4x128x512", 4, 512, 128, batch=32),
        product("batch_rows_nt_4x512x128", 4, 512, 128, batch=32, tb=True),
        product("mm_17x4097x129", 17, 4097, 129),
        product("mm_4097x17x129", 4097, 17, 129),
        product("mm_4097x17x129_tn", 4097, 17, 129, ta=True),
        product("mm_300x10x4000", 300, 10, 4000),
        product("mm_1000x24x1000", 1000, 24, 1000),
        product("mm_1000x40x1000_nt", 1000, 40, 1000, tb=True),
        product("mm_10x10x100000_tn", 10, 10, 100000, ta=True),
        product("mm_20x30x50", 20, 30, 50),
        product("mm_8x8x8", 8, 8, 8),
        product("mm_64x64x64", 64, 64, 64),
        product("vecmat_16384x512", 1, 512, 16384),
        product("vecmat_2048x5504", 1, 5504, 2048),
        product("matvec_16384x512", 16384, 1, 512),
        product("rows_3x5504x2048_bf16", 3, 5504, 2048, "bfloat16"),
        product("bf16_rows_1x4096_f32", 1, 4096, 4096, "bfloat16", result="float32"),
        product("bf16_f32_256", 256, 256, 256, "bfloat16", result="float32"),
        product("f16_f32_512", 512, 512, 512, "float16", result="float32"),
        product("i8_f32ish_i16", 512, 512, 512, "int8*int16", result="int32"),
        product("i8_300x70x1000", 300, 70, 1000, "int8", result="int32"),
        product("u8u8_nt_512", 512, 512, 512, "uint8", tb=True, result="int32"),
        product("u32_512", 512, 512, 512, "uint32"),
        product("i64_nt_256", 256, 256, 256, "int64", tb=True),
        product("c64_rows_4x1024", 4, 1024, 1024, "complex64"),
        product("c64_tn_256", 256, 256, 256, "complex64", ta=True),
        einsum("ein_bij_bj", "bij,bj->bi", (64, 200, 300), (64, 300)),
        einsum("ein_bi_bij", "bi,bij->bj", (64, 200), (64, 200, 300)),
        einsum("ein_ij_ij_i", "ij,ij->i", (3000, 700), (3000, 700)),
        einsum("ein_ij_ij", "ij,ij->", (3000, 700), (3000, 700)),
        einsum("ein_ij_ij_j", "ij,ij->j", (3000, 700), (3000, 700)),
        einsum("ein_ij_j", "ij,j->ij", (3000, 700), (700,)),
        einsum("ein_ij_jk_T", "ij,jk->ki", (500, 300), (300, 400)),
        einsum("ein_ji_kj", "ji,kj->ik", (300, 500), (400, 300)),
        einsum("ein_bhqd_hdk", "bhqd,hdk->bhqk", (4, 8, 64, 64), (8, 64, 64)),
        einsum("ein_bqhd_bkhd_bqkh", "bqhd,bkhd->bqkh", (2, 128, 8, 64), (2, 128, 8, 64)),
        einsum("ein_abcd_cdef", "abcd,cdef->abef", (8, 16, 16, 16), (16, 16, 16, 16)),
        einsum("ein_abcd_dcef", "abcd,dcef->abef", (8, 16, 16, 16), (16, 16, 16, 16)),
        einsum("ein_abcd_ebfd", "abcd,ebfd->acef", (8, 16, 16, 16), (8, 16, 16, 16)),
        einsum("ein_ijkl_lk_ij", "ijkl,lk->ij", (64, 64, 16, 16), (16, 16)),
        einsum("ein_bnc_bmc", "bnc,bmc->bnm", (8, 300, 3), (8, 400, 3)),
        einsum("ein_nchw_co", "nchw,co->nohw", (4, 64, 28, 28), (64, 96)),
        einsum("ein_nhwc_co", "nhwc,co->nhwo", (4, 28, 28, 64), (64, 96)),
        einsum("ein_ti_tj_tij", "ti,tj->ij", (5000, 40), (5000, 60)),
        einsum("ein_bs_bsd", "bs,bsd->bd", (32, 512), (32, 512, 128)),
        einsum("ein_kron", "ij,kl->ikjl", (40, 40), (50, 50)),
        einsum("ein_c64", "bij,bjk->bik", (8, 64, 64), (8, 64, 64), dtype="complex64"),
        einsum("ein_f64_chain", "ij,jk,kl->il", (200, 300), (300, 100), (100, 250), dtype="float64"),
        einsum("ein_tucker", "abc,ai,bj,ck->ijk", (32, 32, 32), (32, 16), (32, 16), (32, 16)),
        convolution("conv3x3_i8", (1, 28, 28, 64), (3, 3, 64, 64), dtype="int8"),
        convolution("conv3x3_f16", (1, 56, 56, 64), (3, 3, 64, 64), dtype="float16"),
        convolution("conv3x3_s3", (2, 60, 60, 32), (3, 3, 32, 64), stride=3),
        convolution("conv5x5_valid_d3", (1, 64, 64, 32), (5, 5, 32, 32), padding="VALID", spread=3),
        convolution("conv1x7", (1, 28, 28, 64), (1, 7, 64, 64)),
        convolution("conv7x1", (1, 28, 28, 64), (7, 1, 64, 64)),
        convolution("conv11x11_s4", (1, 224, 224, 3), (11, 11, 3, 96), stride=4, padding="VALID"),
        convolution("conv1d_dw_nch", (8, 256, 512), (256, 1, 7), "NCHW", groups=256),
        convolution("conv1d_g8", (8, 512, 128), (3, 16, 128), groups=8),
        convolution("conv1d_s2_nch", (8, 64, 1024), (128, 64, 8), "NCHW", stride=2),
        convolution("conv1d_transposed", (4, 256, 64), (4, 64, 32), dilate=2, padding=((2, 2),)),
        convolution("conv3d_s2", (1, 32, 32, 32, 16), (3, 3, 3, 16, 32), stride=2),
        convolution("conv3d_dw", (1, 16, 28, 28, 32), (3, 3, 3, 1, 32), groups=32),
        convolution("conv2x2_transposed", (1, 64, 64, 32), (2, 2, 32, 32), dilate=2, padding=((1, 1), (1, 1))),
        convolution("nchw5x5_b4", (4, 32, 28, 28), (64, 32, 5, 5), "NCHW"),
        convolution("nchw3x3_3to16", (8, 3, 64, 64), (16, 3, 3, 3), "NCHW"),
        convolution("nchw3x3_1to32_mnist", (64, 1, 28, 28), (32, 1, 3, 3), "NCHW", padding="VALID"),
        convolution("nchw3x3_32to64_mnist", (64, 32, 13, 13), (64, 32, 3, 3), "NCHW", padding="VALID"),
        convolution("nchw3x3_g32", (2, 128, 28, 28), (128, 4, 3, 3), "NCHW", groups=32),
        convolution("nchw_to1", (2, 64, 64, 64), (1, 64, 3, 3), "NCHW"),
        convolution("nchw_f64", (1, 32, 28, 28), (32, 32, 3, 3), "NCHW", dtype="float64"),
        convolution("nchw_patch16", (2, 3, 224, 224), (192, 3, 16, 16), "NCHW", stride=16, padding="VALID"),
        convolution("dw9x9", (1, 56, 56, 96), (9, 9, 1, 96), groups=96),
        convolution("dw3x3_dilated", (1, 56, 56, 64), (3, 3, 1, 64), groups=64, spread=2),
        convolution("dw3x3_m4", (1, 28, 28, 16), (3, 3, 1, 64), groups=16),
        convolution("dw3x3_bf16", (1, 56, 56, 64), (3, 3, 1, 64), groups=64, dtype="bfloat16"),
        convolution("grad_w_stem", (2, 112, 112, 3), (7, 7, 3, 32), stride=2, grad=1),
        convolution("grad_w_nchw_stem", (2, 3, 112, 112), (32, 3, 7, 7), "NCHW", stride=2, grad=1),
        convolution("grad_w_1d", (8, 256, 64), (5, 64, 64), grad=1),
        convolution("grad_x_1d_s2_nch", (8, 64, 256), (64, 64, 4), "NCHW", stride=2, grad=0),
        convolution("grad_w_3d", (1, 8, 14, 14, 32), (3, 3, 3, 32, 32), grad=1),
        convolution("grad_w_dw_s2", (2, 56, 56, 64), (3, 3, 1, 64), groups=64, stride=2, grad=1),
        convolution("grad_x_g4_nchw", (2, 64, 28, 28), (64, 16, 3, 3), "NCHW", groups=4, grad=0),
        convolution("grad_w_g4_nchw", (2, 64, 28, 28), (64, 16, 3, 3), "NCHW", groups=4, grad=1),
        convolution("grad_w_g4", (4, 28, 28, 64), (3, 3, 16, 64), groups=4, grad=1),
    ]
    from benchmarks.cases.convolutions import layers

    return [*found, *layers(convolution)]


def realtime(on: bool) -> None:
    """Gives every thread of this process real-time priority while it is timed, where the system lets it."""
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setscheduler(int(thread), os.SCHED_RR if on else os.SCHED_OTHER, os.sched_param(int(on)))
        except OSError:
            return


def steps_of(executable: Any) -> str:
    """Which kinds of steps an executable's plan has, the packing ahead of the tasks left out."""
    from tiling.loops.ir import Nest

    kinds = []
    for fusion in executable.plan.fusions:
        for step in fusion.schedule.phases[-1].steps:
            if not isinstance(step, Nest):
                kinds.append("block")
            elif step.folds:
                kinds.append("loops")
    return "+".join(dict.fromkeys([*kinds, *(["evaluator"] if executable.fallbacks else [])])) or "moves"


def measure(case: Case, turns: int, seconds: float, with_blas: bool, priority: bool) -> str:
    """One row of the table."""
    import jax
    import numpy as np

    import codegen
    import hlo
    from benchmarks.compare_jax import interleave

    rng = np.random.default_rng(0)

    def operand(shape: Shape, dtype: str) -> Any:
        kind = jax.numpy.dtype(dtype)
        if kind.kind in "iu":
            info = np.iinfo(kind)
            return rng.integers(max(info.min, -1000), min(info.max, 1000) + 1, shape).astype(kind)
        if kind.kind == "c":
            return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
        return rng.standard_normal(shape).astype(kind)

    arrays = [operand(*o) for o in case.operands]
    lowered = jax.jit(case.function, keep_unused=True).lower(*arrays)
    module = hlo.parse(lowered.as_text())
    start = time.perf_counter()
    executable = codegen.compile(module)
    (got,) = executable(*arrays)
    first = time.perf_counter() - start
    compiled = lowered.compile()
    on_device = [jax.device_put(a) for a in arrays]
    want = np.asarray(compiled(*on_device))
    exact = want.dtype.kind in "iu"
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    error = float(np.abs(got.astype(wide) - want.astype(wide)).max() / max(np.abs(want.astype(wide)).max(), 1e-30))
    limit = 0.0 if exact else {2: 2e-2, 4: 2e-5, 8: 1e-12}.get(want.dtype.itemsize // (2 if want.dtype.kind == "c" else 1), 1e-5)
    tag = f"{case.name:22}"
    if not error <= limit:
        return f"{tag} WRONG by {error:.2e}"
    kept: list[Any] = []

    def ours() -> None:
        kept.clear()  # as XLA's caller does: the next result may take the place of the last one
        kept[:] = executable(*arrays)

    def theirs() -> None:
        jax.block_until_ready(compiled(*on_device))  # type: ignore[no-untyped-call]

    if priority:
        realtime(True)
    mine, other = interleave(ours, theirs, turns, seconds)
    library = None
    if with_blas and case.blas is not None:
        again, library = interleave(ours, lambda: case.blas(*arrays), turns, seconds)  # type: ignore[misc]
        mine = min(mine, again, key=lambda t: t.median)
    if priority:
        realtime(False)
    row = (
        f"{tag} {mine.median * 1e3:9.3f} {other.median * 1e3:9.3f} {case.flops / mine.median / 1e9:8.1f} "
        f"{other.median / mine.median:6.2f}"
    )
    if with_blas:
        row += " " + (f"{library.median * 1e3:9.3f} {library.median / mine.median:6.2f}" if library else " " * 16)
    return f"{row} {first:6.2f}  {error:.0e} {steps_of(executable)}"


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="*", metavar="PATTERNS", help="names, perhaps with wildcards, separated by commas")
    p.add_argument("--turns", type=int, default=7)
    p.add_argument("--seconds", type=float, default=0.05, help="time each for at least this long")
    p.add_argument("--threads", type=int, default=0, metavar="N", help="threads of both (default: all)")
    p.add_argument("--blas", action="store_true", help="also time NumPy's matrix product")
    p.add_argument("--realtime", action="store_true", help="real-time priority while timing (needs the right to it)")
    p.add_argument("--list", action="store_true", help="only print the names")
    args = p.parse_args()
    sys.path.insert(0, str(ROOT))
    from benchmarks.compare_jax import limit_threads

    if args.threads:
        limit_threads(args.threads)
        os.environ["TILEWRIGHT_NUM_THREADS"] = str(args.threads)
    import jax

    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    chosen = [c for c in cases() if any(fnmatch.fnmatch(c.name, x) for x in args.only.split(","))]
    if args.list:
        print("\n".join(c.name for c in chosen))
        return 0
    head = f"{'case':22} {'ours, ms':>9} {'XLA, ms':>9} {'GFLOP/s':>8} {'XLA/us':>6}"
    print(head + (f" {'BLAS, ms':>9} {'BL/us':>6}" if args.blas else "") + f" {'cold s':>6}  error how", flush=True)
    wrong = 0
    for case in chosen:
        row = measure(case, args.turns, args.seconds, args.blas, args.realtime)
        wrong += "WRONG" in row
        print(row, flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
