"""What a program tests, as a set of features: which ops it has on which types and attributes, and which op reads which.

`python -m tests.jax_families.cover` prints `COVERED`: programs that can be left to the slow tests because each of their features
is one of another program that stays, those of most features first. Special functions are covered in another type.
"""

from __future__ import annotations

import importlib
import pprint
from collections import Counter
from collections.abc import Iterable
from typing import Any

import jax

import codegen
import tilewright
from hlo.module import DenseArray, Op, Value
from hlo.registry import Elementwise
from hlo.types import TensorType
from tests.jax import jax_programs
from tests.jax_families.common import Program
from tests.jax_families.slow import SLOW
from tiling.program.flatten import flatten

FAMILIES = ("elementwise", "structured", "numpy_api", "library", "randomness", "transforms", "algorithms", "large")
SPECIAL, WIDTHS = "special", ("float32", "float64")
OTHERS = "programs"
ELEMENTWISE = "element by element"
SHORT = 64  # numbers of an attribute that are told apart

Feature = tuple[object, ...]


def quick_programs() -> dict[tuple[str, str], Program]:
    """(family, name) -> the programs that are not slow for what they take; those of `test_jit_programs` are a family, too."""
    tables = {family: importlib.import_module(f"tests.jax_families.{family}").PROGRAMS for family in FAMILIES}
    quick = {
        (family, name): program
        for family, table in tables.items()
        for name, program in table.items()
        if not program.slow and name not in SLOW.get(family, ())
    }
    others = {name: row for name, row in jax_programs.PROGRAMS.items() if name not in SLOW[OTHERS]}
    return quick | {(OTHERS, name): Program(function, args) for name, (function, args) in others.items()}


def features(program: Program) -> frozenset[Feature]:
    """The features of a program's ops, with those in regions, after calls are inlined.

    Of an op its element types, with whether it is in a region, each of its attributes, the rank of its result, and operands
    without elements; of two ops, one of which reads the other's result, as which operand it does. What is done element by
    element is one kind for ranks and for pairs: loops and fusions are the same whichever functions they compute.
    """
    with jax.enable_x64(program.x64):
        module = tilewright.from_jax(program.function, *program.args)
    return frozenset(_of_ops(flatten(module, module.entry.name, codegen.supports).ops, False))


def covered(found: dict[tuple[str, str], frozenset[Feature]]) -> dict[str, list[str]]:
    """Family -> programs each of whose features is one of a program that stays, those of most features first."""
    count = Counter(f for own in found.values() for f in own)
    gone: dict[str, list[str]] = {}
    for (family, name), own in sorted(found.items(), key=lambda item: -len(item[1])):
        if all(count[f] > 1 for f in own):
            count.subtract(own)
            gone.setdefault(family, []).append(name)
    return gone


def in_another_type() -> list[str]:
    """Of special functions that are quick in both types the one or the other, in turn.

    What a function is made of is chosen by JAX, how its parts are computed in a type is the type's: each function is in a type
    that stays, and half of them in each.
    """
    table, slow = importlib.import_module(f"tests.jax_families.{SPECIAL}").PROGRAMS, SLOW[SPECIAL]
    quick = [name for name, program in table.items() if not program.slow and name not in slow]
    functions = [name.removesuffix(f", {WIDTHS[0]}") for name in quick if name.endswith(WIDTHS[0])]
    both = [f for f in functions if f"{f}, {WIDTHS[1]}" in quick]
    return [f"{f}, {WIDTHS[k % 2]}" for k, f in enumerate(both)]


def _of_ops(ops: Iterable[Op], inside: bool) -> Iterable[Feature]:
    for op in ops:
        values = (*op.operands, *op.results)
        yield (op.name, "types", tuple(dict.fromkeys(_element(v) for v in values)), inside)
        yield from ((op.name, "attribute", k, _sort(v)) for k, v in op.attributes.items() if k != "value")
        yield from ((_kind(op), "rank", _rank(v)) for v in values[-1:])
        yield from ((op.name, "empty", k) for k, v in enumerate(values) if isinstance(v.type, TensorType) and 0 in v.shape)
        for k, v in enumerate(op.operands):
            if v.op is not None:
                yield (_kind(v.op), _kind(op), 0 if _kind(op) is _kind(v.op) is ELEMENTWISE else k)
        for block in op.regions:
            yield from _of_ops(block.ops, True)


def _kind(op: Op) -> str:
    return ELEMENTWISE if isinstance(op.definition.semantics, Elementwise) else op.name


def _element(v: Value) -> str:
    return str(v.type.element) if isinstance(v.type, TensorType) else str(v.type)


def _rank(v: Value) -> str:
    """0, 1, 2 or more dimensions."""
    return str(min(len(v.shape), 3)) if isinstance(v.type, TensorType) else str(v.type)


def _sort(value: Any) -> str:
    """An attribute: of whole numbers only whether they are negative, 0, 1 or more."""
    if isinstance(value, DenseArray):
        flat = value.array.reshape(-1)
        return str(value.type) if flat.size > SHORT else _sort([int(x) for x in flat])
    if isinstance(value, tuple | list) and all(type(x) is int for x in value):
        return str([max(-1, min(x, 2)) for x in value])
    return str(value)


if __name__ == "__main__":
    gone = covered({key: features(program) for key, program in quick_programs().items()})
    gone[SPECIAL] = in_another_type()
    pprint.pp({family: frozenset(names) for family, names in gone.items()}, width=130, compact=True)
