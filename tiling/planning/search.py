"""The search for tile sizes: few candidates, chosen by what the maps allow, ranked by the cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from hlo.errors import Declined
from hlo.module import Value
from hlo.registry import SumOfProducts
from tiling.cost_model import Estimate, model_of
from tiling.loops.accesses import buffers_by_value
from tiling.loops.ir import (
    Contract,
    Loop,
    LoopKind,
    MatrixStep,
    Nest,
    Ordering,
    Scatter,
    Schedule,
    Scope,
    Selection,
    Transform,
    Turn,
)
from tiling.loops.names import Names
from tiling.loops.stage import Stage
from tiling.lower.fusion import Lowering
from tiling.lower.placing import FusionRequest
from tiling.machine import Machine
from tiling.passes.turn_tiles import across
from tiling.passing import skipped
from tiling.planning.cost import estimate
from tiling.planning.forms import lower, weigh
from tiling.planning.weigh import Sketch, floor

__all__ = ["Candidate", "Kernel", "Tried", "Weighed", "best_tiles", "ranked_tiles"]

TASK_ELEMS = (1 << 10, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16)


@dataclass(frozen=True, eq=False)
class Weighed:
    """Tile sizes of a fusion whose schedule nobody needs yet: its estimate, and how many others were looked at.

    `form` and `notes` are its schedule's; `streams` says that it consists of plain loops and transposed tiles.
    """

    tile_sizes: tuple[int, ...]
    estimate: Estimate
    looked_at: int
    form: str
    notes: tuple[str, ...]
    streams: bool

    @property
    def without_schedule(self) -> Weighed:
        return self


MOST_REPEATED = 1.5  # times that the elements of a member may be computed by all tasks together
SMALL_IMAGE = 256  # rows by columns that one task may take whole


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule with its estimate, and how many others were looked at."""

    schedule: Schedule
    estimate: Estimate
    looked_at: int = 1

    @property
    def tile_sizes(self) -> tuple[int, ...]:
        return self.schedule.tile_sizes

    @property
    def streams(self) -> bool:
        """True where every step is a plain loop nest or a transposed tile."""
        return all(isinstance(s, (Nest, Turn)) for p in self.schedule.phases for s in p.steps)

    @property
    def without_schedule(self) -> Weighed:
        """What another fusion of the same structure may take from this one."""
        s = self.schedule
        return Weighed(s.tile_sizes, self.estimate, self.looked_at, s.form, s.notes, self.streams)


@dataclass(eq=False)
class Kernel:
    """Stages that are one kernel so far, with the best tiles found."""

    stages: list[Stage]
    candidate: Candidate | Weighed | None  # None: not weighed, as nothing that was decided so far depends on it
    pinned: bool = False


@dataclass(eq=False)
class Tried:
    """What searches before found of a structure: sizes, with None for those without a schedule; the figures of one task, where
    maps tell them; and the dimensions that may be cut."""

    sizes: dict[tuple[int, ...], Weighed | None] = field(default_factory=dict)
    whole: Sketch | None = None
    free: list[int] | None = None


def best_tiles(
    stages: Sequence[Stage], stored: frozenset[Value], machine: Machine, names: Names, thorough: bool = False,
    tried: Tried | None = None,
) -> Candidate | Weighed | Declined:  # fmt: skip
    """The cheapest tiles of a fusion over the sizes worth trying, or why it has no schedule.

    Few sizes are tried while fusions are compared, more (`thorough`) for the ones that stay. They are weighed by what maps say
    (`tiling.planning.weigh`), and lowered only where that does not tell. What was `tried` for a fusion of this structure is not
    looked at again.
    """
    ranked = _ranked(stages, stored, machine, names, thorough, Tried() if tried is None else tried, weigh)
    return ranked if isinstance(ranked, Declined) else replace(ranked.found[0], looked_at=len(ranked.found) + ranked.passed_over)


def ranked_tiles(
    stages: Sequence[Stage], stored: frozenset[Value], machine: Machine, names: Names, thorough: bool = True
) -> list[Candidate] | Declined:
    """Every schedule that is worth trying, the one that the cost model finds cheapest first."""
    ranked = _ranked(stages, stored, machine, names, thorough, Tried(), lower)
    return ranked if isinstance(ranked, Declined) else [c for c in ranked.found if isinstance(c, Candidate)]


Judge = Callable[[FusionRequest, Machine, Names], Sketch | Schedule | Declined]


@dataclass(frozen=True, eq=False)
class _Ranked:
    """What was weighed, the cheapest first, and how many sizes were not, as they cannot be cheaper."""

    found: list[Candidate | Weighed]
    passed_over: int = 0


def _made(found: Sketch | Schedule, machine: Machine) -> Candidate | Weighed:
    if isinstance(found, Sketch):
        return Weighed(found.tile_sizes, found.estimate, 1, found.form, found.notes, found.streams)
    return Candidate(found, estimate(found, machine))


def _ranked(
    stages: Sequence[Stage], stored: frozenset[Value], machine: Machine, names: Names, thorough: bool,
    tried: Tried, judge: Judge,
) -> _Ranked | Declined:  # fmt: skip
    shape = stages[-1].values[0].shape
    whole = tried.whole or judge(FusionRequest(tuple(stages), stored, shape), machine, names)
    if isinstance(whole, Declined):
        return whole
    if isinstance(whole, Sketch):
        tried.whole = whole
    found = [_made(whole, machine)]
    if isinstance(whole, Sketch) and whole.is_split:
        return _Ranked(found)
    if isinstance(whole, Schedule):
        if any(isinstance(s, (MatrixStep, Ordering, Scatter, Selection, Transform)) for s in whole.main.steps):
            return _Ranked(found)
        if len(whole.phases) > 1 and whole.phases[-1].tasks == 1 < whole.phases[0].tasks and _is_split(whole):
            return _Ranked(found)
    contractions = any(isinstance(s.op.definition.semantics, SumOfProducts) for s in stages)
    if not contractions and _read_elems(stages) <= TASK_ELEMS[0] and prod(shape) <= TASK_ELEMS[0]:
        return _Ranked(found)  # less than the least task: nothing to cut
    free = tried.free if tried.free is not None else _free_dimensions(stages, stored, machine, names)
    tried.free = free
    worth = [*_candidates(whole, stages, shape, free, machine, thorough, names.is_lean), *_turned(whole, shape, free)]
    worth = [sizes for sizes in dict.fromkeys(worth) if sizes != tuple(shape)]  # that is the whole, which was the first
    floors = _floors(worth, whole, stages, stored, machine, names) if contractions and judge is weigh else {}
    made: dict[tuple[int, ...], Candidate | Weighed | None] = {}
    least = found[0].estimate.seconds
    for sizes in sorted(worth, key=lambda x: floors.get(x, 0.0)):
        if floors.get(sizes, 0.0) > least:
            continue  # what it takes at least is more than what another takes
        if sizes not in tried.sizes:
            tried.sizes[sizes] = None
            judged = judge(FusionRequest(tuple(stages), stored, sizes), machine, names)
            if not isinstance(judged, Declined):
                made[sizes] = one = _made(judged, machine)
                tried.sizes[sizes] = one.without_schedule
        kept = made.setdefault(sizes, tried.sizes[sizes])
        least = min(least, kept.estimate.seconds) if kept is not None else least
    found += [c for sizes in worth if (c := made.get(sizes)) is not None]
    return _Ranked(sorted(found, key=lambda c: c.estimate.seconds), len(worth) - len(made))


def _floors(
    worth: Sequence[tuple[int, ...]], whole: Sketch | Schedule, stages: Sequence[Stage], stored: frozenset[Value],
    machine: Machine, names: Names,
) -> dict[tuple[int, ...], float]:
    """What each of these sizes takes at least, for the CPU's model of loops after all passes."""
    if skipped() or model_of(machine) is not None or len(worth) < 2:
        return {}
    known = whole if isinstance(whole, Sketch) else None
    return {sizes: floor(FusionRequest(tuple(stages), stored, sizes), machine, names, known) for sizes in worth}


def _read_elems(stages: Sequence[Stage]) -> int:
    """How many elements the largest operand of a stage has."""
    return max((prod(v.shape) for s in stages for v in s.op.operands if v.rank), default=1)


def _free_dimensions(stages: Sequence[Stage], stored: frozenset[Value], machine: Machine, names: Names) -> list[int]:
    """The root's dimensions that can be cut without computing another member's elements twice."""
    shape = stages[-1].values[0].shape
    free = []
    for k, n in enumerate(shape):
        if n <= 1:
            continue
        sizes = tuple(-(-n // 2) if i == k else m for i, m in enumerate(shape))
        if len(stages) == 1 or not _recomputes(stages, stored, sizes, machine, names):
            free.append(k)
    return free


def _recomputes(
    stages: Sequence[Stage], stored: frozenset[Value], sizes: tuple[int, ...], machine: Machine, names: Names
) -> bool:
    request = FusionRequest(tuple(stages), stored, sizes)
    try:
        repeats = Lowering(request, machine, names).repeats(MOST_REPEATED)
    except LookupError:
        return True
    if repeats is not None:
        return repeats
    found = lower(request, machine, names)
    if isinstance(found, Declined):
        return True
    tasks = found.main.tasks * found.main.group
    for values, loops in computed(found):
        size = values[0].tensor.size_elems
        if prod(extent for _, extent in loops) * tasks > MOST_REPEATED * size:
            return True
    return False


def computed(schedule: Schedule) -> Iterator[tuple[tuple, list[tuple[object, int]]]]:  # type: ignore[type-arg]
    """(values, parallel loops) of each store, fold and contraction of the main phase."""
    for step in schedule.main.all_steps:
        if isinstance(step, Contract):
            around = [(x.variable, x.extent) for x in step.loops]
            yield step.values, [*around, (None, step.m), (None, step.n)]
            continue
        if not isinstance(step, Nest):
            continue
        for s in step.stores:
            if s.value is not None:
                yield (s.value,), [(x.variable, x.extent) for x in step.loops]
        for f in step.folds:
            if not f.carried:  # each tile adds its own part
                yield f.values, [(x.variable, x.extent) for x in step.loops if x.kind is not LoopKind.REDUCTION]


def _candidates(
    whole: Sketch | Schedule, stages: Sequence[Stage], shape: Sequence[int], free: Sequence[int], machine: Machine,
    thorough: bool, is_lean: bool,
) -> Iterator[tuple[int, ...]]:
    contractions = [s for s in stages if isinstance(s.op.definition.semantics, SumOfProducts)]
    if contractions:
        yield from _block_candidates(whole, contractions, shape, free, machine, thorough, is_lean)
    # Runs of consecutive elements: inner dimensions whole, one cut, outer ones one by one.
    reduced = _read_elems(stages)
    per_element = max(1, reduced // max(prod(shape), 1))
    for target in TASK_ELEMS if thorough else TASK_ELEMS[1::3]:
        room = max(1, target // per_element)
        sizes = list(shape)
        inner = prod(n for k, n in enumerate(shape) if k not in free)
        room = max(1, room // max(inner, 1))
        for k in reversed(free):
            sizes[k] = min(shape[k], max(room, 1))
            room //= shape[k]
        yield tuple(sizes)


    # One dimension cut, so that rows stay long: reductions and scans over an outer dimension.
    cut = not contractions and ((thorough and len(shape) > 1) or reduced > prod(shape))
    for k in free if cut else []:
        for pieces in (1, 2, 4, 16, 64):
            size = -(-shape[k] // (machine.cores * pieces))
            if size > 1:
                yield tuple(size if i == k else n for i, n in enumerate(shape))


def _is_split(schedule: Schedule) -> bool:
    """True when the last phase only puts the pieces of a reduction together: which pieces must not depend on the machine."""
    return all(isinstance(s, Nest) for p in schedule.phases for s in p.steps) and any(
        f.buffers[0].scope is Scope.SHARED for s in schedule.phases[0].steps if isinstance(s, Nest) for f in s.folds
    )


def _turned(whole: Sketch | Schedule, shape: Sequence[int], free: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Tiles with two long sides where something is read across its rows."""
    pairs = list(whole.turned) if isinstance(whole, Sketch) else _pairs(whole)
    if not pairs or len(free) < 2:
        return
    names = [f"i{k}" for k in range(len(shape))]
    sides = [x.variable.name.partition("_")[0] for x in pairs[-1]]
    if not all(n in names and names.index(n) in free for n in sides):
        return
    for long, short in ((256, 64), (128, 32), (64, 64), (256, 16), (512, 32)):
        sizes = [1 if k in free else n for k, n in enumerate(shape)]
        for name, size in zip(sides, (long, short), strict=True):
            sizes[names.index(name)] = min(size, shape[names.index(name)])
        yield tuple(sizes)


def _pairs(whole: Schedule) -> list[tuple[Loop, Loop]]:
    """(innermost loop, loop along which it is consecutive) of each load that walks across rows."""
    pairs = [(t.rows, t.columns) for t in whole.main.steps if isinstance(t, Turn)]
    if not pairs:
        by_value = buffers_by_value(whole)
        for step in whole.main.steps:
            if isinstance(step, Nest):
                found = across(step, lambda load: load.buffer or by_value[load.value], whole.ranges, in_tile=False)
                pairs += [(inner, row) for _, inner, row in found]
    return pairs


def _block_candidates(
    whole: Sketch | Schedule, contractions: Sequence[Stage], shape: Sequence[int], free: Sequence[int], machine: Machine,
    thorough: bool, is_lean: bool,
) -> Iterator[tuple[int, ...]]:
    """Rows in multiples of the register block, columns in multiples of a panel; other dimensions one by one, or few at a time."""
    steps = whole.contracts if isinstance(whole, Sketch) else [s for s in whole.phases[-1].steps if isinstance(s, Contract)]
    same = next((s for s in reversed(steps) if s.value.shape == tuple(shape) and s.column_dimension), None)
    large = [k for k in free if shape[k] > 1]
    column = same.column_dimension[0] if same is not None else len(shape) - 1
    rows = [k for k in large if k != column and (same is None or k in same.row_dimensions)]
    if same is None:
        rows = rows[-1:]
    others = [k for k in large if k != column and k not in rows]
    item = max(contractions[-1].values[0].tensor.dtype.itemsize, 1)
    mr, nr = machine.micro_tile(item if item > 2 else 4, shape[column] if shape else 1)
    in_groups = same is not None and same.n < shape[column] and shape[column] % same.n == 0
    columns: list[int] = []
    if column in large:
        n, times = shape[column], (1, 2, 4, 8, 16) if thorough else (4,)
        if in_groups and same is not None:
            # Groups, whose products have nothing in common: a task of one reads the least.
            nr, times = same.n, times if thorough else (1,)
        columns = sorted({min(n, nr * c) for c in times} | {n})
    row_sizes = [mr * c for c in ((2, 4, 5, 8, 12, 16, 20, 32) if thorough else (4, 12))]
    every = max(prod(shape[k] for k in rows), 1)
    beside = same is not None and same.k > same.k_block and every * same.k_block * item <= machine.l2_bytes
    if is_lean or (same is not None and every > row_sizes[-1] and (others or beside or in_groups)):
        row_sizes.append(every)  # then no two tasks pack the same, and a window of the other factor is filled once
    few = (1, 2, 4, 8) if thorough else (1, 4)
    group = {k: _rows_of_group(same, k) for k in others}
    small = bool(others) and (shape[others[-1]] * shape[column] <= SMALL_IMAGE or any(n > 1 for n in group.values()))
    if small and few[-1] < shape[others[-1]]:
        few = (*few, shape[others[-1]])
    if same is None and thorough:
        # The root runs through the contraction's indices in another order: a batch may be its last dimension.
        for k in large:
            for pieces in (2, 8, 32):
                yield tuple(max(1, n // pieces) if i == k else n for i, n in enumerate(shape))
    for r, c, count in product(row_sizes if rows else [1], columns or [0], few if same is not None and others else (1,)):
        sizes = list(shape)
        for k in others:
            sizes[k] = group[k]
        if others and count > 1:
            sizes[others[-1]] = _divisor(shape[others[-1]], max(count, group[others[-1]]))
        room = r
        for k in reversed(rows):
            sizes[k] = min(shape[k], max(1, room)) if len(rows) == 1 else _divisor(shape[k], max(1, room))
            room //= shape[k]
        if columns:
            sizes[column] = c
        yield tuple(sizes)


def _rows_of_group(same: Contract | None, k: int) -> int:
    """How many elements of the result's dimension k are rows of one product: all of a group's, where it runs through groups."""
    if same is None or k in same.row_dimensions or same.m >= same.value.shape[k] or same.value.shape[k] % same.m:
        return 1
    strides = same.out.buffer.strides  # of fewer dimensions where the product is made in scratch of its own
    return same.m if len(strides) == len(same.value.shape) and same.out.row_stride == strides[k] else 1


def _divisor(n: int, most: int) -> int:
    """The greatest divisor of n up to `most`, so that no tile is cut; `most` itself where that is less than half of it."""
    found = next(d for d in range(min(n, most), 0, -1) if n % d == 0)
    return found if 2 * found >= min(n, most) else min(n, most)
