"""Dimensions that no mesh divides, beside XLA's partitioner: `python -m tests.mesh.jax_uneven` prints JSON.

`jax.jit` refuses such shardings of arguments and results; XLA takes them inside of a program. So each function is lowered
without shardings, its arguments and its first result are constrained by `sdy.sharding_constraint`, and both partitioners get this
text. Arguments and results are whole: where tiles of them are read, nothing is sent; the result is brought together in both.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

if __name__ == "__main__":  # not where pytest imports this: other tests' processes would have these devices, too
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import backend
from jaxlib import xla_client
from jaxlib.mlir import ir

import hlo
import interp
from tests.mesh import jax_worker
from tests.mesh.jax_last import block, block_gradient, diffusion, recurrent, selective_scan, unet
from tiling.mesh.network import Network
from tiling.mesh.partition import partition

Program = tuple[str, Callable[..., Any], str, tuple[str, ...], tuple[Any, ...]]
"""Name, function, mesh, shardings of arguments ("" for whole) and of the result behind them, shapes of arguments."""


def mlp(x: Any, a: Any, b: Any) -> Any:
    return jnp.tanh(x @ a) @ b


def step(a: Any, b: Any, x: Any, y: Any) -> Any:
    g = jax.grad(lambda a: jnp.mean((jax.nn.relu(x @ a) @ b - y) ** 2))(a)
    return a - 0.1 * g


def attention(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) / 2, -1), v)


def stencil(u: Any) -> Any:
    def once(i: Any, u: Any) -> Any:
        p = jnp.pad(u, 1)
        return 0.6 * u + 0.1 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])

    return lax.fori_loop(0, 8, once, u)


def programs() -> Iterator[Program]:
    rows, columns, both, line = '[{"x"}, {}]', '[{}, {"x"}]', '[{"x"}, {"y"}]', '[{"x"}]'
    four, six, three, eight = '"x"=4', '"x"=3, "y"=2', '"x"=3', '"x"=2, "y"=4'
    image, cube = '[{}, {"x"}, {}, {}]', '[{"x"}, {}, {}]'
    weights, rows_y, columns_y = ('[{}, {"y"}]',) * 3, '[{"y"}, {}]', '[{}, {"y"}]'
    layers = (*weights, rows_y, columns_y, rows_y)
    shapes = ((5, 7, 20), *[(20, 20)] * 4, (20, 33), (33, 20))
    numbers = jax.ShapeDtypeStruct((9,), jnp.int32)
    yield from (
        ("MLP, tensor", mlp, four, ("", columns, rows, ""), ((9, 17), (17, 30), (30, 11))),
        ("MLP, rows", mlp, three, (rows, "", "", rows), ((10, 17), (17, 30), (30, 11))),
        ("product in blocks", lambda a, b: a @ b, six, (both, both, both), ((17, 13), (13, 25))),
        ("product over a cut range", lambda a, b: a @ b, three, (columns, rows, ""), ((17, 13), (13, 25))),
        ("training step, batch", step, four, ("", "", rows, rows, ""), ((7, 9), (9, 5), (30, 7), (30, 5))),
        ("training step, FSDP", step, three, (rows, rows, rows, rows, rows), ((16, 20), (20, 16), (31, 16), (31, 16))),
        ("attention, heads", attention, four, (cube, cube, cube, cube), ((7, 9, 4),) * 3),
        ("attention, queries", attention, three, ('[{}, {"x"}, {}]', "", "", '[{}, {"x"}, {}]'), ((2, 10, 4),) * 3),
        ("block", block, six, (cube, *layers, cube), shapes),
        ("block, gradient", lambda *a: block_gradient(*a)[4], six, (cube, *layers, columns_y), shapes),
        ("softmax across", lambda x: jax.nn.softmax(x, 0), four, (rows, rows), ((30, 5),)),
        ("stencil, rows", stencil, four, (rows, rows), ((30, 9),)),
        ("stencil, both", stencil, eight, (both, both), ((17, 27),)),
        ("diffusion in space", diffusion, six, ('[{"x"}, {"y"}, {}]',) * 2, ((10, 11, 5),)),
        ("U-net, rows", unet, three, (image, "", "", "", image), ((1, 14, 10, 3), (3, 3, 3, 4), (3, 3, 4, 8), (3, 3, 12, 3))),
        ("sort of columns", lambda x: jnp.sort(x, 0), four, (rows, rows), ((22, 9),)),
        ("cumulative sum", lambda x: jnp.cumsum(x, 0), four, (rows, rows), ((30, 5),)),
        ("rows by number", lambda t, i: t[i], four, (rows, "", ""), ((30, 6), numbers)),
        ("sums by keys", lambda x, i: jax.ops.segment_sum(x, i, num_segments=5), four, (rows, line, ""), ((9, 6), numbers)),
        ("transpose", lambda x: x.T * 2, three, (rows, rows), ((10, 14),)),
        ("FFT", lambda x: jnp.abs(jnp.fft.fft2(x)), three, (rows, rows), ((10, 14),)),
        ("recurrent, batch", recurrent, four, ('[{}, {"x"}, {}]', "", "", '[{}, {"x"}, {}]'), ((3, 7, 6), (6, 32), (8, 32))),
        ("selective scan, sequence", selective_scan, four, ('[{}, {"x"}, {}]',) * 3, ((2, 15, 4),) * 2),
        ("roll", lambda x: jnp.roll(x, 3, 0), four, (rows, rows), ((30, 5),)),
        ("reversed", lambda x: x[::-1] * 2, four, (rows, rows), ((30, 5),)),
    )  # fmt: skip


def constrained(program: Program) -> str:
    """The text of a program whose arguments and first result are constrained to be in tiles."""
    _, f, mesh, shardings, shapes = program
    structs = [s if isinstance(s, jax.ShapeDtypeStruct) else jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    text = str(jax.jit(f).lower(*structs).as_text())
    devices = prod(int(n) for n in re.findall(r"=(\d+)", mesh))
    text = text.replace("num_partitions = 1", f"num_partitions = {devices}", 1)
    head, end, body = text.partition("func.func public @main(")
    signature, opened, body = body.partition(" {\n")
    types = re.findall(r"%arg\d+: (tensor<[^>]*>)", signature)
    inside, closing, others = body.partition("\n  }\n")

    def line(made: str, value: str, sharding: str, t: str) -> str:
        return f"    {made} = sdy.sharding_constraint {value} <@mesh, {sharding}> : {t}\n"

    lines = ""
    for k, (t, s) in enumerate(zip(types, shardings, strict=False)):
        if s:
            inside = re.sub(rf"%arg{k}\b", f"%tile{k}", inside)
            lines += line(f"%tile{k}", f"%arg{k}", s, t)
    values, t = re.findall(r"    return (%[\w#]+) : (tensor<[^>]*>)$", inside)[0]
    inside = inside[: inside.rindex("    return")]
    if shardings[len(types)]:
        inside += line("%own", values, shardings[len(types)], t)
        values = "%own"
    rank = t.count("x")
    inside += line("%whole", values, "[" + ", ".join(["{}"] * rank) + "]", t) + f"    return %whole : {t}"
    return f"{head}sdy.mesh @mesh = <[{mesh}]>\n  {end}{signature}{opened}{lines}{inside}{closing}{others}"


def xlas(text: str, devices: int) -> str:
    """The optimized HLO that XLA's partitioner makes for so many virtual devices."""
    client, options = backend.get_backend("cpu"), xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_replicas = build.num_replicas = 1
    options.num_partitions = build.num_partitions = devices
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    build.device_assignment = xla_client.DeviceAssignment.create(np.arange(devices).reshape(1, devices))
    with jax.interpreters.mlir.make_ir_context():
        module = ir.Module.parse(text)
    made = client.compile_and_load(module, xla_client.DeviceList(tuple(client.devices()[:devices])), options)
    return str(made.hlo_modules()[0].to_string())


def compared(program: Program) -> dict[str, Any]:
    f, shapes = program[1], program[4]
    text = constrained(program)
    module = hlo.parse(text)
    hlo.verify(module)
    made = partition(module, network=Network(latency_seconds=1e-12, work_per_second=1e18))
    chance = np.random.default_rng(0)
    arrays = [
        chance.normal(size=s).astype(np.float32) / 4 if isinstance(s, tuple) else chance.integers(0, 4, s.shape).astype(np.int32)
        for s in shapes
    ]
    n = made.mesh.size
    tiles = [np.array(s.shard(a, p), order="C") for p in range(n) for s, a in zip(made.arguments, arrays, strict=True)]
    found = interp.run_parallel(made.module, [["main"] * n], *tiles)
    whole = np.asarray(f(*map(jnp.asarray, arrays)))
    worst = max(float(np.max(np.abs(np.asarray(r) - whole) / (1 + np.abs(whole)))) for r in found)
    theirs, kinds = jax_worker.sent_by_jax(xlas(text, n), n)
    ours = [c.kind for c in made.communications]
    row = {"ours": made.sent_bytes, "jax": theirs, "ours_by": ours, "jax_by": kinds}
    return row | {"error": worst, "whole": list(made.kept_whole)}


def main() -> None:
    found: dict[str, Any] = {}
    for p in programs():
        if not sys.argv[1:] or any(w in p[0] for w in sys.argv[1:]):
            try:
                found[p[0]] = compared(p)
            except Exception as e:  # noqa: BLE001 (one row of the table)
                found[p[0]] = {"failed": f"{type(e).__name__}: {e}"}
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
