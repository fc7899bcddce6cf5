"""Products of pairs of bf16 by the dot instruction (AVX512-BF16), which sums two of them in each lane of f32."""

from __future__ import annotations

import contextlib
from math import prod
from typing import Any

from llvmlite import ir

from codegen.lib.buffer import Buf
from codegen.lib.emit import F32, I1, I8, I16, I32, Value, constant, intrinsic_function
from codegen.lib.micro_kernels.blocks import _bands, _c, _counted_loop, _for, _known, _times, over_panels, panel_lanes, splat
from codegen.lib.micro_kernels.exponents import Exponents
from codegen.lib.micro_kernels.folded import LINE_BYTES, Folded
from codegen.lib.micro_kernels.pair_vectors import Levels, store_sums, vectors_function
from codegen.target import current_target

__all__ = ["PairDots"]

MOST_ROWS = 12  # of a block of sums
MOST_DEPTH = 1024  # of k in a copy: a block's rows are 24 KiB
MOST_LEVELS = 2048  # where it is made of runs that lie apart
COPY_BYTES = 1 << 17  # of A, on the stack


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's type of bf16, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


class PairDots(Folded):
    """The emission of one product, in runs of k. Pointers are to elements, distances count them; `a` is (pointer, row, step).

    Rows of A are copied to the stack first. Those that lie along k stay rows, at a distance at which no two of them meet in a set
    of the first cache: they may be a power of two apart. Of those that lie across k two steps are put together, pair after pair.
    All panels meet the copy, which holds as much of k as stays in that cache with the blocks of sums; of what levels sum, one
    level after the other. Whether a run may be computed so is asked for each copy and each panel.
    """

    def __init__(self, b: Any, kinds: tuple[Buf, Buf, Buf], extents: tuple[Any, Any, Any], a: tuple[Any, Any, int],
                 right: tuple[Any, Any, int], out: tuple[Any, Any], band: tuple[int, int], levels: Levels) -> None:  # fmt: skip
        super().__init__(b)
        (self.m, self.n, self.k), (self.out, self.ldc), self.kinds = extents, out, kinds
        (self.left, self.a_row, self.a_step), (self.right, self.b_panel, self.panel), self.band = a, right, band
        self.lies_across = self.a_step != 1
        if self.lies_across and band[0]:
            raise ValueError(f"bands of {band[0]} rows that lie across k: expected one band")
        self.bytes_at = [b.bitcast(x, I8.as_pointer()) for x in (self.left, self.right)]
        self.lanes = panel_lanes(self.panel, 4)
        self.vector = ir.VectorType(F32, self.lanes)
        vectors = self.panel // self.lanes
        self.height = max(1, min((current_target().vector_registers - vectors - 2) // vectors, MOST_ROWS))
        self._cut(levels)
        room = self.most * prod(n for n, _ in self.inner)
        self.pairs = room // 2
        lines = -(-2 * room // LINE_BYTES) + (1 if self.inner else 0)  # what is copied of a run's last line goes beyond it
        row_bytes = LINE_BYTES * (lines + 1 - lines % 2)  # an odd number of lines
        self.blocks = max(1, COPY_BYTES // (self.height * row_bytes))  # of rows, in a copy
        rows = self.blocks * self.height
        across_bytes = -(-4 * rows // LINE_BYTES) * LINE_BYTES
        self.row_bytes, self.pair_bytes = (4, across_bytes) if self.lies_across else (row_bytes, 4)
        with b.goto_entry_block():
            self.copy = self._stack(self.pairs * across_bytes if self.lies_across else rows * row_bytes)
        depth = self._scaled(self.k, 2 * prod(n for n, _ in levels))
        self.exponents = Exponents(b, self.n, depth, (self.bytes_at[1], self._scaled(self.b_panel, 2), self.panel))
        self.exact = vectors_function(b, kinds, self.panel, (a[0], right[0], out[0]))

    def _cut(self, levels: Levels) -> None:
        """Which levels are inside of a copy, and how many steps of k there are of the loop over it."""
        known = _known(self.k)
        count = 0
        if known is not None and known <= MOST_LEVELS:
            while count < len(levels) and known * prod(n for n, _ in levels[len(levels) - count - 1 :]) <= MOST_LEVELS:
                count += 1
        self.outer, self.inner = levels[: len(levels) - count], levels[len(levels) - count :]
        whole = known is not None and known <= (MOST_LEVELS if levels else MOST_DEPTH)
        self.most = known if whole and known is not None else MOST_DEPTH
        self.runs = _c(1) if whole else self._over_up(self.k, MOST_DEPTH)

    def all(self) -> None:
        """C = A B."""
        for height, count, first in self._bands():
            known = _known(count)
            copies = _c(-(-known // self.blocks)) if known is not None else self._over_blocks(count)
            in_one = known is not None and known <= self.blocks

            def one_copy(t: Any, height: int = height, count: Any = count, first: Any = first, in_one: bool = in_one) -> None:
                b, before = self.b, _times(self.b, t, self.blocks)
                blocks = count if in_one else self._least(b.sub(count, before), self.blocks)
                self._rows(height, blocks, b.add(first, _times(b, before, height)))

            _for(self.b, copies, one_copy)

    def _over_blocks(self, count: Any) -> Any:
        return self.b.udiv(self.b.add(count, _c(self.blocks - 1)), _c(self.blocks))

    def _bands(self) -> list[tuple[int, Any, Any]]:
        """Blocks of rows that are alike: their height, how many there are, the first one's first row."""
        known, b = _known(self.m), self.b
        if known is not None:
            return [(height, _c(count), _c(first)) for height, count, first, _ in _bands(known, self.height)]
        found, done, left = [], _c(0), self.m
        for height in dict.fromkeys((self.height, max(1, self.height // 3), 1)):
            count = b.udiv(left, _c(height))
            found.append((height, count, done))
            done, left = b.add(done, b.mul(count, _c(height))), b.urem(left, _c(height))
        return found

    def _rows(self, height: int, blocks: Any, first: Any) -> None:
        """So many blocks of rows by all panels, a run of k after the other."""
        b, rows = self.b, _times(self.b, blocks, height)
        inside = prod(n for n, _ in self.inner)

        def level(number: int, from_: Any, before: Any) -> None:
            """Loops outside of the copy; ``before`` are the iterations of all of them until here."""
            if number == len(self.outer):
                _for(b, self.runs, lambda r: run(r, from_, before))
                return
            extent, step = self.outer[number]
            _for(b, _c(extent), lambda t: level(number + 1, b.add(from_, b.mul(t, _c(2 * step))),
                                                b.add(_times(b, before, extent), t)))  # fmt: skip

        def run(r: Any, from_: Any, before: Any) -> None:
            begin = _times(b, r, self.most)
            depth = self.k if _known(self.runs) == 1 else self._least(b.sub(self.k, begin), self.most)
            size = self._scaled(depth, inside)
            done = b.add(b.mul(before, self._scaled(self.k, inside)), begin)  # steps of k
            self._copy_all(first, rows, b.add(from_, _times(b, begin, 2 * self.a_step)), depth)
            if self.lies_across:
                least_left = self.exponents.of_rows(self.copy, self._over(size, 2), _c(self.pair_bytes), _times(b, rows, 4))
            else:
                least_left = self.exponents.of_rows(self.copy, rows, _c(self.row_bytes), self._scaled(size, 2))
            is_one = _known(self.runs) == 1 and not self.outer
            again = ir.Constant(I1, 0) if is_one else b.icmp_signed(">", done, _c(0))

            def columns(count: int, p: Any, inside: Any, mask: Any) -> None:
                at, right = _times(b, p, self.panel), b.mul(p, self.b_panel)
                right = b.add(right, _times(b, done, self.panel))
                if inside is not None:
                    at, right = b.add(at, inside), b.add(right, self._scaled(inside, 2))
                with b.if_else(self.exponents.are_normal(least_left, self.exponents.of_panel(p))) as (then, otherwise):
                    with then:
                        here, pairs = b.bitcast(b.gep(self.right, [right]), I8.as_pointer()), self._over(size, 2)
                        _for(b, blocks, lambda t: self._block(height, t, first, count, here, at, pairs, again, mask))
                    with otherwise:
                        width = self._least(b.sub(self.n, at), count * self.lanes)
                        c = b.gep(self.out, [b.add(b.mul(first, self.ldc), at)])
                        left = b.bitcast(self.copy, self.left.type)
                        b.call(self.exact, [rows, width, size, left, _c(self.row_bytes // 2), _c(self.pair_bytes // 2),
                                            b.gep(self.right, [right]), self.b_panel, c, self.ldc, again])  # fmt: skip

            over_panels(b, self.n, self.panel, self.lanes, columns)

        level(0, _c(0), _c(0))

    # ------------------------------------------------------------ the copy

    def _row(self, number: Any) -> Any:
        """Where a row of A begins."""
        b, (band, step) = self.b, self.band
        if not band:
            return b.gep(self.bytes_at[0], [b.mul(number, self._scaled(self.a_row, 2))])
        before, inside = b.udiv(number, _c(band)), b.urem(number, _c(band))
        return b.gep(self.bytes_at[0], [b.add(b.mul(before, _c(2 * step)), b.mul(inside, self._scaled(self.a_row, 2)))])

    def _copy_all(self, first: Any, rows: Any, from_: Any, depth: Any) -> None:
        """Of these rows so many steps of k, and what the inner levels sum of them, one run after the other."""
        b = self.b

        def level(number: int, from_: Any, before: Any) -> None:
            if number == len(self.inner):
                done = b.mul(before, depth)
                if self.lies_across:
                    to = b.gep(self.copy, [b.mul(self._over(done, 2), _c(self.pair_bytes))])
                    self._copy_across(first, rows, from_, to, self._over(depth, 2))
                else:
                    self._copy(first, rows, from_, b.gep(self.copy, [self._scaled(done, 2)]), self._scaled(depth, 2))
                return
            extent, step = self.inner[number]
            _for(b, _c(extent), lambda t: level(number + 1, b.add(from_, b.mul(t, _c(2 * step))),
                                                b.add(_times(b, before, extent), t)))  # fmt: skip

        level(0, from_, _c(0))

    def _copy(self, first: Any, rows: Any, from_: Any, to: Any, depth: Any) -> None:
        """So many bytes of each row, which begin ``from_`` behind it."""
        b, vector = self.b, ir.VectorType(I8, LINE_BYTES).as_pointer()
        whole, rest = self._over(depth, LINE_BYTES), self._modulo(depth, LINE_BYTES)
        some, align = self._compare(">", rest, 0), 4 if self.inner else LINE_BYTES

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

    def _copy_across(self, first: Any, rows: Any, from_: Any, to: Any, pairs: Any) -> None:
        """So many pairs of steps of rows that lie side by side: both numbers of a row become one of 32 bits."""
        b, lanes = self.b, LINE_BYTES // 4
        narrow, wide = ir.VectorType(I16, lanes), ir.VectorType(I32, lanes)
        source = b.gep(self._row(first), [from_])
        whole, rest = self._over(rows, lanes), self._modulo(rows, lanes)
        some = self._compare(">", rest, 0)

        def pair(s: Any) -> None:
            base = b.gep(source, [b.mul(s, _c(4 * self.a_step))])
            at = b.gep(to, [b.mul(s, _c(self.pair_bytes))])

            def numbers(offset: Any, mask: Any) -> Any:
                pointer = b.gep(base, [offset])
                if mask is not None:
                    raw = self._masked_load(pointer, mask)
                    raw = b.bitcast(raw, ir.VectorType(I16, 2 * lanes))
                    order = ir.Constant(ir.VectorType(I32, lanes), [ir.Constant(I32, x) for x in range(lanes)])
                    return b.zext(b.shuffle_vector(raw, raw, order), wide)
                access = b.load(b.bitcast(pointer, narrow.as_pointer()))
                access.align = 2
                return b.zext(access, wide)

            def part(g: Any, mask: Any = None) -> None:
                offset = b.mul(g, _c(2 * lanes))
                lower, upper = numbers(offset, mask), numbers(b.add(offset, _c(2 * self.a_step)), mask)
                both = b.or_(lower, b.shl(upper, constant(wide, 16)))
                b.store(both, b.bitcast(b.gep(at, [b.mul(g, _c(LINE_BYTES))]), wide.as_pointer()), align=LINE_BYTES)

            _for(b, whole, part)
            if _known(some) != 0:
                with contextlib.nullcontext() if _known(some) else b.if_then(some):
                    part(whole, self._first_bytes(self._scaled(rest, 2)))

        _for(b, pairs, pair)

    # ------------------------------------------------------------ the sums

    def _block(self, height: int, t: Any, first: Any, count: int, right: Any, at: Any, pairs: Any, again: Any, mask: Any) -> None:
        """A block of sums, in registers over this run of k."""
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
                pair = load(left, b.add(b.mul(s, _c(self.pair_bytes)), _c(i * self.row_bytes)), I32, 4)
                x = splat(Value(b, pair), lanes).v
                for j in range(count):
                    new[i * count + j] = self._dot(new[i * count + j], x, columns[j])
            return new

        sums = _counted_loop(b, pairs, [constant(self.vector, 0)] * (count * height), step)
        row = b.add(first, _times(b, t, height))
        places = [(b.add(b.mul(self.ldc, b.add(row, _c(i))), b.add(at, _c(j * lanes))), mask if j == count - 1 else None)
                  for i in range(height) for j in range(count)]  # fmt: skip
        store_sums(b, self.kinds[2], self.out, places, sums, again)

    def _dot(self, sums: Any, x: Any, y: Any) -> Any:
        b, kind = self.b, ir.VectorType(_BFloat(), 2 * self.lanes)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}"
        function = intrinsic_function(b.module, name, self.vector, [self.vector, kind, kind])
        return b.call(function, [sums, b.bitcast(x, kind), b.bitcast(y, kind)])
