"""Loops and branches that run without the evaluator: what is carried, what is updated in place, and every odd count of trips."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.call.program import whole_loops
from codegen.launcher import launch
from codegen.supports import supports
from tests.threads import in_threads


@pytest.fixture(autouse=True, params=["whole", "by the launcher"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Loops of little work are one kernel; the same ones, run by the launcher, give the same."""
    if request.param != "whole":
        monkeypatch.setattr(whole_loops, "MOST_SECONDS", -1.0)
    return str(request.param)


def run(text: str, *arrays: np.ndarray, exact: bool = True, native: bool = True) -> codegen.Executable:
    """Compiles, runs twice on one and on two threads, and compares with the evaluator."""
    module = hlo.parse(text)
    wanted = interp.evaluate(module, *arrays)
    for threads in (1, 2):
        executable = codegen.compile(module, threads=threads)
        assert not native or executable.fallbacks == []
        for _ in range(2):
            for found, want in zip(executable(*arrays), wanted, strict=True):
                if exact:
                    assert found.tobytes() == np.asarray(want).tobytes()
                else:
                    np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-5)
    return executable


def carries(text: str) -> list[str]:
    """How the (first) loop's values are passed on."""
    plan = tiling.plan(hlo.parse(text), supports=supports)
    (step, *_) = [c for p in plan.nested() for c in p.controls]
    return [c.how for c in step.carries]


COUNTED = """
func.func @main(%n: tensor<i32>, %x: tensor<{s}xf32>) -> (tensor<i32>, tensor<{s}xf32>) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<{s}xf32>
  cond {{
    %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %j = stablehlo.add %i, %one : tensor<i32>
    {body}
    stablehlo.return %j, %b : tensor<i32>, tensor<{s}xf32>
  }}
  return %r#0, %r#1 : tensor<i32>, tensor<{s}xf32>
}}"""
IN_PLACE = "%b = stablehlo.add %a, %a : tensor<{s}xf32>"
TURNED = "%b = stablehlo.transpose %a, dims = [1, 0] : (tensor<{s}xf32>) -> tensor<{s}xf32>"


@pytest.mark.parametrize("trips", [-3, 0, 1, 2, 7])
def test_as_often_as_its_condition_holds(trips: int) -> None:
    text = COUNTED.format(s="5x5", body=IN_PLACE.format(s="5x5"))
    assert carries(text) == ["in place", "in place"]
    run(text, np.int32(trips), np.arange(25, dtype=np.float32).reshape(5, 5))


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
@pytest.mark.parametrize(("n", "how"), [(6, "copied"), (70, "exchanged")])
def test_a_value_that_cannot_be_overwritten_has_two_memories(trips: int, n: int, how: str) -> None:
    text = COUNTED.format(s=f"{n}x{n}", body=TURNED.format(s=f"{n}x{n}"))
    assert carries(text) == ["in place", how]
    run(text, np.int32(trips), np.random.default_rng(1).normal(size=(n, n)).astype(np.float32))


ROTATE = """
func.func @main(%n: tensor<i32>, %x: tensor<{s}xf32>, %y: tensor<{s}xf32>, %z: tensor<{s}xf32>)
    -> (tensor<{s}xf32>, tensor<{s}xf32>, tensor<{s}xf32>, tensor<{s}xf32>) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:5 = stablehlo.while(%i = %zero, %a = %x, %b = %y, %c = %z, %d = %x) : tensor<i32>, tensor<{s}xf32>, tensor<{s}xf32>,
      tensor<{s}xf32>, tensor<{s}xf32>
  cond {{
    %g = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  }} do {{
    %j = stablehlo.add %i, %one : tensor<i32>
    %s = stablehlo.subtract %a, %d : tensor<{s}xf32>
    stablehlo.return %j, %b, %c, %a, %s : tensor<i32>, tensor<{s}xf32>, tensor<{s}xf32>, tensor<{s}xf32>, tensor<{s}xf32>
  }}
  return %r#1, %r#2, %r#3, %r#4 : tensor<{s}xf32>, tensor<{s}xf32>, tensor<{s}xf32>, tensor<{s}xf32>
}}"""


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("size", ["3", "40x40"])
def test_values_that_change_places_do_so_at_once(trips: int, size: str) -> None:
    shape = tuple(map(int, size.split("x")))
    rng = np.random.default_rng(2)
    run(ROTATE.format(s=size), np.int32(trips), *(rng.normal(size=shape).astype(np.float32) for _ in range(3)))


FIBONACCI = """
func.func @main(%n: tensor<i64>) -> tensor<i64> {
  %0 = stablehlo.constant dense<0> : tensor<i64>
  %1 = stablehlo.constant dense<1> : tensor<i64>
  %r:3 = stablehlo.while(%k = %n, %a = %0, %b = %1) : tensor<i64>, tensor<i64>, tensor<i64>
  cond {
    %c = stablehlo.compare GT, %k, %0, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %m = stablehlo.subtract %k, %1 : tensor<i64>
    %s = stablehlo.add %a, %b : tensor<i64>
    stablehlo.return %m, %b, %s : tensor<i64>, tensor<i64>, tensor<i64>
  }
  return %r#1 : tensor<i64>
}"""


@pytest.mark.parametrize("n", [0, 1, 2, 90])
def test_fibonacci(n: int) -> None:
    run(FIBONACCI, np.int64(n))


STACK = """
func.func @main(%x: tensor<9x4xf32>, %start: tensor<9x4xf32>) -> (tensor<9x4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %h = stablehlo.constant dense<0.5> : tensor<4xf32>
  %neg = stablehlo.negate %start : tensor<9x4xf32>
  %r:3 = stablehlo.while(%i = %zero, %c = %h, %ys = %neg) : tensor<i32>, tensor<4xf32>, tensor<9x4xf32>
  cond {
    %g = stablehlo.compare LT, %i, %nine, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  } do {
    %j = stablehlo.add %i, %two : tensor<i32>
    %row = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, 4] : (tensor<9x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %old = stablehlo.dynamic_slice %ys, %j, %zero, sizes = [1, 4] : (tensor<9x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %v = stablehlo.reshape %row : (tensor<1x4xf32>) -> tensor<4xf32>
    %w = stablehlo.multiply %c, %v : tensor<4xf32>
    %n = stablehlo.reshape %w : (tensor<4xf32>) -> tensor<1x4xf32>
    %m = stablehlo.add %n, %old : tensor<1x4xf32>
    %u = stablehlo.dynamic_update_slice %ys, %m, %i, %zero :
       (tensor<9x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<9x4xf32>
    stablehlo.return %j, %w, %u : tensor<i32>, tensor<4xf32>, tensor<9x4xf32>
  }
  return %r#2, %r#1 : tensor<9x4xf32>, tensor<4xf32>
}"""


@pytest.mark.machine("avx512")
def test_a_stack_is_updated_in_place_in_its_first_values_memory() -> None:
    plan = tiling.plan(hlo.parse(STACK), supports=supports)
    (loop,) = plan.controls
    assert [(c.how, c.takes_over) for c in loop.carries][2] == ("in place", True)
    assert loop.trips == 5
    rng = np.random.default_rng(3)
    run(STACK, *(rng.normal(size=(9, 4)).astype(np.float32) for _ in range(2)))
    assert "is updated in place" in plan.explain()


COUNTER = """func.func @main() -> tensor<i8> {{
  %start = stablehlo.constant dense<{start}> : tensor<i8>
  %r = stablehlo.while(%i = %start) : tensor<i8>
  cond {{
    %stop = stablehlo.constant dense<{stop}> : tensor<i8>
    %p = stablehlo.compare {direction}, %i, %stop : (tensor<i8>, tensor<i8>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %by = stablehlo.constant dense<{by}> : tensor<i8>
    %j = stablehlo.{step} : tensor<i8>
    stablehlo.return %j : tensor<i8>
  }}
  return %r : tensor<i8>
}}"""


@pytest.mark.parametrize(
    ("start", "direction", "stop", "step", "by", "trips"),
    [
        (0, "LT", 7, "add %i, %by", 2, 4), (0, "LE", 7, "add %by, %i", 2, 4), (9, "GT", 0, "subtract %i, %by", 3, 3),
        (9, "GE", 0, "add %i, %by", -3, 4), (3, "LT", 3, "add %i, %by", 1, 0), (0, "NE", 6, "add %i, %by", 2, 3),
        (6, "NE", 0, "subtract %i, %by", 2, 3), (4, "NE", 4, "add %i, %by", 2, 0),
        (0, "NE", 7, "add %i, %by", 2, None),  # passes the limit and comes round again
        (7, "NE", 0, "add %i, %by", 1, None),
        (0, "LE", 127, "add %i, %by", 1, None),
        (1, "LT", 5, "subtract %by, %i", 6, None),  # i = 6 - i
        (0, "LT", 5, "add %i, %by", 0, None),
    ],
)  # fmt: skip
def test_how_often_a_counted_loop_runs(start: int, direction: str, stop: int, step: str, by: int, trips: int | None) -> None:
    text = COUNTER.format(start=start, direction=direction, stop=stop, step=step, by=by)
    (loop,) = tiling.plan(hlo.parse(text), supports=supports).controls
    assert loop.trips == trips


def test_a_stack_that_is_read_after_its_update_is_copied_first() -> None:
    text = STACK.replace("return %j, %w, %u : tensor<i32>", "return %j, %w, %k : tensor<i32>").replace(
        "    stablehlo.return %j", "    %k = stablehlo.subtract %u, %ys : tensor<9x4xf32>\n    stablehlo.return %j"
    )
    plan = tiling.plan(hlo.parse(text), supports=supports)
    shared = [r.shared for p in plan.nested() for r in p.reuses if r.target.shape == (9, 4) and "update" in repr(r.target.op)]
    assert shared == [False]
    rng = np.random.default_rng(4)
    run(text, *(rng.normal(size=(9, 4)).astype(np.float32) for _ in range(2)))


BRANCHES = """
func.func @main(%k: tensor<i32>, %x: tensor<6x8xf32>) -> (tensor<6x8xf32>, tensor<8xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.tanh %x : tensor<6x8xf32>
  %r:2 = "stablehlo.case"(%k) ({
    %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0] :
       (tensor<6x8xf32>, tensor<f32>) -> tensor<8xf32>
    stablehlo.return %x, %s : tensor<6x8xf32>, tensor<8xf32>
  }, {
    %a = stablehlo.add %x, %y : tensor<6x8xf32>
    %b = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
    stablehlo.return %a, %b : tensor<6x8xf32>, tensor<8xf32>
  }, {
    %s = stablehlo.reduce(%x init: %zero) applies stablehlo.maximum across dimensions = [0] :
       (tensor<6x8xf32>, tensor<f32>) -> tensor<8xf32>
    %t = stablehlo.negate %s : tensor<8xf32>
    stablehlo.return %y, %t : tensor<6x8xf32>, tensor<8xf32>
  }) : (tensor<i32>) -> (tensor<6x8xf32>, tensor<8xf32>)
  return %r#0, %r#1 : tensor<6x8xf32>, tensor<8xf32>
}"""


@pytest.mark.parametrize("k", [0, 1, 2, 3, -1, 2**31 - 1])
def test_a_case_runs_one_branch_or_the_last(k: int) -> None:
    run(BRANCHES, np.int32(k), np.random.default_rng(5).normal(size=(6, 8)).astype(np.float32), exact=False)


NESTED = """
func.func @main(%n: tensor<i32>, %x: tensor<33x40xf32>) -> (tensor<33x40xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %half = stablehlo.constant dense<0.5> : tensor<33x40xf32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %count = %zero) : tensor<i32>, tensor<33x40xf32>, tensor<i32>
  cond {
    %g = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %odd = stablehlo.and %i, %one : tensor<i32>
    %is = stablehlo.compare EQ, %odd, %one, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %s:3 = stablehlo.while(%k = %zero, %b = %a, %total = %count) : tensor<i32>, tensor<33x40xf32>, tensor<i32>
    cond {
      %h = stablehlo.compare LT, %k, %i, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %h : tensor<i1>
    } do {
      %l = stablehlo.add %k, %one : tensor<i32>
      %t = stablehlo.reverse %b, dims = [1] : tensor<33x40xf32>
      %d = stablehlo.multiply %t, %half : tensor<33x40xf32>
      %e = "stablehlo.if"(%is) ({
        %p = stablehlo.add %d, %b : tensor<33x40xf32>
        stablehlo.return %p : tensor<33x40xf32>
      }, {
        stablehlo.return %d : tensor<33x40xf32>
      }) : (tensor<i1>) -> tensor<33x40xf32>
      %m = stablehlo.add %total, %one : tensor<i32>
      stablehlo.return %l, %e, %m : tensor<i32>, tensor<33x40xf32>, tensor<i32>
    }
    stablehlo.return %j, %s#1, %s#2 : tensor<i32>, tensor<33x40xf32>, tensor<i32>
  }
  return %r#1, %r#2 : tensor<33x40xf32>, tensor<i32>
}"""


@pytest.mark.parametrize("trips", [0, 1, 4, 5])
def test_loops_and_branches_inside_loops(trips: int) -> None:
    run(NESTED, np.int32(trips), np.random.default_rng(6).normal(size=(33, 40)).astype(np.float32))


def test_an_op_of_the_evaluators_inside_a_loop() -> None:
    body = '%b = "stablehlo.cholesky"(%a) {lower = true} : (tensor<65x65xf32>) -> tensor<65x65xf32>'
    x = np.eye(65, dtype=np.float32) * 16 + 1
    run(COUNTED.format(s="65x65", body=body), np.int32(1), x, exact=False, native=False)


def test_what_does_not_change_is_computed_once() -> None:
    body = """%t = stablehlo.constant dense<0.0> : tensor<f32>
    %w = stablehlo.exponential %x : tensor<64x64xf32>
    %e = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %b = stablehlo.add %a, %e : tensor<64x64xf32>"""
    x = np.random.default_rng(7).uniform(0.1, 1, (64, 64)).astype(np.float32)
    run(COUNTED.format(s="64x64", body=body), np.int32(4), x, exact=False)


def test_a_loop_may_run_in_several_threads_at_once() -> None:
    executable = codegen.compile(hlo.parse(NESTED))
    rng = np.random.default_rng(8)
    inputs = [(np.int32(k % 6), rng.normal(size=(33, 40)).astype(np.float32)) for k in range(8)]
    wanted = [executable(*x) for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(30):
            found = executable(*inputs[k])
            if any(a.tobytes() != b.tobytes() for a, b in zip(found, wanted[k], strict=True)):
                wrong.append(k)

    in_threads(work, len(inputs))
    assert not wrong


def test_an_update_in_place_is_proved_in_bounds() -> None:
    assert not tiling.prove(tiling.plan(hlo.parse(STACK), supports=supports)).refuted


@pytest.mark.parametrize("n", [0, 1, 5, 6])
def test_small_programs_with_loops_jump_when_called_natively(n: int) -> None:
    """A fast way to call small programs must not run the kernels of a loop one after the other, once each."""
    text = COUNTED.format(s="3x3", body=IN_PLACE.format(s="3x3"))
    executable = run(text, np.int32(n), np.ones((3, 3), np.float32))
    assert float(executable(np.int32(n), np.ones((3, 3), np.float32))[1][0, 0]) == 2.0**n


@pytest.mark.machine("avx512")
def test_a_loop_of_little_work_is_one_kernel(how: str) -> None:
    """Its scalars are the kernel's own; what it may take of time keeps it from calls that hold the interpreter's lock."""
    text = COUNTED.format(s="3", body=IN_PLACE.format(s="3"))
    executable = run(text, np.int32(5), np.ones(3, np.float32))
    loops = [k for k in executable.kernels if "while True:" in k.source]
    assert len(loops) == (how == "whole")
    for k in loops:
        stack = [s for s in k.compiled.signature.scratch if s.stack_bytes]
        assert stack and all(s.stack_bytes == 64 for s in stack)
        steps = [s for s in executable._launch.steps if isinstance(s, launch.Step)]
        assert any(s.is_long for s in steps)  # its count is the caller's


@pytest.mark.machine("avx512")
def test_a_loop_of_much_work_is_the_launchers() -> None:
    text = COUNTED.format(s="700x300", body=IN_PLACE.format(s="700x300"))
    executable = run(text, np.int32(3), np.ones((700, 300), np.float32))
    assert not any("while True:" in k.source for k in executable.kernels)
