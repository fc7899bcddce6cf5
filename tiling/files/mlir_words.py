"""What prints in MLIR share: the names of operations by the elements' types, types, and expressions taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo.types import ElementType
from indexing.expr import Expr, Maximum, Minimum
from indexing.expressions.terms import FloorDiv, Mod
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Scalar
from tiling.loops.ir import Buffer

__all__ = [
    "BOOLEANS", "COMPARED", "FLOATS", "INTEGERS", "ORDERED", "UNSIGNED", "NoForm", "arguments_of", "atoms_of", "element_of",
    "memref", "mlir_type",
]  # fmt: skip

FLOATS = {
    "add": "arith.addf", "subtract": "arith.subf", "multiply": "arith.mulf", "divide": "arith.divf", "maximum": "arith.maximumf",
    "minimum": "arith.minimumf", "power": "math.powf", "atan2": "math.atan2", "remainder": "arith.remf", "negate": "arith.negf",
    "exponential": "math.exp", "exponential_minus_one": "math.expm1", "log": "math.log", "log_plus_one": "math.log1p",
    "tanh": "math.tanh", "sqrt": "math.sqrt", "rsqrt": "math.rsqrt", "cbrt": "math.cbrt", "abs": "math.absf", "sine": "math.sin",
    "cosine": "math.cos", "tan": "math.tan", "floor": "math.floor", "ceil": "math.ceil", "erf": "math.erf", "erfc": "math.erfc",
    "fast_erf": "math.erf", "round_nearest_even": "math.roundeven", "round_nearest_afz": "math.round",
}  # fmt: skip
INTEGERS = {
    "add": "addi", "subtract": "subi", "multiply": "muli", "and": "andi", "or": "ori", "xor": "xori", "maximum": "maxsi",
    "minimum": "minsi",
}  # fmt: skip
UNSIGNED = {"maximum": "maxui", "minimum": "minui"}
BOOLEANS = {"and": "andi", "or": "ori", "xor": "xori", "multiply": "andi", "add": "ori", "maximum": "ori", "minimum": "andi"}
ORDERED = {"EQ": "oeq", "NE": "une", "LT": "olt", "LE": "ole", "GT": "ogt", "GE": "oge"}
COMPARED = {"EQ": "eq", "NE": "ne", "LT": "{}lt", "LE": "{}le", "GT": "{}gt", "GE": "{}ge"}


class NoForm(Exception):
    """Carries the reason of a `Declined` out of a print."""


def mlir_type(element: ElementType) -> str:
    """The type of an element in memory: integers have no sign there. Raises NoForm for what MLIR's arithmetic lacks."""
    name = str(element)
    if re.fullmatch(r"i1|[us]?i(8|16|32|64)", name):
        return name.lstrip("us")
    if name in ("f16", "bf16", "f32", "f64"):
        return name
    raise NoForm(f"elements of type {name}")


def memref(b: Buffer) -> str:
    return f"memref<{b.size_elems}x{mlir_type(b.element)}>"


def element_of(n: Node) -> ElementType | None:
    """The element type of a node's value."""
    if isinstance(n, Scalar | IndexNode):
        return n.element
    if isinstance(n, Choose):
        return element_of(n.then)
    found = n.value.tensor.element if isinstance(n, Load) else n.op.results[0].tensor.element if isinstance(n, Apply) else None
    if isinstance(n, Load) and n.buffer is not None:
        return n.buffer.element
    return found if isinstance(found, ElementType) else None


def atoms_of(e: Expr) -> Iterator[Expr]:
    """Everything that an expression is made of."""
    todo = [e]
    while todo:
        x = todo.pop()
        for atom, _ in x.terms:
            yield atom
            if isinstance(atom, FloorDiv | Mod):
                todo.append(atom.numerator)
            elif isinstance(atom, Minimum | Maximum):
                todo.extend(atom.arguments)


def arguments_of(e: Expr, word: type[Minimum] | type[Maximum]) -> tuple[Expr, ...]:
    """What an expression is the greatest, or the least, of: itself alone where it is neither."""
    if len(e.terms) == 1 and e.terms[0][1] == 1 and not e.constant:
        atom = e.terms[0][0]
        if isinstance(atom, Minimum | Maximum) and isinstance(atom, word):
            return atom.arguments
    return (e,)
