"""Why a value goes through memory: for every edge between two steps of a plan the reason, with a witness.

An edge that the planner decided has that decision's reason. The others are examined here, as the planner would: the two kernels
as one, with the reader's tiles. The witness is what the reason rests on: a path through a third kernel, an element that several
tiles need, scratch that leaves the cache, or the estimates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TypeAlias

from hlo.errors import Declined
from hlo.module import Value
from hlo.types import TensorType
from indexing.program import maps_from
from tiling.loops.ir import Schedule
from tiling.lower.placing import FusionRequest
from tiling.planning.costs.estimate import estimate
from tiling.planning.forms import lower
from tiling.planning.model import ControlStep, Decision, Edge, EvaluatorStep, Fusion, Plan, edges
from tiling.planning.search import computed
from tiling.program.run_in_strips import is_strip_loop
from tiling.tiles.symbolic import exact_tile

__all__ = ["Edge", "edges_of"]

Step: TypeAlias = Fusion | EvaluatorStep | ControlStep


def edges_of(plan: Plan) -> tuple[Edge, ...]:
    """Every edge between two steps of a plan, in the order in which they run, each with its reason."""
    return tuple(_Edges(plan).run())


edges.register(Plan, edges_of)


def slower(what: str, seconds: float, before: float) -> list[str]:
    """That something takes longer than before; nothing where it does not, or by less than is printed.

    >>> slower("traffic", 3e-6, 2e-6), slower("traffic", 3.00001e-6, 3e-6), slower("traffic", 1e-6, 2e-6)
    (['traffic 3.0 us instead of 2.0 us'], [], [])
    """
    more, less = f"{seconds * 1e6:.1f} us", f"{before * 1e6:.1f} us"
    return [f"{what} {more} instead of {less}"] if seconds > before and more != less else []


class _Edges:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.position = {op: k for k, op in enumerate(plan.program.ops)}
        self.made: dict[Value, Step] = {}
        for step in plan.steps:
            for v in step.outputs if isinstance(step, Fusion) else step.op.results:
                self.made[v] = step
        self.reads = {step.name: self._reads(step) for step in plan.steps}
        self.decided: dict[tuple[str, str], Decision] = {}
        for d in plan.decisions:
            if not d.fused:
                self.decided[d.producer, d.consumer] = d

    def run(self) -> Iterator[Edge]:
        for consumer in self.plan.steps:
            by_producer: dict[str, tuple[Step, list[Value]]] = {}
            for v in self.reads[consumer.name]:
                producer = self.made.get(v)
                if producer is not None and producer is not consumer:
                    by_producer.setdefault(producer.name, (producer, []))[1].append(v)
            for producer, values in by_producer.values():
                yield self._edge(producer, consumer, values)

    def _reads(self, step: Step) -> list[Value]:
        """What a step reads of others: behind what the evaluator computes on the way, too."""
        if isinstance(step, Fusion):
            return list(step.inputs)
        found: dict[Value, None] = {}
        seen: set[Value] = set()
        todo = list(step.reads if isinstance(step, ControlStep) else step.op.operands)
        while todo:
            v = todo.pop()
            if v in self.made:
                found[v] = None
            elif v not in seen and v.op is not None:
                todo.extend(v.op.operands)
            seen.add(v)
        return list(found)

    # ------------------------------------------------------------ reasons

    def _edge(self, producer: Step, consumer: Step, values: Sequence[Value]) -> Edge:
        names = tuple(self.plan.names.of(v) for v in values)
        size = sum(v.type.size_bytes for v in values if isinstance(v.type, TensorType) and v.type.is_static)

        def edge(kind: str, reason: str, witness: str = "", *seconds: float | None) -> Edge:
            return Edge(producer.name, consumer.name, names, size, kind, reason, witness, *seconds)

        for step in (producer, consumer):
            if isinstance(step, ControlStep):
                kind = "loop" if step.is_loop else "branch"
                whose = "over strips" if is_strip_loop(step.op) else "of the program"
                reason = f"{step.name} is a {kind} {whose}, whose regions are planned by themselves"
                return edge("control", reason, step.op.name)
            if not isinstance(step, Fusion):
                where = step.library or "the evaluator"
                what = f"{where} makes it" if step is producer else f"its reader runs in {where}"
                return edge("evaluator", what, step.reason)
        assert isinstance(producer, Fusion) and isinstance(consumer, Fusion)
        between = self._between(producer, consumer)
        decision = self._decision(producer, consumer)
        if between:
            return edge("order", "another kernel reads one of their results and makes an input of the other", between)
        schedule = self._joined(producer, consumer)
        if decision is not None:
            kind = "rule" if decision.together is None else "estimate"
            witness = self._weighed(producer, consumer, schedule) if kind == "estimate" else ""
            return edge(kind, decision.reason, witness, decision.together, decision.apart)
        ends = self._two_ends(producer, consumer)
        if isinstance(schedule, Declined):
            return edge("rule", schedule.reason if not ends else ends[0], "" if not ends else ends[1])
        apart = producer.estimate.seconds + consumer.estimate.seconds
        one = estimate(schedule, self.plan.machine)
        together = one.seconds
        numbers = f"{one.figure(together)} together with the reader's tiles, {one.figure(apart)} apart"
        witness = self._weighed(producer, consumer, schedule)
        if together >= apart:
            return edge("estimate", numbers, witness, together, apart)
        last = self.plan.names.stage(producer.stages[-1])
        reason = f"not tried: a kernel is joined to a reader of its last value, %{last}, which comes first; {numbers}"
        return edge("untried", reason, witness, together, apart)

    def _decision(self, producer: Fusion, consumer: Fusion) -> Decision | None:
        """The last decision against this edge: for a stage of the one and a stage of the other."""
        mine = [self.plan.names.stage(s) for s in producer.stages]
        theirs = [self.plan.names.stage(s) for s in consumer.stages]
        found = [self.decided[a, b] for a in mine for b in theirs if (a, b) in self.decided]
        return found[-1] if found else None

    def _between(self, producer: Fusion, consumer: Fusion) -> str:
        """A path from one to the other through other steps, in words; empty where there is none."""
        came: dict[str, tuple[str, Value]] = {}
        position = {s.name: k for k, s in enumerate(self.plan.steps)}
        for step in self.plan.steps[position[producer.name] + 1 : position[consumer.name] + 1]:
            for v in self.reads[step.name]:
                source = self.made.get(v)
                if source is None or (source is producer and step is consumer):
                    continue
                if source is producer or source.name in came:
                    came.setdefault(step.name, (source.name, v))
        if consumer.name not in came:
            return ""
        path = [f"{consumer.name}"]
        at = consumer.name
        while at != producer.name:
            at, v = came[at]
            path.append(f"{at} -%{self.plan.names.of(v)}->")
        return " ".join(reversed(path))

    def _joined(self, producer: Fusion, consumer: Fusion) -> Schedule | Declined:
        """Both as one kernel, with the reader's tiles."""
        root = consumer.stages[-1]
        others = {s: s for s in (*producer.stages, *consumer.stages) if s is not root}
        stages = (*sorted(others.values(), key=lambda s: self.position.get(s.op, -1)), root)
        outside = set(self.plan.program.results)
        for name, reads in self.reads.items():
            if name not in (producer.name, consumer.name):
                outside |= set(reads)
        stored = frozenset(v for s in stages for v in s.values if v in outside or s is root)
        return lower(FusionRequest(stages, stored, consumer.tile_sizes), self.plan.machine, self.plan.names)

    # ------------------------------------------------------------ witnesses

    def _two_ends(self, producer: Fusion, consumer: Fusion) -> tuple[str, str] | None:
        """(reason, witness) where the producer's last value is for others: one kernel would have two results to tile."""
        read = set(self.reads[consumer.name])
        last, root = producer.stages[-1].values, consumer.stages[-1].values[0]
        if any(v in read for v in last):
            return None
        name, reader = self.plan.names.of(last[0]), self.plan.names.of(root)
        reason = f"the producer's last value, %{name}, is for others: its tiles do not follow from those of %{reader}"
        return reason, f"%{name} has dimensions {list(last[0].shape)}, %{reader} has {list(root.shape)}"

    def _weighed(self, producer: Fusion, consumer: Fusion, schedule: Schedule | Declined) -> str:
        """What makes one kernel slower than two: elements computed again, scratch beyond the cache, arithmetic or traffic."""
        if isinstance(schedule, Declined):
            return f"with the reader's tiles {list(consumer.tile_sizes)}: {schedule.reason}"
        found: list[str] = []
        again = self._computed_again(schedule)
        if again is not None:
            value, times = again
            found.append(
                f"%{self.plan.names.of(value)} is computed {times:.3g} times over{self._shared(producer, consumer, value)}"
            )
        machine = self.plan.machine
        if schedule.thread_scratch_bytes > machine.l2_bytes:
            found.append(
                f"{schedule.thread_scratch_bytes} bytes of scratch a task spill from L2's {machine.l2_bytes}"
            )
        one = estimate(schedule, machine)
        for what in ("arithmetic_seconds", "traffic_seconds"):
            a, b = getattr(one, what), getattr(producer.estimate, what) + getattr(consumer.estimate, what)
            found += slower(what.partition("_")[0], a, b)
        tasks = schedule.main.tasks
        before = producer.schedule.main.tasks
        if tasks < min(before, machine.cores):
            found.append(f"{tasks} task{'s' if tasks > 1 else ''} instead of {before}, for {machine.cores} cores")
        sizes = list(schedule.tile_sizes)
        return f"with tiles {sizes}: {'; '.join(found)}" if found else f"with tiles {sizes}: {one}"

    def _computed_again(self, schedule: Schedule) -> tuple[Value, float] | None:
        """The value of which most elements are computed more than once, and how many times."""
        worst: tuple[Value, float] | None = None
        tasks = schedule.main.tasks
        for values, loops in computed(schedule):
            size = values[0].tensor.size_elems
            times = prod(n for _, n in loops) * tasks / max(size, 1)
            if times > 1.5 and (worst is None or times > worst[1]):
                worst = (values[0], times)
        return worst

    def _shared(self, producer: Fusion, consumer: Fusion, value: Value) -> str:
        """An element of `value` that two tiles of the reader's root need, in words; looked for inside of the two kernels."""
        inside = {v for f in (producer, consumer) for v in f.outputs}
        ends = [v for f in (producer, consumer) for v in f.inputs if v not in inside]
        found = shared_element(consumer.stages[-1].values[0], value, consumer.tile_sizes, ends)
        if found is None:
            return ""
        element, first, second = found
        return f": its element {element} is needed by the tiles at {first} and {second}"


def shared_element(
    root: Value, value: Value, tile_sizes: Sequence[int], ends: Sequence[Value] = ()
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """An element of `value` on which two neighbouring tiles of `root` depend, and where those begin; None when none is found.

    What lies behind `ends` is not looked at: `value` does not, and a network's maps are many.

    >>> import hlo
    >>> m = hlo.parse('''HloModule m ENTRY e { p = f32[8,9] parameter(0) n = f32[8,9] negate(p)
    ...   s = f32[8,1] slice(n), slice={[0:8], [3:4]} r = f32[8] reshape(s) ROOT b = f32[8,9] broadcast(r), dimensions={0} }''')
    >>> shared_element(m.root.results[0], m.root.operands[0], [4, 3])
    ((0,), (0, 0), (0, 3))
    """
    if not isinstance(root.type, TensorType) or root.rank == 0:
        return None
    for m in maps_from(root, (value, *ends)).get(value, ()):
        if m.unknown is not None or m.is_known_empty:
            continue
        for k in range(root.rank):
            if tile_sizes[k] >= root.shape[k]:
                continue
            first = [v.interval.lower // t * t for v, t in zip(m.dims, tile_sizes, strict=True)]
            second = [x + (tile_sizes[k] if j == k else 0) for j, x in enumerate(first)]
            a, b = exact_tile(m, tile_sizes, first), exact_tile(m, tile_sizes, second)
            if isinstance(a, Declined) or isinstance(b, Declined):
                continue
            both = a & b
            if not both.is_empty:
                return next(iter(both)), tuple(first), tuple(second)
    return None
