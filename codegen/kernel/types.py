"""The types of values in kernels: numbers, bools, buffers' base class, and numbers whose value is known.

    int64, float32, boolean, …     one object each
    literal(3)                     int64, and known to be 3; `unliteral` is the type without the value
    signature(result, *operands)   what a function takes and gives

A type is told from others by its name. (Numba's types of the same names mean the same; nothing of numba is loaded for these.)
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Boolean",
    "BooleanLiteral",
    "Complex",
    "Float",
    "Integer",
    "IntegerLiteral",
    "Literal",
    "NoneType",
    "Number",
    "Signature",
    "Type",
    "boolean",
    "complex64",
    "complex128",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "literal",
    "none",
    "signature",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unliteral",
]


class Type:
    """What a value is; types of one name are equal."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and other.name == self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


class NoneType(Type):
    """Of what is called for its effect."""

    __slots__ = ()


class Boolean(Type):
    __slots__ = ()


class Number(Type):
    __slots__ = ("bitwidth",)

    def __init__(self, name: str, bitwidth: int) -> None:
        super().__init__(name)
        self.bitwidth = bitwidth


class Integer(Number):
    __slots__ = ("signed",)

    def __init__(self, name: str, bitwidth: int, signed: bool) -> None:
        super().__init__(name, bitwidth)
        self.signed = signed


class Float(Number):
    __slots__ = ()


class Complex(Number):
    """`underlying_float` is the type of both parts."""

    __slots__ = ("underlying_float",)

    def __init__(self, name: str, underlying_float: Float) -> None:
        super().__init__(name, 2 * underlying_float.bitwidth)
        self.underlying_float = underlying_float


class Literal(Type):
    """Marks types whose value is known, `literal_value`."""

    __slots__ = ()
    literal_value: int


class IntegerLiteral(Integer, Literal):
    __slots__ = ("literal_value",)

    def __init__(self, value: int) -> None:
        super().__init__(f"Literal[int]({value})", 64, value < 1 << 63)
        self.literal_value = value


class IntegerLike(Integer):
    """An int64 that comes with the call: whatever it is, the code is the same as for `like`."""

    __slots__ = ("like",)

    def __init__(self, like: int) -> None:
        super().__init__(f"int64 like {like}", 64, True)
        self.like = like


class BooleanLiteral(Boolean, Literal):
    __slots__ = ("literal_value",)

    def __init__(self, value: bool) -> None:
        super().__init__(f"Literal[bool]({value})")
        self.literal_value = value


none = NoneType("none")
boolean = Boolean("bool")
int8, int16, int32, int64 = (Integer(f"int{n}", n, True) for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (Integer(f"uint{n}", n, False) for n in (8, 16, 32, 64))
float32, float64 = Float("float32", 32), Float("float64", 64)
complex64, complex128 = Complex("complex64", float32), Complex("complex128", float64)


def literal(value: bool | int) -> IntegerLiteral | BooleanLiteral:
    """The type of a number that is written in a kernel: an int64, or a uint64 where that is too small.

    Raises OverflowError for one that is neither.

    >>> literal(3), unliteral(literal(3)), literal(True) == literal(1)
    (Literal[int](3), int64, False)
    """
    if isinstance(value, bool):
        return BooleanLiteral(value)
    if not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(f"{value} is neither an int64 nor a uint64")
    return IntegerLiteral(value)


def unliteral(kind: Type) -> Type:
    """The type without what is known of its value."""
    if isinstance(kind, IntegerLiteral):
        return int64 if kind.signed else uint64
    return boolean if isinstance(kind, BooleanLiteral) else kind


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function gives for operands of which types; what it is called with is converted to these."""

    return_type: Type
    args: tuple[Type, ...]


def signature(result: Type, *operands: Type) -> Signature:
    """`Signature(result, operands)`.

    >>> signature(float32, float32, literal(8))
    Signature(return_type=float32, args=(float32, Literal[int](8)))
    """
    return Signature(result, operands)
