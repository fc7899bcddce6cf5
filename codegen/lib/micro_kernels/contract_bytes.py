"""Contractions of bytes: C[M, N] = A[M, K] B[K, N] with int8 factors and exact int32 sums (modulo 2**32).

Four steps of k are one: a lane of 32 bits holds four bytes of a row of A, or of a column of B (packed so ahead). The dot
instructions take one factor unsigned, so A is shifted by 128, and 128 times the sums of B's columns are taken off at the end:

    sum a b = sum (a + 128) b - 128 sum b

Targets without such an instruction multiply and add the four bytes one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import signature
from codegen.lib.buffer import Buf, tag
from codegen.lib.emit import I32, I64, Value, constant, intrinsic_function
from codegen.lib.micro_kernels.blocks import _c, _counted_loop, _known, _literal, over_panels, over_rows, panel_lanes, splat
from codegen.lib.micro_kernels.contract import store_vector
from codegen.lib.outline import outlined
from codegen.lib.register import register
from codegen.target import current_target

__all__ = ["gemm_bytes"]

_HIGH_BITS = -2139062144  # 0x80 in each byte: flips a signed byte to itself + 128


def gemm_bytes(
    m: int, n: int, k: int, a: Any, a_off: int, a_rs: int, b: Any, b_off: int, b_panel_stride: int,
    c: Any, c_off: int, ldc: int, panel: int,
) -> None:  # fmt: skip
    """C[i, j] = sum over k of A[i, k] B[k, j], 0 <= i < m, 0 <= j < n; k a multiple of 4.

    A[i, k] is a[a_off + i a_rs + k]; B[k, j] is b[b_off + (j // panel) b_panel_stride + (k // 4) 4 panel + 4 (j % panel) + k % 4]
    and
    C[i, j] is c[c_off + i ldc + j].
    """
    steps, j = np.arange(k), np.arange(n)
    at_a = a[a_off + np.arange(m)[:, None] * a_rs + steps].astype(np.int32)
    rows = (steps // 4 * (4 * panel) + steps % 4)[:, None]
    at_b = b[b_off + (j // panel) * b_panel_stride + rows + 4 * (j % panel)].astype(np.int32)
    c[c_off + np.arange(m)[:, None] * ldc + j] = at_a @ at_b


def _typer(*args: Any) -> Any:
    if len(args) != 13 or not all(isinstance(args[k], Buf) for k in (3, 6, 9)) or not isinstance(args[12], types.IntegerLiteral):
        return None
    if (args[3].dtype, args[6].dtype, args[9].dtype) != ("int8", "int8", "int32"):
        return None
    return signature(types.none, *[t if isinstance(t, types.Literal | Buf) else types.int64 for t in args])


def _dot4(total: Value, unsigned: Value, signed: Value) -> Value:
    """total + the four products in each lane."""
    b, lanes = total.b, total.type.count
    have = {f[1:] for f in current_target().features.split(",") if f.startswith("+")}
    if "avx512vnni" in have and (lanes == 16 or "avx512vl" in have) and lanes in (4, 8, 16):
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        fn = intrinsic_function(b.module, name, total.type, [total.type] * 3)
        return total.wrap(b.call(fn, [total.v, unsigned.v, signed.v]))
    for byte in range(4):
        u = (unsigned.lshr(8 * byte)) & 0xFF
        s = total.wrap(b.shl(signed.v, constant(total.type, 24 - 8 * byte))) >> 24
        total = total + u * s
    return total


def _opaque(b: Any, vector: Any, pointer: Any) -> Any:
    """The shift in every lane, not as a constant: LLVM's instruction selection does not end on a constant factor.

    The topmost bit of an address is 0 in every user process, which LLVM does not know.
    """
    top = b.trunc(b.lshr(b.ptrtoint(pointer, I64), _c(63)), I32)
    return splat(Value(b, b.or_(top, ir.Constant(I32, _HIGH_BITS))), vector.count).v


def _quad(b: Any, kind: Buf, base: Any, offset: Any, vector: Any) -> Any:
    access = b.load(b.bitcast(b.gep(base, [offset]), vector.as_pointer()))
    access.align = 1
    return tag(b.module, access, kind.scope)


def _lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
    value = [_literal(v, t) for v, t in zip(args, sig.args, strict=True)]
    m, n, k, a, a_off, a_rs, bb, b_off, b_panel, c, c_off, ldc, _ = value
    a_kind, b_kind, c_kind = sig.args[3], sig.args[6], sig.args[9]
    panel = int(sig.args[12].literal_value)
    target = current_target()
    lanes = panel_lanes(panel, 4)
    vectors = panel // lanes
    # Sums, the columns' own sums, a row of B, and a broadcast with its shift.
    rows = max(1, min((target.vector_registers - 2 * vectors - 3) // vectors, 12))
    vector = ir.VectorType(I32, lanes)
    quads = b.sdiv(k, _c(4)) if _known(k) is None else _c(_known(k) // 4)  # type: ignore[operator]
    shift = _opaque(b, vector, c)

    def tile(height: int, row: Any, count: int, b_at: Any, c_at: Any, mask: Any) -> None:
        a_base = b.gep(a, [b.add(a_off, b.mul(row, a_rs))])
        b_base = b.gep(bb, [b_at])

        def step(quad: Any, sums: list[Any]) -> list[Any]:
            at = b.mul(quad, _c(4 * panel))
            columns = [Value(b, _quad(b, b_kind, b_base, b.add(at, _c(4 * j * lanes)), vector)) for j in range(count)]
            new = []
            for i in range(height):
                four = Value(b, _quad(b, a_kind, a_base, b.add(b.mul(quad, _c(4)), b.mul(a_rs, _c(i))), I32))
                x = splat(four, lanes)
                x = x.wrap(b.xor(x.v, shift))
                new += [_dot4(Value(b, sums[i * count + j]), x, columns[j]).v for j in range(count)]
            new += [_dot4(Value(b, sums[height * count + j]), Value(b, shift), columns[j]).v for j in range(count)]
            return new

        sums = _counted_loop(b, quads, [constant(vector, 0)] * (count * (height + 1)), step)
        for i in range(height):
            for j in range(count):
                total = Value(b, b.sub(sums[i * count + j], sums[height * count + j]))
                at = b.add(c_at, b.add(b.mul(ldc, b.add(row, _c(i))), _c(j * lanes)))
                store_vector(b, c_kind, c, at, total, mask if j == count - 1 else None)

    def columns(count: int, p: Any, inside: Any, mask: Any) -> None:
        b_at, c_at = b.add(b_off, b.mul(p, b_panel)), b.add(c_off, b.mul(p, _c(panel)))
        if inside is not None:
            b_at, c_at = b.add(b_at, b.mul(inside, _c(4))), b.add(c_at, inside)
        over_rows(b, m, rows, lambda height, row, _: tile(height, row, count, b_at, c_at, mask))

    over_panels(b, n, panel, lanes, columns)
    return context.get_dummy_value()


register(gemm_bytes, _typer, outlined("gemm_bytes", _lower, extents=3))
