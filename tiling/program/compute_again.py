"""A large value is computed again for those who read it much later, so that it need not be kept until then.

    p = f(x . y);  o = p . v;  …;  g = h(o);  d = p * g      ->   p = f(x . y);  o = p . v;  …;  g = h(o)
                                                                 p' = f(x . y);  d = p' * g

Gradients read so what was computed on the way forward. Later are the ops that wait for a product of something that was made of
the value. What is computed again are the large values between; smaller ones (a row's maximum and sum) are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo.clone import captured_values, clone_block
from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import Elementwise, Fold, Generate, Literal, Move
from hlo.types import TensorType
from tiling.program.flatten import Program, is_rebuilt, live_ops

__all__ = ["Again", "compute_again"]

NEARLY = 2  # a value of at least this part of the seed's size is as large


@dataclass(frozen=True, eq=False)
class Again:
    """The program with what is computed again: each value that is, with what stands for it later on."""

    program: Program
    copies: Mapping[Value, Value]


def compute_again(program: Program, seed: Value) -> Again | Declined:
    """The program where large values like `seed` are computed again for later readers; or why there are none."""
    if any(not op.definition.is_pure for op in program.ops):
        return Declined("the program has effects, whose order stays")
    large = {r for op in program.ops for r in op.results if _is_large(r, seed) and not is_rebuilt(r)}
    mine = _connected(program, seed, large)
    level = _levels(program, mine)
    late = {op for op in mine if level[op] and any(v in large and v.op in mine and level[v.op] < level[op] for v in op.operands)}
    if not late:
        return Declined("nobody reads it later, after a product that waits for it")
    return _written(program, mine, large, level, late)


def _is_large(v: Value, seed: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.is_static and NEARLY * v.type.size_bytes >= seed.tensor.size_bytes


def _connected(program: Program, seed: Value, large: set[Value]) -> set[Op]:
    """The ops that make or read large values, from the seed's on."""
    readers: dict[Value, list[Op]] = {}
    for op in program.ops:
        for v in op.operands:
            if v in large:
                readers.setdefault(v, []).append(op)
    found: set[Op] = set()
    todo = [seed]
    seen = {seed}
    while todo:
        v = todo.pop()
        for op in (*([v.op] if v.op is not None else []), *readers.get(v, ())):
            if op in found or op.definition.is_control:
                continue
            found.add(op)
            near = [x for x in (*op.operands, *op.results) if x in large and x not in seen]
            seen.update(near)
            todo += near
    return found


def _levels(program: Program, mine: set[Op]) -> dict[Op, int]:
    """How many products lie between an op and the first of these: of those that wait for one of them and are not theirs."""
    levels: dict[Value, int] = {}
    found: dict[Op, int] = {}
    for op in program.ops:
        inputs = (*op.operands, *(v for b in op.regions for v in captured_values(b)))
        before = [levels[v] for v in inputs if v in levels]
        if op in mine:
            found[op] = max(before, default=0)
        elif not before:
            continue
        else:
            found[op] = max(before) + (not isinstance(op.definition.semantics, (Elementwise, Fold, Generate, Literal, Move)))
        levels.update(dict.fromkeys(op.results, found[op]))
    return found


def _written(program: Program, mine: set[Op], large: set[Value], level: Mapping[Op, int], late: set[Op]) -> Again:
    copies: dict[tuple[Value, int], Value] = {}
    env: dict[Value, Value] = {}
    ops: list[Op] = []

    def again(v: Value, when: int) -> Value:
        """The value as it is computed again at a level, with the large values that it is made of."""
        todo = [v]
        while todo:
            x = todo[-1]
            op = x.op
            if (x, when) in copies:
                todo.pop()
                continue
            assert op is not None
            needed = [y for y in op.operands if is_made(y, when)]
            missing = [y for y in needed if (y, when) not in copies]
            if missing:
                todo += missing
                continue
            todo.pop()
            operands = [copies[y, when] if y in needed else env.get(y, y) for y in op.operands]
            new = _copy(op, operands, env)
            ops.append(new)
            copies.update(((a, when), b) for a, b in zip(op.results, new.results, strict=True))
        return copies[v, when]

    def is_made(y: Value, when: int) -> bool:
        return y in large and y.op is not None and y.op in mine and level[y.op] < when

    for op in program.ops:
        if op in late:
            operands = [again(v, level[op]) if is_made(v, level[op]) else env.get(v, v) for v in op.operands]
        else:
            operands = [env.get(v, v) for v in op.operands]
        inner = any(v in env for b in op.regions for v in captured_values(b))
        if operands == list(op.operands) and not inner:
            ops.append(op)
            continue
        new = _copy(op, operands, env)
        ops.append(new)
        env.update(zip(op.results, new.results, strict=True))
    results = tuple([env.get(v, v) for v in program.results])
    made = Program(program.name, program.arguments, live_ops(ops, results), results)
    return Again(made, {v: c for (v, _), c in copies.items()})


def _copy(op: Op, operands: list[Value], env: Mapping[Value, Value]) -> Op:
    regions = [clone_block(b, env) for b in op.regions]
    return Op(op.definition, operands, op.attributes, regions, [r.type for r in op.results], op.location, op.extra,
              [r.name for r in op.results])  # fmt: skip
