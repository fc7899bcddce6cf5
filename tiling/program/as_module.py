"""A program as a module again, which can be printed, verified and evaluated."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.calls import callees
from hlo.clone import clone_block
from hlo.module import Block, Function, Module, Op, Value, walk
from hlo.registry import definition
from tiling.program.flatten import Program
from tiling.program.random.threefry import THREEFRY, in_ops

__all__ = ["as_module"]

_OWN_FORMS = {"in_place.": None, "in_lines.": 1}
"""Prefixes of ops that only routines know, otherwise ops of StableHLO: how many of the operands those have."""


def as_module(program: Program, base: Module, marked: bool = False) -> Module:
    """A module whose main function is the program, with the functions of `base` that its regions call.

    Ops that only routines know are plain ones in it, unless it keeps them `marked`: then it can be printed, but not evaluated.
    """
    done: dict[Value, Value] = {}
    ops = [x for op in program.ops for x in ([op] if marked else _plain(op, done))]
    results = [done.get(v, v) for v in program.results]
    body = Block([])
    body.arguments = list(program.arguments)
    body.ops = [*ops, Op(definition("func.return"), results)]
    main = Function("main", body, result_types=tuple(v.type for v in results))
    called = _called(body, base)
    others = {k: f for k, f in base.functions.items() if k in called and f is not base.functions.get(program.name)}
    return Module({**others, "main": main}, base.name)


def _called(body: Block, base: Module) -> set[str]:
    """The names of the functions that a block calls, themselves or in those that it calls."""
    found: set[str] = set()
    todo = [body]
    while todo:
        for name in (name for op in walk(todo.pop()) for name in callees(op)):
            if name in base.functions and name not in found:
                found.add(name)
                todo.append(base.functions[name].body)
    return found


def _plain(op: Op, done: dict[Value, Value]) -> Sequence[Op]:
    if op.definition is THREEFRY:
        rounds = in_ops(op, [done.get(v, v) for v in op.operands])
        done[op.results[0]] = rounds[-1].results[0]
        return rounds
    prefix = next((p for p in _OWN_FORMS if op.name.startswith(p)), None)
    if prefix is None and not done:
        return [op]
    operands = [done.get(v, v) for v in op.operands]
    made = op.definition if prefix is None else definition(f"stablehlo.{op.name.removeprefix(prefix)}")
    new = Op(made, operands if prefix is None else operands[: _OWN_FORMS[prefix]], op.attributes,
             [clone_block(b, done) for b in op.regions], [r.type for r in op.results], op.location, op.extra,
             [r.name for r in op.results])  # fmt: skip
    done.update(zip(op.results, new.results, strict=True))
    return [new]
