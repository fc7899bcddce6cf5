"""What `tests/jax/test_pjrt.py` checks of four devices of the platform `tilewright` beside four of JAX's CPU, in one process.

`python -m tests.jax.pjrt_devices NAME...` prints a JSON object, as `tests.jax.pjrt_checks` does.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import sys
from typing import Any

import jaxlib.version
import numpy as np
import pytest

from tests.jax.pjrt_checks import report

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

A = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)


def mesh_of(platform: str) -> Any:
    """Two by two devices."""
    return Mesh(np.array(jax.devices(platform)[:4]).reshape(2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def same(make: Any, *args: Any, tolerance: float = 1e-5) -> None:
    """make(mesh), called, gives the same arrays, with the same shards, on this platform as on JAX's CPU."""
    expected, found = (jax.tree.leaves(make(mesh_of(platform))(*args)) for platform in ("cpu", "tilewright"))
    for a, b in zip(found, expected, strict=True):
        assert [(s.device.id, s.index) for s in a.addressable_shards] == [(s.device.id, s.index) for s in b.addressable_shards]
        assert (a.dtype, a.sharding.spec) == (b.dtype, b.sharding.spec)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def check_devices() -> None:
    devices = jax.devices()
    assert [(d.platform, d.id, d.local_hardware_id) for d in devices] == [("tilewright", k, k) for k in range(4)]
    assert [str(d.default_memory()) for d in devices] == [f"TilewrightMemory(id={3 * k}, kind=device)" for k in range(4)]
    x = jax.device_put(A, devices[2])
    y = jax.jit(lambda x: x + 1)(x)
    assert x.devices() == y.devices() == {devices[2]}
    moved = jax.device_put(y, devices[1])
    assert moved.devices() == {devices[1]} and moved.unsafe_buffer_pointer() != y.unsafe_buffer_pointer()
    np.testing.assert_array_equal(moved, A + 1)
    with pytest.raises(ValueError, match="incompatible devices"):
        jax.jit(lambda a, b: a + b)(x, moved)


def check_shardings_that_are_given() -> None:
    def make(mesh: Any) -> Any:
        rows, both = NamedSharding(mesh, P("x", None)), NamedSharding(mesh, P("x", "y"))
        return jax.jit(lambda a, b: (jnp.sin(a @ b), (a * b).sum(0)), in_shardings=(rows, both), out_shardings=(both, None))

    same(make, A, A.T)


def check_shardings_of_arguments() -> None:
    def make(mesh: Any) -> Any:
        place = NamedSharding(mesh, P("y", "x"))
        f = jax.jit(jax.value_and_grad(lambda a: jnp.sum(jnp.tanh(a @ a.T) * jax.scipy.special.erf(a))))
        return lambda a: f(jax.device_put(a, place))

    same(make, A)


def check_explicit_collectives() -> None:
    def make(mesh: Any) -> Any:
        def part(v: Any) -> Any:
            return (
                jax.lax.psum(v, "x"), jax.lax.pmax(v, ("x", "y")), jax.lax.all_gather(v, "y"), jax.lax.axis_index("y")[None],
                jax.lax.ppermute(v, "x", [(0, 1), (1, 0)]), jax.lax.psum_scatter(v, "x", tiled=True),
                jax.lax.all_to_all(v, "y", 0, 1, tiled=True), jax.lax.pmean(jax.nn.softmax(v), "y"),
            )  # fmt: skip

        whole, all_of = P("x", "y"), P()
        out = (P(None, "y"), all_of, P(None, "x", None), P("y"), whole, P("x", "y"), whole, P("x", None))
        return jax.jit(jax.shard_map(part, mesh=mesh, in_specs=whole, out_specs=out, check_vma=False))

    same(make, A)


def check_loops_and_random_numbers() -> None:
    """A collective within a loop meets once for each turn."""

    def make(mesh: Any) -> Any:
        def part(v: Any) -> Any:
            noise = jax.random.normal(jax.random.fold_in(jax.random.key(3), jax.lax.axis_index("x")), v.shape)
            return jax.lax.fori_loop(0, 3, lambda k, c: jax.lax.psum(c, "x") * 0.5 + noise, v)

        return jax.jit(jax.shard_map(part, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False))

    same(make, A)


def check_pmap() -> None:
    f = lambda x: (x / jax.lax.psum(x, "i"), jax.lax.axis_index("i"))  # noqa: E731
    found, expected = (jax.pmap(f, axis_name="i", devices=jax.devices(p)[:4])(A[:4]) for p in ("tilewright", "cpu"))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def check_training_in_parallel() -> None:
    """Steps that donate what they are given: rows of data on one axis, columns of weights on the other."""

    def make(mesh: Any) -> Any:
        columns, rows = NamedSharding(mesh, P(None, "y")), NamedSharding(mesh, P("x", None))

        def loss(w: Any, x: Any) -> Any:
            return jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - x) ** 2)

        def step(w: Any, x: Any) -> Any:
            value, slopes = jax.value_and_grad(loss)(w, x)
            return jax.tree.map(lambda p, g: p - 0.1 * g, w, slopes), value

        jitted = jax.jit(step, donate_argnums=0)

        def run(x: Any) -> Any:
            w = {"a": jax.device_put(A, columns), "b": jax.device_put(A.T.copy(), NamedSharding(mesh, P("y", None)))}
            first, x = w["a"], jax.device_put(x, rows)
            values = []
            for _ in range(4):
                w, value = jitted(w, x)
                values.append(value)
            assert first.is_deleted()
            return w, values

        return run

    same(make, A, tolerance=1e-4)


def check_calls_of_many_threads() -> None:
    """Calls of all devices by several threads: each finds its own partners, in whatever order they come."""
    mesh = mesh_of("tilewright")
    f = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, ("x", "y")), mesh=mesh, in_specs=P(("x", "y")), out_specs=P()))

    def work(k: int) -> bool:
        return all(float(f(np.full(4, k, np.float32))[0]) == 4 * k for _ in range(10))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def check_errors() -> None:
    """What one device's part raises, all results raise, and nobody waits for ever; too many devices are refused in words."""
    mesh = mesh_of("tilewright")

    def fails(v: Any) -> Any:
        if v[0] == 2:
            raise ValueError("on one device")
        return v

    def part(v: Any) -> Any:
        w = jax.pure_callback(fails, jax.ShapeDtypeStruct(v.shape, v.dtype), v)
        return jax.lax.psum(w, ("x", "y"))

    f = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=P(("x", "y")), out_specs=P(), check_vma=False))
    with pytest.raises(jax.errors.JaxRuntimeError, match="on one device"):
        f(np.arange(4, dtype=np.float32)).block_until_ready()
    assert f(np.ones(4, np.float32))[0] == 4


def check_kinds_of_memory() -> None:
    """Shards are put into another kind of each device's memory, are made there, and come back."""

    def make(mesh: Any) -> Any:
        here = NamedSharding(mesh, P("x"))
        there = here.with_memory_kind("pinned_host")
        double = jax.jit(lambda v: (v * 2, v.sum()), out_shardings=(there, None))

        def moved(x: Any) -> Any:
            put = jax.device_put(x, there)
            made, total = double(jax.device_put(put, here))
            kinds = [s.data.sharding.memory_kind for v in (put, made) for s in v.addressable_shards]
            assert kinds == ["pinned_host"] * 8 and total.sharding.memory_kind == "device"
            return put, made, jax.device_put(made, here) + 1

        return moved

    if jaxlib.version.__version_info__ >= (0, 10, 2):
        same(make, A)
        return
    for platform in ("cpu", "tilewright"):  # the partitioner, which is jaxlib's, did not know what puts a result there
        with pytest.raises(jax.errors.JaxRuntimeError, match="Side-effect ops cannot be replicated"):
            make(mesh_of(platform))(A)


CHECKS = {name.removeprefix("check_"): f for name, f in list(globals().items()) if name.startswith("check_")}

if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 4)
    report(CHECKS, sys.argv[1:])
