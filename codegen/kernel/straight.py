"""What a kernel's loops are: none of its own (some numbers computed from others, once), calls alone, or one of the program's."""

from __future__ import annotations

from codegen.kernel.ir import Augment, Do, For, Kernel, Name, Store, While
from codegen.kernel.rename import inside
from codegen.kernel.spec import expressions

__all__ = ["calls", "calls_alone", "has_program_loop", "is_straight"]


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


def calls_alone(kernel: Kernel) -> int:
    """How many functions are called for what they do, where nothing else is done; 0 where elements are stored, or a loop is the
    program's.

    >>> from codegen.kernel.parse import parse
    >>> source = "def kernel(begin, end, x, y):\\n for t in range(begin, end):\\n  transpose(8, 8, x, 0, 8, y, 0, 8)\\n{}"
    >>> calls_alone(parse(source.format(""))), calls_alone(parse(source.format("  y[t] = x[t]\\n")))
    (1, 0)
    """
    return 0 if any(isinstance(s, Store | Augment | While) for s in inside(kernel.body)) else calls(kernel)


def calls(kernel: Kernel) -> int:
    """How many functions are called for what they do."""
    return sum(isinstance(s, Do) for s in inside(kernel.body))
