"""Contractions of bytes by Arm's matrix multiply (I8MM): C[M, N] = A[M, K] B[K, N] with sums of 32 bits (modulo 2**32).

An instruction multiplies two rows of A by two columns of B, eight steps of k at once, and adds to a vector of four sums: twice
the products of a dot product, of every pair of signs. B's panels have eight steps of a column side by side, so that 16 bytes
are two columns. Rows of A are read as they lie, two at a time, and sums are put into rows before they are stored. Other targets
compute what the instruction does, step by step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.lib.emit import I8, I32, Value, constant, intrinsic_function, order_of
from codegen.lib.micro_kernels.blocks import _c, _counted_loop, _known, _literal, over_panels, over_rows
from codegen.lib.micro_kernels.contract import load_vector, store_vector
from codegen.lib.micro_kernels.contract_bytes import is_of_bytes, signs_of, turns_of
from codegen.lib.micro_kernels.grouped import grouped_product, grouped_typer
from codegen.lib.outline import outlined
from codegen.lib.register import register
from codegen.target import current_target

__all__ = ["gemm_mmla"]

ROWS = 8  # by eight columns: 16 vectors of sums
STEPS = 8  # of k that an instruction sums
_QUADS = ir.VectorType(I32, 4)
_BYTES = ir.VectorType(I8, 16)


def gemm_mmla(
    m: int, n: int, k: int, a: Any, a_off: int, a_rs: int, b: Any, b_off: int, b_panel_stride: int,
    c: Any, c_off: int, ldc: int, panel: int,
) -> None:  # fmt: skip
    """`grouped_product` with eight steps of k side by side."""
    grouped_product(8, np.int32, m, n, k, a, a_off, a_rs, b, b_off, b_panel_stride, c, c_off, ldc, panel)


class _Squares:
    """Products of two rows by two columns, of factors with such signs, and the rows of their sums."""

    def __init__(self, b: Any, signed: tuple[bool, bool]) -> None:
        self.builder, self.signed = b, signed
        wanted = (signed, signed[::-1])
        self.found = next((x for kind in wanted for x in current_target().byte_matrices if x.signed == kind), None)
        self.turned = self.found is not None and self.found.signed != signed
        """Whether a vector of sums has two columns of two rows: the instruction takes B's bytes first."""

    def product(self, total: Any, left: Any, right: Any) -> Any:
        """total + two rows by two columns."""
        b = self.builder
        if self.found is not None:
            fn = intrinsic_function(b.module, self.found.intrinsic(4), _QUADS, [_QUADS, _BYTES, _BYTES])
            return b.call(fn, [total, *((right, left) if self.turned else (left, right))])
        for t in range(STEPS):
            places = (t, t, STEPS + t, STEPS + t), (t, STEPS + t, t, STEPS + t)
            chosen = [b.shuffle_vector(x, x, order_of(p)) for x, p in zip((left, right), places, strict=True)]
            wide = [b.sext(x, _QUADS) if s else b.zext(x, _QUADS) for x, s in zip(chosen, self.signed, strict=True)]
            total = b.add(total, b.mul(*wide))
        return total

    def rows(self, first: Any, second: Any) -> list[Any]:
        """The two rows of four columns' sums, which are in two vectors."""
        orders = ((0, 2, 4, 6), (1, 3, 5, 7)) if self.turned else ((0, 1, 4, 5), (2, 3, 6, 7))
        return [self.builder.shuffle_vector(first, second, order_of(x)) for x in orders]


def _lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
    value = [_literal(v, t) for v, t in zip(args, sig.args, strict=True)]
    m, n, k, a, a_off, a_rs, bb, b_off, b_panel, c, c_off, ldc, _ = value
    a_kind, b_kind, c_kind = sig.args[3], sig.args[6], sig.args[9]
    panel = int(sig.args[12].literal_value)
    squares = _Squares(b, signs_of(a_kind, b_kind))
    if panel % 4:
        raise ValueError(f"panel of {panel} columns: expected a multiple of 4")
    known = _known(k)
    groups = b.sdiv(k, _c(STEPS)) if known is None else _c(known // STEPS)

    def tile(height: int, row: Any, count: int, b_at: Any, c_at: Any, mask: Any) -> None:
        # An odd last row is multiplied twice.
        lines = [b.gep(a, [b.add(a_off, b.mul(a_rs, b.add(row, _c(min(i, height - 1)))))]) for i in range(height + height % 2)]
        b_base = b.gep(bb, [b_at])

        def step(together: int, group: Any, sums: list[Any]) -> list[Any]:
            at = [b.mul(b.add(group, _c(u)), _c(STEPS * panel)) for u in range(together)]
            right = [[load_vector(b, b_kind, b_base, b.add(x, _c(16 * j)), 16).v for j in range(2 * count)] for x in at]
            new = list(sums)
            for i in range(0, len(lines), 2):
                pair = [load_vector(b, a_kind, x, b.mul(group, _c(STEPS)), STEPS * together).v for x in lines[i : i + 2]]
                for u in range(together):
                    own = range(STEPS * u, STEPS * (u + 1))
                    left = b.shuffle_vector(*pair, order_of((*own, *(STEPS * together + t for t in own))))
                    for j in range(2 * count):
                        place = i * count + j
                        new[place] = squares.product(new[place], left, right[u][j])
            return new

        def turn(first: Any, together: int, t: Any, sums: list[Any]) -> list[Any]:
            return step(together, b.add(first, b.mul(t, _c(together))), sums)

        sums: list[Any] = [constant(_QUADS, 0)] * (len(lines) * count)
        for first, together, turns in turns_of(b, groups, 2):
            sums = _counted_loop(b, turns, sums, partial(turn, first, together))
        for i in range(0, len(lines), 2):
            for j in range(count):
                made = squares.rows(*sums[i * count + 2 * j : i * count + 2 * j + 2])
                for r in range(min(2, height - i)):
                    place = b.add(c_at, b.add(b.mul(ldc, b.add(row, _c(i + r))), _c(4 * j)))
                    store_vector(b, c_kind, c, place, Value(b, made[r]), mask if j == count - 1 else None)

    def columns(count: int, p: Any, inside: Any, mask: Any) -> None:
        b_at, c_at = b.add(b_off, b.mul(p, b_panel)), b.add(c_off, b.mul(p, _c(panel)))
        if inside is not None:
            b_at, c_at = b.add(b_at, b.mul(inside, _c(STEPS))), b.add(c_at, inside)
        over_rows(b, m, ROWS, lambda height, row, _: tile(height, row, count, b_at, c_at, mask))

    over_panels(b, n, panel, 4, columns)
    return context.get_dummy_value()


register(gemm_mmla, grouped_typer(is_of_bytes), outlined("gemm_mmla", _lower, extents=3))
