"""Plans and schedules as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from tiling.show import amount, count, members, op_summary

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
    """A plan: kernels and other steps as a table, then each kernel's loops, what is stored and why, and every decision.

    Plans of regions follow that of the program around them.
    """
    return f"<p>{escape(str(plan.machine))}</p>" + "".join(_one_plan(p, p is plan) for p in plan.nested())


def _one_plan(plan: Plan, is_outermost: bool) -> str:
    from tiling.plan import ControlStep, Fusion

    rows, loops = "", ""
    for step in plan.steps:
        cells: tuple[str, ...]
        if isinstance(step, Fusion):
            with_loops, in_place = members(step, plan)
            tiles = " × ".join(map(str, step.tile_sizes)) or "-"
            sizes = map(amount, (step.scratch_bytes, step.bytes_unfused, step.bytes_fused))
            cells = (
                step.name, op_summary(step.ops), ", ".join(with_loops), tiles, *sizes, f"{step.estimate.seconds * 1e6:.1f}",
            )  # fmt: skip
            facts = f"computed where they are read: {in_place or 'nothing'}\npredicted {step.estimate}\n{step.schedule}"
            loops += source_to_html(step.name, facts)
        elif isinstance(step, ControlStep):
            cells = (step.name, step.op.name, count(len(step.regions), "region"), "", "", "", "", "")
        else:
            cells = (step.name, step.op.name, f"{step.library or 'evaluator'}: {step.reason}", "", "", "", "", "")
        rows += _row(cells)
    head = _row(("kernel", "ops", "loops for", "tiles", "scratch", "moved op by op", "moved", "predicted µs"), "th")
    edges = "".join(
        _row((e.producer, e.consumer, ", ".join(e.values), amount(e.size_bytes), e.kind, e.reason, e.witness)) for e in plan.edges
    )
    between = _row(("from", "to", "values", "size", "kind", "reason", "witness"), "th")
    decisions = "".join(
        f"<li>{escape(d.producer)} → {escape(d.consumer)}: {'fused' if d.fused else 'apart'}, {escape(d.reason)}</li>"
        for d in plan.decisions
    )
    title = "" if is_outermost else f"<h4>{escape(plan.program.name)}</h4>"
    stored = f"<details open><summary>stored between kernels</summary><table>{between}{edges}</table></details>" if edges else ""
    return (
        f"{title}<table>{head}{rows}</table>{loops}{stored}<details><summary>decisions</summary><ul>{decisions}</ul></details>"
    )


def _row(cells: Sequence[str], kind: str = "td") -> str:
    return "<tr>" + "".join(f"<{kind}>{escape(c)}</{kind}>" for c in cells) + "</tr>"
