"""From a schedule's phases to numba source: loops as loops, each value computed in the innermost loop that it depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen.source.contraction import emit_contraction
from codegen.source.fourier import emit_transform
from codegen.source.matrices import emit_matrices
from codegen.source.nest import NestEmitter
from codegen.source.ordering import emit_ordering
from codegen.source.phase import PhaseWriter
from codegen.source.rows import in_rows
from codegen.source.scalars import constant_source
from codegen.source.scatter import scatter_body
from codegen.source.selecting import selection_body
from codegen.source.split_innermost import Segment
from codegen.source.unroll import without_short_sums
from codegen.source.writer import NotCompilable
from hlo.errors import Declined
from indexing.expr import Const
from tiling.loops.ir import (
    Buffer,
    Contract,
    Flag,
    MatrixStep,
    Measure,
    Nest,
    Ordering,
    Phase,
    Scatter,
    Schedule,
    Scope,
    Selection,
    Sequential,
    Step,
    Transform,
    Turn,
)
from tiling.passes.collapse_loops import collapse_loops
from tiling.passes.order_loops import order_loops
from tiling.passes.split_borders import inside_and_edges
from tiling.passes.split_residues import take_turns

__all__ = ["PhaseSource", "emit_phase"]


@dataclass(frozen=True)
class PhaseSource:
    """A kernel's source, and the buffers that it takes in the order of its arguments.

    It never reads those in `written`: their elements may go past the caches. It reads those in `walked` from one end to the
    other, long runs at a time. Those in `local` are the function's own, their addresses are nobody else's. A source that
    `is_long` may take any time: nothing waits for it that others wait for.

    `written_as` is the phase with its nests as they were written: ordered, joined, cut into an inside and edges, in turns, in
    groups of rows and the rest; None for several phases in one function.
    """

    source: str
    buffers: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    tasks: int
    written: frozenset[Buffer] = frozenset()
    walked: frozenset[Buffer] = frozenset()
    local: tuple[Buffer, ...] = ()
    is_long: bool = False
    written_as: Phase | None = None


def emit_phase(schedule: Schedule, phase: Phase, title: str, excess: bool = False) -> PhaseSource | Declined:
    """The source of one phase, or why it cannot be compiled (an element type or a scalar function without a rule).

    `excess`: numbers may keep more precision between two ops than their type has (`Machine.excess_precision`).
    """
    try:
        return PhaseEmitter(schedule, phase, title, excess).run()
    except NotCompilable as reason:
        return Declined(str(reason))


class PhaseEmitter(PhaseWriter):
    def run(self) -> PhaseSource:
        self.out.depth = 1
        self._task_loop()
        body = self.out.lines
        buffers = tuple(b for b in self.schedule.buffers if b in self.used and b.scope is not Scope.THREAD)
        scratch = tuple(b for b in self.schedule.buffers if b in self.used and b.scope is Scope.THREAD)
        names = ["begin", "end", *(b.name for b in (*buffers, *scratch))]
        head = [f"def kernel({', '.join(names)}):", f'    """{self.title}', ""]
        head += [
            f"    {b.name}: {b.scope.value} {b.element}[{', '.join(map(str, b.shape))}]" for b in (*buffers, *scratch)
        ]
        head += ['    """', *(f"    {name} = again({b.name})" for b, name in self.views.items())]
        written = frozenset(b for b in buffers if b.scope is Scope.RESULT and b not in self.read)
        return PhaseSource(
            "\n".join([*head, *body, ""]), buffers, scratch, self.phase.tasks, written, frozenset(self.walked),
            written_as=self.written_as,
        )  # fmt: skip

    def _task_loop(self) -> None:
        tiles = [(v, n) for v, n in self.phase.tiles]
        group = self.phase.group
        for flag in self.phase.flags:
            self._flag(flag)
        if len(tiles) == 1 and not self.phase.descending and group == 1:
            self.out.line(f"for {self.name(tiles[0][0])} in range(begin, end):")
        else:
            self.out.line("for task in range(begin, end):")
        self.out.depth += 1
        if group > 1:
            ((tile, count),) = tiles
            self.out.line(f"{self.name(tile)} = {group}*task")
        elif len(tiles) > 1 or self.phase.descending:
            step = 1
            for k, (v, n) in reversed(list(enumerate(tiles))):
                text = "task" if step == 1 else f"task // {step}"
                if k:
                    text = f"{text} % {n}" if step == 1 else f"({text}) % {n}"
                if v in self.phase.descending:
                    text = f"{n - 1} - {text}"
                self.out.line(f"{self.name(v)} = {text}")
                step *= n
        before = [x for step_ in self.phase.before for x in self._step(step_)]
        if group > 1:
            stop = f"{group}*task + {group}" if count % group == 0 else f"min({group}*task + {group}, {count})"
            self.out.line(f"for {self.name(tile)} in range({group}*task, {stop}):")
            self.out.depth += 1
        steps = [x for step_ in self.phase.steps for x in self._step(step_)]
        self.written_as = replace(self.phase, before=tuple(before), steps=tuple(steps))

    def _step(self, step: Step) -> list[Step]:
        """Writes a step; the steps that it was written as."""
        self.nests = []
        if isinstance(step, Sequential):
            return [self._sequential(step)]
        if isinstance(step, Contract):
            emit_contraction(self, step, self._nest)
            return [replace(step, pack=tuple(self.nests))]
        if isinstance(step, Nest):
            self._nest(step)
            return [*self.nests]
        self._routine(step)
        return [step]

    def _routine(self, step: Step) -> None:
        if isinstance(step, Turn):
            self._turn(step)
        elif isinstance(step, Measure):
            self._measure(step)
        elif isinstance(step, Transform):
            emit_transform(self, step)
        elif isinstance(step, MatrixStep):
            emit_matrices(self, step)
        elif isinstance(step, Ordering):
            self.read.update(step.targets)
            emit_ordering(self, step)
        elif isinstance(step, Scatter):
            self.read.update(step.targets)
            scatter = NestEmitter(self, Nest(step.loops))
            # One update of one element has no loop.
            span = (step.loops[-1].lower, step.loops[-1].upper) if step.loops else (Const(0), Const(0))
            scatter.write([(Segment(*span, (), ()), scatter_body(scatter, step))])
        elif isinstance(step, Selection):
            self.read.update((step.target, step.operand))
            windows = NestEmitter(self, Nest(step.loops))
            upper = step.loops[-1].upper if step.loops else Const(0)
            windows.write([(Segment(Const(0), upper, (), ()), selection_body(windows, step))])
        else:
            raise TypeError(f"no step: {type(step).__name__}")

    def _nest(self, nest: Nest) -> None:
        for piece in inside_and_edges(nest, self.schedule.ranges):
            self._piece(piece)

    def _piece(self, nest: Nest) -> None:
        nest, products = without_short_sums(nest, self.schedule.ranges, self.buffer_of)
        ordered = order_loops(nest, self.buffer_of)
        joined_loops = collapse_loops(ordered, self.buffer_of, self.schedule.ranges)
        for n in take_turns(joined_loops, self.buffer_of, self.schedule.ranges):
            for part, rows in in_rows(n, self.buffer_of):
                self.nests.append(_folded_once(part, products))
                NestEmitter(self, part, products, rows).run()

    def _sequential(self, s: Sequential) -> Sequential:
        """Blocks one after the other; the steps of one are written as any others."""
        self.open(s.loop)
        steps = [x for step in s.steps for x in self._step(step) if isinstance(x, (Nest, Contract))]
        self.out.depth -= 1
        return replace(s, steps=tuple(steps))

    def _flag(self, flag: Flag) -> None:
        """A flag is found out once for all tasks: it is 1 while no piece of an input has an element beyond its limit."""
        name = self.name(flag.variable)
        self.out.line(f"{name} = int64(1)")
        for buffer, limit in flag.limits:
            self.uses(buffer)
            self.out.line(f"for c in range({buffer.size_elems}):")
            most = constant_source(buffer.element.dtype.type(limit), buffer.element)
            self.out.line(f"    if not ({buffer.name}[c] <= {most}):")
            self.out.line(f"        {name} = int64(0)")

    def _measure(self, m: Measure) -> None:
        """A maximum that keeps a NaN: whatever is compared with it then fails."""
        out, c, n = self.out, self.name(m.piece), m.source.size_elems
        self.uses(m.source, m.target)
        stop = f"{m.size}*{c} + {m.size}"
        out.line(f"most = {constant_source(m.source.element.dtype.type(0), m.source.element)}")
        out.line(f"for i in range({m.size}*{c}, {stop if n % m.size == 0 else f'min({stop}, {n})'}):")
        out.line(f"    most = reduce_maximum(most, absolute({m.source.name}[i]))")
        out.line(f"{m.target.name}[{c}] = most")

    def _turn(self, t: Turn) -> None:
        sizes = [self.count(x.upper) for x in (t.rows, t.columns)]
        self.uses(t.source.buffer, t.target.buffer)
        self.out.line(
            f"transpose({', '.join(sizes)}, {t.source.buffer.name}, {self.expr(t.source.base)}, {t.source.row_stride}, "
            f"{t.target.buffer.name}, {self.expr(t.target.base)}, {t.target.row_stride})"
        )


def _folded_once(nest: Nest, products: int) -> Nest:
    """The nest with one fold for each result, of all its products: equal parts of a written-out sum write the same elements."""
    if products == 1:
        return nest
    count = len(nest.folds) // products
    parts = [nest.folds[k : k + count] for k in range(0, len(nest.folds), count)]
    folds = (replace(same[0], nodes=tuple(n for f in same for n in f.nodes)) for same in zip(*parts, strict=True))
    return replace(nest, folds=tuple(folds))
