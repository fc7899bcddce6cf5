"""Comparison, choice, bit and conversion ops of generated source; the conventions are those of ``codegen.lib.scalar``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import signature
from codegen.lib import complexes
from codegen.lib.convert import float_to_int, int_width
from codegen.lib.emit import F32, F64, I1, Value, call, fabs, intrinsic_function, packed, suffix
from codegen.lib.emit import select as choose
from codegen.lib.register import define, kind_of, register

# ------------------------------------------------------------------ choice and comparison


def select(condition: Any, x: Any, y: Any) -> Any:
    """condition ? x : y, both evaluated."""
    return x if condition else y


def _select_complex(kind: Any, c: Value, x: Value, y: Value) -> Value:
    return complexes.pack(complexes.choose(c, complexes.unpack(x), complexes.unpack(y)))


define(select, 3, {"fiub": lambda kind, c, x, y: choose(c, x, y), "c": _select_complex}, free=(0,))


def _comparison(name: str, op: str, python: Callable[[Any, Any], Any]) -> Any:
    def function(x: Any, y: Any) -> Any:
        return np.bool_(python(x, y))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"x {op} y; false if either is NaN, except that != is true. Complex numbers: by real part, then by imaginary part."
    )
    unsigned: Callable[..., Value] = lambda k, x, y: x.wrap(x.b.icmp_unsigned(op, x.v, y.v))  # noqa: E731
    define(
        function,
        2,
        {"fi": lambda k, x, y: x._compare(op, y), "ub": unsigned, "c": complexes.COMPLEX[name]},
        result=lambda kind: types.boolean,
    )
    return function


eq = _comparison("eq", "==", operator.eq)
ne = _comparison("ne", "!=", operator.ne)
lt = _comparison("lt", "<", operator.lt)
le = _comparison("le", "<=", operator.le)
gt = _comparison("gt", ">", operator.gt)
ge = _comparison("ge", ">=", operator.ge)


def total_order_key(x: Any) -> Any:
    """An integer of x's width that orders as IEEE's totalOrder does: -NaN < -inf < … < -0 < +0 < … < +inf < +NaN."""
    bits = np.asarray(x).view(f"int{8 * np.asarray(x).dtype.itemsize}")[()]
    return bits if bits >= 0 else bits ^ np.iinfo(bits.dtype).max


def _order_key(kind: Any, x: Value) -> Value:
    bits = x.bits()
    width = int_width(bits)
    key: Value = bits ^ ((bits >> (width - 1)) & (2 ** (width - 1) - 1))
    return key


def _same_width(kind: Any) -> Any:
    return types.int32 if kind.bitwidth == 32 else types.int64


define(total_order_key, 1, {"f": _order_key}, result=_same_width)


def max_key(x: Any) -> Any:
    """``total_order_key`` with every NaN above all numbers: the largest key is that of the numbers' ``maximum``.

    >>> key_float(max(max_key(np.float32(v)) for v in (-0.0, 0.0, -3.0))).item()
    0.0
    """
    key = total_order_key(x)
    return key if x == x else key.dtype.type(np.iinfo(key.dtype).max)


def min_key(x: Any) -> Any:
    """``total_order_key`` with every NaN below all numbers: the smallest key is that of the numbers' ``minimum``."""
    key = total_order_key(x)
    return key if x == x else key.dtype.type(np.iinfo(key.dtype).min)


def key_float(key: Any) -> Any:
    """The float with this ``total_order_key``; a NaN for the keys that stand for NaN.

    >>> key_float(total_order_key(np.float32(-2.5))).item()
    -2.5
    """
    bits = key if key >= 0 else key ^ np.iinfo(key.dtype).max
    return np.asarray(bits).view(f"float{8 * np.asarray(key).dtype.itemsize}")[()]


def _key_of_nan(largest: bool) -> Callable[..., Value]:
    def emit(kind: Any, x: Value) -> Value:
        key = _order_key(kind, x)
        most = 2 ** (int_width(key) - 1) - 1
        return choose(x.is_nan(), key.const(most if largest else -most - 1), key)

    return emit


define(max_key, 1, {"f": _key_of_nan(True)}, result=_same_width)
define(min_key, 1, {"f": _key_of_nan(False)}, result=_same_width)
define(
    key_float,
    1,
    {"i": lambda kind, k: (k ^ ((k >> (int_width(k) - 1)) & (2 ** (int_width(k) - 1) - 1))).as_float()},
    result=lambda kind: types.float32 if kind.bitwidth == 32 else types.float64,
)



def signed_bits(x: Any) -> Any:
    """A float's bits as a signed integer: those of floats >= +0 order as the floats do, all others are negative."""
    return np.asarray(x).view(f"int{8 * np.asarray(x).dtype.itemsize}")[()]


def unsigned_bits(x: Any) -> Any:
    """A float's bits as an unsigned integer: floats <= -0 come last, in falling order."""
    return np.asarray(x).view(f"uint{8 * np.asarray(x).dtype.itemsize}")[()]


define(signed_bits, 1, {"f": lambda kind, x: x.bits()}, result=_same_width)
define(
    unsigned_bits,
    1,
    {"f": lambda kind, x: x.bits()},
    result=lambda kind: types.uint32 if kind.bitwidth == 32 else types.uint64,
)


def has_sign(bits: Any) -> Any:
    """Whether the highest of a float's bits, as an unsigned integer, is set."""
    return bool(bits >> (8 * np.asarray(bits).dtype.itemsize - 1))


define(has_sign, 1, {"u": lambda kind, x: x < 0}, result=lambda kind: types.boolean)


def maximum_of_bounds(top: Any, last: Any, first: Any) -> Any:
    """The ``maximum`` of floats: of all their bits, the greatest signed, the greatest and the least unsigned integer.

    A NaN without a sign is the greatest signed one, a NaN with a sign the greatest unsigned one. Where no float is >= +0 the
    largest has the least bits.

    >>> b = np.array([-3.0, -2.0], np.float32)
    >>> maximum_of_bounds(b.view("i4").max(), b.view("u4").max(), b.view("u4").min()).item()
    -2.0
    """
    return _of_bounds(top, last, top if top >= 0 else first)


def minimum_of_bounds(top: Any, last: Any, first: Any) -> Any:
    """The ``minimum`` of floats, from the same bounds as ``maximum_of_bounds``: with a sign the greatest, else the least bits."""
    return _of_bounds(top, last, first if last < 2 ** (8 * last.dtype.itemsize - 1) else last)


def _of_bounds(top: Any, last: Any, found: Any) -> Any:
    floats, integers = f"float{8 * last.dtype.itemsize}", f"uint{8 * last.dtype.itemsize}"
    numbers = [np.asarray(v).astype(integers).view(floats)[()] for v in (last, top, found)]
    return next((x for x in numbers if x != x), numbers[-1])


def _bounds(largest: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def emit(top: Value, last: Value, first: Value) -> Value:
        found = choose(top < 0, first, top) if largest else choose(last < 0, last, first)
        for bound in (top, last):
            found = choose(bound.as_float().is_nan(), bound, found)
        return found.as_float()

    def typer(*args: Any) -> Any:
        if len(args) != 3 or any(kind_of(a) != k for a, k in zip(args, "iuu", strict=True)):
            return None
        return signature(types.float32 if args[0].bitwidth == 32 else types.float64, *args)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(*[Value(builder, a) for a in args]).v

    return typer, lower


register(maximum_of_bounds, *_bounds(True))
register(minimum_of_bounds, *_bounds(False))

# ------------------------------------------------------------------ bits


def bit_and(x: Any, y: Any) -> Any:
    """x & y, also of bools."""
    return x & y


def bit_or(x: Any, y: Any) -> Any:
    """x | y, also of bools."""
    return x | y


def bit_xor(x: Any, y: Any) -> Any:
    """x ^ y, also of bools."""
    return x ^ y


def bit_not(x: Any) -> Any:
    """~x; ``not`` of a bool."""
    return np.bool_(not x) if isinstance(x, np.bool_ | bool) else ~x


define(bit_and, 2, {"iub": lambda k, x, y: x & y})
define(bit_or, 2, {"iub": lambda k, x, y: x | y})
define(bit_xor, 2, {"iub": lambda k, x, y: x ^ y})
define(bit_not, 1, {"iub": lambda k, x: ~x})


def _shift_python(x: Any, y: Any, move: Callable[[int, int], int], fill: Callable[[int], int]) -> Any:
    width = 8 * np.asarray(x).dtype.itemsize
    value = fill(int(x)) if not 0 <= int(y) < width else move(int(x), int(y))
    return np.array([value & (2**64 - 1)], np.uint64).astype(np.asarray(x).dtype)[0]


def shift_left(x: Any, y: Any) -> Any:
    """x 2**y modulo 2**width; 0 when y (read as unsigned) reaches the width."""
    return _shift_python(x, y, lambda a, n: a << n, lambda a: 0)


def shift_right_logical(x: Any, y: Any) -> Any:
    """x shifted right with zeros coming in; 0 when y (read as unsigned) reaches the width."""
    mask = (1 << 8 * np.asarray(x).dtype.itemsize) - 1
    return _shift_python(x, y, lambda a, n: (a & mask) >> n, lambda a: 0)


def shift_right_arithmetic(x: Any, y: Any) -> Any:
    """x shifted right with copies of its top bit; all of them when y (read as unsigned) reaches the width."""
    width = 8 * np.asarray(x).dtype.itemsize

    def signed(a: int) -> int:
        return a - (1 << width) if a >= 0 and a >> (width - 1) else a

    return _shift_python(x, y, lambda a, n: signed(a) >> n, lambda a: -1 if signed(a) < 0 else 0)


def _shift(op: str) -> Callable[..., Value]:
    def emit(kind: Any, x: Value, y: Value) -> Value:
        width = int_width(x)
        inside = y.ult(width)
        safe = choose(inside, y, y.const(0))
        if op == "ashr":
            return x.wrap(x.b.ashr(x.v, choose(inside, y, y.const(width - 1)).v))
        return choose(inside, x.wrap(getattr(x.b, op)(x.v, safe.v)), x.const(0))

    return emit


define(shift_left, 2, {"iu": _shift("shl")})
define(shift_right_logical, 2, {"iu": _shift("lshr")})
define(shift_right_arithmetic, 2, {"iu": _shift("ashr")})


def popcnt(x: Any) -> Any:
    """The number of one bits."""
    width = 8 * np.asarray(x).dtype.itemsize
    return np.asarray(x).dtype.type((int(x) & ((1 << width) - 1)).bit_count())


def count_leading_zeros(x: Any) -> Any:
    """The zero bits above the highest one bit; the width for 0."""
    width = 8 * np.asarray(x).dtype.itemsize
    return np.asarray(x).dtype.type(width - (int(x) & ((1 << width) - 1)).bit_length())


def _clz(kind: Any, x: Value) -> Value:
    fn = intrinsic_function(x.b.module, f"llvm.ctlz.{suffix(x.type)}", x.type, [x.type, I1])
    return x.wrap(x.b.call(fn, [x.v, ir.Constant(I1, 0)]))


define(popcnt, 1, {"iu": lambda k, x: call("ctpop", x)})
define(count_leading_zeros, 1, {"iu": _clz})

# ------------------------------------------------------------------ conversions


def _to_number(value: Any, target: Any) -> Any:
    """``value`` converted to the NumPy type ``target`` by the rules of ``convert``."""
    source = np.asarray(value)
    if source.dtype.kind == "c" and np.dtype(target).kind != "c":
        source = source.real
    if np.dtype(target).kind in "iu" and source.dtype.kind == "f":
        limits = np.iinfo(target)
        number = float(source)
        if number != number:
            return np.dtype(target).type(0)
        clipped = limits.min if number <= limits.min else limits.max if number >= limits.max else int(number)
        return np.dtype(target).type(clipped)
    with np.errstate(all="ignore"):
        return source.astype(target)[()]


def _emit_number(value: Value, source: Any, target: Any) -> Value:
    """Convert between real types (no complex)."""
    have, want = kind_of(source), kind_of(target)
    if want == "b":
        return value.ne(0.0) if have == "f" else value.ne(0)
    if want == "f":
        element = F32 if target.bitwidth == 32 else F64
        if have == "f":
            if source.bitwidth == target.bitwidth:
                return value
            return value.cast("fpext" if target.bitwidth > source.bitwidth else "fptrunc", element)
        return value.cast("sitofp" if have == "i" else "uitofp", element)
    if have == "f":
        return float_to_int(value, target.bitwidth, target.signed)
    width = 1 if have == "b" else source.bitwidth
    if target.bitwidth == width:
        return value
    op = "trunc" if target.bitwidth < width else "sext" if have == "i" else "zext"
    return value.cast(op, ir.IntType(target.bitwidth))


def _conversion(name: str, target: Any) -> Any:
    def function(x: Any) -> Any:
        return _to_number(x, name)

    function.__name__ = function.__qualname__ = f"to_{name}"
    function.__doc__ = (
        f"x as {name}: integers wrap, floats truncate toward zero and clamp (NaN gives 0), complex keeps the real part."
    )

    def typer(*args: Any) -> Any:
        if len(args) != 1 or kind_of(types.unliteral(args[0])) == "?":
            return None
        return signature(target, types.unliteral(args[0]))

    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        source = sig.args[0]
        want_complex = isinstance(target, types.Complex)
        part = target.underlying_float if want_complex else target
        if isinstance(source, types.Complex):
            pieces = [Value(b, b.extract_value(args[0], k)) for k in range(2)]
            source = source.underlying_float
        else:
            pieces = [Value(b, args[0])]
        numbers = [_emit_number(piece, source, part) for piece in pieces]
        if not want_complex:
            return numbers[0].v
        imaginary = numbers[1] if len(numbers) == 2 else numbers[0].const(0.0)
        return packed(b, [numbers[0].v, imaginary.v])

    register(function, typer, lower)
    return function


to_bool = _conversion("bool", types.boolean)
to_int8 = _conversion("int8", types.int8)
to_int16 = _conversion("int16", types.int16)
to_int32 = _conversion("int32", types.int32)
to_int64 = _conversion("int64", types.int64)
to_uint8 = _conversion("uint8", types.uint8)
to_uint16 = _conversion("uint16", types.uint16)
to_uint32 = _conversion("uint32", types.uint32)
to_uint64 = _conversion("uint64", types.uint64)
to_float32 = _conversion("float32", types.float32)
to_float64 = _conversion("float64", types.float64)
to_complex64 = _conversion("complex64", types.complex64)
to_complex128 = _conversion("complex128", types.complex128)


def to_float32_odd(x: Any) -> Any:
    """x (a float64 or an integer) as a float32 that further rounding, to 22 bits or fewer, rounds as it would round x itself.

    What a float32 cannot hold becomes the neighbour whose last bit is 1.
    """
    near = np.float32(x)
    if not np.isfinite(float(x)) or float(near) == x:
        return near
    low = near if abs(float(near)) < abs(x) else np.nextafter(near, np.float32(0))
    return (low.view(np.uint32) | np.uint32(1)).view(np.float32)


def _odd(kind: Any, x: Value) -> Value:
    if kind_of(kind) != "f":
        if kind.bitwidth <= 16:
            return x.cast("sitofp" if kind.signed else "uitofp", F32)
        exact = x.cast("sitofp" if kind.signed else "uitofp", F64)
        if kind.bitwidth == 64:
            # beyond 53 bits what is lost leaves a mark
            lost = choose((x & 0xFFF).ne(0), x.const(0x800), x.const(0))
            marked = ((x & ~0xFFF) | lost).cast("sitofp" if kind.signed else "uitofp", F64)
            exact = choose(fabs(exact) < 2.0**53, exact, marked)
        x = exact
    near = x.cast("fptrunc", F32)
    back = near.cast("fpext", F64)
    bits = near.bits()
    bits = bits - choose(fabs(x) < fabs(back), bits.const(1), bits.const(0))
    inexact = back.ne(x) & ~x.is_nan()
    return (bits | choose(inexact, bits.const(1), bits.const(0))).as_float()


define(to_float32_odd, 1, {"fiu": _odd}, result=lambda k: types.float32)


def _bitcast(name: str, target: Any) -> Any:
    def function(x: Any) -> Any:
        return np.asarray(x).view(name)[()]

    function.__name__ = function.__qualname__ = f"bits_to_{name}"
    function.__doc__ = f"The bits of x, of the same width, read as {name}."

    def typer(*args: Any) -> Any:
        source: Any = types.unliteral(args[0]) if len(args) == 1 else types.none
        if kind_of(source) not in "fiu" or source.bitwidth != target.bitwidth:
            return None
        return signature(target, source)

    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.bitcast(args[0], context.get_value_type(target))

    register(function, typer, lower)
    return function


bits_to_int8 = _bitcast("int8", types.int8)
bits_to_int16 = _bitcast("int16", types.int16)
bits_to_int32 = _bitcast("int32", types.int32)
bits_to_int64 = _bitcast("int64", types.int64)
bits_to_uint8 = _bitcast("uint8", types.uint8)
bits_to_uint16 = _bitcast("uint16", types.uint16)
bits_to_uint32 = _bitcast("uint32", types.uint32)
bits_to_uint64 = _bitcast("uint64", types.uint64)
bits_to_float32 = _bitcast("float32", types.float32)
bits_to_float64 = _bitcast("float64", types.float64)


def real(x: Any) -> Any:
    """The real part; x itself for a real x."""
    return np.real(x)


def imag(x: Any) -> Any:
    """The imaginary part; 0 for a real x."""
    return np.imag(x)


def make_complex(re: Any, im: Any) -> Any:
    """re + i im."""
    return (np.complex64 if np.asarray(re).dtype == np.float32 else np.complex128)(complex(re, im))


def _part(k: int) -> Callable[..., Value]:
    return lambda kind, z: z.wrap(z.b.extract_value(z.v, k))


def _pack(kind: Any, re: Value, im: Value) -> Value:
    return re.wrap(packed(re.b, [re.v, im.v]))


define(real, 1, {"c": _part(0), "f": lambda k, x: x}, result=lambda k: getattr(k, "underlying_float", k))
define(imag, 1, {"c": _part(1), "f": lambda k, x: x.const(0.0)}, result=lambda k: getattr(k, "underlying_float", k))
define(make_complex, 2, {"f": _pack}, result=lambda k: types.complex64 if k.bitwidth == 32 else types.complex128)


def conj(z: Any) -> Any:
    """The complex conjugate."""
    return np.conj(z)


def square(z: Any) -> Any:
    """z z of integers, which wrap, and of complex numbers, by (x - y)(x + y) + 2 x y i."""
    with np.errstate(all="ignore"):
        return np.asarray(z * z).astype(np.asarray(z).dtype)[()]


def _conj(kind: Any, z: Value) -> Value:
    parts = complexes.unpack(z)
    return complexes.pack(complexes.Complex(parts.re, -parts.im))


define(conj, 1, {"c": _conj, "f": lambda k, x: x})
define(square, 1, {"iu": lambda k, x: x * x, "c": complexes.COMPLEX["square"]})


def is_inf(x: Any) -> Any:
    """|x| == inf."""
    return np.isinf(x)


define(is_inf, 1, {"f": lambda k, x: fabs(x).eq(float("inf"))}, result=lambda k: types.boolean)
