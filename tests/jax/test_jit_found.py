"""What trying many programs found in `tilewright.jit`: each was a crash, a wrong result or a step left to the evaluator."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import tilewright

pytestmark = pytest.mark.jax

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax
    import jax.numpy as jnp
    import jax.scipy.special
    from jax import lax

    from tests.jax.test_jit_programs import ROUNDED, same


def agrees(f: Any, *args: Any, bound: float | None = None) -> None:
    """f gives what JAX gives, all of it in kernels or a library."""
    compiled = tilewright.jit(f)
    same(compiled(*args), jax.jit(f, compiler_options=ROUNDED)(*args), bound)
    assert compiled.executable(*args).fallbacks == []


X = np.linspace(-3, 3, 36, dtype=np.float32).reshape(4, 9) % 1.7


def test_bodies_that_call_functions_have_kernels() -> None:
    """`jnp.where` in a reduction's body is a call of a function; the reduction was left to the evaluator."""
    numbers = np.tile(np.arange(9, dtype=np.int32), (4, 1))

    def larger(a: Any, b: Any) -> Any:
        return jnp.where(a[0] >= b[0], a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1])

    agrees(lambda x, i: lax.reduce((x, i), (np.float32(-np.inf), np.int32(0)), larger, (1,)), X, numbers)
    agrees(lambda x, i: lax.reduce_window((x, i), (-jnp.inf, -1), larger, (1, 3), (1, 2), "VALID"), X, numbers)
    agrees(lambda x: lax.reduce(x, 0.0, lambda a, b: jnp.where(b > 0, a + b, a), (0,)), X)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0,)])
def test_rows_of_no_elements_are_sorted(shape: tuple[int, ...]) -> None:
    """Planning divided by the length of a row."""
    agrees(lambda x: (jnp.sort(x), jnp.argsort(x), lax.top_k(x, 0)), np.zeros(shape, np.float32))


def test_results_without_elements_are_not_computed() -> None:
    """A concatenation of empty arrays reads nothing, and had no kernel."""
    agrees(
        lambda a, b: (jnp.concatenate([a, a]), a @ a.T, b.T @ a, jnp.pad(a, 1), jnp.fft.fft(a), b.sum(0)), X[:0, :4], X[:0, :3]
    )


def test_real_lines_of_no_elements_are_made_of_one() -> None:
    """`jnp.fft.hfft` asks for 2 (n - 1) elements: of one it makes none, which the size of the half was held against."""
    of_one = X[:, :1].astype(np.complex64)
    agrees(lambda z: (jnp.fft.hfft(z), jnp.fft.irfft(z), jnp.fft.irfft2(z), jnp.sum(jnp.fft.irfft(z), 1)), of_one)


def test_indices_known_at_run_time_become_values() -> None:
    """Rows of an identity matrix, elements of a range: gathers of them were left to the evaluator."""
    j = np.array([3, 8, 0, 5, 5], np.int32)
    agrees(lambda j: (jnp.eye(9)[j], jnp.arange(20.0)[j] * 2, jnp.arange(90).reshape(9, 10)[j, j + 1], jnp.tri(9)[j].sum(1)), j)
    agrees(
        lambda j: (jnp.arange(20)[j] + jnp.arange(20)[j] == j + j, jnp.where(jnp.arange(9)[j] > 3, 1, jnp.arange(9)[j] * 2)), j
    )
    agrees(lambda i: lax.dynamic_slice(jnp.arange(90).reshape(9, 10) * 2, (i, i), (3, 4)), np.int32(7))
    agrees(lambda a: jnp.linalg.inv(a), X.reshape(4, 3, 3) + 4 * np.eye(3, dtype=np.float32), bound=1e-4)


WINDOWS = np.array([[0, 0], [2, 3], [5, 5], [-1, 2], [9, 9], [1, 1]], np.int32)


@pytest.mark.parametrize("kind", ["int32", "int8", "uint8"])
def test_updates_partly_outside_are_dropped_whole(kind: str) -> None:
    """XLA drops an update whose window does not fit; StableHLO's specification drops the elements outside."""
    x, u = np.zeros((6, 7), np.float32), np.arange(1, 37, dtype=np.float32).reshape(6, 2, 3)
    i = (WINDOWS % 8 if kind == "uint8" else WINDOWS).astype(kind)
    numbers = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
    agrees(lambda x, i, u: lax.scatter_add(x, i, u, numbers), x, i, u)
    agrees(lambda x, i, u: lax.scatter(x, i, u, numbers, mode="clip"), x, i, u)
    agrees(lambda x, i, u: lax.scatter_add(x, i[:, :1], u, lax.ScatterDimensionNumbers((1, 2), (), (1,))), x, i, u)
    agrees(lambda x, i, u: lax.fori_loop(0, 2, lambda k, c: lax.scatter_max(c, i - k.astype(i.dtype), u, numbers), x), x, i, u)
    agrees(lambda x, i: jax.vmap(lambda x, i: lax.dynamic_update_slice(x, jnp.ones(3), (i,)))(x, i[:, 0]), x, i)


def test_slices_are_updated_without_a_scatter() -> None:
    """A test for windows that lie outside hid that a slice's places are known: a leapfrog step copied each of its fields."""

    def step(e: Any, h: Any) -> Any:
        h = h.at[:, :-1].add(e[:, 1:] - e[:, :-1])
        e = e.at[1:-1, 1:-1].add(h[1:-1, 1:-1] - h[1:-1, :-2])
        return e.at[0].set(0.0).at[:, ::2].multiply(0.5), h

    e, h = np.sin(X), np.cos(X)
    agrees(step, e, h)
    ops = tilewright.jit(step).executable(e, h).plan.program.ops
    assert not [op.name for op in ops if op.name in ("stablehlo.scatter", "stablehlo.compare", "stablehlo.reduce")]


@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_places_of_less_than_a_byte(kind: str) -> None:
    """NumPy's `iinfo` does not know the ends of these types."""
    i, numbers = np.array([[0], [3], [7], [7]]).astype(getattr(jnp, kind)), lax.ScatterDimensionNumbers((1, 2), (), (0,))
    x, u = np.arange(60, dtype=np.float32).reshape(12, 5), np.ones((4, 2, 5), np.float32)
    agrees(lambda x, i, u: lax.scatter_add(x, i, u, numbers, mode="fill"), x, i, u)


def test_windows_leave_out_what_lies_outside() -> None:
    """XLA takes a window's initial value once; StableHLO's specification once more for each element of the padding."""
    x = X.astype(np.float32)
    agrees(lambda x: lax.reduce_window(x, 5.0, lax.add, (3, 3), (1, 1), "SAME"), x)
    agrees(lambda x: lax.reduce_window(x, 2.0, lax.mul, (2, 3), (1, 2), ((1, 0), (0, 2)), base_dilation=(2, 1)), x)
    agrees(lambda x, i: lax.reduce_window(x, i, lax.add, (3, 1), (2, 1), ((-1, 2), (0, 0))), x, np.float32(7))
    agrees(lambda x: lax.reduce_window(x, 0.5, lax.max, (2, 2), (1, 1), "SAME"), x)


def test_updates_of_everything_are_elementwise() -> None:
    """`x.at[:].add(u)` is a scatter at no index, which was left to the evaluator."""
    u = np.cos(X)
    agrees(lambda x, u: (x.at[:].add(u), x.at[()].multiply(u), x.at[...].max(u), x.at[:].set(u), x.at[:, :].min(0.5)), X, u)


def test_folds_of_several_values_stay_whole() -> None:
    """A search for sums to split took every fold for one of one value, and planning ended with an error."""
    agrees(jax.scipy.special.gammasgn, np.linspace(0.3, 6, 9, dtype=np.float32))
    agrees(lambda x: lax.reduce((x, x * x), (0.0, 0.0), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0,)), X[0])


def test_rows_of_points_and_colours() -> None:
    """Rows of two to eight elements, which are the innermost loop where anything keeps the loop around them apart."""
    rng = np.random.default_rng(0)
    x, p = rng.integers(-9, 9, (16, 40, 3)).astype(np.float32), rng.integers(0, 16, 30).astype(np.int32)
    agrees(lambda x, p: x.at[p].add(jnp.take(x, p * 3 % 16, 0), mode="drop"), x, p)
    agrees(lambda x, p: jax.ops.segment_max(x[p], p, 16), x, p)
    agrees(lambda x: jnp.pad(x, ((1, 1), (2, 1), (0, 0)), mode="edge"), x)
    agrees(lambda x: lax.cummax(x, axis=0) + lax.cumsum(x, axis=1, reverse=True), x)
    agrees(lambda x: jnp.where(jnp.arange(3) == 1, jnp.tanh(x), x) + jnp.roll(x, 1, 2), x, bound=1e-6)
    agrees(lambda x: jnp.arange(50.0)[(jnp.abs(jnp.roll(x, 1, 0) + x).astype(jnp.int32) * 7) % 50], x)
    agrees(lambda x: x + jnp.roll(x, 1, 0) + jnp.roll(jnp.abs(jnp.roll(x, 2, 0)), 1, 0), x)
    agrees(lambda x: jnp.cumsum(x + 1j * jnp.flip(x), 1), x)
    agrees(lambda x: jnp.clip(x.astype(jnp.float16), -2, 3), x)


@pytest.mark.parametrize("size", [20, 256])
def test_places_of_two_parts_have_names_of_their_own(size: int) -> None:
    """Where a row is cut, a part has a place's name for another number: equal ones that became one took the wrong name."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((50, 50)).astype(np.float32)
    x, y, z = (rng.integers(0, 50, 64).astype(np.int32) for _ in range(3))

    def along(v: Any) -> Any:
        return jnp.broadcast_to(v[:, None], (64, size))

    def looked_up(t: Any, x: Any, y: Any, z: Any) -> Any:
        return -t[jnp.concatenate([along(x), along(y)], 1), jnp.concatenate([along(y), along(z)], 1)] * 2.0

    agrees(looked_up, table, x, y, z)


def test_a_place_has_one_name_in_each_copy() -> None:
    """A condition on a place and the load behind it had two names for it, so nothing told that the load is inside."""
    table = np.random.default_rng(0).standard_normal((50, 64)).astype(np.float32)

    def interleaved(t: Any, y: Any, s: Any) -> Any:
        a = lax.dynamic_slice(jnp.concatenate([t, y]), (s, 0), (8, 64))
        return jnp.stack([a, y[:8]], -1).reshape(8, 128)

    for start in (0, 46, 99):
        agrees(interleaved, table, table[::-1].copy(), np.int32(start))
