"""Contractions of bytes: C[M, N] = A[M, K] B[K, N] with factors of 8 bits and exact sums of 32 (modulo 2**32).

Four steps of k are one: a lane of 32 bits holds four bytes of a row of A, or of a column of B (packed so ahead). A target's dot
instructions take factors of certain signs (`Target.byte_dots`): x86's one unsigned and one signed, Arm's two of a kind, and with
I8MM mixed ones, too. For other signs A's bytes are changed by 128, which flips their topmost bit, and 128 times the sums of B's
columns are taken off: of one block of rows at its end, of several before the first, so that they are found once for all of them:

    A signed, taken as unsigned      sum a b = sum (a + 128) b - sum 128 b
    A unsigned, taken as signed      sum a b = sum (a - 128) b - sum (-128) b

NEON without dot products multiplies bytes of a kind to 16 bits and adds pairs of these to 32. Other targets without such an
instruction widen the bytes, multiply and add pairs of 16 bits, or one after the other. Rows of A are
widened once for all columns where they fit the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.lib.buffer import Buf, tag
from codegen.lib.emit import I32, I64, Value, constant, intrinsic_function, order_of
from codegen.lib.micro_kernels import scalable
from codegen.lib.micro_kernels.blocks import _c, _counted_loop, _for, _known, _literal, over_panels, over_rows, panel_lanes, splat
from codegen.lib.micro_kernels.contract import store_vector
from codegen.lib.micro_kernels.grouped import grouped_product, grouped_typer
from codegen.lib.micro_kernels.tiles import LEAST_ROWS, TileProduct, is_permitted, tiles_for
from codegen.lib.outline import outlined
from codegen.lib.register import register
from codegen.target import ByteDot, current_target

__all__ = ["ByteDots", "gemm_bytes", "is_of_bytes", "signs_of", "turns_of"]

_BYTES, _SUMS = ("int8", "uint8"), ("int32", "uint32")
MOST_WIDE_BYTES = 1 << 16  # of a block's rows in numbers of 16 bits, on the stack
MOST_ROWS_OF_LANES = 10  # LLVM loads some rows ahead of their products, and spills sums of twelve
MOST_ROWS_IN_HALVES = 5  # of two registers for each vector of sums
CHAINS = 4  # sums of a column side by side, so that none waits for the one before
_HIGH_BITS = -2139062144  # 0x80 in each byte: what is signed becomes unsigned, 128 more; what is unsigned signed, 128 less


def gemm_bytes(
    m: int, n: int, k: int, a: Any, a_off: int, a_rs: int, b: Any, b_off: int, b_panel_stride: int,
    c: Any, c_off: int, ldc: int, panel: int,
) -> None:  # fmt: skip
    """`grouped_product` with four steps of k side by side."""
    grouped_product(4, np.int32, m, n, k, a, a_off, a_rs, b, b_off, b_panel_stride, c, c_off, ldc, panel)


def is_of_bytes(a: Buf, b: Buf, c: Buf) -> bool:
    """True where both factors are bytes and the sums have 32 bits."""
    return a.dtype in _BYTES and b.dtype in _BYTES and c.dtype in _SUMS


class ByteDots:
    """Four products a lane, of factors of given kinds, and what is taken off their sums, before the first or after the last."""

    def __init__(self, b: Any, left: Buf, right: Buf, vector: Any, pointers: Sequence[Any]) -> None:
        self._builder, self._vector = b, vector
        self._signed = signs_of(left, right)
        self._dot = dot_instruction(vector.count, self._signed)
        self.in_halves = self._dot is None and _multiplies_bytes(vector.count)
        """Whether a lane's products are summed in two lanes, which `whole` adds up."""
        taken = self._dot.signed if self._dot is not None else (self._signed[1],) * 2 if self.in_halves else self._signed
        self.corrected = sorted(taken) != sorted(self._signed)
        """Whether `sums` of the right factor are taken off."""
        self.total = ir.VectorType(I32, 2 * vector.count) if self.in_halves else vector
        self._shift = _shift(b, vector, pointers) if self.corrected else None

    def left(self, bytes_: Value) -> Value:
        """The left factor's bytes as `product` takes them."""
        return bytes_.wrap(self._builder.xor(bytes_.v, self._shift)) if self.corrected else bytes_

    def broadcasts(self, bytes_: Value) -> list[Value]:
        """The same of bytes of a row that lie side by side, an integer of 32 bits or more: each four of them in all lanes.

        NEON's instructions take them from a lane of a register. They are changed before they are put into it: there are other
        pipes for integers.
        """
        lanes = self._vector.count
        if not _by_lanes():
            return [self.left(splat(bytes_, lanes))]
        b, count = self._builder, bytes_.type.width // 32
        if self.corrected:
            bytes_ = bytes_ ^ sum((_HIGH_BITS & 0xFFFFFFFF) << 32 * u for u in range(count))
        quads = b.bitcast(bytes_.v, ir.VectorType(I32, count))
        return [bytes_.wrap(b.shuffle_vector(quads, quads, order_of((u,) * lanes))) for u in range(count)]

    def product(self, total: Value, left: Value, right: Value) -> Value:
        """total + the four products in each lane, of bytes that `left` has changed."""
        dot = self._dot
        if dot is None:
            return (self._halves if self.in_halves else self._widened)(total, left, right)
        # Of factors of a kind NEON's instruction takes the second one from a lane.
        given = (left, right) if dot.signed[0] != dot.signed[1] and dot.signed[1] == self._signed[1] else (right, left)
        b, kind, name = self._builder, self._vector, dot.intrinsic(self._vector.count)
        if current_target().is_arm:
            kind = ir.VectorType(ir.IntType(8), 4 * kind.count)
        values = [total.v, *(b.bitcast(x.v, kind) for x in given)]
        if current_target().sve_bytes:
            return total.wrap(scalable.call(b, name, values))
        return total.wrap(b.call(intrinsic_function(b.module, name, self._vector, [x.type for x in values]), values))

    def sums(self, total: Value, right: Value) -> Value:
        """total + what `left` has added to the four products in each lane."""
        return self.product(total, right.wrap(self._shift), right)

    def whole(self, total: Value) -> Value:
        """A total's lanes as those of the result."""
        if not self.in_halves:
            return total
        fn = intrinsic_function(self._builder.module, "llvm.aarch64.neon.addp.v4i32", self._vector, [self._vector] * 2)
        return total.wrap(self._builder.call(fn, [_half(self._builder, total.v, side) for side in range(2)]))

    def _halves(self, total: Value, left: Value, right: Value) -> Value:
        """Products of half of the bytes in 16 bits, which hold any, added to the total in pairs; then those of the others."""
        b, of_bytes, short = self._builder, ir.VectorType(ir.IntType(8), 16), ir.VectorType(ir.IntType(16), 8)
        s = "s" if self._signed[1] else "u"
        given = [b.bitcast(x.v, of_bytes) for x in (left, right)]
        made = []
        for side in range(2):
            parts = [_half(b, x, side) for x in given]
            multiply = intrinsic_function(b.module, f"llvm.aarch64.neon.{s}mull.v8i16", short, [x.type for x in parts])
            add = intrinsic_function(b.module, f"llvm.aarch64.neon.{s}addlp.v4i32.v8i16", self._vector, [short])
            made.append(b.add(_half(b, total.v, side), b.call(add, [b.call(multiply, parts)])))
        return total.wrap(b.shuffle_vector(*made, order_of(tuple(range(8)))))

    def _widened(self, total: Value, left: Value, right: Value) -> Value:
        """The products of bytes that are widened before: of bytes 0 and 2, then 1 and 3, in pairs, or of one after the other."""
        b = self._builder
        if pair_instruction(self._vector.count) is not None:
            for place in range(2):
                total = self.pairs(total, *(wide(b, x.v, place, s) for x, s in zip((left, right), self._signed, strict=True)))
            return total
        for place in range(4):
            factors = [wide(b, x.v, place, s, 32) for x, s in zip((left, right), self._signed, strict=True)]
            total = total + total.wrap(b.mul(*factors))
        return total

    def pairs(self, total: Value, left: Any, right: Any) -> Value:
        """total + the two products in each lane, of numbers of 16 bits."""
        name = pair_instruction(self._vector.count)
        assert name is not None
        fn = intrinsic_function(self._builder.module, name, self._vector, [left.type] * 2)
        return total + total.wrap(self._builder.call(fn, [left, right]))


def wide(b: Any, x: Any, place: int, is_signed: bool, bits: int = 16) -> Any:
    """Bytes of lanes of 32 bits as numbers of 16: bytes 0 and 2 for place 0, 1 and 3 for place 1; or one of four as 32 bits."""
    kind = ir.VectorType(ir.IntType(bits), getattr(x.type, "count", 1) * 32 // bits)
    at_top = b.shl(b.bitcast(x, kind), constant(kind, bits - 8 - 8 * place))
    return (b.ashr if is_signed else b.lshr)(at_top, constant(kind, bits - 8))


def signs_of(left: Buf, right: Buf) -> tuple[bool, bool]:
    """Which of the factors have signs."""
    return left.dtype == "int8", right.dtype == "int8"


def dot_instruction(lanes: int, signed: tuple[bool, bool]) -> ByteDot | None:
    """What sums the products of four bytes in each of so many lanes, where the target has it: one that takes the factors as they
    are, in either order, or else one that takes the right factor, and the left one with its topmost bit flipped."""
    target = current_target()
    if lanes not in (4, 8, 16) or lanes > target.lanes(4) or (target.sve_bytes and lanes < target.lanes(4)):
        return None
    changed = not signed[0], signed[1]
    wanted = (signed, signed[::-1], changed, changed[::-1])
    return next((dot for kind in wanted for dot in target.byte_dots if dot.signed == kind), None)


def _multiplies_bytes(lanes: int) -> bool:
    """Whether instructions multiply bytes to 16 bits, and add these in pairs to lanes of 32: NEON's, which each Arm CPU has."""
    target = current_target()
    return lanes == 4 and target.is_arm and not target.sve_bytes and "+neon" in target.features.split(",")


def _half(b: Any, x: Any, side: int) -> Any:
    """The first or the second half of a vector's lanes."""
    count = x.type.count // 2
    return b.shuffle_vector(x, x, order_of(tuple(range(side * count, (side + 1) * count))))


def _by_lanes() -> bool:
    """Whether dot instructions take a factor's four bytes from any lane of a register: NEON's do. (SVE's do in each 16 bytes of
    it; it loads four bytes into all lanes at once.)"""
    target = current_target()
    return bool(target.is_arm and target.byte_dots and not target.sve_bytes)


def pair_instruction(lanes: int) -> str | None:
    """LLVM's name of what sums two products of 16 bits in each of so many lanes, where the target has it."""
    names = {4: ("sse2", "sse2.pmadd.wd"), 8: ("avx2", "avx2.pmadd.wd"), 16: ("avx512bw", "avx512.pmaddw.d.512")}
    feature, name = names.get(lanes, ("", ""))
    return f"llvm.x86.{name}" if name and f"+{feature}" in current_target().features.split(",") else None


def _shift(b: Any, vector: Any, pointers: Sequence[Any]) -> Any:
    """What flips the topmost bit of each byte. On x86 it is no constant: LLVM's instruction selection does not end on a constant
    factor there. The topmost bit of an address is 0 in every user process, which LLVM does not know. (Arm's may have a tag.)

    Nor does it know that lanes with the bits of two addresses are alike. Of a number in all lanes it would change four bytes of a
    row before they are put into them, which then takes an instruction of the pipes that multiply in place of a load's.
    """
    bits: Any = ir.Constant(I32, _HIGH_BITS)
    if current_target().is_arm:
        return splat(Value(b, bits), vector.count).v
    tops = [b.trunc(b.lshr(b.ptrtoint(p, I64), _c(63)), I32) for p in pointers]
    first, second = (splat(Value(b, b.or_(top, bits)), vector.count).v for top in tops)
    return b.shuffle_vector(first, second, order_of(tuple(k + k % 2 * vector.count for k in range(vector.count))))


def _quad(b: Any, kind: Buf, base: Any, offset: Any, vector: Any) -> Any:
    access = b.load(b.bitcast(b.gep(base, [offset]), vector.as_pointer()))
    access.align = 1
    return tag(b.module, access, kind.scope)


def _lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
    """By tiles where the target has them, the process may use them, and there are rows enough; else by vectors."""
    value = [_literal(v, t) for v, t in zip(args, sig.args, strict=True)]
    m, n, k = value[:3]
    panel = int(sig.args[12].literal_value)
    if not tiles_for(panel, (_known(m), _known(n), _known(k)), "amx-int8"):
        _by_vectors(b, sig, value)
        return context.get_dummy_value()
    enough = b.icmp_signed(">=", m, _c(LEAST_ROWS))
    with b.if_else(b.and_(is_permitted(b), enough)) as (then, otherwise):
        with then:
            _by_tiles(b, sig, value, panel)
        with otherwise:
            _by_vectors(b, sig, value)
    return context.get_dummy_value()


def _by_tiles(b: Any, sig: Any, value: list[Any], panel: int) -> None:
    m, n, k, a, a_off, a_rs, bb, b_off, b_panel, c, c_off, ldc, _ = value
    kinds = sig.args[3], sig.args[6], sig.args[9]
    signs = "".join("s" if kind.dtype == "int8" else "u" for kind in kinds[:2])
    left, right, out = b.gep(a, [a_off]), b.gep(bb, [b_off]), b.gep(c, [c_off])
    TileProduct(b, f"tdpb{signs}d", kinds, (m, n, k), (left, a_rs), (right, b_panel, panel), (out, ldc)).all()


def _by_pairs(b: Any, sig: Any, value: list[Any], lanes: int, quads: int) -> None:
    """By products of pairs of 16 bits: a block's rows are widened once for all panels, a panel's columns once for all rows."""
    m, n, _, a, a_off, a_rs, bb, b_off, b_panel, c, c_off, ldc, _ = value
    a_kind, b_kind, c_kind = sig.args[3], sig.args[6], sig.args[9]
    panel = int(sig.args[12].literal_value)
    vectors = panel // lanes
    vector = ir.VectorType(I32, lanes)
    dots = ByteDots(b, a_kind, b_kind, vector, (a, c))
    rows = _rows_of_pairs(vectors)
    with b.goto_entry_block():
        pairs = b.alloca(I32, _c(2 * rows * quads))
        pairs.align = 64

    def widen(i: int, row: Any) -> None:
        base = b.gep(a, [b.add(a_off, b.mul(a_rs, b.add(row, _c(i))))])

        def some(first: Any, kind: Any) -> None:
            four = _quad(b, a_kind, base, b.mul(first, _c(4)), kind)
            for place in range(2):
                at = b.bitcast(b.gep(pairs, [b.add(first, _c((2 * i + place) * quads))]), kind.as_pointer())
                b.store(b.bitcast(wide(b, four, place, a_kind.dtype == "int8"), kind), at).align = 4

        _for(b, _c(quads // lanes), lambda t: some(b.mul(t, _c(lanes)), vector))
        _for(b, _c(quads % lanes), lambda t: some(b.add(t, _c(quads // lanes * lanes)), ir.VectorType(I32, 1)))

    def tile(height: int, row: Any, count: int, b_at: Any, c_at: Any, mask: Any) -> None:
        b_base = b.gep(bb, [b_at])

        def step(place: int, quad: Any, sums: list[Any]) -> list[Any]:
            at = b.mul(quad, _c(4 * panel))
            columns = [_quad(b, b_kind, b_base, b.add(at, _c(4 * j * lanes)), vector) for j in range(count)]
            right = [wide(b, x, place, b_kind.dtype == "int8") for x in columns]
            new = []
            for i in range(height):
                pair = Value(b, b.load(b.gep(pairs, [b.add(quad, _c((2 * i + place) * quads))])))
                left = b.bitcast(splat(pair, lanes).v, right[0].type)
                new += [dots.pairs(Value(b, sums[i * count + j]), left, right[j]).v for j in range(count)]
            return new

        # Two loops: in one, LLVM would multiply both pairs of all rows before it adds, and registers would not hold them.
        sums: list[Any] = [constant(vector, 0)] * (count * height)
        for place in range(2):
            sums = _counted_loop(b, _c(quads), sums, partial(step, place))
        for i in range(height):
            for j in range(count):
                at = b.add(c_at, b.add(b.mul(ldc, b.add(row, _c(i))), _c(j * lanes)))
                store_vector(b, c_kind, c, at, Value(b, sums[i * count + j]), mask if j == count - 1 else None)

    def block(height: int, row: Any, _: Any) -> None:
        for i in range(height):
            widen(i, row)

        def columns(count: int, p: Any, inside: Any, mask: Any) -> None:
            b_at, c_at = b.add(b_off, b.mul(p, b_panel)), b.add(c_off, b.mul(p, _c(panel)))
            if inside is not None:
                b_at, c_at = b.add(b_at, b.mul(inside, _c(4))), b.add(c_at, inside)
            tile(height, row, count, b_at, c_at, mask)

        over_panels(b, n, panel, lanes, columns)

    over_rows(b, m, rows, block)


def _rows_of_pairs(vectors: int) -> int:
    """Sums of so many rows fit registers, beside a row of B, a broadcast and a product."""
    return max(1, min((current_target().vector_registers - vectors - 2) // vectors, 12))


def _quads_in_pairs(k: Any, lanes: int, vectors: int) -> int | None:
    """The steps of four of a sum whose rows are widened ahead: where the target multiplies pairs and no more, and they fit."""
    known = _known(k)
    if known is None or current_target().byte_dots or pair_instruction(lanes) is None:
        return None
    return known // 4 if 0 < 2 * known * _rows_of_pairs(vectors) <= MOST_WIDE_BYTES else None


def turns_of(b: Any, count: Any, together: int) -> list[tuple[Any, int, Any]]:
    """(first step, steps, turns) of the loops over `count` steps: so many `together`, then what is left one by one."""
    if together == 1:
        return [(_c(0), 1, count)]
    known = _known(count)
    whole = b.sdiv(count, _c(together)) if known is None else _c(known // together)
    done = b.mul(whole, _c(together)) if known is None else _c(known // together * together)
    rest = b.sub(count, done) if known is None else _c(known % together)
    return [x for x in ((_c(0), together, whole), (done, 1, rest)) if _known(x[2]) != 0]


def _by_vectors(b: Any, sig: Any, value: list[Any]) -> None:
    m, n, k, a, a_off, a_rs, bb, b_off, b_panel, c, c_off, ldc, _ = value
    a_kind, b_kind, c_kind = sig.args[3], sig.args[6], sig.args[9]
    panel = int(sig.args[12].literal_value)
    target = current_target()
    lanes = panel_lanes(panel, 4)
    vectors = panel // lanes
    in_pairs = _quads_in_pairs(k, lanes, vectors)
    if in_pairs is not None:
        _by_pairs(b, sig, value, lanes, in_pairs)
        return
    vector = ir.VectorType(I32, lanes)
    dots = ByteDots(b, a_kind, b_kind, vector, (a, c))
    together = 2 if _by_lanes() else 1  # steps whose bytes of a row are loaded into one register
    # Sums, the columns' own sums where they are found beside them, a row of B, and a broadcast with its shift.
    most = 12 if together == 1 else MOST_ROWS_OF_LANES

    def rows_beside(others: int) -> int:
        """Rows of a block, where so many rows of other sums are found with it."""
        fit = max(1, min((target.vector_registers - (1 + others) * vectors - 3) // vectors, most))
        return min(fit, MOST_ROWS_IN_HALVES - others) if dots.in_halves else fit

    known_rows = _known(m)
    ahead = dots.corrected and (known_rows is None or known_rows > rows_beside(1))
    beside = int(dots.corrected and not ahead)
    rows = rows_beside(beside)
    quads = b.sdiv(k, _c(4)) if _known(k) is None else _c(_known(k) // 4)  # type: ignore[operator]

    def rows_of_b(b_base: Any, quad: Any, steps: int, count: int) -> list[list[Value]]:
        at = [b.mul(b.add(quad, _c(u)), _c(4 * panel)) for u in range(steps)]
        return [[Value(b, _quad(b, b_kind, b_base, b.add(x, _c(4 * j * lanes)), vector)) for j in range(count)] for x in at]

    def taken_off(count: int, b_at: Any) -> list[Any]:
        """The sums of a panel's columns, of which each block of rows begins with what is taken off."""
        b_base = b.gep(bb, [b_at])

        def turn(first: Any, steps: int, t: Any, sums: list[Any]) -> list[Any]:
            found = rows_of_b(b_base, b.add(first, b.mul(t, _c(steps))), steps, count)
            each = [x for row_of_b in found for x in row_of_b]
            return [dots.sums(Value(b, s), x).v for s, x in zip(sums, each, strict=False)] + sums[len(each) :]

        sums: list[Any] = [constant(dots.total, 0)] * (count * CHAINS)
        for first, steps, turns in turns_of(b, quads, CHAINS):
            sums = _counted_loop(b, turns, sums, partial(turn, first, steps))
        whole = [Value(b, s) for s in sums]
        return [(Value(b, constant(dots.total, 0)) - sum(whole[j + count :: count], whole[j])).v for j in range(count)]

    def tile(height: int, row: Any, count: int, b_at: Any, c_at: Any, mask: Any, less: list[Any]) -> None:
        a_base = b.gep(a, [b.add(a_off, b.mul(row, a_rs))])
        b_base = b.gep(bb, [b_at])

        def step(steps: int, quad: Any, sums: list[Any]) -> list[Any]:
            columns = rows_of_b(b_base, quad, steps, count)
            new = list(sums)
            for i in range(height):
                bytes_ = _quad(b, a_kind, a_base, b.add(b.mul(quad, _c(4)), b.mul(a_rs, _c(i))), ir.IntType(32 * steps))
                for x, row_of_b in zip(dots.broadcasts(Value(b, bytes_)), columns, strict=True):
                    for j in range(count):
                        new[i * count + j] = dots.product(Value(b, new[i * count + j]), x, row_of_b[j]).v
            if beside:
                for row_of_b in columns:
                    for j in range(count):
                        new[height * count + j] = dots.sums(Value(b, new[height * count + j]), row_of_b[j]).v
            return new

        def turn(first: Any, steps: int, t: Any, sums: list[Any]) -> list[Any]:
            return step(steps, b.add(first, b.mul(t, _c(steps))), sums)

        sums: list[Any] = less * height if less else [constant(dots.total, 0)] * (count * (height + beside))
        for first, steps, turns in turns_of(b, quads, together):
            sums = _counted_loop(b, turns, sums, partial(turn, first, steps))
        for i in range(height):
            for j in range(count):
                total = Value(b, sums[i * count + j])
                if beside:
                    total = total - Value(b, sums[height * count + j])
                total = dots.whole(total)
                at = b.add(c_at, b.add(b.mul(ldc, b.add(row, _c(i))), _c(j * lanes)))
                store_vector(b, c_kind, c, at, total, mask if j == count - 1 else None)

    def columns(count: int, p: Any, inside: Any, mask: Any) -> None:
        b_at, c_at = b.add(b_off, b.mul(p, b_panel)), b.add(c_off, b.mul(p, _c(panel)))
        if inside is not None:
            b_at, c_at = b.add(b_at, b.mul(inside, _c(4))), b.add(c_at, inside)
        less = taken_off(count, b_at) if ahead else []
        over_rows(b, m, rows, lambda height, row, _: tile(height, row, count, b_at, c_at, mask, less))

    over_panels(b, n, panel, lanes, columns)


register(gemm_bytes, grouped_typer(is_of_bytes), outlined("gemm_bytes", _lower, extents=3))
