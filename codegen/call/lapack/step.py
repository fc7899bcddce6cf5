"""LAPACK called from native code: a custom call of XLA's as a step of the launcher, without the interpreter.

Whoever gives the custom calls' functions says where the routines are (`hlo.foreign.with_routines`). A step is a function of its
own for an op's sizes: each matrix of a batch, a task, is turned to columns in scratch, the routine is called on it, and what it
made is turned back. What is empty is left to Python's way.

    lapack_ssyevd_ffi(a) -> vectors, values, info        ssyevd(jobz, uplo, n, a, lda, w, work, lwork, iwork, liwork, info)

Matrices of a batch that threads share are computed on one thread each. OpenBLAS would take threads of its own for each of them,
on cores where the launcher's are: eight eigenproblems of 80 x 80 took 83 ms, and take 4. Where OpenBLAS cannot be told so
(`@alone`), one thread calls it for all matrices for which it has threads.

A triangular system is solved as it lies: a matrix by rows is its transposed by columns, and x a = b is the transposed of
a^T x^T = b^T. So nothing is turned, and the routine is told the other side and the other triangle.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codegen.call.direct import native_function
from codegen.call.lapack.alone import publish_alone
from codegen.call.lapack.routines import ROUTINES, write_cholesky, write_lu
from codegen.call.lapack.writer import DTYPES, Writer
from codegen.launcher import launch
from codegen.native.lower import publish
from hlo.errors import Declined
from hlo.foreign import native_routine
from hlo.module import Op
from hlo.types import TensorType

__all__ = ["lapack_step"]

_TARGET = re.compile(r"lapack_[sdcz](syevd|heevd|gesdd|potrf|getrf|geqrf|orgqr|ungqr|trsm|gtsv|geev)_ffi")
# of XLA's compiler for accelerators
_OTHER_NAMES = {"Qr": "geqrf", "ProductOfElementaryHouseholderReflectors": "orgqr", "LuDecomposition": "getrf"}
_OPS = {"stablehlo.triangular_solve": "trsm", "stablehlo.cholesky": "potrf"}
_PREFIXES = {dtype: prefix for prefix, dtype in DTYPES.items()}
_LETTERS = {"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}
_MOST_ELEMS = 1 << 16  # of a matrix of a batch that is shared among threads
_MOST_ELEMS_WITH_THREADS = 1 << 10  # the same where BLAS cannot be told to take one thread
_LEAST_ELEMS = 1 << 12  # from which on LAPACK takes threads of its own
_WITHOUT_THREADS = frozenset({"gtsv"})
_CALL_SECONDS, _STEPS_A_SECOND, _CHUNK_SECONDS = 1e-6, 1e9, 2e-5  # LAPACK's, roughly: eight steps an element and more
_LONG_ELEMS = 1 << 16  # of a matrix: a call on a larger one takes milliseconds, and signals are looked for after it


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
            "trans_x": _LETTERS[op.attr("transpose_a")], "diag": "U" if op.attr("unit_diagonal") else "N",
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
    """The step of an op that is one of LAPACK's routines: a custom call, or an op of StableHLO.

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
        return Declined("its elements are none of LAPACK's")
    if prefix in "cz" and name == "orgqr":
        name = "ungqr"
    options = _options(op)
    write, needed = ROUTINES[name]
    if op.name == "stablehlo.cholesky":
        write = write_cholesky
    elif op.name == "stablehlo.custom_call" and op.attr("call_target_name") == "LuDecomposition":
        write = write_lu
    if not needed <= set(options):
        return Declined("it does not say which matrix is meant")
    is_call = op.name == "stablehlo.custom_call"
    known = function if is_call else (custom_calls or {}).get(f"lapack_{prefix}{name}_ffi", function)
    address = native_routine(known, prefix + name)
    if not address:
        return Declined("the function does not tell where the routine is")
    writer = Writer(op, prefix, name, address, options)
    write(writer)
    publish(writer.symbol, writer.address)
    addresses = [native_routine(known, f"{what}_num_threads") for what in ("get", "set")]
    is_threaded = name not in _WITHOUT_THREADS
    chunk = _chunk(writer, _MOST_ELEMS if all(addresses) or not is_threaded else _MOST_ELEMS_WITH_THREADS)
    is_alone = is_threaded and all(addresses) and chunk < writer.batch
    kept = publish_alone(*addresses) if is_alone else None
    text = writer.text(is_alone)
    symbol = f"tilewright_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    pattern = text.replace("SYMBOL", symbol).replace("{", "{{").replace("}", "}}").replace("TRIPLE", "{triple}")
    entry, code = native_function(pattern, symbol)
    is_long = writer.batch * writer.elems > _LONG_ELEMS
    has_threads = is_threaded and not is_alone and writer.elems >= _LEAST_ELEMS
    return launch.Library(tuple(buffers), entry, (code, kept), writer.scratch_bytes, is_long, writer.batch, chunk, has_threads)


def _chunk(w: Writer, most: int) -> int:
    """How many matrices of a batch a thread takes at a time: some microseconds' worth, or all where LAPACK has threads itself."""
    seconds = _CALL_SECONDS + w.elems * min(w.rows, w.columns) / _STEPS_A_SECOND
    if w.elems > most:
        return max(1, w.batch)
    return max(1, min(w.batch, int(_CHUNK_SECONDS / seconds)))
