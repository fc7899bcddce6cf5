"""One way to compute an op on tiles, and what tells it from others: what it sends, whether digits stay with what they number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hlo.module import Op, Value
from tiling.mesh.emit import named
from tiling.mesh.halo.deferred import Deferred
from tiling.mesh.moves import Move, moves_between
from tiling.mesh.relations import Spread, Windows
from tiling.mesh.shardings import Digit, Sharding

__all__ = ["Choice", "dearer", "moves_of", "stays"]


@dataclass(frozen=True)
class Choice:
    """One way to compute an op: how its loops are spread, what its operands must be, what comes out, what it takes."""

    spread: Spread
    operands: tuple[Sharding, ...]
    result: Sharding
    partial: tuple[Digit, ...]
    scattered: int | None
    local: Op
    windows: Windows
    seconds: float


class Places(Protocol):
    """Where values are (`tiling.mesh.walk`)."""

    deferred: Deferred

    @property
    def known(self) -> Mapping[tuple[Value, Sharding], Value]:
        """The values that have been brought to a sharding."""
        ...

    def is_placed(self, v: Value) -> bool:
        """Whether a value is somewhere."""
        ...

    def sharding(self, v: Value) -> Sharding:
        """How a value is spread."""
        ...


def moves_of(source: Sharding, target: Sharding, v: Value) -> list[Move]:
    """The moves of a value from one sharding to another."""
    return moves_between(source, target, v.tensor.static_shape)


def stays(places: Places, op: Op, operands: Sequence[Sharding], made: Iterable[Digit]) -> bool:
    """Whether no digit that numbers tiles of an operand comes to number something else."""
    used = set(made)
    for v, s in zip(op.operands, operands, strict=True):
        if not places.is_placed(v) or (v, s) in places.known:
            continue
        for k, dim in enumerate(places.sharding(v).dims):
            if any(d in used | set(s.digits) and d not in s.dims[k] for d in dim):
                return False
    return True


def dearer(places: Places, op: Op, best: Choice, choices: Sequence[Choice]) -> str:
    """The cheapest of the other ways that send something else."""
    own = _exchanges(places, op, best)
    others = [(c.seconds, told) for c in choices if (told := _exchanges(places, op, c)) != own]
    if not others:
        return ""
    seconds, told = min(others)
    more = (seconds - best.seconds) * 1e6
    return f"dearer by {more:.3g} us: {', '.join(told) or 'nothing is sent, all is computed everywhere'}"


def _exchanges(places: Places, op: Op, c: Choice) -> tuple[str, ...]:
    """What a way to compute an op sends."""
    rows = [
        (v, s) for v, s in zip(op.operands, c.operands, strict=True) if places.is_placed(v) and (v, s) not in places.known
    ]  # fmt: skip
    made = [f"{m.kind} of {named(v)}" for v, s in rows for m in moves_of(places.sharding(v), s, v) if m.kind != "slice"]
    views = places.deferred.views
    made += [f"halo of {named(v)}" for v, s in rows if v in views and places.deferred.seconds(v, s)]
    made += [f"halo of {named(op.operands[k])}" for k, _ in c.windows]
    if c.partial:
        one = "all_reduce" if c.scattered is None else "reduce_scatter"
        made.append(one if len(op.results) == 1 else "partial results")
    return tuple(made)
