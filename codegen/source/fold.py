"""How a fold's body becomes accumulator updates.

A body that is one associative op becomes `a = reduce_add(a, x)`, which a loop may reassociate (so that it vectorises); any
other body is written out op by op and runs in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.source.scalars import SCALAR_CODE, constant_source, convert_source, scalar_source
from hlo.errors import Declined
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Elementwise, Literal, SumOfProducts
from hlo.types import ElementType
from tiling.elements.folds import combined_function
from tiling.elements.monoids import is_rounded_each_step
from tiling.elements.scalar_functions import Neutral, scalar_function
from tiling.loops.element_ir import Load, Node, Scalar
from tiling.loops.ir import FoldStep

__all__ = ["FoldSource", "body_lines", "fold_source"]

@dataclass(frozen=True)
class FoldSource:
    """`combine(accumulators, values, fresh)` gives the lines of one step; `zero` starts a sum that has no initial value."""

    combine: Callable[[Sequence[str], Sequence[str], Callable[[], str]], list[str]]
    finish: Callable[[Sequence[str]], list[str]]
    zero: str = ""
    neutral: float | None = None
    start: Callable[[str], Sequence[str]] = lambda value: (value,)  # of the initial value: its accumulators
    parts: int = 1  # accumulators for each result
    word: str = ""  # the function that combines, where it may combine values before they meet the accumulator
    unsure: Callable[[Sequence[str]], str] | None = None  # a test of the accumulators, where `combine` may leave the last one
    look_again: Callable[[Sequence[str], str], list[str]] | None = None  # to another loop, which this updates it in

    def is_neutral(self, node: Node) -> bool:
        """True when folding in this constant changes nothing."""
        if self.neutral is None or not isinstance(node, Scalar) or node.element.is_complex:
            return False
        return float(node.value) == self.neutral


def _neutral_float(function: str) -> float | None:
    """The float x with f(a, x) = a for every a, NaN included. (0 is none for a sum: -0 + 0 = +0.)"""
    neutral = scalar_function(function).neutral
    return neutral.of_float if isinstance(neutral, Neutral) and neutral.is_for_all else None


def _same(accumulators: Sequence[str]) -> list[str]:
    return list(accumulators)


def fold_source(
    f: FoldStep, in_registers: bool = False, is_long: bool = False, excess: bool = False, is_read: bool = True
) -> FoldSource | Declined:
    """The updates of a fold step, or why there are none.

    `in_registers`: its accumulators are variables, not memory; `is_long`: what is done once, after the loop, counts for little;
    `excess`: numbers may keep more precision than they are stored with; `is_read`: all that the loop folds, in each of its parts,
    is read as it is.
    """
    if isinstance(f.op.definition.semantics, SumOfProducts):
        return _sum_of_products(f)
    body = f.op.regions[0]
    for v in (*body.arguments, *body.results):
        element = v.tensor.element
        if not isinstance(element, ElementType):
            return Declined(f"a reduction of {v.type}")
    simple = combined_function(body)
    if simple is not None and not is_rounded_each_step(simple, body.arguments[0].tensor.element):
        code, neutral = SCALAR_CODE[simple], _neutral_float(simple)
        element = body.arguments[0].tensor.element
        is_float = isinstance(element, ElementType) and element.is_float
        half = element.dtype.name if is_float and isinstance(element, ElementType) and element.bits == 16 else ""
        if is_float and in_registers and is_long and code.order_key:
            return _bounded(simple, neutral, half if is_read and isinstance(f.nodes[0], Load) else "")
        if is_float and in_registers and code.order_key:
            return _ordered(code.fold, code.order_key, neutral)
        word = f"{half}_{simple}" if code.order_key and half else code.fold

        def combine(accumulators: Sequence[str], values: Sequence[str], fresh: Callable[[], str]) -> list[str]:
            return [f"{accumulators[0]} = {word}({accumulators[0]}, {values[0]})"]

        return FoldSource(combine, _same, neutral=neutral if is_float else None, word=word)
    probe = _written_out(f.op, body, ["a"] * len(f.values), ["x"] * len(f.values), lambda: "v", excess)
    if isinstance(probe, Declined):
        return probe

    def general(accumulators: Sequence[str], values: Sequence[str], fresh: Callable[[], str]) -> list[str]:
        lines = _written_out(f.op, body, accumulators, values, fresh, excess)
        assert isinstance(lines, list)
        return lines

    return FoldSource(general, _same)


def _ordered(word: str, key: str, neutral: float | None) -> FoldSource:
    """A maximum or minimum of floats by keys: a = max(a, key(x)), and in the end the float whose key it is."""

    def combine(accumulators: Sequence[str], values: Sequence[str], fresh: Callable[[], str]) -> list[str]:
        return [f"{accumulators[0]} = {word}({accumulators[0]}, {key}({values[0]}))"]

    def finish(accumulators: Sequence[str]) -> list[str]:
        return [f"key_float({accumulators[0]})"]

    return FoldSource(combine, finish, neutral=neutral, start=lambda value: (f"{key}({value})",))


def _bounded(name: str, neutral: float | None, half: str) -> FoldSource:
    """A maximum or minimum of floats by three bounds of their bits: one instruction each, none waits for another.

    max = the largest signed integer where one is >= 0, else the least unsigned one; a NaN where a bound lies beyond infinity's.
    Given what each of the first two bounds reads, those alone are updated (`codegen.source.nest`). `half` names the type of 16
    bits whose elements are read, if it is one: their own bits are twice as many in a vector as those of f32.
    """
    signed = f"bits_to_int16(bits_of_{half}({{}}))" if half else "signed_bits({})"
    unsigned = f"bits_of_{half}({{}})" if half else "unsigned_bits({})"
    bounds = (("reduce_maximum", signed), ("reduce_maximum", unsigned), ("reduce_minimum", unsigned))

    def update(accumulators: Sequence[str], values: Sequence[str], bounds: Sequence[tuple[str, str]]) -> list[str]:
        return [f"{a} = {word}({a}, {bits.format(v)})" for a, v, (word, bits) in zip(accumulators, values, bounds, strict=True)]

    def combine(accumulators: Sequence[str], values: Sequence[str], fresh: Callable[[], str]) -> list[str]:
        if len(values) == 2:
            return update(accumulators[:2], values, bounds[:2])
        v = fresh()
        return [f"{v} = {values[0]}", *update(accumulators, [v] * len(bounds), bounds)]

    def unsure(accumulators: Sequence[str]) -> str:
        return f"{accumulators[0]} < 0" if name == "maximum" else f"not has_sign({accumulators[1]})"

    def look_again(accumulators: Sequence[str], value: str) -> list[str]:
        return update(accumulators[2:], [value], bounds[2:])

    def finish(accumulators: Sequence[str]) -> list[str]:
        return [f"{half}{'_' if half else ''}{name}_of_bounds({', '.join(accumulators)})"]

    def start(value: str) -> list[str]:
        return [bits.format(value) for _, bits in bounds]

    return FoldSource(combine, finish, neutral=neutral, start=start, parts=len(bounds), unsure=unsure, look_again=look_again)


def body_lines(
    op: Op, body: Block, names: dict[Value, str], fresh: Callable[[], str], wanted: Sequence[Value] | None = None,
    excess: bool = False,
) -> list[str] | Declined:
    """The lines that compute a body's ops from its arguments, which `names` holds; `names` then holds the rest, too.

    With `wanted`, only what those values need.
    """
    needed: set[Op] | None = None
    if wanted is not None:
        needed, todo = set(), list(wanted)
        while todo:
            v = todo.pop()
            if v.op is not None and v.op not in needed:
                needed.add(v.op)
                todo.extend(v.op.operands)
    lines: list[str] = []
    for inner in body.ops[:-1]:
        if needed is not None and inner not in needed:
            continue
        semantics = inner.definition.semantics
        if isinstance(semantics, Literal):
            dense: DenseArray = inner.attr("value")
            element = dense.type.element
            assert isinstance(element, ElementType)
            names[inner.results[0]] = constant_source(dense.array.reshape(-1)[0], element)
            continue
        if not isinstance(semantics, Elementwise) or any(v not in names for v in inner.operands):
            return Declined(f"the body of {op.name} contains {inner.name}")
        types = [v.tensor.element for v in inner.operands]
        plain = [t for t in types if isinstance(t, ElementType)]
        text = scalar_source(inner, semantics.function, [names[v] for v in inner.operands], plain, excess)
        if isinstance(text, Declined):
            return text
        name = fresh()
        lines.append(f"{name} = {text}")
        names[inner.results[0]] = name
    return lines


def _written_out(
    op: Op, body: Block, accumulators: Sequence[str], values: Sequence[str], fresh: Callable[[], str], excess: bool
) -> list[str] | Declined:
    names: dict[Value, str] = dict(zip(body.arguments, [*accumulators, *values], strict=True))
    lines = body_lines(op, body, names, fresh, excess=excess)
    if isinstance(lines, Declined):
        return lines
    missing = [v for v in body.results if v not in names]
    if missing:
        return Declined(f"the body of {op.name} returns a value from outside")
    kept = [(a, names[v]) for a, v in zip(accumulators, body.results, strict=True) if a != names[v]]
    # All results are computed from the old accumulators before any is replaced.
    if len(kept) > 1:
        temporary = [fresh() for _ in kept]
        lines += [f"{t} = {v}" for t, (_, v) in zip(temporary, kept, strict=True)]
        lines += [f"{a} = {t}" for t, (a, _) in zip(temporary, kept, strict=True)]
    else:
        lines += [f"{a} = {v}" for a, v in kept]
    return lines


def _sum_of_products(f: FoldStep) -> FoldSource | Declined:
    out = f.values[0].tensor.element
    sources = [v.tensor.element for v in f.op.operands]
    if not isinstance(out, ElementType) or not all(isinstance(s, ElementType) for s in sources):
        return Declined("a contraction of quantized tensors")
    plain = [s for s in sources if isinstance(s, ElementType)]

    def combine(accumulators: Sequence[str], values: Sequence[str], fresh: Callable[[], str]) -> list[str]:
        a, b = (convert_source(v, s, out) for v, s in zip(values, plain, strict=True))
        return [f"{accumulators[0]} = reduce_fma({accumulators[0]}, {a}, {b})"]

    zero = constant_source(0, out)
    return FoldSource(combine, _same, zero)
