"""From a schedule's phases to numba source: loops as loops, each value computed in the innermost loop that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codegen.kernel.ir import Kernel, Parameter
from codegen.kernel.parse import parse_lines
from codegen.kernel.print_numba import print_numba
from codegen.kernel.spec import faults, unassigned_reads
from codegen.source.contraction import emit_contraction
from codegen.source.fourier import emit_transform
from codegen.source.matrices import emit_matrices
from codegen.source.nest import NestEmitter
from codegen.source.ordering import emit_ordering
from codegen.source.phase import PhaseWriter
from codegen.source.scalars import constant_source, place_source
from codegen.source.scatter import bounded_by_tests, scatter_body
from codegen.source.selecting import selection_body
from codegen.source.writer import NotCompilable
from hlo.errors import Declined
from hlo.lazy import cached_property
from hlo.settings import debug_modes
from indexing.expr import Const
from tiling.loops.element_ir import element_name
from tiling.loops.ir import (
    ZERO,
    Buffer,
    Contract,
    Flag,
    Limit,
    MatrixStep,
    Measure,
    Nest,
    Ordering,
    Phase,
    Scatter,
    Schedule,
    Scope,
    Segment,
    Selection,
    Sequential,
    Step,
    Transform,
    Turn,
)

__all__ = ["PhaseSource", "emit_phase"]


@dataclass(frozen=True)
class PhaseSource:
    """A kernel, and the buffers that it takes in the order of its arguments.

    It never reads those in `written`: their elements may go past the caches. It reads those in `walked` from one end to the
    other: 0 for long runs at a time, else the bytes from one short run to the next. Those in `local` are the function's own,
    their addresses are nobody else's. A source that `is_long` may take any time: nothing waits for it that others wait for.
    """

    kernel: Kernel
    buffers: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    tasks: int
    written: frozenset[Buffer] = frozenset()
    walked: Mapping[Buffer, int] = field(default_factory=dict)
    local: tuple[Buffer, ...] = ()
    is_long: bool = False

    @cached_property
    def source(self) -> str:
        """The kernel as numba source."""
        return print_numba(self.kernel)


def emit_phase(schedule: Schedule, phase: Phase, title: str, excess: bool = False) -> PhaseSource | Declined:
    """The source of one phase of final loops, or why it cannot be compiled (an element type, a scalar function without a rule).

    `excess`: numbers may keep more precision between two ops than their type has (`Machine.excess_precision`).
    """
    try:
        return PhaseEmitter(schedule, phase, title, excess).run()
    except NotCompilable as reason:
        return Declined(str(reason))


def parameter(b: Buffer, scope: str = "", of: str = "") -> Parameter:
    """A buffer as a parameter of a kernel."""
    return Parameter(b.name, str(b.element), b.shape, scope or b.scope.value, of)


class PhaseEmitter(PhaseWriter):
    def run(self) -> PhaseSource:
        self.out.depth = 1
        self._task_loop()
        buffers = tuple(b for b in self.schedule.buffers if b in self.used and b.scope is not Scope.THREAD)
        scratch = tuple(b for b in self.schedule.buffers if b in self.used and b.scope is Scope.THREAD)
        parameters = tuple(parameter(b) for b in (*buffers, *scratch))
        views = [f"    {name} = again({b.name})" for b, name in self.views.items()]
        kernel = Kernel(self.title, parameters, parse_lines([*views, *self.out.lines]))
        bad = faults(kernel) if "check" in debug_modes() else unassigned_reads(kernel)
        if bad:
            raise AssertionError(f"the kernel {self.title} breaks an invariant: {bad[0]}\n{print_numba(kernel)}")
        return PhaseSource(
            kernel, buffers, scratch, self.phase.tasks, walked=dict(self.walked),
            written=frozenset(b for b in buffers if b.scope is Scope.RESULT and b not in self.read),
        )  # fmt: skip

    def _task_loop(self) -> None:
        tiles, group, out = self.phase.tiles, self.phase.group, self.out
        for flag in self.phase.flags:
            self._flag(flag)
        is_tile = len(tiles) == 1 and group == 1 and not self.phase.descending
        out.line(f"for {self.name(tiles[0][0]) if is_tile else 'task'} in range(begin, end):")
        out.depth += 1
        step = 1
        for k, (v, n) in reversed(list(enumerate(tiles if group == 1 and not is_tile else ()))):
            text = "task" if step == 1 else f"task // {step}"
            if k:
                text = f"{text} % {n}" if step == 1 else f"({text}) % {n}"
            out.line(f"{self.name(v)} = {f'{n - 1} - ' if v in self.phase.descending else ''}{text}")
            step *= n
        if group > 1:
            ((tile, count),) = tiles
            out.line(f"{self.name(tile)} = {group}*task")
        self._steps(self.phase.before)
        if group > 1:
            stop = f"{group}*task + {group}" if count % group == 0 else f"min({group}*task + {group}, {count})"
            out.line(f"for {self.name(tile)} in range({group}*task, {stop}):")
            out.depth += 1
        self._steps(self.phase.steps)

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            _STEPS[type(step)](self, step)

    def _places(
        self, step: Scatter | Selection, body: Callable[[NestEmitter, Any], list[str]], changed: Sequence[Buffer]
    ) -> None:
        """Updates at places that values name; one of a single element has no loop."""
        self.read.update(changed)
        updates = NestEmitter(self, Nest(step.loops, ahead=step.ahead))
        span = (step.loops[-1].lower, step.loops[-1].upper) if step.loops else (Const(0), Const(0))
        updates.write([(Segment(*span, (), ()), body(updates, step))])

    def _sequential(self, s: Sequential) -> None:
        """Blocks one after the other; the steps of one are written as any others."""
        self.open(s.loop)
        for x in s.limits:
            self._limit(x)
        self._steps(s.steps)
        self.out.depth -= 1

    def _limit(self, x: Limit) -> None:
        """A bound that is read here: in its range also where the number that is read is far beyond it."""
        values = NestEmitter(self, Nest(()))
        values.use([x.node])
        found = place_source(values.number(x.node, 0), element_name(x.node))
        name, origin = self.name(x.variable), x.origin
        self.out.extend(values.lines[0])
        values.leave(0)
        kept = f"min(max({found}, {self.expr(x.lower + origin)}), {self.expr(x.upper + origin)})"
        self.out.line(f"{name} = {kept}" if origin is ZERO else f"{name} = {kept} - ({self.expr(origin)})")
        if x.flag is not None:
            self.out.line(f"if {self.name(x.flag)} == 0:")
            self.out.line(f"    {name} = {self.expr(x.whole)}")

    def _flag(self, flag: Flag) -> None:
        """A flag is found out once for all tasks: it is 1 while no piece of an input has an element beyond its limit.

        The greatest of all pieces is compared, a NaN where one has a NaN: LLVM would write out a comparison for each of them.
        """
        name = self.name(flag.variable)
        self.out.line(f"{name} = int64(1)")
        for buffer, limit in flag.limits:
            self.uses(buffer)
            zero, most = (constant_source(buffer.element.dtype.type(x), buffer.element) for x in (0, limit))
            self.out.line(f"most = {zero}")
            self.out.line(f"for piece in range({buffer.size_elems}):")
            self.out.line(f"    most = reduce_maximum(most, {buffer.name}[piece])")
            self.out.line(f"if not (most <= {most}):")
            self.out.line(f"    {name} = int64(0)")

    def _measure(self, m: Measure) -> None:
        """A maximum that keeps a NaN: whatever is compared with it then fails."""
        out, c, n = self.out, self.name(m.piece), m.source.size_elems
        self.uses(m.source, m.target)
        stop = f"{m.size}*{c} + {m.size}"
        out.line(f"most = {constant_source(m.source.element.dtype.type(0), m.source.element)}")
        out.line(f"for place in range({m.size}*{c}, {stop if n % m.size == 0 else f'min({stop}, {n})'}):")
        out.line(f"    most = reduce_maximum(most, absolute({m.source.name}[place]))")
        out.line(f"{m.target.name}[{c}] = most")

    def _turn(self, t: Turn) -> None:
        sizes = [self.count(x.upper) for x in (t.rows, t.columns)]
        self.uses(t.source.buffer, t.target.buffer)
        together = f", {t.together}" if t.together > 1 else ""
        self.out.line(
            f"transpose({', '.join(sizes)}, {t.source.buffer.name}, {self.expr(t.source.base)}, {t.source.row_stride}, "
            f"{t.target.buffer.name}, {self.expr(t.target.base)}, {t.target.row_stride}{together})"
        )


_STEPS: dict[type, Callable[[PhaseEmitter, Any], None]] = {
    Sequential: PhaseEmitter._sequential,
    Nest: lambda phase, s: NestEmitter(phase, s).run(),
    Turn: PhaseEmitter._turn,
    Measure: PhaseEmitter._measure,
    Contract: emit_contraction,
    Transform: emit_transform,
    MatrixStep: emit_matrices,
    Ordering: emit_ordering,
    Scatter: lambda phase, s: phase._places(bounded_by_tests(s), scatter_body, s.targets),
    Selection: lambda phase, s: phase._places(s, selection_body, (s.target, s.operand)),
}
