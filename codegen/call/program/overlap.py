"""Exchanges that begin when their operands are there and are waited for where their results are used.

    all_reduce a -> b;  kernel c;  kernel b -> d       becomes       begin a;  kernel c;  end -> b;  kernel b -> d

Nodes keep their order but for those that wait for an exchange: these let the others go first. The order is a function of the tree
alone, so that it is the same on all processes, which show each other that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.call.program.nodes import Choice, Compute, Copy, Evaluate, Exchange, Loop, Node, parts, with_parts

__all__ = ["order_of", "overlapped"]


@dataclass(frozen=True)
class _Uses:
    """The memories that a node touches."""

    reads: frozenset[int]
    writes: frozenset[int]
    is_call: bool  # of the evaluator or of a function: these keep their order among themselves


def _uses(n: Node) -> _Uses:
    if isinstance(n, Compute):
        return _Uses(frozenset(n.slots), n.writes, False)
    if isinstance(n, Copy):
        return _Uses(frozenset({n.source}), frozenset({n.target}), False)
    if isinstance(n, Exchange):
        both = frozenset({n.first, n.second})
        return _Uses(both, both, False)
    if isinstance(n, Evaluate):
        return _Uses(frozenset(n.reads), frozenset(n.writes), True)
    inner = [_uses(x) for nodes in parts(n) for x in nodes]
    held = n.held if isinstance(n, Loop) else ()
    touched = frozenset({n.tested, *held}).union(*(u.reads | u.writes for u in inner))
    return _Uses(touched, touched, any(u.is_call for u in inner))


def overlapped(nodes: Sequence[Node], may_begin: Callable[[Evaluate], bool]) -> list[Node]:
    """The same nodes, of which those that `may_begin` tells are in two parts where something can run in between."""
    inner = [with_parts(n, lambda part: overlapped(part, may_begin)) for n in nodes]
    begun = {k for k, n in enumerate(inner) if isinstance(n, Evaluate) and may_begin(n)}
    return _ordered(inner, begun) if begun else inner


def _ordered(nodes: Sequence[Node], begun: set[int]) -> list[Node]:
    uses = [_uses(n) for n in nodes]
    # Of a node that comes later: those before it that must have ended, and those that must have begun (operands are copied).
    ended: list[set[int]] = []
    started: list[set[int]] = []
    for j, mine in enumerate(uses):
        ends, starts = set[int](), set[int]()
        for i, other in enumerate(uses[:j]):
            if other.writes & (mine.reads | mine.writes) or (mine.is_call and other.is_call and not {i, j} <= begun):
                ends.add(i)
            elif other.reads & mine.writes:
                (starts if i in begun else ends).add(i)
            elif i in begun and j in begun:
                starts.add(i)  # all processes begin in one order
        ended.append(ends)
        started.append(starts)
    made: list[Node] = []
    left, waiting = list(range(len(nodes))), list[int]()
    has_begun, has_ended = set[int](), set[int]()
    firsts: dict[int, Evaluate] = {}

    def end(k: int) -> None:
        first = firsts[k]
        waiting.remove(k)
        has_ended.add(k)
        if made[-1] is first:  # nothing came in between
            made[-1] = nodes[k]
        else:
            made.append(Evaluate(first.step, (), uses_of(k), ends=first))

    def uses_of(k: int) -> tuple[int, ...]:
        n = nodes[k]
        assert isinstance(n, Evaluate)
        return n.writes

    while left or waiting:
        ready = [k for k in left if ended[k] <= has_ended and started[k] <= has_begun]
        k = next((k for k in ready if k in begun), ready[0] if ready else None)
        if k is None:
            end(waiting[0])
            continue
        left.remove(k)
        has_begun.add(k)
        n = nodes[k]
        if k not in begun:
            has_ended.add(k)
            made.append(n)
            continue
        assert isinstance(n, Evaluate)
        firsts[k] = Evaluate(n.step, n.reads, (), begins=True)
        waiting.append(k)
        made.append(firsts[k])
    return made


def order_of(nodes: Sequence[Node]) -> str:
    """What is begun, run and waited for, in order: one line for each."""
    lines = []
    for n in nodes:
        if isinstance(n, Evaluate):
            what = "begin" if n.begins else "end" if n.ends is not None else "run"
            lines.append(f"{what} {n.step.name} {n.step.op.name} {n.step.op.attributes}")
        elif isinstance(n, Loop | Choice):
            lines.append(f"{type(n).__name__.lower()} {' | '.join(map(order_of, parts(n)))}")
    return "\n".join(lines)
