"""Scatters to slices and progressions of places: as choices they give what scatters give; they stay where that is better."""

from __future__ import annotations

import random

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.module import Op
from indexing.deriving.edges import edges_of
from tiling.program.updates.in_place import MOST_WRITTEN_OUT
from tiling.program.updates.known_places import known_places

BODIES = {
    "set": "stablehlo.return %b : tensor<f32>",
    "add": "%t = stablehlo.add %a, %b : tensor<f32>\n stablehlo.return %t : tensor<f32>",
    "apply": "%t = stablehlo.sine %a : tensor<f32>\n stablehlo.return %t : tensor<f32>",
    "halve the difference": """%d = stablehlo.subtract %a, %b : tensor<f32>
      %h = stablehlo.constant dense<0.5> : tensor<f32>
      %t = stablehlo.multiply %d, %h : tensor<f32>
      stablehlo.return %t : tensor<f32>""",
}


def tensor(shape: tuple[int, ...], element: str = "f32") -> str:
    return f"tensor<{'x'.join(map(str, (*shape, element)))}>"


def scatter(
    name: str, operand: str, shape: tuple[int, ...], indices: np.ndarray, update: str, updated: tuple[int, ...], numbers: str,
    body: str,
) -> str:  # fmt: skip
    dense = str(indices.tolist()).replace("'", "")
    return f"""  %{name}_i = stablehlo.constant dense<{dense}> : {tensor(indices.shape, "i32")}
  %{name} = "stablehlo.scatter"({operand}, %{name}_i, {update}) <{{
    scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      {BODIES[body]}
    }}) : ({tensor(shape)}, {tensor(indices.shape, "i32")}, {tensor(updated)}) -> {tensor(shape)}"""


def module_of(shape: tuple[int, ...], updated: tuple[int, ...], lines: str, result: str = "%r") -> hlo.Module:
    return hlo.parse(
        f"func.func @main(%x: {tensor(shape)}, %u: {tensor(updated)}) -> {tensor(shape)} {{\n{lines}\n"
        f"  return {result} : {tensor(shape)}\n}}"
    )


def checked(module: hlo.Module) -> list[str]:
    """The names of the planned program's ops that update; its kernels give what the evaluator gives."""
    rng = np.random.default_rng(3)
    given = [rng.standard_normal(v.shape, np.float32) for v in module.function().arguments]
    for a, b in zip(codegen.compile(module)(*given), interp.evaluate(module, *given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    program = tiling.plan(module, supports=codegen.supports).program
    return [op.name for op in program.ops if "scatter" in op.name or "update" in op.name or op.name == "stablehlo.pad"]


def scatter_of(module: hlo.Module) -> Op:
    return next(op for op in module.function().body.ops if op.name == "stablehlo.scatter")


@pytest.mark.parametrize("body", BODIES)
def test_a_slice_is_chosen(body: str) -> None:
    """`x.at[1:-1, 2:-1].add(u)`."""
    line = scatter("r", "%x", (8, 10), np.array([1, 2]), "%u", (6, 7), "update_window_dims = [0, 1], "
                   "scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 0", body)  # fmt: skip
    assert checked(module_of((8, 10), (6, 7), line)) == ["stablehlo.dynamic_update_slice"]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(("start", "step", "count"), [(0, 2, 5), (1, 2, 5), (9, -2, 4), (2, 3, 3), (9, -1, 10)])
def test_a_progression_is_chosen(start: int, step: int, count: int, body: str) -> None:
    """`x.at[:, start::step].add(u)`."""
    indices = start + step * np.arange(count).reshape(-1, 1)
    line = scatter("r", "%x", (6, 10), indices, "%u", (6, count), "update_window_dims = [0], inserted_window_dims = [1], "
                   "scatter_dims_to_operand_dims = [1], index_vector_dim = 1", body)  # fmt: skip
    found = checked(module_of((6, 10), (6, count), line))
    assert found and "stablehlo.scatter" not in found


def test_of_two_dimensions_each_has_its_places() -> None:
    """`x.at[1::2, ::3].set(u)`, its places given column by column."""
    rows, columns = np.meshgrid(1 + 2 * np.arange(4), 3 * np.arange(4))
    line = scatter("r", "%x", (8, 10), np.stack([rows, columns], -1), "%u", (4, 4), "inserted_window_dims = [0, 1], "
                   "scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2", "set")  # fmt: skip
    assert "stablehlo.scatter" not in checked(module_of((8, 10), (4, 4), line))


OTHERS = {
    "one place twice": (np.array([[2], [2]]), (2, 6)),
    "no progression": (np.array([[0], [1], [5]]), (3, 6)),
    "outside": (np.array([[4], [6], [8]]), (3, 6)),
    "before": (np.array([[-1], [0]]), (2, 6)),
}


@pytest.mark.parametrize(("indices", "updated"), OTHERS.values(), ids=list(OTHERS))
def test_other_places_are_scattered(indices: np.ndarray, updated: tuple[int, ...]) -> None:
    line = scatter("r", "%x", (8, 6), indices, "%u", updated, "update_window_dims = [1], inserted_window_dims = [0], "
                   "scatter_dims_to_operand_dims = [0], index_vector_dim = 1", "add")  # fmt: skip
    module = module_of((8, 6), updated, line)
    assert known_places(scatter_of(module)) is None
    assert checked(module) == ["stablehlo.scatter"]


def row(name: str, over: str, place: int, n: int, numbers: str = "update_window_dims = [0]") -> str:
    return scatter(name, over, (n, n), np.array([place]), "%u", (n,), f"{numbers}, inserted_window_dims = [0], "
                   "scatter_dims_to_operand_dims = [0], index_vector_dim = 0", "set")  # fmt: skip


def test_conditions_on_edges_are_one_kernel() -> None:
    """Each edge copied the whole value before, in a kernel of one task: a stencil's result was gone over three times."""
    n = 96
    lines = "  %y = stablehlo.sine %x : " + tensor((n, n)) + "\n" + row("top", "%y", 0, n) + "\n" + row("r", "%top", n - 1, n)
    module = module_of((n, n), (n,), lines)
    assert checked(module) == ["stablehlo.dynamic_update_slice"] * 2
    assert len(tiling.plan(module, supports=codegen.supports).fusions) == 1


def test_rows_as_wide_as_their_value_are_asked_for_by_row_alone() -> None:
    """A test along a dimension in which the update lies everywhere cut the innermost loop of tiles for nothing."""
    update = '%r = stablehlo.dynamic_update_slice %x, %u, %i, %j : (tensor<8x6xf32>, tensor<3x6xf32>, tensor<i32>, tensor<i32>)'
    module = hlo.parse(
        f"func.func @main(%x: tensor<8x6xf32>, %u: tensor<3x6xf32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<8x6xf32> "
        f"{{\n  {update} -> tensor<8x6xf32>\n  return %r : tensor<8x6xf32>\n}}"
    )
    edges = edges_of(module.function().body.ops[0])
    assert not isinstance(edges, hlo.Declined)
    (read,) = [e for e in edges.reads if e.operand == 1]
    assert (len(read.map.constraints), len(read.conditions)) == (2, 1)


def test_a_row_amid_a_large_value_is_stored_over_it() -> None:
    n = 96
    lines = "  %y = stablehlo.sine %x : " + tensor((n, n)) + "\n" + row("r", "%y", 40, n)
    assert checked(module_of((n, n), (n,), lines)) == ["in_place.scatter"]


def test_a_constant_is_not_written_over() -> None:
    n = 64
    lines = f"  %z = stablehlo.constant dense<2.0> : {tensor((n, n))}\n" + row("r", "%z", 40, n)
    assert checked(module_of((n, n), (n,), lines)) == ["stablehlo.scatter"]


def test_of_many_updates_the_later_ones_are_stored_over_the_first() -> None:
    lines, over = [], "%x"
    for k in range(MOST_WRITTEN_OUT + 3):
        lines.append(row(f"r{k}", over, k, 24))
        over = f"%r{k}"
    found = checked(module_of((24, 24), (24,), "\n".join(lines), over))
    assert found[:MOST_WRITTEN_OUT] == ["stablehlo.dynamic_update_slice"] * MOST_WRITTEN_OUT
    assert found[MOST_WRITTEN_OUT:] == ["stablehlo.scatter", "in_place.scatter", "in_place.scatter"]


@pytest.mark.parametrize("seed", range(24))
def test_random_places_give_what_scatters_give(seed: int) -> None:
    """Boxes and progressions in up to three dimensions, dimensions of the update in any order."""
    rng = random.Random(seed)
    rank = rng.randint(1, 3)
    shape = tuple(rng.randint(3, 9) for _ in range(rank))
    kinds = [rng.choice(("all", "slice", "one", "every")) for _ in shape]
    batch = [d for d in range(rank) if kinds[d] == "every"]
    order = rng.sample(batch, len(batch))  # of the indices' dimensions
    spans = {}
    for d in batch:
        step = rng.choice((1, 2, -1, -2))
        count = rng.randint(1, (shape[d] - 1) // abs(step) + 1)
        low = rng.randint(0, shape[d] - 1 - (count - 1) * abs(step))
        spans[d] = (low if step > 0 else low + (count - 1) * -step, step, count)
    grid = np.meshgrid(*(s + k * np.arange(n) for s, k, n in (spans[d] for d in order)), indexing="ij") if order else []
    fixed = {d: rng.randrange(shape[d]) for d in range(rank) if kinds[d] == "one"}
    windows = [d for d in range(rank) if kinds[d] in ("all", "slice")]
    widths = {d: rng.randint(1, shape[d]) if kinds[d] == "slice" else shape[d] for d in windows}
    starts = {d: rng.randint(0, shape[d] - w) for d, w in widths.items() if kinds[d] == "slice"}
    named = [d for d in range(rank) if kinds[d] != "all"]
    base = np.shape(grid[0]) if grid else ()
    parts = [grid[order.index(d)] if d in batch else np.full(base, fixed.get(d, starts.get(d, 0))) for d in named]
    indices = np.stack(parts, -1) if parts else np.zeros((*base, 0), int)
    dims = ["w"] * len(windows) + ["s"] * len(order)
    rng.shuffle(dims)
    sizes = {"w": iter([widths[d] for d in windows]), "s": iter([spans[d][2] for d in order])}
    updated = tuple(next(sizes[kind]) for kind in dims)
    numbers = [
        f"update_window_dims = {[k for k, kind in enumerate(dims) if kind == 'w']}",
        f"inserted_window_dims = {[d for d in range(rank) if d not in widths]}",
        f"scatter_dims_to_operand_dims = {named}",
        f"index_vector_dim = {len(base)}",
    ]
    line = scatter("r", "%x", shape, indices, "%u", updated, ", ".join(numbers), rng.choice(list(BODIES)))
    module = module_of(shape, updated, line)
    assert not named or known_places(scatter_of(module)) is not None
    assert "stablehlo.scatter" not in checked(module)
