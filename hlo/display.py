"""How objects show themselves: open functions, to which the file that knows a type's form adds it.

A type calls them in `__str__` and `_repr_html_`. The file that prints it imports the type and registers its printer, so that
imports point one way; the package imports its printers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from html import escape
from typing import Any

__all__ = ["as_document", "as_html", "as_latex", "as_text", "facts_as_html"]


@singledispatch
def as_text(x: object) -> str:
    """The text of an object. Raises TypeError for a type that nobody prints."""
    raise TypeError(f"no text of {type(x).__name__}")


@singledispatch
def as_html(x: object) -> str:
    """HTML for notebooks, with everything that comes from a program escaped. Raises TypeError as `as_text` does."""
    raise TypeError(f"no HTML of {type(x).__name__}")


@singledispatch
def as_latex(x: object) -> str:
    """LaTeX without dollars. Raises TypeError as `as_text` does."""
    raise TypeError(f"no LaTeX of {type(x).__name__}")


@singledispatch
def as_document(x: object) -> dict[str, Any]:
    """Plain data for JSON. Raises TypeError as `as_text` does."""
    raise TypeError(f"no document of {type(x).__name__}")


def facts_as_html(title: str, facts: Sequence[tuple[str, object]]) -> str:
    """A table with a name and a text in each row, under a title; everything is escaped.

    >>> facts_as_html("op", [("reads", "<x>")])
    '<p><code>op</code></p><table><tr><th>reads</th><td><code>&lt;x&gt;</code></td></tr></table>'
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td><code>{escape(str(fact))}</code></td></tr>" for name, fact in facts)
    return f"<p><code>{escape(title)}</code></p><table>{rows}</table>"
