"""Masked stores of one lane, written out: what LLVM's AVX-512 code for them writes beyond the lane.

LLVM 22 joins a truncation and the masked store of its result into one truncating store, and makes a scalar store of it when the
mask leaves a single lane on, in the type before the truncation: an i64 truncated to an i32 overwrites the next i32 as well
(llvm/llvm-project#179489, mended in later versions). Such stores come from loops of few iterations, whose last vector holds one
element: the row of another thread, or what lies behind the result, was overwritten.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["has_masked_stores", "write_single_lanes"]

_STORE = re.compile(
    r"^\s+(?:(?:tail|notail) )?call void @llvm\.masked\.store\.[^(]*\(<(?P<lanes>\d+) x (?P<type>\w+)> (?P<value>.+),"
    r" ptr (?:(?:noundef|nonnull|noalias|writeonly|align \d+|captures\([^)]*\)|dereferenceable\(\d+\)) )*(?P<pointer>.+),"
    r" <\d+ x i1> <(?P<mask>(?:i1 (?:true|false)(?:, )?)+)>\)(?: #\d+)?(?P<metadata>(?:, ![\w.]+ !\d+)*)$"
)


def has_masked_stores(module: Any) -> bool:
    """True for a parsed module that declares one of LLVM's masked stores."""
    return any(f.name.startswith("llvm.masked.store.") for f in module.functions)


def write_single_lanes(text: str) -> str:
    """The LLVM text with each masked store of exactly one constant lane as the store of that lane: p[k] = v[k].

    Raises ValueError for such a store in a form that is not known here; a store in its old form would be wrong code.
    """
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if "@llvm.masked.store." in line and line.count("i1 true") == 1 and " splat (" not in line.rpartition("x i1>")[2]:
            lines[number] = _single_lane(line, number)
    return "\n".join(lines)


def _single_lane(line: str, number: int) -> str:
    found = _STORE.match(line)
    if found is None:
        raise ValueError(f"a masked store of one lane in a form that is not known: {line.strip()}")
    lane = found["mask"].split(", ").index("i1 true")
    kind, name = found["type"], f"one.lane.{number}"
    return (
        f'  %"{name}.value" = extractelement <{found["lanes"]} x {kind}> {found["value"]}, i64 {lane}\n'
        f'  %"{name}.place" = getelementptr {kind}, ptr {found["pointer"]}, i64 {lane}\n'
        f'  store {kind} %"{name}.value", ptr %"{name}.place", align 1{found["metadata"]}'
    )
