"""Folds: is what they fold what the op folds, from its initial value, each element once, and in an order that may be?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import islpy

from hlo.access import Condition
from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import Fold
from indexing.exact.isl import context
from indexing.expr import Const, Expr, Interval, Var, substitute
from tiling.elements.folds import combined_function, has_own_body
from tiling.elements.monoids import monoid_of
from tiling.loops.carry import starts_from_state
from tiling.loops.domains.iterations import Domain
from tiling.loops.element_ir import (
    Choose,
    Load,
    Node,
    loads,
)
from tiling.loops.ir import Buffer, FoldStep, Loop, LoopKind, Scope
from tiling.loops.monoid import Monoid
from tiling.proving.contents.compared import Assumed, Different, Place, Taken
from tiling.proving.contents.parts_of_lowered import PartsOfLowered
from tiling.proving.contents.same_expression import (
    same_body,
    same_expression,
)
from tiling.proving.contents.statements import (
    changes_nothing,
    is_one,
    solutions,
    solve_for,
    starting,
    unscaled,
)
from tiling.proving.relations import Undecided, coordinates, named, points_where, relation_of

__all__ = ["Folds"]

SET = islpy.dim_type.set


class Folds(PartsOfLowered):
    """Checks of folds and of sums of products."""

    lowered: Folds | None

    def _fold(self, f: FoldStep, place: Place) -> str | None:
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
            return self._put_together(f, op)
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

    def _taken(self, f: FoldStep, place: Place) -> Taken:
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
        nodes = builder.reads(op, f.values[0].index, index, provide)
        wanted = nodes[:count] if is_fold else nodes
        if len(wanted) != len(f.nodes):
            raise Different(f"{len(f.nodes)} nodes are folded or multiplied, the op takes {len(wanted)}")
        solved = self._solved(f, place, wanted, made, free, ranges)
        element = f.index if len(f.index) == f.values[0].rank else tuple(solved.get(v, v) for v in free)
        return Taken(tuple(wanted), solved, (*made, *free), ranges, element, tuple(made))

    def _solved(
        self, f: FoldStep, place: Place, wanted: Sequence[Node], made: Sequence[Var], free: Sequence[Var],
        ranges: Mapping[Var, Interval],
    ) -> dict[Var, Expr]:  # fmt: skip
        """The variables of what an op folds, at an iteration: what makes its expressions those that are folded."""
        solved = solve_for(wanted, f.nodes, (*made, *free), ranges)
        # What no load tells: the loops stand in the order of the op's range.
        loops = [x for x in place.reduction if not any(x.variable in e.variables for e in solved.values())]
        for q in (q for q in made if q not in solved):
            loop = next((x for x in loops if x.extent == ranges[q].size), None)
            if loop is not None:
                loops.remove(loop)
                solved[q] = loop.variable
        # Loads do not always tell one index from the next, as between holes: perhaps the loops are the op's range as it is.
        in_order = dict[Var, Expr](solved)
        if len(place.reduced) == len(made):
            spans = place.domain.ranges
            if all(ranges[q].covers(spans[x]) for q, x in zip(made, place.reduced, strict=True)):
                in_order.update(zip(made, place.reduced, strict=True))
        if in_order != solved and self._are_same(f.nodes, wanted, ranges, in_order):
            return in_order
        if self._are_same(f.nodes, wanted, ranges, solved):
            return solved
        for other in solutions(wanted, f.nodes, (*made, *free), ranges):
            if self._are_same(f.nodes, wanted, ranges, {**solved, **other}):
                return {**solved, **other}
        if in_order != solved and self._agree(f, wanted, place, in_order):
            return in_order
        return solved

    def _agree(self, f: FoldStep, wanted: Sequence[Node], place: Place, solved: Mapping[Var, Expr]) -> bool:
        """Whether nothing is found in which what is folded differs from what the op folds there."""
        try:
            return self._compare(f.nodes, wanted, place, solved, is_product=f.values[0] in self.products) is None
        except Undecided:
            return False

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
            goes_on = starts_from_state(f)
            shared = place.domain.shared if self._stays_in_task(v, f.buffers[0]) else 0
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
            if not m.is_injective() and len(place.reduced) == len(taken.made):
                # Loads that stand for each other by chance: perhaps the loops are the op's range as it is, or a part of it.
                in_order = dict(zip(taken.made, place.reduced, strict=True))
                fits = all(taken.ranges[x].covers(place.domain.ranges[y]) for x, y in in_order.items())
                if fits and self._agree(f, taken.wanted, place, {**taken.solved, **in_order}):
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
        is_empty = v.op is not None and any(o.tensor.size_elems == 0 for o in v.op.operands)
        if total is None or not covers or is_empty or v in self.contracted:
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

    def has_order(self, v: Value) -> bool:
        """Whether it may count in which order a value's elements are folded: nothing shows that its body has none."""
        op = v.op
        if op is None or not isinstance(op.definition.semantics, Fold) or not has_own_body(op):
            return False
        return any(
            isinstance(monoid_of(f, (), self.schedule.ranges, self.monoids), Declined) for f, nest, *_ in self.folds[v]
            if not self._are_parts(f) and all(x.kind is not LoopKind.SCAN for x in nest.loops)
        )  # fmt: skip

    def in_order(self, v: Value) -> str | None:
        return self.ask.ask(lambda: self._told(lambda: self._in_order(v)))

    def _in_order(self, v: Value) -> str | None:
        """Two elements of the op's range that one step folds the other way round."""
        for f, nest, place, _ in self.folds[v]:
            if any(x.kind is LoopKind.SCAN for x in nest.loops) or self._are_parts(f):
                continue
            taken, domain = self._taken(f, place), place.domain
            q = [taken.solved.get(x, x) for x in taken.made]
            order = [k for e in q for k, (x, _) in enumerate(domain.variables) if x is e]
            if len(order) == len(q) and order == sorted(order):
                continue
            if any(x not in domain.ranges for e in (*q, *taken.at) for x in e.variables):
                raise Assumed("which elements of its range an iteration folds does not follow from what it loads")
            key = (*(x for x, _ in domain.variables[: domain.shared]), *taken.at)
            m = relation_of(domain, (*key, *q))
            earlier = m.reverse().apply_range(islpy.Map.lex_lt(m.get_space().domain())).apply_range(m)
            same = islpy.Map.identity(islpy.Space.alloc(context(), 0, len(key), len(key)))
            later = islpy.Map.lex_gt(islpy.Space.set_alloc(context(), 0, len(q)))
            wrong = earlier.intersect(same.flat_product(later))
            if not wrong.is_empty():
                names = [f"{x}{k}{tag}" for tag in ("", "'") for x, n in (("i", len(key)), ("r", len(q))) for k in range(n)]
                return f"r is folded before r': {named(wrong.wrap(), names)}"
        return None

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
        starts = [builder.outside(op, k) for k in range(count or len(op.operands))]
        nodes = builder.reads(op, v.index, dims, provide)
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

    def _put_together(self, f: FoldStep, op: Op) -> str | None:
        """Why the parts of a fold may not be folded so, each from the initial value; None where they may."""
        own = [n for n in f.nodes if isinstance(n, Load) and n.buffer is not None and n.value in f.values]
        if any(n.index != own[0].index for n in own):
            return "parts of its results are taken from different places"
        parts = tuple(n.buffer for n in own)
        if len(own) > 1 and not any(g.buffers == parts for g, *_ in self.folds[f.values[0]]):
            return "what it puts together is not what one step folded"
        if not isinstance(op.definition.semantics, Fold):
            return None if f.op is op else "parts of sums are added by another op"
        reasons: list[str] = []
        for piece, nest, _, _ in self.folds[f.values[0]]:
            if self._are_parts(piece):
                continue
            over: list[tuple[Loop, ...]] = [(x,) for x in nest.reductions] or [()]
            found = [monoid_of(piece, x, self.schedule.ranges, self.monoids) for x in over]
            monoids = [m for m in found if isinstance(m, Monoid)]
            starting = [m for m in monoids if m.starts_parts and m.for_nan]
            if any(m.body is not None and same_body(m.body, f.op.regions[0]) for m in starting):
                return None
            if starting:
                return "parts of a fold are put together by another body"
            if monoids:
                return "each part starts from an initial value that is not neutral"
            reasons += [m.reason for m in found if isinstance(m, Declined)]
        raise Undecided("; ".join(["whether its parts may be folded by themselves is not known", *dict.fromkeys(reasons)]))

    def _stays_in_task(self, v: Value, b: Buffer) -> bool:
        """Whether each task folds all of a value for itself; where parts in its own memory become a shared part it does not."""
        seen = [b]
        for f, *_ in self.folds[v]:
            if self._are_parts(f) and f.buffers[0] not in seen and any(x.buffer is seen[-1] for x in loads(f.nodes)):
                seen.append(f.buffers[0])
        return all(x.scope is Scope.THREAD for x in seen)

    def _are_parts(self, f: FoldStep) -> bool:
        """Whether a fold puts together what an earlier step folded in parts (a product's parts times one)."""
        own = [n for n in f.nodes if isinstance(n, Load) and n.buffer is not None and n.value in f.values]
        rest = [n for n in f.nodes if n not in own]
        return bool(own) and [n.value for n in own if isinstance(n, Load)] == list(f.values) and all(is_one(n) for n in rest)
