"""The explorer's page in Chromium: its maps are Python's, elements are followed, tiles and stages shown,
by pointer and keys."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import tilewright
import tiling
from indexing import input_to_output, output_to_input
from indexing.map import IndexingMap
from tests.explorer.browser import answers
from tests.explorer.test_data import MAPS, encoder, program
from tilewright.explorer.data import map_data
from tilewright.explorer.front import Explorer
from tiling.loops.text import show_schedule

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def windows() -> Explorer:
    return tilewright.explore(program())


@pytest.fixture(scope="module")
def softmax() -> Explorer:
    return tilewright.explore(hlo.load("examples/softmax.mlir"))


def elements(m: IndexingMap, index: tuple[int, ...], runtime: int) -> list[list[int]]:
    """What a map has for an index, by Python's own evaluation."""
    if m.is_known_empty or any(i not in v.interval for i, v in zip(index, m.dims, strict=True)):
        return []
    sides = [range(v.interval.lower, v.interval.upper + 1) for v in m.ranges]
    rts = [min(max(runtime, v.interval.lower), v.interval.upper) for v in m.runtimes]
    points = [[*p, *rts] for p in itertools.product(*sides)]
    return [[int(x) for x in m.evaluate(index, p)] for p in points if bool(m.holds(index, p))]


def test_maps_in_the_page_are_pythons(windows: Explorer) -> None:
    """Every map of a program both ways, and maps with all kinds of terms, element by element."""
    from indexing import parse_map

    ops = tilewright.plan(program()).program.ops
    maps = [parse_map(t) for t in MAPS]
    maps += [m for op in ops for k in range(len(op.results)) for ms in output_to_input(op, k) for m in ms]
    maps += [m for op in ops for k in range(len(op.operands)) for ms in input_to_output(op, k) for m in ms]
    known = [m for m in maps if m.unknown is None]
    assert len(known) > 12 and any(m.runtimes for m in known) and any(m.constraints for m in known)
    chosen = np.random.default_rng(0)
    cases = [
        (m, tuple(int(chosen.integers(v.interval.lower,
        v.interval.upper + 1)) for v in m.dims)) for m in known for _ in range(4)
    ]
    given = json.dumps([[map_data(m), index] for m, index in cases])
    found = answers(windows.html, f"""return {given}.map(([m, index]) => {{ const all = [];
        Maps.each(m, index, (n, low, high) => Math.min(Math.max(2, low), high), (e) => all.push(e), 1e6);
        const box = Maps.box(m, index.map((i) => [i, i]), m.results.map(() => 1e9));
        return [all, all.every((e) => e.every((i, k) => i < 0 || (box && box[k][0] <= i && i <= box[k][1])))];
        }})""")  # fmt: skip
    for (m, index), (all_, is_in_box) in zip(cases, found, strict=True):
        assert sorted(all_) == sorted(elements(m, index, 2)), (str(m), index)
        assert is_in_box, (str(m), index)


def reach(start: str, index: tuple[int, ...], backward: bool, runtime: int = 0) -> dict[str, set[tuple[int, ...]]]:
    """The elements that an element reads, or feeds, through all ops: by Python's maps."""
    plan = tilewright.plan(program())
    name = plan.names.of
    ops = list(plan.program.ops)
    values = {name(v): v for op in ops for v in (*op.operands, *op.results)}
    found = {start: {index}}
    for op in reversed(ops) if backward else ops:
        for r, result in enumerate(op.results):
            for n, operand in enumerate(op.operands):
                source, target = (result, operand) if backward else (operand, result)
                maps = output_to_input(op, r)[n] if backward else input_to_output(op, n)[r]
                for at, m in itertools.product(found.get(name(source), ()), maps):
                    hits = {tuple(e) for e in elements(m, at, runtime)}
                    shape = values[name(target)].shape
                    inside = {e for e in hits if all(0 <= i < s for i, s in zip(e, shape, strict=True))}
                    if inside:
                        found.setdefault(name(target), set()).update(inside)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("backward", [True, False])
def test_elements_are_followed(windows: Explorer, backward: bool) -> None:
    """Through a slice at a runtime index, windows and a padding, back to the argument, and from there to the result."""
    start, index, direction = ("s", (1, 2, 3, 0), "reads") if backward else ("x", (1, 2, 1, 1), "feeds")
    found = answers(windows.html, f"""
        const v = app.data.values.findIndex((v) => v.name === "{start}");
        document.getElementById("direction").value = "{direction}";
        const shape = app.data.values[v].shape, {{walk}} = app.follow;
        const all = app.follow.walk(v, [Shape.flat({list(index)}, shape)], {str(backward).lower()});
        return [...all].map(([w, f]) => [app.data.values[w].name, [...f.region.each()].map((k) => Shape.index(k,
        app.data.values[w].shape))])
    """)  # fmt: skip
    expected = reach(start, index, backward)
    assert {n: {tuple(e) for e in es} for n, es in found if es} == expected
    assert len(expected) >= 4


def test_pointer_keys_and_sliders(windows: Explorer) -> None:
    """Pointing lights, a click keeps, arrows move, a slider moves what a runtime variable is, and each says so in words."""
    said = answers(windows.html, """
        const said = [], note = () => said.push(document.getElementById("said").textContent);
        const op = (name) => app.data.ops.findIndex((o) => o.name.endsWith(name));
        app.chooseOp(op("dynamic_slice"));
        document.getElementById("depth").value = "1";
        app.rebuild(); note();
        const canvas = () => app.grids.get(app.value).canvas;
        const press = (key) => canvas().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        press("ArrowLeft"); press("ArrowUp"); note();
        const slider = [...document.querySelectorAll("[data-runtime]")].find((s) => s.dataset.runtime.endsWith(":0:rt3"))
          || document.querySelectorAll("[data-runtime]")[0];
        slider.value = slider.max; slider.dispatchEvent(new Event("input")); note();
        document.querySelector("#tab-elements").focus();
        app.chooseOp(op("pad"));
        const grid = app.grids.get(app.value), box = canvas().getBoundingClientRect();
        const at = (i, j) => ({ clientX: box.left + 1 + (j + .5) * grid.cell, clientY: box.top + 1 + (i + .5) * grid.cell,
        bubbles: true });
        canvas().dispatchEvent(new PointerEvent("pointermove", at(0, 3))); note();
        canvas().dispatchEvent(new MouseEvent("click", at(2, 3))); note();
        said.push([grid.hatched.size, canvas().getAttribute("aria-label")]);
        document.getElementById("index").value = "1, 0, 7, 7";
        document.getElementById("index").dispatchEvent(new Event("change")); note();
        document.getElementById("index").value = "9"; document.getElementById("index").dispatchEvent(new Event("change"));
        note();
        return said
    """)  # fmt: skip
    assert said[0].startswith("%s[1, 1, 2, 2] reads %w 1 of 294: [1, 1, 2, 2]")
    assert said[1].startswith("%s[1, 1, 1, 1] reads %w 1 of 294: [1, 1, 1, 1]")
    assert said[2].startswith("%s[1, 1, 1, 1] reads %w 1 of 294: [1, 1,") and said[2] != said[1]
    assert "%x" not in said[3] and said[3].startswith("%p[1, 1, 0, 3] reads")  # padding
    assert "%x 1 of 180: [1, 1, 1, 2]" in said[4]
    assert said[5] == [2 * 3 * (64 - 30), "%p 2x3x8x8xf32: element [1, 1, 2, 3]; 204 hatched"]
    assert said[6].startswith("%p[1, 0, 7, 7] reads") and said[7] == "expected an index into [2,3,8,8], found 9"


@pytest.mark.slow
def test_graph(softmax: Explorer) -> None:
    """Boxes fold, ops are buttons with words, zoom and find work, name scopes group."""
    found = answers(softmax.html, """
        const count = () => document.querySelectorAll("#drawing g.op").length, said = [count()];
        document.getElementById("fold").click(); said.push(count());
        document.querySelector("#drawing g.kernel").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter",
        bubbles: true })); said.push(count());
        const before = app.graph.view[2]; document.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
        said.push(app.graph.view[2] < before);
        document.getElementById("find").value = "exponential";
        document.getElementById("find").dispatchEvent(new Event("change"));
        said.push(document.querySelector("#drawing g.chosen").getAttribute("aria-label"));
        document.getElementById("constants").click(); said.push(count());
        document.getElementById("grouping").value = "scopes";
        document.getElementById("grouping").dispatchEvent(new Event("change"));
        said.push(document.querySelectorAll("#drawing g.scope").length);
        const drawn = [...document.querySelectorAll('[role="button"],[role="img"],canvas,svg[role]')];
        said.push(drawn.filter((e) => !e.getAttribute("aria-label")).length);
        return said
    """)  # fmt: skip
    assert found[:4] == [9, 0, 9, True]
    assert found[4] == "exponential %exponential_1: tensor<4096x4096xf32>"
    assert found[5:] == [11, 1, 0]


@pytest.mark.slow
def test_tiles(softmax: Explorer) -> None:
    """Step by step; other tile sizes; what is loaded, kept and stored, in words and bytes."""
    found: list[Any] = answers(softmax.html, """
        app.view("tiles");
        const said = [], note = () => said.push([document.getElementById("tile-said").textContent,
        document.getElementById("tile-bytes").textContent]);
        const size = (k, n) => { const i = app.tiles.inputs[k]; i.value = n; i.dispatchEvent(new Event("change")); };
        size(0, 8); size(1, 4096); note();
        document.getElementById("tile-next").click(); note();
        size(1, 1024); document.getElementById("tile-next").click(); note();
        const play = document.getElementById("tile-play"); play.click(); said.push(play.textContent); play.click();
        said.push(play.textContent);
        said.push(document.querySelector("#tiles svg").getAttribute("aria-label"));
        const cost = () => [document.getElementById("tile-cost").textContent, document.getElementById("tile-loops").textContent];
        said.push(cost());
        app.data.others.k0_divide_1.forEach((o, k) => { document.querySelectorAll("#tile-choices button")[k].click();
          said.push([o, ...cost()]) });
        return said
    """)  # fmt: skip
    first, second, third, playing, stopped, roof, unplanned, *others = found
    assert first[0] == "Tile 1 of 512: stores %divide_1 [0…7, 0…4095]; reads at most %arg0 [0…7, 0…4095]"
    assert first[1] == "128 KiB loaded, 0 B kept from the tile before; 512 tiles of 8 × 4096"
    assert "[8…15, 0…4095]" in second[0]
    # A tile of a part of a row needs the whole row: the same one as the tile before.
    assert third == [
        "Tile 2 of 2048: stores %divide_1 [0…7, 1024…2047]; reads at most %arg0 [0…7, 0…4095]",
        "0 B loaded, 128 KiB kept from the tile before; 2048 tiles of 8 × 1024",
    ]
    assert (playing, stopped) == ("pause", "play") and "operations a byte" in roof
    # Other sizes are other plans: those that were made say what they cost and have their own loops.
    assert "not planned in this page" in unplanned[0] and unplanned[1] == ""
    assert len(others) >= 3 and "(the plan's choice)" in others[0][1]
    module = hlo.load("examples/softmax.mlir")
    plan = tilewright.plan(module)
    for choice, cost, loops in others:
        pin = tiling.Pin(plan.pins()[0].ops, tuple(choice["tiles"]))
        (fusion,) = tiling.plan(module, supports=codegen.supports, machine=plan.machine, pins=[pin]).fusions
        assert str(fusion.estimate) in cost and loops == show_schedule(fusion.schedule)


@pytest.mark.slow
def test_stages(softmax: Explorer) -> None:
    """A line of the text, its op, the loop that it is computed in and the line of source point at each other."""
    found = answers(softmax.html, """
        document.dispatchEvent(new KeyboardEvent("keydown", { key: "3" }));
        const lines = (n) => app.stages.columns[n][1], marked = () => app.stages.columns.map(([, rows]) =>
          rows.filter((r) => r.node.classList.contains("marked") || r.node.classList.contains("near")).map((r) => r.text.trim()));
        lines(0).find((r) => r.text.includes("applies stablehlo.add")).node.dispatchEvent(new PointerEvent("pointerenter"));
        const said = [marked(), document.getElementById("stage-said").textContent];
        lines(3).find((r) => /^\\s*reduce_2\\w*\\[/.test(r.text) || /^\\s*divide_1\\[/.test(r.text)).node.click();
        return [...said, marked()[1].length, marked()[0].length, document.querySelectorAll("#stages .word-number").length > 20]
    """)  # fmt: skip
    (text, ops, loops, source), said, ops_back, text_back, is_coloured = found
    assert len(text) == 1 and "applies stablehlo.add" in text[0]
    assert ops == ["%reduce_2 = reduce(%exponential_1, %cst_0_1) : tensor<4096xf32>"]
    assert loops and source and "reduce_2" in said and "k0_divide_1" in said
    assert ops_back >= 1 and text_back >= 1 and is_coloured


@pytest.mark.slow
def test_boxes_follow_the_flow() -> None:
    """An op that two kernels compute made a circle of them, and all stood in one row."""
    page = tilewright.explore(encoder())
    found = answers(page.html, """
        const tops = app.graph.groups.filter((g) => g.kind === "kernel").map((g) => app.graph.places.get(g.key)[1]);
        const overlaps = [...app.graph.places.values()].some(([x, y, a], i, all) => all.some(([u, v, b], j) =>
          i < j && x < u + b.wide && u < x + a.wide && y < v + b.high && v < y + a.high));
        return [tops, overlaps]
    """)  # fmt: skip
    tops, overlaps = found
    assert len(tops) == 5 and tops == sorted(set(tops)) and not overlaps


@pytest.mark.slow
@pytest.mark.parametrize("size", [(390, 844), (1300, 900)])
def test_nothing_is_wider_than_the_window(softmax: Explorer, size: tuple[int, int]) -> None:
    found = answers(softmax.html, """
        return ["elements", "tiles", "help"].map((name) => { app.view(name);
        return document.documentElement.scrollWidth - innerWidth })
    """, size)  # fmt: skip
    assert max(found) <= 0


@pytest.mark.slow
def test_themes(softmax: Explorer) -> None:
    """Dark and light: text against its background has the contrast of at least 4.5 that is asked for (WCAG 2.1, 1.4.3)."""
    found = answers(softmax.html, """
        const part = (c) => { c /= 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4 };
        const light = (hex) => { const long = hex.length === 4 ? hex.replace(/[^#]/g, "$&$&") : hex;
          const [r, g, b] = [1, 3, 5].map((k) => part(parseInt(long.slice(k, k + 2), 16)));
          return .2126 * r + .7152 * g + .0722 * b };
        const ratio = (a, b) => { const [x, y] = [light(colour(a)), light(colour(b))].sort((p, q) => q - p);
        return (x + .05) / (y + .05) };
        return ["light", "dark"].map((name) => { app.theme(name);
          return [["--text", "--back"], ["--dim", "--panel"], ["--text", "--kernel"], ["--text", "--marked"]].map(([a,
          b]) => ratio(a, b)) })
    """)  # fmt: skip
    assert min(min(row) for row in found) >= 4.5, found


@pytest.mark.slow
@pytest.mark.parametrize("is_dark", [False, True])
def test_a_frame_in_a_notebook(softmax: Explorer, is_dark: bool) -> None:
    """In JupyterLab a frame has neither size nor theme while its page begins: the graph was cut off, the page a white card."""
    frame = softmax._repr_html_().replace('sandbox="allow-scripts allow-downloads"', "")  # else it may not be asked
    host = f"""<html><head></head><body style="color-scheme: {"dark" if is_dark else "light"}"><div style="display: none">{frame}
        </div><script>addEventListener("load", () => (document.querySelector("div").style.display = "block"))
        </script></body></html>"""
    theme, view, box, over = answers(host, """
        const frame = document.querySelector("iframe"), page = frame.contentDocument, svg = page.getElementById("drawing");
        const line = document.querySelector("p").getBoundingClientRect();
        return [page.documentElement.dataset.theme, svg.getAttribute("viewBox").split(" ").map(Number),
          frame.contentWindow.app.graph.size, document.elementFromPoint(line.x + 9, line.y + 9) === frame]
    """)  # fmt: skip
    assert theme == ("dark" if is_dark else "light")
    assert view[0] <= 0 and view[0] + view[2] >= box[0] and view[2] < 4000, "all of the graph is seen"
    assert over, "the line for notebooks that are not trusted is behind the frame"
