"""Sums of products with holes, residue by residue: where every D-th element of a factor is one of a value and the rest is 0.

    out[i] = sum over w of (x[(i + w) / D] if (i + w) mod D = 0 else 0) * k[w]
    out[D q + r] = sum over u of x[q + u + (r + s) / D] * k[D u + s]     with r + s = 0 mod D, for each r in [0, D - 1]

A transposed convolution, and so a strided one's gradient by its input, has holes. Each residue r reads whole windows without any.
A product of a hole's zero with an infinity or NaN is NaN: whoever asks sees to it that the other factor has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, lcm, prod

from hlo.access import Condition
from hlo.types import element_type
from indexing.expr import Const, Expr, Interval, Mod, Var, as_expr, interval, simplify
from tiling.contract.operands import in_place, is_narrow
from tiling.contract.roles import ContractionContext, fills_better, share_of_lanes, whole_extent
from tiling.loops.affine import address, linear
from tiling.loops.domains.conditions import is_hole, settled, within
from tiling.loops.domains.split_domain import Part, Rewriting, residue_class
from tiling.loops.element_ir import Choose, Load, Node, Renamer, Scalar, constant, has_runtimes, node_variables
from tiling.loops.ir import Buffer, Contract, Loop, Nest, Phase, Scope, Step, Store
from tiling.loops.staging import row_major, stage_into
from tiling.loops.variables import counted

__all__ = ["Residues", "alike", "holes_in", "residues_of"]

MOST_RESIDUES = 16  # each one is a product of its own in the kernel


def holes_in(nodes: Sequence[Node]) -> tuple[Condition, ...]:
    """The conditions at which one factor is 0 but for every D-th place."""
    found: dict[Condition, None] = {}
    for n in nodes:
        if isinstance(n, Choose) and not n.runtimes and isinstance(n.otherwise, Scalar) and n.otherwise.value == 0:
            found.update((c, None) for c in n.conditions if is_hole(c))
    return tuple(found)


def alike(steps: Sequence[Step]) -> list[Step]:
    """The same contractions with equally many levels, so that they need one function of the micro-kernel between them."""
    most = max((len(s.levels) for s in steps if isinstance(s, Contract)), default=0)

    def padded(s: Contract) -> Contract:
        return replace(s, levels=(*((1, 0, 0),) * (most - len(s.levels)), *s.levels), shares_code=True)

    return [padded(s) if isinstance(s, Contract) and s.kernel.adds and not s.kernel.along else s for s in steps]


@dataclass(frozen=True)
class _Hole:
    """sum of coefficient * variable + constant = 0 mod divisor."""

    coefficients: Mapping[Var, int]
    constant: int
    divisor: int

    def allows(self, at: Mapping[Var, int]) -> bool:
        return (sum(k * at[v] for v, k in self.coefficients.items()) + self.constant) % self.divisor == 0


def _hole(c: Condition, local: set[Var]) -> _Hole | None:
    """A condition in a task's own loops; None where it also depends on the tile."""
    assert isinstance(c.expression, Mod) and isinstance(c.expression.divisor, int)
    divisor, found = c.expression.divisor, {}
    for atom, k in c.expression.numerator.terms:
        if isinstance(atom, Var) and atom in local:
            found[atom] = k
        elif k % divisor:
            return None
    return _Hole(found, c.expression.numerator.constant, divisor)


@dataclass(frozen=True, eq=False)
class Residues:
    """A contraction for each residue of the result's index, or the zeros that it is; what they read is filled in before."""

    parts: tuple[ContractionContext | Nest, ...]
    fill: tuple[Nest, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    ahead: tuple[Phase, ...] = ()


def residues_of(c: ContractionContext) -> Residues | None:
    """A contraction with holes by residues; None where that does not follow.

    Tiles have to begin at the same residue, and each index of the result may meet one residue of the summed index only.
    """
    conditions = holes_in(c.nodes)
    loops = {x.variable: x for x in (*c.loops, *c.depth)}
    holes = [h for x in conditions if (h := _hole(x, set(loops))) is not None]
    if not conditions or len(holes) < len(conditions) or has_runtimes(c.nodes):
        return None
    periods: dict[Var, int] = {}
    for h in holes:
        for v, k in h.coefficients.items():
            periods[v] = lcm(periods.get(v, 1), h.divisor // gcd(h.divisor, k))
    if any(loops[v].lower is not Const(0) for v in periods):
        return None
    outside = [x.variable for x in c.loops if x.variable in periods]
    summed = [x.variable for x in c.depth if x.variable in periods]
    if prod(periods[v] for v in outside) > MOST_RESIDUES:
        return None
    found: list[ContractionContext | Nest] = []
    for at in _points(outside, periods, loops):
        taken = [
            {**at, **step} for step in _points(summed, periods, loops) if all(h.allows({**at, **step}) for h in holes)
        ]
        if len(taken) > 1:
            return None
        part = _Part(c, periods, taken[0] if taken else at, f"_{len(found)}")
        found.append(part.contraction() if taken else part.zeros())
    side = next(k for k, n in enumerate(c.nodes) if holes_in((n,)))
    made = _with_one_tile(c, found, side)
    return _with_one_copy(c, made, 1 - side) if len(found) > 1 else made


def _with_one_tile(c: ContractionContext, parts: Sequence[ContractionContext | Nest], side: int) -> Residues:
    """The residues with one copy of what their windows read, if they read it with padding: zeros, as the padding is."""
    contractions = [p for p in parts if isinstance(p, ContractionContext)]
    plain = Residues(tuple(parts))
    if not any(isinstance(p.nodes[side], Choose) for p in contractions):
        return plain
    found = {p: _padded_read(p.nodes[side], c.ranges) for p in contractions}
    reads = {p: r for p, r in found.items() if r is not None}
    first = next(iter(reads.values()), None)
    local = [*dict.fromkeys(x.variable for p in contractions for x in (*p.loops, *p.depth))]
    if first is None or len(reads) < len(found) or any(r.value is not first.value for r in reads.values()):
        return plain
    source = first.buffer or c.buffers[first.value]
    lows: list[Expr] = []
    sizes: list[int] = []
    for along in zip(*(r.index for r in reads.values()), strict=True):
        rests = [None if at is None else at[0] - at[0].constant for at in (linear(e, local) for e in along)]
        starts = {simplify(e, c.ranges) for e in rests if e is not None}
        if None in rests or len(starts) > 1:
            return plain
        spans = [interval(e - rest, c.ranges) for e, rest in zip(along, rests, strict=True) if rest is not None]
        low, high = min(s.lower for s in spans), max(s.upper for s in spans)
        lows.append(simplify(starts.pop() + low, c.ranges))
        sizes.append(high - low + 1)
    element = element_type("f32") if is_narrow(source.element) else source.element
    tag = c.names.stage(c.stage)
    around = [counted(f"w{k}_{tag}", n, c.ranges) for k, n in enumerate(sizes)]
    index = [simplify(start + x.variable, c.ranges) for start, x in zip(lows, around, strict=True)]
    last = _dimension_of_columns(c, next(iter(reads)), first, source) if element.is_float else None
    order = sorted(range(len(index)), key=lambda k: k == last)
    layout = row_major(element, [(index[k], sizes[k]) for k in order], [lows[k] for k in order])
    layout = layout.with_rows_apart(c.machine.lanes(element.itemsize_bytes))
    tile = layout.buffer(c.names.scratch(c.stage.values[0], "window"), Scope.THREAD)
    if tile.size_bytes > c.machine.l2_bytes // 2:
        return plain
    inside_of = tuple(Condition(e, 0, n - 1) for e, n in zip(index, first.value.shape, strict=True))
    zero = Scalar(source.element.dtype.type(0), source.element)
    node = settled(Choose(inside_of, Load(first.value, tuple(index), first.buffer), zero), lambda x: within(x, c.ranges))
    fill = stage_into(tile, layout, [around[k] for k in order], node)

    def read(p: ContractionContext) -> Load:
        return Load(reads[p].value, tuple(reads[p].index[k] for k in order), tile)

    return Residues(_reading(parts, side, read), (fill,), (tile,))


def _dimension_of_columns(c: ContractionContext, part: ContractionContext, read: Load, source: Buffer) -> int | None:
    """The dimension of the windows' value that comes last in their copy, where another one does in memory; None where that is it.

    A result's few channels, which are consecutive, leave vectors empty that the places of an image fill. These are the columns
    then (`Roles`), and a copy along which they are consecutive is read in place by all residues: else each one turns its own.
    """
    value = c.stage.values[0]
    lanes = c.machine.lanes(max(4, value.tensor.dtype.itemsize))
    steps = dict(address(c.buffers[value], c.index, c.ranges).terms)
    channels = [n for x, n in zip(c.loops, value.shape, strict=True) if steps.get(x.variable) == 1]
    known = max((share_of_lanes(n, lanes) for n in channels), default=0.0)
    found = {
        k: whole_extent(part, d, x) for k, e in enumerate(read.index) for d, x in enumerate(part.loops)
        if x.extent > 1 and dict(e.terms).get(x.variable) == 1
    }  # fmt: skip
    if any(source.strides[k] == 1 for k in found):
        return None
    return max((k for k, n in found.items() if fills_better(share_of_lanes(n, lanes), known)), default=None)


def _reading(
    parts: Sequence[ContractionContext | Nest], side: int, read: Callable[[ContractionContext], Load]
) -> tuple[ContractionContext | Nest, ...]:
    """The parts, whose contractions read the factor on a side otherwise."""

    def other(p: ContractionContext | Nest) -> ContractionContext | Nest:
        if isinstance(p, Nest):
            return p
        return replace(p, nodes=tuple(read(p) if k == side else n for k, n in enumerate(p.nodes)))

    return tuple(map(other, parts))


def _with_one_copy(c: ContractionContext, found: Residues, side: int) -> Residues:
    """The residues with one copy, made before all tasks, of the factor without holes, where no column of it is consecutive.

    copy[k, n] = factor[k, n] for all summed indices k, those of every residue, and n last.
    """
    node, index, tag = c.nodes[side], c.index, c.names.stage(c.stage)
    if not isinstance(node, Load) or c.is_member(node.value) or node.buffer is not None:
        return found
    source, shape = c.buffers[node.value], c.stage.values[0].shape
    inside = node_variables(node, {})
    moving = sorted((k for k, e in enumerate(index) if inside & {*e.variables} and shape[k] > 1), key=lambda k: shape[k])
    place = in_place(node, source, [c.loops[k].variable for k in moving], c.ranges)
    if not moving or place is None or 1 in place.steps.values():
        return found
    loops = [counted(f"n{k}_{tag}_copy", shape[k], c.ranges) for k in moving]
    # The window's loops outside of the channels': rows of a residue then lie as near each other as they can.
    split = {v for h in holes_in(c.nodes) for v in h.expression.variables}
    summed = sorted(c.depth, key=lambda x: x.variable not in split)
    depth = [counted(f"k{number}_{tag}_copy", x.extent, c.ranges) for number, x in enumerate(summed)]
    renaming = {x.variable: as_expr(y.variable) for x, y in zip(summed, depth, strict=True)}
    for k, x in zip(moving, loops, strict=True):
        renaming[c.loops[k].variable] = simplify(x.variable - (index[k] - c.loops[k].variable), c.ranges)
    copied = Renamer(renaming, c.ranges, {}).node(node)
    own = {x.variable for x in (*depth, *loops)}
    if not own.issuperset(node_variables(copied, {})) or prod(x.extent for x in loops[-1:]) < c.machine.lanes(4):
        return found
    layout = row_major(source.element, [(x.variable, x.extent) for x in (*depth, *loops)])
    copy = layout.buffer(c.names.scratch(c.stage.values[0], "copy"), Scope.SHARED)
    outer = max(depth, key=lambda x: x.extent)
    nest = stage_into(copy, layout, [x for x in (*depth, *loops) if x is not outer], copied)
    phase = Phase(((outer.variable, outer.extent),), (nest,))

    def read(p: ContractionContext) -> Load:
        return Load(node.value, (*(p.summed[x.variable] for x in summed), *(p.index[k] for k in moving)), copy)

    return replace(found, parts=_reading(found.parts, side, read), buffers=(*found.buffers, copy), ahead=(phase,))


def _padded_read(node: Node, ranges: Mapping[Var, Interval]) -> Load | None:
    """The load of a node that is an element of a value where the index is inside of it, and 0 elsewhere; None for any other."""
    load = node.then if isinstance(node, Choose) else node
    if not isinstance(load, Load):
        return None
    found = [interval(e, ranges) for e in load.index]
    lows = [b.lower < 0 for b in found]
    highs = [b.upper >= n for b, n in zip(found, load.value.shape, strict=True)]
    for c in node.conditions if isinstance(node, Choose) else ():
        along = next((k for k, e in enumerate(load.index) if isinstance(simplify(c.expression - e, ranges), Const)), None)
        if along is None:
            return None
        shift, last = simplify(c.expression - load.index[along], ranges).constant, load.value.shape[along] - 1
        if c.lower - shift > 0 or c.upper - shift < last:
            return None  # it also leaves out elements inside
        lows[along] &= c.lower - shift < 0
        highs[along] &= c.upper - shift > last
    return None if any(lows) or any(highs) else load


def _points(variables: Sequence[Var], periods: Mapping[Var, int], loops: Mapping[Var, Loop]) -> Iterator[dict[Var, int]]:
    """Every combination of residues that the loops reach."""
    for at in product(*(range(min(periods[v], loops[v].extent)) for v in variables)):
        yield dict(zip(variables, at, strict=True))


class _Part:
    """One residue: v = period * v' + residue for each of some loops."""

    def __init__(self, c: ContractionContext, periods: Mapping[Var, int], at: Mapping[Var, int], suffix: str) -> None:
        self.c, self.suffix = c, suffix
        cut = [x for x in (*c.loops, *c.depth) if x.variable in at]
        parts = [
            residue_class(x, periods[x.variable], at[x.variable], Var(x.variable.name + suffix), c.ranges) for x in cut
        ]  # fmt: skip
        self.made = {x.variable: p.loops[0] for x, p in zip(cut, parts, strict=True)}
        c.ranges.update({x.variable: Interval(0, x.extent - 1) for x in self.made.values()})
        values = {v: e for p in parts for v, e in p.at.items()}
        self.on = Rewriting(Part(tuple(self.made.values()), {}, values), c.ranges)

    def contraction(self) -> ContractionContext:
        c = self.c
        return replace(
            c, loops=self._loops(c.loops), index=self.on.index(c.index), depth=self._loops(c.depth),
            nodes=tuple(map(self.on.node, c.nodes)), flag=None, ends={}, suffix=self.suffix,
            summed={x.variable: self.on.index((as_expr(x.variable),))[0] for x in c.depth},
        )  # fmt: skip

    def zeros(self) -> Nest:
        """What no product adds to."""
        value = self.c.stage.values[0]
        store = Store(value, self.c.buffers[value], self.on.index(self.c.index), constant(0, value))
        return Nest(self._loops(self.c.loops), stores=(store,))

    def _loops(self, loops: Sequence[Loop]) -> tuple[Loop, ...]:
        return tuple(self.made.get(x.variable, x) for x in loops)
