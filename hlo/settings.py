"""Settings from the environment, read where they count and checked when they are read."""

from __future__ import annotations

import os

from hlo.errors import SettingError

__all__ = ["positive_setting"]


def positive_setting(name: str) -> int | None:
    """The whole number from 1 on that a variable holds; None where it is unset or empty. Raises SettingError for all else."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise SettingError(f"{name}: expected a positive number, found {text!r}")
    return int(text)
