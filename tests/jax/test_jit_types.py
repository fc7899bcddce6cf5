"""Types that JAX's arrays have and NumPy's have not come back from `tilewright.jit`; programs for given types, ahead of time."""

from __future__ import annotations

import copy
import importlib.util
import pickle
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


def _stepped(x: Any, n: int, y: Any = 1.0) -> Any:
    return {"a": x * n + y, "b": x.sum()}


def test_ahead_of_time_as_jax_does() -> None:
    """`.lower` gave a module and nothing else."""
    options: Any = {"static_argnums": 1, "donate_argnums": 0}
    x, y = np.arange(4, dtype=np.float32), np.float32(2)
    own, jaxs = (jit(_stepped, **options).lower(x, 3, y=y).compile() for jit in (tilewright.jit, jax.jit))
    for name in ("in_tree", "in_avals", "out_tree", "donate_argnums"):
        assert str(getattr(own, name)) == str(getattr(jaxs, name)), name
    assert [(s.shape, s.dtype) for s in jax.tree.leaves(own.out_info)] == [((4,), "float32"), ((), "float32")]
    assert jax.tree.map(str, own.input_shardings) == jax.tree.map(str, jaxs.input_shardings)
    assert jax.tree.map(str, own.output_shardings) == jax.tree.map(str, jaxs.output_shardings)
    told, expected = own.memory_analysis(), jaxs.memory_analysis()
    assert (told.argument_size_in_bytes, told.output_size_in_bytes) == (20, 20)
    assert told.argument_size_in_bytes == expected.argument_size_in_bytes
    given = jnp.asarray(x)
    results = own(given, y=y)
    assert given.is_deleted() and jax.tree.map(lambda r: r.tolist(), results) == {"a": [2, 5, 8, 11], "b": 6}
    assert "def kernel" in own.as_text() and own.runtime_executable().fallbacks == []


@pytest.mark.parametrize(("args", "message"), [
    ((np.zeros(5, np.float32),), r"argument 0 compiled with float32\[4\] and called with float32\[5\]"),
    ((np.zeros(4, np.int8),), r"argument 0 compiled with float32\[4\] and called with int8\[4\]"),
    ((np.zeros(4, np.float32), 1), "was compiled for the arguments"),
])  # fmt: skip
def test_what_is_compiled_for_some_types_refuses_others(args: Any, message: str) -> None:
    compiled = tilewright.jit(lambda x: x * 2).lower(jax.ShapeDtypeStruct((4,), np.float32)).compile()
    with pytest.raises(TypeError, match=message):
        compiled(*args)


def test_what_is_compiled_for_some_types_is_not_transformed() -> None:
    compiled = tilewright.jit(lambda x: x * 2).lower(1.0).compile()
    with pytest.raises(TypeError, match="tracers"):
        jax.vmap(compiled)(jnp.ones(3))


def test_weak_types_are_those_that_were_compiled_for() -> None:
    for example, weak in ((1.0, True), (np.float32(1), False)):
        own, jaxs = (jit(lambda x: x + 1).lower(example).compile() for jit in (tilewright.jit, jax.jit))
        for given in (2.0, jnp.float32(2)):
            assert own(given).weak_type == jaxs(given).weak_type == weak


def test_a_lowered_function_is_a_module() -> None:
    """It shows what is compiled, is copied and pickled as a module, and has JAX's texts besides."""
    kept, dropped = (tilewright.jit(lambda a, b: a + 1, keep_unused=k).lower(1.0, 2.0) for k in (True, False))
    assert (kept.as_text().count("%arg1"), dropped.as_text().count("%arg1")) == (1, 0)
    assert "HloModule" in kept.as_text("hlo") and kept.compiler_ir() is not None
    for again in (copy.copy(kept), copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
        assert str(again) == str(kept) and len(again.function().arguments) == 2
