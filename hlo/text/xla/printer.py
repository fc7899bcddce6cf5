"""A module as HLO text: the entry last, before it the computations that it applies.

HLO has no values from outside in a computation: what a branch uses from around it becomes its parameter, as a tuple where
it is several.
Several results become a tuple. What HLO cannot say is declined in words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from hlo.errors import Declined
from hlo.module import Block, DenseArray, Function, Module, Op, Value, walk
from hlo.text.block_parser import run
from hlo.text.xla.fields import Row, plain_rows
from hlo.text.xla.table import ROWS
from hlo.text.xla.types import literal_text, type_text
from hlo.types import TensorType, TupleType

__all__ = ["to_hlo_text"]

_BY_OP: dict[str, Row] = {r.op: r for r in reversed(ROWS) if r.prints}
_WORD = re.compile(r"[^\w.\-]", re.ASCII)


class _Unsaid(Exception):
    """HLO text has no form for this."""


def to_hlo_text(module: Module) -> str | Declined:
    """The module in HLO's syntax; `Declined` names the first op or type that HLO has no form for.

    >>> from hlo import parse
    >>> print(to_hlo_text(parse("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")), end="")
    HloModule main
    <BLANKLINE>
    ENTRY %main (x: f32[2]) -> f32[2] {
      ROOT %x = f32[2] parameter(0)
    }
    """
    try:
        return _Writer(module).text()
    except _Unsaid as e:
        return Declined(str(e))
    except (KeyError, TypeError, ValueError) as e:
        return Declined(f"HLO text cannot say it: {e}")


class _Computation:
    """The lines of one computation, and the names in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.header: list[str] = []
        self.counters: dict[str, int] = {}

    def fresh(self, wanted: str | None) -> str:
        base = _WORD.sub("_", (wanted or "v").partition("#")[0])
        if not base or not (base[0].isalpha() or base[0] == "_"):
            base = "v" + base
        name = base
        while name in self.taken:
            n = self.counters[base] = self.counters.get(base, 0) + 1
            name = f"{base}.{n}"
        self.taken.add(name)
        return name

    def add(self, name: str, t: str, call: str) -> str:
        self.lines.append(f"%{name} = {t} {call}")
        return f"%{name}"


class _Writer:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.done: list[_Computation] = []
        self.taken: set[str] = set()
        self.functions: dict[str, str] = {}
        self.inline = _inlined(module)

    def text(self) -> str:
        """The whole text."""
        entry = self.module.entry
        if entry.is_declaration or not entry.body.ops:
            raise _Unsaid(f"no body of @{entry.name}")
        # Callees before their callers, so that names are known.
        for f in self._ordered(entry):
            self.functions[f.name] = self._function(f)
        head = f"HloModule {_WORD.sub('_', self.module.name or entry.name)}"
        head += "".join(
            f", {k[4:]}={v}" for k, v in self.module.attributes.items() if k.startswith("xla.") and isinstance(v, str)
        )
        if "xla.input_output_alias" not in self.module.attributes and entry.donations:
            is_tuple = len(entry.result_types) != 1
            pairs = [f"{{{k if is_tuple else ''}}}: ({n}, {{}}, may-alias)" for n, k in entry.donations.items()]
            head += f", input_output_alias={{ {', '.join(pairs)} }}"
        out = [head, ""]
        for c in self.done:
            is_entry = c.name == self.functions[entry.name]
            out.append(f"{'ENTRY ' if is_entry else ''}%{c.name} ({', '.join(c.header[:-1])}) -> {c.header[-1]} {{")
            out.extend(f"  {'ROOT ' if k == len(c.lines) - 1 else ''}{line}" for k, line in enumerate(c.lines))
            out.extend(("}", ""))
        return "\n".join(out[:-1]) + "\n"

    def _ordered(self, entry: Function) -> list[Function]:
        """The entry and what it calls, callees first, without recursion."""
        order: list[Function] = []
        state: dict[str, int] = {}
        stack = [(entry, iter(_callees(entry)))]
        state[entry.name] = 1
        while stack:
            f, it = stack[-1]
            name = next(it, None)
            if name is None:
                order.append(f)
                stack.pop()
            elif name not in state:
                callee = self.module.functions.get(name)
                if callee is None or callee.is_declaration:
                    raise _Unsaid(f"no body of @{name}")
                state[name] = 1
                stack.append((callee, iter(_callees(callee))))
        return order

    def _name(self, wanted: str) -> str:
        base = name = _WORD.sub("_", wanted) or "computation"
        n = 0
        while name in self.taken:
            n += 1
            name = f"{base}.{n}"
        self.taken.add(name)
        return name

    def _function(self, f: Function) -> str:
        c = _Computation(self._name(f.name))
        run(self._fill(c, f.body, list(f.arguments), (), len(f.result_types) != 1))
        self.done.append(c)
        return c.name

    def _fill(self, c: _Computation, block: Block, arguments: list[Value], captured: Sequence[Value], as_tuple: bool) -> Any:
        """Parameters, ops and root of a computation. `captured` values come as one more parameter, a tuple."""
        for k, a in enumerate(arguments):
            name = c.fresh(a.name)
            c.header.append(f"{name}: {type_text(a.type)}")
            c.names[a] = c.add(name, type_text(a.type), f"parameter({k})")
        if captured or captured == []:
            self._unpack(c, list(captured), len(arguments))
        for op in block.ops[:-1]:
            yield self._op(c, op)
        results = [c.names[v] for v in block.results]
        types = [v.type for v in block.results]
        if as_tuple or len(results) != 1:
            t = "(" + ", ".join(map(type_text, types)) + ")"
            c.add(c.fresh("tuple"), t, f"tuple({', '.join(results)})")
            c.header.append(t)
        else:
            self._make_root(c, results[0])
            c.header.append(type_text(types[0]))

    def _make_root(self, c: _Computation, name: str) -> None:
        """The root is the last line: the line that defines it moves there (nothing after it uses it, or a copy is made)."""
        at = next(k for k, line in enumerate(c.lines) if line.startswith(f"{name} = "))
        if at == len(c.lines) - 1:
            return
        uses = re.compile(re.escape(name) + r"(?![\w.\-])")
        if not any(uses.search(line) for line in c.lines[at + 1 :]):
            c.lines.append(c.lines.pop(at))
            return
        t = c.lines[at].partition(" = ")[2]
        t = t[: _type_end(t)]
        c.add(c.fresh("copy"), t, f"copy({name})")

    def _unpack(self, c: _Computation, captured: list[Value], number: int) -> None:
        t = TupleType(tuple(v.type for v in captured))
        if len(captured) == 1:
            name = c.fresh(captured[0].name)
            c.header.append(f"{name}: {type_text(captured[0].type)}")
            c.names[captured[0]] = c.add(name, type_text(captured[0].type), f"parameter({number})")
            return
        name = c.fresh("captured")
        c.header.append(f"{name}: {type_text(t)}")
        whole = c.add(name, type_text(t), f"parameter({number})")
        for k, v in enumerate(captured):
            c.names[v] = c.add(c.fresh(v.name), type_text(v.type), f"get-tuple-element({whole}), index={k}")

    # ------------------------------------------------------------ ops

    def _op(self, c: _Computation, op: Op) -> Iterator[Any]:
        if op in self.inline:
            return
        special = _SPECIAL.get(op.name)
        if special is not None:
            made = special(self, c, op)
            if made is not None:
                yield from made
            return
        row = _BY_OP.get(op.name)
        if row is None:
            raise _Unsaid(f"HLO text has no opcode for {op.name} at {op.location}")
        texts: list[str] = []
        for f in row.fields:
            value = op.attributes.get(f.name, f.default)
            if value is not None and value is not False:
                texts.append(f"{f.hlo}={f.write(value)}")
        if row.write is not None:
            texts.extend(f"{k}={v}" for k, v in row.write(op).items())
        if op.attributes.get("called_computations"):
            names = ", ".join(f"%{self.functions[n]}" for n in op.attributes["called_computations"])
            texts.append(f"called_computations={{{names}}}")
        if op.name == "stablehlo.while" and len(op.operands) != 1:
            yield from self._while(c, op)
            return
        for key, region in zip(row.regions, op.regions, strict=True):
            name = yield self._computation(op, key, region)
            texts.append(f"{key}=%{name}")
        self._finish(c, op, row.opcode, texts)

    def _computation(self, op: Op, key: str, region: Block) -> Generator[Any, Any, str]:
        """A region as a computation without captured values; returns its name."""
        if _captured(region):
            raise _Unsaid(f"{op.name} at {op.location} uses values from around its region")
        inner = _Computation(self._name(str(op.extra.get(f"xla.{key}", f"{op.definition.mnemonic}_{key}"))))
        yield self._fill(inner, region, list(region.arguments), (), False)
        self.done.append(inner)
        return inner.name

    def _while(self, c: _Computation, op: Op) -> Iterator[Any]:
        """A while of several values, and of values from around it: one tuple goes in and comes out."""
        names = []
        free = _captured(*op.regions)
        whole = TupleType(tuple(v.type for v in (*op.operands, *free)))
        for key, region in (("condition", op.regions[0]), ("body", op.regions[1])):
            inner = _Computation(self._name(f"while_{key}"))
            name = inner.fresh("state")
            inner.header.append(f"{name}: {type_text(whole)}")
            state = inner.add(name, type_text(whole), "parameter(0)")
            for k, v in enumerate((*region.arguments, *free)):
                inner.names[v] = inner.add(inner.fresh(v.name), type_text(v.type), f"get-tuple-element({state}), index={k}")
            for x in region.ops[:-1]:
                yield self._op(inner, x)
            if key == "condition":
                self._make_root(inner, inner.names[region.results[0]])
                inner.header.append("pred[]")
            else:
                kept = [inner.names[v] for v in (*region.results, *free)]
                inner.add(inner.fresh("tuple"), type_text(whole), f"tuple({', '.join(kept)})")
                inner.header.append(type_text(whole))
            self.done.append(inner)
            names.append(inner.name)
        start = c.add(c.fresh("tuple"), type_text(whole), f"tuple({', '.join(c.names[v] for v in (*op.operands, *free))})")
        loop = c.add(c.fresh("while"), type_text(whole), f"while({start}), condition=%{names[0]}, body=%{names[1]}")
        for k, r in enumerate(op.results):
            c.names[r] = c.add(c.fresh(r.name), type_text(r.type), f"get-tuple-element({loop}), index={k}")

    def _finish(self, c: _Computation, op: Op, opcode: str, texts: list[str], operands: list[str] | None = None) -> None:
        """The instruction, and an element of its tuple for each of several results."""
        used = {f"xla.{k}" for r in (_BY_OP.get(op.name),) if r is not None for k in r.regions}
        texts = texts + [
            f"{k[4:]}={v}"
            for k, v in op.extra.items()
            if k.startswith("xla.") and k not in used and isinstance(v, str) and k != "xla.branch_computations"
        ]
        args = ", ".join(c.names[v] for v in op.operands) if operands is None else ", ".join(operands)
        call = f"{opcode}({args})" + "".join(f", {t}" for t in texts)
        if len(op.results) == 1:
            name = op.result.name or ("tuple" if opcode == "tuple" else None)
            c.names[op.result] = c.add(c.fresh(name), type_text(op.result.type), call)
            return
        t = "(" + ", ".join(type_text(r.type) for r in op.results) + ")"
        whole = c.add(c.fresh(op.results[0].name if op.results else opcode), t, call)
        for k, r in enumerate(op.results):
            c.names[r] = c.add(
                c.fresh(f"{(r.name or 'v').partition('#')[0]}.{k}"), type_text(r.type), f"get-tuple-element({whole}), index={k}"
            )

    def constant(self, c: _Computation, op: Op) -> None:
        """`constant({…})`."""
        value = op.attr("value")
        if not isinstance(value, DenseArray):
            raise _Unsaid(f"a constant of {type(value).__name__}")
        self._finish(c, op, "constant", [], [literal_text(value)])

    def elided(self, c: _Computation, op: Op) -> None:
        """`constant({...})`."""
        self._finish(c, op, "constant", [], ["{...}"])

    def tuple(self, c: _Computation, op: Op) -> None:
        """`tuple(…)`."""
        self._finish(c, op, "tuple", [])

    def element(self, c: _Computation, op: Op) -> None:
        """`get-tuple-element(…), index=k`."""
        self._finish(c, op, "get-tuple-element", [f"index={op.attr('index')}"])

    def call(self, c: _Computation, op: Op) -> None:
        """`call(…), to_apply=f`."""
        self._finish(c, op, "call", [f"to_apply=%{self.functions[op.attr('callee')]}"])

    def branches(self, c: _Computation, op: Op) -> Iterator[Any]:
        """`conditional(index, a, b), branch_computations={f, g}`, each branch with what it uses from around it."""
        names: list[str] = []
        arguments: list[str] = [c.names[op.operands[0]]]
        hints = str(op.extra.get("xla.branch_computations", "")).split(", ")
        for k, region in enumerate(op.regions):
            free = _captured(region)
            inner = _Computation(self._name(hints[k] if len(hints) == len(op.regions) and hints[k] else f"branch_{k}"))
            yield self._fill(inner, region, [], free, len(op.results) != 1)
            self.done.append(inner)
            names.append("%" + inner.name)
            if len(free) == 1:
                arguments.append(c.names[free[0]])
            else:
                t = type_text(TupleType(tuple(v.type for v in free)))
                arguments.append(c.add(c.fresh("tuple"), t, f"tuple({', '.join(c.names[v] for v in free)})"))
        if op.name == "stablehlo.if":
            texts = [f"true_computation={names[0]}", f"false_computation={names[1]}"]
        else:
            texts = ["branch_computations={" + ", ".join(names) + "}"]
        self._finish(c, op, "conditional", texts, arguments)

    def exchange(self, c: _Computation, op: Op) -> None:
        """`all-to-all(…), dimensions={k}`."""
        if op.attr("split_dimension") != op.attr("concat_dimension"):
            raise _Unsaid("HLO's all-to-all splits and concatenates one dimension")
        if not op.attr("replica_groups"):
            raise _Unsaid(f"HLO's all-to-all of one array needs replica groups, and {op.location} has none")
        texts = [f"replica_groups={plain_rows(op.attr('replica_groups'))}", f"dimensions={{{op.attr('split_dimension')}}}"]
        channel = op.attr("channel_handle")
        self._finish(c, op, "all-to-all", [f"channel_id={channel.handle}", *texts] if channel is not None else texts)

    def rng(self, c: _Computation, op: Op) -> None:
        """`rng(a, b), distribution=rng_uniform`."""
        self._finish(
            c, op, "rng", [f"distribution=rng_{op.attr('rng_distribution').lower()}"], [c.names[v] for v in op.operands[:2]]
        )

    def barrier(self, c: _Computation, op: Op) -> None:
        """`opt-barrier(x)`; several values go as one tuple."""
        args = [c.names[v] for v in op.operands]
        if len(args) != 1:
            t = type_text(TupleType(tuple(v.type for v in op.operands)))
            args = [c.add(c.fresh("tuple"), t, f"tuple({', '.join(args)})")]
        self._finish(c, op, "opt-barrier", [], args)

    def dynamic_reshape(self, c: _Computation, op: Op) -> None:
        """`dynamic-reshape(x, n0, n1)`: the shape's entries one by one."""
        shape = op.operands[1]
        scalars = _scalars_of(shape)
        if scalars is not None:
            sizes = [c.names[v] for v in scalars]
        else:
            (count,), e = shape.tensor.static_shape, shape.tensor.element
            one, scalar = type_text(TensorType((1,), e)), type_text(TensorType((), e))
            sizes = []
            for k in range(count):
                part = c.add(c.fresh("slice"), one, f"slice({c.names[shape]}), slice={{[{k}:{k + 1}]}}")
                sizes.append(c.add(c.fresh("size"), scalar, f"reshape({part})"))
        self._finish(c, op, "dynamic-reshape", [], [c.names[op.operands[0]], *sizes])

    def send(self, c: _Computation, op: Op) -> None:
        """`send(data, token)` and `send-done(…)`; several values go as one tuple."""
        *data, token = op.operands
        names = [c.names[v] for v in data]
        if len(data) != 1:
            t = type_text(TupleType(tuple(v.type for v in data)))
            names = [c.add(c.fresh("tuple"), t, f"tuple({', '.join(names)})")]
        begun, texts = _transfer(c, op, data, [*names, c.names[token]])
        c.names[op.result] = c.add(c.fresh(op.result.name), "token[]", f"send-done({begun}){texts}")

    def recv(self, c: _Computation, op: Op) -> None:
        """`recv(token)` and `recv-done(…)`, and the elements of what came."""
        *data, token = op.results
        begun, texts = _transfer(c, op, data, [c.names[op.operands[0]]])
        whole = data[0].type if len(data) == 1 else TupleType(tuple(v.type for v in data))
        t = type_text(TupleType((whole, token.type)))
        ended = c.add(c.fresh("recv-done"), t, f"recv-done({begun}){texts}")
        inner = c.add(c.fresh(data[0].name), type_text(whole), f"get-tuple-element({ended}), index=0")
        if len(data) == 1:
            c.names[data[0]] = inner
        else:
            for k, r in enumerate(data):
                c.names[r] = c.add(c.fresh(r.name), type_text(r.type), f"get-tuple-element({inner}), index={k}")
        c.names[token] = c.add(c.fresh("token"), "token[]", f"get-tuple-element({ended}), index=1")

    def infeed(self, c: _Computation, op: Op) -> None:
        """`((data…), token[]) infeed(token)`."""
        data = TupleType(tuple(r.type for r in op.results[:-1]))
        t = type_text(TupleType((data, op.results[-1].type)))
        config = op.attr("infeed_config")
        whole = c.add(
            c.fresh("infeed"), t, f"infeed({c.names[op.operands[0]]})" + (f', infeed_config="{config}"' if config else "")
        )
        inner = c.add(c.fresh("data"), type_text(data), f"get-tuple-element({whole}), index=0")
        for k, r in enumerate(op.results[:-1]):
            c.names[r] = c.add(c.fresh(r.name), type_text(r.type), f"get-tuple-element({inner}), index={k}")
        token = op.results[-1]
        c.names[token] = c.add(c.fresh(token.name), "token[]", f"get-tuple-element({whole}), index=1")


def _transfer(c: _Computation, op: Op, data: list[Value], operands: list[str]) -> tuple[str, str]:
    """The first half of a send or recv; returns its name and the attributes that the second half repeats."""
    opcode = op.definition.mnemonic
    whole = type_text(data[0].type) if len(data) == 1 else type_text(TupleType(tuple(v.type for v in data)))
    texts = f", channel_id={op.attr('channel_handle').handle}"
    if op.attr("is_host_transfer"):
        texts += ", is_host_transfer=true"
    if op.attr("source_target_pairs"):
        raise _Unsaid(f"{op.name} at {op.location} between pairs of its own")
    extra = "".join(f", {k[4:]}={v}" for k, v in op.extra.items() if k.startswith("xla.") and isinstance(v, str))
    call = f"{opcode}({', '.join(operands)}){texts}{extra}"
    return c.add(c.fresh(opcode), f"({whole}, u32[], token[])", call), texts


def _scalars_of(shape: Value) -> list[Value] | None:
    """The scalars that a list of sizes is put together of; None where it comes from somewhere else."""
    producer = shape.op
    if producer is None or producer.name != "stablehlo.concatenate":
        return None
    parts = [v.op for v in producer.operands]
    if not all(p is not None and p.name == "stablehlo.reshape" and not p.operands[0].shape for p in parts):
        return None
    return [p.operands[0] for p in parts if p is not None]


def _inlined(module: Module) -> frozenset[Op]:
    """Ops that only say a shape which HLO writes in place: they have no line of their own."""
    ops = [op for f in module.functions.values() for op in walk(f.body)]
    uses = Counter(v for op in ops for v in op.operands)
    found: list[Op] = []
    for op in ops:
        shape = op.operands[-1].op if op.name in ("stablehlo.dynamic_reshape", "stablehlo.rng") else None
        if shape is None or uses[shape.result] != 1:
            continue
        if shape.name == "stablehlo.constant" and (op.name == "stablehlo.rng" or shape.result.shape == (0,)):
            found.append(shape)
        elif op.name == "stablehlo.dynamic_reshape" and _scalars_of(shape.result) is not None:
            parts = [v.op for v in shape.operands]
            found += [shape, *(p for p in parts if p is not None and uses[p.result] == 1)]
    return frozenset(found)


def _type_end(text: str) -> int:
    """Where the type at the beginning of an instruction ends: at the space outside of all brackets."""
    depth = 0
    for k, ch in enumerate(text):
        depth += (ch in "([{") - (ch in ")]}")
        if ch == " " and not depth:
            return k
    return len(text)


def _callees(f: Function) -> list[str]:
    names: list[str] = []
    for op in walk(f.body):
        if op.name == "func.call":
            names.append(op.attr("callee"))
        names.extend(op.attributes.get("called_computations") or ())
    return names


def _captured(*regions: Block) -> list[Value]:
    """The values from around the regions that they use, in the order of their first use."""
    own: set[Value] = set()
    free: dict[Value, None] = {}
    stack = [iter(r.ops) for r in reversed(regions)]
    for r in regions:
        own.update(r.arguments)
    while stack:
        op = next(stack[-1], None)
        if op is None:
            stack.pop()
            continue
        for v in op.operands:
            if v not in own:
                free[v] = None
        own.update(op.results)
        for r in reversed(op.regions):
            own.update(r.arguments)
            stack.append(iter(r.ops))
    return [v for v in free if v not in own]


_SPECIAL = {
    "stablehlo.constant": _Writer.constant,
    "xla.elided_constant": _Writer.elided,
    "stablehlo.tuple": _Writer.tuple,
    "stablehlo.get_tuple_element": _Writer.element,
    "func.call": _Writer.call,
    "stablehlo.if": _Writer.branches,
    "stablehlo.case": _Writer.branches,
    "stablehlo.all_to_all": _Writer.exchange,
    "stablehlo.rng": _Writer.rng,
    "stablehlo.infeed": _Writer.infeed,
    "stablehlo.optimization_barrier": _Writer.barrier,
    "stablehlo.dynamic_reshape": _Writer.dynamic_reshape,
    "stablehlo.send": _Writer.send,
    "stablehlo.recv": _Writer.recv,
}
