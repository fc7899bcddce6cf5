"""Loops over the elements of rows, as a reshape makes them, become loops over rows and over what each has.

    for c in [0, m n - 1]: f(x[c floordiv n, c mod n], y[c floordiv n])
    for a in [0, m - 1]: for b in [0, n - 1]: f(x[a, b], y[a])           what depends on a row alone is computed once for it

The opposite of `collapse_loops`, which makes one loop of both again where nothing is a row's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from indexing.expr import Expr, FloorDiv, Interval, Mod, Var
from tiling.loops.affine import divisions, expressions_of, linear
from tiling.loops.element_ir import Load, Renamer, all_nodes, moves_runtimes, own_expressions
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest
from tiling.loops.variables import counted

__all__ = ["step_in_row", "unflatten_loops"]

LEAST_ROW = 16  # elements: a vector's
MOST_LEVELS = 3  # of rows of rows


def unflatten_loops(nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> Nest:
    """The nest with parallel loops over the elements of rows made two, wherever a row's elements then lie at even distances."""
    if nest.order_is_fixed or nest.skip is not None or nest.segments:
        return nest
    for _ in range(MOST_LEVELS):
        made = next((x for loop in nest.loops if (x := _unflattened(nest, loop, buffer_of, ranges)) is not None), None)
        if made is None:
            break
        nest = made
    return nest


def step_in_row(index: Sequence[Expr], strides: Sequence[int], variable: Var, extent: int, flat: int) -> int | None:
    """The step of an access in elements, inside of a row of the loop over `extent` elements that becomes two here.

    None where the loop is none over whole rows. Divisions by `flat` or more seldom change, as for `affine.step_along`.

    >>> i = Var("i")
    >>> [step_in_row((i // 32, i % 32), (100, 1), i, extent, 8) for extent in (128, 48)]
    [1, None]
    """
    step = 0
    for e, stride in zip(index, strides, strict=True):
        for atom, k in e.terms:
            found = _grows(atom, variable, extent, flat)
            if found is None:
                return None
            step += found * k * stride
    return step


def _grows(atom: Expr, variable: Var, extent: int, flat: int) -> int | None:
    """By how much a variable, a quotient or a rest grows inside of a row."""
    if atom is variable or variable not in atom.variables:
        return int(atom is variable)
    if not isinstance(atom, (FloorDiv, Mod)) or not isinstance(atom.divisor, int):
        return None
    if isinstance(atom, FloorDiv):
        return 0 if atom.divisor >= flat else None
    step = step_in_row((atom.numerator,), (1,), variable, extent, flat)
    is_row = step == 1 and atom.divisor >= LEAST_ROW and extent % atom.divisor == 0
    return step if is_row or step == 0 else None


def _unflattened(
    nest: Nest, loop: Loop, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]
) -> Nest | None:
    """The nest with one loop made two; None where no more places than before are linear in the inner one."""
    row = _row(nest, loop)
    if row is None or moves_runtimes(nest.each, [loop.variable]):
        return None
    name = loop.variable.name
    over, along = counted(f"{name}_row", loop.extent // row, ranges), counted(f"{name}_in_row", row, ranges)
    rename = Renamer({loop.variable: over.variable * row + along.variable}, ranges, {})
    k = nest.loops.index(loop)
    made = nest.rewritten(rename, (*nest.loops[:k], over, along, *nest.loops[k + 1 :]))
    before = _curved(nest, loop.variable, buffer_of, ranges)
    return made if _curved(made, along.variable, buffer_of, ranges) < before else None


def _row(nest: Nest, loop: Loop) -> int | None:
    """How many elements a row has: the number that divides all by which elements' numbers are divided; None if there is none."""
    if loop.kind is not LoopKind.PARALLEL or not loop.is_whole or loop.together != 1:
        return None
    if any(loop.variable in e.variables for x in nest.loops for e in (x.lower, x.upper)):
        return None
    read = [e for n in all_nodes(nest.each) for e in own_expressions(n)]
    found = {d.divisor for e in read for d in divisions(e) if _steps(d.numerator, loop.variable)}
    numbers = [d for d in found if isinstance(d, int)]
    row = min(numbers, default=0)
    if len(numbers) < len(found) or row < LEAST_ROW or loop.extent % row or loop.extent == row or any(d % row for d in numbers):
        return None
    return row


def _steps(e: Expr, v: Var) -> bool:
    """Whether an expression is linear in a variable, and has it."""
    parts = linear(e, [v])
    return parts is not None and parts[1] != (0,)


def _curved(nest: Nest, v: Var, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> int:
    """How many addresses, conditions and indices are not linear in a variable."""
    return sum(linear(e, [v]) is None for e in expressions_of(nest, buffer_of, ranges))
