"""What the compiler says of its work: loggers by topic, and TILEWRIGHT_LOG, which has some of them write to standard error.

    tilewright.compiles     what is compiled, how long it took, and what was different when it is compiled again
    tilewright.plans        what was planned, how long it took
    tilewright.fallbacks    what the evaluator or a library runs, with the reason
"""

from __future__ import annotations

import logging
import os
import sys

from hlo.errors import SettingError

__all__ = ["TOPICS", "log_of", "set_up_logs"]

TOPICS = ("compiles", "plans", "fallbacks")
_FORMAT = "%(name)s: %(message)s"


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever standard error is when something is said."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_handlers: dict[str, _Handler] = {}


def log_of(topic: str) -> logging.Logger:
    """The logger of a topic. Raises KeyError for one that there is not."""
    if topic not in TOPICS:
        raise KeyError(topic)
    return logging.getLogger(f"tilewright.{topic}")


def set_up_logs() -> None:
    """Has the loggers write that TILEWRIGHT_LOG names, and no others. Raises SettingError for a name that is no topic.

    >>> os.environ["TILEWRIGHT_LOG"] = "weather"
    >>> try:
    ...     set_up_logs()
    ... except SettingError as error:
    ...     print(error)
    ... finally:
    ...     del os.environ["TILEWRIGHT_LOG"]
    TILEWRIGHT_LOG: expected some of compiles, plans, fallbacks, found 'weather'
    """
    wanted = [w for w in (part.strip() for part in os.environ.get("TILEWRIGHT_LOG", "").split(",")) if w]
    for name in wanted:
        if name not in TOPICS:
            raise SettingError(f"TILEWRIGHT_LOG: expected some of {', '.join(TOPICS)}, found {name!r}")
    for topic in TOPICS:
        if topic in wanted and topic not in _handlers:
            handler = _handlers[topic] = _Handler()
            handler.setFormatter(logging.Formatter(_FORMAT))
            log_of(topic).addHandler(handler)
            log_of(topic).setLevel(logging.INFO)
        elif topic not in wanted and topic in _handlers:
            log_of(topic).removeHandler(_handlers.pop(topic))
            log_of(topic).setLevel(logging.NOTSET)
