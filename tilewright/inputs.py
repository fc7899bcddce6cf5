"""The arrays that a program is called with: read from `.npy` files, or random by a seed."""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Iterator, Sequence
from zipfile import BadZipFile

import ml_dtypes
import numpy as np

import hlo
from hlo.access import Condition
from hlo.errors import Declined
from hlo.module import Block, Function, Module, Op
from hlo.registry import SumOfProducts
from hlo.types import ElementType, QuantizedType, TensorType
from indexing.deriving.blocks import blocks_of
from tilewright.check import float_info

__all__ = ["InputError", "describe", "random_arrays", "read_arrays"]


class InputError(hlo.TilewrightError):
    """An input array, a file or an option does not fit the program."""


def describe(function: Function, number: int) -> str:
    """How messages call an argument: its number, its name in the text, its type."""
    value = function.arguments[number]
    name = f" (%{value.name})" if value.name else ""
    return f"argument {number}{name} of @{function.name}: {value.type}"


# ---------------------------------------------------------------- from files


def read_arrays(function: Function, paths: Sequence[str]) -> tuple[np.ndarray, ...]:
    """One array for each argument, from `.npy` files in the arguments' order.

    Raises InputError when a file is missing, is no `.npy` file, holds Python objects, or does not have the argument's type.
    """
    wanted = len(function.arguments)
    if len(paths) != wanted:
        lines = "".join(f"\n  {describe(function, k)}" for k in range(wanted))
        arrays = f"{wanted} input array{'' if wanted == 1 else 's'}"
        raise InputError(f"expected {arrays} (one --input for each argument), found {len(paths)}{lines}")
    return tuple(_read(function, k, p) for k, p in enumerate(paths))


def _read(function: Function, number: int, path: str) -> np.ndarray:
    t = _tensor_type(function, number)
    try:
        with open(path, "rb") as file:
            if not file.read(6).startswith((b"\x93NUMPY", b"PK")):
                raise ValueError("it does not begin as .npy files do")
        array = np.load(path, allow_pickle=False)
    except OSError as e:
        raise InputError(f"{path}: cannot read the array for {describe(function, number)}: {e.strerror or e}") from None
    except (ValueError, EOFError, SyntaxError, TypeError, MemoryError, OverflowError, BadZipFile) as e:
        # What NumPy raises depends on where in the file it stumbles; its first line says enough.
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise InputError(f"{path}: not a readable .npy array, for {describe(function, number)}: {reason}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path}: expected one .npy array for {describe(function, number)}, found an .npz archive")
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == t.dtype.itemsize:
        # A .npy file cannot name the types that NumPy lacks; `np.save` writes their bytes as plain void.
        array = array.view(t.dtype) if t.dtype.kind == "V" or _is_extension(t.dtype) else array
    if array.dtype.newbyteorder("=") != t.dtype:
        raise InputError(f"{path}: wrong element type for {describe(function, number)}: expected {t.dtype}, found {array.dtype}")
    if not _fits(array.shape, t):
        raise InputError(
            f"{path}: wrong shape for {describe(function, number)}: expected {_dims(t.shape)}, found {_dims(array.shape)}"
        )
    return np.ascontiguousarray(array, dtype=t.dtype).reshape(array.shape)


def _is_extension(dtype: np.dtype) -> bool:
    return hasattr(ml_dtypes, dtype.name)


def _fits(shape: tuple[int, ...], t: TensorType) -> bool:
    return len(shape) == t.rank and all(w is None or w == n for w, n in zip(t.shape, shape, strict=True))


def _dims(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def _tensor_type(function: Function, number: int) -> TensorType:
    t = function.arguments[number].type
    if not isinstance(t, TensorType):
        raise InputError(f"{describe(function, number)} is no tensor, and the command line passes tensors only")
    return t


# ---------------------------------------------------------------- random


def random_arrays(function: Function, seed: int, module: Module | None = None) -> tuple[np.ndarray, ...]:
    """One random array for each argument; argument k depends on (seed, k), its type, and whether it is a weight.

    Floats and complex parts are normal with deviation 1, or 1/sqrt(K) for a weight: an argument that a contraction over K
    elements reads as its right operand, with no batch dimension shared with the left one. (Unscaled weights would blow
    values up from layer to layer until every exponential saturates, and the check would say little.) Contractions in loops,
    branches and, where the `module` is given, functions that are called count as well. Signed integers are
    uniform in [-8, 7], unsigned ones in [0, 15], as far as their type goes; booleans are fair coins.
    Raises InputError for an argument of unknown size, of a type that is no tensor, or larger than this machine's memory.
    """
    limit = _physical_memory_bytes()
    total = 0
    for k in range(len(function.arguments)):
        t = _tensor_type(function, k)
        if not t.is_static:
            raise InputError(f"{describe(function, k)} has an unknown dimension: give its array with --input")
        total += t.size_bytes
        if limit is not None and total > limit:
            raise InputError(f"{describe(function, k)}: the inputs need {total} bytes, this machine has {limit}")
    scales = weight_scales(function, module)
    return tuple(
        _random(_tensor_type(function, k), np.random.default_rng([seed, k]), scales.get(k, 1.0))
        for k in range(len(function.arguments))
    )


def _physical_memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None  # not a POSIX system: the allocation itself will tell


def _random(t: TensorType, rng: np.random.Generator, scale: float) -> np.ndarray:
    shape, e, dtype = t.static_shape, t.element, t.dtype
    if isinstance(e, QuantizedType):
        return rng.integers(e.storage_min, e.storage_max, shape, endpoint=True).astype(dtype)
    if e.is_boolean:
        return rng.integers(0, 2, shape, dtype=np.uint8).astype(dtype)
    if e.is_complex:
        part = np.dtype(f"float{dtype.itemsize * 4}")
        return _normal((*shape, 2), part, rng, scale).view(dtype).reshape(shape)
    if e.is_float:
        values = _normal(shape, dtype if dtype in (np.float32, np.float64) else np.dtype("float32"), rng, scale)
        if float(float_info(dtype).min) >= 0:
            values = np.abs(values)  # a type of powers of two alone has neither sign nor zero
        return values.astype(dtype, copy=False)
    lo, hi = _integer_range(e)
    return rng.integers(lo, hi, shape, endpoint=True).astype(dtype)


def _normal(shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator, scale: float) -> np.ndarray:
    values: np.ndarray = np.asarray(rng.standard_normal(shape, dtype=dtype.type))
    if scale != 1.0:
        values *= dtype.type(scale)
    return values


def _integer_range(e: ElementType) -> tuple[int, int]:
    """A small closed interval inside an integer type."""
    if e.is_unsigned:
        return 0, min(15, (1 << e.bits) - 1)
    return max(-8, -(1 << (e.bits - 1))), min(7, (1 << (e.bits - 1)) - 1)


class _Reads:
    """An `AccessBuilder` over plain ints that records which element each operand is read at, and how far the ranges run."""

    def __init__(self) -> None:
        self.at: dict[int, tuple[int, ...]] = {}
        self.reduced_elems = 1

    def range(self, size: int, name: str = "") -> int:
        self.reduced_elems *= size
        return 0

    def runtime(self, operand: int, index: Sequence[int], lower: int, upper: int) -> int:
        return lower

    def read(self, operand: int, index: Sequence[int], where: Sequence[Condition] = ()) -> None:
        self.at[operand] = tuple(index)


def weight_scales(function: Function, module: Module | None = None) -> dict[int, float]:
    """Argument number -> 1/sqrt(K) for the weights among a function's arguments (see `random_arrays`)."""
    found: dict[int, float] = {}
    todo = [(function.body, {v: k for k, v in enumerate(function.arguments)})]
    seen: set[tuple[Block, tuple[int | None, ...]]] = set()  # with the arguments that its own are
    while todo:
        block, number = todo.pop()
        for op in block.ops:
            if isinstance(op.definition.semantics, SumOfProducts) and len(op.operands) > 1:
                k = number.get(op.operands[1])
                reduced = _contracted_elems(op) if k is not None and k not in found else None
                if k is not None and reduced:
                    found[k] = 1.0 / math.sqrt(reduced)
            for inner in op.regions if op.definition.is_control else blocks_of(op, module):
                mine = tuple(map(number.get, op.operands)) if len(inner.arguments) == len(op.operands) else ()
                if (inner, mine) not in seen:
                    seen.add((inner, mine))
                    own = zip(inner.arguments, mine, strict=False)
                    todo.append((inner, {**number, **{a: k for a, k in own if k is not None}}))
    return found


def _contracted_elems(op: Op) -> int | None:
    """K of a contraction whose operands share no output dimension; None when they do, or when no access function tells."""
    access = op.definition.access
    t = op.results[0].type
    if isinstance(access, Declined) or not isinstance(t, TensorType) or not t.is_static or 0 in t.static_shape:
        return None

    def reads(d: tuple[int, ...]) -> _Reads:
        r = _Reads()
        access(op, 0, d, r)
        return r

    origin = reads((0,) * t.rank)
    for step in _unit_steps(t.static_shape):
        moved = reads(step)
        if all(moved.at[k] != origin.at[k] for k in (0, 1)):
            return None
    return origin.reduced_elems


def _unit_steps(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Each unit vector; along a dimension of size 1 too, for what depends on it there is a batch dimension all the same."""
    for i in range(len(shape)):
        yield tuple(int(i == j) for j in range(len(shape)))


# ---------------------------------------------------------------- results


def write_arrays(arrays: Sequence[np.ndarray], target: str) -> list[str]:
    """Writes the results: one array to a target that ends in `.npy`, else `output_K.npy` into a folder. Returns the paths.

    Raises InputError when several results are to go to one file, or when the target cannot be written.
    """
    path = pathlib.Path(target)
    to_file = path.suffix == ".npy"
    if to_file and len(arrays) != 1:
        raise InputError(f"{target}: the program has {len(arrays)} results; name a folder for them")
    try:
        if not to_file:
            path.mkdir(parents=True, exist_ok=True)
        paths = [path] if to_file else [path / f"output_{k}.npy" for k in range(len(arrays))]
        for p, a in zip(paths, arrays, strict=True):
            np.save(p, a, allow_pickle=False)
    except OSError as e:
        raise InputError(f"{target}: cannot write the results: {e.strerror or e}") from None
    return [str(p) for p in paths]
