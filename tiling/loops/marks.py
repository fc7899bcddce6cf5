"""What loops may be marked with: rows that are written as one, and extrema that are taken from two looks at a row.

A mark changes how a kernel does its work, never what it computes. So it stands only where a kernel does the same with it:

    `together` rows as one   a fold across rows into results in memory, scans along rows, sums that are written out, or folds
                             whose results are side by side in registers, in whole groups of rows
    `looks_twice`            a maximum or minimum of elements of one row in memory, in registers from first to last

Which functions put rows together is asked by `tiling.proving.formed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlo.registry import Fold
from hlo.types import ElementType
from indexing.expr import Const, Interval, Var, simplify
from tiling.loops.element_ir import Load, has_runtimes, node_variables
from tiling.loops.ir import FoldStep, LoopKind, Nest

__all__ = ["looking_fault", "rows_faults"]

NATIVE = frozenset({"f32", "f64"})  # others are converted, by instructions with one more user

_BESIDE = (LoopKind.PARALLEL, LoopKind.REDUCTION)
_ROWS = ((LoopKind.REDUCTION, LoopKind.PARALLEL), (LoopKind.PARALLEL, LoopKind.SCAN), _BESIDE)
"""What loops two are of which the outer one may have rows together, where not all are parallel."""


def rows_faults(nest: Nest, ranges: Mapping[Var, Interval]) -> Iterator[str]:
    """What is wrong with each loop of a nest of which several iterations are written as one."""
    for k, x in enumerate(nest.loops):
        if x.together != 1:
            fault = f"expected whole groups, found {x.together}" if x.together < 1 else _rows_fault(nest, k, ranges)
            if fault is not None:
                yield f"{x.together} iterations of {x.variable} are written as one: {fault}"


def _rows_fault(nest: Nest, k: int, ranges: Mapping[Var, Interval]) -> str | None:
    if k != len(nest.loops) - 2:
        return "expected the loop around the innermost one"
    rows, along = nest.loops[k:]
    if nest.stores or not nest.folds or nest.segments or nest.skip is not None:
        return "expected a nest of folds alone, with nothing left out and an innermost loop in one piece"
    is_written_out = all(x.kind is LoopKind.PARALLEL for x in nest.loops)
    if not is_written_out and (rows.kind, along.kind) not in _ROWS:
        return "expected a fold across rows, a scan along them, results beside each other, or sums that are written out"
    if rows.variable in {*along.lower.variables, *along.upper.variables}:
        return "expected rows of one length"
    if simplify((rows.upper - rows.lower + 1) % rows.together, ranges) is not Const(0):
        return f"expected whole groups of [{rows.lower}, {rows.upper}]"
    nodes = [n for f in nest.folds for n in (*f.nodes, *f.inits)]
    if has_runtimes(nodes):
        return "expected no places known only at run time"
    if any(rows.variable in node_variables(n, {}) for f in nest.folds for n in f.inits):
        return "expected one initial value for all rows"
    if is_written_out:
        return "expected sums of several products" if any(f.products < 2 or f.looks_twice for f in nest.folds) else None
    if (rows.kind, along.kind) == _BESIDE:
        one_by_one = all(x.kind is LoopKind.PARALLEL for x in nest.loops[:-1])
        if not one_by_one or any(f.products != 1 for f in nest.folds):
            return "expected results in registers, of folds of one element at a time"
        return None
    if any(f.products != 1 or f.looks_twice or len(f.nodes) != 1 or len(f.values) != 1 for f in nest.folds):
        return "expected folds of one value at a time"
    return None


def looking_fault(nest: Nest, f: FoldStep) -> str | None:
    """Why a fold of a nest cannot look twice at what it folds; None where it can, or does not."""
    if not f.looks_twice:
        return None
    kinds = [x.kind for x in nest.loops]
    first = kinds.index(LoopKind.REDUCTION) if LoopKind.REDUCTION in kinds else len(kinds)
    if first == len(kinds) or set(kinds[first:]) != {LoopKind.REDUCTION}:
        return "expected a row whose loops are the innermost ones"
    across = any(x.together > 1 for x in nest.loops[first:])
    if len(nest.folds) != 1 or nest.stores or nest.segments or nest.skip is not None or across:
        return "expected one fold, and nothing beside it"
    (node,) = f.nodes if len(f.nodes) == 1 else (None,)
    if not isinstance(node, Load) or has_runtimes([node]) or f.products != 1:
        return "expected an element of a row in memory"
    if not isinstance(f.op.definition.semantics, Fold):
        return f"expected a maximum or a minimum, found {f.op.name}"
    body = f.op.regions[0]
    element = body.arguments[0].tensor.element
    held = node.value.tensor.element if node.buffer is None else node.buffer.element
    names = [op.definition.mnemonic for op in body.ops[:-1]]
    if names not in (["maximum"], ["minimum"]) or len(body.arguments) != 2 or set(body.ops[0].operands) != set(body.arguments):
        return f"expected a maximum or a minimum, found {' and '.join(names) or 'nothing'}"
    if not isinstance(element, ElementType) or element.name not in NATIVE or held != element:
        return f"expected elements of {' or '.join(sorted(NATIVE))}, found {held} folded as {element}"
    return None
