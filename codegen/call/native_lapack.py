"""LAPACK called from native code: a custom call of XLA's as a step of the launcher, without the interpreter.

Whoever gives the custom calls' functions says where the routines are (`hlo.foreign.with_routines`). A step is a function of its
own for an op's sizes: each matrix of a batch, a task, is turned to columns in scratch, the routine is called on it, and what it
made is turned back. What is no real matrix, or is empty, is left to Python's way.

    lapack_ssyevd_ffi(a) -> vectors, values, info        ssyevd(jobz, uplo, n, a, lda, w, work, lwork, iwork, liwork, info)

Matrices of a batch that threads share are computed on one thread each. OpenBLAS would take threads of its own for each of them,
on cores where the launcher's are: eight eigenproblems of 80 x 80 took 83 ms, and take 4. Where OpenBLAS cannot be told so
(`@alone`), one thread calls it for all matrices for which it has threads.

A triangular system is solved as it lies: a matrix by rows is its transposed by columns, and x a = b is the transposed of
a^T x^T = b^T. So nothing is turned, and the routine is told the other side and the other triangle.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from codegen.call.direct import native_function
from codegen.launcher import launch
from codegen.native.lower import publish
from hlo.errors import Declined
from hlo.foreign import native_routine
from hlo.module import Op
from hlo.types import TensorType

__all__ = ["lapack_step"]

_TARGET = re.compile(r"lapack_[sdcz](syevd|gesdd|potrf|getrf|geqrf|orgqr|trsm|gtsv)_ffi")
# of XLA's compiler for accelerators
_OTHER_NAMES = {"Qr": "geqrf", "ProductOfElementaryHouseholderReflectors": "orgqr", "LuDecomposition": "getrf"}
_VECTORS = frozenset({"gtsv"})  # whose first operand is a vector
_OPS = {"stablehlo.triangular_solve": "trsm", "stablehlo.cholesky": "potrf"}
_PREFIXES = {"float32": "s", "float64": "d"}
_LINE = 64
_MOST_ELEMS = 1 << 16  # of a matrix of a batch that is shared among threads
_MOST_ELEMS_WITH_THREADS = 1 << 10  # the same where BLAS cannot be told to take one thread
_LEAST_ELEMS = 1 << 12  # from which on LAPACK takes threads of its own
_WITHOUT_THREADS = frozenset({"gtsv"})
_CALL_SECONDS, _STEPS_A_SECOND, _CHUNK_SECONDS = 1e-6, 1e9, 2e-5  # LAPACK's, roughly: eight steps an element and more
_LONG_ELEMS = 1 << 16  # of a matrix: a call on a larger one takes milliseconds, and signals are looked for after it

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
  %x = load ELEMENT, ptr %from_at
  store ELEMENT %x, ptr %to_at
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
  %x = load ELEMENT, ptr %from_at
  %is_below = icmp sle i64 %j, %i
  %is_above = icmp sge i64 %j, %i
  %is_inside = select i1 %lower, i1 %is_below, i1 %is_above
  %known = select i1 %is_fine, ELEMENT %x, ELEMENT NAN
  %value = select i1 %is_inside, ELEMENT %known, ELEMENT 0
  store ELEMENT %value, ptr %to_at
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


# How many are alone now, and above that how many threads OpenBLAS had before: none waits for another. Who comes when the last has
# ended, and has not yet set that many again, finds one thread: that is left as it is, at its own end, too, or it would stay one.
_ALONE = """
target triple = "{triple}"
@state = internal global i64 0
declare i32 @tilewright_blas_threads()
declare void @tilewright_set_blas_threads(i32)
define void @SYMBOL(i1 %begins) {{
entry:
  br i1 %begins, label %begin, label %end
begin:
  %found = load atomic i64, ptr @state monotonic, align 8
  %others = and i64 %found, 4294967295
  %is_first = icmp eq i64 %others, 0
  br i1 %is_first, label %first, label %further
first:
  %threads = call i32 @tilewright_blas_threads()
  %wide = zext i32 %threads to i64
  %high = shl i64 %wide, 32
  %new = or i64 %high, 1
  %pair = cmpxchg ptr @state, i64 %found, i64 %new seq_cst seq_cst, align 8
  %done = extractvalue {{ i64, i1 }} %pair, 1
  %has_threads = icmp ugt i32 %threads, 1
  br i1 %done, label %made, label %begin
made:
  br i1 %has_threads, label %limit, label %return
limit:
  call void @tilewright_set_blas_threads(i32 1)
  ret void
further:
  %more = add i64 %found, 1
  %pair_2 = cmpxchg ptr @state, i64 %found, i64 %more seq_cst seq_cst, align 8
  %done_2 = extractvalue {{ i64, i1 }} %pair_2, 1
  br i1 %done_2, label %return, label %begin
end:
  %now = load atomic i64, ptr @state monotonic, align 8
  %count = and i64 %now, 4294967295
  %is_last = icmp eq i64 %count, 1
  %less = sub i64 %now, 1
  %left = select i1 %is_last, i64 0, i64 %less
  %pair_3 = cmpxchg ptr @state, i64 %now, i64 %left seq_cst seq_cst, align 8
  %done_3 = extractvalue {{ i64, i1 }} %pair_3, 1
  br i1 %done_3, label %left_it, label %end
left_it:
  %before = lshr i64 %now, 32
  %had_threads = icmp ugt i64 %before, 1
  %restores = and i1 %is_last, %had_threads
  br i1 %restores, label %restore, label %return
restore:
  %narrow = trunc i64 %before to i32
  call void @tilewright_set_blas_threads(i32 %narrow)
  br label %return
return:
  ret void
}}
"""


@functools.cache
def _limit(count: int, set_count: int) -> tuple[int, Any]:
    """Publishes `@alone`, which has OpenBLAS take one thread between two calls of it: where it is, and what keeps its code."""
    publish("tilewright_blas_threads", count)
    publish("tilewright_set_blas_threads", set_count)
    symbol = f"tilewright_{hashlib.sha256(_ALONE.encode()).hexdigest()[:16]}"
    entry, code = native_function(_ALONE.replace("SYMBOL", symbol), symbol)
    publish("tilewright_alone", entry)
    return entry, code


class _Writer:
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
        self.item = 4 if prefix == "s" else 8
        self.item_ctype = ctypes.c_float if prefix == "s" else ctypes.c_double
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

    def zeros(self, made: int) -> None:
        """Result `made`, of zeros, which the routine leaves alone."""
        k = self.result(made)
        at = self._at(k, 2, self.lines)
        size = prod(self.types[k].static_shape[-2:]) * self.item
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
        return int(np.array(x, np.float32 if self.item == 4 else np.float64).view(f"i{self.item}"))

    def best_work(self, *more: Any) -> None:
        """Work space of the size that the routine asks for, and that size; `more` are the arguments that follow."""
        answer = (self.item_ctype * 16)()
        given = [*self.query, answer, ctypes.c_int(-1), *more]
        pointers = [ctypes.byref(x) if isinstance(x, ctypes.c_int) else x for x in given]
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))(self.address)(
            *[ctypes.cast(p, ctypes.c_void_p) for p in pointers]
        )
        self.work(max(1, int(answer[0])), self.item)

    def text(self, is_alone: bool) -> str:
        """The LLVM module; `{name}` stands for its function, `{{triple}}` for this machine's."""
        element = "i32" if self.item == 4 else "i64"
        passed = ", ".join(f"ptr {a}" for a in self.arguments)
        body = "\n  ".join([*self.lines, f"call void @{self.symbol}({passed})", *self.after])
        return "\n".join(
            [
                'target triple = "TRIPLE"', f"declare void @{self.symbol}({', '.join(['ptr'] * len(self.arguments))})",
                "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
                *self.globals, _TURNED.replace("ELEMENT", element),
                _FACTOR.replace("ELEMENT", element).replace("NAN", str(self._bits(np.nan))), _ORDER,
                "declare void @tilewright_alone(i1)" * is_alone,
                "define void @SYMBOL(i64 %begin, i64 %end, ptr %table, ptr %scratch) {", "entry:",
                "  call void @tilewright_alone(i1 true)" * is_alone, "  br label %head", "head:",
                "  %b = phi i64 [ %begin, %entry ], [ %b_next, %body ]", "  %more = icmp slt i64 %b, %end",
                "  br i1 %more, label %body, label %done", "body:", f"  {body}", "  %b_next = add i64 %b, 1",
                "  br label %head", "done:", "  call void @tilewright_alone(i1 false)" * is_alone, "  ret void", "}", "",
            ]
        )  # fmt: skip


# Each routine's arguments in LAPACK's order; buffers are by their number among the op's operands, or among its results.


def _syevd(w: _Writer) -> None:
    n = w.columns
    w.numbers(w.options["mode"], w.options["uplo"], n)
    w.matrix(n, n, made=0)
    w.vector(w.result(1))
    w.work(1 + 6 * n + 2 * n * n, w.item)
    w.work(3 + 5 * n, 4)
    w.info(2)


def _gesdd(w: _Writer) -> None:
    m, n = w.rows, w.columns
    w.numbers(w.options["mode"], m, n)
    if w.options["mode"] == ord("N"):  # no vectors are made, and the matrix is what it was
        w.matrix(m, n)
        w.vector(w.result(1))
        for k in (2, 3):
            w.zeros(k)
            w.numbers(max(m, n))
        w.kept(0)
    else:
        left, right = (w.types[w.result(k)].static_shape[-2:] for k in (2, 3))
        w.matrix(m, n, made=0)
        w.vector(w.result(1))
        w.matrix(m, left[1], given=None, made=2)
        w.matrix(right[0], n, given=None, made=3)
    w.best_work((ctypes.c_int * 16)(), (ctypes.c_int * 1)())
    w.room_for(8 * min(m, n) * 4)
    w.info(4)


def _potrf(w: _Writer) -> None:
    w.numbers(w.options["uplo"], w.columns)
    w.matrix(w.columns, w.columns, made=0)
    w.info(1)


def _getrf(w: _Writer) -> None:
    w.numbers(w.rows, w.columns)
    w.matrix(w.rows, w.columns, made=0)
    w.vector(w.result(1))
    w.info(2)


def _geqrf(w: _Writer) -> None:
    w.numbers(w.rows, w.columns)
    w.matrix(w.rows, w.columns, made=0)
    w.vector(w.result(1))
    w.best_work((ctypes.c_int * 1)())
    w.room_for(4)


def _orgqr(w: _Writer) -> None:
    taus = w.operands[1]
    w.numbers(w.rows, w.columns, w.types[taus].static_shape[-1])
    w.matrix(w.rows, w.columns, made=0)
    w.vector(taus)
    w.best_work((ctypes.c_int * 1)())
    w.room_for(4)


def _cholesky(w: _Writer) -> None:
    is_lower = w.options["uplo"] == ord("L")
    w.numbers(ord("U") if is_lower else ord("L"), w.columns)  # of the transposed matrix
    place = w.copied(0)
    info = w.room(4)
    w.passed(info)
    w.factor(place, info, is_lower)


def _lu(w: _Writer) -> None:
    w.numbers(w.rows, w.columns)
    w.matrix(w.rows, w.columns, made=0)
    w.vector(w.result(1))
    w.room_for(4)
    w.order()


def _trsm(w: _Writer) -> None:
    a, b = w.operands
    rows, columns = w.types[b].static_shape[-2:]
    w.numbers(ord("R") if w.options["side"] == ord("L") else ord("L"))
    w.numbers(ord("U") if w.options["uplo"] == ord("L") else ord("L"))
    w.numbers(w.options["trans_x"], w.options["diag"], columns, rows)
    w.one()
    w.vector(a, 2)
    w.numbers(w.columns)
    w.copied_back(w.copied(b), 0)


def _gtsv(w: _Writer) -> None:
    lower, middle, upper, right = w.operands
    rows, columns = w.types[right].static_shape[-2:]
    w.numbers(rows, columns)
    w.vector_of(lower, 0, 1)  # the first row has nothing on its left, nor the last one on its right
    w.vector_of(middle, 1)
    w.vector_of(upper, 2)
    w.matrix(rows, columns, given=right, made=3)
    w.info(4)


# routine -> how its call is written, and the options that the custom call has to name
_ROUTINES: dict[str, tuple[Callable[[_Writer], None], frozenset[str]]] = {
    "syevd": (_syevd, frozenset({"mode", "uplo"})), "gesdd": (_gesdd, frozenset({"mode"})),
    "potrf": (_potrf, frozenset({"uplo"})), "getrf": (_getrf, frozenset()), "geqrf": (_geqrf, frozenset()),
    "orgqr": (_orgqr, frozenset()), "trsm": (_trsm, frozenset({"side", "uplo", "trans_x", "diag"})),
    "gtsv": (_gtsv, frozenset()),
}  # fmt: skip


def _name(op: Op) -> str | None:
    """The routine's name without its letter for the type; None for what is none."""
    if op.name in _OPS:
        return _OPS[op.name]
    if op.name != "stablehlo.custom_call":
        return None
    target = str(op.attr("call_target_name"))
    found = _TARGET.fullmatch(target)
    return _OTHER_NAMES.get(target) if found is None else found[1]


def _options(op: Op) -> dict[str, int]:
    """What the routine is told, by the names that custom calls have for it."""
    if op.name == "stablehlo.triangular_solve":
        letters = {
            "side": "L" if op.attr("left_side") else "R", "uplo": "L" if op.attr("lower") else "U",
            "trans_x": "N" if op.attr("transpose_a") == "NO_TRANSPOSE" else "T", "diag": "U" if op.attr("unit_diagonal") else "N",
        }  # fmt: skip
        return {name: ord(letter) for name, letter in letters.items()}
    if op.name == "stablehlo.cholesky":
        return {"uplo": ord("L" if op.attr("lower") else "U")}
    found = op.extra.get("mhlo.backend_config", {})
    given: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    return {k: int(getattr(v, "value", v)) for k, v in given.items()}


def lapack_step(
    op: Op, buffers: Sequence[int], function: Callable[..., Any], custom_calls: Mapping[str, Callable[..., Any]] | None = None
) -> launch.Library | Declined:
    """The step of an op that is one of LAPACK's routines on real matrices: a custom call, or an op of StableHLO.

    `function` makes it in Python's way, and a custom call's tells where the routine is; for an op of StableHLO that does which
    `custom_calls` has for LAPACK's target. `buffers` are those of the operands, each once, then the results'.
    """
    name = _name(op)
    types = [v.type for v in (*op.operands, *op.results)]
    if name is None:
        return Declined("it is no call of LAPACK that is known here")
    if not all(isinstance(t, TensorType) and t.is_static and t.size_elems for t in types):
        return Declined("a matrix is empty")
    prefix = _PREFIXES.get(op.operands[0].tensor.dtype.name)
    if prefix is None:
        return Declined("its elements are not f32 or f64")
    options = _options(op)
    write, needed = _ROUTINES[name]
    if op.name == "stablehlo.cholesky":
        write = _cholesky
    elif op.name == "stablehlo.custom_call" and op.attr("call_target_name") == "LuDecomposition":
        write = _lu
    if not needed <= set(options):
        return Declined("it does not say which matrix is meant")
    is_call = op.name == "stablehlo.custom_call"
    known = function if is_call else (custom_calls or {}).get(f"lapack_{prefix}{name}_ffi", function)
    address = native_routine(known, prefix + name)
    if not address:
        return Declined("the function does not tell where the routine is")
    writer = _Writer(op, prefix, name, address, options)
    write(writer)
    publish(writer.symbol, writer.address)
    addresses = [native_routine(known, f"{what}_num_threads") for what in ("get", "set")]
    is_threaded = name not in _WITHOUT_THREADS
    chunk = _chunk(writer, _MOST_ELEMS if all(addresses) or not is_threaded else _MOST_ELEMS_WITH_THREADS)
    is_alone = is_threaded and all(addresses) and chunk < writer.batch
    kept = _limit(*addresses) if is_alone else None
    text = writer.text(is_alone)
    symbol = f"tilewright_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    pattern = text.replace("SYMBOL", symbol).replace("{", "{{").replace("}", "}}").replace("TRIPLE", "{triple}")
    entry, code = native_function(pattern, symbol)
    is_long = writer.batch * writer.elems > _LONG_ELEMS
    has_threads = is_threaded and not is_alone and writer.elems >= _LEAST_ELEMS
    return launch.Library(tuple(buffers), entry, (code, kept), writer.scratch_bytes, is_long, writer.batch, chunk, has_threads)


def _chunk(w: _Writer, most: int) -> int:
    """How many matrices of a batch a thread takes at a time: some microseconds' worth, or all where LAPACK has threads itself."""
    seconds = _CALL_SECONDS + w.elems * min(w.rows, w.columns) / _STEPS_A_SECOND
    if w.elems > most:
        return max(1, w.batch)
    return max(1, min(w.batch, int(_CHUNK_SECONDS / seconds)))
