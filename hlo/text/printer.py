"""A module as StableHLO text that parses back to the same module.

Pretty forms where the op has one, the generic form otherwise. Regions are printed from an explicit stack, so nesting has no
limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hlo.display import as_text
from hlo.module import Block, Function, Module, Op, Value
from hlo.text.assembly import function_text
from hlo.text.attribute_text import dictionary_text, quoted, symbol_text
from hlo.text.formats import FITS, format_of
from hlo.text.kinds import FORMS
from hlo.text.region_formats import PRINTABLE, REGION_FORMATS

__all__ = ["Printer", "print_module"]

_NAME = re.compile(r"[A-Za-z_$.][\w$.-]*\Z|\d+\Z", re.ASCII)
_SHORT = {"func.return": "return", "func.call": "call"}


def print_module(module: Module, *, generic: bool = False, debug: bool = True) -> str:
    """The module's text. `generic` prints every op in its generic form; `debug` keeps `loc(…)`."""
    printer = Printer(generic, debug)
    out: list[str] = []
    stack: list[tuple[Module, int, Iterator[str | Module]]] = []

    def pieces(m: Module, depth: int) -> Iterator[str | Module]:
        pad = "  " * depth
        head = "module"
        if m.name is not None:
            head += " " + symbol_text(m.name)
        if m.attributes:
            head += " attributes " + dictionary_text(m.attributes)
        yield f"{pad}{head} {{\n"
        for text in m.foreign:
            yield f"{pad}  {text}\n"
        for f in m.functions.values():
            yield printer.function(f, depth + 1)
        yield from m.nested
        yield f"{pad}}}\n"

    stack.append((module, 0, pieces(module, 0)))
    while stack:
        _, depth, it = stack[-1]
        piece = next(it, None)
        if piece is None:
            stack.pop()
        elif isinstance(piece, str):
            out.append(piece)
        else:
            stack.append((piece, depth + 1, pieces(piece, depth + 1)))
    if debug:
        out.extend(f"{name} = {text}\n" for name, text in module.aliases.items())
    return "".join(out)


class Printer:
    """Names values and prints functions. One name table for each function, undone at the end of each region."""

    def __init__(self, generic: bool = False, debug: bool = True) -> None:
        self.generic = generic
        self.debug = debug
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.added: list[list[str]] = [[]]
        self.counters: dict[str, int] = {}
        self.depth = 0

    # ------------------------------------------------------------ names

    def enter(self) -> None:
        """Begins a region's names."""
        self.added.append([])

    def leave(self) -> None:
        """Ends them: the same names may be used again."""
        self.taken.difference_update(self.added.pop())

    def _fresh(self, wanted: str | None) -> str:
        base = wanted if wanted and _NAME.match(wanted) else ""
        if base and base not in self.taken:
            name = base
        else:
            # A name that is taken gets a number; one without a name is a number.
            stem = base if base and not base.isdigit() else ""
            n = self.counters.get(stem, 0)
            name = f"{stem}_{n}" if stem else str(n)
            while name in self.taken:
                n += 1
                name = f"{stem}_{n}" if stem else str(n)
            self.counters[stem] = n + 1
        self.taken.add(name)
        self.added[-1].append(name)
        return name

    def define(self, value: Value) -> str:
        """Gives a value its name and returns `%name`."""
        self.names[value] = text = "%" + self._fresh(value.name)
        return text

    def alias(self, value: Value, text: str) -> None:
        """Lets a value go by a name that is already given (while's two regions share their argument names)."""
        self.names[value] = text

    def use(self, value: Value) -> str:
        """The text of a use. A value from nowhere prints as `%<undefined>` does in no parser: `%!`."""
        return self.names.get(value, "%!")

    def results(self, op: Op) -> str:
        """`%0 = `, `%0:2 = ` or `%a, %b = `; names the results."""
        rs = op.results
        if not rs:
            return ""
        first = (rs[0].name or "").partition("#")
        if len(rs) > 1 and (rs[0].name is None or first[1]):
            base = self._fresh(first[0] or None)
            for i, r in enumerate(rs):
                self.names[r] = f"%{base}#{i}"
            return f"%{base}:{len(rs)} = "
        return ", ".join(self.define(r) for r in rs) + " = "

    def indent(self, more: int) -> str:
        """The white space of the current depth plus `more`."""
        return "  " * (self.depth + more)

    # ------------------------------------------------------------ functions

    def function(self, f: Function, depth: int) -> str:
        """A function with its body."""
        self.names, self.taken, self.added, self.counters = {}, set(), [[]], {}
        self.depth = depth
        named = not f.is_declaration
        arguments = ", ".join(
            (f"{self.define(a)}: " if named else "") + f"{a.type}" + _suffix(f.argument_attributes, i)
            for i, a in enumerate(f.arguments)
        )
        head = f"func.func {f.visibility + ' ' if f.visibility else ''}{symbol_text(f.name)}({arguments})"
        shown = [f"{t}{_suffix(f.result_attributes, i)}" for i, t in enumerate(f.result_types)]
        if len(shown) == 1 and not _suffix(f.result_attributes, 0) and not shown[0].startswith("("):
            head += f" -> {shown[0]}"
        elif shown:
            head += f" -> ({', '.join(shown)})"
        if f.attributes:
            head += " attributes " + dictionary_text(f.attributes)
        out = [self.indent(0), head]
        if named:
            out.append(" {\n")
            self._block(f.body, out)
            out.append(self.indent(0) + "}")
        out.append("\n")
        return "".join(out)

    def _block(self, block: Block, out: list[str]) -> None:
        """The ops of a block and of everything inside it, one level deeper than the current depth."""
        stack: list[Iterator[str | tuple[Block, str]]] = [self._ops(block, False)]
        self.depth += 1
        while stack:
            piece = next(stack[-1], None)
            if piece is None:
                stack.pop()
                self.depth -= 1
            elif isinstance(piece, str):
                out.append(piece)
            else:
                out.append(piece[1])
                self.depth += 1
                stack.append(self._ops(piece[0]))

    def _ops(self, block: Block, nested: bool = True) -> Iterator[str | tuple[Block, str]]:
        for op in block.ops:
            yield self.indent(0)
            fmt = None if self.generic else format_of(op.name)
            whole = None if self.generic else REGION_FORMATS.get(op.name)
            if whole is not None and PRINTABLE[op.name](op):
                yield self.results(op) + op.name
                yield from whole.print(op, self)
            elif fmt is not None and not op.regions and _fits(op):
                # Inside another op's region, `call` and `return` need their dialect.
                name = op.name if nested else _SHORT.get(op.name, op.name)
                yield f"{self.results(op)}{name}{fmt.print(op, self)}"
            else:
                yield from self._generic(op)
            if self.debug and op.debug:
                yield " " + op.debug
            yield "\n"

    def _generic(self, op: Op) -> Iterator[str | tuple[Block, str]]:
        operands = ", ".join(self.use(v) for v in op.operands)
        yield f"{self.results(op)}{quoted(op.name)}({operands})"
        known: dict[str, Any] = {}
        for a in op.definition.attributes:
            value = op.attributes.get(a.name)
            if value is not None and not (a.kind == "unit" and value is False):
                known[a.name] = FORMS[a.kind].write(value, a)
        known.update(op.definition.segment_sizes(op))
        if known:
            yield f" <{dictionary_text(known)}>"
        if op.regions:
            yield " ({\n"
            for i, region in enumerate(op.regions):
                if i:
                    yield self.indent(0) + "}, {\n"
                self.enter()
                label = ""
                if region.arguments:
                    label = ", ".join(f"{self.define(a)}: {a.type}" for a in region.arguments)
                    label = f"{self.indent(0)}^bb0({label}):\n"
                yield (region, label)
                self.leave()
            yield self.indent(0) + "})"
        if op.extra:
            yield " " + dictionary_text(op.extra)
        yield " : " + function_text([v.type for v in op.operands], [r.type for r in op.results])


def _fits(op: Op) -> bool:
    """Can the pretty form say this op? It needs as many operands and the attributes that the definition asks for."""
    d = op.definition
    least = sum(1 for o in d.operands if not (o.variadic or o.optional))
    flexible = [o for o in d.operands if o.variadic or o.optional]
    if len(op.operands) < least or (not flexible and len(op.operands) != least) or len(flexible) > 1:
        return False
    fits = FITS.get(op.name)
    if fits is not None and not fits(op):
        return False
    return all(not a.is_required or a.name in op.attributes for a in d.attributes)


def _suffix(attributes: tuple[Mapping[str, Any], ...], i: int) -> str:
    return " " + dictionary_text(attributes[i]) if i < len(attributes) and attributes[i] else ""


as_text.register(Module, print_module)
