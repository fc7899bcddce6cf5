"""Contractions along memory: C[M, N] (+)= A[M, K] B[N, K] where both factors' steps of k follow each other.

    C[i, j] = sum over lanes l of (sum over t of A[i, t L + l] B[j, t L + l])

A micro-kernel keeps one vector of sums for each element of an R x S block: a step loads R + S vectors for R S products. The
lanes are added up at the end, each vector by halves, so that an element's bits do not depend on its place in a block.
Neither factor is packed: for few rows or few columns, where a copy would be read too rarely to pay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import signature
from codegen.lib.buffer import Buf, tag
from codegen.lib.emit import I32, I64, Value, constant
from codegen.lib.micro_kernels.blocks import _c, _counted_loop, _for, _known, _literal, mask_of
from codegen.lib.micro_kernels.contract import _convert, _narrow, _product_sum, _widen, load_vector, value_type
from codegen.lib.micro_kernels.contract_bytes import ByteDots, dot_instruction, is_of_bytes, pair_instruction, signs_of
from codegen.lib.micro_kernels.gemm_kinds import is_written_out
from codegen.lib.outline import outlined
from codegen.lib.register import register
from codegen.target import current_target

__all__ = ["block_shape", "gemm_dots"]

LATENCY = 4  # cycles from one product to the next into the same sum
MANY = 1 << 10  # what stands for an extent that is not known


def gemm_dots(
    m: int, n: int, k: int, a: Any, a_off: int, a_rs: int, b: Any, b_off: int, b_cs: int,
    c: Any, c_off: int, c_rs: int, c_cs: int, accumulate: bool, *levels: int,
) -> None:  # fmt: skip
    """C[i, j] (+)= sum over k of A[i, k] B[j, k], 0 <= i < m, 0 <= j < n.

    A[i, k] is a[a_off + i a_rs + k], B[j, k] is b[b_off + j b_cs + k], C[i, j] is c[c_off + i c_rs + j c_cs].  With
    ``accumulate`` false C is overwritten.  ``levels`` are triples (count, step in a, step in b), outermost first: loops around
    that over k whose products go into the same sums.
    """
    at_a = at_b = np.arange(k)
    for count, a_step, b_step in reversed(list(zip(levels[::3], levels[1::3], levels[2::3], strict=True))):
        t = np.arange(count)[:, None]
        at_a, at_b = (t * a_step + at_a).reshape(-1), (t * b_step + at_b).reshape(-1)
    left = a[a_off + np.arange(m)[:, None] * a_rs + at_a].astype(c.dtype)
    right = b[b_off + np.arange(n)[:, None] * b_cs + at_b].astype(c.dtype)
    where = c_off + np.arange(m)[:, None] * c_rs + np.arange(n) * c_cs
    c[where] = left @ right.T + (c[where] if accumulate else 0)


def _typer(*args: Any) -> Any:
    if len(args) < 14 or (len(args) - 14) % 3 or not all(isinstance(args[k], Buf) for k in (3, 6, 9)):
        return None
    if any("complex" in args[k].dtype for k in (3, 6, 9)):
        return None
    keep: list[Any] = [t if isinstance(t, types.Literal | Buf) else types.int64 for t in args]
    if not isinstance(args[13], types.Literal):
        keep[13] = types.boolean
    return signature(types.none, *keep)


@cache
def block_shape(m: int, n: int, registers: int) -> tuple[int, int]:
    """(R, S) with the fewest cycles for m x n sums: two products a cycle, their latency, and loads, which are rarely hidden.

    >>> block_shape(1024, 1024, 32), block_shape(8, 4096, 32), block_shape(1, 4096, 32)
    ((5, 5), (4, 6), (1, 8))
    """

    def cycles(r: int, s: int) -> float:
        return max(r * s / 2, LATENCY) + (r + s) / 2

    def total(r: int, s: int) -> float:
        rows, columns = ((r, m // r), (m % r, 1)), ((s, n // s), (n % s, 1))
        return sum(cycles(i, j) * p * q for i, p in rows for j, q in columns if i * p and j * q)

    found = [
        (total(r, s), r + s, (r, s))
        for r in range(1, min(m, 8) + 1)
        for s in range(1, min(n, 8) + 1)
        if r * s + min(r, s) + 2 <= registers
    ]
    return min(found)[2]


def _added_up(vectors: list[Value]) -> list[Any]:
    """The sum over the lanes of each vector, each by halves: lanes l and l + L / 2 first."""
    lanes = vectors[0].type.count
    found: list[Any] = []
    for first in range(0, len(vectors), lanes):
        group = vectors[first : first + lanes]
        count = len(group)
        while len(group) & (len(group) - 1):
            group.append(group[-1].wrap(constant(group[-1].type, 0)))
        width = lanes
        while width > 1:
            half = width // 2
            pairs = [(group[t], group[t + 1]) for t in range(0, len(group), 2)] if len(group) > 1 else [(group[0], group[0])]
            group = [_halved(x, y, lanes, width, half) for x, y in pairs]
            width = half
        whole = group[0]
        found += [whole.b.extract_element(whole.v, ir.Constant(I32, t)) for t in range(count)]
    return found


def _halved(x: Value, y: Value, lanes: int, width: int, half: int) -> Value:
    """The groups of `width` lanes of x, then those of y, each added to groups of half the width."""
    low = [g * width + t for g in range(2 * lanes // width) for t in range(half)]
    parts = []
    for shift in (0, half):
        order = ir.Constant(ir.VectorType(I32, lanes), [ir.Constant(I32, t + shift) for t in low])
        parts.append(x.wrap(x.b.shuffle_vector(x.v, y.v, order)))
    return parts[0] + parts[1]


def _in_bytes(a: Buf, b: Buf, c: Buf) -> bool:
    """True where an instruction sums the products of four bytes, or of two widened ones, to a lane."""
    lanes = current_target().lanes(4)
    return is_of_bytes(a, b, c) and (dot_instruction(lanes, signs_of(a, b)) or pair_instruction(lanes)) is not None


class _Dots:
    """The emission of one call."""

    def __init__(self, b: Any, sig: Any, value: list[Any]) -> None:
        self.builder = b
        (self.m, self.n, self.k, self.a, self.a_off, self.a_rs, self.b, self.b_off, self.b_cs,
         self.c, self.c_off, self.c_rs, self.c_cs, self.accumulate) = value[:14]  # fmt: skip
        self.levels = tuple(zip(value[14::3], value[15::3], value[16::3], strict=True))
        self.a_kind, self.b_kind, self.c_kind = sig.args[3], sig.args[6], sig.args[9]
        self.element = value_type(self.c_kind)
        target = current_target()
        self.lanes = target.lanes(max(self.c_kind.item_bytes, 4))
        self.vector = ir.VectorType(self.element, self.lanes)
        self.in_bytes = _in_bytes(self.a_kind, self.b_kind, self.c_kind)
        self.run = self.lanes * (4 if self.in_bytes else 1)  # steps of k in a vector
        m, n = _known(self.m) or MANY, _known(self.n) or MANY
        self.rows, self.columns = block_shape(min(m, MANY), min(n, MANY), target.vector_registers - (4 if self.in_bytes else 0))
        # The shorter side stays near while the longer one streams by once.
        self.columns_outside = n >= m
        self.dots = ByteDots(b, self.a_kind, self.b_kind, self.vector, (self.a, self.c)) if self.in_bytes else None
        self.corrected = self.dots is not None and self.dots.corrected

    def all(self) -> None:
        b = self.builder

        def over(extent: Any, size: int, body: Callable[[int, Any], None]) -> None:
            known = _known(extent)
            whole = b.sdiv(extent, _c(size)) if known is None else _c(known // size)
            _for(b, whole, lambda t: body(size, b.mul(t, _c(size))))
            done = b.mul(whole, _c(size)) if known is None else _c(known // size * size)
            if known is not None:
                if known % size:
                    body(known % size, done)
            elif size > 1:
                _for(b, b.sub(extent, done), lambda t: body(1, b.add(done, t)))

        if self.columns_outside:
            over(self.n, self.columns, lambda s, j: over(self.m, self.rows, lambda r, i: self.block(r, s, i, j)))
        else:
            over(self.m, self.rows, lambda r, i: over(self.n, self.columns, lambda s, j: self.block(r, s, i, j)))

    def block(self, rows: int, columns: int, i: Any, j: Any) -> None:
        b = self.builder
        a_at = [b.gep(self.a, [b.add(self.a_off, b.mul(b.add(i, _c(r)), self.a_rs))]) for r in range(rows)]
        b_at = [b.gep(self.b, [b.add(self.b_off, b.mul(b.add(j, _c(s)), self.b_cs))]) for s in range(columns)]
        count = rows * columns + (columns if self.corrected else 0)
        values = self.level(0, a_at, b_at, [constant(self.vector, 0)] * count)
        sums = _added_up([Value(b, v) for v in values])
        if self.corrected:
            extra = sums[rows * columns :]
            sums = [b.sub(x, extra[t % columns]) for t, x in enumerate(sums[: rows * columns])]
        places = [
            b.add(self.c_off, b.add(b.mul(b.add(i, _c(r)), self.c_rs), b.mul(b.add(j, _c(s)), self.c_cs)))
            for r in range(rows)
            for s in range(columns)
        ]
        self.store(places, sums)

    def store(self, places: list[Any], sums: list[Any]) -> None:
        b, kind = self.builder, self.c_kind

        def old(place: Any) -> Any:
            access = b.load(b.gep(self.c, [place]))
            access.align = kind.item_align
            return _widen(Value(b, tag(b.module, access, kind.scope)), kind)

        def write(values: list[Value]) -> None:
            for place, v in zip(places, values, strict=True):
                access = b.store(_narrow(v, kind).v, b.gep(self.c, [place]), align=kind.item_align)
                tag(b.module, access, kind.scope)

        fresh = [Value(b, s) for s in sums]
        flag = _known(self.accumulate)
        if flag is not None:
            write([old(p) + v for p, v in zip(places, fresh, strict=True)] if flag else fresh)
            return
        with b.if_else(self.accumulate) as (then, otherwise):
            with then:
                write([old(p) + v for p, v in zip(places, fresh, strict=True)])
            with otherwise:
                write(fresh)

    def level(self, number: int, a_at: list[Any], b_at: list[Any], start: list[Any]) -> list[Any]:
        if number == len(self.levels):
            return self.along(a_at, b_at, start)
        b = self.builder
        count, a_step, b_step = self.levels[number]

        def body(t: Any, values: list[Any]) -> list[Any]:
            a_in, b_in = b.mul(t, a_step), b.mul(t, b_step)
            return self.level(number + 1, [b.gep(x, [a_in]) for x in a_at], [b.gep(x, [b_in]) for x in b_at], values)

        return _counted_loop(b, count, start, body)

    def along(self, a_at: list[Any], b_at: list[Any], start: list[Any]) -> list[Any]:
        """The innermost loop over k, a vector at a time."""
        b, run = self.builder, self.run
        known = _known(self.k)
        whole = b.sdiv(self.k, _c(run)) if known is None else _c(known // run)
        unroll = 2 if len(start) >= 12 else 4
        rounds = b.sdiv(whole, _c(unroll)) if known is None else _c(known // run // unroll)

        def steps(t: Any, values: list[Any]) -> list[Any]:
            first = b.mul(t, _c(unroll * run))
            for u in range(unroll):
                values = self.step(b.add(first, _c(u * run)), a_at, b_at, values, None)
            return values

        values = _counted_loop(b, rounds, start, steps) if known is None or known // run >= unroll else start
        done = b.mul(rounds, _c(unroll))
        if known is None or known // run % unroll:
            values = _counted_loop(
                b, b.sub(whole, done), values, lambda t, acc: self.step(b.mul(b.add(done, t), _c(run)), a_at, b_at, acc, None)
            )
        if known is not None:
            if known % run:
                values = self.step(_c(known // run * run), a_at, b_at, values, mask_of(b, _c(known % run), run))
            return values
        first = b.mul(whole, _c(run))
        rest = b.sub(self.k, first)
        mask = mask_of(b, rest, run)
        some = b.zext(b.icmp_signed(">", rest, _c(0)), I64)
        return _counted_loop(b, some, values, lambda _, acc: self.step(first, a_at, b_at, acc, mask))

    def step(self, at: Any, a_at: list[Any], b_at: list[Any], values: list[Any], mask: Any) -> list[Any]:
        b, new = self.builder, list(values)
        columns = [self.load(self.b_kind, x, at, mask) for x in b_at]
        for r, base in enumerate(a_at):
            x = self.load(self.a_kind, base, at, mask)
            if self.dots is not None:
                x = self.dots.left(x)
            for s, y in enumerate(columns):
                place = r * len(columns) + s
                total = Value(b, new[place])
                new[place] = (self.dots.product(total, x, y) if self.dots is not None else _product_sum(x, y, total)).v
        if self.dots is not None and self.dots.corrected:
            for s, y in enumerate(columns):
                place = len(a_at) * len(columns) + s
                new[place] = self.dots.sums(Value(b, new[place]), y).v
        return new

    def load(self, kind: Buf, base: Any, at: Any, mask: Any) -> Value:
        loaded = load_vector(self.builder, kind, base, at, self.run, mask)
        if self.in_bytes:
            return loaded.wrap(self.builder.bitcast(loaded.v, self.vector))
        return _convert(loaded, kind, self.element)


def _lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
    _Dots(b, sig, [_literal(v, t) for v, t in zip(args, sig.args, strict=True)]).all()
    return context.get_dummy_value()


register(gemm_dots, _typer, outlined("gemm_dots", _lower, 3, is_written_out))
