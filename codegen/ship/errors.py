"""What goes wrong when a program is to become a file."""

from __future__ import annotations

from hlo.errors import TilewrightError

__all__ = ["ExportError"]


class ExportError(TilewrightError):
    """A program that cannot be a file, or a compiler that is missing or fails; the message says which step, and why."""
