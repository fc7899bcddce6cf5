"""The text of one call of LAPACK's: its arguments in order, and what is turned to columns before it and back after it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from hlo.module import Op

__all__ = ["DTYPES", "Writer"]

DTYPES = {"s": "float32", "d": "float64", "c": "complex64", "z": "complex128"}
_VECTORS = frozenset({"gtsv"})  # whose first operand is a vector
_LINE = 64

# to[j, i] = from[i, j]: rows of one side are the columns of the other
_TURNED = """
define internal void @turned(ptr %to, ptr %from, i64 %rows, i64 %columns) {
entry:
  br label %rows_head
rows_head:
  %i = phi i64 [ 0, %entry ], [ %i_next, %rows_next ]
  %more_rows = icmp slt i64 %i, %rows
  br i1 %more_rows, label %columns_head, label %done
columns_head:
  %j = phi i64 [ 0, %rows_head ], [ %j_next, %column ]
  %more_columns = icmp slt i64 %j, %columns
  br i1 %more_columns, label %column, label %rows_next
column:
  %along = mul i64 %i, %columns
  %source = add i64 %along, %j
  %across = mul i64 %j, %rows
  %target = add i64 %across, %i
  %from_at = getelementptr ELEMENT, ptr %from, i64 %source
  %to_at = getelementptr ELEMENT, ptr %to, i64 %target
  %x = load ELEMENT, ptr %from_at, align ALIGNED
  store ELEMENT %x, ptr %to_at, align ALIGNED
  %j_next = add i64 %j, 1
  br label %columns_head
rows_next:
  %i_next = add i64 %i, 1
  br label %rows_head
done:
  ret void
}
"""

# What StableHLO means by a factor: the other triangle is zero, and without a factor there are NaNs.
_FACTOR = """
define internal void @factor(ptr %to, ptr %from, i64 %n, i1 %lower, ptr %info) {
entry:
  %failed = load i32, ptr %info
  %is_fine = icmp eq i32 %failed, 0
  br label %rows_head
rows_head:
  %i = phi i64 [ 0, %entry ], [ %i_next, %rows_next ]
  %more_rows = icmp slt i64 %i, %n
  br i1 %more_rows, label %columns_head, label %done
columns_head:
  %j = phi i64 [ 0, %rows_head ], [ %j_next, %column ]
  %more_columns = icmp slt i64 %j, %n
  br i1 %more_columns, label %column, label %rows_next
column:
  %along = mul i64 %i, %n
  %place = add i64 %along, %j
  %from_at = getelementptr ELEMENT, ptr %from, i64 %place
  %to_at = getelementptr ELEMENT, ptr %to, i64 %place
  %x = load ELEMENT, ptr %from_at, align ALIGNED
  %is_below = icmp sle i64 %j, %i
  %is_above = icmp sge i64 %j, %i
  %is_inside = select i1 %lower, i1 %is_below, i1 %is_above
  %known = select i1 %is_fine, ELEMENT %x, ELEMENT NAN
  %value = select i1 %is_inside, ELEMENT %known, ELEMENT 0
  store ELEMENT %value, ptr %to_at, align ALIGNED
  %j_next = add i64 %j, 1
  br label %columns_head
rows_next:
  %i_next = add i64 %i, 1
  br label %rows_head
done:
  ret void
}
"""

# LAPACK's pivots from 1 on become XLA's from 0 on, and the order of rows that their exchanges make.
_ORDER = """
define internal void @order(ptr %pivots, ptr %order, i64 %rows, i64 %count) {
entry:
  br label %first_head
first_head:
  %i = phi i64 [ 0, %entry ], [ %i_next, %first ]
  %more_rows = icmp slt i64 %i, %rows
  br i1 %more_rows, label %first, label %head
first:
  %own_at = getelementptr i32, ptr %order, i64 %i
  %own = trunc i64 %i to i32
  store i32 %own, ptr %own_at
  %i_next = add i64 %i, 1
  br label %first_head
head:
  %k = phi i64 [ 0, %first_head ], [ %k_next, %exchange ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %exchange, label %done
exchange:
  %pivot_at = getelementptr i32, ptr %pivots, i64 %k
  %from_1 = load i32, ptr %pivot_at
  %pivot = sub i32 %from_1, 1
  store i32 %pivot, ptr %pivot_at
  %row = sext i32 %pivot to i64
  %a_at = getelementptr i32, ptr %order, i64 %k
  %b_at = getelementptr i32, ptr %order, i64 %row
  %a = load i32, ptr %a_at
  %b = load i32, ptr %b_at
  store i32 %b, ptr %a_at
  store i32 %a, ptr %b_at
  %k_next = add i64 %k, 1
  br label %head
done:
  ret void
}
"""

# LAPACK's eigenvectors of a real matrix: columns k, k + 1 of a pair hold the real and the imaginary part of the first one.
_PAIRED = """
define internal void @paired(ptr %to, ptr %from, ptr %imaginary, i64 %n) {
entry:
  br label %columns_head
columns_head:
  %k = phi i64 [ 0, %entry ], [ %k_next, %columns_next ]
  %more_columns = icmp slt i64 %k, %n
  br i1 %more_columns, label %column, label %done
column:
  %value_at = getelementptr REAL, ptr %imaginary, i64 %k
  %value = load REAL, ptr %value_at
  %is_first = fcmp ogt REAL %value, 0.0
  %is_second = fcmp olt REAL %value, 0.0
  %back = zext i1 %is_second to i64
  %ahead = zext i1 %is_first to i64
  %real_column = sub i64 %k, %back
  %other_column = add i64 %k, %ahead
  %real_start = mul i64 %real_column, %n
  %other_start = mul i64 %other_column, %n
  br label %rows_head
rows_head:
  %i = phi i64 [ 0, %column ], [ %i_next, %row ]
  %more_rows = icmp slt i64 %i, %n
  br i1 %more_rows, label %row, label %columns_next
row:
  %real_place = add i64 %real_start, %i
  %other_place = add i64 %other_start, %i
  %real_at = getelementptr REAL, ptr %from, i64 %real_place
  %other_at = getelementptr REAL, ptr %from, i64 %other_place
  %real = load REAL, ptr %real_at
  %other = load REAL, ptr %other_at
  %opposite = fneg REAL %other
  %signed = select i1 %is_second, REAL %opposite, REAL %other
  %is_one = or i1 %is_first, %is_second
  %imaginary_part = select i1 %is_one, REAL %signed, REAL 0.0
  %along = mul i64 %i, %n
  %place = add i64 %along, %k
  %twice = mul i64 %place, 2
  %to_real = getelementptr REAL, ptr %to, i64 %twice
  %to_imaginary = getelementptr REAL, ptr %to_real, i64 1
  store REAL %real, ptr %to_real
  store REAL %imaginary_part, ptr %to_imaginary
  %i_next = add i64 %i, 1
  br label %rows_head
columns_next:
  %k_next = add i64 %k, 1
  br label %columns_head
done:
  ret void
}
"""


class Writer:
    """The text of one step: the arguments of the call in order, and what is turned before and after it.

    Buffers of the step are the op's operands, each once, then its results.
    """

    def __init__(self, op: Op, prefix: str, name: str, address: int, options: Mapping[str, int]) -> None:
        self.symbol, self.address = f"tilewright_lapack_{prefix}{name}", address
        operands = list(dict.fromkeys(op.operands))
        self.types = [v.tensor for v in (*operands, *op.results)]
        self.operands = [operands.index(v) for v in op.operands]
        self.first_result = len(operands)
        shape = self.types[0].static_shape
        rank = 1 if name in _VECTORS else 2
        self.rows, self.columns = shape[-2:] if rank == 2 else (shape[-1], 1)
        self.options = options
        self.batch = prod(shape[: len(shape) - rank])
        self.elems = max(t.size_elems // max(self.batch, 1) for t in self.types)  # of the largest matrix: right sides count
        self.dtype = np.dtype(DTYPES[prefix])
        self.item, self.is_complex = self.dtype.itemsize, self.dtype.kind == "c"
        self.real_item = self.item // 2 if self.is_complex else self.item
        self.scratch_bytes = 0
        self.globals: list[str] = []
        self.arguments: list[str] = []
        self.lines: list[str] = []
        self.after: list[str] = []
        self.query: list[Any] = []  # the call's arguments as ctypes has them, for the sizes of its work space

    def _name(self) -> str:
        return f"%v{len(self.lines) + len(self.after)}"

    def result(self, k: int) -> int:
        """The buffer of the op's result `k`."""
        return self.first_result + k

    def numbers(self, *values: int) -> None:
        """Integers, and letters by their codes: passed by their addresses."""
        for value in values:
            self.globals.append(f"@n{len(self.globals)} = internal constant i32 {value}")
            self.arguments.append(f"@n{len(self.globals) - 1}")
            self.query.append(ctypes.c_int(value))

    def room(self, size_bytes: int) -> str:
        """The name of an address in scratch."""
        name = self._name()
        self.lines.append(f"{name} = getelementptr i8, ptr %scratch, i64 {self.scratch_bytes}")
        self.scratch_bytes += -(-size_bytes // _LINE) * _LINE
        return name

    def room_for(self, size_bytes: int) -> None:
        """Work space whose size the routine knows."""
        self.passed(self.room(size_bytes))

    def work(self, elems: int, item_bytes: int) -> None:
        """Work space, and how many elements it has."""
        self.room_for(elems * item_bytes)
        self.numbers(elems)

    def passed(self, argument: str) -> None:
        """The routine is given an address."""
        self.arguments.append(argument)
        self.query.append((ctypes.c_double * 16)())

    def _at(self, k: int, rank: int, lines: list[str]) -> str:
        """The name of the address of buffer `k`'s part in this matrix of the batch."""
        t = self.types[k]
        size = prod(t.static_shape[len(t.static_shape) - rank :]) * t.dtype.itemsize
        cell, base, offset, at = (f"%b{len(self.lines)}_{len(self.after)}_{x}" for x in range(4))
        lines += [
            f"{cell} = getelementptr ptr, ptr %table, i64 {k}", f"{base} = load ptr, ptr {cell}",
            f"{offset} = mul i64 %b, {size}", f"{at} = getelementptr i8, ptr {base}, i64 {offset}",
        ]  # fmt: skip
        return at

    def vector(self, k: int, rank: int = 1) -> None:
        """A buffer that the routine takes as it lies."""
        self.passed(self._at(k, rank, self.lines))

    def info(self, k: int) -> None:
        """Result `k`, one number a matrix: whether the routine failed."""
        self.vector(self.result(k), 0)

    def matrix(self, rows: int, columns: int, *, given: int | None = 0, made: int | None = None) -> None:
        """A matrix by columns in scratch and its leading dimension: turned from buffer `given` before, to result `made` after."""
        place = self.room(rows * columns * self.item)
        if given is not None:
            at = self._at(given, 2, self.lines)
            self.lines.append(f"call void @turned(ptr {place}, ptr {at}, i64 {rows}, i64 {columns})")
        if made is not None:
            at = self._at(self.result(made), 2, self.after)
            self.after.append(f"call void @turned(ptr {at}, ptr {place}, i64 {columns}, i64 {rows})")
        self.passed(place)
        self.numbers(rows)

    def pairs(self, n: int, made: int, imaginary: int) -> None:
        """Real eigenvectors by columns in scratch; after the call result `made` has them as complex ones, put together where
        the values' imaginary parts, result `imaginary`, are not zero."""
        place = self.room(n * n * self.item)
        to, parts = self._at(self.result(made), 2, self.after), self._at(self.result(imaginary), 1, self.after)
        self.after.append(f"call void @paired(ptr {to}, ptr {place}, ptr {parts}, i64 {n})")
        self.passed(place)
        self.numbers(n)

    def zeros(self, made: int) -> None:
        """Result `made`, of zeros, which the routine leaves alone."""
        k = self.result(made)
        at = self._at(k, 2, self.lines)
        size = prod(self.types[k].static_shape[-2:]) * self.types[k].dtype.itemsize
        self.lines.append(f"call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 {size}, i1 false)")
        self.passed(at)

    def kept(self, made: int) -> None:
        """Result `made`: the first operand, as it was."""
        k = self.result(made)
        self._copy(self._at(k, 2, self.lines), self._at(0, 2, self.lines), k, self.lines)

    def copied(self, given: int) -> str:
        """Buffer `given`, a matrix as it lies, in scratch, and the length of its rows; the name of its address there.

        (A result may lie where an operand does that the routine still reads.)
        """
        rows, columns = self.types[given].static_shape[-2:]
        place = self.room(rows * columns * self.item)
        self._copy(place, self._at(given, 2, self.lines), given, self.lines)
        self.passed(place)
        self.numbers(columns)
        return place

    def vector_of(self, given: int, made: int, skipped: int = 0) -> None:
        """Buffer `given` in scratch, from its element `skipped` on; result `made` is what lies there after the call."""
        place = self.room(self.types[given].static_shape[-1] * self.item)
        self._copy(place, self._at(given, 1, self.lines), given, self.lines, rank=1)
        self.copied_back(place, made, rank=1)
        if skipped:
            name = self._name()
            self.lines.append(f"{name} = getelementptr i8, ptr {place}, i64 {skipped * self.item}")
            place = name
        self.passed(place)

    def copied_back(self, place: str, made: int, rank: int = 2) -> None:
        """Result `made` after the call: what lies at an address in scratch."""
        k = self.result(made)
        self._copy(self._at(k, rank, self.after), place, k, self.after, rank)

    def _copy(self, to: str, given: str, k: int, lines: list[str], rank: int = 2) -> None:
        size = prod(self.types[k].static_shape[-rank:]) * self.item
        lines.append(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {given}, i64 {size}, i1 false)")

    def factor(self, place: str, info: str, is_lower: bool) -> None:
        """Result 0 after the call: the triangle at an address in scratch, or NaNs where the number at `info` is not 0."""
        at = self._at(self.result(0), 2, self.after)
        self.after.append(f"call void @factor(ptr {at}, ptr {place}, i64 {self.columns}, i1 {int(is_lower)}, ptr {info})")

    def order(self) -> None:
        """Results 1 and 2 after the call: pivots from 0 on, and the rows' order."""
        pivots, order = (self._at(self.result(k), 1, self.after) for k in (1, 2))
        count = min(self.rows, self.columns)
        self.after.append(f"call void @order(ptr {pivots}, ptr {order}, i64 {self.rows}, i64 {count})")

    def one(self) -> None:
        """The number 1 of the elements' type."""
        self.globals.append(f"@n{len(self.globals)} = internal constant i{8 * self.item} {self._bits(1)}")
        self.passed(f"@n{len(self.globals) - 1}")

    def _bits(self, x: float) -> int:
        return int.from_bytes(np.array(x, self.dtype).tobytes(), "little")

    def best_work(self, *more: Any) -> None:
        """Work space of the size that the routine asks for, and that size; `more` are the arguments that follow."""
        answer = ((ctypes.c_float if self.real_item == 4 else ctypes.c_double) * 16)()
        given = [*self.query, answer, ctypes.c_int(-1), *more]
        pointers = [ctypes.byref(x) if isinstance(x, ctypes.c_int) else x for x in given]
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))(self.address)(
            *[ctypes.cast(p, ctypes.c_void_p) for p in pointers]
        )
        self.work(max(1, int(answer[0])), self.item)

    def text(self, is_alone: bool) -> str:
        """The LLVM module; `{name}` stands for its function, `{{triple}}` for this machine's."""
        element = f"i{8 * self.item}"
        passed = ", ".join(f"ptr {a}" for a in self.arguments)
        body = "\n  ".join([*self.lines, f"call void @{self.symbol}({passed})", *self.after])
        return "\n".join(
            [
                'target triple = "TRIPLE"', f"declare void @{self.symbol}({', '.join(['ptr'] * len(self.arguments))})",
                "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
                *self.globals,
                (_TURNED + _FACTOR).replace("ELEMENT", element).replace("ALIGNED", str(self.real_item))
                .replace("NAN", str(self._bits(np.nan))), _ORDER,
                _PAIRED.replace("REAL", "float" if self.real_item == 4 else "double"),
                "declare void @tilewright_alone(i1)" * is_alone,
                "define void @SYMBOL(i64 %begin, i64 %end, ptr %table, ptr %scratch) {", "entry:",
                "  call void @tilewright_alone(i1 true)" * is_alone, "  br label %head", "head:",
                "  %b = phi i64 [ %begin, %entry ], [ %b_next, %body ]", "  %more = icmp slt i64 %b, %end",
                "  br i1 %more, label %body, label %done", "body:", f"  {body}", "  %b_next = add i64 %b, 1",
                "  br label %head", "done:", "  call void @tilewright_alone(i1 false)" * is_alone, "  ret void", "}", "",
            ]
        )  # fmt: skip
