"""Situations by their seed, each run in a process of its own: what calls, keeps, writes, forks, drops or interrupts at bad times.

Each is a function of a generator of choices that raises AssertionError where a value is wrong. A situation that hangs is ended by
its time limit, and one that ends by a signal is a finding, too.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import importlib.util
import os
import random
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import codegen
import hlo
import interp

Situation = Callable[[random.Random], None]
Wanted = tuple[np.ndarray, ...]
CHILD_SECONDS = 40
SMALL = """func.func @main(%x: tensor<{n}xf32>, %y: tensor<{n}xf32>) -> (tensor<{n}xf32>, tensor<{n}xf32>) {{
  %0 = stablehlo.add %x, %y : tensor<{n}xf32>
  %1 = stablehlo.subtract %x, %y : tensor<{n}xf32>
  return %0, %1 : tensor<{n}xf32>, tensor<{n}xf32>
}}"""
MATRIX = """func.func @main(%x: tensor<{n}x{m}xf32>, %y: tensor<{m}x{n}xf32>) -> (tensor<{n}x{n}xf32>, tensor<{n}xf32>) {{
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
    : (tensor<{n}x{m}xf32>, tensor<{m}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<{n}x{n}xf32>, tensor<f32>) -> tensor<{n}xf32>
  return %0, %1 : tensor<{n}x{n}xf32>, tensor<{n}xf32>
}}"""
LOOP = """func.func @main(%x: tensor<{n}xi32>, %y: tensor<{n}xi32>) -> (tensor<{n}xi32>, tensor<i32>) {{
  %z = stablehlo.constant dense<0> : tensor<i32>
  %k = stablehlo.constant dense<{m}> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %z, %a = %x) : tensor<i32>, tensor<{n}xi32> cond {{
    %t = stablehlo.compare LT, %i, %k, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  }} do {{
    %b = stablehlo.add %a, %y : tensor<{n}xi32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %b : tensor<i32>, tensor<{n}xi32>
  }}
  return %r#1, %r#0 : tensor<{n}xi32>, tensor<i32>
}}"""
FOREIGN = """func.func @main(%x: tensor<{n}xf32>) -> (tensor<{n}xf32>, tensor<{n}xf32>, tensor<{n}xf32>) {{
  %0 = stablehlo.add %x, %x : tensor<{n}xf32>
  %1 = stablehlo.custom_call @foo(%x, %0) : (tensor<{n}xf32>, tensor<{n}xf32>) -> tensor<{n}xf32>
  %2 = stablehlo.multiply %1, %0 : tensor<{n}xf32>
  %3 = stablehlo.custom_call @foo(%2, %2) : (tensor<{n}xf32>, tensor<{n}xf32>) -> tensor<{n}xf32>
  %4 = stablehlo.add %3, %x : tensor<{n}xf32>
  return %1, %2, %4 : tensor<{n}xf32>, tensor<{n}xf32>, tensor<{n}xf32>
}}"""
ENDLESS = """func.func @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{
  %r = stablehlo.while(%i = %x) : tensor<{n}xf32>
    cond {{ %t = stablehlo.constant dense<true> : tensor<i1> stablehlo.return %t : tensor<i1> }}
    do {{ %n = stablehlo.{op} %i : tensor<{n}xf32> stablehlo.return %n : tensor<{n}xf32> }}
  return %r : tensor<{n}xf32>
}}"""


class Case:
    """A compiled program, arguments for it (several draws), and the evaluator's results for each."""

    def __init__(self, text: str, choose: random.Random, draws: int = 3) -> None:
        self.module = hlo.parse(text)
        self.exe = codegen.compile(self.module, threads=choose.choice((1, 1, 2, 4)))
        rng = np.random.default_rng(choose.randrange(1 << 30))
        self.given = [
            [rng.integers(-9, 9, v.shape).astype(v.tensor.element.dtype) for v in self.module.entry.arguments]
            for _ in range(draws)
        ]
        self.wanted: list[Wanted] = [tuple(np.array(a) for a in interp.evaluate(self.module, *g)) for g in self.given]

    def check(self, k: int, found: Any, where: str) -> None:
        for a, b in zip(found, self.wanted[k], strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, f"{where}: {a.dtype}{a.shape} for {b.dtype}{b.shape}"
            assert np.array_equal(a, b), f"{where}: draw {k} gave {np.asarray(a).reshape(-1)[:4]}, not {b.reshape(-1)[:4]}"

    def call(self, choose: random.Random, where: str) -> None:
        k = choose.randrange(len(self.given))
        self.check(k, self.exe(*self.given[k]), where)


def text(choose: random.Random) -> str:
    """One of the programs in some size; whole numbers, so that every result is exact."""
    which = choose.choice((SMALL, SMALL, MATRIX, LOOP))
    n = choose.choice((1, 3, 4, 7, 64, 300) if which is MATRIX else (1, 3, 4, 17, 1000, 40_000))
    return which.format(n=n, m=choose.choice((1, 2, 5, 33)))


def cases(choose: random.Random, count: int) -> list[Case]:
    return [Case(text(choose), choose) for _ in range(count)]


@contextmanager
def collecting(choose: random.Random) -> Iterator[None]:
    """The collector runs at every few allocations."""
    before = gc.get_threshold()
    gc.set_threshold(choose.choice((1, 1, 2, 5)), choose.choice((1, 10)), 1)
    try:
        yield
    finally:
        gc.set_threshold(*before)


# ---------------------------------------------------------------- the collector


def finalizers(choose: random.Random) -> None:
    """Finalizers call executables, the very one that is being called too; results are kept and looked at again."""
    all_cases = cases(choose, 2)
    faults: list[Exception] = []
    runs = [0]

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            try:
                choose.choice(all_cases).call(choose, "in a finalizer")
                runs[0] += 1
            except Exception as e:
                faults.append(e)
                raise

    kept: list[tuple[Case, int, Any]] = []
    with collecting(choose):
        for _ in range(choose.choice((100, 400))):
            Cycle()
            c = choose.choice(all_cases)
            k = choose.randrange(3)
            kept.append((c, k, c.exe(*c.given[k])))
            del kept[: -choose.choice((1, 20, 200))]
    gc.collect()
    for c, k, found in kept:
        c.check(k, found, "kept over other calls")
    assert not faults, faults[0]
    assert runs[0], "no finalizer ran"


def dropped(choose: random.Random) -> None:
    """Executables are dropped, in cycles too, while their results live and while others are compiled."""
    kept: list[tuple[Case, int, Any]] = []
    with collecting(choose):
        for _ in range(choose.choice((6, 12))):
            c = Case(text(choose), choose)
            k = choose.randrange(3)
            kept.append((c, k, c.exe(*c.given[k])))
            c.exe.me = c  # type: ignore[attr-defined]
            del c.exe
    gc.collect()
    for c, k, found in kept:
        c.check(k, found, "after its executable")
        views = [a.reshape(-1)[:1] for a in found]
        del found
        assert all(np.array_equal(v, w.reshape(-1)[:1]) for v, w in zip(views, c.wanted[k], strict=True))


def results_written(choose: random.Random) -> None:
    """The caller writes into results and into arguments after the call: later results and kept ones are not touched."""
    for c in cases(choose, 2):
        kept: list[tuple[int, Any]] = []
        for _ in range(60):
            k = choose.randrange(3)
            given = [a.copy() for a in c.given[k]]
            found = c.exe(*given)
            c.check(k, found, "before anything is written")
            again = c.exe(*given)
            for a in given:
                a[...] = 77
            for a in found:
                if a.flags.writeable:
                    a[...] = -55
            c.check(k, again, "after another result and the arguments were written")
            kept.append((k, again))
        for k, found in kept:
            c.check(k, found, "kept")


# ---------------------------------------------------------------- host functions


def host_functions(choose: random.Random) -> None:
    """A custom call keeps, writes, re-enters, drops, raises and gives wrong shapes, as it is drawn."""
    n = choose.choice((1, 4, 100, 20_000))
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    acts: list[str] = []
    depth = [0]

    def foo(op: hlo.Op, x: np.ndarray, y: np.ndarray) -> Any:
        made = x * 2 + y
        act = choose.choice(acts)
        if act == "keep":
            kept.extend((a, a.copy()) for a in (x, y))
        elif act == "write":
            for a in (x, y):
                if a.flags.writeable:
                    a[...] = -1
        elif act == "re-enter" and depth[0] < 3:
            depth[0] += 1
            try:
                expect(one, "re-entered")
            finally:
                depth[0] -= 1
        elif act == "collect":
            gc.collect()
        elif act == "raise":
            raise KeyError("mine")
        elif act == "shape":
            return made[None]
        elif act == "type":
            return made.astype(np.complex64)
        elif act == "nothing":
            return None
        elif act == "its argument":
            x[...] = made
            return x
        elif act == "strided":
            return np.repeat(made, 2)[::2]
        elif act == "read-only":
            made.flags.writeable = False
        return made

    exe = codegen.compile(hlo.parse(FOREIGN.format(n=n)), custom_calls={"foo": foo}, threads=choose.choice((1, 3)))

    def expect(x: np.ndarray, where: str) -> Any:
        y = x * 2 + 2 * x
        wanted = (y, y * 2 * x, y * 2 * x * 2 + y * 2 * x + x)
        before = x.copy()
        found = exe(x)
        assert np.array_equal(x, before), f"{where}: the caller's argument changed"
        for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
            assert np.array_equal(a, b), f"{where}: result {k}: {np.asarray(a)[:4]}, not {b[:4]}"
        return found, wanted

    one = np.ones(n, np.float32)
    results = []
    good = ["keep", "write", "re-enter", "collect", "its argument", "strided", "read-only", "give"]
    for _ in range(80):
        acts[:] = choose.sample(good, 3)
        x = np.full(n, choose.randrange(5), np.float32)
        x.flags.writeable = choose.random() < 0.5
        results.append(expect(x, "a call"))
        if choose.random() < 0.2:
            acts[:] = [choose.choice(("raise", "shape", "type", "nothing"))]
            try:
                exe(x)
                said = "nothing"
            except (KeyError, hlo.TilewrightError) as e:
                said = f"{type(e).__name__} {e}"
            assert ("KeyError 'mine'" if acts == ["raise"] else "custom_call") in said, f"{acts[0]}: {said}"
    for a, copy in kept:
        assert np.array_equal(a, copy), "what a host function kept has changed"
    for found, wanted in results:
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True)), "a kept result has changed"


def jax_callbacks(choose: random.Random) -> None:
    """As `tests.hostile.jax_situation` has it; JAX is imported for it alone."""
    importlib.import_module("tests.hostile.jax_situation").jax_callbacks(choose)


# ---------------------------------------------------------------- threads, forks, signals


def threads(choose: random.Random) -> None:
    """Threads call the same and different executables while others compile and drop; a collector at every call."""
    shared = cases(choose, 3)
    faults: list[Exception] = []
    until = time.monotonic() + choose.choice((0.5, 2.0))

    def work(seed: int) -> None:
        mine = random.Random(seed)
        try:
            while time.monotonic() < until and not faults:
                if mine.random() < 0.02:
                    Case(text(mine), mine, 1).call(mine, "compiled in a thread")
                elif mine.random() < 0.05:
                    c = mine.choice(shared)
                    c.exe.threads = mine.choice((1, 2, 3, 5))
                mine.choice(shared).call(mine, "in a thread")
        except Exception as e:
            faults.append(e)
            raise

    with collecting(choose):
        workers = [
            threading.Thread(target=work, args=(choose.randrange(1 << 30),), daemon=True) for _ in range(choose.choice((2, 4, 8)))
        ]
        for t in workers:
            t.start()
        for t in workers:
            t.join(60)
            assert not t.is_alive(), "a thread hangs"
    assert not faults, faults[0]


def forks(choose: random.Random) -> None:
    """Forks while other threads call and compile: the child computes, compiles and ends."""
    warnings.simplefilter("ignore", DeprecationWarning)  # Python's own about forks with threads: this is what is tried
    shared = cases(choose, 2)
    stop = threading.Event()
    faults: list[Exception] = []

    def work(seed: int) -> None:
        mine = random.Random(seed)
        try:
            while not stop.is_set():
                if mine.random() < 0.3:
                    Case(text(mine), mine, 1).call(mine, "beside a fork")
                mine.choice(shared).call(mine, "beside a fork")
        except Exception as e:
            faults.append(e)
            raise

    workers = [
        threading.Thread(target=work, args=(choose.randrange(1 << 30),), daemon=True) for _ in range(choose.choice((0, 1, 3)))
    ]
    for t in workers:
        t.start()
    try:
        for _ in range(4):
            time.sleep(choose.random() * 0.1)
            compiles = choose.random() < 0.6
            child = os.fork()
            if child == 0:
                code = 1
                faulthandler.dump_traceback_later(CHILD_SECONDS / 2)
                try:
                    mine = random.Random(choose.random())
                    for c in shared:
                        c.call(mine, "in a child")
                    if compiles:
                        Case(text(mine), mine, 1).call(mine, "compiled in a child")
                    code = 0
                finally:
                    os._exit(code)
            ended(child)
            choose.choice(shared).call(choose, "after a fork")
    finally:
        stop.set()
    for t in workers:
        t.join(60)
        assert not t.is_alive(), "a thread hangs after forks"
    assert not faults, faults[0]


def ended(child: int) -> None:
    """Waits for a child; AssertionError where it hangs or fails."""
    limit = time.monotonic() + CHILD_SECONDS
    while time.monotonic() < limit:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert status == 0, f"a child ended with status {os.waitstatus_to_exitcode(status)}"
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("a child hangs")


def timers(choose: random.Random) -> None:
    """A timer's handler calls executables, the one that is running too, while the main thread calls and compiles."""
    shared = cases(choose, 2)
    runs = [0]

    def handler(number: int, frame: object) -> None:
        if runs[0] % 7 == 3:
            gc.collect()
        choose.choice(shared).call(choose, "in a signal's handler")
        runs[0] += 1

    signal.signal(signal.SIGALRM, handler)
    every = choose.choice((0.001, 0.005))
    try:
        until = time.monotonic() + 1.5
        while time.monotonic() < until or not runs[0]:
            signal.setitimer(signal.ITIMER_REAL, every * choose.random() + 1e-4)
            if choose.random() < 0.01:
                Case(text(choose), choose, 1).call(choose, "compiled beside a timer")
            for _ in range(20):
                choose.choice(shared).call(choose, "beside a timer")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def interrupts(choose: random.Random) -> None:
    """KeyboardInterrupt in loops without end and in calls and compiles; everything works afterwards."""
    shared = cases(choose, 2)
    endless = codegen.compile(hlo.parse(ENDLESS.format(n=choose.choice((1, 8, 70_000)), op=choose.choice(("negate", "tanh")))),
                              threads=choose.choice((1, 3)))  # fmt: skip
    x = np.ones(endless.plan.program.arguments[0].shape, np.float32)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for _ in range(4):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.2 * choose.random())
            endless(x)
        except KeyboardInterrupt:
            for c in shared:
                c.call(choose, "after an interrupt")
        else:
            raise AssertionError("a loop without end has ended")
    for _ in range(6):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.3 * choose.random())
            end = time.monotonic() + 2  # Python drops what a finalizer or a weak reference's function raises
            while time.monotonic() < end:
                if choose.random() < 0.05:
                    Case(text(choose), choose, 1).call(choose, "compiled")
                choose.choice(shared).call(choose, "called")
        except (KeyboardInterrupt, RuntimeError) as e:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if not is_interrupt(e):
                raise
        for c in shared:
            c.call(choose, "after an interrupt")
        Case(text(choose), choose, 1).call(choose, "compiled after an interrupt")


def is_interrupt(e: BaseException | None) -> bool:
    """Whether an error is an interrupt, or was made of one (as Python does where a class is being made: `__set_name__`)."""
    return e is not None and (isinstance(e, KeyboardInterrupt) or is_interrupt(e.__cause__))


SITUATIONS: dict[str, Situation] = {
    f.__name__: f
    for f in (finalizers, dropped, results_written, host_functions, jax_callbacks, threads, forks, timers, interrupts)
}


def available() -> list[str]:
    """The situations that this machine has what is needed for."""
    missing = {"jax_callbacks": importlib.util.find_spec("jax") is None, "forks": not hasattr(os, "fork"),
               "timers": not hasattr(signal, "setitimer"), "interrupts": not hasattr(signal, "setitimer")}  # fmt: skip
    return [name for name in SITUATIONS if not missing.get(name)]


def situation(seed: int) -> str:
    """The name of a seed's situation: all in turn."""
    names = available()
    return names[seed % len(names)]


def tried(seed: int) -> list[str]:
    """What is wrong in the situation of a seed."""
    name = situation(seed)
    choose = random.Random(f"situation {seed}")
    if choose.random() < 0.25:
        os.environ["TILEWRIGHT_DEBUG"] = "guard"
    try:
        SITUATIONS[name](choose)
    except AssertionError as e:
        return [f"{name}: {e}"]
    return []
