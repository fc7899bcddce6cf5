"""Loops whose iterations take turns: one iteration does a whole turn, and nothing asks whose it is.

    for i in [0, n]: y[i] = a[i // 2] if i % 2 == 0 else b[i // 2]   ->   for j in [0, n // 2]: y[2 j] = a[j]; y[2 j + 1] = b[j]
    for c in [0, 1]: for i in [0, n]: y[2 i + c] = x[c, i]           ->   for i in [0, n]: y[2 i] = x[0, i]; y[2 i + 1] = x[1, i]

The stores of one iteration lie side by side: vectors are interleaved in registers, and each line of memory is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import lcm

from indexing.expr import Const, Expr, Interval, Var
from tiling.elements.code_size import code_size
from tiling.loops.affine import divisions, expressions_below, step_along
from tiling.loops.domains.split_domain import Part, Rewriting, points_of, residue_class, split_whole_groups
from tiling.loops.element_ir import Load, Node, all_nodes, node_variables
from tiling.loops.ir import Buffer, LoopKind, Nest
from tiling.loops.variables import new_variable

__all__ = ["take_turns"]

MOST_TURNS = 4
MOST_NODES = 120  # of all stores of an iteration


def take_turns(nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> list[Nest]:
    """Nests that do the same as one: itself, or one of whole turns and, where there is one, the rest."""
    if nest.folds or nest.order_is_fixed or nest.skip is not None or not nest.stores or not nest.loops:
        return [nest]
    if any(x.kind is not LoopKind.PARALLEL for x in nest.loops):
        return [nest]
    return _by_residue(_written_out(nest, buffer_of, ranges), buffer_of, ranges)


def _by_residue(nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> list[Nest]:
    """Turns of the innermost loop."""
    loop = nest.loops[-1]
    turns = _turns(expressions_below(nest.each, buffer_of, ranges), loop.variable)
    if turns < 2 or loop.lower is not Const(0) or loop.extent < 2 * turns or _size(nest) * turns > MOST_NODES:
        return [nest]
    whole, rest = split_whole_groups(loop, turns, ranges)
    if whole is None:
        return [nest]
    j = new_variable(f"{loop.variable.name}_turn{turns}", Interval(0, loop.extent // turns - 1), ranges)
    each = [residue_class(whole.loops[0], turns, r, j, ranges) for r in range(turns)]
    return [_side_by_side(nest, each, ranges), *([] if rest is None else [Rewriting(rest, ranges).nest(nest)])]


def _side_by_side(nest: Nest, parts: Sequence[Part], ranges: dict[Var, Interval]) -> Nest:
    """The nest with an iteration of each part, in order, in one: the parts run over the same loops."""
    made = [Rewriting(p, ranges).nest(nest) for p in parts]
    return replace(made[0], stores=tuple(s for n in made for s in n.stores))


def _turns(expressions: list[Expr], variable: Var) -> int:
    """The common divisor by which the variable is divided, up to `MOST_TURNS`; 1 where there is none."""
    found = {
        atom.divisor
        for e in expressions
        for atom in divisions(e)
        if variable in atom.numerator.variables and isinstance(atom.divisor, int) and atom.divisor <= MOST_TURNS
    }
    common = lcm(*found) if found else 1
    return common if common <= MOST_TURNS else max(found)


def _written_out(nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> Nest:
    """The nest without the loop around the innermost one, where that is short and steps from neighbour to neighbour."""
    if len(nest.loops) < 2:
        return nest
    short, inner = nest.loops[-2:]
    n = short.extent
    whole = short.lower is Const(0) and short.upper is Const(n - 1) and short.variable not in inner.upper.variables
    if not whole or not 2 <= n <= MOST_TURNS or inner.extent < 2 * n or short.variable in inner.lower.variables:
        return nest
    places = [(s.buffer, s.index) for s in nest.stores]
    places += [(buffer_of(x), x.index) for x in all_nodes([s.node for s in nest.stores]) if isinstance(x, Load)]
    steps = [tuple(step_along(index, b.strides, v) for v in (short.variable, inner.variable)) for b, index in places]
    if (1, n) not in steps or _size(nest) * n > MOST_NODES:
        return nest
    return _side_by_side(nest, points_of([short]), ranges)


def _size(nest: Nest) -> int:
    """The nodes of one iteration: what is the same in all of them is computed before the loop."""
    inner = nest.loops[-1].variable
    memo: dict[Node, frozenset[Var]] = {}
    return code_size(n for n in all_nodes([s.node for s in nest.stores]) if inner in node_variables(n, memo))
