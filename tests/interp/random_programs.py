"""Random JAX programs, the same for the same seed: a pool of arrays grows by ops of random kinds on random members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

FLOATS = (np.float32, np.float64)
INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64)

Step = Callable[[list[Any]], Any]


def example(seed: int, scatters: bool = True) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """A function of arrays, and arrays for it; it returns all values that it makes."""
    kinds = KINDS if scatters else tuple(k for k in KINDS if k is not _indexed)
    rng = np.random.default_rng(seed)
    inputs = [_array(rng, tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 4))), d) for d in _types(rng, 3)]
    steps: list[Step] = []
    pool: list[Any] = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs]
    while len(steps) < 12:
        kind = kinds[int(rng.integers(len(kinds)))]
        step = kind(rng, pool)
        if step is None:
            continue
        made = jax.eval_shape(step, pool)
        if made.size > 4000:
            continue
        steps.append(step)
        pool.append(made)

    def program(*arrays: Any) -> Any:
        values = list(arrays)
        for step in steps:
            values.append(step(values))
        return tuple(values[len(arrays) :])

    return program, inputs


def _types(rng: np.random.Generator, count: int) -> list[Any]:
    every = FLOATS + INTEGERS
    return [every[int(k)] for k in rng.integers(len(every), size=count)]


def _array(rng: np.random.Generator, shape: tuple[int, ...], d: Any) -> np.ndarray:
    if np.dtype(d).kind == "f":
        return rng.normal(size=shape).astype(d)
    return rng.integers(-20, 20, shape).astype(d)


def _pick(rng: np.random.Generator, pool: list[Any], wanted: Callable[[Any], bool] = lambda v: True) -> int | None:
    fit = [i for i, v in enumerate(pool) if wanted(v)]
    return fit[int(rng.integers(len(fit)))] if fit else None


def _is_float(v: Any) -> bool:
    return bool(jnp.issubdtype(v.dtype, jnp.floating))


def _unary(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool)
    assert i is not None
    if pool[i].dtype == bool:
        return lambda vs: lax.bitwise_not(vs[i])
    if _is_float(pool[i]):
        f = (lax.tanh, lax.logistic, lax.neg, lax.abs, lax.floor, lax.sin, lax.sign, lax.cbrt, lax.erf, lax.is_finite)[
            int(rng.integers(10))
        ]
    else:
        f = (lax.neg, lax.bitwise_not, lax.population_count, lax.clz, lax.sign)[int(rng.integers(5))]
    return lambda vs: f(vs[i])


def _binary(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool, lambda v: v.dtype != bool)
    if i is None:
        return None
    j = _pick(rng, pool, lambda v: v.dtype == pool[i].dtype and v.shape == pool[i].shape)
    assert j is not None
    if _is_float(pool[i]):
        f = (lax.add, lax.sub, lax.mul, lax.max, lax.min, lax.atan2, lax.eq, lax.lt)[int(rng.integers(8))]
    else:
        f = (lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.max, lax.min, lax.bitwise_and, lax.bitwise_xor, lax.shift_left,
             lax.shift_right_logical, lax.shift_right_arithmetic, lax.ge, lax.ne)[int(rng.integers(14))]  # fmt: skip
    return lambda vs: f(vs[i], vs[j])


def _convert(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    # Out-of-range floats have no agreed integer; so floats become floats and integers anything.
    i = _pick(rng, pool)
    assert i is not None
    goal = FLOATS[int(rng.integers(2))] if _is_float(pool[i]) else _types(rng, 1)[0]
    return lambda vs: lax.convert_element_type(vs[i], goal)


def _reduce(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool, lambda v: v.ndim > 0 and v.dtype != bool)
    if i is None:
        return None
    axes = tuple(k for k in range(pool[i].ndim) if rng.integers(2))
    f = (jnp.sum, jnp.max, jnp.min, jnp.prod)[int(rng.integers(4))]
    return lambda vs: f(vs[i], axis=axes).astype(vs[i].dtype)


def _move(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool, lambda v: v.ndim > 0 and v.size > 0)
    if i is None:
        return None
    shape = pool[i].shape
    kind = int(rng.integers(6))
    if kind == 0:
        order = tuple(int(k) for k in rng.permutation(len(shape)))
        return lambda vs: lax.transpose(vs[i], order)
    if kind == 1:
        return lambda vs: lax.reshape(vs[i], (pool[i].size,))
    if kind == 2:
        starts = [int(rng.integers(0, n)) for n in shape]
        limits = [int(rng.integers(a + 1, n + 1)) for a, n in zip(starts, shape, strict=True)]
        strides = [int(rng.integers(1, 3)) for _ in shape]
        return lambda vs: lax.slice(vs[i], starts, limits, strides)
    if kind == 3:
        spans = [(int(rng.integers(-1, 3)), int(rng.integers(0, 3)), int(rng.integers(0, 3))) for _ in shape]
        return lambda vs: lax.pad(vs[i], jnp.zeros((), vs[i].dtype), spans)
    if kind == 4:
        return lambda vs: lax.rev(vs[i], (len(shape) - 1,))
    return lambda vs: lax.broadcast_in_dim(vs[i], (2, *shape), tuple(range(1, len(shape) + 1)))


def _concatenate(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool, lambda v: v.ndim > 0)
    if i is None:
        return None
    axis = int(rng.integers(pool[i].ndim))
    return lambda vs: lax.concatenate([vs[i], vs[i]], axis)


def _dot(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool, lambda v: v.ndim > 0 and v.dtype != bool)
    if i is None:
        return None
    axis = int(rng.integers(pool[i].ndim))
    return lambda vs: lax.dot_general(vs[i], vs[i], (((axis,), (axis,)), ((), ())))


def _cumulative(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool, lambda v: v.ndim > 0 and v.dtype != bool and v.size > 0)
    if i is None:
        return None
    axis, reverse = int(rng.integers(pool[i].ndim)), bool(rng.integers(2))
    f = (lax.cumsum, lax.cummax, lax.cummin)[int(rng.integers(3))]
    return lambda vs: f(vs[i], axis=axis, reverse=reverse)


def _indexed(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool, lambda v: v.ndim > 0 and v.size > 0)
    if i is None:
        return None
    n = pool[i].shape[0]
    index = rng.integers(-n, n, 4)
    kind = int(rng.integers(4))
    if kind == 0:
        return lambda vs: vs[i][index]
    if kind == 1 and pool[i].dtype != bool:
        return lambda vs: vs[i].at[index].add(vs[i][index[::-1]])
    if kind == 2:
        return lambda vs: vs[i].at[index[:1]].set(vs[i][index[1:2]])
    return lambda vs: lax.dynamic_slice_in_dim(vs[i], int(index[0]) + n, min(2, n))


def _sort(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool, lambda v: v.ndim > 0)
    if i is None:
        return None
    axis = int(rng.integers(pool[i].ndim))
    return lambda vs: lax.sort(vs[i], dimension=axis)


def _select(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool, lambda v: v.dtype != bool)
    if i is None:
        return None
    return lambda vs: jnp.where(vs[i] > 1, vs[i], -vs[i])


def _loop(rng: np.random.Generator, pool: list[Any]) -> Step | None:
    i = _pick(rng, pool, lambda v: v.dtype != bool)
    if i is None:
        return None
    count = int(rng.integers(0, 4))
    return lambda vs: lax.fori_loop(0, count, lambda k, x: x + jnp.asarray(k, x.dtype), vs[i])


KINDS = (
    _unary,
    _unary,
    _binary,
    _binary,
    _convert,
    _reduce,
    _move,
    _move,
    _concatenate,
    _dot,
    _cumulative,
    _indexed,
    _sort,
    _select,
    _loop,
)
