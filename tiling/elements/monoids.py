"""May a fold be taken in parts and in any order? One answer, asked by each pass that reassociates, and by proofs.

    (x0 o x1) o (x2 o x3) = ((x0 o x1) o x2) o x3        associative          parts, lanes, several rows in a step
    x0 o x1 = x1 o x0                                    commutative          lanes, loops in another order
    e o x = x                                            neutral              elements that equal e are left out
    e o e = e                                            starts parts         each part starts from the initial value e

A body that folds several values that have nothing to do with each other is as many bodies, each shown by itself:

    a scalar function of the two arguments               `tiling.elements.scalar_functions`, which says what is associative
    one that compares and chooses                        `tiling.elements.monoids_by_cases`: all orders of three numbers
    one of sums, products, exponentials, logarithms      `tiling.elements.monoids_by_algebra`: an identity of exact arithmetic

Sums and products of floats are taken as if exact, but where each step is rounded to so few bits that results would be others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from hlo.errors import Declined
from hlo.module import Block, Op, Value
from hlo.registry import Fold, SumOfProducts, definition
from hlo.types import ElementType, QuantizedType
from indexing.expr import Interval, Var, interval
from tiling.elements.folds import combined_function, is_idempotent, is_neutral
from tiling.elements.monoids_by_algebra import by_algebra
from tiling.elements.monoids_by_cases import by_cases
from tiling.loops.element_ir import IndexNode, Node, Scalar, moves_runtimes
from tiling.loops.ir import FoldStep, Loop
from tiling.loops.monoid import Monoid, Shown

__all__ = ["Known", "is_rounded_each_step", "monoid_of"]

Known = dict[Hashable, "Monoid | Declined"]
"""What was found before, by the fold's op and what its elements are."""

ROUNDED = Declined("each step is rounded to so few bits that the order counts")


def monoid_of(f: FoldStep, over: Sequence[Loop], ranges: Mapping[Var, Interval], known: Known) -> Monoid | Declined:
    """What holds for a fold over the loops `over`, or why its order counts.

    Where it folds over one loop, parts run through some of its iterations upwards: a place that grows with them tells which
    of two parts comes first.

    >>> import hlo, tiling
    >>> text = '''func.func @main(%x: tensor<8x4xf32>) -> tensor<8xf32> {
    ...   %z = stablehlo.constant dense<1.0> : tensor<f32>
    ...   %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
    ...        : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>
    ...   return %r : tensor<8xf32> }'''
    >>> (nest,) = tiling.plan(hlo.parse(text), machine=tiling.Machine()).fusions[0].schedule.main.steps
    >>> found = monoid_of(nest.folds[0], nest.loops[1:], {}, {})
    >>> found.function, found.shown.name, found.starts_parts  # each part would start from 1
    ('add', 'TABLE', False)
    """
    if moves_runtimes((*f.nodes, *f.inits), [x.variable for x in over]):
        return Declined("what is folded lies at places known at run time")
    places = tuple(k for k, n in enumerate(f.nodes) if len(over) == 1 and _is_place(n, over[0]))
    bounds = tuple(interval(n.expression, ranges) for n in f.nodes if isinstance(n, IndexNode))
    starts = tuple(n.value.tobytes() if isinstance(n, Scalar) else None for n in f.inits)
    key = (f.op, places, bounds, starts)
    if key not in known:
        known[key] = _shown(f, places, ranges)
    return known[key]


def is_rounded_each_step(function: str, element: ElementType | QuantizedType) -> bool:
    """True for sums and products in a float of a byte and less: each step is rounded, as the specification's body says.

    Wider floats are summed in f32 at least and rounded once; integers wrap around in any order.
    """
    return isinstance(element, ElementType) and element.is_float and element.bits <= 8 and not is_idempotent(function)


def _shown(f: FoldStep, places: Sequence[int], ranges: Mapping[Var, Interval]) -> Monoid | Declined:
    semantics = f.op.definition.semantics
    if isinstance(semantics, SumOfProducts):
        return _sum(f)
    if not isinstance(semantics, Fold):
        return Declined(f"{f.op.name} is no fold")
    body = f.op.regions[0]
    groups = _groups(body)
    if len(groups) == 1:
        return _of_body(body, f.nodes, f.inits, places, ranges)
    return _of_several(f, body, groups, places, ranges)


def _of_several(
    f: FoldStep, body: Block, groups: Sequence[tuple[int, ...]], places: Sequence[int], ranges: Mapping[Var, Interval]
) -> Monoid | Declined:
    """What holds for a body that does several folds, each for some of the values."""
    found: list[Monoid] = []
    for group in groups:
        part = _part(body, group)
        own = [group.index(k) for k in places if k in group]
        made = _of_body(part, [f.nodes[k] for k in group], [f.inits[k] for k in group], own, ranges)
        if isinstance(made, Declined):
            return made
        if made.body is not part:
            return Declined("one of several folds needs a body of its own for its parts")
        if made.function is not None and _is_narrow(part) and not is_idempotent(made.function):
            return ROUNDED  # only a fold of one value is kept wider
        found.append(made)
    shown = next((m.shown for m in found if m.shown is not Shown.TABLE), Shown.TABLE)
    return Monoid(body, None, shown, all(m.starts_parts for m in found), all(m.is_neutral for m in found),
                  all(m.for_nan for m in found))  # fmt: skip


def _sum(f: FoldStep) -> Monoid | Declined:
    element = f.values[0].tensor.element
    if len(f.values) != 1 or not isinstance(element, ElementType) or any(v.tensor.element != element for v in f.op.operands):
        return Declined("what is summed in another type is rounded where the last part is added")
    if is_rounded_each_step("add", element):
        return ROUNDED
    return Monoid(None, "add", Shown.TABLE, True, True)


def _of_body(
    body: Block, nodes: Sequence[Node], inits: Sequence[Node], places: Sequence[int], ranges: Mapping[Var, Interval]
) -> Monoid | Declined:
    function, element = combined_function(body), body.arguments[0].tensor.element
    if function is not None:
        (start,) = inits
        if is_rounded_each_step(function, element):
            return ROUNDED
        neutral = isinstance(start, Scalar) and is_neutral(function, start.value, start.element)
        return Monoid(body, function, Shown.TABLE, neutral or is_idempotent(function), neutral)
    starts = [n.value for n in inits if isinstance(n, Scalar)]
    if len(starts) != len(inits):
        return Declined("the initial values of a body of its own are known at run time")
    return by_cases(body, starts, nodes, places, ranges) or by_algebra(body, starts)


def _is_place(n: Node, loop: Loop) -> bool:
    """True for an index that grows with each iteration of the loop."""
    return isinstance(n, IndexNode) and n.element.is_integer and dict(n.expression.terms).get(loop.variable, 0) > 0 and all(
        loop.variable not in atom.variables for atom, _ in n.expression.terms if atom is not loop.variable
    )  # fmt: skip


def _is_narrow(body: Block) -> bool:
    elements = [v.tensor.element for v in body.arguments]
    return any(isinstance(e, ElementType) and e.is_float and np.dtype(e.dtype).itemsize < 4 for e in elements)


# ---------------------------------------------------------------- bodies of several values


def _groups(body: Block) -> list[tuple[int, ...]]:
    """The values that a body folds, those together that depend on each other."""
    count = len(body.arguments) // 2
    depends = {v: {k % count} for k, v in enumerate(body.arguments)}
    for op in body.ops[:-1]:
        read = set[int]().union(*(depends.get(v, set()) for v in op.operands))
        depends.update(dict.fromkeys(op.results, read))
    group = list(range(count))
    for k, v in enumerate(body.results):
        for other in depends.get(v, ()):
            group = [group[k] if g == group[other] else g for g in group]
    return [tuple(k for k in range(count) if group[k] == g) for g in dict.fromkeys(group)]


def _part(body: Block, group: Sequence[int]) -> Block:
    """What a body does with some of its values."""
    count = len(body.arguments) // 2
    arguments = [body.arguments[k] for k in (*group, *(count + k for k in group))]
    made = Block([v.type for v in arguments])
    known: dict[Value, Value] = dict(zip(arguments, made.arguments, strict=True))
    wanted = [body.results[k] for k in group]
    needed: set[Value] = set(wanted)
    for op in reversed(body.ops[:-1]):
        if needed.intersection(op.results):
            needed.update(op.operands)
    for op in body.ops[:-1]:
        if needed.intersection(op.results):
            types = [r.type for r in op.results]
            made.ops.append(Op(op.definition, [known.get(v, v) for v in op.operands], op.attributes, op.regions, types))
            known.update(zip(op.results, made.ops[-1].results, strict=True))
    made.ops.append(Op(definition("stablehlo.return"), [known.get(v, v) for v in wanted]))
    return made
