"""What the tests of files share: small programs, a linker or none, files of them."""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Sequence

import numpy as np
import pytest

import codegen
import hlo
from codegen.c.compile import c_compiler

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = {p.stem: p for folder in ("examples", "tests/programs") for p in sorted((ROOT / folder).glob("*.mlir"))}

needs_linker = pytest.mark.skipif(
    c_compiler() is None and importlib.util.find_spec("ziglang") is None, reason="no linker (ziglang, cc, gcc or clang) is here"
)
needs_compiler = pytest.mark.skipif(c_compiler() is None, reason="no C compiler (cc, gcc or clang) is on the path")

# A constant that the kernel reads as an array, two results of which one is the argument's, and a scratch.
SCALED = """func.func @main(%x: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<3xi32>) {
  %w = stablehlo.constant dense<[0.5, 1.5, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.25]>
       : tensor<16xf32>
  %k = stablehlo.constant dense<[7, 8, 9]> : tensor<3xi32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %wb = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
  %y = stablehlo.multiply %x, %wb : tensor<8x16xf32>
  %s = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [1]
       : (tensor<8x16xf32>, tensor<f32>) -> tensor<8xf32>
  return %y, %s, %x, %k : tensor<8x16xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<3xi32>
}"""

# Enough tasks for several threads.
WIDE = """func.func @main(%x: tensor<512x300xf32>) -> tensor<512x300xf32> {
  %e = stablehlo.exponential %x : tensor<512x300xf32>
  %y = stablehlo.add %e, %x : tensor<512x300xf32>
  return %y : tensor<512x300xf32>
}"""

ENDLESS = """func.func @main(%x: tensor<4xi32>) -> tensor<4xi32> {
  %r = stablehlo.while(%i = %x) : tensor<4xi32>
   cond { %t = stablehlo.constant dense<true> : tensor<i1>  stablehlo.return %t : tensor<i1> }
   do { %n = stablehlo.add %i, %x : tensor<4xi32>  stablehlo.return %n : tensor<4xi32> }
  return %r : tensor<4xi32>
}"""


def bare_packages(folder: pathlib.Path, own: Sequence[str]) -> pathlib.Path:
    """A folder to import from that has NumPy and these packages of this repository."""
    packages, home = folder / "packages", pathlib.Path(np.__file__).parent.parent
    packages.mkdir()
    for name in ("numpy", "numpy.libs"):
        if (home / name).exists():
            (packages / name).symlink_to(home / name)
    for name in own:
        (packages / name).symlink_to(ROOT / name)
    return packages


def compiled(text: str, threads: int | None = None) -> codegen.Executable:
    """The executable of a program's text."""
    return codegen.compile(hlo.parse(text), threads=threads)
