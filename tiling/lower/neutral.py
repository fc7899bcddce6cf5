"""Where a mask makes what a stage computes neutral: derived from the intervals of its values, not from the form of the program.

    scores + (0 where i >= j else -1e9)        with |q|, |k| <= 2^12: nowhere above 2^22, and below -9e8 where i < j
    maximum over j                             what lies below -9e8 changes nothing: some j has i >= j
    exp(scores - maximum)                      is +0 where i < j
    sum over j, product with v[j]              adds 0 there, as v is finite

Intervals hold while the inputs are within limits, which a pass over them finds out at run time (`tiling.lower.masks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hlo.access import Condition
from hlo.module import Value
from hlo.registry import Fold, SumOfProducts
from hlo.types import ElementType, default_storage_range
from indexing.expr import EVERYTHING, Const, Expr, Interval, Var, maximum, minimum
from tiling.elements.folds import combined_function, is_neutral
from tiling.elements.ranges import Evaluator, Span, rounded, span_of_sum
from tiling.loops.affine import linear, never_empty
from tiling.loops.conditions import is_hole, translated
from tiling.loops.element_ir import (
    Apply,
    Choose,
    IndexNode,
    Load,
    Node,
    Renamer,
    Scalar,
    Test,
    all_nodes,
    children,
    loads,
    node_variables,
    runtimes_of,
)
from tiling.lower.member import Member

__all__ = ["Analysis", "Knowledge", "bounds_by", "inputs_of", "is_never_empty", "same_node"]

Limits = Mapping[int, float | None]
"""id of an input value -> the greatest magnitude of its elements, None where it may be anything."""


@dataclass(frozen=True)
class Knowledge:
    """What holds for a stage's value: its span; where it is zero (one of the conditions fails); what a fold need not read.

    `conditions` are those that its elements depend on, where it is computed element by element.
    """

    span: Span | None
    zero: tuple[Condition, ...] = ()
    neutral: tuple[Condition, ...] = ()
    conditions: tuple[Condition, ...] = ()


NOTHING = Knowledge(None)


def bounds_by(c: Condition, variable: Var) -> tuple[Expr | None, Expr | None] | None:
    """The first and the last value of a variable where a condition holds (None: no such end); None where that is not a range."""
    parts = linear(c.expression, (variable,))
    if parts is None or parts[1][0] not in (1, -1):
        return None
    rest, (sign,) = parts
    low = None if c.lower <= EVERYTHING.lower else c.lower
    high = None if c.upper >= EVERYTHING.upper else c.upper
    if sign > 0:
        return (None if low is None else low - rest), (None if high is None else high - rest)
    return (None if high is None else rest - high), (None if low is None else rest - low)


def is_never_empty(conditions: Sequence[Condition], variable: Var, extent: int, ranges: Mapping[Var, Interval]) -> bool:
    """True when, wherever the other variables are, some value of the variable in [0, extent - 1] meets all conditions."""
    lowers: list[Expr] = [Const(0)]
    uppers: list[Expr] = [Const(extent - 1)]
    for c in conditions:
        ends = bounds_by(c, variable)
        if ends is None:
            return False
        lowers += [ends[0]] if ends[0] is not None else []
        uppers += [ends[1]] if ends[1] is not None else []
    return never_empty(maximum(*lowers), minimum(*uppers), ranges)


def inputs_of(members: Sequence[Member]) -> list[Value]:
    """The float values that a fusion's stages load and do not make, in first-seen order."""
    made = {id(v) for m in members for v in m.stage.values}
    found: dict[int, Value] = {}
    for m in members:
        for load in loads((*m.nodes, *m.inits)):
            element = load.value.tensor.element
            if id(load.value) not in made and isinstance(element, ElementType) and element.is_float:
                found[id(load.value)] = load.value
    return list(found.values())


class Analysis:
    """What is known of each member's value while the inputs are within `limits`."""

    def __init__(self, members: Sequence[Member], ranges: Mapping[Var, Interval], limits: Limits) -> None:
        self.ranges, self.limits = ranges, limits
        self.member_of: dict[int, Member] = {}
        self.known: dict[int, Knowledge] = {}
        self._spans: dict[tuple[int, frozenset[tuple[Condition, bool]]], Span | None] = {}
        self._translations: dict[tuple[int, Condition, tuple[Expr, ...]], Condition] = {}
        for m in members:
            found = self._member(m) if len(m.stage.values) == 1 else NOTHING
            for v in m.stage.values:
                self.known[id(v)] = found
                self.member_of[id(v)] = m

    def of(self, m: Member) -> Knowledge:
        return self.known[id(m.stage.values[0])]

    @property
    def signature(self) -> tuple[tuple[tuple[Condition, ...], tuple[Condition, ...]], ...]:
        return tuple((k.zero, k.neutral) for k in self.known.values())

    # ------------------------------------------------------------ one member

    def _member(self, m: Member) -> Knowledge:
        element = m.stage.values[0].tensor.element
        if not isinstance(element, ElementType) or not (element.is_float or element.is_integer):
            return NOTHING
        semantics = m.stage.op.definition.semantics
        conditions = self.conditions_in(m.nodes)
        if isinstance(semantics, Fold):
            return self._fold(m, conditions, element)
        if isinstance(semantics, SumOfProducts):
            return self._contraction(m, conditions, element)
        (node,) = m.nodes
        zero = tuple(c for c in conditions if (s := self._evaluate(node, {c: False})) is not None and s.is_zero)
        return Knowledge(self._evaluate(node, {}), zero, (), tuple(conditions))

    def _evaluate(self, node: Node, known: Mapping[Condition, bool]) -> Span | None:
        return Evaluator(known, lambda load: self._of_load(load, known), self._peak, self.ranges).of(node)

    def _fold(self, m: Member, conditions: Sequence[Condition], element: ElementType) -> Knowledge:
        body = m.stage.op.regions[0]
        function = combined_function(body)
        if function is None or len(m.nodes) != 1 or not isinstance(m.inits[0], Scalar) or not element.is_float:
            return NOTHING
        (node,), start = m.nodes, m.inits[0]
        mine = [(c, r) for c in conditions for r in m.reduction if bounds_by(c, r.variable) is not None]
        if function in ("maximum", "minimum") and is_neutral(function, start.value, start.element):
            return self._extremum(m, node, mine, 1.0 if function == "maximum" else -1.0)
        if function != "add" or np.isnan(start.value) or (start.value == 0 and np.signbit(start.value)):
            return NOTHING
        neutral = tuple(c for c, _ in mine if (s := self._evaluate(node, {c: False})) is not None and s.is_zero)
        term = self._evaluate(node, {})
        count = prod(x.extent for x in m.reduction)
        total = None if term is None else span_of_sum(term, count, element, frozenset(x.variable for x in m.reduction))
        begin = float(start.value)
        span = None if total is None else rounded(total.low + begin, total.high + begin, element)
        return Knowledge(span, (), neutral)

    def _extremum(self, m: Member, node: Node, mine: Sequence[tuple[Condition, object]], sign: float) -> Knowledge:
        """A maximum (sign 1) or minimum (-1): neutral is what lies beyond some element that is always there."""

        def best(s: Span) -> float:
            return s.low if sign > 0 else -s.high

        def worst(s: Span) -> float:
            return s.high if sign > 0 else -s.low

        whole = self._evaluate(node, {})
        if whole is None:
            return NOTHING
        chosen = [c for c, _ in mine]
        while chosen:
            held = self._evaluate(node, dict.fromkeys(chosen, True))
            if held is None or not any(is_never_empty(chosen, r.variable, r.extent, self.ranges) for r in m.reduction):
                chosen = []
                break
            kept = [
                c for c in chosen if (s := self._evaluate(node, {c: False})) is not None and worst(s) < best(held)
            ]
            if kept == chosen:
                low, high = (held.low, whole.high) if sign > 0 else (whole.low, held.high)
                return Knowledge(Span(low, high), (), tuple(chosen))
            chosen = kept
        return Knowledge(Span(whole.low, whole.high))

    def _contraction(self, m: Member, conditions: Sequence[Condition], element: ElementType) -> Knowledge:
        mine = [c for c in conditions if is_hole(c) or any(bounds_by(c, r.variable) is not None for r in m.reduction)]
        neutral = tuple(c for c in mine if (s := self._product(m, {c: False}, element)) is not None and s.is_zero)
        term = self._product(m, {}, element)
        if term is None or not element.is_float:
            return Knowledge(None, (), neutral)
        return Knowledge(span_of_sum(term, prod(x.extent for x in m.reduction), element), (), neutral)

    def _product(self, m: Member, known: Mapping[Condition, bool], element: ElementType) -> Span | None:
        a, b = (self._evaluate(n, known) for n in m.nodes)
        if a is None or b is None or float("inf") in (a.magnitude, b.magnitude):
            return None
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return rounded(min(corners), max(corners), element)

    # ------------------------------------------------------------ what nodes read

    def conditions_in(self, nodes: Sequence[Node]) -> list[Condition]:
        """The conditions in some nodes, and those that what they read depends on, in their own loops' variables."""
        found: dict[Condition, None] = {}
        for n in all_nodes(nodes):
            if isinstance(n, (Choose, Test)) and not (isinstance(n, Choose) and n.runtimes):
                found.update(dict.fromkeys(n.conditions))
            elif isinstance(n, Load) and id(n.value) in self.known:
                found.update(dict.fromkeys(self.translate(c, n) for c in self.known[id(n.value)].conditions))
        return list(found)

    def translate(self, c: Condition, load: Load) -> Condition:
        """A condition on a member's loops as one on the loops of what loads it."""
        key = (id(load.value), c, load.index)
        if key not in self._translations:
            at = self.member_of[id(load.value)].at(load.index, self.ranges)
            self._translations[key] = translated(c, at, self.ranges)
        return self._translations[key]

    def _of_load(self, load: Load, known: Mapping[Condition, bool]) -> Span | None:
        made = self.known.get(id(load.value))
        if made is not None:
            there = {c: known[t] for c in made.conditions if (t := self.translate(c, load)) in known}
            return self._seen_by(load, self._span_where(load.value, there) if there else made.span)
        element = load.value.tensor.element
        if not isinstance(element, ElementType):
            return None
        if element.is_boolean:
            return Span(0.0, 1.0)
        if element.is_integer:
            least, greatest = default_storage_range(element)
            return Span(float(least), float(greatest))
        limit = self.limits.get(id(load.value))
        return None if limit is None or not element.is_float else Span(-limit, limit)

    def _span_where(self, value: Value, known: Mapping[Condition, bool]) -> Span | None:
        """The span of a value that is computed element by element, where some conditions are known to hold or to fail."""
        key = (id(value), frozenset(known.items()))
        if key not in self._spans:
            self._spans[key] = self._evaluate(self.member_of[id(value)].nodes[0], known)
        return self._spans[key]

    def _seen_by(self, load: Load, span: Span | None) -> Span | None:
        """A member's span with the loop `along` which something is attained as the loop of what loads it."""
        if span is None or span.attains is None:
            return span
        member = self.member_of[id(load.value)]
        for x, e, s in zip(member.loops, load.index, member.box or (), strict=True):
            if x.variable is span.along:
                parts = [v for v in e.variables if e is v]
                whole = s.size == s.extent and parts and self.ranges[parts[0]] == Interval(0, s.extent - 1)
                return Span(span.low, span.high, span.attains, parts[0]) if whole else Span(span.low, span.high)
        return Span(span.low, span.high)

    def _peak(self, x: Node, y: Node) -> Var | None:
        """The loop along which y, a maximum in memory, is the greatest x; None where it is something else."""
        if not isinstance(y, Load) or id(y.value) not in self.member_of:
            return None
        m = self.member_of[id(y.value)]
        if not isinstance(m.stage.op.definition.semantics, Fold) or combined_function(m.stage.op.regions[0]) != "maximum":
            return None
        (start,) = m.inits
        reductions = [r for r in m.reduction if r.extent > 1]
        if len(reductions) != 1 or not isinstance(start, Scalar) or not is_neutral("maximum", start.value, start.element):
            return None
        r = reductions[0]
        at: dict[Var, Expr] = {**m.at(y.index, self.ranges), **{q.variable: Const(0) for q in m.reduction if q is not r}}
        inside = node_variables(x, {})
        for v in sorted(inside, key=lambda v: v.name):
            if self.ranges.get(v) != self.ranges[r.variable] or any(v in e.variables for e in y.index):
                continue
            if same_node(x, Renamer({**at, r.variable: v}, self.ranges, {}).node(m.nodes[0])):
                return v
        return None


def same_node(a: Node, b: Node) -> bool:
    """Whether two nodes compute the same: the same functions of the same loads at the same indices."""
    done: set[tuple[int, int]] = set()
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if x is y or (id(x), id(y)) in done:
            continue
        done.add((id(x), id(y)))
        if type(x) is not type(y) or not _LOCALLY_SAME[type(x)](x, y) or len(children(x)) != len(children(y)):
            return False
        stack.extend(zip(children(x), children(y), strict=True))
    return True


_LOCALLY_SAME: Mapping[type, Callable[[Node, Node], bool]] = {
    Load: lambda x, y: isinstance(x, Load) and isinstance(y, Load) and x.value is y.value and x.index == y.index
    and x.buffer is y.buffer and not x.runtimes and not y.runtimes,
    Apply: lambda x, y: isinstance(x, Apply) and isinstance(y, Apply) and x.op is y.op and x.function == y.function,
    Choose: lambda x, y: isinstance(x, Choose) and isinstance(y, Choose) and x.conditions == y.conditions and not x.runtimes,
    Test: lambda x, y: isinstance(x, Test) and isinstance(y, Test) and x.conditions == y.conditions,
    IndexNode: lambda x, y: x == y and not runtimes_of(x),
    Scalar: lambda x, y: isinstance(x, Scalar) and isinstance(y, Scalar) and x.element == y.element
    and x.value.tobytes() == y.value.tobytes(),
}  # fmt: skip
