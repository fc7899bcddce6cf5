"""A contraction as loops around calls of the micro-kernel.

    for k0 in blocks of k: pack the operands' blocks; gemm_block(rows, columns, steps of k, left, right, out, k0 > 0)
"""

from __future__ import annotations

from collections.abc import Callable

from codegen.source.phase import PhaseWriter
from tiling.loops.ir import ZERO, Contract, Nest

__all__ = ["emit_contraction"]


def emit_contraction(phase: PhaseWriter, c: Contract, pack: Callable[[Nest], None]) -> None:
    """The loops around a contraction, the packs of each block of k (written by `pack`), and the call of the micro-kernel."""
    out = phase.out
    depth = out.depth
    for loop in c.loops:
        phase.open(loop)
    blocks = -(-c.k // c.k_block)
    k0 = phase.name(c.k_start)
    phase.uses(c.left.buffer, c.right.buffer, c.out.buffer)
    rows, columns = phase.count(c.rows_upper), phase.count(c.columns_upper)
    first, right_at = _first_column(phase, c)
    if first:
        columns = f"{columns} - {first}"
    if blocks == 1:
        phase.variables[c.k_start] = "0"
    else:
        start = f"{phase.expr(c.depth_lower // c.k_block * c.k_block)}" if c.depth_lower is not ZERO else "0"
        out.line(f"for {k0} in range({start}, {phase.count(c.last_depth)}, {c.k_block}):")
        out.depth += 1
    for nest in c.pack:
        pack(nest)
    if c.in_quads:
        out.line(
            f"gemm_bytes({rows}, {columns}, {c.k}, {c.left.buffer.name}, {phase.expr(c.left.base)}, {c.left.row_stride}, "
            f"{c.right.buffer.name}, {phase.expr(c.right.base)}, {c.panel_stride}, "
            f"{c.out.buffer.name}, {phase.expr(c.out.base)}, {c.out.row_stride}, {c.columns})"
        )
        out.depth = depth
        return
    begin = "0" if blocks == 1 else k0
    if c.depth_lower is not ZERO:
        out.line(f"k1 = max({begin}, {phase.expr(c.depth_lower)})")
    size = _block_size(phase, c, blocks, k0)
    right = phase.expr(c.right.base) + right_at
    left = phase.expr(c.left.base)
    if c.depth_lower is not ZERO:
        step = "" if c.left.column_stride == 1 else f"{c.left.column_stride}*"
        left += f" + {step}k1" if blocks == 1 else f" + {step}(k1 - {k0})"
        right += f" + {c.right.row_stride}*k1"
    elif blocks > 1:
        right += f" + {c.right.row_stride}*{k0}"
    levels = "".join(f", int64({x})" if c.shares_code else f", {x}" for level in c.levels for x in level)
    again = "False" if blocks == 1 else f"{k0} > 0" if c.depth_lower is ZERO else f"{k0} > {start}"
    again = "True" if c.accumulate else again
    if c.along_depth:
        out.line(
            f"gemm_dots({rows}, {columns}, {size}, {c.left.buffer.name}, {left}, {c.left.row_stride}, "
            f"{c.right.buffer.name}, {right}, {c.panel_stride}, {c.out.buffer.name}, {phase.expr(c.out.base)}, "
            f"{c.out.row_stride}, {c.out.column_stride}, {again}{levels})"
        )
        out.depth = depth
        return
    out_at = phase.expr(c.out.base) + (f" + {first}" if first else "")
    call = (
        f"gemm_block({rows}, {columns}, {size}, {c.left.buffer.name}, {left}, {c.left.row_stride}, {c.left.column_stride}, "
        f"{c.right.buffer.name}, {right}, {c.panel_stride}, {c.right.row_stride}, "
        f"{c.out.buffer.name}, {out_at}, {c.out.row_stride}, {again}, {c.columns}{levels})"
    )
    out.line(call)
    out.depth = depth


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
