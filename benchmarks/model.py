"""The cost model against measurements: does it choose tile sizes that are nearly the best?

    python -m benchmarks.model [--candidates N] [--only NAMES]

For each workload every fusion's most promising tile sizes are compiled and timed (results checked against the evaluator
first). Printed: the time of the model's choice over the best measured one, and predicted over measured time.
"""

from __future__ import annotations

import argparse
from math import exp, log
from pathlib import Path

import numpy as np

import codegen
import hlo
import interp
from tilewright.check import compare
from tilewright.inputs import random_arrays

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--only", default="", help="workloads, separated by commas")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    ratios: list[float] = []
    predictions: list[float] = []
    for path in sorted([*(ROOT / "examples").glob("*.mlir"), *(ROOT / "tests" / "programs").glob("*.mlir")]):
        if wanted and path.stem not in wanted:
            continue
        module = hlo.load(path)
        arrays = random_arrays(module.entry, 0)
        found, expected = codegen.compile(module)(*arrays), interp.evaluate(module, *arrays)
        if not all(compare(np.asarray(a), np.asarray(b)).passed for a, b in zip(found, expected, strict=True)):
            print(f"{path.stem:26s} WRONG")
            continue
        _, trials = codegen.autotune(module, *arrays, candidates=options.candidates, repeat=7, seconds=120)
        by_fusion: dict[str, list[codegen.Trial]] = {}
        for t in trials:
            by_fusion.setdefault(t.fusion, []).append(t)
        for fusion, mine in by_fusion.items():
            best = min(mine, key=lambda t: t.measured_seconds)
            ratio = mine[0].measured_seconds / best.measured_seconds
            prediction = mine[0].predicted_seconds / mine[0].measured_seconds
            ratios.append(ratio)
            predictions.append(prediction)
            print(
                f"{path.stem:26s} {fusion:28s} chosen {list(mine[0].tile_sizes)!s:20s} best {list(best.tile_sizes)!s:20s}"
                f" chosen/best {ratio:5.2f}  predicted/measured {prediction:5.2f}  of {len(mine)}",
                flush=True,
            )
    near = sum(r <= 1.1 for r in ratios) / max(len(ratios), 1)
    mean = exp(sum(map(log, predictions)) / max(len(predictions), 1))
    print(
        f"{len(ratios)} fusions: {near:.0%} of the choices within 10 % of the best measured; predicted/measured {mean:.2f} (mean)"
    )


if __name__ == "__main__":
    main()
