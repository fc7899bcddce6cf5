"""A program as a module again, which can be printed, verified and evaluated."""

from __future__ import annotations

from hlo.module import Block, Function, Module, Op
from hlo.registry import definition
from tiling.program.flatten import Program
from tiling.program.in_place_updates import plain_updates

__all__ = ["as_module"]


def as_module(program: Program, base: Module) -> Module:
    """A module whose main function is the program; `base` has the functions that its regions call. Updates are plain ops."""
    plain = plain_updates(program)
    body = Block([])
    body.arguments = list(plain.arguments)
    body.ops = [*plain.ops, Op(definition("func.return"), plain.results)]
    main = Function("main", body, result_types=tuple(v.type for v in plain.results))
    others = {k: f for k, f in base.functions.items() if f is not base.functions.get(program.name)}
    return Module({**others, "main": main}, base.name)
