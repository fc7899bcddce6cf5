"""Fourier transforms of long real lines, as complex ones of half the length between arithmetic that fuses with its neighbours.

    rfft x   ->  Z = fft(x[0::2] + i x[1::2]);  E = (Z + mirror Z) / 2,  O = (Z - mirror Z) / 2i;  E + w O
    irfft X  ->  E = (X + mirror X) / 2,  O = (X - mirror X) / 2 w;  z = ifft(E + i O);  real z, imag z, real z, …

where the mirror of element k is the conjugate of element n / 2 - k, and w the k-th root of unity of order n.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo.builder import Builder
from hlo.module import DenseArray, Op, Value
from hlo.registry import definition
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from tiling.routines.fourier import with_roots

__all__ = ["fourier"]

Pair = tuple[Value, Value]


def fourier(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """What a Fourier transform becomes: itself with its tables, or a long real line's halves; None for the library's."""
    whole = with_roots(b, op, operands)
    n = int(op.attr("fft_length")[-1])
    if whole is not None or op.attr("fft_type") not in ("RFFT", "IRFFT") or len(op.attr("fft_length")) > 1 or not n or n % 4:
        return whole
    return _Halves(b, op, n).forward(operands[0]) if op.attr("fft_type") == "RFFT" else _Halves(b, op, n).backward(operands[0])


class _Halves:
    def __init__(self, b: Builder, op: Op, n: int) -> None:
        self.b, self.op, self.n, self.m = b, op, n, n // 2
        given, made = op.operands[0].tensor, op.results[0].tensor
        real = given if op.attr("fft_type") == "RFFT" else made
        assert isinstance(real.element, ElementType)
        self.lead, self.real = real.static_shape[:-1], real.element
        self.complex = ELEMENT_TYPES[f"complex<{real.element}>"]

    def __call__(self, word: str, *operands: Value, **attributes: object) -> Value:
        return self.b.emit(f"stablehlo.{word}", operands, attributes)[0]

    def table(self, values: np.ndarray, element: ElementType) -> Value:
        """A table along the lines, for every line."""
        dense = DenseArray(TensorType(values.shape, element), values.astype(element.dtype))
        return self.b.broadcast_in_dim(self.b.constant(dense), (*self.lead, len(values)), (len(self.lead),))

    def half(self, x: Value) -> Value:
        shape = TensorType(x.shape, self.real)
        dense = DenseArray(shape, np.broadcast_to(np.asarray(0.5, self.real.dtype), x.shape))
        return self("multiply", x, self.b.constant(dense))

    def roots(self, count: int, sign: int) -> Pair:
        w = np.exp(sign * 2j * np.pi * np.arange(count) / self.n)
        w[self.m :] = -1  # where rounding would leave an imaginary part
        return self.table(w.real, self.real), self.table(w.imag, self.real)

    def product(self, x: Pair, y: Pair) -> Pair:
        re = self("subtract", self("multiply", x[0], y[0]), self("multiply", x[1], y[1]))
        return re, self("add", self("multiply", x[0], y[1]), self("multiply", x[1], y[0]))

    def part(self, x: Value, start: int, stop: int) -> Value:
        """Elements [start, stop - 1] of the last dimension."""
        low, high = (0,) * (x.rank - 1), x.shape[:-1]
        return self("slice", x, start_indices=(*low, start), limit_indices=(*high, stop), strides=(1,) * x.rank)

    def mirror(self, x: Value) -> Value:
        return self("reverse", x, dimensions=(x.rank - 1,))

    def transform(self, z: Value, kind: str) -> Value | None:
        attributes = {**self.op.attributes, "fft_type": kind, "fft_length": (self.m,)}
        made = Op(definition("stablehlo.fft"), [z], attributes, (), [z.type], self.op.location)
        found = with_roots(self.b, made, [z])
        return None if found is None else found[0]

    def forward(self, x: Value) -> Sequence[Value] | None:
        last = len(self.lead)
        pairs = self.b.reshape(x, (*self.lead, self.m, 2))
        even, odd = (self.b.reshape(self.part(pairs, k, k + 1), (*self.lead, self.m)) for k in range(2))
        z = self.transform(self("complex", even, odd), "FFT")
        if z is None:
            return None
        around = self("concatenate", z, self.part(z, 0, 1), dimension=last)
        a = self("real", around), self("imag", around)
        c = self.mirror(a[0]), self.mirror(a[1])
        evens = self.half(self("add", a[0], c[0])), self.half(self("subtract", a[1], c[1]))
        odds = self.half(self("add", a[1], c[1])), self.half(self("subtract", c[0], a[0]))
        turned = self.product(odds, self.roots(self.m + 1, -1))
        return [self("complex", self("add", evens[0], turned[0]), self("add", evens[1], turned[1]))]

    def backward(self, x: Value) -> Sequence[Value] | None:
        m = self.m
        ends = self.table(np.isin(np.arange(m + 1), (0, m)), ELEMENT_TYPES["i1"])
        shape = (*self.lead, m + 1)
        zero = DenseArray(TensorType(shape, self.real), np.broadcast_to(np.zeros((), self.real.dtype), shape))
        re, im = self("real", x), self("select", ends, self.b.constant(zero), self("imag", x))
        a = self.part(re, 0, m), self.part(im, 0, m)
        c = self.part(self.mirror(re), 0, m), self.part(self.mirror(im), 0, m)
        evens = self.half(self("add", a[0], c[0])), self.half(self("subtract", a[1], c[1]))
        odds = self.half(self("subtract", a[0], c[0])), self.half(self("add", a[1], c[1]))
        turned = self.product(odds, self.roots(m, 1))
        z = self.transform(self("complex", self("subtract", evens[0], turned[1]), self("add", evens[1], turned[0])), "IFFT")
        if z is None:
            return None
        parts = [self.b.reshape(self(word, z), (*self.lead, m, 1)) for word in ("real", "imag")]
        return [self.b.reshape(self("concatenate", *parts, dimension=len(self.lead) + 1), (*self.lead, self.n))]
