"""Who uses a node, and in which order nodes are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.source.scalars import SCALAR_CODE
from tiling.loops.element_ir import Apply, Choose, Node, children

__all__ = ["unwritten", "users_of"]


def users_of(roots: Sequence[Node]) -> dict[Node, list[Node | None]]:
    """id of a node -> the nodes that use it, once for each use; None stands for a root's own use."""
    users: dict[Node, list[Node | None]] = {}
    done: set[Node] = set()
    stack = list(roots)
    for n in roots:
        users.setdefault(n, []).append(None)
    while stack:
        n = stack.pop()
        if n in done:
            continue
        done.add(n)
        # A function whose source has its operand twice counts twice.
        repeat = 2 if isinstance(n, Apply) and SCALAR_CODE[n.function].repeats_operand else 1
        for c in children(n):
            users.setdefault(c, []).extend([n] * repeat)
            stack.append(c)
    return users


def unwritten(root: Node, known: Mapping[Node, str]) -> list[Node]:
    """Nodes below a root, operands first, without those already computed and without the inside of branches."""
    order: list[Node] = []
    done: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        n, ready = stack.pop()
        if ready:
            order.append(n)
            continue
        if n in done or n in known:
            continue
        done.add(n)
        stack.append((n, True))
        inside = children(n) if not isinstance(n, Choose) else [r.node for r in n.runtimes]
        stack.extend((c, False) for c in reversed(inside))
    return order
