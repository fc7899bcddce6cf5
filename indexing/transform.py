"""Maps made from maps: restricted, selected, with other roles for their variables, with fewer and shorter ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any

from indexing.expr import ExprLike, substitute
from indexing.expressions.bounds import Interval
from indexing.expressions.terms import Expr, FloorDiv, Mod, Var, floordiv, mod
from indexing.map import Constraint, IndexingMap, Variable, build

__all__ = ["merge_runtimes", "ranges_to_dims", "rescale_ranges", "restrict", "select_results"]


def restrict(m: IndexingMap, conditions: Mapping[Expr, Interval]) -> IndexingMap:
    """The map where every expression also lies in its interval.

    >>> from indexing import parse_map
    >>> m = parse_map("(d0) -> (d0 * 2), domain: d0 in [0, 9]")
    >>> print(restrict(m, {Var("d0"): Interval(3, 20)}))
    (d0) -> (d0 * 2), domain: d0 in [3, 9]
    """
    if m.unknown is not None:
        return m
    extra = [Constraint(e, b) for e, b in conditions.items()]
    return build(m.dims, m.results, m.ranges, m.runtimes, [*m.constraints, *extra], m.is_known_empty)


def select_results(m: IndexingMap, numbers: Sequence[int]) -> IndexingMap:
    """The map to some of the results, in the order given.

    >>> from indexing import parse_map
    >>> print(select_results(parse_map("(d0)[s0] -> (s0, d0, 7), domain: d0 in [0, 1], s0 in [0, 2]"), [1]))
    (d0)[s0] -> (d0), domain: d0 in [0, 1], s0 in [0, 2]
    """
    return replace(m, results=tuple([m.results[k] for k in numbers]))


def ranges_to_dims(m: IndexingMap) -> IndexingMap:
    """The map whose dimensions are the old dimensions and then the old ranges: points instead of sets of points.

    >>> from indexing import parse_map
    >>> print(ranges_to_dims(parse_map("(d0)[s0] -> (s0, d0), domain: d0 in [0, 1], s0 in [0, 2]")))
    (d0, d1) -> (d1, d0), domain: d0 in [0, 1], d1 in [0, 2]
    """
    return replace(m, dims=m.dims + m.ranges, ranges=()).renumbered()


def merge_runtimes(m: IndexingMap) -> IndexingMap:
    """The map with one variable for runtime values that are the same element of the same value, kept in the same interval.

    It holds where each value is computed once: in a program without calls, in one iteration of a loop. Composed maps name the
    element anew at every op that reads it.

    >>> from indexing import IndexingMap, Interval, RuntimeVariable, Var, Variable
    >>> from hlo.module import Block
    >>> from hlo.builder import type_of
    >>> (start,), d, a, b = Block([type_of("s32[]")]).arguments, Var("d0"), Var("rt0"), Var("rt1")
    >>> twice = [RuntimeVariable(v, Interval(0, 5), start) for v in (a, b)]
    >>> m = IndexingMap((Variable(d, Interval(0, 9)),), (d - a + b,), runtimes=tuple(twice))
    >>> print(*merge_runtimes(m).results)
    d0
    """
    seen: dict[Any, Var] = {}
    same: dict[Var, ExprLike] = {}
    for v in m.runtimes:
        first = seen.setdefault((v.producer, v.element, v.interval), v.var)
        if first is not v.var and v.producer is not None:
            same[v.var] = first
    if not same:
        return m
    known: dict[Expr, Any] = {}
    return build(
        m.dims,
        [substitute(e, same, known) for e in m.results],
        m.ranges,
        [
            v._replace(element=tuple([substitute(e, same, known) for e in v.element]))
            for v in m.runtimes
            if v.var not in same
        ],
        [Constraint(substitute(e, same, known), b) for e, b in m.constraints],
        m.is_known_empty,
    )


# ---------------------------------------------------------------- shorter ranges


def rescale_ranges(m: IndexingMap) -> IndexingMap:
    """The same relation from dimensions and runtime values to results, with fewer and shorter range variables.

        s = E (a constraint)                 ->  E in s's interval, E for s
        (s + l) mod c = p (a constraint)     ->  c t + r for s
        s only as s floordiv c               ->  t for s floordiv c
        s only as s mod c, c values or more  ->  t in [0, c - 1] for s mod c
        s, t only as s + k t, s k or more    ->  u for s + k t

    How often an element is read may change: a range stands for a set here.

    >>> from indexing import parse_map
    >>> m = parse_map("(d0)[s0, s1] -> (d0, s0 + (s1 floordiv 8) * 4), domain: d0 in [0, 3], s0 in [0, 3], s1 in [0, 31]")
    >>> print(rescale_ranges(m))
    (d0)[s0] -> (d0, s0), domain: d0 in [0, 3], s0 in [0, 15]
    """
    if m.unknown is not None:
        return m
    m = m.simplify().remove_unused()
    for _ in range(4 * len(m.ranges) + 4):
        better = next((n for rule in RANGE_RULES if (n := rule(m)) is not None), None)
        if better is None:
            break
        m = better.simplify().remove_unused()
    return m.renumbered()


def _expressions(m: IndexingMap) -> Iterator[Expr]:
    yield from m.results
    for e, _ in m.constraints:
        yield e
    for v in m.runtimes:
        yield from v.element


def _rewrite(
    m: IndexingMap,
    change: Callable[[Expr], Expr],
    ranges: Iterable[Variable],
    extra: Iterable[Constraint] = (),
    without: Constraint | None = None,
) -> IndexingMap:
    kept = [Constraint(change(c.expression), c.interval) for c in m.constraints if c is not without]
    runtimes = [v._replace(element=tuple([change(e) for e in v.element])) for v in m.runtimes]
    results = [change(e) for e in m.results]
    return build(m.dims, results, ranges, runtimes, [*kept, *extra], m.is_known_empty)


def _substituted(names: Mapping[Var, ExprLike]) -> Callable[[Expr], Expr]:
    known: dict[Expr, Any] = {}
    return lambda e: substitute(e, names, known)


def _determined(m: IndexingMap) -> IndexingMap | None:
    ranges = {v.var: v.interval for v in m.ranges}
    for c in m.constraints:
        if not c.interval.is_point:
            continue
        for atom, k in c.expression.terms:
            if not isinstance(atom, Var) or atom not in ranges or k not in (1, -1):
                continue
            rest = c.expression - k * atom
            if atom in rest.variables:
                continue
            value = k * (c.interval.lower - rest)
            left = [v for v in m.ranges if v.var is not atom]
            return _rewrite(m, _substituted({atom: value}), left, [Constraint(value, ranges[atom])], c)
    return None


def _strided(m: IndexingMap) -> IndexingMap | None:
    ranges = {v.var: v.interval for v in m.ranges}
    for c in m.constraints:
        e = c.expression
        if not isinstance(e, Mod) or not isinstance(e.divisor, int) or not c.interval.is_point:
            continue
        if len(e.numerator.terms) != 1:
            continue
        (s, k), modulus = e.numerator.terms[0], e.divisor
        if not isinstance(s, Var) or s not in ranges or k not in (1, -1):
            continue
        residue = (k * (c.interval.lower - e.numerator.constant)) % modulus
        lower, upper = ranges[s]
        new = Interval(-((residue - lower) // modulus), (upper - residue) // modulus)
        left = [Variable(s, new) if v.var is s else v for v in m.ranges]
        return _rewrite(m, _substituted({s: modulus * s + residue}), left, without=c)
    return None


def _atoms_with(m: IndexingMap, s: Var) -> set[Expr]:
    """The innermost atoms in which s occurs: s itself where it stands in a sum, else the division around it."""
    found: set[Expr] = set()
    stack: list[Expr] = [a for e in _expressions(m) for a, _ in e.terms]
    while stack:
        a = stack.pop()
        if s not in a.variables:
            continue
        if isinstance(a, (FloorDiv, Mod)) and isinstance(a.divisor, int) and a.numerator is not s:
            stack.extend(x for x, _ in a.numerator.terms)
        else:
            found.add(a)
    return found


def _coarse(m: IndexingMap) -> IndexingMap | None:
    for s, b in m.ranges:
        atoms = _atoms_with(m, s)
        divisors = [a.divisor for a in atoms if isinstance(a, FloorDiv) and a.numerator is s]
        if not atoms or len(divisors) != len(atoms):
            continue
        g = gcd(*[d for d in divisors if isinstance(d, int)])
        if g > 1:
            # s floordiv c = (s floordiv g) floordiv (c / g), and s floordiv g takes every value of an interval.
            left = [Variable(s, Interval(b.lower // g, b.upper // g)) if v.var is s else v for v in m.ranges]
            return _rewrite(m, _replaced({a: s // (a.divisor // g) for a in atoms if isinstance(a, FloorDiv)}), left)
    return None


def _cyclic(m: IndexingMap) -> IndexingMap | None:
    for s, b in m.ranges:
        atoms = _atoms_with(m, s)
        if len(atoms) != 1:
            continue
        (a,) = atoms
        if isinstance(a, Mod) and a.numerator is s and isinstance(a.divisor, int) and b.size >= a.divisor:
            left = [Variable(s, Interval(0, a.divisor - 1)) if v.var is s else v for v in m.ranges]
            return _rewrite(m, _replaced({a: s}), left)
    return None


def _replaced(table: Mapping[Expr, Expr]) -> Callable[[Expr], Expr]:
    """Replaces atoms, also inside of divisions."""

    def atom(a: Expr) -> Expr:
        if a in table:
            return table[a]
        if isinstance(a, FloorDiv):
            return floordiv(change(a.numerator), a.divisor)
        if isinstance(a, Mod):
            return mod(change(a.numerator), a.divisor)
        return a

    def change(e: Expr) -> Expr:
        if not any(v in e.variables for t in table for v in t.variables):
            return e
        total: Expr = e - sum((k * a for a, k in e.terms), start=e * 0)
        for a, k in e.terms:
            total = total + k * atom(a)
        return total

    return change


def _fused(m: IndexingMap) -> IndexingMap | None:
    ranges = {v.var: v.interval for v in m.ranges}
    for s, b in m.ranges:
        for t, k in _partners(m, s, ranges):
            if b.size < k:
                continue
            change = _substituted({s: s - k * t})
            if any(t in change(e).variables for e in _expressions(m)):
                continue
            other = ranges[t]
            span = Interval(b.lower + k * other.lower, b.upper + k * other.upper)
            left = [Variable(s, span) if v.var is s else v for v in m.ranges if v.var is not t]
            return _rewrite(m, change, left)
    return None


def _partners(m: IndexingMap, s: Var, ranges: Mapping[Var, Interval]) -> list[tuple[Var, int]]:
    """(t, k) with s + k t somewhere in the map, k > 0."""
    stack = list(_expressions(m))
    while stack:
        e = stack.pop()
        terms = dict(e.terms)
        if s in terms and len(e.terms) > 1:
            a = terms[s]
            return [
                (t, k // a) for t, k in e.terms if t is not s and isinstance(t, Var) and t in ranges and k % a == 0 and k // a > 0
            ]
        stack.extend(x.numerator for x, _ in e.terms if isinstance(x, (FloorDiv, Mod)) and s in x.numerator.variables)
    return []


RANGE_RULES = (_determined, _strided, _coarse, _cyclic, _fused)
