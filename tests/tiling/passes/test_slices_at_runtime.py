"""Slices at places known at run time that no loop of a kernel moves: what an iteration of a program's loop reads of its inputs.

Loops over them are rewritten like any others; where a place is another one in each iteration they are left as they are.
"""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from indexing.expr import Var
from tiling.loops.element_ir import Load, Runtime, loads, moves_runtimes
from tiling.loops.ir import LoopKind, Nest, Schedule, Turn
from tiling.pipeline import finished

MACHINE = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32)
SLICE = """%s = stablehlo.dynamic_slice %xs, %i, %z, sizes = [1, {n}]
      : (tensor<5x{n}xf32>, tensor<i32>, tensor<i32>) -> tensor<1x{n}xf32>
    %x = stablehlo.reshape %s : (tensor<1x{n}xf32>) -> tensor<{n}xf32>"""
PLACE = """reducer(%a: tensor<f32>, %b: tensor<f32>) (%p: tensor<i32>, %q: tensor<i32>) {
      %c = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %d = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %e = stablehlo.or %c, %d : tensor<i1>
      %f = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %g = stablehlo.compare LT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %h = stablehlo.and %f, %g : tensor<i1>
      %o = stablehlo.or %e, %h : tensor<i1>
      %v = stablehlo.select %e, %a, %b : tensor<i1>, tensor<f32>
      %w = stablehlo.select %o, %p, %q : tensor<i1>, tensor<i32>
      stablehlo.return %v, %w : tensor<f32>, tensor<i32>
    }"""


def greatest(n: int, at: str) -> str:
    """The greatest element, and its place, of each row of a matrix plus a row; `at` makes %x, the row."""
    rows = f"(tensor<6x{n}xf32>, tensor<6x{n}xi32>, tensor<f32>, tensor<i32>) -> (tensor<6xf32>, tensor<6xi32>)"
    return f"""func.func @main(%xs: tensor<5x{n}xf32>, %i: tensor<i32>, %k: tensor<{n}x1xi32>, %y: tensor<6x{n}xf32>) ->
        (tensor<6xf32>, tensor<6xi32>) {{
    %z = stablehlo.constant dense<0> : tensor<i32>
    %start = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %number = stablehlo.iota dim = 1 : tensor<6x{n}xi32>
    {at}
    %all = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<{n}xf32>) -> tensor<6x{n}xf32>
    %sum = stablehlo.add %y, %all : tensor<6x{n}xf32>
    %r:2 = stablehlo.reduce(%sum init: %start), (%number init: %z) across dimensions = [1] : {rows}
      {PLACE}
    return %r#0, %r#1 : tensor<6xf32>, tensor<6xi32> }}"""


GATHERED = """%row = stablehlo.slice %xs [2:3, 0:{n}] : (tensor<5x{n}xf32>) -> tensor<1x{n}xf32>
    %flat = stablehlo.reshape %row : (tensor<1x{n}xf32>) -> tensor<{n}xf32>
    %x = "stablehlo.gather"(%flat, %k) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
      index_vector_dim = 1>, slice_sizes = array<i64: 1>}}> : (tensor<{n}xf32>, tensor<{n}x1xi32>) -> tensor<{n}xf32>"""


def schedule_of(module: hlo.Module) -> Schedule:
    (kernel,) = tiling.plan(module, machine=MACHINE).fusions
    assert isinstance(kernel.schedule, Schedule)
    assert tiling.prove(kernel).holds
    return kernel.schedule


def agrees(module: hlo.Module, *given: np.ndarray) -> None:
    found = codegen.compile(tiling.plan(module, machine=MACHINE, supports=codegen.supports))(*given)
    wanted = interp.evaluate(module, *given)
    for a, b in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("at", "is_laned"), [(SLICE, True), (GATHERED, False)])
def test_a_fold_over_a_slice_runs_in_lanes(at: str, is_laned: bool) -> None:
    """Sampling inside a loop took ten times as long as outside: the key of an iteration is a slice."""
    n = 1000
    module = hlo.parse(greatest(n, at.format(n=n)))
    assert any("lanes" in b.name for b in schedule_of(module).buffers) == is_laned
    rng = np.random.default_rng(0)
    xs, y = rng.integers(-9, 9, (5, n)).astype(np.float32), rng.integers(-9, 9, (6, n)).astype(np.float32)
    places = rng.integers(0, n, (n, 1)).astype(np.int32)
    for i in (0, 3, 7):
        agrees(module, xs, np.int32(i), places, y)


def test_loops_over_the_same_slice_are_merged() -> None:
    n = 300
    module = hlo.parse(f"""func.func @main(%xs: tensor<5x{n}xf32>, %i: tensor<i32>, %y: tensor<{n}xf32>) ->
        (tensor<{n}xf32>, tensor<{n}xf32>) {{
    %z = stablehlo.constant dense<0> : tensor<i32>
    {SLICE.format(n=n)}
    %a = stablehlo.multiply %x, %y : tensor<{n}xf32>
    %t = stablehlo.tanh %a : tensor<{n}xf32>
    %b = stablehlo.add %t, %x : tensor<{n}xf32>
    return %t, %b : tensor<{n}xf32>, tensor<{n}xf32> }}""")
    steps = [s for p in finished(schedule_of(module)).phases for s in p.steps] if module else []
    assert [len(s.stores) for s in steps if isinstance(s, Nest)] == [2]
    rng = np.random.default_rng(1)
    agrees(module, rng.standard_normal((5, n), np.float32), np.int32(4), rng.standard_normal(n, np.float32))


def test_a_matrix_beside_a_slice_is_turned() -> None:
    n = 96
    module = hlo.parse(f"""func.func @main(%xs: tensor<5x{n}xf32>, %i: tensor<i32>, %y: tensor<{n}x{n}xf32>) ->
        tensor<{n}x{n}xf32> {{
    %z = stablehlo.constant dense<0> : tensor<i32>
    {SLICE.format(n=n)}
    %t = stablehlo.transpose %y, dims = [1, 0] : (tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
    %all = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<{n}xf32>) -> tensor<{n}x{n}xf32>
    %r = stablehlo.add %t, %all : tensor<{n}x{n}xf32>
    return %r : tensor<{n}x{n}xf32> }}""")
    assert any(isinstance(s, Turn) for p in schedule_of(module).phases for s in p.steps)
    rng = np.random.default_rng(2)
    agrees(module, rng.standard_normal((5, n), np.float32), np.int32(1), rng.standard_normal((n, n), np.float32))


def test_parts_that_are_slices_are_written_out() -> None:
    """A loop over parts side by side is unrolled with what they share, whether or not they lie at places known at run time."""
    n = 64
    parts = "\n".join(
        f"""%m{k} = stablehlo.multiply %e, %c{k} : tensor<{n}xf32>
    %a{k} = stablehlo.add %m{k}, %x : tensor<{n}xf32>
    %b{k} = stablehlo.reshape %a{k} : (tensor<{n}xf32>) -> tensor<1x{n}xf32>"""
        for k in range(4)
    )
    consts = "\n".join(f"%c{k} = stablehlo.constant dense<{k + 1}.0> : tensor<{n}xf32>" for k in range(4))
    module = hlo.parse(f"""func.func @main(%xs: tensor<5x{n}xf32>, %i: tensor<i32>, %y: tensor<{n}xf32>) -> tensor<4x{n}xf32> {{
    %z = stablehlo.constant dense<0> : tensor<i32>
    {SLICE.format(n=n)}
    {consts}
    %e = stablehlo.exponential %y : tensor<{n}xf32>
    {parts}
    %r = stablehlo.concatenate %b0, %b1, %b2, %b3, dim = 0 : (tensor<1x{n}xf32>, tensor<1x{n}xf32>, tensor<1x{n}xf32>,
      tensor<1x{n}xf32>) -> tensor<4x{n}xf32>
    return %r : tensor<4x{n}xf32> }}""")
    (nest,) = [s for p in finished(schedule_of(module)).phases for s in p.steps if isinstance(s, Nest)]
    assert len(nest.stores) == 4
    rng = np.random.default_rng(3)
    agrees(module, rng.standard_normal((5, n), np.float32), np.int32(2), rng.standard_normal(n, np.float32))


def test_what_moves_a_place_is_told_through_other_places() -> None:
    value = hlo.parse("func.func @main(%x: tensor<8xi32>) -> tensor<8xi32> { return %x : tensor<8xi32> }").function().arguments[0]
    i, j, r, s = (Var(name) for name in "ijrs")
    first = Runtime(r, Load(value, (i,)), 0, 7)
    second = Runtime(s, Load(value, (r,), None, (first,)), 0, 7)
    node = Load(value, (s,), None, (second,))
    assert moves_runtimes([node], [i]) and not moves_runtimes([node], [j])
    assert not moves_runtimes(loads([Load(value, (i,))]), [i])  # what lies at a place that is known


def test_what_places_are_computed_from_is_read_once_for_each_row() -> None:
    """Sixteen players' views of 7 x 7 fields: the players were innermost, as their positions lie next to each other."""
    module = hlo.parse("""func.func @main(%fields: tensor<16x9x9x2xi32>, %at: tensor<16x1xi32>, %turn: tensor<16x1xi32>) ->
        tensor<16x7x7x2xi32> {
    %p = stablehlo.multiply %at, %turn : tensor<16x1xi32>
    %q = stablehlo.subtract %p, %turn : tensor<16x1xi32>
    %i = stablehlo.iota dim = 0 : tensor<16x1xi32>
    %k = stablehlo.concatenate %i, %p, %q, dim = 1 : (tensor<16x1xi32>, tensor<16x1xi32>, tensor<16x1xi32>) -> tensor<16x3xi32>
    %r = "stablehlo.gather"(%fields, %k) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2, 3],
      collapsed_slice_dims = [0], start_index_map = [0, 1, 2], index_vector_dim = 1>, slice_sizes = array<i64: 1, 7, 7, 2>}>
      : (tensor<16x9x9x2xi32>, tensor<16x3xi32>) -> tensor<16x7x7x2xi32>
    return %r : tensor<16x7x7x2xi32> }""")
    (nest,) = [s for p in finished(schedule_of(module)).phases for s in p.steps if isinstance(s, Nest)]
    assert nest.loops[0].extent == 16
    rng = np.random.default_rng(4)
    at, turn = rng.integers(-1, 3, (2, 16, 1)).astype(np.int32)
    agrees(module, rng.integers(0, 99, (16, 9, 9, 2)).astype(np.int32), at, turn)


def running_sum(n: int, operand: str, pads: bool) -> str:
    """A running sum of %y, as JAX prints it for the CPU, or with padding of its own, as for other targets."""
    before = f"dense<[[{n - 1}, 0]]> : tensor<1x2xi64>" if not pads else "dense<[[0, 0]]> : tensor<1x2xi64>"
    m = 2 * n - 1 if pads else n
    low = f"low = [{n - 1}], high = [0], interior = [0]"
    pad = f"%p = stablehlo.pad %y, %z, {low} : (tensor<{n}xf32>, tensor<f32>) -> tensor<{m}xf32>"
    return f"""func.func @main(%x: tensor<5x{n}xf32>, %k: tensor<{n}x1xi32>, %i: tensor<i32>) -> tensor<{n}xf32> {{
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    {operand}
    {pad if pads else ""}
    %s = "stablehlo.reduce_window"({"%p" if pads else "%y"}, %z) <{{window_dimensions = array<i64: {n}>, padding = {before}}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
      }}) : (tensor<{m}xf32>, tensor<f32>) -> tensor<{n}xf32>
    return %s : tensor<{n}xf32> }}"""


LOOKED_UP = """%f = stablehlo.slice %x [1:2, 0:{n}] : (tensor<5x{n}xf32>) -> tensor<1x{n}xf32>
    %g = stablehlo.reshape %f : (tensor<1x{n}xf32>) -> tensor<{n}xf32>
    %y = "stablehlo.gather"(%g, %k) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
      index_vector_dim = 1>, slice_sizes = array<i64: 1>}}> : (tensor<{n}xf32>, tensor<{n}x1xi32>) -> tensor<{n}xf32>"""
ONE_ROW = """%o = stablehlo.constant dense<0> : tensor<i32>
    %f = stablehlo.dynamic_slice %x, %i, %o, sizes = [1, {n}] : (tensor<5x{n}xf32>, tensor<i32>, tensor<i32>) -> tensor<1x{n}xf32>
    %y = stablehlo.reshape %f : (tensor<1x{n}xf32>) -> tensor<{n}xf32>"""


@pytest.mark.parametrize("pads", [False, True])
@pytest.mark.parametrize("operand", [LOOKED_UP, ONE_ROW])
def test_a_running_sum_of_what_is_looked_up_takes_one_step_an_element(operand: str, pads: bool) -> None:
    """Each element was summed up from the first one: of 20,000 sorted labels it took 180 ms, now .1."""
    n = 400
    module = hlo.parse(running_sum(n, operand.format(n=n), pads))
    schedules = [f.schedule for f in tiling.plan(module, machine=MACHINE, supports=codegen.supports).fusions]
    kinds = [x.kind for s in schedules for p in s.phases for y in p.steps if isinstance(y, Nest) for x in y.loops]
    assert LoopKind.SCAN in kinds and LoopKind.REDUCTION not in kinds
    rng = np.random.default_rng(6)
    agrees(module, rng.standard_normal((5, n), np.float32), rng.integers(0, n, (n, 1)).astype(np.int32), np.int32(3))
