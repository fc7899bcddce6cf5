"""Plans as text and as data for people and programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hlo.display import as_document, as_text
from hlo.errors import Declined
from hlo.types import TensorType
from tiling.loops.ir import Schedule
from tiling.loops.text import show_schedule, wrapped
from tiling.mesh.groups import COLLECTIVES, traffic_of
from tiling.planning.model import ControlStep, EvaluatorStep, Fusion, Plan, summary
from tiling.words import amount, count, op_summary

__all__ = ["amount", "count", "members", "op_summary", "plan_data", "plan_document", "show_plan", "show_schedule", "summary"]


def members(f: Fusion, plan: Plan) -> tuple[list[str], str]:
    """(the values with loops of their own, the ops computed where they are read) of a fusion."""
    with_loops = [plan.names.of(v) for s in f.stages for v in s.values]
    own = {s.op for s in f.stages}
    return with_loops, op_summary([op for op in f.ops if op not in own])


def show_plan(plan: Plan) -> str:
    """Each kernel with its facts; control flow with its regions; what is stored between kernels; each decision."""
    lines = [f"machine: {plan.machine}", summary(plan), ""]
    lines += _steps(plan)
    for p in plan.nested():
        inside = "" if p is plan else f" in {p.program.name}"
        if p.edges:
            lines.append(f"stored between kernels{inside}")
        for e in p.edges:
            lines.append(f"  {e.producer} -> {e.consumer}: {', '.join(e.values)}, {amount(e.size_bytes)}")
            lines += wrapped("    ", f"{e.kind}:", e.reason)
            if e.witness:
                lines += wrapped("    ", "witness:", e.witness)
        if p.decisions:
            lines.append(f"decisions{inside}, in the order in which they were taken")
        for d in p.decisions:
            lines.append(f"  {d.producer} {'into' if d.fused else 'not into'} {d.consumer}: {d.reason}")
    return "\n".join(lines).rstrip()


def _steps(plan: Plan) -> list[str]:
    """The steps in the order in which they run; regions are indented."""
    lines: list[str] = []
    for step in plan.steps:
        if isinstance(step, EvaluatorStep):
            where = step.library or "the evaluator"
            lines += [f"{step.name}: {step.op.name} runs in {where}: {step.reason}", *_traffic(step), ""]
        elif isinstance(step, ControlStep):
            lines += _control(step, plan)
        else:
            lines += [*_fusion(step, plan), ""]
    for r in plan.reuses:
        source, target = plan.names.of(r.source), plan.names.of(r.target)
        how = "" if r.shared else f", after a copy: {r.reason}"
        lines.append(f"{target} is written over {source}{how}")
    return [*lines, ""] if plan.reuses else lines


def _traffic(step: EvaluatorStep) -> list[str]:
    """What a collective sends, and among whom."""
    if step.op.name not in COLLECTIVES:
        return []
    traffic = traffic_of(step.op)
    size = sum(v.tensor.size_bytes for v in step.op.operands if isinstance(v.type, TensorType) and v.type.is_static)
    told = f"{amount(size)} of each process; {traffic.reason}" if isinstance(traffic, Declined) else str(traffic)
    return wrapped("  ", "between processes:", told)


def _fusion(f: Fusion, plan: Plan) -> list[str]:
    with_loops, in_place = members(f, plan)
    lines = [f"{f.name}: {count(len(f.ops), 'op')} ({op_summary(f.ops)})"]
    rest = f"; computed where they are read: {in_place}" if in_place else ""
    lines += wrapped("  ", "loops for", ", ".join(with_loops) + rest)
    lines.append(f"  tile sizes {list(f.tile_sizes)} of {list(f.stages[-1].values[0].shape)}, best of {f.candidates}")
    lines.append(
        f"  scratch {amount(f.scratch_bytes)} ({amount(f.schedule.thread_scratch_bytes)} a thread, "
        f"{amount(f.schedule.shared_scratch_bytes)} shared); moves {amount(f.bytes_fused)}, {amount(f.bytes_unfused)} op by op"
    )
    lines.append(f"  predicted {f.estimate}")
    for note in f.schedule.notes:
        lines += wrapped("  ", note.partition(":")[0] + ":", note.partition(": ")[2])
    return lines + ["    " + x for x in show_schedule(f.schedule).splitlines()]


_WAYS = {"invariant": "never changes", "in place": "is updated in place", "exchanged": "changes places with its new value",
         "copied": "is copied"}  # fmt: skip


def _control(step: ControlStep, plan: Plan) -> list[str]:
    often = "" if not step.is_loop else f", {step.trips} times" if step.trips is not None else ", as often as its condition holds"
    lines = [f"{step.name}: {step.op.definition.mnemonic}{often}"]
    for c, operand in zip(step.carries, step.op.operands, strict=False):
        start = ", in its first value's memory" if c.takes_over else ""
        lines.append(f"  {plan.names.of(operand)}: {c.argument.type} {_WAYS[c.how]}{start}")
    for r in step.regions:
        lines.append(f"  {r.plan.program.name}:")
        lines += ["    " + x if x else x for x in _steps(r.plan)]
        if not r.plan.steps:
            lines.append("    nothing to compute")
    return [*lines, ""]


def _control_document(step: ControlStep) -> dict[str, Any]:
    carried = [{"type": str(c.argument.type), "how": c.how, "takes_over": c.takes_over} for c in step.carries]
    return {
        "kind": "control", "name": step.name, "op": step.op.name, "trips": step.trips, "carried": carried,
        "regions": [plan_data(r.plan) for r in step.regions],
    }  # fmt: skip


def plan_document(plan: Plan) -> dict[str, Any]:
    """The document tilewright.plan/1, JSON-ready: the plan's data, a row for each kernel (also of regions), and the text."""
    rows = [
        {
            "name": f.name, "ops": [op.name for op in f.ops], "tile_sizes": list(f.tile_sizes), "scratch_bytes": f.scratch_bytes,
            "bytes_unfused": f.bytes_unfused, "bytes_fused": f.bytes_fused,
        }
        for p in plan.nested() for f in p.fusions
    ]  # fmt: skip
    return {**plan_data(plan), "entry": plan.program.name, "fusions": rows, "explanation": show_plan(plan)}


def plan_data(plan: Plan) -> dict[str, Any]:
    """The plan as JSON-ready data, with the same content as the text: steps, edges, decisions."""
    steps: list[dict[str, Any]] = []
    for step in plan.steps:
        if isinstance(step, ControlStep):
            steps.append(_control_document(step))
            continue
        if isinstance(step, EvaluatorStep):
            kind = "library" if step.library else "evaluator"
            steps.append({"kind": kind, "name": step.name, "op": step.op.name, "reason": step.reason})
            continue
        f = step
        steps.append(
            {
                "kind": "fusion",
                "name": f.name,
                "ops": [op.name for op in f.ops],
                "stages": members(f, plan)[0],
                "results": [plan.names.of(v) for v in f.outputs],
                "reads": [plan.names.of(v) for v in f.inputs],
                "tile_sizes": list(f.tile_sizes),
                "shape": list(f.stages[-1].values[0].shape),
                "candidates": f.candidates,
                "scratch_bytes": f.scratch_bytes,
                "thread_scratch_bytes": f.schedule.thread_scratch_bytes,
                "shared_scratch_bytes": f.schedule.shared_scratch_bytes,
                "bytes_fused": f.bytes_fused,
                "bytes_unfused": f.bytes_unfused,
                "predicted_seconds": f.estimate.seconds,
                **({"predicted_unit": f.estimate.unit} if f.estimate.unit else {}),  # what a model counts in their place
                "notes": list(f.schedule.notes),
                **({"rows_at_a_time": f.schedule.rows_at_a_time} if f.schedule.rows_at_a_time > 1 else {}),
                "arithmetic_seconds": f.estimate.arithmetic_seconds,
                "traffic_seconds": f.estimate.traffic_seconds,
                "memory_bytes": f.estimate.memory_bytes,
                "schedule": show_schedule(f.schedule).splitlines(),
            }
        )
    decisions = [
        {"producer": d.producer, "consumer": d.consumer, "fused": d.fused, "reason": d.reason, "seconds_together": d.together,
         "seconds_apart": d.apart}
        for d in plan.decisions
    ]  # fmt: skip
    return {
        "schema": "tilewright.plan/1",
        "machine": str(plan.machine),
        "steps": steps,
        "edges": [asdict(e) for e in plan.edges],
        "decisions": decisions,
    }


as_text.register(Schedule, show_schedule)
as_text.register(Plan, show_plan)
as_document.register(Plan, plan_document)
