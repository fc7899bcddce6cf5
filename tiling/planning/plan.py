"""The plan of a module's entry function, from the programs that it may be: with loops over strips and without, and its regions.

    module -> flattened program -> `tiling.planning.planner` -> steps; regions of control flow in the same way
    large values between its kernels -> the program with loops over strips, planned again (`tiling.planning.strips`)
    what turned out to have no loops -> the evaluator's, planned again
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hlo.errors import Declined
from hlo.module import Module, Op, Value, as_module, walk
from hlo.types import TensorType
from tiling.cost_model import CostModel, model_of, with_model
from tiling.machine import Machine
from tiling.passing import runs
from tiling.pipeline import check_settings
from tiling.planning.garbage import few_collections
from tiling.planning.model import Pin, Plan
from tiling.planning.planner import NoSchedule, Planner
from tiling.planning.search import Searches
from tiling.planning.strips import pinned_strips, with_strips
from tiling.program.expand import Supports
from tiling.program.flatten import Program, flatten, given_away
from tiling.program.inputs import factors_side_by_side, is_control, normed_kernels
from tiling.program.run_in_strips import is_strip_loop
from tiling.program.updates.in_place import is_update, mark_updates, update_known_places, updates_taken

__all__ = ["Supports", "all_ops", "plan", "plan_flattened"]


def all_ops(op: Op) -> Declined | None:
    """What `plan` asks by default: every op that has maps is planned."""
    return None


def plan(
    module: Module,
    entry: str = "main",
    machine: Machine | None = None,
    supports: Supports = all_ops,
    pins: Sequence[Pin] = (),
    budget_seconds: float | None = None,
    cost_model: CostModel | None = None,
    donate: bool = False,
) -> Plan:
    """Plans the fusions and tiles of a module's entry function.

    `supports` tells which ops the code generator has rules for (`codegen.supports`); without it all that has maps is planned.
    `pins` are fusions that are wanted as they are; the rest is planned around them. When `budget_seconds` are over, what has
    not been decided stays apart, and its decisions say so. `cost_model` weighs the candidates (a CPU's seconds by default).
    With `donate` results may be written over the arguments that the function gives away for them (`hlo.Function.donations`).

    Never fails on a verified module: what cannot be compiled becomes an `EvaluatorStep` with its reason.
    Raises KeyError when the module has no function `entry`, ValueError for pins that name no stage, overlap, or have no schedule.

    >>> import hlo
    >>> p = plan(hlo.parse('''func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
    ...   %0 = stablehlo.tanh %x : tensor<8x8xf32>
    ...   %1 = stablehlo.add %0, %x : tensor<8x8xf32>
    ...   return %1 : tensor<8x8xf32>
    ... }'''))
    >>> [len(f.ops) for f in p.fusions]
    [2]
    """
    with few_collections():
        program = flatten(as_module(module), entry, supports)
        return plan_flattened(program, module, entry, machine, supports, pins, budget_seconds, cost_model, donate)


def plan_flattened(
    program: Program, module: Module, entry: str = "main", machine: Machine | None = None, supports: Supports = all_ops,
    pins: Sequence[Pin] = (), budget_seconds: float | None = None, cost_model: CostModel | None = None, donate: bool = False,
) -> Plan:  # fmt: skip
    """`plan` of a function that was flattened before, with what `supports`: who asks for both does so once."""
    check_settings()
    runs("inline")
    runs("group")
    machine = with_model(machine or Machine.detect(), cost_model)
    ops = len(program.ops) + sum(len(list(walk(b))) for op in program.ops for b in op.regions)
    deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
    with few_collections(ops):
        given = given_away(program, module.functions[entry]) if donate else {}
        made = _plan_program(program, given, _Around(machine, module, supports, deadline), tuple(pins))
        return replace(made, supports=supports, donate=donate)


@dataclass(frozen=True, eq=False)
class _Around:
    """What is the same for all programs that a plan is made of."""

    machine: Machine
    module: Module
    supports: Supports
    deadline: float | None
    searched: dict[Machine, Searches] = field(default_factory=dict)

    @property
    def searches(self) -> Searches:
        return self.searched.setdefault(self.machine, Searches())

    def inside(self, op: Op, region: Program) -> _Around:
        """The same for an op's region. A loop whose arguments and results fit a core's own cache finds them there in each
        turn."""
        values = (*region.arguments, *region.results)
        is_known = all(isinstance(v.type, TensorType) and v.type.is_static for v in values)
        if op.name != "stablehlo.while" or model_of(self.machine) is not None or not is_known:
            return self
        fits = sum(v.tensor.size_bytes for v in values) <= self.machine.l2_bytes
        return replace(self, machine=self.machine.near) if fits else self


def _plan_program(
    plain: Program, passed_on: Mapping[Value, int], around: _Around, pins: tuple[Pin, ...],
    is_lean: bool = False, is_region: bool = False,
) -> Plan:  # fmt: skip
    """The plan of a flattened program, or of a region.

    `passed_on` are arguments with the numbers of the results that may take their memory: what a loop body's arguments become, and
    what the caller gives away.
    """
    if runs("update_known_places"):
        plain = update_known_places(plain, passed_on, updates_taken(around.supports))
    strips = tuple(p for p in pins if p.strips and not p.region)
    others = tuple(p for p in pins if p not in strips)

    def planned(program: Program) -> Plan:
        return _plan_as_it_is(program, passed_on, around, others, is_lean, is_region)

    made = planned(pinned_strips(plain, strips))
    if strips:
        return replace(made, strips=strips)
    is_late = around.deadline is not None and time.monotonic() > around.deadline
    if pins or is_late or is_lean or not runs("run_in_strips"):  # strips of strips: there would be more of the first ones
        return made
    return with_strips(made, plain, planned)


def _plan_as_it_is(
    plain: Program, passed_on: Mapping[Value, int], around: _Around, pins: tuple[Pin, ...],
    is_lean: bool = False, is_region: bool = False, marks: bool = True,
) -> Plan:  # fmt: skip
    """The same without loops over strips."""
    supports = around.supports

    def plan_region(op: Op, k: int, region: Program, passed: Mapping[Value, int]) -> Plan:
        path = (number[op], k)
        inside = tuple(p.inside for p in pins if p.region[:2] == path)
        return _plan_program(region, passed, around.inside(op, region), inside, is_strip_loop(op), True)

    program = mark_updates(plain, passed_on, updates_taken(supports)) if marks else plain
    refused = {op: reason for op in program.ops if (reason := supports(op)) is not None}
    number = {op: k for k, op in enumerate(program.ops)}
    becomes = {a: program.results[number] for a, number in passed_on.items()}
    own = tuple(p for p in pins if not p.region)
    weighs_all = model_of(around.machine) is not None  # what goes without saying does so for a CPU
    # A program that jumps keeps nothing between calls, and one that is given arguments to write to has others in each.
    keeps = not is_region and not passed_on and not any(map(is_control, program.ops))
    factors, normed = (find(program) if keeps else frozenset[Value]() for find in (factors_side_by_side, normed_kernels))
    while True:
        planner = Planner(
            program, around.machine, around.module, refused, own, around.deadline, plan_region, supports, becomes, factors,
            normed, around.searches, weighs_all, is_lean, is_region,
        )  # fmt: skip
        try:
            made = planner.run()
        except NoSchedule:
            weighs_all |= not planner.newly_refused
        else:
            if not planner.newly_refused:
                return made
        if any(is_update(op) and op in planner.newly_refused for op in program.ops):
            return _plan_as_it_is(plain, passed_on, around, pins, is_lean, is_region, marks=False)
        # What turned out to have no loops is left to the evaluator, which needs its operands in memory: plan again.
        refused.update(planner.newly_refused)
