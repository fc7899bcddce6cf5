"""Maps across many ops: composition along every path from a root, grouped by the value that is read.

maps(v) = union over uses (op, k) of v, over maps c to the op's result, over maps p to its operand k:  p after c
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from hlo import Module, Op, TensorType, Value
from hlo.registry import Structure, definitions
from indexing.caches import Memo
from indexing.deriving.blocks import blocks_of, topological
from indexing.deriving.derive import BY_REGION, output_to_input
from indexing.exact.inverse import invert
from indexing.map import IndexingMap, compose
from indexing.mapset import MapSet

__all__ = ["MAPS_LIMIT", "composed", "fusion_maps", "maps_from", "maps_into"]

MAPS_LIMIT = 64
"""How many different maps to one value are kept; a value that is read in more ways gets one unknown map that says so."""

COST_LIMIT = 4000
"""How many operations and variables a composed map may have: what grows beyond is of no use to anyone."""

ReadsOfOp = Callable[[Op, int], tuple[MapSet, ...]]

_MEMO: Memo[Any, IndexingMap] = Memo(1 << 15)


def composed(first: IndexingMap, second: IndexingMap) -> IndexingMap:
    """compose(first, second), simplified, without unused variables. Remembered by spelling."""
    key = (first.spelling, second.spelling)
    done = _MEMO.get(key)
    if done is None:
        done = compose(first, second).simplify().remove_unused()
        cost = sum(e.cost for e in done.results) + sum(c.expression.cost for c in done.constraints)
        if cost > COST_LIMIT:
            done = IndexingMap.unknown_because(f"its expressions have {cost} parts, of at most {COST_LIMIT}")
        _MEMO.keep(key, done)
    return done


def maps_from(
    root: Value, until: Collection[Value] = (), start: IndexingMap | None = None, module: Module | None = None,
    reads: ReadsOfOp = output_to_input,
) -> dict[Value, MapSet]:  # fmt: skip
    """For every value that `root` depends on, the maps from an index of `root` to the elements of that value it depends on.

    The walk ends at the values in `until`, at a function's arguments, and where no map describes the reads (there every
    value further up counts as unknown). `start` is a map from another index space to root's elements, by default the
    identity. `module` resolves calls. Of `if` and `case` every branch counts. Maps that are equal as relations count once.
    `reads` gives the maps of one op. The order is that of the walk, the root first.
    """
    table: dict[Value, list[IndexingMap]] = {root: [start or IndexingMap.identity(root.shape)]}
    finished: dict[Value, MapSet] = {}
    stop = set(until)
    for op in reversed(topological([root], stop)):
        for number, result in enumerate(op.results):
            if result not in table or (result in stop and result is not root):
                continue
            finished[result] = _distinct(table[result])
            for value, maps in _reads(op, number, finished[result], stop, module, reads):
                found = [m for m in maps if not m.is_known_empty]
                if found and isinstance(value.type, TensorType):
                    table.setdefault(value, []).extend(found)
    for value, waiting in table.items():
        if value not in finished:
            finished[value] = _distinct(waiting)
    return {v: finished[v] for v in table}


def _reads(
    op: Op, output: int, consumers: MapSet, stop: set[Value], module: Module | None, reads: ReadsOfOp
) -> Iterator[tuple[Value, list[IndexingMap]]]:
    """(value, maps to it) for everything that a result of the op reads, through the maps to that result."""
    if op.definition.structure is Structure.ELEMENT:
        yield from _element_reads(op, consumers, stop, module, reads)
        return
    blocks = blocks_of(op, module)
    for block in blocks:
        replaced = dict(zip(block.arguments, op.operands, strict=True)) if op.definition.structure is Structure.CALL else {}
        for c in consumers:
            for value, maps in maps_from(block.results[output], stop, c, module, reads).items():
                yield replaced.get(value, value), list(maps)
    if blocks and op.definition.structure is Structure.BRANCH:
        yield op.operands[0], [composed(c, _to_scalar(op.results[output])) for c in consumers]
    if not blocks:
        for operand, producers in zip(op.operands, reads(op, output), strict=True):
            yield operand, [composed(c, p) for c in consumers for p in producers]


def _element_reads(
    op: Op, consumers: MapSet, stop: set[Value], module: Module | None, reads: ReadsOfOp
) -> Iterator[tuple[Value, list[IndexingMap]]]:
    """What an element of a tuple is, where the tuple is made in sight: here, or in the blocks of a call or branch."""
    value, path = _element(op.result, ())
    if not path:
        yield value, list(consumers)
        return
    made_by = value.op
    if made_by is None:
        return
    blocks = blocks_of(made_by, module)
    if blocks and made_by.definition.structure is Structure.BRANCH:
        yield made_by.operands[0], [composed(c, _to_scalar(op.result)) for c in consumers]
    is_hidden = not blocks
    for block in blocks:
        inner, rest = _element(block.results[made_by.results.index(value)], path)
        calls = made_by.definition.structure is Structure.CALL
        replaced = dict(zip(block.arguments, made_by.operands, strict=True)) if calls else {}
        is_hidden = is_hidden or bool(rest)
        for c in () if rest else consumers:
            for v, maps in maps_from(inner, stop, c, module, reads).items():
                yield replaced.get(v, v), list(maps)
    if is_hidden:  # a loop's tuple, a custom call's, or one that a call further inside makes
        reason = f"an element of the tuple that {made_by.name} makes, which is not made in sight"
        for v in _tensors_of(made_by.operands):
            yield v, [IndexingMap.unknown_because(reason)]


def _tensors_of(values: Iterable[Value]) -> Iterator[Value]:
    """The values, and those that tuples among them are made of."""
    stack = list(values)
    while stack:
        v = stack.pop()
        if v.op is not None and v.op.definition.structure is Structure.TUPLE:
            stack.extend(v.op.operands)
        else:
            yield v


def _element(value: Value, path: tuple[int, ...]) -> tuple[Value, tuple[int, ...]]:
    """The value that element `path` of a tuple is, and the rest of the path where the tuple is not made in sight."""
    while (op := value.op) is not None:
        if op.definition.structure is Structure.ELEMENT:
            value, path = op.operands[0], (op.attr("index"), *path)
        elif op.definition.structure is Structure.TUPLE and path:
            value, path = op.operands[path[0]], path[1:]
        else:
            break
    return value, path


def _to_scalar(value: Value) -> IndexingMap:
    return replace(IndexingMap.identity(value.shape), results=())


def maps_into(value: Value, root: Value, module: Module | None = None) -> MapSet:
    """From an index of `value` to the elements of `root` that depend on it (an epilogue's maps): the inverses of `maps_from`.

    >>> import hlo
    >>> text = "func.func @main(%a: tensor<4x6xf32>) -> tensor<24xf32> {"
    >>> text += " %0 = stablehlo.reshape %a : (tensor<4x6xf32>) -> tensor<24xf32> return %0 : tensor<24xf32> }"
    >>> m = hlo.parse(text)
    >>> print(maps_into(m.entry.arguments[0], m.root.result).only)
    (d0, d1) -> (d0 * 6 + d1), domain: d0 in [0, 3], d1 in [0, 5]
    """
    return MapSet(invert(m, value.shape) for m in maps_from(root, (), None, module).get(value, ()))


def fusion_maps(op: Op, output: int = 0) -> list[list[IndexingMap]]:
    """For each operand of an op that stands for its region (a fusion), the maps composed along every path inside."""
    (body,) = op.regions
    root = body.results[output]
    found = maps_from(root)
    return [list(found.get(a, ())) for a in body.arguments]


def _distinct(maps: list[IndexingMap]) -> MapSet:
    spelled = {m.spelling: m for m in maps}
    if len(spelled) > MAPS_LIMIT:
        return MapSet([IndexingMap.unknown_because(f"read in {len(spelled)} ways; {MAPS_LIMIT} are kept apart at most")])
    return MapSet(spelled.values())


BY_REGION.update({d.name: fusion_maps for d in definitions() if d.structure is Structure.CALL})
