"""The ops of one block, each from what it reads to what one process computes of it.

The loops of an op are given digits of the process's number in every way that follows from how its operands are spread, or from
how its result is wanted (`tiling.mesh.relations`); of these the cheapest is taken. Its cost: what moves the operands there, what
combines partial results, what moves the result to where it is wanted, and the work. Where maps do not say what an op reads, or
its loops cannot be spread, every process computes all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from hlo.clone import captured_values, clone_block
from hlo.errors import Declined
from hlo.module import DenseArray, Op, Value
from hlo.registry import Elementwise, Fold, Generate, Literal, Move, SumOfProducts
from hlo.types import TensorType
from indexing.expr import Var
from tiling.mesh.by_hand.bodies import collective, is_own, manual, own
from tiling.mesh.choices import Choice, dearer, moves_of, stays
from tiling.mesh.cut_sums import best_cut, summed_in_pieces
from tiling.mesh.emit import Emitter, resized
from tiling.mesh.groups import COLLECTIVES
from tiling.mesh.halo.deferred import Deferred
from tiling.mesh.halo.inside import inside_first, inside_of, saved_seconds
from tiling.mesh.halo.windows import window_seconds, with_window
from tiling.mesh.local_ops import combination, filling, is_filled, local_op, windowed_dims
from tiling.mesh.moves import moves_cost
from tiling.mesh.partials import combined, partial_seconds
from tiling.mesh.regions import Held, control
from tiling.mesh.relations import Loops, Spread, Windows, loops_of
from tiling.mesh.remade import Sources, reads_no_values
from tiling.mesh.shardings import Digit, Sharding
from tiling.mesh.special.pools import Frame, frames_of, pools
from tiling.mesh.special.ways import Special, specials_of
from tiling.mesh.spreads import may_spread, spreads_of, uneven_ranges
from tiling.mesh.written import Written
from tiling.program.flatten import Program

__all__ = ["Walk"]

_PLACED = frozenset({"stablehlo.custom_call", "stablehlo.partition_id", "stablehlo.replica_id"}) | COLLECTIVES
"""Ops that compute on a tile something else than on the whole, though they read the same."""
_IDENTITIES = ("sdy.propagation_barrier", "stablehlo.optimization_barrier")


@dataclass
class Walk:
    """The ops of one block, each from what it reads to what one process computes of it."""

    whole: Written
    emit: Emitter
    held: dict[Value, Held]
    program: Program
    wanted: Sequence[Sharding | None]
    free: tuple[Digit, ...] | None = None  # of a body that the program has written for one process: what it leaves
    lazy: dict[Value, Op] = field(default_factory=dict)
    hints: dict[Value, Sharding] = field(default_factory=dict)
    known: dict[tuple[Value, Sharding], Value] = field(default_factory=dict)
    loops: dict[Op, Loops | Declined] = field(default_factory=dict)

    def inside(
        self, emit: Emitter, held: dict[Value, Held], program: Program, wanted: Sequence[Sharding | None],
        free: tuple[Digit, ...] | None = None,
    ) -> Walk:  # fmt: skip
        """The way through a block inside of this one."""
        return Walk(self.whole, emit, held, program, wanted, self.free if free is None else free)

    def __post_init__(self) -> None:
        self.deferred = Deferred(self, self.whole.network)
        self.deferred.note(self.program.ops)
        self.frames = frames_of(self.program)
        self.framed = {f.scatter for f in self.frames.values()}
        self.sources = Sources(frozenset(self.program.ops), self.held, self.lazy)
        self._again: dict[tuple[Value, Sharding], Choice | None] = {}
        for v, s in zip(self.program.results, self.wanted, strict=True):
            if s is not None:
                self.hints.setdefault(v, s)
        for op in reversed(self.program.ops):
            self._hint_operands(op)

    def _loops(self, op: Op) -> Loops | Declined:
        if op not in self.loops:
            if op.name in _PLACED or not op.definition.is_pure:
                self.loops[op] = Declined("what it computes depends on more than what it reads")
            elif len({r.shape for r in op.results if isinstance(r.type, TensorType)}) != 1:
                self.loops[op] = Declined("its results have several shapes, or it has none")
            elif not all(isinstance(v.type, TensorType) and v.type.is_static for v in (*op.operands, *op.results)):
                self.loops[op] = Declined("its values have no known shape")
            elif any(captured_values(b) for b in op.regions):
                self.loops[op] = Declined("its body reads values from outside")
            else:
                self.loops[op] = loops_of(op)
        return self.loops[op]

    def _hint_operands(self, op: Op) -> None:
        """How operands are wanted, where it is known how a result is."""
        constraint = self.whole.constraint(op)
        if constraint is not None:
            if not constraint.is_whole or not self.whole.open_dims(op):
                self.hints.setdefault(op.operands[0], constraint)
            return
        if op.name in _IDENTITIES:
            for v, r in zip(op.operands, op.results, strict=True):
                if r in self.hints:
                    self.hints.setdefault(v, self.hints[r])
            return
        hint = next((self.hints[r] for r in op.results if r in self.hints), None)
        folds = isinstance(op.definition.semantics, (Fold, SumOfProducts))
        if self.whole.wishes == "none" or (folds and self.whole.wishes == "moves"):
            return
        spread = {k: self.held[v].sharding for k, v in enumerate(op.operands) if v in self.held}
        beside = [k for k, s in spread.items() if not s.is_whole] if self.whole.wishes == "beside" and folds else []
        loops = self._loops(op) if hint is not None or beside else None
        if not isinstance(loops, Loops):
            return
        if beside:  # as an argument is spread that it is multiplied by
            found = loops.operand_shardings(loops.follow(beside[0], spread[beside[0]], {}))
        else:
            assert hint is not None
            found = loops.operand_shardings(dict(zip(loops.dims, hint.dims, strict=True)))
        if isinstance(found, tuple):
            for v, s in zip(op.operands, found, strict=True):
                if not s.is_whole:  # nobody wants all of it: it would only be no loss
                    self.hints.setdefault(v, s)

    # ------------------------------------------------------------ values

    def sharding(self, v: Value) -> Sharding:
        """How a value is spread; one that is made where it is read is whole, or as it is wanted."""
        self._settle(v)
        if v in self.held:
            return self.held[v].sharding
        if v in self.deferred.views:
            return self.deferred.sharding(v)
        return self.hints.get(v, Sharding.whole(v.rank))

    def is_placed(self, v: Value) -> bool:
        """Whether a value, or what it is a view of, is somewhere; else it is made where it is read."""
        return v in self.held or v in self.deferred.views or v in self.deferred.reshaped

    def _settle(self, v: Value) -> None:
        """Computes what had waited with a view of another shape."""
        waiting = self.deferred.reshaped.pop(v, None)
        if waiting is not None:
            self._one(waiting[0])

    def _brought_seconds(self, v: Value, s: Sharding) -> float:
        """What it takes to have a value in a sharding."""
        if (v, s) in self.known or not self.is_placed(v):
            return 0.0
        if v in self.deferred.views:
            return self.deferred.seconds(v, s)
        moved = moves_cost(moves_of(self.sharding(v), s, v), v.tensor, self.whole.network)
        again = self._made_again(v, s) if moved else None
        return moved if again is None else min(moved, again.seconds)

    def _made_again(self, v: Value, s: Sharding) -> Choice | None:
        """The way to make a value once more, in another sharding, of what it is made of; None where that is no less."""
        if not self.sources.is_made_of_less(v):
            return None
        if (v, s) not in self._again:
            op, found = v.op, None
            assert op is not None
            loops = self._loops(op)
            if reads_no_values(loops):
                choice = self._choice(op, dict(zip(self._must(op).dims, s.dims, strict=True)), None)
                found = choice if choice is not None and choice.result == s and not choice.windows else None
            self._again[v, s] = found
        return self._again[v, s]

    def at(self, v: Value, s: Sharding, reason: str) -> Value:
        """A value in a sharding: moved there, or made there."""
        self._settle(v)
        key = (v, s)
        if key not in self.known:
            if v in self.held:
                held = self.held[v]
                moves = moves_of(held.sharding, s, v)
                again = self._made_again(v, s)
                if again is not None and again.seconds < moves_cost(moves, v.tensor, self.whole.network):
                    assert v.op is not None
                    self.known[key] = self._emitted(v.op, again)[0]
                else:
                    self.known[key] = self.emit.moved(held.value, v.tensor, moves, reason)
            elif v in self.deferred.views:
                self.known[key] = self.deferred.at(v, s, reason)
            else:
                self.known[key] = self._made_at(v, s)
        return self.known[key]

    def _made_at(self, v: Value, s: Sharding) -> Value:
        op = self.lazy[v]
        if isinstance(op.definition.semantics, Literal):
            dense: DenseArray = op.attr("value")
            local = s.local_type(v.tensor)
            one = dense.array.reshape(-1)[:1].reshape((1,) * v.rank)
            array = np.broadcast_to(one, local.static_shape)
            return self.emit.op("stablehlo.constant", (), {"value": DenseArray(local, array)}, [local])[0]
        choice = self._choice(op, dict(zip(self._must(op).dims, s.dims, strict=True)), None)
        if choice is None or choice.result != s:
            choice = self._choice(op, {}, None)
            assert choice is not None
        made = self._emitted(op, choice)[0]
        return self.emit.moved(made, v.tensor, moves_of(choice.result, s, v), "")

    def _must(self, op: Op) -> Loops:
        loops = self._loops(op)
        assert isinstance(loops, Loops)
        return loops

    # ------------------------------------------------------------ ops

    def ops(self, ops: Sequence[Op]) -> None:
        """Appends what a process computes of each op."""
        for op in ops:
            if op.definition.is_terminator:
                continue
            if is_own(self, op):
                own(self, op)
                continue
            constraint = self.whole.constraint(op)
            if constraint is not None:
                constraint = self.whole.opened(op, constraint, self.sharding(op.operands[0]))
                v = self.at(op.operands[0], constraint, f"{op.name} wants it so")
                self.held[op.results[0]] = Held(v, constraint)
            elif op.name in _IDENTITIES:
                self._same(op)
            elif op.name == "sdy.sharding_group":
                continue
            elif op.name == "sdy.manual_computation":
                manual(self, op)
            elif self.free is not None and op.name in COLLECTIVES:
                collective(self, op)
            elif op in self.framed:
                continue  # its reader is the end of a frame
            elif op in self.frames:
                self._framed(op)
            elif self._is_lazy(op):
                self.lazy[op.results[0]] = op
            elif self.deferred.defers(op):
                continue
            elif op.regions and op.definition.is_control:
                control(self, op)
            else:
                self._one(op)

    def _same(self, op: Op) -> None:
        """Every operand as it is spread; a barrier of the program itself stays one."""
        spread = [self.sharding(v) for v in op.operands]
        given = tuple([self.at(v, s, "") for v, s in zip(op.operands, spread, strict=True)])
        if op.name == "stablehlo.optimization_barrier":
            given = self.emit.op(op.name, given, dict(op.attributes), [v.type for v in given])
        for r, v, s in zip(op.results, given, spread, strict=True):
            self.held[r] = Held(v, s)

    def _is_lazy(self, op: Op) -> bool:
        """Whether an op costs nothing to compute wherever its result is read: of constants, iotas and scalars."""
        if len(op.results) != 1 or op.regions:
            return False
        if not isinstance(op.results[0].type, TensorType) or not op.results[0].type.is_static:
            return False
        semantics = op.definition.semantics
        if isinstance(semantics, Literal):
            dense: DenseArray = op.attr("value")
            return dense.is_splat and dense.array.size > 0
        if not isinstance(semantics, (Elementwise, Move, Generate)) or not op.results[0].rank:
            return False
        loops = self._loops(op)
        if not isinstance(loops, Loops) or loops.edges.runtimes:
            return False
        return not any(self.is_placed(v) and v.rank for v in op.operands)

    def _one(self, op: Op) -> None:
        """The cheapest way to compute an op."""
        self._again.clear()  # what it takes changes with what is there
        loops = self._loops(op)
        hint = next((self.hints[r] for r in op.results if r in self.hints), None)
        choices = []
        if isinstance(loops, Loops):
            seen: list[Spread] = []
            held = {k: self.sharding(v) for k, v in enumerate(op.operands) if self.is_placed(v)}
            for spread in spreads_of(op, loops, held, hint):
                if spread not in seen:
                    seen.append(spread)
                    choice = self._choice(op, spread, hint)
                    if choice is not None:
                        choices.append(choice)
        specials = self._special(op, op, op.operands, hint)
        if not self.whole.exchanges:
            choices = [c for c in choices if stays(self, op, c.operands, c.result.digits)] or choices
            specials = [s for s in specials if stays(self, op, s.operands, s.result.digits)] or specials
        best = min(choices, key=lambda c: c.seconds, default=None)
        special = min(specials, key=lambda s: s.seconds, default=None)
        if best is not None and special is None:
            self.emit.alternative = dearer(self, op, best, choices)
        self._take(op, loops, best, special)
        self.emit.alternative = ""

    def _take(self, op: Op, loops: Loops | Declined, best: Choice | None, special: Special | None) -> None:
        """Appends what was chosen."""
        if special is not None and (best is None or special.seconds < best.seconds):
            self._take_special(op, op.operands, special)
            return
        if best is None:
            self._all_of_it(op, loops)
            return
        results = self._emitted(op, best)
        for r, v in zip(op.results, results, strict=True):
            self.held[r] = Held(v, best.result)

    def _special(
        self, op: Op, ends: Op, operands: Sequence[Value], hint: Sharding | None, frame: Frame | None = None
    ) -> list[Special]:  # fmt: skip
        """The special ways to compute from `operands` what `ends` gives, with what brings them and moves the result."""
        held = [self.sharding(v) if self.is_placed(v) else None for v in operands]
        network = self.whole.network
        found = specials_of(op, held, hint, network) if frame is None else pools(op, held, hint, network, frame)
        made = []
        for s in found:
            brought = sum(self._brought_seconds(v, to) for v, to in zip(operands, s.operands, strict=True))
            made.append(s.after(self._wanted_seconds(ends, s.result, hint) + brought))
        return made

    def _take_special(self, op: Op, operands: Sequence[Value], special: Special) -> None:
        given = [self.at(v, s, f"{op.name} reads it so") for v, s in zip(operands, special.operands, strict=True)]
        made = special.build(self.emit, given)
        self.held.update({r: Held(v, special.result) for r, v in zip(op.results, made, strict=True)})

    def _framed(self, op: Op) -> None:
        """A scatter between a padding and a slice that takes it off again: at once, where that can be."""
        frame, hint = self.frames[op], self.hints.get(op.results[0])
        found = self._special(frame.scatter, op, frame.operands, hint, frame)
        if found:
            self._take_special(op, frame.operands, min(found, key=lambda s: s.seconds))
            return
        self._one(frame.scatter)
        if not self.deferred.defers(op):
            self._one(op)

    def _wanted_seconds(self, op: Op, made: Sharding, hint: Sharding | None) -> float:
        network = self.whole.network
        return 0.0 if hint is None else sum(moves_cost(moves_of(made, hint, r), r.tensor, network) for r in op.results)

    def _all_of_it(self, op: Op, loops: Loops | Declined) -> None:
        spread = [v for v in op.operands if not self.sharding(v).is_whole]
        if spread:
            reason = loops.reason if isinstance(loops, Declined) else "no loop of it can be spread"
            self.whole.kept_whole.append(f"{op.name}: {reason}")
        operands = [self.at(v, Sharding.whole(v.rank), f"{op.name} reads all of it") for v in op.operands]
        sizes = [r.type.size_elems for r in op.results if isinstance(r.type, TensorType) and r.type.is_static]
        self.whole.work_seconds += self.emit.times * sum(sizes) / self.whole.network.work_per_second
        captured = [v for b in op.regions for v in captured_values(b)]
        outside = {v: self.at(v, Sharding.whole(v.rank), f"{op.name} reads all of it") for v in captured}
        regions = [clone_block(b, outside) for b in op.regions]
        made = Op(op.definition, operands, op.attributes, regions, [r.type for r in op.results], op.location, op.extra)
        self.emit.block.ops.append(made)
        for r, v in zip(op.results, made.results, strict=True):
            self.held[r] = Held(v, Sharding.whole(r.rank if isinstance(r.type, TensorType) else 0))

    def _choice(self, op: Op, spread: Spread, hint: Sharding | None) -> Choice | None:
        """One way to compute an op, without the loops that cannot be spread so; None where there is no such way."""
        loops = self._must(op)
        spread = {v: d for v, d in spread.items() if d and may_spread(op, loops, v, d)}
        windows: Windows = {}
        while True:
            windows.clear()
            operands = loops.operand_shardings(spread, windows if windowed_dims(op) else None)
            if isinstance(operands, Var):
                del spread[operands]
            elif isinstance(operands, Declined):
                return None
            else:
                break
        result = Sharding(tuple([spread.get(v, ()) for v in loops.dims]))
        local = local_op(op, operands, result, windows)
        if spread and (local is None or not self._proved(op, local, spread, operands, windows)):
            return None
        assert local is not None
        partial = tuple([d for v in loops.ranges for d in spread.get(v, ())])
        scattered = next(
            (k for k in range(len(result.dims)) if partial and hint is not None and hint.dims[k] == (*result.dims[k], *partial)
             and op.results[0].shape[k] % (result.parts(k) * prod(d.size for d in partial)) == 0),
            None,
        )  # fmt: skip
        final = result if scattered is None else Sharding(
            tuple([(*d, *partial) if k == scattered else d for k, d in enumerate(result.dims)])
        )  # fmt: skip
        seconds = self._seconds(op, loops, operands, result, final, partial, scattered, hint)
        seconds += self._window_seconds(op, operands, windows)
        return Choice(spread, operands, final, partial, scattered, local, windows, seconds)

    def _inside_first(self, op: Op, choice: Choice, operands: list[Value], fill: Value | None) -> Value | None:
        """The result of an op whose inside is computed while its halo comes; None where that is not worth it."""
        network, loops = self.whole.network, self._must(op)
        if not network.hidden or len(choice.windows) != 1 or choice.partial or len(op.results) != 1:
            return None
        (((k, dim), window),) = choice.windows.items()
        inside = inside_of(choice.local, dim, windowed_dims(op).get(dim, 0), window, operands[k].shape[dim]) if k == 0 else None
        if inside is None:
            return None
        digits = choice.operands[k].dims[dim]
        exchange = self._window_seconds(op, choice.operands, choice.windows)
        work = self._work_seconds(loops, prod([d.size for ds in choice.spread.values() for d in ds]))
        t = choice.local.results[0].tensor
        if saved_seconds(inside, exchange, work, network.hidden, t, network.work_per_second) <= 0:
            return None
        self.whole.work_seconds += self.emit.times * work * (1 + inside.border_share)
        reason = f"{op.name} reads around its tile, whose inside is computed meanwhile"
        return inside_first(self.emit, op, choice.local, operands, inside, digits, fill, reason)

    def _window_seconds(self, op: Op, operands: Sequence[Sharding], windows: Windows) -> float:
        """What the exchange of an op's windows takes."""
        seconds = 0.0
        for (k, dim), window in windows.items():
            s = operands[k]
            held = resized(s.local_type(op.operands[k].tensor), dim, op.operands[k].shape[dim])
            seconds += window_seconds(window, held, dim, s.dims[dim], self.whole.network)
        return seconds

    def _filling(self, op: Op, operand: int = 0) -> Value | None:
        """What an op takes for elements of an operand that are not there; None for zero."""
        outside = filling(op, operand)
        return None if outside is None else self.at(outside, Sharding.whole(0), f"{op.name} fills with it")

    def _mask(self, op: Op, choice: Choice, operands: list[Value]) -> None:
        """Puts what changes no fold where tiles reach over an end of what is folded."""
        uneven = uneven_ranges(self._must(op), choice.spread)
        inits = range(len(op.results), len(op.operands)) if isinstance(op.definition.semantics, Fold) else ()
        done = set()
        for k, index, _ in self._must(op).reads():
            for dim, e in enumerate(index):
                digits = choice.operands[k].dims[dim]
                if k in inits or (k, dim) in done or not digits or not uneven & set(e.variables):
                    continue
                done.add((k, dim))
                begin = self.emit.tile_begin(digits, operands[k].shape[dim])
                operands[k] = self.emit.masked(operands[k], dim, begin, 0, op.operands[k].shape[dim], self._filling(op, k))

    def _proved(self, op: Op, local: Op, spread: Spread, operands: Sequence[Sharding], windows: Windows) -> bool:
        """Whether each result of the op on tiles reads there what the whole op reads."""
        for k in range(len(op.results)):
            loops = self._must(op) if k == 0 else loops_of(op, k)
            if isinstance(loops, Declined) or not loops.proved(local, spread, operands, windows):
                return False
        return True

    def _seconds(
        self, op: Op, loops: Loops, operands: Sequence[Sharding], result: Sharding, final: Sharding, partial: tuple[Digit, ...],
        scattered: int | None, hint: Sharding | None,
    ) -> float:  # fmt: skip
        network = self.whole.network
        seconds = sum(self._brought_seconds(v, s) for v, s in zip(op.operands, operands, strict=True))
        if partial:
            seconds += partial_seconds([result.local_type(r.tensor) for r in op.results], partial, scattered, network)
        if hint is not None:
            wanted = [r for r in op.results if r in self.hints or len(op.results) == 1]
            seconds += sum(moves_cost(moves_of(final, hint, r), r.tensor, network) for r in wanted)
        return seconds + self._work_seconds(loops, prod([d.size for d in (*result.digits, *partial)]))

    def _work_seconds(self, loops: Loops, parts: int) -> float:
        work = prod([loops.size(v) for v in (*loops.dims, *loops.ranges)])
        return work / parts / self.whole.network.work_per_second

    def _emitted(self, op: Op, choice: Choice) -> list[Value]:
        operands = [self.at(v, s, f"{op.name} reads it so") for v, s in zip(op.operands, choice.operands, strict=True)]
        if choice.windows or uneven_ranges(self._must(op), choice.spread):
            self._mask(op, choice, operands)
            fill = self._filling(op)
            first = self._inside_first(op, choice, operands, fill)
            if first is not None:
                return [first]
            for (k, dim), window in choice.windows.items():
                digits, reason = choice.operands[k].dims[dim], f"{op.name} reads around its tile"
                size = op.operands[k].shape[dim]
                operands[k] = with_window(self.emit, operands[k], size, dim, digits, window, fill, is_filled(op), reason)
        local = choice.local
        parts = prod([d.size for digits in choice.spread.values() for d in digits])
        work = self._work_seconds(self._must(op), parts)
        self.whole.work_seconds += self.emit.times * work
        if choice.partial and choice.scattered is None:
            cut = best_cut(local, choice.partial, work, self.whole.network)
            if cut is not None:
                reason = f"{op.name} folds over a loop that is spread"
                return [summed_in_pieces(self.emit, local, operands, cut, choice.partial, combination(op), reason)]
        made = Op(op.definition, operands, local.attributes, local.regions, [r.type for r in local.results], op.location,
                  op.extra, [r.name for r in op.results])  # fmt: skip
        self.emit.block.ops.append(made)
        if not choice.partial:
            return list(made.results)
        return combined(self.emit, op, operands, made.results, choice.partial, choice.scattered)
