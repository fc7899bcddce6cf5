"""Bodies of wider types than their operands': the operands become what the body takes, by conversions in front of the op.

    reduce x, init: i8 with a body of i32   ->   reduce (convert x), (convert init): i32

So says the specification of every op that folds by a body (reduce, reduce_window, scatter, select_and_scatter). Conversions
are computed where they are read, and what comes after this rewrite knows folds of one type alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.builder import Builder
from hlo.clone import clone_block
from hlo.module import Block, Op, Value
from hlo.registry import definition
from hlo.types import ElementType, TensorType

__all__ = ["factors_as_bytes", "promoted"]


def promoted(op: Op) -> Block | None:
    """A block over the op's operands that ends with its results, where operands become the types of its body; None where
    they have them already.

    >>> import hlo
    >>> from hlo.module import Function
    >>> text = '''HloModule m
    ... add { a = s32[] parameter(0) b = s32[] parameter(1) ROOT s = s32[] add(a, b) }
    ... ENTRY e { x = s8[4] parameter(0) z = s8[] constant(0) ROOT r = s32[] reduce(x, z), dimensions={0}, to_apply=add }'''
    >>> [x.name for x in promoted(hlo.parse(text).function().body.ops[1]).ops]
    ['stablehlo.convert', 'stablehlo.convert', 'stablehlo.reduce', 'func.return']
    """
    folded = _FOLDED.get(op.name)
    if folded is None or not op.regions:
        return None
    count = len(op.operands)
    goals = dict(zip(folded(count), op.regions[-1].arguments, strict=True))
    wanted = {k: a.tensor.element for k, a in goals.items()}
    known = [v.type.element if isinstance(v.type, TensorType) else None for v in op.operands]
    wide = {k: e for k, e in wanted.items() if known[k] != e}
    if not wide or not all(isinstance(e, ElementType) and isinstance(known[k], ElementType) for k, e in wide.items()):
        return None
    regions: Sequence[Block] = op.regions
    if op.name == "stablehlo.select_and_scatter":
        element = wanted[1]
        assert isinstance(element, ElementType)
        wide[0] = element
        regions = (_on_wider(op.regions[0], element), op.regions[1])
    b = Builder()
    b.place = op.location
    block = Block([v.type for v in op.operands])
    with b.into(block):
        operands = [_converted(b, v, wide[k]) if k in wide else v for k, v in enumerate(block.arguments)]
        types, names = [r.type for r in op.results], [r.name for r in op.results]
        made = Op(op.definition, operands, op.attributes, regions, types, op.location, op.extra, names)
        block.ops.append(made)
        b.emit("func.return", made.results)
    return block


def _folds_all(count: int) -> Sequence[int]:
    return range(count)


def _scatters(count: int) -> Sequence[int]:
    """inputs, scatter_indices, updates: all but the indices."""
    return [k for k in range(count) if k != count // 2]


_FOLDED: dict[str, Callable[[int], Sequence[int]]] = {
    "stablehlo.reduce": _folds_all,
    "stablehlo.reduce_window": _folds_all,
    "stablehlo.scatter": _scatters,
    "stablehlo.select_and_scatter": lambda count: (2, 1),
}
"""Op: the operands that the arguments of its (last) body stand for, in order."""


def _converted(b: Builder, v: Value, element: object) -> Value:
    assert isinstance(element, ElementType)
    return b.emit("stablehlo.convert", [v], result_types=[TensorType(v.tensor.shape, element)])[0]


def _on_wider(body: Block, element: ElementType) -> Block:
    """A body of narrow numbers for wide ones that narrow numbers have become."""
    made = Block([TensorType((), element)] * len(body.arguments))
    narrow = {}
    for old, new in zip(body.arguments, made.arguments, strict=True):
        convert = Op(definition("stablehlo.convert"), [new], result_types=[old.type])
        made.ops.append(convert)
        narrow[old] = convert.result
    copy = clone_block(body, {})
    inside = {c: narrow[a] for c, a in zip(copy.arguments, body.arguments, strict=True)}
    for op in copy.ops:
        op.operands = tuple(inside.get(v, v) for v in op.operands)
        made.ops.append(op)
    return made


def factors_as_bytes(op: Op, operands: Sequence[Value]) -> Sequence[Value]:
    """The factors of a product in i32: the bytes that both are converted from, where they are; else the factors.

    A product of bytes with an i32 result sums the same integers, whatever their signs, by instructions for bytes.
    """
    if op.name != "stablehlo.dot_general" or op.attr("algorithm") is not None or str(op.results[0].tensor.element) != "i32":
        return operands
    found = [v.op.operands[0] for v in operands if v.op is not None and v.op.definition.function == "convert"]
    is_bytes = len(found) == 2 and all(str(v.tensor.element) in ("i8", "ui8") for v in found)
    return found if is_bytes and all(str(v.tensor.element) == "i32" for v in operands) else operands
