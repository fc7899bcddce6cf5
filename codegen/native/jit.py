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
import weakref
from collections import deque
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from codegen.forks import compiling
from codegen.kernel.ir import Kernel
from codegen.kernel.parse import NotAKernel, parse
from codegen.kernel.print_numba import print_numba, statement_lines
from codegen.kernel.rename import variables
from codegen.native import library_objects, object_cache, workers
from codegen.native.signature import KernelSignature, Param, Scratch
from codegen.native.source_digest import source_digest
from codegen.outlined import Functions
from codegen.progress import Progress
from codegen.target import Target, default_target

if TYPE_CHECKING:
    from codegen.native.lower import LoadedObject

# raise it whenever the lowering of unchanged source changes
GENERATOR_VERSION = "7"


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
    """Machine code of one kernel; ``entry`` is its address, valid as long as this object lives.

    Kernels that differ in names alone share the code.
    """

    key: str
    source: str
    source_path: str
    signature: KernelSignature
    target: Target
    entry: int
    _loaded: Any = field(repr=False)

    @property
    def python(self) -> Any:
        """The source as a plain Python function of (begin, end, *flat arrays), for stepping through."""
        from codegen.native.lower import python_function

        if "_python" not in self.__dict__:
            self.__dict__["_python"] = python_function(self.source, self.source_path)
        return self.__dict__["_python"]


stats = CompileStats()
# Code lives as long as somebody uses it; the last ones made are kept for whoever comes next: 0.12 MB each, with its engine.
_kernels: MutableMapping[str, LoadedObject] = weakref.WeakValueDictionary()
_recent: deque[LoadedObject] = deque(maxlen=64)
# Reentrant, as the gates are: a signal's handler or a finalizer may call a program, or compile, wherever Python code runs.
_lock = threading.RLock()
_building: dict[str, threading.RLock] = {}


def _after_fork() -> None:
    """A lock that another thread held at the fork stays held in the child: start over with fresh ones."""
    global _lock
    _lock = threading.RLock()
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
def _generator_digest() -> str:
    """A digest of all of this package: kernels are lowered by it, and its library is inlined into them."""
    return source_digest(["codegen"])


def kernel_key(source: str | Kernel, signature: KernelSignature, target: Target) -> str:
    """sha256 over all that the machine code depends on: not the names of arguments and variables, nor the comment.

    Two kernels that differ in those alone (the layers of a network) have the same key. Raises SyntaxError for source that is
    no Python, ValueError for one whose arguments are not the signature's.
    """
    return _key(*_both(source), signature, target)


def _key(source: str, kernel: Kernel | None, signature: KernelSignature, target: Target) -> str:
    what = _what_it_does(source, kernel, signature)
    return hashlib.sha256("\0".join((what, _nameless(signature), target.key, stamp())).encode()).hexdigest()


def _both(source: str | Kernel) -> tuple[str, Kernel | None]:
    """A kernel as source and as a tree; no tree for source that numba alone takes."""
    if isinstance(source, Kernel):
        return print_numba(source), source
    try:
        return source, parse(source)
    except NotAKernel:
        return source, None


def _what_it_does(source: str, kernel: Kernel | None, signature: KernelSignature) -> str:
    """The statements of a kernel, with variables and buffers as numbers."""
    if kernel is None:
        return source
    arguments = (*kernel.bounds, *(p.name for p in kernel.arguments))
    if arguments != signature.names:
        raise ValueError(f"kernel arguments: expected {signature.names}, found {arguments}")
    names = _Own({name: f"_{k}" for k, name in enumerate(variables(kernel))})
    return "\n".join([str(len(arguments)), *statement_lines(kernel.body, 0, names)])


class _Own(dict[str, str]):
    """A kernel's own names; those of the library stay as they are."""

    def __missing__(self, name: str) -> str:
        return name


def _nameless(signature: KernelSignature) -> str:
    """The signature with names and scopes as numbers."""
    scopes: dict[str, int] = {}

    def number(buffer: Param | Scratch) -> int:
        return scopes.setdefault(buffer.scope or buffer.name, len(scopes))

    params = [(p.dtype, p.align, number(p), p.stream, p.ahead) for p in signature.params]
    scratch = [(s.dtype, s.offset_bytes, number(s), s.stack_bytes) for s in signature.scratch]
    return repr((params, scratch, signature.is_brief))


def _symbol(key: str) -> str:
    return f"tilewright_{key[:24]}"


def compile_kernel(source: str | Kernel, signature: KernelSignature, target: Target | None = None) -> CompiledKernel:
    """The compiled form of a kernel, or of its source, from memory, from disk, or compiled now.

    Raises SyntaxError or numba's errors for source that does not compile, and ValueError for an argument list that is not
    the signature's.
    """
    return _compiled(_job(source, signature, target or default_target()))


def _job(source: str | Kernel, signature: KernelSignature, target: Target) -> workers.Job:
    """What a kernel's compilation needs to know; its source is put down for people."""
    text, kernel = _both(source)
    return workers.Job(_key(text, kernel, signature, target), text, object_cache.write_source(text), signature, target, kernel)


def _compiled(job: workers.Job) -> CompiledKernel:
    """`compile_kernel` of a job."""
    key = job.key
    with _lock:
        loaded = _kernels.get(key)
        if loaded is not None:
            stats.memory_hits += 1
        gate = _building.setdefault(key, threading.RLock()) if loaded is None else None
    if gate is not None:
        with gate:
            with _lock:
                loaded = _kernels.get(key)
            try:
                if loaded is None:
                    loaded = _obtain(job)
                    with _lock:
                        _kernels[key] = loaded
                        _recent.append(loaded)
            finally:
                with _lock:
                    _building.pop(key, None)
    assert loaded is not None
    return CompiledKernel(key, job.source, job.path, job.signature, job.target, loaded.address(_symbol(key)), loaded)


def kept_kernel(key: str, signature: KernelSignature, target: Target) -> CompiledKernel | None:
    """A kernel by its key alone, without its source, where it is in memory or in the disk cache."""
    with _lock:
        loaded = _kernels.get(key)
    if loaded is None:
        found = _unpack(object_cache.read(key))
        with compiling:
            from codegen.native.lower import LoadedObject

            if found is None or not library_objects.recall(found[0], target, stamp()):
                return None
            loaded = LoadedObject(found[1], target)
        with _lock:
            loaded = _kernels.setdefault(key, loaded)
            _recent.append(loaded)
            stats.disk_hits += 1
    return CompiledKernel(key, "", "", signature, target, loaded.address(_symbol(key)), loaded)


def compile_kernels(
    kernels: Sequence[tuple[str, KernelSignature]] | Sequence[tuple[Kernel, KernelSignature]], target: Target | None = None
) -> list[CompiledKernel]:
    """``compile_kernel`` of each, identical ones once; much work is shared by several processes (`codegen.native.workers`)."""
    target = target or default_target()
    wanted = [_job(source, signature, target) for source, signature in kernels]
    missing: dict[str, workers.Job] = {}
    for job in wanted:
        if job.key not in _kernels and job.key not in missing and not object_cache.has(job.key):
            missing[job.key] = job
    jobs = list(missing.values())
    helpers = workers.helpers_for(jobs)
    if helpers:
        held: list[LoadedObject] = []  # more kernels than are kept may arrive before the first is asked for

        progress = Progress(len(jobs))

        def arrived(job: workers.Job, made: workers.Made) -> None:
            library_objects.deliver(made.library, job.target, stamp())
            loaded = LoadedObject(made.code, job.target)
            object_cache.write(job.key, _pack(made.functions, made.code))
            with _lock:
                _kernels.setdefault(job.key, loaded)
                _recent.append(loaded)
                held.append(loaded)
                stats.compiled += 1
            progress.done()

        def own(job: workers.Job) -> None:
            held.append(_compiled(job)._loaded)
            progress.done()

        with compiling:
            from codegen.native.lower import LoadedObject

        started = time.perf_counter()
        before = stats.compile_seconds
        try:
            workers.compile_jobs(jobs, helpers, arrived, own)
        finally:
            progress.end()
        stats.compile_seconds = before + time.perf_counter() - started
        with _lock:
            stats.memory_hits -= len(jobs)  # what follows finds them there
    progress = Progress(len(wanted))
    found = []
    try:
        for job in wanted:
            found.append(_compiled(job))
            progress.done()
    finally:
        progress.end()
    return found


class KernelTarget(Protocol):
    """What kernels are compiled by, and for which `target` they are planned and written.

    Each compiled kernel has an `entry` with the C interface that this module's first lines name; it stays valid as long as the
    compiled kernel lives. Raises what it will for kernels that it does not take: nothing else compiles them then.
    """

    @property
    def target(self) -> Target: ...

    def compile(self, kernels: Sequence[tuple[Kernel, KernelSignature]]) -> list[CompiledKernel]: ...


@dataclass(frozen=True)
class MachineCode:
    """LLVM's machine code for a CPU: the target of programs that name none."""

    target: Target = field(default_factory=default_target)

    def compile(self, kernels: Sequence[tuple[Kernel, KernelSignature]]) -> list[CompiledKernel]:
        """`compile_kernels`."""
        return compile_kernels(kernels, self.target)


def forget_kernels() -> None:
    """Drop the in-memory cache; kernels in use stay valid."""
    with _lock:
        _kernels.clear()
        _recent.clear()


def _obtain(job: workers.Job) -> LoadedObject:
    with compiling:
        return _obtain_alone(job)


def _obtain_alone(job: workers.Job) -> LoadedObject:
    from codegen.native.lower import LoadedObject

    started = time.perf_counter()
    found = _unpack(object_cache.read(job.key))
    hit = found is not None and library_objects.recall(found[0], job.target, stamp())
    if found is None or not hit:
        found = build_object(job)
        object_cache.write(job.key, _pack(*found))
    loaded = LoadedObject(found[1], job.target)
    seconds = time.perf_counter() - started
    with _lock:
        if hit:
            stats.disk_hits += 1
            stats.load_seconds += seconds
        else:
            stats.compiled += 1
            stats.compile_seconds += seconds
    return loaded


def build_object(job: workers.Job) -> tuple[tuple[str, ...], bytes]:
    """(library functions that it calls, object code) of a kernel, compiled now; the functions are provided, too."""
    from codegen.native import lower as native

    functions: Functions = {}
    module = native.build(job.source, job.path, job.signature, _symbol(job.key), job.target, functions, job.kernel)
    code = native.emit_kernel(module, job.target, functions)
    library_objects.provide(functions, job.target, stamp())
    return tuple(functions), code


def stamp() -> str:
    """What machine code depends on beside its kernel and its target: versions, and this package's own source."""
    return f"{_versions()} {_generator_digest()}"


def _pack(functions: Sequence[str], code: bytes) -> bytes:
    return " ".join(functions).encode() + b"\n" + code


def _unpack(payload: bytes | None) -> tuple[tuple[str, ...], bytes] | None:
    if payload is None:
        return None
    names, _, code = payload.partition(b"\n")
    return tuple(names.decode().split()), code


def kernel_ir(source: str | Kernel, signature: KernelSignature, target: Target | None = None, optimised: bool = True) -> str:
    """The LLVM IR of a kernel as text, for people."""
    with compiling:
        from codegen.native import lower as native

        target = target or default_target()
        build = native.build if optimised else native.lower
        text, kernel = _both(source)
        return str(build(text, "<kernel>", signature, "kernel_entry", target, None, kernel))


def kernel_assembly(source: str | Kernel, signature: KernelSignature, target: Target | None = None) -> str:
    """The machine code of a kernel as assembly text, for people and for tests of vectorisation."""
    with compiling:
        from codegen.native import lower as native

        target = target or default_target()
        text, kernel = _both(source)
        return native.emit_assembly(native.build(text, "<kernel>", signature, "kernel_entry", target, None, kernel), target)
