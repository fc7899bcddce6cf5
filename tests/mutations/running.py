"""Schedules run by the plain interpreter, with the evaluator's scalar functions, and whole plans so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tiling
from hlo.module import DenseArray, Module, Op, Value
from hlo.registry import Elementwise, Literal
from interp.machine import Budget, Context, Limits
from interp.registry import rule_for
from interp.rules.random import threefry_2x32
from tests.interpreter.run import run
from tiling.loops.ir import Schedule
from tiling.program.updates.in_place import is_update

Array = np.ndarray[Any, Any]
CONTEXT = Context(Module({}), Budget(Limits()))


def scalars(op: Op, function: str, arguments: Sequence[Array]) -> Array:
    """A scalar function of an op, as the evaluator has it."""
    if function == "threefry2x32":
        key_0, key_1, *counter = np.broadcast_arrays(*arguments)
        first, second = (word.astype(np.uint64) for word in threefry_2x32((key_0, key_1), (counter[0], counter[1])))
        return np.asarray(first | second << np.uint64(32))
    semantics = op.definition.semantics
    own = semantics.function if isinstance(semantics, Elementwise) else op.definition.mnemonic
    plain = function.removeprefix("fast_")
    found = rule_for(op.name) if plain in (own, op.definition.mnemonic) else None
    found = found or rule_for(f"stablehlo.{plain}") or rule_for(f"chlo.{plain}")
    assert found is not None, function
    count = max((x.size for x in arguments), default=1)
    result = found.function(CONTEXT, op, *arguments)
    return np.asarray(result[0] if isinstance(result, tuple) else result).reshape(count)


def given_values(schedule: Schedule) -> list[Value]:
    """What has to be in memory before a schedule runs; operands of updates in place as the results that take their memory."""
    arguments = [b.value for b in schedule.buffers_in(tiling.Scope.ARGUMENT) if b.value is not None]
    updated = [b.value for b in schedule.buffers_in(tiling.Scope.RESULT) if b.value is not None and _is_updated(b.value)]
    return [*arguments, *updated]


def _is_updated(v: Value) -> bool:
    return v.op is not None and is_update(v.op)


def constant(v: Value) -> Array | None:
    """The elements of a constant; None for what is none."""
    if v.op is None or not isinstance(v.op.definition.semantics, Literal):
        return None
    dense: DenseArray = v.op.attr("value")
    return np.broadcast_to(dense.array, v.shape)


def outputs(schedule: Schedule, given: dict[Value, Array]) -> dict[Value, Array]:
    return run(schedule, given, scalars)


def run_plan(plan: tiling.Plan, arrays: Sequence[Array]) -> dict[Value, Array]:
    """All values that the kernels of a plan store. Raises LookupError for a plan with steps of other kinds."""
    known: dict[Value, Array] = dict(zip(plan.program.arguments, arrays, strict=True))
    for step in plan.steps:
        if not isinstance(step, tiling.Fusion):
            raise LookupError(f"{step} is no kernel")
        given = {}
        for v in given_values(step.schedule):
            source = v.op.operands[0] if v.op is not None and _is_updated(v) else v
            found = known.get(source)
            if found is None:
                found = constant(source)
            assert found is not None, source
            given[v] = found
        known |= outputs(step.schedule, given)
    return known
