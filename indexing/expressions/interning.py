"""One object for each value: a table of everything that is alive, by what it is made of."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, TypeVar

__all__ = ["intern", "lookup"]

Key = tuple[Any, ...]
T = TypeVar("T")


class _Ref(weakref.ref[Any]):
    __slots__ = ("key",)
    key: Key


_TABLE: dict[Key, _Ref] = {}
_LOCK = threading.RLock()  # reentrant: a collection inside the guarded block may run `_forget`


def _forget(ref: _Ref) -> None:
    with _LOCK:
        if _TABLE.get(ref.key) is ref:
            del _TABLE[ref.key]


def lookup(key: Key) -> Any:
    """The object under this key, or None."""
    ref: _Ref | None = _TABLE.get(key)
    return None if ref is None else ref()


def intern(key: Key, node: T) -> T:
    """Enters a new object under its key; hands back the one that another thread has entered meanwhile, if any."""
    with _LOCK:
        ref = _TABLE.get(key)
        known = None if ref is None else ref()
        if known is not None:
            return known  # type: ignore[no-any-return]
        new = _Ref(node, _forget)
        new.key = key
        _TABLE[key] = new
        return node


def _after_fork() -> None:
    """What another thread held at the fork would be held in the child for ever. (The table's changes are one step each.)"""
    global _LOCK
    _LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
