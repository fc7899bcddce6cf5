"""A fold in two: partial results, each of a share of the iterations, and the fold of those.

    out[i] = fold over r of x[r, i]         ->         part[c, i] = fold over the r of share c of x[r, i]
                                                       out[i]     = fold over c of part[c, i]

Where the parts lie and who computes them is the caller's: a task for each (`split_fold`), lanes of a vector (`lane_folds`), tasks
that also compute other things (`tiling.lower.siblings`). That it is right is the monoid's (`tiling.elements.monoids`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hlo.module import Op
from hlo.registry import SumOfProducts
from hlo.types import ElementType
from indexing.expr import Expr, Interval, Var
from tiling.elements.monoids import Known, monoid_of
from tiling.loops.buffers import make_buffer
from tiling.loops.element_ir import Load, Node, Renamer, constant
from tiling.loops.ir import Buffer, FoldStep, Loop, Scope
from tiling.loops.monoid import Monoid
from tiling.loops.names import Names
from tiling.passes.tighten_bounds import sums_element

__all__ = ["Factored", "monoids_of_parts", "part_buffers", "rfactor"]


@dataclass(frozen=True)
class Factored:
    """The fold of one part, the fold of all parts, and the buffers that the parts lie in."""

    part: FoldStep
    whole: FoldStep
    buffers: tuple[Buffer, ...]


def monoids_of_parts(
    folds: Sequence[FoldStep], over: Sequence[Loop], ranges: Mapping[Var, Interval], known: Known
) -> list[Monoid] | None:
    """By what the parts of each of some folds over the loops `over` are put together, NaN or not; None where one has no parts."""
    found = [monoid_of(f, over, ranges, known) for f in folds]
    made = [m for m in found if isinstance(m, Monoid) and m.starts_parts and m.for_nan]
    return made if len(made) == len(found) else None


def rfactor(
    f: FoldStep, monoid: Monoid, buffers: Sequence[Buffer], at: tuple[Expr, ...], share: Renamer | None = None
) -> Factored:
    """The two folds, where parts lie in `buffers` at `at`, which names the part and the result.

    `share` puts a part's iterations in place of all; None for loops that run over shares already. Each part starts from the
    initial value; where several steps make up a share the later ones are `going_on` from the first. Raises ValueError where
    parts cannot start from it.
    """
    if not monoid.starts_parts:
        raise ValueError(f"the parts of {f.op.name} cannot start from its initial value")
    nodes = f.nodes if share is None else tuple(map(share.node, f.nodes))
    part = replace(f, buffers=tuple(buffers), index=at, nodes=nodes)
    loaded: tuple[Node, ...] = tuple(Load(v, at, b) for v, b in zip(f.values, buffers, strict=True))
    if isinstance(f.op.definition.semantics, SumOfProducts):
        loaded += (constant(1, f.values[0]),)
    return Factored(part, replace(f, nodes=loaded, op=_folding(f.op, monoid)), tuple(buffers))


def part_buffers(
    f: FoldStep, names: Names, role: str, scope: Scope, shape: Sequence[int], origin: Sequence[Expr | int] = ()
) -> tuple[Buffer, ...]:
    """Room for the partial results of each value, in the element type that running results are kept in."""
    sides, first = tuple(shape), tuple(origin) or (0,) * len(shape)
    found = []
    for k, v in enumerate(f.values):
        element = f.buffers[k].element if f.buffers else v.tensor.element
        assert isinstance(element, ElementType), "quantized tensors are not folded"
        found.append(make_buffer(names.scratch(v, role), scope, sums_element(f, element), sides, sides, first))
    return tuple(found)


def _folding(op: Op, monoid: Monoid) -> Op:
    """The op that folds the parts: like the fold's own, but for a body that the monoid has of its own."""
    if monoid.body is None or monoid.body is op.regions[0]:
        return op
    return Op(op.definition, op.operands, op.attributes, (monoid.body,), [v.type for v in op.results], op.location, op.extra)
