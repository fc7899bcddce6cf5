"""Graphs drawn in rows: what flows from where to where, and how much.

A row of nodes for each level; edges over several rows pass between the nodes of those in the middle. Within a row, nodes stand
where their neighbours are, as far as nobody is pushed aside (least squares with the nodes' widths as distances).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hlo.module import Value
from hlo.types import TensorType
from tilewright.commands.report import ops_text
from tilewright.drawing.figures import INK, PictureError, bytes_label, figure

if TYPE_CHECKING:
    from tiling import Plan

__all__ = ["Graph", "fusion_graph"]

_SHOWN = 4  # arguments of one reader, or results of one step, that have a box each
_LINE, _CHARACTER, _PAD = 0.135, 0.061, 0.12  # inches, of text of 7 points
_GAP, _BEND, _BETWEEN = 0.3, 0.3, 0.62
_COLOURS = {"kernel": "#cfe0ef", "evaluator": "#f7dcd8", "library": "#dfeedd", "argument": "#f4f4f4"}


@dataclass
class Graph:
    """Nodes with a label, a kind and a level (only their order counts), and edges with a size."""

    labels: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    levels: dict[str, float] = field(default_factory=dict)
    edges: list[tuple[str, str, int]] = field(default_factory=list)

    def add(self, key: str, label: str, kind: str, level: float) -> None:
        self.labels[key], self.kinds[key], self.levels[key] = label, kind, level

    def size_of(self, key: str) -> tuple[float, float]:
        """Width and height of a node's box in inches."""
        lines = self.labels[key].split("\n")
        return max(map(len, lines)) * _CHARACTER + 2 * _PAD, len(lines) * _LINE + 2 * _PAD

    def places(self) -> tuple[dict[str, tuple[float, float]], list[list[tuple[float, float]]]]:
        """(the middle of each node, the points that each edge passes on its way), in inches, rows downwards from 0.

        >>> g = Graph()
        >>> for key, level in (("a", 0), ("b", 1), ("c", 2)):
        ...     g.add(key, key, "kernel", level)
        >>> g.edges += [("a", "b", 1), ("b", "c", 1), ("a", "c", 1)]
        >>> places, (short, _, long) = g.places()
        >>> len(short), len(long), long[1][0] != places["b"][0]
        (2, 4, True)
        """
        ranks = {level: k for k, level in enumerate(sorted(set(self.levels.values())))}
        rows: list[list[str]] = [[] for _ in ranks]
        wide = {key: self.size_of(key)[0] + _GAP for key in self.labels}
        for key, level in self.levels.items():
            rows[ranks[level]].append(key)
        near: dict[str, list[str]] = {key: [] for key in self.labels}
        chains = []
        for n, (a, b, _) in enumerate(self.edges):
            first, last = ranks[self.levels[a]], ranks[self.levels[b]]
            between = [f"{n}/{r}" for r in range(first + 1, last)]
            for r, bend in enumerate(between, first + 1):
                rows[r].append(bend)
                wide[bend], near[bend] = _BEND, []
            chain = [a, *between, b]
            for above, below in itertools.pairwise(chain):
                near[above].append(below)
                near[below].append(above)
            chains.append(chain)
        x = self._columns(rows, near, wide)
        tall = [max((self.size_of(k)[1] for k in row if k in self.labels), default=0.0) for row in rows]
        y: dict[str, float] = {}
        down = 0.0
        for row, height in zip(rows, tall, strict=True):
            for key in row:
                y[key] = down - height / 2
            down -= height + _BETWEEN
        found = {key: (x[key], y[key]) for key in self.labels}
        half = {key: height / 2 for row, height in zip(rows, tall, strict=True) for key in row}
        ways = []
        for a, *bends, b in chains:  # straight down beside the boxes of a row, so that no curve touches them
            beside = [(x[k], y[k] + side * half[k]) for k in bends for side in (1, -1)]
            ways.append([found[a], *beside, found[b]])
        return found, ways

    def _columns(self, rows: list[list[str]], near: Mapping[str, list[str]], wide: Mapping[str, float]) -> dict[str, float]:
        x: dict[str, float] = {}
        for row in rows:
            x.update(zip(row, _apart([0.0] * len(row), [wide[k] for k in row]), strict=True))
        for turn in range(12):
            for row in rows if turn % 2 == 0 else reversed(rows):
                wish = {k: sum(x[n] for n in near[k]) / len(near[k]) if near[k] else x[k] for k in row}
                row.sort(key=wish.__getitem__)  # stable: equals stay in the order of the program
                x.update(zip(row, _apart([wish[k] for k in row], [wide[k] for k in row]), strict=True))
        return x

    def draw(self) -> Any:
        """The graph as a figure; data coordinates are inches."""
        from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
        from matplotlib.path import Path

        places, ways = self.places()
        sizes = {key: self.size_of(key) for key in self.labels}
        bends = [x for way in ways for x, _ in way]
        left = min([x - sizes[k][0] / 2 for k, (x, _) in places.items()] + bends, default=0) - 0.2
        right = max([x + sizes[k][0] / 2 for k, (x, _) in places.items()] + bends, default=1) + 0.2
        bottom = min((y - sizes[k][1] / 2 for k, (_, y) in places.items()), default=-1) - 0.2
        picture = figure(right - left, 0.2 - bottom, layout=None)
        axes = picture.add_axes((0, 0, 1, 1))
        axes.set_xlim(left, right)
        axes.set_ylim(bottom, 0.2)
        axes.axis("off")
        largest = max((b for _, _, b in self.edges), default=1) or 1
        for (a, b, size), way in zip(self.edges, ways, strict=True):
            start, end = (way[0][0], way[0][1] - sizes[a][1] / 2), (way[-1][0], way[-1][1] + sizes[b][1] / 2 + 0.02)
            start, end = _ports(start, way[1][0], sizes[a][0]), _ports(end, way[-2][0], sizes[b][0])
            points = [start, *way[1:-1], end]
            path, codes = [points[0]], [Path.MOVETO]
            for (x0, y0), (x1, y1) in itertools.pairwise(points):
                path += [(x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2), (x1, y1)]
                codes += [Path.CURVE4] * 3
            axes.add_patch(FancyArrowPatch(path=Path(path, codes), arrowstyle="-|>", mutation_scale=8, color=INK,
                                           linewidth=0.8 + 3 * size / largest, zorder=1))  # fmt: skip
            at = (points[0][0] + points[1][0]) / 2, (points[0][1] + points[1][1]) / 2
            axes.text(*at, bytes_label(size), fontsize=7, ha="center", va="center", zorder=2,
                      bbox={"facecolor": "#f4f4f4", "edgecolor": "none", "boxstyle": "round,pad=0.15"})  # fmt: skip
        for key, label in self.labels.items():
            (x, y), (width, height), kind = places[key], sizes[key], self.kinds[key]
            axes.add_patch(FancyBboxPatch(
                (x - width / 2 + 0.05, y - height / 2 + 0.05), width - 0.1, height - 0.1, boxstyle="round,pad=0.05",
                facecolor=_COLOURS[kind], edgecolor="#5c6b78", linestyle="--" if kind == "evaluator" else "-", zorder=3,
            ))  # fmt: skip
            axes.text(x, y, label, ha="center", va="center", fontsize=7, parse_math=False, zorder=4)
        return picture


def _ports(at: tuple[float, float], towards: float, width: float) -> tuple[float, float]:
    """Where an edge meets a box: nearer to where it comes from than the middle, so that edges do not lie on each other."""
    reach = width / 2 - 0.1
    return at[0] + min(max((towards - at[0]) * 0.5, -reach), reach), at[1]


def _apart(wish: Sequence[float], wide: Sequence[float]) -> list[float]:
    """The places nearest to `wish` (least squares) that keep this order and the widths' distances.

    >>> _apart([0.0, 0.0], [1.0, 3.0])
    [-1.0, 1.0]
    """
    offsets = [0.0]
    for a, b in itertools.pairwise(wide):
        offsets.append(offsets[-1] + (a + b) / 2)
    blocks: list[tuple[float, int]] = []  # (mean, how many) of places that touch
    for x, o in zip(wish, offsets, strict=False):
        blocks.append((x - o, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (m, n), (p, q) = blocks[-2:]
            blocks[-2:] = [((m * n + p * q) / (n + q), n + q)]
    means = [m for m, n in blocks for _ in range(n)]
    return [m + o for m, o in zip(means, offsets, strict=False)]


def fusion_graph(plan: Plan) -> Any:
    """Kernels (boxes), what libraries run (green) or the evaluator (dashed), and the bytes that flow along each edge.

    Of the arguments that one step alone reads, and of the results that one step makes, the largest have a box each.
    """
    from tiling import EvaluatorStep, Fusion, Plan
    from tiling.show.text import count

    if not isinstance(plan, Plan):
        raise PictureError(f"a graph: expected Plan, found {type(plan).__name__}")
    graph = Graph()
    home: dict[Value, str] = {}
    readers: dict[Value, list[str]] = {v: [] for v in plan.program.arguments}
    for number, step in enumerate(plan.steps):
        key = f"step {number}"
        if isinstance(step, Fusion):
            tiles = "×".join(map(str, step.tile_sizes)) or "-"
            summary = ops_text([op.name for op in step.ops])
            summary = summary if len(summary) < 44 else summary[:42] + "…"
            label, kind = f"{step.name}\n{summary}\ntiles {tiles}, scratch {bytes_label(step.scratch_bytes)}", "kernel"
            inputs, outputs = step.inputs, step.outputs
        elif isinstance(step, EvaluatorStep):
            label, kind = f"{step.name}\n{step.op.name}{', ' + step.library if step.library else ''}", "evaluator"
            kind = "library" if step.library else kind
            inputs, outputs = tuple(step.op.operands), tuple(step.op.results)
        else:
            inside = sum(len(p.fusions) for r in step.regions for p in r.plan.nested())
            label, kind = f"{step.name}\n{step.op.name}\n{count(inside, 'kernel')} inside", "kernel"
            inputs, outputs = tuple(step.reads), tuple(step.op.results)
        inputs = tuple(dict.fromkeys(inputs))
        graph.add(key, label, kind, 1 + max((graph.levels[home[v]] for v in inputs if v in home), default=0))
        for v in inputs:
            if v in home:
                graph.edges.append((home[v], key, _size(v)))
            elif v in readers:
                readers[v].append(key)
        home.update(dict.fromkeys(outputs, key))
    last = 1 + max(graph.levels.values(), default=0)
    alone: dict[str, list[Any]] = {}
    for k, v in enumerate(plan.program.arguments):
        read_by = readers[v]
        home[v] = f"argument {k}"
        if len(read_by) == 1 and not any(v is r for r in plan.program.results):
            alone.setdefault(read_by[0], []).append(v)
            continue
        level = min((graph.levels[r] for r in read_by), default=last)
        unread = "" if read_by or any(v is r for r in plan.program.results) else "\nnot read"
        graph.add(home[v], f"%{v.name}\n{v.type}{unread}", "argument", level - 0.5)
        graph.edges += [(home[v], r, _size(v)) for r in read_by]
    for key, values in alone.items():
        for label, size in _boxes([(f"%{v.name}\n{v.type}", _size(v)) for v in values], "arguments"):
            mine = f"{key} reads {label}"
            graph.add(mine, label, "argument", graph.levels[key] - 0.5)
            graph.edges.append((mine, key, size))
    made: dict[str, list[tuple[str, int]]] = {}
    for k, v in enumerate(plan.program.results):
        made.setdefault(home.get(v, ""), []).append((f"result {k}\n{v.type}", _size(v)))
    for key, results in made.items():
        for label, size in _boxes(results, "results"):
            graph.add(f"{key} gives {label}", label, "argument", last)
            if key:
                graph.edges.append((key, f"{key} gives {label}", size))
    return graph.draw()


def _boxes(values: list[tuple[str, int]], what: str) -> list[tuple[str, int]]:
    """The labels and sizes of boxes: one for each value, or for the largest few and for all the others together."""
    if len(values) <= _SHOWN:
        return values
    order = sorted(range(len(values)), key=lambda k: -values[k][1])
    shown = set(order[: _SHOWN - 1])
    rest = [values[k][1] for k in order[_SHOWN - 1 :]]
    return [*(values[k] for k in sorted(shown)), (f"{len(rest)} more {what}\n{bytes_label(sum(rest))}", sum(rest))]


def _size(v: Any) -> int:
    return int(v.type.size_bytes) if isinstance(v.type, TensorType) and v.type.is_static else 0
