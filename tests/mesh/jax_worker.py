# ruff: noqa: E501  (a table)
"""JAX's partitioner beside this one, on virtual devices of one process: `python -m tests.mesh.jax_worker` prints JSON.

For each program of a list: whether the simulated grid computes what JAX computes, and the bytes that each process sends in the
program that this partitioner makes and in JAX's optimised one, counted alike (what a ring sends).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

if __name__ == "__main__":  # pytest imports this, too: its environment goes to the processes that other tests start
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlo
import interp
from tests.mesh.functions.forms import forms
from tests.mesh.functions.kinds import kinds
from tests.mesh.jax_by_hand import by_hand
from tests.mesh.jax_last import last
from tests.mesh.jax_more import more
from tiling.mesh.network import Network
from tiling.mesh.partition import partition

Program = tuple[str, Callable[..., Any], Mesh, tuple[Any, ...], Any, tuple[Any, ...]]
"""Name, function, mesh, shardings of arguments and results, shapes of arguments."""

BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "c64": 8}
_COLLECTIVE = re.compile(r"= (\([^)]*\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\((.*)")


def _members(rest: str, devices: int) -> int:
    """How many devices a collective is among: groups are listed, or counted (`[2,4]<=[8]`), or axes of a mesh.

    Axes are whole or in part: `mesh['a'=2,'b'=8] {'a','b':(2)4}` are groups of 2 * 4.
    """
    found = re.search(r"replica_groups=(?:\{\{([\d,]+)\}|\[\d+,(\d+)\]|mesh\[([^\]]*)\](?:, device_ids=[^{]*)? ?\{([^}]*)\})", rest)
    if found is None:
        assert "replica_groups=" not in rest or "replica_groups={}" in rest, rest
        return devices
    listed, counted, axes, among = found.groups()
    if listed or counted:
        return len(listed.split(",")) if listed else int(counted)
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", axes))
    return int(np.prod([int(part or sizes[name]) for name, part in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", among)]))


def sent_by_jax(text: str, devices: int) -> tuple[int, list[str]]:
    """The bytes that a process sends in optimised HLO, and its collectives."""
    total, kinds = 0, []
    for result, kind, rest in _COLLECTIVE.findall(text):
        size = sum(BYTES[e] * int(np.prod([int(n) for n in dims.split(",") if n])) for e, dims in re.findall(r"(\w+)\[([\d,]*)\]", result))
        n = _members(rest, devices)
        factor = {"all-reduce": 2 * (n - 1) / n, "all-gather": (n - 1) / n, "reduce-scatter": n - 1, "all-to-all": (n - 1) / n,
                  "collective-permute": 1}[kind]  # fmt: skip
        total += round(size * factor)
        kinds.append(kind)
    return total, kinds


def products() -> Iterator[Program]:
    """Matrix products in every sharding of both factors and the result over two axes, each used once or not at all."""
    devices = np.array(jax.devices()[:4]).reshape(2, 2)
    mesh = Mesh(devices, ("x", "y"))
    choices = (P(None, None), P("x", None), P(None, "x"), P("x", "y"))
    for a, b, c in product(choices, choices, (P(None, None), P("x", None), P(None, "y"), P("x", "y"))):
        yield f"product {a} {b} -> {c}", lambda x, w: x @ w, mesh, (a, b), c, ((8, 16), (16, 32))


def layers() -> Iterator[Program]:
    d4, d22 = Mesh(np.array(jax.devices()[:4]), ("x",)), Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
    d8 = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))

    def mlp(x: Any, a: Any, b: Any) -> Any:
        return jax.nn.gelu(x @ a) @ b

    def loss(a: Any, b: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jax.nn.relu(x @ a) @ b - y) ** 2)

    def step(a: Any, b: Any, x: Any, y: Any) -> Any:
        ga, gb = jax.grad(loss, argnums=(0, 1))(a, b, x, y)
        return a - 0.1 * ga, b - 0.1 * gb

    def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = ((x @ w).reshape(batch, length, 4, width // 4) for w in (wq, wk, wv))
        p = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2, -1)
        return jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(batch, length, width) @ wo

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def block(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, a: Any, b: Any) -> Any:
        x = x + attention(norm(x), wq, wk, wv, wo)
        return x + jax.nn.gelu(norm(x) @ a) @ b

    def train(x: Any, *weights: Any) -> Any:
        gradients = jax.grad(lambda w: jnp.mean(block(x, *w) ** 2))(weights)
        return tuple(w - 0.1 * g for w, g in zip(weights, gradients, strict=True))

    sizes = ((16, 32), (32, 16), (8, 16), (8, 16))
    yield "MLP, tensor parallel", mlp, d4, (P(), P(None, "x"), P("x")), P(), ((8, 16), (16, 32), (32, 16))
    yield "MLP, data and tensor", mlp, d22, (P("x"), P(None, "y"), P("y")), P("x"), ((8, 16), (16, 32), (32, 16))
    yield "MLP, sequence parallel", mlp, d4, (P("x"), P(None, "x"), P("x")), P("x"), ((64, 16), (16, 32), (32, 16))
    yield "step, data", step, d4, (P(), P(), P("x"), P("x")), (P(), P()), sizes
    yield "step, parameters in parts", step, d4, (P("x"), P("x"), P("x"), P("x")), (P("x"), P("x")), sizes
    yield "step, tensor", step, d4, (P(None, "x"), P("x"), P(), P()), (P(None, "x"), P("x")), sizes
    yield "step, both", step, d22, (P(None, "y"), P("y"), P("x"), P("x")), (P(None, "y"), P("y")), sizes
    heads = (P(None, "x"), P(None, "x"), P(None, "x"), P("x"))
    yield "attention, heads", attention, d4, (P(), *heads), P(), ((2, 8, 16), *[(16, 16)] * 4)
    yield "attention, sequence", attention, d4, (P(None, "x"), P(), P(), P(), P()), P(None, "x"), ((2, 8, 16), *[(16, 16)] * 4)
    yield "attention, batch", attention, d4, (P("x"), P(), P(), P(), P()), P("x"), ((4, 8, 16), *[(16, 16)] * 4)
    shapes = ((4, 8, 16), *[(16, 16)] * 4, (16, 64), (64, 16))
    weights = (*heads, P(None, "x"), P("x"))
    both = tuple(P(*("y" if axis == "x" else axis for axis in w)) for w in weights)
    yield "block, tensor", block, d4, (P(), *weights), P(), shapes
    yield "training, data", train, d4, (P("x"), *[P()] * 6), (P(),) * 6, shapes
    yield "training, tensor", train, d4, (P(), *weights), weights, shapes
    yield "training, both", train, d8, (P("x"), *both), both, shapes


def others() -> Iterator[Program]:
    d4, d22 = Mesh(np.array(jax.devices()[:4]), ("x",)), Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
    rows, columns = P("x", None), P(None, "x")

    def convolution(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def diffusion(x: Any) -> Any:
        w = jnp.array([[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]])[:, :, None, None]
        return jax.lax.fori_loop(0, 100, lambda i, u: convolution(u, w), x)

    def experts(x: Any, gate: Any, up: Any) -> Any:
        chosen = jax.nn.softmax(x @ gate)
        return jnp.einsum("te,td,edf->tf", chosen, x, up)

    def scan(x: Any, ws: Any) -> Any:
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)[0]

    yield "softmax of rows", lambda x: jax.nn.softmax(x, -1), d4, (rows,), rows, ((8, 16),)
    yield "softmax across", lambda x: jax.nn.softmax(x, -1), d4, (columns,), columns, ((8, 16),)
    yield "sort of rows", lambda x: jnp.sort(x, 1), d4, (rows,), rows, ((8, 16),)
    yield "sort across", lambda x: jnp.sort(x, 1), d4, (columns,), columns, ((8, 16),)
    yield "argmax of rows", lambda x: jnp.argmax(x, 1), d4, (rows,), P("x"), ((8, 16),)
    yield "cumulative sum of rows", lambda x: jnp.cumsum(x, 1), d4, (rows,), rows, ((8, 16),)
    yield "cumulative sum across", lambda x: jnp.cumsum(x, 1), d4, (columns,), columns, ((8, 16),)
    yield "FFT of rows", lambda x: jnp.abs(jnp.fft.fft(x)), d4, (rows,), rows, ((8, 16),)
    yield "FFT across", lambda x: jnp.abs(jnp.fft.fft(x)), d4, (columns,), columns, ((8, 16),)
    yield "mean of all", lambda x: jnp.mean(x), d22, (P("x", "y"),), P(), ((8, 16),)
    yield "norm of columns", lambda x: jnp.sqrt((x * x).sum(0)), d4, (rows,), P("x"), ((8, 16),)
    yield "transpose", lambda x: x.T, d4, (rows,), rows, ((8, 16),)
    yield "reshape", lambda x: x.reshape(4, 2, 16).sum(1), d4, (rows,), rows, ((8, 16),)
    yield "reshape that cuts", lambda x: x.reshape(2, 4, 16).sum(1), d4, (rows,), P(), ((8, 16),)
    yield "embedding, columns", lambda t, i: t[i], d4, (columns, P()), columns, ((16, 8), jax.ShapeDtypeStruct((4,), jnp.int32))
    yield "embedding, batch", lambda t, i: t[i], d4, (P(), P("x")), rows, ((16, 8), jax.ShapeDtypeStruct((4,), jnp.int32))
    yield "embedding, rows", lambda t, i: t[i], d4, (rows, P()), P(), ((64, 8), jax.ShapeDtypeStruct((4,), jnp.int32))
    yield "convolution, batch", convolution, d4, (rows, P()), rows, ((4, 8, 8, 3), (3, 3, 3, 4))
    yield "convolution, features", convolution, d4, (P(), P(None, None, None, "x")), P(None, None, None, "x"), ((2, 8, 8, 3), (3, 3, 3, 4))
    yield "convolution, channels", convolution, d4, (P(None, None, None, "x"), P(None, None, "x")), P(), ((2, 8, 8, 4), (3, 3, 4, 4))
    yield "convolution, image rows", convolution, d4, (P(None, "x"), P()), P(None, "x"), ((2, 16, 8, 3), (3, 3, 3, 4))
    yield "diffusion, 100 steps", diffusion, d4, (P(None, "x"),), P(None, "x"), ((1, 16, 16, 1),)
    yield "mixture of experts", experts, d4, (P(), P(None, "x"), P("x")), P(), ((8, 16), (16, 4), (4, 16, 8))
    yield "layers in a scan", scan, d4, (rows, P()), rows, ((8, 16), (3, 16, 16))


def _numbers(chance: np.random.Generator, s: Any) -> np.ndarray:
    """An argument: integers are below four, as indices are."""
    if s.dtype.kind in "iu":
        return chance.integers(0, 4, s.shape).astype(s.dtype)
    made = chance.normal(size=s.shape) / 4
    if s.dtype.kind == "c":
        made = made + 1j * chance.normal(size=s.shape) / 4
    return made > 0 if s.dtype.kind == "b" else made.astype(s.dtype)


def compared(program: Program) -> dict[str, Any]:
    _, f, mesh, given, made, shapes = program
    spread: Any = jax.tree.map(lambda p: NamedSharding(mesh, p), (given, made), is_leaf=lambda p: isinstance(p, P))
    structs = [s if isinstance(s, jax.ShapeDtypeStruct) else jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    lowered = jax.jit(f, in_shardings=spread[0], out_shardings=spread[1]).lower(*structs)
    module = hlo.parse(lowered.as_text())
    part = partition(module, network=Network(latency_seconds=1e-12, work_per_second=1e18))  # bytes alone count
    chance = np.random.default_rng(0)
    arrays = [_numbers(chance, s) for s in structs]
    whole = [np.asarray(r) for r in jax.tree.leaves(f(*map(jnp.asarray, arrays)))]
    n = part.mesh.size
    tiles = [np.array(s.shard(a, p), order="C") for p in range(n) for s, a in zip(part.arguments, arrays, strict=True)]
    found = interp.run_parallel(part.module, [["main"] * n], *tiles)
    worst = 0.0
    for k, (s, t) in enumerate(zip(part.results, part.result_types, strict=True)):
        joined = np.asarray(s.joined([np.asarray(found[p * len(whole) + k]) for p in range(n)], t.static_shape))
        exact, size = (a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in (whole[k], np.abs(whole[k])))
        worst = max(worst, float(np.max(np.abs(joined.astype(exact.dtype) - exact) / (1 + size)) if joined.size else 0.0))
    text = lowered.compile().as_text()
    assert text is not None
    theirs, kinds = sent_by_jax(text, n)
    ours = [c.kind for c in part.communications]
    return {"ours": part.sent_bytes, "jax": theirs, "ours_by": ours, "jax_by": kinds, "error": worst, "whole": list(part.kept_whole)}


def main() -> None:
    wanted = sys.argv[1:]
    programs = [*products(), *layers(), *others(), *more(), *by_hand(), *last(), *kinds(), *forms()]
    found: dict[str, Any] = {}
    for p in programs:
        if not wanted or any(w in p[0] for w in wanted):
            try:
                found[p[0]] = compared(p)
            except Exception as e:  # noqa: BLE001 (one row of the table)
                found[p[0]] = {"failed": f"{type(e).__name__}: {e}"}
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
