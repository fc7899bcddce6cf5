"""Random programs, planned, compiled and run, agree with the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
from tests.random_programs import random_program

FAST, ALL = 24, 400


def check(seed: int) -> None:
    module, arrays = random_program(seed)
    hlo.verify(module)
    executable = codegen.compile(module)
    assert not executable.fallbacks
    for k, (found, expected) in enumerate(zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True)):
        assert found.shape == expected.shape and found.dtype == expected.dtype
        scale = np.max(np.abs(expected), initial=1e-30, where=np.isfinite(expected))
        np.testing.assert_allclose(
            found, expected, rtol=1e-4, atol=2e-5 * scale, err_msg=f"seed {seed}, result {k}\n{module}"
        )


@pytest.mark.parametrize("seed", range(FAST))
def test_random_program(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FAST, ALL))
def test_more_random_programs(seed: int) -> None:
    check(seed)
