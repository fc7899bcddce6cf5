"""Fit the polynomial coefficients of ``codegen/lib/coefficients.py``.

For a function f on [lo, hi] and a weight w, the Remez exchange finds the polynomial p of a given degree that minimises
max |w(x) (p(x) - f(x))|.  All arithmetic is done in mpmath with 60 digits.
``python -m benchmarks.functions.minimax`` prints every table of ``coefficients.py`` again (a few seconds), with the weighted
error that each fit reaches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import mpmath as mp

mp.mp.dps = 60
Real = Any


def remez(
    f: Callable[[Real], Real], lo: Real, hi: Real, degree: int, weight: Callable[[Real], Real] | None = None
) -> tuple[list[Real], Real]:
    """Return the coefficients (ascending powers) of the minimax polynomial of f on [lo, hi], and its weighted error."""
    weight = weight or (lambda x: mp.mpf(1))
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    count = degree + 2
    points = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    grid = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * i / (40 * count)) for i in range(40 * count + 1)]
    target = [f(x) for x in grid]
    weights = [weight(x) for x in grid]
    coefficients: list[Real] = []
    worst = mp.mpf(0)
    for _ in range(12):
        matrix = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for i, x in enumerate(points):
            for j in range(degree + 1):
                matrix[i, j] = x**j
            matrix[i, degree + 1] = (-1) ** i / weight(x)
            right[i] = f(x)
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[j] for j in range(degree + 1)]
        errors = [w * (mp.polyval(coefficients[::-1], x) - t) for x, t, w in zip(grid, target, weights, strict=True)]
        runs = _alternating(errors, count)
        worst = max(abs(e) for e in errors)
        if len(runs) < count:
            break
        level = min(abs(errors[i]) for i in runs)
        points = [grid[i] for i in runs]
        if worst < level * mp.mpf("1.02"):
            break
    return coefficients, worst


def rational_remez(f: Callable[[Real], Real], lo: Real, hi: Real, above: int, below: int) -> tuple[list[Real], list[Real], Real]:
    """Return P and Q (ascending powers, Q[0] = 1) of the given degrees with minimal max |P / (Q f) - 1|, and that error.

    The exchange of ``remez`` on the linear condition P / f - Q = ± E Q', Q' being the last step's Q at the points.
    """
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    count = above + below + 2
    points = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    grid = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * i / (30 * count)) for i in range(30 * count + 1)]
    target = [f(x) for x in grid]
    p: list[Real] = []
    q: list[Real] = []
    worst = mp.mpf(0)
    for _ in range(25):
        scale = [mp.mpf(1)] * count
        for _ in range(8):
            matrix = mp.matrix(count, count)
            for i, x in enumerate(points):
                for j in range(above + 1):
                    matrix[i, j] = x**j / f(x)
                for j in range(1, below + 1):
                    matrix[i, above + j] = -(x**j)
                matrix[i, count - 1] = (-1) ** i * scale[i]
            solution = mp.lu_solve(matrix, mp.matrix([1] * count))
            p = [solution[j] for j in range(above + 1)]
            q = [mp.mpf(1), *(solution[above + j] for j in range(1, below + 1))]
            scale = [mp.polyval(q[::-1], x) for x in points]
        errors = [mp.polyval(p[::-1], x) / mp.polyval(q[::-1], x) / t - 1 for x, t in zip(grid, target, strict=True)]
        runs = _alternating(errors, count)
        worst = max(abs(e) for e in errors)
        if len(runs) < count:
            break
        points = [grid[i] for i in runs]
        if worst < min(abs(errors[i]) for i in runs) * mp.mpf("1.03"):
            break
    return p, q, worst


def _alternating(errors: list[Real], count: int) -> list[int]:
    """Where the extremum of each run of equal sign lies; at most ``count`` of them, the smaller end dropped first."""
    runs: list[int] = []
    for i, e in enumerate(errors):
        if e == 0:
            continue
        if runs and (errors[runs[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs


def _series(f: Callable[[Real], Real], at_zero: Real) -> Callable[[Real], Real]:
    return lambda x: at_zero if abs(x) < mp.mpf(10) ** -18 else f(x)


HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.0001")
ROOT = mp.sqrt(2)


def _exp_tail(r: Real) -> Real:
    return (mp.expm1(r) - r) / r**2


def _log_tail(x: Real) -> Real:
    return (mp.log1p(x) - x + x**2 / 2) / x**3


def _atanh_tail(z: Real) -> Real:
    """log((1 + s)/(1 - s)) / s - 2 over z = s**2."""
    s = mp.sqrt(z)
    return (mp.log((1 + s) / (1 - s)) / s - 2) / z


def _atanh_tail2(z: Real) -> Real:
    """The same series with its first two terms 2 + 2 z/3 taken out."""
    s = mp.sqrt(z)
    return (mp.log((1 + s) / (1 - s)) / s - 2 - 2 * z / 3) / z**2


def _erf_excess(z: Real) -> Real:
    """erf(x) / x - 1."""
    x = mp.sqrt(z)
    return mp.erf(x) / x - 1


def _tanh_tail(z: Real) -> Real:
    x = mp.sqrt(z)
    return (mp.tanh(x) / x - 1) / z


def _tanh_over_x(z: Real) -> Real:
    x = mp.sqrt(z)
    return mp.tanh(x) / x


def _erf_over_x(z: Real) -> Real:
    x = mp.sqrt(z)
    return mp.erf(x) / x


def _erfcx_of(centre: Real) -> Callable[[Real], Real]:
    def g(t: Real) -> Real:
        x = centre * (1 + t) / (1 - t)
        return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)

    return g


def _sin_tail(z: Real) -> Real:
    x = mp.sqrt(z)
    return (mp.sin(x) / x - 1) / z


def _cos_tail(z: Real) -> Real:
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def _atan_tail(z: Real) -> Real:
    x = mp.sqrt(z)
    return (mp.atan(x) / x - 1) / z


def _asin_tail(z: Real) -> Real:
    x = mp.sqrt(z)
    return (mp.asin(x) / x - 1) / z


def _erf_inv_over_x(w: Real) -> Real:
    """erf_inv(x) / x - 1 with w = -log(1 - x**2)."""
    if w == 0:
        return mp.sqrt(mp.pi) / 2 - 1
    x = mp.sqrt(-mp.expm1(-w))
    rest = mp.log(mp.exp(-w) / (1 + x))
    y = mp.erfinv(x) if w < 2 else mp.findroot(lambda y: mp.log(mp.erfc(y)) - rest, mp.sqrt(w) * mp.mpf("0.9"))
    return y / x - 1


def _lgamma_quotient(z: Real) -> Real:
    """log Gamma(2 + z) / z."""
    if abs(z) < mp.mpf("1e-15"):
        return mp.digamma(2) + z * mp.psi(1, 2) / 2 + z * z * mp.psi(2, 2) / 6
    return mp.loggamma(2 + z) / z


def _sin_pi(v: Real) -> Real:
    r = mp.sqrt(v)
    return mp.sin(mp.pi * r) / r if r else +mp.pi


def _stirling(v: Real) -> Real:
    """x (log Gamma(x) - (x - 1/2) (log x - 1) - log(2 pi) / 2 + 1/2) with v = 1 / x**2."""
    if v < mp.mpf("1e-12"):
        return mp.mpf(1) / 12 - v / 360 + v * v / 1260
    x = 1 / mp.sqrt(v)
    return (mp.loggamma(x) - (x - mp.mpf(1) / 2) * (mp.log(x) - 1) - mp.log(2 * mp.pi) / 2 + mp.mpf(1) / 2) * x


def _digamma_tail(v: Real) -> Real:
    """x**2 (log x - 1 / (2 x) - digamma(x)) with v = 1 / x**2."""
    if v < mp.mpf("1e-12"):
        return mp.mpf(1) / 12 - v / 120 + v * v / 252
    x = 1 / mp.sqrt(v)
    return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) / v


DIGAMMA_ROOT = mp.findroot(mp.digamma, mp.mpf("1.4616"))


def _digamma_at_root(u: Real) -> Real:
    """digamma(root + d) / d with d = u + 0.3."""
    d = u + mp.mpf("0.3")
    if abs(d) < mp.mpf("1e-20"):
        return mp.psi(1, DIGAMMA_ROOT) + d * mp.psi(2, DIGAMMA_ROOT) / 2
    return mp.digamma(DIGAMMA_ROOT + d) / d


def _i1e_small(t: Real) -> Real:
    """exp(-x) I1(x) / x (x + 4)**1.5 with x = 4 (t + 1)."""
    x = 4 * (t + 1)
    return (mp.exp(-x) * mp.besseli(1, x) / x if x else mp.mpf(1) / 2) * (x + 4) ** mp.mpf("1.5")


def _i1e_large(u: Real) -> Real:
    """exp(-x) I1(x) sqrt(x) with x = 16 / (u + 1)."""
    if u + 1 < mp.mpf("1e-9"):
        return 1 / mp.sqrt(2 * mp.pi) * (1 - 3 * (u + 1) / 128)
    x = 16 / (u + 1)
    return mp.exp(-x) * mp.besseli(1, x) * mp.sqrt(x)


def _relative(f: Callable[[Real], Real]) -> Callable[[Real], Real]:
    return lambda x: 1 / f(x)


def _above(f: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """The weight of an error relative to 1 + f."""
    return lambda x: 1 / (1 + f(x))


def _erf_inv_tail(centre: int) -> Callable[[Real], Real]:
    return lambda u: _erf_inv_over_x((u + centre) ** 2)


def _erf_inv_centre(u: Real) -> Real:
    return _erf_inv_over_x(u + mp.mpf("2.5"))


def _erfcx(x: Real) -> Real:
    """exp(x**2) erfc(x)."""
    return mp.exp(x * x) * mp.erfc(x)


def _t(x: float, centre: float) -> Real:
    return (mp.mpf(x) - centre) / (mp.mpf(x) + centre)


S2 = ((ROOT - 1) / (ROOT + 1)) ** 2 * mp.mpf("1.001")
QUARTER = (mp.pi / 4) ** 2 * mp.mpf("1.001")

# name: (function, lo, hi, degree, weight)
FITS: dict[str, tuple[Any, ...]] = {
    "EXP_F32": (_series(_exp_tail, mp.mpf(1) / 2), -HALF_LN2, HALF_LN2, 4, lambda r: r**2 + mp.mpf("1e-4")),
    "EXPM1_F32": (_series(_exp_tail, mp.mpf(1) / 2), -HALF_LN2, HALF_LN2, 5, lambda r: abs(r) + mp.mpf("1e-3")),
    "TANH_F32": (_series(_tanh_tail, -mp.mpf(1) / 3), 0, mp.mpf("0.61") ** 2, 4, lambda z: z),
    "LOG_F32": (_series(_log_tail, mp.mpf(1) / 3), ROOT / 2 - 1, ROOT - 1, 8, lambda x: x**2 + mp.mpf("1e-4")),
    "ERF_F32": (_series(_erf_excess, 2 / mp.sqrt(mp.pi) - 1), 0, 1, 6, None),
    "ERF_NEAR_0_F32": (_series(_erf_excess, 2 / mp.sqrt(mp.pi) - 1), 0, mp.mpf("0.26") ** 2, 2, None),
    "LOG_ERFC_F32": (lambda x: mp.log(mp.erfc(x)), 0.98, 4.05, 6, lambda x: mp.erfc(x)),
    "EXP_F64": (_series(_exp_tail, mp.mpf(1) / 2), -HALF_LN2, HALF_LN2, 9, lambda r: r**2 + mp.mpf("1e-4")),
    "EXPM1_F64": (_series(_exp_tail, mp.mpf(1) / 2), -HALF_LN2, HALF_LN2, 10, lambda r: abs(r) + mp.mpf("1e-3")),
    "LOG_F64": (_series(_atanh_tail, mp.mpf(2) / 3), 0, S2, 6, lambda z: z),
    "LOG2_TAIL_F64": (_series(_atanh_tail2, mp.mpf(2) / 5), 0, S2, 7, lambda z: z**2),
    "ERF_F64": (_series(_erf_excess, 2 / mp.sqrt(mp.pi) - 1), 0, mp.mpf("0.65") ** 2, 9, None),
    "ERFC_F64": (_erfcx_of(mp.mpf("3.5")), _t(0.45, 3.5), _t(27.5, 3.5), 22, None),
    "SIN_F32": (_series(_sin_tail, -mp.mpf(1) / 6), 0, QUARTER, 2, lambda z: z),
    "COS_F32": (_series(_cos_tail, mp.mpf(1) / 24), 0, QUARTER, 2, lambda z: z**2),
    "SIN_F64": (_series(_sin_tail, -mp.mpf(1) / 6), 0, QUARTER, 5, lambda z: z),
    "COS_F64": (_series(_cos_tail, mp.mpf(1) / 24), 0, QUARTER, 5, lambda z: z**2),
    "ATAN_F32": (_series(_atan_tail, -mp.mpf(1) / 3), 0, mp.mpf("0.1722"), 4, lambda z: z),
    "ATAN_F64": (_series(_atan_tail, -mp.mpf(1) / 3), 0, mp.mpf("0.1722"), 10, lambda z: z),
    "ASIN_F32": (_series(_asin_tail, mp.mpf(1) / 6), 0, mp.mpf("0.25"), 4, lambda z: z),
    "ASIN_F64": (_series(_asin_tail, mp.mpf(1) / 6), 0, mp.mpf("0.25"), 11, lambda z: z),
    "ERF_INV_CENTRE": (_erf_inv_centre, -2.5, 2.5, 9, _above(_erf_inv_centre)),
    "ERF_INV_TAIL_F32": (_erf_inv_tail(3), mp.sqrt(5) - mp.mpf("3.001"), mp.mpf("1.01"), 9, _above(_erf_inv_tail(3))),
    "ERF_INV_TAIL_F64": (_erf_inv_tail(4), mp.sqrt(5) - mp.mpf("4.001"), mp.mpf("2.2"), 12, _above(_erf_inv_tail(4))),
    "LGAMMA_F64": (_lgamma_quotient, -0.5, 0.5, 17, None),
    "SIN_PI_F64": (_sin_pi, 0, 0.25, 8, None),
    "STIRLING_F64": (_stirling, 0, mp.mpf(1) / 64, 6, None),
    "DIGAMMA_TAIL_F64": (_digamma_tail, 0, mp.mpf(1) / 64, 7, None),
    "DIGAMMA_ROOT_F64": (_digamma_at_root, mp.mpf("-1.05"), mp.mpf("1.05"), 33, None),
    "I1E_SMALL_F32": (_i1e_small, -1, 1, 17, _relative(_i1e_small)),
    "I1E_SMALL_F64": (_i1e_small, -1, 1, 28, _relative(_i1e_small)),
    "I1E_LARGE_F32": (_i1e_large, -1, 1, 6, None),
    "I1E_LARGE_F64": (_i1e_large, -1, 1, 24, None),
    "CBRT_F32": (lambda m: mp.cbrt(m), 1, 8, 3, lambda m: 1 / mp.cbrt(m)),
}


# name: (function, lo, hi, degree above, degree below)
RATIONAL_FITS: dict[str, tuple[Any, ...]] = {
    "ERFC_F32": (_erfcx, 0, mp.mpf("10.3"), 4, 5),
    "FAST_ERF_F32": (_series(_erf_over_x, 2 / mp.sqrt(mp.pi)), 0, mp.mpf("3.93") ** 2, 5, 5),
    "FAST_TANH_F32": (_series(_tanh_over_x, mp.mpf(1)), 0, mp.mpf("9.02") ** 2, 4, 5),
}


def _print(name: str, coefficients: list[Real]) -> None:
    print(f"{name} = (")
    for c in coefficients:
        print(f"    {mp.nstr(c, 19)},")
    print(")", flush=True)


def main() -> None:
    for name in sys.argv[1:] or [*FITS, *RATIONAL_FITS]:
        if name in FITS:
            coefficients, worst = remez(*FITS[name])
            print(f"# weighted error {mp.nstr(worst, 3)}")
            _print(name, coefficients)
        else:
            p, q, worst = rational_remez(*RATIONAL_FITS[name])
            print(f"# relative error {mp.nstr(worst, 3)}")
            _print(f"{name}_P", p)
            _print(f"{name}_Q", q)


if __name__ == "__main__":
    main()
