"""Obligations that interval arithmetic decides, before isl is asked: True is a proof, False says nothing.

    e <= e + k (c - low)                   wherever a condition low <= c holds, for k >= 0: its interval may be the smaller one
    x = i0 + n0 i1 + n0 n1 i2 + ...        digits, each i in [0, n - 1]: every x in [0, n0 n1 n2 ... - 1] once
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from hlo.access import Condition
from indexing.expr import EVERYTHING, Const, Expr, Interval, Var, as_expr, interval, simplify, substitute
from tiling.loops.accesses import Access, Domain
from tiling.loops.ir import Buffer

__all__ = ["covers", "stays_inside", "writes_once"]


def stays_inside(d: Domain, e: Expr, lower: int, upper: int) -> bool:
    """Whether `e` is in [lower, upper] wherever the domain's conditions hold, each condition taken by itself."""
    ranges = d.ranges
    span = interval(e, ranges)
    low, high = span.lower >= lower, span.upper <= upper
    for c in d.held if not (low and high) else ():
        for k in _factors(e, as_expr(c.expression)):
            rest = interval(e - as_expr(c.expression) * k, ranges)  # e = rest + k c
            ends = (k * c.lower, k * c.upper) if k > 0 else (k * c.upper, k * c.lower)
            low = low or (_is_known(c, k > 0) and rest.lower + ends[0] >= lower)
            high = high or (_is_known(c, k < 0) and rest.upper + ends[1] <= upper)
    return low and high


def _is_known(c: Condition, lower: bool) -> bool:
    """Whether a condition has a lower (or an upper) end."""
    return c.lower > EVERYTHING.lower if lower else c.upper < EVERYTHING.upper


def _factors(e: Expr, c: Expr) -> Iterator[int]:
    """The k for which e - k c has an atom less than e."""
    steps = dict(c.terms)
    found = {k // steps[atom] for atom, k in e.terms if steps.get(atom) and k % steps[atom] == 0}
    return iter(sorted(found))


def writes_once(w: Access, buffer: Buffer) -> bool:
    """Whether a write reaches each element of a dense buffer in exactly one iteration."""
    if w.domain.failed or 0 in buffer.shape or any(b.is_empty for _, b in w.domain.variables):
        return False
    if _are_digits(w.at, buffer.shape, w.domain):
        return True
    # Loops that were joined: by address, which is one to one with positions where those are inside.
    inside = _is_dense(buffer) and all(stays_inside(w.domain, e, 0, n - 1) for e, n in zip(w.at, buffer.shape, strict=True))
    return inside and _are_digits((_address(w, buffer),), (prod(buffer.shape),), w.domain)


def _are_digits(at: Sequence[Expr], shape: Sequence[int], d: Domain) -> bool:
    """Whether the domain's iterations and the positions of a box of that shape are one to one."""
    ranges = d.ranges
    left = {v for v, b in d.variables if b.size > 1}
    conditions = {(c.expression, c.lower) for c in d.held if c.upper >= interval(as_expr(c.expression), ranges).upper}
    if len(conditions) != len(d.held):
        return False
    for e, n in zip(at, shape, strict=True):
        used = {v for v in e.variables if v in left}
        count = _digits(e, ranges)
        if count is None or not used <= left:
            return False
        left -= used
        if count > n:
            end = (simplify(as_expr(n - 1) - e, ranges), 0)
            if end not in conditions:
                return False
            conditions.discard(end)
        elif count < n:
            return False
    return not left and not conditions


def _digits(e: Expr, ranges: Mapping[Var, Interval]) -> int | None:
    """n where `e` takes each value in [0, n - 1] for exactly one choice of its variables; None where that is not seen."""
    low, count = e.constant, 1
    for atom, k in sorted(e.terms, key=lambda term: term[1]):
        span = ranges.get(atom) if isinstance(atom, Var) else None
        if span is None or (span.size > 1 and k != count):
            return None
        low += k * span.lower
        count *= span.size
    return count if low == 0 else None


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
    for made, read in zip(w.at, a.at, strict=True):
        if simplify(made - read, {**spans, **ranges}) is Const(0) and not free.intersection(made.variables):
            continue
        mine = [(v, k) for v, k in made.terms if isinstance(v, Var) and v in free]
        rest = made
        for v, k in mine:
            rest = rest - v * k
        if len(mine) != 1 or mine[0][1] != 1 or mine[0][0] in found or free.intersection(rest.variables):
            return False
        found[mine[0][0]] = simplify(read - rest, ranges)
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
