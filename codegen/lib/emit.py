"""``Value``: LLVM values with Python operators, the notation that every scalar function of the library is written in.

A ``Value`` wraps a builder and a scalar or vector LLVM value.  ``x * y + 1.5`` emits ``fmul`` and ``fadd`` without any
fast-math flag; Python numbers become constants (splatted for vectors).  Integers are signless as in LLVM: ``<`` and
``>>`` are the signed forms, ``ult`` and ``lshr`` the unsigned ones.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.target import current_target

F32 = ir.FloatType()
F64 = ir.DoubleType()
F16 = ir.HalfType()
I1 = ir.IntType(1)
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)


def element_type(kind: Any) -> Any:
    """The scalar type of a scalar or vector type."""
    return kind.element if isinstance(kind, ir.VectorType) else kind


def like(kind: Any, element: Any) -> Any:
    """``element``, in as many lanes as ``kind`` has."""
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element


def is_float(kind: Any) -> bool:
    """Whether a scalar or vector type holds floats."""
    return isinstance(element_type(kind), ir.FloatType | ir.DoubleType | ir.HalfType)


def constant(kind: Any, number: float) -> Any:
    """``number`` as a constant of ``kind``, rounded to its precision and splatted over its lanes."""
    element = element_type(kind)
    if isinstance(element, ir.FloatType):
        with np.errstate(over="ignore", under="ignore"):
            number = float(np.float32(number))
    elif isinstance(element, ir.IntType):
        width = element.width
        number = int(number) & ((1 << width) - 1)
        if width > 1 and number >> (width - 1):
            number -= 1 << width
    else:
        number = float(number)
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [ir.Constant(element, number)] * kind.count)
    return ir.Constant(kind, number)


@functools.cache
def order_of(lanes: tuple[int, ...]) -> Any:
    """The constant that tells a shuffle which lane goes where: written once, used for thousands of them.

    >>> order_of((1, 0)).get_reference()
    '<i32 1, i32 0>'
    """
    return ir.Constant(ir.VectorType(I32, len(lanes)), [ir.Constant(I32, k) for k in lanes])


def suffix(kind: Any) -> str:
    """The mangled type name inside an intrinsic's name: ``f32``, ``v16f32``, ``i64``."""
    element = element_type(kind)
    name = {"float": "f32", "double": "f64", "half": "f16"}.get(str(element), str(element))
    return f"v{kind.count}{name}" if isinstance(kind, ir.VectorType) else name


def intrinsic_function(module: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    """Declare (once for each module) the function ``name`` with an explicit type."""
    found = module.globals.get(name)
    if found is not None:
        return found
    return ir.Function(module, ir.FunctionType(result, list(arguments)), name)


def packed(b: Any, parts: Sequence[Any]) -> Any:
    """The parts of a complex number as one value."""
    made = ir.Constant(ir.LiteralStructType([p.type for p in parts]), ir.Undefined)
    for k, part in enumerate(parts):
        made = b.insert_value(made, part, k)
    return made


def unpacked(b: Any, value: Any) -> list[Any]:
    """The two parts of a complex number."""
    return [b.extract_value(value, k) for k in range(2)]


def with_code(wide: Value, name: str, code: Value) -> Value:
    """A number that was made of a narrow type's representation, which is what it has when it is stored."""
    wide.v.code = name, code.v
    return wide


def code_of(x: Value, name: str) -> Value | None:
    """The representation in a narrow type that a number was made of, bit for bit; None for what was computed."""
    known, code = getattr(x.v, "code", ("", None))
    return x.wrap(code) if known == name else None


def with_bounds(extreme: Value, name: str, bounds: Sequence[Value]) -> Value:
    """An extreme of numbers of a narrow type, which knows the bounds of their bits that it was made of.

    `name` tells the type and whether it is a maximum or a minimum, as the bounds of one say nothing of the other.
    """
    extreme.v.bounds = name, [x.v for x in bounds]
    return extreme


def bounds_of(x: Value, name: str) -> tuple[Value, ...] | None:
    """The bounds of bits that this extreme of a narrow type was made of; None for any other number."""
    known, bounds = getattr(x.v, "bounds", ("", ()))
    return tuple(map(x.wrap, bounds)) if known == name else None


def has_representation(value: Any) -> bool:
    """Whether an LLVM value knows its bits in a narrow type, or bounds of them."""
    return hasattr(value, "code") or hasattr(value, "bounds")


@contextlib.contextmanager
def counted(b: Any, count: Any) -> Iterator[Any]:
    """The code that the block writes, for each index in [0, count), an int64."""
    before = b.block
    head, body, after = (b.append_basic_block(name) for name in ("head", "body", "after"))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(ir.Constant(I64, 0), before)
    b.cbranch(b.icmp_signed("<", index, count), body, after)
    b.position_at_end(body)
    yield index
    index.add_incoming(b.add(index, ir.Constant(I64, 1), flags=["nsw"]), b.block)
    b.branch(head)
    b.position_at_end(after)


class Value:
    """One LLVM value; see the module's docstring for its operators."""

    __slots__ = ("b", "v")

    def __init__(self, builder: Any, value: Any) -> None:
        self.b = builder
        self.v = value

    @property
    def type(self) -> Any:
        """The LLVM type."""
        return self.v.type

    def wrap(self, value: Any) -> Value:
        """Another value of the same builder."""
        return Value(self.b, value)

    def const(self, number: float) -> Value:
        """A constant of this value's type."""
        return self.wrap(constant(self.type, number))

    def raw(self, other: Value | float) -> Any:
        """The LLVM value of ``other``, a Python number becoming a constant of this value's type."""
        return other.v if isinstance(other, Value) else constant(self.type, other)

    def _arith(self, float_op: str, int_op: str, other: Value | float, swap: bool = False) -> Value:
        a, c = self.v, self.raw(other)
        if swap:
            a, c = c, a
        return self.wrap(getattr(self.b, float_op if is_float(self.type) else int_op)(a, c))

    def __add__(self, o: Value | float) -> Value:
        return self._arith("fadd", "add", o)

    def __radd__(self, o: Value | float) -> Value:
        return self._arith("fadd", "add", o, swap=True)

    def __sub__(self, o: Value | float) -> Value:
        return self._arith("fsub", "sub", o)

    def __rsub__(self, o: Value | float) -> Value:
        return self._arith("fsub", "sub", o, swap=True)

    def __mul__(self, o: Value | float) -> Value:
        return self._arith("fmul", "mul", o)

    def __rmul__(self, o: Value | float) -> Value:
        return self._arith("fmul", "mul", o, swap=True)

    def __truediv__(self, o: Value | float) -> Value:
        return self.wrap(self.b.fdiv(self.v, self.raw(o)))

    def __rtruediv__(self, o: Value | float) -> Value:
        return self.wrap(self.b.fdiv(self.raw(o), self.v))

    def __neg__(self) -> Value:
        return self.wrap(self.b.fneg(self.v) if is_float(self.type) else self.b.neg(self.v))

    def __and__(self, o: Value | float) -> Value:
        return self.wrap(self.b.and_(self.v, self.raw(o)))

    def __or__(self, o: Value | float) -> Value:
        return self.wrap(self.b.or_(self.v, self.raw(o)))

    def __xor__(self, o: Value | float) -> Value:
        return self.wrap(self.b.xor(self.v, self.raw(o)))

    def __invert__(self) -> Value:
        return self.wrap(self.b.not_(self.v))

    def __lshift__(self, o: Value | float) -> Value:
        return self.wrap(self.b.shl(self.v, self.raw(o)))

    def __rshift__(self, o: Value | float) -> Value:
        return self.wrap(self.b.ashr(self.v, self.raw(o)))

    def lshr(self, o: Value | float) -> Value:
        """Logical shift right."""
        return self.wrap(self.b.lshr(self.v, self.raw(o)))

    def _compare(self, op: str, o: Value | float) -> Value:
        if is_float(self.type):
            # != is the one comparison that a NaN satisfies
            make = self.b.fcmp_unordered if op == "!=" else self.b.fcmp_ordered
            return self.wrap(make(op, self.v, self.raw(o)))
        return self.wrap(self.b.icmp_signed(op, self.v, self.raw(o)))

    def __lt__(self, o: Value | float) -> Value:
        return self._compare("<", o)

    def __le__(self, o: Value | float) -> Value:
        return self._compare("<=", o)

    def __gt__(self, o: Value | float) -> Value:
        return self._compare(">", o)

    def __ge__(self, o: Value | float) -> Value:
        return self._compare(">=", o)

    def eq(self, o: Value | float) -> Value:
        """self == o (false for NaN)."""
        return self._compare("==", o)

    def ne(self, o: Value | float) -> Value:
        """self != o (true for NaN)."""
        return self._compare("!=", o)

    def ult(self, o: Value | float) -> Value:
        """Unsigned <."""
        return self.wrap(self.b.icmp_unsigned("<", self.v, self.raw(o)))

    def ugt(self, o: Value | float) -> Value:
        """Unsigned >."""
        return self.wrap(self.b.icmp_unsigned(">", self.v, self.raw(o)))

    def is_nan(self) -> Value:
        """self != self."""
        return self.wrap(self.b.fcmp_unordered("uno", self.v, self.v))

    def cast(self, op: str, element: Any) -> Value:
        """Apply the LLVM conversion ``op`` (``sitofp``, ``bitcast``, ``zext``, …) to ``element`` in as many lanes."""
        return self.wrap(getattr(self.b, op)(self.v, like(self.type, element)))

    def bits(self) -> Value:
        """The representation of a float as an integer of the same width."""
        width = {"float": I32, "double": I64, "half": I16}[str(element_type(self.type))]
        return self.cast("bitcast", width)

    def as_float(self) -> Value:
        """The inverse of ``bits``."""
        width = {32: F32, 64: F64, 16: F16}[element_type(self.type).width]
        return self.cast("bitcast", width)


def call(name: str, *args: Value) -> Value:
    """Call the LLVM intrinsic ``llvm.<name>.<type>`` whose result and arguments all have the first argument's type."""
    first = args[0]
    kind = first.type
    fn = intrinsic_function(first.b.module, f"llvm.{name}.{suffix(kind)}", kind, [kind] * len(args))
    return first.wrap(first.b.call(fn, [a.v for a in args]))


def select(condition: Value, a: Value | float, b: Value | float) -> Value:
    """condition ? a : b.  At least one of a and b is a Value."""
    model = a if isinstance(a, Value) else b
    assert isinstance(model, Value)
    return model.wrap(model.b.select(condition.v, model.raw(a), model.raw(b)))


def mul_add(a: Value, b: Value | float, c: Value | float) -> Value:
    """a * b + c, fused where the target has an fma instruction and in two roundings where it has not."""
    b = b if isinstance(b, Value) else a.const(b)
    c = c if isinstance(c, Value) else a.const(c)
    return call("fma", a, b, c) if current_target().has_fma else a * b + c


def rounded_once(a: Value, b: Value | float, c: Value | float) -> Value:
    """a * b + c with the error of one rounding on every target, for finite a and b.

    Where an fma instruction is missing, what product and sum lose is computed and added: some twenty operations. It is for
    the steps that decide a function's error; the others take `mul_add`.
    """
    b = b if isinstance(b, Value) else a.const(b)
    c = c if isinstance(c, Value) else a.const(c)
    if current_target().has_fma:
        return call("fma", a, b, c)
    product, lost = two_product(a, b)
    total, rest = two_sum(product, c)
    return total + (rest + lost)


def horner(x: Value, coefficients: Sequence[float], precise: int = 0) -> Value:
    """sum(coefficients[k] * x**k) by mul_add; for f64 from nine terms on as two Horner chains in x**2.

    Two chains halve the latency, which is what bounds a loop over a long formula: few of its iterations fit into the CPU's
    scheduler at once.  In f32 they were measured to gain nothing and to cost a tenth of an ulp. The last ``precise`` steps
    are rounded once on every target.
    """
    if len(coefficients) < 9 or str(element_type(x.type)) == "float":
        return _chain(x, coefficients, precise)
    square = x * x
    step = rounded_once if precise else mul_add
    odd, even = (_chain(square, coefficients[first::2], precise - 1) for first in (1, 0))
    return step(x, odd, even)


def _chain(x: Value, coefficients: Sequence[float], precise: int) -> Value:
    total = x.const(coefficients[-1])
    for k in reversed(range(len(coefficients) - 1)):
        total = (rounded_once if k < precise else mul_add)(total, x, coefficients[k])
    return total


def fabs(x: Value) -> Value:
    """|x|, the sign bit cleared."""
    return call("fabs", x)


def copysign(magnitude: Value, sign: Value) -> Value:
    """|magnitude| with the sign bit of ``sign``."""
    return call("copysign", magnitude, sign)


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """(s, e) with s = fl(a + b) and s + e = a + b exactly."""
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def quick_two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """(s, e) as ``two_sum``, for |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Value, b: Value) -> tuple[Value, Value]:
    """(p, e) with p = fl(a b) and p + e = a b exactly, barring overflow; Veltkamp's splitting stands in for a missing fma."""
    p = a * b
    if current_target().has_fma:
        return p, call("fma", a, b, -p)
    ah, al = _split(a)
    bh, bl = _split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _split(a: Value) -> tuple[Value, Value]:
    """a = high + low with half of the significand's bits each."""
    mask = ~0xFFF if str(element_type(a.type)) == "float" else ~0x7FFFFFF
    high = (a.bits() & mask).as_float()
    return high, a - high
