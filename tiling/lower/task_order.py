"""The order of a phase's tasks: which tile number is counted fastest.

    fetched(order) = sum over buffers of  bytes of a task * product of the tile numbers that bring other elements in

Tasks that follow each other run on one thread. What they share stays in the core's own caches if all that is touched between two
uses fits there; else it comes from beyond them again, as the weights do for each block of rows where columns are counted first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod

from indexing.expr import Expr, Var
from tiling.loops.element_ir import Load, loads
from tiling.loops.ir import Buffer, Contract, Loop, Nest, Scope, Sequential, Step

__all__ = ["in_order"]

SHARE = 0.75  # of a core's own cache that what tasks have in common may fill
WORTH = 0.8  # of the bytes that the usual order fetches: more is no reason for another one
MOST_TILES = 4  # tile numbers of more than one value whose orders are all looked at

Tiles = tuple[tuple[Var, int], ...]


@dataclass(frozen=True)
class _Touched:
    """What one task touches of a buffer that it shares with others: bytes, and the tile numbers that move it."""

    size_bytes: int
    moved_by: frozenset[Var]


def in_order(tiles: Tiles, steps: Sequence[Step], cache_bytes: int, buffer_of: Callable[[Load], Buffer]) -> Tiles:
    """The tile numbers of a phase with sums of products, outermost first, so that tasks fetch the least from beyond the cache.

    The usual order, row-major over the result, where it fetches not much more.
    """
    counted = [t for t in tiles if t[1] > 1]
    if not 2 <= len(counted) <= MOST_TILES or not any(isinstance(s, Contract) for s in _flat(steps)):
        return tiles
    touched = _touched(steps, [v for v, _ in counted], buffer_of)
    room = SHARE * cache_bytes
    usual = _fetched(counted, touched, room)
    least, best = min(
        ((_fetched(order, touched, room), order) for order in permutations(counted)), key=lambda found: found[0]
    )
    if least > WORTH * usual:
        return tiles
    return (*(t for t in tiles if t[1] <= 1), *best)


def _fetched(order: Sequence[tuple[Var, int]], touched: Sequence[_Touched], room: float) -> float:
    """Bytes from beyond the cache: a tile number that does not move a buffer brings it in again if the tasks of all numbers
    inside touch more than the cache keeps."""
    inside = [
        sum(b.size_bytes * prod(n for v, n in order[k:] if v in b.moved_by) for b in touched)
        for k in range(1, len(order) + 1)
    ]
    return sum(
        b.size_bytes * prod(n for (v, n), kept in zip(order, inside, strict=True) if v in b.moved_by or kept > room)
        for b in touched
    )


def _flat(steps: Sequence[Step]) -> list[Step]:
    return [x for s in steps for x in (s.steps if isinstance(s, Sequential) else (s,))]


def _touched(steps: Sequence[Step], tiles: Sequence[Var], buffer_of: Callable[[Load], Buffer]) -> list[_Touched]:
    """What a task touches of each buffer that is no thread's own."""
    sizes: dict[Buffer, int] = {}
    moved: dict[Buffer, set[Var]] = {}
    for s in steps:
        loops = (s.loop,) if isinstance(s, Sequential) else ()
        for step in s.steps if isinstance(s, Sequential) else (s,):
            for buffer, elements, variables in _accesses(step, loops, buffer_of):
                if buffer.scope is Scope.THREAD:
                    continue
                size = min(elements * buffer.element.itemsize_bytes, buffer.size_bytes)
                sizes[buffer] = max(sizes.get(buffer, 0), size)
                moved.setdefault(buffer, set()).update(v for v in tiles if v in variables)
    return [_Touched(size, frozenset(moved[b])) for b, size in sizes.items()]


def _accesses(
    step: Step, around: tuple[Loop, ...], buffer_of: Callable[[Load], Buffer]
) -> Iterator[tuple[Buffer, int, frozenset[Var]]]:
    """(buffer, elements, variables that move them) of each place where a step reads or stores."""
    if isinstance(step, Contract):
        loops = (*around, *step.loops)
        for block, elements in ((step.left, step.m * step.depth), (step.right, step.n * step.depth), (step.out, step.m * step.n)):
            variables = frozenset(block.base.variables)
            yield block.buffer, elements * prod(x.extent for x in loops if x.variable in variables), variables
        for nest in step.pack:
            yield from _of_nest(nest, loops, -(-step.k // step.k_block), step.k_start, buffer_of)
    elif isinstance(step, Nest):
        yield from _of_nest(step, around, 1, None, buffer_of)


def _of_nest(
    nest: Nest, around: tuple[Loop, ...], blocks: int, block: Var | None, buffer_of: Callable[[Load], Buffer]
) -> Iterator[tuple[Buffer, int, frozenset[Var]]]:
    def access(buffer: Buffer, index: Sequence[Expr]) -> tuple[Buffer, int, frozenset[Var]]:
        variables = frozenset(v for e in index for v in e.variables)
        count = prod(x.extent for x in (*around, *nest.loops) if x.variable in variables)
        return buffer, count * (blocks if block in variables else 1), variables

    roots = [*(s.node for s in nest.stores), *(n for f in nest.folds for n in (*f.nodes, *f.inits))]
    for load in loads(roots):
        yield access(load.buffer or buffer_of(load), load.index)
    for s in nest.stores:
        yield access(s.buffer, s.index)
    for f in nest.folds:
        for buffer in f.buffers:
            yield access(buffer, f.index)
