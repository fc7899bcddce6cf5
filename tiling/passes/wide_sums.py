"""Sums and products of 16-bit floats whose running results lie in memory: kept in f32 while they grow, and rounded once.

    for r: for i: out[i] = out[i] + x[r, i]   ->   for r: for i: sums[i] = sums[i] + x[r, i]      sums: f32 scratch
                                                   for i: out[i] = sums[i]

Rounded at every step, a sum of bf16 stands still where it is 256 times its terms. Running results in registers are f32 anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hlo.types import element_type
from indexing.expr import Const, Expr, Interval, Var, interval, simplify, substitute
from tiling.loops.buffers import make_buffer
from tiling.loops.element_ir import Load
from tiling.loops.ir import Buffer, FoldStep, LoopKind, Nest, Schedule, Scope, Step, Store
from tiling.loops.names import Names
from tiling.passes.order_loops import order_loops
from tiling.passes.tighten_bounds import sums_element

__all__ = ["wide_sums"]

F32 = element_type("f32")


def wide_sums(schedule: Schedule, names: Names, buffer_of: Callable[[Load], Buffer]) -> Schedule:
    """The schedule with f32 scratch for such sums."""
    made: list[Buffer] = []
    phases = tuple(
        replace(p, steps=_widened(p.steps, schedule.ranges, names, buffer_of, made)) for p in schedule.phases
    )
    return replace(schedule, phases=phases, buffers=(*schedule.buffers, *made)) if made else schedule


def _widened(
    steps: Sequence[Step], ranges: Mapping[Var, Interval], names: Names, buffer_of: Callable[[Load], Buffer], made: list[Buffer]
) -> tuple[Step, ...]:
    nests: dict[Buffer, list[tuple[Nest, FoldStep]]] = {}
    for nest in [s for s in steps if isinstance(s, Nest)]:
        for f in nest.folds:
            for b in f.buffers:
                if sums_element(f, b.element) is not b.element:
                    nests.setdefault(b, []).append((nest, f))
    grown: dict[Buffer, Buffer] = {}
    after: dict[Step, list[Nest]] = {}
    for b, rows in nests.items():
        if all(_in_registers(n, f, buffer_of) for n, f in rows) or any(n.skip is not None for n, _ in rows):
            continue
        (value,) = rows[0][1].values
        grown[b] = _scratch(b, *rows[0], ranges, names.scratch(value, "sums"))
        for n, f in rows:
            if not f.carried:  # what is carried goes on from elements that another nest begins with
                load = Load(value, f.index, grown[b])
                loops = tuple(replace(x, kind=LoopKind.PARALLEL) for x in n.loops if x.kind is not LoopKind.REDUCTION)
                after.setdefault(rows[-1][0], []).append(Nest(loops, (Store(value, b, f.index, load),)))
    if not grown:
        return tuple(steps)
    made += grown.values()
    found: list[Step] = []
    for s in steps:
        if isinstance(s, Nest) and any(b in grown for f in s.folds for b in f.buffers):
            folds = tuple(replace(f, buffers=tuple(grown.get(b, b) for b in f.buffers)) for f in s.folds)
            found.append(replace(s, folds=folds))
        else:
            found.append(s)
        found += after.get(s, ())
    return tuple(found)


def _in_registers(nest: Nest, f: FoldStep, buffer_of: Callable[[Load], Buffer]) -> bool:
    """Whether an element's running result stays in a register from its first term to its last."""
    kinds = [x.kind for x in order_loops(nest, buffer_of).loops]
    if LoopKind.SCAN in kinds:
        return kinds[-1] is LoopKind.SCAN
    first = kinds.index(LoopKind.REDUCTION) if LoopKind.REDUCTION in kinds else len(kinds)
    return not f.carried and LoopKind.PARALLEL not in kinds[first:]


def _scratch(b: Buffer, nest: Nest, f: FoldStep, ranges: Mapping[Var, Interval], name: str) -> Buffer:
    """Scratch for what a task computes of a buffer: all of it, or, of a result, the box that the loops run over."""
    if b.scope is not Scope.RESULT:
        return replace(b, name=name, scope=Scope.THREAD, element=F32)
    start: dict[Var, Expr] = {x.variable: Const(0) for x in nest.loops}
    origin, shape = [], []
    for e in f.index:
        first = simplify(substitute(e, start), ranges)
        run = interval(simplify(e - first, ranges), ranges)  # below 0 where a loop goes backwards
        origin.append(simplify(first + run.lower, ranges))
        shape.append(run.upper - run.lower + 1)
    return make_buffer(name, Scope.THREAD, F32, tuple(shape), tuple(shape), tuple(origin))
