"""Speed of the index analysis, on a transformer of a given number of ops.

python benchmarks/compiling/indexing.py [--ops 2000]

one op       output-to-input maps of one op, median over the ops
all maps     every op's maps in both directions, and every consumer's maps composed with its producer's, simplified
slice        one element of the result back to all inputs
growth       the two above for half the ops, in proportion
awkward      reshapes of awkward factors and of rank 12
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[2]))

import hlo
import indexing
from indexing.program import composed
from indexing.regions import Region
from indexing.slices import dependencies

T = TypeVar("T")

LIMITS_MS = {"one op": 0.2, "all maps": 3000.0, "slice": 3000.0, "awkward": 3000.0}


class _Text:
    """StableHLO text of a stack of transformer layers, op by op."""

    def __init__(self, sequence: int, width: int, heads: int) -> None:
        self.lines: list[str] = []
        self.s, self.d, self.h = sequence, width, heads
        self.arguments: list[str] = []

    def argument(self, shape: str) -> str:
        name = f"%a{len(self.arguments)}"
        self.arguments.append(f"{name}: tensor<{shape}xf32>")
        return name

    def emit(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def constant(self, value: str) -> str:
        return self.emit(f"stablehlo.constant dense<{value}> : tensor<f32>")

    def binary(self, op: str, a: str, b: str, shape: str) -> str:
        return self.emit(f"stablehlo.{op} {a}, {b} : tensor<{shape}xf32>")

    def unary(self, op: str, a: str, shape: str) -> str:
        return self.emit(f"stablehlo.{op} {a} : tensor<{shape}xf32>")

    def spread(self, a: str, source: str, dims: str, target: str) -> str:
        types = f"(tensor<{source + 'x' if source else ''}f32>) -> tensor<{target}xf32>"
        return self.emit(f"stablehlo.broadcast_in_dim {a}, dims = [{dims}] : {types}")

    def reduce(self, op: str, a: str, start: str, dim: int, source: str, target: str) -> str:
        return self.emit(
            f"stablehlo.reduce({a} init: {start}) applies stablehlo.{op} across dimensions = [{dim}]"
            f" : (tensor<{source}xf32>, tensor<f32>) -> tensor<{target}xf32>"
        )

    def dot(self, a: str, b: str, dims: str, types: str) -> str:
        return self.emit(f"stablehlo.dot_general {a}, {b}, {dims} : {types}")

    def norm(self, x: str) -> str:
        s, d = self.s, self.d
        full, rows = f"{s}x{d}", f"{s}"
        zero = self.constant("0.0")
        count = self.spread(self.constant(f"{d}.0"), "", "", rows)
        mean = self.binary("divide", self.reduce("add", x, zero, 1, full, rows), count, rows)
        centred = self.binary("subtract", x, self.spread(mean, rows, "0", full), full)
        square = self.binary("multiply", centred, centred, full)
        variance = self.binary("divide", self.reduce("add", square, zero, 1, full, rows), count, rows)
        inverse = self.unary("rsqrt", variance, rows)
        y = self.binary("multiply", centred, self.spread(inverse, rows, "0", full), full)
        scaled = self.binary("multiply", y, self.spread(self.argument(f"{d}"), f"{d}", "1", full), full)
        return self.binary("add", scaled, self.spread(self.argument(f"{d}"), f"{d}", "1", full), full)

    def linear(self, x: str, n: int, m: int) -> str:
        w, b = self.argument(f"{n}x{m}"), self.argument(f"{m}")
        types = f"(tensor<{self.s}x{n}xf32>, tensor<{n}x{m}xf32>) -> tensor<{self.s}x{m}xf32>"
        y = self.dot(x, w, "contracting_dims = [1] x [0]", types)
        return self.binary("add", y, self.spread(b, f"{m}", "1", f"{self.s}x{m}"), f"{self.s}x{m}")

    def heads(self, x: str) -> str:
        s, h, k = self.s, self.h, self.d // self.h
        split = self.emit(f"stablehlo.reshape {x} : (tensor<{s}x{self.d}xf32>) -> tensor<{s}x{h}x{k}xf32>")
        return self.emit(f"stablehlo.transpose {split}, dims = [1, 0, 2] : (tensor<{s}x{h}x{k}xf32>) -> tensor<{h}x{s}x{k}xf32>")

    def attention(self, x: str) -> str:
        s, d, h = self.s, self.d, self.h
        k, scores, rows = d // h, f"{h}x{s}x{s}", f"{h}x{s}"
        part = f"{h}x{s}x{k}"
        both = self.linear(x, d, 3 * d)
        q, key, value = (
            self.heads(
                self.emit(
                    f"stablehlo.slice {both} [0:{s}, {i * d}:{(i + 1) * d}] : (tensor<{s}x{3 * d}xf32>) -> tensor<{s}x{d}xf32>"
                )
            )
            for i in range(3)
        )
        types = f"(tensor<{part}xf32>, tensor<{part}xf32>) -> tensor<{scores}xf32>"
        a = self.dot(q, key, "batching_dims = [0] x [0], contracting_dims = [2] x [2]", types)
        a = self.binary("multiply", a, self.spread(self.constant("0.125"), "", "", scores), scores)
        top = self.reduce("maximum", a, self.constant("0xFF800000"), 2, scores, rows)
        e = self.unary("exponential", self.binary("subtract", a, self.spread(top, rows, "0, 1", scores), scores), scores)
        z = self.reduce("add", e, self.constant("0.0"), 2, scores, rows)
        p = self.binary("divide", e, self.spread(z, rows, "0, 1", scores), scores)
        types = f"(tensor<{scores}xf32>, tensor<{part}xf32>) -> tensor<{part}xf32>"
        o = self.dot(p, value, "batching_dims = [0] x [0], contracting_dims = [2] x [1]", types)
        o = self.emit(f"stablehlo.transpose {o}, dims = [1, 0, 2] : (tensor<{part}xf32>) -> tensor<{s}x{h}x{k}xf32>")
        o = self.emit(f"stablehlo.reshape {o} : (tensor<{s}x{h}x{k}xf32>) -> tensor<{s}x{d}xf32>")
        return self.linear(o, d, d)

    def layer(self, x: str) -> str:
        full = f"{self.s}x{self.d}"
        x = self.binary("add", x, self.attention(self.norm(x)), full)
        wide = f"{self.s}x{4 * self.d}"
        y = self.unary("tanh", self.linear(self.norm(x), self.d, 4 * self.d), wide)
        return self.binary("add", x, self.linear(y, 4 * self.d, self.d), full)


def transformer(ops: int, sequence: int = 512, width: int = 768, heads: int = 12) -> hlo.Module:
    """A stack of layers with at least `ops` ops."""
    text = _Text(sequence, width, heads)
    x = text.argument(f"{sequence}x{width}")
    while len(text.lines) < ops:
        x = text.layer(x)
    signature = f"func.func @main({', '.join(text.arguments)}) -> tensor<{sequence}x{width}xf32>"
    return hlo.parse("\n".join([f"{signature} {{", *text.lines, f"  return {x} : tensor<{sequence}x{width}xf32>", "}"]))


def timed(f: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    value = f()
    return value, (time.perf_counter() - start) * 1000


def all_maps(module: hlo.Module) -> int:
    """Every op's maps in both directions, and those of each producer-consumer pair composed; returns how many there are."""
    count = 0
    maps = {op: indexing.output_to_input(op) for op in module.entry.body.ops[:-1]}
    for op, operands in maps.items():
        for k, (operand, consumers) in enumerate(zip(op.operands, operands, strict=True)):
            count += len(consumers) + sum(map(len, indexing.input_to_output(op, k)))
            if operand.op is not None:
                for producers in maps[operand.op]:
                    count += len([composed(c, p) for c in consumers for p in producers])
    return count


def forget() -> None:
    """Empties the analysis' memories, so that a measurement starts cold."""
    indexing.clear_caches()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=2000)
    arguments = parser.parse_args()
    module, half = transformer(arguments.ops), transformer(arguments.ops // 2)
    body = module.entry.body.ops[:-1]
    found: dict[str, float] = {}

    forget()
    times = [timed(lambda op=op: indexing.output_to_input(op))[1] for op in body]  # type: ignore[misc]
    found["one op"] = statistics.median(times)
    forget()
    count, found["all maps"] = timed(lambda: all_maps(module))
    forget()
    _, half_maps = timed(lambda: all_maps(half))

    def sliced(m: hlo.Module) -> int:
        result = m.root.result
        return len(dependencies({result: Region.box([1, 2])}, m).regions)

    forget()
    _, found["slice"] = timed(lambda: sliced(module))
    forget()
    _, half_slice = timed(lambda: sliced(half))
    forget()
    _, found["awkward"] = timed(awkward)

    print(f"{len(body)} ops, {count} maps")
    for name, ms in found.items():
        print(f"{name:10} {ms:10.3f} ms   limit {LIMITS_MS[name]:.1f} ms")
    half_ops = len(half.entry.body.ops) - 1
    ratio = len(body) / half_ops
    growth = [found["all maps"] / half_maps / ratio, found["slice"] / half_slice / ratio]
    print(f"growth     {growth[0]:.2f} (maps), {growth[1]:.2f} (slice); 1 is linear")
    return 0 if all(ms <= LIMITS_MS[name] for name, ms in found.items()) else 1


def awkward() -> None:
    """Reshapes whose factors do not nest, forth and back, and a chain at rank 12."""
    for source, target in (
        ((3, 5, 7, 2), (7, 3, 2, 5)),
        ((6, 10, 15), (9, 100)),
        ((2, 3, 5, 7, 11, 13), (13, 11, 7, 5, 3, 2)),
        ((2,) * 12, (4, 8, 2, 16, 4)),
        ((2, 3) * 6, (3, 2) * 6),
    ):
        a, b = ("x".join(map(str, s)) for s in (source, target))
        line = f"%y = stablehlo.reshape %x : (tensor<{a}xf32>) -> tensor<{b}xf32>"
        op = hlo.parse(f"func.func @main(%x: tensor<{a}xf32>) {{\n {line}\n return\n}}").entry.body.ops[0]
        there = indexing.output_to_input(op)[0].only
        back = indexing.input_to_output(op)[0].only
        indexing.compose(there, back).simplify()
        indexing.compose(back, there).simplify()


if __name__ == "__main__":
    sys.exit(main())
