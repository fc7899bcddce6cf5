"""From one sharding of a value to another: which moves, and what they cost.

slice       a process keeps a part of its tile           nothing is sent
all_to_all  a digit goes from one dimension to another    a tile, but the part that stays
all_gather  digits go                                     the larger tile, but the part that is there
permute     tiles of the same size change places          a tile
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlo.types import TensorType
from tiling.mesh.network import Network
from tiling.mesh.shardings import Digit, Sharding

__all__ = ["Move", "moves_between", "moves_cost"]


@dataclass(frozen=True)
class Move:
    """One move: of `digits` along `dim`, for an all_to_all onto `onto`; `before` and `after` are the shardings."""

    kind: str
    digits: tuple[Digit, ...]
    before: Sharding
    after: Sharding
    dim: int = -1
    onto: int = -1

    @property
    def members(self) -> int:
        """How many processes exchange."""
        return prod(d.size for d in self.digits)

    def sent_bytes(self, t: TensorType) -> int:
        """The bytes that a process sends for a value of type `t`."""
        n = self.members
        if self.kind == "slice":
            return 0
        held = self.before.local_type(t).size_bytes
        if self.kind == "permute":
            return held
        if self.kind == "all_gather":
            return held * (n - 1)
        whole, part = self.before.local_shape(t.static_shape)[self.onto], self.after.local_shape(t.static_shape)[self.onto]
        return held // max(whole, 1) * part * (n - 1)  # with what fills the last part


def _with(s: Sharding, k: int, digits: Sequence[Digit]) -> Sharding:
    return Sharding((*s.dims[:k], tuple(digits), *s.dims[k + 1 :]))


def _permuted(now: Sharding, target: Sharding, k: int) -> tuple[Digit, ...] | None:
    """The digits behind those that are wanted of dimension k, for as many tiles as before; None where there are none.

    Digits that number nothing yet take the places of others: processes that were copies hold tiles of their own then.
    """
    wanted, had = target.dims[k], now.dims[k]
    if not wanted or set(wanted) & {d for i, dim in enumerate(now.dims) if i != k for d in dim}:
        return None
    left, rest = _count(had) / _count(wanted), [d for d in had if d not in wanted]
    while rest and _count(rest) > left:
        del rest[0]
    return tuple(rest) if _count(rest) == left else None


def _count(digits: Sequence[Digit]) -> int:
    """How many tiles digits number."""
    return prod(d.size for d in digits)


def moves_between(source: Sharding, target: Sharding, shape: Sequence[int] = ()) -> list[Move]:
    """The moves from one sharding to another: slices where they can be made, then exchanges, then what must be gathered.

    Digits move one by one, but those of a dimension of `shape` that they do not divide, whose tiles are none of fewer digits'.

    >>> x, y = Digit(2, 2, "x"), Digit(1, 2, "y")
    >>> [m.kind for m in moves_between(Sharding(((x, y), ())), Sharding(((x,), (y,))))]
    ['all_to_all']
    >>> [m.kind for m in moves_between(Sharding(((x,), ())), Sharding(((), (y,))))]
    ['slice', 'all_gather']
    >>> [m.digits for m in moves_between(Sharding(((x, y),)), Sharding(((x,),)), (7,))] == [(x, y), (x,)]
    True
    >>> [m.kind for m in moves_between(Sharding(((x, y),)), Sharding(((y,),)))]
    ['permute', 'all_gather']
    >>> z = Digit(4, 2, "z")
    >>> [m.kind for m in moves_between(Sharding(((x, y),)), Sharding(((z, x),)))]
    ['permute']
    >>> [m.kind for m in moves_between(Sharding(((x,), (y, z))), Sharding(((y, z), (x,))))]
    ['all_to_all', 'permute']
    """
    made = _one_by_one(source, target, shape)
    other = _turned(source, target) if not {*source.uneven_dims(shape), *target.uneven_dims(shape)} else None
    return other if other is not None and _share(other) < _share(made) else made


def _share(moves: Sequence[Move]) -> float:
    """What some moves send, as a share of the whole value."""
    sent = 0.0
    for m in moves:
        n = m.members
        tiles = {"slice": 0.0, "permute": 1.0, "all_to_all": (n - 1) / n, "all_gather": n - 1.0}[m.kind]
        sent += tiles / _count(m.before.digits)
    return sent


def _turned(source: Sharding, target: Sharding) -> list[Move] | None:
    """Digits go to other dimensions until there are as many tiles along each as are wanted; then tiles change places."""
    if set(source.digits) != set(target.digits):
        return None
    now, made = source, []
    wanted = [target.parts(k) for k in range(len(target.dims))]
    while [now.parts(k) for k in range(len(now.dims))] != wanted:
        pairs = [
            (i, k) for i, dim in enumerate(now.dims) for k in range(len(now.dims))
            if dim and now.parts(i) // dim[-1].size % wanted[i] == 0 and wanted[k] % (now.parts(k) * dim[-1].size) == 0
        ]  # fmt: skip
        if not pairs:
            return None
        i, k = pairs[0]
        d = now.dims[i][-1:]
        after = _with(_with(now, i, now.dims[i][:-1]), k, (*now.dims[k], *d))
        made.append(Move("all_to_all", d, now, after, i, k))
        now = after
    return made if now == target else [*made, Move("permute", source.digits, now, target)]


def _one_by_one(source: Sharding, target: Sharding, shape: Sequence[int]) -> list[Move]:
    """Digits one after the other, to where they are wanted."""
    now, made = source, []
    fixed = {*source.uneven_dims(shape), *target.uneven_dims(shape)}

    def go(kind: str, digits: Sequence[Digit], after: Sharding, dim: int = -1, onto: int = -1) -> None:
        nonlocal now
        made.append(Move(kind, tuple(digits), now, after, dim, onto))
        now = after

    def is_begun(k: int) -> bool:
        if k in fixed:
            return now.dims[k] in ((), target.dims[k])
        return now.dims[k] == target.dims[k][: len(now.dims[k])]

    def may_leave(i: int, m: int) -> bool:
        return i not in fixed or m == len(now.dims[i])

    if set(source.digits) == set(target.digits) and source != target:
        parts = [source.parts(k) == target.parts(k) for k in range(len(source.dims))]
        if all(parts):
            return [Move("permute", source.digits, source, target)]
    while now != target:
        free = [
            (k, target.dims[k][len(now.dims[k]) :]) for k in range(len(now.dims))
            if is_begun(k) and len(target.dims[k]) > len(now.dims[k])
        ]  # fmt: skip
        firsts = [(k, d if k in fixed else d[:1]) for k, d in free]
        sliced = next(((k, d) for k, d in firsts if not set(d) & set(now.digits)), None)
        if sliced is not None:
            k, digits = sliced
            go("slice", digits, _with(now, k, (*now.dims[k], *digits)), k)
            continue
        moved = max(
            ((m, i, k) for k, d in free for i in range(len(now.dims)) if i != k and not is_begun(i)
             for m in range(len(d) if k in fixed else 1, len(d) + 1) if now.dims[i][-m:] == d[:m] and may_leave(i, m)),
            default=None,
        )  # fmt: skip
        if moved is not None:
            m, i, k = moved
            digits = now.dims[i][-m:]
            go("all_to_all", digits, _with(_with(now, i, now.dims[i][:-m]), k, (*now.dims[k], *digits)), i, k)
            continue
        k = next(k for k in range(len(now.dims)) if not is_begun(k))
        kept = 0
        while k not in fixed and kept < len(target.dims[k]) and now.dims[k][kept] == target.dims[k][kept]:
            kept += 1
        others = _permuted(now, target, k) if k not in fixed else None
        if others is not None and _count(others) < _count(now.dims[k][kept:]) - 1:
            # The digits that are wanted come first: a tile is sent for that, and fewer are gathered then.
            go("permute", tuple(dict.fromkeys((*now.dims[k], *target.dims[k]))), _with(now, k, (*target.dims[k], *others)))
            continue
        go("all_gather", now.dims[k][kept:], _with(now, k, now.dims[k][:kept]), k)
    return made


def moves_cost(moves: Sequence[Move], t: TensorType, network: Network) -> float:
    """Seconds for some moves of a value of type `t`."""
    return sum(network.seconds(m.sent_bytes(t), m.members) for m in moves if m.kind != "slice")
