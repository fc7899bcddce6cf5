"""From a schedule's phases to numba source: loops as loops, each value computed in the innermost loop that it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen.fold import FoldSource, fold_source
from codegen.scalars import constant_source, number_type, scalar_source
from codegen.scope import Writer, index_source
from hlo.errors import Declined
from hlo.types import ElementType
from indexing.expr import Expr, Var
from tiling.contract import address
from tiling.element import Apply, Choose, IndexNode, Load, Node, Scalar, children, node_variables
from tiling.order import order_loops
from tiling.schedule import Buffer, Contract, FoldStep, Loop, LoopKind, Nest, Phase, Schedule, Scope

__all__ = ["PhaseSource", "emit_phase"]

LONGEST = 88  # an expression longer than this gets a name


@dataclass(frozen=True)
class PhaseSource:
    """A kernel's source, and the buffers that it takes in the order of its arguments."""

    source: str
    buffers: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    tasks: int


class NotCompilable(Exception):
    """Carries a `Declined` out of the emitter."""


def emit_phase(schedule: Schedule, phase: Phase, title: str) -> PhaseSource | Declined:
    """The source of one phase, or why it cannot be compiled (an element type or a scalar function without a rule)."""
    try:
        return _PhaseEmitter(schedule, phase, title).run()
    except NotCompilable as reason:
        return Declined(str(reason))


class _PhaseEmitter:
    def __init__(self, schedule: Schedule, phase: Phase, title: str) -> None:
        self.schedule, self.phase, self.title = schedule, phase, title
        self.by_value: dict[int, Buffer] = {id(b.value): b for b in schedule.buffers if b.value is not None}
        for step in (s for p in schedule.phases for s in p.steps if isinstance(s, Nest)):
            # In-place buffers belong to several values.
            self.by_value.update({id(s.value): s.buffer for s in step.stores if s.value is not None})
            self.by_value.update({id(v): b for f in step.folds for v, b in zip(f.values, f.buffers, strict=True)})
        for step in (s for p in schedule.phases for s in p.steps if isinstance(s, Contract)):
            self.by_value.setdefault(id(step.value), step.out.buffer)
        self.used: dict[Buffer, None] = {}
        self.variables: dict[Var, str] = {}
        self.out = Writer()
        self.counter = 0

    def buffer_of(self, load: Load) -> Buffer:
        return load.buffer or self.by_value[id(load.value)]

    def run(self) -> PhaseSource:
        self.out.depth = 1
        self._task_loop()
        body = self.out.lines
        buffers = tuple(b for b in self.schedule.buffers if b in self.used and b.scope is not Scope.THREAD)
        scratch = tuple(b for b in self.schedule.buffers if b in self.used and b.scope is Scope.THREAD)
        names = ["begin", "end", *(b.name for b in (*buffers, *scratch))]
        head = [f"def kernel({', '.join(names)}):", f'    """{self.title}', ""]
        head += [f"    {b.name}: {b.scope.value} {b.element}[{', '.join(map(str, b.shape))}]" for b in (*buffers, *scratch)]
        head += ['    """']
        return PhaseSource("\n".join([*head, *body, ""]), buffers, scratch, self.phase.tasks)

    def name(self, v: Var) -> str:
        """The variable's name in the source: the part before the stage's tag, which loops of one nest share."""
        known = self.variables.get(v)
        if known is None:
            known = self.variables[v] = v.name.partition("_")[0]
        return known

    def expr(self, e: Expr) -> str:
        for v in e.variables:
            self.name(v)
        return index_source(e, self.variables)

    def fresh(self, stem: str = "v") -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def address(self, buffer: Buffer, index: Sequence[Expr]) -> str:
        self.used[buffer] = None
        return self.expr(address(buffer, index, self.schedule.ranges))

    def _task_loop(self) -> None:
        tiles = [(v, n) for v, n in self.phase.tiles]
        if len(tiles) == 1:
            self.out.line(f"for {self.name(tiles[0][0])} in range(begin, end):")
        else:
            self.out.line("for task in range(begin, end):")
        self.out.depth += 1
        if len(tiles) > 1:
            step = 1
            for k, (v, n) in reversed(list(enumerate(tiles))):
                text = "task" if step == 1 else f"task // {step}"
                if k:
                    text = f"{text} % {n}" if step == 1 else f"({text}) % {n}"
                self.out.line(f"{self.name(v)} = {text}")
                step *= n
        for step_ in self.phase.steps:
            if isinstance(step_, Contract):
                self._contract(step_)
            else:
                _NestEmitter(self, order_loops(step_, self.buffer_of)).run()

    # ------------------------------------------------------------ contractions

    def _contract(self, c: Contract) -> None:
        out = self.out
        depth = out.depth
        for loop in c.loops:
            out.line(f"for {self.name(loop.variable)} in range({_stop(self.expr(loop.lower), loop, self)}):")
            out.depth += 1
        blocks = -(-c.k // c.k_block)
        k0 = self.name(c.k_start)
        for b in (c.left.buffer, c.right.buffer, c.out.buffer):
            self.used[b] = None
        rows, columns = _count(c.rows_upper, self), _count(c.columns_upper, self)
        if blocks == 1:
            out.line(f"{k0} = 0")
        else:
            out.line(f"for {k0} in range(0, {c.k}, {c.k_block}):")
            out.depth += 1
        for nest in c.pack:
            _NestEmitter(self, order_loops(nest, self.buffer_of)).run()
        size = str(c.k) if blocks == 1 else f"min({c.k_block}, {c.k} - {k0})" if c.k % c.k_block else str(c.k_block)
        right = self.expr(c.right.base) + (f" + {c.right.row_stride}*{k0}" if blocks > 1 else "")
        call = (
            f"gemm_block_{c.rows}x{c.columns}({rows}, {columns}, {size}, "
            f"{c.left.buffer.name}, {self.expr(c.left.base)}, {c.left.row_stride}, "
            f"{c.right.buffer.name}, {right}, {c.panel_stride}, {c.right.row_stride}, "
            f"{c.out.buffer.name}, {self.expr(c.out.base)}, {c.out.row_stride}, {k0 + ' > 0' if blocks > 1 else 'False'})"
        )
        out.line(call)
        out.depth = depth


def _count(upper: Expr, emitter: _PhaseEmitter) -> str:
    return emitter.expr(upper + 1)


def _stop(lower: str, loop: Loop, emitter: _PhaseEmitter) -> str:
    stop = emitter.expr(loop.upper + 1)
    return stop if lower == "0" else f"{lower}, {stop}"


class _NestEmitter:
    """Emits one nest: code is collected per loop level, then written out from the outside in."""

    def __init__(self, phase: _PhaseEmitter, nest: Nest) -> None:
        self.phase, self.nest = phase, nest
        self.memo: dict[int, frozenset[Var]] = {}
        self.level_of = {x.variable: k + 1 for k, x in enumerate(nest.loops)}
        self.text: dict[int, str] = {}
        self.lines: list[list[str]] = [[] for _ in range(len(nest.loops) + 1)]
        self.after: list[list[str]] = [[] for _ in range(len(nest.loops) + 1)]
        self.keep: list[Node] = []

    def run(self) -> None:
        nest = self.nest
        first_reduction = next((k for k, x in enumerate(nest.loops) if x.kind is LoopKind.REDUCTION), len(nest.loops))
        in_registers = all(x.kind is LoopKind.REDUCTION for x in nest.loops[first_reduction:])
        innermost = len(nest.loops)
        for s in nest.stores:
            value = self.number(s.node, innermost)
            self.text[id(s.node)] = value
            self.lines[innermost].append(f"{s.buffer.name}[{self.phase.address(s.buffer, s.index)}] = {value}")
        for f in nest.folds:
            self._fold(f, first_reduction, in_registers)
        if nest.folds and not in_registers:
            self._initialise(first_reduction)
        self._write()

    def _write(self) -> None:
        out, depth = self.phase.out, self.phase.out.depth
        out.extend(self.lines[0])
        for k, loop in enumerate(self.nest.loops):
            lower = self.phase.expr(loop.lower)
            out.line(f"for {self.phase.name(loop.variable)} in range({_stop(lower, loop, self.phase)}):")
            out.depth += 1
            out.extend(self.lines[k + 1])
        for k in range(len(self.nest.loops), -1, -1):
            out.depth = depth + k
            out.extend(self.after[k])
        out.depth = depth

    # ------------------------------------------------------------ folds

    def _fold(self, f: FoldStep, first_reduction: int, in_registers: bool) -> None:
        innermost = len(self.nest.loops)
        source = fold_source(f)
        if isinstance(source, Declined):
            raise NotCompilable(source.reason)
        values = [self.number(n, innermost) for n in f.nodes]
        at = [f"{b.name}[{self.phase.address(b, f.index)}]" for b in f.buffers]
        if in_registers:
            accumulators = [self.phase.fresh("a") for _ in f.values]
            self._start(f, source, accumulators, self.lines[first_reduction], first_reduction)
            self.lines[innermost] += source.combine(accumulators, values, self.phase.fresh)
            self.after[first_reduction] += [f"{b} = {a}" for b, a in zip(at, source.finish(accumulators), strict=True)]
        else:
            if source.widens:
                raise NotCompilable("its accumulator is wider than its result, and its loops put the reduction outside")
            self.lines[innermost] += source.combine(at, values, self.phase.fresh)

    def _start(self, f: FoldStep, source: FoldSource, targets: Sequence[str], lines: list[str], level: int) -> None:
        starts = [self.number(n, level) for n in f.inits] if f.inits else [source.zero]
        lines += [f"{t} = {s}" for t, s in zip(targets, starts, strict=True)]

    def _initialise(self, first_reduction: int) -> None:
        """Sets the results to their initial values before the reduction loops, over the parallel loops inside them."""
        inner = [x for x in self.nest.loops[first_reduction:] if x.kind is LoopKind.PARALLEL]
        out = Writer()
        for loop in inner:
            out.line(f"for {self.phase.name(loop.variable)} in range({_stop(self.phase.expr(loop.lower), loop, self.phase)}):")
            out.depth += 1
        for f in self.nest.folds:
            source = fold_source(f)
            assert isinstance(source, FoldSource)
            if any(node_variables(n, self.memo) for n in f.inits):
                raise NotCompilable("its initial value differs between elements")
            at = [f"{b.name}[{self.phase.address(b, f.index)}]" for b in f.buffers]
            lines: list[str] = []
            self._start(f, source, at, lines, first_reduction)
            out.extend(lines)
        self.lines[first_reduction] += out.lines

    # ------------------------------------------------------------ nodes

    def level(self, node: Node) -> int:
        return max((self.level_of.get(v, 0) for v in node_variables(node, self.memo)), default=0)

    def number(self, root: Node, level: int) -> str:
        """Source of a node's value, for use at `level`; what can be computed further out is, and what is used twice gets a name."""
        order, users = _postorder(root, self.text)
        for n in order:
            if id(n) in self.text:
                continue
            at = self.level(n)
            text = self._source(n, at)
            shared = len(users.get(id(n), ())) > 1 and not isinstance(n, (Scalar, IndexNode))
            hoisted = n is not root and not isinstance(n, Scalar) and any(self.level(u) > at for u in users.get(id(n), ()))
            if shared or hoisted or (n is root and at < level and not isinstance(n, Scalar)) or len(text) > LONGEST:
                name = self.phase.fresh()
                self.lines[at].append(f"{name} = {text}")
                text = name
            self.text[id(n)] = text
            self.keep.append(n)
        return self.text[id(root)]

    def _source(self, n: Node, at: int) -> str:
        if isinstance(n, Load):
            buffer = self.phase.buffer_of(n)
            return f"{buffer.name}[{self.phase.address(buffer, n.index)}]"
        if isinstance(n, Scalar):
            self._number_type(n.element)
            return constant_source(n.value, n.element)
        if isinstance(n, IndexNode):
            return f"to_{self._number_type(n.element)}({self.phase.expr(n.expression)})"
        if isinstance(n, Apply):
            types = [v.tensor.element for v in n.op.operands]
            plain = [t for t in types if isinstance(t, ElementType)]
            if len(plain) != len(types):
                raise NotCompilable(f"{n.op.name} has quantized operands")
            text = scalar_source(n.op, n.function, [self.text[id(a)] for a in n.arguments], plain)
            if isinstance(text, Declined):
                raise NotCompilable(text.reason)
            return text
        return self._choose(n, at)

    def _choose(self, n: Choose, at: int) -> str:
        """`then` is evaluated only where its conditions hold, so it becomes a branch."""
        name = self.phase.fresh()
        tests = []
        for c in n.conditions:
            e = self.phase.expr(c.expression)
            tests.append(f"{e} == {c.lower}" if c.lower == c.upper else f"{c.lower} <= {e} <= {c.upper}")
        outer_lines, outer_text = self.lines, dict(self.text)
        branches = []
        for node in (n.then, n.otherwise):
            self.lines = [[] for _ in outer_lines]
            # Everything inside the branch stays inside the branch.
            lines: list[str] = []
            self.lines = [lines for _ in outer_lines]
            text = self.number(node, at)
            branches.append([*lines, f"{name} = {text}"])
            self.text = dict(outer_text)
        self.lines = outer_lines
        block = Writer()
        block.line(f"if {' and '.join(tests)}:")
        block.depth = 1
        block.extend(branches[0])
        block.depth = 0
        block.line("else:")
        block.depth = 1
        block.extend(branches[1])
        self.lines[at] += block.lines
        return name

    def _number_type(self, element: ElementType) -> str:
        found = number_type(element)
        if isinstance(found, Declined):
            raise NotCompilable(found.reason)
        return found


def _postorder(root: Node, known: Mapping[int, str]) -> tuple[list[Node], dict[int, list[Node]]]:
    """Nodes below a root, operands first, without those already computed and without the inside of branches; and who uses each."""
    order: list[Node] = []
    users: dict[int, list[Node]] = {}
    done: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        n, ready = stack.pop()
        if ready:
            order.append(n)
            continue
        if id(n) in done or id(n) in known:
            continue
        done.add(id(n))
        stack.append((n, True))
        if not isinstance(n, Choose):
            for c in children(n):
                users.setdefault(id(c), []).append(n)
                stack.append((c, False))
    return order, users
