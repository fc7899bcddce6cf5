"""Addresses, and expressions taken apart into a linear part and the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from indexing.caches import Memo
from indexing.expr import Const, Expr, FloorDiv, Interval, Maximum, Minimum, Mod, Var, interval, maximum, minimum, simplify
from tiling.loops.element_ir import IndexNode, Load, Node, all_nodes, own_expressions
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest

__all__ = ["address", "divisions", "expressions_below", "expressions_of", "linear", "never_empty", "reads_long_runs",
           "rows_of_results", "run_and_jump", "step_along", "steps_along", "when"]  # fmt: skip

LONG_RUN_BYTES = 1 << 17
_STEPS: Memo[tuple[tuple[Expr, ...], tuple[int, ...], tuple[Var, ...], int | None], tuple[int | None, ...]] = Memo(1 << 16)

_ADDRESSES: Memo[tuple[object, ...], Expr] = Memo(1 << 16)
_Parts = tuple[Expr, tuple[int, ...]]
_UNKNOWN: _Parts = (Const(0), ())  # itself: no result is the same object
_LINEAR: Memo[tuple[Expr, tuple[Var, ...]], _Parts | None] = Memo(1 << 16)


def address(buffer: Buffer, index: Sequence[Expr], ranges: Mapping[Var, Interval]) -> Expr:
    """Where element `index` lies in the buffer: sum of (index_k - origin_k) * stride_k, simplified."""
    at = tuple(index)
    named = tuple([ranges.get(v) for e in (*at, *buffer.origin) if isinstance(e, Expr) for v in e.variables])
    key = (at, buffer.origin, buffer.strides, named)
    known = _ADDRESSES.get(key)
    if known is not None:
        return known
    total: Expr = Const(0)
    for i, o, s in zip(at, buffer.origin, buffer.strides, strict=True):
        total = total + simplify(i - o, ranges) * s
    return _ADDRESSES.keep(key, simplify(total, ranges))


def expressions_below(
    roots: Sequence[Node], buffer_of: Callable[[Load], Buffer], ranges: Mapping[Var, Interval], conditions: bool = True
) -> list[Expr]:
    """Every address that is read for some nodes, every condition (if wanted), every index that is used as a number."""
    found: list[Expr] = []
    for n in all_nodes(roots):
        if isinstance(n, Load):
            found.append(address(buffer_of(n), n.index, ranges))
        elif conditions or isinstance(n, IndexNode):
            found += own_expressions(n)
    return found


def expressions_of(
    nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: Mapping[Var, Interval], conditions: bool = True
) -> list[Expr]:
    """The same of a nest: of what it writes, and of what that is computed from."""
    written = [*((s.buffer, s.index) for s in nest.stores), *((b, f.index) for f in nest.folds for b in f.buffers)]
    below = expressions_below(nest.roots, buffer_of, ranges, conditions)
    return [*(address(b, index, ranges) for b, index in written), *below]


def step_along(index: Sequence[Expr], strides: Sequence[int], variable: Var, flat: int | None = None) -> int | None:
    """address(variable + 1) - address(variable) in elements, where address = sum of index_k * stride_k.

    None where that differs from place to place. Divisions by `flat` or more count as constant: they seldom change.

    >>> i, j = Var("i"), Var("j")
    >>> step_along((i * 2 + j, i), (10, 1), i), step_along((i // 8, i), (10, 1), i), step_along((i // 8, i), (10, 1), i, 8)
    (21, None, 1)
    """
    step = 0
    for e, s in zip(index, strides, strict=True):
        for atom, k in e.terms:
            if atom is variable:
                step += k * s
            elif flat is not None and isinstance(atom, FloorDiv) and isinstance(atom.divisor, int) and atom.divisor >= flat:
                continue
            elif variable in atom.variables:
                return None
    return step


def steps_along(
    index: tuple[Expr, ...], strides: tuple[int, ...], variables: tuple[Var, ...], flat: int | None = None
) -> tuple[int | None, ...]:
    """`step_along` each of some variables, remembered for the process.

    >>> i, j = Var("i"), Var("j")
    >>> steps_along((i * 2 + j, i), (10, 1), (i, j))
    (21, 10)
    """
    key = (index, strides, variables, flat)
    known = _STEPS.get(key)
    return known if known is not None else _STEPS.keep(key, tuple([step_along(index, strides, v, flat) for v in variables]))


def divisions(e: Expr) -> list[FloorDiv | Mod]:
    """The quotients and rests in an expression."""
    found: list[FloorDiv | Mod] = []
    todo = [e]
    while todo:
        x = todo.pop()
        if isinstance(x, (FloorDiv, Mod)):
            found.append(x)
            todo.append(x.numerator)
        elif not isinstance(x, (Var, Const)):
            todo.extend(atom for atom, _ in x.terms if atom is not x)
    return found


def row_lengths(e: Expr, v: Var) -> set[int]:
    """By how many of a variable's values quotients and rests in an expression divide it.

    >>> i = Var("i")
    >>> sorted(row_lengths((i // 100) % 300 + i % 10, i))
    [10, 100, 30000]
    """
    return {n * x.divisor for x in divisions(e) if isinstance(x.divisor, int) and (n := _in_a_step(x.numerator, v))}


def _in_a_step(e: Expr, v: Var) -> int:
    """After how many steps of a variable a quotient of it is another one; 0 for what is no such quotient."""
    if isinstance(e, FloorDiv):
        return _in_a_step(e.numerator, v) * e.divisor if isinstance(e.divisor, int) else 0
    return int(e is v)


def linear(e: Expr, wanted: Sequence[Var]) -> _Parts | None:
    """(rest, coefficients) with e = rest + sum of coefficient * variable, or None when some variable occurs otherwise."""
    key = (e, tuple(wanted))
    found = _LINEAR.get(key, _UNKNOWN)
    return _LINEAR.keep(key, _linear(e, key[1])) if found is _UNKNOWN else found


def _linear(e: Expr, wanted: tuple[Var, ...]) -> _Parts | None:
    counts = dict.fromkeys(wanted, 0)
    rest: Expr = Const(e.constant)
    for atom, k in e.terms:
        if isinstance(atom, Var) and atom in counts:
            counts[atom] = k
        elif any(v in counts for v in atom.variables):
            return None
        else:
            rest = rest + atom * k
    return rest, tuple(counts.values())


MANY_CHANNELS = 8  # of so many a loop over channels is the row itself


def rows_of_results(nest: Nest, least: int = 1) -> list[Loop]:
    """The parallel loops, of at least so many iterations, along which the results of a nest's folds lie side by side."""
    places = [(f.index, b.strides) for f in nest.folds for b in f.buffers]
    rows = [x for x in nest.loops if x.kind is LoopKind.PARALLEL and x.extent >= least]
    return [x for x in rows if all(step_along(index, strides, x.variable) == 1 for index, strides in places)]


def rows_past_channels(nest: Nest) -> list[Loop]:
    """The loops along which results lie side by side, and where these are few channels, those that go on from pixel to pixel.

    The innermost loop will be one of the latter, as they fill vectors.
    """
    rows = rows_of_results(nest, 2)
    channels = prod(x.extent for x in rows)
    if channels >= MANY_CHANNELS:
        return rows
    places = [(f.index, b.strides) for f in nest.folds for b in f.buffers]
    pixels = [x for x in nest.loops if x.kind is LoopKind.PARALLEL and x.extent > MANY_CHANNELS and x not in rows]
    return rows + [x for x in pixels if all(step_along(index, strides, x.variable) == channels for index, strides in places)]


def reads_long_runs(
    buffer: Buffer, index: Sequence[Expr], extents: Mapping[Var, int], ranges: Mapping[Var, Interval]
) -> bool:
    """Whether loops of these extents, one inside the other, read a long run of elements that lie one after the other."""
    known = linear(address(buffer, index, ranges), tuple(extents))
    if known is None:
        return False
    steps = sorted((step, n) for step, n in zip(known[1], extents.values(), strict=True) if step and n > 1)
    run = 1
    for step, n in steps:
        if step > run:
            break
        run = max(run, step * n)
    return run * buffer.element.itemsize_bytes >= LONG_RUN_BYTES


def run_and_jump(
    buffer: Buffer, index: Sequence[Expr], loops: Sequence[tuple[Var, int]], ranges: Mapping[Var, Interval]
) -> tuple[int, int]:
    """(elements that the inner loops read one after the other, elements from one such run to the next), 0 for no next one.

    `loops` are variables and extents, outermost first.
    """
    known = linear(address(buffer, index, ranges), tuple(v for v, _ in loops))
    run = 1
    for step, n in reversed(list(zip(known[1], (n for _, n in loops), strict=True))) if known else ():
        if n == 1:
            continue
        if not 0 < step <= run:
            return run, max(step, 0)
        run = max(run, step * n)
    return run, 0


def never_empty(lower: Expr, upper: Expr, ranges: Mapping[Var, Interval]) -> bool:
    """True when lower <= upper follows from the ranges: each part of a maximum against each part of a minimum."""
    lowers = lower.arguments if isinstance(lower, Maximum) else (lower,)
    uppers = upper.arguments if isinstance(upper, Minimum) else (upper,)
    return all(interval(simplify(u - x, ranges), ranges).lower >= 0 for u in uppers for x in lowers)


def when(flag: Var, ends: tuple[Expr, Expr], extent: int) -> tuple[Expr, Expr]:
    """[lower, upper] while the flag is 1, and [0, extent - 1] while it is 0. Neither end leaves that range."""
    lower = ends[0] if ends[0] is Const(0) else minimum(ends[0], flag * extent)
    return lower, maximum(ends[1], extent - 1 - flag * extent)
