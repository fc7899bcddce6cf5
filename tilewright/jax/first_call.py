"""The first call of a program that takes long to compile: the evaluator runs it, and its kernels are for all later ones.

    begin(module, …)  ->  Later, a program whose first call is evaluated; or why it is not
    evaluated(…)      ->  the results of the first call, unless the kernels are there before
    Later.wait()      ->  the next call compiles; or another process has put the kernels into the cache (`Ahead`)

Another process loads again all that this one has loaded: half a second of work, which takes as long as most evaluations do. So
who calls again at once compiles here. The other process starts where no call comes for a while, or an evaluation takes long. One
that is still loading when its kernels are waited for is ended: they are compiled here sooner.

So each call but the first runs kernels, and waits for them where they are not there. What the evaluator and kernels compute
agrees within the tolerances that tests hold them to, not to the last bit. Only programs without effects are evaluated: an
evaluation that is given up, as the kernels are there first, has done nothing.

TILEWRIGHT_FIRST_CALL=auto does so where the kernels take a minute at most, =evaluated however long they take, =compiled never.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import hlo
from codegen import compile as compile_module
from codegen.native import object_cache, workers
from hlo.attributes import ConvDimensions
from hlo.blas import on_one_thread
from hlo.clone import captured_values
from hlo.errors import Declined
from hlo.module import Block, Module, Op, Value, walk
from hlo.registry import SumOfProducts, is_added
from hlo.settings import choice_setting, debug_modes
from hlo.types import TensorType
from interp import Limits, evaluate
from interp.rules.scattering import takes_turns
from tilewright.jax.kept_programs import keep
from tilewright.jax.lapack import CUSTOM_CALLS
from tilewright.jax.windows import as_xla_takes_windows
from tiling.planning.garbage import few_collections
from tiling.program.random.recognized import is_threefry
from tiling.program.unroll_short_loops import trips

__all__ = ["Ahead", "Later", "begin", "compile_ahead", "evaluated", "parsed"]

_log = logging.getLogger("tilewright")

# What compiling takes in a process of its own: a fit to 66 programs of JAX's libraries, timm and transformers.
_PROGRAM_SECONDS, _OP_SECONDS, _KIND_SECONDS = 0.3, 0.0008, 0.003
_LARGE_ELEMS, _LARGE_KIND_SECONDS = 1 << 16, 0.03  # tiles are sought for what is large, and it is packed
_WINDOW_SECONDS = 0.23  # each kernel of a convolution: its borders are code of their own
_STRIPPED_BYTES, _PLANNED_AGAIN = 1 << 24, 1.6  # with a product that large programs are planned again, in strips
_LEAST_SECONDS = 0.38  # what compiles faster is compiled
_LEAST_UNKNOWN_SECONDS = 0.5  # the same of loops whose turns nobody knows: little is to be won, and all may be in vain
_MOST_SECONDS = 60.0  # the second call is not to wait longer: it would look as if it did not come back
_PATIENCE_SECONDS = 1.0  # that pass after the first call before another process starts: a loop calls sooner, a person later
_LEAST_LOOK_SECONDS = 0.01
_SHARE = 0.4  # of what compiling takes: an evaluation that is longer only keeps the compiler from its core
_UNKNOWN_SHARE = 0.1  # the same where loops or branches may take longer: all of the evaluation may be in vain
_PATIENT_SHARE = 0.5  # after which one that was thought to be shorter has to race: another process loads all again
_RULE_SECONDS, _BYTES_A_SECOND, _PRODUCTS_A_SECOND = 7e-5, 1.45e9, 3.5e10  # the evaluator's speed, a fit to the same programs
_STEP_SECONDS = 1.2e-5  # what an op takes in a loop, roughly
_MOST_BYTES = 1 << 30  # of values alive at once: an evaluation that needs more is given up
_PURE_CALLS = frozenset({*CUSTOM_CALLS, "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"})
_SCATTERS = frozenset({"stablehlo.scatter", "stablehlo.select_and_scatter"})
_EFFECTS = frozenset(
    f"stablehlo.{name}"
    for name in "infeed outfeed send recv rng all_gather all_reduce all_to_all collective_broadcast collective_permute"
    " reduce_scatter partition_id replica_id async_start async_done".split()
)


def parsed(text: str) -> Module:
    """The verified module of what JAX prints."""
    module = hlo.parse(text, "<jax>")
    as_xla_takes_windows(module)
    hlo.verify(module)
    return module


# ---------------------------------------------------------------- which programs


def begin(module: Module, entry: str, threads: int | None) -> Later | Declined:
    """A program whose first call is to be evaluated; Declined where that had better wait for its kernels."""
    reason = _obstacle() or _effect(module)
    if reason is not None:
        return Declined(reason)
    for function in module.functions.values():
        _drop_unread(function.body)
    seconds = _compile_seconds(module)
    if seconds < _LEAST_SECONDS:
        return Declined("it compiles fast")
    if seconds > _MOST_SECONDS and _setting() == "auto":
        return Declined("the second call would wait long for its kernels")
    least_steps, most_steps = _steps(module, entry)
    if most_steps is None and seconds < _LEAST_UNKNOWN_SECONDS:
        return Declined("it compiles fast")
    steps = int(_SHARE * seconds / _STEP_SECONDS)
    if most_steps is None or most_steps > steps:
        steps = int(_UNKNOWN_SHARE * seconds / _STEP_SECONDS)
    if least_steps > steps or _evaluator_seconds(module) > _SHARE * seconds:
        return Declined("the evaluator would take about as long as the compiler")
    if module.source is None:
        return Declined("it has no text")
    request = _Request(module.source.text, entry, threads)
    _log.info("the evaluator runs the first call of @%s; its kernels are compiled for all later calls", entry)
    return Later(lambda: Ahead(request), steps, _PATIENT_SHARE * seconds)


def _setting() -> str:
    return choice_setting("TILEWRIGHT_FIRST_CALL", ("auto", "evaluated", "compiled"))


def _obstacle() -> str | None:
    """Why no program is compiled ahead here."""
    if os.name != "posix":
        return "pipes cannot be asked here whether something has come"
    if _setting() == "compiled":
        return "TILEWRIGHT_FIRST_CALL"
    if debug_modes():
        return "TILEWRIGHT_DEBUG looks at kernels"
    if workers.may_help() < 1:
        return "there is no second core to compile on"
    if not object_cache.cache_enabled() or not object_cache.is_trusted("objects"):
        return "there is no disk cache"
    return None


def _effect(module: Module) -> str | None:
    """What a program does beside giving results, or what cannot be told of it from its text."""
    for function in module.functions.values():
        values = [*function.arguments, *(r for op in function.body.ops for r in op.results)]
        if not all(isinstance(v.type, TensorType) and v.type.is_static for v in values):
            return "it has values that are no arrays of a fixed shape"
        for op in walk(function.body):
            if op.name in _EFFECTS:
                return f"it has {op.name}"
            if is_added(op.definition):
                return f"it has {op.name}, which another process does not know"
            if op.name == "stablehlo.custom_call" and op.attr("call_target_name") not in _PURE_CALLS:
                return f"it calls {op.attr('call_target_name')}"
    return None


def _drop_unread(block: Block) -> None:
    """Takes out of a program without effects what nothing reads, as the planner does: gradients that a function throws away, say.
    The evaluator would compute it."""
    read: set[Value] = set()
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.definition.is_terminator or not read.isdisjoint(op.results):
            for region in op.regions:
                _drop_unread(region)
                read.update(captured_values(region))
            read.update(op.operands)
            kept.append(op)
    block.ops[:] = reversed(kept)


def _compile_seconds(module: Module) -> float:
    """About what compiling takes: equal layers are planned once, and are the same kernels; Threefry's rounds are one function."""
    functions = module.functions

    def called(op: Op) -> Block | None:
        return functions[op.attr(op.definition.calls)].body if op.definition.calls else None

    ops = [op for f in functions.values() if not is_threefry(f.body, called) for op in walk(f.body)]
    kinds = {(op.name, *(v.type for v in (*op.operands, *op.results))): op for op in ops}
    large = sum(any(_elems(r) > _LARGE_ELEMS for r in op.results) for op in kinds.values())
    windows = {_window(op) for op in ops} - {None}
    seconds = _PROGRAM_SECONDS + _OP_SECONDS * len(ops) + _KIND_SECONDS * len(kinds)
    seconds += _LARGE_KIND_SECONDS * large + _WINDOW_SECONDS * len(windows)
    return seconds * (_PLANNED_AGAIN if any(_is_stripped(op) for op in kinds.values()) else 1.0)


def _is_stripped(op: Op) -> bool:
    """Whether a product is so large that the planner looks for strips of it: scores, logits."""
    t = op.results[0].type if op.name == "stablehlo.dot_general" else None
    return isinstance(t, TensorType) and t.is_static and t.size_bytes >= _STRIPPED_BYTES


def _elems(v: Value) -> int:
    return v.type.size_elems if isinstance(v.type, TensorType) and v.type.is_static else 0


def _window(op: Op) -> tuple[Any, ...] | None:
    """What tells a convolution from others of other sizes; None for any other op, and for one that is a product."""
    d = op.attributes.get("dimension_numbers")
    if not isinstance(d, ConvDimensions) or all(op.operands[1].shape[k] == 1 for k in d.kernel_spatial):
        return None
    return (*(v.type for v in (*op.operands, *op.results)), *map(op.attributes.get, ("window_strides", "lhs_dilation")))


def _steps(module: Module, entry: str) -> tuple[int, int | None]:
    """How many ops a run executes at least and at most; None where some loop does not say how often it turns: it may never.

    A large op counts as so many small ones as take as long.
    """
    known: dict[str, tuple[int, int | None]] = {}

    def function(name: str) -> tuple[int, int | None]:
        if name not in known:
            known[name] = block(module.functions[name].body)
        return known[name]

    def block(body: Block) -> tuple[int, int | None]:
        found = [step(op) for op in body.ops]
        most = [n for _, n in found]
        return sum(n for n, _ in found), None if None in most else sum(n or 0 for n in most)

    def step(op: Op) -> tuple[int, int | None]:
        called = op.definition.calls
        inside = [function(op.attr(called))] if called else [block(r) for r in op.regions]
        least, most = [n for n, _ in inside], [n for _, n in inside if n is not None]
        is_known = len(most) == len(inside) and not (op.name in _SCATTERS and takes_turns(op))
        if op.name == "stablehlo.while":
            test, body = op.regions
            times = trips(op.operands, (test.arguments, test.results[0]), (body.arguments, body.results))
            return 1 + sum(least) * (times or 0), 1 + sum(most) * times if is_known and times is not None else None
        size_bytes = 0 if _is_view(op) else sum(map(_size_bytes, op.results))
        own = 1 + int(size_bytes / (_BYTES_A_SECOND * _STEP_SECONDS))
        return own + min(least, default=0), own + max(most, default=0) if is_known else None  # of branches one runs

    return function(entry)


def _evaluator_seconds(module: Module) -> float:
    """About what a run takes in which each op runs once: how often loops turn is not known, and is limited as they run."""
    ops = [op for f in module.functions.values() for op in walk(f.body)]
    made = [r for op in ops if not _is_view(op) for r in op.results]
    size_bytes = sum(map(_size_bytes, made))
    return len(ops) * _RULE_SECONDS + size_bytes / _BYTES_A_SECOND + sum(map(_products, ops)) / _PRODUCTS_A_SECOND


def _size_bytes(v: Value) -> int:
    return v.type.size_bytes if isinstance(v.type, TensorType) and v.type.is_static else 0


def _is_view(op: Op) -> bool:
    """Whether NumPy gives another view of what it has."""
    return not op.operands or op.name.partition(".")[2] in ("reshape", "transpose", "broadcast_in_dim", "slice")


def _products(op: Op) -> float:
    """About how many products an op sums up.

    m·k, k·n and m·n numbers make m·k·n; a result of a convolution has as many terms as its output feature has weights.
    """
    if not isinstance(op.definition.semantics, SumOfProducts):
        return 0.0
    left, right, made = (prod(n or 1 for n in v.tensor.shape) for v in (*op.operands[:2], op.results[0]))
    d = op.attributes.get("dimension_numbers")
    if isinstance(d, ConvDimensions):
        return made * right / (op.operands[1].shape[d.kernel_output_feature] or 1)
    return sqrt(left * right * made)


# ---------------------------------------------------------------- the call


def evaluated(module: Module, entry: str, arrays: Sequence[Any], later: Later) -> tuple[Any, ...] | Declined:
    """The results of a program without effects; Declined where its kernels are there before, or the evaluator has no results.

    How often loops turn is known when they have: more steps than `later` allows are not made. Steps, not seconds: where these
    take long, so does compiling. Nor are more bytes held at once than such a program may.
    """
    limits = Limits(steps=later.steps, memory_bytes=_MOST_BYTES, is_over=later.has_ended)
    try:
        with on_one_thread(), few_collections():  # other threads compile, or are another program's
            results = evaluate(module, *arrays, entry=entry, custom_calls=CUSTOM_CALLS, limits=limits, wide=False)
    except hlo.TilewrightError as error:
        return Declined(str(error))
    later.await_a_call()
    return results


# ---------------------------------------------------------------- the process


@dataclass(frozen=True)
class _Request:
    text: str
    entry: str
    threads: int | None


class Ahead:
    """A process that compiles a program into the disk cache. It ends with this object at the latest.

    Raises OSError where no process can be started.
    """

    def __init__(self, request: _Request) -> None:
        self._owner = os.getpid()
        # (A long text would fill the pipe before the process reads it.)
        self._path = path = object_cache.hand_over(pickle.dumps(request))
        try:
            self._process = workers.next_helper()
        except BaseException:
            os.unlink(path)
            raise
        self._end = weakref.finalize(self, _end, self._process, path, self._owner)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._answers = select.poll()  # takes what numbers of files there are, and one that another thread has closed
        self._answers.register(self._process.stdout, select.POLLIN)
        with contextlib.suppress(OSError):  # a process that is gone already: `wait` finds no answer
            pickle.dump(workers.Errand(__name__, "compile_ahead", path), self._process.stdin)
            self._process.stdin.flush()

    def has_ended(self) -> bool:
        """Whether `wait` would return at once."""
        assert self._process.stdout is not None
        return self._process.stdout.closed or bool(self._answers.poll(0))

    def has_begun(self) -> bool:
        """Whether the process has loaded what it needs, and has taken the program over."""
        return not os.path.exists(self._path)

    def wait(self) -> None:
        """Returns when the program is compiled, or when it is known that the process will not do so: who waits compiles then.

        That is known of a process that has not begun: it is ended.
        """
        if os.getpid() != self._owner:  # the child of a fork: the answer is the parent's
            return
        if not self.has_begun() and not self.has_ended():
            self._end()
            return
        assert self._process.stdout is not None
        try:
            answer = pickle.load(self._process.stdout)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            answer = f"it is gone ({error})"
        if answer is not None:
            _log.info("the process that compiled ahead failed, the program is compiled here: %s", answer)
        self._end()


class Later:
    """A program that the next call compiles; or another process, where none comes for a while (`await_a_call`).

    `start` gives the process; where it raises OSError the next call compiles. An evaluation of more than `steps` ops is worth
    less than it costs. After `seconds` of this process's work the other one starts, and they race. (Not of time: where that
    passes without work, compiling takes longer, too.)
    """

    def __init__(self, start: Callable[[], Ahead], steps: int, seconds: float) -> None:
        self.steps = steps
        self._owner = os.getpid()
        self._start = start
        self._turn = deque([None])  # who takes it compiles: the next call, or a timer
        self._has_started = threading.Event()
        self._ahead: Ahead | None = None
        self._timer: threading.Timer | None = None
        self._end = time.process_time() + seconds
        self._is_evaluated = False
        self._in(seconds, Later.look)

    def await_a_call(self) -> None:
        """The first call is over: the process starts where no other one comes for `_PATIENCE_SECONDS`."""
        self._is_evaluated = True
        self._in(_PATIENCE_SECONDS, Later.start)

    def look(self) -> None:
        """Starts the process where the evaluation has had its time; looks again when it may have had it."""
        left = self._end - time.process_time()
        if self._is_evaluated:
            return
        if left > _LEAST_LOOK_SECONDS:
            self._in(left, Later.look)
        else:
            self.start()

    def _in(self, seconds: float, then: Callable[[Later], None]) -> None:
        """Has `then` called so many seconds from now, instead of what was to be called before."""
        own = weakref.ref(self)  # nobody's program is compiled for nobody

        def call() -> None:
            later = own()
            if later is not None:
                then(later)

        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, call)
        self._timer.daemon = True
        with contextlib.suppress(RuntimeError):  # no more threads: the next call compiles, whenever it comes
            self._timer.start()

    def start(self) -> None:
        """Starts the process, unless a call has come before."""
        try:
            self._turn.pop()
        except IndexError:
            return
        try:
            self._ahead = self._start()
        except OSError as error:
            _log.info("no process to compile in: %s", error)
        finally:
            self._has_started.set()

    def has_ended(self) -> bool:
        """Whether another process has compiled, or has failed to."""
        return self._ahead is not None and self._ahead.has_ended()

    def wait(self) -> None:
        """Returns at once, for the caller to compile, or when the process that was started has done so."""
        if os.getpid() != self._owner:  # the child of a fork: timer and process are the parent's
            return
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(IndexError):
            self._turn.pop()
            self._has_started.set()  # nothing has: should compiling fail, who calls again is not to wait for it
            return
        self._has_started.wait()
        if self._ahead is not None:
            self._ahead.wait()


def _end(process: subprocess.Popen[bytes], path: str, owner: int) -> None:
    if os.getpid() == owner:
        workers.end(process)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    else:
        workers.let_go(process)


def compile_ahead(path: str) -> None:
    """Compiles a program into the disk cache: what the other process does."""
    with open(path, "rb") as file:
        request: _Request = pickle.load(file)
    os.unlink(path)
    module = parsed(request.text)
    made = compile_module(module, request.entry, threads=request.threads, custom_calls=CUSTOM_CALLS, donate=True)
    keep(module, request.threads, made)
