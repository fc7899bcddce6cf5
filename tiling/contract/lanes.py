"""Windows of products, lane by lane: sums along whose columns both factors move, as a depthwise convolution's with channels last.

    out[i, n] = sum over the window k of image[i, k, n] * kernel[k, n]

No register block helps, since no factor is read twice: what counts is that columns are consecutive in all three, and that nothing
asks where the window is outside. The kernel is put beside itself, window by window, before all tasks. Of a small image, whose
edges many windows reach, a tile is made with its padding as zeros; a large one is read in place, and loops are cut at its edges.
Of small groups, too narrow for a register block, the tile has each channel once for each column of its group:

    out[i, n] = sum over k, r of image[i, k, n // size * size + r] * kernel[k, r, n]
The products of an element are then written out (`tiling.passes.unrolling.write_out_sums`).

Factors of 16 bits are widened once, in their copies, and the sums of a result of 16 bits are f32 (`target`) and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hlo.access import Condition
from hlo.types import ElementType, element_type
from indexing.expr import Const, Expr, FloorDiv, Var, as_expr, simplify
from tiling.contract.operands import copied_element, is_narrow, window_tile
from tiling.contract.roles import ContractionContext, LoweredContraction
from tiling.loops.affine import step_along
from tiling.loops.element_ir import Choose, Load, Node, Renamer, all_nodes, has_runtimes, loads, node_variables
from tiling.loops.ir import Buffer, FoldStep, Loop, Nest, Phase, Scope, Step
from tiling.loops.staging import row_major, stage_into
from tiling.loops.variables import counted
from tiling.passes.unrolling.write_out_sums import MOST_OF_WINDOW, MOST_SIDE_BY_SIDE

__all__ = ["lower_lanes"]

LEAST_LANES = 8  # columns from which they are worth a copy
MOST_INSIDE = 0.85  # of a result: where more of it reads no padding, loops are cut at the edges and the image is not copied


@dataclass(frozen=True, eq=False)
class _Read:
    """A factor as it is read, with what has to be done for it: in the task, and before all tasks."""

    node: Node
    fill: tuple[Step, ...] = ()
    ahead: tuple[Phase, ...] = ()
    buffers: tuple[Buffer, ...] = ()


def lower_lanes(c: ContractionContext, target: Buffer) -> LoweredContraction | None:
    """The sum's steps where both factors move along the result's columns; None where plain loops do as well.

    The sums go to `target`: the result's buffer, or one of the same elements in a type with more precision.
    """
    window = [x.extent for x in c.depth if x.extent > 1]
    if has_runtimes(c.nodes) or len(c.nodes) != 2 or c.ends or not 1 < prod(window) <= MOST_SIDE_BY_SIDE:
        return None
    value = c.stage.values[0]
    columns = next((x for x in c.loops if x.extent > 1 and step_along(c.index, target.strides, x.variable) == 1), None)
    if columns is None or columns.extent < LEAST_LANES:
        return None
    memo: dict[Node, frozenset[Var]] = {}
    moving = [node_variables(n, memo) for n in c.nodes]
    if not all(columns.variable in m for m in moving):
        return None
    rows = {x.variable for x in c.loops if x.extent > 1 and x is not columns}
    kernels = [k for k, m in enumerate(moving) if not rows & m]
    if len(kernels) != 1:
        return None
    (number,) = kernels
    if prod(window) > MOST_OF_WINDOW and len(window) > 2 and not _is_spread(c.nodes[1 - number], columns):
        return None  # the rows of three dimensions lie far apart
    kernel, image = _beside(c, number, columns), _inside(c, 1 - number, columns)
    if kernel is None or image is None or not (kernel.buffers or image.buffers):
        return None
    nodes = (kernel.node, image.node) if number == 0 else (image.node, kernel.node)
    fold = FoldStep((value,), (target,), c.index, nodes, (), c.stage.op)
    steps: tuple[Step, ...] = (*image.fill, Nest((*c.loops, *c.depth), folds=(fold,)))
    return LoweredContraction(steps, (*kernel.buffers, *image.buffers), kernel.ahead)


def _is_spread(node: Node, columns: Loop) -> bool:
    """Whether an image's element is read for several columns that follow each other: those of a group."""
    divided = [a for n in loads([node]) for e in n.index for a, _ in e.terms if isinstance(a, FloorDiv)]
    return any(columns.variable in a.variables for a in divided)


def _step(c: ContractionContext, load: Node, variable: Var) -> int | None:
    assert isinstance(load, Load)
    buffer = load.buffer or c.buffers[load.value]
    return step_along(load.index, buffer.strides, variable)


def _kept(c: ContractionContext, number: int) -> ElementType | None:
    """The type of a factor's copy, of 16 bits f32."""
    element = copied_element(c.nodes[number], c.stage.op.operands[number], lambda x: x.buffer or c.buffers[x.value])
    return element_type("f32") if is_narrow(element) else element


def _beside(c: ContractionContext, number: int, columns: Loop) -> _Read | None:
    """The kernel with its columns side by side: as it lies, or a copy of all of it, window by window."""
    node, element = c.nodes[number], _kept(c, number)
    lies = isinstance(node, Load) and (node.buffer or c.buffers[node.value]).element == element
    if lies and _step(c, node, columns.variable) == 1:
        return _Read(node)
    if element is None or any(c.is_member(x.value) for x in loads([node])):
        return None
    dimension = next(k for k, x in enumerate(c.loops) if x is columns)
    whole, extent = c.index[dimension], c.stage.values[0].shape[dimension]
    tag = c.names.stage(c.stage) + c.suffix
    across = counted(f"j_{tag}", extent, c.ranges)
    renaming: dict[Var, Expr] = {columns.variable: simplify(across.variable - (whole - columns.variable), c.ranges)}
    window: list[Loop] = []
    for k, x in enumerate(c.depth):
        own = counted(f"kp{k}_{tag}", x.extent, c.ranges)
        renaming[x.variable] = as_expr(own.variable) if x.extent > 1 else Const(0)
        if x.extent > 1:
            window.append(own)
    moved = Renamer(renaming, c.ranges, {}).node(node)
    loops = (*window, across)
    if not node_variables(moved, {}) <= {x.variable for x in loops}:
        return None  # of a tile: the index was divided by a tile's size
    layout = row_major(element, [(as_expr(x.variable), x.extent) for x in loops])
    buffer = layout.buffer(c.names.scratch(c.stage.values[0], "kernel" + c.suffix), Scope.SHARED)
    nest = stage_into(buffer, layout, [across], moved)
    ahead = Phase(tuple((x.variable, x.extent) for x in window), (nest,))
    index = (*(as_expr(x.variable) for x in c.depth if x.extent > 1), whole)
    value = node.value if isinstance(node, Load) else c.stage.op.operands[number]
    return _Read(Load(value, index, buffer), (), (ahead,), (buffer,))


def _share_inside(c: ContractionContext, node: Node) -> float:
    """The share of the whole result's elements whose windows are inside of the image, for conditions of one dimension each."""
    tests = [t for n in all_nodes([node]) if isinstance(n, Choose) for t in n.conditions]
    share, window = 1.0, {x.variable: x.extent for x in c.depth}
    shape = c.stage.values[0].shape
    for k, x in enumerate(c.loops):
        reach = max((_reach(t, x.variable, window) for t in tests), default=0)
        share *= max(0.0, 1.0 - reach / shape[k])
    return share


def _reach(test: Condition, along: Var, window: Mapping[Var, int]) -> int:
    """How far apart the places of a window lie that a condition tests along a loop, in steps of the loop."""
    steps = {v: k for v, k in test.expression.terms if isinstance(v, Var)}
    step = abs(steps.get(along, 0))
    return -(-sum(abs(steps.get(v, 0)) * (n - 1) for v, n in window.items()) // step) if step else 0


def _inside(c: ContractionContext, number: int, columns: Loop) -> _Read | None:
    """The image as it lies, or in a window's tile: with zeros around where many windows reach over its edges, widened once.

    A tile of a large image, most of whose windows are inside, is worth it only where it is widened: loops are cut at the edges.
    """
    node, element = c.nodes[number], _kept(c, number)
    read = next(iter(loads([node])), None)
    if read is None or element is None:
        return None
    spread, padded = _is_spread(node, columns), any(isinstance(n, Choose) for n in all_nodes([node]))
    in_place = not spread and (padded or isinstance(node, Load)) and _step(c, read, columns.variable) == 1
    whole = not spread and (not padded or _share_inside(c, node) > MOST_INSIDE)
    widened = (read.buffer or c.buffers[read.value]).element != element
    tile = None if whole and not widened else _tile(c, number, element, columns, columns.variable if spread else None)
    return tile or (_Read(node) if in_place and (whole or widened) else None)


def _tile(c: ContractionContext, number: int, element: ElementType, columns: Loop, innermost: Var | None) -> _Read | None:
    """The image in a tile of the task, along whose memory the columns must run; None where there is none, or no room."""
    node = c.nodes[number]
    variables = node_variables(node, {})
    local = [x for x in (*c.loops, *c.depth) if x.variable in variables]
    if any(x.lower is not Const(0) for x in local):
        return None
    name, tag = c.names.scratch(c.stage.values[0], "image" + c.suffix), f"image_{c.names.stage(c.stage) + c.suffix}"
    room, most = c.machine.lanes(element.itemsize_bytes), c.machine.l2_bytes // 2
    place = window_tile(name, tag, element, node, local, c.buffers, c.ranges, room, most, innermost)
    if place is None or place.steps.get(columns.variable) != 1:
        return None
    value = node.value if isinstance(node, Load) else next(iter(loads([node]))).value
    return _Read(Load(value, place.index, place.buffer), place.fill, (), (place.buffer,))
