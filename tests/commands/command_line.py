"""`tilewright` in a process of its own or in this one, and the tiny programs that its tests run."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import subprocess
import sys

from tilewright import cli

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

SOFTMAX = """\
func.func @main(%x: tensor<6x10xf32>) -> tensor<6x10xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<6xf32>) -> tensor<6x10xf32>
  %s = stablehlo.subtract %x, %mb : tensor<6x10xf32>
  %e = stablehlo.exponential %s : tensor<6x10xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %z = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>
  %zb = stablehlo.broadcast_in_dim %z, dims = [0] : (tensor<6xf32>) -> tensor<6x10xf32>
  %y = stablehlo.divide %e, %zb : tensor<6x10xf32>
  return %y : tensor<6x10xf32>
}
"""  # noqa: E501

TWO = """\
module @two {
  func.func public @main(%a: tensor<4x3xf32>, %b: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3x4xf32>) {
    %0 = stablehlo.add %a, %b : tensor<4x3xf32>
    %1 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
    return %0, %1 : tensor<4x3xf32>, tensor<3x4xf32>
  }
  func.func private @double(%x: tensor<5xf32>) -> tensor<5xf32> {
    %0 = stablehlo.add %x, %x : tensor<5xf32>
    return %0 : tensor<5xf32>
  }
}
"""


def tilewright(*arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a fresh process, with pipes for all three streams."""
    return subprocess.run(
        [sys.executable, "-m", "tilewright", *arguments],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def called(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in this process: what it refuses needs no new one, whose start takes half a second."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(arguments)
    except SystemExit as e:
        code = int(e.code or 0)
    finally:
        os.environ.clear()
        os.environ.update(before)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err) if isinstance(stream.buffer, io.BytesIO)]
    return subprocess.CompletedProcess(arguments, code, *texts)
