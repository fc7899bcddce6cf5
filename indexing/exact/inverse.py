"""Inverse relations: from an element of an operand to every output element that reads it.

The equations `result_k(d, s, rt) = i_k` are solved for d and s:

    a x = K                    x = K floordiv a, where K mod a = 0
    a x + R = K                x = (K - l) floordiv a and R = (K - l) mod a + l, when R in [l, l + a - 1]
    N floordiv c, N mod c      become q and r with N = c q + r, r in [0, c - 1]
    w_0 e_0 + w_1 e_1 + …      one equation for a group that together spells a row-major position (reshapes)

What the equations leave open becomes a range variable, and what they demand of i a constraint, so that the result is the
exact inverse whether or not it could be solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from hlo import Declined, Op, TensorType
from indexing.caches import Memo
from indexing.deriving.derive import reads_of
from indexing.expr import substitute
from indexing.expressions.bounds import Bounds, Interval
from indexing.expressions.simplifier import simplify
from indexing.expressions.terms import Const, Expr, FloorDiv, Mod, Var, floordiv, from_terms, mod
from indexing.map import Constraint, IndexingMap, RuntimeVariable, Variable, build, usual
from indexing.map_simplifier import tidy_map
from indexing.mapset import MapSet

__all__ = ["input_to_output", "invert"]


class _System:
    """Equations between unknowns (the old dimensions and ranges, and quotients and remainders) and knowns (i, rt)."""

    def __init__(self, m: IndexingMap, box: Sequence[Interval]) -> None:
        self.map = m
        self.inputs = [usual("d", i) for i in range(len(box))]
        self.names: dict[Var, Any] = {}
        self.ranges: dict[Var, Interval] = dict(zip(self.inputs, box, strict=True))
        self.unknowns: dict[Var, int] = {}  # -> how gladly it is solved for: dimensions before helpers before ranges
        for prefix, group, rank in (("out", m.dims, 0), ("in", m.ranges, 2)):
            for n, v in enumerate(group):
                fresh = Var(f"{prefix}{n}")
                self.names[v.var] = fresh
                self.unknowns[fresh] = rank
                self.ranges[fresh] = v.interval
        for rt in m.runtimes:
            self.ranges[rt.var] = rt.interval
        self.limits: list[Constraint] = []  # on unknowns, to be imposed once they are solved
        for fresh in self.unknowns:
            self.limits.append(Constraint(fresh, self.ranges[fresh]))
        self.equations: list[tuple[Expr, Expr]] = []  # unknown side, known side
        self.solved: dict[Var, Expr] = {}
        self.conditions: list[Constraint] = []
        self.pairs: dict[tuple[Expr, int], tuple[Var, Var]] = {}

    def rename(self, e: Expr) -> Expr:
        return substitute(e, self.names)

    def bounds(self, e: Expr) -> Interval:
        return Bounds(self.ranges)(e)

    # ------------------------------------------------------------ setting up

    def set_up(self) -> None:
        results = [self.rename(e) for e in self.map.results]
        for group in _connected(results, self.unknowns):
            position = self._row_major_position(results, group)
            if position is not None:
                self.equations.append(position)
                continue
            for k in group:
                self.equations.append((self.flatten(results[k]), self.inputs[k]))
        for e, b in self.map.constraints:
            e = self.flatten(self.rename(e))
            self.limits.append(Constraint(e, b))
            if isinstance(e, Var):
                self.ranges[e] = self.ranges[e].intersect(b)

    def _row_major_position(self, results: list[Expr], group: list[int]) -> tuple[Expr, Expr] | None:
        """(L(d), sum of w_k i_k) when the group's results, weighted row-major, add up to a linear form L.

        Then the one equation implies them all: both sides are the position in a box, and a position has one index.
        Needs every result to stay inside its dimension.
        """
        if len(group) < 2 or all(type(a) is Var for k in group for a, _ in results[k].terms):
            return None
        left: Expr = Const(0)
        right: Expr = Const(0)
        for k in group:
            b = self.ranges[self.inputs[k]]
            if b.lower != 0 or not b.covers(self.bounds(results[k])):
                return None
            left = left * b.size + results[k]
            right = right * b.size + self.inputs[k]
        left = simplify(left, self.ranges)
        return (left, right) if all(type(a) is Var for a, _ in left.terms) else None

    def flatten(self, e: Expr) -> Expr:
        """`e` with a pair of unknowns in place of every division and modulo of unknowns."""
        total: Expr = Const(e.constant)
        for atom, k in e.terms:
            total = total + k * self._flat_atom(atom)
        return total

    def _flat_atom(self, atom: Expr) -> Expr:
        if isinstance(atom, (FloorDiv, Mod)) and isinstance(atom.divisor, int) and self.has_unknown(atom):
            q, r = self._pair(self.flatten(atom.numerator), atom.divisor)
            return q if isinstance(atom, FloorDiv) else r
        return atom

    def _pair(self, n: Expr, c: int) -> tuple[Expr, Expr]:
        # n // c through the greatest divisor of c by which n was divided before: one chain instead of two unrelated pairs.
        finer = [b for m, b in self.pairs if m is n and b != c and c % b == 0]
        if finer:
            b = max(finer)
            q, r = self.pairs[n, b]
            high, low = self._pair(q, c // b)
            return high, low * b + r
        found = self.pairs.get((n, c))
        if found is None:
            span = self.bounds(n)
            number = len(self.pairs)
            found = Var(f"q{number}"), Var(f"r{number}")
            self.pairs[n, c] = found
            q, r = found
            self.unknowns[q] = self.unknowns[r] = 1
            self.ranges[q] = Interval(span.lower // c, span.upper // c)
            self.ranges[r] = Interval(0, c - 1) if span.lower // c != span.upper // c else Interval(
                span.lower % c, span.upper % c
            )  # fmt: skip
            self.limits.append(Constraint(r, self.ranges[r]))
            self.equations.append((n - c * q - r, Const(0)))
        return found

    def has_unknown(self, e: Expr) -> bool:
        return any(v in self.unknowns and v not in self.solved for v in e.variables)

    # ------------------------------------------------------------ solving

    def solve(self) -> None:
        while self.equations:
            progress = False
            for n, (left, right) in enumerate(self.equations):
                left, right = self._move(left, right)
                self.equations[n] = (left, right)
                if self._solve_one(left, right):
                    del self.equations[n]
                    progress = True
                    break
            if not progress:
                self._eliminate()

    def _move(self, left: Expr, right: Expr) -> tuple[Expr, Expr]:
        """Brings what is known, and the constant, to the right."""
        left = substitute(left, self.solved)
        unknown: dict[Expr, int] = {}
        known: Expr = Const(left.constant)
        for atom, k in left.terms:
            if self.has_unknown(atom):
                unknown[atom] = k
            else:
                known = known + k * atom
        return from_terms(0, unknown), right - known

    def _solve_one(self, left: Expr, right: Expr) -> bool:
        if not left.terms:
            self.conditions.append(Constraint(right, Interval(0, 0)))
            return True
        if any(type(a) is not Var for a, _ in left.terms):
            return False
        steps: list[tuple[Var, Expr]] = []
        conditions: list[Constraint] = []
        common = 0
        for _, k in left.terms:
            common = gcd(common, k)
        if common > 1:
            conditions.append(Constraint(mod(right, common), Interval(0, 0)))
            left, right = from_terms(0, {a: k // common for a, k in left.terms}), floordiv(right, common)
        terms = sorted(left.terms, key=lambda t: -abs(t[1]))
        rest = left
        for x, k in terms:
            assert isinstance(x, Var)
            rest = rest - k * x
            low, high = self.bounds(rest)
            size = abs(k)
            if high - low >= size:
                return False
            value = floordiv(right - low, size)
            steps.append((x, value if k > 0 else -value))
            right = mod(right - low, size) + low
        # What is left over equals `rest`, which is 0 by now.
        conditions.append(Constraint(right, Interval(0, 0)))
        self.conditions.extend(conditions)
        for x, value in steps:
            self._set(x, value)
        return True

    def _set(self, x: Var, value: Expr) -> None:
        self.solved = {v: substitute(e, {x: value}) for v, e in self.solved.items()}
        self.conditions = [Constraint(substitute(e, {x: value}), b) for e, b in self.conditions]
        self.solved[x] = value

    def _eliminate(self) -> None:
        """No equation determines its unknowns: one of them is expressed by the others, or an equation becomes a condition."""
        best: tuple[tuple[int, int, int], int, Var, int] | None = None
        for n, (left, _) in enumerate(self.equations):
            for x, k in left.terms:
                alone = isinstance(x, Var) and not any(x in a.variables for a, _ in left.terms if a is not x)
                if isinstance(x, Var) and alone:
                    rank = (self.unknowns[x], abs(k), n)
                    if best is None or rank < best[0]:
                        best = rank, n, x, k
        if best is None:
            left, right = self.equations.pop()
            for v in left.variables:
                self.unknowns.pop(v, None)  # free from now on: known to the remaining equations
            self.conditions.append(Constraint(left - right, Interval(0, 0)))
            return
        _, n, x, k = best
        left, right = self.equations.pop(n)
        value = right - (left - k * x)
        if abs(k) != 1:
            self.conditions.append(Constraint(mod(value, abs(k)), Interval(0, 0)))
        self._set(x, floordiv(value if k > 0 else -value, abs(k)))

    # ------------------------------------------------------------ the answer

    def answer(self) -> IndexingMap:
        for v in self.unknowns:
            if v not in self.solved and self.ranges[v].is_point:
                self.solved[v] = Const(self.ranges[v].lower)

        # An expression may still hold unknowns that were solved later.
        def final(e: Expr) -> Expr:
            for _ in range(len(self.solved) + 1):
                new = substitute(e, self.solved)
                if new is e:
                    break
                e = new
            return e

        outputs = [final(self.names[v.var]) for v in self.map.dims]
        conditions = [Constraint(final(e), b) for e, b in (*self.limits, *self.conditions)]
        runtimes = [
            RuntimeVariable(v.var, v.interval, v.producer, tuple([final(self.rename(e)) for e in v.element]), v.label)
            for v in self.map.runtimes
        ]
        free: dict[Var, None] = {}
        for e in (*outputs, *(c.expression for c in conditions), *(e for v in runtimes for e in v.element)):
            for v in e.variables:
                if v not in self.inputs and not any(v is r.var for r in runtimes):
                    free[v] = None
        new = {v: usual("s", n) for n, v in enumerate(free)}
        m = build(
            [Variable(v, self.ranges[v]) for v in self.inputs],
            [substitute(e, new) for e in outputs],
            [Variable(new[v], self.ranges[v]) for v in free],
            [v._replace(element=tuple([substitute(e, new) for e in v.element])) for v in runtimes],
            [Constraint(substitute(e, new), b) for e, b in conditions],
            self.map.is_known_empty,
        )
        return tidy_map(m).remove_unused()


def _connected(results: list[Expr], unknowns: dict[Var, int]) -> list[list[int]]:
    """The results' numbers in groups that share unknowns, each group in order."""
    groups: list[tuple[set[Var], list[int]]] = []
    for k, e in enumerate(results):
        mine = {v for v in e.variables if v in unknowns}
        members = [k]
        apart: list[tuple[set[Var], list[int]]] = []
        for variables, others in groups:
            if variables & mine:
                mine |= variables
                members = others + members
            else:
                apart.append((variables, others))
        groups = [*apart, (mine, sorted(members))]
    return sorted((members for _, members in groups), key=lambda g: g[0])


def invert(m: IndexingMap, box: Sequence[int | Interval] | None = None) -> IndexingMap:
    """The inverse relation: from an index i of the results' space to every d with m(d) = i.

    `box` is the results' space (a size n stands for [0, n - 1]); by default what the results can reach. The inverse's
    dimensions are the results of `m`, its results the dimensions of `m`; what i does not determine is a range variable,
    what m cannot reach a constraint. Runtime variables stay.

    >>> from indexing import parse_map
    >>> m = parse_map("(d0, d1)[s0] -> (d0 * 2 + 1, s0), domain: d0 in [0, 3], d1 in [0, 4], s0 in [0, 5]")
    >>> print(invert(m, [10, 6]))
    (d0, d1)[s0] -> ((d0 - 1) floordiv 2, s0), domain: d0 in [1, 7], d1 in [0, 5], s0 in [0, 4], (d0 - 1) mod 2 in [0, 0]
    """
    if m.unknown is not None:
        return m
    if box is None:
        spans = tuple([m.bounds(e) for e in m.results])
    else:
        spans = tuple([b if isinstance(b, Interval) else Interval(0, b - 1) for b in box])
    key = (m.spelling, spans)
    done = _MEMO.get(key)
    if done is None:
        system = _System(m, spans)
        system.set_up()
        system.solve()
        done = _MEMO.keep(key, system.answer())
    return done


_MEMO: Memo[Any, IndexingMap] = Memo(1 << 15)


def input_to_output(op: Op, input: int = 0) -> tuple[MapSet, ...]:
    """For each result, the maps from an index of operand `input` to the result's elements that depend on it.

    They are the exact inverses of the maps that `output_to_input` gives. Raises IndexError for an operand that the op does
    not have.
    """
    if not 0 <= input < len(op.operands):
        raise IndexError(f"{op.name} has {len(op.operands)} operands, no operand {input}")
    answers: list[MapSet] = []
    for output in range(len(op.results)):
        found = reads_of(op, output)
        if isinstance(found, Declined):
            answers.append(MapSet([IndexingMap((), (), unknown=found)]))
            continue
        # Of a tuple, one element is read, as the result is.
        operand = op.operands[input] if isinstance(op.operands[input].type, TensorType) else op.results[output]
        shape = operand.shape
        answers.append(MapSet([invert(tidy_map(m.remove_unused()), shape) for m in found[input]]))
    return tuple(answers)
