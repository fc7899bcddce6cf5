"""Siblings that share a value, of which one uses a part."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp

WHOLE, PART = "tensor<517x389xf32>", "tensor<100x389xf32>"
ADD = f"%a = stablehlo.add %x, %y : {WHOLE}"
SLICE = f"%s = stablehlo.slice %y [0:100, 0:389] : ({WHOLE}) -> {PART}\n  %n = stablehlo.negate %s : {PART}"
SUM = f"""%zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
    : ({WHOLE}, tensor<f32>) -> tensor<389xf32>"""


@pytest.mark.parametrize(
    ("lines", "results"),
    [
        ((ADD, SLICE), (f"%a : {WHOLE}", f"%n : {PART}")),
        ((SLICE, ADD), (f"%n : {PART}", f"%a : {WHOLE}")),
        ((SUM, SLICE), ("%r : tensor<389xf32>", f"%n : {PART}")),
        ((SLICE, SUM), (f"%n : {PART}", "%r : tensor<389xf32>")),
        ((SLICE, ADD, SUM), (f"%n : {PART}", f"%a : {WHOLE}", "%r : tensor<389xf32>")),
    ],
    ids=["whole, part", "part, whole", "sum, part", "part, sum", "part, whole, sum"],
)
def test_one_sibling_uses_a_part_of_what_is_shared(lines: tuple[str, ...], results: tuple[str, ...]) -> None:
    """The tiles of the part were taken for the whole: 417 rows were never written."""
    names, types = zip(*(r.split(" : ") for r in results), strict=True)
    text = "\n  ".join(
        [
            f"func.func @main(%x: {WHOLE}, %y: {WHOLE}) -> ({', '.join(types)}) {{",
            *lines,
            f"return {', '.join(names)} : {', '.join(types)}",
            "}",
        ]
    )
    module = hlo.parse(text)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(517, 389)).astype(np.float32) for _ in range(2))
    for found, expected in zip(codegen.compile(module)(x, y), interp.evaluate(module, x, y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
