"""What calling costs: a program of three ops on 64 elements, beside NumPy and a bare numba function of the same kernel.

    python -m benchmarks.calls.small_calls

Prints nanoseconds a call, the least of several rounds taken in turns. The numba function writes into an array that is there
already; a second one also makes the result, as the program does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import codegen
import hlo

ELEMS, CALLS, ROUNDS = 64, 20_000, 9

PROGRAM = f"""func.func @main(%x: tensor<{ELEMS}xf32>, %y: tensor<{ELEMS}xf32>) -> tensor<{ELEMS}xf32> {{
  %0 = stablehlo.multiply %x, %y : tensor<{ELEMS}xf32>
  %1 = stablehlo.add %0, %y : tensor<{ELEMS}xf32>
  %2 = stablehlo.abs %1 : tensor<{ELEMS}xf32>
  return %2 : tensor<{ELEMS}xf32>
}}"""


def measured(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Nanoseconds of one call of each."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / CALLS * 1e9)
    return best


def main() -> None:
    import numba

    @numba.njit  # type: ignore[untyped-decorator]
    def bare(x: Any, y: Any, out: Any) -> None:
        for i in range(ELEMS):
            out[i] = abs(x[i] * y[i] + y[i])

    @numba.njit  # type: ignore[untyped-decorator]
    def making(x: Any, y: Any) -> Any:
        out = np.empty(ELEMS, np.float32)
        for i in range(ELEMS):
            out[i] = abs(x[i] * y[i] + y[i])
        return out

    exe = codegen.compile(hlo.parse(PROGRAM))
    x, y = np.random.default_rng(0).standard_normal((2, ELEMS)).astype(np.float32)
    out = np.empty_like(x)
    np.testing.assert_array_equal(exe(x, y)[0], np.abs(x * y + y))
    found = measured(
        {
            "tilewright": lambda: exe(x, y),
            "numba, into an array that is there": lambda: bare(x, y, out),
            "numba, making its result": lambda: making(x, y),
            "NumPy": lambda: np.abs(x * y + y),
        }
    )
    for name, nanoseconds in found.items():
        print(f"{name:36s} {nanoseconds:8.0f} ns")


if __name__ == "__main__":
    main()
