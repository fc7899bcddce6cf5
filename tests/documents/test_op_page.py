"""docs/op-table.md is what the definitions say today, and has no empty cell."""

from __future__ import annotations

import importlib.util
import pathlib
from types import ModuleType

import pytest

import codegen
import hlo
import tiling
from hlo.registry import definitions

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("op_table", ROOT / "docs" / "op_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_page_is_up_to_date(maker: ModuleType) -> None:
    assert maker.main(["--check"]) == 0, "run: python docs/op_table.py"


def test_the_table_of_ops_is_up_to_date(maker: ModuleType) -> None:
    """The quick half: the types are tried with --slow."""
    lines = maker.PAGE.read_text("utf-8").splitlines()
    missing = [row[0] for row in maker.rows() if "| " + " | ".join(row) + " |" not in lines]
    assert not missing, "run: python docs/op_table.py"


def test_every_cell_says_something(maker: ModuleType) -> None:
    rows = maker.rows()
    lacking = [row[0] for row in rows if "missing" in row]
    assert not lacking, f"{lacking}: a rule in interp/rules, or a small program (a row of CASES in tests/hlo/test_builder.py)"
    assert len(rows) == len(list(definitions()))
    for row in rows:
        assert len(row) == len(maker.COLUMNS) + 1
        assert all(c and c not in ("missing", "–", "-") for c in row), row


def test_marks_are_what_is_known(maker: ModuleType) -> None:
    found = {name: maker.op_support.support(*maker.examples()[f"stablehlo.{name}"]) for name in ("add", "xor", "fft", "while")}
    assert [found["add"][t] for t in ("f32", "i8")] == ["K", "K"]
    assert (found["add"]["quantized"] in "KE", found["xor"]["f32"], found["xor"]["i32"]) == (True, ".", "K")
    assert found["fft"]["f32"] in "KE"
    assert all(set(marks.values()) <= set("KE.-") for marks in found.values())


@pytest.mark.parametrize("types", [("next_after", "i1"), ("polygamma", "complex<f32>"), ("shift_left", "f32")])
def test_a_broadcasting_form_of_a_type_that_the_op_lacks_is_no_error(types: tuple[str, str]) -> None:
    """What CHLO's broadcasting ops take beyond the ops themselves once ended planning with a KeyError."""
    name, element = types
    t = f"tensor<3x{element}>"
    module = hlo.parse(
        f"func.func @main(%a: {t}, %b: {t}) -> {t} {{\n"
        f"  %0 = chlo.broadcast_{name} %a, %b : ({t}, {t}) -> {t}\n  return %0 : {t}\n}}"
    )
    hlo.verify(module)
    tiling.plan(module, supports=codegen.supports)
