"""A digest of packages' own source: what was made by another version of them is not used again."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

__all__ = ["source_digest", "sources"]


def sources(package: str) -> dict[str, Path]:
    """Every Python file of a package and of the packages inside it, by its path from there. Raises LookupError without one."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    found = {f.relative_to(d).as_posix(): f for d in map(Path, folders or ()) for f in sorted(d.rglob("*.py"))}
    if not found:
        raise LookupError(f"{package} has no source")
    return found


def source_digest(packages: Sequence[str]) -> str:
    """sha256 over the names and the text of all `sources` of some packages.

    >>> len(source_digest(["codegen"]))
    64
    """
    digest = hashlib.sha256()
    for package in packages:
        for name, path in sources(package).items():
            text = path.read_bytes()
            digest.update(f"{package} {name} {len(text)}\n".encode())
            digest.update(text)
    return digest.hexdigest()
