"""Linear algebra that JAX hides behind custom calls, computed with SciPy's LAPACK, matrix by matrix.

`CUSTOM_CALLS[target](op, *operands)` gives the results of one custom call, as `interp.evaluate(custom_calls=…)` takes them.
Leading dimensions are batches. Results follow LAPACK's conventions (pivots from 1 on, packed reflectors); the names without
`lapack_` are those of XLA's compiler for accelerators, whose pivots start at 0.

SciPy is imported at the first call: it comes with JAX, and a program without such calls does not need it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from hlo.blas import thread_functions
from hlo.foreign import borrows, known, with_routines
from hlo.module import Op
from hlo.text.foreign_options import options_of
from hlo.types import TensorType

__all__ = ["CUSTOM_CALLS", "unsupported"]

Array = np.ndarray[Any, Any]
Routine = Callable[["_Call", tuple[Array, ...]], tuple[Any, ...]]


@functools.cache
def _function(name: str) -> Any:
    from scipy.linalg import lapack

    return getattr(lapack, name)


@functools.cache
def _address(name: str) -> int:
    """Where native code calls a routine of LAPACK's, or of BLAS: XLA calls the same one; or what tells and sets its threads."""
    if name in ("get_num_threads", "set_num_threads"):
        found = thread_functions("scipy.linalg.cython_lapack")
        return 0 if found is None else int(ctypes.cast(found[name.startswith("set")], ctypes.c_void_p).value or 0)
    module = "cython_blas" if name[1:] == "trsm" else "cython_lapack"
    try:
        capsule = importlib.import_module(f"scipy.linalg.{module}").__pyx_capi__[name]
    except (ImportError, AttributeError, KeyError):
        return 0
    called, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    called.restype, called.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(pointer(capsule, called(capsule)) or 0)


class _Call:
    """One custom call: its LAPACK prefix (s, d, c, z), its options, and how its results look."""

    def __init__(self, op: Op, prefix: str) -> None:
        self.options = options_of(op)
        self.prefix = prefix
        self.results: list[TensorType] = []
        for r in op.results:
            assert isinstance(r.type, TensorType)
            self.results.append(r.type)

    def letter(self, name: str) -> str:
        """An option that is a LAPACK letter: 'L', 'U', 'V', …"""
        return chr(self.number(name))

    def number(self, name: str) -> int:
        value = self.options[name]
        return int(getattr(value, "value", value))

    def lapack(self, real: str, complex_: str | None = None) -> Any:
        return _function(self.prefix + ((complex_ or real) if self.prefix in "cz" else real))

    @property
    def is_complex(self) -> bool:
        return self.prefix in "cz"


# ---------------------------------------------------------------- one matrix at a time


def _potrf(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    factor, info = call.lapack("potrf")(x[0], lower=call.letter("uplo") == "L", clean=0)
    return factor, info


def _trsm(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    from scipy.linalg import blas

    transpose = {"N": 0, "T": 1, "C": 2}[call.letter("trans_x")]
    solve = getattr(blas, call.prefix + "trsm")
    return (
        solve(1, x[0], x[1], side=call.letter("side") == "R", lower=call.letter("uplo") == "L", trans_a=transpose,
              diag=call.letter("diag") == "U"),
    )  # fmt: skip


def _getrf(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    factors, pivots, info = call.lapack("getrf")(x[0])
    return factors, pivots + 1, info


def _geqrf(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    factors, tau, _, _ = call.lapack("geqrf")(x[0])
    return factors, tau


def _geqp3(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    if np.any(x[1]):
        raise ValueError("columns that are pivoted to the front (nonzero jpvt) are not supported")
    factors, pivots, tau, _, _ = call.lapack("geqp3")(x[0])
    return factors, pivots, tau


def _orgqr(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    q, _, _ = call.lapack("orgqr", "ungqr")(x[0], x[1])
    return (q,)


def _ormqr(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    conjugate = "C" if call.is_complex else "T"
    sides = ("L" if call.number("left") else "R"), (conjugate if call.number("transpose") else "N")
    found, _, _ = call.lapack("ormqr", "unmqr")(*sides, x[0][:, : x[1].size], x[1], x[2], max(1, 64 * max(x[2].shape)))
    return (found,)


def _syevd(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    compute = call.lapack("syevd", "heevd")
    values, vectors, info = compute(x[0], compute_v=call.letter("mode") == "V", lower=call.letter("uplo") == "L")
    return vectors, values, info


def _svd(name: str) -> Routine:
    def compute(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
        mode = call.letter("mode")
        u, s, vt, info = call.lapack(name)(x[0], compute_uv=mode != "N", full_matrices=mode == "A")
        # Without vectors LAPACK gives dummies of one element; the program declares full ones and never reads them.
        return (x[0], s, u if mode != "N" else None, vt if mode != "N" else None, info)

    return compute


def _geev(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    left, right = call.letter("compute_left") == "V", call.letter("compute_right") == "V"
    *values, vl, vr, info = call.lapack("geev")(x[0], compute_vl=left, compute_vr=right)
    if not call.is_complex:
        vl = _unpacked(values[1], vl) if left else None
        vr = _unpacked(values[1], vr) if right else None
    return (*values, vl if left else None, vr if right else None, info)


def _unpacked(imaginary: Array, v: Array) -> Array:
    """Complex eigenvectors from LAPACK's real form: columns k, k + 1 of a conjugate pair hold the real and imaginary part."""
    out = v.astype(np.result_type(v.dtype, np.complex64))
    k = 0
    while k < v.shape[1]:
        if imaginary[k] != 0:
            out[:, k] = v[:, k] + 1j * v[:, k + 1]
            out[:, k + 1] = out[:, k].conj()
            k += 1
        k += 1
    return out


def _gees(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    wanted = call.letter("mode") == "V"
    t, selected, *values, vectors, _, info = call.lapack("gees")(lambda *w: True, x[0], compute_v=wanted, sort_t=0)
    return (t, vectors if wanted else None, *values, selected, info)


def _gehrd(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    return tuple(call.lapack("gehrd")(x[0], lo=call.number("low") - 1, hi=call.number("high") - 1))


def _sytrd(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    return tuple(call.lapack("sytrd", "hetrd")(x[0], lower=call.letter("uplo") == "L"))


def _gtsv(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    if x[1].size == 1:  # SciPy refuses diagonals of no elements
        return (*x[:3], x[3] / x[1], 0) if x[1][0] else (*x, 1)
    dl, d, du, solution, info = call.lapack("gtsv")(x[0][1:], x[1], x[2][:-1], x[3])
    return np.append(x[0][:1], dl), d, np.append(du, x[2][-1:]), solution, info


def _lu_from_0(call: _Call, x: tuple[Array, ...]) -> tuple[Any, ...]:
    factors, pivots, _ = call.lapack("getrf")(x[0])
    permutation = np.arange(x[0].shape[0])
    for k, p in enumerate(pivots):
        permutation[[k, p]] = permutation[[p, k]]
    return factors, pivots, permutation


# ---------------------------------------------------------------- batches


_PREFIX = {np.dtype(np.float32): "s", np.dtype(np.float64): "d", np.dtype(np.complex64): "c", np.dtype(np.complex128): "z"}


def unsupported(target: str, dtype: np.dtype[Any]) -> bool:
    """Whether LAPACK has no routine of these elements for a custom call that one of its routines is to run.

    >>> unsupported("Qr", np.dtype("float16")), unsupported("Qr", np.dtype("float32"))
    (True, False)
    """
    return target in _routines and dtype not in _PREFIX


_routines: set[str] = set()  # the custom calls that `_batched` has made


def _batched(routine: Routine, ranks: tuple[int, ...], name: str) -> Callable[..., tuple[Array, ...]]:
    """A custom call that runs `routine` on each matrix of a batch; `ranks` are the operands' dimensions without the batch."""
    _routines.add(name)

    @with_routines(_address)
    @known
    @borrows
    def compute(op: Op, *operands: Array) -> tuple[Array, ...]:
        prefix = _PREFIX.get(operands[0].dtype)
        if prefix is None:
            raise ValueError(f"{name}: expected elements of {', '.join(map(str, _PREFIX))}, found {operands[0].dtype}")
        call = _Call(op, prefix)
        batch = operands[0].shape[: operands[0].ndim - ranks[0]]
        is_empty = 0 in [a.size for a in operands]
        if not batch and not is_empty:
            return tuple([_result(v, t) for v, t in zip(routine(call, operands), call.results, strict=True)])
        outputs = [np.zeros(t.static_shape, t.dtype) for t in call.results]
        if is_empty:
            return tuple(outputs)
        for index in np.ndindex(*batch):
            for output, value in zip(outputs, routine(call, tuple(a[index] for a in operands)), strict=True):
                if value is not None:
                    output[index] = value
        return tuple(outputs)

    return compute


def _result(value: Any, t: TensorType) -> Array:
    """One matrix' result as its type has it; zeros for what LAPACK does not give."""
    if type(value) is np.ndarray and value.dtype == t.dtype and value.shape == t.static_shape:
        return value
    found = np.zeros(t.static_shape, t.dtype)
    if value is not None:
        found[()] = value
    return found


@borrows
def _approx_top_k(op: Op, *operands: Array) -> tuple[Array, ...]:
    """Exact: the first `top_k` along a dimension, largest first, or smallest where the neutral element is the largest."""
    values, positions, neutral, _ = operands
    call = _Call(op, "s")
    axis = call.number("reduction_dim")
    t = op.results[0].type
    assert isinstance(t, TensorType)
    order = np.argsort(values, axis=axis, kind="stable")
    if float(neutral) < 0:
        # Largest first, equal ones in order: the stable order of the reversed array, reversed.
        flipped = np.flip(np.argsort(np.flip(values, axis), axis=axis, kind="stable"), axis)
        order = values.shape[axis] - 1 - flipped
    order = np.take(order, range(t.static_shape[axis]), axis=axis)
    return np.take_along_axis(values, order, axis), np.take_along_axis(positions, order, axis)


def _allocate(op: Op) -> Array:
    """Memory whose content nobody may rely on; here it is zero."""
    t = op.results[0].type
    assert isinstance(t, TensorType)
    return np.zeros(t.static_shape, t.dtype)


_ROUTINES: dict[str, tuple[Routine, tuple[int, ...], str]] = {
    "potrf": (_potrf, (2,), "sdcz"),
    "getrf": (_getrf, (2,), "sdcz"),
    "geqrf": (_geqrf, (2,), "sdcz"),
    "geqp3": (_geqp3, (2, 1), "sdcz"),
    "orgqr": (_orgqr, (2, 1), "sd"),
    "ungqr": (_orgqr, (2, 1), "cz"),
    "ormqr": (_ormqr, (2, 1, 2), "sd"),
    "unmqr": (_ormqr, (2, 1, 2), "cz"),
    "syevd": (_syevd, (2,), "sd"),
    "heevd": (_syevd, (2,), "cz"),
    "gesdd": (_svd("gesdd"), (2,), "sdcz"),
    "gesvd": (_svd("gesvd"), (2,), "sdcz"),
    "geev": (_geev, (2,), "sdcz"),
    "gees": (_gees, (2,), "sdcz"),
    "gehrd": (_gehrd, (2,), "sdcz"),
    "sytrd": (_sytrd, (2,), "sd"),
    "hetrd": (_sytrd, (2,), "cz"),
    "gtsv": (_gtsv, (1, 1, 1, 2), "sdcz"),
    "trsm": (_trsm, (2, 2), "sdcz"),
}

CUSTOM_CALLS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{
            f"lapack_{prefix}{name}_ffi": _batched(routine, ranks, name)
            for name, (routine, ranks, prefixes) in _ROUTINES.items()
            for prefix in prefixes
        },
        "Qr": _batched(_geqrf, (2,), "Qr"),
        "ProductOfElementaryHouseholderReflectors": _batched(_orgqr, (2, 1), "ProductOfElementaryHouseholderReflectors"),
        "LuDecomposition": _batched(_lu_from_0, (2,), "LuDecomposition"),
        "ApproxTopK": _approx_top_k,
        "AllocateBuffer": _allocate,
    }
)
"""Target name -> function(op, *operands) that returns an array or a tuple of them."""
