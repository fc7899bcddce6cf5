"""Large sums of products over processes in pieces: one piece is summed while the next one is computed.

    c = all_reduce(a @ b)      becomes      c_k = all_reduce(a[rows k] @ b)  for some k;  c = the c_k, one below the other

That pays where enough of a sum is hidden beside kernels (`Network.hidden`) for more, smaller sums and for putting them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo.errors import Declined
from hlo.module import Block, Op, Value
from indexing.deriving.edges import edges_of
from tiling.mesh.emit import Emitter, resized
from tiling.mesh.network import Network
from tiling.mesh.shardings import Digit

__all__ = ["best_cut", "summed_in_pieces"]

_MOST_PIECES = 8
_MAY_BE_CUT = ("stablehlo.dot_general", "stablehlo.reduce")  # whose attributes name no sizes


def _cut_operands(local: Op, dim: int) -> list[tuple[int, int]] | None:
    """(operand, dimension) that are read at a result's dimension; None where some operand is read along it otherwise."""
    edges = edges_of(local)
    if isinstance(edges, Declined) or edges.runtimes:
        return None
    v, found = edges.dim_vars[dim], []
    for read in edges.reads:
        for k, e in enumerate(read.map.results):
            if e == v:
                found.append((read.operand, k))
            elif v in e.variables:
                return None
    return found


def best_cut(local: Op, digits: tuple[Digit, ...], work: float, network: Network) -> tuple[int, int] | None:
    """The dimension of the result to cut and the number of pieces that take least by the model; None for one piece.

    `work` is what computing the parts takes, in seconds.
    """
    if not network.hidden or local.name not in _MAY_BE_CUT or len(local.results) != 1:
        return None
    t = local.results[0].tensor
    n = prod(d.size for d in digits)

    def total(bytes_: float) -> float:
        return network.seconds(2 * bytes_ * (n - 1) / n, n)

    best: tuple[float, int, int] | None = None
    for dim, size in enumerate(t.static_shape):
        if _cut_operands(local, dim) is None:
            continue
        for pieces in range(2, min(_MOST_PIECES, size) + 1):
            if size % pieces:
                continue
            one, part = total(t.size_bytes / pieces), work / pieces
            saved = network.hidden * (pieces - 1) * min(one, part)
            dearer = pieces * one - total(t.size_bytes) + t.size_elems / network.work_per_second
            if saved > dearer and (best is None or saved - dearer > best[0]):
                best = saved - dearer, dim, pieces
        break  # along the outermost dimension that can be cut pieces are together in memory
    return None if best is None else best[1:]


def summed_in_pieces(
    emit: Emitter, local: Op, given: Sequence[Value], cut: tuple[int, int], digits: tuple[Digit, ...], body: Block, reason: str
) -> Value:
    """The sum over processes of an op's results, piece by piece."""
    dim, pieces = cut
    t = local.results[0].tensor
    length = t.static_shape[dim] // pieces
    places = _cut_operands(local, dim)
    assert places is not None
    parts = []
    for p in range(pieces):
        operands = list(given)
        for k, d in places:
            operands[k] = emit.sliced(given[k], d, p * length, (p + 1) * length)
        made = Op(local.definition, operands, local.attributes, local.regions, [resized(t, dim, length)], local.location)
        emit.block.ops.append(made)
        parts.append(emit.reduced(made.results[0], digits, body, f"{reason}, piece {p + 1} of {pieces}"))
    return emit.op("stablehlo.concatenate", parts, {"dimension": dim}, [t])[0]
