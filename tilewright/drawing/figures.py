"""The figures that pictures are drawn on, and the names that all pictures share."""

from __future__ import annotations

import functools
import io
from typing import Any

from hlo.errors import TilewrightError
from tilewright.commands.report import bytes_text

__all__ = ["PictureError", "bytes_label", "figure"]


class PictureError(TilewrightError):
    """Something that cannot be drawn, or no library to draw it with."""


@functools.cache
def _picture_class() -> type[Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise PictureError("pictures need matplotlib, which is not installed: pip install 'tilewright[notebook]'") from e

    def png(figure: Any) -> bytes:
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=100)
        return out.getvalue()

    # A figure that shows itself in a notebook, without pyplot and its global state.
    return type("Picture", (Figure,), {"_repr_png_": png})


def figure(width: float, height: float, layout: str | None = "constrained") -> Any:
    """An empty figure of this size in inches, on white whatever the notebook's theme. Raises PictureError without matplotlib."""
    return _picture_class()(figsize=(width, height), layout=layout)


def bytes_label(n: float) -> str:
    return bytes_text(n)
