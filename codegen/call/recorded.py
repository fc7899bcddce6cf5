"""The call of a compiled program as data: another process runs it without planning, emitting or compiling anything.

    recorded(executable)    ->  bytes for the disk cache; Declined for a call that is not made of kernels, copies and jumps alone
    restored(bytes, make)   ->  an Executable that runs; whatever else is asked of it is taken from `make()`, which compiles anew

Kernels are named by their keys: their machine code is in the disk cache, too; a call that misses one is not restored. The record
says what memory a step reads, so it is trusted as machine code is: it comes from a folder and a file of this user's alone, with a
checksum, under a key that holds all that plans and kernels depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from codegen.call.executable import Executable
from codegen.call.kept_packs import KeptPacks, Pack
from codegen.call.kernels import RunStats
from codegen.call.program.layout import Layout
from codegen.launcher import launch, memory
from codegen.native import object_cache
from codegen.native.jit import CompiledKernel, kept_kernel
from codegen.native.signature import KernelSignature, Param
from codegen.target import default_target
from hlo.errors import Declined
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import definition
from hlo.types import TensorType, element_type

__all__ = ["RestoredExecutable", "recorded", "restored"]

MOST_CONSTANT_BYTES = 1 << 24
_KINDS: dict[str, Callable[..., launch.Instruction]] = {
    kind.__name__: kind for kind in (launch.Copy, launch.Exchange, launch.Jump, launch.Unless, launch.Select)
}


def recorded(executable: Executable) -> bytes | Declined:
    """The record of a call."""
    if executable.whole is not None or executable._debug or executable.target is not None:
        return Declined("the call is not one of kernels that LLVM compiled")
    if any(isinstance(s, launch.Host | launch.Library) for s in executable._launch.steps):
        return Declined("a step of the call is a library's or the evaluator's")
    layout = executable._layout
    literals = [np.asarray(v.op.attr("value").array) for slot, v in layout.made if slot is None and v.op is not None]
    fixed = [*layout.fixed, *((None, a) for a in literals)]
    if sum(a.nbytes for _, a in fixed) > MOST_CONSTANT_BYTES:
        return Declined("its constants are large")
    kernels: dict[str, CompiledKernel] = {}
    document = {
        "steps": [_row(s, kernels) for s in executable._launch.steps],
        "kernels": [[k, [[p.name, p.dtype, p.align] for p in v.signature.params]] for k, v in kernels.items()],
        "given": [[slot, *_type(v)] for slot, v in layout.given],
        "made": [[slot, *_type(v)] for slot, v in layout.made],
        "fixed": [[slot, list(a.shape), str(a.dtype), a.nbytes] for slot, a in fixed],  # no slot: a result that is a constant
        "offsets": [*layout.offsets.items()],
        "copies": layout.copies,
        "arena_bytes": layout.arena_bytes,
        "pooled": sorted(layout.pooled),
        "written_over": layout.written_over,
        "memories": layout.count,
        "packs": [[p.step, p.arguments, p.slots, p.readers] for p in executable._packs.packs],
        "cores": executable.plan.machine.cores,
        "seconds": executable._seconds,
    }
    if any(np.dtype(str(a.dtype)) != a.dtype for _, a in fixed):
        return Declined("a constant's type has no name")
    return object_cache.packed(document, b"".join(np.ascontiguousarray(a).tobytes() for _, a in fixed))


def _type(v: Value) -> list[Any]:
    return [list(v.shape), str(v.tensor.element)]


def _row(step: launch.Instruction, kernels: dict[str, CompiledKernel]) -> list[Any]:
    if isinstance(step, launch.Step):
        kernels[step.kernel.key] = step.kernel
        return ["Step", step.kernel.key, step.tasks, step.buffers, step.chunk, step.scratch_bytes, step.is_long]
    return [type(step).__name__, vars(step)]


class RestoredExecutable(Executable):
    """An executable that runs from a record; what else there is of it (its plan, its sources) comes from compiling it after all.

    A class of its own: Python looks up the attributes of one that has `__getattr__` slowly, and each call of a program does so.
    """

    _make: Callable[[], Executable]

    def __getattr__(self, name: str) -> Any:
        make = self.__dict__.get("_make")
        if make is None and name in self.__dict__:  # another thread has asked meanwhile
            return self.__dict__[name]
        if make is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        for own, value in vars(make()).items():
            self.__dict__.setdefault(own, value)
        self.__dict__.pop("_make", None)
        self.__class__ = Executable  # type: ignore[assignment]  # all of it is there now
        return getattr(self, name)


def restored(data: bytes, make: Callable[[], Executable], threads: int | None = None) -> Executable | Declined:
    """The executable of a record; Declined where it does not have all its kernels, or is no record."""
    try:
        return _restored(*object_cache.unpacked(data), make, threads)
    except (ValueError, KeyError, TypeError) as error:
        return Declined(f"no record of a call: {error}")


def _restored(
    document: dict[str, Any], constants: bytes, make: Callable[[], Executable], threads: int | None
) -> Executable | Declined:
    kernels: dict[str, CompiledKernel] = {}
    for key, params in document["kernels"]:
        found = kept_kernel(key, KernelSignature(tuple(Param(*p) for p in params)), default_target())
        if found is None:
            return Declined("a kernel is gone from the cache")
        kernels[key] = found
    made = RestoredExecutable.__new__(RestoredExecutable)
    made.threads = threads
    made.stats = RunStats(cache_hits=len(kernels))
    made.whole, made._debug, made._evaluated = None, "", {}
    made._launch = launch.Plan([_instruction(row, kernels) for row in document["steps"]])
    fixed = _fixed(document["fixed"], constants)
    made._make = make
    literals = iter([a for slot, a in fixed if slot is None])
    made._layout = Layout(
        document["memories"],
        tuple(_values(document["given"])),
        tuple((s, v if s is not None else _constant(v.tensor, next(literals))) for s, v in _values(document["made"])),
        tuple((slot, memory.in_lines(a)) for slot, a in fixed if slot is not None),
        dict(document["offsets"]),
        tuple((slot, offset, size_bytes) for slot, offset, size_bytes in document["copies"]),
        document["arena_bytes"],
        frozenset(document["pooled"]),
        tuple((argument, result) for argument, result in document["written_over"]),
    )
    packs = [Pack(step, tuple(given), tuple(map(tuple, slots)), tuple(more)) for step, given, slots, more in document["packs"]]
    made._packs = KeptPacks(packs)
    made._prepare(document["cores"], document["seconds"])
    return made


def _fixed(rows: list[list[Any]], constants: bytes) -> list[tuple[int | None, np.ndarray]]:
    found = []
    at = 0
    for slot, shape, dtype, size_bytes in rows:
        found.append((slot, np.frombuffer(constants, np.uint8, size_bytes, at).view(np.dtype(dtype)).reshape(shape)))
        at += size_bytes
    return found


def _constant(t: TensorType, a: np.ndarray) -> Value:
    return Op(definition("stablehlo.constant"), attributes={"value": DenseArray(t, a)}, result_types=[t]).results[0]


def _values(rows: list[list[Any]]) -> list[tuple[int | None, Value]]:
    block = Block([TensorType(tuple(shape), element_type(name)) for _, shape, name in rows])
    return [(row[0], v) for row, v in zip(rows, block.arguments, strict=True)]


def _instruction(row: list[Any], kernels: dict[str, CompiledKernel]) -> launch.Instruction:
    if row[0] == "Step":
        _, key, tasks, buffers, chunk, scratch_bytes, is_long = row
        return launch.Step(kernels[key], tasks, tuple(buffers), chunk, scratch_bytes, is_long)
    return _KINDS[row[0]](**{k: tuple(v) if isinstance(v, list) else v for k, v in row[1].items()})
