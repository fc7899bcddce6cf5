"""What a kernel's loops are: none of its own (some numbers computed from others, once), one of the program's, loops over sums."""

from __future__ import annotations

from collections.abc import Iterable

from codegen.kernel.ir import Assign, Augment, Do, For, If, Kernel, Load, Name, Statement, Store, While
from codegen.kernel.rename import inside
from codegen.kernel.spec import below, expressions

__all__ = ["adds_to_rows", "has_program_loop", "is_straight"]


def is_straight(kernel: Kernel) -> bool:
    """True where the loop over the tasks is the only one and each task would do the same, so that there is one.

    A function that is called for what it does (a block of products, a transpose) has loops.

    >>> from codegen.kernel.parse import parse
    >>> source = "def kernel(begin, end, y):\\n    for t in range(begin, end):\\n        y[{}] = y[1]\\n"
    >>> is_straight(parse(source.format(0))), is_straight(parse(source.format("t")))
    (True, False)
    """
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], For):
        return False
    tasks = kernel.body[0]
    for s in inside(tasks.body):
        if isinstance(s, For | While | Do) or any(isinstance(e, Name) and e.name == tasks.variable for e in expressions(s)):
            return False
    return True


def has_program_loop(kernel: Kernel) -> bool:
    """True where a loop of the program, which goes on until a value says so, is in the kernel: what it repeats is small."""
    return any(isinstance(s, While) for s in inside(kernel.body))


def adds_to_rows(kernel: Kernel) -> bool:
    """True where a loop adds to the elements of a row again and again: a row that fits into registers had better stay there.

    >>> from codegen.kernel.parse import parse
    >>> source = "def kernel(begin, end, x, y):\\n    for t in range(begin, end):\\n        for r in range(9):\\n"
    >>> source += "            for i in range(16):\\n                y[16 * t + i] = {} + x[16 * r + i]\\n"
    >>> adds_to_rows(parse(source.format("y[16 * t + i]"))), adds_to_rows(parse(source.format("1.0")))
    (True, False)
    """
    return any(isinstance(s, For | While) and _adds(s.body, []) for s in kernel.body)


def _adds(statements: Iterable[Statement], around: list[set[str]]) -> bool:
    """The same of statements inside loops; `around` are the names that follow from each loop's variable."""
    for s in statements:
        if isinstance(s, For):
            if _adds(s.body, [*around, {s.variable}]):
                return True
        elif isinstance(s, While):
            if _adds(s.body, [*around, set()]):
                return True
        elif isinstance(s, If):
            if _adds((*s.then, *s.otherwise), around):
                return True
        elif isinstance(s, Assign) or (isinstance(s, Augment) and isinstance(s.target, Name)):
            read, name = _names(s), s.name if isinstance(s, Assign) else s.target.name
            for names in around:
                if names & read:
                    names.add(name)
        elif isinstance(s, Store) or (isinstance(s, Augment) and isinstance(s.target, Load)):
            place = s if isinstance(s, Store) else s.target
            assert isinstance(place, Store | Load)
            again = isinstance(s, Augment) or any(isinstance(e, Load) and e.buffer == place.buffer for e in below(s.value))
            index = {e.name for e in below(place.index) if isinstance(e, Name)}
            moves = [not names.isdisjoint(index) for names in around]
            if again and False in moves and any(moves[moves.index(False) :]):
                return True
    return False


def _names(s: Statement) -> set[str]:
    return {e.name for e in expressions(s) if isinstance(e, Name)}
