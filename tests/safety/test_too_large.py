"""What is too large to be run is named: the op, its type, its place and the limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
from hlo.limits import TooLargeError

ROOT = Path(codegen.__file__).resolve().parents[1]
T = "tensor<1048576x1048576xf32>"
HUGE = f"""func.func @main(%x: tensor<f32>) -> {T} {{
  %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> {T}
  %1 = stablehlo.negate %0 : {T}
  return %1 : {T}
}}
"""
X = np.array(1, np.float32)


def deep(rank: int) -> str:
    t = f"tensor<{'1x' * rank}f32>"
    made = f"  %0 = stablehlo.reshape %x : (tensor<f32>) -> {t}"
    return f"func.func @main(%x: tensor<f32>) -> {t} {{\n{made}\n  return %0 : {t}\n}}\n"


def compiled(module: hlo.Module) -> Any:
    return codegen.compile(module)(X)


def evaluated(module: hlo.Module) -> Any:
    return interp.evaluate(module, X)


@pytest.mark.parametrize("run", [compiled, evaluated])
def test_four_tebibytes(run: Callable[[hlo.Module], Any]) -> None:
    with pytest.raises(hlo.TilewrightError) as error:
        run(hlo.parse(HUGE, "huge.mlir"))
    message = str(error.value)
    assert message.startswith("huge.mlir:3:8: stablehlo.negate: "), message
    assert T in message and ("4398046511104 bytes" in message or "4.00 TiB" in message)
    assert "memory" in message


@pytest.mark.parametrize("run", [compiled, evaluated])
def test_ranks(run: Callable[[hlo.Module], Any]) -> None:
    for rank in (33, 40, 64):  # NumPy 1 had 32 dimensions, NumPy 2 has 64
        (result,) = run(hlo.parse(deep(rank)))
        assert result.shape == (1,) * rank
    with pytest.raises(TooLargeError, match=r"^deep.mlir:2:\d+: stablehlo.reshape: .*has 65 dimensions, expected at most 64"):
        run(hlo.parse(deep(65), "deep.mlir"))


@pytest.mark.parametrize("text", [HUGE, deep(65)])
def test_the_command_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.mlir"
    path.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "tilewright", "run", str(path)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 2, found.stderr
    assert "p.mlir:" in found.stderr and "error: stablehlo." in found.stderr and "Traceback" not in found.stderr
