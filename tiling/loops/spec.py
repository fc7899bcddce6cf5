"""The rules that loops keep, as data: each pass from loops to loops leaves them as it found them.

    faults(schedule)   what breaks a rule, in words; nothing for loops that are as they should be

These are rules of form, checked in one walk. Whether loops compute the right thing is `tiling.proving`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from indexing.expr import Const, Expr, Var
from tiling.loops.accesses import buffers_by_value
from tiling.loops.element_ir import (
    Choose,
    IndexNode,
    Load,
    Node,
    Test,
    all_nodes,
    own_expressions,
    runtimes_of,
)
from tiling.loops.ir import (
    Buffer,
    Contract,
    FoldStep,
    Loop,
    LoopKind,
    Measure,
    Nest,
    Ordering,
    Phase,
    Scatter,
    Schedule,
    Selection,
    Sequential,
    Step,
    Store,
    Transform,
    Turn,
)

__all__ = ["RULES", "Place", "Rule", "faults", "own_loops"]


@dataclass(frozen=True, eq=False)
class Place:
    """A step of a schedule with what is around it: the variables that have a value there, and the step's name in messages."""

    schedule: Schedule
    phase: Phase
    step: Step
    bound: frozenset[Var]
    label: str


@dataclass(frozen=True)
class Rule:
    """Something that holds at every step; `broken` gives a sentence for each thing that breaks it."""

    name: str
    why: str
    broken: Callable[[Place], Iterator[str]]


def faults(schedule: Schedule) -> list[str]:
    """What breaks a rule in a schedule, each with the rule and the step; an empty list for loops that keep all rules.

    >>> import hlo, tiling
    >>> from dataclasses import replace
    >>> text = '''func.func @main(%x: tensor<16x8xf32>) -> tensor<16x8xf32> {
    ...   %0 = stablehlo.tanh %x : tensor<16x8xf32>
    ...   return %0 : tensor<16x8xf32> }'''
    >>> schedule = tiling.plan(hlo.parse(text)).fusions[0].schedule
    >>> faults(schedule)
    []
    >>> faults(replace(schedule, buffers=schedule.buffers[:1]))
    ['buffers are listed: phase 0 step 0: a value is read that is kept nowhere']
    """
    return [f"{rule.name}: {place.label}: {bad}" for place in _places(schedule) for rule in RULES for bad in rule.broken(place)]


# ---------------------------------------------------------------- places


def _places(schedule: Schedule) -> Iterator[Place]:
    """Every step, those inside sequential loops and the packs of contractions too."""
    flags: set[Var] = set()
    for number, phase in enumerate(schedule.phases):
        flags.update(f.variable for f in phase.flags)
        around = frozenset(v for v, _ in phase.tiles) | flags
        for k, step in enumerate((*phase.before, *phase.steps)):
            yield from _inside(Place(schedule, phase, step, around, f"phase {number} step {k}"))


def _inside(place: Place) -> Iterator[Place]:
    step = place.step
    yield place
    if isinstance(step, Sequential):
        bound = place.bound | {step.loop.variable}
        for k, s in enumerate(step.steps):
            yield from _inside(Place(place.schedule, place.phase, s, bound, f"{place.label} part {k}"))
    elif isinstance(step, Contract):
        bound = place.bound | {x.variable for x in step.loops} | {step.k_start}
        for k, nest in enumerate(step.pack):
            yield from _inside(Place(place.schedule, place.phase, nest, bound, f"{place.label} pack {k}"))


def own_loops(step: Step) -> tuple[Loop, ...]:
    """A step's own loops, outermost first."""
    if isinstance(step, (Nest, Contract, Scatter)):
        return step.loops
    if isinstance(step, Selection):
        return (*step.loops, *step.window)
    if isinstance(step, Sequential):
        return (step.loop,)
    return (step.rows, step.columns) if isinstance(step, Turn) else ()


def _stores(nest: Nest) -> Iterator[Store]:
    yield from nest.stores
    yield from (s for x in nest.segments for s in x.stores)


def _folds(nest: Nest) -> Iterator[FoldStep]:
    yield from nest.folds
    yield from (f for x in nest.segments for f in x.folds)


def _nodes(nest: Nest) -> list[Node]:
    roots = [s.node for s in _stores(nest)] + [n for f in _folds(nest) for n in (*f.nodes, *f.inits)]
    return list(all_nodes(roots))


# ---------------------------------------------------------------- names


def _free(e: Expr, bound: frozenset[Var]) -> str:
    return ", ".join(sorted(str(v) for v in e.variables if v not in bound))


def _bounds(place: Place) -> Iterator[str]:
    """Each loop's bounds use what is around the step and the loops outside of it."""
    bound = place.bound
    for x in own_loops(place.step):
        for e in (x.lower, x.upper):
            if free := _free(e, bound):
                yield f"the bounds of {x.variable} use {free}"
        bound = bound | {x.variable}
    if isinstance(place.step, Nest):
        bound = place.bound | {x.variable for x in place.step.loops[:-1]}
        for part in place.step.segments:
            for e in (part.lower, part.upper):
                if free := _free(e, bound):
                    yield f"a segment's bounds use {free}"
    elif isinstance(place.step, Contract):
        c = place.step
        for e in (c.rows_upper, c.columns_lower, c.columns_upper, c.depth_lower, c.last_depth):
            if free := _free(e, bound):
                yield f"the bounds of a contraction use {free}"


def _names(place: Place) -> Iterator[str]:
    """Indices and conditions use loops around them, tile numbers, flags, and values found out at run time."""
    step = place.step
    if not isinstance(step, Nest):
        return
    inside = place.bound | {x.variable for x in step.loops}
    nodes = _nodes(step)
    known = inside | {r.variable for n in nodes for r in runtimes_of(n)}
    for n in nodes:
        own: Iterable[Expr] = n.index if isinstance(n, Load) else own_expressions(n)
        if isinstance(n, (Load, IndexNode, Choose, Test)):
            for e in own:
                if free := _free(e, known):
                    yield f"{type(n).__name__.lower()} uses {free}"
    for target, index in _targets(step):
        for e in index:
            if free := _free(e, inside):
                yield f"the place in {target.name} uses {free}"


def _targets(nest: Nest) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    yield from ((s.buffer, s.index) for s in _stores(nest))
    yield from ((b, f.index) for f in _folds(nest) for b in f.buffers)


def _once(place: Place) -> Iterator[str]:
    """A variable is bound once."""
    names = [x.variable for x in own_loops(place.step)]
    for v in dict.fromkeys(names):
        if names.count(v) > 1 or v in place.bound:
            yield f"{v} is bound twice"


def _ranges(place: Place) -> Iterator[str]:
    """What indices are simplified with is known of every loop."""
    for x in own_loops(place.step):
        known = x.variable in place.schedule.ranges or (x.upper is Const(0) and x.extent == 1)
        if not known and isinstance(place.step, Nest):
            yield f"{x.variable} has no range"


# ---------------------------------------------------------------- buffers


def _buffers(place: Place) -> Iterator[str]:
    """What a step touches is listed, and values that are read are kept somewhere."""
    listed = set(place.schedule.buffers)
    for b in dict.fromkeys(_touched(place)):
        if b is None:
            yield "a value is read that is kept nowhere"
        elif b not in listed:
            yield f"{b.name} is none of the buffers"


def _touched(place: Place) -> Iterator[Buffer | None]:
    step = place.step
    if isinstance(step, Nest):
        kept = buffers_by_value(place.schedule)
        yield from (b for b, _ in _targets(step))
        yield from (n.buffer or kept.get(n.value) for n in _nodes(step) if isinstance(n, Load))
    elif isinstance(step, Contract):
        yield from (step.left.buffer, step.right.buffer, step.out.buffer)
    elif isinstance(step, Turn):
        yield from (step.source.buffer, step.target.buffer)
    elif isinstance(step, Ordering):
        yield from (*step.sources, *step.targets, *step.scratch, *([step.places] if step.places else []))
    elif isinstance(step, Scatter):
        yield from step.targets
    elif isinstance(step, Measure):
        yield from (step.source, step.target)
    elif isinstance(step, Selection):
        yield from (step.operand, step.target)
    elif isinstance(step, Transform):
        yield from (step.source.buffer, step.target.buffer, *step.scratch, *([step.roots] if step.roots else []))


def _ranks(place: Place) -> Iterator[str]:
    """An index has as many parts as its buffer has dimensions."""
    if isinstance(place.step, Nest):
        kept = buffers_by_value(place.schedule)
        reads = ((n.buffer or kept.get(n.value), n.index) for n in _nodes(place.step) if isinstance(n, Load))
        for b, index in (*_targets(place.step), *reads):
            if b is not None and len(index) != len(b.shape):
                yield f"{b.name} has {len(b.shape)} dimensions, an index has {len(index)}"


# ---------------------------------------------------------------- nests


def _folded(place: Place) -> Iterator[str]:
    """What a fold's place is computed from does not change while it folds; its parts come to whole groups of factors."""
    if not isinstance(place.step, Nest):
        return
    inner = {x.variable for x in place.step.loops if x.kind is LoopKind.REDUCTION}
    for f in _folds(place.step):
        if any(v in inner for e in f.index for v in e.variables):
            yield f"the place of {f.op.name} changes with what it folds over"
        if f.products < 1 or len(f.nodes) % f.products:
            yield f"{len(f.nodes)} factors make no {f.products} products"
    if place.step.stores and any(x.kind is LoopKind.REDUCTION for x in place.step.loops) and not place.step.folds:
        yield "a store inside a reduction that nothing is folded by"


def _kinds(place: Place) -> Iterator[str]:
    """One scan at most, with one fold; iterations that are written as one stand around the innermost loop."""
    if not isinstance(place.step, Nest):
        return
    loops: Sequence[Loop] = place.step.loops
    scans = [x for x in loops if x.kind is LoopKind.SCAN]
    if len(scans) > 1 or (scans and len(place.step.folds) != 1):
        yield "a scan is one loop of one fold"
    for k, x in enumerate(loops):
        if x.together < 1 or (x.together > 1 and k != len(loops) - 2):
            yield f"{x.together} iterations of {x.variable} are written as one"


def _segments(place: Place) -> Iterator[str]:
    """Segments do what the nest does: the same stores' places and the same folds, some of them left out."""
    if not isinstance(place.step, Nest):
        return
    nest = place.step
    if nest.segments and not nest.loops:
        yield "segments of no loop"
    for x in nest.segments:
        if [s.buffer for s in x.stores] != [s.buffer for s in nest.stores]:
            yield "a segment stores to other buffers"
        if x.folds and [f.buffers for f in x.folds] != [f.buffers for f in nest.folds]:
            yield "a segment folds into other buffers"
    if not set(nest.ahead) <= set(_nodes(nest)):
        yield "a row is asked for ahead that nothing loads"


RULES = (
    Rule("bounds are closed", "a loop's bounds use only variables that have a value outside of it", _bounds),
    Rule("names are bound", "an index or a condition uses only variables that have a value there", _names),
    Rule("bound once", "no loop hides another one's variable", _once),
    Rule("ranges are known", "indices are simplified with the ranges of their variables", _ranges),
    Rule("buffers are listed", "memory is laid out for the schedule's buffers and no others", _buffers),
    Rule("ranks agree", "an index has a part for each dimension", _ranks),
    Rule("folds stay in place", "the results of a fold lie where its loops leave them", _folded),
    Rule("kinds of loops", "what is printed side by side stands where the printer looks for it", _kinds),
    Rule("segments agree", "the parts of an innermost loop do together what the nest says", _segments),
)
