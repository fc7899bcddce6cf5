"""The error of every scalar function in units of the last place, over its whole range.

Prints, for f32 and f64, the largest |computed - exact| / ulp(exact) over a dense sample and where it occurs, and the
nanoseconds an element costs in a vectorised loop that stays in L1.  f32 is compared with f64 (NumPy, math, or the library's
own f64 function, which is compared with mpmath itself), f64 with NumPy's long double where that has 64 bits or more and the
function, with mpmath otherwise.  Every sample holds the arguments of WORST, too: a sample alone finds the largest error by
luck.  Usage: ``python -m benchmarks.functions.ulp [function ...] [--target avx2] [--samples N]``.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np

from codegen.native.jit import compile_kernel
from codegen.native.signature import KernelSignature, Param
from codegen.target import Target
from codegen.tune.probe import ENTRY, apply

Array = Any
Arguments = tuple[float, ...]

# name: (exact function in mpmath, vectorised f64 reference, ranges for f32, ranges for f64)
EVERYWHERE32, EVERYWHERE64 = (1e-45, 3.4e38), (5e-324, 1.7e308)


def _vector(f: Callable[[float], float]) -> Callable[[Array], Array]:
    return np.vectorize(f, otypes=[float])


def _own(name: str) -> Callable[[Array], Array]:
    """The library's f64 function, for f32 functions that are not computed in f64 themselves."""
    return lambda x: apply(f"{name}(x)", x)


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _log1p_of_minus(x: Array) -> Array:
    return np.log1p(-x)


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


TABLE: dict[str, tuple[Any, Any, tuple[float, float], tuple[float, float], bool]] = {
    # name: mpmath, f64, |x| range in f32, |x| range in f64, negative too
    "exp": (mpmath.exp, np.exp, (1e-10, 104.0), (1e-18, 745.0), True),
    "expm1": (mpmath.expm1, np.expm1, (1e-45, 90.0), (5e-324, 711.0), True),
    "tanh": (mpmath.tanh, np.tanh, (1e-45, 12.0), (5e-324, 25.0), True),
    "fast_tanh": (mpmath.tanh, np.tanh, (1e-45, 12.0), (5e-324, 25.0), True),
    "logistic": (lambda x: 1 / (1 + mpmath.exp(-x)), _logistic, (1e-10, 104.0), (1e-18, 745.0), True),
    "log": (mpmath.log, np.log, EVERYWHERE32, EVERYWHERE64, False),
    "log1p": (mpmath.log1p, np.log1p, (1e-45, 3.4e38), (5e-324, 1.7e308), False),
    "log1p(-x)": (lambda x: mpmath.log1p(-x), _log1p_of_minus, (1e-45, 1.0), (5e-324, 1.0), False),
    "erf": (mpmath.erf, _vector(math.erf), (1e-45, 5.0), (5e-324, 7.0), True),
    "fast_erf": (mpmath.erf, _vector(math.erf), (1e-45, 5.0), (5e-324, 7.0), True),
    "erfc": (mpmath.erfc, _vector(math.erfc), (1e-10, 10.2), (1e-18, 27.2), True),
    "erf_inv": (mpmath.erfinv, _own("erf_inv"), (1e-45, 0.99999994), (5e-324, 0.9999999999999999), True),
    "lgamma": (lambda x: mpmath.loggamma(x).real, None, (1e-45, 1e36), (5e-324, 1e305), False),
    "lgamma(-x)": (lambda x: mpmath.loggamma(-x).real, None, (1e-10, 2.4), (1e-18, 2.4), False),
    "digamma": (mpmath.digamma, None, (1e-38, 3e38), (1e-307, 1e308), False),
    "digamma(-x)": (lambda x: mpmath.digamma(-x), None, (1e-10, 0.9), (1e-18, 0.9), False),
    "bessel_i1e": (lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x), _own("bessel_i1e"), (1e-37, 1e4), (1e-300, 1e4), True),
    "sqrt": (mpmath.sqrt, np.sqrt, EVERYWHERE32, EVERYWHERE64, False),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), _rsqrt, EVERYWHERE32, EVERYWHERE64, False),
    "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), np.cbrt, EVERYWHERE32, EVERYWHERE64, True),
    "sin": (mpmath.sin, np.sin, EVERYWHERE32, EVERYWHERE64, True),
    "cos": (mpmath.cos, np.cos, EVERYWHERE32, EVERYWHERE64, True),
    "tan": (mpmath.tan, np.tan, EVERYWHERE32, EVERYWHERE64, True),
    "atan": (mpmath.atan, np.arctan, EVERYWHERE32, EVERYWHERE64, True),
    "asin": (mpmath.asin, np.arcsin, (1e-45, 1.0), (5e-324, 1.0), True),
    "acos": (mpmath.acos, np.arccos, (1e-45, 1.0), (5e-324, 1.0), True),
    "sinh": (mpmath.sinh, np.sinh, (1e-45, 90.0), (5e-324, 711.0), True),
    "cosh": (mpmath.cosh, np.cosh, (1e-45, 90.0), (5e-324, 711.0), True),
    "asinh": (mpmath.asinh, np.arcsinh, EVERYWHERE32, EVERYWHERE64, True),
    "acosh": (mpmath.acosh, np.arccosh, (1.0, 3.4e38), (1.0, 1.7e308), False),
    "atanh": (mpmath.atanh, np.arctanh, (1e-45, 1.0), (5e-324, 1.0), True),
    "power": (mpmath.power, None, EVERYWHERE32, EVERYWHERE64, False),
    "atan2": (mpmath.atan2, np.arctan2, EVERYWHERE32, EVERYWHERE64, True),
}

# arguments where searches of millions found the largest errors, with fused multiply-add and without: for f32, for f64
WORST: dict[str, tuple[Sequence[Arguments], Sequence[Arguments]]] = {
    "exp": ([(26.725653,), (-60.613777,)], [(-17.643220428710045,), (-0.9956238184922728,)]),
    "expm1": ([(17.00758,), (17.036732,)], [(0.3862936307512115,)]),
    "tanh": ([(-3.466004,)], [(0.21173200498577627,), (0.21532629977487616,)]),
    "fast_tanh": ([(7.8489227,), (-6.7707357,)], [(-0.2049696784753141,)]),
    "logistic": ([(-3.4402733,)], [(-5.542038634983491,)]),
    "log": ([(0.37295717,), (1.4118267,)], [(0.7006260546646175,), (1.5764934232356538,)]),
    "log1p": ([(0.41868898,)], [(0.4160613313627968,)]),
    "log1p(-x)": ([(0.29465115,), (0.29528683,)], [(0.2964073762253151,), (0.2952019917215797,)]),
    "erf": ([(-0.97723794,), (0.97894233,)], [(0.6126258441729141,), (0.643424493712216,)]),
    "fast_erf": ([(3.7190456,), (-3.4166768,)], [(0.6126258441729141,), (0.643424493712216,)]),
    "erfc": ([(7.863948822021484,), (5.690764,)], [(15.539305234053726,), (3.745992460474462,)]),
    "erf_inv": ([(0.1372543,), (-0.9952468,), (-0.27207595,), (0.2704218,)], [(0.6094201445443157,)]),
    "lgamma": ([(2.7763485e+24,)], [(1.3224851528695183,), (1.3709997461380823,), (1.451676812338903,)]),
    "lgamma(-x)": ([(1.0378904e-08,)], [(2.3993030603979264,), (2.393019759446159,)]),
    "digamma": ([(62.116016,)], [(0.5374857744531027,), (0.526715612222667,)]),
    "digamma(-x)": ([(0.7712042,)], [(0.5042342551620024,)]),
    "bessel_i1e": ([(0.32567823,), (0.14205159,), (0.3262316,)], [(-2.8718137448640802e-05,), (7.759783925885763,)]),
    "rsqrt": ([(16.100203,)], [(16.026087956029585,)]),
    "sin": ([(25.92709,)], [(30.589135108320697,)]),
    "cos": ([(6.6245515e+06,), (1.2082034e+31,)], [(50.97633526183051,), (-4.510381074733055e+304,)]),
    "tan": ([(63.611504,), (-1.41619545e+23,), (-16.492102,)], [(14.938026725581857,)]),
    "atan": ([(-0.4510791,), (-0.49153134,)], [(0.43450147922232035,), (-0.47733437707305754,)]),
    "asin": ([(-0.52851284,)], [(-0.526657083019404,), (0.5345575758486135,)]),
    "acos": ([(0.61263794,)], [(0.5597263842947188,), (0.555210076090567,)]),
    "sinh": ([(0.007802762,)], [(-0.40922895427325057,), (-0.38725007080187623,)]),
    "cosh": ([(5.2454405,), (-4.563498,)], [(9.402730567833878,), (-9.362092614542895,)]),
    "asinh": ([(0.38397086,)], [(0.5175904065631727,)]),
    "acosh": ([(1.1053573,)], [(1.0293805074053684,)]),
    "atanh": ([(0.19626185,)], [(0.17598169885296333,)]),
    "power": ([(5.6835515e-24, -1.446375)], [(5.61711737790443e-95, -1.2411073878551941)]),
    "atan2": ([(-25.660746, 57.86748), (-25.711905, 59.35255)], [(19.01743156390978, 45.56930529475253)]),
}

# f64 functions that NumPy has in long double, which has 64 bits or more on x86-64 and on Linux for AArch64
LONG: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "expm1": np.expm1, "tanh": np.tanh, "fast_tanh": np.tanh, "logistic": _logistic,
    "log": np.log, "log1p": np.log1p, "log1p(-x)": _log1p_of_minus, "sqrt": np.sqrt, "rsqrt": _rsqrt,
    "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "power": np.power, "atan2": np.arctan2,
}  # fmt: skip
HAS_LONG = np.finfo(np.longdouble).nmant >= 63


def sample(low: float, high: float, negative: bool, dtype: Any, count: int, seed: int = 1) -> Array:
    """Half of the points uniform in the logarithm of [low, high], half uniform in the part below 64."""
    rng = np.random.default_rng(seed)
    spread = np.exp2(rng.uniform(math.log2(low), math.log2(high), count // 2))
    near = rng.uniform(low, min(high, 64.0), count - count // 2)
    x = np.clip(np.concatenate([spread, near]), low, high).astype(dtype)
    return np.where(rng.integers(0, 2, count) == 1, -x, x) if negative else x


def exact(name: str, arguments: tuple[Array, ...]) -> list[Any]:
    """The function in mpmath, with enough digits for any reduction."""
    f = TABLE[name][0]
    bits = 1200 if name in ("sin", "cos", "tan") else 200
    with mpmath.workprec(bits):
        return [f(*[mpmath.mpf(float(a)) for a in row]) for row in zip(*arguments, strict=True)]


def ulp_errors(computed: Array, reference: list[Any] | Array) -> Array:
    """|computed - reference| / ulp(reference), the ulp being that of the result's type and at least its smallest denormal."""
    info = np.finfo(computed.dtype)
    bits, least = info.nmant, float(info.smallest_subnormal)
    if isinstance(reference, np.ndarray) and reference.dtype == np.longdouble:
        ulp = np.maximum(np.ldexp(np.longdouble(1), np.frexp(reference)[1] - 1 - bits), np.longdouble(least))
        counts = np.isfinite(reference) & (np.abs(reference) < info.max)
        with np.errstate(all="ignore"):
            error = np.abs(computed.astype(np.longdouble) - reference) / ulp
        return np.where(counts, error, 0.0).astype(float)
    if isinstance(reference, np.ndarray):
        exponent = np.floor(np.log2(np.maximum(np.abs(reference), 1e-300)))
        ulp = np.maximum(np.exp2(exponent - bits), least)
        far = np.abs(reference) >= float(info.max)
        with np.errstate(all="ignore"):
            error = np.abs(computed.astype(float) - reference) / ulp
        return np.where(far | ~np.isfinite(reference), 0.0, error)
    return np.array([_exact_error(float(c), r, bits, least, float(info.max)) for c, r in zip(computed, reference, strict=True)])


def _exact_error(computed: float, reference: Any, bits: int, least: float, most: float) -> float:
    """The error of one value in ulp, 0 where the reference is outside the finite range."""
    if not mpmath.isfinite(reference) or abs(reference) >= most:
        return 0.0
    if not math.isfinite(computed):
        return math.inf
    exponent = mpmath.frexp(reference)[1] - 1 if reference else -2000
    ulp = mpmath.ldexp(1, max(exponent - bits, round(math.log2(least))))
    return float(abs(mpmath.mpf(computed) - reference) / ulp)


def arguments_of(name: str, dtype: str, count: int) -> tuple[Array, ...]:
    """Sample arguments for a function of the table, then those of WORST."""
    known = np.array(WORST[name][dtype != "float32"] if name in WORST else [], dtype)
    if not count:
        return tuple(known.T)
    sampled = _sampled(name, dtype, count)
    return tuple(np.concatenate([a, k]) for a, k in zip(sampled, known.T, strict=True)) if known.size else sampled


def _sampled(name: str, dtype: str, count: int) -> tuple[Array, ...]:
    _, _, range32, range64, negative = TABLE[name]
    low, high = range32 if dtype == "float32" else range64
    if name == "power":
        rng = np.random.default_rng(2)
        x = sample(low, high, False, dtype, count)
        limit = 88.0 if dtype == "float32" else 709.0
        with np.errstate(all="ignore"):
            y = rng.uniform(-limit, limit, count) / np.log(x.astype(float))
        return x, np.nan_to_num(y).astype(dtype)
    if name == "atan2":
        return sample(low, high, True, dtype, count, 3), sample(low, high, True, dtype, count, 4)
    return (sample(low, high, negative, dtype, count),)


def reference(name: str, arguments: tuple[Array, ...]) -> list[Any] | Array:
    """What the function's results for arguments of f32 or f64 are compared with: the fastest that is exact enough."""
    vectorised = TABLE[name][1]
    with np.errstate(all="ignore"):
        if arguments[0].dtype == np.float32 and vectorised is not None:
            return vectorised(*[a.astype(float) for a in arguments])
        if arguments[0].dtype == np.float64 and HAS_LONG and name in LONG:
            return LONG[name](*[a.astype(np.longdouble) for a in arguments])
    return exact(name, arguments)


def worst_error(name: str, dtype: str, count: int, target: Target | None = None) -> tuple[float, tuple[float, ...]]:
    """(largest error in ulp, arguments where it occurs)."""
    arguments = arguments_of(name, dtype, count)
    expression = name if "(" in name else f"{name}({', '.join('xyz'[: len(arguments)])})"
    errors = ulp_errors(apply(expression, *arguments, target=target), reference(name, arguments))
    errors = np.where(np.isnan(errors), np.inf, errors)
    at = int(np.argmax(errors))
    return float(errors[at]), tuple(float(a[at]) for a in arguments)


def nanoseconds(name: str, dtype: str, target: Target | None = None) -> float:
    """Time for an element of a loop over 2048 elements that one call runs 100 times, best of 30."""
    arguments = tuple(np.clip(np.abs(a), 0.01, 0.9) for a in _sampled(name, dtype, 2048))
    names = "xyz"[: len(arguments)]
    expression = name if "(" in name else f"{name}({', '.join(f'{n}[i]' for n in names)})"
    expression = expression.replace("(-x)", "(-x[i])")
    source = (
        f"def kernel(begin, end, {', '.join(names)}, out):\n"
        "    for t in range(begin, end):\n"
        "        for i in range(2048):\n"
        f"            out[i] = {expression}\n"
    )
    signature = KernelSignature((*(Param(n, dtype, 8) for n in names), Param("out", dtype, 8)))
    kernel = compile_kernel(source, signature, target)
    out = np.empty_like(arguments[0])
    table = np.array([a.ctypes.data for a in (*arguments, out)], np.uint64)
    entry, address = ENTRY(kernel.entry), table.ctypes.data
    best = math.inf
    for _ in range(30):
        start = time.perf_counter()
        entry(0, 100, address, None)
        best = min(best, time.perf_counter() - start)
    return best / 100 / 2048 * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("functions", nargs="*", default=list(TABLE))
    parser.add_argument("--target", default="host")
    parser.add_argument("--samples", type=int, default=0)
    options = parser.parse_args()
    target = Target.named(options.target)
    print(f"{'function':12s} {'f32 ulp':>8s} {'at':>24s} {'ns':>6s}   {'f64 ulp':>8s} {'at':>32s} {'ns':>6s}")
    for name in options.functions:
        slow = TABLE[name][1] is None
        count32 = options.samples or (4000 if slow else 400_000 if "erf" in name else 2_000_000)
        count64 = options.samples or (400_000 if HAS_LONG and name in LONG else 4000)
        e32, at32 = worst_error(name, "float32", count32, target)
        e64, at64 = worst_error(name, "float64", count64, target)
        t32, t64 = nanoseconds(name, "float32", target), nanoseconds(name, "float64", target)
        where32 = ", ".join(f"{v:.8g}" for v in at32)
        where64 = ", ".join(f"{v:.16g}" for v in at64)
        print(f"{name:12s} {e32:8.3f} {where32:>24s} {t32:6.2f}   {e64:8.3f} {where64:>32s} {t64:6.2f}", flush=True)


if __name__ == "__main__":
    main()
