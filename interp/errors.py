"""What can go wrong when a program is run: wrong inputs, an op that fails, a limit that is reached, a deadlock."""

from __future__ import annotations

from hlo import Location, Module, Op, TilewrightError

__all__ = ["DeadlockError", "ExecutionError", "InputError", "LimitError", "UnknownTargetError"]


class InputError(TilewrightError):
    """The arrays given do not fit the program's arguments; the message says which, what was expected and what found."""


class ExecutionError(TilewrightError):
    """An op cannot be executed: shapes that do not fit at run time, an unknown custom call, no rule for the op.

    `op` is the op's name.
    """

    def __init__(
        self, message: str, location: Location | None = None, source_line: str | None = None, *, op: str | None = None
    ) -> None:
        super().__init__(f"{op}: {message}" if op else message, location, source_line)
        self.op = op


class UnknownTargetError(ExecutionError):
    """A custom call is reached for whose target nobody gave a function: the program is valid, but cannot be run as it is."""


class LimitError(ExecutionError):
    """A limit that the caller set (`interp.Limits`) would be passed, or the machine's memory is exhausted."""


class DeadlockError(ExecutionError):
    """Processes of the grid wait for one another for ever; the message names the ops and the processes."""


def at(op: Op, module: Module | None) -> tuple[Location | None, str | None]:
    """An op's place and the text of its line, where they are known."""
    place = op.location
    line = module.source.line(place.line) if place and module and module.source else None
    return place, line
