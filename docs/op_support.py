"""Which element types each op takes, and what runs it: found out by trying the op's small example with every type.

An example is made again with another element type in place of its own, verified, planned (is it in a kernel?) and run in the
evaluator. `support` gives a mark for each of `TYPES`: K, a kernel; E, the evaluator alone; "." where the verifier says that the
op does not take the type; "-" where it does, and the evaluator declines it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import codegen
import hlo
import interp
import tiling
from hlo.builder import Builder, type_of
from hlo.errors import TilewrightError
from hlo.types import ELEMENT_TYPES, ElementType, QuantizedType, TensorType, Type
from interp.registry import rule_for
from tests.hlo.test_builder import CASES, Row, built

__all__ = ["TYPES", "examples", "support"]

TYPES: dict[str, ElementType | QuantizedType] = {
    name: ELEMENT_TYPES[name]
    for name in (
        *"i1 i4 i8 ui8 i16 i32 ui32 i64".split(),
        *"f4E2M1FN f8E4M3FN f8E5M2 bf16 f16 f32 f64 complex<f32> complex<f64>".split(),
    )
}
TYPES["quantized"] = QuantizedType(ELEMENT_TYPES["i8"], ELEMENT_TYPES["f32"], (1.0,), (0,), -128, 127)

Element = ElementType | QuantizedType


def examples() -> dict[str, tuple[Row | None, hlo.Module, hlo.Op]]:
    """A small module and the op in it, for each name of an op, with the row of the builder's tests that makes it."""
    found: dict[str, tuple[Row | None, hlo.Module, hlo.Op]] = {}
    for row in CASES.values():
        module = built(row)[0]
        for op in hlo.walk(module.entry.body):
            found.setdefault(op.name, (row, module, op))
    for name, shape in (("broadcast", "f32[2,3,3]"), ("dot", "f32[3,3]")):  # two that the builder writes as others
        b = Builder("main")
        x = b.parameter(0, "f32[3,3]")
        operands, attributes = ((x,), {"broadcast_sizes": (2,)}) if name == "broadcast" else ((x, x), {})
        (value,) = b.emit(f"stablehlo.{name}", operands, attributes, (), [type_of(shape)])
        assert value.op is not None
        found.setdefault(value.op.name, (None, b.build(value), value.op))
    return found


def _own(op: hlo.Op) -> Element | None:
    """The element type that is replaced: the one that the op computes with."""
    for v in (*op.operands, *op.results):
        if isinstance(v.type, TensorType) and not (v.type.element.name == "i1" and op.name.endswith("select")):
            return v.type.element
    return None


def _replaced(t: Type, old: Element, new: Element) -> Type:
    return replace(t, element=new) if isinstance(t, TensorType) and t.element == old else t


def _candidates(row: Row | None, module: hlo.Module, old: Element, new: Element) -> Iterator[hlo.Module]:
    """The example with the type `new`: by the builder, which infers the results, and by its text with the type replaced."""
    try:
        if row is not None:
            parameters, call, result = row
            types = tuple(_replaced(type_of(t), old, new) for t in parameters)
            yield built((types, call, result))[0]  # type: ignore[arg-type]
    except (TilewrightError, ValueError, TypeError, AssertionError, AttributeError, OverflowError):
        pass  # the call does not take this type; the text may
    text = re.sub(rf"(?<=[x<]){re.escape(str(old))}(?=[>,])", str(new), str(module))
    for number in ("0.0", "0", "false", "(0.0, 0.0)"):
        try:
            yield hlo.parse(re.sub(r"dense<[^>\"]*>", f"dense<{number}>", text))
        except (TilewrightError, ValueError):
            continue


def _mark(module: hlo.Module, alone: bool) -> str:
    made = tiling.plan(module, supports=codegen.supports)
    kernels = not any(isinstance(s, tiling.EvaluatorStep) for plan in made.nested() for s in plan.steps)
    if alone and not _evaluates(module):
        return "-"
    return "K" if kernels else "E"


def _evaluates(module: hlo.Module) -> bool:
    arrays = []
    for v in module.entry.arguments:
        if not isinstance(v.type, TensorType) or not v.type.is_static:
            return False
        arrays.append(np.ones(v.type.static_shape, v.type.dtype))
    try:
        interp.evaluate(module, *arrays)
    except (TilewrightError, TypeError):  # declined, or NumPy has no such operation
        return False
    return True


def support(row: Row | None, module: hlo.Module, op: hlo.Op) -> dict[str, str]:
    """A mark for each of `TYPES`."""
    old = _own(op)
    rule = rule_for(op.name)
    if old is None or rule is None or rule.declined is not None:
        return dict.fromkeys(TYPES, "-" if old is not None else ".")
    # What needs other processes, tokens, or operands that are not all ones does not run by itself, whatever the type.
    alone = _evaluates(module)
    marks = dict.fromkeys(TYPES, ".")
    for word, new in TYPES.items():
        for made in _candidates(row, module, old, new):
            try:
                hlo.verify(made)
            except TilewrightError:
                continue
            if any(o.name == op.name for o in hlo.walk(made.entry.body)):
                marks[word] = _mark(made, alone)
                break
    return marks
