"""Which ops code can be generated for."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from codegen.source.scalars import SCALAR_CODE, WITHOUT_CODE, scalar_source
from hlo.errors import Declined
from hlo.foreign import is_known
from hlo.module import Op
from hlo.registry import Elementwise, Fold, Move, definitions, is_added
from hlo.types import ElementType, QuantizedType, TensorType
from hlo.typesets import TypeSet
from tiling.elements.folds import combined_function
from tiling.files.plan_file import known_rules
from tiling.routines.matrices import MATRIX_CALLS

__all__ = ["supports", "supports_beside"]


_BY_NAME = {d.name: d for d in definitions()}
MOST_ROUNDED_TERMS = 32
"""Sums in floats of a byte and less: up to here every order of the additions is the evaluator's."""


def supports(op: Op) -> Declined | None:
    """None when kernels compute the op's element types and every scalar function that it applies, else why not."""
    for inner in (op, *(x for b in op.regions for x in b.ops if not x.definition.is_terminator)):
        for v in (*inner.operands, *inner.results):
            if not isinstance(v.type, TensorType):
                return Declined(f"{v.type} is no tensor")
            if not isinstance(v.type.element, ElementType):
                return Declined(f"{v.type} is quantized")
        semantics = inner.definition.semantics
        if isinstance(semantics, Move):
            source, goal = inner.operands[0].tensor.element, inner.results[0].tensor.element
            if source != goal:
                return Declined(f"{inner.name} from {source} to {goal} moves bits, not numbers")
        if isinstance(semantics, Elementwise):
            reason = _no_function(inner, semantics.function)
            if reason is not None:
                return reason
    return _long_narrow_fold(op)


known_rules["kernels"] = supports

_known: dict[tuple[object, ...], Declined | None] = {}
"""By name and types, for ops without attributes: of a program's ops most are alike."""


def _no_function(op: Op, function: str) -> Declined | None:
    """Why the library has no such function of the operands' types, or None."""
    types = [v.tensor.element for v in op.operands]
    key = (op.name, function, SCALAR_CODE.get(function), op.results[0].tensor.element, *types)
    if not op.attributes and key in _known:
        return _known[key]
    reason: Declined | None = None
    if function not in SCALAR_CODE and function not in WITHOUT_CODE and is_added(op.definition):
        near = difflib.get_close_matches(function, SCALAR_CODE, 1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        reason = Declined(f"codegen.source.scalars.SCALAR_CODE has no row for the scalar function {function!r}{hint}")
        warnings.warn(f"{op.name} runs in the evaluator: {reason.reason}", stacklevel=2)
    elif not _takes(function, types[0]):
        reason = Declined(f"{function} of {types[0]} is no StableHLO op")
    else:
        text = scalar_source(op, function, ["x"] * len(types), [t for t in types if isinstance(t, ElementType)])
        reason = text if isinstance(text, Declined) else None
    if not op.attributes:
        _known[key] = reason
    return reason


def supports_beside(custom_calls: Mapping[str, Callable[..., Any]]) -> Callable[[Op], Declined | None]:
    """`supports` for a caller with functions for custom calls: theirs go before kernels that know a call as XLA's own."""
    theirs = {target for target, f in custom_calls.items() if target in MATRIX_CALLS and not is_known(f)}
    if not theirs:
        return supports

    def without_theirs(op: Op) -> Declined | None:
        if op.name == "stablehlo.custom_call" and op.attr("call_target_name") in theirs:
            return Declined("a function of the caller's runs it")
        return supports(op)

    return without_theirs


def _takes(function: str, element: ElementType | QuantizedType) -> bool:
    """False for an op of another dialect that is looser than the StableHLO op of its function (chlo.broadcast_and of floats)."""
    if f"stablehlo.{function}" not in _BY_NAME:
        return True
    accepts = _BY_NAME[f"stablehlo.{function}"].operands[-1].accepts
    return not isinstance(accepts, TypeSet) or accepts.has(TensorType((), element))


def _long_narrow_fold(op: Op) -> Declined | None:
    """A fold of many floats of a byte or less is rounded at every step: what comes out depends on the order."""
    if not isinstance(op.definition.semantics, Fold):
        return None
    elements = [v.tensor.element for v in op.regions[0].arguments]
    if not any(isinstance(e, ElementType) and e.is_float and e.bits <= 8 for e in elements):
        return None
    if combined_function(op.regions[0]) in ("maximum", "minimum"):
        return None
    window = op.attributes.get("window_dimensions")
    operand = op.operands[0].tensor
    sizes = window if window is not None else [operand.shape[k] or 0 for k in op.attr("dimensions")]
    if prod(sizes) <= MOST_ROUNDED_TERMS:
        return None
    return Declined(f"a fold of {prod(sizes)} elements of {operand.element} is rounded at every step, so its order matters")
