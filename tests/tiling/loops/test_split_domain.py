"""Index-set splitting: parts are disjoint and cover their domain, what is known on them is so, rewritten nodes do the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import pytest

import hlo
import interp
import tiling
from codegen import compile
from hlo.access import Condition
from hlo.types import ELEMENT_TYPES
from indexing.expr import EVERYTHING, Const, Expr, Interval, Var, as_expr, evaluate, minimum
from tiling.loops.domains.split_domain import (
    Part,
    Rewriting,
    pinned,
    residue_class,
    split_domain,
    split_whole_groups,
    where_all_hold,
)
from tiling.loops.element_ir import Choose, IndexNode, Node, Scalar
from tiling.loops.element_ir import Test as Truth
from tiling.loops.ir import Loop

T, U = Var("t"), Var("u")
RANGES = {T: Interval(0, 3), U: Interval(-2, 2)}
AROUND = [{T: t, U: u} for t, u in product(range(4), range(-2, 3))]
I32 = ELEMENT_TYPES["i32"]
Point = dict[Var, int]


def points(loops: Sequence[Loop], at: Mapping[Var, int]) -> Iterator[Point]:
    """The iterations of loops, in order."""
    if not loops:
        yield dict(at)
        return
    x, *rest = loops
    for value in range(evaluate(x.lower, at), evaluate(x.upper, at) + 1):
        yield from points(rest, {**at, x.variable: value})


def old_points(part: Part, at: Mapping[Var, int], variables: Sequence[Var]) -> list[tuple[int, ...]]:
    """The iterations of a part, in the variables of the domain that was cut."""
    return [tuple(evaluate(part.at.get(v, as_expr(v)), p) for v in variables) for p in points(part.loops, at)]


def holds(c: Condition, at: Mapping[Var, int]) -> bool:
    return c.lower <= evaluate(as_expr(c.expression), at) <= c.upper


def some_loops(rng: random.Random) -> list[Loop]:
    """One to three loops: whole ones, ragged ones, and one whose end another's variable gives."""
    loops: list[Loop] = []
    for k in range(rng.randint(1, 3)):
        v, n = Var(f"i{k}"), rng.randint(1, 7)
        upper: Expr = rng.choice([Const(n - 1), minimum(n - 1, 9 - 3 * T), minimum(n - 1, T + U)])
        if loops and rng.random() < 0.3:
            upper = minimum(n - 1, as_expr(loops[0].variable))
        loops.append(Loop(v, rng.choice([Const(0), Const(0), as_expr(U)]), upper, n + 2))
    return loops


def some_condition(rng: random.Random, loops: Sequence[Loop]) -> Condition:
    """On one of the loops, in steps of up to 3 in either direction, or on none of them; with one side or two."""
    e = rng.randint(-2, 2) * T + rng.randint(-1, 1) * U + rng.randint(-4, 4)
    if rng.random() < 0.85:
        e = e + rng.choice([-3, -2, -1, 1, 1, 2, 3]) * rng.choice(loops).variable
    lower = rng.randint(-5, 5)
    sides = (lower, lower + rng.randint(0, 6)), (EVERYTHING.lower, lower), (lower, EVERYTHING.upper)
    return Condition(e, *rng.choice(sides))


@pytest.mark.parametrize("seed", range(5))
def test_parts_are_disjoint_and_cover_and_what_is_known_is_so(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        loops = some_loops(rng)
        variables = [x.variable for x in loops]
        ranges = {**RANGES, **dict.fromkeys(variables, Interval(-2, 8))}
        cuts = [[some_condition(rng, loops) for _ in range(rng.choice([1, 1, 2, 3]))] for _ in range(rng.randint(1, 2))]
        parts = split_domain(loops, cuts, ranges)
        assert parts is not None
        first = where_all_hold(loops, cuts[0], ranges)
        for at in AROUND:
            done = [(p, x) for p in parts for x in old_points(pinned(p, loops), at, variables)]
            every = [tuple(p[v] for v in variables) for p in points(loops, at)]
            assert sorted(x for _, x in done) == sorted(every)
            if len(variables) == 1 and all(set(variables) <= set(c.expression.variables) for k in cuts for c in k):
                assert [x for _, x in done] == every, "along one loop the order stays"
            for p, x in done:
                here = {**at, **dict(zip(variables, x, strict=True))}
                assert all(holds(c, here) is known for c, known in p.truth.items())
                assert p.is_inside is all(holds(c, here) for conjunction in cuts for c in conjunction)
            within = [x for x in every if all(holds(c, {**at, **dict(zip(variables, x, strict=True))}) for c in cuts[0])]
            assert old_points(first, at, variables) == within
            for p in parts:  # an extent is the most iterations that there are
                assert all(evaluate(x.upper, y) - evaluate(x.lower, y) < x.extent for y in points(p.loops, at) for x in p.loops)


def test_conditions_that_tie_loops_or_are_no_range_are_not_cut_at() -> None:
    i, j = (Loop(Var(n), Const(0), Const(7), 8) for n in "ij")
    for e in (i.variable + j.variable, i.variable % 3, i.variable // 2 + i.variable):
        assert split_domain([i, j], [[Condition(as_expr(e), 1, 5)]], {}) is None
        with pytest.raises(ValueError, match="expected conditions on one loop each"):
            where_all_hold([i, j], [Condition(as_expr(e), 1, 5)], {})


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("ragged", [False, True])
def test_whole_groups_and_their_residues_cover_a_loop_once(size: int, ragged: bool) -> None:
    i, j = Var("i"), Var("j")
    for n in range(1, 14):
        upper = minimum(n - 1, 20 - 6 * T) if ragged else Const(n - 1)
        groups, rest = split_whole_groups(Loop(i, Const(0), upper, n), size, RANGES)
        for at in AROUND:
            made: list[int] = []
            if groups is not None:
                each = [residue_class(groups.loops[0], size, r, j, RANGES) for r in range(size)]
                assert all(p.loops == each[0].loops for p in each), "one loop does an iteration of each"
                made = [x for turn in points(each[0].loops, at) for p in each for x in [evaluate(p.at[i], turn)]]
                assert not any("min" in str(x.lower) + str(x.upper).replace(str(upper), "") for x in groups.loops)
            left = [] if rest is None else [p[i] for p in points(rest.loops, at)]
            assert [*made, *left] == [p[i] for p in points([Loop(i, Const(0), upper, n)], at)]
            assert len(left) < size and (rest is None or rest.loops[0].extent < size)


def some_node(rng: random.Random, conditions: Sequence[Condition], loops: Sequence[Loop], depth: int) -> Node:
    if depth == 0:
        leaf = rng.random()
        if leaf < 0.6:
            return IndexNode(rng.randint(1, 3) * rng.choice(loops).variable + T, I32)
        return Truth((rng.choice(conditions),)) if leaf < 0.8 else Scalar(np.int32(rng.randint(0, 9)), I32)
    then, otherwise = (some_node(rng, conditions, loops, depth - 1) for _ in range(2))
    return Choose(tuple(rng.choices(conditions, k=rng.randint(1, 2))), then, otherwise)


def value(n: Node, at: Mapping[Var, int]) -> int:
    if isinstance(n, Choose):
        return value(n.then if all(holds(c, at) for c in n.conditions) else n.otherwise, at)
    if isinstance(n, Truth):
        return int(all(holds(c, at) for c in n.conditions))
    if isinstance(n, IndexNode):
        return evaluate(n.expression, at)
    assert isinstance(n, Scalar)
    return int(n.value)


@pytest.mark.parametrize("seed", range(3))
def test_rewritten_nodes_have_the_same_values_on_their_part(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(8):
        loops = some_loops(rng)
        variables = [x.variable for x in loops]
        ranges = {**RANGES, **dict.fromkeys(variables, Interval(-2, 8))}
        conditions = [some_condition(rng, loops) for _ in range(4)]
        node = some_node(rng, conditions, loops, 3)
        parts = [pinned(p, loops) for p in split_domain(loops, [conditions[:1], conditions[1:3]], ranges) or ()]
        first = Loop(variables[0], Const(0), Const(7), 8)
        parts += [residue_class(first, 3, r, Var("j"), ranges) for r in range(3)]
        for p in parts:
            inside = {**ranges, **{x.variable: Interval(-2, 8) for x in p.loops}}
            new = Rewriting(p, inside).node(node)
            for at in AROUND[::3]:
                own = {*p.at, *(x.variable for x in p.loops)}
                rest = [Loop(v, Const(-2), Const(8), 11) for v in variables if v not in own]
                for here in points([*p.loops, *rest], at):
                    before = {**here, **{v: evaluate(e, here) for v, e in p.at.items()}}
                    assert value(new, here) == value(node, before)


NEVER_WHOLE = """func.func @main(%x: tensor<5x16xf32>, %w: tensor<5x16xf32>) -> tensor<9x16xf32> {
  %c = stablehlo.constant dense<2.5e-01> : tensor<f32>
  %low = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %p = stablehlo.pad %x, %c, low = [0, 0], high = [0, 0], interior = [1, 0] : (tensor<5x16xf32>, tensor<f32>) -> tensor<9x16xf32>
  %b = stablehlo.broadcast_in_dim %p, dims = [0, 2] : (tensor<9x16xf32>) -> tensor<9x3x16xf32>
  %q = stablehlo.pad %b, %c, low = [0, 1, 0], high = [0, 2, 0], interior = [0, 0, 0]
    : (tensor<9x3x16xf32>, tensor<f32>) -> tensor<9x6x16xf32>
  %r = stablehlo.reduce(%q init: %low) applies stablehlo.minimum across dimensions = [1]
    : (tensor<9x6x16xf32>, tensor<f32>) -> tensor<9x16xf32>
  return %r : tensor<9x16xf32>
}"""


def test_a_window_that_is_never_whole_has_no_inside() -> None:
    """Each fold reaches over the edge: the one part of such a cut is where the condition fails."""
    module = hlo.parse(NEVER_WHOLE)
    x = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32) + 3
    executable = compile(module)
    np.testing.assert_array_equal(executable(x, x)[0], interp.evaluate(module, x, x)[0])
    assert tiling.prove(executable.plan).refuted == ()


CHANNELS = """func.func @main(%x: tensor<2x6x9xf32>, %k: tensor<6x1x3xf32>) -> tensor<2x6x9xf32> {
  %y = stablehlo.convolution(%x, %k) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {pad = [[1, 1]]}
    {batch_group_count = 1 : i64, feature_group_count = 6 : i64} : (tensor<2x6x9xf32>, tensor<6x1x3xf32>) -> tensor<2x6x9xf32>
  return %y : tensor<2x6x9xf32>
}"""


def test_what_a_part_decides_is_not_asked_there() -> None:
    """Of three taps written out each edge leaves out one, which the position along the row tells: nothing is left to test."""
    module = hlo.parse(CHANNELS)
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((2, 6, 9), np.float32), rng.standard_normal((6, 1, 3), np.float32)
    plan = tiling.plan(module, machine=tiling.Machine(cores=2, vector_bytes=32, vector_registers=16))
    executable = compile(plan)
    np.testing.assert_allclose(executable(x, k)[0], np.asarray(interp.evaluate(module, x, k)[0]), rtol=2e-6, atol=2e-6)
    assert "if " not in executable.source
    assert all(tiling.prove(f).refuted == () for f in plan.fusions)
