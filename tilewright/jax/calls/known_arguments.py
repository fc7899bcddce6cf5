"""Calls most of whose arguments are those of the calls before: JAX is given the others alone.

JAX looks at each argument of a call, for a microsecond or two where its data is in no cache, and models have hundreds of weights
that stay the same. Whether these are the same objects is found in a tenth of that. So a program has a second function for JAX,
which takes what changes (`codegen.call.xla_packs.Known`). The weights' elements stay in place while there is one: JAX is told by
DLPack that somebody uses them, and then copies what it would otherwise reuse or free.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from codegen.call.xla_packs import Known

__all__ = ["KnownCall", "committed", "held"]

FEW = 0.25
"""The part of the known arguments that a call may have others for, for these to be what changes from call to call."""


def held(array: Any) -> Any:
    """What keeps an array's elements where they are, deleted or donated, as long as it lives; None where JAX has none."""
    try:
        return array.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError):  # of 4 bits, say
        return None


def committed(leaves: Sequence[Any]) -> int | None:
    """The number of an argument whose device is chosen, as then that of the results is; None where none is."""
    return next((n for n, x in enumerate(leaves) if getattr(x, "committed", False)), None)


class Held:
    """`find(value, arrays, others)`: whether containers hold the known arrays of a call, in the same places.

    `value` is what the call had, `leaves` is JAX's list of its leaves, of which those with the numbers `known` are to stay, and
    `begin` is the number of the first one in here. Raises TypeError for containers other than dicts, tuples and lists, of which
    JAX alone knows the leaves.

    Each array's head is read once. JAX's flattening, its tree and the leaves' numbers read it three times, and what lies behind
    it, from beyond the caches after a call: 180 us in place of 60 for the 312 weights of MobileNetV3.
    """

    def __init__(self, value: Any, leaves: Sequence[Any], known: Collection[int], begin: int = 0) -> None:
        self._kind = type(value)
        self._keys: list[Any] | None = list(value) if self._kind is dict else None
        if self._keys is None and self._kind is not tuple and self._kind is not list:
            raise TypeError(f"{self._kind.__name__} is no dict, tuple or list")
        found = list(value if self._keys is None else value.values())
        # JAX's order of a dict is that of its keys, whatever order they came in
        order = range(len(found)) if self._keys is None else sorted(range(len(found)), key=self._keys.__getitem__)
        numbers: dict[int, int | None] = {}
        inner: dict[int, Held] = {}
        self.end = begin
        for k in order:
            if found[k] is None:
                numbers[k] = None
            elif self.end < len(leaves) and leaves[self.end] is found[k]:
                numbers[k] = self.end
                self.end += 1
            else:
                inner[k] = Held(found[k], leaves, known, self.end)
                self.end = inner[k].end
        self._count = len(found)
        self._arrays = [k for k in range(self._count) if numbers.get(k) in known]
        self._others = [k for k in range(self._count) if k in numbers and numbers[k] not in known]
        self._inner = list(inner.items())
        self._ids = [id(found[k]) for k in self._arrays]
        self.numbers: list[int | None] = [numbers[k] for k in self._others]
        """Of the others as `find` gives them; None for a None, which is no leaf."""
        for _, held in self._inner:
            self.numbers += held.numbers

    def find(self, value: Any, arrays: list[Any], others: list[Any]) -> bool:
        """Adds the known arrays to `arrays`, and all else to `others`."""
        if type(value) is not self._kind:
            return False
        found = list(value if self._keys is None else value.values())
        if len(found) != self._count:
            return False
        mine = found if len(self._arrays) == self._count else [found[k] for k in self._arrays]
        if list(map(id, mine)) != self._ids or (self._keys is not None and list(value) != self._keys):
            return False
        arrays += mine
        others += [found[k] for k in self._others]
        return all(held.find(found[k], arrays, others) for k, held in self._inner)


class KnownCall:
    """`function(*others)` gives the results of calls that it `takes`; `bound(others)` is what JAX traces for it.

    `tree` and `leaves` are those of one such call, `given` its arguments as they came; its arrays are of the type `array`. Those
    with the numbers `donated` are given away.
    """

    def __init__(
        self, jax: Any, known: Known, given: Any, tree: Any, leaves: Sequence[Any], array: type,
        bound: Callable[[Sequence[Any]], Any], donated: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.known = weakref.ref(known)  # it holds the weights' memory, for others to give back
        self._numbers, self._ids, self._others = known.numbers, known.ids, known.others
        self._tree, self._array = tree, array
        self._kinds = [self._kind(leaves[k]) for k in known.others]
        self._of_numbers = itemgetter(*known.numbers)
        self.is_possible = None not in self._kinds
        try:
            self._held: Held | None = Held(given, leaves, frozenset(known.numbers))
        except TypeError:
            self._held = None
        else:
            at = {n: k for k, n in enumerate(self._held.numbers)}
            self._order = [at[n] for n in known.others]
            self._nothing = [k for k, n in enumerate(self._held.numbers) if n is None]

        def call(*others: Any) -> Any:
            return bound(others)

        given_away = tuple(k for k, n in enumerate(known.others) if n in donated)
        self.function = jax.jit(call, keep_unused=True, donate_argnums=given_away)

    def others_of(self, given: Any) -> list[Any] | None:
        """The arguments that change of a call that holds the known ones as the call did that this was made for, none deleted.

        None says nothing: such a call may be one that it `takes`.
        """
        arrays: list[Any] = []
        found: list[Any] = []
        if self._held is None or not self._held.find(given, arrays, found) or any(found[k] is not None for k in self._nothing):
            return None
        others = [found[k] for k in self._order]
        if [self._kind(x) for x in others] != self._kinds or any(map(self._array.is_deleted, arrays)):  # type: ignore[attr-defined]
            return None
        return others

    def takes(self, tree: Any, leaves: Sequence[Any]) -> bool:
        """Whether a call's arguments are the known ones and others like those of the call that this was made for."""
        return (
            tree == self._tree
            and self._of_numbers(list(map(id, leaves))) == self._ids
            and [self._kind(leaves[k]) for k in self._others] == self._kinds
        )

    def changed(self, tree: Any, leaves: Sequence[Any]) -> list[int]:
        """The numbers of a few of the known arguments that a call has others for; none where it has for many."""
        if tree != self._tree:
            return []
        found = [n for n, i in zip(self._numbers, self._ids, strict=True) if id(leaves[n]) != i]
        return found if len(found) <= FEW * len(self._numbers) else []

    def is_there(self, leaves: Sequence[Any]) -> bool:
        """Whether none of the known arguments of such a call was deleted."""
        return not any(map(self._array.is_deleted, self._of_numbers(leaves)))  # type: ignore[attr-defined]

    def others(self, leaves: Sequence[Any]) -> list[Any]:
        return [leaves[k] for k in self._others]

    def _kind(self, x: Any) -> Any:
        """What JAX compiles for; None of what it may take otherwise."""
        of = type(x)
        if of is self._array:
            return x.shape, x.dtype, x.weak_type
        return (x.shape, x.dtype) if of is np.ndarray else None
