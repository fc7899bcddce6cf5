"""XLA's notation for maps: print and parse.

    (d0, d1)[s0]{rt0} -> (d0, s0 + rt0), domain: d0 in [0, 9], d1 in [0, 3], s0 in [0, 3], rt0 in [0, 5], d0 + s0 in [0, 7]

or, on several lines as the document on index analysis has it:

    (d0, d1)[s0] -> (d0, s0)
    domain:
    d0 in [0, 9]
    …

An expression has `+ - * floordiv ceildiv mod`, parentheses, `min(…)`, `max(…)`; a number may stand directly before what it
multiplies (`16d0`). Newer versions of XLA write `/` for floordiv and `%` for mod: both are read, and printed where asked for.
An empty domain is `KNOWN EMPTY`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlo import Location, ParseError
from hlo.display import as_text
from indexing.expressions.bounds import Interval
from indexing.expressions.extrema import maximum, minimum
from indexing.expressions.terms import Expr, ExprLike, Var, as_expr, floordiv, mod
from indexing.map import Constraint, IndexingMap, RuntimeVariable, Variable, build, label_of

__all__ = ["format_document", "format_map", "parse_expr", "parse_map"]

EMPTY = "KNOWN EMPTY"
UNKNOWN = "unknown indexing"
NESTING_LIMIT = 64


def _function(m: IndexingMap, in_brackets: Sequence[Var], in_braces: Sequence[Var]) -> str:
    text = "(" + ", ".join(v.var.name for v in m.dims) + ")"
    if in_brackets:
        text += "[" + ", ".join(v.name for v in in_brackets) + "]"
    if in_braces:
        text += "{" + ", ".join(v.name for v in in_braces) + "}"
    return text + " -> (" + ", ".join(map(str, m.results)) + ")"


def _constraint_lines(m: IndexingMap) -> list[str]:
    return sorted(f"{e} in {b}" for e, b in m.constraints)


def format_map(m: IndexingMap, signs: bool = False) -> str:
    """The one-line form. A map without variables and constraints has no domain part. `signs`: `/` and `%` as newer XLA has them.

    >>> m = parse_map("(d0) -> (d0 / 8, d0 % 8), domain: d0 in [0, 31]")
    >>> print(format_map(m))
    (d0) -> (d0 floordiv 8, d0 mod 8), domain: d0 in [0, 31]
    >>> print(format_map(m, signs=True))
    (d0) -> (d0 / 8, d0 % 8), domain: d0 in [0, 31]
    """
    if signs:
        text = format_map(m)
        for word, sign in _SIGNS.items():  # of the same precedence, so that only the words change
            text = text.replace(word, sign)
        return text
    if m.unknown is not None:
        return UNKNOWN
    if m.is_known_empty:
        return EMPTY
    head = _function(m, [v.var for v in m.ranges], [v.var for v in m.runtimes])
    lines = [f"{v} in {b}" for v, b in m.variable_ranges.items()] + _constraint_lines(m)
    return f"{head}, domain: {', '.join(lines)}" if lines else head


def format_document(m: IndexingMap) -> str:
    """The document's form: runtime variables are counted on after the ranges, as s, each with its producer and element.

    >>> print(format_document(parse_map("(d0)[s0] -> (s0, d0), domain: d0 in [0, 9], s0 in [0, 255]")))
    (d0)[s0] -> (s0, d0)
    domain:
    d0 in [0, 9]
    s0 in [0, 255]
    """
    if m.unknown is not None:
        return UNKNOWN
    if m.is_known_empty:
        return EMPTY
    names: dict[Var, ExprLike] = {v.var: Var(f"s{len(m.ranges) + i}") for i, v in enumerate(m.runtimes)}
    m = m.renamed(names)
    head = _function(m, m.symbols, ())
    lines = [f"{v} in {b}" for v, b in (*m.dims, *m.ranges)]
    for v in m.runtimes:
        inner = "(" + ", ".join(d.var.name for d in m.dims) + ") -> (" + ", ".join(map(str, v.element)) + ")"
        lines += [f"{v.var} in {v.interval}", f"  hlo: {v.label or label_of(v.producer)}", f"  {inner}"]
    lines += _constraint_lines(m)
    return "\n".join([head, "domain:", *lines]) if lines else head


# ---------------------------------------------------------------- parsing

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_][\w.]*)|(?P<sign>->|[-+*/%()\[\]{},:<>=#]))")


_DIVISIONS = {"floordiv": "floordiv", "ceildiv": "ceildiv", "mod": "mod", "/": "floordiv", "%": "mod"}
_SIGNS = {" floordiv ": " / ", " mod ": " % "}


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text) and text[at:].strip():
            m = _TOKEN.match(text, at)
            if m is None:
                start = at + len(text[at:]) - len(text[at:].lstrip())
                raise self.error(f"unexpected {text[start]!r}", start)
            self.tokens.append((m.lastgroup or "", m.group(m.lastgroup or 0), m.start(m.lastgroup or 0)))
            at = m.end()
        self.at = 0
        self.depth = 0
        self.names: dict[str, Var] | None = None  # None: every name is a variable

    def error(self, message: str, offset: int | None = None) -> ParseError:
        if offset is None:
            offset = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        line = self.text.count("\n", 0, offset) + 1
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        source = self.text[start : end if end >= 0 else len(self.text)]
        return ParseError(message, Location("<map>", line, offset - start + 1), source)

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, wanted: str) -> bool:
        if self.peek() == wanted:
            self.at += 1
            return True
        return False

    def expect(self, wanted: str) -> None:
        if not self.take(wanted):
            raise self.error(f"expected {wanted!r}, found {self.peek() or 'the end'!r}")

    def integer(self) -> int:
        sign = -1 if self.take("-") else 1
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != "number":
            raise self.error(f"expected an integer, found {self.peek() or 'the end'!r}")
        self.at += 1
        return sign * int(self.tokens[self.at - 1][1])

    def interval(self) -> Interval:
        self.expect("[")
        lower = self.integer()
        self.expect(",")
        upper = self.integer()
        self.expect("]")
        return Interval(lower, upper)

    def variables(self, opening: str, closing: str) -> list[Var]:
        found: list[Var] = []
        if not self.take(opening):
            return found
        while not self.take(closing):
            if found:
                self.expect(",")
            if self.at >= len(self.tokens) or self.tokens[self.at][0] != "name":
                raise self.error(f"expected a variable, found {self.peek() or 'the end'!r}")
            name = self.peek()
            if any(v.name == name for v in found):
                raise self.error(f"the variable {name} is listed twice")
            found.append(Var(name))
            self.at += 1
        return found

    # sum := ["-"] product (("+" | "-") product)*        product := factor (("*" | "/" | "%" | "floordiv" | …) factor)*

    def sum(self) -> Expr:
        self.depth += 1
        if self.depth > NESTING_LIMIT:
            raise self.error(f"expected at most {NESTING_LIMIT} parentheses in each other")
        try:
            return self._sum()
        finally:
            self.depth -= 1

    def _sum(self) -> Expr:
        total = self.product()
        while True:
            if self.take("+"):
                total = total + self.product()
            elif self.take("-"):
                total = total - self.product()
            else:
                return total

    def product(self) -> Expr:
        # A minus before a variable or number belongs to it, as MLIR reads it; one before a parenthesis to the whole product,
        # as XLA's documents write it: -(…) floordiv 11 is -((…) floordiv 11).
        negative = False
        while self.take("-"):
            negative = not negative
        if negative and self.peek() == "(":
            return -self.product()
        value = -self.factor() if negative else self.factor()
        while True:
            word = self.peek().lower()
            if word == "*":
                self.at += 1
                value = value * self.signed_factor()
            elif word in _DIVISIONS:
                word = _DIVISIONS[word]
                self.at += 1
                here = self.at
                divisor = self.signed_factor()
                try:
                    if word == "ceildiv":
                        value = -floordiv(-value, divisor)
                    else:
                        value = floordiv(value, divisor) if word == "floordiv" else mod(value, divisor)
                except ZeroDivisionError:
                    raise self.error(f"{word} by 0", self.tokens[here][2]) from None
            else:
                return value

    def signed_factor(self) -> Expr:
        return -self.signed_factor() if self.take("-") else self.factor()

    def factor(self) -> Expr:
        if self.at >= len(self.tokens):
            raise self.error("expected an expression, found the end")
        kind, text, offset = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            follows = self.at < len(self.tokens) and self.tokens[self.at][0] == "name"
            if follows and self.tokens[self.at][2] == offset + len(text):
                return int(text) * self.factor()
            return as_expr(int(text))
        if text == "(":
            inner = self.sum()
            self.expect(")")
            return inner
        if kind == "name" and text in ("min", "max") and self.peek() == "(":
            self.at += 1
            arguments = [self.sum()]
            while self.take(","):
                arguments.append(self.sum())
            self.expect(")")
            return (minimum if text == "min" else maximum)(*arguments)
        if kind == "name" and (self.names is None or text in self.names):
            return Var(text)
        self.at -= 1
        if kind == "name" and self.names is not None:
            raise self.error(f"undeclared variable {text}; there is {', '.join(self.names) or 'none'}")
        raise self.error(f"expected an expression, found {text!r}")


def parse_expr(text: str) -> Expr:
    """The expression that `text` writes down. Raises ParseError with the place of what is wrong.

    >>> str(parse_expr("(16d0 + d1) floordiv 8"))
    'd0 * 2 + d1 floordiv 8'
    """
    p = _Parser(text)
    e = p.sum()
    if p.at < len(p.tokens):
        raise p.error(f"expected the end, found {p.peek()!r}")
    return e


def parse_map(text: str) -> IndexingMap:
    """The map that `text` writes down, in either form, not simplified. Raises ParseError with the place of what is wrong.

    Every variable needs its interval.

    >>> print(parse_map('''(d0)[s0]{rt0} -> (d0 + rt0, s0 mod 4)
    ... domain:
    ... d0 in [0, 9]
    ... s0 in [0, 7]
    ... rt0 in [0, 2]
    ... d0 mod 2 in [0, 0]'''))
    (d0)[s0]{rt0} -> (d0 + rt0, s0 mod 4), domain: d0 in [0, 9], s0 in [0, 7], rt0 in [0, 2], d0 mod 2 in [0, 0]
    """
    if text.strip() == EMPTY:
        return IndexingMap((), (), is_known_empty=True)
    if text.strip() == UNKNOWN:
        return IndexingMap.unknown_because("the text says so")
    p = _Parser(text)
    if p.peek() != "(":
        raise p.error("expected '(' before the dimension variables")
    dims, ranges = p.variables("(", ")"), p.variables("[", "]")
    runtimes = p.variables("{", "}")
    p.names = {v.name: v for v in (*dims, *ranges, *runtimes)}
    if len(p.names) != len(dims) + len(ranges) + len(runtimes):
        raise p.error("a variable is listed twice")
    p.expect("->")
    p.expect("(")
    results: list[Expr] = []
    while not p.take(")"):
        if results:
            p.expect(",")
        results.append(p.sum())
    p.take(",")
    intervals: dict[Var, Interval] = {}
    constraints: list[Constraint] = []
    if p.take("domain"):
        p.expect(":")
        while p.at < len(p.tokens):
            if p.take("is_simplified"):  # a mark that some versions of XLA print at the end
                p.expect(":")
                if not (p.take("true") or p.take("false")):
                    raise p.error(f"expected true or false, found {p.peek() or 'the end'!r}")
                continue
            e = p.sum()
            p.expect("in")
            b = p.interval()
            if isinstance(e, Var) and e not in intervals:
                intervals[e] = b
            else:
                constraints.append(Constraint(e, b))
            p.take(",")
    elif p.at < len(p.tokens):
        raise p.error(f"expected 'domain:', found {p.peek()!r}")
    for v in p.names.values():
        if v not in intervals:
            raise p.error(f"the variable {v} has no interval in the domain", len(text))
    return build(
        [Variable(v, intervals[v]) for v in dims],
        results,
        [Variable(v, intervals[v]) for v in ranges],
        [RuntimeVariable(v, intervals[v]) for v in runtimes],
        constraints,
    )


as_text.register(IndexingMap, format_map)
