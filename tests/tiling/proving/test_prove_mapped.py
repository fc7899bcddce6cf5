"""Proofs about values: every load takes the element that the maps lead to, and nothing that is needed is left out."""

# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.module import Value
from indexing.expr import Const, Expr, Var, as_expr, maximum, substitute
from tests.tiling.proving.test_prove import (
    MACHINE,
    MATMUL,
    PROGRAMS,
    SOFTMAX,
    contraction,
    matmul,
    planned,
    refuted,
    softmax,
    told,
    with_steps,
    with_store,
)
from tiling import Contract, Fusion, Loop, Nest, Phase, Schedule, Scope, prove
from tiling.loops.domains import guards
from tiling.loops.element_ir import Apply, Choose, Load, Node
from tiling.loops.ir import LoopKind, Turn


def changed(node: Node, change: Callable[[Load], Load]) -> Node:
    """The node with its loads changed."""
    if isinstance(node, Load):
        return change(node)
    if isinstance(node, Apply):
        return replace(node, arguments=tuple(changed(a, change) for a in node.arguments))
    if isinstance(node, Choose):
        return replace(node, then=changed(node.then, change), otherwise=changed(node.otherwise, change))
    return node


def with_loads(schedule: Schedule, change: Callable[[Load], Load], phase: int = -1) -> Schedule:
    def nest(s: Nest) -> Nest:
        stores = tuple(replace(x, node=changed(x.node, change)) for x in s.stores)
        folds = tuple(replace(f, nodes=tuple(changed(n, change) for n in f.nodes)) for f in s.folds)
        return replace(s, stores=stores, folds=folds)

    def step(s: Any) -> Any:
        if isinstance(s, Contract):
            return replace(s, pack=tuple(map(nest, s.pack)))
        return nest(s) if isinstance(s, Nest) else s

    return with_steps(schedule, step, phase)


def only(value: str, change: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]) -> Callable[[Load], Load]:
    """A change of the index of one value's loads."""
    return lambda x: replace(x, index=change(x.index)) if x.value.name == value else x


def text_of(body: str, arguments: str, results: str) -> Fusion:
    (fusion,) = tiling.plan(hlo.parse(f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}"), machine=MACHINE).fusions
    assert prove(fusion).holds, told(prove(fusion))
    return fusion


def test_obligations_are_there() -> None:
    names = [o.name for o in prove(softmax()).obligations]
    assert names.count("mapped") == 4 and names.count("complete") >= 4
    assert {"mapped", "complete", "paired"} <= {o.name for o in prove(matmul()).obligations}


SQUARE = text_of(
    """%0 = stablehlo.tanh %x : tensor<48x48xf32>
    %1 = stablehlo.add %0, %y : tensor<48x48xf32>
    return %1 : tensor<48x48xf32>""",
    "%x: tensor<48x48xf32>, %y: tensor<48x48xf32>", "tensor<48x48xf32>").schedule  # fmt: skip


def test_an_element_of_another_row() -> None:
    """Within bounds, written once, in order: only the maps tell that it is the wrong element."""
    wrong = with_loads(SQUARE, only("x", lambda i: (i[1], i[0])))
    proof = prove(wrong)
    assert {o.name for o in proof.refuted} == {"mapped", "complete", "computed"}
    (o,) = refuted(wrong, "mapped")
    assert "%x is read where no map leads: x0 = " in o.witness
    (o,) = refuted(wrong, "complete")
    assert "%x is needed but not read" in o.witness


def test_backwards() -> None:
    refuted(with_loads(SQUARE, only("y", lambda i: (i[0], 47 - i[1]))), "mapped")


def test_one_value_for_another() -> None:
    y = next(b.value for b in SQUARE.buffers_in(Scope.ARGUMENT) if b.value is not None and b.value.name == "y")
    assert isinstance(y, Value)
    wrong = with_loads(SQUARE, lambda x: replace(x, value=y))
    (o,) = refuted(wrong, "complete")
    assert "%x is needed but not read" in o.witness
    schedule = softmax()
    exponentials = next(s for s in schedule.phases[-1].steps if isinstance(s, Nest) and s.stores and s.folds).stores[0]
    assert exponentials.value is not None
    swapped = with_loads(schedule, lambda x: replace(x, value=exponentials.value) if x.value.name == "x" and len(x.index) == 2 else x)
    assert prove(swapped).refuted


def test_a_reduction_that_stops_short() -> None:
    def shorter(s: Any) -> Any:
        if not isinstance(s, Nest) or not s.folds or s.stores:
            return s
        last = s.loops[-1]
        assert last.kind is LoopKind.REDUCTION
        return replace(s, loops=(*s.loops[:-1], replace(last, upper=last.upper - 1, extent=last.extent - 1)))

    wrong = with_steps(softmax(), shorter)
    assert {o.name for o in prove(wrong).refuted} == {"complete", "folded once"}
    witnesses = [o.witness for o in refuted(wrong, "complete")]
    assert "an element that counts is not folded" in refuted(wrong, "folded once")[0].witness
    assert any("%x is needed but not read" in w and "y1 = 39" in w for w in witnesses)


def test_a_reduction_that_takes_elements_twice() -> None:
    """Every element is there, so as sets nothing is missing: the count tells."""

    def longer(s: Any) -> Any:
        if not isinstance(s, Nest) or not s.folds or s.stores:
            return s
        last = s.loops[-1]
        twice = replace(last, upper=as_expr(79), extent=80)
        folds = tuple(
            replace(f, nodes=tuple(changed(n, only("x", lambda i: (i[0], i[1] // 2))) for n in f.nodes)) for f in s.folds
        )
        return replace(s, loops=(*s.loops[:-1], twice), folds=folds)

    schedule = softmax()
    wrong = with_steps(replace(schedule, ranges={}), longer)
    (o,) = refuted(wrong, "folded once")
    assert o.witness == "an element is folded by two iterations"


def test_a_shifted_reduction() -> None:
    wrong = with_loads(softmax(), lambda x: replace(x, index=(as_expr(95 - x.index[0]), *x.index[1:])) if x.value.name == "x" else x)
    assert {"mapped", "complete"} <= {o.name for o in prove(wrong).refuted}


# ---------------------------------------------------------------- contractions


def _contract(schedule: Schedule, **changes: Any) -> Schedule:
    return with_steps(schedule, lambda s: replace(s, **changes) if isinstance(s, Contract) else s)


def test_a_product_over_part_of_the_depth() -> None:
    schedule = matmul()
    c = contraction(schedule)
    (o,) = refuted(_contract(schedule, k=c.k - 4), "complete")
    assert "is needed but not read" in o.witness


def test_packed_columns_of_another_panel() -> None:
    """The packed operand is read through: each panel takes its neighbour's columns."""
    schedule = matmul()
    assert len(schedule.phases) == 2, "the example is meant to pack an operand ahead"
    wrong = with_loads(schedule, only("b", lambda i: (i[0], 699 - i[1])), phase=0)
    assert {"mapped", "complete"} <= {o.name for o in prove(wrong).refuted}


def test_rows_that_are_packed_upside_down() -> None:
    """As a set the same elements are read, since the rows are summed over: but with the factors of others."""
    schedule = matmul()
    wrong = with_loads(schedule, only("b", lambda i: (299 - i[0], i[1])), phase=0)
    assert {o.name for o in prove(wrong).refuted} == {"paired"}
    (o,) = refuted(wrong, "paired")
    assert "multiplied, though the op does not: x0 = " in o.witness and "%a at y0" in o.witness and "%b at y0" in o.witness


def test_rows_from_another_tile() -> None:
    schedule = matmul()
    c = contraction(schedule)
    tile = schedule.phases[-1].tiles[0][0]
    wrong = _contract(schedule, left=replace(c.left, base=as_expr(c.left.base - c.left.base + 0 * tile)))
    assert {"mapped", "complete"} & {o.name for o in prove(wrong).refuted}


def test_a_batched_product_that_stays_in_the_first_batch() -> None:
    fusion = text_of(
        """%0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1] x [2]
        : (tensor<3x900x64xf32>, tensor<3x80x900xf32>) -> tensor<3x64x80xf32>
      return %0 : tensor<3x64x80xf32>""",
        "%a: tensor<3x900x64xf32>, %b: tensor<3x80x900xf32>", "tensor<3x64x80xf32>")  # fmt: skip
    c = contraction(fusion.schedule)
    outer: dict[Var, Expr | int] = {x.variable: 0 for x in c.loops}
    outer |= {v: 0 for v, _ in fusion.schedule.phases[-1].tiles}
    assert any(v in c.right.base.variables for v in outer)
    wrong = _contract(fusion.schedule, right=replace(c.right, base=substitute(c.right.base, outer)))
    assert {"mapped", "complete", "paired"} <= {o.name for o in prove(wrong).refuted}


# ---------------------------------------------------------------- other ops


def test_a_slice_from_another_place() -> None:
    (fusion,) = planned(PROGRAMS["dynamic slice"]).fusions
    assert prove(fusion).holds, told(prove(fusion))
    wrong = with_loads(fusion.schedule, only("a", lambda i: (i[0], as_expr(i[0]))))
    assert prove(wrong).refuted


def test_the_wrong_end_of_a_concatenation() -> None:
    fusion = text_of(
        """%0 = stablehlo.concatenate %a, %b, dim = 1 : (tensor<5x7xf32>, tensor<5x7xf32>) -> tensor<5x14xf32>
    return %0 : tensor<5x14xf32>""", "%a: tensor<5x7xf32>, %b: tensor<5x7xf32>", "tensor<5x14xf32>")  # fmt: skip

    def swap(x: Load) -> Load:
        others = {b.value.name: b.value for b in fusion.schedule.buffers_in(Scope.ARGUMENT) if b.value is not None}
        return replace(x, value=others["b" if x.value.name == "a" else "a"])

    assert {"mapped", "complete"} <= {o.name for o in prove(with_loads(fusion.schedule, swap)).refuted}


def test_a_tile_turned_the_wrong_way() -> None:
    (fusion,) = planned(PROGRAMS["transposes"]).fusions
    turns = [s for p in fusion.schedule.phases for s in p.steps if isinstance(s, Turn)]
    assert turns and prove(fusion).holds

    def shifted(s: Any) -> Any:
        return replace(s, source=replace(s.source, base=s.source.base + 1)) if isinstance(s, Turn) else s

    assert {"mapped", "complete", "in bounds"} & {o.name for o in prove(with_steps(fusion.schedule, shifted)).refuted}


def test_pieces_of_a_long_reduction_are_looked_through() -> None:
    (fusion,) = planned(PROGRAMS["a long reduction"]).fusions
    schedule = fusion.schedule
    assert len(schedule.phases) == 2 and prove(fusion).holds
    first = schedule.phases[0]
    ((piece, n),) = first.tiles

    def overlapping(x: Load) -> Load:
        return replace(x, index=tuple(as_expr(e - piece) if piece in e.variables else e for e in x.index))

    wrong = with_loads(schedule, overlapping, phase=0)
    (o,) = refuted(wrong, "complete")
    assert "%x is needed but not read" in o.witness
    fewer = replace(schedule, phases=(Phase(((piece, n - 1),), first.steps), *schedule.phases[1:]))
    assert prove(fewer).refuted


def test_a_padded_window_keeps_its_conditions() -> None:
    """With more elements than are written out, so that it is a loop."""
    text = """func.func @main(%x: tensor<30x30xf32>) -> tensor<30x30xf32> {
      %z = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %0 = "stablehlo.reduce_window"(%x, %z) <{window_dimensions = array<i64: 5, 5>, padding = dense<2> : tensor<2x2xi64>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %m = stablehlo.maximum %a, %b : tensor<f32>
          stablehlo.return %m : tensor<f32> }) : (tensor<30x30xf32>, tensor<f32>) -> tensor<30x30xf32>
      return %0 : tensor<30x30xf32> }"""
    (fusion,) = planned(text).fusions
    assert prove(fusion).holds, told(prove(fusion))

    def narrower(s: Any) -> Any:
        if not isinstance(s, Nest) or not s.folds:
            return s
        loops = tuple(replace(x, lower=as_expr(x.upper)) if x.kind is LoopKind.REDUCTION else x for x in s.loops)
        return replace(s, loops=loops)

    assert "complete" in {o.name for o in prove(with_steps(fusion.schedule, narrower)).refuted}


def test_programs_of_this_page_hold() -> None:
    for text in (SOFTMAX, MATMUL):
        assert prove(planned(text)).holds


@pytest.mark.parametrize("upper", [Const(38), Const(12)])
def test_elementwise_loops_too_short(upper: Const) -> None:
    def shorter(s: Any) -> Any:
        if isinstance(s, Nest) and s.stores and not s.folds:
            loops = (*s.loops[:-1], Loop(s.loops[-1].variable, Const(0), upper, 1, s.loops[-1].kind))
            return replace(s, loops=loops)
        return s

    assert isinstance(upper, Expr) and isinstance(Var("t0"), Expr)
    assert "written once" in {o.name for o in prove(with_steps(softmax(), shorter)).refuted}


STARTS = """func.func @main(%x: tensor<12x9xf32>) -> (tensor<3x4xf32>, tensor<5x9xf32>, tensor<12x9xf32>) {
  %c = stablehlo.constant dense<11> : tensor<i32>
  %m = stablehlo.constant dense<-4> : tensor<i32>
  %f = stablehlo.constant dense<0.5> : tensor<3x4xf32>
  %e = stablehlo.exponential %x : tensor<12x9xf32>
  %0 = stablehlo.dynamic_slice %e, %c, %m, sizes = [3, 4] : (tensor<12x9xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
  %i = stablehlo.iota dim = 0 : tensor<5x1xi32>
  %three = stablehlo.constant dense<3> : tensor<5x1xi32>
  %j = stablehlo.multiply %i, %three : tensor<5x1xi32>
  %1 = "stablehlo.gather"(%e, %j) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 9>}>
    : (tensor<12x9xf32>, tensor<5x1xi32>) -> tensor<5x9xf32>
  %2 = stablehlo.dynamic_update_slice %e, %f, %c, %m
    : (tensor<12x9xf32>, tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<12x9xf32>
  return %0, %1, %2 : tensor<3x4xf32>, tensor<5x9xf32>, tensor<12x9xf32>
}"""


def test_starts_that_the_program_tells_are_no_runtime_values() -> None:
    module = hlo.parse(STARTS)
    plan = tiling.plan(module)
    assert prove(plan).holds
    assert not any("kept in" in str(f.schedule) for f in plan.fusions)
    x = np.random.default_rng(0).standard_normal((12, 9)).astype(np.float32)
    for found, want in zip(codegen.compile(module)(x), interp.evaluate(module, x), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_columns_of_a_product_that_lie_in_two_rows_of_its_operand() -> None:
    """Columns 7 to 23 of the reshaped operand: the address goes on into the next row, the position must, too."""
    module = hlo.parse("""func.func @main(%x: tensor<16x17xf32>) -> tensor<34x4xf32> {
      %a = stablehlo.reshape %x : (tensor<16x17xf32>) -> tensor<8x34xf32>
      %p = stablehlo.dot_general %a, %a, contracting_dims = [0] x [0] : (tensor<8x34xf32>, tensor<8x34xf32>) -> tensor<34x34xf32>
      %s = stablehlo.slice %p [0:34, 7:24:5] : (tensor<34x34xf32>) -> tensor<34x4xf32>
      return %s : tensor<34x4xf32>
    }""")
    plan = tiling.plan(module)
    assert prove(plan).holds


def test_a_row_taken_and_put_at_the_same_place_is_one_place() -> None:
    """Composed maps name the start once for the slice and once for the update: they are the same number."""
    module = hlo.parse("""func.func @main(%x: tensor<7x9xf32>, %y: tensor<7x9xf32>, %i: tensor<i32>) -> tensor<7x9xf32> {
      %z = stablehlo.constant dense<0> : tensor<i32>
      %r = stablehlo.dynamic_slice %x, %i, %z, sizes = [1, 9] : (tensor<7x9xf32>, tensor<i32>, tensor<i32>) -> tensor<1x9xf32>
      %n = stablehlo.negate %r : tensor<1x9xf32>
      %u = stablehlo.dynamic_update_slice %y, %n, %i, %z
        : (tensor<7x9xf32>, tensor<1x9xf32>, tensor<i32>, tensor<i32>) -> tensor<7x9xf32>
      %s = stablehlo.subtract %u, %y : tensor<7x9xf32>
      return %s : tensor<7x9xf32>
    }""")
    plan = tiling.plan(module)
    assert len(plan.fusions) == 1
    assert prove(plan).holds


PADDED_SUMS = """func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.pad %x, %z, low = [LOW], high = [HIGH], interior = [0] : (tensor<64xf32>, tensor<f32>) -> tensor<127xf32>
  %r = "stablehlo.reduce_window"(%p, %z) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {window_dimensions = array<i64: 64>} : (tensor<127xf32>, tensor<f32>) -> tensor<64xf32>
  return %r : tensor<64xf32>
}"""


def running_sums(low: int) -> tuple[Fusion, Nest]:
    """The scan of a cumulative sum, from the first element or from the last."""
    (fusion,) = tiling.plan(hlo.parse(PADDED_SUMS.replace("LOW", str(low)).replace("HIGH", str(63 - low)))).fusions
    (nest,) = fusion.schedule.main.steps
    assert isinstance(nest, Nest) and nest.loops[-1].kind is LoopKind.SCAN
    return fusion, nest


@pytest.mark.parametrize("low", [63, 0])
def test_a_cumulative_sum_of_64_elements_is_proved(low: int) -> None:
    """A result of a scan holds what all iterations up to its own have read: no count of one iteration's."""
    fusion, _ = running_sums(low)
    proof = tiling.prove(fusion)
    assert proof.holds, "\n".join(map(str, (*proof.refuted, *proof.undecided)))


@pytest.mark.parametrize("low", [63, 0])
def test_scans_that_go_the_wrong_way_or_miss_an_element_are_refuted(low: int) -> None:
    fusion, nest = running_sums(low)
    (fold,) = nest.folds
    (i,) = nest.loops
    other = {i.variable: 63 - i.variable}

    def broken(changed: Nest) -> set[str]:
        main = replace(fusion.schedule.main, steps=(changed,))
        return {o.name for o in tiling.prove(replace(fusion.schedule, phases=(main,))).refuted}

    (node,) = fold.nodes
    assert isinstance(node, Load)
    backwards = Load(node.value, tuple(substitute(e, other) for e in node.index))
    turned = replace(fold, index=tuple(substitute(e, other) for e in fold.index), nodes=(backwards,))
    assert {"mapped", "complete"} <= broken(replace(nest, folds=(turned,)))
    second = Load(node.value, tuple(substitute(e, {i.variable: maximum(i.variable, 1)}) for e in node.index))
    assert "complete" in broken(replace(nest, folds=(replace(fold, nodes=(second,)),)))


def test_where_a_select_gives_no_number_elements_are_drawn_again() -> None:
    """Three draws that all took the side without numbers told nothing: right expressions stayed undecided (truncnorm's)."""
    t, p = "tensor<3x7xf32>", "tensor<3x7xi1>"
    fusion = text_of(
        f"%nan = stablehlo.constant dense<0x7FC00000> : {t} %s = stablehlo.add %a, %b : {t}"
        f" %c = stablehlo.compare GT, %a, %b : ({t}, {t}) -> {p} %y = stablehlo.select %c, %nan, %s : ({p}, {t}, {t}) -> {t}"
        f" return %y : {t}",
        f"%a: {t}, %b: {t}", t,
    )  # fmt: skip

    def written(function: str) -> Schedule:
        def otherwise(node: Node) -> Node:
            assert isinstance(node, Apply) and isinstance(node.arguments[2], Apply)
            s = node.arguments[2]
            return replace(node, arguments=(*node.arguments[:2], replace(s, function=function, arguments=(s, s))))

        return with_store(fusion.schedule, lambda s: replace(s, node=otherwise(s.node)))

    assert prove(replace(fusion, schedule=written("maximum"))).holds
    found = prove(replace(fusion, schedule=written("multiply")))
    assert [o.name for o in found.refuted] == ["computed"] and "the op computes something else" in found.refuted[0].witness


def columns(count: int) -> Schedule:
    """The schedule of a table: in column k the argument, k times; in the last column a number."""
    lines = [
        f"%c{k} = stablehlo.constant dense<{k}.0> : tensor<9xf32>\n %p{k} = stablehlo.multiply %x, %c{k} : tensor<9xf32>\n"
        f" %q{k} = stablehlo.reshape %p{k} : (tensor<9xf32>) -> tensor<9x1xf32>"
        for k in range(count)
    ]
    names, types = "".join(f"%q{k}, " for k in range(count)), ", ".join(["tensor<9x1xf32>"] * (count + 1))
    made = f"tensor<9x{count + 1}xf32>"
    lines.append("%z = stablehlo.constant dense<0.5> : tensor<9x1xf32>")
    lines.append(f"%r = stablehlo.concatenate {names}%z, dim = 1 : ({types}) -> {made}\n return %r : {made}")
    (fusion,) = planned(f"func.func @main(%x: tensor<9xf32>) -> {made} {{\n" + "\n".join(lines) + "\n}").fusions
    return fusion.schedule


def test_a_load_that_is_made_in_many_ways_is_made_in_no_other() -> None:
    """Of more than sixteen ways it counted as made always, and was refuted where it is not made (special.exp1 and others)."""
    schedule = columns(20)
    proof = prove(schedule)
    assert proof.holds, proof
    assert prove(with_loads(schedule, lambda x: replace(x, index=(Const(0),)))).refuted


def test_what_may_be_read_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is a read that may not be made a fault, nor is what it may read read."""
    monkeypatch.setattr(guards, "GUARDS_LIMIT", 8)
    proof = prove(columns(20))
    assert not proof.refuted
    found = {o.name: o.witness for o in proof.undecided}
    assert found["mapped"].startswith("read in more ways than are kept apart: %x is read where no map leads")
    assert found["complete"].startswith("read in more ways than are kept apart")


@pytest.mark.parametrize(("numbers", "loads_of_k"), [("1.0", 1), ("[1.0, 2.0, 3.0, 4.0]", 2)])
def test_where_a_slice_of_equal_numbers_begins_is_not_needed(numbers: str, loads_of_k: int) -> None:
    """It was asked for where another slice of the kernel begins there, too: right schedules of loops' gradients were refuted."""
    (fusion,) = planned(f"""func.func @main(%x: tensor<5xf32>, %k: tensor<i32>) -> tensor<8xf32> {{
      %c = stablehlo.constant dense<{numbers}> : tensor<4xf32>
      %s = stablehlo.dynamic_slice %c, %k, sizes = [1] : (tensor<4xf32>, tensor<i32>) -> tensor<1xf32>
      %q = stablehlo.reshape %s : (tensor<1xf32>) -> tensor<f32>
      %b = stablehlo.broadcast_in_dim %q, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %w = stablehlo.dynamic_slice %x, %k, sizes = [2] : (tensor<5xf32>, tensor<i32>) -> tensor<2xf32>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %t = stablehlo.reduce(%w init: %z) applies stablehlo.add across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
      %u = stablehlo.broadcast_in_dim %t, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %y = stablehlo.add %u, %b : tensor<8xf32>
      return %y : tensor<8xf32>
    }}""").fusions
    proof = prove(fusion)
    assert proof.holds, proof
    assert str(fusion.schedule).count("k[]") == loads_of_k
