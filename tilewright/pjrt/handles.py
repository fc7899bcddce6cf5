"""What jaxlib holds: handles, errors and events, and who owns what.

The handle of a buffer, an event or a program is the address of its record (`records`); native functions look after the first two.
Any other handle is a number that stands for an object of Python's; it is never given out again, so one that jaxlib uses after
destroying it is an error and not another object. The rule of ownership:

* An object lives, with all C memory that it has shown (texts, lists of dimensions, attributes), from the call that gives its
  handle to jaxlib until jaxlib destroys the handle. The client, its device, memory and topology live as long as the process.
* Memory of elements is counted by the buffers, by the calls on their way and by the NumPy arrays that use it. jaxlib may read it
  while it holds the buffer, also after it deleted it if it has counted a reference to it. A donated buffer gives its memory up.
* Memory of jaxlib's is read during the call that names it. The elements of a host array that jaxlib lends for longer stay lent
  until nobody uses them: then the event `done` comes.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import traceback
from collections.abc import Callable
from typing import Any

from codegen.launcher.launch import EndedError
from hlo.errors import TilewrightError
from hlo.limits import TooLargeError
from tilewright.pjrt import records
from tilewright.pjrt.layout import ARGUMENTS, CODES
from tilewright.pjrt.native import c_words, functions, state

__all__ = [
    "INNER_FUNCTIONS", "INTERRUPTED", "INTERRUPTED_TEXT", "READY", "Handles", "Problem", "Text", "code_of", "count_event",
    "drop_event", "end_event", "event_failure", "has_ended", "living", "new_error", "new_event", "wait_for",
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
        self._given: dict[int, list[None]] = {}  # one element for each time that a record's address was given
        self._kept: set[int] = set()

    def new(self, value: Any) -> int:
        """A handle for an object, which now lives."""
        number = next(self._numbers)
        self._objects[number] = value
        return number

    def give(self, address: int, value: Any) -> int:
        """The address of an object's record as its handle; it lives until that is dropped as often as it was given.

        Any thread may, at the same time: each change of the list is one step.
        """
        self._objects[address] = value
        self._given.setdefault(address, []).append(None)
        return address

    def keep(self, value: Any) -> int:
        """A handle that is never dropped."""
        number = self.new(value)
        self._kept.add(number)
        return number

    def __getitem__(self, number: int | None) -> Any:
        try:
            return self._objects[number]  # type: ignore[index]
        except KeyError:
            raise Problem("INVALID_ARGUMENT", f"handle {number} is not, or no longer, one of Tilewright's") from None

    def drop(self, number: int | None) -> Any:
        """The object whose handle this was; None where there is none, or there are more of it."""
        given = self._given.get(number or 0, [None])
        if given:
            given.pop()
        if given or number in self._kept:
            return None
        self._given.pop(number or 0, None)
        return self._objects.pop(number or 0, None)

    def __len__(self) -> int:
        return len(self._objects)


living = Handles()
"""All objects that jaxlib holds."""
ctypes.pythonapi.Py_IncRef(ctypes.py_object(living))  # and what they run is there when the interpreter is gone


# ---------------------------------------------------------------- errors


class _Error:
    def __init__(self, code: str, text: str | bytes) -> None:
        self.code, self.text = CODES[code], Text(text)


INTERRUPTED_TEXT = b"interrupted, or raised, before this call of Tilewright's began (what it was is on standard error)"
INTERRUPTED = living.keep(_Error("CANCELLED", INTERRUPTED_TEXT))


def code_of(e: BaseException) -> str:
    """The name of the code that an exception is given to jaxlib with."""
    if isinstance(e, Problem):
        return e.code
    if isinstance(e, (MemoryError, TooLargeError)):
        return "RESOURCE_EXHAUSTED"
    if isinstance(e, EndedError):
        return "CANCELLED"
    if isinstance(e, TilewrightError):
        return "INVALID_ARGUMENT"
    return "INTERNAL"


def new_error(e: BaseException) -> int:
    """The handle of an error."""
    text = str(e) or type(e).__name__
    if code_of(e) == "INTERNAL" and not isinstance(e, Problem):
        text = "".join(traceback.format_exception(e))
    return living.new(_Error(code_of(e), text))


def _destroy_error(a: Any) -> None:
    living.drop(a.error)


def _message(a: Any) -> None:
    living[a.error].text.give(a)


def _code(a: Any) -> None:
    a.code = living[a.error].code


# ---------------------------------------------------------------- events

_LISTENER = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_void_p)
READY = state.ready
"""The event that has ended, and well."""

state.words[records.CANCELLED] = living.keep(Problem("CANCELLED", "the client was closed before this was computed"))
state.words[records.NO_MEMORY] = living.keep(Problem("RESOURCE_EXHAUSTED", "out of memory: no room for what the program needs"))


def new_event(count: int = 1) -> int:
    """The handle of an event that has not ended, for so many who drop it (`drop_event`)."""
    made = (ctypes.c_int64 * 2)(count, 0)
    functions().help("NEW_EVENT", ctypes.addressof(made))
    if not made[1]:
        raise MemoryError("no room for an event")
    return made[1]


def count_event(event: int) -> None:
    """One more has the event."""
    functions().help("COUNT_EVENT", event)


def drop_event(event: int) -> None:
    """One who had the event has it no more."""
    functions().help("DROP_EVENT", event)


def end_event(event: int, failure: BaseException | None = None) -> None:
    """The event has ended, well or with a failure; who waits goes on. Called once."""
    if failure is not None:
        c_words(event, records.EVENT_WORDS)[records.FAILURE] = living.new(failure)
    functions().help("FIRE", event)


def event_failure(event: int) -> BaseException | None:
    """What an event that has ended has failed with."""
    words = c_words(event, records.EVENT_WORDS)
    failure: BaseException | None = living[words[records.FAILURE]] if words[records.ENDED] == records.FAILED else None
    return failure


def has_ended(event: int) -> bool:
    """Whether an event has ended."""
    return bool(c_words(event, records.EVENT_WORDS)[records.ENDED] != records.GOING)


_listening: set[Any] = set()


def wait_for(event: int) -> None:
    """Returns when the event has ended; a signal's handler may raise meanwhile."""
    if has_ended(event):
        return
    listener = _Listener()
    _listening.add(listener)  # it may be called when nobody waits any more
    arguments = ARGUMENTS["Event_OnReady"](0, None, event, ctypes.cast(listener.callback, ctypes.c_void_p), None)
    if functions().enter("Event_OnReady", ctypes.addressof(arguments)) == records.DONE:
        listener.done.acquire()
    elif not has_ended(event):
        raise MemoryError("no room for who waits for an event")
    _listening.difference_update([x for x in list(_listening) if x is listener or not x.done.locked()])


class _Listener:
    """A C function that has heard of an event's end when its lock is free."""

    def __init__(self) -> None:
        self.done = threading.Lock()
        self.done.acquire()
        self.callback = _LISTENER(self._hear)

    def _hear(self, error: int, user: int | None) -> None:
        living.drop(error)
        self.done.release()


def _event_error(a: Any) -> int:
    # given and not raised: an exception here is this function's own, and it would be asked again
    failure = event_failure(a.event)
    return 0 if failure is None else new_error(failure)


def _await(a: Any) -> int:
    wait_for(a.event)
    return _event_error(a)


def _on_ready(a: Any) -> int:
    """Of an event that has failed, the error and a bit: the caller calls back."""
    failure = event_failure(a.event)
    if failure is None:
        raise MemoryError("no room for who waits for an event")
    return new_error(failure) | 1


def _create_event(a: Any) -> None:
    a.event = new_event(2)  # who made it may drop it before it is set


def _set_event(a: Any) -> None:
    failure = None
    if a.code != CODES["OK"]:
        names = {number: name for name, number in CODES.items()}
        text = ctypes.string_at(a.text, a.text_size).decode("utf-8", "replace")
        failure = Problem(names.get(a.code, "UNKNOWN"), text)
    end_event(a.event, failure)
    drop_event(a.event)


FUNCTIONS: dict[str, Callable[[Any], int | None]] = {
    "Error_Destroy": _destroy_error,
    "Error_Message": _message,
    "Error_GetCode": _code,
    "Event_Error": _event_error,
    "Event_Await": _await,
    "Event_OnReady": _on_ready,
    "Event_Create": _create_event,
    "Event_Set": _set_event,
}


# ---------------------------------------------------------------- what native functions ask Python


def _give(at: int) -> int:
    """The object of a memory or an event that nobody has any more."""
    living.drop(c_words(at, records.EVENT_WORDS)[records.OWNER])
    return 0


def _error(at: int) -> int:
    return new_error(living[c_words(at, records.EVENT_WORDS)[records.FAILURE]])


def _share(at: int) -> int:
    return living.new(living[c_words(at, records.EVENT_WORDS)[records.FAILURE]])


assert records.OWNER == records.FAILURE
INNER_FUNCTIONS: dict[str, Callable[[int], int]] = {"Own_Give": _give, "Own_Error": _error, "Own_Share": _share}
