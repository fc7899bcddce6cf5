"""Who sends how much to whom, in a program that each process runs."""

from __future__ import annotations

import numpy as np

from hlo.errors import Declined
from hlo.module import Module, Op, walk
from hlo.types import TensorType
from tiling.mesh.groups import COLLECTIVES, Grid, groups_of, pairs_of

__all__ = ["bytes_between", "op_bytes_between"]


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
