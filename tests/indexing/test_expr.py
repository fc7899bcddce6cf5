"""Expressions: building, printing, evaluating, bounds, simplification."""

from __future__ import annotations

import copy
import pickle
import random

import numpy as np
import pytest

from indexing.expr import Const, Expr, Interval, Var, evaluate, interval, maximum, minimum, simplify, substitute

d0, d1, d2 = (Var(f"d{i}") for i in range(3))
VARS = (d0, d1, d2)


def box(*uppers: int) -> dict[Var, Interval]:
    return {v: Interval(0, u) for v, u in zip(VARS, uppers, strict=False)}


def test_built_alike_is_the_same_object() -> None:
    assert d0 * 4 + d1 is d1 + 4 * d0
    assert (d0 + d1) // 3 is (d1 + d0) // 3
    assert copy.deepcopy(d0 % 3) is d0 % 3
    e = minimum((d0 * d1 + 3) // 7 % 5, maximum(d2, -2) // d1)
    assert pickle.loads(pickle.dumps(e)) is e


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (d0 * 8 + d1, "d0 * 8 + d1"),
        (16 - d1, "-d1 + 16"),
        ((d1 - 3) // 7, "(d1 - 3) floordiv 7"),
        ((d1 - 3) % 7, "(d1 - 3) mod 7"),
        ((d1 % 2) * 4 + d2, "d2 + (d1 mod 2) * 4"),
        (d0 % 2 * 2 + d1 // 4, "d1 floordiv 4 + (d0 mod 2) * 2"),
        (-11 * d0 - d1 + 109, "d0 * -11 - d1 + 109"),
        (-(d0 // 2), "-(d0 floordiv 2)"),
        (d0 * d1 - 1, "d0 * d1 - 1"),
        (minimum(d0, 7), "min(d0, 7)"),
        (d0 // d1, "d0 floordiv d1"),
        (-3 // d1, "(-3) floordiv d1"),
    ],
)
def test_text(e: Expr, text: str) -> None:
    assert str(e) == text


def test_negative_and_zero_divisors() -> None:
    for x in range(-9, 10):
        for c in (-4, -1, 1, 3):
            assert evaluate(d0 // c, {d0: x}) == x // c
            assert evaluate(d0 % c, {d0: x}) == x % c
    with pytest.raises(ZeroDivisionError):
        d0 // 0
    with pytest.raises(ZeroDivisionError):
        d0 % 0


def test_symbolic_sizes_cancel() -> None:
    t, size = Var("t0"), Var("T")
    assert (t * size + size) // size is t + 1
    assert t * size + size - t * size is size
    assert (t * size) % size is Const(0)


@pytest.mark.parametrize(
    ("e", "ranges", "text"),
    [
        # The document's four examples.
        (d0 + d1 // 16, box(6, 14), "d0"),
        (d1 % 16, box(6, 14), "d1"),
        ((100 * d0 + 10 * d1 + d2) // 100, box(9, 9, 9), "d0"),
        ((100 * d0 + 10 * d1 + d2) % 100 // 10, box(9, 9, 9), "d1"),
        ((16 * d0 + 4 * d1 + d2) // 8, box(9, 9, 9), "d0 * 2 + (d1 * 4 + d2) floordiv 8"),
        ((16 * d0 + 4 * d1 + d2) % 8, box(9, 9, 9), "(d1 * 4 + d2) mod 8"),
        (-((-11 * d0 - d1 + 109) // 11) + 9, box(9, 10), "d0"),
        # What reshapes and their chains need.
        ((128 * d0 + d1) // 128, box(50, 127), "d0"),
        ((128 * d0 + d1) // 256, box(50, 127), "d0 floordiv 2"),
        (d0 * 8 + d1 - 8 * ((d0 * 8 + d1) // 8), {}, "d1 mod 8"),
        (4 * (d0 // 32) + d0 // 8 % 4, {}, "d0 floordiv 8"),
        (d0 % 32 // 8, {}, "(d0 floordiv 8) mod 4"),
        ((d0 // 3 + d1) // 5, {}, "(d0 + d1 * 3) floordiv 15"),
        ((d0 % 12 + d1) % 4, {}, "(d0 + d1) mod 4"),
        (minimum(d0 * 8 + 8, 100), box(3), "d0 * 8 + 8"),
        (maximum(d0 - 3, 0), box(3), "0"),
    ],
)
def test_simplified(e: Expr, ranges: dict[Var, Interval], text: str) -> None:
    assert str(simplify(e, ranges)) == text


def test_substitution_is_simultaneous() -> None:
    assert substitute(d0 - d1, {d0: d1, d1: d0}) is d1 - d0


def random_expression(r: random.Random, depth: int) -> Expr:
    """A random expression over d0, d1, d2 with small divisors."""
    if depth == 0 or r.random() < 0.2:
        return r.choice([d0, d1, d2, Const(r.randint(-9, 9))])
    kind = r.randint(0, 6)
    a = random_expression(r, depth - 1)
    if kind <= 2:
        return a + random_expression(r, depth - 1) * r.choice([1, 1, -1, 2, 3, 4, 6, 8, 12, 16])
    if kind == 3:
        return a // r.choice([2, 3, 4, 6, 8, 12, 16])
    if kind == 4:
        return a % r.choice([2, 3, 4, 6, 8, 12, 16])
    if kind == 5:
        return a * r.choice([2, 3, 4, 8, -1])
    return r.choice([minimum, maximum])(a, random_expression(r, depth - 1))


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions_keep_their_value_and_bounds(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(100):
        ranges = {}
        for v in VARS:
            lower = r.choice([0, 0, 0, -3, 2])
            ranges[v] = Interval(lower, lower + r.randint(0, 11))
        e = random_expression(r, 5)
        s = simplify(e, ranges)
        grid = np.meshgrid(*[np.arange(b.lower, b.upper + 1) for b in ranges.values()], indexing="ij")
        env = dict(zip(VARS, grid, strict=True))
        want, got = (np.broadcast_to(evaluate(x, env), grid[0].shape) for x in (e, s))
        assert (want == got).all(), f"{e} became {s} over {ranges}"
        for x in (e, s):
            b = interval(x, ranges)
            assert b.covers(Interval(int(want.min()), int(want.max()))), f"{x} leaves {b}"
        assert simplify(s, ranges) is s, f"{s} is not a fixpoint"
