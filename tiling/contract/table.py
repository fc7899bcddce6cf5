"""The table of micro-kernels: of which elements, in which blocks, at what cost. A new one is a row here, and its code.

`tiling.contract.micro_kernels` takes the row of least cost for a contraction. What it computes of which layouts is its `kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from hlo.types import ElementType, element_type
from tiling.loops.micro_kernels import MicroKernel
from tiling.machine import Machine

__all__ = ["MICRO_KERNELS", "Problem", "Row", "Types"]

FLOATS = ("bf16", "f16", "f32", "f64")
INTEGERS = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
COMPLEX = ("complex<f32>", "complex<f64>")

FEW_VECTORS = {1: 1.5, 2: 2.5}  # rows or columns up to which summing in lanes is faster: vectors of sums, by an element's bytes
FEW_VECTORS_OF_OTHERS = 2.0
LEAST_RUN_VECTORS = 4  # vectors in one run of k
LEAST_DEPTH_VECTORS = 12  # vectors in all of a sum: adding up the lanes at the end must not count
LEAST_ALONE_VECTORS = 36  # the same for a matrix by a vector, which plain loops do well
NEAR_BYTES = 1 << 22  # what of a factor of bytes is packed near a core
FEWEST_ROWS = 16  # of pairs: half a tile; fewer do not make up for a copy (4 x 4096 x 4096: 1.4 ms, 5.2 copied)
DOT_PRODUCTS = 2  # of a lane: more are those of tiles
NEAR_COPY, FAR_COPY = 2.0, 16.0  # what packing a vector of it costs, as `Row.cost` counts

WHOLE = 1 << 62  # more steps of k than there are

Types = tuple[str, str, str]
"""The element types of the two factors and of the result."""


@dataclass(frozen=True)
class Problem:
    """A contraction as a micro-kernel would compute it: `rows` and `columns` of the whole result, sums of `depth` products.

    `run` of the steps of k follow each other in memory. A vector holds `lanes` sums. A `copy` of the columns' factor would be
    made beside a task that computes the rows' factor. `per_lane` products of bf16 are summed by tiles or dot instructions in
    the time of one in a lane, 1 where there are none. An instruction sums `byte_products` products of bytes in a lane. The depth
    is `one_loop`, or a window, of which each run is `in_pairs`, or can be copied so.
    """

    types: Types
    rows: int
    columns: int
    depth: int
    run: int
    lanes: int
    item_bytes: int
    copy: bool = False
    per_lane: float = 1.0
    one_loop: bool = True
    byte_products: int = 1
    in_pairs: bool = True


@dataclass(frozen=True)
class Row:
    """A micro-kernel of the table.

    `sums` is the element type that products are summed in, None for elements that it does not take. `block` are rows and columns
    in registers, for a machine, a sum's bytes and the columns. `cost` is vector instructions for a product of a whole vector of
    columns, beside those of `gemm_block`; infinite where plain loops, or any other row, do better. Sums of more than
    `depth_block` steps of k, or `window_block` in a window, are made in blocks: their operands stay in the second-level cache.
    """

    kernel: MicroKernel
    sums: Callable[[Types], ElementType | None]
    block: Callable[[Machine, int, int], tuple[int, int]]
    cost: Callable[[Problem], float]
    depth_block: int = WHOLE
    window_block: int = WHOLE


def _sums(types: Types) -> ElementType | None:
    """The result's type, f32 for one of 16 bits; None unless the factors are as wide, or narrower of the same kind."""
    left, right, out = types
    if out in FLOATS:
        narrow = all(x in FLOATS and element_type(x).bits < element_type(out).bits for x in {left, right} - {out})
        taken = left in FLOATS and right in FLOATS and narrow
    elif out in INTEGERS:
        taken = all(x in INTEGERS and element_type(x).bits <= element_type(out).bits for x in (left, right))
    else:
        taken = out in COMPLEX and left == right == out
    return None if not taken else element_type("f32") if out in ("bf16", "f16") else element_type(out)


def _sums_of_reals(types: Types) -> ElementType | None:
    return None if types[2] in COMPLEX else _sums(types)


def _sums_of_bytes(types: Types) -> ElementType | None:
    left, right, out = types
    return element_type(out) if {left, right} <= {"i8", "ui8"} and out in ("i32", "ui32") else None


def _sums_of_pairs(types: Types) -> ElementType | None:
    left, right, out = types
    return element_type("f32") if left == right == "bf16" and out in ("bf16", "f32") else None


def _products(types: Types) -> int:
    """How many products one lane of an instruction sums."""
    return 4 if _sums_of_bytes(types) else 1


def _cost_of_block(p: Problem) -> float:
    return inf if p.columns < p.lanes // 2 or p.depth < 2 else 1.0


def _cost_of_bytes(p: Problem) -> float:
    """The columns' factor is packed first, which few rows make up for the less the farther it comes from."""
    packed = FAR_COPY if p.columns * p.depth > NEAR_BYTES else NEAR_COPY
    return inf if p.depth < 2 else 1.0 / _products(p.types) + packed / p.rows


def _cost_of_squares(p: Problem) -> float:
    """As of bytes, of twice the products: pairs of rows by pairs of columns. An odd row is multiplied twice."""
    packed = FAR_COPY if p.columns * p.depth > NEAR_BYTES else NEAR_COPY
    return inf if p.depth < 2 or p.byte_products < 8 else ((p.rows + 1) // 2 * 2 / 8.0 + packed) / p.rows


def _cost_of_pairs(p: Problem) -> float:
    """Tiles and dot instructions only: vectors of f32 read bf16 as well without a copy. A window is for dot instructions, which
    copy its rows of all levels one after the other."""
    packed = FAR_COPY if p.columns * p.depth > NEAR_BYTES else NEAR_COPY
    is_run = p.one_loop or (p.per_lane <= DOT_PRODUCTS and p.in_pairs)
    fits = p.per_lane > 1 and is_run and p.columns >= p.lanes // 2 and p.rows >= FEWEST_ROWS
    return inf if p.depth < 2 or not fits else 1.0 / p.per_lane + packed / p.rows


def _block_of_pairs(machine: Machine, item_bytes: int, columns: int) -> tuple[int, int]:
    """Two tiles by two where there are tiles, else twelve rows of two vectors."""
    return (32 if machine.tile_products > 1 else 12), 2 * machine.lanes(item_bytes)


def _block_of_bytes(machine: Machine, item_bytes: int, columns: int) -> tuple[int, int]:
    """Two tiles by two where there are tiles, else twelve rows of two vectors; ten on Arm, where rows of the right factor for two
    steps lie in registers, or two registers have the sums of a vector of columns (two blocks of five)."""
    on_arm = (machine.vector_bytes, machine.vector_registers) == (16, 32)
    return (32 if machine.tile_products > 1 else 10 if on_arm else 12), 2 * machine.lanes(item_bytes)


def _cost_of_dots(p: Problem) -> float:
    """Each column is a sum of its own, where `gemm_block` takes a vector of them at once: as measured, worth it for few.

    A copy holds all of k: beside a task that computes the other factor (a row of weights, say) sums could then not be made block
    by block, nor end where a mask does. Only what is too narrow for `gemm_block` is summed in lanes there.
    """
    least = LEAST_DEPTH_VECTORS if p.columns > 1 else LEAST_ALONE_VECTORS
    if p.run < LEAST_RUN_VECTORS * p.lanes or p.depth < least * p.lanes or p.rows < 2:
        return inf
    few = p.lanes // 2 - 1 if p.copy else int(p.lanes * FEW_VECTORS.get(p.item_bytes, FEW_VECTORS_OF_OTHERS))
    return inf if p.columns > few else p.columns / few / _products(p.types)


_WHERE = ("left", "left_at", "left_row"), ("right", "right_at", "right_panel"), ("out", "out_at", "out_row")
_SIZES = ("rows", "columns", "depth")

MICRO_KERNELS = (
    Row(
        MicroKernel("gemm_dots", (*_SIZES, *_WHERE[0], *_WHERE[1], *_WHERE[2], "out_step", "again"), along=True),
        _sums_of_reals, lambda machine, item_bytes, columns: (4, 1), _cost_of_dots, depth_block=2048, window_block=2048,
    ),
    Row(
        MicroKernel("gemm_bytes", (*_SIZES, *_WHERE[0], *_WHERE[1], *_WHERE[2], "panel"), together=4, adds=False),
        _sums_of_bytes, _block_of_bytes, _cost_of_bytes,
    ),
    Row(
        MicroKernel("gemm_mmla", (*_SIZES, *_WHERE[0], *_WHERE[1], *_WHERE[2], "panel"), together=8, adds=False),
        _sums_of_bytes, lambda machine, item_bytes, columns: (8, 2 * machine.lanes(item_bytes)), _cost_of_squares,
    ),
    Row(
        MicroKernel(
            "gemm_pairs", (*_SIZES, *_WHERE[0], "left_step", *_WHERE[1], *_WHERE[2], "panel", "band", "band_step"), together=2,
            adds=False, walks=True,
        ),
        _sums_of_pairs, _block_of_pairs, _cost_of_pairs,
    ),
    Row(
        MicroKernel(
            "gemm_block", (*_SIZES, *_WHERE[0], "left_step", *_WHERE[1], "right_row", *_WHERE[2], "again", "panel"),
            asking="gemm_ahead",
        ),
        _sums, Machine.micro_tile, _cost_of_block, depth_block=384, window_block=1536,
    ),
)  # fmt: skip
"""Of rows that cost the same the first is taken."""
