"""Which operands of a fusion are read in runs of neighbouring addresses."""

# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

import pytest

import hlo
from tests.tiling.tiles.test_tiled import fused
from tiling import coalesced, coalescing

ROWS, COLUMNS = "f32[100,200]{1,0}", "f32[100,200]{0,1}"


def both(left: str, right: str, result: str) -> hlo.Module:
    return fused(f"p = {left} parameter(0) q = {right} parameter(1) e = {left} exponential(p) ROOT a = {result} add(e, q)",
                 result, left, right)  # fmt: skip


PAIR = "pair { a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3) m = s32[] maximum(a, c) n = s32[] maximum(b, d) ROOT t = (s32[], s32[]) tuple(m, n) }"


def reduced(shape: str, result: str, dimension: int) -> hlo.Module:
    return hlo.parse(f"""HloModule m
    {PAIR}
    f {{ p = {shape} parameter(0) q = {shape} parameter(1) x = s32[] parameter(2) y = s32[] parameter(3)
         ROOT r = ({result}, {result}) reduce(p, q, x, y), dimensions={{{dimension}}}, to_apply=pair }}
    ENTRY e {{ p = {shape} parameter(0) q = {shape} parameter(1) x = s32[] parameter(2) y = s32[] parameter(3)
         ROOT r = ({result}, {result}) fusion(p, q, x, y), kind=kInput, calls=f }}""")


CASES = {
    "one layout": (both(ROWS, ROWS, ROWS), (True, True)),
    "one operand by columns": (both(ROWS, COLUMNS, ROWS), (True, False)),
    "the result by columns": (both(ROWS, ROWS, COLUMNS), (False, False)),
    "an operand and the result by columns": (both(COLUMNS, ROWS, COLUMNS), (True, False)),
    "a transpose is turned on the way": (
        fused("p = f32[64,96] parameter(0) n = f32[64,96] negate(p) ROOT t = f32[96,64] transpose(n), dimensions={1,0}",
              "f32[96,64]", "f32[64,96]"), (True,)),
    "a transpose of two operands with different layouts": (
        fused("p = f32[64,96]{1,0} parameter(0) q = f32[64,96]{0,1} parameter(1) n = f32[64,96]{1,0} add(p, q)"
              " ROOT t = f32[96,64] transpose(n), dimensions={1,0}", "f32[96,64]", "f32[64,96]{1,0}", "f32[64,96]{0,1}"),
        (True, False)),
    "a broadcast reads one element many times": (
        fused("p = f32[64] parameter(0) ROOT b = f32[64,96] broadcast(p), dimensions={0}", "f32[64,96]", "f32[64]"), (True,)),
    "an operand that is not read": (
        fused("p = f32[64] parameter(0) q = f32[99] parameter(1) ROOT n = f32[64] negate(p)", "f32[64]", "f32[64]", "f32[99]"),
        (True, True)),
    "short rows that values name": (
        fused("p = f32[33,76,70] parameter(0) i = s32[100,2] parameter(1) ROOT r = f32[100,7,8,4] gather(p, i),"
              " offset_dims={1,2,3}, collapsed_slice_dims={}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={7,8,4}",
              "f32[100,7,8,4]", "f32[33,76,70]", "s32[100,2]"), (False, True)),
    "a part at a place that values name": (
        fused("p = f32[50,258] parameter(0) i = s32[] parameter(1) j = s32[] parameter(2)"
              " ROOT r = f32[5,64] dynamic-slice(p, i, j), dynamic_slice_sizes={5,64}", "f32[5,64]", "f32[50,258]", "s32[]", "s32[]"),
        (True, True, True)),
    "every second element": (
        fused("p = f32[100,200] parameter(0) ROOT r = f32[100,100] slice(p), slice={[0:100], [0:200:2]}", "f32[100,100]",
              "f32[100,200]"), (False,)),
    "back to front": (
        fused("p = f32[100,200] parameter(0) ROOT r = f32[100,200] reverse(p), dimensions={1}", "f32[100,200]", "f32[100,200]"),
        (True,)),
    "ends of rows": (
        fused("p = u32[48,2,128] parameter(0) q = u32[48,1,128] parameter(1) ROOT r = u32[48,3,128] concatenate(p, q), dimensions={1}",
              "u32[48,3,128]", "u32[48,2,128]", "u32[48,1,128]"), (True, True)),
    "two reductions over rows": (reduced("s32[32,40]", "s32[32]", 1), (True, True, True, True)),
    "two reductions over what lies apart in short rows": (
        reduced("s32[500,10,4]", "s32[500,4]", 1), (False, False, True, True)),
    "two reductions over what lies apart": (reduced("s32[10,400]", "s32[400]", 0), (True, True, True, True)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operands(name: str) -> None:
    module, expected = CASES[name]
    assert coalesced(module) == expected, coalescing(module)


def test_a_run_that_is_broken_has_a_witness() -> None:
    _, apart = coalescing(both(ROWS, COLUMNS, ROWS))
    assert (apart.transactions, apart.least_transactions) == (32, 1)
    assert apart.reason == "lanes 0 and 1 read elements 0 and 100 of its memory"
    (halves,) = coalescing(CASES["every second element"][0], lanes=8)
    assert (halves.transactions, halves.least_transactions) == (8, 1)


def test_an_op_without_a_fusion() -> None:
    module = hlo.parse("HloModule m ENTRY e { p = f32[9,50] parameter(0) ROOT t = f32[50,9] transpose(p), dimensions={1,0} }")
    assert coalesced(module) == coalesced(module.root) == (True,)
    with pytest.raises(ValueError, match="the root is an argument"):
        coalesced(hlo.parse("HloModule m ENTRY e { ROOT p = f32[9] parameter(0) }"))
