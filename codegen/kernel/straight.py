"""What a kernel's loops are: none of its own (some numbers computed from others, once), calls alone, packing of elements that lie
apart, one of the program's, or so short that a row of results fills no whole vectors."""

from __future__ import annotations

from collections.abc import Iterable

from codegen.kernel.ir import (
    Augment,
    Binary,
    Call,
    Do,
    Enclosed,
    Expression,
    For,
    Kernel,
    Load,
    Name,
    Number,
    Statement,
    Store,
    Unary,
    While,
)
from codegen.kernel.rename import inside
from codegen.kernel.spec import expressions

__all__ = [
    "SHORT_ROW", "calls", "calls_alone", "has_folds", "has_program_loop", "is_straight", "packs_alone", "stores_short_rows",
]  # fmt: skip

SHORT_ROW = 16
"""Turns from which on LLVM leaves what fills no vector to a loop of its own; of fewer it makes vectors with a mask."""
BRIEF = frozenset({
    "abs", "absolute", "add", "clamp", "eq", "fma", "ge", "gt", "le", "lt", "maximum", "minimum", "multiply", "ne", "negate",
    "select", "subtract",
})  # fmt: skip
"""Functions that take an instruction or few: of what takes longer a vector of some elements beats them one by one."""


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


def has_folds(kernel: Kernel) -> bool:
    """True where elements are put together by a function: sums, maxima, running ones too.

    >>> from codegen.kernel.parse import parse
    >>> source = "def kernel(begin, end, x, y):\\n for t in range(begin, end):\\n  y[t] = {}\\n"
    >>> [has_folds(parse(source.format(x))) for x in ("reduce_add(y[t], x[t])", "x[t] + y[t]")]
    [True, False]
    """
    return any(isinstance(e, Call) and e.function.startswith("reduce_") for s in inside(kernel.body) for e in expressions(s))


def stores_short_rows(kernel: Kernel) -> bool:
    r"""True where elements are stored in innermost loops of few turns, and little is computed in these.

    >>> from codegen.kernel.parse import parse
    >>> text = "def kernel(begin, end, x, y):\n for t in range(begin, end):\n  for j in range({}):\n   y[{}*t + j] = {}\n"
    >>> rows = (3, 3, "2*x[j] + float32(-1)"), (64, 64, "2*x[j]"), (3, 3, "tanh(x[j])")
    >>> [stores_short_rows(parse(text.format(*x))) for x in rows]
    [True, False, False]
    """
    short = [s for s in inside(kernel.body) if isinstance(s, For) and _is_short(s)]
    statements = [x for s in short for x in inside(s.body)]
    called = [e for x in statements for e in expressions(x) if isinstance(e, Call) and not _is_number(e)]
    return all(e.function in BRIEF for e in called) and any(isinstance(x, Store | Augment) for x in statements)


def _is_number(call: Call) -> bool:
    """Whether a call is a constant of a type: `float32(-0.5)`."""
    (x,) = call.arguments if len(call.arguments) == 1 else (None,)
    return isinstance(x.operand if isinstance(x, Unary) else x, Number)


def _is_short(loop: For) -> bool:
    """Whether an innermost loop has some turns, but few."""
    if not isinstance(loop.stop, Number) or not (loop.start is None or isinstance(loop.start, Number)):
        return False
    turns = int(loop.stop.value) - (int(loop.start.value) if loop.start is not None else 0)
    return loop.step is None and 1 < turns < SHORT_ROW and not any(isinstance(x, For | While) for x in inside(loop.body))


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


def packs_alone(kernel: Kernel) -> bool:
    r'''True where all that is done is to put elements that do not lie side by side, here or there, into scratch that tasks share.

    >>> from codegen.kernel.parse import parse
    >>> text = """def kernel(begin, end, x, y):
    ...     \"\"\"packing
    ...
    ...     x: argument f32[64]
    ...     y: {} f32[64]
    ...     \"\"\"
    ...     for t in range(begin, end):
    ...         for j in range(8):
    ...             y[8*t + j] = x[{}]
    ... """
    >>> [packs_alone(parse(text.format(*x))) for x in (("shared", "9*j + t"), ("shared", "8*t + j"), ("result", "9*j + t"))]
    [True, False, False]
    '''
    shared = {x.name for x in kernel.parameters if x.scope == "shared"}
    return all(s.buffer in shared for s in inside(kernel.body) if isinstance(s, Store)) and _moves_apart(kernel.body, "")


def _moves_apart(body: Iterable[Statement], variable: str) -> bool:
    """Whether statements are loops around such moves; ``variable`` is the innermost loop's around them."""
    moved = False
    for s in body:
        if isinstance(s, For):
            if s.step is not None or not _moves_apart(s.body, s.variable):
                return False
        elif not (isinstance(s, Store) and isinstance(s.value, Load) and _lies_apart(s.index, s.value.index, variable)):
            return False
        moved = True
    return moved


def _lies_apart(there: Expression, here: Expression, variable: str) -> bool:
    steps = _step(there, variable), _step(here, variable)
    return None not in steps and any(x not in (0, 1) for x in steps)


def _step(e: Expression, variable: str) -> int | None:
    """By how much an index grows with a variable; None where that is not one number."""
    if isinstance(e, Name):
        return int(e.name == variable)
    if isinstance(e, Number):
        return 0
    if isinstance(e, Enclosed):
        return _step(e.value, variable)
    if not isinstance(e, Binary):
        return None
    left, right = _step(e.left, variable), _step(e.right, variable)
    if left is None or right is None:
        return None
    if e.operator in "+-":
        return left + right if e.operator == "+" else left - right
    for number, step in ((e.left, right), (e.right, left)):
        if e.operator == "*" and isinstance(number, Number):
            return int(number.value) * step
    return 0 if left == right == 0 else None
