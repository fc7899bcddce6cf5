"""Whether two element expressions are the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Scalar, Test, children

__all__ = ["same_node"]


def same_node(a: Node, b: Node) -> bool:
    """Whether two nodes compute the same: the same functions of the same loads at the same indices."""
    done: set[tuple[Node, Node]] = set()
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if x is y or (x, y) in done:
            continue
        done.add((x, y))
        if type(x) is not type(y) or not _LOCALLY_SAME[type(x)](x, y) or len(children(x)) != len(children(y)):
            return False
        stack.extend(zip(children(x), children(y), strict=True))
    return True


_LOCALLY_SAME: Mapping[type, Callable[[Node, Node], bool]] = {
    Load: lambda x, y: isinstance(x, Load) and isinstance(y, Load) and x.value is y.value and x.index == y.index
    and x.buffer is y.buffer and not x.runtimes and not y.runtimes,
    Apply: lambda x, y: isinstance(x, Apply) and isinstance(y, Apply) and x.op is y.op and x.function == y.function,
    Choose: lambda x, y: isinstance(x, Choose) and isinstance(y, Choose) and x.conditions == y.conditions and not x.runtimes,
    Test: lambda x, y: isinstance(x, Test) and isinstance(y, Test) and x.conditions == y.conditions,
    IndexNode: lambda x, y: isinstance(x, IndexNode) and isinstance(y, IndexNode) and x.expression == y.expression
    and x.element == y.element and not x.runtimes and not y.runtimes,
    Scalar: lambda x, y: isinstance(x, Scalar) and isinstance(y, Scalar) and x.element == y.element
    and x.value.tobytes() == y.value.tobytes(),
}  # fmt: skip
