"""Packed operands that are kept between calls: weights are put into panels once, not at each call.

    packs_of(instructions, written, …)  ->  the steps that only put an argument's elements into memory of their own
    KeptPacks(packs).begin(owner)      ->  what one call finds packed, and what it packs for later ones

What is made of an argument for products alone is such a step as well (transformed weights, normed ones), and so is what packs it.

Who calls names the owner of each argument's elements: an object that stays the same as long as they do, as JAX's arrays, which
are immutable (`Executable.call_owned`). A step whose owners are those of the call before writes to memory that is kept; from then
on it is left out, until one of them is another object. The memory is given back when an owner is gone, and with the program. All
programs together keep no more than the pool may keep free (`TILEWRIGHT_POOL_LIMIT`; 0: nothing is kept).

Nothing here waits: calls that run at once may pack twice, and the last one's memory stays.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from codegen.launcher import launch, memory

__all__ = ["KIND", "KeptPacks", "Pack", "Taken", "leased", "packs_of"]

KIND = "packed"
"""What the pool counts kept operands under."""


@dataclass(frozen=True)
class Pack:
    """Step `step` of a call only puts elements of the arguments with the numbers `arguments` into the memories `slots`.

    `slots` are (memory, bytes); no other step stores to them. Where only the steps `readers` read them, which are packs
    themselves, the step is left out when these are, and nothing of its own is kept.
    """

    step: int
    arguments: tuple[int, ...]
    slots: tuple[tuple[int, int], ...]
    readers: tuple[int, ...] = ()


def packs_of(
    instructions: Sequence[launch.Instruction],
    stores: Mapping[int, frozenset[int]],
    moves: Collection[int],
    given: Sequence[int | None],
    inner: Collection[int],
    sizes: Mapping[int, int],
) -> tuple[Pack, ...]:
    """The steps without which all other steps may be run once they have run: those that each call runs once.

    `stores` are the memories that each kernel's step stores to, `moves` the steps that only move elements, `given` the
    arguments' memories, `inner` those between steps, `sizes` their bytes. What is exchanged counts as stored.
    """
    jumped = _jumped(instructions)
    writers: dict[int, int] = {}
    for number, step in enumerate(instructions):
        for slot in stores.get(number, frozenset(step.buffers)):
            writers[slot] = writers.get(slot, 0) + 1
    sources = {slot: frozenset({k}) for k, slot in enumerate(given) if slot is not None and not writers.get(slot)}
    found: dict[int, Pack] = {}
    for number in sorted(set(moves) - jumped):
        own = stores[number]
        reads = set(instructions[number].buffers) - own
        if reads and reads <= sources.keys() and own <= set(inner) and all(writers[s] == 1 for s in own):
            arguments = frozenset[int]().union(*(sources[s] for s in reads))
            sources.update(dict.fromkeys(own, arguments))
            found[number] = Pack(number, tuple(sorted(arguments)), tuple((s, sizes[s]) for s in sorted(own)))
    readers: dict[int, set[int]] = {}
    for number, step in enumerate(instructions):
        for slot in step.buffers:
            readers.setdefault(slot, set()).add(number)
    for number, pack in found.items():
        others = set[int]().union(*(readers[slot] for slot, _ in pack.slots)) - {number}
        if others <= found.keys():
            found[number] = replace(pack, readers=tuple(sorted(others)))
    return tuple(found.values())


def _jumped(instructions: Sequence[launch.Instruction]) -> set[int]:
    """The steps that a call may run several times or not at all: those that some jump leads over, or back to."""
    found: set[int] = set()
    for k, step in enumerate(instructions):
        if isinstance(step, launch.Jump | launch.Unless):
            found.update(range(k + 1, step.target) if step.target > k else range(step.target, k + 1))
    return found


def _renumbered(step: launch.Instruction, places: Sequence[int]) -> launch.Instruction:
    """A step of a plan whose step k is at places[k], or before the one there if it is left out."""
    return replace(step, target=places[step.target]) if isinstance(step, launch.Jump | launch.Unless) else step


class _Seen:
    """The owners of a pack's arguments at the last call, and the memory that it is kept in, if it is."""

    def __init__(self, owners: Sequence[Any]) -> None:
        self.lease: memory.Lease | None = None
        self.is_refused = False
        own = weakref.ref(self)  # an owner's end must not find the owner through this object

        def drop(_: object) -> None:
            seen = own()
            if seen is not None:
                seen.lease = None

        self._owners = [weakref.ref(owner, drop) for owner in owners]

    def is_of(self, owners: Sequence[Any]) -> bool:
        return all(mine() is owner for mine, owner in zip(self._owners, owners, strict=True))


@dataclass
class Taken:
    """What one call takes: the addresses of `places`, the steps that it leaves `out`, and leases that it holds meanwhile."""

    places: dict[int, int] = field(default_factory=dict)
    out: list[int] = field(default_factory=list)
    leases: list[memory.Lease] = field(default_factory=list)
    _new: list[tuple[_Seen, memory.Lease]] = field(default_factory=list)

    def end(self) -> None:
        """The call has run to its end: what it has packed is there for others."""
        for seen, lease in self._new:
            seen.lease = lease


class KeptPacks:
    """The packs of one program, and the launcher's plans without those that are kept."""

    def __init__(self, packs: Sequence[Pack]) -> None:
        self.packs = tuple(packs)
        self._seen: list[_Seen | None] = [None] * len(self.packs)
        self._plan: tuple[tuple[int, ...], launch.Plan, tuple[int, ...]] = ((), launch.Plan(()), ())

    def begin(self, owner: Callable[[int], Any]) -> Taken:
        """What a call takes whose argument k has `owner(k)`; None owns elements that may change."""
        taken = Taken()
        for k, pack in enumerate(self.packs):
            mine = [] if pack.readers else [owner(n) for n in pack.arguments]
            if not mine or any(own is None for own in mine):
                continue
            seen = self._seen[k]
            if seen is None or not seen.is_of(mine):
                self._seen[k] = _Seen(mine)
                continue
            lease = seen.lease
            if lease is not None:
                taken.out.append(pack.step)
            elif not seen.is_refused:
                lease = leased(sum(memory.rounded_bytes(size) for _, size in pack.slots))
                seen.is_refused = lease is None
                if lease is not None:
                    taken._new.append((seen, lease))
            if lease is not None:
                taken.leases.append(lease)
                at = lease.address
                for slot, size_bytes in pack.slots:
                    taken.places[slot] = at
                    at += memory.rounded_bytes(size_bytes)
        for pack in reversed(self.packs):
            if pack.readers and set(pack.readers) <= set(taken.out):
                taken.out.append(pack.step)
        return taken

    def plan_without(self, out: Sequence[int], whole: launch.Plan) -> tuple[launch.Plan, tuple[int, ...]]:
        """The plan of the other steps, and the numbers that they have in the `whole` one."""
        wanted, (known, plan, numbers) = tuple(out), self._plan
        if known != wanted or not numbers:
            gone = set(wanted)
            numbers = tuple(k for k in range(len(whole.steps)) if k not in gone)
            places = [*accumulate((k not in gone for k in range(len(whole.steps))), initial=0)]
            plan = launch.Plan([_renumbered(whole.steps[k], places) for k in numbers])
            self._plan = (wanted, plan, numbers)
        return plan, numbers


def leased(size_bytes: int) -> memory.Lease | None:
    """Memory that is kept, or None where there is too much of it already."""
    if memory.pool.count(KIND).live_bytes + size_bytes > memory.pool.limit_bytes:
        return None
    try:
        return memory.pool.lease(size_bytes, KIND)
    except (MemoryError, OSError, OverflowError):  # the call goes on without
        return None
