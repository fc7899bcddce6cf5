"""Tensors drawn element by element, side by side on one scale: what `pictures.reads` shows.

Sizes are worked out in inches before anything is drawn, so that elements are equally large in all panels as far as the panels
stay between a least and a largest size, and a title is never wider than its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.drawing.figures import INK, figure

__all__ = ["Panel", "panels"]

_NOT = "#80889024"  # an element that is not read: a shade of whatever the page is
_ELEMENT = 0.3  # inches, of an element where there is room
_LONG, _SHORT, _THIN = 3.0, 1.2, 0.5  # of a panel's longer side: at most, at least; of its shorter side: at least
_CHARACTER, _LINE = 0.082, 0.16  # of a title's text
_LEFT, _BOTTOM, _GAP = 0.42, 0.3, 0.3  # for the numbers beside and below, and between panels
_STRIPES = 50  # an inch: what can still be seen
_LEADING = 0.2  # for the label of leading dimensions


@dataclass(frozen=True)
class Panel:
    """How often each element counts, under a title, in shades of a colour."""

    count: np.ndarray
    title: str
    colour: str

    @property
    def image(self) -> np.ndarray:
        """Rows of the last dimension."""
        a = self.count
        return a.reshape(1, -1) if a.ndim < 2 else a.reshape(int(np.prod(a.shape[:-1])), a.shape[-1])

    @property
    def text_size(self) -> tuple[float, float]:
        """Width and height of the title in inches."""
        lines = self.title.split("\n")
        return max(map(len, lines)) * _CHARACTER, len(lines) * _LINE + 0.05


def image_size(rows: int, columns: int, scale: float) -> tuple[float, float]:
    """(width, height) in inches of a panel of so many elements, each of `scale` inches where that is not too little or too much.

    >>> image_size(4, 6, 0.3), image_size(1, 1, 0.01), image_size(1, 4096, 0.001)
    ((1.8, 1.2), (0.3, 0.3), (3.0, 0.2))
    """
    most = max(rows, columns, 1)
    scale = max(min(scale, _LONG / most), min(_SHORT / most, _ELEMENT))
    wide, high = (round(min(max(n * scale, min(_THIN, 0.2 * max(n, 1))), _LONG), 6) for n in (columns, rows))
    return wide, high


def coarse(image: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The largest number of each block of an image, in at most so many rows and columns: no single element is lost.

    >>> coarse(np.eye(4, dtype=int)[:, :3], 2, 3).tolist()
    [[1, 1, 0], [0, 0, 1]]
    """
    for axis, most in ((0, rows), (1, columns)):
        size = image.shape[axis]
        if size > most:
            image = np.maximum.reduceat(image, np.arange(most) * size // most, axis=axis)
    return image


def panels(shown: Sequence[Panel]) -> Any:
    """A figure with the panels from left to right."""
    most = max((n for p in shown for n in p.image.shape), default=1)
    scale = min(_ELEMENT, _LONG / max(most, 1))
    sizes = [image_size(p.image.shape[0], p.image.shape[1], scale) for p in shown]
    # What stands left and right of each panel's middle, where its title is centred.
    left = [
        max(_LEFT * (p.count.ndim > 1) + _LEADING * (p.count.ndim > 2) + wide / 2, p.text_size[0] / 2)
        for p, (wide, _) in zip(shown, sizes, strict=True)
    ]
    right = [max(wide / 2 + 0.1, p.text_size[0] / 2) for p, (wide, _) in zip(shown, sizes, strict=True)]
    above = max(p.text_size[1] for p in shown) + 0.05
    below = _BOTTOM if any(p.count.ndim for p in shown) else 0.1
    width = sum(left) + sum(right) + _GAP * (len(shown) - 1) + 0.1
    height = above + max(high for _, high in sizes) + below
    picture = figure(width, height, layout=None)
    begin = 0.05
    for p, (wide, high), before, after in zip(shown, sizes, left, right, strict=True):
        box = ((begin + before - wide / 2) / width, (height - above - high) / height, wide / width, high / height)
        _draw(picture.add_axes(box), p, wide, high)
        begin += before + after + _GAP
    return picture


def _draw(axes: Any, panel: Panel, wide: float, high: float) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    image, dimensions = panel.image, panel.count.ndim
    rows, columns = image.shape
    axes.set_title(panel.title, fontsize=9, pad=4, parse_math=False)
    axes.tick_params(labelsize=7)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if not image.size:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no elements", ha="center", va="center", fontsize=7, color=INK, transform=axes.transAxes)
        return
    colours = LinearSegmentedColormap.from_list("count", [_NOT, panel.colour])
    most = float(np.sqrt(max(image.max(), 1)))
    visible = np.sqrt(coarse(image, round(high * _STRIPES), round(wide * _STRIPES)))
    axes.imshow(visible, cmap=colours, vmin=0, vmax=most, aspect="auto", interpolation="nearest",
                extent=(-0.5, columns - 0.5, rows - 0.5, -0.5))  # fmt: skip
    if rows <= 40 and columns <= 40:
        axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        axes.grid(which="minor", color=INK, alpha=0.35, linewidth=0.8)
        axes.tick_params(which="minor", length=0)
    # As many numbers as fit beside each other.
    across = max(1, int(wide / (0.07 * len(str(columns)) + 0.09)))
    for axis, size, fitting, is_dimension in (
        (axes.xaxis, columns, across, dimensions > 0),
        (axes.yaxis, rows, max(1, int(high / 0.16)), dimensions > 1),
    ):
        if is_dimension:
            axis.set_major_locator(MaxNLocator(fitting, integer=True, min_n_ticks=min(size, fitting, 3)))
        else:
            axis.set_ticks([])
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    if dimensions > 2:
        leading = "0, 1" if dimensions == 3 else f"0 … {dimensions - 2}"
        axes.set_ylabel(f"dimensions {leading}" if high > 1 else leading, fontsize=7, labelpad=2)
