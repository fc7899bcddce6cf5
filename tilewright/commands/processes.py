"""`tilewright run` on many processes: each runs its part, the first one reports, and a failure of any ends all, told once."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

import codegen
import interp
from codegen.mpi.channel import the_channel
from codegen.mpi.errors import PeerError
from codegen.mpi.measure import measure_network
from codegen.mpi.mesh import Mesh
from codegen.remembered.network import remember_network
from hlo.module import Function, Module, walk
from tilewright.check import Comparison, compare
from tilewright.commands import programs, report
from tilewright.inputs import InputError, random_arrays, read_arrays, write_arrays
from tiling.mesh.annotations import has_annotations, meshes_of

__all__ = ["calibrate", "run"]

_FAILED = 2


def run(args: argparse.Namespace, axes: dict[str, int] | None, started: int) -> int:
    """One process's part of the command. Raises what failed on one process, there; the others return an exit code in silence."""
    channel = the_channel()
    try:
        code = _run(args, axes, started)
        codes: list[int] = channel.gather(code)
    except BaseException as e:  # told to the others, then raised again by one of them
        channel.failed(e)
        failed = channel.settle(not isinstance(e, PeerError))
        if failed is None:  # some process neither answers nor fails
            channel.abort(str(e))
        elif channel.rank == next((r for r, own in enumerate(failed) if own), 0):
            raise
        return _FAILED
    return max(codes)


def calibrate(args: argparse.Namespace) -> int:
    """Measures the network, keeps what was found on each machine, and prints it once."""
    channel = the_channel()
    network = measure_network(channel)
    remember_network(network)
    channel.gather(None)
    if channel.rank == 0:
        document = {"schema": "tilewright.calibrate.network/1", "processes": channel.size, **asdict(network)}
        print(json.dumps(document, indent=2) if args.json else f"{channel.size} processes: {network}")
    return 0


def _run(args: argparse.Namespace, axes: dict[str, int] | None, started: int) -> int:
    channel = the_channel()
    start = time.perf_counter()
    module = programs.load(args.file)
    declared = next((m for m in meshes_of(module).values() if m.size == started), None)
    mesh = Mesh(axes or (dict(declared.axes) if declared else {"process": started}))
    function = programs.entry_of(module, args.entry, args.file)
    rank = channel.rank
    given = [p.replace("{rank}", str(rank)) for p in args.inputs]
    is_global = has_annotations(module)  # then an array is given to all processes, and each takes its tile
    arrays = read_arrays(function, given) if given else random_arrays(function, args.seed + (0 if is_global else rank), module)
    executable = codegen.compile(module, function.name, threads=args.threads, mesh=mesh)
    results = executable(*arrays)
    walls = []
    for _ in range(args.repeat):
        begin = time.perf_counter()
        executable(*arrays)
        walls.append(time.perf_counter() - begin)
    tiles = [getattr(r, "tile", r) for r in results]
    files = write_arrays(tiles, _own_path(args.output, rank)) if args.output else []
    checks = _checked(module, function, executable, arrays, results) if args.check else None
    everyone = channel.gather({"run_median": sorted(walls)[len(walls) // 2], "files": files})
    if rank == 0:
        document = {
            "schema": "tilewright.run.mesh/1",
            "file": args.file,
            "entry": function.name,
            "mesh": dict(mesh.axes),
            "grid": list(executable.processes.grid if executable.processes else (1, 1)),
            "partition": executable.spread.explain().splitlines() if executable.spread else None,
            "fallbacks": executable.fallbacks,
            "collectives": executable.library,
            "processes": everyone,
            "seconds": time.perf_counter() - start,
            "check": None if checks is None else report.checks(checks),
        }
        _show(document, args.json)
    return 0 if checks is None or all(c.passed for c in checks) else 1


def _own_path(path: str, rank: int) -> str:
    """A process's own place for its results. Raises InputError for one place of all processes."""
    if "{rank}" not in path:
        raise InputError(f"--output {path}: expected a path with {{rank}} in it, which is each process's number")
    return path.replace("{rank}", str(rank))


def _checked(
    module: Module,
    function: Function,
    executable: codegen.Executable,
    arrays: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
) -> list[Comparison]:
    """On process 0: the results beside the simulated grid's, or the whole program's. The others are told what it found."""
    channel, spread = the_channel(), executable.spread
    is_whole = spread is not None and not any(op.name == "sdy.manual_computation" for op in walk(function.body))
    if is_whole:
        inputs, found = [tuple(arrays)], [executable.gather(results)]
    else:
        own = list(arrays)
        if spread is not None:
            own = [np.array(spread.local(k, a, channel.rank), order="C") for k, a in enumerate(arrays)]
        inputs, found = channel.gather(tuple(own)), channel.gather(tuple([getattr(r, "tile", r) for r in results]))
    checks: list[Comparison] = []
    if channel.rank == 0:
        flat = [a for process in inputs for a in process]
        if is_whole:
            expected = interp.evaluate(module, *flat, entry=function.name)
        else:
            replicas, partitions = executable.processes.grid if executable.processes else (1, 1)
            program, name = (module, function.name) if spread is None else (spread.module, "main")
            expected = interp.run_parallel(program, [[name] * partitions] * replicas, *flat)
        rows = zip([r for process in found for r in process], expected, strict=True)
        checks = [compare(np.asarray(a), np.asarray(b)) for a, b in rows]
    return list(channel.gather(checks)[0])


def _show(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.jsonable(document), indent=2, allow_nan=False))
        return
    axes = ", ".join(f"{name} = {n}" for name, n in document["mesh"].items())
    replicas, partitions = document["grid"]
    print(report.printable(f"{document['file']}: @{document['entry']} on {replicas} x {partitions} processes ({axes})"))
    for line in document["partition"] or ():
        print(report.printable(f"partition     {line}"))
    for step in document["collectives"]:
        print(report.printable(f"between them  {step}"))
    medians = [p["run_median"] for p in document["processes"]]
    print(f"warm run      {report.seconds_text(max(medians))} on the slowest, {report.seconds_text(min(medians))} on the fastest")
    for p in document["processes"]:
        for path in p["files"]:
            print(report.printable(f"written       {path}"))
    if document["check"] is not None:
        report.show_check(document["check"], document["fallbacks"])
