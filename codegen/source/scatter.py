"""Scatters as loops: for each update in order, target[place] = f(target[place], update), where the place is inside."""

from __future__ import annotations

from dataclasses import replace

from codegen.source.fold import body_lines
from codegen.source.scalars import place_source
from codegen.source.values import ValueWriter
from hlo.errors import Declined
from hlo.module import Block, Value
from indexing.expr import Expr, maximum, minimum
from tiling.elements.folds import combined_function
from tiling.loops.element_ir import element_name
from tiling.loops.ir import Scatter, Start

__all__ = ["bounded_by_tests", "scatter_body"]


def bounded_by_tests(s: Scatter) -> Scatter:
    """The scatter whose windows' loops run over what lands inside, where it asked that of each element.

        for u in [0, n]: if a <= p + u <= b: …   ->   for u in [max(0, a - p), min(n, b - p)]: …
    """
    if s.ahead:  # rows are asked for where loops begin, before their places are known
        return s
    loops, tests = list(s.loops), list[Start]()
    for t in s.tests:
        assert isinstance(t.node, Expr)
        found = [k for k, x in enumerate(loops) if k >= s.outer and x.variable in t.node.variables]
        rest = t.node - loops[found[0]].variable if len(found) == 1 else t.node
        if len(found) != 1 or loops[found[0]].variable in rest.variables:
            tests.append(t)
            continue
        x = loops[found[0]]
        loops[found[0]] = replace(x, lower=maximum(x.lower, t.lower - rest), upper=minimum(x.upper, t.upper - rest))
    return replace(s, loops=tuple(loops), tests=tuple(tests))


def scatter_body(emitter: ValueWriter, s: Scatter) -> list[str]:
    """The innermost loop's lines; the places, and the tests that skip an update, are put into the loop that chooses them."""
    phase, level = emitter.phase, s.outer
    emitter.use([*s.nodes, *(x.node for x in s.starts if not isinstance(x.node, Expr))])
    tests = []
    for start in s.starts:
        if start.variable is None or isinstance(start.node, Expr):
            tests.append(_test(emitter, start))
            continue
        name = phase.fresh("p")
        value = place_source(emitter.number(start.node, level), element_name(start.node))
        if start.clamps:
            value = f"min(max({value}, {phase.expr(start.lower)}), {phase.expr(start.upper)})"
        emitter.lines[level].append(f"{name} = {value}")
        phase.variables[start.variable] = name
        if not start.clamps:
            tests.append(f"{phase.expr(start.lower)} <= {name} <= {phase.expr(start.upper)}")
    if tests:
        emitter.lines[level] += [f"if not ({' and '.join(tests)}):", "    continue"]
    body: list[str] = emitter.lines[emitter.depth] if level == emitter.depth else []
    emitter.lines[emitter.depth] = body
    inner = [_test(emitter, t) for t in s.tests]
    if inner:
        body += [f"if not ({' and '.join(inner)}):", "    continue"]
    at = [f"{t.name}[{phase.address(t, s.index)}]" for t in s.targets]
    values = [emitter.number(n, emitter.depth) for n in s.nodes]
    if s.op.regions:
        block = s.op.regions[0]
        names: dict[Value, str] = {}
        for v, place, new in zip(block.arguments, [*at, *values], [True] * len(at) + [False] * len(values), strict=True):
            names[v] = place
            if new and any(v in op.operands for op in block.ops):
                names[v] = phase.fresh("x")
                body.append(f"{names[v]} = {place}")
        extreme = _extreme_by_selects(block) if level == emitter.depth else None
        if extreme is not None:
            values = [f"{extreme}({names[block.arguments[0]]}, {names[block.arguments[1]]})"]
        else:
            lines = body_lines(s.op, block, names, phase.fresh, excess=phase.excess)
            assert not isinstance(lines, Declined), "supports() has asked before"
            body += lines
            values = [names[v] for v in block.results]
    body += [f"{place} = {value}" for place, value in zip(at, values, strict=True)]
    return body


def _extreme_by_selects(body: Block) -> str | None:
    """The function for a body that takes the larger or the smaller float, one at a time; None for any other one.

    Which of the updates is taken nobody foresees: of five for each of 20,000 places a branch took twice as long.
    """
    function = combined_function(body)
    is_float = all(str(v.tensor.element) in ("f32", "f64") for v in body.arguments)
    return f"{function}_by_selects" if is_float and function in ("maximum", "minimum") else None


def _test(emitter: ValueWriter, t: Start) -> str:
    assert isinstance(t.node, Expr)
    phase = emitter.phase
    return f"{phase.expr(t.lower)} <= {phase.expr(t.node)} <= {phase.expr(t.upper)}"
