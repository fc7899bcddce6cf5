"""The cases of `benchmarks/forms.py`: the programs that models and numerical codes are made of, in realistic sizes.

Each case is a function of arrays, as a JAX user would write it, and its arguments. Variants of one form stand side by side
(attention with masks, biases, fewer heads of keys, other layouts and types, gradients), so that what holds for one can be seen
to hold, or not, for the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.cases import convolutions, draws
from benchmarks.tables import Case, Given, cases_of

__all__ = ["cases"]


Table = dict[str, tuple[Any, ...]]


def n(*shape: int, t: str = "float32", s: float = 1.0) -> Given:
    return Given(shape, t, s)


def u(*shape: int, t: str = "float32") -> Given:
    return Given(shape, t, unit=True)


def i(low: int, high: int, *shape: int, t: str = "int32") -> Given:
    return Given(shape, t, low=low, high=high)


def cases() -> Iterator[Case]:
    """Every case, group by group."""
    return cases_of(GROUPS)


# ------------------------------------------------------------------ attention


def attend(q: Any, k: Any, v: Any, adjust: Callable[[Any], Any] = lambda s: s) -> Any:
    """softmax(adjust(q kᵀ / √d)) v, heads first; fewer heads of k and v than of q are shared by neighbours."""
    import jax
    import jax.numpy as jnp

    b, h, m, d = q.shape
    shared = h // k.shape[1]
    if shared == 1:
        s = adjust(jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(d))
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, -1), v)
    g = q.reshape(b, k.shape[1], shared, m, d)
    s = adjust(jnp.einsum("bgrqd,bgkd->bgrqk", g, k) / math.sqrt(d))
    return jnp.einsum("bgrqk,bgkd->bgrqd", jax.nn.softmax(s, -1), v).reshape(b, h, m, d)


def causal(s: Any) -> Any:
    import jax.numpy as jnp

    m, length = s.shape[-2:]
    i, j = jnp.arange(m)[:, None], jnp.arange(length)[None, :]
    return jnp.where(j <= i + (length - m), s, float(jnp.finfo(s.dtype).min))  # type: ignore[no-untyped-call]


def rotate(x: Any) -> Any:
    """Rotary positions, half by half, over the second dimension from the end."""
    import jax.numpy as jnp

    m, d = x.shape[-2:]
    angle = jnp.arange(m, dtype=jnp.float32)[:, None] * 10000.0 ** (-jnp.arange(0, d, 2, dtype=jnp.float32) / d)
    c, s = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * c - b * s, a * s + b * c], -1)


def attention() -> Table:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def sliding(s: Any) -> Any:
        i, j = jnp.arange(s.shape[-2])[:, None], jnp.arange(s.shape[-1])[None, :]
        return jnp.where((j <= i) & (j > i - 256), s, -1e9)

    def alibi(s: Any) -> Any:
        h, m, length = s.shape[1:]
        slopes = 2.0 ** (-8.0 * (jnp.arange(h, dtype=s.dtype) + 1) / h)
        away = (jnp.arange(length)[None, :] - jnp.arange(m)[:, None]).astype(s.dtype)
        return causal(s + slopes[:, None, None] * away)

    def padded(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        seen = jnp.arange(k.shape[2])[None, :] < lengths[:, None]
        return attend(q, k, v, lambda s: jnp.where(seen[:, None, None, :], s, -1e9))

    def bshd(q: Any, k: Any, v: Any) -> Any:
        s = causal(jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]))
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v)

    def packed(x: Any) -> Any:
        q, k, v = jnp.moveaxis(x, 2, 0)
        return bshd(q, k, v)

    def in_float(q: Any, k: Any, v: Any) -> Any:
        """Scores and weights in f32 though the operands are not, as models do."""
        s = causal(jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) / math.sqrt(q.shape[-1]))
        p = jax.nn.softmax(s, -1).astype(q.dtype)
        return jnp.einsum("bhqk,bhkd->bhqd", p, v)

    def decode(q: Any, k: Any, v: Any, new_k: Any, new_v: Any, at: Any) -> Any:
        k = lax.dynamic_update_slice(k, new_k, (0, 0, at, 0))
        v = lax.dynamic_update_slice(v, new_v, (0, 0, at, 0))
        seen = jnp.arange(k.shape[2]) <= at
        return attend(q, k, v, lambda s: jnp.where(seen, s, -1e9)), k, v

    def dot_product(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    def loss(f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda q, k, v: (f(q, k, v).astype(jnp.float32) ** 2).mean() * 1e3, (0, 1, 2))

    def capped(s: Any) -> Any:
        return causal(30.0 * jnp.tanh(s / 30.0))

    same = (n(1, 8, 1024, 64),) * 3
    half = (n(1, 8, 1024, 64, t="bfloat16"),) * 3
    return {
        "full": (attend, *same),
        "full 2048": (attend, *(n(1, 8, 2048, 64),) * 3),
        "causal": (lambda q, k, v: attend(q, k, v, causal), *same),
        "causal 4096": (lambda q, k, v: attend(q, k, v, causal), *(n(1, 8, 4096, 64),) * 3),
        "bias": (lambda q, k, v, b: attend(q, k, v, lambda s: s + b), *same, n(1, 8, 1024, 1024)),
        "mask as booleans": (
            lambda q, k, v, m: attend(q, k, v, lambda s: jnp.where(m > 0, s, -1e9)), *same, i(0, 2, 1, 1, 1024, 1024, t="int8")
        ),
        "ALiBi": (lambda q, k, v: attend(q, k, v, alibi), *same),
        "sliding window": (lambda q, k, v: attend(q, k, v, sliding), *(n(1, 8, 2048, 64),) * 3),
        "lengths": (padded, *(n(4, 8, 512, 64),) * 3, i(100, 512, 4)),
        "soft cap": (lambda q, k, v: attend(q, k, v, capped), *same),
        "grouped keys": (lambda q, k, v: attend(q, k, v, causal), n(1, 16, 1024, 64), *(n(1, 4, 1024, 64),) * 2),
        "one head of keys": (lambda q, k, v: attend(q, k, v, causal), n(1, 16, 1024, 64), *(n(1, 1, 1024, 64),) * 2),
        "repeated keys": (
            lambda q, k, v: attend(q, jnp.repeat(k, 4, 1), jnp.repeat(v, 4, 1), causal),
            n(1, 16, 1024, 64), *(n(1, 4, 1024, 64),) * 2,
        ),
        "head of 32": (lambda q, k, v: attend(q, k, v, causal), *(n(2, 16, 512, 32),) * 3),
        "head of 80": (lambda q, k, v: attend(q, k, v, causal), *(n(1, 8, 1024, 80),) * 3),
        "head of 128": (lambda q, k, v: attend(q, k, v, causal), *(n(1, 8, 1024, 128),) * 3),
        "odd lengths": (attend, n(1, 8, 577, 64), *(n(1, 8, 577, 64),) * 2),
        "cross": (attend, n(1, 8, 256, 64), *(n(1, 8, 1500, 64),) * 2),
        "positions first": (bshd, *(n(2, 1024, 8, 64),) * 3),
        "packed": (packed, n(2, 512, 3, 8, 64)),
        "library's": (dot_product, *(n(2, 1024, 8, 64),) * 3),
        "bf16": (lambda q, k, v: attend(q, k, v, causal), *half),
        "bf16, scores in f32": (in_float, *half),
        "bf16 4096": (in_float, *(n(1, 4, 4096, 64, t="bfloat16"),) * 3),
        "f16": (lambda q, k, v: attend(q, k, v, causal), *(n(1, 8, 1024, 64, t="float16"),) * 3),
        "rotary": (lambda q, k, v: attend(rotate(q), rotate(k), v, causal), *same),
        "decode": (decode, n(1, 32, 1, 128), *(n(1, 32, 4096, 128),) * 2, *(n(1, 32, 1, 128),) * 2, i(3000, 4096)),
        "decode, grouped": (decode, n(8, 32, 1, 64), *(n(8, 8, 1024, 64),) * 2, *(n(8, 8, 1, 64),) * 2, i(700, 1024)),
        "gradient, full": (loss(attend), *same),
        "gradient, causal": (loss(lambda q, k, v: attend(q, k, v, causal)), *same),
        "gradient, bf16": (loss(in_float), *(n(1, 8, 512, 64, t="bfloat16"),) * 3),
        "gradient, grouped": (
            loss(lambda q, k, v: attend(q, k, v, causal)), n(1, 16, 512, 64), *(n(1, 4, 512, 64),) * 2
        ),
    }  # fmt: skip


# ------------------------------------------------------------------ normalisation


def layer_norm(x: Any, g: Any, b: Any, axis: Any = -1) -> Any:
    from jax import lax

    m = x.mean(axis, keepdims=True)
    v = ((x - m) ** 2).mean(axis, keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b


def rms_norm(x: Any, g: Any) -> Any:
    import jax.numpy as jnp
    from jax import lax

    y = x.astype(jnp.float32)
    return (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def normalised() -> Table:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def group_norm(x: Any, g: Any, b: Any) -> Any:
        y = x.reshape(*x.shape[:-1], 32, -1)
        m, v = y.mean((1, 2, 4), keepdims=True), y.var((1, 2, 4), keepdims=True)
        return ((y - m) * lax.rsqrt(v + 1e-5)).reshape(x.shape) * g + b

    def batch_norm(x: Any, g: Any, b: Any, m: Any, v: Any) -> Any:
        return (x - m) * lax.rsqrt(v + 1e-5) * g + b

    def training(x: Any, g: Any, b: Any, m: Any, v: Any) -> Any:
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return batch_norm(x, g, b, mean, var), 0.9 * m + 0.1 * mean, 0.9 * v + 0.1 * var

    def chosen(x: Any, y: Any) -> Any:
        z = x / 0.7
        return jax.nn.softmax(z, -1), jnp.argmax(z + y, -1)

    def grad_norm(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, t, *p: jax.grad(lambda x, *p: (f(x, *p) * t).sum(), tuple(range(1 + len(p))))(x, *p)

    bf = "bfloat16"
    return {
        "softmax, first": (lambda x: jax.nn.softmax(x, 0), n(2048, 2048)),
        "softmax, middle": (lambda x: jax.nn.softmax(x, 1), n(16, 512, 512)),
        "softmax, masked": (lambda x, m: jax.nn.softmax(jnp.where(m > 0, x, -jnp.inf), -1), n(2048, 2048), i(0, 2, 2048, 2048)),
        "softmax, bf16": (lambda x: jax.nn.softmax(x, -1), n(2048, 4096, t=bf)),
        "softmax, short rows": (lambda x: jax.nn.softmax(x, -1), n(65536, 50)),
        "softmax, gradient": (lambda x, t: jax.grad(lambda x: (jax.nn.softmax(x, -1) * t).sum())(x), *(n(2048, 2048),) * 2),
        "log softmax": (lambda x: jax.nn.log_softmax(x, -1), n(2048, 4096)),
        "softmax and argmax": (chosen, n(1024, 8192), n(1024, 8192)),
        "layer norm, two axes": (lambda x, g, b: layer_norm(x, g, b, (-2, -1)), n(256, 64, 256), n(64, 256), n(64, 256)),
        "layer norm, channels first": (
            lambda x, g, b: layer_norm(x, g[:, None, None], b[:, None, None], 1), n(8, 96, 56, 56), n(96), n(96)
        ),
        "layer norm, bf16": (layer_norm, n(4096, 1024, t=bf), n(1024, t=bf), n(1024, t=bf)),
        "layer norm, gradient": (grad_norm(layer_norm), n(4096, 1024), n(4096, 1024), n(1024), n(1024)),
        "RMS norm, bf16": (rms_norm, n(4096, 2048, t=bf), n(2048, t=bf)),
        "RMS norm, gradient": (grad_norm(rms_norm), n(4096, 1024), n(4096, 1024), n(1024)),
        "group norm": (group_norm, n(8, 32, 32, 256), n(256), n(256)),
        "instance norm": (
            lambda x, g, b: layer_norm(x, g[:, None, None], b[:, None, None], (2, 3)), n(8, 64, 64, 64), n(64), n(64)
        ),
        "batch norm, inference": (batch_norm, n(16, 56, 56, 64), n(64), n(64), n(64), u(64)),
        "batch norm, training": (training, n(16, 56, 56, 64), n(64), n(64), n(64), u(64)),
        "batch norm, gradient": (
            grad_norm(lambda x, g, b: training(x, g, b, 0.0, 0.0)[0]), n(16, 28, 28, 128), n(16, 28, 28, 128), n(128), n(128)
        ),
        "L2 rows": (lambda x: x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12), n(8192, 512)),
    }  # fmt: skip


# ------------------------------------------------------------------ blocks


def blocks() -> Table:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def gelu(x: Any) -> Any:
        return jax.nn.gelu(x, approximate=True)

    def swiglu(x: Any, w1: Any, w3: Any, w2: Any) -> Any:
        return (jax.nn.silu(x @ w1) * (x @ w3)) @ w2

    def mlp(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, w1, b1, w2, b2: f(x @ w1 + b1) @ w2 + b2

    def llama(x: Any, g1: Any, wq: Any, wk: Any, wv: Any, wo: Any, g2: Any, w1: Any, w3: Any, w2: Any) -> Any:
        m, d = x.shape
        y = rms_norm(x, g1)

        def heads(t: Any) -> Any:
            return t.reshape(m, -1, 64).transpose(1, 0, 2)[None]

        o = attend(rotate(heads(y @ wq)), rotate(heads(y @ wk)), heads(y @ wv), causal)
        x = x + o[0].transpose(1, 0, 2).reshape(m, d) @ wo
        return x + swiglu(rms_norm(x, g2), w1, w3, w2)

    def encoder(x: Any, g1: Any, b1: Any, wqkv: Any, bqkv: Any, wo: Any, bo: Any, g2: Any, b2: Any, w1: Any, c1: Any, w2: Any,
                c2: Any) -> Any:  # fmt: skip
        b, m, d = x.shape
        q, k, v = (t.reshape(b, m, -1, 64).transpose(0, 2, 1, 3) for t in jnp.split(layer_norm(x, g1, b1) @ wqkv + bqkv, 3, -1))
        x = x + attend(q, k, v).transpose(0, 2, 1, 3).reshape(b, m, d) @ wo + bo
        return x + gelu(layer_norm(x, g2, b2) @ w1 + c1) @ w2 + c2

    def weights(d: int, t: str = "float32") -> tuple[Given, ...]:
        s = d**-0.5
        return (n(d, t=t), n(d, t=t), n(d, 3 * d, s=s, t=t), n(3 * d, t=t), n(d, d, s=s, t=t), n(d, t=t), n(d, t=t), n(d, t=t),
                n(d, 4 * d, s=s, t=t), n(4 * d, t=t), n(4 * d, d, s=s / 2, t=t), n(d, t=t))  # fmt: skip

    def conv(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
        return lax.conv_general_dilated(x, w, (stride,) * 2, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                        feature_group_count=groups)  # fmt: skip

    def norm(x: Any, p: Any) -> Any:
        return x * p[0] + p[1]

    def resnet(x: Any, w1: Any, p1: Any, w2: Any, p2: Any) -> Any:
        return jax.nn.relu(x + norm(conv(jax.nn.relu(norm(conv(x, w1), p1)), w2), p2))

    def bottleneck(x: Any, w1: Any, p1: Any, w2: Any, p2: Any, w3: Any, p3: Any) -> Any:
        y = jax.nn.relu(norm(conv(x, w1), p1))
        y = jax.nn.relu(norm(conv(y, w2), p2))
        return jax.nn.relu(x + norm(conv(y, w3), p3))

    def convnext(x: Any, w: Any, b: Any, g: Any, c: Any, w1: Any, b1: Any, w2: Any, b2: Any, scale: Any) -> Any:
        y = layer_norm(conv(x, w, groups=x.shape[-1]) + b, g, c)
        return x + scale * (gelu(y @ w1 + b1) @ w2 + b2)

    def mixer(x: Any, g1: Any, b1: Any, t1: Any, t2: Any, g2: Any, b2: Any, c1: Any, c2: Any) -> Any:
        y = layer_norm(x, g1, b1).swapaxes(-1, -2)
        x = x + (gelu(y @ t1) @ t2).swapaxes(-1, -2)
        return x + gelu(layer_norm(x, g2, b2) @ c1) @ c2

    def inverted(x: Any, w1: Any, w2: Any, s1: Any, s2: Any, w3: Any) -> Any:
        y = jax.nn.silu(x @ w1)
        y = jax.nn.silu(conv(y, w2, groups=y.shape[-1]))
        y = y * jax.nn.sigmoid(jax.nn.silu(y.mean((1, 2)) @ s1) @ s2)[:, None, None, :]
        return x + y @ w3

    def embed(ids: Any, table: Any, positions: Any, g: Any, b: Any) -> Any:
        return layer_norm(table[ids] + positions, g, b)

    def lstm(x: Any, w: Any, r: Any, b: Any) -> Any:
        def step(carry: Any, z: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(z + h @ r, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], r.shape[0]), x.dtype)
        return lax.scan(step, (zero, zero), x @ w + b)

    def gru(x: Any, w: Any, r: Any, b: Any) -> Any:
        def step(h: Any, z: Any) -> Any:
            y = h @ r
            d = h.shape[-1]
            a, c = jnp.split(jax.nn.sigmoid(z[:, : 2 * d] + y[:, : 2 * d]), 2, -1)
            h = (1 - a) * jnp.tanh(z[:, 2 * d :] + c * y[:, 2 * d :]) + a * h
            return h, h

        return lax.scan(step, jnp.zeros((x.shape[1], r.shape[0]), x.dtype), x @ w + b)

    def experts(x: Any, gate: Any, w1: Any, w2: Any) -> Any:
        p = jax.nn.softmax(x @ gate, -1)
        top, at = lax.top_k(p, 2)
        chosen = (jax.nn.one_hot(at, p.shape[-1]) * (top / top.sum(-1, keepdims=True))[..., None]).sum(-2)
        y = jnp.einsum("etf,efd->etd", jax.nn.silu(jnp.einsum("td,edf->etf", x, w1)), w2)
        return jnp.einsum("etd,te->td", y, chosen)

    def wide(d: int, h: int, t: str = "float32") -> tuple[Given, ...]:
        return n(d, h, s=d**-0.5, t=t), n(h, t=t), n(h, d, s=h**-0.5, t=t), n(d, t=t)

    bf = "bfloat16"
    gate = (n(512, 512), n(512, 1376, s=0.04), n(512, 1376, s=0.04), n(1376, 512, s=0.03))
    decoder = (n(512), n(512, 512, s=0.04), *(n(512, 128, s=0.04),) * 2, n(512, 512, s=0.04), n(512), *gate[1:])

    def in_bf(g: tuple[Given, ...]) -> tuple[Given, ...]:
        return tuple(Given(x.shape, bf, x.scale) for x in g)

    return {
        "MLP, relu": (mlp(jax.nn.relu), n(512, 768), *wide(768, 3072)),
        "MLP, gelu of erf": (mlp(lambda x: jax.nn.gelu(x, approximate=False)), n(512, 768), *wide(768, 3072)),
        "MLP, silu": (mlp(jax.nn.silu), n(512, 768), *wide(768, 3072)),
        "MLP, bf16": (mlp(gelu), n(512, 768, t=bf), *wide(768, 3072, bf)),
        "SwiGLU": (swiglu, *gate),
        "SwiGLU, bf16": (swiglu, *in_bf(gate)),
        "SwiGLU, one token": (swiglu, n(1, 2048), *(n(2048, 5504, s=0.02),) * 2, n(5504, 2048, s=0.02)),
        "SwiGLU, gradient": (
            lambda x, *w: jax.grad(lambda w: (swiglu(x, *w) ** 2).mean())(w), *gate
        ),
        "decoder block": (llama, n(512, 512), *decoder),
        "decoder block, bf16": (llama, *in_bf((n(512, 512), *decoder))),
        "decoder block, gradient": (
            lambda x, *w: jax.grad(lambda w: (llama(x, *w) ** 2).mean())(w), n(256, 512), *decoder
        ),
        "encoder block": (encoder, n(4, 128, 512), *weights(512)),
        "encoder block, bf16": (encoder, n(2, 256, 512, t=bf), *weights(512, bf)),
        "encoder block, gradient": (
            lambda x, *w: jax.grad(lambda w: (encoder(x, *w) ** 2).mean())(w), n(2, 128, 256), *weights(256)
        ),
        "residual block": (resnet, n(1, 56, 56, 64), n(3, 3, 64, 64, s=0.05), n(2, 64), n(3, 3, 64, 64, s=0.05), n(2, 64)),
        "bottleneck": (
            bottleneck, n(4, 28, 28, 256), n(1, 1, 256, 64, s=0.06), n(2, 64), n(3, 3, 64, 64, s=0.05), n(2, 64),
            n(1, 1, 64, 256, s=0.1), n(2, 256),
        ),
        "residual block, gradient": (
            lambda x, *w: jax.grad(lambda w: (resnet(x, *w) ** 2).mean())(w),
            n(4, 28, 28, 64), n(3, 3, 64, 64, s=0.05), n(2, 64), n(3, 3, 64, 64, s=0.05), n(2, 64),
        ),
        "ConvNeXt block": (
            convnext, n(1, 56, 56, 96), n(7, 7, 1, 96, s=0.15), n(96), n(96), n(96), *wide(96, 384), n(96),
        ),
        "mixer block": (
            mixer, n(2, 196, 512), n(512), n(512), n(196, 256, s=0.07), n(256, 196, s=0.06), n(512), n(512),
            n(512, 2048, s=0.04), n(2048, 512, s=0.02),
        ),
        "inverted bottleneck": (
            inverted, n(4, 28, 28, 40), n(40, 240, s=0.15), n(5, 5, 1, 240, s=0.2), n(240, 10, s=0.06), n(10, 240, s=0.3),
            n(240, 40, s=0.06),
        ),
        "embedding": (embed, i(0, 30000, 16, 512), n(30000, 256), n(512, 256), n(256), n(256)),
        "LSTM": (lstm, n(128, 16, 256), n(256, 1024, s=0.06), n(256, 1024, s=0.06), n(1024)),
        "GRU": (gru, n(128, 16, 256), n(256, 768, s=0.06), n(256, 768, s=0.06), n(768)),
        "LSTM, gradient": (
            lambda x, *w: jax.grad(lambda w: (lstm(x, *w)[1] ** 2).mean())(w),
            n(32, 16, 128), n(128, 512, s=0.08), n(128, 512, s=0.08), n(512),
        ),
        "experts": (experts, n(512, 256), n(256, 8, s=0.06), n(8, 256, 512, s=0.06), n(8, 512, 256, s=0.04)),
    }  # fmt: skip


# ------------------------------------------------------------------ losses and updates


def losses() -> Table:
    import jax
    import jax.numpy as jnp

    def xent(z: Any, y: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(z, -1), y[:, None], 1).mean()

    def smooth(z: Any, y: Any) -> Any:
        p = jax.nn.one_hot(y, z.shape[-1]) * 0.9 + 0.1 / z.shape[-1]
        return -(p * jax.nn.log_softmax(z, -1)).sum(-1).mean()

    def focal(z: Any, y: Any) -> Any:
        p = jax.nn.sigmoid(z)
        t = jnp.where(y > 0, p, 1 - p)
        return -(jnp.where(y > 0, 0.25, 0.75) * (1 - t) ** 2 * jnp.log(t + 1e-8)).mean()

    def bce(z: Any, y: Any) -> Any:
        return (jnp.maximum(z, 0) - z * y + jnp.log1p(jnp.exp(-jnp.abs(z)))).mean()

    def kl(z: Any, w: Any) -> Any:
        p = jax.nn.log_softmax(w, -1)
        return (jnp.exp(p) * (p - jax.nn.log_softmax(z, -1))).sum(-1).mean()

    def contrastive(a: Any, b: Any) -> Any:
        a, b = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
        z = a @ b.T / 0.07
        d = jnp.diagonal(z)
        return ((jax.nn.logsumexp(z, 0) - d) + (jax.nn.logsumexp(z, 1) - d)).mean() / 2

    def ctc(z: Any) -> Any:
        """Paths that stay, step by one or by two, as a connectionist loss counts them."""
        p = jax.nn.log_softmax(z, -1)

        def step(a: Any, row: Any) -> Any:
            low = jnp.full_like(a[:, :1], -1e30)
            one = jnp.concatenate([low, a[:, :-1]], 1)
            two = jnp.concatenate([low, one[:, :-1]], 1)
            a = jnp.logaddexp(jnp.logaddexp(a, one), two) + row
            return a, None

        start = jnp.full(p.shape[1:], -1e30).at[:, 0].set(0.0)
        return -jax.lax.scan(step, start, p)[0][:, -1].mean()

    def huber(x: Any, y: Any) -> Any:
        d = jnp.abs(x - y)
        return jnp.where(d < 1, 0.5 * d * d, d - 0.5).mean()

    labels, z = i(0, 8192, 1024), n(1024, 8192)
    return {
        "cross entropy": (xent, z, labels),
        "cross entropy, bf16": (lambda z, y: xent(z.astype(jnp.float32), y), n(1024, 8192, t="bfloat16"), labels),
        "cross entropy, gradient": (jax.grad(xent), z, labels),
        "label smoothing": (smooth, z, labels),
        "label smoothing, gradient": (jax.grad(smooth), z, labels),
        "focal": (focal, n(2048, 2048), i(0, 2, 2048, 2048)),
        "focal, gradient": (jax.grad(focal), n(2048, 2048), i(0, 2, 2048, 2048)),
        "MSE, gradient": (jax.value_and_grad(lambda x, y: ((x - y) ** 2).mean()), *(n(2048, 2048),) * 2),
        "Huber": (huber, *(n(2048, 2048),) * 2),
        "BCE with logits": (bce, n(2048, 2048), u(2048, 2048)),
        "BCE, gradient": (jax.grad(bce), n(2048, 2048), u(2048, 2048)),
        "KL": (kl, *(n(1024, 4096),) * 2),
        "KL, gradient": (jax.grad(kl), *(n(1024, 4096),) * 2),
        "contrastive": (contrastive, *(n(1024, 256),) * 2),
        "contrastive, gradient": (jax.grad(contrastive, (0, 1)), *(n(1024, 256),) * 2),
        "CTC scan": (ctc, n(200, 32, 65)),
        "output layer and loss": (
            lambda x, w, y: xent(x @ w, y), n(512, 512), n(512, 8192, s=0.05), i(0, 8192, 512)
        ),
        "output layer and loss, gradient": (
            jax.grad(lambda w, x, y: xent(x @ w, y)), n(512, 8192, s=0.05), n(512, 512), i(0, 8192, 512)
        ),
    }  # fmt: skip


def updates() -> Table:
    import jax
    import jax.numpy as jnp

    sizes: tuple[tuple[int, ...], ...] = ((512, 1536), (1536,), (512, 512), (512,), (512, 2048), (2048,), (2048, 512), (512,))

    def adam(*tree: Any) -> Any:
        p, g, m, v = (list(tree[k::4]) for k in range(4))
        norm = jnp.sqrt(sum((x * x).sum() for x in g))
        g = [x * jnp.minimum(1.0, 1.0 / (norm + 1e-6)) for x in g]
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
        v = [0.999 * a + 0.001 * b * b for a, b in zip(v, g, strict=True)]
        p = [x - 1e-3 * ((a / 0.1) / (jnp.sqrt(b / 0.001) + 1e-8) + 0.01 * x) for x, a, b in zip(p, m, v, strict=True)]
        return p, m, v

    def sgd(*tree: Any) -> Any:
        p, g, m = (list(tree[k::3]) for k in range(3))
        m = [0.9 * a + b for a, b in zip(m, g, strict=True)]
        return [x - 0.1 * a for x, a in zip(p, m, strict=True)], m

    def dropout(x: Any, key: Any) -> Any:
        keep = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
        return jnp.where(keep, x / 0.9, 0.0)

    def factor(a: Any, b: Any, r: Any, seen: Any) -> Any:
        return jax.grad(lambda p: (((p[0] @ p[1].T - r) * (seen > 0)) ** 2).mean() + 1e-3 * sum((x * x).sum() for x in p))((a, b))

    def centres(x: Any, c: Any) -> Any:
        d = (x * x).sum(1)[:, None] - 2 * x @ c.T + (c * c).sum(1)
        one = jax.nn.one_hot(jnp.argmin(d, 1), c.shape[0])
        return one.T @ x / jnp.maximum(one.sum(0), 1)[:, None]

    def regression(w: Any, x: Any, y: Any) -> Any:
        return w - 0.1 * jax.grad(lambda w: -jnp.mean(jax.nn.log_sigmoid(y * (x @ w))))(w)

    return {
        "Adam": (adam, *(x for s in sizes for x in (n(*s), n(*s), n(*s), u(*s)))),
        "SGD": (sgd, *(x for s in sizes for x in (n(*s),) * 3)),
        "dropout": (dropout, n(1024, 1024), i(0, 1 << 31, 2, t="uint32")),
        "normal numbers": (
            lambda key: jax.random.normal(jax.random.wrap_key_data(key), (1024, 1024)), i(0, 1 << 31, 2, t="uint32")
        ),
        "factorisation, gradient": (factor, n(1024, 64), n(1024, 64), n(1024, 1024), i(0, 2, 1024, 1024)),
        "k-means step": (centres, n(16384, 64), n(256, 64)),
        "logistic regression step": (regression, n(512), n(16384, 512), n(16384)),
        "pairwise distances": (
            lambda x, y: jnp.sqrt(((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)), n(1024, 64), n(1024, 64)
        ),
        "RBF kernel": (
            lambda x, y: jnp.exp(-0.1 * ((x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * x @ y.T)), n(2048, 64), n(2048, 64)
        ),
    }  # fmt: skip


# ------------------------------------------------------------------ numerical codes


def numerical() -> Table:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def jacobi(x: Any, b: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            inner = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + b[1:-1, 1:-1])
            return x.at[1:-1, 1:-1].set(inner)

        return lax.fori_loop(0, 20, step, x)

    def heat(x: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            p = jnp.pad(x, 1)
            return x + 0.1 * (
                p[2:, 1:-1, 1:-1] + p[:-2, 1:-1, 1:-1] + p[1:-1, 2:, 1:-1] + p[1:-1, :-2, 1:-1] + p[1:-1, 1:-1, 2:]
                + p[1:-1, 1:-1, :-2] - 6 * x
            )  # fmt: skip

        return lax.fori_loop(0, 10, step, x)

    def rolled(x: Any) -> Any:
        return 0.25 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1)) - x

    def life(x: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            s = sum(jnp.roll(x, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0))
            return ((s == 3) | ((x == 1) & (s == 2))).astype(x.dtype)

        return lax.fori_loop(0, 10, step, x)

    def black_scholes(s: Any, k: Any, t: Any) -> Any:
        r, v = 0.02, 0.3
        d1 = (jnp.log((s + 0.5) / (k + 0.5)) + (r + v * v / 2) * (t + 0.1)) / (v * jnp.sqrt(t + 0.1))
        d2 = d1 - v * jnp.sqrt(t + 0.1)
        cdf = jax.scipy.stats.norm.cdf
        call = (s + 0.5) * cdf(d1) - (k + 0.5) * jnp.exp(-r * (t + 0.1)) * cdf(d2)
        return call, call - s + k * jnp.exp(-r * (t + 0.1))

    def mandelbrot(x: Any, y: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            a, b, count = state
            a2, b2 = a * a, b * b
            inside = a2 + b2 <= 4
            return (
                jnp.where(inside, a2 - b2 + x[None, :], a), jnp.where(inside, 2 * a * b + y[:, None], b),
                count + inside.astype(jnp.int32),
            )  # fmt: skip

        z = jnp.zeros((y.shape[0], x.shape[0]))
        return lax.fori_loop(0, 50, step, (z, z, jnp.zeros(z.shape, jnp.int32)))[2]

    def bodies(p: Any, v: Any, m: Any) -> Any:
        d = p[None, :, :] - p[:, None, :]
        r = (d * d).sum(-1) + 1e-3
        v = v + 0.01 * (d * (m[None, :] * r**-1.5)[..., None]).sum(1)
        return p + 0.01 * v, v

    def conjugate(a: Any, b: Any) -> Any:
        s = a @ a.T / a.shape[0] + jnp.eye(a.shape[0])

        def step(_: Any, state: Any) -> Any:
            x, r, p, rr = state
            q = s @ p
            alpha = rr / (p @ q)
            x, r = x + alpha * p, r - alpha * q
            new = r @ r
            return x, r, r + (new / rr) * p, new

        return lax.fori_loop(0, 20, step, (jnp.zeros_like(b), b, b, b @ b))[0]

    def compact(x: Any) -> Any:
        """Where each kept element goes: an exclusive prefix sum, and the elements moved there."""
        keep = x > 0
        at = jnp.cumsum(keep, dtype=jnp.int32) - 1
        return jnp.zeros_like(x).at[jnp.where(keep, at, x.shape[0])].set(x, mode="drop")

    def moving(x: Any) -> Any:
        c = jnp.cumsum(x, -1)
        return (c[:, 64:] - c[:, :-64]) / 64

    def recurrence(a: Any, x: Any) -> Any:
        """h = a h + x as an associative scan, as linear state-space models have it."""
        return lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, x))[1]

    def sobel(x: Any) -> Any:
        k = jnp.array([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
        y = lax.conv_general_dilated(x[None, None], jnp.stack([k, k.T])[:, None], (1, 1), "SAME")
        return jnp.sqrt((y * y).sum(1))[0]

    def histogram(x: Any) -> Any:
        return jnp.zeros(256, jnp.int32).at[jnp.clip((x * 256).astype(jnp.int32), 0, 255)].add(1)

    def simpson(x: Any) -> Any:
        y = jnp.exp(-x * x)
        return (y[:, :-2:2] + 4 * y[:, 1:-1:2] + y[:, 2::2]).sum(1)

    def bilinear(x: Any) -> Any:
        return jax.image.resize(x, (x.shape[0], 128, 128, x.shape[3]), "bilinear")

    return {
        "Jacobi": (jacobi, n(1024, 1024), n(1024, 1024)),
        "heat, 3-D": (heat, n(96, 96, 96)),
        "Laplacian of rolls": (rolled, n(2048, 2048)),
        "life": (life, i(0, 2, 1024, 1024)),
        "Black-Scholes": (black_scholes, *(u(1 << 20),) * 3),
        "Mandelbrot": (mandelbrot, u(512), u(512)),
        "N bodies": (bodies, n(2048, 3), n(2048, 3), u(2048)),
        "conjugate gradients": (conjugate, n(512, 512), n(512)),
        "compaction": (compact, n(1 << 20)),
        "moving average": (moving, n(1024, 2048)),
        "linear recurrence": (recurrence, u(1024, 512), n(1024, 512)),
        "Sobel": (sobel, n(1024, 1024)),
        "histogram": (histogram, u(1 << 20)),
        "bilinear resize": (bilinear, n(4, 64, 64, 32)),
        "Simpson": (simpson, n(2048, 1025)),
        "FIR filter": (lambda x, h: sum(h[k] * x[:, k : x.shape[1] - 15 + k] for k in range(16)), n(512, 4096), n(16)),
    }  # fmt: skip


GROUPS: dict[str, Callable[[], Table]] = {
    "attention": attention,
    "norms": normalised,
    "blocks": blocks,
    "convolutions": convolutions.blocks,
    "losses": losses,
    "updates": updates,
    "numerical": numerical,
    "draws": draws.draws,
}
