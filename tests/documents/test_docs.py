"""The documentation builds in strict mode: no broken link, no missing page, no name of the API that is gone."""

from __future__ import annotations

import importlib
import inspect
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.mark.docs
def test_builds_strictly(tmp_path: pathlib.Path) -> None:
    # Not --quiet: it drops warnings before --strict counts them.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "stablehlo.dot_general" in (tmp_path / "site" / "op-table" / "index.html").read_text("utf-8")
    api = (tmp_path / "site" / "api" / "index.html").read_text("utf-8")
    assert "codehilite" in api
    assert "<blockquote>" not in api, "examples in docstrings were shown as quotations of quotations"


@pytest.mark.docs
def test_examples_in_docstrings_become_code() -> None:
    path = ROOT / "docs" / "docstrings.py"
    command = [sys.executable, "-m", "doctest", str(path)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout == ""


def test_variables_of_the_environment_are_in_the_documentation() -> None:
    packages = ("hlo", "indexing", "tiling", "codegen", "interp", "tilewright", "tilewright_runtime")
    sources = [p for name in packages for p in (ROOT / name).rglob("*.py")]
    used = {v for p in sources for v in re.findall(r"\"(TILEWRIGHT_[A-Z_]+)\"", p.read_text("utf-8"))}
    listed = re.findall(r"^\| `(TILEWRIGHT_[A-Z_]+)", (ROOT / "docs" / "cli.md").read_text("utf-8"), re.M)
    assert used == set(listed)


def executed_code() -> str:
    """Lines of the pages and of the notebooks that are run, and what the pages print."""
    blocks = []
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        blocks += re.findall(r"^```python\n(>>> .*?)^```", page.read_text("utf-8"), re.M | re.S)
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        blocks += ["".join(c["source"]) for c in json.loads(notebook.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    return "\n".join(blocks)


def has_example(value: Any) -> bool:
    """Whether an object's docstring, or that of one of its members, has code that is run."""
    members = [m for m in vars(value).values() if callable(m)] if inspect.isclass(value) else []
    texts = [inspect.getdoc(x) for x in (value, *members)]
    return any(">>> " in (t or "") for t in texts)


@pytest.mark.parametrize("name", ["hlo", "indexing", "tiling", "codegen", "interp", "tilewright", "tilewright.pictures"])
def test_every_public_name_has_an_example_that_is_run(name: str) -> None:
    """Some sixty had none."""
    package, code = importlib.import_module(name), executed_code()
    lacking = [n for n in package.__all__ if not re.search(rf"\b{n}\b", code) and not has_example(getattr(package, n))]
    assert not lacking, f"{name}: {', '.join(lacking)}; docs/names.md is a place for examples"


def test_the_api_page_has_every_public_name() -> None:
    """It once had a third of them."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    named = set(re.findall(r"^::: ([\w.]+)$", page, re.M))
    for name in ("hlo", "indexing", "tiling", "codegen", "interp"):
        package = importlib.import_module(name)
        public = {n for n in package.__all__ if not isinstance(getattr(package, n), dict)}
        assert public <= {n.rpartition(".")[2] for n in named if n.startswith(name + ".")}, name


DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))


def test_decisions_are_numbered_without_holes() -> None:
    assert len(DECISIONS) >= 24
    titles = [p.read_text("utf-8").partition("\n")[0] for p in DECISIONS]
    assert [p.name[:5] for p in DECISIONS] == [f"{n:04}-" for n in range(1, len(DECISIONS) + 1)]
    assert [t.partition(":")[0] for t in titles] == [f"# ADR {n}" for n in range(1, len(DECISIONS) + 1)]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda p: p.stem)
def test_a_decision_has_its_four_parts(path: pathlib.Path) -> None:
    """In this order, each once, and no others."""
    parts = re.findall(r"^(?:\*\*([^*]+)\*\*|#{2,} (.+)$)", path.read_text("utf-8"), re.M)
    assert [bold or heading for bold, heading in parts] == ["Context.", "Decision.", "Alternatives.", "Consequences."]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda p: p.stem)
def test_files_that_a_decision_names_exist(path: pathlib.Path) -> None:
    named = re.findall(r"`([a-z_]+/[\w/]+\.py)`", path.read_text("utf-8"))
    assert [n for n in named if not (ROOT / n).is_file()] == []
