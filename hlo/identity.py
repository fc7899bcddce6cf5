"""Tables about objects that compare by value or have no hash, arrays first of all: an object is a key as itself."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Generic, TypeVar

__all__ = ["IdentityDict"]

K = TypeVar("K")
V = TypeVar("V")


class IdentityDict(MutableMapping[K, V], Generic[K, V]):
    """Object -> value, where equal objects are different keys; a key lives as long as its entry.

    Values, ops, stages, buffers and nodes equal themselves alone: they are keys of plain dicts.

    >>> a, b = [1], [1]
    >>> table = IdentityDict()
    >>> table[a], table[b] = "a", "b"
    >>> table[a], len(table), [1] in table
    ('a', 2, False)
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[K, V]] = {}

    def __getitem__(self, key: K) -> V:
        return self._entries[id(key)][1]

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[id(key)] = (key, value)

    def __delitem__(self, key: K) -> None:
        del self._entries[id(key)]

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)
