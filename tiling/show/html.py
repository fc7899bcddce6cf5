"""Tiles, plans and schedules as HTML, for notebooks. Whatever comes from a program is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from hlo.display import as_html
from hlo.errors import Declined
from indexing.show.display import html_table
from tiling.loops.ir import Schedule
from tiling.loops.text import show_phases
from tiling.planning.model import ControlStep, Fusion, Plan
from tiling.show.text import members
from tiling.tiles.analysis import TileAnalysis, TiledValue
from tiling.tiles.constraints import TileConstraints
from tiling.tiles.space import Tile, TilingSpace
from tiling.tiles.symbolic import SymbolicTile
from tiling.words import amount, count, op_summary

__all__ = [
    "analysis_to_html",
    "fusion_to_html",
    "plan_to_html",
    "schedule_to_html",
    "source_to_html",
    "space_to_html",
    "symbolic_tile_to_html",
    "text_to_html",
    "tile_to_html",
    "tiled_value_to_html",
]


def text_to_html(text: str) -> str:
    """Text as it stands; some notebooks' style sheets take the fixed width and the long lines from `pre`.

    >>> print(text_to_html("a < b"))
    <pre style="font-family:monospace;white-space:pre;overflow-x:auto">a &lt; b</pre>
    """
    return f'<pre style="font-family:monospace;white-space:pre;overflow-x:auto">{escape(text)}</pre>'


def source_to_html(title: str, text: str, is_open: bool = False) -> str:
    """Text under a title that opens and closes."""
    return f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>{text_to_html(text)}</details>"


def schedule_to_html(schedule: Schedule) -> str:
    """A schedule: its buffers as a table, its loops as text."""
    rows = [
        (b.name, b.scope.name.lower(), f"{b.element}[{', '.join(map(str, b.shape))}]", f"({', '.join(map(str, b.origin))})",
         amount(b.size_bytes))
        for b in schedule.buffers
    ]  # fmt: skip
    return html_table(rows, ("buffer", "scope", "holds", "from", "size")) + text_to_html(show_phases(schedule))


def fusion_to_html(fusion: Fusion) -> str:
    """A fusion: its ops, what it moves, and its schedule."""
    facts = [
        ("ops", op_summary(fusion.ops)),
        ("tiles", " × ".join(map(str, fusion.tile_sizes)) or "-"),
        ("moved", f"{amount(fusion.bytes_fused)}; op by op {amount(fusion.bytes_unfused)}"),
        ("predicted", str(fusion.estimate)),
    ]
    return html_table(facts, title=fusion.name) + schedule_to_html(fusion.schedule)


# ---------------------------------------------------------------- tiles


_TILE_HEAD = ("dimension", "offset", "size", "stride", "indices lie in")


def _tile_rows(offsets: Sequence[object], sizes: Sequence[object], strides: Sequence[object], bounds: Sequence[object]) -> Any:
    rows = zip(offsets, sizes, strides, bounds, strict=True)
    return [(str(k), *map(str, r)) for k, r in enumerate(rows)]


def _conditions(constraints: TileConstraints, is_exact: bool) -> str:
    where = "" if constraints.is_always_met else f"<p>where <code>{escape(str(constraints))}</code></p>"
    return where + ("" if is_exact else "<p>covers what is read, and more</p>")


def symbolic_tile_to_html(tile: SymbolicTile) -> str:
    """A symbolic tile: a row for each dimension of what is read, then what the sizes have to meet."""
    offsets, steps, strides = ([w.text for w in m.written] for m in (tile.offset_map, tile.size_map, tile.stride_map))
    sizes = ", ".join(f"{v.var} in {v.interval}" for v in tile.sizes)
    rts = "".join(f", {v.var} in {v.interval}" for v in tile.runtimes)
    rows = _tile_rows(offsets, steps, strides, tile.bounds)
    table = html_table(rows, _TILE_HEAD, f"tile of sizes {sizes}{rts}" if sizes else "tile")
    return table + _conditions(tile.constraints, tile.is_exact)


def space_to_html(space: TilingSpace) -> str:
    """A tiling space: a row for each dimension and each runtime value."""
    return html_table([line.split(": ", 1) for line in str(space).splitlines()], ("variable", "what it is"))


def tile_to_html(tile: Tile) -> str:
    """A tile in tile numbers and sizes: a row for each dimension of the tensor."""
    names = ", ".join(f"{d.tile_id}, {d.tile_size}" for d in tile.dimensions)
    rows = _tile_rows(tile.offsets, tile.sizes, tile.strides, tile.bounds)
    table = html_table(rows, _TILE_HEAD, f"tile in {names}" if names else "tile")
    return table + _conditions(tile.constraints, tile.is_exact)


def tiled_value_to_html(tiled: TiledValue) -> str:
    """A value of a tile analysis: its map and its symbolic tile."""
    tile = tiled.tile
    text = f"<em>no symbolic tile: {escape(tile.reason)}</em>" if isinstance(tile, Declined) else symbolic_tile_to_html(tile)
    return f"<p><code>{escape(repr(tiled.value))}</code></p>{tiled.map._repr_html_()}{text}"


def analysis_to_html(analysis: TileAnalysis) -> str:
    """A tile analysis: its space, then each value's tile in a row, the root's first."""
    rows: list[tuple[str, ...]] = []
    for t in analysis.values:
        tile = analysis.tile(t)
        name = f"%{t.value.name or '?'}"
        if isinstance(tile, Declined):
            rows.append((name, str(t.value.type), tile.reason, "", "", ""))
            continue
        parts = [f"[{', '.join(map(str, p))}]" for p in (tile.offsets, tile.sizes, tile.strides)]
        where = "" if tile.constraints.is_always_met else str(tile.constraints)
        rows.append((name, str(t.value.type), *parts, where))
    apart = "".join(f"<p>%{escape(v.name or '?')} has tiles of its own: {escape(why.reason)}</p>" for v, why in analysis.apart)
    head = ("value", "type", "offsets", "sizes", "strides", "where")
    return space_to_html(analysis.space) + html_table(rows, head) + apart


# ---------------------------------------------------------------- plans


def plan_to_html(plan: Plan) -> str:
    """A plan: kernels and other steps as a table, then each kernel's loops, what is stored and why, and every decision.

    Plans of regions follow that of the program around them.
    """
    return f"<p>{escape(str(plan.machine))}</p>" + "".join(_one_plan(p, p is plan) for p in plan.nested())


def _one_plan(plan: Plan, is_outermost: bool) -> str:
    rows: list[tuple[str, ...]] = []
    loops = ""
    for step in plan.steps:
        if isinstance(step, Fusion):
            with_loops, in_place = members(step, plan)
            tiles = " × ".join(map(str, step.tile_sizes)) or "-"
            sizes = map(amount, (step.scratch_bytes, step.bytes_unfused, step.bytes_fused))
            predicted = step.estimate.figure(step.estimate.seconds)
            rows.append((step.name, op_summary(step.ops), _few(with_loops), tiles, *sizes, predicted))
            facts = f"computed where they are read: {in_place or 'nothing'}\npredicted {step.estimate}\n{step.schedule}"
            loops += source_to_html(step.name, facts)
        elif isinstance(step, ControlStep):
            rows.append((step.name, step.op.name, count(len(step.regions), "region"), "", "", "", "", ""))
        else:
            rows.append((step.name, step.op.name, f"{step.library or 'evaluator'}: {step.reason}", "", "", "", "", ""))
    head = ("kernel", "ops", "loops for", "tiles", "scratch", "moved op by op", "moved", "predicted")
    edges = [(e.producer, e.consumer, _few(e.values), amount(e.size_bytes), e.kind, e.reason, e.witness) for e in plan.edges]
    between = ("from", "to", "values", "size", "kind", "reason", "witness")
    decisions = "".join(
        f"<li>{escape(d.producer)} → {escape(d.consumer)}: {'fused' if d.fused else 'apart'}, {escape(d.reason)}</li>"
        for d in plan.decisions
    )
    title = "" if is_outermost else f"<h4>{escape(plan.program.name)}</h4>"
    stored = f"<details open><summary>stored between kernels</summary>{html_table(edges, between)}</details>" if edges else ""
    why = f"<details><summary>decisions</summary><ul>{decisions}</ul></details>" if decisions else ""
    return f"{title}{html_table(rows, head)}{loops}{stored}{why}"


def _few(names: Sequence[str], limit: int = 12) -> str:
    """Names in a row; of many the first, and how many more there are."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")


as_html.register(Schedule, schedule_to_html)
as_html.register(Fusion, fusion_to_html)
as_html.register(Plan, plan_to_html)
as_html.register(SymbolicTile, symbolic_tile_to_html)
as_html.register(TilingSpace, space_to_html)
as_html.register(Tile, tile_to_html)
as_html.register(TiledValue, tiled_value_to_html)
as_html.register(TileAnalysis, analysis_to_html)
