"""Masks as loop bounds: what a mask makes neutral is left out while the inputs are within limits found to allow it.

    for j in [0, n]: m = max(m, s[j] + (0 if j <= i else -1e9))     ->   for j in [0, i]: m = max(m, s[j])
    out[i] = sum over j in [0, n] of p[i, j] v[j]                    ->   sum over j in [0, last row of the tile]
    s[i, j] = sum over d of q[i, d] k[j, d] for j in [0, n]          ->   for j in [0, last row of the tile]

`tiling.lower.neutral` says where a stage is neutral. Here that becomes bounds, from the last stage to the first: a stage computes
what its readers still read. All of it holds while a flag is 1, which says that the inputs are within the limits; otherwise every
loop runs over everything. The result is the same: it has the same bits where loops are cut at the same places anyway (but for the
sign of a zero that an underflow made), and else sums are associated otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import eq

from hlo.access import Condition
from hlo.errors import Declined
from hlo.module import Value
from hlo.registry import SumOfProducts
from hlo.types import ElementType
from indexing.expr import Expr, Interval, Var, evaluate, interval, maximum, minimum, simplify, substitute
from tiling.elements.ranges import greatest_of
from tiling.loops.affine import linear, never_empty, when
from tiling.loops.buffers import make_buffer
from tiling.loops.domains.conditions import bounds_by, is_hole, translated
from tiling.loops.element_ir import Choose, Load, Test, all_nodes, loads
from tiling.loops.ir import Buffer, Contract, Flag, Loop, Measure, Nest, Phase, Scope, Skip, Step
from tiling.loops.names import Names
from tiling.loops.variables import counted
from tiling.lower.comparisons import Comparisons
from tiling.lower.member import Member
from tiling.lower.neutral import MOST_READ_CONDITIONS, Analysis, Facts, Knowledge, Reading, Sheet, inputs_of
from tiling.passes.unrolling.write_out_sums import is_window_over_an_edge
from tiling.passing import runs

__all__ = ["Masks", "Note", "find_limits", "least_limits", "may_be_masked", "measures", "widest"]

PIECES = 64
LEAST_PIECE_ELEMS = 1 << 14
MOST_POWER = 120
MOST_CONDITIONS = 2  # that a nest leaves something out for

Ends = tuple[Expr, Expr]
Note = tuple[Mapping[Var, Ends], Sequence[Condition], Sequence[Load]]


def may_be_masked(members: Sequence[Member], facts: Facts) -> bool:
    """True when some reduction reads what a condition on indices chooses, here or in other kernels: a cheap test before the
    analysis.

    What a window reads over an edge is no mask: its few products are written out, and bounds would make loops of them.
    """
    if not any(m.reduction for m in members) or any(len(m.stage.values) != 1 for m in members):
        return False
    if facts and any(x.value in facts for m in members if m.reduction for x in m.reads):
        return True
    return any(_chooses(m) and not _is_window(m) for m in members)


def _chooses(m: Member) -> bool:
    """Whether a condition on indices chooses what a member reads."""
    shape = m.shape
    if shape is None:
        return any(isinstance(n, (Choose, Test)) for n in all_nodes(m.nodes))
    if shape.chooses is None:
        shape.chooses = any(isinstance(n, (Choose, Test)) for n in all_nodes(m.nodes))
    return shape.chooses


def _is_window(m: Member) -> bool:
    shape = m.stage.values[0].shape
    if not m.reduction or not isinstance(m.stage.op.definition.semantics, SumOfProducts) or not shape or shape[-1] < 2:
        return False
    return runs("write_out_sums") and is_window_over_an_edge(m.index[-1].variables, m.reduction, m.nodes)


def find_limits(
    members: Sequence[Member], ranges: Mapping[Var, Interval], sheets: dict[Hashable, Sheet] | None = None,
    comparisons: Comparisons | None = None, facts: Facts | None = None,
) -> dict[Value, float | None] | Declined | None:  # fmt: skip
    """For each input the greatest magnitude that leaves as much neutral as tiny inputs would; None where nothing is.

    Declined where there are too many conditions to look at.

    The limits are powers of two; an input that may be anything has the limit None.
    """
    reading = Reading(members, ranges, sheets, comparisons, facts)
    if reading.is_cut:
        return Declined(f"it depends on more than {MOST_READ_CONDITIONS} conditions")
    best = Analysis.whole(reading, least_limits(reading))
    wanted = [(k.zero, k.neutral) for k in best.known.values()]
    if not any(_may_leave_out(m, best.of(m)) for m in members):
        return None
    return dict(widest(best, lambda made: all(map(eq, made.signature(), wanted))).limits)


def least_limits(reading: Reading) -> dict[Value, float | None]:
    """1 for each input, or the greatest number of its type where that is less: the limits that leave out the most."""
    return {v: min(1.0, _most(v)) for v in inputs_of(reading.members, reading.facts)}


def widest(best: Analysis, leaves_as_much: Callable[[Analysis], bool]) -> Analysis:
    """The analysis within the widest limits that leave as much as `best`, whose are the least ones: first a power of two for all
    inputs, then no limit for those that need none."""
    reading = best.reading
    inputs = [*best.limits]

    def common(power: int) -> dict[Value, float | None]:
        return {v: min(2.0**power, _most(v)) for v in inputs}

    low, high = 0, MOST_POWER
    while low < high:
        middle = high if high == MOST_POWER else (low + high + 1) // 2  # most fusions allow the widest limits, or nearly none
        tried = Analysis(reading, common(middle), best)
        if leaves_as_much(tried):
            low, best = middle, tried
        else:
            high = middle - 1
    # One input after the other is given up as far as it goes; a group of them at once where it goes for all.
    groups = [inputs] if inputs else []
    while groups:
        group = groups.pop()
        free: dict[Value, float | None] = dict.fromkeys(group)
        tried = Analysis(reading, {**best.limits, **free}, best, free.keys())
        if leaves_as_much(tried):
            best = tried
        elif len(group) > 1:
            half = len(group) // 2
            groups += [group[half:], group[:half]]
        else:
            (v,) = group
            tried = Analysis(reading, {**best.limits, v: _most(v)}, best, free.keys())
            best = tried if leaves_as_much(tried) else best
    return best


def _may_leave_out(m: Member, known: Knowledge) -> bool:
    """Whether what is known of a member may bound a loop, its own or another member's.

    A product over a window is neutral on its padding, which bounds no loop of a micro-kernel: its depth is one run of several
    loops, and its columns end where its readers' do. Holes are different: residues leave them out. So are groups of several
    channels, which go lane by lane in loops of their own (32 groups of 8 channels on 28 x 28: 1.3 times as long without).
    """
    groups = int(m.stage.op.attributes.get("feature_group_count", 1))
    in_lanes = groups > 1 and sum(x.extent > 1 for x in m.reduction) > 2
    if known.zero or in_lanes or not isinstance(m.stage.op.definition.semantics, SumOfProducts) or len(m.reduction) < 2:
        return bool(known.zero or known.neutral)
    return any(is_hole(c) for c in known.neutral)


def _most(v: Value) -> float:
    element = v.tensor.element
    assert isinstance(element, ElementType)
    return greatest_of(element)


@dataclass(frozen=True)
class _Reading:
    """What a member reads of a value: per dimension its ends, or None for all; and what its own nest leaves out."""

    load: Load
    ends: tuple[Ends | None, ...]
    skipped: frozenset[Condition]


class Masks:
    """The bounds of one fusion's members, found from the last one to the first."""

    def __init__(
        self, members: Sequence[Member], ranges: dict[Var, Interval], tiles: Sequence[tuple[Var, int]],
        limits: dict[Value, float | None], stored: frozenset[Value], names: Names,
    ) -> None:  # fmt: skip
        """`limits` are of all inputs that `find_limits` names."""
        self.members, self.ranges, self.names = members, ranges, names
        self.tiles = {v for v, _ in tiles}
        self.reading = Reading(members, ranges, names.sheets, None, names.facts)
        self.analysis = Analysis.whole(self.reading, limits)
        self.limits = limits
        self.stored = stored | set(members[-1].stage.values)
        self.flag = Var("tame")
        ranges[self.flag] = Interval(0, 1)
        self.readings: dict[Value, list[_Reading]] = {}
        self.is_used = False  # whether some loop is bounded: without one the inputs need not be looked at
        self.noted: list[Note] = []  # what was told to `note`, in order
        self._known_ends: dict[tuple[Member, Loop], Ends | None] = {}

    @property
    def is_empty(self) -> bool:
        return not any(k.zero or k.neutral for k in self.analysis.known.values())

    # ------------------------------------------------------------ what a member may leave out

    def conditions(self, m: Member, variable: Var) -> tuple[Condition, ...]:
        """Those where a member is neutral (or zero) and that bound the variable."""
        known = self.analysis.of(m)
        mine = known.neutral if m.reduction else known.zero
        return tuple(c for c in mine if bounds_by(c, variable) is not None)

    def ends(self, m: Member, loop: Loop, conditions: Sequence[Condition] | None = None) -> Ends | None:
        """The loop's first and last value over all of a task's other loops; None where that is all of them."""
        if conditions is not None:
            return self._ends(m, loop, conditions)
        if (m, loop) not in self._known_ends:
            self._known_ends[m, loop] = self._ends(m, loop, self.conditions(m, loop.variable))
        return self._known_ends[m, loop]

    def _ends(self, m: Member, loop: Loop, conditions: Sequence[Condition]) -> Ends | None:
        lower, upper = loop.lower, loop.upper
        around = [x for x in (*m.loops, *m.reduction) if x is not loop]
        for c in conditions:
            first, last = bounds_by(c, loop.variable) or (None, None)
            if first is not None and (least := self._extreme(first, around, False)) is not None:
                lower = simplify(maximum(lower, least), self.ranges)
            if last is not None and (most := self._extreme(last, around, True)) is not None:
                upper = simplify(minimum(upper, most), self.ranges)
        if lower is loop.lower and upper is loop.upper:
            return None
        return (lower, upper) if never_empty(lower, upper, self.ranges) else None

    def _extreme(self, e: Expr, loops: Sequence[Loop], largest: bool) -> Expr | None:
        """The least or the largest value of an expression over some loops; None where that does not follow."""
        inside = [x for x in loops if x.variable in e.variables]
        parts = linear(e, [x.variable for x in inside])
        if parts is None:
            return None
        at = {x.variable: x.upper if (k > 0) is largest else x.lower for x, k in zip(inside, parts[1], strict=True)}
        found = simplify(substitute(e, at), self.ranges)
        return found if set(found.variables) <= self.tiles else None

    # ------------------------------------------------------------ what is still read

    def grows_with(self, tile: Var) -> bool:
        """True when tasks get larger with a tile number: then the last ones are taken first, and no thread waits long."""
        for m in self.members:
            for loop in m.reduction:
                ends = self.ends(m, loop)
                if ends is None:
                    continue
                length = simplify(ends[1] - ends[0], self.ranges)
                first = dict.fromkeys(length.variables, 0)
                if tile in first and evaluate(length, {**first, tile: self.ranges[tile].upper}) > evaluate(length, first):
                    return True
        return False

    def note(self, m: Member, bounded: Mapping[Var, Ends], skipped: Sequence[Condition] = (), whole: Sequence[Load] = ()) -> None:
        """A member reads with some loops in these ends, and not where `skipped` fails; the loads in `whole` read everything."""
        self.noted.append((bounded, skipped, whole))
        everything = {x.place for x in whole}
        for load in loads((*m.nodes, *m.inits)):
            ends = tuple(None if load.place in everything else self._read(m, e, bounded) for e in load.index)
            self.readings.setdefault(load.value, []).append(_Reading(load, ends, frozenset(skipped)))

    def _read(self, m: Member, e: Expr, bounded: Mapping[Var, Ends]) -> Ends | None:
        if not any(v in bounded for v in e.variables):
            return None
        loops = [Loop(v, *bounded[v], 1) for v in bounded]
        loops += [x for x in (*m.loops, *m.reduction) if x.variable not in bounded]
        ends = [self._extreme(e, loops, largest) for largest in (False, True)]
        return (ends[0], ends[1]) if ends[0] is not None and ends[1] is not None else None

    def needed(self, m: Member, but: frozenset[Condition] = frozenset()) -> dict[Var, Ends]:
        """The ends, along the member's loops, of what its readers need; not of those whose nests leave out `but` as well."""
        (v,) = m.stage.values
        if v in self.stored or m.box is None:
            return {}
        counted = [r for r in self.readings.get(v, []) if not but or self._seen(m, but, r.load) != r.skipped]
        found: dict[Var, Ends] = {}
        for k, (loop, span) in enumerate(zip(m.loops, m.box, strict=True)):
            ends = [r.ends[k] for r in counted]
            if None in ends or not ends:
                continue
            lower = simplify(minimum(*(e[0] for e in ends if e is not None)) - span.lower, self.ranges)
            upper = simplify(maximum(*(e[1] for e in ends if e is not None)) - span.lower, self.ranges)
            if interval(lower, self.ranges).lower >= 0 and never_empty(lower, upper, self.ranges):
                found[loop.variable] = (lower, upper)
        return found

    def _seen(self, m: Member, conditions: frozenset[Condition], load: Load) -> frozenset[Condition]:
        at = m.at(load.index, self.ranges)
        return frozenset(translated(c, at, self.ranges) for c in conditions)

    def told(self, m: Member) -> Hashable:
        """All that the steps of a reduction or contraction take from here: with the same, the same ones are emitted."""
        known = self.analysis.of(m)
        ends = [(r.variable, self.ends(m, r)) for r in m.reduction]
        return (
            tuple(ends), tuple(self.needed(m).items()), known.zero, known.neutral,
            tuple([self.reading.conditions.get(x.value) for x in m.reads]),
        )  # fmt: skip

    # ------------------------------------------------------------ nests

    def nest(self, m: Member, nest: Nest, innermost: Var | None) -> Nest:
        """The member's nest with what it may leave out; `innermost` is the loop that stays innermost when it is emitted."""
        present = set(self.reading.conditions_in(nest.each))
        for loop in m.reduction or m.loops[-1:]:
            conditions = self.conditions(m, loop.variable)
            mine = next((x for x in nest.loops if x.variable is loop.variable and x.kind is loop.kind), None)
            if not conditions or mine is None:
                continue
            left = tuple(c for c in conditions if c in present)  # the others bound the loop already
            if left and (loop.variable is not innermost or len(left) > MOST_CONDITIONS):
                continue
            skip = self._skip(m, mine, left, bool(nest.stores)) if left else None
            ends = self.ends(m, loop)
            self.note(m, {} if ends is None else {loop.variable: ends}, conditions)
            order = (*(x for x in nest.loops if x is not mine), mine)
            return Nest(order, nest.stores, nest.folds, True, skip) if skip is not None else nest
        unread = self._unread(m, nest, innermost)
        if unread:
            self.is_used = True
            (loop,) = m.loops[-1:]
            ends = self.ends(m, loop, unread)
            self.note(m, {} if ends is None else {loop.variable: ends}, unread)
            return Nest(nest.loops, nest.stores, nest.folds, True, Skip(self.flag, loop.variable, unread))
        needed = {} if m.reduction or nest.folds or len(m.stage.values) != 1 else self.needed(m)
        self.note(m, needed)
        if not needed:
            return nest
        self.is_used = True
        return Nest(tuple(self._limited(x, needed) for x in nest.loops), nest.stores, nest.folds, nest.order_is_fixed)

    def _unread(self, m: Member, nest: Nest, innermost: Var | None) -> tuple[Condition, ...]:
        """The conditions where no reader of an elementwise member reads it, if they are the same for all of them."""
        if m.reduction or nest.folds or len(m.stage.values) != 1 or not nest.loops or nest.loops[-1].variable is not innermost:
            return ()
        (v,) = m.stage.values
        readings = self.readings.get(v, [])
        if v in self.stored or not readings:
            return ()
        known = self.reading.conditions[v]
        first = readings[0]
        found = tuple(c for c in known if self.reading.translate(c, first.load) in first.skipped)
        same = all(r.skipped and self._seen(m, frozenset(found), r.load) == r.skipped for r in readings)
        bounds = all(bounds_by(c, nest.loops[-1].variable) is not None for c in found)
        return found if same and bounds and len(found) <= MOST_CONDITIONS else ()

    def _limited(self, loop: Loop, needed: Mapping[Var, Ends]) -> Loop:
        if loop.variable not in needed:
            return loop
        lower, upper = when(self.flag, needed[loop.variable], loop.extent)
        return Loop(loop.variable, lower, simplify(minimum(loop.upper, upper), self.ranges), loop.extent, loop.kind)

    def _skip(self, m: Member, loop: Loop, conditions: tuple[Condition, ...], stores: bool) -> Skip:
        """What the nest leaves out, with zeros where another reader needs them."""
        self.is_used = True
        (v,) = m.stage.values
        everything = (loop.lower, loop.upper)
        if not stores:
            return Skip(self.flag, loop.variable, conditions)
        if v in self.stored:
            return Skip(self.flag, loop.variable, conditions, everything)
        if all(self._seen(m, frozenset(conditions), r.load) == r.skipped for r in self.readings.get(v, [])):
            return Skip(self.flag, loop.variable, conditions)
        return Skip(
            self.flag, loop.variable, conditions, self.needed(m, frozenset(conditions)).get(loop.variable, everything)
        )

    # ------------------------------------------------------------ holes

    def are_zero(self, m: Member, holes: Sequence[Condition]) -> bool:
        """True when a member's products are zero wherever one of these conditions fails, while the flag is 1."""
        return set(holes) <= set(self.analysis.of(m).neutral)

    def either(self, tame: Sequence[Step], otherwise: Sequence[Step], tag: str) -> list[Step]:
        """Steps of which the first ones run while the flag is 1, the others while it is 0: in a loop of one or no iteration."""
        self.is_used = True
        made: list[Step] = []
        for steps, last, name in ((tame, self.flag - 1, "once"), (otherwise, -1 * self.flag, "instead")):
            once = counted(f"{name}_{self.flag}{tag}", 1, self.ranges, last=last)
            made += [replace(s, loops=(once, *s.loops)) for s in steps if isinstance(s, (Nest, Contract))]
        return made

    # ------------------------------------------------------------ the flag

    def measures(self, buffer_of: Mapping[Value, Buffer], tag: str) -> tuple[Phase, Flag, list[Buffer]]:
        """A phase that finds each limited input's greatest magnitude, the flag made of them, and the scratch that they need."""
        return measures(self.limits, self.flag, self.ranges, self.names, buffer_of, tag)


def measures(
    limits: Mapping[Value, float | None], flag: Var, ranges: dict[Var, Interval], names: Names,
    buffer_of: Mapping[Value, Buffer], tag: str,
) -> tuple[Phase, Flag, list[Buffer]]:  # fmt: skip
    """A phase that finds the greatest magnitude of each input that has a limit, the flag made of them, and their scratch."""
    sources = [(buffer_of[v], v, limit) for v, limit in limits.items() if limit is not None]
    elements = sum(b.size_elems for b, _, _ in sources)
    count = max(1, min(PIECES, elements // LEAST_PIECE_ELEMS, *(b.size_elems for b, _, _ in sources)))
    piece = Var(f"c_{tag}")
    ranges[piece] = Interval(0, count - 1)
    steps: list[Measure] = []
    found: list[tuple[Buffer, float]] = []
    for source, v, limit in sources:
        size = -(-source.size_elems // count)
        target = make_buffer(names.scratch(v, "most"), Scope.SHARED, source.element, (count,), (count,), (0,))
        found.append((target, limit))
        steps.append(Measure(source, target, piece, size))
    return Phase(((piece, count),), tuple(steps)), Flag(flag, tuple(found)), [b for b, _ in found]
