"""StableHLO (MLIR) text to a module: its functions, nested modules and aliases, around ops (`hlo.text.block_parser`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hlo.module import Block, Function, Module, Source
from hlo.text.block_parser import BlockParser, ValueScope, run
from hlo.text.bytecode import vhlo_problem
from hlo.text.op_parts import Steps
from hlo.text.resources import SECTION_BEGIN, skip_section
from hlo.types import FunctionType, Type

__all__ = ["MlirParser", "parse_mlir"]


def parse_mlir(source: Source) -> Module:
    """The module of a StableHLO text. Raises ParseError."""
    parser = MlirParser(source)
    module: Module = run(parser.top())
    module.source = source
    return module


class MlirParser(BlockParser):
    """Parses one text: what stands around ops."""

    def top(self) -> Steps:
        """The whole text: one module, several, or functions without a module around them."""
        lx = self.lexer
        outer = Module()
        yield from self._items(outer, "end")
        if lx.kind != "end":
            raise lx.expected("a function, a module or the end of the text")
        if len(outer.nested) == 1 and not outer.functions and not outer.foreign:
            inner = outer.nested[0]
            inner.aliases = outer.aliases
            return inner
        return outer

    def _items(self, module: Module, closing: str) -> Steps:
        """Functions, modules and foreign items up to the closing mark."""
        lx = self.lexer
        while lx.kind != closing and lx.kind != "end":
            at = lx.start
            if lx.kind == "hash" or lx.kind == "bang":
                self._alias(module)
            elif lx.kind == "word" and lx.token in ("module", "builtin.module"):
                lx.advance()
                inner = Module(location=lx.location(at))
                if lx.kind == "symbol":
                    inner.name = lx.symbol()
                if lx.accept_word("attributes"):
                    inner.attributes = self.values.dictionary()
                lx.expect("{")
                yield self._items(inner, "}")
                lx.expect("}")
                self._trailing_location()
                module.nested.append(inner)
            elif lx.kind == "word" and lx.token in ("func.func", "func"):
                lx.advance()
                yield self._function(module, at)
            elif lx.kind == "string":
                yield self._generic_item(module)
            elif lx.kind == "word" and lx.token == "sdy.mesh":
                self._foreign_item(module)
            elif closing == "end" and lx.text.startswith(SECTION_BEGIN, lx.start):
                lx.seek(skip_section(lx, lx.start))
            elif lx.kind == "word":
                raise lx.error(vhlo_problem(lx.token) or f"unknown module item {lx.token!r}", at)
            else:
                raise lx.expected("a function or a module")

    def _foreign_item(self, module: Module) -> None:
        """`sdy.mesh @mesh = <["x"=4]>`, kept as text."""
        lx = self.lexer
        begin = lx.start
        lx.advance()
        lx.symbol()
        lx.expect("=")
        if lx.kind != "<":
            raise lx.expected("'<'")
        end = lx.balanced()
        lx.seek(end)
        if lx.kind == "{":
            end = lx.balanced()
            lx.seek(end)
        module.foreign.append(lx.text[begin:end])
        self._trailing_location()

    def _alias(self, module: Module) -> None:
        """`#name = attribute`, `!name = type`; `#loc… = loc(…)` is kept as text, for its uses may come first."""
        lx = self.lexer
        kind, at = lx.kind, lx.start
        name = lx.token
        lx.advance()
        lx.expect("=")
        table = self.values.attribute_aliases if kind == "hash" else self.values.type_aliases
        key = name[1:] if kind == "hash" else name
        if "." in key.lstrip("!"):
            raise lx.error(f"an alias name cannot contain a dot: {name}", at)
        if lx.at_word("loc") and kind == "hash":
            module.aliases[name] = self.values.location_text()
            return
        if key in table:
            raise lx.error(f"alias {name} is defined twice", at)
        table[key] = self.values.measured(self.values.attribute if kind == "hash" else self._any_type)

    def _any_type(self) -> Type:
        return self.values.type()

    def _function(self, module: Module, at: int) -> Steps:
        """`public @main(%a: t {…}) -> (t {…}) attributes {…} { … }` after `func.func`."""
        lx = self.lexer
        f_attributes: dict[str, Any] = {}
        visibility = None
        if lx.kind == "word" and lx.token in ("public", "private", "nested"):
            visibility = lx.token
            lx.advance()
        name_at = lx.start
        name = lx.symbol()
        lx.expect("(")
        types: list[Type] = []
        names: list[str] = []
        places: list[int] = []
        argument_attributes: list[Mapping[str, Any]] = []
        for _ in lx.listed(")"):
            if lx.kind == "value":
                places.append(lx.start)
                names.append(lx.token[1:])
                lx.advance()
                lx.expect(":")
            elif names:
                raise lx.expected("an argument such as %arg0")
            types.append(self.values.type())
            argument_attributes.append(self.values.dictionary() if lx.kind == "{" else {})
            self._trailing_location()
        result_types: tuple[Type, ...] = ()
        result_attributes: tuple[Mapping[str, Any], ...] = ()
        if lx.accept("->"):
            result_types, result_attributes = self._function_results()
        if lx.accept_word("attributes"):
            f_attributes = self.values.dictionary()
        block = Block(types, names)
        function = Function(
            name, block, visibility, tuple(argument_attributes), result_attributes, f_attributes, lx.location(at), result_types
        )
        if lx.kind == "{":
            if len(names) != len(types):
                raise lx.error("a function with a body needs names for its arguments", name_at)
            lx.advance()
            saved, self.scope = self.scope, ValueScope()
            for place, argument in zip(places, block.arguments, strict=True):
                self.define(argument.name or "", argument, place)
            yield self._block(block)
            self.scope = saved
            lx.expect("}")
        else:
            function.is_declaration = True
        self._trailing_location()
        self._add_function(module, function, name_at)

    def _add_function(self, module: Module, function: Function, at: int) -> None:
        if function.name in module.functions:
            raise self.lexer.error(f"function @{function.name} is defined twice", at)
        module.functions[function.name] = function

    def _function_results(self) -> tuple[tuple[Type, ...], tuple[Mapping[str, Any], ...]]:
        lx = self.lexer
        if lx.kind != "(":
            return (self.values.type(),), ({},)
        lx.advance()
        types: list[Type] = []
        attributes: list[Mapping[str, Any]] = []
        for _ in lx.listed(")"):
            types.append(self.values.type())
            attributes.append(self.values.dictionary() if lx.kind == "{" else {})
        return tuple(types), tuple(attributes)

    def _generic_item(self, module: Module) -> Steps:
        """`"builtin.module"() <{…}> ({…}) : () -> ()` or `"func.func"() <{…}> ({…}) : () -> ()`."""
        lx = self.lexer
        at = lx.start
        name = lx.string()
        if name == "sdy.mesh":
            self._generic_mesh(module, at)
            return
        if name not in ("builtin.module", "func.func"):
            raise lx.error(vhlo_problem(name) or f"unknown module item {name!r}", at)
        lx.expect("(")
        lx.expect(")")
        attributes: dict[str, Any] = {}
        if lx.accept("<"):
            attributes.update(self.values.dictionary())
            lx.expect(">")
        if name == "func.func":
            yield self._generic_function(module, attributes, at)
            return
        inner = Module(location=lx.location(at))
        lx.expect("(")
        lx.expect("{")
        self._empty_label()
        yield self._items(inner, "}")
        lx.expect("}")
        lx.expect(")")
        attributes.update(self._generic_tail())
        symbol = attributes.pop("sym_name", None)
        inner.name = symbol if isinstance(symbol, str) else None
        attributes.pop("sym_visibility", None)
        inner.attributes = attributes
        module.nested.append(inner)

    def _generic_mesh(self, module: Module, at: int) -> None:
        """`"sdy.mesh"() <{…}> {…} : () -> ()`, kept as text."""
        lx = self.lexer
        lx.expect("(")
        lx.expect(")")
        while lx.kind in ("<", "{"):
            lx.seek(lx.balanced())
        lx.expect(":")
        if lx.kind != "(":
            raise lx.expected("'('")
        lx.seek(lx.balanced())
        lx.expect("->")
        if lx.kind != "(":
            raise lx.expected("'('")
        end = lx.balanced()
        lx.seek(end)
        module.foreign.append(lx.text[at:end])
        self._trailing_location()

    def _empty_label(self) -> None:
        lx = self.lexer
        if lx.kind == "caret":
            lx.advance()
            if lx.accept("("):
                lx.expect(")")
            lx.expect(":")

    def _generic_tail(self) -> dict[str, Any]:
        """`{…} : () -> ()` after the regions of a generic module or function."""
        lx = self.lexer
        attributes = self.values.dictionary() if lx.kind == "{" else {}
        lx.expect(":")
        self.values.function_type()
        self._trailing_location()
        return attributes

    def _generic_function(self, module: Module, attributes: dict[str, Any], at: int) -> Steps:
        lx = self.lexer
        lx.expect("(")
        saved, self.scope = self.scope, ValueScope()
        block: Block = yield self.region()
        self.scope = saved
        lx.expect(")")
        attributes.update(self._generic_tail())
        name, t = attributes.pop("sym_name", None), attributes.pop("function_type", None)
        if not isinstance(name, str) or not isinstance(t, FunctionType):
            raise lx.error('"func.func" needs the attributes sym_name and function_type', at)
        visibility = attributes.pop("sym_visibility", None)
        if visibility not in (None, "public", "private", "nested"):
            raise lx.error("expected public, private or nested as sym_visibility", at)
        arg_attributes = self._dictionaries(attributes.pop("arg_attrs", ()), len(t.inputs), "arg_attrs", at)
        res_attributes = self._dictionaries(attributes.pop("res_attrs", ()), len(t.results), "res_attrs", at)
        is_declaration = not block.ops
        if is_declaration and not block.arguments:
            block = Block(t.inputs)
        if tuple(a.type for a in block.arguments) != t.inputs:
            raise lx.error("the body's arguments have other types than function_type", at)
        function = Function(
            name,
            block,
            visibility if isinstance(visibility, str) else None,
            arg_attributes,
            res_attributes,
            attributes,
            lx.location(at),
            t.results,
            is_declaration,
        )
        self._add_function(module, function, at)

    def _dictionaries(self, value: Any, count: int, name: str, at: int) -> tuple[Mapping[str, Any], ...]:
        if not value:
            return tuple({} for _ in range(count))
        if not isinstance(value, tuple) or len(value) != count or not all(isinstance(v, dict) for v in value):
            raise self.lexer.error(f"expected {count} dictionaries in {name}", at)
        return value
