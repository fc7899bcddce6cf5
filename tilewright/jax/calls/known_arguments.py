"""Calls most of whose arguments are those of the calls before: JAX is given the others alone.

JAX looks at each argument of a call, for a microsecond or two where its data is in no cache, and models have hundreds of weights
that stay the same. Whether these are the same objects is found in a tenth of that. So a program has a second function for JAX,
which takes what changes (`codegen.call.xla_packs.Known`). The weights' elements stay in place while there is one: JAX is told by
DLPack that somebody uses them, and then copies what it would otherwise reuse or free.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
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


class KnownCall:
    """`function(*others)` gives the results of calls that it `takes`; `bound(others)` is what JAX traces for it.

    `tree` and `leaves` are those of one such call, whose arrays are of the type `array`.
    """

    def __init__(
        self, jax: Any, known: Known, tree: Any, leaves: Sequence[Any], array: type, bound: Callable[[Sequence[Any]], Any]
    ) -> None:
        self.known = weakref.ref(known)  # it holds the weights' memory, for others to give back
        self._numbers, self._ids, self._others = known.numbers, known.ids, known.others
        self._tree, self._array = tree, array
        self._kinds = [self._kind(leaves[k]) for k in known.others]
        self._of_numbers = itemgetter(*known.numbers)
        self.is_possible = None not in self._kinds

        def call(*others: Any) -> Any:
            return bound(others)

        self.function = jax.jit(call, keep_unused=True)

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
