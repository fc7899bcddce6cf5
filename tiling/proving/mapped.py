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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import islpy

from hlo.access import Condition
from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import Elementwise, Fold, Move, SumOfProducts
from hlo.types import ElementType, TensorType
from indexing.derive import Reads, reads_of
from indexing.expr import Expr, Interval, Var, as_expr, interval, substitute
from indexing.isl import context, full_relation, to_isl
from indexing.map import Constraint, IndexingMap, Variable, compose
from indexing.may_read import MAY_READ
from indexing.program import maps_from
from indexing.transform import merge_runtimes
from tiling.loops.accesses import Access, Domain, Kind, Reader, Unmodelled, buffers_by_value
from tiling.loops.element_ir import Load, loads
from tiling.loops.ir import Buffer, Contract, FoldStep, Loop, LoopKind, Nest, Schedule, Scope, Sequential, Turn
from tiling.proving.left_out import LeftOut
from tiling.proving.relations import Questions, Undecided, guard_set, named, relation_of

__all__ = ["mapped_questions"]

IN, OUT = islpy.dim_type.in_, islpy.dim_type.out
NOTHING_APART: Mapping[int, Contract] = {}
COPIES = 3  # so many copies of copies are looked through
DEPTH = 24  # so many values computed in place of one another are looked through


@dataclass(frozen=True, eq=False)
class _Statement:
    """One store, fold or product: `value` None for a copy. `carries` says that it starts from an earlier iteration's result."""

    value: Value | None
    write: Access
    reads: tuple[Access, ...]
    carries: bool = False
    fold: FoldStep | None = None
    loops: tuple[Loop, ...] = ()
    in_blocks: bool = False
    goes_on: bool = False  # from what an earlier block left
    zeros: Access | None = None  # stored where the value is not computed
    depth: int = 0  # products that a contraction sums for each element
    is_moved: bool = False  # the value was made elsewhere, which its own statement says, and is put here element by element


    @property
    def blocks(self) -> tuple[Var, ...]:
        """The number of the block, where what an earlier one left is overwritten."""
        return (self.loops[0].variable,) if self.in_blocks and not self.goes_on else ()


@dataclass(frozen=True, eq=False)
class _Flow:
    """A load of an element of `value`: directly, or through `copies`, of which each one access wrote and another one read for."""

    value: Value
    read: Access
    element: tuple[Expr, ...]
    copies: tuple[tuple[Access, Access], ...] = ()


Question = tuple[str, str, Callable[[], str | None]]


def mapped_questions(schedule: Schedule, ask: Questions) -> Iterator[Question]:
    """(obligation, subject, question) for each value that a schedule computes in loops: `mapped`, `complete`, `paired`.

    A question gives a witness against the obligation or None, and raises Undecided.
    """
    statements = list(_statements(schedule))
    copies: dict[int, list[_Statement]] = {}
    for s in statements:
        if s.value is None:
            copies.setdefault(id(s.write.buffer), []).append(s)
    for step in (x for p in schedule.phases for x in p.before if isinstance(x, Nest)):
        for x in step.stores:  # what running results start from
            if not loads([x.node]):
                copies.setdefault(id(x.buffer), [])
    given = {b.value for b in schedule.buffers_in(Scope.ARGUMENT) if b.value is not None}
    kept = (
        given
        | {b.value for b in schedule.buffers if b.value is not None}
        | {s.value for s in statements if s.value is not None}
    )
    states = _states(schedule)
    apart = _sums_apart(schedule)
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
        check = _Check(s, copies, kept, given, ask, left_out, states, apart)
        yield "mapped", str(s.write), check.mapped
        yield "complete", str(s.write), check.complete
        if isinstance(s.value.op.definition.semantics, SumOfProducts):
            yield "paired", str(s.write), check.paired
        if s.depth:
            yield "folded once", str(s.write), partial(ask.ask, partial(_twice, s, s.value.op))


def _states(schedule: Schedule) -> dict[int, Value]:
    """The values whose running results a sequential loop keeps in buffers: by the buffer's id."""
    found: dict[int, Value] = {}
    for step in (s for p in schedule.phases for s in p.steps if isinstance(s, Sequential)):
        for nest in (s for s in step.steps if isinstance(s, Nest)):
            roots = [s.node for s in nest.stores] + [n for f in nest.folds for n in (*f.nodes, *f.inits)]
            found |= {id(x.buffer): x.value for x in loads(roots) if x.buffer is not None}
    return found


def _flags_are_down(schedule: Schedule) -> bool:
    """Whether this is the case in which nothing is left out."""
    return all(schedule.ranges.get(f.variable) == Interval(0, 0) for p in schedule.phases for f in p.flags)


# ---------------------------------------------------------------- statements


def _statements(schedule: Schedule) -> Iterator[_Statement]:
    by_value = buffers_by_value(schedule)
    apart = _sums_apart(schedule)
    for number, phase in enumerate(schedule.phases):
        for k, step in enumerate(phase.steps, len(phase.before)):
            reader = Reader(schedule, by_value, phase, (number, k), f"phase {number} step {k}")
            try:
                if isinstance(step, Nest):
                    yield from _of_nest(step, reader, apart)
                elif isinstance(step, Contract):
                    yield from _of_contract(step, reader)
                elif isinstance(step, Sequential):
                    yield from _of_blocks(step, reader)
                elif isinstance(step, Turn):
                    read, write = reader.turn(step)
                    yield _Statement(step.target.buffer.value, write, (read,))
            except Unmodelled:
                continue  # said by the obligation "modelled"


def _sums_apart(schedule: Schedule) -> dict[int, Contract]:
    """The contractions whose sums lie in a buffer of their own: by its id."""
    made = [c for p in schedule.phases for c in p.steps if isinstance(c, Contract) and c.out.buffer.value is None]
    return {id(c.out.buffer): c for c in made if c.element or len(c.out.buffer.shape) == c.value.rank}


def _of_blocks(step: Sequential, reader: Reader) -> Iterator[_Statement]:
    """The statements of a sequential loop: over all of its blocks they read what one nest would."""
    with reader.within(step):
        for s in step.steps:
            for made in _of_nest(s, reader) if isinstance(s, Nest) else _of_contract(s, reader):
                f = made.fold
                goes_on = made.goes_on or (f is not None and (f.carried or any(x.buffer is not None for x in loads(f.inits))))
                yield replace(made, in_blocks=True, loops=(step.loop, *made.loops), goes_on=goes_on)


def _holders(schedule: Schedule) -> set[tuple[Value | None, Buffer]]:
    """(value, buffer) for each buffer that a value is made in."""
    found = {(b.value, b) for b in schedule.buffers}
    for step in (s for p in schedule.phases for s in (*p.before, *p.all_steps)):
        if isinstance(step, Contract):
            found.add((step.value, step.out.buffer))
        elif isinstance(step, Nest):
            found |= {(s.value, s.buffer) for s in step.stores}
            found |= {x for f in step.folds for x in zip(f.values, f.buffers, strict=True)}
    return found


def _of_nest(nest: Nest, reader: Reader, apart: Mapping[int, Contract] = NOTHING_APART) -> Iterator[_Statement]:
    for s in nest.stores:
        one = Nest(nest.loops, (s,), (), nest.order_is_fixed, nest.skip)
        node, made = s.node, _statement(s.value, list(reader.nest(one)), nest)
        is_moved = isinstance(node, Load) and node.buffer is not None and node.value is s.value
        if is_moved and isinstance(node, Load):
            c = apart.get(id(node.buffer))
            at = dict(zip(c.places, node.index, strict=True)) if c is not None and c.element else {}
            element = tuple(substitute(e, at) for e in c.element) if c is not None and c.element else node.index
            is_moved = element == tuple(s.index) and (s.value, node.buffer) in _holders(reader.schedule)
        yield replace(made, is_moved=is_moved)
    for f in nest.folds:
        found = list(reader.nest(Nest(nest.loops, (), (f,), nest.order_is_fixed, nest.skip)))
        reads = [a for a in found if a.kind is Kind.READ]
        for v, w in zip(f.values, [a for a in found if a.kind is not Kind.READ], strict=True):
            yield _statement(v, [*reads, w], nest, f)


def _statement(
    value: Value | None, accesses: Sequence[Access], nest: Nest, fold: FoldStep | None = None
) -> _Statement:
    write = next(a for a in accesses if a.kind is not Kind.READ)  # a carried fold updates
    reads = tuple(a for a in accesses if a.kind is Kind.READ)
    if value is not None and write.index is not None and len(write.index) != value.rank:
        value = None  # pieces of a reduction
    scan = next((x.variable for x in nest.loops if x.kind is LoopKind.SCAN), None)
    if scan is not None and fold is not None:
        # A result holds what all iterations up to its own have read.
        return _Statement(value, write, tuple(_until(a, scan) for a in reads), False, fold, nest.loops)
    zeros = [a for a in accesses if a.kind is Kind.WRITE and a is not write] if fold is None else []
    return _Statement(value, write, reads, scan is not None, fold, nest.loops, zeros=zeros[0] if zeros else None)


def _until(read: Access, scan: Var) -> Access:
    """The reads of every iteration of a scan up to one."""
    if scan not in read.domain.ranges:
        return read
    earlier = Var(f"{scan.name}_until")
    made = _with_names(read, {scan: earlier})
    span = read.domain.ranges[scan]
    domain = replace(made.domain, variables=(*made.domain.variables, (scan, span)))
    return replace(made, domain=domain.with_guard((Condition(scan - earlier, 0, span.size),), ()))


def _of_contract(c: Contract, reader: Reader) -> Iterator[_Statement]:
    found = list(reader.contract(c))
    last = [a for a in found if a.order[2] == len(c.pack)]
    packs = [a for a in found if a.order[2] < len(c.pack)]
    for part, nest in enumerate(c.pack):
        for s in nest.stores:
            # Each store by itself: an iteration's others read what is theirs.
            one = replace(nest, stores=(s,))
            alone = packs if len(nest.stores) == 1 else reader.contract(
                replace(c, pack=(*c.pack[:part], one, *c.pack[part + 1 :]))
            )
            mine = [a for a in alone if a.order[2] == part]
            (write,) = [a for a in mine if a.kind is Kind.WRITE]
            yield _Statement(None, write, tuple(a for a in mine if a.kind is Kind.READ))
    (write,) = [a for a in last if a.kind is not Kind.READ]
    yield _Statement(c.value, write, tuple(a for a in last if a.kind is Kind.READ), goes_on=c.accumulate, depth=c.depth)


# ---------------------------------------------------------------- questions


class _Check:
    def __init__(
        self, statement: _Statement, copies: Mapping[int, list[_Statement]], kept: set[Value], given: set[Value],
        ask: Questions, left_out: LeftOut | None, states: Mapping[int, Value], apart: Mapping[int, Contract],
    ) -> None:  # fmt: skip
        self.statement, self.copies, self.ask, self.left_out = statement, copies, ask, left_out
        self.kept, self.given, self.states, self.apart = kept, given, states, apart
        assert statement.value is not None
        self.value = statement.value
        self._found: dict[Value, islpy.Map] | None = None

    def mapped(self) -> str | None:
        return self.ask.ask(self._mapped)

    def complete(self) -> str | None:
        if self.statement.carries:
            return None
        return self.ask.ask(self._complete if self.left_out is None else self._complete_but_neutral)

    def _mapped(self) -> str | None:
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
                return f"%{w.name or '?'} is read where no map leads: {_pair(left, w)}"
        return None

    def _complete(self) -> str | None:
        reads = self._reads()
        todo = self._stored()
        for _ in range(DEPTH):
            # What is not loaded may have been computed in its place, from what it needs itself.
            following: list[tuple[Value, islpy.Map]] = []
            for v, missing in todo:
                optional = _optional(v, self.kept)
                for w, maps in _maps(v, self.kept - {v}, True).items():
                    if w is v or w not in self.kept or w in optional:
                        continue
                    for m in maps:
                        if m.unknown is not None:
                            raise Undecided(m.unknown.reason)
                        rest = missing.apply_range(_plain(full_relation(merge_runtimes(m))))
                        rest = rest.subtract(reads[w]) if w in reads else rest
                        if rest.is_empty():
                            continue
                        if w.op is None or w in self.given:
                            return f"%{w.name or '?'} is needed but not read: {_pair(rest, w)}"
                        following.append((w, rest))
            todo = following
            if not todo:
                return None
        raise Undecided(f"more than {DEPTH} values are computed in place of one another")

    def _stored(self) -> list[tuple[Value, islpy.Map]]:
        """What is stored: its elements, as relations from (block, where each one starts anew, and element)."""
        blocks = self.statement.blocks
        found: list[tuple[Value, islpy.Map]] = []
        write = self.statement.write
        if self.statement.in_blocks and self.statement.goes_on:
            write = _in_any_block(write, self.statement.loops[0].variable)
        for stored in _written(write, blocks):
            m = islpy.Map.identity(_square(stored)).intersect_domain(stored)
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
                    raise Undecided(needs.reason)
                for w, r in needs.items():
                    rest = missing.apply_range(_plain(r))
                    rest = rest.subtract(reads[w]) if w in reads else rest
                    if rest.is_empty():
                        continue
                    if w not in self.left_out.members or w in self.given:
                        return f"%{w.name or '?'} counts but is not read: {_pair(rest, w)}"
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
                w, r = flow.value, _relation(self.statement.write, [flow], self.statement.blocks)
                found[w] = found[w].union(r) if w in found else r
            self._found = found
        return self._found

    def _flows(self) -> Iterator[_Flow]:
        """Every load, copies looked through."""
        for read in self.statement.reads:
            for value, element, copies in self._sources(read):
                yield _Flow(value, read, element, copies)

    def _sources(
        self, read: Access, through: int = 0
    ) -> Iterator[tuple[Value, tuple[Expr, ...], tuple[tuple[Access, Access], ...]]]:
        """(value, element, copies on the way) of what a load may find where it reads."""
        value = read.value or self.states.get(id(read.buffer))
        if read.buffer.scope is Scope.ARGUMENT and value is None:
            value = read.buffer.value  # nothing else is ever there
        sums = self.apart.get(id(read.buffer))
        if value is not None and (read.index is None or len(read.index) == value.rank):
            yield value, _index(read), ()
        elif sums is not None:
            at = dict(zip(sums.places, read.at, strict=True)) if sums.element else {}
            yield sums.value, tuple(substitute(e, at) for e in sums.element) if sums.element else _index(read), ()
        elif id(read.buffer) not in self.copies or through == COPIES:
            raise Undecided(f"{read.buffer.name} holds copies of what is not known")
        else:
            for s in self.copies[id(read.buffer)]:
                for inner in s.reads:
                    for source, element, copies in self._sources(inner, through + 1):
                        yield source, element, ((s.write, inner), *copies)

    def paired(self) -> str | None:
        return self.ask.ask(self._paired)

    def _paired(self) -> str | None:
        """Two factors that are multiplied although the op multiplies others."""
        op = self.value.op
        assert op is not None
        flows = list(self._flows())
        for k, a in enumerate(flows):
            for b in flows[k + 1 :]:
                if a.read is b.read:
                    continue  # ways to reach one load
                left = _relation(self.statement.write, [a, b]).subtract(_factors(op, a.value, b.value))
                if not left.is_empty():
                    names = [f"x{i}" for i in range(left.dim(IN))]
                    names += [f"%{w.name or '?'} at y{i}" for w in (a.value, b.value) for i in range(w.rank)]
                    return f"multiplied, though the op does not: {named(left.wrap(), names)}"
        return None

    def _needs(self, w: Value, until: Collection[Value], unknown: list[str]) -> islpy.Map:
        """Where the maps lead that are known; why others are not is added to `unknown`."""
        total: islpy.Map | None = None
        for m in _maps(self.value, until, False).get(w, ()):
            if m.unknown is not None:
                unknown.append(m.unknown.reason)
                continue
            r = _plain(full_relation(merge_runtimes(m)))
            total = r if total is None else total.union(r)
        if total is None:
            space = islpy.Space.alloc(_context(), 0, self.value.rank, w.rank)
            return islpy.Map.empty(space)
        return total


def _not_zero(zeros: Access, value: Value, left_out: LeftOut) -> str | None:
    """An element that is filled with zero though it may be something else."""
    for filled in _written(zeros):
        wrong = filled.intersect(left_out.not_zero(value))
        if not wrong.is_empty():
            return f"%{value.name or '?'} need not be zero: {named(wrong, [f'x{k}' for k in range(value.rank)])}"
    return None


def _maps(v: Value, until: Collection[Value], what_counts: bool) -> Mapping[Value, Iterable[IndexingMap]]:
    """From `v` to the values of `until`: also to what is multiplied with the zeros around a padded operand.

    Zero times an infinity is no number, so that counts, too; of numbers that are all finite it does not.
    """
    op = v.op
    maps = reads_of(op, v.index) if op is not None and isinstance(op.definition.semantics, SumOfProducts) else ()
    if op is None or isinstance(maps, Declined) or not maps or not maps[0] or not maps[0][0].constraints:
        return maps_from(v, until)
    first = maps[0][0].constraints
    found: dict[Value, list[IndexingMap]] = {}
    for k, (operand, reads) in enumerate(zip(op.operands, maps, strict=True)):
        for m in reads:
            is_beside = k > 0 and m.constraints == first and _is_inside(m, operand)
            is_free = is_beside and not (what_counts and _is_finite(operand))
            made = replace(m, constraints=()) if is_free else m
            behind = {operand: (made,)} if operand in until else maps_from(operand, until, made)
            for w, ways in behind.items():
                found.setdefault(w, []).extend(ways)
    return found


def _is_finite(v: Value) -> bool:
    """Whether no element of a value can be infinite, or no number."""
    element = v.tensor.element
    return isinstance(element, ElementType) and (element.is_integer or element.is_boolean)


def _is_inside(m: IndexingMap, operand: Value) -> bool:
    """Whether a map leads to elements that are there, its constraints apart."""
    spans = {v.var: v.interval for v in (*m.dims, *m.ranges)}
    return all(Interval(0, n - 1).covers(interval(e, spans)) for e, n in zip(m.results, operand.shape, strict=True))


def _square(s: islpy.Set) -> islpy.Space:
    return islpy.Space.map_from_set(s.get_space())


def _context() -> islpy.Context:
    return context()


def _index(a: Access) -> tuple[Expr, ...]:
    """The element of its value that an access means."""
    if a.index is not None:
        return a.index
    return tuple(as_expr(x + o) for x, o in zip(a.at, a.buffer.origin, strict=True))


def _relation(write: Access, flows: Sequence[_Flow], blocks: Sequence[Var] = ()) -> islpy.Map:
    """From the element that `write` stores to the elements of some loads, for all iterations.

    What a copy was made of is loaded where the positions are the same.
    """
    accesses = [write]
    equal: list[Expr] = []
    elements: list[Expr] = []
    outer = {v for f in flows for v, _ in f.read.domain.variables} | {v for v, _ in write.domain.variables}
    for k, f in enumerate(flows):
        accesses.append(f.read)
        element, read = f.element, f.read
        shared = outer
        for n, copy in enumerate(f.copies):
            # Copies in a thread's own memory are made in the same task and block; others by any task.
            shared = shared if read.buffer.scope is Scope.THREAD else set()
            made, inner, moved = _renamed(*copy, element, shared, f"_made{k}_{n}" if n else f"_made{k}")
            accesses += [made, inner]
            equal += [as_expr(a - b) for a, b in zip(read.at, made.at, strict=True)]
            read = inner
            element = moved if n == len(f.copies) - 1 else element
        elements += element
    variables: dict[Var, Interval] = {}
    conditions: dict[Expr, Interval] = dict.fromkeys(equal, Interval(0, 0))
    for a in accesses:
        variables |= {v: b for v, b in a.domain.variables if v not in variables or variables[v].covers(b)}
        for c in a.domain.held:
            span, e = Interval(c.lower, c.upper), as_expr(c.expression)
            conditions[e] = conditions[e].intersect(span) if e in conditions else span
    out = (*blocks, *_index(write))
    constraints = tuple(Constraint(e, b) for e, b in conditions.items())
    m = IndexingMap(tuple(Variable(v, b) for v, b in variables.items()), (*out, *elements), constraints=constraints)
    full = to_isl(m)
    for a in accesses:
        for group in a.domain.failed:
            full = full.subtract_domain(guard_set(tuple(variables.items()), group))
    return _plain(islpy.Map.from_range(full.range()).move_dims(IN, 0, OUT, 0, len(out)))


def _factors(op: Op, a: Value, b: Value) -> islpy.Map:
    """From an element of a sum of products to the pairs of elements of `a` and `b` that one of its products is made of."""
    reads = Reads(op, 0)
    rank = len(reads.dims)
    spans = (*reads.dims, *reads.ranges)
    ways: dict[Value, list[islpy.Map]] = {a: [], b: []}
    for w, found in ways.items():
        for k, (operand, index, where) in enumerate(reads.reads):
            source = op.operands[operand]
            m = IndexingMap(tuple(spans), index, constraints=where if k == 0 else ())  # beside its zeros there are products, too
            behind = [IndexingMap.identity(w.shape)] if source is w else maps_from(source, (w,)).get(w, ())
            found += [_plain(full_relation(compose(m, n))) for n in behind if n.unknown is None]
    total: islpy.Map | None = None
    for x in ways[a]:
        for y in ways[b]:
            pair = x.flat_range_product(y).project_out(IN, rank, len(spans) - rank)
            total = pair if total is None else total.union(pair)
    if total is None:
        return islpy.Map.empty(islpy.Space.alloc(_context(), 0, rank, a.rank + b.rank))
    return _plain(total)


def _renamed(
    made: Access, inner: Access, element: tuple[Expr, ...], shared: set[Var], tag: str
) -> tuple[Access, Access, tuple[Expr, ...]]:
    """The accesses of a copy with variables of their own, but for the shared ones."""
    names = {v: Var(v.name + tag) for a in (made, inner) for v, _ in a.domain.variables if v not in shared}

    return _with_names(made, names), _with_names(inner, names), tuple(substitute(e, names) for e in element)


def _with_names(a: Access, names: Mapping[Var, Var]) -> Access:
    """The access with some variables under other names."""

    def new(e: Expr) -> Expr:
        return substitute(e, names)

    domain = replace(
        a.domain,
        variables=tuple((names.get(v, v), b) for v, b in a.domain.variables),
        held=tuple(replace(c, expression=new(as_expr(c.expression))) for c in a.domain.held),
        failed=tuple(tuple(replace(c, expression=new(as_expr(c.expression))) for c in g) for g in a.domain.failed),
    )
    return replace(a, domain=domain, at=tuple(map(new, a.at)), index=None if a.index is None else tuple(map(new, a.index)))


def _written(write: Access, blocks: Sequence[Var] = ()) -> Iterator[islpy.Set]:
    d = write.domain
    conditions: dict[Expr, Interval] = {}
    for c in d.held:
        e = as_expr(c.expression)
        conditions[e] = conditions.get(e, Interval(c.lower, c.upper)).intersect(Interval(c.lower, c.upper))
    m = IndexingMap(
        tuple(Variable(v, b) for v, b in d.variables), (*blocks, *_index(write)),
        constraints=tuple(Constraint(e, b) for e, b in conditions.items()),
    )  # fmt: skip
    full = to_isl(m)
    for group in d.failed:
        full = full.subtract_domain(guard_set(d.variables, group))
    yield full.range().reset_tuple_id() if full.range().has_tuple_id() else full.range()


def _twice(s: _Statement, op: Op) -> str | None:
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


def _in_any_block(write: Access, block: Var) -> Access:
    """A write to what goes from block to block: its elements, also where no block has an iteration."""
    d = write.domain
    if any(block in e.variables for e in (*write.at, *_index(write))):
        return write
    held = tuple(c for c in d.held if block not in as_expr(c.expression).variables)
    return replace(write, domain=replace(d, variables=tuple((v, b) for v, b in d.variables if v is not block), held=held))


def _plain(m: islpy.Map) -> islpy.Map:
    for k in range(m.dim(IN)):
        m = m.set_dim_name(IN, k, f"i{k}")
    return m


def _pair(m: islpy.Map, w: Value) -> str:
    names = [f"x{k}" for k in range(m.dim(IN))] + [f"%{w.name or '?'} at y{k}" for k in range(m.dim(OUT))]
    return named(m.wrap(), names)


def _optional(value: Value, loaded: Collection[Value]) -> set[Value]:
    """The loaded values that an op between them and `value` need not read: where its conditions hold, or of its other branch."""
    found: set[Value] = set()
    seen: set[tuple[Value, bool]] = set()
    todo: list[tuple[Value, bool]] = [(value, False)]
    while todo:
        v, is_optional = todo.pop()
        if (v, is_optional) in seen:
            continue
        seen.add((v, is_optional))
        if v is not value and v in loaded:
            if is_optional:
                found.add(v)
            continue
        if v.op is None:
            continue
        for k, o in enumerate(v.op.operands):
            if isinstance(o.type, TensorType):
                todo.append((o, is_optional or _is_optional(v.op, k)))
    return found


def _is_optional(op: Op, operand: int) -> bool:
    semantics = op.definition.semantics
    if op.name in MAY_READ or (isinstance(semantics, Elementwise) and semantics.function == "select"):
        return True
    if isinstance(semantics, Move):
        return semantics.otherwise == operand or _gives_way(op, operand)
    # Padded windows need their initial value only where there is nothing to fold.
    return isinstance(semantics, Fold) and operand >= len(op.operands) // 2


def _gives_way(op: Op, operand: int) -> bool:
    """Whether a move reads an operand only where another one's conditions do not hold: its maps name every place."""
    found = reads_of(op)
    if isinstance(found, Declined):
        return False
    bounded = [any(m.constraints for m in maps) for maps in found]
    return not bounded[operand] and any(bounded)
