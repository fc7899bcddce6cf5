"""The types of a kernel: one walk over its statements, for all prints that need types (LLVM's input, C).

    (kernel, types of its arguments, the library)
        ->  the same statements, each expression with its type and the rule that it is computed by

A name is assigned before it is read and has one type wherever it is assigned, loops are over a range with a literal step. Nothing
is left to infer when the walk arrives at an expression, so each is typed once. Which types a function takes, which it is given
and what it returns is asked of the library (`codegen.lib.operators.signature_of`). `NotStructured` says that numba is needed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from codegen.kernel import types
from codegen.kernel.ir import (
    Assign,
    Augment,
    Binary,
    Break,
    Call,
    Compare,
    Continue,
    Do,
    Enclosed,
    Expression,
    For,
    If,
    Kernel,
    Load,
    Logical,
    Name,
    Number,
    Pass,
    Return,
    Statement,
    Store,
    Unary,
    While,
)

__all__ = [
    "Apply",
    "Argument",
    "Constant",
    "First",
    "Link",
    "Loop",
    "Meanwhile",
    "NotStructured",
    "Set",
    "Test",
    "TypedExpression",
    "TypedKernel",
    "TypedStatement",
    "Variable",
    "typed",
]

BINARY: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
UNARY: dict[str, Any] = {"-": operator.neg, "+": operator.pos, "~": operator.invert, "not": operator.not_}
COMPARE: dict[str, Any] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


_OF_INDICES = frozenset((operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod))


class NotStructured(Exception):
    """The walk does not take the kernel."""


# ---------------------------------------------------------------- what is typed


@dataclass(frozen=True, slots=True)
class Constant:
    """A number whose type may be a literal's."""

    kind: Any
    value: bool | int | float


@dataclass(frozen=True, slots=True)
class Argument:
    """A bound or a buffer: what nothing assigns."""

    kind: Any
    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    kind: Any
    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """`function` of operands, each converted to the type that `signature` asks for.

    An int64 made of integers, arguments and variables alone, as addresses are, says which variables. Its number is that of all in
    the kernel that are made in the same way.
    """

    function: Any
    signature: Any
    operands: tuple[TypedExpression, ...]
    variables: frozenset[str] | None = field(default=None, compare=False)
    number: int = field(default=0, compare=False)

    @property
    def kind(self) -> Any:
        return self.signature.return_type


@dataclass(frozen=True, slots=True)
class First:
    """The first of bools that is `stop`, or the last; what comes after is not computed."""

    stop: bool
    operands: tuple[TypedExpression, ...]
    kind: Any = types.boolean


@dataclass(frozen=True, slots=True)
class Link:
    """`first < a <= b …`: every operand computed once, none after the first link that is false."""

    first: TypedExpression
    links: tuple[tuple[Any, Any, TypedExpression], ...]  # function, signature, right operand
    kind: Any = types.boolean


TypedExpression: TypeAlias = Constant | Argument | Variable | Apply | First | Link


@dataclass(frozen=True, slots=True)
class Set:
    """`name = value`; the variable has the value's type, no literal's."""

    name: str
    value: TypedExpression


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """`variable` from `start` to before `stop`, both int64, by a `step` that is not 0.

    A loop equals itself alone, and is a key of marks: to compare loops by what is in them would walk through all of that.
    """

    variable: str
    start: TypedExpression
    stop: TypedExpression
    step: int
    body: tuple[TypedStatement, ...]


@dataclass(frozen=True, slots=True)
class Meanwhile:
    test: TypedExpression
    body: tuple[TypedStatement, ...]


@dataclass(frozen=True, slots=True)
class Test:
    test: TypedExpression
    then: tuple[TypedStatement, ...]
    otherwise: tuple[TypedStatement, ...]
    joined: tuple[str, ...] = ()  # what both sides assign


TypedStatement: TypeAlias = Set | Apply | Loop | Meanwhile | Test | Pass | Break | Continue | Return


@dataclass(frozen=True, slots=True)
class TypedKernel:
    """A kernel with types: its arguments by name, its variables by name, its statements.

    Variables that are `direct` have one value wherever they are read: that of the only assignment before, in the same statements
    or in those around; or one of a test's two, which both assign it.
    """

    arguments: tuple[tuple[str, Any], ...]
    variables: Mapping[str, Any]
    body: tuple[TypedStatement, ...]
    direct: frozenset[str]


SignatureOf: TypeAlias = Callable[[Any, tuple[types.Type, ...]], types.Signature | None]


def typed(kernel: Kernel, kinds: Sequence[Any], namespace: Mapping[str, Any], signature_of: SignatureOf) -> TypedKernel:
    """The kernel with the types that its expressions have, where its arguments have `kinds`.

    `signature_of(function, kinds)` tells what a function takes and gives, or None. Raises NotStructured for what the walk does
    not take, and for calls that have no rule.
    """
    names = (*kernel.bounds, *(p.name for p in kernel.arguments))
    given = tuple(zip(names, kinds, strict=True))
    walk = _Walk(dict(given), namespace, signature_of)
    body = walk.block(kernel.body)
    return TypedKernel(given, walk.variables, body, frozenset(walk.variables) - walk.indirect)


class _Walk:
    def __init__(self, given: dict[str, Any], namespace: Mapping[str, Any], signature_of: SignatureOf) -> None:
        self.given, self.namespace, self.signature_of = given, namespace, signature_of
        self.variables: dict[str, Any] = {}
        self.rules: dict[tuple[Any, ...], Any] = {}
        self.assigned: set[str] = set()  # in the statements so far, and in those around
        self.indirect: set[str] = set()  # names that are assigned again after that, or read where they are not
        self.indices: dict[tuple[Any, ...], Apply] = {}  # by what they are made of

    # ------------------------------------------------------------ statements

    def block(self, statements: Sequence[Statement]) -> tuple[TypedStatement, ...]:
        before = self.assigned
        made, _ = self.side(statements)
        self.assigned = before
        return made

    def side(self, statements: Sequence[Statement]) -> tuple[tuple[TypedStatement, ...], set[str]]:
        """Statements, and what they assign on the way to what follows them: nothing where they jump."""
        made = []
        before, self.assigned = self.assigned, set(self.assigned)
        for s in statements:
            made.append(_STATEMENTS[type(s)](self, s))
            if isinstance(s, Break | Continue | Return):
                self.assigned = before  # what follows a jump
                break
        return tuple(made), self.assigned - before

    def of_assign(self, s: Assign) -> TypedStatement:
        return self.set(s.name, self.value(s.value))

    def set(self, name: str, value: TypedExpression) -> Set:
        kind = types.unliteral(value.kind)
        known = self.variables.setdefault(name, kind)
        if name in self.given:
            raise NotStructured(f"an argument that is assigned, {name}")
        if known != kind:
            raise NotStructured(f"a name of two types, {name}: {known} and {kind}")
        if isinstance(kind, types.NoneType):
            raise NotStructured(f"a name for {kind}")
        (self.indirect if name in self.assigned else self.assigned).add(name)
        return Set(name, value)

    def of_store(self, s: Store) -> TypedStatement:
        value = self.value(s.value)
        return self.apply(operator.setitem, (self.buffer(s.buffer), self.value(s.index), value))

    def of_augment(self, s: Augment) -> TypedStatement:
        if isinstance(s.target, Name):
            return self.set(s.target.name, self.apply(BINARY[s.operator], (self.name(s.target.name), self.value(s.value))))
        place = (self.buffer(s.target.buffer), self.value(s.target.index))
        made = self.apply(BINARY[s.operator], (self.apply(operator.getitem, place), self.value(s.value)))
        return self.apply(operator.setitem, (*place, made))

    def of_do(self, s: Do) -> TypedStatement:
        made = self.value(s.call)
        assert isinstance(made, Apply)
        return made

    def of_for(self, s: For) -> TypedStatement:
        if "range" in self.variables:
            raise NotStructured("another range")
        zero = Constant(types.literal(0), 0)
        start, stop = zero if s.start is None else self.value(s.start), self.value(s.stop)
        step = 1
        if s.step is not None:
            known = self.value(s.step)
            if not isinstance(known, Constant) or not isinstance(known.kind, types.IntegerLiteral) or known.value == 0:
                raise NotStructured("a range whose step is no constant")
            step = int(known.value)
        if any(types.unliteral(x.kind) != types.int64 for x in (start, stop)):
            raise NotStructured("a range of other integers")
        before = set(self.assigned)
        self.set(s.variable, Constant(types.int64, 0))
        body = self.block(s.body)
        self.assigned = before
        return Loop(s.variable, start, stop, step, body)

    def of_while(self, s: While) -> TypedStatement:
        return Meanwhile(self.truth(s.test), self.block(s.body))

    def of_if(self, s: If) -> TypedStatement:
        test, before = self.truth(s.test), self.assigned
        (then, of_then), self.assigned = self.side(s.then), before
        (otherwise, of_other), self.assigned = self.side(s.otherwise), before
        joined = of_then & of_other
        self.assigned = before | joined
        return Test(test, then, otherwise, tuple(sorted(joined)))

    # ------------------------------------------------------------ expressions

    def value(self, e: Expression) -> TypedExpression:
        """An expression with its type; what Python folds before it runs is a literal."""
        folded = _folded(e)
        if folded is not None:
            return _constant(folded)
        made: TypedExpression = _EXPRESSIONS[type(e)](self, e)
        return made

    def name(self, name: str) -> TypedExpression:
        kind = self.variables.get(name)
        if kind is not None:
            if name not in self.assigned:
                self.indirect.add(name)
            return Variable(kind, name)
        if name in self.given:
            return Argument(self.given[name], name)
        found = self.namespace.get(name)
        if not isinstance(found, float):
            raise NotStructured(f"{name} is no value")
        return _constant(found)

    def buffer(self, buffer: str | Call) -> TypedExpression:
        return self.name(buffer) if isinstance(buffer, str) else self.of_call(buffer)

    def of_binary(self, e: Binary) -> TypedExpression:
        return self.apply(BINARY[e.operator], (self.value(e.left), self.value(e.right)))

    def of_unary(self, e: Unary) -> TypedExpression:
        return self.apply(UNARY[e.operator], (self.value(e.operand),))

    def of_compare(self, e: Compare) -> TypedExpression:
        first = left = self.value(e.first)
        links = []
        for op, x in e.links:
            right = self.value(x)
            made = self.apply(COMPARE[op], (left, right))
            self.bool(made)
            links.append((made.function, made.signature, right))
            left = right
        return made if len(links) == 1 else Link(first, tuple(links))

    def of_logical(self, e: Logical) -> TypedExpression:
        return First(e.operator == "or", tuple([self.truth(x) for x in e.operands]))

    def of_call(self, e: Call) -> TypedExpression:
        function = None if e.function in self.variables else self.namespace.get(e.function)
        if function is None:
            raise NotStructured(f"{e.function} is not of the library")
        return self.apply(function, tuple([self.value(a) for a in e.arguments]))

    def of_load(self, e: Load) -> TypedExpression:
        return self.apply(operator.getitem, (self.buffer(e.buffer), self.value(e.index)))

    def truth(self, e: Expression) -> TypedExpression:
        return self.bool(self.value(e))

    def bool(self, made: TypedExpression) -> TypedExpression:
        if types.unliteral(made.kind) != types.boolean:
            raise NotStructured(f"the truth of {made.kind}")
        return made

    def apply(self, function: Any, operands: tuple[TypedExpression, ...]) -> Apply:
        """`function` of operands by the rule for their types."""
        kinds = tuple([x.kind for x in operands])
        key = (function, *kinds)
        signature = self.rules.get(key)
        if signature is None:
            signature = self.rules[key] = _rule(self.signature_of, function, kinds)
        if function in _OF_INDICES and signature.return_type == types.int64:
            parts = [_index(x) for x in operands]
            if None not in parts:
                return self.index((function, *parts), signature, operands)
        return Apply(function, signature, operands)

    def index(self, key: tuple[Any, ...], signature: Any, operands: tuple[TypedExpression, ...]) -> Apply:
        """The only index of the kernel that is made of this."""
        found = self.indices.get(key)
        if found is None:
            every = {x.name for x in operands if isinstance(x, Variable)}.union(
                *(x.variables for x in operands if isinstance(x, Apply) and x.variables is not None)
            )
            found = self.indices[key] = Apply(key[0], signature, operands, frozenset(every), len(self.indices) + 1)
        return found


def _index(x: TypedExpression) -> object:
    """What tells an integer, a name or an index from all others; None for what is none of these."""
    if isinstance(x, Variable | Argument):
        return x.name
    if isinstance(x, Constant):
        return x.value if type(x.value) is int else None
    return (x.number,) if isinstance(x, Apply) and x.variables is not None else None


@functools.lru_cache(4096)
def _rule(signature_of: SignatureOf, function: Any, kinds: tuple[Any, ...]) -> Any:
    """The signature of a function of operands of these types: the kernels of a program ask for the same ones."""
    signature = signature_of(function, kinds)
    if signature is None or len(signature.args) != len(kinds):
        raise NotStructured(f"{function} of {kinds}")
    return signature


_STATEMENTS: dict[type, Callable[[_Walk, Any], TypedStatement]] = {
    Assign: _Walk.of_assign, Store: _Walk.of_store, Augment: _Walk.of_augment, Do: _Walk.of_do, For: _Walk.of_for,
    While: _Walk.of_while, If: _Walk.of_if, Pass: lambda walk, s: s, Break: lambda walk, s: s, Continue: lambda walk, s: s,
    Return: lambda walk, s: s,
}  # fmt: skip
_EXPRESSIONS: dict[type, Callable[[_Walk, Any], TypedExpression]] = {
    Name: lambda walk, e: walk.name(e.name), Unary: _Walk.of_unary, Binary: _Walk.of_binary, Compare: _Walk.of_compare,
    Logical: _Walk.of_logical, Call: _Walk.of_call, Load: _Walk.of_load, Enclosed: lambda walk, e: walk.value(e.value),
}  # fmt: skip


def _constant(value: bool | int | float) -> Constant:
    try:
        return Constant(types.float64 if isinstance(value, float) else types.literal(value), value)
    except OverflowError as reason:
        raise NotStructured(str(reason)) from None


def _folded(e: Expression) -> bool | int | float | None:
    """The number that an expression of literals is."""
    if isinstance(e, Number):
        return e.value
    if isinstance(e, Enclosed):
        return _folded(e.value)
    if isinstance(e, Unary) and e.operator == "-":
        inner = _folded(e.operand)
        return None if inner is None or isinstance(inner, bool) else -inner
    if isinstance(e, Binary) and e.operator in "+-*":
        left = _folded(e.left)
        right = None if left is None else _folded(e.right)
        if left is not None and right is not None:
            made: int | float = BINARY[e.operator](left, right)
            return made
    return None
