"""Blocks of sums in registers: how many rows by how many vectors of columns, for the rows and columns that there are.

Each step of k adds to every sum of a block once, and an addition takes some cycles until the next one can begin: a block of few
sums waits. Rows are cut into blocks that are alike but for one row, as the micro-kernel cuts them.
"""

from __future__ import annotations

from tiling.machine import Machine

__all__ = ["register_block", "sums_in_blocks"]

LEAST_SUMS = 9  # vectors of sums below which a block waits: two additions begin in a cycle, and take four
LEAST_GAIN = 0.9


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


def register_block(machine: Machine, itemsize_bytes: int, rows: int, columns: int) -> tuple[int, int]:
    """(rows, columns) of the block for a product of so many rows and columns.

    Seven rows are four and three: with sixteen registers two vectors of each are too few sums, and three are taken.

    >>> wide = Machine(vector_bytes=32, vector_registers=16)
    >>> register_block(wide, 4, 512, 512), register_block(wide, 4, 7, 512)
    ((6, 16), (4, 24))
    """
    usual = machine.micro_tile(itemsize_bytes, columns)
    lanes = machine.lanes(itemsize_bytes)
    if rows <= usual[0] or usual[1] != 2 * lanes or columns <= usual[1]:
        return usual
    three = (machine.vector_registers - 4) // 3, 3 * lanes
    is_better = sums_in_blocks(rows, columns, *three, lanes) < LEAST_GAIN * sums_in_blocks(rows, columns, *usual, lanes)
    return three if is_better else usual
