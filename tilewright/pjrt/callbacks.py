"""Python functions that programs call: numbered as JAX lowers them, found again when the program is compiled.

JAX lowers a callback to a custom call with a number (`tilewright.pjrt.lowering`). Who lowered keeps the function; a compiled
program keeps those that it calls. The numbers are this process's alone, so such a program is not written out.
"""

from __future__ import annotations

import itertools
import traceback
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

from hlo.module import Module, walk
from hlo.text.foreign_options import options_of
from interp.rules.custom_calls import KNOWN_TARGETS
from tilewright.jax.lapack import CUSTOM_CALLS
from tilewright.jax.tokens import results_of
from tilewright.pjrt.ffi import handlers
from tilewright.pjrt.handles import Problem

__all__ = ["Callback", "CallbackList", "check_targets", "functions_of", "targets"]

_TARGETS = ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback")


class Callback:
    """A Python function with its number."""

    _numbers = itertools.count()

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.number = function, next(self._numbers)


_known: weakref.WeakValueDictionary[int, Callback] = weakref.WeakValueDictionary()


class CallbackList:
    """What JAX's lowering of one callback puts its function into: the function's number is the last index of this list."""

    def __init__(self) -> None:
        self.last: Callback | None = None

    def append(self, function: Callable[..., Any]) -> None:
        """Takes the function."""
        self.last = Callback(function)
        _known[self.last.number] = self.last

    def __len__(self) -> int:
        return 0 if self.last is None else self.last.number + 1


def check_targets(module: Module, known: Collection[str]) -> None:
    """Raises Problem for a custom call that nobody can make: neither one of `known` nor the evaluator."""
    for op in (op for f in module.functions.values() for op in walk(f.body)):
        target = op.attr("call_target_name") if op.name == "stablehlo.custom_call" else None
        if target is not None and target not in known and target not in KNOWN_TARGETS:
            raise Problem("UNIMPLEMENTED", f"{op.location}: no implementation of the custom call {target!r} for this platform")


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
        try:
            return results_of(callbacks[_number(op)].function(*operands), op)
        except KeyboardInterrupt:  # a signal's handler raised it, not the function
            raise
        except BaseException as e:
            raise Problem("INTERNAL", "".join(traceback.format_exception(e))) from e

    return {**found, **dict.fromkeys(_TARGETS if callbacks else (), call)}
