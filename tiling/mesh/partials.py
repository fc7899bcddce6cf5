"""Partial results of an op whose folded loops are spread: what combines them, and what that sends.

One result   an all_reduce, or a reduce_scatter where the result is wanted in parts
several      they are folded together, which no collective does (a maximum and its place): processes exchange their partial
             results and fold them once more by the op's own body, each for all elements, or each for a part of them
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo.clone import clone_block
from hlo.module import Op, Value
from hlo.types import TensorType
from tiling.mesh.emit import Emitter, resized
from tiling.mesh.local_ops import combination
from tiling.mesh.network import Network
from tiling.mesh.shardings import Digit, groups_along

__all__ = ["combined", "partial_seconds"]

Digits = tuple[Digit, ...]
_REASON = "{} folds over a loop that is spread"


def _part_dim(types: Sequence[TensorType], n: int) -> int | None:
    """The dimension along which each of n processes may fold a part of several results; None where all fold everything.

    Everything: n - 1 times a process's partial results are sent, in parts and gathered again 2 (n - 1) / n times.
    """
    shape = types[0].static_shape
    return next((k for k, size in enumerate(shape) if size and size % n == 0), None) if n > 2 else None


def partial_seconds(types: Sequence[TensorType], digits: Digits, scattered: int | None, network: Network) -> float:
    """What it takes to combine partial results of some types, which are left in parts along dimension `scattered`."""
    n = prod(d.size for d in digits)
    rounds = 1 if scattered is not None else 2
    if len(types) > 1 and scattered is None and _part_dim(types, n) is None:
        return sum(network.seconds(t.size_bytes * (n - 1), n) for t in types)
    return sum(network.seconds(t.size_bytes * (n - 1) // n * rounds, n) for t in types)


def combined(
    emit: Emitter, op: Op, given: Sequence[Value], partial: Sequence[Value], digits: Digits, scattered: int | None
) -> list[Value]:  # fmt: skip
    """The combination of the processes' partial results of an op, which reads `given` there."""
    reason = _REASON.format(op.name)
    if len(partial) == 1:
        body = combination(op)
        if scattered is not None:
            return [emit.scattered(partial[0], digits, scattered, body, reason)]
        return [emit.reduced(partial[0], digits, body, reason)]
    n = prod(d.size for d in digits)
    types = [v.tensor for v in partial]
    dim = _part_dim(types, n) if scattered is None else scattered
    rows = [
        emit.op("stablehlo.reshape", (v,), {}, [TensorType((1, *t.shape), t.element)])[0]
        for v, t in zip(partial, types, strict=True)
    ]  # fmt: skip
    inits = given[len(partial) :]
    if dim is None:
        return _folded(emit, op, [emit.gathered(v, digits, 0, reason) for v in rows], inits)
    made = _folded(emit, op, [_exchanged(emit, v, digits, dim + 1, reason) for v in rows], inits)
    return made if scattered is not None else [emit.gathered(v, digits, dim, reason) for v in made]


def _folded(emit: Emitter, op: Op, rows: Sequence[Value], inits: Sequence[Value]) -> list[Value]:
    """The partial results of all processes, in their order along the first dimension, folded by the op's body."""
    types = [TensorType(v.tensor.shape[1:], v.tensor.element) for v in rows]
    return list(emit.op(op.name, (*rows, *inits), {"dimensions": (0,)}, types, [clone_block(op.regions[0], {})]))


def _exchanged(emit: Emitter, v: Value, digits: Digits, dim: int, reason: str) -> Value:
    """Part j along a dimension goes to process j, which has one row from each process."""
    n = prod(d.size for d in digits)
    emit.told_of("all_to_all", digits, v.tensor.size_bytes // n * (n - 1), v, reason)
    attributes = {
        "split_dimension": dim, "concat_dimension": 0, "split_count": n,
        "replica_groups": groups_along(digits, emit.processes), "channel_handle": emit.channel(),
    }  # fmt: skip
    made = resized(resized(v.tensor, dim, v.shape[dim] // n), 0, n)
    return emit.op("stablehlo.all_to_all", (v,), attributes, [made])[0]
