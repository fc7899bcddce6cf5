"""What a micro-kernel computes of operands in which layouts: all that proofs, figures of cost and the emitter know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["MicroKernel"]


@dataclass(frozen=True)
class MicroKernel:
    """out[i, j] (+)= sum over k of left[i, k] * right[k, j], by the function `routine` of the library that kernels call.

    `right` lies in panels of columns, with `together` steps of k of a column side by side. A kernel that is `along` memory
    reads k one after the other in both factors, each column as a panel, and stores the result in any layout. One that does not
    `add` sums all of k in one go, from zero: no blocks of k, and neither levels nor ends that a mask gives but where it `walks`:
    levels by a right factor that goes on from one to the next, ends between groups of steps. `arguments` name what the routine
    takes, in order (`codegen.source.contraction`); one that adds, or walks, takes the levels after them. `asking` is the function
    that does the same and asks for the next block of panels meanwhile, if there is one. Raises ValueError for no steps side by
    side.
    """

    routine: str
    arguments: tuple[str, ...]
    together: int = 1
    along: bool = False
    adds: bool = True
    walks: bool = False
    asking: str = ""

    def __post_init__(self) -> None:
        if self.together < 1:
            raise ValueError(f"{self.routine}: expected at least one step of k side by side, found {self.together}")

    @property
    def takes_levels(self) -> bool:
        """Whether there may be loops around k that sum into the same block, or ends that a mask gives."""
        return self.adds or self.walks

    @property
    def needs_runs(self) -> bool:
        """Whether k is one after the other in the left factor; other kernels take any step."""
        return self.along or self.together > 1

    def place(self, k: Any, column: Any, columns: int, panel_stride: int, row_stride: int) -> Any:
        """How far right[k, column] lies behind right[0, 0]: of numbers, arrays, or index expressions.

        >>> MicroKernel("gemm_bytes", (), together=4).place(6, 17, 16, 1024, 64)
        1094
        """
        t = self.together
        if panel_stride == columns * t:
            panel = column * t
        else:
            panel = column // columns * panel_stride + column % columns * t
        return panel + (k * row_stride if t == 1 else k // t * row_stride + k % t)
