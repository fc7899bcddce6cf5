"""The map type: notation, evaluation, composition, simplification, equality."""

from __future__ import annotations

import itertools
import pickle
import random

import islpy
import numpy as np
import pytest

from hlo import ParseError
from indexing import IndexingMap, compose, invert, parse_expr, parse_map
from indexing.exact import isl
from indexing.exact import relation as relations
from indexing.exact.isl import is_equal

ROUND_TRIP = [
    "(d0, d1)[s0]{rt0} -> (d0, s0 + rt0), domain: d0 in [0, 9], d1 in [0, 3], s0 in [0, 3], rt0 in [0, 5], d0 + s0 in [0, 7]",
    "() -> ()",
    "(d0) -> (), domain: d0 in [-3, 4]",
    "(d0, d1) -> ((d0 - 1) floordiv 2, d1 - 4), domain: d0 in [1, 7], d1 in [4, 7], (d0 - 1) mod 2 in [0, 0]",
    "KNOWN EMPTY",
    "(th_x)[vec] -> (th_x * 4 + vec), domain: th_x in [0, 127], vec in [0, 3]",
]


@pytest.mark.parametrize("text", ROUND_TRIP)
def test_text_round_trips(text: str) -> None:
    assert str(parse_map(text)) == text
    assert str(pickle.loads(pickle.dumps(parse_map(text)))) == text


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("(d0) -> (d1), domain: d0 in [0, 1]", "undeclared variable d1; there is d0", 10),
        ("(d0) -> (d0)", "the variable d0 has no interval", 13),
        ("(d0) -> (d0 mod 0), domain: d0 in [0, 1]", "mod by 0", 17),
        ("(d0, d0) -> (), domain: d0 in [0, 1]", "listed twice", 6),
        ("(d0) -> (d0), domain: d0 in [0; 1]", "unexpected ';'", 31),
        ("(d0) -> (d0, domain: d0 in [0, 1]", "undeclared variable domain", 14),
        ("d0 -> (d0)", "expected '('", 1),
        ("(d0) -> (" + "(" * 200 + "d0" + ")" * 200 + "), domain: d0 in [0, 1]", "at most 64 parentheses", 74),
    ],
)
def test_broken_text_names_its_place(text: str, message: str, column: int) -> None:
    with pytest.raises(ParseError, match=message.replace("(", r"\(")) as caught:
        parse_map(text)
    assert caught.value.location is not None
    assert caught.value.location.column == column


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("(d0 floordiv 2) floordiv -7", "(d0 floordiv 2) floordiv -7"),
        ("d0 ceildiv 4", "-(d0 floordiv -4)"),
        ("(-d0) mod 2", "d0 mod 2"),
        ("d0 * -3 mod 4", "d0 mod 4"),
        ("-(d0 + 1) floordiv 2", "-((d0 + 1) floordiv 2)"),
        ("-d0 floordiv 2", "d0 floordiv -2"),
        ("16d0 - 2 * 3", "d0 * 16 - 6"),
        ("min(d0, 4) + max(d0, 1, 2)", "max(d0, 2) + min(d0, 4)"),
    ],
)
def test_expressions_of_the_notation(text: str, printed: str) -> None:
    e = parse_expr(text)
    assert str(e) == printed
    assert parse_expr(printed) is e


def test_what_other_versions_of_xla_print_is_read() -> None:
    text = """
      (d0, d1)[s0]{rt0} -> (d0 + s0, d1 mod 3 + rt0),
      domain:
      d0 in [0, 9],
      d1 in [0, 9],
      s0 in [0, 3],
      rt0 in [0, 1],
      d0 + s0 in [0, 7],
      is_simplified: true"""
    assert str(parse_map(text)) == (
        "(d0, d1)[s0]{rt0} -> (d0 + s0, rt0 + d1 mod 3), domain: d0 in [0, 9], d1 in [0, 9], s0 in [0, 3], rt0 in [0, 1],"
        " d0 + s0 in [0, 7]"
    )


def test_evaluates_ints_and_arrays() -> None:
    m = parse_map(
        "(d0, d1)[s0]{rt0} -> (d0 * 4 + s0, (d1 + rt0) mod 3), domain: d0 in [0, 9], d1 in [0, 9], s0 in [0, 3], rt0 in [0, 1]"
    )
    assert m.evaluate([2, 5], [3, 1]) == [11, 0]
    first, second = m.evaluate([np.arange(3), 5], [3, 1])
    assert first.tolist() == [3, 7, 11]
    assert second == 0
    assert m.holds([np.array([0, 9, 10]), 0], [3, 1]).tolist() == [True, True, False]
    with pytest.raises(ValueError, match="expected 2 dimensions and 2 symbols"):
        m.evaluate([2], [3, 1])


def test_composition_numbers_the_producers_variables_first() -> None:
    producer = parse_map(
        "(d0, d1)[s0, s1] -> (d1, d0, s1, s0), domain: d0 in [0, 49], d1 in [0, 59], s0 in [0, 69], s1 in [0, 79],"
        " d0 mod 8 in [0, 0], s0 mod 3 in [1, 1]"
    )
    consumer = parse_map("(d0)[s0] -> (d0, s0), domain: d0 in [0, 9], s0 in [0, 7], d0 + s0 in [0, 20], s0 mod 4 in [0, 0]")
    m = compose(consumer, producer)
    assert str(m) == (
        "(d0)[s0, s1, s2] -> (s2, d0, s1, s0), domain: d0 in [0, 9], s0 in [0, 69], s1 in [0, 79], s2 in [0, 7],"
        " d0 + s2 in [0, 20], d0 mod 8 in [0, 0], s0 mod 3 in [1, 1], s2 mod 4 in [0, 0]"
    )
    assert str(m.simplify()) == (
        "(d0)[s0, s1, s2] -> (s2, d0, s1, s0), domain: d0 in [0, 8], s0 in [1, 67], s1 in [0, 79], s2 in [0, 4],"
        " d0 mod 8 in [0, 0], s0 mod 3 in [1, 1], s2 mod 4 in [0, 0]"
    )
    assert is_equal(m, m.simplify())


@pytest.mark.parametrize(
    ("text", "simplified"),
    [
        ("d0 in [0, 9], s0 in [0, 9], d0 * 3 + 1 in [1, 13]", "d0 in [0, 4], s0 in [0, 9]"),
        ("d0 in [0, 9], s0 in [0, 9], -d0 + 5 in [0, 9]", "d0 in [0, 5], s0 in [0, 9]"),
        ("d0 in [0, 9], s0 in [0, 9], d0 floordiv 4 in [1, 7]", "d0 in [4, 9], s0 in [0, 9]"),
        ("d0 in [0, 5], s0 in [1, 3], d0 + s0 in [0, 20]", "d0 in [0, 5], s0 in [1, 3]"),
        ("d0 in [0, 9], s0 in [0, 7], d0 * 8 + s0 in [8, 31]", "d0 in [1, 3], s0 in [0, 7]"),
        (
            "d0 in [0, 99], s0 in [0, 0], d0 mod 4 in [1, 1], d0 mod 6 in [3, 3]",
            "d0 in [9, 93], s0 in [0, 0], d0 mod 12 in [9, 9]",
        ),
        ("d0 in [0, 9], s0 in [0, 9], d0 * 2 + s0 * 2 - 3 in [0, 7]", "d0 in [0, 5], s0 in [0, 5], d0 + s0 in [2, 5]"),
    ],
)
def test_constraints(text: str, simplified: str) -> None:
    m = parse_map(f"(d0)[s0] -> (d0, s0), domain: {text}")
    assert str(m.simplify()).split("domain: ")[1] == simplified
    assert is_equal(m, m.simplify())


@pytest.mark.parametrize("text", ["d0 mod 4 in [1, 1], d0 mod 6 in [0, 0]", "d0 + s0 in [30, 40]", "d0 mod 8 in [9, 9]"])
def test_contradictions_are_empty(text: str) -> None:
    m = parse_map(f"(d0)[s0] -> (d0, s0), domain: d0 in [0, 9], s0 in [0, 9], {text}")
    assert str(m.simplify()) == "KNOWN EMPTY"
    assert m.to_isl().is_empty()


def test_equality_is_of_relations() -> None:
    a = parse_map("(d0) -> (d0 mod 8), domain: d0 in [0, 31]")
    b = parse_map("(d0) -> (d0 - (d0 floordiv 8) * 8), domain: d0 in [0, 31]")
    c = parse_map("(d0)[s0] -> (s0), domain: d0 in [0, 31], s0 in [0, 7], (d0 - s0) mod 8 in [0, 0]")
    assert a == b == c
    assert hash(a) == hash(b) == hash(c)
    assert a != parse_map("(d0) -> (d0 mod 8), domain: d0 in [0, 30]")
    assert parse_map("(d0)[s0] -> (s0), domain: d0 in [0, 3], s0 in [0, 7]") != parse_map(
        "(d0)[s0] -> (s0), domain: d0 in [0, 3], s0 in [0, 6]"
    )


def test_to_isl_has_dims_ranges_runtimes() -> None:
    m = parse_map("(d0)[s0]{rt0} -> (s0, d0 + rt0), domain: d0 in [0, 3], s0 in [0, 1], rt0 in [0, 2]")
    want = islpy.Map("{ [d, s, r] -> [s, d + r] : 0 <= d <= 3 and 0 <= s <= 1 and 0 <= r <= 2 }", context=m.to_isl().get_ctx())
    assert m.to_isl().is_equal(want)


@pytest.mark.parametrize(
    "text",
    [
        "(d0, d1) -> (d0 * 8 + d1), domain: d0 in [0, 3], d1 in [0, 7]",
        "(d0)[s0] -> (d0 * 2 + s0 - 1), domain: d0 in [0, 3], s0 in [0, 2], d0 * 2 + s0 in [1, 7]",
        "(d0) -> (d0 floordiv 8, d0 mod 8), domain: d0 in [0, 28]",
        "(d0) -> (d0 mod 8), domain: d0 in [0, 28]",
        "(d0, d1) -> (d0 + d1, d0 - d1), domain: d0 in [0, 4], d1 in [0, 5]",
        "(d0, d1) -> (d0 * 6 + d1 * 4), domain: d0 in [0, 4], d1 in [0, 5]",
        "(d0, d1, d2) -> ((d0 * 6 + d1 * 4 + d2) floordiv 5, d2), domain: d0 in [0, 4], d1 in [0, 5], d2 in [0, 3]",
        "(d0, d1) -> (d0, 3), domain: d0 in [0, 4], d1 in [0, 5]",
        "(d0) -> (d0 floordiv 4 + d0 mod 4), domain: d0 in [0, 30]",
        "(d0){rt0} -> (d0 + rt0), domain: d0 in [0, 30], rt0 in [0, 3]",
    ],
)
def test_inverse_is_the_reversed_relation(text: str) -> None:
    m = parse_map(text)
    n = invert(m)
    table = {}
    for point in np.ndindex(*(b.size for b in m.variable_ranges.values())):
        if m.holds(point[: len(m.dims)], point[len(m.dims) :]):
            runtime = point[len(m.dims) + len(m.ranges) :]
            table.setdefault((tuple(m.evaluate(point[: len(m.dims)], point[len(m.dims) :])), runtime), set()).add(
                point[: len(m.dims)]
            )
    found = {}
    spans = list(n.variable_ranges.values())
    for shifted in np.ndindex(*(b.size for b in spans)):
        point = tuple(b.lower + int(x) for b, x in zip(spans, shifted, strict=True))
        k = len(n.dims)
        if n.holds(point[:k], point[k:]):
            found.setdefault((point[:k], point[k + len(n.ranges) :]), set()).add(tuple(n.evaluate(point[:k], point[k:])))
    assert found == table


def test_composing_maps_that_do_not_fit_raises() -> None:
    with pytest.raises(ValueError, match="expected a map with 2 dimensions"):
        compose(IndexingMap.identity([2, 3]), IndexingMap.identity([2]))

@pytest.mark.parametrize("seed", range(4))
def test_maps_told_apart_at_a_point_are_other_relations(seed: int) -> None:
    """Each two of some maps with domains cut by remainders and quotients: what a sample refutes, isl refutes too."""
    drawn = random.Random(seed)
    maps = []
    for _ in range(14):
        low, step = drawn.randrange(4), drawn.choice((1, 2, 3))
        result = drawn.choice((f"(d0 - {low}) floordiv {step}", "d0", f"s0 + d0 * {step}", str(low)))
        ends = f"d0 in [{low}, {drawn.randrange(low, 10)}], d1 in [0, {drawn.choice((3, 4))}], s0 in [0, 3]"
        held = f"(d0 - {drawn.randrange(2)}) mod {step} in [0, 0]"
        maps.append(parse_map(f"(d0, d1)[s0] -> ({result}, s0 + d1), domain: {ends}, {held}"))
    told = 0
    for a, b in itertools.combinations(maps, 2):
        x, y = a.rescaled, b.rescaled
        if relations._differ_at_a_sample(x, y):
            told += 1
            assert isl.is_equal(x, y) is False, f"{a}\n{b}"
    assert told > 30
