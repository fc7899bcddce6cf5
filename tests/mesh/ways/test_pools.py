# ruff: noqa: E501  (programs are written as they are printed)
"""The gradient of pooling on tiles: windows over each other, paddings and frames, at the ends and inside, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
import interp
from tests.mesh.global_programs import module_text
from tests.mesh.test_partition import BYTES_ALONE, on_a_grid
from tiling.mesh.partition import Partitioned, partition

BODY = """  %z = stablehlo.constant dense<0.5> : tensor<f32>
  %low = stablehlo.constant dense<FILL> : tensor<f32>
  %p = stablehlo.pad %a0, %low, low = [L, M], high = [H, K], interior = [0, 0] : (tensor<NxCxf32>, tensor<f32>) -> tensor<PxQxf32>
  %r = "stablehlo.select_and_scatter"(OPERAND, %a1, %z) ({ ^bb0(%p0: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.compare GE, %p0, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %s : tensor<i1> }, { ^bb0(%p0: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p0, %q : tensor<f32>
    stablehlo.return %s : tensor<f32> }) {window_dimensions = array<i64: W, V>, window_strides = array<i64: S, 1>,
    padding = dense<[[A, B], [0, 0]]> : tensor<2x2xi64>} : (tensor<TYPE>, tensor<OxUxf32>, tensor<f32>) -> tensor<TYPE>
  %e = stablehlo.slice %r [L:E, M:F] : (tensor<TYPE>) -> tensor<NxCxf32>
  return %e : tensor<NxCxf32>"""


def text(
    n: int, width: int, stride: int, padding: tuple[int, int] = (0, 0), frame: tuple[int, int] = (0, 0), columns: tuple[int, int] = (0, 0),
    parts: int = 4, fill: str = "0xFF800000",
) -> tuple[str, int]:  # fmt: skip
    """The program, and how many windows there are; `columns` are added by the frame beside rows, whose windows are of two."""
    framed, wide = n + sum(frame), 5 + sum(columns)
    count = (framed + sum(padding) - width) // stride + 1
    known = {
        "FILL": fill, "OPERAND": "%p", "TYPE": f"{framed}x{wide}xf32", "NxC": f"{n}x5", "PxQ": f"{framed}x{wide}",
        "OxU": f"{count}x{wide - 1}", "[L, M]": f"[{frame[0]}, {columns[0]}]", "[H, K]": f"[{frame[1]}, {columns[1]}]",
        "L:E": f"{frame[0]}:{frame[0] + n}", "M:F": f"{columns[0]}:{columns[0] + 5}", "W, V": f"{width}, 2", "S, 1": f"{stride}, 1",
        "[A, B]": f"[{padding[0]}, {padding[1]}]",
    }  # fmt: skip
    body = BODY
    for name, value in known.items():
        body = body.replace(name, value)
    rows = '[{"x"}, {}]'
    spread = [(f"{n}x5xf32", rows), (f"{count}x{wide - 1}xf32", rows if count % parts == 0 else "[{}, {}]")]
    return module_text(f'"x"={parts}', spread, body, [(f"{n}x5xf32", rows)]), count


def checked(program: str) -> Partitioned:
    """The partition, whose results have the bits of the evaluator's; the operand has ties, infinities and NaN."""
    module = hlo.parse(program)
    hlo.verify(module)
    made = partition(module, network=BYTES_ALONE)
    chance = np.random.default_rng(7)
    x, s = (np.asarray(chance.integers(-3, 3, a.shape), np.float32) for a in module.entry.arguments)
    x[chance.random(x.shape) < 0.2] = -np.inf
    x[chance.random(x.shape) < 0.05] = np.nan
    (found,), (whole,) = on_a_grid(made, (x, s)), interp.evaluate(module, x, s)
    np.testing.assert_array_equal(found, whole)
    return made


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (0, 1), (2, 0)])
@pytest.mark.parametrize(("width", "stride"), [(3, 2), (3, 1), (2, 2), (5, 2), (2, 4), (4, 4)])
def test_windows_over_each_other_take_halos(width: int, stride: int, padding: tuple[int, int]) -> None:
    made = checked(text(16, width, stride, padding)[0])
    assert {c.kind for c in made.communications} <= {"halo"}, made.explain()


@pytest.mark.parametrize("fill", ["0xFF800000", "1.0"])
@pytest.mark.parametrize(("frame", "columns"), [((0, 1), (0, 1)), ((1, 1), (0, 0)), ((2, 0), (1, 1)), ((1, 2), (2, 0))])
def test_what_a_frame_adds_may_be_chosen(frame: tuple[int, int], columns: tuple[int, int], fill: str) -> None:
    """As JAX has it: padded with the least number before, cut after. A window may choose what was added, and does of NaN."""
    made = checked(text(16, 3, 2, frame=frame, columns=columns, fill=fill)[0])
    assert {c.kind for c in made.communications} <= {"halo"}, made.explain()


def test_the_gradient_of_a_networks_first_pooling_sends_three_rows_and_one() -> None:
    made = checked(text(16, 3, 2, frame=(0, 1))[0])
    assert made.sent_bytes == 3 * 5 * 4 + 4 * 4, made.explain()


def test_windows_that_reach_farther_than_the_next_tile() -> None:
    made = checked(text(32, 9, 2, (3, 3), parts=8)[0])
    assert {c.kind for c in made.communications} <= {"halo"}, made.explain()


def test_tiles_that_strides_do_not_divide_are_taken_otherwise() -> None:
    checked(text(12, 3, 2, (1, 0))[0])
    checked(text(14, 3, 2, frame=(0, 1))[0])
