"""Windows of channels one by one go side by side: each sum keeps its order, whatever their number and their stride."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import tiling
from codegen.target import Target, use_target
from interp import evaluate
from tests.mutations.judge import Judge
from tests.mutations.mutants import mutants
from tests.mutations.table import judged
from tiling.loops.ir import Nest, Schedule
from tiling.loops.marks import rows_faults
from tiling.passing import without
from tiling.pipeline import finished
from tiling.proving.obligations import prove

DEPTHWISE = """func.func @main(%x: tensor<1x{h}x{w}x{c}xf32>, %k: tensor<{k}x{k}x1x{c}xf32>) -> tensor<1x{oh}x{ow}x{c}xf32> {{
  %y = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{stride = [{s}, {s}], pad = [[{p}, {p}], [{p}, {p}]]}}
    {{batch_group_count = 1 : i64, feature_group_count = {c} : i64}}
    : (tensor<1x{h}x{w}x{c}xf32>, tensor<{k}x{k}x1x{c}xf32>) -> tensor<1x{oh}x{ow}x{c}xf32>
  return %y : tensor<1x{oh}x{ow}x{c}xf32>
}}"""


def depthwise(h: int, w: int, c: int, k: int, s: int) -> hlo.Module:
    p = k // 2
    oh, ow = ((n + 2 * p - k) // s + 1 for n in (h, w))
    return hlo.parse(DEPTHWISE.format(h=h, w=w, c=c, k=k, s=s, p=p, oh=oh, ow=ow))


def loops_of(module: hlo.Module) -> Schedule:
    (fusion,) = tiling.plan(module, machine=tiling.Machine(cores=1)).fusions
    return finished(fusion.schedule)


def widths(schedule: Schedule) -> list[int]:
    nests = [s for p in schedule.phases for s in p.steps if isinstance(s, Nest)]
    return [n.loops[-2].together for n in nests if n.folds and all(f.products > 1 for f in n.folds)]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((7, 7, 96, 5, 1), [7]),  # all of a row
        ((14, 14, 64, 5, 2), [7]),
        ((12, 13, 64, 3, 1), [4, 1]),  # whole groups, and the rest one by one
        ((9, 7, 64, 7, 1), [4, 3]),  # 49 products: no more than four at a time, and a rest that is a group
        ((40, 40, 32, 3, 1), [4, 2]),  # 38 windows are inside of the image
        ((9, 9, 64, 2, 1), [1]),  # four products: the loop's overhead is not what takes the time
    ],
)
def test_as_many_as_divide_a_row_go_side_by_side(shape: tuple[int, ...], expected: list[int]) -> None:
    found = widths(loops_of(depthwise(*shape)))
    assert found == expected


def random_shapes() -> Iterator[tuple[int, int, int, int, int]]:
    rng = np.random.default_rng(20)
    for _ in range(6):
        h, w = rng.integers(5, 31, 2).tolist()
        yield h, w, int(rng.integers(16, 70)), int(rng.choice([3, 5, 7])), int(rng.integers(1, 3))


@pytest.mark.parametrize("target", ["host", "avx2", "baseline"])
@pytest.mark.parametrize("shape", list(random_shapes()), ids=str)
def test_the_bits_are_those_of_one_window_after_the_other(shape: tuple[int, ...], target: str) -> None:
    module = depthwise(*shape)
    rng = np.random.default_rng(sum(shape))
    x, k = (rng.standard_normal(v.tensor.shape).astype(np.float32) for v in module.functions["main"].body.arguments)
    x.flat[0] = np.inf  # stays in the windows that read it
    with use_target(Target.named(target)):
        exe = codegen.compile(module, threads=1)
        with without("windows_together"):
            plain = codegen.compile(module, threads=1)
        assert exe.fallbacks == []
        got, expected = exe(x, k)[0], plain(x, k)[0]
    np.testing.assert_array_equal(got, expected)
    (right,) = evaluate(module, x, k)
    np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)


def test_a_mark_holds_only_where_all_loops_are_parallel_and_groups_are_whole() -> None:
    schedule = loops_of(depthwise(7, 7, 96, 5, 1))
    nest = next(s for p in schedule.phases for s in p.steps if isinstance(s, Nest) and s.folds)
    assert list(rows_faults(nest, schedule.ranges)) == []

    def marked(together: int, products: int) -> str:
        loops = (*nest.loops[:-2], replace(nest.loops[-2], together=together), nest.loops[-1])
        folds = tuple(replace(f, products=products) for f in nest.folds)
        return " ".join(rows_faults(replace(nest, loops=loops, folds=folds), schedule.ranges))

    assert "expected whole groups" in marked(4, 25)
    assert "expected sums of several products" in marked(7, 1)


def test_what_is_side_by_side_is_proved() -> None:
    (fusion,) = tiling.plan(depthwise(7, 7, 96, 5, 1), machine=tiling.Machine(cores=1)).fusions
    proof = prove(fusion)
    assert proof.holds, str(proof)


@pytest.mark.parametrize("shape", [(7, 7, 16, 5, 1), (6, 9, 16, 3, 1), (12, 11, 16, 3, 2)], ids=str)
def test_another_number_of_windows_is_refuted_or_has_the_same_results(shape: tuple[int, ...]) -> None:
    schedule = loops_of(depthwise(*shape))
    changed = [m for m in mutants(schedule) if m.field == "together"]
    assert changed
    judge = Judge(schedule)
    assert {judged("windows", judge, m).verdict for m in changed} <= {"refuted", "equal"}
