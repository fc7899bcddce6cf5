"""What a kernel's loops are: none of its own (some numbers computed from others, once), one of the program's, or sums."""

from __future__ import annotations

from collections.abc import Iterable

from codegen.kernel.ir import Assign, Augment, Do, For, If, Kernel, Load, Name, Statement, Store, While
from codegen.kernel.rename import assigned, inside
from codegen.kernel.spec import below, expressions

__all__ = ["carries_values", "has_program_loop", "is_straight"]


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


def carries_values(kernel: Kernel) -> bool:
    """True where a loop goes on from what it had before: a sum in a variable, or in elements that not every turn leaves behind.

    >>> from codegen.kernel.parse import parse
    >>> source = "def kernel(begin, end, x, y):\\n    for t in range(begin, end):\\n        for r in range(9):\\n"
    >>> source += "            for i in range(16):\\n                y[16 * t + i] = {} + x[16 * r + i]\\n"
    >>> carries_values(parse(source.format("y[16 * t + i]"))), carries_values(parse(source.format("1.0")))
    (True, False)
    """
    return any(isinstance(s, For | While) and _carries(s.body, [], set()) for s in kernel.body)


def _carries(statements: Iterable[Statement], around: list[set[str]], new: set[str]) -> bool:
    """The same of a loop's body: `around` are the names that follow from each loop's variable, `new` what a turn assigns."""
    for s in statements:
        if isinstance(s, For | While):
            if _carries(s.body, [*around, {s.variable} if isinstance(s, For) else set()], set()):
                return True
        elif isinstance(s, If):
            if _carries((*s.then, *s.otherwise), around, new):
                return True
        elif isinstance(s, Assign) or (isinstance(s, Augment) and isinstance(s.target, Name)):
            read, made = _names(s), set(assigned([s]))
            if around and not made <= new and (isinstance(s, Augment) or made & read):
                return True
            new |= made
            for names in around:
                if names & read:
                    names |= made
        elif isinstance(s, Store | Augment):
            place = s if isinstance(s, Store) else s.target
            assert isinstance(place, Store | Load), "a name was the case before"
            again = isinstance(s, Augment) or any(isinstance(e, Load) and e.buffer == place.buffer for e in below(s.value))
            index = {e.name for e in below(place.index) if isinstance(e, Name)}
            if again and any(names.isdisjoint(index) for names in around):
                return True
    return False


def _names(s: Statement) -> set[str]:
    return {e.name for e in expressions(s) if isinstance(e, Name)}
