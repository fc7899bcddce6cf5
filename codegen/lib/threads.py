"""What the launcher's own source may call: atomics, futexes, the clock, and calls through an address.

These are for ``codegen.launcher.run_source``, and for calls from XLA and JAX; generated kernels have no use for them.
``words(address)`` reads memory as int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import signature
from codegen.lib.buffer import Buf
from codegen.lib.emit import I8, I32, I64, intrinsic_function
from codegen.lib.register import register
from codegen.target import clock_number, current_target
from codegen.waiting import FUTEX_WAIT, FUTEX_WAKE, ULOCK_WAIT, ULOCK_WAKE_ALL, sleep_call

WORDS = Buf("int64", "words", 8)


def _native(
    name: str,
    arguments: tuple[Any, ...],
    result: Any,
    lower: Callable[..., Any],
    doc: str,
    python: Callable[..., Any] | None = None,
) -> Any:
    def function(*args: Any) -> Any:
        if python is not None:
            return python(*args)
        raise TypeError(f"{name} runs only inside compiled code")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc

    def typer(*args: Any) -> Any:
        return signature(result, *arguments) if len(args) == len(arguments) else None

    def emit(context: Any, b: Any, sig: Any, args: Any) -> Any:
        value = lower(b, *args)
        return context.get_dummy_value() if result is types.none else value

    register(function, typer, emit)
    return function


def _slot(b: Any, base: Any, index: Any) -> Any:
    return b.gep(base, [index])


def _syscall(b: Any, *values: Any) -> Any:
    found = b.module.globals.get("syscall")
    if found is None:
        found = ir.Function(b.module, ir.FunctionType(I64, [I64], var_arg=True), "syscall")
    return b.call(found, values)


def _wait(b: Any, base: Any, index: Any, expected: Any) -> None:
    number = sleep_call(current_target().triple)
    if number == "poll":
        sleep = intrinsic_function(b.module, "usleep", I32, [I32])
        b.call(sleep, [ir.Constant(I32, 100)])
        return
    zero = ir.Constant(I64, 0)
    low = b.and_(expected, ir.Constant(I64, 0xFFFFFFFF))
    if number == "ulock":
        wait = intrinsic_function(b.module, "__ulock_wait", I32, [I32, I8.as_pointer(), I64, I32])
        place = b.bitcast(_slot(b, base, index), I8.as_pointer())
        b.call(wait, [ir.Constant(I32, ULOCK_WAIT), place, low, ir.Constant(I32, 0)])
        return
    address = b.ptrtoint(_slot(b, base, index), I64)
    _syscall(b, ir.Constant(I64, number), address, ir.Constant(I64, FUTEX_WAIT), low, zero, zero, zero)


def _wake(b: Any, base: Any, index: Any) -> None:
    number = sleep_call(current_target().triple)
    if number == "ulock":
        wake = intrinsic_function(b.module, "__ulock_wake", I32, [I32, I8.as_pointer(), I64])
        place = b.bitcast(_slot(b, base, index), I8.as_pointer())
        b.call(wake, [ir.Constant(I32, ULOCK_WAKE_ALL), place, ir.Constant(I64, 0)])
    elif number != "poll":
        zero = ir.Constant(I64, 0)
        address = b.ptrtoint(_slot(b, base, index), I64)
        everyone = ir.Constant(I64, 1 << 30)
        _syscall(b, ir.Constant(I64, number), address, ir.Constant(I64, FUTEX_WAKE), everyone, zero, zero, zero)


def _pause(b: Any) -> None:
    if current_target().triple.startswith("x86_64"):
        b.call(intrinsic_function(b.module, "llvm.x86.sse2.pause", ir.VoidType(), []), [])
    else:
        b.fence("seq_cst")


def _interrupted(b: Any) -> Any:
    found = b.call(intrinsic_function(b.module, "tilewright_interrupted", I32, []), [])
    return b.icmp_signed("!=", found, ir.Constant(I32, 0))


def _current_cpu(b: Any) -> Any:
    if "linux" not in current_target().triple:
        return ir.Constant(I64, -1)
    return b.sext(b.call(intrinsic_function(b.module, "sched_getcpu", I32, []), []), I64)


_MASK_WORDS = 16  # the C library's set of CPUs


def _leave_cpu(b: Any, cpu: Any) -> None:
    """Without `cpu` the set of CPUs that the thread may run on makes the system move it; then it may run on all of them again."""
    if "linux" not in current_target().triple:
        return
    with b.goto_entry_block():
        old, new = (b.alloca(ir.ArrayType(I64, _MASK_WORDS)) for _ in range(2))
    own, size, start = ir.Constant(I32, 0), ir.Constant(I64, 8 * _MASK_WORDS), ir.Constant(I64, 0)
    get, put = (
        intrinsic_function(b.module, name, I32, [I32, I64, old.type]) for name in ("sched_getaffinity", "sched_setaffinity")
    )
    is_known = b.icmp_signed("==", b.call(get, [own, size, old]), ir.Constant(I32, 0))
    with b.if_then(b.and_(is_known, b.icmp_unsigned("<", cpu, ir.Constant(I64, 64 * _MASK_WORDS)))):
        b.store(b.load(old), new)
        word = b.gep(new, [start, b.lshr(cpu, ir.Constant(I64, 6))])
        bit = b.shl(ir.Constant(I64, 1), b.and_(cpu, ir.Constant(I64, 63)))
        b.store(b.and_(b.load(word), b.not_(bit)), word)
        with b.if_then(b.icmp_signed("==", b.call(put, [own, size, new]), ir.Constant(I32, 0))):  # not the only one
            b.call(put, [own, size, old])


def _clock(b: Any) -> Any:
    pair = ir.ArrayType(I64, 2)
    with b.goto_entry_block():
        room = b.alloca(pair)
    fn = intrinsic_function(b.module, "clock_gettime", I32, [I32, pair.as_pointer()])
    b.call(fn, [ir.Constant(I32, clock_number(current_target().triple)), room])
    seconds = b.load(b.gep(room, [ir.Constant(I64, 0), ir.Constant(I64, 0)]))
    rest = b.load(b.gep(room, [ir.Constant(I64, 0), ir.Constant(I64, 1)]))
    return b.add(b.mul(seconds, ir.Constant(I64, 10**9)), rest)


def _call_entry(b: Any, entry: Any, begin: Any, end: Any, table: Any, scratch: Any) -> None:
    pointer = I8.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [I64, I64, pointer, pointer])
    b.call(
        b.inttoptr(entry, kind.as_pointer()),
        [begin, end, b.inttoptr(table, pointer), b.inttoptr(scratch, pointer)],
    )


def _call_function(b: Any, function: Any, *given: Any) -> Any:
    kind = ir.FunctionType(I64, [I64] * len(given))
    return b.call(b.inttoptr(function, kind.as_pointer()), given)


def _swap_if(b: Any, base: Any, index: Any, expected: Any, value: Any) -> Any:
    return b.extract_value(b.cmpxchg(_slot(b, base, index), expected, value, "seq_cst", "seq_cst"), 0)


def _put(kind: Any) -> Callable[..., None]:
    def store(b: Any, address: Any, value: Any) -> None:
        b.store(b.trunc(value, kind), b.inttoptr(address, kind.as_pointer())).align = 1

    return store


def _copy_bytes(b: Any, target: Any, source: Any, count: Any) -> None:
    pointer = I8.as_pointer()
    fn = intrinsic_function(b.module, "memmove", pointer, [pointer, pointer, I64])
    b.call(fn, [b.inttoptr(target, pointer), b.inttoptr(source, pointer), count])


def _at(kind: Any) -> Callable[..., Any]:
    def load(b: Any, address: Any) -> Any:
        found = b.load(b.inttoptr(address, kind.as_pointer()))
        found.align = 1
        return b.sext(found, I64)

    return load


_I = types.int64
words = _native("words", (_I,), WORDS, lambda b, a: b.inttoptr(a, I64.as_pointer()), "The memory at an address as int64 words.")
atomic_add = _native(
    "atomic_add",
    (WORDS, _I, _I),
    _I,
    lambda b, p, i, v: b.atomic_rmw("add", _slot(b, p, i), v, "seq_cst"),
    "Add to a word; returns what it held before.",
)
atomic_load = _native(
    "atomic_load",
    (WORDS, _I),
    _I,
    lambda b, p, i: b.load_atomic(_slot(b, p, i), "seq_cst", 8),
    "Read a word, sequentially consistent.",
)
atomic_store = _native(
    "atomic_store",
    (WORDS, _I, _I),
    types.none,
    lambda b, p, i, v: b.store_atomic(v, _slot(b, p, i), "seq_cst", 8),
    "Write a word, sequentially consistent.",
)
futex_wait = _native("futex_wait", (WORDS, _I, _I), types.none, _wait, "Sleep while a word's low half holds a value.")
futex_wake = _native("futex_wake", (WORDS, _I), types.none, _wake, "Wake every thread that sleeps on a word.")
pause = _native("pause", (), types.none, _pause, "Tell the CPU that this is a spin loop.")
yield_thread = _native(
    "yield_thread",
    (),
    types.none,
    lambda b: b.call(intrinsic_function(b.module, "sched_yield", I32, []), []),
    "Let another thread run.",
)
current_cpu = _native("current_cpu", (), _I, _current_cpu, "The number of the CPU that this thread is on; -1 where none is told.")
leave_cpu = _native("leave_cpu", (_I,), types.none, _leave_cpu, "Go on on another CPU than this one, where the thread may.")
clock_ns = _native("clock_ns", (), _I, _clock, "The monotonic clock, nanoseconds.")
interrupted = _native(
    "interrupted", (), types.boolean, _interrupted,
    "Whether a signal's handler has raised (`codegen.native.interrupts`): True in the main thread alone.", lambda: False,
)  # fmt: skip
copy_bytes = _native("copy_bytes", (_I, _I, _I), types.none, _copy_bytes, "Copy bytes: (target, source, count), all addresses.")
byte_at = _native("byte_at", (_I,), _I, _at(I8), "The byte at an address.")
int_at = _native("int_at", (_I,), _I, _at(I32), "The int32 at an address.")
call_entry = _native(
    "call_entry",
    (_I, _I, _I, _I, _I),
    types.none,
    _call_entry,
    "Call the kernel at an address with (begin, end, buffer table, scratch).",
)
call_function = _native(
    "call_function",
    (_I, _I, _I, _I),
    _I,
    _call_function,
    "Call the C function at an address with three words; returns its word.",
)
swap_if = _native(
    "swap_if",
    (WORDS, _I, _I, _I),
    _I,
    _swap_if,
    "Write a word where it holds what is expected, in one step; returns what it held before.",
)
put_byte = _native("put_byte", (_I, _I), types.none, _put(I8), "Write a byte at an address.")
put_int = _native("put_int", (_I, _I), types.none, _put(I32), "Write an int32 at an address.")

NAMESPACE = {
    f.__name__: f
    for f in (
        words, atomic_add, atomic_load, atomic_store, futex_wait, futex_wake, pause, yield_thread, current_cpu, leave_cpu,
        clock_ns, call_entry, copy_bytes, byte_at, int_at, interrupted, call_function, swap_if, put_byte, put_int,
    )
}  # fmt: skip
