"""The walk from a fusion's roots to all that they read: a map from the tiling space for each value and path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hlo.module import Block, Module, Op, Value
from hlo.registry import Fold, Structure, SumOfProducts
from hlo.types import TensorType
from indexing.deriving.blocks import blocks_of
from indexing.deriving.derive import Reads, output_to_input
from indexing.expr import Interval, Var
from indexing.map import IndexingMap, Variable, compose, usual
from indexing.map_simplifier import tidy_map
from indexing.program import COST_LIMIT, MAPS_LIMIT
from tiling.tiles.space import DimensionKind, SpaceDimension

__all__ = ["Frame", "Node", "Place", "Walk"]


@dataclass(eq=False)
class Frame:
    """One call of a block: what its arguments stand for, in the frame around it."""

    parent: Frame | None
    inside: dict[Value, Value]


Place = tuple[Value, "Frame | None"]
"""A value of one call of the block that it belongs to."""

Read = tuple[tuple[int, ...], IndexingMap]
Located = tuple[IndexingMap, tuple[SpaceDimension, ...]]


@dataclass(eq=False)
class Node:
    """A value with the map from the space's dimensions to its index; operands as they are read, one node for each map."""

    place: Place
    map: IndexingMap
    dimensions: tuple[SpaceDimension, ...]
    operands: list[tuple[Node, ...]] = field(default_factory=list)


class Walk:
    """Follows reads, an explicit stack instead of recursion: chains may be long."""

    def __init__(self, module: Module | None, sequential: bool, producers: bool) -> None:
        self.module, self.sequential, self.producers = module, sequential, producers
        self.until: set[Value] = set()  # values of the outermost frame that the walk does not look behind
        self.frames: dict[tuple[Frame | None, Op], Frame] = {}
        self.dimensions: list[SpaceDimension] = []
        self.by_axis: dict[tuple[Op, int], SpaceDimension] = {}
        self.composed: dict[tuple[Any, Any], IndexingMap] = {}
        self.nodes: list[Node] = []
        self.known: dict[Place, list[Node]] = {}

    # ------------------------------------------------------------ places

    def root(self, v: Value) -> Place:
        """The value inside the fusion or call that makes `v`; its arguments stay what they are unless producers count."""
        if v.op is None or not (blocks := self.blocks(v.op)):
            return v, None
        frame = self._frame(None, v.op, blocks[0])
        if not self.producers:
            frame.inside.clear()
        return self.enter((blocks[0].results[v.index], frame))

    def enter(self, place: Place) -> Place:
        """What a place stands for: the body's value of an inner call, the operand behind an inner call's argument."""
        v, frame = place
        while True:
            if frame is not None and v in frame.inside:
                v, frame = frame.inside[v], frame.parent
            elif v.op is not None and not (frame is None and v in self.until) and (blocks := self.blocks(v.op)):
                frame = self._frame(frame, v.op, blocks[0])
                v = blocks[0].results[v.index]
            else:
                return v, frame

    def blocks(self, op: Op) -> list[Block]:
        return blocks_of(op, self.module) if op.definition.structure is Structure.CALL else []

    def _frame(self, parent: Frame | None, op: Op, block: Block) -> Frame:
        key = (parent, op)
        if key not in self.frames:
            self.frames[key] = Frame(parent, dict(zip(block.arguments, op.operands, strict=True)))
        return self.frames[key]

    # ------------------------------------------------------------ reads

    def start(self, place: Place, m: IndexingMap) -> Node:
        """Walks from a root that the map `m` leads to; the first root's index is the space's parallel part."""
        if not self.dimensions:
            shape = enumerate(place[0].shape)
            self.dimensions += [SpaceDimension(k, DimensionKind.PARALLEL, n, place[0], k) for k, n in shape]
        first, new = self._at(place, m, tuple(self.dimensions[: len(m.dims)]))
        todo = [first] if new else []
        while todo:
            node = todo.pop()
            self.nodes.append(node)
            (v, frame), op = node.place, node.place[0].op
            if op is None or (frame is None and v in self.until):
                continue
            for operand, maps in zip(op.operands, self._maps(op, v.index), strict=True):
                if not isinstance(operand.type, TensorType):
                    node.operands.append(())
                    continue
                here: dict[Node, None] = {}
                for axes, m in maps:
                    if m.is_known_empty:
                        continue
                    t, new = self._at(self.enter((operand, frame)), *self._through(node, op, axes, m))
                    here[t] = None
                    if new:
                        todo.append(t)
                node.operands.append(tuple(here))
        return first

    def _maps(self, op: Op, output: int) -> list[list[Read]]:
        """For each operand its maps, each with the numbers of the op's range variables that are its last dimensions."""
        if not (self.sequential and isinstance(op.definition.semantics, (Fold, SumOfProducts))):
            return [[((), m) for m in maps] for maps in output_to_input(op, output)]
        if any(not isinstance(v.type, TensorType) or not v.type.is_static for v in (*op.operands, *op.results)):
            return [[((), m) for m in maps] for maps in output_to_input(op, output)]
        reads = Reads(op, output)
        found: list[list[Read]] = [[] for _ in op.operands]
        rank = len(reads.dims)
        for k, maps in enumerate(reads.by_operand()):
            for m in maps:
                axes = tuple(j for j, v in enumerate(reads.ranges) if any(v.var is r.var for r in m.ranges))
                names = {reads.ranges[j].var: usual("d", rank + i) for i, j in enumerate(axes)}
                dims = (*m.dims, *(Variable(v.var, v.interval) for v in m.ranges))
                as_dims = IndexingMap(dims, m.results, (), m.runtimes, m.constraints, m.unknown, m.is_known_empty)
                found[k].append((axes, tidy_map(as_dims.renamed(names))))
        return found

    def _through(self, node: Node, op: Op, axes: tuple[int, ...], m: IndexingMap) -> Located:
        """The map to an operand's index, over the node's dimensions and the op's own."""
        own = tuple(
            self._axis(op, j, v.interval) for j, v in zip(axes, m.dims[len(m.dims) - len(axes) :], strict=True)
        )
        first, have = node.map, len(node.dimensions)
        if first.unknown is not None:
            return first, ()
        if own:
            new = tuple(Variable(usual("d", have + i), Interval(0, d.extent - 1)) for i, d in enumerate(own))
            first = IndexingMap(
                (*first.dims, *new),
                (*first.results, *(v.var for v in new)),
                first.ranges,
                first.runtimes,
                first.constraints,
            )
        key = (first.spelling, m.spelling)
        found = self.composed.get(key) or tidy_map(compose(first, m)).remove_unused()
        self.composed[key] = found
        if found.unknown is not None:
            return found, ()
        cost = sum(e.cost for e in found.results) + sum(c.expression.cost for c in found.constraints)
        if cost > COST_LIMIT:
            return IndexingMap.unknown_because(f"its expressions have {cost} parts, of at most {COST_LIMIT}"), ()
        return _without_unused(found, (*node.dimensions, *own))

    def _axis(self, op: Op, j: int, interval: Interval) -> SpaceDimension:
        if (op, j) not in self.by_axis:
            made = SpaceDimension(
                len(self.dimensions), DimensionKind.SEQUENTIAL, interval.upper + 1, op.results[0], j
            )
            self.by_axis[op, j] = made
            self.dimensions.append(made)
        return self.by_axis[op, j]

    def _at(self, place: Place, m: IndexingMap, dimensions: tuple[SpaceDimension, ...]) -> tuple[Node, bool]:
        """The node for a map, merged with one whose map is the same relation; and whether it is new."""
        known = self.known.setdefault(place, [])
        for n in known:
            if n.dimensions == dimensions and n.map.spelling == m.spelling:
                return n, False
        for n in known:
            if n.dimensions == dimensions and m.unknown is None and n.map.unknown is None and n.map == m:
                return n, False
        if len(known) >= MAPS_LIMIT:
            m, dimensions = (
                IndexingMap.unknown_because(f"%{place[0].name or '?'} is read in more than {MAPS_LIMIT} ways"),
                (),
            )
            for n in known:
                if n.map.unknown is not None:
                    return n, False
        made = Node(place, m, dimensions)
        known.append(made)
        return made, True


def _without_unused(m: IndexingMap, dimensions: tuple[SpaceDimension, ...]) -> Located:
    """Without sequential dimensions that neither index nor condition depends on: the loop around is not this value's."""
    used: set[Var] = {v for e in (*m.results, *(c.expression for c in m.constraints)) for v in e.variables}
    used |= {v for r in m.runtimes for e in r.element for v in e.variables}
    kept = [
        k
        for k, (v, d) in enumerate(zip(m.dims, dimensions, strict=True))
        if d.kind is DimensionKind.PARALLEL or v.var in used or v.interval != Interval(0, d.extent - 1)
    ]
    if len(kept) == len(dimensions):
        return m, dimensions
    smaller = IndexingMap(
        tuple(m.dims[k] for k in kept), m.results, m.ranges, m.runtimes, m.constraints, m.unknown, m.is_known_empty
    )
    return smaller.renumbered(), tuple(dimensions[k] for k in kept)


def reachable(walk: Walk, place: Place) -> set[Place]:
    """Every place that a root depends on, itself included."""
    seen: set[Place] = set()
    todo = [place]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        (v, frame) = at
        if v.op is not None:
            todo.extend(walk.enter((o, frame)) for o in v.op.operands)
    return seen
