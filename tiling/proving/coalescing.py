"""Coalescing: whether neighbouring lanes of a fusion's loop read neighbouring addresses of an operand.

    transactions(run of lanes) = sum over gap-free runs of addresses of ceil(bytes / transaction_bytes)
    coalesced <=> ceil(all bytes / transaction_bytes) > 0.9 * transactions

Lanes are consecutive positions of the root in its layout. A transpose, or a fold over what lies next to each other in memory, is
computed in the order of its operand and turned on the way: below it lanes are consecutive positions of that operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hlo.module import Function, Module, Op, Value
from hlo.registry import Fold
from hlo.types import TensorType
from indexing.deriving.derive import output_to_input
from indexing.expr import Var
from indexing.layout import from_position, to_position
from indexing.map import IndexingMap
from tiling.tiles.reads_of_fusion import Place, Walk

__all__ = ["Coalescing", "coalesced", "coalescing"]

THRESHOLD = 0.9


@dataclass(frozen=True)
class Coalescing:
    """How one operand is read: the transactions of a run of lanes in its worst read, and the fewest that could do.

    `reason` says what breaks the run, with the first two lanes that are apart; it is empty where reads are coalesced.
    """

    operand: int
    is_coalesced: bool
    transactions: int
    least_transactions: int
    reason: str = ""


def coalesced(subject: Module | Function | Op, lanes: int = 32, transaction_bytes: int = 128) -> tuple[bool, ...]:
    """For each operand of a fusion (an entry's root, or an op): are its reads coalesced? See `coalescing`.

    >>> import hlo
    >>> coalesced(hlo.parse('''HloModule m
    ... ENTRY e { p = f32[100,200] parameter(0) q = f32[100,200]{0,1} parameter(1) ROOT r = f32[100,200] add(p, q) }'''))
    (True, False)
    """
    return tuple(c.is_coalesced for c in coalescing(subject, lanes, transaction_bytes))


def coalescing(
    subject: Module | Function | Op, lanes: int = 32, transaction_bytes: int = 128
) -> tuple[Coalescing, ...]:
    """How each operand of a fusion is read by a run of `lanes` neighbours: of an entry's root, or of an op.

    An operand that is not read, or is a scalar, is coalesced; one whose reads no map describes is not. Raises ValueError for an
    entry whose root no op makes.
    """
    module = subject if isinstance(subject, Module) else None
    if isinstance(subject, Module):
        subject = subject.function(None)
    op = subject.body.results[0].op if isinstance(subject, Function) else subject
    if op is None:
        raise ValueError("the root is an argument: it has no operands")
    walk = Walk(module, False, False)
    walk.until = set(op.operands)
    roots = [walk.root(v) for v in op.results if isinstance(v.type, TensorType)]
    blocks = walk.blocks(op)
    leaves = blocks[0].arguments if blocks else op.operands
    found: dict[Value, list[tuple[IndexingMap, Value]]] = {v: [] for v in leaves}
    for root in roots:
        for v, m, start in _reads(walk, root):
            if v in found:
                found[v].append((m, start))
    return tuple(_judged(k, v, found[v], lanes, transaction_bytes) for k, v in enumerate(leaves))


def _reads(walk: Walk, root: Place) -> Iterator[tuple[Value, IndexingMap, Value]]:
    """(value, map, where lanes run) of everything below a root; behind an op that turns, lanes run over its operand."""
    starts: list[Place] = [root]
    seen: set[Place] = set()
    while starts:
        start = starts.pop()
        if start in seen:
            continue
        seen.add(start)
        walk.known.clear()
        walk.nodes.clear()
        walk.dimensions.clear()
        first = walk.start(start, IndexingMap.identity(start[0].shape))
        todo, behind = [first], set()
        while todo:
            node = todo.pop()
            if node in behind:
                continue
            behind.add(node)
            yield node.place[0], node.map, start[0]
            op = node.place[0].op
            for k, maps in enumerate(node.operands):
                if op is not None and start is root and maps and _turns(op, k):
                    starts.append(maps[0].place)
                else:
                    todo.extend(maps)


def _turns(op: Op, operand: int) -> bool:
    """A permutation of dimensions that moves the last one, or a fold over the dimension that varies fastest."""
    t = op.operands[operand].type
    if not isinstance(t, TensorType) or t.rank == 0:
        return False
    maps = list(output_to_input(op, op.results[0].index)[operand])
    if len(maps) != 1 or maps[0].unknown is not None:
        return False
    (m,) = maps
    fastest = t.layout.minor_to_major[0] if t.layout is not None else t.rank - 1
    if isinstance(op.definition.semantics, Fold):
        return m.results[fastest] in {v.var for v in m.ranges}
    names = [e for e in m.results if isinstance(e, Var)]
    dims = [v.var for v in m.dims]
    return len(names) == len(m.results) == len(dims) and set(names) == set(dims) and names[-1] is not dims[-1]


def _judged(
    operand: int, value: Value, reads: Sequence[tuple[IndexingMap, Value]], lanes: int, transaction_bytes: int
) -> Coalescing:
    worst = Coalescing(operand, True, 0, 0)
    for m, start in reads:
        found = _one(operand, value, m, start, lanes, transaction_bytes)
        if (found.is_coalesced, -found.transactions) < (worst.is_coalesced, -worst.transactions):
            worst = found
    return worst


def _one(operand: int, value: Value, m: IndexingMap, start: Value, lanes: int, transaction_bytes: int) -> Coalescing:
    if m.unknown is not None:
        return Coalescing(operand, False, lanes, 1, m.unknown.reason)
    if not isinstance(value.type, TensorType) or value.rank == 0 or m.is_known_empty:
        return Coalescing(operand, True, 1, 1)
    addresses = list(_addresses(m, value.tensor, start.tensor, lanes))
    if not addresses:
        return Coalescing(operand, True, 0, 0)
    size = value.tensor.dtype.itemsize
    distinct = sorted(set(addresses))
    runs, length = 0, 0
    for a, b in zip(distinct, [*distinct[1:], None], strict=True):
        length += 1
        if b != a + 1:
            runs += -(-length * size // transaction_bytes)
            length = 0
    least = -(-len(distinct) * size // transaction_bytes)
    if least > runs * THRESHOLD:
        return Coalescing(operand, True, runs, least)
    lane = next(k for k, (a, b) in enumerate(pairwise(addresses)) if b - a not in (0, 1))
    reason = f"lanes {lane} and {lane + 1} read elements {addresses[lane]} and {addresses[lane + 1]} of its memory"
    return Coalescing(operand, False, runs, least, reason)


def _addresses(m: IndexingMap, target: TensorType, start: TensorType, lanes: int) -> Iterator[int]:
    """Where a run of lanes reads, lane by lane, from the first index that reads at all."""
    lower = [v.interval.lower for v in m.dims]
    symbols = [v.interval.lower for v in m.ranges] + [v.interval.lower for v in m.runtimes]
    first = to_position(start).evaluate(lower)[0] if lower else 0
    where, place = from_position(start), to_position(target)
    for p in range(first, min(first + lanes, start.size_elems)):
        index = where.evaluate([p]) if lower else []
        if m.holds(index, symbols):
            yield int(place.evaluate(m.evaluate(index, symbols))[0])
