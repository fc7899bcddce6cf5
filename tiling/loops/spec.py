"""The rules that loops keep, as data: each pass from loops to loops leaves them as it found them.

    faults(schedule)      what breaks a rule, in words; nothing for loops that are as they should be
    malformed(schedule)   the same of the rules that proofs take for granted

These are rules of form, checked in one walk. Whether loops compute the right thing is `tiling.proving`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hlo.module import Value
from hlo.registry import Fold, SumOfProducts
from hlo.types import ELEMENT_TYPES
from indexing.expr import Const, Expr, Interval, Var, as_expr, interval, simplify, substitute
from tiling.loops.element_ir import Apply, Choose, Load, Node, Test, all_nodes, element_name, loads, own_expressions, runtimes_of
from tiling.loops.ir import (
    Block2D,
    Buffer,
    Contract,
    Flag,
    FoldStep,
    Loop,
    LoopKind,
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
from tiling.loops.marks import looking_fault, rows_faults

__all__ = ["RULES", "Rule", "faults", "malformed", "own_loops"]


@dataclass(frozen=True)
class Rule:
    """Something that holds everywhere in a schedule; `proofs` count on it, or only what rewrites and prints loops does."""

    name: str
    why: str
    proofs: bool = True


BOUNDS, NAMES, ONCE, LISTED, RANKS, ELEMENTS = (
    "bounds are closed", "names are bound", "bound once", "buffers are listed", "ranks agree", "elements fit",
)  # fmt: skip
PARTS, FOLDS, PRODUCTS, MARKS = "parts fit", "folds stay in place", "products are whole", "marks hold"
RANGES, KINDS, SEGMENTS = "ranges are known", "kinds of loops", "segments agree"

RULES = (
    Rule(BOUNDS, "a loop's bounds use only variables that have a value outside of it"),
    Rule(NAMES, "an index or a condition uses only variables that have a value there"),
    Rule(ONCE, "no loop hides another one's variable"),
    Rule(LISTED, "memory is laid out for the schedule's buffers and no others"),
    Rule(RANKS, "an index has a part for each dimension"),
    Rule(ELEMENTS, "a buffer's elements hold what is stored there"),
    Rule(PARTS, "what a step is made of are as many and such parts as its kind has"),
    Rule(FOLDS, "the results of a fold lie where its loops leave them, those of a scan one after the other"),
    Rule(PRODUCTS, "a sum of written out products has whole groups of factors"),
    Rule(MARKS, "what is written as one, or looked at twice, is what a kernel computes the same so (`tiling.loops.marks`)"),
    Rule(RANGES, "indices are simplified with the ranges of their variables", proofs=False),
    Rule(KINDS, "what is printed side by side stands where the printer looks for it", proofs=False),
    Rule(SEGMENTS, "the parts of an innermost loop do together what the nest says", proofs=False),
)

Fault = tuple[str, str, str]
"""(rule, subject, what is wrong with it)"""


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
    ['buffers are listed: phase 0 step 0: %x is read, and is in no buffer']
    """
    return [f"{rule}: {at}: {what}" for rule, at, what in dict.fromkeys(_Forms(schedule, proofs=False).faults())]


def malformed(schedule: Schedule) -> list[tuple[str, str]]:
    """(subject, what is wrong with it) for each rule that is broken of those that proofs count on."""
    return list(dict.fromkeys((at, what) for _, at, what in _Forms(schedule, proofs=True).faults()))


def own_loops(step: Step) -> tuple[Loop, ...]:
    """A step's own loops, outermost first."""
    if isinstance(step, (Nest, Contract, Scatter)):
        return step.loops
    if isinstance(step, Selection):
        return (*step.loops, *step.window)
    if isinstance(step, Sequential):
        return (step.loop,)
    return (step.rows, step.columns) if isinstance(step, Turn) else ()


def _held(buffers: Sequence[Buffer], steps: Sequence[Step]) -> dict[Buffer, set[Value | None]]:
    """The values that each buffer has elements of at some time; None stands for any, where copies are put."""
    found: dict[Buffer, set[Value | None]] = {b: set() if b.value is None else {b.value} for b in buffers}
    for step in steps:
        rows: list[tuple[Value | None, object]] = []
        for nest in (step,) if isinstance(step, Nest) else step.pack if isinstance(step, Contract) else ():
            rows += [(s.value, s.buffer) for s in nest.stores]
            rows += [x for f in nest.folds for x in zip(f.values, f.buffers, strict=False)]
        if isinstance(step, Contract):
            rows.append((step.value, step.out.buffer))
        elif not isinstance(step, Nest):  # sorts, transforms and others say themselves what they put where
            rows += [(None, getattr(y, "buffer", y)) for x in vars(step).values() for y in (x if isinstance(x, tuple) else (x,))]
        for v, b in rows:
            if isinstance(b, Buffer):
                found.setdefault(b, set()).add(v)
    return found


class _Forms:
    """One walk over a schedule: for `proofs`, which ask about final loops, or for the passes and the emitter."""

    def __init__(self, schedule: Schedule, proofs: bool) -> None:
        self.schedule, self.proofs = schedule, proofs
        self.buffers = set(schedule.buffers)
        self.given = {b.value for b in schedule.buffers_in(Scope.ARGUMENT)} - {None}
        steps = [s for p in schedule.phases for s in (*p.before, *p.all_steps)]
        self.held = _held(schedule.buffers, steps)
        self.values = {b.value for b in schedule.buffers} | {
            v for s in steps for v in (s.values if isinstance(s, (Nest, Contract)) else (s.value,) if isinstance(s, Turn) else ())
        }

    def faults(self) -> Iterator[Fault]:
        names = [b.name for b in self.schedule.buffers]
        for b in self.schedule.buffers:
            if names.count(b.name) > 1:
                yield PARTS, f"buffer {b.name}", "two buffers have this name"
            if not len(b.shape) == len(b.strides) == len(b.origin):
                yield RANKS, f"buffer {b.name}", "its shape, strides and origin are not of one rank"
            if b.value is None and b.scope in (Scope.ARGUMENT, Scope.RESULT):
                yield PARTS, f"buffer {b.name}", "it is the memory of a value, and names none"
            if b.value is not None and b.scope in (Scope.ARGUMENT, Scope.RESULT):
                if b.shape != b.value.shape or any(as_expr(o) is not Const(0) for o in b.origin):
                    yield PARTS, f"buffer {b.name}", f"it is not the whole of %{b.value.name or '?'}: {b.value.type}"
                if b.element != b.value.tensor.element:
                    yield ELEMENTS, f"buffer {b.name}", f"its elements are {b.element}, those of %{b.value.name or '?'} are not"
        if len({b.value for b in self.schedule.buffers_in(Scope.RESULT)}) < len(self.schedule.buffers_in(Scope.RESULT)):
            yield PARTS, "buffers", "a value is stored in two of them"
        for number, phase in enumerate(self.schedule.phases):
            yield from self._phase(phase, f"phase {number}")

    def _phase(self, phase: Phase, label: str) -> Iterator[Fault]:
        tiles = [v for v, _ in phase.tiles]
        if any(not isinstance(v, Var) for v in tiles) or len(set(tiles)) < len(tiles):
            yield PARTS, label, "its tile numbers are not variables of their own"
            return
        if any(n < 0 for _, n in phase.tiles) or phase.group < 1 or (phase.group > 1 and len(tiles) != 1):
            yield PARTS, label, f"no tasks of {phase.group} tiles of {[n for _, n in phase.tiles]}"
            return
        if any(v not in tiles for v in phase.descending) or len(set(phase.descending)) < len(phase.descending):
            yield PARTS, label, "it descends along what is no tile number of its own"
        flags = [f.variable for f in phase.flags]
        for f in phase.flags:
            yield from self._flag(f, label)
        if len(set(flags)) < len(flags):
            yield PARTS, label, "two flags are one variable"
        if any(not isinstance(v, Var) or v not in self.schedule.ranges for v in flags):
            return
        known = {*tiles, *flags}
        for k, step in enumerate((*phase.before, *phase.steps)):
            yield from ((rule, f"{label} step {k}{at}", fault) for rule, at, fault in self._step(step, known, phase))

    def _flag(self, f: Flag, label: str) -> Iterator[Fault]:
        if not isinstance(f.variable, Var) or self.schedule.ranges.get(f.variable) is None:
            yield PARTS, label, f"the flag {f.variable} has no range"
        for b, _ in f.limits:
            if b not in self.buffers:
                yield LISTED, label, f"the flag {f.variable} looks at {b.name}, which is none of the schedule's buffers"

    def _step(self, step: Step, known: set[Var], phase: Phase) -> Iterator[Fault]:
        forms: dict[type, Callable[..., Iterator[Fault]]] = {
            Nest: partial(self._whole, flags={f.variable for f in phase.flags}), Contract: self._contract, Turn: self._turn,
            Ordering: self._ordering, Scatter: self._scatter, Selection: self._selection, Transform: self._transform,
            Measure: partial(self._measure, phase=phase), Sequential: partial(self._sequential, phase=phase),
            MatrixStep: self._matrices,
        }  # fmt: skip
        for x in () if isinstance(step, Nest) else own_loops(step):
            if x.together != 1:
                found = f"{x.together} iterations of {x.variable} are written as one"
                yield MARKS, "", f"{found}: expected a nest, found {type(step).__name__}"
        yield from forms[type(step)](step, known)

    # ------------------------------------------------------------ names

    def _names(self, expressions: Iterable[object], known: set[Var], what: str, rule: str = NAMES) -> Iterator[Fault]:
        for e in expressions:
            for v in as_expr(e).variables if isinstance(e, (Expr, int)) else ():
                if v not in known:
                    yield rule, "", f"{what}: {v} stands for nothing here"

    def _loops(self, loops: Sequence[Loop], known: set[Var]) -> Iterator[Fault]:
        """Adds the loops' variables to those that are known."""
        for x in loops:
            yield from self._names((x.lower, x.upper), known, f"bounds of the loop over {x.variable}", BOUNDS)
            if not isinstance(x.variable, Var) or x.variable in known:
                yield ONCE, "", f"the loop over {x.variable} has no variable of its own"
                continue
            known.add(x.variable)

    def _nodes(self, roots: Sequence[Node], known: set[Var]) -> Iterator[Fault]:
        for n in all_nodes(roots):
            inner = known | {r.variable for r in runtimes_of(n)}
            yield from self._names(own_expressions(n), inner, "an index")
            for r in runtimes_of(n):
                span = self.schedule.ranges.get(r.variable)
                if not isinstance(r.variable, Var) or span is None or not span.covers(Interval(r.lower, r.upper)):
                    yield PARTS, "", f"{r.variable} is clamped to [{r.lower}, {r.upper}], its range is {span}"
            if isinstance(n, Load):
                yield from self._load(n)
            if isinstance(n, Apply) and len(n.arguments) != len(n.op.operands):
                yield PARTS, "", f"{n.function} has {len(n.arguments)} arguments, {n.op.name} has {len(n.op.operands)} operands"
            if isinstance(n, (Choose, Test)) and not n.conditions:
                yield PARTS, "", "a choice without conditions"

    def _load(self, n: Load) -> Iterator[Fault]:
        if n.buffer is not None:
            yield from self._known(n.buffer)
            if len(n.index) != len(n.buffer.shape):
                yield RANKS, "", f"{n.buffer.name} has {len(n.buffer.shape)} dimensions, a load has {len(n.index)}"
            held = self.held.get(n.buffer, {None})
            if self.proofs and n.value not in held and None not in held:
                yield PARTS, "", f"%{n.value.name or '?'} is read from {n.buffer.name}, which holds other values"
        elif n.value not in self.values:
            yield LISTED, "", f"%{n.value.name or '?'} is read, and is in no buffer"
        elif len(n.index) != n.value.rank:
            yield RANKS, "", f"%{n.value.name or '?'} has {n.value.rank} dimensions, a load has {len(n.index)}"

    def _known(self, *buffers: Buffer) -> Iterator[Fault]:
        for b in buffers:
            if b not in self.buffers:
                yield LISTED, "", f"{b.name} is none of the schedule's buffers"

    def _holds(self, b: Buffer, name: str | None, what: str) -> Iterator[Fault]:
        """A buffer's elements are those of what it holds, or wider: short floats become f32, short integers longer ones."""
        if name is None or name == b.element.name or name not in ELEMENT_TYPES:
            return
        held = ELEMENT_TYPES[name]
        is_short = held.bits < 32 and b.element.name == "f32" if held.is_float else held.bits <= 8 and b.element.bits > held.bits
        if not is_short or held.is_float != b.element.is_float:
            yield ELEMENTS, "", f"{b.name} holds {b.element}, {what} {name}"

    def _written(self, b: Buffer, index: Sequence[Expr], known: set[Var]) -> Iterator[Fault]:
        yield from self._known(b)
        yield from self._names((*index, *b.origin), known, f"where {b.name} is written")
        if len(index) != len(b.shape):
            yield RANKS, "", f"{b.name} has {len(b.shape)} dimensions, what is written {len(index)}"

    # ------------------------------------------------------------ nests

    def _whole(self, nest: Nest, around: set[Var], flags: set[Var] | None = None) -> Iterator[Fault]:
        yield from self._nest(nest, around, flags)
        if not self.proofs:
            yield from self._as_written(nest)

    def _as_written(self, nest: Nest) -> Iterator[Fault]:
        """What loops have to be like to be simplified, cut and printed."""
        folds = (*nest.folds, *(f for x in nest.segments for f in x.folds))
        for x in nest.loops:
            if x.variable not in self.schedule.ranges and not (x.upper is Const(0) and x.extent == 1):
                yield RANGES, "", f"{x.variable} has no range"
        if nest.stores and any(x.kind is LoopKind.REDUCTION for x in nest.loops) and not nest.folds:
            yield KINDS, "", "a store inside a reduction that nothing is folded by"
        for part in nest.segments:
            if [s.buffer for s in part.stores] != [s.buffer for s in nest.stores]:
                yield SEGMENTS, "", "a segment stores to other buffers"
            if part.folds and [f.buffers for f in part.folds] != [f.buffers for f in nest.folds]:
                yield SEGMENTS, "", "a segment folds into other buffers"
        roots = [s.node for s in (*nest.stores, *(s for x in nest.segments for s in x.stores))]
        if not set(nest.ahead) <= set(all_nodes([*roots, *(n for f in folds for n in (*f.nodes, *f.inits))])):
            yield SEGMENTS, "", "a row is asked for ahead that nothing loads"

    def _nest(self, nest: Nest, around: set[Var], flags: set[Var] | None = None) -> Iterator[Fault]:
        known = set(around)
        yield from self._loops(nest.loops, known)
        reduced = {x.variable for x in nest.loops if x.kind is LoopKind.REDUCTION}
        scans = [x for x in nest.loops if x.kind is LoopKind.SCAN]
        for s in nest.stores:
            yield from self._written(s.buffer, s.index, known)
            yield from self._nodes([s.node], known)
            yield from self._holds(s.buffer, element_name(s.node), "what is stored is")
            if s.value in self.given:
                yield PARTS, "", f"{s.buffer.name} takes the place of a value that is given"
        yield from ((MARKS, "", fault) for fault in rows_faults(nest, self.schedule.ranges))
        places = [(b, f.index) for f in nest.folds for b in f.buffers]
        if len(set(places)) < len(places):
            yield FOLDS, "", "two results are folded in one place"
        for f in nest.folds:
            yield from self._fold(f, known, reduced, scans)
            fault = looking_fault(nest, f)
            if fault is not None:
                yield MARKS, "", f"{f.op.name} looks twice at what it folds: {fault}"
        if scans and (nest.stores or len(nest.folds) != 1 or len(scans) != 1 or nest.skip is not None):
            yield FOLDS, "", "a loop marked as a scan is around something other than one fold"
        for x in nest.segments:
            if not nest.loops:
                yield PARTS, "", "a nest without loops has segments"
                return
            inner = replace(nest.loops[-1], lower=x.lower, upper=x.upper)
            yield from self._nest(Nest((*nest.loops[:-1], inner), x.stores, x.folds), around)
        if nest.skip is not None:
            left = nest.skip
            if left.flag not in (flags or ()):
                yield PARTS, "", f"what is left out depends on {left.flag}, which is no flag of the phase"
            if left.variable not in {x.variable for x in nest.loops} or not left.conditions:
                yield PARTS, "", f"what is left out is bounded along {left.variable}, which is none of the loops"
            yield from self._names((c.expression for c in left.conditions), known, "what is left out")
            yield from self._names(left.fill or (), known, "where zeros are stored")
            # (A fold may stand beside a store that leaves something out: it does not see the zeros.)
            if left.fill is not None and (not nest.stores or any(left.variable in e.variables for e in left.fill)):
                yield PARTS, "", "zeros are stored in place of a fold"

    def _fold(self, f: FoldStep, known: set[Var], reduced: set[Var], scans: Sequence[Loop]) -> Iterator[Fault]:
        for b in f.buffers:
            yield from self._written(b, f.index, known)
        for value, b in zip(f.values, f.buffers, strict=False):
            yield from self._holds(b, str(value.tensor.element), "its sums are")
        for b, init in zip(f.buffers, f.inits, strict=False):
            yield from self._holds(b, element_name(init), "its initial value is")
        yield from self._nodes((*f.nodes, *f.inits), known)
        is_fold, is_product = (isinstance(f.op.definition.semantics, x) for x in (Fold, SumOfProducts))
        count = len(f.values)
        factors = len(f.op.operands) if is_product else count
        if f.products < 1 or len(f.nodes) != f.products * factors:
            yield PRODUCTS, "", f"{len(f.nodes)} nodes are no {f.products} times the {factors} that {f.op.name} takes"
        if not count or len(f.buffers) != count or not (is_fold or is_product):
            yield PARTS, "", f"{f.op.name} folds {count} values into {len(f.buffers)} buffers"
        elif is_fold and not (len(f.nodes) == count * f.products and len(f.inits) == len(f.op.results) == count):
            yield PARTS, "", f"{f.op.name} has {len(f.op.results)} results: {len(f.nodes)} nodes, {len(f.inits)} initial values"
        elif is_product and (not f.nodes or f.inits or count != 1):
            yield PARTS, "", "a sum of products starts from zero and has one value"
        if f.carried and any(x.buffer is not None for x in loads(f.inits)):
            yield PARTS, "", "a fold that goes on from what is there starts from something else as well"
        for moved in {v for e in f.index for v in e.variables} & reduced:
            yield FOLDS, "", f"the result of a fold moves along its reduction over {moved}"
        for x in scans:
            if f.carried or reduced or len(f.nodes) != 1 or not is_fold:
                yield FOLDS, "", "a scan folds one value, from its start, along one loop"
            before = tuple(simplify(substitute(e, {x.variable: x.variable - 1}) - e, self.schedule.ranges) for e in f.index)
            if not any(e is not Const(0) for e in before):
                yield FOLDS, "", f"the results of a scan over {x.variable} all lie at one place"

    def _sequential(self, s: Sequential, around: set[Var], phase: Phase) -> Iterator[Fault]:
        known = set(around)
        yield from self._loops((s.loop,), known)
        flags = {f.variable for f in phase.flags}
        for x in s.limits:
            yield from self._nodes([x.node], known)
            yield from self._names((x.origin, x.lower, x.upper), known, f"the limit {x.variable}", BOUNDS)
            if not isinstance(x.variable, Var) or x.variable in known:
                yield ONCE, "", f"the limit {x.variable} has no variable of its own"
                continue
            known.add(x.variable)
            span, ends = self.schedule.ranges.get(x.variable), [interval(e, self.schedule.ranges) for e in (x.lower, x.upper)]
            if span is None or span.lower > ends[0].lower or span.upper < ends[1].upper:
                yield PARTS, "", f"the limit {x.variable} is kept in [{ends[0].lower}, {ends[1].upper}], its range is {span}"
            if x.flag is not None and x.flag not in flags:
                yield PARTS, "", f"the limit {x.variable} asks for {x.flag}, which is no flag of its phase"
        for k, step in enumerate(s.steps):
            yield from ((rule, f" part {k}{at}", fault) for rule, at, fault in self._step(step, known, phase))

    # ------------------------------------------------------------ steps of other kinds

    def _block(self, block: Block2D, known: set[Var], what: str) -> Iterator[Fault]:
        yield from self._known(block.buffer)
        yield from self._names((block.base, *block.buffer.origin), known, what)

    def _contract(self, c: Contract, around: set[Var]) -> Iterator[Fault]:
        known = set(around)
        yield from self._loops(c.loops, known)
        bounds = (c.rows_upper, c.columns_upper, c.columns_lower, c.depth_lower, c.last_depth)
        yield from self._names(bounds, known, "bounds", BOUNDS)
        if not isinstance(c.k_start, Var) or c.k_start in known:
            yield PARTS, "", "the blocks of k have no variable of their own"
            return
        yield from self._block(c.out, known, "where sums are stored")
        known.add(c.k_start)
        for block, what in ((c.left, "left"), (c.right, "right")):
            yield from self._block(block, known, f"the {what} factor")
        for part, pack in enumerate(c.pack):
            yield from ((rule, f" pack {part}{at}", fault) for rule, at, fault in self._whole(pack, known))
        if c.k < 1 or c.k_block < 1 or c.columns < 1 or c.rows < 1 or any(n < 1 for n, _, _ in c.levels):
            yield PARTS, "", "a sum over nothing"
            return
        ranges = self.schedule.ranges
        ends = [interval(simplify(e, ranges), ranges) for e in (c.depth_lower, c.last_depth, c.columns_lower)]
        if ends[0].lower < 0 or ends[1].upper >= c.k or ends[2].lower < 0:
            yield PARTS, "", f"it sums over [{ends[0].lower}, {ends[1].upper}] of a depth of {c.k}, from column {ends[2].lower}"
        yield from self._holds(c.out.buffer, str(c.value.tensor.element), "its sums are")
        for number, block in enumerate((c.right, c.left) if c.is_swapped else (c.left, c.right)):
            yield from self._holds(block.buffer, str(c.op.operands[number].tensor.element), "the factor's elements are")
        blocks = -(-c.k // c.k_block)
        masked = c.depth_lower is not Const(0) or c.depth_upper is not None or c.columns_lower is not Const(0)
        kernel = c.kernel
        walked = masked or bool(c.levels)
        in_parts = blocks > 1 or c.accumulate or (walked and not (kernel.walks and _goes_on(c)))
        if c.k % kernel.together or (in_parts and not kernel.adds):
            once = "" if kernel.adds else ", in one go"
            yield PARTS, "", f"{kernel.routine} sums whole groups of {kernel.together} steps of k{once}"
        if kernel.needs_runs and c.left.column_stride != 1 and not (kernel.walks and c.left.row_stride == 1):
            yield PARTS, "", f"{kernel.routine} reads the left factor's steps of k one after the other"
        if kernel.along and (c.columns != 1 or c.right.row_stride != 1):
            yield PARTS, "", f"{kernel.routine} reads the right factor's steps of k in a row, and each column is a panel"
        if kernel.together > 1 and c.right.row_stride != kernel.together * c.columns:
            yield PARTS, "", f"{kernel.routine} reads rows of {kernel.together} steps of k without gaps"
        if c.asks_ahead and not kernel.asking:
            yield PARTS, "", f"{kernel.routine} asks for nothing ahead"
        if c.column_block % c.columns or not 0 <= c.column_block < max(1, c.n) or (c.column_block and not c.asks_ahead):
            yield PARTS, "", f"blocks of {c.column_block} of {c.n} columns: expected whole panels of {c.columns}, asked for ahead"
        if not kernel.along and c.columns & (c.columns - 1):
            yield PARTS, "", f"{kernel.routine} reads panels of whole vectors: expected a power of two columns, found {c.columns}"
        if not kernel.along and c.out.column_stride != 1:
            yield PARTS, "", f"{kernel.routine} stores whole vectors of columns"
        if len(c.places) != (len(c.out.buffer.shape) if c.element else 0) or (c.element and len(c.element) != c.value.rank):
            yield PARTS, "", "sums that are kept apart do not say which elements they are"
        if not c.element and len(c.out.buffer.shape) != c.value.rank:
            rank = len(c.out.buffer.shape)
            yield PARTS, "", f"{c.out.buffer.name} has {rank} dimensions, %{c.value.name or '?'} has {c.value.rank}"

    def _turn(self, t: Turn, around: set[Var]) -> Iterator[Fault]:
        known = set(around)
        yield from self._block(t.source, known, "the tile")
        yield from self._block(t.target, known, "the turned tile")
        yield from self._loops((t.rows, t.columns), known)
        if t.together < 1 or (t.source.column_stride, t.target.column_stride) != (t.together, t.together):
            yield PARTS, "", "tiles are turned whose rows lie in one piece"
        yield from self._holds(t.target.buffer, t.source.buffer.element.name, "the tile's elements are")
        if any(x.lower is not Const(0) for x in (t.rows, t.columns)):
            yield PARTS, "", "tiles are turned from their first row and column"

    def _measure(self, m: Measure, known: set[Var], phase: Phase) -> Iterator[Fault]:
        yield from self._known(m.source, m.target)
        if m.piece not in {v for v, _ in phase.tiles}:
            yield PARTS, "", f"the piece {m.piece} is no tile number"
        if m.size < 1:
            yield PARTS, "", "pieces of nothing"
        if len(m.target.shape) != 1 or m.target.element != m.source.element:
            yield PARTS, "", f"{m.target.name} does not hold a magnitude of {m.source.name} for each piece"

    def _ordering(self, o: Ordering, known: set[Var]) -> Iterator[Fault]:
        yield from self._known(*o.sources, *o.targets, *((o.places,) if o.places is not None else ()), *o.scratch)
        yield from self._names((o.row, o.start, o.target_start), known, "a row")

    def _scatter(self, s: Scatter, around: set[Var]) -> Iterator[Fault]:
        known = set(around)
        yield from self._loops(s.loops, known)
        outer = around | {x.variable for x in s.loops[: s.outer]}
        if not 0 <= s.outer <= len(s.loops):
            yield PARTS, "", f"{s.outer} of {len(s.loops)} loops choose the places"
        for x in (*s.starts, *s.tests):
            if not isinstance(x.node, Expr):
                yield from self._nodes([x.node], outer)
                if not isinstance(x.variable, Var):
                    yield PARTS, "", "a place has no name"
                    continue
                known.add(x.variable)
            else:
                yield from self._names((x.node,), known, "a test")
            yield from self._names((x.lower, x.upper), known, "the ends of places")
        for b in s.targets:
            yield from self._written(b, s.index, known)
        yield from self._nodes(s.nodes, known)
        if len(s.targets) != len(s.op.results):
            yield PARTS, "", f"{s.op.name} has {len(s.op.results)} results, {len(s.targets)} are folded into"

    def _selection(self, s: Selection, around: set[Var]) -> Iterator[Fault]:
        known = set(around)
        yield from self._loops(s.loops, known)
        yield from self._nodes([s.node], known)
        yield from self._loops(s.window, known)
        yield from self._names((c.expression for c in s.tests), known, "a test")
        yield from self._known(s.operand)
        yield from self._written(s.target, s.index, known)

    def _transform(self, t: Transform, around: set[Var]) -> Iterator[Fault]:
        known = set(around)
        if t.column is not None:
            yield from self._names((t.column,), known, "the first column")
        for block in (t.source, t.target):
            yield from self._block(block, known, "the lines")
        yield from self._loops((t.lanes,), known)
        if t.element in known or not isinstance(t.element, Var):
            yield PARTS, "", "the elements of a line have no variable of their own"
        yield from self._known(*t.scratch, *((t.roots,) if t.roots is not None else ()))

    def _matrices(self, s: MatrixStep, around: set[Var]) -> Iterator[Fault]:
        for m in (*s.sources, *s.targets):
            yield from self._block(m.block, around, f"a matrix of {s.kind}")
            if m.rows < 1 or m.columns < 1:
                yield PARTS, "", f"a matrix of {m.rows} rows and {m.columns} columns"
            own = {m.row, m.column}
            if len(own) < 2 or not all(isinstance(v, Var) for v in own) or own & around:
                yield PARTS, "", "the rows and columns of a matrix have no variables of their own"
        yield from self._known(*s.scratch)
        if not s.sources or not s.targets or not s.scratch:
            counts = f"{len(s.sources)} matrices, {len(s.targets)} results and {len(s.scratch)} rooms to work in"
            yield PARTS, "", f"{s.kind} has {counts}"


def _goes_on(c: Contract) -> bool:
    """Whether the right factor's panels go on from one iteration of each level to the next."""
    size = c.k * c.columns
    for count, _, step in reversed(c.levels):
        if step != size:
            return False
        size *= count
    return True
