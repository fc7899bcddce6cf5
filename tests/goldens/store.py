"""Where goldens are kept: a text for each program that is shipped, a table of digests for each other group."""

from __future__ import annotations

import importlib.metadata
import pathlib
from collections.abc import Mapping

HERE = pathlib.Path(__file__).resolve().parent


def text_path(name: str) -> pathlib.Path:
    """Where the text of a shipped program is."""
    return HERE / "shipped" / f"{name}.txt"


def _table(group: str) -> pathlib.Path:
    return HERE / "tables" / f"{group}.txt"


def read_rows(group: str) -> dict[str, str]:
    """Name -> row of the programs of a group; none where the group has no table."""
    path = _table(group)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return dict(line.split(": ", 1) for line in lines)


def write_rows(group: str, rows: Mapping[str, str]) -> None:
    """Keeps these rows, all others of the group as they were."""
    kept = {**read_rows(group), **rows}
    _table(group).write_text("".join(f"{name}: {kept[name]}\n" for name in sorted(kept)), "utf-8")


def traced_by(renew: bool = False) -> str:
    """The version of JAX that traced what is kept; with `renew`, the one that is here from now on."""
    path = _table("jax-version")
    if renew:
        path.write_text(importlib.metadata.version("jax") + "\n", "utf-8")
    return path.read_text("utf-8").strip()


def differences(kept: Mapping[str, str], made: Mapping[str, str]) -> list[str]:
    """What is made otherwise than it was kept, a line each; a program that is another one says so by its own digest."""
    found = []
    for name, row in made.items():
        if name not in kept:
            found.append(f"{name} is not kept")
        elif kept[name] != row:
            found.append(f"{name}:\n  expected {kept[name]}\n  found    {row}")
    return found
