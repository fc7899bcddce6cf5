"""Settings from the environment, read where they count and checked when they are read."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

from hlo.errors import SettingError

__all__ = ["choice_setting", "debug_modes", "positive_setting", "size_setting"]

_DEBUG_MODES = frozenset({"check", "guard", "guard-before", "prove"})


def positive_setting(name: str) -> int | None:
    """The whole number from 1 on that a variable holds; None where it is unset or empty. Raises SettingError for all else."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise SettingError(f"{name}: expected a positive number, found {text!r}")
    return int(text)


def size_setting(name: str) -> int | None:
    """The bytes that a variable holds, with K, M or G for powers of 1024; None where it is unset or empty.

    Raises SettingError for all else.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    digits, unit = (text[:-1], text[-1].upper()) if text[-1].upper() in "KMG" else (text, "")
    if not (digits.isascii() and digits.isdigit()):
        raise SettingError(f"{name}: expected a number of bytes, as 1048576, 512M or 2G, found {text!r}")
    return int(digits) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def choice_setting(name: str, choices: Sequence[str]) -> str:
    """The word that a variable holds, one of `choices`; the first of them where it is unset or empty. Raises SettingError."""
    text = os.environ.get(name, "").strip() or choices[0]
    if text not in choices:
        raise SettingError(f"{name}: expected {' or '.join(choices)}, found {text!r}")
    return text


def debug_modes() -> frozenset[str]:
    """The modes that TILEWRIGHT_DEBUG switches on, several with commas between. Raises SettingError for one that there is not."""
    return _modes(os.environ.get("TILEWRIGHT_DEBUG", ""))


@functools.cache
def _modes(text: str) -> frozenset[str]:
    found = frozenset(filter(None, map(str.strip, text.split(","))))
    unknown = sorted(found - _DEBUG_MODES)
    if unknown:
        raise SettingError(f"TILEWRIGHT_DEBUG: expected {', '.join(sorted(_DEBUG_MODES))}, found {unknown[0]!r}")
    return found
