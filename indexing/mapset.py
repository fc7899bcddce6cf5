"""Sets of maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any

from indexing.map import IndexingMap

__all__ = ["MapSet"]


class MapSet(Set[IndexingMap]):
    """A set of maps that keeps the order in which they were found; equal relations count once.

    >>> m = IndexingMap.identity([4, 8])
    >>> s = MapSet([m, IndexingMap.identity([4, 8])])
    >>> len(s), s[0] is m, s == {m}
    (1, True, True)
    """

    __slots__ = ("_items",)

    def __init__(self, maps: Iterable[IndexingMap] = ()) -> None:
        items: list[IndexingMap] = []
        seen: set[Any] = set()
        for m in maps:
            if m.spelling not in seen:
                seen.add(m.spelling)
                if m not in items:
                    items.append(m)
        self._items = tuple(items)

    def __contains__(self, m: object) -> bool:
        return m in self._items

    def __iter__(self) -> Iterator[IndexingMap]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, i: int) -> IndexingMap:
        return self._items[i]

    def __repr__(self) -> str:
        return "{" + "; ".join(map(str, self._items)) + "}"

    def __hash__(self) -> int:
        return hash(frozenset(map(hash, self._items)))

    def _repr_html_(self) -> str:
        return "".join(m._repr_html_() for m in self._items) or "<em>no map</em>"

    @property
    def only(self) -> IndexingMap:
        """The one map. Raises ValueError when there is not exactly one."""
        if len(self._items) != 1:
            raise ValueError(f"expected one map, found {len(self._items)}: {self!r}")
        return self._items[0]
