"""What parts of the emitter that are files of their own use of the nest that is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from codegen.source.fold import FoldSource
from codegen.source.phase import PhaseWriter
from codegen.source.writer import Writer
from indexing.expr import Expr, Var
from tiling.loops.element_ir import Node, Runtime
from tiling.loops.ir import FoldStep, Loop, Nest

__all__ = ["NestView"]


class NestView(Protocol):
    """A nest while its source is written (`codegen.source.nest`)."""

    phase: PhaseWriter
    nest: Nest
    depth: int
    lines: list[list[str]]
    level_of: dict[Var, int]

    def use(self, roots: Sequence[Node]) -> None: ...
    def open(self, out: Writer, loop: Loop, lower: Expr, upper: Expr) -> None: ...
    def fold_source(self, f: FoldStep) -> FoldSource: ...
    def level(self, node: Node) -> int: ...
    def number(self, root: Node, level: int) -> str: ...
    def place(self, r: Runtime, text: str) -> str: ...
