"""What is kept between calls through XLA: weights are put into panels once, and found once, not at each call.

XLA hands over addresses, not arrays. `look`, told now and then which arrays a call had, packs what two looks in a row have found
to be the same; from then on a call whose arguments have these addresses runs the record without the steps that pack
(`XlaCall.keep`). An address stands for its elements as long as the array is there: when one is gone, nothing is kept any more
before its memory can be another's. An array that was deleted is there still, so `check` asks before each call.

XLA takes a microsecond or two for each argument of a call, and models have hundreds. Where most stay the same, `Known` is a
record that has their addresses, and is called with the others alone. Its caller finds that they are the same objects, and that
none was deleted; `hold` keeps the elements in place until no call can be using them any more.

The memory counts as that of `codegen.call.kept_packs` does, and is given back when no call can be using it any more.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.call.kept_packs import KeptPacks, Pack, leased
from codegen.call.xla_call import XlaCall
from codegen.launcher import launch, memory

__all__ = ["MANY", "Known", "XlaPacks"]

MANY = 24
"""Arguments that stay the same, from which on calls are made without them."""

PATIENCE_SECONDS = 0.05
"""From one look to the next whether the last calls are over, where weights go while some are on their way."""


@dataclass(frozen=True, eq=False)
class Known:
    """`call` takes the arguments with the numbers `others`; those with the numbers `numbers` are the objects `ids` (see `id`)."""

    call: XlaCall
    numbers: tuple[int, ...]
    others: tuple[int, ...]
    ids: tuple[int, ...]
    holds: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class _Kept:
    """What is kept: of which arguments, whose they are, where packs lie, and what runs instead of the whole program."""

    packs: tuple[Pack, ...]
    arguments: tuple[int, ...]
    owners: tuple[weakref.ref[Any], ...]  # of all of these arguments
    lease: memory.Lease | None
    call: XlaCall | None  # without these packs
    known: Known | None


class XlaPacks:
    """What is kept for one program of XLA's, `call`, of its `arguments` and packs.

    `is_deleted(owner)` tells whether an array's memory is gone; `is_idle()` whether no call is on its way; `hold(owner)` gives
    what keeps an array's elements in place as long as it lives, or None.
    """

    def __init__(
        self, packs: Sequence[Pack], call: XlaCall, is_deleted: Callable[[Any], bool], is_idle: Callable[[], bool],
        hold: Callable[[Any], Any],
    ) -> None:  # fmt: skip
        self.packs, self._call = tuple(packs), call
        self._is_deleted, self._is_idle, self._hold = is_deleted, is_idle, hold
        self._seen: list[weakref.ref[Any] | None] = [None] * len(call.given)
        self._changing: set[int] = set()
        self._kept: _Kept | None = None
        self._table: Any = None
        self._over: list[Any] = []  # what calls on their way may still use
        self._looks = threading.Lock()  # nobody waits for it

    @property
    def known(self) -> Known | None:
        """What runs where most arguments are those of the calls before."""
        kept = self._kept
        return None if kept is None else kept.known

    def check(self) -> None:
        """Keeps nothing any more where an array was deleted, or given away, although it is there."""
        kept = self._kept
        if kept is not None:
            for own in kept.owners:
                owner = own()
                if owner is None or self._is_deleted(owner):
                    self.drop()
                    return

    def look(self, owner: Callable[[int], Any], address: Callable[[int], int], passed: int | None = None) -> bool:
        """Whether something of a call is kept, now that it is known whose elements its arguments were, and where they are.

        None owns elements that may change. Calls go on having the argument `passed`, for what XLA takes from it beside its
        elements. Of two threads that look at once one does.
        """
        if not self._looks.acquire(blocking=False):
            return False
        try:
            return self._look(owner, address, passed)
        finally:
            self._looks.release()

    def _look(self, owner: Callable[[int], Any], address: Callable[[int], int], passed: int | None) -> bool:
        self._clear()
        mine = [None if n in self._changing else owner(n) for n in range(len(self._seen))]
        same = {n: x for n, (ref, x) in enumerate(zip(self._seen, mine, strict=True)) if x is not None and _is(ref, x)}
        self._seen = [None if x is None else weakref.ref(x) for x in mine]
        packs = _with_their_readers([pack for pack in self.packs if same.keys() >= set(pack.arguments)])
        arguments = tuple(same) if len(same) >= MANY else tuple(sorted({n for p in packs for n in p.arguments}))
        if self._has(packs, arguments, same):
            return True
        return bool(arguments) and self._keep(packs, {n: same[n] for n in arguments}, {n: address(n) for n in arguments}, passed)

    def _has(self, packs: tuple[Pack, ...], arguments: tuple[int, ...], owners: Mapping[int, Any]) -> bool:
        kept = self._kept
        if kept is None or kept.packs != packs or kept.arguments != arguments:
            return False
        return all(_is(ref, owners[n]) for ref, n in zip(kept.owners, arguments, strict=True))

    def _keep(self, packs: tuple[Pack, ...], owners: dict[int, Any], at: dict[int, int], passed: int | None) -> bool:
        self.drop()
        whole = self._call.plan
        rest, steps = KeptPacks(packs).plan_without([p.step for p in packs], whole)
        lease, places = (None, {}) if not packs else self._packed(packs, at)
        if packs and lease is None:
            return False
        known = self._known(owners, at, passed, rest, steps, places) if len(owners) >= MANY else None
        if known is None and not packs:
            return False
        this = weakref.ref(self)  # an owner's end must not find the owner through this object

        def drop(_: object) -> None:
            mine = this()
            if mine is not None:
                mine.drop()

        other = self._call.without(rest, steps, places) if packs else None
        self._kept = _Kept(packs, tuple(owners), tuple(weakref.ref(x, drop) for x in owners.values()), lease, other, known)
        if other is not None:
            numbers = sorted({n for p in packs for n in p.arguments})
            self._table = self._call.keep((other, [(n, at[n]) for n in numbers]))
        return True

    def _known(
        self, owners: dict[int, Any], at: dict[int, int], passed: int | None, rest: launch.Plan, steps: Sequence[int],
        places: dict[int, int],
    ) -> Known | None:  # fmt: skip
        numbers = tuple(n for n in owners if n != passed)
        holds = tuple(self._hold(owners[n]) for n in numbers)
        if any(h is None for h in holds):
            return None
        others = tuple(n for n in range(len(self._seen)) if n not in numbers)
        call = self._call.without(rest, steps, places, {n: at[n] for n in numbers})
        return Known(call, numbers, others, tuple(id(owners[n]) for n in numbers), holds)

    def _packed(self, packs: Sequence[Pack], at: dict[int, int]) -> tuple[memory.Lease | None, dict[int, int]]:
        """Memory with what the packs make of the arguments at these addresses, and where it lies there."""
        kept = [p for p in packs if not p.readers]
        lease = leased(sum(memory.rounded_bytes(size) for p in kept for _, size in p.slots))
        places: dict[int, int] = {}
        if lease is None:
            return None, places
        free = lease.address
        for slot, size_bytes in (s for p in kept for s in p.slots):
            places[slot] = free
            free += memory.rounded_bytes(size_bytes)
        whole = self._call.plan
        given = {read: at[n] for p in packs for n in p.arguments if (read := self._call.given[n]) is not None}
        places_of = {**places, **given}
        addresses = np.zeros(1 + int(whole.slots.max()), np.int64)
        addresses[list(places_of)] = list(places_of.values())
        between: dict[int, tuple[int, memory.Lease]] = {}  # made for packs alone: the last step that reads it, and its memory
        for p in packs:
            for slot, size_bytes in p.slots if p.readers else ():
                room = leased(size_bytes)
                if room is None:
                    return None, {}
                addresses[slot] = room.address
                between[slot] = p.readers[-1], room
            launch.Plan([whole.steps[p.step]]).run(addresses, self._call.threads)
            between = {slot: x for slot, x in between.items() if x[0] > p.step}
        return lease, places

    def expect_others(self, numbers: Iterable[int]) -> None:
        """Arguments with these numbers are taken from each call from now on: they were the same for a while, by chance."""
        self._changing |= set(numbers)
        self.drop()

    def drop(self) -> None:
        """From now on calls find and pack all for themselves."""
        kept, table, self._kept, self._table = self._kept, self._table, None, None
        if kept is None:
            return
        if kept.call is not None:
            self._call.keep(None)
        if not self._is_idle():
            self._over.append((kept, table))
            _clear_later(weakref.ref(self))

    def _clear(self) -> bool:
        """Whether nothing is held any more that calls on their way could use."""
        if self._over and self._is_idle():
            self._over.clear()
        return not self._over


def _clear_later(own: weakref.ref[XlaPacks]) -> None:
    """Looks now and then whether the last calls are over: it may be that none follows, and weights are large."""

    def look() -> None:
        packs = own()
        if packs is not None and not packs._clear():
            del packs
            _clear_later(own)

    timer = threading.Timer(PATIENCE_SECONDS, look)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no more threads: the next look does it
        timer.start()


def _with_their_readers(packs: Sequence[Pack]) -> tuple[Pack, ...]:
    """Packs without those that others read which are not among them."""
    steps = {p.step for p in packs}
    for p in reversed(packs):
        if not steps >= set(p.readers):
            steps.discard(p.step)
    return tuple(p for p in packs if p.step in steps)


def _is(ref: weakref.ref[Any] | None, x: Any) -> bool:
    return ref is not None and ref() is x
