"""Variables that lowering and passes add to a schedule, and loops over them."""

from __future__ import annotations

from indexing.expr import Const, Expr, Interval, Var
from tiling.loops.nest import Loop, LoopKind

__all__ = ["counted", "fresh_variable", "new_variable"]


def fresh_variable(name: str, span: Interval, ranges: dict[Var, Interval]) -> Var:
    """A variable that `ranges` did not have, of that name and a number, which runs over `span`.

    >>> ranges: dict[Var, Interval] = {}
    >>> [str(fresh_variable("p", Interval(0, 7), ranges)) for _ in range(2)]
    ['p_2', 'p_3']
    """
    count = 2
    while (v := Var(f"{name}_{count}")) in ranges:
        count += 1
    ranges[v] = span
    return v


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


def counted(
    name: str, extent: int, ranges: dict[Var, Interval], kind: LoopKind = LoopKind.PARALLEL, last: Expr | None = None
) -> Loop:
    """The loop over [0, extent - 1], or up to `last` below that, whose variable of that name is added to `ranges`.

    >>> ranges: dict[Var, Interval] = {}
    >>> print(counted("i", 8, ranges), *ranges.values())
    for i in [0, 7] [0, 7]
    """
    v = Var(name)
    ranges[v] = Interval(0, max(extent - 1, 0))
    return Loop(v, Const(0), Const(extent - 1) if last is None else last, extent, kind)
