"""What a pass is, and which passes are switched off.

    TILEWRIGHT_SKIP=NAME,…   passes that do not run; each of them has to be optional

`tiling.pipeline` lists the passes; what runs one asks `runs` first.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

__all__ = ["Pass", "recorded", "runs", "skipped", "without"]


@dataclass(frozen=True)
class Pass:
    """A named step from a representation to the same one or the next.

    `run` is the rewrite itself, None for a step that its driver makes of several. A pass `within` another one is applied by it,
    op by op or nest by nest; all others see the whole. Results are the same without an `optional` one.
    """

    name: str
    source: str
    target: str
    run: Callable[..., Any] | None
    optional: bool
    why: str
    within: str = ""


def skipped() -> frozenset[str]:
    """The names in TILEWRIGHT_SKIP (`tiling.pipeline.check_settings` tells which ones there are), and those left out here."""
    return _names(os.environ.get("TILEWRIGHT_SKIP", "")) | _without.get()


_without: ContextVar[frozenset[str]] = ContextVar("without", default=frozenset())


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Leaves passes out inside the block, beside those that are skipped."""
    token = _without.set(_without.get() | frozenset(names))
    try:
        yield
    finally:
        _without.reset(token)


@functools.cache
def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))


_recorder: ContextVar[dict[str, None] | None] = ContextVar("recorder", default=None)


def runs(name: str) -> bool:
    """Whether a pass is to run: it is not skipped. Who asks runs it then."""
    if name in skipped():
        return False
    record = _recorder.get()
    if record is not None:
        record[name] = None
    return True


@contextmanager
def recorded() -> Iterator[dict[str, None]]:
    """The names of the passes that run inside the block, as keys, in the order in which they first do."""
    record: dict[str, None] = {}
    token = _recorder.set(record)
    try:
        yield record
    finally:
        _recorder.reset(token)
