"""Rewrites an entry function into the form that is planned: one block, no calls, nothing dead, nothing twice.

    call @f(x)                 ->  the ops of @f at the call
    two ops alike              ->  one
    splat constants            ->  follow broadcasts and reshapes, so that they are scalars wherever they are read
    an op nobody reads         ->  gone

The program's meaning is unchanged; ops keep their locations.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlo.module import Block, DenseArray, Function, Module, Op, Value, walk
from hlo.registry import definition
from hlo.types import TensorType

__all__ = ["Program", "captured_values", "clone_block", "flatten", "freeze_attributes", "region_key"]


@dataclass(frozen=True)
class Program:
    """A flattened entry: `arguments` -> `ops` in dependency order -> `results` (values of arguments, or of ops)."""

    name: str
    arguments: tuple[Value, ...]
    ops: tuple[Op, ...]
    results: tuple[Value, ...]


def flatten(module: Module, entry: str = "main") -> Program:
    """The entry function with its calls inlined, common subexpressions merged and dead ops removed.

    Raises KeyError when there is no such function. Calls do not recurse (the verifier has seen to that).
    """
    function = module.function(entry)
    new_arguments = Block([a.type for a in function.arguments], [a.name for a in function.arguments])
    builder = _Builder(module)
    environment: dict[Value, Value] = dict(zip(function.arguments, new_arguments.arguments, strict=True))
    results = builder.inline(function, environment)
    return Program(entry, tuple(new_arguments.arguments), _live(builder.ops, results), tuple(results))


class _Builder:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.ops: list[Op] = []
        self.known: dict[Hashable, Op] = {}

    def inline(self, function: Function, environment: dict[Value, Value]) -> list[Value]:
        """Appends the ops of a function with its calls; an explicit stack, so that call depth is no limit."""
        stack: list[tuple[Function, dict[Value, Value], int, Op | None]] = [(function, environment, 0, None)]
        while True:
            current, env, position, call = stack.pop()
            ops = current.body.ops
            while position < len(ops):
                op = ops[position]
                position += 1
                if op.name == "func.call":
                    callee = self.module.functions[op.attr("callee")]
                    inner = {a: env[v] for a, v in zip(callee.arguments, op.operands, strict=True)}
                    stack.append((current, env, position, call))
                    stack.append((callee, inner, 0, op))
                    break
                if op.definition.is_terminator:
                    returned = [env[v] for v in op.operands]
                    if call is None:
                        return returned
                    env_outer = stack[-1][1]
                    env_outer.update(zip(call.results, returned, strict=True))
                    break
                self._copy(op, env)

    def _copy(self, op: Op, env: dict[Value, Value]) -> None:
        operands = [env.get(v, v) for v in op.operands]
        folded = _fold(op, operands)
        if isinstance(folded, Value):
            env[op.results[0]] = folded
            return
        attributes = op.attributes
        name = op.name
        if isinstance(folded, DenseArray):
            name, operands, attributes = "stablehlo.constant", [], {"value": folded}
        key: Hashable = None
        if op.definition.is_pure and not any(captured_values(b) for b in op.regions):
            regions = tuple(region_key(b) for b in op.regions)
            key = (name, tuple(map(id, operands)), freeze_attributes(attributes), tuple(r.type for r in op.results), regions)
            twin = self.known.get(key)
            if twin is not None:
                env.update(zip(op.results, twin.results, strict=True))
                return
        bodies = [clone_block(b, env) if captured_values(b) else b for b in op.regions]
        new = Op(definition(name), operands, attributes, bodies, [r.type for r in op.results], op.location,
                 op.extra, [r.name for r in op.results])  # fmt: skip
        self.ops.append(new)
        if key is not None:
            self.known[key] = new
        env.update(zip(op.results, new.results, strict=True))


def region_key(block: Block) -> Hashable:
    """Equal for regions that compute the same in the same way; one flat tuple, however deep regions nest."""
    number: dict[Value, int] = {}
    parts: list[Hashable] = []

    def enter(b: Block) -> Iterator[Op]:
        parts.append(("region", tuple(a.type for a in b.arguments)))
        for a in b.arguments:
            number[a] = len(number)
        return iter(b.ops)

    stack = [enter(block)]
    while stack:
        op = next(stack[-1], None)
        if op is None:
            stack.pop()
            parts.append("end")
            continue
        operands = tuple(number.get(v, -1) for v in op.operands)
        parts.append((op.name, operands, freeze_attributes(op.attributes), len(op.regions), tuple(r.type for r in op.results)))
        for r in op.results:
            number[r] = len(number)
        stack.extend([enter(b) for b in op.regions][::-1])
    return tuple(parts)


def freeze_attributes(attributes: Mapping[str, object]) -> Hashable:
    """An op's attributes as something that can be a key."""
    return tuple(sorted(((k, _hashable(v)) for k, v in attributes.items()), key=lambda kv: kv[0]))


def _hashable(value: object) -> Hashable:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(v) for v in value)
    return value if isinstance(value, Hashable) else repr(value)


_SPREADS = {"stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.reverse"}


def _fold(op: Op, operands: Sequence[Value]) -> Value | DenseArray | None:
    """What an op folds to without running it: its operand, or a splat constant of the result's type."""
    if op.name in _SPREADS:
        producer = operands[0].op
        result = op.results[0].type
        if operands[0].type == result and op.name == "stablehlo.reshape":
            return operands[0]
        if producer is not None and producer.name == "stablehlo.constant" and isinstance(result, TensorType):
            value: DenseArray = producer.attr("value")
            if value.is_splat and result.is_static and result.size_elems:
                return splat(value.array.reshape(-1)[0], result)
    if op.name == "stablehlo.convert" and operands[0].type == op.results[0].type:
        return operands[0]
    return None


def splat(scalar: np.generic, type: TensorType) -> DenseArray:
    """A constant that repeats one element, stored once."""
    return DenseArray(type, np.broadcast_to(np.asarray(scalar, type.dtype), type.static_shape))


def _live(ops: Sequence[Op], results: Sequence[Value]) -> tuple[Op, ...]:
    needed = {id(v) for v in results}
    kept: list[Op] = []
    for op in reversed(ops):
        if not op.definition.is_pure or any(id(r) in needed for r in op.results):
            kept.append(op)
            needed.update(id(v) for v in op.operands)
            needed.update(id(v) for b in op.regions for v in captured_values(b))
    kept.reverse()
    return tuple(kept)


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
