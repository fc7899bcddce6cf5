"""A builder with XlaBuilder's semantics: ops are checked, and their types inferred, at the call that makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hlo import ops as _ops  # fills the registry, from which most methods are made
from hlo.builder.binary import BINARY, BinaryOps
from hlo.builder.control import Control
from hlo.builder.convolutions import Contractions
from hlo.builder.core import type_of
from hlo.builder.generated import add_generated_methods, check_methods
from hlo.builder.movement import Movement

__all__ = ["GENERATED", "Builder", "type_of"]


class Builder(BinaryOps, Contractions, Control, Movement):
    """A module under construction: `parameter`, `constant`, a method for every op, `build`.

    Methods have the ops' names in the specification (`dot_general`, `while_`) and XlaBuilder's where those differ
    (`concat_in_dim`, `rev`, `eq`). Sub-computations are Python functions of values. What an op's rules
    forbid raises VerificationError in the call.

    >>> b = Builder("affine")
    >>> x = b.parameter(0, "f32[2,3]", "x")
    >>> y = b.add(x, b.constant([1.0, 2.0, 3.0]), broadcast_dimensions=(1,))
    >>> str(b.build(b.tanh(y)).entry.type)
    '(tensor<2x3xf32>) -> tensor<2x3xf32>'
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...


check_methods(BinaryOps, Contractions, Control, Movement)
GENERATED: dict[str, str] = add_generated_methods(Builder, {*BINARY.values(), "xla.bitcast"})
"""Method -> op, of those that are made from the op's definition alone."""
del _ops
