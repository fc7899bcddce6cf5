"""Kernel by kernel against the evaluator; and of a kernel that is wrong, the smallest part that still is.

Every kernel is run on the evaluator's values of what it reads, so that an error is met where it arises and not where it shows.
Of a wrong one, the fusions that end at each of its ops are compiled in program order until one is wrong; then its other ops are
taken out one by one, the evaluator's values in their place, as long as the rest stays wrong. What is left names the op, the
first element that differs, the map from that element to what it reads, and both values.

A loop or a branch that is wrong is entered: the evaluator goes through it iteration by iteration, and the kernels of its
regions are run on what it has at that point, until one of them is wrong.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

import codegen
import indexing
import interp
import tiling
from hlo.clone import captured_values, clone_block
from hlo.errors import Declined
from hlo.module import Block, Function, Module, Op, Value
from hlo.registry import Literal, definition
from hlo.types import TensorType
from tilewright.check import compare, first_difference
from tiling import EvaluatorStep, Fusion, Plan
from tiling.planning.model import ControlStep, RegionPlan
from tiling.program.flatten import flatten
from tiling.routines.table import plain_form

__all__ = ["Culprit", "KernelCheck", "check_kernels", "find_culprit"]

BUDGET_SECONDS = 120.0

_log = logging.getLogger("tilewright")


@dataclass(frozen=True)
class KernelCheck:
    """One kernel on the evaluator's inputs: its name and ops, its largest error of each kind, and whether it passed."""

    name: str
    ops: int
    passed: bool
    max_rel: float
    max_ulp: float
    reason: str = ""  # why it could not be run by itself


@dataclass(frozen=True)
class Culprit:
    """The smallest fusion that is wrong: `ops` in program order, the last of which gives the first wrong `element`."""

    kernel: str
    ops: tuple[str, ...]
    op: str
    location: str
    element: tuple[int, ...]
    expected: object
    found: object
    mismatched_elems: int
    size_elems: int
    maps: tuple[str, ...]
    reads: tuple[str, ...]
    tried: int
    whole: bool = True  # False: the budget was spent before the fusion was as small as it gets
    inside: tuple[str, ...] = ()  # the loops (with their iterations, from 0) and branches around it, the outermost first


@dataclass(frozen=True, eq=False)
class _Part:
    """Ops of the flattened program that are computed together, by the name of their step."""

    name: str
    ops: tuple[Op, ...]
    fusion: Fusion | None = None
    control: ControlStep | None = None


@dataclass(eq=False)
class Values:
    """The evaluator's value of everything that a step reads or makes."""

    plan: Plan
    known: dict[Value, np.ndarray] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan, arrays: Sequence[np.ndarray]) -> Values:
        """Evaluates the plan's program once, with every op's results as results of the whole."""
        return _Evaluation(plan)(arrays)

    def __getitem__(self, v: Value) -> np.ndarray:
        return self.known[v]


class _Evaluation:
    """A plan's program in the evaluator, every value of it a result; made once for all iterations of a loop."""

    def __init__(self, plan: Plan) -> None:
        program = plan.program
        self.plan = plan
        self.wanted = [v for op in program.ops for v in op.results if isinstance(v.type, TensorType)]
        self.module = _module(plan.module, program.ops, program.arguments, self.wanted)

    def __call__(self, arrays: Sequence[np.ndarray]) -> Values:
        made = Values(self.plan, {v: np.asarray(a) for v, a in zip(self.plan.program.arguments, arrays, strict=True)})
        results = interp.evaluate(self.module, *arrays, entry="main")
        made.known.update({v: np.asarray(a) for v, a in zip(self.wanted, results, strict=True)})
        return made


class _Kernels:
    """The kernels (and the loops and branches) of a plan, each a program of its own, compiled once."""

    def __init__(self, plan: Plan, threads: int | None) -> None:
        self.plan, self.threads = plan, threads
        self.compiled: dict[str, tuple[codegen.Executable, list[Value], list[Value]]] = {}

    def check(self, part: _Part, values: Values) -> KernelCheck:
        """What a kernel stores, on the evaluator's values of what it reads, against the evaluator's."""
        try:
            if part.name not in self.compiled:
                inputs, outputs = _border(self.plan, part.ops)
                self.compiled[part.name] = (_compiled(self.plan, part, inputs, outputs, self.threads), inputs, outputs)
            executable, inputs, outputs = self.compiled[part.name]
            results = [np.asarray(a) for a in executable(*(values[v] for v in inputs))]
        except Exception as error:  # noqa: BLE001 (a kernel that cannot be run apart is a finding, not the end)
            return KernelCheck(part.name, len(part.ops), False, float("inf"), float("inf"), f"{error}")
        compared = [compare(a, values[v]) for a, v in zip(results, outputs, strict=True)]
        return KernelCheck(
            part.name,
            len(part.ops),
            all(c.passed for c in compared),
            max((c.max_rel for c in compared), default=0.0),
            max((c.max_ulp for c in compared), default=0.0),
        )


def check_kernels(plan: Plan, values: Values, threads: int | None = None) -> list[KernelCheck]:
    """Runs each kernel (and each loop or branch) of a plan by itself and compares what it stores."""
    kernels = _Kernels(plan, threads)
    return [kernels.check(part, values) for part in _parts(plan)]


def find_culprit(plan: Plan, values: Values, kernel: str, threads: int | None = None) -> Culprit | None:
    """The smallest wrong part of a kernel, of a loop or of a branch; None when no part of it is wrong by itself."""
    return _Search(plan, values, threads, time.monotonic() + BUDGET_SECONDS).culprit(kernel)


class _Region:
    """A loop's condition or body, or a branch: evaluated, and its kernels compared, for one set of arguments after another."""

    def __init__(self, made: RegionPlan, outside: Values, threads: int | None) -> None:
        self.plan = made.plan
        self.captured = [outside[v] for v in made.region.captured]
        self.evaluation, self.kernels = _Evaluation(made.plan), _Kernels(made.plan, threads)

    def enter(self, arguments: Sequence[np.ndarray]) -> tuple[Values, str | None]:
        """(the evaluator's values, the first kernel that is wrong on them)."""
        values = self.evaluation([*arguments, *self.captured])
        for part in _parts(self.plan):
            found = self.kernels.check(part, values)
            if not found.passed and not found.reason:
                return values, part.name
        return values, None


@dataclass(eq=False)
class _Search:
    plan: Plan
    values: Values
    threads: int | None
    deadline: float
    inside: tuple[str, ...] = ()
    tried: int = 0

    @property
    def late(self) -> bool:
        return time.monotonic() > self.deadline

    def culprit(self, kernel: str) -> Culprit | None:
        """The smallest wrong part of a kernel of the plan, or of the kernels inside of a loop or a branch."""
        part = next(p for p in _parts(self.plan) if p.name == kernel)
        if part.control is not None:
            found = self.entered(part.control)
            if found is not None:
                return found
        inside = [op for op in part.ops if not isinstance(op.definition.semantics, Literal)]
        for op in inside:
            if not op.results or any(v not in self.values.known for v in op.results):
                continue
            chosen = _needed(op, inside)
            if self.is_wrong(chosen, op):
                return self.report(part.name, self.smallest(chosen, op), op)
            if self.late:
                return None
        return None

    def entered(self, step: ControlStep) -> Culprit | None:
        """What is wrong inside of a loop or a branch; None when every kernel there is right on the evaluator's values."""
        regions = [_Region(r, self.values, self.threads) for r in step.regions]
        given = [self.values[v] for v in step.op.operands]
        if not step.is_loop:
            number = int(given[0]) if step.op.name == "stablehlo.case" else int(not given[0])
            number = number if 0 <= number < len(regions) else len(regions) - 1
            words = ("the true branch", "the false branch") if step.op.name == "stablehlo.if" else ()
            values, wrong = regions[number].enter(())
            place = f"{_text(step.op)}, {words[number] if words else f'branch {number}'}"
            return None if wrong is None else self.within(regions[number], values, place).culprit(wrong)
        condition, body = regions
        for iteration in itertools.count():
            for region, word in ((condition, "the condition"), (body, "the body")):
                if self.late:
                    return None
                values, wrong = region.enter(given)
                if wrong is not None:
                    return self.within(region, values, f"{_text(step.op)}, {word} of iteration {iteration}").culprit(wrong)
                results = [values[v] for v in region.plan.program.results]
                if region is condition and not results[0]:
                    return None
            given = results
        raise AssertionError("unreachable")

    def within(self, region: _Region, values: Values, place: str) -> _Search:
        """The same search in a region."""
        return _Search(region.plan, values, self.threads, self.deadline, (*self.inside, place))

    def results(self, ops: Sequence[Op], root: Op) -> list[np.ndarray] | None:
        """What a fusion of `ops` gives for the root's values; None when it cannot be compiled or run."""
        self.tried += 1
        inputs, _ = _border(self.plan, ops)
        try:
            executable = _compiled(self.plan, _Part("part", tuple(ops)), inputs, root.results, self.threads)
            return [np.asarray(a) for a in executable(*(self.values[v] for v in inputs))]
        except Exception:  # noqa: BLE001 (a part that cannot be run is no evidence)
            return None

    def is_wrong(self, ops: Sequence[Op], root: Op) -> bool:
        found = self.results(ops, root)
        if found is None:
            return False
        return any(not compare(a, self.values[v]).passed for a, v in zip(found, root.results, strict=True))

    def smallest(self, ops: Sequence[Op], root: Op) -> list[Op]:
        """Ops of which none can be left to the evaluator without the root becoming right."""
        if self.is_wrong([root], root):
            return [root]
        kept = list(ops)
        for op in ops:
            if op is root or self.late:
                continue
            fewer = [o for o in kept if o is not op]
            fewer = _needed(root, fewer)
            if self.is_wrong(fewer, root):
                kept = fewer
        return kept

    def report(self, kernel: str, ops: Sequence[Op], root: Op) -> Culprit:
        found = self.results(ops, root)
        assert found is not None
        for number, (a, v) in enumerate(zip(found, root.results, strict=True)):
            c = compare(a, self.values[v])
            if c.passed:
                continue
            at = first_difference(a, self.values[v])
            maps, reads = _explain(root, number, at, self.values)
            return Culprit(
                kernel, tuple(_text(o) for o in ops), _text(root), str(root.location or ""), at,
                self.values[v][at].item(), a[at].item(), c.mismatched_elems, a.size, maps, reads, self.tried, not self.late,
                self.inside,
            )  # fmt: skip
        raise AssertionError("what was wrong is right the second time: the kernel's results change from run to run")


def _text(op: Op) -> str:
    names = ", ".join(f"%{v.name}" if v.name else "%?" for v in op.results)
    return f"{names} = {op.name}"


def _explain(op: Op, output: int, at: tuple[int, ...], values: Values) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the op's maps, what the element at `at` reads): operand by operand, where maps say it."""
    if isinstance(op.definition.access, Declined):
        return (str(op.definition.access),), ()
    maps, reads = [], []
    for k, (operand, found) in enumerate(zip(op.operands, indexing.output_to_input(op, output=output), strict=True)):
        name = f"operand {k}" + (f" %{operand.name}" if operand.name else "")
        for m in found:
            maps.append(f"{name}: {m}")
            if not m.symbols and operand in values.known:
                where = tuple(int(i) for i in m.evaluate(at, ()))
                array = values[operand]
                if all(0 <= i < n for i, n in zip(where, array.shape, strict=True)):
                    reads.append(f"{name}[{', '.join(map(str, where))}] = {array[where].item()}")
    return tuple(maps), tuple(reads)


# ---------------------------------------------------------------- parts as programs


def _parts(plan: Plan) -> list[_Part]:
    """The steps that kernels run; a loop or a branch is one part, which can be entered."""
    parts = []
    for step in plan.steps:
        if isinstance(step, Fusion):
            parts.append(_Part(step.name, step.ops, fusion=step))
        elif not isinstance(step, EvaluatorStep):
            parts.append(_Part(step.name, (step.op,), control=step if isinstance(step, ControlStep) else None))
    return parts


def _reads(op: Op) -> list[Value]:
    return list(dict.fromkeys([*op.operands, *(v for b in op.regions for v in captured_values(b))]))


def _needed(root: Op, ops: Sequence[Op]) -> list[Op]:
    """The ops that the root needs, through others of them, itself last."""
    inside = {v: op for op in ops for v in op.results}
    found = {root}
    todo = [root]
    while todo:
        for v in _reads(todo.pop()):
            maker = inside.get(v)
            if maker is not None and maker not in found:
                found.add(maker)
                todo.append(maker)
    return [op for op in ops if op in found]


def _border(plan: Plan, ops: Sequence[Op]) -> tuple[list[Value], list[Value]]:
    """(what these ops read from elsewhere, constants apart; which of their values others read, or are results)."""
    inside = set(ops)
    made = {v for op in ops for v in op.results}
    inputs = list(dict.fromkeys(v for op in ops for v in _reads(op) if v not in made and not _is_literal(v)))
    read = {v for op in plan.program.ops if op not in inside for v in _reads(op)} | set(plan.program.results)
    outputs = [v for op in ops for v in op.results if v in read]
    return inputs, outputs


def _is_literal(v: Value) -> bool:
    return v.op is not None and isinstance(v.op.definition.semantics, Literal)


def _module(base: Module, ops: Sequence[Op], inputs: Sequence[Value], results: Sequence[Value]) -> Module:
    """A program of these ops (and the constants that they read) with these arguments and results."""
    return _numbered_module(base, ops, inputs, results)[0]


def _numbered_module(
    base: Module, ops: Sequence[Op], inputs: Sequence[Value], results: Sequence[Value]
) -> tuple[Module, dict[Op, str]]:
    """(`_module`, the name in it of the first result of each op)."""
    body = Block([v.type for v in inputs], [f"in{k}" for k in range(len(inputs))])
    environment: dict[Value, Value] = dict(zip(inputs, body.arguments, strict=True))
    names: dict[Op, str] = {}

    def add(op: Op) -> None:
        plain, given = plain_form(op)
        for v in _reads(op):
            if v not in environment and _is_literal(v):
                assert v.op is not None
                add(v.op)
        operands, regions = [environment[v] for v in given], [clone_block(b, environment) for b in op.regions]
        copy = Op(plain, operands, op.attributes, regions, [r.type for r in op.results], op.location, op.extra)
        for k, (old, new) in enumerate(zip(op.results, copy.results, strict=True)):
            new.name = f"v{len(names)}_{k}"
            environment[old] = new
        names[op] = f"v{len(names)}_0"
        body.ops.append(copy)

    for op in ops:
        if not (op.results and op.results[0] in environment):
            add(op)
    for v in results:
        if v not in environment and _is_literal(v):
            assert v.op is not None
            add(v.op)
    body.ops.append(Op(definition("func.return"), [environment[v] for v in results]))
    others: Mapping[str, Function] = {k: f for k, f in base.functions.items() if k != "main"}
    main = Function("main", body, result_types=tuple(v.type for v in results))
    return Module({"main": main, **others}, base.name), names


def _compiled(
    plan: Plan, part: _Part, inputs: Sequence[Value], outputs: Sequence[Value], threads: int | None
) -> codegen.Executable:
    """Kernels of these ops from some values to others; a fusion of the plan keeps its stages and its tiles."""
    module, names = _numbered_module(plan.module, part.ops, inputs, outputs)
    return codegen.compile(_planned(plan, part, module, names), threads=threads)


def _planned(plan: Plan, part: _Part, module: Module, names: Mapping[Op, str]) -> Plan:
    if part.fusion is not None:
        number = {op.results[0].name: k for k, op in enumerate(flatten(module).ops) if op.results}
        stages = [names.get(s.op) for s in part.fusion.stages]
        if all(n in number for n in stages):
            pin = tiling.Pin(tuple(number[n] for n in stages), part.fusion.tile_sizes)
            try:
                return tiling.plan(module, "main", plan.machine, codegen.supports, (pin,))
            except ValueError as reason:  # apart from the rest other ops may have loops of their own
                _log.debug("%s: planned anew: %s", part.name, reason)
    return tiling.plan(module, "main", plan.machine, codegen.supports)
