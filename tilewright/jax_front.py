"""Warm calls through JAX's own call: arguments found, results made and the program called without Python in between.

A function that is called again and again is given to `jax.jit` as what it has become: one foreign function of XLA's
(`codegen.call.xla_call`), which runs the compiled program. JAX's call then finds the signature, the arrays and their device, and
makes the results, in a few microseconds for all of them. It is made at the second call with a signature: programs that run once
do not wait for it.

What cannot be called so takes the thorough way (`tilewright.jit`): programs with tokens or without results, element types that XLA
stores differently, several devices. Inside a transformation of JAX's the front is not asked.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from codegen.call import launch
from codegen.call.xla_call import ATTRIBUTE, TARGET, Failures, XlaCall, handler_address
from codegen.native import interrupts
from hlo.errors import Declined

__all__ = ["ELSEWHERE", "MISSED", "Front", "NotReadyError", "bound"]

ELSEWHERE, MISSED = object(), object()
"""What a call gives that was not made: inside a transformation; for what the front does not have or JAX does not take."""

_ALIKE = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128".split()
)
"""Element types that XLA and NumPy store alike."""

COPIED_BYTES = 1 << 18
"""JAX copies NumPy's arrays, the thorough call does not: where one is larger, that costs more than what the front saves."""


class NotReadyError(Exception):
    """Raised through JAX's tracing: this signature has no program here."""


@functools.cache
def _registered() -> None:
    import jax

    capsule = jax.ffi.pycapsule(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(handler_address()))
    jax.ffi.register_ffi_target(TARGET, capsule, platform="cpu")


_on_their_way: list[tuple[Callable[[], bool], Any]] = []
"""(whether they have ended, what they run) of fronts that are gone while XLA still computes: its threads run their code."""


class Front:
    """`front.call(args, kwargs)`: what a call of a function gives by JAX's own call, or `ELSEWHERE` or `MISSED`.

    `bind(*args, **kwargs)` is traced by JAX once for each signature: it gives the tree of results of `bound`, or raises
    NotReadyError. `numbers` and `names` are those of static arguments.
    """

    def __init__(self, jax: Any, bind: Callable[..., Any], numbers: Collection[int], names: Collection[str]) -> None:
        from jax._src import core

        self._jax = jax
        self._jit = jax.jit(bind, static_argnums=tuple(numbers), static_argnames=tuple(names))
        self._is_clean = core.trace_state_clean
        self._failed = jax.errors.JaxRuntimeError
        # Counts of calls, each in one step of the interpreter's: several threads may be in one
        self._begun, self._void = itertools.count(), itertools.count()
        self._done = ctypes.c_int64(0)
        self._failures = Failures()
        self._workers = 0
        self._programs: dict[Any, XlaCall] = {}
        self._raised = interrupts.raised_word()
        _on_their_way[:] = [(has_ended, what) for has_ended, what in _on_their_way if not has_ended()]

    def __del__(self) -> None:
        done, begun = self._done, next(self._begun) - next(self._void)
        if self._programs and done.value != begun:
            _on_their_way.append((lambda: done.value == begun, self._programs))

    def add(self, made: Any, leaves: Sequence[Any]) -> XlaCall | Declined:
        """Takes the program of a signature (`jax_bridge._Compiled`), or says why it does not; `leaves` are a call's arguments."""
        jax = self._jax
        reason = _reason(jax, made, leaves)
        if reason is not None:
            return Declined(reason)
        call = made.executable.for_xla(ctypes.addressof(self._done), self._failures)
        if isinstance(call, XlaCall):
            _registered()
            self._programs[made] = call
            self._workers = max(self._workers, call.threads)
        return call

    def program(self, made: Any) -> XlaCall | None:
        """What was added for a signature."""
        return self._programs.get(made)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results as JAX has them. Raises what a callback raised, and what JAX raises for what it has begun to run."""
        if not self._is_clean():
            return ELSEWHERE
        if self._workers > 1:
            launch.have_workers(self._workers)
        next(self._begun)
        try:
            results = self._jit(*args, **kwargs)
        except (NotReadyError, TypeError, ValueError):
            # The thorough call takes more (arrays of other libraries) and says what is wrong with the rest.
            next(self._void)
            return MISSED
        except self._failed:
            raised = self._failures.take()
            if raised is not None:
                raise raised from None
            return MISSED
        if self._raised.value:
            interrupts.raise_pending()
        return results


def bound(jax: Any, made: Any, call: XlaCall, leaves: Sequence[Any]) -> Any:
    """The tree of results of a program's call, of tracers: what JAX compiles for a signature."""
    raw = [jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]
    if any(x.dtype != t for x, t in zip(raw, made.dtypes, strict=True)):
        raise NotReadyError
    avals = made.lowered.out_avals
    storage = [jax.eval_shape(jax.random.key_data, a) if _is_key(jax, a) else a for a in avals]
    wanted = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in storage]
    results = jax.ffi.ffi_call(TARGET, wanted)(*raw, **{ATTRIBUTE: np.int64(call.address)})
    found = [_as_wanted(jax, r, a) for r, a in zip(results, avals, strict=True)]
    return jax.tree_util.tree_unflatten(made.lowered.out_tree, found)


def _is_key(jax: Any, aval: Any) -> bool:
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))


def _as_wanted(jax: Any, x: Any, aval: Any) -> Any:
    """A result as a key, or of a weak type, where JAX has it so."""
    from jax._src.lax import lax

    if _is_key(jax, aval):
        return jax.random.wrap_key_data(x, impl=jax.random.key_impl(aval))
    return lax._convert_element_type(x, weak_type=True) if aval.weak_type else x


def _reason(jax: Any, made: Any, leaves: Sequence[Any]) -> str | None:
    """Why JAX cannot call a program, or None."""
    if jax.default_backend() != "cpu" or jax.local_device_count() != 1:
        return "there are other devices than one CPU"
    if made.token_results or None in made.dtypes:
        return "a token is passed"
    if made.donated:
        return "arguments are donated"
    avals = made.lowered.out_avals
    if not avals:
        return "there are no results, for whose sake XLA would run it"
    for t in [*made.dtypes, *(a.dtype for a in avals if not _is_key(jax, a))]:
        if not isinstance(t, np.dtype) or t.name not in _ALIKE:
            return f"XLA stores {t} otherwise, or not at all"
    large = [x for x in leaves if isinstance(x, np.ndarray) and x.nbytes >= COPIED_BYTES]
    return f"JAX would copy an argument of {large[0].nbytes} bytes" if large else None
