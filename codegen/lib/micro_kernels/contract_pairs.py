"""Contractions of bf16: C[M, N] = A[M, K] B[K, N] with sums in f32, two steps of k side by side in B's panels.

Tiles multiply bf16 sixteen times as fast as multiply-adds of f32, a dot instruction of vectors twice as fast. Both take denormal
numbers for zero and give zero for them, and are used where none can occur (`exponents`). That is looked for while the product is
computed: once for each panel of B, once for the rows of A that are copied together. Where it does not hold, and on other CPUs,
vectors compute the product of the factors as f32, the products of each pair one after the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.lib.buffer import Buf
from codegen.lib.emit import F32, I8, I32, I64, Value, constant, intrinsic_function
from codegen.lib.micro_kernels.blocks import (
    _bands,
    _c,
    _counted_loop,
    _for,
    _known,
    _literal,
    _times,
    over_panels,
    over_rows,
    panel_lanes,
    splat,
)
from codegen.lib.micro_kernels.contract import store_vector
from codegen.lib.micro_kernels.exponents import Exponents
from codegen.lib.micro_kernels.folded import LINE_BYTES, Folded
from codegen.lib.micro_kernels.grouped import grouped_product, grouped_typer
from codegen.lib.micro_kernels.tiles import BLOCK_ROWS, LEAST_ROWS, TileProduct, is_permitted, tiles_for
from codegen.lib.outline import outlined
from codegen.lib.register import register
from codegen.target import current_target

__all__ = ["gemm_pairs"]

MOST_DOT_ROWS = 12  # of a block of sums
MOST_DOT_DEPTH = 1024  # of k in a copy: a block's rows are 24 KiB
MOST_COPIED_DEPTH = 1 << 13  # of a window: twelve rows of it are 192 KiB
DOT_COPY_BYTES = 1 << 17  # of A, on the stack
_HIGH = -65536  # the upper half of 32 bits
_EXACT = "tilewright_pairs_by_vectors"


Levels = tuple[tuple[int, int], ...]
"""How often loops around k run, and their steps in A; B goes on."""


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's type of bf16, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


_BF16 = _BFloat()


def gemm_pairs(
    m: int, n: int, k: int, a: Any, a_off: int, a_rs: int, b: Any, b_off: int, b_panel_stride: int,
    c: Any, c_off: int, ldc: int, panel: int, band: int, band_step: int, *levels: int,
) -> None:  # fmt: skip
    """`grouped_product` with two steps of k side by side, for bands of rows and loops around k.

    Row i of A begins at (i // band) band_step + (i % band) a_rs, or at i a_rs where `band` is 0. `levels` are (count, step in A,
    step in B) of loops around k that sum into the same block, outermost first; B goes on from one iteration to the next.
    """
    at = np.arange(k)
    for count, step in reversed(list(zip(levels[::3], levels[1::3], strict=True))):
        at = (np.arange(count)[:, None] * step + at).reshape(-1)
    rows = np.arange(m)
    begin = rows // band * band_step + rows % band * a_rs if band else rows * a_rs
    left = a[a_off + begin[:, None] + at].reshape(-1)
    grouped_product(2, np.float32, m, n, len(at), left, 0, len(at), b, b_off, b_panel_stride, c, c_off, ldc, panel)


def _is_of_pairs(a: Buf, b: Buf, c: Buf) -> bool:
    return [a.dtype, b.dtype, c.dtype] == ["bfloat16", "bfloat16", "float32"]


# ------------------------------------------------------------------ by vectors


def _by_vectors(b: Any, kinds: tuple[Buf, Buf, Buf], extents: tuple[Any, Any, Any], a: tuple[Any, Any],
                right: tuple[Any, Any, int], out: tuple[Any, Any], levels: Levels = ()) -> None:  # fmt: skip
    """The product by multiply-adds of f32. Pointers are to the first elements, distances in elements."""
    (m, n, k), (left, a_row), (first, b_panel, panel), (c, ldc) = extents, a, right, out
    lanes = panel_lanes(panel, 4)
    vectors = panel // lanes
    vector, pair = ir.VectorType(F32, lanes), ir.VectorType(I32, lanes)
    # Sums, both halves of a row of B, a broadcast and its halves.
    rows = max(1, min((current_target().vector_registers - 2 * vectors - 3) // vectors, 12))
    known = _known(k)
    pairs = _c(known // 2) if known is not None else b.lshr(k, _c(1))

    def halves(x: Any) -> tuple[Value, Value]:
        """Both numbers of each pair, as f32."""
        lower, upper = b.shl(x, constant(pair, 16)), b.and_(x, constant(pair, _HIGH))
        return Value(b, b.bitcast(lower, vector)), Value(b, b.bitcast(upper, vector))

    def load(base: Any, at: Any, kind: Any) -> Any:
        access = b.load(b.bitcast(b.gep(base, [at]), kind.as_pointer()))
        access.align = 2
        return access

    def tile(height: int, row: Any, count: int, b_at: Any, c_at: Any, mask: Any) -> None:
        a_base, b_base = b.gep(left, [b.mul(row, a_row)]), b.gep(first, [b_at])

        def level(number: int, a_at: Any, before: Any, sums: list[Any]) -> list[Any]:
            """The sums over this level's iterations, before whose first one there are so many runs of k."""
            if number == len(levels):
                right_at = b.mul(before, b.mul(pairs, _c(2 * panel)))
                return _counted_loop(b, pairs, sums, lambda t, sums: step(t, a_at, right_at, sums))
            extent, one = levels[number]
            return _counted_loop(
                b, _c(extent), sums,
                lambda t, sums: level(number + 1, b.add(a_at, b.mul(t, _c(one))), b.add(b.mul(before, _c(extent)), t), sums),
            )  # fmt: skip

        def step(t: Any, a_at: Any, right_at: Any, sums: list[Any]) -> list[Any]:
            at = b.add(right_at, b.mul(t, _c(2 * panel)))
            columns = [halves(load(b_base, b.add(at, _c(2 * j * lanes)), pair)) for j in range(count)]
            new = list(sums)
            for i in range(height):
                both = load(a_base, b.add(a_at, b.add(b.mul(t, _c(2)), b.mul(a_row, _c(i)))), I32)
                for part, x in enumerate(halves(splat(Value(b, both), lanes).v)):
                    for j in range(count):
                        new[i * count + j] = _sum(x, columns[j][part], Value(b, new[i * count + j])).v
            return new

        sums = level(0, _c(0), _c(0), [constant(vector, 0)] * (count * height))
        for i in range(height):
            for j in range(count):
                at = b.add(c_at, b.add(b.mul(ldc, b.add(row, _c(i))), _c(j * lanes)))
                store_vector(b, kinds[2], c, at, Value(b, sums[i * count + j]), mask if j == count - 1 else None)

    def columns(count: int, p: Any, inside: Any, mask: Any) -> None:
        b_at, c_at = b.mul(p, b_panel), b.mul(p, _c(panel))
        if inside is not None:
            b_at, c_at = b.add(b_at, b.mul(inside, _c(2))), b.add(c_at, inside)
        over_rows(b, m, rows, lambda height, row, _: tile(height, row, count, b_at, c_at, mask))

    over_panels(b, n, panel, lanes, columns)


def _sum(x: Value, y: Value, z: Value) -> Value:
    """x y + z; fused if the target can."""
    if not current_target().has_fma:
        return x * y + z
    name = f"llvm.fma.v{x.type.count}f32"
    return x.wrap(x.b.call(intrinsic_function(x.b.module, name, x.type, [x.type] * 3), [x.v, y.v, z.v]))


def _vectors_function(b: Any, kinds: tuple[Buf, Buf, Buf], panel: int, pointers: tuple[Any, Any, Any]) -> Any:
    """A function of the module that does the same for any extents: (m, n, k, a, its row, b, its panel, c, its row)."""
    name = f"{_EXACT}_{panel}"
    found = b.module.globals.get(name)
    if found is None:
        i64, (a, right, c) = I64, (p.type for p in pointers)
        found = ir.Function(b.module, ir.FunctionType(ir.VoidType(), [i64, i64, i64, a, i64, right, i64, c, i64]), name)
        found.linkage = "internal"
        found.attributes.add("noinline")
        found.attributes.add("nounwind")
        inner = ir.IRBuilder(found.append_basic_block())
        m, n, k, a_at, a_row, b_at, b_panel, c_at, ldc = found.args
        first, second, third = kinds  # in no scope: calls of one kernel may pass other buffers
        plain = first, second, Buf(third.dtype, "", third.align)
        _by_vectors(inner, plain, (m, n, k), (a_at, a_row), (b_at, b_panel, panel), (c_at, ldc))
        inner.ret_void()
    return found


# ------------------------------------------------------------------ where denormal numbers do not count


class _PairTiles(TileProduct):
    """A product by tiles which asks, for each panel and the rows that meet it, whether tiles compute it."""

    def __init__(self, b: Any, kinds: tuple[Buf, Buf, Buf], extents: tuple[Any, Any, Any], a: tuple[Any, Any],
                 right: tuple[Any, Any, int], out: tuple[Any, Any]) -> None:  # fmt: skip
        super().__init__(b, "tdpbf16ps", kinds, extents, a, right, out)
        self.exponents = Exponents(b, self.n, self.depth, (self.right, self.right_panel, self.panel))
        self.ldc = out[1]
        self.exact = _vectors_function(b, kinds, right[2], (a[0], right[0], out[0]))

    def _before_panels(self, down: Any, count: Any, left: Any) -> None:
        b = self.b
        height = down.sizes[0] if len(down.sizes) == 1 else b.add(*down.sizes)
        self.rows = b.add(b.mul(b.sub(count, _c(1)), _c(BLOCK_ROWS)), height)
        self.left = left
        self.least_left = self.exponents.of_rows(left, self.rows, self.a_row)

    def _panel(self, product: Callable[[], None], number: Any, columns: tuple[Any, ...], out: Any, begin: Any) -> None:
        b = self.b
        with b.if_else(self.exponents.are_normal(self.least_left, self.exponents.of_panel(number))) as (then, otherwise):
            with then:
                product()
            with otherwise, b.if_then(b.icmp_signed("==", begin, _c(0))):
                width = columns[0] if len(columns) == 1 else b.add(*columns)
                places = self.left, b.gep(self.right, [b.mul(number, self.right_panel)]), out
                kinds = (self.exact.args[k].type for k in (3, 5, 7))
                left, right, c = (b.bitcast(x, kind) for x, kind in zip(places, kinds, strict=True))
                row, panel = (self._over(x, self.item) for x in (self.a_row, self.right_panel))
                b.call(self.exact, [self.rows, width, self._over(self.depth, self.item), left, row, right, panel, c, self.ldc])


class _PairDots(Folded):
    """A product by the dot instruction, which sums two products of bf16 in each lane of f32, asked for in the same way.

    Rows of A are copied to the stack first, at a distance at which no two of them meet in a set of the first cache: they may be a
    power of two apart. All panels meet the copy. It has so many steps of k as stay in that cache with the blocks of sums; of a
    window, or of bands of rows, all of k, one level after the other.
    """

    def __init__(self, b: Any, kinds: tuple[Buf, Buf, Buf], extents: tuple[Any, Any, Any], a: tuple[Any, Any],
                 right: tuple[Any, Any, int], out: tuple[Any, Any], band: tuple[int, int], levels: Levels) -> None:  # fmt: skip
        super().__init__(b)
        (self.m, self.n, self.run), (self.out, self.ldc), self.kinds = extents, out, kinds
        self.band, self.levels, self.k = band, levels, self._scaled(extents[2], prod(n for n, _ in levels))
        self.left, self.right, self.panel = a[0], right[0], right[2]
        self.a_row, self.b_panel = a[1], right[1]
        self.bytes_of = [self._scaled(x, 2) for x in (self.k, self.a_row, self.b_panel)]
        self.lanes = panel_lanes(self.panel, 4)
        self.vector = ir.VectorType(F32, self.lanes)
        vectors = self.panel // self.lanes
        self.height = max(1, min((current_target().vector_registers - vectors - 2) // vectors, MOST_DOT_ROWS))
        known = _known(self.k)
        self.most_depth = MOST_DOT_DEPTH
        if levels or band[0]:
            if known is None or known > MOST_COPIED_DEPTH:
                raise ValueError(f"sums of {known} products in a window: expected at most {MOST_COPIED_DEPTH}")
            self.most_depth = known
        self.in_one_run = known is not None and known <= self.most_depth
        room = self.most_depth if known is None else min(self.most_depth, known)
        lines = -(-2 * room // LINE_BYTES) + (1 if levels else 0)  # what is copied of a level's last line goes beyond it
        self.row_bytes = LINE_BYTES * (lines + 1 - lines % 2)  # an odd number of lines
        self.blocks = max(1, DOT_COPY_BYTES // (self.height * self.row_bytes))  # of rows, in a copy
        with b.goto_entry_block():
            self.copy = self._stack(self.blocks * self.height * self.row_bytes)
        self.bytes_at = [b.bitcast(x, I8.as_pointer()) for x in (self.left, self.right)]
        self.exponents = Exponents(b, self.n, self.bytes_of[0], (self.bytes_at[1], self.bytes_of[2], self.panel))
        self.exact = _vectors_function(b, kinds, self.panel, (a[0], right[0], out[0]))

    def all(self) -> None:
        """C = A B."""
        for height, count, first in self._bands():
            copies = self._over_blocks(count)

            def one_copy(t: Any, height: int = height, count: Any = count, first: Any = first) -> None:
                b, before = self.b, _times(self.b, t, self.blocks)
                known = _known(count)
                in_one_copy = known is not None and known <= self.blocks
                blocks = count if in_one_copy else self._least(b.sub(count, before), self.blocks)
                self._rows(height, blocks, b.add(first, _times(b, before, height)))

            _for(self.b, copies, one_copy)

    def _over_blocks(self, count: Any) -> Any:
        known, b = _known(count), self.b
        return _c(-(-known // self.blocks)) if known is not None else b.udiv(b.add(count, _c(self.blocks - 1)), _c(self.blocks))

    def _bands(self) -> list[tuple[int, Any, Any]]:
        """Blocks of rows that are alike: their height, how many there are, the first one's first row."""
        known, b = _known(self.m), self.b
        if known is not None:
            return [(height, _c(count), _c(first)) for height, count, first, _ in _bands(known, self.height)]
        found, done, left = [], _c(0), self.m
        for height in (self.height, max(1, self.height // 3), 1):
            count = b.udiv(left, _c(height))
            found.append((height, count, done))
            done, left = b.add(done, b.mul(count, _c(height))), b.urem(left, _c(height))
            if height == 1:
                break
        return found

    def _rows(self, height: int, blocks: Any, first: Any) -> None:
        """So many blocks of rows by all panels, a run of k after the other."""
        b = self.b
        rows = _times(b, blocks, height)
        known, most = _known(self.k), self.most_depth
        runs = _c(-(-known // most)) if known is not None else b.udiv(b.add(self.k, _c(most - 1)), _c(most))
        if self.in_one_run:
            self._copy_all(first, rows)
            least_left = self.exponents.of_rows(self.copy, rows, _c(self.row_bytes))
        else:
            least_left = self.exponents.of_rows(self._row(first), rows, self.bytes_of[1])

        def run(r: Any) -> None:
            begin = _times(b, r, most)
            depth = self.k if self.in_one_run else self._least(b.sub(self.k, begin), most)
            if not self.in_one_run:
                self._copy(first, rows, self._scaled(begin, 2), self.copy, self._scaled(depth, 2))

            def columns(count: int, p: Any, inside: Any, mask: Any) -> None:
                at = _times(b, p, self.panel) if inside is None else b.add(_times(b, p, self.panel), inside)
                right = b.gep(self.bytes_at[1], [b.mul(p, self.bytes_of[2])])
                right = right if inside is None else b.gep(right, [self._scaled(inside, 4)])
                with b.if_else(self.exponents.are_normal(least_left, self.exponents.of_panel(p))) as (then, otherwise):
                    with then:
                        here, pairs = b.gep(right, [_times(b, begin, 2 * self.panel)]), self._over(depth, 2)
                        _for(b, blocks, lambda t: self._block(height, t, first, count, here, at, pairs, begin, mask))
                    with otherwise, b.if_then(b.icmp_signed("==", begin, _c(0))):
                        width = self._least(b.sub(self.n, at), count * self.lanes)
                        c = b.gep(self.out, [b.add(b.mul(first, self.ldc), at)])
                        left, row = self.copy, _c(self.row_bytes // 2)
                        if not self.in_one_run:
                            left, row = self._row(first), self.a_row
                        left, here = b.bitcast(left, self.left.type), b.bitcast(right, self.right.type)
                        b.call(self.exact, [rows, width, self.k, left, row, here, self.b_panel, c, self.ldc])

            over_panels(b, self.n, self.panel, self.lanes, columns)

        _for(b, runs, run)

    def _row(self, number: Any) -> Any:
        """Where a row of A begins."""
        b, (band, step) = self.b, self.band
        if not band:
            return b.gep(self.bytes_at[0], [b.mul(number, self.bytes_of[1])])
        before, inside = b.udiv(number, _c(band)), b.urem(number, _c(band))
        return b.gep(self.bytes_at[0], [b.add(b.mul(before, _c(2 * step)), b.mul(inside, self.bytes_of[1]))])

    def _copy_all(self, first: Any, rows: Any) -> None:
        """What all levels sum of these rows, one run of k after the other."""
        b, size = self.b, self._scaled(self.run, 2)

        def level(number: int, from_: Any, before: Any) -> None:
            if number == len(self.levels):
                self._copy(first, rows, from_, b.gep(self.copy, [b.mul(before, size)]), size)
                return
            extent, step = self.levels[number]
            _for(b, _c(extent), lambda t: level(number + 1, b.add(from_, b.mul(t, _c(2 * step))),
                                                b.add(b.mul(before, _c(extent)), t)))  # fmt: skip

        level(0, _c(0), _c(0))

    def _copy(self, first: Any, rows: Any, from_: Any, to: Any, depth: Any) -> None:
        """So many bytes of each row, which begin ``from_`` behind it."""
        b, vector = self.b, ir.VectorType(I8, LINE_BYTES).as_pointer()
        whole, rest = self._over(depth, LINE_BYTES), self._modulo(depth, LINE_BYTES)
        some, align = self._compare(">", rest, 0), 4 if self.levels else LINE_BYTES

        def row(t: Any) -> None:
            source, at = b.gep(self._row(b.add(first, t)), [from_]), b.gep(to, [_times(b, t, self.row_bytes)])

            def line(s: Any) -> None:
                access = b.load(b.bitcast(b.gep(source, [b.mul(s, _c(LINE_BYTES))]), vector))
                access.align = 1
                b.store(access, b.bitcast(b.gep(at, [b.mul(s, _c(LINE_BYTES))]), vector), align=align)

            _for(b, whole, line)
            if _known(some) != 0:
                # Behind a run is the next one, which is copied later, or room for a line.
                value = self._masked_load(b.gep(source, [b.mul(whole, _c(LINE_BYTES))]), self._first_bytes(rest))
                with contextlib.nullcontext() if _known(some) else b.if_then(some):
                    b.store(value, b.bitcast(b.gep(at, [b.mul(whole, _c(LINE_BYTES))]), vector), align=align)

        _for(b, rows, row)

    def _block(self, height: int, t: Any, first: Any, count: int, right: Any, at: Any, pairs: Any, begin: Any, mask: Any) -> None:
        """A block of sums, in registers over this run of k; added to those of the runs before."""
        b, lanes = self.b, self.lanes
        left = b.gep(self.copy, [_times(b, t, height * self.row_bytes)])
        both = ir.VectorType(I32, lanes)

        def load(base: Any, at: Any, kind: Any, align: int) -> Any:
            access = b.load(b.bitcast(b.gep(base, [at]), kind.as_pointer()))
            access.align = align
            return access

        def step(s: Any, sums: list[Any]) -> list[Any]:
            row, new = b.mul(s, _c(4 * self.panel)), list(sums)
            columns = [load(right, b.add(row, _c(4 * j * lanes)), both, 4) for j in range(count)]
            for i in range(height):
                pair = load(left, b.add(b.mul(s, _c(4)), _c(i * self.row_bytes)), I32, 4)
                x = splat(Value(b, pair), lanes).v
                for j in range(count):
                    new[i * count + j] = self._dot(new[i * count + j], x, columns[j])
            return new

        sums = _counted_loop(b, pairs, [constant(self.vector, 0)] * (count * height), step)
        row = b.add(first, _times(b, t, height))
        places = [(b.add(b.mul(self.ldc, b.add(row, _c(i))), b.add(at, _c(j * lanes))), mask if j == count - 1 else None)
                  for i in range(height) for j in range(count)]  # fmt: skip

        def store(values: list[Any]) -> None:
            for (place, on), value in zip(places, values, strict=True):
                store_vector(b, self.kinds[2], self.out, place, Value(b, value), on)

        if _known(begin) == 0:
            store(sums)
            return
        with b.if_else(b.icmp_signed("==", begin, _c(0))) as (then, otherwise):
            with then:
                store(sums)
            with otherwise:
                store([b.fadd(x, self._load_sums(place, on)) for x, (place, on) in zip(sums, places, strict=True)])

    def _load_sums(self, place: Any, mask: Any) -> Any:
        b, pointer = self.b, self.b.bitcast(self.b.gep(self.out, [place]), self.vector.as_pointer())
        if mask is None:
            access = b.load(pointer)
            access.align = 4
            return access
        kinds = [pointer.type, I32, mask.type, self.vector]
        fn = intrinsic_function(b.module, f"llvm.masked.load.v{self.lanes}f32.p0", self.vector, kinds)
        return b.call(fn, [pointer, ir.Constant(I32, 4), mask, constant(self.vector, 0)])

    def _dot(self, sums: Any, x: Any, y: Any) -> Any:
        b, kind = self.b, ir.VectorType(_BF16, 2 * self.lanes)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}"
        function = intrinsic_function(b.module, name, self.vector, [self.vector, kind, kind])
        return b.call(function, [sums, b.bitcast(x, kind), b.bitcast(y, kind)])


def _lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
    value = [_literal(v, t) for v, t in zip(args, sig.args, strict=True)]
    m, n, k, a, a_off, a_rs, bb, b_off, b_panel, c, c_off, ldc, _, *around = value
    panel, (rows_of_band, step, *loops) = int(sig.args[12].literal_value), [int(x.constant) for x in around]
    kinds, levels = (sig.args[3], sig.args[6], sig.args[9]), tuple(zip(loops[::3], loops[1::3], strict=True))
    right = b.gep(bb, [b_off]), b_panel, panel
    by_dots = current_target().pair_products > 1
    by_tiles = not levels and tiles_for(panel, (rows_of_band or _known(m), _known(n), _known(k)), "amx-bf16")
    if by_dots and not by_tiles:
        left, out = (b.gep(a, [a_off]), a_rs), (b.gep(c, [c_off]), ldc)
        _PairDots(b, kinds, (m, n, k), left, right, out, (rows_of_band, step), levels).all()
        return context.get_dummy_value()

    def band(t: Any, rows: Any) -> None:
        left, out = b.add(a_off, b.mul(t, _c(step))), b.add(c_off, b.mul(b.mul(t, rows), ldc))
        given = (rows, n, k), (b.gep(a, [left]), a_rs), right, (b.gep(c, [out]), ldc)
        if not by_tiles:
            _by_vectors(b, kinds, *given, levels)
            return
        with b.if_else(b.and_(is_permitted(b), b.icmp_signed(">=", rows, _c(LEAST_ROWS)))) as (then, otherwise):
            with then:
                _PairTiles(b, kinds, *given).all()
            with otherwise:
                exact = _vectors_function(b, kinds, panel, (given[1][0], given[2][0], given[3][0]))
                b.call(exact, [rows, n, k, given[1][0], a_rs, given[2][0], b_panel, given[3][0], ldc])

    if rows_of_band:
        _for(b, b.udiv(m, _c(rows_of_band)), lambda t: band(t, _c(rows_of_band)))
    else:
        band(_c(0), m)
    return context.get_dummy_value()


register(gemm_pairs, grouped_typer(_is_of_pairs, after=2, levels=True), outlined("gemm_pairs", _lower, extents=3, levels=15))
