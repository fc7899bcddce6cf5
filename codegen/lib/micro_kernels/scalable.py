"""SVE's instructions on vectors of known length: LLVM takes them on its vectors of unknown length alone.

    call(b, "llvm.aarch64.sve.sdot.nxv4i32", [total, left, right])      the same as of vectors of as many lanes as the target has

A vector of known length is a part of one of unknown length, and where the function is told the length they are one register.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from codegen.lib.emit import I64, intrinsic_function, suffix

__all__ = ["ScalableVector", "call"]

SEGMENT = 16
"""An SVE register has one of these, or several: what lanes are counted in where its length is unknown."""


class ScalableVector(ir.Type):  # type: ignore[misc]
    """LLVM's type of a whole SVE register of unknown length, which llvmlite has no class for.

    >>> str(ScalableVector(ir.IntType(8)))
    '<vscale x 16 x i8>'
    """

    def __init__(self, element: Any) -> None:
        size = element.width // 8 if isinstance(element, ir.IntType) else {"half": 2, "float": 4, "double": 8}[str(element)]
        self.element, self.count = element, SEGMENT // size

    def _to_string(self) -> str:
        return f"<vscale x {self.count} x {self.element}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScalableVector) and self.element == other.element

    def __hash__(self) -> int:
        return hash(("scalable", self.count))

    @property
    def suffix(self) -> str:
        """The type inside an intrinsic's name."""
        return "nx" + suffix(ir.VectorType(self.element, self.count))


def call(b: Any, name: str, arguments: Sequence[Any]) -> Any:
    """An intrinsic's value, of the type of its first argument; `arguments` are vectors that fill registers."""
    given = []
    for x in arguments:
        whole = ScalableVector(x.type.element)
        put = f"llvm.vector.insert.{whole.suffix}.{suffix(x.type)}"
        fn = intrinsic_function(b.module, put, whole, [whole, x.type, I64])
        given.append(b.call(fn, [ir.Constant(whole, ir.Undefined), x, ir.Constant(I64, 0)]))
    whole, kind = given[0].type, arguments[0].type
    made = b.call(intrinsic_function(b.module, name, whole, [x.type for x in given]), given)
    take = f"llvm.vector.extract.{suffix(kind)}.{whole.suffix}"
    return b.call(intrinsic_function(b.module, take, kind, [whole, I64]), [made, ir.Constant(I64, 0)])
