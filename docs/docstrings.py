"""Docstrings as the API page shows them: code after a prompt is a block of code. (In Markdown, `>>>` begins three quotations.)"""

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    """The text with each example, from its first prompt to the next empty line, between fences.

    >>> fenced("It adds.\\n\\n>>> 1 + 1\\n2\\n\\nAlways.").split("\\n")
    ['It adds.', '', '```python', '>>> 1 + 1', '2', '```', '', 'Always.']
    """
    lines: list[str] = []
    inside = fence = False
    for line in text.split("\n"):
        if line.startswith("```"):
            fence = not fence
        if not inside and not fence and line.startswith(">>> "):
            if lines and lines[-1]:
                lines.append("")
            lines.append("```python")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


class Examples(griffe.Extension):
    """Called for every object that mkdocstrings reads."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
