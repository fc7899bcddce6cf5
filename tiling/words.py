"""Amounts, counts and lists of ops in words."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.module import Op

__all__ = ["amount", "count", "op_summary"]


MOST_NAMED = 6


def op_summary(ops: Sequence[Op]) -> str:
    """The mnemonics of some ops, those that compute first; the rest is counted."""
    names = [op.definition.mnemonic for op in ops]
    shown = list(dict.fromkeys(names))
    text = ", ".join(f"{n} x{names.count(n)}" if names.count(n) > 1 else n for n in shown[:MOST_NAMED])
    rest = sum(names.count(n) for n in shown[MOST_NAMED:])
    return text + (f", {rest} more" if rest else "")


def amount(size_bytes: int) -> str:
    """A number of bytes for people.

    >>> amount(256), amount(134217728), amount(1500)
    ('256 bytes', '128.0 MiB', '1.5 KiB')
    """
    size, unit = float(size_bytes), ""
    for larger in ("KiB", "MiB", "GiB"):
        if size >= 1024:
            size, unit = size / 1024, larger
    return f"{size:.1f} {unit}" if unit else f"{size_bytes} bytes"


def count(n: int, what: str) -> str:
    """A number of things in words."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
