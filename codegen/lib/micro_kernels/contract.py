"""Contractions: C[M, N] (+)= A[M, K] B[K, N] by register-blocked micro-kernels.

A micro-kernel keeps an MR x NR block of C in vector registers while it runs over k: each step loads NR elements of a row
of B and broadcasts MR elements of a column of A.  ``gemm_block`` walks a block of C in such tiles.  B lies in panels of NR
columns, so that the steps read consecutive memory: panel p holds columns [p NR, (p + 1) NR), row k of it starting at
``b_off + p * b_panel_stride + k * ldb``; a row-major B is read in place with ``b_panel_stride`` = NR and ``ldb`` its row
length.

The accumulators have C's element type (f32 for bfloat16 and float16); A and B may be narrower (bfloat16 and float16 storage,
small integers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import signature
from codegen.lib import convert
from codegen.lib.buffer import Buf, tag, unknown_address
from codegen.lib.emit import F32, F64, I1, I8, I32, Value, constant, intrinsic_function, is_float, like, order_of, suffix
from codegen.lib.micro_kernels.blocks import (
    _c,
    _counted_loop,
    _known,
    _literal,
    _times,
    over_panels,
    over_rows,
    panel_lanes,
    splat,
)
from codegen.lib.micro_kernels.gemm_kinds import (
    LEVELS,
    LONG,
    SHORT,
    alike,
    is_shallow,
    is_written_out,
    like_of,
    parts_of,
    rows_of,
    sum_bytes,
)
from codegen.lib.outline import outlined
from codegen.lib.register import register
from codegen.target import Target, current_target

SMALL = 12  # vectors of sums of a block whose loop over k is unrolled more often
LINE_BYTES = 64
FRACTION = 20  # bits


@dataclass(frozen=True)
class MicroShape:
    """The tile of a micro-kernel: ``rows`` of C by ``panel`` columns."""

    rows: int
    panel: int


def micro_shape(target: Target, item_bytes: int, n: int | None = None) -> MicroShape:
    """The tile that fills the registers of ``target``: accumulators, one row of B and one broadcast of A.

    ``item_bytes`` is the size of an accumulator; ``n``, when known, is the number of columns, and narrows the panel.

    >>> micro_shape(Target.named("avx2"), 4)
    MicroShape(rows=6, panel=16)
    """
    lanes = target.lanes(item_bytes)
    free = target.vector_registers
    vectors = 4 if free >= 32 else 2
    if n is not None:
        vectors = max(1, min(vectors, -(-n // lanes)))
    # one register for each vector of B's row, two for broadcasts in flight
    rows = min((free - vectors - 2) // vectors, 14)
    return MicroShape(max(rows, 1), vectors * lanes)


# ------------------------------------------------------------------ vectors in memory


def value_type(kind: Buf) -> Any:
    """The LLVM type of an element's value."""
    return {"float32": F32, "float64": F64, "bfloat16": F32, "float16": F32}.get(kind.dtype) or ir.IntType(8 * kind.item_bytes)


def _widen(v: Value, kind: Buf) -> Value:
    if kind.dtype == "bfloat16":
        return convert.widen_bf16(v)
    return convert.widen_f16(v) if kind.dtype == "float16" else v


def _narrow(v: Value, kind: Buf) -> Value:
    if kind.dtype == "bfloat16":
        return convert.narrow_bf16(v)
    return convert.narrow_f16(v) if kind.dtype == "float16" else v


def _convert(v: Value, kind: Buf, element: Any) -> Value:
    """A value read from ``kind`` as the accumulator's type."""
    want = like(v.type, element)
    if str(want) == str(v.type):
        return v
    if is_float(want):
        if is_float(v.type):
            return v.cast("fpext" if str(element) == "double" else "fptrunc", element)
        return v.cast("uitofp" if kind.dtype.startswith("u") else "sitofp", element)
    return v.cast("zext" if kind.dtype.startswith("u") else "sext", element)


def _storage(kind: Buf) -> Any:
    return ir.IntType(16) if kind.dtype in ("bfloat16", "float16") else value_type(kind)


def load_vector(b: Any, kind: Buf, base: Any, offset: Any, lanes: int, mask: Any = None) -> Value:
    """``lanes`` consecutive elements from base[offset]; lanes that ``mask`` switches off are not read and are zero."""
    vector = ir.VectorType(_storage(kind), lanes)
    pointer = b.bitcast(b.gep(base, [offset]), vector.as_pointer())
    if mask is None:
        access = b.load(pointer)
        access.align = kind.item_align
    else:
        fn = intrinsic_function(
            b.module,
            f"llvm.masked.load.{suffix(vector)}.p0",
            vector,
            [vector.as_pointer(), I32, ir.VectorType(I1, lanes), vector],
        )
        access = b.call(fn, [pointer, ir.Constant(I32, kind.item_align), mask, constant(vector, 0)])
    return _widen(Value(b, tag(b.module, access, kind.scope)), kind)


def store_vector(b: Any, kind: Buf, base: Any, offset: Any, value: Value, mask: Any = None) -> None:
    """Store the lanes of ``value`` that ``mask`` leaves on at base[offset] and after."""
    raw = _narrow(value, kind).v
    pointer = b.bitcast(b.gep(base, [offset]), raw.type.as_pointer())
    if mask is None:
        access = b.store(raw, pointer, align=kind.item_align)
    else:
        fn = intrinsic_function(
            b.module,
            f"llvm.masked.store.{suffix(raw.type)}.p0",
            ir.VoidType(),
            [raw.type, raw.type.as_pointer(), I32, ir.VectorType(I1, raw.type.count)],
        )
        access = b.call(fn, [raw, pointer, ir.Constant(I32, kind.item_align), mask])
    tag(b.module, access, kind.scope)


# ------------------------------------------------------------------ the micro-kernel


@dataclass(frozen=True)
class _Operands:
    """The LLVM values of one gemm_block call (see ``gemm_block``)."""

    k: Any
    a: Any
    a_rs: Any
    a_cs: Any
    b: Any
    ldb: Any
    c: Any
    ldc: Any
    accumulate: Any
    a_kind: Buf
    b_kind: Buf
    c_kind: Buf
    levels: tuple[tuple[Any, Any, Any], ...] = ()  # (count, step in A, step in B) of loops around that over k, outermost first
    is_complex: bool = False
    like_k: int | None = None  # what k and a_rs are like where they are not known (`_alike`)
    like_rs: int | None = None


def _product_sum(x: Value, y: Value, z: Value) -> Value:
    """x y + z; fused if the target can."""
    if not is_float(x.type) or not current_target().has_fma:
        return x * y + z
    fn = intrinsic_function(x.b.module, f"llvm.fma.{suffix(x.type)}", x.type, [x.type] * 3)
    return x.wrap(x.b.call(fn, [x.v, y.v, z.v]))


def _times_i(x: Value) -> Value:
    """i z for complex numbers z that lie in pairs of lanes: (re, im) -> (-im, re)."""
    lanes = x.type.count
    order = [k + 1 if k % 2 == 0 else lanes + k - 1 for k in range(lanes)]
    return x.wrap(x.b.shuffle_vector(x.b.fneg(x.v), x.v, order_of(tuple(order))))


@dataclass(frozen=True)
class _Ahead:
    """B's next panel, which begins at ``start`` and is asked for while the ``tile``-th block of rows is summed up."""

    start: Any
    tile: Any


@dataclass(frozen=True)
class _Spread:
    """Another block of B, ``distance`` elements behind the one that is multiplied, which passes over this one ask for in turns.

    This is pass ``number`` of about ``passes``. Rows of both blocks follow each other.
    """

    distance: Any
    number: Any
    passes: int


def _ask_for(b: Any, base: Any, offset: Any, columns: int, kind: Buf, locality: int) -> None:
    """Prefetch the lines of ``columns`` elements from base[offset]: into the first cache (3) or the second (2)."""
    fn = intrinsic_function(b.module, "llvm.prefetch.p0", ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    for first in range(0, columns, max(1, LINE_BYTES // kind.item_bytes)):
        place = b.bitcast(b.gep(base, [b.add(offset, _c(first))]), I8.as_pointer())
        b.call(fn, [place, ir.Constant(I32, 0), ir.Constant(I32, locality), ir.Constant(I32, 1)])


def _micro_kernel(
    b: Any, o: _Operands, rows: int, vectors: int, lanes: int, a_off: Any, b_off: Any, c_off: Any, mask: Any,
    ahead: _Ahead | _Spread | None = None,
) -> None:  # fmt: skip
    """Emit C[rows, vectors * lanes] (+)= A B at the given offsets; ``mask`` (or None) covers the last vector.

    With ``ahead`` the block of C is asked for first and B's next panel step by step: they come while products are summed. Each
    turn of the unrolled loop asks for one step of k, so that as many blocks of rows as it has steps fetch the whole panel.
    """
    if ahead is not None:
        for i in range(rows):
            _ask_for(b, o.c, b.add(c_off, _times(b, o.ldc, i)), vectors * lanes, o.c_kind, 3)
    element = value_type(o.c_kind)
    vector = ir.VectorType(element, lanes)
    masks = [mask if j == vectors - 1 else None for j in range(vectors)]
    c_at = [[b.add(c_off, b.add(_times(b, o.ldc, i), _c(j * lanes))) for j in range(vectors)] for i in range(rows)]

    a_base = b.gep(o.a, [a_off])
    b_base = b.gep(o.b, [b_off])
    rows_at = [_times(b, o.a_rs, i) for i in range(rows)]

    def along(a_base: Any, b_base: Any, start: list[Any]) -> list[Any]:
        """The innermost loop over k."""

        def broadcast(base: Any, at: Any) -> Value:
            load = b.load(b.gep(base, [at]))
            load.align = o.a_kind.item_align
            scalar = _convert(_widen(Value(b, tag(b.module, load, o.a_kind.scope)), o.a_kind), o.a_kind, element)
            return splat(scalar, lanes)

        def step(k: Any, accumulators: list[Any]) -> list[Any]:
            row = b.mul(k, o.ldb)
            columns = [
                _convert(load_vector(b, o.b_kind, b_base, b.add(row, _c(j * lanes)), lanes, masks[j]), o.b_kind, element)
                for j in range(vectors)
            ]
            turned = [_times_i(x) for x in columns] if o.is_complex else []
            column = b.mul(k, o.a_cs)
            base = unknown_address(b, a_base) if meets else a_base
            out = list(accumulators)
            for i in range(rows):
                at = b.add(column, rows_at[i])
                for part, factors in enumerate((columns, turned) if o.is_complex else (columns,)):
                    x = broadcast(base, b.add(at, _c(part)))
                    for j in range(vectors):
                        place = i * vectors + j
                        out[place] = _product_sum(x, factors[j], Value(b, out[place])).v
            return out

        unroll = 4 if rows * vectors <= SMALL else 2
        count = _known(o.k)
        if count == 3 or (count is not None and 4 < count <= SHORT and rows * vectors <= SMALL):  # a window's row
            unroll = count
        meets = _meet(o, rows, unroll) and rows * (vectors + 1) + vectors > current_target().vector_registers
        head = b.udiv(o.k, _c(unroll)) if count is None else _c(count // unroll)
        values = start
        if count is None or count >= unroll:
            if isinstance(ahead, _Spread):
                turn = _spread_turn(b, o, ahead, head, unroll, vectors * lanes, b_base)
            else:
                turn = _asking_turn(b, o, ahead, head, unroll, vectors * lanes)
            values = _counted_loop(b, head, values, lambda t, acc: _repeat(b, step, turn(t), unroll, acc))
        size = o.like_k if count is None else count
        if size is None or size % unroll:
            done = b.mul(head, _c(unroll))
            rest = b.sub(o.k, done) if size is None else _c(size % unroll)
            values = _counted_loop(b, rest, values, lambda t, acc: step(b.add(done, t), acc))
        return values

    def level(number: int, a_base: Any, b_base: Any, start: list[Any]) -> list[Any]:
        if number == len(o.levels):
            return along(a_base, b_base, start)
        count, a_step, b_step = o.levels[number]
        return _counted_loop(
            b, count, start,
            lambda t, acc: level(number + 1, b.gep(a_base, [b.mul(t, a_step)]), b.gep(b_base, [b.mul(t, b_step)]), acc),
        )  # fmt: skip

    values = level(0, a_base, b_base, [constant(vector, 0)] * (rows * vectors))
    values = _added_to_c(b, o, values, lanes, [at for row in c_at for at in row], masks * rows)
    for value, (i, j) in zip(values, np.ndindex(rows, vectors), strict=True):
        store_vector(b, o.c_kind, o.c, c_at[i][j], Value(b, value), masks[j])


def _meet(o: _Operands, rows: int, steps: int) -> bool:
    """Whether a row's element at one of ``steps`` steps of k is another row's at another one, as in a window's.

    LLVM keeps it in a register from the one to the other, which is no gain where none is left beside the sums.
    """
    row, step = _known(o.a_rs) or o.like_rs, _known(o.a_cs)
    if not row or step is None:
        return row is None or step is None
    return any(step * u % row == 0 and 0 < abs(step * u // row) < rows for u in range(1, steps))


def _asking_turn(b: Any, o: _Operands, ahead: _Ahead | None, turns: Any, unroll: int, columns: int) -> Callable[[Any], Any]:
    """What a turn of the unrolled loop does first: the first ``unroll`` blocks of rows ask for a part of the next panel each."""
    if ahead is None:
        return lambda t: t
    asks = b.icmp_signed("<", ahead.tile, _c(unroll))
    first = b.add(ahead.start, b.mul(b.select(asks, b.mul(ahead.tile, turns), _c(0)), o.ldb))
    step = b.select(asks, o.ldb, _c(0))  # of the later ones each turn asks for what is there

    def turn(t: Any) -> Any:
        _ask_for(b, o.b, b.add(first, b.mul(t, step)), columns, o.b_kind, 2)
        return t

    return turn


def _spread_turn(
    b: Any, o: _Operands, ahead: _Spread, turns: Any, unroll: int, columns: int, b_base: Any
) -> Callable[[Any], Any]:
    """What a turn of the unrolled loop does first: it asks for as many lines of the other block as is its share of them.

    The lines of one run of k are shared out in order, evenly over all turns of all passes: asked for in fewer of them they would
    come at more than the rate of memory.
    """
    line = LINE_BYTES // o.b_kind.item_bytes
    lines = unroll * columns // line  # of a turn
    share = -(-lines // ahead.passes)
    # lines of a turn in fixed point: a sum and a shift in each, where a division takes many steps
    step = -(-(lines << FRACTION) // ahead.passes)
    first = b.mul(b.mul(ahead.number, turns), _c(step))

    def turn(t: Any) -> Any:
        number = b.lshr(b.add(first, b.mul(t, _c(step))), _c(FRACTION))
        _ask_for(b, b_base, b.add(ahead.distance, b.mul(number, _c(line))), share * line, o.b_kind, 2)
        return t

    return turn


def _added_to_c(b: Any, o: _Operands, values: list[Any], lanes: int, at: list[Any], masks: list[Any]) -> list[Any]:
    """``values`` plus C where it accumulates. The sum of a block starts from 0 and is added at its end: rounding errors then
    grow with the length of a block and the number of blocks, not with their product."""

    def sums() -> list[Any]:
        old = [load_vector(b, o.c_kind, o.c, place, lanes, mask) for place, mask in zip(at, masks, strict=True)]
        return [(c + Value(b, v)).v for c, v in zip(old, values, strict=True)]

    flag = _known(o.accumulate)
    if flag is not None:
        return sums() if flag else values
    with b.if_else(o.accumulate) as (then, otherwise):
        with then:
            added = sums()
            added_block = b.block
        with otherwise:
            plain_block = b.block
    merged = []
    for one, other in zip(added, values, strict=True):
        phi = b.phi(one.type)
        phi.add_incoming(one, added_block)
        phi.add_incoming(other, plain_block)
        merged.append(phi)
    return merged


def _repeat(b: Any, step: Callable[[Any, list[Any]], list[Any]], t: Any, times: int, acc: list[Any]) -> list[Any]:
    first = b.mul(t, _c(times))
    for u in range(times):
        acc = step(b.add(first, _c(u)), acc)
    return acc


# ------------------------------------------------------------------ gemm_block


def gemm_block(
    m: int, n: int, k: int,
    a: Any, a_off: int, a_rs: int, a_cs: int,
    b: Any, b_off: int, b_panel_stride: int, ldb: int,
    c: Any, c_off: int, ldc: int,
    accumulate: bool, panel: int, *levels: int,
) -> None:  # fmt: skip
    """C[i, j] (+)= sum over k of A[i, k] B[k, j], 0 <= i < m, 0 <= j < n.

    A[i, k] is a[a_off + i a_rs + k a_cs]; B[k, j] is b[b_off + (j // panel) b_panel_stride + k ldb + j % panel]; C[i, j] is
    c[c_off + i ldc + j].  With ``accumulate`` false C is overwritten.  ``panel`` must be a literal, a multiple of the
    target's lanes (``micro_shape``); sizes that are literals let the compiler leave out the remainder code.

    ``levels`` are triples (count, step in a, step in b), outermost first: loops around that over k whose products go into the
    same sums (the rows of a convolution's window, each a run of k in memory).
    """
    at_k, bt_k = np.arange(k) * a_cs, np.arange(k) * ldb
    for count, a_step, b_step in reversed(list(zip(levels[::3], levels[1::3], levels[2::3], strict=True))):
        t = np.arange(count)[:, None]
        at_k, bt_k = (t * a_step + at_k).reshape(-1), (t * b_step + bt_k).reshape(-1)
    at_a = a[a_off + np.arange(m)[:, None] * a_rs + at_k].astype(c.dtype)
    j = np.arange(n)
    at_b = b[b_off + (j // panel) * b_panel_stride + bt_k[:, None] + j % panel].astype(c.dtype)
    where = c_off + np.arange(m)[:, None] * ldc + j
    c[where] = at_a @ at_b + (c[where] if accumulate else 0)


def type_gemm(*args: Any) -> Any:
    if len(args) < 16 or (len(args) - 16) % 3 or not all(isinstance(args[k], Buf) for k in (3, 7, 11)):
        return None
    kinds = [args[k].dtype for k in (3, 7, 11)]
    if not isinstance(args[15], types.IntegerLiteral) or (any("complex" in x for x in kinds) and len(set(kinds)) > 1):
        return None
    # literals keep their type: it carries the value to the lowering
    keep: list[Any] = [t if isinstance(t, types.Literal | Buf) else types.int64 for t in args]
    for offset in (4, 8, 12):  # where blocks begin does not change their code: it is one function for all of them
        keep[offset] = types.int64
    if not isinstance(args[14], types.Literal):
        keep[14] = types.boolean
    return signature(types.none, *keep)


def _asks_ahead(m: int | None, n: int | None, k: int | None, panel: int, rows: int, has_levels: bool) -> bool:
    """Whether panels of B follow each other and are long enough that the next one is fetched while one is multiplied."""
    return (m is None or m >= rows) and (n is None or n >= 2 * panel) and (k is None or k >= LONG) and not has_levels


def lower_gemm(context: Any, b: Any, sig: Any, args: Any, asked: tuple[Any, Any, int] | None = None) -> Any:
    """The code of ``gemm_block``; ``asked`` are the three more arguments of ``gemm_ahead``."""
    value = [_literal(v, t) for v, t in zip(args, sig.args, strict=True)]
    m, n, k, a, a_off, a_rs, a_cs, bb, b_off, b_panel, ldb, c, c_off, ldc, accumulate, _ = value[:16]
    levels = value[16:]
    a_kind, b_kind, c_kind = sig.args[3], sig.args[7], sig.args[11]
    panel = int(sig.args[15].literal_value)
    is_complex = c_kind.dtype.startswith("complex")
    if is_complex:
        # Complex numbers are pairs of floats: the same product with every distance and the columns doubled.
        a_kind, b_kind, c_kind = (parts_of(x) for x in (a_kind, b_kind, c_kind))
        pointer = value_type(c_kind).as_pointer()
        a, bb, c = (b.bitcast(x, pointer) for x in (a, bb, c))
        n, a_off, a_rs, a_cs, b_off, b_panel, ldb, c_off, ldc = (
            _times(b, x, 2) for x in (n, a_off, a_rs, a_cs, b_off, b_panel, ldb, c_off, ldc)
        )
        levels = [x if at % 3 == 0 else _times(b, x, 2) for at, x in enumerate(levels)]
        panel *= 2
        asked = None if asked is None else (_times(b, asked[0], 2), *asked[1:])
    triples = tuple(zip(levels[::3], levels[1::3], levels[2::3], strict=True))
    likes = like_of(sig.args[2]), like_of(sig.args[5])
    o = _Operands(k, a, a_rs, a_cs, bb, ldb, c, ldc, accumulate, a_kind, b_kind, c_kind, triples, is_complex, *likes)
    lanes = panel_lanes(panel, sum_bytes(c_kind))
    vectors, rows = panel // lanes, rows_of(sig.args)
    like_m, like_n, like_k = (like_of(x) for x in sig.args[:3])
    known = like_m or _known(m), like_n or _known(n), like_k or _known(k)
    asks_ahead = _asks_ahead(*known, panel, rows, bool(levels))
    last_panel = b.sub(b.sdiv(n, _c(panel)), _c(1))

    def places(p: Any, inside: Any) -> tuple[Any, Any]:
        """Where column ``inside`` of panel ``p`` lies in B and in C."""
        b_at, c_at = b.add(b_off, b.mul(p, b_panel)), b.add(c_off, b.mul(p, _c(panel)))
        return (b_at, c_at) if inside is None else (b.add(b_at, inside), b.add(c_at, inside))

    def tile(
        count: int, at: tuple[Any, Any], mask: Any, height: int, row: Any, ahead: _Ahead | _Spread | None = None
    ) -> None:
        a_at, c_row = b.add(a_off, b.mul(row, a_rs)), b.add(at[1], b.mul(row, ldc))
        _micro_kernel(b, o, height, count, lanes, a_at, at[0], c_row, mask, ahead)

    if is_shallow(*known, len(levels)):
        # Little is computed for each sum: what counts is that they are stored row by row, as memory goes on.
        over_rows(b, m, rows, lambda height, row, _: over_panels(
            b, n, panel, lanes, lambda count, p, inside, mask: tile(count, places(p, inside), mask, height, row)
        ))  # fmt: skip
        return context.get_dummy_value()

    def spread(p: Any, t: Any, distance: Any, part: Any, parts: int) -> _Spread:
        """The block after this one: the next panel, where each is multiplied by all rows before the next one."""
        if parts == 1:
            here = b.icmp_signed("<", p, last_panel)
            distance = b.select(here, b_panel, b.sub(distance, b.mul(last_panel, b_panel)))
        blocks = -(-known[0] // rows) if known[0] else 1
        return _Spread(distance, b.add(b.mul(part, _c(blocks)), t), parts * blocks)

    def columns(count: int, p: Any, inside: Any, mask: Any) -> None:
        following, at = None, places(p, inside)
        if asked is not None and count == vectors and inside is None and mask is None:
            over_rows(b, m, rows, lambda height, row, t: tile(
                count, at, mask, height, row, None if t is None else spread(p, t, *asked)
            ), like_m)  # fmt: skip
            return
        if asks_ahead and count == vectors and inside is None and mask is None:
            after = b.add(p, _c(1))
            after = b.select(b.icmp_signed("<", p, last_panel), after, p)
            following = b.add(b_off, b.mul(after, b_panel))
        over_rows(b, m, rows, lambda height, row, t: tile(
            count, at, mask, height, row, None if following is None or t is None else _Ahead(following, t)
        ), like_m)  # fmt: skip

    over_panels(b, n, panel, lanes, columns, like_n)
    return context.get_dummy_value()


register(gemm_block, type_gemm, outlined("gemm_block", lower_gemm, 3, is_written_out, alike, LEVELS))
