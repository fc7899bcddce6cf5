"""``gemm_ahead``: ``gemm_block`` that asks for what comes next of B, from beyond the core's own caches, while it multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codegen.kernel import types
from codegen.kernel.types import signature
from codegen.lib.micro_kernels.contract import gemm_block, lower_gemm, type_gemm
from codegen.lib.micro_kernels.gemm_kinds import alike, is_written_out
from codegen.lib.outline import outlined
from codegen.lib.register import register


def gemm_ahead(
    m: int, n: int, k: int,
    a: Any, a_off: int, a_rs: int, a_cs: int,
    b: Any, b_off: int, b_panel_stride: int, ldb: int,
    c: Any, c_off: int, ldc: int,
    accumulate: bool, panel: int, ahead: int, part: int, parts: int, *levels: int,
) -> None:  # fmt: skip
    """``gemm_block`` of panels whose rows follow each other, which asks for what comes next of B while it multiplies.

    Next comes what lies ``ahead`` elements behind this block, once ``parts`` calls, a literal, have multiplied this one; this is
    number ``part`` of them. Each asks for its share, so that a block comes while all of the one before is multiplied.
    """
    gemm_block(m, n, k, a, a_off, a_rs, a_cs, b, b_off, b_panel_stride, ldb, c, c_off, ldc, accumulate, panel, *levels)


_ASKED = slice(16, 19)  # ahead, part, parts


def _type_ahead(*args: Any) -> Any:
    plain = type_gemm(*args[: _ASKED.start], *args[_ASKED.stop :])
    if plain is None or not isinstance(args[18], types.IntegerLiteral):
        return None
    kinds = plain.args
    return signature(types.none, *kinds[: _ASKED.start], types.int64, types.int64, args[18], *kinds[_ASKED.start :])


def _alike(kinds: Sequence[Any]) -> Sequence[Any]:
    return alike(kinds, _ASKED.stop - _ASKED.start)


def _is_written_out(kinds: Sequence[Any]) -> bool:
    return is_written_out([*kinds[: _ASKED.start], *kinds[_ASKED.stop :]])


def _lower_ahead(context: Any, b: Any, sig: Any, args: Any) -> Any:
    kinds, (ahead, part, _) = sig.args, args[_ASKED]
    parts = int(kinds[18].literal_value)
    plain = signature(types.none, *kinds[: _ASKED.start], *kinds[_ASKED.stop :])
    return lower_gemm(context, b, plain, [*args[: _ASKED.start], *args[_ASKED.stop :]], (ahead, part, parts))


register(gemm_ahead, _type_ahead, outlined("gemm_ahead", _lower_ahead, 3, _is_written_out, _alike, _ASKED.stop))
