"""What jaxlib holds: handles, errors and events, and who owns what.

A handle is a number that stands for an object of this process's; it is never given out again, so one that jaxlib uses after
destroying it is an error and not another object. The rule of ownership:

* An object lives, with all C memory that it has shown (texts, lists of dimensions, attributes), from the call that gives its
  handle to jaxlib until jaxlib destroys the handle. The client, its device, memory and topology live as long as the process.
* Memory of elements belongs to a NumPy array, held by the buffers and by the running calls that use it. jaxlib may read it while
  it holds the buffer, also after it deleted it if it has counted a reference to it. A donated buffer gives its array up.
* Memory of jaxlib's is read during the call that names it. The elements of a host array that jaxlib lends for longer stay lent
  until no array uses them: then the event `done` comes.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import traceback
from collections.abc import Callable
from typing import Any

from hlo.errors import TilewrightError
from hlo.limits import TooLargeError
from tilewright.pjrt.layout import CODES

__all__ = [
    "INTERRUPTED", "INTERRUPTED_TEXT", "Event", "Handles", "Problem", "Text", "code_of", "living", "new_error", "ready",
]  # fmt: skip


class Problem(Exception):
    """What a function of the interface refuses: the name of a code, and words."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Text:
    """Bytes at a fixed address."""

    def __init__(self, text: str | bytes) -> None:
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        self.size = len(data)
        self._memory = ctypes.create_string_buffer(data, len(data) + 1)
        self.address = ctypes.addressof(self._memory)

    def give(self, arguments: Any) -> None:
        """Sets the fields `text` and `text_size`."""
        arguments.text, arguments.text_size = self.address, self.size


class Handles:
    """Objects by handle."""

    def __init__(self) -> None:
        # Aligned like pointers, some of whose lower bits a caller may use
        self._numbers = itertools.count(1 << 12, 16)
        self._objects: dict[int, Any] = {}

    def new(self, value: Any) -> int:
        """A handle for an object, which now lives."""
        number = next(self._numbers)
        self._objects[number] = value
        return number

    def __getitem__(self, number: int | None) -> Any:
        try:
            return self._objects[number]  # type: ignore[index]
        except KeyError:
            raise Problem("INVALID_ARGUMENT", f"handle {number} is not, or no longer, one of Tilewright's") from None

    def drop(self, number: int | None) -> Any:
        """The object whose handle this was; None where there is none."""
        return self._objects.pop(number or 0, None)

    def __len__(self) -> int:
        return len(self._objects)


living = Handles()
"""All objects that jaxlib holds."""


# ---------------------------------------------------------------- errors


class _Error:
    def __init__(self, code: str, text: str | bytes) -> None:
        self.code, self.text = CODES[code], Text(text)


INTERRUPTED_TEXT = b"interrupted, or raised, before this call of Tilewright's began (what it was is on standard error)"
INTERRUPTED = living.new(_Error("CANCELLED", INTERRUPTED_TEXT))


def code_of(e: BaseException) -> str:
    """The name of the code that an exception is given to jaxlib with."""
    if isinstance(e, Problem):
        return e.code
    if isinstance(e, (MemoryError, TooLargeError)):
        return "RESOURCE_EXHAUSTED"
    if isinstance(e, TilewrightError):
        return "INVALID_ARGUMENT"
    return "INTERNAL"


def new_error(e: BaseException) -> int:
    """The handle of an error."""
    text = str(e) or type(e).__name__
    if code_of(e) == "INTERNAL":
        text = "".join(traceback.format_exception(e))
    return living.new(_Error(code_of(e), text))


def _destroy_error(a: Any) -> None:
    if a.error != INTERRUPTED:
        living.drop(a.error)


def _message(a: Any) -> None:
    living[a.error].text.give(a)


def _code(a: Any) -> None:
    a.code = living[a.error].code


# ---------------------------------------------------------------- events

_READY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Event:
    """Something that ends, perhaps with an exception.

    Without a lock: it may end in a finalizer, in the middle of any other method. Each step on the list is one of the
    interpreter's, so that every callback is taken once.
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.is_ready = False
        self._callbacks: list[Callable[[], None]] = []

    def set(self, failure: BaseException | None = None) -> None:
        """It has ended; who waits goes on. Called once."""
        self.failure = failure
        self.is_ready = True
        self._call()

    def _call(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread took it
                return
            callback()

    def wait(self) -> None:
        """Returns when it has ended."""
        if not self.is_ready:
            done = threading.Event()
            self.on_ready(done.set)
            done.wait()

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Calls back when it has ended, in the thread that ends it, or now."""
        self._callbacks.append(callback)
        if self.is_ready:
            self._call()

    def error(self) -> int:
        """The handle of a new error; 0 where it went well."""
        return 0 if self.failure is None else new_error(self.failure)


def ready(failure: BaseException | None = None) -> int:
    """The handle of a new event that has ended."""
    event = Event()
    event.failure, event.is_ready = failure, True
    return living.new(event)


def _destroy_event(a: Any) -> None:
    living.drop(a.event)


def _is_ready(a: Any) -> None:
    a.is_ready = living[a.event].is_ready


def _event_error(a: Any) -> None:
    failure = living[a.event].failure
    if failure is not None:
        raise failure


def _await(a: Any) -> None:
    event = living[a.event]
    event.wait()
    _event_error(a)


def _on_ready(a: Any) -> None:
    event, callback, user = living[a.event], _READY(a.callback), a.user
    event.on_ready(lambda: callback(event.error(), user))


def _create_event(a: Any) -> None:
    a.event = living.new(Event())


def _set_event(a: Any) -> None:
    if a.code == CODES["OK"]:
        living[a.event].set()
        return
    names = {number: name for name, number in CODES.items()}
    text = ctypes.string_at(a.text, a.text_size).decode("utf-8", "replace")
    living[a.event].set(Problem(names.get(a.code, "UNKNOWN"), text))


FUNCTIONS: dict[str, Callable[[Any], None]] = {
    "Error_Destroy": _destroy_error,
    "Error_Message": _message,
    "Error_GetCode": _code,
    "Event_Destroy": _destroy_event,
    "Event_IsReady": _is_ready,
    "Event_Error": _event_error,
    "Event_Await": _await,
    "Event_OnReady": _on_ready,
    "Event_Create": _create_event,
    "Event_Set": _set_event,
}
