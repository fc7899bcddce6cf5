"""Why a function is compiled again: what of a signature is another than before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlo.logs import log_of

__all__ = ["described", "tell"]


def tell(function: str, before: Sequence[Any] | None, now: Sequence[Any]) -> None:
    """Logs that a function is compiled, and what of its arrays has changed since the last time."""
    if before is None:
        log_of("compiles").info("%s: for the first time", function)
        return
    if len(before) != len(now):
        log_of("compiles").info("%s again: %d arrays, before %d", function, len(now), len(before))
        return
    rows = [f"array {k} is {b}, was {a}" for k, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
    why = "; ".join(rows) or "other static arguments, another tree, or other settings"
    log_of("compiles").info("%s again: %s", function, why)


def described(leaves: Sequence[Any]) -> list[str]:
    """The type and shape of each array.

    >>> import numpy as np
    >>> described([np.ones((2, 3), np.int8), 1.5])
    ['int8[2, 3]', 'float']
    """
    return [
        f"{x.dtype}{list(x.shape)}" if hasattr(x, "dtype") and hasattr(x, "shape") else type(x).__name__ for x in leaves
    ]
