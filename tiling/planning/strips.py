"""Which large values of a plan are worth having one strip at a time, and what that costs.

    large values between kernels   ->   a loop over strips (`tiling.program.run_in_strips`), planned again
    saved      the memory that they take, and the way there and back
    paid       in each strip, what is read whole (weights) and added to (their gradients) passes the caches once more

How many strips there are follows from these sums; whether there are strips at all from a comparison of the two plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod

from hlo.attributes import DotDimensions
from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import SumOfProducts
from indexing.deriving.edges import edges_of
from tiling.loops.element_ir import loads
from tiling.loops.ir import Nest, Phase
from tiling.machine import Machine
from tiling.planning.costs.estimate import estimate
from tiling.planning.model import ControlStep, Decision, Fusion, Pin, Plan
from tiling.program.compute_again import Again, compute_again
from tiling.program.flatten import Program
from tiling.program.run_in_strips import StripFinder, Strips, run_in_strips
from tiling.words import amount, count

__all__ = ["pinned_strips", "predicted_seconds", "with_strips"]

LARGE = 4  # a value of more than this part of the shared cache goes to memory and back
LEAST_SAVED = 2  # what vanishes takes at least this part of the shared cache
MUCH = 2  # times the shared cache: what vanishes is worth time where it is more than that
MOST_SLOWER = 1.3  # times as long as predicted without strips, where much vanishes: measured, half to all of it
NO_SLOWER = 1.035  # the same for less: predictions are no more exact than that
MOST_AGAIN = 0.2  # of its products' seconds that a strip may pay for what it reads whole
IN_CACHE = 0.6  # of the shared cache for what lies between kernels
PACKED = 2  # passes over a factor that each strip packs
MOST_SLOWER_AGAIN = 1.05  # and where products are computed again
MOST_VALUES, MOST_OPS = 4, 2000  # of one program that are tried, and ops that are planned again for it
MOST_COUNTS = 10  # numbers of strips of one dimension
PAGE_BYTES, PAGE_SECONDS = 4096, 0.25e-6  # of memory that is touched for the first time
LEAST_ROWS = 128  # of a strip, where products run along them: fewer leave register blocks empty and pack more than they compute
STEPS = 4  # launches of a strip for each of its products


def with_strips(made: Plan, plain: Program, planned: Callable[[Program], Plan]) -> Plan:
    """The plan with loops over strips for its large values, where that pays; each decision is kept.

    `plain` is the program that `made` is of, before updates in place were marked; `planned` plans another one.
    """
    decisions: list[Decision] = []
    tried: set[Value] = set()  # of the plain program
    for _ in range(max(1, min(MOST_VALUES, MOST_OPS // max(len(plain.ops), 1)))):
        left = [(place, v) for place, v in _large(made, plain) if v not in tried]
        if not left:
            break
        place, value = left[0]
        tried.add(value)
        name = made.names.of(made.program.ops[place].results[value.index])
        kept = frozenset(v for _, v in _kept(made, plain))
        pins: list[Pin] = []
        source, best = plain, _best(plain, value, kept, made.machine)
        if isinstance(best, Declined):
            again = compute_again(plain, value)
            if isinstance(again, Again) and value in again.copies:
                # What is read later is made again then: its strips need not wait for all that lies between.
                second = _best(again.program, again.copies[value], kept | {again.copies.get(v, v) for v in kept}, made.machine)
                if isinstance(second, _Figures):
                    source, best = again.program, replace(second, again=again)
                    pins.append(Pin((place,), strips=(value.index,)))
                else:
                    best = Declined(f"{best.reason}; computed again for later readers: {second.reason}")
        if isinstance(best, Declined):
            if value.tensor.size_bytes * LEAST_SAVED >= made.machine.l3_bytes:  # of others it goes without saying
                decisions.append(Decision(name, _LOOP, False, best.reason))
            continue
        tried.update(r for op in best.strips.ops for r in op.results)
        rewritten = run_in_strips(source, best.strips)
        if isinstance(rewritten, Declined):
            decisions.append(Decision(name, _LOOP, False, rewritten.reason))
            continue
        other = planned(rewritten)
        pages = best.vanishing_bytes / PAGE_BYTES * PAGE_SECONDS
        before, after = predicted_seconds(made) + pages, predicted_seconds(other) + pages / best.strips.count
        most = MOST_SLOWER if best.vanishing_bytes > MUCH * made.machine.l3_bytes else NO_SLOWER
        most = most if best.again is None else min(most, MOST_SLOWER_AGAIN)
        taken = after <= most * before
        reason = f"{best.reason}; {before * 1e3:.3g} ms become {after * 1e3:.3g}, up to {most} times are worth it"
        decisions.append(Decision(name, _LOOP, taken, reason, after, before))
        if taken:
            seed = best.strips.seed
            pins.append(Pin((_place(source, seed),), strips=(seed.index, best.strips.axis, best.strips.count)))
            plain, made = rewritten, replace(other, strips=(*made.strips, *pins))
    return replace(made, decisions=(*made.decisions, *decisions)) if decisions else made


def pinned_strips(plain: Program, pins: Sequence[Pin]) -> Program:
    """The program with the loops over strips that are pinned. Raises ValueError for a pin that cannot be."""
    for pin in pins:
        if len(pin.ops) != 1 or not 0 <= pin.ops[0] < len(plain.ops) or len(pin.strips) not in (1, 3):
            raise ValueError(
                f"pin {pin.ops}: expected one op and (result, dimension, count) of its strips, or (result,) of what is computed "
                f"again, found {pin.strips}"
            )
        op, index = plain.ops[pin.ops[0]], pin.strips[0]
        if not 0 <= index < len(op.results):
            raise ValueError(f"pin {pin.ops}: {op.name} has no result {index}")
        if len(pin.strips) == 1:
            again = compute_again(plain, op.results[index])
            if isinstance(again, Declined):
                raise ValueError(f"pin {pin.ops}: {again.reason}")
            plain = again.program
            continue
        found = StripFinder(plain).find(op.results[index], *pin.strips[1:])
        made = found if isinstance(found, Declined) else run_in_strips(plain, found)
        if isinstance(made, Declined):
            raise ValueError(f"pin {pin.ops}: {made.reason}")
        plain = made
    return plain


_LOOP = "a loop over strips"


def _place(program: Program, v: Value) -> int:
    return next(k for k, op in enumerate(program.ops) if op is v.op)


# ---------------------------------------------------------------- how many


@dataclass(frozen=True, eq=False)
class _Figures:
    """What `strips` cost: bytes that vanish from between kernels, those of a strip, and seconds more than without."""

    strips: Strips
    vanishing_bytes: int
    again_bytes: int  # what each strip reads whole and adds to
    seconds: float
    product_seconds: float
    again: Again | None = None  # what is computed again, so that it need not be kept

    @property
    def strip_bytes(self) -> int:
        return self.vanishing_bytes // self.strips.count

    @property
    def rank(self) -> tuple[bool, int]:
        """Less is better."""
        return self.strips.moves_masks, self.strip_bytes

    @property
    def reason(self) -> str:
        s = self.strips
        size = s.seed.shape[s.axis] // s.count
        products = [v for v in self.again.copies if v.op is not None and _is_product(v.op)] if self.again is not None else []
        first = f"{count(len(products), 'product')} and what follows computed again for later readers; " if self.again else ""
        return first + (
            f"{s.count} strips of {size} along dimension {s.axis}: {amount(self.strip_bytes)} between kernels instead of "
            f"{amount(self.vanishing_bytes)}; each strip reads or adds to {amount(self.again_bytes)} again"
        )


def _kept(made: Plan, plain: Program) -> Iterator[tuple[int, Value]]:
    """The values of the plain program that go from one kernel to another by way of memory, with the numbers of their ops."""
    results = set(made.program.results)
    kept = {v for f in made.fusions for v in f.outputs if v not in results}
    for k, (old, new) in enumerate(zip(plain.ops, made.program.ops, strict=True)):
        yield from ((k, a) for a, b in zip(old.results, new.results, strict=True) if b in kept)


def _large(made: Plan, plain: Program) -> list[tuple[int, Value]]:
    """The large ones of them, the largest first."""
    large = [(k, v) for k, v in _kept(made, plain) if v.tensor.size_bytes * LARGE > made.machine.l3_bytes and not _is_tiled(v)]
    return sorted(large, key=lambda x: -x[1].tensor.size_bytes)


def _best(plain: Program, seed: Value, kept: frozenset[Value], machine: Machine) -> _Figures | Declined:
    """The strips that take the least memory among those that cost next to nothing; or why there are none.

    Those that leave masks in place come first, whose loops these still bound: a window's heads rather than its rows.
    """
    finder = StripFinder(plain)
    reasons: list[str] = []
    best: _Figures | None = None
    for axis, extent in enumerate(seed.shape):
        for number in _counts(extent):
            found = finder.find(seed, axis, number)
            if isinstance(found, Declined):
                reasons.append(f"dimension {axis}: {found.reason}")
                break  # another number of strips changes little
            figures = _figures(found, kept, machine)
            if isinstance(figures, Declined):
                reasons.append(f"dimension {axis}: {figures.reason}")
                break
            if figures.seconds > MOST_AGAIN * figures.product_seconds:
                reasons.append(f"dimension {axis}: {figures.reason}, which takes too long")
                break
            if best is None or figures.rank < best.rank:
                best = figures
    if best is None:
        return Declined("; ".join(reasons) or "it has no dimension to be cut")
    return best


def _counts(extent: int) -> list[int]:
    """Numbers of strips that are worth trying, fewer first: divisors, each about twice the one before."""
    found: list[int] = []
    for n in _divisors(extent):
        if len(found) == MOST_COUNTS:
            break
        if not found or 2 * n >= 3 * found[-1]:
            found.append(n)
    return found


def _divisors(extent: int) -> Iterator[int]:
    """Those above 1, in order: the small ones are tried, the large ones are their partners."""
    small = [1]
    for n in range(2, isqrt(extent) + 1):
        if extent % n == 0:
            small.append(n)
            yield n
    yield from (extent // n for n in reversed(small) if extent // n > small[-1])


def _figures(strips: Strips, kept: frozenset[Value], machine: Machine) -> _Figures | Declined:
    products = [op for op in strips.ops if _is_product(op)]
    if not products:
        return Declined("no product is part of it: kernels have their own tiles")
    for op in products:
        rows = _rows(op, strips)
        if rows is not None and rows < LEAST_ROWS:
            return Declined(f"strips of {rows} rows are too short for products")
    made = {r for op in strips.ops for r in op.results}
    vanishing = sum(v.tensor.size_bytes for v in kept & made if v not in strips.results)
    if vanishing * LEAST_SAVED < machine.l3_bytes:
        return Declined("too little of it stays out of memory")
    whole = [v for op in products for v, k in zip(op.operands, strips.cuts[op].operands, strict=True) if k is None]
    sums = 2 * sum(r.tensor.size_bytes for r in strips.results if r.op is not None and strips.cuts[r.op].axis is None)
    again = sum(v.tensor.size_bytes for v in set(whole)) + sums
    rate = machine.memory_bytes_per_second if again > machine.l3_bytes else machine.l3_bytes_per_second * machine.cores
    passes = PACKED * sum(v.tensor.size_bytes for v in whole) + sums
    seconds = (strips.count - 1) * passes / rate + strips.count * STEPS * len(products) * machine.launch_seconds
    if vanishing <= IN_CACHE * strips.count * machine.l3_bytes:  # a strip stays in the shared cache
        seconds -= 2 * vanishing / machine.memory_bytes_per_second
    flops = sum(2.0 * op.results[0].tensor.size_elems * _terms(op) / machine.peak_flops(_item(op)) for op in products)
    return _Figures(strips, vanishing, again, seconds, flops / machine.cores)


def _is_tiled(v: Value) -> bool:
    """Whether a value is side by side what each product of a batch reads, of windows (`tiling.program.images.winograd`), or is
    these products: tiles of all of them together are rows of an image, and strips of it would read these windows again."""
    op = v.op
    if op is not None and op.name == "stablehlo.dot_general":
        op = op.operands[0].op
    return op is not None and op.name == "stablehlo.concatenate" and len(op.operands) > 2


def _is_product(op: Op) -> bool:
    return isinstance(op.definition.semantics, SumOfProducts)


def _item(op: Op) -> int:
    return max(4, op.results[0].tensor.dtype.itemsize)


def _terms(op: Op) -> int:
    edges = edges_of(op)
    return 1 if isinstance(edges, Declined) else prod(v.interval.size for v in edges.ranges)


def _rows(op: Op, strips: Strips) -> int | None:
    """How many rows of a product, or terms of its sums, a strip has; None where strips cut its batches."""
    cut = strips.cuts[op]
    side, v, k = next((side, v, k) for side, (v, k) in enumerate(zip(op.operands, cut.operands, strict=True)) if k is not None)
    numbers = op.attr("dot_dimension_numbers") if op.name == "stablehlo.dot_general" else None
    if not isinstance(numbers, DotDimensions):
        return v.shape[k] // strips.count
    batching, summed = (
        (numbers.lhs_batching, numbers.lhs_contracting), (numbers.rhs_batching, numbers.rhs_contracting)
    )[side]  # fmt: skip
    if k in batching:
        return None
    alike = summed if k in summed else numbers.free("rhs" if side else "lhs", v.rank)
    return prod(v.shape[i] for i in alike) // strips.count


# ---------------------------------------------------------------- what a plan takes


def predicted_seconds(plan: Plan) -> float:
    """What the cost model predicts for a plan: loops as often as they run, once where that is not known, without what runs once
    before them."""
    total = 0.0
    for step in plan.steps:
        if isinstance(step, Fusion):
            total += step.estimate.seconds
        elif isinstance(step, ControlStep):
            parts = [_in_loop(r.plan, frozenset(a for _, a in r.region.outside), plan.machine) for r in step.regions]
            if step.is_loop:
                total += sum(once for once, _ in parts) + (step.trips or 1) * sum(each for _, each in parts)
            else:
                total += max((a + b for a, b in parts), default=0.0)
    return total


def _in_loop(plan: Plan, given: frozenset[Value], machine: Machine) -> tuple[float, float]:
    """(seconds before a loop, seconds of an iteration) of its region: phases that read nothing but what is `given` run once."""
    once = 0.0
    for f in plan.fusions:
        ahead = tuple(p for p in f.schedule.phases if p is not f.schedule.main and _reads_only(p, given))
        if ahead:
            once += f.estimate.seconds - estimate(
                replace(f.schedule, phases=tuple(p for p in f.schedule.phases if p not in ahead)), machine
            ).seconds
    return once, predicted_seconds(plan) - once


def _reads_only(phase: Phase, given: frozenset[Value]) -> bool:
    """Whether a phase's plain loops read nothing but these values."""
    if not all(isinstance(s, Nest) for s in phase.steps):
        return False
    found = [x for s in phase.steps if isinstance(s, Nest) for x in loads([y.node for y in s.stores])]
    return all(x.value in given for x in found)
