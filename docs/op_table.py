"""Writes docs/op-table.md from the definitions: `python docs/op_table.py` (with --check it only compares, and exits with 1)."""

# ruff: noqa: E402 (the repository is put on the path first)

from __future__ import annotations

import functools
import pathlib
import sys
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import codegen.scalars
import hlo
import indexing
from hlo.builder import Builder, type_of
from hlo.decompositions import decomposition
from hlo.errors import Declined
from hlo.registry import Elementwise, Literal, Move, OpDefinition, SumOfProducts, definitions
from hlo.text.formats import CUSTOM, format_of
from hlo.text.region_formats import REGION_FORMATS
from hlo.text.xla_table import OPCODES
from hlo.types import ELEMENT_TYPES, ElementType, QuantizedType, TensorType
from hlo.typesets import TYPE_SETS, TypeSet
from interp.registry import rule_for
from tests.hlo.test_builder import CASES, built
from tiling.routines import ROUTINES
from tiling.symbolic import symbolic_tile

PAGE = ROOT / "docs" / "op-table.md"
HEAD = """# Every op, and what is done with it

Made from the definitions by `python docs/op_table.py`; a test says when it is out of date.

- **parse**: text forms that are read and printed (MLIR's generic form always is), and the opcode in HLO text.
- **verify**: the constraints by the specification's labels; "signature" where operands, attributes and regions are all there is.
- **infer**: whether the result types follow from the rest, or why the text states them.
- **evaluate**: by the NumPy evaluator.
- **index**: whether maps say which operand elements an output element reads.
- **tile**: whether the maps of the op's small example have symbolic tiles, operand by operand.
- **emit**: the loops that kernels are made of, or why the op has none of its own (the evaluator runs it then).
- **types**: what the first operand may be: in kernels, and in the evaluator besides. Gradients are taken by JAX before lowering.
- **decompose**: CHLO in terms of StableHLO (`hlo.decompose`).

"""
OPCODE = {row.op: code for code, row in sorted(OPCODES.items(), reverse=True)}
QUANTIZED = QuantizedType(ELEMENT_TYPES["i8"], ELEMENT_TYPES["f32"], (1.0,), (0,), -128, 127)


def declined(d: Declined) -> str:
    return f"no: {d.reason}"


def parse(d: OpDefinition) -> str:
    pretty = format_of(d.name) is not None or d.name in CUSTOM or d.name in REGION_FORMATS
    return ("pretty, generic" if pretty else "generic") + (f"; HLO `{OPCODE[d.name]}`" if d.name in OPCODE else "")


def verify(d: OpDefinition) -> str:
    labels = dict.fromkeys(c.label for c in (*d.constraints, *d.module_constraints))
    numbered = sorted(labels, key=lambda n: (not n[1:].isdigit(), int(n[1:]) if n[1:].isdigit() else 0))
    return ", ".join(numbered) or "signature"


def infer(d: OpDefinition) -> str:
    return f"stated: {d.infer.reason}" if isinstance(d.infer, Declined) else "yes" if d.result_names else "no results"


def evaluate(d: OpDefinition) -> str:
    rule = rule_for(d.name)
    if rule is None:
        return "ends its block" if d.is_terminator else "missing"
    return "yes" if rule.declined is None else declined(rule.declined)


def index(d: OpDefinition) -> str:
    return declined(d.access) if isinstance(d.access, Declined) else "yes"


@functools.cache
def examples() -> dict[str, hlo.Op]:
    """A small op of each name, from the builder's tests."""
    found: dict[str, hlo.Op] = {}
    for row in CASES.values():
        for op in hlo.walk(built(row)[0].entry.body):
            found.setdefault(op.name, op)
    b = Builder("main")  # two ops that the builder writes as others
    x = b.parameter(0, "f32[3,3]")
    for name, attributes, shape in (("broadcast", {"broadcast_sizes": (2,)}, "f32[2,3,3]"), ("dot", {}, "f32[3,3]")):
        operands = (x,) if name == "broadcast" else (x, x)
        made = b.emit(f"stablehlo.{name}", operands, attributes, (), [type_of(shape)])[0].op
        assert made is not None
        found.setdefault(made.name, made)
    return found


def tile(d: OpDefinition) -> str:
    if isinstance(d.access, Declined):
        return "no map"
    op = examples().get(d.name)
    if op is None:
        return "reads nothing" if not d.operands or d.is_terminator else "missing"
    if not all(isinstance(r.type, TensorType) and r.type.is_static for r in op.results):
        return "when the sizes are known"
    maps = [m for output in range(len(op.results)) for s in indexing.output_to_input(op, output) for m in s]
    if not maps:
        return "reads nothing"
    tiles = [symbolic_tile(m) for m in maps]
    refused = [t for t in tiles if isinstance(t, Declined)]
    if not refused:
        return "yes"
    some = f"{len(tiles) - len(refused)} of {len(tiles)} reads; " if len(refused) < len(tiles) else ""
    return f"{some}no: {refused[0].reason}"


def emit(d: OpDefinition) -> str:
    if d.is_terminator:
        return "ends its block"
    if d.name in ROUTINES:
        return "routine"
    for part in (d.semantics, d.access):
        if isinstance(part, Declined):
            return f"no loops: {part.reason}"
    if isinstance(d.semantics, Elementwise) and d.semantics.function not in codegen.scalars.SCALAR_RULES:
        if d.mnemonic in ("uniform_quantize", "uniform_dequantize") or callable(decomposition(d.name)):
            return "by what it is made of"
        return f"evaluator: no scalar rule for {d.semantics.function}"
    return type(d.semantics).__name__.lower()


KINDS: dict[str, Callable[[ElementType], bool]] = {
    "boolean": lambda e: e.is_boolean,
    "integer": lambda e: e.is_integer and e.bits >= 8,
    "float": lambda e: e.is_float and e.bits >= 16,
    "2- and 4-bit integer": lambda e: e.is_integer and e.bits < 8,
    "4- to 8-bit float": lambda e: e.is_float and e.bits <= 8,
    "complex": lambda e: e.is_complex,
}


def types(d: OpDefinition) -> str:
    if not d.operands:
        return "no operands"
    accepts = d.operands[0].accepts
    accepted = accepts if isinstance(accepts, TypeSet) else TYPE_SETS[accepts]
    ranks = [(), (2,), (2, 2)]

    def takes(e: ElementType | QuantizedType) -> bool:
        return any(accepted.has(TensorType(shape, e)) for shape in ranks)

    has_loops = not emit(d).startswith(("no loops", "evaluator", "ends"))
    in_kernels, besides = [], []
    for word, is_kind in KINDS.items():
        found = [e for e in ELEMENT_TYPES.values() if is_kind(e) and takes(e)]
        if found:
            known = not isinstance(d.semantics, Elementwise) or any(computes(d, e) for e in found)
            (in_kernels if has_loops and known else besides).append(word)
    if takes(QUANTIZED):
        as_integers = isinstance(d.semantics, Elementwise | Move | SumOfProducts | Literal)
        (in_kernels if has_loops and as_integers else besides).append("quantized")
    if len(in_kernels) + len(besides) == 0:
        return str(accepted)
    return "; ".join(
        text
        for text in (
            "kernels: " + ", ".join(in_kernels) if in_kernels else "",
            "evaluator: " + ", ".join(besides) if besides else "",
        )
        if text
    )


def computes(d: OpDefinition, e: ElementType) -> bool:
    """Whether kernels have an elementwise op's function of an element type, in itself or by what the op is made of."""
    assert isinstance(d.semantics, Elementwise)
    function = d.semantics.function
    missing = e.is_complex and function in codegen.scalars.WITHOUT_COMPLEX
    return not missing or callable(decomposition(d.name))


def decompose(d: OpDefinition) -> str:
    found = decomposition(d.name)
    if found is None:
        return "StableHLO itself" if d.name.startswith("stablehlo.") else "not CHLO"
    return declined(found) if isinstance(found, Declined) else "yes"


COLUMNS: tuple[Callable[[OpDefinition], str], ...] = (parse, verify, infer, evaluate, index, tile, emit, types, decompose)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip()


def rows() -> list[list[str]]:
    """The table's cells, op by op."""
    return [[f"`{d.name}`", *(cell(column(d)) for column in COLUMNS)] for d in definitions()]


def page() -> str:
    """The whole page."""
    head = ["op", *(c.__name__ for c in COLUMNS)]
    made = rows()
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(r) + " |" for r in made)]
    return f"{HEAD}{len(made)} ops.\n\n" + "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    made = page()
    if "--check" in arguments:
        return 0 if PAGE.is_file() and PAGE.read_text("utf-8") == made else 1
    PAGE.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
