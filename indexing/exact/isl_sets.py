"""Sets and affine functions in isl, every query under a bound on its operations.

Each thread has its own context, because a context serves one thread at a time. isl is loaded with the first question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import islpy

from hlo import Declined
from indexing.errors import BudgetSpent
from indexing.expressions.bounds import Interval
from indexing.expressions.terms import Expr, FloorDiv, Maximum, Minimum, Mod, Product, Var

__all__ = [
    "MAX_OPERATIONS",
    "IslBuilder",
    "bounded",
    "box_of",
    "context",
    "count",
    "decided",
    "here",
    "hull",
    "set_of_boxes",
    "shifted",
]

MAX_OPERATIONS = 5_000_000
"""How much isl may compute for one question; more is answered by `Declined`."""

T = TypeVar("T")
_LOCAL = threading.local()


def context() -> islpy.Context:
    """This thread's context."""
    ctx = getattr(_LOCAL, "context", None)
    if ctx is None:
        ctx = _LOCAL.context = islpy.Context()
        # Errors come as exceptions; isl need not write to the terminal as well (1: continue).
        ctx.set_on_error(1)
    return ctx


def here(thing: Any) -> Any:
    """The same isl set or map in this thread's context: contexts must not be mixed, and isl does not notice."""
    if thing.get_ctx()._wraps_same_instance_as(context()):
        return thing
    ctx = context()
    operations = ctx.get_max_operations()
    ctx.set_max_operations(0)  # a spent budget would look like a syntax error
    try:
        return type(thing).read_from_str(ctx, thing.to_str())
    finally:
        ctx.set_max_operations(operations)


def bounded(question: Callable[[], T], operations: int | None = None) -> T | Declined:
    """question(), or `Declined` when isl has spent `operations` (`MAX_OPERATIONS`) on it."""
    operations = MAX_OPERATIONS if operations is None else operations
    ctx = context()
    ctx.reset_operations()
    ctx.set_max_operations(operations)
    try:
        return question()
    except islpy.Error as error:
        if "maximal number of operations" in str(error):
            return Declined(f"isl did not decide within {operations} operations")
        raise
    finally:
        ctx.set_max_operations(0)
        ctx.reset_operations()


def decided(question: Callable[[], T]) -> T:
    """question() within the budget. Raises BudgetSpent beyond it."""
    answer = bounded(question)
    if isinstance(answer, Declined):
        raise BudgetSpent(answer.reason)
    return answer


class IslBuilder:
    """Turns expressions into isl's quasi-affine functions over one space, each part once."""

    def __init__(self, variables: Sequence[Var]) -> None:
        ctx = context()
        self.space = islpy.Space.set_alloc(ctx, 0, len(variables))
        self.local = islpy.LocalSpace.from_space(self.space)
        self.place = {v: i for i, v in enumerate(variables)}
        self.known: dict[Expr, Any] = {}

    def constant(self, value: int) -> Any:
        return islpy.PwAff.from_aff(islpy.Aff.val_on_domain(self.local, islpy.Val(value, context())))

    def __call__(self, e: Expr) -> Any:
        total: Any = None
        for atom, k in e.terms:
            part = self.atom(atom)
            if k != 1:
                part = part.scale_val(islpy.Val(k, context()))
            total = part if total is None else total.add(part)
        if total is None:
            return self.constant(e.constant)
        return total.add(self.constant(e.constant)) if e.constant else total

    def atom(self, e: Expr) -> Any:
        found = self.known.get(e)
        if found is None:
            found = self.known[e] = self._atom(e)
        return found

    def _atom(self, e: Expr) -> Any:
        if isinstance(e, Var):
            aff = islpy.Aff.var_on_domain(self.local, islpy.dim_type.set, self.place[e])
            return islpy.PwAff.from_aff(aff)
        if isinstance(e, (FloorDiv, Mod)):
            if not isinstance(e.divisor, int):
                raise ValueError(f"isl has no division by an expression: {e}")
            divisor = islpy.Val(e.divisor, context())
            n = self(e.numerator)
            return n.scale_down_val(divisor).floor() if isinstance(e, FloorDiv) else n.mod_val(divisor)
        if isinstance(e, Product):
            raise ValueError(f"isl has no product of variables: {e}")
        if isinstance(e, (Minimum, Maximum)):
            parts = [self(a) for a in e.arguments]
            total = parts[0]
            for p in parts[1:]:
                total = total.union_min(p) if isinstance(e, Minimum) else total.union_max(p)
            return total
        raise TypeError(f"no atom: {type(e).__name__}")

    def box(self, ranges: Mapping[Var, Interval]) -> Any:
        out = islpy.Set.universe(self.space)
        for v, b in ranges.items():
            i = self.place[v]
            out = out.lower_bound_val(islpy.dim_type.set, i, islpy.Val(b.lower, context()))
            out = out.upper_bound_val(islpy.dim_type.set, i, islpy.Val(b.upper, context()))
        return out

    def holds(self, e: Expr, b: Interval) -> Any:
        f = self(e)
        if b.lower == b.upper:
            return f.eq_set(self.constant(b.lower))
        return f.ge_set(self.constant(b.lower)).intersect(f.le_set(self.constant(b.upper)))


# ---------------------------------------------------------------- sets of indices


def set_of_boxes(rank: int, boxes: Sequence[Sequence[tuple[int, int, int]]]) -> islpy.Set:
    """The union of boxes whose sides are (lower, upper, step)."""
    b = IslBuilder([Var(f"x{i}") for i in range(rank)])
    total = islpy.Set.empty(b.space)
    for sides in boxes:
        part = b.box({v: Interval(lo, hi) for v, (lo, hi, _) in zip(b.place, sides, strict=True)})
        for v, (lo, _, step) in zip(b.place, sides, strict=True):
            if step != 1:
                part = part.intersect(b.holds((v - lo) % step, Interval(0, 0)))
        total = total.union(part)
    return total


def hull(s: islpy.Set) -> tuple[Interval, ...]:
    """The least interval in each dimension of a bounded set that is not empty."""
    kind = islpy.dim_type.set
    return tuple([Interval(s.dim_min_val(i).to_python(), s.dim_max_val(i).to_python()) for i in range(s.dim(kind))])


def box_of(s: islpy.Set) -> list[tuple[int, int, int]] | None:
    """The sides (lower, upper, step) when the set is a box whose sides are progressions."""
    sides: list[tuple[int, int, int]] = []
    for i, b in enumerate(hull(s)):
        step = 1
        if not b.is_point:
            stride = s.get_stride(i).to_python()
            step = stride if stride > 1 else 1
        sides.append((b.lower, b.upper, step))
    return sides if s.is_equal(set_of_boxes(len(sides), [sides])) else None


def count(s: islpy.Set) -> int | Declined:
    """How many points a bounded set has."""
    return bounded(lambda: int(s.count_val().to_python()))


def shifted(s: islpy.Set, by: int) -> islpy.Set:
    """{x + by : x in s} for a set of integers."""
    move = islpy.Aff.var_on_domain(islpy.LocalSpace.from_space(s.get_space()), islpy.dim_type.set, 0)
    return s.apply(islpy.Map.from_aff(move.set_constant_val(islpy.Val(by, context()))))
