"""Blocks of sums in registers: what few rows cost in them.

Each step of k adds to every sum of a block once, and an addition takes some cycles until the next one can begin: a block of few
sums waits. Rows are cut into blocks that are alike but for one row, as the micro-kernel cuts them.
"""

from __future__ import annotations

__all__ = ["sums_in_blocks"]

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
