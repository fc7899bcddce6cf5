"""Why a function is compiled again: what of a signature is another than before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hlo.logs import log_of
from tilewright.jax.signatures import CONFIGURATION

__all__ = ["changes", "tell"]


def tell(function: str, before: Any, now: Any) -> None:
    """Logs that a function is compiled, and what of its signature (`signatures.signature`) is another than last time."""
    if before is None:
        log_of("compiles").info("%s: for the first time", function)
    else:
        log_of("compiles").info("%s again: %s", function, "; ".join(changes(before, now)))


def changes(before: Any, now: Any) -> Iterator[str]:
    """What is another in a signature than in one before.

    >>> list(changes(("tree", (((3,), "int8", False),), 1, ((), ()), ()), ("tree", (((4,), "int8", True),), 1, ((), ()), ())))
    ['array 0 is int8[4] of weak type, was int8[3]']
    """
    (tree, types, _, static, settings), (new_tree, new_types, _, new_static, new_settings) = before, now
    if len(types) != len(new_types):
        yield f"{len(new_types)} arrays, before {len(types)}"
    else:
        for k, (a, b) in enumerate(zip(types, new_types, strict=True)):
            if a != b:
                yield f"array {k} is {_type(b)}, was {_type(a)}"
    if tree != new_tree:
        yield f"the arguments are {new_tree}, were {tree}"
    for old, new in zip(static, new_static, strict=True):
        values = {k: v for k, _, v in old}
        for k, _, v in new:
            if k not in values:
                yield f"static argument {k} is {_short(v)}, was not given"
            elif type(values[k]) is not type(v) or values[k] != v:
                yield f"static argument {k} is {_short(v)}, was {_short(values[k])}"
        given = {k for k, _, _ in new}
        yield from (f"static argument {k} is not given, was {_short(v)}" for k, v in values.items() if k not in given)
    for name, a, b in zip(CONFIGURATION, settings, new_settings, strict=False):
        if a != b:
            yield f"{name} is {b}, was {a}"


def _type(row: Any) -> str:
    shape, dtype, is_weak = row
    return f"{dtype}{list(shape)}{' of weak type' if is_weak else ''}"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
