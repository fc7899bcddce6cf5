"""Copies of blocks, and what they read from outside."""

from __future__ import annotations

from collections.abc import Mapping

from hlo.module import Block, Op, Value, walk

__all__ = ["captured_values", "clone_block"]


def clone_block(block: Block, env: Mapping[Value, Value]) -> Block:
    """A copy of a region whose captured values are replaced, however deep regions nest."""
    known = dict(env)

    def empty(b: Block) -> Block:
        copy = Block([a.type for a in b.arguments], [a.name for a in b.arguments])
        known.update(zip(b.arguments, copy.arguments, strict=True))
        return copy

    root = empty(block)
    todo = [(block, root)]
    while todo:
        source, target = todo.pop()
        for op in source.ops:
            regions = [empty(b) for b in op.regions]
            operands = [known.get(v, v) for v in op.operands]
            types, names = [r.type for r in op.results], [r.name for r in op.results]
            new = Op(op.definition, operands, op.attributes, regions, types, op.location, op.extra, names)
            known.update(zip(op.results, new.results, strict=True))
            target.ops.append(new)
            # Filled later: by then all that they may capture is known.
            todo.extend(zip(op.regions, regions, strict=True))
    return root


def captured_values(block: Block) -> list[Value]:
    """Values that a region reads from outside itself."""
    inside: set[Value] = set(block.arguments)
    found: list[Value] = []
    for op in walk(block):
        for region in op.regions:
            inside.update(region.arguments)
        found.extend(v for v in op.operands if v not in inside)
        inside.update(op.results)
    return found
