"""Several rows of a nest in one step: what the step takes of each, and how that is put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from indexing.expr import Interval, Var, as_expr
from tiling.loops.element_ir import Renamer
from tiling.loops.ir import FoldStep, Nest

__all__ = ["joined", "rows_of"]


def rows_of(nest: Nest, f: FoldStep, ranges: Mapping[Var, Interval]) -> list[FoldStep]:
    """A nest's fold for each of the rows of a step: of those that the loop around the innermost one takes together."""
    rows = nest.loops[-2]
    shifts = (Renamer({rows.variable: as_expr(rows.variable) + k}, ranges, {}) for k in range(1, rows.together))
    return [f, *map(f.rewritten, shifts)]


def joined(word: str, values: Sequence[str], fresh: Callable[[], str]) -> tuple[list[str], str]:
    """The lines that put values together pair by pair, and the name of what they give."""
    lines: list[str] = []
    names = list(values)
    while len(names) > 1:
        left, right = names[: len(names) // 2 * 2 : 2], names[1::2]
        made = [fresh() for _ in right]
        lines += [f"{m} = {word}({a}, {b})" for m, a, b in zip(made, left, right, strict=True)]
        names = made + names[2 * len(made) :]
    return lines, names[0]
