"""Are two expressions the same functions of the same elements? Walked side by side, at a point where some variables are fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from hlo.access import Condition
from hlo.module import Block, Op, Value
from hlo.registry import Fold, Literal
from hlo.types import element_type
from indexing.expr import Const, Expr, Interval, Var, as_expr, interval, simplify, substitute
from tiling.elements.folds import combined_function
from tiling.loops.domains.conditions import reduced
from tiling.loops.domains.iterations import Domain
from tiling.loops.element_ir import (
    Apply,
    Choose,
    IndexNode,
    Load,
    Node,
    Runtime,
    Scalar,
    Test,
    children,
    runtimes_of,
)
from tiling.loops.stage import is_inlinable
from tiling.proving.relations import Undecided, points_of, points_where

__all__ = [
    "COMMUTATIVE",
    "NOWHERE",
    "Comparison",
    "Point",
    "is_fold",
    "is_made_elsewhere",
    "same_body",
    "same_expression",
    "same_terms",
    "terms_of",
]

COMMUTATIVE = frozenset({"add", "multiply", "and", "or", "xor", "maximum", "minimum"})
Point = Mapping[Var, Expr]
NOWHERE: Point = {}


def same_expression(a: Node, b: Node, ranges: Mapping[Var, Interval]) -> bool:
    """Whether two nodes are the same functions of the same elements, for all values of their variables."""
    return Comparison(ranges, NOWHERE).same(a, b)


class Comparison:
    """Two expressions walked side by side; runtime variables correspond that are computed alike."""

    def __init__(
        self, ranges: Mapping[Var, Interval], at: Point, folded: Callable[[Load, Comparison], list[Node]] | None = None,
        within: Domain | None = None,
    ) -> None:  # fmt: skip
        self.ranges, self.at = ranges, at
        self.folded = folded  # the terms of a value that an op folds
        self.within = within  # the points at which expressions are compared, where they are not all of the variables' ranges
        self.settles: dict[Condition, bool | None] = {}
        self.names: dict[Var, Var] = {}
        self.known: dict[tuple[Node, Node], bool] = {}

    def index(self, e: object) -> Expr:
        return simplify(substitute(as_expr(e), self.at), self.ranges)  # type: ignore[arg-type]

    def equal(self, a: object, b: object) -> bool:
        x, y = self.index(a), substitute(self.index(b), self.names)
        return x is y or simplify(x - y, self.ranges) is Const(0)

    def same(self, a: Node, b: Node) -> bool:
        a, b = self.settled(a), self.settled(b)
        key = (a, b)
        if key not in self.known:
            self.known[key] = True  # graphs have no cycles: this is only read again once it is decided
            self.known[key] = self._same(a, b)
        return self.known[key]

    def _same(self, a: Node, b: Node) -> bool:
        mine, other = runtimes_of(a), runtimes_of(b)
        if len(mine) != len(other) or not all(self._runtime(x, y) for x, y in zip(mine, other, strict=True)):
            return False
        if isinstance(b, Load) and not (isinstance(a, Load) and a.value is b.value) and is_fold(b.value):
            return self._is_written_out(a, b)
        if isinstance(a, Load) and isinstance(b, Load):
            if a.value is not b.value:
                return False
            return a.buffer is not None or (
                len(a.index) == len(b.index) and all(self.equal(x, y) for x, y in zip(a.index, b.index, strict=True))
            )
        if isinstance(a, Apply) and isinstance(b, Apply):
            # A function and its cheaper form, where what is added to it hides the difference, are the same.
            names = [x.function.removeprefix("fast_") for x in (a, b)]
            alike = names[0] == names[1] and _alike(a.op, b.op) and len(a.arguments) == len(b.arguments)
            if alike and all(self.same(x, y) for x, y in zip(a.arguments, b.arguments, strict=True)):
                return True
            turned = names[0] in COMMUTATIVE and alike
            return turned and all(self.same(x, y) for x, y in zip(a.arguments, reversed(b.arguments), strict=True))
        if isinstance(a, (Scalar, IndexNode)) and isinstance(b, (Scalar, IndexNode)):
            return self._number(a, b)
        if isinstance(a, (Choose, Test)) and type(a) is type(b):
            assert isinstance(b, (Choose, Test))
            if not self._conditions(a.conditions, b.conditions):
                return False
            if isinstance(a, Choose) and isinstance(b, Choose):
                return self.same(a.then, b.then) and self.same(a.otherwise, b.otherwise)
            return True
        return False

    def _is_written_out(self, a: Node, b: Load) -> bool:
        """Whether an expression is a chain of all that an op folds for an element."""
        op = b.value.op
        function = combined_function(op.regions[0]) if op is not None and op.regions else None
        if function is None or self.folded is None:
            return False
        return same_terms(self, list(terms_of(a, function)), self.folded(b, self))

    def _number(self, a: Scalar | IndexNode, b: Scalar | IndexNode) -> bool:
        if a.element != b.element:
            return False
        if isinstance(a, IndexNode) and isinstance(b, IndexNode):
            return self.equal(a.expression, b.expression)
        values = [x.value if isinstance(x, Scalar) else self._constant(x) for x in (a, b)]
        return None not in values and np.asarray(values[0]).tobytes() == np.asarray(values[1]).tobytes()

    def _constant(self, n: IndexNode) -> np.generic | None:
        e = self.index(n.expression)
        return n.element.dtype.type(e.constant) if isinstance(e, Const) else None

    def _runtime(self, a: Runtime, b: Runtime) -> bool:
        if (a.lower, a.upper) != (b.lower, b.upper) or not self.same(a.node, b.node):
            return False
        return self.names.setdefault(b.variable, a.variable) is a.variable

    def _conditions(self, a: Sequence[Condition], b: Sequence[Condition]) -> bool:
        """The same conditions, but for those that hold in any case."""
        left = [d for d in b if not self._holds(d)]
        for c in (c for c in a if not self._holds(c)):
            found = next((d for d in left if self._condition(c, d)), None)
            if found is None:
                return False
            left.remove(found)
        return not left

    def _condition(self, c: Condition, d: Condition) -> bool:
        """The same condition, its expression perhaps shifted by a number, turned around, or without a common factor."""
        c = reduced(Condition(self.index(c.expression), c.lower, c.upper))
        d = reduced(Condition(substitute(self.index(d.expression), self.names), d.lower, d.upper))
        x, y = as_expr(c.expression), as_expr(d.expression)
        by = simplify(x - y, self.ranges)
        span = interval(x, self.ranges)
        mine = Interval(c.lower, c.upper).intersect(span)
        if isinstance(by, Const):
            return Interval(d.lower + by.constant, d.upper + by.constant).intersect(span) == mine
        total = simplify(x + y, self.ranges)
        return isinstance(total, Const) and Interval(total.constant - d.upper, total.constant - d.lower).intersect(span) == mine

    def is_padding(self, a: Node, b: Node) -> bool:
        """Whether a copy is read where the op reads no element: what the copy holds there is asked of the copy."""
        a, b = self.settled(a), self.settled(b)
        return isinstance(a, Load) and a.buffer is not None and isinstance(b, Scalar)

    def values(self, roots: Sequence[Node]) -> set[Value]:
        """The values that some expressions read at the point."""
        found: set[Value] = set()
        seen: set[Node] = set()
        stack = list(roots)
        while stack:
            n = self.settled(stack.pop())
            if n not in seen:
                seen.add(n)
                found |= {n.value} if isinstance(n, Load) else set()
                stack.extend(children(n))
        return found

    def settled(self, n: Node) -> Node:
        """The alternative that a choice takes at the point, where that is known."""
        while isinstance(n, Choose):
            held = [self._holds(c) for c in n.conditions]
            if False in held:
                n = n.otherwise
            elif None not in held:
                n = n.then
            else:
                return n
        if isinstance(n, Test):
            held = [self._holds(c) for c in n.conditions]
            if False in held or None not in held:
                return Scalar(np.bool_(False not in held), _BOOLEAN)
        return n

    def _holds(self, c: Condition) -> bool | None:
        b = interval(self.index(c.expression), self.ranges)
        if c.lower <= b.lower and b.upper <= c.upper:
            return True
        if b.upper < c.lower or c.upper < b.lower:
            return False
        if self.within is None:
            return None
        if c not in self.settles:
            self.settles[c] = self._holds_within(self.within, c)
        return self.settles[c]

    def _holds_within(self, d: Domain, c: Condition) -> bool | None:
        e = self.index(c.expression)
        if not set(d.ranges).issuperset(e.variables):
            return None
        points, held = points_of(d), points_where(d, [Condition(e, c.lower, c.upper)])
        if points.is_subset(held):
            return True
        return False if points.intersect(held).is_empty() else None


_BOOLEAN = element_type("i1")


def is_fold(v: Value) -> bool:
    return v.op is not None and isinstance(v.op.definition.semantics, Fold)


def is_made_elsewhere(v: Value) -> bool:
    """Whether a value is not computed where it is read: constants are, whose elements are all one number."""
    if v.op is None or is_inlinable(v.op) is not None:
        return True
    return isinstance(v.op.definition.semantics, Literal) and not v.op.attr("value").is_splat


def _alike(a: Op, b: Op) -> bool:
    """Whether two ops are one function of elements: they may be of tensors of other shapes."""
    if a is b:
        return True
    elements = [[v.tensor.element for v in (*op.operands, *op.results)] for op in (a, b)]
    return a.definition is b.definition and elements[0] == elements[1] and a.attributes == b.attributes


def same_body(a: Block, b: Block) -> bool:
    """Whether two bodies are the same ops on the same arguments."""
    if a is b:
        return True
    if len(a.ops) != len(b.ops) or len(a.arguments) != len(b.arguments):
        return False
    known: dict[Value, Value] = dict(zip(a.arguments, b.arguments, strict=True))
    for x, y in zip(a.ops, b.ops, strict=True):
        if x.definition is not y.definition or x.attributes != y.attributes or len(x.results) != len(y.results):
            return False
        if [known.get(v, v) for v in x.operands] != list(y.operands):
            return False
        known.update(zip(x.results, y.results, strict=True))
    return True


def terms_of(n: Node, function: str) -> Iterator[Node]:
    """What a chain of one function is made of; a conversion there and back is looked through."""
    stack = [n]
    while stack:
        x = stack.pop()
        if isinstance(x, Apply) and x.function == function:
            stack.extend(x.arguments)
        elif isinstance(x, Apply) and x.function == "convert" and isinstance(x.arguments[0], Apply):
            inner = x.arguments[0]
            if inner.function in (function, "convert"):
                stack.append(inner)
            else:
                yield x
        else:
            yield x


_Term = Scalar | tuple[object, ...]


def same_terms(compare: Comparison, found: Sequence[Node], wanted: Sequence[Node]) -> bool:
    """The same terms, but for constants that a fold may leave out or take again."""

    def counted(nodes: Sequence[Node]) -> Counter[_Term]:
        return Counter(t for n in nodes if not isinstance(t := _term(compare, n), Scalar))

    return counted(found) == counted(wanted)


def _argument(compare: Comparison, n: Node) -> object:
    made = _term(compare, n)
    if not isinstance(made, Scalar):
        return made
    return str(made.value) if isinstance(compare.settled(n), Scalar) else ("convert", str(made.value))


def _term(compare: Comparison, n: Node) -> _Term:
    """An expression at a point as what equals another one's that is the same; a constant is itself."""
    n = compare.settled(n)
    if isinstance(n, Scalar):
        return n
    if isinstance(n, Load):
        return n.value, tuple([compare.index(e) for e in n.index])
    if isinstance(n, Apply):
        if n.function == "convert":
            return _term(compare, n.arguments[0])
        return n.function, tuple([_argument(compare, a) for a in n.arguments])
    if isinstance(n, IndexNode):
        return "index", compare.index(n.expression)
    raise Undecided("an index that is known only at run time")
