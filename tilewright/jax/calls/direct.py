"""A function's calls as JAX's native ones: what an instance is called by lies in a slot, where it may be code without Python.

`jax.jit(f)` is an object of jaxlib's (`PjitFunction`): it finds a call's signature and what was compiled for it in native code,
and asks a function of Python's, its miss, for what it does not know. `Direct` makes such an object whose miss is a function's own
thorough call. Where that has a program which JAX's own call runs (`tilewright.jax.calls.front`), the miss also says what JAX made
of it, and calls with the same signature go there from then on: no line of Python runs.

While a miss runs, calls of the same function take Python's way: jaxlib refuses calls from within the miss of their own signature,
and a callback of the program may make one.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

__all__ = ["Called", "Direct"]

_log = logging.getLogger("tilewright")


class Called:
    """Its instances are called by what their slot holds, which the interpreter reads without a line of Python.

        call = Called(); Called.set_call(call, print); call("is printed")
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def set_call(self, call: Callable[..., Any]) -> None:
        """What the instance is called by from now on; it must not hold the instance, which would then never be freed alone."""
        _SLOT.__set__(self, call)


_SLOT: Any = Called.__dict__["__call__"]

_direct: weakref.WeakSet[Direct] = weakref.WeakSet()


class Direct:
    """Switches `owner` between Python's way, `here`, and JAX's native call, whose misses ask `try_direct(owner, args, kwargs)`.

    That gives (results, what JAX calls from now on) or None. `numbers` and `names` are those of static arguments.
    """

    def __init__(
        self, jax: Any, owner: Called, here: Callable[..., Any], try_direct: Callable[[Any, Any, Any], Any],
        numbers: Collection[int], names: Collection[str],
    ) -> None:  # fmt: skip
        self._jax = jax
        self._owner, self._here = weakref.ref(owner), here
        self._try, self._numbers, self._names = try_direct, tuple(numbers), tuple(names)
        self._native: Any = None
        self._called: Callable[..., Any] = here  # what calls `_native`
        self._lock = threading.Lock()
        self._inside = 0  # misses that are on their way
        self.is_over = False

    @property
    def is_on(self) -> bool:
        """Whether calls are JAX's."""
        return self._native is not None

    def begin(self, around: Callable[[Any, Any], Callable[..., Any]] | None = None) -> bool:
        """Has JAX ask anew for each signature, natively from now on where it can be; False where this JAX has no such call.

        `around(JAX's call, Python's way)` is what is called then, where there is something to do before or after.
        """
        if self.is_over:
            return False
        if self._native is not None:
            self._native._clear_cache()
            with self._lock:
                self._called = self._native if around is None else around(self._native, self._here)
                self._settle()
            return True
        native = _native_call(self._jax, self._here, functools.partial(_missed, weakref.ref(self)), self._numbers, self._names)
        if native is None:
            self.is_over = True
            return False
        with self._lock:
            self._native = native
            self._called = native if around is None else around(native, self._here)
            self._settle()
        _direct.add(self)
        return True

    def set_here(self, here: Callable[..., Any]) -> None:
        """Python's way from now on."""
        with self._lock:
            self._here = here
            self._settle()

    def end(self) -> None:
        """Calls take Python's way from now on."""
        with self._lock:
            self.is_over, self._native, self._called = True, None, self._here
            self._settle()

    def _settle(self) -> None:
        owner = self._owner()
        if owner is not None:
            owner.set_call(self._here if self._native is None or self._inside else self._called)

    def missed(self, args: Any, kwargs: Any) -> tuple[Any, Any, bool]:
        """(results, what JAX calls with this signature from now on or None, whether that is to be made anew)."""
        owner = self._owner()
        with self._lock:
            self._inside += 1
            self._settle()
        try:
            found = self._try(owner, args, kwargs)
            return (self._here(*args, **kwargs), None, False) if found is None else (*found, False)
        finally:
            with self._lock:
                self._inside -= 1
                self._settle()


def _missed(own: weakref.ref[Direct], /, *args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
    direct = own()
    assert direct is not None, "it lives as long as the function that is called"
    return direct.missed(args, kwargs)


@functools.cache
def _cache(native: Any) -> Any:
    return native.PjitFunctionCache(capacity=8192)


def _native_call(jax: Any, here: Any, missed: Any, numbers: tuple[int, ...], names: tuple[str, ...]) -> Any:
    try:
        private = jax._src
        native, pxla = vars(private.lib)["_jax"], private.interpreters.pxla
        key = pxla.JitGlobalCppCacheKeys()
        known = private.tree_util.dispatch_registry, pxla.cc_shard_arg
        made = native.pjit("call", here, missed, numbers, names, key, *known, _cache(native))
        made._fun = here  # what `jax_debug_nans` calls for a better error
        return made
    except (AttributeError, KeyError, TypeError) as e:  # private names of another version of JAX's
        _log.info("calls are not made natively: %s", e)
        return None


def _after_in_child() -> None:
    """JAX's threads are not there: Python's way says so."""
    for direct in list(_direct):
        direct._lock = threading.Lock()
        direct.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
