"""An element's expression at one index, as a pattern for the same at all others: what a box changes of it is where it loads.

    at d0, d1    f(x[d0, d1], b[d1])
    at t0 * 8 + i0, i1    f(x[t0 * 8 + i0, i1], b[i1])

The maps of all edges in between are composed once, for any index. What a box decides is decided where the pattern is used: which
conditions of a read hold, whether any does, what a scalar function of index numbers becomes. It is as `ElementBuilder` decides.
There is no pattern where something is known at run time only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hlo.access import Condition
from hlo.errors import Declined
from hlo.module import DenseArray, Op, Value
from hlo.registry import Elementwise, Generate, Literal, Move
from hlo.types import ElementType
from indexing.deriving.edges import EdgeMaps
from indexing.expr import Const, Expr, Interval, Var, as_expr, interval, simplify, substitute
from tiling.elements.multiples import at_multiples
from tiling.elements.rules import simplify_node, wrapped
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Scalar

__all__ = ["Template", "template_of"]

_Index = tuple[Expr, ...]
_Conditions = tuple[tuple[Expr, Interval], ...]  # expressions, and where they have to be


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of a value in memory."""

    value: Value
    index: _Index


@dataclass(frozen=True, slots=True)
class _Number:
    """What an op makes of the index itself."""

    op: Op
    index: _Index
    element: ElementType


@dataclass(frozen=True, slots=True)
class _Function:
    """A scalar function of nodes, which are given by their places."""

    op: Op
    name: str
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Reads:
    """The node, given by its place, of the first read whose conditions hold: (expression, interval) of each read."""

    reads: tuple[tuple[_Conditions, int], ...]


_Part = Scalar | _Element | _Number | _Function | _Reads


@dataclass(frozen=True, eq=False)
class Template:
    """An element's nodes, operands first, at the index `dims`."""

    dims: tuple[Var, ...]
    parts: tuple[_Part, ...]

    def at(self, index: Sequence[Expr], ranges: Mapping[Var, Interval]) -> Node:
        """The element at `index`, whose variables are in `ranges`."""
        use = _Use(dict(zip(self.dims, [simplify(e, ranges) for e in index], strict=True)), ranges)
        made: dict[int, Node] = {}
        held: dict[int, list[tuple[tuple[Condition, ...], int]]] = {}
        todo = [len(self.parts) - 1]
        while todo:
            k = todo[-1]
            part = self.parts[k]
            if k in made:
                todo.pop()
                continue
            if isinstance(part, _Function):
                below: Sequence[int] = part.arguments
            elif isinstance(part, _Reads):
                if k not in held:
                    held[k] = use.held(part)
                below = [n for _, n in held[k]]
            else:
                below = ()
            missing = [n for n in below if n not in made]
            if missing:
                todo += missing
                continue
            todo.pop()
            made[k] = use.chosen(held[k], made) if isinstance(part, _Reads) else use.node(part, made)
        return made[len(self.parts) - 1]


class _Use:
    """A pattern at one index: what is the same there is one node."""

    def __init__(self, place: Mapping[Var, Expr], ranges: Mapping[Var, Interval]) -> None:
        self.place, self.ranges = place, ranges
        self._parts: dict[Expr, Expr] = {}
        self._placed: dict[Expr, Expr] = {}
        self._nodes: dict[object, Node] = {}

    def _at(self, e: Expr) -> Expr:
        if type(e) is Var:
            return self.place[e]
        known = self._placed.get(e)
        if known is None:
            known = self._placed[e] = simplify(substitute(e, self.place, self._parts), self.ranges)
        return known

    def held(self, part: _Reads) -> list[tuple[tuple[Condition, ...], int]]:
        """The reads that take place for some index, with the conditions that do not hold for all."""
        found = []
        for conditions, k in part.reads:
            held: list[Condition] = []
            for c, span in conditions:
                e = self._at(c)
                bounds = interval(e, self.ranges)
                if bounds.lower > span.upper or bounds.upper < span.lower:
                    break
                if not span.covers(bounds):
                    held.append(Condition(e, span.lower, span.upper))
            else:
                found.append((tuple(held), k))
        return found

    def chosen(self, held: Sequence[tuple[tuple[Condition, ...], int]], made: Mapping[int, Node]) -> Node:
        """The last read is what stays when no condition holds."""
        result = made[held[-1][1]]
        for conditions, k in reversed(held[:-1]):
            if not conditions:
                result = made[k]
                continue
            then = self._one((conditions, made[k]), at_multiples, made[k], conditions, self._load)
            result = self._one((conditions, then, result), Choose, conditions, then, result)
        return result

    def node(self, part: Scalar | _Element | _Number | _Function, made: Mapping[int, Node]) -> Node:
        if isinstance(part, Scalar):
            return part
        if isinstance(part, _Element):
            return self._load(part.value, tuple([self._at(e) for e in part.index]))
        if isinstance(part, _Number):
            semantics = part.op.definition.semantics
            assert isinstance(semantics, Generate)
            number = simplify(as_expr(semantics.value(part.op, tuple([self._at(e) for e in part.index]))), self.ranges)
            number = wrapped(number, part.element, self.ranges)
            return self._one((number, part.element), IndexNode, number, part.element)
        arguments = tuple([made[k] for k in part.arguments])
        key = part.op, part.name, arguments
        known = self._nodes.get(key)
        if known is None:
            known = self._nodes[key] = simplify_node(Apply(part.op, part.name, arguments), self.ranges)
        return known

    def _load(self, v: Value, where: tuple[Expr, ...]) -> Node:
        return self._one((v, where), Load, v, where)

    def _one(self, key: object, make: Callable[..., Node], *parts: object) -> Node:
        known = self._nodes.get(key)
        if known is None:
            known = self._nodes[key] = make(*parts)
        return known


def template_of(root: Value, dims: Sequence[Var], is_in_memory: Callable[[Value], bool], edges: EdgeMaps) -> Template | None:
    """The pattern of the elements of `root`; None where something is known at run time only, or is not computed in place."""
    trace = _Trace(is_in_memory, edges)
    try:
        trace.at(root, tuple(dims))
    except LookupError:
        return None
    return Template(tuple(dims), tuple(trace.parts))


_Key = tuple[Value, _Index]


class _Trace:
    def __init__(self, is_in_memory: Callable[[Value], bool], edges: EdgeMaps) -> None:
        self.is_in_memory, self.edges = is_in_memory, edges
        self.parts: list[_Part] = []
        self._places: dict[_Key, int] = {}

    def at(self, root: Value, dims: _Index) -> None:
        """Writes down the parts of root[dims], operands first."""
        todo: list[_Key] = [(root, dims)]
        reads: dict[_Key, list[tuple[_Conditions, _Key]]] = {}
        while todo:  # an explicit stack: chains of thousands of ops are no exception
            key = todo[-1]
            if key in self._places:
                todo.pop()
                continue
            known = self._leaf(*key)
            if known is None:
                if key not in reads:
                    reads[key] = self._reads(*key)
                missing = [k for _, k in reads[key] if k not in self._places]
                if missing:
                    todo += missing
                    continue
                known = self._inner(key[0], reads[key])
            todo.pop()
            self._places[key] = known

    def _put(self, part: _Part) -> int:
        self.parts.append(part)
        return len(self.parts) - 1

    def _leaf(self, v: Value, where: _Index) -> int | None:
        if v.op is None or self.is_in_memory(v):
            return self._put(_Element(v, where))
        semantics, element = v.op.definition.semantics, v.tensor.element
        if isinstance(semantics, Literal) and isinstance(element, ElementType):
            dense: DenseArray = v.op.attr("value")
            if dense.is_splat:
                return self._put(Scalar(dense.array.reshape(-1)[0], element))
        if isinstance(semantics, Generate) and isinstance(element, ElementType):
            return self._put(_Number(v.op, where, element))
        return None

    def _reads(self, v: Value, where: _Index) -> list[tuple[_Conditions, _Key]]:
        op = v.op
        assert op is not None
        if not isinstance(op.definition.semantics, (Elementwise, Move)):
            raise LookupError(f"{op.name} is not computed where it is read")
        edges = self.edges.of(op, v.index)
        if isinstance(edges, Declined):
            raise LookupError(edges.reason)
        if edges.ranges or edges.runtimes:
            raise LookupError(f"{op.name} reads what is known at run time")
        at: dict[Var, Expr] = dict(zip(edges.dim_vars, where, strict=True))
        parts: dict[Expr, Expr] = {}
        # Parts of one element along a dimension are read at one place each. Where a remainder tells which part it is, loops are
        # split later: until then what the parts share would be weighed as if all of them computed it. (Beside a longer part its
        # address stays like that one's: a loop chooses between the two without a jump.)
        ones = [{c: Const(s.lower) for c, s in e.map.constraints if s.lower == s.upper and type(c) is Var} for e in edges.reads]
        found = []
        for e, one in zip(edges.reads, ones, strict=True):
            conditions = tuple([(_placed(c, at, parts), span) for c, span in e.conditions])
            known: dict[Var, Expr] = {c: k for c, k in one.items() if type(at[c]) is Var} if all(ones) else {}
            there, own = ({**at, **known}, dict[Expr, Expr]()) if known else (at, parts)
            index = where if e.is_identity else tuple([_placed(x, there, own) for x in e.map.results])
            found.append((conditions, (op.operands[e.operand], index)))
        return found

    def _inner(self, v: Value, reads: Sequence[tuple[_Conditions, _Key]]) -> int:
        op = v.op
        assert op is not None
        semantics = op.definition.semantics
        if isinstance(semantics, Elementwise):
            return self._put(_Function(op, semantics.function, tuple([self._places[k] for _, k in reads])))
        if len(reads) == 1:  # moved, and nothing else
            return self._places[reads[0][1]]
        return self._put(_Reads(tuple([(conditions, self._places[k]) for conditions, k in reads])))


def _placed(e: Expr, at: Mapping[Var, Expr], known: dict[Expr, Expr]) -> Expr:
    if type(e) is Var:
        return at[e]
    return simplify(substitute(e, at, known), _ANYWHERE) if e.terms else e


_ANYWHERE: Mapping[Var, Interval] = {}
"""A variable without a range counts as any index."""
