"""`tilewright plan --mesh`: what each process of a mesh holds, computes and sends, without the processes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from codegen.remembered.network import calibrated_network
from hlo.errors import TilewrightError
from hlo.module import Module
from tilewright.commands import programs, report
from tiling.mesh.mesh import Mesh
from tiling.mesh.partition import Partitioned, partition
from tiling.mesh.shardings import shown
from tiling.words import amount

__all__ = ["run"]


def run(args: argparse.Namespace, axes: dict[str, int]) -> int:
    """Prints the partition of a program in the global view for a mesh, and how it grows to it."""
    module = programs.load(args.file)
    function = programs.entry_of(module, args.entry, args.file)
    made = partition(module, function.name, Mesh(axes), calibrated_network(), memory_bytes=args.memory)
    growth = list(_growth(module, function.name, axes, made))
    if args.json:
        document = {
            "schema": "tilewright.plan.mesh/1", "file": args.file, "entry": function.name, "mesh": axes,
            "arguments": [str(s) for s in made.arguments], "results": [str(s) for s in made.results],
            "communications": [
                {
                    "kind": c.kind, "along": shown(c.digits), "value": c.value, "sent_bytes": c.sent_bytes,
                    "reason": c.reason, "alternative": c.alternative, "times": c.times,
                }
                for c in made.communications
            ],
            "kept_whole": list(made.kept_whole), "growth": growth,
        }  # fmt: skip
        print(json.dumps(report.jsonable(document), indent=2, allow_nan=False))
        return 0
    print(report.printable(made.explain()))
    print(f"\nof the network: {calibrated_network()}")
    print("processes  each holds   at most  each sends  in collectives  predicted  of it work")
    for row in growth:
        if "reason" in row:
            print(report.printable(f"{row['processes']:9}  {row['reason']}"))
            continue
        print(
            f"{row['processes']:9}  {amount(row['held_bytes']):>10}  {amount(row['peak_bytes']):>8}"
            f"  {amount(row['sent_bytes']):>10}  {row['collectives']:14}"
            f"  {report.seconds_text(row['seconds']):>9}  {row['work_seconds'] / row['seconds'] if row['seconds'] else 1:9.0%}"
        )
    return 0


def _growth(module: Module, entry: str, axes: dict[str, int], made: Partitioned) -> Iterator[dict[str, Any]]:
    """The figures for meshes on the way to this one: the largest axis is doubled until it is there."""
    steps = [dict(axes)]
    while max(steps[-1].values()) > 1:
        last = steps[-1]
        widest = max(last, key=lambda name: last[name])
        steps.append({**last, widest: max(last[widest] // 2, 1)})
    for step in reversed(steps):
        mesh = Mesh(step)
        if mesh.size == 1:
            continue
        try:
            found = made if step == axes else partition(module, entry, mesh, calibrated_network())
        except TilewrightError as e:
            yield {"mesh": step, "processes": mesh.size, "reason": str(e)}
            continue
        yield {
            "mesh": step, "processes": mesh.size, "held_bytes": found.held_bytes,
            "peak_bytes": found.peak_bytes, "sent_bytes": found.sent_bytes,
            "collectives": len(found.communications), "seconds": found.seconds, "work_seconds": found.work_seconds,
        }  # fmt: skip
