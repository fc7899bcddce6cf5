"""Every rewrite is proved by isl: the rules are caught in the act on random expressions and maps, and what they did is proved."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from indexing import IndexingMap, Interval, Var, clear_caches, invert, map_simplifier, parse_map, transform
from indexing.errors import ProofError
from indexing.exact.isl import is_equal, prove_same
from indexing.expressions import simplifier
from indexing.expressions.bounds import Bounds
from indexing.expressions.simplifier import DIVISION_RULES, MODULO_RULES, SUM_RULES, Simplifier
from indexing.expressions.terms import Expr, FloorDiv, divide, mod
from tests.indexing.test_expr import VARS, random_expression

Case = tuple[str, Expr, Expr, dict[Var, Interval]]


def random_ranges(r: random.Random) -> dict[Var, Interval]:
    ranges = {}
    for v in VARS:
        lower = r.choice([0, 0, 0, 0, -3, 2])
        ranges[v] = Interval(lower, lower + r.choice([0, 1, 2, 3, 7, 11, 31]))
    return ranges


def caught(monkeypatch: pytest.MonkeyPatch, seeds: range) -> list[Case]:
    """(rule, before, after, ranges) of every rule that fired while random expressions were simplified."""
    cases: list[Case] = []

    def watch(name: str, rule: Callable[..., Any], before: Callable[..., Expr]) -> Callable[..., Any]:
        def watched(s: Simplifier, *arguments: Any) -> Any:
            after = rule(s, *arguments)
            if after is not None:
                cases.append((name, before(*arguments), after, dict(s.bounds.ranges)))
            return after

        return watched

    for table, before in (
        ("DIVISION_RULES", lambda n, c: divide("//", n, c)),
        ("MODULO_RULES", lambda n, c: divide("%", n, c)),
        ("SUM_RULES", lambda e: e),
    ):
        rules = getattr(simplifier, table)
        monkeypatch.setattr(simplifier, table, tuple(watch(f.__name__, f, before) for f in rules))
    for seed in seeds:
        r = random.Random(seed)
        ranges = random_ranges(r)
        e = random_expression(r, 4)
        # Taken apart and put together again, as chains of reshapes do.
        a, b = r.choice([2, 3, 4, 6]), r.choice([2, 3, 5, 8])
        together = (e // (a * b)) * (a * b) + (e // b) % a * b + e % b
        shifted = (e + 5 * a + 1) // a - r.randint(4, 6)
        for x in (e, together, shifted, (e + 7) % (a * b) // b):
            Simplifier(ranges)(x)
    return cases


def test_every_expression_rule_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = caught(monkeypatch, range(250))
    proved: Counter[str] = Counter()
    seen = set()
    for name, before, after, ranges in cases:
        if proved[name] >= 150 or (before, after) in seen:
            continue
        seen.add((before, after))
        maps = [IndexingMap.over([ranges[v] for v in VARS], [e]) for e in (before, after)]
        answer = is_equal(*maps)
        assert answer is True, f"{name}: {before} -> {after} over {ranges}"
        proved[name] += 1
    for rule in (*DIVISION_RULES, *MODULO_RULES, *SUM_RULES):
        name = rule.__name__
        assert proved[name] >= 5, f"{name} fired {proved[name]} times"
        assert "->" in (rule.__doc__ or ""), name


def random_map(r: random.Random) -> IndexingMap:
    """A map of two dimensions and two ranges with constraints of all kinds."""
    names = {"d0": None, "d1": None, "s0": None, "s1": None}
    variables = [Var(n) for n in names]
    to_range = dict(zip(VARS, (variables[0], variables[2], variables[3]), strict=True))

    def expression(depth: int) -> Expr:
        from indexing import substitute

        return substitute(random_expression(r, depth), to_range)

    dims = [Interval(0, r.choice([0, 3, 7, 9])) for _ in range(2)]
    ranges = [Interval(0, r.choice([1, 3, 5, 7])) for _ in range(2)]
    m = IndexingMap.over(dims, [expression(3) for _ in range(r.randint(1, 2))], ranges)
    constraints = {}
    for _ in range(r.randint(0, 3)):
        kind = r.randint(0, 3)
        if kind == 0:
            c = r.choice([2, 3, 4, 6])
            e = mod(r.choice([1, -1]) * r.choice(variables) + r.randint(-3, 3), c)
            b = Interval(*[r.randrange(c)] * 2)
        elif kind == 1:
            e, b = variables[2] - r.choice([1, 2]) * variables[0] - r.choice([0, 1]) * variables[3], Interval(0, 0)
        else:
            e = expression(2)
            span = Bounds(m.variable_ranges)(e)
            middle = (span.lower + span.upper) // 2
            b = Interval(middle - r.randint(0, 6), middle + r.randint(0, 6))
        constraints[e] = b
    return m.restrict(constraints)


@pytest.mark.parametrize("seed", range(8))
def test_random_maps_keep_their_relation(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(25):
        m = random_map(r)
        for other in (m.simplify(), m.rescale_ranges(), m.simplify().remove_unused()):
            if other.is_known_empty:
                assert m.to_isl().is_empty(), f"{m} is not empty"
            else:
                assert is_equal(m, other) is True, f"{m}\n became {other}"
        assert m == m.rescale_ranges()
        assert hash(m) == hash(m.rescale_ranges())


@pytest.mark.parametrize("seed", range(8))
def test_random_inverses_are_exact(seed: int) -> None:
    from indexing.exact.isl import full_relation

    r = random.Random(100 + seed)
    for _ in range(12):
        m = random_map(r)
        back = invert(m)
        a, b = full_relation(m).reverse(), full_relation(back)
        assert a.is_equal(b), f"{m}\n inverted is {back}"


def test_every_range_rule_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    fired: Counter[str] = Counter()

    def watch(rule: Callable[[IndexingMap], IndexingMap | None]) -> Callable[[IndexingMap], IndexingMap | None]:
        def watched(m: IndexingMap) -> IndexingMap | None:
            after = rule(m)
            if after is not None:
                fired[rule.__name__] += 1
                assert is_equal(m, after) is True, f"{rule.__name__}: {m}\n became {after}"
            return after

        return watched

    rules = transform.RANGE_RULES
    monkeypatch.setattr(transform, "RANGE_RULES", tuple(map(watch, rules)))
    for text in (
        "(d0)[s0, s1] -> (s0 + s1, s0), domain: d0 in [0, 3], s0 in [0, 6], s1 in [0, 10], s0 - d0 in [2, 2]",
        "(d0)[s0] -> (s0 floordiv 6, d0), domain: d0 in [0, 3], s0 in [0, 26], s0 mod 6 in [3, 3]",
        "(d0)[s0] -> (s0 floordiv 6, d0 + s0 floordiv 4), domain: d0 in [0, 3], s0 in [5, 26]",
        "(d0)[s0] -> (s0 mod 4 + d0), domain: d0 in [0, 3], s0 in [2, 9]",
        "(d0)[s0, s1] -> ((s0 + s1 * 8) floordiv 3, (s0 + s1 * 8) * 2 + d0), domain: d0 in [0, 3], s0 in [2, 9], s1 in [1, 5]",
    ):
        parse_map(text).rescale_ranges()
    assert set(fired) == {rule.__name__ for rule in rules}


def test_the_debug_level_proves_and_catches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "prove")
    m = parse_map("(d0) -> (d0 mod 8), domain: d0 in [0, 30]")
    clear_caches()
    assert m.simplify() is m.simplify()
    with pytest.raises(ProofError, match="not the same relation"):
        prove_same(m, parse_map("(d0) -> (d0 mod 8), domain: d0 in [0, 31]"))
    # A rule that drops the remainder is caught when the map is simplified.
    clear_caches()
    monkeypatch.setattr(simplifier, "MODULO_RULES", (lambda s, n, c: n,))
    with pytest.raises(ProofError):
        parse_map("(d0) -> (d0 mod 8), domain: d0 in [0, 29]").simplify()
    clear_caches()


def test_a_spent_budget_leaves_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplifier, "BUDGET", 5)
    clear_caches()
    for seed in range(60):
        r = random.Random(seed)
        ranges, e = random_ranges(r), random_expression(r, 6)
        s = Simplifier(ranges)(e)
        maps = [IndexingMap.over([ranges[v] for v in VARS], [x]) for x in (e, s)]
        assert is_equal(*maps) is True
    clear_caches()


def test_passes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_simplifier, "PASSES", 1)
    clear_caches()
    text = "(d0)[s0] -> (d0, s0), domain: d0 in [0, 99], s0 in [0, 99], d0 - s0 in [1, 3], s0 * 3 - d0 in [5, 9]"
    m = parse_map(text)
    assert is_equal(m, m.simplify()) is True
    clear_caches()


def test_a_division_atom_is_what_it_says() -> None:
    assert isinstance(divide("//", Var("d0"), 4), FloorDiv)
