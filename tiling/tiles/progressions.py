"""The progression that an index expression runs through on a tile: size, stride and what they ask of the tile's sizes.

    e = constant + sum of k_i * a_i    on a tile    ->    {first + j * stride : 0 <= j < size}

An addend is a dimension of the tile (its size is the tile's size there), a range variable (its size is a number), or a
division or remainder of such. Addends are joined from the smallest step up: k_2 * [0, n_2) + k_1 * [0, n_1) has no gaps
when k_1 divides k_2 and k_2 <= k_1 * n_1. Where that depends on tile sizes, the sizes for which it holds are the constraints:
ones, then one dimension that is cut, then whole dimensions, then ones.

Tiles are counted from the tensor's origin: a tile starts at a multiple of its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from indexing.expr import Const, Expr, FloorDiv, Interval, Mod, Var, as_expr, from_terms
from indexing.expressions.bounds import Bounds
from indexing.spans import Span, connected, progression
from tiling.tiles.constraints import TileConstraints

__all__ = ["NoProgression", "Progression", "Written", "progression_of"]


class NoProgression(Exception):
    """Carries the reason why an expression has no size and stride."""


@dataclass(frozen=True)
class Written:
    """An expression and the text that shows how it came about (multiplied out it would say less)."""

    expression: Expr
    text: str

    @staticmethod
    def of(e: Expr | int) -> Written:
        e = as_expr(e)
        return Written(e, str(e))

    def operand(self) -> str:
        """The text as an operand of a product or division."""
        return self.text if isinstance(self.expression, (Const, Var)) else f"({self.text})"


@dataclass(frozen=True)
class Progression:
    """{first + shift + j * stride : 0 <= j < size}, `first` the expression's value at the tile's origin.

    `shift` is how far from `first` the least number lies: below it for what descends, else mostly zero. `least` and `most`
    bound the size over all tile sizes.
    """

    size: Written
    stride: Written
    shift: Expr
    constraints: TileConstraints
    least: int
    most: int


@dataclass(frozen=True)
class _Addend:
    step: int  # positive
    size: Written
    least: int
    most: int
    constraints: TileConstraints
    start: int = 0  # the least number, counted from the value at the tile's origin


POINT = Progression(Written.of(1), Written.of(0), Const(0), TileConstraints(), 1, 1)


def progression_of(e: Expr, dims: Mapping[Var, Interval], ranges: Mapping[Var, Interval]) -> Progression:
    """The progression of `e`, dimension variables standing for tile sizes in the answer.

    `dims` and `ranges` give the variables' intervals; all others are constant on a tile. Raises NoProgression with the reason.
    """
    inside = dims.keys() | ranges.keys()
    moving = [(a, k) for a, k in e.terms if any(v in inside for v in a.variables)]
    if not moving:
        return POINT
    if all(k < 0 for _, k in moving) or all(k > 0 for _, k in moving):
        sign = 1 if moving[0][1] > 0 else -1
        found = _joined(_addends([(a, abs(k)) for a, k in moving], dims, ranges))
        return found if sign > 0 else _mirrored(found)
    for group in _components(moving, set(inside)):
        if len({k > 0 for _, k in group}) > 1:
            raise NoProgression(f"{from_terms(0, dict(group))} rises and falls with the same variable")
    # Each descending addend starts at its last value.
    addends = _addends([(a, abs(k)) for a, k in moving], dims, ranges)
    shift: Expr = Const(0)
    for part in _addends([(a, -k) for a, k in moving if k < 0], dims, ranges):
        shift = shift - (part.size.expression - 1) * part.step - part.start
    rising = _addends([(a, k) for a, k in moving if k > 0], dims, ranges)
    shift = shift + sum(part.start for part in rising)
    found = _joined(addends)
    return Progression(found.size, found.stride, shift, found.constraints, found.least, found.most)


def _mirrored(p: Progression) -> Progression:
    """The same numbers below zero: they start at -(size - 1) * stride."""
    shift = (1 - p.size.expression) * p.stride.expression - p.shift
    return Progression(p.size, p.stride, shift, p.constraints, p.least, p.most)


# ---------------------------------------------------------------- addends


def _addends(terms: Sequence[tuple[Expr, int]], dims: Mapping[Var, Interval], ranges: Mapping[Var, Interval]) -> list[_Addend]:
    found: list[_Addend] = []
    for group in _components(terms, set(dims) | set(ranges)):
        variables = {v for a, _ in group for v in a.variables}
        if variables <= ranges.keys():
            found.append(_fixed(group, ranges))
        elif len(group) > 1:
            shared = ", ".join(str(a) for a, _ in group)
            raise NoProgression(f"the addends {shared} move together")
        else:
            found.append(_moving(*group[0], dims, ranges))
    return found


def _components(terms: Sequence[tuple[Expr, int]], inside: set[Var]) -> list[list[tuple[Expr, int]]]:
    """The addends in groups without a common variable."""
    return [[terms[k] for k in group] for group in connected([a for a, _ in terms], inside)]


def _fixed(group: Sequence[tuple[Expr, int]], ranges: Mapping[Var, Interval]) -> _Addend:
    """Addends of range variables alone: the same numbers on every tile."""
    e = from_terms(0, dict(group))
    span = progression(e, {v: Span.of(*ranges[v]) for v in e.variables})
    if span is None:
        raise NoProgression(f"{e} runs through no progression")
    size = len(range(span.lower, span.upper + 1, span.step))
    first = Bounds({v: Interval(b.lower, b.lower) for v, b in ranges.items()})(e).lower
    return _Addend(max(span.step, 1), Written.of(size), size, size, TileConstraints(), span.lower - first)


def _moving(atom: Expr, k: int, dims: Mapping[Var, Interval], ranges: Mapping[Var, Interval]) -> _Addend:
    if isinstance(atom, Var):
        return _Addend(k, Written.of(atom), 1, dims[atom].size, TileConstraints())
    if not isinstance(atom, (FloorDiv, Mod)):
        raise NoProgression(f"{atom} is no sum of divisions and remainders")
    c = atom.divisor
    if not isinstance(c, int):
        raise NoProgression(f"{atom} divides by an expression")
    run, constraints, most = _whole_run(atom, dims, ranges)
    zero = Interval(0, 0)
    length = run.expression
    aligned = TileConstraints.of({c % length: zero}) | TileConstraints.of({length % c: zero})
    if isinstance(length, Const):
        aligned = TileConstraints() if aligned.holds({}) else TileConstraints(())
    if isinstance(atom, FloorDiv):
        size, largest = Written.of((length + (c - 1)) // c), -(-most // c)
        text = f"({run.text} + {c - 1}) floordiv {c}"
    else:
        size, largest = Written.of(length - (length - 1) // c * c), min(most, c)
        text = f"{run.text} - (({run.text} - 1) floordiv {c}) * {c}"
    if not isinstance(length, Const):
        size = Written(size.expression, text)
    return _Addend(k, size, 1, largest, constraints & aligned)


def _whole_run(
    atom: FloorDiv | Mod, dims: Mapping[Var, Interval], ranges: Mapping[Var, Interval]
) -> tuple[Written, TileConstraints, int]:
    """(length, constraints, greatest length) of the run of consecutive numbers that is divided.

    The constraints see to it that a run starts at a multiple of its length.
    """
    e = atom.numerator
    inside = dims.keys() | ranges.keys()
    if e.constant or any(not any(v in inside for v in a.variables) for a, _ in e.terms):
        raise NoProgression(f"{atom}: where a tile begins is no multiple of its size")
    parts = _chained(_addends(_ascending(atom), dims, ranges), atom)
    total = TileConstraints(())
    for j in range(len(parts)):
        conditions: dict[Expr, Interval] = {}
        for p in parts[:j]:
            conditions[p.size.expression] = Interval(1, 1)
        if j:
            conditions[parts[j].most % parts[j].size.expression] = Interval(0, 0)
        for p in parts[j + 1 :]:
            conditions[p.size.expression] = Interval(p.most, p.most)
        total = total | TileConstraints.of(conditions)
    for p in parts:
        total = total & p.constraints
    return _product(parts), _settled(total), prod(p.most for p in parts)


def _ascending(atom: FloorDiv | Mod) -> list[tuple[Expr, int]]:
    """The addends of what is divided; under a remainder a negative step counts as the positive one that is congruent."""
    c = atom.divisor
    terms = [(a, k % c if isinstance(atom, Mod) and isinstance(c, int) else k) for a, k in atom.numerator.terms]
    if any(k < 0 for _, k in terms):
        raise NoProgression(f"{atom}: the divided expression descends")
    return terms


def _chained(addends: Sequence[_Addend], atom: FloorDiv | Mod) -> list[_Addend]:
    """The addends, greatest step first, each step one run of all that follow.

    Under a remainder steps count modulo the divisor.
    """
    modulus = atom.divisor if isinstance(atom, Mod) else 0

    def same(a: int, b: int) -> bool:
        return (a - b) % modulus == 0 if isinstance(modulus, int) and modulus else a == b

    if any(p.start for p in addends):
        raise NoProgression(f"{atom}: the divided expression does not start at its least value")
    waiting = [p for p in addends if p.most > 1] or list(addends[:1])
    chain: list[_Addend] = []
    run = 1
    while waiting:
        found = next((p for p in waiting if same(p.step, run)), None)
        if found is None:
            what = f"a stride of {min(p.step for p in waiting)}" if not chain else "gaps or overlaps"
            raise NoProgression(f"{atom}: the divided expression has {what}")
        waiting.remove(found)
        chain.insert(0, found)
        run *= found.most
    return chain


# ---------------------------------------------------------------- joining


def _chains(outer: _Addend, inner: _Addend) -> bool:
    """A step of `outer` is one run of all of `inner`."""
    return outer.step == inner.step * inner.most


def _settled(c: TileConstraints) -> TileConstraints:
    """Conditions on numbers are decided."""
    return c.simplify({})


def _joined(addends: Sequence[_Addend]) -> Progression:
    constraints = TileConstraints()
    for a in addends:
        constraints = constraints & a.constraints
    start = Const(sum(a.start for a in addends))
    live = [a for a in addends if a.most > 1] if len(addends) > 1 else list(addends)
    live = live or list(addends[:1])
    # Numbers before tile sizes among equal steps: a run of fixed length closes gaps for certain.
    live.sort(key=lambda a: (a.step, a.least != a.most))
    merged: list[_Addend] = []
    for a in live:
        below = merged[-1] if merged else None
        if below is not None and a.step % below.step == 0 and a.step // below.step <= below.least:
            k = a.step // below.step
            size = Written.of(below.size.expression + (a.size.expression - 1) * k)
            merged[-1] = _Addend(
                below.step, size, below.least + (a.least - 1) * k, below.most + (a.most - 1) * k, TileConstraints()
            )
        else:
            merged.append(a)
    if len(merged) == 1:
        (a,) = merged
        return Progression(a.size, Written.of(a.step), start, constraints, a.least, a.most)
    parts = merged[::-1]
    return Progression(_product(parts), _stride(parts), start, constraints & _patterns(parts), 1, prod(p.most for p in parts))


def _patterns(parts: Sequence[_Addend]) -> TileConstraints:
    """The sizes for which the sum of the parts, greatest step first, has one stride: ones, one part cut, whole parts, ones."""
    total = TileConstraints(())
    for cut in range(len(parts)):
        for whole in range(len(parts) - cut):
            conditions: dict[Expr, Interval] = {}
            for k, p in enumerate(parts):
                if k < cut or k > cut + whole:
                    conditions[p.size.expression] = Interval(1, 1)
                elif k > cut:
                    conditions[p.size.expression] = Interval(p.most, p.most)
            chain = parts[cut : cut + whole + 1]
            if all(_chains(a, b) for a, b in pairwise(chain)):
                total = total | TileConstraints.of(conditions)
    return _settled(total)


def _product(parts: Sequence[_Addend]) -> Written:
    expression: Expr = Const(1)
    number, texts = 1, []
    for p in parts:
        expression = expression * p.size.expression
        if isinstance(p.size.expression, Const):
            number *= p.size.expression.value
        else:
            texts.append(p.size.operand())
    if len(texts) == 1 and number == 1:
        (only,) = [p.size for p in parts if not isinstance(p.size.expression, Const)]
        return only
    if number != 1 or not texts:
        texts.append(str(number))
    text = texts[0]
    for k, t in enumerate(texts[1:]):
        text = f"({text}) * {t}" if k else f"{text} * {t}"
    return Written(expression, text)


def _stride(parts: Sequence[_Addend]) -> Written:
    """The step of the last part, greatest step first, whose size is not 1.

    one(n) = (most + 1 - n) floordiv most is 1 for n = 1 and 0 for 1 < n <= most, so that
    s_k = one(n_k) * s_(k-1) + (1 - one(n_k)) * step_k.
    """
    expression: Expr = Const(0)
    text = ""
    for p in parts:
        if isinstance(p.size.expression, Const):
            expression, text = Const(p.step), str(p.step)
            continue
        n = p.size
        one = (p.most + 1 - n.expression) // p.most
        one_text = f"(-{n.operand()} + {p.most + 1}) floordiv {p.most}"
        expression = one * expression + (1 - one) * p.step
        this = f"-({one_text}) + 1" if p.step == 1 else f"(-({one_text}) + 1) * {p.step}"
        if not text:
            text = this
        elif p.step == 1:
            text = f"({one_text}) * ({text}) - {one_text} + 1"
        else:
            text = f"({one_text}) * ({text}) + {this}"
    return Written(expression, text)
