"""What each process wants along a dimension of others' tiles, piece by piece, and how the pieces come and are put together.

A dimension of a base is held in tiles; process t of its digits wants the positions [first + t * step, + length) of a view of it
(`tiling.mesh.halo.views`). Each piece of that lies in one tile. Pieces of other processes come in rounds, in each of which a
process sends to at most one and receives from at most one: a permutation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from hlo.module import Value
from hlo.types import TensorType
from tiling.mesh.emit import INDEX, Emitter, resized
from tiling.mesh.halo.views import Segments
from tiling.mesh.halo.windows import looked_up
from tiling.mesh.network import Network
from tiling.mesh.relations import Window, block_size
from tiling.mesh.shardings import Digit, groups_along

__all__ = ["Piece", "brought", "permuted_once", "pieces_of", "pieces_seconds"]

_PERMUTE = "stablehlo.collective_permute"


@dataclass(frozen=True)
class Piece:
    """Elements [first, first + length) of a source's tile, and the places from `at` where a target wants them; -1: turned."""

    length: int
    source: int
    target: int
    first: int
    at: int
    step: int = 1


def pieces_of(segments: Segments, size: int, digits: Sequence[Digit], window: Window) -> list[Piece]:
    """All pieces, own ones included.

    >>> from tiling.mesh.halo.views import Segment
    >>> for p in pieces_of((Segment(1, 7), Segment(7, 0)), 8, [Digit(1, 2)], Window(0, 4, 4)): print(p)
    Piece(length=1, source=1, target=0, first=3, at=0, step=1)
    Piece(length=3, source=0, target=0, first=0, at=1, step=1)
    Piece(length=1, source=0, target=1, first=3, at=0, step=1)
    Piece(length=3, source=1, target=1, first=0, at=1, step=1)
    """
    parts, block = prod(d.size for d in digits), block_size(size, digits)
    made = []
    for target in range(parts):
        begin, place = window.first + target * window.step, 0
        for s in segments:
            low, high = max(begin, place), min(begin + window.length, place + s.length)
            place += s.length
            if s.start is None or low >= high:
                continue
            at = low - begin
            part = s.cut(low - (place - s.length), high - (place - s.length))
            assert part.start is not None
            a = part.start if s.step > 0 else part.start - part.length + 1  # the first element, upwards
            b = a + part.length
            for source in range(a // block, -(-b // block)):
                x, y = max(a, source * block), min(b, (source + 1) * block)
                where = at + (x - a if s.step > 0 else b - y)
                made.append(Piece(y - x, source, target, x - source * block, where, s.step))
    return made


def _rounds(pieces: Iterable[Piece], parts: int) -> list[list[Piece]]:
    """The permutations: pieces of one distance go together, for halos are of one length; then whoever is free."""
    rounds: list[list[Piece]] = []
    for p in sorted(pieces, key=lambda p: (-p.length, (p.target - p.source) % parts, p.source)):
        if p.source == p.target:
            continue
        free = (r for r in rounds if r[0].step == p.step and all(p.source != q.source and p.target != q.target for q in r))
        found = next(free, None)
        if found is None:
            rounds.append([p])
        else:
            found.append(p)
    return rounds


def pieces_seconds(pieces: Sequence[Piece], parts: int, row_bytes: int, network: Network) -> float:
    """What the rounds take, of elements along the dimension that are `row_bytes` each."""
    return sum(network.seconds(row_bytes * max(p.length for p in r), 2) for r in _rounds(pieces, parts))


@dataclass(frozen=True)
class _Bringing:
    """A tile `v` along `dim`, what is wanted of it, the filling (None: whatever), and whom to tell why."""

    emit: Emitter
    v: Value
    dim: int
    digits: tuple[Digit, ...]
    length: int
    fill: Value | None
    reason: str

    @property
    def parts(self) -> int:
        return prod(d.size for d in self.digits)

    @property
    def block(self) -> int:
        return self.v.shape[self.dim]

    def cut(self, starts: Sequence[int], length: int, step: int) -> Value:
        """`length` elements of the own tile, from where the table of tiles says."""
        if len(set(starts)) == 1:
            made = self.emit.sliced(self.v, self.dim, starts[0], starts[0] + length)
        else:
            at = [self.emit.index(0)] * self.v.rank
            at[self.dim] = looked_up(self.emit, self.digits, list(starts))
            t = resized(self.v.tensor, self.dim, length)
            (made,) = self.emit.op("stablehlo.dynamic_slice", (self.v, *at), {"slice_sizes": t.static_shape}, [t])
        if step < 0 and length > 1:
            (made,) = self.emit.op("stablehlo.reverse", (made,), {"dimensions": (self.dim,)}, [made.type])
        return made

    def sent(self, piece: Value, r: Sequence[Piece]) -> Value:
        """A round's piece from the process that sends to this one; zeros where none does."""
        pairs = [(row[p.source], row[p.target]) for row in groups_along(self.digits, self.emit.processes) for p in r]
        self.emit.told_of("halo", self.digits, piece.tensor.size_bytes, self.v, self.reason)
        attributes = {"source_target_pairs": tuple(pairs), "channel_handle": self.emit.channel()}
        return self.emit.op(_PERMUTE, (piece,), attributes, [piece.type])[0]

    def filling(self, t: TensorType) -> Value:
        """The filling everywhere."""
        return self.emit.splat(0, t) if self.fill is None else self.emit.spread(self.fill, t)


def brought(
    emit: Emitter, v: Value, dim: int, digits: tuple[Digit, ...], pieces: Sequence[Piece], length: int, fill: Value | None,
    reason: str,
) -> Value:  # fmt: skip
    """What each process wants along a dimension, of which it holds the tile `v`; `fill`, or anything, where no piece lands."""
    bringing = _Bringing(emit, v, dim, digits, length, fill, reason)
    rounds = _rounds(pieces, bringing.parts)
    own = [p for p in pieces if p.source == p.target]
    made = _side_by_side(bringing, own, rounds)
    return _by_tables(bringing, own, rounds) if made is None else made


_MOST_SLOTS = 6


def _side_by_side(b: _Bringing, own: Sequence[Piece], rounds: Sequence[Sequence[Piece]]) -> Value | None:
    """The parts one beside the other, where all processes have the same places for them; else None.

    A part is one round's, the own tile's or filling; which one may depend on the process.
    """
    everything = [*own, *(p for r in rounds for p in r)]
    ends = sorted({0, b.length, *(p.at for p in everything), *(p.at + p.length for p in everything)})
    slots = list(itertools.pairwise(ends))
    if len(slots) > _MOST_SLOTS or any(len({(p.at, p.length) for p in r}) != 1 for r in rounds):
        return None
    places = {(r[0].at, r[0].at + r[0].length) for r in rounds}
    if not places <= set(slots):
        return None
    received: dict[int, Value] = {}
    parts = []
    for low, high in slots:
        sources: list[tuple[tuple[str, int, int], int]] = []  # (what, …) of each tile
        for t in range(b.parts):
            mine = [p for p in own if p.target == t and p.at <= low and high <= p.at + p.length]
            theirs = [k for k, r in enumerate(rounds) if r[0].at == low and any(p.target == t for p in r)]
            if len(mine) + len(theirs) > 1:
                return None
            if theirs:
                sources.append((("round", theirs[0], 0), t))
            elif mine:
                p = mine[0]
                first = p.first + low - p.at if p.step > 0 else p.first + p.at + p.length - high
                sources.append((("own", first, p.step), t))
            elif b.fill is not None:
                sources.append((("fill", 0, 0), t))
        kinds = list(dict.fromkeys(s for s, _ in sources))
        if len(kinds) > 3:
            return None
        parts.append((low, high, sorted(kinds, key=lambda k: -sum(s == k for s, _ in sources)), {tile: s for s, tile in sources}))
    for k, r in enumerate(rounds):
        starts = [next((p.first for p in r if p.source == t), r[0].first) for t in range(b.parts)]
        received[k] = b.sent(b.cut(starts, r[0].length, r[0].step), r)
    made = []
    for low, high, kinds, of_tile in parts:
        made_type = resized(b.v.tensor, b.dim, high - low)
        chosen: Value | None = None
        for number, (what, first, step) in enumerate(kinds):
            if what == "round":
                value = received[first]
            else:
                value = b.filling(made_type) if what == "fill" else b.cut([first], high - low, step)
            if chosen is None:
                chosen = value
                continue
            table = [int(of_tile.get(tile) == kinds[number]) for tile in range(b.parts)]
            here = b.emit.compared(looked_up(b.emit, b.digits, table), "EQ", 1)
            (chosen,) = b.emit.op("stablehlo.select", (b.emit.spread(here, made_type), value, chosen), {}, [made_type])
        made.append(b.filling(made_type) if chosen is None else chosen)
    if len(made) == 1:
        return made[0]
    return b.emit.op("stablehlo.concatenate", made, {"dimension": b.dim}, [resized(b.v.tensor, b.dim, b.length)])[0]


def _by_tables(b: _Bringing, own: Sequence[Piece], rounds: Sequence[Sequence[Piece]]) -> Value:
    """The same by tables of where each process's pieces begin and land, and which of their elements are meant."""
    emit, dim = b.emit, b.dim
    margin = max([b.block, *(p.length for r in rounds for p in r)])
    buffer = b.filling(resized(b.v.tensor, dim, b.length + 2 * margin))

    def put(into: Value, piece: Value, landings: list[int], lows: list[int], highs: list[int]) -> Value:
        at = [emit.index(0)] * b.v.rank
        at[dim] = looked_up(emit, b.digits, landings)
        if set(lows) != {0} or set(highs) != {piece.shape[dim]}:
            (old,) = emit.op("stablehlo.dynamic_slice", (into, *at), {"slice_sizes": piece.shape}, [piece.type])
            numbers = TensorType(piece.tensor.shape, INDEX.element)
            (i,) = emit.op("stablehlo.iota", (), {"iota_dimension": dim}, [numbers])
            ends = [emit.spread(looked_up(emit, b.digits, row), numbers) for row in (lows, highs)]
            truth = emit.compared(i, "GE", 0).type
            (above,) = emit.op("stablehlo.compare", (i, ends[0]), {"comparison_direction": "GE"}, [truth])
            (below,) = emit.op("stablehlo.compare", (i, ends[1]), {"comparison_direction": "LT"}, [truth])
            (piece,) = emit.op("stablehlo.select", (emit.both(above, below), piece, old), {}, [piece.type])
        return emit.op("stablehlo.dynamic_update_slice", (into, piece, *at), {}, [into.type])[0]

    for is_own, r in [*((True, r) for r in _own_rounds(own)), *((False, r) for r in rounds)]:
        length, step = max(p.length for p in r), r[0].step
        starts, landings, lows, highs = [0] * b.parts, [margin] * b.parts, [0] * b.parts, [0] * b.parts
        for p in r:
            starts[p.source] = min(p.first, b.block - length)
            low = p.first - starts[p.source]
            low = low if step > 0 else length - low - p.length
            landings[p.target], lows[p.target], highs[p.target] = margin + p.at - low, low, low + p.length
        piece = b.cut(starts, length, step)
        buffer = put(buffer, piece if is_own else b.sent(piece, r), landings, lows, highs)
    return emit.sliced(buffer, dim, margin, margin + b.length)


def _own_rounds(own: Sequence[Piece]) -> list[list[Piece]]:
    """Own pieces, in each round one at most of each process."""
    rounds: list[list[Piece]] = []
    for p in sorted(own, key=lambda p: -p.length):
        found = next((r for r in rounds if r[0].step == p.step and all(q.target != p.target for q in r)), None)
        if found is None:
            rounds.append([p])
        else:
            found.append(p)
    return rounds


def permuted_once(emit: Emitter, v: Value, begin: int) -> Value:
    """A value by one permutation, where the block's last ops, from number `begin` on, bring whole tiles by two.

    What a -> b and b -> c bring to c goes there at once: x[::-1, ::-1] sends its tile once. Where nothing comes both have zeros,
    and turning a tile before it is sent is turning it afterwards.
    """
    ops = emit.block.ops
    first, source = len(ops), v
    while first > begin and ops[first - 1].results[0] is source and ops[first - 1].name in (_PERMUTE, "stablehlo.reverse"):
        first -= 1
        source = ops[first].operands[0]
    chain = ops[first:]
    pairs = [op.attr("source_target_pairs") for op in chain if op.name == _PERMUTE]
    if len(pairs) != 2:
        return v
    del ops[first:]
    for op in chain:
        if op.name != _PERMUTE:
            (source,) = emit.op(op.name, (source,), {"dimensions": op.attr("dimensions")}, [source.type])
    onward = {int(a): int(b) for a, b in pairs[1]}
    through = tuple((int(a), onward[int(b)]) for a, b in pairs[0] if int(b) in onward)
    before, after = emit.told[-2:]
    emit.told[-2:] = [replace(before, digits=(*before.digits, *after.digits))]
    attributes = {"source_target_pairs": through, "channel_handle": emit.channel()}
    return emit.op(_PERMUTE, (source,), attributes, [source.type])[0]
