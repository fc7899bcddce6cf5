"""Ops that run blocks: fusions, calls, branches. What they compute is what their blocks compute."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from hlo import Block, Module, Op, Value

__all__ = ["BRANCHING", "CALLS", "blocks_of", "topological"]

Blocks = Callable[[Op, Module | None], list[Block]]


def _regions(op: Op, module: Module | None) -> list[Block]:
    return list(op.regions)


def _named(attribute: str) -> Blocks:
    def find(op: Op, module: Module | None) -> list[Block]:
        function = module.functions.get(op.attr(attribute)) if module is not None else None
        return [] if function is None or function.is_declaration else [function.body]

    return find


CALLS: dict[str, Blocks] = {
    "func.call": _named("callee"),
    "stablehlo.composite": _named("decomposition"),
    "xla.fusion": _regions,
}
"""Ops whose results are those of a block whose arguments are the operands. No block: it is not to be found."""

BRANCHING: dict[str, Blocks] = {"stablehlo.if": _regions, "stablehlo.case": _regions}
"""Ops whose results are those of one of their blocks, which the only operand chooses; the blocks read outer values by name."""


def blocks_of(op: Op, module: Module | None = None) -> list[Block]:
    """The blocks that make up the op's results; none for an op of another kind, or whose callee is not known."""
    find = CALLS.get(op.name) or BRANCHING.get(op.name)
    return find(op, module) if find is not None else []


def topological(roots: Iterable[Value], until: Collection[Value] = ()) -> list[Op]:
    """The ops that the roots depend on, each after the ops whose results it reads; nothing behind `until` is visited.

    What an op's regions read from outside counts as read by the op.
    """
    stop = set(until)
    order: list[Op] = []
    seen: set[Op] = set()
    stack: list[tuple[Op, bool]] = [(v.op, False) for v in roots if v.op is not None and v not in stop]
    while stack:
        op, done = stack.pop()
        if done:
            order.append(op)
            continue
        if op in seen:
            continue
        seen.add(op)
        stack.append((op, True))
        captured = (v for region in op.regions for inner in region.ops for v in inner.operands)
        for v in (*op.operands, *captured):
            if v.op is not None and v not in stop and v.op not in seen:
                stack.append((v.op, False))
    return order
