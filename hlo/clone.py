"""Copies of blocks, and what they read from outside."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from hlo.module import Block, Op, Value, walk

__all__ = ["captured_values", "clone_block", "clone_op", "with_replaced"]


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


def clone_op(op: Op, env: MutableMapping[Value, Value]) -> Op:
    """A copy of an op whose operands and captured values are replaced; `env` then has its results."""
    regions = [clone_block(b, env) for b in op.regions]
    types, names = [r.type for r in op.results], [r.name for r in op.results]
    operands = [env.get(v, v) for v in op.operands]
    new = Op(op.definition, operands, op.attributes, regions, types, op.location, op.extra, names)
    env.update(zip(op.results, new.results, strict=True))
    return new


def with_replaced(op: Op, env: MutableMapping[Value, Value]) -> Op:
    """The op itself where `env` replaces nothing that it reads, else `clone_op`."""
    reads = any(v in env for v in op.operands) or any(v in env for b in op.regions for v in captured_values(b))
    return clone_op(op, env) if reads else op


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
