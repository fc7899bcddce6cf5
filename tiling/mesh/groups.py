"""Who takes part in a collective, and how many bytes it moves: what `replica_groups` and channels say for a grid of processes.

Process (replica, partition) of a grid of (replicas, partitions) has the rank `replica * partitions + partition`.
Specification: "Collective ops".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hlo.attributes import ReplicaGroupMesh
from hlo.errors import Declined
from hlo.module import Module, Op, walk
from hlo.types import TensorType
from tiling.words import amount

__all__ = [
    "COLLECTIVES", "Grid", "Traffic", "bytes_between", "channel_of", "groups_of", "op_bytes_between", "pairs_of", "traffic_of",
]  # fmt: skip

Grid = tuple[int, int]
"""How many replicas, how many partitions."""

COLLECTIVES = frozenset(
    f"stablehlo.{name}"
    for name in (
        "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "cross-replica-sum",
        "reduce_scatter",
    )
)  # fmt: skip
_PAIRWISE = frozenset({"stablehlo.all_to_all", "stablehlo.collective_broadcast"})  # these know two groupings only


def channel_of(op: Op) -> int:
    """The number of an op's channel; 0 without one."""
    if "channel_handle" not in op.definition.known_attributes:
        return 0
    handle = op.attr("channel_handle")
    return 0 if handle is None else int(handle.handle)


def groups_of(op: Op, grid: Grid) -> tuple[tuple[int, ...], ...] | Declined:
    """The groups of ranks that exchange values, in each group in the order in which they count.

    Without any group given all replicas are one (all partitions, or all processes, where the op's ids mean those). Declined for
    groups by the axes of a mesh.

    >>> import hlo
    >>> text = '''func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    ...   %0 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>,
    ...     channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>} : (tensor<4xf32>) -> tensor<4xf32>
    ...   return %0 : tensor<4xf32> }'''
    >>> groups_of(hlo.parse(text).root, (2, 3))
    ((3, 0), (4, 1), (5, 2))
    """
    given = op.attr("replica_groups")
    if isinstance(given, ReplicaGroupMesh):
        return Declined(f"replica groups by the axes of the mesh @{given.mesh} are not resolved here")
    replicas, partitions = grid
    named = op.definition.known_attributes
    flat = op.name not in _PAIRWISE and "use_global_device_ids" in named and bool(op.attr("use_global_device_ids"))
    crosses = channel_of(op) > 0 and op.name != "stablehlo.cross-replica-sum"
    by_partition = op.name in _PAIRWISE and crosses
    rows = [[int(i) for i in row if i >= 0] for row in given]
    if not any(rows):
        rows = [list(range(replicas * partitions if flat else partitions if by_partition else replicas))]
    if flat:
        return tuple([tuple(row) for row in rows])
    if by_partition:
        return tuple([tuple([r * partitions + p for p in row]) for row in rows for r in range(replicas)])
    if crosses:
        return tuple([tuple([r * partitions + p for p in range(partitions) for r in row]) for row in rows])
    return tuple([tuple([r * partitions + p for r in row]) for row in rows for p in range(partitions)])


def pairs_of(op: Op, grid: Grid) -> tuple[tuple[int, int], ...]:
    """The (source, target) ranks of a collective_permute.

    >>> import hlo
    >>> text = '''func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    ...   %0 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>,
    ...     channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<4xf32>) -> tensor<4xf32>
    ...   return %0 : tensor<4xf32> }'''
    >>> pairs_of(hlo.parse(text).root, (2, 2))
    ((0, 1), (2, 3))
    """
    replicas, partitions = grid
    rows = [(int(s), int(t)) for s, t in op.attr("source_target_pairs")]
    if channel_of(op) > 0:
        return tuple([(r * partitions + s, r * partitions + t) for s, t in rows for r in range(replicas)])
    return tuple([(s * partitions + p, t * partitions + p) for s, t in rows for p in range(partitions)])


@dataclass(frozen=True)
class Traffic:
    """What a collective moves: the bytes that the busiest process sends, the size of the largest group, and the partners.

    Bytes are those of the algorithms that move least: a ring, or its halves.
    """

    kind: str
    sent_bytes: int
    members: int
    partners: str

    def __str__(self) -> str:
        return f"each process sends {amount(self.sent_bytes)}; {self.partners}"


def _bytes(values: Sequence[object]) -> int:
    types = [getattr(v, "type", None) for v in values]
    return sum(t.size_bytes for t in types if isinstance(t, TensorType) and t.is_static)


def sent_bytes(op: Op, members: int) -> int:
    """The bytes that a process of a group of `members` sends."""
    given, made, n = _bytes(op.operands), _bytes(op.results), max(members, 1)
    kind = op.definition.mnemonic
    if kind in ("all_reduce", "cross-replica-sum"):
        return 2 * given * (n - 1) // n
    if kind in ("reduce_scatter", "all_to_all"):
        return given * (n - 1) // n
    if kind == "all_gather":
        return made * (n - 1) // n
    return given if n > 1 else 0


def traffic_of(op: Op, grid: Grid | None = None) -> Traffic | Declined:
    """What a collective moves on a grid; without one, as its own groups tell."""
    if op.name not in COLLECTIVES:
        return Declined(f"{op.name} is no collective")
    kind = op.definition.mnemonic
    if kind == "collective_permute":
        own = tuple([(int(s), int(t)) for s, t in op.attr("source_target_pairs")])
        pairs = own if grid is None else pairs_of(op, grid)
        shown = ", ".join(f"{s} -> {t}" for s, t in pairs[:_SHOWN]) + (", …" if len(pairs) > _SHOWN else "")
        return Traffic(kind, _bytes(op.operands) if any(s != t for s, t in pairs) else 0, 2 if pairs else 1, shown or "nobody")
    given = op.attr("replica_groups")
    if grid is not None:
        groups = groups_of(op, grid)
        if isinstance(groups, Declined):
            return groups
    elif isinstance(given, ReplicaGroupMesh):
        return Declined(f"the groups are given by the axes {', '.join(map(str, given.axes))} of @{given.mesh}")
    else:
        groups = tuple([tuple([int(i) for i in row if i >= 0]) for row in given])
        if not any(groups):
            return Declined("one group of all processes")
    members = max(map(len, groups))
    shown = ", ".join(_group(g) for g in groups[:_SHOWN]) + (", …" if len(groups) > _SHOWN else "")
    return Traffic(kind, sent_bytes(op, members), members, f"groups {shown}")


_SHOWN = 4


def _group(members: Sequence[int]) -> str:
    if len(members) > 2 * _SHOWN:
        return f"[{members[0]}, {members[1]}, … {members[-1]}] of {len(members)}"
    return str(list(members))


# ---------------------------------------------------------------- who sends to whom


def op_bytes_between(op: Op, grid: Grid) -> np.ndarray | Declined:
    """[source, target] -> the bytes of a collective, as `codegen.mpi.collectives` sends them: straight to who reads them."""
    n = grid[0] * grid[1]
    sent = np.zeros((n, n), np.int64)
    size = sum(v.type.size_bytes for v in op.operands if isinstance(v.type, TensorType) and v.type.is_static)
    kind = op.definition.mnemonic
    if kind == "collective_permute":
        for source, target in pairs_of(op, grid):
            sent[source, target] += size if source != target else 0
        return sent
    groups = groups_of(op, grid)
    if isinstance(groups, Declined):
        return groups
    for group in groups:
        piece = -(-size // len(group))
        each = {"all_gather": size, "all_reduce": 2 * piece, "cross-replica-sum": 2 * piece}.get(kind, piece)
        for a in group if kind != "collective_broadcast" else group[:1]:
            for b in group:
                sent[a, b] += (size if kind == "collective_broadcast" else each) if a != b else 0
    return sent


def bytes_between(module: Module, processes: int) -> np.ndarray:
    """[source, target] -> the bytes of all collectives of a partitioned module; those of a loop's body count once.

    >>> import hlo
    >>> from tiling.mesh.partition import partition
    >>> text = '''module { sdy.mesh @m = <["x"=2]>
    ...   func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>})
    ...     -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@m, [{}]>}) { return %a : tensor<4xf32> } }'''
    >>> bytes_between(partition(hlo.parse(text)).module, 2).tolist()
    [[0, 8], [8, 0]]
    """
    total = np.zeros((processes, processes), np.int64)
    for f in module.functions.values():
        for op in walk(f.body):
            if op.name in COLLECTIVES:
                found = op_bytes_between(op, (1, processes))
                if not isinstance(found, Declined):
                    total += found
    return total
