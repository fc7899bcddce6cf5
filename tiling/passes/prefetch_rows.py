"""Rows at places known only at run time are asked for two rows ahead of their turn.

    row r of x[index[r], :]  ->  the lines of row index[min(r + 2, last)] are prefetched while row r is copied

Hardware foresees the next lines of a row, never where the next row begins: each would start with misses of the page table
and of the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from indexing.expr import Expr, Var
from tiling.loops.affine import step_along
from tiling.loops.element_ir import (
    Choose,
    Load,
    Node,
    Runtime,
    all_nodes,
    children,
    has_runtimes,
    loads_among,
    node_variables,
    operands_first,
)
from tiling.loops.ir import Buffer, LoopKind, Nest, Scatter, Selection

__all__ = ["LINE_BYTES", "ROWS_AHEAD", "lines_of_row", "moving_places", "prefetch_rows", "prefetch_rows_of_updates"]

ROWS_AHEAD = 2
LINE_BYTES = 64
LEAST_LINES, MOST_LINES = 4, 64  # shorter rows are a line or two; longer ones hide the first miss by themselves
LEAST_BYTES = 4 << 20  # what the cores' own caches hold has no misses to hide
MOST_NODES = 12


def prefetch_rows(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> Nest:
    """The nest with the loads named whose rows are worth being asked for ahead."""
    found = _found(nest, [s.node for s in nest.stores], buffer_of)
    return replace(nest, ahead=tuple(found)) if found else nest


def prefetch_rows_of_updates(step: Scatter | Selection, buffer_of: Callable[[Load], Buffer]) -> Scatter | Selection:
    """Updates with the loads named that are worth it in their loops."""
    starts = step.starts if isinstance(step, Scatter) else ()
    nodes = step.nodes if isinstance(step, Scatter) else (step.node,)
    found = _found(Nest(step.loops), [*(s.node for s in starts if not isinstance(s.node, Expr)), *nodes], buffer_of)
    return replace(step, ahead=tuple(found)) if found else step


def _found(nest: Nest, roots: list[Node], buffer_of: Callable[[Load], Buffer]) -> list[Load]:
    """The loads below some nodes, in the loops of a nest, whose rows are worth being asked for ahead."""
    if len(nest.loops) < 2 or nest.folds:
        return []
    rows = nest.loops[-2]
    if rows.kind is not LoopKind.PARALLEL or rows.extent < 4 or rows.together > 1:
        return []
    found: list[Load] = []
    asked: set[Var] = set()
    for load in _looked_up(roots):
        new = {r.variable for r in load.runtimes} - asked
        asked |= new
        if new and _is_worth_it(nest, load, buffer_of(load)):
            found.append(load)
    return found


def _looked_up(roots: list[Node]) -> list[Load]:
    """Loads at places known only at run time that every iteration makes, each after what it is computed from."""
    made: dict[Node, None] = {}
    for root in roots:
        for n in operands_first(root, made, _of_every_iteration):
            made[n] = None
    return [x for x in loads_among(made) if x.runtimes]


def _of_every_iteration(n: Node) -> list[Node]:
    """What every iteration computes for a node; the first comes last, and so is visited first."""
    return [r.node for r in reversed(n.runtimes)] if isinstance(n, Choose) else [*reversed(children(n))]


def _is_worth_it(nest: Nest, load: Load, buffer: Buffer) -> bool:
    moving = moving_places(nest, load)
    # A place that is found by way of another place would have to be looked up twice.
    if buffer.size_bytes < LEAST_BYTES or not moving or has_runtimes([r.node for r in moving]):
        return False
    innermost = nest.loops[-1].variable
    is_found_inside = any(innermost in variables for _, variables in _places(load))
    if is_found_inside or sum(len([*all_nodes([r.node])]) for r in moving) > MOST_NODES:
        return False
    return step_along(load.index, buffer.strides, innermost) == 1 and LEAST_LINES <= lines_of_row(nest, buffer) <= MOST_LINES


def lines_of_row(nest: Nest, buffer: Buffer) -> int:
    """How many lines of a cache a row of the innermost loop takes."""
    return nest.loops[-1].extent * buffer.element.itemsize_bytes // LINE_BYTES


def moving_places(nest: Nest, load: Load) -> list[Runtime]:
    """The places that a load looks up anew for each iteration of the loop around the innermost one."""
    rows, inner = nest.loops[-2].variable, nest.loops[-1].variable
    return [r for r, variables in _places(load) if rows in variables and inner not in variables]


def _places(load: Load) -> list[tuple[Runtime, frozenset[Var]]]:
    """The places that a load's index names, and the loops that each depends on."""
    used = [r for r in load.runtimes if any(r.variable in e.variables for e in load.index)]
    return [(r, node_variables(r.node, {})) for r in used]
