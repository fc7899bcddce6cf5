"""The verifier: a module against the definitions of its ops.

For every op: operands, attributes, regions and results are there in the numbers and forms that the definition says; its
constraints
hold; and the stated result types are those that can be inferred (an unknown dimension agrees with any). For the module:
calls agree with
the functions they call, functions return what they say, and no function calls itself, directly or through others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.calls import callees
from hlo.errors import VerificationError
from hlo.module import Block, Function, Module, Op, Source, as_module, walk
from hlo.ops.rules import baseline
from hlo.registry import OpDefinition, Operand
from hlo.types import OpaqueType, QuantizedType, TensorType, TupleType, Type
from hlo.typesets import TYPE_SETS, TypeSet, quantized_problem

__all__ = ["check_op", "compatible", "verify"]


def verify(module: Module) -> None:
    """Raises VerificationError, and nothing else, where the program breaks a rule of the specification.

    The error names the op, its place, the constraint's label, what was expected and what was found.
    """
    for m in modules(as_module(module)):
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
        if baseline(stated.element) != baseline(inferred.element) or len(stated.shape) != len(inferred.shape):
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
    if not isinstance(inferred, Sequence):
        raise _error(op, f"its definition's infer: expected a sequence of types, one for each result, found {inferred}")
    if len(inferred) != len(op.results):
        raise _error(op, f"expected {len(inferred)} results, found {len(op.results)}")
    for i, (r, t) in enumerate(zip(op.results, inferred, strict=True)):
        if not compatible(r.type, t):
            which = f"result {i} " if len(inferred) > 1 else "the result "
            raise _error(op, f"{which}does not have the inferred type: expected {t}, found {r.type}")


def _count_text(least: int, flexible: bool) -> str:
    return f"{least} or more" if flexible else str(least)


def check_structure(op: Op, d: OpDefinition) -> None:
    """Numbers of operands, results and regions; what operands and results may be; required attributes."""
    least = sum(1 for o in d.operands if not (o.variadic or o.optional))
    flexible = [o for o in d.operands if o.variadic or o.optional]
    n = len(op.operands)
    if n < least or (not flexible and n != least):
        raise _error(op, f"expected {_count_text(least, bool(flexible))} operands, found {n}")
    if len(flexible) == 1 and flexible[0].optional and n > least + 1:
        raise _error(op, f"expected at most {least + 1} operands, found {n}")
    if len(flexible) > 1 and not d.sized_segments and (n - least) % len(flexible):
        raise _error(op, f"expected as many values for each of {', '.join(o.name for o in flexible)}, found {n} operands")
    if d.sized_segments:
        sizes = op.attributes.get("operandSegmentSizes", ())
        if len(sizes) != len(d.operands) or sum(sizes) != n or any(k < 0 for k in sizes):
            raise _error(op, f"expected operandSegmentSizes of {len(d.operands)} numbers that add up to {n}, found {list(sizes)}")
    if not d.has_any_regions and len(op.regions) != len(d.regions):
        raise _error(op, f"expected {len(d.regions)} regions, found {len(op.regions)}")
    for a in d.attributes:
        if a.is_required and a.name not in op.attributes:
            raise _error(op, f"needs the attribute {a.name!r}")
    for o in d.operands:
        for v in op.segment(o.name):
            if not _type_set(o).has(v.type):
                raise _error(op, f"operand {o.name!r} must be a {o.accepts}, found {v.type}{_why(v.type)}")
    _check_results(op, d)
    for i, region in enumerate(op.regions):
        check_block(op, d.regions[i] if i < len(d.regions) else f"region {i}", region)


def _check_results(op: Op, d: OpDefinition) -> None:
    names = d.result_names
    if not names and op.results:
        raise _error(op, f"expected no results, found {len(op.results)}")
    if names and names != ("results",) and not callable(d.infer) and len(op.results) != len(names):
        raise _error(op, f"expected {len(names)} results, found {len(op.results)}")
    for o, r in zip(d.results, op.results, strict=False):
        if not _type_set(o).has(r.type):
            raise _error(op, f"result {o.name!r} must be a {o.accepts}, found {r.type}{_why(r.type)}")


def _type_set(o: Operand) -> TypeSet:
    return o.accepts if isinstance(o.accepts, TypeSet) else TYPE_SETS[o.accepts]


def _why(t: Type) -> str:
    """More about a type that is not well formed in itself."""
    if isinstance(t, TensorType) and isinstance(t.element, QuantizedType):
        problem = quantized_problem(t.element, t.shape)
        if not problem and t.element.is_blockwise:
            problem = "quantized by blocks, which only uniform_quantize, uniform_dequantize and constant take"
        return f" ({problem})" if problem else ""
    return ""


def check_block(op: Op, name: str, region: Block) -> None:
    """A region ends in a return, and nowhere else."""
    if not region.ops or not region.ops[-1].definition.is_terminator:
        raise _error(op, f"region {name!r} must end in a return")


# ---------------------------------------------------------------- functions and calls


def _function(m: Module, f: Function) -> None:
    if f.is_declaration:
        return
    place = f.location
    for t in (*(a.type for a in f.arguments), *f.result_types):
        problem = type_problem(t)
        if problem is None and _is_unranked(t) and not _has_chlo(f.body):
            problem = _UNRANKED
        if problem:
            raise VerificationError(f"type {t}: {problem}", place, op="func.func")
    if not f.body.ops or not f.body.ops[-1].definition.is_terminator:
        raise VerificationError(f"the body of @{f.name} must end in a return", place, op="func.func")
    returned = [v.type for v in f.body.results]
    if f.body.terminator.name != "func.return":
        returned = list(f.result_types)  # stablehlo.return says nothing about the function's results
    if len(returned) != len(f.result_types) or any(not _returns(a, b) for a, b in zip(returned, f.result_types, strict=True)):
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
            if not op.name.startswith("chlo.") and any(_is_unranked(r.type) for r in op.results):
                raise _error(op, f"result {_UNRANKED}")
            for rule in op.definition.module_constraints:
                found = rule.check(op, m)
                if found is not None:
                    raise _error(op, f"{rule.text}: {found}", rule.label)


_UNRANKED = "must be a tensor of a known rank; unranked tensors are no part of StableHLO (some CHLO ops take them)"


def _is_unranked(t: Type) -> bool:
    return isinstance(t, OpaqueType) and t.text.startswith("tensor<*x")


def _has_chlo(body: Block) -> bool:
    """Does an op of CHLO take or make an unranked value here?"""
    return any(
        op.name.startswith("chlo.") and any(_is_unranked(v.type) for v in (*op.operands, *op.results)) for op in walk(body)
    )


def type_problem(t: Type) -> str | None:
    """What is wrong with a type in itself: the number of its bounds."""
    if isinstance(t, TensorType) and t.bounds is not None and len(t.bounds) != len(t.shape):
        return f"expected {len(t.shape)} bounds, found {len(t.bounds)}"
    if isinstance(t, TensorType) and t.bounds is not None:
        for n, b in zip(t.shape, t.bounds, strict=True):
            if n is not None and b is not None:
                return f"expected bounds for unknown dimensions only, found {b} for a dimension of {n}"
    return None


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


def _no_recursion(m: Module) -> None:
    """Raises for a cycle of calls and decompositions, naming it. Depth first, with a stack of its own."""
    defined = {n: f for n, f in m.functions.items() if not f.is_declaration}
    calls = {n: [(op, c) for op in walk(f.body) for c in callees(op)] for n, f in defined.items()}
    done: set[str] = set()
    for start in calls:
        if start in done:
            continue
        path: list[str] = [start]
        on_path = {start}
        stack = [iter(calls[start])]
        while stack:
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
                finished = path.pop()
                on_path.discard(finished)
                done.add(finished)
                continue
            op, name = found
            if name in on_path:
                cycle = " -> ".join("@" + n for n in (*path[path.index(name) :], name)[:20])
                raise _error(op, f"calls must not be recursive: {cycle}")
            if name not in done and name in calls:
                path.append(name)
                on_path.add(name)
                stack.append(iter(calls[name]))
