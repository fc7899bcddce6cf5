"""Compile generated kernel source to native code, with an object cache in memory and on disk.

A kernel is the text of one Python function::

    def kernel(begin, end, x, y, e):
        for t in range(begin, end):
            ...

``begin`` and ``end`` are the range of task numbers to run (int64); then come the signature's buffers and its scratch
buffers, in order.  The machine code has the C interface ``void entry(int64 begin, int64 end, void **buffers, void
*scratch)``, the same for every kernel.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from codegen import object_cache
from codegen.machine_target import Target, default_target

# raise it whenever the lowering of unchanged source changes
GENERATOR_VERSION = "1"


@dataclass(frozen=True)
class Param:
    """A buffer argument: ``dtype`` by NumPy's name, the address aligned to ``align`` bytes.

    Buffers of one kernel with different scopes must not overlap; the scope defaults to the name.  ``stream`` asks for
    stores that bypass the caches: right for outputs too large to be read from cache again, and only where the compiler can
    prove whole aligned vectors.
    """

    name: str
    dtype: str
    align: int = 64
    scope: str = ""
    stream: bool = False


@dataclass(frozen=True)
class Scratch:
    """A buffer inside the executing thread's scratch memory, ``offset_bytes`` (a multiple of 64) from its start."""

    name: str
    dtype: str
    offset_bytes: int
    scope: str = ""


@dataclass(frozen=True)
class KernelSignature:
    """The arguments of a kernel after ``begin`` and ``end``."""

    params: tuple[Param, ...]
    scratch: tuple[Scratch, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The argument names of the Python function, in order."""
        return ("begin", "end", *(p.name for p in self.params), *(s.name for s in self.scratch))


@dataclass
class CompileStats:
    """Counts since the process started (or ``reset``): where kernels came from, and the seconds spent."""

    compiled: int = 0
    disk_hits: int = 0
    memory_hits: int = 0
    compile_seconds: float = 0.0
    load_seconds: float = 0.0

    def reset(self) -> None:
        """Set every count to zero."""
        self.compiled = self.disk_hits = self.memory_hits = 0
        self.compile_seconds = self.load_seconds = 0.0


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """Machine code of one kernel; ``entry`` is its address, valid as long as this object lives."""

    key: str
    source: str
    source_path: str
    signature: KernelSignature
    target: Target
    entry: int
    _loaded: Any = field(repr=False)

    @functools.cached_property
    def python(self) -> Any:
        """The source as a plain Python function of (begin, end, *flat arrays), for stepping through."""
        from codegen.native import python_function

        return python_function(self.source, self.source_path)


stats = CompileStats()
_kernels: dict[str, CompiledKernel] = {}
_lock = threading.Lock()
_building: dict[str, threading.Lock] = {}


def _after_fork() -> None:
    """A lock that another thread held at the fork stays held in the child: start over with fresh ones."""
    global _lock
    _lock = threading.Lock()
    _building.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _versions() -> str:
    return " ".join(
        (
            GENERATOR_VERSION,
            importlib.metadata.version("numba"),
            importlib.metadata.version("llvmlite"),
            platform.python_version(),
        )
    )


@functools.cache
def _library_digest() -> str:
    """A digest of the kernel library's own source: its code is inlined into every kernel."""
    from pathlib import Path

    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*(here / "lib").glob("*.py"), here / "native.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def kernel_key(source: str, signature: KernelSignature, target: Target) -> str:
    """sha256 over all that the machine code depends on."""
    parts = (source, repr(signature), target.key, _versions(), _library_digest())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _symbol(key: str) -> str:
    return f"tilewright_{key[:24]}"


def compile_kernel(source: str, signature: KernelSignature, target: Target | None = None) -> CompiledKernel:
    """The compiled form of ``source``, from memory, from disk, or compiled now.

    Raises SyntaxError or numba's errors for source that does not compile, and ValueError for an argument list that is not
    the signature's.
    """
    target = target or default_target()
    key = kernel_key(source, signature, target)
    with _lock:
        found = _kernels.get(key)
        if found is not None:
            stats.memory_hits += 1
            return found
        gate = _building.setdefault(key, threading.Lock())
    with gate:
        with _lock:
            found = _kernels.get(key)
        if found is None:
            found = _obtain(key, source, signature, target)
            with _lock:
                _kernels[key] = found
                _building.pop(key, None)
        return found


def compile_kernels(kernels: Sequence[tuple[str, KernelSignature]], target: Target | None = None) -> list[CompiledKernel]:
    """``compile_kernel`` of each, identical ones once."""
    return [compile_kernel(source, signature, target) for source, signature in kernels]


def forget_kernels() -> None:
    """Drop the in-memory cache; kernels in use stay valid."""
    with _lock:
        _kernels.clear()


def _obtain(key: str, source: str, signature: KernelSignature, target: Target) -> CompiledKernel:
    from codegen.native import LoadedObject

    started = time.perf_counter()
    payload = object_cache.read(key)
    path = str(object_cache.cache_folder() / "sources" / f"kernel_{key[:16]}.py")
    hit = payload is not None
    if payload is None:
        payload, path = _build(key, source, signature, target)
    loaded = LoadedObject(payload, target)
    kernel = CompiledKernel(key, source, path, signature, target, loaded.address(_symbol(key)), loaded)
    seconds = time.perf_counter() - started
    with _lock:
        if hit:
            stats.disk_hits += 1
            stats.load_seconds += seconds
        else:
            stats.compiled += 1
            stats.compile_seconds += seconds
    return kernel


def _build(key: str, source: str, signature: KernelSignature, target: Target) -> tuple[bytes, str]:
    from codegen import native

    _check_arguments(source, signature)
    path = object_cache.write_source(key, source)
    module = native.build(source, path, signature, _symbol(key), target)
    payload = native.emit_object(module, target)
    object_cache.write(key, payload)
    return payload, path


def _check_arguments(source: str, signature: KernelSignature) -> None:
    import ast

    found = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == "kernel"]
    names = tuple(a.arg for a in found[0].args.args) if found else ()
    if names != signature.names:
        raise ValueError(f"kernel arguments: expected {signature.names}, found {names}")


def kernel_ir(source: str, signature: KernelSignature, target: Target | None = None, optimised: bool = True) -> str:
    """The LLVM IR of a kernel as text, for people."""
    from codegen import native

    target = target or default_target()
    build = native.build if optimised else native.lower
    return str(build(source, "<kernel>", signature, "kernel_entry", target))


def kernel_assembly(source: str, signature: KernelSignature, target: Target | None = None) -> str:
    """The machine code of a kernel as assembly text, for people and for tests of vectorisation."""
    from codegen import native

    target = target or default_target()
    return native.emit_assembly(native.build(source, "<kernel>", signature, "kernel_entry", target), target)
