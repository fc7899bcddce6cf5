"""The stores, folds and products of a schedule as statements: what each one writes, and all that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hlo.access import Condition
from hlo.module import Value
from indexing.expr import Const, Expr, Var, as_expr, simplify, substitute
from tiling.loops.accesses import Reader, buffers_by_value
from tiling.loops.carry import starts_from_state
from tiling.loops.domains.iterations import Access, Kind, Unmodelled
from tiling.loops.element_ir import Load
from tiling.loops.ir import Buffer, Contract, FoldStep, Loop, LoopKind, Nest, Schedule, Sequential, Turn

__all__ = ["Flow", "Statement", "index_of", "statements_of", "sums_apart", "with_names"]

NOTHING_APART: Mapping[Buffer, Contract] = {}


@dataclass(frozen=True, eq=False)
class Statement:
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
class Flow:
    """A load of an element of `value`: directly, or through `copies`, of which each one access wrote and another one read for."""

    value: Value
    read: Access
    element: tuple[Expr, ...]
    copies: tuple[tuple[Access, Access], ...] = ()


def statements_of(schedule: Schedule) -> Iterator[Statement]:
    by_value = buffers_by_value(schedule)
    apart = sums_apart(schedule)
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
                    yield Statement(step.target.buffer.value, write, (read,))
            except Unmodelled:
                continue  # said by the obligation "modelled"


def sums_apart(schedule: Schedule) -> dict[Buffer, Contract]:
    """The contractions whose sums lie in a buffer of their own: by the buffer."""
    made = [c for p in schedule.phases for c in p.steps if isinstance(c, Contract) and c.out.buffer.value is None]
    return {c.out.buffer: c for c in made if c.element or len(c.out.buffer.shape) == c.value.rank}


def _of_blocks(step: Sequential, reader: Reader) -> Iterator[Statement]:
    """The statements of a sequential loop: over all of its blocks they read what one nest would."""
    with reader.within(step):
        for s in step.steps:
            for made in _of_nest(s, reader) if isinstance(s, Nest) else _of_contract(s, reader):
                f = made.fold
                goes_on = made.goes_on or (f is not None and starts_from_state(f))
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


def _of_nest(nest: Nest, reader: Reader, apart: Mapping[Buffer, Contract] = NOTHING_APART) -> Iterator[Statement]:
    for s in nest.stores:
        one = Nest(nest.loops, (s,), (), nest.order_is_fixed, nest.skip)
        node, made = s.node, _statement(s.value, list(reader.nest(one)), nest)
        is_moved = False
        if isinstance(node, Load) and node.buffer is not None and node.value is s.value:
            c = apart.get(node.buffer)
            at = dict(zip(c.places, node.index, strict=True)) if c is not None and c.element else {}
            element = tuple(substitute(e, at) for e in c.element) if c is not None and c.element else node.index
            # Loops that were made one have an index by its digits, which are put together again.
            ranges = reader.schedule.ranges
            same = len(element) == len(s.index) and all(
                a is b or simplify(a - b, ranges) is Const(0) for a, b in zip(element, s.index, strict=True)
            )
            is_moved = same and (s.value, node.buffer) in _holders(reader.schedule)
        yield replace(made, is_moved=is_moved)
    for f in nest.folds:
        found = list(reader.nest(Nest(nest.loops, (), (f,), nest.order_is_fixed, nest.skip)))
        reads = [a for a in found if a.kind is Kind.READ]
        for v, w in zip(f.values, [a for a in found if a.kind is not Kind.READ], strict=True):
            yield _statement(v, [*reads, w], nest, f)


def _statement(
    value: Value | None, accesses: Sequence[Access], nest: Nest, fold: FoldStep | None = None
) -> Statement:
    write = next(a for a in accesses if a.kind is not Kind.READ)  # a carried fold updates
    reads = tuple(a for a in accesses if a.kind is Kind.READ)
    if value is not None and write.index is not None and len(write.index) != value.rank:
        value = None  # pieces of a reduction
    scan = next((x.variable for x in nest.loops if x.kind is LoopKind.SCAN), None)
    if scan is not None and fold is not None:
        # A result holds what all iterations up to its own have read.
        return Statement(value, write, tuple(_until(a, scan) for a in reads), False, fold, nest.loops)
    zeros = [a for a in accesses if a.kind is Kind.WRITE and a is not write] if fold is None else []
    return Statement(value, write, reads, scan is not None, fold, nest.loops, zeros=zeros[0] if zeros else None)


def _until(read: Access, scan: Var) -> Access:
    """The reads of every iteration of a scan up to one."""
    if scan not in read.domain.ranges:
        return read
    earlier = Var(f"{scan.name}_until")
    made = with_names(read, {scan: earlier})
    span = read.domain.ranges[scan]
    domain = replace(made.domain, variables=(*made.domain.variables, (scan, span)))
    return replace(made, domain=domain.with_guard((Condition(scan - earlier, 0, span.size),), ()))


def _of_contract(c: Contract, reader: Reader) -> Iterator[Statement]:
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
            yield Statement(None, write, tuple(a for a in mine if a.kind is Kind.READ))
    (write,) = [a for a in last if a.kind is not Kind.READ]
    yield Statement(c.value, write, tuple(a for a in last if a.kind is Kind.READ), goes_on=c.accumulate, depth=c.depth)


def index_of(a: Access) -> tuple[Expr, ...]:
    """The element of its value that an access means."""
    if a.index is not None:
        return a.index
    return tuple(as_expr(x + o) for x, o in zip(a.at, a.buffer.origin, strict=True))


def with_names(a: Access, names: Mapping[Var, Var]) -> Access:
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
