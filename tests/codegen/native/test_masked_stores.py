"""Masked stores of one lane: LLVM's AVX-512 code for a truncated one writes what stands behind it too."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import numpy as np
import pytest

import codegen
import hlo
import interp
from codegen.native import lower
from codegen.native.masked_stores import write_single_lanes
from codegen.target import Target, host_target

ON_X86 = pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="x86-64 targets")


def store_of(lanes: int, wide: str, narrow: str, mask: list[bool], pointer: str = "ptr %p") -> str:
    on = ", ".join(f"i1 {'true' if lane else 'false'}" for lane in mask)
    return f"""
declare void @llvm.masked.store.v{lanes}{narrow}.p0(<{lanes} x {narrow}>, ptr, <{lanes} x i1>)
define void @entry(ptr %q, ptr %p) {{
  %x = load <{lanes} x {wide}>, ptr %q
  %1 = trunc <{lanes} x {wide}> %x to <{lanes} x {narrow}>
  tail call void @llvm.masked.store.v{lanes}{narrow}.p0(<{lanes} x {narrow}> %1, {pointer}, <{lanes} x i1> <{on}>)
  ret void
}}"""


@ON_X86
@pytest.mark.parametrize(
    ("wide", "narrow", "bits"), [("i64", "i32", 32), ("i32", "i16", 16), ("i32", "i8", 8), ("i64", "i16", 16)]
)
@pytest.mark.parametrize("lane", [0, 1, 7])
def test_the_code_writes_the_lane_and_nothing_behind_it(wide: str, narrow: str, bits: int, lane: int) -> None:
    lower.initialise()
    module = llvm.parse_assembly(store_of(8, wide, narrow, [k == lane for k in range(8)]))
    text = lower.emit_assembly(lower.ready(module), Target.named("avx512"))
    stores = [line.split()[0] for line in text.splitlines() if re.search(r",\s+-?\d*\(%rsi\)$", line)]
    assert stores in ({32: [["movl"], ["vmovd"], ["vpextrd"], ["vmovss"], ["vextractps"]],
                       16: [["movw"], ["vpextrw"]], 8: [["movb"], ["vpextrb"]]}[bits]), text  # fmt: skip


def test_other_masks_stay_and_attributes_of_places_are_read() -> None:
    two = store_of(4, "i64", "i32", [True, True, False, False])
    assert write_single_lanes(two) == two
    one = store_of(4, "i64", "i32", [False, True, False, False], "ptr noundef nonnull align 4 captures(none) %p")
    written = write_single_lanes(one)
    assert "extractelement <4 x i32> %1, i64 1" in written and "getelementptr i32, ptr %p, i64 1" in written
    llvm.parse_assembly(written).verify()
    with pytest.raises(ValueError, match="not known"):
        write_single_lanes(one.replace("tail call", "musttail call"))


CONVERTED = """func.func @main(%x: tensor<64x{n}x{wide}>) -> tensor<64x{n}x{narrow}> {{
  %i = stablehlo.iota dim = 1 : tensor<64x{n}x{wide}>
  %s = stablehlo.add %x, %i : tensor<64x{n}x{wide}>
  %r = stablehlo.convert %s : (tensor<64x{n}x{wide}>) -> tensor<64x{n}x{narrow}>
  %t = stablehlo.slice %r [0:64, 0:{n}] : (tensor<64x{n}x{narrow}>) -> tensor<64x{n}x{narrow}>
  return %t : tensor<64x{n}x{narrow}>
}}"""


@pytest.mark.parametrize(("wide", "narrow"), [("i64", "i32"), ("i32", "i8"), ("i64", "i16")])
@pytest.mark.parametrize("n", [3, 5, 9, 17])
def test_rows_of_one_element_more_than_a_vector_leave_the_next_row_alone(wide: str, narrow: str, n: int) -> None:
    module = hlo.parse(CONVERTED.format(n=n, wide=wide, narrow=narrow))
    x = np.random.default_rng(n).integers(-(1 << 30), 1 << 30, (64, n)).astype({"i64": np.int64, "i32": np.int32}[wide])
    wanted = np.asarray(interp.evaluate(module, x)[0])
    executable = codegen.compile(module, threads=2)
    for _ in range(5):
        np.testing.assert_array_equal(executable(x)[0], wanted)


SINGLE_LANE = re.compile(r"@llvm\.masked\.store\..*<(?:i1 false, )*i1 true(?:, i1 false)*>\)")


@ON_X86
def test_what_is_built_holds_no_such_store_whoever_emits_it() -> None:
    """Files of programs are emitted by a target machine of their own (`codegen.ship.linkable`)."""
    (kernel,) = codegen.compile(hlo.parse(CONVERTED.format(n=9, wide="i64", narrow="i32"))).kernels
    signature, target = kernel.compiled.signature, Target.named("avx512")
    module = lower.build(kernel.source, "<kernel>", signature, "entry", target, {}, kernel.statements)
    assert "one.lane" in str(module)
    assert not SINGLE_LANE.search(str(module))
