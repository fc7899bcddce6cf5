"""Scatters as loops: for each update in order, target[place] = f(target[place], update), where the place is inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codegen.scalars import scalar_source
from hlo.errors import Declined
from hlo.types import ElementType
from indexing.expr import Expr
from tiling.schedule import Scatter
from tiling.windows import combined_function

if TYPE_CHECKING:
    from codegen.emit import NestEmitter

__all__ = ["scatter_body"]


def scatter_body(emitter: NestEmitter, s: Scatter) -> list[str]:
    """The innermost loop's lines; the places, and the tests that skip an update, are put into the loop that chooses them."""
    phase, level = emitter.phase, s.outer
    emitter.use([s.node, *(x.node for x in s.starts if not isinstance(x.node, Expr))])
    tests = []
    for start in s.starts:
        if start.variable is None or isinstance(start.node, Expr):
            assert isinstance(start.node, Expr)
            name = phase.expr(start.node)
        else:
            name = phase.fresh("p")
            value = f"to_int64({emitter.number(start.node, level)})"
            if start.clamps:
                value = f"min(max({value}, {phase.expr(start.lower)}), {phase.expr(start.upper)})"
            emitter.lines[level].append(f"{name} = {value}")
            phase.variables[start.variable] = name
        if not start.clamps:
            tests.append(f"{phase.expr(start.lower)} <= {name} <= {phase.expr(start.upper)}")
    if tests:
        emitter.lines[level] += [f"if not ({' and '.join(tests)}):", "    continue"]
    at = f"{s.target.name}[{phase.address(s.target, s.index)}]"
    body: list[str] = emitter.lines[emitter.depth] if level == emitter.depth else []
    emitter.lines[emitter.depth] = body
    value = emitter.number(s.node, emitter.depth)
    function = combined_function(s.op.regions[0]) if s.op.regions else None
    if function is not None:
        element = s.target.element
        assert isinstance(element, ElementType)
        value_source = scalar_source(s.op.regions[0].ops[0], function, [at, value], [element, element])
        assert not isinstance(value_source, Declined), "supports() has asked before"
        value = value_source
    body.append(f"{at} = {value}")
    return body
