"""Results that are remembered for the process: bounded tables that can be emptied at any time without changing an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["Memo", "clear_caches"]

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """A table of results by key. At `limit` entries it starts anew: cheaper than keeping track of age."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        _ALL.append(self.clear)

    def keep(self, key: K, value: V) -> V:
        """Remembers the value and hands it back."""
        if len(self) >= self.limit:
            self.clear()
        self[key] = value
        return value


_ALL: list[Callable[[], None]] = []


def clear_caches() -> None:
    """Forgets all remembered results of the index analysis.

    >>> clear_caches()
    """
    for clear in _ALL:
        clear()
