"""What writes files, added to executables; the first file imports it."""

from __future__ import annotations

import copyreg
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codegen.call.as_file import write_file
from codegen.call.executable import Executable
from tilewright_runtime.program import loads

__all__: list[str] = []


@write_file.register
def _(
    executable: Executable, path: str | os.PathLike[str], targets: Sequence[str] = (), trees: Sequence[Any] | None = None
) -> None:
    _write([executable], path, targets, trees)


@write_file.register
def _(
    executables: tuple,  # type: ignore[type-arg]  # (of executables: what is dispatched on has no parameters)
    path: str | os.PathLike[str],
    targets: Sequence[str] = (),
    trees: Sequence[Any] | None = None,
) -> None:
    _write(executables, path, targets, trees)


def _write(executables: Sequence[Executable], path: str | os.PathLike[str], targets: Sequence[str], trees: Any) -> None:
    from codegen.ship.save import save

    save(executables, path, targets, trees)


def _reduced(executable: Executable) -> tuple[Any, tuple[bytes]]:
    with tempfile.TemporaryDirectory(prefix="tilewright-ship-") as folder:
        path = Path(folder) / "program.tw"
        write_file(executable, path)
        return loads, (path.read_bytes(),)


# An executable is unpickled as a program of NumPy and the standard library: the process that gets it may have no compiler.
copyreg.pickle(Executable, _reduced)
