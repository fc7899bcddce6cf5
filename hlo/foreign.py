"""Arrays that leave for functions of the caller's: what those may keep and write is theirs alone.

A program's values lie in memory that is used again in the same call, or belongs to the caller (perhaps to a `jax.Array`, which
must never change). So a foreign function gets copies, and what it returns is copied where the program goes on with it. A function
that neither keeps nor writes its operands may say so (`borrows`) and gets read-only views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

__all__ = ["borrows", "copied", "given_to", "is_known", "known", "native_routine", "read_only", "with_routines"]

F = TypeVar("F", bound=Callable[..., Any])


def borrows(function: F) -> F:
    """Marks a function of custom calls that neither keeps its operands nor writes to them nor changes what it has returned.

    >>> @borrows
    ... def total(op, x):
    ...     return x.sum()
    >>> given_to(total, (np.ones(3),))[0].flags.writeable
    False
    """
    function.borrows_operands = True  # type: ignore[attr-defined]
    return function


def known(function: F) -> F:
    """Marks a function that computes what XLA itself means by its target: a kernel may compute that in its place.

    >>> is_known(known(lambda op, x: x)), is_known(print)
    (True, False)
    """
    function.is_known_call = True  # type: ignore[attr-defined]
    return function


def is_known(function: Callable[..., Any]) -> bool:
    """True for a function that `known` has marked; any other function is what the caller means by its target."""
    return bool(getattr(function, "is_known_call", False))


def with_routines(address: Callable[[str], int]) -> Callable[[F], F]:
    """Marks a function that only calls routines of a library: `address(name)` is where native code may call one, 0 for nowhere.

    >>> native_routine(with_routines({"ssyevd": 4096}.get)(known(lambda op, x: x)), "ssyevd"), native_routine(print, "ssyevd")
    (4096, 0)
    """

    def mark(function: F) -> F:
        function.routine_address = address  # type: ignore[attr-defined]
        return function

    return mark


def native_routine(function: Callable[..., Any], name: str) -> int:
    """The address of a routine that a function calls, 0 where it has none to call."""
    address: Callable[[str], int] | None = getattr(function, "routine_address", None)
    return 0 if address is None else address(name)


def given_to(function: Callable[..., Any], operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a foreign function gets for its operands: copies, or read-only views where it only borrows them.

    >>> x = np.zeros(3)
    >>> (y,) = given_to(print, (x,))
    >>> y[0] = 1
    >>> x
    array([0., 0., 0.])
    """
    is_borrower = getattr(function, "borrows_operands", False)
    return tuple([read_only(x) if is_borrower else copied(x) for x in operands])


def copied(value: Any) -> Any:
    """A value with arrays of its own, contiguous and writeable; tuples are copied through, other things are themselves."""
    if isinstance(value, tuple):
        return tuple([copied(v) for v in value])
    return np.array(value, order="C") if isinstance(value, np.ndarray) else value


def read_only(value: Any) -> Any:
    """A value whose arrays are read-only views of the same memory."""
    if isinstance(value, tuple):
        return tuple([read_only(v) for v in value])
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view
