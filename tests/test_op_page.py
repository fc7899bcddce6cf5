"""docs/op-table.md is what the definitions say today, and has no empty cell."""

from __future__ import annotations

import importlib.util
import pathlib
from types import ModuleType

import pytest

from hlo.registry import definitions

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("op_table", ROOT / "docs" / "op_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(maker: ModuleType) -> None:
    assert maker.main(["--check"]) == 0, "run: python docs/op_table.py"


def test_every_cell_says_something(maker: ModuleType) -> None:
    rows = maker.rows()
    assert len(rows) == len(list(definitions()))
    for row in rows:
        assert len(row) == len(maker.COLUMNS) + 1
        assert all(c and c not in ("missing", "–", "-") for c in row), row


def test_marks_are_what_is_known(maker: ModuleType) -> None:
    marks = {row[0]: dict(zip(maker.op_support.TYPES, row[1:], strict=True)) for row in maker.support_rows()}
    add, xor = marks["`stablehlo.add`"], marks["`stablehlo.xor`"]
    assert (add["f32"], add["quantized"], xor["f32"], xor["i32"]) == ("K", "E", ".", "K")
    assert marks["`stablehlo.fft`"]["f32"] in "KE"
    assert all(set(row.values()) <= set("KE.-") for row in marks.values())
    assert len(marks) > 150
