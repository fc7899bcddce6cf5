"""What the types of ``gemm_block``'s arguments tell of its code: which sizes make a difference to it, and which do not.

    rows_of(kinds)          the height of its blocks of rows
    is_written_out(kinds)   whether LLVM finds nothing to vectorise in it
    alike(kinds)            the types that all calls have in common which may share one function
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codegen.kernel import types
from codegen.lib.buffer import Buf
from codegen.lib.micro_kernels.blocks import alike_columns, alike_rows, panel_lanes
from codegen.target import current_target

LEVELS = 16  # where the arguments of loops around that over k begin, three for each
SHALLOW = 16
SHORT = 8  # steps of k that are all written out in a small block
LONG = 64  # steps of k during which the next panel is asked for
FEW_POINTERS = 8  # rows whose addresses are kept in registers, one each
FEW_PANELS = 4  # so many at least make what is left after them a small part
FAR = 1 << 12  # a step from row to row that is as good as any other in which no two rows meet


def parts_of(kind: Buf) -> Buf:
    """The floats that a buffer of complex numbers consists of."""
    return Buf("float32" if kind.dtype == "complex64" else "float64", kind.scope, min(kind.align, 8))


def is_shallow(m: int | None, n: int | None, k: int | None, levels: int = 0) -> bool:
    """True for blocks with so few products to a sum that storing the sums takes the time."""
    return m is not None and n is not None and k is not None and not levels and k <= SHALLOW


def rows_of(kinds: Sequence[Any]) -> int:
    """The most rows of a block of ``gemm_block`` with arguments of these types."""
    a_kind, b_kind, c_kind = (parts_of(x) if x.dtype.startswith("complex") else x for x in (kinds[3], kinds[7], kinds[11]))
    panel = int(kinds[15].literal_value) * (2 if kinds[11].dtype.startswith("complex") else 1)
    vectors = panel // panel_lanes(panel, sum_bytes(c_kind))
    # Numbers of 8 and 16 bits are widened and rounded on the way: that takes registers, too.
    spare = 2 if min(a_kind.item_bytes, b_kind.item_bytes, c_kind.item_bytes) >= 4 else 5
    return max(1, min((current_target().vector_registers - vectors - spare) // vectors, 14))


def sum_bytes(c_kind: Buf) -> int:
    """The size of a sum before it is stored."""
    return max(c_kind.item_bytes, 4) if c_kind.dtype in ("float16", "bfloat16") else c_kind.item_bytes


def alike(kinds: Sequence[Any], asked: int = 0) -> Sequence[Any]:
    """The types of ``gemm_block``'s arguments with those sizes and distances as integers that make no difference to its code.

    Blocks of floats that are large in each direction differ in how many blocks of rows, panels and turns of the loop over k they
    have, in what is left after these, and in where rows begin. What is left stays known: a block of no more rows, columns or
    steps than that is a function of its own. ``asked`` are the arguments that ``gemm_ahead`` has before its levels: how it shares
    out what it asks for follows from the number of rows, which stays known.
    """
    levels = LEVELS + asked
    if not is_written_out([*kinds[:LEVELS], *kinds[levels:]]) or kinds[11].dtype.startswith("complex"):
        return kinds
    m, n, k, row, step = (getattr(kinds[at], "literal_value", None) for at in (0, 1, 2, 5, 6))
    found, rows, panel = list(kinds), rows_of(kinds), int(kinds[15].literal_value)
    is_short = k is not None and k <= SHALLOW  # then loops over rows and panels are seen through
    if is_short and len(kinds) == levels:
        return kinds
    if k is not None and not is_short:
        found[2] = types.IntegerLike((LONG if k >= LONG else LONG // 2) + k % 4)
    if m is not None and m > rows and not (asked or is_short):
        found[0] = types.IntegerLike(alike_rows(m, rows))
    lanes = panel_lanes(panel, kinds[11].item_bytes)
    # of few columns a last vector in part is much: for one lane that is known LLVM makes code of half the time
    if n is not None and not is_short and (n % lanes == 0 or n >= FEW_PANELS * panel):
        found[1] = types.IntegerLike(alike_columns(n, panel, lanes))
    if rows <= FEW_POINTERS and step == 1 and row is not None and row >= SHORT:
        found[5] = types.IntegerLike(FAR)
    steps = [at for at in range(levels, len(kinds)) if (at - levels) % 3]
    # loops of few turns may be written out
    many = [at for at in range(levels, len(kinds), 3) if getattr(kinds[at], "literal_value", 0) > SHORT]
    for at in (9, 13, *steps, *many):
        found[at] = types.int64
    return found


def like_of(kind: Any) -> int | None:
    """The number that an argument's code is the same as for; None where any is, or the one that is known."""
    return kind.like if isinstance(kind, types.IntegerLike) else None


def is_written_out(kinds: Any) -> bool:
    """True for blocks of floats that are added up in their own type: nothing is to be vectorised or converted.

    How large they are may be found out at run time, and where they begin; steps from row to row are known.
    """
    elements = {k.dtype for k in kinds if isinstance(k, Buf)}
    steps = [k for at, k in enumerate(kinds) if at > 2 and k is not types.boolean and not isinstance(kinds[at - 1], Buf)]
    known = all(isinstance(k, types.Literal | Buf) for k in steps)
    if not all(isinstance(k, types.IntegerLiteral) for k in kinds[:3]):  # few steps of k leave loops over rows to be seen through
        known = known and (not isinstance(kinds[2], types.IntegerLiteral) or kinds[2].literal_value > SHORT)
    return known and elements in ({"float32"}, {"float64"}) and current_target().has_fma
