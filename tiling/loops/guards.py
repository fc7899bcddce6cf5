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
    """Nodes before what they are computed from."""
    order: list[Node] = []
    done: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(n, False) for n in roots]
    while stack:
        n, ready = stack.pop()
        if ready:
            order.append(n)
            continue
        if n in done or _is_leaf(n):
            continue
        done.add(n)
        stack.append((n, True))
        stack += [(c, False) for c in children(n) if c not in done and not _is_leaf(c)]
    return order[::-1]


def _is_leaf(n: Node) -> bool:
    return isinstance(n, IndexNode) and not n.runtimes
