"""Maps of single ops, from their access functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo import Declined, Op, TensorType
from indexing.deriving import collectives
from indexing.deriving.edges import OpEdges, edges_of, named_by
from indexing.deriving.may_read import MAY_READ
from indexing.deriving.runtime import clamped, known_element
from indexing.expr import substitute
from indexing.expressions.bounds import Interval
from indexing.expressions.terms import Expr, ExprLike, Var
from indexing.map import Constraint, IndexingMap, RuntimeVariable, Variable, build, usual
from indexing.map_simplifier import tidy_map
from indexing.mapset import MapSet

__all__ = ["Reads", "decisive_reads", "output_to_input", "reads_of"]


class Reads:
    """What an op reads: the maps of its edges, with what the program tells of its runtime values.

    `reads` holds (operand, index, conditions) in the access function's order; `ranges` and `runtimes` are their variables.
    """

    def __init__(self, op: Op, output: int) -> None:
        edges = edges_of(op, output)
        if isinstance(edges, Declined):
            raise ValueError(f"{op.name} has no access function: {edges.reason}")
        self.operands, self.dims, self.ranges = op.operands, edges.dims, edges.ranges
        self.runtimes: list[RuntimeVariable] = []
        self.runtime_operands: list[int] = []
        self.known: list[tuple[int, tuple[Expr, ...]]] = []  # runtime values that the program tells
        replaced = self._resolve(op, edges) if edges.runtimes else {}
        self.reads: list[tuple[int, tuple[Expr, ...], tuple[Constraint, ...]]] = []
        for e in edges.reads:
            index, where = e.map.results, e.map.constraints
            if replaced:
                index = tuple([substitute(x, replaced) for x in index])
                where = tuple([Constraint(substitute(c.expression, replaced), c.interval) for c in where])
            self.reads.append((e.operand, index, where))

    def _resolve(self, op: Op, edges: OpEdges) -> dict[Var, ExprLike]:
        """What stands for the runtime variables that the program tells; the others are numbered anew."""
        limits = {v.var: v.interval for v in (*self.dims, *self.ranges)}
        replaced: dict[Var, ExprLike] = {}
        for v, operand in zip(edges.runtimes, edges.runtime_operands, strict=True):
            element = tuple([substitute(e, replaced) for e in v.element])
            if not any(r.var in e.variables for e in element for r in self.runtimes):
                value = known_element(op.operands[operand], element, limits, reads_of)
                if value is not None:
                    self.known.append((operand, element))
                    replaced[v.var] = clamped(value, v.interval, limits)
                    continue
            fresh = usual("rt", len(self.runtimes))
            if fresh is not v.var:
                replaced[v.var] = fresh
            self.runtimes.append(RuntimeVariable(fresh, v.interval, op.operands[operand], element))
            self.runtime_operands.append(operand)
        return replaced

    def by_operand(self, decisive: bool = False) -> list[list[IndexingMap]]:
        """The raw maps of each operand: one for each read.

        An operand that gives runtime values and is not read otherwise is read where those values are. `decisive` leaves out the
        values that the program tells, and those with one place to lead to.
        """
        found: list[list[IndexingMap]] = [[] for _ in self.operands]
        for operand, index, where in self.reads:
            found[operand].append(self._map(index, where))
        asked: dict[int, list[tuple[Expr, ...]]] = {}
        at_run_time = zip(self.runtime_operands, self.runtimes, strict=True)
        values = [(operand, v.element) for operand, v in at_run_time if not decisive or v.interval.size > 1]
        for operand, element in values if decisive else (*self.known, *values):
            if not found[operand]:
                asked.setdefault(operand, []).append(element)
        for operand, elements in asked.items():
            found[operand] = self._element_maps(elements)
        return found

    def _element_maps(self, elements: list[tuple[Expr, ...]]) -> list[IndexingMap]:
        """The maps to the elements of a tensor of runtime values: one with a range where they are a row of it."""
        first = elements[0]
        apart = [k for k in range(len(first)) if any(e[k] is not first[k] for e in elements)]
        if len(apart) == 1 and all(e[apart[0]].is_constant for e in elements):
            k = apart[0]
            values = sorted(e[k].constant for e in elements)
            if values == list(range(values[0], values[0] + len(values))):
                v = Variable(usual("s", len(self.ranges)), Interval(values[0], values[-1]))
                return [self._map((*first[:k], v.var, *first[k + 1 :]), (), v)]
        return [self._map(e, ()) for e in elements]

    def _map(self, index: Sequence[Expr], where: Sequence[Constraint], extra: Variable | None = None) -> IndexingMap:
        ranges, runtimes = named_by(index, where, self.ranges, self.runtimes)
        return build(self.dims, index, ranges if extra is None else (*ranges, extra), runtimes, where)


BY_REGION: dict[str, Callable[[Op, int], list[list[IndexingMap]]]] = {}
"""How an op that stands for its region reads, by name; `indexing.program`, which walks through programs, fills it."""


def reads_of(op: Op, output: int = 0) -> Sequence[Sequence[IndexingMap]] | Declined:
    """For each operand, the maps of all reads as the access function writes them; or why there are none."""
    found = _plain_edges(op, output)
    return found.by_operand if isinstance(found, OpEdges) else found


def _plain_edges(op: Op, output: int, decisive: bool = False) -> OpEdges | Sequence[Sequence[IndexingMap]] | Declined:
    """The edges where they alone say what is read, without the values of this op's operands; else the maps."""
    access = MAY_READ.get(op.name, op.definition.access)
    if isinstance(access, Declined) and op.name in BY_REGION and op.regions:
        return BY_REGION[op.name](op, output)
    if isinstance(access, Declined):
        return collectives.index_maps(op, output) if op.name in collectives.EXCHANGES else access
    if not 0 <= output < len(op.results):
        raise IndexError(f"{op.name} has {len(op.results)} results, no result {output}")
    for v in (*op.operands, op.results[output]):
        if isinstance(v.type, TensorType) and not v.type.is_static:
            return Declined(f"{op.name}: the type {v.type} has an unknown dimension")
    t = op.results[output].type
    if not isinstance(t, TensorType):
        return Declined(f"{op.name}: a value of type {t} has no index")
    edges = edges_of(op, output)
    return Reads(op, output).by_operand(decisive) if isinstance(edges, OpEdges) and edges.runtimes else edges


def output_to_input(op: Op, output: int = 0) -> tuple[MapSet, ...]:
    """For each operand, the maps from an index of result `output` to the elements of that operand that it depends on.

    An operand that is not read has an empty set; one whose reads no map describes (a custom call's) has one map that is
    `unknown` with the reason. Raises IndexError for a result that the op does not have.
    """
    return _tidy(op, _plain_edges(op, output))


def decisive_reads(op: Op, output: int = 0) -> tuple[MapSet, ...]:
    """`output_to_input` without the runtime values that decide nothing: where a slice begins that is as long as its operand."""
    return _tidy(op, _plain_edges(op, output, decisive=True))


def _tidy(op: Op, found: OpEdges | Sequence[Sequence[IndexingMap]] | Declined) -> tuple[MapSet, ...]:
    if isinstance(found, OpEdges):
        return found.tidy
    if isinstance(found, Declined):
        unknown = IndexingMap((), (), unknown=found)
        return tuple([MapSet([unknown]) for _ in op.operands])
    return tuple([MapSet([tidy_map(m.remove_unused()) for m in maps]) for maps in found])
