"""Loop unrolling where each iteration computes something else: one body does it all, and nothing asks whose turn it is.

    for p in [0, 2]: for i: y[p, i] = a[i] - b[i] if p == 0 else (a[i] + b[i] if p == 1 else b[i] - a[i])
    ->   for i: y[0, i] = a[i] - b[i]; y[1, i] = a[i] + b[i]; y[2, i] = b[i] - a[i]

Parts of a concatenation that are computed from the same elements read them once, and share what they compute alike. Where the
parts lie along the innermost loop no vector does, as each element asks which one it is: then a body that does all of them is
worth half as much code again, for it is done for several rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import final

from hlo.access import Condition
from indexing.expr import Const, Interval, Var, simplify, substitute
from tiling.elements.code_size import code_size
from tiling.elements.scalar_functions import scalar_function
from tiling.loops.domains.conditions import Ends, range_of
from tiling.loops.domains.split_domain import Part, Rewriting, points_of
from tiling.loops.element_ir import Apply, Choose, Load, Node, Test, all_nodes, node_variables
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest
from tiling.passes.share_equal_nodes import share_equal_nodes

__all__ = ["unroll_choices"]

MOST_PARTS = 40
MOST_NODES = 600  # of all stores of an iteration, shared ones once
LEAST_SHARED = 1.5  # nodes written out, for each that is left when equal ones are one
MOST_STORES = 64  # of one body: 1,600 took 50 times as long as 40 in a loop
MOST_GROWTH = 1.5  # nodes of a body that does all of an innermost loop, for each that is there
FEW_NODES = 64  # of such a body: then it may have grown more
FEW_STORES = 8  # elements of a row that get a store each, also where each is only moved, from a place of its own
LEAST_WORK = 1.5  # time for each element of another row, in additions: 40 columns only picked took 3.4 ms so, 2.2 by a loop
LEAST_ROWS = 64  # iterations of the loop around that, along which vectors lie then


def unroll_choices(nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> Nest:
    """The nest without loops whose iterations have computations of their own, where these share much or lie along the innermost
    one; else the nest itself."""
    size = code_size(all_nodes(nest.each))
    while True:
        made = _without_a_loop(nest, size, buffer_of, ranges)
        if made is nest:
            return nest
        nest = made


def _without_a_loop(nest: Nest, size: int, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> Nest:
    """The nest without the first loop that pays; `size` are the nodes of the body that had all loops."""
    if nest.folds or nest.order_is_fixed or nest.skip is not None or not nest.stores or len(nest.loops) < 2:
        return nest
    if any(x.kind is not LoopKind.PARALLEL for x in nest.loops):
        return nest
    asked = [c for n in all_nodes(nest.each) if isinstance(n, Choose | Test) for c in n.conditions]
    conditions = list(dict.fromkeys(asked))
    for loop in nest.loops:
        if _is_whole(loop, nest.loops):
            ends = {c: found for c in conditions if (found := range_of(c, loop.variable)) is not None}
            parts = _parts(ends.values(), loop)
            if _is_cut_up(loop, nest, parts):
                made = _unrolled(nest, loop, ends, parts, size, buffer_of, ranges)
                if made is not nest:
                    return made
    return nest


def _is_cut_up(loop: Loop, nest: Nest, parts: int) -> bool:
    """Whether each iteration of a loop, which conditions cut into so many parts, computes something else. Of a short innermost
    one it is enough that some do."""
    return parts == loop.extent > 2 or (parts > 1 and loop is nest.loops[-1] and loop.extent <= FEW_STORES)


def _lies_across_rows(nest: Nest, loop: Loop) -> bool:
    """Whether a loop is the innermost one and its iterations do different things, but many of those around it do the same."""
    return loop is nest.loops[-1] and prod(x.extent for x in nest.loops[:-1]) >= LEAST_ROWS


def _is_whole(loop: Loop, loops: Sequence[Loop]) -> bool:
    """Whether a loop runs over few known places, on which no other loop depends."""
    n, v = loop.extent, loop.variable
    apart = not any(v in x.lower.variables or v in x.upper.variables for x in loops)
    return loop.lower is Const(0) and loop.upper is Const(n - 1) and n <= MOST_PARTS and apart


def _parts(ends: Iterable[Ends], loop: Loop) -> int:
    """Into how many parts a loop is cut by conditions that hold between these ends."""
    places = {0, loop.extent}
    for first, last in ends:
        if isinstance(first, Const):
            places.add(first.value)
        if isinstance(last, Const):
            places.add(last.value + 1)
    return len([p for p in places if 0 <= p < loop.extent])


@final
class _Branches:
    """What a node is at one value of a loop's variable, down to the first choice that this does not decide."""

    def __init__(self, loop: Loop, ends: Mapping[Condition, Ends]) -> None:
        self.variable, self.values, self.ends = loop.variable, range(loop.extent), ends
        self.truth: dict[Condition, Sequence[bool] | None] = {}

    def at(self, node: Node, value: int) -> Node:
        while isinstance(node, Choose):
            holds = True
            for c in node.conditions:
                if c not in self.truth:
                    self.truth[c] = self._truth(c)
                known = self.truth[c]
                if known is None:
                    return node
                holds &= known[value]
            node = node.then if holds else node.otherwise
        return node

    def _truth(self, c: Condition) -> Sequence[bool] | None:
        """Whether a condition holds, for each value; None where other variables count, too."""
        if set(c.expression.variables) != {self.variable}:
            return None
        first, last = self.ends.get(c, (self.variable, None))
        if isinstance(first, Const | None) and isinstance(last, Const | None):
            lower, upper = -inf if first is None else first.value, inf if last is None else last.value
            return [lower <= k <= upper for k in self.values]
        found = [substitute(c.expression, {self.variable: Const(k)}) for k in self.values]
        known = [c.lower <= e.value <= c.upper for e in found if isinstance(e, Const)]
        return known if len(known) == len(found) else None


def _unrolled(
    nest: Nest, loop: Loop, ends: Mapping[Condition, Ends], parts: int, size: int, buffer_of: Callable[[Load], Buffer],
    ranges: dict[Var, Interval],
) -> Nest:  # fmt: skip
    if len(nest.stores) * loop.extent > MOST_STORES:
        return nest
    rest = [x for x in nest.loops if x is not loop]
    made = []
    known: dict[Node, frozenset[Var]] = {}
    whole = Rewriting(Part((), {}, {}), ranges)
    branches = _Branches(loop, ends)
    for k, part in enumerate(points_of([loop])):
        own = tuple(replace(s, node=branches.at(s.node, k)) for s in nest.stores)
        if any(loop.variable in node_variables(s.node, known) for s in own):
            made.append(Rewriting(part, ranges).nest(replace(nest, loops=(loop, *rest), stores=own)))
        else:  # which part it is was all that the variable told
            at = {loop.variable: Const(k)}
            indices = [tuple([simplify(substitute(e, at), ranges) for e in s.index]) for s in own]
            stores = [replace(s, index=i, node=whole.node(s.node)) for s, i in zip(own, indices, strict=True)]
            made.append(replace(nest, loops=tuple(rest), stores=tuple(stores)))
    body = replace(made[0], stores=tuple(s for n in made for s in n.stores))
    if any(x.loops != body.loops for x in made):
        return nest
    shared = share_equal_nodes(body, buffer_of)
    before = sum(code_size(all_nodes([s.node])) for s in body.stores)  # however many of them are one node already
    nodes = list(all_nodes([s.node for s in shared.stores]))
    after = code_size(nodes)
    pays = before >= LEAST_SHARED * after
    if loop is nest.loops[-1]:
        computed = sum(scalar_function(n.function).cost for n in nodes if isinstance(n, Apply))
        moves_apart = len(body.stores) <= FEW_STORES and parts == loop.extent
        is_work = moves_apart or computed >= LEAST_WORK * len(body.stores)
        pays = is_work and (pays or (_lies_across_rows(nest, loop) and after <= max(MOST_GROWTH * size, FEW_NODES)))
    return shared if after <= MOST_NODES and pays else nest
