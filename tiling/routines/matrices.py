"""Small matrices, one after the other: factorisations and triangular systems as loops that stay in a core's nearest caches.

    cholesky, triangular_solve      ops of StableHLO
    LuDecomposition, Qr, ProductOfElementaryHouseholderReflectors, lapack_*_ffi      custom calls that XLA itself gives a meaning

A batch is tasks, so that loops and batches around them call no library. Large matrices stay with one, which works in blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from indexing.expr import Expr, Interval, Var, as_expr
from tiling.loops.buffers import make_buffer
from tiling.loops.ir import Block2D, Buffer, Matrix, MatrixStep, Phase, Schedule, Scope
from tiling.loops.names import Names
from tiling.routines.scatter import Builder, element_of

__all__ = ["MATRIX_CALLS", "MOST_ROWS", "lower_matrices", "matrices_decline", "matrix_kind"]

MOST_ROWS = 64
MOST_PRODUCTS = 1 << 20
"""Beyond that for one matrix the blocks of a library, or its threads, are worth its call."""

MATRIX_CALLS = {
    "LuDecomposition": "lu", "Qr": "qr", "ProductOfElementaryHouseholderReflectors": "reflectors",
    **{f"lapack_{p}{name}_ffi": kind for p in "sdcz" for name, kind in
       (("getrf", "lu"), ("geqrf", "qr"), ("potrf", "cholesky"), ("trsm", "triangular"))},
    **{f"lapack_{p}{name}_ffi": kind for kinds, letter in (("sd", "or"), ("cz", "un")) for p in kinds for name, kind in
       ((f"{letter}gqr", "reflectors"), (f"{letter}mqr", "applied"))},
}  # fmt: skip
_ELEMENTS = frozenset(ELEMENT_TYPES[name] for name in ("f32", "f64", "complex<f32>", "complex<f64>", "i32"))
_OPS = {"stablehlo.cholesky": "cholesky", "stablehlo.triangular_solve": "triangular"}
_TOLD = {"cholesky": ("uplo",), "triangular": ("side", "uplo", "trans_x", "diag"), "applied": ("left", "transpose")}
_OPERANDS = {  # dimensions of each
    "lu": (2,), "qr": (2,), "reflectors": (2, 1), "applied": (2, 1, 2), "cholesky": (2,), "triangular": (2, 2),
}  # fmt: skip


def matrix_kind(op: Op) -> str:
    """What an op does to each matrix of a batch; the empty text for all other ops."""
    if op.name == "stablehlo.custom_call":
        return MATRIX_CALLS.get(op.attr("call_target_name"), "")
    return _OPS.get(op.name, "")


def matrices_decline(op: Op) -> Declined | None:
    """Why an op is left to a library, or None."""
    kind = matrix_kind(op)
    if not kind:
        return Declined(f"{op.name} is no op on matrices that has loops of its own")
    for v in (*op.operands, *op.results):
        if not isinstance(v.type, TensorType) or not v.type.is_static:
            return Declined(f"{v.type} has no fixed shape")
        if v.tensor.element not in _ELEMENTS:
            return Declined(f"matrices of {v.tensor.element} are the library's")
    if len(op.operands) != len(_OPERANDS[kind]) or any(not v.tensor.size_elems for v in (*op.operands, *op.results)):
        return Declined("there is no matrix")
    batch = op.operands[0].shape[:-2]
    expected = [op.operands[0].tensor.element] * len(op.operands)
    if [v.tensor.element for v in op.operands] != expected or any(
        v.rank < n or v.shape[: v.rank - n] != batch for v, n in zip(op.operands, _OPERANDS[kind], strict=True)
    ):
        return Declined("its operands are no batch of matrices")
    if any(v.shape[: len(batch)] != batch for v in op.results) or len(op.results) > (3 if kind == "lu" else 2):
        return Declined("its results are no batch of matrices")
    if _is_lapack(op) and any(_number(op, name) is None for name in _TOLD.get(kind, ())):
        return Declined("its options are not told")
    element = op.operands[0].tensor.element
    if kind == "applied" and isinstance(element, ElementType) and element.is_complex and "left" not in _options(op, kind):
        return Declined("the product of reflectors on the right of complex matrices is the library's")
    rows, columns = op.operands[0].shape[-2:]
    if kind in ("triangular", "applied"):
        columns = max(columns, prod(op.operands[-1].shape[-2:]) // rows)
    by_rows = kind == "triangular" and "left" in _options(op, kind)  # whose rows are vectors, however many right sides there are
    is_large = rows * columns > MOST_ROWS * MOST_ROWS and not by_rows
    if rows > MOST_ROWS or rows * rows * columns > MOST_PRODUCTS or is_large:
        return Declined(f"matrices of {rows} rows and {columns} columns are faster in a library's blocks")
    return None


def _is_lapack(op: Op) -> bool:
    return op.name == "stablehlo.custom_call" and op.attr("call_target_name").startswith("lapack_")


def _number(op: Op, name: str) -> int | None:
    """An option of one of LAPACK's calls: a letter's number, or a truth."""
    found = op.extra.get("mhlo.backend_config")
    value: Any = found.get(name) if isinstance(found, Mapping) else None
    return None if value is None else int(getattr(value, "value", value))


def _option(op: Op, name: str) -> str:
    return chr(_number(op, name) or 0)


def _options(op: Op, kind: str) -> frozenset[str]:
    is_lapack = _is_lapack(op)
    found = {"lapack"} if is_lapack else set[str]()
    if kind == "cholesky" and (_option(op, "uplo") == "L" if is_lapack else op.attr("lower")):
        found.add("lower")
    if kind == "applied":
        found |= {name for name, option in (("left", "left"), ("transposed", "transpose")) if _number(op, option)}
    if kind == "triangular":
        told: Mapping[str, bool] = {
            "left": _option(op, "side") == "L", "lower": _option(op, "uplo") == "L",
            "transposed": _option(op, "trans_x") != "N", "adjoint": _option(op, "trans_x") == "C",
            "unit": _option(op, "diag") == "U",
        } if is_lapack else {
            "left": op.attr("left_side"), "lower": op.attr("lower"),
            "transposed": op.attr("transpose_a") != "NO_TRANSPOSE", "adjoint": op.attr("transpose_a") == "ADJOINT",
            "unit": op.attr("unit_diagonal"),
        }  # fmt: skip
        found |= {name for name, holds in told.items() if holds}
    return frozenset(found)


def lower_matrices(op: Op, builder: Builder, names: Names) -> Schedule:
    """A task for each matrix of the batch."""
    kind = matrix_kind(op)
    batch = op.operands[0].rank - 2
    count = prod(op.operands[0].shape[:batch])
    t = Var("t0")
    ranges: dict[Var, Interval] = {t: Interval(0, count - 1)}

    def matrix(b: Buffer, v: Value) -> Matrix:
        inner = v.shape[batch:]
        rows, columns = (inner[0] if inner else 1), (inner[1] if len(inner) > 1 else 1)
        base: Expr = as_expr(t * (rows * columns))
        return Matrix(Block2D(b, base, columns, 1), rows, columns, Var("row"), Var("column"))

    read = {v: names.global_buffer(v, Scope.ARGUMENT) for v in dict.fromkeys(op.operands)}
    sources = tuple(matrix(read[v], v) for v in op.operands)
    targets = tuple(matrix(names.global_buffer(v, Scope.RESULT), v) for v in op.results)
    element, tag = element_of(op.operands[0]), op.results[0]
    scratch = tuple(
        make_buffer(names.scratch(tag, stem), Scope.THREAD, element, (n,), (n,), (0,)) for stem, n in _scratch(kind, sources)
    )
    step = MatrixStep(op, kind, _options(op, kind), sources, targets, scratch)
    buffers = dict.fromkeys((*read.values(), *(m.block.buffer for m in targets), *scratch))
    return Schedule((Phase(((t, count),), (step,)),), tuple(buffers), op.results[0].shape, ranges)


def _scratch(kind: str, sources: Sequence[Matrix]) -> list[tuple[str, int]]:
    last = sources[-1] if kind in ("triangular", "applied") else sources[0]
    found = [("matrix", last.rows * last.columns)]
    return [*found, ("sums", max(last.rows, last.columns))] if kind in ("qr", "reflectors", "applied") else found
