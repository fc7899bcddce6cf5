"""The documentation builds in strict mode: no broken link, no missing page, no name of the API that is gone."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.mark.docs
def test_builds_strictly(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "stablehlo.dot_general" in (tmp_path / "site" / "op-table" / "index.html").read_text("utf-8")
