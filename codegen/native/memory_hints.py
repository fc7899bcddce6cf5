"""What a kernel says of memory, written into its optimised LLVM text: stores past the caches, lines asked for ahead.

    mark_streams(text, scopes)      stores that go past the caches
    ask_ahead(text, ahead)          loads whose lines are asked for ahead

This is done to the text after vectorisation: the vectoriser leaves loops alone that have either.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence

__all__ = ["LINE_BYTES", "ask_ahead", "mark_streams"]

LINE_BYTES = 64
_LABEL = re.compile(r"(\S+):(?: |$)", re.MULTILINE)
_BLOCK = re.compile(r"^(?=\S+:(?: |$)|define |\})", re.MULTILINE)
"""Where a block of a function begins, or what is none."""

_ITEM_BYTES = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


def mark_streams(text: str, scopes: Sequence[str]) -> str:
    """The module with every aligned whole-vector store through `scopes` made non-temporal."""
    lists = _scope_lists(text, scopes)
    fresh = 1 + max((int(n) for n in re.findall(r"^!(\d+) = ", text, re.MULTILINE)), default=-1)
    store = re.compile(r"^ +store <(\d+) x (\w+)> .*, align (\d+), .*!alias\.scope (!\d+).*$", re.MULTILINE)

    def mark(found: re.Match[str]) -> str:
        is_whole = found[2] in _ITEM_BYTES and int(found[3]) >= int(found[1]) * _ITEM_BYTES[found[2]]
        return f"{found[0]}, !nontemporal !{fresh}" if is_whole and found[4] in lists else found[0]

    return f"{store.sub(mark, text)}\n!{fresh} = !{{i32 1}}\n"


def ask_ahead(text: str, ahead: Mapping[str, int]) -> str:
    """The module with the lines `ahead` bytes beyond each whole-vector load through a scope asked for: scope -> bytes.

    Only in innermost loops, where the loads walk through memory, and once for each line.
    """
    lists = {name: distance for scope, distance in ahead.items() for name in _scope_lists(text, [scope])}
    load = re.compile(r"^ +%\S+ = load <(\d+) x (\w+)>, ptr (%\S+), .*!alias\.scope (!\d+).*$", re.MULTILINE)
    count = itertools.count(1)

    def asked(block: str) -> str:
        """A block of a function, from its label on, with its lines asked for where it branches to itself."""
        label = _LABEL.match(block)
        itself = re.escape(label[1].strip('"')) if label else ""
        if not itself or not re.search(rf'^ +br .*label %"?{itself}"?(?:,|$)', block, re.MULTILINE):
            return block
        bytes_asked: Counter[str] = Counter()

        def with_lines(found: re.Match[str]) -> str:
            if found[4] not in lists or found[2] not in _ITEM_BYTES:
                return found[0]
            before = bytes_asked[found[4]]
            bytes_asked[found[4]] += int(found[1]) * _ITEM_BYTES[found[2]]
            made = [found[0]]
            for k in range(-(before // -LINE_BYTES), -(bytes_asked[found[4]] // -LINE_BYTES)):
                name = f"%ahead.{next(count)}"
                made.append(f"  {name} = getelementptr i8, ptr {found[3]}, i64 {lists[found[4]] + k * LINE_BYTES - before}")
                made.append(f"  call void @llvm.prefetch.p0(ptr {name}, i32 0, i32 3, i32 1)")
            return "\n".join(made)

        return load.sub(with_lines, block)

    made = "".join(map(asked, _BLOCK.split(text)))
    declared = made == text or "@llvm.prefetch.p0(" in text
    return made if declared else f"{made}\ndeclare void @llvm.prefetch.p0(ptr, i32, i32, i32)"


def _scope_lists(text: str, scopes: Sequence[str]) -> set[str]:
    """Names of the metadata lists that hold one of the scopes."""
    names = "|".join(map(re.escape, scopes))
    nodes = set(re.findall(rf'^(!\d+) = !{{!"tilewright\.(?:{names})", ', text, re.MULTILINE))
    return {name for name, node in re.findall(r"^(!\d+) = !\{(!\d+)\}$", text, re.MULTILINE) if node in nodes}
