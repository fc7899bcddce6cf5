"""How an op's loops and the tiles of its operands go together, from its maps alone.

An op's loops are the dimensions of its result and the ranges that it folds over. Some of them are given digits of the
process's number: the loop `v` of n iterations with digits of p values then runs over [tile * n/p, + n/p). An operand is read
at `e(v, …)`; with `tile * n/p + v` in the place of v that is `other * b + r(v, …)`: if r stays inside [0, b) and names no
process, then what the process reads along this dimension is tile `other` of the operand, and r is where in it. Nothing else
is known of an op: matrix products, reductions, transposes, reshapes and broadcasts are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod

from hlo.errors import Declined
from hlo.module import Op
from indexing.deriving.edges import OpEdges, edges_of
from indexing.expr import Bounds, Const, Expr, Interval, Mod, Var, simplify, substitute
from indexing.map import Constraint, IndexingMap, Variable
from tiling.mesh.shardings import Digit, Sharding

__all__ = ["Loops", "Spread", "Window", "Windows", "block_size", "loops_of"]

Spread = Mapping[Var, tuple[Digit, ...]]
"""Loop -> the digits that number its pieces, most significant first."""


@dataclass(frozen=True)
class Window:
    """What an op reads along a dimension that is spread otherwise than in tiles: tile t of the op [first + t * step, + length).

    It may lie outside of the dimension: then the op's own filling is read there.
    """

    first: int
    step: int
    length: int


Windows = dict[tuple[int, int], Window]
"""(operand, dimension) -> its window."""


def block_size(size: int, digits: Sequence[Digit]) -> int:
    """The elements of a tile of a dimension.

    >>> block_size(7, [Digit(1, 2)])
    4
    """
    return -(-size // prod(d.size for d in digits))


def _number(digits: Sequence[Digit]) -> Expr:
    """The number that digits form, as an expression of a process's digits."""
    found: Expr = Const(0)
    for d in digits:
        found = found * d.size + Var(f"p{d.stride}")
    return found


@dataclass(frozen=True, eq=False)
class Loops:
    """The loops of one result of an op, and what they read."""

    op: Op
    output: int
    edges: OpEdges

    @property
    def dims(self) -> tuple[Var, ...]:
        """The loops over the result's dimensions."""
        return self.edges.dim_vars

    @property
    def ranges(self) -> tuple[Var, ...]:
        """The loops that are folded over."""
        return tuple([v.var for v in self.edges.ranges])

    def size(self, v: Var) -> int:
        """How often a loop runs in the whole op."""
        return next(x.interval.size for x in (*self.edges.dims, *self.edges.ranges) if x.var is v)

    def reads(self) -> Iterator[tuple[int, tuple[Expr, ...], tuple[Constraint, ...]]]:
        """(operand, index, conditions) of every read, elements that give runtime values included."""
        for e in self.edges.reads:
            yield e.operand, e.map.results, _deciding(self.edges, e.map.constraints)
        for v, operand in zip(self.edges.runtimes, self.edges.runtime_operands, strict=True):
            yield operand, v.element, ()

    # ------------------------------------------------------------ from loops to tiles

    def operand_shardings(self, spread: Spread, windows: Windows | None = None) -> tuple[Sharding, ...] | Var | Declined:
        """Which tile of each operand a process reads; a loop that cannot be spread so; or Declined, where none is to blame.

        With `windows`, operand 0 may be read elsewhere than in its tile: where is entered there.
        """
        found: list[Sharding | None] = [None] * len(self.op.operands)
        for operand, index, _ in self.reads():
            dims = []
            for k, e in enumerate(index):
                size = self.op.operands[operand].shape[k]
                digits = self._tile_along(e, size, spread)
                if isinstance(digits, Var) and windows is not None and operand == 0:
                    found_window = self._window(e, spread)
                    if found_window is not None:
                        digits, windows[operand, k], _ = found_window
                if isinstance(digits, Var):
                    return digits
                dims.append(digits)
            made = Sharding(tuple(dims))
            before = found[operand]
            if before is not None and before != made:
                return next((v for v, d in spread.items() if d), None) or Declined("two reads of one operand need two tiles")
            found[operand] = made
        filled = self._filled(windows or {})
        for _, _, conditions in self.reads():
            for c in _others(conditions, filled):
                blamed = next((v for v in c.expression.variables if spread.get(v)), None)
                if blamed is not None and self._of_process(c, spread) is None:
                    return blamed
        return tuple([s or self._unread(v.shape, found) for s, v in zip(found, self.op.operands, strict=True)])

    def _unread(self, shape: tuple[int, ...], found: Sequence[Sharding | None]) -> Sharding:
        """The tile of an operand that nothing is read of: without elements it is cut as another one is, so that shapes agree."""
        if 0 in shape:
            for other, s in zip(self.op.operands, found, strict=True):
                if s is not None and len(other.shape) == len(shape):
                    return Sharding(tuple([d if n == m else () for d, n, m in zip(s.dims, shape, other.shape, strict=True)]))
        return Sharding.whole(len(shape))

    def _tile_along(self, e: Expr, size: int, spread: Spread) -> tuple[Digit, ...] | Var:
        """The digits that number the tile which `e` stays in, of a dimension of `size`; the loop to blame where there is none."""
        mine = [v for v in e.variables if spread.get(v)]
        if not mine:
            return ()
        for order in permutations(mine):
            digits = tuple([d for v in order for d in spread[v]])
            for i in range(len(digits)):
                for j in range(len(digits), i, -1):
                    part = digits[i:j]
                    if self.inside(e, size, part, spread) is not None:
                        return part
        if self.inside(e, size, (), spread) is not None:
            return ()
        return mine[-1]

    def _of_process(self, c: Constraint, spread: Spread) -> Constraint | None:
        """A condition in the loops of a process; None where it depends on which one."""
        if not any(spread.get(v) for v in c.expression.variables):
            return c
        moved = simplify(self._moved(c.expression, spread), self.intervals(spread))
        return None if any(str(v).startswith("p") for v in moved.variables) else Constraint(moved, c.interval)

    def _filled(self, windows: Windows) -> list[tuple[Expr, int]]:
        """The indices at which windows are read, and their dimensions' sizes: outside of these they are filled."""
        return [
            (index[k], self.op.operands[operand].shape[k])
            for operand, index, _ in self.reads() for k in range(len(index)) if (operand, k) in windows
        ]  # fmt: skip

    def _window(self, e: Expr, spread: Spread) -> tuple[tuple[Digit, ...], Window, Expr] | None:
        """The digits that number the windows which `e` reads, their places, and where in its window it reads."""
        mine = [v for v in e.variables if spread.get(v)]
        if len(mine) != 1:
            return None
        digits = spread[mine[0]]
        within = self.intervals(spread)
        moved = simplify(self._moved(e, spread), within)
        number = {Var(f"p{d.stride}"): 0 for d in digits}
        origin = simplify(substitute(moved, number), within)
        next_one = simplify(substitute(moved, number | {Var(f"p{digits[-1].stride}"): 1}), within)
        step = simplify(next_one - origin, within)
        if not step.is_constant or not _is_zero(simplify(moved - origin - _number(digits) * step.constant, within)):
            return None
        low, high = Bounds(within)(origin)
        return digits, Window(low, step.constant, high - low + 1), origin - low

    def _moved(self, e: Expr, spread: Spread) -> Expr:
        """An expression of the whole op's loops, by those of a process and the digits of its number."""
        return substitute(e, {v: _number(d) * self.local_size(v, spread) + v for v, d in spread.items() if d})

    def _rest(self, e: Expr, size: int, digits: Sequence[Digit], spread: Spread) -> Expr | None:
        """Where `e` reads, counted from the begin of a tile; None where that depends on the process."""
        rest = simplify(self._moved(e, spread) - _number(digits) * block_size(size, digits), self.intervals(spread))
        return None if any(str(v).startswith("p") for v in rest.variables) else rest

    def inside(self, e: Expr, size: int, digits: Sequence[Digit], spread: Spread) -> Expr | None:
        """Where in its tile `e` reads; None where it may leave the tile, or where that depends on the process."""
        if not digits and not any(spread.get(v) for v in e.variables):
            return e  # as in the whole op, within what its conditions say
        rest = self._rest(e, size, digits, spread)
        if rest is None:
            return None
        low, high = Bounds(self.intervals(spread))(rest)
        return rest if low >= 0 and high < block_size(size, digits) else None

    def local_size(self, v: Var, spread: Spread) -> int:
        """How often a loop runs on one process."""
        return block_size(self.size(v), spread.get(v, ()))

    def intervals(self, spread: Spread) -> dict[Var, Interval]:
        """The intervals of a process's loops, of runtime values and of the digits of its number."""
        found = {v.var: Interval(0, self.local_size(v.var, spread) - 1) for v in (*self.edges.dims, *self.edges.ranges)}
        found |= {v.var: v.interval for v in self.edges.runtimes}
        return found | {Var(f"p{d.stride}"): Interval(0, d.size - 1) for digits in spread.values() for d in digits}

    # ------------------------------------------------------------ from tiles to loops

    def follow(self, operand: int, sharding: Sharding, taken: Spread) -> dict[Var, tuple[Digit, ...]]:
        """The loops that run over an operand's tile as it is; loops and digits that are `taken` stay as they are."""
        made = dict(taken)
        used = {d for digits in made.values() for d in digits}
        for number, index, _ in self.reads():
            if number != operand or sharding.is_whole:
                continue
            for k, digits in enumerate(sharding.dims):
                if not digits or any(d in used for d in digits):
                    continue
                mine = [v for v in index[k].variables if v in (*self.dims, *self.ranges) and not made.get(v)]
                for shares in _shared_out(digits, mine):
                    tried = {**made, **shares}
                    if self._tile_along(index[k], self.op.operands[operand].shape[k], tried) == digits:
                        made = tried
                        used |= set(digits)
                        break
        return made

    # ------------------------------------------------------------ the op on one process

    def proved(self, local: Op, spread: Spread, operands: Sequence[Sharding], windows: Windows) -> bool:
        """Whether the op on tiles reads, of each tile, what the whole op reads there: by the expressions, else by isl."""
        there = edges_of(local, self.output)
        if isinstance(there, Declined) or len(there.reads) != len(self.edges.reads):
            return False
        within = self.intervals(spread)
        parts = [
            (read.map.results[k], local.operands[x].shape[k]) for read in there.reads for x, k in windows if x == read.operand
        ]  # fmt: skip
        for mine, its in zip(self.edges.reads, there.reads, strict=True):
            if mine.operand != its.operand:
                return False
            shape = self.op.operands[mine.operand].shape
            sharding = operands[mine.operand]
            found: list[Expr | None] = []
            for k, (e, n, d) in enumerate(zip(mine.map.results, shape, sharding.dims, strict=True)):
                window = self._window(e, spread) if (mine.operand, k) in windows else None
                found.append(self.inside(e, n, d, spread) if window is None else window[2])
            if any(e is None for e in found):
                return False
            inner = [e for e in found if e is not None]
            if not all(_is_zero(simplify(e - x, within)) for e, x in zip(inner, its.map.results, strict=True)) and not (
                self._equal(inner, its.map, spread)
            ):
                return False
            deciding = _others(_deciding(self.edges, mine.map.constraints), self._filled(windows))
            if [self._of_process(c, spread) for c in deciding] != list(_others(_deciding(there, its.map.constraints), parts)):
                return False
        return self._same_runtimes(there, spread, operands)

    def _same_runtimes(self, there: OpEdges, spread: Spread, operands: Sequence[Sharding]) -> bool:
        """Whether runtime values come from the same elements, within the same limits."""
        numbers = self.edges.runtime_operands
        for mine, its, k in zip(self.edges.runtimes, there.runtimes, numbers, strict=True):
            shape, sharding = self.op.operands[k].shape, operands[k]
            found = [self.inside(e, n, d, spread) for e, n, d in zip(mine.element, shape, sharding.dims, strict=True)]
            if mine.interval != its.interval or any(e is None for e in found):
                return False
            inner = [e for e in found if e is not None]
            within = self.intervals(spread)
            if not all(_is_zero(simplify(e - x, within)) for e, x in zip(inner, its.element, strict=True)):
                return False
        return True

    def _equal(self, found: Sequence[Expr], theirs: IndexingMap, spread: Spread) -> bool:
        within = self.intervals(spread)
        variables = [Variable(v, within[v]) for v in (*self.dims, *self.ranges)]
        names = {v.var for v in theirs.runtimes}
        if names:
            return False
        mine = IndexingMap(tuple(variables), tuple(found), (), (), ())
        other = IndexingMap(tuple(variables), theirs.results, (), (), ())
        return bool(mine.to_isl().is_equal(other.to_isl()))


def _shared_out(digits: tuple[Digit, ...], loops: Sequence[Var]) -> Iterator[dict[Var, tuple[Digit, ...]]]:
    """The ways to give digits to loops: all to one of them, or the first ones to one and the rest to another."""
    for v in loops:
        yield {v: digits}
    for first, second in permutations(loops, 2):
        for k in range(1, len(digits)):
            yield {first: digits[:k], second: digits[k:]}


def _others(conditions: Sequence[Constraint], filled: Sequence[tuple[Expr, int]]) -> tuple[Constraint, ...]:
    """The conditions that say more than that a window lies inside of its operand: outside of that it is filled."""

    def keeps_inside(c: Constraint, e: Expr, size: int) -> bool:
        offset = c.expression - e
        if offset.is_constant:
            return c.interval == Interval(offset.constant, offset.constant + size - 1)
        # Between the elements of a dilated dimension there are holes: x in [0, step (size - 1)], where step divides x.
        step, rest = divmod(c.interval.upper - c.interval.lower, max(size - 1, 1))
        x = c.expression - c.interval.lower
        if rest or step < 2 or not _is_zero(simplify(x // step - e, {})):
            return False
        divides = Constraint(simplify(x % step, {}), Interval(0, 0))
        return any(Constraint(simplify(d.expression, {}), d.interval) == divides for d in conditions)

    return tuple([c for c in conditions if not any(keeps_inside(c, e, n) for e, n in filled)])


def _deciding(edges: OpEdges, conditions: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """The conditions that do not hold everywhere."""
    within = {v.var: v.interval for v in (*edges.dims, *edges.ranges)} | {v.var: v.interval for v in edges.runtimes}
    bounds = Bounds(within)
    rows = [(c, _rounded(c.expression, bounds(c.expression), conditions)) for c in conditions]
    return tuple([c for c, (low, high) in rows if low < c.interval.lower or high > c.interval.upper])


def _rounded(e: Expr, limits: tuple[int, int], conditions: Sequence[Constraint]) -> tuple[int, int]:
    """The limits of `e` where it has one remainder: d in [0, 31] with d mod 2 = 0 is no more than 30."""
    low, high = limits
    for c in conditions:
        m = c.expression
        if isinstance(m, Mod) and isinstance(m.divisor, int) and c.interval == Interval(0, 0):
            more = simplify(m.numerator - e, {})
            if more.is_constant:
                low += -(low + more.constant) % m.divisor
                high -= (high + more.constant) % m.divisor
    return low, high


def _is_zero(e: Expr) -> bool:
    return not e.terms and e.constant == 0


def loops_of(op: Op, output: int = 0) -> Loops | Declined:
    """The loops of a result of an op, where maps describe what it reads.

    >>> import hlo
    >>> text = "HloModule m ENTRY e { p = f32[8,4] parameter(0) ROOT r = f32[4,8] transpose(p), dimensions={1,0} }"
    >>> loops = loops_of(hlo.parse(text).root)
    >>> x = Digit(1, 2, "x")
    >>> print(*loops.operand_shardings({loops.dims[0]: (x,)}))
    [{}, {x}]
    """
    edges = edges_of(op, output)
    if isinstance(edges, Declined):
        return edges
    # Tiles may reach beyond the op's loops: there `d mod 7` of a d below 7, which is d, would be another index.
    within = {v.var: v.interval for v in (*edges.dims, *edges.ranges)} | {v.var: v.interval for v in edges.runtimes}
    written = [tuple([simplify(x, within) for x in e.map.results]) for e in edges.reads]
    reads = tuple([replace(e, map=replace(e.map, results=x)) for e, x in zip(edges.reads, written, strict=True)])
    return Loops(op, output, replace(edges, reads=reads))
