"""JAX functions in: `tilewright.jit(f)` runs one, `tilewright.from_jax(f, *args)` gives its module.

JAX traces and lowers; everything after the StableHLO text is this project's. JAX's lowering for the CPU hides linear algebra
and random bits behind custom calls and loops, so functions are lowered for a neutral target, where `cholesky` and
`triangular_solve` stay ops and the random bits are plain arithmetic; what only the CPU's lowering knows (eigenvalues, singular
values, callbacks) is lowered for it, and its LAPACK calls run through SciPy (`tilewright.lapack`).
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

import codegen
import hlo
from codegen.call.ready import get_ready
from hlo.errors import Declined, TilewrightError
from hlo.module import Module
from hlo.types import TensorType, TokenType
from tilewright import first_call
from tilewright.jax_front import ELSEWHERE, MISSED, Front, NotReadyError, bound
from tilewright.jax_results import Results
from tilewright.kept_programs import Kept, donated, find, keep, own_digest
from tilewright.lapack import CUSTOM_CALLS
from tiling.planning.garbage import few_collections

__all__ = ["JaxError", "Jitted", "from_jax", "jit"]


_log = logging.getLogger("tilewright")


class JaxError(TilewrightError):
    """A JAX function that cannot be brought here, or no JAX to bring it with."""


# What only the CPU's lowering has, what other targets spell out as long iterations, and branches that name the CPU.
_CPU_ONLY = frozenset(
    "svd eigh eig schur hessenberg tridiagonal pure_callback"
    " io_callback debug_callback debug_print lu_pivots_to_permutation_cpu geqp3 platform_index".split()
)
_NEUTRAL, _CPU = "tpu", "cpu"
_CALLBACK_TARGETS = ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback")


def _jax() -> Any:
    try:
        import jax
    except ImportError as e:
        raise JaxError("this needs JAX, which is not installed: pip install 'tilewright[jax]'") from e
    return jax


# ---------------------------------------------------------------- lowering


@dataclass(eq=False)
class _Lowered:
    """A program's text with what surrounds it: the tree of its results, their types, its callbacks, what the disk cache has."""

    text: str
    out_tree: Any
    out_avals: tuple[Any, ...]
    custom_calls: Mapping[str, Callable[..., Any]]
    has_callbacks: bool
    kept: Kept | None
    parsed: Module | None  # None for one that is kept, until it is asked for

    @property
    def module(self) -> Module:
        if self.parsed is None:
            self.parsed = first_call.parsed(self.text)
        return self.parsed

    @property
    def donated(self) -> tuple[bool, ...]:
        """Of each argument that is an array."""
        return self.kept.donated if self.kept is not None else donated(self.module)


def _primitives(jaxpr: Any, found: set[str]) -> set[str]:
    """The names of all primitives in a jaxpr and in those inside it; a choice by platform counts where one is the CPU."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name != "platform_index" or _CPU in str(eqn.params.get("platforms")):
            found.add(eqn.primitive.name)
        for value in eqn.params.values():
            for v in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(v, "jaxpr", v)
                if hasattr(inner, "eqns"):
                    _primitives(inner, found)
    return found


def _lower(
    traced: Any, platforms: Iterable[str] | None, look_up: Callable[[str], Kept | None]
) -> tuple[Any, str, Kept | None, Module | None]:
    """(JAX's lowering for the first platform that works, its text, what is kept of that, else the module parsed from it)."""
    if platforms is None:
        names = _primitives(traced.jaxpr.jaxpr, set())
        platforms = (_CPU,) if names & _CPU_ONLY else (_NEUTRAL, _CPU)
    platforms = tuple(platforms)
    for k, platform in enumerate(platforms):
        try:
            lowered = traced.lower(lowering_platforms=(platform,))
        except (NotImplementedError, ValueError):
            # The neutral target lacks the primitive; the CPU is the next, and its error is the one to show.
            if k == len(platforms) - 1:
                raise
            continue
        text = _text(lowered)
        kept = None if _callbacks(lowered) else look_up(text)
        module = None if kept is not None else first_call.parsed(text)
        if module is None or k == len(platforms) - 1 or not _unknown_targets(module):
            return lowered, text, kept, module
    raise AssertionError("no platform to lower for")


def _text(lowered: Any) -> str:
    state = lowered._lowering.compile_args.get("shape_poly_state")
    if state is not None and state.uses_dim_vars:
        # An export with symbolic dimensions, called with known ones: JAX's own pass puts the numbers in.
        from jax._src.interpreters import mlir

        refined = lowered.compiler_ir("stablehlo")
        with refined.context:
            return str(mlir.module_to_string(mlir.refine_polymorphic_shapes(refined.operation.clone())))
    return str(lowered.as_text())


def _unknown_targets(module: Module) -> list[str]:
    known = {
        *CUSTOM_CALLS,
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "annotate_device_placement",
        "shape_assertion",
    }
    return [t for f in module.functions.values() for t in _targets(f.body) if t not in known]


def _targets(block: Any) -> Iterable[str]:
    for op in block.ops:
        if op.name == "stablehlo.custom_call":
            yield str(op.attr("call_target_name"))
        for region in op.regions:
            yield from _targets(region)


def _callbacks(lowered: Any) -> dict[str, Callable[..., Any]]:
    """The program's Python callbacks, as the evaluator calls them: by the number that JAX gave each."""
    functions = lowered._lowering.compile_args.get("host_callbacks") or ()
    if not functions:
        return {}

    def call(op: Any, *operands: Any) -> Any:
        number = op.extra["mhlo.backend_config"]["index"]
        results = functions[int(getattr(number, "value", number))](*operands) or ()  # a token, where ordered, is None
        return tuple(
            None if isinstance(r.type, TokenType) else np.asarray(x, r.type.dtype)
            for x, r in zip(results, op.results, strict=True)
        )

    return dict.fromkeys(_CALLBACK_TARGETS, call)


def _lower_all(
    function: Any, platforms: Iterable[str] | None, args: Any, kwargs: Any,
    look_up: Callable[[str], Kept | None] = lambda text: None,
) -> _Lowered:  # fmt: skip
    jax = _jax()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        began = time.perf_counter()
        traced = function.trace(*args, **kwargs)
        done = time.perf_counter()
        lowered, text, kept, module = _lower(traced, platforms, look_up)
    _log.info(
        "%.3f s for JAX's trace, %.3f s to lower it and to %s", done - began, time.perf_counter() - done,
        "find it in the disk cache" if kept is not None else "parse it",
    )  # fmt: skip
    out_avals, out_tree = jax.tree_util.tree_flatten(traced.out_info)
    callbacks = _callbacks(lowered)
    return _Lowered(text, out_tree, tuple(out_avals), {**CUSTOM_CALLS, **callbacks}, bool(callbacks), kept, module)


def _staged(f: Any, **options: Any) -> tuple[Any, tuple[str, ...] | None]:
    """(what JAX traces, the platforms that are possible): an export was already lowered for those that it names."""
    jax = _jax()
    from jax import export

    if isinstance(f, export.Exported):
        return jax.jit(f.call, keep_unused=True, **options), tuple(f.platforms[:1])
    if not callable(f):
        raise JaxError(f"expected a function or a jax.export.Exported, found {type(f).__name__}")
    # A function that is jitted already is called inside; its own static arguments must be given here again.
    return jax.jit(f, keep_unused=True, **options), None


def from_jax(f: Any, /, *args: Any, static_argnums: Any = None, static_argnames: Any = None, **kwargs: Any) -> Module:
    """The verified `hlo.Module` of f(*args, **kwargs): what `jax.jit(f)` would compile, lowered for a neutral target.

    Arguments are arrays, `jax.ShapeDtypeStruct`s or trees of them; each array is one argument of the module, unused ones too.
    f may also be a `jax.export.Exported`: without `args` its module comes as exported, symbolic dimensions as `?`; with
    them, for those shapes. Raises JaxError without JAX, and what JAX raises while tracing.

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
    return _lower_all(function, platforms, args, kwargs).module


# ---------------------------------------------------------------- calling


def _numbers(value: Any) -> tuple[int, ...]:
    return () if value is None else (value,) if isinstance(value, int) else tuple(value)


def _names(value: Any) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _static(f: Any, numbers: Any, names: Any) -> tuple[frozenset[int], frozenset[str]]:
    """Static positions and names; where only one of the two is given, the other follows from f's signature, as in JAX."""
    given_numbers, given_names = _numbers(numbers), _names(names)
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return frozenset(given_numbers), frozenset(given_names)
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if numbers is None and given_names:
        given_numbers = tuple(k for k, n in enumerate(positional) if n in given_names)
    if names is None and given_numbers:
        given_names = tuple(positional[k] for k in given_numbers if -len(positional) <= k < len(positional))
    return frozenset(given_numbers), frozenset(given_names)


_CONFIGURATION = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion", "jax_explicit_x64_dtypes",
)  # fmt: skip


_SETTLING_RUNS, _SETTLING_SECONDS = 3, 0.1

_Static = tuple[tuple[tuple[int, type, Any], ...], tuple[tuple[str, type, Any], ...]]
_NO_STATIC: _Static = ((), ())


@dataclass(frozen=True, eq=False)
class _Compiled:
    lowered: _Lowered
    executable: Any
    dtypes: tuple[np.dtype[Any] | None, ...]  # of each argument; None for a token
    token_results: int
    donated: tuple[int, ...]  # numbers of the leaves
    results: Results

    @classmethod
    def of(cls, lowered: _Lowered, executable: Any, results: Results) -> _Compiled:
        dtypes: tuple[np.dtype[Any] | None, ...]
        if lowered.kept is not None:
            dtypes, tokens = lowered.kept.dtypes, 0
        else:
            main = lowered.module.function()
            dtypes = tuple(v.type.dtype if isinstance(v.type, TensorType) else None for v in main.arguments)
            tokens = sum(isinstance(t, TokenType) for t in main.result_types)
        donated = tuple(k for k, is_donated in enumerate(lowered.donated) if is_donated)
        return cls(lowered, executable, dtypes, tokens, donated, results)

    def delete_donated(self, leaves: Sequence[Any]) -> None:
        """Deletes the arrays of JAX among a call's leaves that JAX could have reused for its results."""
        for k in self.donated:
            if not isinstance(leaves[k], np.ndarray) and hasattr(leaves[k], "delete"):
                leaves[k].delete()


@dataclass(eq=False)
class _Waiting:
    """A program that is lowered and not compiled here yet; `ahead` is the process that compiles it, if any."""

    lowered: _Lowered
    results: Results
    ahead: first_call.Ahead | None = None


class Jitted:
    """A JAX function that Tilewright compiles at the first call with each signature (see `jit`).

    `executable(*args)` is the compiled program of a signature and `lower(*args)` its module; `cache_size` counts signatures.
    """

    def __init__(
        self, f: Any, output: str, threads: int | None, options: Mapping[str, Any],
        custom_calls: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:  # fmt: skip
        if output not in ("jax", "numpy"):
            raise JaxError(f"output: expected 'jax' or 'numpy', found {output!r}")
        self._function, self._platforms = _staged(f, **options)
        get_ready()
        own_digest()
        self._output = output
        self._threads = threads
        self._custom_calls = dict(custom_calls or {})
        self._numbers, self._names = _static(f, options.get("static_argnums"), options.get("static_argnames"))
        self._made: dict[Any, _Compiled] = {}
        self._waiting: dict[Any, _Waiting] = {}  # those whose first call was evaluated
        self._evaluated = 0
        self._donates = not {"donate_argnums", "donate_argnames"}.isdisjoint(options)
        self._called: set[Any] = set()  # signatures
        self._unsettled: set[Any] = set()  # signatures whose kernels another process made, and that have not run yet
        self._front: Front | None = None
        self._has_front = output == "jax" and min(self._numbers, default=0) >= 0
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
            self._unsettled.clear()
            self._front = None

    def lower(self, *args: Any, **kwargs: Any) -> Module:
        """The module for these arguments."""
        return _lower_all(self._function, self._platforms, args, kwargs).module

    def executable(self, *args: Any, **kwargs: Any) -> Any:
        """The `codegen.Executable` for these arguments: its plan, kernels, source and what runs in the evaluator."""
        leaves, key = self._signature(args, kwargs)
        return self._compiled(leaves, key, args, kwargs).executable

    # ------------------------------------------------------------ signatures

    def _signature(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], is_front: bool = False
    ) -> tuple[list[Any], Any]:
        """(arrays in order, key): the key holds all that the compiled program depends on; None where JAX is tracing.

        JAX traces for the front, too: then what is traced is the call itself, and the key is the one of its arguments.
        """
        jax = _jax()
        dynamic: Sequence[Any] = args
        named, static = kwargs, _NO_STATIC
        if self._numbers or self._names:
            static_numbers = {n % len(args) if args and n < 0 else n for n in self._numbers}
            dynamic = [a for k, a in enumerate(args) if k not in static_numbers]
            named = {k: v for k, v in kwargs.items() if k not in self._names}
            static = (
                tuple((k, type(a), a) for k, a in enumerate(args) if k in static_numbers),
                tuple(sorted(((k, type(v), v) for k, v in kwargs.items() if k in self._names), key=lambda s: s[0])),
            )
        leaves, tree = jax.tree_util.tree_flatten((tuple(dynamic), named))
        types = []
        is_traced = False
        for k, leaf in enumerate(leaves):
            if type(leaf) in _CONCRETE:
                types.append((leaf.shape, leaf.dtype, leaf.weak_type))
                continue
            leaf = leaves[k] = _foreign(jax, leaf)
            is_traced = is_traced or (isinstance(leaf, jax.core.Tracer) and not is_front)
            if not is_traced:
                types.append(_type(jax, leaf))
        if is_traced:
            return leaves, None
        config = tuple(getattr(jax.config, name, None) for name in _CONFIGURATION)
        return leaves, (tree, tuple(types), len(args), static, config)

    def _compiled(self, leaves: list[Any], key: Any, args: Any, kwargs: Any, is_call: bool = False) -> _Compiled:
        """The compiled program of a signature; with `is_call` it may be one that the evaluator runs, for this call alone."""
        try:
            found = self._made.get(key)
        except TypeError as e:
            raise JaxError(f"static arguments must be hashable: {e}") from None
        if found is None:
            with self._lock, few_collections():  # JAX's jaxprs and modules are kept until it is done, as plans are
                found = self._made.get(key)
                if found is None:
                    found = self._begun(leaves, key, args, kwargs) if is_call else None
                if found is None:
                    found = self._made[key] = self._compile(key, args, kwargs)
                    self._waiting.pop(key, None)
        return found

    def _begun(self, leaves: list[Any], key: Any, args: Any, kwargs: Any) -> _Compiled | None:
        """The evaluator as a signature's program, while another process compiles it; None where it is to be compiled now."""
        if self._custom_calls or key in self._waiting:
            return None
        lowered = self._lowered(args, kwargs)
        waiting = self._waiting[key] = _Waiting(lowered, Results(_jax(), lowered.out_avals, self._output))
        if lowered.has_callbacks or lowered.kept is not None:
            return None
        name = lowered.module.function().name
        ahead = first_call.begin(lowered.module, name, self._threads)
        if isinstance(ahead, Declined):
            return None
        waiting.ahead = ahead

        def run(*arrays: Any) -> tuple[Any, ...]:
            results = first_call.evaluated(lowered.module, name, arrays, ahead)
            if not isinstance(results, Declined):
                self._evaluated += 1
                return results
            made: tuple[Any, ...] = self._compiled(leaves, key, args, kwargs).executable(*arrays)
            return made

        return _Compiled.of(lowered, run, waiting.results)

    def _lowered(self, args: Any, kwargs: Any) -> _Lowered:
        jax = _jax()
        args, kwargs = jax.tree_util.tree_map(lambda leaf: _foreign(jax, leaf), (args, kwargs))
        look_up = (lambda text: None) if self._custom_calls else (lambda text: find(text, self._threads))
        return _lower_all(self._function, self._platforms, args, kwargs, look_up)

    def _compile(self, key: Any, args: Any, kwargs: Any) -> _Compiled:
        waiting = self._waiting.get(key)
        if waiting is None:
            lowered = self._lowered(args, kwargs)
            waiting = _Waiting(lowered, Results(_jax(), lowered.out_avals, self._output))
        lowered = waiting.lowered
        if waiting.ahead is None:
            self._waiting.pop(key, None)  # what fails from here on begins anew
        else:
            waiting.ahead.wait()
            self._unsettled.add(key)

        def make() -> Any:
            calls = {**lowered.custom_calls, **self._custom_calls}
            return codegen.compile(lowered.module, lowered.module.function().name, threads=self._threads, custom_calls=calls)

        kept = lowered.kept or (find(lowered.text, self._threads) if waiting.ahead is not None else None)
        executable = kept.executable(make, self._threads) if kept is not None else Declined("it is not kept")
        if isinstance(executable, Declined):
            executable = make()
            if not self._custom_calls and not lowered.has_callbacks:
                keep(lowered.module, self._threads, executable)
        return _Compiled.of(lowered, executable, waiting.results)

    # ------------------------------------------------------------ the call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        front = self._front
        found = front.call(args, kwargs) if front is not None else ELSEWHERE
        if found is not ELSEWHERE and found is not MISSED:
            if self._donates:
                leaves, key = self._signature(args, kwargs)
                made = self._made.get(key)
                if made is not None:  # the cache may have been cleared meanwhile
                    made.delete_donated(leaves)
            return found
        jax = _jax()
        leaves, key = self._signature(args, kwargs)
        if key is None:  # inside another JAX transformation: JAX goes on tracing
            return self._function(*args, **kwargs)
        made = self._compiled(leaves, key, args, kwargs, is_call=True)
        if self._has_front and self._goes_to_front(made, key, leaves, found is MISSED):
            front = self._front
            assert front is not None
            found = self._settled(key, lambda: front.call(args, kwargs))
            if found is not ELSEWHERE and found is not MISSED:
                made.delete_donated(leaves)
                return found
        given = iter(leaves)
        arrays = [None if t is None else _array(jax, next(given), t) for t in made.dtypes]
        results = self._settled(key, lambda: made.executable(*arrays))[made.token_results :]
        made.delete_donated(leaves)
        return jax.tree_util.tree_unflatten(made.lowered.out_tree, made.results(results))

    def _settled(self, key: Any, call: Callable[[], Any]) -> Any:
        """What a call gives; where it has waited for its kernels, after some runs of them that nobody sees.

        They find memory for arguments, results and what lies between: later calls, which somebody may time, are then alike.
        Programs that have waited do nothing beside giving results (`first_call.begin`).
        """
        results = call()
        if key in self._unsettled and key in self._made:
            self._unsettled.discard(key)
            began = time.perf_counter()  # JAX has traced the call only now
            previous = results  # held meanwhile, as a caller has one call's results during the next
            for _ in range(_SETTLING_RUNS):
                if time.perf_counter() - began < _SETTLING_SECONDS:
                    previous = call()
            del previous
        return results

    def _goes_to_front(self, made: _Compiled, key: Any, leaves: Sequence[Any], is_missed: bool) -> bool:
        """True when the front has just got this program, at its second call. A front that misses what it has is given up."""
        with self._lock:
            if key not in self._called:
                self._called.add(key)
                return False
            if self._front is not None and self._front.program(made) is not None:
                if is_missed:
                    self._front, self._has_front = None, False
                return False
            front = self._front or self._new_front()
            added = front.add(made, leaves)
            if isinstance(added, Declined):
                _log.info("%s is not called through JAX's own call: %s", self, added.reason)
                self._front, self._has_front = None, False
                return False
            self._front = front
            return True

    def _new_front(self) -> Front:
        """A front for this function's programs, which it finds as long as there is the function."""
        jax, own = _jax(), weakref.ref(self)

        def bind(*args: Any, **kwargs: Any) -> Any:
            mine = own()
            assert mine is not None, "called by itself alone"
            leaves, key = mine._signature(args, kwargs, is_front=True)
            made, front = mine._made.get(key), mine._front
            call = front.program(made) if front is not None else None
            if made is None or call is None:
                raise NotReadyError
            return bound(jax, made, call, leaves)

        return Front(jax, bind, self._numbers, self._names)


def _foreign(jax: Any, leaf: Any) -> Any:
    """An array of another library as NumPy's, through DLPack or the buffer protocol, not copied; anything else as it is."""
    if isinstance(leaf, np.ndarray | np.generic | jax.Array | jax.core.Tracer | bool | int | float | complex):
        return leaf
    if hasattr(leaf, "__dlpack__"):
        return np.from_dlpack(leaf)
    if isinstance(leaf, str | bytes | bytearray):
        return leaf  # text has bytes, too, but is no array: JAX says so
    try:
        return np.asarray(memoryview(leaf))
    except (TypeError, ValueError):  # no buffer, or of elements that NumPy does not know
        return leaf


_CONCRETE: set[type] = set()
"""The types of JAX's arrays that were seen: asking whether one is an array costs more than all else about it."""


def _type(jax: Any, leaf: Any) -> Any:
    aval = jax.typeof(leaf)
    is_array = isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
    if is_array and isinstance(leaf.dtype, np.dtype) and hasattr(leaf, "weak_type"):
        _CONCRETE.add(type(leaf))
    return aval.shape, aval.dtype, aval.weak_type


def _array(jax: Any, leaf: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """The elements of an argument; the leaf's own memory where type and layout allow."""
    if not isinstance(getattr(leaf, "dtype", dtype), np.dtype) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    a = np.asarray(leaf)
    return a if a.dtype == dtype else a.astype(dtype)


@overload
def jit(
    f: Any,
    /,
    *,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    output: str = "jax",
    threads: int | None = None,
    custom_calls: Mapping[str, Callable[..., Any]] | None = None,
) -> Jitted: ...


@overload
def jit(
    *,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    output: str = "jax",
    threads: int | None = None,
    custom_calls: Mapping[str, Callable[..., Any]] | None = None,
) -> Callable[[Any], Jitted]: ...


def jit(
    f: Any = None,
    /,
    *,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    output: str = "jax",
    threads: int | None = None,
    custom_calls: Mapping[str, Callable[..., Any]] | None = None,
) -> Jitted | Callable[[Any], Jitted]:
    """f, compiled by Tilewright: the same arguments and results as `jax.jit(f)`, for every tree of arrays.

    Compiled once for each signature: tree, shapes, types, static arguments, and JAX's settings for 64-bit types, precision and
    random numbers. Arrays of JAX, NumPy and anything with DLPack come in without a copy where they are contiguous. Results are
    JAX arrays, or NumPy's with output="numpy". Donated JAX arrays are deleted after the call where JAX could have reused them.
    Inside another JAX transformation (`jax.grad(tilewright.jit(f))`) JAX traces through f. f may be a `jax.export.Exported`:
    symbolic dimensions are specialised for the shapes of each call. Without f, a decorator with these options.

    `custom_calls` maps targets of `jax.ffi.ffi_call` to functions (op, *arrays) that return an array or a tuple of them; the
    arrays are copies, as those that callbacks get.

    Raises JaxError without JAX or for static arguments that cannot be hashed, ValueError for fewer than one thread, and what JAX
    raises while tracing.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads: expected a positive number, found {threads}")
    options = {
        name: value
        for name, value in (
            ("static_argnums", static_argnums), ("static_argnames", static_argnames),
            ("donate_argnums", donate_argnums), ("donate_argnames", donate_argnames),
        )
        if value is not None
    }  # fmt: skip
    if f is None:
        return lambda g: Jitted(g, output, threads, options, custom_calls)
    return Jitted(f, output, threads, options, custom_calls)
