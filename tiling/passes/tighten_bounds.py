"""Reductions over windows: conditions on a reduction's variable become its bounds, and windows that grow become scans.

    for r in [0, n - 1]: a = f(a, x[i + r - c] if i + r - c >= 0 else e)   ->   for r in [max(0, c - i), n - 1]: a = f(a, x[…])
    out[i] = fold over j in [0, i] of g(j)                                 ->   out[i] = f(out[i - 1], g(i))

The first holds where e is neutral for f (or is zero in a sum of products), the second where g does not depend on i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from hlo.module import Block, Op, Value
from hlo.registry import Fold, SumOfProducts, definition
from hlo.types import ElementType, TensorType, element_type
from indexing.expr import Const, Interval, Var, as_expr, simplify
from tiling.elements.folds import combined_function, is_neutral
from tiling.elements.monoids import Known, monoid_of
from tiling.elements.rules import simplify_node
from tiling.loops.affine import rows_of_results, rows_past_channels, step_along
from tiling.loops.domains.conditions import bounds_by, settled
from tiling.loops.domains.split_domain import Rewriting, points_of, where_all_hold
from tiling.loops.element_ir import Apply, Choose, Node, Renamer, Scalar, has_runtimes, loads, moves_runtimes, node_variables
from tiling.loops.ir import FoldStep, Loop, LoopKind, Nest, Store
from tiling.loops.monoid import Monoid

__all__ = ["MOST_WRITTEN_OUT", "sums_element", "tighten", "written_out"]

MOST_WRITTEN_OUT = 16
MOST_TAPS = 64  # of a small window; one as wide as its operand is half padding, which bounds leave out
FARTHEST = 8  # elements between neighbours that one or more whole vectors and a shuffle still bring together

def tighten(nest: Nest, ranges: dict[Var, Interval], known: Known) -> Nest:
    """The nest with conditions on reduction variables taken into their bounds; a scan where that leaves a growing window."""
    if len(nest.folds) != 1 or nest.stores:
        return nest
    skippable = _skippable(nest, ranges, known)
    if isinstance(nest.folds[0].op.definition.semantics, SumOfProducts) and prod(x.extent for x in nest.reductions) <= MOST_TAPS:
        # A small window is written out later, or goes along rows tap by tap. Bounds that differ along a row would be in the way.
        skippable = [n for n in skippable if not _are_along(rows_past_channels(nest), n)]
    elif _is_cut_along_rows(nest, skippable):
        written = written_out(nest, ranges)
        if written is not None:
            return written
    bounded = _bounded(nest, skippable, ranges)
    return _scanned(bounded, ranges, known) or written_out(bounded, ranges) or bounded


def _skippable(nest: Nest, ranges: Mapping[Var, Interval], known: Known) -> list[Choose]:
    """The nodes whose `otherwise` changes nothing when it is folded in."""
    (f,) = nest.folds
    chosen = [n for n in f.nodes if isinstance(n, Choose) and isinstance(n.otherwise, Scalar) and not n.runtimes]
    if isinstance(f.op.definition.semantics, SumOfProducts):
        return [n for n in chosen if isinstance(n.otherwise, Scalar) and n.otherwise.value == 0 and _is_finite_beside(f, n)]
    if not isinstance(f.op.definition.semantics, Fold) or len(f.nodes) != 1 or len(f.inits) != 1:
        return []
    (start,) = f.inits
    if not isinstance(start, Scalar):
        return []
    alike = [n for n in chosen if isinstance(n.otherwise, Scalar) and n.otherwise.value == start.value]
    if not alike:
        return []
    function = combined_function(f.op.regions[0])
    if function is not None:
        return alike if is_neutral(function, start.value, start.element) else []
    monoid = monoid_of(f, nest.reductions, ranges, known)
    return alike if isinstance(monoid, Monoid) and monoid.is_neutral else []


def _is_finite_beside(f: FoldStep, chosen: Choose) -> bool:
    """Whether the other factors are finite wherever `chosen` is 0: 0 * w is NaN where w is an infinity or NaN."""
    element = f.values[0].tensor.element
    if not (isinstance(element, ElementType) and (element.is_float or element.is_complex)):
        return True
    others = [n for n in f.nodes if n is not chosen]
    return all(isinstance(n, Scalar) and bool(np.isfinite(n.value)) for n in others)


def _bounded(nest: Nest, chosen: Sequence[Choose], ranges: dict[Var, Interval]) -> Nest:
    (f,) = nest.folds
    reductions = nest.reductions
    asked = {c: [x for x in reductions if x.variable in c.expression.variables] for n in chosen for c in n.conditions}
    taken = [c for c, bounded in asked.items() if len(bounded) == 1 and bounds_by(c, bounded[0].variable) is not None]
    if not taken:
        return nest
    on = Rewriting(where_all_hold(reductions, taken, ranges), ranges)
    bounded = replace(f, nodes=tuple(settled(n, on.decide) if n in chosen else n for n in f.nodes))
    return Nest(on.over(nest.loops), folds=(bounded,))


def _scanned(nest: Nest, ranges: dict[Var, Interval], known: Known) -> Nest | None:
    (f,) = nest.folds
    reductions = [x for x in nest.loops if x.kind is LoopKind.REDUCTION and x.extent > 1]
    is_fold = isinstance(f.op.definition.semantics, Fold) and len(f.nodes) == 1
    if not is_fold or len(reductions) != 1 or f.carried:
        return None
    (r,) = reductions
    for i in nest.loops:
        if i.kind is not LoopKind.PARALLEL or i.extent < 2 or not i.is_whole or moves_runtimes(f.nodes, (i.variable, r.variable)):
            continue
        last = i.upper
        if r.upper is simplify(last, ranges) and r.lower is simplify(last - i.variable, ranges):
            # j = i + r - last runs over [0, i]
            shift, at_step = last - i.variable, as_expr(i.variable)
        elif r.lower is Const(0) and r.upper is simplify(last - i.variable, ranges) and monoid_of(f, (r,), ranges, known):
            # j = i + r runs over [i, last]: counted from the end it is a growing window, too, folded in the other order
            shift, at_step = -1 * i.variable, last - i.variable
        else:
            continue
        j = Var(f"j{r.variable.name}")
        ranges[j] = Interval(0, i.extent - 1)
        node = Renamer({r.variable: j + shift}, ranges, {}).node(f.nodes[0])
        if i.variable in node_variables(node, {}):
            continue
        node = Renamer({j: at_step}, ranges, {}).node(node)
        index = Renamer({i.variable: at_step}, ranges, {}).index(f.index)
        others = [x for x in nest.loops if x is not i and x is not r]
        return Nest((*others, replace(i, kind=LoopKind.SCAN)), folds=(replace(f, index=index, nodes=(node,)),))
    return None


def _steps_far(nest: Nest) -> bool:
    """Whether neighbouring results read memory too far apart for whole vectors, while the fold itself walks along it."""
    (f,) = nest.folds
    rows = [x.variable for x in nest.loops if step_along(f.index, f.buffers[0].strides, x.variable) == 1 and x.extent > 1]
    for load in loads(f.nodes):
        shape = load.value.shape if load.buffer is None else load.buffer.shape
        strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
        steps = {x.variable: step_along(load.index, strides, x.variable) for x in nest.loops}
        walks = any(steps[x.variable] == 1 for x in nest.loops if x.kind is LoopKind.REDUCTION)
        if walks and any(abs(steps[v] or 0) > FARTHEST for v in rows):
            return True
    return False


def _is_cut_along_rows(nest: Nest, skippable: Sequence[Choose]) -> bool:
    """Whether what is skipped differs between neighbours in memory: with bounds of its own no element has a neighbour's loop.

    Written out, the choices cut the innermost loop into an inside without any and short edges (`codegen.source.split_innermost`).
    """
    return any(_are_along(rows_of_results(nest), n) for n in skippable)


def _are_along(rows: Sequence[Loop], n: Choose) -> bool:
    variables = {x.variable for x in rows}
    return any(variables.intersection(c.expression.variables) for c in n.conditions)


def written_out(nest: Nest, ranges: dict[Var, Interval]) -> Nest | None:
    """A fold of few elements as one expression: f(f(init, x0), x1), so that the loops around it vectorise.

    Not one that goes on from what the tiles before it left: the expression starts anew.
    """
    (f,) = nest.folds
    if f.carried:
        return None
    reductions = nest.reductions
    around = [x for x in nest.loops if x.kind is not LoopKind.REDUCTION]
    if prod(x.extent for x in reductions) > MOST_WRITTEN_OUT or prod(x.extent for x in around) < 16:
        return None
    if not isinstance(f.op.definition.semantics, Fold) or len(f.inits) != 1 or has_runtimes((*f.nodes, *f.inits)):
        return None
    function = combined_function(f.op.regions[0])
    if function is None or not all(x.is_whole for x in reductions) or _steps_far(nest):
        return None
    inner = f.op.regions[0].ops[0]
    element = f.values[0].tensor.element
    kept = sums_element(f, f.buffers[0].element)
    if kept is not f.buffers[0].element:
        inner = _of_element(inner, kept)
    result = _converted(f.inits[0], f.values[0], kept)

    def is_start(x: Scalar) -> bool:
        start = f.inits[0]
        same = isinstance(start, Scalar) and start.value == x.value
        return same and isinstance(element, ElementType) and is_neutral(function, x.value, element)

    for p in points_of(reductions):
        x = Rewriting(p, ranges).node(f.nodes[0])
        if isinstance(x, Scalar) and is_start(x):
            continue
        result = simplify_node(Apply(inner, function, (result, _converted(x, f.values[0], kept))), ranges)
    if kept is not element:
        back = Op(definition("stablehlo.convert"), [inner.operands[0]], result_types=[TensorType((), f.buffers[0].element)])
        result = Apply(back, "convert", (result,))
    return Nest(tuple(around), stores=(Store(f.values[0], f.buffers[0], f.index, result),))


# ---------------------------------------------------------------- what sums are kept in


def sums_element(f: FoldStep, element: ElementType) -> ElementType:
    """The element type that a fold's running results are kept in: f32 for sums and products of 16-bit floats, rounded once."""
    if element.name not in ("bf16", "f16") or not isinstance(f.op.definition.semantics, Fold):
        return element
    return element_type("f32") if combined_function(f.op.regions[0]) in ("add", "multiply") else element


def _of_element(op: Op, element: ElementType) -> Op:
    """A scalar op on numbers of another type."""
    t = TensorType((), element)
    return Op(op.definition, Block([t] * len(op.operands)).arguments, op.attributes, result_types=[t])


def _converted(n: Node, like: Value, element: ElementType) -> Node:
    """A number of the element type of `like` as one of a wider float type."""
    if like.tensor.element is element:
        return n
    if isinstance(n, Scalar):
        return Scalar(element.dtype.type(n.value), element)
    op = Op(definition("stablehlo.convert"), [like], result_types=[TensorType((), element)])
    return Apply(op, "convert", (n,))
