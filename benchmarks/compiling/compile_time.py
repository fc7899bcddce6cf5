"""How long the first result takes, from nothing and from the disk cache, and how that grows with a program's ops.

    python -m benchmarks.compiling.compile_time [FILE.mlir ...] [--ops 500,1000,2000,5000]

Each figure is of a fresh process, its imports apart, with an empty cache folder (cold) and once more with the same (warm).
Without files: the examples, a chain of elementwise ops and a stack of equal blocks of each size, the latter as `same-N`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

FIRST_RESULT = """
import sys, time
import hlo, codegen
from tilewright.inputs import random_arrays
text = sys.stdin.read()
arrays = random_arrays(hlo.parse(text).entry, 0)
started = time.perf_counter()
plan = codegen.remembered_plan(hlo.parse(text))
planned = time.perf_counter()
exe = codegen.compile(plan)
compiled = time.perf_counter()
exe(*arrays)
done = time.perf_counter()
print(planned - started, compiled - planned, done - compiled, len(plan.program.ops), len(exe.kernels), exe.stats.compiled)
"""


def chain(ops: int) -> str:
    """x -> |x - y|, again and again."""
    t = "tensor<256x256xf32>"
    lines = [f"func.func @main(%x: {t}, %y: {t}) -> {t} {{"]
    x = "%x"
    for k in range(0, ops, 2):
        lines += [f"  %v{k} = stablehlo.subtract {x}, %y : {t}", f"  %v{k + 1} = stablehlo.abs %v{k} : {t}"]
        x = f"%v{k + 1}"
    return "\n".join([*lines, f"  return {x} : {t}", "}"])


def blocks(ops: int) -> str:
    """tanh(x w + b) + x, again and again: equal kernels for equal blocks, whatever the names in them."""
    t, w, b = "tensor<64x128xf32>", "tensor<128x128xf32>", "tensor<128xf32>"
    count = max(1, ops // 5)
    arguments = ", ".join([f"%x: {t}", *(f"%w{k}: {w}, %b{k}: {b}" for k in range(count))])
    lines = [f"func.func @main({arguments}) -> {t} {{"]
    x = "%x"
    for k in range(count):
        lines += [
            f"  %d{k} = stablehlo.dot_general {x}, %w{k}, contracting_dims = [1] x [0] : ({t}, {w}) -> {t}",
            f"  %c{k} = stablehlo.broadcast_in_dim %b{k}, dims = [1] : ({b}) -> {t}",
            f"  %e{k} = stablehlo.add %d{k}, %c{k} : {t}",
            f"  %f{k} = stablehlo.tanh %e{k} : {t}",
            f"  %g{k} = stablehlo.add %f{k}, {x} : {t}",
        ]
        x = f"%g{k}"
    return "\n".join([*lines, f"  return {x} : {t}", "}"])


def measured(text: str) -> list[list[str]]:
    """The fields that FIRST_RESULT prints, cold and warm."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE": folder}
        command = [sys.executable, "-P", "-c", FIRST_RESULT]
        return [
            subprocess.run(command, env=env, input=text, capture_output=True, text=True, check=True).stdout.split()
            for _ in range(2)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--ops", default="500,1000,2000,5000", help="sizes of the made programs (default: 500,1000,2000,5000)")
    options = parser.parse_args()
    files: list[Path] = options.files
    programs = {p.stem: p.read_text(encoding="utf-8") for p in files or sorted((ROOT / "examples").glob("*.mlir"))}
    if not files:
        for size in map(int, options.ops.split(",")):
            programs |= {f"chain-{size}": chain(size), f"same-{size}": blocks(size)}
    heads = "     ops  kernels  compiled    plan  compile    run    cold   warm"
    print(f"{'program':24s}{heads}")
    for name, text in programs.items():
        cold, warm = measured(text)
        times = [float(x) for x in cold[:3]]
        again = sum(float(x) for x in warm[:3])
        print(
            f"{name:24s} {cold[3]:>6s} {cold[4]:>8s} {cold[5]:>9s} {times[0]:7.2f} {times[1]:8.2f} {times[2]:6.2f} "
            f"{sum(times):7.2f} {again:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
