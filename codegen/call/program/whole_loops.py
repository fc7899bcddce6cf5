"""Loops of little work as one kernel: the statements of all that a loop consists of, in one function.

    Loop(cond, tested, body)   ->   while True:
                                        cond
                                        if not tested[0]:
                                            break
                                        body

The launcher needs some nanoseconds for each instruction, an iteration over a few numbers has half a dozen of them, and values
of a few bytes stay in registers only where the compiler sees the whole loop. Memories of up to `LOCAL_BYTES` that the loop
writes are therefore the function's own, filled before the loop and copied back after it.

Left to the launcher: loops with so much work in an iteration that its instructions do not count, or that more threads shorten;
those that call back to Python or exchange memories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from codegen.call.program.nodes import Choice, Compute, Copy, Loop, Node, inside, with_parts
from codegen.kernel.ir import (
    Assign,
    Break,
    Call,
    Compare,
    Expression,
    For,
    If,
    Kernel,
    Load,
    Name,
    Number,
    Pass,
    Return,
    Statement,
    Store,
    Unary,
    While,
)
from codegen.kernel.rename import assigned, substituted
from codegen.source.emit import PhaseSource, parameter
from tiling import Buffer, Fusion, Scope
from tiling.elements.scalar_functions import LONG_FUNCTIONS

__all__ = ["with_whole_loops"]

LOCAL_BYTES = 64
MOST_SECONDS = 2e-6  # of an iteration: from here on the launcher's instructions are lost in it
MOST_LINES = 300  # LLVM's time grows faster than a function
SHORT_SECONDS = 2e-5  # what a call may take with the interpreter's lock held
ITERATION_SECONDS = 5e-9
ASKED_SECONDS = 0.1  # a loop that takes longer, or has no known end, can be interrupted
ASKED_TURNS = 1 << 14


def with_whole_loops(nodes: Sequence[Node], sizes: Mapping[int, int]) -> list[Node]:
    """The tree with each loop of little work as one kernel; `sizes` are the memories' bytes by slot."""
    made: list[Node] = []
    for n in nodes:
        whole = _Merger(sizes).kernel(n) if isinstance(n, Loop) and _fits(n) else None
        made.append(whole or with_parts(n, lambda part: with_whole_loops(part, sizes)))
    return made


def _fits(loop: Loop) -> bool:
    """True for a loop of kernels, copies, loops and choices that one thread runs, with little to do in an iteration."""
    found = list(inside([loop]))
    if not all(isinstance(n, (Compute, Copy, Loop, Choice)) for n in found):
        return False
    kernels = [n for n in found if isinstance(n, Compute)]
    texts = [n.source.source for n in kernels]
    lines = sum(t.count("\n") + sum(t.count(f"{name}(") * ops for name, ops in LONG_FUNCTIONS.items()) for t in texts)
    return bool(kernels) and lines <= MOST_LINES and sum(_seconds(n.fusion) for n in kernels) <= MOST_SECONDS


def _seconds(fusion: Fusion) -> float:
    return fusion.estimate.arithmetic_seconds * fusion.threads + fusion.estimate.traffic_seconds


def _duration(nodes: Iterable[Node]) -> float:
    """Predicted seconds; without end where a loop's iterations are not known."""
    total = 0.0
    for n in nodes:
        if isinstance(n, Compute):
            total += _seconds(n.fusion)
        elif isinstance(n, Loop):
            once = ITERATION_SECONDS + _duration([*n.cond, *n.body])
            total += once * n.trips if n.trips is not None else float("inf")
        elif isinstance(n, Choice):
            total += max(map(_duration, n.branches), default=0.0)
    return total


@dataclass
class _Merger:
    """Writes one loop: a memory has one name in all of it, the variables of each kernel are its own."""

    sizes: Mapping[int, int]
    memories: dict[int, Buffer] = field(default_factory=dict)  # by slot
    scratch: list[Buffer] = field(default_factory=list)
    local: dict[int, Buffer] = field(default_factory=dict)
    kernels: int = 0
    loops: int = 0

    def kernel(self, loop: Loop) -> Compute | None:
        """The loop as one kernel of one task; None where one memory holds elements of several types."""
        nodes = list(inside([loop]))
        computes = [n for n in nodes if isinstance(n, Compute)]
        copies = [n for n in nodes if isinstance(n, Copy)]
        tested = [n.tested for n in nodes if isinstance(n, (Loop, Choice))]
        if not all(self._name(slot, b) for n in computes for slot, b in zip(n.slots, n.source.buffers, strict=True)):
            return None
        # What steps aside in a ring of copies is no kernel's. It may be a result of the program, which need not be aligned.
        for c in [*copies, *reversed(copies)]:
            for slot, other in ((c.source, c.target), (c.target, c.source)):
                if slot not in self.memories and other in self.memories:
                    self._name(slot, replace(self.memories[other], scope=Scope.RESULT))
        writes = {s for n in computes for s in n.writes} | {c.target for c in copies}
        if any(s not in self.memories for s in (*tested, *writes, *(c.source for c in copies))):
            return None
        small = {s: self.memories[s] for s in sorted(writes) if self.sizes[s] <= LOCAL_BYTES}
        self.local = {s: replace(b, name=b.name.replace("m", "x"), scope=Scope.THREAD) for s, b in small.items()}
        into = [x for slot, b in self.local.items() for x in self._copied(b, self.memories[slot], slot)]
        back = [x for slot, b in self.local.items() for x in self._copied(self.memories[slot], b, slot)]
        body = (*into, *self._written([loop]), *back)
        parameters = (
            *(replace(parameter(b), shape=(self._elems(s),)) for s, b in self.memories.items()),
            *(replace(parameter(b), shape=(b.size_elems,)) for b in self.scratch),
            *(replace(parameter(b, "local", self.memories[s].name), shape=(self._elems(s),)) for s, b in self.local.items()),
        )
        source = PhaseSource(
            Kernel(f"{loop.name}, all of it", parameters, body), tuple(self.memories.values()), tuple(self.scratch), 1,
            local=tuple(self.local.values()), is_long=_duration([loop]) > SHORT_SECONDS,
        )  # fmt: skip
        longest = max(computes, key=lambda n: _seconds(n.fusion)).fusion
        return Compute(loop.name, longest, source, tuple(self.memories), frozenset(writes))

    def _name(self, slot: int, b: Buffer) -> bool:
        known = self.memories.get(slot)
        if known is None:
            self.memories[slot] = replace(b, name=f"m{len(self.memories)}")
            return True
        if known.scope is Scope.ARGUMENT and b.scope is not Scope.ARGUMENT:
            self.memories[slot] = replace(b, name=known.name)
        return known.element == b.element

    def _elems(self, slot: int) -> int:
        return self.sizes[slot] // self.memories[slot].element.itemsize_bytes

    def _at(self, slot: int) -> Buffer:
        return self.local.get(slot) or self.memories[slot]

    def _copied(self, target: Buffer, source: Buffer, slot: int) -> list[Statement]:
        n = self._elems(slot)
        if n == 1:
            return [Store(target.name, Number(0), Load(source.name, Number(0)))]
        return [For("c", None, Number(n), None, (Store(target.name, Name("c"), Load(source.name, Name("c"))),))]

    def _written(self, nodes: Sequence[Node]) -> tuple[Statement, ...]:
        return tuple([s for n in nodes for s in _STATEMENTS[type(n)](self, n)]) or (Pass(),)

    def _loop(self, n: Loop) -> Sequence[Statement]:
        """A loop; one that may take long asks between batches of turns whether it is to stop, so that a turn costs nothing."""
        self.loops += 1
        ended, turn = f"ended{self.loops}", f"turn{self.loops}"
        asks = _duration([n]) > ASKED_SECONDS
        tested = self._written(n.cond)
        told = [Assign(ended, Number(True))] if asks else []
        leave = If(Unary("not", Load(self._at(n.tested).name, Number(0))), (*told, Break()))
        body = (*tested, leave, *self._written(n.body))
        if not asks:
            return (While(Number(True), body),)
        batch = For(turn, None, Number(ASKED_TURNS), None, body)
        stop = (If(Name(ended), (Break(),)), If(Call("interrupted", ()), (Return(),)))
        return (While(Number(True), (Assign(ended, Number(False)), batch, *stop)),)

    def _choice(self, n: Choice) -> Sequence[Statement]:
        *bodies, otherwise = map(self._written, n.branches)
        at: Expression = Load(self._at(n.tested).name, Number(0))
        for k, body in reversed(list(enumerate(bodies))):
            otherwise = (If(Compare(at, (("==", Number(k)),)) if n.by_number else at, body, otherwise),)
        return otherwise if bodies else (If(Number(True), otherwise),)

    def _kernel(self, n: Compute) -> tuple[Statement, ...]:
        """A kernel's statements for all its tasks, every name made its own."""
        self.kernels += 1
        kernel = n.source.kernel
        own = (*(b.name for b in n.source.scratch), *assigned(kernel.body))
        values: dict[str, Expression] = {v: Name(f"k{self.kernels}_{v}") for v in own}
        values |= {"begin": Number(0), "end": Number(n.source.tasks)}
        values |= {b.name: Name(self._at(slot).name) for slot, b in zip(n.slots, n.source.buffers, strict=True)}
        self.scratch += [replace(b, name=f"k{self.kernels}_{b.name}") for b in n.source.scratch]
        return substituted(kernel.body, values)


_STATEMENTS: dict[type, Callable[[_Merger, Any], Sequence[Statement]]] = {
    Compute: _Merger._kernel,
    Copy: lambda merger, n: merger._copied(merger._at(n.target), merger._at(n.source), n.target),
    Loop: _Merger._loop,
    Choice: _Merger._choice,
}
