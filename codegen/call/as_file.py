"""How an executable becomes a file: an open function, to which what writes files is added (`codegen.ship`).

Files need a compiler's parts that calls do without; an executable does not import them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

__all__ = ["write_file"]


@singledispatch
def write_file(
    executable: object, path: str | os.PathLike[str], targets: Sequence[str] = (), trees: Sequence[Any] | None = None
) -> None:
    """Writes a compiled program's file, or that of a tuple of them, an entry each, with the trees of arguments and results.

    Raises TypeError for what is neither.
    """
    raise TypeError(f"no file of {type(executable).__name__}")
