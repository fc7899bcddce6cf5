"""Contractions, convolutions, windows, gathers, scatters, sorts and scans of jax.lax, each with its options."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax_families.common import Table, values, whole_range

PROGRAMS = Table()
add = PROGRAMS.add


def f32(*shape: int, seed: str = "", **options: Any) -> np.ndarray:
    return values("float32", *shape, seed=seed, **options)


# ---------------------------------------------------------------- contractions

_DOTS = [
    ("vector vector", (7,), (7,), (((0,), (0,)), ((), ()))),
    ("matrix vector", (5, 7), (7,), (((1,), (0,)), ((), ()))),
    ("transposed both", (7, 5), (3, 7), (((0,), (1,)), ((), ()))),
    ("two contracted", (2, 3, 4), (4, 3, 5), (((1, 2), (1, 0)), ((), ()))),
    ("batch in the middle", (3, 2, 4), (5, 4, 2), (((2,), (1,)), ((1,), (2,)))),
    ("two batches, nothing contracted", (2, 3, 4), (2, 3, 5), (((), ()), ((0, 1), (0, 1)))),
    ("all batch", (2, 3), (2, 3), (((), ()), ((0, 1), (0, 1)))),
    ("outer", (3,), (4,), (((), ()), ((), ()))),
    ("contracted of length 0", (3, 0), (0, 4), (((1,), (0,)), ((), ()))),
    ("empty result", (0, 3), (3, 4), (((1,), (0,)), ((), ()))),
    ("length 1", (1, 1, 6), (6, 1), (((2,), (0,)), ((), ()))),
]
for _name, _a, _b, _numbers in _DOTS:
    add(f"dot_general {_name}", lambda a, b, n=_numbers: lax.dot_general(a, b, n), f32(*_a), f32(*_b, seed="b"))
_WIDENED = [
    ("int8", "int8", "int32"),
    ("uint8", "int8", "int32"),
    ("bfloat16", "bfloat16", "float32"),
    ("float16", "float16", "float32"),
    ("int16", "int16", "int16"),
    ("uint8", "uint8", "uint8"),
    ("bool", "bool", None),
    ("int32", "int32", "float32"),
    ("bfloat16", "float32", "float32"),
    ("float32", "float32", "bfloat16"),
]
for _t, _u, _p in _WIDENED:
    add(
        f"dot {_t} {_u} to {_p}",
        lambda a, b, p=_p: lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=p),
        values(_t, 6, 33, low=-90, high=90),
        values(_u, 33, 5, low=-90, high=90, seed="b"),
    )
add("dot float64", lambda a, b: a @ b, values("float64", 6, 9), values("float64", 9, 4), x64=True)
add("dot complex", lambda a, b: (a @ b, a.conj().T @ a, jnp.vdot(a, a)), values("complex64", 6, 9), values("complex64", 9, 4))
add(
    "dot complex128",
    lambda a, b: (a @ b, jnp.einsum("ij,kj->ik", a, a.conj())),
    values("complex128", 6, 9),
    values("complex128", 9, 4),
    x64=True,
)
add(
    "dot precision",
    lambda a, b: (
        lax.dot(a, b, precision="highest"),
        lax.dot(a, b, precision=(lax.Precision.HIGH, lax.Precision.DEFAULT)),
        lax.dot(a, b, precision="F32_F32_F32"),
    ),
    f32(6, 9),
    f32(9, 4),
)
add("dot int64", lambda a, b: a @ b, whole_range("int64", 4, 5), whole_range("int64", 5, 3), x64=True)
add("dot uint32", lambda a, b: a @ b, whole_range("uint32", 4, 5), whole_range("uint32", 5, 3))
add(
    "products of large matrices",
    lambda a, b, c: (a @ b + c, (a @ b).T @ a, jnp.einsum("ij,jk,kl->il", a, b, b.T)),
    f32(130, 70, low=-1, high=1),
    f32(70, 90, low=-1, high=1),
    f32(90),
)
add(
    "batched products",
    lambda a, b: (
        a @ b,
        jnp.einsum("bij,bjk->bki", a, b),
        jnp.einsum("bij,bjk->ik", a, b),
        jnp.matvec(a, b[:, :, 0]),
        jnp.vecmat(a[:, 0], b),
        lax.batch_matmul(a, b),
    ),
    f32(3, 17, 9),
    f32(3, 9, 5),
)
_EINSUMS = [
    "ij->ji",
    "ii->i",
    "ii->",
    "ij->",
    "iij->j",
    "ij,ij->",
    "ij,j->i",
    "i,j->ij",
    "ij,jk->ki",
    "ij,kj->",
    "ij,ik,il->jkl",
    "i,i,i->i",
]
for _s in _EINSUMS:
    _n = _s.split("->")[0].split(",")
    add(f"einsum {_s}", lambda *a, s=_s: jnp.einsum(s, *a), *(f32(*[4 for _ in t], seed=str(k)) for k, t in enumerate(_n)))
add(
    "einsum with dots",
    lambda a, b: (jnp.einsum("...ij,...jk", a, b), jnp.einsum("...i->...", a), jnp.einsum("b...->...b", a)),
    f32(2, 3, 4, 5),
    f32(3, 5, 2),
)
add(
    "tensordot",
    lambda a, b: (
        jnp.tensordot(a, b, 1),
        jnp.tensordot(a, b, ((0, 1), (1, 0))),
        jnp.tensordot(a, b, 0).shape,
        jnp.inner(a, a),
        jnp.outer(a, b[0]),
        jnp.kron(a, b),
        jnp.vecdot(a, a),
        jnp.dot(a, b),
    ),
    f32(3, 3),
    f32(3, 3, seed="b"),
)
add("ragged_dot", lax.ragged_dot, f32(11, 4), f32(3, 4, 5), np.array([4, 0, 7], np.int32))
add(
    "ragged_dot short groups",
    lambda a, b, n: lax.ragged_dot(a, b, n, preferred_element_type=jnp.float32),
    values("bfloat16", 11, 4),
    values("bfloat16", 3, 4, 5),
    np.array([2, 5, 1], np.int32),
)
add(
    "ragged_dot gradient",
    lambda a, b, n: jax.grad(lambda a, b: jnp.sum(lax.ragged_dot(a, b, n) ** 2), argnums=(0, 1))(a, b),
    f32(11, 4),
    f32(3, 4, 5),
    np.array([2, 5, 4], np.int32),
)
add(
    "ragged_dot_general",
    lambda a, b, n: lax.ragged_dot_general(a, b, n, lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])),
    f32(9, 4),
    f32(3, 4, 5),
    np.array([3, 5, 1], np.int32),
)
add(
    "ragged_dot_general, ragged contraction",
    lambda a, b, n: lax.ragged_dot_general(a, b, n, lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])),
    f32(9, 4),
    f32(9, 5),
    np.array([3, 5, 1], np.int32),
)

# ---------------------------------------------------------------- convolutions


def _conv(name: str, x: tuple[int, ...], w: tuple[int, ...], t: str = "float32", **options: Any) -> None:
    options = {"window_strides": (1,) * (len(x) - 2), "padding": "SAME", **options}
    add(f"convolution {name}", lambda x, w: lax.conv_general_dilated(x, w, **options), values(t, *x), values(t, *w, seed="w"))


_conv("1d", (2, 3, 9), (4, 3, 3))
_conv("1d valid, stride 3", (2, 3, 11), (4, 3, 3), window_strides=(3,), padding="VALID")
_conv("2d", (2, 3, 8, 9), (4, 3, 3, 2))
_conv("2d stride, uneven padding", (2, 3, 8, 9), (4, 3, 3, 2), window_strides=(2, 3), padding=((0, 2), (3, 1)))
_conv("2d negative padding", (1, 2, 8, 9), (4, 2, 3, 3), padding=((-1, 0), (0, -2)))
_conv("2d dilated window", (1, 2, 9, 9), (4, 2, 3, 2), rhs_dilation=(2, 3), padding="VALID")
_conv("2d dilated input", (1, 2, 5, 4), (4, 2, 3, 3), lhs_dilation=(2, 3), padding=((1, 2), (2, 2)))
_conv(
    "2d everything",
    (2, 4, 7, 6),
    (6, 2, 3, 2),
    window_strides=(2, 1),
    lhs_dilation=(1, 2),
    rhs_dilation=(2, 1),
    padding=((2, 1), (0, 3)),
    feature_group_count=2,
)
_conv("2d groups", (2, 6, 5, 5), (9, 2, 3, 3), feature_group_count=3)
_conv("2d depthwise", (2, 6, 5, 5), (12, 1, 3, 3), feature_group_count=6)
_conv("2d batch groups", (6, 4, 5, 5), (9, 4, 3, 3), batch_group_count=3)
_conv("NHWC", (2, 7, 6, 3), (3, 2, 3, 5), dimension_numbers=("NHWC", "HWIO", "NHWC"))
_conv("mixed layouts", (7, 3, 2, 6), (3, 5, 2, 3), dimension_numbers=("HCNW", "WOHI", "CWNH"))
_conv("3d", (1, 2, 5, 4, 6), (3, 2, 2, 3, 2), window_strides=(1, 2, 1))
_conv("window of 1", (2, 8, 5, 5), (16, 8, 1, 1))
_conv("no spatial dimension", (3, 5), (4, 5), window_strides=(), padding=())
_conv("bf16", (1, 3, 6, 6), (4, 3, 3, 3), "bfloat16")
_conv("f16", (1, 3, 6, 6), (4, 3, 3, 3), "float16")
_conv("int8", (1, 3, 6, 6), (4, 3, 3, 3), "int8", preferred_element_type=jnp.int32)
_conv("int32", (1, 3, 6, 6), (4, 3, 3, 3), "int32")
_conv("complex", (1, 3, 6), (4, 3, 3), "complex64")
_conv("window larger than input", (1, 2, 3, 3), (2, 2, 5, 5))
_conv("empty batch", (0, 2, 5, 5), (3, 2, 3, 3))
add(
    "convolution reversed window",
    lambda x, w: lax.conv_transpose(x, w, (2,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"), transpose_kernel=False),
    f32(2, 5, 3),
    f32(3, 3, 4),
)
add(
    "convolution transposed kernel",
    lambda x, w: lax.conv_transpose(x, w, (2, 1), "SAME", rhs_dilation=(1, 2), transpose_kernel=True),
    f32(2, 4, 4, 3),
    f32(3, 3, 5, 3),
)
add("convolution patches", lambda x: lax.conv_general_dilated_patches(x, (2, 3), (1, 2), "VALID"), f32(2, 3, 5, 7))
add("convolution local", lambda x, w: lax.conv_general_dilated_local(x, w, (1,), "VALID", (3,)), f32(2, 3, 7), f32(4, 9, 5))
add(
    "convolution of widths",
    lambda x, w: lax.conv_with_general_padding(x, w, (1, 1), "SAME", None, (2, 2)),
    f32(1, 2, 7, 7),
    f32(3, 2, 3, 3),
)
for _k, (_o, _x, _w) in enumerate(
    [
        ({"window_strides": (2, 1), "padding": ((1, 0), (2, 1)), "rhs_dilation": (1, 2)}, (2, 3, 6, 7), (4, 3, 3, 2)),
        ({"window_strides": (1, 2), "padding": "SAME", "feature_group_count": 2}, (2, 4, 5, 6), (6, 2, 3, 3)),
        ({"window_strides": (1, 1), "padding": "SAME", "batch_group_count": 2}, (4, 3, 5, 5), (4, 3, 3, 3)),
        ({"window_strides": (1, 1), "padding": ((0, 1), (2, 0)), "lhs_dilation": (2, 2)}, (1, 2, 4, 4), (3, 2, 3, 3)),
    ]
):
    add(
        f"convolution gradient {_k}",
        lambda x, w, o=_o: jax.grad(lambda x, w: jnp.sum(lax.conv_general_dilated(x, w, **o) ** 2), argnums=(0, 1))(x, w),
        f32(*_x),
        f32(*_w, seed="w"),
    )
add(
    "vmapped convolution",
    lambda x, w: (
        jax.vmap(lambda x: lax.conv(x, w[0], (1, 1), "SAME"))(x),
        jax.vmap(lambda x, w: lax.conv(x, w, (1, 1), "SAME"))(x, w),
        jax.vmap(lambda w: lax.conv(x[0], w, (1, 1), "SAME"))(w),
    ),
    f32(2, 1, 3, 5, 5),
    f32(2, 4, 3, 3, 3),
)

# ---------------------------------------------------------------- windows

_WINDOWS = {
    "plain": {"window_dimensions": (2, 3), "window_strides": (1, 1), "padding": "VALID"},
    "same, strided": {"window_dimensions": (3, 3), "window_strides": (2, 2), "padding": "SAME"},
    "dilated": {"window_dimensions": (2, 3), "window_strides": (2, 1), "padding": ((1, 1), (0, 2)), "window_dilation": (2, 2)},
    "dilated base": {"window_dimensions": (3, 2), "window_strides": (1, 2), "padding": ((0, 1), (2, 0)), "base_dilation": (2, 3)},
    "whole": {"window_dimensions": (6, 7), "window_strides": (1, 1), "padding": "VALID"},
}
for (_name, _o), (_what, _init, _f) in itertools.product(
    _WINDOWS.items(), (("sum", 0.0, lax.add), ("max", -np.inf, lax.max), ("min", np.inf, lax.min), ("product", 1.0, lax.mul))
):
    add(f"window {_what} {_name}", lambda x, o=_o, i=_init, f=_f: lax.reduce_window(x, i, f, **o), f32(6, 7))
add(
    "window types",
    lambda *xs: [lax.reduce_window(x, np.array(0, x.dtype), lax.add, (3,), (2,), "SAME") for x in xs],
    *(values(t, 9) for t in ("int32", "uint8", "bfloat16", "float16", "int16", "complex64")),
)
add(
    "window of a general function",
    lambda x: lax.reduce_window(x, 0.0, lambda a, b: jnp.maximum(a, b) + 0 * a, (3, 1), (1, 1), "SAME"),
    f32(6, 4, low=0),
)
add(
    "window of two values",
    lambda x, i: lax.reduce_window(
        (x, i),
        (-jnp.inf, -1),
        lambda a, b: (jnp.where(a[0] >= b[0], a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1])),
        (3,),
        (2,),
        "VALID",
    ),
    f32(9),
    np.arange(9, dtype=np.int32),
)
add(
    "window gradients",
    lambda x: [
        jax.grad(lambda x, f=f, i=i: jnp.sum(lax.reduce_window(x, i, f, (2, 3), (1, 2), "SAME") ** 2))(x)
        for f, i in ((lax.add, 0.0), (lax.max, -jnp.inf), (lax.min, jnp.inf))
    ],
    f32(6, 7),
)
add(
    "pooling gradient of gradient",
    lambda x: jax.grad(
        lambda x: jnp.sum(
            jax.grad(lambda x: jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID") ** 3))(x) ** 2
        )
    )(x),
    f32(4, 6),
)
add(
    "pooling of bf16",
    lambda x: (
        lax.reduce_window(x, jnp.bfloat16(-jnp.inf), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
        jax.grad(lambda x: jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")))(
            x.astype(jnp.float32)
        ),
    ),
    values("bfloat16", 2, 5, 4, 3),
)

# ---------------------------------------------------------------- reductions of any function

add(
    "reduce of a general function",
    lambda x: (lax.reduce(x, 0.0, lambda a, b: a + b * 1.0, (0,)), lax.reduce(x, 1.0, lambda a, b: a * b, (0, 1))),
    f32(4, 5),
)
add(
    "reduce of two values",
    lambda x, i: lax.reduce(
        (x, i),
        (np.float32(-np.inf), np.int32(0)),
        lambda a, b: (jnp.maximum(a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1])),
        (1,),
    ),
    f32(4, 6),
    np.tile(np.arange(6, dtype=np.int32), (4, 1)),
)
add("reduce of two sums", lambda x: lax.reduce((x, x * x), (0.0, 0.0), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0,)), f32(7, 3))
add(
    "reduce logic",
    lambda x, n: (
        lax.reduce_and(x, (0,)),
        lax.reduce_or(x, (1,)),
        lax.reduce_xor(x, (0, 1)),
        lax.reduce_xor(n, (0,)),
        lax.reduce_and(n, (1,)),
        lax.reduce_or(n, (0, 1)),
    ),
    values("bool", 4, 3),
    whole_range("uint8", 4, 3),
)
add("logsumexp by reduce", lambda x: lax.reduce(x, -jnp.inf, jnp.logaddexp, (1,)), f32(3, 6))
add(
    "argmax types",
    lambda *xs: [(lax.argmax(x, 0, jnp.int32), lax.argmin(x, 1, jnp.uint8)) for x in xs],
    *(values(t, 5, 6) for t in ("float32", "int8", "bfloat16", "uint32", "bool")),
)
add(
    "argmax with NaN and ties",
    lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 1), jnp.argmax(x), jnp.nanargmax(x, 1)),
    np.array([[1, np.nan, 3, np.nan], [2, 2, 1, 1], [-0.0, 0.0, -0.0, 0.0], [-np.inf, -np.inf, np.inf, np.inf]], np.float32),
)

# ---------------------------------------------------------------- sorts

for _t in ("float32", "float64", "bfloat16", "float16", "int8", "uint16", "int64", "uint64", "bool"):
    add(
        f"sort {_t}",
        lambda x: (lax.sort(x), lax.sort(x, 0), lax.sort(x, is_stable=False), jnp.argsort(x, 1), jnp.sort(x, descending=True)),
        values(_t, 7, 23),
        x64=True,
    )
_NANS = np.array([np.nan, 1, -0.0, 0.0, -np.inf, np.inf, -np.nan, 2, 1, 0.0, -0.0], np.float32)
add("sort of special numbers", lambda x: (lax.sort(x), jnp.argsort(x), jnp.argsort(x, descending=True), jnp.sort(-x)), _NANS)
add(
    "sort of complex numbers",
    lambda x: (jnp.sort(x), jnp.argsort(x)),
    np.array([1 + 2j, 1 - 1j, 0, np.nan, 1 + 2j, -1j], np.complex64),
)
add(
    "sort of two keys",
    lambda a, b, c: lax.sort((a, b, c), num_keys=2),
    values("int8", 40, low=0, high=3),
    values("int8", 40, low=0, high=3, seed="b"),
    f32(40),
)
add(
    "sort of three keys, first dimension",
    lambda a, b, c: lax.sort((a, b, c, c * 2), dimension=0, num_keys=3),
    values("int8", 9, 4, low=0, high=2),
    values("bool", 9, 4),
    f32(9, 4),
)
add("sort by key", lambda k, v: lax.sort_key_val(k, v), values("int32", 3, 9), f32(3, 9))
add("lexsort", lambda a, b: (jnp.lexsort((a, b)), jnp.lexsort((b, a))), values("int32", 20), values("int32", 20, seed="b"))
add("sort of one and of none", lambda x, y: (lax.sort(x), jnp.argsort(y), lax.sort(y)), f32(4, 1), f32(3, 0))
add(
    "sort of long rows",
    lambda x: (jnp.sort(x), jnp.argsort(x), jnp.median(x, axis=-1), jnp.quantile(x, 0.3, axis=0)),
    f32(3, 1000),
)
add("sort gradient", lambda x: jax.grad(lambda x: jnp.sum(jnp.sort(x) * jnp.arange(9.0)))(x), f32(9))
for _t in ("float32", "bfloat16", "int32", "uint8", "float16", "int8"):
    add(f"top_k {_t}", lambda x: (lax.top_k(x, 1), lax.top_k(x, 5), lax.top_k(x, 33)), values(_t, 3, 33))
add("top_k of special numbers", lambda x: lax.top_k(x, 11), _NANS)
add(
    "top_k of wide types",
    lambda x, y: (lax.top_k(x, 4), lax.top_k(y, 4)),
    values("float64", 3, 20),
    whole_range("int64", 20),
    x64=True,
)
add(
    "top_k along another dimension",
    lambda x: lax.top_k(x, 3, axis=0) if "axis" in lax.top_k.__code__.co_varnames else lax.top_k(x.T, 3),
    f32(9, 4),
)
add("top_k gradient", lambda x: jax.grad(lambda x: jnp.sum(lax.top_k(x, 3)[0] ** 2))(x), f32(4, 9))
add("approx_max_k", lambda x: (lax.approx_max_k(x, 4), lax.approx_min_k(x, 3)), f32(3, 50))

# ---------------------------------------------------------------- cumulative

for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    add(
        f"lax.{_name}",
        lambda x, y, f=getattr(lax, _name): (f(x), f(x, 1), f(x, 0, reverse=True), f(y)),
        f32(5, 7, low=-1.5, high=1.5),
        f32(300, low=-1, high=1),
    )
add(
    "cumulative types",
    lambda *xs: [(lax.cumsum(x), lax.cummax(x, reverse=True)) for x in xs],
    *(values(t, 9) for t in ("int32", "uint8", "bfloat16", "float16", "int16")),
)
add(
    "cumulative gradients",
    lambda x: [jax.grad(lambda x, f=f: jnp.sum(f(x) ** 2))(x) for f in (lax.cumsum, lax.cumprod, lax.cummax, lax.cumlogsumexp)],
    f32(6, low=0.5, high=2),
)
add("cumulative of complex numbers", lambda x: (jnp.cumsum(x), jnp.cumprod(x)), values("complex64", 6))
add(
    "associative_scan",
    lambda x, a: (
        lax.associative_scan(jnp.add, x),
        lax.associative_scan(jnp.maximum, x, reverse=True, axis=1),
        lax.associative_scan(lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (a, x)),
    ),
    f32(13, 4),
    f32(13, 4, seed="a", low=0, high=1),
)

# ---------------------------------------------------------------- slices, pads, gathers, scatters

add(
    "slices",
    lambda x: (
        lax.slice(x, (1, 0, 2), (4, 5, 7), (2, 3, 1)),
        lax.slice_in_dim(x, 1, -1, 2, axis=2),
        x[::-1, ::2, 1:-1],
        x[..., -1],
        lax.index_in_dim(x, -2, 1),
        lax.rev(x, (0, 2)),
        x[3:1],
        x[None, :, 2:3],
    ),
    f32(5, 6, 7),
)
add(
    "dynamic slices",
    lambda x, i, j: (
        lax.dynamic_slice(x, (i, j), (2, 3)),
        lax.dynamic_slice_in_dim(x, j, 2, 1),
        lax.dynamic_index_in_dim(x, i, 0),
        lax.dynamic_update_slice(x, x[:2, :2] * 0, (i, j)),
        lax.dynamic_update_index_in_dim(x, x[0], j, 0),
        lax.dynamic_slice(x, (i - 99, i + 99), (5, 2)),
    ),
    f32(5, 6),
    np.int32(4),
    np.int32(-3),
)
for _t in ("int8", "uint8", "int64", "uint32"):
    add(
        f"dynamic slice at {_t}",
        lambda x, i: (lax.dynamic_slice(x, (i, i), (2, 3)), lax.dynamic_update_slice(x, x[:2, :3], (i, i)), x[i], x.at[i].set(0)),
        f32(5, 6),
        values(_t, low=3, high=3),
        x64=True,
    )
add(
    "pads",
    lambda x: (
        lax.pad(x, 9.0, ((1, 2, 0), (0, 0, 2))),
        lax.pad(x, 0.0, ((-1, 1, 1), (-2, -1, 0))),
        lax.pad(x, 1.0, ((0, 0, 3), (2, -3, 1))),
        lax.pad(x, 0.0, ((-2, -3, 1), (0, 0, 0))),
    ),
    f32(4, 5),
)
_MODES = ("constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean", "median", "minimum")
for _m in _MODES:
    add(f"jnp.pad {_m}", lambda x, m=_m: (jnp.pad(x, ((2, 3), (1, 0)), mode=m), jnp.pad(x[0], 2, mode=m)), f32(4, 5))
add(
    "jnp.pad options",
    lambda x: (
        jnp.pad(x, 1, constant_values=((1, 2), (3, 4))),
        jnp.pad(x, 2, "reflect", reflect_type="odd"),
        jnp.pad(x, 7, "wrap"),
        jnp.pad(x, ((1, 1), (2, 2)), "linear_ramp", end_values=5.0),
        jnp.pad(x, 2, "mean", stat_length=2),
        jnp.pad(x, ((0, 0), (3, 9)), "symmetric"),
    ),
    f32(3, 4),
)
add("pad and slice gradients", lambda x: jax.grad(lambda x: jnp.sum(jnp.pad(x, 2, "reflect")[1:-1, ::2] ** 2))(x), f32(5, 6))
_INDEX = np.array([0, -1, 3, 9, -9, 2, 2], np.int32)
for _mode in ("clip", "fill", "promise_in_bounds", "wrap"):
    _i = _INDEX % 5 if _mode == "promise_in_bounds" else _INDEX
    if _mode == "wrap":
        add("take wrap", lambda x, i: (jnp.take(x, i, 0, mode="wrap"), jnp.take(x, i, mode="wrap")), f32(5, 6), _i)
        continue
    add(
        f"gather {_mode}",
        lambda x, i, m=_mode: (
            x.at[i].get(mode=m),
            x.at[:, i % 6].get(mode=m),
            x.at[i, i].get(mode=m),
            jnp.take(x, i, 1, mode=m if m != "promise_in_bounds" else "clip"),
            x.at[i[:, None], i[None] % 3].get(mode=m),
        ),
        f32(5, 6),
        _i,
    )
    for _f in ("set", "add", "multiply", "min", "max", "divide", "power"):
        _unique = np.array([3, 0, 9, -9, 1], np.int32) if _mode != "promise_in_bounds" else np.array([3, 0, 4, 2, 1], np.int32)
        add(
            f"scatter {_f} {_mode}",
            lambda x, i, u, m=_mode, f=_f: (getattr(x.at[i], f)(u[:, :6], mode=m), getattr(x.at[1:3, i], f)(2.0, mode=m)),
            f32(5, 6, low=0.5),
            _unique,
            f32(5, 7, low=0.5, high=3),
            slow=_f in ("divide", "power"),
        )
add(
    "scatter with equal indices",
    lambda x, i, u: (x.at[i].add(u), x.at[i].max(u), x.at[i].min(u), x.at[i].mul(u)),
    f32(5, 3),
    _INDEX % 5,
    f32(7, 3),
)
add(
    "scatter types",
    lambda i, *xs: [(x.at[i].add(x[:3]), x.at[i].set(x[2:]), x.at[i].max(x[:3])) for x in xs],
    np.array([4, 1, 1], np.int32),
    *(values(t, 5, 2) for t in ("int32", "uint8", "bfloat16", "float16", "int8")),
)
add(
    "scatter of complex numbers and booleans",
    lambda i, z, b: (z.at[i].add(z[:3]), z.at[i].set(1j), b.at[i].set(True), b.at[i].max(b[:3])),
    np.array([4, 1, 2], np.int32),
    values("complex64", 5),
    values("bool", 5),
)
add(
    "scatter options",
    lambda x, i: (
        x.at[i].set(1.0, unique_indices=True),
        x.at[jnp.sort(i)].add(2.0, indices_are_sorted=True),
        x.at[i].apply(jnp.exp),
        x.at[()].add(1.0),
        x.at[..., 0].set(jnp.arange(5.0)),
        x.at[::-2, 1].add(1.0),
        x.at[None, 2].set(9.0),
        jnp.where(x > 0, 0, x),
    ),
    f32(5, 6),
    np.array([3, 0, 1]),
)
add(
    "scatter of windows",
    lambda x, i, u: lax.scatter_add(x, i, u, lax.ScatterDimensionNumbers((1, 2), (), (0, 1))),
    f32(6, 7),
    np.array([[0, 0], [2, 3], [5, 5], [1, 1]], np.int32),
    f32(4, 2, 3),
)
add(
    "scatter of windows, set",
    lambda x, i, u: lax.scatter(x, i, u, lax.ScatterDimensionNumbers((1, 2), (), (0, 1)), mode="clip"),
    f32(6, 7),
    np.array([[0, 0], [2, 3], [9, 9]], np.int32),
    f32(3, 2, 3),
)
add(
    "gather of windows",
    lambda x, i: (
        lax.gather(x, i, lax.GatherDimensionNumbers((1, 2), (), (0, 1)), (2, 3), mode="clip"),
        lax.gather(x, i, lax.GatherDimensionNumbers((1,), (0,), (0, 1)), (1, 3), mode="fill", fill_value=-1),
    ),
    f32(6, 7),
    np.array([[0, 0], [2, 3], [5, 5]], np.int32),
)
add(
    "batched gather and scatter",
    lambda x, i: (
        jax.vmap(lambda x, i: x[i])(x, i),
        jax.vmap(lambda x, i: x.at[i].add(1.0))(x, i),
        jax.vmap(lambda x, i: x.at[i].set(2.0), (None, 0))(x[0], i),
        jnp.take_along_axis(x, i, 1),
        jnp.put_along_axis(x, i[:, :1], 0.0, 1, inplace=False),
    ),
    f32(4, 6),
    values("int32", 4, 3, low=0, high=5),
)
add(
    "indexing",
    lambda x, i, b: (
        x[i],
        x[:, i],
        x[i, :, i],
        x[i[:, None], i],
        x[..., i, 0],
        x[None, i],
        x[1, i],
        x[i, 1:3],
        x[jnp.array([True, False, True, False, True]).nonzero(size=3)],
        jnp.where(b[:, None, None], x, 0),
    ),
    f32(5, 5, 4),
    np.array([0, 3, -1]),
    values("bool", 5),
)
add(
    "gather gradients",
    lambda x, i: (
        jax.grad(lambda x: jnp.sum(x[i] ** 2))(x),
        jax.grad(lambda x: jnp.sum(x[:, i] * x[i].T))(x),
        jax.grad(lambda x: jnp.sum(jnp.take_along_axis(x, jnp.argsort(x, 1)[:, :2], 1) ** 3))(x),
    ),
    f32(6, 6)[:, :6],
    np.array([0, 3, 3, 1]),
)
add(
    "scatter gradients",
    lambda x, u, i: (
        jax.grad(lambda x, u: jnp.sum(x.at[i].set(u) ** 2), argnums=(0, 1))(x, u),
        jax.grad(lambda x, u: jnp.sum(x.at[i].add(u) ** 2), argnums=(0, 1))(x, u),
        jax.grad(lambda x, u: jnp.sum(x.at[i].mul(u, unique_indices=True) ** 2), argnums=(0, 1))(x, u),
    ),
    f32(6, 3),
    f32(3, 3),
    np.array([4, 0, 1]),
)
add(
    "scatter extremum gradient",
    lambda x, u, i: jax.grad(lambda x, u: jnp.sum(x.at[i].max(u) ** 2), argnums=(0, 1))(x, u),
    f32(6, 3),
    f32(3, 3),
    np.array([4, 0, 1]),
)
add(
    "scatter into a histogram",
    lambda i: (jnp.zeros(10, jnp.int32).at[i].add(1), jnp.bincount(i, length=10), jnp.zeros((10, 2)).at[i, i % 2].add(0.5)),
    values("int32", 200, low=0, high=9),
)
add(
    "segments",
    lambda x, i: (
        [f(x, i, 5) for f in (jax.ops.segment_sum, jax.ops.segment_prod, jax.ops.segment_max, jax.ops.segment_min)]
        + [jax.ops.segment_sum(x, jnp.sort(i), 7, indices_are_sorted=True), jax.ops.segment_max(x.astype(jnp.int32), i, 6)]
    ),
    f32(12, 3),
    values("int32", 12, low=0, high=4),
)
add(
    "select_and_gather",
    lambda x: jax.jvp(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "SAME"), (x,), (jnp.cos(x),)),
    f32(5, 6),
)

# ---------------------------------------------------------------- shapes

add(
    "shapes",
    lambda x: (
        lax.broadcast(x, (2, 1)),
        lax.broadcast_in_dim(x, (3, 2, 4), (0, 2)),
        lax.collapse(x, 0, 2),
        lax.expand_dims(x, (0, 2)),
        lax.squeeze(x[None], (0,)),
        lax.reshape(x, (6, 2), (1, 0)),
        lax.transpose(x, (1, 0)),
        lax.concatenate([x, x * 2], 0),
        lax.tile(x, (2, 3)),
        lax.split(x, (1, 3), 1),
    ),
    f32(3, 4),
)
add(
    "iota and full",
    lambda: (
        lax.iota(jnp.int8, 5),
        lax.broadcasted_iota(jnp.float32, (2, 3), 1),
        lax.full((2, 2), 7, jnp.bfloat16),
        lax.iota(jnp.uint32, 0),
        jnp.eye(3, 4, 1, dtype=bool),
        lax.broadcasted_iota(jnp.complex64, (3,), 0),
        jnp.arange(2, 20, 3),
        jnp.linspace(0, 1, 7),
        jnp.logspace(0, 2, 3),
        jnp.geomspace(1, 8, 4),
    ),
)
add("random bits", lambda k: lax.rng_bit_generator(k, (5, 3), jnp.uint32), np.arange(4, dtype=np.uint32))
add(
    "random bits of other widths",
    lambda k: [lax.rng_bit_generator(k, (7,), t)[1] for t in (jnp.uint8, jnp.uint16, jnp.uint64)],
    np.arange(4, dtype=np.uint32),
    x64=True,
)
add(
    "random bits by algorithm",
    lambda k: [
        lax.rng_bit_generator(k, (9,), algorithm=a)
        for a in (lax.RandomAlgorithm.RNG_THREE_FRY, lax.RandomAlgorithm.RNG_PHILOX, lax.RandomAlgorithm.RNG_DEFAULT)
    ],
    np.arange(4, dtype=np.uint32),
)
add(
    "barriers and names",
    lambda x: (
        lax.optimization_barrier((x, x + 1)),
        lax.stop_gradient(x),
        lax.platform_dependent(x, cpu=jnp.sin, default=jnp.sin),
        lax.composite(lambda x: jnp.cos(x), "my.cos")(x),
        jax.named_call(jnp.tanh, name="n")(x),
        jax.named_scope("s")(jnp.exp)(x),
    ),
    f32(3),
)
