"""The verifier: a module against the definitions of its ops.

For every op: operands, attributes, regions and results are there in the numbers and forms that the definition says; its constraints
hold; and the stated result types are those that can be inferred (an unknown dimension agrees with any). For the module: calls agree with
the functions they call, functions return what they say, and no function calls itself, directly or through others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.errors import VerificationError
from hlo.module import Block, Function, Module, Op, Source, walk
from hlo.registry import OpDefinition
from hlo.types import TensorType, TupleType, Type

__all__ = ["check_op", "compatible", "verify"]


def verify(module: Module) -> None:
    """Raises VerificationError, and nothing else, where the program breaks a rule of the specification.

    The error names the op, its place, the constraint's label, what was expected and what was found.
    """
    for m in modules(module):
        for f in m.functions.values():
            try:
                _function(m, f)
            except VerificationError as e:
                raise _with_line(e, module.source) from None
        try:
            _no_recursion(m)
        except VerificationError as e:
            raise _with_line(e, module.source) from None


def modules(module: Module) -> Iterator[Module]:
    """A module and all those inside it, outer first."""
    stack = [module]
    while stack:
        m = stack.pop()
        yield m
        stack.extend(reversed(m.nested))


def _with_line(e: VerificationError, source: Source | None) -> VerificationError:
    if source is not None and e.source_line is None and e.location is not None and e.location.file == source.name:
        e.source_line = source.line(e.location.line)
    return e


def compatible(stated: Type, inferred: Type) -> bool:
    """True when both types can describe the same value: unknown dimensions agree with any size within their bounds."""
    if isinstance(stated, TensorType) and isinstance(inferred, TensorType):
        if stated.element != inferred.element or len(stated.shape) != len(inferred.shape):
            return False
        for i, (a, b) in enumerate(zip(stated.shape, inferred.shape, strict=True)):
            if a is not None and b is not None and a != b:
                return False
            if a is None and b is not None and stated.bounds and i < len(stated.bounds):
                bound = stated.bounds[i]
                if bound is not None and b > bound:
                    return False
        return True
    if isinstance(stated, TupleType) and isinstance(inferred, TupleType) and len(stated.elements) == len(inferred.elements):
        pairs = list(zip(stated.elements, inferred.elements, strict=True))
        return all(compatible(a, b) for a, b in pairs)
    return stated == inferred


# ---------------------------------------------------------------- one op


def check_op(op: Op) -> None:
    """Raises VerificationError unless the op keeps its definition's rules. Regions' ops are not looked at."""
    d = op.definition
    try:
        check_structure(op, d)
        for constraint in d.constraints:
            found = constraint.check(op)
            if found is not None:
                raise _error(op, f"{constraint.text}: {found}", constraint.label)
        if callable(d.infer):
            _check_inferred(op, d.infer(op))
    except VerificationError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as e:
        # A constraint that meets a shape of operand that it was not written for: the op is not well formed.
        raise _error(op, f"malformed ({e})") from e


def _error(op: Op, message: str, label: str | None = None) -> VerificationError:
    return VerificationError(message, op.location, op=op.name, constraint=label)


def _check_inferred(op: Op, inferred: Sequence[Type]) -> None:
    if len(inferred) != len(op.results):
        raise _error(op, f"expected {len(inferred)} results, found {len(op.results)}")
    for i, (r, t) in enumerate(zip(op.results, inferred, strict=True)):
        if not compatible(r.type, t):
            which = f"result {i} " if len(inferred) > 1 else "the result "
            raise _error(op, f"{which}does not have the inferred type: expected {t}, found {r.type}")


def check_structure(op: Op, d: OpDefinition) -> None:
    """Numbers of operands, results and regions; required attributes."""
    least = sum(1 for o in d.operands if not (o.variadic or o.optional))
    flexible = [o for o in d.operands if o.variadic or o.optional]
    n = len(op.operands)
    if n < least or (not flexible and n != least):
        raise _error(op, f"expected {least if not flexible else f'{least} or more'} operands, found {n}")
    if len(flexible) == 1 and flexible[0].optional and n > least + 1:
        raise _error(op, f"expected at most {least + 1} operands, found {n}")
    if d.regions is not None and len(op.regions) != len(d.regions):
        raise _error(op, f"expected {len(d.regions)} regions, found {len(op.regions)}")
    for a in d.attributes:
        if a.is_required and a.name not in op.attributes:
            raise _error(op, f"needs the attribute {a.name!r}")
    for o in d.operands:
        if o.accepts.startswith(("tensor", "0-dim")):
            for v in op.segment(o.name):
                if not isinstance(v.type, TensorType):
                    raise _error(op, f"operand {o.name!r} must be a {o.accepts}, found {v.type}")
                if o.accepts.startswith("0-dim") and v.type.rank:
                    raise _error(op, f"operand {o.name!r} must be a {o.accepts}, found {v.type}")
    for i, region in enumerate(op.regions):
        check_block(op, d.regions[i] if i < len(d.regions) else f"region {i}", region)


def check_block(op: Op, name: str, region: Block) -> None:
    """A region ends in a return, and nowhere else."""
    if not region.ops or not region.ops[-1].definition.is_terminator:
        raise _error(op, f"region {name!r} must end in a return")


# ---------------------------------------------------------------- functions and calls


def _function(m: Module, f: Function) -> None:
    if f.is_declaration:
        return
    place = f.location
    if not f.body.ops or not f.body.ops[-1].definition.is_terminator:
        raise VerificationError(f"the body of @{f.name} must end in a return", place, op="func.func")
    returned = [v.type for v in f.body.results]
    if len(returned) != len(f.result_types) or any(
        not _returns(a, b) for a, b in zip(returned, f.result_types, strict=True)
    ):
        raise VerificationError(
            f"@{f.name} returns ({', '.join(map(str, returned))}), but says ({', '.join(map(str, f.result_types))})",
            f.body.terminator.location,
            op="func.return",
        )
    for block in _blocks(f.body):
        last = len(block.ops) - 1
        for i, op in enumerate(block.ops):
            if op.definition.is_terminator and i != last:
                raise _error(op, "must be the last op of its block")
            check_op(op)
            if op.name == "func.call":
                _call(m, op)


def _returns(a: Type, b: Type) -> bool:
    return a == b


def _blocks(block: Block) -> Iterator[Block]:
    """The block and all inside it, without recursion."""
    stack = [block]
    while stack:
        b = stack.pop()
        yield b
        for op in b.ops:
            stack.extend(op.regions)


def _callee(m: Module, op: Op) -> Function:
    name = op.attr("callee")
    f = m.functions.get(name)
    if f is None:
        raise _error(op, f"no function @{name}; there is {', '.join('@' + n for n in list(m.functions)[:20]) or 'none'}")
    return f


def _call(m: Module, op: Op) -> None:
    f = _callee(m, op)
    expected = f.type
    found = (tuple(v.type for v in op.operands), tuple(r.type for r in op.results))
    if found != (expected.inputs, expected.results):
        raise _error(op, f"@{f.name} has type {expected}, called with ({', '.join(map(str, found[0]))}) -> "
                     f"({', '.join(map(str, found[1]))})")  # fmt: skip


def _no_recursion(m: Module) -> None:
    """Raises for a cycle of calls, naming it. Depth first, with a stack of its own."""
    calls = {n: [op for op in walk(f.body) if op.name == "func.call"] for n, f in m.functions.items()}
    done: set[str] = set()
    for start in calls:
        if start in done:
            continue
        path: list[str] = [start]
        on_path = {start}
        stack = [iter(calls[start])]
        while stack:
            op = next(stack[-1], None)
            if op is None:
                stack.pop()
                finished = path.pop()
                on_path.discard(finished)
                done.add(finished)
                continue
            name = op.attr("callee")
            if name in on_path:
                cycle = " -> ".join("@" + n for n in (*path[path.index(name) :], name)[:20])
                raise _error(op, f"calls must not be recursive: {cycle}")
            if name not in done and name in calls:
                path.append(name)
                on_path.add(name)
                stack.append(iter(calls[name]))
