"""More functions for `tests.mesh.jax_worker`: bodies written for one process, optimizers in parts, images that are cut, three
processes."""

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


# ---------------------------------------------------------------- written for one process


def ring_attention(mesh: Mesh) -> Callable[..., Any]:
    """Keys and values go round; each process sums up what its queries see of them."""
    n = mesh.shape["x"]
    around = [(i, (i + 1) % n) for i in range(n)]

    def body(q: Any, k: Any, v: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            m, z, o, k, v = c
            s = jnp.einsum("bqhd,bkhd->bqhk", q, k) / 4
            top = jnp.maximum(m, s.max(-1))
            p, a = jnp.exp(s - top[..., None]), jnp.exp(m - top)
            o = o * a[..., None] + jnp.einsum("bqhk,bkhd->bqhd", p, v)
            return (top, z * a + p.sum(-1), o, lax.ppermute(k, "x", around), lax.ppermute(v, "x", around)), None

        zero = q[..., 0] * 0
        (_, z, o, _, _), _ = lax.scan(step, (zero - jnp.inf, zero, q * 0, k, v), None, length=n)
        return o / z[..., None]

    return shard_map(body, mesh=mesh, in_specs=(P(None, "x"),) * 3, out_specs=P(None, "x"))


def pipeline(mesh: Mesh, micro: int = 6) -> Callable[..., Any]:
    """A layer a process, batches in parts that go from one to the next."""
    n = mesh.shape["x"]

    def body(w: Any, xs: Any) -> Any:
        me = lax.axis_index("x")

        def step(c: Any, t: Any) -> Any:
            now, out = c
            y = jnp.tanh(jnp.where(me == 0, xs[jnp.minimum(t, micro - 1)], now) @ w[0])
            last = (me == n - 1) & (t >= n - 1)
            out = jnp.where(last, out.at[jnp.clip(t - n + 1, 0, micro - 1)].set(y), out)
            return (lax.ppermute(y, "x", [(i, i + 1) for i in range(n - 1)]), out), None

        start = tuple(lax.pcast(jnp.zeros(s), ("x",), to="varying") for s in (xs.shape[1:], xs.shape))
        (_, out), _ = lax.scan(step, start, jnp.arange(micro + n - 1))
        return lax.psum(jnp.where(me == n - 1, out, 0), "x")

    return shard_map(body, mesh=mesh, in_specs=(P("x"), P()), out_specs=P())


def experts(mesh: Mesh) -> Callable[..., Any]:
    """Tokens go to their experts and back."""
    n = mesh.shape["x"]

    def body(x: Any, gate: Any, w: Any) -> Any:
        chosen = jax.nn.one_hot(jnp.argmax(x @ gate, -1), n)
        place = (jnp.cumsum(chosen, 0) * chosen).sum(-1).astype(int) - 1
        d = chosen[:, :, None] * jax.nn.one_hot(place, x.shape[0])[:, None, :]
        there = lax.all_to_all(jnp.einsum("tec,td->ecd", d, x), "x", 0, 0, tiled=True)
        back = lax.all_to_all(jnp.tanh(there @ w[0]), "x", 0, 0, tiled=True)
        return jnp.einsum("tec,ecf->tf", d, back)

    return shard_map(body, mesh=mesh, in_specs=(P("x"), P(), P("x")), out_specs=P("x"))


def summa(mesh: Mesh) -> Callable[..., Any]:
    """Blocks of rows along one axis, of columns along the other."""

    def body(a: Any, b: Any) -> Any:
        return lax.all_gather(a, "y", axis=1, tiled=True) @ lax.all_gather(b, "x", axis=0, tiled=True)

    return shard_map(body, mesh=mesh, in_specs=(P("x", "y"),) * 2, out_specs=P("x", "y"))


# ---------------------------------------------------------------- for one process along some axes


def partly(mesh: Mesh, given: Any, made: Any, f: Callable[..., Any], axes: str = "x") -> Callable[..., Any]:
    """A body that is written for one process along some axes and in the global view along the others."""
    return shard_map(f, mesh=mesh, in_specs=given, out_specs=made, axis_names=set(axes))


def pipeline_of_layers(mesh: Mesh, micro: int = 4) -> Callable[..., Any]:
    """A layer of two products a process along x; the products are partitioned along y."""
    n = mesh.shape["x"]

    def body(w: Any, u: Any, xs: Any) -> Any:
        me = lax.axis_index("x")

        def step(c: Any, t: Any) -> Any:
            now, out = c
            y = jnp.tanh(jnp.where(me == 0, xs[jnp.minimum(t, micro - 1)], now) @ w[0]) @ u[0]
            last = (me == n - 1) & (t >= n - 1)
            out = jnp.where(last, out.at[jnp.clip(t - n + 1, 0, micro - 1)].set(y), out)
            return (lax.ppermute(y, "x", [(i, i + 1) for i in range(n - 1)]), out), None

        start = tuple(lax.pcast(jnp.zeros(s), ("x",), to="varying") for s in (xs.shape[1:], xs.shape))
        (_, out), _ = lax.scan(step, start, jnp.arange(micro + n - 1))
        return lax.psum(jnp.where(me == n - 1, out, 0), "x")

    return partly(mesh, (P("x"), P("x"), P()), P(), body)


def averaged_gradient(mesh: Mesh) -> Callable[..., Any]:
    """Data parallelism by hand, tensor parallelism by the partitioner."""

    def body(w: Any, x: Any) -> Any:
        own = lax.pcast(w, "x", to="varying")
        return lax.pmean(jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(own), "x")

    return partly(mesh, (P(), P("x")), P(), body)


def nested(mesh: Mesh) -> Callable[..., Any]:
    def body(a: Any) -> Any:
        inner = shard_map(lambda c: c * 2 + lax.psum(c, "y"), in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"})
        return inner(a) - lax.pmax(a, "x")

    return partly(mesh, P("x"), P("x"), body)


def partly_by_hand(d22: Mesh, d222: Mesh) -> Iterator[Program]:
    line, both, columns = P("x"), P("x", "y"), P(None, "y")
    cut, across, neither = P("x", None, "y"), P(None, "x", "y"), P(None, "x")
    yield from (
        ("pipeline of layers in parts", pipeline_of_layers(d22), d22, (cut, both, P()), P(), ((2, 8, 16), (2, 16, 8), (4, 5, 8))),
        ("gradients averaged by hand", averaged_gradient(d22), d22, (columns, line), columns, ((16, 8), (8, 16))),
        ("exchanged along one axis", partly(d22, (line,), neither, lambda a: lax.all_to_all(a, "x", 1, 0, tiled=True)), d22,
         (cut,), across, ((8, 8, 6),)),
        ("sum kept along one axis", partly(d22, (neither,), line, lambda a: lax.psum_scatter(a, "x", tiled=True)), d22,
         (across,), cut, ((8, 4, 6),)),
        ("less their mean along one axis of two", partly(d22, (line,), line, lambda a: a - lax.pmean(a, "x")), d22,
         (P(("x", "y")),), P(("x", "y")), ((16, 8),)),
        ("softmax along the other axis", partly(d22, (line,), line, lambda a: jax.nn.softmax(a, -1) + lax.axis_index("x")), d22,
         (both,), both, ((16, 8),)),
        ("product along the first axis of two", partly(d22, (P("y"), P()), P("y"), lambda a, w: a @ w * lax.axis_index("y"), "y"),
         d22, (P(("x", "y")), P()), P(("x", "y")), ((16, 8), (8, 8))),
        ("sum along one axis of three", partly(d222, (P("z"), P()), P("z"), lambda a, w: lax.psum(a @ w, "z") + a @ w, "z"), d222,
         (P("z", "x"), both), P("z", "y"), ((16, 8), (8, 8))),
        ("a branch for each process along one axis",
         partly(d22, (line, P()), line, lambda a, w: lax.cond(lax.axis_index("x") > 0, lambda a: jnp.tanh(a @ w), jnp.sin, a)),
         d22, (line, P("y")), line, ((16, 8), (8, 8))),
        ("one body inside of another", nested(d22), d22, (both,), both, ((16, 8),)),
        ("what is left open", lambda a: lax.with_sharding_constraint(a * 2, NamedSharding(d22, P(P.UNCONSTRAINED, None))).sum(1),
         d22, (both,), line, ((16, 8),)),
        ("three axes to two of them", lambda a: a.sum(1), d222, (P(("x", "y", "z")),), P(("z", "x")), ((16, 4),)),
        ("holes between rows", lambda a: lax.pad(a, 0.0, ((0, 1, 1), (0, 0, 0))), d22, (line,), line, ((16, 4),)),
    )  # fmt: skip


# ---------------------------------------------------------------- in the global view


def layers_step(w: Any, u: Any, x: Any, y: Any) -> Any:
    g = jax.grad(lambda w, u: jnp.mean((jax.nn.gelu(x @ w) @ u - y) ** 2), (0, 1))(w, u)
    return w - 0.1 * g[0], u - 0.1 * g[1]


def adam(w: Any, m: Any, v: Any, x: Any, y: Any) -> Any:
    g = jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return w - 0.1 * m / (jnp.sqrt(v) + 1e-8), m, v


def network(x: Any, w: Any, u: Any) -> Any:
    h = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC))
    h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return lax.conv_general_dilated(h, u, (1, 1), "SAME", dimension_numbers=NHWC)


def network_step(w: Any, u: Any, x: Any, y: Any) -> Any:
    g = jax.grad(lambda w, u: jnp.mean((network(x, w, u) - y) ** 2), (0, 1))(w, u)
    return w - 0.1 * g[0], u - 0.1 * g[1]


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def pooled_gradient(x: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(pooled(x) ** 2))(x)


def bodies(p: Any) -> Any:
    d = p[:, None] - p[None]
    r = (d * d).sum(-1) + 0.01
    return p + 0.01 * (d / r[..., None] ** 1.5).sum(1)


def wave(u: Any, v: Any) -> Any:
    def step(i: Any, c: Any) -> Any:
        u, v = c
        v = v + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u)
        return u + 0.1 * v, v

    return lax.fori_loop(0, 20, step, (u, v))


def graph(h: Any, s: Any, d: Any, w: Any) -> Any:
    return jax.nn.relu(jnp.zeros_like(h).at[d].add(h[s]) @ w)


def recurrence(a: Any, b: Any) -> Any:
    return lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b))


def by_hand() -> Iterator[Program]:
    devices = np.array(jax.devices())

    def mesh(*sizes: int) -> Mesh:
        return Mesh(devices[: int(np.prod(sizes))].reshape(sizes), ("x", "y", "z")[: len(sizes)])

    numbers = jax.ShapeDtypeStruct((64,), jnp.int32)
    d3, d4, d22, d24, d32 = mesh(3), mesh(4), mesh(2, 2), mesh(2, 4), mesh(3, 2)
    rows, image, both, line = P("x", None), P(None, "x"), P("x", "y"), P("x")
    weights = ((16, 32), (32, 16), (8, 16), (8, 16))
    kernels = ((3, 3, 3, 8), (3, 3, 8, 4))
    yield from partly_by_hand(d22, mesh(2, 2, 2))
    yield from (
        ("ring attention", ring_attention(d4), d4, (image,) * 3, image, ((2, 16, 2, 8),) * 3),
        ("ring attention on three", ring_attention(d3), d3, (image,) * 3, image, ((2, 12, 2, 8),) * 3),
        ("pipeline", pipeline(d4), d4, (line, P()), P(), ((4, 8, 8), (6, 5, 8))),
        ("pipeline on three", pipeline(d3), d3, (line, P()), P(), ((3, 8, 8), (6, 5, 8))),
        ("tokens to experts by hand", experts(d4), d4, (line, P(), line), line, ((16, 8), (8, 4), (4, 8, 6))),
        ("blocks by hand", summa(d22), d22, (both,) * 2, both, ((16, 8), (8, 12))),
        ("blocks on three by two", lambda a, b: a @ b, d32, (both,) * 2, both, ((18, 12), (12, 24))),
        ("FSDP on three", layers_step, d3, (line,) * 4, (line,) * 2, ((12, 24), (24, 12), (12, 12), (12, 12))),
        ("FSDP in blocks", layers_step, d22, (both, P("y", "x"), line, line), (both, P("y", "x")), weights),
        ("FSDP in groups", layers_step, d24, (P("y"), P("y"), P(("x", "y")), P(("x", "y"))), (P("y"), P("y")),
         ((16, 32), (32, 16), (16, 16), (16, 16))),
        ("optimizer in parts", adam, d4, (P(), line, line, line, line), (P(), line, line), ((16, 16),) * 3 + ((32, 16),) * 2),
        ("network, rows of images", network, d4, (image, P(), P()), image, ((2, 16, 16, 3), *kernels)),
        ("network, rows of images, step", network_step, d4, (P(), P(), image, image), (P(), P()),
         (*kernels, (2, 16, 16, 3), (2, 8, 8, 4))),
        ("pooling, rows of images", pooled, d4, (image,), image, ((2, 16, 16, 3),)),
        ("gradient of pooling, rows of images", pooled_gradient, d4, (image,), image, ((2, 16, 16, 3),)),
        ("gradient of pooling, both cut", pooled_gradient, d22, (P(None, "x", "y"),), P(None, "x", "y"), ((2, 16, 16, 3),)),
        ("FFT of two axes", lambda x: jnp.abs(jnp.fft.fft2(x)), d4, (rows,), rows, ((16, 16),)),
        ("sort along what is spread", jnp.sort, d4, (line,), line, ((256,),)),
        ("sort along what is spread, eight", jnp.sort, mesh(8), (line,), line, ((2048,),)),
        ("argsort and rows", lambda x, k: x[jnp.argsort(k)], d4, (line, line), line, ((64, 4), (64,))),
        ("bodies", bodies, d4, (line,), line, ((32, 3),)),
        ("wave, both cut", wave, d22, (both,) * 2, (both,) * 2, ((16, 16), (16, 16))),
        ("graph", graph, d4, (rows, line, line, P()), rows, ((32, 8), numbers, numbers, (8, 8))),
        ("recurrence", recurrence, d4, (line,) * 2, (line,) * 2, ((32, 3), (32, 3))),
        ("chain of products", lambda a, b, c: jnp.einsum("abc,cd,bde->ae", a, b, c), d22, (both, P(None, "y"), P("y")), line,
         ((4, 4, 8), (8, 6), (4, 6, 10))),
        ("reversed, rolled, joined", lambda x, y: jnp.concatenate([jnp.flip(x, 0), jnp.roll(y, 3, 0)]), d4, (rows, rows), rows,
         ((16, 4), (16, 4))),
    )  # fmt: skip
