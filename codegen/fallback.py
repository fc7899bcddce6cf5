"""What no kernel covers runs in the evaluator: one op at a time, or the whole program.

The only place of this package that knows the evaluator; it is imported when the first such op runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hlo.module import Block, Function, Module, Op, Value
from hlo.registry import definition
from tiling.flatten import captured_values, clone_block

CustomCalls = Mapping[str, Callable[..., Any]]
"""Target name -> function(op, *operands) that returns an array or a tuple of them, as the evaluator takes it."""

__all__ = ["CustomCalls", "evaluate_op", "evaluate_program", "op_reads"]


def op_reads(op: Op) -> list[Value]:
    """What an op reads, each value once: its operands, and what its regions read from outside them."""
    return list(dict.fromkeys([*op.operands, *(v for b in op.regions for v in captured_values(b))]))


def evaluate_program(
    module: Module, arrays: Sequence[np.ndarray], entry: str, custom_calls: CustomCalls | None = None
) -> tuple[Any, ...]:
    """The results of a whole function."""
    import interp

    return tuple(interp.evaluate(module, *arrays, entry=entry, custom_calls=custom_calls))


def evaluate_op(
    module: Module, op: Op, arrays: Sequence[np.ndarray], custom_calls: CustomCalls | None = None
) -> tuple[Any, ...]:
    """The results of one op of a flattened program; `arrays` are the values of `op_reads(op)`."""
    import interp

    reads = op_reads(op)
    body = Block([v.type for v in reads], [f"arg{k}" for k in range(len(reads))])
    environment = dict(zip(reads, body.arguments, strict=True))
    copy = Op(op.definition, [environment[v] for v in op.operands], op.attributes,
              [clone_block(b, environment) for b in op.regions], [r.type for r in op.results], op.location, op.extra)  # fmt: skip
    body.ops += [copy, Op(definition("func.return"), copy.results)]
    name = "step"
    while name in module.functions:
        name += "_"
    step = Function(name, body, result_types=tuple(r.type for r in op.results))
    program = Module({**module.functions, name: step}, module.name)
    return tuple(interp.evaluate(program, *arrays, entry=name, custom_calls=custom_calls))
