"""Every function of `jax.scipy.special` and `jax.scipy.stats`, and the reductions that leave NaN out.

Both sides compute the same series and rational approximations, step by step, from functions (exp, log, pow, lgamma, digamma)
that may differ by a few units in the last place. A bound above the types' own is given where such a difference grows, and
says beside it how: by the size of an exponent (exp(x) errs by |x| times the error of x), by the difference of two nearly equal
logarithms, or in a tail, where the result is small against the numbers that it is computed from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as sc
import jax.scipy.stats as st
import numpy as np

from tests.jax_families.common import Table, special_floats, values

PROGRAMS = Table()
add = PROGRAMS.add

_WIDTHS = ("float32", "float64")


def _add(name: str, f: Callable[..., Any], *ranges: tuple[float, float], bound: float | None = None) -> None:
    """f of numbers between bounds, in f32 and in f64, where what a bound for f32 allows is below the type's own."""
    for t in _WIDTHS:
        args = [values(t, 3, 7, low=low, high=high, seed=f"{name}{k}") for k, (low, high) in enumerate(ranges)]
        add(f"{name}, {t}", f, *args, x64=t == "float64", bound=bound if t == "float32" else None)


# ---------------------------------------------------------------- jax.scipy.special

_LGAMMA = 1e-4  # exp of a difference of lgammas up to 20: 20 units in the last place of f32, four times
_ONE_REAL: dict[str, tuple[tuple[float, float], float | None]] = {
    "dawsn": ((-6, 6), None),
    "digamma": ((0.1, 9), None),
    "entr": ((-1, 4), None),
    "erf": ((-3, 3), None),
    "erfc": ((-3, 5), None),
    "erfcx": ((-2, 9), None),
    "erfinv": ((-0.99, 0.99), None),
    "exp1": ((0.1, 9), None),
    "expi": ((-4, 9), None),
    "expit": ((-9, 9), None),
    "factorial": ((0, 9), _LGAMMA),
    "fresnel": ((-4, 4), None),
    "gamma": ((-3.9, 6), _LGAMMA),
    "gammaln": ((0.1, 9), None),
    "gammasgn": ((-4, 4), None),
    "i0": ((-9, 9), None),
    "i0e": ((-9, 9), None),
    "i1": ((-9, 9), None),
    "i1e": ((-9, 9), None),
    "log_ndtr": ((-12, 4), None),
    "loggamma": ((0.1, 9), None),
    "logit": ((0.01, 0.99), None),
    "ndtr": ((-5, 5), None),
    "ndtri": ((0.001, 0.999), None),
    "sici": ((-9, 9), None),
    "spence": ((0.01, 6), None),
    "wofz": ((-4, 4), None),
}
_TWO_REAL: dict[str, tuple[tuple[float, float], tuple[float, float], float | None]] = {
    "beta": ((0.3, 4), (0.3, 4), _LGAMMA),
    "betaln": ((0.3, 9), (0.3, 9), 5e-5),  # the difference of lgammas
    "boxcox": ((0.1, 9), (-2, 2), None),
    "boxcox1p": ((-0.9, 9), (-2, 2), None),
    "comb": ((4, 9), (0, 4), _LGAMMA),
    "gammainc": ((0.3, 9), (0.1, 12), _LGAMMA),  # its factor is exp(a log x - x - lgamma(a))
    "gammaincc": ((0.3, 9), (0.1, 12), _LGAMMA),
    "kl_div": ((0, 4), (0.1, 4), None),
    "owens_t": ((-3, 3), (-2, 2), None),
    "poch": ((0.3, 5), (0.1, 4), _LGAMMA),
    "rel_entr": ((0, 4), (0.1, 4), None),
    "xlog1py": ((-2, 4), (-0.9, 4), None),
    "xlogy": ((-2, 4), (0.1, 4), None),
    "zeta": ((1.2, 9), (0.2, 6), None),
}
for _name, (_range, _bound) in _ONE_REAL.items():
    _add(f"special.{_name}", getattr(sc, _name), _range, bound=_bound)
for _name, (_first, _second, _bound) in _TWO_REAL.items():
    _add(f"special.{_name}", getattr(sc, _name), _first, _second, bound=_bound)
_add("special.betainc", sc.betainc, (0.3, 6), (0.3, 6), (0, 1), bound=_LGAMMA)
_add("special.hyp1f1", sc.hyp1f1, (0.5, 3), (1.5, 4), (-2, 2), bound=_LGAMMA)
_add("special.hyp2f1", sc.hyp2f1, (0.5, 2), (0.5, 2), (2.5, 5), (-0.8, 0.8), bound=1e-3)  # a series of alternating terms
add("special.bernoulli", lambda: (sc.bernoulli(5), sc.bernoulli(20)))
add("special.bessel_jn", lambda z: sc.bessel_jn(z, v=3, n_iter=40), values("float32", 9, low=0.5, high=9), bound=1e-4)
add("special.expn", lambda x: [sc.expn(n, x) for n in (1, 2, 5)], values("float32", 9, low=0.1, high=6))
add("special.polygamma", lambda x: [sc.polygamma(n, x) for n in (0, 1, 3)], values("float32", 9, low=0.3, high=6), bound=_LGAMMA)
add("special.multigammaln", lambda a: sc.multigammaln(a, 3), values("float32", 9, low=2, high=9))
add(
    "special.sph_harm_y",
    lambda t, p: sc.sph_harm_y(jnp.array([2, 3, 3]), jnp.array([1, 0, 2]), t, p, n_max=3),
    values("float32", 3, low=0.1, high=3),
    values("float32", 3, low=0.1, high=6),
    bound=1e-4,
)
add(
    "special.logsumexp",
    lambda x, b: (
        sc.logsumexp(x),
        sc.logsumexp(x, 1),
        sc.logsumexp(x, 0, b=b, return_sign=True),
        sc.logsumexp(x, 1, keepdims=True, where=b > 0),
        sc.softmax(x, axis=0),
        sc.log_softmax(x, axis=(0, 1)),
    ),
    values("float32", 4, 6),
    values("float32", 4, 6, seed="b"),
    bound=5e-5,  # a sum of terms of both signs
)
# At poles and infinities factorial is what its series leaves there; JAX's own loop for exp1 does not end for some ends of f64.
_UNDEFINED = {"exp1", "expi", "factorial"}
# The reciprocal of the largest number is denormal, which XLA takes for zero; a complex square beyond the range is the difference
# of infinities, or not, as the compiler fuses products with sums.
_SMALLER = {"spence", "wofz"}
for _name in _ONE_REAL:
    if _name not in _UNDEFINED:
        for _t in _WIDTHS:
            _ends = special_floats(_t)
            if _name in _SMALLER:
                _ends = _ends[~(np.isfinite(_ends) & (np.abs(_ends) > 1e30))]
            add(f"special.{_name} at the ends, {_t}", getattr(sc, _name), _ends, x64=_t == "float64")
for _name in ("erf", "erfc", "erfinv", "gammaln", "digamma", "i0e", "expit", "logit"):
    _low, _high = _ONE_REAL[_name][0]
    add(
        f"special.{_name}, two bytes and its gradient",
        lambda x, y, z, f=getattr(sc, _name): (f(x), f(y), jax.grad(lambda z: jnp.sum(f(z)))(z)),
        *(values(t, 3, 5, low=max(_low, -4), high=min(_high, 4)) for t in ("bfloat16", "float16", "float32")),
        bound=2e-4,  # gradients are exponentials of squares
    )

# ---------------------------------------------------------------- jax.scipy.stats


def _distribution(name: str, parameters: int) -> Callable[..., Any]:
    """All of a distribution's functions: of x, those that take a probability of q, which follows."""
    module = getattr(st, name)
    of_x = [getattr(module, n) for n in ("logpdf", "pdf", "logpmf", "pmf", "cdf", "logcdf", "sf", "logsf") if hasattr(module, n)]
    of_q = [getattr(module, n) for n in ("ppf", "isf") if hasattr(module, n)]

    def compute(x: Any, q: Any, *rest: Any) -> Any:
        return [f(x, *rest[:parameters]) for f in of_x] + [f(q, *rest[:parameters]) for f in of_q]

    return compute


_P, _S = (0.2, 0.8), (0.5, 2.0)  # probabilities; scales and shapes
_DISTRIBUTIONS: dict[str, tuple[tuple[float, float], list[tuple[float, float]], float | None]] = {
    "beta": ((0.05, 0.95), [(0.5, 4), (0.5, 4)], _LGAMMA),
    "cauchy": ((-6, 6), [(-1, 1), _S], None),
    "chi2": ((0.1, 9), [(1, 6)], _LGAMMA),
    "expon": ((-1, 6), [(-1, 1), _S], None),
    "gamma": ((0.1, 9), [(0.5, 6)], _LGAMMA),
    "gennorm": ((-3, 3), [(0.5, 3)], _LGAMMA),
    "gumbel_l": ((-4, 2), [(-1, 1), _S], None),
    "gumbel_r": ((-2, 6), [(-1, 1), _S], None),
    "laplace": ((-4, 4), [(-1, 1), _S], None),
    "logistic": ((-6, 6), [(-1, 1), _S], None),
    "norm": ((-4, 4), [(-1, 1), _S], None),
    "pareto": ((1.1, 6), [(0.5, 4)], None),
    "t": ((-4, 4), [(1, 9)], _LGAMMA),
    "truncnorm": ((-3, 3), [(-2, -1), (1, 2)], _LGAMMA),  # tails over the difference of two tails
    "uniform": ((-1, 3), [(-1, 1), _S], None),
    "vonmises": ((-3, 3), [(0.2, 4)], None),
    "wrapcauchy": ((0, 6), [_P], None),
}
for _name, (_x, _rest, _bound) in _DISTRIBUTIONS.items():
    _add(f"stats.{_name}", _distribution(_name, len(_rest)), _x, _P, *_rest, bound=_bound)


def _counts(name: str, high: int) -> np.ndarray:
    return values("int32", 3, 7, low=0, high=high, seed=name)


def _p(name: str, low: float = 0.2, high: float = 0.8) -> np.ndarray:
    return values("float32", 3, 7, low=low, high=high, seed=name)


_DISCRETE: dict[str, tuple[Any, ...]] = {
    "bernoulli": (lambda k, p: (st.bernoulli.logpmf(k, p), st.bernoulli.pmf(k, p), st.bernoulli.cdf(k, p),
                                st.bernoulli.ppf(p, 1 - p)), _counts("b", 2), _p("b")),
    "betabinom": (lambda k, a, b: (st.betabinom.logpmf(k, 8, a, b), st.betabinom.pmf(k, 8, a, b)),
                  _counts("bb", 8), _p("a", 0.5, 3), _p("b", 0.5, 3)),
    "binom": (lambda k, p: (st.binom.logpmf(k, 9, p), st.binom.pmf(k, 9, p)), _counts("bi", 11), _p("bi")),
    "geom": (lambda k, p: (st.geom.logpmf(k, p), st.geom.pmf(k, p)), _counts("g", 7), _p("g")),
    "multinomial": (lambda k, p: (st.multinomial.logpmf(k, 9, p / p.sum()), st.multinomial.pmf(k, 9, p / p.sum())),
                    np.array([2, 3, 4], np.int32), np.array([1, 2, 4], np.float32)),
    "nbinom": (lambda k, n, p: (st.nbinom.logpmf(k, n, p), st.nbinom.pmf(k, n, p)),
               _counts("nb", 9), _p("n", 1, 5), _p("nb")),
    "poisson": (lambda k, mu: (st.poisson.logpmf(k, mu), st.poisson.pmf(k, mu), st.poisson.cdf(k, mu)),
                _counts("po", 9), _p("po", 0.5, 6)),
    "poisson.entropy": (st.poisson.entropy, np.array([0.0, 0.3, 2.0, 9.0, 60.0, 2000.0], np.float32)),
    "dirichlet": (lambda x, a: (st.dirichlet.logpdf(x / x.sum(0), a), st.dirichlet.pdf(x / x.sum(0), a)),
                  _p("d", 0.1, 1), np.array([0.5, 2, 3], np.float32)),
    "multivariate_normal": (lambda x, m, c: (st.multivariate_normal.logpdf(x, m, c @ c.T + jnp.eye(3)),
                                             st.multivariate_normal.pdf(x, m, c @ c.T + jnp.eye(3))),
                            values("float32", 5, 3, low=-1, high=1), values("float32", 3, low=-1, high=1),
                            values("float32", 3, 3, low=-1, high=1)),
    "gaussian_kde": (lambda d, x: (lambda k: (k.evaluate(x), k.logpdf(x), k.integrate_box_1d(-1, 1)))(st.gaussian_kde(d)),
                     values("float32", 40, low=-2, high=2), values("float32", 7, low=-2, high=2)),
    "mode": (lambda x: (st.mode(x), st.mode(x, 1), st.mode(x, None), st.mode(x, 0, keepdims=True)), _counts("m", 3)),
    "rankdata": (lambda x: [st.rankdata(x, method=m) for m in ("average", "min", "max", "dense", "ordinal")],
                 _counts("r", 5)),
    "rankdata of rows": (lambda x: (st.rankdata(x, axis=1), st.rankdata(x, axis=0, method="min")), _counts("rr", 5)),
    "sem": (lambda x: (st.sem(x), st.sem(x, 1, ddof=0), st.sem(x, None, keepdims=True),
                       st.sem(jnp.where(x > 0.6, jnp.nan, x), 1, nan_policy="omit")), _p("s")),
}  # fmt: skip
for _name, (_f, *_args) in _DISCRETE.items():
    add(f"stats.{_name}", _f, *_args, bound=_LGAMMA if _name not in ("mode", "sem") else None)
add(
    "stats, gradients",
    lambda x, s: [
        jax.grad(lambda x, s, f=f: jnp.sum(f(x, s)), argnums=(0, 1))(x, s)
        for f in (
            lambda x, s: st.norm.logpdf(x, 0.3, s),
            lambda x, s: st.norm.logcdf(x, 0.3, s),
            lambda x, s: st.cauchy.logpdf(x, 0.3, s),
            lambda x, s: st.laplace.logpdf(x, 0.3, s),
            lambda x, s: st.logistic.logpdf(x, 0.3, s),
            lambda x, s: st.gamma.logpdf(jnp.abs(x) + 0.1, s),
            lambda x, s: st.beta.logpdf(jax.nn.sigmoid(x), s, 2.0),
            lambda x, s: st.t.logpdf(x, s),
        )
    ],
    values("float32", 3, 5),
    values("float32", 3, 5, low=0.5, high=2),
    bound=1e-4,
)

# ---------------------------------------------------------------- reductions that leave NaN out


def _holes(name: str) -> np.ndarray:
    """Rows with some NaN, with none, with NaN alone (the last); infinities and both zeros among the numbers."""
    x = values(name, 5, 6, seed="holes")
    x[0, 2] = x[1, 0] = x[1, 5] = x[4] = np.nan
    if x.dtype.kind != "c":
        x[2, :3] = np.array([np.inf, -0.0, 0.0])
    return x


_REAL = ("float32", "float64", "bfloat16", "float16")
for _name in ("nanmax", "nanmin", "nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmedian", "nancumsum", "nancumprod"):
    _g = getattr(jnp, _name)
    _kept = _name.startswith("nancum")
    _initial = {"nanmax": -9.0, "nanmin": 9.0, "nansum": 1.0, "nanprod": 2.0}.get(_name)

    def _reduced(x: Any, f: Any = _g, kept: bool = _kept, initial: float | None = _initial, name: str = _name) -> Any:
        made = [f(x), f(x, axis=0), f(x, axis=1)]
        if not kept:
            made.append(f(x, axis=1, keepdims=True))
        if not kept and name != "nanmedian":
            made += [f(x, axis=(0, 1)), f(x, axis=1, where=jnp.abs(x) > 1, **({} if initial is None else {"initial": initial}))]
        if name in ("nanvar", "nanstd"):
            made.append(f(x, axis=0, ddof=1))
        return made

    _types = _REAL if _name in ("nanmax", "nanmin", "nanmedian") else (*_REAL, "complex64")
    add(f"jnp.{_name}", lambda *xs, f=_reduced: [f(x) for x in xs], *map(_holes, _types), x64=True)
add(
    "jnp.nanargmax, nanargmin",
    lambda *xs: [
        (f(x), f(x, axis=0), f(x, axis=1), f(x, axis=1, keepdims=True)) for x in xs for f in (jnp.nanargmax, jnp.nanargmin)
    ],
    *map(_holes, _REAL),
    x64=True,
)
add(
    "jnp.nanquantile, nanpercentile",
    lambda x: (
        [jnp.nanquantile(x, 0.3, axis=1, method=m) for m in ("linear", "lower", "higher", "midpoint", "nearest")]
        + [jnp.nanpercentile(x, jnp.array([20.0, 70.0]), axis=0), jnp.nanquantile(x, 0.5, keepdims=True)]
    ),
    np.where(np.isinf(_holes("float32")), np.float32(1), _holes("float32")),
)
add(
    "reductions without NaN of integers",
    lambda x: [f(x, axis=1) for f in (jnp.nanmax, jnp.nanmin, jnp.nansum, jnp.nanprod, jnp.nanmean, jnp.nanvar, jnp.nanmedian)],
    values("int32", 4, 5),
)
add(
    "gradients of reductions without NaN",
    lambda x: [jax.grad(lambda x, f=f: jnp.sum(f(x, axis=0) ** 2))(x) for f in (jnp.nanmean, jnp.nansum, jnp.nanvar, jnp.nanmax)],
    np.where(np.isinf(_holes("float32")), np.float32(1), _holes("float32"))[:4],
)
