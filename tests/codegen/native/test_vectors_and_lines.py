"""What is asked for ahead in short runs of a large operand, and how wide the vectors of loops are that only move elements."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hlo
import tiling
from codegen.call.signatures import kernel_signature
from codegen.native.jit import kernel_assembly
from codegen.native.signature import KernelSignature, Param
from codegen.source.emit import PhaseSource, emit_phase
from codegen.supports import supports
from codegen.target import Target

MACHINE = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32, l2_bytes=1 << 20, l3_bytes=1 << 22, ahead_bytes=2048)


@pytest.mark.parametrize(("columns", "ahead"), [(4096, 4096 * 2), (1 << 16, None)])
def test_the_next_row_is_asked_for_where_runs_are_short(columns: int, ahead: int | None) -> None:
    """A task's 1,024 columns of a row of bf16 are 2 KiB: 2 KiB ahead lies what another task reads (3.4 ms became 6.0)."""
    x, w, r = "tensor<1x4096xbf16>", f"tensor<4096x{columns}xbf16>", f"tensor<1x{columns}xf32>"
    text = f"""func.func @main(%a: {x}, %b: {w}) -> {r} {{
  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({x}, {w}) -> {r}
  return %c : {r}
}}"""
    (fusion,) = tiling.plan(hlo.parse(text), machine=MACHINE, supports=supports).fusions
    source = emit_phase(fusion.schedule, fusion.schedule.main, "product")
    assert isinstance(source, PhaseSource)
    (weights,) = [b for b in source.walked if len(b.shape) == 2 and b.shape[0] == 4096]
    found = {p.name: p.ahead for p in kernel_signature(source, MACHINE).params}[weights.name]
    run_bytes = fusion.schedule.tile_sizes[1] * 2
    assert run_bytes <= 4096 if ahead else True
    assert found == (ahead or (columns * 2 if run_bytes <= 4096 else 2048))


COPY = """
def kernel(begin, end, x, y):
    for t in range(begin, end):
        for i in range(4096):
            y[4096 * t + i] = {}
"""


@pytest.mark.parametrize(("cpu", "value", "width"), [
    ("cascadelake", "x[4096 * t + i]", "ymm"), ("cascadelake", "x[4096 * t + i] * x[4096 * t + i]", "ymm"),
    ("cascadelake", "(x[4096 * t + i] * x[i] - x[i]) * x[i]", "zmm"), ("sapphirerapids", "x[4096 * t + i]", "zmm"),
    ("cascadelake", "reduce_add(y[4096 * t + i], x[4096 * t + i])", "zmm"),
])  # fmt: skip
def test_what_memory_takes_fills_half_registers_where_whole_ones_lower_the_clock(cpu: str, value: str, width: str) -> None:
    named = Target.named("avx512")
    target = replace(named, cpu=cpu, triple="x86_64-unknown-linux-gnu")
    signature = KernelSignature((Param("x", "float32", align=4), Param("y", "float32", align=4)))
    text = kernel_assembly(COPY.format(value), signature, target)
    found = {w for w in ("ymm", "zmm") if f"%{w}" in text}
    assert found == {width}
