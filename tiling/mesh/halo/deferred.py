"""Views along what is spread wait until they are read: then each process gets what its tile of them lacks.

    p = pad(u);  a = p[:-2];  b = p[2:]       with rows of u spread: nothing moves for p, one row each for a and b

Slices of one value that several ops read are brought together where that is cheaper (`_Family`): a box that holds all of them, of
which each is a part. So a stencil of nine points sends four pieces, with the corners, and one of five points four without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hlo.module import Op, Value
from hlo.types import TensorType
from tiling.mesh.emit import Emitter, resized
from tiling.mesh.halo.pieces import brought, permuted_once, pieces_of, pieces_seconds
from tiling.mesh.halo.views import View, view_by, whole
from tiling.mesh.moves import moves_between, moves_cost
from tiling.mesh.network import Network
from tiling.mesh.regions import Held
from tiling.mesh.relations import Window, block_size
from tiling.mesh.shardings import Sharding

__all__ = ["Deferred"]

_MOST_TOGETHER = 32  # slices that are weighed against each other
Box = tuple[tuple[int, int], ...]
"""For each dimension the first element of a slice, and how far behind its own end the box goes."""


class Around(Protocol):
    """The way through the block (`tiling.mesh.walk`)."""

    emit: Emitter
    held: dict[Value, Held]

    def at(self, v: Value, s: Sharding, reason: str) -> Value:
        """A value in a sharding."""
        ...


@dataclass
class Deferred:
    """The views of one block that wait, and how each is brought to where it is read."""

    walk: Around
    network: Network
    views: dict[Value, View] = field(default_factory=dict)
    slices: dict[Value, list[Op]] = field(default_factory=dict)
    reshaped: dict[Value, tuple[Op, Value]] = field(default_factory=dict)  # of a view, with other dimensions of one element
    _boxes: dict[tuple[Value, tuple[int, ...], Sharding], dict[Op, Box]] = field(default_factory=dict)
    _made: dict[tuple[Value, Box, tuple[int, ...], Sharding], Value] = field(default_factory=dict)

    def note(self, ops: Iterable[Op]) -> None:
        """The ops of the block: slices of one value are brought together."""
        for op in ops:
            if op.name == "stablehlo.slice" and set(op.attr("strides")) <= {1}:
                self.slices.setdefault(op.operands[0], []).append(op)

    # ------------------------------------------------------------ what waits

    def view(self, v: Value) -> View | None:
        """A value as a view; None for one that nobody holds."""
        if v in self.views:
            return self.views[v]
        held = self.walk.held.get(v)
        return whole(v) if held is not None and not held.is_manual and isinstance(v.type, TensorType) else None

    def defers(self, op: Op) -> bool:
        """Notes the result of an op that only says where elements are, along something spread; else False."""
        if len(op.results) != 1 or not op.operands:
            return False
        if self._reshapes(op):
            return True
        operands = op.operands if op.name == "stablehlo.concatenate" else op.operands[:1]
        views = [self.view(v) for v in operands]
        given = [v for v in views if v is not None]
        if len(given) != len(views):
            return False
        made = view_by(op, given)
        if made is None or 0 in made.shape:
            return False
        s = self.walk.held[made.base].sharding
        if not any(digits and made.changes(k) for k, digits in enumerate(s.dims)) and not any(v in self.views for v in operands):
            return False
        self.views[op.results[0]] = made
        return True

    def _reshapes(self, op: Op) -> bool:
        """Whether an op gives a view other dimensions of one element; one that gives the same shape back is the view again."""
        v = op.operands[0]
        root = self.reshaped[v][1] if v in self.reshaped else v
        if root not in self.views or not _keeps_order(op):
            return False
        if op.results[0].type == root.type:
            self.views[op.results[0]] = self.views[root]
        else:
            self.reshaped[op.results[0]] = op, root
        return True

    def sharding(self, v: Value) -> Sharding:
        """How a view is spread: as its base."""
        return self.walk.held[self.views[v].base].sharding

    # ------------------------------------------------------------ what it takes

    def seconds(self, v: Value, s: Sharding) -> float:
        """What it takes to bring a view to a sharding."""
        own = self.sharding(v)
        direct = self._direct_seconds(v, s)
        return direct if s == own else min(direct, self._by_moves_seconds(v, s))

    def _direct_seconds(self, v: Value, s: Sharding) -> float:
        view = self.views[v]
        base = view.base
        moves = moves_between(self.walk.held[base].sharding, s, base.tensor.static_shape)
        return moves_cost(moves, base.tensor, self.network) + self._brought_seconds(view, s, v.shape, _own_box(v))

    def _by_moves_seconds(self, v: Value, s: Sharding) -> float:
        own = self.sharding(v)
        moved = moves_cost(moves_between(own, s, v.tensor.static_shape), v.tensor, self.network)
        return moved + self._brought_seconds(self.views[v], own, v.shape, _own_box(v))

    def _brought_seconds(self, view: View, s: Sharding, shape: Sequence[int], box: Box) -> float:
        seconds, t = 0.0, s.local_type(view.base.tensor)
        for k in _order(view, s, shape, box):
            length = s.local_shape(shape)[k] + box[k][1]
            if s.dims[k] and self._moves_along(view, s, shape, box, k):
                pieces = pieces_of(view.dims[k], view.base.shape[k], s.dims[k], _window(s, shape, box, k))
                row_bytes = t.size_bytes // max(1, t.static_shape[k])
                seconds += pieces_seconds(pieces, s.parts(k), row_bytes, self.network)
            t = resized(t, k, length)
        return seconds

    def _moves_along(self, view: View, s: Sharding, shape: Sequence[int], box: Box, k: int) -> bool:
        return view.changes(k) or box[k] != (0, 0) or shape[k] != view.base.shape[k]

    # ------------------------------------------------------------ bringing

    def at(self, v: Value, s: Sharding, reason: str) -> Value:
        """A view in a sharding: of its base in that sharding, or brought as the base is spread and moved then."""
        own = self.sharding(v)
        if s != own and self._by_moves_seconds(v, s) < self._direct_seconds(v, s):
            made = self.walk.at(v, own, reason)
            return self.walk.emit.moved(made, v.tensor, moves_between(own, s, v.tensor.static_shape), reason)
        op = v.op
        assert op is not None
        box = self._together(op, s) if op.name == "stablehlo.slice" and self.view(op.operands[0]) else _own_box(v)
        if box == _own_box(v):
            return self._brought(self.views[v], s, v.shape, box, reason)
        source = self.view(op.operands[0])
        assert source is not None
        key = (op.operands[0], box, tuple(v.shape), s)
        if key not in self._made:
            self._made[key] = self._brought(source, s, v.shape, box, reason)
        made = self._made[key]
        sizes = s.local_shape(v.shape)
        for k, (first, n) in enumerate(zip(op.attr("start_indices"), sizes, strict=True)):
            made = self.walk.emit.sliced(made, k, first - box[k][0], first - box[k][0] + n)
        return made

    def _together(self, op: Op, s: Sharding) -> Box:
        """The box of the slices that are brought together with one; its own, where none are."""
        v, source = op.results[0], op.operands[0]
        key = (source, tuple(v.shape), s)
        if key not in self._boxes:
            alike = [x for x in self.slices.get(source, ()) if x.results[0].shape == v.shape]
            self._boxes[key] = self._families(alike, s) if 1 < len(alike) <= _MOST_TOGETHER else {}
        return self._boxes[key].get(op, _own_box(v))

    def _families(self, ops: Sequence[Op], s: Sharding) -> dict[Op, Box]:
        """Slices in groups: two groups become one while that takes no longer."""
        source = self.view(ops[0].operands[0])
        assert source is not None
        shape = ops[0].results[0].shape
        known: dict[Box, float] = {}

        def seconds(box: Box) -> float:
            if box not in known:
                known[box] = self._brought_seconds(source, s, shape, box)
            return known[box]

        def both(a: Box, b: Box) -> Box:
            rows = [(min(x[0], y[0]), max(sum(x), sum(y))) for x, y in zip(a, b, strict=True)]
            return tuple([(low, high - low) for low, high in rows])

        groups = [(tuple([(first, 0) for first in op.attr("start_indices")]), [op]) for op in ops]
        groups = [g for g in groups if seconds(g[0]) > 0]
        while len(groups) > 1:
            pairs = [(groups[i][0], groups[j][0], i, j) for i in range(len(groups)) for j in range(i)]
            saved, i, j = max((seconds(a) + seconds(b) - seconds(both(a, b)), i, j) for a, b, i, j in pairs)
            if saved < -1e-15:
                break
            groups[j] = both(groups[i][0], groups[j][0]), [*groups[j][1], *groups[i][1]]
            del groups[i]
        return {op: box for box, members in groups if len(members) > 1 for op in members}

    def _brought(self, view: View, s: Sharding, shape: Sequence[int], box: Box, reason: str) -> Value:
        emit = self.walk.emit
        v = self.walk.at(view.base, s, reason)
        fill = None if view.fill is None else self.walk.at(view.fill, Sharding.whole(0), reason)
        begin = len(emit.block.ops)
        for k in _order(view, s, shape, box):
            if not self._moves_along(view, s, shape, box, k):
                continue
            window = _window(s, shape, box, k)
            digits = s.dims[k]
            is_filled = any(x.start is None for x in view.dims[k])
            pieces = pieces_of(view.dims[k], view.base.shape[k], digits, window)
            v = brought(emit, v, k, digits, pieces, window.length, fill if is_filled else None, f"{reason}, beside its tile")
            v = permuted_once(emit, v, begin)
        return v


def _keeps_order(op: Op) -> bool:
    """Whether an op only adds or takes away dimensions of one element."""
    if op.name not in ("stablehlo.reshape", "stablehlo.broadcast_in_dim"):
        return False
    given, made = ([n for n in v.shape if n != 1] for v in (op.operands[0], op.results[0]))
    dims = op.attr("broadcast_dimensions") if op.name == "stablehlo.broadcast_in_dim" else ()
    return given == made and tuple(dims) == tuple(sorted(dims))


def _own_box(v: Value) -> Box:
    return ((0, 0),) * v.rank


def _window(s: Sharding, shape: Sequence[int], box: Box, k: int) -> Window:
    block = block_size(shape[k], s.dims[k])
    return Window(box[k][0], block, block + box[k][1])


def _order(view: View, s: Sharding, shape: Sequence[int], box: Box) -> list[int]:
    """The dimensions: those that get shorter here, those that are exchanged, those that get longer here."""

    def rank(k: int) -> int:
        return 1 if s.dims[k] else 0 if shape[k] + box[k][1] <= view.base.shape[k] else 2

    return sorted(range(len(view.dims)), key=rank)
