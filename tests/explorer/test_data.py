"""What the explorer's page holds: formulas that mean what the maps mean, nothing that ends its script, one file."""

from __future__ import annotations

import json
import math
import pathlib
import re
from typing import Any

import pytest

import codegen
import hlo
import tilewright
import tiling
from hlo.module import Module
from indexing import parse_map
from tilewright import cli
from tilewright.explorer.data import map_data

MAPS = [
    "(d0, d1)[s0] -> (d0 * 4 + s0 floordiv 3, (d1 * 5 + s0) mod 7), domain: d0 in [0, 4], d1 in [0, 6], s0 in [0, 5]",
    "(d0)[s0] -> (d0 * 2 + s0 - 1), domain: d0 in [0, 4], s0 in [0, 2], d0 * 2 + s0 - 1 in [0, 8]",
    "(d0, d1) -> (max(d0 - 2, 0), min(d1, 3)), domain: d0 in [0, 5], d1 in [0, 5], d0 + d1 in [2, 8]",
    "(d0)[s0, s1] -> (-d0 floordiv 3 + 4, s0 * -2 mod 5), domain: d0 in [0, 8], s0 in [0, 3], s1 in [0, 1], d0 mod 2 in [1, 1]",
    "(d0){rt0} -> (d0 + rt0), domain: d0 in [0, 3], rt0 in [0, 5]",
]


def value(f: Any, at: dict[str, int]) -> int:
    """A formula by its description alone."""
    if isinstance(f, int):
        return f
    if isinstance(f, str):
        return at[f]
    kind, *parts = f
    if kind == "+":
        return sum((k * value(atom, at) for k, atom in parts[1:]), parts[0])
    given = [value(p, at) for p in parts]
    if kind in ("/", "%"):
        return given[0] // given[1] if kind == "/" else given[0] % given[1]
    return {"*": math.prod, "min": min, "max": max}[kind](given)


@pytest.mark.parametrize("text", MAPS)
def test_formulas_are_the_map(text: str) -> None:
    m = parse_map(text)
    data = json.loads(json.dumps(map_data(m)))
    names = [v[0] for v in (*data["dims"], *data["ranges"], *data["runtimes"])]
    sides = [range(low, high + 1) for _, low, high, *_ in (*data["dims"], *data["ranges"], *data["runtimes"])]
    for n in range(math.prod(map(len, sides))):
        index, rest = [], n
        for side in reversed(sides):
            rest, i = divmod(rest, len(side))
            index.append(side[i])
        point = dict(zip(names, reversed(index), strict=True))
        dims, symbols = [point[v[0]] for v in data["dims"]], [point[v[0]] for v in (*data["ranges"], *data["runtimes"])]
        holds = all(low <= value(f, point) <= high for f, low, high in data["constraints"])
        assert holds == bool(m.holds(dims, symbols))
        assert [value(f, point) for f in data["results"]] == list(m.evaluate(dims, symbols))


def program() -> Module:
    """A padding, windows, a slice at an index that is data, and text that would end a script."""
    return hlo.parse(
        """
    // </script><script>alert(1)</script>
    func.func @main(%x: tensor<2x3x6x5xf32>, %i: tensor<i32>) -> tensor<2x3x4x4xf32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %p = stablehlo.pad %x, %z, low = [0, 0, 1, 1], high = [0, 0, 1, 2], interior = [0, 0, 0, 0]
        : (tensor<2x3x6x5xf32>, tensor<f32>) -> tensor<2x3x8x8xf32>
      %w = "stablehlo.reduce_window"(%p, %z) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %m = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %m : tensor<f32>
      }) {window_dimensions = array<i64: 1, 1, 2, 2>} : (tensor<2x3x8x8xf32>, tensor<f32>) -> tensor<2x3x7x7xf32>
      %c = stablehlo.constant dense<0> : tensor<i32>
      %s = stablehlo.dynamic_slice %w, %c, %c, %i, %i, sizes = [2, 3, 4, 4]
        : (tensor<2x3x7x7xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x3x4x4xf32>
      return %s : tensor<2x3x4x4xf32>
    }""",
        "windows.mlir",
    )


def test_the_page_is_one_file_that_asks_for_nothing() -> None:
    page = tilewright.explore(program()).html
    assert len(re.findall(r"<script", page)) == len(re.findall(r"</script>", page)) == 2  # none of the program's
    assert "alert(1)" in page and not re.search(r"<!-- [A-Z]+ -->", page)
    assert not re.findall(r"(?:src|href|action)\s*=|url\(|import\s|fetch\(|XMLHttpRequest", page)
    assert re.findall(r"https?://[^\"'\s]+", page) == ["http://www.w3.org/2000/svg"]


def encoder() -> tiling.Plan:
    """Five kernels on the machine that is named: on others there are four, or six."""
    module = hlo.load("examples/encoder_block.mlir")
    return tiling.plan(module, supports=codegen.supports, machine=tiling.Machine(cores=2))


def test_what_can_be_explored() -> None:
    module = program()
    plan = tilewright.plan(module)
    pages = [tilewright.explore(s) for s in (module, plan, tilewright.compile(plan))]
    assert len({json.dumps({**p.data, "title": ""}) for p in pages}) == 1
    assert [op["name"] for op in pages[0].data["ops"]].count("stablehlo.pad") == 1
    shown = pages[0]._repr_html_()
    assert "<iframe" in shown and "</script>" not in shown
    # Without the frame, as notebooks show it that are not trusted, there is a line that says why.
    assert "not trusted" in shown[: shown.index("<iframe")] and repr(pages[0]).endswith(" 1 step>")
    with pytest.raises(TypeError, match="expected a module, found str"):
        tilewright.explore("softmax.mlir")
    with pytest.raises(KeyError, match="no function @other"):
        tilewright.explore(module, entry="other")


def test_runtime_variables_name_values_of_the_page() -> None:
    """They had the text's own name, `%5`, which nothing in the page is called and `find` does not know."""
    module = hlo.parse("""func.func @main(%x: tensor<9x4xf32>, %i: tensor<i32>) -> tensor<1x4xf32> {
      %0 = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.add %i, %i : tensor<i32>
      %2 = stablehlo.dynamic_slice %x, %1, %0, sizes = [1, 4] : (tensor<9x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
      return %2 : tensor<1x4xf32>
    }""")
    data = tilewright.explore(module).data
    labels = {label for m in data["maps"] for _, _, _, label in m["runtimes"]}
    assert labels and labels <= {v["name"] for v in data["values"]}


def test_the_page_tells_no_folder_of_its_authors(tmp_path: pathlib.Path) -> None:
    """A program of a whole path had the path in its title, also in the pages of the site."""
    file = tmp_path / "windows.mlir"
    file.write_text("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n return %x : tensor<4xf32>\n}")
    page = tilewright.explore(tilewright.load(file))
    assert page.data["title"] == "windows.mlir" and str(tmp_path) not in page.html


@pytest.mark.jax
def test_a_function_of_jax() -> None:
    import jax.numpy as jnp

    page = tilewright.explore(lambda x: jnp.tanh(x) @ x.T, jnp.ones((3, 4)))
    assert {op["name"] for op in page.data["ops"]} >= {"stablehlo.tanh", "stablehlo.dot_general"}


def test_the_command_writes_the_page(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert cli.main(["explore", "examples/softmax.mlir", "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"written  {out}\n"
    assert out.read_text("utf-8").startswith("<!DOCTYPE html>")
