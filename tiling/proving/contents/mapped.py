"""What a schedule reads against what the program's maps say: is the loaded element the mapped one, and are all of them loaded?

    reads(v, w)  = {element of v that an iteration stores -> element of w that it loads}      from the schedule
    needs(v, w)  = {element of v -> element of w}                                             from the ops' index maps

    mapped       reads(v, w) is within needs(v, w)
    paired       what a sum of products multiplies are the two elements of one of its products
    complete     for the elements that are stored, needs(v, w) is within reads(v, w): a reduction covers its whole range,
                 and folds each element of it once

Copies (packed operands, turned tiles, the pieces of a reduction) are looked through: what a copy was made of is what is read.
What an op may read but need not (the rest of an updated tensor, the branches of a select) and what a scan carries along are no
part of `complete`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from math import prod

import islpy

from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import SumOfProducts
from indexing.deriving.derive import Reads
from indexing.exact.isl import context, full_relation
from indexing.expr import Expr, Interval, substitute
from indexing.map import IndexingMap
from indexing.transform import merge_runtimes
from tiling.loops.domains.iterations import Access, Domain
from tiling.loops.element_ir import loads
from tiling.loops.ir import Buffer, Contract, Nest, Schedule, Scope
from tiling.proving.contents.each_iteration import in_every_iteration, leads_along
from tiling.proving.contents.element_relations import (
    factors,
    in_any_block,
    maps_that_count,
    optional_reads,
    pair,
    plain,
    relation,
    same_everywhere,
    square,
    written,
)
from tiling.proving.contents.left_out import LeftOut
from tiling.proving.contents.statements import states
from tiling.proving.contents.written_and_read import Flow, Statement, index_of, statements_of, sums_apart
from tiling.proving.relations import WIDENED, Questions, Undecided, named, relation_of

__all__ = ["mapped_questions"]

IN, OUT = islpy.dim_type.in_, islpy.dim_type.out
COPIES = 3  # so many copies of copies are looked through
DEPTH = 24  # so many values computed in place of one another are looked through


Question = tuple[str, str, Callable[[], str | None]]


def mapped_questions(schedule: Schedule, ask: Questions) -> Iterator[Question]:
    """(obligation, subject, question) for each value that a schedule computes in loops: `mapped`, `complete`, `paired`.

    A question gives a witness against the obligation or None, and raises Undecided.
    """
    statements = list(statements_of(schedule))
    copies: dict[Buffer, list[Statement]] = {}
    for s in statements:
        if s.value is None:
            copies.setdefault(s.write.buffer, []).append(s)
    for step in (x for p in schedule.phases for x in p.before if isinstance(x, Nest)):
        for x in step.stores:  # what running results start from
            if not loads([x.node]):
                copies.setdefault(x.buffer, [])
    given = {b.value for b in schedule.buffers_in(Scope.ARGUMENT) if b.value is not None}
    kept = (
        given
        | {b.value for b in schedule.buffers if b.value is not None}
        | {s.value for s in statements if s.value is not None}
    )
    kept_values = {**_sums_of_one(schedule), **states(schedule)}
    apart = sums_apart(schedule)
    running = {s.value for s in statements if s.in_blocks}
    everything = _flags_are_down(schedule)
    left_out = None if everything else LeftOut(schedule)
    for s in statements:
        if left_out is not None and s.zeros is not None and s.value is not None:
            yield "left out", f"{s.zeros}: zeros", partial(ask.ask, partial(_not_zero, s.zeros, s.value, left_out))
    for s in statements:
        # What a sequential loop leaves is stored after it as it is, or divided: the loop's own statements say what it reads.
        if s.value is None or s.value.op is None or (s.value in running and not s.in_blocks) or s.is_moved:
            continue
        check = _Check(s, copies, kept, given, ask, left_out, kept_values, apart)
        yield "mapped", str(s.write), check.mapped
        yield "complete", str(s.write), check.complete
        if isinstance(s.value.op.definition.semantics, SumOfProducts):
            yield "paired", str(s.write), check.paired
        if s.depth:
            yield "folded once", str(s.write), partial(ask.ask, partial(_twice, s, s.value.op))


def _sums_of_one(schedule: Schedule) -> dict[Buffer, Value]:
    """The buffers that hold one value's sums alone, each at its own index, wider than the value is."""
    found: dict[Buffer, set[Value | None]] = {}
    for step in (s for p in schedule.phases for s in (*p.before, *p.all_steps)):
        for nest in (step,) if isinstance(step, Nest) else step.pack if isinstance(step, Contract) else ():
            for x in nest.stores:
                found.setdefault(x.buffer, set()).add(x.value)
            for f in nest.folds:
                for v, b in zip(f.values, f.buffers, strict=True):
                    found.setdefault(b, set()).add(v if len(f.index) == v.rank else None)
    return {b: v for b, held in found.items() if b.value is None and len(held) == 1 for v in held if v is not None}


def _flags_are_down(schedule: Schedule) -> bool:
    """Whether this is the case in which nothing is left out."""
    return all(schedule.ranges.get(f.variable) == Interval(0, 0) for p in schedule.phases for f in p.flags)


class _Check:
    def __init__(
        self, statement: Statement, copies: Mapping[Buffer, list[Statement]], kept: set[Value], given: set[Value],
        ask: Questions, left_out: LeftOut | None, states: Mapping[Buffer, Value], apart: Mapping[Buffer, Contract],
    ) -> None:  # fmt: skip
        self.statement, self.copies, self.ask, self.left_out = statement, copies, ask, left_out
        self.kept, self.given, self.states, self.apart = kept, given, states, apart
        assert statement.value is not None
        self.value = statement.value
        self._found: dict[Value, islpy.Map] | None = None

    def mapped(self) -> str | None:
        return self._of_what_is_read(self.ask.ask(self._mapped), True)

    def complete(self) -> str | None:
        if self.statement.carries:
            return None
        return self._of_what_is_read(self.ask.ask(self._complete if self.left_out is None else self._complete_but_neutral), False)

    def _of_what_is_read(self, witness: str | None, against: bool) -> str | None:
        """What was found of all that may be read, where a witness `against` the obligation has to be a read that is made."""
        if (witness is not None) == against and any(a.domain.widened for a in self.statement.reads):
            raise Undecided(f"{WIDENED}: {witness or 'nothing else is missing'}")
        return witness

    def _mapped(self) -> str | None:
        flows = [f for f in self._flows() if f.value is not self.value]
        maps = maps_that_count(self.value, self.kept - {self.value}, False)
        if all(any(leads_along(self.statement.write, f, m) for m in maps.get(f.value, ())) for f in flows):
            return None
        for w, r in self._reads().items():
            if w is self.value:
                continue
            if self.statement.blocks:
                r = r.project_out(IN, 0, len(self.statement.blocks))
            unknown: list[str] = []
            left = r.subtract(self._needs(w, self.kept - {self.value}, unknown))
            if not left.is_empty():
                # Through another value that is kept, but computed again here.
                left = left.subtract(self._needs(w, (w,), unknown))
            if not left.is_empty() and unknown:
                raise Undecided(unknown[0])
            if not left.is_empty():
                return f"%{w.name or '?'} is read where no map leads: {pair(left, w)}"
        return None

    def _complete(self) -> str | None:
        reads = self._reads()
        todo = self._stored()
        for _ in range(DEPTH):
            # What is not loaded may have been computed in its place, from what it needs itself.
            following: list[tuple[Value, islpy.Map]] = []
            for v, missing in todo:
                optional, same = optional_reads(v, self.kept), same_everywhere(v, self.kept)
                if v in same:
                    continue
                for w, maps in maps_that_count(v, (self.kept | same) - {v}, True).items():
                    if w is v or w not in self.kept or w in optional:
                        continue
                    for m in maps:
                        if m.unknown is not None:
                            raise Undecided(m.unknown.reason)
                        if v is self.value and self._is_loaded_along(m, w):
                            continue
                        rest = missing.apply_range(plain(full_relation(merge_runtimes(m))))
                        rest = rest.subtract(reads[w]) if w in reads else rest
                        if rest.is_empty():
                            continue
                        if w.op is None or w in self.given:
                            return f"%{w.name or '?'} is needed but not read: {pair(rest, w)}"
                        following.append((w, rest))
            todo = following
            if not todo:
                return None
        raise Undecided(f"more than {DEPTH} values are computed in place of one another")

    def _is_loaded_along(self, m: IndexingMap, w: Value) -> bool:
        """Whether each iteration loads the one element that `m` leads to, so that nothing along it is missing."""
        write, statement = self.statement.write, self.statement
        if statement.in_blocks and statement.goes_on:
            return False  # elements are there that no iteration stores
        return any(f.value is w and in_every_iteration(f.read, write) and leads_along(write, f, m) for f in self._flows())

    def _stored(self) -> list[tuple[Value, islpy.Map]]:
        """What is stored: its elements, as relations from (block, where each one starts anew, and element)."""
        blocks = self.statement.blocks
        found: list[tuple[Value, islpy.Map]] = []
        write = self.statement.write
        if self.statement.in_blocks and self.statement.goes_on:
            write = in_any_block(write, self.statement.loops[0].variable)
        for stored in written(write, blocks):
            m = islpy.Map.identity(square(stored)).intersect_domain(stored)
            found.append((self.value, m.project_out(OUT, 0, len(blocks)) if blocks else m))
        return found

    def _complete_but_neutral(self) -> str | None:
        """What is not read while the flags are 1, though it counts."""
        assert self.left_out is not None
        reads = self._reads()
        todo = self._stored()
        for _ in range(DEPTH):
            following: list[tuple[Value, islpy.Map]] = []
            for v, missing in todo:
                needs = self.left_out.needs(v)
                if isinstance(needs, Declined):
                    if self._complete() is None:  # whatever counts: all that is needed without a flag is read
                        return None
                    raise Undecided(needs.reason)
                for w, r in needs.items():
                    rest = missing.apply_range(plain(r))
                    rest = rest.subtract(reads[w]) if w in reads else rest
                    if rest.is_empty():
                        continue
                    if w not in self.left_out.members or w in self.given:
                        return f"%{w.name or '?'} counts but is not read: {pair(rest, w)}"
                    following.append((w, rest))
            todo = following
            if not todo:
                return None
        raise Undecided(f"more than {DEPTH} values are computed in place of one another")

    def _reads(self) -> dict[Value, islpy.Map]:
        """For each value that the statement loads, from the element stored to the elements loaded."""
        if self._found is None:
            found: dict[Value, islpy.Map] = {}
            for flow in self._flows():
                w, r = flow.value, relation(self.statement.write, [flow], self.statement.blocks)
                found[w] = found[w].union(r) if w in found else r
            self._found = found
        return self._found

    def _flows(self) -> Iterator[Flow]:
        """Every load, copies looked through."""
        for read in self.statement.reads:
            for value, element, copies in self._sources(read):
                yield Flow(value, read, element, copies)

    def _sources(
        self, read: Access, through: int = 0
    ) -> Iterator[tuple[Value, tuple[Expr, ...], tuple[tuple[Access, Access], ...]]]:
        """(value, element, copies on the way) of what a load may find where it reads."""
        value = read.value or self.states.get(read.buffer)
        if read.buffer.scope is Scope.ARGUMENT and value is None:
            value = read.buffer.value  # nothing else is ever there
        sums = self.apart.get(read.buffer)
        if value is not None and (read.index is None or len(read.index) == value.rank):
            yield value, index_of(read), ()
        elif sums is not None:
            at = dict(zip(sums.places, read.at, strict=True)) if sums.element else {}
            yield sums.value, tuple(substitute(e, at) for e in sums.element) if sums.element else index_of(read), ()
        elif read.buffer not in self.copies or through == COPIES:
            raise Undecided(f"{read.buffer.name} holds copies of what is not known")
        else:
            for s in self.copies[read.buffer]:
                for inner in s.reads:
                    for source, element, copies in self._sources(inner, through + 1):
                        yield source, element, ((s.write, inner), *copies)

    def paired(self) -> str | None:
        return self._of_what_is_read(self.ask.ask(self._paired), True)

    def _paired(self) -> str | None:
        """Two factors that are multiplied although the op multiplies others."""
        op = self.value.op
        assert op is not None
        flows = list(self._flows())
        for k, a in enumerate(flows):
            for b in flows[k + 1 :]:
                if a.read is b.read:
                    continue  # ways to reach one load
                left = relation(self.statement.write, [a, b]).subtract(factors(op, a.value, b.value))
                if not left.is_empty():
                    names = [f"x{i}" for i in range(left.dim(IN))]
                    names += [f"%{w.name or '?'} at y{i}" for w in (a.value, b.value) for i in range(w.rank)]
                    return f"multiplied, though the op does not: {named(left.wrap(), names)}"
        return None

    def _needs(self, w: Value, until: Collection[Value], unknown: list[str]) -> islpy.Map:
        """Where the maps lead that are known; why others are not is added to `unknown`."""
        total: islpy.Map | None = None
        for m in maps_that_count(self.value, until, False).get(w, ()):
            if m.unknown is not None:
                unknown.append(m.unknown.reason)
                continue
            r = plain(full_relation(merge_runtimes(m)))
            total = r if total is None else total.union(r)
        if total is None:
            space = islpy.Space.alloc(context(), 0, self.value.rank, w.rank)
            return islpy.Map.empty(space)
        return total


def _not_zero(zeros: Access, value: Value, left_out: LeftOut) -> str | None:
    """An element that is filled with zero though it may be something else."""
    for filled in written(zeros):
        wrong = filled.intersect(left_out.not_zero(value))
        if not wrong.is_empty():
            return f"%{value.name or '?'} need not be zero: {named(wrong, [f'x{k}' for k in range(value.rank)])}"
    return None


def _twice(s: Statement, op: Op) -> str | None:
    """A product that a contraction sums twice, by where its factors lie; unless the op has so many of the same."""
    accesses = (*s.reads, s.write)
    around = s.write.domain.shared + s.write.domain.blocks
    variables = tuple({v: b for a in accesses for v, b in a.domain.variables}.items())
    held = tuple(dict.fromkeys(c for a in accesses for c in a.domain.held))
    d = Domain(variables, held)
    key = tuple(v for v, _ in s.write.domain.variables[:around])
    if relation_of(d, (*key, *(e for a in accesses for e in a.at))).is_injective():
        return None
    every = prod(v.interval.size for v in Reads(op, 0).ranges)
    return None if s.depth == every else f"a product is summed twice: {s.depth} of the op's {every}"
