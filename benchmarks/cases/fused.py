"""The cases of `benchmarks/fusions.py`: what fused kernels are written for by hand, as users of JAX and PyTorch write it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

__all__ = ["arrays", "jax_cases", "torch_cases"]

Arrays = tuple[np.ndarray, ...]
FusedCase = tuple[str, Callable[..., Any], Callable[[], Arrays]]

HEADS = (1, 8, 2048, 64)
SMALL, LARGE = ((512, 512), (512, 8192)), ((2048, 1024), (1024, 32000))
CACHE = (8, 8, 4096, 64)
EXPERTS, TOKENS, WIDTH, HIDDEN = 8, 2048, 512, 1024
STEPS, CHANNELS, STATES = 2048, 256, 16
RAGGED = {
    "even": (512,) * 8, "uneven": (1500, 100, 700, 300, 20, 900, 400, 176), "half empty": (0, 1500, 0, 900, 0, 1096, 0, 600),
    "one group": (0, 0, 4096, 0, 0, 0, 0, 0), "half the rows": (256,) * 8,
}  # fmt: skip


def arrays(*shapes: tuple[int, ...], labels: tuple[int, int] | None = None) -> Arrays:
    """Normal numbers of these shapes, weights (those of later shapes) small; and labels (how many, of how many classes)."""
    rng = np.random.default_rng(7)
    made = [(rng.standard_normal(s) * (0.05 if k and len(s) == 2 else 1.0)).astype(np.float32) for k, s in enumerate(shapes)]
    return (*made, rng.integers(0, labels[1], labels[0]).astype(np.int32)) if labels else tuple(made)


def _experts() -> Arrays:
    """Tokens, a router's weights, and two matrices of each expert."""
    x, router = arrays((TOKENS, WIDTH), (WIDTH, EXPERTS))
    rng = np.random.default_rng(8)
    up, down = ((rng.standard_normal((EXPERTS, *s)) * 0.05).astype(np.float32) for s in ((WIDTH, HIDDEN), (HIDDEN, WIDTH)))
    return x, router, up, down


def _ragged(sizes: tuple[int, ...]) -> Arrays:
    """4096 rows in groups of these sizes, a matrix for each group, how many rows each has, and a gradient of the product."""
    rng = np.random.default_rng(13)
    x, w, c = (rng.standard_normal(s).astype(np.float32) for s in ((4096, 1024), (len(sizes), 1024, 512), (4096, 512)))
    return x, w, np.asarray(sizes, np.int32), c


def _quantized(rows: int, depth: int, columns: int, group: int, bits: int) -> Arrays:
    """Rows of numbers; whole weights of so many bits; a scale for each group of the depth and each column."""
    import ml_dtypes

    rng = np.random.default_rng(9)
    x = rng.standard_normal((rows, depth)).astype(np.float32)
    most = 2 ** (bits - 1)
    w = rng.integers(-most, most, (depth, columns)).astype(ml_dtypes.int4 if bits == 4 else np.int8)
    return x, w, (rng.random((depth // group, columns)) * 0.01).astype(np.float32)


def _state_space() -> Arrays:
    """Of a selective scan: inputs, step sizes, decays, and what goes into and comes out of the state."""
    rng = np.random.default_rng(10)
    x = rng.standard_normal((STEPS, CHANNELS)).astype(np.float32)
    delta = (rng.random((STEPS, CHANNELS)) * 0.1).astype(np.float32)
    a = -np.exp(rng.standard_normal((CHANNELS, STATES))).astype(np.float32)
    b, c = (rng.standard_normal((STEPS, STATES)).astype(np.float32) for _ in range(2))
    return x, delta, a, b, c


def _chunked() -> Arrays:
    """Of a chunked scan (state space duality, linear attention): values, keys, queries, and the decays' logarithms."""
    rng = np.random.default_rng(11)
    x = rng.standard_normal((STEPS, 8, 64)).astype(np.float32)
    b, c = ((rng.standard_normal((STEPS, 8, 64)) * 0.1).astype(np.float32) for _ in range(2))
    return x, b, c, (-rng.random((STEPS, 8)) * 0.1).astype(np.float32)


def _parameters(leaves: int) -> Arrays:
    """Parameters of a small transformer, then their gradients, first and second moments."""
    shapes = [((256, 256), (256,), (256, 1024), (1024,), (1024, 256))[k % 5] for k in range(leaves)]
    rng = np.random.default_rng(12)
    made = [(rng.standard_normal(s) * 0.05).astype(np.float32) for _ in range(3) for s in shapes]
    return (*made, *(rng.random(s).astype(np.float32) * 1e-3 for s in shapes))


def jax_cases() -> Iterator[FusedCase]:
    """(name, function, its arrays)."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def loss(x: Any, w: Any, y: Any) -> Any:
        z = x @ w
        return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]).mean()

    def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
        s = s if mask is None else jnp.where(mask, s, -1e30)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, -1), v)

    def causal(q: Any, k: Any, v: Any) -> Any:
        return attend(q, k, v, jnp.tril(jnp.ones((q.shape[2], k.shape[2]), bool)))

    def sliding(q: Any, k: Any, v: Any) -> Any:
        i, j = jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])[None, :]
        return attend(q, k, v, (j <= i) & (j > i - 256))

    def with_gradients(f: Callable[..., Any]) -> Callable[..., Any]:
        def both(q: Any, k: Any, v: Any, g: Any) -> Any:
            out, back = jax.vjp(f, q, k, v)
            return (out, *back(g))

        return both

    def rms_norm(x: Any, g: Any) -> Any:
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g

    def rotate(x: Any) -> Any:
        """Rotary positions of [positions, heads, features]."""
        m, _, d = x.shape
        angle = jnp.arange(m, dtype=jnp.float32)[:, None] * 10000.0 ** (-jnp.arange(0, d, 2, dtype=jnp.float32) / d)
        c, s = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * c - b * s, a * s + b * c], -1)

    def rotary(x: Any, wq: Any, wk: Any) -> Any:
        q, k = (rotate((x @ w).reshape(x.shape[0], -1, 64)) for w in (wq, wk))
        return jnp.einsum("qhd,khd->hqk", q, k)

    def routed(x: Any, router: Any) -> Any:
        top, at = lax.top_k(jax.nn.softmax(x @ router, -1), 2)
        return top / top.sum(-1, keepdims=True), at

    def ragged(x: Any, router: Any, up: Any, down: Any) -> Any:
        """The two best experts of each token: gathered by expert, products of ragged groups, added up where they came from."""
        share, at = routed(x, router)
        order = jnp.argsort(at.reshape(-1), stable=True)
        sizes = jnp.bincount(at.reshape(-1), length=EXPERTS).astype(jnp.int32)
        h = jax.nn.silu(lax.ragged_dot(x[order // 2], up, sizes))
        y = lax.ragged_dot(h, down, sizes) * share.reshape(-1)[order][:, None]
        return jnp.zeros_like(x).at[order // 2].add(y)

    def ragged_product(x: Any, w: Any, sizes: Any, c: Any) -> Any:
        return lax.ragged_dot(x, w, sizes)

    def ragged_by_rows(x: Any, w: Any, sizes: Any, c: Any) -> Any:
        return jax.vjp(lambda x: lax.ragged_dot(x, w, sizes), x)[1](c)[0]

    def ragged_by_weights(x: Any, w: Any, sizes: Any, c: Any) -> Any:
        return jax.vjp(lambda w: lax.ragged_dot(x, w, sizes), w)[1](c)[0]

    def buckets(x: Any, router: Any, up: Any, down: Any) -> Any:
        """The same with room for so many tokens for each expert: scattered there, products of all experts, gathered back."""
        room = 2 * TOKENS // EXPERTS * 5 // 4
        share, at = routed(x, router)
        flat = at.reshape(-1)
        first = jax.nn.one_hot(flat, EXPERTS, dtype=jnp.int32)
        place = (jnp.cumsum(first, 0) * first).sum(-1) - 1
        fits = place < room
        where = jnp.where(fits, flat * room + place, EXPERTS * room)
        taken = jnp.zeros((EXPERTS * room, x.shape[1]), x.dtype).at[where].set(jnp.repeat(x, 2, 0), mode="drop")
        h = jax.nn.silu(jnp.einsum("etd,edf->etf", taken.reshape(EXPERTS, room, -1), up))
        y = jnp.einsum("etf,efd->etd", h, down).reshape(EXPERTS * room, -1)
        back = jnp.where(fits[:, None], y[jnp.minimum(where, EXPERTS * room - 1)], 0)
        return (back.reshape(*at.shape, -1) * share[..., None]).sum(1)

    def int8(x: Any, w: Any, scale: Any) -> Any:
        return x @ (w.astype(jnp.float32) * scale)

    def int4(x: Any, w: Any, scale: Any) -> Any:
        k, n = w.shape
        return x @ (w.astype(jnp.float32).reshape(scale.shape[0], -1, n) * scale[:, None, :]).reshape(k, n)

    def decode(q: Any, k: Any, v: Any, new_k: Any, new_v: Any, at: Any) -> Any:
        k, v = (lax.dynamic_update_slice(a, b, (0, 0, at, 0)) for a, b in ((k, new_k), (v, new_v)))
        b, _, m, d = q.shape
        s = jnp.einsum("bgrqd,bgkd->bgrqk", q.reshape(b, k.shape[1], -1, m, d), k) / math.sqrt(d)
        p = jax.nn.softmax(jnp.where(jnp.arange(k.shape[2]) <= at, s, -1e9), -1)
        return jnp.einsum("bgrqk,bgkd->bgrqd", p, v).reshape(q.shape), k, v

    def selective(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
        """A step at a time, the state of all channels carried."""

        def step(h: Any, given: Any) -> Any:
            u, d, into, out = given
            h = jnp.exp(d[:, None] * a) * h + (d * u)[:, None] * into[None, :]
            return h, (h * out[None, :]).sum(-1)

        return lax.scan(step, jnp.zeros(a.shape, x.dtype), (x, delta, b, c))[1]

    def selective_at_once(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
        """The same by a scan of an associative function, as users of JAX write it."""

        def join(first: Any, second: Any) -> Any:
            return first[0] * second[0], first[1] * second[0] + second[1]

        _, h = lax.associative_scan(join, (jnp.exp(delta[..., None] * a), (delta * x)[..., None] * b[:, None, :]))
        return (h * c[:, None, :]).sum(-1)

    def chunked(x: Any, b: Any, c: Any, decay: Any) -> Any:
        """Chunks of 128 steps: inside of them attention with decays, between them a state of keys by values."""
        chunks, heads, d = STEPS // 128, x.shape[1], x.shape[2]
        xs, bs, cs = (t.reshape(chunks, 128, heads, d) for t in (x, b, c))
        total = jnp.cumsum(decay.reshape(chunks, 128, heads), 1)
        gap = total[:, :, None] - total[:, None]
        inside = jnp.where(jnp.tril(jnp.ones((128, 128), bool))[None, :, :, None], jnp.exp(gap), 0)
        y = jnp.einsum("nihd,njhd,nijh,njhe->nihe", cs, bs, inside, xs)
        added = jnp.einsum("njhd,njh,njhe->nhde", bs, jnp.exp(total[:, -1:] - total), xs)

        def step(h: Any, given: Any) -> Any:
            more, kept = given
            return jnp.exp(kept)[:, None, None] * h + more, h

        _, before = lax.scan(step, jnp.zeros((heads, d, d), x.dtype), (added, total[:, -1]))
        return (y + jnp.einsum("nihd,nih,nhde->nihe", cs, jnp.exp(total), before)).reshape(x.shape)

    def adam(*given: Any) -> Any:
        n = len(given) // 4
        made = []
        for p, g, m, v in zip(*(given[k * n : (k + 1) * n] for k in range(4)), strict=True):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            made += [p - 1e-3 * (m / 0.1 / (jnp.sqrt(v / 0.001) + 1e-8) + 0.01 * p), m, v]
        return tuple(made)

    yield "cross-entropy of a linear layer", loss, lambda: arrays(*SMALL, labels=(512, 8192))
    yield "cross-entropy, gradients", jax.value_and_grad(loss, (0, 1)), lambda: arrays(*SMALL, labels=(512, 8192))
    yield "cross-entropy, 32000 classes", loss, lambda: arrays(*LARGE, labels=(2048, 32000))
    yield "cross-entropy, 32000, gradients", jax.value_and_grad(loss, (0, 1)), lambda: arrays(*LARGE, labels=(2048, 32000))
    yield "two gates, one epilogue", lambda x, a, b: jax.nn.silu(x @ a) * (x @ b), lambda: arrays(
        (256, 1024), (1024, 4096), (1024, 4096)
    )
    yield "attention", attend, lambda: arrays(*[HEADS] * 3)
    yield "attention with gradients", with_gradients(attend), lambda: arrays(*[HEADS] * 4)
    yield "attention, causal, with gradients", with_gradients(causal), lambda: arrays(*[HEADS] * 4)
    yield "attention, window of 256", sliding, lambda: arrays(*[HEADS] * 3)
    yield "attention, window, with gradients", with_gradients(sliding), lambda: arrays(*[HEADS] * 4)
    yield "RMS norm and product", lambda x, g, w: rms_norm(x, g) @ w, lambda: arrays((512, 1024), (1024,), (1024, 4096))
    yield "RMS norm and three products", lambda x, g, *w: tuple(rms_norm(x, g) @ a for a in w), lambda: arrays(
        (512, 1024), (1024,), (1024, 1024), (1024, 256), (1024, 256)
    )
    yield "rotary positions, scores", rotary, lambda: arrays((512, 512), (512, 512), (512, 512))
    yield "experts, ragged groups", ragged, _experts
    yield "experts, buckets", buckets, _experts
    for groups, sizes in RAGGED.items():
        for name, function in (("", ragged_product), (", by rows", ragged_by_rows), (", by weights", ragged_by_weights)):
            yield f"ragged product{name}, {groups}", function, partial(_ragged, sizes)
    yield "int8 weights, 1 row", int8, lambda: _quantized(1, 4096, 4096, 4096, 8)
    yield "int8 weights, 256 rows", int8, lambda: _quantized(256, 4096, 4096, 4096, 8)
    yield "int4 weights, groups of 64, 1 row", int4, lambda: _quantized(1, 4096, 4096, 64, 4)
    yield "int4 weights, groups of 64, 256 rows", int4, lambda: _quantized(256, 4096, 4096, 64, 4)
    yield "decoding from a cache", decode, lambda: (
        *arrays((8, 32, 1, 64), CACHE, CACHE, (8, 8, 1, 64), (8, 8, 1, 64)), np.asarray(4000, np.int32)
    )
    yield "selective scan", selective, _state_space
    yield "selective scan, associative", selective_at_once, _state_space
    yield "chunked scan", chunked, _chunked
    yield "Adam, 50 parameters", adam, lambda: _parameters(50)


def torch_cases() -> Iterator[FusedCase]:
    """Those that PyTorch's users write with its own functions."""
    import torch
    from torch.nn.functional import cross_entropy, rms_norm, scaled_dot_product_attention, silu

    def with_gradients(f: Callable[..., Any], seeded: bool) -> Callable[..., Any]:
        def both(*given: Any) -> Any:
            leaves = [a.detach().requires_grad_() for a in given if a.is_floating_point()]
            inputs = leaves[:-1] if seeded else leaves
            out = f(*inputs, *([] if seeded else [given[-1]]))
            return (out, *torch.autograd.grad(out, inputs, given[-1] if seeded else None))

        return both

    def loss(x: Any, w: Any, y: Any) -> Any:
        return cross_entropy(x @ w, y.long())

    def causal(q: Any, k: Any, v: Any) -> Any:
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    def sliding(q: Any, k: Any, v: Any) -> Any:
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
        return scaled_dot_product_attention(q, k, v, attn_mask=(j <= i) & (j > i - 256))

    def adam(*given: Any) -> Any:
        n = len(given) // 4
        p, g, m, v = (list(given[k * n : (k + 1) * n]) for k in range(4))
        m, v = torch._foreach_lerp(m, g, 0.1), torch._foreach_lerp(v, torch._foreach_mul(g, g), 0.001)
        step = torch._foreach_add(torch._foreach_sqrt(torch._foreach_div(v, 0.001)), 1e-8)
        step = torch._foreach_add(torch._foreach_div(torch._foreach_div(m, 0.1), step), torch._foreach_mul(p, 0.01))
        return (*torch._foreach_sub(p, torch._foreach_mul(step, 1e-3)), *m, *v)

    yield "cross-entropy of a linear layer", loss, lambda: arrays(*SMALL, labels=(512, 8192))
    yield "cross-entropy, gradients", with_gradients(loss, False), lambda: arrays(*SMALL, labels=(512, 8192))
    yield "cross-entropy, 32000 classes", loss, lambda: arrays(*LARGE, labels=(2048, 32000))
    yield "cross-entropy, 32000, gradients", with_gradients(loss, False), lambda: arrays(*LARGE, labels=(2048, 32000))
    yield "two gates, one epilogue", lambda x, a, b: silu(x @ a) * (x @ b), lambda: arrays(
        (256, 1024), (1024, 4096), (1024, 4096)
    )
    yield "attention", scaled_dot_product_attention, lambda: arrays(*[HEADS] * 3)
    yield "attention with gradients", with_gradients(scaled_dot_product_attention, True), lambda: arrays(*[HEADS] * 4)
    yield "attention, causal, with gradients", with_gradients(causal, True), lambda: arrays(*[HEADS] * 4)
    yield "attention, window of 256", sliding, lambda: arrays(*[HEADS] * 3)
    yield "attention, window, with gradients", with_gradients(sliding, True), lambda: arrays(*[HEADS] * 4)
    yield "RMS norm and product", lambda x, g, w: rms_norm(x, g.shape, g, 1e-6) @ w, lambda: arrays(
        (512, 1024), (1024,), (1024, 4096)
    )
    yield "int8 weights, 1 row", lambda x, w, s: x @ (w.float() * s), lambda: _quantized(1, 4096, 4096, 4096, 8)
    yield "int8 weights, 256 rows", lambda x, w, s: x @ (w.float() * s), lambda: _quantized(256, 4096, 4096, 4096, 8)
    yield "Adam, 50 parameters", adam, lambda: _parameters(50)
