"""Every notebook runs from the first cell to the last, and shows what it says it shows."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.notebook

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """One process for all notebooks, which imports JAX, numba and matplotlib once."""
    from jupyter_client import KernelManager

    manager: Any = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(ROOT), env={**os.environ, "PYTHONPATH": str(ROOT)})
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs(path: pathlib.Path, kernel: Any) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)
    forget = nbformat.v4.new_code_cell("%reset -f")  # the names of the notebook before
    notebook.cells.insert(0, forget)
    NotebookClient(notebook, km=kernel, timeout=300).execute()
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
