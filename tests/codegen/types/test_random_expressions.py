"""Random expressions of every element type: kernels give what the evaluator gives, bit by bit.

Each op is right by tests of its own; what is looked for here is what ops do to each other, as a minimum of a maximum of halves,
which are both taken by bounds of bits. Operands are the numbers at which types differ: zeros of both signs, infinities, NaN,
subnormal numbers, the least and the greatest integers.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import codegen
import hlo
import interp
from codegen.target import host_target

FLOATS = ["f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2", "f8E4M3B11FNUZ", "f8E5M2FNUZ"]
INTEGERS = ["i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "i4", "ui4"]
ELEMS = 61
NUMBERS = [0, -0.0, 1, -1, 0.5, -0.5, 2, 3, -7, 1.5, np.inf, -np.inf, np.nan, 6e-5, -1e-7, 240, -448, 6e4]
TARGETS = ["", "avx2", "baseline"]


def array_type(kind: str) -> str:
    return f"tensor<{ELEMS}x{kind}>"


def is_float(kind: str) -> bool:
    return kind in FLOATS


def is_signed(kind: str) -> bool:
    return kind[0] == "i"


class Expressions:
    """A program of random elementwise ops, as text."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        first = self.choose.choice([*FLOATS[:6], "f16", "bf16", *INTEGERS])
        self.kinds = [first] * 5 + self.choose.sample([*FLOATS, *INTEGERS, "i1"], 2)
        self.arguments = [first, *self.choose.choices(self.kinds, k=self.choose.randint(0, 2))]
        self.values = [(f"%a{k}", kind) for k, kind in enumerate(self.arguments)]
        self.lines: list[str] = []
        for _ in range(self.choose.randint(3, 14)):
            self.step()
        self.results = self.values[-min(len(self.lines), self.choose.randint(1, 4)) :]

    def text(self) -> str:
        given = ", ".join(f"%a{k}: {array_type(kind)}" for k, kind in enumerate(self.arguments))
        kinds = ", ".join(array_type(kind) for _, kind in self.results)
        body = "\n".join(f"  {line}" for line in self.lines)
        return f"func.func @main({given}) -> ({kinds}) {{\n{body}\n  return {', '.join(v for v, _ in self.results)} : {kinds}\n}}"

    def made(self, op: str, kind: str) -> tuple[str, str]:
        value = f"%v{len(self.lines)}", kind
        self.lines.append(f"{value[0]} = stablehlo.{op}")
        self.values.append(value)
        return value

    def op(self, name: str, kind: str, *operands: str, of: str = "", more: str = "") -> tuple[str, str]:
        """An op on operands of one type, which is the result's as well if no other one is given by `of`."""
        types = f"({', '.join([array_type(of)] * len(operands))}) -> {array_type(kind)}" if of else array_type(kind)
        return self.made(f"{name} {', '.join(operands)}{more} : {types}", kind)

    def value(self, kind: str = "", is_wanted: Callable[[str], bool] = lambda kind: True) -> tuple[str, str]:
        found = [v for v in self.values if is_wanted(v[1]) and kind in ("", v[1])]
        return self.choose.choice(found[-6:]) if found else self.converted(self.value(), kind or self.kinds[0])

    def constant(self, kind: str) -> str:
        whole = ["0", "1", "3"] + ["-1", "-2"] * is_signed(kind)
        numbers = ["-2.0", "0.5", "-0.0", "0.0", "1.0", "3.0"] if is_float(kind) else whole
        number = self.choose.choice(["true", "false"] if kind == "i1" else numbers)
        return self.made(f"constant dense<{number}> : {array_type(kind)}", kind)[0]

    def other(self, kind: str) -> str:
        return self.constant(kind) if self.choose.random() < 0.3 else self.value(kind)[0]

    def converted(self, x: tuple[str, str], kind: str) -> tuple[str, str]:
        return x if x[1] == kind else self.op("convert", kind, x[0], of=x[1])

    def step(self) -> None:
        x, kind = self.value()
        steps: list[Callable[[], object]] = [lambda: self.converted((x, kind), self.choose.choice(self.kinds))]
        if kind == "i1":
            steps += [lambda: self.chosen(x), lambda: self.chosen(x), lambda: self.binary(["and", "or", "xor"], x, kind)]
        else:
            steps += [
                lambda: self.binary(["maximum", "minimum"], x, kind), lambda: self.binary(["maximum", "minimum"], x, kind),
                lambda: self.op("clamp", kind, self.other(kind), x, self.other(kind)), lambda: self.compared(x, kind),
                lambda: self.binary(["add", "subtract", "multiply"], x, kind),
                lambda: self.of_a_float(x, kind) if is_float(kind) else self.of_an_integer(x, kind),
            ]  # fmt: skip
        self.choose.choice(steps)()

    def binary(self, names: list[str], x: str, kind: str) -> None:
        self.op(self.choose.choice(names), kind, x, self.other(kind))

    def chosen(self, which: str) -> None:
        x, kind = self.value(is_wanted=lambda kind: kind != "i1")
        y = self.value(kind)[0]
        self.made(f"select {which}, {x}, {y} : {array_type('i1')}, {array_type(kind)}", kind)

    def compared(self, x: str, kind: str) -> None:
        y, direction = self.other(kind), self.choose.choice(["LT", "LE", "GT", "GE", "EQ", "NE"])
        orders = ["FLOAT"] if is_float(kind) else ["SIGNED" if is_signed(kind) else "UNSIGNED"]
        if is_float(kind) and x[1] == y[1] == "a":  # the sign of a NaN that is computed is nobody's to say
            orders.append("TOTALORDER")
        self.op(f"compare {direction},", "i1", x, y, of=kind, more=f", {self.choose.choice(orders)}")

    def of_a_float(self, x: str, kind: str) -> None:
        bits = "8" if kind.startswith("f8") else kind.lstrip("bf")
        names = ["abs", "negate", "sign", "floor", "ceil", "round_nearest_even", "round_nearest_afz", "sqrt"]
        formats = ["e5m10", "e8m7", "e4m3", "e5m2"]
        self.choose.choice([
            lambda: self.op(self.choose.choice(names), kind, x), lambda: self.op(self.choose.choice(names), kind, x),
            lambda: self.op("is_finite", "i1", x, of=kind),
            lambda: self.op("reduce_precision", kind, x, more=f", format = {self.choose.choice(formats)}"),
            lambda: self.op("bitcast_convert", kind, self.op("bitcast_convert", f"i{bits}", x, of=kind)[0], of=f"i{bits}"),
        ])()  # fmt: skip

    def of_an_integer(self, x: str, kind: str) -> None:
        names = ["not", "popcnt", "count_leading_zeros"] + ["abs", "negate", "sign"] * is_signed(kind)
        shifts = ["shift_left", "shift_right_logical", "shift_right_arithmetic"]
        self.choose.choice([
            lambda: self.op(self.choose.choice(names), kind, x), lambda: self.binary(["and", "or", "xor"], x, kind),
            lambda: self.op(self.choose.choice(shifts), kind, x, self.constant(kind)),
            lambda: self.binary(["divide", "remainder"], x, kind),
        ])()  # fmt: skip


def values(kind: str, source: np.random.Generator) -> np.ndarray:
    dtype = hlo.element_type(kind).dtype
    if kind == "i1":
        return source.integers(0, 2, ELEMS).astype(dtype)
    if is_float(kind):
        with np.errstate(all="ignore"):
            return source.choice(NUMBERS, ELEMS).astype(dtype)
    bits = int(kind.lstrip("ui"))
    least, greatest = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed(kind) else (0, (1 << bits) - 1)
    numbers = [n for n in (0, 1, 2, 3, 5, 7, -1, -2, 100, 128, greatest - 1, greatest // 2) if least <= n <= greatest]
    return source.choice(np.array([*numbers, least, greatest], object), ELEMS).astype(dtype)


SEEDS = [*range(200), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(200, 3000))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kernel_gives_the_evaluators_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Expressions(seed)
    if (target := TARGETS[seed % len(TARGETS)]) and host_target().triple.startswith("x86_64"):
        monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    module = hlo.parse(program.text())
    arrays = [values(kind, np.random.default_rng(seed)) for kind in program.arguments]
    with np.errstate(all="ignore"):
        expected = interp.evaluate(module, *arrays)
        found = codegen.compile(module)(*arrays)
    for x, y in zip(found, expected, strict=True):
        nan = np.isnan(y.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(x.astype(np.float64)), nan)
        bits = f"u{y.dtype.itemsize}"
        np.testing.assert_array_equal(x.view(bits)[~nan], y.view(bits)[~nan], program.text())
