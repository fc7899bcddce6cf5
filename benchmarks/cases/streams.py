"""The cases of `benchmarks/streams.py`: what is neither a contraction nor attention, in many shapes, axes and types.

Each case is a function of arrays, as a JAX user would write it, and the arrays' shapes. Sizes are a few million elements: more
than a core's own caches hold, little enough that the whole table takes minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.tables import Case, Given, cases_of

__all__ = ["cases"]


def f(*shape: int, dtype: str = "float32", unit: bool = False) -> Given:
    return Given(shape, dtype, unit=unit)


def i(high: int, *shape: int, dtype: str = "int32") -> Given:
    return Given(shape, dtype, low=0, high=high)


def cases() -> Iterator[Case]:
    """Every case, group by group."""
    return cases_of(GROUPS)


Table = dict[str, tuple[Any, ...]]


def elementwise() -> Table:
    import jax
    import jax.numpy as jnp

    return {
        "add": (lambda x, y: x + y, f(2048, 2048), f(2048, 2048)),
        "chain of ten": (lambda x, y: ((x * y + 1) * (x - y) / (jnp.abs(x) + 2) - y) * 0.5 + x * x, f(2048, 2048), f(2048, 2048)),
        "gelu": (jax.nn.gelu, f(2048, 2048)),
        "sigmoid * x": (lambda x: x * jax.nn.sigmoid(x), f(2048, 2048)),
        "where": (lambda x, y: jnp.where(x > y, x, 2 * y), f(2048, 2048), f(2048, 2048)),
        "row broadcast": (lambda x, b: x * b[None, :] + 1, f(2048, 2048), f(2048)),
        "column broadcast": (lambda x, b: x * b[:, None] + 1, f(2048, 2048), f(2048)),
        "outer": (lambda a, b: a[:, None] * b[None, :], f(2048), f(2048)),
        "short rows": (lambda x, b: x * b + 1, f(1 << 20, 3), f(3)),
        "middle broadcast": (lambda x, b: x + b[:, None, :], f(64, 256, 256), f(64, 256)),
        "f64": (lambda x: jnp.exp(x) * 0.5, f(1024, 2048, dtype="float64")),
        "f16": (lambda x: x * 1.5 + 0.25, f(2048, 2048, dtype="float16")),
        "bf16": (lambda x: x * 1.5 + 0.25, f(2048, 2048, dtype="bfloat16")),
        "bf16 gelu": (jax.nn.gelu, f(2048, 2048, dtype="bfloat16")),
        "f32 to bf16": (lambda x: x.astype(jnp.bfloat16), f(2048, 2048)),
        "bf16 to f32": (lambda x: x.astype(jnp.float32), f(2048, 2048, dtype="bfloat16")),
        "f32 to f16": (lambda x: x.astype(jnp.float16), f(2048, 2048)),
        "f32 to int8": (lambda x: jnp.clip(x * 32, -128, 127).astype(jnp.int8), f(2048, 2048)),
        "int8 to f32": (lambda x: x.astype(jnp.float32) * 0.1, i(100, 2048, 2048, dtype="int8")),
        "int8 add": (lambda x, y: x + y, i(100, 2048, 4096, dtype="int8"), i(100, 2048, 4096, dtype="int8")),
        "bool and not": (lambda x, y: (x > 0) & ~(y > 0), f(2048, 2048), f(2048, 2048)),
        "int32 divide": (lambda x: x // 7 + x % 5, i(1000, 1024, 1024)),
        "tanh f64": (jnp.tanh, f(512, 1024, dtype="float64")),
    }


def reductions() -> Table:
    import jax
    import jax.numpy as jnp

    table: Table = {}
    shapes = {"4M": (1 << 22,), "2048x2048": (2048, 2048), "128x128x256": (128, 128, 256), "32x16x64x128": (32, 16, 64, 128)}
    for label, shape in shapes.items():
        for axis in [*range(len(shape)), None] if len(shape) > 1 else [None]:
            table[f"sum {label} axis {axis}"] = (lambda x, axis=axis: x.sum(axis), f(*shape))
            table[f"max {label} axis {axis}"] = (lambda x, axis=axis: x.max(axis), f(*shape))
    big = f(8192, 4096)
    table |= {
        "sum 8192x4096 axis 0": (lambda x: x.sum(0), big),
        "max 8192x4096 axis 1": (lambda x: x.max(1), big),
        "mean of squares 8192x4096": (lambda x: (x * x).mean(1), big),
        "norm all": (lambda x: jnp.sqrt((x * x).sum()), f(2048, 2048)),
        "logsumexp rows": (lambda x: jax.nn.logsumexp(x, 1), f(2048, 2048)),
        "logsumexp columns": (lambda x: jax.nn.logsumexp(x, 0), f(2048, 2048)),
        "sum inner 3": (lambda x: x.sum(1), f(1 << 20, 3)),
        "max inner 3": (lambda x: x.max(1), f(1 << 20, 3)),
        "sum inner 8": (lambda x: x.sum(1), f(1 << 19, 8)),
        "sum inner 20": (lambda x: x.sum(1), f(1 << 18, 20)),
        "sum inner 100": (lambda x: x.sum(1), f(1 << 15, 100)),
        "sum outer 3": (lambda x: x.sum(0), f(3, 1 << 20)),
        "sum thin axis 0": (lambda x: x.sum(0), f(1 << 20, 4)),
        "sum thin axis 0, 5": (lambda x: x.sum(0), f(1 << 19, 5)),
        "sum fat axis 1": (lambda x: x.sum(1), f(4, 1 << 20)),
        "max middle of 3": (lambda x: x.max(1), f(256, 64, 256)),
        "sum axes 0, 2": (lambda x: x.sum((0, 2)), f(128, 128, 256)),
        "sum axes 0, 2, 3 (channels)": (lambda x: x.sum((0, 2, 3)), f(16, 64, 56, 56)),
        "sum axes 0, 1, 2 (channels last)": (lambda x: x.sum((0, 1, 2)), f(16, 56, 56, 64)),
        "argmax rows": (lambda x: jnp.argmax(x, 1), f(2048, 2048)),
        "argmax columns": (lambda x: jnp.argmax(x, 0), f(2048, 2048)),
        "argmin all": (jnp.argmin, f(1 << 22)),
        "any": (lambda x: (x > 5).any(), f(2048, 2048)),
        "all rows": (lambda x: (x > -6).all(1), f(2048, 2048)),
        "count": (lambda x: (x > 0).sum(), f(2048, 2048)),
        "prod columns": (lambda x: x.prod(0), f(512, 4096)),
        "sum f64 rows": (lambda x: x.sum(1), f(1024, 2048, dtype="float64")),
        "sum f64 all": (lambda x: x.sum(), f(1024, 2048, dtype="float64")),
        "sum bf16 rows": (lambda x: x.astype(jnp.float32).sum(1), f(2048, 2048, dtype="bfloat16")),
        "max bf16 rows": (lambda x: x.max(1), f(2048, 2048, dtype="bfloat16")),
        "max f16 columns": (lambda x: x.max(0), f(2048, 2048, dtype="float16")),
        "max bf16 columns": (lambda x: x.max(0), f(2048, 2048, dtype="bfloat16")),
        "min bf16 middle": (lambda x: x.min(1), f(64, 256, 256, dtype="bfloat16")),
        "magnitudes bf16 columns": (lambda x: jnp.abs(x).max(0), f(2048, 2048, dtype="bfloat16")),
        "sum int32 all": (lambda x: x.sum(), i(100, 2048, 2048)),
        "max int8 rows": (lambda x: x.max(1), i(100, 2048, 4096, dtype="int8")),
        "sum int8 to int32": (lambda x: x.astype(jnp.int32).sum(1), i(100, 2048, 4096, dtype="int8")),
        "variance rows": (lambda x: x.var(1), f(2048, 2048)),
        "variance columns": (lambda x: x.var(0), f(2048, 2048)),
    }
    return table


def siblings() -> Table:
    import jax
    import jax.numpy as jnp

    def batch_norm(x: Any, g: Any, b: Any) -> Any:
        m, v = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (x - m) * jax.lax.rsqrt(v + 1e-5) * g + b, m, v

    def layer_norm(x: Any, g: Any, b: Any) -> Any:
        m = x.mean(-1, keepdims=True)
        v = ((x - m) ** 2).mean(-1, keepdims=True)
        return (x - m) * jax.lax.rsqrt(v + 1e-5) * g + b

    def layer_norm_gradient(x: Any, g: Any, b: Any, d: Any) -> Any:
        return jax.vjp(layer_norm, x, g, b)[1](d)

    return {
        "sum axis 0, max axis 1": (lambda x: (x.sum(0), x.max(1)), f(8192, 4096)),
        "sum and max, rows": (lambda x: (x.sum(1), x.max(1)), f(8192, 4096)),
        "sum and max, columns": (lambda x: (x.sum(0), x.max(0)), f(8192, 4096)),
        "min and max, all": (lambda x: (x.min(), x.max()), f(8192, 2048)),
        "max and argmax": (lambda x: (x.max(1), jnp.argmax(x, 1)), f(2048, 4096)),
        "mean and mean of squares": (lambda x: (x.mean(0), (x * x).mean(0)), f(8192, 2048)),
        "sums of three axes": (lambda x: (x.sum(0), x.sum(1), x.sum(2)), f(128, 256, 256)),
        "exp and its sum": (lambda x: (jnp.exp(x), jnp.exp(x).sum(0)), f(2048, 2048)),
        "two outputs": (lambda x, y: (x + y, x * y), f(2048, 2048), f(2048, 2048)),
        "result and column sums": (lambda x: (x * 2, (x * 2).sum(0)), f(4096, 2048)),
        "batch norm": (batch_norm, f(16, 56, 56, 64), f(64), f(64)),
        "layer norm": (layer_norm, f(4096, 1024), f(1024), f(1024)),
        "layer norm gradient": (layer_norm_gradient, f(4096, 1024), f(1024), f(1024), f(4096, 1024)),
        "softmax rows": (lambda x: jax.nn.softmax(x, 1), f(2048, 2048)),
        "softmax columns": (lambda x: jax.nn.softmax(x, 0), f(2048, 2048)),
        "log softmax": (lambda x: jax.nn.log_softmax(x, 1), f(2048, 2048)),
        "cross entropy": (
            lambda z, y: -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1).mean(), f(512, 16000), i(16000, 512)),
        "standardise all": (lambda x: (x - x.mean()) / x.std(), f(2048, 2048)),
    }  # fmt: skip


def moves() -> Table:
    import jax
    import jax.numpy as jnp

    lax = jax.lax
    return {
        "transpose": (lambda x: x.T, f(2048, 2048)),
        "transpose odd": (lambda x: x.T, f(2047, 1999)),
        "transpose thin": (lambda x: x.T, f(1 << 20, 4)),
        "transpose fat": (lambda x: x.T, f(4, 1 << 20)),
        "transpose f64": (lambda x: x.T, f(1024, 2048, dtype="float64")),
        "transpose bf16": (lambda x: x.T, f(2048, 4096, dtype="bfloat16")),
        "transpose int8": (lambda x: x.T, i(100, 2048, 4096, dtype="int8")),
        "x + x.T": (lambda x: x + x.T, f(2048, 2048)),
        "exp(x.T) * y": (lambda x, y: jnp.exp(x.T) * y, f(2048, 2048), f(2048, 2048)),
        "sum of x.T rows": (lambda x: (x.T * 2).sum(1), f(2048, 2048)),
        "3-D 0 2 1": (lambda x: jnp.transpose(x, (0, 2, 1)), f(64, 256, 256)),
        "3-D 1 0 2": (lambda x: jnp.transpose(x, (1, 0, 2)), f(128, 256, 128)),
        "3-D 2 1 0": (lambda x: jnp.transpose(x, (2, 1, 0)), f(128, 256, 128)),
        "heads 0 2 1 3": (lambda x: jnp.transpose(x, (0, 2, 1, 3)), f(8, 512, 16, 64)),
        "nhwc to nchw": (lambda x: jnp.transpose(x, (0, 3, 1, 2)), f(16, 56, 56, 64)),
        "nchw to nhwc, relu": (lambda x: jnp.maximum(jnp.transpose(x, (0, 2, 3, 1)), 0), f(16, 64, 56, 56)),
        "4-D 3 2 1 0": (lambda x: jnp.transpose(x, (3, 2, 1, 0)), f(32, 64, 32, 64)),
        "concatenate rows": (lambda x, y: jnp.concatenate([x, y], 0), f(1024, 2048), f(1024, 2048)),
        "concatenate columns": (lambda x, y: jnp.concatenate([x, y * 2], 1), f(2048, 1000), f(2048, 1024)),
        "concatenate of three": (lambda x, y, z: jnp.concatenate([x, y, z], -1), f(4096, 300), f(4096, 200), f(4096, 500)),
        "pad": (lambda x: jnp.pad(x, ((1, 1), (1, 1))), f(2048, 2048)),
        "pad 4-D": (lambda x: jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), f(16, 56, 56, 64)),
        "reflect": (lambda x: jnp.pad(x, ((2, 2), (2, 2)), mode="reflect"), f(2048, 2048)),
        "slice": (lambda x: x[100:2000, 10:2010] * 2, f(2048, 2048)),
        "one of rows of 3": (lambda x: x[:, 1], f(1 << 20, 3)),
        "stride 2": (lambda x: x[:, ::2] + 1, f(2048, 4096)),
        "reverse rows": (lambda x: x[::-1], f(2048, 2048)),
        "reverse columns": (lambda x: x[:, ::-1], f(2048, 2048)),
        "roll": (lambda x: jnp.roll(x, 7, 1), f(2048, 2048)),
        "differences": (lambda x: x[:, 1:] - x[:, :-1], f(2048, 2048)),
        "five-point stencil": (
            lambda x: x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:], f(2048, 2048)),
        "rotary": (lambda x: jnp.concatenate([-x[..., 32:], x[..., :32]], -1) * 0.5 + x, f(8, 512, 16, 64)),
        "interleave": (lambda x, y: jnp.stack([x, y], -1).reshape(2048, -1), f(2048, 1024), f(2048, 1024)),
        "tile": (lambda x: jnp.tile(x, (4, 2)), f(512, 1024)),
        "repeat": (lambda x: jnp.repeat(x, 2, axis=0), f(1024, 2048)),
        "repeat columns": (lambda x: jnp.repeat(x, 4, axis=1), f(1024, 1024)),
        "reshape merge": (lambda x: (x * 2).reshape(-1, 300), f(100, 128, 300)),
        "triangle": (jnp.tril, f(2048, 2048)),
        "space to depth": (
            lambda x: x.reshape(8, 56, 2, 56, 2, 32).transpose(0, 1, 3, 2, 4, 5).reshape(8, 56, 56, 128), f(8, 112, 112, 32)),
        "update a slice": (lambda x, u, k: lax.dynamic_update_slice(x, u, (k, 0)), f(2048, 2048), f(16, 2048), i(2000)),
        "dynamic slice": (lambda x, k: lax.dynamic_slice(x, (k, 0), (1024, 2048)) * 2, f(2048, 2048), i(1000)),
    }  # fmt: skip


def scans() -> Table:
    import jax
    import jax.numpy as jnp

    lax = jax.lax
    return {
        "cumsum rows": (lambda x: jnp.cumsum(x, 1), f(2048, 2048)),
        "cumsum columns": (lambda x: jnp.cumsum(x, 0), f(2048, 2048)),
        "cumsum middle": (lambda x: jnp.cumsum(x, 1), f(64, 256, 256)),
        "cumsum reversed": (lambda x: lax.cumsum(x, 1, reverse=True), f(2048, 2048)),
        "cumprod rows": (lambda x: jnp.cumprod(x, 1), f(2048, 2048, unit=True)),
        "cummax rows": (lambda x: lax.cummax(x, 1), f(2048, 2048)),
        "cummax columns reversed": (lambda x: lax.cummax(x, 0, reverse=True), f(2048, 2048)),
        "cummin int32": (lambda x: lax.cummin(x, 1), i(1000, 2048, 2048)),
        "cumlogsumexp rows": (lambda x: lax.cumlogsumexp(x, 1), f(512, 512)),
        "cumlogsumexp columns": (lambda x: lax.cumlogsumexp(x, 0), f(512, 512)),
        "cumsum one row": (jnp.cumsum, f(1 << 22)),
        "cumsum few rows": (lambda x: jnp.cumsum(x, 1), f(3, 1 << 20)),
        "cumsum int32": (lambda x: jnp.cumsum(x, 1), i(100, 2048, 2048)),
        "cumsum bf16": (lambda x: jnp.cumsum(x.astype(jnp.float32), 1).astype(jnp.bfloat16), f(2048, 2048, dtype="bfloat16")),
        "cumsum f64": (lambda x: jnp.cumsum(x, 1), f(1024, 2048, dtype="float64")),
        "count before": (lambda x: jnp.cumsum(x > 0, 1), f(2048, 2048)),
    }


def windows() -> Table:
    import jax
    import jax.numpy as jnp

    lax = jax.lax

    def pool(window: tuple[int, ...], strides: tuple[int, ...], padding: str = "VALID", **more: Any) -> Any:
        return lambda x: lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding, **more)

    def average(window: tuple[int, ...], strides: tuple[int, ...], padding: str = "VALID") -> Any:
        size = 1
        for n in window:
            size *= n
        return lambda x: lax.reduce_window(x, 0.0, lax.add, window, strides, padding) / size

    def gradient(forward: Any) -> Any:
        return lambda x: jax.grad(lambda x: (forward(x) ** 2).sum())(x)

    image, planes = f(8, 112, 112, 64), f(8, 64, 112, 112)
    return {
        "max 2x2": (pool((1, 2, 2, 1), (1, 2, 2, 1)), image),
        "max 3x3 stride 2": (pool((1, 3, 3, 1), (1, 2, 2, 1)), image),
        "max 3x3 stride 2 same": (pool((1, 3, 3, 1), (1, 2, 2, 1), "SAME"), image),
        "max 3x3 stride 1": (pool((1, 3, 3, 1), (1, 1, 1, 1)), image),
        "max 3x3 stride 1 same": (pool((1, 3, 3, 1), (1, 1, 1, 1), "SAME"), image),
        "max 2x2 planes": (pool((1, 1, 2, 2), (1, 1, 2, 2)), planes),
        "max 3x3 planes": (pool((1, 1, 3, 3), (1, 1, 2, 2)), planes),
        "max 3x3 stride 1 planes": (pool((1, 1, 3, 3), (1, 1, 1, 1)), planes),
        "average 2x2": (average((1, 2, 2, 1), (1, 2, 2, 1)), image),
        "average 3x3 stride 1": (average((1, 3, 3, 1), (1, 1, 1, 1)), image),
        "average 2x2 planes": (average((1, 1, 2, 2), (1, 1, 2, 2)), planes),
        "average 3x3 same": (average((1, 3, 3, 1), (1, 2, 2, 1), "SAME"), image),
        "global average": (lambda x: x.mean((1, 2)), image),
        "global average planes": (lambda x: x.mean((2, 3)), planes),
        "global max": (lambda x: x.max((1, 2)), image),
        "1-D max 3": (pool((1, 3, 1), (1, 1, 1)), f(16, 2048, 64)),
        "1-D sum 5 rows": (average((1, 5), (1, 1)), f(2048, 2048)),
        "1-D max 9 rows": (pool((1, 9), (1, 1)), f(2048, 2048)),
        "1-D sum 64 rows": (average((1, 64), (1, 1)), f(1024, 2048)),
        "1-D max 33 columns": (pool((33, 1), (1, 1)), f(1024, 2048)),
        "3-D 2x2x2": (pool((1, 2, 2, 2, 1), (1, 2, 2, 2, 1)), f(2, 32, 64, 64, 16)),
        "3-D 3x3x3": (pool((1, 3, 3, 3, 1), (1, 1, 1, 1, 1)), f(1, 32, 64, 64, 16)),
        "dilated window": (pool((1, 3, 3, 1), (1, 1, 1, 1), window_dilation=(1, 2, 2, 1)), f(4, 112, 112, 64)),
        "max 5x5": (pool((1, 5, 5, 1), (1, 1, 1, 1)), f(2, 112, 112, 64)),
        "gradient max 2x2": (gradient(pool((1, 2, 2, 1), (1, 2, 2, 1))), f(4, 112, 112, 64)),
        "gradient max 3x3 stride 2": (gradient(pool((1, 3, 3, 1), (1, 2, 2, 1))), f(4, 112, 112, 64)),
        "gradient average 2x2": (gradient(average((1, 2, 2, 1), (1, 2, 2, 1))), f(4, 112, 112, 64)),
    }


def lookups() -> Table:
    import jax
    import jax.numpy as jnp

    table = f(50000, 512)
    return {
        "embedding": (lambda e, k: e[k], table, i(50000, 4096)),
        "embedding 2-D": (lambda e, k: e[k] * 0.5, f(32000, 256), i(32000, 8, 512)),
        "embedding narrow": (lambda e, k: e[k], f(100000, 16), i(100000, 1 << 17)),
        "embedding bf16": (lambda e, k: e[k].astype(jnp.float32), f(32000, 512, dtype="bfloat16"), i(32000, 4096)),
        "take scalars": (lambda x, k: x[k], f(1 << 20), i(1 << 20, 1 << 20)),
        "take columns": (lambda x, k: x[:, k], f(2048, 2048), i(2048, 1024)),
        "take clipped": (lambda x, k: jnp.take(x, k, axis=0, mode="clip"), f(10000, 256), i(10000, 8192)),
        "take filled": (lambda x, k: jnp.take(x, k, axis=0, mode="fill"), f(10000, 256), i(12000, 8192)),
        "take along rows": (lambda x, k: jnp.take_along_axis(x, k, 1), f(2048, 1024), i(1024, 2048, 1024)),
        "take along columns": (lambda x, k: jnp.take_along_axis(x, k, 0), f(2048, 1024), i(2048, 2048, 1024)),
        "one of each row": (lambda x, k: jnp.take_along_axis(x, k[:, None], 1), f(65536, 32), i(32, 65536)),
        "one hot": (lambda k: jax.nn.one_hot(k, 1000), i(1000, 4096)),
        "pairs": (lambda x, a, b: x[a, b], f(1024, 1024), i(1024, 1 << 18), i(1024, 1 << 18)),
        "scatter add rows": (lambda k, u: jnp.zeros((50000, 128)).at[k].add(u), i(50000, 8192), f(8192, 128)),
        "scatter max rows": (lambda x, k, u: x.at[k].max(u), f(20000, 128), i(20000, 8192), f(8192, 128)),
        "scatter set rows": (lambda x, k, u: x.at[k].set(u), f(20000, 128), i(20000, 64), f(64, 128)),
        "scatter add scalars": (lambda k, u: jnp.zeros(4096).at[k].add(u), i(4096, 1 << 20), f(1 << 20)),
        "histogram": (lambda k: jnp.zeros(256, jnp.int32).at[k].add(1), i(256, 1 << 20)),
        "segment sum": (lambda x, k: jax.ops.segment_sum(x, k, 1000), f(65536, 64), i(1000, 65536)),
        "segment max": (lambda x, k: jax.ops.segment_max(x, k, 1000), f(65536, 64), i(1000, 65536)),
        "scatter columns": (lambda x, k, u: x.at[:, k].add(u), f(2048, 2048), i(2048, 256), f(2048, 256)),
        "gradient of embedding": (
            lambda e, k: jax.grad(lambda e: (e[k] ** 2).sum())(e), f(20000, 128), i(20000, 8192)),
        "update one row": (lambda x, k, u: x.at[k].set(u), f(2048, 2048), i(2048), f(2048)),
    }  # fmt: skip


def orders() -> Table:
    import jax
    import jax.numpy as jnp

    lax = jax.lax
    return {
        "sort rows": (lambda x: jnp.sort(x, 1), f(1024, 1024)),
        "sort columns": (lambda x: jnp.sort(x, 0), f(1024, 1024)),
        "sort short rows": (lambda x: jnp.sort(x, 1), f(32768, 32)),
        "sort one row": (jnp.sort, f(1 << 18)),
        "sort int32": (lambda x: jnp.sort(x, 1), i(1 << 30, 1024, 1024)),
        "sort f64": (lambda x: jnp.sort(x, 1), f(256, 1024, dtype="float64")),
        "sort bf16": (lambda x: jnp.sort(x, 1), f(512, 1024, dtype="bfloat16")),
        "sort int8": (lambda x: jnp.sort(x, 1), i(100, 512, 1024, dtype="int8")),
        "sort descending": (lambda x: -jnp.sort(-x, 1), f(512, 1024)),
        "argsort": (lambda x: jnp.argsort(x, 1), f(512, 1024)),
        "sort pairs": (lambda k, v: lax.sort((k, v), dimension=1, num_keys=1), f(512, 1024), f(512, 1024)),
        "sort by two keys": (lambda k, v: lax.sort((k, v), dimension=1, num_keys=2), i(10, 256, 1024), f(256, 1024)),
        "top 1": (lambda x: lax.top_k(x, 1), f(1024, 2048)),
        "top 8": (lambda x: lax.top_k(x, 8), f(1024, 2048)),
        "top 64": (lambda x: lax.top_k(x, 64), f(512, 2048)),
        "top 200": (lambda x: lax.top_k(x, 200), f(512, 2048)),
        "top 4 of 32": (lambda x: lax.top_k(x, 4), f(32768, 32)),
        "top 10 of one row": (lambda x: lax.top_k(x, 10), f(1 << 20)),
        "median rows": (lambda x: jnp.median(x, 1), f(512, 1024)),
        "unique counts": (lambda x: (jnp.diff(jnp.sort(x, 1), axis=1) != 0).sum(1), i(1000, 512, 1024)),
    }


GROUPS: dict[str, Callable[[], Table]] = {
    "elementwise": elementwise,
    "reductions": reductions,
    "siblings": siblings,
    "moves": moves,
    "scans": scans,
    "windows": windows,
    "lookups": lookups,
    "orders": orders,
}
