"""Random bits of a state have kernels, and are the evaluator's bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp

# Counters about to carry into their upper half.
WORDS = np.array([2**64 - 3, 2**64 - 2, 5], np.uint64)
HALVES = np.array([1, 2**32 - 1, 2**32 - 2, 2**32 - 1], np.uint32)


@pytest.mark.parametrize(
    ("algorithm", "state", "result"),
    [
        ("THREE_FRY", WORDS[:2], "5x7xui32"),
        ("THREE_FRY", WORDS[:2], "3xui64"),
        ("THREE_FRY", WORDS[:2], "ui32"),
        ("THREE_FRY", HALVES, "5x6xui8"),
        ("PHILOX", WORDS, "5x7xui32"),
        ("PHILOX", WORDS[:2], "5xui64"),
        ("THREE_FRY", WORDS[:2], "7x3xui32"),  # an odd number of rows of three: an index below 0 where there is no element
        ("THREE_FRY", WORDS[:2], "3x5xui8"),
        ("DEFAULT", HALVES, "7xf32"),
        ("DEFAULT", WORDS, "0x3xui32"),
    ],
)
def test_bits_are_the_evaluators(algorithm: str, state: np.ndarray, result: str) -> None:
    s = f"tensor<{state.size}xui{8 * state.itemsize}>"
    text = f"""func.func @main(%s: {s}) -> ({s}, tensor<{result}>) {{
      %a, %b = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : ({s}) -> ({s}, tensor<{result}>)
      return %a, %b : {s}, tensor<{result}>
    }}"""
    module = hlo.parse(text)
    executable = codegen.compile(module)
    assert executable.fallbacks == []
    for found, expected in zip(executable(state), interp.evaluate(module, state), strict=True):
        assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
