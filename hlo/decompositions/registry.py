"""The table of decompositions: op name -> how it is written in StableHLO ops, or why it is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from hlo.builder import Builder
from hlo.decompositions.expressions import Expression
from hlo.errors import Declined, DefinitionError
from hlo.module import Block, Op, Value
from hlo.registry import is_added, lookup

__all__ = ["DECLINED", "Rewriter", "Rule", "decomposition", "function", "rule", "rules"]


class Rewriter(Protocol):
    """What a decomposition uses of the rewrite (`hlo.decompositions.rewrite`)."""

    builder: Builder

    def inline(self, block: Block, arguments: Sequence[Value]) -> tuple[Value, ...]: ...


Rule = Callable[[Rewriter, Op, tuple[Value, ...]], tuple[Value, ...] | Declined]

_RULES: dict[str, Rule] = {}

DECLINED: dict[str, Declined] = {
    "chlo._asin_acos_kernel": Declined("an inner step of one lowering of asin and acos, whose result that lowering defines"),
}
"""CHLO ops without a decomposition, and why."""


def rule(name: str) -> Callable[[Rule], Rule]:
    """Decorator: the decomposition of the op `name`; it replaces one of the same module. The op need not be registered yet.

    Raises DefinitionError (a ValueError) for an op whose decomposition is another module's.
    """

    def add(made: Rule) -> Rule:
        old, known = _RULES.get(name), lookup(name)
        if old is not None and not (known is not None and is_added(known) and old.__module__ == made.__module__):
            raise DefinitionError(f"{name} has two decompositions: of {old.__module__} and {made.__module__}")
        _RULES[name] = made
        return made

    return add


class NoFormulaError(Exception):
    """Raised by a formula that has no form for its operands' types; the decomposition is declined with its message."""


def function(name: str, formula: Callable[..., Expression]) -> None:
    """The decomposition of an elementwise op by a formula on expressions."""

    def apply(rewriter: Rewriter, op: Op, operands: tuple[Value, ...]) -> tuple[Value, ...] | Declined:
        try:
            return (formula(*(Expression(rewriter.builder, v) for v in operands)).value,)
        except NoFormulaError as e:
            return Declined(str(e))

    apply.__module__ = formula.__module__  # whose decomposition it is
    rule(name)(apply)


def decomposition(name: str) -> Rule | Declined | None:
    """How the op `name` is decomposed; None for one that is in StableHLO already or in no dialect that is rewritten."""
    return _RULES.get(name) or DECLINED.get(name)


def rules() -> Mapping[str, Rule]:
    """Op name -> decomposition."""
    return dict(_RULES)
