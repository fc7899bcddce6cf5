"""Programs: compiled from StableHLO, described, called, written out and read back.

A program arrives as MLIR (bytecode of a portable artifact, or text), is parsed here and compiled by `codegen.compile`. What
jaxlib holds is one `Program` under one handle or more. Written out it is its text: reading back compiles it, with kernels from
the disk cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import re
import time
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

import codegen
from codegen.call.xla_call import Failures, XlaCall, expect_memory
from codegen.launcher import native_threads
from codegen.native import interrupts
from hlo.errors import Declined
from hlo.lazy import cached_property
from hlo.module import Module, walk
from hlo.text.bytecode import MAGIC, text_of
from hlo.types import TensorType
from tilewright.jax.first_call import parsed
from tilewright.jax.kept_programs import donated
from tilewright.jax.tokens import is_token, tokens_as_arrays
from tilewright.pjrt import records, threads
from tilewright.pjrt.buffers import Buffer, Coming, buffer_of, destroy, later
from tilewright.pjrt.callbacks import check_targets, functions_of, targets
from tilewright.pjrt.client import KINDS, Device, Memory, Named, client, device_of, int64s, serial
from tilewright.pjrt.collectives import TARGET, Run, own_place, take_out
from tilewright.pjrt.collectives import function as meeting
from tilewright.pjrt.handles import READY, Problem, Text, living
from tilewright.pjrt.layout import ExecuteOptions, element_number
from tilewright.pjrt.layout import Program as GivenProgram
from tilewright.pjrt.native import functions, state
from tilewright.pjrt.partitioning import Placing, costs, readable

__all__ = ["FUNCTIONS", "Program"]

_MAGIC = b"tilewright program 1\n"
_CODES = ("mlir",)
_FOREVER = 1 << 62


class Program:
    """A compiled program. `code` is what it was compiled from, `options` what it was compiled with."""

    def __init__(self, code: bytes, options: bytes) -> None:
        self.placing = Placing(options)
        self.code, self.options = code, options
        text = text_of(code, "<jax>") if code.startswith(MAGIC) else code.decode()
        self.module = parsed(text)
        self.shown = self.code if self.placing.partitions > 1 else _with_layouts(code, text, self.module)
        is_given = donated(self.module)
        self.memories = _memories(self.module)
        self.cut = self.placing.partitioned(code) if self.placing.partitions > 1 else None
        if self.cut is not None:
            self.module = parsed(self.cut.text)
        tokens_as_arrays(self.module)
        main = self.module.function()
        types = [_as_array(t) for t in main.result_types]
        self.types = types
        self.made_types = [(t.dtype, t.static_shape) for t in types]
        given = [k for k in range(len(main.arguments)) if not is_token(main, k)]
        self.donated = [k for k, is_donated in zip(given, is_given, strict=True) if is_donated]
        self.callbacks = functions_of(self.module)
        calls = targets(self.module, self.callbacks, lambda: self.placing.devices[own_place()].number)
        if len(self.placing.devices) > 1:
            calls = {**calls, TARGET: meeting(take_out(self.module))}
        check_targets(self.module, calls)
        self.compiled: codegen.Executable | None = codegen.compile(self.module, custom_calls=calls)
        self.given_bytes = _bytes_of(v.type for v in main.arguments)
        self.made_bytes = _bytes_of(types)
        self.name = Text(self.module.name or "main")
        digest = hashlib.sha256(client().version._memory.raw + code).hexdigest()
        self.fingerprint = Text(digest)
        self.element_numbers = (ctypes.c_int * max(1, len(types)))(*(element_number(t.dtype) for t in types))
        self.dims = int64s(n for t in types for n in t.static_shape)
        self.ranks = np.array([t.rank for t in types], np.uint64)
        kinds = [m.kind for m in self.memories_of(self.placing.devices[0])]
        self.kinds = (ctypes.c_void_p * max(1, len(types)))(*[k.address for k in kinds])
        self.kind_sizes = (ctypes.c_size_t * max(1, len(types)))(*[k.size for k in kinds])
        self.seconds = inf  # of the last call through Python
        self._rows = self._results()
        self._donated = int64s(self.donated)
        self.failures = Failures()
        self.is_hosted = False
        self.call = self._native_call(self.compiled)
        words = (
            self.call.address if self.call is not None else 0, len(main.arguments), len(types), self._rows.ctypes.data,
            self._donated.ctypes.data, len(self.donated), 0, 0 if self.is_hosted else _FOREVER, self.is_hosted,
            self.placing.devices[0].handle, self.placing.replicas, self.placing.partitions,
        )  # fmt: skip
        self.words = (ctypes.c_int64 * records.PROGRAM_WORDS)(*words)

    @cached_property
    def costs(self) -> Named:
        """What XLA counts of the program as it was given: numbers by name, such as `flops` and `bytes accessed`."""
        return Named({name: float(value) for name, value in costs(self.cut.code if self.cut is not None else self.code).items()})

    def _results(self) -> np.ndarray:
        """What each result's buffer is made from."""
        rows = np.zeros((max(1, len(self.types)), records.NEW_WORDS), np.int64)
        at = self.dims.ctypes.data
        for row, t, number in zip(rows, self.types, self.element_numbers, strict=False):
            row[records.NEW_ELEMENT], row[records.NEW_RANK], row[records.NEW_DIMS] = number, t.rank, at
            row[records.NEW_SIZE] = t.size_bytes
            at += 8 * t.rank
        for row, which in zip(rows, self.memories, strict=False):
            row[records.NEW_PLACE] = 8 * which * records.PLACE_WORDS  # bytes from the default memory's record
        return rows

    def _native_call(self, compiled: codegen.Executable) -> XlaCall | None:
        """What native functions call; None for a program that they do not take.

        One with steps of Python's is run by its caller where its arguments are there, as on JAX's CPU.
        """
        if len(self.placing.devices) > 1:
            return None
        call = compiled.for_xla(0, self.failures, is_plain=True)
        if isinstance(call, Declined):
            return None
        self.is_hosted = call.has_host
        expect_memory(2 * (call.bytes + self.made_bytes))
        if call.threads > 1:
            native_threads.have_workers(call.threads)
        return call

    def memories_of(self, device: Device) -> list[Memory]:
        """Where the results are."""
        return [device.memories[which] for which in self.memories]

    def give(self) -> int:
        """A handle, one more."""
        return living.give(ctypes.addressof(self.words), self)

    def delete(self) -> None:
        """It cannot be called any more."""
        self.compiled, self.words[records.CALL] = None, 0

    def executable(self) -> codegen.Executable:
        """What runs. Raises Problem for a deleted program."""
        if self.compiled is None:
            raise Problem("INVALID_ARGUMENT", "the program has been deleted")
        return self.compiled


def _memories(module: Module) -> list[int]:
    """The number of the kind of memory that each result of a program is to be in. Raises Problem for one that there is not."""
    main = module.function()
    found = []
    for k in range(len(main.result_types)):
        attributes = main.result_attributes[k] if k < len(main.result_attributes) else {}
        kind = str(attributes.get("mhlo.memory_kind", KINDS[0])).strip('"')
        if kind not in KINDS:
            raise Problem("INVALID_ARGUMENT", f"result {k}: expected a memory of one of the kinds {', '.join(KINDS)}, not {kind}")
        found.append(KINDS.index(kind))
    return found


def _as_array(t: Any) -> TensorType:
    """The type of an array that a result is. Raises Problem where there is none."""
    if isinstance(t, TensorType) and t.is_static:
        return t
    raise Problem("UNIMPLEMENTED", f"a result of type {t}, which is no array of a fixed shape")


def _bytes_of(types: Any) -> int:
    return sum(t.size_bytes for t in types if isinstance(t, TensorType) and t.is_static)


_LAYOUTS = "mhlo.xla_entry_computation_{}_layout{} = [{}]"
_HEADER = re.compile(r"^module (@\S+ )?(attributes \{)?", re.MULTILINE)


def _with_layouts(code: bytes, text: str, module: Module) -> bytes:
    """A program as jaxlib is shown it, with the layouts of arguments and results, all of which are row-major.

    Where XLA is not told so it takes transposed results for others, and JAX tells programs that.
    """
    main = module.function()
    types = [v.type for v in main.arguments], list(main.result_types)
    is_transposed = any(op.name == "stablehlo.transpose" for f in module.functions.values() for op in walk(f.body))
    ranks = [[t.rank for t in row if isinstance(t, TensorType)] for row in types]
    if not is_transposed or list(map(len, ranks)) != list(map(len, types)):
        return code
    orders = [[f"dense<{list(range(n))[::-1]}> : tensor<{n}xindex>" for n in row] for row in ranks]
    told = ", ".join(
        _LAYOUTS.format(kind, s, ", ".join(row)) for kind, s, row in (("parameter", "s", orders[0]), ("result", "", orders[1]))
    )

    def header(match: re.Match[str]) -> str:
        return f"module {match[1] or ''}attributes {{{told}" + (", " if match[2] else "} ")

    return _HEADER.sub(header, text, count=1).encode()


def _bytes(address: int | None, size: int) -> bytes:
    return ctypes.string_at(address, size) if address and size else b""


def _compile(a: Any) -> None:
    given = GivenProgram.from_address(a.program)
    form = _bytes(given.format, given.format_size).decode("utf-8", "replace")
    if form not in _CODES:
        raise Problem("UNIMPLEMENTED", f"expected a program as `mlir`, found one as `{form}`")
    a.executable = Program(_bytes(given.code, given.code_size), _bytes(a.options, a.options_size)).give()


def _execute(a: Any) -> None:
    program: Program = living[a.executable]
    placing = program.placing
    if a.devices != len(placing.devices):
        raise Problem("INVALID_ARGUMENT", f"expected the arguments of {len(placing.devices)} devices, found {a.devices}")
    executable = program.executable()
    interrupts.raise_pending()
    failure = program.failures.take()
    if failure is not None:
        raise failure
    for place in range(a.devices) if program.donated else ():
        _check_donations(program, _buffers(a, place), _kept(a), program.placing.partitions, place)
    _wait_for_room()
    if a.devices > 1:
        _execute_together(a, program, executable)
        return
    device = device_of(a.device) if a.device else placing.devices[0]
    if program.call is not None:
        functions().have_worker()
        if functions().enter("LoadedExecutable_Execute", ctypes.addressof(a), is_forced=True) == records.DONE:
            return
        interrupts.raise_pending()
        failure = program.failures.take()
        if failure is not None:
            raise failure
    buffers = _buffers(a, 0)
    taken = [b.taken() for b in buffers]
    kept = _kept(a)

    def results() -> list[np.ndarray]:
        arrays: list[Any] = [x.array() for x in taken]
        taken.clear()
        began = time.perf_counter()
        with threads.call_that_calls_back() if program.callbacks else contextlib.nullcontext():
            made = executable(*arrays)
        program.seconds = time.perf_counter() - began
        return list(made)

    is_quick = program.seconds < 1e-9 * records.INLINE_NANOSECONDS or bool(program.callbacks)
    made: list[int] = []
    event = READY
    try:
        if is_quick and all(x.is_there for x in taken):
            for memory, array in zip(program.memories_of(device), results(), strict=True):
                made.append(buffer_of(memory, array))
            interrupts.raise_pending()
        else:
            _check_memory(program)
            made, event = later(program.memories_of(device), results, program.made_types, more=bool(a.events))
    except BaseException:  # jaxlib does not look at results beside an error
        for handle in made:
            destroy(handle)
        raise
    _hand_over(a, 0, program, buffers, kept, made, event)


def _buffers(a: Any, place: int) -> list[Buffer]:
    """The arguments of one of a call's devices."""
    given = (ctypes.c_uint64 * a.count).from_address(_words_at(a.arguments, place)[place]) if a.count else ()
    return [Buffer(handle) for handle in given]


def _kept(a: Any) -> set[int]:
    """Which arguments are not donated after all. Raises Problem for what is asked besides."""
    options = ExecuteOptions.from_address(a.options)
    if options.sends or options.receives:
        raise Problem("UNIMPLEMENTED", "programs that send to the host or receive from it")
    return set((ctypes.c_int64 * options.kept_count).from_address(options.kept)) if options.kept_count else set()


def _check_donations(program: Program, buffers: list[Buffer], kept: set[int], partitions: int, place: int) -> None:
    """Raises Problem, in XLA's words, where an argument that is given up is another argument, too."""
    donated = set(program.donated) - kept
    seen: dict[int, tuple[int, bool]] = {}  # the first place of each buffer, and whether it is donated there
    for k, buffer in enumerate(buffers):
        first, was_donated = seen.setdefault(buffer.handle, (k, k in donated))
        if first == k or not (was_donated or k in donated):
            continue
        replica, partition = divmod(place, partitions)
        where = f"Execute() (flattened argument {k}, replica {replica}, partition {partition}, first use: {first})"
        if not was_donated:
            text = f"Attempt to donate a buffer which is also used by the same call to {where}. As in `f(a, donate(a))`."
        elif k in donated:
            text = f"Attempt to donate the same buffer twice in {where}. As in `f(donate(a), donate(a))`."
        else:
            text = f"Attempt to use a buffer that was previously donated in the same call to {where}. As in `f(donate(a), a)`."
        raise Problem("INVALID_ARGUMENT", text)


def _words_at(address: int, place: int) -> Any:
    return (ctypes.c_uint64 * (place + 1)).from_address(address)


def _hand_over(
    a: Any, place: int, program: Program, buffers: list[Buffer], kept: set[int], made: list[int], event: int
) -> None:  # fmt: skip
    """Gives jaxlib the results of one of a call's devices, and takes the donated arguments."""
    for k in program.donated:
        if k not in kept and not buffers[k].has_references:
            buffers[k].delete()
    if made:
        handles: Any = (ctypes.c_uint64 * len(made)).from_address(_words_at(a.outputs, place)[place])
        handles[:] = made
    if a.events:
        _words_at(a.events, place)[place] = event


def _execute_together(a: Any, program: Program, executable: codegen.Executable) -> None:
    """A call by several devices: each computes in a thread of its own, and they meet in collectives."""
    placing, kept = program.placing, _kept(a)
    run = Run(placing.replicas, placing.partitions)
    buffers = [_buffers(a, place) for place in range(a.devices)]
    taken = [[b.taken() for b in row] for row in buffers]
    coming: list[Coming] = []

    def part(place: int) -> Callable[[], None]:
        own, mine = taken[place], coming[place]

        def compute() -> list[np.ndarray]:
            arrays = [x.array() for x in own]
            own.clear()
            with threads.call_that_calls_back() if program.callbacks else contextlib.nullcontext():
                return list(executable(*arrays))

        return lambda: mine.make(lambda: run.work(run.processes[place], compute))

    try:
        for device in placing.devices:
            coming.append(Coming(program.memories_of(device), program.made_types, bool(a.events)))
        parts = [part(place) for place in range(a.devices)]
    except BaseException:
        for handle in (h for c in coming for h in c.handles):
            destroy(handle)
        raise
    for place, mine in enumerate(coming):
        _hand_over(a, place, program, buffers[place], kept, mine.handles, mine.event)
    threads.submit_together(parts)


def _check_memory(program: Program) -> None:
    """Raises Problem where the system has no memory for the results: said when the program is called, not when it has run."""
    needed = program.made_bytes + program.executable().stats.scratch_bytes
    try:
        np.empty(needed, np.uint8)
    except MemoryError:
        raise Problem("RESOURCE_EXHAUSTED", f"out of memory: no room for {needed} bytes of results and scratch") from None


def _wait_for_room() -> None:
    """Returns when no more calls are on their way than results should wait for; at once in a callback, whose call is one."""
    while not threads.is_own() and state.words[records.PENDING] + threads.unfinished() >= records.MOST_PENDING:
        time.sleep(1e-4)


# ---------------------------------------------------------------- what a program is


_on_their_way: dict[int, Program] = {}
"""Programs that nobody has any more, and that are still running, by their handles. Any thread changes it, in single steps."""


def _destroy(a: Any) -> None:
    program = living.drop(a.executable)
    if program is not None:
        _on_their_way[a.executable] = program
    for handle, gone in list(_on_their_way.items()):
        if not gone.words[records.CALLS]:
            _on_their_way.pop(handle, None)


def _executable(a: Any) -> None:
    a.executable = living[a.loaded].give()


def _name(a: Any) -> None:
    living[a.executable].name.give(a)


def _code_size(a: Any) -> None:
    a.size = -1


def _costs(a: Any) -> None:
    costs = living[a.executable].costs
    a.count, a.properties = costs.count, costs.address


def _kinds(a: Any) -> None:
    program: Program = living[a.executable]
    a.count = len(program.types)
    a.kinds, a.sizes = ctypes.addressof(program.kinds), ctypes.addressof(program.kind_sizes)


def _element_types(a: Any) -> None:
    program: Program = living[a.executable]
    a.types, a.count = ctypes.addressof(program.element_numbers), len(program.types)


def _output_dimensions(a: Any) -> None:
    program: Program = living[a.executable]
    a.count, a.dims, a.ranks = len(program.types), program.dims.ctypes.data, program.ranks.ctypes.data


def _memory_stats(a: Any) -> None:
    program: Program = living[a.executable]
    for field, _ in type(a)._fields_[3:]:
        setattr(a, field, 0)
    a.arguments, a.outputs = program.given_bytes, program.made_bytes
    a.temporary = program.executable().stats.scratch_bytes


def _devices(a: Any) -> None:
    handles = living[a.executable].placing.list
    a.devices, a.count = ctypes.addressof(handles), len(handles)


def _delete(a: Any) -> None:
    living[a.executable].delete()


def _is_deleted(a: Any) -> None:
    a.is_deleted = living[a.executable].compiled is None


def _fingerprint(a: Any) -> None:
    living[a.executable].fingerprint.give(a)


def _optimized(a: Any) -> None:
    program: Program = living[a.executable]
    given = GivenProgram.from_address(a.program)
    code = program.cut.code if program.cut is not None else readable(program.shown)
    if not given.code:
        given.code_size = len(code)
    elif given.code_size < len(code):
        raise Problem("INVALID_ARGUMENT", f"expected room for {len(code)} bytes, found {given.code_size}")
    else:
        ctypes.memmove(given.code, code, len(code))
        given.code_size = len(code)
    given.format, given.format_size = _FORMAT.address, _FORMAT.size


_FORMAT = Text("mlir")


# ---------------------------------------------------------------- written out


def _serialize(a: Any) -> None:
    program: Program = living[a.executable]
    if program.callbacks:
        raise Problem("UNIMPLEMENTED", "a program that calls Python functions of this process")
    options = len(program.options).to_bytes(8, "little") + program.options
    digest = hashlib.sha256(options + program.code).digest()
    serial(a, _MAGIC + digest + options + program.code)


def _deserialize(a: Any) -> None:
    data = _bytes(a.bytes, a.bytes_size)
    head, rest = data[: len(_MAGIC)], data[len(_MAGIC) + 32 :]
    if head != _MAGIC or hashlib.sha256(rest).digest() != data[len(_MAGIC) : len(_MAGIC) + 32]:
        raise Problem("INVALID_ARGUMENT", "these bytes are no program that Tilewright wrote out, or not as it was")
    size = int.from_bytes(rest[:8], "little")
    options = _bytes(a.options, a.options_size) or rest[8 : 8 + size]
    a.executable = Program(rest[8 + size :], options).give()


def _compile_options(a: Any) -> None:
    serial(a, living[a.executable].options)


def _assignment(a: Any) -> None:
    serial(a, living[a.executable].placing.assignment)


FUNCTIONS: dict[str, Callable[[Any], None]] = {
    "Client_Compile": _compile,
    "Compile": _compile,
    "Executable_Destroy": _destroy,
    "Executable_Name": _name,
    "Executable_SizeOfGeneratedCodeInBytes": _code_size,
    "Executable_GetCostAnalysis": _costs,
    "Executable_OutputMemoryKinds": _kinds,
    "Executable_OptimizedProgram": _optimized,
    "Executable_Serialize": _serialize,
    "Executable_DeserializeAndLoad": _deserialize,
    "Executable_Fingerprint": _fingerprint,
    "Executable_OutputElementTypes": _element_types,
    "Executable_OutputDimensions": _output_dimensions,
    "Executable_GetCompiledMemoryStats": _memory_stats,
    "Executable_GetCompileOptions": _compile_options,
    "LoadedExecutable_Destroy": _destroy,
    "LoadedExecutable_GetExecutable": _executable,
    "LoadedExecutable_AddressableDevices": _devices,
    "LoadedExecutable_Delete": _delete,
    "LoadedExecutable_IsDeleted": _is_deleted,
    "LoadedExecutable_Execute": _execute,
    "LoadedExecutable_Fingerprint": _fingerprint,
    "LoadedExecutable_GetDeviceAssignment": _assignment,
}
