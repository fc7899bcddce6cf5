"""Scatters to places that are known when the program is planned: what they give is computed like any other elementwise value.

    scatter f (x, [1, 1], u)             ->  x with f(x[1:-1, 1:-1], u) in its place        x.at[1:-1, 1:-1].add(u)
    scatter f (x, [[0], [2], ...], u)    ->  select(i is even, f(x, u padded between), x)   x.at[::2].set(u)

As a scatter such an update copies x and then goes over the update, place by place, in a kernel of its own. What is rewritten here
fuses with what computes x and u and with what reads the result. A small update of a value that may be written over is left to
`tiling.program.updates.in_place`, which stores the update alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from hlo.attributes import ScatterDimensions
from hlo.builder import Builder
from hlo.clone import with_replaced
from hlo.module import Op, Value
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from indexing.deriving.derive import reads_of
from indexing.deriving.runtime import known_element
from indexing.expr import Const, Expr, Interval, Var, simplify, substitute
from tiling.program.unfold import on_tensors

__all__ = ["Places", "are_amid", "known_places", "written_out"]

LEAST_AROUND_SPOT = 1024  # elements
"""In smaller values each place is tested: a kernel of its own for one place takes longer."""


@dataclass(frozen=True)
class Places:
    """Where updates go along one dimension of the operand: `start + k * step` for k in [0, count - 1].

    `axis` is the dimension of the update that k counts along, None where there is one place and no such dimension.
    """

    start: int
    step: int
    count: int
    axis: int | None

    @property
    def low(self) -> int:
        return min(self.start, self.last)

    def is_amid(self, size: int) -> bool:
        """Whether they are few of a dimension's places, and none of them its first or last one."""
        return 4 * self.count <= size and 0 < self.start < size - 1 and 0 < self.last < size - 1

    @property
    def last(self) -> int:
        return self.start + (self.count - 1) * self.step


def are_amid(shape: Sequence[int], places: Sequence[Places]) -> bool:
    """Whether places are few and amid a large value: written out, they would be asked for in the innermost loop over all of
    it."""
    return prod(shape) >= LEAST_AROUND_SPOT and any(p.is_amid(n) for p, n in zip(places, shape, strict=True))


def known_places(op: Op) -> tuple[Places, ...] | None:
    """Where a scatter's updates go, dimension by dimension of its operand; None where the program does not tell.

    None as well where a place is updated twice or lies outside, and where types are such that kernels do not know them.
    """
    if op.name != "stablehlo.scatter" or not all(map(_is_plain, (*op.operands, *op.results))):
        return None
    count = len(op.operands) // 2
    operand, indices, update = op.operands[0], op.operands[count], op.operands[count + 1]
    elements = [v.tensor.element for v in (*op.operands[:count], *op.operands[count + 1 :])]
    if 0 in update.shape or [v.tensor.element for v in op.regions[0].arguments] != elements:
        return None
    found = _Reader(op.attr("scatter_dimension_numbers"), indices, update).along(operand.rank)
    if found is None or any(p.low < 0 or max(p.start, p.last) >= n for p, n in zip(found, operand.shape, strict=True)):
        return None
    reached = {p.axis for p in found}
    left = prod(n for k, n in enumerate(update.shape) if k not in reached)
    return tuple(found) if left == 1 else None


def _is_plain(v: Value) -> bool:
    t = v.type
    return isinstance(t, TensorType) and t.is_static and isinstance(t.element, ElementType)


class _Reader:
    """A scatter's places, from its indices: along which of their dimensions each component is an affine function."""

    def __init__(self, dims: ScatterDimensions, indices: Value, update: Value) -> None:
        self.dims, self.indices, self.update = dims, indices, update
        batch = [k for k in range(indices.rank) if k != dims.index_vector_dim]
        self.variables = {k: Var(f"i{k}") for k in batch}
        self.ranges = {v: Interval(0, indices.shape[k] - 1) for k, v in self.variables.items()}
        axes = [k for k in range(update.rank) if k not in dims.update_window_dims]
        self.axis = dict(zip(self.variables.values(), axes, strict=True))
        self.taken: set[Var] = set()

    def along(self, rank: int) -> list[Places] | None:
        dims = self.dims
        windows = [d for d in range(rank) if d not in (*dims.inserted_window_dims, *dims.input_batching_dims)]
        window_axis = dict(zip(windows, dims.update_window_dims, strict=True))
        found = []
        for d in range(rank):
            e = self.index(d)
            axis = window_axis.get(d)
            made = None if e is None else self.places(e, axis, 1 if axis is None else self.update.shape[axis])
            if made is None:
                return None
            found.append(made)
        return found

    def index(self, d: int) -> Expr | None:
        """The first place along a dimension of the operand."""
        dims = self.dims
        if d in dims.input_batching_dims:
            return self.variables[dims.scatter_indices_batching_dims[dims.input_batching_dims.index(d)]]
        if d not in dims.scatter_dims_to_operand_dims:
            return Const(0)
        place: list[Expr] = [self.variables.get(k, Const(0)) for k in range(self.indices.rank)]
        if dims.index_vector_dim < len(place):
            place[dims.index_vector_dim] = Const(dims.scatter_dims_to_operand_dims.index(d))
        return known_element(self.indices, place, self.ranges, reads_of)

    def places(self, e: Expr, axis: int | None, window: int) -> Places | None:
        """The places that an index and a window from there on are; None where the index is no progression, or another's."""
        at = {v: simplify(substitute(e, {v: Const(0)}), self.ranges) for v in e.variables}
        if len(at) > 1:
            return None
        if not at:
            start = _number(simplify(e, self.ranges))
            return None if start is None else Places(start, 1, window, axis)
        ((v, first),) = at.items()
        start, second = _number(first), _number(simplify(substitute(e, {v: Const(1)}), self.ranges))
        if start is None or second is None or window != 1 or v in self.taken:
            return None
        step = second - start
        if not step or _number(simplify(e - step * v, self.ranges)) != start:
            return None
        self.taken.add(v)
        return Places(start, step, self.ranges[v].upper + 1, self.axis[v])


def _number(e: Expr) -> int | None:
    return e.value if isinstance(e, Const) else None


def written_out(
    ops: Sequence[Op], results: Sequence[Value], known: Mapping[Op, Sequence[Places]]
) -> tuple[list[Op], list[Value]]:
    """Ops in dependency order and results, with the scatters whose places are given written out as other ops."""
    env: dict[Value, Value] = {}
    made: list[Op] = []
    for op in ops:
        b = Builder()
        b.place = op.location
        new = _updated(b, op, [env.get(v, v) for v in op.operands], known[op]) if op in known else None
        if new is None:
            made.append(with_replaced(op, env))
        else:
            made += _needed(b.current.ops, new)
            env.update(zip(op.results, new, strict=True))
    return made, [env.get(v, v) for v in results]


def _needed(ops: Sequence[Op], results: Sequence[Value]) -> list[Op]:
    """The ops that results come from: an update that replaces what was there does not read it."""
    wanted, found = set(results), []
    for op in reversed(ops):
        if not wanted.isdisjoint(op.results):
            wanted.update(op.operands)
            found.append(op)
    return found[::-1]


def _updated(b: Builder, op: Op, operands: Sequence[Value], places: Sequence[Places]) -> list[Value] | None:
    count = len(operands) // 2
    inputs, updates = operands[:count], [_turned(b, u, places) for u in operands[count + 1 :]]
    shape = tuple(p.count for p in places)
    low, steps = [p.low for p in places], [abs(p.step) for p in places]
    above = [max(p.start, p.last) + 1 for p in places]
    before = [b.slice(x, low, above, steps) for x in inputs]
    values = on_tensors(b, op.regions[0], [*before, *updates], shape)
    if values is None:
        return None
    if all(s == 1 for s in steps):
        starts = [b.constant(n, TensorType((), ELEMENT_TYPES["i32"])) for n in low]
        return [b.dynamic_update_slice(x, v, starts) for x, v in zip(inputs, values, strict=True)]
    config = [(p.low, n - 1 - max(p.start, p.last), abs(p.step) - 1) for p, n in zip(places, inputs[0].shape, strict=True)]
    truth = ELEMENT_TYPES["i1"]
    is_new = b.pad(b.constant(True, TensorType(shape, truth)), b.constant(False, TensorType((), truth)), config)
    spread = [b.pad(v, b.constant(0, TensorType((), v.tensor.element)), config) for v in values]
    return [b.select(is_new, v, x) for v, x in zip(spread, inputs, strict=True)]


def _turned(b: Builder, update: Value, places: Sequence[Places]) -> Value:
    """An update with a dimension for each of the operand's, in their order and from the lowest place on."""
    order = [p.axis for p in places if p.axis is not None]
    order += [k for k in range(update.rank) if k not in order]
    if order != sorted(order):
        update = b.transpose(update, order)
    shape = tuple(p.count for p in places)
    update = update if update.shape == shape else b.reshape(update, shape)
    backwards = [k for k, p in enumerate(places) if p.step < 0]
    return b.reverse(update, backwards) if backwards else update
