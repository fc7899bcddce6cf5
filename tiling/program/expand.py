"""Ops that have no kernels but are made of ops that have: what they stand for, as a block to put in their place.

stablehlo.batch_norm_training x, …  ->  reductions and arithmetic (tiling.program.unfold)
chlo.lgamma x                       ->  its formula in StableHLO ops
stablehlo.add on quantized tensors  ->  integers to reals, add, reals to integers
stablehlo.reduce whose body is wider ->  conversions, and a reduce of one type (tiling.program.promotion)
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.builder import Builder
from hlo.decompositions import decomposition
from hlo.decompositions.quantized import has_quantized, quantized_form, stored
from hlo.decompositions.rewrite import Rewriter
from hlo.errors import Declined, VerificationError
from hlo.module import Block, Function, Module, Op, Value, walk
from hlo.types import QuantizedType, TensorType
from tiling.program.promotion import promoted
from tiling.program.unfold import PASSES, UNFOLDED, Unfold
from tiling.routines.table import routine_of

__all__ = ["Supports", "expansion", "keeps_quantized", "kept_quantized"]

Supports = Callable[[Op], Declined | None]
"""Whether code can be generated for an op: None, or why not."""


def expansion(op: Op, supports: Supports, on: Callable[[str], bool]) -> Block | None:
    """A block over the op's operands, quantized ones in their stored form, that ends with the results; None to leave it.

    `on` tells which passes run.
    """
    if has_quantized(op):
        found = quantized_form(op)
        return found if isinstance(found, Block) else None
    if not all(isinstance(v.type, TensorType) and v.type.is_static for v in (*op.operands, *op.results)):
        return None
    wider = promoted(op) if on("promote_bodies") else None
    if wider is not None:
        return wider
    unfold = UNFOLDED.get(op.name)
    if unfold is not None and on(PASSES.get(op.name, "unfold")):
        return _unfolded(op, unfold, supports)
    # What kernels have a rule for stays: a scalar function, loops of its own, or a routine.
    has_rule = not isinstance(op.definition.semantics, Declined) or routine_of(op) is not None
    if supports(op) is None and has_rule:
        return None
    rule = decomposition(op.name) if on("decompose") else None
    if rule is None or isinstance(rule, Declined):
        return None
    rewriter = Rewriter()
    block = Block([v.type for v in op.operands])
    with rewriter.builder.into(block):
        try:
            made = rewriter.decomposed(op, tuple(block.arguments))
        except VerificationError:
            return None  # an op of types that its formula does not know
        if made is None:
            return None
        rewriter.builder.emit("func.return", made)
    return block if all(supports(x) is None for x in block.ops[:-1]) else None


def _unfolded(op: Op, unfold: Unfold, supports: Supports) -> Block | None:
    b = Builder()
    b.place = op.location
    block = Block([v.type for v in op.operands])
    with b.into(block):
        try:
            made = unfold(b, op, block.arguments)
        except VerificationError:
            return None
        if made is None or [v.type for v in made] != [r.type for r in op.results]:
            return None
        b.emit("func.return", made)
    return block if all(supports(x) is None for x in block.ops[:-1]) else None


def kept_quantized(op: Op) -> Block:
    """The op itself between casts: its operands from their stored forms, its results into theirs."""
    block = Block([stored(v.type) for v in op.operands])
    b = Builder()
    b.place = op.location
    with b.into(block):
        operands = [_cast(b, v, o.type) for v, o in zip(block.arguments, op.operands, strict=True)]
        kept = Op(
            op.definition, operands, op.attributes, op.regions, [r.type for r in op.results], op.location, op.extra
        )
        block.ops.append(kept)
        b.emit("func.return", [_cast(b, r, stored(r.type)) for r in kept.results])
    return block


def _cast(b: Builder, v: Value, goal: object) -> Value:
    return v if v.type == goal else b.emit("stablehlo.bitcast_convert", (v,), {}, (), [goal])[0]  # type: ignore[list-item]


def keeps_quantized(module: Module, function: Function) -> bool:
    """True when quantized values stay as they are: regions read them, or nothing is quantized at all."""
    seen, todo, found = {function.name}, [function], False
    while todo:
        f = todo.pop()
        for op in walk(f.body):
            name = op.attr(op.definition.calls) if op.definition.calls else None
            if name is not None and name not in seen:
                seen.add(name)
                todo.append(module.functions[name])
        found = found or any(_is_quantized(v) for op in f.body.ops for v in (*op.operands, *op.results))
        for op in f.body.ops:
            for region in op.regions:
                if any(_is_quantized(v) for inner in walk(region) for v in (*inner.operands, *inner.results)):
                    return True
    return not found


def _is_quantized(v: Value) -> bool:
    return isinstance(v.type, TensorType) and isinstance(v.type.element, QuantizedType)
