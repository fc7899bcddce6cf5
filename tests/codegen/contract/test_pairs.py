"""Products of bf16 by tiles and dot instructions: as exact as by vectors, also where denormal numbers count; who takes them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.launcher.launch import Plan, Step
from codegen.lib import NAMESPACE
from codegen.native.jit import compile_kernel, kernel_assembly
from codegen.native.signature import KernelSignature, Param
from codegen.supports import supports
from codegen.target import Target, default_target
from tests.codegen.contract.test_contractions import check, convolution, dot, tensor
from tests.codegen.contract.test_tiles import ON_X86
from tests.machines import MACHINES
from tiling.loops.ir import Contract

HAS_TILES = pytest.mark.skipif("amx-bf16" not in default_target().tile_features, reason="this CPU has no tiles of bf16")
BF16 = ml_dtypes.bfloat16
SIGNATURE = KernelSignature(tuple(Param(n, t, align=1) for n, t in (("a", "bfloat16"), ("b", "bfloat16"), ("c", "float32"))))


def source(m: int, n: int, k: int, panel: int = 32) -> str:
    return f"""
def kernel(begin, end, a, b, c):
    for t in range(begin, end):
        gemm_pairs({m}, {n}, {k}, a, 0, {k}, 1, b, 0, {k * panel}, c, 0, {n}, {panel}, 0, 0)
"""


def product(left: np.ndarray, right: np.ndarray, panel: int = 32) -> np.ndarray:
    """By the compiled kernel; panels have NaN where there is no column."""
    (m, k), n = left.shape, right.shape[1]
    packed = np.full((-(-n // panel), k // 2, panel, 2), np.nan, BF16)
    for j in range(n):
        packed[j // panel, :, j % panel, :] = right[:, j].reshape(-1, 2)
    out = np.full(m * n + 64, 5, np.float32)
    addresses = np.array([x.ctypes.data for x in (left, packed, out)], np.int64)
    Plan([Step(compile_kernel(source(m, n, k, panel), SIGNATURE), 1, (0, 1, 2))]).run(addresses, 1)
    assert (out[m * n :] == 5).all()
    own = np.zeros(m * n, np.float32)
    NAMESPACE["gemm_pairs"](m, n, k, left.reshape(-1), 0, k, 1, packed.reshape(-1), 0, k * panel, own, 0, n, panel, 0, 0)
    exact = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(own.reshape(m, n), exact, rtol=0, atol=np.abs(exact).max() * 1e-5)
    return out[: m * n].reshape(m, n)


def windows(
    x: np.ndarray, right: np.ndarray, taps: tuple[int, int], stride: int, panel: int = 32
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """An image [height, width, channels] by a window, all of its rows in one call; and the rows of products that it is."""
    (height, width, channels), n = x.shape, right.shape[1]
    high, wide = ((size - tap) // stride + 1 for size, tap in zip((height, width), taps, strict=True))
    rows = np.stack([x[i * stride : i * stride + taps[0], j * stride : j * stride + taps[1]].reshape(-1)
                     for i in range(high) for j in range(wide)])  # fmt: skip
    packed = np.full((-(-n // panel), rows.shape[1] // 2, panel, 2), np.nan, BF16)
    for j in range(n):
        packed[j // panel, :, j % panel, :] = right[:, j].reshape(-1, 2)
    out, row, k = np.full(len(rows) * n + 64, 5, np.float32), width * channels, taps[1] * channels
    given = (f"{wide * high}, {n}, {k}, a, 0, {stride * channels}, 1, b, 0, {rows.shape[1] * panel}, c, 0, {n}, {panel}, "
             f"{wide}, {stride * row}, {taps[0]}, {row}, {k * panel}")  # fmt: skip
    made = f"def kernel(begin, end, a, b, c):\n    for t in range(begin, end):\n        gemm_pairs({given})\n"
    addresses = np.array([v.ctypes.data for v in (x, packed, out)], np.int64)
    Plan([Step(compile_kernel(made, SIGNATURE), 1, (0, 1, 2))]).run(addresses, 1)
    assert (out[rows.shape[0] * n :] == 5).all()
    own, numbers = np.zeros(len(rows) * n, np.float32), [int(v) for v in given.split(", ") if v not in "abc"]
    at = [*numbers[:3], x.reshape(-1), *numbers[3:6], packed.reshape(-1), *numbers[6:8], own, *numbers[8:]]
    NAMESPACE["gemm_pairs"](*at)
    np.testing.assert_allclose(own.reshape(len(rows), n), rows.astype(np.float64) @ right.astype(np.float64), atol=1e-2)
    return out[: len(rows) * n].reshape(len(rows), n), rows


def close(found: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Each sum as exact as sums in f32 are, of numbers that are taken as they are."""
    wide = left.astype(np.float64), right.astype(np.float64)
    error = np.abs(found - wide[0] @ wide[1])
    bound = left.shape[1] * 2.0**-24 * (np.abs(wide[0]) @ np.abs(wide[1])) + 2.0**-149
    assert (error <= bound).all(), (error / bound).max()


@pytest.mark.parametrize("panel", [16, 32])
def test_rests_of_rows_columns_and_depth(panel: int) -> None:
    rng = np.random.default_rng(panel)
    sizes = (3, 96, 64), (16, 16, 64), (33, 40, 66), (70, 45, 1030), (40, 33, 2048), (65, 17, 2500), (33, 900, 1030)
    for m, n, k in sizes:
        left, right = (rng.standard_normal(shape).astype(BF16) for shape in ((m, k), (k, n)))
        close(product(left, right, panel), left, right)


@pytest.mark.parametrize(("channels", "taps", "stride"), [(64, (3, 3), 1), (6, (3, 5), 2), (20, (2, 1), 1), (18, (5, 1), 3)])
def test_windows_of_an_image_are_products_of_its_rows(channels: int, taps: tuple[int, int], stride: int) -> None:
    """Levels whose runs fill no lines are copied one after the other; bands of rows are those of an image."""
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((13, 17, channels)).astype(BF16)
    for n in (40, 64):
        right = rng.standard_normal((taps[0] * taps[1] * channels, n)).astype(BF16)
        found, rows = windows(x, right, taps, stride)
        close(found, rows, right)
        right[:, 7] = 0  # of this column only the denormal number is left, in the window that begins at it
        x[3, 5, 2], right[2, 7] = 1e-39, 1e37
        found, rows = windows(x, right, taps, stride)
        close(found, rows, right)
        x[3, 5, 2] = 1


@pytest.mark.parametrize(
    ("small", "large"), [(1e-39, 1e30), (1e-39, 1.0), (1e-20, 1e-20), (1e-30, 1e-3), (2.0**-54, 2.0**-54), (2.0**-54, 2.0**-55)]
)
def test_denormal_factors_products_and_sums_count(small: float, large: float) -> None:
    """Tiles take denormal factors for zero, and give zero for denormal sums: 64 products of 1e-39 and 1e30 are 6.4e-8."""
    rng = np.random.default_rng(0)
    left, right = ((rng.standard_normal(shape) * size).astype(BF16) for shape, size in (((48, 64), small), ((64, 40), large)))
    close(product(left, right), left, right)


def test_one_small_number_in_one_panel_or_row_counts() -> None:
    rng = np.random.default_rng(0)
    for at in (0, 40, 95):
        left, right = (rng.standard_normal(shape).astype(BF16) for shape in ((100, 64), (64, 100)))
        left[:, 3] = 0
        left[at, :] = 0
        left[at, 3] = 1e-39
        right[3, :] = 1e35
        close(product(left, right), left, right)
        close(product(right.T.copy(), left.T.copy()), right.T, left.T)


def test_infinities_and_nan_go_through() -> None:
    left, right = np.ones((40, 64), BF16), np.ones((64, 40), BF16)
    left[3, 5], left[4, 6], right[7, 9] = np.inf, np.nan, -np.inf
    found = product(left, right)
    with np.errstate(invalid="ignore"):
        expected = left.astype(np.float32) @ right.astype(np.float32)
    np.testing.assert_array_equal(found, expected)


@ON_X86
def test_what_is_emitted() -> None:
    for target, name in (("amx", "tdpbf16ps"), ("avx512bf16", "vdpbf16ps"), ("avx512vnni", ""), ("avx2", "")):
        text = kernel_assembly(source(64, 64, 128), SIGNATURE, Target.named(target))
        found = {x for x in ("tdpbf16ps", "vdpbf16ps") if f"\t{x}" in text}
        assert found == {name} - {""} and "vfmadd231ps" in text, target


@ON_X86
def test_whose_dot_instruction_is_as_fast_as_a_multiply_add() -> None:
    features = "+avx2,+fma,+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16"
    found = [Target.from_features("x86_64-unknown-linux-gnu", cpu, features).pair_products for cpu in ("znver4", "cooperlake")]
    assert found == [2, 1] and Target.named("avx2").pair_products == 1
    assert replace(MACHINES["avx512"], pair_products=2).products_per_lane(2) == 2 and MACHINES["avx512"].pairs_per_lane == 1


WITH_TILES = replace(MACHINES["avx512"], tile_products=1024, byte_products=4)


WITH_DOTS = replace(MACHINES["avx512"], pair_products=2, byte_products=4)


def _routines(text: str, machine: tiling.Machine) -> list[str]:
    made = tiling.plan(hlo.parse(text), machine=machine, supports=supports)
    assert all(tiling.prove(f).holds for f in made.fusions)
    return [s.kernel.routine for f in made.fusions for p in f.schedule.phases for s in p.all_steps if isinstance(s, Contract)]


@pytest.mark.parametrize("right", ["kn", "nk"])
@pytest.mark.parametrize("out", ["bf16", "f32"])
def test_a_plan_takes_them_where_there_are_tiles(out: str, right: str) -> None:
    text = dot(128, 96, 130, ("bf16", "bf16", out), "mk", right)
    assert _routines(text, WITH_TILES) == ["gemm_pairs"]
    (fusion,) = tiling.plan(hlo.parse(text), machine=WITH_TILES, supports=supports).fusions
    assert any("bf16 by tiles" in note for note in fusion.schedule.notes)
    assert "gemm_pairs" not in _routines(text, MACHINES["avx512"])
    assert "gemm_pairs" not in _routines(dot(128, 96, 130, ("f16", "f16", "f16")), WITH_TILES), "tiles have no f16 here"


@pytest.mark.parametrize("machine", [WITH_TILES, WITH_DOTS])
@pytest.mark.parametrize(("rows", "taken"), [(4, False), (15, False), (64, True)])
def test_few_rows_do_not_make_up_for_a_copy(rows: int, taken: bool, machine: tiling.Machine) -> None:
    """4 x 4096 x 4096 by tiles took 5.2 ms, 1.4 where the right factor is read as it lies."""
    routines = _routines(dot(rows, 512, 512, ("bf16", "bf16", "f32")), machine)
    assert ("gemm_pairs" in routines) == taken


def image(channels: int, high: int = 7, features: int = 64, taps: int = 3) -> str:
    shapes = (1, high, high, channels), (taps, taps, channels, features), (1, high, high, features)
    x, w, out = (tensor(shape, "bf16") for shape in shapes)
    pads = ", ".join([f"[{taps // 2}, {taps // 2}]"] * 2)
    return f"""func.func @main(%x: {x}, %w: {w}) -> {out} {{
      %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{stride = [1, 1],
        pad = [{pads}]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {out}
      return %r : {out} }}"""


def test_windows_are_for_dot_instructions() -> None:
    """All rows of an image of 7 x 7 are in one call, over one copy of the weights; pairs are two channels of one place."""
    assert _routines(image(64), WITH_DOTS) == ["gemm_pairs"]
    assert _routines(image(64), WITH_TILES) == _routines(image(63), WITH_DOTS) == ["gemm_block"]
    made = tiling.plan(hlo.parse(image(512, features=512)), machine=WITH_DOTS, supports=supports)
    assert all(any("bf16 by the dot instruction" in note for note in f.schedule.notes) for f in made.fusions)
    (kernel,) = [k for k in codegen.compile(made).kernels if "gemm_pairs(" in k.source]
    assert "gemm_pairs(49, " in kernel.source


def gradient(images: int, size: int, channels: int, features: int) -> str:
    """Of a 3 x 3 convolution by its weights: sums over the pixels of all images."""
    shapes = (images, size, size, channels), (images, size, size, features), (3, 3, channels, features)
    x, g, w = (tensor(shape, "bf16") for shape in shapes)
    return f"""func.func @main(%x: {x}, %g: {g}) -> {w} {{
      %r = stablehlo.convolution(%x, %g) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {{stride = [1, 1],
        pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {g}) -> {w}
      return %r : {w} }}"""


@pytest.mark.parametrize(
    ("images", "size", "channels", "features"), [(2, 8, 24, 40), (4, 40, 64, 64), (3, 20, 40, 72), (5, 7, 64, 64)]
)
def test_gradients_by_weights_are_products_of_pairs_of_pixels(images: int, size: int, channels: int, features: int) -> None:
    """Their rows lie across k: two pixels' are put together on the way, also where one row of them ends and the next begins."""
    module = hlo.parse(gradient(images, size, channels, features))
    made = tiling.plan(module, machine=WITH_DOTS, supports=supports)
    assert all(tiling.prove(f).holds for f in made.fusions)
    steps = [s for f in made.fusions for p in f.schedule.phases for s in p.all_steps if isinstance(s, Contract)]
    assert {s.kernel.routine for s in steps} == {"gemm_pairs"} and all(s.left.row_stride == 1 for s in steps)
    assert not size % 2 or not any(s.levels for s in steps)
    arrays = [np.random.default_rng(2).standard_normal(v.shape).astype(BF16) for v in module.entry.arguments]
    (found,), (expected,) = codegen.compile(made)(*arrays), interp.evaluate(module, *arrays)
    wide = expected.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), wide, rtol=0, atol=np.abs(wide).max() * 8e-3)


@pytest.mark.parametrize(("m", "n", "k"), [(40, 70, 96), (17, 33, 2500), (100, 64, 64), (5, 16, 30)])
def test_rows_that_lie_across_k(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m)
    left, right = rng.standard_normal((k, m)).astype(BF16), rng.standard_normal((k, n)).astype(BF16)
    for small in (False, True):
        if small:
            right[:, 5] = 0
            left[3, 2], right[3, 5] = 1e-39, 1e37
        packed = np.full((-(-n // 32), k // 2, 32, 2), np.nan, BF16)
        for j in range(n):
            packed[j // 32, :, j % 32, :] = right[:, j].reshape(-1, 2)
        out = np.full(m * n + 64, 5, np.float32)
        call = f"gemm_pairs({m}, {n}, {k}, a, 0, 1, {m}, b, 0, {k * 32}, c, 0, {n}, 32, 0, 0)"
        kernel = compile_kernel(f"def kernel(begin, end, a, b, c):\n    for t in range(begin, end):\n        {call}\n", SIGNATURE)
        Plan([Step(kernel, 1, (0, 1, 2))]).run(np.array([x.ctypes.data for x in (left, packed, out)], np.int64), 1)
        assert (out[m * n :] == 5).all()
        close(out[: m * n].reshape(m, n), left.T, right)


def test_a_proof_refuses_a_right_factor_with_gaps() -> None:
    """The routine walks through the right factor without being told where its levels begin."""
    (fusion,) = tiling.plan(hlo.parse(image(64, 28)), machine=WITH_DOTS, supports=supports).fusions
    schedule = fusion.schedule
    at = next(k for k, p in enumerate(schedule.phases) if any(isinstance(s, Contract) for s in p.steps))
    phase = schedule.phases[at]
    (step,) = (s for s in phase.steps if isinstance(s, Contract))
    assert step.levels and tiling.prove(schedule).holds
    apart = replace(step, levels=tuple((n, left, right + 2 * step.columns) for n, left, right in step.levels))
    wrong = replace(phase, steps=tuple(apart if s is step else s for s in phase.steps))
    assert tiling.prove(replace(schedule, phases=(*schedule.phases[:at], wrong, *schedule.phases[at + 1 :]))).refuted


def _run_on(text: str, machine: tiling.Machine, arrays: Sequence[np.ndarray]) -> np.ndarray:
    return codegen.compile(tiling.plan(hlo.parse(text), machine=machine, supports=supports))(*arrays)[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("machine", [WITH_TILES, WITH_DOTS])
def test_a_plan_for_tiles_runs_everywhere(seed: int, machine: tiling.Machine) -> None:
    """Whatever the CPU, the sums are right: of an odd depth, in batches, transposed, with an epilogue that is fused."""
    chosen, rng = random.Random(f"pairs {seed}"), np.random.default_rng(seed)
    for _ in range(3):
        m, n, k = (chosen.randint(20, 150) for _ in range(3))
        text = dot(m, n, k, ("bf16", "bf16", chosen.choice(("bf16", "f32"))), chosen.choice(("mk", "km")),
                   chosen.choice(("kn", "nk")), chosen.choice((0, 3)))  # fmt: skip
        arrays = [rng.standard_normal(v.shape).astype(BF16) for v in hlo.parse(text).entry.arguments]
        found = _run_on(text, machine, arrays).astype(np.float64)
        expected = _run_on(text, MACHINES["avx512"], arrays).astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=0, atol=np.abs(expected).max() * 8e-3)


@pytest.mark.parametrize("seed", [*range(12), 131, 234, 247])
def test_convolutions_by_dot_instructions_run_everywhere(seed: int) -> None:
    """Any window, against a plan without them; tiles of windows whose channels are not innermost go another way.

    The last ones sum over an odd number of steps, of which a tile has no pair to fill up: reads beyond it were refuted.
    """
    module = hlo.parse(convolution(seed, ("bf16",) * 3))
    made = tiling.plan(module, machine=WITH_DOTS, supports=supports)
    assert not any(tiling.prove(f).refuted for f in made.fusions)
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(v.shape).astype(BF16) for v in module.entry.arguments]
    (found,), (expected,) = codegen.compile(made)(*arrays), interp.evaluate(module, *arrays)
    wide = expected.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), wide, rtol=0, atol=np.abs(wide).max() * 1.6e-2)


@HAS_TILES
@pytest.mark.parametrize("seed", range(2))
def test_programs_agree_with_the_evaluator(seed: int) -> None:
    chosen = random.Random(f"pairs of programs {seed}")
    for out in ("bf16", "f32"):
        m, n, k = (chosen.randint(1, 200) for _ in range(3))
        check(dot(m, n, k, ("bf16", "bf16", out), chosen.choice(("mk", "km")), chosen.choice(("kn", "nk"))), seed)
    check(convolution(seed, ("bf16",) * 3), seed)


def attention(length: int, keys: int, window: int) -> str:
    """Two heads of causal attention, of `window` keys; weights in bf16, scores in f32."""
    shapes = f"{length}x32xbf16", f"{keys}x32xbf16", f"{length}x{keys}xf32", f"{length}xf32"
    q, k, s, p = (f"tensor<2x{shape}>" for shape in shapes)
    mask, half = f"tensor<2x{length}x{keys}xi1>", s.replace("f32", "bf16")
    ints = s.replace("f32", "i32")
    return f"""func.func @main(%q: {q}, %k: {k}, %v: {k}) -> {q} {{
      %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({q}, {k}) -> {s}
      %i = stablehlo.iota dim = 1 : {ints}
      %j = stablehlo.iota dim = 2 : {ints}
      %d = stablehlo.subtract %i, %j : {ints}
      %z = stablehlo.constant dense<0> : {ints}
      %w = stablehlo.constant dense<{window}> : {ints}
      %m0 = stablehlo.compare GE, %d, %z : ({ints}, {ints}) -> {mask}
      %m1 = stablehlo.compare LT, %d, %w : ({ints}, {ints}) -> {mask}
      %m = stablehlo.and %m0, %m1 : {mask}
      %low = stablehlo.constant dense<-1.0e9> : {s}
      %t = stablehlo.select %m, %s, %low : {mask}, {s}
      %none = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %max = stablehlo.reduce(%t init: %none) applies stablehlo.maximum across dimensions = [2] : ({s}, tensor<f32>) -> {p}
      %maxs = stablehlo.broadcast_in_dim %max, dims = [0, 1] : ({p}) -> {s}
      %u = stablehlo.subtract %t, %maxs : {s}
      %e = stablehlo.exponential %u : {s}
      %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2] : ({s}, tensor<f32>) -> {p}
      %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : ({p}) -> {s}
      %n = stablehlo.divide %e, %sums : {s}
      %h = stablehlo.convert %n : ({s}) -> {half}
      %o = stablehlo.dot_general %h, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({half}, {k}) -> {q}
      return %o : {q} }}"""


@pytest.mark.parametrize(("length", "keys", "window"), [(512, 512, 512), (384, 384, 70), (300, 400, 64)])
def test_masks_bound_products_by_dot_instructions(length: int, keys: int, window: int) -> None:
    """Ends of columns are those of panels, ends of the depth those of pairs."""
    module = hlo.parse(attention(length, keys, window))
    made = tiling.plan(module, machine=WITH_DOTS, supports=supports)
    assert all(tiling.prove(f).holds for f in made.fusions)
    steps = [s for f in made.fusions for p in f.schedule.phases for s in p.all_steps if isinstance(s, Contract)]
    assert {s.kernel.routine for s in steps} == {"gemm_pairs"} and any(s.depth_upper is not None for s in steps)
    arrays = [np.random.default_rng(1).standard_normal(v.shape).astype(BF16) for v in module.entry.arguments]
    (found,), (expected,) = codegen.compile(made)(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=2e-2)
