"""What is too large to be run: more dimensions than NumPy's arrays have, more bytes than the machine gives."""

from __future__ import annotations

from hlo.errors import Location, TilewrightError
from hlo.module import Module, Value, walk
from hlo.types import TensorType

__all__ = ["MOST_DIMENSIONS", "TooLargeError", "check_ranks", "no_memory"]

MOST_DIMENSIONS = 64
"""Of an array in NumPy 2."""


class TooLargeError(TilewrightError, MemoryError):
    """A value that no array can hold here; the message names its op, its type and the limit."""


def check_ranks(module: Module) -> None:
    """Raises TooLargeError for the first value with more than `MOST_DIMENSIONS` dimensions."""
    for f in module.functions.values():
        if f.is_declaration:
            continue
        for v in f.arguments:
            _check(v, f"an argument of @{f.name}", f.location, module)
        for op in walk(f.body):
            for v in op.results:
                _check(v, op.name, op.location, module)


def _check(v: Value, name: str, place: Location | None, module: Module) -> None:
    if isinstance(v.type, TensorType) and len(v.type.shape) > MOST_DIMENSIONS:
        line = module.source.line(place.line) if place is not None and module.source is not None else None
        raise TooLargeError(
            f"{name}: {v.type} has {len(v.type.shape)} dimensions, expected at most {MOST_DIMENSIONS}, which is what arrays have",
            place,
            line,
        )


def no_memory(v: Value, module: Module) -> TooLargeError:
    """The error for a value that there is no memory for."""
    owner = v.op
    place = owner.location if owner is not None else None
    line = module.source.line(place.line) if place is not None and module.source is not None else None
    name = owner.name if owner is not None else "an argument"
    return TooLargeError(f"{name}: {v.type} needs {v.tensor.size_bytes} bytes, more than the machine's memory gives", place, line)
