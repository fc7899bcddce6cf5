"""Packed operands that are kept between calls through XLA: weights are put into panels once, not at each call.

XLA hands over addresses, not arrays. `look`, told now and then which arrays a call had, packs what two looks in a row have found
to be the same; from then on a call whose arguments have these addresses runs the record without the steps that pack
(`XlaCall.keep`). An address stands for its elements as long as the array is there: when one is gone, nothing is kept any more
before its memory can be another's. An array that was deleted is there still, so `check` asks before each call.

The memory counts as that of `codegen.call.kept_packs` does, and is given back when no call can be using it any more.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.call.kept_packs import KeptPacks, Pack, leased
from codegen.call.xla_call import XlaCall
from codegen.launcher import launch, memory

__all__ = ["XlaPacks"]


@dataclass(frozen=True, eq=False)
class _Kept:
    """What is kept of some packs: whose arguments, where, and what runs instead of the whole program."""

    packs: tuple[Pack, ...]
    owners: tuple[weakref.ref[Any], ...]  # of all of their arguments
    lease: memory.Lease
    call: XlaCall


class XlaPacks:
    """What is kept for one program of XLA's, `call`, of its packs.

    `is_deleted(owner)` tells whether an array's memory is gone; `is_idle()` whether no call is on its way.
    """

    def __init__(
        self, packs: Sequence[Pack], call: XlaCall, is_deleted: Callable[[Any], bool], is_idle: Callable[[], bool]
    ) -> None:
        self.packs, self._call = tuple(packs), call
        self._is_deleted, self._is_idle = is_deleted, is_idle
        self._seen: list[tuple[weakref.ref[Any], ...]] = [()] * len(self.packs)
        self._kept: _Kept | None = None
        self._table: Any = None
        self._over: list[Any] = []  # what calls on their way may still use
        self._looks = threading.Lock()  # nobody waits for it

    def check(self) -> None:
        """Keeps nothing any more where an array was deleted, or given away, although it is there."""
        kept = self._kept
        if kept is not None:
            for own in kept.owners:
                owner = own()
                if owner is None or self._is_deleted(owner):
                    self._drop()
                    return

    def look(self, owner: Callable[[int], Any], address: Callable[[int], int]) -> bool:
        """Whether the packs of a call are kept, now that it is known whose elements its arguments were, and where they are.

        None owns elements that may change. Of two threads that look at once one does.
        """
        if not self._looks.acquire(blocking=False):
            return False
        try:
            return self._look(owner, address)
        finally:
            self._looks.release()

    def _look(self, owner: Callable[[int], Any], address: Callable[[int], int]) -> bool:
        if self._over and self._is_idle():
            self._over.clear()
        mine = [tuple(owner(n) for n in pack.arguments) for pack in self.packs]
        last = [all(x is not None for x in now) and _are(seen, now) for seen, now in zip(self._seen, mine, strict=True)]
        self._seen = [() if any(x is None for x in now) else tuple(weakref.ref(x) for x in now) for now in mine]
        same = tuple(pack for pack, is_same in zip(self.packs, last, strict=True) if is_same)
        kept = self._kept
        if kept is not None and kept.packs == same and _are(kept.owners, [owner(n) for n in _arguments(same)]):
            return True
        return bool(same) and self._keep(same, owner, address)

    def _keep(self, packs: tuple[Pack, ...], owner: Callable[[int], Any], address: Callable[[int], int]) -> bool:
        self._drop()
        lease = leased(sum(memory.rounded_bytes(size) for p in packs for _, size in p.slots))
        if lease is None:
            return False
        numbers = _arguments(packs)
        places: dict[int, int] = {}
        at = lease.address
        for slot, size_bytes in (s for p in packs for s in p.slots):
            places[slot] = at
            at += memory.rounded_bytes(size_bytes)
        whole = self._call.plan
        given = {read: address(n) for n in numbers if (read := self._call.given[n]) is not None}
        known = {**places, **given}
        addresses = np.zeros(1 + int(whole.slots.max()), np.int64)
        addresses[list(known)] = list(known.values())
        launch.Plan([whole.steps[p.step] for p in packs]).run(addresses, self._call.threads)
        rest, steps = KeptPacks(packs).plan_without([p.step for p in packs], whole)
        other = self._call.without(rest, steps, places)
        this = weakref.ref(self)  # an owner's end must not find the owner through this object

        def drop(_: object) -> None:
            mine = this()
            if mine is not None:
                mine._drop()

        self._kept = _Kept(packs, tuple(weakref.ref(owner(n), drop) for n in numbers), lease, other)
        self._table = self._call.keep((other, [(n, address(n)) for n in numbers]))
        return True

    def _drop(self) -> None:
        """From now on calls pack for themselves."""
        kept, table, self._kept, self._table = self._kept, self._table, None, None
        if kept is None:
            return
        self._call.keep(None)
        if not self._is_idle():
            self._over.append((kept, table))


def _arguments(packs: Sequence[Pack]) -> list[int]:
    return sorted({n for p in packs for n in p.arguments})


def _are(known: Sequence[weakref.ref[Any]], now: Sequence[Any]) -> bool:
    return len(known) == len(now) and all(mine() is x for mine, x in zip(known, now, strict=True))
