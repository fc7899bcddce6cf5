"""Conditions on tile sizes: a disjunction of conjunctions of `expression in [lower, upper]`, kept simplified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from indexing.expr import Const, Expr, FloorDiv, Interval, Var, evaluate, interval, substitute

__all__ = ["CONJUNCTIONS_LIMIT", "TileConstraints", "TooManyConjunctions"]

CONJUNCTIONS_LIMIT = 512
"""More alternatives than this are not kept: the tile is declined."""

Conjunction = tuple[tuple[Expr, Interval], ...]  # sorted by text, each expression once


class TooManyConjunctions(Exception):
    """Carries the number of alternatives out of a combination that grew too large."""


@dataclass(frozen=True)
class TileConstraints:
    """c_1 || c_2 || …, each c_k a conjunction; () is never met, ((),) always.

    >>> d0 = Var("d0")
    >>> c = TileConstraints.of({6 % d0: Interval(0, 0)}) | TileConstraints.of({d0 % 6: Interval(0, 0)})
    >>> str(c), c.holds({d0: 3}), c.holds({d0: 4})
    ('6 mod d0 in [0, 0] || d0 mod 6 in [0, 0]', True, False)
    """

    alternatives: tuple[Conjunction, ...] = ((),)

    @staticmethod
    def of(conditions: Mapping[Expr, Interval]) -> TileConstraints:
        """The conjunction of some conditions."""
        return TileConstraints((_sorted(conditions.items()),))

    @property
    def is_always_met(self) -> bool:
        return () in self.alternatives

    @property
    def is_never_met(self) -> bool:
        return not self.alternatives

    def __or__(self, other: TileConstraints) -> TileConstraints:
        return TileConstraints(_absorbed((*self.alternatives, *other.alternatives)))

    def __and__(self, other: TileConstraints) -> TileConstraints:
        """Both. Raises TooManyConjunctions when multiplying out gives more than `CONJUNCTIONS_LIMIT` alternatives."""
        if self == other or other.is_always_met:
            return self
        if self.is_always_met:
            return other
        if len(self.alternatives) * len(other.alternatives) > CONJUNCTIONS_LIMIT * 8:
            raise TooManyConjunctions(f"{len(self.alternatives)} x {len(other.alternatives)} alternatives")
        both = [_conjoined(a, b) for a, b in product(self.alternatives, other.alternatives)]
        kept = _absorbed(tuple([c for c in both if c is not None]))
        if len(kept) > CONJUNCTIONS_LIMIT:
            raise TooManyConjunctions(f"{len(kept)} alternatives")
        return TileConstraints(kept)

    def simplify(self, ranges: Mapping[Var, Interval]) -> TileConstraints:
        """What is left for variables in these ranges: tautologies go, contradictory and absorbed alternatives go.

        >>> d0, d1 = Var("d0"), Var("d1")
        >>> c = TileConstraints.of({d0: Interval(1, 1), d1: Interval(1, 8)}) | TileConstraints.of({d0: Interval(9, 9)})
        >>> str(c.simplify({d0: Interval(1, 4), d1: Interval(1, 8)}))
        'd0 in [1, 1]'
        """
        kept = [_reduced(c, ranges) for c in self.alternatives]
        return TileConstraints(_absorbed(tuple([c for c in kept if c is not None])))

    def holds(self, values: Mapping[Var, int]) -> bool:
        """Whether concrete values meet one of the alternatives."""
        return any(all(evaluate(e, values) in b for e, b in c) for c in self.alternatives)

    def __str__(self) -> str:
        if self.is_always_met:
            return "always satisfied"
        if self.is_never_met:
            return "unsatisfiable"
        lines = [" && ".join(sorted(f"{e} in {b}" for e, b in c)) for c in self.alternatives]
        return " || ".join(sorted(lines))


def _sorted(items: Iterable[tuple[Expr, Interval]]) -> Conjunction:
    return tuple(sorted(items, key=lambda c: (c[0].order, c[1])))


def _conjoined(a: Conjunction, b: Conjunction) -> Conjunction | None:
    table = dict(a)
    for e, span in b:
        table[e] = table[e].intersect(span) if e in table else span
        if table[e].is_empty:
            return None
    return _sorted(table.items())


def _reduced(c: Conjunction, ranges: Mapping[Var, Interval]) -> Conjunction | None:
    points = {e: Const(b.lower) for e, b in c if isinstance(e, Var) and b.is_point}
    narrowed = {**ranges, **{v: Interval(p.value, p.value) for v, p in points.items()}}
    kept: dict[Expr, Interval] = {}
    for e, b in c:
        e, b = _stripped(e if e in points else substitute(e, points), b)
        span = interval(e, ranges if isinstance(e, Var) else narrowed)
        if span.intersect(b).is_empty:
            return None
        if not b.covers(span):
            kept[e] = kept[e].intersect(b) if e in kept else b
            if kept[e].is_empty:
                return None
    return _sorted(kept.items())


def _stripped(e: Expr, b: Interval) -> tuple[Expr, Interval]:
    """k * x + l in [lo, hi] and x floordiv c in [lo, hi] as conditions on x."""
    while True:
        if isinstance(e, FloorDiv) and isinstance(e.divisor, int):
            c = e.divisor
            e, b = e.numerator, Interval(b.lower * c, b.upper * c + c - 1)
            continue
        if len(e.terms) != 1 or e.terms[0][0] is e:
            return e, b
        atom, k = e.terms[0]
        low, high = b.lower - e.constant, b.upper - e.constant
        e, b = atom, Interval(-(-low // k), high // k) if k > 0 else Interval(-(-high // k), low // k)


def _absorbed(alternatives: Sequence[Conjunction]) -> tuple[Conjunction, ...]:
    """Without duplicates and without those that say more than another one: a || (a && b) is a."""
    distinct = sorted(dict.fromkeys(alternatives), key=len)
    sets = [frozenset(c) for c in distinct]
    kept: list[int] = []
    for k, s in enumerate(sets):
        if not any(sets[j] <= s for j in kept):
            kept.append(k)
    return tuple([distinct[k] for k in kept])
