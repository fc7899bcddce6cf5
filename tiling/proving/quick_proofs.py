"""Obligations that interval arithmetic decides, before isl is asked: True is a proof, False says nothing.

    x = i0 + n0 i1 + n0 n1 i2 + ...        digits, each i in [0, n - 1]: every x in [0, n0 n1 n2 ... - 1] once
    d x + r, cut at both ends              a progression, each of its elements once; two of them are apart where their ends are,
                                           or where their first elements differ modulo the steps' common divisor
    boxes of progressions, apart, in a box as large as all of them: every element once
    c t + l, l in an interval < c wide     other tasks t are elsewhere
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd, prod

from indexing.expr import Const, Expr, FloorDiv, Interval, Mod, Var, as_expr, from_terms, simplify, substitute
from tiling.loops.domains import inside
from tiling.loops.domains.iterations import Access, Domain
from tiling.loops.ir import Buffer

__all__ = ["covers", "stays_inside", "tasks_apart", "writes_once"]

MOST_WRITES = 64  # of one buffer, compared two by two


def stays_inside(d: Domain, e: Expr, lower: int, upper: int) -> bool:
    """Whether `e` is in [lower, upper] wherever the domain's conditions hold, each condition taken by itself."""
    span = d.bounds(e)
    return (lower <= span.lower and span.upper <= upper) or inside.stays_inside(d.bounds, d.known, e, lower, upper)


# ---------------------------------------------------------------- written once


def writes_once(writes: Sequence[Access], buffer: Buffer) -> bool:
    """Whether writes reach each element of a dense buffer in exactly one iteration of one of them."""
    if 0 in buffer.shape or len(writes) > MOST_WRITES or any(w.domain.failed for w in writes):
        return False
    writes = [w for w in writes if not any(b.is_empty for _, b in w.domain.variables)]
    boxes = [_box(w.at, buffer.shape, w.domain) for w in writes]
    found = [b for b in boxes if b is not None]
    if len(found) == len(writes):
        apart = all(any(p.is_apart(q) for p, q in zip(a, b, strict=True)) for a, b in combinations(found, 2))
        return apart and sum(prod(p.count for p in b) for b in found) == prod(buffer.shape)
    if len(writes) != 1 or not _is_dense(buffer):
        return False
    # Loops that were joined: by address, which is one to one with positions where those are inside.
    (w,) = writes
    size = prod(buffer.shape)
    made = _box((_address(w, buffer),), (size,), w.domain)
    return (
        made is not None
        and made[0].count == size
        and all(stays_inside(w.domain, e, 0, n - 1) for e, n in zip(w.at, buffer.shape, strict=True))
    )


@dataclass(frozen=True)
class _Progression:
    """first, first + step, ..., first + (count - 1) step."""

    first: int
    step: int
    count: int

    @property
    def last(self) -> int:
        return self.first + (self.count - 1) * self.step

    def is_apart(self, other: _Progression) -> bool:
        """Whether no integer is in both."""
        if self.last < other.first or other.last < self.first:
            return True
        return (self.first - other.first) % gcd(self.step, other.step) != 0


def _box(at: Sequence[Expr], shape: Sequence[int], d: Domain) -> tuple[_Progression, ...] | None:
    """The progressions whose product a domain's iterations reach, each position once and inside of the shape; None: not seen."""
    ranges = d.ranges
    left = {v for v, b in d.variables if b.size > 1}
    many = frozenset(left)
    ends = [
        (as_expr(c.expression), c.lower, c.upper)
        for c in d.held
        if not Interval(c.lower, c.upper).covers(d.bounds(as_expr(c.expression)))
    ]
    found: list[_Progression] = []
    for e, n in zip(at, shape, strict=True):
        used = many.intersection(e.variables)
        if not used <= left or any(not isinstance(a, Var) for a, _ in e.terms):
            return None
        left -= used
        p = _progression(e, ranges)
        if p is None:
            return None
        mine = [x for x in ends if _times(x[0], e) is not None]
        ends = [x for x in ends if x not in mine]
        p = _cut(p, e, mine)
        if p is None or p.first < 0 or p.last >= n:
            return None
        found.append(p)
    return None if left or ends else tuple(found)


def _progression(e: Expr, ranges: Mapping[Var, Interval]) -> _Progression | None:
    """What a linear expression runs through, each element for exactly one choice of its variables."""
    terms = [(k, ranges[v]) for v, k in e.terms if isinstance(v, Var) and v in ranges]
    if len(terms) != len(e.terms):
        return None
    first = e.constant + sum(k * (b.lower if k > 0 else b.upper) for k, b in terms)
    steps = sorted((abs(k), b.size) for k, b in terms if b.size > 1)
    step, count = (steps[0][0] if steps else 1), 1
    for k, size in steps:
        if k != step * count:
            return None
        count *= size
    return _Progression(first, step, count)


def _times(c: Expr, e: Expr) -> tuple[int, int] | None:
    """(a, b), both not 0, where a (c without its constant) = b (e without its constant); None where there are none."""
    if len(c.terms) != len(e.terms) or not c.terms:
        return None
    steps = dict(e.terms)
    atom, b = c.terms[0]
    a = steps.get(atom)
    if a is None or any(k * a != steps.get(x, 0) * b for x, k in c.terms):
        return None
    return a, b


def _cut(p: _Progression, e: Expr, ends: Sequence[tuple[Expr, int, int]]) -> _Progression | None:
    """The elements of a progression, the values of `e`, where conditions on multiples of `e` hold; None where there is none."""
    low, high = p.first, p.last
    for c, lower, upper in ends:
        a, b = _times(c, e) or (1, 1)
        if a < 0:
            a, b = -a, -b
        # a (c - c0) = b (e - e0), so that lower <= c <= upper is a (lower - c0) + b e0 <= b e <= a (upper - c0) + b e0
        below, above = (a * (x - c.constant) + b * e.constant for x in (lower, upper))
        if b < 0:
            below, above, b = -above, -below, -b
        low, high = max(low, -(-below // b)), min(high, above // b)
    first = p.first + -(-(low - p.first) // p.step) * p.step
    return _Progression(first, p.step, (high - first) // p.step + 1) if first <= high else None


def _is_dense(b: Buffer) -> bool:
    step = 1
    for n, s in zip(reversed(b.shape), reversed(b.strides), strict=True):
        if s != step and n > 1:
            return False
        step *= n
    return True


def _address(a: Access, b: Buffer) -> Expr:
    total: Expr = Const(0)
    for e, s in zip(a.at, b.strides, strict=True):
        total = total + e * s
    return simplify(total, a.domain.ranges)


# ---------------------------------------------------------------- tasks apart


def tasks_apart(accesses: Sequence[Access]) -> bool:
    """Whether no two tiles touch the same element of a buffer: `accesses` are all that one phase makes to it."""
    if not accesses:
        return False
    shared = accesses[0].domain.shared
    tiles = dict(accesses[0].domain.variables[:shared])
    if any(b.is_empty for b in tiles.values()):
        return False
    left = {v for v, b in tiles.items() if b.size > 1}
    for k in range(len(accesses[0].at)):
        if not left:
            break
        lead, width = _width(accesses, k, tiles)
        if lead is not None and _is_spaced(lead, width, tiles):
            left -= set(lead.variables)
    return not left


def _width(accesses: Sequence[Access], k: int, tiles: Mapping[Var, Interval]) -> tuple[Expr | None, int]:
    """(the part of position k that tile numbers make, with values that all tasks share, the same in all accesses, or None; how
    wide an interval the rest is in)."""
    lead: Expr | None = None
    low, high = 0, -1
    for a in accesses:
        mine = from_terms(0, {x: n for x, n in a.at[k].terms if x in tiles or x in a.domain.alike})
        rest = a.at[k] - mine
        if (lead is not None and mine is not lead) or any(v in tiles for v in rest.variables):
            return None, 0
        span = a.domain.bounds(rest)
        low, high = (span.lower, span.upper) if lead is None else (min(low, span.lower), max(high, span.upper))
        lead = mine
    return lead, high - low


def _is_spaced(lead: Expr, width: int, tiles: Mapping[Var, Interval]) -> bool:
    """Whether a sum of tile numbers differs by more than `width` for any two choices of them."""
    reach = width
    for v, k in sorted([t for t in lead.terms if t[0] in tiles], key=lambda t: abs(t[1])):
        size = tiles[v].size if isinstance(v, Var) else 0
        if abs(k) <= reach and size != 1:
            return False
        reach += abs(k) * (size - 1)
    return True


# ---------------------------------------------------------------- produced


def covers(w: Access, a: Access, apart: bool) -> bool:
    """Whether a write reaches all that `a` reads: in the same task, or where they are `apart` in any.

    For each element read there is an iteration of the write: its variables are found position by position.
    """
    if w.domain.failed or len(w.at) != len(a.at):
        return False
    ranges = a.domain.ranges
    spans = w.domain.ranges
    free = {v for k, (v, _) in enumerate(w.domain.variables) if apart or k >= w.domain.shared}
    found: dict[Var, Expr] = {}
    whole = _of_digits(w, a, free)
    for made, read in zip(w.at, a.at, strict=True):
        if any(v in whole for v in made.variables):
            continue
        if simplify(made - read, {**spans, **ranges}) is Const(0) and not free.intersection(made.variables):
            continue
        mine = [(v, k) for v, k in made.terms if isinstance(v, Var) and v in free]
        rest = made
        for v, k in mine:
            rest = rest - v * k
        if len(mine) != 1 or mine[0][1] != 1 or mine[0][0] in found or free.intersection(rest.variables):
            return False
        found[mine[0][0]] = simplify(read - rest, ranges)
    found |= whole
    for v, e in found.items():
        if not stays_inside(a.domain, e, spans[v].lower, spans[v].upper):
            return False
    for c in w.domain.held:
        inside = as_expr(c.expression)
        if free.intersection(inside.variables) - found.keys():
            return False
        if not stays_inside(a.domain, simplify(substitute(inside, found), ranges), c.lower, c.upper):
            return False
    return all(v in found or not spans[v].is_empty for v in free)


def _of_digits(w: Access, a: Access, free: set[Var]) -> dict[Var, Expr]:
    """What variables of the write have to be whose digits its positions are: x % n, x // n % m, x // (n m), ...

    Only variables that occur in nothing else, over all of their digits; the digits read have to be digits.
    """
    spans, found = w.domain.ranges, dict[Var, Expr]()
    for v in free:
        where = [k for k, e in enumerate(w.at) if v in e.variables]
        if len(where) < 2 or any(w.at[k].variables != (v,) for k in where) or spans[v].lower != 0 or spans[v].size < 2:
            continue
        digits = [(d, k) for k in where if (d := _digit(w.at[k], v, spans[v].size)) is not None]
        value: Expr = Const(0)
        step = 1
        for (divisor, n), k in sorted(digits):
            if divisor != step or not stays_inside(a.domain, a.at[k], 0, n - 1):
                step = 0
                break
            value, step = value + a.at[k] * step, step * n
        if len(digits) == len(where) and step == spans[v].size:
            found[v] = simplify(value, a.domain.ranges)
    return found


def _digit(e: Expr, v: Var, size: int) -> tuple[int, int] | None:
    """(d, n) where `e` is v // d % n, or v // d of a v in [0, size - 1]."""
    n, d = None, 1
    if isinstance(e, Mod) and isinstance(e.divisor, int):
        n, e = e.divisor, e.numerator
    if isinstance(e, FloorDiv) and isinstance(e.divisor, int):
        d, e = e.divisor, e.numerator
    return (d, n if n is not None else -(-size // d)) if e is v else None
