"""What tiling knows of scalar functions, one row each: what they cost, their ranges, their neutral elements, samples of them.

`hlo` has what each is of: the ops whose semantics are `Elementwise` of it, with their operands and types; its code is in
`codegen.source.scalars`. A function without a row costs an addition, and nothing else is known of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import erf, exp, inf, isinf, log, nan, sqrt, tanh
from typing import Any

import numpy as np

from hlo.errors import Declined
from hlo.module import Op
from hlo.types import ElementType, default_storage_range
from indexing.expr import Var

__all__ = [
    "COMPARED", "SCALAR_FUNCTIONS", "ArrayFunction", "Neutral", "ScalarFunction", "Span", "SpanFunction", "ascending",
    "on_arrays", "scalar_function",
]  # fmt: skip


@dataclass(frozen=True)
class Span:
    """All elements lie in [low, high], which may reach to the infinities, and none is NaN.

    `attains`, where it is known: among the elements along the loop `along` some have just this value.
    """

    low: float
    high: float
    attains: float | None = None
    along: Var | None = None

    @property
    def is_zero(self) -> bool:
        return self.low == 0.0 == self.high

    @property
    def magnitude(self) -> float:
        return max(abs(self.low), abs(self.high))


SpanFunction = Callable[..., tuple[float, float]]
"""The ends of the exact values from the operands' spans; NaN where some of them is NaN, or none is known."""

ArrayFunction = Callable[..., Any]
"""The function on arrays of doubles, of Python's integers or of booleans."""


@dataclass(frozen=True)
class Neutral:
    """e with f(x, e) = x, of each kind of types; None where f of such a type is no fold whose order is free.

    `is_for_all`: of floats this holds for every x, NaN included; else for what a fold from e reaches (-0 + 0 = +0). Of complex
    numbers it holds for what a fold from e reaches.
    `is_idempotent`: f(x, x) = x.
    """

    of_float: float | None
    of_integer: Callable[[ElementType], int]
    of_boolean: bool | None = None
    of_complex: float | None = None
    is_for_all: bool = True
    is_idempotent: bool = False

    def of(self, element: ElementType) -> float | int | bool | None:
        """The neutral element among the numbers of a type.

        >>> from hlo.types import element_type
        >>> [SCALAR_FUNCTIONS["maximum"].neutral.of(element_type(t)) for t in ("f32", "i8", "i1")]
        [-inf, -128, None]
        """
        if element.is_boolean:
            return self.of_boolean
        if element.is_float or element.is_complex:
            return self.of_float if element.is_float else self.of_complex
        return self.of_integer(element) if element.is_integer else None


NOT_BOUNDED = Declined("no interval of its values is worked out from its operands'")
NOT_SAMPLED = Declined("bodies of folds that call it are not tried on samples")
NOT_ASSOCIATIVE = Declined("no fold by it may be reordered")
AS_ITS_DIRECTION = Declined("the op's direction says which comparison it is: COMPARED")


@dataclass(frozen=True)
class ScalarFunction:
    """What is true of a scalar function whatever computes it; what is not given is declined.

    cost      of one value, in additions
    span      the ends of the exact values from the operands' spans, NaN where they are not known (`tiling.elements.ranges`
              widens them by a rounding); of an ascending function `ascending` makes it
    arrays    the function on arrays of doubles, integers or booleans, to try the bodies of folds that call it on samples
    neutral   e with f(x, e) = x, of an associative and commutative function: folds by it may be taken in any order and in parts
    ops       how many ops it is written out as in each place that calls it, where that is what limits of code are about

    >>> from math import copysign
    >>> known = ScalarFunction(cost=6, span=ascending(lambda x: copysign(1.0, x) if isinf(x) else x / (1 + abs(x))))
    >>> known.span(Span(0.0, inf)), known.is_associative
    ((0.0, 1.0), False)
    """

    cost: float = 1.0
    span: SpanFunction | Declined = NOT_BOUNDED
    arrays: ArrayFunction | Declined = NOT_SAMPLED
    neutral: Neutral | Declined = NOT_ASSOCIATIVE
    ops: int = 1

    @property
    def is_associative(self) -> bool:
        """Whether folds by this function alone may be taken in any order and in parts."""
        return isinstance(self.neutral, Neutral)


# ---------------------------------------------------------------- spans


def _corners(f: Callable[[float, float], float], a: Span, b: Span) -> tuple[float, float]:
    found = [f(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return (nan, nan) if any(x != x for x in found) else (min(found), max(found))


def _add(a: Span, b: Span) -> tuple[float, float]:
    if inf in (a.high, b.high) and -inf in (a.low, b.low):
        return nan, nan
    return a.low + b.low, a.high + b.high


def _multiply(a: Span, b: Span) -> tuple[float, float]:
    touches_zero = [x.low <= 0.0 <= x.high for x in (a, b)]
    if any(t and isinf(y.magnitude) for t, y in zip(touches_zero, (b, a), strict=True)):
        return nan, nan
    return _corners(lambda x, y: x * y, a, b)


def _divide(a: Span, b: Span) -> tuple[float, float]:
    if b.low <= 0.0 <= b.high or isinf(b.magnitude):
        return nan, nan
    return _corners(lambda x, y: x / y, a, b)


def _exponential(x: float) -> float:
    return 0.0 if x == -inf else inf if x > 709.0 else exp(x)


def ascending(f: Callable[[float], float], low: float = -inf, high: float = inf) -> SpanFunction:
    """The span of a function that ascends where it is defined, on [low, high]; `f` is asked for its ends, infinite ones too.

    >>> softsign = ascending(lambda x: x / (1 + abs(x)))
    >>> softsign(Span(-1.0, 3.0)), softsign(Span(0.0, inf))
    ((-0.5, 0.75), (0.0, nan))

    What `f` gives for an infinity is the span's end there; a NaN, as here, declines.
    """

    def span(a: Span) -> tuple[float, float]:
        return (f(a.low), f(a.high)) if low <= a.low and a.high <= high else (nan, nan)

    return span


def _abs(a: Span) -> tuple[float, float]:
    return (0.0 if a.low <= 0.0 <= a.high else min(abs(a.low), abs(a.high))), a.magnitude


# ---------------------------------------------------------------- the table


def _all_ones(element: ElementType) -> int:
    low, high = default_storage_range(element)
    return -1 if low < 0 else high


COMPARED: Mapping[str, ArrayFunction] = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip
"""`compare` on arrays, by its direction."""

SCALAR_FUNCTIONS: dict[str, ScalarFunction] = {
    # Sums, products and what orders numbers.
    "add": ScalarFunction(1, _add, np.add, Neutral(0.0, lambda e: 0, of_complex=0.0, is_for_all=False)),
    "subtract": ScalarFunction(1, lambda a, b: _add(a, Span(-b.high, -b.low)), np.subtract),
    "multiply": ScalarFunction(1, _multiply, np.multiply, Neutral(1.0, lambda e: 1, of_complex=1.0)),
    "divide": ScalarFunction(4, _divide, np.divide),
    "remainder": ScalarFunction(8),
    "maximum": ScalarFunction(
        1, lambda a, b: (max(a.low, b.low), max(a.high, b.high)), np.maximum,
        Neutral(-inf, lambda e: default_storage_range(e)[0], is_idempotent=True),
    ),
    "minimum": ScalarFunction(
        1, lambda a, b: (min(a.low, b.low), min(a.high, b.high)), np.minimum,
        Neutral(inf, lambda e: default_storage_range(e)[1], is_idempotent=True),
    ),
    "negate": ScalarFunction(1, lambda a: (-a.high, -a.low), np.negative),
    "abs": ScalarFunction(1, _abs, np.abs),
    "square": ScalarFunction(1, lambda a: (_abs(a)[0] ** 2, _abs(a)[1] ** 2)),
    "sign": ScalarFunction(1, ascending(lambda x: (x > 0.0) - (x < 0.0))),
    # Choices and types.
    "compare": ScalarFunction(1, Declined("a boolean is 0 or 1"), AS_ITS_DIRECTION),
    "select": ScalarFunction(1, Declined("the hull of its values' spans, whatever its predicate's"), np.where),
    "convert": ScalarFunction(1, lambda a: (a.low, a.high)),
    # Exponentials, logarithms and roots.
    "exponential": ScalarFunction(10, ascending(_exponential), np.exp),
    "exponential_minus_one": ScalarFunction(12, arrays=np.expm1),
    "log": ScalarFunction(12, ascending(lambda x: x if isinf(x) else log(x), low=1e-300), np.log),
    "log_plus_one": ScalarFunction(12, arrays=np.log1p),
    "logistic": ScalarFunction(12, ascending(lambda x: 1.0 / (1.0 + _exponential(-x)))),
    "sqrt": ScalarFunction(4, ascending(lambda x: x if isinf(x) else sqrt(x), low=0.0), np.sqrt),
    "rsqrt": ScalarFunction(4),
    "cbrt": ScalarFunction(20),
    "power": ScalarFunction(25),
    # Angles and hyperbolic functions.
    "sine": ScalarFunction(15),
    "cosine": ScalarFunction(15),
    "tan": ScalarFunction(20),
    "atan2": ScalarFunction(20),
    "tanh": ScalarFunction(12, ascending(tanh), np.tanh),
    "fast_tanh": ScalarFunction(7, ascending(tanh)),
    # Special functions.
    "erf": ScalarFunction(14, ascending(erf)),
    "fast_erf": ScalarFunction(7, ascending(erf)),
    "erfc": ScalarFunction(12),
    # Bits and truth values.
    "and": ScalarFunction(1, arrays=np.logical_and, neutral=Neutral(None, _all_ones, True, is_idempotent=True)),
    "or": ScalarFunction(1, arrays=np.logical_or, neutral=Neutral(None, lambda e: 0, False, is_idempotent=True)),
    "xor": ScalarFunction(1, arrays=np.logical_xor),
    "not": ScalarFunction(1, arrays=np.logical_not),
    # A cost alone is known: that of a polynomial or two, an exponential or a logarithm in between, a series.
    **dict.fromkeys(("acos", "asin", "atan", "atanh", "cosh", "sinh"), ScalarFunction(15)),
    **dict.fromkeys(("acosh", "asinh", "erf_inv"), ScalarFunction(20)),
    **dict.fromkeys(("bessel_i1e", "digamma", "lgamma"), ScalarFunction(40)),
    **dict.fromkeys(("polygamma", "zeta"), ScalarFunction(100)),
    "threefry2x32": ScalarFunction(115, ops=115),  # twenty rounds: an addition, two shifts, `or` and `xor`
    # An addition's cost, and nothing else known.
    **dict.fromkeys((
        "bitcast_convert", "ceil", "clamp", "complex", "conj", "count_leading_zeros", "floor", "imag", "is_finite", "is_inf",
        "is_neg_inf", "is_pos_inf", "mulhi", "next_after", "popcnt", "real", "reduce_precision", "round_nearest_afz",
        "round_nearest_even", "shift_left", "shift_right_arithmetic", "shift_right_logical", "uniform_dequantize",
        "uniform_quantize",
    ), ScalarFunction()),
}  # fmt: skip
"""By the name that `hlo.registry.Elementwise` has, and the two cheaper formulas that `tiling.elements.rules` puts in."""

_UNKNOWN = ScalarFunction()
LONG_FUNCTIONS = {name: f.ops for name, f in SCALAR_FUNCTIONS.items() if f.ops > 1}
"""How many ops those are written out as that limits of code have to know of."""


def scalar_function(name: str) -> ScalarFunction:
    """The row of a scalar function; for one without a row what is true of any.

    >>> scalar_function("exponential").cost, scalar_function("add").is_associative, scalar_function("exponential").is_associative
    (10, True, False)
    """
    return SCALAR_FUNCTIONS.get(name, _UNKNOWN)


def on_arrays(op: Op, function: str) -> ArrayFunction | Declined:
    """An op's scalar function on arrays: of `compare`, what its direction says.

    >>> import hlo
    >>> less = hlo.parse("HloModule m\\nENTRY e { p = s32[] parameter(0) ROOT c = pred[] compare(p, p), direction=LT }").root
    >>> on_arrays(less, "compare").__name__
    'less'
    """
    if function == "compare":
        return COMPARED.get(op.attr("comparison_direction"), NOT_SAMPLED)
    return scalar_function(function).arrays
