"""Kernels that share what they read: one pass, right, proved, the same bits on any number of threads, and explained."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
from hlo.types import ELEMENT_TYPES
from tests.mutations.programs import in_form
from tests.mutations.running import given_values, outputs
from tiling import prove
from tiling.loops.ir import Scope
from tiling.lower.siblings import PIECES, parts_of
from tiling.pipeline import finished

SUM = """
  %{name} = stablehlo.reduce(%{x} init: %zero) applies stablehlo.add across dimensions = {axes}
    : ({source}, tensor<f32>) -> {result}"""
MAX = """
  %{name} = stablehlo.reduce(%{x} init: %low) applies stablehlo.maximum across dimensions = {axes}
    : ({source}, tensor<f32>) -> {result}"""
HEAD = """func.func @main(%x: {0}{more}) -> ({results}) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>"""


def tensor(*shape: int) -> str:
    return f"tensor<{'x'.join([*map(str, shape), 'f32'])}>"


def program(shape: tuple[int, ...], folds: list[tuple[str, tuple[int, ...]]]) -> str:
    """Folds of one argument, each over its own axes."""
    source = tensor(*shape)
    types = [tensor(*(n for k, n in enumerate(shape) if k not in axes)) for _, axes in folds]
    text = HEAD.format(source, more="", results=", ".join(types))
    for k, ((what, axes), result) in enumerate(zip(folds, types, strict=True)):
        text += what.format(name=f"r{k}", x="x", axes=list(axes), source=source, result=result)
    return f"{text}\n  return {', '.join(f'%r{k}' for k in range(len(folds)))} : {', '.join(types)}\n}}"


def run(text: str, *arrays: np.ndarray, rtol: float = 2e-5) -> codegen.Executable:
    module = hlo.parse(text)
    executable = codegen.compile(module)
    assert not executable.fallbacks
    found, alone = executable(*arrays), codegen.compile(module, threads=1)(*arrays)
    for a, b, c in zip(found, alone, interp.evaluate(module, *arrays), strict=True):
        assert a.tobytes() == b.tobytes()
        np.testing.assert_allclose(a, c, rtol=rtol, atol=rtol * max(1.0, float(np.max(np.abs(c), initial=0.0))))
    proof = prove(executable.plan)
    assert not proof.refuted, str(proof)
    return executable


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    ("shape", "folds"),
    [((1024, 512), [(SUM, (0,)), (MAX, (1,))]), ((1000, 300), [(MAX, (1,)), (SUM, (0,))]),
     ((800, 256), [(SUM, (1,)), (MAX, (1,))]), ((2048, 64), [(SUM, (0,)), (MAX, (0,))]),
     ((700, 300), [(SUM, (0, 1)), (MAX, (0, 1))]),
     ((64, 96, 80), [(SUM, (0,)), (SUM, (1,)), (SUM, (2,))]), ((64, 96, 80), [(SUM, (0, 1)), (MAX, (2,))])],
)  # fmt: skip
def test_folds_of_one_array(shape: tuple[int, ...], folds: list[tuple[str, tuple[int, ...]]]) -> None:
    run(program(shape, folds), normal(1, *shape))


def test_folds_along_different_axes_are_one_pass_in_parts() -> None:
    executable = run(program((2048, 1024), [(SUM, (0,)), (MAX, (1,))]), normal(2, 2048, 1024))
    (fusion,) = executable.plan.fusions
    assert [b.shape for b in fusion.schedule.buffers_in(Scope.SHARED)] == [(PIECES, 1024)]
    assert fusion.schedule.main.tasks == PIECES
    assert "both use %x" in executable.plan.explain()
    assert any(d.fused and "both use" in d.reason for d in executable.plan.decisions)


def test_a_mean_waits_for_the_parts_of_its_sum() -> None:
    source, columns = tensor(4096, 512), tensor(512)
    text = HEAD.format(source, more="", results=f"{tensor(4096)}, {columns}")
    text += MAX.format(name="m", x="x", axes=[1], source=source, result=tensor(4096))
    text += SUM.format(name="s", x="x", axes=[0], source=source, result=columns)
    text += f"""
  %c = stablehlo.constant dense<0.000244140625> : {columns}
  %mean = stablehlo.multiply %s, %c : {columns}
  return %m, %mean : {tensor(4096)}, {columns}
}}"""
    executable = run(text, normal(3, 4096, 512))
    assert len(executable.plan.fusions) == 1


def test_column_sums_beside_a_result_of_the_same_rows() -> None:
    source, columns = tensor(2048, 640), tensor(640)
    text = HEAD.format(source, more=f", %d: {source}", results=f"{source}, {columns}, {columns}")
    text += f"\n  %y = stablehlo.multiply %x, %d : {source}"
    text += SUM.format(name="a", x="d", axes=[0], source=source, result=columns)
    text += SUM.format(name="b", x="y", axes=[0], source=source, result=columns)
    text += f"\n  return %y, %a, %b : {source}, {columns}, {columns}\n}}"
    run(text, normal(4, 2048, 640), normal(5, 2048, 640))


def test_two_results_of_the_same_arrays() -> None:
    source = tensor(512, 512)
    text = HEAD.format(source, more=f", %d: {source}", results=f"{source}, {source}")
    text += f"\n  %a = stablehlo.add %x, %d : {source}\n  %b = stablehlo.multiply %x, %d : {source}"
    executable = run(text + f"\n  return %a, %b : {source}, {source}\n}}", normal(6, 512, 512), normal(7, 512, 512))
    assert len(executable.plan.fusions) == 1


def test_a_fold_that_needs_another_ones_result_is_another_pass() -> None:
    source, columns = tensor(2048, 256), tensor(256)
    text = HEAD.format(source, more="", results=f"{columns}, {columns}")
    text += SUM.format(name="s", x="x", axes=[0], source=source, result=columns)
    text += f"""
  %w = stablehlo.broadcast_in_dim %s, dims = [1] : ({columns}) -> {source}
  %d = stablehlo.subtract %x, %w : {source}"""
    text += MAX.format(name="m", x="d", axes=[0], source=source, result=columns)
    run(text + f"\n  return %s, %m : {columns}, {columns}\n}}", normal(8, 2048, 256))


def test_parts_follow_from_the_shape_alone() -> None:
    for extent in (1, 31, 32, 33, 1000, 8192, 100003):
        for bytes_each in (4, 4096, 1 << 20):
            parts = parts_of(extent, bytes_each)
            assert parts.pieces <= PIECES
            assert parts.pieces * parts.size * parts.group >= extent > (parts.pieces - 1) * parts.size * parts.group



def test_a_tile_that_is_cut_off_adds_to_what_the_tiles_before_it_left() -> None:
    """64 tiles of two rows, the last one of one row, two tiles to a task: whole tiles were summed up from zero each."""
    source, rows, sums = "tensor<127x5500xi64>", "tensor<127xi64>", "tensor<5500xi64>"
    text = f"""func.func @main(%x: {source}) -> ({sums}, {rows}) {{
      %z = stablehlo.constant dense<0> : tensor<i64>
      %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : ({source}, tensor<i64>) -> {sums}
      %1 = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1] : ({source}, tensor<i64>) -> {rows}
      return %0, %1 : {sums}, {rows} }}"""
    (lowered,) = in_form(text, (2,))
    assert (lowered.phases[0].tasks, lowered.phases[0].group) == (32, 2)
    schedule = finished(lowered)
    x = np.arange(127 * 5500).reshape(127, 5500)
    small, large = sorted(outputs(schedule, {given_values(schedule)[0]: x}).values(), key=lambda a: a.size)
    assert np.array_equal(small, x.max(1)) and np.array_equal(large, x.sum(0))
    assert prove(schedule).holds


@pytest.mark.machine("avx512")
@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_sums_of_narrow_floats_are_rounded_once(element: str) -> None:
    """Parts are kept in the type that running results are."""
    text = program((2048, 96), [(SUM, (1,)), (SUM, (0,))]).replace("0xFF800000", "-1.0").replace("f32", element)
    x = np.random.default_rng(3).uniform(0, 0.25, (2048, 96)).astype(ELEMENT_TYPES[element].dtype)
    executable = codegen.compile(hlo.parse(text))
    assert len(executable.kernels) == 2 and "part: shared f32" in executable.kernels[0].source
    exact = x.astype(np.float64).sum(0)
    off = np.abs(executable(x)[1].astype(np.float64) - exact)
    half = np.exp2(np.floor(np.log2(exact))) * (2.0**-8 if element == "bf16" else 2.0**-11)
    assert (off <= half * 1.001).all()
    assert prove(executable.plan).holds


@pytest.mark.machine("avx512")
def test_a_body_of_its_own_in_parts() -> None:
    """a + b + a b of integers, which wrap around: shown to be a monoid by algebra, and put together by its own body."""
    text = """func.func @main(%x: tensor<2048x96xi32>) -> (tensor<2048xi32>, tensor<96xi32>) {
      %low = stablehlo.constant dense<-2147483648> : tensor<i32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
        : (tensor<2048x96xi32>, tensor<i32>) -> tensor<2048xi32>
      %1 = stablehlo.reduce(%x init: %zero) across dimensions = [0] : (tensor<2048x96xi32>, tensor<i32>) -> tensor<96xi32>
        reducer(%a: tensor<i32>, %b: tensor<i32>) {
          %s = stablehlo.add %a, %b : tensor<i32>
          %p = stablehlo.multiply %a, %b : tensor<i32>
          %t = stablehlo.add %s, %p : tensor<i32>
          stablehlo.return %t : tensor<i32>
        }
      return %0, %1 : tensor<2048xi32>, tensor<96xi32> }"""
    executable = run(text, np.random.default_rng(5).integers(-9, 9, (2048, 96), np.int32))
    (fusion,) = executable.plan.fusions
    assert len(fusion.schedule.buffers_in(Scope.SHARED)) == 1
    assert prove(executable.plan).holds
