"""What interval arithmetic proves isl proves as well: on the memory obligations of right, spoiled and foreign schedules."""

from __future__ import annotations

import importlib
import random
from collections import Counter
from itertools import product
from typing import Any

import pytest

import hlo
import tiling
from codegen.supports import supports
from hlo.access import Condition
from indexing.expr import EVERYTHING, Interval, Var, as_expr
from tests.codegen.test_transposed_convolutions import CASES
from tests.random_programs import random_program
from tests.tiling.test_prove_enumeration import spoiled
from tiling import Machine, Schedule
from tiling.loops.accesses import Domain
from tiling.proving.obligations import Verdict, prove_memory
from tiling.proving.quick_proofs import stays_inside

prove_module = importlib.import_module("tiling.proving.obligations")
AVX2 = Machine(vector_bytes=32, vector_registers=16, cores=4, l2_bytes=256 << 10)


def verdicts(schedule: Schedule) -> Counter[tuple[str, Verdict]]:
    proof = prove_memory(schedule)
    return Counter((o.name, o.verdict) for o in proof.obligations)


def isl_alone(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, Verdict]]:
    def nothing(*arguments: Any, **options: Any) -> bool:
        return False

    with monkeypatch.context() as m:
        for name in ("covers", "stays_inside", "writes_once"):
            m.setattr(prove_module, name, nothing)
        return verdicts(schedule)


def schedules(seed: int) -> list[Schedule]:
    module, _ = random_program(seed)
    return [f.schedule for p in tiling.plan(module, machine=AVX2, supports=supports).nested() for f in p.fusions]


@pytest.mark.parametrize("seed", range(200, 212))
def test_intervals_never_prove_what_isl_refutes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(seed)
    for schedule in schedules(seed):
        for tried in (schedule, *(spoiled(schedule, generator) for _ in range(4))):
            assert verdicts(tried) == isl_alone(tried, monkeypatch), tried


@pytest.mark.parametrize("name", ["three", "different", "first", "space"])
def test_cut_tiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (fusion,) = tiling.plan(hlo.parse(CASES[name].text), machine=AVX2, supports=supports).fusions
    generator = random.Random(name)
    for tried in (fusion.schedule, spoiled(fusion.schedule, generator), spoiled(fusion.schedule, generator)):
        assert verdicts(tried) == isl_alone(tried, monkeypatch), tried


def test_most_is_decided_without_isl(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples' kind of kernels: rows, tiles that are cut, scratch that is read back."""
    asked = []

    class Counted(prove_module.Questions):  # type: ignore[misc, name-defined]
        def ask(self, question: Any) -> Any:
            asked.append(question)
            return super().ask(question)

    monkeypatch.setattr(prove_module, "Questions", Counted)
    text = """func.func @main(%x: tensor<1000x700xf32>, %b: tensor<700xf32>) -> tensor<1000x700xf32> {
      %i = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %m = stablehlo.reduce(%x init: %i) applies stablehlo.maximum across dimensions = [1]
        : (tensor<1000x700xf32>, tensor<f32>) -> tensor<1000xf32>
      %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<1000xf32>) -> tensor<1000x700xf32>
      %bb = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<700xf32>) -> tensor<1000x700xf32>
      %d = stablehlo.subtract %x, %mb : tensor<1000x700xf32>
      %e = stablehlo.multiply %d, %bb : tensor<1000x700xf32>
      return %e : tensor<1000x700xf32> }"""
    module = hlo.parse(text)
    (pin,) = tiling.plan(module, machine=AVX2, supports=supports).pins()
    pin = tiling.Pin(pin.ops, (7, 700))  # 1000 is no multiple of 7
    (fusion,) = tiling.plan(module, machine=AVX2, supports=supports, pins=[pin]).fusions
    proof = prove_memory(fusion.schedule)
    assert proof.holds and len(proof.obligations) > 8
    assert len(asked) <= 1  # only whether tasks meet


@pytest.mark.parametrize("seed", range(40))
def test_bounds_by_conditions_cover_what_there_is(seed: int) -> None:
    """`stays_inside` says yes only where each point of the domain is inside."""
    r = random.Random(seed)
    variables = [(Var(f"v{k}"), Interval(0, r.randrange(1, 6))) for k in range(3)]

    def linear() -> Any:
        e = as_expr(r.randrange(-9, 10))
        for v, _ in variables:
            e = e + v * r.choice([-3, -1, 0, 1, 2, 3])
        return e

    for _ in range(60):
        held = [Condition(linear(), *r.choice([(0, 9), (EVERYTHING.lower, 4), (-3, EVERYTHING.upper)])) for _ in range(2)]
        domain, e = Domain(tuple(variables), tuple(held)), linear()
        spans = [range(b.lower, b.upper + 1) for _, b in variables]
        points = [dict(zip([v for v, _ in variables], at, strict=True)) for at in product(*spans)]
        inside = [p for p in points if all(h.lower <= value(h.expression, p) <= h.upper for h in held)]
        values = [value(e, p) for p in inside] or [0]
        low, high = min(values), max(values)
        for lower, upper in ((low, high), (low + 1, high), (low, high - 1), (-99, 99)):
            if stays_inside(domain, e, lower, upper):
                assert not inside or lower <= low <= high <= upper


def value(e: Any, at: dict[Var, int]) -> int:
    return int(as_expr(e).constant + sum(k * at[v] for v, k in as_expr(e).terms))


@pytest.mark.parametrize("seed", [5091, 5298])
def test_addresses_stand_for_positions_inside_only(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Element [1, -1] of a buffer of one element lies at the address of element [0, 0]."""
    generator = random.Random(seed)
    for schedule in schedules(seed):
        for tried in [spoiled(schedule, generator) for _ in range(6)] + [
            spoiled(spoiled(schedule, generator), generator) for _ in range(2)
        ]:
            assert verdicts(tried) == isl_alone(tried, monkeypatch), tried
