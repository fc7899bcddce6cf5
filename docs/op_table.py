"""Writes docs/op-table.md from the definitions: `python docs/op_table.py` (with --check it only compares, and exits with 1)."""

# ruff: noqa: E402 (the repository is put on the path first)

from __future__ import annotations

import functools
import pathlib
import sys
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
for folder in (ROOT, ROOT / "docs"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import op_support

import codegen.source.scalars
import hlo
import indexing
from hlo.decompositions import decomposition
from hlo.errors import Declined
from hlo.registry import Elementwise, OpDefinition, definitions
from hlo.text.formats import CUSTOM, format_of
from hlo.text.region_formats import REGION_FORMATS
from hlo.text.xla.table import OPCODES
from hlo.types import ELEMENT_TYPES, TensorType
from interp.registry import rule_for
from tests.hlo.test_builder import Row
from tiling.routines.table import ROUTINES
from tiling.tiles.symbolic import symbolic_tile

PAGE = ROOT / "docs" / "op-table.md"
HEAD = """# Ops and types

Made from the definitions by `python docs/op_table.py`; a test says when it is out of date.

- **parse**: text forms that are read and printed (MLIR's generic form always is), and the opcode in HLO text.
- **verify**: the constraints by the specification's labels; "signature" where operands, attributes and regions are all there is.
- **infer**: whether the result types follow from the rest, or why the text states them.
- **evaluate**: by the NumPy evaluator.
- **index**: whether maps say which operand elements an output element reads.
- **tile**: whether the maps of the op's small example have symbolic tiles, operand by operand.
- **emit**: the loops that kernels are made of, or why the op has none of its own (the evaluator runs it then).
- **decompose**: CHLO in terms of StableHLO (`hlo.decompose`).

Below it are [the types that each op takes](#types-op-by-op), found out by trying, and [the element types](#element-types).

"""
SUPPORT_HEAD = """
## Types, op by op

The small example of each op was made with each element type in place of its own (for `select` and its like, in place of that of
the values), verified, planned, and run in the evaluator. **K**: computed in a kernel; **E**: in the evaluator, inside the same
program; **.**: the op does not take the type; **-**: it does, and the evaluator declines. Gradients are taken by JAX before
lowering, so a gradient's ops are among these.

"""
TYPES_HEAD = """
## Element types

*Emit* names the type that kernels compute in. Quantized types are parsed, verified and evaluated.

"""
OPCODE = {row.op: code for code, row in sorted(OPCODES.items(), reverse=True)}


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
def examples() -> dict[str, tuple[Row | None, hlo.Module, hlo.Op]]:
    return op_support.examples()


def tile(d: OpDefinition) -> str:
    if isinstance(d.access, Declined):
        return "no map"
    found = examples().get(d.name)
    if found is None:
        return "reads nothing" if not d.operands or d.is_terminator else "missing"
    op = found[2]
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
    if {d.name, f"in_lines.{d.mnemonic}"} & ROUTINES.keys():
        return "routine"
    for part in (d.semantics, d.access):
        if isinstance(part, Declined):
            return f"no loops: {part.reason}"
    if isinstance(d.semantics, Elementwise) and d.semantics.function not in codegen.source.scalars.SCALAR_CODE:
        if d.mnemonic in ("uniform_quantize", "uniform_dequantize") or callable(decomposition(d.name)):
            return "by what it is made of"
        return f"evaluator: no scalar rule for {d.semantics.function}"
    return type(d.semantics).__name__.lower()


def decompose(d: OpDefinition) -> str:
    found = decomposition(d.name)
    if found is None:
        return "StableHLO itself" if d.name.startswith("stablehlo.") else "not CHLO"
    return declined(found) if isinstance(found, Declined) else "yes"


COLUMNS: tuple[Callable[[OpDefinition], str], ...] = (parse, verify, infer, evaluate, index, tile, emit, decompose)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip()


def rows() -> list[list[str]]:
    """The table's cells, op by op."""
    return [[f"`{d.name}`", *(cell(column(d)) for column in COLUMNS)] for d in definitions()]


def support_rows() -> list[list[str]]:
    """Op by op, a mark for each type."""
    found = sorted((name, *rest) for name, rest in examples().items() if not rest[2].definition.is_terminator)
    marked = [(name, op_support.support(row, module, op)) for name, row, module, op in found]
    return [[f"`{name}`", *marks.values()] for name, marks in marked if set(marks.values()) != {"."}]


def type_rows() -> list[list[str]]:
    made = []
    for name, element in ELEMENT_TYPES.items():
        number = codegen.source.scalars.number_type(element)
        kernel = f"evaluator: {number.reason}" if isinstance(number, Declined) else f"yes, as {number}"
        made.append([f"`{name}`", cell(str(element.dtype)), "yes", "yes", cell(kernel)])
    return made


def table(head: list[str], made: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(r) + " |" for r in made)]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    made = rows()
    support = table(["op", *(f"`{t}`" for t in op_support.TYPES)], support_rows())
    types = table(["type", "NumPy", "parse and verify", "evaluate", "emit"], type_rows())
    ops = table(["op", *(c.__name__ for c in COLUMNS)], made)
    return f"{HEAD}{len(made)} ops.\n\n{ops}{SUPPORT_HEAD}{support}{TYPES_HEAD}{types}"


def main(arguments: list[str]) -> int:
    made = page()
    if "--check" in arguments:
        return 0 if PAGE.is_file() and PAGE.read_text("utf-8") == made else 1
    PAGE.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
