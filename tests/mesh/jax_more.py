# ruff: noqa: E741, RUF059  (short functions, and a table)
"""More functions of JAX with shardings, for `tests.mesh.jax_worker`: stencils in all their forms, gradients, caches, experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

__all__ = ["more"]

Program = tuple[str, Callable[..., Any], Mesh, tuple[Any, ...], Any, tuple[Any, ...]]


def INT(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def sten_pad(u: Any) -> Any:
    p = jnp.pad(u, ((1, 1), (0, 0)))
    return 0.8 * u + 0.1 * (p[:-2] + p[2:])


def sten_loop(u: Any) -> Any:
    return jax.lax.fori_loop(0, 20, lambda i, u: sten_pad(u), u)


def sten2(u: Any) -> Any:
    p = jnp.pad(u, 1, mode="edge")
    return 0.6 * u + 0.1 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])


def roll_sten(u: Any) -> Any:
    return 0.5 * u + 0.25 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0))


def wrap_sten(u: Any) -> Any:
    p = jnp.pad(u, ((1, 1), (1, 1)), mode="wrap")
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u


def conv(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def conv_grad(x: Any, w: Any, y: Any) -> Any:
    return jax.grad(lambda w: jnp.mean((conv(x, w) - y) ** 2))(w)


def conv_gradx(x: Any, w: Any, y: Any) -> Any:
    return jax.grad(lambda x: jnp.mean((conv(x, w) - y) ** 2))(x)


def conv_t(x: Any, w: Any) -> Any:
    return jax.lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def dilated(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pool(x: Any) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def poolgrad(x: Any) -> Any:
    return jax.grad(lambda x: (pool(x) ** 2).sum())(x)


def xent(x: Any, w: Any, y: Any) -> Any:
    l = jax.nn.log_softmax(x @ w)
    return -jnp.mean(jnp.take_along_axis(l, y[:, None], 1))


def fsdp(ws: Any, x: Any, y: Any) -> Any:
    def loss(ws: Any) -> Any:
        h = x
        for w in ws:
            h = jnp.tanh(h @ w)
        return jnp.mean((h - y) ** 2)

    g = jax.grad(loss)(ws)
    return tuple(w - 0.1 * g for w, g in zip(ws, g, strict=False))


def adam(w: Any, m: Any, v: Any, x: Any, y: Any) -> Any:
    g = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return w - 0.1 * m / (jnp.sqrt(v) + 1e-3), m, v


def rope(x: Any) -> Any:
    B, S, H, D = x.shape
    t = jnp.arange(S)[:, None] * jnp.exp(-jnp.arange(D // 2) / D)[None]
    c, s = jnp.cos(t)[None, :, None], jnp.sin(t)[None, :, None]
    a, b = x[..., : D // 2], x[..., D // 2 :]
    return jnp.concatenate([a * c - b * s, a * s + b * c], -1)


def causal(q: Any, k: Any, v: Any) -> Any:
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    m = jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool))
    p = jax.nn.softmax(jnp.where(m, s, -1e9), -1)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v)


def gqa(q: Any, k: Any, v: Any) -> Any:
    k = jnp.repeat(k, 2, 2)
    v = jnp.repeat(v, 2, 2)
    return causal(q, k, v)


def lnorm(x: Any, g: Any, b: Any) -> Any:
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(v + 1e-5) * g + b


def moe(x: Any, g: Any, w: Any) -> Any:
    p = jax.nn.softmax(x @ g)
    e = jnp.argmax(p, -1)
    oh = jax.nn.one_hot(e, g.shape[1])
    return jnp.einsum("te,td,edf->tf", oh * p, x, w)


def lstm(x: Any, h: Any, c: Any, w: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        z = jnp.concatenate([x, h], -1) @ w
        i, f, g, o = jnp.split(z, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return jax.lax.scan(step, (h, c), x)[1]


def power(a: Any, v: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda i, v: (lambda w: w / jnp.linalg.norm(w))(a @ v), v)


def cg(a: Any, b: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        x, r, p, rs = c
        ap = a @ p
        al = rs / (p @ ap)
        x = x + al * p
        r = r - al * ap
        rn = r @ r
        return (x, r, r + 0 * p + (rn / rs) * p, rn), None

    c, _ = jax.lax.scan(step, (jnp.zeros_like(b), b, b, b @ b), None, length=3)
    return c[0]


def kmeans(x: Any, c: Any) -> Any:
    d = ((x[:, None] - c[None]) ** 2).sum(-1)
    a = jnp.argmin(d, 1)
    oh = jax.nn.one_hot(a, c.shape[0])
    return (oh.T @ x) / (oh.sum(0)[:, None] + 1e-3)


def segsum(x: Any, i: Any) -> Any:
    return jax.ops.segment_sum(x, i, 8)


def hist(i: Any) -> Any:
    return jnp.bincount(i, length=8)


def dynslice(x: Any, i: Any) -> Any:
    return jax.lax.dynamic_slice(x, (i, 0), (4, x.shape[1]))


def dynupd(x: Any, u: Any, i: Any) -> Any:
    return jax.lax.dynamic_update_slice(x, u, (i, 0))


def kv(cache: Any, k: Any, pos: Any, q: Any) -> Any:
    cache = jax.lax.dynamic_update_slice(cache, k, (0, pos, 0))
    s = jnp.einsum("bd,bsd->bs", q, cache)
    return cache, jnp.einsum("bs,bsd->bd", jax.nn.softmax(s), cache)


def lookups(x: Any, i: Any, j: Any) -> Any:
    return x[i, j]


def resh(x: Any) -> Any:
    return x.reshape(-1)


def whil(x: Any) -> Any:
    return jax.lax.while_loop(lambda c: jnp.sum(c) < 1000.0, lambda c: c * 2 + 1, x)


def med(x: Any) -> Any:
    return jnp.median(x, 0)


def pairw(x: Any) -> Any:
    return ((x[:, None] - x[None]) ** 2).sum(-1)


def einsum3(a: Any, b: Any, c: Any) -> Any:
    return jnp.einsum("ij,jk,kl->il", a, b, c)


def conv1d(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(
        x, w, (1,), ((w.shape[0] - 1, 0),), dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=x.shape[2]
    )


def fft2(x: Any) -> Any:
    return jnp.abs(jnp.fft.fft2(x))


def grp(x: Any, g: Any) -> Any:
    B, C = x.shape
    y = x.reshape(B, 4, C // 4)
    return ((y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)).reshape(B, C) * g


def cummax(x: Any) -> Any:
    return jax.lax.cummax(x, 0)


def cumrev(x: Any) -> Any:
    return jnp.cumsum(x[::-1], 0)[::-1]


def remat(x: Any, a: Any, b: Any) -> Any:
    f = jax.checkpoint(lambda x: jnp.tanh(x @ a) @ b)
    return jax.grad(lambda x: f(x).sum())(x)


def at_sten(u: Any) -> Any:
    return u.at[1:-1, 1:-1].set(0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]))


def lap9(u: Any) -> Any:
    p = jnp.pad(u, 1)
    return sum(p[i : i + u.shape[0], j : j + u.shape[1]] * (0.1 * (i + 1) * (j + 2)) for i in range(3) for j in range(3))


def life(u: Any) -> Any:
    n = sum(jnp.roll(u, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
    return jnp.where(n > 1.5, 1.0, 0.0) + u


def wave(u: Any, v: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        u, v = c
        l = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) - 2 * u
        v = v + 0.1 * l
        return (u + 0.1 * v, v), u.sum()

    return jax.lax.scan(step, (u, v), None, length=4)[0][0]


def conv_s(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def convs_gx(x: Any, w: Any) -> Any:
    return jax.grad(lambda x: (conv_s(x, w) ** 2).sum())(x)


def convs_gw(x: Any, w: Any) -> Any:
    return jax.grad(lambda w: (conv_s(x, w) ** 2).sum())(w)


def avg3(x: Any) -> Any:
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9


def avg3_g(x: Any) -> Any:
    return jax.grad(lambda x: (avg3(x) ** 2).sum())(x)


def resblock(x: Any, w1: Any, w2: Any) -> Any:
    return x + conv(jax.nn.relu(conv(x, w1)), w2)


def resgrad(x: Any, w1: Any, w2: Any) -> Any:
    return jax.grad(lambda w: jnp.mean(resblock(x, *w) ** 2))((w1, w2))


def bn(x: Any, g: Any, b: Any) -> Any:
    m = x.mean((0, 1, 2))
    v = x.var((0, 1, 2))
    return (x - m) * jax.lax.rsqrt(v + 1e-5) * g + b


def unet(x: Any, w1: Any, w2: Any) -> Any:
    d = jax.nn.relu(conv_s(x, w1))
    u = jax.image.resize(d, (*x.shape[:3], d.shape[3]), "nearest")
    return conv(jnp.concatenate([x, u], -1), w2)


def bil(x: Any) -> Any:
    return jax.image.resize(x, (2, 32, 16, 3), "bilinear")


def local_attn(x: Any) -> Any:
    b, s, d = x.shape
    p = jnp.pad(x, ((0, 0), (2, 2), (0, 0)))
    k = jnp.stack([p[:, i : i + s] for i in range(5)], 2)
    a = jax.nn.softmax(jnp.einsum("bsd,bskd->bsk", x, k), -1)
    return jnp.einsum("bsk,bskd->bsd", a, k)


def shift_tok(x: Any) -> Any:
    return jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1)


def embed_train(t: Any, w: Any, i: Any, y: Any) -> Any:
    def loss(t: Any, w: Any) -> Any:
        l = jax.nn.log_softmax(t[i] @ w)
        return -jnp.mean(jnp.take_along_axis(l, y[:, None], 1))

    g = jax.grad(loss, (0, 1))(t, w)
    return t - 0.1 * g[0], w - 0.1 * g[1]


def gpt(x: Any, e: Any, wq: Any, wk: Any, wv: Any, wo: Any, w1: Any, w2: Any, y: Any) -> Any:
    def loss(p: Any) -> Any:
        e, wq, wk, wv, wo, w1, w2 = p
        h = e[x]
        B, S, D = h.shape
        def n(h):
            return (h - h.mean(-1, keepdims=True)) * jax.lax.rsqrt(h.var(-1, keepdims=True) + 1e-5)
        q, k, v = [(n(h) @ w).reshape(B, S, 4, D // 4) for w in (wq, wk, wv)]
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2
        s = jnp.where(jnp.tril(jnp.ones((S, S), bool)), s, -1e9)
        h = h + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v).reshape(B, S, D) @ wo
        h = h + jax.nn.gelu(n(h) @ w1) @ w2
        l = jax.nn.log_softmax(n(h) @ e.T)
        return -jnp.mean(jnp.take_along_axis(l, y[..., None], -1))

    p = (e, wq, wk, wv, wo, w1, w2)
    g = jax.grad(loss)(p)
    return tuple(a - 0.1 * b for a, b in zip(p, g, strict=False))


def decode(cache: Any, w: Any, x: Any) -> Any:
    def step(c: Any, t: Any) -> Any:
        cache, x = c
        k = x @ w
        cache = jax.lax.dynamic_update_slice(cache, k[:, None], (0, t, 0))
        a = jax.nn.softmax(jnp.einsum("bd,bsd->bs", x, cache), -1)
        x = jnp.einsum("bs,bsd->bd", a, cache)
        return (cache, x), x

    return jax.lax.scan(step, (cache, x), jnp.arange(4))[1]


def stackscan(x: Any, ws: Any) -> Any:
    def step(h: Any, w: Any) -> Any:
        h = jnp.tanh(h @ w)
        return h, h

    return jax.lax.scan(step, x, ws)[1]


def gradscan(x: Any, ws: Any) -> Any:
    return jax.grad(lambda ws: (jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0] ** 2).sum())(ws)


def nbody(p: Any) -> Any:
    d = p[:, None] - p[None]
    r = (d * d).sum(-1) + 0.1
    return (d / r[..., None]).sum(1)


def sortk(k: Any, v: Any) -> Any:
    a, b = jax.lax.sort((k, v), num_keys=1)
    return a + 0 * b, b


def perm(x: Any, i: Any) -> Any:
    return x[jnp.argsort(i)]


def moe_disp(x: Any, g: Any, w: Any) -> Any:
    e = jnp.argmax(x @ g, -1)
    oh = jax.nn.one_hot(e, 4)
    pos = (jnp.cumsum(oh, 0) * oh).sum(-1).astype(int) - 1
    d = oh[:, :, None] * jax.nn.one_hot(pos, 8)[:, None, :]
    xe = jnp.einsum("tec,td->ecd", d, x)
    ye = jnp.tanh(jnp.einsum("ecd,edf->ecf", xe, w))
    return jnp.einsum("tec,ecf->tf", d, ye)


def more() -> Iterator[Program]:
    """On two to eight devices, in one, two or three dimensions."""
    dev = np.array(jax.devices())

    def mesh(*sizes: int) -> Mesh:
        return Mesh(dev[: int(np.prod(sizes))].reshape(sizes), ("x", "y", "z")[: len(sizes)])

    d2, d3, d4, d8, d22, d24, d32, d222 = mesh(2), mesh(3), mesh(4), mesh(8), mesh(2, 2), mesh(2, 4), mesh(3, 2), mesh(2, 2, 2)
    rows, cols, c = P("x", None), P(None, "x"), P(None, "x")
    cy = P(None, "y")
    both = (P("y"), cy, cy, cy, P("y"), cy, P("y"))
    Q = ((2, 16, 4, 8),) * 3
    gshapes = (INT(4, 8), (12, 16), *[(16, 16)] * 4, (16, 32), (32, 16), INT(4, 8))
    yield from (
        ("sten pad rows 8", sten_pad, d8, (rows,), rows, ((64, 6),)),
        ("sten loop", sten_loop, d4, (rows,), rows, ((16, 6),)),
        ("sten2 both", sten2, d22, (P("x", "y"),), P("x", "y"), ((16, 16),)),
        ("sten2 2x4", sten2, d24, (P("x", "y"),), P("x", "y"), ((16, 16),)),
        ("sten2 3x2 uneven", sten2, d32, (P("x", "y"),), P("x", "y"), ((18, 16),)),
        ("roll stencil", roll_sten, d4, (rows,), rows, ((16, 6),)),
        ("wrap stencil", wrap_sten, d22, (P("x", "y"),), P("x", "y"), ((16, 16),)),
        ("conv rows grad w", conv_grad, d4, (P(None, "x"), P(), P(None, "x")), P(), ((2, 16, 8, 3), (3, 3, 3, 4), (2, 16, 8, 4))),
        (
            "conv rows grad x",
            conv_gradx,
            d4,
            (P(None, "x"), P(), P(None, "x")),
            P(None, "x"),
            ((2, 16, 8, 3), (3, 3, 3, 4), (2, 16, 8, 4)),
        ),
        ("conv rows+cols", conv, d22, (P(None, "x", "y"), P()), P(None, "x", "y"), ((2, 16, 16, 3), (3, 3, 3, 4))),
        ("conv transposed", conv_t, d4, (P(None, "x"), P()), P(None, "x"), ((2, 16, 8, 3), (3, 3, 3, 4))),
        ("conv dilated", dilated, d4, (P(None, "x"), P()), P(None, "x"), ((2, 16, 8, 3), (3, 3, 3, 4))),
        ("xent batch", xent, d4, (P("x"), P(), P("x")), P(), ((8, 16), (16, 12), INT(8))),
        ("xent vocab", xent, d4, (P(), P(None, "x"), P()), P(), ((8, 16), (16, 12), INT(8))),
        ("xent both", xent, d22, (P("x"), P(None, "y"), P("x")), P(), ((8, 16), (16, 12), INT(8))),
        (
            "fsdp 3 layers",
            lambda a, b, c, x, y: fsdp((a, b, c), x, y),
            d4,
            (P("x"), P("x"), P("x"), P("x"), P("x")),
            (P("x"),) * 3,
            ((16, 16),) * 3 + ((32, 16), (32, 16)),
        ),
        (
            "fsdp+tp",
            lambda a, b, x, y: fsdp((a, b), x, y),
            d22,
            (P("x", "y"), P("y", "x"), P("x"), P("x")),
            (P("x", "y"), P("y", "x")),
            ((16, 16),) * 2 + ((32, 16), (32, 16)),
        ),
        (
            "adam zero3",
            adam,
            d4,
            (P("x"), P("x"), P("x"), P("x"), P("x")),
            (P("x"), P("x"), P("x")),
            ((16, 8),) * 3 + ((8, 16), (8, 8)),
        ),
        ("rope seq", rope, d4, (P(None, "x"),), P(None, "x"), ((2, 16, 4, 8),)),
        ("causal batch+heads", causal, d24, (P("x", None, "y"),) * 3, P("x", None, "y"), Q),
        ("causal ulysses", causal, d4, (P(None, "x"),) * 3, P(None, None, "x"), Q),
        (
            "gqa heads 4",
            gqa,
            d4,
            (P(None, None, "x"), P(), P()),
            P(None, None, "x"),
            ((2, 16, 4, 8), (2, 16, 2, 8), (2, 16, 2, 8)),
        ),
        ("lnorm feature", lnorm, d4, (cols, P("x"), P("x")), cols, ((8, 16), (16,), (16,))),
        ("moe tokens+experts", moe, d22, (P("x"), P(), P("y")), P("x"), ((8, 16), (16, 4), (4, 16, 8))),
        ("lstm batch", lstm, d4, (P(None, "x"), P("x"), P("x"), P()), P(None, "x"), ((5, 8, 4), (8, 6), (8, 6), (10, 24))),
        (
            "lstm hidden",
            lstm,
            d2,
            (P(), P(None, "x"), P(None, "x"), P(None, "x")),
            P(None, None, "x"),
            ((5, 8, 4), (8, 6), (8, 6), (10, 24)),
        ),
        ("power 2d", power, d22, (P("x", "y"), P("y")), P("y"), ((16, 16), (16,))),
        ("cg rows", cg, d4, (rows, P("x")), P("x"), ((16, 16), (16,))),
        ("kmeans", kmeans, d4, (rows, P()), P(), ((32, 4), (5, 4))),
        ("segsum", segsum, d4, (rows, P("x")), P(), ((32, 4), INT(32))),
        ("bincount", hist, d4, (P("x"),), P(), (INT(32),)),
        ("cumsum 2 axes", lambda x: jnp.cumsum(x, 0), d22, (P("x", "y"),), P("x", "y"), ((16, 8),)),
        ("cummax across", cummax, d4, (rows,), rows, ((16, 4),)),
        ("cumsum reversed", cumrev, d4, (rows,), rows, ((16, 4),)),
        ("dynslice spread", dynslice, d4, (rows, P()), P(), ((16, 6), INT())),
        ("dynupd spread", dynupd, d4, (rows, P(), P()), rows, ((16, 6), (3, 6), INT())),
        ("kv cache seq", kv, d4, (P(None, "x"), P(), P(), P()), (P(None, "x"), P()), ((2, 16, 8), (2, 1, 8), INT(), (2, 8))),
        ("lookup pairs", lookups, d4, (rows, P(), P()), P(), ((16, 8), INT(6), INT(6))),
        ("flatten both", resh, d22, (P("x", "y"),), P(("x", "y")), ((16, 8),)),
        ("while any", whil, d4, (rows,), rows, ((16, 8),)),
        ("median across", med, d4, (rows,), P(), ((16, 8),)),
        ("pairwise", pairw, d22, (P("x"),), P("x", "y"), ((16, 4),)),
        ("einsum chain", einsum3, d22, (P("x", None), P(None, "y"), P("y", None)), P("x"), ((8, 16), (16, 16), (16, 4))),
        (
            "depthwise conv channels",
            conv1d,
            d4,
            (P(None, None, "x"), P(None, None, "x")),
            P(None, None, "x"),
            ((2, 16, 4), (3, 1, 4)),
        ),
        ("fft2", fft2, d4, (rows,), rows, ((16, 8),)),
        ("groupnorm", grp, d4, (cols, P("x")), cols, ((8, 16), (16,))),
        ("remat", remat, d4, (P("x"), P(), P()), P("x"), ((8, 16), (16, 32), (32, 16))),
        ("SUMMA 2x4", lambda a, b: a @ b, d24, (P("x", "y"), P("x", "y")), P("x", "y"), ((16, 32), (32, 16))),
        ("SUMMA 2x2x2", lambda a, b: a @ b, d222, (P("x", "z"), P("z", "y")), P("x", "y"), ((16, 32), (32, 16))),
        ("product 3 procs", lambda a, b: a @ b, d3, (rows, P()), rows, ((9, 6), (6, 5))),
        ("product 3 procs contr", lambda a, b: a @ b, d3, (cols, rows), P(), ((9, 6), (6, 5))),
        ("gram scattered", lambda x: x.T @ x, d4, (rows,), rows, ((16, 8),)),
        ("concat cols", lambda a, b: jnp.concatenate([a, b], 1), d4, (cols, cols), cols, ((8, 16), (8, 16))),
        ("tril", lambda a: jnp.tril(a @ a.T), d22, (P("x", "y"),), P("x", "y"), ((16, 16),)),
        ("at stencil rows", at_sten, d4, (rows,), rows, ((16, 16),)),
        ("9 points 2x4", lap9, d24, (P("x", "y"),), P("x", "y"), ((16, 16),)),
        ("life", life, d24, (P("x", "y"),), P("x", "y"), ((16, 16),)),
        ("wave", wave, d4, (rows, rows), rows, ((16, 8), (16, 8))),
        ("conv strided grad x", convs_gx, d4, (P(None, "x"), P()), P(None, "x"), ((2, 16, 8, 3), (3, 3, 3, 4))),
        ("conv strided grad w", convs_gw, d4, (P(None, "x"), P()), P(), ((2, 16, 8, 3), (3, 3, 3, 4))),
        ("avg3 grad", avg3_g, d4, (P(None, "x"),), P(None, "x"), ((2, 16, 8, 3),)),
        ("max grad", poolgrad, d4, (P(None, "x"),), P(None, "x"), ((2, 16, 8, 3),)),
        (
            "res block rows+cols",
            resblock,
            d22,
            (P(None, "x", "y"), P(), P()),
            P(None, "x", "y"),
            ((2, 16, 8, 3), (3, 3, 3, 3), (3, 3, 3, 3)),
        ),
        ("res block grad", resgrad, d4, (P(None, "x"), P(), P()), (P(), P()), ((2, 16, 8, 3), (3, 3, 3, 3), (3, 3, 3, 3))),
        ("bn rows", bn, d4, (P(None, "x"), P(), P()), P(None, "x"), ((2, 16, 8, 3), (3,), (3,))),
        ("unet rows", unet, d4, (P(None, "x"), P(), P()), P(None, "x"), ((2, 16, 8, 3), (3, 3, 3, 4), (3, 3, 7, 2))),
        ("bilinear", bil, d4, (P(None, "x"),), P(None, "x"), ((2, 16, 8, 3),)),
        ("local attention", local_attn, d4, (P(None, "x"),), P(None, "x"), ((2, 16, 8),)),
        ("token shift", shift_tok, d4, (P(None, "x"),), P(None, "x"), ((2, 16, 8),)),
        ("embedding train dp", embed_train, d4, (P(), P(), P("x"), P("x")), (P(), P()), ((12, 16), (16, 12), INT(16), INT(16))),
        ("embedding train vocab", embed_train, d4, (P("x"), c, P(), P()), (P("x"), c), ((12, 16), (16, 12), INT(16), INT(16))),
        (
            "embedding train both",
            embed_train,
            d22,
            (P("y"), cy, P("x"), P("x")),
            (P("y"), cy),
            ((12, 16), (16, 12), INT(16), INT(16)),
        ),
        ("gpt dp", gpt, d4, (P("x"),) + (P(),) * 7 + (P("x"),), (P(),) * 7, gshapes),
        ("gpt tp", gpt, d4, (P(), P("x"), c, c, c, P("x"), c, P("x"), P()), (P("x"), c, c, c, P("x"), c, P("x")), gshapes),
        ("gpt dp+tp", gpt, d22, (P("x"), *both, P("x")), both, gshapes),
        ("gpt dp+tp 2x4", gpt, d24, (P("x"), *both, P("x")), both, gshapes),
        ("gpt fsdp", gpt, d4, (P("x"),) + (P("x"),) * 7 + (P("x"),), (P("x"),) * 7, gshapes),
        ("gpt seq", gpt, d4, (P(None, "x"),) + (P(),) * 7 + (P(None, "x"),), (P(),) * 7, gshapes),
        ("decode seq", decode, d4, (P(None, "x"), P(), P()), P(), ((2, 16, 8), (8, 8), (2, 8))),
        ("stack scan layers cut", stackscan, d4, (P(), P("x")), P(), ((8, 16), (4, 16, 16))),
        ("grad scan fsdp", gradscan, d4, (rows, P(None, "x")), P(None, "x"), ((8, 16), (3, 16, 16))),
        ("n bodies", nbody, d4, (rows,), rows, ((16, 3),)),
        ("sort pairs across", sortk, d4, (P("x"), P("x")), (P("x"), P("x")), ((16,), (16,))),
        ("permute rows", perm, d4, (rows, P()), rows, ((16, 8), (16,))),
        ("moe dispatch", moe_disp, d4, (P("x"), P(), P("x")), P("x"), ((16, 8), (8, 4), (4, 8, 6))),
        ("moe dispatch 2 axes", moe_disp, d22, (P("x"), P(), P("y")), P("x"), ((16, 8), (8, 4), (4, 8, 6))),
    )
