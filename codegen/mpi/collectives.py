"""Collectives by MPI, one generator for each op, which yields what it has begun and waits for, and returns the results.

    run(around, op, operands)       waits at each yield
    begin(around, op, operands)()   begins, and waits when it is called

Elements travel as bytes, but where MPI combines them. What no function here takes goes by the evaluator's rule, whose processes
meet over MPI (`Processes.meet`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from mpi4py import MPI

from codegen.mpi.channel import Channel
from codegen.mpi.errors import MeshError
from codegen.mpi.folding import Compile, fold_module, folded, is_plain_sum, mpi_operator
from hlo.errors import Declined
from hlo.module import Op
from hlo.types import ElementType, TensorType
from tiling.mesh.groups import groups_of, pairs_of

__all__ = ["BY_MPI", "Step", "begin", "run"]

Array = np.ndarray[Any, Any]
T = TypeVar("T")
Waits = tuple[MPI.Request | Sequence[MPI.Request], Sequence[int]]
"""What has been begun, and whom it takes."""
Parts = Generator[Waits, None, tuple[Array, ...]]
Step = Callable[["Around", Op, Sequence[Array]], Parts]

_PERMUTE_TAG = 2


Part = Generator[Waits, None, Array]


class Around(Protocol):
    """What a collective needs of its process."""

    channel: Channel
    compile: Compile

    @property
    def shape(self) -> tuple[int, int]:
        """Replicas and partitions."""
        ...

    def known(self, op: Op, what: Hashable, make: Callable[[], T]) -> T:
        """What follows from an op alone, made once: a call takes tens of microseconds, and attributes are text's trees."""
        ...


def _bytes(a: Array) -> Array:
    """The elements of a contiguous array as bytes, without a copy."""
    return a.reshape(-1).view(np.uint8)


def own_group(around: Around, op: Op) -> tuple[int, ...] | None:
    """The group of ranks that this process is in; None where it is in none. Raises MeshError for declined groups."""
    return around.known(op, "group", lambda: _own_group(around, op))


def _own_group(around: Around, op: Op) -> tuple[int, ...] | None:
    groups = groups_of(op, around.shape)
    if isinstance(groups, Declined):
        raise MeshError(f"{op.name}: {groups.reason}", op.location)
    me = around.channel.rank
    return next((g for g in groups if me in g), None)


def _group(around: Around, op: Op) -> tuple[tuple[int, ...], MPI.Intracomm]:
    group = own_group(around, op)
    if group is None:
        raise MeshError(f"process {around.channel.rank} is in no group of {op.attr('replica_groups')}", op.location)
    return group, around.channel.group(group)


def _all_gather(around: Around, op: Op, operands: Sequence[Array]) -> Parts:
    group, comm = _group(around, op)
    found = []
    for x in operands:
        found.append(_joined((yield from _gathered(group, comm, x)), op.attr("all_gather_dim")))
    return tuple(found)


def _gathered(group: tuple[int, ...], comm: MPI.Intracomm, x: Array) -> Part:
    found = np.empty((len(group), *x.shape), x.dtype)
    yield comm.Iallgather(_bytes(np.ascontiguousarray(x)), _bytes(found)), group
    return found


def _joined(parts: Array, axis: int) -> Array:
    """parts[0], parts[1], … side by side along an axis."""
    moved = np.moveaxis(parts, 0, axis)
    shape = list(parts.shape[1:])
    shape[axis] *= parts.shape[0]
    return moved.reshape(shape)


def _cut(x: Array, count: int, axis: int) -> Array:
    """The parts of an array along an axis, one after the other in memory."""
    shape = (*x.shape[:axis], count, x.shape[axis] // count, *x.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(x.reshape(shape), axis, 0))


def _exchanged(group: tuple[int, ...], comm: MPI.Intracomm, parts: Array) -> Part:
    """What each process of the group has in its part for this one."""
    found = np.empty_like(parts)
    yield comm.Ialltoall(_bytes(parts), _bytes(found)), group
    return found


def _all_to_all(around: Around, op: Op, operands: Sequence[Array]) -> Parts:
    group, comm = _group(around, op)
    count, axis, onto = op.attr("split_count"), op.attr("split_dimension"), op.attr("concat_dimension")
    if len(group) != count:
        raise MeshError(f"expected groups of split_count = {count} processes, found {len(group)}", op.location)
    found = []
    for x in operands:
        found.append(_joined((yield from _exchanged(group, comm, _cut(x, count, axis))), onto))
    return tuple(found)


def _element(op: Op, k: int) -> ElementType | None:
    t = op.operands[k].type
    return t.element if isinstance(t, TensorType) and isinstance(t.element, ElementType) else None


def _all_reduce(around: Around, op: Op, operands: Sequence[Array]) -> Parts:
    group, comm = _group(around, op)
    found = []
    for k, x in enumerate(operands):
        found.append((yield from _all_reduced(around, op, group, comm, k, x)))
    return tuple(found)


def _operator(around: Around, op: Op, k: int) -> MPI.Op | None:
    """MPI's operator for operand k of a reduction; None where a kernel or NumPy's addition folds."""
    element = _element(op, k)
    return around.known(op, ("operator", k), lambda: mpi_operator(op.regions[0], element) if element is not None else None)


def _all_reduced(around: Around, op: Op, group: tuple[int, ...], comm: MPI.Intracomm, k: int, x: Array) -> Part:
    """By MPI's operator; or a piece of each process to each, folded there, and the pieces gathered.

    Each copy of a large value that is made here takes as long as a part of its way: pieces are parts of the operand where they
    are of one size, and what is folded is written where it is gathered.
    """
    operator = _operator(around, op, k)
    flat, n = np.ascontiguousarray(x).reshape(-1), len(group)
    if operator is not None:
        found = np.empty_like(flat)
        yield comm.Iallreduce(flat, found, operator), group
        return found.reshape(x.shape)
    piece = -(-flat.size // n)
    if piece * n == flat.size:
        parts = flat.reshape(n, piece)
    else:
        parts = np.zeros((n, piece), x.dtype)
        parts.reshape(-1)[: flat.size] = flat
    mine = _folded(around, op, (yield from _exchanged(group, comm, parts)))
    whole = np.empty((n, piece), mine.dtype)
    whole[group.index(around.channel.rank)] = mine
    yield comm.Iallgather(MPI.IN_PLACE, _bytes(whole)), group
    return whole.reshape(-1)[: flat.size].reshape(x.shape)


def _folded(around: Around, op: Op, parts: Array) -> Array:
    """The fold of parts[0], parts[1], … by the op's body; `parts` may be written to."""
    rows = parts.reshape(len(parts), -1)
    combine, dtype = around.known(op, ("fold", rows.shape[1]), lambda: _fold_of(around, op, rows.shape[1], parts.dtype))
    return folded(list(rows), combine, dtype).reshape(parts.shape[1:])


def _fold_of(around: Around, op: Op, size: int, given: np.dtype[Any]) -> tuple[Callable[..., Any], np.dtype[Any]]:
    """What combines two arrays of so many elements by the op's body, and the type of what comes out."""
    element = _element(op, 0)
    if element is not None and is_plain_sum(op.regions[0], element):
        return lambda a, b: (np.add(a, b, out=a),), given
    made = fold_module(op, size)
    if isinstance(made, Declined):
        raise MeshError(f"{op.name}: {made.reason}", op.location)
    dtype = made.entry.result_types[0]
    assert isinstance(dtype, TensorType)
    return around.compile(made), dtype.dtype


def _reduce_scatter(around: Around, op: Op, operands: Sequence[Array]) -> Parts:
    group, comm = _group(around, op)
    parts = _cut(operands[0], len(group), op.attr("scatter_dimension"))
    operator = _operator(around, op, 0)
    if operator is None:
        return (_folded(around, op, (yield from _exchanged(group, comm, parts))),)
    found = np.empty(parts.shape[1:], parts.dtype)
    yield comm.Ireduce_scatter_block(parts.reshape(-1), found.reshape(-1), operator), group
    return (found,)


def _broadcast(around: Around, op: Op, operands: Sequence[Array]) -> Parts:
    """Of the group's first process; with roots that are values, of the process that each process's own roots number."""
    group = own_group(around, op)
    data, roots = (operands[:-1], operands[-1]) if op.attr("has_dynamic_root") else (operands, None)
    if group is None:
        return tuple([np.zeros_like(x) for x in data])
    comm = around.channel.group(group)
    if roots is not None:
        wrong = [int(r) for r in roots if not 0 <= int(r) < len(group)]
        if wrong:
            raise MeshError(f"{op.name}: expected roots from 0 to {len(group) - 1}, found {wrong[0]}", op.location)
        chosen = []
        for x, r in zip(data, roots, strict=True):
            chosen.append((yield from _gathered(group, comm, x))[int(r)])
        return tuple(chosen)
    found = [np.array(x, order="C") for x in data]
    for x in found:
        yield comm.Ibcast(_bytes(x), 0), group
    return tuple(found)


def _permute(around: Around, op: Op, operands: Sequence[Array]) -> Parts:
    """Each source sends to its target; a process that is nobody's target gets zeros."""
    comm = around.channel.comm
    targets, sources = around.known(op, "partners", lambda: _partners(around, op))
    x = np.ascontiguousarray(operands[0])
    found = np.empty_like(x) if sources else np.zeros_like(x)
    requests = [comm.Irecv(_bytes(found), s, _PERMUTE_TAG) for s in sources]
    requests += [comm.Isend(_bytes(x), t, _PERMUTE_TAG) for t in targets]
    yield requests, [*targets, *sources]
    return (found,)


def _partners(around: Around, op: Op) -> tuple[list[int], list[int]]:
    """Whom this process sends to in a permutation, and whom it hears from."""
    pairs, me = pairs_of(op, around.shape), around.channel.rank
    return [t for s, t in pairs if s == me], [s for s, t in pairs if t == me]


BY_MPI: dict[str, Step] = {
    "stablehlo.all_gather": _all_gather,
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_broadcast": _broadcast,
    "stablehlo.collective_permute": _permute,
    "stablehlo.reduce_scatter": _reduce_scatter,
}
"""Op name -> its generator. Where processes meet, all of a group's run it."""


def run(around: Around, op: Op, operands: Sequence[Array]) -> tuple[Array, ...]:
    """The results of a collective."""
    return _finished(around, op, BY_MPI[op.name](around, op, operands))


def begin(around: Around, op: Op, operands: Sequence[Array]) -> Callable[[], tuple[Array, ...]]:
    """Begins a collective; what it returns waits and gives the results. The operands may be written to meanwhile."""
    parts = BY_MPI[op.name](around, op, [np.array(x, order="C") for x in operands])
    try:
        first = next(parts)
    except StopIteration as e:  # of this process nothing is wanted
        results: tuple[Array, ...] = e.value
        return lambda: results

    around.channel.hold(first[0])

    def end() -> tuple[Array, ...]:
        around.channel.wait(first[0], op, first[1])
        around.channel.release(first[0])
        return _finished(around, op, parts)

    return end


def _finished(around: Around, op: Op, parts: Parts) -> tuple[Array, ...]:
    while True:
        try:
            requests, partners = next(parts)
        except StopIteration as e:
            results: tuple[Array, ...] = e.value
            return results
        around.channel.wait(requests, op, partners)
