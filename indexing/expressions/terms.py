"""Quasi-affine integer expressions: immutable, interned, kept as sums in one canonical order.

Every expression is `constant + sum of coefficient * atom`. An atom is a variable, a floor division, a modulo, a product of
two expressions that are not constant, or a minimum or maximum. Two expressions that are built alike are the same object, so
`is`, `==` and `hash` are one pointer comparison, and tables keyed by expressions are cheap. Division and modulo floor, as
Python's do: `e == c * (e // c) + e % c` and `0 <= e % c < c` for c > 0.

Building applies only what holds for every value of the variables; what needs their ranges is in `simplifier`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from math import gcd
from typing import Any, SupportsIndex, TypeVar

from hlo.display import as_text
from indexing.expressions.interning import intern, lookup

__all__ = [
    "Const",
    "Expr",
    "ExprLike",
    "FloorDiv",
    "Maximum",
    "Minimum",
    "Mod",
    "Product",
    "Sum",
    "Var",
    "as_expr",
    "divide",
    "floordiv",
    "from_terms",
    "make_atom",
    "mod",
    "shift",
]

Key = tuple[Any, ...]
Terms = tuple[tuple["Expr", int], ...]
E = TypeVar("E", bound="Expr")


class Expr:
    """An expression. `constant` and `terms` ((atom, coefficient), …) are its linear form; `variables` what occurs in it.

    Has `+ - * // %` with expressions and ints. Never construct subclasses with anything but the functions of this module.

    >>> d0, d1 = Var("d0"), Var("d1")
    >>> str((d0 * 16 + d1 * 4 + 3) // 8)
    'd0 * 2 + d1 floordiv 2'
    >>> (d0 + d1) - d1 is d0
    True
    """

    __slots__ = ("__weakref__", "constant", "cost", "order", "terms", "variables")

    constant: int
    terms: Terms
    order: Key  # sorts expressions the same way in every process
    variables: tuple[Var, ...]  # without repetition, in order
    cost: int  # how much there is to compute: operations and leaves

    @property
    def is_constant(self) -> bool:
        return not self.terms

    # Ints are met before they become constants: most operands are ints, and a constant costs more than the operation.

    def __add__(self, other: ExprLike) -> Expr:
        if type(other) is int:
            return shift(self, other) if other else self
        b = _coerce(other)
        if b is None:
            return NotImplemented
        if not b.terms:
            return self if b.constant == 0 else shift(self, b.constant)
        if not self.terms:
            return b if self.constant == 0 else shift(b, self.constant)
        total = dict(self.terms)
        for atom, k in b.terms:
            total[atom] = total.get(atom, 0) + k
        return from_terms(self.constant + b.constant, total)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return _scale(self, -1)

    def __sub__(self, other: ExprLike) -> Expr:
        if type(other) is int:
            return shift(self, -other) if other else self
        b = _coerce(other)
        if b is None:
            return NotImplemented
        if not b.terms:
            return shift(self, -b.constant) if b.constant else self
        total = dict(self.terms)
        for atom, k in b.terms:
            total[atom] = total.get(atom, 0) - k
        return from_terms(self.constant - b.constant, total)

    def __rsub__(self, other: ExprLike) -> Expr:
        if type(other) is int:
            return shift(_scale(self, -1), other)
        b = _coerce(other)
        return NotImplemented if b is None else b + _scale(self, -1)

    def __mul__(self, other: ExprLike) -> Expr:
        if type(other) is int:
            return _scale(self, other)
        b = _coerce(other)
        if b is None:
            return NotImplemented
        if not b.terms:
            return _scale(self, b.constant)
        if not self.terms:
            return _scale(b, self.constant)
        return _product(self, b)

    __rmul__ = __mul__

    def __floordiv__(self, other: ExprLike) -> Expr:
        if type(other) is int:
            return _floordiv(self, other)
        b = _coerce(other)
        return NotImplemented if b is None else floordiv(self, b)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        a = _coerce(other)
        return NotImplemented if a is None else floordiv(a, self)

    def __mod__(self, other: ExprLike) -> Expr:
        if type(other) is int:
            return _mod(self, other)
        b = _coerce(other)
        return NotImplemented if b is None else mod(self, b)

    def __rmod__(self, other: ExprLike) -> Expr:
        a = _coerce(other)
        return NotImplemented if a is None else mod(a, self)

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return f"<{self}>"

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self


ExprLike = Expr | int


class Const(Expr):
    """An integer."""

    __slots__ = ("value",)
    value: int

    def __new__(cls, value: int) -> Const:
        key = ("c", value)
        node: Const | None = lookup(key)
        if node is None:
            node = object.__new__(cls)
            node.value = node.constant = value
            node.terms = node.variables = ()
            node.order = (6, value)
            node.cost = 1
            node = intern(key, node)
        return node

    def __reduce__(self) -> tuple[Any, ...]:
        return Const, (self.value,)


_PREFIXES = {"d": 0, "s": 1, "rt": 2}
_NUMBERED = re.compile(r"(.*?)(\d*)\Z", re.DOTALL)


class Var(Expr):
    """A variable. Its name tells its kind by XLA's custom: d0 a dimension, s0 a range, rt0 a runtime variable."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> Var:
        key = ("v", name)
        node: Var | None = lookup(key)
        if node is None:
            node = object.__new__(cls)
            node.name = name
            node.constant = 0
            prefix, number = _NUMBERED.fullmatch(name).groups()  # type: ignore[union-attr]
            node.order = (0, _PREFIXES.get(prefix, 3), prefix, int(number or -1), name)
            node.variables = (node,)
            node.terms = ((node, 1),)
            node.cost = 1
            node = intern(key, node)
        return node

    def __reduce__(self) -> tuple[Any, ...]:
        return Var, (self.name,)


class Sum(Expr):
    """constant + sum of coefficient * atom: at least two addends, or one with a coefficient."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _sum_from_pickle, (self.constant, self.terms)


class FloorDiv(Expr):
    """floor(numerator / divisor). The divisor is an int above 1, or an expression where a program's sizes are symbolic."""

    __slots__ = ("divisor", "numerator")
    numerator: Expr
    divisor: int | Expr

    def __reduce__(self) -> tuple[Any, ...]:
        return divide, ("//", self.numerator, self.divisor)


class Mod(Expr):
    """numerator - divisor * floor(numerator / divisor)."""

    __slots__ = ("divisor", "numerator")
    numerator: Expr
    divisor: int | Expr

    def __reduce__(self) -> tuple[Any, ...]:
        return divide, ("%", self.numerator, self.divisor)


class Product(Expr):
    """The product of two or more factors, none of them constant."""

    __slots__ = ("factors",)
    factors: tuple[Expr, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_product, (self.factors,)


class Minimum(Expr):
    """The least of two or more expressions."""

    __slots__ = ("arguments",)
    arguments: tuple[Expr, ...]


class Maximum(Expr):
    """The greatest of two or more expressions."""

    __slots__ = ("arguments",)
    arguments: tuple[Expr, ...]


# ---------------------------------------------------------------- construction


def as_expr(value: ExprLike | SupportsIndex) -> Expr:
    """`value` itself, or the constant of an int. Raises TypeError for anything that is no integer."""
    return value if isinstance(value, Expr) else Const(operator.index(value))


def _coerce(value: object) -> Expr | None:
    if isinstance(value, Expr):
        return value
    try:
        return Const(operator.index(value))  # type: ignore[arg-type]
    except TypeError:
        return None


def _sort_key(term: tuple[Expr, int]) -> Key:
    return term[0].order


def _union(parts: Iterable[Expr]) -> tuple[Var, ...]:
    found: dict[Var, None] = {}
    for p in parts:
        for v in p.variables:
            found[v] = None
    return tuple(sorted(found, key=lambda v: v.order))


def from_terms(constant: int, terms: Mapping[Expr, int]) -> Expr:
    """constant + sum of terms[atom] * atom. The keys must be atoms (not sums, not constants)."""
    items = [t for t in terms.items() if t[1]]
    if not items:
        return Const(constant)
    if len(items) == 1:
        if constant == 0 and items[0][1] == 1:
            return items[0][0]
    else:
        items.sort(key=_sort_key)
    return _sum(constant, tuple(items))


def _sum(constant: int, items: Terms) -> Expr:
    key = (constant, items)
    node: Sum | None = lookup(key)
    if node is None:
        node = object.__new__(Sum)
        node.constant = constant
        node.terms = items
        node.order = (5, tuple([(a.order, k) for a, k in items]), constant)
        cost = 1 if constant else 0
        plain = True
        for a, k in items:
            cost += a.cost + (1 if k in (1, -1) else 2)
            plain = plain and type(a) is Var
        node.cost = cost
        node.variables = tuple([a for a, _ in items]) if plain else _union(a for a, _ in items)  # type: ignore[misc]
        node = intern(key, node)
    return node


def _sum_from_pickle(constant: int, items: Terms) -> Expr:
    return from_terms(constant, dict(items))


def shift(e: Expr, by: int) -> Expr:
    constant = e.constant + by
    if not e.terms:
        return Const(constant)
    if constant == 0 and len(e.terms) == 1 and e.terms[0][1] == 1:
        return e.terms[0][0]
    return _sum(constant, e.terms)


def _scale(e: Expr, by: int) -> Expr:
    if by == 1:
        return e
    if by == 0 or not e.terms:
        return Const(e.constant * by)
    constant = e.constant * by
    items = tuple([(a, k * by) for a, k in e.terms])
    if constant == 0 and len(items) == 1 and items[0][1] == 1:
        return items[0][0]
    return _sum(constant, items)


def make_atom(cls: type[E], key: Key, order: Key, parts: tuple[Expr, ...]) -> E:
    node = object.__new__(cls)
    node.constant = 0
    node.terms = ((node, 1),)
    node.order = order
    node.variables = parts[0].variables if len(parts) == 1 else _union(parts)
    node.cost = 2 + sum(p.cost for p in parts)
    return node


def divide(kind: str, n: Expr, c: int | Expr) -> Expr:
    """The atom n // c or n % c as it is, without looking for a simpler form."""
    key = (kind, n, c)
    node: FloorDiv | Mod | None = lookup(key)
    if node is None:
        symbolic = isinstance(c, Expr)
        place = 1 if kind == "//" else 2
        order = (place, n.order, (1, c.order) if isinstance(c, Expr) else (0, c))
        parts = (n, c) if isinstance(c, Expr) else (n,)
        node = make_atom(FloorDiv, key, order, parts) if kind == "//" else make_atom(Mod, key, order, parts)
        node.numerator = n
        node.divisor = c
        node.cost += 0 if symbolic else 1
        node = intern(key, node)
    return node


# Products of sums are multiplied out up to this many terms, so that t * T + T - t * T becomes T.
_EXPANSION_LIMIT = 64


def _product(a: Expr, b: Expr) -> Expr:
    if (len(a.terms) + 1) * (len(b.terms) + 1) > _EXPANSION_LIMIT:
        return _make_product((a, b))
    total = _scale(a, b.constant) + _scale(b - b.constant, a.constant)
    for x, k in a.terms:
        for y, m in b.terms:
            xs = x.factors if isinstance(x, Product) else (x,)
            ys = y.factors if isinstance(y, Product) else (y,)
            total = total + _scale(_make_product(xs + ys), k * m)
    return total


def _make_product(factors: tuple[Expr, ...]) -> Expr:
    factors = tuple(sorted(factors, key=lambda f: f.order))
    key = ("*", factors)
    node: Product | None = lookup(key)
    if node is None:
        node = make_atom(Product, key, (3, tuple(f.order for f in factors)), factors)
        node.factors = factors
        node = intern(key, node)
    return node


def floordiv(e: ExprLike, divisor: ExprLike) -> Expr:
    """floor(e / divisor), an integer division as Python's `//`.

    Multiples of a constant divisor move out, common factors cancel, and floor(floor(x / a) / b) = floor(x / (a b)).
    Raises ZeroDivisionError for a divisor of 0.

    >>> x = Var("d0")
    >>> str(floordiv(6 * x + 9, 4)), str(floordiv(x // 3, 4))
    ('(d0 * 3) floordiv 2 + 2', 'd0 floordiv 12')
    """
    n = as_expr(e)
    if type(divisor) is int:
        return _floordiv(n, divisor)
    c = as_expr(divisor)
    if c.terms:
        return _symbolic_floordiv(n, c)
    return _floordiv(n, c.constant)


def _floordiv(n: Expr, c: int) -> Expr:
    if c <= 0:
        if c == 0:
            raise ZeroDivisionError(f"({n}) floordiv 0")
        n, c = -n, -c
    if c == 1:
        return n
    if not n.terms:
        return Const(n.constant // c)
    common, moves = c, n.constant % c == 0 and n.constant != 0
    for _, k in n.terms:
        if k % c:
            common = gcd(common, k)
        else:
            moves = True
    if moves:
        out = {a: k // c for a, k in n.terms if k % c == 0}
        rest = {a: k for a, k in n.terms if k % c}
        if not rest:
            return from_terms(n.constant // c, out)
        shift = n.constant // c if n.constant % c == 0 else 0
        inner = from_terms(n.constant - shift * c, rest)
        return from_terms(shift, out) + _floordiv(inner, c)
    if common > 1:
        reduced = from_terms(n.constant // common, {a: k // common for a, k in n.terms})
        return _floordiv(reduced, c // common)
    if isinstance(n, FloorDiv) and isinstance(n.divisor, int):
        return _floordiv(n.numerator, n.divisor * c)
    return divide("//", n, c)


def mod(e: ExprLike, divisor: ExprLike) -> Expr:
    """e - divisor * floor(e / divisor), as Python's `%`; in [0, divisor - 1] for a positive divisor.

    Multiples of a constant divisor vanish and common factors move out. Raises ZeroDivisionError for a divisor of 0.

    >>> x, y = Var("d0"), Var("d1")
    >>> str(mod(17 * x + 16 * y, 8)), str(mod(4 * x + 1, 8))
    ('d0 mod 8', '(d0 mod 2) * 4 + 1')
    """
    n = as_expr(e)
    if type(divisor) is int:
        return _mod(n, divisor)
    c = as_expr(divisor)
    if c.terms:
        return n - c if n is c else _symbolic_mod(n, c)
    return _mod(n, c.constant)


def _mod(n: Expr, c: int) -> Expr:
    if c <= 0:
        if c == 0:
            raise ZeroDivisionError(f"({n}) mod 0")
        return -_mod(-n, -c)
    if not n.terms or c == 1:
        return Const(n.constant % c)
    common, moves = c, abs(n.constant) >= c
    for _, k in n.terms:
        common = gcd(common, k)
        moves = moves or not -c < 2 * k < 2 * c
    if moves:
        # The constant keeps its sign: (d0 - 5) mod 7 is shorter than (d0 + 2) mod 7 when d0 >= 5.
        constant = n.constant % c if n.constant >= 0 else -(-n.constant % c)
        return _mod(from_terms(constant, {a: _residue(k, c) for a, k in n.terms}), c)
    if common > 1:
        q, r = divmod(n.constant, common)
        return common * _mod(from_terms(q, {a: k // common for a, k in n.terms}), c // common) + r
    if isinstance(n, Mod) and isinstance(n.divisor, int):
        if n.divisor % c == 0:
            return _mod(n.numerator, c)
        if n.divisor <= c:
            return n
    return divide("%", n, c)


def _residue(k: int, c: int) -> int:
    """k modulo c: in [0, c - 1], or nearer to 0 below it for a negative k."""
    r = k % c
    return r if k >= 0 or 2 * r <= c else r - c


def _multiples(n: Expr, c: Expr) -> tuple[Expr, Expr]:
    """(q, r) with n = q * c + r, where q collects the terms that show c as a factor."""
    if n is c:
        return Const(1), Const(0)
    quotient: Expr = Const(0)
    for atom, k in n.terms:
        factors = atom.factors if isinstance(atom, Product) else (atom,)
        if c in factors:
            left = list(factors)
            left.remove(c)
            part: Expr = Const(k)
            for f in left:
                part = part * f
            quotient = quotient + part
    return quotient, n - quotient * c if quotient.terms or quotient.constant else n


def _symbolic_floordiv(n: Expr, c: Expr) -> Expr:
    if not n.terms and n.constant == 0:
        return n
    quotient, rest = _multiples(n, c)
    if not rest.terms and rest.constant == 0:
        return quotient
    return quotient + divide("//", rest, c)


def _symbolic_mod(n: Expr, c: Expr) -> Expr:
    if not n.terms and n.constant == 0:
        return n
    _, rest = _multiples(n, c)
    return rest if not rest.terms and rest.constant == 0 else divide("%", rest, c)
