"""The planner: which stages are computed together, with what tiles, and why.

Each stage starts as a kernel of its own. A kernel joins the one that reads its result when all readers are there, the tiles
agree, and the cost model finds the two together cheaper than apart. Every decision is kept with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from hlo.errors import Declined
from hlo.module import Module, Op, Value
from hlo.registry import Literal
from tiling.loops.buffers import Buffer
from tiling.loops.ir import Schedule
from tiling.loops.names import Names
from tiling.lower.fusion import Lowering
from tiling.lower.placing import FusionRequest
from tiling.machine import Machine
from tiling.passing import runs
from tiling.planning.control import PlanRegion, plan_control, with_takeovers
from tiling.planning.costs.estimate import estimate
from tiling.planning.facts import find_facts, settle_facts
from tiling.planning.forms import lower, with_rows_at_a_time
from tiling.planning.join_siblings import join_siblings
from tiling.planning.joins import is_plain, joins_plainly, weighed
from tiling.planning.model import ControlStep, Decision, EvaluatorStep, Fusion, Pin, Plan, Reuse
from tiling.planning.reuse import PlanStep, ordered, resolve_reuses, taken_by_results
from tiling.planning.same_structure import Structures
from tiling.planning.search import Candidate, Kernel, Searches, Tried, Weighed, best_tiles, contractions
from tiling.planning.sizes import MOST_KERNEL_NODES, weight_nodes
from tiling.planning.stages import Stage, find_stages, ops_of
from tiling.program.expand import Supports
from tiling.program.flatten import Program
from tiling.program.inputs import is_control, op_inputs
from tiling.program.library_ops import library_of

__all__ = ["NoSchedule", "Planner"]


class NoSchedule(Exception):
    """A kernel that was made without being weighed has no schedule: the planner begins anew."""


@dataclass(eq=False)
class Planner:
    program: Program
    machine: Machine
    module: Module
    refused: Mapping[Op, Declined]
    pins: tuple[Pin, ...]
    deadline: float | None
    plan_region: PlanRegion
    supports: Supports
    passed_on: Mapping[Value, Value]
    factors: frozenset[Value]  # of products, side by side, which calls with the same arguments find made
    normed: frozenset[Value]  # those that folds and elementwise ops make of arguments alone
    searches: Searches
    weighs_all: bool = False  # no join goes without saying
    is_lean: bool = False  # a loop over strips has memory for a strip: nothing whole is packed ahead of it
    is_region: bool = False
    decisions: list[Decision] = field(default_factory=list)
    newly_refused: dict[Op, Declined] = field(default_factory=dict)

    def run(self) -> Plan:
        self.stages = find_stages(self.program, self.refused)
        self.order = {s: i for i, s in enumerate(self.stages)}
        self.stage_of = {v: s for s in self.stages for v in s.values}
        self.stage_by_op = {s.op: s for s in self.stages}  # an op may have no results: a callback, an assertion
        self.names = Names([*self.program.arguments, *(v for s in self.stages for v in s.values)])
        self.names.is_lean, self.names.kept = self.is_lean, self.normed
        self.names.carried = {r: a for a, r in self.passed_on.items() if r is not a and r.type == a.type}
        self.structures = Structures(self.stage_of, self.searches.numbers, self.names)
        self.nodes: dict[Stage, int] = {}
        self.needs = {s: self._needs(s) for s in self.stages}
        self.number = {op: k for k, op in enumerate(self.program.ops)}
        self.readers: dict[Stage, list[Stage]] = {s: [] for s in self.stages}
        for s in self.stages:
            for producer in self.needs[s]:
                self.readers[producer].append(s)
        self.results = set(self.program.results)
        self.names.facts = find_facts(self.stages, self.needs, self.readers, self.machine, self.names, self.structures)
        self.structures.facts = self.names.facts
        self.kernel_of: dict[Stage, Kernel | EvaluatorStep] = {}
        self._pin()
        for s in self.stages:
            if s not in self.kernel_of:
                self.kernel_of[s] = self._alone(s)
        self._join_epilogues()
        for s in reversed(self.stages):
            self._try_join(s)
        if runs("join_siblings"):
            join_siblings(self)
        steps: tuple[PlanStep, ...] = ()
        reuses: tuple[Reuse, ...] = ()
        if not self.newly_refused:
            steps, reuses = resolve_reuses(self.program, self._steps(), self.passed_on)
            reuses = reuses if self.is_region else taken_by_results(reuses, self.passed_on)
            steps = tuple(with_takeovers(s, reuses) if isinstance(s, ControlStep) else s for s in steps)
        return Plan(self.program, self.machine, steps, tuple(self.decisions), self.names, self.module, reuses)

    def _needs(self, stage: Stage) -> list[Stage]:
        """The stages whose values a stage loads, through what is computed in place."""
        found: set[Stage] = set()
        seen: set[Value] = set()
        inlined = 0
        todo = op_inputs(stage.op)
        while todo:
            v = todo.pop()
            if v in seen or v.op is None:
                continue
            seen.add(v)
            producer = self.stage_of.get(v)
            if producer is not None:
                found.add(producer)
            else:
                inlined += not isinstance(v.op.definition.semantics, Literal)
                todo.extend(v.op.operands)
        self.nodes[stage] = weight_nodes(stage.op, inlined)
        return sorted(found, key=lambda s: self.order[s])

    def stored(self, stages: Sequence[Stage]) -> frozenset[Value]:
        """The values of a set of stages that are read outside of it, or are results of the program."""
        inside = set(stages)
        stored: set[Value] = set()
        for s in stages:
            outside = any(r not in inside for r in self.readers[s])
            stored.update(v for v in s.values if outside or v in self.results)
        return frozenset(stored)

    def _late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def best(self, stages: Sequence[Stage], stored: frozenset[Value], thorough: bool = False) -> Candidate | Weighed | Declined:
        """The best tiles of a fusion; one of a structure that was searched before is not lowered: it costs what that did."""
        structure = self.structures.number(stages, stored)
        key = (structure, thorough)
        known = self.searches.best.get(key)
        if known is not None:
            return known
        tried = self.searches.tried.setdefault(structure, Tried())
        found = best_tiles(stages, stored, self.machine, self.names, thorough, tried)
        self.searches.best[key] = found.without_schedule if isinstance(found, Candidate) else found
        return found

    def weigh(self, kernel: Kernel) -> Candidate | Weighed:
        """What a kernel so far costs. Raises NoSchedule where it turns out to have no schedule."""
        if kernel.candidate is None:
            alone = len(kernel.stages) == 1
            stored = frozenset(kernel.stages[0].values) if alone else self.stored(kernel.stages)
            found = self.best(kernel.stages, stored)
            if isinstance(found, Declined):
                if alone:
                    self.newly_refused[kernel.stages[0].op] = found
                raise NoSchedule
            kernel.candidate = found
        return kernel.candidate

    def touched(self, kernel: Kernel) -> list[Buffer]:
        """What a kernel so far reads from memory and writes there."""
        sizes = self.weigh(kernel).tile_sizes
        request = FusionRequest(tuple(kernel.stages), self.stored(kernel.stages), sizes)
        return Lowering(request, self.machine, self.names).touched()

    def values(self) -> Iterator[Value]:
        """What kernels may read from memory or write there."""
        yield from self.program.arguments
        yield from (v for s in self.stages for v in s.values)

    def _scheduled(self, stages: Sequence[Stage], stored: frozenset[Value], found: Candidate | Weighed) -> Candidate:
        """The candidate with its schedule."""
        if isinstance(found, Weighed):
            request = FusionRequest(tuple(stages), stored, found.tile_sizes, form=found.form)
            made = lower(request, self.machine, self.names)
            assert isinstance(made, Schedule), "a fusion that could be scheduled still can"
            return Candidate(replace(made, notes=found.notes), found.estimate, found.looked_at)
        return found

    def _with_tiles(
        self, stages: Sequence[Stage], stored: frozenset[Value], sizes: tuple[int, ...], looked_at: int
    ) -> Candidate | Declined:
        schedule = lower(FusionRequest(tuple(stages), stored, sizes), self.machine, self.names)
        return schedule if isinstance(schedule, Declined) else Candidate(schedule, estimate(schedule, self.machine), looked_at)

    def _pin(self) -> None:
        """Makes the pinned fusions. Raises ValueError for pins that cannot be."""
        by_number = {k: s for k, op in enumerate(self.program.ops) for s in [self._stage_of_op(op)] if s is not None}
        for pin in self.pins:
            if not pin.ops or any(k not in by_number for k in pin.ops):
                raise ValueError(
                    f"pin {pin.ops}: expected numbers of ops with loops of their own, {sorted(by_number)}"
                )
            chosen = sorted({by_number[k] for k in pin.ops}, key=lambda s: self.order[s])
            if any(s in self.kernel_of or s.declined is not None for s in chosen):
                raise ValueError(f"pin {pin.ops}: an op is pinned twice, or runs in the evaluator")
            if pin.ops[-1] in by_number and by_number[pin.ops[-1]] is not chosen[-1]:
                chosen.remove(by_number[pin.ops[-1]])
                chosen.append(by_number[pin.ops[-1]])
            stored = self.stored(chosen)
            found: Candidate | Weighed | Declined
            if pin.tile_sizes is None:
                found = self.best(chosen, stored, thorough=True)
            elif len(pin.tile_sizes) != chosen[-1].values[0].rank or min(pin.tile_sizes, default=1) < 1:
                raise ValueError(
                    f"pin {pin.ops}: expected {chosen[-1].values[0].rank} positive tile sizes, found {pin.tile_sizes}"
                )
            else:
                found = self._with_tiles(chosen, stored, pin.tile_sizes, 1)
            if isinstance(found, Declined):
                raise ValueError(f"pin {pin.ops}: {found.reason}")
            kernel = Kernel(chosen, found, pinned=True)
            for s in chosen:
                self.kernel_of[s] = kernel
        for made in dict.fromkeys(self.kernel_of.values()):
            if isinstance(made, Kernel) and self._waits_for_itself(made.stages):
                raise ValueError("a pinned fusion would wait for its own results")

    def _stage_of_op(self, op: Op) -> Stage | None:
        return self.stage_of.get(op.results[0]) if op.results else None

    def _waits_for_itself(self, together: Sequence[Stage]) -> bool:
        """True when something outside of these stages reads one of them and is, itself, needed by one of them.

        Looked for from both ends in turns: what few read, or what needs little, is soon told, however long the program is.
        """
        inside = set(together)
        first = min(self.order[s] for s in together)
        before = [p for s in together for p in self.needs[s] if p not in inside]
        after = [r for s in together for r in self.readers[s] if r not in inside]
        seen_before: set[Stage] = set()
        seen_after: set[Stage] = set()
        while before and after:
            s = before.pop()
            if s not in seen_before:
                if s in inside:
                    return True
                mates = self._mates(s)
                seen_before.update(mates)
                if max(map(self.order.__getitem__, mates)) < first:
                    continue  # all that these need comes before
                before.extend(p for m in mates for p in self.needs[m] if p not in seen_before)
                before.extend(m for m in mates if m in inside)
            s = after.pop()
            if s not in seen_after:
                if s in inside:
                    return True
                mates = self._mates(s)
                seen_after.update(mates)
                after.extend(r for m in mates for r in self.readers[m] if r not in seen_after)
        return False

    def _mates(self, stage: Stage) -> Sequence[Stage]:
        """The stages that are computed together with one."""
        kernel = self.kernel_of.get(stage)
        return kernel.stages if isinstance(kernel, Kernel) else (stage,)

    def _alone(self, stage: Stage) -> Kernel | EvaluatorStep:
        if stage.declined is not None:
            return EvaluatorStep(self.names.stage(stage), stage.op, stage.declined.reason, library_of(stage.op))
        if is_plain(stage) and not self.weighs_all:
            return Kernel([stage], None)
        found = self.best([stage], frozenset(stage.values))
        if isinstance(found, Declined):
            self.newly_refused[stage.op] = found
            return EvaluatorStep(self.names.stage(stage), stage.op, found.reason, library_of(stage.op))
        return Kernel([stage], found)

    # ------------------------------------------------------------ joining

    def _join_epilogues(self) -> None:
        """A contraction whose only reader is elementwise joins it first: the reader is its epilogue."""
        for s in self.stages:
            readers = self.readers[s]
            if contractions([s]) and len(readers) == 1:
                reader = readers[0]
                if reader.declined is None and not contractions(readers) and reader.values[0].shape == s.values[0].shape:
                    self._try_join(s)

    def _try_join(self, stage: Stage) -> None:
        """Moves a kernel into one that reads its result: the first of its readers' for which that pays. Of a value in which a
        mask left zeros it is the one for which it pays most: rows of it may leave out more than columns.

        Where other kernels read it, too, it is also stored, by the kernel that now computes it.
        """
        kernel = self.kernel_of[stage]
        readers = self.readers[stage]
        if not readers or isinstance(kernel, EvaluatorStep) or kernel.stages[-1] is not stage:
            return
        targets = dict.fromkeys(self.kernel_of[r] for r in readers)
        each = [t for t in sorted(targets, key=self._position) if t is not kernel]
        if len(each) > 1 and any(v in self.names.facts and self.names.facts[v].zero for v in stage.values):
            each.sort(key=lambda t: self._saved_seconds(kernel, t), reverse=True)
        for target in each:
            if self._join(stage, kernel, target):
                return

    def _saved_seconds(self, kernel: Kernel, target: Kernel | EvaluatorStep) -> float:
        """What is saved when a kernel joins another one; less than nothing where it cannot."""
        if isinstance(target, EvaluatorStep) or self.refusal(kernel, target) is not None:
            return -inf
        together = self.in_one(kernel, target)
        found = self.best(together, self.stored(together))
        if isinstance(found, Declined):
            return -inf
        return self.weigh(kernel).estimate.seconds + self.weigh(target).estimate.seconds - found.estimate.seconds

    def _position(self, kernel: Kernel | EvaluatorStep) -> int:
        last = kernel.stages[-1] if isinstance(kernel, Kernel) else self.stage_by_op[kernel.op]
        return self.order[last]

    def _join(self, stage: Stage, kernel: Kernel, target: Kernel | EvaluatorStep) -> bool:
        """Decides whether `kernel`, whose root is `stage`, becomes a part of `target`, and keeps the reason."""
        me, name = self.names.stage(stage), self.kernel_name(target)
        refusal = self.refusal(kernel, target)
        if isinstance(target, EvaluatorStep) or refusal is not None:
            self.decisions.append(Decision(me, name, False, refusal or "its reader is no kernel"))
            return False
        together = self.in_one(kernel, target)
        stored = self.stored(together)
        readers = [r for r in self.readers[stage] if r in target.stages]
        stays = any(v in stored for v in stage.values)
        if not self.weighs_all and joins_plainly(kernel.stages, target.stages, readers, self.stage_of, stays):
            size = sum(v.tensor.size_bytes for v in stage.values)
            saved = size if stays else 2 * size
            self.decisions.append(Decision(me, name, True, f"element by element: {saved} bytes and a launch less, nothing more"))
            self.replace(together, None)
            return True
        found = self.best(together, stored)
        if isinstance(found, Declined):
            self.decisions.append(Decision(me, name, False, found.reason))
            return False
        estimates = found.estimate, self.weigh(kernel).estimate, self.weigh(target).estimate
        of_product = bool(contractions([stage])) and not contractions(target.stages)
        is_worth_it, apart, reason = weighed(*estimates, of_product, self._is_kept_factor(kernel))
        self.decisions.append(Decision(me, name, is_worth_it, reason, found.estimate.seconds, apart))
        if not is_worth_it:
            return False
        self.replace(together, found)
        return True

    def _is_kept_factor(self, kernel: Kernel) -> bool:
        """Whether a kernel makes nothing but a product's right factor, from arguments alone."""
        inside = set(kernel.stages)
        return self.stored(kernel.stages) <= self.factors and all(p in inside for s in kernel.stages for p in self.needs[s])

    def replace(self, together: list[Stage], found: Candidate | Weighed | None) -> None:
        """Makes one kernel of some stages."""
        joined = Kernel(together, found)
        for s in together:
            self.kernel_of[s] = joined

    def kernels(self) -> list[Kernel]:
        """The kernels so far, in the order of their stages."""
        return list(dict.fromkeys(k for s in self.stages if isinstance(k := self.kernel_of[s], Kernel)))

    def refusal(self, kernel: Kernel, target: Kernel | EvaluatorStep) -> str | None:
        """Why two kernels must not become one, whatever it costs."""
        if self._late():
            return "not tried: the planner's time was over"
        if isinstance(target, EvaluatorStep):
            if is_control(target.op):
                return "its reader is control flow"
            return f"its reader runs in {target.library or 'the evaluator'}: {target.reason}"
        if kernel.pinned or target.pinned:
            return "one of them is pinned"
        nodes = sum(self.nodes[s] for s in (*kernel.stages, *target.stages))
        if nodes > MOST_KERNEL_NODES:
            return f"together they would be a kernel of {nodes} operations; {MOST_KERNEL_NODES} are the most that compile soon"
        together = self.in_one(kernel, target)
        if any(v in self.normed for s in together for v in s.values if not {*self.readers[s]}.isdisjoint(together)):
            return "calls with the same arguments find one of them made, and packed"
        if self._waits_for_itself(together):
            return "another kernel reads one of their results and makes an input of the other"
        return None

    def in_one(self, kernel: Kernel, target: Kernel) -> list[Stage]:
        """The stages of both in dependency order, the target's root last."""
        root = target.stages[-1]
        return [
            *sorted((s for s in (*kernel.stages, *target.stages) if s is not root), key=lambda s: self.order[s]),
            root,
        ]

    def kernel_name(self, kernel: Kernel | EvaluatorStep) -> str:
        return kernel.name if isinstance(kernel, EvaluatorStep) else self.names.stage(kernel.stages[-1])

    # ------------------------------------------------------------ the result

    def _steps(self) -> tuple[PlanStep, ...]:
        settle_facts(self.names, self.structures, {k: self.stored(k.stages) for k in self.kernels()})
        done: list[PlanStep] = []
        for position, kernel in enumerate(self._in_order()):
            if isinstance(kernel, EvaluatorStep):
                control = is_control(kernel.op)
                made = (kernel.name, kernel.op, self.module, self.plan_region, self.supports)
                done.append(plan_control(*made) if control else kernel)
                continue
            name = f"k{position}_{self.names.stage(kernel.stages[-1])}"
            stored = self.stored(kernel.stages)
            best: Candidate | Weighed | Declined
            if kernel.pinned or self._late():
                best = self.weigh(kernel)
            else:
                best = self.best(kernel.stages, stored, thorough=True)
            if isinstance(best, Declined):
                if len(kernel.stages) == 1:
                    self.newly_refused[kernel.stages[0].op] = best
                raise NoSchedule
            before = kernel.candidate
            if isinstance(before, Candidate) and isinstance(best, Weighed) and before.tile_sizes == best.tile_sizes:
                best = replace(before, looked_at=best.looked_at)
            final = self._scheduled(kernel.stages, stored, best)
            ops = tuple(sorted(ops_of(kernel.stages, self.stage_of), key=self.number.__getitem__))
            last = with_rows_at_a_time(final.schedule, self.machine), final.estimate, self.machine.cores, final.looked_at
            done.append(Fusion(name, tuple(kernel.stages), ops, *last))
        return tuple(done)

    def _in_order(self) -> Sequence[Kernel | EvaluatorStep]:
        """The kernels so that each comes after those whose results it reads."""
        first: dict[Kernel | EvaluatorStep, int] = {}
        waits: dict[Kernel | EvaluatorStep, set[Kernel | EvaluatorStep]] = {}
        for k, s in enumerate(self.stages):
            kernel = self.kernel_of[s]
            first.setdefault(kernel, k)
            waits.setdefault(kernel, set()).update(self.kernel_of[p] for p in self.needs[s])
        place = {kernel: k for k, kernel in enumerate(first)}
        return ordered(list(first), [{place[w] for w in waits[kernel] if w is not kernel} for kernel in first])
