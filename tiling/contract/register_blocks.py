"""Blocks of sums in registers: what few rows cost in them.

Each step of k adds to every sum of a block once, and an addition takes some cycles until the next one can begin: a block of few
sums waits. Rows are cut into blocks that are alike but for one row, as the micro-kernel cuts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tiling.loops.ir import Contract
from tiling.machine import Machine

__all__ = ["fill", "least_sums", "sums_in_blocks"]

LEAST_SUMS = 9  # vectors of sums below which a block waits: two additions begin in a cycle, and take four


def sums_in_blocks(rows: int, columns: int, most: int, panel: int, lanes: int) -> float:
    """How many sums would take as long as `rows` x `columns` do in blocks of at most `most` rows and `panel` columns.

    >>> sums_in_blocks(12, 16, 6, 16, 8), sums_in_blocks(7, 16, 6, 16, 8), sums_in_blocks(7, 64, 6, 64, 16)
    (192.0, 144.0, 448.0)
    """
    whole, rest = divmod(columns, panel)
    vectors, last = max(1, panel // lanes), -(-rest // lanes)
    sums = whole * vectors * _rows_in_blocks(rows, most, vectors)
    return lanes * (sums + (last * _rows_in_blocks(rows, most, last) if last else 0.0))


def _rows_in_blocks(rows: int, most: int, vectors: int) -> float:
    """How many rows would take as long as these do."""
    blocks = max(1, -(-rows // most))
    low, higher = divmod(rows, blocks)
    least = LEAST_SUMS / vectors
    return higher * max(low + 1.0, least) + (blocks - higher) * max(float(low), least)


def fill(rows: int, depth: int) -> float:
    """What part of the peak a block of so many rows reaches over `depth` steps of k, after which its sums are stored."""
    return rows / (rows + 24.0 / max(1.0, depth / 8))


def least_sums(whole: Contract, sizes: Sequence[int], begins: Callable[[int], bool], machine: Machine) -> float:
    """How many sums would take as long at the peak as those of a task do at least, which makes so much of a contraction's result.

    `whole` is the contraction in one task. A task has the same rows and columns, but fewer: of blocks in registers that are not
    full it pays for all, unless it has all the rows there are, as the cost model has it. `begins` tells whether the columns of
    all tasks begin with panels of some width.
    """
    shape, rows, columns = whole.value.shape, whole.row_dimensions, whole.column_dimension
    item = whole.out.buffer.element.itemsize_bytes
    lanes, everything = machine.lanes(item), float(prod(sizes))
    if whole.kernel.along or whole.kernel.together > 1 or len(columns) != 1 or whole.n != shape[columns[0]]:
        return everything
    n, m = sizes[columns[0]], prod([sizes[k] for k in rows])
    if m < 2 or n < 2 or (n % lanes and n <= 2 * lanes):
        return everything  # other dimensions may be rows and columns then
    most, width = widest = machine.micro_tile(item, n)
    while width >= lanes and not begins(width):
        width //= 2
    most, width = machine.micro_tile(item, width) if lanes <= width < widest[1] else widest
    if width // 2 >= 2 * lanes and any(1 < sizes[k] == shape[k] <= machine.vector_registers for k in rows):
        return everything  # a run of rows may be one block, as high as it is
    full = m * -(-n // lanes) * lanes if m == prod([shape[k] for k in rows]) else -(-m // most) * most * -(-n // width) * width
    return full / fill(most, whole.depth) * everything / (m * n)
