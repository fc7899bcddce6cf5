"""Folds by bodies of sums, products, exponentials and logarithms: whether exact arithmetic has their laws as identities.

    max(a, b) + log(1 + exp(-|a - b|)) = log(exp a + exp b)      for a < b, for a = b and for a > b: a monoid, -infinity neutral
    a + b + a b                                                  a polynomial: a monoid, 0 neutral; integers wrap around alike

A number is written P + log(Q), where P and Q are quotients of polynomials in the variables and in their exponentials, Q without
variables; what is divided by has positive coefficients alone, and so is nowhere 0. What a comparison, a maximum or a magnitude
depends on is tried in each of its three ways, whether or not other ones leave it possible. An identity of such forms holds for
all finite numbers. With NaN and infinities the laws are tried on triples of them and of some finite numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from hlo.errors import Declined
from hlo.module import Block, DenseArray, Value
from hlo.registry import Elementwise, Literal
from hlo.types import ElementType
from tiling.elements.monoids_by_cases import Columns, on_cases
from tiling.loops.monoid import Monoid, Shown

__all__ = ["by_algebra"]

MOST_VALUES = 2
MOST_WAYS = 1500
MOST_TERMS = 200  # of a polynomial
TOLERANCE = 1e-12
INFINITE = (-np.inf, np.inf, -2.5, 0.0, 3.0)
RING = frozenset({"add", "subtract", "multiply", "negate"})  # what integers that wrap around keep the identities of

Poly = dict[tuple[int, ...], int | Fraction]
"""Coefficients by exponents: of the variables, then of their exponentials."""


def by_algebra(body: Block, inits: Sequence[np.generic]) -> Monoid | Declined:
    """What holds for a fold by a body of its own from `inits`; Declined where that is no identity of such forms.

    >>> import hlo, numpy
    >>> text = '''func.func @main(%x: tensor<8xi32>) -> tensor<i32> {
    ...   %z = stablehlo.constant dense<0> : tensor<i32>
    ...   %r = "stablehlo.reduce"(%x, %z) <{dimensions = array<i64: 0>}> ({
    ...   ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    ...     %s = stablehlo.add %a, %b : tensor<i32>
    ...     %p = stablehlo.multiply %a, %b : tensor<i32>
    ...     %q = stablehlo.add %s, %p : tensor<i32>
    ...     stablehlo.return %q : tensor<i32> }) : (tensor<8xi32>, tensor<i32>) -> tensor<i32>
    ...   return %r : tensor<i32> }'''
    >>> found = by_algebra(hlo.parse(text).root.regions[0], [numpy.int32(0)])
    >>> found.shown.value, found.is_neutral
    ('an identity of exact arithmetic', True)
    """
    elements = [v.tensor.element for v in (*body.arguments, *body.results)]
    plain = [e for e in elements if isinstance(e, ElementType)]
    floats = all(e.name in ("f32", "f64") for e in plain)
    integers = all(e.is_integer and not e.is_boolean for e in plain) and _functions(body) <= RING
    if len(plain) < len(elements) or not (floats or integers):
        return Declined("exact arithmetic is not that of these numbers")
    count = len(inits)
    if count > MOST_VALUES:
        return Declined(f"a body of more than {MOST_VALUES} values that depend on each other")
    a, b, c = (tuple(_variable(k * count + i, 3 * count) for i in range(count)) for k in range(3))
    start = tuple(_number(x, 3 * count) for x in inits)
    run = partial(_run, body)
    try:
        if not _always(lambda way: _alike(run(way, a, b), run(way, b, a))):
            return Declined("the order of a body's arguments counts")
        if not _always(lambda way: _alike(run(way, run(way, a, b), c), run(way, a, run(way, b, c)))):
            return Declined("a body is not known to be associative")
        if not _always(lambda way: _alike(run(way, start, a), a)):
            return Declined("the initial value of a body of its own is not known to be neutral")
        if floats and not _laws_hold(body, inits, INFINITE):
            return Declined("infinities break a law of a body")
        return Monoid(body, None, Shown.ALGEBRA, True, True, not floats or _laws_hold(body, inits, [*INFINITE, np.nan]))
    except LookupError as reason:
        return Declined(f"{reason}: no law of a body is shown")


def _laws_hold(body: Block, inits: Sequence[np.generic], numbers: Sequence[float]) -> bool:
    """Whether the laws hold for all triples of some numbers."""
    columns = [np.array(x) for x in zip(*itertools.product(numbers, repeat=len(inits)), strict=True)]
    i, j, k = (x.reshape(-1) for x in np.meshgrid(*[np.arange(len(columns[0]))] * 3, indexing="ij"))
    a, b, c = (tuple(x[at] for x in columns) for at in (i, j, k))
    start = tuple(np.full(i.shape, float(x)) for x in inits)
    with np.errstate(all="ignore"):
        ab, bc = on_cases(body, a, b), on_cases(body, b, c)
        return (
            _close(ab, on_cases(body, b, a))
            and _close(on_cases(body, ab, c), on_cases(body, a, bc))
            and _close(on_cases(body, start, a), a)
        )


def _close(a: Columns, b: Columns) -> bool:
    return all(np.allclose(x, y, TOLERANCE, TOLERANCE, equal_nan=True) for x, y in zip(a, b, strict=True))


def _functions(body: Block) -> set[str]:
    found = (op.definition.semantics for op in body.ops[:-1])
    return {s.function if isinstance(s, Elementwise) else "add" if isinstance(s, Literal) else "?" for s in found}


# ---------------------------------------------------------------- numbers


class _Beyond(LookupError):
    """What these forms do not express."""


@dataclass(frozen=True, eq=False)
class _Quotient:
    top: Poly
    bottom: Poly

    @property
    def size(self) -> int:
        """How many variables there are."""
        return len(next(iter(self.bottom))) // 2

    def __add__(self, other: _Quotient) -> _Quotient:
        if self.bottom == other.bottom:
            return _Quotient(_sum(self.top, other.top), self.bottom)
        top = _sum(_product(self.top, other.bottom), _product(other.top, self.bottom))
        return _Quotient(top, _product(self.bottom, other.bottom))

    def __mul__(self, other: _Quotient) -> _Quotient:
        if self.bottom == other.top:
            return _Quotient(self.top, other.bottom)
        if self.top == other.bottom:
            return _Quotient(other.top, self.bottom)
        return _Quotient(_product(self.top, other.top), _product(self.bottom, other.bottom))

    def __neg__(self) -> _Quotient:
        return _Quotient({m: -k for m, k in self.top.items()}, self.bottom)

    def inverse(self) -> _Quotient:
        return _Quotient(self.bottom, self.top)

    def is_same(self, other: _Quotient) -> bool:
        return _product(self.top, other.bottom) == _product(other.top, self.bottom)


def _sum(a: Poly, b: Poly) -> Poly:
    found = dict(a)
    for m, k in b.items():
        found[m] = found.get(m, 0) + k
    return {m: k for m, k in found.items() if k}


def _product(a: Poly, b: Poly) -> Poly:
    if len(a) * len(b) > MOST_TERMS:
        raise _Beyond("too many terms")
    found: Poly = {}
    for m, k in a.items():
        for n, j in b.items():
            at = tuple(x + y for x, y in zip(m, n, strict=True))
            found[at] = found.get(at, 0) + k * j
    return {m: k for m, k in found.items() if k}


def _is_positive(p: Poly) -> bool:
    """True for a polynomial in exponentials with positive coefficients."""
    return bool(p) and all(k > 0 and not any(m[: len(m) // 2]) for m, k in p.items())


@dataclass(frozen=True, eq=False)
class _Number:
    """plain + log(inside). Whole multiples of variables are in the logarithm; `inside` is 0 for -infinity, 1 / 0 for infinity."""

    plain: _Quotient
    inside: _Quotient

    @property
    def size(self) -> int:
        """How many variables there are."""
        return self.plain.size

    @property
    def infinity(self) -> int:
        """1 or -1 for an infinite number, 0 for others."""
        return 1 if not self.inside.bottom else -1 if not self.inside.top else 0

    def __add__(self, other: _Number) -> _Number:
        if self.infinity * other.infinity < 0:
            raise _Beyond("infinity less infinity")
        return _Number(self.plain + other.plain, self.inside * other.inside)

    def __neg__(self) -> _Number:
        return _Number(-self.plain, self.inside.inverse())

    def is_same(self, other: _Number) -> bool:
        return self.plain.is_same(other.plain) and self.inside.is_same(other.inside)

    def as_quotient(self) -> _Quotient:
        """The number without a logarithm: that of products of exponentials is a sum of variables."""
        top, bottom = self.inside.top, self.inside.bottom
        if len(top) != 1 or len(bottom) != 1 or [*top.values()] != [*bottom.values()]:
            raise _Beyond("a logarithm in a product")
        n = self.size
        ((up,), (down,)) = top, bottom
        linear: Poly = {_power(i, 2 * n): up[n + i] - down[n + i] for i in range(n) if up[n + i] != down[n + i]}
        return self.plain + _Quotient(linear, _one(n))


def _power(at: int, length: int) -> tuple[int, ...]:
    return tuple(int(k == at) for k in range(length))


def _one(n: int) -> Poly:
    return {(0,) * (2 * n): 1}


def _normal(q: _Quotient) -> _Number:
    """A quotient with whole multiples of variables taken into the logarithm."""
    n = q.size
    top, inside = dict(q.top), _Quotient(_one(n), _one(n))
    for i in range(n if q.bottom == _one(n) else 0):
        k = top.get(_power(i, 2 * n), 0)
        if k and k.denominator == 1:
            del top[_power(i, 2 * n)]
            e: Poly = {tuple(abs(int(k)) * x for x in _power(n + i, 2 * n)): 1}
            inside = inside * (_Quotient(e, _one(n)) if k > 0 else _Quotient(_one(n), e))
    return _Number(_Quotient(top, q.bottom), inside)


def _variable(i: int, n: int) -> _Number:
    return _normal(_Quotient({_power(i, 2 * n): 1}, _one(n)))


def _number(x: np.generic, n: int) -> _Number:
    value = x.item()
    if value != value:
        raise _Beyond("NaN")
    if value in (np.inf, -np.inf):
        log = _Quotient({}, _one(n))
        return _Number(_Quotient({}, _one(n)), log if value < 0 else log.inverse())
    return _normal(_Quotient({(0,) * (2 * n): Fraction(value)} if value else {}, _one(n)))


# ---------------------------------------------------------------- bodies


Way = tuple[tuple[_Number, int], ...]
"""Differences with their signs, as far as they are assumed."""


class _Undecided(Exception):
    def __init__(self, difference: _Number) -> None:
        super().__init__("the sign of a difference")
        self.difference = difference


def _always(law: Callable[[Way], bool]) -> bool:
    """Whether a law holds whichever signs its differences have."""
    todo: list[Way] = [()]
    for _ in range(MOST_WAYS):
        if not todo:
            return True
        way = todo.pop()
        try:
            if not law(way):
                return False
        except _Undecided as u:
            todo += [(*way, (u.difference, sign)) for sign in (-1, 0, 1)]
    raise _Beyond("too many ways")


def _alike(a: Sequence[_Number], b: Sequence[_Number]) -> bool:
    return all(x.is_same(y) for x, y in zip(a, b, strict=True))


def _order(a: _Number, b: _Number, way: Way) -> int:
    """The sign of a - b."""
    if a.infinity and a.infinity == b.infinity:
        return 0
    return _sign(a + -b, way)


def _sign(difference: _Number, way: Way) -> int:
    n = difference.size
    plain, inside = difference.plain, difference.inside
    if difference.infinity:
        return difference.infinity
    if inside.is_same(_Quotient(_one(n), _one(n))) and set(plain.top) <= set(_one(n)):
        (value,) = plain.top.values() or (0,)
        return (value > 0) - (value < 0)
    for known, sign in way:
        if known.is_same(difference):
            return sign
        if known.is_same(-difference):
            return -sign
    raise _Undecided(difference)


def _exponential(x: _Number) -> _Quotient:
    if x.plain.top or not x.inside.bottom:
        raise _Beyond("an exponential of more than a sum")
    return x.inside


def _logarithm(q: _Quotient) -> _Number:
    if (q.top and not _is_positive(q.top)) or not _is_positive(q.bottom):
        raise _Beyond("a logarithm of what may be negative")
    return _Number(_Quotient({}, _one(q.size)), q)


def _one_like(x: _Number) -> _Quotient:
    return _Quotient(_one(x.size), _one(x.size))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda way, x, y: x + y,
    "subtract": lambda way, x, y: x + -y,
    "negate": lambda way, x: -x,
    "multiply": lambda way, x, y: _normal(x.as_quotient() * y.as_quotient()),
    "maximum": lambda way, x, y: x if _order(x, y, way) >= 0 else y,
    "minimum": lambda way, x, y: x if _order(x, y, way) <= 0 else y,
    "abs": lambda way, x: x if _sign(x, way) >= 0 else -x,
    "exponential": lambda way, x: _normal(_exponential(x)),
    "exponential_minus_one": lambda way, x: _normal(_exponential(x) + -_one_like(x)),
    "log": lambda way, x: _logarithm(x.as_quotient()),
    "log_plus_one": lambda way, x: _logarithm(x.as_quotient() + _one_like(x)),
    "select": lambda way, p, x, y: x if p else y,
    "and": lambda way, *p: all(p),
    "or": lambda way, *p: any(p),
    "not": lambda way, p: not p,
    "EQ": lambda way, x, y: _order(x, y, way) == 0,
    "NE": lambda way, x, y: _order(x, y, way) != 0,
    "LT": lambda way, x, y: _order(x, y, way) < 0,
    "LE": lambda way, x, y: _order(x, y, way) <= 0,
    "GT": lambda way, x, y: _order(x, y, way) > 0,
    "GE": lambda way, x, y: _order(x, y, way) >= 0,
}
"""Scalar functions, and directions of comparisons, of such numbers and of truth values."""


def _run(body: Block, way: Way, a: Sequence[_Number], b: Sequence[_Number]) -> list[_Number]:
    """A fold's body; raises `_Undecided` for a sign that `way` does not tell, `_Beyond` for what these forms do not express."""
    known: dict[Value, Any] = dict(zip(body.arguments, (*a, *b), strict=True))
    for op in body.ops[:-1]:
        semantics = op.definition.semantics
        if isinstance(semantics, Literal):
            dense: DenseArray = op.attr("value")
            known[op.results[0]] = _number(dense.array.reshape(-1)[0], a[0].size)
            continue
        name = semantics.function if isinstance(semantics, Elementwise) else op.name
        function = _FUNCTIONS.get(op.attr("comparison_direction") if name == "compare" else name)
        x = [known.get(v) for v in op.operands]
        truths = len(x) if name in ("and", "or", "not") else 1 if name == "select" else 0
        if function is None or any(isinstance(v, bool) != (k < truths) or v is None for k, v in enumerate(x)):
            raise _Beyond(op.name)
        known[op.results[0]] = function(way, *x)
    found = [n for v in body.results if isinstance(n := known.get(v), _Number)]
    if len(found) < len(body.results):
        raise _Beyond("a result that is no number")
    return found
