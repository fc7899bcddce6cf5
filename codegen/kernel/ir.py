"""Statements and expressions of a kernel: what every print and every rewrite of kernels works on.

A kernel runs the tasks `begin` <= task < `end` over buffers, flat runs of elements of one type each. Loops are structured, a
name has one type wherever it is assigned, and all that is called is a function of the kernel library, without side effects but
on the buffers that it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import TypeAlias

__all__ = [
    "Assign",
    "Augment",
    "Binary",
    "Break",
    "Call",
    "Compare",
    "Continue",
    "Do",
    "Enclosed",
    "Expression",
    "For",
    "If",
    "Kernel",
    "Load",
    "Logical",
    "Name",
    "Number",
    "Parameter",
    "Pass",
    "Return",
    "Statement",
    "Store",
    "Unary",
    "While",
    "printed",
]

# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, a parameter, or a constant of the library (`inf`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A literal: a bool, an integer (int64) or a float (float64)."""

    value: bool | int | float

    def __eq__(self, other: object) -> bool:
        # (1, 1.0 and True are equal in Python.)
        return isinstance(other, Number) and type(self.value) is type(other.value) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `+x`, `~x` or `not x`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """`left operator right`; a `tight` one is printed without spaces, as a factor of an address."""

    operator: str
    left: Expression
    right: Expression
    tight: bool = False


@dataclass(frozen=True, slots=True)
class Compare:
    """A chain `a < b <= c`: true where every link is, and nothing after the first that is false is computed."""

    first: Expression
    links: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Logical:
    """`and` or `or` of bools, none computed that does not matter."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the library, or the name of a number's type."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Element `index` of a buffer, or of what a call makes of one (`at(x, 8)[i]`)."""

    buffer: str | Call
    index: Expression


@dataclass(frozen=True, slots=True)
class Enclosed:
    """An expression in parentheses: kept, so that the print is what was written."""

    value: Expression


Expression: TypeAlias = Name | Number | Unary | Binary | Compare | Logical | Call | Load | Enclosed

# ---------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Assign:
    """`name = value`."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[index] = value`."""

    buffer: str | Call
    index: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Augment:
    """`target += value`, with any binary operator; the target is a variable or an element."""

    target: Name | Load
    operator: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Do:
    """A call for what it does to the buffers."""

    call: Call


@dataclass(frozen=True, slots=True)
class For:
    """`for variable in range(start, stop, step)`: `start` and `step` are None where they are not written (0 and 1)."""

    variable: str
    start: Expression | None
    stop: Expression
    step: Expression | None
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class While:
    test: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If:
    """One that stands alone in `otherwise` is printed as `elif`."""

    test: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Break:
    """Out of the innermost loop."""


@dataclass(frozen=True, slots=True)
class Continue:
    """On to the innermost loop's next iteration."""


@dataclass(frozen=True, slots=True)
class Return:
    """The end of the kernel: no further task is run."""


Statement: TypeAlias = Assign | Store | Augment | Do | For | While | If | Pass | Break | Continue | Return

# ---------------------------------------------------------------- kernels


@dataclass(frozen=True, slots=True)
class Parameter:
    """A buffer of the kernel: its `element` type by the program's name, its shape, and who else sees it.

    `scope` is `argument` or `result` for memory of the caller, `shared` for memory of the program's kernels, `thread` for the
    executing thread's scratch, `local` for the function's own; a local one is a copy of the parameter `of`. One that is `also`
    there is another value in the memory of the parameter of the same name: no argument of its own.
    """

    name: str
    element: str
    shape: tuple[int, ...]
    scope: str
    of: str = ""
    also: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its title, `begin`, `end` and the buffers, and what one call does.

    `words` is a comment of another form than title and buffers; the parameters then have names alone.
    """

    title: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]
    words: str | None = None
    name: str = "kernel"
    bounds: tuple[str, ...] = ("begin", "end")

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        """The parameters after `begin` and `end`, one for each memory."""
        return tuple(p for p in self.parameters if not p.also)

    def __str__(self) -> str:
        return printed(self)


@singledispatch
def printed(kernel: object) -> str:
    """The text of a kernel: the print that says it is one for people registers itself (`codegen.kernel.print_numba`)."""
    raise TypeError(f"no print of {type(kernel).__name__}")
