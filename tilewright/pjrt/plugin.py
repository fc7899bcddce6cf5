"""The plugin's table of functions, made once for a process and never taken down."""

from __future__ import annotations

import functools

from tilewright.pjrt import buffers, client, executables, handles
from tilewright.pjrt.entries import Entries

__all__ = ["entries"]


@functools.cache
def entries() -> Entries:
    """The functions that jaxlib calls."""
    functions = {**handles.FUNCTIONS, **client.FUNCTIONS, **buffers.FUNCTIONS, **executables.FUNCTIONS}
    return Entries(functions, handles.INNER_FUNCTIONS)
