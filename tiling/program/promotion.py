"""Bodies of wider types than their operands': the operands become what the body takes, by conversions in front of the op.

    reduce x, init: i8 with a body of i32   ->   reduce (convert x), (convert init): i32

So says the specification of every op that folds by a body (reduce, reduce_window, scatter, select_and_scatter). Conversions
are computed where they are read, and what comes after this rewrite knows folds of one type alone.

    dot of chosen rows, of bf16   ->   convert (dot of (convert chosen rows), of f32)

A sum of 16 bits is rounded once. Where a comparison with a number known at run time chooses the rows (`reads_choice`), the sum
grows from group to group, so it is one of f32 that is rounded afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hlo.builder import Builder
from hlo.clone import captured_values, clone_block, clone_op, with_replaced
from hlo.module import Block, Op, Value
from hlo.registry import Elementwise, Move, definition
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from tiling.program.known_tests import repeated

__all__ = ["factors_as_bytes", "products_of_choices", "promoted", "reads_choice"]

MOST_LOOKED_AT = 64
"""Ops above a factor among which a choice by a comparison is looked for: a mask stands right above its product."""


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


def products_of_choices(ops: Sequence[Op], results: Sequence[Value]) -> tuple[Sequence[Op], Sequence[Value]]:
    """Ops in dependency order and results, where each product whose rows a comparison chooses has a choice of its own, and those
    of 16 bits are products in f32 that are rounded.

    A product is bounded where it makes its factor itself, group by group; a factor of several products, as large as all rows for
    each group, would be stored.
    """
    readers = Counter(results)
    for op in ops:
        readers.update(op.operands)
        readers.update(v for b in op.regions for v in captured_values(b))
    done: dict[Value, Value] = {}
    made: list[Op] = []
    for op in ops:
        new = with_replaced(op, done)
        if op.name == "stablehlo.dot_general" and any(reads_choice(v, of_zeros=True) for v in op.operands):
            new = _of_own_choices(op, new, readers, made)
            if _is_narrow_product(op):
                new = _rounded(new, made)
            done.update(zip(op.results, new.results, strict=True))
        made.append(new)
    return made, [done.get(v, v) for v in results]


def _of_own_choices(op: Op, product: Op, readers: Counter[Value], made: list[Op]) -> Op:
    """The product that `op` has become, with a copy of each choice among its factors that something else still reads."""
    own: dict[Value, Value] = {}
    for old, v in zip(op.operands, product.operands, strict=True):
        is_choice = v.op is not None and v.op.definition.mnemonic == "select" and reads_choice(v, of_zeros=True)
        if is_choice and readers[old] > 1 and v.op is not None:
            made.append(clone_op(v.op, own))
            readers[old] -= 1
    return with_replaced(product, own)


def _rounded(product: Op, made: list[Op]) -> Op:
    """The conversion of the product in f32 of converted factors, which `made` then has."""
    (r,) = product.results
    factors = [_as_f32(v, made) for v in product.operands]
    total = TensorType(r.tensor.shape, ELEMENT_TYPES["f32"])
    made.append(Op(product.definition, factors, product.attributes, (), [total], product.location, product.extra, [r.name]))
    return Op(definition("stablehlo.convert"), made[-1].results, result_types=[r.type], location=product.location)


def _as_f32(v: Value, made: list[Op]) -> Value:
    made.append(Op(definition("stablehlo.convert"), [v], result_types=[TensorType(v.tensor.shape, ELEMENT_TYPES["f32"])]))
    return made[-1].result


def _is_narrow_product(op: Op) -> bool:
    is_product = op.name == "stablehlo.dot_general" and op.attr("algorithm") is None
    return is_product and str(op.results[0].tensor.element) in ("bf16", "f16")


def reads_choice(factor: Value, of_zeros: bool = False) -> bool:
    """Whether a comparison of an index with a number known at run time chooses a factor's elements, as ops alone tell.

    With `of_zeros`: whether it chooses between something and zeros.
    """
    choices = [op for op in _above(factor) if op.definition.mnemonic == "select"]
    if of_zeros:
        choices = [op for op in choices if any(repeated(v) == 0 for v in op.operands[1:])]
    return any(_is_comparison(x) for op in choices for x in _above(op.operands[0]))


def _is_comparison(op: Op) -> bool:
    """Whether an op compares numbers, of which an index is one and the other one is no constant."""
    if op.definition.mnemonic != "compare" or not getattr(op.operands[0].tensor.element, "is_integer", False):
        return False
    sides = [list(_above(v)) for v in op.operands]
    counted = [any(x.definition.mnemonic == "iota" for x in side) and len(side) < MOST_LOOKED_AT for side in sides]
    made = [any(y.op is None or not _is_in_place(y.op) for x in side for y in x.operands) or not side for side in sides]
    return (counted[0] and made[1]) or (counted[1] and made[0])


def _is_in_place(op: Op) -> bool:
    return isinstance(op.definition.semantics, (Elementwise, Move)) or not op.operands


def _above(v: Value) -> list[Op]:
    """The ops that a value is computed from in place, the nearest ones first; no more than MOST_LOOKED_AT."""
    found: dict[Op, None] = {}
    todo = [v]
    while todo and len(found) < MOST_LOOKED_AT:
        op = todo.pop(0).op
        if op is not None and op not in found and _is_in_place(op):
            found[op] = None
            todo.extend(op.operands)
    return list(found)
