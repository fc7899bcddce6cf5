"""`tilewright.explore(program)`: a program as a page to click in."""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass
from html import escape
from typing import Any

import codegen
from codegen import Executable
from hlo.module import Module, as_module
from tilewright.explorer.data import document
from tilewright.jax.bridge import Jitted, from_jax
from tilewright.torch.export import from_torch
from tiling import Plan, plan
from tiling.words import count

__all__ = ["Explorer", "explore"]

_PAGE = pathlib.Path(__file__).parent / "page"
_SCRIPTS = (
    "maps.js", "regions.js", "follow.js", "mathml.js", "graph.js", "grids.js", "tiles.js", "plan.js", "stages.js", "main.js",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Explorer:
    """A page on a program: `html` is all of it, `save(path)` writes it, a notebook shows it in a frame `height` pixels high.

    The page is one file with its data, style and scripts in it: it needs neither a network nor Python.
    """

    data: dict[str, Any]
    height: int = 760

    @property
    def html(self) -> str:
        """The page. What comes from the program stands in it as JSON, in which no tag can end the script."""
        text = json.dumps(self.data, separators=(",", ":")).replace("<", "\\u003c")
        scripts = "\n".join((_PAGE / name).read_text("utf-8") for name in _SCRIPTS)
        page = (_PAGE / "page.html").read_text("utf-8")
        parts = {
            "TITLE": escape(str(self.data["title"])), "STYLE": (_PAGE / "page.css").read_text("utf-8"), "DATA": text,
            "SCRIPT": scripts,
        }  # fmt: skip
        for name, part in parts.items():
            page = page.replace(f"<!-- {name} -->", part, 1)
        return page

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Writes the page to a file and returns its path."""
        target = pathlib.Path(path)
        target.write_text(self.html, "utf-8")
        return target

    def __repr__(self) -> str:
        ops, steps = count(len(self.data["ops"]), "op"), count(len(self.data["steps"]), "step")
        return f"<Explorer of {self.data['title']}: {ops}, {steps}>"

    def _repr_html_(self) -> str:
        """A frame: its scripts see nothing of the notebook, and the notebook's style nothing of it.

        Notebooks that are not trusted leave frames out. Then a line is seen that otherwise lies behind the frame.
        """
        style = f"position:relative;width:100%;height:{self.height}px;margin-top:-3.2em;border:1px solid #8884"
        told = f"{self!r}: this notebook is not trusted, so it shows no frames. Run the cell, or trust the notebook."
        return (
            f'<p style="margin:0;height:3.2em;overflow:hidden">{escape(told)}</p>'
            f'<iframe title="Explorer of {escape(str(self.data["title"]))}" sandbox="allow-scripts allow-downloads"'
            f' style="{style}" srcdoc="{escape(self.html)}"></iframe>'
        )


def explore(subject: Any, /, *args: Any, entry: str = "main", height: int = 760) -> Explorer:
    """The explorer of a module, a plan, an Executable, or of a JAX function or a PyTorch model with its arguments.

    It shows the program as a graph (ops in kernels), the maps of each op, the elements that an element reads and feeds through as
    many ops as one follows, the tiles of each kernel step by step, and the stages from the text to the source side by side.

    Raises TypeError for anything else, KeyError when there is no function `entry`, and what planning, JAX or PyTorch raises.

    >>> import hlo
    >>> page = explore(hlo.parse('''func.func @main(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
    ...   %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
    ...   return %0 : tensor<8x4xf32>
    ... }'''))
    >>> page, page.html.count("<script")
    (<Explorer of main: 1 op, 1 step>, 2)
    """
    made: Executable | None = None
    origin = ""
    if isinstance(subject, Executable):
        made, planned = subject, subject.plan
    elif isinstance(subject, Plan):
        planned = subject
    else:
        module = _module_of(subject, args)
        origin = _title_of(module)
        planned = plan(as_module(module), entry, supports=codegen.supports)
    if made is None:
        made = codegen.compile(planned)
    return Explorer(document(planned, made, origin, codegen.supports), height)


def _title_of(module: Module) -> str:
    """The file that the program comes from. Of a whole path the name alone: pages are given to others."""
    if module.source is None or module.source.name.startswith("<"):
        return ""
    path = pathlib.Path(module.source.name)
    return path.name if path.is_absolute() else str(path)


def _module_of(subject: Any, args: tuple[Any, ...]) -> Module:
    if isinstance(subject, Module):
        return subject
    if isinstance(subject, Jitted):
        return subject.lower(*args)
    if any(c.__module__.startswith("torch.nn.modules") for c in type(subject).__mro__):
        return from_torch(subject, *args)
    if callable(subject):
        return from_jax(subject, *args)
    return as_module(subject)
