"""Selections as loops: the element that a window chooses, and what is folded in at its place."""

from __future__ import annotations

from codegen.source.fold import body_lines
from codegen.source.scalars import constant_source
from codegen.source.values import ValueWriter
from hlo.errors import Declined
from hlo.module import Value
from tiling.loops.ir import Selection

__all__ = ["selection_body"]


def selection_body(emitter: ValueWriter, s: Selection) -> list[str]:
    """The innermost lines of the loops over the source: a window's loops, then the fold."""
    phase = emitter.phase
    phase.used[s.operand] = None
    phase.used[s.target] = None
    select, scatter = s.op.regions
    best, place, candidate = phase.fresh("best"), phase.fresh("place"), phase.fresh("x")
    body: list[str] = emitter.lines[emitter.depth] if not emitter.depth else []
    emitter.lines[emitter.depth] = body
    body += [f"{best} = {constant_source(0, s.operand.element)}", f"{place} = int64(-1)"]
    depth = 0
    lines: list[str] = []

    def line(text: str) -> None:
        lines.append("    " * depth + text)

    for loop in s.window:
        line(f"for {phase.name(loop.variable)} in range({loop.extent}):")
        depth += 1
    if s.tests:
        tests = " and ".join(f"{c.lower} <= {phase.expr(c.expression)} <= {c.upper}" for c in s.tests)
        line(f"if {tests}:")
        depth += 1
    at = phase.address(s.operand, s.index)
    line(f"{candidate} = {s.operand.name}[{at}]")
    line(f"if {place} < 0:")
    line(f"    {best} = {candidate}")
    line(f"    {place} = {at}")
    line("else:")
    depth += 1
    names: dict[Value, str] = dict(zip(select.arguments, (best, candidate), strict=True))
    found = body_lines(s.op, select, names, phase.fresh, excess=phase.excess)
    assert not isinstance(found, Declined), "supports() has asked before"
    for text in found:
        line(text)
    line(f"if not {names[select.results[0]]}:")
    line(f"    {best} = {candidate}")
    line(f"    {place} = {at}")
    body += lines
    emitter.use([s.node])
    value = emitter.number(s.node, emitter.depth)
    old = phase.fresh("old")
    names = dict(zip(scatter.arguments, (old, value), strict=True))
    found = body_lines(s.op, scatter, names, phase.fresh, excess=phase.excess)
    assert not isinstance(found, Declined), "supports() has asked before"
    body += [f"if {place} >= 0:", f"    {old} = {s.target.name}[{place}]", *("    " + x for x in found)]
    body.append(f"    {s.target.name}[{place}] = {names[scatter.results[0]]}")
    return body
