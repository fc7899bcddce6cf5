"""From one nest of a schedule to source: each value is computed in the innermost loop that it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from codegen.source.fold import FoldSource, fold_source
from codegen.source.phase import PhaseWriter
from codegen.source.prefetch import prefetch_lines
from codegen.source.rows import joined, rows_of
from codegen.source.scalars import constant_source, index_number, place_source, scalar_source
from codegen.source.scan import scan_body
from codegen.source.two_looks import read_again, second_look
from codegen.source.uses import unwritten, users_of
from codegen.source.writer import NotCompilable, Writer
from hlo.access import Condition
from hlo.errors import Declined
from hlo.types import ElementType
from indexing.expr import EVERYTHING, Const, Expr, Var, interval, within
from tiling.loops.affine import reads_long_runs
from tiling.loops.element_ir import (
    Apply,
    Choose,
    IndexNode,
    Load,
    Node,
    Renamer,
    Runtime,
    Scalar,
    Test,
    element_name,
    node_variables,
    runtimes_of,
)
from tiling.loops.ir import Buffer, FoldStep, Loop, LoopKind, Nest, Segment, Store

__all__ = ["NestEmitter"]

SHORT_FOLD = 512
LONGEST = 88  # an expression longer than this gets a name


class NestEmitter:
    """Emits one nest: code is collected per loop level, then written out from the outside in.

    What is computed, in which loops and segments, is the nest's: nothing is decided here.
    """

    def __init__(self, phase: PhaseWriter, nest: Nest) -> None:
        self.phase, self.nest = phase, nest
        self.is_scan = any(x.kind is LoopKind.SCAN for x in nest.loops)
        self.rows = 1 if self.is_scan or len(nest.loops) < 2 else nest.loops[-2].together  # of a fold, in one step
        self.depth = len(nest.loops)
        self.memo: dict[Node, frozenset[Var]] = {}
        self.level_of = {x.variable: k + 1 for k, x in enumerate(nest.loops)}
        self.text: dict[Node, str] = {}
        self.users: dict[Node, list[Node | None]] = {}
        self.lines: list[list[str]] = [[] for _ in range(self.depth + 1)]
        self.after: list[list[str]] = [[] for _ in range(self.depth + 1)]
        self.keep: list[Node] = []
        self.level_of_node: dict[Node, int] = {}
        self.in_registers = False
        self.looks_twice = False
        self.stored: dict[Node, Store] = {}  # nodes that are stored and have no other use
        self.branches = 0  # how many choices around what is being written

    def use(self, roots: Sequence[Node]) -> None:
        """Says which nodes are about to be written, so that what is used twice gets a name."""
        self.users = users_of(roots)

    def run(self) -> None:
        nest = self.nest
        if self.is_scan:
            self.phase.read.update(b for f in nest.folds for b in f.buffers)
            (whole,) = nest.parts
            self.write([(whole, scan_body(self))])
            return
        first_reduction = next((k for k, x in enumerate(nest.loops) if x.kind is LoopKind.REDUCTION), self.depth)
        in_registers = all(x.kind is LoopKind.REDUCTION for x in nest.loops[first_reduction:])
        self.in_registers = in_registers
        accumulators = [self._accumulators(f, first_reduction, in_registers) for f in nest.folds]
        # A fold over nothing (an outer product, a reduce over no dimension) starts and ends inside the innermost loop.
        over_nothing = first_reduction == self.depth
        starts, ends = (self.lines[self.depth], self.after[self.depth]) if over_nothing else ([], [])
        if over_nothing:
            self.after[self.depth] = []
        bodies: list[tuple[Segment, list[str]]] = []
        for segment in nest.parts:
            into = list(zip(segment.folds, accumulators, strict=bool(segment.folds)))
            most = max((f.products for f in segment.folds), default=0)
            folds = [(f, self._rows(f, k), a) for k in range(most) for f, a in into if k < f.products]
            self.users = users_of([s.node for s in segment.stores] + [n for _, nodes, _ in folds for n in nodes])
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
            # What was computed inside one segment is not there in the next.
            self.text = {k: t for k, t in self.text.items() if self.level_of_node.get(k, 0) < self.depth}
        if nest.folds and not in_registers:
            self._initialise(first_reduction)
        self.write(bodies)

    def write(self, bodies: Sequence[tuple[Segment, list[str]]]) -> None:
        out, depth = self.phase.out, self.phase.out.depth
        depths = [depth]
        if self.depth:
            out.extend(self.lines[0])
        for k, loop in enumerate(self.nest.loops[:-1]):
            self.open(out, loop, loop.lower, loop.upper)
            depths.append(out.depth)
            out.extend(self.lines[k + 1])
        for segment, body in bodies:
            here = out.depth
            if self.depth:
                if not body:
                    continue
                self.open(out, self.nest.loops[-1], segment.lower, segment.upper)
            out.extend(body)
            out.depth = here
        depths.append(out.depth)
        for k in range(self.depth, -1, -1):
            out.depth = depths[min(k, len(depths) - 1)]
            out.extend(self.after[k])
        out.depth = depth

    def open(self, out: Writer, loop: Loop, lower: Expr, upper: Expr) -> None:
        """A loop's header; a loop of one iteration has none, its variable is 0 in every expression."""
        if loop.extent == 1 and lower is upper is Const(0):
            return
        start, stop = self.phase.expr(lower), self.phase.expr(upper + 1)
        span = f"{start}, {stop}, {loop.together}" if loop.together > 1 else stop if start == "0" else f"{start}, {stop}"
        out.line(f"for {self.phase.name(loop.variable)} in range({span}):")
        out.depth += 1

    # ------------------------------------------------------------ folds

    def _accumulators(self, f: FoldStep, first_reduction: int, in_registers: bool) -> list[str]:
        """Where a fold's running results are: local variables, or the result's own memory."""
        source = self.fold_source(f)
        at = [f"{b.name}[{self.phase.address(b, f.index)}]" for b in f.buffers]
        if not in_registers:
            self.phase.read.update(f.buffers)
            return at
        names = [self.phase.fresh("a") for _ in f.values for _ in range(source.parts)]
        if f.carried:
            self.phase.read.update(f.buffers)
            self._set(names, [x for b in at for x in source.start(b)], self.lines[first_reduction])
        else:
            self.users = users_of(f.inits)
            self._start(f, source, names, self.lines[first_reduction], first_reduction)
        if self.looks_twice:
            self.after[first_reduction] += second_look(self, f, source, names, first_reduction)
        self.after[first_reduction] += [f"{b} = {a}" for b, a in zip(at, source.finish(names), strict=True)]
        return names

    def _is_short(self) -> bool:
        """Whether a reduction is over so few elements that what follows it counts more than a step."""
        return prod(x.extent for x in self.nest.loops if x.kind is LoopKind.REDUCTION) <= SHORT_FOLD

    def fold_source(self, f: FoldStep) -> FoldSource:
        source = fold_source(f, self.in_registers, f.looks_twice or not self._is_short(), self.phase.excess)
        if isinstance(source, Declined):
            raise NotCompilable(source.reason)
        self.looks_twice = f.looks_twice
        return source

    def _rows(self, f: FoldStep, product: int) -> Sequence[Node]:
        """What a fold takes in a step: the factors of a product, or with several rows at a time one value for each."""
        if self.rows == 1:
            return f.factors(product)
        return rows_of(self.nest, f.nodes, lambda at: Renamer(at, self.phase.schedule.ranges, {}), self.rows)

    def _combine(self, f: FoldStep, nodes: Sequence[Node], into: Sequence[str], body: list[str]) -> None:
        source = self.fold_source(f)
        if len(f.nodes) == 1 and source.is_neutral(f.nodes[0]):
            return
        values = [self.number(n, self.depth) for n in nodes]
        if self.looks_twice:
            values.append(read_again(self, nodes[0]))
        if self.rows > 1:
            if not source.word:
                raise NotCompilable(f"nothing puts {self.rows} rows together before {f.op.name} folds them")
            lines, value = joined(source.word, values, self.phase.fresh)
            body += lines
            values = [value]
        body += source.combine(into, values, self.phase.fresh)

    def _start(self, f: FoldStep, source: FoldSource, targets: Sequence[str], lines: list[str], level: int) -> None:
        starts = [self.number(n, level) for n in f.inits] if f.inits else [source.zero]
        self._set(targets, [x for s in starts for x in source.start(s)], lines)

    @staticmethod
    def _set(targets: Sequence[str], values: Sequence[str], lines: list[str]) -> None:
        lines += [f"{t} = {v}" for t, v in zip(targets, values, strict=True)]

    def _initialise(self, first_reduction: int) -> None:
        """Sets the results to their initial values before the reduction loops, over the parallel loops inside them."""
        out = Writer()
        folds = [f for f in self.nest.folds if not f.carried]
        if not folds:
            return
        for loop in self.nest.loops[first_reduction:]:
            if loop.kind is LoopKind.PARALLEL:
                self.open(out, loop, loop.lower, loop.upper)
        for f in folds:
            if any(node_variables(n, self.memo) for n in f.inits):
                raise NotCompilable("its initial value differs between elements")
            at = [f"{b.name}[{self.phase.address(b, f.index)}]" for b in f.buffers]
            lines: list[str] = []
            self.users = users_of(f.inits)
            self._start(f, self.fold_source(f), at, lines, first_reduction)
            out.extend(lines)
        self.lines[first_reduction] += out.lines

    # ------------------------------------------------------------ nodes

    def level(self, node: Node) -> int:
        """The innermost loop that the node depends on, as a number of loops around it."""
        return max((self.level_of.get(v, 0) for v in node_variables(node, self.memo)), default=0)

    def number(self, root: Node, level: int) -> str:
        """Source of a node's value, for use at `level`; what can be computed further out is.

        What is used twice gets a name.
        """
        for n in unwritten(root, self.text):
            at = self.level(n)
            text = self._source(n, at)
            users = self.users.get(n, [])
            shared = len(users) > 1 and not isinstance(n, (Scalar, IndexNode))
            hoisted = (
                n is not root
                and not isinstance(n, Scalar)
                and any(self.level(u) > at for u in users if u is not None)
            )
            if shared or hoisted or (n is root and at < level and not isinstance(n, Scalar)) or len(text) > LONGEST:
                name = self.phase.fresh()
                self.lines[at].append(f"{name} = {text}")
                text = name
            self.text[n] = text
            self.level_of_node[n] = at
            self.keep.append(n)
        return self.text[root]

    def _source(self, n: Node, at: int) -> str:
        fresh = [r for r in runtimes_of(n) if self._runtime(r)]
        if fresh and not self.branches and n in self.nest.ahead:
            assert isinstance(n, Load)
            lines = prefetch_lines(self, n)  # puts lines there itself
            self.lines[self.depth - 1] += lines
        if isinstance(n, Load):
            buffer = self.phase.buffer_of(n)
            self.phase.read.add(buffer)
            if self._walks(buffer, n.index):
                self.phase.walked.add(buffer)
            return f"{buffer.name}[{self.phase.address(buffer, n.index)}]"
        if isinstance(n, Scalar):
            return constant_source(n.value, n.element)
        if isinstance(n, IndexNode):
            bounds = interval(n.expression, self.phase.schedule.ranges)
            return index_number(self.phase.expr(n.expression), bounds, n.element)
        if isinstance(n, Test):
            return f"({self._conditions(n.conditions)})"
        if isinstance(n, Apply):
            types = [v.tensor.element for v in n.op.operands]
            plain = [t for t in types if isinstance(t, ElementType)]
            if len(plain) != len(types):
                raise NotCompilable(f"{n.op.name} has quantized operands")
            store = self.stored.get(n)
            # (What is hoisted out of the innermost loop may have other uses in another segment.)
            is_stored = store is not None and at == self.depth and store.buffer.element == n.op.results[0].tensor.element
            text = scalar_source(n.op, n.function, [self.text[a] for a in n.arguments], plain, self.phase.excess, is_stored)
            if isinstance(text, Declined):
                raise NotCompilable(text.reason)
            return text
        return self._choose(n, at)

    def _walks(self, buffer: Buffer, index: Sequence[Expr]) -> bool:
        """Whether a task, loop within loop, reads a long run of elements that lie one after the other."""
        if not self.nest.loops:
            return False
        extents = dict(self.phase.phase.tiles) | {x.variable: x.extent for x in self.nest.loops}
        return reads_long_runs(buffer, index, extents, self.phase.schedule.ranges)

    def _choose(self, n: Choose, at: int) -> str:
        """`then` is evaluated only where its conditions hold, so it becomes a branch."""
        name = self.phase.fresh()
        outer_lines, outer_text, outer_names = self.lines, dict(self.text), dict(self.phase.variables)
        self.branches += 1
        branches = []
        for node in (n.then, n.otherwise):
            lines: list[str] = []
            self.lines = [lines for _ in outer_lines]  # everything inside the branch stays inside the branch
            text = self.number(node, at)
            branches.append([*lines, f"{name} = {text}"])
            self.text = dict(outer_text)
            self.phase.variables = dict(outer_names)
        self.lines = outer_lines
        self.branches -= 1
        then, otherwise = ([f"    {line}" for line in lines] for lines in branches)
        self.lines[at] += [f"if {self._conditions(n.conditions)}:", *then, "else:", *otherwise]
        return name

    def _runtime(self, r: Runtime) -> bool:
        """Gives a runtime variable its value, where what it is computed from is known; False when it has one."""
        if r.variable in self.phase.variables:
            return False
        name = self.phase.fresh("rt")
        self.lines[self.level(r.node)].append(f"{name} = {self.place(r, self.text[r.node])}")
        self.phase.variables[r.variable] = name
        return True

    def place(self, r: Runtime, text: str) -> str:
        """A runtime variable's value: clamped as a number of 32 bits where it is one, so that vectors of places have as many."""
        if element_name(r.node) == "i32" and r.upper < 1 << 31:
            return f"to_int64(clamp(int32({r.lower}), {text}, int32({r.upper})))"
        return f"min(max({place_source(text, element_name(r.node))}, {r.lower}), {r.upper})"

    def _conditions(self, conditions: Sequence[Condition]) -> str:
        return " and ".join(_test(self.phase.expr(c.expression), c.lower, c.upper) for c in conditions)


def _test(e: str, lower: int, upper: int) -> str:
    """The source of lower <= e <= upper, without an end that is beyond every index."""
    if lower == upper:
        return f"{e} == {lower}"
    is_open = lower <= EVERYTHING.lower or upper >= EVERYTHING.upper
    return within(e, lower, upper) if is_open else f"{lower} <= {e} <= {upper}"
