"""`tilewright.jit` agrees with `jax.jit` on a broad list of programs."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.jax

PROGRAMS: dict[str, Any] = {}
MORE: dict[str, Any] = {}

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax

    from tests.jax import jax_programs, jax_programs_more
    from tests.jax_families.covered import COVERED
    from tests.jax_families.slow import SLOW

    PROGRAMS, MORE = jax_programs.PROGRAMS, jax_programs_more.P

TOLERANCE = {"float32": 2e-5, "float64": 1e-11, "complex64": 1e-4, "complex128": 1e-10, "bfloat16": 1e-2, "float16": 2e-3}
# Every op is rounded to its type, as it is here: by default XLA keeps some numbers of 16 bits in f32.
ROUNDED = {"xla_allow_excess_precision": False}
# Where two correct algorithms differ by more than rounding.
LOOSE = {
    "cholesky_gradient": 1e-4,
    "solve_gradient": 1e-4,
    "singular_values": 1e-4,
    "eigenvalues": 1e-4,
    "matrix_functions": 1e-4,
    "solve_inverse_det": 1e-4,
    "least_squares": 1e-4,
    "factorisations": 1e-4,
    "eigenvalues_general": 1e-4,
    "random_distributions": 1e-4,
    "special_functions": 2e-4,
    "statistics": 1e-4,
    "fft_round_trip": 1e-4,
}


def same(found: Any, expected: Any, bound: float | None) -> None:
    """Equal trees, shapes, types and weak types, and elements within the type's bound of their array's scale."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for f, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(f, jax.Array) == isinstance(e, jax.Array)
        assert (f.shape, f.dtype) == (e.shape, e.dtype)
        if f.dtype == jax.dtypes.float0:
            continue
        if jax.dtypes.issubdtype(f.dtype, jax.dtypes.prng_key):
            f, e = jax.random.key_data(f), jax.random.key_data(e)
        a, b = np.asarray(f), np.asarray(e)
        allowed = TOLERANCE.get(a.dtype.name, 0.0)
        if not allowed:
            np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))
            continue
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        finite = np.abs(b[np.isfinite(b)])
        most = max(1e-30, float(finite.max(initial=0.0)))  # whose square may be infinite
        scale = max(1e-30, most * float(np.sqrt(np.mean((finite / most) ** 2)))) if finite.size else 1.0
        relative = max(allowed, bound or 0.0)
        np.testing.assert_allclose(a, b, rtol=relative, atol=relative * scale)


def is_slow(name: str) -> bool:
    return name in SLOW["programs"] or name in COVERED["programs"]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if is_slow(n) else ()) for n in PROGRAMS])
def test_agrees_with_jax(name: str) -> None:
    import tilewright

    function, args = PROGRAMS[name]
    compiled = tilewright.jit(function)
    same(compiled(*args), jax.jit(function, compiler_options=ROUNDED)(*args), LOOSE.get(name))
    assert compiled.cache_size == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_more_agree_with_jax(name: str) -> None:
    import tilewright

    function, args = MORE[name]
    same(tilewright.jit(function)(*args), jax.jit(function)(*args), 3e-4)


def test_agrees_with_64_bit_types() -> None:
    import tilewright

    with jax.enable_x64(True):
        same(tilewright.jit(jax_programs.wide)(*jax_programs.WIDE), jax.jit(jax_programs.wide)(*jax_programs.WIDE), None)
    f = tilewright.jit(lambda x: x * 2)
    assert f(jax_programs.WIDE[0]).dtype == np.float32
    with jax.enable_x64(True):
        assert f(jax_programs.WIDE[0]).dtype == np.float64
    assert f.cache_size == 2


def test_there_are_many() -> None:
    assert len(PROGRAMS) >= 80
