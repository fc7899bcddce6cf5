"""Does a changed schedule compute something else? By running it, on several inputs, beside the one that it was made of."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from hlo.module import Value
from tests.interpreter.run import Misuse
from tests.mutations.running import constant, given_values, outputs
from tiling.loops.ir import Schedule

Array = np.ndarray[Any, Any]


def inputs(schedule: Schedule) -> Iterator[dict[Value, Array]]:
    """What a schedule may find in memory: ordinary numbers, many ties, numbers beyond every limit, and none at all."""
    for kind in ("normal", "ties", "huge", "special"):
        found: dict[Value, Array] = {}
        for k, v in enumerate(given_values(schedule)):
            rng = np.random.default_rng(zlib.crc32(f"{kind} {k}".encode()))
            fixed = constant(v)
            found[v] = fixed if fixed is not None else _array(kind, v, rng)
        yield found


def _array(kind: str, v: Value, rng: np.random.Generator) -> Array:
    t = v.tensor.dtype
    if t.kind == "b":
        return rng.integers(0, 2, v.shape).astype(bool)
    if t.kind in "iu":
        low, high = (-3, 12) if kind in ("normal", "special") else (0, 3) if kind == "ties" else (-100, 100)
        return rng.integers(max(low, 0) if t.kind == "u" else low, high, v.shape).astype(t)
    x = rng.standard_normal(v.shape)
    if kind == "ties":
        x = np.round(x)
    if kind == "huge":
        x = np.where(rng.random(v.shape) < 0.2, x * 1e12, x)
    if kind == "special":
        x = np.where(rng.random(v.shape) < 0.02, np.inf, x)
    if t.kind == "c":
        x = x + 1j * rng.standard_normal(v.shape)
    return np.asarray(x).astype(t)


class Judge:
    """Compares schedules with one that is right."""

    def __init__(self, right: Schedule) -> None:
        self.inputs = list(inputs(right))
        self.expected = [outputs(right, given) for given in self.inputs]

    def why_other(self, changed: Schedule) -> str | None:
        """What a changed schedule does otherwise; None where its results are the same."""
        for given, expected in zip(self.inputs, self.expected, strict=True):
            try:
                found = outputs(changed, {v: given[v] for v in given})
            except (Misuse, LookupError, ValueError, IndexError, KeyError, AssertionError, TypeError, AttributeError) as reason:
                return f"{type(reason).__name__}: {reason}"
            for v, x in expected.items():
                if v not in found:
                    return "a result is missing"
                if not same(found[v], x):
                    return "other results"
        return None


def same(found: Array, expected: Array) -> bool:
    """Equal but for rounding."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if found.dtype.kind in "iub":
        return np.array_equal(found, expected)
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    tolerance = 1e-4 if found.dtype.itemsize >= 4 else 3e-2
    with np.errstate(all="ignore"):
        a, b = found.astype(wide), expected.astype(wide)
        finite = np.isfinite(b)
        size = float(np.max(np.abs(b[finite]), initial=0.0))
        return np.allclose(a, b, rtol=tolerance, atol=min(1.0, size) * tolerance, equal_nan=True)
