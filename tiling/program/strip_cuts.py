"""How an op is computed for one strip of its result: which dimension of each operand is cut, from the op's index maps.

    a dimension of n equal strips: strip s of a result reads strip s of an operand, or all of it

    x[i, j] = sum over k of a[i, k] b[k, j]    strips of i:  a is cut along its dimension 0, b is read whole
                                               strips of k:  a and b are cut, and x is a sum over the strips

An index e of an operand is cut like the variable v that it is read by where e at v + s·(strip of v) is e + s·(strip of the
operand's dimension), and the first strip's elements lie in the first strip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from hlo.clone import captured_values
from hlo.errors import Declined, VerificationError
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Fold, Generate, Literal, SumOfProducts
from hlo.types import ElementType, TensorType
from hlo.verify import check_op
from indexing.deriving.edges import OpEdges, edges_of
from indexing.expr import Const, Expr, ExprLike, Interval, Var, interval, simplify, substitute
from indexing.map import Constraint, Variable
from tiling.elements.folds import combined_function, is_neutral

__all__ = ["Cut", "cut_of_result", "cuts_of_operand", "start_of_sum", "strip_of", "strip_type"]

_STRIP = Var("strip")
_SIZES = {"stablehlo.slice": "limit_indices", "stablehlo.dynamic_slice": "slice_sizes", "stablehlo.gather": "slice_sizes"}
"""The attributes that hold the extents of dimensions that are taken whole."""


@dataclass(frozen=True)
class Cut:
    """How an op runs in strips: the dimension of its results that is cut, None where they are sums over all strips; and of each
    operand the dimension of which a strip is read, None for one that is read whole."""

    axis: int | None
    operands: tuple[int | None, ...]


def cut_of_result(op: Op, axis: int, count: int) -> Cut | Declined:
    """The cut of an op whose results are cut in `count` strips along a dimension, or why it has none.

    >>> import hlo
    >>> text = "HloModule m ENTRY e { p = f32[8,6] parameter(0) ROOT r = f32[48] reshape(p) }"
    >>> cut_of_result(hlo.parse(text).root, 0, 4)
    Cut(axis=0, operands=(0,))
    >>> cut_of_result(hlo.parse(text).root, 0, 16).reason
    'strips of reshape read across the strips of operand 0'
    """
    reason = _declines(op)
    if reason is not None:
        return reason
    if isinstance(op.definition.semantics, Literal):
        dense: DenseArray = op.attr("value")
        return Cut(axis, ()) if dense.is_splat else Declined("its elements are the program's own")
    if isinstance(op.definition.semantics, Generate):
        return Cut(axis, ()) if op.name == "stablehlo.iota" else Declined(f"{op.name} has a state")
    found: Cut | None = None
    for k, r in enumerate(op.results):
        if axis >= r.rank or r.shape[axis] % count:
            return Declined(f"{op.definition.mnemonic} has no dimension {axis} in {count} strips")
        edges = edges_of(op, k)
        if isinstance(edges, Declined):
            return edges
        operands = _operands(op, edges, edges.dims[axis], count)
        if isinstance(operands, Declined):
            return operands
        cut = Cut(axis, operands)
        if found is not None and cut != found:
            return Declined(f"the results of {op.definition.mnemonic} are cut in different ways")
        found = cut
    return Declined(f"{op.definition.mnemonic} has no results") if found is None else _possible(op, found, count)


def _possible(op: Op, cut: Cut, count: int) -> Cut | Declined:
    """The cut, or why the op cannot be written on strips: attributes that speak of the whole, say."""
    strips = Block([strip_type(v, k, count) for v, k in zip(op.operands, cut.operands, strict=True)]).arguments
    made = strip_of(op, cut, strips, count)
    return made if isinstance(made, Declined) else cut


def cuts_of_operand(op: Op, value: Value, axis: int, count: int) -> Iterator[Cut]:
    """The cuts of an op that reads a value in strips of a dimension: of its results, or as a sum over the strips."""
    if _declines(op) is not None:
        return
    mine = [k for k, v in enumerate(op.operands) if v is value]
    for k in range(min((r.rank for r in op.results), default=0)):
        cut = cut_of_result(op, k, count)
        if not isinstance(cut, Declined) and all(cut.operands[i] == axis for i in mine):
            yield cut
    edges = edges_of(op) if start_of_sum(op) is not None else None
    if isinstance(edges, OpEdges):
        for v in edges.ranges:
            if v.interval.size % count == 0:
                operands = _operands(op, edges, v, count)
                if not isinstance(operands, Declined) and all(operands[i] == axis for i in mine):
                    summed = _possible(op, Cut(None, operands), count)
                    if not isinstance(summed, Declined):
                        yield summed


def strip_type(v: Value, axis: int | None, count: int) -> TensorType:
    """The type of a strip of a value; of the value itself where it is not cut."""
    t = v.tensor
    return t if axis is None else TensorType(tuple(n // count if k == axis else n for k, n in enumerate(v.shape)), t.element)


def strip_of(op: Op, cut: Cut, operands: Sequence[Value], count: int) -> Op | Declined:
    """The op on a strip of its operands, `operands`; Declined where that would not read what the op's own maps say."""
    attributes = dict(op.attributes)
    sizes = _SIZES.get(op.name)
    if sizes is not None:
        at = cut.axis if op.name == "stablehlo.slice" else cut.operands[0]
        whole = [list(attributes[sizes])[k] == op.operands[0].shape[k] for k in range(op.operands[0].rank)]
        if at is not None and whole[at]:
            attributes[sizes] = tuple(n // count if k == at else n for k, n in enumerate(attributes[sizes]))
    types = [strip_type(r, cut.axis, count) for r in op.results]
    if isinstance(op.definition.semantics, Literal):
        dense: DenseArray = op.attr("value")
        array = dense.array.reshape(-1)[:1]
        attributes["value"] = DenseArray(types[0], np.broadcast_to(array, types[0].static_shape))
    made = Op(op.definition, operands, attributes, op.regions, types, op.location, op.extra, [r.name for r in op.results])
    try:
        check_op(made)
    except VerificationError as e:
        return Declined(f"a strip of {op.definition.mnemonic} is none: {e}")
    alike = all(_reads_alike(op, made, k) for k in range(len(types)))
    return made if alike else Declined(f"a strip of {op.definition.mnemonic} does not read what the whole does")


def start_of_sum(op: Op) -> np.generic | None:
    """What a sum over strips starts from; None where the op's results cannot be summed strip by strip.

    A fold starts from its own initial value, which has to be neutral; floats of less than 32 bits would be rounded at each strip.
    """
    if len(op.results) != 1 or not isinstance(element := op.results[0].tensor.element, ElementType):
        return None
    if element.is_complex or (element.is_float and element.bits < 32):
        return None
    if isinstance(op.definition.semantics, SumOfProducts):
        zero: np.generic = element.dtype.type(0)
        return zero
    if not isinstance(op.definition.semantics, Fold) or len(op.operands) != 2:
        return None
    function, start = combined_function(op.regions[0]), op.operands[1].op
    if function is None or start is None or not isinstance(start.definition.semantics, Literal):
        return None
    dense: DenseArray = start.attr("value")
    value: np.generic = dense.array.reshape(-1)[0]
    return value if is_neutral(function, value, element) else None


def _declines(op: Op) -> Declined | None:
    """Why nothing is cut of an op, whatever the dimension."""
    name = op.definition.mnemonic
    if not op.definition.is_pure or op.definition.is_control or not op.results or any(captured_values(b) for b in op.regions):
        return Declined(f"{name} has effects, or reads values from outside")
    for v in (*op.operands, *op.results):
        if not isinstance(v.type, TensorType) or not v.type.is_static or not isinstance(v.type.element, ElementType):
            return Declined(f"{name} is no op on tensors of fixed shapes")
    return None


def _operands(op: Op, edges: OpEdges, v: Variable, count: int) -> tuple[int | None, ...] | Declined:
    """The dimension of each operand that is cut when the variable is; Declined where some read leaves its strip."""
    name = op.definition.mnemonic
    found: dict[int, set[int | None]] = {}
    reads: list[tuple[int, tuple[Expr, ...]]] = []
    for edge in edges.reads:
        equal = _equal_to(v.var, edge.map.constraints, {x.var for x in edges.ranges})
        if any(v.var in substitute(c.expression, equal).variables for c in edge.map.constraints):
            return Declined(f"conditions of {name} depend on the strip")
        reads.append((edge.operand, tuple([substitute(e, equal) for e in edge.map.results])))
        named = {r.var for r in edge.map.runtimes}
        for k, r in zip(edges.runtime_operands, edges.runtimes, strict=True):
            if r.var in named:
                reads.append((k, tuple([substitute(e, equal) for e in r.element])))
    ranges = {**_ranges(edges), v.var: Interval(0, v.interval.size // count - 1)}
    runtimes = {r.var for r in edges.runtimes}
    for operand, index in reads:
        cut: list[int | None] = []
        for k, e in enumerate(index):
            moves = _moves(e, v.var, op.operands[operand].shape[k], count, ranges)
            if moves is None or (moves and runtimes.intersection(e.variables)):
                return Declined(f"strips of {name} read across the strips of operand {operand}")
            cut += [k] if moves else []
        if len(cut) > 1:
            return Declined(f"{name} reads operand {operand} along a diagonal")
        found.setdefault(operand, set()).update(cut or [None])
    if any(len(x) > 1 for x in found.values()):
        return Declined(f"{name} reads an operand both in strips and whole")
    return tuple([next(iter(found.get(k, {None}))) for k in range(len(op.operands))])


def _ranges(edges: OpEdges) -> dict[Var, Interval]:
    found = {x.var: x.interval for x in (*edges.dims, *edges.ranges)}
    found.update((r.var, r.interval) for r in edges.runtimes)
    return found


def _equal_to(v: Var, constraints: Sequence[Constraint], over: Set[Var]) -> dict[Var, ExprLike]:
    """The range variables that constraints say are the variable itself, as what they are."""
    found: dict[Var, ExprLike] = {}
    for c in constraints:
        if c.interval.lower == c.interval.upper == 0:
            found.update((s, v) for s in c.expression.variables if s in over and c.expression in (v - s, s - v))
    return found


def _moves(e: Expr, v: Var, extent: int, count: int, ranges: Mapping[Var, Interval]) -> bool | None:
    """Whether an index of a dimension steps from strip to strip as the variable does, beginning in the first one, or does not
    move; None for any other way. `ranges` has the variable in the first strip."""
    if v not in e.variables:
        return False
    known = {**ranges, _STRIP: Interval(0, count - 1)}
    moved = simplify(substitute(e, {v: v + _STRIP * ranges[v].size}), known)
    difference = simplify(moved - simplify(e, known), known)
    if difference is Const(0):
        return False
    step, inside = extent // count, interval(simplify(e, ranges), ranges)
    stays = extent % count == 0 and inside.lower >= 0 and inside.upper < step
    return True if stays and difference is simplify(_STRIP * step, known) else None


def _reads_alike(op: Op, made: Op, output: int) -> bool:
    """Whether an op on strips reads, by its own maps, what the maps of the whole op say of the first strip."""
    old, new = edges_of(op, output), edges_of(made, output)
    if isinstance(old, Declined) or isinstance(new, Declined):
        return isinstance(op.definition.semantics, (Literal, Generate))
    ranges = _ranges(new)

    def written(edges: OpEdges) -> list[object]:
        reads: list[object] = [edges.runtime_operands]
        for edge in edges.reads:
            conditions = [(simplify(c.expression, ranges), c.interval) for c in edge.map.constraints]
            reads.append((edge.operand, _simple(edge.map.results, ranges), conditions))
        return reads + [(_simple(r.element, ranges), r.interval) for r in edges.runtimes]

    return written(old) == written(new)


def _simple(index: Sequence[Expr], ranges: Mapping[Var, Interval]) -> tuple[Expr, ...]:
    return tuple([simplify(e, ranges) for e in index])
