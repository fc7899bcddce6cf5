"""LAPACK's routines as steps of native code: the same as through Python."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
from codegen.call.lapack import step as native_lapack
from codegen.call.lapack.alone import publish_alone
from codegen.launcher import launch, native_threads, words
from hlo.blas import thread_functions
from hlo.foreign import native_routine
from tests.codegen.routines.test_matrices import KINDS, adjoint, close, numbers, positive, program, typed
from tilewright.jax.lapack import CUSTOM_CALLS

VECTORS = "{mhlo.backend_config = {mode = 86 : ui8, uplo = 76 : ui8}}"
UPPER = "{mhlo.backend_config = {mode = 86 : ui8, uplo = 85 : ui8}}"
ALONE = "{mhlo.backend_config = {mode = 78 : ui8, uplo = 76 : ui8}}"
THIN, FULL, NONE = (f"{{mhlo.backend_config = {{mode = {ord(mode)} : ui8}}}}" for mode in "SAN")


def steps(executable: codegen.Executable) -> list[type]:
    return [type(s) for s in executable._launch.steps if isinstance(s, launch.Host | launch.Library)]


def case(target: str, options: str, arrays: list[Any], results: list[tuple[Any, ...]]) -> tuple[str, list[Any]]:
    kind = KINDS[arrays[0].dtype]
    made = [typed(shape, *(element or (kind,))) for shape, *element in results]
    if len(options) == 2:  # vectors on the left, vectors on the right
        left, right = map(ord, options)
        options = f"{{mhlo.backend_config = {{compute_left = {left} : ui8, compute_right = {right} : ui8}}}}"
    given = ", ".join(f"%a{k}" for k in range(len(arrays)))
    return program(f"stablehlo.custom_call @{target}({given}) {options}", [typed(a) for a in arrays], made), arrays


F, C, Z = np.float32, np.complex64, np.complex128
CASES = {
    "symmetric, a batch": case("lapack_dsyevd_ffi", VECTORS, [positive(3, 20, 20)], [((3, 20, 20),), ((3, 20),), ((3,), "i32")]),
    "symmetric, upper": case("lapack_ssyevd_ffi", UPPER, [numbers(70, 70, dtype=F)], [((70, 70),), ((70,),), ((), "i32")]),
    "eigenvalues alone": case("lapack_dsyevd_ffi", ALONE, [positive(9, 9)], [((9, 9),), ((9,),), ((), "i32")]),
    "thin": case("lapack_sgesdd_ffi", THIN, [numbers(2, 9, 5, dtype=F)],
                 [((2, 9, 5),), ((2, 5),), ((2, 9, 5),), ((2, 5, 5),), ((2,), "i32")]),
    "full": case("lapack_dgesdd_ffi", FULL, [numbers(4, 7)], [((4, 7),), ((4,),), ((4, 4),), ((7, 7),), ((), "i32")]),
    "values, tall": case("lapack_sgesdd_ffi", NONE, [numbers(3, 9, 5, dtype=F)],
                         [((3, 9, 5),), ((3, 5),), ((3, 9, 9),), ((3, 5, 5),), ((3,), "i32")]),
    "values, wide": case("lapack_dgesdd_ffi", NONE, [numbers(4, 7)], [((4, 7),), ((4,),), ((4, 4),), ((7, 7),), ((), "i32")]),
    "Cholesky": case("lapack_dpotrf_ffi", VECTORS, [positive(70, 70)], [((70, 70),), ((), "i32")]),
    "LU": case("lapack_sgetrf_ffi", "", [numbers(2, 80, 70, dtype=F)], [((2, 80, 70),), ((2, 70), "i32"), ((2,), "i32")]),
    "QR": case("Qr", "", [numbers(2, 90, 70)], [((2, 90, 70),), ((2, 70),)]),
    "tridiagonal, a batch": case(
        "lapack_sgtsv_ffi", "", [*(numbers(3, 20, dtype=F) + k for k in range(3)), numbers(3, 20, 4, dtype=F)],
        [((3, 20),), ((3, 20),), ((3, 20),), ((3, 20, 4),), ((3,), "i32")],
    ),
    "tridiagonal, one row": case(
        "lapack_dgtsv_ffi", "", [numbers(1), numbers(1) + 3, numbers(1), numbers(1, 2)],
        [((1,),), ((1,),), ((1,),), ((1, 2),), ((), "i32")],
    ),
    "tridiagonal, singular": case(
        "lapack_dgtsv_ffi", "", [np.zeros(4), np.zeros(4), np.zeros(4), numbers(4, 1)],
        [((4,),), ((4,),), ((4,),), ((4, 1),), ((), "i32")],
    ),
    "hermitian, a batch": case(
        "lapack_zheevd_ffi", VECTORS, [positive(3, 20, 20, dtype=Z)], [((3, 20, 20),), ((3, 20), "f64"), ((3,), "i32")]
    ),
    "hermitian, upper": case("lapack_cheevd_ffi", UPPER, [numbers(70, 70, dtype=C)], [((70, 70),), ((70,), "f32"), ((), "i32")]),
    "hermitian, eigenvalues alone": case(
        "lapack_zheevd_ffi", ALONE, [positive(9, 9, dtype=Z)], [((9, 9),), ((9,), "f64"), ((), "i32")]
    ),
    "complex, thin": case("lapack_cgesdd_ffi", THIN, [numbers(2, 9, 5, dtype=C)],
                          [((2, 9, 5),), ((2, 5), "f32"), ((2, 9, 5),), ((2, 5, 5),), ((2,), "i32")]),
    "complex, values": case("lapack_zgesdd_ffi", NONE, [numbers(4, 7, dtype=Z)],
                            [((4, 7),), ((4,), "f64"), ((4, 4),), ((7, 7),), ((), "i32")]),
    "complex Cholesky": case("lapack_zpotrf_ffi", VECTORS, [positive(70, 70, dtype=Z)], [((70, 70),), ((), "i32")]),
    "complex LU": case("lapack_cgetrf_ffi", "", [numbers(2, 80, 70, dtype=C)], [((2, 80, 70),), ((2, 70), "i32"), ((2,), "i32")]),
    "complex QR": case("Qr", "", [numbers(2, 90, 70, dtype=Z)], [((2, 90, 70),), ((2, 70),)]),
    "complex Q": case("lapack_cungqr_ffi", "", [numbers(90, 70, dtype=C), numbers(70, dtype=C) / 100], [((90, 70),)]),
    "complex Q by XLA's name": case(
        "ProductOfElementaryHouseholderReflectors", "", [numbers(90, 70, dtype=Z), numbers(70, dtype=Z) / 100], [((90, 70),)]
    ),
    "general, values": case("lapack_dgeev_ffi", "NN", [numbers(3, 9, 9)],
                            [((3, 9),), ((3, 9),), *[((3, 9, 9), "complex<f64>")] * 2, ((3,), "i32")]),
    "general, both sides": case("lapack_sgeev_ffi", "VV", [numbers(9, 9, dtype=F)],
                                [((9,),), ((9,),), *[((9, 9), "complex<f32>")] * 2, ((), "i32")]),
    "general, complex": case("lapack_zgeev_ffi", "NV", [numbers(2, 9, 9, dtype=Z)],
                             [((2, 9),), *[((2, 9, 9),)] * 2, ((2,), "i32")]),
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
    first = 1 if name.endswith(("eigenvalues alone", "thin", "full")) else 0  # what LAPACK leaves of its input is nobody's
    for found, there in list(zip(executable(*arrays), expected, strict=True))[first:]:
        close(found, np.asarray(there))


@pytest.mark.parametrize("name", ["thin", "values", "symmetric", "large"])
def test_matrices_of_a_batch_are_shared_among_threads(name: str) -> None:
    """500 singular values of 6 x 6 took four times XLA's time: matrix by matrix in Python, and one thread alone for the rest."""
    b, n = (500, 6) if name != "large" else (3, 300)
    x = numbers(b, n, n, dtype=F)
    square, vectors = ((b, n, n),), [((b, n, n),), ((b, n, n),)]
    is_symmetric = name in ("symmetric", "large")
    if is_symmetric:
        text, arrays = case("lapack_ssyevd_ffi", VECTORS, [x], [square, ((b, n),), ((b,), "i32")])
    else:
        results = [square, ((b, n),), *vectors, ((b,), "i32")]
        text, arrays = case("lapack_sgesdd_ffi", THIN if name == "thin" else NONE, [x], results)
    alone, shared = (codegen.compile(hlo.parse(text), threads=t, custom_calls=CUSTOM_CALLS) for t in (1, 2))
    (step,) = [s for s in shared._launch.steps if isinstance(s, launch.Library)]
    assert step.tasks == b and shared._launch.parallel == (name != "large")  # LAPACK has threads for large matrices
    assert name == "large" or step.chunk * 8 <= b
    for found, there in zip(shared(*arrays)[1:], alone(*arrays)[1:], strict=True):
        np.testing.assert_array_equal(found, there)
    there = np.linalg.eigvalsh(x) if is_symmetric else np.linalg.svd(x, compute_uv=False)
    np.testing.assert_allclose(shared(*arrays)[1], there, atol=2e-4 if n < 100 else 5e-2)


@pytest.fixture
def blas_threads() -> Iterator[Callable[[], int]]:
    """How many threads SciPy's OpenBLAS takes: three, whatever the machine has."""
    found = thread_functions("scipy.linalg.cython_lapack")
    if found is None:
        pytest.skip("SciPy has another BLAS")
    count, set_count = found
    before = count()
    set_count(3)
    yield count
    set_count(before)


@pytest.mark.parametrize("n", [50, 80])
def test_matrices_that_threads_share_take_one_thread_each(
    n: int, blas_threads: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight eigenproblems of 80 x 80 took 83 ms: OpenBLAS's threads waited for the cores of the launcher's. Now 4 (JAX 6)."""
    x = positive(8, n, n)
    text, arrays = case("lapack_dsyevd_ffi", VECTORS, [x], [((8, n, n),), ((8, n),), ((8,), "i32")])
    made, texts = native_lapack.native_function, list[str]()
    monkeypatch.setattr(native_lapack, "native_function", lambda text, symbol: (texts.append(text), made(text, symbol))[1])
    executable = codegen.compile(hlo.parse(text), threads=2, custom_calls=CUSTOM_CALLS)
    (step,) = [s for s in executable._launch.steps if isinstance(s, launch.Library)]
    assert step.chunk < step.tasks and not step.has_threads
    begins, ends = (f"call void @tilewright_alone(i1 {begins})" for begins in ("true", "false"))
    *_, whole = texts
    assert 0 < whole.index(begins) < whole.index("call void @tilewright_lapack_dsyevd") < whole.index(ends)
    for _ in range(3):
        np.testing.assert_allclose(executable(*arrays)[1], np.linalg.eigvalsh(x), rtol=1e-9)
        assert blas_threads() == 3


def test_blas_has_its_threads_back_when_the_last_is_done(blas_threads: Callable[[], int]) -> None:
    potrf = CUSTOM_CALLS["lapack_dpotrf_ffi"]
    addresses = [native_routine(potrf, f"{what}_num_threads") for what in ("get", "set")]
    assert all(addresses)
    entry, _ = publish_alone(*addresses)
    alone = ctypes.CFUNCTYPE(None, ctypes.c_bool)(entry)
    for begins, expected in ((True, 1), (True, 1), (False, 1), (True, 1), (False, 1), (False, 3), (True, 1), (False, 3)):
        alone(begins)
        assert blas_threads() == expected

    set_count = ctypes.CFUNCTYPE(None, ctypes.c_int)(addresses[1])
    set_count(1)
    alone(True)  # comes before another one's end has set as many as there were
    set_count(3)
    assert blas_threads() == 3
    alone(False)
    assert blas_threads() == 3, "one thread would stay for good"

    def work() -> None:
        for _ in range(2000):
            alone(True)
            alone(False)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert blas_threads() == 3


def test_without_a_way_to_limit_blas_one_thread_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = native_lapack.native_routine
    monkeypatch.setattr(native_lapack, "native_routine", lambda f, name: 0 if name.endswith("num_threads") else whole(f, name))
    text, arrays = case("lapack_dsyevd_ffi", VECTORS, [positive(8, 80, 80)], [((8, 80, 80),), ((8, 80),), ((8,), "i32")])
    executable = codegen.compile(hlo.parse(text), threads=2, custom_calls=CUSTOM_CALLS)
    (step,) = [s for s in executable._launch.steps if isinstance(s, launch.Library)]
    assert step.chunk == step.tasks == 8 and step.has_threads
    np.testing.assert_allclose(executable(*arrays)[1], np.linalg.eigvalsh(arrays[0]), rtol=1e-9)


def test_right_sides_count_for_a_systems_size() -> None:
    """Two systems of 32 rows with 2,000 right sides each took 8 ms by BLAS's threads and the launcher's, and take .25."""
    a, b = _system((2, 32, 32), 2000, np.float32, False)
    letters = {"side": "R", "uplo": "L", "trans_x": "N", "diag": "N"}
    call = "stablehlo.custom_call @lapack_strsm_ffi(%a0, %a1) {mhlo.backend_config = {"
    call += ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in letters.items()) + "}}"
    module = hlo.parse(program(call, [typed(a), typed(b)], [typed(b)]))
    executable = codegen.compile(module, threads=2, custom_calls=CUSTOM_CALLS)
    (step,) = [s for s in executable._launch.steps if isinstance(s, launch.Library)]
    assert step.chunk < step.tasks and not step.has_threads
    expected = np.linalg.solve(np.tril(a).transpose(0, 2, 1), b.transpose(0, 2, 1)).transpose(0, 2, 1)
    np.testing.assert_allclose(executable(a, b)[0], expected, atol=1e-4)


@pytest.mark.parametrize(("n", "has_threads"), [(40, False), (96, True)])
def test_workers_sleep_while_lapack_has_threads(n: int, has_threads: bool) -> None:
    """On two cores one of them waited for the next kernel, on the core of LAPACK's second thread: 1.3 ms in place of .7."""
    m = f"tensor<{n}x{n}xf64>"
    results = f"{m}, tensor<{n}xf64>, tensor<i32>"
    text = f"""func.func @main(%a: {m}, %x: tensor<512x512xf64>) -> ({m}, tensor<512x512xf64>, tensor<512x512xf64>) {{
      %e = stablehlo.tanh %x : tensor<512x512xf64>
      %0:3 = stablehlo.custom_call @lapack_dsyevd_ffi(%a) {VECTORS} : ({m}) -> ({results})
      %f = stablehlo.sine %x : tensor<512x512xf64>
      return %0#0, %e, %f : {m}, tensor<512x512xf64>, tensor<512x512xf64>
    }}"""
    a, x = positive(n, n), numbers(512, 512)
    executable = codegen.compile(hlo.parse(text), threads=2, custom_calls=CUSTOM_CALLS)
    (step,) = [s for s in executable._launch.steps if isinstance(s, launch.Library)]
    assert step.has_threads == has_threads
    row = executable._launch.template[executable._launch.steps.index(step)]
    assert row[words.FIRST] == has_threads
    vectors, e, f = executable(a, x)
    np.testing.assert_allclose(vectors.T @ a @ vectors, np.diag(np.linalg.eigvalsh(a)), atol=1e-8 * n)
    np.testing.assert_allclose(e, np.tanh(x), rtol=1e-12)
    np.testing.assert_allclose(f, np.sin(x), rtol=1e-9)


@pytest.mark.parametrize("has_threads", [False, True])
def test_a_worker_does_not_spin_beside_a_library_with_threads(has_threads: bool) -> None:
    """How long workers look for the next step, as the routine finds it, and as the step after it does."""
    seen: list[int] = []

    def look(*_: Any) -> None:
        seen.append(int(native_threads.get_pool().state[words.SPIN]))

    called = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(look)
    entry = ctypes.cast(called, ctypes.c_void_p).value
    assert entry is not None
    shared = launch.Library((), entry, called, tasks=2)
    alone = launch.Library((), entry, called, has_threads=has_threads)
    launch.Plan([alone, shared, alone]).run(np.zeros(1, np.int64), threads=2)
    within = int(native_threads.get_pool().state[words.WITHIN])  # 0 where there is one core: nobody spins
    assert len(seen) >= 4
    expected = 0 if has_threads else within
    assert (seen[0], seen[-1]) == (expected, expected)
    assert set(seen[1:-1]) == {within}


def test_what_is_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of the caller's own, a routine that is not known, a call that does not say which triangle, a look."""
    text, (a,) = CASES["symmetric, a batch"]
    mine = {"lapack_dsyevd_ffi": lambda op, x: (x, x[..., 0], np.zeros(3, np.int32))}
    own = codegen.compile(hlo.parse(text), custom_calls=mine)
    assert steps(own) == [launch.Host]
    np.testing.assert_array_equal(own(a)[1], a[..., 0])
    without = codegen.compile(hlo.parse(CASES["Cholesky"][0].replace(VECTORS, "")), custom_calls=CUSTOM_CALLS)
    assert steps(without) == [launch.Host]
    c = "tensor<3x3xcomplex<f32>>"
    call = f"stablehlo.custom_call @lapack_cgehrd_ffi(%a) : ({c}) -> ({c}, tensor<3xcomplex<f32>>)"
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


WORDS = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def _system(shape: tuple[int, ...], many: int, dtype: Any, left: bool) -> tuple[Any, Any]:
    n = shape[-1]
    a = numbers(*shape, dtype=dtype) / n + 2 * np.eye(n, dtype=dtype)
    return a, numbers(*shape[:-2], *((n, many) if left else (many, n)), dtype=dtype)


@pytest.mark.parametrize(("dtype", "turned"), [(F, "N"), (F, "T"), (np.float64, "N"), (np.float64, "T"), (Z, "C"), (C, "T")])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(("lower", "unit"), [(True, False), (False, True)])
@pytest.mark.parametrize("is_op", [False, True])
def test_triangular_systems(dtype: Any, turned: str, left: bool, lower: bool, unit: bool, is_op: bool) -> None:
    """JAX's batched right sides took ten times JAX's time: a library in Python solved them."""
    a, b = _system((2, 70, 70), 90, dtype, left)
    flag = {False: "false", True: "true"}
    letters = {"side": "RL"[left], "uplo": "UL"[lower], "trans_x": turned, "diag": "NU"[unit]}
    prefix = {F: "s", C: "c", Z: "z"}.get(dtype, "d")
    call = f"stablehlo.custom_call @lapack_{prefix}trsm_ffi(%a0, %a1) {{mhlo.backend_config = {{"
    call += ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in letters.items()) + "}}"
    op = f'"stablehlo.triangular_solve"(%a0, %a1) {{left_side = {flag[left]}, lower = {flag[lower]}, '
    op += f"unit_diagonal = {flag[unit]}, transpose_a = #stablehlo<transpose {WORDS[turned]}>}}"
    module = hlo.parse(program(op if is_op else call, [typed(a), typed(b)], [typed(b)]))
    executable = codegen.compile(module, custom_calls=CUSTOM_CALLS)
    assert steps(executable) == [launch.Library]
    found = executable(a, b)[0]
    triangle = np.tril(a, -1 if unit else 0) if lower else np.triu(a, 1 if unit else 0)
    triangle = (triangle + np.eye(70, dtype=dtype) * unit).astype(np.result_type(dtype, np.float64))
    triangle = {"N": triangle, "T": np.swapaxes(triangle, -1, -2), "C": adjoint(triangle)}[turned]
    close((triangle @ found if left else found @ triangle).astype(dtype), b)


def test_a_system_whose_result_is_its_own_matrix() -> None:
    """x = a^-1 x with the matrix and the right side in one memory: what is solved is not written where it is still read."""
    a = np.tril(numbers(70, 70)) / 70 + 2 * np.eye(70)
    t = typed(a)
    solve = '"stablehlo.triangular_solve"(%x, %x) {left_side = true, lower = true, unit_diagonal = false, '
    solve += "transpose_a = #stablehlo<transpose NO_TRANSPOSE>}"
    text = f"""func.func @main(%a: {t}, %n: tensor<i32>) -> {t} {{
      %z = stablehlo.constant dense<0> : tensor<i32>
      %0:2 = stablehlo.while(%i = %z, %x = %a) : tensor<i32>, {t}
        cond {{ %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
      }} do {{
        %one = stablehlo.constant dense<1> : tensor<i32>
        %v = {solve} : ({t}, {t}) -> {t}
        %j = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %j, %v : tensor<i32>, {t}
      }}
      return %0#1 : {t}
    }}"""
    executable = codegen.compile(hlo.parse(text), custom_calls=CUSTOM_CALLS)
    assert launch.Library in steps(executable)
    close(executable(a, np.int32(1))[0], np.eye(70))
    close(executable(a, np.int32(2))[0], np.eye(70))


def test_systems_without_a_known_routine_are_the_librarys() -> None:
    a, b = _system((70, 70), 90, np.float64, True)
    op = '"stablehlo.triangular_solve"(%a0, %a1) {left_side = true, lower = true, unit_diagonal = false, '
    text = program(op + "transpose_a = #stablehlo<transpose NO_TRANSPOSE>}", [typed(a), typed(b)], [typed(b)])
    for calls in (None, {"lapack_dtrsm_ffi": lambda op, a, b: b}):
        executable = codegen.compile(hlo.parse(text), custom_calls=calls)
        assert steps(executable) == [launch.Host]
        close(np.tril(a) @ executable(a, b)[0], b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_of_stablehlo(dtype: Any, lower: bool) -> None:
    """The factor with zeros beside it; NaNs for the one matrix of the batch that has none."""
    a = positive(3, 70, 70, dtype=dtype)
    a[1] -= 200 * np.eye(70, dtype=dtype)
    t = typed(a)
    module = hlo.parse(program(f'"stablehlo.cholesky"(%a0) {{lower = {str(lower).lower()}}}', [t], [t]))
    executable = codegen.compile(module, custom_calls=CUSTOM_CALLS)
    assert steps(executable) == [launch.Library]
    found = executable(np.tril(a) if lower else np.triu(a))[0]
    for k in (0, 2):
        factor = np.linalg.cholesky(a[k])
        close(found[k], factor if lower else factor.T)
    inside = np.tril(np.ones((70, 70), bool)) if lower else np.triu(np.ones((70, 70), bool))
    np.testing.assert_array_equal(np.isnan(found[1]), inside)
    assert not found[1][~inside].any()


@pytest.mark.parametrize("shape", [(2, 80, 70), (70, 90)])
def test_lu_of_xlas_compilers(shape: tuple[int, ...]) -> None:
    """Pivots and rows are counted from 0."""
    a = numbers(*shape)
    least = min(shape[-2:])
    made = [typed(shape, "f64"), typed((*shape[:-2], least), "i32"), typed(shape[:-1], "i32")]
    module = hlo.parse(program("stablehlo.custom_call @LuDecomposition(%a0)", [typed(a)], made))
    executable = codegen.compile(module, custom_calls=CUSTOM_CALLS)
    assert steps(executable) == [launch.Library]
    for found, there in zip(executable(a), CUSTOM_CALLS["LuDecomposition"](module.root, a), strict=True):
        close(found, np.asarray(there))
