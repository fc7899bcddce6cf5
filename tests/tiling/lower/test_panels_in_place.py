"""A right operand is read in place where its panels stay in the second-level cache, else put into panels, ahead or by tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import tiling
from tests.mutations.programs import in_form
from tiling.loops.ir import Contract, Scope, Turn

PRODUCT = """func.func @main(%a: tensor<512x{n}xf32>, %b: tensor<{n}x{n}xf32>) -> tensor<512x{n}xf32> {{
  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
       : (tensor<512x{n}xf32>, tensor<{n}x{n}xf32>) -> tensor<512x{n}xf32>
  return %c : tensor<512x{n}xf32>
}}"""


@pytest.mark.parametrize(("n", "l2_kib", "in_place"), [
    (512, 256, False), (512, 1024, False), (512, 2048, False), (256, 256, False), (256, 512, True), (384, 512, False),
])  # fmt: skip
def test_rows_half_a_page_apart_reach_few_sets(n: int, l2_kib: int, in_place: bool) -> None:
    """264 rows 2 KiB apart reach a thirty-second of the sets: half of a megabyte of cache keeps 16 KiB of them.

    What lies in more than 96 pages is packed for many rows, whatever the cache keeps: 132 of 512 x 512, 144 of 384 x 384.
    """
    machine = tiling.Machine(vector_bytes=32, vector_registers=16, l2_bytes=l2_kib << 10)
    (fusion,) = tiling.plan(hlo.parse(PRODUCT.format(n=n)), machine=machine).fusions
    (product,) = [s for s in fusion.schedule.main.steps if isinstance(s, Contract)]
    assert (product.right.buffer.scope is Scope.ARGUMENT) == in_place


@pytest.mark.parametrize(("columns", "depth"), [(32, 6272), (128, 3136)])
def test_panels_that_packing_does_not_keep_are_read_in_place(columns: int, depth: int) -> None:
    """Gradients of weights: 6,272 rows of 32 columns lie as a packed panel would, and no panel of 3,136 rows stays cached."""
    text = f"""func.func @main(%a: tensor<{depth}x64xf32>, %b: tensor<{depth}x{columns}xf32>) -> tensor<64x{columns}xf32> {{
  %c = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0]
       : (tensor<{depth}x64xf32>, tensor<{depth}x{columns}xf32>) -> tensor<64x{columns}xf32>
  return %c : tensor<64x{columns}xf32>
}}"""
    machine = tiling.Machine(cores=1, vector_bytes=64, vector_registers=32, l2_bytes=1 << 20)
    (fusion,) = tiling.plan(hlo.parse(text), machine=machine).fusions
    scopes = [s.right.buffer.scope for s in fusion.schedule.main.steps if isinstance(s, Contract)]
    assert set(scopes) == {Scope.ARGUMENT}


@pytest.mark.parametrize(("rows", "element", "in_place"), [(49, "f32", True), (392, "f32", False), (196, "bf16", True)])
def test_large_operands_are_packed_for_many_rows(rows: int, element: str, in_place: bool) -> None:
    """Packing 9 MiB of weights for 49 pixels took a fourth of the time; elements of 16 bits are widened, which takes longer."""
    x, w, r = (f"tensor<{a}x{b}x{element}>" for a, b in ((rows, 4608), (4608, 512), (rows, 512)))
    text = f"""func.func @main(%a: {x}, %b: {w}) -> {r} {{
  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({x}, {w}) -> {r}
  return %c : {r}
}}"""
    machine = tiling.Machine(cores=1, vector_bytes=64, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20)
    (fusion,) = tiling.plan(hlo.parse(text), machine=machine).fusions
    (product,) = [s for s in fusion.schedule.phases[-1].steps if isinstance(s, Contract)]
    assert (product.right.buffer.scope is Scope.ARGUMENT) == in_place


def test_rows_that_follow_each_other_are_a_panel_already() -> None:
    """3,136 rows of 64 columns were copied to where they lie in the same order: 1.54 ms became 2.29."""
    x, w, r = "tensor<1x28x28x64xf32>", "tensor<7x7x64x64xf32>", "tensor<1x28x28x64xf32>"
    text = f"""func.func @main(%x: {x}, %w: {w}) -> {r} {{
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{pad = [[3, 3], [3, 3]]}}
       {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {r}
  return %y : {r}
}}"""
    machine = tiling.Machine(vector_bytes=64, vector_registers=32, l1_bytes=32 << 10, l2_bytes=1 << 20)
    (fusion,) = tiling.plan(hlo.parse(text), machine=machine).fusions
    (product,) = [s for s in fusion.schedule.phases[-1].steps if isinstance(s, Contract)]
    assert product.right.buffer.scope is Scope.ARGUMENT


WIDENED = [("bf16", 256, "f32"), ("bf16", 16, "bf16"), ("f16", 256, "f16"), ("f16", 1024, "f32")]


@pytest.mark.parametrize(("element", "rows", "kept"), WIDENED)
def test_what_many_rows_meet_is_widened_once(element: str, rows: int, kept: str) -> None:
    """Each block of rows widened its columns again: two instructions a vector beside six products (256 rows: .87 of it).

    An f16 takes one: 1,024 rows were 11.6 ms and are 10.6, but 512 columns that are turned as well 1.39 and 1.47.
    """
    x, w, r = f"tensor<{rows}x256x{element}>", f"tensor<256x256x{element}>", f"tensor<{rows}x256xf32>"
    text = f"""func.func @main(%a: {x}, %b: {w}) -> {r} {{
  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({x}, {w}) -> {r}
  return %c : {r}
}}"""
    machine = tiling.Machine(vector_bytes=64, vector_registers=32, l2_bytes=1 << 20)
    (fusion,) = tiling.plan(hlo.parse(text), machine=machine).fusions
    (product,) = [s for s in fusion.schedule.phases[-1].steps if isinstance(s, Contract)]
    assert str(product.right.buffer.element) == kept and tiling.prove(fusion).holds


def test_a_panel_that_a_task_packs_alone_is_turned_in_registers() -> None:
    """Keys in their heads' order: each element went to a row of its own (1.56 ms became 2.27)."""
    x, w, r = "tensor<2x8x256x64xf32>", "tensor<2x256x8x64xf32>", "tensor<2x8x256x256xf32>"
    module = hlo.parse(f"""func.func @main(%a: {x}, %b: {w}) -> {r} {{
  %c = stablehlo.dot_general %a, %b, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [3] : ({x}, {w}) -> {r}
  return %c : {r}
}}""")
    machine = tiling.Machine(vector_bytes=64, vector_registers=32, l2_bytes=1 << 20)
    (pin,) = tiling.plan(module, machine=machine).pins()
    (fusion,) = tiling.plan(module, machine=machine, pins=[replace(pin, tile_sizes=(1, 1, 256, 64))]).fusions
    turn, product = fusion.schedule.main.steps
    assert isinstance(turn, Turn) and isinstance(product, Contract) and product.right.buffer.scope is Scope.THREAD
    assert tiling.prove(fusion).holds


SCALED = """func.func @main(%x: tensor<{m}x768xf32>, %w: tensor<768x{n}xi8>, %s: tensor<{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %f = stablehlo.convert %w : (tensor<768x{n}xi8>) -> tensor<768x{n}xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<{n}xf32>) -> tensor<768x{n}xf32>
  %d = stablehlo.multiply %f, %b : tensor<768x{n}xf32>
  %r = stablehlo.dot_general %x, %d, contracting_dims = [1] x [0]
       : (tensor<{m}x768xf32>, tensor<768x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %r : tensor<{m}x{n}xf32>
}}"""
GIVEN = """func.func @main(%x: tensor<{m}x768xf32>, %w: tensor<768x{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %r = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<{m}x768xf32>, tensor<768x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %r : tensor<{m}x{n}xf32>
}}"""


@pytest.mark.parametrize(
    ("text", "rows", "ahead"), [(SCALED, 256, False), (GIVEN, 256, False), (GIVEN, 96, True)]
)
def test_a_task_with_all_rows_packs_its_columns_itself(text: str, rows: int, ahead: bool) -> None:
    """No whole copy of the weights is made: but of few rows' weights, which a later call may find packed."""
    machine = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20)
    (fusion,) = tiling.plan(hlo.parse(text.format(m=rows, n=2048)), machine=machine).fusions
    (product,) = [s for s in fusion.schedule.main.steps if isinstance(s, Contract)]
    assert (product.right.buffer.scope is Scope.SHARED) == ahead
    if not ahead:
        assert product.pack and product.right.buffer.size_bytes <= machine.l2_bytes // 2
        assert not fusion.schedule.shared_scratch_bytes
    assert not tiling.prove(fusion).undecided and not tiling.prove(fusion).refuted


def test_the_bits_do_not_depend_on_who_packs() -> None:
    module = hlo.parse(SCALED.format(m=40, n=512))
    machine = tiling.Machine(cores=2, vector_bytes=32, vector_registers=16, l2_bytes=1 << 20)
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((40, 768)).astype(np.float32), rng.integers(-128, 128, (768, 512)).astype(np.int8)
    made = []
    for sizes in ((40, 128), (8, 512)):
        plan = tiling.plan(module, machine=machine, pins=[tiling.Pin((3,), sizes)])
        (fusion,) = plan.fusions
        (found,) = codegen.compile(plan)(x, w, np.ones(512, np.float32))
        made.append((fusion.schedule.shared_scratch_bytes == 0, found.tobytes()))
    assert [own for own, _ in made] == [True, False]
    assert made[0][1] == made[1][1]


AVERAGE = """func.func @main(%x: tensor<1x7x7x320xf32>, %w: tensor<1280x320x1x1xf32>) -> tensor<1x1280xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x7x7x320xf32>, tensor<1280x320x1x1xf32>) -> tensor<1x7x7x1280xf32>
  %r = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [1, 2]
       : (tensor<1x7x7x1280xf32>, tensor<f32>) -> tensor<1x1280xf32>
  return %r : tensor<1x1280xf32>
}"""


@pytest.mark.parametrize(("tile", "width"), [(128, 64), (160, 32), (80, 16)])
def test_a_task_that_begins_inside_of_a_panel_is_a_product_too(tile: int, width: int) -> None:
    """Channels of an average are cut as the average is: panels become narrower. Plain loops, which were taken before, read the
    weights again for each pixel."""
    machine = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32)
    (made,) = in_form(AVERAGE, (1, tile), machine=machine)
    (product,) = [s for s in made.main.steps if isinstance(s, Contract)]
    assert (product.columns, product.right.buffer.scope) == (width, Scope.SHARED)


def test_an_image_of_few_rows_is_one_task_for_its_columns() -> None:
    """Row by row 9 MiB of weights came seven times from beyond the caches; a task's rows count alike however they are cut."""
    text = """func.func @main(%x: tensor<1x7x7x512xf32>, %w: tensor<512x512x3x3xf32>) -> tensor<1x7x7x512xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x7x7x512xf32>, tensor<512x512x3x3xf32>) -> tensor<1x7x7x512xf32>
  return %y : tensor<1x7x7x512xf32>
}"""
    machine = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20)
    (fusion,) = tiling.plan(hlo.parse(text), machine=machine).fusions
    assert fusion.tile_sizes[:3] == (1, 7, 7) and fusion.tile_sizes[3] < 512
