"""Words of counter-based random generators; the conventions are those of ``codegen.lib.scalar``."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from codegen.kernel import types
from codegen.lib.emit import Value
from codegen.lib.register import define

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_SUM_OF_KEYS = 0x1BD11BDA


def _rounds(keys: Any, first: Any, second: Any, add: Any, rotated: Any) -> tuple[Any, Any]:
    first, second = add(first, keys[0]), add(second, keys[1])
    for group in range(5):
        for by in _ROTATIONS[group % 2]:
            first = add(first, second)
            second = rotated(second, by) ^ first
        first = add(first, keys[(group + 1) % 3])
        second = add(add(second, keys[(group + 2) % 3]), group + 1)
    return first, second


def threefry2x32(key_0: Any, key_1: Any, x_0: Any, x_1: Any) -> Any:
    """Both words of Threefry's block for a counter, the first one lower: twenty rounds."""
    k, m, x, y = (int(v) & 0xFFFFFFFF for v in (key_0, key_1, x_0, x_1))

    def rotated(word: int, by: int) -> int:
        return (word << by | word >> (32 - by)) & 0xFFFFFFFF

    first, second = _rounds((k, m, k ^ m ^ _SUM_OF_KEYS), x, y, lambda a, b: (a + b) & 0xFFFFFFFF, rotated)
    return np.uint64(first | second << 32)


def _threefry(kind: Any, k: Value, m: Value, x: Value, y: Value) -> Value:
    first, second = _rounds(
        (k, m, k ^ m ^ _SUM_OF_KEYS), x, y, lambda a, b: a + b, lambda word, by: (word << by) | word.lshr(32 - by)
    )
    wide = ir.IntType(64)
    low, high = (k.wrap(k.b.zext(word.v, wide)) for word in (first, second))
    return low | (high << 32)


define(threefry2x32, 4, {"u": _threefry}, result=lambda kind: types.uint64)
