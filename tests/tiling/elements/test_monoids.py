"""One answer to whether a fold may be taken in parts and in any order, and folds that are: the same as the evaluator's."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.types import ElementType
from tests.tiling.passes.test_growing import LARGER, LOG_ADD_EXP, MEAN
from tiling.elements.monoids import monoid_of
from tiling.loops.element_ir import Load, Scalar
from tiling.loops.ir import FoldStep, Nest
from tiling.loops.monoid import Monoid, Shown

MACHINE = tiling.Machine(cores=2, vector_bytes=32, vector_registers=16)

ADD, MAXIMUM, XOR = (f"%z = stablehlo.{f} %a, %b : tensor<T>" for f in ("add", "maximum", "xor"))
BOTH = """%s = stablehlo.add %a, %b : tensor<T>
    %p = stablehlo.multiply %a, %b : tensor<T>
    %z = stablehlo.add %s, %p : tensor<T>"""
LESS = "%z = stablehlo.subtract %a, %b : tensor<T>"
SQUARES = """%p = stablehlo.multiply %b, %b : tensor<T>
    %z = stablehlo.add %a, %p : tensor<T>"""
PAIR = """%z = stablehlo.add %a, %b : tensor<T>
    %y = stablehlo.maximum %c, %d : tensor<T>"""
COMPLEX = """%1 = stablehlo.multiply %a, %b : tensor<T>
    %2 = stablehlo.multiply %c, %d : tensor<T>
    %3 = stablehlo.multiply %a, %d : tensor<T>
    %4 = stablehlo.multiply %c, %b : tensor<T>
    %z = stablehlo.subtract %1, %2 : tensor<T>
    %y = stablehlo.add %3, %4 : tensor<T>"""
STEPS = """%1 = stablehlo.multiply %a, %b : tensor<T>
    %2 = stablehlo.multiply %c, %b : tensor<T>
    %z = stablehlo.add %1, %b : tensor<T>
    %y = stablehlo.add %2, %d : tensor<T>"""


def reduction(body: str, t: str, shape: tuple[int, ...], over: tuple[int, ...], *starts: str) -> hlo.Module:
    """A reduce of one operand, or of one and its negative, by a body that gives %z and %y."""
    kept = "x".join([*(str(n) for k, n in enumerate(shape) if k not in over), t])
    s = "x".join([*map(str, shape), t])
    two = len(starts) > 1
    operands = ", ".join([*(("%x", "%neg") if two else ("%x",)), *(f"%s{k}" for k in range(len(starts)))])
    along = ", ".join(map(str, over))
    lines = [f"%s{k} = stablehlo.constant dense<{x}> : tensor<{t}>" for k, x in enumerate(starts)]
    arguments = [f"%{n}: tensor<{t}>" for n in (("a", "c", "b", "d") if two else ("a", "b"))]
    types, scalars, results = (", ".join([x] * len(starts)) for x in (f"tensor<{s}>", f"tensor<{t}>", f"tensor<{kept}>"))
    return hlo.parse(f"""func.func @main(%x: tensor<{s}>) -> ({results}) {{
  %neg = stablehlo.negate %x : tensor<{s}>
  {" ".join(lines)}
  %r{":2" if two else ""} = "stablehlo.reduce"({operands}) <{{dimensions = array<i64: {along}>}}> ({{
  ^bb0({", ".join(arguments)}):
    {body.replace("<T>", f"<{t}>")}
    stablehlo.return {"%z, %y" if two else "%z"} : {scalars}
  }}) : ({types}, {scalars}) -> ({results})
  return {"%r#0, %r#1" if two else "%r"} : {results}
}}""")


def fact(module: hlo.Module) -> Monoid | hlo.Declined:
    (op,) = [o for o in module.entry.body.ops if o.name == "stablehlo.reduce"]
    count = len(op.results)
    inits = []
    for v in op.operands[count:]:
        assert v.op is not None and isinstance(v.tensor.element, ElementType)
        inits.append(Scalar(v.op.attr("value").array.reshape(-1)[0], v.tensor.element))
    return monoid_of(FoldStep(op.results, (), (), tuple(Load(v, ()) for v in op.operands[:count]), tuple(inits), op), (), {}, {})


LEAST = "0xFF800000"


@pytest.mark.parametrize(
    ("body", "t", "starts", "expected"),
    [
        (ADD, "f32", ("0.0",), (Shown.TABLE, True, True, True)),
        (ADD, "f32", ("2.0",), (Shown.TABLE, False, False, True)),  # each part would start from 2
        (MAXIMUM, "f32", ("2.0",), (Shown.TABLE, True, False, True)),  # which is no matter to a maximum
        (ADD, "f8E4M3FN", ("0.0",), "rounded"),
        (MAXIMUM, "f8E4M3FN", ("-4.0",), (Shown.TABLE, True, False, True)),
        (LARGER, "f32", (LEAST,), (Shown.CASES, True, True, False)),  # a NaN is larger than what stands on its left
        (LOG_ADD_EXP, "f32", (LEAST,), (Shown.ALGEBRA, True, True, True)),
        (BOTH, "i32", ("0",), (Shown.ALGEBRA, True, True, True)),
        (BOTH, "i32", ("1",), "neutral"),
        (BOTH, "f32", ("0.0",), "infinities"),  # infinity - 1 - infinity
        (MEAN, "f32", ("0.0",), "associative"),
        (LESS, "i32", ("0",), "arguments"),
        (SQUARES, "f32", ("0.0",), "arguments"),
        (PAIR, "f32", ("0.0", LEAST), (Shown.TABLE, True, True, True)),
        (PAIR, "f32", ("1.0", LEAST), (Shown.TABLE, False, False, True)),
        (PAIR, "bf16", ("0.0", "0xFF80"), "rounded"),
        (COMPLEX, "i32", ("1", "0"), (Shown.ALGEBRA, True, True, True)),
        (STEPS, "i32", ("1", "0"), "arguments"),
    ],
)
def test_what_holds_for_a_fold(body: str, t: str, starts: tuple[str, ...], expected: object) -> None:
    found = fact(reduction(body, t, (4, 3), (0,), *starts))
    if isinstance(expected, str):
        assert isinstance(found, hlo.Declined) and expected in found.reason, found
    else:
        assert isinstance(found, Monoid), found
        assert (found.shown, found.starts_parts, found.is_neutral, found.for_nan) == expected


def in_order(x: np.ndarray) -> np.ndarray:
    total = np.zeros(x.shape[1:], x.dtype)
    for row in x:
        total = (total.astype(np.float32) + row.astype(np.float32)).astype(x.dtype)
    return total


@pytest.mark.parametrize(("shape", "over"), [((24, 64), (0,)), ((8, 4, 8192), (0, 1))])
def test_sums_that_are_rounded_at_each_step_keep_their_order(shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    """Four rows in a step had no function to be put together by; pieces were rounded apart."""
    x = (np.random.default_rng(0).normal(size=shape) * 2).astype(ml_dtypes.float8_e4m3fn)
    executable = codegen.compile(reduction(ADD, "f8E4M3FN", shape, over, "0.0"))
    assert not executable.fallbacks
    (found,) = executable(x)
    expected = in_order(x.reshape(-1, shape[-1]))
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


FOLDS = [
    (ADD, "i32", ("0",)), (MAXIMUM, "f32", ("2.0",)), (BOTH, "i32", ("0",)), (LOG_ADD_EXP, "f32", (LEAST,)), (XOR, "i32", ("5",)),
    (PAIR, "f32", ("0.0", LEAST)), (COMPLEX, "i32", ("1", "0")), (STEPS, "i32", ("1", "0")), (ADD, "f32", ("2.0",)),
]  # fmt: skip
"""Also one that is no monoid, and some that start from something other than its neutral element."""


def step_by_step(x: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """What STEPS folds in the order written, in which the evaluator does not."""
    a, c = np.ones((), np.int32), np.zeros((), np.int32)
    with np.errstate(over="ignore"):
        for row in np.moveaxis(x, axis, 0):
            a, c = a * row + row, c * row - row
    return a, c


@pytest.mark.parametrize("seed", range(len(FOLDS)))
def test_random_folds(seed: int) -> None:
    """Rows in lanes with a rest or columns, and everything in pieces: as the evaluator folds them, and proved."""
    rng = np.random.default_rng(seed)
    body, t, starts = FOLDS[seed]
    few = int(rng.integers(129, 600))
    for shape, over in (((few, 5), (0,)) if seed % 3 == 0 else ((3, few), (1,)), ((1 << 17,), (0,))):
        module = reduction(body, t, shape, over, *starts)
        plan = tiling.plan(module, machine=MACHINE, supports=codegen.supports)
        assert tiling.prove(plan).holds
        x = rng.integers(-9, 9, shape).astype(np.int32) if t == "i32" else rng.normal(size=shape).astype(np.float32)
        executable = codegen.compile(plan)
        assert not executable.fallbacks
        expected = step_by_step(x, over[0]) if body == STEPS else interp.evaluate(module, x)
        for found, wanted in zip(executable(x), expected, strict=True):
            if t == "i32":
                np.testing.assert_array_equal(found, wanted)
            else:
                np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-3)
        monoid = fact(module)
        may = isinstance(monoid, Monoid) and monoid.starts_parts
        phases = plan.fusions[0].schedule.phases
        nests = sum(isinstance(s, Nest) for p in phases for s in p.steps)
        assert (len(phases) > 1) == (may and shape == (1 << 17,))
        is_across_short_rows = shape == (few, 5)
        along_rows = isinstance(monoid, Monoid) and not monoid.function
        assert (nests > len(phases)) == (may and (is_across_short_rows or along_rows))


def test_pieces_in_lanes_are_all_put_together() -> None:
    """A part that lies in a thread's own memory was taken for that of any task: a piece left out went unseen."""
    module = reduction(BOTH, "i32", (1 << 17,), (0,), "0")
    (fusion,) = tiling.plan(module, machine=MACHINE, supports=codegen.supports).fusions
    schedule = fusion.schedule
    cut = 0
    for p, phase in enumerate(schedule.phases):
        for k, nest in enumerate(phase.steps):
            assert isinstance(nest, Nest)
            for i, loop in enumerate(nest.loops):
                shorter = replace(loop, upper=loop.upper - 1, extent=loop.extent - 1)
                steps = list(phase.steps)
                steps[k] = replace(nest, loops=(*nest.loops[:i], shorter, *nest.loops[i + 1 :]))
                phases = list(schedule.phases)
                phases[p] = replace(phase, steps=tuple(steps))
                proof = tiling.prove(replace(fusion, schedule=replace(schedule, phases=tuple(phases))))
                assert proof.refuted, loop
                cut += 1
    assert cut == 4
