"""Tables of cases: the fast ones have every pair of values, and are fewer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.pairs import covering, fast_cover


def pairs(cases: list[tuple[Any, ...]], strength: int) -> set[tuple[Any, ...]]:
    return {p for case in cases for p in itertools.combinations(enumerate(case), strength)}


@pytest.mark.parametrize("strength", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(2, 3, 4), (5, 5, 2, 2), (4, 1, 3), (3, 3, 3)])
def test_what_parameters_are_together_stays(sizes: tuple[int, ...], strength: int) -> None:
    cases = list(itertools.product(*map(range, sizes)))
    kept = [cases[k] for k in covering(cases, strength)]
    assert pairs(kept, strength) == pairs(cases, strength)
    assert len(kept) <= 1.7 * max(len(list(itertools.product(*map(range, s)))) for s in itertools.combinations(sizes, strength))


def test_none_of_the_kept_is_needless() -> None:
    cases = list(itertools.product(range(4), range(3), range(3), range(2)))
    kept = covering(cases)
    for k in kept:
        assert pairs([cases[j] for j in kept if j != k], 2) < pairs(cases, 2)


def test_tables_that_are_no_products() -> None:
    cases = [("a", 1, "x"), ("a", 1, "y"), ("b", 2, "x"), ("b", 1, "x"), ("b", 2, "y")]
    kept = [cases[k] for k in covering(cases)]
    assert pairs(kept, 2) == pairs(cases, 2)
    assert covering([]) == [] and covering([("one", 1)]) == [0]
    with pytest.raises(ValueError, match="equal length"):
        covering([(1, 2), (1, 2, 3)])


def test_the_others_are_slow_and_none_is_lost() -> None:
    cases = list(itertools.product("abc", range(3), range(3)))
    made = fast_cover(cases)
    assert [c.values for c in made] == cases
    slow = [k for k, c in enumerate(made) if c.marks]
    assert all(m.name == "slow" for c in made for m in c.marks)
    assert sorted([*slow, *covering(cases)]) == list(range(27)) and len(slow) >= 15


def test_what_is_to_be_covered_can_be_part_of_a_case() -> None:
    made = fast_cover([("a", 1, 10), ("a", 1, 20), ("b", 2, 30)], 1, lambda c: (c[0], c[1] % 2))
    assert [bool(c.marks) for c in made] == [False, True, False]
