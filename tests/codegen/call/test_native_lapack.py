"""LAPACK's routines as steps of native code: the same as through Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import codegen
import hlo
from codegen.launcher import launch
from tests.codegen.routines.test_matrices import close, numbers, positive, program, typed
from tilewright.jax.lapack import CUSTOM_CALLS

VECTORS = "{mhlo.backend_config = {mode = 86 : ui8, uplo = 76 : ui8}}"
UPPER = "{mhlo.backend_config = {mode = 86 : ui8, uplo = 85 : ui8}}"
ALONE = "{mhlo.backend_config = {mode = 78 : ui8, uplo = 76 : ui8}}"
THIN, FULL = "{mhlo.backend_config = {mode = 83 : ui8}}", "{mhlo.backend_config = {mode = 65 : ui8}}"


def steps(executable: codegen.Executable) -> list[type]:
    return [type(s) for s in executable._launch.steps if isinstance(s, launch.Host | launch.Library)]


def case(target: str, options: str, arrays: list[Any], results: list[tuple[Any, ...]]) -> tuple[str, list[Any]]:
    kind = {"float32": "f32", "float64": "f64"}[arrays[0].dtype.name]
    made = [typed(shape, *(element or (kind,))) for shape, *element in results]
    given = ", ".join(f"%a{k}" for k in range(len(arrays)))
    return program(f"stablehlo.custom_call @{target}({given}) {options}", [typed(a) for a in arrays], made), arrays


F = np.float32
CASES = {
    "symmetric, a batch": case("lapack_dsyevd_ffi", VECTORS, [positive(3, 20, 20)], [((3, 20, 20),), ((3, 20),), ((3,), "i32")]),
    "symmetric, upper": case("lapack_ssyevd_ffi", UPPER, [numbers(70, 70, dtype=F)], [((70, 70),), ((70,),), ((), "i32")]),
    "eigenvalues alone": case("lapack_dsyevd_ffi", ALONE, [positive(9, 9)], [((9, 9),), ((9,),), ((), "i32")]),
    "thin": case("lapack_sgesdd_ffi", THIN, [numbers(2, 9, 5, dtype=F)],
                 [((2, 9, 5),), ((2, 5),), ((2, 9, 5),), ((2, 5, 5),), ((2,), "i32")]),
    "full": case("lapack_dgesdd_ffi", FULL, [numbers(4, 7)], [((4, 7),), ((4,),), ((4, 4),), ((7, 7),), ((), "i32")]),
    "Cholesky": case("lapack_dpotrf_ffi", VECTORS, [positive(70, 70)], [((70, 70),), ((), "i32")]),
    "LU": case("lapack_sgetrf_ffi", "", [numbers(2, 80, 70, dtype=F)], [((2, 80, 70),), ((2, 70), "i32"), ((2,), "i32")]),
    "QR": case("Qr", "", [numbers(2, 90, 70)], [((2, 90, 70),), ((2, 70),)]),
    "Q": case("lapack_sorgqr_ffi", "", [numbers(90, 70, dtype=F), numbers(70, dtype=F) / 100], [((90, 70),)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_through_python(name: str) -> None:
    text, arrays = CASES[name]
    module = hlo.parse(text)
    executable = codegen.compile(module, custom_calls=CUSTOM_CALLS)
    assert steps(executable) == [launch.Library]
    assert [x.partition(": ")[2] for x in executable.library] == [module.root.attr("call_target_name")]
    assert not executable.fallbacks
    expected = CUSTOM_CALLS[module.root.attr("call_target_name")](module.root, *arrays)
    first = 1 if name in ("eigenvalues alone", "thin", "full") else 0  # what LAPACK leaves of its input is nobody's
    for found, there in list(zip(executable(*arrays), expected, strict=True))[first:]:
        close(found, np.asarray(there))


def test_what_is_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of the caller's own, complex matrices, a call that does not say which triangle, a look at memory."""
    text, (a,) = CASES["symmetric, a batch"]
    mine = {"lapack_dsyevd_ffi": lambda op, x: (x, x[..., 0], np.zeros(3, np.int32))}
    own = codegen.compile(hlo.parse(text), custom_calls=mine)
    assert steps(own) == [launch.Host]
    np.testing.assert_array_equal(own(a)[1], a[..., 0])
    without = codegen.compile(hlo.parse(CASES["Cholesky"][0].replace(VECTORS, "")), custom_calls=CUSTOM_CALLS)
    assert steps(without) == [launch.Host]
    c = "tensor<3x3xcomplex<f32>>"
    for target in ("lapack_cgeqrf_ffi", "lapack_cgehrd_ffi"):
        call = f"stablehlo.custom_call @{target}(%a) : ({c}) -> ({c}, tensor<3xcomplex<f32>>)"
        other = f"func.func @main(%a: {c}) -> {c} {{\n  %0:2 = {call}\n  return %0#0 : {c}\n}}"
        assert steps(codegen.compile(hlo.parse(other), custom_calls=CUSTOM_CALLS)) == [launch.Host]
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "guard")
    assert steps(codegen.compile(hlo.parse(text), custom_calls=CUSTOM_CALLS)) == [launch.Host]


def test_in_a_loop_and_in_place_of_its_operand() -> None:
    """What a loop carries may lie where the routine's operand lay: the operand is read before anything is written."""
    a = positive(12, 12)
    text = f"""func.func @main(%a: tensor<12x12xf64>, %n: tensor<i32>) -> tensor<12x12xf64> {{
      %z = stablehlo.constant dense<0> : tensor<i32>
      %0:2 = stablehlo.while(%i = %z, %x = %a) : tensor<i32>, tensor<12x12xf64>
        cond {{ %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
      }} do {{
        %one = stablehlo.constant dense<1> : tensor<i32>
        %v:3 = stablehlo.custom_call @lapack_dsyevd_ffi(%x) {VECTORS}
          : (tensor<12x12xf64>) -> (tensor<12x12xf64>, tensor<12xf64>, tensor<i32>)
        %t = stablehlo.transpose %v#0, dims = [1, 0] : (tensor<12x12xf64>) -> tensor<12x12xf64>
        %y = stablehlo.add %v#0, %t : tensor<12x12xf64>
        %j = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %j, %y : tensor<i32>, tensor<12x12xf64>
      }}
      return %0#1 : tensor<12x12xf64>
    }}"""
    executable = codegen.compile(hlo.parse(text), custom_calls=CUSTOM_CALLS)
    assert steps(executable) == [launch.Library]
    op = next(op for p in executable.plan.nested() for op in p.program.ops if op.name == "stablehlo.custom_call")
    x = a
    for _ in range(3):
        v, _, _ = CUSTOM_CALLS["lapack_dsyevd_ffi"](op, x)
        x = v + v.T
    np.testing.assert_allclose(executable(a, np.int32(3))[0], x, rtol=0, atol=1e-6)
