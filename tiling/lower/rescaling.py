"""The online form of reductions that read a maximum over the same dimension: one pass, running results that are rescaled.

    m = max over j of x[j]      s = sum over j of f(x[j], m)

    m' = max(m, x[j] of the next block)      s' = s g(m, m') + sum over the block of f(x[j], m')

It is right where f(x, m') = f(x, m) g(m, m') for a g without x. Element expressions are brought into the form
f = (what has no m) exp(a h(m) + b x + ...), h being any function of the maximum alone (m itself, or m where it is finite and
else 0), for which g(m, m') = exp(a h(m') - a h(m)). Where m occurs in another way (a variance about a mean: (x - m)^2) the
quotient f(x, m') / f(x, m) keeps an x: there is no online form of this kind, and that is said.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import definition
from tiling.loops.element_ir import Apply, Load, Node, Scalar, all_nodes, children, constant, rebuild
from tiling.loops.same_node import same_node

__all__ = ["Rescaling", "apply", "rescaling_of"]


@dataclass(frozen=True)
class Rescaling:
    """f(x, m') = f(x, m) exp(slope h(m') - slope h(m)); `peak_is_one`: f is exp(x - m) and no more, so that it is 1 at x = m.

    `shift` is h(m), over loads of the maximum; None where h(m) = m.
    """

    slope: float
    peak_is_one: bool
    shift: Node | None = None

    @property
    def formula(self) -> str:
        """g in words."""
        m = "m" if self.shift is None else "h(m)"
        new = m.replace("m", "m'")
        return {-1.0: f"exp({m} - {new})", 0.0: "1"}.get(self.slope, f"exp({self.slope:g} ({new} - {m}))")

    def is_like(self, other: Rescaling) -> bool:
        """Whether both rescale by the same factor."""
        if self.shift is None or other.shift is None:
            return self.shift is other.shift and self.slope == other.slope
        return self.slope == other.slope and same_function(self.shift, other.shift)

    def _shifted(self, m: Node) -> Node:
        return m if self.shift is None else rebuild(self.shift, lambda load: m, tuple, {})

    def make(self, old: Node, new: Node, like: Value) -> Node:
        """g(old, new) for elements of the type of `like`."""
        if self.slope == 0.0:
            return constant(1.0, like)
        difference = apply("subtract", like, self._shifted(old), self._shifted(new))
        if self.slope != -1.0:
            difference = apply("multiply", like, difference, constant(-self.slope, like))
        return apply("exponential", like, difference)


def apply(function: str, like: Value, *arguments: Node) -> Apply:
    """A scalar function of nodes, all of the type of `like`."""
    op = Op(definition(f"stablehlo.{function}"), [like] * len(arguments), result_types=[like.type])
    return Apply(op, function, arguments)


def rescaling_of(node: Node, maximum: Value, folded: Node) -> Rescaling | Declined:
    """g for f = `node`, where m are the loads of `maximum` and `folded` is the node in f that the maximum runs over.

    >>> import hlo
    >>> m = hlo.parse("func.func @main(%x: tensor<f32>, %m: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }")
    >>> x, top = m.entry.arguments
    >>> element, greatest = Load(x, ()), Load(top, ())
    >>> difference = apply("subtract", x, element, greatest)
    >>> rescaling_of(apply("exponential", x, difference), top, element).formula
    "exp(m - m')"
    >>> rescaling_of(apply("multiply", x, difference, difference), top, element).reason
    'subtract of the maximum is no product of a part without it and exponentials: the running result cannot be rescaled'
    """
    try:
        algebra = _Algebra(maximum, folded)
        form = algebra.product(node)
    except LookupError as reason:
        return Declined(f"{reason}: the running result cannot be rescaled")
    if form.m == 0.0:
        return Rescaling(0.0, False)
    if form.x <= 0.0:
        return Declined("it does not vanish where the maximum's operand is -infinity: a row's start would count")
    plain = algebra.shift is None
    return Rescaling(form.m, plain and form.m == -1.0 and form.x == 1.0 and not form.others, algebra.shift)


def same_function(a: Node, b: Node) -> bool:
    """Whether two nodes are the same function of what they load, whatever the loads' indices."""
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if isinstance(x, Load) and isinstance(y, Load):
            if x.value is not y.value:
                return False
            continue
        if not (same_node(x, y) or (isinstance(x, Apply) and isinstance(y, Apply) and x.op is y.op)):
            return False
        stack.extend(zip(children(x), children(y), strict=True))
    return True


@dataclass(frozen=True)
class _Form:
    """(others) exp(m m + x x + (others)): the coefficients in the exponent, and whether anything else occurs."""

    m: float = 0.0
    x: float = 0.0
    others: bool = False

    def plus(self, other: _Form, sign: float = 1.0) -> _Form:
        return _Form(self.m + sign * other.m, self.x + sign * other.x, self.others or other.others)


class _Algebra:
    """Brings element expressions into the form of `_Form`; raises LookupError where the maximum occurs in another way."""

    def __init__(self, maximum: Value, folded: Node) -> None:
        self.maximum, self.folded = maximum, folded
        self.shift: Node | None = None  # h(m), where it is not m
        self.seen = False  # whether h is known

    def product(self, n: Node) -> _Form:
        if not self._reads_maximum(n):
            return _Form(others=True)
        function, arguments = (n.function, n.arguments) if isinstance(n, Apply) else ("a choice", ())
        if function in ("multiply", "divide"):
            return self.product(arguments[0]).plus(self.product(arguments[1]), 1.0 if function == "multiply" else -1.0)
        if function == "negate":
            return self.product(arguments[0]).plus(_Form(others=True))
        if function == "exponential":
            return self.sum(arguments[0])
        raise LookupError(f"{function} of the maximum is no product of a part without it and exponentials")

    def sum(self, n: Node) -> _Form:
        """An exponent: the coefficients of the maximum and of what it runs over."""
        if n is self.folded:
            return _Form(x=1.0)
        if self._is_of_maximum_alone(n):
            shift = None if isinstance(n, Load) else n
            if self.seen and not (shift is self.shift or (shift and self.shift and same_function(shift, self.shift))):
                raise LookupError("two functions of the maximum occur")
            self.shift, self.seen = shift, True
            return _Form(m=1.0)
        function, arguments = (n.function, n.arguments) if isinstance(n, Apply) else ("", ())
        if function in ("add", "subtract"):
            return self.sum(arguments[0]).plus(self.sum(arguments[1]), 1.0 if function == "add" else -1.0)
        if function == "negate":
            return _Form().plus(self.sum(arguments[0]), -1.0)
        if function in ("multiply", "divide") and isinstance(arguments[1], Scalar) and float(arguments[1].value) != 0.0:
            factor = float(arguments[1].value)
            return _Form().plus(self.sum(arguments[0]), factor if function == "multiply" else 1.0 / factor)
        if self._reads_maximum(n):
            raise LookupError(f"{function or 'a choice'} of the maximum is not linear in it")
        return _Form(others=True)

    def _is_of_maximum_alone(self, n: Node) -> bool:
        """True for m itself, and for what is made of m by functions that are no sums or multiples (those are taken apart)."""
        if isinstance(n, Load):
            return n.value is self.maximum
        linear = isinstance(n, Apply) and n.function in ("add", "subtract", "negate", "multiply", "divide")
        parts = list(all_nodes([n]))
        if linear or not isinstance(n, Apply) or any(k is self.folded for k in parts):
            return False
        found = [k for k in parts if isinstance(k, Load)]
        plain = all(isinstance(k, (Apply, Load, Scalar)) for k in parts)
        return plain and bool(found) and all(k.value is self.maximum for k in found)

    def _reads_maximum(self, n: Node) -> bool:
        return any(isinstance(k, Load) and k.value is self.maximum for k in all_nodes([n]))
