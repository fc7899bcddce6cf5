"""From an address to a position: which element of a buffer lies there.

    address = sum of position_k * stride_k    ->    position_k, each inside of its dimension
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from hlo.access import Condition
from indexing.exact.isl import bounded, domain_set
from indexing.expr import Bounds, Const, Expr, Interval, Var, as_expr, from_terms, simplify
from indexing.map import Constraint, IndexingMap, Variable
from tiling.loops.domains.inside import stays_inside
from tiling.loops.ir import Buffer

__all__ = ["positions"]


def positions(
    buffer: Buffer, place: Expr, variables: Sequence[tuple[Var, Interval]], held: Sequence[Condition]
) -> tuple[Expr, ...]:
    """The position at an address, wherever the variables are in their intervals and the conditions hold.

    Each term goes to the widest stride that divides it; by division where that does not fit.
    """
    strides, ranges = buffer.strides, dict(variables)
    terms: list[dict[Expr, int]] = [{} for _ in strides]
    constants = [0] * len(strides)
    wide_first = _wide_first(buffer)
    rest: dict[Expr, int] = {}
    for atom, k in place.terms:
        fit = next((d for d in wide_first if strides[d] and abs(k) >= strides[d] and k % strides[d] == 0), None)
        if fit is None:
            rest[atom] = k
        else:
            terms[fit][atom] = k // strides[fit]
    constant = place.constant
    for d in wide_first:
        if strides[d] and abs(constant) >= strides[d]:
            part = constant // strides[d] if constant > 0 else -(-constant // strides[d])
            constants[d] = part
            constant -= part * strides[d]
    if rest or constant:
        return _by_division(buffer, place, ranges)
    found = tuple(simplify(from_terms(c, t), ranges) for c, t in zip(constants, terms, strict=True))
    # Where a term spans several dimensions (a flat depth index, columns of a wider value), only division tells them apart.
    return found if _stays_inside(buffer, found, variables, held) else _by_division(buffer, place, ranges)


def _stays_inside(
    buffer: Buffer, found: Sequence[Expr], variables: Sequence[tuple[Var, Interval]], held: Sequence[Condition]
) -> bool:
    """True when no iteration takes a position out of its dimension: the intervals or the conditions of the loops say so."""
    bounds = Bounds(dict(variables))
    for e, n in zip(found, buffer.shape, strict=True):
        if stays_inside(bounds, held, e, 0, n - 1):
            continue
        dims = tuple(Variable(v, b) for v, b in variables)
        where = tuple(Constraint(as_expr(c.expression), Interval(c.lower, c.upper)) for c in held)
        low, high = bounds(e)
        for out in (Interval(low, -1), Interval(n, high)):
            outside = IndexingMap(dims, (), constraints=(*where, Constraint(e, out)))
            if not out.is_empty and bounded(partial(_is_empty, outside)) is not True:
                return False
    return True


def _is_empty(m: IndexingMap) -> bool:
    return bool(domain_set(m).is_empty())


def _by_division(buffer: Buffer, place: Expr, ranges: Mapping[Var, Interval]) -> tuple[Expr, ...]:
    """The position at an address: floordiv by each stride, widest first (not all buffers are row-major), of what is left."""
    found: list[Expr] = [Const(0)] * len(buffer.strides)
    left = place
    for k in _wide_first(buffer):
        s = buffer.strides[k]
        if s:
            found[k] = simplify(left if s == 1 else left // s, ranges)
            left = simplify(left % s, ranges) if s > 1 else Const(0)
    return tuple(found)


def _wide_first(buffer: Buffer) -> list[int]:
    """The dimensions from the widest stride to the narrowest; of equal strides first the one with more than one place."""
    return sorted(range(len(buffer.strides)), key=lambda k: (-buffer.strides[k], -buffer.shape[k]))
