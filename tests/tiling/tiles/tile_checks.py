"""What the tests of symbolic tiles share: the tile of a map against the elements that the map enumerates."""

from __future__ import annotations

import itertools
import random
from math import prod

import numpy as np

from hlo.errors import Declined
from indexing import IndexingMap
from tiling import SymbolicTile, symbolic_tile
from tiling.tiles.symbolic import exact_tile

MOST_POINTS = 20_000


def elements(m: IndexingMap, sizes: list[int], origin: list[int], runtimes: list[int]) -> np.ndarray:
    """Every index that the map has on a tile, one a row, found by evaluating it at each point."""
    axes = [np.arange(o, o + t) for o, t in zip(origin, sizes, strict=True)]
    axes += [np.arange(v.interval.lower, v.interval.upper + 1) for v in m.ranges]
    if not axes:
        grid: list[np.ndarray] = []
        shape: tuple[int, ...] = ()
    else:
        grid = list(np.meshgrid(*axes, indexing="ij"))
        shape = grid[0].shape
    dims, ranges = grid[: len(sizes)], grid[len(sizes) :]
    held = np.broadcast_to(m.holds(dims, [*ranges, *runtimes]), shape)
    columns = [np.broadcast_to(r, shape)[held].reshape(-1) for r in m.evaluate(dims, [*ranges, *runtimes])]
    return np.stack(columns, 1) if columns else np.empty((int(held.sum()), 0), int)


def check(m: IndexingMap, seed: int = 0, most: int = 40) -> tuple[SymbolicTile | Declined, int]:
    """The map's tile, and how many concrete tiles it was compared on. Sizes that break a constraint are not compared."""
    tile = symbolic_tile(m)
    if isinstance(tile, Declined):
        assert tile.reason
        return tile, 0
    generator = random.Random(seed)
    counts = [v.interval.upper + 1 for v in m.dims]
    every = [range(1, v.interval.size + 1) for v in m.dims]
    if prod(len(r) for r in every) <= 4096:
        choices = [list(c) for c in itertools.product(*every)]
    else:
        # Sizes that divide, whole dimensions and ones are what constraints ask for: they must be among the candidates.
        handy = [[t for t in r if t in (1, len(r)) or len(r) % t == 0] or [1] for r in every]
        choices = [[generator.choice(h) for h in handy] for _ in range(2000)] + [
            [generator.choice(r) for r in every] for _ in range(500)
        ]
        choices += [[1] * len(every), [len(r) for r in every]]
    choices = [c for c in choices if tile.satisfies(c)]
    assert choices, f"no tile sizes meet {tile.constraints}"
    window = prod(v.interval.size for v in m.ranges)
    choices = [c for c in choices if prod(c) * window <= MOST_POINTS]
    generator.shuffle(choices)
    compared = 0
    for sizes in choices[:most]:
        origins = [generator.randrange(-(-n // t)) * t for n, t in zip(counts, sizes, strict=True)]
        whole = all(
            v.interval.lower <= o and o + t - 1 <= v.interval.upper for v, o, t in zip(m.dims, origins, sizes, strict=True)
        )
        runtimes = [generator.randint(*v.interval) for v in m.runtimes]
        kept = [v.var for v in m.runtimes if not v.interval.is_point]
        used = {x for e in m.results for x in e.variables}
        given = [x for v, x in zip(m.runtimes, runtimes, strict=True) if v.var in kept and v.var in used]
        expected = elements(m, sizes, origins, runtimes)
        if not len(expected):
            continue
        try:
            found = tile.indices(sizes, origins, given)
        except ValueError:
            assert not whole, f"{m}: the whole tile {sizes} at {origins} is refused"
            continue
        for k, progression in enumerate(found):
            assert sorted(set(expected[:, k].tolist())) == list(progression), (
                f"{m}\n{tile}\nresult {k} of tile {sizes} at {origins}"
            )
        compared += 1
        if compared % 8 == 1:
            exact = exact_tile(m, sizes, origins, runtimes)
            assert not isinstance(exact, Declined)
            assert set(exact) == set(map(tuple, expected.tolist()))
    return tile, compared
