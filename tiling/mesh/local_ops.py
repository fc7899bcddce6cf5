"""Ops on tiles: the same op, with what its attributes say of sizes cut to the tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo.clone import clone_block
from hlo.errors import VerificationError
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Fold, Literal, Move, definition
from hlo.types import ElementType, TensorType
from hlo.verify import check_op
from tiling.elements.folds import combined_function, combined_function_of, is_idempotent, is_neutral
from tiling.mesh.emit import resized
from tiling.mesh.relations import Window, Windows
from tiling.mesh.shardings import Sharding

__all__ = ["cloned", "combination", "filling", "folds_in_parts", "is_filled", "local_op", "windowed_dims"]

_LENGTHS = {"stablehlo.dynamic_slice": "slice_sizes", "stablehlo.gather": "slice_sizes"}
"""Op -> the attribute that holds a length for each dimension of its first operand."""


_ENDS: Mapping[str, tuple[str, ...]] = {
    "stablehlo.pad": ("edge_padding_low", "edge_padding_high"), "stablehlo.slice": ("start_indices",), "stablehlo.reverse": (),
}  # fmt: skip
"""Op that may read its first operand in windows -> the attributes that say, by dimension, where: zero once a window is there."""


def windowed_dims(op: Op) -> dict[int, int]:
    """Dimension of the first operand that may be read in windows -> its row of the attributes that say where."""
    if op.name == "stablehlo.convolution":
        return {k: row for row, k in enumerate(op.attr("dimension_numbers").input_spatial)}
    is_one = op.name == "stablehlo.reduce_window" or op.name in _ENDS
    return {k: k for k in range(op.operands[0].rank)} if is_one else {}


def is_filled(op: Op) -> bool:
    """Whether windows of an op may reach over the ends of its operand."""
    return op.name not in ("stablehlo.slice", "stablehlo.reverse")


def filling(op: Op, operand: int = 0) -> Value | None:
    """What an op takes for elements of an operand that are not there: its own operand for that; None for zero."""
    semantics = op.definition.semantics
    if isinstance(semantics, Move) and semantics.otherwise is not None:
        return op.operands[semantics.otherwise]
    return op.operands[len(op.results) + operand] if isinstance(semantics, Fold) else None  # behind as many inputs


def local_op(op: Op, operands: Sequence[Sharding], result: Sharding, windows: Windows) -> Op | None:
    """The op on tiles of its operands, or None where there is no such op. (Its operands are stand-ins of the tiles' types.)"""
    given = [s.local_type(v.tensor) for s, v in zip(operands, op.operands, strict=True)]
    for (k, dim), window in windows.items():
        given[k] = resized(given[k], dim, window.length)
    block = Block(given)
    attributes = dict(op.attributes)
    rows = windowed_dims(op)
    if any(k != 0 or dim not in rows for k, dim in windows):
        return None
    for name in _ENDS.get(op.name, ("padding",)) if windows else ():
        ends = list(op.attr(name))
        for (_, dim), window in windows.items():
            low, high = _edges(op, rows[dim], window, result)
            ends[rows[dim]] = (low, high) if name == "padding" else high if name == "edge_padding_high" else low
        attributes[name] = tuple(ends)
    if op.name == "stablehlo.slice":
        lengths = list(op.attr("limit_indices"))
        for k, digits in enumerate(operands[0].dims):
            lengths[k] = block.arguments[0].shape[k] if digits else lengths[k]
        attributes["limit_indices"] = tuple(lengths)
    if op.name == "stablehlo.convolution":
        groups = _groups(op, operands)
        if groups is None:
            return None
        attributes |= groups
    lengths_name = _LENGTHS.get(op.name)
    if lengths_name is not None:
        lengths = list(op.attr(lengths_name))
        batches = op.attr("dimension_numbers").operand_batching_dims if op.name == "stablehlo.gather" else ()
        for k, digits in enumerate(operands[0].dims):
            if digits and k in batches:
                continue
            if digits and lengths[k] != op.operands[0].shape[k]:
                return None
            lengths[k] = block.arguments[0].shape[k] if digits else lengths[k]
        attributes[lengths_name] = tuple(lengths)
    types = [result.local_type(r.tensor) for r in op.results]
    made = Op(op.definition, block.arguments, attributes, op.regions, types, op.location, op.extra)
    try:
        check_op(made)
    except VerificationError:
        return None
    return made


_DILATIONS = {"stablehlo.convolution": "lhs_dilation", "stablehlo.reduce_window": "base_dilations"}


def _edges(op: Op, row: int, window: Window, result: Sharding) -> tuple[int, int]:
    """The padding of a window: none, but where holes between the elements make its ends no multiples of their distance."""
    if op.name == "stablehlo.pad":
        step, low, reach, stride = op.attr("interior_padding")[row] + 1, op.attr("edge_padding_low")[row], 1, 1
        dim = row
    elif op.name in _DILATIONS:
        step, low = (op.attr(_DILATIONS[op.name]) or (1,) * (row + 1))[row], op.attr("padding")[row][0]
        dim, holes_name = row, "window_dilations"
        if op.name == "stablehlo.convolution":
            numbers, holes_name = op.attr("dimension_numbers"), "rhs_dilation"
            dim, size = numbers.output_spatial[row], op.operands[1].shape[numbers.kernel_spatial[row]]
        else:
            size = op.attr("window_dimensions")[row]
        holes = op.attr(holes_name) or (1,) * (row + 1)
        strides = op.attr("window_strides") or (1,) * (row + 1)
        reach, stride = (size - 1) * holes[row] + 1, strides[row]
    else:
        return 0, 0
    if step == 1:
        return 0, 0
    length = -(-op.results[0].shape[dim] // result.parts(dim))
    low += step * window.first
    return low, (length - 1) * stride + reach - low - (step * (window.length - 1) + 1)


def _groups(op: Op, operands: Sequence[Sharding]) -> dict[str, int] | None:
    """The numbers of groups of a convolution on tiles: groups are shared out like the features, or the batch, that they cut."""
    numbers = op.attr("dimension_numbers")
    made = {}
    for name, dim in (("feature_group_count", numbers.input_feature), ("batch_group_count", numbers.input_batch)):
        count, parts = op.attr(name), operands[0].parts(dim)
        if count > 1 and parts > 1:
            if count % parts:
                return None
            made[name] = count // parts
    return made


def cloned(op: Op, inner: Mapping[Value, Value]) -> Op:
    """A copy of an op whose operands are replaced, in its regions too."""
    operands = [inner.get(v, v) for v in op.operands]
    regions = [clone_block(b, inner) for b in op.regions]
    types, names = [r.type for r in op.results], [r.name for r in op.results]
    return Op(op.definition, operands, op.attributes, regions, types, op.location, op.extra, names)


def folds_in_parts(op: Op, semantics: Fold) -> bool:
    """Whether folds of parts, each from the initial values, combine to the fold of the whole."""
    function = combined_function(op.regions[0])
    if len(op.results) == 1:
        return function is not None and _starts_anywhere(op, 0, function)
    body, n = op.regions[0], len(op.results)
    if op.name != "stablehlo.reduce" or [r.tensor.element for r in op.results] != [v.tensor.element for v in op.operands[:n]]:
        return False
    for k, v in enumerate(body.results):
        own = body.arguments[k], body.arguments[n + k]
        if _is_one_of(v, own):
            continue
        function = combined_function_of(body, k)
        if function is None or not _starts_anywhere(op, k, function):
            return False
    return True


def _starts_anywhere(op: Op, k: int, function: str) -> bool:
    """Whether an associative function that result k is folded by may begin once more from its initial value in each part."""
    if is_idempotent(function):
        return True
    start, element = op.operands[len(op.results) + k].op, op.results[k].tensor.element
    if start is None or not isinstance(start.definition.semantics, Literal) or not isinstance(element, ElementType):
        return False
    dense: DenseArray = start.attr("value")
    value = dense.array.reshape(-1)[0]
    return (function == "add" or not element.is_complex) and is_neutral(function, value, element)  # 1 changes a complex infinity


def _is_one_of(v: Value, own: tuple[Value, Value]) -> bool:
    """Whether a value is always one of two, chosen in whatever way: of two that are equal it is that."""
    if v in own:
        return True
    op = v.op
    if op is None:
        return False
    if op.name == "stablehlo.select":
        return all(_is_one_of(x, own) for x in op.operands[1:])
    return op.name in ("stablehlo.minimum", "stablehlo.maximum") and all(_is_one_of(x, own) for x in op.operands)


def combination(op: Op) -> Block:
    """The body that combines partial results of an op: a fold's own, else a sum."""
    if op.regions:
        return op.regions[0]
    t = TensorType((), op.results[0].tensor.element)
    block = Block([t, t])
    total = Op(definition("stablehlo.add"), block.arguments, {}, (), [t])
    block.ops += [total, Op(definition("stablehlo.return"), total.results)]
    return block
