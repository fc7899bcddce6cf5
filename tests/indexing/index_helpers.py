"""What the tests of index maps share."""

from __future__ import annotations

from collections.abc import Iterable

import islpy

from hlo import Op
from hlo import parse as parse_program
from indexing import IndexingMap
from indexing.exact.isl import relation


def op_of(line: str, arguments: str) -> Op:
    """The op that `line` (`%r = …`) writes down, in a function with these arguments."""
    module = parse_program(f"func.func @main({arguments}) {{\n  {line}\n  return\n}}", name="<test>")
    return module.entry.body.ops[0]


def union(maps: Iterable[IndexingMap]) -> islpy.Map | None:
    """The union of the maps' relations; None for no map."""
    total = None
    for m in maps:
        total = relation(m) if total is None else total.union(relation(m))
    return total
