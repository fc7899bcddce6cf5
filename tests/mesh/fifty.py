# ruff: noqa: E501  (a table)
"""Functions of JAX in the global view on real processes: `mpiexec -n 4 python -m tests.mesh.fifty [NAME ...]` prints JSON.

For each program of a list what differs from JAX on one device. The programs are those of `tests.mesh.jax_worker`, a quarter of
the products, and more; each runs through `tilewright.jit` over a mesh of as many processes as there are.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

if __name__ == "__main__":  # pytest imports this, too: its environment goes to the processes that other tests start
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import tilewright
from codegen.mpi.channel import the_channel
from tests.mesh.jax_worker import layers, others, products

Program = tuple[str, Callable[[AbstractMesh], Callable[..., Any]], tuple[Any, ...], Any, tuple[Any, ...]]
"""Name, function of a mesh, specs of arguments and results, shapes of arguments."""
INT = jnp.int32


def more() -> Iterator[Program]:
    rows, columns, both = P("x", None), P(None, "x"), P("x", "y")
    image = P(None, "x")

    def plain(f: Callable[..., Any]) -> Callable[[AbstractMesh], Callable[..., Any]]:
        return lambda mesh: f

    def stencil(u: Any) -> Any:
        def step(i: Any, u: Any) -> Any:
            p = jnp.pad(u, 1, mode="edge")
            return 0.6 * u + 0.1 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])

        return jax.lax.fori_loop(0, 100, step, u)

    def convolution(strides: tuple[int, int]) -> Callable[..., Any]:
        return lambda x, w: jax.lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def pool(x: Any) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    def norm(x: Any, g: Any) -> Any:
        return (x - x.mean((0, 1, 2))) * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-5) * g

    def learn(table: Any, i: Any) -> Any:
        return table - 0.1 * jax.grad(lambda t: jnp.sum(t[i] ** 2))(table)

    def experts(mesh: AbstractMesh) -> Callable[..., Any]:
        """Tokens go to the process of their expert and back, by all-to-all."""

        def own(x: Any, w: Any) -> Any:
            n = jax.lax.axis_size("x")
            there = jax.lax.all_to_all(x.reshape(n, -1, x.shape[-1]), "x", 0, 0)
            return jax.lax.all_to_all(jnp.tanh(there @ w[0]), "x", 0, 0).reshape(x.shape[0], -1)

        return jax.shard_map(own, mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P("x"))

    def ring(mesh: AbstractMesh) -> Callable[..., Any]:
        """Attention whose keys and values go round."""

        def own(q: Any, k: Any, v: Any) -> Any:
            n = jax.lax.axis_size("x")
            steps = [(p, (p + 1) % n) for p in range(n)]

            def step(carry: Any, _: Any) -> Any:
                k, v, top, total, out = carry
                s = q @ k.T
                new = jnp.maximum(top, s.max(-1, keepdims=True))
                e, old = jnp.exp(s - new), jnp.exp(top - new)
                out, total = out * old + e @ v, total * old + e.sum(-1, keepdims=True)
                k, v = (jax.lax.ppermute(a, "x", steps) for a in (k, v))
                return (k, v, new, total, out), None

            begin = (k, v, jnp.full((q.shape[0], 1), -1e30), jnp.zeros((q.shape[0], 1)), jnp.zeros_like(q))
            (_, _, _, total, out), _ = jax.lax.scan(step, begin, None, length=n)
            return out / total

        return jax.shard_map(own, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.T, -1) @ v

    def tokens(x: Any, w: Any) -> Any:
        n = w.shape[0]
        return jnp.concatenate([jnp.tanh(x.reshape(n, n, -1, x.shape[-1])[:, e] @ w[e]) for e in range(n)], 1).reshape(x.shape[0], -1)

    ORACLES.update({"experts by all-to-all": tokens, "attention in a ring": attention})
    yield "a stencil of 100 steps, cut both ways", plain(stencil), (both,), both, ((16, 16),)
    yield "a stencil of 100 steps, rows", plain(stencil), (rows,), rows, ((16, 12),)
    yield "convolution with strides, image rows", plain(convolution((2, 2))), (image, P()), image, ((2, 16, 8, 3), (3, 3, 3, 4))
    yield "pooling, image rows", plain(pool), (image,), image, ((2, 16, 8, 3),)
    yield "batch norm, batch", plain(norm), (P("x"), P()), P("x"), ((8, 4, 4, 3), (3,))
    yield "embedding learns, rows", plain(learn), (rows, P()), rows, ((16, 8), jax.ShapeDtypeStruct((12,), INT))
    yield "embedding learns, batch", plain(learn), (P(), P("x")), P(), ((16, 8), jax.ShapeDtypeStruct((8,), INT))
    yield "embedding learns, columns", plain(learn), (columns, P()), columns, ((16, 8), jax.ShapeDtypeStruct((12,), INT))
    yield "a roll", plain(lambda x: jnp.roll(x, 3, 0)), (rows,), rows, ((16, 6),)
    yield "a flip", plain(lambda x: x[::-1]), (rows,), rows, ((16, 6),)
    yield "a part", plain(lambda x: x[3:11]), (rows,), rows, ((16, 6),)
    yield "every other row", plain(lambda x: x[::2]), (rows,), rows, ((16, 6),)
    yield "one below the other", plain(lambda x, y: jnp.concatenate([x, y])), (rows, rows), rows, ((16, 6), (8, 6))
    yield "padded", plain(lambda x: jnp.pad(x, ((4, 4), (1, 0)))), (rows,), rows, ((16, 6),)
    yield "differences", plain(lambda x: jnp.diff(x, axis=0).sum(1)), (rows,), P(), ((16, 6),)
    yield "rows that no mesh divides", plain(lambda x: jax.nn.softmax(x[:-3] @ x[:-3].T, 0)), (rows,), P(), ((16, 6),)
    yield "argsort across", plain(lambda x: jnp.argsort(x, 0)), (rows,), rows, ((16, 8),)
    yield "cumulative product across", plain(lambda x: jnp.cumprod(x, 0)), (rows,), rows, ((16, 8),)
    yield "a product on two axes", plain(lambda a, b: a @ b), (both, both), both, ((16, 16), (16, 16))
    yield "FFT of two dimensions", plain(lambda x: jnp.abs(jnp.fft.fft2(x))), (rows,), rows, ((16, 8),)
    yield "experts by all-to-all", experts, (P("x"), P("x")), P("x"), ((64, 4), (8, 4, 4))
    yield "attention in a ring", ring, (P("x"), P("x"), P("x")), P("x"), ((16, 4),) * 3


ORACLES: dict[str, Callable[..., Any]] = {}
"""What programs that name their processes' parts compute as a whole."""


def programs() -> Iterator[Program]:
    def plain(f: Callable[..., Any]) -> Callable[[AbstractMesh], Callable[..., Any]]:
        return lambda mesh: f

    for k, (name, f, _, given, made, shapes) in enumerate([*products(), *layers(), *others()]):
        if k >= 64 or k % 4 == k // 4 % 4:
            yield name, plain(f), given, made, shapes
    yield from more()


def _mesh(n: int, specs: Any, shapes: list[tuple[int, ...]]) -> AbstractMesh:
    """The mesh of n processes whose axes divide what is spread along them; what is left over holds copies."""
    two = any("y" in str(s) for s in specs)
    y = 2 if two and n > 1 else 1
    x = n // y
    while any(size % (x * y) for spec, shape in zip(specs, shapes, strict=False) for names, size in zip(spec, shape, strict=False) if names):
        x //= 2
    return AbstractMesh((x, y, n // (x * y)), ("x", "y", "copies"))


def fault(program: Program) -> str | None:
    """What is wrong with a program's results; known to process 0 alone."""
    name, make, given, made, shapes = program
    n, rank = the_channel().size, the_channel().rank
    structs = [s if isinstance(s, jax.ShapeDtypeStruct) else jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    leaves = jax.tree.leaves(made, is_leaf=lambda p: isinstance(p, P))
    outs = [a.shape for a in jax.tree.leaves(jax.eval_shape(ORACLES.get(name) or make(AbstractMesh((1,), ("x",))), *structs))]
    mesh = _mesh(n, [*given, *leaves], [*[s.shape for s in structs], *outs])
    if name == "experts by all-to-all":  # as many as there are processes along x
        structs[1] = jax.ShapeDtypeStruct((mesh.axis_sizes[0], 4, 4), jnp.float32)
    spread = jax.tree.map(lambda p: NamedSharding(mesh, p), (given, made), is_leaf=lambda p: isinstance(p, P))
    f = make(mesh)
    ours = tilewright.jit(f, in_shardings=spread[0], out_shardings=spread[1], mesh=mesh)
    chance = np.random.default_rng(0)
    arrays = [chance.integers(0, 8, s.shape).astype(s.dtype) if s.dtype.kind == "i" else chance.normal(size=s.shape).astype(s.dtype) / 4
              for s in structs]  # fmt: skip
    results = [r.gather() for r in jax.tree.leaves(ours(*arrays))]
    if rank:
        return None
    expected = [np.asarray(r) for r in jax.tree.leaves(jax.jit(ORACLES.get(name, f))(*arrays))]
    worst = max(float(np.max(np.abs(a - b) / (1 + np.abs(b)), initial=0.0)) for a, b in zip(results, expected, strict=True))
    return None if worst <= 2e-5 else f"{worst}"


def main() -> None:
    wanted, found, began = sys.argv[1:], {}, time.process_time()
    for p in programs():
        if not wanted or p[0] in wanted:
            found[p[0]] = fault(p)
    if the_channel().rank == 0:
        json.dump({"faults": found, "seconds": time.process_time() - began}, sys.stdout)


if __name__ == "__main__":
    main()
