"""Random programs as text: values with what is known of them, and the steps that make one from others."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from hlo.types import ELEMENT_TYPES

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 33, 64)
SIGNED, UNSIGNED = ("i4", "i8", "i16", "i32", "i64"), ("ui4", "ui8", "ui16", "ui32", "ui64")
FLOATS = ("f8E5M2", "f8E4M3FN", "bf16", "f16", "f32", "f32", "f32", "f64")
COMPLEX = {"complex<f32>": "f32", "complex<f64>": "f64"}  # with the type of their parts
# The greatest finite number of a float type, and how many of its bits count.
GREATEST = {"f8E5M2": 57344.0, "f8E4M3FN": 448.0, "bf16": 3e38, "f16": 65504.0, "f32": 3e38, "f64": 1e308}
WIDER = {
    "i4": ("i8", "i32"), "i8": ("i16", "i32", "i64"), "i16": ("i32", "i64"), "i32": ("i64",), "ui4": ("ui8", "ui32"),
    "ui8": ("ui16", "ui32"), "ui16": ("ui32", "ui64"), "ui32": ("ui64",), "f8E5M2": ("f16", "f32"), "f8E4M3FN": ("f32", "bf16"),
    "bf16": ("f32", "f64"), "f16": ("f32", "f64"), "f32": ("f64",), "complex<f32>": ("complex<f64>",),
}  # fmt: skip
LARGE = (48, 63, 96, 100, 127, 130, 200, 257)
MOST_ELEMS = 20_000
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Val:
    """A value of a program. `most` bounds its finite numbers (infinite: anything up to the type's greatest, whose sums depend on
    their order); with `special` there may be NaN and infinities. `exact`: a kernel must give the evaluator's very bits."""

    name: str
    shape: Shape
    element: str
    most: float = math.inf
    special: bool = False
    exact: bool = True

    @property
    def type(self) -> str:
        return tensor(self.shape, self.element)

    @property
    def elems(self) -> int:
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.element in GREATEST

    @property
    def is_complex(self) -> bool:
        return self.element in COMPLEX

    @property
    def is_integer(self) -> bool:
        return self.element in SIGNED or self.element in UNSIGNED

    @property
    def greatest(self) -> float:
        """The greatest number of the (real) type."""
        return GREATEST.get(self.element) or GREATEST[COMPLEX.get(self.element, "f64")]


def tensor(shape: Shape, element: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def numbers(name: str, values: object) -> str:
    """An attribute that is an array of 64-bit numbers."""
    listed = ", ".join(map(str, values))  # type: ignore[call-overload]
    return f"{name} = array<i64: {listed}>" if listed else f"{name} = array<i64>"


class Declines(Exception):
    """The step that was drawn does not fit the values that there are; another one is drawn."""


class Writer:
    """Writes one function; every choice is the seed's. `inside` appends a step that may stand in a region."""

    def __init__(self, seed: int, inside: Callable[[Writer], bool]) -> None:
        self._inside = inside
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.values: list[Val] = []
        self.arguments: list[tuple[Val, str]] = []  # with what is drawn for it
        self.rounded: set[str] = set()  # the types of what is not exact
        self.count = 0
        self.depth = 0
        self.is_large = self.chance(0.2)
        self.most_elems = MOST_ELEMS * (6 if self.is_large else 1)

    # ------------------------------------------------------------ pieces

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def size(self) -> int:
        return 0 if self.chance(0.02) else self.random.choice(LARGE if self.is_large and self.chance(0.4) else SIZES)

    def shape(self, least: int = 0, most: int = 4) -> Shape:
        rank = self.random.randint(least, most)
        while True:
            found = tuple(self.size() for _ in range(rank))
            if math.prod(found) <= self.most_elems:
                return found

    def element(self) -> str:
        return self.random.choice([*FLOATS, *FLOATS, *SIGNED, *UNSIGNED, *COMPLEX])

    def argument(self, shape: Shape, element: str, how: str | None = None) -> Val:
        """A new argument; `how` its numbers are drawn: small, normal, special, ends, unsigned or index-like."""
        if how is None:
            if element in GREATEST:
                how = self.random.choice(["small", "small", "normal", "special", "ends"])
            else:
                how = "normal" if element in COMPLEX else self.random.choice(["small", "ends"])
        most = {"small": 4.0, "normal": 8.0, "special": 8.0}.get(how, math.inf)
        v = Val(f"%x{len(self.arguments)}", shape, element, most, how in ("special", "ends") and element in GREATEST)
        self.arguments.append((v, how))
        self.values.append(v)
        return v

    def op(self, name: str, operands: list[Val], like: Val, attributes: str = "", regions: str = "") -> Val:
        """Appends an op with one result; `like` is the result in all but its name."""
        v = replace(like, name=self.fresh())
        if not v.exact:
            self.rounded.add(v.element)
        given = f" {{{attributes}}}" if attributes else ""
        self.lines.append(
            f'{v.name} = "stablehlo.{name}"({", ".join(o.name for o in operands)}){regions}{given}'
            f" : ({', '.join(o.type for o in operands)}) -> {v.type}"
        )
        return v

    def constant(self, number: object, shape: Shape, element: str, most: float = math.inf) -> Val:
        v = Val(self.fresh(), shape, element, most)
        if element in COMPLEX:
            number = f"({float(str(number))}, 0.0)"
        elif element in GREATEST:
            number = repr(float(str(number)))
        self.lines.append(f"{v.name} = stablehlo.constant dense<{number}> : {v.type}")
        return v

    def limits(self, element: str) -> tuple[int, int]:
        bits = ELEMENT_TYPES[element].bits
        return (0, 2**bits - 1) if element in UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def step_inside(self) -> bool:
        """Appends a step in a region; whether one fitted."""
        return self._inside(self)

    # ------------------------------------------------------------ choices

    def pick(self, fits: object = None, make: bool = True) -> Val:
        """A value that fits, recent ones rather; a new argument where there is none. Raises Declines."""
        test = fits if callable(fits) else lambda v: True
        fitting = [v for v in self.values if test(v)]
        if fitting and not (make and not self.depth and len(self.arguments) < 4 and self.chance(0.12)):
            return fitting[-1 - min(int(self.random.expovariate(0.5)), len(fitting) - 1)]
        if make and not self.depth and len(self.arguments) < 6:
            for _ in range(20):
                element = self.element()
                v = Val("%?", self.shape(), element, 4.0)
                if test(v):
                    made = self.argument(v.shape, element)
                    if test(made):
                        return made
                    del self.values[-1], self.arguments[-1]
                    return self.argument(v.shape, element, "small")
        if fitting:
            return self.random.choice(fitting)
        raise Declines

    def partner(self, x: Val, fits: object = None) -> Val:
        """Another value of x's type."""
        test = fits if callable(fits) else lambda v: True
        same = [v for v in self.values if v.shape == x.shape and v.element == x.element and test(v)]
        if same and self.chance(0.7):
            return self.random.choice(same)
        if not self.depth and len(self.arguments) < 6 and self.chance(0.6):
            how = None if fits is None else "small" if not x.is_complex else "normal"
            return self.argument(x.shape, x.element, how)
        return self.constant(self.number(x), x.shape, x.element, 3.0)

    def number(self, x: Val) -> object:
        """A small number that every type has (two for the narrowest unsigned ones)."""
        if x.element == "i1":
            return self.random.choice(["true", "false"])
        return self.random.choice([1, 2, 3, 0] if x.element in UNSIGNED else [1, 2, -1, -3, 0])

    def cast(self, x: Val, element: str) -> Val:
        if x.element == element:
            return x
        return self.op("convert", [x], replace(x, element=element))

    # ------------------------------------------------------------ the whole

    def program(self, results: list[Val]) -> str:
        given = ", ".join(f"{v.name}: {v.type}" for v, _ in self.arguments)
        types = ", ".join(v.type for v in results)
        names = ", ".join(v.name for v in results)
        body = "\n".join(f"  {line}" for line in self.lines)
        return f"func.func @main({given}) -> ({types}) {{\n{body}\n  return {names} : {types}\n}}\n"
