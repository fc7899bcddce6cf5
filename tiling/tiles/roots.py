"""Several roots in one tiling space: the map from the main root's index to another root's, and when their tiles agree.

    tiles agree <=> every tile of the space holds its own elements of the other root, each element in one tile

Along such a map every element belongs to one index in the dimensions that the map uses (a folded row belongs to its sum); a
dimension that it does not use has to be one whole tile, or the other root would be computed once for each of its tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from hlo.errors import Declined
from hlo.module import Value
from hlo.types import TensorType
from indexing.exact.inverse import invert
from indexing.exact.isl import bounded, relation, set_of_boxes
from indexing.expr import Interval, Var
from indexing.map import IndexingMap, compose
from indexing.map_simplifier import tidy_map
from indexing.regions import Region
from tiling.tiles.constraints import TileConstraints
from tiling.tiles.reads_of_fusion import Place, Walk, reachable
from tiling.tiles.space import DimensionKind

__all__ = ["Agreement", "main_root", "root_map"]

PAIRS = 64
"""So many values that two roots share are tried as the way from one to the other."""


@dataclass(frozen=True)
class Agreement:
    """The map to a root, and what the tile sizes have to meet for the tiles to agree."""

    map: IndexingMap
    constraints: TileConstraints = field(default_factory=TileConstraints)


def main_root(walk: Walk, roots: Sequence[Place]) -> Place:
    """The root that no other one depends on, the largest of them. Raises ValueError when no root is a tensor."""
    tensors = [r for r in roots if isinstance(r[0].type, TensorType) and r[0].type.is_static]
    if not tensors:
        raise ValueError("no root is a tensor of known shape")
    if len(tensors) == 1:
        return tensors[0]
    below = [reachable(walk, r) - {r} for r in tensors]
    last = [r for r in tensors if not any(r in b for b in below)]
    return max(last or tensors, key=lambda r: prod(r[0].shape))


def root_map(walk: Walk, main: Place, other: Place) -> Agreement | Declined:
    """The way from the main root's index to another root's, or why their tiles do not agree.

    It is the map along which the main root reads the other one; or leads through a value that both read; or is the identity,
    where the shapes are the same.
    """
    if not isinstance(other[0].type, TensorType) or not other[0].type.is_static:
        return Declined(f"%{other[0].name or '?'} is no tensor of known shape")
    reasons: list[str] = []
    for node in walk.known.get(other, ()):
        plain = all(d.kind is DimensionKind.PARALLEL for d in node.dimensions)
        found = agreement(node.map, other[0]) if plain else Declined("it is read in a loop of a reduction")
        if isinstance(found, Agreement):
            return found
        reasons.append(found.reason)
    if reasons:
        return Declined(f"%{main[0].name or '?'} reads it, but {'; '.join(dict.fromkeys(reasons))}")
    theirs = Walk(walk.module, False, walk.producers)
    theirs.frames = walk.frames
    theirs.start(other, IndexingMap.identity(other[0].shape))
    tried = 0
    for place, nodes in walk.known.items():
        for mine in nodes:
            for their in theirs.known.get(place, ()):
                if tried >= PAIRS or mine.map.unknown is not None or their.map.unknown is not None:
                    continue
                tried += 1
                if any(d.kind is not DimensionKind.PARALLEL for d in mine.dimensions):
                    continue
                way = tidy_map(compose(mine.map, invert(their.map, place[0].shape))).remove_unused()
                found = agreement(way, other[0])
                if isinstance(found, Agreement):
                    return found
                reasons.append(found.reason)
    if main[0].shape == other[0].shape:
        return Agreement(IndexingMap.identity(main[0].shape))
    shapes = f"{list(main[0].shape)} and {list(other[0].shape)}"
    if not reasons:
        return Declined(f"the roots have shapes {shapes} and read nothing in common")
    return Declined(f"the roots have shapes {shapes} and what they both read gives no map between them: {reasons[0]}")


def agreement(m: IndexingMap, target: Value) -> Agreement | Declined:
    """Whether a map to a root's index gives each tile its own elements of the root, and for what tile sizes."""
    if m.unknown is not None:
        return m.unknown
    if m.runtimes:
        return Declined("which element belongs to an index of the main root is known at run time only")
    used: set[Var] = {v for e in (*m.results, *(c.expression for c in m.constraints)) for v in e.variables}
    whole = [v for v in m.dims if v.var not in used and v.interval.size > 1]
    constraints = TileConstraints.of({v.var: Interval(v.interval.size, v.interval.size) for v in whole})
    spans = [m.variable_ranges.get(e) if isinstance(e, Var) else None for e in m.results]
    wanted = [Interval(0, n - 1) for n in target.shape]
    plain = [s == w or (w.upper == 0 and e.is_constant) for s, e, w in zip(spans, m.results, wanted, strict=True)]
    names = [e for e in m.results if isinstance(e, Var)]
    if all(plain) and not m.constraints and not m.ranges and len(set(names)) == len(names):
        return Agreement(m, constraints)
    reason = _unequal(m, used, target)
    return Agreement(m, constraints) if reason is None else Declined(reason)


def _unequal(m: IndexingMap, used: set[Var], target: Value) -> str | None:
    """Why a map is not one to one onto the target's index space, with a witness; None when it is."""
    narrow = IndexingMap(tuple(v for v in m.dims if v.var in used), m.results, m.ranges, constraints=m.constraints)

    def asked() -> str:
        r = relation(narrow)
        missing = set_of_boxes(target.rank, [[(0, n - 1, 1) for n in target.shape]]).subtract(r.range())
        if not missing.is_empty():
            return f"not every element is reached, for one {next(iter(Region.of_isl(missing)))}"
        if not r.is_injective():
            return "an element belongs to several indices of the main root"
        return ""

    answer = bounded(asked)
    return answer.reason if isinstance(answer, Declined) else answer or None
