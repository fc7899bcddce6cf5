"""HLO text (as XLA dumps it) to its computations: names, types, opcodes, operands and attributes, as they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hlo.errors import ParseError
from hlo.module import Source
from hlo.text.lexer import Lexer
from hlo.text.xla.groups import MESH
from hlo.text.xla.special import Instruction
from hlo.text.xla.types import parse_type, skip

__all__ = ["Computation", "Reader"]

_NAME = re.compile(r"%?([A-Za-z_][\w.\-]*+)", re.ASCII)
_OPCODE = re.compile(r"[a-z][a-z0-9\-]*+", re.ASCII)
_VALUE = re.compile(r'"(?:[^"\\]++|\\.)*+"|[^\s,"{}()\[\]]++')
_SECTION = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)\s*\n(?:[ \t]*\d[^\n]*\n?)*")
_BRACKET = re.compile(r"[(){}]")


@dataclass
class Computation:
    """Instructions in order. `root` is the one marked ROOT, or the last."""

    name: str
    at: int
    instructions: list[Instruction] = field(default_factory=list)
    is_entry: bool = False

    @property
    def root(self) -> Instruction:
        return next((i for i in self.instructions if i.is_root), self.instructions[-1])


class Reader:
    """Text to computations."""

    def __init__(self, source: Source) -> None:
        self.lexer = Lexer(source)
        self.text = source.text
        self.computations: dict[str, Computation] = {}
        self.name: str | None = None
        self.attributes: dict[str, str] = {}

    def error(self, message: str, at: int) -> ParseError:
        return self.lexer.error(message, at)

    def read(self) -> None:
        """Reads the whole text."""
        text = self.text
        position = skip(text, 0)
        if text.startswith("HloModule", position):
            position = self._header(position + 9)
        while True:
            position = skip(text, position)
            while m := _SECTION.match(text, position):
                position = skip(text, m.end())
            if position >= len(text):
                break
            position = self._computation(position)
        if not self.computations:
            raise self.error("expected a computation", len(text))

    def _header(self, position: int) -> int:
        position = skip(self.text, position)
        m = _NAME.match(self.text, position)
        if m is None:
            raise self.error("expected the module's name", position)
        self.name = m.group(1)
        self.attributes, position = self._attributes(m.end())
        return position

    def _attributes(self, position: int) -> tuple[dict[str, str], int]:
        """`, key=value, key=value` as raw texts."""
        text = self.text
        found: dict[str, str] = {}
        while True:
            after = skip(text, position)
            if not text.startswith(",", after):
                return found, position
            after = skip(text, after + 1)
            m = _NAME.match(text, after)
            if m is None or not text.startswith("=", m.end()):
                raise self.error("expected an attribute key=value", after)
            begin = m.end() + 1
            position = self._value_end(begin)
            if position == begin:
                raise self.error(f"expected a value for {m.group(1)}", begin)
            found[m.group(1)] = text[begin:position]

    def _value_end(self, position: int) -> int:
        """The end of an attribute's value: words, strings and balanced brackets without a space or comma between them.

        There are some in the groups that a mesh's axes form: `mesh['x'=2,'y'=2] {'x'}`.
        """
        text = self.text
        groups = MESH.match(text, position)
        if groups is not None:
            return groups.end()
        while position < len(text):
            c = text[position]
            if c in "{[(":
                position = self._balanced(position)
                continue
            m = _VALUE.match(text, position)
            if m is None:
                break
            position = m.end()
        return position

    def _balanced(self, position: int) -> int:
        """The position after the bracket that closes the one at `position`."""
        lx = self.lexer
        lx.seek(position)
        return lx.balanced()

    def _computation(self, position: int) -> int:
        text = self.text
        begin = position
        is_entry = False
        m = _NAME.match(text, position)
        if m is None:
            raise self.error("expected a computation", position)
        if m.group(1) == "ENTRY":
            is_entry = True
            position = skip(text, m.end())
            m = _NAME.match(text, position)
            if m is None and not text.startswith("{", position):
                raise self.error("expected the computation's name", position)
        name = m.group(1) if m is not None else "entry"
        position = skip(text, m.end() if m is not None else position)
        if text.startswith("(", position):
            position = skip(text, self._balanced(position))
            if not text.startswith("->", position):
                raise self.error("expected '->' after a computation's parameters", position)
            _, position = parse_type(self.lexer, position + 2)
            position = skip(text, position)
        if not text.startswith("{", position):
            raise self.error("expected '{' at the beginning of a computation", position)
        computation = Computation(name, begin, is_entry=is_entry)
        position = skip(text, position + 1)
        seen: set[str] = set()
        while not text.startswith("}", position):
            if position >= len(text):
                raise self.error("a computation without its closing brace", begin)
            instruction, position = self._instruction(position)
            if instruction.name in seen:
                raise self.error(f"{instruction.name[:80]} is defined twice", instruction.at)
            seen.add(instruction.name)
            computation.instructions.append(instruction)
            position = skip(text, position)
        if not computation.instructions:
            raise self.error("a computation without instructions", begin)
        if name in self.computations:
            raise self.error(f"computation {name[:80]} is defined twice", begin)
        self.computations[name] = computation
        if is_entry and sum(c.is_entry for c in self.computations.values()) > 1:
            raise self.error("a module has one ENTRY", begin)
        position += 1
        # `}, execution_thread="host"` after a computation
        _, position = self._attributes(position)
        return position

    def _instruction(self, position: int) -> tuple[Instruction, int]:
        text = self.text
        m = _NAME.match(text, position)
        if m is None:
            raise self.error("expected an instruction", position)
        is_root = m.group(0) == "ROOT"
        if is_root:
            m = _NAME.match(text, skip(text, m.end()))
            if m is None:
                raise self.error("expected an instruction after ROOT", position)
        name = m.group(1)
        position = skip(text, m.end())
        if not text.startswith("=", position):
            raise self.error("expected '='", position)
        t, position = parse_type(self.lexer, position + 1)
        position = skip(text, position)
        opcode = _OPCODE.match(text, position)
        if opcode is None:
            raise self.error("expected an opcode", position)
        position = skip(text, opcode.end())
        if not text.startswith("(", position):
            raise self.error("expected '(' after an opcode", position)
        code = opcode.group()
        if code == "constant":
            end = self._literal_end(position)
        else:
            end = self._balanced(position)
        body = (position + 1, end - 1)
        operands = self._operands(*body) if code not in ("constant", "parameter") else []
        attributes, position = self._attributes(end)
        return Instruction(name, t, code, operands, body, attributes, opcode.start(), is_root), position

    def _literal_end(self, position: int) -> int:
        """A literal may be long: only brackets matter."""
        depth = 0
        for m in _BRACKET.finditer(self.text, position):
            depth += 1 if m.group() in "({" else -1
            if not depth:
                return m.end()
        raise self.error("a literal without its closing parenthesis", position)

    def _operands(self, begin: int, end: int) -> list[tuple[str, int]]:
        """Names separated by commas, each after its optional type."""
        text = self.text
        found: list[tuple[str, int]] = []
        position = skip(text, begin)
        while position < end:
            m = _NAME.match(text, position)
            # A type before the name: f32[2]{0} %x, or (f32[2], s32[]) %x
            if m is None or text.startswith("[", skip(text, m.end())):
                _, position = parse_type(self.lexer, position)
                position = skip(text, position)
                m = _NAME.match(text, position)
            if m is None or m.end() > end:
                raise self.error("expected an operand", position)
            found.append((m.group(1), m.start()))
            position = skip(text, m.end())
            if position < end:
                if not text.startswith(",", position):
                    raise self.error("expected ',' between operands", position)
                position = skip(text, position + 1)
        return found
