"""What a loop is given in every element alike, and never changes, is given as one element and spread inside.

    b = sqrt(spread(s));  while (x, b): f(x, b), b     ->     t = sqrt(s);  while (x, t): f(x, spread(t)), t

Samplers that reject are such loops: their rates are as large as what they draw, though all alike. What a body computes from them
alone is then computed once in a kernel, not for each element, and nothing of that size is read from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hlo.clone import clone_op
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Elementwise, Literal, definition
from hlo.types import ElementType, TensorType

__all__ = ["Scalars", "spread_inside"]

_MOVES = {"stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.reverse"}


def _is_static(v: Value) -> bool:
    """Whether a value is a tensor of known shape with an element."""
    t = v.type
    return isinstance(t, TensorType) and isinstance(t.element, ElementType) and t.is_static and t.size_elems > 0


def _literal(v: Value) -> DenseArray | None:
    """The one element of a constant that repeats it, however large, as a constant of rank 0."""
    if v.op is None or not isinstance(v.op.definition.semantics, Literal) or not _is_static(v):
        return None
    dense: DenseArray = v.op.attr("value")
    return DenseArray(TensorType((), v.tensor.element), dense.array.reshape(-1)[:1].reshape(())) if dense.is_splat else None


class Scalars:
    """One element of each value whose elements are all alike; `append(op)` puts an op into the program and gives its results."""

    def __init__(self, append: Callable[[Op], Sequence[Value]]) -> None:
        self.append = append
        self._known: dict[Value, Value | None] = {}

    def of(self, value: Value) -> Value | None:
        """The element of rank 0; None for a value whose elements are not alike for all that its ops tell."""
        known = self._known
        todo = [value]
        while todo:
            v = todo[-1]
            if v in known:
                todo.pop()
                continue
            parts = self._parts(v)
            missing = [p for p in parts or () if p not in known]
            if missing:
                todo.extend(missing)
                continue
            todo.pop()
            found = [x for p in parts or () if (x := known[p]) is not None]
            known[v] = None if parts is None or len(found) < len(parts) else self._made(v, found)
        return known[value]

    def _parts(self, v: Value) -> Sequence[Value] | None:
        """The values whose elements make those of `v`; None where its elements may differ."""
        if not _is_static(v):
            return None
        if v.tensor.size_elems == 1 or _literal(v) is not None:
            return ()
        op = v.op
        if op is None or len(op.results) != 1 or op.regions or not op.definition.is_pure:
            return None
        return op.operands if op.name in _MOVES or isinstance(op.definition.semantics, Elementwise) else None

    def _made(self, v: Value, parts: Sequence[Value]) -> Value:
        if v.rank == 0:
            return v
        scalar = TensorType((), v.tensor.element)
        constant, op = _literal(v), v.op
        if constant is not None:
            op = Op(definition("stablehlo.constant"), (), {"value": constant}, (), [scalar])
        elif v.tensor.size_elems == 1:
            op = Op(definition("stablehlo.reshape"), (v,), {}, (), [scalar])
        elif op is not None and op.name not in _MOVES:
            op = Op(op.definition, parts, op.attributes, (), [scalar], op.location)
        else:
            return parts[0]
        return self.append(op)[0]


def spread_inside(op: Op, operands: Sequence[Value], scalars: Scalars) -> tuple[Op, list[Value]] | None:
    """A loop that is given such values as scalars, with its operands; None for a loop that is given none."""
    body = op.regions[1]
    wanted: dict[int, Value] = {}
    for k, (a, r, v) in enumerate(zip(body.arguments, body.results, operands, strict=True)):
        if a is r and v.type == a.type and _is_static(v) and (v.rank or _literal(v) is not None):
            found = scalars.of(v)
            if found is not None and (v.tensor.size_elems > 1 or _literal(v) is not None):
                wanted[k] = found
    if not wanted:
        return None
    given = [wanted.get(k, v) for k, v in enumerate(operands)]
    constants = {k: c for k in wanted if (c := _literal(operands[k])) is not None}
    regions = [_region(r, wanted, constants) for r in op.regions]
    types = [wanted[k].type if k in wanted else r.type for k, r in enumerate(op.results)]
    names = [r.name for r in op.results]
    return Op(op.definition, given, op.attributes, regions, types, op.location, op.extra, names), given


def _region(block: Block, wanted: Mapping[int, Value], constants: Mapping[int, DenseArray]) -> Block:
    """A loop's region whose arguments `wanted` are scalars, which it spreads; constants are made again."""
    types = [wanted[k].type if k in wanted else a.type for k, a in enumerate(block.arguments)]
    new = Block(types, [a.name for a in block.arguments])
    spread: dict[Value, Value] = {}
    for k, (old, a) in enumerate(zip(block.arguments, new.arguments, strict=True)):
        spread[old] = a
        if k in constants:
            dense = DenseArray(old.tensor, _repeated(constants[k], old.tensor))
            made = Op(definition("stablehlo.constant"), (), {"value": dense}, (), [old.type])
        elif k in wanted:
            made = Op(definition("stablehlo.broadcast_in_dim"), (a,), {"broadcast_dimensions": ()}, (), [old.type])
        else:
            continue
        new.ops.append(made)
        spread[old] = made.results[0]
    known = dict(spread)
    for op in block.ops[:-1]:
        new.ops.append(clone_op(op, known))
    end = block.ops[-1]
    # What is handed on as it came is the scalar, where it is one; the cond's only result is neither.
    own = {k: new.arguments[k] for k in wanted} if len(end.operands) == len(new.arguments) else {}
    results = [own[k] if k in own and v is block.arguments[k] else known.get(v, v) for k, v in enumerate(end.operands)]
    new.ops.append(Op(end.definition, results, end.attributes, (), (), end.location))
    return new


def _repeated(constant: DenseArray, type: TensorType) -> np.ndarray:
    return np.broadcast_to(constant.array, type.static_shape)
