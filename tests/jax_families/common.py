"""What the families share: a table of programs by name, and arrays that depend on their name alone."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = ("float32", "float64", "bfloat16", "float16")
INTEGERS = ("int32", "int8", "int16", "int64", "uint32", "uint8", "uint16", "uint64")
COMPLEX = ("complex64", "complex128")


@dataclass(frozen=True)
class Program:
    """A function, its arguments, whether JAX's 64-bit types are on, and how far apart two right answers may be."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    x64: bool = False
    bound: float | None = None
    slow: bool = False


class Table(dict[str, Program]):
    """Programs by name; a name twice is a mistake."""

    def add(self, name: str, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        assert name not in self, name
        self[name] = Program(function, args, **options)


def dtype(name: str) -> np.dtype[Any]:
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def cast(x: np.ndarray, name: str) -> np.ndarray:
    """Numbers in another type, too large ones as infinities."""
    with np.errstate(over="ignore"):
        return x.astype(dtype(name))


def values(name: str, *shape: int, low: float = -4, high: float = 4, seed: str = "") -> np.ndarray:
    """Numbers of an element type between two bounds, the same at each call."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {shape} {seed}".encode()))
    t = dtype(name)
    if t.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if t.kind in "iu":
        return np.asarray(rng.integers(max(int(low), 0) if t.kind == "u" else int(low), int(high) + 1, shape)).astype(t)
    x = rng.uniform(low, high, shape)
    if t.kind == "c":
        return np.asarray(x + 1j * rng.uniform(low, high, shape)).astype(t)
    return np.asarray(x).astype(t)


def whole_range(name: str, *shape: int, seed: str = "") -> np.ndarray:
    """Integers of all sizes that a type has, its ends first."""
    t = dtype(name)
    rng = np.random.default_rng(zlib.crc32(f"{name} {shape} {seed}".encode()))
    x = rng.integers(np.iinfo(t).min, np.iinfo(t).max, shape, dtype=t, endpoint=True)
    ends = np.array([np.iinfo(t).min, np.iinfo(t).max, 0, 1], t)
    x.reshape(-1)[: ends.size] = ends[: x.size]
    return x


def special_floats(name: str) -> np.ndarray:
    """NaN, infinities, zeros of both signs, ends of the range, and numbers around one."""
    info = ml_dtypes.finfo(dtype(name))
    rows = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.5,
        float(info.max),
        float(info.min),
        float(info.smallest_normal),
    ]
    return np.array(rows).astype(dtype(name))


def each(f: Callable[..., Any]) -> Callable[..., Any]:
    """f of each argument."""
    return lambda *xs: [f(x) for x in xs]


def pairs(f: Callable[..., Any]) -> Callable[..., Any]:
    """f of each two arguments in turn."""
    return lambda *xs: [f(x, y) for x, y in zip(xs[::2], xs[1::2], strict=True)]


def of_types(names: Iterable[str], *shape: int, **options: Any) -> tuple[np.ndarray, ...]:
    return tuple(values(n, *shape, **options) for n in names)
