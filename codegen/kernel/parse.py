"""Numba source -> Kernel. What a kernel cannot hold (strings, keywords, tuples) raises `NotAKernel` with its line.

    parse(print_numba(kernel)) == kernel
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from codegen.kernel.ir import (
    Assign,
    Augment,
    Binary,
    Break,
    Call,
    Compare,
    Continue,
    Do,
    Enclosed,
    Expression,
    For,
    If,
    Kernel,
    Load,
    Logical,
    Name,
    Number,
    Parameter,
    Pass,
    Return,
    Statement,
    Store,
    Unary,
    While,
)

__all__ = ["NotAKernel", "parse", "parse_lines"]

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_UNARY = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_BUFFER = re.compile(r"    (\w+): (argument|result|shared|thread) ([\w<>]+)\[([\d, ]*)\]\n")
_COPY = re.compile(r"    (\w+): (\w+) inside the loop\n")


class NotAKernel(SyntaxError):
    """The source holds what no kernel does; the message says what and in which line."""


_MOST_MIXED = 100  # times that other threads come in between


def _tree(source: str) -> list[ast.stmt]:
    """The statements of a source.

    CPython before 3.13 counts how deep the trees of all threads are in one number (gh-106905), and raises SystemError where their
    turns have mixed: then the source is read again.
    """
    for _ in range(_MOST_MIXED):
        try:
            return ast.parse(source).body
        except SystemError:
            time.sleep(0)
    return ast.parse(source).body


def parse(source: str) -> Kernel:
    """The kernel of a source of one function. Raises SyntaxError for what is no Python, NotAKernel for what is no kernel.

    >>> kernel = parse("def kernel(begin, end, y):\\n    for t in range(begin, end):\\n        y[t] = 2*t\\n")
    >>> kernel.body[0].body[0]
    Store(buffer='y', index=Name(name='t'), value=Binary(operator='*', left=Number(value=2), right=Name(name='t'), tight=True))
    >>> parse("def kernel(begin, end, y):\\n    y[0] = [1]\\n")
    Traceback (most recent call last):
    ...
    codegen.kernel.parse.NotAKernel: line 2: expected an expression of a kernel, found List: [1]
    """
    tree = _tree(source)
    if len(tree) != 1 or not isinstance(tree[0], ast.FunctionDef) or tree[0].decorator_list:
        raise NotAKernel("line 1: expected one function")
    function = tree[0]
    given = function.args
    if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or given.defaults:
        raise NotAKernel("line 1: expected a function of arguments by their place")
    names = [a.arg for a in given.args]
    body, words = function.body, ""
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str):
        words, body = body[0].value.value, body[1:]
    statements = _Parser(source.split("\n")).block(body)
    bounds, buffers = tuple(names[:2]), names[2:]
    read = _buffers(words, buffers)
    if read is None:
        return Kernel("", tuple(Parameter(n, "", (), "") for n in buffers), statements, words, function.name, bounds)
    return Kernel(read[0], read[1], statements, None, function.name, bounds)


def parse_lines(lines: Sequence[str]) -> tuple[Statement, ...]:
    """The statements of lines that are indented by one block."""
    text = ["if True:", *lines]
    (block,) = _tree("\n".join(text))
    assert isinstance(block, ast.If)
    return _Parser(text, -1).block(block.body)


def _buffers(words: str, names: Sequence[str]) -> tuple[str, tuple[Parameter, ...]] | None:
    """(title, buffers) of a comment that names each buffer; None for another comment."""
    title, _, rest = words.partition("\n\n")
    found: list[Parameter] = []
    own: dict[str, int] = {}  # which of those in one memory is the argument
    at = 0
    while at < len(rest):
        here = _BUFFER.match(rest, at)
        if here:
            shape = tuple(int(n) for n in here[4].split(", ")) if here[4] else ()
            made = Parameter(here[1], here[3], shape, here[2])
        else:
            here = _COPY.match(rest, at)
            if here is None:
                break
            if here[2] not in own:
                return None
            known = found[own[here[2]]]
            made = Parameter(here[1], known.element, known.shape, "local", here[2])
        if made.name not in own or made.scope != "argument":
            own[made.name] = len(found)
        found.append(made)
        at = here.end()
    if rest[at:] != "    " or "\n" in title or [found[k].name for k in sorted(own.values())] != list(names):
        return None
    return title, tuple(p if own[p.name] == k else replace(p, also=True) for k, p in enumerate(found))


class _Parser:
    """From Python's syntax tree; where the text has parentheses and spaces, the tree tells from the places of its nodes."""

    def __init__(self, lines: Sequence[str], before: int = 0) -> None:
        self.lines, self.before = lines, before

    def fail(self, node: Any, expected: str) -> NotAKernel:
        line = node.lineno + self.before
        return NotAKernel(f"line {line}: expected {expected}, found {type(node).__name__}: {ast.unparse(node)}")

    # ------------------------------------------------------------ statements

    def block(self, statements: Sequence[ast.stmt]) -> tuple[Statement, ...]:
        made = []
        for s in statements:
            rule = _STATEMENTS.get(type(s))
            if rule is None:
                raise self.fail(s, "a statement of a kernel")
            made.append(rule(self, s))
        return tuple(made)

    def of_assign(self, s: ast.Assign) -> Statement:
        target = s.targets[0]
        if len(s.targets) == 1 and isinstance(target, ast.Name):
            return Assign(target.id, self.after(s.value, target.end_col_offset))
        if len(s.targets) == 1 and isinstance(target, ast.Subscript):
            place = self.load(target)
            return Store(place.buffer, place.index, self.after(s.value, target.end_col_offset))
        raise self.fail(s, "one variable or element to assign to")

    def of_augment(self, s: ast.AugAssign) -> Statement:
        target = Name(s.target.id) if isinstance(s.target, ast.Name) else self.expression(s.target)
        if not isinstance(target, Name | Load) or type(s.op) not in _BINARY:
            raise self.fail(s, "a binary operator, and a variable or an element")
        return Augment(target, _BINARY[type(s.op)], self.after(s.value, s.target.end_col_offset))

    def of_do(self, s: ast.Expr) -> Statement:
        made = self.after(s.value, s.col_offset)
        if not isinstance(made, Call):
            raise self.fail(s, "a call")
        return Do(made)

    def of_for(self, s: ast.For) -> Statement:
        called = s.iter
        is_range = isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id == "range"
        if s.orelse or not is_range or not isinstance(s.target, ast.Name):
            raise self.fail(s, "a loop over a range")
        bounds = self.arguments(called)  # type: ignore[arg-type]
        if not 1 <= len(bounds) <= 3:
            raise self.fail(s, "a range of one to three integers")
        start = bounds[0] if len(bounds) > 1 else None
        step = bounds[2] if len(bounds) > 2 else None
        return For(s.target.id, start, bounds[min(1, len(bounds) - 1)], step, self.block(s.body))

    def of_while(self, s: ast.While) -> Statement:
        if s.orelse:
            raise self.fail(s, "a loop without else")
        return While(self.after(s.test, s.col_offset + 5), self.block(s.body))

    def of_if(self, s: ast.If) -> Statement:
        word = 4 if self.lines[s.lineno - 1].startswith("elif", s.col_offset) else 2
        return If(self.after(s.test, s.col_offset + word), self.block(s.body), self.block(s.orelse))

    def of_return(self, s: ast.Return) -> Statement:
        if s.value is not None:
            raise self.fail(s, "a return without a value")
        return Return()

    # ------------------------------------------------------------ expressions

    def after(self, node: ast.expr, start: int | None) -> Expression:
        """An expression with the parentheses that stand between a column of its first line and itself."""
        made = self.expression(node)
        assert start is not None
        for _ in range(self.lines[node.lineno - 1].count("(", start, node.col_offset)):
            made = Enclosed(made)
        return made

    def expression(self, node: ast.expr) -> Expression:
        rule = _EXPRESSIONS.get(type(node))
        if rule is None:
            raise self.fail(node, "an expression of a kernel")
        made: Expression = rule(self, node)
        return made

    def of_number(self, node: ast.Constant) -> Expression:
        if not isinstance(node.value, bool | int | float):
            raise self.fail(node, "a number")
        return Number(node.value)

    def of_binary(self, node: ast.BinOp) -> Expression:
        operator = _BINARY.get(type(node.op))
        if operator is None:
            raise self.fail(node, "a binary operator of a kernel")
        end = node.left.end_col_offset
        left, right = self.after(node.left, node.col_offset), self.after(node.right, end)
        tight = " " not in self.lines[node.lineno - 1][end : node.right.col_offset]
        return Binary(operator, left, right, tight)

    def of_unary(self, node: ast.UnaryOp) -> Expression:
        return Unary(_UNARY[type(node.op)], self.after(node.operand, node.col_offset))

    def of_compare(self, node: ast.Compare) -> Expression:
        links = []
        before = node.left
        for op, x in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _COMPARE:
                raise self.fail(node, "a comparison of numbers")
            links.append((_COMPARE[type(op)], self.after(x, before.end_col_offset)))
            before = x
        return Compare(self.after(node.left, node.col_offset), tuple(links))

    def of_logical(self, node: ast.BoolOp) -> Expression:
        ends = [node.col_offset, *(x.end_col_offset for x in node.values[:-1])]
        operands = tuple(self.after(x, end) for x, end in zip(node.values, ends, strict=True))
        return Logical("and" if isinstance(node.op, ast.And) else "or", operands)

    def of_call(self, node: ast.Call) -> Expression:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self.fail(node, "a call of a function by its place")
        return Call(node.func.id, self.arguments(node))

    def arguments(self, node: ast.Call) -> tuple[Expression, ...]:
        end = node.func.end_col_offset
        made = []
        for a in node.args:
            assert end is not None
            # (The call's own parenthesis is the first of them.)
            made.append(self.after(a, end + 1))
            end = a.end_col_offset
        return tuple(made)

    def load(self, node: ast.Subscript) -> Load:
        buffer = node.value.id if isinstance(node.value, ast.Name) else self.expression(node.value)
        if not isinstance(buffer, str | Call):
            raise self.fail(node, "an element of a buffer")
        return Load(buffer, self.after(node.slice, node.value.end_col_offset))


_STATEMENTS: dict[type, Callable[[_Parser, Any], Statement]] = {
    ast.Assign: _Parser.of_assign,
    ast.AugAssign: _Parser.of_augment,
    ast.Expr: _Parser.of_do,
    ast.For: _Parser.of_for,
    ast.While: _Parser.of_while,
    ast.If: _Parser.of_if,
    ast.Return: _Parser.of_return,
    ast.Pass: lambda parser, s: Pass(),
    ast.Break: lambda parser, s: Break(),
    ast.Continue: lambda parser, s: Continue(),
}
_EXPRESSIONS: dict[type, Callable[[_Parser, Any], Expression]] = {
    ast.Name: lambda parser, node: Name(node.id),
    ast.Constant: _Parser.of_number,
    ast.BinOp: _Parser.of_binary,
    ast.UnaryOp: _Parser.of_unary,
    ast.Compare: _Parser.of_compare,
    ast.BoolOp: _Parser.of_logical,
    ast.Call: _Parser.of_call,
    ast.Subscript: _Parser.load,
}
