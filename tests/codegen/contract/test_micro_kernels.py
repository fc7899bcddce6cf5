"""The table of micro-kernels: what its rows declare is what their routines take and read, and what is copied for them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import tiling
from codegen.lib import NAMESPACE
from codegen.native.jit import kernel_assembly
from codegen.native.signature import KernelSignature, Param
from codegen.supports import supports
from codegen.target import NAMED_TARGETS, Target
from hlo.types import element_type
from indexing.expr import Interval, Var, as_expr, substitute
from tiling.contract.table import MICRO_KERNELS, Row
from tiling.loops.ir import Contract, Nest, Scope, Step, Turn
from tiling.loops.staging import blocks, panels, row_major
from tiling.machine import Machine

ROWS = [pytest.param(row, id=row.kernel.routine) for row in MICRO_KERNELS]
PARAMETERS = {
    "rows": {"m"}, "columns": {"n"}, "depth": {"k"}, "left": {"a"}, "left_at": {"a_off"}, "left_row": {"a_rs"},
    "left_step": {"a_cs"}, "right": {"b"}, "right_at": {"b_off"}, "right_panel": {"b_panel_stride", "b_cs"}, "right_row": {"ldb"},
    "out": {"c"}, "out_at": {"c_off"}, "out_row": {"ldc", "c_rs"}, "out_step": {"c_cs"}, "again": {"accumulate"},
    "panel": {"panel"}, "band": {"band"}, "band_step": {"band_step"},
}  # fmt: skip
MACHINE = Machine(cores=2, vector_bytes=64, vector_registers=32)


@pytest.mark.parametrize("row", ROWS)
def test_routines_take_what_rows_say(row: Row) -> None:
    taken = list(inspect.signature(NAMESPACE[row.kernel.routine]).parameters.values())
    named = [p.name for p in taken if p.kind is not p.VAR_POSITIONAL]
    assert len(named) == len(row.kernel.arguments)
    assert all(name in PARAMETERS[a] for name, a in zip(named, row.kernel.arguments, strict=True))
    assert row.kernel.takes_levels == any(p.kind is p.VAR_POSITIONAL for p in taken)
    assert row.kernel.adds == ("again" in row.kernel.arguments) and row.kernel.walks == ("band" in row.kernel.arguments)


@pytest.mark.parametrize("row", ROWS)
def test_a_staged_factor_lies_where_the_routine_reads_it(row: Row) -> None:
    """The copy's layout, the declared place and the routine, which runs as it is written, name the same elements."""
    kernel, (m, n, depth) = row.kernel, (3, 21, 8)
    width = 1 if kernel.along else 16
    k, j = Var("k"), Var("j")
    ranges = {k: Interval(0, depth - 1), j: Interval(0, n - 1)}
    element = element_type("i8")
    layout = panels(element, (), *blocks(as_expr(j), n, width), (as_expr(k), depth), ranges, kernel.together)
    buffer = layout.buffer("right", Scope.SHARED)
    panel_stride, row_stride = buffer.strides[:2]

    def at(step: int, column: int) -> int:
        index = [substitute(e, {k: step, j: column}).constant for e in layout.at]
        assert all(0 <= i < size for i, size in zip(index, layout.shape, strict=True))
        return sum(i * s for i, s in zip(index, buffer.strides, strict=True))

    rng = np.random.default_rng(5)
    left, right = (rng.integers(-9, 9, shape).astype(np.int8) for shape in ((m, depth), (depth, n)))
    kept = np.full(buffer.size_elems, 77, np.int8)
    for step, column in np.ndindex(depth, n):
        kept[at(step, column)] = right[step, column]
        assert kernel.place(step, column, width, panel_stride, row_stride) == at(step, column)
    out = np.zeros(m * n, np.int32)
    given = {
        "rows": m, "columns": n, "depth": depth, "left": left.reshape(-1), "left_at": 0, "left_row": depth, "left_step": 1,
        "right": kept, "right_at": 0, "right_panel": panel_stride, "right_row": row_stride, "out": out, "out_at": 0, "out_row": n,
        "out_step": 1, "again": False, "panel": width, "band": 0, "band_step": 0,
    }  # fmt: skip
    NAMESPACE[kernel.routine](*(given[a] for a in kernel.arguments))
    np.testing.assert_array_equal(out.reshape(m, n), left.astype(np.int32) @ right.astype(np.int32))


def _schedule(text: str) -> tiling.Schedule:
    (fusion,) = tiling.plan(hlo.parse(text), machine=MACHINE, supports=supports).fusions
    return fusion.schedule


def _text(kind: str, out: str, m: int, n: int, k: int, left: str, right: str) -> str:
    shapes = [f"{m}x{k}" if left == "mk" else f"{k}x{m}", f"{k}x{n}" if right == "kn" else f"{n}x{k}"]
    a, b, c = (f"tensor<{x}>" for x in (f"{shapes[0]}x{kind}", f"{shapes[1]}x{kind}", f"{m}x{n}x{out}"))
    return (
        f"func.func @main(%a: {a}, %b: {b}) -> {c} {{\n  %0 = stablehlo.dot_general %a, %b, "
        f"contracting_dims = [{left.index('k')}] x [{right.index('k')}] : ({a}, {b}) -> {c}\n  return %0 : {c}\n}}"
    )


@pytest.mark.parametrize(
    ("kind", "out", "n", "right", "expected"),
    [
        ("f32", "f32", 96, "nk", "gemm_block"),
        ("f32", "f32", 32, "nk", "gemm_dots"),  # two vectors of columns: as many as are worth it
        ("f32", "f32", 40, "nk", "gemm_block"),
        ("bf16", "bf16", 40, "nk", "gemm_dots"),
        ("i8", "i8", 96, "kn", "gemm_block"),
        ("i8", "i32", 96, "kn", "gemm_bytes"),
        ("i8", "i32", 24, "nk", "gemm_dots"),
        ("i8", "i32", 32, "nk", "gemm_bytes"),
        ("complex<f32>", "complex<f32>", 96, "kn", "gemm_block"),
    ],
)
def test_the_cheapest_row_is_taken(kind: str, out: str, n: int, right: str, expected: str) -> None:
    steps = [s for p in _schedule(_text(kind, out, 128, n, 1024, "mk", right)).phases for s in p.all_steps]
    assert [s.kernel.routine for s in steps if isinstance(s, Contract)] == [expected]


def test_a_row_is_all_that_a_micro_kernel_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is cheaper for some types is taken for those, proved, and run; all others stay as they were."""
    (plain,) = [row for row in MICRO_KERNELS if row.kernel.routine == "gemm_block"]
    f64 = element_type("f64")
    flat = replace(plain, sums=lambda t: f64 if set(t) == {"f64"} else None, block=lambda *_: (2, 8), cost=lambda p: 0.5)
    monkeypatch.setattr("tiling.contract.micro_kernels.MICRO_KERNELS", (*MICRO_KERNELS, flat))
    for kind, block in (("f64", (2, 8)), ("f32", MACHINE.micro_tile(4, 48))):
        made = tiling.plan(hlo.parse(_text(kind, kind, 12, 48, 20, "mk", "kn")), machine=MACHINE, supports=supports)
        (c,) = [s for s in made.fusions[0].schedule.main.steps if isinstance(s, Contract)]
        assert (c.rows, c.columns) == block and tiling.prove(made.fusions[0]).holds
        rng, dtype = np.random.default_rng(3), c.out.buffer.element.dtype
        a, b = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((12, 20), (20, 48)))
        np.testing.assert_array_equal(codegen.compile(made)(a, b)[0], a @ b)


def test_a_micro_kernel_that_is_not_in_the_table_is_refuted() -> None:
    """Proofs take for granted that a routine does what is declared: a declaration of something else must not pass."""
    schedule = _schedule(_text("f32", "f32", 64, 96, 64, "mk", "kn"))
    assert tiling.prove(schedule).holds
    (c,) = [s for s in schedule.main.steps if isinstance(s, Contract)]
    for kernel in (replace(c.kernel, routine="gemm_dots"), replace(c.kernel, adds=False), replace(c.kernel, arguments=())):
        main = replace(schedule.main, steps=tuple(replace(c, kernel=kernel) if s is c else s for s in schedule.main.steps))
        wrong = replace(schedule, phases=tuple(main if p is schedule.main else p for p in schedule.phases))
        assert tiling.prove(wrong).refuted


WINDOW = """func.func @main(%x: tensor<1x14x14x32xf32>, %w: tensor<3x3x32x32xf32>) -> tensor<1x14x14x32xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x14x14x32xf32>, tensor<3x3x32x32xf32>) -> tensor<1x14x14x32xf32>
  return %0 : tensor<1x14x14x32xf32> }"""
COPIED = {
    "groups of bytes": (_text("i8", "i32", 48, 64, 34, "mk", "kn"), {"right", "left"}),
    "panels turned in registers": (_text("f32", "f32", 64, 96, 64, "mk", "nk"), {"right"}),
    "rows in another type": (_text("bf16", "bf16", 48, 64, 48, "mk", "kn"), {"left"}),
    "columns for sums in lanes": (_text("f32", "f32", 96, 16, 512, "mk", "kn"), {"right"}),
    "a window's tile": (WINDOW, {"left"}),
}


def _moved(step: Step) -> Step | None:
    """A copy that puts each element one place further; None for a step that copies nothing."""
    if isinstance(step, Turn):
        return replace(step, target=replace(step.target, base=step.target.base + 1))
    if not isinstance(step, Nest) or not step.stores or any(s.value is not None for s in step.stores):
        return None
    return replace(step, stores=tuple(replace(s, index=(*s.index[:-2], s.index[-2] + 1, s.index[-1])) for s in step.stores))


@pytest.mark.parametrize("name", COPIED)
def test_a_copy_in_another_place_is_refuted(name: str) -> None:
    """Whatever the layout: what the micro-kernel finds in a copy is what the op reads, or the proof says so."""
    text, expected = COPIED[name]
    schedule = _schedule(text)
    assert tiling.prove(schedule).holds
    copied = set()
    for at, phase in enumerate(schedule.phases):
        for k, step in enumerate(phase.steps):
            wrong = _moved(step)
            if wrong is None:
                continue
            buffer = step.target.buffer if isinstance(step, Turn) else step.stores[0].buffer  # type: ignore[union-attr]
            copied.add(buffer.name.rpartition("_")[2])
            changed = replace(phase, steps=(*phase.steps[:k], wrong, *phase.steps[k + 1 :]))
            assert tiling.prove(replace(schedule, phases=(*schedule.phases[:at], changed, *schedule.phases[at + 1 :]))).refuted
    assert copied == expected


def test_rows_a_power_of_two_apart_are_padded() -> None:
    layout = row_major(element_type("f32"), [(as_expr(0), 4), (as_expr(0), 256)])
    assert layout.with_rows_apart(8).buffer("x", Scope.THREAD).strides == (264, 1)
    assert layout.with_rows_of(260).with_rows_apart(8).buffer("x", Scope.THREAD).strides == (260, 1)


def _loops(assembly: str) -> Iterator[list[str]]:
    """The instructions of each innermost loop."""
    label, inside = "", list[str]()
    for line in assembly.splitlines():
        words = line.split("#")[0].split()
        if words and words[0].endswith(":"):
            label, inside = words[0][:-1], []
        elif words and not words[0].startswith("."):
            inside.append(" ".join(words))
            if words[0].startswith("j") and words[-1] == label:
                yield [*inside]


@pytest.mark.parametrize(("left", "right"), [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_four_bytes_of_a_row_come_into_all_lanes_with_the_load(left: str, right: str) -> None:
    """Bytes of a kind were changed in a scalar register, and copied into all lanes by the pipes that multiply: 1024 x 1024 x 1024
    took 2.80 ms, and the columns' sums were found again for each twelve rows; 2.53 now."""
    target = Target.from_features("x86_64-unknown-linux-gnu", *NAMED_TARGETS["avx512vnni"])
    params = tuple(Param(name, kind, 1) for name, kind in zip("abc", (left, right, "int32"), strict=True))
    source = "def kernel(begin, end, a, b, c):\n    gemm_bytes(96, 64, 256, a, 0, 256, b, 0, 8192, c, 0, 64, 32)\n"
    loop = max(_loops(kernel_assembly(source, KernelSignature(params), target)), key=lambda x: sum("vpdpbusd" in i for i in x))
    named = [x.split()[0] for x in loop]
    assert named.count("vpdpbusd") == 24, "twelve rows by two vectors, and nothing beside them"
    assert not any(x == "vmovd" or "(%rsp)" in i for x, i in zip(named, loop, strict=True))
    assert sum("{1to16}" in x or x.startswith("vpbroadcastd") for x in loop) == 12
    assert named.count("vpxord") == (12 if left == right else 0)
