"""How far a computed array is from the evaluator's, and how far it may be.

For an output `b` of the evaluator with root mean square `s` (over its finite elements), element i of a computed array `a`
is measured against the scale `max(|b_i|, s)`:

    abs_i = |a_i - b_i|        rel_i = abs_i / scale_i        ulp_i = abs_i / ulp(scale_i)

and agrees when `rel_i <= relative` or `ulp_i <= ulps` (`tolerance`). The scale is the output's own because an element that
is small by cancellation carries the rounding error of the sums it came from. A NaN agrees with a NaN, an infinity with the
same infinity, and nothing else; integers and booleans must be equal. A complex number is judged part by part.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["Comparison", "Tolerance", "compare", "first_difference", "float_info", "tolerance"]

_MOST = float(np.finfo(np.float64).max)
_CHUNK_ELEMS = 1 << 15  # keeps the float64 temporaries of a chunk in the second-level cache


@dataclass(frozen=True)
class Tolerance:
    """An element agrees when its error is at most `relative` times the scale, or at most `ulps` units in the last place."""

    relative: float
    ulps: float

    def __str__(self) -> str:
        if not self.relative and not self.ulps:
            return "equal"
        return f"rel {self.relative:.0e} or {self.ulps:g} ulp" if self.relative else f"{self.ulps:g} ulp"


_EXACT = Tolerance(0.0, 0.0)
# Wide types: what sums of some thousand rounded terms may lose in another order. 16-bit types: sums, which kernels keep in f32
# and round once, and the evaluator rounds at every step; between ops kernels round as it does, but for excess precision.
_TOLERANCES = {
    "float64": Tolerance(1e-12, 4.0),
    "float32": Tolerance(1e-5, 4.0),
    "float16": Tolerance(0.0, 4.0),
    "bfloat16": Tolerance(0.0, 4.0),
}
_NARROW_FLOAT = Tolerance(0.0, 1.0)
_NARROW_MANTISSA_BITS = 2  # with fewer, one ulp is half the value or all of it, and only equality says anything


def tolerance(dtype: np.dtype) -> Tolerance:
    """The tolerance for a type: a table for floats, one ulp for those of 8 bits and less, equality for everything else.

    >>> print(tolerance(np.dtype("float32"))), print(tolerance(np.dtype("int8")))
    rel 1e-05 or 4 ulp
    equal
    (None, None)
    """
    real = _real(dtype)
    if not _is_float(real) or float_info(real).nmant < _NARROW_MANTISSA_BITS:
        return _EXACT
    return _TOLERANCES.get(real.name, _NARROW_FLOAT)


@dataclass(frozen=True)
class Comparison:
    """The largest errors of one output, each its own maximum, and the element that fails worst (None: none is off at all)."""

    shape: tuple[int, ...]
    dtype: str
    tolerance: Tolerance
    passed: bool
    max_abs: float
    max_rel: float
    max_ulp: float
    mismatched_elems: int
    worst_index: tuple[int, ...] | None
    worst_actual: object
    worst_expected: object


@dataclass
class _Chunk:
    """What one chunk contributes; `worst` is the flat position of its largest relative error."""

    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: float = 0.0
    mismatched: int = 0
    worst: int = -1


def compare(actual: np.ndarray, expected: np.ndarray, allowed: Tolerance | None = None) -> Comparison:
    """The errors of `actual` against `expected` by the rule at the top of this module.

    A wrong shape or type is a failed comparison with infinite errors, not an exception.

    >>> c = compare(np.float32([1.0, 2.0]), np.float32([1.0, 2.0000002]))
    >>> c.passed, c.max_ulp, c.worst_index
    (True, 1.0, (1,))
    >>> compare(np.float32([np.nan]), np.float32([1.0])).passed
    False
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    allowed = allowed or tolerance(expected.dtype)
    inf = float("inf")
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        found, wanted = (f"{x.dtype}{list(x.shape)}" for x in (actual, expected))
        return Comparison(expected.shape, expected.dtype.name, allowed, False, inf, inf, inf, expected.size, None, found, wanted)
    real = _real(expected.dtype)
    a, b = (np.ascontiguousarray(x).reshape(-1).view(real) for x in (actual, expected))
    starts = range(0, a.size, _CHUNK_ELEMS)
    with ThreadPoolExecutor() as pool:  # NumPy lets go of the interpreter's lock inside each operation
        if _is_float(real):
            squares = pool.map(lambda i: _sum_of_squares(b[i : i + _CHUNK_ELEMS]), starts)
            total, count = (sum(x) for x in zip(*squares, strict=True)) if a.size else (0.0, 0)
            scale = _root_mean(total, count)
            seen = [0.0]
            parts = list(pool.map(lambda i: _float_errors(a, b, i, scale, allowed, seen), starts))
        else:
            parts = list(pool.map(lambda i: _exact_errors(a, b, i), starts))
    top = max(parts, key=lambda c: c.max_rel, default=_Chunk())
    mismatched = sum(c.mismatched for c in parts)
    at = None
    if top.worst >= 0:
        flat = top.worst // (2 if real != expected.dtype else 1)
        at = tuple(int(i) for i in np.unravel_index(flat, expected.shape))
    return Comparison(
        expected.shape,
        expected.dtype.name,
        allowed,
        mismatched == 0,
        max((c.max_abs for c in parts), default=0.0),
        top.max_rel,
        max((c.max_ulp for c in parts), default=0.0),
        mismatched,
        at,
        None if at is None else actual[at].item(),
        None if at is None else expected[at].item(),
    )


def first_difference(actual: np.ndarray, expected: np.ndarray, allowed: Tolerance | None = None) -> tuple[int, ...]:
    """The first element, in row-major order, that does not agree. Raises ValueError when all do.

    >>> first_difference(np.float32([1, 2, 3]), np.float32([1, 2.5, 4]))
    (1,)
    """
    low, high = 0, expected.size
    flat_a, flat_b = np.ascontiguousarray(actual).reshape(-1), np.ascontiguousarray(expected).reshape(-1)
    scale = _scale(flat_b)
    while high - low > 1:  # the scale is the whole's, so that halves are judged as the whole is
        middle = (low + high) // 2
        wrong = _mismatched(flat_a[low:middle], flat_b[low:middle], scale, allowed)
        low, high = (low, middle) if wrong else (middle, high)
    if not high or not _mismatched(flat_a[low:high], flat_b[low:high], scale, allowed):
        raise ValueError("no element differs")
    return tuple(int(i) for i in np.unravel_index(low, expected.shape))


def _scale(b: np.ndarray) -> float:
    """The root mean square of the finite elements; 0 for types that are compared exactly."""
    real = _real(b.dtype)
    if not _is_float(real):
        return 0.0
    total, count = _sum_of_squares(b.view(real))
    return _root_mean(total, count)


def _mismatched(a: np.ndarray, b: np.ndarray, scale: float, allowed: Tolerance | None) -> int:
    real = _real(b.dtype)
    allowed = allowed or tolerance(b.dtype)
    a, b = a.view(real), b.view(real)
    if not _is_float(real):
        return int((a != b).sum())
    starts = range(0, b.size, _CHUNK_ELEMS)
    return sum(_float_errors(a, b, i, scale, allowed, [0.0]).mismatched for i in starts)


def float_info(dtype: np.dtype) -> Any:
    """`numpy.finfo` for every float type there is. Raises ValueError or TypeError for a type that is none."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def _real(dtype: np.dtype) -> np.dtype:
    """The type of a complex type's parts; any other type is its own."""
    return np.dtype(f"float{dtype.itemsize * 4}") if dtype.kind == "c" else dtype


def _is_float(dtype: np.dtype) -> bool:
    if dtype.kind == "f":
        return True
    try:
        float_info(dtype)
    except (TypeError, ValueError, KeyError):
        return False
    return True


def _wide(dtype: np.dtype) -> np.dtype:
    """The type that errors are computed in; every value of `dtype` is one of its values."""
    return np.dtype("float64") if dtype == np.float64 else np.dtype("float32")


def _sum_of_squares(part: np.ndarray) -> tuple[float, int]:
    """The sum of squares of the finite elements (at most the largest number), and how many those are."""
    wide = part.astype(_wide(part.dtype), copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        total = float(wide @ wide)
        if np.isfinite(total):
            return total, wide.size
        finite = wide[np.isfinite(wide)].astype(np.float64)
        return min(float(finite @ finite), _MOST), finite.size


def _root_mean(total: float, count: int) -> float:
    """sqrt(total / count). Of numbers whose squares are beyond the largest number it is too small: they are their own scale."""
    return float(np.sqrt(min(total, _MOST) / count)) if count else 0.0


def _float_errors(
    a: np.ndarray, b: np.ndarray, start: int, scale: float, allowed: Tolerance, seen: list[float]
) -> _Chunk:
    """One chunk's errors. `seen[0]` is the largest ulp of the chunks before it: what cannot exceed it is not looked at."""
    a, b = a[start : start + _CHUNK_ELEMS], b[start : start + _CHUNK_ELEMS]
    info = float_info(b.dtype)
    x, y = (v.astype(_wide(b.dtype), copy=False) for v in (a, b))
    with np.errstate(invalid="ignore", over="ignore", under="ignore", divide="ignore"):
        error = np.abs(x - y)
        top = float(error.max())
        if top == 0.0:
            return _Chunk()
        size = np.maximum(np.abs(y), x.dtype.type(scale))
        rel = error / size
        if not np.isfinite(top):
            # NaN with NaN and an infinity with itself agree; whatever is left is infinitely far off.
            error[(x == y) | (np.isnan(x) & np.isnan(y))] = 0.0
            error[~np.isfinite(error)] = np.inf
            size[~np.isfinite(size)] = scale
            rel = error / size
        rel[error == 0.0] = 0.0
    worst = int(rel.argmax())
    if not rel[worst] > 0.0:
        return _Chunk()
    # ulp_i lies in [rel_i / eps, 2 rel_i / eps): the largest one, and every one that can fail, is among these (0.49: rel is
    # itself rounded). Where the scale is subnormal that does not hold, and all are looked at.
    enough = 0.49 * max(float(rel[worst]), seen[0] * float(info.eps))
    near = rel > (min(enough, allowed.relative) if scale >= float(info.smallest_normal) else -1.0)
    if not near.any():
        return _Chunk(float(error.max()), float(rel[worst]), 0.0, 0, start + worst)
    ulp = _in_ulp(error[near].astype(np.float64), size[near].astype(np.float64), int(info.nmant), int(info.minexp))
    seen[0] = max(seen[0], float(ulp.max()))
    mismatched = int(((rel[near] > allowed.relative) & (ulp > allowed.ulps)).sum())
    return _Chunk(float(error.max()), float(rel[worst]), float(ulp.max()), mismatched, start + worst)


def _in_ulp(error: np.ndarray, size: np.ndarray, mantissa_bits: int, least_exponent: int) -> np.ndarray:
    """error / 2^(max(floor(log2 size), least_exponent) - mantissa_bits)"""
    exponent = np.frexp(np.maximum(size, 2.0**least_exponent))[1] - 1
    with np.errstate(over="ignore"):
        return np.asarray(error / np.ldexp(1.0, exponent - mantissa_bits))


def _exact_errors(a: np.ndarray, b: np.ndarray, start: int) -> _Chunk:
    a, b = a[start : start + _CHUNK_ELEMS], b[start : start + _CHUNK_ELEMS]
    wrong = a != b
    count = int(wrong.sum())
    if not count:
        return _Chunk()
    error = np.abs(a.astype(np.float64) - b.astype(np.float64))
    rel = error / np.maximum(np.abs(b.astype(np.float64)), 1.0)
    # Two different 64-bit integers can be one float64; they still differ.
    rel[wrong & (rel == 0.0)] = np.finfo(np.float64).tiny
    worst = int(rel.argmax())
    return _Chunk(float(error.max()), float(rel[worst]), float(error.max()), count, start + worst)
