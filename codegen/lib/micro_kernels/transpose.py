"""Moving blocks of memory: transposes in registers, two-dimensional copies.

A square block of L x L elements (L lanes, at most 16) is transposed by log2 L rounds of shuffles between register pairs:
round r exchanges the off-diagonal quarters of every 2**(r + 1) square. What is left at the edges is blocks of which a mask lets
less in and out. Blocks of the same lines of memory follow each other, and the destination is filled along its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import signature
from codegen.lib.buffer import Buf, tag
from codegen.lib.emit import I32, I64, intrinsic_function, order_of, suffix
from codegen.lib.micro_kernels.blocks import _c, _for, _known, _literal, _times, mask_of
from codegen.lib.outline import outlined
from codegen.lib.register import register
from codegen.target import current_target

LINE_BYTES = 64


def block_lanes(item_bytes: int) -> int:
    """L, the side of a block that is transposed in registers: lanes of the current target, at most 16."""
    return min(current_target().lanes(item_bytes), 16)


def _transposed(b: Any, rows: list[Any]) -> list[Any]:
    lanes = len(rows)
    level = 1
    while level < lanes:
        new = list(rows)
        for i in range(lanes):
            if i & level:
                continue
            low = [c if not c & level else lanes + (c ^ level) for c in range(lanes)]
            high = [(c | level) if not c & level else lanes + c for c in range(lanes)]
            for target, order in ((i, low), (i | level, high)):
                new[target] = b.shuffle_vector(rows[i], rows[i | level], order_of(tuple(order)))
        rows = new
        level *= 2
    return rows


def _load(b: Any, kind: Buf, unit: Any, base: Any, at: Any, lanes: int | None) -> Any:
    pointer = b.bitcast(b.gep(base, [at]), (unit if lanes is None else ir.VectorType(unit, lanes)).as_pointer())
    access = b.load(pointer)
    access.align = kind.item_align
    return tag(b.module, access, kind.scope)


def _store(b: Any, kind: Buf, base: Any, at: Any, value: Any) -> None:
    pointer = b.bitcast(b.gep(base, [at]), value.type.as_pointer())
    tag(b.module, b.store(value, pointer, align=kind.item_align), kind.scope)


def _moved(kind: Buf, base: Any, together: int) -> Any:
    """The type that an element moves as: a complex number of 8 bytes, or several elements together, as one integer."""
    if together > 1:
        return ir.IntType(8 * together * kind.item_bytes)
    return I64 if kind.dtype == "complex64" else base.type.pointee


def _has_masks(item_bytes: int) -> bool:
    """Whether the target loads and stores some lanes of a vector in one instruction."""
    vector_bytes = current_target().vector_bytes
    return vector_bytes >= 64 or (vector_bytes >= 32 and item_bytes >= 4)


class _Move:
    """One source and one destination buffer under a builder; `together` elements side by side move as one."""

    def __init__(self, b: Any, src_kind: Buf, src: Any, dst_kind: Buf, dst: Any, together: int = 1) -> None:
        self.b, self.src_kind, self.src, self.dst_kind, self.dst = b, src_kind, src, dst_kind, dst
        self.together, self.item_bytes = together, together * dst_kind.item_bytes
        self.unit = _moved(src_kind, src, together)

    def single(self, src_at: Any, dst_at: Any) -> None:
        """dst[dst_at] = src[src_at]."""
        _store(self.b, self.dst_kind, self.dst, dst_at, _load(self.b, self.src_kind, self.unit, self.src, src_at, None))

    def block(self, src_at: Any, src_ld: Any, dst_at: Any, dst_ld: Any, lanes: int) -> None:
        """A square block, transposed."""
        b = self.b
        rows = [_load(b, self.src_kind, self.unit, self.src, b.add(src_at, b.mul(src_ld, _c(i))), lanes) for i in range(lanes)]
        for i, row in enumerate(_transposed(b, rows)):
            _store(b, self.dst_kind, self.dst, b.add(dst_at, b.mul(dst_ld, _c(i))), row)

    def part(self, src_at: Any, src_ld: Any, dst_at: Any, dst_ld: Any, lanes: int, height: Any, width: Any) -> None:
        """The first `height` rows and `width` columns of a square block, transposed; nothing else is read or written."""
        b = self.b
        known_height, known_width = _known(height), _known(width)
        columns, rows = mask_of(b, width, lanes), mask_of(b, height, lanes)
        kind, none = ir.VectorType(self.unit, lanes), ir.Constant(columns.type, None)
        zeros = ir.Constant(kind, None)
        load = intrinsic_function(
            b.module, f"llvm.masked.load.{suffix(kind)}.p0", kind, [kind.as_pointer(), I32, columns.type, kind]
        )
        store = intrinsic_function(
            b.module, f"llvm.masked.store.{suffix(kind)}.p0", ir.VoidType(), [kind, kind.as_pointer(), I32, columns.type]
        )
        align = ir.Constant(I32, self.src_kind.item_align)
        loaded = [zeros] * lanes
        for i in range(lanes if known_height is None else known_height):
            mask = columns if known_height is not None else b.select(b.icmp_signed(">", height, _c(i)), columns, none)
            pointer = b.bitcast(b.gep(self.src, [b.add(src_at, b.mul(src_ld, _c(i)))]), kind.as_pointer())
            loaded[i] = tag(b.module, b.call(load, [pointer, align, mask, zeros]), self.src_kind.scope)
        for j, row in enumerate(_transposed(b, loaded)[:known_width]):
            mask = rows if known_width is not None else b.select(b.icmp_signed(">", width, _c(j)), rows, none)
            pointer = b.bitcast(b.gep(self.dst, [b.add(dst_at, b.mul(dst_ld, _c(j)))]), kind.as_pointer())
            tag(b.module, b.call(store, [row, pointer, align, mask]), self.dst_kind.scope)

    def transpose(
        self, rows: Any, cols: Any, src_at: Any, src_ld: Any, dst_at: Any, dst_ld: Any, like_cols: int | None = None
    ) -> None:  # fmt: skip
        """dst[dst_at + c dst_ld + r] = src[src_at + r src_ld + c]; after whole blocks as many are left as of `like_cols`.

        Where g elements move as one, r and c count these: g r and g c are in the places of r and c as they are added.
        """
        b, g = self.b, self.together
        lanes = block_lanes(self.item_bytes)
        if self.dst_kind.dtype == "complex128" or lanes < 4:
            self._scalar(_c(0), rows, _c(0), cols, src_at, src_ld, dst_at, dst_ld)
            return
        whole_rows, whole_cols = _divide(b, rows, lanes), _divide(b, cols, lanes)

        def places(r: Any, c: Any) -> tuple[Any, Any, Any, Any]:
            from_ = b.add(src_at, b.add(b.mul(r, src_ld), _times(b, c, g)))
            return from_, src_ld, b.add(dst_at, b.add(b.mul(c, dst_ld), _times(b, r, g))), dst_ld

        def blocks(first_row: Any, row_count: Any, first_col: Any, col_count: Any, side: int) -> None:
            """Squares of side x side blocks, one below the other: the destination is filled along its rows."""

            def square(i: Any, j: Any) -> None:
                def block(k: Any, m: Any) -> None:
                    r = b.add(first_row, b.add(b.mul(i, _c(side)), m))
                    c = b.add(first_col, b.add(b.mul(j, _c(side)), k))
                    self.block(*places(b.mul(r, _c(lanes)), b.mul(c, _c(lanes))), lanes)

                _for(b, _c(side), lambda k: _for(b, _c(side), lambda m: block(k, m)))

            _for(b, col_count, lambda j: _for(b, row_count, lambda i: square(i, j)))

        side = _side(lanes, self.item_bytes)
        high, wide = _divide(b, whole_rows, side), _divide(b, whole_cols, side)
        blocks(_c(0), high, _c(0), wide, side)
        if side > 1:
            high, wide = _scaled(b, high, side), _scaled(b, wide, side)
            if (left := _minus(b, whole_rows, high)) is not None:
                blocks(high, left, _c(0), whole_cols, 1)
            left = _minus(b, whole_cols, wide) if like_cols is None else _c(like_cols // lanes % side)
            if left is not None:
                blocks(_c(0), high, wide, left, 1)
        done_rows, done_cols = _scaled(b, whole_rows, lanes), _scaled(b, whole_cols, lanes)
        left_rows, left_cols = _minus(b, rows, done_rows), _minus(b, cols, done_cols)
        if like_cols is not None:
            left_cols = _c(like_cols % lanes) if like_cols % lanes else None

        def edge(r: Any, c: Any, height: Any, width: Any) -> None:
            self.part(*places(r, c), lanes, height, width)

        if not _has_masks(self.item_bytes):
            self._scalar(_c(0), done_rows, done_cols, cols, src_at, src_ld, dst_at, dst_ld)
            self._scalar(done_rows, rows, _c(0), cols, src_at, src_ld, dst_at, dst_ld)
            return
        if left_cols is not None:
            _for(b, whole_rows, lambda i: edge(b.mul(i, _c(lanes)), done_cols, _c(lanes), left_cols))
        if left_rows is not None:
            _for(b, whole_cols, lambda j: edge(done_rows, b.mul(j, _c(lanes)), left_rows, _c(lanes)))
        if left_rows is not None and left_cols is not None:
            edge(done_rows, done_cols, left_rows, left_cols)

    def _scalar(self, r0: Any, r1: Any, c0: Any, c1: Any, src_at: Any, src_ld: Any, dst_at: Any, dst_ld: Any) -> None:
        b, g = self.b, self.together
        if _minus(b, r1, r0) is None or _minus(b, c1, c0) is None:
            return

        def row(i: Any) -> None:
            r = b.add(r0, i)

            def one(j: Any) -> None:
                c = b.add(c0, j)
                from_ = b.add(src_at, b.add(b.mul(r, src_ld), _times(b, c, g)))
                self.single(from_, b.add(dst_at, b.add(b.mul(c, dst_ld), _times(b, r, g))))

            _for(b, _minus(b, c1, c0), one)

        _for(b, _minus(b, r1, r0), row)


def _side(lanes: int, item_bytes: int) -> int:
    """How many blocks of so many lanes one line of memory runs through."""
    return max(1, LINE_BYTES // (lanes * item_bytes))


def _divide(b: Any, x: Any, k: int) -> Any:
    known = _known(x)
    return _c(known // k) if known is not None else b.sdiv(x, _c(k))


def _scaled(b: Any, x: Any, k: int) -> Any:
    known = _known(x)
    return _c(known * k) if known is not None else b.mul(x, _c(k))


def _minus(b: Any, x: Any, y: Any) -> Any:
    """x - y, or None when it is known to be 0."""
    if _known(x) is not None and _known(y) is not None:
        difference = _known(x) - _known(y)  # type: ignore[operator]
        return _c(difference) if difference else None
    return b.sub(x, y)


def _typer(arity: int, buffers: tuple[int, ...]) -> Callable[..., Any]:
    def typer(*args: Any) -> Any:
        if len(args) != arity or not all(isinstance(args[k], Buf) for k in buffers):
            return None
        if len({args[k].dtype for k in buffers}) != 1:
            return None
        return signature(types.none, *[t if isinstance(t, types.Literal | Buf) else types.int64 for t in args])

    return typer


def transpose(
    rows: int, cols: int, src: Any, src_off: int, src_ld: int, dst: Any, dst_off: int, dst_ld: int, together: int = 1
) -> None:  # fmt: skip
    """dst[dst_off + c dst_ld + g r + e] = src[src_off + r src_ld + g c + e], 0 <= r < rows, 0 <= c < cols; one element type.

    0 <= e < g = `together`: so many elements side by side move as one, which has 32 or 64 bits.
    """
    r, c, e = np.arange(rows)[:, None, None], np.arange(cols)[:, None], np.arange(together)
    dst[dst_off + c * dst_ld + r * together + e] = src[src_off + r * src_ld + c * together + e]


def _lower_transpose(context: Any, b: Any, sig: Any, args: Any) -> Any:
    rows, cols, src, src_off, src_ld, dst, dst_off, dst_ld = (
        _literal(v, t) for v, t in zip(args[:8], sig.args[:8], strict=True)
    )  # fmt: skip
    like = sig.args[1].like if isinstance(sig.args[1], types.IntegerLike) else None
    move = _Move(b, sig.args[2], src, sig.args[5], dst, _together(sig.args))
    move.transpose(rows, cols, src_off, src_ld, dst_off, dst_ld, like)
    return context.get_dummy_value()


def _together(kinds: Sequence[Any]) -> int:
    """How many elements move as one."""
    return int(kinds[8].literal_value) if len(kinds) > 8 else 1


def _alike(kinds: Sequence[Any]) -> Sequence[Any]:
    """The types of ``transpose``'s arguments with those as integers that make little difference to its code.

    That is where blocks begin, how long the source's rows are, and how many blocks its columns make, but for what is left over.
    """
    found, item_bytes = list(kinds), kinds[5].item_bytes * _together(kinds)
    found[3] = found[6] = types.int64
    lanes = block_lanes(item_bytes)
    every = lanes * _side(lanes, item_bytes)
    cols = getattr(kinds[1], "literal_value", None)
    if cols is not None and cols >= 2 * every and lanes >= 4 and kinds[5].dtype != "complex128":
        found[1] = types.IntegerLike(2 * every + cols % every)
        if isinstance(kinds[4], types.Literal) and kinds[4].literal_value >= cols * _together(kinds):
            found[4] = types.int64
    return found


def _transpose_typer(*args: Any) -> Any:
    if len(args) == 9:
        unit_bytes = args[8].literal_value * getattr(args[5], "item_bytes", 0) if isinstance(args[8], types.IntegerLiteral) else 0
        if unit_bytes not in (4, 8):
            return None
        of_eight = _typer(8, (2, 5))(*args[:8])
        return None if of_eight is None else signature(types.none, *of_eight.args, args[8])
    return _typer(8, (2, 5))(*args)


register(transpose, _transpose_typer, outlined("transpose", _lower_transpose, extents=2, alike=_alike))


def copy_rows(rows: int, cols: int, src: Any, src_off: int, src_ld: int, dst: Any, dst_off: int, dst_ld: int) -> None:
    """dst[dst_off + r dst_ld + c] = src[src_off + r src_ld + c], 0 <= r < rows, 0 <= c < cols; one element type."""
    r, c = np.arange(rows)[:, None], np.arange(cols)
    dst[dst_off + r * dst_ld + c] = src[src_off + r * src_ld + c]


def _lower_copy_rows(context: Any, b: Any, sig: Any, args: Any) -> Any:
    rows, cols, src, src_off, src_ld, dst, dst_off, dst_ld = (_literal(v, t) for v, t in zip(args, sig.args, strict=True))
    move = _Move(b, sig.args[2], src, sig.args[5], dst)

    def row(r: Any) -> None:
        s, d = b.add(src_off, b.mul(r, src_ld)), b.add(dst_off, b.mul(r, dst_ld))
        _for(b, cols, lambda c: move.single(b.add(s, c), b.add(d, c)))

    _for(b, rows, row)
    return context.get_dummy_value()


register(copy_rows, _typer(8, (2, 5)), _lower_copy_rows)
