"""Small factorisations and triangular systems in kernels of their own: values, edges, loops without the interpreter."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
from codegen.launcher import launch
from codegen.supports import supports
from interp import evaluate
from tests.pairs import fast_cover
from tilewright.jax.lapack import CUSTOM_CALLS
from tiling import EvaluatorStep, plan
from tiling.proving.obligations import prove

Array = np.ndarray[Any, Any]
KINDS = {
    np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.complex64): "complex<f32>",
    np.dtype(np.complex128): "complex<f64>",
}  # fmt: skip
REAL_AND_COMPLEX = [np.float64, np.complex128]


def typed(a: Array | tuple[int, ...], kind: str = "") -> str:
    shape = a if isinstance(a, tuple) else a.shape
    return f"tensor<{'x'.join([*map(str, shape), kind or KINDS[a.dtype]])}>"  # type: ignore[union-attr]


def program(line: str, arguments: list[str], results: list[str]) -> str:
    names = ", ".join(f"%a{k}: {t}" for k, t in enumerate(arguments))
    values = ", ".join(f"%0#{k}" for k in range(len(results))) if len(results) > 1 else "%0"
    left = f"%0:{len(results)}" if len(results) > 1 else "%0"
    return (
        f"func.func @main({names}) -> ({', '.join(results)}) {{\n  {left} = {line} : ({', '.join(arguments)}) -> "
        f"({', '.join(results)})\n  return {values} : {', '.join(results)}\n}}"
    )


def custom(target: str, arrays: list[Array], results: list[str]) -> codegen.Executable:
    given = ", ".join(f"%a{k}" for k in range(len(arrays)))
    text = program(f"stablehlo.custom_call @{target}({given})", [typed(a) for a in arrays], results)
    return codegen.compile(hlo.parse(text))


def numbers(*shape: int, dtype: Any = np.float64) -> Array:
    source = np.random.default_rng(sum(shape))
    x = source.standard_normal(shape)
    return (x + 1j * source.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def positive(*shape: int, dtype: Any = np.float64) -> Array:
    x = numbers(*shape, dtype=np.result_type(dtype, np.float64))
    return (x @ adjoint(x) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def close(found: Array, expected: Array) -> None:
    tolerance = 1e-12 if found.dtype in (np.float64, np.complex128) else 1e-4
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(expected).max(initial=0))))


def in_kernels(executable: codegen.Executable) -> bool:
    return not executable.fallbacks and not executable.library


# ---------------------------------------------------------------- values


SQUARES = [(1, 1), (2, 2), (5, 5), (64, 64), (300, 3, 3), (2, 3, 4, 4)]


@pytest.mark.parametrize(
    ("shape", "lower", "dtype"), fast_cover(itertools.product(SQUARES, [True, False], REAL_AND_COMPLEX), strength=2)
)
def test_cholesky(shape: tuple[int, ...], lower: bool, dtype: Any) -> None:
    a = positive(*shape, dtype=dtype)
    t = typed(a)
    executable = codegen.compile(hlo.parse(program(f'"stablehlo.cholesky"(%a0) {{lower = {str(lower).lower()}}}', [t], [t])))
    assert in_kernels(executable)
    # Only the triangle that the op names is read.
    other = np.triu(np.full(a.shape, 7.0), 1) if lower else np.tril(np.full(a.shape, 7.0), -1)
    factor = np.linalg.cholesky(a)
    close(executable((np.tril(a) if lower else np.triu(a)) + other)[0], factor if lower else adjoint(factor))


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_cholesky_of_what_is_not_positive_definite_is_nan(dtype: Any) -> None:
    a = np.stack([positive(3, 3, dtype=dtype), -np.eye(3), np.full((3, 3), np.nan), np.zeros((3, 3))]).astype(dtype)
    t = typed(a)
    (found,) = codegen.compile(hlo.parse(program('"stablehlo.cholesky"(%a0) {lower = true}', [t], [t])))(a)
    below = np.tril(np.ones((3, 3), bool))
    close(found[0], np.linalg.cholesky(a[0]))
    assert np.isnan(found[1:, below]).all() and not found[1:, ~below].any()


SIDES = itertools.product([True, False], [True, False], ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"], [True, False])


# The first three together say where the elimination starts: each case of theirs, with the diagonals in turn.
@pytest.mark.parametrize("dtype", REAL_AND_COMPLEX)
@pytest.mark.parametrize(("left", "lower", "turned", "unit"), fast_cover(SIDES, 1, lambda case: (case[:3], case[3])))
def test_triangular_solve(left: bool, lower: bool, turned: str, unit: bool, dtype: Any) -> None:
    a, b = positive(2, 4, 4, dtype=dtype), numbers(*((2, 4, 3) if left else (2, 3, 4)), dtype=dtype)
    flags = {"left_side": left, "lower": lower, "unit_diagonal": unit}
    options = ", ".join(f"{k} = {str(v).lower()}" for k, v in flags.items())
    text = f'"stablehlo.triangular_solve"(%a0, %a1) {{{options}, transpose_a = #stablehlo<transpose {turned}>}}'
    executable = codegen.compile(hlo.parse(program(text, [typed(a), typed(b)], [typed(b)])))
    assert in_kernels(executable)
    m = np.tril(a) if lower else np.triu(a)
    if unit:
        m = m - m * np.eye(4) + np.eye(4)
    m = m if turned == "NO_TRANSPOSE" else adjoint(m) if turned == "ADJOINT" else np.swapaxes(m, -1, -2)
    turn = np.swapaxes
    close(executable(a, b)[0], np.linalg.solve(m, b) if left else turn(np.linalg.solve(turn(m, -1, -2), turn(b, -1, -2)), -1, -2))


OBLONGS = [(1, 1), (4, 4), (7, 3), (3, 7), (50, 2, 2), (2, 2, 5, 5), (64, 64)]


@pytest.mark.parametrize(("dtype", "shape"), fast_cover(itertools.product([np.float32, *REAL_AND_COMPLEX], OBLONGS), strength=1))
def test_lu(shape: tuple[int, ...], dtype: Any) -> None:
    a = numbers(*shape, dtype=dtype)
    rows, least = shape[-2], min(shape[-2:])
    batch = shape[:-2]
    executable = custom("LuDecomposition", [a], [typed(a), typed((*batch, least), "i32"), typed((*batch, rows), "i32")])
    assert in_kernels(executable)
    factors, pivots, order = executable(a)
    lower = np.tril(factors[..., :least], -1) + np.eye(rows, least, dtype=dtype)
    assert np.abs(lower).max() <= (np.sqrt(2) if np.iscomplexobj(a) else 1)  # the greatest sum of both parts is taken
    if np.iscomplexobj(a):
        expected, *_ = CUSTOM_CALLS["LuDecomposition"](executable.plan.program.ops[0], a)
        close(factors, expected)
    close(lower @ np.triu(factors[..., :least, :]), np.take_along_axis(a, order[..., None].astype(np.int64), -2))
    for index in np.ndindex(*batch):
        expected = np.arange(rows)
        for k, p in enumerate(pivots[index]):
            expected[[k, p]] = expected[[p, k]]
        assert (order[index] == expected).all()


def test_lu_of_a_singular_matrix_ends() -> None:
    a = np.array([[0.0, 1.0], [0.0, 2.0]])
    factors, pivots, order = custom("LuDecomposition", [a], [typed(a), typed((2,), "i32"), typed((2,), "i32")])(a)
    assert (factors == a).all() and pivots.tolist() == [0, 1] and order.tolist() == [0, 1]
    _, pivots, info = custom("lapack_dgetrf_ffi", [a], [typed(a), typed((2,), "i32"), typed((), "i32")])(a)
    assert pivots.tolist() == [1, 2] and info == 1


@pytest.mark.parametrize("dtype", REAL_AND_COMPLEX)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (7, 3), (3, 7), (50, 3, 2), (40, 40)])
def test_qr(shape: tuple[int, ...], dtype: Any) -> None:
    a = numbers(*shape, dtype=dtype)
    rows, columns = shape[-2:]
    least = min(rows, columns)
    executable = custom("Qr", [a], [typed(a), typed((*shape[:-2], least), KINDS[a.dtype])])
    assert in_kernels(executable)
    factors, taus = executable(a)
    (expected, expected_taus) = CUSTOM_CALLS["Qr"](executable.plan.program.ops[0], a)
    close(factors, expected)
    close(taus, expected_taus)
    tall = np.ascontiguousarray(factors[..., :least])
    executable = custom("ProductOfElementaryHouseholderReflectors", [tall, taus], [typed(tall)])
    assert in_kernels(executable)
    (q,) = executable(tall, taus)
    close(q @ np.triu(factors[..., :least, :]), a)
    close(adjoint(q) @ q, np.broadcast_to(np.eye(least, dtype=dtype), (*shape[:-2], least, least)))


def test_reflectors_fill_columns_that_have_none() -> None:
    a = numbers(5, 2)
    factors, taus = custom("Qr", [a], [typed(a), typed((2,), "f64")])(a)
    wide = np.zeros((5, 5))
    wide[:, :2] = factors
    (q,) = custom("ProductOfElementaryHouseholderReflectors", [wide, taus], [typed(wide)])(wide, taus)
    close(q @ np.vstack([np.triu(factors)[:2], np.zeros((3, 2))]), a)
    close(q.T @ q, np.eye(5))


@pytest.mark.parametrize("dtype", REAL_AND_COMPLEX)
def test_qr_of_large_and_tiny_numbers_and_of_zeros(dtype: Any) -> None:
    for scale in (1e200, 1e-200, 0.0):
        a = np.array([[3.0, 1.0], [4.0, 2.0]], dtype) * scale * (1j if dtype is np.complex128 else 1)
        factors, taus = custom("Qr", [a], [typed(a), typed((2,), KINDS[a.dtype])])(a)
        close(np.abs(factors[0, 0]), np.asarray(5.0 * scale))
        assert np.isfinite(factors).all() and np.isfinite(taus).all()


# ---------------------------------------------------------------- what takes part


LOOP = """
func.func @main(%a: tensor<2x2xf32>, %b: tensor<2x1xf32>, %n: tensor<i32>) -> tensor<2x1xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%k = %zero, %x = %b) : tensor<i32>, tensor<2x1xf32>
    cond {
      %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %lu, %p, %o = stablehlo.custom_call @LuDecomposition(%a)
        : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xi32>, tensor<2xi32>)
      %y = "stablehlo.triangular_solve"(%lu, %x) {left_side = true, lower = true, unit_diagonal = true,
        transpose_a = #stablehlo<transpose NO_TRANSPOSE>} : (tensor<2x2xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
      %l = "stablehlo.cholesky"(%a) {lower = true} : (tensor<2x2xf32>) -> tensor<2x2xf32>
      %z = "stablehlo.triangular_solve"(%l, %y) {left_side = true, lower = true, unit_diagonal = false,
        transpose_a = #stablehlo<transpose TRANSPOSE>} : (tensor<2x2xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
      %next = stablehlo.add %k, %one : tensor<i32>
      stablehlo.return %next, %z : tensor<i32>, tensor<2x1xf32>
    }
  return %r#1 : tensor<2x1xf32>
}
"""


def test_loops_around_them_never_leave_native_code() -> None:
    executable = codegen.compile(hlo.parse(LOOP))
    assert in_kernels(executable)
    assert not any(isinstance(s, launch.Host) for s in executable._launch.steps)
    a, x = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32), np.array([[1.0], [2.0]], np.float32)
    factor = np.linalg.cholesky(a)
    expected = x
    for _ in range(5):
        expected = np.linalg.solve(factor.T, np.linalg.solve(np.array([[1, 0], [0.25, 1]]), expected))
    close(executable(a, x, np.int32(5))[0], expected)


def test_plans_with_them_are_proved() -> None:
    batch = "tensor<2x3x5x4xf32>"
    for text in (LOOP, program("stablehlo.custom_call @Qr(%a0)", [batch], [batch, "tensor<2x3x4xf32>"])):
        proof = prove(plan(hlo.parse(text)))
        assert proof.holds, str(proof)
        assert any(o.name == "routine" and "step 0" in o.subject for o in proof.obligations)


def test_another_form_of_them_is_refuted() -> None:
    text = program("stablehlo.custom_call @Qr(%a0)", ["tensor<5x4xf32>"], ["tensor<5x4xf32>", "tensor<4xf32>"])
    (schedule,) = [f.schedule for f in plan(hlo.parse(text)).fusions]
    (phase,) = schedule.phases
    (step,) = phase.steps
    for wrong in (replace(step, kind="lu"), replace(step, options=frozenset({"lapack", "lower"}))):
        proof = prove(replace(schedule, phases=(replace(phase, steps=(wrong,)),)))
        assert any(o.name == "routine" for o in proof.refuted), str(proof)
    (first, *rest) = step.targets
    same = replace(first, column=first.row)
    proof = prove(replace(schedule, phases=(replace(phase, steps=(replace(step, targets=(same, *rest)),)),)))
    assert any(o.name == "formed" for o in proof.refuted), str(proof)


@pytest.mark.parametrize(
    ("shape", "kind", "reason"),
    [((65, 65), "f32", "library's blocks"), ((2, 2), "bf16", "are the library's")],
)
def test_what_a_library_runs_still(shape: tuple[int, ...], kind: str, reason: str) -> None:
    t = typed(shape, kind)
    made = plan(hlo.parse(program('"stablehlo.cholesky"(%a0) {lower = true}', [t], [t])), supports=supports)
    (step,) = (s for s in made.steps if isinstance(s, EvaluatorStep))
    assert reason in step.reason and step.library


@pytest.mark.parametrize(("rows", "left", "is_kernel"), [(4, True, True), (22, True, True), (23, True, False), (4, False, False)])
def test_few_rows_with_many_right_sides_are_kernels(rows: int, left: bool, is_kernel: bool) -> None:
    """Gaussian mixtures: 2,000 right sides of 4 rows waited for a library's threads, which cost more than the products."""
    a = numbers(3, rows, rows, dtype=np.float32) / rows + 2 * np.eye(rows, dtype=np.float32)
    b = numbers(*((3, rows, 2000) if left else (3, 2000, rows)), dtype=np.float32)
    flag = "true" if left else "false"
    op = f'"stablehlo.triangular_solve"(%a0, %a1) {{left_side = {flag}, lower = true, unit_diagonal = false, '
    op += "transpose_a = #stablehlo<transpose NO_TRANSPOSE>}"
    module = hlo.parse(program(op, [typed(a), typed(b)], [typed(b)]))
    executable = codegen.compile(module, custom_calls=CUSTOM_CALLS)
    assert in_kernels(executable) == is_kernel
    close(executable(a, b)[0], evaluate(module, a, b)[0])


def test_a_function_of_the_callers_goes_before_the_kernel() -> None:
    a = numbers(2, 2)
    text = program("stablehlo.custom_call @Qr(%a0)", [typed(a)], [typed(a), typed((2,), "f64")])
    module = hlo.parse(text)
    calls = {"Qr": lambda op, x: (x * 0, np.ones(2))}
    for given in (module, plan(module)):
        executable = codegen.compile(given, custom_calls=calls)
        assert executable.library == ["stablehlo.custom_call (%custom_call_1): Qr"]
        assert not executable(a)[0].any()
    assert in_kernels(codegen.compile(module, custom_calls=CUSTOM_CALLS))


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("dtype", REAL_AND_COMPLEX)
def test_reflectors_applied_to_a_matrix(left: bool, turned: bool, dtype: Any) -> None:
    target = "lapack_dormqr_ffi" if dtype is np.float64 else "lapack_zunmqr_ffi"
    for shape in ((5, 3), (3, 5), (4, 4)):
        a, c = numbers(*shape, dtype=dtype), numbers(*((shape[0], 2) if left else (2, shape[0])), dtype=dtype)
        factors, taus = custom("Qr", [a], [typed(a), typed((min(shape),), KINDS[a.dtype])])(a)
        line = (
            f"stablehlo.custom_call @{target}(%a0, %a1, %a2) {{mhlo.backend_config = "
            f"{{left = {str(left).lower()}, transpose = {str(turned).lower()}}}, api_version = 4 : i32}}"
        )
        module = hlo.parse(program(line, [typed(factors), typed(taus), typed(c)], [typed(c)]))
        executable = codegen.compile(module, custom_calls=CUSTOM_CALLS)
        assert in_kernels(executable) == (left or dtype is np.float64)
        wide = np.zeros((shape[0], shape[0]), dtype)
        wide[:, : taus.size] = factors[:, : taus.size]
        (q,) = custom("ProductOfElementaryHouseholderReflectors", [wide, taus], [typed(wide)])(wide, taus)
        q = adjoint(q) if turned else q
        close(executable(factors, taus, c)[0], q @ c if left else c @ q)
        (op,) = executable.plan.program.ops
        close(CUSTOM_CALLS[target](op, factors, taus, c)[0], q @ c if left else c @ q)


def test_calls_of_lapack_without_their_options_are_left_to_functions() -> None:
    a = positive(3, 3)
    text = program("stablehlo.custom_call @lapack_dpotrf_ffi(%a0)", [typed(a)], [typed(a), typed((), "i32")])
    executable = codegen.compile(hlo.parse(text), custom_calls={"lapack_dpotrf_ffi": lambda op, x: (x, np.int32(0))})
    assert executable.library and executable(a)[0].tolist() == a.tolist()
    made = plan(hlo.parse(text), supports=supports)
    assert not made.fusions and len(made.fallbacks) == 1
