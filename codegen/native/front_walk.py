"""Kernel -> LLVM IR in one walk over its typed statements.

    (typed kernel, values of its arguments)  ->  text of a module with the kernel's C entry

Each expression has its type and its rule (`codegen.kernel.typed`), so each is lowered once; numba's passes (byte code, control
flow, SSA, inference by fixpoint) take several times as long, and importing numba takes longer than most kernels do. How a
function is lowered is the library's to say.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.ir import Break, Continue, Kernel, Pass, Return
from codegen.kernel.typed import (
    Apply,
    Argument,
    Constant,
    First,
    Link,
    Loop,
    Meanwhile,
    NotStructured,
    Set,
    Test,
    TypedExpression,
    TypedStatement,
    Variable,
    typed,
)
from codegen.lib.emit import has_representation
from codegen.lib.operators import rule_of, signature_of
from codegen.lib.register import CONTEXT
from codegen.native.loop_marks import (
    LINE_BYTES,
    LINES,
    SCALAR,
    loops_of_lines,
    loops_that_look_up,
    loops_that_update_apart,
    marks,
    with_nodes,
)
from codegen.target import current_target

__all__ = ["NotStructured", "lower_structured"]

_I1, _I64 = ir.IntType(1), ir.IntType(64)

Typed = tuple[Any, Any]  # (type, LLVM's value)
Feeds = tuple[tuple[Any, Any], ...]  # what changes from turn to turn, and its value in the next one


def lower_structured(
    kernel: Kernel,
    namespace: dict[str, Any],
    builder: Any,
    arguments: Sequence[Typed],
    epilogue: Callable[[], None],
    is_marked: bool = False,
) -> str:
    """The text of the module in whose entry ``builder`` is, where the ``arguments`` are.

    ``epilogue()`` writes what comes before each return. With ``is_marked`` LLVM is told of loops what one pipeline is to
    do with them (`codegen.native.loop_marks`). Raises NotStructured for source of another form, or whose types no
    rule here takes.
    """
    made = typed(kernel, [kind for kind, _ in arguments], namespace, signature_of)
    given = {name: value for (name, _), (_, value) in zip(made.arguments, arguments, strict=True)}
    told = marks(made.body, made.direct) if is_marked else None
    vectors_a_line = LINE_BYTES // current_target().vector_bytes
    lines = loops_of_lines(made.body) if is_marked and vectors_a_line > 1 else ()
    known = dict(told or {})
    known.update((loop, f"{known[loop]}+{LINES}" if loop in known else LINES) for loop in lines)
    if is_marked:
        known.update(dict.fromkeys([*loops_that_look_up(made.body), *loops_that_update_apart(made.body)], SCALAR))
    _Walk(given, made.variables, made.direct, builder, epilogue, known).function(made.body)
    return with_nodes(str(builder.module), told is not None, vectors_a_line)


class _Walk:
    """The state of one walk: where code goes, where the variables are."""

    def __init__(
        self, given: dict[str, Any], kinds: Any, direct: frozenset[str], builder: Any, epilogue: Callable[[], None],
        loop_marks: dict[Loop, str],
    ) -> None:  # fmt: skip
        self.given, self.kinds, self.builder = given, kinds, builder
        self.frame = ir.IRBuilder(builder.block)
        self.epilogue = epilogue
        self.places: dict[str, Any] = {}  # of the variables, in the frame
        self.kept: dict[str, tuple[Any, Any]] = {}  # of those with a representation: block and value, which knows it
        self.marks = loop_marks  # of loops
        self.marked = 0  # loops
        self.loops: list[tuple[Any, Any, Feeds]] = []  # where `continue` and `break` go, and what the next turn begins with
        self.direct = direct  # variables with one value, and the values of those assigned so far
        self.values: dict[str, Any] = {}
        self.indices: dict[int, Any] = {}  # of indices made of those alone, in the blocks that lead here
        self.made: list[list[int]] = [[]]  # which ones, by the statements that they are made for

    def function(self, body: Sequence[TypedStatement]) -> None:
        start = self.builder.append_basic_block("body")
        self.builder.position_at_end(start)
        self.block(body)
        if not self.builder.block.is_terminated:
            self.leave()
        self.frame.position_at_end(self.frame.block)
        self.frame.branch(start)

    def room(self, kind: Any, name: str = "") -> Any:
        """A place in the frame, made where the function begins."""
        return self.frame.alloca(kind, name=name)

    def leave(self) -> None:
        self.epilogue()
        self.builder.ret_void()

    # ------------------------------------------------------------ statements

    def block(self, statements: Iterable[TypedStatement]) -> None:
        for s in statements:
            if self.builder.block.is_terminated:
                return  # what follows a jump
            _STATEMENTS[type(s)](self, s)

    def do_test(self, s: Test) -> None:
        test = self.value(s.test)
        then, after = self.builder.append_basic_block("then"), self.builder.append_basic_block("after")
        other = self.builder.append_basic_block("else") if s.otherwise else after
        self.builder.cbranch(test, then, other)
        joined = [x for x in s.joined if x in self.direct]
        found = []
        for start, statements in ((then, s.then), (other, s.otherwise)):
            if start is not after:
                self.builder.position_at_end(start)
                with self.apart():
                    self.block(statements)
                found.append(([self.values[x] for x in joined], self.builder.block))
                self.go(after)
        self.builder.position_at_end(after)
        for k, name in enumerate(joined):
            self.values[name] = self.builder.phi(CONTEXT.get_value_type(self.kinds[name]))
            for values, block in found:
                self.values[name].add_incoming(values[k], block)

    def do_while(self, s: Meanwhile) -> None:
        head, body, after = (self.builder.append_basic_block(n) for n in ("head", "loop", "after"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(self.value(s.test), body, after)
        self.builder.position_at_end(body)
        self.inside(s.body, head, after)

    def do_loop(self, s: Loop) -> None:
        """The turns are counted down: one counter instead of two took LLVM 6 % less time, and kept vectors out of some loops."""
        b, zero, step = self.builder, ir.Constant(_I64, 0), abs(s.step)
        start, stop = self.value(s.start), self.value(s.stop)
        length = b.sub(stop, start) if s.step > 0 else b.sub(start, stop)
        turns = length
        if step > 1:
            uneven = b.icmp_signed(">", b.srem(length, ir.Constant(_I64, step)), zero)
            turns = b.add(b.sdiv(length, ir.Constant(_I64, step)), b.zext(uneven, _I64))
        turns = b.select(b.icmp_signed(">", length, zero), turns, zero)
        before = b.block
        head, body, after = (b.append_basic_block(n) for n in ("head", "loop", "after"))
        b.branch(head)
        b.position_at_end(head)
        left, place = (b.phi(_I64, n) for n in ("left", "place"))
        left.add_incoming(turns, before)
        place.add_incoming(start, before)
        b.cbranch(b.icmp_signed(">", left, zero), body, after)
        b.position_at_end(body)
        following = b.sub(left, ir.Constant(_I64, 1), flags=["nsw"]), b.add(place, ir.Constant(_I64, s.step))
        self.assign(s.variable, place)
        self.inside(s.body, head, after, self.marks.get(s, ""), tuple(zip((left, place), following, strict=True)))

    def inside(self, statements: Iterable[TypedStatement], again: Any, after: Any, mark: str = "", feeds: Feeds = ()) -> None:
        """The body of a loop, and what comes after."""
        self.loops.append((again, after, feeds))
        with self.apart():
            self.block(statements)
        jump = None if self.builder.block.is_terminated else self.do_continue()
        self.loops.pop()
        if mark and jump is not None:
            self.marked += 1
            module = self.builder.module
            jump.set_metadata("llvm.loop", module.add_metadata([ir.MetaDataString(module, f"{mark} {self.marked}")]))
        self.builder.position_at_end(after)

    def do_continue(self) -> Any:
        """The next turn of the loop around."""
        again, _, feeds = self.loops[-1]
        for changed, value in feeds:
            changed.add_incoming(value, self.builder.block)
        return self.builder.branch(again)

    def go(self, block: Any) -> None:
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Statements whose indices are not there for those that follow."""
        self.made.append([])
        yield
        for key in self.made.pop():
            self.indices.pop(key, None)

    def assign(self, name: str, value: Any) -> None:
        if name in self.direct:
            self.values[name] = value
            return
        place = self.places.get(name)
        if place is None:
            kind = CONTEXT.get_value_type(self.kinds[name])
            place = self.places[name] = self.room(kind, name)
            self.frame.store(kind(None), place)
        self.builder.store(value, place)
        self.kept.pop(name, None)
        if has_representation(value):
            self.kept[name] = self.builder.block, value

    def variable(self, e: Variable) -> Any:
        """A variable's value: the very one that it was given where that is the only one, or in the same block, else what its
        place holds."""
        if e.name in self.direct:
            return self.values[e.name]
        block, value = self.kept.get(e.name, (None, None))
        return value if block is self.builder.block else self.builder.load(self.places[e.name])

    # ------------------------------------------------------------ expressions

    def value(self, e: TypedExpression) -> Any:
        """LLVM's value of an expression."""
        return _EXPRESSIONS[type(e)](self, e)

    def of_link(self, e: Link) -> Any:
        def compared(left: tuple[Any, Any]) -> Iterator[Any]:
            for function, signature, x in e.links:
                right = self.value(x), x.kind
                yield self.apply(function, signature, [left, right])
                left = right

        return self.chain(compared((self.value(e.first), e.first.kind)), len(e.links), stop=False)

    def chain(self, bits: Iterable[Any], count: int, stop: bool) -> Any:
        """The first of ``count`` bits that is ``stop``, or the last: what comes after is not computed."""
        after = self.builder.append_basic_block("decided")
        found = []
        with contextlib.ExitStack() as beyond:
            for k, bit in enumerate(bits, 1):
                found.append((bit, self.builder.block))
                more = self.builder.append_basic_block("undecided") if k < count else after
                if more is not after:
                    self.builder.cbranch(bit, *((after, more) if stop else (more, after)))
                    self.builder.position_at_end(more)
                    beyond.enter_context(self.apart())
        self.builder.branch(after)
        self.builder.position_at_end(after)
        decided = self.builder.phi(_I1)
        for bit, block in found:
            decided.add_incoming(bit, block)
        return decided

    # ------------------------------------------------------------ calls

    def of_apply(self, e: Apply) -> Any:
        """An index is computed once: addresses differ by numbers, and each instruction is made, printed and read."""
        if e.variables is None or not e.variables <= self.direct:
            return self.applied(e)
        found = self.indices.get(e.number)
        if found is None:
            found = self.indices[e.number] = self.applied(e)
            self.made[-1].append(e.number)
        return found

    def applied(self, e: Apply) -> Any:
        # What is stored is computed before the place that it goes to, as Python does.
        stored = [self.value(e.operands[-1])] if e.function is operator.setitem else []
        values = [*map(self.value, e.operands[: len(e.operands) - len(stored)]), *stored]
        return self.apply(e.function, e.signature, [(v, x.kind) for v, x in zip(values, e.operands, strict=True)])

    def apply(self, function: Any, signature: Any, operands: Sequence[tuple[Any, Any]]) -> Any:
        """What the rule of ``function`` makes of operands (value, type)."""
        rule = rule_of(function)
        assert rule is not None, "it has been typed"
        values = [self.cast(v, k, wanted) for (v, k), wanted in zip(operands, signature.args, strict=True)]
        return rule.lower(CONTEXT, self.builder, signature, values)

    def cast(self, value: Any, kind: Any, wanted: Any) -> Any:
        if kind is wanted:
            return value
        try:
            return CONTEXT.cast(self.builder, value, kind, wanted)
        except TypeError as reason:
            raise NotStructured(str(reason)) from None


_STATEMENTS: dict[type, Callable[[_Walk, Any], Any]] = {
    Apply: _Walk.of_apply, Loop: _Walk.do_loop, Meanwhile: _Walk.do_while, Test: _Walk.do_test,
    Set: lambda walk, s: walk.assign(s.name, walk.value(s.value)),
    Break: lambda walk, s: walk.builder.branch(walk.loops[-1][1]),
    Continue: lambda walk, s: walk.do_continue(),
    Pass: lambda walk, s: None, Return: lambda walk, s: walk.leave(),
}  # fmt: skip
_EXPRESSIONS: dict[type, Callable[[_Walk, Any], Any]] = {
    Apply: _Walk.of_apply, Link: _Walk.of_link,
    Constant: lambda walk, e: ir.Constant(CONTEXT.get_value_type(types.unliteral(e.kind)), e.value),
    First: lambda walk, e: walk.chain(map(walk.value, e.operands), len(e.operands), e.stop),
    Argument: lambda walk, e: walk.given[e.name],
    Variable: _Walk.variable,
}  # fmt: skip
