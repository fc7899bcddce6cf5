"""Questions about accesses, decided by isl within a budget: each answer is None, or a witness in words."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec

import islpy

from hlo.access import Condition
from hlo.errors import Declined
from indexing.exact.isl import bounded, domain_set, set_of_boxes, to_isl
from indexing.expr import Expr, Var, interval
from indexing.expressions.bounds import Interval
from indexing.map import Constraint, IndexingMap, Variable
from tiling.loops.domains.iterations import Access, Domain

__all__ = ["WIDENED", "Questions", "Undecided", "coordinates", "guard_set", "named", "points_of", "points_where", "relation_of"]

IN, OUT, SET = islpy.dim_type.in_, islpy.dim_type.out, islpy.dim_type.set


OPERATIONS_PER_SECOND = 500_000
"""Fewer than isl makes on any of today's machines."""


WIDENED = "read in more ways than are kept apart"
"""Why a question about reads has no answer: some of those that were looked at may not be made."""


class Undecided(Exception):
    """Carries the reason why a question has no answer within the budget."""


P = ParamSpec("P")


def _asked(question: Callable[Concatenate[Questions, P], str | None]) -> Callable[Concatenate[Questions, P], str | None]:
    """A method that answers with isl, within the budget of its `Questions`."""

    @functools.wraps(question)
    def ask(self: Questions, /, *args: P.args, **kwargs: P.kwargs) -> str | None:
        return self.ask(lambda: question(self, *args, **kwargs))

    return ask


class Questions:
    """Relations of accesses, remembered, and what isl says about them."""

    def __init__(self, operations: int, deadline: float) -> None:
        self.operations, self.deadline = operations, deadline
        self._relations: dict[tuple[Access, int], islpy.Map] = {}

    def ask(self, question: Callable[[], str | None]) -> str | None:
        if time.perf_counter() > self.deadline:
            raise Undecided("no time is left")
        try:
            # So many operations as isl may have time for: one question does not take more than what is left.
            left = int((self.deadline - time.perf_counter()) * OPERATIONS_PER_SECOND)
            answer = bounded(question, max(1, min(self.operations, left)))
        except (ValueError, islpy.Error) as reason:
            raise Undecided(str(reason)) from None
        if isinstance(answer, Declined):
            raise Undecided(answer.reason)
        return answer

    # ------------------------------------------------------------ questions

    @_asked
    def outside(self, d: Domain, e: Expr, n: int) -> str | None:
        """A point of the domain where `e` leaves [0, n - 1]."""
        every = points_of(d)
        b = interval(e, d.ranges)
        bad = []
        if b.lower < 0:
            bad.append(points_where(d, [Condition(e, b.lower, -1)]))
        if b.upper >= n:
            bad.append(points_where(d, [Condition(e, n, b.upper)]))
        for part in bad:
            found = every.intersect(part)
            if not found.is_empty():
                return named(found, [v.name for v, _ in d.variables])
        return None

    @_asked
    def not_once(self, writes: Sequence[Access], shape: Sequence[int]) -> str | None:
        """An element that several iterations write, or none."""
        total: islpy.Set | None = None
        for w in writes:
            r = self.relation(w, len(w.domain.variables))
            names = [v.name for v, _ in w.domain.variables]
            if not r.is_injective():
                twice = r.apply_range(r.reverse()).subtract(islpy.Map.identity(_pair(r)))
                return f"written by two iterations: {named(twice.wrap(), [*names, *(f'{n} again' for n in names)])}"
            reached = r.range()
            if total is not None:
                both = total.intersect(reached)
                if not both.is_empty():
                    return f"written by two steps at {named(both, _axes(len(shape)))}"
            total = reached if total is None else total.union(reached)
        assert total is not None
        missing = _box(shape).subtract(total)
        return None if missing.is_empty() else f"never written at {named(missing, _axes(len(shape)))}"

    @_asked
    def unproduced(self, a: Access, mine: Sequence[Access], earlier: Sequence[Access]) -> str | None:
        """A position that `a` reads and nothing has written: in its own task before, or in an earlier phase."""
        # A pack belongs to its block: there the loops around both count, too.
        depth = a.domain.shared
        left = self.relation(a, depth)
        inner = [w for w in mine if w.order[:2] == a.order[:2]]
        for w in mine:
            if w not in inner:
                left = left.subtract(self.relation(w, depth))
        for w in earlier:
            left = left.subtract_range(self.relation(w, 0).range())
        if left.is_empty():
            return None
        names = [v.name for v, _ in a.domain.variables[:depth]]
        if inner:
            depth += min(a.around, *(w.around for w in inner))
            full = self.relation(a, depth)
            for w in inner:
                full = full.subtract(self.relation(w, depth))
            for w in mine:
                if w not in inner:
                    full = full.subtract(_widened(self.relation(w, a.domain.shared), depth))
            for w in earlier:
                full = full.subtract_range(self.relation(w, 0).range())
            if full.is_empty():
                return None
            left, names = full, [v.name for v, _ in a.domain.variables[:depth]]
        return f"read but not written: {named(left.wrap(), [*names, *_axes(len(a.at))])}"

    @_asked
    def meet(
        self, a: Access, w: Access, across_tasks: bool = False, other_iteration: bool = False, blocks: int = 0
    ) -> str | None:
        """A position that both touch: in one task (one of its `blocks`), in any two, or in different iterations of one step."""
        if across_tasks:
            both = self.relation(a, 0).range().intersect(self.relation(w, 0).range())
            return None if both.is_empty() else named(both, _axes(len(a.at)))
        depth = a.domain.shared + blocks
        if not other_iteration:
            same = self.relation(a, depth).intersect(self.relation(w, depth))
            names = [v.name for v, _ in a.domain.variables[:depth]]
            return None if same.is_empty() else named(same.wrap(), [*names, *_axes(len(a.at))])
        loops = [v for v, _ in w.domain.variables]
        n = len(loops)
        reads, writes = self.relation(a, n), self.relation(w, n)
        pairs = reads.apply_range(writes.reverse())
        if [v for v, _ in a.domain.variables[:n]] == loops:
            pairs = pairs.subtract(islpy.Map.identity(_pair(pairs)))
        for k in range(depth):
            pairs = pairs.equate(IN, k, OUT, k)
        names = [v.name for v in loops]
        return None if pairs.is_empty() else named(pairs.wrap(), [*names, *(f"{x} of the write" for x in names)])

    @_asked
    def not_apart(self, accesses: Sequence[Access], group: int = 1) -> str | None:
        """Two tasks, each of `group` tiles, of which one writes where the other reads or writes."""
        depth, alike = accesses[0].domain.shared, accesses[0].domain.alike
        alike = alike if all(a.domain.alike == alike for a in accesses) else ()
        names = [v.name for v, _ in accesses[0].domain.variables[:depth]]
        written: islpy.Map | None = None
        touched: islpy.Map | None = None
        for a in accesses:
            r = self.relation(replace(a, domain=_with_first(a.domain, alike)) if alike else a, depth + len(alike))
            touched = r if touched is None else touched.union(r)
            if a.kind.value != "reads":
                written = r if written is None else written.union(r)
        assert written is not None and touched is not None
        pairs = written.coalesce().apply_range(touched.coalesce().reverse())
        for k in range(depth, depth + len(alike)):
            pairs = pairs.equate(IN, k, OUT, k)
        for side in (IN, OUT) if alike else ():
            pairs = pairs.project_out(side, depth, len(alike))
        pairs = pairs.subtract(islpy.Map.identity(_pair(pairs)) if group == 1 else _same_task(pairs, group))
        if pairs.is_empty():
            return None
        return f"two tasks meet: {named(pairs.wrap(), [*names, *(f'{n} of the other' for n in names)])}"

    # ------------------------------------------------------------ relations

    def relation(self, a: Access, depth: int) -> islpy.Map:
        """(the first `depth` variables of the domain) -> positions."""
        key = (a, depth)
        if key not in self._relations:
            full = self._relations.get((a, -1))
            if full is None:
                full = to_isl(_as_map(a.domain, a.at))
                for group in a.domain.failed:
                    full = full.subtract_domain(points_where(a.domain, group))
                self._relations[a, -1] = full
            n = len(a.domain.variables)
            made = full.project_out(IN, depth, n - depth) if n > depth else full
            for k in range(depth):
                made = made.set_dim_name(IN, k, f"i{k}")
            self._relations[key] = made
        return self._relations[key]


def _with_first(d: Domain, chosen: Sequence[Var]) -> Domain:
    """The domain with these variables right after the tile numbers."""
    tiles, rest = d.variables[: d.shared], d.variables[d.shared :]
    first = [(v, b) for v in chosen for x, b in rest if x is v]
    return replace(d, variables=(*tiles, *first, *(x for x in rest if x[0] not in chosen)))


def _as_map(d: Domain, results: Sequence[Expr], conditions: Sequence[Condition] = ()) -> IndexingMap:
    ranges = d.ranges
    constraints = []
    for c in (*d.held, *conditions):
        span = interval(c.expression, ranges).intersect(Interval(c.lower, c.upper))
        constraints.append(Constraint(c.expression, span))
    return IndexingMap(tuple(Variable(v, b) for v, b in d.variables), tuple(results), constraints=tuple(constraints))


def relation_of(d: Domain, results: Sequence[Expr]) -> islpy.Map:
    """From the points of a domain to the values of some expressions there."""
    full = to_isl(_as_map(d, results))
    for group in d.failed:
        full = full.subtract_domain(points_where(d, group))
    return full


def points_where(d: Domain, conditions: Sequence[Condition]) -> islpy.Set:
    """The points of the domain's box where some conditions hold."""
    return domain_set(_as_map(Domain(d.variables, ()), (), conditions))


def guard_set(variables: Sequence[tuple[Var, Interval]], group: Sequence[Condition]) -> islpy.Set:
    """The points of some variables where all of a group of conditions hold."""
    return points_where(Domain(tuple(variables), ()), group)


def points_of(d: Domain) -> islpy.Set:
    found = domain_set(_as_map(d, ()))
    for group in d.failed:
        found = found.subtract(points_where(d, group))
    return found


def _pair(m: islpy.Map) -> Any:
    return islpy.Space.map_from_set(m.get_space().domain())


def _same_task(pairs: islpy.Map, group: int) -> islpy.Map:
    """{ (t) -> (u) : t // group = u // group }."""
    local = islpy.LocalSpace.from_space(_pair(pairs).domain())
    number = islpy.Aff.var_on_domain(local, SET, 0).scale_down_val(islpy.Val.int_from_si(pairs.get_ctx(), group)).floor()
    task = islpy.Map.from_aff(number)
    return task.apply_range(task.reverse())


def _widened(m: islpy.Map, depth: int) -> islpy.Map:
    """The relation with more dimensions in front of the arrow, on which nothing depends."""
    have = m.dim(IN)
    return m.insert_dims(IN, have, depth - have) if depth > have else m


def _axes(n: int) -> list[str]:
    return [f"x{k}" for k in range(n)]


def _box(shape: Sequence[int]) -> islpy.Set:
    return set_of_boxes(len(shape), [[(0, n - 1, 1) for n in shape]])


def named(s: islpy.Set, names: Sequence[str]) -> str:
    """A point of the set, coordinate by coordinate."""
    values = coordinates(s.sample_point())
    return ", ".join(f"{n} = {x}" for n, x in zip(names, values, strict=True)) or "the only point"


def coordinates(p: islpy.Point) -> list[int]:
    """A point's coordinates."""
    return [p.get_coordinate_val(SET, k).to_python() for k in range(p.get_space().dim(SET))]
