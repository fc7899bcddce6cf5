"""Control flow over tuples, as HLO text has it, with one value for each part instead.

while (a, b) as one tuple   ->   while a, b
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hlo.clone import captured_values, clone_block
from hlo.module import Block, Op, Value
from hlo.registry import Structure, definition
from hlo.types import TupleType, Type

__all__ = ["has_tuples", "part_of", "without_tuples"]


def without_tuples(op: Op, environment: Mapping[Value, Value]) -> Block | None:
    """A block over the op's operands that ends with its results, its op without tuples; None for an op that has none to lose.

    `environment` says what stands for the values that its regions read from outside; inside them no tuple is left that control
    flow made.
    """
    if not has_tuples(op):
        return None
    block = Block([v.type for v in op.operands], [v.name for v in op.operands])
    known = {v: environment[v] for r in op.regions for v in captured_values(r) if v in environment}
    results = _parted(block, op, {**known, **dict(zip(op.operands, block.arguments, strict=True))})
    _emit(block, "func.return", results, op, ())
    return block


def part_of(op: Op, operands: Sequence[Value]) -> Value | None:
    """What a `get_tuple_element` gives where the tuple was made in sight."""
    whole = operands[0].op
    return whole.operands[op.attr("index")] if whole is not None and whole.definition.structure is Structure.TUPLE else None


def has_tuples(op: Op) -> bool:
    """True for control flow or a barrier that takes or gives tuples."""
    is_passed_on = op.definition.is_control or op.definition.structure is Structure.BARRIER
    return is_passed_on and any(isinstance(v.type, TupleType) for v in (*op.operands, *op.results))


def _leaves(t: Type) -> list[Type]:
    return [x for e in t.elements for x in _leaves(e)] if isinstance(t, TupleType) else [t]


def _emit(
    block: Block, name: str, operands: Sequence[Value], at: Op, types: Sequence[Type],
    attributes: Mapping[str, object] | None = None, regions: Sequence[Block] = (),
) -> tuple[Value, ...]:  # fmt: skip
    op = Op(definition(name), operands, attributes, regions, types, at.location)
    block.ops.append(op)
    return op.results


def _opened(block: Block, values: Sequence[Value], at: Op) -> list[Value]:
    """The parts of values, however deep tuples nest."""
    parts: list[Value] = []
    for v in values:
        if not isinstance(v.type, TupleType):
            parts.append(v)
        elif v.op is not None and v.op.definition.structure is Structure.TUPLE:
            parts += _opened(block, v.op.operands, at)
        else:
            for k, t in enumerate(v.type.elements):
                parts += _opened(block, _emit(block, "stablehlo.get_tuple_element", [v], at, [t], {"index": k}), at)
    return parts


def _closed(block: Block, t: Type, parts: Iterator[Value], at: Op) -> Value:
    """A value of type t made of the next parts."""
    if not isinstance(t, TupleType):
        return next(parts)
    elements = [_closed(block, e, parts, at) for e in t.elements]
    return _emit(block, "stablehlo.tuple", elements, at, [t])[0]


def _parted(block: Block, op: Op, known: Mapping[Value, Value]) -> list[Value]:
    """Appends the op without tuples; its results, tuples made anew."""
    operands = _opened(block, [known.get(v, v) for v in op.operands], op)
    regions = [_region(r, known, op) for r in op.regions]
    types = [t for r in op.results for t in _leaves(r.type)]
    parts = iter(_emit(block, op.name, operands, op, types, op.attributes, regions))
    return [_closed(block, r.type, parts, op) for r in op.results]


def _region(body: Block, outer: Mapping[Value, Value], at: Op) -> Block:
    names = [a.name if not isinstance(a.type, TupleType) else None for a in body.arguments for _ in _leaves(a.type)]
    new = Block([t for a in body.arguments for t in _leaves(a.type)], names)
    parts = iter(new.arguments)
    known = {v: outer[v] for v in captured_values(body) if v in outer}
    known.update((a, _closed(new, a.type, parts, at)) for a in body.arguments)
    for op in body.ops[:-1]:
        operands = [known.get(v, v) for v in op.operands]
        part = part_of(op, operands) if op.definition.structure is Structure.ELEMENT else None
        if part is not None:
            known[op.result] = part
        elif has_tuples(op):
            known.update(zip(op.results, _parted(new, op, known), strict=True))
        else:
            regions = [_region(r, known, op) if op.definition.is_control else clone_block(r, known) for r in op.regions]
            copy = Op(op.definition, operands, op.attributes, regions, [r.type for r in op.results], op.location, op.extra,
                      [r.name for r in op.results])  # fmt: skip
            new.ops.append(copy)
            known.update(zip(op.results, copy.results, strict=True))
    end = body.terminator
    results = _opened(new, [known.get(v, v) for v in end.operands], end)
    new.ops.append(Op(end.definition, results, end.attributes, (), (), end.location))
    return _without_unread_tuples(new)


def _without_unread_tuples(block: Block) -> Block:
    read: set[Value] = set()
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.definition.structure is Structure.TUPLE and op.result not in read:
            continue
        kept.append(op)
        read.update(op.operands)
        for r in op.regions:
            read.update(captured_values(r))
    block.ops[:] = reversed(kept)
    return block
