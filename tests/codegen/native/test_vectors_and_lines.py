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


PRODUCT = """func.func @main(%x: tensor<1x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<1x4096xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<1x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<1x4096xf32>
  return %y : tensor<1x4096xf32>
}"""
TWICE = """func.func @main(%w: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %y = stablehlo.add %w, %w : tensor<4096x4096xf32>
  return %y : tensor<4096x4096xf32>
}"""


@pytest.mark.parametrize(("text", "sizes", "ahead"), [(PRODUCT, (1, 1024), 8192), (TWICE, (4, 4096), 2048)])
def test_the_next_row_is_asked_for_where_runs_are_short(text: str, sizes: tuple[int, ...], ahead: int) -> None:
    """A task's 1,024 columns of a row of bf16 are 2 KiB: 2 KiB ahead lies what another task reads (3.4 ms became 6.0).

    A task of whole rows reads on and on, and what lies 2 KiB ahead is its own.
    """
    module = hlo.parse(text)
    (pin,) = tiling.plan(module, machine=MACHINE, supports=supports).pins()
    plan = tiling.plan(module, machine=MACHINE, supports=supports, pins=[replace(pin, tile_sizes=sizes)])
    (fusion,) = plan.fusions
    source = emit_phase(fusion.schedule, fusion.schedule.main, "kernel")
    assert isinstance(source, PhaseSource)
    (large,) = [b for b in source.walked if b.shape == (4096, 4096)]
    assert {p.name: p.ahead for p in kernel_signature(source, MACHINE).params}[large.name] == ahead


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
