"""What the documentation takes from the code: the table of ops and the table of element types, made when the site is built."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from hlo import Declined
from hlo.registry import Elementwise, Fold, Generate, Literal, Move, OpDefinition, SumOfProducts, definitions

YES, NO = "yes", "–"
KINDS: dict[type, str] = {
    Elementwise: "elementwise",
    Fold: "fold",
    Generate: "generate",
    Literal: "constant",
    Move: "move",
    SumOfProducts: "contraction",
}


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def emits(op: OpDefinition) -> str:
    """How kernels compute the op, or why the evaluator does."""
    from codegen.scalars import SCALAR_RULES

    if isinstance(op.semantics, Declined):
        return f"evaluator: {op.semantics.reason}"
    if isinstance(op.access, Declined):
        return f"evaluator: {op.access.reason}"
    if isinstance(op.semantics, Elementwise):
        return YES if op.semantics.function in SCALAR_RULES else f"evaluator: no scalar rule for {op.semantics.function}"
    return YES


def row(op: OpDefinition) -> list[str]:
    from hlo.text.formats import format_of
    from interp.registry import rule_for

    rule = rule_for(op.name)
    evaluated = NO if rule is None else YES if rule.declined is None else rule.declined.reason
    tiled = KINDS.get(type(op.semantics), NO) if not isinstance(op.access, Declined) else NO
    return [
        f"`{op.name}`",
        "pretty, generic" if format_of(op.name) else "generic",
        ", ".join(c.label for c in op.constraints) or NO,
        f"stated: {op.infer.reason}" if isinstance(op.infer, Declined) else YES,
        evaluated,
        f"declined: {op.access.reason}" if isinstance(op.access, Declined) else YES,
        tiled,
        emits(op),
    ]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(cell, r)) + " |" for r in rows)])


def op_table() -> str:
    ops = [op for op in definitions() if not op.is_terminator]
    made = f"{len(ops)} ops; {sum(emits(op) == YES for op in ops)} of them become kernels.\n\n"
    return made + table(["op", "parse", "verify", "infer", "evaluate", "index", "tile", "emit"], [row(op) for op in ops])


def type_table() -> str:
    from codegen.scalars import number_type
    from hlo.types import ELEMENT_TYPES

    rows = []
    for name, element in ELEMENT_TYPES.items():
        number = number_type(element)
        kernel = f"evaluator: {number.reason}" if isinstance(number, Declined) else f"yes, as {number}"
        rows.append([f"`{name}`", str(element.dtype), YES, YES, kernel])
    return table(["type", "NumPy", "parse and verify", "evaluate", "emit"], rows)


def on_page_markdown(markdown: str, **context: Any) -> str:
    """Called by mkdocs for each page."""
    for marker, made in (("<!-- op table -->", op_table), ("<!-- type table -->", type_table)):
        if marker in markdown:
            markdown = markdown.replace(marker, made())
    return markdown
