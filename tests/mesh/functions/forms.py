# ruff: noqa: E501  (a table)
"""Functions for `tests.mesh.jax_worker`: sorts, places, reshapes, products in odd layouts, narrow types, whole optimizers."""

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


def adamw(w: Any, m: Any, v: Any, t: Any, x: Any, y: Any) -> Any:
    """A step with the gradient's norm cut, decay, and moments in parts."""
    g = jax.grad(lambda w: jnp.mean((jax.nn.relu(x @ w["a"]) @ w["b"] - y) ** 2))(w)
    norm = jnp.sqrt(sum(jnp.sum(a * a) for a in jax.tree.leaves(g)))
    g = jax.tree.map(lambda a: a * jnp.minimum(1, 1 / (norm + 1e-6)), g)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
    c, d = 1 - 0.9**t, 1 - 0.99**t
    w = jax.tree.map(lambda w, m, v: w - 0.1 * (m / c / (jnp.sqrt(v / d) + 1e-6) + 0.01 * w), w, m, v)
    return w, m, v, t + 1, norm


def adamw_flat(*values: Any) -> Any:
    a, b, ma, mb, va, vb, x, y = values
    w, m, v, _, norm = adamw({"a": a, "b": b}, {"a": ma, "b": mb}, {"a": va**2, "b": vb**2}, 3.0, x, y)
    return (*w.values(), *m.values(), *v.values(), norm)


def lion(w: Any, m: Any, x: Any, y: Any) -> Any:
    g = jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)
    return w - 0.01 * jnp.sign(0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g


def factored(w: Any, r: Any, c: Any, x: Any, y: Any) -> Any:
    """Adafactor: second moments by rows and by columns."""
    g = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
    r, c = 0.9 * r * r + 0.1 * (g * g).mean(1), 0.9 * c * c + 0.1 * (g * g).mean(0)
    u = g * lax.rsqrt(jnp.outer(r, c) / r.mean() + 1e-6)
    return w - 0.1 * u / jnp.maximum(1, jnp.sqrt(jnp.mean(u * u))), r, c


def orthogonal(w: Any) -> Any:
    """Newton and Schulz (Muon)."""
    x = w / (jnp.linalg.norm(w) + 1e-6)
    for _ in range(2):
        a = x @ x.T
        x = 1.5 * x - 0.5 * a @ x
    return x


def accumulated(w: Any, x: Any, y: Any) -> Any:
    """Gradients of four smaller batches, one after the other."""
    def step(g: Any, batch: Any) -> Any:
        return jax.tree.map(jnp.add, g, jax.grad(lambda w: jnp.mean((jnp.tanh(batch[0] @ w) - batch[1]) ** 2))(w)), None

    return w - 0.1 * lax.scan(step, jnp.zeros_like(w), (x, y))[0]


def mixed(w: Any, x: Any, y: Any) -> Any:
    """Products in bfloat16, weights in float32."""
    def loss(w: Any) -> Any:
        return jnp.mean((jnp.tanh(x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32) - y) ** 2)

    return w - 0.1 * jax.grad(loss)(w)


def quantized(x: Any, w: Any, s: Any) -> Any:
    q = jnp.clip(jnp.round(x / 0.05), -127, 127).astype(jnp.int8)
    return lax.dot_general(q, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32) * s * 0.05


def nucleus(z: Any) -> Any:
    """What is left of a distribution when its tail is cut."""
    p = -jnp.sort(-jax.nn.softmax(z, -1), -1)
    least = jnp.where(jnp.cumsum(p, -1) - p < 0.5, p, 1.0).min(-1, keepdims=True)
    q = jax.nn.softmax(z, -1)
    return jnp.where(q >= least, q, 0) / jnp.where(q >= least, q, 0).sum(-1, keepdims=True)


def neighbours(x: Any, y: Any) -> Any:
    d = (x * x).sum(1)[:, None] - 2 * x @ y.T + (y * y).sum(1)
    return tuple(lax.top_k(-d, 3))


def ranks(x: Any) -> Any:
    return jnp.argsort(jnp.argsort(x, 1), 1)


def power_law(a: Any, v: Any) -> Any:
    def step(s: Any) -> Any:
        v, _, i = s
        w = a @ v
        return w / jnp.linalg.norm(w), v, i + 1

    return lax.while_loop(lambda s: (jnp.linalg.norm(s[0] - s[1]) > 1e-4) & (s[2] < 10), step, (v, 0 * v, 0))[0]


def ranked_pages(a: Any, v: Any) -> Any:
    return lax.fori_loop(0, 10, lambda i, v: 0.85 * (a / (jnp.abs(a).sum(0) + 1e-6)) @ v + 0.15 / len(v), v)


def jacobi(a: Any, b: Any) -> Any:
    d = jnp.diag(a) + 10
    return lax.fori_loop(0, 8, lambda i, x: (b - a @ x + jnp.diag(a) * x) / d, jnp.zeros_like(b))


def covariance(x: Any) -> Any:
    y = x - x.mean(0)
    return y.T @ y / (len(x) - 1)


def forces(p: Any, q: Any) -> Any:
    """Energy of charges, and forces as its gradient."""
    def energy(p: Any) -> Any:
        r = jnp.sqrt(((p[:, None] - p[None]) ** 2).sum(-1) + 0.1)
        return jnp.sum(jnp.triu(q[:, None] * q[None] / r, 1))

    return jax.value_and_grad(energy)(p)


def messages(h: Any, e: Any, s: Any, d: Any) -> Any:
    """A layer of a graph network with attention over each node's edges."""
    n = h.shape[0]
    z = (h[s] * h[d]).sum(-1) + e
    top = jax.ops.segment_max(z, d, num_segments=n)
    p = jnp.exp(z - top[d])
    return jax.ops.segment_sum(p[:, None] * h[s], d, num_segments=n) / (jax.ops.segment_sum(p, d, num_segments=n)[:, None] + 1e-6)


def spectrum(x: Any) -> Any:
    return jnp.abs(jnp.fft.rfft(x, axis=1)) ** 2


def convolved(x: Any, h: Any) -> Any:
    return jnp.fft.irfft(jnp.fft.rfft(x, axis=0) * jnp.fft.rfft(h, axis=0), n=x.shape[0], axis=0)


def poisson(f: Any) -> Any:
    k = jnp.fft.fftfreq(f.shape[0])[:, None] ** 2 + jnp.fft.fftfreq(f.shape[1]) ** 2
    return jnp.fft.ifft2(jnp.fft.fft2(f) / (k + 1)).real


def rotated(x: Any, p: Any) -> Any:
    return (x * jnp.exp(1j * p)).sum(0)


def logical(x: Any) -> Any:
    return (x > 0).all(1), (x > 0.4).any(0), jnp.sum(x > 0, dtype=jnp.int32)


def histogram2(i: Any, j: Any) -> Any:
    return jnp.zeros((4, 8), jnp.int32).at[i, j].add(1)


def ring_sum(mesh: Mesh) -> Callable[..., Any]:
    """A reduce-scatter and an all-gather written as a ring."""
    n = mesh.shape["x"]
    on = [(p, (p + 1) % n) for p in range(n)]

    def body(a: Any) -> Any:
        me = lax.axis_index("x")
        part = lambda k: lax.dynamic_slice_in_dim(a[0], (me - k) % n * 2, 2)  # noqa: E731
        total = part(1)
        for k in range(2, n + 1):
            total = lax.ppermute(total, "x", on) + part(k)
        return total

    return shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"))


def constrained_mlp(mesh: Mesh) -> Callable[..., Any]:
    """Sequence parallel between layers, tensor parallel inside (Megatron)."""
    def along(x: Any, *axes: Any) -> Any:
        return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))

    def run(x: Any, g: Any, w: Any, u: Any) -> Any:
        h = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * g
        h = along(jax.nn.gelu(along(h, "x", None, None) @ w), "x", None, "y")
        return x + along(h @ u, "x", "y", None)

    return run


def constrained_gradient(mesh: Mesh) -> Callable[..., Any]:
    run = constrained_mlp(mesh)
    return lambda x, *ws: jax.grad(lambda ws: jnp.mean(run(x, *ws) ** 2))(ws)
def forms() -> Iterator[Program]:
    devices = np.array(jax.devices())

    def mesh(*sizes: int) -> Mesh:
        return Mesh(devices[: int(np.prod(sizes))].reshape(sizes), ("x", "y", "z")[: len(sizes)])

    def of(kind: Any, *shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, kind)

    def numbers(*shape: int) -> Any:
        return of(jnp.int32, *shape)

    d3, d4, d8, d22, d42, d222 = mesh(3), mesh(4), mesh(8), mesh(2, 2), mesh(4, 2), mesh(2, 2, 2)
    rows, columns, both, line, turned = P("x", None), P(None, "x"), P("x", "y"), P("x"), P("y", "x")
    moments = ((16, 32), (32, 8)) * 3
    yield from (
        ("argmax of all, rows", jnp.argmax, d4, (rows,), P(), ((8, 16),)),
        ("argmin of all, rows", jnp.argmin, d4, (rows,), P(), ((8, 16),)),
        ("argmax of all, columns", jnp.argmax, d4, (columns,), P(), ((8, 16),)),
        ("argmin of all, both", jnp.argmin, d22, (both,), P(), ((8, 16),)),
        ("argmax across", lambda x: (jnp.argmax(x, 0), x.max(0)), d8, (rows,), (P(), P()), ((16, 16),)),
        ("argmax across, kept in parts", lambda x: jnp.argmax(x, 0), d4, (rows,), line, ((8, 16),)),
        ("argmax of integers", lambda x: jnp.argmax(x, 1), d22, (both,), line, (numbers(8, 16),)),
        ("sum and maximum at once", lambda x: lax.reduce((x, x), (0.0, -jnp.inf), lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (0,)),
         d4, (rows,), (P(), P()), ((16, 8),)),
        ("AdamW, moments in parts", adamw_flat, d4, (P(), P(), line, line, line, line, line, line), (P(), P(), *[line] * 4, P()),
         (*moments, (8, 16), (8, 8))),
        ("AdamW, all in parts", adamw_flat, d4, (*[line] * 8,), (*[line] * 6, P()), (*moments, (8, 16), (8, 8))),
        ("AdamW, data and tensor", adamw_flat, d42, (*[P(None, "y"), P("y")] * 3, line, line), (*[P(None, "y"), P("y")] * 3, P()),
         (*moments, (8, 16), (8, 8))),
        ("AdamW, eight", adamw_flat, d222, (*[P("z", "y"), P("y", "z")] * 3, P(("x", "z")), P(("x", "z"))), (*[P("z", "y"), P("y", "z")] * 3, P()),
         (*moments, (8, 16), (8, 8))),
        ("signs of momentum", lion, d4, (P(), line, line, line), (P(), line), ((16, 8), (16, 8), (8, 16), (8, 8))),
        ("factored moments", factored, d22, (both, line, P("y"), line, line), (both, line, P("y")), ((16, 8), (16,), (8,), (8, 16), (8, 8))),
        ("orthogonal", orthogonal, d4, (rows,), rows, ((8, 32),)),
        ("orthogonal, columns", orthogonal, d4, (columns,), columns, ((8, 32),)),
        ("accumulated", accumulated, d4, (P(), P(None, "x"), P(None, "x")), P(), ((8, 4), (4, 8, 8), (4, 8, 4))),
        ("accumulated, in parts", accumulated, d4, (line, P(None, "x"), P(None, "x")), line, ((8, 4), (4, 8, 8), (4, 8, 4))),
        ("products in bfloat16", mixed, d4, (line, line, line), line, ((16, 8), (32, 16), (32, 8))),
        ("bfloat16, batch", mixed, d4, (P(), line, line), P(), ((16, 8), (32, 16), (32, 8))),
        ("quantized", quantized, d4, (columns, line, P()), P(), ((8, 16), of(jnp.int8, 16, 8), (8,))),
        ("nucleus", nucleus, d4, (columns,), columns, ((4, 32),)),
        ("neighbours", neighbours, d4, (P(), rows), (P(), P()), ((8, 4), (32, 4))),
        ("neighbours, queries", neighbours, d4, (rows, P()), (rows, rows), ((8, 4), (32, 4))),
        ("ranks of rows", ranks, d4, (rows,), rows, ((8, 16),)),
        ("ranks across", ranks, d4, (columns,), columns, ((8, 16),)),
        ("argsort of all", jnp.argsort, d4, (line,), line, ((256,),)),
        ("top of a line", lambda x: tuple(lax.top_k(x, 4)), d4, (line,), (P(), P()), ((64,),)),
        ("unique ranks by keys", lambda x, k: lax.sort((k, x), num_keys=1)[1], d4, (rows, rows), rows, ((8, 16), numbers(8, 16))),
        ("powers until they stay", power_law, d42, (both, P()), P(), ((16, 16), (16,))),
        ("ranked pages", ranked_pages, d22, (both, P("y")), P("y"), ((16, 16), (16,))),
        ("Jacobi", jacobi, d4, (rows, line), line, ((16, 16), (16,))),
        ("Jacobi, both", jacobi, d22, (both, line), line, ((16, 16), (16,))),
        ("covariance", covariance, d4, (rows,), columns, ((32, 8),)),
        ("covariance, both", covariance, d42, (both,), P("y"), ((32, 8),)),
        ("forces", forces, d4, (rows, line), (P(), rows), ((16, 3), (16,))),
        ("messages", messages, d4, (P(), line, line, line), P(), ((16, 4), (64,), numbers(64), numbers(64))),
        ("messages, nodes", messages, d4, (rows, line, line, line), rows, ((16, 4), (64,), numbers(64), numbers(64))),
        ("spectrum of rows", spectrum, d4, (rows,), rows, ((8, 16),)),
        ("spectrum across", spectrum, d4, (columns,), rows, ((8, 16),)),
        ("convolved by FFT", convolved, d4, (rows, rows), rows, ((16, 8),) * 2),
        ("Poisson", poisson, d22, (both,), both, ((16, 16),)),
        ("rotated", rotated, d4, (rows, rows), P(), ((16, 8),) * 2),
        ("complex product", lambda a, b: (a @ b).real, d22, (both, both), both, (of(jnp.complex64, 8, 16), of(jnp.complex64, 16, 8))),
        ("logical", logical, d22, (both,), (line, P("y"), P()), ((8, 16),)),
        ("counts of pairs", histogram2, d4, (line, line), P(), (numbers(32), numbers(32))),
        ("ring of sums", ring_sum(d4), d4, (line,), line, ((4, 8),)),
        ("sequence and tensor", constrained_mlp(d22), d22, (P("x", "y"), P(), P(None, "y"), P("y")), P("x", "y"),
         ((2, 8, 16), (16,), (16, 32), (32, 16))),
        ("sequence and tensor, gradient", constrained_gradient(d22), d22, (P("x", "y"), P(), P(None, "y"), P("y")), (P(), P(None, "y"), P("y")),
         ((2, 8, 16), (16,), (16, 32), (32, 16))),
        ("products of all before", lambda x: jnp.cumprod(x, 1), d22, (both,), both, ((8, 16),)),
        ("least of all before", lambda x: lax.cummin(x, 0), d8, (rows,), rows, ((32, 4),)),
        ("differences and their sum", lambda x: jnp.cumsum(jnp.diff(x, axis=0, prepend=0.0), 0), d4, (rows,), rows, ((16, 4),)),
        ("trapezoids", lambda x: jnp.trapezoid(x, axis=0), d4, (rows,), P(), ((16, 4),)),
        ("interpolated", lambda x: 0.5 * (x[:-1] + x[1:]), d4, (rows,), P(), ((16, 4),)),
        ("parts by place", lambda x, i: lax.dynamic_slice(x, (0, i), (8, 4)), d4, (columns, P()), P(), ((8, 16), numbers())),
        ("row by number and back", lambda x, i: x.at[i].multiply(2.0), d4, (rows, P()), rows, ((16, 8), numbers(3))),
        ("greatest by number", lambda x, i, u: x.at[i].max(u), d4, (rows, P(), P()), rows, ((16, 8), numbers(5), (5, 8))),
        ("columns by number", lambda x, i: x[:, i], d4, (columns, P()), P(), ((8, 32), numbers(3))),
        ("chosen along", lambda x, i: jnp.take_along_axis(x, i, 0), d4, (rows, P()), P(), ((64, 4), numbers(3, 4))),
        ("heads out and in", lambda x: x.reshape(4, 8, 4, 2).transpose(0, 2, 1, 3), d4, (P(None, None, "x"),), columns, ((4, 8, 8),)),
        ("merged and cut", lambda x: x.reshape(8, 16), d22, (both,), P(("x", "y")), ((2, 4, 16),)),
        ("cut in two", lambda x: x.reshape(4, 4, 8), d42, (P(("x", "y")),), P("x", "y"), ((16, 8),)),
        ("blocks transposed", lambda x: x.T, d42, (both,), both, ((16, 8),)),
        ("turned", lambda x: x * 2, d22, (both,), turned, ((16, 8),)),
        ("turned on three axes", lambda x: x.transpose(2, 0, 1), d222, (P("x", "y", "z"),), P("x", "y", "z"), ((8, 8, 8),)),
        ("rows to columns on six", lambda x: x + 1, mesh(6), (rows,), columns, ((12, 12),)),
        ("an axis to another", lambda x: x + 1, d42, (rows,), P("y"), ((16, 8),)),
        ("both axes to one", lambda x: x + 1, d22, (P(("x", "y")),), P(("y", "x")), ((16, 8),)),
        ("einsum of three", lambda a, b, c: jnp.einsum("bij,bjk,kl->bil", a, b, c), d22, (line, line, P(None, "y")), P("x", None, "y"),
         ((4, 8, 6), (4, 6, 10), (10, 12))),
        ("outer", lambda a, b: jnp.outer(a, b), d22, (line, P("y")), both, ((16,), (8,))),
        ("bilinear form", lambda a, w, b: jnp.einsum("bi,oij,bj->bo", a, w, b), d4, (P(), P("x"), P()), columns, ((8, 6), (12, 6, 5), (8, 5))),
        ("contracted twice", lambda a, b: jnp.einsum("abcd,cdbe->ae", a, b), d42, (P("x", "y"), P(None, None, "y")), P("x"),
         ((8, 4, 3, 5), (3, 5, 4, 6))),
        ("trace of a product", lambda a, b: jnp.einsum("ij,ji->", a, b), d22, (both, turned), P(), ((16, 8), (8, 16))),
        ("diagonal", lambda a: jnp.diagonal(a @ a.T), d4, (rows,), line, ((16, 8),)),
        ("Kronecker", lambda a, b: jnp.kron(a, b), d4, (rows, P()), rows, ((8, 4), (3, 2))),
        ("tiled", lambda a: jnp.tile(a, (2, 3)), d4, (rows,), P(), ((8, 4),)),
        ("repeated", lambda a: jnp.repeat(a, 3, 0), d4, (rows,), rows, ((8, 4),)),
        ("stacked", lambda a, b: jnp.stack([a, b], 0).sum(0), d4, (rows, rows), rows, ((8, 4),) * 2),
        ("interleaved", lambda a, b: jnp.stack([a, b], 1).reshape(-1, a.shape[1]), d4, (rows, rows), rows, ((8, 4),) * 2),
        ("every other row, shifted", lambda x: x[1::2] - x[::2], d4, (rows,), rows, ((32, 4),)),
        ("halves swapped", lambda x: jnp.concatenate([x[8:], x[:8]]), d4, (rows,), rows, ((16, 4),)),
        ("even and odd", lambda x: jnp.concatenate([x[::2], x[1::2]]), d4, (rows,), rows, ((16, 4),)),
        ("butterflies", lambda x: jnp.concatenate([x[:8] + x[8:], x[:8] - x[8:]]), d4, (rows,), rows, ((16, 4),)),
        ("standard deviation of all", lambda x: (x - x.mean()) / x.std(), d42, (both,), both, ((16, 8),)),
        ("quantile", lambda x: jnp.quantile(x, 0.3, axis=1), d4, (rows,), line, ((8, 16),)),
        ("clipped and chosen", lambda x, y: jnp.where(x > y, jnp.clip(x, 0, 1), y).sum(0), d22, (both, P(None, "y")), P("y"), ((16, 8),) * 2),
        ("uneven rows", lambda x, w: jax.nn.softmax(x[:-1] @ w, 0), d3, (rows, P()), P(), ((12, 6), (6, 5))),
        ("uneven triangle", lambda x: jnp.tril(x[:-2] @ x[:-2].T).sum(0), d4, (rows,), P(), ((16, 6),)),
    )  # fmt: skip
