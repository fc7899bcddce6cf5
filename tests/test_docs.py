"""The documentation builds in strict mode: no broken link, no missing page, no name of the API that is gone."""

from __future__ import annotations

import importlib.util
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
    assert "stablehlo.dot_general" in (tmp_path / "site" / "ops" / "index.html").read_text("utf-8")


def test_the_op_table_has_every_op() -> None:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    from hlo.registry import definitions

    text = hooks.op_table()
    for op in definitions():
        assert op.is_terminator or f"`{op.name}`" in text
    assert "`bf16`" in hooks.type_table()
