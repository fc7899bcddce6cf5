"""Windows: parts of a dimension that are no tiles of it, brought from the processes that hold them.

A dimension of n elements is held in tiles of b; process t of its digits wants [first + t * step, + length) of it: for a stencil
its tile and a halo, for a slice or a padding tiles of another size, for a reversal the tiles from the end. What it wants of each
other process's tile is an interval. Processes exchange these in rounds, in each of which one sends to at most one and receives
from at most one: a permutation, of pieces as long as the round's longest. A piece that is longer than what is wanted of it holds
elements of the same array at their places, so that nothing is wrong with writing them, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from hlo.module import DenseArray, Value
from hlo.types import TensorType
from tiling.mesh.emit import INDEX, Emitter, resized
from tiling.mesh.network import Network
from tiling.mesh.relations import Window, block_size
from tiling.mesh.shardings import Digit, groups_along

__all__ = ["Round", "looked_up", "rounds_of", "window_seconds", "with_window"]


@dataclass(frozen=True)
class Round:
    """One permutation: (source tile, target tile, first element) of pieces of `length` elements."""

    length: int
    pieces: tuple[tuple[int, int, int], ...]


def rounds_of(window: Window, size: int, digits: tuple[Digit, ...]) -> tuple[Round, ...]:
    """The permutations after which each process has what it wants of the others' tiles of a dimension of `size`.

    >>> for r in rounds_of(Window(-1, 2, 4), 8, (Digit(1, 4),)): print(r)
    Round(length=1, pieces=((1, 0, 2), (2, 1, 4), (3, 2, 6)))
    Round(length=1, pieces=((0, 1, 1), (1, 2, 3), (2, 3, 5)))
    """
    parts, block = prod(d.size for d in digits), block_size(size, digits)
    pieces = []  # (length, source, target, first)
    for target in range(parts):
        begin = window.first + target * window.step
        low, high = max(begin, 0), min(begin + window.length, size)
        for source in range(low // block if high > low else 0, -(-high // block) if high > low else 0):
            a, b = max(low, source * block), min(high, (source + 1) * block)
            if source != target:
                pieces.append((b - a, source, target, a))
    rounds: list[list[tuple[int, int, int, int]]] = []
    # Pieces of one distance go together, for halos are of one length; then whoever is free.
    for piece in sorted(pieces, key=lambda p: (-p[0], p[2] - p[1], p[1])):
        free = next((r for r in rounds if all(p[1] != piece[1] and p[2] != piece[2] for p in r)), None)
        if free is None:
            rounds.append([piece])
        else:
            free.append(piece)
    return tuple([Round(max(p[0] for p in r), tuple([(s, t, a) for _, s, t, a in r])) for r in rounds])


def window_seconds(window: Window, t: TensorType, dim: int, digits: tuple[Digit, ...], network: Network) -> float:
    """What the exchange takes of a dimension of the whole type `t`, whose other dimensions are a tile's.

    >>> from hlo.types import ELEMENT_TYPES
    >>> window_seconds(Window(-1, 2, 4), TensorType((8, 5), ELEMENT_TYPES["f32"]), 0, (Digit(1, 4),), Network(0.0, 1.0))
    40.0
    """
    size = t.static_shape[dim]
    row_bytes = t.size_bytes // max(1, size)
    return sum(network.seconds(row_bytes * r.length, 2) for r in rounds_of(window, size, digits))


@dataclass(frozen=True)
class _Place:
    """A dimension of `size` in tiles of `block`, `parts` of them, and the window that each process wants."""

    window: Window
    size: int
    block: int
    parts: int

    def begin(self, tile: int) -> int:
        """The first element that a tile's process wants."""
        return self.window.first + tile * self.window.step

    @property
    def is_outside(self) -> bool:
        """Whether some window reaches over the dimension's ends."""
        begins = self.begin(0), self.begin(self.parts - 1)
        return min(begins) < 0 or max(begins) + self.window.length > self.size


def with_window(
    emit: Emitter, v: Value, size: int, dim: int, digits: tuple[Digit, ...], window: Window, fill: Value | None, is_filled: bool,
    reason: str,
) -> Value:  # fmt: skip
    """What each process wants of a dimension of `size` elements of which it holds the tile `v`.

    With `is_filled`, `fill` (None: zero) is what lies outside of the dimension; else anything may be there.
    """
    place = _Place(window, size, v.shape[dim], prod(d.size for d in digits))
    rounds = rounds_of(window, size, digits)
    made = _side_by_side(emit, v, dim, digits, place, rounds, reason)
    if made is None:
        made = _by_tables(emit, v, dim, digits, place, rounds, reason)
    if not is_filled or not place.is_outside:
        return made
    if window.step == place.block:
        (begin,) = emit.op("stablehlo.add", (emit.tile_begin(digits, place.block), emit.index(window.first)), {}, [INDEX])
    else:
        begin = looked_up(emit, digits, [place.begin(t) for t in range(place.parts)])
    return emit.masked(made, dim, begin, 0, size, fill)


def _sent(emit: Emitter, piece: Value, digits: tuple[Digit, ...], r: Round, of: Value, reason: str) -> Value:
    """A round's piece from the process that sends to this one; zeros where none does."""
    pairs = [(row[s], row[t]) for row in groups_along(digits, emit.processes) for s, t, _ in r.pieces]
    emit.told_of("halo", digits, piece.tensor.size_bytes, of, reason)
    attributes = {"source_target_pairs": tuple(pairs), "channel_handle": emit.channel()}
    return emit.op("stablehlo.collective_permute", (piece,), attributes, [piece.type])[0]


def _side_by_side(
    emit: Emitter, v: Value, dim: int, digits: tuple[Digit, ...], place: _Place, rounds: tuple[Round, ...], reason: str
) -> Value | None:
    """The pieces and the own tile one beside the other, where all processes have them at the same places; else None."""
    if place.window.step != place.block:
        return None
    first, length = place.window.first, place.window.length
    own = max(0, -first), min(length, place.block - first)
    segments: list[tuple[int, int, Round | None, int]] = [(*own, None, own[0] + first)] if own[0] < own[1] else []
    for r in rounds:
        froms = {a - s * place.block for s, _, a in r.pieces}
        tos = {a - place.begin(t) for _, t, a in r.pieces}
        if len(froms) != 1 or len(tos) != 1:
            return None
        segments.append((min(tos), min(tos) + r.length, r, min(froms)))
    segments.sort(key=lambda s: s[0])
    ends = [0, *(s[1] for s in segments)]
    if ends[-1] != length or any(s[0] != end for s, end in zip(segments, ends, strict=False)):
        return None
    parts = []
    for begin, end, sends, start in segments:
        piece = emit.sliced(v, dim, start, start + end - begin)
        parts.append(piece if sends is None else _sent(emit, piece, digits, sends, v, reason))
    if len(parts) == 1:
        return parts[0]
    return emit.op("stablehlo.concatenate", parts, {"dimension": dim}, [resized(v.tensor, dim, length)])[0]


def _by_tables(
    emit: Emitter, v: Value, dim: int, digits: tuple[Digit, ...], place: _Place, rounds: tuple[Round, ...], reason: str
) -> Value:
    """The same by tables of where each process's pieces begin and land; what is not for a process lands behind the window."""
    length = place.window.length
    margin = max([place.block, *(r.length for r in rounds)])
    junk = 2 * margin + length
    buffer = emit.splat(0, resized(v.tensor, dim, junk + margin))

    def put(into: Value, piece: Value, landings: list[int]) -> Value:
        at = [emit.index(0)] * v.rank
        at[dim] = looked_up(emit, digits, landings)
        return emit.op("stablehlo.dynamic_update_slice", (into, piece, *at), {}, [into.type])[0]

    own = [t * place.block - place.begin(t) for t in range(place.parts)]
    buffer = put(buffer, v, [margin + at if -place.block < at < length else junk for at in own])
    for r in rounds:
        starts, landings = [0] * place.parts, [junk] * place.parts
        for s, t, a in r.pieces:
            starts[s] = min(a - s * place.block, place.block - r.length)
            landings[t] = margin + s * place.block + starts[s] - place.begin(t)
        at = [emit.index(0)] * v.rank
        at[dim] = looked_up(emit, digits, starts)
        cut = resized(v.tensor, dim, r.length)
        (piece,) = emit.op("stablehlo.dynamic_slice", (v, *at), {"slice_sizes": cut.static_shape}, [cut])
        buffer = put(buffer, _sent(emit, piece, digits, r, v, reason), landings)
    return emit.sliced(buffer, dim, margin, margin + length)


def looked_up(emit: Emitter, digits: tuple[Digit, ...], numbers: list[int]) -> Value:
    """The number of this process's tile in a table of all tiles'."""
    if len(set(numbers)) == 1:
        return emit.index(numbers[0])
    t = TensorType((len(numbers),), INDEX.element)
    (table,) = emit.op("stablehlo.constant", (), {"value": DenseArray(t, np.array(numbers, np.int32))}, [t])
    one = TensorType((1,), INDEX.element)
    (found,) = emit.op("stablehlo.dynamic_slice", (table, emit.number(digits)), {"slice_sizes": (1,)}, [one])
    return emit.op("stablehlo.reshape", (found,), {}, [INDEX])[0]
