"""More functions for `tests.mesh.jax_worker`: constraints in loops, eight processes on three axes, sums by keys, scans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, shard_map
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Program = tuple[str, Callable[..., Any], Mesh, tuple[Any, ...], Any, tuple[Any, ...]]
NHWC = ("NHWC", "HWIO", "NHWC")


def constrained(mesh: Mesh) -> Callable[..., Any]:
    """Layers in a scan whose values are constrained in its body."""

    def run(x: Any, ws: Any, vs: Any) -> Any:
        def step(h: Any, layer: Any) -> Any:
            w, v = layer
            t = lax.with_sharding_constraint(jax.nn.gelu(h @ w), NamedSharding(mesh, P("x", "y")))
            return lax.with_sharding_constraint(h + t @ v, NamedSharding(mesh, P("x", None))), jnp.mean(t)

        return lax.scan(step, x, (ws, vs))

    return run


def constrained_gradient(mesh: Mesh) -> Callable[..., Any]:
    run = constrained(mesh)
    return lambda x, ws, vs: jax.grad(lambda w, v: jnp.mean(run(x, w, v)[0] ** 2), (0, 1))(ws, vs)


def scattered_product(mesh: Mesh) -> Callable[..., Any]:
    """Each process keeps its part of the sum."""

    def body(a: Any, w: Any) -> Any:
        return lax.psum_scatter(a @ w, "x", scatter_dimension=1, tiled=True)

    return shard_map(body, mesh=mesh, in_specs=(P(None, "x"), P("x", None)), out_specs=P(None, "x"))


def cannon(mesh: Mesh) -> Callable[..., Any]:
    """Blocks of both factors go round, one along rows, one along columns."""
    n = mesh.shape["x"]
    places = [(r, c) for r in range(n) for c in range(n)]

    def body(a: Any, b: Any) -> Any:
        a = lax.ppermute(a, ("x", "y"), [(r * n + c, r * n + (c - r) % n) for r, c in places])
        b = lax.ppermute(b, ("x", "y"), [(r * n + c, (r - c) % n * n + c) for r, c in places])
        out = a @ b
        for _ in range(n - 1):
            back = [(k, (k - 1) % n) for k in range(n)]
            a, b = lax.ppermute(a, "y", back), lax.ppermute(b, "x", back)
            out = out + a @ b
        return out

    return shard_map(body, mesh=mesh, in_specs=(P("x", "y"),) * 2, out_specs=P("x", "y"))


def momentum_step(w: Any, u: Any, m: Any, n: Any, x: Any, y: Any) -> Any:
    def loss(w: Any, u: Any) -> Any:
        layer = jax.checkpoint(lambda h, w: jax.nn.silu(h @ w))
        return jnp.mean((layer(layer(x, w), u) - y) ** 2)

    value, (gw, gu) = jax.value_and_grad(loss, (0, 1))(w, u)
    m, n = 0.9 * m + gw, 0.9 * n + gu
    return value, w - 0.1 * m, u - 0.1 * n, m, n


def decode(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, kc: Any, vc: Any, at: Any) -> Any:
    """A token more: its key and value go into the caches, and it attends to what is in them."""
    batch, width = x.shape
    q, k, v = ((x @ w).reshape(batch, 4, width // 4) for w in (wq, wk, wv))
    kc, vc = (lax.dynamic_update_slice(c, new[:, None], (0, at, 0, 0)) for c, new in ((kc, k), (vc, v)))
    s = jnp.where(jnp.arange(kc.shape[1]) <= at, jnp.einsum("bhd,bshd->bhs", q, kc) / 2, -1e9)
    return jnp.einsum("bhs,bshd->bhd", jax.nn.softmax(s, -1), vc).reshape(batch, width) @ wo, kc, vc


def experts(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """Two experts a token."""
    p = jax.nn.softmax(x @ gate)
    hot = jax.nn.one_hot(lax.top_k(p, 2)[1], gate.shape[1]).sum(1)
    h = jax.nn.relu(jnp.einsum("etd,edf->etf", jnp.einsum("te,td->etd", hot, x), up))
    return jnp.einsum("etd,te->td", jnp.einsum("etf,efd->etd", h, down), p * hot)


def convolution(x: Any, w: Any, strides: tuple[int, int] = (1, 1)) -> Any:
    return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=NHWC)


def unet(x: Any, w: Any, u: Any, v: Any) -> Any:
    a = jax.nn.relu(convolution(x, w))
    d = jax.nn.relu(convolution(a, u, (2, 2)))
    return convolution(jnp.concatenate([a, jnp.repeat(jnp.repeat(d, 2, 1), 2, 2)], -1), v)


def unet_gradient(x: Any, *ws: Any) -> Any:
    return jax.grad(lambda w: jnp.mean(unet(x, *w) ** 2))(ws)


def diffusion(u: Any) -> Any:
    def step(i: Any, u: Any) -> Any:
        p, inner = jnp.pad(u, 1), slice(1, -1)
        along = p[2:, inner, inner] + p[:-2, inner, inner] + p[inner, 2:, inner] + p[inner, :-2, inner]
        return u + 0.1 * (along + p[inner, inner, 2:] + p[inner, inner, :-2] - 6 * u)

    return lax.fori_loop(0, 10, step, u)


def block(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, a: Any, b: Any) -> Any:
    def norm(x: Any) -> Any:
        return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)

    batch, length, width = x.shape
    q, k, v = ((norm(x) @ w).reshape(batch, length, 4, width // 4) for w in (wq, wk, wv))
    s = jnp.where(jnp.tril(jnp.ones((length, length), bool)), jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2, -1e9)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v).reshape(batch, length, width) @ wo
    return x + jax.nn.silu(norm(x) @ a) @ b


def block_gradient(x: Any, *ws: Any) -> Any:
    return jax.grad(lambda w: jnp.mean(block(x, *w) ** 2))(ws)


def vocabulary(e: Any, i: Any, y: Any) -> Any:
    """A table in rows that is the embedding and the last product, with its gradient."""
    return jax.value_and_grad(lambda e: -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(e[i] @ e.T), y[:, None], 1)))(e)


def means(x: Any, centers: Any) -> Any:
    def step(i: Any, c: Any) -> Any:
        h = jax.nn.one_hot(jnp.argmin(((x[:, None] - c[None]) ** 2).sum(-1), 1), c.shape[0])
        return (h.T @ x) / (h.sum(0)[:, None] + 1e-6)

    return lax.fori_loop(0, 5, step, centers)


def conjugate_gradients(a: Any, y: Any) -> Any:
    def step(s: Any) -> Any:
        x, r, p, old, i = s
        q = a @ p + 20 * p
        x, r = x + old / (p @ q) * p, r - old / (p @ q) * q
        return x, r, r + (r @ r) / old * p, r @ r, i + 1

    return lax.while_loop(lambda s: (s[3] > 1e-8) & (s[4] < 20), step, (jnp.zeros_like(y), y, y, y @ y, 0))[0]


def selective_scan(a: Any, x: Any) -> Any:
    """At its ends it joins parts that have no elements."""
    return lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (jax.nn.sigmoid(a), x), axis=1)[1]


def recurrent(x: Any, w: Any, u: Any) -> Any:
    def step(carry: Any, now: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(now @ w + h @ u, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], u.shape[0]))
    return lax.scan(step, (zero, zero), x)[1]


def normalized(x: Any, g: Any) -> Any:
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * g, mean, variance


def last() -> Iterator[Program]:
    devices = np.array(jax.devices())

    def mesh(*sizes: int) -> Mesh:
        return Mesh(devices[: int(np.prod(sizes))].reshape(sizes), ("x", "y", "z")[: len(sizes)])

    def numbers(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.int32)

    d3, d4, d22, d222, d6 = mesh(3), mesh(4), mesh(2, 2), mesh(2, 2, 2), mesh(6)
    rows, columns, both, line, image = P("x", None), P(None, "x"), P("x", "y"), P("x"), P(None, "x")
    weights = (P(None, "y"),) * 3 + (P("y"), P(None, "y"), P("y"))
    blocks = (both,) * 3 + (P("y", "x"), both, P("y", "x"))
    shapes = ((4, 8, 16), *[(16, 16)] * 4, (16, 64), (64, 16))
    layers = (P("x"), P(None, None, "y"), P(None, "y"))
    sizes = ((8, 16), (3, 16, 32), (3, 32, 16))
    steps = ((16, 32), (32, 16), (16, 32), (32, 16), (16, 16), (16, 16))
    heads, length = P("x", None, "y"), P(None, "x")
    kernels = ((3, 3, 3, 4), (3, 3, 4, 8), (3, 3, 12, 3))
    inner, outer = P(("y", "z")), P(("x", "y", "z"))
    caches = ((4, 8, 4, 4), (4, 8, 4, 4), numbers())
    yield from (
        ("constraints in a scan", constrained(d22), d22, layers, (line, P()), sizes),
        ("constraints in a scan, gradient", constrained_gradient(d22), d22, layers, layers[1:], sizes),
        ("sum kept in parts", scattered_product(d4), d4, (columns, rows), columns, ((8, 12), (12, 24))),
        ("sum kept in parts on three", scattered_product(d3), d3, (columns, rows), columns, ((8, 12), (12, 24))),
        ("Cannon's product", cannon(d22), d22, (both, both), both, ((16, 8), (8, 12))),
        ("FSDP with momentum", momentum_step, d4, (line,) * 6, (P(), *(line,) * 4), steps),
        ("FSDP in groups of eight", momentum_step, d222, (*(inner,) * 4, outer, outer), (P(), *(inner,) * 4), steps),
        ("decode, batch and heads", decode, d22, (line, *(P(None, "y"),) * 3, P("y"), heads, heads, P()), (line, heads, heads),
         ((4, 16), *((16, 16),) * 4, *caches)),
        ("decode, cache cut along its length", decode, d4, (*(P(),) * 5, length, length, P()), (P(), length, length),
         ((4, 16), *((16, 16),) * 4, *caches)),
        ("two experts a token", experts, d4, (line, P(), line, line), line, ((8, 16), (16, 4), (4, 16, 8), (4, 8, 16))),
        ("FFT, there and back", lambda x, h: jnp.fft.ifft2(jnp.fft.fft2(x) * h).real, d4, (rows, rows), rows, ((16, 16),) * 2),
        ("FFT of three axes", lambda x: jnp.abs(jnp.fft.fftn(x)), d22, (both,), both, ((8, 8, 8),)),
        ("sort along both axes", lambda x: jnp.sort(jnp.sort(x, 0), 1), d4, (rows,), rows, ((16, 16),)),
        ("median", lambda x: jnp.median(x, axis=0), d4, (rows,), P(), ((16, 8),)),
        ("top three across", lambda x: tuple(lax.top_k(x, 3)), d4, (columns,), (P(), P()), ((4, 64),)),
        ("sums by keys", lambda x, i: jax.ops.segment_sum(x, i, num_segments=8), d4, (rows, line), rows, ((32, 4), numbers(32))),
        ("cumulative sum from the end", lambda x: jnp.flip(jnp.cumsum(jnp.flip(x, 0), 0), 0), d4, (rows,), rows, ((16, 8),)),
        ("cumulative sum of exponentials", lambda x: lax.cumlogsumexp(x, 0), d4, (rows,), rows, ((16, 8),)),
        ("U-net, both cut", unet, d22, (P(None, "x", "y"), P(), P(), P()), P(None, "x", "y"), ((2, 16, 16, 3), *kernels)),
        ("U-net, rows, gradient", unet_gradient, d4, (image, P(), P(), P()), (P(),) * 3, ((2, 16, 16, 3), *kernels)),
        ("diffusion in space", diffusion, d222, (P("x", "y", "z"),), P("x", "y", "z"), ((8, 8, 8),)),
        ("block on three axes", block, d222, (P("x", "z"), *weights), P("x", "z"), shapes),
        ("block on three axes, gradient", block_gradient, d222, (P("x", "z"), *weights), weights, shapes),
        ("block, FSDP and tensor, gradient", block_gradient, d22, (line, *blocks), blocks, shapes),
        ("vocabulary in parts", vocabulary, d4, (rows, P(), P()), (P(), rows), ((64, 8), numbers(16), numbers(16))),
        ("means", means, d4, (rows, P()), P(), ((64, 3), (4, 3))),
        ("conjugate gradients", conjugate_gradients, d4, (rows, line), line, ((32, 32), (32,))),
        ("selective scan, channels", selective_scan, d4, (P(None, None, "x"),) * 2, P(None, None, "x"), ((2, 8, 16),) * 2),
        ("selective scan, sequence", selective_scan, d4, (image, image), image, ((2, 16, 4),) * 2),
        ("recurrent, hidden", recurrent, d4, (P(), columns, columns), P(None, None, "x"), ((5, 8, 6), (6, 32), (8, 32))),
        ("normalized over all", normalized, d22, (both, P()), (both, P(), P()), ((4, 8, 8, 3), (3,))),
        ("loop over what is spread", lambda x, w: lax.map(lambda a: jnp.tanh(a @ w), x), d4, (line, P()), line,
         ((8, 4, 6), (6, 6))),
        ("softmax on six", lambda x: jax.nn.softmax(x @ x.T, 0), d6, (rows,), columns, ((12, 5),)),
        ("triangles", lambda a: jnp.tril(a) @ jnp.triu(a), d22, (both,), both, ((16, 16),)),
    )  # fmt: skip
