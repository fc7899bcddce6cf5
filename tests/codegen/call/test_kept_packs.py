"""Operands that are packed once: the arrays of one owner are put into panels at one call and are there at the next ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import tilewright
import tiling
from codegen.call.kept_packs import KIND, KeptPacks, packs_of
from codegen.call.recorded import recorded, restored
from codegen.launcher import launch, memory

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax
    import jax.numpy as jnp

LAYERS = """
func.func @main(%x: tensor<64x512xf32>, %w: tensor<512x512xf32>, %v: tensor<256x512xf32>) -> tensor<64x256xf32> {
  %a = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
       : (tensor<64x512xf32>, tensor<512x512xf32>) -> tensor<64x512xf32>
  %t = stablehlo.tanh %a : tensor<64x512xf32>
  %y = stablehlo.dot_general %t, %v, contracting_dims = [1] x [1]
       : (tensor<64x512xf32>, tensor<256x512xf32>) -> tensor<64x256xf32>
  return %y : tensor<64x256xf32>
}"""


class Owner:
    """An object that owns an array's elements."""


@pytest.fixture(scope="module")
def layers() -> codegen.Executable:
    machine = tiling.Machine(cores=2, vector_bytes=32, vector_registers=16)
    return codegen.Executable(tiling.plan(hlo.parse(LAYERS), machine=machine), threads=2)


@pytest.fixture
def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((64, 512), (512, 512), (256, 512))]


@pytest.fixture
def steps_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps each run of the launcher has."""
    counts: list[int] = []
    run: Callable[..., None] = launch.Plan.run

    def counted(plan: launch.Plan, *args: Any, **kwargs: Any) -> None:
        counts.append(len(plan.steps))
        run(plan, *args, **kwargs)

    monkeypatch.setattr(launch.Plan, "run", counted)
    return counts


def kept_bytes() -> int:
    return memory.pool.count(KIND).live_bytes


def test_what_lasts_is_packed_at_the_second_call_and_left_out_of_later_ones(
    layers: codegen.Executable, arrays: list[np.ndarray], steps_run: list[int]
) -> None:
    before, count = kept_bytes(), len(layers.kernels)
    packs = layers._packs.packs
    assert [p.arguments for p in packs] == [(1,), (2,)]
    owners: list[Any] = [None, Owner(), Owner()]
    (wanted,) = layers(*arrays)
    for _ in range(3):
        np.testing.assert_array_equal(layers.call_owned(arrays, owners.__getitem__)[0], wanted)
    assert steps_run == [count, count, count, count - len(packs)]
    assert kept_bytes() - before == (512 + 256) * 512 * 4

    # Other elements have another owner: what was packed is not theirs.
    owners[1], arrays[1] = Owner(), -arrays[1]
    (wanted,) = layers(*arrays)
    steps_run.clear()
    for _ in range(3):
        np.testing.assert_array_equal(layers.call_owned(arrays, owners.__getitem__)[0], wanted)
    assert steps_run == [count - 1, count - 1, count - 2]
    owners.clear()
    assert kept_bytes() == before, "no owner is left"


NORMED = """
func.func @main(%x: tensor<1x14x14x32xf32>, %w: tensor<64x32xf32>) -> tensor<1x14x14x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %q = stablehlo.multiply %w, %w : tensor<64x32xf32>
  %s = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [1]
       : (tensor<64x32xf32>, tensor<f32>) -> tensor<64xf32>
  %r = stablehlo.rsqrt %s : tensor<64xf32>
  %b = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<64xf32>) -> tensor<64x32xf32>
  %n = stablehlo.multiply %w, %b : tensor<64x32xf32>
  %k = stablehlo.reshape %n : (tensor<64x32xf32>) -> tensor<64x32x1x1xf32>
  %y = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x14x14x32xf32>, tensor<64x32x1x1xf32>) -> tensor<1x14x14x64xf32>
  return %y : tensor<1x14x14x64xf32>
}"""
"""Weights of norm 1: a factor of a convolution that a fold makes of an argument alone."""


def test_normed_weights_are_made_once_and_what_packs_them_is_all_that_is_kept(steps_run: list[int]) -> None:
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((1, 14, 14, 32), (64, 32))]
    machine = tiling.Machine(cores=2, vector_bytes=32, vector_registers=16)
    made = codegen.Executable(tiling.plan(hlo.parse(NORMED), machine=machine), threads=2)
    norms, panels = made._packs.packs
    assert norms.readers == (panels.step,) and not panels.readers and norms.arguments == panels.arguments == (1,)
    before, count = kept_bytes(), len(made.kernels)
    owners: list[Any] = [None, Owner()]
    (wanted,) = made(*arrays)
    for _ in range(3):
        np.testing.assert_array_equal(made.call_owned(arrays, owners.__getitem__)[0], wanted)
    assert steps_run == [count, count, count, count - 2]
    assert kept_bytes() - before == memory.rounded_bytes(panels.slots[0][1])
    owners[1], arrays[1] = Owner(), 2 * arrays[1]  # of the same norm, after all
    for _ in range(3):
        np.testing.assert_allclose(made.call_owned(arrays, owners.__getitem__)[0], wanted, rtol=1e-5, atol=1e-5)
    assert steps_run[-3:] == [count, count, count - 2]


def test_nothing_is_kept_of_what_may_change_nor_beyond_the_pools_bound(
    layers: codegen.Executable, arrays: list[np.ndarray], steps_run: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(layers.kernels)
    for _ in range(3):
        layers.call_owned(arrays, lambda k: None)
    monkeypatch.setattr(memory.pool, "_limit", 0)
    owners = [None, Owner(), Owner()]
    before = kept_bytes()
    for _ in range(3):
        layers.call_owned(arrays, owners.__getitem__)
    assert steps_run == [count] * 6 and kept_bytes() == before


def test_what_a_failed_call_has_packed_is_not_kept(
    layers: codegen.Executable, arrays: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = [None, Owner(), Owner()]
    (wanted,) = layers(*arrays)
    layers.call_owned(arrays, owners.__getitem__)
    with monkeypatch.context() as patch:

        def fail(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(launch.Plan, "run", fail)
        with pytest.raises(KeyboardInterrupt):
            layers.call_owned(arrays, owners.__getitem__)
    for _ in range(2):
        np.testing.assert_array_equal(layers.call_owned(arrays, owners.__getitem__)[0], wanted)


def test_a_restored_call_keeps_packs_too(
    layers: codegen.Executable, arrays: list[np.ndarray], steps_run: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    made = codegen.compile(hlo.parse(LAYERS), threads=2)
    record = recorded(made)
    assert isinstance(record, bytes)
    again = restored(record, lambda: made, threads=2)
    assert isinstance(again, codegen.Executable) and again._packs.packs == made._packs.packs != ()
    owners = [None, Owner(), Owner()]
    (wanted,) = again(*arrays)
    for _ in range(3):
        np.testing.assert_array_equal(again.call_owned(arrays, owners.__getitem__)[0], wanted)
    assert steps_run[-1] == steps_run[0] - len(made._packs.packs)


def test_which_steps_are_packs() -> None:
    """Only what reads arguments, and what nothing else stores to; nothing where steps may run twice or not at all."""

    def packs(copies: list[tuple[int, int]], *more: launch.Instruction) -> list[int]:
        instructions = [*(launch.Copy(c, 64) for c in copies), *more]
        stores = {k: frozenset({target}) for k, (_, target) in enumerate(copies)}
        found = packs_of(instructions, stores, range(len(copies)), [0, None, 1], {5, 6, 7}, {5: 64, 6: 64, 7: 64})
        return [p.step for p in found]

    assert packs([(0, 5), (1, 6)]) == [0, 1]
    assert packs([(0, 5), (5, 6)]) == [0, 1], "the second reads what the first has made"
    assert packs([(0, 5), (5, 6), (9, 7)]) == [0, 1], "what is read is no argument's"
    assert packs([(0, 5), (1, 5)]) == [], "both store to one memory"
    assert packs([(0, 9), (1, 6)]) == [1], "memory 9 is a result"
    assert packs([(6, 0), (0, 5), (1, 7)]) == [2], "an argument's memory is stored to"
    assert packs([(0, 5)], launch.Jump(0)) == [], "it may run twice"
    assert packs([(0, 5)], launch.Jump(1)) == packs([(0, 5)], launch.Jump(2)) == [0]
    assert packs([(0, 5), (1, 6)], launch.Exchange((5, 6))) == [], "they are exchanged"
    assert packs([(0, 5)], launch.Host((5,))) == [], "the evaluator may store to it"
    assert KeptPacks(()).begin(lambda k: None).out == []


def test_steps_that_a_jump_leads_over_are_no_packs() -> None:
    copies = [launch.Copy((k, 9 + k), 64) for k in range(4)]
    first, second, third, last = copies
    instructions = [first, launch.Unless((8,), 4), second, launch.Jump(5), third, last]
    stores = {k: frozenset({s.buffers[1]}) for k, s in enumerate(instructions) if isinstance(s, launch.Copy)}
    sizes = dict.fromkeys(range(9, 13), 64)
    assert [p.step for p in packs_of(instructions, stores, stores, [0, 1, 2, 3], sizes, sizes)] == [0, 5]


@pytest.mark.jax
def test_a_program_with_branches_and_loops_keeps_its_packs(steps_run: list[int]) -> None:
    """The steps that are left have other numbers, which jumps lead to."""
    rng = np.random.default_rng(7)
    w = jnp.asarray(rng.standard_normal((512, 512)).astype(np.float32) / 16)

    def f(x: Any, w: Any) -> Any:
        y = jnp.tanh(x @ w.T)
        y = jax.lax.cond(y.sum() > 0, lambda: jnp.sort(y) @ w, lambda: jnp.cos(y))
        y = jax.lax.fori_loop(0, jnp.int32(jnp.abs(x[0, 0]) * 10) % 4, lambda i, y: jnp.sin(y) + i, y)
        return y @ w.T

    own, through_xla = tilewright.jit(f, output="numpy"), tilewright.jit(f)
    for _ in range(12):
        x = jnp.asarray(rng.standard_normal((64, 512)).astype(np.float32))
        for call in (own, through_xla):
            np.testing.assert_allclose(call(x, w), jax.jit(f)(x, w), rtol=2e-4, atol=2e-4)
    assert steps_run[-1] < steps_run[0]


@pytest.mark.jax
def test_jax_arrays_own_their_elements_and_others_do_not(steps_run: list[int]) -> None:
    rng = np.random.default_rng(7)
    w = rng.standard_normal((2048, 2048)).astype(np.float32) / 32
    x = rng.standard_normal((64, 2048)).astype(np.float32)

    def f(x: Any, *ws: Any) -> Any:
        for w in ws:
            x = jnp.tanh(x @ w.T)
        return x

    own, through_xla = tilewright.jit(f, output="numpy"), tilewright.jit(f)  # (the steps of calls through XLA are not seen here)
    given = [jnp.asarray(x), jnp.asarray(w), jnp.asarray(-w)]
    wanted = np.asarray(jax.jit(f)(*given))
    for _ in range(4):
        np.testing.assert_allclose(own(*given), wanted, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(through_xla(*given), wanted, rtol=2e-4, atol=2e-5)
    count = steps_run[0]
    assert steps_run[-1] < count
    steps_run.clear()
    for _ in range(3):  # the same array of NumPy, with other elements each time
        w *= 0.5
        wanted = jax.jit(f)(x, w, w)
        for call in (own, through_xla):
            np.testing.assert_allclose(call(x, w, w), wanted, rtol=2e-3, atol=2e-4)
    assert steps_run == [count] * 3
