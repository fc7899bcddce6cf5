"""Lowers the workloads of `tests/tiling/planning/test_workloads.py` with JAX: `python tests/programs/make_programs.py`.

The texts are checked in, so that the tests need no JAX; running this again with the same JAX gives the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

F32, I32 = jnp.float32, jnp.int32
NHWC = ("NHWC", "HWIO", "NHWC")


def of(*shape: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def rms_norm_residual(x, r, g):
    y = x + r
    return y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * g, y


def swiglu(x, w1, w3, w2):
    return (jax.nn.silu(x @ w1) * (x @ w3)) @ w2


def rotary(x):
    _, s, _, d = x.shape
    angle = jnp.arange(s)[:, None] / (10000 ** (jnp.arange(0, d, 2) / d))[None]
    c, n = jnp.cos(angle)[None, :, None], jnp.sin(angle)[None, :, None]
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return jnp.concatenate([a * c - b * n, a * n + b * c], -1)


def grouped_query_attention(q, k, v):
    k, v = jnp.repeat(k, 4, 1), jnp.repeat(v, 4, 1)
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, -1), v)


def cross_entropy(z, y):
    return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]).mean()


def batch_norm_training(x, g, b):
    m, v = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b, m, v


def group_norm(x, g, b):
    n, h, w, c = x.shape
    y = x.reshape(n, h * w, 8, c // 8)
    m, v = y.mean((1, 3), keepdims=True), y.var((1, 3), keepdims=True)
    return ((y - m) * lax.rsqrt(v + 1e-5)).reshape(x.shape) * g + b


def conv(x, k, groups=1):
    return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=NHWC, feature_group_count=groups)


def resnet_block(x, k1, b1, k2, b2):
    return jax.nn.relu(conv(jax.nn.relu(conv(x, k1) + b1), k2) + b2 + x)


def depthwise_separable(x, k, p):
    return jax.nn.relu6(conv(jax.nn.relu6(conv(x, k, 32)), p))


def lstm_body(x, h, c, w, u, b):
    i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def max_pooling(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def average_pooling(x):
    return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4


def embedding_gradient(e, i):
    return jax.grad(lambda table: (table[i] ** 2).sum())(e)


def mlp_gradient(x, y, w1, b1, w2, b2):
    def loss(p):
        return ((jax.nn.gelu(x @ p[0] + p[1]) @ p[2] + p[3] - y) ** 2).mean()

    return jax.grad(loss)((w1, b1, w2, b2))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]] = {
    "rms_norm_residual": (rms_norm_residual, (of(512, 1024), of(512, 1024), of(1024))),
    "swiglu": (swiglu, (of(256, 256), of(256, 1024), of(256, 1024), of(1024, 256))),
    "rotary": (rotary, (of(2, 256, 8, 64),)),
    "grouped_query_attention": (grouped_query_attention, (of(1, 8, 512, 64), of(1, 2, 512, 64), of(1, 2, 512, 64))),
    "cross_entropy": (cross_entropy, (of(256, 32000), of(256, dtype=I32))),
    "batch_norm_training": (batch_norm_training, (of(16, 28, 28, 64), of(64), of(64))),
    "group_norm": (group_norm, (of(4, 28, 28, 64), of(64), of(64))),
    "resnet_block": (resnet_block, (of(1, 28, 28, 64), of(3, 3, 64, 64), of(64), of(3, 3, 64, 64), of(64))),
    "depthwise_separable": (depthwise_separable, (of(1, 56, 56, 32), of(3, 3, 1, 32), of(1, 1, 32, 64))),
    "lstm_body": (lstm_body, (of(64, 128), of(64, 256), of(64, 256), of(128, 1024), of(256, 1024), of(1024))),
    "max_pooling": (max_pooling, (of(4, 57, 57, 32),)),
    "average_pooling": (average_pooling, (of(4, 56, 56, 32),)),
    "embedding_gradient": (embedding_gradient, (of(2000, 128), of(512, dtype=I32))),
    "mlp_gradient": (mlp_gradient, (of(128, 256), of(128, 256), of(256, 512), of(512), of(512, 256), of(256))),
    "top_k": (lambda x: lax.top_k(x, 8), (of(128, 512),)),
    "cumulative_sum": (lambda x: jnp.cumsum(x, 1), (of(128, 512),)),
}


def main() -> None:
    for name, (function, arguments) in PROGRAMS.items():
        text = jax.jit(function).lower(*arguments).as_text()
        Path(__file__).with_name(f"{name}.mlir").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
