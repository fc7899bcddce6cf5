"""Masks as loop bounds: the same bits as without them, the evaluator's NaNs and infinities, and proofs for both flags."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tests.pairs import fast_cover
from tests.tiling.lower.attention_programs import attention, bits, inputs
from tiling.elements.ranges import greatest_of
from tiling.loops.ir import Contract, Nest
from tiling.lower.fusion import Lowering
from tiling.lower.masks import MOST_POWER, find_limits
from tiling.lower.neutral import Analysis, Reading, inputs_of
from tiling.lower.placing import FusionRequest
from tiling.passing import without
from tiling.planning import forms as choose

MACHINE = tiling.Machine(vector_bytes=64, vector_registers=32)


@pytest.fixture(autouse=True)
def small_programs_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cost model finds too small to gain from masks is bounded here all the same."""
    monkeypatch.setattr(choose, "masks_pay", lambda made, plain: True)
    monkeypatch.setenv("TILEWRIGHT_SKIP", "online_form")  # its rounding differs


def spoiled(n: int, m: int) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Inputs that no interval allows for, at places that masks cover and at places that they do not."""
    for name, value in (("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf), ("1e8", 1e8), ("3e38", 3e38), ("1e-42", 1e-42)):
        for which, label in enumerate("qkv"):
            for row in (0, m // 2, m - 1):
                arrays = inputs(n, m)
                arrays[which][1, min(row, arrays[which].shape[1] - 1), 3] = value
                yield f"{name} in {label}[{row}]", arrays
    for factor in (1e3, 1e8, 1e30):
        yield f"all times {factor}", [a * np.float32(factor) for a in inputs(n, m)]


def planned(module: hlo.Module, rows: int = 32) -> tiling.Plan:
    """The program in one kernel with tiles of some rows, so that bounds differ between tiles."""
    plan = tiling.plan(module, machine=MACHINE, supports=codegen.supports, budget_seconds=0.0)  # for the ops
    ops = tuple(sorted({k for pin in plan.pins() for k in pin.ops}))
    sizes = (1, rows, *plan.fusions[-1].stages[-1].values[0].shape[2:])
    return tiling.plan(module, machine=MACHINE, supports=codegen.supports, pins=[tiling.Pin(ops, sizes)])


def compiled(module: hlo.Module) -> codegen.Executable:
    return codegen.compile(planned(module))


def without_masks(module: hlo.Module) -> codegen.Executable:
    with without("bound_by_masks"):
        return compiled(module)


def flags(plan: tiling.Plan) -> int:
    return sum(len(p.flags) for f in plan.fusions for p in f.schedule.phases)


CASES = [
    ("causal", "additive", "-1.0e9", 128, 128, "f32"),
    ("causal", "select", "0xFF800000", 128, 128, "f32"),
    ("causal", "select", "-3.40282347E+38", 100, 100, "f32"),
    ("causal", "additive", "0xFF800000", 96, 96, "f32"),
    ("causal", "select", "-1.0e9", 128, 128, "f64"),
    ("anti", "additive", "-1.0e9", 128, 128, "f32"),
    ("window", "additive", "-1.0e9", 128, 128, "f32"),
    ("window", "select", "0xFF800000", 160, 160, "f32"),
    ("padding", "select", "-1.0e9", 64, 150, "f32"),
    ("offset", "additive", "-1.0e9", 128, 160, "f32"),
]


@pytest.mark.parametrize(("kind", "form", "fill", "n", "m", "dtype"), fast_cover(CASES, 1, lambda c: (c[0], c[1:3], c[5])))
def test_left_out_and_the_same_bits(
    kind: str, form: str, fill: str, n: int, m: int, dtype: str
) -> None:
    module = hlo.parse(attention(kind, form, fill, n, m, dtype=dtype))
    exe, full = compiled(module), without_masks(module)
    assert flags(exe.plan) == 1, exe.plan.explain()
    assert flags(full.plan) == 0
    contracts = [s for f in exe.plan.fusions for s in f.schedule.phases[-1].steps if isinstance(s, Contract)]
    assert any(c.depth_upper is not None for c in contracts)
    assert any(isinstance(s, Nest) and s.skip is not None for s in exe.plan.fusions[-1].schedule.phases[-1].steps)
    arrays = inputs(n, m, dtype=dtype)
    (found,), (expected,) = exe(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(bits(found), bits(full(*arrays)[0]))
    proof = tiling.prove(exe.plan)
    assert proof.holds, proof


@pytest.mark.parametrize(("kind", "form", "fill"), fast_cover([CASES[k][:3] for k in (0, 1, 6, 8)], strength=1))
def test_what_no_interval_allows_for(kind: str, form: str, fill: str) -> None:
    n = m = 96
    module = hlo.parse(attention(kind, form, fill, n, m))
    exe, full = compiled(module), without_masks(module)
    assert flags(exe.plan) == 1
    for what, arrays in spoiled(n, m):
        with np.errstate(all="ignore"):
            (found,), (plain,), (expected,) = exe(*arrays), full(*arrays), interp.evaluate(module, *arrays)
        np.testing.assert_array_equal(bits(found), bits(plain), err_msg=what)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected), err_msg=what)
        np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected), err_msg=what)


def test_rows_that_see_nothing_are_computed_in_full() -> None:
    """With more queries than keys the first rows are masked whole: the mean of v where -1e9 is added, NaN where it is -inf."""
    n, m = 160, 64
    for form, fill in (("additive", "-1.0e9"), ("select", "0xFF800000")):
        module = hlo.parse(attention("offset", form, fill, n, m))
        exe, full = compiled(module), without_masks(module)
        arrays = inputs(n, m)
        with np.errstate(all="ignore"):
            (found,), (plain,), (expected,) = exe(*arrays), full(*arrays), interp.evaluate(module, *arrays)
        np.testing.assert_array_equal(bits(found), bits(plain))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert np.isnan(expected[:, 0]).all() == (form == "select")


def test_small_programs_are_not_worth_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    plan = tiling.plan(hlo.parse(attention("causal", "additive", "-1.0e9", 16, 16)), machine=MACHINE, supports=codegen.supports)
    assert flags(plan) == 0


def test_padding_that_bounds_nothing_asks_for_no_pass() -> None:
    """A convolution's zeros are conditions, too; where they bound no loop the inputs are not looked at."""
    module = hlo.parse("""func.func @main(%x: tensor<1x20x20x32xf32>, %w: tensor<3x3x1x32xf32>) -> tensor<1x20x20x32xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 32 : i64}
        : (tensor<1x20x20x32xf32>, tensor<3x3x1x32xf32>) -> tensor<1x20x20x32xf32>
      return %0 : tensor<1x20x20x32xf32> }""")
    assert flags(tiling.plan(module, machine=MACHINE, supports=codegen.supports)) == 0


def test_a_mild_mask_leaves_nothing_out() -> None:
    """What is 5 below the others still counts: exp(-5) is no zero."""
    plan = planned(hlo.parse(attention("causal", "additive", "-5.0", 128, 128)))
    assert flags(plan) == 0


def test_limits_follow_from_the_mask() -> None:
    """16 products of a and b, a quarter of them: 4 a b stays below half of the mask's 1e9; -inf only asks for no overflow."""
    found = {}
    for form, fill in (("additive", "-1.0e9"), ("select", "0xFF800000")):
        plan = planned(hlo.parse(attention("causal", form, fill, 128, 128)))
        (flag,) = plan.fusions[-1].schedule.phases[-1].flags
        found[form] = {b.name: limit for b, limit in flag.limits}
    assert found["additive"]["q_most"] == found["additive"]["k_most"] == 2.0**13
    assert 2.0**55 <= found["select"]["q_most"] <= 2.0**62
    assert found["additive"]["v_most"] > 3e38, "v need only be finite"


@pytest.mark.parametrize(("kind", "form", "fill"), [("window", "select", "-2.0e38"), ("causal", "additive", "-1.0e9")])
def test_masked_scores_that_are_a_stage(kind: str, form: str, fill: str) -> None:
    """Scores that pass through tanh are kept: nobody reads them where they are masked, so they are not made there."""
    module = hlo.parse(attention(kind, form, fill, 128, 128, capped=True))
    exe, full = compiled(module), without_masks(module)
    nests = [s for s in exe.plan.fusions[-1].schedule.phases[-1].steps if isinstance(s, Nest)]
    assert flags(exe.plan) == 1 and all(n.skip is not None for n in nests), exe.plan.explain()
    for value in (0.5, np.nan, np.inf, 1e30):
        for which in range(3):
            arrays = inputs(128, 128)
            arrays[which][0, 77, 5] = value
            with np.errstate(all="ignore"):
                (found,), (plain,), (expected,) = exe(*arrays), full(*arrays), interp.evaluate(module, *arrays)
            # Sums over fewer elements are associated otherwise: the same but for rounding.
            np.testing.assert_allclose(found, plain, rtol=2e-6, atol=1e-6)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert tiling.prove(exe.plan).holds


def test_weights_that_are_a_result_are_zero_where_they_are_masked() -> None:
    text = attention("causal", "additive", "-1.0e9", 128, 128)
    head, _, rest = text.partition(") -> ")
    old, _, body = rest.partition(" {")
    text = f"{head}) -> ({old}, tensor<2x128x128xf32>) {{{body}"
    text = text.replace("return %out :", "return %out, %p :").replace(f": {old}\n  }}", f": {old}, tensor<2x128x128xf32>\n  }}")
    module = hlo.parse(text)
    exe, full = compiled(module), without_masks(module)
    arrays = inputs(128, 128)
    for found, plain, expected in zip(exe(*arrays), full(*arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_array_equal(bits(found), bits(plain))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert tiling.prove(exe.plan).holds


def test_bfloat16() -> None:
    module = hlo.parse(attention("causal", "additive", "-1.0e9", 96, 96, dtype="bf16"))
    exe, full = compiled(module), without_masks(module)
    arrays = inputs(96, 96, dtype="bf16")
    (found,), (plain,), (expected,) = exe(*arrays), full(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_array_equal(found.view(np.uint16), plain.view(np.uint16))
    np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=0.05, atol=0.05)
    arrays[1][0, 50, 2] = np.nan
    (found,), (plain,), (expected,) = exe(*arrays), full(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), np.isnan(expected.astype(np.float32)))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), np.isnan(plain.astype(np.float32)))


def _one_by_one(reading: Reading, inputs: list[hlo.Value], wanted: object, power: int) -> dict[hlo.Value, float | None]:
    """The widest limits with this result: all inputs' power of two first, then each input given up, or left at its greatest."""

    def result(limits: dict[hlo.Value, float | None]) -> object:
        return [(k.zero, k.neutral) for k in Analysis.whole(reading, limits).known.values()]

    most = {v: greatest_of(v.tensor.element) for v in inputs}
    limits: dict[hlo.Value, float | None] = dict.fromkeys(inputs, 1.0)
    while power and result(trial := {v: min(2.0**power, most[v]) for v in inputs}) != wanted:
        power -= 1
    limits = trial if power else limits
    for v in inputs:
        limits = next((t for t in ({**limits, v: None}, {**limits, v: most[v]}) if result(t) == wanted), limits)
    return limits


MASKED = [("causal", "additive", "-1.0e9"), ("window", "select", "0xFF800000")]


@pytest.mark.parametrize(("kind", "form", "fill"), [*MASKED, ("", "", "")])
def test_limits_are_the_widest(kind: str, form: str, fill: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs given up in groups, and the widest power first, find what one at a time finds."""
    x, w, r = "tensor<2x5x5x8xf32>", "tensor<3x3x8x8xf32>", "tensor<2x9x9x8xf32>"
    padded = f"""func.func @main(%x: {x}, %w: {w}, %b: tensor<8xf32>) -> {r} {{
      %c = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {r}
      %s = stablehlo.broadcast_in_dim %b, dims = [3] : (tensor<8xf32>) -> {r}
      %y = stablehlo.add %c, %s : {r}
      return %y : {r}
    }}"""
    plan = planned(hlo.parse(attention(kind, form, fill, 64, 64))) if kind else tiling.plan(hlo.parse(padded), machine=MACHINE)
    (f,) = (f for f in plan.fusions if any(m.op.name.endswith(("dot_general", "convolution")) for m in f.stages))
    lowering = Lowering(FusionRequest(f.stages, frozenset(f.outputs), f.schedule.tile_sizes), MACHINE, plan.names)
    lowering.place()
    reading = Reading(lowering.plans, lowering.ranges)
    tiny = Analysis.whole(reading, dict.fromkeys(inputs_of(lowering.plans), 1.0))
    wanted = [(k.zero, k.neutral) for k in tiny.known.values()]
    assert any(zero or neutral for zero, neutral in wanted)
    looks = []
    whole = Analysis.signature
    monkeypatch.setattr(Analysis, "signature", lambda a: (looks.append(a), whole(a))[1])
    found = find_limits(lowering.plans, lowering.ranges)
    count = len(looks)
    assert found == _one_by_one(reading, inputs_of(lowering.plans), wanted, MOST_POWER)
    assert kind or count <= 8  # padding is zero whatever the inputs are


def test_the_padding_of_a_window_is_no_mask() -> None:
    """Nothing that it tells bounds a loop: it is not looked for, and what else takes the window is not turned away by it."""
    x, w = "tensor<1x14x14x32xf32>", "tensor<3x3x32x64xf32>"
    module = hlo.parse(f"""func.func @main(%x: {x}, %w: {w}) -> tensor<1x14x14x64xf32> {{
      %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{pad = [[1, 1], [1, 1]]}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGHEST>,
          #stablehlo<precision DEFAULT>]}} : ({x}, {w}) -> tensor<1x14x14x64xf32>
      return %r : tensor<1x14x14x64xf32> }}""")
    (fusion,) = tiling.plan(module, machine=MACHINE, supports=codegen.supports).fusions
    names = tiling.plan(module, machine=MACHINE, supports=codegen.supports).names
    lowering = Lowering(FusionRequest(fusion.stages, frozenset(fusion.stages[-1].values), (1, 1, 14, 64)), MACHINE, names)
    lowering.place()
    assert find_limits(lowering.plans, lowering.ranges) is None
    assert lowering.find_masks() is None
