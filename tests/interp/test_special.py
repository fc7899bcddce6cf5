"""Special functions against high-precision arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from interp import special


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
