"""How much code nodes are, written out."""

from __future__ import annotations

from collections.abc import Iterable

from tiling.elements.scalar_functions import LONG_FUNCTIONS
from tiling.loops.element_ir import Apply, Node

__all__ = ["code_size"]


def code_size(nodes: Iterable[Node]) -> int:
    """The ops that some nodes are in a kernel: one each, but for long functions, which are written into it."""
    return sum(LONG_FUNCTIONS.get(n.function, 1) if type(n) is Apply else 1 for n in nodes)
