"""To isl, sympy, LaTeX and HTML, and back; threads, budgets, pickles."""

from __future__ import annotations

import pickle
import random
import re
import threading

import islpy
import pytest

from hlo import Declined
from indexing import IndexingMap, Interval, Region, Var, maximum, minimum, parse_map
from indexing.exact.from_isl import from_isl
from indexing.exact.isl import MAX_OPERATIONS, bounded, context, count, is_equal, relation
from indexing.show.display import expr_to_latex
from indexing.show.sympy_bridge import from_sympy, to_sympy
from tests.indexing.test_expr import random_expression

RELATIONS = [
    "{ [i, j] -> [i + 4 * j, floor(i / 2)] : 0 <= i < 4 and 0 <= j <= i }",
    "{ [i] -> [j] : 0 <= i < 10 and 0 <= j < 20 and i <= j <= i + 3 and (i + j) mod 3 = 1 }",
    "{ [i] -> [floor((2 * i + 1) / 3) mod 5] : 0 <= i < 40; [i] -> [i] : 45 <= i < 50 }",
    "{ [i] -> [0] : 0 <= i < 40 and i mod 4 <= 2 }",
    "{ [i] -> [] : 3 <= i < 9 }",
    "{ [] -> [3] }",
]


@pytest.mark.parametrize("text", RELATIONS)
def test_isl_and_back(text: str) -> None:
    r = islpy.Map.read_from_str(context(), text)
    total = None
    for m in from_isl(r):
        total = relation(m) if total is None else total.union(relation(m))
    assert total.is_equal(r)


def test_relations_of_another_context_and_with_parameters() -> None:
    assert str(from_isl(islpy.Map("{ [i] -> [i + 1] : 0 <= i < 4 }"))) == "{(d0) -> (d0 + 1), domain: d0 in [0, 3]}"
    with pytest.raises(ValueError, match="without parameters"):
        from_isl(islpy.Map("[n] -> { [i] -> [n] : 0 <= i < 4 }"))
    with pytest.raises(ValueError, match="bounded"):
        from_isl(islpy.Map("{ [i] -> [i + 1] }"))


def test_products_and_symbolic_divisors_are_refused_by_isl() -> None:
    d0, d1 = Var("d0"), Var("d1")
    for e in (d0 * d1, d0 // d1):
        with pytest.raises(ValueError, match="isl has no"):
            IndexingMap.over([Interval(1, 4), Interval(1, 4)], [e]).to_isl()
    with pytest.raises(ValueError, match="no relation"):
        IndexingMap.unknown_because("no reason").to_isl()


def test_a_query_beyond_its_budget_is_declined_and_the_next_one_is_not() -> None:
    awkward = parse_map(
        "(d0, d1, d2) -> (((d0 * 35 + d1 * 7 + d2) floordiv 11) mod 13, (d0 * 5 + d2 * 3) mod 7),"
        " domain: d0 in [0, 99], d1 in [0, 4], d2 in [0, 6]"
    )
    answer = bounded(lambda: relation(awkward).is_injective(), operations=200)
    assert isinstance(answer, Declined)
    assert "200 operations" in answer.reason
    assert is_equal(awkward, awkward.simplify()) is True
    assert MAX_OPERATIONS < 10**8


def test_each_thread_has_its_own_context() -> None:
    region = Region.of_isl(islpy.Set.read_from_str(context(), "{ [i, j] : 0 <= i <= j < 9 }"))
    found: list[object] = []

    def ask() -> None:
        # A set that another thread made, and maps of this one's.
        m = parse_map("(d0, d1) -> (d0 + d1), domain: d0 in [0, 8], d1 in [0, 8]")
        found.append((region & Region.box([Interval(0, 3), Interval(0, 3)])).count)
        found.append(m.image(region).count)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [10] * 4 + [17] * 4  # type: ignore[type-var]
    assert count(region.to_isl()) == 45


def test_regions_and_maps_are_pickled() -> None:
    region = Region.of_isl(islpy.Set.read_from_str(context(), "{ [i, j] : 0 <= i <= j < 9 }"))
    for r in (region, Region.full([3, 4]), Region.empty(2)):
        assert pickle.loads(pickle.dumps(r)) == r
    m = parse_map("(d0)[s0]{rt0} -> (d0 + rt0, s0 mod 3), domain: d0 in [0, 3], s0 in [0, 8], rt0 in [0, 2], d0 + s0 in [0, 7]")
    assert pickle.loads(pickle.dumps(m)).spelling == m.spelling


def test_sympy_and_back() -> None:
    import sympy

    r = random.Random(11)
    for _ in range(60):
        e = random_expression(r, 4)
        assert from_sympy(to_sympy(e)) is e
        values = {v.name: r.randint(-9, 9) for v in e.variables}
        from indexing import evaluate

        numbers = {sympy.Symbol(n, integer=True): v for n, v in values.items()}
        assert int(to_sympy(e).subs(numbers)) == evaluate(e, {Var(n): v for n, v in values.items()})
    d0, t = Var("d0"), Var("T")
    for e in (d0 * t + 3, (d0 * t + d0) // t, minimum(d0, t * 4, 7), maximum(d0 % t, 2)):
        assert from_sympy(to_sympy(e)) is e
    with pytest.raises(ValueError, match="no index expression"):
        from_sympy(sympy.sin(sympy.Symbol("d0")))
    assert sympy.latex(to_sympy(d0 // 8)) == r"\left\lfloor \frac{d_{0}}{8} \right\rfloor"


def test_latex_and_html() -> None:
    d0, s0 = Var("d0"), Var("s0")
    assert expr_to_latex((d0 + 1) % 4 - 2 * (s0 // 3)) == (
        r"-2 \left\lfloor \frac{s_{0}}{3} \right\rfloor + \left(\left(d_{0} + 1\right) \bmod 4\right)"
    )
    m = parse_map("(d0)[s0] -> (d0 mod 4, s0), domain: d0 in [0, 9], s0 in [0, 3], d0 + s0 in [0, 7]")
    assert m._repr_latex_().startswith(r"$\begin{aligned}(d_{0})[s_{0}] &\mapsto (d_{0} \bmod 4, s_{0})")
    html = m._repr_html_()
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]
    assert ["constraint", "d0 + s0", "in [0, 7]"] in rows
    assert "(d0)[s0] -&gt; (d0 mod 4, s0)" in html
    assert "unknown" in IndexingMap.unknown_because("a <b>")._repr_html_()
    assert "<b>" not in IndexingMap.unknown_because("a <b>")._repr_html_()
