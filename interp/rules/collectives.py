"""Ops that talk to other processes, and those that know their place in the grid.

Specification: "Collective ops", "Point-to-point communication", "Streaming communication".
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from hlo import Block, Op
from hlo.attributes import ReplicaGroupMesh
from hlo.types import TensorType
from interp.grid import Meeting, ProcessId, Receive, Send
from interp.machine import Call
from interp.numbers import Array
from interp.quantization import quantize, quantized_element, to_type
from interp.registry import decline, rule
from interp.rules.reduction import fold_axis

__all__ = ["meet", "own_group", "process_groups"]

Rule = Generator[Any, Any, Any]


@rule("stablehlo.replica_id")
def replica_id(ctx: Any, op: Op) -> Array:
    return np.array(ctx.process[0], np.uint32)


@rule("stablehlo.partition_id")
def partition_id(ctx: Any, op: Op) -> Array:
    return np.array(ctx.process[1], np.uint32)


# ---------------------------------------------------------------- groups


def channel_of(op: Op) -> int:
    """The channel's number; 0 without one."""
    handle = op.attr("channel_handle")
    return 0 if handle is None else int(handle.handle)


def _groups(ctx: Any, op: Op) -> list[list[int]]:
    groups = op.attr("replica_groups")
    if isinstance(groups, ReplicaGroupMesh):
        raise ctx.error(op, f"declined: replica groups by the axes of the mesh @{groups.mesh} are not resolved here")
    return [[i for i in group if i >= 0] for group in groups]


def cross_replica(groups: Sequence[Sequence[int]], grid: tuple[int, int]) -> list[list[ProcessId]]:
    """Groups of replicas, once for each partition.

    >>> cross_replica([[0, 1], [2, 3]], (4, 2))[:2]
    [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]
    """
    return [[(r, p) for r in group] for group in groups for p in range(grid[1])]


def cross_partition(groups: Sequence[Sequence[int]], grid: tuple[int, int]) -> list[list[ProcessId]]:
    """Groups of partitions, once for each replica.

    >>> cross_partition([[0, 1]], (2, 2))
    [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]
    """
    return [[(r, p) for p in group] for group in groups for r in range(grid[0])]


def cross_replica_and_partition(groups: Sequence[Sequence[int]], grid: tuple[int, int]) -> list[list[ProcessId]]:
    """Groups of replicas, with all their partitions.

    >>> cross_replica_and_partition([[0, 1]], (2, 2))
    [[(0, 0), (1, 0), (0, 1), (1, 1)]]
    """
    return [[(r, p) for p in range(grid[1]) for r in group] for group in groups]


def flattened_ids(groups: Sequence[Sequence[int]], grid: tuple[int, int]) -> list[list[ProcessId]]:
    """Groups of process numbers: replica * partitions + partition.

    >>> flattened_ids([[0, 3]], (2, 2))
    [[(0, 0), (1, 1)]]
    """
    return [[divmod(i, grid[1]) for i in group] for group in groups]


def process_groups(ctx: Any, op: Op, pairwise: bool = False) -> list[list[ProcessId]]:
    """The groups by the strategy that the op's channel and flags choose; without any group given, all replicas form one.

    `pairwise`: the ops that know two strategies only (all_to_all, the broadcast).
    """
    groups, channel = _groups(ctx, op), channel_of(op)
    flat = not pairwise and bool(op.attr("use_global_device_ids"))
    by_partition = pairwise and channel > 0
    if not any(groups):
        everything = ctx.grid[0] * ctx.grid[1] if flat else ctx.grid[1] if by_partition else ctx.grid[0]
        groups = [list(range(everything))]
    if flat:
        return flattened_ids(groups, ctx.grid)
    if by_partition:
        return cross_partition(groups, ctx.grid)
    return (cross_replica_and_partition if channel > 0 else cross_replica)(groups, ctx.grid)


def own_group(ctx: Any, op: Op, pairwise: bool = False) -> list[ProcessId]:
    """The group that this process is in. Raises where it is in none."""
    for group in process_groups(ctx, op, pairwise):
        if ctx.process in group:
            return group
    raise ctx.error(op, f"process {ctx.process} is in no group of replica_groups {op.attr('replica_groups')}")


def meet(op: Op, group: Sequence[ProcessId], payload: Any) -> Generator[Any, Any, dict[ProcessId, Any]]:
    """Everybody's payload, by process."""
    answers = yield Meeting(op, tuple(group), (op.name, channel_of(op)), payload)
    return dict(answers)


# ---------------------------------------------------------------- collectives


@rule("stablehlo.all_gather")
def all_gather(ctx: Any, op: Op, *operands: Array) -> Rule:
    group = own_group(ctx, op)
    answers = yield from meet(op, group, operands)
    axis = op.attr("all_gather_dim")
    return tuple(np.concatenate([answers[p][k] for p in group], axis) for k in range(len(operands)))


def _reduced(op: Op, operands: Sequence[Array], group: Sequence[ProcessId], body: Block) -> Rule:
    """Each operand folded over the group, in the order of the group, in the body's type."""
    t = body.arguments[0].type
    promoted = tuple(to_type(x, v.type, t) for x, v in zip(operands, op.operands, strict=False))
    answers = yield from meet(op, group, promoted)
    results = []
    for k in range(len(operands)):
        stacked = np.stack([answers[p][k] for p in group])
        (folded,) = yield from fold_axis(body, [stacked], 0)
        results.append(folded)
    return results


@rule("stablehlo.all_reduce")
def all_reduce(ctx: Any, op: Op, *operands: Array) -> Rule:
    return tuple((yield from _reduced(op, operands, own_group(ctx, op), op.regions[0])))


decline("stablehlo.collective_reduce", "the specification does not say what the processes that are not the root receive")


@rule("stablehlo.cross-replica-sum")
def cross_replica_sum(ctx: Any, op: Op, operand: Array) -> Rule:
    groups = _groups(ctx, op)
    grid = cross_replica(groups if any(groups) else [list(range(ctx.grid[0]))], ctx.grid)
    group = next(g for g in grid if ctx.process in g)
    answers = yield Meeting(op, tuple(group), (op.name, 0), operand)
    total = answers[group[0]]
    for p in group[1:]:
        total = total + answers[p]
    return total


@rule("stablehlo.reduce_scatter")
def reduce_scatter(ctx: Any, op: Op, operand: Array) -> Rule:
    group = own_group(ctx, op)
    (whole,) = yield from _reduced(op, [operand], group, op.regions[0])
    return np.split(whole, len(group), op.attr("scatter_dimension"))[group.index(ctx.process)]


@rule("stablehlo.all_to_all")
def all_to_all(ctx: Any, op: Op, *operands: Array) -> Rule:
    group = own_group(ctx, op, pairwise=True)
    count, axis, onto = op.attr("split_count"), op.attr("split_dimension"), op.attr("concat_dimension")
    if len(group) != count:
        raise ctx.error(op, f"expected groups of split_count = {count} processes, found {len(group)}")
    answers = yield from meet(op, group, operands)
    mine = group.index(ctx.process)
    return tuple(np.concatenate([np.split(answers[p][k], count, axis)[mine] for p in group], onto) for k in range(len(operands)))


def _zeros(op: Op, like: Array, result: int = 0) -> Array:
    """What a process gets that nobody sends to: zeros, quantized where the result is."""
    t = quantized_element(op.results[result].type)
    if t is not None:
        return quantize(np.zeros(like.shape, t.expressed.dtype), t)
    return np.zeros(like.shape, like.dtype)


@rule("stablehlo.collective_broadcast")
def collective_broadcast(ctx: Any, op: Op, *operands: Array) -> Rule:
    """Every operand of the group's first process, or, with a dynamic root, each of the process that its root numbers."""
    data, roots = (operands[:-1], operands[-1]) if op.attr("has_dynamic_root") else (operands, np.zeros(len(operands), np.int64))
    for group in process_groups(ctx, op, pairwise=True):
        if ctx.process in group:
            wrong = [int(r) for r in roots if not 0 <= int(r) < len(group)]
            if wrong:
                raise ctx.error(op, f"expected roots from 0 to {len(group) - 1}, found {wrong[0]}")
            answers = yield from meet(op, group, data)
            return tuple(answers[group[int(r)]][k] for k, r in enumerate(roots))
    return tuple(_zeros(op, x, k) for k, x in enumerate(data))


@rule("stablehlo.collective_permute")
def collective_permute(ctx: Any, op: Op, operand: Array) -> Rule:
    """Each source sends to its target; a process that is nobody's target gets zeros."""
    pairs = [list(p) for p in op.attr("source_target_pairs")]
    strategy = cross_partition if channel_of(op) > 0 else cross_replica
    sources = {target: source for source, target in strategy(pairs, ctx.grid)}
    # Whoever takes part in the same row or column of the grid comes together.
    fixed = 0 if channel_of(op) > 0 else 1
    involved = sorted({p for pair in sources.items() for p in pair if p[fixed] == ctx.process[fixed]})
    if ctx.process not in involved:
        return _zeros(op, operand)
    answers = yield from meet(op, involved, operand)
    source = sources.get(ctx.process)
    return _zeros(op, operand) if source is None else answers[source]


# ---------------------------------------------------------------- point to point, infeed, outfeed


def _partners(ctx: Any, op: Op) -> list[tuple[int, int]] | None:
    """The (source, target) pairs that concern this process, or None where the op names none."""
    names = op.definition.attributes
    pairs = op.attr("source_target_pairs") if any(a.name == "source_target_pairs" for a in names) else None
    return [(int(s), int(t)) for s, t in pairs] if pairs else None


def _own_number(ctx: Any) -> int:
    return int(ctx.process[1] if ctx.grid[1] > 1 else ctx.process[0])


@rule("stablehlo.send")
def send(ctx: Any, op: Op, *inputs: Any) -> Rule:
    """Puts the inputs into the channel and goes on at once."""
    pairs, me = _partners(ctx, op), _own_number(ctx)
    channels = [channel_of(op)] if pairs is None else [(channel_of(op), s, t) for s, t in pairs if s == me]
    for channel in channels:
        yield Send(op, channel, inputs[:-1])
    return (None,)


@rule("stablehlo.recv")
def recv(ctx: Any, op: Op, token: Any) -> Rule:
    """The oldest unread message of the channel; waits for one."""
    pairs, me = _partners(ctx, op), _own_number(ctx)
    channel: Any = channel_of(op)
    if pairs is not None:
        sources = [s for s, t in pairs if t == me]
        if not sources:
            shapes = [r.tensor for r in op.results[:-1]]
            return (*(np.zeros(t.static_shape, t.dtype) for t in shapes), None)
        channel = (channel, sources[0], me)
    values = yield Receive(op, channel)
    return (*values, None)


@rule("stablehlo.infeed")
def infeed(ctx: Any, op: Op, token: Any) -> Rule:
    """What the next function of the infeed returns."""
    if not ctx.infeed:
        raise ctx.error(op, "the infeed has no more data; give `run_parallel` one function for each infeed op")
    values = yield ctx.call(op, ctx.infeed.popleft(), ())
    wanted = sum(1 for r in op.results if isinstance(r.type, TensorType))
    if len(values) != wanted:
        raise ctx.error(op, f"expected {wanted} values from the infeed, found {len(values)}")
    return (*values, None)


@rule("stablehlo.outfeed")
def outfeed(ctx: Any, op: Op, *inputs: Any) -> Any:
    ctx.outfeed.append(inputs[:-1])
    return (None,)


# ---------------------------------------------------------------- asynchronous forms


@rule("stablehlo.async_start")
def async_start(ctx: Any, op: Op, *operands: Any) -> Rule:
    """Does the work at once; the future is the tuple of its results."""
    results = yield Call(op.regions[0], operands)
    return (tuple(results),)


@rule("stablehlo.async_done")
def async_done(ctx: Any, op: Op, future: Any) -> Any:
    return tuple(future)
