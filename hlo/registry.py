"""The registry: what an op is, described once, as data.

The verifier, the index analysis, the code generator and the documentation's op table all loop over the same definitions.
Registering a name that another module registered raises; asking for a name that is not there raises and names it.
"""

from __future__ import annotations

import difflib
import enum
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlo.access import AccessFunction, AnyOp, Index
from hlo.attributes import ENUMS, KINDS, TypedArray
from hlo.errors import Declined, DefinitionError, VerificationError
from hlo.lazy import cached_property
from hlo.types import Type
from hlo.typesets import TYPE_SETS, TypeSet

__all__ = [
    "Attribute",
    "Constraint",
    "Elementwise",
    "Fold",
    "Generate",
    "Literal",
    "ModuleConstraint",
    "Move",
    "OpDefinition",
    "Operand",
    "Semantics",
    "Structure",
    "SumOfProducts",
    "close_own",
    "definition",
    "definitions",
    "is_added",
    "operands_fault",
    "register",
    "similar",
]

# ---------------------------------------------------------------- how the reads become the output element


@dataclass(frozen=True)
class Elementwise:
    """out[d] = function(operand_0[d], operand_1[d], …): `function` names a scalar function; see `codegen.source.scalars`."""

    function: str


@dataclass(frozen=True)
class Move:
    """out[d] = the operand element of the first read, in the access function's order, whose conditions hold at d.

    Slices, transposes, concatenation, padding, updates in place.
    `otherwise` is the operand number read (as a scalar) where no condition holds; None when one always does.
    """

    otherwise: int | None = None


@dataclass(frozen=True)
class Fold:
    """out[d] = region(… region(init, in[d, r0]), in[d, r1] …) over the range variables; `inputs` and `inits` count operands.

    Results are folded together (variadic reduce); the region's combination may be reassociated, as the specification allows.
    """

    inputs: tuple[int, ...]
    inits: tuple[int, ...]


@dataclass(frozen=True)
class SumOfProducts:
    """out[d] = sum over the range variables of operand_0[…] * operand_1[…] (dot_general, convolution)."""


@dataclass(frozen=True)
class Generate:
    """out[d] = value(op, d), an index expression converted to the element type (iota)."""

    value: Callable[[AnyOp, tuple[Index, ...]], Index]


@dataclass(frozen=True)
class Literal:
    """out[d] = the constant's element at d."""


Semantics = Elementwise | Move | Fold | SumOfProducts | Generate | Literal | Declined


class Structure(enum.Enum):
    """What an op's regions or tuples mean, where it computes nothing by itself."""

    LOOP = "its regions are a condition and a body, over the values of the iteration before"
    BRANCH = "one of its regions runs: the first operand tells which"
    CALL = "its results are those of a block over its operands: of the function that it names, else its region"
    TUPLE = "its result is a tuple of its operands"
    ELEMENT = "its result is an element of its operand, a tuple"
    BARRIER = "its results are its operands, and nothing moves across"


# ---------------------------------------------------------------- signatures

NO_DEFAULT = object()


@dataclass(frozen=True)
class Operand:
    """An operand of a definition. `accepts` tells in a word what types it takes, `check` decides it."""

    name: str
    accepts: str = "tensor"
    variadic: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Attribute:
    """An attribute: `kind` names its form in `hlo.attributes.KINDS`; without a default it is required.

    A default may be a function of the op (for instance: zeros, one for each dimension). `domain` names the set of words of
    an "enum" (`hlo.attributes.ENUMS`) where it is not the attribute's own name, with the dialect that prints it before a point.
    """

    name: str
    kind: str
    default: Any = NO_DEFAULT
    domain: str = ""

    @property
    def is_required(self) -> bool:
        return self.default is NO_DEFAULT

    @property
    def words(self) -> str:
        """The name of an enum's set of words."""
        return self.domain.rpartition(".")[2] or self.name

    def default_for(self, op: AnyOp) -> Any:
        if self.default is NO_DEFAULT:
            raise VerificationError(f"needs the attribute {self.name!r}", op.location, op=op.name)
        return self.default(op) if callable(self.default) else self.default


@dataclass(frozen=True)
class Constraint:
    """A rule of the specification. `check(op)` returns None when it holds, else what was expected and found.

    Rules that look at the op's results are `on_result`; a builder checks the others before it infers the results' types.
    """

    label: str
    text: str
    check: Callable[[AnyOp], str | None]
    on_result: bool = False


@dataclass(frozen=True)
class ModuleConstraint:
    """A rule that looks at the module too: `check(op, module)` as in `Constraint`."""

    label: str
    text: str
    check: Callable[[AnyOp, Any], str | None]


InferFunction = Callable[[AnyOp], Sequence[Type]]
"""The result types that operands, attributes and regions determine (`op.results` is not to be looked at)."""


@dataclass(frozen=True)
class OpDefinition:
    """One op, described once.

    infer      result types from the rest; `Declined` where the text must say them (then `constraints` judge them)
    regions    their names; with `has_any_regions` any number of them
    results    what the results may be, where the definition says more than `result_names`
    sized_segments  the text gives the number of each variadic operand's values (attribute operandSegmentSizes)
    access     the access function, one call for each result; `Declined` where no map describes the reads
    semantics  how the reads become the output element
    structure  what its regions or tuples mean, of an op that computes nothing by itself; `calls` is the attribute of a call that
               names the function
    spec       the section of the specification ("StableHLO: dot_general", "CHLO: erf", "XLA: Collapse")
    """

    name: str
    spec: str
    operands: tuple[Operand, ...]
    infer: InferFunction | Declined
    access: AccessFunction | Declined
    semantics: Semantics
    attributes: tuple[Attribute, ...] = ()
    regions: tuple[str, ...] = ()
    has_any_regions: bool = False
    results: tuple[Operand, ...] = ()
    result_names: tuple[str, ...] = ("result",)
    constraints: tuple[Constraint, ...] = ()
    module_constraints: tuple[ModuleConstraint, ...] = ()
    sized_segments: bool = False
    is_pure: bool = True
    is_terminator: bool = False
    aliases: tuple[str, ...] = ()
    structure: Structure | None = None
    calls: str = ""

    @property
    def is_control(self) -> bool:
        """True for loops and branches: their regions are programs of their own, all others functions of scalars."""
        return self.structure is Structure.LOOP or self.structure is Structure.BRANCH

    @property
    def function(self) -> str:
        """The scalar function of an elementwise op, else ""."""
        return self.semantics.function if isinstance(self.semantics, Elementwise) else ""

    @cached_property
    def known_attributes(self) -> Mapping[str, Attribute]:
        """Attribute name -> its description."""
        return {a.name: a for a in self.attributes}

    def segment_sizes(self, op: AnyOp) -> dict[str, Any]:
        """The attribute that the generic text needs to tell variadic operands apart; {} for ops that do not need one."""
        names = ("operandSegmentSizes", "resultSegmentSizes") if self.sized_segments else ()
        return {n: TypedArray("i32", tuple(op.attributes[n])) for n in names if n in op.attributes}

    @property
    def mnemonic(self) -> str:
        """The name without its dialect."""
        return self.name.partition(".")[2]

    def attribute(self, name: str) -> Attribute:
        """The attribute's description. Raises KeyError, naming the op, for one that it does not have."""
        try:
            return self.known_attributes[name]
        except KeyError:
            raise KeyError(f"{self.name} has no attribute {name!r}") from None

    def segment(self, name: str, count: int, op: AnyOp | None = None) -> tuple[int, int]:
        """[start, stop) of operand `name` among `count` actual operands.

        One variadic or optional operand takes what the others leave; several variadic ones share evenly (reduce's
        inputs and init values). Raises KeyError for a name that the op does not have.
        """
        if self.sized_segments and op is not None:
            sizes = op.attributes.get("operandSegmentSizes", ())
            begin = 0
            for o, size in zip(self.operands, sizes, strict=False):
                if o.name == name:
                    return begin, begin + size
                begin += size
        flexible = [o for o in self.operands if o.variadic or o.optional]
        spare = count - (len(self.operands) - len(flexible))
        start = 0
        for o in self.operands:
            width = 1
            if o.optional:
                width = min(1, spare)
            elif o.variadic:
                width = spare // len(flexible)
            if o.name == name:
                return start, start + width
            start += width
        raise KeyError(f"{self.name} has no operand {name!r}")


_REGISTRY: dict[str, OpDefinition] = {}
_OWN: set[str] = set()
_COUNTS: dict[str, set[int]] = {}  # scalar function -> the operands of own ops that have it
_MODULES: dict[str, str] = {}  # name -> the module that registered it


def register(op_definition: OpDefinition) -> OpDefinition:
    """Adds a definition, or replaces one that the same module added: a notebook's cell runs again, a module is reloaded.

    Programs that are parsed from then on have the new one; those that were parsed before keep theirs.

    Raises DefinitionError (a ValueError) for one whose parts do not fit, or whose name is another module's.

    >>> try:
    ...     register(OpDefinition("my.roll", "", (), Declined("the text says it"), Declined("no map"), Declined("no kernel"),
    ...                           attributes=(Attribute("by", "int"),)))
    ... except DefinitionError as error:
    ...     print(str(error)[:72])
    op my.roll: attribute 'by': expected a kind of hlo.attributes.KINDS (i64
    """
    fault = _fault(op_definition)
    if fault is not None:
        raise DefinitionError(f"op {op_definition.name}: {fault}")
    module = str(sys._getframe(1).f_globals.get("__name__", ""))
    names = (op_definition.name, *op_definition.aliases)
    for name in names:
        old = _REGISTRY.get(name)
        if old is not None and (not _OWN or name in _OWN or _MODULES.get(name) != module or old.name != op_definition.name):
            raise DefinitionError(f"op {name} is registered twice: by {_MODULES.get(name)} and by {module}")
    for name in [n for n, d in _REGISTRY.items() if d.name == op_definition.name]:
        del _REGISTRY[name]  # (an alias that the new one lacks)
    _REGISTRY.update(dict.fromkeys(names, op_definition))
    _MODULES.update(dict.fromkeys(names, module))
    return op_definition


def _fault(d: OpDefinition) -> str | None:
    """What of a definition cannot be meant, whatever op it is of."""
    if not all(d.name.partition(".")):
        return "expected a name with a dialect, such as 'mylib.roll'"
    for a in d.attributes:
        if a.kind not in KINDS:
            return f"attribute {a.name!r}: expected a kind of hlo.attributes.KINDS ({', '.join(KINDS)}), found {a.kind!r}"
        if a.kind in ("enum", "enums") and a.words not in ENUMS:
            return f"attribute {a.name!r}: expected a domain of hlo.attributes.ENUMS ({', '.join(ENUMS)}), found {a.words!r}"
    for o in (*d.operands, *d.results):
        if not isinstance(o.accepts, TypeSet) and o.accepts not in TYPE_SETS:
            expected = f"a set of types (hlo.typesets.tensors makes them) or one of {', '.join(map(repr, TYPE_SETS))}"
            return f"operand {o.name!r}: expected {expected}, found {o.accepts!r}"
    if isinstance(d.semantics, SumOfProducts) and len(d.operands) < 2:
        return f"expected two operands of a sum of products, found {len(d.operands)}"
    return None


def close_own() -> None:
    """Says that all of this project's own ops are registered; `hlo.ops` does so. What comes later is another package's."""
    _OWN.update(_REGISTRY)
    for d in _REGISTRY.values():
        if d.function:
            _COUNTS.setdefault(d.function, set()).add(len(d.operands))


def operands_fault(function: str, count: int) -> str | None:
    """What is wrong with so many operands of a scalar function; None for as many as this project's own ops give it.

    >>> operands_fault("clamp", 3), operands_fault("no_such", 9)
    (None, None)
    >>> operands_fault("add", 1)
    "expected 2 operands of the scalar function 'add', found 1"
    """
    counts = _COUNTS.get(function, {count})
    if count in counts:
        return None
    return f"expected {' or '.join(map(str, sorted(counts)))} operands of the scalar function {function!r}, found {count}"


def similar(name: str) -> str:
    """", did you mean …?" with the registered name that is spelled most like `name`; "" where none is.

    >>> similar("stablehlo.exponentail"), similar("?")
    (", did you mean 'stablehlo.exponential'?", '')
    """
    near = difflib.get_close_matches(name, sorted(_REGISTRY), 1, 0.8)
    return f", did you mean {near[0]!r}?" if near else ""


def is_added(op_definition: OpDefinition) -> bool:
    """Whether a definition is another package's: other processes know it only where they import that package, too.

    >>> is_added(definition("stablehlo.add"))
    False
    """
    return op_definition.name not in _OWN


def definition(name: str) -> OpDefinition:
    """The definition of the op called `name`. Raises KeyError naming the op and this table."""
    try:
        return _REGISTRY[name]
    except KeyError:
        raise KeyError(f"no definition of {name!r} in hlo.registry") from None


def lookup(name: str) -> OpDefinition | None:
    """The definition, or None."""
    return _REGISTRY.get(name)


def definitions() -> Iterator[OpDefinition]:
    """Every definition once, by name."""
    seen = set()
    for name in sorted(_REGISTRY):
        d = _REGISTRY[name]
        if d.name not in seen:
            seen.add(d.name)
            yield d


def table() -> Mapping[str, OpDefinition]:
    """A read-only view: name or alias -> definition."""
    return dict(_REGISTRY)
