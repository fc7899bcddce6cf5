"""Simplification of expressions by the ranges of their variables: a list of named rules, driven to a fixpoint.

Each rule states `before -> after` and its side condition. `c`, `g`, `a`, `b` are positive integers, capital letters are
sums; `x in I` says that x's range lies in I. Every rule holds for all integers that satisfy its side condition; the tests
prove each one with isl. Work is bounded by `BUDGET` rule applications for one call; what is not done by then stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd

from indexing.caches import Memo
from indexing.expressions.bounds import EVERYTHING, Bounds, Interval
from indexing.expressions.extrema import maximum, minimum
from indexing.expressions.terms import Const, Expr, FloorDiv, Maximum, Minimum, Mod, Product, Sum, Var, floordiv, from_terms, mod

__all__ = ["BUDGET", "DIVISION_RULES", "MODULO_RULES", "SUM_RULES", "Simplifier", "simplify"]

BUDGET = 4000
_FAR = 2**60  # beyond this a bound stands for "unknown"


class Simplifier:
    """Simplifies expressions over fixed ranges, and remembers what it has simplified.

    `bounds` gives ranges of expressions. A result computes the same value as its argument wherever every variable is in
    its range.
    """

    __slots__ = ("_budget", "_done", "bounds")

    def __init__(self, ranges: Mapping[Var, Interval]) -> None:
        self.bounds = Bounds(ranges)
        self._done: dict[Expr, Expr] = {}
        self._budget = BUDGET

    def __call__(self, e: Expr) -> Expr:
        self._budget = BUDGET
        return self._visit(e)

    def _visit(self, e: Expr) -> Expr:
        if not e.terms:
            return e
        known = self._done.get(e)
        if known is not None:
            return known
        result = _VISITORS[type(e)](self, e)
        self._done[e] = result
        if result is not e:
            self._done.setdefault(result, result)
        return result

    def _spend(self) -> bool:
        self._budget -= 1
        return self._budget > 0

    def _variable(self, e: Expr) -> Expr:
        # x -> v when x in [v, v]
        b = self.bounds(e)
        return Const(b.lower) if b.lower == b.upper else e

    def _sum(self, e: Expr) -> Expr:
        total: dict[Expr, int] = {}
        constant = e.constant
        changed = False
        for atom, k in e.terms:
            new = self._visit(atom)
            if new is atom:
                total[atom] = total.get(atom, 0) + k
            else:
                changed = True
                constant += k * new.constant
                for a, m in new.terms:
                    total[a] = total.get(a, 0) + k * m
        out = from_terms(constant, total) if changed else e
        if len(out.terms) < 2 or not self._spend():
            return out
        for rule in SUM_RULES:
            better = rule(self, out)
            if better is not None:
                return self._visit(better)
        return out

    def _floordiv(self, e: Expr) -> Expr:
        assert isinstance(e, FloorDiv)
        n, c = self._visit(e.numerator), e.divisor
        if isinstance(c, Expr):
            d = self._visit(c)
            return e if n is e.numerator and d is c else self._again(floordiv(n, d), e)
        if n is not e.numerator:
            return self._again(floordiv(n, c), e)
        for rule in DIVISION_RULES:
            better = rule(self, n, c)
            if better is not None:
                return self._again(better, e)
        return e

    def _mod(self, e: Expr) -> Expr:
        assert isinstance(e, Mod)
        n, c = self._visit(e.numerator), e.divisor
        if isinstance(c, Expr):
            d = self._visit(c)
            if self.bounds(n).lower >= 0 and self.bounds(d - n).lower > 0:
                return n
            return e if n is e.numerator and d is c else self._again(mod(n, d), e)
        if n is not e.numerator:
            return self._again(mod(n, c), e)
        for rule in MODULO_RULES:
            better = rule(self, n, c)
            if better is not None:
                return self._again(better, e)
        return e

    def _product(self, e: Expr) -> Expr:
        assert isinstance(e, Product)
        total: Expr = Const(1)
        for f in e.factors:
            total = total * self._visit(f)
        return total if total is e else self._again(total, e)

    def _extremum(self, e: Expr) -> Expr:
        # min(…, x, …, y, …) -> min(…, x, …) when x - y in [.., 0]
        assert isinstance(e, (Minimum, Maximum))
        sign = 1 if isinstance(e, Minimum) else -1
        arguments = [self._visit(a) for a in e.arguments]
        kept: list[Expr] = []
        for i, x in enumerate(arguments):
            beaten = False
            for j, y in enumerate(arguments):
                if i == j or not self._spend():
                    continue
                gap = self.bounds(self._visit((y - x) * sign))
                # Of two that are always equal, the first one stays.
                if gap.upper < 0 or (gap.upper == 0 and (gap.lower < 0 or j < i)):
                    beaten = True
                    break
            if not beaten:
                kept.append(x)
        new = minimum(*kept) if sign == 1 else maximum(*kept)
        return new if new is e else self._again(new, e)

    def _again(self, new: Expr, old: Expr) -> Expr:
        """Simplifies what a rule made; hands it back as it is once the budget is spent."""
        if new is old:
            return old
        return self._visit(new) if self._spend() else new


_VISITORS: dict[type[Expr], Callable[[Simplifier, Expr], Expr]] = {}


def _register_visitors() -> None:
    _VISITORS.update(
        {
            Var: Simplifier._variable,
            Sum: Simplifier._sum,
            FloorDiv: Simplifier._floordiv,
            Mod: Simplifier._mod,
            Product: Simplifier._product,
            Minimum: Simplifier._extremum,
            Maximum: Simplifier._extremum,
        }
    )


_register_visitors()


def _factors(n: Expr, c: int) -> list[int]:
    """The proper common divisors g > 1 of c and some of n's coefficients, greatest first."""
    found: list[int] = []
    for _, k in n.terms:
        g = gcd(k, c)
        if g > 1:
            for h in [*found, 0]:
                common = gcd(g, h)
                if common > 1 and common not in found:
                    found.append(common)
    if len(found) > 1:
        found.sort(reverse=True)
    return found


def _split(s: Simplifier, n: Expr, g: int) -> tuple[Expr, Expr, int] | None:
    """(A, R, q) with n = g A + R and R in [q g, q g + g - 1]; None when R's range spans a multiple of g."""
    whole = {a: k // g for a, k in n.terms if k % g == 0}
    rest = from_terms(n.constant, {a: k for a, k in n.terms if k % g})
    lo, hi = s.bounds(rest)
    q = lo // g
    if hi // g != q:
        return None
    return from_terms(0, whole), rest, q


# ---------------------------------------------------------------- rules for N floordiv c


def div_of_one_period(s: Simplifier, n: Expr, c: int) -> Expr | None:
    """N // c -> q when N in [q c, q c + c - 1]."""
    lo, hi = s.bounds(n)
    return Const(lo // c) if lo // c == hi // c else None


def div_drops_small_rest(s: Simplifier, n: Expr, c: int) -> Expr | None:
    """(g A + R) // c -> (A + q) // (c / g) when g divides c and R in [q g, q g + g - 1].

    The sum's part below g never carries into the multiples of g. Needs the whole of R within one period: with
    R in [0, g] the greatest value carries.
    """
    for g in _factors(n, c):
        parts = _split(s, n, g)
        if parts is not None:
            return floordiv(parts[0] + parts[2], c // g)
    return None


def div_flattens(s: Simplifier, n: Expr, c: int) -> Expr | None:
    """(L + M // a) // c -> (a L + M) // (a c), for the only division in the numerator."""
    inner = [a for a, _ in n.terms if isinstance(a, FloorDiv) and isinstance(a.divisor, int)]
    if len(inner) != 1 or dict(n.terms)[inner[0]] != 1:
        return None
    a = inner[0].divisor
    assert isinstance(a, int)
    return floordiv((n - inner[0]) * a + inner[0].numerator, a * c)


def div_of_mod(s: Simplifier, n: Expr, c: int) -> Expr | None:
    """(M % a) // c -> (M // c) % (a / c) when c divides a."""
    if isinstance(n, Mod) and isinstance(n.divisor, int) and n.divisor % c == 0:
        return mod(floordiv(n.numerator, c), n.divisor // c)
    return None


# ---------------------------------------------------------------- rules for N mod c


def mod_of_one_period(s: Simplifier, n: Expr, c: int) -> Expr | None:
    """N % c -> N - q c when N in [q c, q c + c - 1]."""
    lo, hi = s.bounds(n)
    return n - lo // c * c if lo // c == hi // c else None


def mod_keeps_small_rest(s: Simplifier, n: Expr, c: int) -> Expr | None:
    """(g A + R) % c -> g ((A + q) % (c / g)) + R - q g when g divides c and R in [q g, q g + g - 1]."""
    for g in _factors(n, c):
        parts = _split(s, n, g)
        if parts is not None:
            a, r, q = parts
            return g * mod(a + q, c // g) + r - q * g
    return None


def mod_of_mod(s: Simplifier, n: Expr, c: int) -> Expr | None:
    """(L + k (M % a)) % c -> (L + k M) % c when c divides k a, since k a (M // a) is a multiple of c."""
    for atom, k in n.terms:
        if isinstance(atom, Mod) and isinstance(atom.divisor, int) and k * atom.divisor % c == 0:
            return mod(n - k * atom + k * atom.numerator, c)
    return None


def mod_shifts_constant(s: Simplifier, n: Expr, c: int) -> Expr | None:
    """(L + k) % c -> (L + k') % c with k' = k modulo c: negative if N then starts in [0, c - 1], else in [0, c - 1]."""
    k = n.constant % c
    if k == 0:
        return None
    start = s.bounds(n).lower - n.constant
    best = k - c if 0 <= start + k - c < c else k
    return None if best == n.constant else mod(n - n.constant + best, c)


# ---------------------------------------------------------------- rules for sums


def sum_recombines(s: Simplifier, e: Expr) -> Expr | None:
    """k c (N // c) + k (N % c) -> k N, when that leaves less to compute.

    N // c is looked up in its simplified form, so that (x // 32) * 4 + (x // 8) % 4 becomes x // 8.
    """
    for atom, k in e.terms:
        if isinstance(atom, Mod) and isinstance(atom.divisor, int):
            c = atom.divisor
            quotient = s._visit(floordiv(atom.numerator, c))
            candidate = e - k * atom + k * atom.numerator - (k * c) * quotient
            if candidate.cost < e.cost:
                return candidate
    return None


def sum_makes_mod(s: Simplifier, e: Expr) -> Expr | None:
    """k N - k c (N // c) -> k (N % c), when that leaves less to compute."""
    for atom, k in e.terms:
        if isinstance(atom, FloorDiv) and isinstance(atom.divisor, int) and k % atom.divisor == 0:
            m = k // atom.divisor
            n = atom.numerator
            candidate = e - k * atom + m * n - m * s._visit(mod(n, atom.divisor))
            if candidate.cost < e.cost:
                return candidate
    return None


def sum_telescopes(s: Simplifier, e: Expr) -> Expr | None:
    """k_1 (N_1 % c_1) + k_2 (N_2 % c_2) + … -> every % written as N - c (N // c), when the quotients cancel to something shorter.

    A position that was taken apart and put together again is such a sum: each quotient is what the next remainder adds.
    """
    moduli = [(a, k) for a, k in e.terms if isinstance(a, Mod) and isinstance(a.divisor, int)]
    if len(moduli) < 2:
        return None
    candidate = e
    for atom, k in moduli:
        assert isinstance(atom, Mod) and isinstance(atom.divisor, int)
        quotient = s._visit(floordiv(atom.numerator, atom.divisor))
        candidate = candidate - k * atom + k * atom.numerator - (k * atom.divisor) * quotient
    candidate = _reduced_quotients(candidate)
    return candidate if candidate.cost < e.cost else None


def _reduced_quotients(e: Expr) -> Expr:
    """Every (L + m x) // c of the sum as (L + (m mod c) x) // c + (m // c) x, so that equal quotients meet."""
    out: Expr = Const(e.constant)
    for atom, k in e.terms:
        if isinstance(atom, FloorDiv) and isinstance(atom.divisor, int):
            c, n = atom.divisor, atom.numerator
            whole = from_terms(n.constant // c, {a: m // c for a, m in n.terms})
            out = out + k * (whole + floordiv(n - c * whole, c))
        else:
            out = out + k * atom
    return out


def sum_absorbs_constant(s: Simplifier, e: Expr) -> Expr | None:
    """K + k (N // c) + … -> k ((N + (K / k) c) // c) + …, for one division, when that leaves less to compute.

    All other numerators then start in the period from 0.
    """
    quotients = [(a, k) for a, k in e.terms if isinstance(a, FloorDiv) and isinstance(a.divisor, int)]
    if not quotients or (len(quotients) == 1 and e.constant == 0):
        return None
    out = e
    fresh: list[tuple[Expr, int, int]] = []  # numerator that starts in the period from 0, divisor, coefficient
    for atom, k in quotients:
        assert isinstance(atom, FloorDiv) and isinstance(atom.divisor, int)
        low = s.bounds(atom.numerator).lower
        q = low // atom.divisor if low > -_FAR else 0
        fresh.append((atom.numerator - q * atom.divisor, atom.divisor, k))
        out = out - k * atom + k * q
    constant = out.constant
    # A numerator without a rest modulo c would give the periods back at once.
    takers = (n for n, (numerator, c, k) in enumerate(fresh) if constant % k == 0 and numerator.constant % c)
    absorber = next(takers, None)
    for n, (numerator, c, k) in enumerate(fresh):
        if n == absorber:
            numerator = numerator + constant // k * c
            out = out - constant
        out = out + k * floordiv(numerator, c)
    return out if out.cost < e.cost else None


DIVISION_RULES = (div_of_one_period, div_drops_small_rest, div_flattens, div_of_mod)
MODULO_RULES = (mod_of_one_period, mod_of_mod, mod_keeps_small_rest, mod_shifts_constant)
SUM_RULES = (sum_recombines, sum_makes_mod, sum_telescopes, sum_absorbs_constant)


# ---------------------------------------------------------------- the entry point

_MEMO: Memo[tuple[Expr, tuple[Interval, ...]], Expr] = Memo(1 << 17)


def simplify(e: Expr, ranges: Mapping[Var, Interval]) -> Expr:
    """An expression that equals `e` wherever every variable is in its range, and is at most as long.

    A variable without a range counts as any index. Results are remembered for the process, keyed by the expression and
    the ranges of the variables that occur in it.

    >>> i, j = Var("d0"), Var("d1")
    >>> str(simplify((128 * i + j) // 128, {i: Interval(0, 9), j: Interval(0, 127)}))
    'd0'
    >>> str(simplify(8 * (i // 8) + i % 8, {}))
    'd0'
    """
    if not e.terms:
        return e
    key = (e, tuple([ranges.get(v, EVERYTHING) for v in e.variables]))
    known = _MEMO.get(key)
    if known is None:
        known = _MEMO.keep(key, Simplifier(ranges)(e))
    return known
