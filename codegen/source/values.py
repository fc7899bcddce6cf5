"""The values of a nest's nodes as source: each is computed in the innermost loop that it depends on."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from codegen.source.phase import PhaseWriter
from codegen.source.scalars import constant_source, index_number, place_source, rounded, scalar_source
from codegen.source.uses import unwritten, users_of
from codegen.source.writer import NotCompilable, Writer
from hlo.access import Condition
from hlo.errors import Declined
from hlo.types import ElementType
from indexing.expr import EVERYTHING, Const, Expr, Var, interval, substitute, within
from tiling.loops.affine import reads_long_runs, run_and_jump
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
    children,
    element_name,
    node_variables,
    runtimes_of,
)
from tiling.loops.ir import Buffer, FoldStep, Loop, Nest, Store
from tiling.passes.prefetch_rows import LINE_BYTES, ROWS_AHEAD, lines_of_row, moving_places

__all__ = ["ValueWriter"]

LONGEST = 88  # an expression longer than this gets a name
SHORT_RUN_BYTES = 4096  # a page: what is asked for beyond the end of such a run is no longer in it


class ValueWriter:
    """A nest while the values of its nodes are written: `lines` are collected for each level, the loops around them.

    What is computed, in which loops and segments, is the nest's: nothing is decided here.
    """

    def __init__(self, phase: PhaseWriter, nest: Nest) -> None:
        self.phase, self.nest, self.depth = phase, nest, len(nest.loops)
        self.memo: dict[Node, frozenset[Var]] = {}
        self.level_of = {x.variable: k + 1 for k, x in enumerate(nest.loops)}
        self.text: dict[Node, str] = {}
        self.users: dict[Node, list[Node | None]] = {}
        self.lines: list[list[str]] = [[] for _ in range(self.depth + 1)]
        self.level_of_node: dict[Node, int] = {}
        self.stored: dict[Node, Store] = {}  # nodes that are stored and have no other use
        self.branches = 0  # how many choices around what is being written
        self.named: dict[Var, tuple[Node, int]] = {}  # runtime variables that have a name: what it stands for, at which level

    def use(self, roots: Sequence[Node]) -> None:
        """Says which nodes are about to be written, so that what is used twice gets a name."""
        self.users = users_of(roots)

    def open(self, out: Writer, loop: Loop, lower: Expr, upper: Expr) -> None:
        """A loop's header; a loop of one iteration has none, its variable is 0 in every expression."""
        if loop.extent == 1 and lower is upper is Const(0):
            return
        self.phase.open(loop, out, lower, upper)

    def places(self, f: FoldStep) -> list[str]:
        """The elements that a fold's results are."""
        return [f"{b.name}[{self.phase.address(b, f.index)}]" for b in f.buffers]

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
        return self.text[root]

    def _source(self, n: Node, at: int) -> str:
        fresh = [r for r in runtimes_of(n) if self._runtime(r)]
        if fresh and not self.branches and n in self.nest.ahead:
            assert isinstance(n, Load)
            self._prefetch(n)
        if isinstance(n, Load):
            buffer = self.phase.buffer_of(n)
            self.phase.read.add(buffer)
            if self._walks(buffer, n.index):
                walked = self.phase.walked
                walked[buffer] = min(self._next_row_bytes(buffer, n.index), walked.get(buffer, sys.maxsize))
            read = f"{buffer.name}[{self.phase.address(buffer, n.index)}]"
            element = n.value.tensor.element
            if isinstance(element, ElementType) and element != buffer.element and element.is_float and self._is_operand(n):
                return rounded(read, "add", element, self.phase.excess)  # a sum in f32, which is what its op gives
            return read
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

    def _is_operand(self, n: Node) -> bool:
        """Whether an operation has the value of a node, not just a store or a fold."""
        users = self.users.get(n, ())
        return any(isinstance(u, Apply) or (isinstance(u, Choose) and self._is_operand(u)) for u in users)

    def _walks(self, buffer: Buffer, index: Sequence[Expr]) -> bool:
        """Whether a task, loop within loop, reads a long run of elements that lie one after the other."""
        if not self.nest.loops:
            return False
        extents = dict(self.phase.phase.tiles) | {x.variable: x.extent for x in self.nest.loops}
        return reads_long_runs(buffer, index, extents, self.phase.schedule.ranges)

    def _next_row_bytes(self, buffer: Buffer, index: Sequence[Expr]) -> int:
        """From one run of consecutive elements to the next, where the loops of a task leave runs soon; 0 where they do not."""
        loops = [*self.phase.phase.tiles, *((x.variable, x.extent) for x in self.nest.loops)]
        run, jump = run_and_jump(buffer, index, loops, self.phase.schedule.ranges)
        item = buffer.element.itemsize_bytes
        return jump * item if run * item <= SHORT_RUN_BYTES else 0

    def _choose(self, n: Choose, at: int) -> str:
        """`then` is evaluated only where its conditions hold, so it becomes a branch. What both load is loaded before."""
        name = self.phase.fresh()
        for load in [x for x in self._certain(n.then) if x in self._certain(n.otherwise)]:
            self.number(load, at)
        outer_lines, outer_text = self.lines, dict(self.text)
        outer_names, outer_named = dict(self.phase.variables), dict(self.named)
        self.branches += 1
        branches = []
        for node in (n.then, n.otherwise):
            lines: list[str] = []
            self.lines = [lines for _ in outer_lines]  # everything inside the branch stays inside the branch
            text = self.number(node, at)
            branches.append([*lines, f"{name} = {text}"])
            self.text = dict(outer_text)
            self.phase.variables, self.named = dict(outer_names), dict(outer_named)
        self.lines = outer_lines
        self.branches -= 1
        then, otherwise = ([f"    {line}" for line in lines] for lines in branches)
        self.lines[at] += [f"if {self._conditions(n.conditions)}:", *then, "else:", *otherwise]
        return name

    def _certain(self, root: Node) -> dict[Load, None]:
        """The loads that a node's value takes, whatever choices say."""
        found: dict[Load, None] = {}
        seen, todo = set[Node](), [root]
        while todo:
            n = todo.pop()
            if n in seen or n in self.text:
                continue
            seen.add(n)
            if isinstance(n, Load):
                found[n] = None
            else:
                todo += [r.node for r in n.runtimes] if isinstance(n, Choose) else reversed(children(n))
        return found

    def _runtime(self, r: Runtime) -> bool:
        """Gives a runtime variable its value, where what it is computed from is known; False when it has one.

        In another part of the loop it may be computed from another node (`Rewriting`): then it gets a new name.
        """
        if r.variable in self.phase.variables and self.named.get(r.variable, (r.node,))[0] is r.node:
            return False
        name, level = self.phase.fresh("rt"), self.level(r.node)
        self.lines[level].append(f"{name} = {self._place(r, self.text[r.node])}")
        self.phase.variables[r.variable], self.named[r.variable] = name, (r.node, level)
        return True

    def leave(self, level: int) -> None:
        """Forgets what was computed at a level and inside of it: what is written next is not in the same loop."""
        self.text = {k: t for k, t in self.text.items() if self.level_of_node.get(k, 0) < level}
        for v in [v for v, (_, at) in self.named.items() if at >= level]:
            self.phase.variables.pop(v)
            del self.named[v]

    def _place(self, r: Runtime, text: str) -> str:
        """A runtime variable's value: clamped as a number of 32 bits where it is one, so that vectors of places have as many."""
        if element_name(r.node) == "i32" and r.upper < 1 << 31:
            return f"to_int64(clamp(int32({r.lower}), {text}, int32({r.upper})))"
        return f"min(max({place_source(text, element_name(r.node))}, {r.lower}), {r.upper})"

    def _prefetch(self, load: Load) -> None:
        """The row of updates two rows on is looked up, and its lines are asked for: in the loop around the innermost one, after
        the load's runtime variables."""
        nest, phase, level = self.nest, self.phase, self.depth - 1
        buffer = phase.buffer_of(load)
        rows, inner = nest.loops[-2], nest.loops[-1]
        row = Var(f"{rows.variable.name}_ahead")
        phase.variables[row] = phase.fresh("ahead")
        self.level_of[row] = level
        self.lines[level].append(f"{phase.name(row)} = min({phase.name(rows.variable)} + {ROWS_AHEAD}, {phase.expr(rows.upper)})")
        places: dict[Var, Expr] = {rows.variable: row, inner.variable: inner.lower}
        made = []
        for r in moving_places(nest, load):
            place = Var(f"{r.variable.name}_ahead")
            places[r.variable], phase.variables[place] = place, phase.fresh("next")
            text = self.number(Renamer({rows.variable: row}, phase.schedule.ranges, {}).node(r.node), level)
            made.append(f"{phase.name(place)} = {self._place(r, text)}")
        at = phase.address(buffer, [substitute(e, places) for e in load.index])
        counter = phase.fresh("line")
        self.lines[level] += [
            *made,
            f"for {counter} in range({lines_of_row(nest, buffer)}):",
            f"    prefetch({buffer.name}, {at} + {LINE_BYTES // buffer.element.itemsize_bytes}*{counter})",
        ]

    def _conditions(self, conditions: Sequence[Condition]) -> str:
        return " and ".join(_test(self.phase.expr(c.expression), c.lower, c.upper) for c in conditions)


def _test(e: str, lower: int, upper: int) -> str:
    """The source of lower <= e <= upper, without an end that is beyond every index."""
    if lower == upper:
        return f"{e} == {lower}"
    is_open = lower <= EVERYTHING.lower or upper >= EVERYTHING.upper
    return within(e, lower, upper) if is_open else f"{lower} <= {e} <= {upper}"
