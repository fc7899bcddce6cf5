"""Random JAX programs on small whole numbers, spread over a mesh: the partitioned program gives the evaluator's numbers."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import hlo
import interp
from tests.jax.test_random_programs import Maker, jax, program
from tests.mesh.test_partition import BYTES_ALONE, on_a_grid
from tiling.mesh.partition import partition

MESHES = ['"x"=2', '"x"=2, "y"=2', '"x"=3', '"x"=4', '"x"=2, "y"=3']
MOST_ELEMS = 30_000


def spread(text: str, mesh: str, choose: random.Random) -> str:
    """A lowered program in the global view: most arguments and, of every other program, all results have shardings."""

    def sharding(dims: list[str]) -> str:
        left, along = re.findall(r'"(\w)"', mesh), ["{}"] * len(dims)
        for d in choose.sample(range(len(dims)), len(dims)):
            if left and int(dims[d]) >= 4 and choose.random() < 0.8:
                along[d] = f'{{"{left.pop(0)}"}}'
            elif choose.random() < 0.3:
                along[d] = "{?}"
        return f"{{sdy.sharding = #sdy.sharding<@m, [{', '.join(along)}]>}}"

    def with_sharding(found: re.Match[str]) -> str:
        return f"{found[1]} {sharding(found[2].split('x')[:-1])}" if choose.random() < 0.8 else found[1]

    before, after = text.split("func.func public @main(", 1)
    arguments, after = after.split(") -> (", 1)
    results, body = after.split("{\n", 1)
    arguments = re.sub(r"(%arg\d+: tensor<([^>]*)>)", with_sharding, arguments)
    if choose.random() < 0.5:
        results = re.sub(r"(tensor<([^>]*)>) \{[^}]*\}", with_sharding, results)
    head, rest = before.split("{\n", 1)
    return f"{head}{{\n  sdy.mesh @m = <[{mesh}]>\n{rest}func.func public @main({arguments}) -> ({results}{{\n{body}"


SEEDS = [*range(0, 60, 2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(60, 1200, 2))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_over_a_mesh(seed: int) -> None:
    choose, arrays = random.Random(seed), Maker(seed).arrays()
    if sum(a.size for a in arrays) > MOST_ELEMS:
        pytest.skip("the program is larger than what this test is meant for")
    text = jax.jit(program(seed), keep_unused=True).lower(*arrays).as_text()
    module = hlo.parse(spread(text, choose.choice(MESHES), choose))
    made = partition(module, network=BYTES_ALONE) if choose.random() < 0.7 else partition(module)
    for found, expected in zip(on_a_grid(made, tuple(arrays)), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_array_equal(found, np.asarray(expected))
