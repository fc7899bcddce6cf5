"""Maps with `/` and `%` in each form that XLA's maps have them in: read, printed, simplified, each with the same meaning.

The forms are those that XLA's tests of index maps go through, each with numbers of its own here. Meaning is by enumeration: all
points of the domain, against the text's arithmetic in Python, where division rounds down and a remainder has the divisor's sign.
"""

from __future__ import annotations

import itertools
import re

import pytest

from indexing import IndexingMap, parse_map
from indexing.notation import format_map

# (form, domain, results, what they are in Python where that reads differently)
MAPS: dict[str, tuple[str, str, str]] = {
    "quotient": ("d0 in [0, 40]", "d0 / 7", ""),
    "remainder": ("d0 in [0, 40]", "d0 % 7", ""),
    "of negative numbers": ("d0 in [-20, 20]", "d0 / 6, d0 % 6", ""),
    "by a negative number": ("s0 in [-20, 20]", "s0 / -3", ""),
    "quotient by a negative number": ("s0 in [0, 60]", "(s0 / 2) / -5", ""),
    "by one": ("d0 in [-4, 9]", "(d0 - 5) % 1, d0 / 1", ""),
    "by a variable": ("s0 in [0, 9], s1 in [1, 4]", "s0 / s1, s0 % s1", ""),
    "by what is known at run time": ("d0 in [0, 9], rt0 in [1, 3], rt1 in [0, 1]", "d0 / rt0 + rt1", ""),
    "in a sum": ("d0 in [0, 9], d1 in [-4, 4]", "d0 % 2 + d1, d1 - d0 / 3", ""),
    "of a sum": ("d0 in [0, 9], s0 in [0, 9]", "((s0 + d0) + d0) / 2, (d0 + s0 + 1) % 4", ""),
    "times a number": ("d0 in [0, 30]", "(d0 % 4) * 3, (d0 / 4) * 12", ""),
    "a minus before the whole": ("d0 in [0, 30]", "-(d0 / 7) + 4", "-(d0 // 7) + 4"),
    "a minus before the number": ("d0 in [0, 30]", "(-d0) % 3, -d0 / 4", "(-d0) % 3, (-d0) // 4"),
    "a minus before a sum": ("d0 in [0, 5], d1 in [0, 5]", "-((d0 * -7 - d1 + 40) / 7) + 9", "-((d0 * -7 - d1 + 40) // 7) + 9"),
    "the whole but for parts": ("d0 in [0, 3], s0 in [0, 20]", "d0 - (s0 / 5) * 5 + s0", ""),
    "parts of other multiples": ("d0 in [0, 3], s0 in [0, 20]", "d0 - (s0 / 5) * 30 + s0 * 8", ""),
    "parts of a sum": ("d0 in [0, 3], s0 in [0, 20]", "2 + d0 - ((s0 + 2) / 5) * 5 + s0", ""),
    "less than the divisor": ("d0 in [0, 5], d1 in [0, 11]", "d0 + d1 / 12, d1 % 12", ""),
    "digits": (
        "d0 in [0, 7], d1 in [0, 7], d2 in [0, 7]",
        "(d0 * 64 + d1 * 8 + d2) / 64, ((d0 * 64 + d1 * 8 + d2) % 64) / 8",
        "",
    ),
    "some digits": ("d0 in [0, 6], d1 in [0, 6], d2 in [0, 6]", "(d0 * 18 + d1 * 3 + d2) / 9, (d0 * 18 + d1 * 3 + d2) % 9", ""),
    "a position and back": ("s0 in [0, 99]", "(s0 * 32) % 171 + ((s0 * 32) / 171) * 171", ""),
    "a position and back, otherwise": ("s0 in [0, 99]", "(s0 * 32) % 171 + ((s0 * 16) / 171) * 171", ""),
    "rows of a tile": ("d0 in [0, 31], d1 in [0, 15]", "(d0 % 4) * 16 + d1 + (d0 / 4) * 64", ""),
    "a quotient in a remainder": (
        "d0 in [0, 15], d1 in [0, 40]",
        "((d1 * 2 + d0 / 8) % 3) * 32 + (d0 % 8) * 4 + ((d1 * 16 + d0) / 24) * 96",
        "",
    ),
    "a bitcast and back": (
        "d0 in [0, 40], d1 in [0, 15]",
        "(d0 / 12) * 384 + (((d0 * 2 + d1 / 8) / 3) % 8) * 48 + ((d0 * 2 + d1 / 8) % 3) * 16 + (d1 % 8) * 2",
        "",
    ),
    "offsets of tiles": ("s0 in [0, 500]", "-(s0 / 36) + (s0 * 8 + 289) / 288", "-(s0 // 36) + (s0 * 8 + 289) // 288"),
    "negative offsets of tiles": (
        "s0 in [0, 500]",
        "-(s0 / 35) + (s0 * 2 - 4479) / 70 + 65",
        "-(s0 // 35) + (s0 * 2 - 4479) // 70 + 65",
    ),
    "one quotient of another": ("s0 in [0, 300]", "s0 - ((s0 / 3) / 5) * 15 + (s0 / 15) * 15", ""),
    "a quotient of sums of quotients": ("s0 in [0, 40], s1 in [0, 20]", "(s0 / 3 + s1 / 3) / 4, (s0 * 2 + s1 / 8) / 5", ""),
    "a common factor": ("s0 in [0, 90]", "(s0 * 6 + 9) / 21, (s0 * 6 + 9) % 21", ""),
    "always minus one": ("s0 in [0, 4]", "(s0 * 8 - 120) / 128", ""),
    "a factor out of a remainder": ("s0 in [0, 8], s1 in [0, 3], s2 in [0, 9]", "(s0 * 4096 + s1 + s2 * 4) % 1000", ""),
    "differences of quotients": ("s0 in [0, 1], s1 in [0, 90]", "(s0 * 12 - (s1 / 3) / 2 + (s1 / 6) * 2) / 3", ""),
    "in a condition": ("d0 in [0, 60], d0 / 7 in [3, 5], d0 % 2 in [1, 1]", "d0", ""),
    "in a condition, negative": ("d0 in [0, 3], s0 in [-40, 40], s0 / -3 in [-6, -2], (s0 + 1) % 5 in [2, 3]", "d0, s0 / 2", ""),
    "in a condition, of two variables": (
        "d0 in [0, 7], s0 in [0, 7], (d0 * s0) % 4 in [0, 0], d0 % 8 + 5 in [6, 10]",
        "s0 * 2, (d0 + d0 % 3) / 3",
        "",
    ),
    "beyond 32 bits": ("d0 in [5368709110, 5368709125]", "d0 / 536870912, d0 % 4294967296", ""),
    "names of its own": (
        "th_x in [0, 9], bl_x in [0, 3], vector_elem in [0, 1], (th_x * bl_x) % 4 in [0, 0]",
        "(th_x * 2 + vector_elem) / 3, bl_x",
        "",
    ),
}  # fmt: skip


def points(domain: str) -> tuple[list[str], list[tuple[int, ...]]]:
    """The variables of a domain, and their values that keep its conditions."""
    lines = re.findall(r"([^,\[][^\[]*) in \[(-?\d+), (-?\d+)\]", domain)
    names = [e.strip() for e, _, _ in lines if re.fullmatch(r"\w+", e.strip())]
    ranges = [range(int(a), int(b) + 1) for e, a, b in lines if e.strip() in names]
    conditions = [(e.strip().replace("/", "//"), int(a), int(b)) for e, a, b in lines if e.strip() not in names]
    every = itertools.product(*ranges)
    return names, [p for p in every if all(a <= eval(e, dict(zip(names, p, strict=True))) <= b for e, a, b in conditions)]  # noqa: S307


def head(names: list[str]) -> str:
    """The variables' lists: dimensions, then ranges in brackets, then what is known at run time in braces."""
    kinds = {"s": ("[", "]"), "vector_elem": ("[", "]"), "rt": ("{", "}")}
    lists: dict[tuple[str, str], list[str]] = {("(", ")"): [], ("[", "]"): [], ("{", "}"): []}
    for n in names:
        lists[kinds.get(n.rstrip("0123456789"), ("(", ")"))].append(n)
    return "".join(f"{a}{', '.join(own)}{b}" for (a, b), own in lists.items() if own or a == "(")


def values(m: IndexingMap, names: list[str], at: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The map's results at points of its domain."""
    order = [v.name for v in m.variable_ranges]
    assert len(order) == len(names) == len(set(names) & set(order))
    given = [[dict(zip(names, p, strict=True))[n] for n in order] for p in at]
    dims = len(m.dims)
    assert all(m.holds(p[:dims], p[dims:]) for p in given)
    return [tuple(int(r) for r in m.evaluate(p[:dims], p[dims:])) for p in given]


@pytest.mark.parametrize("form", MAPS)
def test_meaning_and_round_trip(form: str) -> None:
    domain, results, python = MAPS[form]
    names, at = points(domain)
    assert len(at) > 3
    text = f"{head(names)} -> ({results}), domain: {domain}"
    read = parse_map(text)
    code = compile(f"({python or results.replace('/', '//')},)", form, "eval")
    wanted = [eval(code, dict(zip(names, p, strict=True))) for p in at]  # noqa: S307
    assert values(read, names, at) == wanted
    words = parse_map(text.replace("/", "floordiv").replace("%", "mod"))
    assert read == words and str(read) == str(words) and not re.search("[/%]", str(read))
    signs = format_map(read, signs=True)
    assert "floordiv" not in signs and "mod" not in signs
    again = parse_map(signs)
    assert again == read and values(again, names, at) == wanted
    simple = parse_map(format_map(read.simplify(), signs=True))
    if {v.name for v in simple.variable_ranges} == set(names):
        assert values(simple, names, at) == wanted


def test_points_outside_the_conditions_are_outside() -> None:
    m = parse_map("(d0)[s0] -> (d0), domain: d0 in [0, 60], s0 in [-40, 40], d0 / 7 in [3, 5], s0 / -3 in [-6, -2]")
    for d0, s0 in itertools.product(range(61), range(-40, 41)):
        assert bool(m.holds([d0], [s0])) == (3 <= d0 // 7 <= 5 and -6 <= s0 // -3 <= -2)
    for d0, s0 in itertools.product(range(-3, 64), range(-43, 44)):
        assert bool(m.simplify().holds([d0], [s0])) == (0 <= d0 <= 60 and 3 <= d0 // 7 <= 5 and -6 <= s0 // -3 <= -2)
