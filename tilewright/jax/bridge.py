"""JAX functions in: `tilewright.jit(f)` runs one, `tilewright.from_jax(f, *args)` gives its module.

JAX traces and lowers; everything after the StableHLO text is this project's. JAX's lowering for the CPU hides linear algebra
and random bits behind custom calls and loops, so functions are lowered for a neutral target, where `cholesky` and
`triangular_solve` stay ops and the random bits are plain arithmetic; what only the CPU's lowering knows (eigenvalues, singular
values, callbacks) is lowered for it, and its LAPACK calls run through SciPy (`tilewright.jax.lapack`).
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import codegen
import hlo
from codegen.call.ready import get_ready
from hlo.errors import Declined, TilewrightError
from hlo.logs import set_up_logs
from hlo.module import Module
from tilewright.jax import first_call
from tilewright.jax.again import tell
from tilewright.jax.calls.direct import Called, Direct
from tilewright.jax.calls.front import ELSEWHERE, MISSED, Front, NotReadyError
from tilewright.jax.calls.results import Results
from tilewright.jax.compiled import Compiled, Waiting
from tilewright.jax.inherited import started_in
from tilewright.jax.kept_programs import find, keep, own_digest
from tilewright.jax.lowering import Lowered, lower_all
from tilewright.jax.options import PLACING, Settings, elsewhere, no_number, take_in
from tilewright.jax.platform_name import PLATFORM
from tilewright.jax.saving import save_with_trees
from tilewright.jax.signatures import foreign, is_traced, meshes, signature, static_arguments
from tilewright.jax.stages import CompiledFunction, LoweredModule
from tilewright.jax.tokens import tokens_as_arrays
from tiling.planning.garbage import few_collections

__all__ = ["JaxError", "Jitted", "from_jax"]


_log = logging.getLogger("tilewright")


class JaxError(TilewrightError):
    """A JAX function that cannot be brought here, or no JAX to bring it with, or one whose threads are another process's."""


class StaticArgumentError(JaxError, ValueError):
    """A static argument that cannot be hashed: a ValueError, as JAX's."""


def _refuse_to_wait() -> NoReturn:
    raise JaxError(
        f"this is a child of process {started_in[0]} by a fork, made after JAX had started there: JAX's threads are not here, and"
        ' calls that need one would never end. Start processes with multiprocessing.get_context("spawn"), or call an Executable'
        " (`tilewright.compile`, or `.executable(...)` of a `tilewright.jit` function before the fork) on NumPy arrays"
    )


def _jax() -> Any:
    if started_in:
        _refuse_to_wait()
    try:
        import jax
    except ImportError as e:
        raise JaxError("this needs JAX, which is not installed: pip install 'tilewright[jax]'") from e
    return jax


# ---------------------------------------------------------------- lowering


def _staged(f: Any, **options: Any) -> tuple[Any, tuple[str, ...] | None]:
    """(what JAX traces, the platforms that are possible): an export was already lowered for those that it names."""
    jax = _jax()
    from jax import export

    if isinstance(f, export.Exported):
        return jax.jit(f.call, **{"keep_unused": True, **options}), tuple(f.platforms[:1])
    if not callable(f):
        raise JaxError(f"expected a function or a jax.export.Exported, found {type(f).__name__}")
    # A function that is jitted already is called inside; its own static arguments must be given here again.
    return jax.jit(f, **{"keep_unused": True, **options}), None


def from_jax(f: Any, /, *args: Any, static_argnums: Any = None, static_argnames: Any = None, **kwargs: Any) -> Module:
    """The verified `hlo.Module` of f(*args, **kwargs): what `jax.jit(f)` would compile, lowered for a neutral target.

    Arguments are arrays, `jax.ShapeDtypeStruct`s or trees of them; each array is one argument of the module, unused ones too.
    f may also be a `jax.export.Exported`: without `args` its module comes as exported, symbolic dimensions as `?`; with
    them, for those shapes. Raises JaxError without JAX or in a child of a fork made after JAX had started, and what JAX raises
    while tracing.

        import jax.numpy as jnp
        print(from_jax(jnp.tanh, jnp.ones(3)).root)
    """
    _jax()
    from jax import export

    if isinstance(f, export.Exported) and not args and not kwargs:
        module = hlo.parse(f.mlir_module(), "<jax>")
        hlo.verify(module)
        return module
    function, platforms = _staged(f, static_argnums=static_argnums, static_argnames=static_argnames)
    return lower_all(_jax(), function, platforms, args, kwargs).module


# ---------------------------------------------------------------- calling


class Jitted(Called):
    """A JAX function that Tilewright compiles at the first call with each signature (see `jit`).

    `executable(*args)` is the compiled program of a signature and `lower(*args)` its module; `cache_size` counts signatures.
    """

    def __init__(
        self, f: Any, output: str, threads: int | None, options: Mapping[str, Any],
        custom_calls: Mapping[str, Callable[..., Any]] | None = None, mesh: Any = None,
    ) -> None:  # fmt: skip
        if output not in ("jax", "numpy"):
            raise JaxError(f"output: expected 'jax' or 'numpy', found {output!r}")
        compiled = {name: value for name, value in options.items() if name not in PLACING}
        self._function, self._platforms = _staged(f, **compiled)
        self._plain = _staged(f, **options)[0] if len(compiled) < len(options) else self._function
        self._as_jax_has_it: Callable[[], Any] = lambda: _staged(f, **{"keep_unused": False, **options})[0]
        self._shardings = [options.get(name) for name in ("in_shardings", "out_shardings")]
        get_ready()
        own_digest()
        self._settings = Settings(_jax()._src.config)
        self._is_plain: bool | None = None
        self._output = output
        self._threads = threads
        self._custom_calls = dict(custom_calls or {})
        self._numbers, self._names = static_arguments(f, options.get("static_argnums"), options.get("static_argnames"))
        self._made: dict[Any, Compiled] = {}
        self._waiting: dict[Any, Waiting] = {}  # those whose first call was evaluated
        self._evaluated = 0
        self._compiled_last: Any = None  # the last signature
        self._donated = {name: options[name] for name in ("donate_argnums", "donate_argnames") if name in options}
        self._is_simple = self._shardings == [None, None]  # after JAX's own call nothing is left to do
        self._called: dict[Any, list[weakref.ref[Any] | None]] = {}  # by signature, the arrays of its first call
        self._here = functools.partial(_called, weakref.ref(self))
        # Before the front: it goes first, and with it what XLA holds of the front's programs.
        self._direct = Direct(_jax(), self, self._here, Jitted._try_direct, self._numbers, self._names)
        self.set_call(self._here)
        self._front: Front | None = None
        self._thorough: set[Any] = set()  # signatures that JAX's own call does not take
        self._has_front = output == "jax" and min(self._numbers, default=0) >= 0
        self._spread: Any = None
        its_meshes = meshes(_jax(), self._shardings, mesh)
        if its_meshes:
            from tilewright.jax.spread import SpreadFunction, one_mesh

            its_mesh = one_mesh(its_meshes)
            spread_options = {name: value for name, value in options.items() if name not in ("donate_argnums", "donate_argnames")}
            function, platforms = _staged(f, **spread_options)
            where = self._numbers, self._names
            self._spread = SpreadFunction(function, platforms, its_mesh, *where, threads, self._custom_calls)
        self._lock = threading.RLock()  # the traced function may call itself on other shapes, as in JAX
        if callable(f):
            # Without f's own attributes: f may be made from another Jitted, whose programs these are not.
            functools.update_wrapper(self, f, updated=())

    def __repr__(self) -> str:
        return f"<tilewright.jit of {getattr(self, '__wrapped__', None) or self._function!r}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @property
    def cache_size(self) -> int:
        """How many signatures were compiled."""
        return len(self._made) + len(self._waiting)

    @property
    def evaluated_calls(self) -> int:
        """How many calls the evaluator has run while kernels were compiled: at most the first of each signature."""
        return self._evaluated

    def clear_cache(self) -> None:
        """Forgets the compiled programs. The kernels stay in the disk cache."""
        with self._lock:
            self._made.clear()
            self._waiting.clear()
            self._called.clear()
            self._thorough.clear()
            self._front = None
            self._direct.set_here(self._here)
            self._direct.end()
            self._direct.is_over = False
            for function in (self._function, self._plain):
                function.clear_cache()

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """JAX's trace of a call with these arguments."""
        return self._function.trace(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The tree of results as `jax.ShapeDtypeStruct`s, without a program."""
        return self._function.eval_shape(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> LoweredModule:
        """The module for these arguments, which has `compile` and what else there is of JAX's `Lowered`."""
        jax = _jax()
        module = lower_all(jax, self._function, self._platforms, args, kwargs).module

        def compiled(stage: Any) -> CompiledFunction:
            made = self.executable(*args, **kwargs)
            return CompiledFunction(jax, self, stage, made, args, kwargs, self._numbers, self._names)

        return LoweredModule.of(module, lambda: self._as_jax_has_it().lower(*args, **kwargs), compiled)

    def executable(self, *args: Any, **kwargs: Any) -> Any:
        """The `codegen.Executable` for these arguments: its plan, kernels, source and what runs in the evaluator."""
        if self._spread is not None:
            return self._spread.compiled(_jax(), args, kwargs)[0].executable
        leaves, key = self._signature(args, kwargs)
        return self._compiled(leaves, key, args, kwargs).executable

    def save(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Writes the program for these arguments as a file: `tilewright.load(path)` is called as this function, without JAX.

        Its results are NumPy's arrays in the function's own tree. Raises JaxError for static arguments, TreeOfFileError for trees
        of types that are not Python's own, and what `Executable.save` raises.
        """
        self._save(path, [(args, kwargs)], ())

    def save_for(
        self, path: str | os.PathLike[str], calls: Sequence[tuple[Any, ...]], targets: Sequence[str] = ()
    ) -> None:
        """The same for several sets of shapes: `calls` are the arguments of one call each, and what is loaded chooses by its own.

        `targets` are the CPUs, as those of `Executable.save`. Raises ValueError for no calls, and what `save` raises.
        """
        if not calls:
            raise ValueError("calls: expected the arguments of at least one call")
        self._save(path, [(tuple(args), {}) for args in calls], targets)

    def _save(
        self, path: str | os.PathLike[str], calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]], targets: Sequence[str]
    ) -> None:
        if self._numbers or self._names:
            raise JaxError("static arguments are not arrays, and a file takes arrays alone: bind them first (functools.partial)")
        rows = []
        for args, kwargs in calls:
            leaves, key = self._signature(args, kwargs)
            rows.append((self._compiled(leaves, key, args, kwargs), args, kwargs))
        save_with_trees(_jax(), path, rows, targets)

    # ------------------------------------------------------------ signatures

    def _signature(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], is_front: bool = False) -> tuple[list[Any], Any]:
        return signature(_jax(), args, kwargs, self._numbers, self._names, is_front)

    def _compiled(self, leaves: list[Any], key: Any, args: Any, kwargs: Any, is_call: bool = False) -> Compiled:
        """The compiled program of a signature; with `is_call` it may be one that the evaluator runs, for this call alone."""
        try:
            found = self._made.get(key)
        except TypeError as e:
            raise StaticArgumentError(f"static arguments must be hashable: {e}") from None
        if found is None:
            with self._lock, few_collections():  # JAX's jaxprs and modules are kept until it is done, as plans are
                found = self._made.get(key)
                if found is None:
                    found = self._begun(leaves, key, args, kwargs) if is_call else None
                if found is None:
                    set_up_logs()
                    tell(getattr(self, "__name__", "a function"), self._compiled_last, key)
                    self._compiled_last = key
                    found = self._made[key] = self._compile(key, args, kwargs)
                    self._waiting.pop(key, None)
        return found

    def _begun(self, leaves: list[Any], key: Any, args: Any, kwargs: Any) -> Compiled | None:
        """The evaluator as a signature's program, which is compiled later; None where it is to be compiled now."""
        if self._custom_calls or key in self._waiting:
            return None
        lowered = self._lowered(args, kwargs)
        waiting = self._waiting[key] = Waiting(lowered, Results(_jax(), lowered.out_avals, self._output))
        if lowered.has_callbacks or lowered.kept is not None:
            return None
        name = lowered.module.function().name
        later = first_call.begin(lowered.module, name, self._threads)
        if isinstance(later, Declined):
            return None
        waiting.later = later

        def run(*arrays: Any) -> tuple[Any, ...]:
            results = first_call.evaluated(lowered.module, name, arrays, later)
            if not isinstance(results, Declined):
                self._evaluated += 1
                return results
            made: tuple[Any, ...] = self._compiled(leaves, key, args, kwargs).executable(*arrays)
            return made

        return Compiled.of(lowered, run, waiting.results)

    def _lowered(self, args: Any, kwargs: Any) -> Lowered:
        jax = _jax()
        args, kwargs = jax.tree_util.tree_map(lambda leaf: foreign(jax, leaf), (args, kwargs))
        look_up = (lambda text: None) if self._custom_calls else (lambda text: find(text, self._threads))
        return lower_all(jax, self._function, self._platforms, args, kwargs, look_up)

    def _compile(self, key: Any, args: Any, kwargs: Any) -> Compiled:
        waiting = self._waiting.get(key)
        if waiting is None:
            lowered = self._lowered(args, kwargs)
            waiting = Waiting(lowered, Results(_jax(), lowered.out_avals, self._output))
        lowered = waiting.lowered
        if waiting.later is None:
            self._waiting.pop(key, None)  # what fails from here on begins anew
        else:
            waiting.later.wait()

        def make() -> Any:
            calls = {**lowered.custom_calls, **self._custom_calls}
            tokens_as_arrays(lowered.module)
            name = lowered.module.function().name
            return codegen.compile(lowered.module, name, threads=self._threads, custom_calls=calls, donate=True)

        kept = lowered.kept or (find(lowered.text, self._threads) if waiting.later is not None else None)
        executable = kept.executable(make, self._threads) if kept is not None else Declined("it is not kept")
        if isinstance(executable, Declined):
            executable = make()
            if not self._custom_calls and not lowered.has_callbacks:
                keep(lowered.module, self._threads, executable)
        return Compiled.of(lowered, executable, waiting.results)

    # ------------------------------------------------------------ the call

    def _try_direct(self, args: Any, kwargs: Any) -> Any:
        front, settings = self._front, self._settings
        if front is None or not front.pending or settings.disabled.value or settings.nans.value or settings.infs.value:
            return None
        _, key = self._signature(args, kwargs)
        made = self._made.get(key) if key is not None else None
        return None if made is None else front.try_direct(made, args, kwargs)

    def _placed_call(self, args: Any, kwargs: Any) -> Any:
        jax = _jax()
        found = elsewhere(jax, self._shardings)
        if found is not None:
            raise JaxError(f"shardings: expected some on {jax.devices()[0]} alone, found {found}")
        results = self._call(args, kwargs)
        out = self._shardings[1]
        return results if out is None else jax.device_put(results, out)

    def _call(self, args: Any, kwargs: Any) -> Any:
        if self._settings.nans.value or self._settings.infs.value:
            return self._checked(args, kwargs)
        front = self._front
        if self._thorough and self._is_thorough(args, kwargs):
            front = None
        found = front.call(args, kwargs) if front is not None else ELSEWHERE
        if found is not ELSEWHERE and found is not MISSED:
            if front is not None and front.is_due():
                self._look(front, args, kwargs)
            return found
        return self._thorough_call(args, kwargs, found is MISSED)

    def _look(self, front: Front, args: Any, kwargs: Any) -> None:
        leaves, key = self._signature(args, kwargs)
        front.look(self._made.get(key), (args, kwargs), leaves, key[0])

    def _thorough_call(self, args: Any, kwargs: Any, is_missed: bool) -> Any:
        jax = _jax()
        leaves, key = self._signature(args, kwargs)
        if key is None:  # inside another JAX transformation: JAX goes on tracing
            return self._plain(*args, **kwargs)
        if self._settings.guard.value not in (None, "allow"):
            take_in(jax, leaves)
        made = self._compiled(leaves, key, args, kwargs, is_call=True)
        front = self._front_of(made, key, leaves, is_missed) if self._has_front else None
        if front is not None:
            found = front.call(args, kwargs)
            if found is MISSED:  # although it has the program
                with self._lock:
                    self._thorough.add(key)
            elif found is not ELSEWHERE:
                if front.has_packs:
                    front.look(made, (args, kwargs), leaves, key[0])
                made.delete_donated(leaves)
                return found
        results = made.results_of(jax, leaves)
        made.delete_donated(leaves)
        return jax.tree_util.tree_unflatten(made.lowered.out_tree, made.results(results))

    def _is_platforms(self) -> bool:
        """Whether JAX's arrays are this compiler's own (`tilewright.pjrt`), and nothing is asked for that JAX's call has not."""
        if self._is_plain is None:
            is_own = _jax().default_backend() == PLATFORM
            self._is_plain = is_own and self._output == "jax" and self._threads is None and not self._custom_calls
        return self._is_plain

    def _checked(self, args: Any, kwargs: Any) -> Any:
        """The results, with `jax_debug_nans` or `jax_debug_infs` set. Raises FloatingPointError where one is none of a number.

        As with `jax.jit` the function is then called again op by op, whose error names the op.
        """
        jax = _jax()
        with jax.debug_nans(False), jax.debug_infs(False):
            results = self._thorough_call(args, kwargs, False)
        found = no_number(jax, results, self._settings.nans.value, self._settings.infs.value)
        if found is not None:
            with jax.disable_jit():
                self._function(*args, **kwargs)
            raise FloatingPointError(f"invalid value ({found}) encountered in {self!r}")
        return results

    def _is_thorough(self, args: Any, kwargs: Any) -> bool:
        """Whether a call's signature is one that JAX's own call does not take: only then it is worth the time to find out."""
        _, key = self._signature(args, kwargs)
        try:
            return key in self._thorough
        except TypeError:  # the thorough way says what is wrong with it
            return True

    def _front_of(self, made: Compiled, key: Any, leaves: Sequence[Any], is_missed: bool) -> Front | None:
        """The front that has this program and is to be asked (again), from the second call with its signature on; or None."""
        jax = _jax()
        with self._lock:
            if key not in self._called:
                self._called[key] = [weakref.ref(x) if isinstance(x, jax.Array) else None for x in leaves]
                return None
            if key in self._thorough:
                return None
            front = self._front or self._new_front()
            if front.program(made) is not None:
                return front if is_missed else None
            added = front.add(made, leaves)
            if front.has_packs and not self._direct.is_over:
                # What is kept between calls asks which are on their way, and JAX's native ones are not counted.
                was_on = self._direct.is_on
                self._direct.end()
                if was_on:
                    front = self._new_front()
                    added = front.add(made, leaves)
            if isinstance(added, Declined):
                _log.info("%s is not called through JAX's own call with one signature: %s", self, added.reason)
                self._thorough.add(key)
                return None
            if self._is_simple and front is not self._front:
                missed = functools.partial(_missed, weakref.ref(self))
                self._direct.set_here(front.in_one(self._settings, self._here, self._thorough, missed))
            self._front = front
            if front.has_packs:  # so that what stays the same is packed in this call, which is long anyway, and in none after it
                front.look(made, None, [x and x() for x in self._called[key]], key[0])
            if self._is_simple and front.pending:
                self._direct.begin(front.waiting if front.waits else None)
            return front

    def _new_front(self) -> Front:
        """A front for this function's programs, which it finds as long as there is the function."""
        jax, own = _jax(), weakref.ref(self)

        def bind(*args: Any, **kwargs: Any) -> Any:
            mine = own()
            assert mine is not None, "called by itself alone"
            leaves, key = mine._signature(args, kwargs, is_front=True)
            made, front = mine._made.get(key), mine._front
            if made is None or front is None:
                raise NotReadyError
            return front.bound(made, leaves)

        return Front(jax, bind, self._numbers, self._names, self._donated)


def _missed(own: weakref.ref[Jitted], args: Any, kwargs: Any, is_missed: bool) -> Any:
    self = own()
    assert self is not None, "it is called"
    return self._thorough_call(args, kwargs, is_missed)


def _called(own: weakref.ref[Jitted], /, *args: Any, **kwargs: Any) -> Any:
    self = own()
    assert self is not None, "it is called"
    if started_in:
        _refuse_to_wait()
    front, settings = self._front, self._settings
    is_checked = settings.disabled.value or settings.nans.value or settings.infs.value
    if front is not None and self._is_simple and not (is_checked or self._thorough):
        found = front.call(args, kwargs)
        if found is ELSEWHERE or found is MISSED:
            return self._thorough_call(args, kwargs, found is MISSED)
        if front.has_packs and front.is_due():
            self._look(front, args, kwargs)
        return found
    if settings.disabled.value or self._is_platforms():  # the function itself, or JAX's own call on this compiler
        return self._plain(*args, **kwargs)
    if self._spread is not None:
        if is_traced(_jax(), args, kwargs):  # inside another JAX transformation: JAX goes on tracing
            return self._plain(*args, **kwargs)
        return self._spread(_jax(), args, kwargs)
    if self._shardings != [None, None]:
        return self._placed_call(args, kwargs)
    return self._call(args, kwargs)
