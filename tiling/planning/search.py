"""The search for tile sizes: few candidates, chosen by what the maps allow, ranked by the cost model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, prod

from hlo.errors import Declined
from hlo.module import Value
from hlo.registry import SumOfProducts
from tiling.contract.tile_grid import Grid, descend, grid_of, same_shape
from tiling.cost_model import Estimate, model_of
from tiling.loops.accesses import buffers_by_value
from tiling.loops.affine import row_lengths
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
from tiling.planning.costs.estimate import LINE_BYTES, estimate
from tiling.planning.forms import lower, weigh
from tiling.planning.weigh import Sketch, floor

__all__ = ["Candidate", "Kernel", "Searches", "Tried", "Weighed", "best_tiles", "computed", "contractions", "ranked_tiles"]

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


SHALLOW = 8  # products for each element
EQUAL_PIECES = (8, 16)
WORTH_MORE = 1.5  # times what the best block takes: from there on other kinds of tiles are not looked at more closely
MOST_REPEATED = 1.5  # times that the elements of a member may be computed by all tasks together


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


@dataclass(eq=False)
class Searches:
    """What was found of structures, by number, in all programs that a plan is made of: with strips and without, and regions."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    best: dict[tuple[int, bool], Weighed | Declined] = field(default_factory=dict)  # thorough ones apart
    tried: dict[int, Tried] = field(default_factory=dict)


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
    if not contractions(stages) and _read_elems(stages) <= TASK_ELEMS[0] and prod(shape) <= TASK_ELEMS[0]:
        return _Ranked(found)  # less than the least task: nothing to cut
    free = tried.free if tried.free is not None else _free_dimensions(stages, stored, machine, names)
    tried.free = free
    grid = _grid(whole, stages, shape, free, machine, thorough, names.is_lean)
    whole_rows = partial(_whole_rows, _row_lengths(stages, stored, machine, names, shape))
    known = whole if isinstance(whole, Sketch) else None
    each = _Each(tuple(stages), stored, machine, names, tried, judge, known, grid is not None)
    each.keep(tuple(shape), found[0])
    windows = _in_pieces(shape, free) if _is_in_residues(whole) else ()
    few = [*map(whole_rows, _others(whole, stages, shape, free, machine, False)), *_turned(whole, shape, free), *windows]
    others = [*map(whole_rows, _others(whole, stages, shape, free, machine, True)), *few] if thorough else few
    on_grid = [grid.sizes(place) for place in grid.places] if grid is not None else []
    worth = [sizes for sizes in dict.fromkeys([*on_grid, *others]) if sizes != tuple(shape)]  # that was the first
    if grid is not None and thorough and judge is weigh and model_of(machine) is None:
        known_places = [p for p in grid.places if grid.sizes(p) in each.tried.sizes]  # while fusions were compared
        best = descend(grid, each.seconds, min(known_places, key=lambda p: each.seconds(grid.sizes(p)), default=grid.middle))
        if min(map(each.seconds, few), default=inf) <= WORTH_MORE * best or best >= found[0].estimate.seconds:
            each.weigh(others)  # they come near, or no block is better than one task
    else:
        each.weigh(worth)
    found += [c for sizes in worth if (c := each.made.get(sizes)) is not None]
    return _Ranked(sorted(found, key=lambda c: c.estimate.seconds), len({*worth}.difference(each.made)))


@dataclass(eq=False)
class _Each:
    """What tile sizes of a fusion cost, each weighed once; `least` is what the cheapest so far takes.

    Sizes with a `floor` above that are passed over: what they take at least is more than what another takes.
    """

    stages: tuple[Stage, ...]
    stored: frozenset[Value]
    machine: Machine
    names: Names
    tried: Tried
    judge: Judge
    whole: Sketch | None
    has_floors: bool
    least: float = inf
    made: dict[tuple[int, ...], Candidate | Weighed | None] = field(default_factory=dict)
    floors: dict[tuple[int, ...], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A floor is one for the CPU's model of loops after all passes.
        self.has_floors &= self.judge is weigh and not skipped() and model_of(self.machine) is None

    def weigh(self, worth: Sequence[tuple[int, ...]]) -> None:
        """Weighs these sizes, those with the lowest floors first."""
        for sizes in sorted(worth, key=self.floor) if len(worth) > 1 else worth:
            self.seconds(sizes)

    def floor(self, sizes: tuple[int, ...]) -> float:
        """What these sizes take at least."""
        if not self.has_floors or sizes in self.tried.sizes:
            return 0.0
        known = self.floors.get(sizes)
        if known is None:
            request = FusionRequest(self.stages, self.stored, sizes)
            known = self.floors[sizes] = floor(request, self.machine, self.names, self.whole)
        return known

    def seconds(self, sizes: tuple[int, ...]) -> float:
        """What these sizes take; infinite where they have no schedule, or cannot be the cheapest."""
        if sizes not in self.made:
            if self.floor(sizes) > self.least:
                return inf
            if sizes not in self.tried.sizes:
                self.tried.sizes[sizes] = None
                judged = self.judge(FusionRequest(self.stages, self.stored, sizes), self.machine, self.names)
                if not isinstance(judged, Declined):
                    one = _made(judged, self.machine)
                    self.tried.sizes[sizes] = one.without_schedule
                    self.keep(sizes, one)
            if sizes not in self.made:
                self.keep(sizes, self.tried.sizes[sizes])
        kept = self.made[sizes]
        return inf if kept is None else kept.estimate.seconds

    def keep(self, sizes: tuple[int, ...], found: Candidate | Weighed | None) -> None:
        """Notes what was found of these sizes."""
        self.made[sizes] = found
        if found is not None:
            self.least = min(self.least, found.estimate.seconds)


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


def _others(
    whole: Sketch | Schedule, stages: Sequence[Stage], shape: Sequence[int], free: Sequence[int], machine: Machine, thorough: bool
) -> Iterator[tuple[int, ...]]:
    """Tiles that are no blocks of a contraction."""
    products = contractions(stages)
    product = _same(whole, shape) if products else None
    if products and product is None:
        yield from _in_cache(whole, stages, shape, free, machine, thorough)
        if thorough:
            yield from _in_pieces(shape, free)
    elif product is not None and product.depth <= SHALLOW:
        # Of so few products for each element it tells whether all tasks have the same number of rows, which is in the code then.
        yield from (tuple(shape[k] // n if i == k else m for i, m in enumerate(shape))
                    for k in free[:1] for n in EQUAL_PIECES if shape[k] % n == 0)  # fmt: skip
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
    cut = not products and ((thorough and len(shape) > 1) or reduced > prod(shape))
    line = max(1, LINE_BYTES * 8 // stages[-1].values[0].tensor.element.bits)
    for k in free if cut else []:
        for pieces in (1, 2, 4, 16, 64):
            size = -(-shape[k] // (machine.cores * pieces))
            if k == len(shape) - 1:
                size = min(-(-size // line) * line, shape[k])  # two tasks that write one line wait for each other
            if size > 1:
                yield tuple(size if i == k else n for i, n in enumerate(shape))


def _row_lengths(
    stages: Sequence[Stage], stored: frozenset[Value], machine: Machine, names: Names, shape: tuple[int, ...]
) -> list[list[int]]:
    """Of each dimension of the root what the quotients and rests in its maps divide it by, where its size is a multiple of that.

    These are the lengths of rows that lie one after the other in it.
    """
    if contractions(stages):
        return [[] for _ in shape]
    try:
        maps = Lowering(FusionRequest(tuple(stages), stored, shape), machine, names).maps(stages[-1])
    except LookupError:
        return [[] for _ in shape]
    found: list[set[int]] = [set() for _ in shape]
    for _, m in maps:
        for k, d in enumerate(m.dims[: len(shape)]):
            found[k].update(n for e in m.results for n in row_lengths(e, d.var) if 1 < n < shape[k] and shape[k] % n == 0)
    return [sorted(x) for x in found]


def _whole_rows(lengths: Sequence[Sequence[int]], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes of tiles that begin where rows do, or rows of whole tiles: what is one number for a row is then one for a tile.

    Images looked up and laid out flat took 6 ms, as each element asked which image it is of, and .3 ms since.

    >>> [_whole_rows([n], (size,)) for n, size in (([100, 30000], 16384), ([100], 1024), ([4096], 1000), ([7], 3))]
    [(15000,), (1000,), (512,), (3,)]
    """
    made = []
    for size, rows in zip(sizes, lengths, strict=True):
        longer = next((n for n in rows if n > size), None)
        least = max((n for n in rows if n <= size), default=1)
        whole = size // least * least
        if longer is not None:
            parts = (longer // p for p in range(2, 2 * longer // size + 1) if longer % p == 0)  # no less than half as large
            whole = next((n for n in parts if n <= size and n % least == 0), whole)
        made.append(whole)
    return tuple(made)


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


def _grid(
    whole: Sketch | Schedule, stages: Sequence[Stage], shape: Sequence[int], free: Sequence[int], machine: Machine,
    thorough: bool, is_lean: bool,
) -> Grid | None:  # fmt: skip
    """The tiles of a fusion's contractions; None where it has none."""
    products = contractions(stages)
    if not products:
        return None
    return grid_of(_same(whole, shape), products[-1], shape, free, machine, thorough, is_lean)


def contractions(stages: Sequence[Stage]) -> list[Stage]:
    return [s for s in stages if isinstance(s.op.definition.semantics, SumOfProducts)]


def _same(whole: Sketch | Schedule, shape: Sequence[int]) -> Contract | None:
    """The contraction that is cut as the fusion is."""
    return same_shape(_contracts(whole), shape)


def _contracts(whole: Sketch | Schedule) -> Sequence[Contract]:
    """The contractions of the one task."""
    return whole.contracts if isinstance(whole, Sketch) else [s for s in whole.phases[-1].steps if isinstance(s, Contract)]


def _is_in_residues(whole: Sketch | Schedule) -> bool:
    """Whether one value is several contractions of windows, which share a copy of these where a task is small enough for one.

    Bytes are multiplied in groups, out of panels that are copied anyway.
    """
    made = [s for s in _contracts(whole) if Scope.THREAD in (s.left.buffer.scope, s.right.buffer.scope)]
    copies = [s.value for s in made if s.out.buffer.element.is_float]
    return len({*copies}) < len(copies)


def _in_cache(
    whole: Sketch | Schedule, stages: Sequence[Stage], shape: Sequence[int], free: Sequence[int], machine: Machine, thorough: bool
) -> Iterator[tuple[int, ...]]:
    """As many of the outermost rows as a task's scratch leaves room for in a core's own cache, a power of two.

    While fusions are compared, where the values between their stages leave the cores' own caches: what is apart has no such tiles
    yet, and would seem slower.
    """
    between = sum(v.tensor.size_bytes for s in stages[:-1] for v in s.values)
    if not thorough and between <= machine.l2_bytes * machine.cores:
        return
    scratch = whole.scratch_bytes if isinstance(whole, Sketch) else whole.thread_scratch_bytes
    for k in list(free)[:1]:
        rows = shape[k] * (machine.l2_bytes * 3 // 4) // max(scratch, 1)
        if 2 <= rows < shape[k]:
            yield tuple(1 << rows.bit_length() - 1 if i == k else n for i, n in enumerate(shape))


def _in_pieces(shape: Sequence[int], free: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The root runs through the contraction's indices in another order: a batch may be its last dimension."""
    for k in free:
        for pieces in (2, 8, 32):
            yield tuple(max(1, n // pieces) if i == k else n for i, n in enumerate(shape))
