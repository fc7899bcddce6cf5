"""Each elementwise function on 4M elements, f32 and f64, against JAX: milliseconds, and JAX's time over own time.

Runs of the two alternate, so that a machine that slows down slows both; the figure is the median. Needs JAX.
Usage: ``python -m benchmarks.functions.elementwise [function ...] [--types f32,f64] [--elements N] [--rounds N]``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import codegen
import hlo

Array = Any


def _uniform(low: float, high: float) -> Callable[[Any, int], Array]:
    return lambda rng, n: rng.uniform(low, high, n)


# function: (op, arity, JAX's name, the arguments)
FUNCTIONS: dict[str, tuple[str, int, str, Callable[[Any, int], Array]]] = {
    "exp": ("stablehlo.exponential", 1, "lax.exp", _uniform(-20, 20)),
    "expm1": ("stablehlo.exponential_minus_one", 1, "lax.expm1", _uniform(-5, 5)),
    "log": ("stablehlo.log", 1, "lax.log", _uniform(0.01, 100)),
    "log1p": ("stablehlo.log_plus_one", 1, "lax.log1p", _uniform(-0.9, 100)),
    "tanh": ("stablehlo.tanh", 1, "lax.tanh", _uniform(-5, 5)),
    "logistic": ("stablehlo.logistic", 1, "lax.logistic", _uniform(-10, 10)),
    "sqrt": ("stablehlo.sqrt", 1, "lax.sqrt", _uniform(0, 100)),
    "rsqrt": ("stablehlo.rsqrt", 1, "lax.rsqrt", _uniform(0.01, 100)),
    "cbrt": ("stablehlo.cbrt", 1, "lax.cbrt", _uniform(-100, 100)),
    "sin": ("stablehlo.sine", 1, "lax.sin", _uniform(-20, 20)),
    "cos": ("stablehlo.cosine", 1, "lax.cos", _uniform(-20, 20)),
    "tan": ("stablehlo.tan", 1, "lax.tan", _uniform(-20, 20)),
    "erf": ("chlo.erf", 1, "lax.erf", _uniform(-4, 4)),
    "erfc": ("chlo.erfc", 1, "lax.erfc", _uniform(-4, 4)),
    "erf_inv": ("chlo.erf_inv", 1, "lax.erf_inv", _uniform(-0.999, 0.999)),
    "asin": ("chlo.asin", 1, "lax.asin", _uniform(-1, 1)),
    "acos": ("chlo.acos", 1, "lax.acos", _uniform(-1, 1)),
    "atan": ("chlo.atan", 1, "lax.atan", _uniform(-10, 10)),
    "sinh": ("chlo.sinh", 1, "lax.sinh", _uniform(-5, 5)),
    "cosh": ("chlo.cosh", 1, "lax.cosh", _uniform(-5, 5)),
    "asinh": ("chlo.asinh", 1, "lax.asinh", _uniform(-100, 100)),
    "acosh": ("chlo.acosh", 1, "lax.acosh", _uniform(1, 100)),
    "atanh": ("chlo.atanh", 1, "lax.atanh", _uniform(-0.99, 0.99)),
    "lgamma": ("chlo.lgamma", 1, "lax.lgamma", _uniform(0.1, 30)),
    "digamma": ("chlo.digamma", 1, "lax.digamma", _uniform(0.1, 30)),
    "bessel_i1e": ("chlo.bessel_i1e", 1, "lax.bessel_i1e", _uniform(-10, 10)),
    "floor": ("stablehlo.floor", 1, "lax.floor", _uniform(-100, 100)),
    "round_afz": ("stablehlo.round_nearest_afz", 1, "lax.round", _uniform(-100, 100)),
    "sign": ("stablehlo.sign", 1, "lax.sign", _uniform(-100, 100)),
    "add": ("stablehlo.add", 2, "lax.add", _uniform(-1, 1)),
    "divide": ("stablehlo.divide", 2, "lax.div", _uniform(0.5, 2)),
    "remainder": ("stablehlo.remainder", 2, "lax.rem", _uniform(0.5, 100)),
    "power": ("stablehlo.power", 2, "lax.pow", _uniform(0.1, 10)),
    "atan2": ("stablehlo.atan2", 2, "lax.atan2", _uniform(-10, 10)),
    "next_after": ("chlo.next_after", 2, "lax.nextafter", _uniform(-10, 10)),
    "maximum": ("stablehlo.maximum", 2, "lax.max", _uniform(-10, 10)),
}


def program(function: str, element: str, elements: int) -> hlo.Module:
    """out = function(x[, y]) on `elements` elements."""
    op, arity, _, _ = FUNCTIONS[function]
    t = f"tensor<{elements}x{element}>"
    names = ("%x", "%y")[:arity]
    arguments, types = ", ".join(f"{n}: {t}" for n in names), ", ".join([t] * arity)
    body = f'%0 = "{op}"({", ".join(names)}) : ({types}) -> {t} return %0 : {t}'
    return hlo.parse(f"func.func @main({arguments}) -> {t} {{ {body} }}")


def compare(function: str, element: str, elements: int, rounds: int) -> tuple[float, float, list[str]]:
    """(own milliseconds, JAX's milliseconds, what the evaluator ran)."""
    import jax

    wait: Callable[[Any], Any] = jax.block_until_ready
    _, arity, name, values = FUNCTIONS[function]
    rng = np.random.default_rng(0)
    arrays = [values(rng, elements).astype({"f32": np.float32, "f64": np.float64}[element]) for _ in range(arity)]
    exe = codegen.compile(program(function, element, elements))
    with jax.enable_x64(True):
        given = [jax.device_put(a) for a in arrays]
        theirs = jax.jit(getattr(jax.lax, name.partition(".")[2])).lower(*given).compile()
        wait(theirs(*given))
        exe(*arrays)
        own, peer = [], []
        for _ in range(rounds):
            start = time.perf_counter()
            exe(*arrays)
            own.append(time.perf_counter() - start)
            start = time.perf_counter()
            wait(theirs(*given))
            peer.append(time.perf_counter() - start)
    return 1e3 * statistics.median(own), 1e3 * statistics.median(peer), exe.fallbacks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("functions", nargs="*", default=list(FUNCTIONS))
    parser.add_argument("--types", default="f32,f64")
    parser.add_argument("--elements", type=int, default=1 << 22)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(f"{'function':12s} " + "   ".join(f"{t + ' own':>9s} {'jax':>7s} {'jax/own':>8s}" for t in options.types.split(",")))
    for function in options.functions:
        cells = []
        for element in options.types.split(","):
            own, peer, fallbacks = compare(function, element, options.elements, options.rounds)
            cells.append(f"{own:9.2f} {peer:7.2f} {peer / own:8.2f}" + (" evaluator" if fallbacks else ""))
        print(f"{function:12s} " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
