"""What is frozen stays as it is: no pass changes the loops that it is given; nodes are keys as themselves."""

from __future__ import annotations

import pathlib
import re

import pytest

import hlo
import tiling
from hlo.identity import IdentityDict
from hlo.module import Block
from hlo.types import TensorType, element_type
from indexing.expr import Interval, Var, as_expr
from tests.tiling.passes.test_lane_folds import program as places_of_maxima
from tiling.loops.element_ir import Apply, IndexNode, Load, Node, Renamer, loads, rebuild
from tiling.loops.ir import Schedule
from tiling.passing import Pass
from tiling.pipeline import finished, observed

ROOT = pathlib.Path(__file__).resolve().parents[3]

LARGE_SUM = """func.func @main(%x: tensor<512x1024xf32>) -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<512x1024xf32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32> }"""
EXPECTED = {"a large sum": {"split_fold", "collapse_loops"}, "the place of a maximum": {"lane_folds"}}
FILES = ("softmax", "causal_attention", "cumulative_sum", "max_pooling")


def programs() -> dict[str, str]:
    files = {p.stem: p for folder in ("examples", "tests/programs") for p in sorted((ROOT / folder).glob("*.mlir"))}
    chosen = {name: files[name].read_text("utf-8") for name in FILES}
    return {"a large sum": LARGE_SUM, "the place of a maximum": places_of_maxima(16, 4096), **chosen}


@pytest.mark.parametrize("name", programs())
def test_no_pass_changes_the_loops_that_it_is_given(name: str) -> None:
    made: list[tuple[str, Schedule, dict[Var, Interval]]] = []

    def keep(p: Pass, schedule: Schedule) -> None:
        made.append((p.name, schedule, dict(schedule.ranges)))

    with observed(keep):
        plan = tiling.plan(hlo.parse(programs()[name]))
        for f in plan.fusions:
            finished(f.schedule)
    changed = {p for (p, schedule, _), (_, before, _) in zip(made[1:], made, strict=False) if schedule is not before}
    assert changed >= EXPECTED.get(name, set()), "the passes that it is about"
    assert not [p for p, schedule, ranges in made if dict(schedule.ranges) != ranges]


def test_two_loads_of_one_element_are_two_nodes_at_one_place() -> None:
    (v,), i = Block([TensorType((4,), element_type("f32"))]).arguments, Var("i")
    a, b, other = (Load(v, (as_expr(e),)) for e in (i, i, i + 1))
    assert a != b and a.place == b.place != other.place
    assert {a: 1, b: 2} == {b: 2, a: 1} and len({a, b}) == 2
    assert IndexNode(as_expr(i), element_type("i32")) != IndexNode(as_expr(i), element_type("i32"))
    assert loads([a, other, b]) == [a, other]


def test_copies_share_what_was_copied() -> None:
    """Roots that are copied one after the other by one memo have their common nodes in common, and what stays is not copied."""
    module = hlo.parse("HloModule m\nENTRY e { x = f32[4] parameter(0) n = f32[4] negate(x) ROOT a = f32[4] add(n, n) }")
    negate, add = module.entry.body.ops[:2]
    i, j = Var("i"), Var("j")
    below = Apply(negate, "negate", (Load(negate.operands[0], (as_expr(i),)),))
    roots: list[Node] = [Apply(add, "add", (below, below)), below]
    rename = Renamer({i: as_expr(j)}, {j: Interval(0, 3)}, {})
    first, second = map(rename.node, roots)
    assert isinstance(first, Apply) and first.arguments == (second, second) and second is not below
    assert rebuild(roots[0], lambda load: load, tuple, {}) is roots[0]


def test_arrays_are_keys_as_themselves() -> None:
    a, b = [1], [1]
    table: IdentityDict[list[int], str] = IdentityDict()
    table[a], table[b] = "a", "b"
    assert (table[a], table[b], table.pop(a), len(table), a in table, [*table] == [b]) == ("a", "b", "a", 1, False, True)
    with pytest.raises(KeyError):
        table[[1]]


# The rooms in which objects are keys, and the files that mean addresses.
ROOMS = ("hlo", "indexing", "interp", "tilewright", "tiling", *(f"codegen/{r}" for r in (
    "c", "kernel", "launcher", "native", "remembered", "source", "tune",
)))  # fmt: skip
BY_IDENTITY = {
    "hlo/identity.py",
    "tilewright/pjrt/entries.py",  # hands addresses of objects to native code
    "tilewright/jax/calls/known_arguments.py",  # compares hundreds of objects at each call, and must not keep them
}


@pytest.mark.parametrize("room", ROOMS)
def test_objects_are_keys_not_their_ids(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    found = [f.relative_to(ROOT).as_posix() for f in files if re.search(r"\bid\(|\bmap\(id\b", f.read_text("utf-8"))]
    assert set(found) <= BY_IDENTITY
