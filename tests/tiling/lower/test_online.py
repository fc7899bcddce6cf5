"""Online forms: derived where the algebra allows, right also for NaN and infinities, proved like every schedule."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.errors import Declined
from tests.pairs import fast_cover
from tests.tiling.lower.attention_programs import attention, bits, inputs
from tiling.loops.ir import Sequential
from tiling.loops.names import Names
from tiling.lower.online import find_online
from tiling.lower.placing import FusionRequest
from tiling.planning import forms as choose
from tiling.planning.stages import find_stages

MACHINE = tiling.Machine(vector_bytes=64, vector_registers=32)

SOFTMAX_PARTS = """%least = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %none = stablehlo.constant dense<0.0> : tensor<f32>
    %m = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1] : ({x}, tensor<f32>) -> {r}
    %mb = stablehlo.broadcast_in_dim %m, dims = [0] : ({r}) -> {x}
    %d = stablehlo.subtract %x, %mb : {x}
    %e = stablehlo.exponential %d : {x}"""
SUM = "%s = stablehlo.reduce(%{0} init: %none) applies stablehlo.add across dimensions = [1] : ({1}, tensor<f32>) -> {2}"


def rows_program(kind: str, n: int, m: int) -> str:
    """Reductions over the rows of x that read the rows' maxima."""
    x, r = f"tensor<{n}x{m}xf32>", f"tensor<{n}xf32>"
    lines = [SOFTMAX_PARTS.format(x=x, r=r)]
    if kind == "softmax":
        lines += [SUM.format("e", x, r), f"%sb = stablehlo.broadcast_in_dim %s, dims = [0] : ({r}) -> {x}"]
        lines += [f"%y = stablehlo.divide %e, %sb : {x}", f"return %y : {x}"]
    elif kind == "logsumexp":
        lines += [SUM.format("e", x, r), f"%l = stablehlo.log %s : {r}", f"%y = stablehlo.add %l, %m : {r}", f"return %y : {r}"]
    elif kind == "entropy":
        lines += [f"%w = stablehlo.multiply %x, %e : {x}", SUM.format("w", x, r), f"return %s : {r}"]
    elif kind == "square":
        lines += [f"%w = stablehlo.multiply %d, %d : {x}", SUM.format("w", x, r), f"return %s : {r}"]
    result = lines[-1].rpartition(": ")[2]
    body = "\n    ".join(lines)
    return f"func.func @main(%x: {x}) -> {result} {{\n    {body}\n  }}"


def is_online(plan: tiling.Plan) -> bool:
    return any(isinstance(s, Sequential) for f in plan.fusions for p in f.schedule.phases for s in p.steps)


def planned(text: str, monkeypatch: pytest.MonkeyPatch, rows: int, online: bool = True) -> tiling.Plan:
    """The program in one kernel; in its online form if it has one."""
    module = hlo.parse(text)
    first = tiling.plan(module, machine=MACHINE, supports=codegen.supports, budget_seconds=0.0)  # for the numbers of all ops
    ops = tuple(sorted({k for pin in first.pins() for k in pin.ops}))
    shape = first.fusions[-1].stages[-1].values[0].shape
    sizes = (1, rows, *shape[2:]) if len(shape) == 3 else (rows, *shape[1:])
    with monkeypatch.context() as patch:
        patch.setattr(choose, "is_long", lambda made, machine: True)
        patch.setattr(choose, "online_pays", lambda online_form, made, machine: online)
        patch.setattr(choose, "masks_pay", lambda made, plain: True)
        return tiling.plan(module, machine=MACHINE, supports=codegen.supports, pins=[tiling.Pin(ops, sizes)])


def online_of(text: str) -> object:
    """What `find_online` says of a program's stages as one fusion."""
    program = tiling.plan(hlo.parse(text), machine=MACHINE, supports=codegen.supports).program
    stages = find_stages(program, {})
    names = Names([*program.arguments, *(v for s in stages for v in s.values)])
    stored = frozenset(program.results)
    return find_online(FusionRequest(tuple(stages), stored, stages[-1].values[0].shape), MACHINE, names)


ATTENTION = [
    ("causal", "additive", "-1.0e9", 192, 192, "f32"),
    ("none", "additive", "-1.0e9", 96, 256, "f32"),
    ("window", "select", "0xFF800000", 256, 256, "f32"),
    ("offset", "additive", "-1.0e9", 128, 256, "f64"),
    ("none", "additive", "-1.0e9", 96, 512, "f64"),
    ("none", "additive", "-1.0e9", 96, 512, "f32"),
]


@pytest.mark.parametrize(("kind", "form", "fill", "n", "m", "dtype"), fast_cover(ATTENTION, 1, lambda c: (c[0], c[1:3], c[5])))
def test_attention(kind: str, form: str, fill: str, n: int, m: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = attention(kind, form, fill, n, m, dtype=dtype)
    plan = planned(text, monkeypatch, 32)
    assert is_online(plan), plan.explain()
    assert "exp(m - m')" in plan.explain()
    module = hlo.parse(text)
    arrays = inputs(n, m, dtype=dtype)
    (found,), (expected,) = codegen.compile(plan)(*arrays), interp.evaluate(module, *arrays)
    tolerance = 2e-6 if dtype == "f32" else 1e-13
    np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == "f32" else 1e-11, atol=tolerance)
    proof = tiling.prove(plan)
    assert proof.holds, proof


def test_attention_with_numbers_that_overflow_or_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks of -infinity that cover whole blocks come first (`anti`, `window`); a large v is divided in time."""
    n = m = 256
    for kind in ("anti", "window", "offset"):
        text = attention(kind, "select", "0xFF800000", n if kind != "offset" else 320, m)
        plan = planned(text, monkeypatch, 64)
        assert is_online(plan)
        exe, module = codegen.compile(plan), hlo.parse(text)
        for value in (np.nan, np.inf, -np.inf, 3e38, 1e19, -1e30):
            for which in range(3):
                arrays = inputs(n if kind != "offset" else 320, m)
                arrays[which][1, 200, 3] = value
                with np.errstate(all="ignore"):
                    (found,), (expected,) = exe(*arrays), interp.evaluate(module, *arrays)
                what = f"{kind}: {value} in {'qkv'[which]}"
                np.testing.assert_array_equal(np.isnan(found), np.isnan(expected), err_msg=what)
                np.testing.assert_array_equal(np.isinf(found), np.isinf(expected), err_msg=what)
        arrays = inputs(n if kind != "offset" else 320, m)
        arrays[2][:] = 3e38
        with np.errstate(all="ignore"):
            (found,), (expected,) = exe(*arrays), interp.evaluate(module, *arrays)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))


@pytest.mark.parametrize("kind", ["softmax", "logsumexp", "entropy"])
def test_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n, m = 40, 512
    text = rows_program(kind, n, m)
    monkeypatch.setitem(__import__("tiling.lower.online", fromlist=["x"]).MOST_BLOCK_ELEMS, False, 64)
    plan = planned(text, monkeypatch, 8)
    assert is_online(plan), plan.explain()
    x = np.random.default_rng(0).standard_normal((n, m)).astype(np.float32) * 4
    x[1, 100], x[2, 70:] = np.nan, -np.inf
    x[3, :200], x[4, :] = -np.inf, -np.inf
    x[5, 130], x[6] = np.inf, x[6] + 1e6
    x[7] = np.linspace(-300, 300, m)
    exe = codegen.compile(plan)
    with np.errstate(all="ignore"):
        (found,), (expected,) = exe(x), interp.evaluate(hlo.parse(text), x)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=1e-6)
    np.testing.assert_array_equal(bits(found), bits(exe(x)[0]))
    assert tiling.prove(plan).holds


def test_what_has_no_online_form_says_why() -> None:
    found = online_of(rows_program("square", 8, 512))
    assert isinstance(found, Declined) and "the running result cannot be rescaled" in found.reason
    found = online_of(rows_program("softmax", 8, 499))
    assert isinstance(found, Declined) and "499 has no divisor" in found.reason


def test_long_rows_are_taken_in_blocks_where_they_leave_the_cache() -> None:
    """Chosen by cost: scratch for whole rows of 16384 scores would be megabytes, blocks need a few hundred kilobytes."""
    plan = tiling.plan(hlo.parse(attention("none", "additive", "-1.0e9", 16384, 16384, d=64, heads=1)), machine=MACHINE,
                       supports=codegen.supports)  # fmt: skip
    assert len(plan.fusions) == 1 and is_online(plan)
    assert plan.fusions[0].schedule.thread_scratch_bytes < 1 << 20
    assert plan.fusions[0].schedule.scratch_bytes(2) < 6 << 20
