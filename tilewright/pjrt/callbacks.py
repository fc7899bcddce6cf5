"""Python functions that programs call: numbered as JAX lowers them, found again when the program is compiled.

JAX lowers a callback to a custom call with a number (`tilewright.pjrt.lowering`). Who lowered keeps the function; a compiled
program keeps those that it calls. The numbers are this process's alone, so such a program is not written out.
"""

from __future__ import annotations

import itertools
import traceback
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import numpy as np

from hlo.module import Module, walk
from hlo.text.foreign_options import options_of
from hlo.types import TensorType
from interp.rules.custom_calls import KNOWN_TARGETS
from tilewright.jax.lapack import CUSTOM_CALLS, unsupported
from tilewright.jax.tokens import results_of
from tilewright.pjrt.ffi import aliases, handlers
from tilewright.pjrt.handles import Problem

__all__ = ["Callback", "CallbackList", "OnBuffers", "check_targets", "functions_of", "targets"]

_TARGETS = ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback", "xla_buffer_python_cpu_callback")


class OnBuffers(NamedTuple):
    """What JAX has for functions of `jax.experimental.buffer_callback`: its classes, the stage that calls, an error."""

    buffer: type
    context: type
    stage: Any
    error: type[Exception]


class Callback:
    """A Python function with its number; one that is `on_buffers` gets arrays in place, and those that it writes."""

    _numbers = itertools.count()

    def __init__(self, function: Callable[..., Any], on_buffers: OnBuffers | None = None) -> None:
        self.function, self.number, self.on_buffers = function, next(self._numbers), on_buffers


_known: weakref.WeakValueDictionary[int, Callback] = weakref.WeakValueDictionary()


class CallbackList:
    """What JAX's lowering of one callback puts its function into: the function's number is the last index of this list."""

    def __init__(self, on_buffers: OnBuffers | None = None) -> None:
        self.last: Callback | None = None
        self._on_buffers = on_buffers

    def append(self, function: Callable[..., Any]) -> None:
        """Takes the function."""
        self.last = Callback(function, self._on_buffers)
        _known[self.last.number] = self.last

    def __len__(self) -> int:
        return 0 if self.last is None else self.last.number + 1


class _Elements:
    """An array as functions of `jax.experimental.buffer_callback` get it: in place, for the time of the call.

    `isinstance` takes it for jaxlib's own class, of which Python makes none.
    """

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._like

    def __init__(self, like: type, array: np.ndarray, is_result: bool) -> None:
        self._like = like
        self._array = array.view()
        self._array.flags.writeable = is_result
        self.shape, self.dtype, self.ndim, self.writeable = array.shape, array.dtype, array.ndim, is_result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._array, dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class _Context:
    """What functions of `jax.experimental.buffer_callback` get first: there is no stream here."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._jax.context

    def __init__(self, jax: OnBuffers) -> None:
        self._jax, self.stage = jax, jax.stage

    @property
    def stream(self) -> int:
        """Of a device that has some. Raises JaxRuntimeError, in XLA's words."""
        raise self._jax.error("UNIMPLEMENTED: XLA FFI GPU context is not available")


def _on_buffers(
    function: Callable[..., Any], jax: OnBuffers, op: Any, operands: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, ...]:
    """The results that a function writes where it finds them; one that shares an operand's memory begins as its copy."""
    given = list(operands)
    made = [np.empty(r.tensor.static_shape, r.tensor.dtype) for r in op.results]
    for k, source in aliases(op).items():
        given[source] = made[k] = np.array(given[source])
    own = [_Elements(jax.buffer, x, False) for x in given] + [_Elements(jax.buffer, x, True) for x in made]
    function(_Context(jax), *own)
    return tuple(made)


def check_targets(module: Module, known: Collection[str]) -> None:
    """Raises Problem for a custom call that neither one of `known` nor the evaluator can make, or not of such elements."""
    for op in (op for f in module.functions.values() for op in walk(f.body)):
        target = op.attr("call_target_name") if op.name == "stablehlo.custom_call" else None
        if target is not None and target not in known and target not in KNOWN_TARGETS:
            raise Problem("UNIMPLEMENTED", f"{op.location}: no implementation of the custom call {target!r} for this platform")
        types = [v.tensor.dtype for v in op.operands if isinstance(v.type, TensorType)]
        if target is not None and types and unsupported(target, types[0]):
            raise Problem("UNIMPLEMENTED", f"{op.location}: {target}: Unsupported dtype {types[0]}")


def _number(op: Any) -> int:
    number = options_of(op)["index"]
    return int(getattr(number, "value", number))


def functions_of(module: Module) -> dict[int, Callback]:
    """The callbacks that a program calls, by number. Raises KeyError for one that is not of this process."""
    ops: Iterable[Any] = (op for f in module.functions.values() for op in walk(f.body))
    numbers = {_number(op) for op in ops if op.name == "stablehlo.custom_call" and op.attr("call_target_name") in _TARGETS}
    return {n: _known[n] for n in numbers}


def targets(module: Module, callbacks: dict[int, Callback], device: Callable[[], int]) -> dict[str, Callable[..., Any]]:
    """The custom calls of a program with these callbacks; `device` tells the number of the caller's device.

    Raises Problem for a native function that cannot be called.
    """
    found = dict(CUSTOM_CALLS)
    ops: Iterable[Any] = (op for f in module.functions.values() for op in walk(f.body))
    for target in {op.attr("call_target_name") for op in ops if op.name == "stablehlo.custom_call"}:
        stages = handlers.find(target, is_own=True)
        if stages is None and target not in found and target not in KNOWN_TARGETS:
            stages = handlers.find(target, is_own=False)
        if stages is not None:
            found[target] = handlers.function(stages, device)

    def call(op: Any, *operands: Any) -> Any:
        callback = callbacks[_number(op)]
        try:
            if callback.on_buffers is not None:
                return _on_buffers(callback.function, callback.on_buffers, op, operands)
            return results_of(callback.function(*operands), op)
        except KeyboardInterrupt:  # a signal's handler raised it, not the function
            raise
        except BaseException as e:
            raise Problem("INTERNAL", f"CpuCallback error calling callback: {''.join(traceback.format_exception(e))}") from e

    return {**found, **dict.fromkeys(_TARGETS if callbacks else (), call)}
