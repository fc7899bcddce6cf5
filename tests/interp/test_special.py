"""Special functions against high-precision arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from interp import complexes, special, special_gamma


def relative_errors(found: np.ndarray, exact: Callable[[mpmath.mpf], mpmath.mpf], x: np.ndarray) -> np.ndarray:
    with mpmath.workdps(60):
        pairs = [(mpmath.mpf(float(f)), exact(mpmath.mpf(float(v)))) for f, v in zip(found, x, strict=True)]
        return np.array([float(abs(f - e) / abs(e)) if e else float(abs(f)) for f, e in pairs])


def spread(low: float, high: float, n: int = 400) -> np.ndarray:
    rng = np.random.default_rng(11)
    return np.concatenate([rng.uniform(low, high, n), np.linspace(low, high, 57)])


@pytest.mark.parametrize(("low", "high"), [(-6, 6), (-1e-8, 1e-8), (0.9, 1.1), (-0.6, 0.6)])
def test_erf(low: float, high: float) -> None:
    x = spread(low, high)
    assert relative_errors(special.erf(x), mpmath.erf, x).max() < 1e-15


@pytest.mark.parametrize(("low", "high"), [(-6, 6), (0.4, 0.6), (0, 3), (3, 26)])
def test_erfc(low: float, high: float) -> None:
    x = spread(low, high)
    assert relative_errors(special.erfc(x), mpmath.erfc, x).max() < 1e-15


def test_error_functions_at_the_ends() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e300])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(special.erf(x), [1, -1, np.nan, 0.0, -0.0, 1])
        np.testing.assert_array_equal(special.erfc(x), [0, 2, np.nan, 1, 1, 0])
    assert np.signbit(special.erf(np.array(-0.0)))


def test_logistic() -> None:
    x = spread(-40, 40)
    assert relative_errors(special.logistic(x), lambda v: 1 / (1 + mpmath.exp(-v)), x).max() < 1e-15


@pytest.mark.parametrize(
    ("low", "high", "bound"),
    [(1e-10, 0.5, 1e-15), (0.5, 1.5, 1e-15), (1.5, 2.5, 2e-15), (2.5, 8, 1e-15), (8, 1e3, 1e-15), (-5, 0, 1e-12)],
)
def test_lgamma(low: float, high: float, bound: float) -> None:
    x = spread(low + 1e-9, high - 1e-9)
    assert relative_errors(special_gamma.lgamma(x), lambda v: mpmath.log(abs(mpmath.gamma(v))), x).max() < bound


@pytest.mark.parametrize(
    ("low", "high", "bound"), [(1e-10, 0.5, 2e-15), (0.5, 2, 1e-14), (2, 8, 4e-15), (8, 1e3, 1e-15), (-5, 0, 1e-12)]
)
def test_digamma(low: float, high: float, bound: float) -> None:
    x = spread(low + 1e-9, high - 1e-9)
    assert relative_errors(special_gamma.digamma(x), mpmath.digamma, x).max() < bound


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.5), (0.5, 1 - 1e-9), (-1 + 1e-12, -0.9), (-1e-5, 1e-5)])
def test_erf_inv(low: float, high: float) -> None:
    x = spread(low, high, 60)
    assert relative_errors(special_gamma.erf_inv(x), mpmath.erfinv, x).max() < 1e-15


@pytest.mark.parametrize(("low", "high"), [(-8, 8), (8, 1e3), (-1e-5, 1e-5)])
def test_bessel_i1e(low: float, high: float) -> None:
    x = spread(low, high, 60)
    exact = lambda v: mpmath.exp(-abs(v)) * mpmath.besseli(1, v)  # noqa: E731
    assert relative_errors(special_gamma.bessel_i1e(x), exact, x).max() < 3e-15


def test_zeta_and_polygamma() -> None:
    rng = np.random.default_rng(0)
    x, q, n = rng.uniform(1.01, 20, 60), rng.uniform(0.01, 20, 60), rng.integers(0, 8, 60)
    with mpmath.workdps(40):
        for f, s, t in zip(special_gamma.zeta(x, q).tolist(), x.tolist(), q.tolist(), strict=True):
            assert abs(f / mpmath.zeta(s, t) - 1) < 2e-15
        for f, k, t in zip(special_gamma.polygamma(n.astype(float), q).tolist(), n.tolist(), q.tolist(), strict=True):
            assert abs(f / mpmath.polygamma(k, t) - 1) < 1e-14


def test_gamma_functions_at_the_ends() -> None:
    x = np.array([0.0, -1.0, -np.inf, np.inf, np.nan])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(special_gamma.lgamma(x), [np.inf, np.inf, np.inf, np.inf, np.nan])
        np.testing.assert_array_equal(special_gamma.digamma(x), [np.nan, np.nan, np.nan, np.inf, np.nan])
        np.testing.assert_array_equal(
            special_gamma.erf_inv(np.array([1, -1, 2, 0, np.nan])), [np.inf, -np.inf, np.nan, 0, np.nan]
        )
        np.testing.assert_array_equal(special_gamma.bessel_i1e(x), [0, special_gamma.bessel_i1e(x)[1], 0, 0, np.nan])
        np.testing.assert_array_equal(special_gamma.zeta(np.array([1.0, 0.5, 2, 2, 3]), np.array([2.0, 2, 0, np.inf, -1])),
                                      [np.inf, np.nan, np.inf, 0, np.nan])  # fmt: skip


COMPLEX = {
    "expm1": mpmath.expm1, "log1p": lambda z: mpmath.log(1 + z), "log": mpmath.log, "exp": mpmath.exp, "sqrt": mpmath.sqrt,
    "rsqrt": lambda z: 1 / mpmath.sqrt(z), "tanh": mpmath.tanh, "tan": mpmath.tan, "square": lambda z: z * z,
    "logistic": lambda z: 1 / (1 + mpmath.exp(-z)),
    "asin": mpmath.asin, "acos": mpmath.acos, "atan": mpmath.atan, "asinh": mpmath.asinh,
    "acosh": mpmath.acosh, "atanh": mpmath.atanh,
    "cbrt": mpmath.cbrt,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_functions(name: str) -> None:
    """The distance in the plane is small against the value, on all scales."""
    rng = np.random.default_rng(3)
    z = (rng.normal(size=200) + 1j * rng.normal(size=200)) * 10.0 ** rng.uniform(-6, 1, 200)
    with np.errstate(all="ignore"):
        found = getattr(complexes, name)(z)
    with mpmath.workdps(50):
        for f, v in zip(found.tolist(), z.tolist(), strict=True):
            exact = COMPLEX[name](mpmath.mpc(v))
            assert abs(mpmath.mpc(f) - exact) <= 4e-15 * abs(exact), (v, f, exact)


@pytest.mark.parametrize("f", [special.erf, special.erfc])
def test_large_arrays_are_computed_in_parts_to_the_same_bits(f: Callable[[np.ndarray], np.ndarray]) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3, special.PART_ELEMS)) * 3
    x[0, :8] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -1.0, 1.0]
    found = f(x.T).T  # elements that do not follow each other in memory, too
    assert found.shape == x.shape
    np.testing.assert_array_equal(found, np.stack([f(row) for row in x]))
    np.testing.assert_array_equal(found[1], [float(f(v)) for v in x[1]])


def test_erfc_takes_one_series_for_each_element_outside_of_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both tails are one function of the distance from zero: a GELU in the evaluator took most of a model's first call."""
    counts: list[int] = []
    chebyshev = special.chebyshev
    monkeypatch.setattr(special, "chebyshev", lambda c, t: (counts.append(t.size), chebyshev(c, t))[1])
    special.erfc(np.linspace(-5, 5, 1000))
    assert sum(counts) <= 1000
