"""Foreign functions in native code: what `jax.ffi.register_ffi_target` registers, called as XLA calls it.

XLA's interface (`xla/ffi/api/c_api.h`, version 0.3) hands a function a call frame: buffers of arguments and results with their
types and shapes, attributes by name, and a table of functions to call back. Frames and table are ctypes structures, whose fields
are written here once. A handler registered for the platform `tilewright` goes before this project's own function for a target,
and that before a handler registered for `cpu`, whose memory is the same.

Not there, and said so by the function that is asked: XLA's own contexts by type, streams, memory of the device, numbers of runs.
What a handler schedules is done at once. Functions of the older interface without types, and those with a state that outlives a
call, are refused when a program is compiled.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hlo.attributes import TypedArray, TypedFloat, TypedInteger
from hlo.foreign import borrows
from hlo.module import DenseArray, Op
from hlo.text.foreign_options import options_of
from hlo.types import element_type
from tilewright.pjrt.handles import Problem
from tilewright.pjrt.layout import CODES, structure

__all__ = ["STAGES", "Handlers", "aliases", "handlers"]

_VERSION = (0, 3)
STAGES = ("instantiate", "prepare", "initialize", "execute")

_TYPES = {
    name: number
    for number, name in enumerate(
        "- bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 - - complex64 bfloat16 - complex128"
        " float8_e5m2 float8_e4m3fn int4 uint4 float8_e4m3b11fnuz float8_e5m2fnuz float8_e4m3fnuz int2 uint2 float8_e4m3"
        " float8_e3m4 - - float4_e2m1fn float8_e8m0fnu".split()
    )
    if name != "-"
}
"""XLA's numbers of element types, by NumPy's names."""

_ARRAY, _DICTIONARY, _SCALAR, _STRING = range(1, 5)
_BUFFER = 1
_METADATA = 1

_Buffer = structure("Buffer", "dtype:i data:p rank:q dims:p")
_Span = structure("Span", "text:p size:z", has_header=False)
_Scalar = structure("Scalar", "dtype:i value:p", has_header=False)
_Array = structure("Array", "dtype:i size:z data:p", has_header=False)
_Values = structure("Values", "size:q types:p values:p")  # arguments, and results
_Attributes = structure("Attributes", "size:q types:p names:p values:p")
_Version = structure("Version", "major:i minor:i")
_FRAME = structure(
    "Frame", "api:p context:p stage:i args:values results:values attributes:attributes future:p",
    inner={"values": _Values, "attributes": _Attributes},
)  # fmt: skip
_FRAME_BYTES = _FRAME.future.offset
"""What handlers expect, by the header of their version: it leaves the last field out."""
_Metadata = structure(
    "Metadata", "version:version traits:i state:q", has_header=False, inner={"version": _Version}, has_size=True
)
_Extension = structure("Extension", "type:i next:p metadata:p", has_header=False, has_size=True)

_HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

# ---------------------------------------------------------------- what handlers call


class _Errors:
    """Errors that handlers have made and nobody has destroyed: code and text."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.made: dict[int, tuple[str, Any]] = {}

    def new(self, code: str, text: bytes) -> int:
        number = next(self._numbers)
        self.made[number] = code, ctypes.create_string_buffer(text)
        return number

    def take(self, number: int) -> Problem:
        code, text = self.made.pop(number)
        return Problem(code, text.value.decode("utf-8", "replace"))


class _Future:
    """What a handler will have done later; `kept` is what it still writes to when nobody waits any more."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error = 0
        self.kept: Any = None


class _Own(threading.local):
    """What a signal's handler has raised in a function that native code called: it is raised when that has returned."""

    raised: BaseException | None = None


_own = _Own()


_errors = _Errors()
_futures: dict[int, _Future] = {}
_future_numbers = itertools.count(1)
_type_ids: dict[bytes, int] = {}


def _create_error(a: Any) -> int:
    names = {number: name for name, number in CODES.items()}
    return _errors.new(names.get(a.code, "UNKNOWN"), ctypes.string_at(a.message) if a.message else b"")


def _message(a: Any) -> None:
    a.message = ctypes.addressof(_errors.made[a.error][1])


def _destroy_error(a: Any) -> None:
    _errors.made.pop(a.error or 0, None)


def _schedule(a: Any) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(a.task)(a.data)


def _threads(a: Any) -> None:
    ctypes.c_int64.from_address(a.number).value = 1


def _register_type(a: Any) -> None:
    known = ctypes.c_int64.from_address(a.type_id)
    if not known.value:
        known.value = _type_ids.setdefault(ctypes.string_at(a.name, a.name_size), len(_type_ids) + 1)


def _create_future(a: Any) -> None:
    a.future = next(_future_numbers)
    _futures[a.future] = _Future()


def _set_future(a: Any) -> None:
    future = _futures[a.future]
    future.error = getattr(a, "error", None) or 0
    future.done.set()
    if future.kept is not None:
        _forget(a.future)


def _forget(number: int) -> None:
    """Of a future that nobody waits for: what it kept, and its error."""
    future = _futures.pop(number, None)
    if future is not None and future.error:
        _errors.made.pop(future.error, None)


def _ordinal(a: Any) -> None:
    a.number = a.context - 1


_API: tuple[tuple[str, str, Callable[[Any], int | None] | None], ...] = (
    ("Error_Create", "message:p code:i", _create_error),
    ("Error_GetMessage", "error:p message:p", _message),
    ("Error_Destroy", "error:p", _destroy_error),
    ("Handler_Register", "", None),
    ("Stream_Get", "context:p stream:p", None),
    ("Type_Register", "name:p name_size:z type_id:p type_info:p", _register_type),
    ("ExecutionContext_Get", "context:p type_id:p data:p", None),
    ("State_Set", "context:p stage:i type_id:p state:p", None),
    ("State_Get", "context:p stage:i type_id:p state:p", None),
    ("DeviceMemory_Allocate", "context:p size:z alignment:z data:p", None),
    ("DeviceMemory_Free", "context:p size:z data:p", None),
    ("ThreadPool_Schedule", "context:p task:p data:p", _schedule),
    ("ThreadPool_NumThreads", "context:p number:p", _threads),
    ("Future_Create", "future:p", _create_future),
    ("Future_SetAvailable", "future:p", _set_future),
    ("Future_SetError", "future:p error:p", _set_future),
    ("RunId_Get", "context:p run_id:q", None),
    ("DeviceOrdinal_Get", "context:p number:i", _ordinal),
)
"""The functions of the table in their order, with the fields of their arguments; of None is said that it is not there."""


def _native(name: str, fields: str, function: Callable[[Any], int | None] | None) -> Any:
    arguments = structure(name, fields)

    def call(at: int) -> int | None:
        try:
            if function is None:
                return _errors.new("UNIMPLEMENTED", f"XLA_FFI_{name} is not implemented by Tilewright".encode())
            return function(arguments.from_address(at))
        except BaseException as e:  # noqa: BLE001 (native code goes on here)
            if not isinstance(e, Exception):
                _own.raised = e
            return _errors.new("INTERNAL", repr(e).encode())

    return _HANDLER(call)


class _Table:
    """The table, for the life of the process: handlers may keep its address."""

    def __init__(self) -> None:
        self.functions = [_native(*row) for row in _API]
        table = structure(
            "Api", " ".join(["version:version", "internal:p", *(f"{name}:p" for name, _, _ in _API)]), inner={"version": _Version}
        )
        self.made = table(ctypes.sizeof(table), None, _Version(ctypes.sizeof(_Version), None, *_VERSION), None)
        for (name, _, _), function in zip(_API, self.functions, strict=True):
            setattr(self.made, name, ctypes.cast(function, ctypes.c_void_p).value)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        self.address = ctypes.addressof(self.made)


# ---------------------------------------------------------------- frames


class _Kept(list[Any]):
    """What a frame points to."""

    def at(self, thing: Any) -> int:
        self.append(thing)
        return int(thing.ctypes.data) if isinstance(thing, np.ndarray) else ctypes.addressof(thing)

    def text(self, text: str) -> Any:
        data = text.encode()
        return _Span(self.at(ctypes.create_string_buffer(data, len(data) + 1)), len(data))

    def row(self, values: Sequence[int], letter: Any) -> int:
        return self.at((letter * max(1, len(values)))(*values))

    def attributes(self, given: Mapping[str, Any]) -> Any:
        """A dictionary, by name, as XLA sorts it."""
        names = sorted(given)
        made = [self.attribute(name, given[name]) for name in names]
        spans = [self.at(self.text(name)) for name in names]
        kinds = self.row([kind for kind, _ in made], ctypes.c_int)
        places = self.row([place for _, place in made], ctypes.c_void_p)
        return _Attributes(
            ctypes.sizeof(_Attributes), None, len(names), kinds, self.row(spans, ctypes.c_void_p), places
        )  # fmt: skip

    def attribute(self, name: str, value: Any) -> tuple[int, int]:
        """(kind, address) of a value."""
        if isinstance(value, str):
            return _STRING, self.at(self.text(value))
        if isinstance(value, Mapping):
            return _DICTIONARY, self.at(self.attributes(value))
        if isinstance(value, (TypedArray, DenseArray)):
            array = value.array if isinstance(value, DenseArray) else np.array(value.values, element_type(value.element).dtype)
            flat = np.ascontiguousarray(array).ravel()
            return _ARRAY, self.at(_Array(_number(flat.dtype), flat.size, self.at(flat)))
        if isinstance(value, (TypedInteger, TypedFloat)):
            one = np.array([value.value], element_type(value.type).dtype)
        elif isinstance(value, (bool, int, float)):
            one = np.array([value], {bool: np.bool_, int: np.int64, float: np.float64}[type(value)])
        else:
            raise Problem("UNIMPLEMENTED", f"the attribute {name!r} of a foreign function: {value!r}")
        return _SCALAR, self.at(_Scalar(_number(one.dtype), self.at(one)))


def _number(dtype: np.dtype[Any]) -> int:
    try:
        return _TYPES[dtype.name]
    except KeyError:
        raise Problem("UNIMPLEMENTED", f"XLA's foreign functions have no elements of type {dtype}") from None


def _layouts(op: Op, name: str, count: int) -> list[tuple[int, ...] | None]:
    """Of each array the dimensions from the slowest to the fastest; None for those in row-major order."""
    given = op.attr(name)
    found: list[tuple[int, ...] | None] = []
    for k in range(count):
        order = np.asarray(given[k].array if isinstance(given[k], DenseArray) else given[k]).ravel().tolist() if given else None
        is_usual = order is None or order == list(range(len(order)))[::-1]
        found.append(None if is_usual else tuple(reversed(order or ())))
    return found


def aliases(op: Op) -> dict[int, int]:
    """Which operand each result of a custom call shares its memory with, of those that do."""
    given = op.attr("output_operand_aliases") or ()
    return {(tuple(a.output_tuple_indices) or (0,))[0]: a.operand_index for a in given}


class _ForeignCall:
    """A custom call, ready to be made: all of its frame but the addresses of elements."""

    def __init__(self, op: Op, stages: Mapping[str, int]) -> None:
        self._op, self._stages = op, stages
        self._kept = _Kept()
        self._attributes = self._kept.attributes(options_of(op))
        self._operands = [v.tensor for v in op.operands]
        self._results = [r.tensor for r in op.results]
        self._given = _layouts(op, "operand_layouts", len(self._operands))
        self._made = _layouts(op, "result_layouts", len(self._results))
        self._aliases = aliases(op)
        self._has_begun = False
        self._lock = threading.Lock()

    def __call__(self, operands: Sequence[np.ndarray], device: int) -> tuple[np.ndarray, ...]:
        given = [_in_order(x, order) for x, order in zip(operands, self._given, strict=True)]
        made: list[np.ndarray] = []
        for k, (t, order) in enumerate(zip(self._results, self._made, strict=True)):
            shape = t.static_shape if order is None else tuple(t.static_shape[d] for d in order)
            source = self._aliases.get(k)
            if source is not None:  # the handler finds the operand where it puts the result
                given[source] = np.array(given[source], order="C")
            made.append(given[source] if source is not None else np.empty(shape, t.dtype))
        kept = _Kept()
        frame = _FRAME(_FRAME_BYTES, None, _table().address, 1 + device)
        frame.args = self._buffers(kept, given, self._operands)
        frame.results = self._buffers(kept, made, self._results)
        frame.attributes = self._attributes
        with self._lock:  # the first call does what XLA does once for a program
            for stage in STAGES[:-1]:
                if not self._has_begun and stage in self._stages:
                    self._stage(frame, stage, (kept, given, made))
            self._has_begun = True
        self._stage(frame, "execute", (kept, given, made))
        return tuple(
            a if order is None else np.ascontiguousarray(a.transpose(np.argsort(order)))
            for a, order in zip(made, self._made, strict=True)
        )

    def _buffers(self, kept: _Kept, arrays: Sequence[np.ndarray], types: Sequence[Any]) -> Any:
        rows = []
        for a, t in zip(arrays, types, strict=True):
            dims = np.array(t.static_shape, np.int64)
            rows.append(kept.at(_Buffer(ctypes.sizeof(_Buffer), None, _number(t.dtype), kept.at(a), t.rank, kept.at(dims))))
        kinds = kept.row([_BUFFER] * len(rows), ctypes.c_int)
        return _Values(ctypes.sizeof(_Values), None, len(rows), kinds, kept.row(rows, ctypes.c_void_p))

    def _stage(self, frame: Any, stage: str, used: Any) -> None:
        """Calls a stage and waits for its end. `used` is what native code may still write to when a signal ends the waiting."""
        frame.stage, frame.future = STAGES.index(stage), None
        error = _HANDLER(self._stages[stage])(ctypes.addressof(frame)) or 0
        number = frame.future or 0
        future = _futures.get(number)
        if future is not None:
            try:
                if not error:
                    future.done.wait()
                    error, future.error = future.error, 0
            finally:
                future.kept = (self, frame, used)
                if future.done.is_set():
                    _forget(number)
        raised, _own.raised = _own.raised, None
        if raised is not None:
            _errors.made.pop(error, None)
            raise raised
        if error:
            raise _errors.take(error)


def _in_order(x: np.ndarray, order: tuple[int, ...] | None) -> np.ndarray:
    turned = x if order is None else x.transpose(order)
    return np.ascontiguousarray(turned).reshape(turned.shape)


_made_table: list[_Table] = []
_lock = threading.Lock()


def _table() -> _Table:
    with _lock:
        if not _made_table:
            _made_table.append(_Table())
    return _made_table[0]


# ---------------------------------------------------------------- what is registered

_XLAS_OWN = frozenset(
    "xla_buffer_python_cpu_callback xla_ffi_python_cpu_callback xla_ffi_partitioned_python_cpu_callback dce_sink".split()
)
"""Targets in jaxlib that are no handlers by the public interface: they take XLA's own contexts."""


def _address(capsule: Any) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    return int(get(capsule, name(capsule)) or 0)


class Handlers:
    """What was registered for this platform: addresses of stages by target, or why it cannot be called."""

    def __init__(self) -> None:
        self._own: dict[str, Mapping[str, int] | str] = {}
        self._kept: list[Any] = []

    def register(self, name: Any, function: Any, platform: str, version: int, traits: Any) -> None:
        """What jaxlib calls for each registration."""
        text = name.decode() if isinstance(name, bytes) else str(name)
        stages = function if isinstance(function, Mapping) else {"execute": function}
        self._kept.append(function)
        if version != 1:
            self._own[text] = "it is registered by the older interface without types"
        else:
            self._own[text] = {stage: _address(capsule) for stage, capsule in stages.items() if stage in STAGES}

    def find(self, name: str, is_own: bool) -> Mapping[str, int] | None:
        """The stages of a target, registered for this platform, or for the CPU (`is_own` false).

        Raises Problem for what cannot be called.
        """
        found: Mapping[str, int] | str | None
        if is_own:
            found = self._own.get(name)
        else:
            found = None if name in _XLAS_OWN else _of_cpu(name)
        if isinstance(found, Mapping):
            found = _problem(found) or found
        if isinstance(found, str):
            raise Problem("UNIMPLEMENTED", f"the foreign function {name!r}: {found}")
        return found

    def function(self, stages: Mapping[str, int], device: Callable[[], int]) -> Callable[..., Any]:
        """The custom call of a target, as the evaluator takes it; `device` tells the number of the caller's device."""
        ready: dict[Op, _ForeignCall] = {}

        @borrows
        def call(op: Op, *operands: Any) -> Any:
            prepared = ready.get(op) or ready.setdefault(op, _ForeignCall(op, stages))
            return prepared(operands, device())

        return call


handlers = Handlers()


def _of_cpu(name: str) -> Mapping[str, int] | None:
    from jaxlib import xla_client

    found = xla_client.custom_call_targets("cpu").get(name)
    if found is None:
        return None
    stages: Any = found if isinstance(found, Mapping) else {"execute": found}
    return {stage: _address(capsule) for stage, capsule in stages.items() if stage in STAGES}


def _problem(stages: Mapping[str, int]) -> str | None:
    """Why a handler cannot be called: it says itself which version it was compiled for, and whether it has a state."""
    if "execute" not in stages:
        return "it has no stage `execute`"
    return next(filter(None, (_stage_problem(stage, address) for stage, address in stages.items())), None)


def _stage_problem(stage: str, address: int) -> str | None:
    version = _Version(ctypes.sizeof(_Version), None, -1, -1)
    metadata = _Metadata(ctypes.sizeof(_Metadata), version, 0, 0)
    extension = _Extension(ctypes.sizeof(_Extension), _METADATA, None, ctypes.addressof(metadata))
    frame = _FRAME(_FRAME_BYTES, ctypes.addressof(extension), _table().address, 0)
    frame.stage = STAGES.index(stage)
    error = _HANDLER(address)(ctypes.addressof(frame))
    if error:
        return f"its stage `{stage}` says: {_errors.take(error)}"
    if metadata.version.major != _VERSION[0]:
        return f"it was compiled for version {metadata.version.major}.{metadata.version.minor} of XLA's interface, not 0.x"
    if metadata.state:
        return f"its stage `{stage}` makes a state, which nobody keeps here"
    return None
