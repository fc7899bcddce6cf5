"""Small programs built by hand, so that the evaluator's tests do not hang on the parser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hlo
import interp
from hlo.registry import definition

NAMES = {t.dtype: name for name, t in reversed(hlo.ELEMENT_TYPES.items())}


def type_of(x: np.ndarray) -> hlo.TensorType:
    return hlo.TensorType(x.shape, hlo.element_type(NAMES[x.dtype]))


def tensor(shape: Sequence[int], name: str) -> hlo.TensorType:
    return hlo.TensorType(tuple(shape), hlo.element_type(name))


def make(
    name: str, operands: Sequence[hlo.Value], results: Sequence[Any], regions: Sequence[hlo.Block] = (), **attributes: Any
) -> hlo.Op:
    return hlo.Op(definition(name), operands, attributes, regions, results)


def close(block: hlo.Block, values: Sequence[hlo.Value], name: str = "func.return") -> hlo.Block:
    block.ops.append(make(name, values, ()))
    return block


def function(arguments: Sequence[hlo.TensorType], build: Callable[..., Sequence[hlo.Op]]) -> hlo.Module:
    """A module whose main runs the ops that `build(*arguments)` gives and returns the last one's results."""
    block = hlo.Block(arguments)
    block.ops += build(*block.arguments)
    results = block.ops[-1].results
    close(block, results)
    return hlo.Module({"main": hlo.Function("main", block, result_types=tuple(r.type for r in results))})


def apply(
    name: str,
    inputs: Sequence[np.ndarray],
    result: hlo.TensorType | None = None,
    regions: Sequence[hlo.Block] = (),
    **attributes: Any,
) -> Any:
    """The results of one op on arrays: one array, or the tuple of several."""
    goal = result if result is not None else type_of(inputs[0])
    goals = goal if isinstance(goal, tuple) else (goal,)
    module = function([type_of(x) for x in inputs], lambda *v: [make(name, v, goals, regions, **attributes)])
    outputs = interp.evaluate(module, *inputs)
    return outputs[0] if len(outputs) == 1 else outputs


def scalar_region(name: str, element: str, swap: bool = False) -> hlo.Block:
    """A region of two scalars that applies one op."""
    t = tensor((), element)
    block = hlo.Block([t, t])
    operands = block.arguments[::-1] if swap else block.arguments
    op = make(name, operands, [t])
    block.ops.append(op)
    return close(block, op.results, "stablehlo.return")
