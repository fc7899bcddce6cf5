"""Pictures of maps, tiles, plans and kernels, drawn with matplotlib (the `notebook` extra).

Every function returns a matplotlib `Figure`: a notebook shows it, `figure.savefig(path)` writes it. Tensors of more than two
dimensions are drawn as rows of their last one. `explore` adds sliders with ipywidgets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo.errors import Declined
from hlo.module import Function, Module, Op
from hlo.types import TensorType
from indexing import IndexingMap, output_to_input
from tilewright.drawing.arithmetic import operations
from tilewright.drawing.figures import INK, PictureError, figure
from tilewright.drawing.graph import fusion_graph
from tilewright.drawing.mesh import mesh_picture
from tilewright.drawing.panels import Panel, panels
from tiling import Fusion, Plan
from tiling.mesh.partition import partition

__all__ = [
    "PictureError",
    "cache_lines",
    "explore",
    "from_program",
    "fusion_graph",
    "mesh_picture",
    "read_elements",
    "reads",
    "roofline",
    "tile_grid",
]

_LIMIT_ELEMS = 1 << 20
_READ, _WRITTEN = "#d1495b", "#3b7fb5"


# ---------------------------------------------------------------- what is read


def read_elements(m: IndexingMap, shape: Sequence[int], box: Sequence[range]) -> np.ndarray:
    """How often each element of an operand of this shape is read for the output indices in `box` (one range a dimension).

    Runtime variables take every value of their interval, so what may be read counts. Raises PictureError for unknown maps and
    for more than a million reads.

    >>> from indexing import parse_map
    >>> m = parse_map("(d0)[s0] -> (d0, s0), domain: d0 in [0, 3], s0 in [0, 2]")
    >>> read_elements(m, (4, 3), [range(1, 3)]).tolist()
    [[0, 0, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0]]
    """
    _expect("the map", m, IndexingMap)
    if m.unknown is not None:
        raise PictureError(f"the map is unknown: {m.unknown.reason}")
    if len(box) != len(m.dims) or len(shape) != len(m.results):
        raise PictureError(
            f"expected a range for each of {len(m.dims)} dimensions and a shape of rank {len(m.results)}, found {len(box)} and"
            f" {list(shape)}"
        )
    count = np.zeros(tuple(shape), np.int64)
    if m.is_known_empty:
        return count
    spans = [*(np.arange(r.start, r.stop, r.step) for r in box)]
    ranges = m.variable_ranges
    for v in m.symbols:
        spans.append(np.arange(ranges[v].lower, ranges[v].upper + 1))
    if math.prod(len(s) for s in spans) > _LIMIT_ELEMS:
        raise PictureError(f"more than {_LIMIT_ELEMS} reads: take a smaller tile or shape")
    grid = [g.ravel() for g in np.meshgrid(*spans, indexing="ij")] if spans else []
    dims, symbols = grid[: len(m.dims)], grid[len(m.dims) :]
    size = len(grid[0]) if grid else 1
    holds = np.broadcast_to(m.holds(dims, symbols), (size,))
    index = [np.broadcast_to(x, (size,))[holds] for x in m.evaluate(dims, symbols)]
    inside = np.ones(int(holds.sum()), bool)
    for x, n in zip(index, shape, strict=True):
        inside &= (x >= 0) & (x < n)
    if shape:
        np.add.at(count, tuple(x[inside] for x in index), 1)
    else:
        count += int(inside.sum())
    return count


def _expect(what: str, value: Any, *types: type) -> None:
    """Raises PictureError for anything else than what a picture is of."""
    if not isinstance(value, types):
        raise PictureError(f"{what}: expected {' or '.join(t.__name__ for t in types)}, found {type(value).__name__}")


def _box(shape: Sequence[int], at: Sequence[int] | None, tile: Sequence[int] | None) -> list[range]:
    for what, given in (("at", at), ("tile", tile)):
        if given is not None and not (isinstance(given, Sequence) and all(isinstance(i, int | np.integer) for i in given)):
            raise PictureError(f"{what}: expected whole numbers, one for each of {list(shape)}, found {given!r}")
    at = tuple(n // 2 for n in shape) if at is None else tuple(at)
    tile = (1,) * len(shape) if tile is None else tuple(tile)
    fits = len(at) == len(tile) == len(shape) and all(t > 0 for t in tile)
    if not fits or any(not 0 <= a < n for a, n in zip(at, shape, strict=True)):
        size = "" if all(t == 1 for t in tile) and len(tile) == len(shape) else f" with a tile of {list(tile)}"
        raise PictureError(f"expected an index into {list(shape)}, found {list(at)}{size}")
    return [range(a, min(a + t, n)) for a, t, n in zip(at, tile, shape, strict=True)]


def _result(op: Op, output: int) -> Any:
    _expect("the op", op, Op)
    if not isinstance(output, int) or not 0 <= output < len(op.results):
        raise PictureError(f"{op.name}: expected a result from 0 to {len(op.results) - 1}, found {output!r}")
    return op.results[output].type


def reads(op: Op, at: Sequence[int] | None = None, tile: Sequence[int] | None = None, output: int = 0) -> Any:
    """Which elements of each operand are read for the output element `at` (default: the middle), or a tile from there on."""
    result = _result(op, output)
    if not isinstance(result, TensorType) or not result.is_static:
        raise PictureError(f"{op.name}: expected a result of a fixed shape, found {result}")
    box = _box(result.static_shape, at, tile)
    operands = [(k, v.type) for k, v in enumerate(op.operands) if isinstance(v.type, TensorType) and v.type.is_static]
    maps = output_to_input(op, output=output)
    shown = []
    for k, t in operands:
        total = np.zeros(t.static_shape, np.int64)
        for m in maps[k]:
            total = total + read_elements(m, t.static_shape, box)
        name = op.operands[k].name
        shown.append(Panel(total, f"operand {k}{f' %{name}' if name else ''}\n{t}, {int((total > 0).sum())} read", _READ))
    written = np.zeros(result.static_shape, np.int64)
    written[tuple(slice(r.start, r.stop) for r in box)] = 1
    return panels([*shown, Panel(written, f"{op.name}\n{result}, {int(written.sum())} written", _WRITTEN)])


def explore(op: Op, tile: Sequence[int] | None = None, output: int = 0) -> Any:
    """`reads` with a slider for each dimension of the output index (an ipywidgets box, for notebooks)."""
    try:
        import ipywidgets
    except ImportError as e:
        raise PictureError("sliders need ipywidgets, which is not installed: pip install 'tilewright[notebook]'") from e
    from IPython.display import display

    result = _result(op, output)
    if not isinstance(result, TensorType):
        raise PictureError(f"{op.name}: expected a tensor, found {result}")
    sliders = {
        f"d{k}": ipywidgets.IntSlider(value=n // 2, min=0, max=max(n - 1, 0), description=f"d{k}")
        for k, n in enumerate(result.static_shape)
    }

    def show(**index: int) -> None:
        display(reads(op, [index[name] for name in sliders], tile, output))

    return ipywidgets.VBox([*sliders.values(), ipywidgets.interactive_output(show, sliders)])


# ---------------------------------------------------------------- tiles


def tile_grid(fusion: Fusion) -> Any:
    """The tiles of a kernel's result in its last two dimensions, numbered along the rows."""
    _expect("tiles", fusion, Fusion)
    value = fusion.outputs[0]
    shape, tile = value.shape, fusion.tile_sizes
    if len(tile) != len(shape):
        raise PictureError(f"{fusion.name}: its tile sizes {list(tile)} are not those of its result {value.type}")
    rows, columns = (shape[-2] if len(shape) > 1 else 1), (shape[-1] if shape else 1)
    high, wide = (tile[-2] if len(tile) > 1 else 1), (tile[-1] if tile else 1)
    counts = -(-rows // max(high, 1)), -(-columns // max(wide, 1))
    shown = min(counts[0], 64), min(counts[1], 64)
    picture = figure(5, 4.6)
    axes = picture.subplots()
    image = np.add.outer(np.arange(shown[0]), np.arange(shown[1])) % 2
    axes.imshow(image, cmap="Blues", vmin=-0.6, vmax=2.5, aspect="auto",
                extent=(0, min(shown[1] * wide, columns), min(shown[0] * high, rows), 0), interpolation="nearest")  # fmt: skip
    if shown[0] <= 32 and shown[1] <= 12:  # as many numbers as stand beside each other
        for i, j in itertools.product(range(shown[0]), range(shown[1])):
            x, y = (j * wide + min((j + 1) * wide, columns)) / 2, (i * high + min((i + 1) * high, rows)) / 2
            axes.text(x, y, str(i * counts[1] + j), ha="center", va="center", fontsize=7)
    size = " × ".join(map(str, (*tile[:-2], high, wide)))
    lines = [f"{fusion.name}: {value.type}", f"{counts[0]} × {counts[1]} tiles of {size}"]
    leading = math.prod(-(-n // max(t, 1)) for n, t in zip(shape[:-2], tile[:-2], strict=True))
    if leading > 1:
        lines[1] += f", {leading} times"
    if shown != counts:
        lines.append(f"(the first {shown[0]} × {shown[1]} are shown)")
    axes.set_title("\n".join(lines), fontsize=9, parse_math=False)
    axes.set_xlabel(f"dimension {len(shape) - 1}" if shape else "one element")
    axes.set_ylabel(f"dimension {len(shape) - 2}" if len(shape) > 1 else "")
    for axis, number in ((axes.xaxis, len(shape)), (axes.yaxis, len(shape) - 1)):
        if number < 1:
            axis.set_ticks([])
    return picture


# ---------------------------------------------------------------- roofline


def roofline(plan: Plan, seconds: Sequence[float] | None = None) -> Any:
    """Each kernel's operations a byte of memory against its operations a second, under the machine's limits.

    Without `seconds` (one for each fusion, measured) the cost model's predictions are drawn.
    """
    _expect("a roofline", plan, Plan)
    if seconds is not None and (len(seconds) != len(plan.fusions) or not all(s > 0 for s in seconds)):
        raise PictureError(f"seconds: expected {len(plan.fusions)} positive numbers, one for each fusion, found {list(seconds)}")
    machine = plan.machine
    peak = machine.peak_flops(4) * machine.cores
    bandwidth = machine.memory_bytes_per_second
    picture = figure(6, 4.2)
    axes = picture.subplots()
    x = np.logspace(-2, 4, 200)
    axes.loglog(
        x, np.minimum(peak, x * bandwidth) / 1e9, color=INK, label=f"{peak / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.0f} GB/s"
    )
    points = []
    for k, f in enumerate(plan.fusions):
        work = operations(f)
        moved = max(f.bytes_fused, 1)
        spent = seconds[k] if seconds is not None else f.estimate.seconds
        if work and spent > 0:
            points.append((spent, work / moved, work / spent / 1e9, f.name))
    points.sort(reverse=True)
    for _, intensity, speed, _ in points:
        axes.plot(intensity, speed, "o", color=_WRITTEN, markersize=5)
    axes.set_xlabel("operations per byte of memory")
    axes.set_ylabel("GFLOP/s, " + ("measured" if seconds is not None else "predicted"))
    axes.legend(fontsize=8, loc="lower right")
    axes.grid(alpha=0.3)
    _name_points(axes, [(x, y, name) for _, x, y, name in points[:_NAMED]])
    if len(points) > _NAMED:
        axes.set_title(f"named: the {_NAMED} of {len(points)} kernels that take longest", fontsize=9)
    return picture


_NAMED = 16


def _name_points(axes: Any, points: Sequence[tuple[float, float, str]]) -> None:
    """Names beside points of two logarithmic axes, moved down where they would lie on each other."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    wide, tall = axes.figure.get_size_inches() * 72 * 0.85
    across, along = wide / math.log(right / left), tall / math.log(high / low)  # points of paper for each e-fold
    taken: list[tuple[float, float, float]] = []  # left, right, height
    for x, y, name in sorted(points, key=lambda p: -p[1]):
        begin, height = math.log(x / left) * across + 6, math.log(y / low) * along + 3
        end = begin + 4.5 * len(name)
        anchor, turned = (begin, end), end > wide
        if turned:
            anchor = (begin - 12 - (end - begin), begin - 12)
        place = height
        while any(a < anchor[1] and anchor[0] < b and abs(h - place) < 9 for a, b, h in taken):
            place -= 3
        taken.append((*anchor, place))
        line = {"arrowstyle": "-", "color": INK, "linewidth": 0.6} if height - place > 9 else None
        axes.annotate(name, (x, y), fontsize=7, xytext=(-6 if turned else 6, 3 + place - height), textcoords="offset points",
                      ha="right" if turned else "left", parse_math=False, arrowprops=line, color=INK)  # fmt: skip


# ---------------------------------------------------------------- cache lines


def cache_lines(m: IndexingMap, shape: Sequence[int], itemsize_bytes: int, order: Sequence[int] | None = None,
                iterations: int = 2048, line_bytes: int = 64, cache_lines_count: int = 512) -> Any:  # fmt: skip
    """The cache lines that the first iterations touch when the map's loops run in `order` (outermost first).

    `order` permutes the variables (dims, then ranges); default: as they stand. The title counts the lines fetched into a cache
    of `cache_lines_count` lines (least recently used goes first), and how much of them is used.
    """
    _expect("the map", m, IndexingMap)
    sizes = itemsize_bytes, iterations, line_bytes, cache_lines_count
    if min(sizes) < 1 or len(shape) != len(m.results or shape):
        raise PictureError(f"expected positive sizes and a shape of rank {len(m.results)}, found {sizes} and {list(shape)}")
    if m.unknown is not None or m.is_known_empty:
        raise PictureError("expected a known map with a domain that is not empty")
    variables = [*(v.var for v in m.dims), *m.symbols]
    order = tuple(range(len(variables))) if order is None else tuple(order)
    if sorted(order) != list(range(len(variables))):
        raise PictureError(f"order: expected a permutation of 0 … {len(variables) - 1}, found {list(order)}")
    ranges = m.variable_ranges
    spans = [range(ranges[variables[k]].lower, ranges[variables[k]].upper + 1) for k in order]
    points = np.array(list(itertools.islice(itertools.product(*spans), iterations)), np.int64).reshape(-1, len(order))
    values = [points[:, order.index(k)] for k in range(len(variables))]
    dims, symbols = values[: len(m.dims)], values[len(m.dims) :]
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    index = [np.broadcast_to(x, (len(points),)) for x in m.evaluate(dims, symbols)]
    address = itemsize_bytes * sum((i * s for i, s in zip(index, strides, strict=True)), np.zeros(len(points), np.int64))
    lines = address // line_bytes
    resident: dict[int, None] = {}
    misses = []
    for k, line in enumerate(lines.tolist()):
        if resident.pop(line, 0) == 0:
            misses.append(k)
            if len(resident) >= cache_lines_count:
                resident.pop(next(iter(resident)))
        resident[line] = None
    useful = len(np.unique(address)) * itemsize_bytes
    picture = figure(6.5, 3.6)
    axes = picture.subplots()
    axes.plot(np.arange(len(lines)), lines, ".", markersize=2, color="#9fb3c8", label="touched")
    axes.plot(misses, lines[misses], ".", markersize=4, color=_READ, label="fetched")
    names = ", ".join(str(variables[k]) for k in order)
    share = min(1.0, useful / (len(misses) * line_bytes)) if misses else 1.0
    fetched = f"{len(misses)} lines fetched in {len(lines)} iterations, {share:.0%} of their bytes used"
    axes.set_title(f"loops {names}: {fetched}", fontsize=9)
    axes.set_xlabel("iteration")
    axes.set_ylabel(f"line of {line_bytes} bytes")
    axes.legend(fontsize=8)
    return picture


# ---------------------------------------------------------------- from a program


OF_ONE_OP = ("reads", "lines")
"""The kinds of pictures that show an op and not a plan."""


def picked_op(function: Function, op: str | None = None) -> tuple[int, Op, int]:
    """(number, op, how many there are to choose from) of the op that a picture shows: the first that `op` names, else the last.

    Raises PictureError where none reads through maps.
    """
    from tilewright.commands.programs import chosen_ops

    found = [(k, o) for k, o in chosen_ops(function, op) if o.operands and not isinstance(o.definition.access, Declined)]
    if not found:
        raise PictureError("no op that reads operands through maps")
    return *found[0 if op is not None else -1], len(found)


def from_program(kind: str, module: Module, function: Function, op: str | None = None, at: Sequence[int] | None = None) -> Any:
    """The picture `kind` ("reads", "tiles", "graph", "roofline", "lines", "mesh") of a program. Raises PictureError."""
    kinds = ("reads", "tiles", "graph", "roofline", "lines", "mesh")
    if kind not in kinds:
        raise PictureError(f"expected one of {', '.join(kinds)}, found {kind!r}")
    _expect("the program", module, Module)
    if kind == "mesh":
        return mesh_picture(partition(module, function.name))
    if kind in OF_ONE_OP:
        _, picked, _ = picked_op(function, op)
        if kind == "reads":
            return reads(picked, at)
        source = picked.operands[0].tensor
        return cache_lines(output_to_input(picked)[0][0], source.static_shape, source.dtype.itemsize)
    import codegen
    import tiling

    plan = tiling.plan(module, function.name, codegen.calibrated_machine(), codegen.supports)
    if kind == "graph":
        return fusion_graph(plan)
    if not plan.fusions:
        raise PictureError("the plan has no kernels to draw")
    return roofline(plan) if kind == "roofline" else tile_grid(max(plan.fusions, key=lambda f: f.bytes_unfused))
