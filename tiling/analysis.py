"""Tiles of all instructions of a fusion: from the tile of its root to everything that the root reads, path by path.

    tile(v along a path) = tile of (map of the path, from the root's index to v's)

A value that is read along several paths has one tile for each map that differs as a relation: equal ones are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hlo.errors import Declined
from hlo.module import Function, Module, Op, Value
from hlo.types import TensorType
from indexing.blocks import CALLS, blocks_of
from indexing.derive import output_to_input
from indexing.expr import Const, Expr, Interval, Var, substitute
from indexing.inverse import input_to_output
from indexing.map import IndexingMap, Variable, compose
from indexing.program import MAPS_LIMIT, composed
from indexing.regions import Region
from tiling.symbolic import SymbolicTile, exact_tile, symbolic_tile
from tiling.tile_constraints import TileConstraints, TooManyConjunctions

__all__ = ["ConcreteTile", "TileAnalysis", "TiledValue", "reached_tiles", "tile_analysis"]

PROGRAM = Var("pid_0")
"""The number of a tile of the root, row by row."""


@dataclass(eq=False)
class TiledValue:
    """A value as it is read along some paths from the root.

    `map` leads from the root's index to the value's, `tile` is its symbolic tile in the root's tile sizes, `operands` are for
    each operand of the op that makes the value the tiles of that operand, one for each map that reads it.
    """

    value: Value
    map: IndexingMap
    operands: tuple[tuple[TiledValue, ...], ...] = ()

    @cached_property
    def tile(self) -> SymbolicTile | Declined:
        return symbolic_tile(self.map)

    def exact(self, tile_sizes: Sequence[int], origin: Sequence[int] | None = None) -> Region | Declined:
        """The elements that are read for concrete tile sizes, whatever the constraints say; see `exact_tile`."""
        if self.map.unknown is not None:
            return self.map.unknown
        return exact_tile(self.map, tile_sizes, origin)

    def __str__(self) -> str:
        return f"%{self.value.name or '?'}: {self.map}\n{self.tile}"


@dataclass(frozen=True)
class ConcreteTile:
    """A tile for concrete root tile sizes: `offsets` leads from the tile's number to the least index of each dimension."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: IndexingMap


@dataclass(eq=False)
class TileAnalysis:
    """The tiles of everything that `root` depends on.

    `constraints` are those of all values with a symbolic tile together; `declined` are the values without one and why.
    """

    root: TiledValue
    values: tuple[TiledValue, ...]  # the root first, operands after what reads them
    _concrete: dict[tuple[int, tuple[int, ...]], ConcreteTile | Declined] = field(default_factory=dict)

    @cached_property
    def constraints(self) -> TileConstraints | Declined:
        total = TileConstraints()
        limits = {v.var: Interval(1, v.interval.size) for v in self.root.map.dims}
        try:
            for t in self.values:
                if isinstance(t.tile, SymbolicTile):
                    total = (total & t.tile.constraints).simplify(limits)
        except TooManyConjunctions as reason:
            return Declined(f"the constraints of the fusion have too many alternatives: {reason}")
        return total

    @property
    def declined(self) -> tuple[tuple[TiledValue, Declined], ...]:
        return tuple((t, t.tile) for t in self.values if isinstance(t.tile, Declined))

    def satisfies(self, tile_sizes: Sequence[int]) -> bool:
        """Whether every value has a symbolic tile whose constraints these root tile sizes meet."""
        return all(isinstance(t.tile, SymbolicTile) and t.tile.satisfies(tile_sizes) for t in self.values)

    def follow(self, path: Sequence[int]) -> TiledValue:
        """The value reached from the root by operand numbers, first map first. Raises IndexError where there is none."""
        at = self.root
        for number in path:
            if not 0 <= number < len(at.operands) or not at.operands[number]:
                raise IndexError(f"%{at.value.name or '?'} reads no operand {number}")
            at = at.operands[number][0]
        return at

    def concrete(self, tiled: TiledValue, tile_sizes: Sequence[int]) -> ConcreteTile | Declined:
        """Sizes, strides and offsets of one value's tile for root tile sizes, or why there are none (then ask `exact`)."""
        key = (id(tiled), tuple(tile_sizes))
        if key not in self._concrete:
            self._concrete[key] = _concrete(tiled, self.root.map, tile_sizes)
        return self._concrete[key]

    def __str__(self) -> str:
        return "\n".join(map(str, self.values))


def tile_analysis(
    subject: Module | Function | Op | Value, entry: str | None = None, module: Module | None = None
) -> TileAnalysis:
    """The tiles of all that a root reads: of a module's or function's (first) result, of an op's first result, or of a value.

    A root that is a fusion or call is entered: its body's values are analysed, up to the body's arguments. Tile sizes stay
    symbols; `TileAnalysis.concrete` and `TiledValue.exact` take numbers. Raises KeyError for an unknown entry.

    >>> import hlo
    >>> text = '''HloModule m
    ... ENTRY e { p = f32[8,6] parameter(0) t = f32[6,8] transpose(p), dimensions={1,0} ROOT n = f32[6,8] negate(t) }'''
    >>> found = tile_analysis(hlo.parse(text))
    >>> print(found.follow([0, 0]).tile)
    Symbolic tile with
      offset_map: (d0, d1) -> (0, 0)
      size_map: (d0, d1) -> (d1, d0)
      stride_map: (d0, d1) -> (1, 1)
    >>> tile = found.concrete(found.follow([0, 0]), [3, 4])
    >>> tile.sizes, str(tile.offsets)
    ((4, 3), '(pid_0) -> ((pid_0 mod 2) * 4, (pid_0 floordiv 2) * 3), domain: pid_0 in [0, 3]')
    """
    if isinstance(subject, Module):
        module = subject
        subject = subject.function(entry)
    if isinstance(subject, Function):
        subject = subject.body.results[0]
    value = subject.results[0] if isinstance(subject, Op) else subject
    walk = _Walk(module)
    root = walk.run(value)
    return TileAnalysis(root, tuple(walk.found))


class _Walk:
    """Follows the reads from a root, an explicit stack instead of recursion: chains may be long."""

    def __init__(self, module: Module | None) -> None:
        self.module = module
        self.inside: dict[Value, Value] = {}  # argument of an entered block -> what it stands for
        self.found: list[TiledValue] = []
        self.known: dict[Value, list[TiledValue]] = {}

    def run(self, root: Value) -> TiledValue:
        value = self._body(root)
        first, _ = self._at(value, IndexingMap.identity(value.shape))
        todo = [first]
        while todo:
            tiled = todo.pop()
            self.found.append(tiled)
            op = tiled.value.op
            if op is None:
                continue
            read: list[tuple[TiledValue, ...]] = []
            for operand, maps in zip(op.operands, output_to_input(op, tiled.value.index), strict=True):
                if not isinstance(operand.type, TensorType):
                    read.append(())
                    continue
                here: list[TiledValue] = []
                for m in maps:
                    if m.is_known_empty:
                        continue
                    t, new = self._at(self._enter(operand), composed(tiled.map, m))
                    if not any(t is x for x in here):
                        here.append(t)
                    if new:
                        todo.append(t)
                read.append(tuple(here))
            tiled.operands = tuple(read)
        return first

    def _body(self, v: Value) -> Value:
        """The value inside the fusions or calls that make `v`; their arguments stay what they are."""
        while v.op is not None and v.op.name in CALLS and (blocks := blocks_of(v.op, self.module)):
            v = blocks[0].results[v.index]
        return v

    def _enter(self, v: Value) -> Value:
        """What `v` stands for: the body's value of an inner call, the operand behind an inner call's argument."""
        while True:
            if v in self.inside:
                v = self.inside[v]
            elif v.op is not None and v.op.name in CALLS and (blocks := blocks_of(v.op, self.module)):
                self.inside.update(zip(blocks[0].arguments, v.op.operands, strict=True))
                v = blocks[0].results[v.index]
            else:
                return v

    def _at(self, v: Value, m: IndexingMap) -> tuple[TiledValue, bool]:
        """The tiled value for a map, merged with one whose map is the same relation; and whether it is new."""
        known = self.known.setdefault(v, [])
        for t in known:
            if t.map.spelling == m.spelling or (m.unknown is None and t.map.unknown is None and t.map == m):
                return t, False
        if len(known) >= MAPS_LIMIT:
            m = IndexingMap.unknown_because(f"%{v.name or '?'} is read in more than {MAPS_LIMIT} ways")
            for t in known:
                if t.map.unknown is not None:
                    return t, False
        made = TiledValue(v, m)
        known.append(made)
        return made, True


def _concrete(tiled: TiledValue, root: IndexingMap, tile_sizes: Sequence[int]) -> ConcreteTile | Declined:
    tile = tiled.tile
    if isinstance(tile, Declined):
        return tile
    if not tile.satisfies(tile_sizes):
        return Declined(f"the tile sizes {list(tile_sizes)} do not meet {tile.constraints}")
    counts = [-(-v.interval.size // t) for v, t in zip(root.dims, tile_sizes, strict=True)]
    origin: list[Expr] = [Const(0)] * len(counts)
    step = 1
    for k in reversed(range(len(counts))):
        number = PROGRAM // step
        if counts[k] > 1:
            origin[k] = (number % counts[k] if any(n > 1 for n in counts[:k]) else number) * tile_sizes[k]
        step *= counts[k]
    sizes = {v.var: Const(t) for v, t in zip(tile.sizes, tile_sizes, strict=True)}
    to_root = IndexingMap((Variable(PROGRAM, Interval(0, step - 1)),), tuple(origin))
    starts = IndexingMap(
        tuple([Variable(v.var, d.interval) for v, d in zip(tile.sizes, root.dims, strict=True)]),
        tuple([a + substitute(b, sizes) for a, b in zip(tile.starts, tile.shifts, strict=True)]),
        runtimes=tile.runtimes,
    )
    offsets = compose(to_root, starts)
    # Tiles at an edge begin inside, their ends are cut: no condition is left on where they begin.
    offsets = IndexingMap(offsets.dims, offsets.results, (), offsets.runtimes).simplify()
    numbers = [0] * len(tile.runtimes)
    return ConcreteTile(tile.size_map.evaluate(tile_sizes, numbers), tile.stride_map.evaluate(tile_sizes, numbers), offsets)


def reached_tiles(op: Op, operand: int = 0) -> Iterator[tuple[IndexingMap, SymbolicTile | Declined]]:
    """The other way: for a tile of an operand, the tile of the op's first result that depends on it, one for each map.

    >>> import hlo
    >>> text = "HloModule m ENTRY e { p = f32[20] parameter(0) ROOT b = f32[10,20] broadcast(p), dimensions={1} }"
    >>> for _, tile in reached_tiles(hlo.parse(text).root): print(tile.size_map)
    (d0) -> (10, d0)
    """
    for m in input_to_output(op, operand)[0]:
        yield m, symbolic_tile(m)
