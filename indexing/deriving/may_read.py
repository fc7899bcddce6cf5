"""Reads of ops whose values decide what is read: every element that some values could make the op read.

The definitions in `hlo` decline an access function for these ops, because no code could be made from one. The analysis can
still bound them: each function here is an access function (`hlo.access`) whose reads cover all cases. `MAY_READ` is the
table; an op that is in neither place is unknown, with the definition's reason.
"""

from __future__ import annotations

from hlo import Op
from hlo.access import AccessBuilder, AccessFunction, Condition, Index
from hlo.attributes import ScatterDimensions

__all__ = ["MAY_READ"]


def _scatter(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """result[d] is inputs[d] and every update whose window, placed by scatter_indices, covers d."""
    n: ScatterDimensions = op.attr("scatter_dimension_numbers")
    count = len(op.segment("inputs"))
    indices, updates = op.operands[count].shape, op.operands[count + 1].shape
    batch = [ix.range(size) for k, size in enumerate(updates) if k not in n.update_window_dims]
    placed = [k for k in range(len(d)) if k not in n.inserted_window_dims and k not in n.input_batching_dims]
    window = dict(zip(placed, n.update_window_dims, strict=True))  # input dimension -> dimension of updates
    inside: dict[int, Index] = {}
    where: list[Condition] = []
    for k, size in enumerate(op.operands[0].shape):
        extent = updates[window[k]] if k in window else 1
        start: Index = 0
        if k in n.input_batching_dims:
            j = n.scatter_indices_batching_dims[n.input_batching_dims.index(k)]
            start = batch[j - (1 if j > n.index_vector_dim else 0)]
        elif k in n.scatter_dims_to_operand_dims:
            at = list(batch)
            if n.index_vector_dim < len(indices):
                at.insert(n.index_vector_dim, n.scatter_dims_to_operand_dims.index(k))
            # An update that does not fit is left out, so a start outside of these limits reads nothing.
            start = ix.runtime(count, at, 0, size - extent)
        where.append(Condition(d[k] - start, 0, extent - 1))
        if k in window:
            inside[window[k]] = d[k] - start
    outside = iter(batch)
    index = [inside[k] if k in inside else next(outside) for k in range(len(updates))]
    for k in range(count):
        ix.read(k, d)
        ix.read(count + 1 + k, index, where)
    # Whatever the indices are, those of other batches place nothing in the result's own.
    own = dict(zip(n.scatter_indices_batching_dims, (d[k] for k in n.input_batching_dims), strict=True))
    ix.read(count, [own[k] if k in own else ix.range(size) for k, size in enumerate(indices)])


def _select_and_scatter(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """result[d] adds source[o] for every window o that covers d and chose it among its elements."""
    rows = zip(
        d,
        op.operands[0].shape,
        op.operands[1].shape,
        op.attr("window_dimensions"),
        op.attr("window_strides"),
        op.attr("padding"),
        strict=True,
    )
    source: list[Index] = []
    operand: list[Index] = []
    covers: list[Condition] = []
    reads: list[Condition] = []
    for x, n, m, window, stride, (low, _) in rows:
        o: Index = ix.range(m)
        w: Index = ix.range(window)
        source.append(o)
        covers.append(Condition(x + low - o * stride, 0, window - 1))
        operand.append(o * stride + w - low)
        reads.append(Condition(o * stride + w - low, 0, n - 1))
    ix.read(0, operand, [*covers, *reads])
    ix.read(1, source, covers)
    ix.read(2, ())


def _scan(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """A step reads its slice and what the steps before it made: every slice up to its own. Carries read all slices."""
    axis, count = op.attr("dimension"), len(op.segment("inputs"))
    inits = op.segment("inits")
    is_output = output < len(op.results) - len(inits)
    for k in range(count):
        shape = op.operands[k].shape
        step = ix.range(shape[axis])
        index: list[Index] = [step if i == axis else ix.range(n) for i, n in enumerate(shape)]
        where: list[Condition] = []
        if is_output:
            before = d[axis] - step if not op.attr("is_reverse") else step - d[axis]
            where.append(Condition(before, 0, shape[axis] - 1))
        ix.read(k, index, where)
    for k, v in enumerate(inits):
        ix.read(count + k, [ix.range(n) for n in v.shape])


# For each result, the operands that it is computed from.
_TRAINING = ((0, 1, 2), (0,), (0,))
_GRADIENTS = ((0, 1, 2, 3, 4), (0, 2, 3, 4), (4,))


def _batch_norm(reads: tuple[tuple[int, ...], ...]) -> AccessFunction:
    """Statistics are taken over a whole feature; so is everything that is computed from them."""

    def access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
        axis = op.attr("feature_index")
        feature = d[axis] if output == 0 else d[0]
        for k in reads[output]:
            shape = op.operands[k].shape
            ix.read(k, (feature,) if len(shape) == 1 else [feature if i == axis else ix.range(n) for i, n in enumerate(shape)])

    return access


def _ragged_dot(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """Which group a row belongs to, group_sizes say: any of them may be read."""
    for k, v in enumerate(op.operands):
        ix.read(k, [ix.range(n) for n in v.shape])


MAY_READ: dict[str, AccessFunction] = {
    "stablehlo.scatter": _scatter,
    "stablehlo.select_and_scatter": _select_and_scatter,
    "chlo.scan": _scan,
    "stablehlo.batch_norm_training": _batch_norm(_TRAINING),
    "stablehlo.batch_norm_grad": _batch_norm(_GRADIENTS),
    "chlo.ragged_dot": _ragged_dot,
}
"""op name -> an access function whose reads cover what the op may read."""
