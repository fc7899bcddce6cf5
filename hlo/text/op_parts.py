"""An op while it is parsed, and what the formats of ops use of the parser."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hlo.module import Block, Value
from hlo.registry import OpDefinition
from hlo.text.lexer import Lexer
from hlo.text.values import ValueParser
from hlo.types import Type

__all__ = ["OpParser", "OpParts", "Scope", "Steps"]

Steps = Generator["Steps", Any, Any]
"""A parser that yields the parsers of the regions inside it and gets their results."""


@dataclass
class OpParts:
    """An op while it is parsed: what the directives have found so far."""

    definition: OpDefinition
    at: int
    result_count: int
    operands: dict[str, list[Value]] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    result_types: tuple[Type, ...] = ()

    def flat(self) -> list[Value]:
        """All operands in the definition's order."""
        return [v for o in self.definition.operands for v in self.operands.get(o.name, ())]


class Scope(Protocol):
    """The names of values that may be used."""

    def push(self) -> None: ...
    def pop(self) -> None: ...


class OpParser(Protocol):
    """What formats use of the parser of a text (`hlo.text.block_parser`)."""

    lexer: Lexer
    values: ValueParser

    @property
    def scope(self) -> Scope: ...
    def use(self) -> Value: ...
    def define(self, name: str, value: Value, at: int) -> None: ...
    def value_follows(self) -> bool: ...
    def check_types(self, operands: Sequence[Value], types: Sequence[Type], at: int) -> None: ...
    def integer_list(self) -> tuple[int, ...]: ...
    def properties(self, parts: OpParts) -> None: ...
    def attribute_dictionary(self, parts: OpParts) -> None: ...
    def block_arguments(self, closing: str) -> Block: ...
    def region(self) -> Steps: ...
    def body(self, block: Block) -> Steps: ...
    def _trailing_location(self) -> None: ...
