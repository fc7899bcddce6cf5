"""Walks ops x {verify, index, evaluate, emit}: each cell works, or says in words why it is declined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import indexing
import interp
from codegen.source.scalars import SCALAR_CODE
from hlo import Declined
from hlo.registry import Elementwise, OpDefinition, Operand, definition, definitions, lookup, register
from hlo.typesets import F, tensors
from interp.registry import rule_for
from tests.indexing.op_examples import EXAMPLES

ALL = list(definitions())


def in_words(declined: Declined) -> bool:
    return len(declined.reason.split()) >= 3


@pytest.mark.parametrize("op", ALL, ids=[d.name for d in ALL])
def test_every_op_has_every_cell(op: OpDefinition) -> None:
    assert op.constraints or not isinstance(op.infer, Declined) or in_words(op.infer), "nothing verifies it"
    assert not isinstance(op.access, Declined) or in_words(op.access)
    assert not isinstance(op.semantics, Declined) or in_words(op.semantics)
    rule = rule_for(op.name)
    assert op.is_terminator or rule is not None, "the evaluator has neither a rule nor a reason"
    if rule is not None and rule.declined is not None:
        assert in_words(rule.declined)
    # An op is emitted when it has loops and its scalar function a rule; else the evaluator must be able to run it.
    if isinstance(op.semantics, Elementwise) and op.semantics.function not in SCALAR_CODE:
        assert rule is not None and rule.declined is None, (
            f"neither codegen.source.scalars nor the evaluator computes {op.semantics.function}"
        )


def test_a_sum_of_products_has_two_operands() -> None:
    """One of a single operand, a sum of squares, was taken, and ended in a ValueError while its kernel was written."""
    product = definition("stablehlo.dot_general")
    square = replace(product, name="example.squares", operands=(Operand("x", tensors(F)),), aliases=())
    with pytest.raises(ValueError, match=r"op example\.squares: expected two operands of a sum of products, found 1"):
        register(square)
    assert lookup("example.squares") is None


def arrays_for(op: hlo.Op, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for v in op.operands:
        t = v.tensor
        if t.dtype == np.bool_:
            arrays.append(rng.integers(0, 2, t.static_shape).astype(bool))
        elif t.dtype.kind in "iu":
            arrays.append(rng.integers(0, 3, t.static_shape).astype(t.dtype))
        elif t.dtype.kind == "c":
            arrays.append(
                (rng.standard_normal(t.static_shape) + 1j * rng.standard_normal(t.static_shape)).astype(t.dtype)
            )
        else:
            arrays.append(np.asarray(rng.uniform(0.5, 1.5, t.static_shape)).astype(t.dtype))
    return arrays


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_through_every_cell(name: str) -> None:
    line, arguments = EXAMPLES[name]
    module = hlo.parse(f"func.func @main({arguments}) {{\n  {line}\n  return\n}}")
    function = module.entry
    op = function.body.ops[0]
    function.body.ops[-1] = hlo.Op(definition("func.return"), op.results)
    function.result_types = tuple(r.type for r in op.results)
    hlo.verify(module)
    if not isinstance(op.definition.access, Declined):
        for output in range(len(op.results)):
            assert len(indexing.output_to_input(op, output)) == len(op.operands)
    rule = rule_for(op.name)
    assert rule is not None
    if rule.declined is not None:
        assert in_words(rule.declined)
        return
    arrays = arrays_for(op, 1)
    if op.name == "stablehlo.cholesky":
        arrays = [a @ np.swapaxes(a, -1, -2) + 4 * np.eye(a.shape[-1], dtype=a.dtype) for a in arrays]
    expected = interp.evaluate(module, *arrays)
    executable = codegen.compile(module)
    found = executable(*arrays)
    for fallback in executable.fallbacks:
        assert len(fallback.split()) > 4, "a fallback has its reason"
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            kind = np.complex128 if a.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(a.astype(kind), b.astype(kind), rtol=1e-5, atol=1e-6)
