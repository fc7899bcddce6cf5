"""Types that JAX's arrays have and NumPy's have not come back from `tilewright.jit`: weak ones, keys, extended ones."""

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
    from jax._src import core
    from jax._src.interpreters import pxla

    class Celsius(jax.dtypes.extended):
        """A scalar type of the test's own."""

    class Rules:
        allow_conversion = True

        @staticmethod
        def physical_element_aval(dtype: Any) -> Any:
            return core.ShapedArray((), jnp.dtype("int8"))

        @staticmethod
        def global_sharded_result_handler(aval: Any, sharding: Any, committed: bool) -> Any:
            stored = pxla.global_aval_to_result_handler(core.physical_aval(aval), sharding, committed)
            return lambda arrays: Temperatures(aval.dtype, stored(arrays))

    class CelsiusType(jax._src.dtypes.ExtendedDType):
        type = Celsius
        name = "celsius"
        itemsize = 1
        _rules = Rules

        def __eq__(self, other: object) -> bool:
            return isinstance(other, CelsiusType)

        def __hash__(self) -> int:
            return hash("celsius")

    class Temperatures:
        def __init__(self, dtype: Any, stored: Any) -> None:
            self.dtype, self.stored = dtype, stored


def weak(shape: tuple[int, ...], value: complex) -> Any:
    made = jnp.broadcast_to(jnp.asarray(value), shape)
    assert made.weak_type
    return made


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
@pytest.mark.parametrize("value", [2.5, 3, 1 + 2j])
def test_weak_types_of_any_rank(shape: tuple[int, ...], value: complex) -> None:
    x = weak(shape, value)

    def f(x: Any) -> Any:
        return x * 2, x + jnp.ones(shape, x.dtype)

    for found, wanted in zip(tilewright.jit(f)(x), jax.jit(f)(x), strict=True):
        assert (found.dtype, found.weak_type, found.shape) == (wanted.dtype, wanted.weak_type, wanted.shape)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_a_weak_result_takes_the_others_type() -> None:
    found = tilewright.jit(lambda x: x * 2)(weak((3,), 2.0)) * jnp.ones(3, jnp.bfloat16)
    assert found.dtype == jnp.bfloat16 and found.tolist() == [4, 4, 4]


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("output", ["jax", "numpy"])
def test_keys_of_every_implementation(implementation: str, output: str) -> None:
    key = jax.random.key(3, impl=implementation)

    def f(key: Any) -> Any:
        return jax.random.wrap_key_data(jax.random.key_data(key) + jnp.uint32(1), impl=implementation)

    found, wanted = tilewright.jit(f, output=output)(key), jax.jit(f)(key)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(wanted))
    assert jax.random.uniform(found) == jax.random.uniform(wanted)


@pytest.mark.parametrize("output", ["jax", "numpy"])
def test_results_of_an_extended_type(output: str) -> None:
    def f(x: Any) -> Any:
        return jax.lax.convert_element_type(x + 1, CelsiusType()), x

    wrapped, plain = tilewright.jit(f, output=output)(jnp.arange(3, dtype=jnp.int8))
    assert isinstance(wrapped, Temperatures) and wrapped.dtype == CelsiusType()
    assert wrapped.stored.tolist() == [1, 2, 3] and plain.tolist() == [0, 1, 2]
    assert isinstance(plain, np.ndarray) == (output == "numpy")


def test_masked_arrays_are_what_they_are_to_jax() -> None:
    """Refused, with what to do instead; but JAX's own warm call takes their data, and so does a warm call that is JAX's."""
    x = np.ma.masked_array(np.ones(3, np.float32), [True, False, False])

    def refused(f: Any) -> bool:
        with pytest.raises(ValueError, match=r"masked arrays are not supported as direct inputs.*filled"):
            f(x)
        return True

    assert refused(jax.jit(lambda x: x + 1)) and refused(lambda x: tilewright.from_jax(lambda x: x + 1, x))
    own = tilewright.jit(lambda x: x + 1, output="numpy")
    for _ in range(3):
        assert refused(own) and own(x.filled(4)).tolist() == [5, 2, 2]
    found = []
    for f in (jax.jit(lambda x: x + 1), tilewright.jit(lambda x: x + 1)):
        for _ in range(3):
            assert f(x.filled(4)).tolist() == [5, 2, 2]
        found.append(f(x).tolist())
    assert found == [[2, 2, 2]] * 2
