"""Simplification of maps: results by the ranges of the variables, constraints by what they say about them.

    L + k in [lo, hi]            ->  L in [lo - k, hi - k]
    g L in [lo, hi]              ->  L in [ceil(lo / g), floor(hi / g)]
    L floordiv c in [lo, hi]     ->  L in [c lo, c hi + c - 1]
    g A + R in [g p, g q + g-1]  ->  A in [p, q]              when R in [0, g - 1]
    x in [lo, hi]                ->  x's own interval
    e in [lo, hi]                ->  nothing, when e's range lies inside; the empty map when it lies outside
    L mod a = p, L mod b = q     ->  one constraint modulo lcm(a, b)

Narrower intervals can make more of the expressions simple, so the rules run to a fixpoint, `PASSES` times at most; what is
not done by then stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from hlo.settings import debug_modes
from indexing.caches import Memo
from indexing.expressions.bounds import Bounds, Interval
from indexing.expressions.simplifier import simplify
from indexing.expressions.terms import Expr, FloorDiv, Mod, Var, from_terms, mod
from indexing.map import Constraint, IndexingMap, RuntimeVariable, Variable

__all__ = ["PASSES", "known_empty", "simplify_map"]

PASSES = 8
_SEARCH = 4096  # how many values are tried when a modulo constraint narrows an interval

_MEMO: Memo[object, IndexingMap] = Memo(1 << 15)


def known_empty(m: IndexingMap) -> IndexingMap:
    """The map with the same variables and results and an empty domain."""
    return m if m.is_known_empty else replace(m, is_known_empty=True)


def simplify_map(m: IndexingMap) -> IndexingMap:
    """See `IndexingMap.simplify`."""
    if m.unknown is not None or m.is_known_empty:
        return m
    done = _MEMO.get(m.spelling)
    if done is None:
        done = _simplify(m, points=True)
        if "prove" in debug_modes():
            from indexing.exact.isl import prove_same

            prove_same(m, done)
        _MEMO.keep(m.spelling, done)
    return done


def tidy_map(m: IndexingMap) -> IndexingMap:
    """As `simplify_map`, but results without division stay as they are written: a variable is not replaced by its only value."""
    if m.unknown is not None or m.is_known_empty:
        return m
    plain = all(len(e.terms) < 2 and type(a) is Var for e in m.results for a, _ in e.terms)
    if plain and not m.constraints and not any(b.lower > b.upper for b in m.variable_ranges.values()):
        return m
    return _simplify(m, points=False)


def _simplify(m: IndexingMap, points: bool) -> IndexingMap:
    ranges = dict(m.variable_ranges)
    constraints = list(m.constraints)
    for _ in range(PASSES):
        if any(b.lower > b.upper for b in ranges.values()):
            return known_empty(m)
        before = (dict(ranges), constraints)
        reduced = _reduce_constraints(constraints, ranges)
        if reduced is None:
            return known_empty(m)
        constraints = reduced
        if before == (ranges, constraints):
            break
    known = _known_remainders(dict(constraints))
    raw = [_with_remainders(e, known) for e in m.results] if known else m.results
    results = tuple([simplify(e, ranges) if points else _tidy_result(e, ranges) for e in raw])
    constraints.sort(key=lambda c: c.expression.order)
    return IndexingMap(
        tuple([Variable(v, ranges[v]) for v, _ in m.dims]),
        results,
        tuple([Variable(v, ranges[v]) for v, _ in m.ranges]),
        tuple([_simplify_runtime(v, ranges) for v in m.runtimes]),
        tuple(constraints),
    )


def _simplify_runtime(v: RuntimeVariable, ranges: dict[Var, Interval]) -> RuntimeVariable:
    return v._replace(interval=ranges[v.var], element=tuple([simplify(e, ranges) for e in v.element]))


def _tidy_result(e: Expr, ranges: dict[Var, Interval]) -> Expr:
    """A linear result keeps its variables, unless several are dimensions of size 1 beside one that is not."""
    if all(type(a) is Var for a, _ in e.terms):
        names = [a for a in e.variables if a.name.startswith("d")]
        if len(names) < 2 or not any(ranges[a].is_point for a in names):
            return e
    return simplify(e, ranges)


def _reduce_constraints(constraints: list[Constraint], ranges: dict[Var, Interval]) -> list[Constraint] | None:
    """One pass of the rules; narrows `ranges` in place. None when the domain is seen to be empty."""
    table: dict[Expr, Interval] = {}
    for e, b in constraints:
        e, b = _strip(simplify(e, ranges), b, ranges)
        known = table.get(e)
        table[e] = b if known is None else known.intersect(b)
    merged = _merge_modulo(table)
    if merged is None:
        return None
    merged = _apply_modulo(merged)
    kept: list[Constraint] = []
    for e, b in merged.items():
        if type(e) is Var:
            ranges[e] = ranges[e].intersect(b)
            if ranges[e].is_empty:
                return None
            continue
        span = Bounds(ranges)(e)
        if b.covers(span):
            continue
        b = b.intersect(span)
        if b.is_empty:
            return None
        if not _narrow(e, b, ranges):
            return None
        kept.append(Constraint(e, b))
    return kept


def _strip(e: Expr, b: Interval, ranges: dict[Var, Interval]) -> tuple[Expr, Interval]:
    """The same condition on a shorter expression: no constant, no common factor, no division outside."""
    bounds = Bounds(ranges)
    while e.terms:
        lo, hi = b.lower - e.constant, b.upper - e.constant
        g = 0
        for _, k in e.terms:
            g = gcd(g, k)
        if e.terms[0][1] < 0:
            g, lo, hi = -g, -hi, -lo
        size = abs(g)
        if e.constant or g != 1:
            e = from_terms(0, {a: k // g for a, k in e.terms})
            b = Interval(-(-lo // size), hi // size)
        if isinstance(e, FloorDiv) and isinstance(e.divisor, int):
            b = Interval(b.lower * e.divisor, b.upper * e.divisor + e.divisor - 1)
            e = e.numerator
            continue
        shorter = _drop_small_rest(e, b, bounds)
        if shorter is None:
            return e, b
        e, b = shorter
    return e, b


def _drop_small_rest(e: Expr, b: Interval, bounds: Bounds) -> tuple[Expr, Interval] | None:
    """g A + R in [g p, g q + g - 1] -> A in [p, q] when R in [0, g - 1]; also with only one bound of a kind that matters."""
    for g in sorted({abs(k) for _, k in e.terms if abs(k) > 1}, reverse=True):
        rest = from_terms(0, {a: k for a, k in e.terms if k % g})
        whole = from_terms(0, {a: k // g for a, k in e.terms if k % g == 0})
        r = bounds(rest)
        if r.lower < 0 or r.upper >= g or not rest.terms:
            continue
        span = bounds(e)
        # A bound that the expression cannot pass anyway may be moved outwards.
        low = min(b.lower, span.lower) if b.lower <= span.lower else b.lower
        high = max(b.upper, span.upper) if b.upper >= span.upper else b.upper
        fits_low = low % g == 0 or b.lower <= span.lower
        fits_high = high % g == g - 1 or b.upper >= span.upper
        if fits_low and fits_high:
            return whole, Interval(low // g, high // g)
    return None


def _merge_modulo(table: dict[Expr, Interval]) -> dict[Expr, Interval] | None:
    """L mod a = p and L mod b = q become one constraint modulo lcm(a, b), or None when no integer meets both."""
    groups: dict[object, list[Expr]] = {}
    for e, b in table.items():
        if isinstance(e, Mod) and isinstance(e.divisor, int) and b.lower == b.upper:
            groups.setdefault(e.numerator.terms, []).append(e)
    if all(len(g) == 1 for g in groups.values()):
        return table
    out = dict(table)
    for members in groups.values():
        if len(members) == 1:
            continue
        modulus, residue = 1, 0  # L = residue modulo modulus
        for e in members:
            assert isinstance(e, Mod) and isinstance(e.divisor, int)
            want = (out.pop(e).lower - e.numerator.constant) % e.divisor
            joined = _chinese(residue, modulus, want, e.divisor)
            if joined is None:
                return None
            residue, modulus = joined
        first = members[0]
        assert isinstance(first, Mod)
        linear = first.numerator - first.numerator.constant
        out[mod(linear, modulus)] = Interval(residue, residue)
    return out


def _apply_modulo(table: dict[Expr, Interval]) -> dict[Expr, Interval]:
    """What (N mod c = p) says, used in the other constraints."""
    known = _known_remainders(table)
    if not known:
        return table
    out: dict[Expr, Interval] = {}
    for e, b in table.items():
        if not (isinstance(e, Mod) and b.lower == b.upper):
            e = _with_remainders(e, known)
        old = out.get(e)
        out[e] = b if old is None else old.intersect(b)
    return out


Remainders = dict[tuple[object, int], tuple[Expr, int]]  # (terms of N, c) -> N without its constant, its remainder modulo c


def _known_remainders(table: dict[Expr, Interval]) -> Remainders:
    known: Remainders = {}
    for e, b in table.items():
        if isinstance(e, Mod) and isinstance(e.divisor, int) and b.lower == b.upper:
            shift = e.numerator.constant
            known[e.numerator.terms, e.divisor] = e.numerator - shift, (b.lower - shift) % e.divisor
    return known


def _with_remainders(e: Expr, known: Remainders) -> Expr:
    """With L mod c = p:  (L + k) mod c -> (p + k) mod c;  c m ((L + k) floordiv c) -> m (L - p) + c m ((p + k) floordiv c)."""
    for atom, k in e.terms:
        if isinstance(atom, (Mod, FloorDiv)) and isinstance(atom.divisor, int):
            found = known.get((atom.numerator.terms, atom.divisor))
            if found is None:
                continue
            (linear, p), c = found, atom.divisor
            quotient, remainder = divmod(p + atom.numerator.constant, c)
            if isinstance(atom, Mod):
                e = e + k * (remainder - atom)
            elif k % c == 0:
                e = e - k * atom + k // c * (linear - p) + k * quotient
    return e


def _chinese(r: int, m: int, s: int, n: int) -> tuple[int, int] | None:
    """(t, lcm(m, n)) with t = r modulo m and t = s modulo n; None when there is none."""
    g = gcd(m, n)
    if (s - r) % g:
        return None
    step = (s - r) // g * pow(m // g, -1, n // g) % (n // g)
    return (r + m * step) % (m // g * n), m // g * n


def _narrow(e: Expr, b: Interval, ranges: dict[Var, Interval]) -> bool:
    """Narrows the variables' intervals by what e in b implies for each alone. False when one becomes empty."""
    if isinstance(e, Mod) and isinstance(e.divisor, int):
        return _narrow_modulo(e, b, ranges)
    if len(e.terms) < 2:
        return True
    bounds = Bounds(dict(ranges))
    span = bounds(e)
    for atom, k in e.terms:
        if type(atom) is not Var:
            continue
        lo, hi = ranges[atom]
        least, most = (k * lo, k * hi) if k > 0 else (k * hi, k * lo)
        # k x = e - rest, and the rest lies in [span.lower - least, span.upper - most].
        low, high = b.lower - (span.upper - most), b.upper - (span.lower - least)
        if k > 0:
            new = Interval(max(lo, -(-low // k)), min(hi, high // k))
        else:
            new = Interval(max(lo, -(high // -k)), min(hi, (-low) // -k))
        if new.lower > new.upper:
            return False
        ranges[atom] = new
    return True


def _narrow_modulo(e: Mod, b: Interval, ranges: dict[Var, Interval]) -> bool:
    """x's first and last value that meet (k x + l) mod c in b become its bounds."""
    if len(e.numerator.terms) != 1 or type(e.numerator.terms[0][0]) is not Var:
        return True
    assert isinstance(e.divisor, int)
    (x, k), shift, c = e.numerator.terms[0], e.numerator.constant, e.divisor
    assert isinstance(x, Var)
    lo, hi = ranges[x]
    if c > _SEARCH:
        return True
    first = next((v for v in range(lo, min(hi, lo + c - 1) + 1) if (k * v + shift) % c in b), None)
    last = next((v for v in range(hi, max(lo, hi - c + 1) - 1, -1) if (k * v + shift) % c in b), None)
    if first is None or last is None:
        return False
    ranges[x] = Interval(first, last)
    return True
