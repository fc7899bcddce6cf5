"""What micro-kernels that walk through bytes have in common: integers that are folded where they are known, loads of a part."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from codegen.lib.emit import I1, I8, I32, I64, constant, intrinsic_function
from codegen.lib.micro_kernels.blocks import _c, _known

__all__ = ["Folded"]

LINE_BYTES = 64


class Folded:
    """Emits into a builder: integers of 64 bits as constants where their operands are, rooms on the stack, masked loads of lines.

    >>> Folded(None)._over_up(_c(65), 64).constant
    2
    """

    def __init__(self, b: Any) -> None:
        self.b = b

    def _scaled(self, x: Any, by: int) -> Any:
        known = _known(x)
        return _c(known * by) if known is not None else x if by == 1 else self.b.mul(x, _c(by))

    def _over(self, x: Any, by: int) -> Any:
        known = _known(x)
        return _c(known // by) if known is not None else self.b.lshr(x, _c(by.bit_length() - 1))

    def _over_up(self, x: Any, by: int) -> Any:
        known = _known(x)
        return _c(-(-known // by)) if known is not None else self._over(self.b.add(x, _c(by - 1)), by)

    def _modulo(self, x: Any, by: int) -> Any:
        known = _known(x)
        return _c(known % by) if known is not None else self.b.and_(x, _c(by - 1))

    def _compare(self, how: str, x: Any, y: int) -> Any:
        known = _known(x)
        if known is None:
            return self.b.icmp_signed(how, x, _c(y))
        return ir.Constant(I1, int({"<": known < y, ">": known > y, "==": known == y}[how]))

    def _least(self, x: Any, y: int) -> Any:
        known = _known(x)
        return _c(min(known, y)) if known is not None else self.b.select(self._compare("<", x, y), x, _c(y))

    def _and(self, x: Any, y: Any) -> Any:
        known = _known(x), _known(y)
        if 0 in known:
            return ir.Constant(I1, 0)
        return y if known[0] else x if known[1] else self.b.and_(x, y)

    def _truth(self, truth: Any) -> Any:
        known = _known(truth)
        return _c(known) if known is not None else self.b.zext(truth, I64)

    def _stack(self, size_bytes: int) -> Any:
        room = self.b.alloca(ir.ArrayType(I8, size_bytes))
        room.align = 64
        return self.b.bitcast(room, I8.as_pointer())

    def _first_bytes(self, count: Any) -> Any:
        b, numbers = self.b, ir.VectorType(I8, LINE_BYTES)
        order = ir.Constant(numbers, [ir.Constant(I8, k) for k in range(LINE_BYTES)])
        one = b.insert_element(ir.Constant(numbers, ir.Undefined), b.trunc(count, I8), ir.Constant(I32, 0))
        lanes = ir.Constant(ir.VectorType(I32, LINE_BYTES), [ir.Constant(I32, 0)] * LINE_BYTES)
        return b.icmp_unsigned("<", order, b.shuffle_vector(one, one, lanes))

    def _masked_load(self, pointer: Any, mask: Any) -> Any:
        b, vector = self.b, ir.VectorType(I8, LINE_BYTES)
        kinds = [vector.as_pointer(), I32, ir.VectorType(I1, LINE_BYTES), vector]
        load = intrinsic_function(b.module, "llvm.masked.load.v64i8.p0", vector, kinds)
        return b.call(load, [b.bitcast(pointer, vector.as_pointer()), ir.Constant(I32, 1), mask, constant(vector, 0)])
