"""Random JAX programs on small whole numbers, mapped, differentiated, repeated and chosen: the last bit of `jax.jit`'s."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.jax.test_random_programs import Array, Maker, check, jax, jnp, lax, program

Program = Callable[..., tuple[Array, ...]]
MOST_ELEMS = 120_000


def tangents(of: Program, arrays: Sequence[Array]) -> Program:
    """The results of floats, and how they change with the arguments of f32."""
    wanted = [k for k, a in enumerate(arrays) if a.dtype == np.float32]

    def changed(*given: Array) -> Any:
        def floats(*some: Array) -> list[Array]:
            every = list(given)
            for k, x in zip(wanted, some, strict=True):
                every[k] = x
            return [v for v in of(*every) if v.dtype == jnp.float32]

        return jax.jvp(floats, [given[k] for k in wanted], [jnp.full_like(given[k], k + 1) for k in wanted])

    return changed


def mapped(seed: int, of: Program, arrays: Sequence[Array]) -> tuple[Program, list[Array]]:
    """Over the first dimension, the last one, or that of the first argument alone."""
    count, kind = [2, 3, 8, 17][seed % 4], seed // 4 % 3
    if kind == 2:
        only = (0, *[None] * (len(arrays) - 1))
        return jax.vmap(of, in_axes=only), [batch(arrays[0], count, 0), *arrays[1:]]
    axis = -kind
    return jax.vmap(of, in_axes=axis, out_axes=axis), [batch(a, count, axis) for a in arrays]


def batch(x: Array, count: int, axis: int) -> Array:
    return np.stack([np.roll(x, k) for k in range(count)], axis)


def over_time(of: Program, arrays: Sequence[Array]) -> tuple[Program, list[Array]]:
    """A scan whose steps run the whole program."""

    def run(*steps: Array) -> Any:
        def step(carry: Array, given: tuple[Array, ...]) -> tuple[Array, list[Array]]:
            made = of(*given)
            more = sum(jnp.sum(v).astype(jnp.int32) % 7 for v in made)
            return (carry * 3 + more) % 101, [jnp.clip(v + (carry % 5).astype(v.dtype), -60, 60) for v in made]

        return lax.scan(step, jnp.int32(1), steps)

    return run, [batch(a, 4, 0) for a in arrays]


def again_and_again(of: Program, arrays: Sequence[Array], until: bool) -> Program:
    """A loop that carries the arguments: each next one is made of a result of its shape, or is turned around."""

    def next_ones(state: tuple[Array, ...]) -> tuple[tuple[Array, ...], Array]:
        made = of(*state)
        alike = [[v for v in made if v.shape == x.shape] for x in state]
        new = [
            jnp.clip(found[-1].astype(x.dtype) - x, -9, 9) if found else jnp.flip(x, 0)
            for x, found in zip(state, alike, strict=True)
        ]
        return tuple(new), jnp.sum(made[-1]).astype(jnp.int32) % 1009

    def run(*state: Array) -> Any:
        if not until:
            return lax.scan(lambda carry, _: next_ones(carry), state, None, length=3)
        start = state, 0, jnp.int32(0)
        return lax.while_loop(lambda s: (s[1] < 3) & (s[2] != 7), lambda s: _counted(s, *next_ones(s[0])), start)

    return run


def _counted(state: Any, new: tuple[Array, ...], number: Array) -> Any:
    return new, state[1] + 1, (state[2] + number) % 1009


def either(of: Program) -> Program:
    """The program, or something else made of its results."""
    return lambda *given: lax.cond(jnp.sum(given[0]) > 0, of, lambda *x: tuple(v * 2 - 1 for v in of(*x)), *given)


def transformed(seed: int) -> tuple[Program, list[Array]]:
    of, arrays = program(seed), Maker(seed).arrays()
    kind = random.Random(seed).choice(["mapped", "mapped", "tangents", "over time", "carried", "until", "either"])
    if kind == "mapped":
        return mapped(seed, of, arrays)
    if kind == "over time":
        return over_time(of, arrays)
    if kind == "tangents":
        return tangents(of, arrays), arrays
    return either(of) if kind == "either" else again_and_again(of, arrays, kind == "until"), arrays


SEEDS = [*range(0, 60, 2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(60, 1000, 2))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_transformed_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, arrays = transformed(seed)
    if sum(a.size for a in arrays) > MOST_ELEMS:
        pytest.skip("the batch is larger than what this test is meant for")
    check(made, arrays, monkeypatch)
