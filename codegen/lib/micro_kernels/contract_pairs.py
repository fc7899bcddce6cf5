"""Contractions of bf16: C[M, N] = A[M, K] B[K, N] with sums in f32, two steps of k side by side in B's panels.

Tiles multiply bf16 sixteen times as fast as vectors, but take denormal numbers for zero and give zero for them. Neither occurs
where the least magnitudes |a| and |b| of both factors, zeros apart, are normal numbers with

    |a| |b| >= 2^-108

A number of bf16 has 7 bits after the first one, so that all products are then multiples of 2^-122; so are all sums of them,
however they are rounded, and none but zero is less than 2^-126. It is looked for while the product is computed: once for each
panel of B, once for the rows of A that are copied together. Where it does not hold, and on other CPUs, vectors compute the
product of the factors as f32, the products of each pair one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.lib.buffer import Buf
from codegen.lib.emit import F32, I8, I16, I32, I64, Value, constant, intrinsic_function
from codegen.lib.micro_kernels.blocks import _c, _counted_loop, _for, _known, _literal, over_panels, over_rows, panel_lanes, splat
from codegen.lib.micro_kernels.contract import store_vector
from codegen.lib.micro_kernels.grouped import grouped_product, grouped_typer
from codegen.lib.micro_kernels.tiles import BLOCK_ROWS, LEAST_ROWS, TILE_BYTES, TileProduct, is_permitted, tiles_for
from codegen.lib.outline import outlined
from codegen.lib.register import register
from codegen.target import current_target

__all__ = ["gemm_pairs"]

LEAST_EXPONENTS = 254 - 108  # of both factors together, as they are stored: each with 127 more
MOST_PANELS = 512  # whose least exponents are kept; of others they are looked for by each copy of rows
_HIGH = -65536  # the upper half of 32 bits
_EXACT = "tilewright_pairs_by_vectors"


def gemm_pairs(
    m: int, n: int, k: int, a: Any, a_off: int, a_rs: int, b: Any, b_off: int, b_panel_stride: int,
    c: Any, c_off: int, ldc: int, panel: int,
) -> None:  # fmt: skip
    """`grouped_product` with two steps of k side by side."""
    grouped_product(2, np.float32, m, n, k, a, a_off, a_rs, b, b_off, b_panel_stride, c, c_off, ldc, panel)


def _is_of_pairs(a: Buf, b: Buf, c: Buf) -> bool:
    return [a.dtype, b.dtype, c.dtype] == ["bfloat16", "bfloat16", "float32"]


# ------------------------------------------------------------------ by vectors


def _by_vectors(b: Any, kinds: tuple[Buf, Buf, Buf], extents: tuple[Any, Any, Any], a: tuple[Any, Any],
                right: tuple[Any, Any, int], out: tuple[Any, Any]) -> None:  # fmt: skip
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

        def step(t: Any, sums: list[Any]) -> list[Any]:
            at = b.mul(t, _c(2 * panel))
            columns = [halves(load(b_base, b.add(at, _c(2 * j * lanes)), pair)) for j in range(count)]
            new = list(sums)
            for i in range(height):
                both = load(a_base, b.add(b.mul(t, _c(2)), b.mul(a_row, _c(i))), I32)
                for part, x in enumerate(halves(splat(Value(b, both), lanes).v)):
                    for j in range(count):
                        new[i * count + j] = _sum(x, columns[j][part], Value(b, new[i * count + j])).v
            return new

        sums = _counted_loop(b, pairs, [constant(vector, 0)] * (count * height), step)
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


# ------------------------------------------------------------------ by tiles


class _PairProduct(TileProduct):
    """A product by tiles which asks, for each panel and the rows that meet it, whether tiles compute it."""

    def __init__(self, b: Any, kinds: tuple[Buf, Buf, Buf], extents: tuple[Any, Any, Any], a: tuple[Any, Any],
                 right: tuple[Any, Any, int], out: tuple[Any, Any]) -> None:  # fmt: skip
        super().__init__(b, "tdpbf16ps", kinds, extents, a, right, out)
        self.given = extents, a, right, out
        self.exact = _vectors_function(b, kinds, right[2], (a[0], right[0], out[0]))
        self.least_left: Any = None
        with b.goto_entry_block():
            self.kept = b.alloca(ir.ArrayType(I16, MOST_PANELS))
        panels = self._over_up(self.n, self.panel)
        count = self._least(panels, MOST_PANELS)
        _for(b, count, lambda p: b.store(ir.Constant(I16, 0), self._place(p)))

    def _place(self, panel: Any) -> Any:
        return self.b.gep(self.kept, [ir.Constant(I32, 0), panel])

    def _before_panels(self, down: Any, count: Any, left: Any) -> None:
        b = self.b
        height = down.sizes[0] if len(down.sizes) == 1 else b.add(*down.sizes)
        self.rows = b.add(b.mul(b.sub(count, _c(1)), _c(BLOCK_ROWS)), height)
        self.left = left
        self.least_left = self._least_exponent(left, self.rows, self.a_row, self.depth)

    def _panel(self, product: Callable[[], None], number: Any, columns: tuple[Any, ...], out: Any, begin: Any) -> None:
        b = self.b
        (_, _, k), (a, a_row), (right, right_panel, _), (c, ldc) = self.given
        base = b.gep(self.right, [b.mul(number, self.right_panel)])
        least_right = self._of_panel(number, base)
        normal = b.and_(b.icmp_signed(">", self.least_left, _c(0)), b.icmp_signed(">", least_right, _c(0)))
        enough = b.icmp_signed(">=", b.add(self.least_left, least_right), _c(LEAST_EXPONENTS))
        width = columns[0] if len(columns) == 1 else b.add(*columns)
        with b.if_else(b.and_(normal, enough)) as (then, otherwise):
            with then:
                product()
            with otherwise, b.if_then(b.icmp_signed("==", begin, _c(0))):
                places = (b.bitcast(x, y.type) for x, y in ((self.left, a), (base, right), (out, c)))
                left_at, right_at, out_at = places
                b.call(self.exact, [self.rows, width, k, left_at, a_row, right_at, right_panel, out_at, ldc])

    def _of_panel(self, number: Any, base: Any) -> Any:
        """The least exponent of a panel, which is looked for once."""
        b = self.b
        has_place = b.icmp_signed("<", number, _c(MOST_PANELS))
        place = self._place(b.select(has_place, number, _c(0)))
        kept = b.select(has_place, b.zext(b.load(place), I64), _c(0))
        before = b.block
        with b.if_then(b.icmp_signed("==", kept, _c(0))):
            # All columns of all panels but the last are there, of which those behind the result's are not.
            left = b.sub(self.n, b.mul(number, _c(self.panel)))
            width = b.select(b.icmp_signed("<", left, _c(self.panel)), left, _c(self.panel))
            groups = self._over(self.depth, 4)
            found = self._least_exponent(base, groups, _c(self.group_bytes), b.mul(width, _c(4)))
            found = b.add(found, _c(1))  # as it is kept: 0 is not known yet
            with b.if_then(has_place):
                b.store(b.trunc(found, I16), place)
            looking = b.block
        merged = b.phi(I64)
        merged.add_incoming(kept, before)
        merged.add_incoming(found, looking)
        return b.sub(merged, _c(1))

    def _least_exponent(self, base: Any, rows: Any, row_bytes: Any, bytes_: Any) -> Any:
        """The least stored exponent of the numbers in rows of so many bytes, zeros apart; more than any where all are zero."""
        b, lanes = self.b, TILE_BYTES // 2
        vector = ir.VectorType(I16, lanes)
        least = intrinsic_function(b.module, f"llvm.umin.v{lanes}i16", vector, [vector, vector])
        whole, rest = self._over(bytes_, TILE_BYTES), self._modulo(bytes_, TILE_BYTES)
        some, mask = self._compare(">", rest, 0), self._first_bytes(rest)

        def met(found: Any, raw: Any) -> Any:
            magnitude = b.and_(b.bitcast(raw, vector), constant(vector, 0x7FFF))
            return b.call(least, [found, b.sub(magnitude, constant(vector, 1))])  # zero becomes the greatest

        def row(t: Any, found: list[Any]) -> list[Any]:
            at = b.gep(base, [b.mul(t, row_bytes)])

            def step(s: Any, found: list[Any]) -> list[Any]:
                access = b.load(b.bitcast(b.gep(at, [b.mul(s, _c(TILE_BYTES))]), ir.VectorType(I8, TILE_BYTES).as_pointer()))
                access.align = 1
                return [met(found[0], access)]

            found = _counted_loop(b, whole, found, step)
            if _known(some) == 0:
                return found
            last = self._masked_load(b.gep(at, [b.mul(whole, _c(TILE_BYTES))]), mask)
            return [met(found[0], last)]

        (found,) = _counted_loop(b, rows, [constant(vector, 0xFFFF)], row)
        fold = intrinsic_function(b.module, f"llvm.vector.reduce.umin.v{lanes}i16", I16, [vector])
        return b.lshr(b.add(b.zext(b.call(fold, [found]), I64), _c(1)), _c(7))


def _lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
    value = [_literal(v, t) for v, t in zip(args, sig.args, strict=True)]
    m, n, k, a, a_off, a_rs, bb, b_off, b_panel, c, c_off, ldc, _ = value
    panel = int(sig.args[12].literal_value)
    kinds = sig.args[3], sig.args[6], sig.args[9]
    given = (m, n, k), (b.gep(a, [a_off]), a_rs), (b.gep(bb, [b_off]), b_panel, panel), (b.gep(c, [c_off]), ldc)
    if not tiles_for(panel, (_known(m), _known(n), _known(k)), "amx-bf16"):
        _by_vectors(b, kinds, *given)
        return context.get_dummy_value()
    enough = b.icmp_signed(">=", m, _c(LEAST_ROWS))
    with b.if_else(b.and_(is_permitted(b), enough)) as (then, otherwise):
        with then:
            _PairProduct(b, kinds, *given).all()
        with otherwise:
            exact = _vectors_function(b, kinds, panel, (given[1][0], given[2][0], given[3][0]))
            b.call(exact, [m, n, k, given[1][0], a_rs, given[2][0], b_panel, given[3][0], ldc])
    return context.get_dummy_value()


register(gemm_pairs, grouped_typer(_is_of_pairs), outlined("gemm_pairs", _lower, extents=3))
