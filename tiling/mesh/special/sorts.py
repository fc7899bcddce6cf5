"""Sorts along a dimension that is spread, where no other dimension could be: column sort (Leighton 1985).

The tiles of s processes are the columns of a matrix of r rows, r >= 2 (s - 1)^2. Each column is sorted four times; in between

    element i of column j  ->  column i mod s, row j r/s + i div s          an all_to_all
    and back                                                                an all_to_all
    the last r/2 of column j with the first ones of column j + 1            a permutation there, and one back

after which the columns, one behind the other, are sorted. A process sends 2 (s - 1)/s + 1 tiles, whatever s is, where gathering
all of it sends s - 1, and nobody holds more than its tile. Elements that the comparator leaves equal go by their numbers, which
travel with them, so that the sort is stable; integers that are compared themselves need none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hlo.clone import captured_values, clone_block
from hlo.module import Block, Op, Value
from hlo.registry import definition
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from tiling.mesh.emit import INDEX, Emitter
from tiling.mesh.network import Network
from tiling.mesh.shardings import Digit, Sharding, groups_along
from tiling.mesh.special.common import Build, Special, in_order

__all__ = ["sorts"]

_REASON = "a sort along what is spread"
_SORTS = 4


def sorts(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """A sort whose operands are spread along it, by a comparator that is an order."""
    if op.name != "stablehlo.sort" or not all(isinstance(v.type, TensorType) and v.type.is_static for v in op.operands):
        return
    axis = op.attr("dimension") % max(op.operands[0].rank, 1)
    if op.operands[0].rank == 0 or not _is_order(op.regions[0]):
        return
    size = op.operands[0].shape[axis]
    for s in in_order([*held, hint]):
        parts = s.parts(axis)
        rows = size // parts
        if parts < 2 or size % parts or rows % parts or rows < 2 * (parts - 1) ** 2 or s.uneven_dims(op.operands[0].shape):
            continue
        numbered = not _are_integers(op)
        tiles = [s.local_type(v.tensor) for v in op.operands]
        tiles += [TensorType(tiles[0].shape, INDEX.element)] if numbered else []
        seconds = _SORTS * sum(t.size_elems for t in tiles) / network.work_per_second
        for t in tiles:
            half = t.size_bytes // rows * (rows // 2)
            seconds += 2 * network.seconds(t.size_bytes * (parts - 1) // parts, parts) + 2 * network.seconds(half, 2)
        yield Special((s,) * len(op.operands), s, seconds, _built(op, s, axis, numbered))


def _is_order(body: Block) -> bool:
    """Whether a comparator is f(a) < f(b), or >, of values that any two of are comparable, a and b of one operand."""
    compare = body.results[0].op
    if compare is None or compare.name != "stablehlo.compare" or compare.attr("comparison_direction") not in ("LT", "GT"):
        return False
    if captured_values(body):
        return False
    element = compare.operands[0].tensor.element
    if not isinstance(element, ElementType) or (element.is_float and compare.attr("compare_type") != "TOTALORDER"):
        return False
    numbers = {v: k for k, v in enumerate(body.arguments)}
    pairs: set[tuple[int, int]] = set()
    left, right = compare.operands
    return _same(left, right, numbers, pairs) and len(pairs) == 1 and all(a != b and a // 2 == b // 2 for a, b in pairs)


def _same(a: Value, b: Value, numbers: dict[Value, int], pairs: set[tuple[int, int]]) -> bool:
    """Whether two values are one function of arguments, which `pairs` collects."""
    if a in numbers or b in numbers:
        pairs.add((numbers.get(a, -1), numbers.get(b, -1)))
        return a in numbers and b in numbers
    x, y = a.op, b.op
    if x is None or y is None or x.name != y.name or x.regions or a.type != b.type:
        return False
    if x.name == "stablehlo.constant":
        return bool(x.attr("value").array.tobytes() == y.attr("value").array.tobytes())
    if {k: str(v) for k, v in x.attributes.items()} != {k: str(v) for k, v in y.attributes.items()}:
        return False
    return all(_same(p, q, numbers, pairs) for p, q in zip(x.operands, y.operands, strict=True))


def _are_integers(op: Op) -> bool:
    """Whether equal elements cannot be told from each other: integers that are compared as they are."""
    compare = op.regions[0].results[0].op
    element = op.operands[0].tensor.element
    if len(op.operands) != 1 or compare is None or not isinstance(element, ElementType) or not element.is_integer:
        return False
    return set(compare.operands) == set(op.regions[0].arguments)


def _numbered(op: Op) -> Block:
    """The comparator with the elements' numbers behind it: a before b, or b not before a and a's number less."""
    given = [v.type for v in op.regions[0].arguments]
    block = Block([*given, INDEX, INDEX])
    emit = Emitter(1, block, [], lambda: 0)
    first = block.arguments[:-2]
    second = [v for a, b in zip(first[::2], first[1::2], strict=True) for v in (b, a)]

    def before(arguments: Sequence[Value]) -> Value:
        body = clone_block(op.regions[0], {})
        known = dict(zip(body.arguments, arguments, strict=True))
        for inner in body.ops[:-1]:
            types = [r.type for r in inner.results]
            made = emit.op(inner.name, [known[v] for v in inner.operands], dict(inner.attributes), types)
            known.update(zip(inner.results, made, strict=True))
        return known[body.results[0]]

    ahead, behind = before(first), before(second)
    truth = TensorType((), ELEMENT_TYPES["i1"])
    (less,) = emit.op("stablehlo.compare", block.arguments[-2:], {"comparison_direction": "LT"}, [truth])
    (tie,) = emit.op("stablehlo.not", (behind,), {}, [truth])
    (tie,) = emit.op("stablehlo.and", (tie, less), {}, [truth])
    (made,) = emit.op("stablehlo.or", (ahead, tie), {}, [truth])
    block.ops.append(Op(definition("stablehlo.return"), [made]))
    return block


def _built(op: Op, s: Sharding, axis: int, numbered: bool) -> Build:
    digits = s.dims[axis]
    parts = s.parts(axis)

    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        values = list(given)
        rows = values[0].shape[axis]
        half = rows // 2
        if numbered:
            t = TensorType(values[0].shape, INDEX.element)
            (own,) = emit.op("stablehlo.iota", (), {"iota_dimension": axis}, [t])
            values += emit.op("stablehlo.add", (own, emit.spread(emit.tile_begin(digits, rows), t)), {}, [t])
        body = _numbered(op) if numbered else op.regions[0]

        def ordered(values: Sequence[Value]) -> list[Value]:
            attributes = {"dimension": axis, "is_stable": op.attr("is_stable")}
            return list(emit.op("stablehlo.sort", values, attributes, [v.type for v in values], [clone_block(body, {})]))

        values = ordered(values)
        values = [_exchanged(emit, _by_remainder(emit, v, axis, parts), digits, axis) for v in values]
        values = ordered(values)
        values = [_by_remainder(emit, _exchanged(emit, v, digits, axis), axis, rows // parts) for v in values]
        values = ordered(values)
        tops = [emit.sliced(v, axis, 0, rows - half) for v in values]
        ends = [emit.sliced(v, axis, rows - half, rows) for v in values]
        came = [_passed(emit, v, digits, 1) for v in ends]
        both = ordered([_joined(emit, a, b, axis) for a, b in zip(came, tops, strict=True)])
        back = [_passed(emit, emit.sliced(v, axis, 0, half), digits, -1) for v in both]
        kept = [emit.sliced(v, axis, half, rows) for v in both]
        made = []
        for own_top, top, own_end, end in zip(tops, kept, ends, back, strict=True):
            top = _where(emit, emit.compared(emit.number(digits), "EQ", 0), own_top, top)
            end = _where(emit, emit.compared(emit.number(digits), "EQ", parts - 1), own_end, end)
            made.append(_joined(emit, top, end, axis))
        return tuple(made[: len(op.operands)])

    return build


def _by_remainder(emit: Emitter, v: Value, axis: int, n: int) -> Value:
    """The elements whose number leaves the remainder 0 by n, then those of 1, …: at i % n * (r / n) + i // n."""
    t, rows = v.tensor, v.shape[axis]
    before, behind = t.static_shape[:axis], t.static_shape[axis + 1 :]
    cut = TensorType((*before, rows // n, n, *behind), t.element)
    turned = TensorType((*before, n, rows // n, *behind), t.element)
    order = (*range(axis), axis + 1, axis, *range(axis + 2, t.rank + 1))
    (made,) = emit.op("stablehlo.reshape", (v,), {}, [cut])
    (made,) = emit.op("stablehlo.transpose", (made,), {"permutation": order}, [turned])
    return emit.op("stablehlo.reshape", (made,), {}, [t])[0]


def _exchanged(emit: Emitter, v: Value, digits: tuple[Digit, ...], axis: int) -> Value:
    """Block j of each process goes to process j, which has them by process."""
    n = prod(d.size for d in digits)
    emit.told_of("all_to_all", digits, v.tensor.size_bytes // n * (n - 1), v, _REASON)
    attributes = {
        "split_dimension": axis, "concat_dimension": axis, "split_count": n,
        "replica_groups": groups_along(digits, emit.processes), "channel_handle": emit.channel(),
    }  # fmt: skip
    return emit.op("stablehlo.all_to_all", (v,), attributes, [v.type])[0]


def _passed(emit: Emitter, v: Value, digits: tuple[Digit, ...], step: int) -> Value:
    """A value of the neighbour before, with step -1 of the one behind; zeros where there is none."""
    rows = groups_along(digits, emit.processes)
    pairs = [(row[k], row[k + step]) for row in rows for k in range(len(row)) if 0 <= k + step < len(row)]
    emit.told_of("permute", digits, v.tensor.size_bytes, v, _REASON)
    attributes = {"source_target_pairs": tuple(pairs), "channel_handle": emit.channel()}
    return emit.op("stablehlo.collective_permute", (v,), attributes, [v.type])[0]


def _joined(emit: Emitter, a: Value, b: Value, axis: int) -> Value:
    shape = list(a.tensor.static_shape)
    shape[axis] += b.tensor.static_shape[axis]
    return emit.op("stablehlo.concatenate", (a, b), {"dimension": axis}, [TensorType(tuple(shape), a.tensor.element)])[0]


def _where(emit: Emitter, test: Value, a: Value, b: Value) -> Value:
    return emit.op("stablehlo.select", (test, a, b), {}, [a.type])[0]
