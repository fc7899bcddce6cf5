"""Arithmetic on values under construction, so that a decomposition reads like its formula."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.builder import Builder
from hlo.module import Value
from hlo.types import ELEMENT_TYPES, ElementType, TensorType

__all__ = ["Expression", "Number", "copysign", "maximum", "minimum", "power", "where"]


class Expression:
    """A value, and the builder that its uses go to. Python numbers beside it become constants of its type."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder = builder
        self.value = value

    @property
    def type(self) -> TensorType:
        return self.value.tensor

    @property
    def element(self) -> ElementType:
        e = self.type.element
        assert isinstance(e, ElementType)
        return e

    def lift(self, other: Number) -> Expression:
        """A number as a constant of this value's type; an expression as it is."""
        return other if isinstance(other, Expression) else Expression(self.builder, self.builder.like(other, self.value))

    def apply(self, op: str, *others: Number, **attributes: object) -> Expression:
        """The op on this value and others of its type."""
        values = [self.value, *(self.lift(o).value for o in others)]
        return Expression(self.builder, self.builder.one(op, *values, **attributes))

    def unary(self, name: str) -> Expression:
        """stablehlo.<name> of this value."""
        return self.apply(f"stablehlo.{name}")

    def to(self, element: ElementType | str) -> Expression:
        """Converted, where the type differs."""
        wanted = ELEMENT_TYPES[element] if isinstance(element, str) else element
        if wanted == self.element:
            return self
        made = TensorType(self.type.shape, wanted, self.type.bounds)
        return Expression(self.builder, self.builder.emit("stablehlo.convert", (self.value,), {}, (), [made])[0])

    def bits(self, element: str) -> Expression:
        """The same bits as a type of the same width."""
        made = TensorType(self.type.shape, ELEMENT_TYPES[element], self.type.bounds)
        return Expression(self.builder, self.builder.emit("stablehlo.bitcast_convert", (self.value,), {}, (), [made])[0])

    def __add__(self, other: Number) -> Expression:
        return self.apply("stablehlo.add", other)

    def __radd__(self, other: Number) -> Expression:
        return self.lift(other) + self

    def __sub__(self, other: Number) -> Expression:
        return self.apply("stablehlo.subtract", other)

    def __rsub__(self, other: Number) -> Expression:
        return self.lift(other) - self

    def __mul__(self, other: Number) -> Expression:
        return self.apply("stablehlo.multiply", other)

    def __rmul__(self, other: Number) -> Expression:
        return self.lift(other) * self

    def __truediv__(self, other: Number) -> Expression:
        return self.apply("stablehlo.divide", other)

    def __rtruediv__(self, other: Number) -> Expression:
        return self.lift(other) / self

    def __neg__(self) -> Expression:
        return self.unary("negate")

    def __abs__(self) -> Expression:
        return self.unary("abs")

    def __and__(self, other: Number) -> Expression:
        return self.apply("stablehlo.and", other)

    def __or__(self, other: Number) -> Expression:
        return self.apply("stablehlo.or", other)

    def __invert__(self) -> Expression:
        return self.unary("not")

    def __rshift__(self, other: int) -> Expression:
        name = "arithmetic" if self.element.is_signed else "logical"
        return self.apply(f"stablehlo.shift_right_{name}", other)

    def compare(self, direction: str, other: Number) -> Expression:
        """Booleans: self <direction> other."""
        return self.apply("stablehlo.compare", other, comparison_direction=direction)

    def __lt__(self, other: Number) -> Expression:
        return self.compare("LT", other)

    def __le__(self, other: Number) -> Expression:
        return self.compare("LE", other)

    def __gt__(self, other: Number) -> Expression:
        return self.compare("GT", other)

    def __ge__(self, other: Number) -> Expression:
        return self.compare("GE", other)

    def eq(self, other: Number) -> Expression:
        """Booleans: where both are equal."""
        return self.compare("EQ", other)

    def is_nan(self) -> Expression:
        """Booleans: where this is not equal to itself."""
        return self.compare("NE", self)

    def parts(self) -> tuple[Expression, Expression]:
        """(real part, imaginary part)."""
        return self.unary("real"), self.unary("imag")

    def polynomial(self, coefficients: Sequence[float]) -> Expression:
        """sum of coefficients[n] * self**n, by Horner's scheme."""
        total = self.lift(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = total * self + c
        return total

    def chebyshev(self, coefficients: Sequence[float]) -> Expression:
        """sum of coefficients[n] * T_n(self) for self in [-1, 1], by Clenshaw's recurrence."""
        last, before = self.lift(0.0), self.lift(0.0)
        for c in reversed(coefficients[1:]):
            last, before = 2 * self * last - before + c, last
        return self * last - before + coefficients[0]


Number = Expression | int | float | complex


def where(condition: Expression, yes: Number, no: Number) -> Expression:
    """yes where the condition holds, else no; one of them is an expression."""
    of = yes if isinstance(yes, Expression) else no
    assert isinstance(of, Expression)
    values = condition.value, of.lift(yes).value, of.lift(no).value
    return Expression(of.builder, of.builder.one("stablehlo.select", *values))


def minimum(x: Expression, y: Number) -> Expression:
    """The smaller; NaN if either is."""
    return x.apply("stablehlo.minimum", y)


def maximum(x: Expression, y: Number) -> Expression:
    """The larger; NaN if either is."""
    return x.apply("stablehlo.maximum", y)


def power(x: Expression, y: Number) -> Expression:
    """x to the power of y."""
    return x.apply("stablehlo.power", y)


def copysign(magnitude: Expression, x: Expression) -> Expression:
    """|magnitude| with the sign of x, a number of f64; the sign of zeros counts."""
    negative = x.bits("i64") < 0
    size = abs(magnitude)
    return where(negative, -size, size)


def of_parts(re: Expression, im: Expression) -> Expression:
    """re + i im."""
    return re.apply("stablehlo.complex", im)
