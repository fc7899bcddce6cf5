"""How long planning takes, and how it grows: an encoder block stacked n times.

    python -m benchmarks.planning [--layers 1,12,48]

Prints the ops of the flattened program, the fusions, and the planner's CPU seconds, in all and for each op.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import hlo
import tiling

EXAMPLE = Path(__file__).parents[1] / "examples" / "encoder_block.mlir"


def stacked(layers: int) -> hlo.Module:
    """`layers` encoder blocks, each reading the one before, all with the same weights."""
    text = EXAMPLE.read_text(encoding="utf-8")
    found = re.search(r"func\.func public @main\((.*?)\) -> \(", text, re.DOTALL)
    assert found is not None
    arguments = found.group(1)
    names = re.findall(r"%arg\d+", arguments)
    types = re.findall(r"tensor<[^>]*>", arguments)
    calls, x = [], names[0]
    for k in range(layers):
        calls.append(f"    %l{k} = call @layer({', '.join([x, *names[1:]])}) : ({', '.join(types)}) -> {types[0]}")
        x = f"%l{k}"
    main = (
        f"func.func public @main({arguments}) -> {types[0]} {{\n"
        + "\n".join(calls)
        + f"\n    return {x} : {types[0]}\n  }}\n  "
    )
    text = text.replace("func.func public @main", "func.func private @layer")
    place = text.index("func.func private @layer")
    return hlo.parse(text[:place] + main + text[place:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", default="1,3,12,48", help="how many blocks to stack (default: 1,3,12,48)")
    tiling.plan(stacked(1))
    for layers in map(int, parser.parse_args().layers.split(",")):
        module = stacked(layers)
        hlo.verify(module)
        start = time.process_time()
        plan = tiling.plan(module)
        spent = time.process_time() - start
        ops = len(plan.program.ops)
        print(
            f"{layers:4d} layers {ops:6d} ops {len(plan.fusions):5d} fusions {spent:7.2f} s {spent / ops * 1e3:6.2f} ms an op",
            flush=True,
        )


if __name__ == "__main__":
    main()
