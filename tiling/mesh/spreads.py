"""The ways to spread an op's loops over processes that follow from how its operands are spread and how its result is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from hlo.module import Op
from hlo.registry import Fold, Generate, SumOfProducts
from indexing.expr import Expr, Var
from tiling.mesh.local_ops import folds_in_parts, windowed_dims
from tiling.mesh.relations import Loops, Spread, block_size
from tiling.mesh.shardings import Digit, Sharding

__all__ = ["may_spread", "spreads_of", "uneven_ranges"]


def spreads_of(op: Op, loops: Loops, held: Mapping[int, Sharding], hint: Sharding | None) -> Iterator[Spread]:
    """The ways to spread an op's loops: of its result as it is wanted (`hint`), and of its operands' tiles (`held`)."""
    yield {}
    starts: list[Spread] = [{}]
    if hint is not None:
        starts.append({v: d for v, d in zip(loops.dims, hint.dims, strict=True) if d})
    order = sorted((k for k, s in held.items() if not s.is_whole), key=lambda k: -op.operands[k].tensor.size_bytes)
    for start in starts:
        yield start
        for first in order:
            made = loops.follow(first, held[first], start)
            yield dict(made)
            for k in order:
                made = loops.follow(k, held[k], made)
            yield dict(made)
            if windowed_dims(op):
                yield {**made, **_over_windows(loops, first, held[first], made)}
            made = {v: d for v, d in made.items() if d and may_spread(op, loops, v, d)}
            # What no loop follows may go to a loop that is free: an exchange, where else all would be gathered.
            used = {d for digits in made.values() for d in digits}
            left = tuple([d for d in held[first].digits if d not in used])
            for v in loops.dims:
                if left and not made.get(v):
                    yield {**made, v: left}


def _over_windows(loops: Loops, operand: int, sharding: Sharding, made: Spread) -> Spread:
    """The loops that move windows along the dimensions of an operand that are spread."""
    used = {d for digits in made.values() for d in digits}
    found: dict[Var, tuple[Digit, ...]] = {}
    for number, index, _ in loops.reads():
        for k, digits in enumerate(sharding.dims if number == operand else ()):
            own = [v for v in index[k].variables if v in loops.dims and not made.get(v)]
            if digits and len(own) == 1 and not used & set(digits):
                found[own[0]] = digits
    return found


def may_spread(op: Op, loops: Loops, v: Var, digits: tuple[Digit, ...]) -> bool:
    """Whether pieces of a loop can be computed by themselves, as far as its op tells, and not more than half for nothing."""
    size, parts = loops.size(v), prod(d.size for d in digits)
    if size % parts and block_size(size, digits) * parts >= 2 * size:
        return False
    semantics = op.definition.semantics
    if v in loops.ranges:
        return isinstance(semantics, SumOfProducts) or (isinstance(semantics, Fold) and folds_in_parts(op, semantics))
    if isinstance(semantics, Generate):
        value = semantics.value(op, loops.dims)
        return isinstance(value, Expr) and v not in value.variables
    return True


def uneven_ranges(loops: Loops, spread: Spread) -> set[Var]:
    """The loops of a fold whose last piece reaches over their end."""
    return {v for v in loops.ranges if loops.size(v) % prod(d.size for d in spread.get(v, ()))}
