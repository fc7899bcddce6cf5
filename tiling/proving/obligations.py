"""Proofs of schedules: what has to hold for a kernel to be right, shown by isl for each access of a schedule.

    formed             every name stands for something, and every part of a step fits the others
    written once       (tasks, loops) -> element is injective and reaches every element of a result
    in bounds          every access lies in its buffer, and in its value's shape, wherever its conditions hold
    produced           what a step reads was written before: by its own task, or by any task of an earlier phase
    not overwritten    between a value's last write and a read of it nothing else is written there
    tasks apart        no task writes where another one of its phase reads or writes
    storage            different positions of a buffer have different addresses, all inside its memory
    ranges             loops stay in the ranges that index expressions were simplified with
    mapped             a load takes the element that the program's maps lead to
    complete           and all of them are loaded: a reduction covers its range, each element once
    paired             a product's factors are elements that the op multiplies
    computed           an expression is what the ops compute: symbol by symbol, or tried at points and with numbers
    folded once        each element of an op's range is folded once, unless it changes nothing
    starts, goes on    a running result starts from the initial value, and each block takes all of it along
    measured           a flag looks at the greatest magnitudes of all of an input, which an earlier phase found
    segments           the parts that an innermost loop was cut into do, together, what its nest says
    bounds             rows that a loop up to a number read does not store are read nowhere
    left out           what is not computed while a flag is 1 is neutral, or zero, with inputs within the flag's limits
    routine            sorts, scatters, selections and transforms are called as their op says, once and in order
    inputs             arguments are never written; a plan's kernels read what exists by then

An obligation is proved, refuted with a witness, assumed with a reason, or undecided when it takes more than its budget: never
proved by default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from hlo.registry import Literal
from tiling.loops.accesses import AlikeSteps, accesses_of, flag_values
from tiling.loops.domains.iterations import Access, Kind
from tiling.loops.ir import Buffer, Schedule, Scope
from tiling.loops.limits import in_full
from tiling.pipeline import finished
from tiling.planning.model import Fusion, Plan
from tiling.program.updates.in_place import is_update
from tiling.proving.contents.carried import carried_questions
from tiling.proving.contents.computed import Assumed, computed_questions
from tiling.proving.contents.followed import followed, in_whole_nests
from tiling.proving.contents.left_out import measured_faults
from tiling.proving.contents.limits import limit_questions
from tiling.proving.contents.mapped import mapped_questions
from tiling.proving.contents.routines import routine_faults
from tiling.proving.contents.segments import segment_questions
from tiling.proving.formed import unfounded
from tiling.proving.proof import Obligation, Proof, Verdict
from tiling.proving.quick_proofs import covers, stays_inside, tasks_apart, writes_once
from tiling.proving.relations import WIDENED, Questions, Undecided

__all__ = ["prove", "prove_memory"]

OPERATIONS = 3_000_000
"""What isl may spend on one question."""


def prove(subject: Schedule | Fusion | Plan, operations: int = OPERATIONS, seconds: float = 600.0) -> Proof:
    """Shows that a schedule (of a fusion, or each one of a plan) computes each result once and reads only what is there.

    Of a fusion and a plan that is also shown of the final loops (`tiling.pipeline.finished`), which kernels print.

    `operations` bounds isl's work on one question, `seconds` the whole: what is left over is undecided. What is assumed is no
    hindrance to `holds`; it is listed in the report. Never raises for a
    schedule that breaks a rule: that is a refuted obligation.

    >>> import hlo, tiling
    >>> text = '''func.func @main(%x: tensor<64x8xf32>) -> tensor<8x64xf32> {
    ...   %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<64x8xf32>) -> tensor<8x64xf32>
    ...   return %0 : tensor<8x64xf32> }'''
    >>> prove(tiling.plan(hlo.parse(text))).holds
    True
    """
    start = time.perf_counter()
    found: list[Obligation] = []
    deadline = start + seconds
    if isinstance(subject, Plan):
        for p in subject.nested():
            found += _inputs_of_plan(p)
        for f in (f for p in subject.nested() for f in p.fusions):
            found += [
                Obligation(o.name, f"{f.name} {o.subject}", o.verdict, o.witness)
                for o in _of_kernel(f.schedule, operations, deadline)
            ]
            found += _outputs(f)
    else:
        found += (
            _of_kernel(subject.schedule, operations, deadline)
            if isinstance(subject, Fusion)
            else _prove(subject, operations, deadline)
        )
    return Proof(tuple(found), time.perf_counter() - start)


def _of_kernel(schedule: Schedule, operations: int, deadline: float) -> list[Obligation]:
    """The obligations of a kernel: of its loops as they were lowered and, where those hold, of the final ones."""
    found = _prove(schedule, operations, deadline)
    if not Proof(tuple(found)).holds or finished(schedule) is schedule:
        return found  # passes need not make sense of loops that break a rule: they do not see them
    final = _prove(finished(schedule), operations, deadline, _Prover.cut_loops)
    final += _prove(followed(schedule), operations, deadline, partial(_Prover.contents, lowered=in_full(schedule)))
    return found + [replace(o, subject=f"final loops, {o.subject}") for o in final]


def prove_memory(schedule: Schedule, operations: int = OPERATIONS, seconds: float = 60.0) -> Proof:
    """Shows that a kernel touches its own memory only: in bounds, written once, produced, tasks apart, storage.

    What `prove` shows first, and all that it takes to run a kernel without harm; whether results are right is not asked.
    Obligations that are proved have no subject, or are left out. Never raises for a schedule that breaks a rule.

    >>> import hlo, tiling
    >>> text = '''func.func @main(%x: tensor<64x8xf32>) -> tensor<64x8xf32> {
    ...   %0 = stablehlo.tanh %x : tensor<64x8xf32>
    ...   return %0 : tensor<64x8xf32> }'''
    >>> schedule = tiling.plan(hlo.parse(text)).fusions[0].schedule
    >>> prove_memory(schedule).holds
    True
    >>> (result,) = schedule.buffers_in(tiling.Scope.RESULT)
    >>> short = replace(schedule, buffers=(replace(result, size_elems=100), *(b for b in schedule.buffers if b is not result)))
    >>> print(prove_memory(short).refuted[0])
    storage: tanh_1: refuted: its last element lies at 511, its memory has 100 elements
    """
    start = time.perf_counter()
    found = _prove(schedule, operations, start + seconds, _Prover.memory, brief=True)
    return Proof(tuple(found), time.perf_counter() - start)


def _prove(
    schedule: Schedule, operations: int, deadline: float,
    asked: Callable[[_Prover], Iterator[Obligation]] | None = None, brief: bool = False,
) -> list[Obligation]:  # fmt: skip
    found: list[Obligation] = []
    if not brief:
        found += [Obligation("formed", subject, Verdict.REFUTED, fault) for subject, fault in unfounded(schedule)]
        if found:
            return found
        found.append(Obligation("formed", "all parts", Verdict.PROVED))
    bounded, schedule = schedule, in_full(schedule)  # what loops that end at numbers read leave out is shown to count for nothing
    if asked is None:
        named = [("routine", *x) for x in routine_faults(schedule)] + [("measured", *x) for x in measured_faults(schedule)]
        for name, subject, fault in named:
            found.append(Obligation(name, subject, Verdict.REFUTED if fault else Verdict.PROVED, fault or ""))
    each = flag_values(schedule)
    questions, settled = Questions(operations, deadline), _Settled() if len(each) > 1 else None
    for one in each:
        flags = [f"{f.variable} = {one.ranges[f.variable].lower}" for p in one.phases for f in p.flags]
        tag = "".join(f"while {x}: " for x in flags)
        prover = _Prover(one, questions, settled, brief)
        for o in prover.run() if asked is None else asked(prover):
            plain = not tag or (brief and o.verdict is Verdict.PROVED)
            found.append(o if plain else Obligation(o.name, tag + o.subject, o.verdict, o.witness))
    if bounded is not schedule:
        prover = _Prover(bounded, questions, None, brief)
        found += prover.of_blocks()
        found += [prover._decided(*x) for x in limit_questions(bounded, questions)] if asked is None else []
    return found


def _outputs(f: Fusion) -> Iterator[Obligation]:
    """Each stored buffer belongs to a value."""
    for b in f.schedule.buffers_in(Scope.RESULT):
        if b.value is None:
            yield Obligation("inputs", f"{f.name} {b.name}", Verdict.REFUTED, "a result buffer without a value")


def _inputs_of_plan(plan: Plan) -> Iterator[Obligation]:
    """A kernel reads arguments, constants and what an earlier kernel stored."""
    ready = set(plan.program.arguments)
    for step in plan.steps:
        reads = step.inputs if isinstance(step, Fusion) else step.op.operands
        for v in reads:
            made = v in ready or (v.op is not None and isinstance(v.op.definition.semantics, Literal))
            # Operands of the evaluator's ops may be computed in place by no kernel at all.
            if isinstance(step, Fusion) or not made:
                name = f"{step.name} reads %{v.name or '?'}"
                verdict = Verdict.PROVED if made else Verdict.REFUTED
                yield Obligation("inputs", name, verdict, "" if made else f"%{v.name or '?'} is not there yet")
        ready |= {*(step.outputs if isinstance(step, Fusion) else step.op.results)}


@dataclass(frozen=True)
class _Settled:
    """What is the same for every value of a schedule's flags: steps' accesses, and what was shown of the very same accesses."""

    alike: AlikeSteps = field(default_factory=dict)
    answers: dict[tuple[object, ...], Obligation] = field(default_factory=dict)


class _Prover:
    def __init__(self, schedule: Schedule, questions: Questions, settled: _Settled | None, brief: bool = False) -> None:
        self.schedule, self.ask, self.settled = schedule, questions, settled
        self.brief = brief  # what is proved is not described
        self.accesses: list[Access] = []
        self.unmodelled: list[tuple[str, str]] = []
        for a in accesses_of(schedule, settled.alike if settled is not None else None):
            if isinstance(a, Access):
                self.accesses.append(a)
            else:
                self.unmodelled.append(a)
        self.writes: dict[Buffer, list[Access]] = {}
        for a in self.accesses:
            if a.kind is not Kind.READ:
                self.writes.setdefault(a.buffer, []).append(a)

    def _is_updated(self, buffer: Buffer) -> bool:
        """True for a value that a kernel changes in place: the rest of it was there before."""
        v = buffer.value
        return buffer.scope is Scope.RESULT and v is not None and v.op is not None and is_update(v.op)

    def run(self) -> Iterator[Obligation]:
        yield from self.cut_loops()
        whole = in_whole_nests(self.schedule)
        yield from (self if whole is self.schedule else _Prover(whole, self.ask, None, self.brief)).contents()

    def cut_loops(self) -> Iterator[Obligation]:
        """What memory is touched, and whether the segments of a loop do what its nest says."""
        yield from self.memory()
        for name, subject, question in segment_questions(self.schedule, self.ask):
            yield self._decided(name, subject, question)

    def memory(self) -> Iterator[Obligation]:
        """What has to hold for a kernel to touch only what is there and its own, and to read nothing that was never written."""
        for label, reason in self.unmodelled:
            yield Obligation("modelled", label, Verdict.UNDECIDED, reason)
        for b in self.schedule.buffers:
            yield from self._seen("storage", b.name, _storage_fault(b))
        for a in self.accesses:
            yield self._once("in bounds", a, (a,), partial(self._outside, a))
        for b in self.schedule.buffers:
            if b.scope is Scope.RESULT and not self._is_updated(b):
                mine = [w for w in self.writes.get(b, []) if w.kind is Kind.WRITE and (w.value is None or w.value is b.value)]
                yield self._once("written once", b.name, (b.name, *mine), partial(self._written_once, b, mine))
            if b.scope is Scope.ARGUMENT:
                bad = self.writes.get(b, [])
                yield from self._seen("inputs", f"{b.name} is not written", str(bad[0]) if bad else None)
        known = set(self.schedule.buffers)
        for a in self.accesses:
            if a.buffer not in known:
                yield Obligation("storage", str(a), Verdict.REFUTED, f"{a.buffer.name} is none of the schedule's buffers")
            if self._is_made_here(a):
                before, earlier = self._producers(a)
                yield self._once("produced", a, (a, *before, "", *earlier), partial(self._unproduced, a, before, earlier))
        yield from self._apart()
        yield from self._ranges()

    def of_blocks(self) -> Iterator[Obligation]:
        """What is read where loops end at numbers read is inside of its buffer, and was stored in the same block or before."""
        for a in self.accesses:
            if a.domain.blocks > 1:
                yield self._decided("in bounds", a, partial(self._outside, a))
                if self._is_made_here(a):
                    yield self._decided("produced", a, partial(self._unproduced, a, *self._producers(a)))

    def contents(self, lowered: Schedule | None = None) -> Iterator[Obligation]:
        """What has to hold for what is read to be the right thing; of final loops, that were made of the `lowered` ones."""
        for a in self.accesses:
            if self._is_made_here(a):
                yield self._decided("not overwritten", a, partial(self._overwritten, a))
        for name, subject, question in (
            *mapped_questions(self.schedule, self.ask),
            *computed_questions(self.schedule, self.ask, lowered),
            *carried_questions(self.schedule, self.accesses, self.ask),
        ):
            yield self._decided(name, subject, question)

    def _is_made_here(self, a: Access) -> bool:
        """True for a read of what this kernel wrote itself."""
        return a.kind is not Kind.WRITE and a.buffer.scope is not Scope.ARGUMENT and not self._is_updated(a.buffer)

    def _seen(self, name: str, subject: str, witness: str | None) -> Iterator[Obligation]:
        """An obligation that was looked at; where only faults are told, none for one that holds."""
        if witness is not None:
            yield Obligation(name, subject, Verdict.REFUTED, witness)
        elif not self.brief:
            yield Obligation(name, subject, Verdict.PROVED)

    def _once(
        self, name: str, subject: str | Access, about: tuple[object, ...], question: Callable[[], str | None]
    ) -> Obligation:
        """As `_decided`, asked once about the same accesses, on which alone the answer depends."""
        if self.settled is None:
            return self._decided(name, subject, question)
        known = self.settled.answers.get((name, *about))
        if known is None:
            known = self.settled.answers[name, *about] = self._decided(name, subject, question)
        return known

    def _decided(self, name: str, subject: str | Access, question: Callable[[], str | None]) -> Obligation:
        """`question` gives a witness against the obligation, or None.

        A witness among iterations that may not be there, those of an access in a `widened` domain, decides nothing.
        """
        try:
            witness = question()
        except Assumed as reason:
            return Obligation(name, str(subject), Verdict.ASSUMED, str(reason))
        except Undecided as reason:
            return Obligation(name, str(subject), Verdict.UNDECIDED, str(reason))
        if witness is None:
            return _held(name) if self.brief else Obligation(name, str(subject), Verdict.PROVED)
        if isinstance(subject, Access) and subject.domain.widened:
            return Obligation(name, str(subject), Verdict.UNDECIDED, f"{WIDENED}: {witness}")
        return Obligation(name, str(subject), Verdict.REFUTED, witness)

    # ------------------------------------------------------------ numbers

    def _ranges(self) -> Iterator[Obligation]:
        seen: dict[Any, str | None] = {}
        for v, b in dict.fromkeys(x for a in self.accesses for x in a.domain.variables):
            claimed = self.schedule.ranges.get(v)
            if claimed is not None and not claimed.covers(b):
                seen[v] = f"{v} runs over {b}, its range is {claimed}"
            else:
                seen.setdefault(v, None)
        for v, bad in seen.items():
            if v in self.schedule.ranges:
                yield from self._seen("ranges", str(v), bad)

    def _outside(self, a: Access) -> str | None:
        sides = list(zip(a.at, a.buffer.shape, strict=True))
        if a.index is not None and a.value is not None and len(a.index) == a.value.rank:
            sides += zip(a.index, a.value.shape, strict=True)
        for e, n in dict.fromkeys(sides):
            if stays_inside(a.domain, e, 0, n - 1):
                continue
            point = self.ask.outside(a.domain, e, n)
            if point is not None:
                k, rank = sides.index((e, n)), len(a.at)
                name = a.value.name if a.value is not None else None
                what = f"position {k} of {a.buffer.name}" if k < rank else f"index {k - rank} of %{name or '?'}"
                return f"{what} leaves [0, {n - 1}] at {point}"
        return None

    # ------------------------------------------------------------ contents

    def _written_once(self, b: Buffer, mine: list[Access]) -> str | None:
        if 0 in b.shape:
            return None
        if not mine:
            return "nothing is written"
        if writes_once(mine, b):
            return None
        return self.ask.not_once(mine, b.shape)

    def _producers(self, a: Access) -> tuple[list[Access], list[Access]]:
        """(writes of the same task before `a`, writes of earlier phases) of the content that `a` expects."""
        mine, earlier = [], []
        for w in self.writes.get(a.buffer, []):
            if w.kind is not Kind.WRITE or not _same_content(a, w):
                continue
            if w.order[:3] < a.order[:3] and w.order[0] == a.order[0]:
                mine.append(w)
            elif w.order[0] < a.order[0] and a.buffer.scope is not Scope.THREAD:
                earlier.append(w)
        return mine, earlier

    def _unproduced(self, a: Access, mine: list[Access], earlier: list[Access]) -> str | None:
        before = [w for w in mine if w.order[:2] != a.order[:2]]
        if any(covers(w, a, apart=False) for w in before) or any(covers(w, a, apart=True) for w in earlier):
            return None
        return self.ask.unproduced(a, mine, earlier)

    def _overwritten(self, a: Access) -> str | None:
        mine, earlier = self._producers(a)
        last = max((*mine, *earlier), key=lambda w: w.order, default=None)
        if last is None:
            return None  # that nothing is produced is said elsewhere
        for w in self.writes.get(a.buffer, []):
            if _same_content(a, w) or w.kind is Kind.UPDATE:
                continue
            point = self._between(a, w, last, all(p.order[:2] == a.order[:2] for p in (*mine, *earlier)))
            if point is not None:
                return f"{w} before it is read: {point}"
        return None

    def _between(self, a: Access, w: Access, last: Access, in_block: bool) -> str | None:
        """Where `w` writes what `a` reads, after `last` wrote it and before it is read; None when that cannot be."""
        if w.order[:3] == last.order[:3] != a.order[:3] and w.order < last.order:
            return self.ask.meet(last, w, other_iteration=True)  # in one nest: a later iteration may undo an earlier one
        if not last.order < w.order:
            return None
        if w.order[0] < a.order[0]:
            return self.ask.meet(a, w, across_tasks=True)
        # Inside a sequential loop what is read was written in the same block: writes of other blocks come before or after both.
        blocks = a.domain.blocks if in_block and w.order[:2] == a.order[:2] else 0
        if w.order[:3] == a.order[:3]:
            # In one nest: only the iteration that reads an element may overwrite it.
            return self.ask.meet(a, w, other_iteration=not w.is_fold, blocks=blocks)
        if blocks and w.order[:3] > a.order[:3]:
            return None
        if w.order[:3] < a.order[:3] or w.order[:2] == a.order[:2]:
            return self.ask.meet(a, w, blocks=blocks)  # parts of one step take turns, block by block
        return None

    def _meeting(self, accesses: list[Access], group: int) -> str | None:
        witness = None if tasks_apart(accesses) else self.ask.not_apart(accesses, group)
        if witness is not None and any(a.domain.widened for a in accesses):
            raise Undecided(f"{WIDENED}: {witness}")
        return witness

    def _apart(self) -> Iterator[Obligation]:
        shared = [b for b in self.schedule.buffers if b.scope is not Scope.THREAD and b.scope is not Scope.ARGUMENT]
        for number, phase in enumerate(self.schedule.phases):
            for b in shared if phase.tasks > 1 else ():
                inside = [a for a in self.accesses if a.buffer is b and a.order[0] == number]
                if any(a.kind is not Kind.READ for a in inside):
                    question = partial(self._meeting, inside, phase.group)
                    subject = f"phase {number} {b.name}"
                    yield self._once("tasks apart", subject, (subject, *inside), question)


@cache
def _held(name: str) -> Obligation:
    """An obligation of this name that is proved, of whatever."""
    return Obligation(name, "", Verdict.PROVED)


def _same_content(read: Access, write: Access) -> bool:
    """Whether a write puts there what the read expects: the same value, or in a buffer of copies anything."""
    if read.kind is Kind.UPDATE or read.value is None:
        return True
    return write.value is read.value or (write.value is None and write.buffer.value is read.value)


def _storage_fault(b: Buffer) -> str | None:
    step = 1
    for n, s in zip(reversed(b.shape), reversed(b.strides), strict=True):
        if s != step and n != 1:
            break
        step *= n
    else:
        if step <= b.size_elems:
            return None  # rows one after the other
    sides = sorted((s, n) for s, n in zip(b.strides, b.shape, strict=True) if n > 1)
    reach = 0
    for s, n in sides:
        if s <= reach:
            return f"stride {s} is within the {reach + 1} elements that finer dimensions take"
        reach += s * (n - 1)
    if 0 not in b.shape and reach >= b.size_elems:
        return f"its last element lies at {reach}, its memory has {b.size_elems} elements"
    return None
