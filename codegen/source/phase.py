"""What the source of every step of a phase is written with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from codegen.source.writer import Writer, index_source
from indexing.expr import Expr, Var
from tiling.loops.accesses import buffers_by_value
from tiling.loops.affine import address
from tiling.loops.element_ir import Load
from tiling.loops.ir import Buffer, Contract, Loop, Phase, Schedule, Sequential, Step
from tiling.loops.spec import own_loops

__all__ = ["PhaseWriter"]


class PhaseWriter:
    """A phase while its source is written: the lines so far, the buffers that it takes, the names of its variables."""

    def __init__(self, schedule: Schedule, phase: Phase, title: str, excess: bool = False) -> None:
        self.schedule, self.phase, self.title, self.excess = schedule, phase, title, excess
        self.by_value = buffers_by_value(schedule)
        self.used: dict[Buffer, None] = {}
        self.read: set[Buffer] = set()  # what is read again, or written in another way than element by element
        self.walked: dict[Buffer, int] = {}
        self.views: dict[Buffer, str] = {}  # other names of buffers
        self.variables = _short_names(phase, {b.name for b in schedule.buffers})
        self.out = Writer()
        self.counter = 0

    def buffer_of(self, load: Load) -> Buffer:
        return load.buffer or self.by_value[load.value]

    def name(self, v: Var) -> str:
        """The variable's name in the source: the part before the stage's tag, numbered where another one around has it."""
        return self.variables.setdefault(v, _stem(v))

    def expr(self, e: Expr) -> str:
        for v in e.variables:
            self.name(v)
        return index_source(e, self.variables)

    def count(self, upper: Expr) -> str:
        """How many iterations a loop from 0 to `upper` has."""
        return self.expr(upper + 1)

    def open(self, loop: Loop, out: Writer | None = None, lower: Expr | None = None, upper: Expr | None = None) -> None:
        """A loop's header, here or in another `out`; what follows is inside of it."""
        out = out or self.out
        start, stop = self.expr(loop.lower if lower is None else lower), self.count(loop.upper if upper is None else upper)
        span = f"{start}, {stop}, {loop.together}" if loop.together > 1 else stop if start == "0" else f"{start}, {stop}"
        out.line(f"for {self.name(loop.variable)} in range({span}):")
        out.depth += 1

    def uses(self, *buffers: Buffer) -> None:
        """The kernel takes these buffers, and does more with them than to write them element by element."""
        self.used.update(dict.fromkeys(buffers))
        self.read.update(buffers)

    def view(self, buffer: Buffer) -> str:
        """Another name of a buffer: what is read through both is read twice."""
        if buffer not in self.views:
            self.views[buffer] = self.fresh(f"{buffer.name}_again")
        return self.views[buffer]

    def fresh(self, stem: str = "v") -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def address(self, buffer: Buffer, index: Sequence[Expr]) -> str:
        self.used[buffer] = None
        return self.expr(address(buffer, index, self.schedule.ranges))


def _stem(v: Var) -> str:
    return v.name.partition("_")[0]


def _short_names(phase: Phase, buffers: Collection[str]) -> dict[Var, str]:
    """The names of tile numbers and loops: none is a buffer's, and no two that have a value at one place have the same one."""
    around = (*(v for v, _ in phase.tiles), *(f.variable for f in phase.flags))
    names: dict[Var, str] = {}
    numbered: Counter[str] = Counter()
    scopes = list(_scopes((*phase.before, *phase.steps), around))
    while True:
        alike = None
        for scope in scopes:
            taken: dict[str, Var] = {}
            for v in scope:
                if taken.setdefault(names.setdefault(v, _stem(v)), v) is not v or names[v] in buffers:
                    alike = v
        if alike is None:
            return names
        stem = _stem(alike)
        numbered[stem] += 1
        names[alike] = f"{stem}x{numbered[stem] + 1}"  # which no buffer is called


def _scopes(steps: Sequence[Step], around: tuple[Var, ...]) -> Iterator[tuple[Var, ...]]:
    """The variables that have a value inside each step, outermost first."""
    for s in steps:
        inside = (*around, *(x.variable for x in own_loops(s)), *((s.k_start,) if isinstance(s, Contract) else ()))
        yield inside
        if isinstance(s, Sequential):
            yield from _scopes(s.steps, (*inside, *(x.variable for x in s.limits)))
        elif isinstance(s, Contract):
            yield from _scopes(s.pack, inside)
