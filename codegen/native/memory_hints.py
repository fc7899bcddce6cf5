"""What a kernel says of memory, written into its optimised LLVM text: stores past the caches, lines asked for ahead.

    mark_streams(text, scopes)      stores that go past the caches
    ask_ahead(text, ahead)          loads whose lines are asked for ahead

This is done to the text after vectorisation: the vectoriser leaves loops alone that have either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["LINE_BYTES", "ask_ahead", "mark_streams"]

LINE_BYTES = 64
_ITEM_BYTES = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


def mark_streams(text: str, scopes: Sequence[str]) -> str:
    """The module with every aligned whole-vector store through `scopes` made non-temporal."""
    lists = _scope_lists(text, scopes)
    fresh = 1 + max((int(n) for n in re.findall(r"^!(\d+) = ", text, re.MULTILINE)), default=-1)
    store = re.compile(r"^ +store <(\d+) x (\w+)> .*, align (\d+), .*!alias\.scope (!\d+)")

    def mark(line: str) -> str:
        found = store.match(line)
        if found is None or found[4] not in lists or found[2] not in _ITEM_BYTES:
            return line
        return f"{line}, !nontemporal !{fresh}" if int(found[3]) >= int(found[1]) * _ITEM_BYTES[found[2]] else line

    marked = "\n".join(mark(line) if "alias.scope" in line else line for line in text.split("\n"))
    return f"{marked}\n!{fresh} = !{{i32 1}}\n"


def ask_ahead(text: str, ahead: Mapping[str, int]) -> str:
    """The module with the lines `ahead` bytes beyond each whole-vector load through a scope asked for: scope -> bytes.

    Only in innermost loops, where the loads walk through memory, and once for each line.
    """
    lists = {name: distance for scope, distance in ahead.items() for name in _scope_lists(text, [scope])}
    load = re.compile(r"^ +%\S+ = load <(\d+) x (\w+)>, ptr (%\S+), .*!alias\.scope (!\d+)")
    label = re.compile(r"^(\S+):(?: |$)")
    lines: list[str] = []
    block: list[str] = []
    name = ""
    count = 0

    def close() -> None:
        nonlocal count
        bytes_asked: dict[str, int] = {}
        own = name.strip('"')
        loops = any(x.lstrip().startswith("br ") and re.search(rf'label %"?{re.escape(own)}"?(?:,|$)', x) for x in block[-3:])
        for x in block:
            lines.append(x)
            found = load.match(x) if loops and "alias.scope" in x else None
            if found is None or found[4] not in lists or found[2] not in _ITEM_BYTES:
                continue
            asked = bytes_asked.get(found[4], 0)
            size = int(found[1]) * _ITEM_BYTES[found[2]]
            bytes_asked[found[4]] = asked + size
            for k in range(-(asked // -LINE_BYTES), -((asked + size) // -LINE_BYTES)):
                count += 1
                at = lists[found[4]] + k * LINE_BYTES - asked
                lines.append(f"  %ahead.{count} = getelementptr i8, ptr {found[3]}, i64 {at}")
                lines.append(f"  call void @llvm.prefetch.p0(ptr %ahead.{count}, i32 0, i32 3, i32 1)")
        block.clear()

    for line in text.split("\n"):
        found = label.match(line)
        if found or line.startswith(("define ", "}")):
            close()
            name = found[1] if found else ""
        block.append(line)
    close()
    if not count:
        return text
    if "@llvm.prefetch.p0(" not in text:
        lines.append("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    return "\n".join(lines)


def _scope_lists(text: str, scopes: Sequence[str]) -> set[str]:
    """Names of the metadata lists that hold one of the scopes."""
    nodes: set[str] = set()
    for scope in scopes:
        nodes |= set(re.findall(rf'^(!\d+) = !{{!"tilewright\.{re.escape(scope)}", ', text, re.MULTILINE))
    return {name for name, node in re.findall(r"^(!\d+) = !\{(!\d+)\}$", text, re.MULTILINE) if node in nodes}
