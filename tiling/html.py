"""Plans and schedules as HTML, for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tiling.show import op_summary

if TYPE_CHECKING:
    from tiling.plan import Plan
    from tiling.schedule import Schedule

__all__ = ["plan_to_html", "schedule_to_html", "source_to_html"]


def source_to_html(title: str, text: str) -> str:
    """Text under a title that opens and closes.

    >>> source_to_html("k", "a < b")
    '<details><summary>k</summary><pre>a &lt; b</pre></details>'
    """
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def schedule_to_html(schedule: Schedule) -> str:
    """A schedule: its buffers as a table, its loops as text."""
    rows = "".join(
        f"<tr><td>{escape(b.name)}</td><td>{escape(b.scope.name.lower())}</td>"
        f"<td>{escape(str(b.element))}[{', '.join(map(str, b.shape))}]</td><td>{b.size_bytes}</td></tr>"
        for b in schedule.buffers
    )
    head = "<tr><th>buffer</th><th>scope</th><th>holds</th><th>bytes</th></tr>"
    return f"<table>{head}{rows}</table><pre>{escape(str(schedule))}</pre>"


def plan_to_html(plan: Plan) -> str:
    """A plan: its kernels and evaluator steps as a table, then every decision with its reason."""
    from tiling.plan import ControlStep, Fusion

    rows = ""
    for step in plan.steps:
        if isinstance(step, Fusion):
            tiles = " × ".join(map(str, step.tile_sizes)) or "-"
            sizes = map(str, (step.scratch_bytes, step.bytes_unfused, step.bytes_fused))
            cells: tuple[str, ...] = (step.name, op_summary(step.ops), tiles, *sizes)
        elif isinstance(step, ControlStep):
            cells = (step.name, step.op.name, f"{len(step.regions)} regions", "", "", "")
        else:
            cells = (step.name, step.op.name, "evaluator: " + step.reason, "", "", "")
        rows += "<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>"
    names = ("kernel", "ops", "tiles", "scratch bytes", "bytes unfused", "bytes fused")
    head = "<tr>" + "".join(f"<th>{n}</th>" for n in names) + "</tr>"
    edges = "".join(
        f"<li>{escape(d.producer)} → {escape(d.consumer)}: {'fused' if d.fused else 'apart'}, {escape(d.reason)}</li>"
        for d in plan.decisions
    )
    whole = source_to_html("explanation", plan.explain())
    return f"<table>{head}{rows}</table><details open><summary>decisions</summary><ul>{edges}</ul></details>{whole}"
