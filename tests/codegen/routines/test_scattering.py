"""Scatters and selections of every form, and steps of libraries: against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling

REPLACE = "stablehlo.return %b : tensor<f32>"
ADD = "%c = stablehlo.add %a, %b : tensor<f32>\n    stablehlo.return %c : tensor<f32>"
MIXED = """%c = stablehlo.multiply %a, %b : tensor<f32>
    %d = stablehlo.subtract %c, %a : tensor<f32>
    stablehlo.return %d : tensor<f32>"""
SCATTER = """
func.func @main(%x: tensor<{s}xf32>, %i: tensor<{i}xi32>, %u: tensor<{u}xf32>) -> tensor<{s}xf32> {{
  %r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<{d}>}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    {body}
  }}) : (tensor<{s}xf32>, tensor<{i}xi32>, tensor<{u}xf32>) -> tensor<{s}xf32>
  return %r : tensor<{s}xf32>
}}"""


def compare(text: str, *arrays: np.ndarray, bound: float = 0.0) -> codegen.Executable:
    """Runs on one and on two threads, compares with the evaluator."""
    module = hlo.parse(text)
    wanted = interp.evaluate(module, *arrays)
    for threads in (1, 2):
        executable = codegen.compile(module, threads=threads)
        assert executable.fallbacks == []
        for found, want in zip(executable(*arrays), wanted, strict=True):
            if bound:
                np.testing.assert_allclose(found, want, rtol=bound, atol=bound)
            else:
                np.testing.assert_array_equal(found, want)
    return executable


@pytest.mark.parametrize("body", [REPLACE, ADD, MIXED])
@pytest.mark.parametrize(
    ("dimensions", "updates"),
    [
        ("update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1", "40x3x4"),
        ("update_window_dims = [0, 2], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1", "3x40x4"),
        ("update_window_dims = [1, 2], scatter_dims_to_operand_dims = [1, 0], index_vector_dim = 1", "40x12x2"),
    ],
)
def test_windows_that_start_at_the_indices_in_the_updates_order(dimensions: str, updates: str, body: str) -> None:
    rng = np.random.default_rng(1)
    text = SCATTER.format(s="12x9", i="40x2", u=updates, d=dimensions, body=body)
    shape = tuple(map(int, updates.split("x")))
    indices = rng.integers(-5, 14, (40, 2)).astype(np.int32)
    indices[0] = [-(2**31), 2**31 - 1]
    x, u = rng.integers(-4, 5, (12, 9)).astype(np.float32), rng.integers(-3, 4, shape).astype(np.float32)
    compare(text, x, indices, u)


def test_a_window_of_one_element_that_starts_anywhere() -> None:
    """The window's loop has one iteration and no header; the test of its element named the loop's variable all the same."""
    dimensions = "update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1, 0]"
    text = SCATTER.format(s="3x4", i="2", u="1", d=dimensions, body=ADD)
    x, u = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(1, np.float32)
    for place in ([3, 2], [0, -1], [2, 3], [4, 0], [-(2**31), 2**31 - 1]):
        compare(text, x, np.array(place, np.int32), u)


def test_unsigned_places_beyond_every_signed_number() -> None:
    """They were taken for negative ones: a gather clamped them to the first element."""
    text = """
func.func @main(%x: tensor<7xf32>, %i: tensor<4x1xui64>, %s: tensor<ui64>, %u: tensor<2xf32>)
    -> (tensor<4xf32>, tensor<3xf32>, tensor<7xf32>, tensor<7xf32>) {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
    index_vector_dim = 1>, slice_sizes = array<i64: 1>}> : (tensor<7xf32>, tensor<4x1xui64>) -> tensor<4xf32>
  %1 = stablehlo.dynamic_slice %x, %s, sizes = [3] : (tensor<7xf32>, tensor<ui64>) -> tensor<3xf32>
  %2 = stablehlo.dynamic_update_slice %x, %u, %s : (tensor<7xf32>, tensor<2xf32>, tensor<ui64>) -> tensor<7xf32>
  %4 = stablehlo.reshape %s : (tensor<ui64>) -> tensor<1xui64>
  %3 = "stablehlo.scatter"(%x, %4, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0],
    scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<7xf32>, tensor<1xui64>, tensor<2xf32>) -> tensor<7xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<3xf32>, tensor<7xf32>, tensor<7xf32>
}"""
    x, u = np.arange(7, dtype=np.float32), np.array([-1, -2], np.float32)
    for start in (0, 6, 2**63 - 1, 2**63, 2**64 - 1):
        compare(text, x, np.array([[0], [2**64 - 1], [2**63], [6]], np.uint64), np.uint64(start), u)


@pytest.mark.parametrize("places", [[2, -(2**63)], [-(2**63), 2**63 - 1], [0, 2**62, -(2**63)], [3, 2**63 - 1, 1]])
def test_constant_places_at_the_ends_of_their_type(places: list[int]) -> None:
    """Whether such a table is affine was asked in int64: the step from one element to the next is none."""
    n = len(places)
    text = f"""
func.func @main(%x: tensor<7xf32>) -> tensor<{n}xf32> {{
  %i = stablehlo.constant dense<{[[p] for p in places]}> : tensor<{n}x1xi64>
  %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
    index_vector_dim = 1>, slice_sizes = array<i64: 1>}}> : (tensor<7xf32>, tensor<{n}x1xi64>) -> tensor<{n}xf32>
  return %0 : tensor<{n}xf32>
}}"""
    compare(text, np.arange(7, dtype=np.float32))


@pytest.mark.parametrize("body", [REPLACE, ADD])
@pytest.mark.parametrize(
    ("shape", "indices", "updates", "dimensions", "tasks"),
    [
        # single elements: one task after the fill; rows of 700: several tasks, each with its own rows
        ("600001", "999x1", "999", "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
         "index_vector_dim = 1", [2, 1]),
        ("1027x700", "99x1", "99x700", "update_window_dims = [1], inserted_window_dims = [0], "
         "scatter_dims_to_operand_dims = [0], index_vector_dim = 1", [2]),
        # columns: each task goes through all places for as many rows as stay near, in an update of any order
        ("1027x700", "99x1", "1027x99", "update_window_dims = [0], inserted_window_dims = [1], "
         "scatter_dims_to_operand_dims = [1], index_vector_dim = 1", [172]),
        ("1027x700", "99x1", "99x1027", "update_window_dims = [1], inserted_window_dims = [1], "
         "scatter_dims_to_operand_dims = [1], index_vector_dim = 1", [172]),
        ("1027x700", "1", "1027", "update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], "
         "index_vector_dim = 0", [172]),
        # a part of the rows alone
        ("1027x700", "99x1", "900x99", "update_window_dims = [0], inserted_window_dims = [1], "
         "scatter_dims_to_operand_dims = [1], index_vector_dim = 1", [2, 1]),
        # a batch: each row has its own places
        ("1027x700", "1027x31x1", "1027x31", "inserted_window_dims = [1], input_batching_dims = [0], "
         "scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2", [2]),
        ("1027x700", "31x1027x1", "31x1027", "inserted_window_dims = [1], input_batching_dims = [0], "
         "scatter_indices_batching_dims = [1], scatter_dims_to_operand_dims = [1], index_vector_dim = 2", [2]),
        # a batch: a window in each row; each task has so many updates as are worth one
        ("1027x128", "1027x1", "1027x100", "update_window_dims = [1], input_batching_dims = [0], "
         "scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 1", [3]),
        # windows that start anywhere
        ("1027x700", "9x2", "9x300x200", "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0, 1], "
         "index_vector_dim = 1", [2, 1]),
    ],
)  # fmt: skip
@pytest.mark.machine("avx512")
def test_results_larger_than_a_task(
    shape: str, indices: str, updates: str, dimensions: str, tasks: list[int], body: str
) -> None:
    """Updates of one element keep their order, whatever task takes them; those outside are dropped."""
    s, i, u = (tuple(map(int, x.split("x"))) for x in (shape, indices, updates))
    rng = np.random.default_rng(6)
    x, new = rng.normal(size=s).astype(np.float32), rng.normal(size=u).astype(np.float32)
    places = rng.integers(-9, min(s) + 9, i).astype(np.int32)
    if len(s) == 1:
        places[::3] = rng.integers(0, 40, places[::3].shape)  # many at the same places
    text = SCATTER.format(s=shape, i=indices, u=updates, d=dimensions, body=body)
    executable = compare(text, x, places, new)
    assert [k.tasks for k in executable.kernels] == tasks
    assert tiling.prove(executable.plan).refuted == ()


@pytest.mark.parametrize("body", [REPLACE, ADD])
def test_windows_are_walked_where_they_lie_inside(body: str) -> None:
    """Each element asked whether it does, so that nothing was done in vectors: 2,048 windows of 106 took 1.1 ms, now .05."""
    dimensions = ("update_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], "
                  "scatter_dims_to_operand_dims = [1], index_vector_dim = 1")  # fmt: skip
    text = SCATTER.format(s="40x33", i="40x1", u="40x20", d=dimensions, body=body)
    rng = np.random.default_rng(3)
    places = np.arange(-22, 58, 2, dtype=np.int32)  # before all of the row, over both of its ends, behind it
    x, u = (rng.integers(-9, 9, s).astype(np.float32) for s in ((40, 33), (40, 20)))
    source = compare(text, x, places[:, None], u).source
    assert "continue" not in source and "range(max(-p" in source


def test_several_inputs_are_folded_together() -> None:
    text = """
func.func @main(%x: tensor<10xf32>, %n: tensor<10xi32>, %i: tensor<30x1xi32>, %u: tensor<30xf32>, %m: tensor<30xi32>)
    -> (tensor<10xf32>, tensor<10xi32>) {
  %r:2 = "stablehlo.scatter"(%x, %n, %i, %u, %m) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %p: tensor<i32>, %b: tensor<f32>, %q: tensor<i32>):
    %c = stablehlo.compare GT, %b, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %d = stablehlo.select %c, %b, %a : tensor<i1>, tensor<f32>
    %e = stablehlo.select %c, %q, %p : tensor<i1>, tensor<i32>
    stablehlo.return %d, %e : tensor<f32>, tensor<i32>
  }) : (tensor<10xf32>, tensor<10xi32>, tensor<30x1xi32>, tensor<30xf32>, tensor<30xi32>) -> (tensor<10xf32>, tensor<10xi32>)
  return %r#0, %r#1 : tensor<10xf32>, tensor<10xi32>
}"""
    rng = np.random.default_rng(2)
    x, u = rng.normal(size=10).astype(np.float32), rng.normal(size=30).astype(np.float32)
    numbers = np.arange(30, dtype=np.int32)
    compare(text, x, np.full(10, -1, np.int32), rng.integers(-2, 12, (30, 1)).astype(np.int32), u, numbers)


SELECT = """
func.func @main(%x: tensor<{s}xf32>, %u: tensor<{u}xf32>, %z: tensor<f32>) -> tensor<{s}xf32> {{
  %r = "stablehlo.select_and_scatter"(%x, %u, %z) <{{window_dimensions = array<i64: {w}>, window_strides = array<i64: {t}>,
      padding = dense<{p}> : tensor<{n}x2xi64>}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare {how}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }}, {{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }}) : (tensor<{s}xf32>, tensor<{u}xf32>, tensor<f32>) -> tensor<{s}xf32>
  return %r : tensor<{s}xf32>
}}"""


@pytest.mark.parametrize("how", ["GE", "GT", "LE"])
@pytest.mark.parametrize(
    ("shape", "windows", "strides", "padding"),
    [
        ((3, 9, 8, 2), (1, 3, 3, 1), (1, 2, 2, 1), [[0, 0], [1, 1], [0, 2], [0, 0]]),
        ((10, 11), (2, 2), (2, 3), [[0, 0], [0, 0]]),
        ((7,), (3,), (1,), [[1, 1]]),
        ((5, 6), (5, 6), (1, 1), [[0, 0], [0, 0]]),
    ],
)
def test_windows_choose_an_element(
    shape: tuple[int, ...], windows: tuple[int, ...], strides: tuple[int, ...], padding: list[list[int]], how: str
) -> None:
    counts = [(n + p[0] + p[1] - w) // s + 1 for n, w, s, p in zip(shape, windows, strides, padding, strict=True)]
    text = SELECT.format(
        s="x".join(map(str, shape)), u="x".join(map(str, counts)), w=", ".join(map(str, windows)), n=len(shape), p=padding,
        t=", ".join(map(str, strides)), how=how,
    )  # fmt: skip
    rng = np.random.default_rng(3)
    x = rng.integers(-3, 4, shape).astype(np.float32)
    x.reshape(-1)[::7] = np.nan
    compare(text, x, rng.integers(-9, 10, counts).astype(np.float32), np.float32(0.5))


def test_nothing_is_scattered_without_a_source() -> None:
    """No window, no update: the initial value, or the inputs, as they are."""
    text = """func.func @main(%x: tensor<1x8xf32>, %s: tensor<0x4xf32>, %i: tensor<f32>) -> tensor<1x8xf32> {
      %r = "stablehlo.select_and_scatter"(%x, %s, %i) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1> }, { ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32> })
        {window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 1, 2>}
        : (tensor<1x8xf32>, tensor<0x4xf32>, tensor<f32>) -> tensor<1x8xf32>
      return %r : tensor<1x8xf32> }"""
    compare(text, np.ones((1, 8), np.float32), np.zeros((0, 4), np.float32), np.float32(2.5))
    dimensions = "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
    text = SCATTER.format(s="12x9", i="0x1", u="0x9", d=dimensions, body=MIXED)
    x = np.arange(108, dtype=np.float32).reshape(12, 9)
    compare(text, x, np.zeros((0, 1), np.int32), np.zeros((0, 9), np.float32))


@pytest.mark.parametrize("lower", ["true", "false"])
@pytest.mark.parametrize("left", ["true", "false"])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("unit", ["true", "false"])
def test_triangular_solve_is_a_librarys(lower: str, left: str, transpose: str, unit: str) -> None:
    text = f"""func.func @main(%a: tensor<2x70x70xf64>, %b: tensor<2x70x70xf64>) -> tensor<2x70x70xf64> {{
  %r = "stablehlo.triangular_solve"(%a, %b) <{{left_side = {left}, lower = {lower}, unit_diagonal = {unit},
      transpose_a = #stablehlo<transpose {transpose}>}}> : (tensor<2x70x70xf64>, tensor<2x70x70xf64>) -> tensor<2x70x70xf64>
  return %r : tensor<2x70x70xf64>
}}"""
    rng = np.random.default_rng(4)
    a = rng.normal(size=(2, 70, 70)) * 0.05 + np.eye(70) * 2
    executable = compare(text, a, rng.normal(size=(2, 70, 70)), bound=1e-9)
    assert len(executable.library) == 1


def test_a_matrix_that_is_not_positive_definite_spoils_itself_alone() -> None:
    text = """func.func @main(%a: tensor<3x4x4xf64>) -> tensor<3x4x4xf64> {
  %r = "stablehlo.cholesky"(%a) <{lower = true}> : (tensor<3x4x4xf64>) -> tensor<3x4x4xf64>
  return %r : tensor<3x4x4xf64>
}"""
    a = np.stack([np.eye(4) * 4 + 1, -np.eye(4), np.full((4, 4), np.nan)])
    compare(text, a, bound=1e-12)


@pytest.mark.parametrize(("word", "kind"), [("maximum", "f32"), ("minimum", "f64"), ("maximum", "f16"), ("minimum", "i32")])
def test_extremes_of_scattered_numbers_have_no_branch(word: str, kind: str) -> None:
    """NaNs, zeros of both signs. LLVM asks for a float's sign, which nobody foresees: five updates for each of 20,000 places took
    390 us, and 122 since."""
    text = SCATTER.format(
        s="7", i="90x1", u="90", d="inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
        body=f"%c = stablehlo.{word} %a, %b : tensor<f32>\n    stablehlo.return %c : tensor<f32>",
    ).replace("f32", kind)  # fmt: skip
    dtype = hlo.element_type(kind).dtype
    rng = np.random.default_rng(1)
    numbers = np.array([-2, -1, 0, -0.0, 1, 2]) if kind == "i32" else np.array([-2, -1, 0, -0.0, 0, -0.0, 1, -np.inf])
    x, u = rng.choice(numbers, 7).astype(dtype), rng.choice(numbers, 90).astype(dtype)
    places = rng.integers(-1, 6, (90, 1)).astype(np.int32)
    places[places == 5] = 6
    if kind != "i32":
        x[0], u[places[:, 0] == 1] = np.nan, np.where(np.arange(90) == 40, np.nan, u)[places[:, 0] == 1]
    executable = compare(text, x, places, u)
    assert (f"{word}_by_selects" in executable.kernels[-1].source) == (kind in ("f32", "f64"))
    if kind != "i32":
        found, wanted = executable(x, places, u)[0], interp.evaluate(hlo.parse(text), x, places, u)[0]
        numbers_at = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found)[numbers_at], np.signbit(wanted)[numbers_at])


@pytest.mark.parametrize(("kind", "update", "is_stored"), [
    ("f16", "%a = stablehlo.add %u, %u : {u}", True), ("bf16", "%a = stablehlo.multiply %u, %u : {u}", True),
    ("f16", "%a = stablehlo.reshape %u : ({u}) -> {u}", False), ("f32", "%a = stablehlo.add %u, %u : {u}", False),
    ("f32", "%a = stablehlo.exponential %u : {u}", True),
])  # fmt: skip
def test_updates_that_take_long_one_by_one_are_computed_in_vectors_before(kind: str, update: str, is_stored: bool) -> None:
    """Of 16 bits an addition does: it widens and rounds; a segment's sum took 1.7 times JAX's time."""
    n = 20_000
    u, w, scalar = f"tensor<{n}x{kind}>", f"tensor<{n}xf32>", "tensor<f32>"
    text = f"""
func.func @main(%x: tensor<9xf32>, %i: tensor<{n}x1xi32>, %u: {u}) -> tensor<9xf32> {{
  {update.format(u=u)}
  %w = stablehlo.convert %a : ({u}) -> {w}
  %r = "stablehlo.scatter"(%x, %i, %w) <{{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
  ^bb0(%c: {scalar}, %d: {scalar}):
    %s = stablehlo.add %c, %d : {scalar}
    stablehlo.return %s : {scalar}
  }}) : (tensor<9xf32>, tensor<{n}x1xi32>, {w}) -> tensor<9xf32>
  return %r : tensor<9xf32>
}}"""
    rng = np.random.default_rng(2)
    x, places = np.zeros(9, np.float32), rng.integers(-1, 10, (n, 1)).astype(np.int32)
    values = rng.integers(-3, 4, n).astype(hlo.element_type(kind).dtype)
    executable = compare(text, x, places, values, bound=1e-4)
    assert (len(executable.kernels) > 1) == is_stored
