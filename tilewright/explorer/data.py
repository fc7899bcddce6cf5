"""What the explorer's page shows, as data: the program, its maps as formulas that a script evaluates, kernels, stages, sources.

    document(plan, executable, origin)  everything, as plain lists and numbers
    formula(expression)                 4 * d0 + s0 // 2 as ["+", 0, [4, "d0"], [1, ["/", "s0", 2]]]

Maps are kept once however many ops have them: ops name them by number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from codegen import Executable
from hlo.module import Op, Value
from hlo.types import TensorType
from indexing import input_to_output, output_to_input
from indexing.expressions.terms import Expr, FloorDiv, Maximum, Minimum, Mod, Product, Var
from indexing.map import IndexingMap, label_of
from indexing.show.display import map_to_latex
from tilewright.drawing.arithmetic import operations
from tiling import EvaluatorStep, Fusion, Plan
from tiling import plan as planned
from tiling.loops.text import show_schedule
from tiling.words import op_summary

__all__ = ["document", "formula", "map_data"]

Formula = int | str | list[Any]


def formula(e: Expr) -> Formula:
    """An expression as nested lists: a number, a variable's name, or an operation and its operands.

    `["+", constant, [factor, atom], …]`, and of two or more operands `/` (floors), `%`, `*`, `min`, `max`.

    >>> from indexing import parse_expr
    >>> formula(parse_expr("d0 * 4 + d1 floordiv 2 + 1"))
    ['+', 1, [4, 'd0'], [1, ['/', 'd1', 2]]]
    """
    if not e.terms:
        return e.constant
    if len(e.terms) == 1 and e.constant == 0 and e.terms[0][1] == 1:
        return _atom(e.terms[0][0])
    return ["+", e.constant, *([k, _atom(a)] for a, k in e.terms)]


def _atom(e: Expr) -> Formula:
    if isinstance(e, Var):
        return e.name
    if isinstance(e, FloorDiv | Mod):
        divisor = formula(e.divisor) if isinstance(e.divisor, Expr) else e.divisor
        return ["/" if isinstance(e, FloorDiv) else "%", formula(e.numerator), divisor]
    if isinstance(e, Product):
        return ["*", *map(formula, e.factors)]
    if isinstance(e, Minimum | Maximum):
        return ["min" if isinstance(e, Minimum) else "max", *map(formula, e.arguments)]
    raise TypeError(f"no atom: {type(e).__name__}")


def map_data(m: IndexingMap, names: Mapping[Value, str] = MappingProxyType({})) -> dict[str, Any]:
    """A map as data: intervals of its variables, its results and constraints as formulas, its text and LaTeX.

    `names` has what the values that runtime variables come from are called in the page.

    >>> from indexing import parse_map
    >>> map_data(parse_map("(d0)[s0] -> (d0 + s0), domain: d0 in [0, 1], s0 in [0, 2], d0 + s0 in [0, 2]"))["constraints"]
    [[['+', 0, [1, 'd0'], [1, 's0']], 0, 2]]
    """
    if m.unknown is not None:
        return {"unknown": m.unknown.reason}
    return {
        "dims": [[v.var.name, *v.interval] for v in m.dims],
        "ranges": [[v.var.name, *v.interval] for v in m.ranges],
        "runtimes": [
            [v.var.name, *v.interval, (v.producer and names.get(v.producer)) or v.label or label_of(v.producer)]
            for v in m.runtimes
        ],
        "results": [formula(e) for e in m.results],
        "constraints": [[formula(c.expression), *c.interval] for c in m.constraints],
        "empty": m.is_known_empty,
        "text": str(m),
        "latex": map_to_latex(m),
    }  # fmt: skip


class _Maps:
    """Maps by number, each once."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._numbers: dict[Any, int] = {}

    def numbers(self, maps: Iterable[IndexingMap], names: Mapping[Value, str]) -> list[int]:
        found = []
        for m in maps:
            row = map_data(m, names)
            key = repr(row)
            if key not in self._numbers:
                self._numbers[key] = len(self.rows)
                self.rows.append(row)
            found.append(self._numbers[key])
        return found


def _value_row(plan: Plan, v: Value, kind: str) -> dict[str, Any]:
    is_tensor = isinstance(v.type, TensorType) and v.type.is_static
    return {
        "name": plan.names.of(v),
        "type": str(v.type),
        "shape": list(v.tensor.static_shape) if is_tensor else None,
        "bytes": v.tensor.size_bytes if is_tensor else 0,
        "kind": kind,
    }


def _scope(op: Op) -> str:
    """The name scope that the program's text gives: `jit(f)/block1/dot_general` of `loc("jit(f)/block1/dot_general"(…))`."""
    text = op.debug or ""
    begin = text.find('"')
    end = text.find('"', begin + 1)
    return text[begin + 1 : end] if 0 <= begin < end and "/" in text[begin:end] else ""


def _steps(plan: Plan, executable: Executable | None, numbers: Mapping[Op, int]) -> list[dict[str, Any]]:
    sources = {k.fusion: k.source for k in executable.kernels} if executable is not None else {}
    rows: list[dict[str, Any]] = []
    for step in plan.steps:
        ops = step.ops if isinstance(step, Fusion) else (step.op,)
        row: dict[str, Any] = {
            "name": step.name, "kind": "control", "ops": [numbers[op] for op in ops if op in numbers], "summary": "", "loops": "",
            "source": "", "bytes": 0,
        }  # fmt: skip
        if isinstance(step, Fusion):
            estimate = step.estimate
            row |= {
                "kind": "kernel",
                "summary": op_summary(step.ops),
                "tiles": list(step.tile_sizes),
                "tasks": step.schedule.main.tasks,
                "scratch": step.scratch_bytes,
                "outputs": [plan.names.of(v) for v in step.outputs],
                "inputs": [plan.names.of(v) for v in step.inputs],
                "seconds": estimate.seconds,
                "bytes": estimate.memory_bytes,
                "estimate": str(estimate),
                "operations": operations(step),
                "buffers": [
                    [b.name, b.scope.value, f"{b.element}[{', '.join(map(str, b.shape))}]", b.size_bytes,
                     plan.names.of(b.value) if b.value is not None else ""]
                    for b in step.schedule.buffers
                ],
                "loops": show_schedule(step.schedule),
                "source": sources.get(step, ""),
            }  # fmt: skip
        elif isinstance(step, EvaluatorStep):
            values = (*step.op.operands, *step.op.results)
            row |= {
                "kind": "library" if step.library else "evaluator",
                "summary": f"{step.library or 'the evaluator'}: {step.reason}" if step.reason else step.library,
                "bytes": sum(v.tensor.size_bytes for v in values if _has_elements(v)),
            }
        else:
            turns = f"loop of {step.trips} turns" if step.trips is not None else "loop whose turns are known at run time"
            row |= {"summary": turns if step.is_loop else f"branch of {len(step.regions)} regions", "trips": step.trips}
        rows.append(row)
    return rows


def _has_elements(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.is_static


MOST_STEPS = 60
"""In programs of more steps, only what the planner tried is told: every other reason is a kernel that is made for it."""


def _reasons(plan: Plan) -> dict[str, Any]:
    """Why steps are apart (`edges`: what goes through memory between two), and what the planner decided (`decisions`)."""
    few = len(plan.steps) <= MOST_STEPS
    return {
        "edges": [
            [e.producer, e.consumer, ", ".join(e.values), e.size_bytes, e.kind, e.reason, e.witness]
            for e in (plan.edges if few else ())
        ],
        "decisions": [[d.producer, d.consumer, d.fused, d.reason, d.together, d.apart] for d in plan.decisions],
    }


MOST_KERNELS = 12
"""Programs of more kernels are shown with the tiles that they have: each other choice is a plan of its own."""


def other_tiles(plan: Plan, supports: Any) -> dict[str, list[dict[str, Any]]]:
    """kernel -> what it is with tiles of half and of twice the size in each dimension: predicted time, tasks, scratch, loops."""
    pins = [p for p in plan.pins() if not p.region and not p.strips]
    if len(pins) != len(plan.fusions) or len(pins) > MOST_KERNELS or len(plan.steps) != len(plan.fusions):
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    for number, (fusion, pin) in enumerate(zip(plan.fusions, pins, strict=True)):
        shape, sizes = fusion.stages[-1].values[0].shape, fusion.tile_sizes
        if len(shape) != len(sizes):
            continue
        wanted = [sizes]
        for k, (n, size) in enumerate(zip(shape, sizes, strict=True)):
            wanted += [(*sizes[:k], s, *sizes[k + 1 :]) for s in (max(1, size // 2), min(n, size * 2)) if s != size]
        for tiles in wanted:
            mine = [replace(p, tile_sizes=tiles) if p is pin else p for p in pins]
            try:
                made = planned(plan.module, plan.program.name, supports=supports, machine=plan.machine, pins=mine).fusions[number]
            except ValueError:  # a pin that no schedule has: its reason is the planner's, and the tiles are no choice
                continue
            found.setdefault(fusion.name, []).append({
                "tiles": list(made.tile_sizes), "seconds": made.estimate.seconds, "estimate": str(made.estimate),
                "tasks": made.schedule.main.tasks, "scratch": made.scratch_bytes, "loops": show_schedule(made.schedule),
            })  # fmt: skip
    return found


def document(plan: Plan, executable: Executable | None = None, origin: str = "", supports: Any = None) -> dict[str, Any]:
    """The program of a plan: `values`, `ops` (with the maps of each result and operand, both ways), `steps`, reasons, texts.

    The bodies of loops and branches are programs, too, in `regions`: each names the program `around` it (0 is the plan's own, k
    the k-th region), the `op` there, and the value around that each of its arguments is `outside`. An op with regions names them
    in `inside`.

    With `supports` also what kernels would be with `other_tiles`.
    """
    maps = _Maps()
    programs: list[dict[str, Any]] = []
    todo: list[tuple[Plan, dict[str, Any], list[int]]] = [(plan, {"name": plan.program.name}, [])]
    for around, (one, told, given) in enumerate(todo):  # grows as it is walked
        numbers, data = _program(one, executable, maps)
        arguments = [numbers[v] for v in one.program.arguments]
        of_op = {op: k for k, op in enumerate(one.program.ops)}
        for step in one.controls:
            number = of_op[step.op]
            for region in step.regions:
                data["ops"][number]["inside"].append(len(todo))
                name = region.plan.names.of
                is_body = step.is_loop and region is step.regions[-1]
                carries = [[name(c.argument), name(c.result), c.how] for c in step.carries] if is_body else []
                row = {"name": region.plan.program.name, "around": around, "op": number, "carries": carries}
                outer = [*(step.op.operands if step.is_loop else ()), *region.region.captured]
                todo.append((region.plan, row, [numbers[v] for v in outer]))
                captured = data["ops"][number]["captured"]
                captured += [numbers[v] for v in region.region.captured if numbers[v] not in captured]
        programs.append({**told, "outside": list(map(list, zip(arguments, given, strict=False))), **data})
    machine = plan.machine
    source = plan.module.source.text if plan.module.source is not None else str(plan.module)
    first, *regions = programs
    return {
        "schema": "tilewright.explorer/2",
        "title": origin or plan.program.name,
        **first,
        "maps": maps.rows,
        "regions": regions,
        "others": other_tiles(plan, supports) if supports is not None else {},
        "machine": {
            "text": str(machine), "flops": machine.peak_flops(4) * machine.cores, "bandwidth": machine.memory_bytes_per_second,
        },
        "text": source,
    }  # fmt: skip


def _program(plan: Plan, executable: Executable | None, maps: _Maps) -> tuple[dict[Value, int], dict[str, Any]]:
    """(the number of each value, the data) of one program: the entry's, or that of a loop's or branch's region."""
    program = plan.program
    values: list[dict[str, Any]] = []
    numbers: dict[Value, int] = {}

    def add(vs: Sequence[Value], kind: str) -> list[int]:
        for v in vs:
            if v not in numbers:
                numbers[v] = len(values)
                values.append(_value_row(plan, v, kind))
        return [numbers[v] for v in vs]

    add(program.arguments, "argument")
    for op in program.ops:
        add(op.results, "value")
    home: dict[Op, int] = {}
    for k, step in enumerate(plan.steps):
        for op in step.ops if isinstance(step, Fusion) else (step.op,):
            home.setdefault(op, k)  # what is computed again in later kernels belongs to the first
    for op in program.ops:
        add(op.operands, "constant")
    names = {v: row["name"] for v, row in zip(numbers, values, strict=True)}
    ops = []
    for op in program.ops:
        operands = [numbers[v] for v in op.operands]
        ops.append({
            "name": op.name,
            "operands": operands,
            "results": [numbers[v] for v in op.results],
            "step": home.get(op, -1),
            "line": op.location.line if op.location is not None else 0,
            "scope": _scope(op),
            "inside": [],
            "captured": [],
            "reads": [[maps.numbers(ms, names) for ms in output_to_input(op, k)] for k in range(len(op.results))],
            "feeds": [[maps.numbers(ms, names) for ms in input_to_output(op, k)] for k in range(len(op.operands))],
        })  # fmt: skip
    steps = _steps(plan, executable, {op: k for k, op in enumerate(program.ops)})
    return numbers, {"values": values, "ops": ops, "results": add(program.results, "value"), "steps": steps, **_reasons(plan)}
