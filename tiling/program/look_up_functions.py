"""A long function of one number of 16 bits or fewer is looked up in a table of all its values.

    y = f(x), x a tensor of bf16    ->    table = f(bits 0, 1, ..., 65535 as bf16);  y = table[bits of x]

f is what elementwise ops make of one operand and of values that are one element everywhere: an activation as a model's library
writes it out, with a rounding after each op, or in f32 between two conversions. The table is computed by the same ops, once for
a call, so that the results are the same in every bit; looking up takes an iteration about what two or three operations take.

It pays where the ops take longer than that, and the table is short beside the tensor.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from hlo.attributes import GatherDimensions
from hlo.builder import Builder
from hlo.clone import captured_values, with_replaced
from hlo.module import Op, Value
from hlo.registry import Elementwise, Literal
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from tiling.elements.scalar_functions import scalar_function
from tiling.program.known_tests import splat

__all__ = ["look_up_functions"]

_BROADCAST = "stablehlo.broadcast_in_dim"
LEAST_COST = 20.0  # in additions of f32: two cycles on AVX-512, where vectors are longest; looking up takes one
LEAST_TIMES = 16  # how often each element of the table is read,
LEAST_ELEMS = 1 << 16  # and the least of them that a step of its own is for
MOST_BITS, LEAST_BITS = 16, 8
ROUNDING = {"bf16": 5.0, "f16": 2.0}  # additions' worth of an op's rounding; of narrower floats, whose codes are taken apart:
ROUNDING_OF_CODES = 15.0
EXACT = frozenset({"abs", "bitcast_convert", "clamp", "compare", "maximum", "minimum", "negate", "not", "select", "sign"})


def look_up_functions(ops: Sequence[Op], results: Sequence[Value]) -> tuple[Sequence[Op], Sequence[Value]]:
    """Ops in dependency order and results, with tables in place of long functions; those that nothing reads now stay."""
    if not any(_has_codes(v) and v.tensor.size_elems >= LEAST_ELEMS for op in ops for v in op.operands):
        return ops, results
    wanted = _Functions(ops).worth(results)
    if not wanted:
        return ops, results
    env: dict[Value, Value] = {}
    made: list[Op] = []
    for op in ops:
        if op.results and op.results[0] in wanted:
            y = op.results[0]
            builder = Builder()
            builder.place = op.location
            env[y] = _looked_up(builder, y, wanted[y], env)
            made += builder.current.ops
        else:
            made.append(with_replaced(op, env))
    return made, [env.get(v, v) for v in results]


class _Functions:
    """Of what each value is a function: another value's elements, or nothing but values that are one element everywhere."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = ops
        self.of: dict[Value, Value | None] = {}  # None: of one element everywhere
        for op in ops:
            if len(op.results) == 1:
                y = op.results[0]
                found = list(dict.fromkeys(filter(None, map(self.origin, op.operands)))) if _is_elementwise(op) else [y]
                self.of[y] = None if not found else found[0] if len(found) == 1 and _has_codes(found[0]) else y

    def origin(self, v: Value) -> Value | None:
        return None if _is_spread(v) else self.of.get(v, v)

    def worth(self, results: Sequence[Value]) -> dict[Value, Value]:
        """The values that are looked up, each with what it is a function of."""
        read = dict.fromkeys(results)
        for op in self.ops:
            continued = self.origin(op.results[0]) if _is_elementwise(op) else op  # the function that an elementwise op continues
            read.update((v, None) for v in op.operands if self.origin(v) is not continued)
            read.update((v, None) for b in op.regions for v in captured_values(b))
        wanted: dict[Value, Value] = {}
        for op in self.ops:  # what is looked up is there for what is made of it
            for y in op.results:
                x = self.origin(y)
                if x is None or x is y or y not in read or not _fits(y, x):
                    continue
                if sum(map(_cost, _between(y, x, wanted))) >= LEAST_COST:
                    wanted[y] = x
        return wanted


def _fits(y: Value, x: Value) -> bool:
    element, source = y.tensor.element, x.tensor.element
    if not isinstance(element, ElementType) or not isinstance(source, ElementType) or not LEAST_BITS <= element.bits <= 32:
        return False
    return y.tensor.size_elems >= max(LEAST_TIMES << source.bits, LEAST_ELEMS) and not _is_repeated(x)


def _between(y: Value, x: Value, known: Container[Value] = ()) -> list[Op]:
    """The ops that make y of x and what is known, in dependency order."""
    found: dict[Op, None] = {}
    stack = [y]

    def is_there(v: Value) -> bool:
        return v is x or v in known or _is_spread(v)

    while stack:
        op = None if is_there(stack[-1]) else stack[-1].op
        missing = [] if op is None or op in found else [v for v in op.operands if v.op not in found and not is_there(v)]
        stack += missing
        if not missing:
            stack.pop()
            if op is not None:
                found[op] = None
    return list(found)


def _is_elementwise(op: Op) -> bool:
    if not isinstance(op.definition.semantics, Elementwise) or len(op.results) != 1:
        return False
    types = [v.type for v in (*op.operands, *op.results)]
    return all(isinstance(t, TensorType) and t.is_static and isinstance(t.element, ElementType) for t in types)


def _is_spread(v: Value) -> bool:
    """Whether a value is one element everywhere that costs nothing to spread again: a scalar, a constant, a scalar spread."""
    if v.op is not None and isinstance(v.op.definition.semantics, Literal):
        return bool(v.op.attr("value").is_splat)
    if v.op is not None and v.op.name == _BROADCAST:
        v = v.op.operands[0]
    return isinstance(v.type, TensorType) and v.type.is_static and v.rank == 0


def _is_repeated(v: Value) -> bool:
    """Whether a value's elements are fewer numbers, whose functions are computed once for all places anyway."""
    return v.op is not None and v.op.name == _BROADCAST


def _has_codes(v: Value) -> bool:
    """Whether a tensor's elements have bits that number them."""
    if not isinstance(v.type, TensorType) or not v.type.is_static or not isinstance(v.type.element, ElementType):
        return False
    e = v.type.element
    return LEAST_BITS <= e.bits <= MOST_BITS and f"ui{e.bits}" in ELEMENT_TYPES and not e.is_complex


def _cost(op: Op) -> float:
    """What an element of an op takes, in additions of f32: more of them fit a vector if they are short."""
    semantics, element = op.definition.semantics, op.results[0].tensor.element
    assert isinstance(semantics, Elementwise) and isinstance(element, ElementType)
    cost = scalar_function(semantics.function).cost
    if element.is_integer or element.bits >= 32:
        return cost * element.bits / 32
    return cost if semantics.function in EXACT else cost + ROUNDING.get(element.name, ROUNDING_OF_CODES)


def _looked_up(b: Builder, y: Value, x: Value, env: dict[Value, Value]) -> Value:
    source = x.tensor.element
    assert isinstance(source, ElementType)
    size, codes = 1 << source.bits, ELEMENT_TYPES[f"ui{source.bits}"]
    table = {x: _as(b, b.iota(TensorType((size,), codes)), source)}
    for op in _between(y, x):
        operands = [table[v] if v in table else _spread(b, v, size, env) for v in op.operands]
        (r,) = op.results
        table[r] = b.emit(op.name, operands, op.attributes, op.regions, [replace(r.tensor, shape=(size,))])[0]
    numbers = GatherDimensions(collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=x.rank)
    return b.gather(table[y], _as(b, env.get(x, x), codes), numbers, (1,))


def _as(b: Builder, x: Value, element: ElementType) -> Value:
    return x if x.tensor.element == element else b.bitcast_convert(x, element)


def _spread(b: Builder, v: Value, size: int, env: dict[Value, Value]) -> Value:
    """A value that is one element everywhere, as a table of it; what is a scalar for its reader stays one."""
    if v.rank == 0:
        return env.get(v, v)
    assert v.op is not None
    if isinstance(v.op.definition.semantics, Literal):
        t = replace(v.tensor, shape=(size,))
        return b.emit("stablehlo.constant", (), {"value": splat(v.op.attr("value").array.reshape(-1)[0], t)}, (), [t])[0]
    scalar = v.op.operands[0]
    return b.broadcast_in_dim(env.get(scalar, scalar), (size,), ())
