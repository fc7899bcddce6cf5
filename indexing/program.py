"""Maps across many ops: composition along every path from a root, grouped by the value that is read.

maps(v) = union over uses (op, k) of v, over maps c to the op's result, over maps p to its operand k:  p after c
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from hlo import Op, TensorType, Value
from indexing.caches import Memo
from indexing.derive import output_to_input
from indexing.map import IndexingMap, compose
from indexing.mapset import MapSet

__all__ = ["MAPS_LIMIT", "composed", "maps_from", "topological"]

MAPS_LIMIT = 64
"""How many different maps to one value are kept; a value that is read in more ways gets one unknown map that says so."""

_MEMO: Memo[Any, IndexingMap] = Memo(1 << 15)


def composed(first: IndexingMap, second: IndexingMap) -> IndexingMap:
    """compose(first, second), simplified, without unused variables. Remembered by spelling."""
    key = (first.spelling, second.spelling)
    done = _MEMO.get(key)
    if done is None:
        done = _MEMO.keep(key, compose(first, second).simplify().remove_unused())
    return done


def topological(roots: Iterable[Value], until: Collection[Value] = ()) -> list[Op]:
    """The ops that the roots depend on, each after the ops whose results it reads; nothing behind `until` is visited."""
    stop = set(until)
    order: list[Op] = []
    state: dict[Op, bool] = {}  # False: operands under way
    stack: list[tuple[Op, bool]] = [(v.op, False) for v in roots if v.op is not None and v not in stop]
    while stack:
        op, done = stack.pop()
        if done:
            if not state[op]:
                state[op] = True
                order.append(op)
            continue
        if op in state:
            continue
        state[op] = False
        stack.append((op, True))
        for v in op.operands:
            if v.op is not None and v not in stop and v.op not in state:
                stack.append((v.op, False))
    return order


def maps_from(root: Value, until: Collection[Value] = (), start: IndexingMap | None = None) -> dict[Value, MapSet]:
    """For every value that `root` depends on, the maps from an index of `root` to the elements of that value it depends on.

    The walk ends at the values in `until`, at a function's arguments, and where no map describes the reads (there every
    value further up counts as unknown). `start` is a map from another index space to root's elements, by default the
    identity. Maps that are equal as relations count once. The order is that of the walk, the root first.
    """
    table: dict[Value, list[IndexingMap]] = {root: [start or IndexingMap.identity(root.shape)]}
    finished: dict[Value, MapSet] = {}
    stop = set(until)
    for op in reversed(topological([root], stop)):
        for number, result in enumerate(op.results):
            if result not in table or (result in stop and result is not root):
                continue
            consumers = finished[result] = _distinct(table[result])
            reads = output_to_input(op, number)
            for operand, producers in zip(op.operands, reads, strict=True):
                if not isinstance(operand.type, TensorType):
                    continue
                found = [composed(c, p) for c in consumers for p in producers]
                if found:
                    table.setdefault(operand, []).extend(m for m in found if not m.is_known_empty)
    for value, maps in table.items():
        if value not in finished:
            finished[value] = _distinct(maps)
    return {v: finished[v] for v in table}


def _distinct(maps: list[IndexingMap]) -> MapSet:
    spelled = {m.spelling: m for m in maps}
    if len(spelled) > MAPS_LIMIT:
        return MapSet([IndexingMap.unknown_because(f"read in {len(spelled)} ways; {MAPS_LIMIT} are kept apart at most")])
    return MapSet(spelled.values())
