"""The same bits as other elements: every pair of widths, against the evaluator, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.builder import Builder, type_of
from hlo.types import ELEMENT_TYPES, TensorType

NAMES = ("i1", "ui2", "i4", "f4E2M1FN", "i8", "f8E5M2", "bf16", "f16", "i16", "f32", "ui32", "f64", "i64")


def bits_for(element: hlo.ElementType, count: int) -> np.ndarray:
    """Elements of any bits, infinities and subnormals among them; NaNs with payloads where the type is computed in itself."""
    rng = np.random.default_rng(element.bits)
    if element.bits < 8:
        codes = rng.integers(0, 1 << element.bits, count).astype(np.uint8)
        return codes.astype(bool) if element.is_boolean else codes.view(element.dtype)
    found = np.frombuffer(rng.bytes(count * element.bits // 8), element.dtype).copy()
    if element.is_float and element.bits <= 16:
        with np.errstate(invalid="ignore"):
            found[np.isnan(found)] = np.nan
    return found


def pairs() -> list[tuple[str, str]]:
    widths = {n: ELEMENT_TYPES[n].bits for n in NAMES}
    return [(a, b) for a in NAMES for b in NAMES if widths[a] != widths[b]]


def same_bits(module: hlo.Module, x: np.ndarray) -> codegen.Executable:
    executable = codegen.compile(module)
    assert not executable.fallbacks
    for v, found, want in zip(module.entry.body.results, executable(x), interp.evaluate(module, x), strict=True):
        assert found.dtype == want.dtype and found.shape == want.shape
        if v.tensor.element.is_float and v.tensor.element.bits <= 16:  # computed in f32: a NaN is a NaN
            with np.errstate(invalid="ignore"):
                found, want = (np.where(np.isnan(a), a.dtype.type(1), a) for a in (found, want))
        # What a number of less than a byte leaves of its byte is nobody's.
        low = (1 << min(8, v.tensor.element.bits)) - 1
        found, want = (np.frombuffer(a.tobytes(), np.uint8) & low for a in (found, want))
        np.testing.assert_array_equal(found, want, err_msg=f"{v.type}")
    return executable


def goals(a: str, in_turn: bool) -> list[str]:
    """The types of other widths; of several of a width one, which depends on the source, or all of them."""
    by_width: dict[int, list[str]] = {}
    for s, t in pairs():
        if s == a:
            by_width.setdefault(ELEMENT_TYPES[t].bits, []).append(t)
    return [t for names in by_width.values() for t in ([names[NAMES.index(a) % len(names)]] if in_turn else names)]


def test_each_type_is_a_goal_in_turn() -> None:
    assert {t for a in NAMES for t in goals(a, True)} == {*NAMES}


@pytest.mark.parametrize("in_turn", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("a", NAMES)
def test_bitcasts_to_other_widths(a: str, in_turn: bool) -> None:
    source = ELEMENT_TYPES[a]
    b = Builder("main")
    results, x = [], b.parameter(0, TensorType((6, 64), source))
    for other in goals(a, in_turn):
        goal = ELEMENT_TYPES[other]
        ratio = max(goal.bits, source.bits) // min(goal.bits, source.bits)
        if goal.bits < source.bits:
            results.append(b.emit("stablehlo.bitcast_convert", (x,), {}, (), [TensorType((6, 64, ratio), goal)])[0])
        else:
            rows = b.reshape(x, (6, 64 // ratio, ratio))
            results.append(b.emit("stablehlo.bitcast_convert", (rows,), {}, (), [TensorType((6, 64 // ratio), goal)])[0])
    module = b.build(*results)
    hlo.verify(module)
    assert tiling.prove(same_bits(module, bits_for(source, 384).reshape(6, 64)).plan).holds


@pytest.mark.parametrize(
    ("source", "goal"),
    [
        ("f32[2,2]", "s32[4]"),
        ("f32[4,6]", "s32[6,4]"),
        ("f32[4,6]", "f16[4,12]"),
        ("u8[8,6]", "f64[2,3]"),
        ("f32[4,6]", "f32[6,4]"),
    ],
)
def test_a_bitcast_to_another_type_keeps_the_bytes(source: str, goal: str) -> None:
    """It was taken for a move, which converts numbers: 0.5 became 0."""
    b = Builder("main")
    x = b.parameter(0, source)
    module = b.build(b.bitcast(x, goal))
    hlo.verify(module)
    same_bits(module, bits_for(x.tensor.element, x.tensor.size_elems).reshape(x.tensor.static_shape))


def test_bitcasts_with_layouts() -> None:
    text = """HloModule m
ENTRY main {
  p = f32[4,6]{0,1} parameter(0)
  b = s32[6,4]{1,0} bitcast(p)
  ROOT n = s32[6,4]{1,0} not(b)
}"""
    module = hlo.parse(text)
    same_bits(module, np.random.default_rng(0).standard_normal((4, 6), np.float32))


LAYOUTS = """HloModule m
ENTRY main {{
  p = f32[4,6]{{{}}} parameter(0)
  q = f32[4,6]{{{}}} parameter(1)
  b = f32[6,4]{{{}}} bitcast(p)
  c = f32[6,4]{{{}}} bitcast({})
  d = f32[6,4]{{1,0}} negate(b)
  e = f32[6,4]{{1,0}} negate(c)
  ROOT t = (f32[6,4]{{1,0}}, f32[6,4]{{1,0}}) tuple(d, e)
}}"""


@pytest.mark.parametrize(
    "layouts", [("0,1", "1,0", "1,0", "1,0", "q"), ("1,0", "0,1", "1,0", "1,0", "q"), ("1,0", "1,0", "1,0", "0,1", "p")]
)
def test_bitcasts_that_differ_in_a_layout_alone_are_told_apart(layouts: tuple[str, ...]) -> None:
    """Layouts do not count when types are compared: the two were merged, and one's map was kept for the other."""
    module = hlo.parse(LAYOUTS.format(*layouts))
    x, y = np.random.default_rng(0).standard_normal((2, 4, 6), np.float32)
    for _ in range(2):
        for found, want in zip(codegen.compile(module)(x, y), interp.evaluate(module, x, y), strict=True):
            assert found.tobytes() == np.ascontiguousarray(want).tobytes()


def test_complex_elements_stay_with_the_evaluator_in_words() -> None:
    b = Builder("main")
    x = b.parameter(0, "c128[4]")
    module = b.build(b.emit("stablehlo.bitcast_convert", (x,), {}, (), [type_of("c64[4,2]")])[0])
    executable = codegen.compile(module)
    assert len(executable.fallbacks) == 1 and "different widths" in executable.fallbacks[0]
    array = np.array([1 + 2j, -0.5j, 3.25, np.pi])
    (found,), (want,) = executable(array), interp.evaluate(module, array)
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("element", ["bf16", "f16", "f8E4M3FN", "f8E5M2", "f8E8M0FNU", "f4E2M1FN"])
def test_what_is_only_moved_keeps_its_bits(element: str) -> None:
    """Moves went through f32, where a signalling NaN becomes a quiet one, and took ten instructions an element."""
    t = ELEMENT_TYPES[element]
    codes = np.arange(1 << t.bits, dtype=f"u{t.itemsize_bytes}").reshape(-1, 4)
    b = Builder()
    x = b.parameter(0, TensorType(codes.shape, t))
    module = b.build(b.transpose(x, (1, 0)))
    executable = codegen.compile(module)
    assert not executable.fallbacks
    (found,) = executable(codes.view(t.dtype))
    assert np.array_equal(found.view(codes.dtype), codes.T)
