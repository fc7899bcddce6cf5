"""Where a mask makes what a stage computes neutral: derived from the intervals of its values, not from the form of the program.

    scores + (0 where i >= j else -1e9)        with |q|, |k| <= 2^12: nowhere above 2^22, and below -9e8 where i < j
    maximum over j                             what lies below -9e8 changes nothing: some j has i >= j
    exp(scores - maximum)                      is +0 where i < j
    sum over j, product with v[j]              adds 0 there, as v is finite

Intervals hold while the inputs are within limits, which a pass over them finds out at run time (`tiling.lower.masks`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod

import numpy as np

from hlo.access import Condition
from hlo.module import Op, Value
from hlo.registry import Fold, SumOfProducts
from hlo.types import ElementType, default_storage_range
from indexing.expr import Const, Expr, Interval, Var
from tiling.elements.folds import combined_function, is_neutral
from tiling.elements.ranges import Order, Span, hull, rounded, span_of, span_of_sum
from tiling.loops.affine import never_empty
from tiling.loops.domains.conditions import bounds_by, is_hole, translated
from tiling.loops.domains.split_domain import where_all_hold
from tiling.loops.element_ir import (
    Choose,
    Load,
    Node,
    Renamer,
    Scalar,
    Test,
    all_nodes,
    loads,
    node_variables,
)
from tiling.loops.ir import Loop
from tiling.loops.same_node import same_node
from tiling.lower.comparisons import Comparisons
from tiling.lower.member import Member

__all__ = [
    "MOST_READ_CONDITIONS",
    "Analysis",
    "Fact",
    "Facts",
    "Knowledge",
    "Reading",
    "Sheet",
    "inputs_of",
    "is_never_empty",
]

Limits = Mapping[Value, float | None]
"""An input value -> the greatest magnitude of its elements, None where it may be anything."""


@dataclass(frozen=True, eq=False)
class Fact:
    """What holds for a value that another kernel makes, while others are within limits: that its element at `index` is zero
    where one of the conditions `zero` fails; and the span of all elements.

    A fusion with the op `reader` does not know: it may still become one that makes the value, and all that the fact follows from.
    """

    index: tuple[Var, ...]
    zero: tuple[Condition, ...]
    span: Span | None
    limits: Mapping[Value, float]
    reader: Op | None = None


Facts = Mapping[Value, Fact]


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What holds for a stage's value: its span; where it is zero (one of the conditions fails); what a fold need not read."""

    span: Span | None
    zero: tuple[Condition, ...] = ()
    neutral: tuple[Condition, ...] = ()


NOTHING = Knowledge(None)
FALSE, TRUE = Span(0.0, 0.0), Span(1.0, 1.0)


def is_never_empty(conditions: Sequence[Condition], variable: Var, extent: int, ranges: Mapping[Var, Interval]) -> bool:
    """True when, wherever the other variables are, some value of the variable in [0, extent - 1] meets all conditions."""
    if any(bounds_by(c, variable) is None for c in conditions):
        return False
    (inside,) = where_all_hold([Loop(variable, Const(0), Const(extent - 1), extent)], conditions, ranges).loops
    return never_empty(inside.lower, inside.upper, ranges)


def inputs_of(members: Sequence[Member], facts: Facts | None = None) -> list[Value]:
    """The float values that a fusion's stages load and do not make, in first-seen order; then those that facts ask for."""
    made = {v for m in members for v in m.stage.values}
    found: dict[Value, None] = {}
    for m in members:
        for load in loads((*m.nodes, *m.inits)):
            element = load.value.tensor.element
            if load.value not in made and isinstance(element, ElementType) and element.is_float:
                found[load.value] = None
    known = _facts_about(members, facts) if facts else {}
    return list(dict.fromkeys((*found, *(v for f in known.values() for v in f.limits))))


def _facts_about(members: Sequence[Member], facts: Facts) -> dict[Value, Fact]:
    """The facts about what a fusion's members load and do not make: limits are of what is there before it runs."""
    ops = {m.stage.op for m in members}
    made = {v for m in members for v in m.stage.values}
    read = {x.value: facts[x.value] for m in members for x in m.reads if x.value in facts and x.value not in made}
    return {v: f for v, f in read.items() if f.reader not in ops and made.isdisjoint(f.limits)}


MOST_READ_CONDITIONS = 128
"""On which a fusion's members may depend, taken together: fusions that gain from masks have some twenty, and a scan written out
in slices and pads doubles them with each of its steps."""


class Reading:
    """What the members of a fusion read, and on which conditions: all of an analysis that does not depend on limits.

    A condition of a member has a number there, and a set of conditions is an integer with their bits. `is_cut` says that there
    are more than MOST_READ_CONDITIONS: then only the first members were looked at. With `comparisons`, those with numbers known
    at run time are conditions, too. `facts` tell of values that the members load and do not make.
    """

    def __init__(
        self, members: Sequence[Member], ranges: Mapping[Var, Interval], sheets: dict[Hashable, Sheet] | None = None,
        comparisons: Comparisons | None = None, facts: Facts | None = None,
    ) -> None:  # fmt: skip
        self.members, self.ranges, self.comparisons = members, ranges, comparisons
        self.facts: Facts = _facts_about(members, facts) if facts else {}
        self.member_of: dict[Value, Member] = {}
        self.conditions: dict[Value, tuple[Condition, ...]] = {}  # on which a value that a member makes depends
        self.sheets: dict[Value, Sheet] = {}
        self._translations: dict[tuple[Value, tuple[Expr, ...]], dict[Condition, Condition]] = {}
        self.is_cut = False
        count = 0
        for m in members:
            if len(m.stage.values) == 1:
                made = self.sheets[m.stage.values[0]] = self._sheet(m, {} if sheets is None else sheets)
                count += len(made.conditions)
                self.is_cut = count > MOST_READ_CONDITIONS
                if self.is_cut:
                    break
            for v in m.stage.values:
                self.conditions[v] = self.sheets[v].passed_on if v in self.sheets else ()
                self.member_of[v] = m

    def _sheet(self, m: Member, known: dict[Hashable, Sheet]) -> Sheet:
        """The member's sheet: that of an earlier fusion, where it has the same loops and reads the same of the same members."""
        if m.shape is None:
            return Sheet(m, self)
        reads = dict.fromkeys(x.value for x in loads(m.nodes))
        key = (m.shape, tuple([self.sheets.get(v) if v in self.member_of else self.facts.get(v, False) for v in reads]))
        if key not in known:
            known[key] = Sheet(m, self)
        return known[key]

    def conditions_in(self, nodes: Sequence[Node]) -> list[Condition]:
        """The conditions in some nodes, and those that what they read depends on, in their own loops' variables."""
        found: dict[Condition, None] = {}
        for n in all_nodes(nodes):
            if isinstance(n, (Choose, Test)) and not (isinstance(n, Choose) and n.runtimes):
                found.update(dict.fromkeys(n.conditions))
            elif isinstance(n, Load):
                found.update(dict.fromkeys(self.translate(c, n) for c in self.conditions.get(n.value, ())))
                found.update(dict.fromkeys(self.where_zero(n)))
            elif (compared := self.compared(n)) is not None:
                found[compared] = None
        return list(found)

    def compared(self, n: Node) -> Condition | None:
        """The condition of a comparison with a number known at run time, where those count."""
        return None if self.comparisons is None else self.comparisons.condition(n)

    def translate(self, c: Condition, load: Load) -> Condition:
        """A condition on a member's loops as one on the loops of what loads it."""
        key = (load.value, load.index)
        known = self._translations.get(key)
        if known is None:
            at = self.member_of[load.value].at(load.index, self.ranges)
            parts: dict[Expr, Expr] = {}
            known = {x: translated(x, at, self.ranges, parts) for x in self.conditions[load.value]}
            if self.comparisons is not None:
                known = {x: self.comparisons.moved(y, at) for x, y in known.items()}
            self._translations[key] = known
        return known[c]

    def where_zero(self, load: Load) -> tuple[Condition, ...]:
        """On the loops of what loads a value: the conditions of which one fails where a fact says that it is zero."""
        fact = self.facts.get(load.value)
        if fact is None or not fact.zero:
            return ()
        at = dict(zip(fact.index, load.index, strict=True))
        return tuple([translated(c, at, self.ranges) for c in fact.zero])


class Sheet:
    """A member's nodes in a row, operands first, and which of its conditions each of them depends on."""

    def __init__(self, m: Member, reading: Reading) -> None:
        self.member, self.reading = m, reading
        semantics = m.stage.op.definition.semantics
        element = m.stage.values[0].tensor.element
        self.is_number = isinstance(element, ElementType) and (element.is_float or element.is_integer)
        self.conditions = tuple(reading.conditions_in(m.nodes)) if self.is_number else ()
        self.passed_on = () if isinstance(semantics, (Fold, SumOfProducts)) else self.conditions
        self.bit = {c: 1 << k for k, c in enumerate(self.conditions)}
        self.order = Order(m.nodes) if self.is_number else Order(())
        self.below: dict[int, dict[int, int]] = {}  # for a place that loads a member's value: own bit -> bits over there
        self.zero: dict[int, int] = {}  # for a place that loads a value: own bits; by a fact it is zero where one of them fails
        self.depends: list[int] = []
        read = dict.fromkeys(n.value for n in self.order.nodes if isinstance(n, Load))
        self.inputs = {v: None for v in read if v not in reading.member_of}
        for f in [reading.facts[v] for v in self.inputs if v in reading.facts]:
            self.inputs.update(dict.fromkeys(f.limits))
        self.below_values = [v for v in read if v in reading.member_of]
        for k, n in enumerate(self.order.nodes):
            bits = 0
            for j in self.order.operands[k]:
                bits |= self.depends[j]
            if isinstance(n, Choose):
                for c in n.conditions:
                    bits |= self.bit.get(c, 0)
            elif (compared := reading.compared(n)) is not None:
                bits |= self.bit.get(compared, 0)
            elif isinstance(n, Load):
                bits |= self._below(k, n) if n.value in reading.member_of else 0
                for c in reading.where_zero(n):
                    self.zero[k] = self.zero.get(k, 0) | self.bit.get(c, 0)
                bits |= self.zero.get(k, 0)
            self.depends.append(bits)
        self._peaks: dict[int, Var | None] = {}
        self.known: dict[Hashable, Knowledge] = {}  # by what is asked, its inputs' limits, and what is known of members below

    def _below(self, place: int, load: Load) -> int:
        """The conditions that a loaded member's value depends on, and what they are called there."""
        made = self.reading.sheets.get(load.value)
        if made is None:
            return 0
        self.inputs.update(made.inputs)
        there: dict[int, int] = {}
        for c in made.passed_on:
            bit = self.bit.get(self.reading.translate(c, load))
            if bit is not None:
                there[bit] = there.get(bit, 0) | made.bit[c]
        self.below[place] = there
        bits = 0
        for bit in there:
            bits |= bit
        return bits

    def peak(self, place: int) -> Var | None:
        """For a difference x - y where y is a maximum in memory: the loop along which y is the greatest x, or None."""
        if place not in self._peaks:
            x, y = (self.order.nodes[k] for k in self.order.operands[place])
            self._peaks[place] = _peak(self.reading, x, y)
        return self._peaks[place]


class Analysis:
    """What is known of each member's value while the inputs are within `limits`.

    `within` is an analysis for smaller limits: wider ones leave no more zero or neutral, so nothing else is asked about.
    Where only the limits of the inputs `changed` differ, all that does not depend on them is taken from there.
    """

    def __init__(
        self, reading: Reading, limits: Limits, within: Analysis | None = None, changed: Set[Value] | None = None
    ) -> None:
        self.reading, self.ranges, self.limits = reading, reading.ranges, limits
        self.known: dict[Value, Knowledge] = {}
        self._spans: dict[tuple[Value, int, int], list[Span | None]] = {}
        self._within, self._changed = within, changed

    @classmethod
    def whole(cls, reading: Reading, limits: Limits) -> Analysis:
        """The analysis of all members."""
        made = cls(reading, limits)
        for _ in made.signature():
            pass
        return made

    def of(self, m: Member) -> Knowledge:
        return self.known[m.stage.values[0]]

    def signature(self) -> Iterator[tuple[tuple[Condition, ...], tuple[Condition, ...]]]:
        """(where it is zero, what a fold need not read) of each value that the members make, found as far as is asked for."""
        for m in self.reading.members:
            found = self._known_of(m)
            for v in m.stage.values:
                self.known[v] = found
                yield found.zero, found.neutral

    def _known_of(self, m: Member) -> Knowledge:
        sheet = self.reading.sheets.get(m.stage.values[0])
        if sheet is None or not sheet.is_number:
            return NOTHING
        if self._within is not None and self._is_there(sheet):
            return self._within.of(m)
        asked = self._asked(sheet)
        key = (asked, tuple([self.limits.get(v) for v in sheet.inputs]), tuple([self.known[v] for v in sheet.below_values]))
        if key not in sheet.known:
            sheet.known[key] = self._member(sheet, asked)
        return sheet.known[key]

    def _asked(self, sheet: Sheet) -> tuple[Condition, ...]:
        """The conditions that may still leave something zero or neutral."""
        if self._within is None:
            return sheet.conditions
        before = self._within.of(sheet.member)
        return tuple(dict.fromkeys((*before.zero, *before.neutral)))

    def _is_there(self, sheet: Sheet) -> bool:
        """True for a member that has the same spans in the analysis `within`."""
        return self._changed is not None and self._changed.isdisjoint(sheet.inputs)

    # ------------------------------------------------------------ one member

    def _member(self, sheet: Sheet, conditions: Sequence[Condition]) -> Knowledge:
        m = sheet.member
        element = m.stage.values[0].tensor.element
        assert isinstance(element, ElementType)
        semantics = m.stage.op.definition.semantics
        if isinstance(semantics, Fold):
            return self._fold(sheet, conditions, element)
        if isinstance(semantics, SumOfProducts):
            return self._contraction(sheet, conditions, element)
        zero = tuple(c for c in conditions if (s := self._where(sheet, (c,), False)) is not None and s.is_zero)
        return Knowledge(self._where(sheet, (), False), zero)

    def _where(self, sheet: Sheet, conditions: Sequence[Condition], holds: bool, root: int = 0) -> Span | None:
        """The span of a member's node where all of some conditions hold, or fail."""
        bits = 0
        for c in conditions:
            bits |= sheet.bit[c]
        return self._evaluate(sheet, bits if holds else 0, 0 if holds else bits)[sheet.order.roots[root]]

    def _evaluate(self, sheet: Sheet, true: int, false: int) -> list[Span | None]:
        """The spans of all nodes of a member where the conditions with these bits hold, and those fail."""
        value = sheet.member.stage.values[0]
        if self._within is not None and self._is_there(sheet):
            return self._within._evaluate(sheet, true, false)
        known = self._spans.get((value, true, false))
        if known is not None:
            return known
        asked = true | false
        spans = list(self._evaluate(sheet, 0, 0)) if asked else []
        for k, n in enumerate(sheet.order.nodes):
            if not asked:
                spans.append(None)
            elif not sheet.depends[k] & asked:
                continue
            if isinstance(n, Load):
                spans[k] = self._load(sheet, k, n, true, false)
            else:
                spans[k] = self._node(sheet, k, n, spans, true, false)
        self._spans[value, true, false] = spans
        return spans

    def _node(self, sheet: Sheet, place: int, n: Node, spans: Sequence[Span | None], true: int, false: int) -> Span | None:
        operands = [spans[k] for k in sheet.order.operands[place]]
        if isinstance(n, Choose):
            bits = [sheet.bit.get(c, 0) for c in n.conditions]
            if any(b & false for b in bits):
                return operands[-1]
            return operands[-2] if all(b & true for b in bits) else hull(operands[-2], operands[-1])
        compared = self.reading.compared(n)
        if compared is not None and sheet.bit.get(compared, 0) & (true | false):
            return FALSE if sheet.bit[compared] & false else TRUE
        return span_of(n, operands, self.ranges, lambda: sheet.peak(place))

    def _load(self, sheet: Sheet, place: int, load: Load, true: int, false: int) -> Span | None:
        made = self.known.get(load.value)
        if made is not None:
            there = sheet.below.get(place)
            found = made.span
            if there:
                over = [0, 0]
                for bit, bits in there.items() if (true | false).bit_count() > 1 else self._one(there, true | false):
                    over[0] |= bits if bit & true else 0
                    over[1] |= bits if bit & false else 0
                if over != [0, 0]:
                    below = self.reading.sheets[load.value]
                    found = self._evaluate(below, *over)[below.order.roots[0]]
            return self._seen_by(load, found)
        fact = self.reading.facts.get(load.value)
        if fact is not None and self._holds(fact):
            if sheet.zero.get(place, 0) & false:
                return FALSE
            if fact.span is not None:
                return self._along_loop(fact.span, fact.index, load)
        element = load.value.tensor.element
        if not isinstance(element, ElementType):
            return None
        if element.is_boolean:
            return Span(0.0, 1.0)
        if element.is_integer:
            least, greatest = default_storage_range(element)
            return Span(float(least), float(greatest))
        limit = self.limits.get(load.value)
        return None if limit is None or not element.is_float else Span(-limit, limit)

    def _holds(self, fact: Fact) -> bool:
        """Whether the limits are those of a fact, or narrower."""
        return all((limit := self.limits.get(v)) is not None and limit <= most for v, most in fact.limits.items())

    def _one(self, there: Mapping[int, int], bit: int) -> Sequence[tuple[int, int]]:
        return ((bit, there[bit]),) if bit in there else ()

    def _fold(self, sheet: Sheet, conditions: Sequence[Condition], element: ElementType) -> Knowledge:
        m = sheet.member
        body = m.stage.op.regions[0]
        function = combined_function(body)
        if function is None or len(m.nodes) != 1 or not isinstance(m.inits[0], Scalar) or not element.is_float:
            return NOTHING
        start = m.inits[0]
        mine = [(c, r) for c in conditions for r in m.reduction if bounds_by(c, r.variable) is not None]
        if function in ("maximum", "minimum") and is_neutral(function, start.value, start.element):
            return self._extremum(sheet, mine, 1.0 if function == "maximum" else -1.0)
        if function != "add" or np.isnan(start.value) or (start.value == 0 and np.signbit(start.value)):
            return NOTHING
        neutral = tuple(c for c, _ in mine if (s := self._where(sheet, (c,), False)) is not None and s.is_zero)
        term = self._where(sheet, (), False)
        count = prod(x.extent for x in m.reduction)
        total = None if term is None else span_of_sum(term, count, element, frozenset(x.variable for x in m.reduction))
        begin = float(start.value)
        span = None if total is None else rounded(total.low + begin, total.high + begin, element)
        return Knowledge(span, (), neutral)

    def _extremum(self, sheet: Sheet, mine: Sequence[tuple[Condition, object]], sign: float) -> Knowledge:
        """A maximum (sign 1) or minimum (-1): neutral is what lies beyond some element that is always there."""

        def best(s: Span) -> float:
            return s.low if sign > 0 else -s.high

        def worst(s: Span) -> float:
            return s.high if sign > 0 else -s.low

        m, whole = sheet.member, self._where(sheet, (), False)
        if whole is None:
            return NOTHING
        chosen = [c for c, _ in mine]
        while chosen:
            held = self._where(sheet, chosen, True)
            if held is None or not any(is_never_empty(chosen, r.variable, r.extent, self.ranges) for r in m.reduction):
                chosen = []
                break
            kept = [
                c for c in chosen if (s := self._where(sheet, (c,), False)) is not None and worst(s) < best(held)
            ]
            if kept == chosen:
                low, high = (held.low, whole.high) if sign > 0 else (whole.low, held.high)
                return Knowledge(Span(low, high), (), tuple(chosen))
            chosen = kept
        return Knowledge(Span(whole.low, whole.high))

    def _contraction(self, sheet: Sheet, conditions: Sequence[Condition], element: ElementType) -> Knowledge:
        m = sheet.member
        numbers = self.reading.comparisons
        mine = [
            c for c in conditions
            if is_hole(c) or any(bounds_by(c, r.variable) is not None for r in m.reduction)
            or (numbers is not None and numbers.is_among(c))
        ]  # fmt: skip
        neutral = tuple(c for c in mine if (s := self._product(sheet, (c,), element)) is not None and s.is_zero)
        term = self._product(sheet, (), element)
        if term is None or not element.is_float:
            return Knowledge(None, (), neutral)
        return Knowledge(span_of_sum(term, prod(x.extent for x in m.reduction), element), (), neutral)

    def _product(self, sheet: Sheet, fails: Sequence[Condition], element: ElementType) -> Span | None:
        a, b = (self._where(sheet, fails, False, k) for k in range(2))
        if a is None or b is None or float("inf") in (a.magnitude, b.magnitude):
            return None
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return rounded(min(corners), max(corners), element)

    def _seen_by(self, load: Load, span: Span | None) -> Span | None:
        """A member's span with the loop `along` which something is attained as the loop of what loads it."""
        if span is None or span.attains is None:
            return span
        member = self.reading.member_of[load.value]
        whole = [x.variable if s.size == s.extent else None for x, s in zip(member.loops, member.box or (), strict=True)]
        return self._along_loop(span, whole, load)

    def _along_loop(self, span: Span, dims: Sequence[Var | None], load: Load) -> Span:
        """The span of a value with these dimensions, in the loops of what loads it; None for those of which a part is there."""
        if span.attains is not None and span.along in dims:
            k = dims.index(span.along)
            e = load.index[k]
            if isinstance(e, Var) and self.ranges[e] == Interval(0, load.value.shape[k] - 1):
                return Span(span.low, span.high, span.attains, e)
        return Span(span.low, span.high)


def _peak(reading: Reading, x: Node, y: Node) -> Var | None:
    """The loop along which y, a maximum in memory, is the greatest x; None where it is something else."""
    if not isinstance(y, Load) or y.value not in reading.member_of:
        return None
    m, ranges = reading.member_of[y.value], reading.ranges
    if not isinstance(m.stage.op.definition.semantics, Fold) or combined_function(m.stage.op.regions[0]) != "maximum":
        return None
    (start,) = m.inits
    reductions = [r for r in m.reduction if r.extent > 1]
    if len(reductions) != 1 or not isinstance(start, Scalar) or not is_neutral("maximum", start.value, start.element):
        return None
    r = reductions[0]
    at: dict[Var, Expr] = {**m.at(y.index, ranges), **{q.variable: Const(0) for q in m.reduction if q is not r}}
    inside = node_variables(x, {})
    for v in sorted(inside, key=lambda v: v.name):
        if ranges.get(v) != ranges[r.variable] or any(v in e.variables for e in y.index):
            continue
        if same_node(x, Renamer({**at, r.variable: v}, ranges, {}).node(m.nodes[0])):
            return v
    return None
