"""Numba source -> Kernel. What a kernel cannot hold (strings, keywords, tuples) raises `NotAKernel` with its line.

    parse(print_numba(kernel)) == kernel
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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

_BINARY: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_UNARY: dict[type, str] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"}
_COMPARE: dict[type, str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_LOGICAL: dict[type, str] = {ast.And: "and", ast.Or: "or"}
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


class _Rule(NamedTuple):
    """What a node of Python's syntax becomes, where it `holds` what is `expected`."""

    make: Callable[[_Parser, Any], Any]
    expected: str = ""
    holds: Callable[[Any], bool] = lambda node: True


class _Parser:
    """From Python's syntax tree; where the text has parentheses and spaces, the tree tells from the places of its nodes."""

    def __init__(self, lines: Sequence[str], before: int = 0) -> None:
        self.lines, self.before = lines, before

    def fail(self, node: Any, expected: str) -> NotAKernel:
        line = node.lineno + self.before
        return NotAKernel(f"line {line}: expected {expected}, found {type(node).__name__}: {ast.unparse(node)}")

    def made(self, node: ast.stmt | ast.expr) -> Any:
        """The statement or the expression that a node is, by its row of `_RULES`."""
        rule = _RULES.get(type(node))
        if rule is None:
            raise self.fail(node, f"{'a statement' if isinstance(node, ast.stmt) else 'an expression'} of a kernel")
        if not rule.holds(node):
            raise self.fail(node, rule.expected)
        return rule.make(self, node)

    def block(self, statements: Sequence[ast.stmt]) -> tuple[Statement, ...]:
        return tuple([self.made(s) for s in statements])

    def after(self, node: ast.expr, start: int) -> Expression:
        """An expression with the parentheses that stand between a column of its first line and itself."""
        made: Expression = self.made(node)
        for _ in range(self.lines[node.lineno - 1].count("(", start, node.col_offset)):
            made = Enclosed(made)
        return made

    def parts(self, nodes: Iterable[Any], start: int) -> tuple[Expression, ...]:
        """Expressions that stand one after the other, the first of them after a column."""
        made = []
        for node in nodes:
            made.append(self.after(node, start))
            start = node.end_col_offset
        return tuple(made)

    def arguments(self, node: ast.Call) -> tuple[Expression, ...]:
        # (The call's own parenthesis is the first of them.)
        return self.parts(node.args, (node.func.end_col_offset or 0) + 1)


def _assigned(parser: _Parser, s: ast.Assign) -> Statement:
    place, value = parser.made(s.targets[0]), parser.after(s.value, s.targets[0].end_col_offset or 0)
    return Assign(place.name, value) if isinstance(place, Name) else Store(place.buffer, place.index, value)


def _is_over_a_range(s: ast.For) -> bool:
    called = s.iter
    is_range = isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id == "range"
    return is_range and isinstance(s.target, ast.Name) and not s.orelse


def _loop(parser: _Parser, s: Any) -> Statement:
    bounds = parser.arguments(s.iter)
    if not 1 <= len(bounds) <= 3:
        raise parser.fail(s, "a range of one to three integers")
    start, step = bounds[0] if len(bounds) > 1 else None, bounds[2] if len(bounds) > 2 else None
    return For(s.target.id, start, bounds[min(1, len(bounds) - 1)], step, parser.block(s.body))


def _binary(parser: _Parser, node: ast.BinOp) -> Expression:
    left, right = parser.parts((node.left, node.right), node.col_offset)
    between = parser.lines[node.lineno - 1][node.left.end_col_offset : node.right.col_offset]
    return Binary(_BINARY[type(node.op)], left, right, tight=" " not in between)


def _compared(parser: _Parser, node: ast.Compare) -> Expression:
    first, *others = parser.parts((node.left, *node.comparators), node.col_offset)
    return Compare(first, tuple(zip([_COMPARE[type(op)] for op in node.ops], others, strict=True)))


def _element(parser: _Parser, node: ast.Subscript) -> Expression:
    buffer = parser.made(node.value)
    index = parser.after(node.slice, node.value.end_col_offset or 0)
    return Load(buffer.name if isinstance(buffer, Name) else buffer, index)


_RULES: dict[type, _Rule] = {
    ast.Assign: _Rule(
        _assigned, "one variable or element to assign to",
        lambda s: len(s.targets) == 1 and isinstance(s.targets[0], ast.Name | ast.Subscript),
    ),
    ast.AugAssign: _Rule(
        lambda p, s: Augment(p.made(s.target), _BINARY[type(s.op)], p.after(s.value, s.target.end_col_offset)),
        "a binary operator, and a variable or an element",
        lambda s: type(s.op) in _BINARY and isinstance(s.target, ast.Name | ast.Subscript),
    ),
    ast.Expr: _Rule(lambda p, s: Do(p.made(s.value)), "a call", lambda s: isinstance(s.value, ast.Call)),
    ast.For: _Rule(_loop, "a loop over a range", _is_over_a_range),
    ast.While: _Rule(
        lambda p, s: While(p.after(s.test, s.col_offset), p.block(s.body)), "a loop without else", lambda s: not s.orelse
    ),
    ast.If: _Rule(lambda p, s: If(p.after(s.test, s.col_offset), p.block(s.body), p.block(s.orelse))),
    ast.Return: _Rule(lambda p, s: Return(), "a return without a value", lambda s: s.value is None),
    ast.Pass: _Rule(lambda p, s: Pass()),
    ast.Break: _Rule(lambda p, s: Break()),
    ast.Continue: _Rule(lambda p, s: Continue()),
    ast.Name: _Rule(lambda p, e: Name(e.id)),
    ast.Constant: _Rule(lambda p, e: Number(e.value), "a number", lambda e: isinstance(e.value, bool | int | float)),
    ast.BinOp: _Rule(_binary, "a binary operator of a kernel", lambda e: type(e.op) in _BINARY),
    ast.UnaryOp: _Rule(lambda p, e: Unary(_UNARY[type(e.op)], p.after(e.operand, e.col_offset))),
    ast.Compare: _Rule(_compared, "a comparison of numbers", lambda e: all(type(op) in _COMPARE for op in e.ops)),
    ast.BoolOp: _Rule(lambda p, e: Logical(_LOGICAL[type(e.op)], p.parts(e.values, e.col_offset))),
    ast.Call: _Rule(
        lambda p, e: Call(e.func.id, p.arguments(e)), "a call of a function by its place",
        lambda e: isinstance(e.func, ast.Name) and not e.keywords,
    ),
    ast.Subscript: _Rule(_element, "an element of a buffer", lambda e: isinstance(e.value, ast.Name | ast.Call)),
}  # fmt: skip
