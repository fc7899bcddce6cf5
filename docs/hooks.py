"""What the site takes from the folder: every decision of `adr/`, under its own title, at the end of the navigation."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tilewright

HERE = pathlib.Path(__file__).resolve().parent


def decisions() -> list[dict[str, str]]:
    """(title: path) of each decision, in the order of their numbers."""
    pages = sorted((HERE / "adr").glob("*.md"))
    return [{p.read_text("utf-8").partition("\n")[0].lstrip("# "): f"adr/{p.name}"} for p in pages]


EXPLORED = ("softmax", "layer_norm", "causal_attention")


def on_post_build(config: Any) -> None:
    """Called by mkdocs when the site is there: the explorer's pages that the gallery leads to."""
    folder = pathlib.Path(config["site_dir"]) / "explore"
    folder.mkdir(exist_ok=True)
    for name in EXPLORED:
        tilewright.explore(tilewright.load(HERE.parent / "examples" / f"{name}.mlir")).save(folder / f"{name}.html")


def on_config(config: Any) -> Any:
    """Called by mkdocs before the site is made."""
    for entry in config["nav"]:
        if "Design" in entry:
            entry["Design"] = [*entry["Design"], {"Decisions": decisions()}]
    return config
