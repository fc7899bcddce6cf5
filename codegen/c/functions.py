"""A function of the kernel library in C, from the LLVM that it is lowered to.

The library says what a function computes in one way, by the LLVM instructions that stand for it (`codegen.lib`); here they become
C, instruction by instruction, vectors as the vectors that GCC and Clang share. What has no form, such as an instruction of one
CPU, raises `NoForm` with its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import instructions as op

from codegen.c.types import NoForm, Types, is_vector, lanes_of

__all__ = ["c_function"]

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/",
}  # fmt: skip
_SIGNED = {"sdiv": "/", "srem": "%", "ashr": ">>"}
_UNSIGNED = {"udiv": "/", "urem": "%", "lshr": ">>", "shl": "<<"}
_ICMP = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_MATH = {
    "fma": "fma", "sqrt": "sqrt", "fabs": "fabs", "floor": "floor", "ceil": "ceil", "rint": "rint", "nearbyint": "rint",
    "round": "round", "trunc": "trunc", "copysign": "copysign",
}  # fmt: skip
_DOTS = {
    "sdot": ("__ARM_FEATURE_DOTPROD", "int", "int"), "udot": ("__ARM_FEATURE_DOTPROD", "uint", "uint"),
    "usdot": ("__ARM_FEATURE_MATMUL_INT8", "uint", "int"), "smmla": ("__ARM_FEATURE_MATMUL_INT8", "int", "int"),
    "ummla": ("__ARM_FEATURE_MATMUL_INT8", "uint", "uint"), "usmmla": ("__ARM_FEATURE_MATMUL_INT8", "uint", "int"),
}  # fmt: skip
"""What tells C that there is the instruction, and the kinds of its factors."""
_I1 = ir.IntType(1)


def c_function(function: Any, name: str, returns: str, types: Types) -> str:
    """The definition of an `ir.Function` as a C function `name` that gives `returns`. Raises NoForm."""
    return _Function(function, types).text(name, returns)


def _read(function: Any) -> set[Any]:
    """The instructions that do something (store, call, jump, return) and those whose values they read: the others have no C,
    where a compiler would warn of variables that are set and never used."""
    found: set[Any] = set()
    left = [
        i for b in function.blocks for i in b.instructions
        if isinstance(i.type, ir.VoidType) or isinstance(i, op.CallInstr | op.AtomicRMW | op.CmpXchg)
    ]  # fmt: skip
    while left:
        i = left.pop()
        if i not in found and isinstance(i, op.Instruction):
            found.add(i)
            left += [v for v, _ in i.incomings] if isinstance(i, op.PhiInstr) else i.operands
    return found


class _Function:
    def __init__(self, function: Any, types: Types) -> None:
        self.function, self.types = function, types
        self.names: dict[Any, str] = {}
        self.labels: dict[Any, str] = {b: f"L{k}" for k, b in enumerate(function.blocks)}
        self.declared: list[str] = []
        self.block: Any = None

    def text(self, name: str, returns: str) -> str:
        given = []
        for k, a in enumerate(self.function.args):
            self.names[a] = f"a{k}"
            given.append(f"{self.types.of(a.type)} a{k}")
        read = _read(self.function)
        phis = [i for b in self.function.blocks for i in b.instructions if isinstance(i, op.PhiInstr) and i in read]
        # A value is declared where it is made; what is made in one block of several and may be read in another, at the start.
        straight = len(self.function.blocks) == 1
        lines: list[str] = []
        for k, i in enumerate(phis):
            self.names[i] = f"p{k}"
            self.declared.append(f"{self.types.of(i.type)} p{k}, n{k};")
        self.phis = {i: f"n{k}" for k, i in enumerate(phis)}
        count = 0
        for number, b in enumerate(self.function.blocks):
            self.block = b
            if number:  # (no block jumps to the first one)
                lines.append(f"{self.labels[b]}:;")
            lines += [f"    {self.names[i]} = {self.phis[i]};" for i in b.instructions if i in self.phis]
            for i in b.instructions:
                if isinstance(i, op.PhiInstr) or i not in read:
                    continue
                made = self.instruction(i)
                if made is None:
                    continue
                if isinstance(made, list):
                    lines += [f"    {x}" for x in made]
                    continue
                self.names[i] = f"v{count}"
                count += 1
                if straight:
                    lines.append(f"    {self.types.of(i.type)} {self.names[i]} = {made};")
                else:
                    self.declared.append(f"{self.types.of(i.type)} {self.names[i]};")
                    lines.append(f"    {self.names[i]} = {made};")
        head = f"static inline {returns} {name}({', '.join(given) or 'void'}) {{"
        return "\n".join([head, *(f"    {d}" for d in self.declared), *lines, "}"])

    # ------------------------------------------------------------ values

    def of(self, v: Any) -> str:
        if isinstance(v, ir.Constant):
            return self.constant(v.type, v.constant)
        if isinstance(v, ir.GlobalVariable):
            return self.table(v)
        found = self.names.get(v)
        if found is None:
            raise NoForm(f"LLVM's value {v}")
        return found

    def table(self, v: Any) -> str:
        """A table of constants."""
        kind = v.value_type
        if not v.global_constant or not isinstance(kind, ir.ArrayType) or not isinstance(v.initializer, ir.Constant):
            raise NoForm(f"LLVM's global {v.name}")
        name = "".join(c if c.isalnum() else "_" for c in v.name)
        parts = ", ".join(self.constant(kind.element, getattr(x, "constant", x)) for x in v.initializer.constant)
        self.types.definitions.setdefault(name, f"static const {self.types.of(kind.element)} {name}[{kind.count}] = {{{parts}}};")
        return name

    def constant(self, kind: Any, value: Any) -> str:
        if value is None or value is ir.Undefined:
            value = 0 if not is_vector(kind) else [0] * kind.count
        if is_vector(kind):
            if isinstance(value, str):
                raise NoForm(f"LLVM's constant {value}")
            parts = [v.constant if isinstance(v, ir.Constant) else v for v in value]
            parts = [0 if p is None or p is ir.Undefined else p for p in parts]
            if kind.element == _I1:
                lanes = ", ".join("-1" if p else "0" for p in parts)
            else:
                lanes = ", ".join(self.constant(kind.element, p) for p in parts)
            return f"(({self.types.of(kind)}){{{lanes}}})"  # in parentheses: a macro would take its commas for its own
        if isinstance(kind, ir.LiteralStructType):
            parts = [0] * len(kind.elements) if value == 0 else value
            inner = [p.constant if isinstance(p, ir.Constant) else p for p in parts]
            made = ", ".join(self.constant(e, p) for e, p in zip(kind.elements, inner, strict=True))
            return f"({self.types.of(kind)}){{{made}}}"
        if isinstance(kind, ir.PointerType):
            return f"(({self.types.of(kind)})0)"
        if isinstance(kind, ir.IntType):
            return integer(int(value), kind.width)
        return number(float(value), isinstance(kind, ir.FloatType))

    def cast(self, kind: Any, text: str) -> str:
        return f"({self.types.of(kind)})({text})"

    def unsigned(self, kind: Any) -> str:
        """The unsigned type of an integer's, or of a vector's of integers."""
        if not is_vector(kind):
            return f"u{self.types.of(kind)}" if kind != _I1 else "bool"
        name = "u" + self.types.of(kind)
        size = kind.count * kind.element.width // 8
        self.types.definitions.setdefault(
            name, f"typedef uint{kind.element.width}_t {name} __attribute__((vector_size({size})));"
        )
        return name

    # ------------------------------------------------------------ instructions

    def instruction(self, i: Any) -> str | list[str] | None:
        """An expression, statements, or nothing."""
        if isinstance(i, op.Ret):
            return self.leave(i)
        if isinstance(i, op.ConditionalBranch):
            test, then, other = i.operands
            return [f"if ({self.of(test)}) {{ {self.go(then)} }} else {{ {self.go(other)} }}"]
        if isinstance(i, op.Branch):
            return [self.go(i.operands[0])]
        if isinstance(i, op.SwitchInstr):
            cases = " ".join(f"case {self.of(v)}: {self.go(b)}" for v, b in i.cases)
            return [f"switch ({self.of(i.value)}) {{ {cases} default: {self.go(i.default)} }}"]
        if isinstance(i, op.Unreachable):
            return ["__builtin_unreachable();"]
        if isinstance(i, op.Fence):
            return ["__sync_synchronize();"]
        for kind, rule in _RULES.items():
            if isinstance(i, kind):
                made: str | list[str] = rule(self, i)
                return made
        return self.arithmetic(i)

    def leave(self, i: Any) -> list[str]:
        return ["return;" if not i.operands else f"return {self.of(i.operands[0])};"]

    def go(self, block: Any) -> str:
        """A jump, with what the block's values from several places become on this way."""
        moves = []
        for i in block.instructions:
            if i in self.phis:
                (value,) = [v for v, b in i.incomings if b is self.block]
                moves.append(f"{self.phis[i]} = {self.of(value)};")
        return " ".join([*moves, f"goto {self.labels[block]};"])

    def arithmetic(self, i: Any) -> str:
        name, kind = i.opname, i.type
        x = self.of(i.operands[0])
        if name == "fneg":
            return f"-{x}"
        if len(i.operands) != 2:
            raise NoForm(f"LLVM's {name}")
        y = self.of(i.operands[1])
        element = kind.element if is_vector(kind) else kind
        if element == _I1:
            infix = {"and": "&", "or": "|", "xor": "^"}.get(name)
            if infix is None:
                raise NoForm(f"LLVM's {name} of bits")
            return self.cast(kind, f"{x} {infix} {y}") if not is_vector(kind) else f"{x} {infix} {y}"
        if name == "frem":
            return self.each(kind, lambda a, b: f"fmod{self.tail(element)}({a}, {b})", [x, y])
        if name in _UNSIGNED:
            u = self.unsigned(kind)
            return self.cast(kind, f"({u}){x} {_UNSIGNED[name]} ({u}){y}")
        infix = _INFIX.get(name) or _SIGNED.get(name)
        if infix is None:
            raise NoForm(f"LLVM's {name}")
        if isinstance(element, ir.IntType) and name in ("add", "sub", "mul"):
            u = self.unsigned(kind)
            return self.cast(kind, f"({u}){x} {infix} ({u}){y}")
        made = f"{x} {infix} {y}"
        return made if is_vector(kind) or isinstance(element, ir.FloatType | ir.DoubleType) else self.cast(kind, made)

    def tail(self, element: Any) -> str:
        return "f" if isinstance(element, ir.FloatType) else ""

    def each(self, kind: Any, make: Callable[..., str], parts: Sequence[str]) -> str:
        """A function of numbers, of each lane of vectors."""
        if not is_vector(kind):
            return make(*parts)
        lanes = [make(*(f"{p}[{k}]" for p in parts)) for k in range(kind.count)]
        return f"({self.types.of(kind)}){{{', '.join(lanes)}}}"

    def compare(self, i: Any) -> str:
        x, y = (self.of(v) for v in i.operands)
        kind = i.operands[0].type
        if isinstance(i, op.FCMPInstr):
            test = _float_test(i.op)
        else:
            sign, word = (i.op[0], i.op[1:]) if i.op[0] in "us" else ("s", i.op)
            symbol = _ICMP[word]
            if isinstance(kind, ir.PointerType):
                return f"{x} {symbol} {y}"
            u = self.unsigned(kind.element if is_vector(kind) else kind) if sign == "u" else ""
            cast = f"({u})" if u else ""

            def test(a: str, b: str) -> str:
                return f"{cast}{a} {symbol} {cast}{b}"

        if not is_vector(kind):
            return f"({test(x, y)})"
        lanes = [f"-({test(f'{x}[{k}]', f'{y}[{k}]')})" for k in range(kind.count)]
        return f"({self.types.of(i.type)}){{{', '.join(lanes)}}}"

    def select(self, i: Any) -> str:
        test, x, y = (self.of(v) for v in i.operands)
        if not is_vector(i.operands[0].type):
            return f"tw_select({test}, {x}, {y})"
        lanes = [f"tw_select({test}[{k}], {x}[{k}], {y}[{k}])" for k in range(i.type.count)]
        return f"({self.types.of(i.type)}){{{', '.join(lanes)}}}"

    def convert(self, i: Any) -> str | list[str]:
        name, source, kind = i.opname, i.operands[0].type, i.type
        x = self.of(i.operands[0])
        if name == "bitcast":
            if isinstance(kind, ir.PointerType):
                return self.cast(kind, x)
            if is_vector(kind) and is_vector(source):
                return f"({self.types.of(kind)}){x}"
            return self.pun(source, kind, x)
        if name in ("ptrtoint", "inttoptr"):
            return self.cast(kind, f"(intptr_t){x}")
        from_bits = (source.element if is_vector(source) else source) == _I1
        element = kind.element if is_vector(kind) else kind
        if name not in ("trunc", "zext", "sext", "fptrunc", "fpext", "fptosi", "fptoui", "sitofp", "uitofp"):
            raise NoForm(f"LLVM's {name}")

        def one(a: str) -> str:
            if name == "trunc" and element == _I1:
                return f"(({a}) & 1)"
            if from_bits and is_vector(source):
                a = f"-({a})" if name in ("zext", "uitofp") else f"({a})"
            elif from_bits and name in ("sext", "sitofp"):
                a = f"-(int)({a})"
            elif name in ("zext", "uitofp") and not from_bits:
                a = f"({self.unsigned(source.element if is_vector(source) else source)})({a})"
            if name == "fptoui":
                return f"({self.types.of(element)})({self.unsigned(element)})({a})"
            return f"({self.types.of(element)})({a})"

        if is_vector(kind) and element == _I1:
            raise NoForm("a mask of truncated numbers")
        return self.each(kind, one, [x])

    def pun(self, source: Any, kind: Any, x: str) -> str:
        """The same bits as another type."""
        name = f"tw_bits_{self.types.short(source)}_{self.types.short(kind)}"
        a, b = self.types.of(source), self.types.of(kind)
        self.types.definitions.setdefault(
            name, f"static inline {b} {name}({a} x) {{ {b} y; memcpy(&y, &x, sizeof y); return y; }}"
        )
        return f"{name}({x})"

    def load(self, i: Any) -> str:
        if isinstance(i.type, ir.PointerType | ir.LiteralStructType):
            return f"*{self.of(i.operands[0])}"
        return f"*({self.types.access(i.type)} *){self.of(i.operands[0])}"

    def store(self, i: Any) -> list[str]:
        value, place = i.operands
        if isinstance(value.type, ir.PointerType | ir.LiteralStructType):
            return [f"*{self.of(place)} = {self.of(value)};"]
        return [f"*({self.types.access(value.type)} *){self.of(place)} = {self.of(value)};"]

    def place(self, i: Any) -> str:
        """The address of an element, or of a part of it."""
        base, first, *rest = i.operands
        kind = base.type.pointee
        if isinstance(base, ir.GlobalVariable) and isinstance(first, ir.Constant) and not first.constant and len(rest) == 1:
            return f"(({self.types.of(kind.element)} *){self.of(base)} + {self.of(rest[0])})"
        text = f"({self.of(base)} + {self.of(first)})"
        for k in rest:
            if not isinstance(kind, ir.LiteralStructType) or not isinstance(k, ir.Constant):
                raise NoForm(f"an address in LLVM's type {kind}")
            text = f"&{text}->e{k.constant}"
            kind = kind.elements[k.constant]
        return text

    def frame(self, i: Any) -> str:
        pointee = i.type.pointee
        if i.operands and not isinstance(i.operands[0], ir.Constant):
            raise NoForm("memory of unknown size in the frame")
        count = int(i.operands[0].constant) if i.operands else 1
        name = f"m{len(self.declared)}"
        self.declared.append(f"{self.types.of(pointee)} {name}[{count}];")
        return name

    def lane(self, i: Any) -> str:
        vector, k = i.operands
        made = f"{self.of(vector)}[{self.of(k)}]"
        return f"({made} != 0)" if i.type == _I1 else made

    def with_lane(self, i: Any) -> list[str]:
        vector, value, k = i.operands
        name = f"w{len(self.declared)}"
        self.declared.append(f"{self.types.of(i.type)} {name};")
        self.names[i] = name
        new = f"-{self.of(value)}" if i.type.element == _I1 else self.of(value)
        return [f"{name} = {self.of(vector)};", f"{name}[{self.of(k)}] = {new};"]

    def shuffle(self, i: Any) -> str:
        x, y, mask = i.operands
        count = lanes_of(x.type)
        chosen = mask.constant
        if chosen is None:
            chosen = [0] * i.type.count
        parts = [0 if m is ir.Undefined or getattr(m, "constant", m) in (None, ir.Undefined) else int(getattr(m, "constant", m))
                 for m in chosen]  # fmt: skip
        lanes = [f"{self.of(x)}[{m}]" if m < count else f"{self.of(y)}[{m - count}]" for m in parts]
        return f"({self.types.of(i.type)}){{{', '.join(lanes)}}}"

    def part(self, i: Any) -> str:
        return self.of(i.operands[0]) + "".join(f".e{k}" for k in i.indices)

    def with_part(self, i: Any) -> list[str]:
        name = f"w{len(self.declared)}"
        self.declared.append(f"{self.types.of(i.type)} {name};")
        self.names[i] = name
        whole, value = i.operands
        at = "".join(f".e{k}" for k in i.indices)
        return [f"{name} = {self.of(whole)};", f"{name}{at} = {self.of(value)};"]

    # ------------------------------------------------------------ calls

    def call(self, i: Any) -> str | list[str] | None:
        callee = i.callee
        if isinstance(callee, ir.InlineAsm):
            # No instruction: a value that the compiler is told not to know.
            if callee.asm == "" and len(i.args) == 1 and i.args[0].type == i.type:
                return self.of(i.args[0])
            raise NoForm(f"the instruction {callee.asm.split()[0] if callee.asm else callee.constraint}")
        name = callee.name
        if not name.startswith("llvm."):
            if name == "tilewright_interrupted":
                return "0"  # (who compiles C asks nobody)
            raise NoForm(f"a call of {name}")
        words = name.split(".")[1:]
        args = [self.of(a) for a in i.args]
        kind = i.type
        element = kind.element if is_vector(kind) else kind
        if words[0] in _MATH:
            return self.each(kind, lambda *a: f"{_MATH[words[0]]}{self.tail(element)}({', '.join(a)})", args)
        if words[0] == "ldexp":
            return self.each(kind, lambda a, n: f"tw_scaled_{self.types.short(element)}({a}, {n})", args)
        if words[0] in ("maximum", "minimum"):
            return self.each(kind, lambda a, b: f"tw_{words[0]}_{self.types.short(element)}({a}, {b})", args)
        if words[0] in ("smax", "smin", "umax", "umin"):
            u = f"({self.unsigned(element)})" if words[0][0] == "u" else ""
            less = "<" if words[0].endswith("min") else ">"
            return self.each(kind, lambda a, b: f"({u}{a} {less} {u}{b} ? {a} : {b})", args)
        if words[0] in ("fptosi", "fptoui") and words[1] == "sat":
            source = i.args[0].type.element if is_vector(kind) else i.args[0].type
            tag = f"{self.types.short(source)}_{words[0][4]}{element.width}"
            return self.each(kind, lambda a: self.cast(element, f"tw_clamped_{tag}({a})"), args)
        if words[0] in ("ctlz", "cttz", "ctpop"):
            u = self.unsigned(element)
            if words[0] == "ctpop":
                return self.each(kind, lambda a: self.cast(element, f"__builtin_popcountll(({u}){a})"), args)
            return self.each(kind, lambda a: self.cast(element, f"tw_{words[0]}(({u}){a}, {element.width})"), args[:1])
        if words[0] == "abs":
            return self.each(kind, lambda a: f"({a} < 0 ? -{a} : {a})", args[:1])
        if words[0] == "prefetch":
            return [f"__builtin_prefetch({args[0]});"]
        if words[:3] == ["x86", "sse", "sfence"]:
            return ["__sync_synchronize();"]
        if words[0] == "x86" and words[2:3] in (["pmadd"], ["pmaddw"]):  # (a short is an int before it is multiplied)
            x, y = args
            lanes = [" + ".join(f"{x}[{at}] * {y}[{at}]" for at in (2 * k, 2 * k + 1)) for k in range(kind.count)]
            return f"({self.types.of(kind)}){{{', '.join(lanes)}}}"
        if words[:2] == ["aarch64", "neon"] and words[2] in _DOTS:
            return f"{self.dot(words[2], kind, i.args[1].type)}({', '.join(args)})"
        if words[:2] == ["masked", "load"]:
            place, _, mask, other = args
            at = f"(({self.types.access(element)} *){place})"
            lanes = [f"{mask}[{k}] ? {at}[{k}] : {other}[{k}]" for k in range(kind.count)]
            return f"({self.types.of(kind)}){{{', '.join(lanes)}}}"
        if words[:2] == ["masked", "store"]:
            value, place, _, mask = args
            inner = i.args[0].type
            at = f"(({self.types.access(inner.element)} *){place})"
            return [f"if ({mask}[{k}]) {at}[{k}] = {value}[{k}];" for k in range(inner.count)]
        raise NoForm(f"LLVM's {name}")


    def dot(self, name: str, sums: Any, factors: Any) -> str:
        """The function of an instruction of Arm's that adds products of bytes: the instruction where the compiler may use it,
        else what it computes. Of matrices a lane is one of two rows by one of two columns, of eight bytes each."""
        total, given = self.types.of(sums), self.types.of(factors)
        feature, first, second = _DOTS[name]
        types = ", ".join(f"({t}8x16_t){x}" for t, x in ((first, "a"), (second, "b")))
        kind = "uint32x4_t" if (first, second) == ("uint", "uint") else "int32x4_t"
        squares = name.endswith("mmla")
        verb = f"{'us' if first != second else ''}{'mmla' if squares else 'dot'}"
        intrinsic = f"v{verb}q_{'u' if kind[0] == 'u' else 's'}32"
        at = ("k / 8", "k / 16 * 8 + k % 8", "k % 16", 32) if squares else ("k / 4", "k", "k", 16)
        head = f"static inline {total} tw_{name}({total} c, {given} a, {given} b) {{"
        self.types.definitions.setdefault(f"tw_{name}", f"""#ifdef {feature}
#include <arm_neon.h>
{head} return ({total}){intrinsic}(({kind})c, {types}); }}
#else
{head}
    for (int k = 0; k < {at[3]}; k++) c[{at[0]}] += ({first}8_t)a[{at[1]}] * ({second}8_t)b[{at[2]}];
    return c;
}}
#endif""")
        return f"tw_{name}"


def _float_test(name: str) -> Callable[[str, str], str]:
    if name == "ord":
        return lambda a, b: f"{a} == {a} && {b} == {b}"
    if name == "uno":
        return lambda a, b: f"{a} != {a} || {b} != {b}"
    symbol = _ICMP[name[1:]]
    # An unordered comparison is the opposite of the ordered opposite.
    if name == "une" or (name[0] == "o" and name != "one"):
        return lambda a, b: f"{a} {symbol} {b}"
    if name == "one":
        return lambda a, b: f"{a} < {b} || {a} > {b}"
    if name == "ueq":
        return lambda a, b: f"!({a} < {b} || {a} > {b})"
    opposite = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}[symbol]
    return lambda a, b: f"!({a} {opposite} {b})"


def integer(value: int, bits: int) -> str:
    """A literal of an integer of so many bits.

    >>> integer(-2147483648, 32), integer(7, 64), integer(255, 8)
    ('(-2147483647 - 1)', 'INT64_C(7)', '(-1)')
    """
    value &= (1 << bits) - 1
    if bits == 1:
        return str(value)
    value -= (value >> (bits - 1)) << bits
    wide = f"INT64_C({abs(value)})" if bits == 64 else str(abs(value))
    if value == -(1 << (bits - 1)) and bits >= 32:
        wide = f"INT64_C({-value - 1})" if bits == 64 else str(-value - 1)
        return f"(-{wide} - 1)"
    return wide if value >= 0 else f"(-{wide})"


def number(value: float, single: bool) -> str:
    """A literal of a float, exact.

    >>> number(0.1, False), number(0.5, True), number(float("-inf"), True)
    ('0x1.999999999999ap-4', '0x1.0000000000000p-1f', '(-INFINITY)')
    """
    if single:
        value = float(np.float32(value))
    if math.isnan(value):
        return "NAN" if math.copysign(1, value) > 0 else "(-NAN)"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = value.hex() + ("f" if single else "")
    return f"({text})" if text.startswith("-") else text


_RULES: dict[type, Callable[[_Function, Any], Any]] = {
    op.CompareInstr: _Function.compare, op.SelectInstr: _Function.select, op.CastInstr: _Function.convert,
    op.LoadInstr: _Function.load, op.StoreInstr: _Function.store, op.GEPInstr: _Function.place, op.AllocaInstr: _Function.frame,
    op.ExtractElement: _Function.lane, op.InsertElement: _Function.with_lane, op.ShuffleVector: _Function.shuffle,
    op.ExtractValue: _Function.part, op.InsertValue: _Function.with_part, op.CallInstr: _Function.call,
}  # fmt: skip
