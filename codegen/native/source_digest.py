"""A digest of packages' own source: what was made by another version of them is not used again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

__all__ = ["source_digest", "sources"]


def sources(packages: Sequence[ModuleType]) -> list[Path]:
    """Every Python file of the packages and of the packages inside them."""
    return [path for p in packages for path in sorted(Path(p.__path__[0]).rglob("*.py"))]


def source_digest(packages: Sequence[ModuleType]) -> str:
    """sha256 over the names and the text of all `sources`.

    >>> import codegen.native
    >>> len(source_digest([codegen.native]))
    64
    """
    digest = hashlib.sha256()
    for package in packages:
        for path in sources([package]):
            text = path.read_bytes()
            digest.update(f"{package.__name__} {path.relative_to(package.__path__[0]).as_posix()} {len(text)}\n".encode())
            digest.update(text)
    return digest.hexdigest()
