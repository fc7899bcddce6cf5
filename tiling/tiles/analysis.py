"""Tiles of all instructions of a fusion: from the tile of its root to everything that the root reads, path by path.

    tile(v along a path) = tile of (map of the path, from the tiling space to v's index)

A value that is read along several paths has one tile for each map that differs as a relation: equal ones are merged. The
tiling space is a root's index; with `sequential` also what reductions and contractions run over. Several roots share one space
where a map leads from the main root's index to the other's, so that each tile holds whole tiles of all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from hlo.display import as_html
from hlo.errors import Declined
from hlo.lazy import cached_property
from hlo.module import Function, Module, Op, Value
from indexing.exact.inverse import input_to_output
from indexing.expr import Interval
from indexing.map import IndexingMap
from indexing.regions import Region
from tiling.tiles.concrete import ConcreteTile, concrete_tile
from tiling.tiles.constraints import TileConstraints, TooManyConjunctions
from tiling.tiles.reads_of_fusion import Node, Walk
from tiling.tiles.roots import Agreement, main_root, root_map
from tiling.tiles.space import Runtimes, SpaceDimension, Tile, TilingSpace, tile_in_space
from tiling.tiles.symbolic import SymbolicTile, exact_tile, symbolic_tile

__all__ = ["TileAnalysis", "TiledValue", "reached_tiles", "tile_analysis", "tiled"]


@dataclass(eq=False)
class TiledValue:
    """A value as it is read along some paths from a root.

    `map` leads from the space's `dimensions` (those of them that matter here) to the value's index, `tile` is its symbolic tile
    in their tile sizes, `operands` are for each operand of the op that makes the value the tiles of that operand, one for each
    map that reads it.
    """

    value: Value
    map: IndexingMap
    dimensions: tuple[SpaceDimension, ...]
    operands: tuple[tuple[TiledValue, ...], ...] = ()

    @cached_property
    def tile(self) -> SymbolicTile | Declined:
        return symbolic_tile(self.map)

    def exact(self, tile_sizes: Sequence[int], origin: Sequence[int] | None = None) -> Region | Declined:
        """The elements that are read for concrete tile sizes, whatever the constraints say; see `exact_tile`."""
        if self.map.unknown is not None:
            return self.map.unknown
        return exact_tile(self.map, tile_sizes, origin)

    def __repr__(self) -> str:
        return f"<TiledValue %{self.value.name or '?'}: {self.map}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        return f"%{self.value.name or '?'}: {self.map}\n{self.tile}"


@dataclass(eq=False)
class TileAnalysis:
    """The tiles of everything that the roots depend on.

    `root` is the main root, whose index the parallel dimensions are. `roots` are all that share its tiles, in the order of the
    results, and `apart` the roots that do not, with the reason. `declined` are the values without a symbolic tile and why.
    """

    root: TiledValue
    roots: tuple[TiledValue, ...]
    values: tuple[TiledValue, ...]  # the main root first, operands after what reads them
    dimensions: tuple[SpaceDimension, ...]
    root_constraints: TileConstraints = field(default_factory=TileConstraints)
    apart: tuple[tuple[Value, Declined], ...] = ()
    _concrete: dict[tuple[TiledValue, tuple[int, ...]], ConcreteTile | Declined] = field(default_factory=dict)

    @cached_property
    def _tiles(self) -> tuple[dict[TiledValue, Tile | Declined], Runtimes]:
        runtimes = Runtimes()
        found: dict[TiledValue, Tile | Declined] = {}
        known: dict[Hashable, Tile | Declined] = {}  # long chains read with the same map again and again
        for t in self.values:
            key = (t.map.spelling, t.dimensions)
            if key not in known:
                tile = symbolic_tile(t.map, cover=True)
                known[key] = tile if isinstance(tile, Declined) else tile_in_space(tile, t.dimensions, runtimes)
            found[t] = known[key]
        return found, runtimes

    @cached_property
    def space(self) -> TilingSpace:
        """The dimensions that tiles are numbered in, and the runtime values that their offsets need."""
        return TilingSpace(self.dimensions, tuple(self._tiles[1].found.values()))

    def tile(self, tiled: TiledValue) -> Tile | Declined:
        """A value's tile as offsets, sizes, strides and upper bounds in the space's tile numbers and sizes."""
        return self._tiles[0][tiled]

    @cached_property
    def constraints(self) -> TileConstraints | Declined:
        """What all tile sizes have to meet together: of d0, d1, … (the space's tile sizes), as in XLA's form."""
        total = self.root_constraints
        limits = {v.var: Interval(1, v.interval.size) for v in self.root.map.dims}
        limits |= {d.tile_size: Interval(1, d.extent) for d in self.dimensions}
        try:
            for t in self.values:
                if len(self.dimensions) == len(self.root.dimensions):
                    if isinstance(t.tile, SymbolicTile):
                        total = (total & t.tile.constraints).simplify(limits)
                elif isinstance(tile := self.tile(t), Tile):
                    total = (total & tile.constraints).simplify(limits)
        except TooManyConjunctions as reason:
            return Declined(f"the constraints of the fusion have too many alternatives: {reason}")
        return total

    @property
    def declined(self) -> tuple[tuple[TiledValue, Declined], ...]:
        return tuple((t, t.tile) for t in self.values if isinstance(t.tile, Declined))

    def satisfies(self, tile_sizes: Sequence[int]) -> bool:
        """Whether every value has a symbolic tile whose constraints these tile sizes of the space meet."""
        whole = self.whole_sizes(tile_sizes)
        agreed = {v.var: t for v, t in zip(self.root.map.dims, whole, strict=False)}
        return self.root_constraints.holds(agreed) and all(
            isinstance(t.tile, SymbolicTile) and t.tile.satisfies([whole[d.number] for d in t.dimensions])
            for t in self.values
        )

    def whole_sizes(self, tile_sizes: Sequence[int]) -> tuple[int, ...]:
        """A size for each dimension of the space: sequential ones are whole where sizes are given for the parallel ones only.

        Raises ValueError for any other number of sizes.
        """
        parallel = len(self.root.dimensions)
        if len(tile_sizes) not in (parallel, len(self.dimensions)):
            expected = " or ".join(map(str, dict.fromkeys([parallel, len(self.dimensions)])))
            raise ValueError(f"expected {expected} tile sizes, found {len(tile_sizes)}")
        return (*tile_sizes, *(d.extent for d in self.dimensions[len(tile_sizes) :]))

    def follow(self, path: Sequence[int], root: int | None = None) -> TiledValue:
        """The value reached from a root (the main one, or by number) by operand numbers, first map first.

        Raises IndexError where there is none.
        """
        at = self.root if root is None else self.roots[root]
        for number in path:
            if not 0 <= number < len(at.operands) or not at.operands[number]:
                raise IndexError(f"%{at.value.name or '?'} reads no operand {number}")
            at = at.operands[number][0]
        return at

    def concrete(self, tiled: TiledValue, tile_sizes: Sequence[int]) -> ConcreteTile | Declined:
        """Sizes, strides and offsets of one value's tile for concrete tile sizes, or why there are none (then ask `exact`)."""
        sizes = self.whole_sizes(tile_sizes)
        key = (tiled, sizes)
        if key not in self._concrete:
            self._concrete[key] = concrete_tile(tiled.tile, tiled.dimensions, self.dimensions, sizes)
        return self._concrete[key]

    def __repr__(self) -> str:
        return f"<TileAnalysis of %{self.root.value.name or '?'}: {len(self.values)} values, {self.space!r}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        lines = [str(self.space)]
        for t in self.values:
            lines += [f"%{t.value.name or '?'}", *("  " + x for x in str(self.tile(t)).splitlines())]
        lines += [f"%{v.name or '?'} has tiles of its own: {why.reason}" for v, why in self.apart]
        return "\n".join(lines)


def tile_analysis(
    subject: Module | Function | Op | Value,
    entry: str | None = None,
    module: Module | None = None,
    sequential: bool = False,
    producers: bool = False,
) -> TileAnalysis:
    """The tiles of all that roots read: the results of a module's or function's entry, of an op, or a value.

    A root that is a fusion or call is entered: its body's values are analysed, up to the body's arguments, or with `producers`
    through them. Fusions and calls inside are entered, too. With `sequential` the index of a reduction, window or contraction is
    a dimension of the space with tiles of its own; without it such a dimension is always read whole. Tile sizes stay symbols;
    `TileAnalysis.concrete` and `TiledValue.exact` take numbers.

    Raises KeyError for an unknown entry and ValueError when no root is a tensor.

    >>> import hlo
    >>> text = '''HloModule m
    ... ENTRY e { p = f32[8,6] parameter(0) t = f32[6,8] transpose(p), dimensions={1,0} ROOT n = f32[6,8] negate(t) }'''
    >>> found = tile_analysis(hlo.parse(text))
    >>> print(found.tile(found.follow([0, 0])))
    (tid_0, tid_1)[ts_0, ts_1] ->
      offsets [tid_1 * ts_1, tid_0 * ts_0]
      sizes [ts_1, ts_0]
      strides [1, 1]
      upper bounds [min(ts_1 + tid_1 * ts_1 - 1, 7), min(ts_0 + tid_0 * ts_0 - 1, 5)]
    >>> tile = found.concrete(found.follow([0, 0]), [3, 4])
    >>> tile.sizes, str(tile.offsets)
    ((4, 3), '(pid_0) -> ((pid_0 mod 2) * 4, (pid_0 floordiv 2) * 3), domain: pid_0 in [0, 3]')
    """
    if isinstance(subject, Module):
        module = subject
        subject = subject.function(entry)
    if isinstance(subject, Function):
        values: Sequence[Value] = subject.body.results
    else:
        values = subject.results if isinstance(subject, Op) else [subject]
    walk = Walk(module, sequential, producers)
    wanted = [walk.root(v) for v in dict.fromkeys(values)]
    main = main_root(walk, wanted)
    first = walk.start(main, IndexingMap.identity(main[0].shape))
    starts: dict[int, Node] = {}
    agreement = TileConstraints()
    apart: list[tuple[Value, Declined]] = []
    for k, place in enumerate(wanted):
        found = Agreement(first.map) if place == main else root_map(walk, main, place)
        if isinstance(found, Declined):
            apart.append((place[0], found))
            continue
        agreement = agreement & found.constraints
        starts[k] = walk.start(place, found.map)
    made = {n: TiledValue(n.place[0], n.map, n.dimensions) for n in walk.nodes}
    for n in walk.nodes:
        made[n].operands = tuple(tuple(made[o] for o in maps) for maps in n.operands)
    return TileAnalysis(
        made[first],
        tuple(made[n] for n in starts.values()),
        tuple(made[n] for n in walk.nodes),
        tuple(walk.dimensions),
        agreement,
        tuple(apart),
    )


def tiled(
    subject: Module | Function | Op | Value,
    tile_sizes: Sequence[int],
    path: Sequence[int] = (),
    root: int | None = None,
) -> ConcreteTile | Declined:
    """Sizes, strides and offsets of the value reached by operand numbers `path` from a tiled fusion's root.

    `tile_sizes` are those of the (main) root's dimensions. Sizes for the first reductions or contractions may stand before them
    (a dot's [k, m, n]); the others are whole. `root` chooses among several roots. Declined where sizes break a constraint.
    Raises IndexError where the path leads nowhere and ValueError for a wrong number of sizes.

    >>> import hlo
    >>> module = hlo.parse('''HloModule m ENTRY e { p = f32[4,8] parameter(0) q = f32[8,16] parameter(1)
    ...   ROOT d = f32[4,16] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0} }''')
    >>> tile = tiled(module, [2, 2], [1])
    >>> tile.sizes, tile.strides, str(tile.offsets)
    ((8, 2), (1, 1), '(pid_0) -> (0, (pid_0 mod 8) * 2), domain: pid_0 in [0, 15]')
    >>> tile = tiled(module, [4, 2, 2], [1])
    >>> tile.sizes, str(tile.offsets)
    ((4, 2), '(pid_0)[s0] -> (s0 * 4, (pid_0 mod 8) * 2), domain: pid_0 in [0, 15], s0 in [0, 1]')
    """
    found = tile_analysis(subject, producers=True)
    extra = len(tile_sizes) - len(found.root.dimensions)
    if extra > 0:
        found = tile_analysis(subject, sequential=True, producers=True)
        sequential = found.dimensions[len(found.root.dimensions) :]
        if extra > len(sequential):
            expected = f"{len(found.root.dimensions)} to {len(found.dimensions)}"
            raise ValueError(f"expected {expected} tile sizes, found {len(tile_sizes)}")
        tile_sizes = [*tile_sizes[extra:], *tile_sizes[:extra], *(d.extent for d in sequential[extra:])]
    return found.concrete(found.follow(path, root), tile_sizes)


def reached_tiles(op: Op, operand: int = 0) -> Iterator[tuple[IndexingMap, SymbolicTile | Declined]]:
    """The other way: for a tile of an operand, the tile of the op's first result that depends on it, one for each map.

    >>> import hlo
    >>> text = "HloModule m ENTRY e { p = f32[20] parameter(0) ROOT b = f32[10,20] broadcast(p), dimensions={1} }"
    >>> for _, tile in reached_tiles(hlo.parse(text).root): print(tile.size_map)
    (d0) -> (10, d0)
    """
    for m in input_to_output(op, operand)[0]:
        yield m, symbolic_tile(m)
