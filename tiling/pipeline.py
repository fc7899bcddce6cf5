"""The pipeline: every pass from a module to the loops that are proved and printed, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from tiling.loops.ir import Nest, Schedule
from tiling.passes.collapse_loops import collapse_loops
from tiling.passes.each_nest import Around, each_nest
from tiling.passes.group_rows import group_rows, scan_rows_together
from tiling.passes.order_loops import order_loops
from tiling.passes.prefetch_rows import prefetch_rows
from tiling.passes.read_rows_again import read_rows_again
from tiling.passes.split_borders import inside_and_edges
from tiling.passes.split_innermost import cut_at_masks, split_innermost
from tiling.passes.split_residues import take_turns
from tiling.passes.write_out_sums import write_out_sums
from tiling.passing import Pass, runs, skipped

__all__ = ["FINISHING", "finished"]

LOOPS = "loops"


def _nests(rewrite: Callable[[Nest, Around], list[Nest]]) -> Callable[[Schedule], Schedule]:
    return lambda schedule: each_nest(schedule, rewrite)


FINISHING = (
    Pass(
        "split_borders", LOOPS, LOOPS, _nests(lambda n, a: inside_and_edges(n, a.ranges)), True,
        "windows over an edge: an inside that asks nothing, and the edges around it",
    ),
    Pass(
        "write_out_sums", LOOPS, LOOPS, _nests(lambda n, a: [write_out_sums(n, a.ranges, a.buffer_of)]), True,
        "sums of few products have no loop; before loops are ordered, which looks at what is left",
    ),
    Pass(
        "order_loops", LOOPS, LOOPS, _nests(lambda n, a: [order_loops(n, a.buffer_of)]), True,
        "the innermost loop steps through memory one element at a time",
    ),
    Pass(
        "collapse_loops", LOOPS, LOOPS, _nests(lambda n, a: [collapse_loops(n, a.buffer_of, a.ranges)]), True,
        "loops that walk on through memory become one; after they are in order",
    ),
    Pass(
        "take_turns", LOOPS, LOOPS, _nests(lambda n, a: take_turns(n, a.buffer_of, a.ranges)), True,
        "an iteration does a whole turn of residues, and nothing asks whose it is",
    ),
    Pass(
        "group_rows", LOOPS, LOOPS, _nests(lambda n, a: group_rows(n, a.buffer_of)), True,
        "folds across rows read and write their running results once for four rows",
    ),
    Pass(
        "scan_rows_together", LOOPS, LOOPS, _nests(lambda n, a: [scan_rows_together(n)]), True,
        "each step of a scan waits for the one before: several rows go side by side",
    ),
    Pass(
        "read_rows_again", LOOPS, LOOPS, _nests(lambda n, a: [read_rows_again(n, a.ranges, a.buffer_of, a.phase)]), True,
        "a maximum of a long row takes two instructions an element, and most rows no second look",
    ),
    Pass(
        "prefetch_rows", LOOPS, LOOPS, _nests(lambda n, a: [prefetch_rows(n, a.buffer_of)]), True,
        "rows at places known only at run time are asked for before their turn",
    ),
    Pass(
        "cut_at_masks", LOOPS, LOOPS, _nests(lambda n, a: [cut_at_masks(n, a.ranges)]), False,
        "what a mask covers is left out of the innermost loop while its flag is 1",
    ),
    Pass(
        "split_innermost", LOOPS, LOOPS, _nests(lambda n, a: [split_innermost(n, a.ranges)]), True,
        "no iteration tests a condition on the innermost loop's variable; last, for it sees the loops as they are",
    ),
)  # fmt: skip


_finished: WeakKeyDictionary[Schedule, dict[frozenset[str], Schedule]] = WeakKeyDictionary()
"""The final loops of schedules that are in use, by the passes that were skipped."""


def finished(schedule: Schedule) -> Schedule:
    """The final loops of a schedule: what is proved and printed as source."""
    known = _finished.setdefault(schedule, {})
    key = skipped()
    if key not in known:
        made = schedule
        for p in FINISHING:
            if p.run is not None and runs(p.name):
                made = p.run(made)
        known[key] = made
    return known[key]
