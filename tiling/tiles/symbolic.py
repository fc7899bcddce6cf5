"""Symbolic tiles: what a map reads for a tile of its dimensions, as offset, size and stride in terms of the tile's sizes.

    image of result k on a tile = {offset_k + j * stride_k : 0 <= j < size_k}, cut to bounds_k

d0, d1, … stand for the tile's sizes. A tile starts at a multiple of its sizes; the printed offset is that of the tile at the
origin, `offsets_at` gives that of any other. Sizes for which a result is no such progression are excluded by `constraints`.
The sets are those of each result by itself: of a map like (d0) -> (d0, d0) the tile is the square around the diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hlo.display import as_html
from hlo.errors import Declined
from indexing.exact.images import image
from indexing.exact.isl import bounded
from indexing.expr import Const, Expr, Mod, Var, evaluate, minimum, substitute
from indexing.expressions.bounds import Bounds, Interval
from indexing.map import IndexingMap, RuntimeVariable, Variable, label_of
from indexing.map_simplifier import tidy_map
from indexing.regions import Region
from tiling.tiles.constraints import TileConstraints, TooManyConjunctions
from tiling.tiles.covers import cover_of
from tiling.tiles.progressions import NoProgression, Progression, Written, progression_of

__all__ = ["SymbolicTile", "TileMap", "exact_tile", "symbolic_tile"]


@dataclass(frozen=True)
class TileMap:
    """(d0, …){rt0, …} -> (result, …) over tile sizes; `str()` is XLA's text.

    >>> d0 = Var("d0")
    >>> m = TileMap((d0,), (), (Written.of(179 - d0),))
    >>> str(m), m.evaluate([10])
    ('(d0) -> (-d0 + 179)', (169,))
    """

    dims: tuple[Var, ...]
    runtimes: tuple[Var, ...]
    written: tuple[Written, ...]

    @property
    def results(self) -> tuple[Expr, ...]:
        return tuple(w.expression for w in self.written)

    def evaluate(self, sizes: Sequence[int], runtimes: Sequence[int] = ()) -> tuple[int, ...]:
        """The results for concrete tile sizes. Raises ValueError for a wrong number of values."""
        values = dict(zip((*self.dims, *self.runtimes), (*sizes, *runtimes), strict=True))
        return tuple(int(evaluate(e, values)) for e in self.results)

    def __str__(self) -> str:
        rts = "{" + ", ".join(v.name for v in self.runtimes) + "}" if self.runtimes else ""
        return f"({', '.join(v.name for v in self.dims)}){rts} -> ({', '.join(w.text for w in self.written)})"


@dataclass(frozen=True)
class SymbolicTile:
    """The tile that a map reads; see the module's text. Made by `symbolic_tile`.

    `sizes` are the tile-size variables with the sizes that they can have, `runtimes` the runtime variables of the offsets,
    `bounds` the least and greatest index of each result that the map has at all (the upper bound that cuts a tile at an edge).
    """

    sizes: tuple[Variable, ...]
    runtimes: tuple[RuntimeVariable, ...]
    offset_map: TileMap
    size_map: TileMap
    stride_map: TileMap
    constraints: TileConstraints
    bounds: tuple[Interval, ...]
    domain: tuple[Interval, ...]  # of the map's dimensions
    starts: tuple[Expr, ...]  # where a tile begins, in the map's dimensions and runtime variables
    shifts: tuple[Expr, ...]  # and how far below that its least index lies, in tile sizes
    steps: tuple[tuple[int, int], ...] = ()  # (c, r) for each dimension of which only the indices c * y + r count
    inner: SymbolicTile | None = None  # the tile in those y
    is_exact: bool = True  # False where conditions were left out: the tile covers what is read

    def satisfies(self, tile_sizes: Sequence[int]) -> bool:
        """Whether concrete tile sizes lie in their ranges and meet the constraints."""
        self._check(tile_sizes)
        inside = all(t in v.interval for t, v in zip(tile_sizes, self.sizes, strict=True))
        return inside and self.constraints.holds({v.var: t for v, t in zip(self.sizes, tile_sizes, strict=True)})

    @property
    def tile_offsets(self) -> tuple[Expr, ...]:
        """The least index of each result on tile (t0, t1, …), in tile numbers, tile sizes and runtime variables.

        >>> from indexing import parse_map
        >>> tile = symbolic_tile(parse_map("(d0, d1) -> (d1 * 2 + 3, -d0 + 7), domain: d0 in [0, 7], d1 in [0, 9]"))
        >>> print(*tile.tile_offsets, sep=", ")
        (d1 * t1) * 2 + 3, -d0 - d0 * t0 + 8
        """
        origin: dict[Var, Expr | int] = {v.var: Var(f"t{k}") * v.var for k, v in enumerate(self.sizes)}
        return tuple(substitute(a, origin) + b for a, b in zip(self.starts, self.shifts, strict=True))

    @property
    def tile_upper_bounds(self) -> tuple[Expr, ...]:
        """The greatest index of each result on tile (t0, t1, …): offset + (size - 1) * stride, cut to what there is."""
        parts = zip(self.tile_offsets, self.size_map.results, self.stride_map.results, self.bounds, strict=True)
        return tuple(minimum(o + (n - 1) * s, b.upper) for o, n, s, b in parts)

    def offsets_at(self, tile_sizes: Sequence[int], origin: Sequence[int], runtimes: Sequence[int] = ()) -> tuple[int, ...]:
        """The least index of each result on the tile that starts at `origin`."""
        self._check(tile_sizes)
        names = [v.var for v in self.sizes]
        known = dict(zip((*names, *(v.var for v in self.runtimes)), (*origin, *runtimes), strict=True))
        sizes = dict(zip(names, tile_sizes, strict=True))
        pairs = zip(self.starts, self.shifts, strict=True)
        return tuple(int(evaluate(a, known)) + int(evaluate(b, sizes)) for a, b in pairs)

    def indices(self, tile_sizes: Sequence[int], origin: Sequence[int], runtimes: Sequence[int] = ()) -> tuple[range, ...]:
        """The indices of each result on a tile, cut to what there is.

        A tile may reach over the border of the map's domain in dimensions that are nowhere divided. Raises ValueError for
        other tiles there, and for sizes that break a constraint; `exact_tile` answers for those.
        """
        if self.inner is not None and self.satisfies(tile_sizes):
            begin = [-(-(o - r) // c) for o, (c, r) in zip(origin, self.steps, strict=True)]
            end = [(o + t - 1 - r) // c for o, t, (c, r) in zip(origin, tile_sizes, self.steps, strict=True)]
            return self.inner.indices([b - a + 1 for a, b in zip(begin, end, strict=True)], begin, runtimes)
        tile_sizes, origin = self._inside(tile_sizes, origin)
        if not self.satisfies(tile_sizes):
            raise ValueError(f"tile sizes {list(tile_sizes)} do not meet {self.constraints}")
        numbers = [0] * len(self.runtimes)
        sizes, strides = self.size_map.evaluate(tile_sizes, numbers), self.stride_map.evaluate(tile_sizes, numbers)
        found = []
        for o, n, s, b in zip(self.offsets_at(tile_sizes, origin, runtimes), sizes, strides, self.bounds, strict=True):
            step = s if s > 0 and n > 1 else 1
            below = max(0, -(-(b.lower - o) // step))
            last = min(o + (n - 1) * step, b.upper)
            found.append(range(o + below * step, last + 1, step))
        return tuple(found)

    @property
    def divided(self) -> frozenset[Var]:
        """The dimensions that are divided somewhere: their sizes do not shrink at an edge."""
        return frozenset(v for e in self.starts for a, _ in e.terms if not isinstance(a, Var) for v in a.variables)

    def _inside(self, tile_sizes: Sequence[int], origin: Sequence[int]) -> tuple[list[int], list[int]]:
        self._check(tile_sizes)
        sizes, begin = list(tile_sizes), list(origin)
        for k, (v, b) in enumerate(zip(self.sizes, self.domain, strict=True)):
            first, last = max(origin[k], b.lower), min(origin[k] + tile_sizes[k] - 1, b.upper)
            if (first, last - first + 1) == (origin[k], tile_sizes[k]):
                continue
            if v.var in self.divided or first > last:
                raise ValueError(f"the tile of {tile_sizes[k]} at {v.var} = {origin[k]} is not inside {b}")
            begin[k], sizes[k] = first, last - first + 1
        return sizes, begin

    def _check(self, tile_sizes: Sequence[int]) -> None:
        if len(tile_sizes) != len(self.sizes):
            raise ValueError(f"expected {len(self.sizes)} tile sizes, found {len(tile_sizes)}")

    def __repr__(self) -> str:
        return f"<SymbolicTile offset {self.offset_map}, size {self.size_map}, stride {self.stride_map}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        lines = ["Symbolic tile with", f"  offset_map: {self.offset_map}", f"  size_map: {self.size_map}"]
        lines.append(f"  stride_map: {self.stride_map}")
        if self.runtimes:
            lines.append("  rt_vars:")
            lines += [f"    {v.var} in {v.interval}," for v in self.runtimes]
        if not self.constraints.is_always_met:
            lines += ["  constraints:", f"    {self.constraints}"]
        return "\n".join(lines)

    def to_document(self) -> str:
        """The text with what produces each runtime variable, and the bounds that cut a tile at an edge."""
        lines = [str(self)]
        dims = ", ".join(v.var.name for v in self.sizes)
        for rt in self.runtimes:
            element = ", ".join(map(str, rt.element))
            lines.append(f"  {rt.var}: {rt.label or label_of(rt.producer) or 'given'} at ({dims}) -> ({element})")
        lines.append("  bounds: " + ", ".join(map(str, self.bounds)))
        return "\n".join(lines)


def symbolic_tile(m: IndexingMap, cover: bool = False) -> SymbolicTile | Declined:
    """The tile {offset + j * stride} that `m` reads, with d0, d1, … as tile sizes in [1, n]; or why there is none.

    Every map can be asked: those of ops in either direction, compositions, maps from text. Declined: an empty or unknown
    map, conditions that are not bounds of a result, and results that are no progression for any tile size. With `cover`
    such conditions are left out and such results have the interval that they lie in: the tile, not `is_exact` then, holds what
    is read and may hold more.

    >>> from indexing import parse_map
    >>> print(symbolic_tile(parse_map("(d0)[s0] -> (s0, d0 * 2 + 40), domain: d0 in [0, 9], s0 in [0, 124]")))
    Symbolic tile with
      offset_map: (d0) -> (0, 40)
      size_map: (d0) -> (125, d0)
      stride_map: (d0) -> (1, 2)
    """
    if m.unknown is not None:
        return m.unknown
    m = tidy_map(m)
    if m.is_known_empty or any(b.is_empty for b in m.variable_ranges.values()):
        return Declined("the map has no elements")
    whole = _without_points(m).renumbered()
    m, steps = _without_steps(whole)
    if m.is_known_empty:
        return Declined("the map has no elements")
    bounds, tied = _bounds(m)
    if tied is not None and not cover:
        return tied
    dims = {v.var: v.interval for v in m.dims}
    ranges = {v.var: v.interval for v in m.ranges}
    found: list[Progression] = []
    constraints = TileConstraints()
    sizes = tuple(Variable(v.var, Interval(1, v.interval.size)) for v in m.dims)
    limits = {v.var: v.interval for v in sizes}
    results = list(m.results)
    for k, e in enumerate(m.results):
        try:
            p = progression_of(e, dims, ranges)
            both = (constraints & p.constraints.simplify(limits)).simplify(limits)
            why = f"result {k}, {e}, is no progression for any tile sizes that suit the results before it"
            refused = Declined(why) if both.is_never_met else None
        except NoProgression as reason:
            refused = Declined(f"result {k}, {e}: {reason}")
        except TooManyConjunctions as reason:
            refused = Declined(f"the constraints on tile sizes have too many alternatives: {reason}")
        if refused is None:
            constraints = both
        elif cover:
            c = cover_of(e, {v: (v, v - 1) for v in dims}, ranges, m.variable_ranges)
            size = c.span + 1
            p = Progression(Written.of(size), Written.of(1), c.shift, TileConstraints(), 1, bounds[k].size)
            results[k], tied = c.start, refused
        else:
            return refused
        found.append(p)
    tile = replace(_tile(replace(m, results=tuple(results)), sizes, found, constraints, bounds), is_exact=tied is None)
    return _with_steps(tile, whole, steps) if steps else tile


def _without_points(m: IndexingMap) -> IndexingMap:
    """The map with range and runtime variables of a single value replaced by it."""
    points: dict[Var, Expr | int] = {v: b.lower for v, b in m.variable_ranges.items() if b.is_point and v in m.symbols}
    if not points:
        return m
    return replace(
        m,
        results=tuple([substitute(e, points) for e in m.results]),
        ranges=tuple([v for v in m.ranges if v.var not in points]),
        runtimes=tuple(
            [v._replace(element=tuple([substitute(e, points) for e in v.element])) for v in m.runtimes if v.var not in points]
        ),
        constraints=tuple([c._replace(expression=substitute(c.expression, points)) for c in m.constraints]),
    )


def _without_steps(m: IndexingMap) -> tuple[IndexingMap, dict[Var, tuple[int, int]]]:
    """The map over every c-th index of a dimension where a condition leaves only those: x = c * y + r, y written as x.

    A slice's outputs, and what a pad puts between: (x - r) mod c in [0, 0]. Returns the (c, r) of each such dimension.
    """
    dims = {v.var: v.interval for v in (*m.dims, *m.ranges)}
    sized = {v.var for v in m.dims}
    steps: dict[Var, tuple[int, int]] = {}
    replaced: dict[Var, Expr | int] = {}
    for e, b in m.constraints:
        if not isinstance(e, Mod) or not isinstance(e.divisor, int) or not b.is_point or len(e.numerator.terms) != 1:
            continue
        (x, k), c = e.numerator.terms[0], e.divisor
        if not isinstance(x, Var) or x not in dims or x in replaced or k not in (1, -1):
            continue
        r = k * (b.lower - e.numerator.constant) % c
        low, high = dims[x]
        dims[x] = Interval(-(-(low - r) // c), (high - r) // c)
        replaced[x] = x * c + r
        if x in sized:  # of a range variable every value counts, however it is numbered
            steps[x] = (c, r)
    if not replaced:
        return m, steps
    constraints = [c._replace(expression=substitute(c.expression, replaced)) for c in m.constraints]
    return (
        tidy_map(
            replace(
                m,
                dims=tuple([Variable(v.var, dims[v.var]) for v in m.dims]),
                ranges=tuple([Variable(v.var, dims[v.var]) for v in m.ranges]),
                results=tuple([substitute(e, replaced) for e in m.results]),
                constraints=tuple([c for c in constraints if c.expression.terms]),
            )
        ),
        steps,
    )


def _with_steps(tile: SymbolicTile, whole: IndexingMap, steps: dict[Var, tuple[int, int]]) -> SymbolicTile:
    """The tile in sizes of the whole dimensions: multiples of the step, of which every c-th index counts."""
    smaller: dict[Var, Expr | int] = {v: v // c for v, (c, _) in steps.items()}

    def in_whole(t: TileMap) -> TileMap:
        return replace(
            t,
            written=tuple([w if (e := substitute(w.expression, smaller)) is w.expression else Written.of(e) for w in t.written]),
        )

    sizes = tuple([Variable(v.var, Interval(1, v.interval.size)) for v in whole.dims])
    multiples = TileConstraints.of({v % c: Interval(0, 0) for v, (c, _) in steps.items()})
    kept = [tuple((substitute(e, smaller), b) for e, b in c) for c in tile.constraints.alternatives]
    constraints = TileConstraints(()) if kept else TileConstraints()
    for c in kept:
        constraints = constraints | TileConstraints.of(dict(c))
    return replace(
        tile,
        sizes=sizes,
        offset_map=in_whole(tile.offset_map),
        size_map=in_whole(tile.size_map),
        stride_map=in_whole(tile.stride_map),
        constraints=(constraints & multiples).simplify({v.var: v.interval for v in sizes}),
        domain=tuple([v.interval for v in whole.dims]),
        starts=tuple([substitute(e, smaller) for e in tile.starts]),
        shifts=tuple([substitute(e, smaller) for e in tile.shifts]),
        steps=tuple([steps.get(v.var, (1, 0)) for v in whole.dims]),
        inner=tile,
    )


def _tile(
    m: IndexingMap,
    sizes: tuple[Variable, ...],
    found: Sequence[Progression],
    constraints: TileConstraints,
    bounds: tuple[Interval, ...],
) -> SymbolicTile:
    first: dict[Var, Expr | int] = {v.var: v.interval.lower for v in m.ranges}
    starts = [substitute(e, first) for e in m.results]
    used = {x for e in starts for x in e.variables}
    runtimes = [v for v in m.runtimes if v.var in used]
    names: dict[Var, Expr | int] = {v.var: Var(f"rt{i}") for i, v in enumerate(runtimes)}
    starts = [substitute(e, names) for e in starts]
    zero: dict[Var, Expr | int] = {v.var: 0 for v in m.dims}
    rts = tuple([v._replace(var=Var(f"rt{i}")) for i, v in enumerate(runtimes)])
    variables, symbols = tuple(v.var for v in sizes), tuple(v.var for v in rts)
    offsets = tuple(_offset(substitute(s, zero), p) for s, p in zip(starts, found, strict=True))
    return SymbolicTile(
        sizes,
        rts,
        TileMap(variables, symbols, offsets),
        TileMap(variables, symbols, tuple(p.size for p in found)),
        TileMap(variables, symbols, tuple(p.stride for p in found)),
        constraints,
        bounds,
        tuple(v.interval for v in m.dims),
        tuple(starts),
        tuple(p.shift for p in found),
    )


def _offset(origin: Expr, p: Progression) -> Written:
    total = origin + p.shift
    mirrored = p.shift.terms and p.stride.expression is Const(1) and p.shift is 1 - p.size.expression
    if not mirrored or not isinstance(origin, Const):
        return Written.of(total)
    c = origin.value + 1
    return Written(total, f"-{p.size.operand()}" + (f" + {c}" if c > 0 else f" - {-c}" if c < 0 else ""))


def _bounds(m: IndexingMap) -> tuple[tuple[Interval, ...], Declined | None]:
    """What the results can be: their ranges, narrowed by constraints that say nothing else than where a result lies.

    The second is a constraint that says something else, in words.
    """
    tied: Declined | None = None
    known = Bounds(m.variable_ranges)
    bounds = [known(e) for e in m.results]
    for e, span in m.constraints:
        moving = {v for v in e.variables if v.name[0] != "r"}
        concerned = [k for k, r in enumerate(m.results) if any(v in moving for v in r.variables)]
        factor = _factor(m.results[concerned[0]], e) if len(concerned) == 1 else None
        if factor is None:
            tied = Declined(f"the condition {e} in {span} is no bound of a result")
            continue
        k = concerned[0]
        shift = m.results[k].constant - factor * e.constant
        ends = (factor * span.lower + shift, factor * span.upper + shift)
        bounds[k] = bounds[k].intersect(Interval(min(ends), max(ends)))
    return tuple(bounds), tied


def _factor(result: Expr, e: Expr) -> int | None:
    """The integer f with result = f * e + a number."""
    if not e.terms or len(e.terms) != len(result.terms):
        return None
    other = dict(result.terms)
    factors = {other.get(atom, 0) / k for atom, k in e.terms}
    (f, *more) = factors
    return int(f) if not more and f == int(f) and f else None


def exact_tile(
    m: IndexingMap, tile_sizes: Sequence[int], origin: Sequence[int] | None = None, runtimes: Sequence[int] | None = None
) -> Region | Declined:
    """{m(d, s) : origin <= d < origin + tile_sizes}, exactly, for concrete sizes; the tile at the first index by default.

    Where a symbolic tile is declined, or its constraints are not met, this is the set that is read. `runtimes` fixes the
    runtime variables; without it each counts with every value. Declined when isl does not decide within its budget.
    Raises ValueError for a wrong number of sizes and for an unknown map.

    >>> from indexing import parse_map
    >>> m = parse_map("(d0) -> (d0 floordiv 6, d0 mod 6), domain: d0 in [0, 47]")
    >>> print(exact_tile(m, [4], [4]))
    {(0, [4, 5]), (1, [0, 1])}
    """
    if origin is None:
        origin = [v.interval.lower for v in m.dims]
    if len(tile_sizes) != len(m.dims) or len(origin) != len(m.dims):
        raise ValueError(f"expected {len(m.dims)} tile sizes and as many origins, found {len(tile_sizes)} and {len(origin)}")
    if runtimes is not None:
        fixed = [v._replace(interval=Interval(x, x)) for v, x in zip(m.runtimes, runtimes, strict=True)]
        m = replace(m, runtimes=tuple(fixed))
    box = Region.box([Interval(o, o + t - 1) for o, t in zip(origin, tile_sizes, strict=True)])
    answer: Any = bounded(lambda: image(m, box))
    return answer  # type: ignore[no-any-return]
