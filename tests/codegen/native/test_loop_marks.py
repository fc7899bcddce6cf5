"""Kernels of marked loops take one of LLVM's pipelines, are vectorised in it, and compute what their source does."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from codegen.kernel import types
from codegen.kernel.parse import parse
from codegen.kernel.typed import typed
from codegen.launcher.launch import Plan, Step
from codegen.lib.buffer import Buf
from codegen.lib.operators import signature_of
from codegen.native import jit, loop_marks, passes
from codegen.native import lower as native
from codegen.native.jit import compile_kernel, kernel_ir
from codegen.native.signature import KernelSignature, Param
from codegen.target import Target, default_target

SIGNATURE = KernelSignature((Param("x", "float32", 4), Param("y", "float32", 4)))
COUNT = 3

BODIES = {
    "vectors in a short loop": "for i in range(96):\n            y[200*t + i] = x[200*t + i] * float32(2.0)",
    "an odd number of turns": "for i in range(77):\n            y[200*t + i] = x[200*t + i] * float32(2.0)",
    "a sum over rows": (
        "for r in range(100):\n            for i in range(80):\n                y[200*t + i] = reduce_add(y[200*t + i], x[r + i])"
    ),
    "a border": (
        "for r in range(40):\n            for i in range(100):\n                if 0 <= r - 2 <= 20:\n"
        "                    v = x[r + i]\n                else:\n                    v = float32(0.0)\n"
        "                y[200*t + i] = v"
    ),
    "one value after the other": "for i in range(1, 190):\n            y[200*t + i] = y[200*t + i - 1] * float32(0.5) + x[i]",
    "a turn that ends early": (
        "for i in range(150):\n            if x[i] > float32(0.5):\n                continue\n            y[200*t + i] = x[i]"
    ),
    "a short loop that is left": (
        "for i in range(100):\n            if x[i] > float32(0.9):\n                break\n            y[200*t + i] = x[i]"
    ),
    "a step": "for i in range(3, 190, 4):\n            y[200*t + i] = x[i]",
    "a short sum": "a = float32(0.0)\n        for i in range(64):\n            a = reduce_add(a, x[i + t])\n        y[t] = a",
    "a long sum": "a = float32(0.0)\n        for i in range(640):\n            a = reduce_add(a, x[i + t])\n        y[t] = a",
    "a window": (
        "for r in range(3):\n            for i in range(16):\n                y[200*t + i] = reduce_add(y[200*t + i], x[r + i])"
    ),
    "much in few rows": (
        "for r in range(9):\n            for i in range(16):\n"
        + "".join(f"                y[200*t + i + {n}] = x[r + i + {n}] * x[2*i + {n}]\n" for n in range(0, 320, 16))
    ),
    "ends that a loop around says": (
        "for r in range(3):\n            for i in range(((-r + 55) // 2) + 1):\n                y[200*t + 60*r + i] = x[2*i + r]"
    ),
    "a range known at run time": (
        "for r in range(min(3*t + 1, 5)):\n            for i in range(100):\n                y[200*t + i] = x[r + i]"
    ),
}
TWO_PIPELINES = {"a window", "a short sum", "ends that a loop around says"}
NOT_VECTORS = {"one value after the other", "a short loop that is left"}
LEFT = {"a short loop that is left"}


def _source(body: str) -> str:
    return f"def kernel(begin, end, x, y):\n    for t in range(begin, end):\n        {body}\n"


@pytest.fixture
def unmarked_loops(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each kernel of marked loops from here on: whether a mark was left, so that a second pipeline followed."""
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")
    jit.forget_kernels()
    left: list[bool] = []
    known = native.optimise_marked

    def counted(module: Any, target: Target) -> Any:
        made = known(module, target)
        left.append(made[0] is not module)
        return made

    monkeypatch.setattr(native, "optimise_marked", counted)
    return left


@pytest.mark.parametrize("name", BODIES)
def test_a_kernel_of_marked_loops_computes_what_python_does(name: str, unmarked_loops: list[bool]) -> None:
    kernel = compile_kernel(_source(BODIES[name]), SIGNATURE)
    assert unmarked_loops == ([] if name in TWO_PIPELINES else [name in LEFT])
    x = np.random.default_rng(0).random(1000, np.float32)
    found, wanted = (np.arange(1000, dtype=np.float32) for _ in range(2))
    Plan([Step(kernel, COUNT, (0, 1))]).run(np.array([x.ctypes.data, found.ctypes.data], np.int64), 1)
    kernel.python(0, COUNT, x, wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(BODIES.keys() - NOT_VECTORS - {"a step", "a turn that ends early"}))
def test_loops_of_few_turns_are_vectorised_and_written_out_in_one_pipeline(name: str) -> None:
    text = kernel_ir(_source(BODIES[name]), SIGNATURE, Target.named("avx2"))
    assert "<8 x float>" in text
    assert not loop_marks.has_innermost(text)


def test_running_values_of_long_loops_are_several_side_by_side() -> None:
    text = kernel_ir(_source(BODIES["a long sum"].replace("640", "64000")), SIGNATURE, Target.named("avx2"))
    assert len(re.findall(r"phi <8 x float>", text)) >= 2


def test_a_short_loop_of_vectors_is_written_out() -> None:
    text = kernel_ir(_source(BODIES["vectors in a short loop"]), SIGNATURE, Target.named("avx2"))
    assert len(re.findall(r"fmul <8 x float>", text)) == 12


def test_functions_that_are_called_alone_leave_nothing_to_vectorise(monkeypatch: pytest.MonkeyPatch) -> None:
    source = _source("transpose(100, 64, x, 0, 64, y, 0, 100)")
    ran: list[tuple[str, ...]] = []
    known = passes.run_named
    monkeypatch.setattr(passes, "run_named", lambda names, *rest: (ran.append(tuple(names)), known(names, *rest)))
    functions: dict[str, Any] = {}
    native.build(source, "<kernel>", SIGNATURE, "entry", default_target(), functions, parse(source))
    assert len(functions) == 1
    assert ran == [passes.STRAIGHT]
    stores = _source("transpose(100, 64, x, 0, 64, y, 0, 100)\n        y[t] = x[t]")
    native.build(stores, "<kernel>", SIGNATURE, "entry", default_target(), functions, parse(stores))
    inline = _source("transpose(8, 8, x, 0, 8, y, 0, 8)")
    native.build(inline, "<kernel>", SIGNATURE, "entry", default_target(), functions, parse(inline))
    assert ran == [passes.STRAIGHT]


def test_library_functions_in_line_take_two_pipelines(unmarked_loops: list[bool]) -> None:
    lines = "transpose(8, 8, x, 0, 8, y, 0, 8)\n        for i in range(200):\n            y[300*t + i] = x[i]"
    compile_kernel(_source(lines), SIGNATURE)
    assert not unmarked_loops
    compile_kernel(_source(lines.replace("8, 8, x, 0, 8, y, 0, 8", "80, 80, x, 0, 80, y, 0, 80")), SIGNATURE)
    assert unmarked_loops == [False]


def test_a_kernel_is_lowered_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a library function in line takes the marks off its loops, which were lowered again for that."""
    done: list[str] = []
    for name in ("_lower_structured", "parsed_for"):
        known = getattr(native, name)
        monkeypatch.setattr(native, name, lambda *x, known=known, name=name: (done.append(name), known(*x))[1])
    source = _source("transpose(8, 8, x, 0, 8, y, 0, 8)\n        for i in range(200):\n            y[300*t + i] = x[i]")
    module = native.build(source, "<kernel>", SIGNATURE, "entry", Target.named("avx2"), {}, parse(source))
    assert done == ["_lower_structured", "parsed_for"]
    assert "tilewright.inner" not in str(module) and "<8 x float>" in str(module)


@pytest.mark.parametrize(("scope", "step", "first"), [("shared", 9, 1), ("shared", 1, 3), ("result", 9, 3)])
def test_packing_of_elements_that_lie_apart_takes_the_short_pipeline(
    scope: str, step: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Panels of 3 x 3 weights: O3 made 4 KB of vectors, each element of which was loaded alone, in four times the time."""
    source = (
        f'def kernel(begin, end, x, y):\n    """packing\n\n    x: argument f32[1000]\n    y: {scope} f32[1000]\n    """\n'
        "    for t in range(begin, end):\n        for i in range(300):\n"
        f"            y[300*t + i] = x[{step}*i + t]\n"
    )
    ran: list[int] = []
    known = passes.run_pipeline

    def counted(module: Any, target: Target, level: int, *rest: Any, **named: Any) -> None:
        ran.append(level)
        known(module, target, level, *rest, **named)

    monkeypatch.setattr(passes, "run_pipeline", counted)
    monkeypatch.setattr(native, "run_pipeline", counted)
    native.build(source, "<kernel>", SIGNATURE, "entry", default_target(), {}, parse(source))
    assert ran[0] == first and (first != 1 or len(ran) == 1)


def _streams(count: int, apart: int, kind: str = "float32") -> tuple[str, KernelSignature]:
    stores = "\n            ".join(f"y[200*t + i + {k * apart}] = x[i] * float32({k}.5)" for k in range(count))
    return f"for i in range(96):\n            {stores}", KernelSignature((Param("x", kind, 4), Param("y", kind, 4)))


@pytest.mark.parametrize(
    ("target", "count", "apart", "together"),
    [("avx2", 9, 1024, 2), ("avx2", 9, 3072, 2), ("avx2", 8, 1024, 1), ("avx2", 9, 1040, 1), ("avx512", 9, 1024, 1)],
)
def test_streams_that_share_a_set_of_the_cache_are_written_a_line_at_a_time(
    target: str, count: int, apart: int, together: int
) -> None:
    """Sixteen parts of a transform lie 1.5 MiB apart: half a line of each at a time took 4.8 ms, and takes 1.5."""
    body, signature = _streams(count, apart)
    text = kernel_ir(_source(body), signature, Target.named(target))
    factors = re.findall(r"fmul <\d+ x float> %[^,]+, splat \(float ([^)]+)\)", text)
    assert [factors.index(x) for x in dict.fromkeys(factors)] == [k * together for k in range(count)]


def test_loops_of_lines_read_or_write_more_streams_than_a_set_has_ways() -> None:
    def found(source: str, signature: KernelSignature) -> int:
        buffers = [Buf(p.dtype, p.scope or p.name, p.align) for p in signature.params]
        kernel = typed(parse(source), [types.int64, types.int64, *buffers], native._namespace(), signature_of)
        return len(loop_marks.loops_of_lines(kernel.body))

    assert [found(_source(body), s) for body, s in (_streams(9, 1024), _streams(8, 1024), _streams(9, 1000))] == [1, 0, 0]
    reads = " + ".join(f"x[i + {k * 2048}]" for k in range(9))
    assert found(_source(f"for i in range(96):\n            y[i] = {reads}"), SIGNATURE) == 1
    reads = " + ".join(f"x[i - {k * 2048}]" for k in range(9))
    assert found(_source(f"for i in range(96):\n            y[i] = {reads}"), SIGNATURE) == 1
    asks = "if t < 3:\n                y[i] = x[i]\n            else:\n                y[i] = " + reads
    assert found(_source(f"for i in range(96):\n            {asks}"), SIGNATURE) == 0  # a transform of weights: 5.9 ms became 20


def test_loops_that_look_up_short_elements_and_compute_nothing_stay_scalar() -> None:
    """Codes of 16 bits looked up one by one take a cycle each; put into vectors first they took twice as long."""
    signature = KernelSignature(tuple(Param(name, "bfloat16", 64, name) for name in "xyz"))
    looked_up = "z[to_int64(bits_of_bfloat16(x[i]))]"

    def scalar(value: str) -> bool:
        source = _source(f"for i in range(4096):\n            y[i] = {value}").replace("x, y)", "x, y, z)")
        text = kernel_ir(source, signature, Target.named("avx512"))
        return not re.search(r"store <\d+ x i16>", text)

    assert scalar(looked_up)
    assert not scalar(f"{looked_up} + x[i]")
    assert not scalar("x[i]")


def test_updates_some_way_apart_are_made_one_by_one() -> None:
    """Vectors of them were put together and taken apart: sums by columns took three times as long."""

    def scalar(loop: str) -> bool:
        text = kernel_ir(_source(loop), SIGNATURE, Target.named("avx512"))
        return not re.search(r"f(?:add|mul) (?:[a-z]+ )*<\d+ x float>", text)

    def rows(place: str, value: str = "x[i]") -> str:
        return f"for i in range(4096):\n            y[{place}] = y[{place}] + {value}"

    assert scalar(rows("16*i + t"))
    assert not scalar(rows("i + t"))
    assert not scalar(rows("16*i + t", "x[i] * x[i + 1] * x[i + 2]"))
    assert not scalar("for i in range(4096):\n            y[i] = x[16*i] + x[16*i + 1]")
