"""Variables that passes add to a schedule."""

from __future__ import annotations

from indexing.expr import Interval, Var

__all__ = ["new_variable"]


def new_variable(name: str, span: Interval, ranges: dict[Var, Interval]) -> Var:
    """A variable that runs over `span`, added to `ranges`: one of that name and span, or of the name with a number behind it.

    >>> ranges: dict[Var, Interval] = {}
    >>> [str(new_variable("i", Interval(0, n), ranges)) for n in (7, 7, 3)]
    ['i', 'i', 'i_2']
    """
    v, count = Var(name), 1
    while ranges.setdefault(v, span) != span:
        count += 1
        v = Var(f"{name}_{count}")
    return v
