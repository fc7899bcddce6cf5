"""Sorts and selections of rows, written out as loops.

A comparator that compares the same key of its two elements by an integer order (totalOrder is one) becomes a sort of
(key, number) pairs: in a short row each element's place is counted, in a long one a radix sort takes 11 bits a pass. Any other
comparator becomes a merge sort. All are stable. The k largest of a row, k small, are kept in order while the row streams by: a
block whose greatest key is too small is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.source.fold import body_lines
from codegen.source.phase import PhaseWriter
from codegen.source.scalars import number_type, order_key_source
from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.types import ElementType
from tiling.loops.ir import Buffer, Ordering

__all__ = ["emit_ordering"]

MOST_SELECTED = 64
LONG = 256  # rows so many times as long as what is kept of them change it seldom
MOST_COUNTED = 192  # longer rows are faster sorted by radix
BLOCK = 64


@dataclass(frozen=True)
class Key:
    """The key of an element: what `value` computes from `argument` in the comparator's body, falling or rising."""

    operand: int
    argument: Value | None
    value: Value | None
    falling: bool


def emit_ordering(phase: PhaseWriter, o: Ordering) -> None:
    """Writes one row's ordering into the task's loop."""
    phase.read.update(o.targets)
    writer = _Ordering(phase, o)
    key = _key_of(o.op) if o.op.regions else Key(0, None, None, True)
    if o.places is not None and (o.kept <= MOST_SELECTED or (o.kept <= 4 * MOST_SELECTED and o.count >= LONG * o.kept)):
        writer.select()
    elif key is not None and o.count <= MOST_COUNTED:
        writer.counted(key)
    elif key is not None:
        writer.radix(key)
    else:
        writer.merge()


def _key_of(op: Op) -> Key | None:
    """The key by which a comparator orders, or None when it may be something else."""
    body = op.regions[0]
    compare = body.results[0].op
    if compare is None or compare.definition.mnemonic != "compare":
        return None
    direction = compare.attr("comparison_direction")
    left, right = compare.operands
    element = left.tensor.element
    if direction not in ("LT", "GT") or not isinstance(element, ElementType) or element.itemsize_bytes > 4:
        return None
    if element.is_float and compare.attr("compare_type") != "TOTALORDER":
        return None  # NaN is neither less nor greater
    if not (element.is_float or element.is_integer or element.is_boolean):
        return None
    arguments = {v: k for k, v in enumerate(body.arguments)}
    pairs: dict[int, int] = {}
    if not _same(left, right, arguments, pairs) or len(pairs) != 1:
        return None
    ((a, b),) = pairs.items()
    if a // 2 != b // 2 or a == b:
        return None
    # The comparator says whether the first (even) argument goes before the second.
    falling = (direction == "GT") is (a % 2 == 0)
    return Key(a // 2, body.arguments[a], left, falling)


def _same(left: Value, right: Value, arguments: dict[Value, int], pairs: dict[int, int]) -> bool:
    """True when two values are the same function of two arguments, which `pairs` collects."""
    todo = [(left, right)]
    while todo:
        a, b = todo.pop()
        if a in arguments or b in arguments:
            if a not in arguments or b not in arguments:
                return False
            if pairs.setdefault(arguments[a], arguments[b]) != arguments[b]:
                return False
            continue
        x, y = a.op, b.op
        if x is y and x is not None and not x.operands:
            continue
        if x is None or y is None or x.name != y.name or x.results[0].type != y.results[0].type:
            return False
        if {k: str(v) for k, v in x.attributes.items()} != {k: str(v) for k, v in y.attributes.items()}:
            return False
        if x.definition.mnemonic == "constant" and x.attr("value").array.tobytes() != y.attr("value").array.tobytes():
            return False
        todo.extend(zip(x.operands, y.operands, strict=True))
    return True


class _Ordering:
    def __init__(self, phase: PhaseWriter, o: Ordering) -> None:
        self.phase, self.o = phase, o
        self.out = phase.out
        for b in (*o.sources, *o.targets, *((o.places,) if o.places else ())):
            phase.used[b] = None
        self.row = phase.fresh("row")
        self.to = self.row
        self.out.line(f"{self.row} = {phase.expr(o.start)}")
        if o.target_start is not o.start:
            self.to = phase.fresh("to")
            self.out.line(f"{self.to} = {phase.expr(o.target_start)}")

    def lines(self, text: str) -> None:
        """Appends lines, indented as they are."""
        self.out.extend(text.strip("\n").split("\n"))

    def scratch(self, count: int) -> list[str]:
        for b in self.o.scratch[:count]:
            self.phase.used[b] = None
        return [b.name for b in self.o.scratch[:count]]

    def at(self, buffer: Buffer, index: str) -> str:
        step = f"{self.o.step}*({index})" if self.o.step > 1 else index
        return f"{buffer.name}[{self.row} + {step}]"

    def target(self, buffer: Buffer, index: str) -> str:
        step = f"{self.o.step}*({index})" if self.o.step > 1 else index
        return f"{buffer.name}[{self.to} + {step}]"

    def key(self, key: Key, element: str) -> tuple[list[str], str]:
        """Lines and an int64 expression, within 32 signed bits, that orders as the key does."""
        source = self.o.sources[key.operand].element
        lines: list[str] = []
        if key.argument is not None and key.value is not None:
            names = {key.argument: element}
            found = body_lines(self.o.op, self.o.op.regions[0], names, self.phase.fresh, (key.value,))
            assert not isinstance(found, Declined), "supports() has asked before"
            lines, element = found, names[key.value]
            kind = key.value.tensor.element
            assert isinstance(kind, ElementType)
            source = kind
        if source.is_float:
            element = f"to_int64({order_key_source(element, source)})"
        elif source.is_integer and number_type(source) == "uint32":
            element = f"(to_int64({element}) - 2147483648)"
        else:
            element = f"to_int64({element})"
        return lines, f"(-1 - {element})" if key.falling else element

    def store(self, number: str, place: str = "item") -> list[str]:
        """What stores element `old` of the row at a place."""
        lines = [f"old = {number}"]
        lines += [f"{self.target(t, place)} = {self.at(s, 'old')}" for s, t in zip(self.o.sources, self.o.targets, strict=True)]
        if self.o.places is not None:
            kind = self.o.places.element.dtype.name
            lines.append(f"{self.target(self.o.places, place)} = to_{kind}(old)")
        return lines

    # ------------------------------------------------------------ by key

    def counted(self, key: Key) -> None:
        """An element's place is the number of those before it; all pairs are compared, a vector of them at a time."""
        keys, places = self.scratch(2)
        n = self.o.count
        before, number = self.key(key, self.at(self.o.sources[key.operand], "item"))
        self.lines("\n".join([
            f"for item in range({n}):",
            *("    " + x for x in before),
            f"    {keys}[item] = ({number} << 32) | item",
            f"    {places}[item] = int64(0)",
            f"for other in range({n}):",
            f"    pair = {keys}[other]",
            f"    for item in range({n}):",
            f"        {places}[item] = {places}[item] + to_int64(pair < {keys}[item])",
            f"for item in range({n}):",
            f"    place = {places}[item]",
        ]))  # fmt: skip
        kept = [] if self.o.kept == n else [f"if place < {self.o.kept}:"]
        indent = "    " * (1 + len(kept))
        self.lines("\n".join([*("    " + x for x in kept), *(indent + x for x in self.store("item", "place"))]))

    def radix(self, key: Key) -> None:
        keys, spare, counts = self.scratch(3)
        n = self.o.count
        before, number = self.key(key, self.at(self.o.sources[key.operand], "item"))
        digits = [f"({{0}} >> {32 + 11 * k}) & 2047" for k in range(2)] + ["(({0} >> 54) & 1023) ^ 512"]
        self.lines(f"for slot in range(5120):\n    {counts}[slot] = int32(0)\nfor item in range({n}):")
        if before:
            self.lines("\n".join("    " + x for x in before))
        self.lines(f"    pair = ({number} << 32) | item\n    {keys}[item] = pair")
        for k, digit in enumerate(digits):
            self.lines(f"    slot = {2048 * k} + ({digit.format('pair')})\n    {counts}[slot] = {counts}[slot] + 1")
        for k, digit in enumerate(digits):
            source, target = (keys, spare) if k % 2 == 0 else (spare, keys)
            self.lines(
                f"total = int64(0)\n"
                f"for slot in range({2048 * k}, {min(2048 * k + 2048, 5120)}):\n"
                f"    count = to_int64({counts}[slot])\n"
                f"    {counts}[slot] = total\n"
                f"    total += count\n"
                f"for item in range({n}):\n"
                f"    pair = {source}[item]\n"
                f"    slot = {2048 * k} + ({digit.format('pair')})\n"
                f"    place = to_int64({counts}[slot])\n"
                f"    {target}[place] = pair\n"
                f"    {counts}[slot] = place + 1"
            )
        self.lines(f"for item in range({self.o.kept}):")
        self.lines("\n".join("    " + x for x in self.store(f"{spare}[item] & 4294967295")))

    # ------------------------------------------------------------ by comparator

    def merge(self) -> None:
        order, spare = self.scratch(2)
        n, body = self.o.count, self.o.op.regions[0]
        names: dict[Value, str] = {}
        loads: list[str] = []
        for k, source in enumerate(self.o.sources):
            for v, place in ((body.arguments[2 * k], "right"), (body.arguments[2 * k + 1], "left")):
                names[v] = self.phase.fresh("x")
                loads.append(f"{names[v]} = {self.at(source, place)}")
        found = body_lines(self.o.op, body, names, self.phase.fresh)
        assert not isinstance(found, Declined), "supports() has asked before"
        compare = "\n".join("                " + x for x in (*loads, *found))
        self.lines(
            f"for item in range({n}):\n"
            f"    {order}[item] = item\n"
            f"width = int64(1)\n"
            f"while width < {n}:\n"
            f"    first = int64(0)\n"
            f"    while first < {n}:\n"
            f"        middle = min(first + width, {n})\n"
            f"        last = min(first + 2*width, {n})\n"
            f"        one = first\n"
            f"        other = middle\n"
            f"        for into in range(first, last):\n"
            f"            later = other < last\n"
            f"            if later and one < middle:\n"
            f"                left = {order}[one]\n"
            f"                right = {order}[other]\n"
            f"{compare}\n"
            f"                later = {names[body.results[0]]}\n"
            f"            if later:\n"
            f"                {spare}[into] = {order}[other]\n"
            f"                other += 1\n"
            f"            else:\n"
            f"                {spare}[into] = {order}[one]\n"
            f"                one += 1\n"
            f"        first = last\n"
            f"    for item in range({n}):\n"
            f"        {order}[item] = {spare}[item]\n"
            f"    width = 2*width\n"
            f"for item in range({self.o.kept}):"
        )
        self.lines("\n".join("    " + x for x in self.store(f"{order}[item]")))

    # ------------------------------------------------------------ the largest

    def select(self) -> None:
        (best,) = self.scratch(1)
        n, k = self.o.count, self.o.kept
        source = self.o.sources[0]
        rising = Key(0, None, None, False)
        _, number = self.key(rising, self.at(source, "item"))
        # The greatest pair is the greatest key, of equal ones the first.
        self.lines(f"for item in range({k}):\n    {best}[item] = int64(-9223372036854775807)")
        whole = n // BLOCK * BLOCK
        block = self.vector_key(source)
        insert = (
            f"pair = ({number} << 32) | (2147483647 - item)\n"
            f"if pair > {best}[{k - 1}]:\n"
            f"    spot = int64({k - 1})\n"
            f"    while spot > 0 and {best}[max(spot - 1, 0)] < pair:\n"
            f"        {best}[spot] = {best}[spot - 1]\n"
            f"        spot -= 1\n"
            f"    {best}[spot] = pair"
        ).split("\n")
        if whole:
            self.lines(
                f"for first in range(0, {whole}, {BLOCK}):\n"
                f"    greatest = int32(-2147483648)\n"
                f"    for item in range(first, first + {BLOCK}):\n"
                f"        greatest = reduce_maximum(greatest, {block})\n"
                f"    if ((to_int64(greatest) << 32) | 2147483647) > {best}[{k - 1}]:\n"
                f"        for item in range(first, first + {BLOCK}):\n" + "\n".join("            " + x for x in insert)
            )
        if whole < n:
            self.lines(f"for item in range({whole}, {n}):\n" + "\n".join("    " + x for x in insert))
        self.lines(f"for item in range({k}):")
        self.lines("\n".join("    " + x for x in self.store(f"2147483647 - ({best}[item] & 4294967295)")))

    def vector_key(self, source: Buffer) -> str:
        """The rising key as an int32, for a loop over a block."""
        element = self.at(source, "item")
        if source.element.is_float:
            return order_key_source(element, source.element)
        if number_type(source.element) == "uint32":
            return f"to_int32(to_int64({element}) - 2147483648)"
        return f"to_int32({element})"

