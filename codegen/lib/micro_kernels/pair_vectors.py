"""Products of pairs of bf16 by multiply-adds of f32, the products of each pair one after the other: what all CPUs compute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llvmlite import ir

from codegen.lib.buffer import Buf
from codegen.lib.emit import F32, I1, I16, I32, I64, Value, constant, intrinsic_function
from codegen.lib.micro_kernels.blocks import _c, _counted_loop, _known, over_panels, over_rows, panel_lanes, splat
from codegen.lib.micro_kernels.contract import store_vector
from codegen.target import current_target

__all__ = ["Levels", "by_vectors", "store_sums", "vectors_function"]

Levels = tuple[tuple[int, int], ...]
"""How often loops around k run, and their steps in A; B goes on."""

_HIGH = -65536  # the upper half of 32 bits
_EXACT = "tilewright_pairs_by_vectors"


def by_vectors(b: Any, kinds: tuple[Buf, Buf, Buf], extents: tuple[Any, Any, Any], a: tuple[Any, Any, Any, Any],
               right: tuple[Any, Any, int], out: tuple[Any, Any], levels: Levels = (), again: Any = None) -> None:  # fmt: skip
    """The product by multiply-adds of f32; where ``again`` (a truth of LLVM, or None) holds it is added to what is in C.

    Pointers are to the first elements, distances in elements. A's are between its rows, between pairs, and inside of a pair.
    """
    (m, n, k), (left, a_row, a_pair, a_step), (first, b_panel, panel), (c, ldc) = extents, a, right, out
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

    def pair_at(base: Any, row: Any, t: Any) -> Any:
        """Both numbers of a row at a pair of steps."""
        at = b.add(row, b.mul(t, a_pair))
        if _known(a_step) == 1:
            return load(base, at, I32)
        lower, upper = (b.zext(load(base, x, I16), I32) for x in (at, b.add(at, a_step)))
        return b.or_(lower, b.shl(upper, constant(I32, 16)))

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
                both = pair_at(a_base, b.add(a_at, b.mul(a_row, _c(i))), t)
                for part, x in enumerate(halves(splat(Value(b, both), lanes).v)):
                    for j in range(count):
                        new[i * count + j] = _sum(x, columns[j][part], Value(b, new[i * count + j])).v
            return new

        sums = level(0, _c(0), _c(0), [constant(vector, 0)] * (count * height))
        places = [(b.add(c_at, b.add(b.mul(ldc, b.add(row, _c(i))), _c(j * lanes))), mask if j == count - 1 else None)
                  for i in range(height) for j in range(count)]  # fmt: skip
        store_sums(b, kinds[2], c, places, sums, again)

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


def store_sums(b: Any, kind: Buf, c: Any, places: Sequence[tuple[Any, Any]], sums: Sequence[Any], again: Any = None) -> None:
    """Stores vectors of sums at places of C, each with its mask or None; where ``again`` holds, added to what is there."""

    def store(values: Iterable[Any]) -> None:
        for (place, mask), value in zip(places, values, strict=True):
            store_vector(b, kind, c, place, Value(b, value), mask)

    known = 0 if again is None else _known(again)
    if known == 0:
        store(sums)
        return
    with b.if_else(again) as (then, otherwise):
        with then:
            store(b.fadd(x, _load(b, c, place, x.type, mask)) for x, (place, mask) in zip(sums, places, strict=True))
        with otherwise:
            store(sums)


def _load(b: Any, base: Any, place: Any, vector: Any, mask: Any) -> Any:
    pointer = b.bitcast(b.gep(base, [place]), vector.as_pointer())
    if mask is None:
        access = b.load(pointer)
        access.align = 4
        return access
    kinds = [pointer.type, I32, mask.type, vector]
    fn = intrinsic_function(b.module, f"llvm.masked.load.v{vector.count}f32.p0", vector, kinds)
    return b.call(fn, [pointer, ir.Constant(I32, 4), mask, constant(vector, 0)])


def vectors_function(b: Any, kinds: tuple[Buf, Buf, Buf], panel: int, pointers: tuple[Any, Any, Any]) -> Any:
    """A function of the module that does the same for any extents.

    Its arguments are m, n, k, a, its rows' distance, its pairs', b, its panels', c, its rows', and whether it adds to C.
    """
    name = f"{_EXACT}_{panel}"
    found = b.module.globals.get(name)
    if found is None:
        i64, (a, right, c) = I64, (p.type for p in pointers)
        kind = ir.FunctionType(ir.VoidType(), [i64, i64, i64, a, i64, i64, right, i64, c, i64, I1])
        found = ir.Function(b.module, kind, name)
        found.linkage = "internal"
        found.attributes.add("noinline")
        found.attributes.add("nounwind")
        inner = ir.IRBuilder(found.append_basic_block())
        m, n, k, a_at, a_row, a_pair, b_at, b_panel, c_at, ldc, again = found.args
        first, second, third = kinds  # in no scope: calls of one kernel may pass other buffers
        plain = first, second, Buf(third.dtype, "", third.align)
        by_vectors(inner, plain, (m, n, k), (a_at, a_row, a_pair, _c(1)), (b_at, b_panel, panel), (c_at, ldc), (), again)
        inner.ret_void()
    return found
