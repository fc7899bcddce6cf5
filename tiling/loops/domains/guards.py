"""Under which conditions a load is made: the ways to reach it through choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo.access import Condition
from tiling.loops.element_ir import Choose, IndexNode, Load, Node, children, runtimes_of

__all__ = ["GuardedLoad", "guarded_loads"]

MANY_GUARDS = 16  # ways to reach one load through choices; beyond, those are sought that others cover
GUARDS_LIMIT = 64  # beyond, it counts as reached always

Guard = tuple[tuple[Condition, ...], tuple[tuple[Condition, ...], ...]]
ALWAYS: Guard = ((), ())


@dataclass(frozen=True, slots=True)
class GuardedLoad:
    """A load, and the ways to reach it: of each the conditions that hold, and groups of which one fails.

    It is reached in one of these ways and, where they are `exact`, in each of them; else there are too many to be kept apart.
    """

    load: Load
    ways: tuple[Guard, ...]
    exact: bool = True


def guarded_loads(roots: Sequence[Node]) -> list[GuardedLoad]:
    """Each load below some nodes with the ways to reach it."""
    ways: dict[Node, dict[Guard, bool]] = {}  # whether a node is reached in each of them, or only in some of what they cover
    order = _topological(roots)
    if not any(isinstance(n, Choose) for n in order):
        return [GuardedLoad(n, (ALWAYS,)) for n in order if isinstance(n, Load)]
    for n in roots:
        ways.setdefault(n, {})[ALWAYS] = True
    found: list[GuardedLoad] = []
    for n in order:
        mine = _few(ways[n])
        if isinstance(n, Load):
            found.append(GuardedLoad(n, tuple(mine), all(mine.values())))
        inner = {r.node for r in runtimes_of(n)}
        for c in children(n):
            target = ways.setdefault(c, {})
            for (held, failed), exact in mine.items():
                there: list[Guard] = []
                if isinstance(n, Choose) and c not in inner:
                    if c is n.then:
                        there.append((tuple(dict.fromkeys((*held, *n.conditions))), failed))
                    if c is n.otherwise:
                        there.append((held, tuple(dict.fromkeys((*failed, n.conditions)))))
                else:
                    there.append((held, failed))
                for way in there:
                    target[way] = target.get(way, False) or exact
    return found


def _few(ways: dict[Guard, bool]) -> dict[Guard, bool]:
    """The same ways, those apart that others cover; one that covers all of them where they are too many."""
    if ALWAYS in ways:
        return {ALWAYS: ways[ALWAYS]}
    if len(ways) <= MANY_GUARDS:
        return ways
    sets = [(way, frozenset(way[0]), frozenset(way[1])) for way in ways]
    kept = {
        way: ways[way]
        for k, (way, held, failed) in enumerate(sets)
        if not any(
            h <= held and f <= failed and (h < held or f < failed or n < k) and ways[other]
            for n, (other, h, f) in enumerate(sets) if n != k
        )
    }  # fmt: skip
    return kept if len(kept) <= GUARDS_LIMIT else {ALWAYS: False}


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
