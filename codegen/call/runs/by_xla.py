"""A program's call as XLA makes it, or whoever has addresses, from its steps and its memories (`codegen.call.xla_call`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from codegen.call.program.layout import LINE_BYTES, Layout, literal
from codegen.call.quick import SMALL_BYTES, address_of
from codegen.call.xla_call import Failures, XlaCall
from codegen.launcher import launch, memory
from hlo.errors import Declined
from tiling.words import amount

__all__ = ["XLA_MOST_BYTES", "call_by_xla"]

XLA_MOST_BYTES = 1 << 25


def call_by_xla(
    steps: launch.Plan,
    layout: Layout,
    need_bytes: int,
    threads: int,
    evaluate: Callable[[int, Any], None],
    done: int,
    failures: Failures,
    is_plain: bool,
    held: int,
) -> XlaCall | Declined:
    """The call, or why there is none. `need_bytes` is what a call takes beside its arguments and what is written over them."""
    # A program that writes over arguments keeps memory of its own: the thorough way would copy them.
    keeps_room = layout.written_over and layout.made_bytes <= XLA_MOST_BYTES
    if need_bytes > XLA_MOST_BYTES and not keeps_room:
        return Declined(f"it needs {amount(need_bytes)}, which the pool keeps between calls and XLA does not")
    fixed = layout.fixed_addresses
    kept = layout.kept_slots
    made: list[tuple[int, int, int]] = []
    written: set[int] = set()
    literals: list[np.ndarray] = []
    for known, v in layout.made:
        size_bytes = v.tensor.size_bytes
        if known is None:  # a constant that no step reads
            known = layout.count + len(made)
            literals.append(memory.in_lines(literal(v)))
            fixed[known] = address_of(literals[-1])
        elif known not in written and known not in kept:
            written.add(known)
            made.append((known, 0, LINE_BYTES if size_bytes > SMALL_BYTES else 1))
            continue
        made.append((known, size_bytes, 1))
    given = [slot for slot, _ in layout.given]
    over = [(argument, result, layout.made[result][1].tensor.size_bytes) for argument, result in layout.written_over]
    call = XlaCall(
        steps, given, made, fixed, layout.offsets, layout.arena_bytes, threads, evaluate, done, failures, is_plain, literals,
        held, over,
    )  # fmt: skip
    if need_bytes > XLA_MOST_BYTES and not call.keep_room():
        return Declined(f"it needs {amount(call.bytes)}, which is more than may be kept")
    return call
