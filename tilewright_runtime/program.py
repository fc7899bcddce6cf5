"""A compiled program from a file: load("model.tw")(*arrays).

The file has entries (one for each set of shapes that a program was compiled for), each entry has variants (one for each CPU). The
best variant that this machine can run is loaded when its entry is first called, after all of it was looked at.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import operator
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright_runtime import machine, native, trees
from tilewright_runtime.container import Contents, FileError, interface_digest, natural, parsed, read, text

__all__ = ["ArrayError", "LoadedProgram", "Tensor", "load", "loads"]

SCHEMA = "tilewright.program/1"
_LINE = 64
_NUMBERS = {
    bool: {"i1"}, int: {f"{sign}{bits}" for sign in ("i", "ui") for bits in (8, 16, 32, 64)}, float: {"f16", "f32", "f64"},
    complex: {"complex<f32>", "complex<f64>"},
}  # fmt: skip
_KNOWN = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)


class ArrayError(ValueError):
    """An array that does not fit the program's argument."""


@dataclass(frozen=True)
class Tensor:
    """An argument or a result: the type of its elements as StableHLO spells it, and as NumPy has it."""

    name: str
    element: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    alignment: int

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.element}[{', '.join(map(str, self.shape))}]"


def load(path: str | os.PathLike[str], threads: int | None = None) -> LoadedProgram:
    """The program of a file that `Executable.save` or `tilewright export` wrote, ready to be called.

    `threads`: how many a call may use (default: TILEWRIGHT_NUM_THREADS, else the CPUs of this process). Nothing of the file is
    executed before its checksums, its format and its machine are known to be right. Raises FileError with the reason where they
    are not, OSError where the file cannot be read, ValueError for fewer than one thread.

    Whoever loads a file runs its code: load files that you trust, as you would start programs.
    """
    return _program(read(path), threads)


def loads(data: bytes, threads: int | None = None) -> LoadedProgram:
    """The same of a file's bytes: what a pickled program travels as. Raises what `load` raises."""
    room = _room(len(data))
    room[:] = np.frombuffer(data, np.uint8)
    room.flags.writeable = False
    return _program(parsed("<bytes>", room.data), threads)


def _program(contents: Contents, threads: int | None) -> LoadedProgram:
    threads = machine.default_threads() if threads is None else operator.index(threads)
    if threads < 1:
        raise ValueError(f"threads: expected a positive number, found {threads}")
    try:
        if contents.document.get("schema") != SCHEMA:
            raise ValueError(f"expected {SCHEMA}, found {contents.document.get('schema')!r}")
        rows = contents.document["entries"]
        if not isinstance(rows, list) or not rows:
            raise ValueError("no entries")
        return LoadedProgram(contents, tuple([_Entry(contents, row, threads) for row in rows]))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{contents.path}: its document is not one of a program: {error!r}") from error


class LoadedProgram:
    """A program; call it with its arguments. Several threads may do so at once.

    `target` is the variant that runs, `arguments` and `results` say what it takes and gives; a file with several entries chooses
    by the arguments' shapes and types.
    """

    def __init__(self, contents: Contents, entries: Sequence[_Entry]) -> None:
        self.path, self._contents, self._entries = contents.path, contents, tuple(entries)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return loads, (self._contents.whole(),)

    def __copy__(self) -> LoadedProgram:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> LoadedProgram:
        """The program itself: calls change nothing of it."""
        return self

    def __repr__(self) -> str:
        shown = "; ".join(f"{e.name}({', '.join(map(str, e.arguments))})" for e in self._entries)
        return f"<LoadedProgram {shown}, for {self.target}>"

    @property
    def target(self) -> str:
        """The name of the target whose code runs here."""
        return self._entries[0].target

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """Those of the first entry."""
        return self._entries[0].arguments

    @property
    def results(self) -> tuple[Tensor, ...]:
        """Those of the first entry."""
        return self._entries[0].results

    @property
    def signatures(self) -> list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]:
        """(arguments, results) of every entry."""
        return [(e.arguments, e.results) for e in self._entries]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A tuple of arrays, or the tree that the function gave which was compiled. Raises ArrayError, or TreeError, for
        arguments that do not fit; KeyboardInterrupt, or what another signal's handler raises, between two steps."""
        first = self._entries[0]
        if len(self._entries) == 1:
            return first.call(first.leaves(args, kwargs))
        reasons = []
        for entry in self._entries:
            try:
                given = entry.fitting(entry.leaves(args, kwargs))
            except (ArrayError, trees.TreeError) as error:
                reasons.append(str(error))
                continue
            return entry.run(given)
        raise ArrayError(f"no entry of {self.path} takes these arguments: {'; '.join(dict.fromkeys(reasons))}")


class _Entry:
    """One set of shapes, and the variant of it for this machine."""

    def __init__(self, contents: Contents, row: Mapping[str, Any], threads: int) -> None:
        self.name, self._threads = text(row["name"]), threads
        variant = _chosen(contents.path, row["variants"])
        self.target = text(variant["target"])
        interface = variant["interface"]
        if [text(variant["architecture"]), text(variant["system"]), variant["features"]] != [
            interface["architecture"], interface["system"], interface["features"]
        ]:  # fmt: skip
            raise ValueError("a variant's machine is not its code's")
        names = row["names"]
        self.arguments = _tensors(interface["arguments"], names["arguments"])
        self.results = _tensors(interface["results"], names["results"])
        self._trees = interface["trees"]
        if self._trees is not None:
            counts = len(self.arguments), len(self.results)
            self._trees = [trees.checked(t, n) for t, n in zip(self._trees, counts, strict=True)]
        # What is looked at here is what is executed later: a file that is mapped may be written to in between.
        code = contents.copied(natural(variant["code"]))
        if interface_digest(interface).encode() not in code:
            raise FileError(f"{contents.path}: the code for {self.target} is of another program than its document says")
        self._constants = [contents.section(natural(k)) for k in variant["constants"]]
        if [contents.digest(k) for k in variant["constants"]] != interface["constants"]:
            raise ValueError("other constants than the code's")
        self._path, self._code, self._digest = contents.path, code, interface_digest(interface)
        self._library: native.Library | None = None
        self._ready: tuple[native.Library, Any] | None = None  # the code, and the workers of its threads
        self._lock = threading.Lock()
        self._end: Any = None
        # append and pop of a deque are atomic: two calls never share a workspace
        self._workspaces: deque[tuple[np.ndarray, int]] = deque()
        self._addresses = (ctypes.c_void_p * max(1, len(self._constants)))(*(_address(c) for c in self._constants))
        _entries.add(self)

    # ------------------------------------------------------------ arguments

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """The arrays of a call."""
        if self._trees is None:
            if kwargs:
                raise TypeError(f"{self.name} takes arrays by their order and nothing by name, found {', '.join(kwargs)}")
            return args
        found = trees.flattened(self._trees[0], (tuple(args), dict(kwargs)), len(self.arguments))
        return [_number(a, t) if type(a) in _NUMBERS else a for a, t in zip(found, self.arguments, strict=True)]

    def fitting(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """The arrays as the code takes them. Raises ArrayError."""
        if len(arrays) != len(self.arguments):
            many = "" if len(self.arguments) == 1 else "s"
            raise ArrayError(f"expected {len(self.arguments)} array{many}, found {len(arrays)}")
        found = []
        for k, (a, t) in enumerate(zip(arrays, self.arguments, strict=True)):
            if isinstance(a, np.ma.MaskedArray):
                raise ArrayError(f"argument {k} ({t.name}): expected an array, found a masked one, whose mask would be lost")
            a = np.asarray(a)
            if a.shape != t.shape or a.dtype != t.dtype:
                raise ArrayError(f"argument {k} ({t.name}): expected {t}, found an array of shape {list(a.shape)}, {a.dtype}")
            if not (a.flags.c_contiguous and a.flags.aligned) or a.ctypes.data % t.alignment:
                a = _aligned(t, a)
            found.append(a)
        return found

    def call(self, arrays: Sequence[Any]) -> Any:
        return self.run(self.fitting(arrays))

    # ------------------------------------------------------------ the run

    def run(self, given: Sequence[np.ndarray]) -> Any:
        """The results of arrays that fit."""
        library, pool = self._ready or self._load()
        outputs = [_aligned(t) for t in self.results]
        places = (ctypes.c_void_p * max(1, len(given)))(*(a.ctypes.data for a in given))
        targets = (ctypes.c_void_p * max(1, len(outputs)))(*(a.ctypes.data for a in outputs))
        try:
            workspace, size = self._workspaces.pop()
        except IndexError:
            size = library.workspace_bytes(library.threads_count(pool))
            workspace = _room(size)
        stops = native.stops()
        call = native.Call(
            ctypes.addressof(places), ctypes.addressof(targets), ctypes.addressof(self._addresses), workspace.ctypes.data, size,
            pool, None if stops is None else library.stop_address, None if stops is None else ctypes.addressof(stops), None,
        )  # fmt: skip
        code = library.run(ctypes.addressof(call))
        self._workspaces.append((workspace, size))
        if code == native.STOPPED and stops is not None:
            stops.raise_pending()
        if code != native.DONE:
            raise RuntimeError(f"{self._path}: {library.message(code).decode()}")
        return tuple(outputs) if self._trees is None else trees.filled(self._trees[1], outputs)

    def _load(self) -> tuple[native.Library, Any]:
        with self._lock:
            if self._ready is None:
                if self._library is None:
                    self._library = self._loaded()
                pool = self._library.threads_start(self._threads) if self._threads > 1 else None
                self._end = weakref.finalize(self, _unload, self._library, pool)
                self._end.atexit = False  # (the end of the process ends them, wherever a call is)
                self._ready = self._library, pool
            return self._ready

    def _loaded(self) -> native.Library:
        try:
            made = native.Library(self._code)
        except (OSError, AttributeError) as error:
            raise FileError(f"{self._path}: the system does not load the code for {self.target}: {error}") from error
        if made.interface().decode() != self._digest:
            raise FileError(f"{self._path}: the code for {self.target} is of another program than its document says")
        return made

    def forget_threads(self) -> None:
        """In a child of a fork: it has none of the workers, and may find the lock held."""
        self._lock = threading.Lock()
        if self._end is not None:
            self._end.detach()
        self._end, self._ready = None, None
        self._workspaces = deque()


def _unload(library: native.Library, pool: Any) -> None:
    """The end of an entry that nobody calls any more: its workers end, then its code goes."""
    if pool:
        library.threads_stop(pool)
    library.unload()


_entries: weakref.WeakSet[_Entry] = weakref.WeakSet()


def _after_fork() -> None:
    for entry in list(_entries):
        entry.forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ---------------------------------------------------------------- what the document says


def _chosen(path: str, variants: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first variant (they stand from the best on) that runs here. Raises FileError with what each one lacks."""
    reasons = []
    for v in variants:
        if text(v["architecture"]) != machine.architecture():
            reasons.append(f"{text(v['target'])} is for {v['architecture']}, this machine is {machine.architecture()}")
        elif text(v["system"]) != machine.system():
            reasons.append(f"{text(v['target'])} is for {v['system']}, this is {machine.system()}")
        elif lacking := machine.missing([text(f) for f in v["features"]]):
            reasons.append(f"{text(v['target'])} needs {', '.join(lacking)}, which this CPU lacks")
        else:
            return v
    raise FileError(f"{path}: for other machines: {'; '.join(reasons) or 'it has no code'}")


def _tensors(rows: Sequence[Any], names: Sequence[Any]) -> tuple[Tensor, ...]:
    found = []
    for (element, dtype, shape, item_bytes, alignment), name in zip(rows, names, strict=True):
        kind = _dtype(text(dtype), natural(item_bytes))
        found.append(Tensor(text(name), text(element), kind, tuple(natural(n) for n in shape), max(1, natural(alignment))))
    return tuple(found)


def _dtype(name: str, item_bytes: int) -> np.dtype[Any]:
    """NumPy's type; of one that NumPy lacks, ml_dtypes' where it is installed, else the unsigned integer of its bytes."""
    if name in _KNOWN:
        found = np.dtype(name)
    elif item_bytes not in (1, 2, 4, 8):
        raise ValueError(f"elements of {item_bytes} bytes")
    else:
        try:
            found = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
        except ImportError:
            found = np.dtype(f"u{item_bytes}")
        except (AttributeError, TypeError) as error:
            raise ValueError(f"an element type {name!r}") from error
    if found.itemsize != item_bytes:
        raise ValueError(f"{name} of {item_bytes} bytes")
    return found


# ---------------------------------------------------------------- memory


def _number(value: Any, t: Tensor) -> Any:
    """A Python number as the scalar argument of its kind, as JAX takes one; any other as it is. Raises ArrayError for one that
    the type does not hold.

    >>> _number(2.0, Tensor("x", "f32", np.dtype("float32"), (), 4))
    array(2., dtype=float32)
    """
    if t.shape or t.element not in _NUMBERS[type(value)]:
        return value
    try:
        return np.array(value, t.dtype)
    except OverflowError as error:
        raise ArrayError(f"argument {t.name}: expected {t}, found {value}, which is outside of its type") from error


def _address(section: memoryview) -> int:
    return int(np.frombuffer(section, np.uint8).ctypes.data) if len(section) else 0


def _room(size_bytes: int) -> np.ndarray:
    """Bytes that start with a cache line."""
    raw = np.empty(size_bytes + _LINE, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + size_bytes]


def _aligned(t: Tensor, source: np.ndarray | None = None) -> np.ndarray:
    """An array of a tensor's type, at its alignment; a copy of `source` if there is one."""
    if t.alignment <= 16 or not t.size_bytes:
        made = np.empty(t.shape, t.dtype)
    else:
        made = _room(t.size_bytes).view(t.dtype).reshape(t.shape)
    if source is not None:
        made[...] = source
    return made
