"""Under which conditions a load is made: the ways to reach it through choices."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.access import Condition
from tiling.loops.element_ir import Choose, IndexNode, Load, Node, children, runtimes_of

__all__ = ["guarded_loads"]

GUARDS_LIMIT = 16  # ways to reach one load through choices; beyond, it counts as reached always

Guard = tuple[tuple[Condition, ...], tuple[tuple[Condition, ...], ...]]
ALWAYS: Guard = ((), ())


def guarded_loads(roots: Sequence[Node]) -> list[tuple[Load, list[Guard]]]:
    """Each load with the ways to reach it: conditions that hold, and groups of which one fails, for each way."""
    ways: dict[Node, dict[Guard, None]] = {}
    order = _topological(roots)
    if not any(isinstance(n, Choose) for n in order):
        return [(n, [ALWAYS]) for n in order if isinstance(n, Load)]
    for n in roots:
        ways.setdefault(n, {})[ALWAYS] = None
    found: list[tuple[Load, list[Guard]]] = []
    for n in order:
        mine = ways[n]
        if ALWAYS in mine or len(mine) > GUARDS_LIMIT:
            mine = {ALWAYS: None}
        if isinstance(n, Load):
            found.append((n, list(mine)))
        inner = {r.node for r in runtimes_of(n)}
        for c in children(n):
            target = ways.setdefault(c, {})
            for held, failed in mine:
                way: Guard = (held, failed)
                if isinstance(n, Choose) and c not in inner:
                    if c is n.then:
                        target[tuple(dict.fromkeys((*held, *n.conditions))), failed] = None
                    if c is n.otherwise:
                        target[held, tuple(dict.fromkeys((*failed, n.conditions)))] = None
                else:
                    target[way] = None
    return found


def _topological(roots: Sequence[Node]) -> list[Node]:
    """Nodes before what they are computed from, without those that are an index alone."""
    order: list[Node] = []
    done: set[Node | None] = {None}
    stack: list[Node | None] = [*roots]
    ready: list[Node] = []  # nodes whose operands are in work: a mark None on the stack for each
    while stack:
        n = stack.pop()
        if n is None:
            order.append(ready.pop())
        elif n not in done:
            done.add(n)
            below = [c for c in children(n) if c not in done]
            if below:
                ready.append(n)
                stack.append(None)
                stack += below
            elif not (isinstance(n, IndexNode) and not n.runtimes):
                order.append(n)
    return order[::-1]
