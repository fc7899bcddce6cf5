"""Random programs on numbers at the ends of their types, with folds in wider types: kernels give the evaluator's results."""

from __future__ import annotations

import random

import numpy as np
import pytest

import codegen
import hlo
import interp
from tilewright.check import compare
from tilewright.ends import end_arrays

ROWS, COLUMNS = 6, 37
WIDER = {
    "i4": ["i8", "i32"], "i8": ["i16", "i32", "i64"], "ui8": ["ui16", "ui32"], "i16": ["i32", "i64"], "i32": ["i64"],
    "f16": ["f32", "f64"], "f32": ["f64"], "f8E5M2": ["f32"],
}  # fmt: skip
INTEGER_OPS = ("add", "subtract", "multiply", "maximum", "minimum", "divide", "remainder", "and", "xor", "shift_left")
FLOAT_OPS = ("add", "subtract", "multiply", "maximum", "minimum", "divide")


def program(seed: int) -> str:
    """Elementwise ops of a narrow type, a fold of what they give in a wider one, and ops of that."""
    choose = random.Random(seed)
    narrow = choose.choice(list(WIDER))
    wide = choose.choice(WIDER[narrow])
    is_float = narrow.startswith("f")
    t = f"tensor<{ROWS}x{COLUMNS}x{narrow}>"
    lines, values = [], ["x", "y"]
    for k in range(choose.randint(0, 4)):
        a, b = choose.choice(values), choose.choice(values)
        lines.append(f"%v{k} = stablehlo.{choose.choice(FLOAT_OPS if is_float else INTEGER_OPS)} %{a}, %{b} : {t}")
        values.append(f"v{k}")
    lines.append(f"%z = stablehlo.constant dense<{'0.0' if is_float else '0'}> : tensor<{narrow}>")
    combine = choose.choice(["add", "maximum", "minimum"] + ([] if is_float else ["add", "multiply", "xor"]))
    body = f"""({{ ^bb0(%p: tensor<{wide}>, %q: tensor<{wide}>):
      %s = stablehlo.{combine} %p, %q : tensor<{wide}>
      stablehlo.return %s : tensor<{wide}>
    }})"""
    if choose.random() < 0.5:
        dimension = choose.randint(0, 1)
        result = f"tensor<{(COLUMNS, ROWS)[dimension]}x{wide}>"
        attributes = f"dimensions = array<i64: {dimension}>"
        op = "reduce"
    else:
        result = f"tensor<{ROWS - 1}x{COLUMNS - 2}x{wide}>"
        attributes = "window_dimensions = array<i64: 2, 3>"
        op = "reduce_window"
    lines.append(f'%r = "stablehlo.{op}"(%{values[-1]}, %z) {body} {{{attributes}}} : ({t}, tensor<{narrow}>) -> {result}')
    lines.append(f"%e = stablehlo.{choose.choice(['add', 'maximum'])} %r, %r : {result}")
    lines.append(f"return %e, %{values[-1]} : {result}, {t}")
    return f"func.func @main(%x: {t}, %y: {t}) -> ({result}, {t}) {{\n" + "\n".join(lines) + "\n}"


@pytest.mark.parametrize("seed", range(16))
def test_random_programs_at_the_ends_of_their_types(seed: int) -> None:
    module = hlo.parse(program(seed))
    arrays = end_arrays(module.function(), seed)
    assert arrays is not None
    executable = codegen.compile(module)
    assert executable.fallbacks == []
    for found, want in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        assert compare(np.asarray(found), np.asarray(want)).passed
