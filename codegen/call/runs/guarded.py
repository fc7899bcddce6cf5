"""A run with every array between pages without access, looked at between any two steps (`launcher.guard`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codegen.call.program.layout import Layout, literal
from codegen.launcher import launch
from codegen.launcher.guard import Guards, StepUse

__all__ = ["GuardedRun"]


@dataclass(frozen=True, eq=False)
class GuardedRun:
    """What a run between guards is told beside the arrays.

    `sizes` are the memories' bytes, `addresses` the table that a run fills in, `uses` what each kernel uses, `told` a memory's
    name and alignment in kernels. `before`: arrays end where a page without access begins, or begin where one ends.
    """

    steps: launch.Plan
    layout: Layout
    sizes: Mapping[int, int]
    addresses: np.ndarray
    uses: Sequence[StepUse]
    told: Mapping[int, tuple[str, int]]
    before: bool
    evaluate: Callable[[int, np.ndarray], None]

    def __call__(self, given: Sequence[np.ndarray], threads: int | None, spent: np.ndarray | None) -> tuple[np.ndarray, ...]:
        """The results. Raises what `Guards` raises for an element that is read or written outside."""
        layout = self.layout
        guards = Guards(dict(zip(self.steps.kernels, self.uses, strict=True)), self.told, before=self.before)
        addresses = self.addresses.copy()
        for k, ((slot, _), a) in enumerate(zip(layout.given, given, strict=True)):
            if slot is not None and slot not in layout.shared_slots:
                addresses[slot] = guards.place_copy(slot, f"argument {k}", a)
        for slot, a in layout.fixed:
            addresses[slot] = guards.place_copy(slot, "constant", a)
        for slot in layout.offsets:
            addresses[slot] = guards.place(slot, "array", self.sizes[slot])
        for k, (known, v) in enumerate(layout.made):
            if known is not None:
                addresses[known] = guards.place(known, f"result {k}", v.tensor.size_bytes)
        for argument, result in layout.written_over:
            slot, v = layout.made[result]
            assert slot is not None, "a step writes it"
            guards.array(slot, v.shape, v.tensor.dtype)[...] = given[argument]
        self.steps.run(addresses, threads, spent, self.evaluate, guards)
        # Results are copies: guarded pages are not kept for longer than the call.
        return tuple([literal(v) if s is None else guards.array(s, v.shape, v.tensor.dtype).copy() for s, v in layout.made])
