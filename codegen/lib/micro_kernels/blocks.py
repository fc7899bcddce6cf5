"""The loops around micro-kernels, as they are emitted: counted loops, blocks of rows, panels of columns.

``over_rows`` and ``over_panels`` walk through a block of C for every micro-kernel; sizes that are known leave no code for rests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from codegen.kernel import types
from codegen.lib.emit import I1, I32, I64, Value, counted, order_of
from codegen.target import current_target


def _c(n: int) -> Any:
    return ir.Constant(I64, n)


def _known(value: Any) -> int | None:
    return int(value.constant) if isinstance(value, ir.Constant) and isinstance(value.constant, int) else None


def _times(b: Any, x: Any, k: int) -> Any:
    """x k with the trivial products taken out."""
    known = _known(x)
    if known is not None:
        return _c(known * k)
    return _c(0) if k == 0 else x if k == 1 else b.mul(x, _c(k))


def _literal(value: Any, kind: Any) -> Any:
    if isinstance(kind, types.BooleanLiteral):
        return ir.Constant(I1, int(kind.literal_value))
    return _c(kind.literal_value) if isinstance(kind, types.IntegerLiteral) else value


def _counted_loop(b: Any, count: Any, start: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """Run ``body(t, values)`` for t in [0, count), the values carried in registers; returns the last ones."""
    before = b.block
    test = b.append_basic_block("loop")
    inside = b.append_basic_block("body")
    after = b.append_basic_block("done")
    b.branch(test)
    b.position_at_end(test)
    index = b.phi(I64)
    index.add_incoming(_c(0), before)
    carried = []
    for value in start:
        phi = b.phi(value.type)
        phi.add_incoming(value, before)
        carried.append(phi)
    b.cbranch(b.icmp_signed("<", index, count), inside, after)
    b.position_at_end(inside)
    new = body(index, list(carried))
    index.add_incoming(b.add(index, _c(1)), b.block)
    for phi, value in zip(carried, new, strict=True):
        phi.add_incoming(value, b.block)
    b.branch(test)
    b.position_at_end(after)
    return carried


def _for(b: Any, count: Any, body: Callable[[Any], None]) -> None:
    """Emit ``for t in range(count): body(t)``, without the loop when the count is known to be 0 or 1."""
    known = _known(count)
    if known is not None and known <= 1:
        if known == 1:
            body(_c(0))
        return
    with counted(b, count) as index:
        body(index)


def _bands(m: int, rows: int) -> list[tuple[int, int, int, int]]:
    """Blocks of at most ``rows`` of ``m`` rows, alike but for one row: (height, how many, first row, first block) of each kind.

    Blocks of little height leave the multipliers waiting for their sums: 56 rows are 6 blocks of 6 and 4 of 5, not 9 of 6 and 2.

    >>> _bands(56, 6)
    [(6, 6, 0, 0), (5, 4, 36, 6)]
    """
    blocks = -(-m // rows)
    high = m - blocks * (m // blocks) if blocks else 0
    low = m // blocks if blocks else 0
    found = [(low + 1, high, 0, 0), (low, blocks - high, high * (low + 1), high)]
    return [x for x in found if x[0] and x[1]]


def panel_lanes(panel: int, item_bytes: int) -> int:
    """The columns of a panel that one vector holds: all of a register's, or those of a plan for narrower registers.

    Raises ValueError for a panel that vectors do not fill.
    """
    lanes = current_target().lanes(item_bytes)
    if panel < lanes and panel & (panel - 1) == 0:
        lanes = panel
    if panel < 1 or panel % lanes:
        raise ValueError(f"panel of {panel} columns: expected a multiple of {lanes}")
    return lanes


def splat(value: Value, lanes: int) -> Value:
    """``value`` in every lane."""
    vector = ir.VectorType(value.type, lanes)
    undefined = ir.Constant(vector, ir.Undefined)
    one = value.b.insert_element(undefined, value.v, ir.Constant(I32, 0))
    return value.wrap(value.b.shuffle_vector(one, undefined, order_of((0,) * lanes)))


def mask_of(b: Any, count: Any, lanes: int) -> Any:
    """A vector of truths: the first ``count`` lanes; a constant where that is known."""
    known = _known(count)
    if known is not None:
        return ir.Constant(ir.VectorType(I1, lanes), [ir.Constant(I1, int(k < known)) for k in range(lanes)])
    numbers = ir.Constant(ir.VectorType(I64, lanes), [_c(k) for k in range(lanes)])
    return b.icmp_signed("<", numbers, splat(Value(b, count), lanes).v)


def alike_rows(m: int, rows: int) -> int:
    """The least number of rows that is walked through in more than one block of ``rows``, of the heights that ``m`` has.

    >>> alike_rows(56, 6), _bands(11, 6), alike_rows(48, 6), alike_rows(6, 6)
    (11, [(6, 1, 0, 0), (5, 1, 6, 1)], 12, 6)
    """
    if m <= rows:
        return m
    blocks = -(-m // rows)
    low = m // blocks
    return 2 * low + (1 if m % blocks else 0)


def over_rows(b: Any, m: Any, rows: int, tile: Callable[[int, Any, Any], None], like: int | None = None) -> None:
    """``tile(height, first row, number of the block)`` for blocks of at most ``rows`` of ``m`` rows; rests have no number.

    Where ``m`` is not known, its blocks may be of the heights of those of ``like`` rows (`alike_rows`).
    """
    if like is not None and _known(m) is None:
        heights = [height for height, *_ in _bands(like, rows)]
        count = b.sdiv(b.add(m, _c(rows - 1)), _c(rows))
        low = heights[-1]
        high = b.sub(m, b.mul(count, _c(low))) if len(heights) > 1 else _c(0)
        if len(heights) > 1:
            _for(b, high, lambda t: tile(low + 1, b.mul(t, _c(low + 1)), t))
        first = _times(b, high, low + 1)
        _for(b, b.sub(count, high), lambda t: tile(low, b.add(first, b.mul(t, _c(low))), b.add(high, t)))
        return
    known = _known(m)
    if known is not None:
        for height, count, first, number in _bands(known, rows):

            def band(t: Any, height: int = height, first: int = first, number: int = number) -> None:
                tile(height, b.add(_c(first), b.mul(t, _c(height))), b.add(_c(number), t))

            _for(b, _c(count), band)
        return
    whole = b.sdiv(m, _c(rows))
    _for(b, whole, lambda t: tile(rows, b.mul(t, _c(rows)), t))
    done = b.mul(whole, _c(rows))
    if rows > 3:
        half = rows // 2
        with b.if_then(b.icmp_signed(">=", b.sub(m, done), _c(half))):
            tile(half, done, None)
        done = b.select(b.icmp_signed(">=", b.sub(m, done), _c(half)), b.add(done, _c(half)), done)
    _for(b, b.sub(m, done), lambda t: tile(1, b.add(done, t), None))


def alike_columns(n: int, panel: int, lanes: int) -> int:
    """The number of columns that is walked through in the same blocks as ``n``, but for how many panels there are beyond one.

    The vectors of what is left after whole panels are as many, and a mask is on the last one or on none.

    >>> [alike_columns(n, 64, 16) for n in (64, 40, 184, 160, 1000)]
    [64, 33, 177, 160, 161]
    """
    rest = n % panel
    count = -(-rest // lanes)
    return min(n // panel, 2) * panel + (rest if rest % lanes == 0 else (count - 1) * lanes + 1)


def over_panels(
    b: Any, n: Any, panel: int, lanes: int, columns: Callable[[int, Any, Any, Any], None], like: int | None = None
) -> None:
    """``columns(vectors, panel number, first column inside of it, mask of the last vector)`` for all of ``n`` columns.

    The first column is None where it is the panel's first, and the mask where all lanes are on. Where ``n`` is not known it may
    be walked through as ``like`` columns are (`alike_columns`).
    """
    known, vectors = _known(n), panel // lanes
    size = like if known is None else known
    if size is not None:
        whole = b.sdiv(n, _c(panel)) if known is None and size >= 2 * panel else _c(size // panel)
        _for(b, whole, lambda p: columns(vectors, p, None, None))
        count = -(-(size % panel) // lanes)
        if count:
            before = (count - 1) * lanes
            on = _c(size % panel - before) if known is not None else b.sub(n, b.add(_times(b, whole, panel), _c(before)))
            columns(count, whole, None, mask_of(b, on, lanes) if size % lanes else None)
        return
    whole = b.sdiv(n, _c(panel))
    _for(b, whole, lambda p: columns(vectors, p, None, None))
    rest = b.sub(n, b.mul(whole, _c(panel)))

    def strip(t: Any) -> None:
        first = b.mul(t, _c(lanes))
        columns(1, whole, first, mask_of(b, b.sub(rest, first), lanes))

    _for(b, b.sdiv(b.add(rest, _c(lanes - 1)), _c(lanes)), strip)
