"""A contraction as loops around calls of the micro-kernel.

    for k0 in blocks of k: pack the operands' blocks; routine(rows, columns, steps of k, left, right, out, k0 > 0)

Where the right operand's next block is asked for, a loop over blocks of columns may be around that over k.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from codegen.source.nest import NestEmitter
from codegen.source.phase import PhaseWriter
from indexing.expr import Const, as_expr, substitute
from tiling.loops.affine import linear
from tiling.loops.ir import ZERO, Contract, Loop

__all__ = ["emit_contraction"]


def emit_contraction(phase: PhaseWriter, c: Contract) -> None:
    """The loops around a contraction, the packs of each block of k, and the call of the micro-kernel."""
    out = phase.out
    depth = out.depth
    blocks = -(-c.k // c.k_block)
    inside = _inside_of_blocks(c) if blocks > 1 or c.asks_ahead else ()
    band, band_step = _band(c)
    for loop in c.loops:
        if loop not in inside and loop is not band:
            phase.open(loop)
    k0 = phase.name(c.k_start)
    phase.uses(c.left.buffer, c.right.buffer, c.out.buffer)
    rows, columns = phase.count(c.rows_upper), phase.count(c.columns_upper)
    if band is not None:
        rows = phase.expr((band.upper + 1) * c.m)
        begin_at = {band.variable: Const(0)}
        left_block, out_block = (replace(x, base=substitute(x.base, begin_at)) for x in (c.left, c.out))
        c = replace(c, left=left_block, out=out_block)
    first, right_at = _first_column(phase, c)
    if first:
        columns = f"{columns} - {first}"
    asks = c.asks_ahead and not c.pack and not first
    if asks and c.column_block:
        first = "p0"
        out.line(f"for {first} in range(0, {columns}, {c.column_block}):")
        out.depth += 1
        right_at = f" + {first} // {c.columns}*{c.panel_stride}"
        whole = columns.isdigit() and int(columns) % c.column_block == 0
        columns = str(c.column_block) if whole else f"min({c.column_block}, {columns} - {first})"
    if blocks == 1:
        phase.variables[c.k_start] = "0"
    else:
        start = f"{phase.expr(c.depth_lower // c.k_block * c.k_block)}" if c.depth_lower is not ZERO else "0"
        out.line(f"for {k0} in range({start}, {phase.count(c.last_depth)}, {c.k_block}):")
        out.depth += 1
    asked = _asked(phase, c, inside, blocks, k0, phase.expr(c.right.base) + right_at) if asks else ()
    for loop in inside:
        phase.open(loop)
    for nest in c.pack:
        NestEmitter(phase, nest).run()
    begin = "0" if blocks == 1 else k0
    if c.depth_lower is not ZERO:
        out.line(f"k1 = max({begin}, {phase.expr(c.depth_lower)})")
    size = _block_size(phase, c, blocks, k0)
    right = phase.expr(c.right.base) + right_at
    left = phase.expr(c.left.base)
    if c.depth_lower is not ZERO:
        step = "" if c.left.column_stride == 1 else f"{c.left.column_stride}*"
        left += f" + {step}k1" if blocks == 1 else f" + {step}(k1 - {k0})"
        group = "k1" if c.kernel.together == 1 else f"(k1 // {c.kernel.together})"
        right += f" + {c.right.row_stride}*{group}"
    elif blocks > 1:
        right += f" + {c.right.row_stride}*{k0}"
    again = "False" if blocks == 1 else f"{k0} > 0" if c.depth_lower is ZERO else f"{k0} > {start}"
    out_at = phase.expr(c.out.base) + (f" + {first}" if first else "")
    given = {
        "rows": rows, "columns": columns, "depth": size,
        "left": c.left.buffer.name, "left_at": left, "left_row": c.left.row_stride, "left_step": c.left.column_stride,
        "right": c.right.buffer.name, "right_at": right, "right_panel": c.panel_stride, "right_row": c.right.row_stride,
        "out": c.out.buffer.name, "out_at": out_at, "out_row": c.out.row_stride, "out_step": c.out.column_stride,
        "again": "True" if c.accumulate else again, "panel": c.columns,
        "band": 0 if band is None else c.m, "band_step": band_step,
    }  # fmt: skip
    levels = [f"int64({x})" if c.shares_code else x for level in c.levels for x in level]
    routine = c.kernel.asking if asked else c.kernel.routine
    out.line(f"{routine}({', '.join(str(x) for x in (*(given[a] for a in c.kernel.arguments), *asked, *levels))})")
    out.depth = depth


def _band(c: Contract) -> tuple[Loop | None, int]:
    """The loop of which a routine that walks bands of rows makes more rows, and how far one band lies from the next; None.

    The result's rows go on from one to the next, and both read the same columns. Rows that lie across k are one band each.
    """
    for x in reversed(c.loops) if c.kernel.walks and not c.pack and c.left.column_stride == 1 else ():
        v = x.variable
        if v in c.right.base.variables or x.lower is not ZERO or c.rows_upper is not as_expr(c.m - 1):
            continue
        left, out = linear(c.left.base, (v,)), linear(c.out.base, (v,))
        if left is not None and out is not None and out[1][0] == c.m * c.out.row_stride:
            return x, left[1][0]
    return None, 0


def _asked(
    phase: PhaseWriter, c: Contract, inside: tuple[Loop, ...], blocks: int, k0: str, panels_at: str
) -> tuple[str, str, str]:
    """How far ahead the next block of the right operand lies, which call of those that multiply this one it is, and how many.

    After the last block of k of some panels comes the first one of the panels after them; after the last panels, whose first one
    lies at `panels_at`, nothing: what lies beyond a buffer may have no address that a table of pages knows, which takes long to
    find out.
    """
    step, panels = c.k_block * c.right.row_stride, c.panel_stride * -(-(c.column_block or c.n) // c.columns)
    rest = prod(c.right.buffer.shape) - panels
    part, parts = "0", 1
    for x in inside:
        name = phase.name(x.variable)
        part = name if part == "0" else f"({part})*{x.extent} + {name}"
        parts *= x.extent
    after = f"min({panels}, {rest} - ({panels_at.removeprefix('0 + ')}))" if rest > 0 else "0"
    if blocks == 1:
        return after, part, str(parts)
    phase.out.line(f"if {k0} < {(blocks - 1) * c.k_block}:")
    phase.out.line(f"    ahead = {step}")
    phase.out.line("else:")
    phase.out.line(f"    ahead = {after} - {(blocks - 1) * step}")
    return "ahead", part, str(parts)


def _inside_of_blocks(c: Contract) -> tuple[Loop, ...]:
    """The loops that run inside of each block of k: those that read the same of the right operand, which then stays in the cache.

    There are none where blocks are packed, or where a mask bounds them.
    """
    if c.pack or c.depth_lower is not ZERO or c.depth_upper is not None:
        return ()
    return tuple(x for x in c.loops if x.variable not in c.right.base.variables)


def _first_column(phase: PhaseWriter, c: Contract) -> tuple[str, str]:
    """The first column's number, and how far its panel lies behind the first one's; both empty where it is 0."""
    if c.columns_lower is ZERO:
        return "", ""
    phase.out.line(f"n0 = {phase.expr(c.columns_lower)}")
    return "n0", " + n0" if c.panel_stride == c.columns else f" + n0 // {c.columns}*{c.panel_stride}"


def _block_size(phase: PhaseWriter, c: Contract, blocks: int, k0: str) -> str:
    """How many steps of k one call makes."""
    if c.depth_upper is None:
        return str(c.k) if blocks == 1 else f"min({c.k_block}, {c.k} - {k0})" if c.k % c.k_block else str(c.k_block)
    stop = phase.count(c.depth_upper)
    first = "k1" if c.depth_lower is not ZERO else "" if blocks == 1 else k0
    if blocks > 1:
        stop = f"min({k0} + {c.k_block}, {stop})"
    return f"{stop} - {first}" if first else stop
