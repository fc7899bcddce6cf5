"""Every scalar function is described once in each layer, and what is said of it is what the evaluator computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interp
from codegen.source.scalars import NARROW, SCALAR_CODE, WITHOUT_CODE
from hlo import Declined
from hlo.builder import Builder, type_of
from hlo.registry import Elementwise, OpDefinition, definitions
from hlo.types import element_type
from tiling.elements.folds import is_neutral
from tiling.elements.scalar_functions import COMPARED, SCALAR_FUNCTIONS, Neutral, ScalarFunction, Span, scalar_function

CHEAPER = {"fast_erf": "erf", "fast_tanh": "tanh"}  # formulas that no op has, and what they stand for
PLANNED = {"threefry2x32"}  # of ops that only programs that are planned have
FUNCTIONS: dict[str, list[OpDefinition]] = {}
for d in definitions():
    if isinstance(d.semantics, Elementwise):
        FUNCTIONS.setdefault(d.semantics.function, []).append(d)


def in_words(declined: Declined) -> bool:
    return len(declined.reason.split()) >= 3


def test_every_scalar_function_has_every_fact() -> None:
    names = {*FUNCTIONS, *CHEAPER, *PLANNED}
    lacking = names - set(SCALAR_FUNCTIONS)
    assert not lacking, "each scalar function has a row of SCALAR_FUNCTIONS (tiling/elements/scalar_functions.py)"
    lacking = names - {*SCALAR_CODE, *WITHOUT_CODE}
    assert not lacking, "each scalar function has a row of SCALAR_CODE (codegen/source/scalars.py), or of WITHOUT_CODE"
    assert not SCALAR_CODE.keys() & WITHOUT_CODE.keys()
    for name in names:
        known = SCALAR_FUNCTIONS[name]
        assert known.cost >= 1.0, name
        for fact in (known.span, known.arrays, known.neutral):
            assert not isinstance(fact, Declined) or in_words(fact), name
    assert all(map(in_words, WITHOUT_CODE.values()))
    assert all(code.stays_in <= NARROW for code in SCALAR_CODE.values())


def test_no_row_is_of_a_function_that_no_op_has() -> None:
    known = {d.semantics.function for d in definitions() if isinstance(d.semantics, Elementwise)} | set(CHEAPER) | PLANNED
    assert {*SCALAR_FUNCTIONS, *SCALAR_CODE, *WITHOUT_CODE} <= known


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ops_of_one_function_have_as_many_operands(name: str) -> None:
    assert len({len(d.operands) for d in FUNCTIONS[name]}) == 1


def test_what_is_not_described_costs_an_addition() -> None:
    assert scalar_function("no_such_function") == ScalarFunction()


def test_folds_have_code_where_they_may_be_reordered() -> None:
    assert {n for n, f in SCALAR_FUNCTIONS.items() if f.is_associative} == {n for n, c in SCALAR_CODE.items() if c.fold}


def evaluated(function: str, kind: str, *arrays: np.ndarray) -> np.ndarray:
    """The evaluator's values of a scalar function of elements of a type."""
    op = FUNCTIONS[function][-1]
    t = f"{kind}[{arrays[0].size}]"
    b = Builder()
    operands = [b.parameter(k, t) for k in range(len(arrays))]
    attributes: dict[str, Any] = {"comparison_direction": "LT"} if function == "compare" else {}
    result = b.emit(op.name, operands, attributes, result_types=[type_of(t)] if function == "convert" else None)
    (made,) = interp.evaluate(b.build(result), *arrays)
    return np.asarray(made)


def samples(low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([[low, high], rng.uniform(low, high, 62)])


@pytest.mark.parametrize("name", [n for n, f in SCALAR_FUNCTIONS.items() if not isinstance(f.span, Declined) and n in FUNCTIONS])
def test_spans_hold_what_the_evaluator_computes(name: str) -> None:
    rng = np.random.default_rng(0)
    span = SCALAR_FUNCTIONS[name].span
    assert not isinstance(span, Declined)
    count = len(FUNCTIONS[name][-1].operands)
    known = 0
    for _ in range(20):
        ends = [sorted(rng.normal(size=2) * 10.0 ** rng.integers(-2, 3) + rng.choice([0.0, 5.0])) for _ in range(count)]
        low, high = span(*(Span(float(a), float(b)) for a, b in ends))
        if np.isnan(low):
            continue
        known += 1
        found = evaluated(name, "f64", *(samples(a, b, rng) for a, b in ends))
        slack = 1e-12 * max(abs(low), abs(high))
        assert low - slack <= found.min() and found.max() <= high + slack, ends
    assert known >= 3


@pytest.mark.parametrize("name", [n for n, f in SCALAR_FUNCTIONS.items() if not isinstance(f.arrays, Declined)])
def test_arrays_are_computed_as_the_evaluator_does(name: str) -> None:
    rng = np.random.default_rng(0)
    function = SCALAR_FUNCTIONS[name].arrays
    assert not isinstance(function, Declined)
    count = len(FUNCTIONS[name][-1].operands)
    if name in ("and", "or", "xor", "not"):
        arrays = [rng.integers(0, 2, 64).astype(bool) for _ in range(count)]
        np.testing.assert_array_equal(function(*arrays), evaluated(name, "pred", *arrays))
    elif name == "select":
        predicate, x, y = rng.integers(0, 2, 64).astype(bool), rng.normal(size=64), rng.normal(size=64)
        assert np.array_equal(function(predicate, x, y), np.where(predicate, x, y))
    else:
        arrays = [np.abs(rng.normal(size=64)) + 0.1 for _ in range(count)]
        np.testing.assert_allclose(function(*arrays), evaluated(name, "f64", *arrays), rtol=1e-12)


def test_comparisons_of_arrays() -> None:
    x, y = np.array([1.0, 2.0, 2.0, np.nan]), np.array([2.0, 2.0, 1.0, 1.0])
    assert {k: f(x, y).astype(int).tolist() for k, f in COMPARED.items()} == {
        "EQ": [0, 1, 0, 0], "NE": [1, 0, 1, 1], "LT": [1, 0, 0, 0], "LE": [1, 1, 0, 0], "GT": [0, 0, 1, 0], "GE": [0, 1, 1, 0],
    }  # fmt: skip


@pytest.mark.parametrize("name", [n for n, f in SCALAR_FUNCTIONS.items() if f.is_associative])
@pytest.mark.parametrize("kind", ["f64", "s8", "u8", "pred"])
def test_neutral_elements_change_nothing(name: str, kind: str) -> None:
    neutral = SCALAR_FUNCTIONS[name].neutral
    assert isinstance(neutral, Neutral)
    element = element_type({"s8": "i8", "u8": "ui8", "pred": "i1"}.get(kind, kind))
    e = neutral.of(element)
    if e is None:
        return
    x = {
        "f64": np.array([-np.inf, -1.5, 0.0, 2.5, np.inf, *([-0.0, np.nan] if neutral.is_for_all else [])]),
        "s8": np.arange(-128, 128, dtype=np.int8), "u8": np.arange(256, dtype=np.uint8), "pred": np.array([False, True]),
    }[kind]  # fmt: skip
    neutrals = np.full_like(x, e)
    np.testing.assert_array_equal(evaluated(name, kind, x, neutrals), x)
    np.testing.assert_array_equal(evaluated(name, kind, neutrals, x), x)
    assert is_neutral(name, neutrals[0], element)
    other = np.array(1 if e == 0 else 0, x.dtype)[()]
    assert not is_neutral(name, other, element)
