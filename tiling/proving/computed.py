"""Do statements compute what the program's ops do? Expressions side by side with those that the ops' access functions give.

    v[index] = node                 node is v's element at index, through what is computed where it is read
    v[index] = fold(node), init     node is the element that the op folds, at some index of its range; init its initial value
    v[index] += node * node'        the factors that the op multiplies
    copy[...] = node                a fill is the op's operand or initial value, a packed factor an element of an operand, or zero

Expressions are compared symbol by symbol; where loops were cut, and conditions went away with it, at points on both sides of
every condition's ends. Which elements are loaded through copies is the obligation `mapped`. What is rescaled while it runs
(online forms) has other arithmetic than the ops: that is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import islpy
import numpy as np

from hlo.access import Condition
from hlo.module import Op, Value
from hlo.registry import Fold, SumOfProducts
from hlo.types import ElementType
from indexing.edges import EdgeMaps
from indexing.expr import Const, Expr, Interval, Var, as_expr, interval, simplify, substitute
from tiling.elements.build import ElementBuilder
from tiling.elements.folds import combined_function
from tiling.loops.accesses import Domain
from tiling.loops.element_ir import (
    Choose,
    Load,
    Node,
    Renamer,
    Scalar,
    all_nodes,
    has_runtimes,
    loads,
    rebuild,
)
from tiling.loops.ir import Contract, FoldStep, Loop, LoopKind, Nest, Schedule, Scope, Sequential, Store
from tiling.proving.nests import nests_of
from tiling.proving.relations import Questions, Undecided, coordinates, points_of, points_where, relation_of
from tiling.proving.same_expression import (
    NOWHERE,
    Comparison,
    Point,
    is_fold,
    is_made_elsewhere,
    same_expression,
)
from tiling.proving.statements import (
    changes_nothing,
    conditions,
    filled_from,
    is_copy,
    is_one,
    is_plus_zero,
    is_zero,
    matched,
    reduced,
    reductions,
    sample,
    scans,
    shown,
    solutions,
    solve_for,
    starting,
    states,
    substituted,
    unscaled,
)
from tiling.proving.trial import Trial, Untried, apply, close
from tiling.routines.table import routine_of

__all__ = ["Assumed", "Question", "computed_questions"]

SET = islpy.dim_type.set
MOST_POINTS = 96
MOST_OF_FEW = 48  # iterations, that are all compared
MOST_TOGETHER = 12  # conditions that are made to hold together
MOST_TERMS = 256
Question = tuple[str, str, Callable[[], str | None]]



class Different(Exception):
    """Carries what a statement plainly does otherwise than its op."""


@dataclass(frozen=True)
class _Taken:
    """The nodes that an op `wanted`, their `free` variables `solved` for; `made` of them are its range's. `at` is the result."""

    wanted: tuple[Node, ...]
    solved: Mapping[Var, Expr]
    free: tuple[Var, ...]
    ranges: dict[Var, Interval]
    at: tuple[Expr, ...]
    made: tuple[Var, ...]


class Assumed(Exception):
    """Carries what is taken for granted where a statement is not compared."""


# ---------------------------------------------------------------- questions


@dataclass(frozen=True, eq=False)
class _Place:
    """A statement's surroundings: its iterations, and its name."""

    domain: Domain
    label: str
    reduction: tuple[Loop, ...] = ()
    is_scan: bool = False
    beside: tuple[Store, ...] = ()  # the stores of the same nest
    reduced: tuple[Var, ...] = ()  # the variables of all reduction loops


def computed_questions(schedule: Schedule, ask: Questions, lowered: Schedule | None = None) -> Iterator[Question]:
    """(obligation, subject, question) for every store and fold. A question raises Undecided, or Assumed where it is not asked.

    Of final loops, `lowered` are those that they were made of. A statement that cannot be compared with its op is compared with
    theirs: where each of its iterations is an iteration of a lowered statement as well, that writes the same element from the
    same expression (up to choices that the smaller domain settles), the lowered statement's answer is its own.
    """
    checker = _Checker(schedule, ask, None if lowered is None else _Checker(lowered, ask))
    down = all(schedule.ranges.get(f.variable) == Interval(0, 0) for p in schedule.phases for f in p.flags)
    for v in checker.folds if down else ():
        yield "folded once", f"%{v.name or '?'}", _bound(checker.once, v)
    for nest, place, op in checker.nests():
        for s in nest.stores:
            to = ", ".join(map(str, s.index))
            yield "computed", f"{place.label} {s.buffer.name}[{to}]", _bound(checker.store, s, place, op)
        for f in nest.folds:
            to = ", ".join(map(str, f.index))
            yield "computed", f"{place.label} {f.buffers[0].name}[{to}] {f.op.name}", _bound(checker.fold, f, nest, place)


def _bound(method: Callable[..., str | None], *arguments: object) -> Callable[[], str | None]:
    return lambda: method(*arguments)


class _Checker:
    def __init__(self, schedule: Schedule, ask: Questions, lowered: _Checker | None = None) -> None:
        self.schedule, self.ask, self.lowered = schedule, ask, lowered
        self.edges = EdgeMaps()
        self.states = states(schedule)
        steps = [s for p in schedule.phases for s in (*p.before, *p.all_steps)]
        self.running = {
            v for s in steps if isinstance(s, Sequential) for x in s.steps if isinstance(x, (Nest, Contract)) for v in x.values
        }  # fmt: skip
        self.contracted = {s.value for s in steps if isinstance(s, Contract)}
        self.products = {
            f.values[0] for s in steps if isinstance(s, Nest) for f in s.folds
            if isinstance(f.op.definition.semantics, SumOfProducts)
        }  # fmt: skip
        self.folds: dict[Value, list[tuple[FoldStep, Nest, _Place, bool]]] = {}
        for nest, place, _ in self.nests():
            for f in nest.folds:
                self.folds.setdefault(f.values[0], []).append((f, nest, place, place.domain.blocks > 0))

    def nests(self) -> Iterator[tuple[Nest, _Place, Op | None]]:
        """Every nest with its iterations; the op whose factors it packs, if it does."""
        for x in nests_of(self.schedule):
            n, is_pack = x.nest, x.packs_for is not None
            shape = ((), False, (), ()) if is_pack else (reductions(n), scans(n), n.stores, reduced(n))
            yield n, _Place(x.domain(n.loops, ()), x.label, *shape), x.packs_for

    # ------------------------------------------------------------ statements

    def store(self, s: Store, place: _Place, op: Op | None) -> str | None:
        return self._or_lowered(lambda: self._store(s, place, op), lambda: self._lowered_store(s, place))

    def fold(self, f: FoldStep, nest: Nest, place: _Place) -> str | None:
        def asked() -> str | None:
            part = self._lowered_fold(f, place)
            if part is None or self.lowered is None:
                raise Undecided("none of the lowered folds is a whole of which it is a part")
            return self.lowered.fold(*part[:3])

        return self._or_lowered(lambda: self._fold(f, place), asked)

    def _or_lowered(self, question: Callable[[], str | None], of_lowered: Callable[[], str | None]) -> str | None:
        """The answer to a question, or that of the lowered statement of which a final one is a part."""
        try:
            fault = self.ask.ask(lambda: self._told(question))
        except Undecided:
            if self.lowered is not None:
                try:
                    return of_lowered()
                except Undecided:
                    pass
            raise
        if fault is not None and self.lowered is not None:
            try:
                return of_lowered()
            except Undecided:
                return fault
        return fault

    def _lowered_store(self, s: Store, place: _Place) -> str | None:
        """What is known of the lowered store that a final one is a part of."""
        assert self.lowered is not None
        for nest, its, of in self.lowered.nests():
            for x in nest.stores:
                alike = x.value is s.value and x.buffer is s.buffer
                if alike and self._part(s.index, [s.node], place, x.index, [x.node], its) is not None:
                    return self.lowered.store(x, its, of)
        raise Undecided("none of the lowered stores is a whole of which it is a part")

    def _lowered_fold(self, f: FoldStep, place: _Place) -> tuple[FoldStep, Nest, _Place, Point] | None:
        """The lowered fold that a final one is a part of, with its nest and its iteration in the final one's variables."""
        for nest, its, _ in self.lowered.nests() if self.lowered is not None else ():
            for x in nest.folds:
                if (x.values, x.op, x.carried, len(x.nodes), x.buffers) != (f.values, f.op, f.carried, len(f.nodes), f.buffers):
                    continue
                at = self._part(f.index, (*f.nodes, *f.inits), place, x.index, (*x.nodes, *x.inits), its)
                if at is not None:
                    return x, nest, its, at
        return None

    def _part(
        self, index: Sequence[Expr], nodes: Sequence[Node], place: _Place,
        its_index: Sequence[Expr], its_nodes: Sequence[Node], its: _Place,
    ) -> Point | None:  # fmt: skip
        """The lowered iteration that each final one is: both write the same element from the same expressions. None where not."""
        if len(index) != len(its_index) or len(nodes) != len(its_nodes):
            return None
        at = self._iteration(its_index, index, place, its)
        is_moved = at is not None and any(v is not e for v, e in at.items())
        if at is None or (is_moved and has_runtimes(its_nodes)):
            return None
        ranges = self._ranges(place)
        rename = Renamer(at, ranges, {})
        symbols = Comparison(ranges, NOWHERE, within=place.domain)
        if is_moved:
            its_index, its_nodes = rename.index(its_index), [rename.node(n) for n in its_nodes]
        if not all(symbols.equal(a, b) for a, b in zip(index, its_index, strict=True)):
            return None
        return at if all(symbols.same(a, b) for a, b in zip(nodes, its_nodes, strict=True)) else None

    def _iteration(self, its_index: Sequence[Expr], index: Sequence[Expr], place: _Place, its: _Place) -> Point | None:
        """The lowered iteration, in a final one's variables, that writes the same element; None where there is none for some."""
        mine = place.domain.ranges
        missing = [(v, b) for v, b in its.domain.variables if v not in mine]
        solved = matched(its_index, index, [v for v, _ in missing], self._ranges(place))
        left = [(v, b) for v, b in missing if v not in solved and b.size > 1]
        known = its.domain.ranges
        own = [(v, b) for v, b in mine.items() if v not in known and not any(v in e.variables for e in solved.values())]
        if left and len(own) == 1 and all(b.lower == 0 for _, b in (*left, *own)):
            # Loops that were joined: their numbers are the digits of the one loop's.
            ((joined, span),), below = own, 1
            if prod(b.size for _, b in left) == span.size:
                for v, b in reversed(left):
                    solved[v] = simplify(joined // below % b.size, self._ranges(place))
                    below *= b.size
        at: dict[Var, Expr] = {}
        for v, b in its.domain.variables:
            e = v if v in mine else solved.get(v, Const(b.lower) if b.size == 1 else None)
            if e is None or not all(x in mine for x in e.variables):
                return None
            at[v] = e
        reached = relation_of(place.domain, tuple(at[v] for v, _ in its.domain.variables)).range()
        return at if reached.is_subset(points_of(its.domain)) else None

    @staticmethod
    def _told(question: Callable[[], str | None]) -> str | None:
        try:
            return question()
        except Different as reason:
            return str(reason)

    def _store(self, s: Store, place: _Place, op: Op | None) -> str | None:
        v = s.value
        if v is None or v.op is None or len(s.index) != v.rank:
            return self._copy(s, place, op)
        if isinstance(s.node, Load) and s.node.value is v and s.node.buffer is not None:
            return None  # put there from where it was made: that it is this element is the obligation `mapped`
        semantics = v.op.definition.semantics
        if isinstance(semantics, (Fold, SumOfProducts)):
            if any(x.buffer in self.states for x in loads([s.node])):
                raise Assumed("what was rescaled block by block is finished here: the arithmetic is the online form's")
            if isinstance(semantics, SumOfProducts) and v not in self.running and is_plus_zero(s.node):
                return None  # nothing is summed here: that no product counts is the obligation `complete`
            return self._written_out(s, v.op, place)
        wanted = self._element(v, s.index, place, {x.value for x in loads([s.node])} - {v}, itself=v)
        node = self._with_finished(s, place)
        if any(x.buffer in self.states for x in loads([node])):
            node = unscaled(node)  # by a number that the online form takes off in the end
        return self._compare([node], [wanted], place, {})

    def _with_finished(self, s: Store, place: _Place) -> Node:
        """A store's node where what another store of the nest takes for a finished running result is that result's element.

        Both are evaluated in the same iteration, from the same running results: what is assumed of the one holds of the other.
        """
        finished: dict[Node, Load] = {}
        for other in place.beside:
            v, read = other.value, loads([other.node])
            is_state = any(x.buffer in self.states for x in read) and not isinstance(other.node, Load)
            if v is None or v is s.value or v.op is None or not is_state or len(other.index) != v.rank:
                continue
            if isinstance(v.op.definition.semantics, (Fold, SumOfProducts)):
                finished[other.node] = Load(v, other.index)
        if not finished or has_runtimes([s.node]):
            return s.node
        return rebuild(s.node, lambda x: x, tuple, {}, lambda n: finished.get(n, n))

    def _written_out(self, s: Store, op: Op, place: _Place) -> str | None:
        """A fold of few elements as one expression: the initial value and each element that is not neutral, in any order."""
        assert s.value is not None
        return self._compare([s.node], [Load(s.value, s.index)], place, {})

    def _folded(self, load: Load, compare: Comparison, place: _Place, kept: set[Value]) -> list[Node]:
        """The initial value and all elements that an op folds for one of its results, at a point."""
        op = load.value.op
        assert op is not None
        builder, ranges = self._builder(place, kept)
        index = tuple(simplify(substitute(compare.index(e), compare.names), ranges) for e in load.index)
        made: list[tuple[Var, int]] = []

        def provide(size: int) -> Expr:
            made.append((Var(f"q{len(made)}_wanted"), size))
            ranges[made[-1][0]] = Interval(0, max(size - 1, 0))
            return made[-1][0]

        start = builder.at(op.operands[1], ())
        (node, *_) = builder.reads(op, 0, index, provide, lambda operand: start)
        if prod(n for _, n in made) > MOST_TERMS or has_runtimes([node]):
            raise Undecided(f"{op.name} folds more elements than are written out")
        points: list[dict[Var, Expr]] = [{}]
        for v, n in made:
            points = [{**p, v: Const(k)} for p in points for k in range(n)]
        return [start, *(Renamer(p, ranges, {}).node(node) for p in points)]

    def _copy(self, s: Store, place: _Place, op: Op | None) -> str | None:
        target = s.buffer.value
        if target is not None and target.op is not None and s.buffer.scope is Scope.RESULT and routine_of(target.op) is not None:
            source = filled_from(target)
            if source is None:
                raise Undecided(f"what {target.op.name} is filled with is not known")
            index = s.index if source.rank else ()
            wanted = self._element(source, index, place, {x.value for x in loads([s.node])}, itself=None)
            return self._compare([s.node], [wanted], place, {})
        if s.buffer in self.states:
            raise Assumed("a running result of an online form: its arithmetic is the form's own")
        if isinstance(s.node, Load):
            return None  # a copy: which element it is is the obligation `mapped`
        if isinstance(s.node, Scalar):
            return None  # what starts from it says whether it may: the obligation `starts`
        return self._packed(s, place, [op] if op is not None else self._readers(s))

    def _readers(self, s: Store) -> list[Op]:
        """The contractions, and the sums in loops, that read a buffer of copies."""
        found: dict[Op, None] = {}
        for step in (x for p in self.schedule.phases for x in (*p.before, *p.all_steps)):
            if isinstance(step, Contract) and s.buffer in (step.left.buffer, step.right.buffer):
                found[step.op] = None
            elif isinstance(step, Nest):
                for f in step.folds:
                    if any(x.buffer is s.buffer for x in loads(f.nodes)):
                        found[f.op] = None
        return list(found)

    def _packed(self, s: Store, place: _Place, ops: Sequence[Op]) -> str | None:
        """A factor in another layout: an element of one of the op's operands, or zero where it has none."""
        if not ops:
            raise Undecided(f"who reads {s.buffer.name} is not known")
        reasons: list[str | None] = []
        open_: str | None = None
        for op in ops:
            for operand in dict.fromkeys(op.operands[:2]):
                kept = {x.value for x in loads([s.node])}
                ranges = self._ranges(place)
                free = tuple(Var(f"a{k}_wanted") for k in range(operand.rank))
                ranges |= {v: Interval(0, max(n - 1, 0)) for v, n in zip(free, operand.shape, strict=True)}
                try:
                    wanted = self._building(ranges, kept).at(operand, free)
                except LookupError:
                    continue
                for solved in solutions([wanted], [s.node], free, ranges):
                    try:
                        reasons.append(self._compare([s.node], [wanted], place, solved, zeros=True))
                    except Undecided as reason:
                        open_ = str(reason)
                        continue
                    if reasons[-1] is None:
                        return None
        if open_ is not None:
            raise Undecided(open_)
        if not reasons:
            raise Undecided(f"no operand of {ops[0].name} says what {s.buffer.name} holds")
        return next(r for r in reasons if r is not None)

    def _fold(self, f: FoldStep, place: _Place) -> str | None:
        op = f.values[0].op
        if op is None or (f.op is not op and not (f.op.definition is op.definition and f.op.operands == op.operands)):
            return f"%{f.values[0].name or '?'} is computed by another op than its own"
        if any(x is not y for x, y in zip(f.values, op.results, strict=False)):
            return "its results are in another order than the op's"
        is_running = any(x.buffer in self.states for x in loads((*f.nodes, *f.inits)))
        is_fold = isinstance(op.definition.semantics, Fold)
        count = len(f.values)
        ranges = self._ranges(place)
        if is_fold and not f.carried and not is_running:
            kept = {x.value for x in loads(f.inits)}
            builder = self._building(ranges, kept)
            for x, init in zip(f.inits, op.operands[count:], strict=True):
                if not same_expression(x, builder.at(init, ()), ranges):
                    return f"it does not start from %{init.name or '?'}"
        if f.op is not op and not self._are_parts(f):
            return "a body of its own is for parts of a fold, put together"
        if self._are_parts(f):
            return None
        taken = self._taken(f, place)
        ends = [(Const(0), Const(taken.ranges[q].size - 1)) for q in taken.made if q not in taken.solved]
        if place.is_scan and ends:
            # Each of a scan's steps adds an element at an end of its window.
            left = [q for q in taken.made if q not in taken.solved]
            tried = [{**taken.solved, **dict(zip(left, at, strict=True))} for at in product(*ends)]
            faults = [self._compare(f.nodes, taken.wanted, place, solved) for solved in tried]
            return None if None in faults else faults[0]
        found = [unscaled(n) for n in f.nodes] if is_running else list(f.nodes)
        first = self._compare(found, taken.wanted, place, taken.solved, is_product=not is_fold)
        if first is not None and not is_fold and len(found) == 2:
            turned = replace(taken, wanted=tuple(reversed(taken.wanted)))
            turned = replace(turned, solved=solve_for(turned.wanted, found, turned.free, turned.ranges))
            first = first if self._compare(found, turned.wanted, place, turned.solved, is_product=True) else None
        if first is None and is_running:
            raise Assumed("its initial value is what was, rescaled: the arithmetic is the online form's")
        return first

    def _taken(self, f: FoldStep, place: _Place) -> _Taken:
        """What an op folds or multiplies, and at which index of its range each iteration of a fold does.

        A part of a lowered fold takes in each iteration what that one does.
        """
        part = self._lowered_fold(f, place)
        if part is not None and self.lowered is not None:
            taken, at = self.lowered._taken(part[0], part[2]), part[3]
            return replace(
                taken, solved={v: substitute(e, at) for v, e in taken.solved.items()},
                at=tuple(substitute(e, at) for e in taken.at), ranges={**self._ranges(place), **taken.ranges},
            )  # fmt: skip
        op = f.values[0].op
        assert op is not None
        is_fold, count = isinstance(op.definition.semantics, Fold), len(f.values)
        ranges = self._ranges(place)
        made: list[Var] = []

        def provide(size: int) -> Expr:
            made.append(Var(f"q{len(made)}_wanted"))
            ranges[made[-1]] = Interval(0, max(size - 1, 0))
            return made[-1]

        free: tuple[Var, ...] = ()
        index = f.index
        if len(f.index) != f.values[0].rank or f.buffers[0].value is not f.values[0]:
            free = tuple(Var(f"d{k}_wanted") for k in range(f.values[0].rank))
            ranges |= {v: Interval(0, max(n - 1, 0)) for v, n in zip(free, f.values[0].shape, strict=True)}
            index = free if len(f.index) != f.values[0].rank else f.index
        kept = {x.value for x in loads(f.nodes)}
        builder = self._building(ranges, kept)

        def padding(operand: int) -> Node:
            if is_fold:
                return builder.at(op.operands[operand + count], ())
            element = op.operands[operand].tensor.element
            assert isinstance(element, ElementType)
            return Scalar(element.dtype.type(0), element)

        nodes = builder.reads(op, f.values[0].index, index, provide, padding)
        wanted = nodes[:count] if is_fold else nodes
        if len(wanted) != len(f.nodes):
            raise Different(f"{len(f.nodes)} nodes are folded or multiplied, the op takes {len(wanted)}")
        solved = solve_for(wanted, f.nodes, (*made, *free), ranges)
        # What no load tells: the loops stand in the order of the op's range.
        loops = [x for x in place.reduction if not any(x.variable in e.variables for e in solved.values())]
        for q in (q for q in made if q not in solved):
            loop = next((x for x in loops if x.extent == ranges[q].size), None)
            if loop is not None:
                loops.remove(loop)
                solved[q] = loop.variable
        if len(place.reduced) == len(made):
            # Between holes loads do not tell one index from the next: perhaps the loops are the op's range as it is.
            in_order: dict[Var, Expr] = {**solved, **dict(zip(made, place.reduced, strict=True))}
            spans = place.domain.ranges
            inside = all(ranges[q].covers(spans[x]) for q, x in zip(made, place.reduced, strict=True))
            if inside and in_order != solved and self._are_same(f.nodes, wanted, ranges, in_order):
                solved = in_order
        if not self._are_same(f.nodes, wanted, ranges, solved):
            for other in solutions(wanted, f.nodes, (*made, *free), ranges):
                if self._are_same(f.nodes, wanted, ranges, {**solved, **other}):
                    solved = {**solved, **other}
        target = f.index if len(f.index) == f.values[0].rank else tuple(solved.get(v, v) for v in free)
        return _Taken(tuple(wanted), solved, (*made, *free), ranges, target, tuple(made))

    @staticmethod
    def _are_same(found: Sequence[Node], wanted: Sequence[Node], ranges: Mapping[Var, Interval], solved: Point) -> bool:
        """Whether expressions are the same everywhere, symbol by symbol."""
        symbols = Comparison(ranges, solved)
        return len(found) == len(wanted) and all(symbols.same(a, b) for a, b in zip(found, wanted, strict=True))

    # ------------------------------------------------------------ each element once

    def once(self, v: Value) -> str | None:
        return self.ask.ask(lambda: self._told(lambda: self._once(v)))

    def _once(self, v: Value) -> str | None:
        """An index of the op's range that is folded twice, or not at all though what is there counts."""
        total: islpy.Set | None = None
        begun: islpy.Set | None = None  # the results, also of those of which nothing is folded
        shape: tuple[int, ...] = ()
        covers = True
        for f, nest, place, is_block in self.folds[v]:
            if any(x.kind is LoopKind.SCAN for x in nest.loops) or self._are_parts(f):
                continue
            taken = self._taken(f, place)
            q = [taken.solved.get(x, x) for x in taken.made]
            free = {*taken.free}
            if any(free.intersection(e.variables) for e in (*q, *taken.at)) or any(
                x not in place.domain.ranges for e in (*q, *taken.at) for x in e.variables
            ):
                raise Assumed("which elements of its range an iteration folds does not follow from what it loads")
            goes_on = f.carried or any(x.buffer in self.states for x in loads(f.inits))
            shared = place.domain.shared if f.buffers[0].scope is Scope.THREAD else 0
            blocks = (place.domain.variables[place.domain.shared][0],) if is_block and not goes_on else ()
            key = (*(x for x, _ in place.domain.variables[:shared]), *blocks)
            shape = tuple(taken.ranges[x].size for x in taken.made)
            start = starting(f, nest, place.domain)
            if not f.carried and not relation_of(*start).is_injective():
                return "an element is started by two iterations"
            if not f.carried and all(x in start[0].ranges for e in (*key, *taken.at) for x in e.variables):
                mine = relation_of(start[0], (*key, *taken.at)).range()
                begun = mine if begun is None or begun.dim(SET) != mine.dim(SET) else begun.union(mine)
            m = relation_of(place.domain, (*key, *taken.at, *q))
            in_order = {x: loop.variable for x, loop in zip(taken.made, place.reduction, strict=False)}
            if not m.is_injective() and len(place.reduction) == len(taken.made):
                # Loads that stand for each other by chance: perhaps the loops are the op's range as it is.
                solved = {**taken.solved, **in_order}
                fits = all(loop.extent == taken.ranges[x].size for x, loop in zip(taken.made, place.reduction, strict=True))
                if fits and self._compare(f.nodes, taken.wanted, place, solved, is_product=f.values[0] in self.products) is None:
                    m = relation_of(place.domain, (*key, *taken.at, *in_order.values()))
            if not m.is_injective():
                return "an element is folded by two iterations"
            reached = m.range()
            if total is not None and reached.dim(SET) == total.dim(SET):
                if not total.intersect(reached).is_empty():
                    return "an element is folded by two steps"
                total = total.union(reached)
            else:
                covers = covers and total is None
                total = reached
        if total is None or not covers or v in self.contracted:
            return None
        n = len(shape)
        rank = total.dim(SET) - n
        every = total.project_out(SET, rank, n)
        every = (every.union(begun) if begun is not None and begun.dim(SET) == rank else every).add_dims(SET, n)
        box = relation_of(Domain(tuple((Var(f"q{k}"), Interval(0, s - 1)) for k, s in enumerate(shape)), ()),
                          tuple(Var(f"q{k}") for k in range(n))).range()  # fmt: skip
        missing = every.intersect(box.insert_dims(SET, 0, rank)).subtract(total)
        if missing.is_empty():
            return None
        held = self._that_count(v, rank - v.rank)
        bad = missing.intersect(held) if held is not None else missing
        return None if bad.is_empty() else f"an element that counts is not folded: {coordinates(bad.sample_point())}"

    def _that_count(self, v: Value, before: int) -> islpy.Set | None:
        """The (result, index of the range) at which an op reads more than what changes nothing; None for all of them."""
        op = v.op
        assert op is not None
        ranges: dict[Var, Interval] = {}
        spans: list[Var] = []
        for k, size in enumerate(v.shape):
            spans.append(Var(f"d{k}_counts"))
            ranges[spans[-1]] = Interval(0, max(size - 1, 0))
        dims = tuple(spans)

        def provide(size: int) -> Expr:
            spans.append(Var(f"q{len(spans)}_counts"))
            ranges[spans[-1]] = Interval(0, max(size - 1, 0))
            return spans[-1]

        is_fold = isinstance(op.definition.semantics, Fold)
        count = len(op.operands) // 2 if is_fold else 0
        kept = {x.value for f, *_ in self.folds[v] for x in loads(f.nodes)}
        builder = self._building(ranges, kept)
        zero = [Scalar(e.dtype.type(0), e) if isinstance(e := o.tensor.element, ElementType) else None for o in op.operands]
        starts = [builder.at(o, ()) for o in op.operands[count:]] if is_fold else zero
        nodes = builder.reads(op, v.index, dims, provide, lambda k: starts[k])  # type: ignore[return-value, arg-type]
        function = combined_function(op.regions[0]) if op.regions else None
        conditions: list[Condition] = []
        for n, start in zip(nodes[:count] if is_fold else nodes, starts, strict=False):
            inner: Node = n
            while isinstance(inner, Choose) and not inner.runtimes and changes_nothing(inner.otherwise, start, function):
                conditions += inner.conditions
                inner = inner.then
        if not conditions:
            return None
        d = Domain(tuple((x, ranges[x]) for x in spans), ())
        return points_where(d, conditions).insert_dims(SET, 0, before)

    def _are_parts(self, f: FoldStep) -> bool:
        """Whether a fold puts together what an earlier step folded in parts (a product's parts times one)."""
        own = [n for n in f.nodes if isinstance(n, Load) and n.buffer is not None and n.value in f.values]
        rest = [n for n in f.nodes if n not in own]
        return bool(own) and [n.value for n in own if isinstance(n, Load)] == list(f.values) and all(is_one(n) for n in rest)

    # ------------------------------------------------------------ comparing

    def _ranges(self, place: _Place) -> dict[Var, Interval]:
        return {**self.schedule.ranges, **place.domain.ranges}

    def _building(self, ranges: dict[Var, Interval], kept: set[Value], itself: Value | None = None) -> ElementBuilder:
        """Elements over some ranges, down to what is kept; but for `itself`, which is built though it is kept."""
        return ElementBuilder(ranges, lambda v: v is not itself and (v in kept or is_made_elsewhere(v)), self.edges)

    def _builder(self, place: _Place, kept: set[Value]) -> tuple[ElementBuilder, dict[Var, Interval]]:
        ranges = self._ranges(place)
        return self._building(ranges, kept), ranges

    def _element(
        self, v: Value, index: tuple[Expr, ...], place: _Place, kept: set[Value], itself: Value | None
    ) -> Node:
        ranges = self._ranges(place)
        builder = self._building(ranges, kept, itself)
        try:
            return builder.at(v, index)
        except LookupError as reason:
            raise Undecided(str(reason)) from None

    def _compare(
        self, found: Sequence[Node], wanted: Sequence[Node], place: _Place, solved: Point, zeros: bool = False,
        is_product: bool = False,
    ) -> str | None:  # fmt: skip
        """Where expressions differ, or None. `solved` are the wanted ones' variables in the found ones'."""
        ranges, kept = self._ranges(place), {x.value for x in loads(list(found))}
        symbols, open_ = Comparison(ranges, solved), None
        if all(symbols.same(a, b) for a, b in zip(found, wanted, strict=True)):
            return None
        for at in self._points(place, found, [substituted(c, solved) for n in wanted for c in conditions([n])]):
            fixed = {**{v: substitute(e, at) for v, e in solved.items()}, **at}
            compare = Comparison(ranges, fixed, lambda load, c: self._folded(load, c, place, kept))
            if all(compare.same(a, b) or compare.is_padding(a, b) for a, b in zip(found, wanted, strict=True)):
                continue
            nothing = any(is_zero(compare.settled(n)) for n in wanted)
            if is_product and nothing and any(is_zero(compare.settled(n)) or is_copy(n) for n in found):
                continue
            if zeros and all(is_zero(compare.settled(n)) for n in found) and not self._is_inside(found[0], solved, at, ranges):
                continue
            is_constant = any(isinstance(compare.settled(n), Scalar) and not is_zero(compare.settled(n)) for n in found)
            if zeros and is_constant and isinstance(compare.settled(wanted[0]), Load):
                return f"a constant that is no zero stands for an element at {shown(at)}"
            try:
                if self._differ(found, wanted, place, ranges, fixed, kept, is_product):
                    return f"the op computes something else at {shown(at)}"
            except Undecided as reason:
                open_ = open_ or str(reason)  # another point may tell
        if open_ is not None:
            raise Undecided(open_)
        return None

    def _differ(
        self, found: Sequence[Node], wanted: Sequence[Node], place: _Place, ranges: dict[Var, Interval], at: Point,
        kept: set[Value], is_product: bool,
    ) -> bool:  # fmt: skip
        """Whether two expressions that are written differently have different values for some elements, drawn by lot."""

        def folded(load: Load, trial: Trial) -> float:
            if load.value in kept or not is_fold(load.value):
                return trial.lot(load)
            op = load.value.op
            assert op is not None
            function = combined_function(op.regions[0])
            if function is None:
                raise Untried("a fold of its own kind")
            compare = Comparison(ranges, trial.at)
            terms = [trial.number(n) for n in self._folded(load, compare, place, kept)]
            total = terms[0]
            for x in terms[1:]:
                total = apply(op.regions[0].ops[0], function, (total, x))
            return total

        # What is read through copies and running results: a number for each value, where both read the same values.
        running = {x.value for x in loads(list(found)) if x.buffer is not None}
        compare = Comparison(ranges, at)
        if running and compare.values(found) != compare.values(wanted):
            raise Undecided("it is not written as the op's, and reads other values through copies")
        is_told = False
        try:
            for seed in range(3):
                mine, other = (
                    [Trial(ranges, at, seed, folded, running).number(n) for n in nodes] for nodes in (found, wanted)
                )
                if is_product:
                    mine, other = [float(np.prod(mine))], [float(np.prod(other))]
                if not all(map(close, mine, other)):
                    return True
                is_told = is_told or not any(x != x for x in mine)
        except Untried as reason:
            raise Undecided(f"it is not written as the op's, and {reason}") from None
        if not is_told:
            raise Undecided("it is not written as the op's, and no number tells them apart")
        if running:
            raise Undecided("it is not written as the op's, and takes copies for one number each")
        return False

    def _is_inside(self, node: Node, solved: Point, at: Point, ranges: Mapping[Var, Interval]) -> bool:
        """Whether the operand's element that a packed factor stands for is there at a point."""
        for n in all_nodes([node]):
            if isinstance(n, Choose):
                for load in loads([n.then]):
                    for e, size in zip(load.index, load.value.shape, strict=True):
                        b = interval(simplify(substitute(e, at), ranges), ranges)
                        if b.lower < 0 or b.upper >= size:
                            return False
        return not any("mod" in str(c.expression) for c in conditions([node]))

    def _points(self, place: _Place, found: Sequence[Node], more: Sequence[Condition]) -> list[dict[Var, Expr]]:
        """Iterations of a statement: all of few; else corners, of the part where each condition holds or fails as well, and both
        sides of each condition's ends, with as many of the other conditions as can hold there."""
        d = place.domain
        every = points_of(d)
        chosen: dict[tuple[int, ...], None] = {}

        def take(s: islpy.Set) -> None:
            p = sample(s) if len(chosen) < MOST_POINTS else None
            if p is not None:
                chosen[p] = None

        if prod(b.size for _, b in d.variables) <= MOST_OF_FEW:
            every.foreach_point(lambda p: take(islpy.Set.from_point(p)))
            return [{v: Const(x) for (v, _), x in zip(d.variables, p, strict=True)} for p in chosen]
        take(every)
        for v, b in d.variables:
            for x in dict.fromkeys((b.lower, b.upper, (b.lower + b.upper) // 2)):
                take(every.intersect(points_where(d, [Condition(v, x, x)])))
        known = set(d.ranges)
        asked = [c for c in dict.fromkeys((*conditions(found), *more)) if known.issuperset(as_expr(c.expression).variables)]
        held = {c: points_where(d, [c]) for c in asked}
        for c in asked:
            for part in (every.intersect(held[c]), every.subtract(held[c])):
                if not part.is_empty():
                    take(part.lexmin())
                    take(part.lexmax())
        for c in asked:
            e = as_expr(c.expression)
            b = interval(e, d.ranges)
            for x in dict.fromkeys((c.lower - 1, c.lower, c.upper, c.upper + 1)):
                if b.lower <= x <= b.upper and len(chosen) < MOST_POINTS:
                    at = every.intersect(points_where(d, [Condition(e, x, x)]))
                    take(at)
                    for other in asked[:MOST_TOGETHER]:
                        both = at.intersect(held[other])
                        at = at if other is c or both.is_empty() else both
                    take(at)
        return [{v: Const(x) for (v, _), x in zip(d.variables, p, strict=True)} for p in chosen]
