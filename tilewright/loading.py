"""`tilewright.load`: a program's text, or a compiled program's file, told apart by how it begins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tilewright_runtime
from tilewright_runtime import LoadedProgram

if TYPE_CHECKING:
    from hlo import Module

__all__ = ["load"]


def load(path: str | os.PathLike[str], threads: int | None = None) -> Module | LoadedProgram:
    """The program of a file that `Executable.save` or `tilewright export` wrote, ready to be called on `threads`
    (`tilewright_runtime.load`); of any other file the module whose text it holds (`hlo.load`).

    A compiled program needs NumPy and the standard library alone. Raises OSError where there is no file, what the two functions
    raise, and ValueError for `threads` beside a text.
    """
    if tilewright_runtime.is_program_file(path):
        return tilewright_runtime.load(path, threads)
    if threads is not None:
        raise ValueError(f"{os.fspath(path)}: threads are for compiled programs, and this is none")
    import hlo

    return hlo.load(path)
