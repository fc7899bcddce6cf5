"""Folds across rows, and scans along them, several rows at a time.

    for r: for i: out[i] = f(out[i], x[r, i])   ->   for r in steps of 4: for i: out[i] = f(out[i], f(f(x0, x1), f(x2, x3)))

The running results lie in memory: each step reads and writes them, and waits for the one before. With four rows in a step both
happen once for four elements. Rows longer than half a page are left: there memory itself is waited for. A sum then adds in
another order, which follows from the shape alone, and through fewer roundings. Scans along rows go side by side, since each
step of one waits for the step before: eight, or four where rows lie whole pages apart. Their lines share one set of the cache,
and eight rows that are read and eight written drive each other out of a cache of eight ways. Where a step takes long by itself,
as the maximum of floats does with its NaN and its two zeros, eight rows are faster all the same. So they are where a step ends
with as much work as several rows take: the maximum of f16 and bf16 is found by three bounds of bits, an instruction each.

    for i: for r: for c < 5: out[i, c] = f(out[i, c], x[i, r, c])   ->   for i: for r: the five results of i, each in a register

Fewer results than a vector has elements, and no half of one, are read and written one by one at each step, and the step waits
for what the last one wrote. In registers the fold of each keeps its order.

    for i: for r: out[i] = f(out[i], x[i, r])   ->   for i in steps of 4: for r: the results of i, ... i + 3, each in a register

Rows of whole pages that come from memory are read four at a time, or as many as `Machine.rows_at_a_time` says: where what is
fetched ahead of a loop stops at the end of a page, four rows wait for their next pages together. In the caches nothing is
gained, and little where an element is less than 4 bytes. Each fold keeps its order, but for what vectors change anyway.

    for i: for c: out[i, c] = x[i, c] w[0, c] + x[i + 1, c] w[1, c]   ->   the same for i, i + 1, ... i + 3 in one step

Sums that are written out, of windows that follow one another, go side by side as well: they share the kernel's elements and most
of the window's, so that a step has few loads for each product. Each sum keeps its order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd

from hlo.registry import Fold
from indexing.expr import Const, Interval, Var
from tiling.elements.folds import combined_function, has_own_body
from tiling.elements.monoids import monoid_of
from tiling.loops.affine import step_along
from tiling.loops.carry import going_on
from tiling.loops.domains.split_domain import split_whole_groups
from tiling.loops.element_ir import Apply, Choose, Load, Node, all_nodes, has_runtimes, loads
from tiling.loops.ir import Buffer, FoldStep, Loop, LoopKind, Nest, Schedule
from tiling.loops.marks import rows_faults

__all__ = ["group_rows", "has_long_rows", "long_rows_together", "results_together", "scan_rows_together", "windows_together"]

ROWS = 4
BOUNDED_ROWS = 8
HALVES = frozenset({"bf16", "f16"})
LEAST_RESULTS = 3  # in registers at once
LEAST_STEPS = 8
NARROW_VECTOR_BYTES, VECTOR_BYTES = 16, 32
SIDE_BY_SIDE = (8, 4, 2)
PAGE_BYTES = 4096  # sets of the nearest cache times a line: addresses this far apart share a set
LINE_BYTES = 64
WAYS_FILLED = 8  # lines of a set that a scan may fill
BRIEF = frozenset({"add", "multiply"})  # what takes a cycle or few on floats, too; everything else of `CHEAP` does so on integers
MOST_ROW_BYTES = 2048  # half a page
MOST_LONG_STEP_ROW_BYTES = 1 << 15  # bf16 is widened at every step, a maximum by bounds ended: that takes longer than memory
LEAST_LONG_BYTES = 1 << 25  # of all rows: as much as many shared caches hold
LEAST_LONG_ITEM_BYTES = 4
MOST_LONG_FOLDS = 2  # of a nest: running results of four rows are in registers
MOST_COMPUTED = 4  # functions of an element
WINDOWS = (8, 7, 6, 5, 4, 3, 2)
MOST_PRODUCTS = 200  # of all windows in a step: machine code grows with them
LEAST_PRODUCTS = 5  # of a window
LEAST_COLUMNS = 8
CHEAP = frozenset(
    {"add", "subtract", "multiply", "negate", "abs", "maximum", "minimum", "convert", "and", "or", "not", "compare", "select"}
)


def group_rows(nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> list[Nest]:
    """The nest as one over whole groups of rows and one over the rest."""
    if len(nest.loops) < 2 or not _goes_in_rows(nest, buffer_of, ranges):
        return [nest]
    *around, rows, along = nest.loops
    width = BOUNDED_ROWS if all(map(_is_bounded, nest.folds)) and rows.extent >= 2 * BOUNDED_ROWS else ROWS
    groups, rest = split_whole_groups(rows, width, ranges)
    parts = []
    if groups is not None:
        parts.append(replace(nest, loops=(*around, replace(groups.loops[0], together=width), along)))
    if rest is not None:
        folds = tuple(map(going_on, nest.folds)) if parts else nest.folds
        parts.append(replace(nest, loops=(*around, *rest.loops, along), folds=folds))
    return [nest] if any(rows_faults(parts[0], ranges)) else parts


def _goes_in_rows(nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: Mapping[Var, Interval]) -> bool:
    """Whether it is worth it, and right by what is folded; `rows_faults` says whether the loops are such."""
    *_, rows, along = nest.loops
    if rows.kind is not LoopKind.REDUCTION or rows.extent < 2 * ROWS or rows.lower is not Const(0):
        return False
    nodes = [n for f in nest.folds for n in f.nodes]
    is_bounded = all(map(_is_bounded, nest.folds))
    if not all(_lies_in_short_rows(x, rows, along, buffer_of(x), is_bounded) for x in loads(nodes)):
        return False
    if not _is_little_work(nodes):
        return False
    return _folds_by_functions(nest) and all(bool(monoid_of(f, (rows,), ranges, {})) for f in nest.folds)


def _folds_by_functions(nest: Nest) -> bool:
    """Whether a nest's folds are ops that fold by one function."""
    return all(isinstance(f.op.definition.semantics, Fold) and not has_own_body(f.op) for f in nest.folds)


def _is_little_work(nodes: Sequence[Node]) -> bool:
    """Whether an element takes few instructions: where there is more to compute memory is not what is waited for."""
    inside = list(all_nodes(nodes))
    computed = [n.function for n in inside if isinstance(n, Apply)]
    return not any(isinstance(n, Choose) for n in inside) and len(computed) <= MOST_COMPUTED and CHEAP.issuperset(computed)


def _is_bounded(fold: FoldStep) -> bool:
    """Whether a fold is a maximum or minimum of numbers of 16 bits."""
    is_half = all(b.element.name in HALVES for b in fold.buffers)
    return is_half and bool(fold.op.regions) and combined_function(fold.op.regions[0]) in ("maximum", "minimum")


def _lies_in_short_rows(load: Load, rows: Loop, along: Loop, buffer: Buffer, is_bounded: bool) -> bool:
    """Whether rows are short and follow one another; several long ones at a time are as many places to read from."""
    step = step_along(load.index, buffer.strides, rows.variable)
    most = MOST_LONG_STEP_ROW_BYTES if is_bounded or buffer.element.name == "bf16" else MOST_ROW_BYTES
    return step in (0, along.extent) and along.extent * buffer.element.itemsize_bytes <= most


def scan_rows_together(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> Nest:
    """The nest with rows of an innermost scan side by side, as many as divide their number and stay in the nearest cache."""
    if len(nest.loops) < 2 or nest.loops[-1].kind is not LoopKind.SCAN:
        return nest
    around = nest.loops[-2]
    if around.kind is not LoopKind.PARALLEL or not around.is_whole:
        return nest
    steps = _row_steps(nest, around, buffer_of) if all(map(_is_brief, nest.folds)) else []
    widths = sorted({*SIDE_BY_SIDE, min(around.extent, SIDE_BY_SIDE[0])}, reverse=True)  # all of a few, as of three
    width = next((w for w in widths if around.extent % w == 0 and _lines_in_a_set(steps, w) <= WAYS_FILLED), 1)
    if width == 1:
        return nest
    made = replace(nest, loops=(*nest.loops[:-2], replace(around, together=width), nest.loops[-1]))
    return nest if any(rows_faults(made, {})) else made


def results_together(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> Nest:
    """The nest with the few results inside of its fold side by side: in registers, while the fold is the innermost loop."""
    if len(nest.loops) < 2 or nest.order_is_fixed or not nest.folds:
        return nest
    *around, rows, along = nest.loops
    if not _is_short_of_vectors(nest, along) or any(x.kind is not LoopKind.PARALLEL for x in around):
        return nest
    nodes = [n for f in nest.folds for n in f.nodes]
    if rows.kind is not LoopKind.REDUCTION or rows.extent < LEAST_STEPS or any(isinstance(n, Choose) for n in all_nodes(nodes)):
        return nest
    if any(step_along(x.index, buffer_of(x).strides, along.variable) not in (0, 1) for x in loads(nodes)):
        return nest
    made = replace(nest, loops=(*around, replace(along, together=along.extent), rows))
    return nest if any(rows_faults(made, {})) else made


def _is_short_of_vectors(nest: Nest, along: Loop) -> bool:
    """Whether a loop's results fill no vectors: of a row of three, five, six or seven f32 most or some are left one by one."""
    if along.kind is not LoopKind.PARALLEL or not along.is_whole or along.extent < LEAST_RESULTS:
        return False
    size = along.extent * min(b.element.itemsize_bytes for f in nest.folds for b in f.buffers)
    return size < VECTOR_BYTES and size % NARROW_VECTOR_BYTES != 0


def long_rows_together(nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval], count: int) -> list[Nest]:
    """The nest with `count` of the long rows that it folds side by side, and one over the rest of them."""
    if len(nest.loops) < 2 or nest.order_is_fixed or not 1 <= len(nest.folds) <= MOST_LONG_FOLDS:
        return [nest]
    *around, rows, along = nest.loops
    if (rows.kind, along.kind) != (LoopKind.PARALLEL, LoopKind.REDUCTION) or rows.lower is not Const(0) or rows.extent < count:
        return [nest]
    nodes = [n for f in nest.folds for n in f.nodes]
    read = list(loads(nodes))
    if not read or not all(_lies_in_long_rows(x, rows, along, buffer_of(x)) for x in read):
        return [nest]
    if not _folds_by_functions(nest) or not _is_little_work(nodes):
        return [nest]
    groups, rest = split_whole_groups(rows, count, ranges)
    if groups is None:
        return [nest]
    parts = [replace(nest, loops=(*around, replace(groups.loops[0], together=count), along))]
    if rest is not None:
        parts.append(replace(nest, loops=(*around, *rest.loops, along)))
    return [nest] if any(rows_faults(parts[0], ranges)) else parts


def has_long_rows(schedule: Schedule) -> bool:
    """Whether something is folded, and something may lie in memory in rows of whole pages: `long_rows_together` may apply."""
    folds = any(s.folds for p in schedule.phases for s in p.all_steps if isinstance(s, Nest))
    return folds and any(map(_may_have_long_rows, schedule.buffers))


def _may_have_long_rows(buffer: Buffer) -> bool:
    item = buffer.element.itemsize_bytes
    return item >= LEAST_LONG_ITEM_BYTES and buffer.size_bytes >= LEAST_LONG_BYTES


def _lies_in_long_rows(load: Load, rows: Loop, along: Loop, buffer: Buffer) -> bool:
    """Whether a load walks through rows of whole pages in memory."""
    if not _may_have_long_rows(buffer) or along.extent * buffer.element.itemsize_bytes < PAGE_BYTES:
        return False
    between = step_along(load.index, buffer.strides, rows.variable)
    is_row = step_along(load.index, buffer.strides, along.variable) == 1
    return is_row and between is not None and between >= along.extent


def windows_together(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> list[Nest]:
    """The nest with sums of neighbouring windows side by side, as many as divide their number; else whole groups and the rest."""
    if len(nest.loops) < 2 or not nest.folds:
        return [nest]
    *around, rows, along = nest.loops
    products = sum(f.products for f in nest.folds)
    if not isinstance(rows.lower, Const) or not isinstance(rows.upper, Const) or not _shares_kernel(nest, buffer_of):
        return [nest]
    count = rows.upper.value - rows.lower.value + 1
    widths = [w for w in WINDOWS if w * products <= MOST_PRODUCTS and w <= count]
    if not widths:
        return [nest]
    width = next((w for w in widths if count % w == 0 and (w >= ROWS or w == count)), min(widths[0], ROWS))
    whole = count // width * width
    groups = replace(rows, upper=rows.lower + (whole - 1), extent=whole, together=width)
    parts = [replace(nest, loops=(*around, groups, along))]
    if whole < count:
        rest = replace(rows, lower=rows.lower + whole, extent=count - whole)
        parts += windows_together(replace(nest, loops=(*around, rest, along)), buffer_of)
    return [nest] if any(rows_faults(parts[0], {})) else parts


def _shares_kernel(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> bool:
    """Whether sums of some products read elements side by side, about half of which are the same for the next row."""
    *_, rows, along = nest.loops
    if along.extent < LEAST_COLUMNS or any(f.products < LEAST_PRODUCTS for f in nest.folds):
        return False
    nodes = [n for f in nest.folds for n in f.nodes]
    inside = list(all_nodes(nodes))
    if any(isinstance(n, Choose) for n in inside) or has_runtimes(nodes):
        return False
    read = [x for x in inside if isinstance(x, Load)]
    same = [x for x in read if not any(rows.variable in e.variables for e in x.index)]
    side = all(step_along(x.index, buffer_of(x).strides, along.variable) in (0, 1) for x in read)
    return side and 3 * len(same) >= len(read)


def _is_brief(fold: FoldStep) -> bool:
    """Whether the next step waits for this one no longer than for its own loads."""
    function = combined_function(fold.op.regions[0]) if fold.op.regions else "add"
    return function in BRIEF or (function in CHEAP and not any(b.element.is_float for b in fold.buffers))


def _row_steps(nest: Nest, rows: Loop, buffer_of: Callable[[Load], Buffer]) -> list[int]:
    """Bytes from one row to the next, of each buffer that has rows; 0 where that differs from place to place."""
    places = [(b, f.index) for f in nest.folds for b in f.buffers]
    places += [(buffer_of(x), x.index) for x in loads([n for f in nest.folds for n in f.nodes])]
    steps = {b: step_along(at, b.strides, rows.variable) for b, at in places if any(rows.variable in e.variables for e in at)}
    return [(step or 0) * b.element.itemsize_bytes for b, step in steps.items()]


def _lines_in_a_set(steps: list[int], rows: int) -> int:
    """How many lines share a set of the nearest cache while so many rows are walked through side by side."""
    return sum(-(-rows // (PAGE_BYTES // max(LINE_BYTES, gcd(PAGE_BYTES, abs(step))))) for step in steps)
