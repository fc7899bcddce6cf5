"""Whether a product of bf16 that is computed without denormal numbers is as exact as any: the exponents of its factors tell.

Instructions that multiply bf16 take denormal numbers for zero and give zero for them. Neither occurs where the least magnitudes
|a| and |b| of both factors, zeros apart, are normal numbers with

    |a| |b| >= 2^-108

A number of bf16 has 7 bits after the first one, so that all products are then multiples of 2^-122; so are all sums of them,
however they are rounded, and none but zero is less than 2^-126.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from codegen.lib.emit import I8, I16, I32, I64, constant, intrinsic_function
from codegen.lib.micro_kernels.blocks import _c, _counted_loop, _for, _known
from codegen.lib.micro_kernels.folded import LINE_BYTES, Folded

__all__ = ["Exponents"]

LEAST_EXPONENTS = 254 - 108  # of both factors together, as they are stored: each with 127 more
MOST_PANELS = 512  # whose least exponents are kept; of others they are looked for by each copy of rows


class Exponents(Folded):
    """The least exponents, as they are stored, of rows of A and of panels of B: 0 says that there is a denormal number.

    `depth` is k in bytes; `right` is a pointer to the bytes of B, the distance of its panels in bytes and their columns.
    """

    def __init__(self, b: Any, n: Any, depth: Any, right: tuple[Any, Any, int]) -> None:
        super().__init__(b)
        self.n, self.depth, (self.right, self.right_panel, self.panel) = n, depth, right
        with b.goto_entry_block():
            self.kept = b.alloca(ir.ArrayType(I16, MOST_PANELS))
        _for(b, self._least(self._over_up(n, self.panel), MOST_PANELS), lambda p: b.store(ir.Constant(I16, 0), self._place(p)))

    def are_normal(self, left: Any, right: Any) -> Any:
        """A truth of LLVM: all factors and sums of rows and a panel with these least exponents are normal numbers, or zero."""
        b = self.b
        normal = b.and_(b.icmp_signed(">", left, _c(0)), b.icmp_signed(">", right, _c(0)))
        return b.and_(normal, b.icmp_signed(">=", b.add(left, right), _c(LEAST_EXPONENTS)))

    def of_rows(self, left: Any, rows: Any, row_bytes: Any, bytes_: Any) -> Any:
        """The least exponent of so many bytes of each of some rows of A."""
        return self._least_exponent(left, rows, row_bytes, bytes_)

    def _place(self, panel: Any) -> Any:
        return self.b.gep(self.kept, [ir.Constant(I32, 0), panel])

    def of_panel(self, number: Any) -> Any:
        """The least exponent of a panel, which is looked for once."""
        b = self.b
        base = b.gep(self.right, [b.mul(number, self.right_panel)])
        has_place = b.icmp_signed("<", number, _c(MOST_PANELS))
        place = self._place(b.select(has_place, number, _c(0)))
        kept = b.select(has_place, b.zext(b.load(place), I64), _c(0))
        before = b.block
        with b.if_then(b.icmp_signed("==", kept, _c(0))):
            # All columns of all panels but the last are there, of which those behind the result's are not.
            left = b.sub(self.n, b.mul(number, _c(self.panel)))
            width = b.select(b.icmp_signed("<", left, _c(self.panel)), left, _c(self.panel))
            groups = self._over(self.depth, 4)
            found = self._least_exponent(base, groups, _c(4 * self.panel), b.mul(width, _c(4)))
            found = b.add(found, _c(1))  # as it is kept: 0 is not known yet
            with b.if_then(has_place):
                b.store(b.trunc(found, I16), place)
            looking = b.block
        merged = b.phi(I64)
        merged.add_incoming(kept, before)
        merged.add_incoming(found, looking)
        return b.sub(merged, _c(1))

    def _least_exponent(self, base: Any, rows: Any, row_bytes: Any, bytes_: Any) -> Any:
        """The least stored exponent of the numbers in rows of so many bytes, zeros apart; more than any where all are zero."""
        b, lanes = self.b, LINE_BYTES // 2
        vector = ir.VectorType(I16, lanes)
        least = intrinsic_function(b.module, f"llvm.umin.v{lanes}i16", vector, [vector, vector])
        whole, rest = self._over(bytes_, LINE_BYTES), self._modulo(bytes_, LINE_BYTES)
        some, mask = self._compare(">", rest, 0), self._first_bytes(rest)

        def met(found: Any, raw: Any) -> Any:
            magnitude = b.and_(b.bitcast(raw, vector), constant(vector, 0x7FFF))
            return b.call(least, [found, b.sub(magnitude, constant(vector, 1))])  # zero becomes the greatest

        def row(t: Any, found: list[Any]) -> list[Any]:
            at = b.gep(base, [b.mul(t, row_bytes)])

            def step(s: Any, found: list[Any]) -> list[Any]:
                access = b.load(b.bitcast(b.gep(at, [b.mul(s, _c(LINE_BYTES))]), ir.VectorType(I8, LINE_BYTES).as_pointer()))
                access.align = 1
                return [met(found[0], access)]

            found = _counted_loop(b, whole, found, step)
            if _known(some) == 0:
                return found
            last = self._masked_load(b.gep(at, [b.mul(whole, _c(LINE_BYTES))]), mask)
            return [met(found[0], last)]

        (found,) = _counted_loop(b, rows, [constant(vector, 0xFFFF)], row)
        fold = intrinsic_function(b.module, f"llvm.vector.reduce.umin.v{lanes}i16", I16, [vector])
        return b.lshr(b.add(b.zext(b.call(fold, [found]), I64), _c(1)), _c(7))
