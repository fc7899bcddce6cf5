"""What writes files, added to executables; the first file imports it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from codegen.call.as_file import write_file
from codegen.call.executable import Executable

__all__: list[str] = []


@write_file.register
def _(
    executable: Executable, path: str | os.PathLike[str], targets: Sequence[str] = (), trees: Sequence[Any] | None = None
) -> None:
    from codegen.ship.save import save

    save(executable, path, targets, trees)
