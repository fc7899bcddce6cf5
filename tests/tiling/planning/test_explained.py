"""Nothing is unexplained: every kernel has its facts and every edge between kernels its reason, in all three formats."""

# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import codegen
import hlo
import tiling
from hlo.module import Module
from tests.random_programs import random_program
from tests.shipped_plans import MACHINE, planned
from tiling import Edge, EvaluatorStep, Fusion, Pin, Plan
from tiling.passing import without

ROOT = Path(__file__).parents[3]
FILES = [*sorted((ROOT / "examples").glob("*.mlir")), *sorted((ROOT / "tests" / "programs").glob("*.mlir"))]
KINDS = {"evaluator", "control", "rule", "order", "estimate", "untried"}


class Text(HTMLParser):
    """The text of a page; raises for tags that do not close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def assert_explained(plan: Plan) -> None:
    document = json.loads(plan.explain("json"))
    assert document == json.loads(json.dumps(plan.to_json()))
    text, page = squeezed(plan.explain()), squeezed(" ".join(Text(plan.explain("html")).words))
    assert_explained_in(plan, document, text, page)


def assert_explained_in(plan: Plan, document: dict[str, Any], text: str, page: str) -> None:
    # Every value that one step makes and another reads belongs to an edge between the two.
    makers = {v: s.name for s in plan.steps for v in (s.outputs if isinstance(s, Fusion) else s.op.results)}
    wanted = {(makers[v], f.name) for f in plan.fusions for v in f.inputs if v in makers}
    others = [s for s in plan.steps if not isinstance(s, Fusion)]
    wanted |= {(makers[v], s.name) for s in others for v in s.op.operands if v in makers}
    found = {(e.producer, e.consumer): e for e in plan.edges}
    assert wanted <= found.keys()
    for e in plan.edges:
        assert e.kind in KINDS and e.reason and e.values and e.size_bytes >= 0
        if e.kind == "estimate":
            assert e.together is not None and e.apart is not None and e.witness
        if e.kind == "order":
            assert e.witness.startswith(e.producer) and e.witness.endswith(e.consumer)
    assert [s["name"] for s in document["steps"]] == [s.name for s in plan.steps]
    for f, s in zip(plan.fusions, [s for s in document["steps"] if s["kind"] == "fusion"], strict=True):
        assert s["ops"] and s["stages"] and s["schedule"] and s["candidates"] >= 1
        assert s["bytes_fused"] == f.bytes_fused and s["predicted_seconds"] > 0
        assert {"scratch_bytes", "thread_scratch_bytes", "shared_scratch_bytes", "tile_sizes", "memory_bytes"} <= s.keys()
        for shown in (text, page):
            for part in (f.name, str(f.estimate), *s["stages"], *map(str, f.tile_sizes)):
                assert squeezed(part) in shown, part
            assert all(squeezed(line) in shown for line in s["schedule"])
    for s in [s for s in plan.steps if isinstance(s, EvaluatorStep)]:
        assert s.reason and squeezed(s.reason) in text and squeezed(s.reason) in page
        assert (s.library or "evaluator") in page
    assert len(document["edges"]) == len(plan.edges)
    for e in plan.edges:
        for part in (e.producer, e.consumer, e.reason, e.witness):
            assert squeezed(part) in text and squeezed(part) in page, part
    for c, s in zip(plan.controls, [s for s in document["steps"] if s["kind"] == "control"], strict=True):
        for region, inner in zip(c.regions, s["regions"], strict=True):
            assert_explained_in(region.plan, inner, text, page)
    for d in plan.decisions:
        assert d.reason and squeezed(d.reason) in text and squeezed(unescape(d.reason)) in page


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_programs(path: Path) -> None:
    assert_explained(planned(path, kernels=True))


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int) -> None:
    module, _ = random_program(seed, steps=18)
    assert_explained(tiling.plan(module, machine=MACHINE, supports=codegen.supports))


def test_loops_are_shown_with_the_buffers_that_they_use() -> None:
    plan = planned(ROOT / "examples" / "softmax.mlir")
    text = plan.explain()
    assert "reduce_1_tile[i0 + t0 * " in text and " maximum= arg0[i0 + t0 * " in text
    assert "divide(divide_1[i0 + t0 * " in text, "the exponentials are kept in the result's memory"
    assert not re.search(r"= .*%\d", text), "every value that is read is named by its buffer"
    assert max(map(len, text.splitlines())) <= 130


def test_a_place_that_values_name_is_shown() -> None:
    plan = planned(ROOT / "tests" / "programs" / "embedding_gradient.mlir")
    found = re.search(r"scatter_1\[p0, u1\] scatter= .*arg0\[(rt\d+), u1\]", plan.explain())
    assert found is not None and f"{found[1]} = select(" in plan.explain()


def edge(plan: Plan, kind: str) -> Edge:
    return next(e for e in plan.edges if e.kind == kind)


def main(body: str, arguments: str, results: str) -> Module:
    return hlo.parse(f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}")


TWO_PRODUCTS = main(
    """%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x2048xf32>) -> tensor<512x2048xf32>
    %1 = stablehlo.dot_general %0, %c, contracting_dims = [1] x [0] : (tensor<512x2048xf32>, tensor<2048x512xf32>) -> tensor<512x512xf32>
    return %1 : tensor<512x512xf32>""",
    "%a: tensor<512x512xf32>, %b: tensor<512x2048xf32>, %c: tensor<2048x512xf32>", "tensor<512x512xf32>")  # fmt: skip


def test_a_product_that_would_be_computed_again_says_what_and_where() -> None:
    e = edge(tiling.plan(TWO_PRODUCTS, machine=MACHINE), "estimate")
    assert e.together is not None and e.apart is not None and e.together > e.apart
    assert re.search(r"is computed [\d.]+ times over: its element \(\d+, \d+\) is needed by the tiles at", e.witness)
    assert "arithmetic" in e.witness and "instead of" in e.witness


def test_the_evaluator_says_why_it_is_asked() -> None:
    module = main(
        """%0 = stablehlo.exponential %x : tensor<65x65xf32>
        %1 = "stablehlo.cholesky"(%0) {lower = true} : (tensor<65x65xf32>) -> tensor<65x65xf32>
        %2 = stablehlo.tanh %1 : tensor<65x65xf32>
        return %2 : tensor<65x65xf32>""", "%x: tensor<65x65xf32>", "tensor<65x65xf32>")  # fmt: skip
    plan = tiling.plan(module, machine=MACHINE)
    reasons = {(e.producer.partition("_")[0], e.consumer.partition("_")[0]): e for e in plan.edges}
    assert [e.kind for e in reasons.values()] == ["evaluator"] * len(reasons) and len(reasons) >= 1
    (step,) = [s for s in plan.steps if isinstance(s, EvaluatorStep)]
    assert any(e.reason == f"{step.library or 'the evaluator'} makes it" for e in plan.edges)
    assert all(e.witness == step.reason for e in plan.edges)


def test_loops_of_the_program_are_explained_inside() -> None:
    module = main(
        """%z = stablehlo.constant dense<0> : tensor<i32>
        %n = stablehlo.constant dense<5> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %e = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
        %0:2 = stablehlo.while(%i = %z, %a = %e) : tensor<i32>, tensor<64x64xf32>
          cond { %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
                 stablehlo.return %c : tensor<i1> }
          do { %j = stablehlo.add %i, %one : tensor<i32>
               %b = stablehlo.dot_general %a, %x, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
               %t = stablehlo.tanh %b : tensor<64x64xf32>
               stablehlo.return %j, %t : tensor<i32>, tensor<64x64xf32> }
        return %0#1 : tensor<64x64xf32>""", "%x: tensor<64x64xf32>", "tensor<64x64xf32>")  # fmt: skip
    plan = tiling.plan(module, machine=MACHINE, supports=codegen.supports)
    assert_explained(plan)
    assert [e.kind for e in plan.edges] == ["control"] and "a loop of the program" in plan.edges[0].reason
    assert "tanh" in plan.explain()


def test_what_runs_between_is_named() -> None:
    """y = f(x) @ w + f(x), where the product is for others, too: the third step reads the first directly and through the second."""
    plan = planned(ROOT / "examples" / "encoder_block.mlir")
    between = [e for e in plan.edges if e.kind == "order"]
    assert between
    assert re.fullmatch(r"(k\w+ -%\w+-> )+k\w+", between[0].witness)


def test_pins_and_time_are_reasons() -> None:
    late = tiling.plan(TWO_PRODUCTS, machine=MACHINE, budget_seconds=0.0)
    assert [e.reason for e in late.edges] == ["not tried: the planner's time was over"]
    (first, second) = late.pins()
    pinned = tiling.plan(TWO_PRODUCTS, machine=MACHINE, pins=[Pin(first.ops), Pin(second.ops)])
    assert [(e.kind, e.reason) for e in pinned.edges] == [("rule", "one of them is pinned")]


def test_formats() -> None:
    plan = tiling.plan(TWO_PRODUCTS, machine=MACHINE)
    assert plan.explain() == plan.explain("text") == str(plan)
    assert plan.explain("html") == plan._repr_html_()
    with pytest.raises(ValueError, match="expected the format text, json or html, found 'pdf'"):
        plan.explain("pdf")


def test_shared_elements_are_shared() -> None:
    from tests.tiling.tiles.tile_checks import elements
    from tiling.planning.reasons import shared_element

    module = hlo.parse("""HloModule m
    ENTRY e { p = f32[8,9] parameter(0) n = f32[8,9] negate(p) t = f32[9,8] transpose(n), dimensions={1,0}
      s = f32[9,1] slice(t), slice={[0:9], [2:3]} r = f32[9] reshape(s) ROOT b = f32[8,9] broadcast(r), dimensions={1} }""")
    root, value = module.root.results[0], module.root.operands[0]
    found = shared_element(root, value, [4, 3])
    assert found is not None
    element, first, second = found
    from indexing import maps_from

    (m,) = maps_from(root, (value,))[value]
    for origin in (first, second):
        assert element in set(map(tuple, elements(m, [4, 3], list(origin), []).tolist()))
    assert shared_element(root, module.root.operands[0], [8, 3]) is None


def residual(layers: int) -> str:
    """Images of 28 x 28 with 64 channels through 3 x 3 windows, each twice, added to what they are made of."""
    body, x = "", "%x"
    for k in range(2 * layers):
        source = "%x" if k == 0 else f"%m{k - 1}"
        body += (
            f"%c{k} = stablehlo.convolution({source}, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{stride = [1, 1],"
            " pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
            " : (tensor<1x28x28x64xf32>, tensor<3x3x64x64xf32>) -> tensor<1x28x28x64xf32>\n"
        )
        added = f"%c{k}"
        if k % 2:
            body += f"%a{k} = stablehlo.add %c{k}, {x} : tensor<1x28x28x64xf32>\n"
            added, x = f"%a{k}", f"%m{k}"
        body += f"%m{k} = stablehlo.tanh {added} : tensor<1x28x28x64xf32>\n"
    image, weights = "tensor<1x28x28x64xf32>", "tensor<3x3x64x64xf32>"
    return f"func.func @main(%x: {image}, %w: {weights}) -> {image} {{\n{body}return {x} : {image}\n}}"


def test_witnesses_are_looked_for_inside_of_two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind them lies the rest of the program: a network of 18 layers with windows was not explained in two minutes."""
    from tiling.planning import reasons

    seen: list[int] = []
    maps_from = reasons.maps_from
    monkeypatch.setattr(reasons, "maps_from", lambda *x: (found := maps_from(*x), seen.append(len(found)))[0])
    most = []
    for layers in (2, 6):
        seen.clear()
        with without("winograd_convolutions"):
            text = tiling.plan(hlo.parse(residual(layers)), machine=MACHINE, supports=codegen.supports).explain()
        assert "times over: its element" in text
        most.append(max(seen))
    assert most[0] == most[1]


ALONE = """func.func @main(%x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %a = stablehlo.tanh %x : tensor<64x128xf32>
  %s = "stablehlo.sort"(%a) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %c = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %e = stablehlo.exponential %s : tensor<64x128xf32>
  return %e : tensor<64x128xf32>
}"""


@pytest.mark.machine("avx512")
def test_the_routine_is_named_that_runs_alone() -> None:
    """Of a sort that is read, its reader was named."""
    plan = tiling.plan(hlo.parse(ALONE), supports=codegen.supports)
    reasons = {(d.producer, d.consumer): d.reason for d in plan.decisions}
    alone = "stablehlo.sort runs in a kernel of its own"
    assert reasons == {("s", "e"): alone, ("a", "s"): alone}


@pytest.mark.machine("avx512")
def test_no_bound_beyond_every_index_is_printed() -> None:
    """A mask's condition was said to lie in [0, 4611686018427387904]."""
    plan = tiling.plan(hlo.load("examples/causal_attention.mlir"), supports=codegen.supports)
    text = str(plan) + str(tiling.prove(plan)) + plan.explain()
    assert "4611686018427387904" not in text and " >= 0" in text


@pytest.mark.machine("avx512")
def test_reasons_look_at_two_kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An element that two tiles share was looked for along all paths to the arguments: with skip connections there are twice as
    many for each, and the explanation of a ResNet-18 took minutes."""
    from tiling.planning import reasons

    lines, x = ["%z = stablehlo.constant dense<0.0> : tensor<f32>"], "%x"
    t = "tensor<1x64x24x24xf32>"
    for k in range(6):
        lines.append(f"""%e{k} = stablehlo.exponential {x} : {t}
        %c{k} = stablehlo.convolution(%e{k}, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
          window = {{stride = [1, 1], pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
          : ({t}, tensor<64x64x3x3xf32>) -> {t}
        %y{k} = stablehlo.add %c{k}, {x} : {t}""")
        x = f"%y{k}"
    body = "\n".join(lines)
    module = hlo.parse(f"func.func @main(%x: {t}, %w: tensor<64x64x3x3xf32>) -> {t} {{ {body}\n return {x} : {t} }}")
    walked: list[int] = []
    maps_from = reasons.maps_from

    def watched(*args: Any) -> Any:
        found = maps_from(*args)
        walked.append(len(found))
        return found

    monkeypatch.setattr(reasons, "maps_from", watched)
    with without("winograd_convolutions"):
        plan = tiling.plan(module)
    assert len(plan.fusions) >= 6 and len(plan.edges) >= 6
    assert walked and max(walked) <= 10, walked
