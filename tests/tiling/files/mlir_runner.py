"""Runs what the prints of MLIR say: the compiler of IREE's wheel lowers it to plain loops, which are walked op by op in NumPy.

    run(text, arrays)      the one function of a module on flat arrays, which it writes to

Only `scf`, `memref`, `arith` and `math` are left after MLIR's own passes: who wrote the text decides nothing of what it means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

PASSES = "builtin.module(func.func(convert-linalg-to-loops),lower-affine)"
DTYPES = {
    "f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32, "i8": np.int8, "i1": np.bool_, "index": np.int64,
}  # fmt: skip
CALCULATED: dict[str, Callable[..., Any]] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.maximumf": np.maximum, "arith.minimumf": np.minimum, "arith.negf": np.negative, "arith.addi": np.add,
    "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or,
    "arith.maxsi": np.maximum, "arith.minsi": np.minimum, "arith.floordivsi": np.floor_divide,
    "arith.remsi": lambda a, b: type(a)(math.fmod(a, b)), "arith.divsi": lambda a, b: type(a)(int(a / b)),
    "math.exp": np.exp, "math.tanh": np.tanh, "math.sqrt": np.sqrt, "math.rsqrt": lambda x: type(x)(1) / np.sqrt(x),
    "math.log": np.log, "math.absf": np.abs, "arith.select": lambda c, a, b: a if c else b,
}  # fmt: skip
COMPARED: dict[int, Callable[..., Any]] = {
    0: np.equal, 1: np.not_equal, 2: np.less, 3: np.less_equal, 4: np.greater, 5: np.greater_equal,
}  # fmt: skip
COMPARED_FLOATS: dict[int, Callable[..., Any]] = {
    1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal, 13: np.not_equal,
}  # fmt: skip
CONVERTED = {"arith.index_cast", "arith.sitofp", "arith.extf", "arith.truncf", "arith.trunci", "arith.extsi", "arith.uitofp"}
DYNAMIC = -(1 << 63)


def run(text: str, arrays: Sequence[np.ndarray]) -> None:
    """Runs the module's function on flat arrays, one for each argument."""
    from iree.compiler import ir, passmanager

    with ir.Context():
        module = ir.Module.parse(text)
        assert module.operation.verify()
        passmanager.PassManager.parse(PASSES).run(module.operation)
        (function,) = module.body.operations
        (block,) = function.regions[0].blocks
        with np.errstate(all="ignore"):
            _block(block, dict(zip(block.arguments, [(a, 0, (1,)) for a in arrays], strict=True)))


def _block(block: Any, known: dict[Any, Any]) -> list[Any]:
    for op in block.operations:
        name = op.operation.name
        given = [known[v] for v in op.operands]
        if name in ("scf.yield", "scf.reduce", "func.return"):
            return given
        found = _op(op, name, given, known)
        known.update(zip(op.results, found, strict=True))
    return []


def _op(op: Any, name: str, given: list[Any], known: dict[Any, Any]) -> list[Any]:
    if name == "scf.for":
        (inner,) = op.regions[0].blocks
        carried = given[3:]
        for k in range(int(given[0]), int(given[1]), int(given[2])):
            known.update(zip(inner.arguments, [np.int64(k), *carried], strict=True))
            carried = _block(inner, known)
        return carried
    if name == "scf.parallel":
        (inner,) = op.regions[0].blocks
        n = len(inner.arguments)
        begins, ends, steps = given[:n], given[n : 2 * n], given[2 * n : 3 * n]
        for at in np.ndindex(*[len(range(int(b), int(e), int(s))) for b, e, s in zip(begins, ends, steps, strict=True)]):
            places = [np.int64(b + k * s) for b, k, s in zip(begins, at, steps, strict=True)]
            known.update(zip(inner.arguments, places, strict=True))
            _block(inner, known)
        return []
    if name == "scf.if":
        chosen = op.regions[0 if given[0] else 1].blocks
        return _block(chosen[0], known) if len(chosen) else []
    if name == "memref.alloc":
        shape, dtype = op.results[0].type.shape, DTYPES[str(op.results[0].type.element_type)]
        return [(np.full(int(np.prod(shape)), 99, dtype), 0, (1,))]  # (nothing is said of what is in it)
    if name == "memref.reinterpret_cast":
        return [_view(op, given)]
    if name == "memref.dim":
        return [np.int64(given[0][3][int(given[1])])]
    if name in ("memref.load", "memref.store"):
        (data, offset, strides, *_), *index = given if name == "memref.load" else given[1:]
        place = offset + sum(int(k) * s for k, s in zip(index, strides, strict=True))
        assert 0 <= place < data.size, f"{op} at {place} of {data.size}"
        if name == "memref.load":
            return [data[place]]
        data[place] = given[0]
        return []
    kind = DTYPES[str(op.results[0].type)]
    if name == "arith.constant":
        return [kind(op.attributes["value"].value)]
    if name in ("arith.cmpi", "arith.cmpf"):
        table = COMPARED if name == "arith.cmpi" else COMPARED_FLOATS
        return [table[op.attributes["predicate"].value](*given)]
    if name in CONVERTED:
        return [kind(given[0])]
    return [kind(CALCULATED[name](*given))]


def _view(op: Any, given: list[Any]) -> Any:
    """(data, offset, strides, sizes) of a view of flat memory."""
    rest = iter(given[1:])
    (offset,), sizes, strides = (
        [int(next(rest)) if n == DYNAMIC else n for n in op.attributes[f"static_{word}"]]
        for word in ("offsets", "sizes", "strides")
    )
    return given[0][0], offset, tuple(strides), tuple(sizes)
