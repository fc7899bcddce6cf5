"""C's types of kernels' and of LLVM's, and the header that kernels in C stand under."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from codegen.kernel import types
from hlo.errors import Declined

__all__ = ["HEADER", "Types", "is_vector", "lanes_of", "number_type"]

HEADER = r"""#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define tw_select(c, a, b) ((c) ? (a) : (b))
static inline int64_t tw_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tw_max(int64_t a, int64_t b) { return a > b ? a : b; }
/* Division rounds down, as Python's; by zero it gives 0. */
static inline int64_t tw_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t tw_mod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/* IEEE 754-2019 maximum and minimum: a NaN stays, and -0 < +0. */
#define TW_EXTREMA(T, S, ABS) \
    static inline T tw_maximum_##S(T a, T b) { \
        return a != a ? a + b : b != b ? a + b : a > b ? a : b > a ? b : signbit(a) ? b : a; } \
    static inline T tw_minimum_##S(T a, T b) { \
        return a != a ? a + b : b != b ? a + b : a < b ? a : b < a ? b : signbit(a) ? a : b; }
TW_EXTREMA(float, f32, fabsf)
TW_EXTREMA(double, f64, fabs)
/* x 2^n rounded once, for n up to twice the greatest exponent. */
#define TW_SCALED(T, S, I, BITS, BIAS) \
    static inline T tw_power_##S(int32_t n) { I b = (I)(n + BIAS) << BITS; T y; memcpy(&y, &b, sizeof y); return y; } \
    static inline T tw_scaled_##S(T x, int32_t n) { return x * tw_power_##S(n >> 1) * tw_power_##S(n - (n >> 1)); }
TW_SCALED(float, f32, int32_t, 23, 127)
TW_SCALED(double, f64, int64_t, 52, 1023)
/* Truncation that clamps; a NaN gives 0. The upper bounds, 2^63 and so on, are exact in both types. */
#define TW_CLAMPED(T, S, I, N, LOW, HIGH, LEAST, MOST) \
    static inline I tw_clamped_##S##_##N(T x) { \
        return x != x ? 0 : x < (T)(LOW) ? (LEAST) : x >= (T)(HIGH) ? (MOST) : (I)x; }
#define TW_CLAMPS(T, S) \
    TW_CLAMPED(T, S, int32_t, s32, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX) \
    TW_CLAMPED(T, S, int64_t, s64, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX) \
    TW_CLAMPED(T, S, uint32_t, u32, 0, 0x1p32, 0, UINT32_MAX) \
    TW_CLAMPED(T, S, uint64_t, u64, 0, 0x1p64, 0, UINT64_MAX)
TW_CLAMPS(float, f32)
TW_CLAMPS(double, f64)
static inline int tw_ctlz(uint64_t x, int bits) { return x ? __builtin_clzll(x) - (64 - bits) : bits; }
static inline int tw_cttz(uint64_t x, int bits) { return x ? __builtin_ctzll(x) : bits; }
"""


def is_vector(kind: Any) -> bool:
    return isinstance(kind, ir.VectorType)


def lanes_of(kind: Any) -> int:
    """The lanes of a vector type, 1 for any other."""
    return kind.count if is_vector(kind) else 1


class Types:
    """C's names of types; those that C must be told of are in `definitions`, in the order in which they were met."""

    def __init__(self) -> None:
        self.definitions: dict[str, str] = {}

    def of(self, kind: Any) -> str:
        """The name of an LLVM type. Raises NoForm for one that C has no form of."""
        if isinstance(kind, ir.VoidType):
            return "void"
        if isinstance(kind, ir.PointerType):
            return f"{self.of(kind.pointee)} *" if not getattr(kind, "is_opaque", False) else "void *"
        if isinstance(kind, ir.FloatType | ir.DoubleType):
            return "float" if isinstance(kind, ir.FloatType) else "double"
        if isinstance(kind, ir.IntType) and kind.width in (1, 8, 16, 32, 64):
            return "bool" if kind.width == 1 else f"int{kind.width}_t"
        if is_vector(kind):
            return self._vector(kind)
        if isinstance(kind, ir.LiteralStructType):
            name = "pair_" + "_".join(self.short(e) for e in kind.elements)
            fields = " ".join(f"{self.of(e)} e{k};" for k, e in enumerate(kind.elements))
            return self._define(name, f"typedef struct {{ {fields} }} {name};")
        raise NoForm(f"a value of LLVM's type {kind}")

    def short(self, kind: Any) -> str:
        """A type as a part of a name."""
        name = self.of(kind)
        words = {"float": "f32", "double": "f64", "bool": "b"}
        return words.get(name) or name.replace("int", "i").replace("_t", "").replace(" *", "p")

    def _vector(self, kind: Any) -> str:
        # (A mask has a byte for each lane: 0 or -1.)
        element = ir.IntType(8) if kind.element == ir.IntType(1) else kind.element
        size = {"float": 4, "double": 8}.get(str(element)) or element.width // 8
        if kind.count * size & (kind.count * size - 1):
            raise NoForm(f"a vector of {kind.count * size} bytes")
        name = f"v{kind.count}{'m' if kind.element == ir.IntType(1) else self.short(element)}"
        return self._define(name, f"typedef {self.of(element)} {name} __attribute__((vector_size({kind.count * size})));")

    def access(self, kind: Any) -> str:
        """The type that memory is read and written through: of any alignment, and whatever the memory is declared as."""
        name = f"{self.short(kind)}_m"
        return self._define(name, f"typedef {self.of(kind)} {name} __attribute__((may_alias, aligned(1)));")

    def _define(self, name: str, text: str) -> str:
        self.definitions.setdefault(name, text)
        return name


class NoForm(Exception):
    """Carries the reason of a `Declined` out of a print."""

    @property
    def declined(self) -> Declined:
        return Declined(str(self))


_COMPLEX = {"complex64": ir.FloatType(), "complex128": ir.DoubleType()}


def number_type(kind: Any, names: Types) -> str:
    """C's name of the type of a number of a kernel. Raises NoForm.

    >>> number_type(types.uint32, Types()), number_type(types.literal(3), Types()), number_type(types.float32, Types())
    ('uint32_t', 'int64_t', 'float')
    """
    kind = types.unliteral(kind)
    if isinstance(kind, types.Boolean):
        return "bool"
    if isinstance(kind, types.Integer):
        return f"{'' if kind.signed else 'u'}int{kind.bitwidth}_t"
    if isinstance(kind, types.Float) and kind.bitwidth in (32, 64):
        return "float" if kind.bitwidth == 32 else "double"
    if str(kind) in _COMPLEX:
        return names.of(ir.LiteralStructType([_COMPLEX[str(kind)]] * 2))
    raise NoForm(f"a number of type {kind}")
