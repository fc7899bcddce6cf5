"""A stage while its fusion is lowered: the box that its task computes, its loops, and its element expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hlo.module import Value
from indexing.expr import Expr, Interval, Var, simplify
from tiling.loops.domains.box import Box, Span
from tiling.loops.element_ir import Load, Node
from tiling.loops.ir import Buffer, Loop
from tiling.loops.monoid import Monoid
from tiling.loops.shape import Shape
from tiling.loops.stage import Stage

__all__ = ["Member"]


@dataclass(eq=False)
class Member:
    """What is known of a stage while its fusion is lowered."""

    stage: Stage
    box: Box | None = None
    index: tuple[Expr, ...] = ()  # the element that its loops compute
    loops: tuple[Loop, ...] = ()
    reduction: tuple[Loop, ...] = ()
    nodes: tuple[Node, ...] = ()
    inits: tuple[Node, ...] = ()
    reads: list[Load] = field(default_factory=list)
    spans: tuple[Span | None, ...] = ()  # of a fold across tiles: what a tile has of each range
    part: Buffer | None = None  # and each task's part of the result
    monoid: Monoid | None = None  # by which the parts are put together
    late: bool = False  # computed from such folds, when all tasks are done
    images: dict[int, Box] = field(default_factory=dict)  # what its box reads along the stage's maps, once it was asked for
    shape: Shape | None = None  # its loops and nodes, where other fusions share them

    @property
    def value(self) -> Value:
        """What a stage of one value computes."""
        (v,) = self.stage.values
        return v

    def take(self, shape: Shape) -> None:
        """Gives the member its loops and nodes."""
        self.shape = shape
        self.index, self.loops, self.reduction = shape.index, shape.loops, shape.reduction
        self.nodes, self.inits, self.reads, self.images = shape.nodes, shape.inits, list(shape.reads), shape.images

    def at(self, index: Sequence[Expr], ranges: Mapping[Var, Interval]) -> dict[Var, Expr]:
        """The loops' variables where they compute the element `index`."""
        assert self.box is not None
        return {x.variable: simplify(e - s.lower, ranges) for x, e, s in zip(self.loops, index, self.box, strict=True)}
