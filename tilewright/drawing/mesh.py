"""Programs over a mesh: which process holds which tile of each argument and result, and who sends how much to whom."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo.types import TensorType
from tilewright.drawing.figures import INK, PictureError, bytes_label, figure
from tiling.mesh.groups import bytes_between
from tiling.mesh.partition import Partitioned
from tiling.mesh.shardings import Sharding

__all__ = ["mesh_picture", "tiles_of"]

_MOST_PROCESSES = 64  # more are no longer told apart
_LABELS = 16  # numbers fit into the cells


def tiles_of(s: Sharding, t: TensorType, processes: int) -> list[tuple[tuple[int, int, int, int], list[int]]]:
    """((row, column, rows, columns), the processes that hold it) of each tile; leading dimensions are rows one after the other.

    >>> from hlo.types import ELEMENT_TYPES
    >>> from tiling.mesh.shardings import Digit
    >>> tiles_of(Sharding(((Digit(1, 2, "x"),), ())), TensorType((4, 6), ELEMENT_TYPES["f32"]), 4)
    [((0, 0, 2, 6), [0, 2]), ((2, 0, 2, 6), [1, 3])]
    """
    shape = t.static_shape
    wide = shape[-1] if shape else 1
    made: dict[tuple[int, int, int, int], list[int]] = {}
    for p in range(processes):
        slices = s.slices(shape, p)
        columns = (slices[-1].start, slices[-1].stop) if slices else (0, 1)
        rows, stride = [0], 1
        for k in range(len(shape) - 2, -1, -1):
            rows = [r + i * stride for i in range(slices[k].start, slices[k].stop) for r in rows]
            stride *= shape[k]
        for first in sorted(rows):
            if first - 1 not in rows:
                last = first
                while last + 1 in rows:
                    last += 1
                box = first, columns[0], last + 1 - first, columns[1] - columns[0]
                if min(box[2:]) > 0 and wide:
                    made.setdefault(box, []).append(p)
    return sorted(made.items())


def mesh_picture(made: Partitioned) -> Any:
    """The tiles of arguments and results with the processes that hold them, and a table of what each sends to each.

    Raises PictureError for more processes than can be told apart.

    >>> import hlo
    >>> from tiling.mesh.partition import partition
    >>> made = partition(hlo.parse('''module { sdy.mesh @m = <["x"=2]>
    ...   func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> tensor<f32> {
    ...     %z = stablehlo.constant dense<0.0> : tensor<f32>
    ...     %s = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0]
    ...       : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    ...     return %s : tensor<f32> } }'''))
    >>> bytes_between(made.module, 2).tolist()  # the table beside the tiles
    [[0, 4], [4, 0]]
    """
    n = made.mesh.size
    if n > _MOST_PROCESSES:
        raise PictureError(f"expected at most {_MOST_PROCESSES} processes, found {n}")
    rows = [(f"argument {k}", s, t) for k, (s, t) in enumerate(zip(made.arguments, made.argument_types, strict=True))]
    rows += [(f"result {k}", s, t) for k, (s, t) in enumerate(zip(made.results, made.result_types, strict=True))]
    sent = bytes_between(made.module, n)
    count = len(rows) + 1
    picture = figure(2.6 * min(count, 4), 2.8 * -(-count // 4))
    for k, (title, s, t) in enumerate(rows):
        axes = picture.add_subplot(-(-count // 4), min(count, 4), k + 1)
        _draw_tiles(axes, f"{title}: {t}\nas {s}", s, t, n)
    axes = picture.add_subplot(-(-count // 4), min(count, 4), count)
    axes.imshow(sent, cmap="Reds", vmin=0)
    axes.set_title(f"bytes sent, {bytes_label(int(sent.sum()))} in all", fontsize=8)
    axes.set_xlabel("to process", fontsize=7)
    axes.set_ylabel("from process", fontsize=7)
    axes.tick_params(labelsize=6)
    if n <= _LABELS:
        axes.set_xticks(range(n))
        axes.set_yticks(range(n))
        for a, b in zip(*np.nonzero(sent), strict=True):
            axes.text(b, a, bytes_label(int(sent[a, b])), ha="center", va="center", fontsize=5)
    return picture


def _draw_tiles(axes: Any, title: str, s: Sharding, t: TensorType, processes: int) -> None:
    shape = t.static_shape
    high, wide = (int(np.prod(shape[:-1])) if len(shape) > 1 else 1), (shape[-1] if shape else 1)
    for (row, column, rows, columns), holders in tiles_of(s, t, processes):
        shade = 0.25 + 0.6 * holders[0] / max(processes - 1, 1)
        box = [column, column + columns, column + columns, column], [row, row, row + rows, row + rows]
        axes.fill(*box, facecolor=(1 - shade, 1 - 0.6 * shade, 1.0 - 0.2 * shade), edgecolor=INK, linewidth=1)
        text = ", ".join(map(str, holders[:4])) + (", …" if len(holders) > 4 else "")
        axes.text(column + columns / 2, row + rows / 2, text, ha="center", va="center", fontsize=6)
    axes.set_xlim(0, max(wide, 1))
    axes.set_ylim(max(high, 1), 0)
    axes.set_title(title, fontsize=7)
    axes.tick_params(labelsize=6)
