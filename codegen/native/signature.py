"""The arguments of a kernel: buffers that it is given, and scratch."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KernelSignature", "Param", "Scratch"]


@dataclass(frozen=True)
class Param:
    """A buffer argument: ``dtype`` by NumPy's name, the address aligned to ``align`` bytes.

    Buffers of one kernel with different scopes must not overlap; the scope defaults to the name.  ``stream`` asks for
    stores that bypass the caches: right for outputs too large to be read from cache again, and only where the compiler can
    prove whole aligned vectors.  ``ahead`` asks for the lines of an input that lie so many bytes ahead: right for what no
    cache holds and the tasks read from one end to the other.
    """

    name: str
    dtype: str
    align: int = 64
    scope: str = ""
    stream: bool = False
    ahead: int = 0


@dataclass(frozen=True)
class Scratch:
    """A buffer inside the executing thread's scratch memory, ``offset_bytes`` (a multiple of 64) from its start.

    With ``stack_bytes``, a buffer of that size in the function's own frame instead: one whose elements may live in registers.
    """

    name: str
    dtype: str
    offset_bytes: int
    scope: str = ""
    stack_bytes: int = 0


@dataclass(frozen=True)
class KernelSignature:
    """The arguments of a kernel after ``begin`` and ``end``; one that ``is_brief`` runs for microseconds.

    A brief kernel takes longer to compile than thousands of its calls take: its loops are not written out more than once.
    """

    params: tuple[Param, ...]
    scratch: tuple[Scratch, ...] = ()
    is_brief: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The argument names of the Python function, in order."""
        return ("begin", "end", *(p.name for p in self.params), *(s.name for s in self.scratch))
