"""Index maps as MLIR's `affine_map` and `affine_set`, and back.

    (d0, d1)[s0] -> (d0 * 8 + s0, d1), domain: d0 in [0, 3], …
        affine_map<(d0, d1)[s0] -> (d0 * 8 + s0, d1)>      what is read
        affine_set<(d0, d1)[s0] : (d0 >= 0, -d0 + 3 >= 0, …)>      where: the domain, which an affine_map does not have
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlo.errors import Declined, Location, ParseError
from indexing.expressions.terms import Expr, FloorDiv, Maximum, Minimum, Mod, Product, Var
from indexing.map import IndexingMap
from indexing.notation import parse_map

__all__ = ["affine_map", "affine_set", "parse_affine_map"]

UNBOUNDED = 2**31 - 1


def affine_map(m: IndexingMap) -> str | Declined:
    """The map as an `affine_map`, or why it is none: values known at run time, products, minima and maxima of variables.

    >>> affine_map(parse_map("(d0)[s0] -> (d0 floordiv 8, s0 mod 4 + 1), domain: d0 in [0, 31], s0 in [0, 9]"))
    'affine_map<(d0)[s0] -> (d0 floordiv 8, s0 mod 4 + 1)>'
    """
    reason = _reason(m, m.results)
    return reason if reason is not None else f"affine_map<{_head(m)} -> ({', '.join(map(str, m.results))})>"


def affine_set(m: IndexingMap) -> str | Declined:
    """The map's domain as an `affine_set`; one that is empty has a condition that never holds.

    >>> affine_set(parse_map("(d0) -> (d0), domain: d0 in [0, 3], d0 * 2 in [2, 2]"))
    'affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0, d0 * 2 - 2 == 0)>'
    """
    rows = [(v.var, v.interval) for v in (*m.dims, *m.ranges)] + [(e, b) for e, b in m.constraints]
    reason = _reason(m, [e for e, _ in rows])
    if reason is not None:
        return reason
    if m.is_known_empty:
        return f"affine_set<{_head(m)} : (-1 >= 0)>"
    conditions = []
    for e, b in rows:
        if b.lower == b.upper:
            conditions.append(f"{e - b.lower} == 0")
        else:
            conditions += [f"{e - b.lower} >= 0", f"{b.upper - e} >= 0"]
    return f"affine_set<{_head(m)} : ({', '.join(conditions) or '0 == 0'})>"


def parse_affine_map(text: str, domain: str = "") -> IndexingMap:
    """The map of an `affine_map`, over the domain of an `affine_set`; what the set leaves unbounded is below 2^31.

    Raises ParseError for a text that is neither.

    >>> print(parse_affine_map("affine_map<(d0)[s0] -> (d0 + s0)>", "affine_set<(d0)[s0] : (d0 >= 0, 3 - d0 >= 0, s0 == 0)>"))
    (d0)[s0] -> (d0 + s0), domain: d0 in [0, 3], s0 in [0, 0]
    """
    found = re.fullmatch(r"\s*affine_map<\s*(\([^()]*\))\s*(\[[^\[\]]*\])?\s*->\s*(\(.*\))\s*>\s*", text, re.DOTALL)
    if found is None:
        raise ParseError(f"no affine_map: {text[:80]!r}", Location("<text>"))
    names = re.findall(r"\w+", found[1] + (found[2] or ""))
    ranges = {n: [-UNBOUNDED, UNBOUNDED] for n in names}
    constraints: list[str] = []
    if domain:
        of = re.fullmatch(r"\s*affine_set<\s*(\([^()]*\))\s*(\[[^\[\]]*\])?\s*:\s*\((.*)\)\s*>\s*", domain, re.DOTALL)
        if of is None or re.findall(r"\w+", of[1] + (of[2] or "")) != names:
            raise ParseError(f"no affine_set of {', '.join(names)}: {domain[:80]!r}", Location("<text>"))
        for part in _split(of[3]):
            _take(part, ranges, constraints)
    lines = [f"{n} in [{low}, {high}]" for n, (low, high) in ranges.items()] + constraints
    return parse_map(f"{found[1]}{found[2] or ''} -> {found[3]}" + (f", domain: {', '.join(lines)}" if lines else ""))


def _take(condition: str, ranges: dict[str, list[int]], constraints: list[str]) -> None:
    """A condition of a set, as a bound of a variable or as a constraint."""
    parts = re.fullmatch(r"(.*?)(>=|==)\s*0", condition.strip(), re.DOTALL)
    if parts is None:
        raise ParseError(f"no condition: {condition!r}", Location("<text>"))
    anywhere = ", ".join(f"{n} in [{-UNBOUNDED}, {UNBOUNDED}]" for n in ranges)
    e = parse_map(f"({', '.join(ranges)}) -> ({parts[1]}), domain: {anywhere}").results[0]
    if len(e.terms) == 1 and isinstance(e.terms[0][0], Var) and abs(e.terms[0][1]) == 1 and parts[2] == ">=":
        (variable, sign), bound = e.terms[0], ranges[str(e.terms[0][0])]
        assert isinstance(variable, Var)
        if sign == 1:
            bound[0] = max(bound[0], -e.constant)
        else:
            bound[1] = min(bound[1], e.constant)
    elif len(e.terms) == 1 and isinstance(e.terms[0][0], Var) and e.terms[0][1] in (1, -1):
        at = -e.constant * e.terms[0][1]
        ranges[str(e.terms[0][0])] = [at, at]
    else:
        constraints.append(f"{parts[1].strip()} in [0, {0 if parts[2] == '==' else 2**62}]")


def _split(text: str) -> list[str]:
    """The parts between commas that are in no parentheses."""
    parts, depth, start = [], 0, 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[start:k])
            start = k + 1
    return [*parts, text[start:]]


def _head(m: IndexingMap) -> str:
    symbols = f"[{', '.join(v.var.name for v in m.ranges)}]" if m.ranges else ""
    return f"({', '.join(v.var.name for v in m.dims)}){symbols}"


def _reason(m: IndexingMap, expressions: Sequence[Expr]) -> Declined | None:
    if m.unknown is not None:
        return Declined("the map is not known")
    if m.runtimes:
        return Declined(f"{m.runtimes[0].var} is a value known at run time: an affine_map has no such variable")
    todo = list(expressions)
    while todo:
        for atom, _ in todo.pop().terms:
            if isinstance(atom, Product | Minimum | Maximum):
                return Declined(f"{atom}: a {type(atom).__name__.lower()} of variables is not affine")
            if isinstance(atom, FloorDiv | Mod):
                if not isinstance(atom.divisor, int):
                    return Declined(f"{atom} divides by what is no number")
                todo.append(atom.numerator)
    return None
