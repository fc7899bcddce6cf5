"""The name of JAX's platform (`tilewright.pjrt`), for who asks whether JAX's arrays are its own."""

from __future__ import annotations

__all__ = ["PLATFORM"]

PLATFORM = "tilewright"
