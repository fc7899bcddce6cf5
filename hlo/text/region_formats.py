"""The pretty syntax of the ops whose regions stand inside it: reduce and while.

A parser here is a generator: it yields the parsers of its regions and returns the list of regions. A printer is one too: it
yields
`(op's regions to print, …)` pieces for `hlo.text.printer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from hlo.attributes import Foreign
from hlo.module import Block, Op, Value
from hlo.registry import lookup
from hlo.text.assembly import Names, function_text, remaining_attributes
from hlo.text.op_parts import OpParser, OpParts, Steps
from hlo.types import TensorType

__all__ = ["REGION_FORMATS", "RegionFormat"]


class RegionPrinter(Names, Protocol):
    """What the formats of regions use of the printer (`hlo.text.printer`)."""

    def define(self, value: Value) -> str: ...
    def alias(self, value: Value, text: str) -> None: ...
    def enter(self) -> None: ...
    def leave(self) -> None: ...
    def indent(self, more: int) -> str: ...



@dataclass(frozen=True)
class RegionFormat:
    """`print` yields strings and (block, is the block label printed) pairs."""

    parse: Callable[[OpParser, OpParts], Steps]
    print: Callable[[Op, RegionPrinter], Iterator[str | tuple[Block, str]]]


def _parse_reduce(p: OpParser, parts: OpParts) -> Steps:
    """`(%x init: %i), (%y init: %j) applies op across dimensions = [0] {…} : type`, or with `reducer(…) {…}` at the end."""
    lx = p.lexer
    inputs: list[Value] = []
    inits: list[Value] = []
    while True:
        lx.expect("(")
        inputs.append(p.use())
        lx.expect_word("init")
        lx.expect(":")
        inits.append(p.use())
        lx.expect(")")
        if not lx.accept(","):
            break
    parts.operands = {"inputs": inputs, "init_values": inits}
    inner_at, inner = lx.start, None
    if lx.accept_word("applies"):
        inner_at = lx.start
        inner = lookup(lx.take("word", "an op"))
    lx.expect_word("across")
    lx.expect_word("dimensions")
    lx.expect("=")
    parts.attributes["dimensions"] = p.integer_list()
    if lx.kind == "{":
        p.attribute_dictionary(parts)
    lx.expect(":")
    at = lx.start
    t = p.values.function_type()
    p.check_types(parts.flat(), t.inputs, at)
    parts.result_types = t.results
    place = lx.location(inner_at)
    if inner is not None:
        if inner.name not in COMMUTATIVE or len(inputs) != 1:
            known = ", ".join(sorted(COMMUTATIVE))
            raise lx.error(f"expected a commutative op of two operands on one input ({known}), found {inner.name}", inner_at)
        first = inputs[0].type
        if not isinstance(first, TensorType):
            raise lx.error(f"expected a tensor, found {first}", at)
        scalar = TensorType((), first.element)
        block = Block((scalar, scalar))
        op = Op(inner, block.arguments, None, (), (scalar,), place)
        ret = lookup("stablehlo.return")
        assert ret is not None
        block.ops = [op, Op(ret, op.results, None, (), (), place)]
        return [block]
    lx.expect_word("reducer")
    p.scope.push()
    names: list[tuple[str, int, Any]] = []
    # (%a: t, %b: t) (%c: t, %d: t): one pair for each input; the arguments' order is a, c, …, b, d, …
    while lx.accept("("):
        for closing in (",", ")"):
            here = lx.start
            name = lx.take("value", "an argument such as %arg0")[1:]
            lx.expect(":")
            names.append((name, here, p.values.type()))
            p._trailing_location()
            lx.expect(closing)
        lx.accept(",")
    ordered = names[0::2] + names[1::2]
    block = Block([n[2] for n in ordered], [n[0] for n in ordered])
    for (name, here, _), argument in zip(ordered, block.arguments, strict=True):
        p.define(name, argument, here)
    yield p.body(block)
    p.scope.pop()
    return [block]


COMMUTATIVE = frozenset(f"stablehlo.{n}" for n in ("add", "and", "maximum", "minimum", "multiply", "or", "xor"))


def _compact(op: Op) -> str | None:
    """The name of the only op in the body of a reduce that the short form can say."""
    body = op.regions[0]
    if len(op.operands) != 2 or len(body.ops) != 2 or len(body.arguments) != 2:
        return None
    inner, ret = body.ops
    first = op.operands[0].type
    if (
        inner.name not in COMMUTATIVE
        or inner.extra
        or ret.extra
        or inner.attributes
        or inner.operands != tuple(body.arguments)
        or ret.operands != inner.results
        or not isinstance(first, TensorType)
    ):
        return None
    scalar = TensorType((), first.element)
    return inner.name if all(v.type == scalar for v in (*body.arguments, *inner.results)) else None


def _print_reduce(op: Op, pr: RegionPrinter) -> Iterator[str | tuple[Block, str]]:
    n = len(op.operands) // 2
    pairs = zip(op.operands[:n], op.operands[n:], strict=True)
    inner = _compact(op)
    text = "(" + ", ".join(f"{pr.use(a)} init: {pr.use(b)}" for a, b in pairs).replace(", ", "), (") + ")"
    if inner is not None:
        text += f" applies {inner}"
    text += f" across dimensions = {list(op.attr('dimensions'))}"
    extra = remaining_attributes(op, frozenset(("dimensions",)))
    text += (" " + extra if extra else "") + " : "
    text += function_text([v.type for v in op.operands], [r.type for r in op.results])
    yield text
    if inner is None:
        body = op.regions[0]
        pr.enter()
        names = [pr.define(a) for a in body.arguments]
        couples = [f"({names[i]}: {body.arguments[i].type}, {names[n + i]}: {body.arguments[n + i].type})" for i in range(n)]
        yield "\n" + pr.indent(1) + "reducer" + " ".join(couples) + " {\n"
        yield (body, "")
        pr.leave()
        yield pr.indent(0) + "}"


def _printable_reduce(op: Op) -> bool:
    n = len(op.operands) // 2
    return bool(n) and len(op.operands) == 2 * n and len(op.regions) == 1 and len(op.regions[0].arguments) == 2 * n


def _parse_while(p: OpParser, parts: OpParts) -> Steps:
    """`(%a = %0, %b = %1) : t, u cond {…} do {…}`, attributes after the types with `attributes {…}`."""
    lx = p.lexer
    names: list[tuple[str, int]] = []
    operands: list[Value] = []
    lx.expect("(")
    for _ in lx.listed(")"):
        here = lx.start
        names.append((lx.take("value", "an argument such as %iterArg")[1:], here))
        lx.expect("=")
        operands.append(p.use())
    parts.operands = {"operand": operands}
    types: list[Any] = []
    if lx.accept(":"):
        at = lx.start
        types.append(p.values.type())
        while lx.accept(","):
            types.append(p.values.type())
        p.check_types(operands, types, at)
    elif operands:
        raise lx.expected("':'")
    parts.result_types = tuple(types)
    if lx.accept_word("attributes"):
        p.attribute_dictionary(parts)
    regions: list[Block] = []
    for word in ("cond", "do"):
        lx.expect_word(word)
        p.scope.push()
        block = Block(types, [n for n, _ in names])
        for (name, here), argument in zip(names, block.arguments, strict=True):
            p.define(name, argument, here)
        yield p.body(block)
        p.scope.pop()
        regions.append(block)
    return regions


def _print_while(op: Op, pr: RegionPrinter) -> Iterator[str | tuple[Block, str]]:
    cond, body = op.regions
    pr.enter()
    names = [pr.define(a) for a in cond.arguments]
    for a, name in zip(body.arguments, names, strict=True):
        pr.alias(a, name)
    text = "(" + ", ".join(f"{n} = {pr.use(v)}" for n, v in zip(names, op.operands, strict=True)) + ")"
    if op.operands:
        text += " : " + ", ".join(str(v.type) for v in op.operands)
    extra = remaining_attributes(op, frozenset())
    text += f"\n{pr.indent(0)} attributes {extra}" if extra else ""
    yield text + "\n" + pr.indent(0) + "cond {\n"
    yield (cond, "")
    yield pr.indent(0) + "} do {\n"
    yield (body, "")
    pr.leave()
    yield pr.indent(0) + "}"


def _printable_while(op: Op) -> bool:
    types = [v.type for v in op.operands]
    return (
        len(op.regions) == 2
        and all([a.type for a in r.arguments] == types for r in op.regions)
        and [r.type for r in op.results] == types
    )


def _parse_scan(p: OpParser, parts: OpParts) -> Steps:
    """`(%x) inits (%c) dimension = 0 attributes {…} { ^bb0(…): … } : types`."""
    lx = p.lexer
    for name, word in (("inputs", None), ("inits", "inits")):
        if word is not None:
            lx.expect_word(word)
        lx.expect("(")
        values = parts.operands[name] = []
        while lx.kind == "value":
            values.append(p.use())
            if not lx.accept(","):
                break
        lx.expect(")")
    lx.expect_word("dimension")
    lx.expect("=")
    parts.attributes["dimension"] = lx.integer(64)
    if lx.accept_word("attributes"):
        p.attribute_dictionary(parts)
    region = yield p.region()
    lx.expect(":")
    at = lx.start
    t = p.values.function_type()
    p.check_types(parts.flat(), t.inputs, at)
    parts.result_types = t.results
    carries = len(parts.operands["inits"])
    parts.attributes["operandSegmentSizes"] = (len(parts.operands["inputs"]), carries)
    parts.attributes["resultSegmentSizes"] = (max(0, len(t.results) - carries), min(carries, len(t.results)))
    return [region]


def _print_scan(op: Op, pr: RegionPrinter) -> Iterator[str | tuple[Block, str]]:
    body = op.regions[0]
    lists = [", ".join(map(pr.use, op.segment(n))) for n in ("inputs", "inits")]
    extra = remaining_attributes(op, frozenset(("dimension",)))
    yield (
        f" ({lists[0]}) inits ({lists[1]}) dimension={op.attr('dimension')}" + (f" attributes {extra}" if extra else "") + " {\n"
    )
    pr.enter()
    label = ", ".join(f"{pr.define(a)}: {a.type}" for a in body.arguments)
    yield (body, f"{pr.indent(0)}^bb0({label}):\n")
    pr.leave()
    yield pr.indent(0) + "} : " + function_text([v.type for v in op.operands], [r.type for r in op.results])


_MANUAL = {
    "in_shardings": ("#sdy.sharding_per_value<", ">"),
    "out_shardings": ("#sdy.sharding_per_value<", ">"),
    "manual_axes": ("#sdy<manual_axes", ">"),
}


def _parse_manual(p: OpParser, parts: OpParts) -> Steps:
    """`(%x) in_shardings=[…] out_shardings=[…] manual_axes={…} (%a: t) {…} : types`."""
    lx = p.lexer
    lx.expect("(")
    values = parts.operands["tensors"] = []
    while lx.kind == "value":
        values.append(p.use())
        if not lx.accept(","):
            break
    lx.expect(")")
    for name, (before, after) in _MANUAL.items():
        lx.expect_word(name)
        lx.expect("=")
        if lx.kind not in "[{":
            raise lx.expected("'[' or '{'")
        begin, end = lx.start, lx.balanced()
        lx.seek(end)
        parts.attributes[name] = Foreign(before + lx.text[begin:end] + after)
    p.scope.push()
    lx.expect("(")
    block = p.block_arguments(")")
    yield p.body(block)
    p.scope.pop()
    if lx.kind == "{":
        p.attribute_dictionary(parts)
    lx.expect(":")
    at = lx.start
    t = p.values.function_type()
    p.check_types(values, t.inputs, at)
    parts.result_types = t.results
    return [block]


def _manual_piece(op: Op, name: str) -> str | None:
    before, after = _MANUAL[name]
    value = op.attr(name)
    text = value.text if isinstance(value, Foreign) else ""
    if text[len(before) : len(before) + 1] not in ("[", "{"):
        return None
    return text[len(before) : -len(after)] if text.startswith(before) and text.endswith(after) else None


def _print_manual(op: Op, pr: RegionPrinter) -> Iterator[str | tuple[Block, str]]:
    body = op.regions[0]
    head = "(" + ", ".join(map(pr.use, op.operands)) + ")"
    head += "".join(f" {n}={_manual_piece(op, n)}" for n in _MANUAL)
    pr.enter()
    yield head + " (" + ", ".join(f"{pr.define(a)}: {a.type}" for a in body.arguments) + ") {\n"
    yield (body, "")
    pr.leave()
    extra = remaining_attributes(op, frozenset(_MANUAL))
    types = function_text([v.type for v in op.operands], [r.type for r in op.results])
    yield pr.indent(0) + "}" + (f" {extra}" if extra else "") + " : " + types


def _printable_manual(op: Op) -> bool:
    return len(op.regions) == 1 and all(_manual_piece(op, n) is not None for n in _MANUAL)


REGION_FORMATS: dict[str, RegionFormat] = {
    "stablehlo.reduce": RegionFormat(_parse_reduce, _print_reduce),
    "stablehlo.while": RegionFormat(_parse_while, _print_while),
    "chlo.scan": RegionFormat(_parse_scan, _print_scan),
    "sdy.manual_computation": RegionFormat(_parse_manual, _print_manual),
}

PRINTABLE: dict[str, Callable[[Op], bool]] = {
    "stablehlo.reduce": _printable_reduce,
    "stablehlo.while": _printable_while,
    "sdy.manual_computation": _printable_manual,
    "chlo.scan": lambda op: len(op.regions) == 1 and bool(op.regions[0].arguments),
}
"""Whether the pretty form can say an op; where it cannot, the generic form does."""
