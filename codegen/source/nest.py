"""From one nest of a schedule to source: each value is computed in the innermost loop that it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from codegen.source.fold import FoldSource, fold_source
from codegen.source.phase import PhaseWriter
from codegen.source.rows import joined, rows_of
from codegen.source.scan import scan_body
from codegen.source.values import ValueWriter
from codegen.source.writer import NotCompilable, Writer
from hlo.errors import Declined
from tiling.loops.element_ir import Load, Node, node_variables
from tiling.loops.ir import FoldStep, LoopKind, Nest, Segment

__all__ = ["NestEmitter"]

SHORT_FOLD = 512


class NestEmitter(ValueWriter):
    """Emits one nest: code is collected per loop level, then written out from the outside in."""

    def __init__(self, phase: PhaseWriter, nest: Nest) -> None:
        beside = len(nest.loops) > 1 and nest.loops[-2].together > 1 and nest.loops[-2].kind is LoopKind.PARALLEL
        if beside and nest.loops[-1].kind is not LoopKind.SCAN:
            # results in registers, or sums that are written out, go side by side: each row has folds of its own
            nest = replace(nest, folds=tuple(g for f in nest.folds for g in rows_of(nest, f, phase.schedule.ranges)))
        super().__init__(phase, nest)
        self.is_scan = any(x.kind is LoopKind.SCAN for x in nest.loops)
        across = len(nest.loops) > 1 and nest.loops[-2].kind is LoopKind.REDUCTION
        self.rows = nest.loops[-2].together if across else 1  # of a fold, in one step
        self.first = next((k for k, x in enumerate(nest.loops) if x.kind is LoopKind.REDUCTION), self.depth)
        self.in_registers = not self.is_scan and all(x.kind is LoopKind.REDUCTION for x in nest.loops[self.first :])
        self.after: list[list[str]] = [[] for _ in range(self.depth + 1)]
        # One accumulator takes what all parts of the loop fold: of the elements' own bits, or of what they are widened to.
        self.reads_alone = all(isinstance(f.nodes[0], Load) for part in nest.parts for f in part.folds)

    def run(self) -> None:
        nest = self.nest
        if self.is_scan:
            self.phase.read.update(b for f in nest.folds for b in f.buffers)
            (whole,) = nest.parts
            self.write([(whole, scan_body(self, self.fold_source(nest.folds[0])))])
            return
        accumulators = [self._accumulators(f) for f in nest.folds]
        # A fold over nothing (an outer product, a reduce over no dimension) starts and ends inside the innermost loop.
        starts, ends = self.lines[self.depth], self.after[self.depth]
        self.after[self.depth] = []
        bodies: list[tuple[Segment, list[str]]] = []
        for segment in nest.parts:
            into = list(zip(segment.folds, accumulators, strict=bool(segment.folds)))
            most = max((f.products for f in segment.folds), default=0)
            folds = [(f, self._rows(f, k), a) for k in range(most) for f, a in into if k < f.products]
            self.use([s.node for s in segment.stores] + [n for _, nodes, _ in folds for n in nodes])
            self.stored = {s.node: s for s in segment.stores if len(self.users.get(s.node, ())) == 1}
            body = list(starts)
            self.lines[self.depth] = body
            for s in segment.stores:
                value = self.number(s.node, self.depth)
                body.append(f"{s.buffer.name}[{self.phase.address(s.buffer, s.index)}] = {value}")
            for f, nodes, names in folds:
                self._combine(f, nodes, names, body)
            body += ends
            bodies.append((segment, body))
            self.leave(self.depth)
        if not self.in_registers:
            self._initialise()
        self.write(bodies)

    def write(self, bodies: Sequence[tuple[Segment, list[str]]], level: int = 0) -> None:
        """The lines from a level on: its own, the loop in it with all that is inside, and what comes after that."""
        out, depth, loops = self.phase.out, self.phase.out.depth, self.nest.loops
        if loops:
            out.extend(self.lines[level])
        if level < len(loops) - 1:
            self.open(out, loops[level], loops[level].lower, loops[level].upper)
            self.write(bodies, level + 1)
        for segment, body in bodies if level >= len(loops) - 1 else ():
            if loops and body:
                self.open(out, loops[-1], segment.lower, segment.upper)
            out.extend(body)
            out.depth = depth
        out.depth = depth
        out.extend(self.after[level])
        if level == 0:
            self.leave(0)

    # ------------------------------------------------------------ folds

    def _accumulators(self, f: FoldStep) -> list[str]:
        """Where a fold's running results are: local variables, or the result's own memory."""
        source, at = self.fold_source(f), self.places(f)
        if f.carried or not self.in_registers:
            self.phase.read.update(f.buffers)
        if not self.in_registers:
            return at
        names = [self.phase.fresh("a") for _ in f.values for _ in range(source.parts)]
        self.lines[self.first] += self._starts(f, source, names, at)
        if f.looks_twice:
            self.after[self.first] += self._second_look(f, source, names)
        self.after[self.first] += [f"{b} = {a}" for b, a in zip(at, source.finish(names), strict=True)]
        return names

    def _second_look(self, f: FoldStep, source: FoldSource, accumulators: list[str]) -> list[str]:
        """The lines after the loops over a row: the loops once more, for the bound of a maximum or minimum that was left out."""
        assert source.unsure is not None and source.look_again is not None
        out = Writer([f"if {source.unsure(accumulators)}:"], 1)
        for loop in self.nest.loops[self.first :]:
            self.open(out, loop, loop.lower, loop.upper)
        out.extend(source.look_again(accumulators, self._again(f.nodes[0])))
        return out.lines

    def _again(self, node: Node) -> str:
        """The element that `node` loads, through another name of its buffer."""
        assert isinstance(node, Load)
        buffer = self.phase.buffer_of(node)
        return f"{self.phase.view(buffer)}[{self.phase.address(buffer, node.index)}]"

    def _starts(self, f: FoldStep, source: FoldSource, targets: Sequence[str], at: Sequence[str]) -> list[str]:
        """The lines that give a fold's running results what they begin with: what lies at its places where it is carried."""
        if not f.carried:
            self.use(f.inits)
            at = [self.number(n, self.first) for n in f.inits] or [source.zero]
        return [f"{t} = {v}" for t, v in zip(targets, [x for s in at for x in source.start(s)], strict=True)]

    def fold_source(self, f: FoldStep) -> FoldSource:
        # What follows a reduction over few elements counts more than a step of it.
        is_long = prod(x.extent for x in self.nest.loops if x.kind is LoopKind.REDUCTION) > SHORT_FOLD
        source = fold_source(f, self.in_registers, f.looks_twice or is_long, self.phase.excess, self.reads_alone)
        if isinstance(source, Declined):
            raise NotCompilable(source.reason)
        return source

    def _rows(self, f: FoldStep, product: int) -> Sequence[Node]:
        """What a fold takes in a step: the factors of a product, or with several rows at a time one value for each."""
        if self.rows == 1:
            return f.factors(product)
        return [x.nodes[0] for x in rows_of(self.nest, f, self.phase.schedule.ranges)]

    def _combine(self, f: FoldStep, nodes: Sequence[Node], into: Sequence[str], body: list[str]) -> None:
        source = self.fold_source(f)
        if len(f.nodes) == 1 and source.is_neutral(f.nodes[0]):
            return
        values = [self.number(n, self.depth) for n in nodes]
        if f.looks_twice:
            values.append(self._again(nodes[0]))
        if self.rows > 1:
            if not source.word:
                raise NotCompilable(f"nothing puts {self.rows} rows together before {f.op.name} folds them")
            lines, value = joined(source.word, values, self.phase.fresh)
            body += lines
            values = [value]
        body += source.combine(into, values, self.phase.fresh)

    def _initialise(self) -> None:
        """Sets the results to their initial values before the reduction loops, over the parallel loops inside them."""
        out = Writer()
        folds = [f for f in self.nest.folds if not f.carried]
        for loop in self.nest.loops[self.first :] if folds else ():
            if loop.kind is LoopKind.PARALLEL:
                self.open(out, loop, loop.lower, loop.upper)
        for f in folds:
            if any(node_variables(n, self.memo) for n in f.inits):
                raise NotCompilable("its initial value differs between elements")
            at = self.places(f)
            out.extend(self._starts(f, self.fold_source(f), at, at))
        self.lines[self.first] += out.lines
