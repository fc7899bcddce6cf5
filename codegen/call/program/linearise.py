"""From a tree of what a call does to the launcher's list of instructions, and to the time for which each memory is in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from codegen.call.program.nodes import Choice, Compute, Copy, Evaluate, Exchange, Loop, Node
from codegen.launcher import launch

__all__ = ["Linear", "linearise"]


@dataclass
class Linear:
    """`instructions`, the evaluator's steps by position, and [first, last] position at which each slot is in use."""

    instructions: list[launch.Instruction] = field(default_factory=list)
    evaluated: dict[int, Evaluate] = field(default_factory=dict)
    lives: dict[int, list[int]] = field(default_factory=dict)

    def touch(self, slot: int, position: int | None = None) -> None:
        """`slot` is in use at a position (default: the next instruction's)."""
        at = len(self.instructions) if position is None else position
        life = self.lives.setdefault(slot, [at, at])
        life[0], life[1] = min(life[0], at), max(life[1], at)


def linearise(
    nodes: Sequence[Node], kernel: Callable[[Compute], launch.Step], exchanges: Sequence[tuple[int, int]]
) -> Linear:
    """The instructions of a tree; `kernel` compiles a node. Memories that change names live as long as either."""
    made = Linear()
    _write(nodes, made, kernel)
    changed = True
    while changed:
        changed = False
        for a, b in exchanges:
            if a in made.lives and b in made.lives and made.lives[a] != made.lives[b]:
                both = [min(made.lives[a][0], made.lives[b][0]), max(made.lives[a][1], made.lives[b][1])]
                made.lives[a], made.lives[b] = list(both), list(both)
                changed = True
    return made


def _write(nodes: Sequence[Node], made: Linear, kernel: Callable[[Compute], launch.Step]) -> None:
    out = made.instructions
    for n in nodes:
        if isinstance(n, Compute):
            for s in n.slots:
                made.touch(s)
            out.append(kernel(n))
        elif isinstance(n, Copy):
            made.touch(n.source)
            made.touch(n.target)
            out.append(launch.Copy((n.source, n.target), n.size_bytes, (1,) if n.settled else ()))
        elif isinstance(n, Exchange):
            made.touch(n.first)
            made.touch(n.second)
            out.append(launch.Exchange((n.first, n.second)))
        elif isinstance(n, Evaluate):
            for s in (*n.reads, *n.writes):
                made.touch(s)
            made.evaluated[len(out)] = n
            out.append(launch.Host((*n.reads, *n.writes)))
        elif isinstance(n, Loop):
            _loop(n, made, kernel)
        else:
            _choice(n, made, kernel)


def _loop(n: Loop, made: Linear, kernel: Callable[[Compute], launch.Step]) -> None:
    out = made.instructions
    start = len(out)
    for s in n.held:
        made.touch(s)
    _write(n.cond, made, kernel)
    made.touch(n.tested)
    test = len(out)
    out.append(launch.Unless((n.tested,), 0))
    _write(n.body, made, kernel)
    for s in n.held:
        made.touch(s)
    out.append(launch.Jump(start))
    out[test] = launch.Unless((n.tested,), len(out))


def _choice(n: Choice, made: Linear, kernel: Callable[[Compute], launch.Step]) -> None:
    out = made.instructions
    made.touch(n.tested)
    first = len(out)
    if n.by_number:
        out.append(launch.Select((n.tested,), len(n.branches)))
        out += [launch.Jump(0)] * len(n.branches)
    else:
        out.append(launch.Unless((n.tested,), 0))
    leaves: list[int] = []
    for k, branch in enumerate(n.branches):
        if n.by_number:
            out[first + 1 + k] = launch.Jump(len(out))
        elif k == 1:
            out[first] = launch.Unless((n.tested,), len(out))
        _write(branch, made, kernel)
        leaves.append(len(out))
        out.append(launch.Jump(0))
    for at in leaves:
        out[at] = launch.Jump(len(out))
