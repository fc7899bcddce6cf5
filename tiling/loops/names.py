"""Names that the fusions of one plan share. No name comes from the program's text without being made harmless."""

from __future__ import annotations

import keyword
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from hlo.errors import Declined
from hlo.module import DenseArray, Op, Value
from hlo.registry import Literal
from hlo.types import ElementType
from indexing.deriving.edges import EdgeMaps
from indexing.map import IndexingMap
from tiling.loops.buffers import Buffer, Scope, make_buffer
from tiling.loops.domains.box import Span
from tiling.loops.monoid import Monoid
from tiling.loops.shape import Shape
from tiling.loops.stage import Stage

__all__ = ["Names", "StageMaps", "is_harmless"]

StageMaps = tuple[tuple[Value, IndexingMap], ...]
"""What a stage reads: (value, the map to its index from that of the stage's result)."""


class Names:
    """Unique, readable identifiers for values: `x`, `v12`, `dot_3`."""

    def __init__(self, in_memory: Iterable[Value]) -> None:
        self.in_memory = dict.fromkeys(in_memory)
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self.edges = EdgeMaps()  # the index maps that the program's edges carry
        self.maps: dict[Hashable, StageMaps] = {}  # and those from a stage to what it reads in memory
        self._buffers: dict[tuple[Value, Scope], Buffer] = {}  # of whole values
        self.covers: dict[Hashable, Span] = {}  # what a box covers along a result of a map
        self.monoids: dict[Hashable, Monoid | Declined] = {}  # found once for a fold
        self.shapes: dict[Hashable, Shape] = {}  # the loops of a stage over a box of its result
        self.buffers: dict[Hashable, Buffer] = {}  # while fusions are weighed: one for each box of a value
        self.templates: dict[Hashable, Any] = {}  # the pattern of a stage's elements, for all boxes
        self.emitted: dict[Hashable, Any] = {}  # and the steps of a stage over a box, with given buffers
        self.sheets: dict[Hashable, Any] = {}  # what a stage over a box reads, on which conditions
        self.no_dots: set[Hashable] = set()  # contractions that are summed along k in no tile
        # Found once for a fusion, whatever its tiles.
        self.inlined: dict[tuple[tuple[Stage, ...], frozenset[Value]], frozenset[Value]] = {}  # what is computed where it is read
        self.closures: dict[tuple[tuple[Stage, ...], frozenset[Value]], frozenset[Stage]] = {}  # what the root is computed from
        self.limits: dict[tuple[Stage, ...], dict[Value, float | None] | Declined | None] = {}
        self.facts: dict[Value, Any] = {}  # what other kernels are known to have left in a value (`tiling.planning.facts`)
        self.is_limited: dict[Op, bool] = {}  # products that may be bounded by numbers known at run time
        self.limited: dict[tuple[Stage, ...], Any] = {}
        self.carried: dict[Value, Value] = {}  # what a loop's body makes -> the argument that it becomes in the next iteration
        self.kept: frozenset[Value] = frozenset()  # values that calls with the same arguments find made, and packed
        self.is_lean = False  # whether factors are packed by the tasks that read them, where memory counts more than packing once
        for v in self.in_memory:
            self.of(v)  # in program order, so that the same program always gets the same names

    def of(self, v: Value) -> str:
        """A value's identifier, the same whenever it is asked for."""
        known = self._names.get(v)
        if known is not None:
            return known
        # Words always get a number, so that none hides a function or type of the kernel library (`%float32`, `select`), or what
        # a source calls its own (`codegen.source`: words, therefore, and no letters).
        if v.name and _HIDES_NOTHING.fullmatch(v.name):
            name = self._unique(v.name)
        elif v.name and not v.name[0].isdigit():
            name = self._unique(_harmless(v.name) + "_1")
        else:
            name = self._unique((_harmless(v.op.definition.mnemonic) if v.op is not None else "arg") + "_1")
        self._names[v] = name
        return name

    @property
    def known(self) -> dict[Value, str]:
        """The names that were asked for so far."""
        return dict(self._names)

    def take(self, names: Mapping[Value, str]) -> None:
        """Has values be called so from now on: names depend on the order in which they are asked for.

        Raises ValueError for a name that is no identifier: names go into the source of kernels.
        """
        for name in names.values():
            if not is_harmless(name):
                raise ValueError(f"expected a name of letters, digits and _, found {name!r}")
        self._names.update(names)
        self._taken.update(names.values())

    def _unique(self, wanted: str) -> str:
        name = wanted
        stem, _, number = wanted.rpartition("_")
        count = int(number) if stem and number.isdigit() else 1
        stem = stem if stem and number.isdigit() else wanted
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def stage(self, stage: Stage) -> str:
        return self.of(stage.values[0]) if stage.values else stage.op.definition.mnemonic

    def scratch(self, v: Value, role: str = "tile") -> str:
        """A name for scratch that holds (a part of) a value."""
        return f"{self.of(v)}_{role}"

    def is_stored_constant(self, v: Value) -> bool:
        """True for a constant that is more than one repeated element: it lies in memory like an argument."""
        if v.op is None or not isinstance(v.op.definition.semantics, Literal):
            return False
        dense: DenseArray = v.op.attr("value")
        return not dense.is_splat

    def global_buffer(self, v: Value, scope: Scope) -> Buffer:
        """The dense row-major buffer of a whole value."""
        known = self._buffers.get((v, scope))
        if known is None:
            element = v.tensor.element
            if not isinstance(element, ElementType):
                raise LookupError(f"{v.type} is quantized")
            made = make_buffer(self.of(v), scope, element, v.shape, v.shape, (0,) * v.rank, v)
            known = self._buffers[v, scope] = made
        return known


_HIDES_NOTHING = re.compile(r"[a-z]|arg[0-9]{1,9}")


def is_harmless(name: str) -> bool:
    """Whether a name can stand in a kernel's source as it is: an identifier of ASCII that is no word of Python's.

    >>> is_harmless("x_1"), is_harmless("x); import os"), is_harmless("lambda"), is_harmless("__import__")
    (True, False, False, False)
    """
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and not name.startswith("__")


def _harmless(name: str) -> str:
    """An identifier made of the letters, digits and underscores of a name; generated code contains no other part of it."""
    kept = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:24].strip("_").lower()
    if not kept or kept[0].isdigit():
        kept = f"v{kept}"
    return f"{kept}_" if keyword.iskeyword(kept) or kept in _RESERVED else kept


_RESERVED = {
    "begin",
    "end",
    "task",
    "range",
    "min",
    "max",
    "kernel",
    "scratch",
    "int",
    "float",
    "bool",
    "exp",
    "log",
    "sum",
}
