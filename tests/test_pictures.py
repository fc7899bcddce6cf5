"""Pictures and notebook forms: what is drawn is what the maps say; nothing from a program becomes markup."""

from __future__ import annotations

import itertools
import pathlib

import numpy as np
import pytest

import codegen
import hlo
import indexing
import tiling
from tilewright import pictures
from tilewright.cli import main
from tilewright.drawing.arithmetic import operations
from tilewright.drawing.graph import Graph
from tilewright.drawing.mesh import tiles_of
from tilewright.drawing.panels import Panel, panels
from tiling.mesh.groups import bytes_between
from tiling.mesh.partition import partition

TEXT = """func.func @main(%x: tensor<6x8xf32>, %w: tensor<8x5xf32>) -> tensor<6x5xf32> {
  %e = stablehlo.exponential %x : tensor<6x8xf32>
  %y = stablehlo.dot_general %e, %w, contracting_dims = [1] x [0] : (tensor<6x8xf32>, tensor<8x5xf32>) -> tensor<6x5xf32>
  return %y : tensor<6x5xf32>
}"""
notebook = pytest.mark.notebook
EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


def test_read_elements_of_a_product() -> None:
    dot = hlo.parse(TEXT).root
    left, right = indexing.output_to_input(dot)
    count = pictures.read_elements(left[0], (6, 8), [range(2, 4), range(1, 3)])
    expected = np.zeros((6, 8), int)
    expected[2:4] = 2
    np.testing.assert_array_equal(count, expected)
    assert pictures.read_elements(right[0], (8, 5), [range(1), range(3, 4)])[:, 3].tolist() == [1] * 8


def test_too_many_reads_are_refused() -> None:
    m = indexing.parse_map("(d0)[s0] -> (s0), domain: d0 in [0, 4095], s0 in [0, 4095]")
    with pytest.raises(pictures.PictureError, match="more than"):
        pictures.read_elements(m, (4096,), [range(4096)])


@notebook
def test_every_picture_is_drawn(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "p.mlir"
    path.write_text(TEXT)
    for kind in ("reads", "tiles", "graph", "roofline", "lines"):
        for suffix in ("png", "svg"):
            out = tmp_path / f"{kind}.{suffix}"
            assert main(["picture", kind, str(path), "-o", str(out)]) == 0
            assert out.stat().st_size > 2000


@notebook
def test_who_holds_what_and_sends_to_whom_is_drawn(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "mesh.svg"
    assert main(["picture", "mesh", str(EXAMPLES / "mesh" / "mlp.mlir"), "-o", str(out)]) == 0
    assert out.stat().st_size > 2000
    made = partition(hlo.load(EXAMPLES / "mesh" / "mlp.mlir"))
    sent = bytes_between(made.module, 4)
    assert sent.sum(1).tolist() == [made.sent_bytes] * 4  # what each sends is what the plan says
    assert (sent > 0).tolist() == [[abs(a - b) == 1 and a // 2 == b // 2 for b in range(4)] for a in range(4)]  # along y alone
    assert [holders for _, holders in tiles_of(made.arguments[0], made.argument_types[0], 4)] == [[0, 1], [2, 3]]


@notebook
def test_cache_lines_tell_orders_apart() -> None:
    m = indexing.parse_map("(d0, d1) -> (d0, d1), domain: d0 in [0, 63], d1 in [0, 63]")
    by_row = pictures.cache_lines(m, (64, 64), 4, order=(0, 1), cache_lines_count=8).axes[0].get_title()
    by_column = pictures.cache_lines(m, (64, 64), 4, order=(1, 0), cache_lines_count=8).axes[0].get_title()
    assert "128 lines fetched in 2048 iterations, 100%" in by_row
    assert "2048 lines fetched in 2048 iterations, 6%" in by_column


@notebook
def test_wrong_places_are_named() -> None:
    with pytest.raises(pictures.PictureError, match="expected an index into"):
        pictures.reads(hlo.parse(TEXT).root, at=(6, 0))


EVIL = """func.func @main(%x: tensor<6x8xf32>, %w: tensor<8x5xf32>) -> tensor<6x5xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<6x8xf32>, tensor<8x5xf32>) -> tensor<6x5xf32>
  %c = stablehlo.custom_call @"<script>alert(1)</script>"(%y) : (tensor<6x5xf32>) -> tensor<6x5xf32>
  %t = stablehlo.tanh %c : tensor<6x5xf32>
  return %t : tensor<6x5xf32>
}"""


def test_what_a_notebook_shows_has_html_without_markup_from_the_program() -> None:
    module = hlo.parse(EVIL)
    executable = codegen.compile(module)
    plan = executable.plan
    analysis = tiling.tile_analysis(hlo.parse(TEXT))
    maps = indexing.output_to_input(module.entry.body.ops[0])
    shown = [
        module, executable, plan, *plan.fusions, plan.fusions[0].schedule, *executable.kernels, maps[0], maps[0][0],
        tiling.symbolic_tile(maps[0][0]), analysis, analysis.space, *analysis.values, *map(analysis.tile, analysis.values),
    ]  # fmt: skip
    for x in shown:
        text = x._repr_html_()
        assert "<script" not in text
        assert "<table>" in text or "<pre style=" in text, x
    assert "&lt;script&gt;" in module._repr_html_()
    assert ">def kernel" in executable.kernels[0]._repr_html_()


def test_what_a_prompt_shows_is_one_short_line() -> None:
    """At a prompt, a module or a plan once was its fields' fields: thousands of characters."""
    module = hlo.parse(TEXT)
    executable = codegen.compile(module)
    plan, analysis = executable.plan, tiling.tile_analysis(module)
    (first, *_) = indexing.output_to_input(module.root)
    shown = [module, module.entry, plan, plan.fusions[0], plan.fusions[0].schedule, executable, *executable.kernels, analysis,
             analysis.space, *analysis.values, *map(analysis.tile, analysis.values), tiling.symbolic_tile(first[0])]  # fmt: skip
    for x in shown:
        assert repr(x).startswith(f"<{type(x).__name__} ") or repr(x).startswith(f"<{type(x).__name__}:"), repr(x)
        assert len(repr(x)) < 300
        assert "\n" not in repr(x)
    assert repr(module) == "<Module @main: (tensor<6x8xf32>, tensor<8x5xf32>) -> tensor<6x5xf32>, 3 ops>"


def test_a_long_module_is_cut_in_a_notebook() -> None:
    lines = "".join(f"  %{k + 1} = stablehlo.tanh %{k} : tensor<2xf32>\n" for k in range(900))
    module = hlo.parse(f"func.func @main(%0: tensor<2xf32>) -> tensor<2xf32> {{\n{lines}  return %900 : tensor<2xf32>\n}}")
    text = module._repr_html_()
    assert text.count("stablehlo.tanh") < 450
    assert "more lines" in text


BATCHES = """func.func @main(%a: tensor<3x4x5xf32>, %b: tensor<3x5x7xf32>) -> tensor<3x4x7xf32> {
  %y = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<3x4x5xf32>, tensor<3x5x7xf32>) -> tensor<3x4x7xf32>
  return %y : tensor<3x4x7xf32>
}"""


def test_operations_of_a_batch_of_products_are_counted_once() -> None:
    """The batch's size was not found, and a roofline's point lay √B above its place."""
    plan = tiling.plan(hlo.parse(BATCHES), supports=codegen.supports)
    assert sum(map(operations, plan.fusions)) == 2 * 3 * 4 * 5 * 7


def test_a_graph_keeps_boxes_and_edges_apart() -> None:
    graph = Graph()
    for key, level in (("a", 0), ("b", 0), ("c", 1), ("d", 1.5), ("e", 2), ("f", 3), ("g", 3)):
        graph.add(key, f"%{key}\ntensor<64x64xf32>", "kernel", level)
    graph.edges += [("a", "c", 1), ("b", "c", 2), ("c", "e", 3), ("d", "e", 4), ("a", "e", 5), ("e", "f", 6), ("c", "g", 7)]
    places, ways = graph.places()
    boxes = {k: (x, y, *graph.size_of(k)) for k, (x, y) in places.items()}
    for a, b in itertools.combinations(boxes.values(), 2):
        assert abs(a[0] - b[0]) >= (a[2] + b[2]) / 2 or abs(a[1] - b[1]) >= (a[3] + b[3]) / 2
    for (start, end, _), way in zip(graph.edges, ways, strict=True):
        assert (way[0], way[-1]) == (places[start], places[end])
        for x, y in way[1:-1]:
            assert all(abs(x - bx) > w / 2 or abs(y - by) > h / 2 + 1e-9 for bx, by, w, h in boxes.values())


@notebook
def test_a_graph_of_many_arguments_stays_narrow() -> None:
    names = [f"%a{k}" for k in range(40)]
    types = ", ".join(["tensor<2xf32>"] * 40)
    text = f"""func.func @main({", ".join(n + ": tensor<2xf32>" for n in names)}) -> tensor<80xf32> {{
  %c = stablehlo.concatenate {", ".join(names)}, dim = 0 : ({types}) -> tensor<80xf32>
  return %c : tensor<80xf32>
}}"""
    picture = pictures.fusion_graph(tiling.plan(hlo.parse(text), supports=codegen.supports))
    assert picture.get_size_inches()[0] < 12
    assert any("37 more arguments\n296 B" in t.get_text() for t in picture.axes[0].texts)


@notebook
def test_scalars_and_rows_have_no_axis_that_they_lack() -> None:
    """Rank 0 and 1 once had ticks of a half."""
    text = """func.func @main(%x: tensor<6xf32>, %z: tensor<f32>) -> tensor<f32> {
  %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<6xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}"""
    row, scalar, result = pictures.reads(hlo.parse(text).root).axes
    assert [len(a.get_yticks()) for a in (row, scalar, result)] == [0, 0, 0]
    assert len(scalar.get_xticks()) == 0
    assert all(float(t).is_integer() for t in row.get_xticks())


@notebook
def test_explore_draws_what_its_sliders_say(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    import IPython.display

    monkeypatch.setattr(IPython.display, "display", shown.append)
    op = hlo.parse(TEXT).root
    box = pictures.explore(op)
    *sliders, output = box.children
    assert [(s.description, s.min, s.max, s.value) for s in sliders] == [("d0", 0, 5, 3), ("d1", 0, 4, 2)]
    first = len(shown)
    sliders[0].value = 5
    assert len(shown) > first, "a slider that moves draws anew"
    image = shown[-1].axes[0].images[0].get_array()  # type: ignore[attr-defined]
    assert (image > 0).sum(1).tolist() == [0, 0, 0, 0, 0, 8]
    assert output is box.children[-1]
    assert shown[-1]._repr_png_()[0].startswith(b"\x89PNG")  # type: ignore[attr-defined]


@notebook
def test_a_picture_of_no_known_kind_is_the_callers_error(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was an error inside Tilewright, with a traceback."""
    path = tmp_path / "p.mlir"
    path.write_text(TEXT)
    assert main(["picture", "reads", str(path), "-o", str(tmp_path / "p.txt")]) == 2
    assert "expected a name that ends in .png, .svg or .pdf" in capsys.readouterr().err


@notebook
def test_one_row_of_a_large_operand_is_seen() -> None:
    """A row of 512 fell between the pixels."""
    text = """func.func @main(%x: tensor<512x1024xf32>, %z: tensor<f32>) -> tensor<512xf32> {
  %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<512x1024xf32>, tensor<f32>) -> tensor<512xf32>
  return %r : tensor<512xf32>
}"""
    picture = pictures.reads(hlo.parse(text).root, at=(301,))
    image = picture.axes[0].images[0].get_array()
    assert image.shape[0] < 200
    assert (image > 0).sum(0).tolist() == [1] * image.shape[1]
    assert picture.axes[0].get_title().endswith("1024 read")


@notebook
def test_elements_are_equally_large_and_titles_have_room() -> None:
    """Panels had each a scale of its own, and titles lay on each other or ended at the border."""
    text = """func.func @main(%x: tensor<3x4x5xf32>, %z: tensor<f32>) -> tensor<1x2xf32> {
  %t = stablehlo.slice %x [0:1, 1:2, 1:3] : (tensor<3x4x5xf32>) -> tensor<1x1x2xf32>
  %r = stablehlo.pad %t, %z, low = [0, 1, 0], high = [2, 20, 9], interior = [0, 0, 0]
    : (tensor<1x1x2xf32>, tensor<f32>) -> tensor<3x22x11xf32>
  return
}"""
    ops = hlo.parse(text).entry.body.ops
    for op in ops[:2]:
        picture = pictures.reads(op)
        picture.canvas.draw()
        border = picture.bbox
        titles = [a.title.get_window_extent() for a in picture.axes]
        for box in [a.get_tightbbox() for a in picture.axes]:
            assert border.x0 <= box.x0 and box.x1 <= border.x1, op.name
            assert border.y0 <= box.y0 and box.y1 <= border.y1, op.name
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(titles)), op.name
    shown = [Panel(np.ones(shape, int), "t", "red") for shape in ((6, 8), (5, 3), (9, 9))]
    widths = [a.get_window_extent().width for a in panels(shown).axes]
    assert len({round(w / p.count.shape[1], 3) for w, p in zip(widths, shown, strict=True)}) == 1


@notebook
def test_an_operand_without_elements() -> None:
    """Its picture was a division by zero."""
    text = """func.func @main(%x: tensor<5x0xf32>, %z: tensor<f32>) -> tensor<5xf32> {
  %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<5x0xf32>, tensor<f32>) -> tensor<5xf32>
  return %r : tensor<5xf32>
}"""
    empty, scalar, _ = pictures.reads(hlo.parse(text).root).axes
    assert [t.get_text() for t in empty.texts] == ["no elements"]
    assert scalar.images


@notebook
def test_a_grid_of_tiles_says_what_a_tile_is() -> None:
    """Tiles over all heads were said to be one grid for each head; long titles were cut, and numbers of thin tiles one blot."""
    (fusion,) = tiling.plan(hlo.load(str(EXAMPLES / "causal_attention.mlir")), supports=codegen.supports).fusions
    picture = pictures.tile_grid(fusion)
    picture.canvas.draw()
    title = picture.axes[0].title
    box, border = title.get_window_extent(), picture.bbox
    assert border.x0 <= box.x0 and box.x1 <= border.x1
    assert " × ".join(map(str, fusion.tile_sizes)) in title.get_text()
    texts = [t.get_window_extent() for t in picture.axes[0].texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(texts, 2))
    assert picture.axes[0].get_xlabel() == "dimension 3"


def test_parts_of_a_program_show_themselves() -> None:
    """An op, a function, a value or a type was one line of text in a notebook."""
    module = hlo.parse(EVIL)
    _, custom, _ = module.entry.body.ops[:3]
    shown = [custom, module.entry, custom.result, module.entry.arguments[0], custom.result.type, custom.result.type.element,
             module.entry.type]  # fmt: skip
    for x in shown:
        assert "<table>" in x._repr_html_() and "<script" not in x._repr_html_(), x
    assert "tensor&lt;6x5xf32&gt;" in custom._repr_html_() and "&lt;script&gt;" in custom._repr_html_()
    assert "120" in custom.result.type._repr_html_()  # bytes


def test_proofs_and_parts_of_schedules_show_themselves() -> None:
    """A proof was its obligations one after the other, a hundred thousand characters; phases and nests were all their fields."""
    module = hlo.parse(EVIL)
    plan = tiling.plan(module, supports=codegen.supports)
    proof = tiling.prove(plan)
    phases = [p for f in plan.fusions for p in f.schedule.phases]
    for x in (proof, module.entry.body, *phases, *(s for p in phases for s in p.all_steps)):
        assert repr(x).startswith(f"<{type(x).__name__}") and len(repr(x)) < 300 and "\n" not in repr(x), repr(x)
    assert f"{len(proof.obligations)} proved" in repr(proof)
    wrong = tiling.Obligation("in bounds", "k0 reads <x>", type(proof.obligations[0].verdict).REFUTED, "at 9 of 8")
    for x in (proof, module.entry.body, tiling.Proof((*proof.obligations, wrong))):
        assert "<table>" in x._repr_html_() and "<script" not in x._repr_html_()
    assert "at 9 of 8" in x._repr_html_() and "reads &lt;x&gt;" in x._repr_html_()


@notebook
def test_wrong_arguments_are_named() -> None:
    """Numbers and objects that a picture is not of: each once ended in an error of Python's."""
    module = hlo.parse(TEXT)
    plan = tiling.plan(module, supports=codegen.supports)
    m = indexing.output_to_input(module.root)[0][0]
    wrong = [
        (lambda: pictures.reads("dot"), "expected Op, found str"),
        (lambda: pictures.reads(module.root, output=3), "expected a result from 0 to 0, found 3"),
        (lambda: pictures.reads(module.root, at=2), "at: expected whole numbers"),
        (lambda: pictures.reads(module.root, at=(0, 0), tile=(0, 1)), "expected an index into"),
        (lambda: pictures.read_elements(m, (6, 8), [range(2)]), "expected a range for each of 2 dimensions"),
        (lambda: pictures.read_elements("(d0) -> (d0)", (6,), [range(2)]), "expected IndexingMap, found str"),
        (lambda: pictures.tile_grid(plan), "expected Fusion, found Plan"),
        (lambda: pictures.fusion_graph(module), "expected Plan, found Module"),
        (lambda: pictures.roofline(module), "expected Plan, found Module"),
        (lambda: pictures.roofline(plan, [1.0] * 9), "one for each fusion"),
        (lambda: pictures.cache_lines(m, (6,), 4), "a shape of rank 2"),
        (lambda: pictures.cache_lines(m, (6, 8), 0), "expected positive sizes"),
        (lambda: pictures.explore(module.root, output=1), "expected a result from 0 to 0"),
        (lambda: pictures.from_program("maps", module, module.entry), "expected one of reads, tiles"),
    ]
    for call, words in wrong:
        with pytest.raises(pictures.PictureError, match=words):
            call()


@notebook
def test_the_command_says_which_op_it_drew(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = str(EXAMPLES / "softmax.mlir"), str(tmp_path / "reads.png")
    assert main(["picture", "reads", path, "--op", "divide", "-o", out]) == 0
    assert "shows    op 10, stablehlo.divide" in capsys.readouterr().out
    number, op, count = pictures.picked_op(hlo.load(path).entry, "reduce")
    assert (op.name, count) == ("stablehlo.reduce", 2) and number < 10


def _light(colour: str) -> float:
    """The relative luminance of a colour (WCAG 2.1)."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@notebook
def test_pictures_are_read_on_light_and_dark_pages(tmp_path: pathlib.Path) -> None:
    """They were white cards in dark notebooks: no ground of their own, and colours between those of the pages."""
    from matplotlib.colors import to_hex
    from matplotlib.image import imread

    plan = tiling.plan(hlo.parse(TEXT), supports=codegen.supports)
    op = hlo.parse(TEXT).root
    drawn = [pictures.reads(op), pictures.tile_grid(plan.fusions[0]), pictures.fusion_graph(plan), pictures.roofline(plan),
             pictures.cache_lines(indexing.output_to_input(op)[0][0], (6, 8), 4)]  # fmt: skip
    for picture in drawn:
        picture.savefig(tmp_path / "p.png")
        corner = imread(tmp_path / "p.png")[0, 0]
        assert corner[3] == 0, "the ground is the page's"
        words = [t for a in picture.axes for t in (a.title, a.xaxis.label, a.yaxis.label, *a.get_xticklabels())]
        legends = [a.get_legend() for a in picture.axes if a.get_legend()]
        colours = {to_hex(t.get_color()) for t in (*words, *(t for g in legends for t in g.get_texts()))}
        for page in ("#ffffff", "#111111", "#1e1e1e"):
            for colour in colours:
                high, low = sorted((_light(colour), _light(page)), reverse=True)
                assert (high + 0.05) / (low + 0.05) >= 3.5, (colour, page)
    png, size = drawn[0]._repr_png_()
    assert png.startswith(b"\x89PNG") and size["width"] == round(drawn[0].get_size_inches()[0] * 100)
