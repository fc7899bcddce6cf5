"""Random arrays at the ends of their types, where a result that is computed in too narrow a type shows.

Half of the elements are ordinary draws; the others are the least and the greatest numbers and their neighbours, in floats the
smallest normal and denormal ones, too. An argument keeps its ordinary draws where ends say nothing, or never end:

    an integer that a loop may count by     a float whose sums depend on their order (max + max - max is max, or infinite)
"""

from __future__ import annotations

import numpy as np

from hlo.module import Function, Module, Op, Value, walk
from hlo.registry import Elementwise, Fold, Move, Structure
from hlo.types import ElementType, TensorType, default_storage_range
from tilewright.check import float_info
from tilewright.inputs import random_arrays
from tiling.elements.folds import combined_function
from tiling.program.promotion import promoted

__all__ = ["end_arrays", "takes_ends"]

# Rounded once, or exact, or monotone with the evaluator's own limits: alike at the ends whatever the order of a kernel's loops.
_ALIKE = frozenset(
    {
        "abs", "add", "ceil", "clamp", "compare", "convert", "divide", "exponential", "floor", "is_finite", "log", "logistic",
        "maximum", "minimum", "multiply", "negate", "reduce_precision", "round_nearest_afz", "round_nearest_even", "rsqrt",
        "select", "sign", "sqrt", "square", "subtract", "tanh",
    }
)  # fmt: skip
_ENDS_ELEMS = 16


def end_arrays(function: Function, seed: int, module: Module | None = None) -> tuple[np.ndarray, ...] | None:
    """One array for each argument, as `tilewright.inputs.random_arrays` has them, half of the elements at the ends of their type.

    None where no argument takes ends. Raises InputError as `random_arrays` does.

    >>> import hlo
    >>> f = hlo.parse("HloModule m\\nENTRY e { p = s8[6] parameter(0) ROOT n = s8[6] negate(p) }").function()
    >>> end_arrays(f, 0)[0].tolist()
    [5, 82, -127, 99, -122, -50]
    """
    chosen = takes_ends(function)
    if not chosen:
        return None
    arrays = list(random_arrays(function, seed, module))
    for k in chosen:
        t = function.arguments[k].tensor
        assert isinstance(t.element, ElementType)
        rng = np.random.default_rng([seed, k, 1])
        ends = _ends(t.element, rng)
        at_end = rng.random(arrays[k].shape) < 0.5
        arrays[k] = np.where(at_end, ends[rng.integers(0, len(ends), arrays[k].shape)], arrays[k]).astype(t.dtype)
    return tuple(arrays)


def _ends(element: ElementType, rng: np.random.Generator) -> np.ndarray:
    """The numbers at the ends of an integer or float type."""
    if element.is_integer:
        low, high = default_storage_range(element)
        storage = element.dtype if element.bits >= 8 else np.dtype(np.int8)
        anywhere = rng.integers(low, high, _ENDS_ELEMS, dtype=storage.type, endpoint=True)
        return np.array([low, low + 1, high - 1, high, *anywhere.tolist()], storage)
    info = float_info(element.dtype)
    sizes = [info.max, info.smallest_normal, info.smallest_subnormal]
    signs = [1, -1] if float(info.min) < 0 else [1]
    return np.array([np.float64(x) * s for x in sizes for s in signs]).astype(element.dtype)


def takes_ends(function: Function) -> list[int]:
    """The numbers of the arguments whose elements may lie at the ends of their types (see the module)."""
    users: dict[Value, list[Op]] = {}
    for op in walk(function.body):
        for v in op.operands:
            users.setdefault(v, []).append(op)
    own = set(function.body.ops)
    return [k for k, v in enumerate(function.arguments) if _has_ends(v) and _stays_alike(v, users, own)]


def _element(v: Value) -> ElementType | None:
    found = v.type.element if isinstance(v.type, TensorType) else None
    return found if isinstance(found, ElementType) else None


def _has_ends(v: Value) -> bool:
    element = _element(v)
    return element is not None and (element.is_integer or element.is_float)


def _stays_alike(argument: Value, users: dict[Value, list[Op]], own: set[Op]) -> bool:
    """Whether nothing that is computed from a value is a loop, or of floats and depends on an order."""
    seen: set[Value] = set()
    todo = [argument]
    while todo:
        v = todo.pop()
        if v in seen:
            continue
        seen.add(v)
        element = _element(v)
        for op in users.get(v, ()):
            if op.definition.is_terminator:
                if op not in own:
                    return False  # out of a region: what becomes of it is the region's business
                continue
            if element is None or op not in own or op.definition.structure is Structure.LOOP or op.definition.calls:
                return False
            if element.is_float and not _is_alike(op, element):
                return False
            if not (element.is_float and _reaches_farther(op, element)):
                todo.extend(op.results)
    return True


def _is_alike(op: Op, element: ElementType) -> bool:
    semantics = op.definition.semantics
    if isinstance(semantics, Elementwise):
        return semantics.function in _ALIKE
    if isinstance(semantics, Fold):
        return combined_function(op.regions[0]) in ("maximum", "minimum") or _reaches_farther(op, element)
    return isinstance(semantics, Move)


def _reaches_farther(op: Op, element: ElementType) -> bool:
    """Whether an op's results, and all that it computes with, are of a float type with far greater numbers."""
    if op.definition.function != "convert" and promoted(op) is None:
        return False
    return all(_is_farther(e, element) for e in map(_element, op.results))


def _is_farther(wide: ElementType | None, narrow: ElementType) -> bool:
    if wide is None or not wide.is_float:
        return False
    return float(float_info(wide.dtype).max) > 1e6 * float(float_info(narrow.dtype).max)

