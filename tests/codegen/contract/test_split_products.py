"""A vector by a large matrix across its rows: pieces of the sum, which follow from the shapes alone, then their sum."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
from tests.codegen.contract.test_contractions import arrays_for, check, dot, tensor
from tiling.proving.obligations import prove


def is_split(executable: codegen.Executable) -> bool:
    """Whether the sum is made in pieces, the last phase adding them."""
    phases = executable.plan.fusions[0].schedule.phases
    return len(phases) == 2 and phases[-1].tasks == 1 < phases[0].tasks


@pytest.mark.parametrize("types", [("f32",) * 3, ("f64",) * 3, ("i32",) * 3, ("ui64",) * 3])
@pytest.mark.machine("avx512")
def test_a_vector_by_a_matrix(types: tuple[str, str, str]) -> None:
    assert is_split(check(dot(1, 700, 1801, types)))
    assert is_split(check(dot(1100, 1, 1027, types, left="km")))


@pytest.mark.machine("avx512")
def test_what_is_not_split() -> None:
    for text in (dot(1, 700, 1801, right="nk"), dot(1, 300, 600), dot(1, 40000, 600), dot(1, 700, 1801, ("bf16", "bf16", "f32"))):
        check(text)
    assert not is_split(check(dot(1, 300, 600)))


def test_a_batch_and_what_follows() -> None:
    check(dot(1, 130, 2050, batch=5))
    a, b, c = tensor((1, 2000), "f32"), tensor((2000, 600), "f32"), tensor((1, 600), "f32")
    check(f"""func.func @main(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
      %x = stablehlo.tanh %a : {a}
      %p = stablehlo.dot_general %x, %b, contracting_dims = [1] x [0] : ({a}, {b}) -> {c}
      %s = stablehlo.add %p, %c : {c}
      %r = stablehlo.maximum %s, %c : {c}
      return %r : {c} }}""")


def test_the_same_bits_for_every_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that the plan is made for."""
    module = hlo.parse(dot(1, 700, 1801))
    arrays = arrays_for(module, 0)
    found = {codegen.compile(module, threads=t)(*arrays)[0].tobytes() for t in (1, 2, 3, 7)}
    for cores in ("1", "5"):
        monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", cores)
        found.add(codegen.compile(hlo.parse(dot(1, 700, 1801)))(*arrays)[0].tobytes())
    assert len(found) == 1


def test_nan_and_infinity_stay_in_their_columns() -> None:
    module = hlo.parse(dot(1, 700, 1801))
    a, b = arrays_for(module, 0)
    b[1800, 3], b[5, 4], b[7, 699], b[900, 699] = np.nan, np.inf, np.inf, -np.inf
    (found,), (expected,) = codegen.compile(module)(a, b), interp.evaluate(module, a, b)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


@pytest.mark.parametrize("text", [dot(1, 700, 1801), dot(3, 700, 600, right="nk"), dot(70, 3, 50, left="km")])
def test_schedules_are_proved(text: str) -> None:
    (fusion,) = codegen.compile(hlo.parse(text)).plan.fusions
    found = prove(fusion.schedule)
    assert found.holds and not found.refuted, str(found)


@pytest.mark.parametrize("text", [
    dot(70, 3, 50, left="km", batch=4),
    dot(1, 60, 900, ("bf16",) * 3), dot(80, 70, 900, ("bf16",) * 3), dot(500, 3, 777, ("bf16",) * 3),
])  # fmt: skip
def test_sums_that_are_made_apart_are_proved(text: str) -> None:
    (fusion,) = codegen.compile(hlo.parse(text)).plan.fusions
    found = prove(fusion.schedule)
    assert found.holds and not found.refuted, str(found)
