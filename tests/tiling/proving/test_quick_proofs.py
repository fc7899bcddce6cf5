"""What interval arithmetic proves isl proves as well: on the memory obligations of right, spoiled and foreign schedules."""

from __future__ import annotations

import importlib
import random
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

import hlo
import tiling
from codegen.supports import supports
from hlo.access import Condition
from hlo.types import element_type
from indexing.expr import EVERYTHING, Bounds, Interval, Var, as_expr, evaluate, maximum, minimum
from tests.codegen.contract.test_transposed_convolutions import CASES
from tests.random_programs import random_program
from tests.tiling.proving.test_prove_enumeration import spoiled
from tiling import Buffer, Machine, Schedule, Scope
from tiling.loops.buffers import make_buffer
from tiling.loops.domains import inside
from tiling.loops.domains.inside import linear_parts
from tiling.loops.domains.iterations import Access, Domain, Kind
from tiling.proving.obligations import prove_memory
from tiling.proving.proof import Verdict
from tiling.proving.quick_proofs import covers, stays_inside, tasks_apart, writes_once

prove_module = importlib.import_module("tiling.proving.obligations")
FLOAT = element_type("f32")
AVX2 = Machine(vector_bytes=32, vector_registers=16, cores=4, l2_bytes=256 << 10)


def verdicts(schedule: Schedule) -> Counter[tuple[str, Verdict]]:
    proof = prove_memory(schedule)
    return Counter((o.name, o.verdict) for o in proof.obligations)


def isl_alone(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, Verdict]]:
    def nothing(*arguments: Any, **options: Any) -> bool:
        return False

    with monkeypatch.context() as m:
        for name in ("covers", "stays_inside", "tasks_apart", "writes_once"):
            m.setattr(prove_module, name, nothing)
        return verdicts(schedule)


def schedules(seed: int) -> list[Schedule]:
    module, _ = random_program(seed)
    return [f.schedule for p in tiling.plan(module, machine=AVX2, supports=supports).nested() for f in p.fusions]


@pytest.mark.parametrize("seed", range(200, 212))
def test_intervals_never_prove_what_isl_refutes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(seed)
    for schedule in schedules(seed):
        for tried in (schedule, *(spoiled(schedule, generator) for _ in range(4))):
            assert verdicts(tried) == isl_alone(tried, monkeypatch), tried


@pytest.mark.parametrize("name", ["three", "different", "first", "space"])
def test_cut_tiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (fusion,) = tiling.plan(hlo.parse(CASES[name].text), machine=AVX2, supports=supports).fusions
    generator = random.Random(name)
    for tried in (fusion.schedule, spoiled(fusion.schedule, generator), spoiled(fusion.schedule, generator)):
        assert verdicts(tried) == isl_alone(tried, monkeypatch), tried


def test_most_is_decided_without_isl(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples' kind of kernels: rows, tiles that are cut, scratch that is read back."""
    asked = []

    class Counted(prove_module.Questions):  # type: ignore[misc, name-defined]
        def ask(self, question: Any) -> Any:
            asked.append(question)
            return super().ask(question)

    monkeypatch.setattr(prove_module, "Questions", Counted)
    text = """func.func @main(%x: tensor<1000x700xf32>, %b: tensor<700xf32>) -> tensor<1000x700xf32> {
      %i = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %m = stablehlo.reduce(%x init: %i) applies stablehlo.maximum across dimensions = [1]
        : (tensor<1000x700xf32>, tensor<f32>) -> tensor<1000xf32>
      %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<1000xf32>) -> tensor<1000x700xf32>
      %bb = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<700xf32>) -> tensor<1000x700xf32>
      %d = stablehlo.subtract %x, %mb : tensor<1000x700xf32>
      %e = stablehlo.multiply %d, %bb : tensor<1000x700xf32>
      return %e : tensor<1000x700xf32> }"""
    module = hlo.parse(text)
    (pin,) = tiling.plan(module, machine=AVX2, supports=supports).pins()
    pin = tiling.Pin(pin.ops, (7, 700))  # 1000 is no multiple of 7
    (fusion,) = tiling.plan(module, machine=AVX2, supports=supports, pins=[pin]).fusions
    proof = prove_memory(fusion.schedule)
    assert proof.holds and len(proof.obligations) > 8
    assert len(asked) <= 1  # only whether tasks meet


@pytest.mark.parametrize("seed", range(40))
def test_bounds_by_conditions_cover_what_there_is(seed: int) -> None:
    """`stays_inside` says yes only where each point of the domain is inside."""
    r = random.Random(seed)
    variables = [(Var(f"v{k}"), Interval(0, r.randrange(1, 6))) for k in range(3)]

    def linear() -> Any:
        e = as_expr(r.randrange(-9, 10))
        for v, _ in variables:
            e = e + v * r.choice([-3, -1, 0, 1, 2, 3])
        return e

    for _ in range(60):
        held = [Condition(linear(), *r.choice([(0, 9), (EVERYTHING.lower, 4), (-3, EVERYTHING.upper)])) for _ in range(2)]
        domain, e = Domain(tuple(variables), tuple(held)), linear()
        spans = [range(b.lower, b.upper + 1) for _, b in variables]
        points = [dict(zip([v for v, _ in variables], at, strict=True)) for at in product(*spans)]
        inside = [p for p in points if all(h.lower <= value(h.expression, p) <= h.upper for h in held)]
        values = [value(e, p) for p in inside] or [0]
        low, high = min(values), max(values)
        for lower, upper in ((low, high), (low + 1, high), (low, high - 1), (-99, 99)):
            if stays_inside(domain, e, lower, upper):
                assert not inside or lower <= low <= high <= upper


def value(e: Any, at: dict[Var, int]) -> int:
    return int(evaluate(as_expr(e), at))


# ---------------------------------------------------------------- rules, against what enumeration finds


def points(d: Domain) -> list[dict[Var, int]]:
    every = [
        dict(zip([v for v, _ in d.variables], at, strict=True))
        for at in product(*(range(b.lower, b.upper + 1) for _, b in d.variables))
    ]
    return [p for p in every if all(c.lower <= value(c.expression, p) <= c.upper for c in d.held)]


def buffer(*shape: int) -> Buffer:
    return make_buffer("b", Scope.RESULT, FLOAT, shape, shape, (0,) * len(shape))


def access(
    at: list[Any], d: Domain, b: Buffer, kind: Kind = Kind.WRITE, order: tuple[int, int, int, int] = (0, 0, 0, 0)
) -> Access:
    return Access(kind, b, tuple(map(as_expr, at)), d, order, None, None, "here")


def is_once(writes: list[Access], shape: tuple[int, ...]) -> bool:
    found = Counter(tuple(value(e, p) for e in w.at) for w in writes for p in points(w.domain))
    return found == Counter(dict.fromkeys(product(*map(range, shape)), 1))


ROW, COLUMN, TILE = Var("i"), Var("j"), Var("t")


def residues(n: int, d: int, rows: int, cut: bool = True, columns: int = 4) -> list[Access]:
    """Rows of every residue modulo d, in tiles of `rows` of them: the last tile is cut at row n."""
    tiles = -(-n // (d * rows))
    found = []
    for r in range(d):
        row = ROW * d + TILE * (d * rows) + r
        held = (
            tuple(Condition(p, 0, 99) for p in linear_parts(minimum(n - 1 - TILE * (d * rows) - r, d * rows - 1) // d - ROW))
            if cut
            else ()
        )
        domain = Domain(
            ((TILE, Interval(0, tiles - 1)), (ROW, Interval(0, rows - 1)), (COLUMN, Interval(0, columns - 1))), held, (), 1
        )
        found.append(access([row, COLUMN], domain, buffer(n, columns)))
    return found


@pytest.mark.parametrize(("n", "d", "rows"), [(22, 3, 2), (24, 3, 2), (7, 2, 1), (9, 2, 3), (13, 4, 2), (5, 5, 1)])
def test_residues_are_written_once(n: int, d: int, rows: int) -> None:
    made = residues(n, d, rows)
    assert is_once(made, (n, 4)) and writes_once(made, made[0].buffer)


def moved(w: Access, k: int) -> Access:
    return replace(w, at=(w.at[0] + k, *w.at[1:]))


def without_condition(w: Access) -> Access:
    return replace(w, domain=replace(w.domain, held=w.domain.held[:-1]))


SPOILED: dict[str, Any] = {
    "a store is shifted by one": lambda w: [moved(w[0], 1), *w[1:]],
    "all stores are shifted by one": lambda w: [moved(x, 1) for x in w],
    "a store is shifted by the stride": lambda w: [*w[:-1], moved(w[-1], 3)],
    "two residues are equal": lambda w: [w[0], moved(w[0], 0), *w[2:]],
    "a bound is dropped": lambda w: [*w[:-1], without_condition(w[-1])],
    "a residue is missing": lambda w: w[1:],
    "a residue is written twice": lambda w: [*w, w[0]],
    "a condition cuts too much": lambda w: [
        replace(w[0], domain=w[0].domain.with_guard((Condition(15 - w[0].at[0], 0, 99),), ())),
        *w[1:],
    ],
    "a condition is of something else": lambda w: [
        replace(w[0], domain=w[0].domain.with_guard((Condition(COLUMN - 1, 0, 99),), ())),
        *w[1:],
    ],
    "a row is stored to a diagonal": lambda w: [replace(x, at=(x.at[0], ROW)) for x in w],
}


@pytest.mark.parametrize("name", SPOILED)
def test_spoiled_residues_are_not_written_once(name: str) -> None:
    made = SPOILED[name](residues(22, 3, 2))
    assert not is_once(made, (22, 4))
    assert not writes_once(made, buffer(22, 4))


def test_a_diagonal_is_not_written_once() -> None:
    """A loop that counts two dimensions reaches their diagonal alone: the second one was taken for a loop of its own."""
    d = Domain(((ROW, Interval(0, 2)),), ())
    assert not writes_once([access([ROW, ROW], d, buffer(3, 3))], buffer(3, 3))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_said_to_be_written_once_is(seed: int) -> None:
    r = random.Random(seed)
    agreed = 0
    for _ in range(150):
        n, d, rows = r.randrange(1, 12), r.randrange(1, 4), r.randrange(1, 4)
        made = residues(n, d, rows, columns=r.randrange(1, 3))
        for _ in range(r.randrange(3)):
            k = r.randrange(len(made))
            w = made[k]
            c = Condition(
                r.choice([-2, -1, 1, 2, 3]) * (w.at[0] if r.random() < 0.7 else w.at[1]) + r.randrange(-9, 12),
                *r.choice([(0, 99), (-3, 4)]),
            )
            made[k] = r.choice([
                moved(w, r.choice([-d, -1, 1, d])), replace(w, domain=w.domain.with_guard((c,), ())),
                replace(w, at=(w.at[0], w.at[0])), replace(w, at=tuple(n - 1 - e for e in w.at[:1]) + w.at[1:]),
                replace(w, domain=replace(w.domain, held=w.domain.held[1:])),
            ])  # fmt: skip
            made = made if r.random() < 0.9 else [*made, made[k]]
        if writes_once(made, made[0].buffer):
            agreed += 1
            assert is_once(made, made[0].buffer.shape)
    assert agreed > 20


@pytest.mark.parametrize("seed", range(5))
def test_tasks_that_are_said_to_be_apart_are(seed: int) -> None:
    r = random.Random(seed)
    t, u = Var("t0"), Var("t1")
    agreed = 0
    for _ in range(200):
        spans = ((t, Interval(0, r.randrange(4))), (u, Interval(0, r.randrange(4))), (ROW, Interval(0, r.randrange(4))))
        d = Domain(spans, (), (), 2)
        leads = [t * r.randrange(-5, 6) + u * r.choice([0, 0, 1, 5]), u * r.randrange(4)]
        made = [access([x + ROW * r.randrange(3) + r.randrange(3) for x in leads], d, buffer(99, 99)) for _ in range(2)]
        if r.random() < 0.3:
            made[1] = replace(made[1], at=(made[1].at[0] + t, made[1].at[1]))
        if tasks_apart(made):
            agreed += 1
            touched: dict[tuple[int, ...], set[tuple[int, int]]] = {}
            for a in made:
                for p in points(d):
                    touched.setdefault(tuple(value(e, p) for e in a.at), set()).add((p[t], p[u]))
            assert all(len(tasks) == 1 for tasks in touched.values())
    assert agreed > 20


def test_tasks_that_meet_by_one_row_are_not_apart() -> None:
    d = Domain(((TILE, Interval(0, 3)), (ROW, Interval(0, 5))), (), (), 1)
    assert tasks_apart([access([TILE * 6 + ROW], d, buffer(24))])
    assert not tasks_apart([access([TILE * 6 + ROW], d, buffer(24)), access([TILE * 6 + ROW + 1], d, buffer(24), Kind.READ)])
    assert not tasks_apart([access([TILE * 5 + ROW], d, buffer(24))])
    assert not tasks_apart([access([ROW], d, buffer(24))])


X, Y = ROW, COLUMN


@pytest.mark.parametrize(("digits", "reads", "holds"), [
    ((X // 12, X // 4 % 3, X % 4), (Y // 12, Y % 3, Y % 4), True),
    ((X // 12, X // 4 % 3, X % 4), (Y // 12, Y % 4, Y % 4), False),  # a digit that is none
    ((X // 12, X // 4 % 2, X % 4), (Y // 12, Y % 2, Y % 4), False),  # some are written several times, others not at all
    ((X // 12, X // 3 % 4, X % 4), (Y // 12, Y % 4, Y % 4), False),  # digits that overlap
    ((X // 12, X // 4 % 3, X % 4), (Y // 11, Y % 3, Y % 4), False),  # one too far
])  # fmt: skip
def test_digits_that_are_written_cover_digits_that_are_read(digits: Any, reads: Any, holds: bool) -> None:
    b = buffer(5, 5, 5)
    w = access(list(digits), Domain(((ROW, Interval(0, 23)),), ()), b)
    a = access(list(reads), Domain(((COLUMN, Interval(0, 23)),), ()), b, Kind.READ, (0, 1, 0, 0))
    assert covers(w, a, apart=False) is holds
    written = {tuple(value(e, p) for e in w.at) for p in points(w.domain)}
    assert not holds or {tuple(value(e, p) for e in a.at) for p in points(a.domain)} <= written


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_a_bound_hold_where_it_holds(seed: int) -> None:
    r = random.Random(seed)
    names = [Var(f"v{k}") for k in range(3)]

    def some(depth: int) -> Any:
        e = as_expr(r.randrange(-9, 10))
        for v in names:
            e = e + v * r.randrange(-3, 4)
        if depth and r.random() < 0.8:
            inner = some(depth - 1)
            e = e + r.choice([-1, 1]) * r.choice([inner // r.randrange(2, 5), minimum(inner, some(depth - 1)), maximum(inner, 3)])
        return e

    taken_apart = 0
    for _ in range(15):
        e = some(2)
        parts = linear_parts(e)
        taken_apart += parts != [e]
        for at in product(range(-2, 4), repeat=3):
            p = dict(zip(names, at, strict=True))
            assert (value(e, p) >= 0) is all(value(x, p) >= 0 for x in parts)
        domain = Domain(tuple((v, Interval(-2, 3)) for v in names), tuple(Condition(x, 0, 99) for x in linear_parts(some(1))))
        values = [value(e, p) for p in points(domain)] or [0]
        for k in (0, 1, 2):
            if stays_inside(domain, e, min(values) + k, max(values)) or stays_inside(domain, e, min(values), max(values) - k):
                assert k == 0 or not points(domain)
    assert taken_apart > 3


@pytest.mark.parametrize("seed", [5091, 5298])
def test_addresses_stand_for_positions_inside_only(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Element [1, -1] of a buffer of one element lies at the address of element [0, 0]."""
    generator = random.Random(seed)
    for schedule in schedules(seed):
        for tried in [spoiled(schedule, generator) for _ in range(6)] + [
            spoiled(spoiled(schedule, generator), generator) for _ in range(2)
        ]:
            assert verdicts(tried) == isl_alone(tried, monkeypatch), tried


@pytest.mark.parametrize("seed", range(5))
def test_groups_of_one_condition_that_fails_are_known_on_its_other_side(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(100):
        ends = [sorted((r.randrange(-3, 9), r.randrange(-3, 9))) for _ in range(2)]
        groups = tuple((Condition(ROW + COLUMN * r.randrange(-1, 2), *e),) for e in ends[: r.randrange(3)])
        d = Domain(((ROW, Interval(0, 5)), (COLUMN, Interval(0, 3))), (), groups)
        outside = lambda p, c: not c.lower <= value(c.expression, p) <= c.upper  # noqa: E731
        for p in points(d):
            if all(outside(p, c) for (c,) in groups):
                assert not any(outside(p, c) for c in d.known)


@pytest.mark.parametrize("seed", range(40))
def test_digits_of_one_number(seed: int) -> None:
    """Sums of n and its quotients by divisors of each other: no value is outside of what their digits tell, by enumeration."""
    rng = random.Random(seed)
    most, divisors, step = rng.randint(5, 400), [], 1
    for _ in range(rng.randint(2, 3)):
        step *= rng.randint(2, 7)
        divisors.append(step)
    q, r, other = Var("q"), Var("r"), Var("other")
    n = q + r if rng.random() < 0.5 else q
    ranges = {q: Interval(0, most), r: Interval(0, 6), other: Interval(0, 3)}
    held = [Condition(most - n, 0, most)]
    factors = [rng.randint(-60, 60) for _ in divisors]
    e = n * rng.randint(-3, 3) + other * rng.randint(-2, 2) + rng.randint(-9, 9)
    for d, k in zip(divisors, factors, strict=True):
        e = e + n // d * k
    rs = range(7 if r in n.variables else 1)
    points = [(x, y, z) for x in range(most + 1) for y in rs for z in range(4) if x + y <= most]
    values = [int(evaluate(e, {q: x, r: y, other: z})) for x, y, z in points]
    bounds = Bounds(ranges)
    low, high = min(values), max(values)
    for lower, upper in ((low, high - 1), (low + 1, high)):
        assert not inside.stays_inside(bounds, held, e, lower, upper)
    found = inside._by_digits(bounds, held, e)
    assert found is not None or 0 in factors
    if found is not None:
        assert found.lower <= low and high <= found.upper
        assert inside.stays_inside(bounds, held, e, found.lower, found.upper)


def test_windows_of_an_image_put_back_are_inside() -> None:
    """Swin's windows of 7 x 7: isl took minutes for what the digits tell at once."""
    k0, k = Var("k0"), Var("k")
    n = k0 + k
    e = n + n // 7 * 49 - n // 49 * 385 + n // 392 * 336
    bounds = Bounds({k0: Interval(0, 2816), k: Interval(0, 351)})
    assert inside.stays_inside(bounds, [Condition(3135 - n, 0, 3135)], e, 0, 3135)
    assert not inside.stays_inside(bounds, [Condition(3135 - n, 0, 3135)], e, 0, 3134)
    assert not inside.stays_inside(bounds, [], e, 0, 3135)
