"""Schedules as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import wrap

from hlo.access import Condition
from hlo.module import Value
from hlo.registry import SumOfProducts
from indexing.expr import Const, Expr, Var, as_expr, substitute, within
from tiling.loops.accesses import buffers_by_value
from tiling.loops.affine import linear
from tiling.loops.element_ir import Apply, IndexNode, Load, Node, Runtime, Scalar, Test, all_nodes, runtimes_of
from tiling.loops.ir import (
    ZERO,
    Contract,
    FoldStep,
    Limit,
    Loop,
    MatrixStep,
    Measure,
    Nest,
    Ordering,
    Scatter,
    Schedule,
    Segment,
    Selection,
    Sequential,
    Step,
    Transform,
    Turn,
)

__all__ = ["buffer_names", "show_node", "show_phases", "show_schedule", "wrapped"]

WIDTH = 110
Names = Mapping[Var, Expr | int]
_AS_IT_IS: Names = {}


def show_node(node: Node, depth: int = 4, where: Mapping[Value, str] | None = None, names: Names = _AS_IT_IS) -> str:
    """A node as an expression, cut below `depth`. `where` names the buffer of a value, `names` its variables in short."""

    def index(e: Expr) -> str:
        return str(substitute(e, names))

    def tests(conditions: Sequence[Condition]) -> str:
        return " and ".join(within(index(as_expr(c.expression)), c.lower, c.upper) for c in conditions)

    if isinstance(node, Load):
        known = node.buffer.name if node.buffer is not None else (where or {}).get(node.value)
        name = known or f"%{node.value.name or '?'}"
        return f"{name}[{', '.join(map(index, node.index))}]"
    if isinstance(node, Scalar):
        return str(node.value)
    if isinstance(node, IndexNode):
        return f"{node.element}({index(node.expression)})"
    if depth == 0:
        return "…"
    if isinstance(node, Apply):
        return f"{node.function}({', '.join(show_node(a, depth - 1, where, names) for a in node.arguments)})"
    if isinstance(node, Test):
        return f"({tests(node.conditions)})"
    then, otherwise = (show_node(n, depth - 1, where, names) for n in (node.then, node.otherwise))
    return f"({then} if {tests(node.conditions)} else {otherwise})"


def show_schedule(schedule: Schedule) -> str:
    """The schedule as indented text: buffers, then each phase with its tasks, loops and what they compute.

    Loop variables are written without the name of the stage that they belong to: `i0` for `i0_reduce_1`.
    """
    return "\n".join([*map(str, schedule.buffers), show_phases(schedule)])


def show_phases(schedule: Schedule) -> str:
    """The same without the buffers."""
    where = buffer_names(schedule)
    lines = []
    for k, phase in enumerate(schedule.phases):
        names = _short([v for v, _ in phase.tiles])
        grid = " x ".join(f"{substitute(v, names)} in [0, {n - 1}]" for v, n in phase.tiles)
        way = f", {substitute(phase.descending[0], names)} descending" if phase.descending else ""
        way += f", {phase.group} one after the other in each task" if phase.group > 1 else ""
        lines.append(f"phase {k}: parallel {grid}{way}" if grid else f"phase {k}: one task")
        lines += [f"  {flag}" for flag in phase.flags]
        for step in (*phase.before, *phase.steps):
            lines += ["  " + x for x in _step(step, where, [v for v, _ in phase.tiles])]
    return "\n".join(lines)


def buffer_names(schedule: Schedule) -> dict[Value, str]:
    """The name of the buffer that each value is kept in."""
    return {v: b.name for v, b in buffers_by_value(schedule).items()}


def _short(variables: Sequence[Var]) -> dict[Var, Expr | int]:
    """Names without their stage's, where they stay different."""
    taken = Counter(v.name.partition("_")[0] for v in variables)
    return {v: Var(short) for v in variables if taken[short := v.name.partition("_")[0]] == 1 and short != v.name}


def _step(step: Step, where: Mapping[Value, str], tiles: Sequence[Var]) -> list[str]:
    if isinstance(step, Contract):
        return _contract(step, where, tiles)
    if isinstance(step, Nest):
        return _nest(step, where, tiles)
    if isinstance(step, Turn):
        names = _short([*tiles, step.rows.variable, step.columns.variable])
        row, column = (substitute(x.variable, names) for x in (step.rows, step.columns))
        lines = _loops((step.columns, step.rows), names)
        how = "turned in registers" + ("" if step.together == 1 else f" by {step.together} side by side")
        source, target = step.source.buffer.name, step.target.buffer.name
        return [*lines, f"    {target}[{column}, {row}] = {source}[{row}, {column}], {how}"]
    if isinstance(step, Ordering):
        sources, targets = (
            ", ".join(b.name for b in bs)
            for bs in (step.sources, (*step.targets, *([step.places] if step.places else [])))
        )
        kept = f", the first {step.kept} kept" if step.kept < step.count else ""
        return [
            f"{targets} = {sources} in the order of {step.op.name}: rows of {step.count}, {step.step} apart{kept}"
        ]
    if isinstance(step, Transform):
        source, target = step.source.buffer.name, step.target.buffer.name
        return [f"{target} = Fourier transforms of {source}, {step.form}: lines of {step.size}, {step.lanes.extent} side by side"]
    if isinstance(step, MatrixStep):
        sources, targets = (", ".join(m.block.buffer.name for m in ms) for ms in (step.sources, step.targets))
        sizes = " and ".join(f"{m.rows}x{m.columns}" for m in step.sources)
        return [f"{targets} = {step.kind} of {sources}, {sizes}{''.join(f', {o}' for o in sorted(step.options))}"]
    if isinstance(step, Sequential):
        block = step.loop.variable
        around = [*tiles, block, *(x.variable for x in step.limits)]
        inner = [line for x in step.limits for line in _limit(x, where, _short(around))]
        limits = [x.variable for x in step.limits]
        for s in step.steps:
            inner += _contract(s, where, around, limits) if isinstance(s, Contract) else _step(s, where, around)
        head = _loops((step.loop,), _short([*tiles, block]))[0].removesuffix(" reduction")
        return [*wrapped("", f"{head}, one after the other:", step.reason), *("  " + x for x in inner)]
    if isinstance(step, Measure):
        pieces = f"pieces of {step.size} elements of {step.source.name}"
        return [f"{step.target.name}[{substitute(step.piece, _short(tiles))}] = greatest magnitude in {pieces}"]
    if isinstance(step, Selection):
        names = _short([*tiles, *(x.variable for x in (*step.loops, *step.window))])
        place = ", ".join(str(substitute(e, names)) for e in step.index)
        lines = [*_loops(step.loops, names), *("  " * len(step.loops) + x for x in _loops(step.window, names))]
        pad = "  " * (len(step.loops) + len(step.window))
        return [*lines, f"{pad}the place that the window prefers among {step.operand.name}[{place}] takes the source's element"]
    return _scatter(step, where, tiles)


def _limit(x: Limit, where: Mapping[Value, str], names: Names) -> list[str]:
    variable, lower, upper, origin, whole = (substitute(e, names) for e in (x.variable, x.lower, x.upper, x.origin, x.whole))
    less = "" if origin is ZERO else f" less {origin}"
    how = f"{less}, kept in [{lower}, {upper}]" + (f"; {whole} while {x.flag} is 0" if x.flag else "")
    return wrapped("", f"{variable} =", show_node(x.node, 3, where, names) + how)


def _scatter(s: Scatter, where: Mapping[Value, str], tiles: Sequence[Var]) -> list[str]:
    names = _short(
        [*tiles, *(x.variable for x in s.loops), *(x.variable for x in s.starts if x.variable is not None)]
    )
    lines = _loops(s.loops[: s.outer], names)
    pad = "  " * s.outer
    for start in s.starts:
        what = (
            str(substitute(start.node, names))
            if isinstance(start.node, Expr)
            else show_node(start.node, 3, where, names)
        )
        name = f"{substitute(start.variable, names)} = {what}" if start.variable is not None else what
        how = "kept in" if start.clamps else "left out unless in"
        lines.append(f"{pad}{name}, {how} [{substitute(start.lower, names)}, {substitute(start.upper, names)}]")
    lines += [pad + x for x in _loops(s.loops[s.outer :], names)]
    lines += ["  " * len(s.loops) + x for x in _runtimes([s.node], where, names)]
    place = ", ".join(str(substitute(e, names)) for e in s.index)
    lines += wrapped(
        "  " * len(s.loops),
        f"{s.target.name}[{place}] {s.op.definition.mnemonic}=",
        show_node(s.node, 3, where, names),
    )
    return lines


def _loops(loops: Sequence[Loop], names: Names) -> list[str]:
    return [
        "  " * k
        + str(
            replace(
                x,
                variable=_var(x.variable, names),
                lower=substitute(x.lower, names),
                upper=substitute(x.upper, names),
            )
        )
        for k, x in enumerate(loops)
    ]


def _var(v: Var, names: Names) -> Var:
    new = names.get(v, v)
    return new if isinstance(new, Var) else v


def _nest(nest: Nest, where: Mapping[Value, str], tiles: Sequence[Var]) -> list[str]:
    names = _short([*tiles, *(x.variable for x in nest.loops)])
    lines = _loops(nest.loops[:-1] if nest.segments else nest.loops, names)
    pad = "  " * (len(nest.loops) - bool(nest.segments))
    if nest.skip is not None:
        renamed = tuple(replace(c, expression=substitute(as_expr(c.expression), names)) for c in nest.skip.conditions)
        lines.append(f"{pad}{replace(nest.skip, conditions=renamed, variable=_var(nest.skip.variable, names))}")
    lines += [pad + x for x in _runtimes(nest.each, where, names)]
    lines += [f"{pad}{show_node(n, 3, where, names)}: its rows are prefetched before their turn" for n in nest.ahead]
    for part in nest.parts:
        inside = pad
        if nest.segments:
            loop = replace(nest.loops[-1], lower=part.lower, upper=part.upper)
            lines += [pad + x + _while(nest, part) for x in _loops((loop,), names)]
            inside += "  "
        lines += _body(part, inside, where, names)
    return lines


def _while(nest: Nest, part: Segment) -> str:
    """Of a part that a mask leaves out, when it runs: it computes while the flag is 0, or stores zeros while it is 1."""
    if not part.is_left_out or nest.skip is None:
        return ""
    return f" while the flag is {int(nest.skip.flag not in part.lower.variables)}"


def _body(part: Segment, pad: str, where: Mapping[Value, str], names: Names) -> list[str]:
    lines = []
    for s in part.stores:
        place = ", ".join(str(substitute(e, names)) for e in s.index)
        lines += wrapped(pad, f"{s.buffer.name}[{place}] =", show_node(s.node, 4, where, names))
    for f in part.folds:
        place = ", ".join(str(substitute(e, names)) for e in f.index)
        target = ", ".join(f"{b.name}[{place}]" for b in f.buffers)
        values = [", ".join(show_node(n, 4, where, names) for n in f.factors(k)) for k in range(f.products)]
        how = ", from two bounds, and the row once more where they do not tell" if f.looks_twice else ""
        lines += wrapped(pad, f"{target} {_fold(f)}=", "; ".join(values) + how)
    return lines


def _runtimes(nodes: Sequence[Node], where: Mapping[Value, str], names: Names) -> list[str]:
    """A line for each value that an index is made of."""
    found: dict[Var, Runtime] = {}
    for n in all_nodes(nodes):
        found.update({r.variable: r for r in runtimes_of(n)})
    return [
        f"{r.variable} = {show_node(r.node, 3, where, names)}, kept in [{r.lower}, {r.upper}]"
        for r in sorted(found.values(), key=lambda r: r.variable.name)
    ]


def _fold(f: FoldStep) -> str:
    """What a fold combines with: the body's function where it is one."""
    if isinstance(f.op.definition.semantics, SumOfProducts):
        return "+"
    body = list(f.op.regions[0].ops[:-1]) if f.op.regions else []
    return body[0].definition.mnemonic if len(body) == 1 else "fold"


def wrapped(pad: str, target: str, value: str) -> list[str]:
    """`target value`, broken between operands where it is long; further lines are set in."""
    kept = f"{target} {value}".replace(" * ", "\xa0*\xa0").replace(" + ", "\xa0+\xa0")
    width = max(40, WIDTH - len(pad))
    lines = wrap(kept, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [pad + x.replace("\xa0", " ") for x in lines]


def _contract(c: Contract, where: Mapping[Value, str], tiles: Sequence[Var], limits: Sequence[Var] = ()) -> list[str]:
    names = _short([*tiles, *(x.variable for x in c.loops)])
    lines = _loops(c.loops, names)
    pad = "  " * len(c.loops)
    if c.column_block:
        lines.append(f"{pad}for blocks of {c.column_block} columns")
        pad += "  "
    if c.k > c.k_block:
        lines.append(f"{pad}for {_var(c.k_start, _short([c.k_start]))} in blocks of {c.k_block} below {c.k}")
        pad += "  "
    for nest in c.pack:
        lines += [pad + x for x in _nest(nest, where, [*tiles, c.k_start])]
    bounds = []
    parts = linear(c.out.base, limits) if not set(limits).isdisjoint(c.rows_upper.variables) else None
    if parts is not None:
        first = sum((v * (k // c.out.row_stride) for v, k in zip(limits, parts[1], strict=True)), as_expr(0))
        bounds.append(f" rows [{substitute(first, names)}, {substitute(first + c.rows_upper, names)}]")
    if c.columns_lower is not ZERO or c.columns_upper is not Const(c.n - 1):
        bounds.append(f" columns [{substitute(c.columns_lower, names)}, {substitute(c.columns_upper, names)}]")
    if c.depth_upper is not None:
        bounds.append(f" k in [{substitute(c.depth_lower, names)}, {substitute(c.depth_upper, names)}]")
    lines.append(
        f"{pad}{c.out.buffer.name}[{c.m} x {c.n}] += {c.left.buffer.name}[{c.m} x {c.depth}]"
        f" * {c.right.buffer.name}[{c.depth} x {c.n}]"
        f" in register blocks of {c.rows} x {c.columns}{','.join(bounds)}"
    )
    return lines
