"""Properties that are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["cached_property"]

T = TypeVar("T")


class cached_property(Generic[T]):
    """A property that keeps what it returned, as that of `functools`, but without a lock.

    Python 3.11 computes with a lock held that all instances share; a child of a fork would find it held for ever where another
    thread was computing. Two threads that ask at the same time both compute here, and get equal values.

    >>> class Square:
    ...     @cached_property
    ...     def area(self) -> int:
    ...         print("computed")
    ...         return 4
    >>> s = Square()
    >>> s.area + s.area
    computed
    8
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[T]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> cached_property[T] | T:
        if instance is None:
            return self
        # Found there before this is called again: it sets nothing itself.
        value = instance.__dict__[self.name] = self.compute(instance)
        return value
