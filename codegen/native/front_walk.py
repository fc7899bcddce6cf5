"""Kernel source -> LLVM IR in one walk over its syntax tree, by numba's typing rules and lowerings.

    (source, types of its arguments)  ->  text of a module with the kernel's C entry

Kernels are structured: a name is assigned before it is read and has one type wherever it is assigned, loops are ``for`` over a
range with a literal step and ``while``. Nothing is left to infer when the walk arrives at an expression, so each is typed and
lowered once; numba's own passes (byte code, control flow, SSA, inference by fixpoint) take several times as long. What a name
means, which types a call takes and how it is lowered is asked of numba. ``NotStructured`` says that the whole of numba is needed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

__all__ = ["NotStructured", "lower_structured"]

_I1, _I64 = ir.IntType(1), ir.IntType(64)
_BINARY: dict[type, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_UNARY: dict[type, Any] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_}
_COMPARE: dict[type, Any] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip

Typed = tuple[Any, Any]  # (numba's type, LLVM's value)


class NotStructured(Exception):
    """The walk does not take the source."""


def lower_structured(
    source: str,
    namespace: dict[str, Any],
    contexts: tuple[Any, Any],
    prologue: Callable[[Any], tuple[Any, list[Typed]]],
    epilogue: Callable[[Any], None],
) -> str:
    """The text of the module whose entry ``prologue(context)`` makes: it gives the builder and the values of the arguments.

    ``epilogue(builder)`` writes what comes before each return. Raises NotStructured, or numba's errors for source that has no
    types.
    """
    function = ast.parse(source).body[0]
    if not isinstance(function, ast.FunctionDef):
        raise NotStructured("no function")
    typing_context, context = contexts
    library = context.codegen().create_library(function.name)
    with context.push_code_library(library):
        builder, arguments = prologue(context)
        _Walk(namespace, typing_context, context, builder, epilogue).function(function, arguments)
    if library._linking_libraries:
        raise NotStructured("functions that numba compiles")
    return str(builder.module)


class _Walk:
    """The state of one walk: where code goes, what the names are."""

    def __init__(
        self, namespace: dict[str, Any], typing: Any, context: Any, builder: Any, epilogue: Callable[[Any], None]
    ) -> None:
        self.namespace, self.typing, self.context, self.builder = namespace, typing, context, builder
        self.epilogue = epilogue
        self.given: dict[str, Typed] = {}  # arguments that are never assigned
        self.variables: dict[str, Typed] = {}  # name -> (type, its place in the frame)
        self.globals: dict[str, Any] = {}
        self.rules: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self.loops: list[tuple[Any, Any]] = []  # where `continue` and `break` go

    def function(self, node: ast.FunctionDef, arguments: Sequence[Typed]) -> None:
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        body = self.builder.append_basic_block("body")
        self.builder.branch(body)
        self.builder.position_at_end(body)
        for argument, typed in zip(node.args.args, arguments, strict=True):
            if argument.arg in stored:
                self.assign(argument.arg, typed)
            else:
                self.given[argument.arg] = typed
        self.block(node.body)
        if not self.builder.block.is_terminated:
            self.leave()

    def leave(self) -> None:
        self.epilogue(self.builder)
        self.builder.ret_void()

    # ------------------------------------------------------------ statements

    def block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            if self.builder.block.is_terminated:
                return  # what follows a jump
            method = getattr(self, f"do_{type(statement).__name__}", None)
            if method is None:
                raise NotStructured(type(statement).__name__)
            method(statement)

    def do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def do_Pass(self, node: ast.Pass) -> None:
        """Nothing."""

    def do_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            raise NotStructured("a result")
        self.leave()

    def do_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            raise NotStructured("several targets")
        target = node.targets[0]
        if isinstance(target, ast.Name):
            self.assign(target.id, self.value(node.value))
        elif isinstance(target, ast.Subscript):
            value = self.value(node.value)
            self.call(operator.setitem, [self.value(target.value), self.value(target.slice), value])
        else:
            raise NotStructured(type(target).__name__)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            old = self.name(node.target.id)
            self.assign(node.target.id, self.call(_BINARY[type(node.op)], [old, self.value(node.value)]))
        elif isinstance(node.target, ast.Subscript):
            place = [self.value(node.target.value), self.value(node.target.slice)]
            made = self.call(_BINARY[type(node.op)], [self.call(operator.getitem, place), self.value(node.value)])
            self.call(operator.setitem, [*place, made])
        else:
            raise NotStructured(type(node.target).__name__)

    def do_If(self, node: ast.If) -> None:
        test = self.truth(node.test)
        then, after = self.builder.append_basic_block("then"), self.builder.append_basic_block("after")
        other = self.builder.append_basic_block("else") if node.orelse else after
        self.builder.cbranch(test, then, other)
        for start, statements in ((then, node.body), (other, node.orelse)):
            if start is not after:
                self.builder.position_at_end(start)
                self.block(statements)
                self.go(after)
        self.builder.position_at_end(after)

    def do_While(self, node: ast.While) -> None:
        if node.orelse:
            raise NotStructured("else of a loop")
        head, body, after = (self.builder.append_basic_block(n) for n in ("head", "loop", "after"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(self.truth(node.test), body, after)
        self.builder.position_at_end(body)
        self.inside(node.body, head, after)

    def do_For(self, node: ast.For) -> None:
        called = node.iter
        plain = isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id == "range"
        if node.orelse or not plain or not isinstance(node.target, ast.Name) or "range" in self.variables:
            raise NotStructured("a loop over something else than a range")
        assert isinstance(called, ast.Call)
        bounds = [self.value(a) for a in called.args]
        if called.keywords or not 1 <= len(bounds) <= 3 or any(types.unliteral(k) != types.int64 for k, _ in bounds):
            raise NotStructured("a range of other integers")
        step = getattr(bounds[2][0], "literal_value", 0) if len(bounds) == 3 else 1
        if step <= 0:
            raise NotStructured("a step that is not known")
        b, zero = self.builder, ir.Constant(_I64, 0)
        start = bounds[0][1] if len(bounds) > 1 else zero
        length = b.sub(bounds[min(1, len(bounds) - 1)][1], start)
        turns = length
        if step > 1:
            uneven = b.icmp_signed(">", b.srem(length, ir.Constant(_I64, step)), zero)
            turns = b.add(b.sdiv(length, ir.Constant(_I64, step)), b.zext(uneven, _I64))
        turns = b.select(b.icmp_signed(">", length, zero), turns, zero)
        left, place = (cgutils.alloca_once(b, _I64, name=n) for n in ("left", "place"))
        b.store(turns, left)
        b.store(start, place)
        head, body, after = (b.append_basic_block(n) for n in ("head", "loop", "after"))
        b.branch(head)
        b.position_at_end(head)
        now = b.load(left)
        b.cbranch(b.icmp_signed(">", now, zero), body, after)
        b.position_at_end(body)
        value = b.load(place)
        b.store(b.sub(now, ir.Constant(_I64, 1), flags=["nsw"]), left)
        b.store(b.add(value, ir.Constant(_I64, step)), place)
        self.assign(node.target.id, (types.int64, value))
        self.inside(node.body, head, after)

    def inside(self, statements: Iterable[ast.stmt], again: Any, after: Any) -> None:
        """The body of a loop, and what comes after."""
        self.loops.append((again, after))
        self.block(statements)
        self.loops.pop()
        self.go(again)
        self.builder.position_at_end(after)

    def go(self, block: Any) -> None:
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    def do_Continue(self, node: ast.Continue) -> None:
        self.builder.branch(self.loops[-1][0])

    def do_Break(self, node: ast.Break) -> None:
        self.builder.branch(self.loops[-1][1])

    def assign(self, name: str, typed: Typed) -> None:
        kind, value = types.unliteral(typed[0]), typed[1]
        if name not in self.variables:
            if isinstance(kind, (types.Function, types.NumberClass, types.NoneType)):
                raise NotStructured(f"a name for {kind}")
            self.variables[name] = kind, cgutils.alloca_once(self.builder, self.context.get_value_type(kind), name=name)
        known, place = self.variables[name]
        if known != kind:
            raise NotStructured(f"a name of two types, {known} and {kind}")
        self.builder.store(value, place)

    # ------------------------------------------------------------ expressions

    def value(self, node: ast.expr) -> Typed:
        """The type and the value of an expression; what Python folds before it runs is a literal."""
        folded = _folded(node)
        if folded is not None:
            return self.constant(folded)
        method = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            raise NotStructured(type(node).__name__)
        typed: Typed = method(node)
        return typed

    def constant(self, value: bool | int | float) -> Typed:
        kind = types.float64 if isinstance(value, float) else types.literal(value)
        return kind, ir.Constant(self.context.get_value_type(types.unliteral(kind)), value)

    def of_Name(self, node: ast.Name) -> Typed:
        return self.name(node.id)

    def name(self, name: str) -> Typed:
        if name in self.variables:
            kind, place = self.variables[name]
            return kind, self.builder.load(place)
        if name in self.given:
            return self.given[name]
        found = self.namespace.get(name)
        if not isinstance(found, float):
            raise NotStructured(f"{name} is no value")
        return self.constant(found)

    def of_BinOp(self, node: ast.BinOp) -> Typed:
        if type(node.op) not in _BINARY:
            raise NotStructured(type(node.op).__name__)
        return self.call(_BINARY[type(node.op)], [self.value(node.left), self.value(node.right)])

    def of_UnaryOp(self, node: ast.UnaryOp) -> Typed:
        return self.call(_UNARY[type(node.op)], [self.value(node.operand)])

    def of_Subscript(self, node: ast.Subscript) -> Typed:
        return self.call(operator.getitem, [self.value(node.value), self.value(node.slice)])

    def of_Compare(self, node: ast.Compare) -> Typed:
        left = self.value(node.left)
        links = list(zip(node.ops, node.comparators, strict=True))

        def link(k: int) -> Callable[[], Any]:
            def compared() -> Any:
                nonlocal left
                right = self.value(links[k][1])
                if type(links[k][0]) not in _COMPARE:
                    raise NotStructured(type(links[k][0]).__name__)
                result = self.call(_COMPARE[type(links[k][0])], [left, right])
                left = right
                return self.bit(result)

            return compared

        return types.boolean, self.chain([link(k) for k in range(len(links))], stop=False)

    def of_BoolOp(self, node: ast.BoolOp) -> Typed:
        def part(value: ast.expr) -> Callable[[], Any]:
            return lambda: self.truth(value)

        return types.boolean, self.chain([part(v) for v in node.values], stop=isinstance(node.op, ast.Or))

    def chain(self, parts: Sequence[Callable[[], Any]], stop: bool) -> Any:
        """The first of the bits that is ``stop``, or the last: what comes after is not computed."""
        if len(parts) == 1:
            return parts[0]()
        place = cgutils.alloca_once(self.builder, _I1)
        after = self.builder.append_basic_block("decided")
        for k, part in enumerate(parts):
            bit = part()
            self.builder.store(bit, place)
            if k + 1 < len(parts):
                more = self.builder.append_basic_block("undecided")
                self.builder.cbranch(bit, *((after, more) if stop else (more, after)))
                self.builder.position_at_end(more)
        self.builder.branch(after)
        self.builder.position_at_end(after)
        return self.builder.load(place)

    def truth(self, node: ast.expr) -> Any:
        return self.bit(self.value(node))

    def bit(self, typed: Typed) -> Any:
        if types.unliteral(typed[0]) != types.boolean:
            raise NotStructured(f"the truth of {typed[0]}")
        return typed[1]

    # ------------------------------------------------------------ calls

    def of_Call(self, node: ast.Call) -> Typed:
        if node.keywords or not isinstance(node.func, ast.Name) or node.func.id in self.variables:
            raise NotStructured("a call of something else than a function by its place")
        function = self.namespace.get(node.func.id)
        if function is None:
            raise NotStructured(f"{node.func.id} is not of the library")
        return self.call(function, [self.value(a) for a in node.args])

    def call(self, function: Any, operands: Sequence[Typed]) -> Typed:
        """What numba's rule for ``function`` makes of operands of these types."""
        kinds = tuple(k for k, _ in operands)
        key = (function, *kinds)
        if key not in self.rules:
            known = self.typing.resolve_value_type(function)
            signature = self.typing.resolve_function_type(known, kinds, {})
            if signature is None or len(signature.args) != len(kinds):
                raise NotStructured(f"{function} of {kinds}")
            self.rules[key] = signature, self.context.get_function(known, signature)
        signature, lower = self.rules[key]
        values = [self.cast(v, k, wanted) for (k, v), wanted in zip(operands, signature.args, strict=True)]
        return signature.return_type, lower(self.builder, values)

    def cast(self, value: Any, kind: Any, wanted: Any) -> Any:
        kind, wanted = types.unliteral(kind), types.unliteral(wanted)
        return value if kind == wanted else self.context.cast(self.builder, value, kind, wanted)


def _folded(node: ast.expr) -> bool | int | float | None:
    """The number that an expression of literals is."""
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, bool | int | float):
            raise NotStructured(f"a {type(node.value).__name__}")
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _folded(node.operand)
        return None if inner is None or isinstance(inner, bool) else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in (ast.Add, ast.Sub, ast.Mult):
        left, right = _folded(node.left), _folded(node.right)
        if left is not None and right is not None:
            made: int | float = _BINARY[type(node.op)](left, right)
            return made
    return None
