"""Relations between the elements that statements write and read, and those that the ops' maps lead to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import islpy

from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import Elementwise, Fold, Literal, Move, SumOfProducts
from hlo.types import ElementType, TensorType
from indexing.deriving.blocks import topological
from indexing.deriving.derive import Reads, decisive_reads, output_to_input, reads_of
from indexing.deriving.edges import edges_of
from indexing.deriving.may_read import MAY_READ
from indexing.exact.isl import context, full_relation, to_isl
from indexing.expr import Expr, Interval, Var, as_expr, interval, substitute
from indexing.map import Constraint, IndexingMap, Variable, compose
from indexing.program import maps_from
from tiling.loops.domains.iterations import Access
from tiling.loops.ir import Scope
from tiling.proving.contents.written_and_read import Flow, index_of, with_names
from tiling.proving.relations import guard_set, named

__all__ = ["factors", "in_any_block", "maps_that_count", "optional_reads", "pair", "plain", "relation", "same_everywhere",
           "square", "written"]  # fmt: skip

IN, OUT = islpy.dim_type.in_, islpy.dim_type.out


def maps_that_count(v: Value, until: Collection[Value], what_counts: bool) -> Mapping[Value, Iterable[IndexingMap]]:
    """From `v` to the values of `until`: also to what is multiplied with the zeros around a padded operand.

    Zero times an infinity is no number, so that counts, too; of numbers that are all finite it does not. Nor does a number known
    at run time that leads to one place, whatever it is.
    """
    op, reads = v.op, decisive_reads if what_counts else output_to_input
    maps = reads_of(op, v.index) if op is not None and isinstance(op.definition.semantics, SumOfProducts) else ()
    if op is None or isinstance(maps, Declined) or not maps or not maps[0] or not maps[0][0].constraints:
        return maps_from(v, until, reads=reads)
    first = maps[0][0].constraints
    found: dict[Value, list[IndexingMap]] = {}
    for k, (operand, mine) in enumerate(zip(op.operands, maps, strict=True)):
        for m in mine:
            is_beside = k > 0 and m.constraints == first and _is_inside(m, operand)
            is_free = is_beside and not (what_counts and _is_finite(operand))
            made = replace(m, constraints=()) if is_free else m
            behind = {operand: (made,)} if operand in until else maps_from(operand, until, made, reads=reads)
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


def square(s: islpy.Set) -> islpy.Space:
    return islpy.Space.map_from_set(s.get_space())


def relation(write: Access, flows: Sequence[Flow], blocks: Sequence[Var] = ()) -> islpy.Map:
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
        around = {v: v for v in outer}
        for n, copy in enumerate(f.copies):
            # Copies in a thread's own memory are made in the same task and block as their reader; others by any task.
            around = around if read.buffer.scope is Scope.THREAD else {}
            made, inner, moved, names = _renamed(*copy, element, around, f"_made{k}_{n}" if n else f"_made{k}")
            d = copy[0].domain
            around = {**around, **{v: names[v] for v, _ in d.variables[: d.shared + d.blocks]}}
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
    out = (*blocks, *index_of(write))
    constraints = tuple(Constraint(e, b) for e, b in conditions.items())
    m = IndexingMap(tuple(Variable(v, b) for v, b in variables.items()), (*out, *elements), constraints=constraints)
    full = to_isl(m)
    for a in accesses:
        for group in a.domain.failed:
            full = full.subtract_domain(guard_set(tuple(variables.items()), group))
    return plain(islpy.Map.from_range(full.range()).move_dims(IN, 0, OUT, 0, len(out)))


def factors(op: Op, a: Value, b: Value) -> islpy.Map:
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
            found += [plain(full_relation(compose(m, n))) for n in behind if n.unknown is None]
    total: islpy.Map | None = None
    for x in ways[a]:
        for y in ways[b]:
            pair = x.flat_range_product(y).project_out(IN, rank, len(spans) - rank)
            total = pair if total is None else total.union(pair)
    if total is None:
        return islpy.Map.empty(islpy.Space.alloc(context(), 0, rank, a.rank + b.rank))
    return plain(total)


def _renamed(
    made: Access, inner: Access, element: tuple[Expr, ...], around: Mapping[Var, Var], tag: str
) -> tuple[Access, Access, tuple[Expr, ...], dict[Var, Var]]:
    """The accesses of a copy with variables of their own, but for those `around` its reader too; with their names."""
    names = {v: around.get(v) or Var(v.name + tag) for a in (made, inner) for v, _ in a.domain.variables}
    return with_names(made, names), with_names(inner, names), tuple(substitute(e, names) for e in element), names


def written(write: Access, blocks: Sequence[Var] = ()) -> Iterator[islpy.Set]:
    d = write.domain
    conditions: dict[Expr, Interval] = {}
    for c in d.held:
        e = as_expr(c.expression)
        conditions[e] = conditions.get(e, Interval(c.lower, c.upper)).intersect(Interval(c.lower, c.upper))
    m = IndexingMap(
        tuple(Variable(v, b) for v, b in d.variables), (*blocks, *index_of(write)),
        constraints=tuple(Constraint(e, b) for e, b in conditions.items()),
    )  # fmt: skip
    full = to_isl(m)
    for group in d.failed:
        full = full.subtract_domain(guard_set(d.variables, group))
    yield full.range().reset_tuple_id() if full.range().has_tuple_id() else full.range()


def in_any_block(write: Access, block: Var) -> Access:
    """A write to what goes from block to block: its elements, also where no block has an iteration."""
    d = write.domain
    if any(block in e.variables for e in (*write.at, *index_of(write))):
        return write
    held = tuple(c for c in d.held if block not in as_expr(c.expression).variables)
    return replace(write, domain=replace(d, variables=tuple((v, b) for v, b in d.variables if v is not block), held=held))


def plain(m: islpy.Map) -> islpy.Map:
    for k in range(m.dim(IN)):
        m = m.set_dim_name(IN, k, f"i{k}")
    return m


def pair(m: islpy.Map, w: Value) -> str:
    names = [f"x{k}" for k in range(m.dim(IN))] + [f"%{w.name or '?'} at y{k}" for k in range(m.dim(OUT))]
    return named(m.wrap(), names)


def same_everywhere(value: Value, until: Collection[Value]) -> set[Value]:
    """Of `value` and what it is made of, up to `until`: moves of a constant whose elements are all one number.

    Which element they take decides nothing, so nothing is needed that says which: where a slice begins, known at run time.
    """
    found: set[Value] = set()
    for op in topological([value], set(until) - {value}):
        semantics = op.definition.semantics
        for r in op.results:
            if isinstance(semantics, Literal) and op.attr("value").is_splat:
                found.add(r)
            elif isinstance(semantics, Move):
                edges = edges_of(op, r.index)
                if not isinstance(edges, Declined) and len(edges.reads) == 1 and not edges.reads[0].map.constraints:
                    found.update((r,) if op.operands[edges.reads[0].operand] in found else ())
    return found


def optional_reads(value: Value, loaded: Collection[Value]) -> set[Value]:
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
    """Whether a move reads an operand only where another one's maps do not lead: their conditions, or dims, name every place."""
    found = reads_of(op)
    if isinstance(found, Declined):
        return False
    shape = op.results[0].shape
    full = [Interval(0, n - 1) for n in shape]
    bounded = [any(m.constraints or any(not d.interval.covers(n) for d, n in zip(m.dims, full, strict=True)) for m in maps)
               for maps in found]  # fmt: skip
    return not bounded[operand] and any(bounded)
