"""Pictures and notebook forms: what is drawn is what the maps say; nothing from a program becomes markup."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import codegen
import hlo
import indexing
from tilewright import pictures
from tilewright.cli import main

TEXT = """func.func @main(%x: tensor<6x8xf32>, %w: tensor<8x5xf32>) -> tensor<6x5xf32> {
  %e = stablehlo.exponential %x : tensor<6x8xf32>
  %y = stablehlo.dot_general %e, %w, contracting_dims = [1] x [0] : (tensor<6x8xf32>, tensor<8x5xf32>) -> tensor<6x5xf32>
  return %y : tensor<6x5xf32>
}"""
notebook = pytest.mark.notebook


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


def test_plans_schedules_and_kernels_have_html() -> None:
    executable = codegen.compile(hlo.parse(TEXT))
    plan = executable.plan
    for text in (plan._repr_html_(), plan.fusions[0].schedule._repr_html_(), executable._repr_html_()):
        assert "<table>" in text
        assert "&lt;" in text or "<pre>" in text
    assert "<pre>def kernel" in executable.kernels[0]._repr_html_()


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
    assert shown[-1]._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
