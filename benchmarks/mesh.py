"""Programs over a mesh in time: processes over MPI, one process on several threads, JAX on virtual devices, in turns in one run.

    python -m benchmarks.mesh                     two processes, two threads, two devices of JAX's
    python -m benchmarks.mesh --scaling 1,2,4     strong and weak scaling, with what the model predicts

All groups are started first and wait; then each is told in turn to run every program a few times. A time is that from one
beginning to the end of the slowest process. For the scaling a process has one thread. What is predicted is the measured time of
one process, shared out among as many as the machine has cores for, and the network's model for what is sent (`tilewright
calibrate --mpi`). What does not agree with one process within 1e-4 is told and not timed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hlo.cpus import usable_cpus

ROOT = pathlib.Path(__file__).resolve().parent.parent
REPEATS, ROUNDS = 8, 6
_HEAD_START_SECONDS = 2e-4  # in which all processes of a group hear when to begin (the clock is the machine's)


Made = dict[str, tuple[Callable[[], Any], Callable[[], list[np.ndarray]], float]]
"""Name -> a call, its whole results, the seconds that the model gives what is sent."""


def programs(grows: int = 1) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, tuple[tuple[int, ...], ...]]]:
    """Name -> function, axes of arguments and results ("" for whole), shapes. `grows` times the rows that are spread."""
    import jax
    import jax.numpy as jnp

    def mlp(x: Any, a: Any, b: Any) -> Any:
        return jnp.tanh(x @ a) @ b

    def step(a: Any, b: Any, x: Any, y: Any) -> Any:
        loss = jax.grad(lambda w: jnp.mean((jax.nn.relu(x @ w[0]) @ w[1] - y) ** 2))
        ga, gb = loss((a, b))
        return a - 0.1 * ga, b - 0.1 * gb

    def diffusion(u: Any) -> Any:
        def once(i: Any, u: Any) -> Any:
            p = jnp.pad(u, ((1, 1), (0, 0)))
            return 0.8 * u + 0.1 * (p[:-2] + p[2:])

        return jax.lax.fori_loop(0, 50, once, u)

    def attention(q: Any, k: Any, v: Any) -> Any:
        s = jnp.einsum("hqd,hkd->hqk", q, k) / 8
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(s, -1), v)

    rows, columns, heads = ("x", None), (None, "x"), ("x", None, None)
    n = 512 * grows
    return {
        "MLP, data": (mlp, (rows, (), ()), rows, ((n, 512), (512, 1024), (1024, 512))),
        "MLP, tensor": (mlp, ((), columns, rows), (), ((512, 512), (512, 1024 * grows), (1024 * grows, 512))),
        "training step, data": (step, ((), (), rows, rows), ((), ()), ((256, 512), (512, 256), (n, 256), (n, 256))),
        "attention, heads": (attention, (heads, heads, heads), heads, ((4 * grows, 512, 64),) * 3),
        "diffusion, 50 steps": (diffusion, (rows,), rows, ((2 * n, 512),)),
    }


def arrays_of(shapes: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    """The same arrays in every group."""
    chance = np.random.default_rng(0)
    return [chance.normal(size=s).astype(np.float32) / 16 for s in shapes]


# ---------------------------------------------------------------- groups


def shardings_of(mesh: Any, given: tuple[Any, ...], result: Any) -> tuple[Any, Any]:
    """Of arguments and results, as JAX has them."""
    from jax.sharding import NamedSharding, PartitionSpec

    spec: Any = PartitionSpec
    many = bool(result) and isinstance(result[0], tuple)
    outs = tuple(NamedSharding(mesh, spec(*r)) for r in result) if many else NamedSharding(mesh, spec(*result))
    return tuple(NamedSharding(mesh, spec(*g)) for g in given), outs


def gathered(call: Callable[[], Any]) -> list[np.ndarray]:
    """The whole results of a call on all processes."""
    return [r.gather() for r in call()]


def as_arrays(call: Callable[[], Any]) -> list[np.ndarray]:
    """The results of a call on one process."""
    return [np.asarray(r) for r in call()]


def ours(names: list[str], grows: int) -> Made:
    """The programs on this process's part of a mesh of all processes that were started."""
    import jax
    from jax.sharding import AbstractMesh

    import tilewright
    from codegen.mpi.channel import the_channel

    n = the_channel().size
    mesh = AbstractMesh((n,), ("x",))
    made: Made = {}
    for name, (f, given, result, shapes) in programs(grows).items():
        if name not in names:
            continue
        ins, outs = shardings_of(mesh, given, result)
        run = tilewright.jit(f, in_shardings=ins, out_shardings=outs, mesh=tilewright.Mesh({"x": n}))
        whole = tilewright.Mesh({"x": n})
        arrays = [whole.array(a, g) for a, g in zip(arrays_of(shapes), given, strict=True)]
        part = run.executable(*arrays).spread
        sent = part.seconds - part.work_seconds if part is not None else 0.0

        def call(run: Any = run, arrays: list[Any] = arrays) -> Any:
            return jax.tree.leaves(run(*arrays))

        made[name] = call, functools.partial(gathered, call), sent
    return made


def one_process(names: list[str], grows: int, threads: int) -> Made:
    """The programs on one process."""
    import jax

    import tilewright

    made: Made = {}
    for name, (f, _, _, shapes) in programs(grows).items():
        if name in names:
            run, arrays = tilewright.jit(f, output="numpy", threads=threads), arrays_of(shapes)

            def call(run: Any = run, arrays: list[Any] = arrays) -> Any:
                return jax.tree.leaves(run(*arrays))

            made[name] = call, functools.partial(as_arrays, call), 0.0
    return made


def jaxs(names: list[str], grows: int, devices: int) -> Made:
    """The programs by JAX on virtual devices."""
    import jax
    from jax.sharding import Mesh

    mesh = Mesh(np.array(jax.devices()[:devices]), ("x",))
    made: Made = {}
    for name, (f, given, result, shapes) in programs(grows).items():
        if name not in names:
            continue
        ins, outs = shardings_of(mesh, given, result)
        run = jax.jit(f, in_shardings=ins, out_shardings=outs)
        arrays = [jax.device_put(a, s) for a, s in zip(arrays_of(shapes), ins, strict=True)]

        def call(run: Any = run, arrays: list[Any] = arrays) -> Any:
            return [r.block_until_ready() for r in jax.tree.leaves(run(*arrays))]

        made[name] = call, functools.partial(as_arrays, call), 0.0
    return made


def alone(value: Any) -> list[Any]:
    """What the only process of a group gathers."""
    return [value]


def worker(kind: str, count: int, grows: int, names: list[str]) -> None:
    """A group: says what its results are, then, for each name that it is told, the seconds of a call."""
    rank, everyone = 0, alone
    if kind == "mpi":
        from codegen.mpi.channel import the_channel

        channel: Any = the_channel()
        rank, everyone = channel.rank, channel.gather
    made = ours(names, grows) if kind == "mpi" else {"threads": one_process, "jax": jaxs}[kind](names, grows, count)
    sums = {}
    for name, (_, whole, _) in made.items():
        results = [r.astype(np.float64) for r in whole()]
        sums[name] = [[float(r.sum()), float(np.abs(r).sum())] for r in results]
    if rank == 0:
        print(json.dumps({"sums": sums, "sent": {name: m[2] for name, m in made.items()}}), flush=True)
    while True:
        (name,) = {n for n in everyone(sys.stdin.readline().strip() if rank == 0 else None) if n is not None}
        if not name:
            return
        call, spent = made[name][0], []
        call()
        for _ in range(REPEATS):
            # One beginning for all: where there are more processes than CPUs, one that starts late would seem to take less.
            begin = max(everyone(time.perf_counter())) + _HEAD_START_SECONDS
            while time.perf_counter() < begin:
                pass
            call()
            spent.append(max(everyone(time.perf_counter())) - begin)
        if rank == 0:
            print(json.dumps(min(spent)), flush=True)


class Group:
    """Processes that wait to be told what to run."""

    def __init__(self, kind: str, count: int, names: list[str], grows: int = 1, threads: int | None = None) -> None:
        self.kind, self.count = kind, count
        numbers = ["--count", str(count), "--grows", str(grows)]
        command = [sys.executable, "-P", "-m", "benchmarks.mesh", "--worker", kind, *numbers, *names]
        if kind == "mpi":
            mpiexec = str(pathlib.Path(sys.executable).parent / "mpiexec")
            command = [mpiexec, "-launcher", "fork", "-localhost", "127.0.0.1", "-n", str(count), *command]
        flags = f"--xla_force_host_platform_device_count={count}" if kind == "jax" else ""
        environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
        if threads is not None:
            environment["TILEWRIGHT_NUM_THREADS"] = str(threads)
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.kind} on {self.count} has ended: {self._process.wait()}")
        return line

    def seconds(self, name: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._line()))

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.close()
        self._process.wait(60)


def agrees(a: Any, b: Any) -> bool:
    return all(abs(x[0] - y[0]) <= 1e-4 * (1 + max(x[1], y[1])) for x, y in zip(a, b, strict=True))


def in_turns(groups: list[Group], name: str) -> list[float]:
    """The best of each group's calls, in rounds in which each has its turn: what other work on the machine adds is left out."""
    rows = [[g.seconds(name) for g in groups] for _ in range(ROUNDS)]
    return [min(column) for column in zip(*rows, strict=True)]


def compare(names: list[str], count: int) -> None:
    groups = [Group("mpi", count, names), Group("threads", count, names), Group("jax", count, names)]
    titles = f"{count} processes, ms | one, {count} threads | JAX, {count} devices | threads / processes | JAX / processes"
    print(f"| program | {titles} |\n|---|---|---|---|---|---|", flush=True)
    for name in names:
        if not all(agrees(g.first["sums"][name], groups[0].first["sums"][name]) for g in groups):
            print(f"| {name} | the results differ |")
            continue
        a, b, c = in_turns(groups, name)
        print(f"| {name} | {a * 1e3:.2f} | {b * 1e3:.2f} | {c * 1e3:.2f} | {b / a:.2f} | {c / a:.2f} |", flush=True)
    for g in groups:
        g.end()


def scale(names: list[str], counts: list[int]) -> None:
    for title, grow in (("strong", False), ("weak", True)):
        groups = [Group("mpi", n, names, n if grow else 1, threads=1) for n in counts]
        shown = " | ".join(f"{n}, ms | predicted" for n in counts)
        print(f"\n| {title} scaling, processes | {shown} |\n|---{'|---|---' * len(counts)}|", flush=True)
        for name in names:
            found = in_turns(groups, name)
            cells = []
            for g, n, t in zip(groups, counts, found, strict=True):
                alone = found[0] * counts[0] * (1 if not grow else n / counts[0])  # the work of all, on one process
                cells.append(f"{t * 1e3:.2f} | {(alone / min(n, usable_cpus()) + g.first['sent'][name]) * 1e3:.2f}")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        for g in groups:
            g.end()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", help="programs (default: all)")
    p.add_argument("--count", type=int, default=2)
    p.add_argument("--scaling", metavar="1,2,4")
    p.add_argument("--worker", choices=("mpi", "threads", "jax"))
    p.add_argument("--grows", type=int, default=1)
    args = p.parse_args()
    if args.worker:
        worker(args.worker, args.count, args.grows, args.names)
        return
    names = args.names or list(programs())
    if args.scaling:
        scale(names, [int(n) for n in args.scaling.split(",")])
    else:
        compare(names, args.count)


if __name__ == "__main__":
    main()
