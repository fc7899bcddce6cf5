"""Random loops with a seed: values that are kept, rotated, turned, updated in place and branched on, nested in each other."""

from __future__ import annotations

import random

import numpy as np
import pytest

import codegen
import hlo
import interp

SHAPES = ((), (4,), (3, 5), (40, 40))


class Writer:
    """Writes one function as text; every choice is the seed's."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0

    def op(self, text: str, depth: int) -> str:
        """Appends `%new = text`; returns the name."""
        self.count += 1
        self.lines.append("  " * depth + f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def type(self, shape: tuple[int, ...], element: str = "f32") -> str:
        return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"

    def changed(self, values: list[tuple[str, tuple[int, ...]]], k: int, counter: str, depth: int) -> str:
        """A new value of the shape of values[k], made of values of that shape."""
        name, shape = values[k]
        t = self.type(shape)
        alike = [v for v, s in values if s == shape]
        kind = self.random.choice(["keep", "rotate", "add", "add", "halve", "tanh", "turn", "row", "row", "read", "if"])
        if kind == "keep":
            return name
        if kind == "rotate":
            return self.random.choice(alike)
        if kind == "add":
            return self.op(f"stablehlo.add {name}, {self.random.choice(alike)} : {t}", depth)
        if kind == "halve":
            half = self.op(f"stablehlo.constant dense<0.5> : {t}", depth)
            return self.op(f"stablehlo.multiply {self.random.choice(alike)}, {half} : {t}", depth)
        if kind == "if":
            return self.branched(values, k, counter, depth)
        if not shape or kind == "tanh":
            return self.op(f"stablehlo.tanh {name} : {t}", depth)
        if kind == "turn":
            return self.op(f"stablehlo.reverse {self.random.choice(alike)}, dims = [{len(shape) - 1}] : {t}", depth)
        part = (1, *shape[1:])
        p = self.type(part)
        zero = self.op("stablehlo.constant dense<0> : tensor<i32>", depth)
        at = [counter] + [zero] * (len(shape) - 1)
        types = ", ".join(["tensor<i32>"] * len(shape))
        row = self.op(
            f"stablehlo.dynamic_slice {self.random.choice(alike)}, {', '.join(at)}, sizes = {list(part)} : ({t}, {types}) -> {p}",
            depth,
        )
        row = self.op(f"stablehlo.negate {row} : {p}", depth)
        made = self.op(f"stablehlo.dynamic_update_slice {name}, {row}, {', '.join(at)} : ({t}, {p}, {types}) -> {t}", depth)
        return self.op(f"stablehlo.subtract {made}, {name} : {t}", depth) if kind == "read" else made

    def branched(self, values: list[tuple[str, tuple[int, ...]]], k: int, counter: str, depth: int) -> str:
        t = self.type(values[k][1])
        two = self.op("stablehlo.constant dense<2> : tensor<i32>", depth)
        rest = self.op(f"stablehlo.remainder {counter}, {two} : tensor<i32>", depth)
        self.count += 1
        result = f"%v{self.count}"
        self.lines.append("  " * depth + f'{result} = "stablehlo.case"({rest}) ({{')
        for n in range(2):
            if n:
                self.lines.append("  " * depth + "}, {")
            made = self.changed(values, k, counter, depth + 1)
            self.lines.append("  " * (depth + 1) + f"stablehlo.return {made} : {t}")
        self.lines.append("  " * depth + f"}}) : (tensor<i32>) -> {t}")
        return result

    def loop(self, values: list[tuple[str, tuple[int, ...]]], limit: str, depth: int, deeper: int) -> list[str]:
        """A counted loop over some values; the names of what they become."""
        self.count += 1
        me = self.count
        types = ["tensor<i32>", *(self.type(s) for _, s in values)]
        zero = self.op("stablehlo.constant dense<0> : tensor<i32>", depth)
        one = self.op("stablehlo.constant dense<1> : tensor<i32>", depth)
        starts = [zero, *(v for v, _ in values)]
        inside = [(f"%a{me}_{k}", s) for k, (_, s) in enumerate(values)]
        heads = ", ".join(f"{a} = {v}" for a, v in zip([f"%i{me}", *(v for v, _ in inside)], starts, strict=True))
        self.lines.append("  " * depth + f"%r{me}:{len(types)} = stablehlo.while({heads}) : {', '.join(types)} cond {{")
        test = self.op(f"stablehlo.compare LT, %i{me}, {limit}, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>", depth + 1)
        self.lines.append("  " * (depth + 1) + f"stablehlo.return {test} : tensor<i1>")
        self.lines.append("  " * depth + "} do {")
        now = [v for v, _ in inside]
        if deeper and self.random.random() < 0.7:
            now = self.loop(inside, f"%i{me}", depth + 1, deeper - 1)
        changing = [(v, s) for v, (_, s) in zip(now, inside, strict=True)]
        new = [self.changed(changing, k, f"%i{me}", depth + 1) for k in range(len(inside))]
        following = self.op(f"stablehlo.add %i{me}, {one} : tensor<i32>", depth + 1)
        self.lines.append("  " * (depth + 1) + f"stablehlo.return {', '.join([following, *new])} : {', '.join(types)}")
        self.lines.append("  " * depth + "}")
        return [f"%r{me}#{k + 1}" for k in range(len(values))]

    def program(self) -> tuple[str, list[tuple[int, ...]]]:
        shapes = [self.random.choice(SHAPES) for _ in range(self.random.randint(2, 5))]
        shapes[1] = shapes[0]
        values = [(f"%x{k}", s) for k, s in enumerate(shapes)]
        if self.random.random() < 0.5:  # memory of the program's own, which a loop may take over
            values = [(self.op(f"stablehlo.negate {v} : {self.type(s)}", 1), s) for v, s in values]
        made = self.loop(values, "%n", 1, 2)
        if self.random.random() < 0.4:
            made = self.loop([(v, s) for v, s in zip(made, shapes, strict=True)], "%n", 1, 0)
        types = [self.type(s) for s in shapes]
        arguments = ", ".join(["%n: tensor<i32>", *(f"%x{k}: {t}" for k, t in enumerate(types))])
        end = f"  return {', '.join(made)} : {', '.join(types)}\n}}"
        return "\n".join([f"func.func @main({arguments}) -> ({', '.join(types)}) {{", *self.lines, end]), shapes


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(n, marks=pytest.mark.slow) for n in range(10, 14))])
@pytest.mark.every_target
def test_agrees_with_the_evaluator(seed: int) -> None:
    text, shapes = Writer(seed).program()
    module = hlo.parse(text)
    hlo.verify(module)
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1, 1, s).astype(np.float32) for s in shapes]
    executable = codegen.compile(module, threads=1 + seed % 2)
    assert executable.fallbacks == []
    for trips in (0, 1, 3, 4):
        wanted = interp.evaluate(module, np.int32(trips), *arrays)
        for _ in range(2):
            for found, want in zip(executable(np.int32(trips), *arrays), wanted, strict=True):
                np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
