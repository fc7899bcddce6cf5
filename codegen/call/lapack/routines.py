"""How each of LAPACK's routines is called: its arguments in order, for the sizes of an op."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from codegen.call.lapack.writer import Writer

__all__ = ["ROUTINES", "write_cholesky", "write_lu"]

# Each routine's arguments in LAPACK's order; buffers are by their number among the op's operands, or among its results.


def _syevd(w: Writer) -> None:
    n = w.columns
    w.numbers(w.options["mode"], w.options["uplo"], n)
    w.matrix(n, n, made=0)
    w.vector(w.result(1))
    if w.is_complex:
        w.work(2 * n + n * n, w.item)
        w.work(1 + 5 * n + 2 * n * n, w.real_item)
    else:
        w.work(1 + 6 * n + 2 * n * n, w.item)
    w.work(3 + 5 * n, 4)
    w.info(2)


def _gesdd(w: Writer) -> None:
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
    least, most = min(m, n), max(m, n)
    if w.is_complex:
        w.best_work((ctypes.c_double * 16)(), (ctypes.c_int * 16)(), (ctypes.c_int * 1)())
        w.room_for(max(5 * least * least + 7 * least, 2 * most * least + 2 * least * least + least) * w.real_item)
    else:
        w.best_work((ctypes.c_int * 16)(), (ctypes.c_int * 1)())
    w.room_for(8 * least * 4)
    w.info(4)


def _potrf(w: Writer) -> None:
    w.numbers(w.options["uplo"], w.columns)
    w.matrix(w.columns, w.columns, made=0)
    w.info(1)


def _getrf(w: Writer) -> None:
    w.numbers(w.rows, w.columns)
    w.matrix(w.rows, w.columns, made=0)
    w.vector(w.result(1))
    w.info(2)


def _geqrf(w: Writer) -> None:
    w.numbers(w.rows, w.columns)
    w.matrix(w.rows, w.columns, made=0)
    w.vector(w.result(1))
    w.best_work((ctypes.c_int * 1)())
    w.room_for(4)


def _orgqr(w: Writer) -> None:
    taus = w.operands[1]
    w.numbers(w.rows, w.columns, w.types[taus].static_shape[-1])
    w.matrix(w.rows, w.columns, made=0)
    w.vector(taus)
    w.best_work((ctypes.c_int * 1)())
    w.room_for(4)


def write_cholesky(w: Writer) -> None:
    is_lower = w.options["uplo"] == ord("L")
    w.numbers(ord("U") if is_lower else ord("L"), w.columns)  # of the transposed matrix
    place = w.copied(0)
    info = w.room(4)
    w.passed(info)
    w.factor(place, info, is_lower)


def write_lu(w: Writer) -> None:
    w.numbers(w.rows, w.columns)
    w.matrix(w.rows, w.columns, made=0)
    w.vector(w.result(1))
    w.room_for(4)
    w.order()


def _trsm(w: Writer) -> None:
    a, b = w.operands
    rows, columns = w.types[b].static_shape[-2:]
    w.numbers(ord("R") if w.options["side"] == ord("L") else ord("L"))
    w.numbers(ord("U") if w.options["uplo"] == ord("L") else ord("L"))
    w.numbers(w.options["trans_x"], w.options["diag"], columns, rows)
    w.one()
    w.vector(a, 2)
    w.numbers(w.columns)
    w.copied_back(w.copied(b), 0)


def _geev(w: Writer) -> None:
    n = w.columns
    wanted = [w.options[f"compute_{side}"] for side in ("left", "right")]
    w.numbers(*wanted, n)
    w.matrix(n, n)
    values = 1 if w.is_complex else 2
    for k in range(values):
        w.vector(w.result(k))
    for k, option in enumerate(wanted):
        if option == ord("V") and w.is_complex:
            w.matrix(n, n, given=None, made=values + k)
        elif option == ord("V"):
            w.pairs(n, values + k, 1)
        else:
            w.zeros(values + k)
            w.numbers(max(1, n))
    if w.is_complex:
        w.best_work((ctypes.c_double * 16)(), (ctypes.c_int * 1)())
        w.room_for(2 * n * w.real_item)
    else:
        w.best_work((ctypes.c_int * 1)())
    w.info(values + 2)


def _gtsv(w: Writer) -> None:
    lower, middle, upper, right = w.operands
    rows, columns = w.types[right].static_shape[-2:]
    w.numbers(rows, columns)
    w.vector_of(lower, 0, 1)  # the first row has nothing on its left, nor the last one on its right
    w.vector_of(middle, 1)
    w.vector_of(upper, 2)
    w.matrix(rows, columns, given=right, made=3)
    w.info(4)


# routine -> how its call is written, and the options that the custom call has to name
ROUTINES: dict[str, tuple[Callable[[Writer], None], frozenset[str]]] = {
    "syevd": (_syevd, frozenset({"mode", "uplo"})), "gesdd": (_gesdd, frozenset({"mode"})),
    "potrf": (_potrf, frozenset({"uplo"})), "getrf": (_getrf, frozenset()), "geqrf": (_geqrf, frozenset()),
    "orgqr": (_orgqr, frozenset()), "trsm": (_trsm, frozenset({"side", "uplo", "trans_x", "diag"})),
    "gtsv": (_gtsv, frozenset()), "geev": (_geev, frozenset({"compute_left", "compute_right"})),
    "heevd": (_syevd, frozenset({"mode", "uplo"})), "ungqr": (_orgqr, frozenset()),
}  # fmt: skip
