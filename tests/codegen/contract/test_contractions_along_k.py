"""Products with few rows or columns, summed in lanes along k: the kernel by itself, and what the planner makes of them."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.native.jit import compile_kernel
from codegen.native.signature import KernelSignature, Param
from codegen.target import Target
from codegen.tune.probe import run
from tests.codegen.contract.test_contractions import arrays_for, check, dot, tensor
from tests.machines import narrower_targets
from tests.pairs import fast_cover
from tiling.loops.ir import Contract

TARGETS = ["host", *narrower_targets()]


def runs_along_k(executable: codegen.Executable) -> bool:
    """Whether some contraction is summed in lanes."""
    steps = [s for f in executable.plan.fusions for p in f.schedule.phases for s in p.all_steps]
    return any(isinstance(s, Contract) and s.kernel.along for s in steps)


def _dots(
    m: int, n: int, k: int, dtypes: tuple[str, str, str], target: str, literal: bool, accumulate: str, level: int = 1
) -> None:
    kinds = [np.dtype(getattr(ml_dtypes, d, d)) for d in dtypes]
    sizes = ", ".join(str(s) if literal else f"end + {s - 1}" for s in (m, n, k))
    run_a, run_b = k + 3, k + 5  # steps of the level
    row_a, row_b = level * run_a, level * run_b
    source = (
        f"def kernel(begin, end, a, b, c):\n    gemm_dots({sizes}, a, 2, {row_a}, b, 1, {row_b}, c, 3, {2 * n + 5}, 2,"
        f" {accumulate}, {level}, {run_a}, {run_b})\n"
    )
    params = tuple(Param(x, d, 1) for x, d in zip("abc", dtypes, strict=True))
    kernel = compile_kernel(source, KernelSignature(params), Target.named(target))
    rng = np.random.default_rng(m * n + k)
    a = rng.integers(-4, 4, m * row_a + 2).astype(kinds[0])
    b = rng.integers(-4, 4, n * row_b + 1).astype(kinds[1])
    c = rng.integers(-4, 4, 3 + m * (2 * n + 5)).astype(kinds[2])
    expected, stepped = c.copy(), c.copy()
    wide = np.float64 if kinds[2].kind not in "iu" else np.int64
    left = a[2:].reshape(m, level, run_a)[:, :, :k].reshape(m, -1).astype(wide)
    right = b[1:].reshape(n, level, run_b)[:, :, :k].reshape(n, -1).astype(wide)
    block = expected[3:].reshape(m, 2 * n + 5)[:, : 2 * n : 2]
    block[:] = (left @ right.T + (block.astype(wide) if accumulate != "False" else 0)).astype(kinds[2])
    run(kernel, 0, 1, a, b, c)
    np.testing.assert_array_equal(c, expected)
    kernel.python(0, 1, a, b, stepped)
    np.testing.assert_array_equal(stepped, expected)


LANES = [(1, 1, 1), (7, 9, 33), (4, 6, 64), (1, 23, 100), (30, 1, 67), (13, 3, 16), (2, 5, 0)]


@pytest.mark.parametrize(
    ("size", "target", "dtype"), fast_cover(itertools.product(LANES, TARGETS, ("float32", "float64")))
)
def test_sums_in_lanes(size: tuple[int, int, int], target: str, dtype: str) -> None:
    """Of sizes that are written in the kernel, and of sizes known only when it runs."""
    if dtype == "float32":
        _dots(*size, (dtype,) * 3, target, True, "False")
    else:
        _dots(*size, (dtype,) * 3, target, False, "end > 0", 2)


OTHER_TYPES = [
    ("bfloat16", "bfloat16", "float32"), ("float16", "float16", "float32"), ("int8", "int8", "int32"),
    ("uint8", "int8", "int32"), ("int64",) * 3, ("float32", "float32", "float64"), ("bfloat16",) * 3,
]  # fmt: skip


# Types decide what is summed, whether sizes are written in the kernel how often: different parts of it.
@pytest.mark.parametrize(("dtypes", "literal"), fast_cover(itertools.product(OTHER_TYPES, [True, False]), strength=1))
def test_sums_in_lanes_of_other_types(dtypes: tuple[str, str, str], literal: bool) -> None:
    _dots(5, 7, 83, dtypes, "host", literal, "True", 3 if "float16" not in dtypes[2] else 1)


LAYOUTS = [("mk", "nk"), ("mk", "kn"), ("km", "nk")]
FEW = [(3, 500, 777), (500, 3, 777), (1, 400, 1000), (400, 1, 1000), (9, 11, 5000), (40, 200, 300)]


@pytest.mark.parametrize(("size", "left", "right"), fast_cover((size, *layout) for size in FEW for layout in LAYOUTS))
def test_few_rows_and_few_columns(size: tuple[int, int, int], left: str, right: str) -> None:
    check(dot(*size, left=left, right=right))


@pytest.mark.machine("avx512")
def test_what_lies_along_k_is_not_turned() -> None:
    assert runs_along_k(check(dot(3, 500, 777, right="nk")))
    assert runs_along_k(check(dot(500, 3, 777, right="kn")))
    assert not runs_along_k(check(dot(500, 500, 777, right="nk")))


@pytest.mark.parametrize("types", [
    ("bf16", "bf16", "bf16"), ("bf16", "bf16", "f32"), ("f16", "f16", "f16"), ("f64", "f64", "f64"), ("i8", "i8", "i32"),
    ("ui8", "i8", "i32"), ("i8", "i8", "i8"), ("i32", "i32", "i32"), ("ui64", "ui64", "ui64"),
])  # fmt: skip
@pytest.mark.machine("avx512")
def test_few_rows_of_other_types(types: tuple[str, str, str]) -> None:
    assert runs_along_k(check(dot(5, 130, 1027, types, right="nk")))
    assert runs_along_k(check(dot(130, 1, 4500, types)))


@pytest.mark.machine("avx512")
def test_batches_with_few_rows() -> None:
    assert runs_along_k(check(dot(3, 70, 500, right="nk", batch=5)))
    check(dot(70, 2, 500, right="kn", batch=5))
    check(dot(70, 1, 1500, right="kn", batch=3))


def test_nothing_to_sum_or_to_make() -> None:
    for size in ((0, 70, 500), (3, 0, 500), (3, 70, 0)):
        check(dot(*size, right="nk"), compiled=False)


def test_a_factor_and_a_result_that_are_computed_in_place() -> None:
    a, b, c = tensor((5, 700), "f32"), tensor((300, 700), "f32"), tensor((5, 300), "f32")
    check(f"""func.func @main(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
      %x = stablehlo.tanh %a : {a}
      %y = stablehlo.negate %b : {b}
      %p = stablehlo.dot_general %x, %b, contracting_dims = [1] x [1] : ({a}, {b}) -> {c}
      %q = stablehlo.dot_general %a, %y, contracting_dims = [1] x [1] : ({a}, {b}) -> {c}
      %s = stablehlo.add %p, %q : {c}
      %r = stablehlo.maximum %s, %c : {c}
      return %r : {c} }}""")


def weighted(columns: int, order: str, dtype: str = "f32") -> str:
    """Softmax of the rows of x times w: the longer factor is made in the task that sums."""
    x, r = tensor((64, 2048), dtype), tensor((64,), dtype)
    w, out = tensor([{"k": 2048, "n": columns}[c] for c in order], dtype), tensor((64, columns), dtype)
    least = {"f32": "0xFF800000", "f64": "0xFFF0000000000000"}[dtype]
    return f"""func.func @main(%x: {x}, %w: {w}) -> {out} {{
      %least = stablehlo.constant dense<{least}> : tensor<{dtype}>
      %zero = stablehlo.constant dense<0.0> : tensor<{dtype}>
      %m = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1] : ({x}, tensor<{dtype}>) -> {r}
      %mb = stablehlo.broadcast_in_dim %m, dims = [0] : ({r}) -> {x}
      %d = stablehlo.subtract %x, %mb : {x}
      %e = stablehlo.exponential %d : {x}
      %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : ({x}, tensor<{dtype}>) -> {r}
      %sb = stablehlo.broadcast_in_dim %s, dims = [0] : ({r}) -> {x}
      %p = stablehlo.divide %e, %sb : {x}
      %o = stablehlo.dot_general %p, %w, contracting_dims = [1] x [{order.index("k")}] : ({x}, {w}) -> {out}
      return %o : {out} }}"""


@pytest.mark.machine("avx512")
def test_a_longer_factor_that_the_task_makes_is_summed_in_lanes_where_nothing_is_copied_or_columns_are_too_few() -> None:
    """A copy of w would hold all of k: then neither blocks of rows nor a mask's ends could bound the sums."""
    machine = tiling.Machine(vector_bytes=64, vector_registers=32)
    found = {}
    for dtype in ("f32", "f64"):
        for columns, order in ((3, "kn"), (16, "kn"), (16, "nk")):
            module = hlo.parse(weighted(columns, order, dtype))
            plan = tiling.plan(module, machine=machine, supports=codegen.supports)
            executable = codegen.compile(plan)
            arrays = arrays_for(module, 0)
            np.testing.assert_allclose(executable(*arrays)[0], interp.evaluate(module, *arrays)[0], rtol=1e-4, atol=1e-6)
            found[dtype, columns, order] = runs_along_k(executable)
    assert found == {(t, c, o): (c, o) != (16, "kn") for t, c, o in found}


@pytest.mark.parametrize("types", [("f32",) * 3, ("bf16", "bf16", "f32")])
@pytest.mark.machine("avx512")
def test_nan_and_infinity_stay_in_their_own_sums(types: tuple[str, str, str]) -> None:
    module = hlo.parse(dot(4, 90, 1003, types, right="nk"))
    a, b = arrays_for(module, 0)
    a[1, 1002], b[3, 5], b[7, 0], a[2, 500] = np.nan, np.inf, -np.inf, np.inf
    executable = codegen.compile(module)
    assert runs_along_k(executable)
    ((found,), (expected,)) = executable(a, b), interp.evaluate(module, a, b)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))


@pytest.mark.parametrize("size", [(7, 300, 5000), (300, 9, 1500), (2000, 1, 900), (30, 30, 20000)])
def test_the_same_bits_for_every_number_of_threads(size: tuple[int, int, int]) -> None:
    module = hlo.parse(dot(*size, right="nk"))
    arrays = arrays_for(module, 0)
    found = {codegen.compile(module, threads=t)(*arrays)[0].tobytes() for t in (1, 2, 3, 7)}
    assert len(found) == 1
