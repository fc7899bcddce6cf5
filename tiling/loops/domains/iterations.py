"""Iterations, and what is read or written in them: the data that accesses are given in (`tiling.loops.accesses` finds them)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hlo.access import Condition
from hlo.lazy import cached_property
from hlo.module import Value
from indexing.expr import Bounds, Expr, Interval, Var, as_expr
from tiling.loops.ir import Buffer

__all__ = ["Access", "Domain", "Kind", "Unmodelled"]


class Kind(enum.Enum):
    READ = "reads"
    WRITE = "writes"
    UPDATE = "updates"  # changes what is there, any number of times


class Unmodelled(Exception):
    """Carries the reason why a step's accesses are not known."""


@dataclass(frozen=True)
class Domain:
    """Iterations: `variables` in their intervals, where all of `held` hold and not all of any group in `failed`.

    The first `shared` variables are the phase's tile numbers. `alike` are values known at run time that all tasks share. A domain
    that is `widened` has all iterations that are meant, and may have others.
    """

    variables: tuple[tuple[Var, Interval], ...]
    held: tuple[Condition, ...]
    failed: tuple[tuple[Condition, ...], ...] = ()
    shared: int = 0
    blocks: int = 0  # how many variables after those are sequential loops around several steps
    alike: tuple[Var, ...] = ()
    widened: bool = False

    @cached_property
    def ranges(self) -> Mapping[Var, Interval]:
        return dict(self.variables)

    @cached_property
    def bounds(self) -> Bounds:
        """The intervals of expressions of the variables, the conditions not looked at."""
        return Bounds(self.ranges)

    @cached_property
    def known(self) -> tuple[Condition, ...]:
        """`held`, and what follows from groups of one condition that fails: it is on the other side of its interval."""
        found = list(self.held)
        for c in (group[0] for group in self.failed if len(group) == 1):
            span = self.bounds(as_expr(c.expression))
            if span.lower >= c.lower:
                found.append(Condition(c.expression, c.upper + 1, span.upper))
            elif span.upper <= c.upper:
                found.append(Condition(c.expression, span.lower, c.lower - 1))
        return tuple(found)

    def with_guard(self, held: Sequence[Condition], failed: Sequence[tuple[Condition, ...]]) -> Domain:
        if not held and not failed:
            return self
        return replace(self, held=(*self.held, *held), failed=(*self.failed, *failed))

    def with_variables(self, needed: Iterable[Var], ranges: Mapping[Var, Interval]) -> Domain:
        """With every variable in `needed` that is not there yet, over all that it can be (values known at run time)."""
        have = self.ranges
        new = [(v, ranges[v]) for v in dict.fromkeys(needed) if v not in have and v in ranges]
        return replace(self, variables=(*self.variables, *new)) if new else self


@dataclass(frozen=True, eq=False)
class Access:
    """One access in one step. `order` is (phase, step, part, store): what happens earlier compares less.

    `index` is the element of `value` where the schedule says so; `at` the position in the buffer. `around` is how many of the
    domain's variables stand for loops around all parts of a step (blocks of a contraction) after the tile numbers.
    """

    kind: Kind
    buffer: Buffer
    at: tuple[Expr, ...]
    domain: Domain
    order: tuple[int, int, int, int]
    value: Value | None
    index: tuple[Expr, ...] | None
    label: str
    around: int = 0
    is_fold: bool = False

    def __str__(self) -> str:
        where = self.index if self.index is not None else self.at
        return f"{self.label} {self.kind.value} {self.buffer.name}[{', '.join(map(str, where))}]"
