"""A part of a program runs strip by strip: a loop over strips of one dimension in place of ops with large values between them.

    z = x . w;  y = f(z);  g = xT . y;  r = y . wT   ->   for each strip s of the rows of x:   z = x[s] . w;  y = f(z)
                                                              g += x[s]T . y;  r[s] = y . wT

Of z and y there is a strip at a time. Which ops belong together follows from one value that is too large, and from the ops' index
maps (`tiling.program.strip_cuts`): those that make and read it in strips, and so on through values nearly as large; then what
lies between these ops. What none of them needs whole before the loop is over may be a sum over the strips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from hlo.builder import Builder
from hlo.clone import captured_values, clone_op
from hlo.errors import Declined
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Elementwise, Generate, Literal, Move, SumOfProducts, definition
from hlo.types import TensorType, element_type
from tiling.program.flatten import Program, is_rebuilt, live_ops
from tiling.program.strip_cuts import Cut, cut_of_result, cuts_of_operand, start_of_sum, strip_of, strip_type

__all__ = ["StripFinder", "Strips", "is_strip_loop", "run_in_strips"]

MOST_OF_MASK = 24  # values that a mask is made of, where each strip makes its own: random ones take hundreds
NEARLY = 2  # a value of at least this part of the seed's size belongs to the strips with what makes and reads it


@dataclass(frozen=True, eq=False)
class Strips:
    """Ops that run in `count` strips, each with its cut; the dimension of which each value is cut; what others read of them."""

    seed: Value
    axis: int
    count: int
    ops: tuple[Op, ...]  # in the program's order
    cuts: Mapping[Op, Cut]
    axes: Mapping[Value, int]
    results: tuple[Value, ...]  # in strips that are put together, or summed
    copied: frozenset[Op]  # the ops that others make again for themselves: masks, constants

    @property
    def moves_masks(self) -> bool:
        """Whether each strip has another part of a mask of places: its number is known at run time, and bounds no loops."""
        return any(_is_mask_of_places(v) and _varies_along(v, axis) for v, axis in self.axes.items())


class StripFinder:
    """Finds the strips of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.uses = _Uses(program)
        self.is_pure = all(op.definition.is_pure for op in program.ops)

    def find(self, seed: Value, axis: int, count: int) -> Strips | Declined:
        """The strips that keep one of `count` strips of `seed`, along its dimension `axis`, at a time; or why there are none."""
        if not self.is_pure:
            return Declined("the program has effects, whose order stays")
        try:
            return _Search(self.program, self.uses, seed, axis, count).run()
        except LookupError as reason:
            return Declined(str(reason.args[0]))


class _Uses:
    """Who reads what in a program: asked for by each search, written down once."""

    def __init__(self, program: Program) -> None:
        self.places = {op: k for k, op in enumerate(program.ops)}
        self.inputs = {op: tuple(dict.fromkeys(_inputs(op))) for op in program.ops}
        self.readers: dict[Value, list[Op]] = {}
        for op, inputs in self.inputs.items():
            for v in inputs:
                self.readers.setdefault(v, []).append(op)
        self._little: dict[Op, bool] = {}

    def is_little(self, op: Op) -> bool:
        """Whether all that an op makes is made of less."""
        known = self._little.get(op)
        if known is None:
            known = self._little[op] = all(_is_made_of_less(r) for r in op.results)
        return known

    def behind(self, op: Op) -> Iterator[Op]:
        """The ops that read what an op makes."""
        for r in op.results:
            yield from self.readers.get(r, ())

    def ahead(self, op: Op) -> Iterator[Op]:
        """The ops of the program that make what an op reads."""
        for v in self.inputs[op]:
            if v.op is not None and v.op in self.places:
                yield v.op


def _inputs(op: Op) -> Iterator[Value]:
    """What an op and its regions read."""
    yield from op.operands
    for b in op.regions:
        yield from captured_values(b)


def _is_made_of_less(v: Value) -> bool:
    """Whether it takes fewer bytes to make a value again than to read it: a mask of iotas, a row spread over all."""
    assert v.op is not None
    if not isinstance(v.op.definition.semantics, (Elementwise, Generate, Literal, Move)):
        return False
    return sum(x.tensor.size_bytes for x in v.op.operands if not is_rebuilt(x)) < v.tensor.size_bytes


def _is_mask_of_places(v: Value) -> bool:
    """Whether a value is of booleans that follow from where they are alone: a few ops on constants and iotas."""
    if v.tensor.element != element_type("i1"):
        return False
    found, todo = {v}, [v]
    while todo:
        x = todo.pop()
        if is_rebuilt(x):
            continue
        op = x.op
        if op is None or op.regions or not op.operands or not isinstance(op.definition.semantics, (Elementwise, Move)):
            return False
        todo += set(op.operands) - found
        found.update(op.operands)
        if len(found) > MOST_OF_MASK:
            return False
    return True


def _varies_along(v: Value, axis: int) -> bool:
    """Whether a mask of places may differ from place to place along a dimension."""
    op = v.op
    if op is None or (is_rebuilt(v) and not op.operands):
        return op is None or op.attributes.get("iota_dimension") == axis
    if isinstance(op.definition.semantics, Elementwise):
        return any(_varies_along(x, axis) for x in op.operands if x.rank > axis)
    if op.name == "stablehlo.broadcast_in_dim":
        source = next((k for k, d in enumerate(op.attr("broadcast_dimensions")) if d == axis), None)
        x = op.operands[0]
        return source is not None and x.shape[source] != 1 and _varies_along(x, source)
    return True


@dataclass(eq=False)
class _Search:
    program: Program
    uses: _Uses
    seed: Value
    axis: int
    count: int
    axes: dict[Value, int] = field(default_factory=dict)
    cuts: dict[Op, Cut] = field(default_factory=dict)
    todo: list[Value] = field(default_factory=list)
    starts: set[Op] = field(default_factory=set)  # ops in strips that `behind` has all readers of, and theirs
    behind: set[Op] = field(default_factory=set)
    ends: set[Op] = field(default_factory=set)  # ops in strips that `ahead` has all that they need of
    ahead: set[Op] = field(default_factory=set)

    def run(self) -> Strips:
        self.kept = frozenset(self.program.results)
        if self.seed in self.kept or self.seed.op is None:
            raise LookupError("it is an argument or a result of the program")
        self._cut(self.seed, self.axis)
        while True:
            self._grow()
            missing = self._between()
            if not missing:
                break
            self._add_between(missing)
        made = tuple([op for op in self.program.ops if op in self.cuts])
        copied = self._copied()
        inside = {r: op for op in made for r in op.results if op not in copied}
        for op in made:
            for v, k in zip(op.operands, self.cuts[op].operands, strict=True):
                if k is None and v in inside:
                    raise LookupError(f"{op.definition.mnemonic} needs all strips of what {inside[v].definition.mnemonic} makes")
        results = tuple([r for r in inside if self._is_read_outside(r)])
        if self.seed in results:
            raise LookupError("it is read whole")
        return Strips(self.seed, self.axis, self.count, made, self.cuts, self.axes, results, copied)

    def _copied(self) -> frozenset[Op]:
        """The ops inside that are made of little, and of nothing that only a strip has: who reads them outside has their own."""
        found: set[Op] = set()
        for op in sorted(self.cuts, key=self.uses.places.__getitem__):
            is_little = op is not self.seed.op and self.uses.is_little(op)
            if is_little and all(v.op is None or v.op not in self.cuts or v.op in found for v in op.operands):
                found.add(op)
        return frozenset(found)

    def _is_read_outside(self, v: Value) -> bool:
        return v in self.kept or any(op not in self.cuts for op in self.uses.readers.get(v, ()))

    def _cut(self, v: Value, axis: int) -> None:
        known = self.axes.setdefault(v, axis)
        if known != axis:
            raise LookupError(f"%{v.name or '?'} would be cut along two dimensions")
        if axis >= v.rank or v.shape[axis] % self.count:
            raise LookupError(f"{v.type} has no {self.count} strips along dimension {axis}")

    def _is_large(self, v: Value) -> bool:
        return NEARLY * v.tensor.size_bytes >= self.seed.tensor.size_bytes

    def _add(self, op: Op, cut: Cut) -> None:
        if op in self.cuts:
            if self.cuts[op] != cut:
                raise LookupError(f"{op.definition.mnemonic} would be cut in two ways")
            return
        self.cuts[op] = cut
        labelled = [(v, k) for v, k in zip(op.operands, cut.operands, strict=True) if k is not None]
        labelled += [(r, cut.axis) for r in op.results if cut.axis is not None]
        for v, k in labelled:
            is_new = v not in self.axes
            self._cut(v, k)
            if is_new:
                self.todo.append(v)

    def _grow(self) -> None:
        """Adds what makes and reads the large values that are cut, and what makes others of less than they are."""
        self.todo += [] if self.cuts else [self.seed]
        while self.todo:
            v = self.todo.pop()
            large = self._is_large(v)
            if v.op is not None and (large or _is_made_of_less(v)):
                cut = cut_of_result(v.op, self.axes[v], self.count)
                if not isinstance(cut, Declined):
                    self._add(v.op, cut)
                elif v is self.seed:
                    raise LookupError(cut.reason)
            for op in self.uses.readers.get(v, ()) if large and not is_rebuilt(v) else ():
                if op not in self.cuts:
                    found = next(cuts_of_operand(op, v, self.axes[v], self.count), None)
                    if found is not None:
                        self._add(op, found)
                    elif v is self.seed:
                        raise LookupError(f"{op.definition.mnemonic} reads it across its strips")

    def _between(self) -> set[Op]:
        """The ops outside that need something of the strips and are needed by them."""
        starts = self.cuts.keys() - self._copied()
        if not self.starts <= starts:  # one of them is now copied
            self.starts, self.behind = set(), set()
        _reach(starts - self.starts, self.uses.behind, self.behind)
        self.starts = starts
        _reach(self.cuts.keys() - self.ends, self.uses.ahead, self.ahead)
        self.ends = set(self.cuts)
        return (self.behind & self.ahead) - self.cuts.keys()

    def _add_between(self, missing: Set[Op]) -> None:
        """Adds one of these ops that is known to be cut: the last one by its result, or the first one by what it reads."""
        places = self.uses.places
        making = {v.op for v in self.axes if v.op is not None} & missing
        if making:
            op = max(making, key=places.__getitem__)
            cut = cut_of_result(op, next(self.axes[r] for r in op.results if r in self.axes), self.count)
            if isinstance(cut, Declined):
                raise LookupError(cut.reason)
            self._add(op, cut)
            return
        reading = {op for v in self.axes for op in self.uses.readers.get(v, ()) if op in missing and v in op.operands}
        if reading:
            op = min(reading, key=places.__getitem__)
            v = next(v for v in op.operands if v in self.axes)
            found = next(cuts_of_operand(op, v, self.axes[v], self.count), None)
            if found is None:
                raise LookupError(f"{op.definition.mnemonic} between two of its ops reads across strips")
            self._add(op, found)
            return
        first = min(missing, key=places.__getitem__)
        raise LookupError(f"{first.definition.mnemonic} needs the result of all strips, and strips need it")


def _reach(starts: Iterable[Op], following: Callable[[Op], Iterable[Op]], found: set[Op]) -> None:
    """Adds to `found` what follows some ops, and what follows that; of what is there already all is there."""
    todo = list(starts)
    while todo:
        for op in following(todo.pop()):
            if op not in found:
                found.add(op)
                todo.append(op)


# ---------------------------------------------------------------- the loop


def run_in_strips(program: Program, strips: Strips) -> Program | Declined:
    """The program with a loop in place of the strips' ops; Declined where one of them has no strip."""
    try:
        return _Writer(program, strips).run()
    except LookupError as reason:
        return Declined(str(reason.args[0]))


def is_strip_loop(op: Op) -> bool:
    """True for a loop that `run_in_strips` made."""
    return _MARK in op.extra


_MARK = "tilewright.strips"
_COUNTER = TensorType((), element_type("i32"))


class _Writer:
    def __init__(self, program: Program, strips: Strips) -> None:
        self.program, self.strips = program, strips
        self.b = Builder()
        self.b.place = strips.seed.op.location if strips.seed.op is not None else None

    def run(self) -> Program:
        s, b = self.strips, self.b
        ahead = Block([])
        with b.into(ahead):
            start = [self._splat(_COUNTER, 0), *(self._start(r) for r in s.results)]
            types = [v.type for v in start]
            cond, body = Block(types), Block(types)
            with b.into(cond):
                b.emit("stablehlo.return", (b.compare(cond.arguments[0], self._splat(_COUNTER, s.count), "LT"),))
            with b.into(body):
                self._body(body)
            loop = Op(definition("stablehlo.while"), start, {}, (cond, body), types, b.place, {_MARK: str(s.count)},
                      ["strip", *(r.name for r in s.results)])  # fmt: skip
        return self._around(ahead, loop)

    def _splat(self, t: TensorType, value: object) -> Value:
        array = np.broadcast_to(np.asarray(value, t.dtype), t.static_shape)
        return self.b.emit("stablehlo.constant", (), {"value": DenseArray(t, array)}, (), [t])[0]

    def _sum(self, r: Value) -> bool:
        assert r.op is not None
        return self.strips.cuts[r.op].axis is None

    def _start(self, r: Value) -> Value:
        assert r.op is not None
        t = TensorType(r.shape, r.tensor.element)
        return self._splat(t, start_of_sum(r.op) if self._sum(r) else 0)

    def _body(self, body: Block) -> None:
        s, b = self.strips, self.b
        strip, *before = body.arguments
        starts: dict[int, Value] = {}

        def start(v: Value, axis: int) -> list[Value]:
            size = v.shape[axis] // s.count
            if size not in starts:
                starts[size] = b.multiply(strip, self._splat(_COUNTER, size))
            zero = self._splat(_COUNTER, 0)
            return [starts[size] if k == axis else zero for k in range(v.rank)]

        env: dict[Value, Value] = {}
        made = set(s.ops)
        slices: dict[Value, Value] = {}
        again: dict[Value, Value] = {}
        for op in s.ops:
            cut = s.cuts[op]
            operands = []
            for v, axis in zip(op.operands, cut.operands, strict=True):
                if axis is None:
                    operands.append(self._remade(v, again))
                elif v.op in made:
                    operands.append(env[v])
                else:
                    if v not in slices:
                        sizes = strip_type(v, axis, s.count).static_shape
                        slices[v] = b.emit("stablehlo.dynamic_slice", (v, *start(v, axis)), {"slice_sizes": sizes})[0]
                    operands.append(slices[v])
            new = strip_of(op, cut, operands, s.count)
            if isinstance(new, Declined):
                raise LookupError(new.reason)
            b.append(new)
            env.update(zip(op.results, new.results, strict=True))
            if op.name == "stablehlo.iota" and op.attr("iota_dimension") == cut.axis and cut.axis is not None:
                env[op.results[0]] = self._moved(new.results[0], start(op.results[0], cut.axis)[cut.axis])
        after = [b.add(strip, self._splat(_COUNTER, 1))]
        for r, old in zip(s.results, before, strict=True):
            assert r.op is not None
            if not self._sum(r):
                after.append(b.emit("stablehlo.dynamic_update_slice", (old, env[r], *start(r, s.axes[r])))[0])
            elif isinstance(r.op.definition.semantics, SumOfProducts):
                after.append(b.add(old, env[r]))
            else:
                inner = r.op.regions[0].ops[0]
                after += b.append(Op(inner.definition, (old, env[r]), inner.attributes, (), [old.type], r.op.location))
        b.emit("stablehlo.return", after)

    def _remade(self, v: Value, again: dict[Value, Value]) -> Value:
        """A value that is read whole: a mask of places is made in the body too, where its limits bound the loops of a strip."""
        if v in again or is_rebuilt(v) or not _is_mask_of_places(v):
            return again.get(v, v)
        todo = [v]
        while todo:
            op = todo[-1].op
            assert op is not None
            if todo[-1] in again:  # two others are made of it
                todo.pop()
                continue
            missing = [x for x in op.operands if x not in again and not is_rebuilt(x)]
            todo += missing
            if missing:
                continue
            todo.pop()
            self.b.append(clone_op(op, again))
        return again[v]

    def _moved(self, iota: Value, start: Value) -> Value:
        """The numbers of a strip: those of the first one, and where the strip begins."""
        b, t = self.b, iota.tensor
        first = b.emit("stablehlo.convert", (start,), {}, (), [TensorType((), t.element)])[0]
        spread = b.emit("stablehlo.broadcast_in_dim", (first,), {"broadcast_dimensions": ()}, (), [t])[0]
        return b.emit("stablehlo.add", (iota, spread))[0]

    def _around(self, ahead: Block, loop: Op) -> Program:
        """The other ops around the loop: what waits for it comes after it."""
        s = self.strips
        inside = set(s.ops) - s.copied
        outside = [op for op in self.program.ops if op not in inside]
        env: dict[Value, Value] = dict(zip(s.results, loop.results[1:], strict=True))
        late: set[Value] = set(s.results)
        first: list[Op] = []
        last: list[Op] = []
        for op in outside:
            if not any(v in late for v in _inputs(op)):
                first.append(op)
                continue
            late.update(op.results)
            last.append(clone_op(op, env))
        results = tuple([env.get(v, v) for v in self.program.results])
        ops = live_ops([*first, *ahead.ops, loop, *last], results)
        return Program(self.program.name, self.program.arguments, ops, results)
