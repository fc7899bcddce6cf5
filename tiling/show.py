"""Plans and schedules as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlo.module import Op
from indexing.expr import Const
from tiling.element import Apply, IndexNode, Load, Node, Scalar, Test
from tiling.schedule import ZERO, Contract, Measure, Nest, Ordering, Scatter, Schedule, Turn

if TYPE_CHECKING:
    from tiling.plan import ControlStep, Plan

__all__ = ["op_summary", "plan_document", "show_plan", "show_schedule"]


def op_summary(ops: Sequence[Op], limit: int = 6) -> str:
    """The mnemonics of some ops, those that compute first; the rest is counted."""
    names = [op.definition.mnemonic for op in ops]
    shown = list(dict.fromkeys(names))
    text = ", ".join(f"{n} x{names.count(n)}" if names.count(n) > 1 else n for n in shown[:limit])
    rest = sum(names.count(n) for n in shown[limit:])
    return text + (f", {rest} more" if rest else "")


def show_node(node: Node, depth: int = 4) -> str:
    """A node as an expression, cut below `depth`."""
    if isinstance(node, Load):
        name = node.buffer.name if node.buffer is not None else f"%{node.value.name or '?'}"
        return f"{name}[{', '.join(map(str, node.index))}]"
    if isinstance(node, Scalar):
        return str(node.value)
    if isinstance(node, IndexNode):
        return f"{node.element}({node.expression})"
    if depth == 0:
        return "…"
    if isinstance(node, Apply):
        return f"{node.function}({', '.join(show_node(a, depth - 1) for a in node.arguments)})"
    tests = " and ".join(f"{c.expression} in [{c.lower}, {c.upper}]" for c in node.conditions)
    if isinstance(node, Test):
        return f"({tests})"
    return f"({show_node(node.then, depth - 1)} if {tests} else {show_node(node.otherwise, depth - 1)})"


def show_schedule(schedule: Schedule) -> str:
    """The schedule as indented text: buffers, then each phase with its tasks, loops and what they compute."""
    lines = [str(b) for b in schedule.buffers]
    for k, phase in enumerate(schedule.phases):
        grid = " x ".join(f"{v} in [0, {n - 1}]" for v, n in phase.tiles) or "one task"
        lines.append(f"phase {k}: parallel {grid}" + (f", {phase.descending[0]} descending" if phase.descending else ""))
        lines += [f"  {flag}" for flag in phase.flags]
        for step in phase.steps:
            if isinstance(step, Turn):
                source, target = step.source.buffer.name, step.target.buffer.name
                lines.append(f"  {target}[{step.columns.variable}, {step.rows.variable}] = {source} turned")
                continue
            if isinstance(step, (Ordering, Scatter)):
                lines.append(f"  {step.op.name}")
                continue
            if isinstance(step, Measure):
                pieces = f"pieces of {step.size} elements of {step.source.name}"
                lines.append(f"  {step.target.name}[{step.piece}] = greatest magnitude in {pieces}")
                continue
            lines += ["  " + x for x in (_contract(step) if isinstance(step, Contract) else _nest(step))]
    return "\n".join(lines)


def _nest(nest: Nest) -> list[str]:
    lines = []
    for depth, loop in enumerate(nest.loops):
        lines.append("  " * depth + str(loop))
    pad = "  " * len(nest.loops)
    if nest.skip is not None:
        lines.append(f"{pad}{nest.skip}")
    for s in nest.stores:
        lines.append(f"{pad}{s.buffer.name}[{', '.join(map(str, s.index))}] = {show_node(s.node)}")
    for f in nest.folds:
        names = ", ".join(b.name for b in f.buffers)
        lines.append(f"{pad}{names}[{', '.join(map(str, f.index))}] fold= {', '.join(show_node(n) for n in f.nodes)}")
    return lines


def _contract(c: Contract) -> list[str]:
    lines = ["  " * k + str(x) for k, x in enumerate(c.loops)]
    pad = "  " * len(c.loops)
    if c.k > c.k_block:
        lines.append(f"{pad}for {c.k_start} in blocks of {c.k_block} below {c.k}")
        pad += "  "
    for nest in c.pack:
        lines += [pad + x for x in _nest(nest)]
    bounds = []
    if c.columns_lower is not ZERO or c.columns_upper is not Const(c.n - 1):
        bounds.append(f" columns [{c.columns_lower}, {c.columns_upper}]")
    if c.depth_upper is not None:
        bounds.append(f" k in [{c.depth_lower}, {c.depth_upper}]")
    lines.append(
        f"{pad}{c.out.buffer.name}[{c.m} x {c.n}] += {c.left.buffer.name}[{c.m} x {c.k}] * {c.right.buffer.name}[{c.k} x {c.n}]"
        f" in register blocks of {c.rows} x {c.columns}{','.join(bounds)}"
    )
    return lines


def show_plan(plan: Plan) -> str:
    """Each kernel with its ops, tiles, loops and traffic; control flow with its regions; each decision with its reason."""
    kernels = sum(len(p.fusions) for p in plan.nested())
    library = f", {len(plan.library)} in libraries" if plan.library else ""
    lines = [f"machine: {plan.machine}", f"{kernels} kernels, {len(plan.fallbacks)} ops in the evaluator{library}", ""]
    lines += _steps(plan)
    for p in plan.nested():
        if p.decisions:
            lines.append("decisions" if p is plan else f"decisions in {p.program.name}")
        for d in p.decisions:
            lines.append(f"  {d.producer} {'into' if d.fused else 'not into'} {d.consumer}: {d.reason}")
    return "\n".join(lines).rstrip()


def _steps(plan: Plan) -> list[str]:
    """The steps in the order in which they run; regions are indented."""
    from tiling.plan import ControlStep, EvaluatorStep

    lines: list[str] = []
    for step in plan.steps:
        if isinstance(step, EvaluatorStep):
            where = step.library or "the evaluator"
            lines += [f"{step.name}: {step.op.name} runs in {where}: {step.reason}", ""]
        elif isinstance(step, ControlStep):
            lines += _control(step, plan)
        else:
            f = step
            lines.append(f"{f.name}: {len(f.ops)} ops ({op_summary(f.ops)})")
            lines.append(f"  tile sizes {list(f.tile_sizes)} of {list(f.stages[-1].values[0].shape)}, best of {f.candidates}")
            lines.append(f"  scratch {f.scratch_bytes} bytes; moves {f.bytes_fused} bytes, {f.bytes_unfused} op by op")
            lines.append(f"  predicted {f.estimate}")
            lines += ["    " + x for x in show_schedule(f.schedule).splitlines()]
            lines.append("")
    for r in plan.reuses:
        source, target = plan.names.of(r.source), plan.names.of(r.target)
        how = "" if r.shared else f", after a copy: {r.reason}"
        lines.append(f"{target} is written over {source}{how}")
    return [*lines, ""] if plan.reuses else lines


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
        "regions": [plan_document(r.plan) for r in step.regions],
    }  # fmt: skip


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON-ready data, with the same content as the text."""
    from tiling.plan import ControlStep, EvaluatorStep

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
                "results": [plan.names.of(v) for v in f.outputs],
                "reads": [plan.names.of(v) for v in f.inputs],
                "tile_sizes": list(f.tile_sizes),
                "shape": list(f.stages[-1].values[0].shape),
                "candidates": f.candidates,
                "scratch_bytes": f.scratch_bytes,
                "bytes_fused": f.bytes_fused,
                "bytes_unfused": f.bytes_unfused,
                "predicted_seconds": f.estimate.seconds,
                "schedule": show_schedule(f.schedule).splitlines(),
            }
        )
    decisions = [
        {"producer": d.producer, "consumer": d.consumer, "fused": d.fused, "reason": d.reason, "seconds_together": d.together,
         "seconds_apart": d.apart}
        for d in plan.decisions
    ]  # fmt: skip
    return {"schema": "tilewright.plan/1", "machine": str(plan.machine), "steps": steps, "decisions": decisions}
