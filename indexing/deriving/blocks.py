"""Ops that run blocks: fusions, calls, branches. What they compute is what their blocks compute."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hlo import Block, Module, Op, Value
from hlo.registry import Structure

__all__ = ["blocks_of", "topological"]


def blocks_of(op: Op, module: Module | None = None) -> list[Block]:
    """The blocks that make up the op's results, of a call (one) or a branch (one of them); none for an op of another kind, or
    whose callee is not known. A call's block has the operands as its arguments; a branch's blocks read outer values by name."""
    d = op.definition
    if d.calls:
        function = module.functions.get(op.attr(d.calls)) if module is not None else None
        return [] if function is None or function.is_declaration else [function.body]
    return list(op.regions) if d.structure in (Structure.CALL, Structure.BRANCH) else []


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
