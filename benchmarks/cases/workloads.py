"""What is measured: JAX functions with their arguments, the least that each moves and computes, and what stands in between.

`Workload.arguments(rng)` makes the arrays. `moved_bytes` counts every argument once and every result once unless the workload
says otherwise (a gather reads what it takes). `flops` is counted for contractions alone, and for causal attention over
the visible half.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

Array = np.ndarray[Any, Any]

__all__ = ["WORKLOADS", "Workload"]


@dataclass(frozen=True)
class Spec:
    """An argument: its shape, its type, and the deviation of its normal numbers, or the bounds of its integers."""

    shape: tuple[int, ...]
    dtype: Any = np.float32
    scale: float = 1.0
    bounds: tuple[int, int] | None = None

    def make(self, rng: np.random.Generator) -> Array:
        if self.bounds is not None:
            return rng.integers(*self.bounds, self.shape).astype(self.dtype)
        return (rng.standard_normal(self.shape, np.float32) * np.float32(self.scale)).astype(self.dtype)


@dataclass(frozen=True)
class Workload:
    """One row. `between` says in a few words what keeps the time from its limit; `tolerance` is for values against JAX's."""

    name: str
    what: str
    function: Callable[..., Any]
    specs: tuple[Spec, ...]
    flops: float = 0
    read_bytes: int | None = None
    between: str = ""
    tolerance: float = 1e-4

    def arguments(self, rng: np.random.Generator) -> tuple[Array, ...]:
        return tuple(s.make(rng) for s in self.specs)

    def moved_bytes(self, arguments: tuple[Array, ...], results: tuple[Array, ...]) -> int:
        read = sum(a.nbytes for a in arguments) if self.read_bytes is None else self.read_bytes
        return read + sum(a.nbytes for a in results)


def _f(*shape: int, scale: float = 1.0, dtype: Any = np.float32) -> Spec:
    return Spec(shape, dtype, scale)


def _i(*shape: int, below: int) -> Spec:
    return Spec(shape, np.int32, bounds=(0, below))


def _norm(x: Any, scale: Any, bias: Any) -> Any:
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    return (centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias).astype(x.dtype)


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) * np.float32(1 / math.sqrt(q.shape[-1]))
    seen = jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), v)


def _decode(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("hk,hkd->hd", jax.nn.softmax(jnp.einsum("hd,hkd->hk", q, k)), v)


def _mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return jax.nn.gelu(x @ w1 + b1) @ w2 + b2


def _mlp_gradient(x: Any, y: Any, *weights: Any) -> Any:
    return jax.grad(lambda w: jnp.mean((_mlp(x, *w) - y) ** 2))(weights)


def _window(x: Any, size: int, stride: int, op: Any, start: float) -> Any:
    return lax.reduce_window(x, start, op, (1, size, size, 1), (1, stride, stride, 1), "VALID")


def _convolve(x: Any, w: Any, groups: int = 1) -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


def _lstm(w: Any, u: Any, xs: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x + h @ u, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zero = jnp.zeros((xs.shape[1], u.shape[0]))
    return lax.scan(step, (zero, zero), xs @ w)[0][0]


_BF16 = ml_dtypes.bfloat16
_SQUARE, _ROWS = _f(4096, 4096), _f(8192, 1024)
_WEIGHTS = (_f(768, 3072, scale=0.03), _f(3072), _f(3072, 768, scale=0.02), _f(768))


# What keeps each row from its limit.
BETWEEN = {
    "gelu": "results are streamed past the caches; tanh's polynomial hides behind memory",
    "softmax": "a row is read three times, twice from the first cache, and its exponentials are stored and divided in place",
    "layer_norm": "memory; three passes over a row in the first cache, each with a sum that ends in one number",
    "layer_norm_bf16": "conversions: rounding to bf16 in integer steps, since the instruction flushes denormals",
    "transpose_add": "tiles are turned in registers; the transposed reads come a line from each of many pages",
    "sum_columns": "memory; partial sums of blocks of rows are put together at the end",
    "max_rows": "memory: two instructions for each vector, rows of one sign alone are looked at twice",
    "cumsum_rows": "an addition waits for the one before: rows side by side hide most of it",
    "cumsum_columns": "running sums of a row are loaded and stored for each row",
    "matmul_512": "packing the right operand, edges of the register blocks, and waiting for the last task",
    "matmul_1024": "packing, and the clock under 512-bit arithmetic",
    "matmul_2048": "packing, and panels that stream from the shared cache",
    "matmul_int8": "the operand's 128 offset: columns' sums, and quads packed at each call",
    "mlp": "packing of weights at each call, few tasks for two threads, the epilogue as a pass of its own",
    "mlp_gradient": "the same, five times; two of the products sum along the rows",
    "attention_512": "packing of keys, exponentials, and the blocks that the diagonal cuts",
    "attention_2048": "exponentials (as many as a fifth of the time), the diagonal's blocks, one division an element",
    "attention_4096": "the same, and scores that spill from the second cache",
    "decode": "keys and values are read once; products of one row are summed in lanes along what is contiguous",
    "convolution": "the window's halo is read in short runs, edges of the register blocks",
    "depthwise": "waking the second thread; nine loads for each result, from the first cache, and nine of weights",
    "max_pool": "NaN tests, and nine loads for each result",
    "gather": "rows begin at unforeseeable places: each starts with misses of the page table and of the caches",
    "scatter_add": "zeros are stored first, then rows are added one after the other by one thread",
    "cross_entropy": "exponentials of a row that is read twice from the second cache",
    "lstm": "each step waits for the one before: launches and products of sixteen rows",
    "sort": "the limit counts one pass: a radix sort makes several, by bytes of the key",
    "top_k": "the limit counts one pass: each row is scanned for its threshold, then for the elements above it",
    "small": "the call itself",
}


def _row(name: str, what: str, function: Any, *specs: Spec, **more: Any) -> Workload:
    return Workload(name, what, function, specs, between=BETWEEN[name], **more)


WORKLOADS: tuple[Workload, ...] = (
    _row("gelu", "gelu(x), 4096 × 4096", lambda x: jax.nn.gelu(x), _SQUARE),
    _row("softmax", "rows of 4096 × 4096", lambda x: jax.nn.softmax(x), _SQUARE),
    _row("layer_norm", "rows of 8192 × 1024", _norm, _ROWS, _f(1024), _f(1024)),
    _row("layer_norm_bf16", "the same in bf16", _norm, _f(8192, 1024, dtype=_BF16), *[_f(1024, dtype=_BF16)] * 2, tolerance=2e-2),
    _row("transpose_add", "x + xᵀ, 4096 × 4096", lambda x: x + x.T, _SQUARE),
    _row("sum_columns", "over the first dimension of 8192 × 4096", lambda x: x.sum(0), _f(8192, 4096), tolerance=1e-3),
    _row("max_rows", "over the last dimension of 8192 × 4096", lambda x: x.max(1), _f(8192, 4096)),
    _row("cumsum_rows", "along the last dimension of 4096 × 4096", lambda x: jnp.cumsum(x, 1), _SQUARE, tolerance=1e-3),
    _row("cumsum_columns", "along the first dimension of 4096 × 4096", lambda x: jnp.cumsum(x, 0), _SQUARE, tolerance=1e-3),
    *[
        _row(f"matmul_{n}", f"{n} × {n} × {n}", lambda a, b: a @ b, _f(n, n), _f(n, n), flops=2.0 * n**3, tolerance=1e-3)
        for n in (512, 1024, 2048)
    ],
    _row("matmul_int8", "1024³, int8 to int32",
         lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
         *[Spec((1024, 1024), np.int8, bounds=(-128, 128))] * 2, tolerance=0.0,
         flops=2.0 * 1024**3 / 4),  # four products of int8 fit where one of f32 does
    _row("mlp", "512 × 768 through 3072, gelu", _mlp, _f(512, 768), *_WEIGHTS, flops=4.0 * 512 * 768 * 3072, tolerance=1e-3),
    _row("mlp_gradient", "the gradient of its squared error", _mlp_gradient, _f(512, 768), _f(512, 768), *_WEIGHTS,
         flops=10.0 * 512 * 768 * 3072, tolerance=1e-3),
    *[
        _row(f"attention_{n}", f"causal, 8 heads, {n} × 64", _attention, *[_f(8, n, 64)] * 3, flops=2.0 * 8 * n * n * 64,
             tolerance=1e-3)
        for n in (512, 2048, 4096)
    ],
    _row("decode", "one query of 32 heads against 4096 × 128", _decode, _f(32, 128), *[_f(32, 4096, 128)] * 2, tolerance=1e-3),
    _row("convolution", "3 × 3, 56 × 56 × 64 to 64", _convolve, _f(1, 56, 56, 64), _f(3, 3, 64, 64, scale=0.05),
         flops=2.0 * 56 * 56 * 64 * 64 * 9, tolerance=1e-3),
    _row("depthwise", "3 × 3 on each of 64 channels of 56 × 56", lambda x, w: _convolve(x, w, 64), _f(1, 56, 56, 64),
         _f(3, 3, 1, 64), tolerance=1e-3),
    _row("max_pool", "3 × 3, stride 2, 8 × 112 × 112 × 64", lambda x: _window(x, 3, 2, lax.max, -np.inf), _f(8, 112, 112, 64)),
    _row("gather", "4096 rows of 50000 × 512", lambda t, i: t[i], _f(50000, 512), _i(4096, below=50000),
         read_bytes=4096 * 512 * 4 + 4096 * 4),
    _row("scatter_add", "4096 rows into 50000 × 512", lambda i, u: jnp.zeros((50000, 512)).at[i].add(u), _i(4096, below=50000),
         _f(4096, 512), tolerance=1e-3),
    _row("cross_entropy", "2048 rows of 32000 classes", _cross_entropy, _f(2048, 32000), _i(2048, below=32000)),
    _row("lstm", "64 steps, 16 × 256", _lstm, _f(256, 1024, scale=0.05), _f(256, 1024, scale=0.05), _f(64, 16, 256),
         flops=4.0 * 64 * 16 * 256 * 1024, tolerance=1e-3),
    _row("sort", "rows of 1024 × 4096", lambda x: jnp.sort(x, 1), _f(1024, 4096)),
    _row("top_k", "16 of each row of 1024 × 8192", lambda x: lax.top_k(x, 16), _f(1024, 8192)),
    _row("small", "tanh(a b + c), 64 elements", lambda a, b, c: jnp.tanh(a * b + c), _f(64), _f(64), _f(64)),
)  # fmt: skip
