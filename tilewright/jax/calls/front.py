"""Warm calls through JAX's own call: arguments found, results made and the program called without Python in between.

A function that is called again and again is given to `jax.jit` as what it has become: one foreign function of XLA's
(`codegen.call.xla_call`), which runs the compiled program. JAX's call then finds the signature, the arrays and their device, and
makes the results, in a few microseconds for all of them. It is made at the second call with a signature: programs that run once
do not wait for it.

JAX's CPU makes calls of less than a thousand operations in the caller's thread, and counts none for a foreign function. So a
long program is given some more (`_weight`): then XLA makes its calls in a thread of its own, and they return at once.

What cannot be called so takes the thorough way (`tilewright.jit`): programs with tokens or without results, element types that
XLA stores differently, large NumPy arguments, several devices. Inside a transformation of JAX's the front is not asked.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from codegen.call.xla_call import Failures, XlaCall, expect_memory
from codegen.call.xla_handler import ATTRIBUTE, HOLD, MESSAGE, TARGET, handler_address, hold_type
from codegen.call.xla_packs import Known, XlaPacks
from codegen.launcher import native_threads
from codegen.native import interrupts
from hlo.errors import Declined
from tilewright.jax.calls.known_arguments import KnownCall, committed, held
from tilewright.jax.inherited import started_in
from tilewright.jax.options import Settings
from tilewright.jax.signatures import configuration

__all__ = ["ELSEWHERE", "MISSED", "Front", "NotReadyError"]

_log = logging.getLogger("tilewright")

ELSEWHERE, MISSED = object(), object()
"""What a call gives that was not made: where JAX is at work already; for what the front does not have or JAX does not take."""

_ALIKE = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128 float8_e5m2"
    " float8_e4m3fn float8_e4m3b11fnuz float8_e5m2fnuz float8_e4m3fnuz float8_e3m4 float8_e4m3".split()
)
"""Element types that XLA and NumPy store alike."""

COPIED_BYTES = 1 << 18
"""JAX copies NumPy's arrays, the thorough call does not: where one is larger, that costs more than what the front saves."""


LONG, OF_A_LEAF = 1e5, 2e3
"""Operations, or elements of arguments and results, from which on a call returns before it is over: some 50 microseconds.

For each array among them so many more: JAX's own call takes a microsecond for each, and what is over in as long as that gains
less by another thread than it costs to go there and back.
"""

LONG_SECONDS = 2.5e-4
"""What the machine's model says of one thread, from which on a call returns before it is over.

The model has what vector units, products of bytes and fusions are worth, which no count of operations has, and says rather more
than less (up to four times as much). The way to another thread and back takes 30 to 50 microseconds.
"""

_COUNTED = 1024
"""XLA calls what has fewer than 1000 operations in the caller's thread."""

RARELY, MOST_RARELY = 64, 1024
"""Calls from one look at a call's arguments to the next: where their packs are kept, and at most where they are not."""


DIRECT_BYTES = 1 << 16
"""Calls that take at most so much memory may be made without Python in between: they are not refused for want of it."""

_GUARD, _REFUSED = "Disallowed host-to-device transfer", "Recursively calling jit"
_DONATED_TWICE = "used by the same call to", "donated in the same call", "donate the same buffer twice"


class NotReadyError(Exception):
    """Raised through JAX's tracing: this signature has no program here."""


_FAILURES = NotReadyError, RecursionError, TypeError, ValueError


@functools.cache
def _registered() -> None:
    import jax

    in_capsule: Any = jax.ffi.pycapsule

    def capsule(address: int) -> Any:
        return in_capsule(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address))

    number, description = (capsule(address) for address in hold_type())
    jax.ffi.register_ffi_type(HOLD, {"type_id": number, "type_info": description}, platform="cpu")
    handler = capsule(handler_address())
    jax.ffi.register_ffi_target(TARGET, {"instantiate": handler, "execute": handler}, platform="cpu")


_on_their_way: dict[object, tuple[Callable[[], bool], Any]] = {}
"""(whether they have ended, what they run) of fronts that are gone while XLA still computes: its threads run their code.

Calls that Python makes are counted. Of those that JAX makes natively, XLA says that none can come any more. Any thread changes
this, in single steps; so with the next.
"""

_held: dict[object, ctypes.c_int64] = {}
"""Words that XLA still counts down: JAX's caches hold what it made for some fronts that are gone."""


def _let_go() -> None:
    for key, (has_ended, _) in list(_on_their_way.items()):
        if has_ended():
            _on_their_way.pop(key, None)
    for key, word in list(_held.items()):
        if not word.value:
            _held.pop(key, None)


class Front:
    """`front.call(args, kwargs)`: what a call of a function gives by JAX's own call, or `ELSEWHERE` or `MISSED`.

    `bind(*args, **kwargs)` is traced by JAX once for each signature: it gives the tree of results of `bound`, or raises
    NotReadyError. `numbers` and `names` are those of static arguments; `donated` are JAX's options of what is given away.
    """

    def __init__(
        self, jax: Any, bind: Callable[..., Any], numbers: Collection[int], names: Collection[str],
        donated: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        from jax._src import array, core

        self._jax = jax
        self._jit = jax.jit(bind, static_argnums=tuple(numbers), static_argnames=tuple(names), **donated)
        self._has_static = bool(numbers or names)
        # What `core.trace_state_clean` asks, without its calls
        self._trace, self._axes = core.trace_state_strong_ref, core.axis_env_state
        self._no_trace, self._no_axes = core.eval_trace, core.top_axis_env
        self._array: Any = array.ArrayImpl
        self._failed = jax.errors.JaxRuntimeError
        # Counts of calls, each in one step of the interpreter's: several threads may be in one
        self._begun, self._void = itertools.count(), itertools.count()
        self._done, self._held = ctypes.c_int64(0), ctypes.c_int64(0)
        self._failures = Failures()
        self._workers, self._waits = 0, False
        self._programs: dict[Any, XlaCall] = {}
        self._long: set[XlaCall] = set()
        self._is_direct = False  # whether JAX may call a program natively: such calls are not counted
        self._direct: set[Any] = set()  # programs that need nothing of Python's before and after a call
        self.pending: set[Any] = set()  # those of them that JAX is still to be told of
        self._packs: dict[Any, XlaPacks] = {}
        self._known: dict[Any, KnownCall] = {}
        self._flatten = jax.tree_util.tree_flatten
        self.has_packs = False
        self._looks_each = self._looks_in = 1  # calls
        self._raised = interrupts.raised_word()
        _let_go()

    def __del__(
        self, on_their_way: dict[object, tuple[Callable[[], bool], Any]] = _on_their_way,
        words: dict[object, ctypes.c_int64] = _held,
    ) -> None:  # fmt: skip
        done, held, begun = self._done, self._held, next(self._begun) - next(self._void)
        is_counted = not self._is_direct
        self._known.clear()
        del self._jit  # with it goes what XLA made, but for what computes or lies in one of JAX's caches

        def has_ended() -> bool:
            return not held.value or (is_counted and done.value == begun)

        if held.value:
            words[object()] = held
        if self._programs and not has_ended():
            on_their_way[object()] = (has_ended, (self._programs, self._packs, done))

    def add(self, made: Any, leaves: Sequence[Any]) -> XlaCall | Declined:
        """Takes the program of a signature (`compiled.Compiled`), or says why it does not; `leaves` are a call's arguments."""
        jax = self._jax
        reason = _reason(jax, made, leaves)
        if reason is not None:
            return Declined(reason)
        call: XlaCall | Declined = made.executable.for_xla(
            ctypes.addressof(self._done), self._failures, held=ctypes.addressof(self._held)
        )
        if isinstance(call, XlaCall):
            _registered()
            taken = {result for _, result, _ in call.written_over}
            avals = [a for k, a in enumerate(made.lowered.out_avals) if k not in taken and not _is_key(jax, a)]
            expect_memory(2 * (call.bytes + sum(a.size * a.dtype.itemsize for a in avals)))
            is_direct = call.threads == 1 and call.bytes <= DIRECT_BYTES
            idle = _idle(self._done, self._void, self._begun)
            packs = made.executable.packs_for_xla(call, _is_deleted, idle, held)
            if packs is not None and not (is_direct and not packs.packs):
                self._packs[made] = packs
                self.has_packs = True
            seconds = made.executable.modelled_seconds
            if not call.is_waited_for and (seconds is None or seconds >= LONG_SECONDS) and _is_long(jax, made, leaves):
                self._long.add(call)
            self._programs[made] = call
            if is_direct and made not in self._packs:
                self._direct.add(made)
                self.pending = set(self._direct)
            self._workers = max(self._workers, call.threads)
            self._waits = self._waits or call.is_waited_for
        return call

    def is_due(self) -> bool:
        """Whether `look` is to be told of the call that was just made."""
        if not self.has_packs:
            return False
        self._looks_in -= 1
        return self._looks_in <= 0

    def look(self, made: Any, given: Any, leaves: Sequence[Any], tree: Any) -> None:
        """What a call's arguments were: of arrays that stay the same, what is only packed is packed once, and JAX not given.

        `given` is (args, kwargs) as the call had them, None where that is over.
        """
        packs, is_kept = self._packs.get(made), False
        if packs is not None:

            def owner(k: int) -> Any:
                leaf = leaves[k]
                is_lasting = type(leaf) is self._array and isinstance(leaf.dtype, np.dtype) and k not in made.donated
                return leaf if is_lasting and not leaf.is_deleted() and leaf.is_ready() else None

            is_kept = packs.look(owner, lambda k: int(leaves[k].unsafe_buffer_pointer()), committed(leaves))
            self._know(made, packs.known, given, leaves, tree)
        self._looks_each = RARELY if is_kept else min(2 * self._looks_each, MOST_RARELY)
        self._looks_in = self._looks_each

    def _know(self, made: Any, known: Known | None, given: Any, leaves: Sequence[Any], tree: Any) -> None:
        """From now on calls with these arguments but for some are made with those alone."""
        mine = self._known.get(made)
        if known is None or self._has_static:
            self._known.pop(made, None)
        elif mine is None or mine.known() is not known:
            jax, is_long, settings = self._jax, self._programs[made] in self._long, configuration(self._jax)
            program, numbers = known.call, known.others

            def bound(others: Sequence[Any]) -> Any:
                if configuration(jax) != settings:
                    raise NotReadyError
                return _bound(jax, made, program, others, is_long, numbers)

            call = KnownCall(jax, known, given, tree, leaves, self._array, bound, made.donated)
            if call.is_possible:
                self._known[made] = call

    def _results(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What JAX's call gives for these arguments, or for those of them that are not known."""
        if self._known:
            given = (args, kwargs)
            for made, mine in tuple(self._known.items()):  # another thread may add one
                others = mine.others_of(given)
                known = mine.known()  # after it: an array that is gone is none of those found
                if others is not None and known is not None and self._packs[made].known is known:
                    try:
                        return mine.function(*others)
                    except NotReadyError:  # of a setting that came later
                        self._known.pop(made, None)
            leaves, tree = self._flatten(given)
            for made, mine in tuple(self._known.items()):
                packs, known = self._packs[made], mine.known()
                if known is None or packs.known is not known:  # after `leaves`: an array that is gone is none of them
                    self._known.pop(made, None)
                    self._looks_in = 1
                elif mine.takes(tree, leaves):
                    if not mine.is_there(leaves):
                        packs.drop()
                        break
                    try:
                        return mine.function(*mine.others(leaves))
                    except NotReadyError:  # of a setting that came later
                        self._known.pop(made, None)
                elif changed := mine.changed(tree, leaves):
                    packs.expect_others(changed)
                    self._looks_in = 1
        if self.has_packs:
            for packs in tuple(self._packs.values()):
                packs.check()
        return self._jit(*args, **kwargs)

    @property
    def served(self) -> int:
        """How many calls the front has run."""
        return int(self._done.value)

    def program(self, made: Any) -> XlaCall | None:
        """What was added for a signature."""
        return self._programs.get(made)

    def bound(self, made: Any, leaves: Sequence[Any]) -> Any:
        """The tree of results of a program's call, of tracers: what JAX compiles for a signature. Raises NotReadyError."""
        call = self._programs.get(made)
        if call is None:
            raise NotReadyError
        return _bound(self._jax, made, call, leaves, call in self._long)

    def try_direct(self, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """(the results, what JAX calls natively with this signature from now on), or None where a call is to decide."""
        if made not in self.pending or self._trace.value is not self._no_trace or self._axes.value is not self._no_axes:
            return None
        self.pending.discard(made)
        self._is_direct = True  # before the call, which nobody counts either: it may fail after it has run
        try:
            results, data, _ = self._jit._cache_miss(*args, **kwargs)
        except (NotReadyError, RecursionError, TypeError, ValueError, self._failed):
            return None
        return results, data

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results as JAX has them. Raises what a callback raised, and what JAX raises for what it has begun to run."""
        if self._trace.value is not self._no_trace or self._axes.value is not self._no_axes:
            return ELSEWHERE
        if self._workers > 1:
            native_threads.have_workers(self._workers)
        if self._waits:
            # What waits for its arguments would be run by a thread of XLA's.
            array = self._array
            for value in (*args, *kwargs.values()) if kwargs else args:
                if type(value) is array:
                    value.block_until_ready()
                else:
                    self._jax.block_until_ready(value)
        next(self._begun)
        try:
            results = self._results(args, kwargs)
        except (*_FAILURES, self._failed) as e:
            return self._failed_with(e)
        if self._waits and self._raised.value:
            interrupts.raise_pending()
        return results

    def _failed_with(self, e: Exception) -> Any:
        """`ELSEWHERE` or `MISSED` after JAX's call raised `e`. Raises what a callback raised, or what was begun and failed."""
        if isinstance(e, NotReadyError):
            next(self._void)
            return MISSED
        if isinstance(e, RecursionError):
            # A callback calls the function in the middle of JAX's first call of it, which JAX refuses. Where Python's own limit
            # was met, the call may have run: it stays one that has begun, so that nothing is freed that it could still use.
            if _REFUSED in str(e):
                next(self._void)
            return ELSEWHERE
        # JAX's quick call raises a ValueError for what its other one has an error of its own for.
        raised = self._failures.take()
        if raised is not None:
            raise raised from None
        if _GUARD in str(e) or any(text in str(e) for text in _DONATED_TWICE):
            next(self._void)
            raise e
        if MESSAGE not in str(e):
            # It did not begin. The thorough call takes more (arrays of other libraries) and says what is wrong with the rest.
            next(self._void)
            _log.info("not called through JAX's own call: %s", e)
        return MISSED

    def waiting(self, native: Callable[..., Any], here: Callable[..., Any]) -> Callable[..., Any]:
        """JAX's native call where programs wait for their arguments, or `here` where not all of these are arrays of JAX's.

        It raises what a callback raised, and what a signal's handler did meanwhile.
        """
        array, raised, failures, failed = self._array, self._raised, self._failures, (ValueError, self._failed)

        def call(*args: Any, **kwargs: Any) -> Any:
            for value in (*args, *kwargs.values()) if kwargs else args:
                if type(value) is not array:
                    return here(*args, **kwargs)
                if not value.is_ready():  # which most are, and to ask takes less than to wait
                    value.block_until_ready()
            try:
                results = native(*args, **kwargs)
            except failed:
                by_callback = failures.take()
                if by_callback is not None:
                    raise by_callback from None
                raise
            if raised.value:
                interrupts.raise_pending()
            return results

        return call

    @property
    def waits(self) -> bool:
        """Whether a program waits for its arguments, as it calls Python or runs for long."""
        return self._waits

    def in_one(self, settings: Settings, here: Callable[..., Any], thorough: Collection[Any], missed: Callable[..., Any]) -> Any:
        """What `here` does, in one function, for calls of which nothing is to be found out first: `call` without its parts.

        It goes to `here` where JAX is at work already, a setting has the function itself called, signatures are `thorough`,
        something is packed between calls, or an argument of a program that waits is no array of JAX's; to `missed(args, kwargs,
        whether JAX did not take them)` where JAX's call was not made.
        """
        disabled, nans, infs = settings.disabled, settings.nans, settings.infs
        trace, axes, no_trace, no_axes = self._trace, self._axes, self._no_trace, self._no_axes
        jit, array, begun, raised = self._jit, self._array, self._begun, self._raised
        failures = (*_FAILURES, self._failed)

        def call(*args: Any, **kwargs: Any) -> Any:
            if (
                disabled.value or nans.value or infs.value or trace.value is not no_trace or axes.value is not no_axes
                or started_in or thorough or self.has_packs
            ):  # fmt: skip
                return here(*args, **kwargs)
            if self._workers > 1:
                native_threads.have_workers(self._workers)
            if self._waits:
                for value in (*args, *kwargs.values()) if kwargs else args:
                    if type(value) is not array:
                        return here(*args, **kwargs)
                    value.block_until_ready()
            next(begun)
            try:
                results = jit(*args, **kwargs)
            except failures as e:
                return missed(args, kwargs, self._failed_with(e) is MISSED)
            if self._waits and raised.value:
                interrupts.raise_pending()
            return results

        return call


def _is_deleted(array: Any) -> bool:
    return bool(array.is_deleted())


def _idle(done: ctypes.c_int64, void: Iterator[int], begun: Iterator[int]) -> Callable[[], bool]:
    """Whether all calls that had begun have ended, by their counts, each of which is read by counting one more.

    In this order: what happens in between makes it seem that one is still on its way.
    """

    def is_idle() -> bool:
        ended = done.value
        left_out = next(void)
        return next(begun) == ended + left_out

    return is_idle


def _is_long(jax: Any, made: Any, leaves: Sequence[Any]) -> bool:
    """Whether a program has so many operations, as XLA counts them (of loops one turn), or elements that go in and out."""
    arrays = (*leaves, *made.lowered.out_avals)
    least = LONG + OF_A_LEAF * len(arrays)
    if sum(getattr(x, "size", 1) for x in arrays) >= least:
        return True
    from jax._src import lib

    try:
        _jax = vars(lib)["_jax"]
        module = _jax.mlir.mlir_module_to_xla_computation(made.lowered.text).as_hlo_module()
        counted = _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)
    except jax.errors.JaxRuntimeError as e:
        _log.info("its calls are waited for, as XLA does not count its operations: %s", e)
        return False
    return bool(counted.get("flops", 0.0) + counted.get("transcendentals", 0.0) >= least)


def _weight(jax: Any, raw: Sequence[Any]) -> list[Any]:
    """An operand that nobody reads, made by so many operations that XLA calls the program in a thread of its own."""
    lax = jax.lax
    some = next((x for x in raw if x.size and x.dtype.kind in "biufc"), None)
    if some is None:
        return []
    one = lax.convert_element_type(jax.numpy.real(some).reshape(-1)[0], np.float32)
    return [lax.mul(lax.iota(np.float32, _COUNTED), lax.broadcast(one, (_COUNTED,)))]


def _bound(
    jax: Any, made: Any, call: XlaCall, leaves: Sequence[Any], is_long: bool, numbers: Sequence[int] | None = None
) -> Any:
    """What JAX compiles for a call with these leaves; they are the program's arguments with the numbers `numbers`, or all."""
    raw = [jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]
    dtypes = made.dtypes if numbers is None else [made.dtypes[n] for n in numbers]
    if any(x.dtype != t for x, t in zip(raw, dtypes, strict=True)):
        raise NotReadyError
    avals = made.lowered.out_avals
    implementations: dict[int, Any] = {}

    def stored(k: int, key: Any) -> Any:
        implementations[k] = jax.random.key_impl(key)
        return jax.random.key_data(key)

    storage = [jax.eval_shape(functools.partial(stored, k), a) if _is_key(jax, a) else a for k, a in enumerate(avals)]
    wanted = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in storage]
    given = [*raw, *_weight(jax, raw)] if is_long else raw
    aliases = {argument: result for argument, result, _ in call.written_over}
    run = jax.ffi.ffi_call(TARGET, wanted, input_output_aliases=aliases)
    found = list(run(*given, **{ATTRIBUTE: np.int64(call.address)}))
    for k, aval in enumerate(avals):
        if k in implementations:
            found[k] = jax.random.wrap_key_data(found[k], impl=implementations[k])
        elif aval.weak_type:
            found[k] = _as_weak(found[k])
    return jax.tree_util.tree_unflatten(made.lowered.out_tree, found)


def _is_key(jax: Any, aval: Any) -> bool:
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))


def _as_weak(x: Any) -> Any:
    """The same value with a type that gives way to others'."""
    from jax._src.lax import lax

    return lax._convert_element_type(x, weak_type=True)


def _reason(jax: Any, made: Any, leaves: Sequence[Any]) -> str | None:
    """Why JAX cannot call a program, or None."""
    if jax.default_backend() != "cpu" or jax.local_device_count() != 1:
        return "there are other devices than one CPU"
    if made.token_results or any(t is None for t in made.dtypes):  # NumPy's float64 is equal to None
        return "a token is passed"
    avals = made.lowered.out_avals
    if not avals:
        return "there are no results, for whose sake XLA would run it"
    for t in [*made.dtypes, *(a.dtype for a in avals if not _is_key(jax, a))]:
        if not isinstance(t, np.dtype) or t.name not in _ALIKE:
            return f"XLA stores {t} otherwise, or not at all"
    large = [x for x in leaves if isinstance(x, np.ndarray) and x.nbytes >= COPIED_BYTES]
    return f"JAX would copy an argument of {large[0].nbytes} bytes" if large else None
