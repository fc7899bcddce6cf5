"""More of what `tests.jax.pjrt_checks` checks: what JAX and XLA do by a platform's name, done for this platform too."""

from __future__ import annotations

import gc
import importlib.util
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out
    import jax
    import jax.export
    import jax.numpy as jnp
    from jax.experimental import buffer_callback, pallas, serialize_executable, topologies
    from jax.experimental.sparse.linalg import spsolve

    from tilewright.pjrt.handles import living


def check_donated_arguments_that_are_others_too() -> None:
    """Errors in XLA's words, of native calls and of those through Python; nothing is given up."""
    large = jnp.ones(3 << 22)
    for x in (jnp.ones(3), large):
        for donated, message in (((0,), "previously donated"), ((1,), "also used"), ((0, 1), "donate the same buffer twice")):
            f = jax.jit(lambda a, b: (a + 1, b * 2), donate_argnums=donated)
            with pytest.raises(jax.errors.JaxRuntimeError, match=rf"{message}.*flattened argument 1, .*first use: 0"):
                f(x, x)
            assert not x.is_deleted() and x[0] == 1
    a, b = jnp.ones(3), jnp.ones(3)
    assert jax.jit(lambda a, b, c: (a + b, a - b, c), donate_argnums=(0, 1))(a, b, large)[0][0] == 2
    assert a.is_deleted() and b.is_deleted() and not large.is_deleted()


def check_options_of_the_compiler() -> None:
    """What XLA's compiler would say of them."""
    lowered = jax.jit(lambda x: x + 1).lower(1.0)
    assert lowered.compile(compiler_options={"xla_embed_ir_in_executable": True})(1.0) == 2
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"^INVALID_ARGUMENT: No such compile option: 'xla_nonsense'"):
        lowered.compile(compiler_options={"xla_nonsense": True})
    with pytest.raises(jax.errors.JaxRuntimeError, match="'invalid' is not a valid bool value"):
        lowered.compile(compiler_options={"xla_embed_ir_in_executable": "invalid"})


def check_costs() -> None:
    def costs(f: Any, *args: Any) -> Any:
        return jax.jit(f).lower(*args).compile().cost_analysis()

    x = jnp.ones((8, 8))
    assert costs(lambda x: x @ x, x)["flops"] == 2 * 8**3
    assert costs(jnp.sin, x)["transcendentals"] == 64
    assert costs(lambda x: x + 1, x)["bytes accessed"] >= 2 * 4 * 64


def check_programs_of_keys_are_shown() -> None:
    """Keys bring annotations of shardings, which jaxlib does not read in compiled programs: none was shown or written out."""
    lowered = jax.jit(jax.random.split).lower(jax.random.key(1))
    compiled = lowered.compile()
    assert "HloModule" in compiled.as_text()
    made = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))(jax.random.key(1))
    np.testing.assert_array_equal(jax.random.key_data(made), jax.random.key_data(jax.random.split(jax.random.key(1))))


def check_costs_of_what_is_lowered() -> None:
    """They were None."""

    def flops() -> float:
        return float(jax.jit(lambda x: x * 2).lower(np.ones((3, 4), np.float32)).cost_analysis()["flops"])

    with jax.default_device(jax.devices("cpu")[0]):
        expected = flops()
    assert flops() == expected == 12


def check_what_has_no_elements_is_put_natively() -> None:
    """Every call with an ordered callback puts its token, an array of no elements, which went through Python."""
    before = len(living)
    x = jax.device_put(np.zeros((0, 3), bool))
    assert len(living) == before and x.shape == (0, 3) and np.asarray(x).size == 0


def check_dlpack() -> None:
    """Elements are lent in place and stay; of types that NumPy does not lend, and of others', there are copies."""
    x = jnp.arange(1000.0) * 2
    view = np.from_dlpack(x)
    assert (view.ctypes.data, tuple(x.__dlpack_device__())) == (x.unsafe_buffer_pointer(), (1, 0))
    x.delete()
    del x
    gc.collect()
    jnp.zeros(1000).block_until_ready()
    assert view[-1] == 1998
    half = jax.dlpack.from_dlpack(jnp.arange(5, dtype=jnp.bfloat16))
    taken = jnp.from_dlpack(np.arange(5.0, dtype=np.float32))
    for y in (half, taken):
        assert y.devices() == {jax.devices()[0]} and y.tolist() == [0, 1, 2, 3, 4]
    assert jax.dlpack.from_dlpack(np.arange(4), jax.devices("cpu")[0]).devices() == {jax.devices("cpu")[0]}
    with pytest.raises(BufferError, match="copy=False"):
        half.__dlpack__(copy=False)
    with pytest.raises(ValueError, match="comes to TilewrightDevice"):
        jnp.from_dlpack(np.arange(5.0), device=jax.devices()[0], copy=False)


def check_rules_that_ask_for_the_platform() -> None:
    """Rules outside of the table of rules, which know the CPU by its name: those of sparse systems, and of Pallas."""
    eye = jnp.array([4.0, 4.0, 4.0]), jnp.arange(3), jnp.arange(4), jnp.ones(3)
    np.testing.assert_array_equal(jax.jit(spsolve)(*eye), [0.25, 0.25, 0.25])

    def doubled(x: Any, y: Any) -> None:
        y[...] = x[...] * 2

    shape = jax.ShapeDtypeStruct((4,), jnp.float32)
    assert pallas.pallas_call(doubled, out_shape=shape, interpret=True)(jnp.ones(4)).tolist() == [2, 2, 2, 2]
    with pytest.raises(ValueError, match="Only interpret mode is supported on CPU backend"):
        pallas.pallas_call(doubled, out_shape=shape)(jnp.ones(4))


def check_exports_for_the_cpu() -> None:
    """They are called here, with LAPACK's routines and branches by platform; those for other platforms are refused by JAX."""

    def f(x: Any) -> Any:
        chosen = jax.lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x - 1)
        return jnp.linalg.eigh(chosen @ chosen.T)[0]

    x = np.arange(9.0, dtype=np.float32).reshape(3, 3)
    for platforms in (("cpu",), ("tpu", "cpu")):
        made = jax.export.export(jax.jit(f), platforms=platforms)(x)
        with jax.default_device(jax.devices("cpu")[0]):
            expected = np.asarray(jax.jit(f)(x))
        np.testing.assert_allclose(jax.jit(made.call)(x), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="was exported for platforms"):
        jax.export.export(jax.jit(jnp.sin), platforms=("tpu",))(x).call(x)


def check_callbacks_on_buffers() -> None:
    """In place, where they are to write; in a loop; with an operand's memory; with errors as other callbacks have them."""
    seen: list[Any] = []

    def double(context: Any, y: Any, x: Any) -> None:
        assert isinstance(context, buffer_callback.ExecutionContext) and isinstance(y, buffer_callback.Buffer)
        seen.append((context.stage.name, y.writeable, x.writeable, x.shape, x.dtype.name))
        np.asarray(y)[...] += 2 * np.asarray(x)

    shape = jax.ShapeDtypeStruct((3,), jnp.float32)

    def turn(x: Any, _: Any) -> Any:
        return buffer_callback.buffer_callback(double, shape, input_output_aliases={0: 0})(x), None

    x = jnp.arange(3.0)
    assert jax.jit(lambda x: jax.lax.scan(turn, x, None, 2)[0])(x).tolist() == [0, 9, 18]
    assert x.tolist() == [0, 1, 2] and seen == [("EXECUTE", True, False, (3,), "float32")] * 2

    def fails(context: Any, y: Any) -> None:
        np.asarray(y)[...] = context.stream

    with pytest.raises(jax.errors.JaxRuntimeError, match="GPU context is not available"):
        buffer_callback.buffer_callback(fails, shape)().block_until_ready()


def check_errors_of_callbacks() -> None:
    """Their text is the exception's traceback, once, as on JAX's CPU."""

    def wrong(x: Any) -> Any:
        return jax.pure_callback(lambda a: np.ones(4, np.float32), jax.ShapeDtypeStruct((3,), jnp.float32), x)

    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.jit(wrong)(jnp.ones(3)).block_until_ready()
    text = str(caught.value)
    assert text.startswith("INTERNAL: CpuCallback error calling callback: Traceback (most recent call last):\n")
    assert text.count("Traceback") == 1 and text.strip().endswith("Expected: (3,), Actual: (4,)")


def check_element_types_without_routines() -> None:
    """Factorizations of such elements are refused where they are compiled: the error was a traceback of a call."""
    for f in (jnp.linalg.inv, jnp.linalg.qr, jax.scipy.linalg.lu):
        with pytest.raises((NotImplementedError, jax.errors.JaxRuntimeError), match="Unsupported dtype bfloat16"):
            jax.jit(f).lower(jnp.eye(3, dtype=jnp.bfloat16)).compile()
    assert jax.jit(jnp.linalg.inv)(2 * jnp.eye(2)).tolist() == [[0.5, 0], [0, 0.5]]


def check_layouts_that_are_told() -> None:
    """Row-major ones: XLA takes the results of transpositions for others, where it is not told."""
    x = jnp.ones((2, 3, 4))
    compiled = jax.jit(lambda x: (x.T + 1, x[0].T, x.sum(), x)).lower(x).compile()
    told = [f.layout.major_to_minor for f in (*jax.tree.leaves(compiled.input_formats), *compiled.output_formats)]
    assert told == [(0, 1, 2), (0, 1, 2), (0, 1), (), (0, 1, 2)]
    assert [r.format.layout.major_to_minor for r in compiled(x)] == told[1:]


def check_kinds_of_memory() -> None:
    """As on JAX's CPU: put from the host and from another kind, made by programs (native calls, callbacks, long ones), read."""
    (device, *_), kinds = jax.devices(), ["device", "pinned_host", "unpinned_host"]
    assert [m.kind for m in device.addressable_memories()] == kinds and device.default_memory().kind == "device"
    x = np.arange(6, dtype=np.float32)
    for kind in kinds:
        there, here = (jax.sharding.SingleDeviceSharding(device, memory_kind=k) for k in (kind, "device"))
        both = jax.jit(lambda x: (x * 2, x + 1), out_shardings=(there, here))
        a, b = both(x)
        put = jax.device_put(x, there), jax.device_put(jnp.ones(3), there), jax.device_put(np.ones((300, 300)), there)
        hosted = jax.jit(lambda x: jax.pure_callback(np.sin, x, x), out_shardings=there)(x)
        large = jax.jit(lambda x: x + 1, out_shardings=there)(jnp.ones(3 << 22))
        assert {v.sharding.memory_kind for v in (*put, a, hosted, large)} == {kind}
        assert {v.sharding.memory_kind for v in (b, a * 2, a + b, jax.device_put(put[0], here))} == {"device"}
        assert (a + b).tolist() == (3 * x + 1).tolist() and float(large[-1]) == 2 and put[0].tolist() == x.tolist()
        told = both.lower(x).compile().output_shardings
        assert [s.memory_kind for s in told] == [kind, "device"]
    moved = jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Host))(x)
    assert moved.sharding.memory_kind == "pinned_host" and moved.devices() == {device}
    with pytest.raises(ValueError, match="Could not find memory addressable"):
        jax.device_put(x, jax.sharding.SingleDeviceSharding(device, memory_kind="nonsense"))


def check_no_topology() -> None:
    """As on JAX's CPU; compiling for one that is no device's waited for ever."""
    with pytest.raises(NotImplementedError, match="topology not implemented for tilewright"):
        topologies.get_topology_desc(platform="tilewright")


CHECKS = {name.removeprefix("check_"): f for name, f in list(globals().items()) if name.startswith("check_")}
