"""Object code of the library functions that kernels call by name (`codegen.lib.outline`): compiled once, kept, linked.

A loaded function stays for the life of the process, under its name in LLVM's table of symbols, where kernels find it.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from codegen.native import object_cache
from codegen.outlined import Function
from codegen.target import Target

if TYPE_CHECKING:
    from codegen.native.lower import LoadedObject

__all__ = ["deliver", "payload", "provide", "recall"]

_loaded: dict[str, LoadedObject] = {}
_called: list[LoadedObject] = []  # kernels hold addresses alone: no code may go with the table above, when a test empties it
_payloads: dict[str, bytes] = {}
_lock = threading.RLock()


def provide(functions: Mapping[str, Function], target: Target, stamp: str) -> None:
    """Have every function loaded: from memory, from disk, or compiled now.

    ``stamp`` is what the text does not say and object code depends on: versions.
    """
    from codegen.native import lower as native

    for name, function in functions.items():
        if name in _loaded:
            continue
        key = _key(name, stamp)
        payload = object_cache.read(key)
        if payload is None:
            payload = native.library_object(function.text(), target, function.is_written_out)
            object_cache.write(key, payload)
        _load(name, payload, target)


def recall(names: Iterable[str], target: Target, stamp: str) -> bool:
    """Have the functions loaded without their texts; False when the disk cache lacks one."""
    for name in names:
        if name not in _loaded:
            payload = object_cache.read(_key(name, stamp))
            if payload is None:
                return False
            _load(name, payload, target)
    return True


def deliver(functions: Mapping[str, bytes], target: Target, stamp: str) -> None:
    """Have functions loaded whose object code another process made."""
    for name, code in functions.items():
        if name not in _loaded:
            object_cache.write(_key(name, stamp), code)
            _load(name, code, target)


def payload(name: str) -> bytes:
    """The object code of a function that is loaded."""
    return _payloads[name]


def _key(name: str, stamp: str) -> str:
    return hashlib.sha256(f"{name}\0{stamp}".encode()).hexdigest()


def _load(name: str, payload: bytes, target: Target) -> None:
    from codegen.native.lower import LoadedObject, publish

    loaded = LoadedObject(payload, target)
    with _lock:
        if name not in _loaded:
            _loaded[name], _payloads[name] = loaded, payload
            _called.append(loaded)
            publish(name, loaded.address(name))


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
