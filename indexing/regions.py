"""Sets of indices: boxes where they suffice, isl sets where they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from hlo import Declined
from indexing.expressions.bounds import Interval
from indexing.spans import Box, Span, box_count, box_difference, box_intersection

if TYPE_CHECKING:
    import islpy

__all__ = ["BOXES_LIMIT", "Region"]

BOXES_LIMIT = 32
"""A region of more boxes than this becomes an isl set."""


class Region:
    """A set of index tuples of one rank: disjoint strided boxes, or an isl set. Immutable.

    `==` is equality of sets. A count that isl cannot give in its budget is `Declined`; every other question that it cannot
    answer raises `indexing.errors.BudgetSpent`.

    >>> r = Region.box([Interval(0, 3), 5]) | Region.box([Interval(2, 7), 5])
    >>> str(r), r.count, (6, 5) in r
    ('{([0, 7], 5)}', 8, True)
    """

    __slots__ = ("_count", "_set", "boxes", "rank")

    rank: int
    boxes: tuple[Box, ...] | None

    def __init__(self, rank: int, boxes: tuple[Box, ...] | None = (), isl_set: islpy.Set | None = None) -> None:
        self.rank = rank
        self.boxes = boxes
        self._set = isl_set
        self._count: int | Declined | None = None

    # ------------------------------------------------------------ making

    @staticmethod
    def empty(rank: int) -> Region:
        return Region(rank)

    @staticmethod
    def full(shape: Sequence[int]) -> Region:
        """All indices of a tensor."""
        return Region.box([Interval(0, n - 1) for n in shape])

    @staticmethod
    def box(sides: Sequence[int | Interval | Span]) -> Region:
        """The product of the sides; an int is one index."""
        spans = []
        for s in sides:
            if isinstance(s, int):
                spans.append(Span(s, s))
            else:
                spans.append(s if isinstance(s, Span) else Span.of(s.lower, s.upper))
        return Region(len(spans), () if any(s.size == 0 for s in spans) else (tuple(spans),))

    @staticmethod
    def of_isl(isl_set: islpy.Set) -> Region:
        """The region of an isl set without parameters; a box where it is one."""
        return Region._of_question(lambda: isl_set)

    @staticmethod
    def _of_question(make: Callable[[], islpy.Set]) -> Region:
        """The region of a set that isl is to make, all within one budget."""
        from indexing.exact.isl_sets import box_of, decided

        def asked() -> tuple[islpy.Set, list[tuple[int, int, int]] | None]:
            made = make()
            return made, None if made.is_empty() else box_of(made)

        isl_set, box = decided(asked)
        rank = isl_set.dim(_set_dim())
        if box is None and isl_set.is_empty():
            return Region.empty(rank)
        return Region(rank, (tuple([Span.of(*b) for b in box]),)) if box is not None else Region(rank, None, isl_set)

    # ------------------------------------------------------------ looking

    @property
    def is_empty(self) -> bool:
        return self.boxes == () if self.boxes is not None else bool(self.to_isl().is_empty())

    @property
    def count(self) -> int | Declined:
        """How many indices there are."""
        if self._count is None:
            if self.boxes is not None:
                self._count = sum(box_count(b) for b in self.boxes)
            else:
                from indexing.exact.isl_sets import count

                self._count = count(self.to_isl())
        return self._count

    @property
    def hull(self) -> tuple[Interval, ...]:
        """The least interval in each dimension. Raises ValueError for an empty region."""
        if self.is_empty:
            raise ValueError("an empty region has no hull")
        if self.boxes is None:
            from indexing.exact.isl_sets import hull

            return hull(self.to_isl())
        sides = zip(*self.boxes, strict=True)
        return tuple([Interval(min(s.lower for s in side), max(s.upper for s in side)) for side in sides])

    def __contains__(self, index: object) -> bool:
        assert isinstance(index, tuple)
        if self.boxes is not None:
            return any(all(s.has(x) for s, x in zip(box, index, strict=True)) for box in self.boxes)
        return bool(Region.box(index).to_isl().is_subset(self.to_isl()))

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """Every index, in no particular order: meant for small regions."""
        if self.boxes is not None:
            for box in self.boxes:
                yield from product(*[range(s.lower, s.upper + 1, s.step) for s in box])
            return
        found: list[Any] = []
        self.to_isl().foreach_point(found.append)
        for p in found:
            yield tuple([p.get_coordinate_val(_set_dim(), i).to_python() for i in range(self.rank)])

    def __str__(self) -> str:
        if self.boxes is None:
            return str(self.to_isl())
        return "{" + ", ".join("(" + ", ".join(map(str, b)) + ")" for b in self.boxes) + "}"

    __repr__ = __str__

    def to_isl(self) -> islpy.Set:
        """The region as an isl set in this thread's context."""
        if self._set is None:
            from indexing.exact.isl_sets import set_of_boxes

            assert self.boxes is not None
            self._set = set_of_boxes(self.rank, [[(s.lower, s.upper, s.step) for s in b] for b in self.boxes])
        else:
            from indexing.exact.isl_sets import here

            return here(self._set)
        return self._set

    def __reduce__(self) -> tuple[Any, ...]:
        if self.boxes is not None:
            return Region, (self.rank, self.boxes)
        return _from_text, (str(self._set),)

    # ------------------------------------------------------------ comparing and combining

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Region):
            return NotImplemented
        if self.rank != other.rank:
            return False
        if self.boxes is not None and other.boxes is not None:
            if set(self.boxes) == set(other.boxes):
                return True
            if len(self.boxes) <= 1 and len(other.boxes) <= 1:
                return False
        return _decided(lambda: bool(self.to_isl().is_equal(other.to_isl())))

    def __hash__(self) -> int:
        return hash(self.rank)

    def _meets(self, other: Region) -> None:
        if self.rank != other.rank:
            raise ValueError(f"expected regions of one tensor, found {self.rank} and {other.rank} dimensions")

    def __le__(self, other: Region) -> bool:
        """Subset."""
        self._meets(other)
        if self.boxes is not None and other.boxes is not None:
            covered = all(any(all(x.covers(y) for x, y in zip(b, a, strict=True)) for b in other.boxes) for a in self.boxes)
            if covered or len(other.boxes) <= 1:
                return covered
        return _decided(lambda: bool(self.to_isl().is_subset(other.to_isl())))

    def __and__(self, other: Region) -> Region:
        self._meets(other)
        if self.boxes is not None and other.boxes is not None and len(self.boxes) * len(other.boxes) <= BOXES_LIMIT:
            common = (box_intersection(a, b) for a in self.boxes for b in other.boxes)
            return Region(self.rank, tuple([b for b in common if b is not None]))
        return Region._of_question(lambda: self.to_isl().intersect(other.to_isl()))

    def __or__(self, other: Region) -> Region:
        self._meets(other)
        if self.boxes is not None and other.boxes is not None:
            boxes: list[Box] | None = list(self.boxes)
            for b in other.boxes:
                boxes = None if boxes is None else _add(boxes, b)
            if boxes is not None and len(boxes) <= BOXES_LIMIT:
                return Region(self.rank, tuple(boxes))
        return Region._of_question(lambda: self.to_isl().union(other.to_isl()).coalesce())

    def __sub__(self, other: Region) -> Region:
        self._meets(other)
        if self.boxes is not None and other.boxes is not None:
            left: list[Box] | None = list(self.boxes)
            for b in other.boxes:
                left = None if left is None else _without(left, b)
            if left is not None and len(left) <= BOXES_LIMIT:
                return Region(self.rank, tuple(left))
        return Region._of_question(lambda: self.to_isl().subtract(other.to_isl()))


def _decided(question: Callable[[], bool]) -> bool:
    from indexing.exact.isl_sets import decided

    return decided(question)


def _from_text(text: str) -> Region:
    import islpy

    from indexing.exact.isl_sets import context

    return Region.of_isl(islpy.Set.read_from_str(context(), text))


def _set_dim() -> Any:
    import islpy

    return islpy.dim_type.set


def _without(boxes: Iterable[Box], b: Box) -> list[Box] | None:
    out: list[Box] = []
    for a in boxes:
        parts = box_difference(a, b)
        if parts is None:
            return None
        out.extend(parts)
    return out


def _add(boxes: list[Box], new: Box) -> list[Box] | None:
    """The boxes and one more, still disjoint, joined where two make one; None when strides forbid it."""
    for b in boxes:
        if all(x.covers(y) for x, y in zip(b, new, strict=True)):
            return boxes
    boxes = [b for b in boxes if not all(x.covers(y) for x, y in zip(new, b, strict=True))]
    for i, b in enumerate(boxes):
        joined = _join(b, new)
        if joined is not None:
            return _add([*boxes[:i], *boxes[i + 1 :]], joined)
    pieces: list[Box] | None = [new]
    for b in boxes:
        pieces = None if pieces is None else _without(pieces, b)
    return None if pieces is None else boxes + pieces


def _join(a: Box, b: Box) -> Box | None:
    """The union of two boxes when it is a box: they differ in one dimension, and there they touch or overlap."""
    apart = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if len(apart) != 1:
        return None
    i = apart[0]
    x, y = sorted((a[i], b[i]))
    if x.size == 1 and y.size == 1:
        step = y.lower - x.lower
    else:
        step = x.step if x.size > 1 else y.step
        if (x.size > 1 and y.size > 1 and x.step != y.step) or (y.lower - x.lower) % step or y.lower > x.upper + step:
            return None
    return (*a[:i], Span.of(x.lower, max(x.upper, y.upper), step), *a[i + 1 :])
