"""What iterations store and load, one after the other: for quotients in one another, of which isl makes no end.

    for each iteration i:    loaded(i) = m(stored(i))

Which holds or not for each of so many numbers, and arrays of them are quick. From element to element, as isl is asked otherwise,
iterations lie in between, unknown: it took more than a minute for what is laid out flat, turned, and laid out flat again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from hlo.access import Condition
from indexing.expr import Expr, FloorDiv, Interval, Mod, Var, as_expr, evaluate, parts
from indexing.map import IndexingMap
from tiling.loops.domains.iterations import Access
from tiling.proving.contents.written_and_read import Flow, index_of

__all__ = ["in_every_iteration", "leads_along"]

AT_ONCE = 1 << 18  # iterations; their numbers stay in a cache
MOST_ITERATIONS = 1 << 25  # some seconds
FEWEST_QUOTIENTS = 4  # isl is quicker with fewer

Values = Mapping[Var, Any]


def in_every_iteration(read: Access, write: Access) -> bool:
    """Whether all that holds where a load is made is said of where the write is, too."""
    a, b = read.domain, write.domain
    return all(set(x) <= set(y) for x, y in ((a.variables, b.variables), (a.held, b.held), (a.failed, b.failed)))


def leads_along(write: Access, flow: Flow, m: IndexingMap) -> bool:
    """Whether each iteration loads the one element that `m` leads to from the element that it stores.

    Sufficient, and asked only where isl may not come to an end: of few iterations, with quotients in their elements.
    """
    if m.unknown is not None or m.is_known_empty or m.ranges or m.runtimes or flow.copies:
        return False
    if _quotients([*index_of(write), *flow.element]) + _quotients(m.results) < FEWEST_QUOTIENTS:
        return False
    variables: dict[Var, Interval] = {}
    for v, b in (*write.domain.variables, *flow.read.domain.variables):
        variables[v] = b if v not in variables else variables[v].intersect(b)
    if prod(b.size for b in variables.values()) > MOST_ITERATIONS:
        return False
    held = (*write.domain.held, *flow.read.domain.held)
    failed = (*write.domain.failed, *flow.read.domain.failed)
    for values in _iterations(variables):
        made = _all(held, values)
        for group in failed:
            made = made & ~_all(group, values)
        stored, loaded = ([evaluate(as_expr(e), values) for e in found] for found in (index_of(write), flow.element))
        at = {d.var: x for d, x in zip(m.dims, stored, strict=True)}
        right = _all([Condition(d.var, d.interval.lower, d.interval.upper) for d in m.dims], at)
        right = right & _all([Condition(c.expression, c.interval.lower, c.interval.upper) for c in m.constraints], at)
        for e, x in zip(m.results, loaded, strict=True):
            right = right & (evaluate(e, at) == x)
        if not np.all(right | ~made):
            return False
    return True


def _quotients(found: Iterable[Expr]) -> int:
    """How many quotients and remainders expressions are made of, those within others counted each time."""
    return sum(isinstance(x, FloorDiv | Mod) + _quotients(parts(x)) for e in found for x, _ in as_expr(e).terms)


def _iterations(variables: Mapping[Var, Interval]) -> Iterator[Values]:
    shape = tuple(b.size for b in variables.values())
    for start in range(0, prod(shape), AT_ONCE):
        numbers = np.unravel_index(np.arange(start, min(start + AT_ONCE, prod(shape))), shape)
        yield {v: x + b.lower for (v, b), x in zip(variables.items(), numbers, strict=True)}


def _all(conditions: Iterable[Condition], values: Values) -> Any:
    right: Any = np.True_
    for c in conditions:
        x = evaluate(as_expr(c.expression), values)
        right = right & np.greater_equal(x, c.lower) & np.less_equal(x, c.upper)
    return right
