"""An access function says what its op's semantics can use: what they cannot was dropped, or ended in somebody else's error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen
import indexing
import interp
import tiling
from hlo.access import Condition
from hlo.errors import Declined, DefinitionError
from hlo.registry import Elementwise, Generate, Move
from hlo.types import TensorType
from indexing.deriving.agreement import disagreement
from indexing.deriving.edges import edges_of
from indexing.expr import Const, Interval, Var
from indexing.map import Constraint
from tests.added_ops import add_op, program
from tests.hlo.test_builder import CASES, built


def once(index: Callable[..., Any], where: Callable[..., Any] = lambda d: ()) -> Callable[..., Any]:
    """An access function of one read of operand 0."""
    return lambda op, output, d, ix: ix.read(0, index(d), where(d))


def twice(op: Any, output: int, d: Any, ix: Any) -> None:
    ix.read(0, d)
    ix.read(0, ((d[0] + 1) % 9, d[1]))


def shifted(d: Any) -> Any:
    return ((d[0] - 2) % 9, d[1])


def inside(d: Any) -> Any:
    return [Condition(d[0], 2, 8)]


WRONG = [
    ("compared", once(lambda d: (max(d[0], 0), d[1])), None, "TypeError: '>' not supported .* uses [+] - [*] // % alone"),
    ("few", once(lambda d: d[:1]), None, r"expected an index of 2 numbers into operand 0 of type tensor<9x4xf32>, found \(d0\)"),
    ("unknown", lambda op, output, d, ix: ix.read(3, d), None, "expected a read of one of 1 operands, .* found one of operand 3"),
    ("arity", lambda op, d, ix: ix.read(0, d), None, ".* called as access.op, output, d, ix."),
    ("nothing", lambda op, output, d, ix: None, None, "expected one read of each of 1 operands of an elementwise op"),
    ("twice", twice, None, "expected one read of each of 1 operands of an elementwise op, in order, found reads of .0, 0."),
    ("tested", once(shifted, inside), None, "expected reads of an elementwise op to have no conditions, found one of operand 0"),
    ("holes", once(shifted, inside), Move(), "expected a last read without conditions"),
]


@pytest.mark.parametrize(("name", "access", "semantics", "said"), WRONG, ids=[x[0] for x in WRONG])
def test_reads_that_semantics_cannot_use_are_refused(
    name: str, access: Callable[..., Any], semantics: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conditions of an elementwise op were dropped, a move without a last read took any: wrong results, without a word."""
    add_op(monkeypatch, f"wrong.{name}", access, semantics)
    module = program(f"wrong.{name}")
    for ask in (lambda: indexing.output_to_input(module.root), lambda: codegen.compile(module)):
        with pytest.raises(DefinitionError, match=f"<text>:2:8: wrong.{name}: its access function: {said}"):
            ask()


def test_what_makes_its_elements_reads_none(monkeypatch: pytest.MonkeyPatch) -> None:
    add_op(monkeypatch, "wrong.made", once(lambda d: d), Generate(lambda op, d: d[0]))
    with pytest.raises(DefinitionError, match="expected no reads for its Generate, found one of operand 0"):
        edges_of(program("wrong.made").root)


def test_an_elementwise_op_may_read_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def access(op: Any, output: int, d: Any, ix: Any) -> None:
        ix.read(0, ((d[0] + op.attr("by")) % 9, d[1]))
        ix.read(1, d)

    def rule(context: Any, op: Any, x: Any, y: Any) -> Any:
        return np.roll(x, -op.attr("by"), 0) * y

    add_op(monkeypatch, "example.turned_product", access, Elementwise("multiply"), rule, operands=2)
    module = program("example.turned_product", operands=2, by=3)
    x, y = np.random.default_rng(0).normal(size=(2, 9, 4)).astype(np.float32)
    executable = codegen.compile(module)
    assert executable.fallbacks == [] and tiling.prove(executable.plan).holds
    np.testing.assert_array_equal(executable(x, y)[0], interp.evaluate(module, x, y)[0])


D = Var("d0")
RANGES = {D: Interval(0, 8)}


@pytest.mark.parametrize(
    ("spans", "is_covered"),
    [
        ([(0, 3), (4, 8)], True),
        ([(4, 8), (0, 3)], True),
        ([(0, 5), (3, 8)], True),
        ([(0, 3), None, (7, 8)], True),
        ([(0, 3), (5, 8)], False),
        ([(1, 8)], False),
        ([(0, 7)], False),
    ],
)
def test_a_move_leaves_no_element_out(spans: list[tuple[int, int] | None], is_covered: bool) -> None:
    op = built(CASES["copy"])[0].root
    assert isinstance(op.definition.semantics, Move) and op.operands[0].rank == 1
    reads = [(0, (Const(0),), () if s is None else (Constraint(D, Interval(*s)),)) for s in spans]
    assert (disagreement(op.definition, op, reads, RANGES) is None) == is_covered


def test_reads_of_this_projects_ops_agree() -> None:
    """Each op's small program; nothing is declined but what its definition declines."""
    asked = 0
    for row in CASES.values():
        op = built(row)[0].root
        if not isinstance(op.definition.access, Declined) and isinstance(op.results[0].type, TensorType):
            asked += not isinstance(edges_of(op), Declined)
    assert asked > 150
