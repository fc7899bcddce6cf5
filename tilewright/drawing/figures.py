"""The figures that pictures are drawn on, and the names that all pictures share.

A picture has no ground of its own, and its words and lines are of a gray between black and white: it is read on a light and on
a dark page, in a notebook, in a file and on the site. What stands on a filled box is dark, since the box is light.
"""

from __future__ import annotations

import functools
import io
from typing import Any

from hlo.errors import TilewrightError
from tilewright.commands.report import bytes_text

__all__ = ["INK", "PictureError", "bytes_label", "figure"]

INK = "#767c84"
"""Words and lines: a contrast of 3.9 and more on white and on the dark pages of notebooks (WCAG 2.1 asks for 3 of pictures)."""
_DOTS_AN_INCH = 100


class PictureError(TilewrightError):
    """Something that cannot be drawn, or no library to draw it with."""


@functools.cache
def _picture_class() -> type[Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise PictureError("pictures need matplotlib, which is not installed: pip install 'tilewright[notebook]'") from e

    def draw(figure: Any, renderer: Any) -> None:
        _ink(figure)
        Figure.draw(figure, renderer)

    def png(figure: Any) -> tuple[bytes, dict[str, int]]:
        """The picture with twice the dots, and the size to show it at: screens with fine dots show fine lines."""
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=2 * _DOTS_AN_INCH)
        wide, high = figure.get_size_inches()
        return out.getvalue(), {"width": round(wide * _DOTS_AN_INCH), "height": round(high * _DOTS_AN_INCH)}

    # A figure that shows itself in a notebook, without pyplot and its global state.
    return type("Picture", (Figure,), {"draw": draw, "_repr_png_": png})


def _ink(figure: Any) -> None:
    """Gives what stands beside the data its colour: titles, axes with their numbers and names, legends."""
    for axes in figure.axes:
        axes.set_facecolor("none")
        axes.tick_params(which="both", colors=INK)
        for words in (axes.title, axes.xaxis.label, axes.yaxis.label):
            words.set_color(INK)
        for spine in axes.spines.values():
            spine.set_edgecolor(INK)
        legend = axes.get_legend()
        if legend is not None:
            legend.get_frame().set_facecolor("none")
            for words in legend.get_texts():
                words.set_color(INK)


def figure(width: float, height: float, layout: str | None = "constrained") -> Any:
    """An empty figure of this size in inches, without a ground. Raises PictureError without matplotlib."""
    return _picture_class()(figsize=(width, height), layout=layout, facecolor="none")


def bytes_label(n: float) -> str:
    return bytes_text(n)
