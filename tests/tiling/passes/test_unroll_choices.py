"""Parts of a concatenation that are computed from the same elements: one body that does all of them, where they share enough."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tests.goldens.prints import MACHINES
from tests.tiling.passes.pass_programs import EXAMPLES
from tiling.loops.element_ir import Choose, all_nodes, runtimes_of
from tiling.loops.ir import Nest
from tiling.passing import without


def stacked(*bodies: str, count: int = 64, last: bool = False) -> hlo.Module:
    """Values of x and y (`count` x 64) side by side along a new dimension, the first or the last one."""
    t, n = f"tensor<{count}x64xf32>", len(bodies)
    dims, part = ("[0, 1]", f"tensor<{count}x64x1xf32>") if last else ("[1, 2]", f"tensor<1x{count}x64xf32>")
    made = f"tensor<{count}x64x{n}xf32>" if last else f"tensor<{n}x{count}x64xf32>"
    lines = [f"%v{k} = {body} : {t}" for k, body in enumerate(bodies)]
    lines += [f"%p{k} = stablehlo.broadcast_in_dim %v{k}, dims = {dims} : ({t}) -> {part}" for k in range(n)]
    parts, types = ", ".join(f"%p{k}" for k in range(n)), ", ".join([part] * n)
    body = "\n".join(lines)
    return hlo.parse(f"""func.func @main(%x: {t}, %y: {t}) -> {made} {{
      {body}
      %c = stablehlo.concatenate {parts}, dim = {2 if last else 0} : ({types}) -> {made}
      return %c : {made} }}""")


SHARING = [f"stablehlo.{op} {a}, {b}" for op in ("add", "subtract", "multiply") for a, b in (("%x", "%y"), ("%y", "%x"))]


def nests(plan: tiling.Plan) -> list[Nest]:
    return [s for f in plan.fusions for s in f.schedule.main.steps if isinstance(s, Nest)]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("machine", MACHINES)
def test_all_parts_are_one_body(machine: str, last: bool) -> None:
    """Sixteen spherical harmonics side by side along the last dimension took 1.2 ms for 50,000 points, now .23 (JAX .8)."""
    module = stacked(*SHARING, last=last)
    plan = tiling.plan(module, machine=MACHINES[machine])
    (nest,) = nests(plan)
    assert len(nest.stores) == 6 and not [n for n in all_nodes(nest.each) if isinstance(n, Choose)]
    assert tiling.prove(plan).holds
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2)]
    (found,), (expected,) = codegen.compile(plan)(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_array_equal(found, expected)


def gradient(rows: int) -> hlo.Module:
    """The gradient of a function of three components, row by row: each component's is padded by zeros, and they are added."""
    t, one = f"tensor<{rows}x3xf32>", f"tensor<{rows}x1xf32>"
    pads = "\n".join(
        f"%p{k} = stablehlo.pad %g{k}, %z, low = [0, {k}], high = [0, {2 - k}], interior = [0, 0] : ({one}, tensor<f32>) -> {t}"
        for k in range(3)
    )
    return hlo.parse(f"""func.func @main(%x: {t}) -> {t} {{
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %a = stablehlo.slice %x [0:{rows}, 0:1] : ({t}) -> {one}
      %b = stablehlo.slice %x [0:{rows}, 1:2] : ({t}) -> {one}
      %g0 = stablehlo.multiply %a, %b : {one}
      %g1 = stablehlo.cosine %a : {one}
      %g2 = stablehlo.negate %b : {one}
      {pads}
      %s = stablehlo.add %p0, %p1 : {t}
      %y = stablehlo.add %s, %p2 : {t}
      return %y : {t} }}""")


@pytest.mark.parametrize(("rows", "stores"), [(2000, 3), (20, 1)])
def test_components_of_many_rows_are_one_body(rows: int, stores: int) -> None:
    """Gradients by `jax.grad` of functions that take a vector apart, 100,000 of them: .68 ms, now .15 (JAX .17)."""
    module = gradient(rows)
    plan = tiling.plan(module, machine=MACHINES["avx2"])
    (nest,) = nests(plan)
    assert len(nest.stores) == stores
    assert tiling.prove(plan).holds
    x = np.random.default_rng(2).standard_normal((rows, 3)).astype(np.float32)
    np.testing.assert_allclose(codegen.compile(plan)(x)[0], interp.evaluate(module, x)[0], rtol=1e-6)


def nested(*sizes: int) -> hlo.Module:
    """Stacks of stacks of sums and differences, each along a new last dimension, the innermost ones of `sizes[-1]` values."""
    t, lines = "tensor<200xf32>", []
    for name, op in (("a", "add"), ("b", "subtract"), ("d", "multiply")):
        lines.append(f"%{name} = stablehlo.{op} %x, %y : {t}")

    def typed(depth: int) -> str:
        return f"tensor<200x{'x'.join(['1'] * depth + [*map(str, sizes[depth:]), 'f32'])}>"

    def stack(place: tuple[int, ...]) -> str:
        name = "%v" + "_".join(map(str, place))
        if len(place) == len(sizes):
            lines.append(f"{name} = stablehlo.reshape %{'abd'[sum(place) * place[0] % 3]} : ({t}) -> {typed(len(sizes))}")
            return name
        parts = [stack((*place, k)) for k in range(sizes[len(place)])]
        types = ", ".join([typed(len(place) + 1)] * len(parts))
        operands, result = ", ".join(parts), typed(len(place))
        lines.append(f"{name} = stablehlo.concatenate {operands}, dim = {len(place) + 1} : ({types}) -> {result}")
        return name

    made = stack(())
    body = "\n".join([*lines, f"return {made} : {typed(0)}"])
    return hlo.parse(f"func.func @main(%x: {t}, %y: {t}) -> {typed(0)} {{\n{body}\n}}")


def test_a_body_has_no_more_stores_than_are_worth_it() -> None:
    """Stacks of stacks of 40 were 1,600 stores, which took 50 times as long as with a loop for one of both."""
    module = nested(9, 9, 9)
    plan = tiling.plan(module, machine=MACHINES["avx2"], supports=codegen.supports)
    assert max(len(nest.stores) for nest in nests(plan)) == 9  # not 81
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(200).astype(np.float32) for _ in range(2)]
    np.testing.assert_array_equal(codegen.compile(plan)(*arrays)[0], interp.evaluate(module, *arrays)[0])


def test_long_rows_that_are_only_picked_stay_a_loop() -> None:
    module = stacked(*["stablehlo.negate %x", "stablehlo.negate %y"] * 20, last=True)
    assert max(len(n.stores) for n in nests(tiling.plan(module, machine=MACHINES["avx2"]))) < 3


def test_the_cost_knows_that_elements_are_read_once() -> None:
    module = stacked(*SHARING, count=4096)
    (fusion,) = tiling.plan(module, machine=MACHINES["avx2"]).fusions
    with without("unroll_choices"):
        (plain,) = tiling.plan(module, machine=MACHINES["avx2"]).fusions
    assert fusion.estimate.arithmetic_seconds < plain.estimate.arithmetic_seconds


def test_parts_that_share_nothing_stay_a_loop() -> None:
    module = stacked("stablehlo.negate %x", "stablehlo.negate %y", "stablehlo.cosine %x")
    found = nests(tiling.plan(module, machine=MACHINES["avx2"]))
    assert max(len(n.stores) for n in found) < 3


def test_without_the_pass_results_are_the_same() -> None:
    module = EXAMPLES["unroll_choices"]()
    arrays = [np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7 - k for k in range(2)]
    (expected,) = codegen.compile(module)(*arrays)
    with without("unroll_choices"):
        (found,) = codegen.compile(tiling.plan(module))(*arrays)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("work", "columns", "stores"), [("tanh", 3, 3), ("tanh", 8, 8), ("tanh", 9, 1), ("negate", 4, 1)])
def test_a_short_row_of_which_not_all_do_the_same_is_written_out(work: str, columns: int, stores: int) -> None:
    """A function of one component alone: rows of three were loops of one and two turns. What is only moved stays a loop."""
    t, one, rest = f"tensor<200x{columns}xf32>", "tensor<200x1xf32>", f"tensor<200x{columns - 1}xf32>"
    module = hlo.parse(f"""func.func @main(%x: {t}) -> {t} {{
      %a = stablehlo.slice %x [0:200, 0:1] : ({t}) -> {one}
      %b = stablehlo.slice %x [0:200, 1:{columns}] : ({t}) -> {rest}
      %w = stablehlo.{work} %a : {one}
      %c = stablehlo.concatenate %w, %b, dim = 1 : ({one}, {rest}) -> {t}
      return %c : {t} }}""")
    plan = tiling.plan(module, machine=MACHINES["avx512"])
    (nest,) = nests(plan)
    assert len(nest.stores) == stores
    x = np.random.default_rng(0).standard_normal((200, columns)).astype(np.float32)
    np.testing.assert_allclose(codegen.compile(plan)(x)[0], interp.evaluate(module, x)[0], rtol=1e-6)


@pytest.mark.parametrize("machine", MACHINES)
def test_components_of_what_is_looked_up_are_one_body(machine: str) -> None:
    """Each copy of a place known at run time had the one variable: such loops asked each element which component it is."""
    t, one = "tensor<2000xf32>", "tensor<2000x1xf32>"
    module = hlo.parse(f"""func.func @main(%t: tensor<50xf32>, %i: tensor<2000x1xi32>, %y: {t}) -> tensor<2000x3xf32> {{
      %x = "stablehlo.gather"(%t, %i) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
        index_vector_dim = 1>, slice_sizes = array<i64: 1>}}> : (tensor<50xf32>, tensor<2000x1xi32>) -> {t}
      %a = stablehlo.add %x, %y : {t}
      %b = stablehlo.subtract %x, %y : {t}
      %c = stablehlo.multiply %x, %y : {t}
      %a1 = stablehlo.reshape %a : ({t}) -> {one}
      %b1 = stablehlo.reshape %b : ({t}) -> {one}
      %c1 = stablehlo.reshape %c : ({t}) -> {one}
      %r = stablehlo.concatenate %a1, %b1, %c1, dim = 1 : ({one}, {one}, {one}) -> tensor<2000x3xf32>
      return %r : tensor<2000x3xf32>
    }}""")
    plan = tiling.plan(module, machine=MACHINES[machine])
    (nest,) = nests(plan)
    assert len(nest.stores) == 3 and len({r for n in all_nodes(nest.each) for r in runtimes_of(n)}) == 1
    assert tiling.prove(plan).holds
    rng = np.random.default_rng(3)
    places = rng.integers(-9, 60, (2000, 1), np.int32)
    arrays = [rng.standard_normal(50, np.float32), places, rng.standard_normal(2000, np.float32)]
    (found,), (expected,) = codegen.compile(plan)(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_array_equal(found, expected)
