"""Places of elements that are read at multiples alone: where 3 divides i, 3 * (i // 3) is i.

    x[3 * (i // 3)] + u if i mod 3 == 0 else x[i]    ->    x[i] + u if i mod 3 == 0 else x[i]

An update of every third element reads it by a slice, whose place is a quotient once more. Where the condition holds the division
leaves nothing over, and both ways read one element: a vector of them is loaded, and nothing is divided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hlo.access import Condition
from hlo.module import Value
from indexing.expr import Const, Expr, FloorDiv, Mod, Var, substitute
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Runtime, Scalar, Test, rebuild, runtimes_of

__all__ = ["at_multiples"]

_Remainder = tuple[Expr, int, int]
"""An expression, a divisor, and what is left over."""

Index = Callable[[Sequence[Expr]], tuple[Expr, ...]]


def at_multiples(
    node: Node,
    conditions: Sequence[Condition],
    load: Callable[[Value, tuple[Expr, ...]], Node] = lambda v, index: Load(v, index),
    runtime: Callable[[Runtime, Index, Node], Runtime] | None = None,
) -> Node:
    """The node, of the same value wherever all conditions hold, with d * (e // d) as e - r in places where e mod d = r follows.

    `load` gives the node of an element in memory, and `runtime` the variable of a place that is read at an index like that, given
    what the variable was computed from. Without it such variables stay as they are.
    """
    known: list[_Remainder] = []
    for c in conditions:
        e = c.expression
        if isinstance(e, Mod) and isinstance(e.divisor, int) and c.lower == c.upper:
            known.append((e.numerator, e.divisor, c.lower))
    if not known:
        return node
    memo: dict[Node, Node] = {}

    def index(places: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple([_placed(e, known) for e in places])

    def leaf(n: Load) -> Node:
        made, found = index(n.index), renamed(n)
        if made == n.index and not found:
            return n
        made = tuple([substitute(e, {r.variable: x.variable for r, x in found.items()}) for e in made])
        return load(n.value, made) if n.buffer is None else Load(n.value, made, n.buffer, _new(n.runtimes, found))

    def renamed(n: Node) -> dict[Runtime, Runtime]:
        moved = [r for r in runtimes_of(n) if memo[r.node] is not r.node] if runtime is not None else []
        return {r: runtime(r, index, memo[r.node]) for r in moved} if runtime is not None else {}

    def settle(n: Node) -> Node:
        found = {} if isinstance(n, (Apply, Load, Scalar, Test)) else renamed(n)
        at: dict[Var, Expr] = {r.variable: x.variable for r, x in found.items()}
        if found and isinstance(n, IndexNode):
            return IndexNode(substitute(n.expression, at), n.element, _new(n.runtimes, found))
        if found and isinstance(n, Choose):
            asked = tuple([replace(c, expression=substitute(c.expression, at)) for c in n.conditions])
            return Choose(asked, n.then, n.otherwise, _new(n.runtimes, found))
        return n

    return rebuild(node, leaf, index, memo, settle)


def _new(runtimes: Sequence[Runtime], found: Mapping[Runtime, Runtime]) -> tuple[Runtime, ...]:
    return tuple([found.get(r, r) for r in runtimes])


def _placed(e: Expr, known: Sequence[_Remainder]) -> Expr:
    """An index where these remainders are known.

    >>> i = Var("i")
    >>> print(_placed(3 * ((i - 1) // 3) + 7, [(i + 2, 3, 0)]), "|", _placed(2 * (i // 3), [(i, 3, 0)]))
    i + 6 | (i floordiv 3) * 2
    """
    for atom, times in e.terms:
        if not isinstance(atom, FloorDiv) or not isinstance(atom.divisor, int) or times % atom.divisor:
            continue
        for whole, divisor, left in known:
            apart = atom.numerator - whole
            if divisor == atom.divisor and isinstance(apart, Const):
                over = (left + apart.value) % divisor
                e = e + (atom.numerator - over) * (times // divisor) - atom * times
                break
    return e
