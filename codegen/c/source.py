"""A kernel as C11: loops as loops, each value of its own type, library functions beside it.

    void kernel(int64_t begin, int64_t end, T *restrict x, …)      the tasks begin <= task < end over the kernel's buffers

The buffers come in the order of the kernel's parameters; none overlaps another. A bool, a float or an integer of a byte and less
is stored in a byte, a bfloat16 or float16 in two, a complex number as a pair. The text stands alone: it needs C's standard
headers, and of the compiler the extensions that GCC and Clang share (vector types, accesses that may alias).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from llvmlite import ir

from codegen.c.functions import c_function, integer, number
from codegen.c.types import HEADER, NoForm, Types, number_type
from codegen.forks import compiling
from codegen.kernel import types
from codegen.kernel.ir import Break, Continue, Kernel, Pass, Return
from codegen.kernel.print_numba import described
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
    TypedKernel,
    TypedStatement,
    Variable,
    typed,
)
from codegen.lib import NAMESPACE, threads
from codegen.lib.buffer import Buf, greatest, least
from codegen.lib.operators import CONVERSIONS, rule_of, signature_of
from codegen.lib.register import CONTEXT
from codegen.target import Target, default_target, use_target
from hlo.errors import Declined
from hlo.types import ELEMENT_TYPES

__all__ = ["ARM_INSTRUCTIONS", "INSTRUCTIONS", "c_source"]

INSTRUCTIONS = frozenset(
    "avx avx2 avx512bw avx512cd avx512dq avx512f avx512vl bmi bmi2 f16c fma lzcnt popcnt sse3 sse4.1 sse4.2 ssse3".split()
)
"""Those of x86-64 that a C compiler uses by itself, by the name that its options have."""
ARM_INSTRUCTIONS = frozenset({"dotprod", "i8mm"})
"""Those of 64-bit Arm that kernels in C name."""

_KEYWORDS = frozenset(
    "auto bool break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm main".split()
)
_BINARY = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    operator.lshift: "<<", operator.rshift: ">>", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.eq: "==", operator.ne: "!=", operator.truediv: "/",
}  # fmt: skip
_UNARY = {operator.neg: "-", operator.pos: "+", operator.invert: "~", operator.not_: "!"}
_OF_INDICES = {operator.floordiv: "tw_div", operator.mod: "tw_mod", least: "tw_min", greatest: "tw_max"}
_PLAIN = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"})


def c_source(kernel: Kernel, target: Target | None = None) -> str | Declined:
    """The C of a kernel whose parameters have element types, or why there is none: what of it has no form in C.

    The library's functions are written for `target` (the default one): whether a product and a sum are fused, and how wide
    vectors are. What is compiled with its instructions and without fast mathematics computes what the kernel for `target` does,
    except that sums and other reductions are taken in order.

    >>> from codegen.kernel.parse import parse
    >>> kernel = parse('''def kernel(begin, end, y, x):
    ...     \"\"\"twice
    ...
    ...     y: result f32[8]
    ...     x: argument f32[8]
    ...     \"\"\"
    ...     for t in range(begin, end):
    ...         y[t] = (x[t] * float32(2.0))
    ... ''')
    >>> text = c_source(kernel)
    >>> print(text[text.index("/* twice"):])
    /* twice
    <BLANKLINE>
       y: result f32[8]
       x: argument f32[8]
     */
    void kernel(int64_t begin, int64_t end, float *restrict y, float *restrict x) {
        for (int64_t t = begin; t < end; t += 1) {
            y[t] = x[t] * 0x1.0000000000000p+1f;
        }
    }
    <BLANKLINE>
    """
    target = _in_c(target or default_target())
    try:
        return _Printer(kernel, target).text()
    except NoForm as reason:
        return reason.declined
    except NotStructured as reason:
        return Declined(str(reason))


def _in_c(target: Target) -> Target:
    """The target without the instructions that C has no operation for.

    Numbers of 16 bits are converted, and bytes multiplied and added but by `ARM_INSTRUCTIONS`, by integer arithmetic: it gives
    the same bits.
    """
    features = ",".join(f for f in target.features.split(",") if f[1:] in INSTRUCTIONS | ARM_INSTRUCTIONS)
    return replace(target, features=features, has_f16=False, vector_bytes=16 if target.sve_bytes else target.vector_bytes)


class _Printer:
    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.types = Types()
        self.functions: dict[tuple[Any, ...], tuple[str, str]] = {}  # name, definition
        self.taken: set[str] = set()
        self.lines: list[str] = []
        self.depth = 1
        for p in kernel.parameters:
            if p.element not in ELEMENT_TYPES:
                raise NoForm(f"buffer {p.name} of {p.element or 'no known type'}")

    def text(self) -> str:
        buffers = [Buf(ELEMENT_TYPES[p.element].dtype.name, p.name, 64) for p in self.kernel.arguments]
        namespace = {**NAMESPACE, **threads.NAMESPACE}
        with compiling, use_target(self.target):
            made = typed(self.kernel, [types.int64, types.int64, *buffers], namespace, signature_of)
            self.made = made
            self.names = {n: f"{n}_" if n in _KEYWORDS else n for n in (*(a for a, _ in made.arguments), *made.variables)}
            self.taken = set(self.names.values())
            self.counters = _counters(made)
            self.declare_at = _declarations(made, self.counters)
            self.block(made.body, ())
        body = "\n".join(self.lines)
        unread = [self.names[a] for a, _ in made.arguments if not re.search(rf"\b{self.names[a]}\b", body)]
        self.lines[:0] = [f"    (void){n};" for n in unread]  # (a task that is the only one asks for no bounds)
        return "\n".join([HEADER, *self.types.definitions.values(), *(f for _, f in self.functions.values()), "", *self.head(),
                          *self.lines, "}", ""])  # fmt: skip

    def head(self) -> Iterator[str]:
        yield f"/* {self.kernel.title}"
        yield ""
        yield from (f"   {described(p)}" for p in self.kernel.parameters)
        yield " */"
        bounds, buffers = self.made.arguments[:2], self.made.arguments[2:]
        given = [f"int64_t {self.names[n]}" for n, _ in bounds]
        given += [f"{self.element(kind)} *restrict {self.names[n]}" for n, kind in buffers]
        yield f"void {self.kernel.name}({', '.join(given)}) {{"

    def element(self, kind: Buf) -> str:
        """The type that a buffer's elements are stored in."""
        stored = kind.element_type
        name = self.types.of(stored)
        return f"u{name}" if kind.dtype.startswith("uint") else name

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # ------------------------------------------------------------ statements

    def block(self, statements: Sequence[TypedStatement], path: tuple[int, ...]) -> None:
        for k, s in enumerate(statements):
            here = (*path, k)
            for name in self.declare_at.get(here, ()):
                if not (isinstance(s, Set) and s.name == name):
                    self.line(f"{self.type_of(self.made.variables[name])}{self.names[name]};")
            _STATEMENTS[type(s)](self, s, here)

    def type_of(self, kind: Any) -> str:
        return f"{self.element(kind)} *" if isinstance(kind, Buf) else f"{number_type(kind, self.types)} "

    def do_set(self, s: Set, here: tuple[int, ...]) -> None:
        kind = self.made.variables[s.name]
        declared = self.type_of(kind) if s.name in self.declare_at.get(here, ()) else ""
        self.line(f"{declared}{self.names[s.name]} = {self.converted(s.value, kind)};")

    def do_loop(self, s: Loop, here: tuple[int, ...]) -> None:
        start, stop = self.value(s.start), self.value(s.stop)
        name = self.names[s.variable]
        own = s.variable in self.counters
        # The range is found out once.
        fixed = not (_read(s.stop) & _assigned(s.body)) and not _loads(s.stop)
        counter = name if own else f"{name}_at"
        end = "" if fixed else f", {name}_stop = {stop}"
        limit = stop if fixed else f"{name}_stop"
        before = "<" if s.step > 0 else ">"
        self.line(f"for (int64_t {counter} = {start}{end}; {counter} {before} {limit}; {counter} += {s.step}) {{")
        self.depth += 1
        if not own:
            self.line(f"{name} = {counter};")
        self.block(s.body, (*here, 0))
        self.depth -= 1
        self.line("}")

    def do_while(self, s: Meanwhile, here: tuple[int, ...]) -> None:
        self.line(f"while ({self.value(s.test)}) {{")
        self.depth += 1
        self.block(s.body, (*here, 0))
        self.depth -= 1
        self.line("}")

    def do_test(self, s: Test, here: tuple[int, ...]) -> None:
        self.line(f"if ({self.value(s.test)}) {{")
        self.depth += 1
        self.block(s.then, (*here, 0))
        self.depth -= 1
        if s.otherwise:
            self.line("} else {")
            self.depth += 1
            self.block(s.otherwise, (*here, 1))
            self.depth -= 1
        self.line("}")

    def do_apply(self, s: Apply, here: tuple[int, ...]) -> None:
        if s.function is operator.setitem:
            buffer, index, value = s.operands
            assert isinstance(buffer.kind, Buf)
            if buffer.kind.dtype in _PLAIN:
                self.line(f"{self.value(buffer)}[{self.value(index)}] = {self.converted(value, s.signature.args[2])};")
                return
        self.line(f"{self.of_apply(s)};")

    # ------------------------------------------------------------ expressions

    def value(self, e: TypedExpression) -> str:
        made: str = _EXPRESSIONS[type(e)](self, e)
        return made

    def inner(self, e: TypedExpression) -> str:
        """An operand, in parentheses where it is an operation."""
        text = self.value(e)
        return f"({text})" if not _is_atom(e) else text

    def converted(self, e: TypedExpression, wanted: Any) -> str:
        """The value as another type of number."""
        kind, wanted = types.unliteral(e.kind), types.unliteral(wanted)
        if kind == wanted:
            return self.value(e)
        if isinstance(wanted, types.Complex):
            raise NoForm(f"{kind} as {wanted}")
        if isinstance(e, Constant):
            return _literal(e.value, wanted)
        if isinstance(wanted, types.Boolean):
            return f"({self.inner(e)} != 0)"
        return f"({number_type(wanted, self.types)}){self.inner(e)}"

    def of_name(self, e: Argument | Variable) -> str:
        return self.names[e.name]

    def of_first(self, e: First) -> str:
        return (" || " if e.stop else " && ").join([self.inner(x) for x in e.operands])

    def of_link(self, e: Link) -> str:
        left, parts = e.first, []
        for function, signature, right in e.links:
            parts.append(f"({self.of_apply(Apply(function, signature, (left, right)))})")
            left = right
        return " && ".join(parts)

    def of_apply(self, e: Apply) -> str:
        function, wanted = e.function, e.signature.args
        kinds = [types.unliteral(k) for k in wanted]
        numbers = all(isinstance(k, types.Integer | types.Float | types.Boolean) for k in kinds)
        if function is operator.getitem and isinstance(kinds[0], Buf) and kinds[0].dtype in _PLAIN:
            return f"{self.inner(e.operands[0])}[{self.value(e.operands[1])}]"
        if function in CONVERSIONS:
            return self.converted(e.operands[0], e.kind)
        indices = all(k == types.int64 for k in kinds)
        if function in _OF_INDICES and indices:
            return f"{_OF_INDICES[function]}({', '.join(self.converted(x, k) for x, k in zip(e.operands, wanted, strict=True))})"
        if numbers and function in _UNARY and types.unliteral(e.kind) == kinds[0]:
            return f"{_UNARY[function]}{self.part(e.operands[0], kinds[0])}"
        one_type = len(set(kinds)) == 1 and types.unliteral(e.kind) in (kinds[0], types.boolean)
        is_division = function is operator.truediv and not isinstance(kinds[0], types.Float)
        if numbers and function is operator.lshift and one_type and isinstance(kinds[0], types.Integer) and kinds[0].signed:
            # C leaves it open what the shift of a negative number is.
            name = number_type(kinds[0], self.types)
            return f"({name})((u{name}){self.part(e.operands[0], kinds[0])} << {self.part(e.operands[1], kinds[1])})"
        if numbers and function in _BINARY and one_type and not is_division:
            return f"{self.part(e.operands[0], kinds[0])} {_BINARY[function]} {self.part(e.operands[1], kinds[1])}"
        return self.library(e)

    def part(self, e: TypedExpression, wanted: Any) -> str:
        text = self.converted(e, wanted)
        return text if _is_atom(e) else f"({text})"

    # ------------------------------------------------------------ the library

    def library(self, e: Apply) -> str:
        """A call of a library function, which is written beside the kernel when it is first called."""
        signature = e.signature
        kinds = [Buf(k.dtype, "", k.align) if isinstance(k, Buf) else k for k in signature.args]
        key = (e.function, *kinds)
        if key not in self.functions:
            name = self.fresh(e.function.__name__, kinds)
            self.functions[key] = name, self.definition(name, e, kinds)
        passed = [(x, k) for x, k in zip(e.operands, kinds, strict=True) if not isinstance(k, types.Literal)]
        arguments = [self.value(x) if isinstance(k, Buf) else self.converted(x, k) for x, k in passed]
        return f"{self.functions[key][0]}({', '.join(arguments)})"

    def fresh(self, function: str, kinds: Sequence[Any]) -> str:
        """`exp_f32`: a name for a function of these types, one that nothing else has."""
        words = [k.dtype if isinstance(k, Buf) else _short(k) for k in kinds if not isinstance(k, types.Literal)]
        stem = "_".join([function, *dict.fromkeys(words)])
        name, k = stem, 1
        while name in self.taken:
            k += 1
            name = f"{stem}_{k}"
        self.taken.add(name)
        return name

    def definition(self, name: str, e: Apply, kinds: Sequence[Any]) -> str:
        returns = e.signature.return_type
        is_void = isinstance(returns, types.NoneType)
        llvm = CONTEXT.get_value_type
        passed = [llvm(k) for k in kinds if not isinstance(k, types.Literal)]
        module = ir.Module(name)
        function = ir.Function(module, ir.FunctionType(ir.VoidType() if is_void else llvm(returns), passed), name)
        builder = ir.IRBuilder(function.append_basic_block())
        given = iter(function.args)
        values = [
            ir.Constant(llvm(types.unliteral(k)), k.literal_value) if isinstance(k, types.Literal) else next(given) for k in kinds
        ]
        rule = rule_of(e.function)
        assert rule is not None, "it has been typed"
        made = rule.lower(CONTEXT, builder, e.signature, values)
        if is_void:
            builder.ret_void()
        else:
            builder.ret(made)
        try:
            return c_function(function, name, "void" if is_void else self.type_of(returns).rstrip(), self.types)
        except NoForm as reason:
            raise NoForm(f"{e.function.__name__}: {reason}") from None


def _short(kind: Any) -> str:
    name = str(types.unliteral(kind))
    return name.replace("float", "f").replace("uint", "u").replace("int", "i").replace("boolean", "b").replace("bool", "b")


def _literal(value: bool | int | float, kind: Any) -> str:
    kind = types.unliteral(kind)
    if isinstance(kind, types.Float):
        return number(float(value), kind.bitwidth == 32)
    if isinstance(kind, types.Boolean):
        return "true" if value else "false"
    if kind == types.int64 and abs(value) < 1 << 31:
        return str(value) if value >= 0 else f"({value})"
    text = integer(int(value), kind.bitwidth)
    return text if kind.signed else f"({number_type(kind, Types())}){text}"


def _is_atom(e: TypedExpression) -> bool:
    if isinstance(e, Apply):
        if isinstance(e.function, type):  # a conversion; a literal becomes one of the other type
            return isinstance(e.operands[0], Constant)
        return e.function not in _BINARY and e.function not in _UNARY
    return not isinstance(e, First | Link)


# ---------------------------------------------------------------- where variables are declared


def _inside(e: TypedExpression) -> Iterator[TypedExpression]:
    yield e
    if isinstance(e, Apply | First):
        for x in e.operands:
            yield from _inside(x)
    elif isinstance(e, Link):
        yield from _inside(e.first)
        for _, _, x in e.links:
            yield from _inside(x)


def _read(e: TypedExpression) -> set[str]:
    return {x.name for x in _inside(e) if isinstance(x, Variable)}


def _loads(e: TypedExpression) -> bool:
    return any(isinstance(x, Apply) and x.function is operator.getitem for x in _inside(e))


def _parts(s: TypedStatement) -> tuple[Sequence[TypedExpression], Sequence[Sequence[TypedStatement]]]:
    """The expressions of a statement itself, and the blocks inside it."""
    if isinstance(s, Set):
        return (s.value,), ()
    if isinstance(s, Apply):
        return (s,), ()
    if isinstance(s, Loop):
        return (s.start, s.stop), (s.body,)
    if isinstance(s, Meanwhile):
        return (s.test,), (s.body,)
    return ((s.test,), (s.then, s.otherwise)) if isinstance(s, Test) else ((), ())


def _assigned(statements: Iterable[TypedStatement]) -> set[str]:
    found: set[str] = set()
    for s in statements:
        if isinstance(s, Set | Loop):
            found.add(s.name if isinstance(s, Set) else s.variable)
        for block in _parts(s)[1]:
            found |= _assigned(block)
    return found


def _counters(kernel: TypedKernel) -> set[str]:
    """The variables that loops alone assign, and that are read inside those loops alone: each loop has one of its own."""
    found: set[str] = set()
    others: set[str] = set()

    def visit(statements: Iterable[TypedStatement], around: frozenset[str]) -> None:
        for s in statements:
            expressions, blocks = _parts(s)
            for e in expressions:
                others.update(_read(e) - around)
            if isinstance(s, Set):
                others.add(s.name)
            inner = around
            if isinstance(s, Loop):
                (others if s.variable in around else found).add(s.variable)
                inner = around | {s.variable}
            for block in blocks:
                visit(block, inner)

    visit(kernel.body, frozenset())
    return found - others


def _declarations(kernel: TypedKernel, counters: set[str]) -> dict[tuple[int, ...], list[str]]:
    """The statement, by its place in the tree, before (or at) which each variable is declared: in the smallest block that
    holds all that reads or assigns it. Loops declare their `counters`."""
    places: dict[str, tuple[int, ...]] = {}

    def meet(name: str, at: tuple[int, ...]) -> None:
        known = places.get(name)
        if known is None:
            places[name] = at
            return
        # Paths are statement, block, statement, …: what they share, then the first one's statement in that block.
        shared = 0
        while shared + 2 <= min(len(known), len(at)) - 1 and known[: shared + 2] == at[: shared + 2]:
            shared += 2
        places[name] = known[: shared + 1]

    def visit(statements: Sequence[TypedStatement], path: tuple[int, ...]) -> None:
        for k, s in enumerate(statements):
            here = (*path, k)
            for e in _parts(s)[0]:
                for name in sorted(_read(e)):
                    meet(name, here)
            if isinstance(s, Set):
                meet(s.name, here)
            elif isinstance(s, Loop):
                meet(s.variable, here)
            for b, block in enumerate(_parts(s)[1]):
                visit(block, (*here, b))

    visit(kernel.body, ())
    made: dict[tuple[int, ...], list[str]] = {}
    for name, at in places.items():
        if name in counters:
            continue
        made.setdefault(at, []).append(name)
    return made


_STATEMENTS: dict[type, Callable[[_Printer, Any, tuple[int, ...]], None]] = {
    Set: _Printer.do_set, Apply: _Printer.do_apply, Loop: _Printer.do_loop, Meanwhile: _Printer.do_while, Test: _Printer.do_test,
    Pass: lambda printer, s, here: None, Break: lambda printer, s, here: printer.line("break;"),
    Continue: lambda printer, s, here: printer.line("continue;"), Return: lambda printer, s, here: printer.line("return;"),
}  # fmt: skip
_EXPRESSIONS: dict[type, Callable[[_Printer, Any], str]] = {
    Constant: lambda printer, e: _literal(e.value, e.kind), Argument: _Printer.of_name, Variable: _Printer.of_name,
    First: _Printer.of_first, Link: _Printer.of_link, Apply: _Printer.of_apply,
}  # fmt: skip
