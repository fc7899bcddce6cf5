"""What the parts do that a program has written for one process itself: their collectives, and the work between them.

The ops stay as they are; their bytes, partners and times are counted as those of the ops that the partitioner puts in.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo.calls import callees
from hlo.errors import Declined
from hlo.module import Block, Op
from hlo.types import TensorType
from tiling.mesh.emit import Communication, Emitter, named
from tiling.mesh.groups import COLLECTIVES, groups_of, pairs_of, traffic_of
from tiling.mesh.mesh import Mesh
from tiling.mesh.regions import trips_of
from tiling.mesh.relations import loops_of
from tiling.mesh.shardings import Digit
from tiling.mesh.written import Written
from tiling.program.flatten import flatten_region

__all__ = ["note"]


def note(whole: Written, emit: Emitter, op: Op, times: int = 1) -> None:
    """Counts an op of such a part, what its bodies and the functions that it calls contain included."""
    if op.name in COLLECTIVES:
        found = traffic_of(op, (1, whole.mesh.size))
        if not isinstance(found, Declined) and found.sent_bytes:
            value = named(op.results[0])
            reason = "the program itself says so"
            told = Communication(found.kind, _along(op, whole.mesh), found.sent_bytes, value, reason, "", emit.times * times)
            whole.told.append(told)
        return
    inner: Sequence[Block] = ()
    if op.definition.is_control:
        names = [f"region{k}" for k in range(len(op.regions))]
        regions = [flatten_region(whole.module, b, n) for b, n in zip(op.regions, names, strict=True)]
        is_loop = op.name == "stablehlo.while"
        inner, times = op.regions, times * (trips_of(op, regions) if is_loop else 1)
    elif callees(op):
        inner = [f.body for name in callees(op) if not (f := whole.module.functions[name]).is_declaration]
    for block in inner:
        for part in block.ops:
            note(whole, emit, part, times)
    if not inner and not op.definition.is_terminator:
        whole.work_seconds += emit.times * times * _work(op) / whole.network.work_per_second


def _work(op: Op) -> int:
    """The iterations of an op's loops; the elements of its results, where maps do not say what it reads."""
    types = [r.type for r in op.results]
    if not all(isinstance(t, TensorType) and t.is_static for t in (*types, *(v.type for v in op.operands))):
        return 0
    loops = loops_of(op) if types and op.definition.is_pure else Declined("it has no result")
    if isinstance(loops, Declined):
        return sum(t.size_elems for t in types if isinstance(t, TensorType))
    return prod([loops.size(v) for v in (*loops.dims, *loops.ranges)])


def _along(op: Op, mesh: Mesh) -> tuple[Digit, ...]:
    """The axes of the mesh along which the members of a collective's groups, or its pairs, differ."""
    grid = (1, mesh.size)
    groups = pairs_of(op, grid) if op.name == "stablehlo.collective_permute" else groups_of(op, grid)
    if isinstance(groups, Declined):
        return ()
    axes = [Digit(mesh.stride(name), n, name) for name, n in mesh.axes if n > 1]
    return tuple([d for d in axes if any(len({d.of(p) for p in g}) > 1 for g in groups)])
