"""What maps are asked: use of operands, memory traffic, injectivity, overlap, reuse. Every answer is exact or says what it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hlo import Declined, Op, TensorType
from indexing.deriving.derive import output_to_input
from indexing.exact.images import image
from indexing.exact.inverse import invert
from indexing.expr import ExprLike, substitute
from indexing.expressions.bounds import Interval
from indexing.expressions.simplifier import simplify
from indexing.expressions.terms import Var
from indexing.layout import physical_map
from indexing.map import IndexingMap, Variable
from indexing.mapset import MapSet
from indexing.regions import Region

__all__ = [
    "Coalescing",
    "ReuseDistance",
    "Utilization",
    "coalescing",
    "footprint_bytes",
    "is_injective",
    "operand_utilization",
    "overlap",
    "point_count",
    "reuse_distance",
    "touched",
]


def touched(maps: Iterable[IndexingMap], region: Region | None = None) -> Region:
    """The union of the maps' images of `region`. Raises ValueError for an unknown map, no map, maps into two tensors."""
    maps = list(maps)
    _into_one_tensor(maps)
    total: Region | None = None
    for m in maps:
        part = image(m, region)
        total = part if total is None else total | part
    if total is None:
        raise ValueError("no map: the operand is not read")
    return total


def _into_one_tensor(maps: Sequence[IndexingMap]) -> None:
    ranks = list(dict.fromkeys(len(m.results) for m in maps if m.unknown is None))
    if len(ranks) > 1:
        raise ValueError(f"expected maps into one tensor, found {' and '.join(map(str, ranks))} results")


def point_count(m: IndexingMap, region: Region | None = None) -> int | Declined:
    """How many points (d, s) the domain has, for any one choice of the runtime values; `region` restricts d.

    With constraints on runtime variables the count is that of the points that some choice allows.

    >>> from indexing import parse_map
    >>> point_count(parse_map("(d0)[s0] -> (d0 + s0), domain: d0 in [0, 3], s0 in [0, 2], d0 + s0 in [1, 9]"))
    11
    """
    if m.is_known_empty:
        return 0
    m = replace(m, results=(), runtimes=m.runtimes).simplify()
    if m.is_known_empty:
        return 0
    if not m.constraints and (region is None or region.boxes is not None):
        inner = prod(v.interval.size for v in m.ranges)
        if region is None:
            return inner * prod(v.interval.size for v in m.dims)
        box = Region.box([v.interval for v in m.dims])
        outer = (box & region).count
        return outer if isinstance(outer, Declined) else inner * outer
    from indexing.exact.isl import bounded, domain_set

    def counted() -> int:
        points = domain_set(m)
        dims, ranges = len(m.dims), len(m.ranges)
        kind = _set_kind()
        if m.runtimes:
            points = points.project_out(kind, dims + ranges, len(m.runtimes))
        if region is not None:
            points = points.intersect(region.to_isl().insert_dims(kind, dims, ranges))
        return int(points.count_val().to_python())

    return bounded(counted)


def _set_kind() -> object:
    import islpy

    return islpy.dim_type.set


@dataclass(frozen=True)
class Utilization:
    """How one operand is used.

    elements        the elements that may be read, over all values of the runtime variables
    elements_read   how many are read in one run; `is_exact` is False where it is only at most that many
    elements_total  how many the operand has
    reads           how often any is read
    """

    elements: Region
    elements_read: int
    elements_total: int
    reads: int
    is_exact: bool

    @property
    def fraction(self) -> float:
        """elements_read / elements_total."""
        return self.elements_read / self.elements_total if self.elements_total else 0.0

    @property
    def reads_per_element(self) -> float:
        return self.reads / self.elements_read if self.elements_read else 0.0


def operand_utilization(op: Op, operand: int, output: int = 0, tile: Region | None = None) -> Utilization | Declined:
    """Which part of an operand one output, or one tile of it, reads, and how often.

    `tile` is a region of the output's indices; by default all of them.
    """
    return utilization(output_to_input(op, output)[operand], op.operands[operand].tensor, tile)


def utilization(maps: MapSet, t: TensorType, tile: Region | None = None) -> Utilization | Declined:
    """As `operand_utilization`, for the maps to a tensor of type `t` wherever they come from."""
    for m in maps:
        if m.unknown is not None:
            return m.unknown
    if not maps:
        return Utilization(Region.empty(t.rank), 0, t.size_elems, 0, True)
    elements = touched(maps, tile)
    fixed = [_with_runtime_values(m) for m in maps]
    read = touched([m for m, _ in fixed], tile).count
    reads = 0
    for m in maps:
        n = point_count(m, tile)
        if isinstance(n, Declined):
            return n
        reads += n
    if isinstance(read, Declined):
        return read
    exact = all(sure for _, sure in fixed) and (len(maps) == 1 or not any(m.runtimes for m in maps))
    return Utilization(elements, read, t.size_elems, reads, exact)


def _with_runtime_values(m: IndexingMap) -> tuple[IndexingMap, bool]:
    """The map at one choice of its runtime values, where every choice reads as many elements; else as it is, and False.

    Values that do not depend on the index and are only added to results move the elements and keep their number.
    """
    if not m.runtimes:
        return m, True
    runtime = {v.var for v in m.runtimes}
    constant = not any(e.variables for v in m.runtimes for e in v.element)
    only_added = all(a in runtime or not runtime.intersection(a.variables) for e in m.results for a, _ in e.terms)
    unbound = not any(runtime.intersection(e.variables) for e, _ in m.constraints)
    if not (constant and only_added and unbound):
        return m, False
    fixed = [v._replace(interval=Interval(v.interval.lower, v.interval.lower)) for v in m.runtimes]
    return replace(m, runtimes=tuple(fixed)), True


def footprint_bytes(maps: Iterable[IndexingMap], t: TensorType, tile: Region | None = None) -> int | Declined:
    """Bytes of the distinct elements of a tensor of type `t` that a tile reads through `maps`."""
    n = touched(maps, tile).count
    return n if isinstance(n, Declined) else n * t.dtype.itemsize


# ---------------------------------------------------------------- memory


@dataclass(frozen=True)
class Coalescing:
    """How a tile's reads lie in memory.

    stride_bytes   from one step of the innermost loop to the next; None where it is not the same everywhere
    runs           how many maximal runs of neighbouring elements are read; longest_run_elems is filled where that is cheap
    lines          cache lines that hold at least one of them, the buffer being aligned to a line
    useful_bytes   bytes of the distinct elements
    """

    stride_bytes: int | None
    runs: int
    longest_run_elems: int | None
    lines: int
    line_bytes: int
    useful_bytes: int

    @property
    def fetched_bytes(self) -> int:
        return self.lines * self.line_bytes

    @property
    def lines_per_useful_byte(self) -> float:
        return self.lines / self.useful_bytes if self.useful_bytes else 0.0

    @property
    def efficiency(self) -> float:
        """useful_bytes / fetched_bytes, 1.0 at best."""
        return self.useful_bytes / self.fetched_bytes if self.lines else 1.0


def coalescing(
    m: IndexingMap,
    t: TensorType,
    tile: Region | None = None,
    order: Sequence[Var] | None = None,
    line_bytes: int = 64,
) -> Coalescing | Declined:
    """How the reads of a tensor of type `t` through `m` lie in memory, for a tile of the dimensions and a loop order.

    `order` lists the loop variables (dimensions and ranges), the innermost last; by default as the map lists them. The
    tensor's layout is its type's, or row-major.
    """
    if m.unknown is not None:
        return m.unknown
    address = physical_map(m, t)
    if address.is_known_empty:
        return Coalescing(0, 0, 0, 0, line_bytes, 0)
    size = t.dtype.itemsize
    loops = list(order) if order is not None else [v.var for v in (*address.dims, *address.ranges)]
    position = address.results[0]
    stride: int | None = 0
    if loops:
        inner = loops[-1]
        step = simplify(substitute(position, {inner: inner + 1}) - position, address.variable_ranges)
        stride = step.constant * size if step.is_constant else None
    elements = image(address, tile)
    n = elements.count
    line = image(replace(address, results=((position * size) // line_bytes,)), tile).count
    runs = _runs(elements)
    if isinstance(n, Declined):
        return n
    if isinstance(line, Declined):
        return line
    if isinstance(runs, Declined):
        return runs
    return Coalescing(stride, runs[0], runs[1], line, line_bytes, n * size)


def _runs(positions: Region) -> tuple[int, int | None] | Declined:
    """(number of maximal runs, length of the longest where known) of a set of positions."""
    if positions.boxes is not None and len(positions.boxes) == 1:
        (s,) = positions.boxes[0]
        return (1, s.size) if s.step == 1 else (s.size, 1)
    if positions.is_empty:
        return 0, 0
    from indexing.exact.isl import bounded, shifted

    def starts() -> int:
        s = positions.to_isl()
        return int(s.subtract(shifted(s, 1)).count_val().to_python())

    n = bounded(starts)
    return n if isinstance(n, Declined) else (n, None)


# ---------------------------------------------------------------- injectivity, overlap, reuse


def is_injective(m: IndexingMap) -> bool | Declined:
    """Whether no element belongs to two different indices d, whatever the runtime values.

    >>> from indexing import parse_map
    >>> is_injective(parse_map("(d0) -> (d0 floordiv 8, d0 mod 8), domain: d0 in [0, 31]"))
    True
    >>> is_injective(parse_map("(d0)[s0] -> (d0 * 2 + s0), domain: d0 in [0, 3], s0 in [0, 2]"))
    False
    """
    if m.unknown is not None:
        return m.unknown
    m = m.simplify()
    if m.is_known_empty or not invert(m).ranges:
        return True
    from indexing.exact.isl import is_injective_for_each_runtime

    return is_injective_for_each_runtime(m)


def overlap(a: IndexingMap, b: IndexingMap, tile_a: Region | None = None, tile_b: Region | None = None) -> Region:
    """The elements of one tensor that both reads touch. Raises ValueError for an unknown map, and for maps into two tensors."""
    _into_one_tensor((a, b))
    return image(a, tile_a) & image(b, tile_b)


@dataclass(frozen=True)
class ReuseDistance:
    """The shortest way between two reads of one element.

    vector      later point minus earlier point, one entry for each loop, outermost first
    carried_by  the loop of the vector's first entry that is not 0
    iterations  loop iterations from the one read to the other
    elements    distinct elements of this tensor that are read from the one to the other, the element itself included
    """

    vector: tuple[int, ...]
    carried_by: Var
    iterations: int
    elements: int | Declined


def reuse_distance(m: IndexingMap, order: Sequence[Var] | None = None) -> ReuseDistance | Declined | None:
    """How soon the loops over the map's dimensions and ranges come back to an element they have read; None if never.

    `order` lists the loop variables, outermost first; by default as the map lists them. Runtime values are held fixed.

    >>> from indexing import parse_map
    >>> m = parse_map("(d0, d1)[s0] -> (d0, s0), domain: d0 in [0, 7], d1 in [0, 3], s0 in [0, 15]")
    >>> r = reuse_distance(m)
    >>> r.carried_by, r.iterations, r.elements
    (<d1>, 16, 16)
    """
    if m.unknown is not None:
        return m.unknown
    variables: dict[Var, Variable] = {v.var: v for v in (*m.dims, *m.ranges)}
    loops = list(order) if order is not None else list(variables)
    if sorted(v.name for v in loops) != sorted(v.name for v in variables):
        raise ValueError(f"expected an order of {', '.join(map(str, variables))}, found {', '.join(map(str, loops))}")
    trips = [variables[v].interval.size for v in loops]
    if any(n == 0 for n in trips) or m.is_known_empty:
        return None
    used = {v for e in m.results for v in e.variables}
    free = [n for n, v in enumerate(loops) if v not in used and trips[n] > 1]
    if free and not m.constraints and _all_distinct(m, [variables[v] for v in loops if v in used]):
        n = free[-1]
        inner = loops[n + 1 :]
        vector = tuple([1 if i == n else 0 for i in range(len(loops))])
        elements = prod(trips[i] for i in range(n + 1, len(loops)) if loops[i] in used)
        return ReuseDistance(vector, loops[n], prod(variables[v].interval.size for v in inner), elements)
    if not free and not m.constraints and _all_distinct(m, [variables[v] for v in loops]):
        return None
    from indexing.exact.isl import shortest_reuse

    found = shortest_reuse(m, loops)
    if found is None or isinstance(found, Declined):
        return found
    vector, elements_between = found
    carrier = next(i for i, x in enumerate(vector) if x)
    iterations = 0
    for x, n in zip(vector, trips, strict=True):
        iterations = iterations * n + x
    return ReuseDistance(vector, loops[carrier], iterations, elements_between)


def _all_distinct(m: IndexingMap, variables: Sequence[Variable]) -> bool:
    """True when different values of `variables` surely give different results (runtime values fixed)."""
    names: Mapping[Var, ExprLike] = {v.var: v.interval.lower for v in m.runtimes}
    results = tuple([substitute(e, names) for e in m.results])
    alone = IndexingMap(tuple(variables), results).renumbered()
    return not invert(alone).ranges
