"""Conversions between element types: the 16-bit floats, float -> integer, and rounding to a narrower format.

All are branch-free and vectorise.  A float becomes an integer by truncation, clamped to the integer's range, NaN giving 0.
"""

from __future__ import annotations

from llvmlite import ir

from codegen.lib.emit import (
    F16,
    F32,
    I16,
    I32,
    Value,
    code_of,
    element_type,
    fabs,
    intrinsic_function,
    like,
    select,
    suffix,
    with_code,
)
from codegen.target import current_target


def widen_bf16(x: Value) -> Value:
    """The f32 of a bfloat16 representation (i16), exact."""
    return with_code((x.cast("zext", I32) << 16).as_float(), "bfloat16", x)


def round_bits_bf16(x: Value) -> Value:
    """The bits (i32) of x rounded to bfloat16, ties to even, in the upper half; a NaN stays a NaN.

    The kept part's last bit is put into the lowest bit in place of being added: that changes ties alone, whose lowest bit is 0.
    """
    bits = x.bits()
    rounded = (bits | (bits.lshr(16) & 1)) + 0x7FFF
    return select(x.is_nan(), bits | 0x400000, rounded)


def narrow_bf16(x: Value) -> Value:
    """The bfloat16 representation (i16) of an f32, rounded to nearest even."""
    known = code_of(x, "bfloat16")
    return known if known is not None else round_bits_bf16(x).lshr(16).cast("trunc", I16)


def round_bf16_result(x: Value) -> Value:
    """`round_bf16` of what an op computes of bfloat16 numbers: the lower half of a NaN's bits is 0 there, and no carry ends it.

    (AVX512-BF16 has the conversion as an instruction, but that takes denormal numbers for 0.)
    """
    bits = x.bits()
    return (((bits | (bits.lshr(16) & 1)) + 0x7FFF) & ~0xFFFF).as_float()


def round_bf16(x: Value) -> Value:
    """x rounded to bfloat16 precision, still an f32."""
    return (round_bits_bf16(x) & ~0xFFFF).as_float()


def widen_f16(x: Value) -> Value:
    """The f32 of an IEEE half representation (i16), exact."""
    if current_target().has_f16:
        return with_code(x.cast("bitcast", F16).cast("fpext", F32), "float16", x)
    wide = x.cast("zext", I32)
    sign = (wide & 0x8000) << 16
    payload = (wide & 0x7FFF) << 13
    # a multiplication by 2**112 rebiases normal numbers and normalises denormal ones
    magnitude = (payload.as_float() * 2.0**112).bits()
    special = (wide & 0x7C00).eq(0x7C00)
    return with_code((select(special, payload | 0x7F800000, magnitude) | sign).as_float(), "float16", x)


def narrow_f16(x: Value) -> Value:
    """The IEEE half representation (i16) of an f32, rounded to nearest even."""
    known = code_of(x, "float16")
    if known is not None:
        return known
    if current_target().has_f16:
        return x.cast("fptrunc", F16).cast("bitcast", I16)
    bits = x.bits()
    sign = bits.lshr(16) & 0x8000
    a = bits & 0x7FFFFFFF
    normal = (a + 0xFFF + (a.lshr(13) & 1) - (112 << 23)).lshr(13)
    # below 2**-14 an addition of 0.5 aligns the significand so that the FPU rounds at the right place
    tiny = (a.as_float() + 0.5).bits() - 0x3F000000
    out = select(a < 0x38800000, tiny, normal)
    out = select(a >= 0x477FF000, out.const(0x7C00), out)
    out = select(a > 0x7F800000, (a.lshr(13) & 0x3FF) | 0x7E00, out)
    return (out | sign).cast("trunc", I16)


def round_f16(x: Value) -> Value:
    """x rounded to half precision, still an f32."""
    return widen_f16(narrow_f16(x))


def float_to_int(x: Value, bits: int, signed: bool) -> Value:
    """x truncated toward zero and clamped to the integer type's range; NaN gives 0."""
    if bits < 32:
        # Clamped before, since the instructions convert to 32 bits and no saturating form of fewer vectorises.
        low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if signed else (0.0, 2.0**bits - 1)
        inside = select(x < low, low, select(x > high, high, x))
        return select(inside.is_nan(), 0.0, inside).cast("fptosi", I32).cast("trunc", ir.IntType(bits))
    if bits == 32 and signed and element_type(x.type) == F32:
        # A few instructions on whole vectors; the saturating form takes twice as long.
        inside = select(x < -(2.0**31), -(2.0**31), select(x < 2.0**31, x, 0.0)).cast("fptosi", I32)  # no NaN is less
        return select(x >= 2.0**31, inside.const(2**31 - 1), inside)
    target = like(x.type, ir.IntType(bits))
    name = f"llvm.fpto{'s' if signed else 'u'}i.sat.{suffix(target)}.{suffix(x.type)}"
    return x.wrap(x.b.call(intrinsic_function(x.b.module, name, target, [x.type]), [x.v]))


def magnitude(x: Value) -> Value:
    """|x|, which knows its bits in a type of 16 bits where x does."""
    known = ((name, code_of(x, name)) for name in ("float16", "bfloat16"))
    name, code = next(((name, code) for name, code in known if code is not None), ("", None))
    return fabs(x) if code is None else with_code(fabs(x), name, code & 0x7FFF)


def int_width(x: Value) -> int:
    """The bits of an integer value's elements."""
    return int(element_type(x.type).width)
