"""What the edges of a program carry: for each read of an op, the map from an index of a result to the operand's element.

    result[d] depends on operand_k[map(d)[s]{rt}]      for every s, where the map's constraints hold

The maps are the access function's, run once on symbols for all ops of one structure: of one name, attributes and types. Their
constraints stay in the order in which the function writes them; `derive` makes them the maps that people ask for.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from hlo import Declined, Op, Value
from hlo.access import Condition
from hlo.attributes import freeze_attributes
from hlo.errors import DefinitionError, TilewrightError
from hlo.lazy import cached_property
from hlo.registry import OpDefinition
from hlo.types import with_layout
from indexing.caches import Memo
from indexing.deriving.agreement import disagreement
from indexing.deriving.may_read import MAY_READ
from indexing.expressions.bounds import Interval, interval
from indexing.expressions.simplifier import simplify
from indexing.expressions.terms import Expr, ExprLike, Var, as_expr
from indexing.map import Constraint, IndexingMap, RuntimeVariable, Variable, build, usual
from indexing.map_simplifier import tidy_map
from indexing.mapset import MapSet

__all__ = ["Edge", "EdgeMaps", "OpEdges", "edges_of", "named_by"]


@dataclass(frozen=True, eq=False)
class Edge:
    """One read of an op: `operand[map]`. The map's variables are the op's, those that it does not name left out."""

    operand: int
    map: IndexingMap

    @cached_property
    def is_identity(self) -> bool:
        """Whether the operand is read at the result's own index, always: element by element."""
        m = self.map
        return not m.constraints and m.results == tuple([v.var for v in m.dims])

    @cached_property
    def conditions(self) -> tuple[Constraint, ...]:
        """The constraints that do not hold for every index: an update as wide as its operand lies everywhere along that
        dimension."""
        ranges = self._ranges
        return tuple([c for c in self.map.constraints if not c.interval.covers(interval(c.expression, ranges))])

    @property
    def _ranges(self) -> dict[Var, Interval]:
        m = self.map
        return {v.var: v.interval for v in (*m.dims, *m.ranges)} | {v.var: v.interval for v in m.runtimes}

    @cached_property
    def settled(self) -> tuple[Expr, ...]:
        """The element that is read, written as short as the variables' own ranges allow.

        In a task's ranges, which may reach beyond the result's last element, they would allow less.
        """
        ranges = self._ranges
        return tuple([simplify(e, ranges) for e in self.map.results])


@dataclass(frozen=True, eq=False)
class OpEdges:
    """The reads of a result in the access function's order, and the variables that it asked for.

    A runtime variable's element is one of operand `runtime_operands[k]`: the op gives the producer, its structure has none.
    """

    operands: int
    dims: tuple[Variable, ...]
    reads: tuple[Edge, ...]
    ranges: tuple[Variable, ...] = ()
    runtimes: tuple[RuntimeVariable, ...] = ()
    runtime_operands: tuple[int, ...] = ()

    @cached_property
    def dim_vars(self) -> tuple[Var, ...]:
        return tuple([v.var for v in self.dims])

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether each operand is read at the result's own index and nothing else is."""
        return not self.runtimes and not self.ranges and all(e.is_identity for e in self.reads)

    @cached_property
    def by_operand(self) -> tuple[tuple[IndexingMap, ...], ...]:
        """The maps of each operand's reads; a constraint on a dimension alone is part of its interval."""
        found: list[list[IndexingMap]] = [[] for _ in range(self.operands)]
        for e in self.reads:
            m = e.map
            found[e.operand].append(build(m.dims, m.results, m.ranges, m.runtimes, m.constraints) if m.constraints else m)
        return tuple([tuple(maps) for maps in found])

    @cached_property
    def tidy(self) -> tuple[MapSet, ...]:
        """The same as sets of maps that are written as short as they can be without another variable."""
        return tuple([MapSet([tidy_map(m.remove_unused()) for m in maps]) for maps in self.by_operand])


class _Writer:
    """The `AccessBuilder` that writes down what an access function asks for, on index expressions."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.dims = tuple([Variable(usual("d", i), Interval(0, n - 1)) for i, n in enumerate(shape)])
        self.ranges: list[Variable] = []
        self.runtimes: list[RuntimeVariable] = []
        self.operands: list[int] = []
        self.reads: list[tuple[int, tuple[Expr, ...], tuple[Constraint, ...]]] = []

    def range(self, size: int, name: str = "") -> Var:
        v = usual("s", len(self.ranges))
        self.ranges.append(Variable(v, Interval(0, size - 1)))
        return v

    def runtime(self, operand: int, index: Sequence[ExprLike], lower: int, upper: int) -> Var:
        v = usual("rt", len(self.runtimes))
        element = tuple([as_expr(e) for e in index])
        self.runtimes.append(RuntimeVariable(v, Interval(lower, upper), None, element, f"operand {operand}"))
        self.operands.append(operand)
        return v

    def read(self, operand: int, index: Sequence[ExprLike], where: Sequence[Condition] = ()) -> None:
        conditions = tuple([Constraint(as_expr(c.expression), Interval(c.lower, c.upper)) for c in where])
        self.reads.append((operand, tuple([as_expr(e) for e in index]), conditions))

    def edges(self, operands: int) -> OpEdges:
        reads: list[Edge] = []
        for operand, index, where in self.reads:
            ranges, runtimes = named_by(index, where, self.ranges, self.runtimes)
            reads.append(Edge(operand, IndexingMap(self.dims, index, ranges, runtimes, where)))
        return OpEdges(operands, self.dims, tuple(reads), tuple(self.ranges), tuple(self.runtimes), tuple(self.operands))


def named_by(
    index: Sequence[Expr], where: Sequence[Constraint], ranges: Sequence[Variable], runtimes: Sequence[RuntimeVariable]
) -> tuple[tuple[Variable, ...], tuple[RuntimeVariable, ...]]:
    """The variables that a read names. Others are no part of its map: an empty reduction still reads its initial value."""
    used = {v for e in (*index, *(c.expression for c in where)) for v in e.variables}
    mine = tuple([v for v in runtimes if v.var in used])
    used.update(x for v in mine for e in v.element for x in e.variables)
    return tuple([v for v in ranges if v.var in used]), mine


_KNOWN: Memo[Hashable, OpEdges] = Memo(1 << 12)  # of a kilobyte each; few programs have so many kinds of op


def edges_of(op: Op, output: int = 0, meant: OpDefinition | None = None) -> OpEdges | Declined:
    """The reads of result `output`, or why no map describes them. The result is a tensor of known shape.

    Of an op whose values decide what it reads, the maps cover all that it may read (`indexing.deriving.may_read`). `meant` is the
    definition that says what is read, where it is not the op's own. Raises DefinitionError for an access function that fails, or
    whose reads do not go with the op's semantics.

    >>> import hlo
    >>> text = "HloModule m ENTRY e { p = f32[8] parameter(0) z = f32[] constant(0) ROOT r = f32[12] pad(p, z), padding=1_3 }"
    >>> found = edges_of(hlo.parse(text).root)
    >>> for e in found.reads: print(e.operand, e.map)
    0 (d0) -> (d0 - 1), domain: d0 in [0, 11], d0 in [1, 8]
    1 (d0) -> (), domain: d0 in [0, 11]
    """
    definition = op.definition if meant is None else meant
    access = MAY_READ.get(definition.name, definition.access)
    if isinstance(access, Declined):
        return access
    attributes = freeze_attributes(op.attributes) if op.operands else None  # of a constant, which reads nothing, its elements
    key = (definition.name, access, definition.semantics, output, attributes, _types(op.operands), _types(op.results))
    known = _KNOWN.get(key)
    if known is None:
        made = _Writer(op.results[output].shape)
        try:
            access(op, output, tuple([v.var for v in made.dims]), made)
        except TilewrightError:
            raise
        except Exception as e:
            called = "it is called as access(op, output, d, ix) and uses + - * // % alone on indices"
            raise _wrong(op, f"{type(e).__name__}: {e} ({called})") from e
        if definition is op.definition and definition.name not in MAY_READ:
            spans = {v.var: v.interval for v in (*made.dims, *made.ranges)} | {v.var: v.interval for v in made.runtimes}
            fault = disagreement(definition, op, made.reads, spans)
            if fault is not None:
                raise _wrong(op, fault)
        known = _KNOWN.keep(key, made.edges(len(op.operands)))
    return known


def _wrong(op: Op, fault: str) -> DefinitionError:
    return DefinitionError(f"{op.name}: its access function: {fault}", op.location)


def _types(values: Sequence[Value]) -> tuple[Hashable, ...]:
    return tuple([with_layout(v.type) for v in values])


class EdgeMaps:
    """The edges of one program's ops, by op and result: where the passes of a plan look them up."""

    def __init__(self) -> None:
        self._known: dict[tuple[Op, int], OpEdges | Declined] = {}

    def of(self, op: Op, output: int = 0) -> OpEdges | Declined:
        """As `edges_of`, where the maps are exact; else why they are not."""
        found = self._known.get((op, output))
        if found is None:
            access = op.definition.access
            found = self._known[op, output] = access if isinstance(access, Declined) else edges_of(op, output)
        return found
