"""The loops of a stage over a box of its result, for every fusion that asks for that box."""

from __future__ import annotations

from dataclasses import dataclass

from indexing.expr import Expr, Interval, Var
from tiling.loops.domains.box import Box
from tiling.loops.element_ir import Load, Node
from tiling.loops.ir import Loop

__all__ = ["Shape"]


@dataclass(eq=False)
class Shape:
    """Loops over a box of a stage's result and what they compute, as every fusion that asks for that box has it.

    `ranges` are the loops' variables; `images` the boxes that are read along the stage's maps, where they were asked for, and so
    is whether a condition on indices chooses what is read.
    """

    index: tuple[Expr, ...]
    loops: tuple[Loop, ...]
    reduction: tuple[Loop, ...]
    nodes: tuple[Node, ...]
    inits: tuple[Node, ...]
    reads: tuple[Load, ...]
    ranges: tuple[tuple[Var, Interval], ...]
    images: dict[int, Box]
    chooses: bool | None = None
