"""Which cases of a table the fast tests run: each pair of values of two parameters is in at least one of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def covering(cases: Iterable[Sequence[Any]], strength: int = 2) -> list[int]:
    """Numbers of cases, rising, so that what `strength` parameters are together in any case they are in one of these.

    With a strength of 1 each value of each parameter is in one of them. Values are told apart by their text. Of the cases
    that add most the one furthest from the last is taken, so that values of a short parameter take turns; then what the
    others cover is left out.

    Raises ValueError where cases differ in length.

    >>> covering(itertools.product("ab", "cd", "ef"))
    [0, 3, 5, 6]
    """
    parts = [_combinations(case, strength) for case in cases]
    if len({len(p) for p in parts}) > 1:
        raise ValueError("expected cases of equal length")
    left = set().union(*parts)
    kept: list[int] = []
    while left:
        last = parts[kept[-1]] if kept else frozenset()
        best = max(range(len(parts)), key=lambda k: (len(parts[k] & left), -len(parts[k] & last), -k))
        kept.append(best)
        left -= parts[best]
    for k in list(reversed(kept)):
        if parts[k] <= set().union(*(parts[other] for other in kept if other != k)):
            kept.remove(k)
    return sorted(kept)


def fast_cover(
    cases: Iterable[Sequence[Any]], strength: int = 2, of: Callable[[tuple[Any, ...]], Sequence[Any]] | None = None
) -> list[Any]:
    """Cases for `pytest.mark.parametrize`: those of `covering` as they are, the others slow. Raises ValueError as it does.

    `of` makes of a case what is to be covered, where that is not each parameter by itself.

    >>> [bool(c.marks) for c in fast_cover(itertools.product("ab", "cd"), strength=1)]
    [False, True, True, False]
    """
    table = [tuple(case) for case in cases]
    fast = set(covering(map(of, table) if of else table, strength))
    return [pytest.param(*case, marks=() if k in fast else pytest.mark.slow) for k, case in enumerate(table)]


def _combinations(case: Sequence[Any], strength: int) -> frozenset[tuple[tuple[int, str], ...]]:
    return frozenset(itertools.combinations(enumerate(map(str, case)), strength))
