"""Tiling spaces, and tiles as functions of tile numbers and tile sizes.

    space = parallel dimensions (a root's index) x sequential dimensions (what a reduction or contraction runs over)
    tile k of a dimension = [tid_k * ts_k, tid_k * ts_k + ts_k - 1], cut to the dimension
    tile of a tensor      = {offset + j * stride : 0 <= j < size}, cut to bounds, each in tid, ts and runtime values rt

Runtime dimensions have one value each, known when the program runs: where a slice begins, which row a gather takes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlo.display import as_html
from hlo.module import Value
from indexing.expr import Expr, Interval, Var, evaluate, minimum, substitute
from indexing.map import RuntimeVariable, label_of
from tiling.tiles.constraints import TileConstraints
from tiling.tiles.symbolic import SymbolicTile

__all__ = ["DimensionKind", "Runtimes", "SpaceDimension", "Tile", "TilingSpace", "tile_in_space"]


class DimensionKind(enum.Enum):
    """Whether the tiles of a dimension may be computed in any order, or add up one after the other."""

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True, eq=False)
class SpaceDimension:
    """A dimension of a tiling space: dimension `axis` of a root, or range variable `axis` of the op that makes `value`."""

    number: int
    kind: DimensionKind
    extent: int
    value: Value
    axis: int

    @property
    def tile_id(self) -> Var:
        return Var(f"tid_{self.number}")

    @property
    def tile_size(self) -> Var:
        return Var(f"ts_{self.number}")

    def __repr__(self) -> str:
        return f"<SpaceDimension {self}>"

    def __str__(self) -> str:
        what = "dimension" if self.kind is DimensionKind.PARALLEL else "summed or folded index"
        return f"{self.tile_id}: {self.kind.value}, {self.extent} = {what} {self.axis} of %{self.value.name or '?'}"


@dataclass(frozen=True, eq=False)
class TilingSpace:
    """The dimensions that the tiles of a fusion are numbered in, parallel ones first, and the runtime values that they need."""

    dimensions: tuple[SpaceDimension, ...]
    runtimes: tuple[RuntimeVariable, ...] = ()

    @property
    def parallel(self) -> tuple[SpaceDimension, ...]:
        return tuple(d for d in self.dimensions if d.kind is DimensionKind.PARALLEL)

    @property
    def sequential(self) -> tuple[SpaceDimension, ...]:
        return tuple(d for d in self.dimensions if d.kind is DimensionKind.SEQUENTIAL)

    def counts(self, tile_sizes: Sequence[int]) -> tuple[int, ...]:
        """How many tiles there are along each dimension. Raises ValueError for a wrong number of sizes or a size below 1."""
        if len(tile_sizes) != len(self.dimensions) or any(t < 1 for t in tile_sizes):
            raise ValueError(f"expected {len(self.dimensions)} positive tile sizes, found {list(tile_sizes)}")
        return tuple(-(-d.extent // t) for d, t in zip(self.dimensions, tile_sizes, strict=True))

    def __repr__(self) -> str:
        return f"<TilingSpace {'; '.join(str(self).splitlines())}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        lines = [str(d) for d in self.dimensions]
        for v in self.runtimes:
            element = f"[{', '.join(map(str, v.element))}]" if v.element else ""
            name = f"%{v.producer.name or '?'}" if v.producer is not None else v.label or "given"
            lines.append(f"{v.var}: runtime, in {v.interval} = {name}{element}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Tile:
    """The part of a tensor that belongs to one point of a tiling space; see the module's text. Made by a tile analysis.

    At the edge of a dimension its last tile is cut: there ts stands for min(ts, extent - tid * ts) in sizes and strides. The
    last tile of one of the `divided` dimensions, given by number, may cover more than is read instead. `bounds` are the least
    and greatest index of each dimension that is read at all. `is_exact` is False where a tile covers more than is read, because
    conditions tie several dimensions together or an index runs through no progression.
    """

    dimensions: tuple[SpaceDimension, ...]
    runtimes: tuple[RuntimeVariable, ...]
    offsets: tuple[Expr, ...]
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    bounds: tuple[Interval, ...]
    constraints: TileConstraints
    is_exact: bool = True
    divided: frozenset[int] = frozenset()
    _parts: tuple[
        tuple[Expr, Expr], ...
    ] = ()  # offsets again: where a tile begins, and how far below that its least index is

    @property
    def upper_bounds(self) -> tuple[Expr, ...]:
        """The greatest index along each dimension: offset + (size - 1) * stride, cut to what there is."""
        parts = zip(self.offsets, self.sizes, self.strides, self.bounds, strict=True)
        return tuple(minimum(o + (n - 1) * s, b.upper) for o, n, s, b in parts)

    def indices(self, ids: Sequence[int], sizes: Sequence[int], runtimes: Sequence[int] = ()) -> tuple[range, ...]:
        """The indices along each dimension for tile numbers and sizes of all of the space's dimensions, by their numbers.

        `runtimes` are the values of the tile's runtime variables. Raises ValueError for sizes that break a constraint.
        """
        values: dict[Var, int] = {}
        cut: dict[Var, int] = {}
        for d in self.dimensions:
            number, size = ids[d.number], sizes[d.number]
            values |= {d.tile_id: number, d.tile_size: size}
            cut[d.tile_size] = size if d.number in self.divided else min(size, d.extent - number * size)
        if not self.constraints.holds(values):
            raise ValueError(f"tile sizes {list(sizes)} do not meet {self.constraints}")
        values |= dict(zip((v.var for v in self.runtimes), runtimes, strict=True))
        inside = values | cut
        found = []
        for (begin, shift), n, s, b in zip(self._parts, self.sizes, self.strides, self.bounds, strict=True):
            first = int(evaluate(begin, values)) + int(evaluate(shift, inside))
            size, stride = int(evaluate(n, inside)), int(evaluate(s, inside))
            step = stride if stride > 0 and size > 1 else 1
            below = max(0, -(-(b.lower - first) // step))
            found.append(range(first + below * step, min(first + (size - 1) * step, b.upper) + 1, step))
        return tuple(found)

    def __repr__(self) -> str:
        return f"<Tile {' '.join(str(self).split())}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        dims = ", ".join(d.tile_id.name for d in self.dimensions)
        sizes = ", ".join(d.tile_size.name for d in self.dimensions)
        rts = "{" + ", ".join(v.var.name for v in self.runtimes) + "}" if self.runtimes else ""
        lines = [f"({dims})[{sizes}]{rts} ->"]
        for name in ("offsets", "sizes", "strides"):
            lines.append(f"  {name} [{', '.join(map(str, getattr(self, name)))}]")
        lines.append(f"  upper bounds [{', '.join(map(str, self.upper_bounds))}]")
        if not self.constraints.is_always_met:
            lines.append(f"  where {self.constraints}")
        if not self.is_exact:
            lines.append("  covers what is read")
        return "\n".join(lines)


class Runtimes:
    """Numbers runtime variables of a space: the same element of the same producer is one variable."""

    def __init__(self) -> None:
        self.found: dict[tuple[Any, ...], RuntimeVariable] = {}

    def of(self, v: RuntimeVariable, names: Mapping[Var, Expr | int]) -> RuntimeVariable:
        element = tuple(substitute(e, names) for e in v.element)
        key = (v.producer, v.interval, element, v.label)
        if key not in self.found:
            made = v._replace(
                var=Var(f"rt_{len(self.found)}"), element=element, label=v.label or label_of(v.producer)
            )
            self.found[key] = made
        return self.found[key]


def tile_in_space(tile: SymbolicTile, dimensions: Sequence[SpaceDimension], runtimes: Runtimes) -> Tile:
    """A symbolic tile whose k-th tile size belongs to the k-th of `dimensions`, in the space's tile numbers and sizes."""
    sizes: dict[Var, Expr | int] = {}
    origin: dict[Var, Expr | int] = {}
    numbers: dict[Var, Expr | int] = {}
    index: dict[Var, Expr | int] = {}
    for k, (v, d) in enumerate(zip(tile.sizes, dimensions, strict=True)):
        sizes[v.var] = d.tile_size
        origin[v.var] = d.tile_id * d.tile_size
        numbers |= {v.var: d.tile_size, Var(f"t{k}"): d.tile_id}
        index[v.var] = Var(f"i_{d.number}")
    rts = [runtimes.of(v, index) for v in tile.runtimes]
    values: dict[Var, Expr | int] = {v.var: new.var for v, new in zip(tile.runtimes, rts, strict=True)}
    renamed: Callable[[Expr], Expr] = lambda e: substitute(e, {**numbers, **values})  # noqa: E731
    alternatives = [TileConstraints.of({renamed(e): b for e, b in c}) for c in tile.constraints.alternatives]
    constraints = TileConstraints(())
    for c in alternatives:
        constraints = constraints | c
    return Tile(
        tuple(dimensions),
        tuple(rts),
        tuple(map(renamed, tile.tile_offsets)),
        tuple(map(renamed, tile.size_map.results)),
        tuple(map(renamed, tile.stride_map.results)),
        tile.bounds,
        constraints,
        tile.is_exact,
        frozenset(d.number for v, d in zip(tile.sizes, dimensions, strict=True) if v.var in tile.divided),
        tuple(
            (substitute(substitute(a, origin), values), substitute(b, sizes))
            for a, b in zip(tile.starts, tile.shifts, strict=True)
        ),
    )
