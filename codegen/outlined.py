"""What a kernel needs of a library function that it calls by name (`codegen.lib.outline` makes them)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

__all__ = ["CALLED", "PREFIX", "Function", "Functions"]

PREFIX = "tilewright_lib_"
"""What library functions' names begin with."""
CALLED = f'call void @"{PREFIX}'
"""What calls of them begin with, as llvmlite writes them."""


class Function(NamedTuple):
    """`text()` writes its module; a function that `is_written_out` has the vectors and loops that it will run with."""

    text: Callable[[], str]
    is_written_out: bool = False


Functions: TypeAlias = dict[str, Function]
"""By name."""
