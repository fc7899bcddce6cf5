"""What the site takes from the folder: every decision of `adr/`, under its own title, at the end of the navigation."""

from __future__ import annotations

import pathlib
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent


def decisions() -> list[dict[str, str]]:
    """(title: path) of each decision, in the order of their numbers."""
    pages = sorted((HERE / "adr").glob("*.md"))
    return [{p.read_text("utf-8").partition("\n")[0].lstrip("# "): f"adr/{p.name}"} for p in pages]


def on_config(config: Any) -> Any:
    """Called by mkdocs before the site is made."""
    for entry in config["nav"]:
        if "Design" in entry:
            entry["Design"] = [*entry["Design"], {"Decisions": decisions()}]
    return config
