"""From a plan to a tree of what a call does (`codegen.call.program.nodes`), and to the memories that it needs.

Values that share memory are found first: what a region reads from outside is the value out there, a loop's value is the same
memory in its condition, its body and its result, and a result written over its source is the source. Each class of such values
gets a number, its slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from codegen.call.fallback import op_reads
from codegen.call.program.nodes import Choice, Compute, Copy, Evaluate, Exchange, Loop, Node, inside
from codegen.kernel.rename import in_one_memory
from codegen.source.emit import PhaseSource, emit_phase
from hlo.errors import Declined
from hlo.module import Value
from tiling import Buffer, ControlStep, EvaluatorStep, Fusion, Plan, Scope
from tiling.loops import element_ir
from tiling.loops.ir import Nest, Phase, Turn
from tiling.pipeline import finished
from tiling.planning.reuse import stores_to, writes_of_step
from tiling.program.inputs import right_factors
from tiling.program.updates.in_place import is_update

__all__ = ["Assembly", "fusion_source"]


class Assembly:
    """The tree of a plan: `nodes`, the `slot` of each value, the size of each slot, and each fusion's `sources`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._same: dict[Value, Value] = {}
        self._slots: dict[object, int] = {}
        self.sizes: dict[int, int] = {}
        self.exchanges: list[tuple[int, int]] = []
        self.sources: list[tuple[Fusion, tuple[PhaseSource, ...]]] = []
        for p in plan.nested():
            self._unify(p)
        for v in plan.program.arguments:
            self.slot(v)
        self._results = {self._root(v) for v in plan.program.results}
        self._moved: dict[int, Copy] = {}
        self._factors = right_factors(plan.program)
        # The caller looks for results where they were at first.
        self.nodes = [*self._plan(plan), *self._moved.values()]

    # ------------------------------------------------------------ memories

    def _root(self, v: Value) -> Value:
        while v in self._same:
            v = self._same[v]
        return v

    def _join(self, v: Value, into: Value) -> None:
        a, b = self._root(v), self._root(into)
        if a is not b:
            self._same[a] = b

    def slot(self, key: Value | Buffer) -> int:
        """The number of the memory of a value (or of a fusion's shared scratch)."""
        root = self._root(key) if isinstance(key, Value) else key
        found = self._slots.get(root)
        if found is None:
            found = self._slots[root] = len(self._slots)
            self.sizes[found] = root.tensor.size_bytes if isinstance(root, Value) else root.size_bytes
        return found

    def known_slot(self, v: Value) -> int | None:
        """The slot of a value that has one."""
        return self._slots.get(self._root(v))

    @property
    def count(self) -> int:
        return len(self._slots)

    def _spare(self, size_bytes: int) -> int:
        """Memory that belongs to no value."""
        mark = object()
        number = self._slots[mark] = len(self._slots)
        self.sizes[number] = size_bytes
        return number

    def _unify(self, plan: Plan) -> None:
        for r in plan.reuses:
            if r.shared:
                self._join(r.target, r.source)
        for c in plan.controls:
            for region in c.regions:
                for outside, within in region.region.outside:
                    self._join(within, outside)
            if c.is_loop:
                cond, body = c.regions
                rows = zip(c.op.operands, c.op.results, cond.region.arguments, body.region.arguments, c.carries, strict=True)
                for operand, result, tested, argument, carry in rows:
                    self._join(tested, argument)
                    self._join(argument, operand if carry.how == "invariant" else result)
                    if carry.how == "invariant":
                        self._join(result, operand)
                continue
            for region in c.regions:
                made = {v for s in region.plan.steps for v in writes_of_step(s)}
                inner = region.plan.program.results
                for result, v in zip(c.op.results, inner, strict=True):
                    if v in made and sum(x is v for x in inner) == 1:
                        self._join(v, result)

    # ------------------------------------------------------------ steps

    def _plan(self, plan: Plan) -> list[Node]:
        nodes: list[Node] = []
        copied = {r.target: r.source for r in plan.reuses if not r.shared}
        for step in plan.steps:
            if isinstance(step, Fusion):
                op = step.stages[-1].op
                if is_update(op) and op.results[0] in copied:
                    nodes += self._copy(copied[op.results[0]], op.results[0])
                nodes += self._fusion(step)
            elif isinstance(step, EvaluatorStep):
                reads = tuple(self.slot(v) for v in op_reads(step.op))
                nodes.append(Evaluate(step, reads, tuple(self.slot(v) for v in step.op.results)))
            else:
                nodes += self._loop(step) if step.is_loop else self._choice(step)
        return nodes

    def _fusion(self, fusion: Fusion) -> list[Node]:
        nodes: list[Node] = []
        phases = fusion.schedule.phases
        sources = fusion_source(fusion, self.plan.machine.excess_precision)
        self.sources.append((fusion, sources))
        made_once = len(phases) == 1 and all(v in self._factors for v in fusion.outputs)
        for k, (phase, made) in enumerate(zip(phases, sources, strict=True)):
            slots = tuple(self.slot(b if b.scope is Scope.SHARED else _value(b)) for b in made.buffers)
            writes = frozenset(
                s for s, b in zip(slots, made.buffers, strict=True) if b.scope is not Scope.ARGUMENT and stores_to(phase, b)
            )
            name = fusion.name if k == len(phases) - 1 else f"{fusion.name}_pack{k}"
            nodes.append(Compute(name, fusion, *_one_name_each(made, slots), writes, _packs(phase, made_once)))
        return nodes

    def _copy(self, source: Value, target: Value) -> list[Node]:
        a, b = self.slot(source), self.slot(target)
        return [] if a == b else [Copy(a, b, self.sizes[b], _dtype(target))]

    # ------------------------------------------------------------ loops

    def _loop(self, step: ControlStep) -> list[Node]:
        cond, body = step.regions
        before: list[Node] = []
        carried: set[int] = set()
        for operand, c in zip(step.op.operands, step.carries, strict=True):
            if c.how != "invariant":
                before += self._copy(operand, c.argument)
                carried.add(self.slot(c.argument))
        tests, works = self._plan(cond.plan), self._plan(body.plan)
        (goes_on,) = cond.plan.program.results
        first = self._hoisted([tests, works], carried)
        held = carried | {s for n in first for s in n.slots}
        held |= {self.slot(v) for v in step.reads if self.known_slot(v) is not None}
        hoisted = {s for n in first for s in n.writes}
        copies: list[tuple[Value, Value]] = []
        exchanges: list[Node] = []
        for c in step.carries:
            a, r = self.slot(c.argument), self.slot(c.result)
            if a == r:
                continue
            if c.how != "exchanged" or r in hoisted:
                copies.append((c.result, c.argument))
                continue
            exchanges.append(Exchange(a, r))
            self.exchanges.append((a, r))
            held |= {a, r}
            if self._root(c.argument) in self._results:
                self._moved[a] = Copy(a, a, self.sizes[a], _dtype(c.argument), settled=True)
        works = [*works, *self._moves(copies), *exchanges]
        return [*before, *first, Loop(step.name, tests, self.slot(goes_on), works, frozenset(held), step.trips)]

    def _moves(self, copies: Sequence[tuple[Value, Value]]) -> list[Node]:
        """Copies that happen at once, one after the other: no source is written before it was read."""
        nodes: list[Node] = []
        waiting = {self.slot(target): (self.slot(source), target) for source, target in copies}
        while waiting:
            read = {source for source, _ in waiting.values()}
            free = next((t for t in waiting if t not in read), None)
            if free is None:  # a ring: one of them steps aside
                free, (_, target) = next(iter(waiting.items()))
                aside = self._spare(self.sizes[free])
                nodes.append(Copy(free, aside, self.sizes[free], _dtype(target)))
                waiting = {t: (aside if source == free else source, v) for t, (source, v) in waiting.items()}
                continue
            source, target = waiting.pop(free)
            nodes.append(Copy(source, free, self.sizes[free], _dtype(target)))
        return nodes

    def _hoisted(self, parts: Iterable[list[Node]], carried: set[int]) -> list[Compute]:
        """Takes the kernels out of a loop that compute the same every time."""
        parts = list(parts)
        writers: dict[int, list[Node]] = {}
        for n in inside(n for part in parts for n in part):
            for s in _written(n):
                writers.setdefault(s, []).append(n)
        out: list[Compute] = []
        found = True
        while found:
            found = False
            for part in parts:
                for n in part:
                    if not isinstance(n, Compute) or is_update(n.fusion.stages[-1].op) or carried & set(n.slots):
                        continue
                    if all(w is n or w in out for s in n.slots for w in writers.get(s, ())):
                        out.append(n)
                        part.remove(n)
                        found = True
                        break
        return out

    # ------------------------------------------------------------ branches

    def _choice(self, step: ControlStep) -> list[Node]:
        choice = Choice(step.name, self.slot(step.op.operands[0]), step.op.name != "stablehlo.if")
        for region in step.regions:
            nodes = self._plan(region.plan)
            for result, v in zip(step.op.results, region.plan.program.results, strict=True):
                nodes += self._copy(v, result)
            choice.branches.append(nodes)
        return [choice]


def fusion_source(fusion: Fusion, excess_precision: bool = False) -> tuple[PhaseSource, ...]:
    """The source of each phase of a fusion. Raises RuntimeError for one that has no source: `supports` was not asked."""
    found = []
    final = finished(fusion.schedule)
    for phase in final.phases:
        made = emit_phase(final, phase, fusion.name, excess_precision)
        if isinstance(made, Declined):
            raise RuntimeError(f"{fusion.name} was planned but cannot be written: {made.reason}")
        found.append(made)
    return tuple(found)


def _one_name_each(source: PhaseSource, slots: tuple[int, ...]) -> tuple[PhaseSource, tuple[int, ...]]:
    """Buffers in one memory become one argument: the compiler then knows that they are the same, not that they may be."""
    if len(set(slots)) == len(slots):
        return source, slots
    kept: dict[int, Buffer] = {}
    slot_of = dict(zip(source.buffers, slots, strict=True))
    for b, slot in slot_of.items():
        if slot not in kept or b.scope is not Scope.ARGUMENT:
            kept[slot] = b
    joined = {b.name: kept[slot].name for b, slot in zip(source.buffers, slots, strict=True) if kept[slot] is not b}
    buffers = tuple(b for b, slot in zip(source.buffers, slots, strict=True) if kept[slot] is b)
    # What is read as well is no longer only written.
    once = frozenset(b for b in source.written if b.name not in joined.values())
    walked = {kept[slot_of[b]] if b in slot_of else b: more for b, more in source.walked.items()}
    made = replace(source, kernel=in_one_memory(source.kernel, joined), buffers=buffers, written=once, walked=walked)
    return made, tuple(slot for b, slot in zip(source.buffers, slots, strict=True) if kept[slot] is b)


def _written(n: Node) -> Iterable[int]:
    if isinstance(n, (Compute, Evaluate)):
        return n.writes
    if isinstance(n, Copy):
        return (n.target,)
    return (n.first, n.second) if isinstance(n, Exchange) else ()


def _packs(phase: Phase, makes_factor: bool) -> bool:
    """Whether a phase only puts elements of values into memory between phases, as they are; or makes a product's factor."""
    for step in (*phase.before, *phase.all_steps):
        if isinstance(step, Turn):
            if step.target.buffer.scope is not Scope.SHARED and not makes_factor:
                return False
        elif isinstance(step, Nest):
            stores = [*step.stores, *(s for piece in step.segments for s in piece.stores)]
            folds = step.folds or any(piece.folds for piece in step.segments)
            if not makes_factor and (folds or not all(s.buffer.scope is Scope.SHARED and _is_moved(s.node) for s in stores)):
                return False
        else:
            return False
    return True


def _is_moved(node: element_ir.Node) -> bool:
    """Whether a node is an element of a value, or a constant where there is none."""
    if isinstance(node, element_ir.Choose):
        return not node.runtimes and _is_moved(node.then) and _is_moved(node.otherwise)
    return isinstance(node, element_ir.Scalar) or (isinstance(node, element_ir.Load) and not node.runtimes)


def _value(b: Buffer) -> Value:
    assert b.value is not None
    return b.value


def _dtype(v: Value) -> str:
    return str(v.tensor.dtype.name)
