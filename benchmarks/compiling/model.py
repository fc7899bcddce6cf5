"""The cost model against measurements: does it choose tile sizes that are nearly the best?

    python -m benchmarks.compiling.model [--candidates N] [--repeat N] [--only NAMES]

For each workload every fusion's most promising tile sizes are compiled and timed in turns (results checked against the
evaluator first); the model's choice and the fastest one are then timed again, alone, so that the winner is not the luckiest.
Printed: the time of the model's choice over the best measured one, predicted over measured time, and what share of the
workloads is within 10 % of the best. Plans and rates are kept in a folder that is removed afterwards, not in the user's cache.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import numpy as np

import codegen
import hlo
import interp
import tiling
from codegen.supports import supports
from codegen.tune.autotune import measured_tiles
from codegen.tune.calibrate import calibrate
from hlo.errors import Declined
from tilewright.check import compare
from tilewright.inputs import random_arrays
from tiling.machine import Machine
from tiling.planning.search import ranked_tiles

ROOT = Path(__file__).parents[2]
NEAR = 1.1


@dataclass(frozen=True)
class Choice:
    """One fusion: seconds of the model's tile sizes as predicted and as measured, and of the best measured ones."""

    predicted_seconds: float
    chosen_seconds: float
    best_seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--only", default="", help="workloads, separated by commas")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWRIGHT_CACHE"] = folder
        machine = calibrate()
        print(f"machine, measured: {machine}, clock {machine.hertz / 1e9:.2f} GHz, launch {machine.launch_seconds * 1e6:.1f} us")
        workloads: dict[str, list[Choice]] = {}
        for path in sorted([*(ROOT / "examples").glob("*.mlir"), *(ROOT / "tests" / "programs").glob("*.mlir")]):
            if not wanted or path.stem in wanted:
                workloads[path.stem] = _workload(path, machine, options.candidates, options.repeat)
    fusions = [c for mine in workloads.values() for c in mine]
    if not fusions:
        return
    ratios = [sum(c.chosen_seconds for c in mine) / sum(c.best_seconds for c in mine) for mine in workloads.values() if mine]
    near = [c.chosen_seconds <= NEAR * c.best_seconds for c in fusions]
    mean = exp(sum(log(c.predicted_seconds / c.chosen_seconds) for c in fusions) / len(fusions))
    print(f"{len(ratios)} workloads: {sum(r <= NEAR for r in ratios) / len(ratios):.0%} within 10 % of the best measured")
    print(f"{len(fusions)} fusions: {sum(near) / len(near):.0%}; predicted/measured {mean:.2f} (geometric mean)")


def _workload(path: Path, machine: Machine, candidates: int, repeat: int) -> list[Choice]:
    module = hlo.load(path)
    arrays = random_arrays(module.entry, 0)
    found, expected = codegen.compile(module)(*arrays), interp.evaluate(module, *arrays)
    if not all(compare(np.asarray(a), np.asarray(b)).passed for a, b in zip(found, expected, strict=True)):
        raise SystemExit(f"{path.stem}: the kernels' results are wrong")
    base = tiling.plan(module, machine=machine, supports=supports)
    choices = []
    for number, fusion in enumerate(base.fusions):
        ranked = ranked_tiles(fusion.stages, frozenset(fusion.outputs), base.machine, base.names)
        if isinstance(ranked, Declined):
            continue
        chosen = fusion.tile_sizes
        sizes = list(dict.fromkeys([chosen, *(c.schedule.tile_sizes for c in ranked[:candidates])]))
        timed = measured_tiles(base, number, sizes, arrays, repeat)
        best = min(timed, key=lambda t: timed[t])
        again = measured_tiles(base, number, [chosen, best], arrays, 3 * repeat) if best != chosen else timed
        best = min(again, key=lambda t: again[t])
        choices.append(Choice(fusion.estimate.seconds, again[chosen], again[best]))
        print(
            f"{path.stem:24s} {fusion.name:22s} chosen {list(chosen)!s:18s} {again[chosen] * 1e6:9.1f} us best {list(best)!s:18s}"
            f"  ratio {again[chosen] / again[best]:5.2f}  predicted/measured {fusion.estimate.seconds / again[chosen]:5.2f}"
            f"  of {len(timed)}",
            flush=True,
        )
    return choices


if __name__ == "__main__":
    main()
