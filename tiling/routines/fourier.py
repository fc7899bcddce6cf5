"""Discrete Fourier transforms as loops: sixteen lines side by side, each vector instruction a step of all of them.

    fft x  ->  for each axis: lines are loaded into lanes, passed through butterflies of 2 to 31 terms, and stored

A line is what is transformed: n elements, a fixed step apart. Lines that follow each other in memory are turned on the way in and
out. Too long a line, or too few, is cut in two: n = a b, element j b + i in row j and column i. Columns are transformed, each
element is turned by its angle, rows are transformed and stored across. Real lines of even length are complex ones of half the
length, whose halves are told apart afterwards. In-place transforms of the other axes follow in the result's memory.

A line whose length has a larger prime factor becomes a cyclic convolution (Bluestein's form): with c[j] the root of unity of
order 2 n to the power j j, and 2 j k = j j + k k - (k - j) (k - j),

    X[k] = c[k] * sum over j of (x[j] c[j]) * conj c[k - j]

which is two transforms of a length m >= 2 n - 1 that has small factors, between products with tables.

The program's op becomes one with tables of the roots of unity as further operands (`with_roots`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isqrt, prod
from typing import Any

import numpy as np

from hlo.builder import Builder
from hlo.errors import Declined
from hlo.module import DenseArray, Op, Value
from hlo.registry import OpDefinition
from hlo.types import ElementType, TensorType
from indexing.expr import Const, Expr, Interval, Var, as_expr, minimum, simplify
from tiling.elements.build import Builder as ElementsOf
from tiling.loops.buffers import make_buffer
from tiling.loops.ir import Block2D, Buffer, Loop, Phase, Schedule, Scope, Transform
from tiling.loops.names import Names

__all__ = ["butterflies", "convolved", "line_roots", "lower_fft", "pass_roots", "with_roots"]

PRIMES = (8, 4, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)
LONGEST = 4096  # complex elements of a line in one piece: sixteen of them fill a core's own cache
LONGEST_IN_TWO = 1 << 20
CHEAP = frozenset((1, 2, 3, 4, 5, 8))  # terms of the butterflies of a convolution
FEW, SHORT = 8, 256  # fewer lines than that are cut in two, unless they are shorter than that

Table = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Grid:
    """Where lines lie: line (o, i) starts at o * outer + i * lane, its elements are `step` apart."""

    outer: int
    lane: int
    step: int


@dataclass(frozen=True)
class _Pass:
    """Lines of `size` elements, `outer` times `lanes` of them; `reads` and `writes` are "source", "work" or "target"."""

    form: str
    size: int
    outer: int
    lanes: int
    source: _Grid
    target: _Grid
    sign: int
    scale: float
    reads: str
    writes: str
    twist: int = 0  # elements of the whole line, of which these are the columns; 0 for no cut

    @property
    def length(self) -> int:
        """Elements of the complex transform."""
        return self.size // 2 if self.is_halved else self.size

    @property
    def is_halved(self) -> bool:
        return self.form != "complex" and self.size % 2 == 0

    def roots(self) -> Table:
        """All roots of unity that the pass reads: its butterflies', then those that tell halves apart, then the cut's angles."""
        tables = [line_roots(self.length, self.sign)]
        if self.is_halved and self.length > 2:
            tables.append(_roots(np.arange((self.length + 1) // 2), self.size, self.sign))
        if self.twist:
            columns, rows = np.arange(self.lanes), np.arange(self.size)
            tables.append(_roots(np.outer(rows, columns).reshape(-1), self.twist, self.sign))
            tables.append(np.ones(_lanes("complex128"), complex))  # read beside the last columns, used by none
        return np.concatenate(tables)


def _roots(numbers: Table, n: int, sign: int) -> Table:
    found: Table = np.exp(sign * 2j * np.pi * (numbers % n) / n)
    return found


@cache
def butterflies(n: int) -> tuple[int, ...] | None:
    """The terms of each pass of a transform of n elements, or None where n has a large prime factor.

    >>> butterflies(64), butterflies(1000), butterflies(37)
    ((8, 8), (8, 5, 5, 5), None)
    """
    found = []
    for p in PRIMES:
        while n % p == 0:
            found.append(p)
            n //= p
    if n != 1:
        return None
    if 2 in found and 8 in found:
        found.remove(2)
        found.remove(8)
        found = [*(p for p in found if p == 8), 4, 4, *(p for p in found if p != 8)]
    return tuple(found) or (1,)


def pass_roots(n: int, sign: int) -> Table:
    """The factors after each pass but the last: for part p of it the powers 1, 2, … of the root of order (what is left of n)."""
    tables: list[Table] = [np.zeros(0, complex)]
    for terms in (butterflies(n) or ())[:-1]:
        parts = n // terms
        tables.append(_roots(np.outer(np.arange(parts), np.arange(1, terms)).reshape(-1), n, sign))
        n = parts
    return np.concatenate(tables)


@cache
def convolved(n: int) -> int:
    """The length of the cyclic convolution that a transform of n elements becomes; n itself where that has small factors.

    >>> convolved(37), convolved(1021), convolved(1000)
    (75, 2048, 1000)
    """
    if butterflies(n) is not None:
        return n
    m = 2 * n - 1
    while not set(butterflies(m) or (m,)) <= CHEAP:
        m += 1
    return m


@cache
def line_roots(n: int, sign: int) -> Table:
    """What a transform of one line reads: the factors after its passes; of a convolved one those of m elements forwards, the n
    factors of what goes in and comes out, and the m numbers that both transforms of the convolution meet between."""
    m = convolved(n)
    if m == n:
        return pass_roots(n, sign)
    places = np.arange(n)
    turns = np.exp(sign * 1j * np.pi * (places * places % (2 * n)) / n)
    around = np.zeros(m, complex)
    around[:n] = turns.conj()
    around[m - n + 1 :] = turns[:0:-1].conj()
    return np.concatenate([pass_roots(m, -1), turns, np.fft.fft(around) / m])


def _lanes(dtype: str) -> int:
    return 16 if dtype in ("float32", "complex64") else 8


# ---------------------------------------------------------------- what passes there are


def _passes(op: Op) -> list[_Pass] | None:
    """The passes of a transform, or None for one that is left to the library."""
    kind, lengths = op.attr("fft_type"), [int(n) for n in op.attr("fft_length")]
    x, y = op.operands[0].tensor, op.results[0].tensor
    if not (x.is_static and y.is_static and isinstance(x.element, ElementType)) or 0 in (x.size_elems, y.size_elems):
        return None
    if x.element.name not in ("f32", "f64", "complex<f32>", "complex<f64>"):
        return None
    if kind in ("FFT", "IFFT") and list(x.static_shape[x.rank - len(lengths) :]) != lengths:
        return None  # a hint that does not fit
    sign = 1 if kind in ("IFFT", "IRFFT") else -1
    halved = y.static_shape if kind == "RFFT" else x.static_shape
    rank = len(halved)
    axes = list(range(rank - len(lengths), rank))
    found: list[_Pass] = []
    if kind == "IRFFT":
        for a in axes[:-1]:
            found += _along(halved, a, sign, "work" if found else "source", "work")
        found.append(_real("from half", lengths[-1], prod(y.static_shape[:-1]), "work" if found else "source"))
    elif kind == "RFFT":
        found.append(_real("to half", lengths[-1], prod(x.static_shape[:-1]), "source"))
        for a in axes[-2::-1]:
            found += _along(halved, a, sign, "target", "target")
    else:
        for a in axes[::-1]:
            found += _along(halved, a, sign, "target" if found else "source", "target")
    longest = LONGEST if len(lengths) == 1 else 2 * LONGEST
    return found if all(_fits(p.length, longest) for p in found) else None


def _fits(n: int, longest: int) -> bool:
    """Whether a line of n elements has its room: a convolved one is twice as long inside, and still faster than the library's."""
    m = convolved(n)
    return m <= (longest if m == n else 2 * LONGEST)


def _along(shape: Sequence[int], axis: int, sign: int, reads: str, writes: str) -> list[_Pass]:
    """Complex transforms along one axis."""
    n, inner = shape[axis], prod(shape[axis + 1 :])
    outer = prod(shape[:axis])
    scale = 1.0 / n if sign > 0 else 1.0
    if inner > 1:
        grid = _Grid(n * inner, 1, inner)
        return [_Pass("complex", n, outer, inner, grid, grid, sign, scale, reads, writes)]
    cut = _cut(n)
    if cut is not None and reads == "source" and writes == "target" and (n > LONGEST or (outer < FEW and n >= SHORT)):
        a, b = cut
        columns, rows, across = _Grid(n, 1, b), _Grid(n, b, 1), _Grid(n, 1, a)
        return [
            _Pass("complex", a, outer, b, columns, columns, sign, 1.0, reads, "work", twist=n),
            _Pass("complex", b, outer, a, rows, across, sign, scale, "work", writes),
        ]
    grid = _Grid(0, n, 1)
    return [_Pass("complex", n, 1, outer, grid, grid, sign, scale, reads, writes)]


def _cut(n: int) -> tuple[int, int] | None:
    """n = a * b with a and b as near to each other as may be, whole vectors of columns first."""
    if n > LONGEST_IN_TWO:
        return None
    pairs = [(a, n // a) for a in _divisors(n) if _fits(a, LONGEST) and _fits(n // a, LONGEST)]
    best = min(pairs, key=lambda p: (max(p), p[1] % 16 != 0), default=None)
    return best if best is not None and min(best) >= 8 else None


def _divisors(n: int) -> list[int]:
    """Those but 1 and n, in order."""
    small = [a for a in range(2, isqrt(n) + 1) if n % a == 0]
    return [*small, *(n // a for a in reversed(small) if a * a != n)]


def _real(form: str, n: int, lines: int, reads: str) -> _Pass:
    halves, whole = _Grid(0, n // 2 + 1, 1), _Grid(0, n, 1)
    half = n // 2 if n % 2 == 0 else n
    if form == "to half":
        return _Pass(form, n, 1, lines, whole, halves, -1, 1.0, reads, "target")
    return _Pass(form, n, 1, lines, halves, whole, 1, 1.0 / half, reads, "target")


# ---------------------------------------------------------------- the op with its tables


def _definition(plain: OpDefinition) -> OpDefinition:
    by_lines = Declined("transformed in lines side by side")
    return replace(plain, name="in_lines.fft", access=by_lines, semantics=by_lines)


def with_roots(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """The transform as an op of its own that is given its tables; None for one that is left to the library."""
    passes = _passes(op)
    if passes is None:
        return None
    dtype = np.result_type(op.operands[0].tensor.dtype, np.complex64)
    known: dict[bytes, Value] = {}
    tables: list[Value] = []
    for p in passes:
        table = p.roots().astype(dtype)
        if table.size:
            key = table.tobytes()
            if key not in known:
                element = op.results[0].tensor.element if op.results[0].tensor.dtype == dtype else op.operands[0].tensor.element
                known[key] = b.constant(DenseArray(TensorType(table.shape, element), table))
            tables.append(known[key])
    made = Op(_definition(op.definition), [operands[0], *tables], op.attributes, (), [r.type for r in op.results], op.location)
    return b.append(made)


# ---------------------------------------------------------------- schedules


def lower_fft(op: Op, builder: ElementsOf, names: Names) -> Schedule:
    """One phase for each pass, one task for each group of lines."""
    passes = _passes(op)
    assert passes is not None, "only such transforms have tables"
    x, y = op.operands[0], op.results[0]
    source, target = names.global_buffer(x, Scope.ARGUMENT), names.global_buffer(y, Scope.RESULT)
    buffers = {"source": source, "target": target}
    shared: list[Buffer] = []
    if any(p.writes == "work" for p in passes):
        shape = x.shape if op.attr("fft_type") == "IRFFT" else y.shape
        number = source.element if source.element.is_complex else target.element
        buffers["work"] = make_buffer(names.scratch(y, "work"), Scope.SHARED, number, shape, shape, (0,) * len(shape))
        shared.append(buffers["work"])
    number = source.element if source.element.is_complex else target.element
    scratch = _scratch(op, passes, number, names)
    tables = iter(op.operands[1:])
    known: dict[Value, Buffer] = {}
    ranges: dict[Var, Interval] = {}
    phases = []
    for k, p in enumerate(passes):
        table = next(tables) if p.roots().size else None
        if table is not None and table not in known:
            known[table] = names.global_buffer(table, Scope.ARGUMENT)
        roots = known[table] if table is not None else None
        phases.append(_phase(p, k, op, buffers, roots, scratch, ranges))
    every = (source, *known.values(), *shared, target, *scratch)
    return Schedule(tuple(phases), tuple(every), y.shape, ranges)


def _scratch(op: Op, passes: Sequence[_Pass], number: ElementType, names: Names) -> tuple[Buffer, ...]:
    lanes = _lanes(number.dtype.name)
    longest = max(p.size + 2 if p.form != "complex" else p.size for p in passes)
    inside = max(longest, *(convolved(p.length) for p in passes))
    rooms = [("lines", number, longest), ("reals", number.real, longest), *((f"part{k}", number.real, inside) for k in range(4))]
    return tuple(
        [
            make_buffer(names.scratch(op.results[0], role), Scope.THREAD, element, (n * lanes,), (n * lanes,), (0,))
            for role, element, n in rooms
        ]
    )


def _phase(
    p: _Pass,
    k: int,
    op: Op,
    buffers: dict[str, Buffer],
    roots: Buffer | None,
    scratch: tuple[Buffer, ...],
    ranges: dict[Var, Interval],
) -> Phase:
    lanes = _lanes(scratch[0].element.dtype.name)
    groups = -(-p.lanes // lanes)
    o, g = Var(f"t{2 * k}"), Var(f"t{2 * k + 1}")
    tiles = tuple((v, n) for v, n in ((o, p.outer), (g, groups)) if n > 1) or ((g, 1),)
    ranges.update({v: Interval(0, n - 1) for v, n in tiles})
    outer, group = (as_expr(v) if n > 1 else Const(0) for v, n in ((o, p.outer), (g, groups)))
    lane, element = Var(f"lane{k}"), Var(f"element{k}")
    last: Expr = Const(min(lanes, p.lanes) - 1)
    if p.lanes % lanes and groups > 1:
        last = simplify(minimum(Const(lanes - 1), p.lanes - 1 - group * lanes), ranges)
    ranges[lane], ranges[element] = Interval(0, lanes - 1), Interval(0, p.size - 1)

    def block(name: str, grid: _Grid) -> Block2D:
        base = simplify(outer * grid.outer + group * (lanes * grid.lane), ranges)
        return Block2D(buffers[name], base, grid.lane, grid.step)

    step = Transform(
        op, p.form, p.size, p.sign, p.scale, Loop(lane, Const(0), last, lanes), element, block(p.reads, p.source),
        block(p.writes, p.target), roots, simplify(group * lanes, ranges) if p.twist else None, p.lanes, scratch,
    )  # fmt: skip
    return Phase(tiles, (step,))
