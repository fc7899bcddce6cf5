"""Contractions of bf16: C[M, N] = A[M, K] B[K, N] with sums in f32, two steps of k side by side in B's panels.

Tiles multiply bf16 sixteen times as fast as multiply-adds of f32, a dot instruction of vectors twice as fast. Both take denormal
numbers for zero and give zero for them, and are used where none can occur (`exponents`). That is looked for while the product is
computed: once for each panel of B, once for the rows of A that are copied together. Where it does not hold, and on other CPUs,
vectors compute the product of the factors as f32, the products of each pair one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.lib.buffer import Buf
from codegen.lib.emit import I1
from codegen.lib.micro_kernels.blocks import _c, _for, _known, _literal
from codegen.lib.micro_kernels.exponents import Exponents
from codegen.lib.micro_kernels.grouped import grouped_product, grouped_typer
from codegen.lib.micro_kernels.pair_dots import PairDots
from codegen.lib.micro_kernels.pair_vectors import by_vectors, vectors_function
from codegen.lib.micro_kernels.tiles import BLOCK_ROWS, LEAST_ROWS, TileProduct, is_permitted, tiles_for
from codegen.lib.outline import outlined
from codegen.lib.register import register
from codegen.target import current_target

__all__ = ["gemm_pairs"]


def gemm_pairs(
    m: int, n: int, k: int, a: Any, a_off: int, a_rs: int, a_cs: int, b: Any, b_off: int, b_panel_stride: int,
    c: Any, c_off: int, ldc: int, panel: int, band: int, band_step: int, *levels: int,
) -> None:  # fmt: skip
    """`grouped_product` with two steps of k side by side, for bands of rows and loops around k.

    Row i of A begins at (i // band) band_step + (i % band) a_rs, or at i a_rs where `band` is 0, as it is where a_cs, the step
    along k, is not 1 (then a_rs is). `levels` are (count, step in A, step in B) of loops around k that sum into the same block,
    outermost first; B goes on from one iteration to the next.
    """
    at = np.arange(k) * a_cs
    for count, step in reversed(list(zip(levels[::3], levels[1::3], strict=True))):
        at = (np.arange(count)[:, None] * step + at).reshape(-1)
    rows = np.arange(m)
    begin = rows // band * band_step + rows % band * a_rs if band else rows * a_rs
    left = a[a_off + begin[:, None] + at].reshape(-1)
    grouped_product(2, np.float32, m, n, len(at), left, 0, len(at), b, b_off, b_panel_stride, c, c_off, ldc, panel)


def _is_of_pairs(a: Buf, b: Buf, c: Buf) -> bool:
    return [a.dtype, b.dtype, c.dtype] == ["bfloat16", "bfloat16", "float32"]


# ------------------------------------------------------------------ where denormal numbers do not count


class _PairTiles(TileProduct):
    """A product by tiles which asks, for each panel and the rows that meet it, whether tiles compute it."""

    def __init__(self, b: Any, kinds: tuple[Buf, Buf, Buf], extents: tuple[Any, Any, Any], a: tuple[Any, Any],
                 right: tuple[Any, Any, int], out: tuple[Any, Any]) -> None:  # fmt: skip
        super().__init__(b, "tdpbf16ps", kinds, extents, a, right, out)
        self.exponents = Exponents(b, self.n, self.depth, (self.right, self.right_panel, self.panel))
        self.ldc = out[1]
        self.exact = vectors_function(b, kinds, right[2], (a[0], right[0], out[0]))

    def _before_panels(self, down: Any, count: Any, left: Any) -> None:
        b = self.b
        height = down.sizes[0] if len(down.sizes) == 1 else b.add(*down.sizes)
        self.rows = b.add(b.mul(b.sub(count, _c(1)), _c(BLOCK_ROWS)), height)
        self.left = left
        self.least_left = self.exponents.of_rows(left, self.rows, self.a_row, self.depth)

    def _panel(self, product: Callable[[], None], number: Any, columns: tuple[Any, ...], out: Any, begin: Any) -> None:
        b = self.b
        with b.if_else(self.exponents.are_normal(self.least_left, self.exponents.of_panel(number))) as (then, otherwise):
            with then:
                product()
            with otherwise, b.if_then(b.icmp_signed("==", begin, _c(0))):
                width = columns[0] if len(columns) == 1 else b.add(*columns)
                places = self.left, b.gep(self.right, [b.mul(number, self.right_panel)]), out
                kinds = (self.exact.args[k].type for k in (3, 6, 8))
                left, right, c = (b.bitcast(x, kind) for x, kind in zip(places, kinds, strict=True))
                row, panel = (self._over(x, self.item) for x in (self.a_row, self.right_panel))
                k = self._over(self.depth, self.item)
                b.call(self.exact, [self.rows, width, k, left, row, _c(2), right, panel, c, self.ldc, ir.Constant(I1, 0)])


def _lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
    value = [_literal(v, t) for v, t in zip(args, sig.args, strict=True)]
    m, n, k, a, a_off, a_rs, a_cs, bb, b_off, b_panel, c, c_off, ldc, _, *around = value
    panel, (rows_of_band, step, *loops) = int(sig.args[13].literal_value), [int(x.constant) for x in around]
    kinds, levels = (sig.args[3], sig.args[7], sig.args[10]), tuple(zip(loops[::3], loops[1::3], strict=True))
    right, lies_along = (b.gep(bb, [b_off]), b_panel, panel), _known(a_cs) == 1
    by_tiles = lies_along and not levels and tiles_for(panel, (rows_of_band or _known(m), _known(n), _known(k)), "amx-bf16")
    if current_target().pair_products > 1 and not by_tiles:
        left, out = (b.gep(a, [a_off]), a_rs, int(a_cs.constant)), (b.gep(c, [c_off]), ldc)
        PairDots(b, kinds, (m, n, k), left, right, out, (rows_of_band, step), levels).all()
        return context.get_dummy_value()

    def band(t: Any, rows: Any) -> None:
        begin, into = b.add(a_off, b.mul(t, _c(step))), b.add(c_off, b.mul(b.mul(t, rows), ldc))
        left, out = b.gep(a, [begin]), (b.gep(c, [into]), ldc)
        if not by_tiles:
            by_vectors(b, kinds, (rows, n, k), (left, a_rs, _c(2 * int(a_cs.constant)), a_cs), right, out, levels)
            return
        with b.if_else(b.and_(is_permitted(b), b.icmp_signed(">=", rows, _c(LEAST_ROWS)))) as (then, otherwise):
            with then:
                _PairTiles(b, kinds, (rows, n, k), (left, a_rs), right, out).all()
            with otherwise:
                exact = vectors_function(b, kinds, panel, (left, right[0], out[0]))
                b.call(exact, [rows, n, k, left, a_rs, _c(2), right[0], b_panel, *out, ir.Constant(I1, 0)])

    if rows_of_band:
        _for(b, b.udiv(m, _c(rows_of_band)), lambda t: band(t, _c(rows_of_band)))
    else:
        band(_c(0), m)
    return context.get_dummy_value()


register(gemm_pairs, grouped_typer(_is_of_pairs, steps=True, after=2, levels=True), outlined("gemm_pairs", _lower, 3, levels=16))
