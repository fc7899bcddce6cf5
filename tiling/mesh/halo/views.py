"""Values that are another value's elements elsewhere: slices, paddings, reversals, and concatenations of such.

Along each dimension such a view is segments of its base, one after the other: elements start, start + step, … of the base, or
filling. A padded stencil's slice is a shifted base with a filled end; a roll is two segments; so nothing need be moved until
somebody reads the view, and then only what that reader's tile lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo.module import DenseArray, Op, Value
from hlo.types import TensorType

__all__ = ["Segment", "View", "joined", "padded", "reversed_along", "sliced", "view_by", "whole"]


@dataclass(frozen=True)
class Segment:
    """`length` elements: of the base from `start` by `step` (1 or -1), or, without a start, filling."""

    length: int
    start: int | None = None
    step: int = 1

    def cut(self, low: int, high: int) -> Segment:
        """Its elements [low, high)."""
        start = None if self.start is None else self.start + low * self.step
        return replace(self, length=high - low, start=start)

    def follows(self, before: Segment) -> bool:
        """Whether it goes on where another one ends."""
        if self.start is None or before.start is None:
            return self.start is before.start
        return self.step == before.step and self.start == before.start + before.length * before.step


Segments = tuple[Segment, ...]


@dataclass(frozen=True)
class View:
    """Segments of a base for each of its dimensions; `fill` is the scalar that is read where one of them is filling."""

    base: Value
    dims: tuple[Segments, ...]
    fill: Value | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The view's own shape."""
        return tuple([sum(s.length for s in dim) for dim in self.dims])

    def changes(self, k: int) -> bool:
        """Whether a dimension is not the base's as it is."""
        return self.dims[k] != (Segment(self.base.shape[k], 0),)


def _merged(segments: Sequence[Segment]) -> Segments:
    made: list[Segment] = []
    for s in segments:
        if not s.length:
            continue
        if s.length == 1 and s.start is not None:
            s = replace(s, step=1)
        if made and s.follows(made[-1]):
            made[-1] = replace(made[-1], length=made[-1].length + s.length)
        else:
            made.append(s)
    return tuple(made)


def cut(segments: Segments, low: int, high: int) -> Segments:
    """The elements [low, high) of a dimension.

    >>> cut((Segment(1), Segment(8, 0), Segment(1)), 0, 8)
    (Segment(length=1, start=None, step=1), Segment(length=7, start=0, step=1))
    """
    made, begin = [], 0
    for s in segments:
        a, b = max(low - begin, 0), min(high - begin, s.length)
        if a < b:
            made.append(s.cut(a, b))
        begin += s.length
    return _merged(made)


def whole(v: Value) -> View:
    """A value as it is."""
    return View(v, tuple([(Segment(n, 0),) if n else () for n in v.shape]))


def sliced(view: View, starts: Sequence[int], stops: Sequence[int]) -> View:
    """The elements [start, stop) of each dimension."""
    return replace(view, dims=tuple([cut(d, a, b) for d, a, b in zip(view.dims, starts, stops, strict=True)]))


def reversed_along(view: View, dims: Sequence[int]) -> View:
    """The same from the end to the begin along some dimensions."""

    def turned(segments: Segments) -> Segments:
        back = [s if s.start is None else Segment(s.length, s.start + (s.length - 1) * s.step, -s.step) for s in segments]
        return _merged(back[::-1])

    return replace(view, dims=tuple([turned(d) if k in dims else d for k, d in enumerate(view.dims)]))


def padded(view: View, low: Sequence[int], high: Sequence[int], fill: Value) -> View | None:
    """With filling before and behind it (less than none: without its first or last elements); None for two fillings."""
    if view.fill is not None and not _same_scalar(view.fill, fill):
        return None
    dims = []
    for d, a, b in zip(view.dims, low, high, strict=True):
        n = sum(s.length for s in d)
        inner = cut(d, max(-a, 0), n - max(-b, 0))
        dims.append(_merged([Segment(max(a, 0)), *inner, Segment(max(b, 0))]))
    return View(view.base, tuple(dims), fill)


def joined(views: Sequence[View], axis: int) -> View | None:
    """One behind the other along an axis; None where they are no views of one base that are alike in all else."""
    first = views[0]
    fills = [v.fill for v in views if v.fill is not None]
    for v in views:
        rest = [a == b or k == axis for k, (a, b) in enumerate(zip(v.dims, first.dims, strict=True))]
        if v.base is not first.base or not all(rest):
            return None
    if any(not _same_scalar(f, fills[0]) for f in fills):
        return None
    along = _merged([s for v in views for s in v.dims[axis]])
    return View(first.base, (*first.dims[:axis], along, *first.dims[axis + 1 :]), fills[0] if fills else None)


def _same_scalar(a: Value, b: Value) -> bool:
    if a is b:
        return True
    if a.op is None or b.op is None or a.type != b.type or {a.op.name, b.op.name} != {"stablehlo.constant"}:
        return False
    one: DenseArray = a.op.attr("value")
    other: DenseArray = b.op.attr("value")
    return one.array.tobytes() == other.array.tobytes()


def view_by(op: Op, views: Sequence[View]) -> View | None:
    """What an op makes of views of its operands; None for other ops."""
    if not all(isinstance(v.type, TensorType) and v.type.is_static for v in (*op.operands, *op.results)):
        return None
    if op.name == "stablehlo.slice":
        if set(op.attr("strides")) - {1}:
            return None
        return sliced(views[0], op.attr("start_indices"), op.attr("limit_indices"))
    if op.name == "stablehlo.reverse":
        return reversed_along(views[0], op.attr("dimensions"))
    if op.name == "stablehlo.pad":
        if set(op.attr("interior_padding")) - {0}:
            return None
        return padded(views[0], op.attr("edge_padding_low"), op.attr("edge_padding_high"), op.operands[1])
    if op.name == "stablehlo.concatenate":
        return joined(views, op.attr("dimension"))
    return None
