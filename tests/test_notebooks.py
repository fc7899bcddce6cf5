"""Every notebook runs from the first cell to the last, and shows what it says it shows."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

pytestmark = pytest.mark.notebook

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook: Any = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    images = [o for c in notebook.cells for o in c.get("outputs", []) if "image/png" in o.get("data", {})]
    assert images or path.stem.startswith("07"), "a notebook without a picture"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_is_kept_without_outputs(path: pathlib.Path) -> None:
    import nbformat

    notebook: Any = nbformat.read(path, as_version=4)
    assert all(not c.get("outputs") and c.get("execution_count") is None for c in notebook.cells)
    assert any(c.cell_type == "markdown" for c in notebook.cells)


def test_there_are_eight() -> None:
    assert len(NOTEBOOKS) == 8
