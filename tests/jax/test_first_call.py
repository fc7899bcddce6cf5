"""The first call of a program that takes long to compile is evaluated while another process compiles; later ones run kernels."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hlo
import tilewright
from codegen.native import library_objects, workers
from hlo import blas
from hlo.errors import Declined
from interp import LimitError, Limits, evaluate, machine
from interp.rules import contraction
from tests.safety.test_forks import status_of
from tests.threads import needs_fork
from tilewright.jax import first_call

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax
    import jax.numpy as jnp

IN, HAS_BEGUN = first_call.Later._in, first_call.Ahead.has_begun
SLEEPING = "import time; time.sleep(60)"
ADD = "%0 = stablehlo.add %x, %x : tensor<4xf32>"


def program(body: str) -> str:
    return f"func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n{body}\nreturn %0 : tensor<4xf32> }}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, every program counted as long to compile, and a second process that begins when its first call does and is
    waited for however far it is."""
    monkeypatch.setenv("TILEWRIGHT_FIRST_CALL", "evaluated")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "2")
    monkeypatch.setattr(first_call, "_OP_SECONDS", 40.0)
    monkeypatch.setattr(first_call.Later, "_in", lambda later, seconds, then: later.start())
    monkeypatch.setattr(first_call.Ahead, "has_begun", lambda ahead: True)
    monkeypatch.setattr(library_objects, "_loaded", dict(library_objects._loaded))
    return tmp_path


@pytest.fixture
def timers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[threading.Timer]:
    """The same, but the second process begins when a test says so: the timers that were started."""
    found: list[threading.Timer] = []
    monkeypatch.setattr(first_call.Later, "_in", IN)
    monkeypatch.setattr(threading.Timer, "start", lambda timer: found.append(timer))
    return found


def helper_that_runs(program: str) -> Callable[[], subprocess.Popen[bytes]]:
    return lambda: subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def own_function(n: int) -> tuple[Callable[[Any], Any], np.ndarray[Any, Any]]:
    """A function that no other test compiles, and what it is called with."""
    x = np.linspace(0, 1, n * 8, dtype=np.float32).reshape(n, 8)
    return lambda x: {"y": jnp.tanh(x) * n + x.sum(0), "n": x.shape[0] * x}, x


def agree(found: Any, wanted: Any) -> None:
    jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, wanted)


@pytest.mark.jax
def test_the_first_call_is_evaluated_and_later_ones_run_kernels_that_another_process_made(cache: Path) -> None:
    f, x = own_function(231)
    g = tilewright.jit(f, donate_argnums=0)
    given = jnp.array(x)
    agree(g(given), f(x))
    assert given.is_deleted() and (g.evaluated_calls, g.cache_size) == (1, 1)
    agree(g(jnp.array(x)), f(x))
    assert (g.evaluated_calls, g.cache_size) == (1, 1)
    stats = g.executable(x).stats
    assert stats.compiled == 0 and stats.cache_hits, "the other process compiled nothing"
    again = tilewright.jit(f, donate_argnums=0)
    agree(again(jnp.array(x)), f(x))
    assert again.evaluated_calls == 0, "what the cache has need not be evaluated"
    assert not [p for p in cache.rglob("*") if p.name.startswith(".new-")]


@pytest.mark.jax
def test_who_calls_again_at_once_compiles(timers: list[threading.Timer], monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*request: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(first_call.Ahead, "__init__", start)
    f, x = own_function(235)
    g = tilewright.jit(f)
    for _ in range(3):
        agree(g(x), f(x))
    assert g.evaluated_calls == 1 and g.executable(x).stats.compiled
    agree(tilewright.jit(f)(x), f(x))


@pytest.mark.jax
def test_products_of_a_first_call_take_one_thread_and_sums_as_kernels_have_them(
    timers: list[threading.Timer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenBLAS's other threads would turn in circles beside what compiles."""
    counts: list[int] = []
    types: list[str] = []
    product = blas.matmul
    monkeypatch.setattr(blas, "_thread_count", lambda: (lambda: 2, counts.append))
    monkeypatch.setattr(contraction, "matmul", lambda a, b: (types.append(a.dtype.name), product(a, b))[1])
    x = np.linspace(0, 1, 237 * 40, dtype=np.float32).reshape(237, 40)
    g = tilewright.jit(lambda x: x @ x.T)
    agree(g(x), x @ x.T)
    assert g.evaluated_calls == 1 and counts == [1, 2] and types == ["float32"]


@pytest.mark.jax
def test_what_is_not_called_again_is_compiled_by_another_process(timers: list[threading.Timer]) -> None:
    f, x = own_function(236)
    g = tilewright.jit(f)
    agree(g(x), f(x))
    first, second = timers
    assert first.interval > 1 and first.finished.is_set(), "the evaluation is done: its own time does not count any more"
    assert second.interval == first_call._PATIENCE_SECONDS and not second.finished.is_set()
    second.function()
    agree(g(x), f(x))
    stats = g.executable(x).stats
    assert g.evaluated_calls == 1 and stats.compiled == 0 and stats.cache_hits, "the other process compiled nothing"
    assert second.finished.is_set()
    second.function()  # nobody's turn any more


def test_an_evaluation_that_has_had_its_time_is_raced(timers: list[threading.Timer], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[None] = []

    def start() -> first_call.Ahead:
        started.append(None)
        raise OSError("no more processes")

    now = [100.0]  # what this process has worked
    monkeypatch.setattr("time.process_time", lambda: now[0])
    later = first_call.Later(start, 1, 5)
    now[0] = 103.0
    timers[-1].function()
    assert not started and [t.interval for t in timers] == [5, 2], "time that passes without work does not count"
    now[0] = 105.5
    timers[-1].function()
    assert len(started) == 1 and len(timers) == 2
    done = first_call.Later(start, 1, 5)
    done.await_a_call()
    now[0] = 200.0
    timers[2].function()
    assert len(started) == 1, "an evaluation that is over is not raced"
    timers[3].function()
    assert len(started) == 2 and not later.has_ended() and not done.has_ended()


@pytest.mark.parametrize("is_late", [False, True])
def test_what_no_process_can_be_started_for_is_compiled_by_the_next_call(is_late: bool) -> None:
    def start() -> first_call.Ahead:
        raise OSError("no more processes")

    later = first_call.Later(start, 1, 1e6)
    if is_late:
        later.start()
    for _ in range(2):  # the second time where compiling failed
        later.wait()
    assert not later.has_ended()


@pytest.mark.filterwarnings("ignore:os.fork")
@needs_fork
def test_a_child_of_a_fork_does_not_wait_for_its_parents_timer(timers: list[threading.Timer]) -> None:
    later = first_call.Later(lambda: pytest.fail("not the child's"), 1, 1e6)
    later._turn.clear()  # as the timer does, just before the fork
    child = os.fork()
    if child == 0:
        later.wait()
        os._exit(0)
    assert status_of(child, 30) == 0


@pytest.mark.jax
@pytest.mark.parametrize("program", ["pass", "print('no pickle', flush=True)"])
def test_a_process_that_fails_costs_only_its_help(cache: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(workers, "next_helper", helper_that_runs(program))
    f, x = own_function(232)
    g = tilewright.jit(f)
    for _ in range(3):
        agree(g(x), f(x))
    assert g.evaluated_calls <= 1  # 0 where the process was gone before the evaluator had asked


@pytest.mark.jax
def test_a_process_that_is_still_loading_is_ended(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = helper_that_runs(SLEEPING)()
    monkeypatch.setattr(workers, "next_helper", lambda: process)
    monkeypatch.setattr(first_call.Ahead, "has_begun", HAS_BEGUN)
    given = {name: getattr(pickle, name) for name in ("dump", "dumps", "UnpicklingError")}
    waits = SimpleNamespace(**given, load=lambda file: pytest.fail("its answer was waited for"))
    monkeypatch.setattr(first_call, "pickle", waits)
    f, x = own_function(238)
    g = tilewright.jit(f)
    for _ in range(2):
        agree(g(x), f(x))
    assert g.evaluated_calls == 1 and g.executable(x).stats.compiled, "compiled here"
    assert process.poll() is not None
    assert not [p for p in cache.rglob("*") if p.name.startswith(".new-")]


@pytest.mark.jax
def test_a_process_that_cannot_be_started(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> subprocess.Popen[bytes]:
        raise OSError("no more processes")

    monkeypatch.setattr(workers, "next_helper", start)
    f, x = own_function(233)
    g = tilewright.jit(f)
    for _ in range(2):
        agree(g(x), f(x))
    assert g.evaluated_calls == 1


@pytest.mark.jax
def test_an_evaluation_is_given_up_when_the_kernels_are_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "next_helper", helper_that_runs("pass"))
    monkeypatch.setattr(first_call.Ahead, "has_ended", lambda ahead: True)
    monkeypatch.setattr(machine, "_STEPS_A_QUESTION", 1)
    f, x = own_function(234)
    g = tilewright.jit(f)
    agree(g(x), f(x))
    assert g.evaluated_calls == 0


@pytest.mark.filterwarnings("ignore:os.fork")
@needs_fork
def test_a_child_of_a_fork_leaves_its_parents_process_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = helper_that_runs(SLEEPING)()
    monkeypatch.setattr(workers, "next_helper", lambda: process)
    ahead = first_call.begin(hlo.parse(program(ADD)), "main", None)
    assert isinstance(ahead, first_call.Later) and not ahead.has_ended()
    child = os.fork()
    if child == 0:
        ahead.wait()
        del ahead
        os._exit(0)
    assert status_of(child, 30) == 0
    assert process.poll() is None, "the child ended its parent's process"
    process.kill()
    ahead.wait()
    assert ahead.has_ended() and process.poll() is not None, "an answer that never comes is not waited for"
    other = helper_that_runs(SLEEPING)()
    monkeypatch.setattr(workers, "next_helper", lambda: other)
    unused = first_call.begin(hlo.parse(program(ADD)), "main", None)
    assert isinstance(unused, first_call.Later)
    del unused
    assert other.poll() is not None, "nobody needs it any more"


@pytest.mark.jax
def test_callbacks_run_once_a_call(cache: Path) -> None:
    seen: list[int] = []

    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(int(v)), x[0])
        return jnp.tanh(x) + 1

    g = tilewright.jit(f)
    for k in range(3):
        g(jnp.full(7, k))
    jax.effects_barrier()
    assert (seen, g.evaluated_calls) == ([0, 1, 2], 0)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('%0 = stablehlo.custom_call @mine(%x) : (tensor<4xf32>) -> tensor<4xf32>', "calls mine"),
        (
            "%a = stablehlo.constant dense<0.0> : tensor<f32>\n %n = stablehlo.constant dense<4> : tensor<1xi64>\n"
            "%0 = stablehlo.rng %a, %a, %n, distribution = UNIFORM"
            " : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>",
            "has stablehlo.rng",
        ),
        (
            "%t = stablehlo.create_token : !stablehlo.token\n"
            '%1 = "stablehlo.outfeed"(%x, %t) {outfeed_config = ""}'
            f" : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token\n{ADD}",
            "no arrays of a fixed shape",
        ),
    ],
)  # fmt: skip
def test_programs_with_effects_are_not_evaluated(cache: Path, body: str, reason: str) -> None:
    found = first_call.begin(hlo.parse(program(body)), "main", None)
    assert isinstance(found, Declined) and reason in found.reason


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("TILEWRIGHT_FIRST_CALL", "compiled", "TILEWRIGHT_FIRST_CALL"),
        ("TILEWRIGHT_DEBUG", "guard", "TILEWRIGHT_DEBUG"),
        ("TILEWRIGHT_NO_CACHE", "1", "no disk cache"),
        ("TILEWRIGHT_COMPILE_PROCESSES", "1", "no second core"),
    ],
)
def test_what_switches_it_off(cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str) -> None:
    monkeypatch.setenv(name, value)
    found = first_call.begin(hlo.parse(program(ADD)), "main", None)
    assert isinstance(found, Declined) and reason in found.reason


def test_a_second_call_that_would_wait_long_is_not_the_default(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_FIRST_CALL", "auto")
    monkeypatch.setattr(workers, "next_helper", helper_that_runs("pass"))
    module = hlo.parse(program(ADD))
    found = first_call.begin(module, "main", None)
    assert isinstance(found, Declined) and "wait long" in found.reason
    monkeypatch.setattr(first_call, "_OP_SECONDS", 4.0)
    assert isinstance(first_call.begin(module, "main", None), first_call.Later)


ENDLESS = (
    "func.func @main(%x: tensor<i32>) -> tensor<i32> {\n %0 = stablehlo.while(%i = %x) : tensor<i32>\n"
    "cond { %c = stablehlo.constant dense<true> : tensor<i1>\n stablehlo.return %c : tensor<i1> }\n"
    "do { stablehlo.return %i : tensor<i32> }\n return %0 : tensor<i32> }"
)


def test_a_loop_that_turns_too_often_for_the_evaluator_waits_for_kernels(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = helper_that_runs(SLEEPING)()
    monkeypatch.setattr(workers, "next_helper", lambda: process)
    monkeypatch.setattr(first_call, "_OP_SECONDS", 0.3)
    module = hlo.parse(ENDLESS)
    ahead = first_call.begin(module, "main", None)
    assert isinstance(ahead, first_call.Later) and ahead.steps < 10**6
    found = first_call.evaluated(module, "main", [np.int32(1)], ahead)
    assert isinstance(found, Declined) and f"more than {ahead.steps} steps" in found.reason
    assert not ahead.has_ended(), "the kernels are still to come"


COUNTED = """
func.func @main(%x: tensor<f32>) -> tensor<f32> {{
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %c0, %y = %x) : tensor<i32>, tensor<f32>
  cond {{
    %n = stablehlo.constant dense<{turns}> : tensor<i32>
    %l = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }} do {{
    %c1 = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    %z = func.call @body(%y) : (tensor<f32>) -> tensor<f32>
    stablehlo.return %j, %z : tensor<i32>, tensor<f32>
  }}
  return %0#1 : tensor<f32>
}}
func.func private @body(%x: tensor<f32>) -> tensor<f32> {{
  %0 = stablehlo.tanh %x : tensor<f32>
  return %0 : tensor<f32>
}}"""


@pytest.mark.parametrize(("turns", "is_evaluated"), [(10, True), (10**6, False)])
def test_loops_that_say_how_often_they_turn_are_known_before_they_run(
    cache: Path, monkeypatch: pytest.MonkeyPatch, turns: int, is_evaluated: bool
) -> None:
    monkeypatch.setattr(first_call, "_OP_SECONDS", 0.3)
    found = first_call.begin(hlo.parse(COUNTED.format(turns=turns)), "main", None)
    assert isinstance(found, first_call.Later) == is_evaluated
    if isinstance(found, Declined):
        assert "as long as the compiler" in found.reason


def test_what_nothing_reads_is_neither_evaluated_nor_counted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was nearly all unread took 1.4 s for its first result."""
    read, turns = "  return %0#1", "  %u = func.call @body(%0#1) : (tensor<f32>) -> tensor<f32>\n  return %x"
    module = hlo.parse(COUNTED.format(turns=10**6).replace(read, turns))
    assert isinstance(first_call.begin(module, "main", None), first_call.Later), "its loop would turn too often"
    assert not module.entry.body.ops[:-1]


def test_a_large_op_counts_as_as_many_small_ones_as_take_as_long() -> None:
    """Fifty sweeps over a field of 64 x 64 were thought to take a quarter of what they took, and were evaluated for nothing."""
    text = COUNTED.format(turns=50)
    small, large = (hlo.parse(t) for t in (text, text.replace("tensor<f32>", "tensor<100x1000xf32>")))
    (few, _), (many, most) = (first_call._steps(m, "main") for m in (small, large))
    assert few < 500 and most == many
    assert 50 * 10 < many - few < 50 * 100, "400,000 bytes in each turn, at one to ten in a nanosecond, and 12 us for an op"


def test_a_short_program_whose_loop_may_turn_often_is_compiled(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop with its length as an argument was evaluated for .3 s in vain before .15 s of compiling."""
    monkeypatch.setattr(first_call, "_compile_seconds", lambda module: 0.45)
    found = first_call.begin(hlo.parse(ENDLESS), "main", None)
    assert isinstance(found, Declined) and "fast" in found.reason
    assert isinstance(first_call.begin(hlo.parse(COUNTED.format(turns=10)), "main", None), first_call.Later)


def test_threefry_is_no_long_function_to_compile() -> None:
    jax = pytest.importorskip("jax")
    key = np.array([3, 5], np.uint32)
    text = jax.jit(lambda k: jax.random.bits(jax.random.wrap_key_data(k), (5, 3))).lower(key).as_text()
    module = hlo.parse(text)
    other = hlo.parse(text.replace("466688986", "466688987"))  # of the keys' sum: nothing that a kernel knows
    assert first_call._compile_seconds(module) + 0.02 < first_call._compile_seconds(other)


def test_of_branches_either_may_run(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A particle filter resamples in most turns: it was evaluated for nothing, as only the shorter branch counted."""
    long = "\n".join(f"%{k + 1} = stablehlo.tanh %{k} : tensor<f32>" for k in range(90)).replace("%0 ", "%x ")
    text = (
        "func.func @main(%p: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {\n"
        f'%y = "stablehlo.if"(%p) ({{ stablehlo.return %x : tensor<f32> }}, {{\n{long}\nstablehlo.return %90 : tensor<f32> }})'
        " : (tensor<i1>) -> tensor<f32>\n return %y : tensor<f32> }"
    )
    module = hlo.parse(text)
    least, most = first_call._steps(module, "main")
    assert least < 10 and most is not None and most > 90
    assert first_call._steps(hlo.parse(ENDLESS), "main")[1] is None
    turns = jax.jit(lambda x, i: x.at[i].multiply(x)).lower(np.ones(9, "c8"), np.arange(9)).as_text()
    assert first_call._steps(hlo.parse(turns), "main")[1] is None, "as many turns as updates of one place"

    def steps(seconds: float) -> int:
        monkeypatch.setattr(first_call, "_compile_seconds", lambda module: seconds)
        found = first_call.begin(module, "main", None)
        assert isinstance(found, first_call.Later)
        return found.steps

    enough = most * first_call._STEP_SECONDS / first_call._SHARE
    monkeypatch.setattr(first_call, "_evaluator_seconds", lambda module: 0.0)
    monkeypatch.setattr(first_call, "_LEAST_SECONDS", 0.0)
    assert steps(1.01 * enough) >= most
    assert steps(0.9 * enough) < most / 3  # the longer one may run: little is risked


def test_loops_of_unknown_length_risk_less_of_an_evaluation(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_call, "_compile_seconds", lambda module: 6.0)
    counted, endless = (first_call.begin(hlo.parse(text), "main", None) for text in (COUNTED.format(turns=10), ENDLESS))
    assert isinstance(counted, first_call.Later) and isinstance(endless, first_call.Later)
    assert endless.steps < counted.steps / 2


def convolutions(sizes: Sequence[int], channels: int = 8) -> str:
    """A row of 3 x 3 convolutions on images of these sizes, each a program's kernel of its own."""
    x, kernel = f"1x{{n}}x{{n}}x{channels}xf32", f"tensor<3x3x{channels}x{channels}xf32>"
    arguments = ", ".join(f"%x{k}: tensor<{x.format(n=n)}>" for k, n in enumerate(sizes))
    types = [f"tensor<{x.format(n=n)}>" for n in sizes]
    lines = [
        f"%y{k} = stablehlo.convolution(%x{k}, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],"
        f" window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}"
        f" : ({t}, {kernel}) -> {t}"
        for k, t in enumerate(types)
    ]
    results = ", ".join(f"%y{k}" for k in range(len(sizes)))
    return (
        f"func.func @main({arguments}, %w: {kernel}) -> ({', '.join(types)}) {{\n" + "\n".join(lines)
        + f"\nreturn {results} : {', '.join(types)} }}"
    )  # fmt: skip


def test_a_network_of_different_convolutions_takes_long_to_compile(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_FIRST_CALL", "auto")
    monkeypatch.setattr(first_call, "_OP_SECONDS", 0.0018)
    monkeypatch.setattr(workers, "next_helper", helper_that_runs("pass"))
    different = hlo.parse(convolutions([8, 10, 12, 14]))
    assert isinstance(first_call.begin(different, "main", None), first_call.Later)
    equal = hlo.parse(convolutions([8]))
    assert first_call._compile_seconds(hlo.parse(convolutions([8, 8, 8, 8]))) < first_call._compile_seconds(equal) + 0.1
    # Each of 56 x 56 results in 64 channels sums 9 x 64 products.
    assert first_call._products(hlo.parse(convolutions([56], 64)).function().body.ops[0]) == 56 * 56 * 64 * 9 * 64
    slow = first_call.begin(hlo.parse(convolutions([512], 64)), "main", None)
    assert isinstance(slow, Declined) and "about as long" in slow.reason


def test_products_that_run_in_strips_take_longer_to_plan() -> None:
    """A training step of two layers over 1,024 tokens waited six seconds for its kernels, for an evaluation of two."""

    def seconds(n: int) -> float:
        t = f"tensor<{n}x{n}xf32>"
        return first_call._compile_seconds(hlo.parse(f"""func.func @main(%x: tensor<{n}x64xf32>) -> {t} {{
          %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<{n}x64xf32>, tensor<{n}x64xf32>) -> {t}
          return %0 : {t} }}"""))

    assert seconds(2048) == pytest.approx(first_call._PLANNED_AGAIN * seconds(1024))


def test_layers_that_are_alike_are_not_counted_as_if_each_were_compiled() -> None:
    def network(sizes: Sequence[int]) -> float:
        types = [f"tensor<{n}xf32>" for n in sizes]
        lines = [f"%y{k} = stablehlo.tanh %x{k} : {t}" for k, t in enumerate(types)]
        arguments = ", ".join(f"%x{k}: {t}" for k, t in enumerate(types))
        head = f"func.func @main({arguments}) -> {types[0]} {{\n" + "\n".join(lines)
        return first_call._compile_seconds(hlo.parse(f"{head}\nreturn %y0 : {types[0]} }}"))

    one, equal, different = network([8]), network([8] * 100), network(range(8, 108))
    assert equal - one < (different - one) / 4


def test_an_evaluation_that_holds_too_much_waits_for_kernels(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = helper_that_runs(SLEEPING)()
    monkeypatch.setattr(workers, "next_helper", lambda: process)
    module = hlo.parse(program(ADD))
    later = first_call.begin(module, "main", None)
    assert isinstance(later, first_call.Later)
    x = np.ones(4, np.float32)
    assert not isinstance(first_call.evaluated(module, "main", [x], later), Declined)
    monkeypatch.setattr(first_call, "_MOST_BYTES", 20)
    found = first_call.evaluated(module, "main", [x], later)
    assert isinstance(found, Declined) and "bytes" in found.reason


def test_the_evaluator_stops_when_nobody_waits() -> None:
    module = hlo.parse(ENDLESS)
    answers = iter([False, False, True])
    with pytest.raises(LimitError, match="nobody waits"):
        evaluate(module, np.int32(1), limits=Limits(is_over=lambda: next(answers)))


def test_a_helper_that_was_started_early_is_taken_where_settings_are_as_they_were(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_spare", {})
    monkeypatch.setattr(workers, "_start", helper_that_runs(SLEEPING))
    workers.start_early()
    workers.start_early()
    (first,) = workers._spare
    assert workers.next_helper() is first and not workers._spare
    workers.end(first)
    workers.start_early()
    (second,) = workers._spare
    monkeypatch.setenv("TILEWRIGHT_TARGET", "avx2" if os.environ.get("TILEWRIGHT_TARGET") == "baseline" else "baseline")
    third = workers.next_helper()
    assert third is not second and second.poll() is not None, "it would compile for another target"
    workers.end(third)
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "1")
    workers.start_early()
    assert not workers._spare
