"""The table of evaluator rules, by op name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hlo import Declined, DefinitionError
from hlo.registry import is_added, lookup, similar

__all__ = ["Rule", "decline", "rule", "rule_for", "rule_names"]

RuleFunction = Callable[..., Any]
F = TypeVar("F", bound=RuleFunction)


@dataclass(frozen=True)
class Rule:
    """How one op is evaluated: `function(context, op, *operands)` returns its one result, the tuple of its results
    (a result that is itself a tuple value always comes inside of one), or a generator that ends with either.

    is_elementwise  the function works on arrays of any one shape (scalars broadcast), element by element
    is_view         the result takes no memory of its own; on scalars the function is the identity or elementwise
    is_transparent  the function passes operands on to a block (or to its result) without looking into them
    calls_out       the function runs the caller's own code, whose exceptions pass through
    declined        why the op is not evaluated; its function raises that
    dequantizes     quantized operands are dequantized first and results quantized last (dequantize_op_quantize)
    """

    name: str
    function: RuleFunction
    is_elementwise: bool = False
    is_view: bool = False
    is_transparent: bool = False
    dequantizes: bool = False
    declined: Declined | None = None
    calls_out: bool = False


_RULES: dict[str, Rule] = {}


def rule(
    *names: str,
    elementwise: bool = False,
    view: bool = False,
    transparent: bool = False,
    dequantizes: bool | None = None,
    calls_out: bool = False,
) -> Callable[[F], F]:
    """Decorator: registers a function as the rule of the ops `names`, or replaces the one that the same module registered.

    Raises DefinitionError (a ValueError) for a name that no definition has, and for one that has a rule of another module.
    Elementwise rules dequantize unless they say otherwise.
    """
    through = elementwise if dequantizes is None else dequantizes

    def add(function: F) -> F:
        for name in names:
            found = lookup(name)
            if found is None:
                raise DefinitionError(f"interp.rules: expected a rule of a registered op, found {name!r}{similar(name)}")
            old = _RULES.get(name)
            if old is not None and not (is_added(found) and old.function.__module__ == function.__module__):
                both = f"of {old.function.__module__} and {function.__module__}"
                raise DefinitionError(f"interp.rules has two rules for {name}: {both}")
            _RULES[name] = Rule(name, function, elementwise, view, transparent, through, calls_out=calls_out)
        return function

    return add


def decline(name: str, reason: str) -> None:
    """Registers the op `name` as one that is not evaluated, and says why."""

    def refuse(context: Any, op: Any, *operands: Any) -> Any:
        raise context.error(op, f"declined: {reason}")

    rule(name)(refuse)
    _RULES[name] = replace(_RULES[name], declined=Declined(reason))


def rule_for(name: str) -> Rule | None:
    """The rule of the op called `name`, or None."""
    return _RULES.get(name)


def rule_names() -> tuple[str, ...]:
    """The names of all ops that have a rule."""
    return tuple(sorted(_RULES))
