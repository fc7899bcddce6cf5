"""Kernel -> object code: its statements are typed and lowered in one walk, LLVM optimises them for a ``Target``.

Source that the walk does not take goes through numba's front end, without its own optimisation, its wrappers and its
machine-code step. Either way the module has a C entry point, is optimised once as a whole for the target asked for, and is
emitted as an object file.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import re
from collections.abc import Collection, Sequence
from typing import Any

import llvmlite.binding as llvm

from codegen.forks import compiling
from codegen.kernel import types
from codegen.kernel.ir import Kernel
from codegen.kernel.straight import calls, calls_alone, has_folds, has_program_loop, is_straight, packs_alone, stores_short_rows
from codegen.native import interrupts, loop_marks, masked_stores, memory_hints, object_cache
from codegen.native.passes import (
    STRAIGHT,
    UNROLL,
    WRITTEN_OUT,
    data_layout,
    initialise,
    of_its_context,
    of_this_thread,
    optimise,
    optimise_marked,
    parsed,
    parsed_for,
    places_weighed,
    run_named,
    run_pipeline,
    target_machine,
    without_masks,
)
from codegen.native.signature import KernelSignature, Param
from codegen.outlined import CALLED, Functions
from codegen.target import Target, default_target, use_target

_log = logging.getLogger("tilewright.codegen")

_COMPUTES = re.compile(
    r" = f(?:add|sub|mul|div|rem|neg) |@llvm\.(?:fma|fmuladd|maxnum|minnum|maximum|minimum|sqrt|vector)|x float>"
)
"""Arithmetic of floats in a module that is not optimised yet."""
LITTLE = 2  # steps of floats, which memory's time hides

_ASKS = interrupts.SYMBOL.encode()
_ASKS_CELL = interrupts.CELL.encode()  # the object that has the function


class UnresolvedSymbolError(RuntimeError):
    """Object code calls functions that the process does not provide; loading it would end the process."""


@functools.cache
def _process() -> Any:
    return ctypes.CDLL(None)


def is_provided(name: str) -> bool:
    """Whether the process has a function of this name that object code can call."""
    # the memory functions are checked like any other: musl and glibc both export them
    return bool(llvm.address_of_symbol(name)) or hasattr(_process(), name)


class LoadedObject:
    """Object code mapped into the process; the code lives as long as this object."""

    def __init__(self, payload: bytes, target: Target) -> None:
        if _ASKS in payload and _ASKS_CELL not in payload:
            provide_interrupts()
        with compiling:
            machine = target_machine(target)
            module = llvm.parse_assembly(f'target triple = "{target.triple}"')
            self._engine = llvm.create_mcjit_compiler(module, machine)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(payload))
            self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """The address of an exported function; KeyError when there is none."""
        address = int(self._engine.get_function_address(symbol))
        if not address:
            raise KeyError(symbol)
        return address


def publish(name: str, address: int) -> None:
    """Let object code that is loaded later call ``name``."""
    llvm.add_symbol(name, address)


def plain_object(text: str, target: Target) -> bytes:
    """Machine code of a module that has nothing to vectorise: what calls programs, and what asks for signals."""
    with compiling:
        initialise()
        module = parsed(text)
        module.data_layout = data_layout(target)
        run_named(STRAIGHT, module, target)
        return emit_object(module, target)


def library_object(text: str, target: Target, is_written_out: bool = False) -> bytes:
    """Machine code of a library function's module (`codegen.lib.outline`)."""
    with compiling:
        return emit_object(library_module(text, target, is_written_out), target)


def library_module(text: str, target: Target, is_written_out: bool) -> Any:
    """The optimised module of a library function."""
    initialise()
    module = parsed_for(text, target)
    module.data_layout = data_layout(target)
    if not is_written_out:
        run_pipeline(module, target, 3, vectorise=True, unroll=False)
    run_named(WRITTEN_OUT if is_written_out else UNROLL, module, target)
    return ready(module)


def loaded_text(text: str) -> LoadedObject:
    """The code of an LLVM module for this machine, from the disk cache where it is there."""
    target = default_target()
    key = hashlib.sha256(f"{text} {target.key} {data_layout(target)}".encode()).hexdigest()
    payload = object_cache.read(key)
    if payload is None:
        payload = plain_object(text, target)
        object_cache.write(key, payload)
    return LoadedObject(payload, target)


def build(
    source: str,
    filename: str,
    signature: KernelSignature,
    symbol: str,
    target: Target,
    functions: Functions | None = None,
    kernel: Kernel | None = None,
) -> Any:
    """The optimised module of a kernel: ``lower``, ``optimise``, and what parameters say of memory (`memory_hints`)."""
    if kernel is not None and packs_alone(kernel):
        # In vectors, too, each element would be loaded or stored alone: a quarter of the time, for a tenth more of the kernel's.
        module, _ = _lowered(source, filename, signature, symbol, target, functions, kernel)
        run_pipeline(module, target, 1)
        return ready(module, signature.params)
    straight = _has_nothing_to_vectorise(signature, kernel)
    small = kernel is not None and has_program_loop(kernel)
    in_one = not (straight or small or signature.is_brief)
    module, text = _lowered(source, filename, signature, symbol, target, functions, kernel, in_one)
    only_calls = kernel is not None and 0 < calls_alone(kernel) == text.count(CALLED)
    optimised = ""
    with without_masks(kernel is not None and stores_short_rows(kernel), target):
        if loop_marks.is_for_one_pipeline(text) and not only_calls:
            module, optimised = optimise_marked(module, target)
        else:
            optimise(module, target, straight or only_calls, signature.is_brief, small)
    return ready(module, signature.params, optimised)


def ready(module: Any, params: Sequence[Param] = (), text: str = "") -> Any:
    """An optimised module in a form of which LLVM makes right code (`masked_stores`), with what parameters say of memory
    (`memory_hints`). It is printed and read again where one of them needs that; ``text`` is what it prints, where that is known.
    """
    streams = [p.scope or p.name for p in params if p.stream]
    ahead = {p.scope or p.name: p.ahead for p in params if p.ahead}
    if not streams and not ahead and not masked_stores.has_masked_stores(module):
        return module
    text = text or str(module)
    written = masked_stores.write_single_lanes(text)
    written = memory_hints.mark_streams(written, streams) if streams else written
    written = memory_hints.ask_ahead(written, ahead) if ahead else written
    return module if written == text else parsed(written)


def _has_nothing_to_vectorise(signature: KernelSignature, kernel: Kernel | None) -> bool:
    """True for code without loops, and for the launcher's own, which has no buffers: its loops wait and dispatch."""
    return not (signature.params or signature.scratch) or (kernel is not None and is_straight(kernel))


def provide_interrupts() -> None:
    """Lets code that is loaded from now on ask whether a signal's handler has raised (`codegen.native.interrupts`)."""
    with compiling:
        if interrupts.is_installed():
            return
        asks = ctypes.sizeof(ctypes.c_void_p) == 8 and all(map(is_provided, interrupts.PYTHONS))
        loaded = loaded_text(interrupts.source(asks, default_target().triple))
        publish(interrupts.SYMBOL, loaded.address(interrupts.SYMBOL))
        interrupts.install(ctypes.CFUNCTYPE(ctypes.c_void_p)(loaded.address(interrupts.CELL))() or 0, loaded)


def emit_kernel(module: Any, target: Target, known: Collection[str]) -> bytes:
    """``emit_object`` of a kernel."""
    with places_weighed(module, target):
        return emit_object(module, target, known)


def emit_object(module: Any, target: Target, known: Collection[str] = ()) -> bytes:
    """Machine code of an optimised module; raises UnresolvedSymbolError for calls that nothing in the process answers.

    ``known`` are names that will be there when the code is loaded.
    """
    if any(f.name == interrupts.SYMBOL and f.is_declaration for f in module.functions):
        provide_interrupts()
    called = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.") and f.name not in known]
    missing = [name for name in called if not is_provided(name)]
    if missing:
        raise UnresolvedSymbolError(f"kernel calls unknown functions: {', '.join(missing)}")
    machine = of_this_thread(f"{target.key} machine", lambda: target_machine(target))
    return bytes(machine.emit_object(module))


def emit_assembly(module: Any, target: Target) -> str:
    """What ``emit_kernel`` makes, as assembly text."""
    with places_weighed(module, target):
        return str(target_machine(target).emit_assembly(module))


def lower(
    source: str,
    filename: str,
    signature: KernelSignature,
    symbol: str,
    target: Target,
    functions: Functions | None = None,
    kernel: Kernel | None = None,
) -> Any:
    """The unoptimised LLVM module of a kernel with its C entry ``symbol(begin, end, buffers, scratch)``.

    ``kernel`` is the source as a tree; without one numba's passes compile the source.

    With ``functions``, large library functions are called by name and put there; else all is in line.
    Raises whatever numba raises for source that it cannot type; the message names the file and line.
    """
    return _lowered(source, filename, signature, symbol, target, functions, kernel)[0]


def _lowered(
    source: str, filename: str, signature: KernelSignature, symbol: str, target: Target, functions: Functions | None,
    kernel: Kernel | None, is_marked: bool = False,
) -> tuple[Any, str]:  # fmt: skip
    """``lower``, and the text that the module was read from ("" where numba made it).

    Loops are marked where ``is_marked`` says so and it helps.
    """
    from codegen.lib.buffer import Buf, use_scopes
    from codegen.lib.outline import collect

    buffers = [Buf(p.dtype, p.scope or p.name, p.align) for p in signature.params]
    scratch = [Buf(s.dtype, s.scope or s.name, 64) for s in signature.scratch]
    arguments = (types.int64, types.int64, *buffers, *scratch)
    scopes = tuple(dict.fromkeys(b.scope for b in (*buffers, *scratch)))
    outline = contextlib.nullcontext() if functions is None else collect(functions)
    with compiling, use_target(target), use_scopes(scopes), outline:
        initialise()
        text = None if kernel is None else _lower_structured(kernel, arguments, signature, symbol, target, is_marked)
        if text and kernel is not None and loop_marks.is_for_one_pipeline(text) and calls(kernel) != text.count(CALLED):
            # the loops of a library function in line are without marks: one pipeline would write them out further
            text = loop_marks.without_marks(text)
        if text and kernel is not None:
            text = _in_half_registers(text, kernel, target)
        module = parsed_for(text, target) if text else _lower_by_numba(source, filename, arguments, signature, symbol, target)
    _internalise(module, symbol)
    return module, text or ""


def _in_half_registers(text: str, kernel: Kernel, target: Target) -> str:
    """The text of a kernel's module. Loops that move elements, or do at most two steps with each, fill half registers, where
    the clock is lower for whole ones: what they take is memory's time, and of what runs beside it the clock's. Sums are not of
    them: each waits for the one before."""
    if not target.lowers_clock or has_folds(kernel) or len(_COMPUTES.findall(text)) > LITTLE:
        return text
    return re.sub(r"^(define .* nounwind)$", r'\1 "prefer-vector-width"="256"', text, flags=re.MULTILINE)


def _lower_structured(
    kernel: Kernel, arguments: Sequence[Any], signature: KernelSignature, symbol: str, target: Target, is_marked: bool
) -> str | None:
    """The module's text by one walk over the kernel's statements; None for one that needs numba."""
    from codegen.native.front_walk import NotStructured, lower_structured

    builder, values = _entry(arguments, signature, symbol, target)
    given = list(zip(arguments, values, strict=True))
    try:
        return lower_structured(kernel, _namespace(), builder, given, lambda: _finish(builder, signature, target), is_marked)
    except NotStructured as reason:
        _log.debug("%s: numba's passes are needed: %s", symbol, reason)
        return None


def _lower_by_numba(
    source: str, filename: str, arguments: Sequence[Any], signature: KernelSignature, symbol: str, target: Target
) -> Any:
    from llvmlite import ir

    from codegen.native.front_numba import compile_function

    result, context = compile_function(python_function(source, filename), arguments, symbol)
    builder, values = _entry(arguments, signature, symbol, target)
    fndesc = result.fndesc
    kind = context.call_conv.get_function_type(fndesc.restype, fndesc.argtypes)
    callee = ir.Function(builder.module, kind, fndesc.llvm_func_name)
    context.call_conv.call_function(builder, callee, fndesc.restype, fndesc.argtypes, values)
    _finish(builder, signature, target)
    builder.ret_void()
    module = parsed_for(str(builder.module), target)
    seen: list[Any] = []
    _link(module, result.library, seen, top=True)
    return module


def _link(module: Any, library: Any, seen: list[Any], top: bool) -> None:
    if any(library is other for other in seen):
        return
    seen.append(library)
    part = library._final_module if top else library._get_module_for_linking()
    module.link_in(of_its_context(llvm.parse_bitcode(part.as_bitcode(), module._context)))
    for dependency in library._linking_libraries:
        _link(module, dependency, seen, top=False)


def _internalise(module: Any, symbol: str) -> None:
    """Keep one entry point; everything else may be inlined and dropped."""
    for x in (*module.functions, *module.global_variables):
        if not x.is_declaration and x.name != symbol:
            x.linkage = "internal"


def _entry(arguments: Sequence[Any], signature: KernelSignature, symbol: str, target: Target) -> tuple[Any, list[Any]]:
    """(builder in the C entry ``symbol`` of a new module, the values of the kernel's arguments)."""
    from llvmlite import ir

    from codegen.lib.register import CONTEXT

    i64, i8 = ir.IntType(64), ir.IntType(8)
    module = ir.Module(symbol)
    module.triple = target.triple
    module.data_layout = data_layout(target)
    pointer = i8.as_pointer()
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [i64, i64, pointer.as_pointer(), pointer]), symbol)
    entry.attributes.add("nounwind")
    builder = ir.IRBuilder(entry.append_basic_block())
    begin, end, table, scratch = entry.args
    values = [begin, end]
    for k, param in enumerate(signature.params):
        load = builder.load(builder.gep(table, [ir.Constant(i64, k)]))
        if param.align > 1:
            load.set_metadata("align", module.add_metadata([ir.Constant(i64, param.align)]))
            load.set_metadata("nonnull", module.add_metadata([]))
        values.append(load)
    for piece in signature.scratch:
        if piece.stack_bytes:
            frame = builder.alloca(ir.ArrayType(i8, piece.stack_bytes))
            frame.align = 64
            values.append(builder.bitcast(frame, pointer))
        else:
            values.append(builder.gep(scratch, [ir.Constant(i64, piece.offset_bytes)]))
    return builder, [
        value if kind is types.int64 else builder.bitcast(value, CONTEXT.get_value_type(kind))
        for value, kind in zip(values, arguments, strict=True)
    ]


def _finish(builder: Any, signature: KernelSignature, target: Target) -> None:
    """What a kernel does before it returns."""
    if any(p.stream for p in signature.params) and target.triple.startswith("x86_64"):
        from llvmlite import ir

        from codegen.lib.emit import intrinsic_function

        builder.call(intrinsic_function(builder.module, "llvm.x86.sse.sfence", ir.VoidType(), []), [])


def python_function(source: str, filename: str) -> Any:
    """Execute generated source in a namespace that holds the kernel library alone; returns its ``kernel``.

    The text comes from the emitter, never from a program: names in it are the emitter's own.
    """
    namespace: dict[str, Any] = {"__name__": "tilewright_kernel", **_namespace()}
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102
    return namespace["kernel"]


def prepare() -> None:
    """Has all loaded that lowering a kernel needs."""
    from codegen.native import front_walk  # noqa: F401

    with compiling:
        initialise()
        _namespace()


def _namespace() -> dict[str, Any]:
    """The names that kernels may use."""
    from codegen.lib import NAMESPACE, threads

    return {**NAMESPACE, **threads.NAMESPACE}
