"""LAPACK called from native code: a custom call of XLA's as a step of the launcher, without the interpreter.

Whoever gives the custom calls' functions says where the routines are (`hlo.foreign.with_routines`). A step is a function of its
own for an op's sizes: each matrix of a batch is turned to columns in scratch, the routine is called on it, and what it made is
turned back. What is no real matrix, or is empty, is left to Python's way.

    lapack_ssyevd_ffi(a) -> vectors, values, info        ssyevd(jobz, uplo, n, a, lda, w, work, lwork, iwork, liwork, info)
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from codegen.call.direct import native_function
from codegen.launcher import launch
from codegen.native.lower import publish
from hlo.errors import Declined
from hlo.foreign import native_routine
from hlo.module import Op
from hlo.types import TensorType

__all__ = ["lapack_step"]

_TARGET = re.compile(r"lapack_[sdcz](syevd|gesdd|potrf|getrf|geqrf|orgqr)_ffi")
_OTHER_NAMES = {"Qr": "geqrf", "ProductOfElementaryHouseholderReflectors": "orgqr"}  # of XLA's compiler for accelerators
_PREFIXES = {"float32": "s", "float64": "d"}
_LINE = 64
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
        self.rows, self.columns = self.types[0].static_shape[-2:]
        self.options = options
        self.batch = prod(op.operands[0].shape[:-2])
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
        self._passed(self.room(size_bytes))

    def work(self, elems: int, item_bytes: int) -> None:
        """Work space, and how many elements it has."""
        self.room_for(elems * item_bytes)
        self.numbers(elems)

    def _passed(self, argument: str) -> None:
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
        self._passed(self._at(k, rank, self.lines))

    def info(self, k: int) -> None:
        """Result `k`, one number a matrix: whether the routine failed."""
        self.vector(self.result(k), 0)

    def matrix(self, rows: int, columns: int, *, given: int | None = 0, made: int) -> None:
        """A matrix by columns in scratch and its leading dimension: turned from buffer `given` before, to result `made` after."""
        place = self.room(rows * columns * self.item)
        if given is not None:
            at = self._at(given, 2, self.lines)
            self.lines.append(f"call void @turned(ptr {place}, ptr {at}, i64 {rows}, i64 {columns})")
        at = self._at(self.result(made), 2, self.after)
        self.after.append(f"call void @turned(ptr {at}, ptr {place}, i64 {columns}, i64 {rows})")
        self._passed(place)
        self.numbers(rows)

    def best_work(self, *more: Any) -> None:
        """Work space of the size that the routine asks for, and that size; `more` are the arguments that follow."""
        answer = (self.item_ctype * 16)()
        given = [*self.query, answer, ctypes.c_int(-1), *more]
        pointers = [ctypes.byref(x) if isinstance(x, ctypes.c_int) else x for x in given]
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))(self.address)(
            *[ctypes.cast(p, ctypes.c_void_p) for p in pointers]
        )
        self.work(max(1, int(answer[0])), self.item)

    def text(self) -> str:
        """The LLVM module; `{name}` stands for its function, `{{triple}}` for this machine's."""
        element = "i32" if self.item == 4 else "i64"
        passed = ", ".join(f"ptr {a}" for a in self.arguments)
        body = "\n  ".join([*self.lines, f"call void @{self.symbol}({passed})", *self.after])
        return "\n".join(
            [
                'target triple = "TRIPLE"', f"declare void @{self.symbol}({', '.join(['ptr'] * len(self.arguments))})",
                *self.globals, _TURNED.replace("ELEMENT", element),
                "define void @SYMBOL(i64 %begin, i64 %end, ptr %table, ptr %scratch) {", "entry:", "  br label %head", "head:",
                "  %b = phi i64 [ 0, %entry ], [ %b_next, %body ]", f"  %more = icmp slt i64 %b, {self.batch}",
                "  br i1 %more, label %body, label %done", "body:", f"  {body}", "  %b_next = add i64 %b, 1",
                "  br label %head", "done:", "  ret void", "}", "",
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
    left, right = (w.types[w.result(k)].static_shape[-2:] for k in (2, 3))
    w.numbers(w.options["mode"], m, n)
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


# routine -> how its call is written, and the options that the custom call has to name
_ROUTINES: dict[str, tuple[Callable[[_Writer], None], frozenset[str]]] = {
    "syevd": (_syevd, frozenset({"mode", "uplo"})), "gesdd": (_gesdd, frozenset({"mode"})),
    "potrf": (_potrf, frozenset({"uplo"})), "getrf": (_getrf, frozenset()), "geqrf": (_geqrf, frozenset()),
    "orgqr": (_orgqr, frozenset()),
}  # fmt: skip


def _name(op: Op) -> str | None:
    """The routine's name without its letter for the type; None for what is none."""
    if op.name != "stablehlo.custom_call":
        return None
    target = str(op.attr("call_target_name"))
    found = _TARGET.fullmatch(target)
    return _OTHER_NAMES.get(target) if found is None else found[1]


def lapack_step(op: Op, buffers: Sequence[int], function: Callable[..., Any]) -> launch.Library | Declined:
    """The step of a custom call that is one of LAPACK's routines on real matrices, which `function` calls in Python's way.

    `buffers` are those of the operands, each once, then the results'.
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
    found = op.extra.get("mhlo.backend_config", {})
    given: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    options = {k: int(getattr(v, "value", v)) for k, v in given.items()}
    write, needed = _ROUTINES[name]
    if not needed <= set(options):
        return Declined("it does not say which matrix is meant")
    if name == "gesdd" and options["mode"] == ord("N"):
        return Declined("without vectors LAPACK makes dummies of another shape")
    address = native_routine(function, prefix + name)
    if not address:
        return Declined("the function does not tell where the routine is")
    writer = _Writer(op, prefix, name, address, options)
    write(writer)
    publish(writer.symbol, writer.address)
    text = writer.text()
    symbol = f"tilewright_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    pattern = text.replace("SYMBOL", symbol).replace("{", "{{").replace("}", "}}").replace("TRIPLE", "{triple}")
    entry, code = native_function(pattern, symbol)
    is_long = prod(op.operands[0].shape) > _LONG_ELEMS
    return launch.Library(tuple(buffers), entry, code, writer.scratch_bytes, is_long)
