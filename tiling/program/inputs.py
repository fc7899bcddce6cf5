"""What a step finds in memory, and which ops are control flow."""

from __future__ import annotations

from collections.abc import Container

from hlo.clone import captured_values
from hlo.errors import Declined
from hlo.module import Op, Value, walk
from hlo.registry import Elementwise, Fold, Generate, Literal, Move
from hlo.types import TensorType
from tiling.program.flatten import Program, is_rebuilt

__all__ = ["control_declines", "factors_side_by_side", "is_control", "normed_kernels", "op_inputs", "right_factors"]

_PLAIN = (Elementwise, Move, Fold, Literal, Generate)
MOST_MADE_OF = 64
"""Values that a kernel of a convolution is made of, for calls to find it made."""

DEEPEST = 24
"""Regions nested deeper than this are left to the evaluator, which needs no stack for them."""


def _depth(op: Op) -> int:
    """How deep an op's regions nest."""
    deepest, todo = 0, [(op, 0)]
    while todo:
        current, depth = todo.pop()
        deepest = max(deepest, depth)
        if depth <= DEEPEST:
            todo += [(inner, depth + 1) for b in current.regions for inner in b.ops if inner.regions or depth == 0]
    return deepest


def control_declines(op: Op) -> Declined | None:
    """Why a control-flow op is not planned, or None: all values that it passes on must be arrays of fixed shapes."""
    if not op.definition.is_control:
        return Declined(f"{op.name} is no control flow")
    if _depth(op) > DEEPEST:
        return Declined(f"its regions nest more than {DEEPEST} deep")
    passed = [*op.operands, *op.results]
    for b in op.regions:
        passed += [*b.arguments, *b.results, *captured_values(b)]
        passed += [r for inner in walk(b) for r in inner.results]
    for v in passed:
        if not isinstance(v.type, TensorType):
            return Declined(f"a value of type {v.type} passes through it")
        if not v.type.is_static:
            return Declined(f"{v.type} has no fixed shape")
    return None


def is_control(op: Op) -> bool:
    """True for ops that become a `ControlStep`."""
    return op.definition.is_control and control_declines(op) is None


def op_inputs(op: Op) -> list[Value]:
    """What an op's step finds in memory: its operands, and what its regions read from outside and do not make again."""
    captured = [v for b in op.regions for v in captured_values(b)]
    if captured and is_control(op):
        captured = [v for v in captured if not is_rebuilt(v)]
    return list(dict.fromkeys([*op.operands, *captured]))


def right_factors(program: Program) -> frozenset[Value]:
    """Values that products alone read, as their right factor: weights in the form that a kernel wants.

    They are values side by side (`tiling.program.images.winograd`), and kernels of convolutions that sums of their own elements
    are part of: normed weights. Where such a value comes from arguments alone, it is made once for calls with the same arguments.
    """
    return factors_side_by_side(program) | normed_kernels(program)


def normed_kernels(program: Program) -> frozenset[Value]:
    """What convolutions alone read, as their kernel, turned or not, and that folds and elementwise ops make of arguments."""
    found: set[Value] = set()
    readers: dict[Value, list[Op]] = {}
    convolutions = [op for op in program.ops if op.name == "stablehlo.convolution"]
    for op in program.ops if convolutions else ():
        for v in op_inputs(op):
            readers.setdefault(v, []).append(op)
    arguments, results = set(program.arguments), set(program.results)
    for op in convolutions:
        v, reader = op.operands[1], op  # from the kernel up to what is computed
        while readers[v] == [reader] and v not in results and v.op is not None and v is not op.operands[0]:
            if v.op.name not in ("stablehlo.reshape", "stablehlo.transpose"):
                if _is_made_by_folds(v, arguments):
                    found.add(v)
                break
            reader = v.op
            v = reader.operands[0]
    return frozenset(found)


def _is_made_by_folds(v: Value, arguments: Container[Value]) -> bool:
    """Whether a value is made of arguments alone, element by element and by folds."""
    seen: set[Value] = set()
    todo, folds = [v], 0
    while todo:
        x = todo.pop()
        if x in seen or x in arguments:
            continue
        seen.add(x)
        if x.op is None or len(seen) > MOST_MADE_OF or not isinstance(x.op.definition.semantics, _PLAIN):
            return False
        folds += isinstance(x.op.definition.semantics, Fold)
        todo += op_inputs(x.op)
    return folds > 0


def factors_side_by_side(program: Program) -> frozenset[Value]:
    """Values side by side that products alone read, as their right factor."""
    products = [op for op in program.ops if op.name == "stablehlo.dot_general"]
    read = {v for op in program.ops for v in (op.operands[:1] if op.name == "stablehlo.dot_general" else op_inputs(op))}
    found = {op.operands[1] for op in products} - read - set(program.results)
    return frozenset(v for v in found if v.op is not None and v.op.name == "stablehlo.concatenate")
