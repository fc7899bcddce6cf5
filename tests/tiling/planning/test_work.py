"""What is remembered with a nest's work is of this work alone."""

from __future__ import annotations

from dataclasses import replace

from indexing.expr import Var, as_expr
from tiling.loops.element_ir import Load
from tiling.loops.ir import Buffer, Loop, LoopKind
from tiling.planning.costs.work import Work, order_of


def buffer_of(load: Load) -> Buffer:
    assert load.buffer is not None
    return load.buffer


def test_a_copy_with_other_loops_does_not_take_the_order_over() -> None:
    long, short = (Loop(Var(f"i{n}"), as_expr(0), as_expr(n - 1), n, LoopKind.PARALLEL) for n in (64, 1))
    work = Work((long, short), (), ())
    assert order_of(work, buffer_of) == [1, 0]  # the loop of one iteration outside
    assert order_of(replace(work, loops=(short, long)), buffer_of) == [0, 1]
