"""What jaxlib calls again and again, as source of native functions: buffers and events (`native_buffers`), calls of programs and
the thread that makes those that take long (`native_calls`).

Each is a kernel of `codegen.native.jit`. `entries` get (address of the words `OWN_…` of `records`, which of their functions is
meant), and leave to Python what they do not take. `helpers` are called by those and by Python, with (address, address of the
state). A line `NAME(…)` in capitals stands for the lines of a pattern.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

from codegen.call.xla_handler import ARGUMENTS, BODY, BYTES, INTERRUPTED, RESULTS
from tilewright.pjrt import records
from tilewright.pjrt.native_buffers import (
    BUFFER,
    BUFFER_FUNCTIONS,
    COUNT_EVENT,
    DROP_EVENT,
    DROP_MEMORY,
    EVENT,
    EVENT_FUNCTIONS,
    FIRE,
    FROM_HOST,
    NEW,
    NEW_EVENT,
    TAKE,
)
from tilewright.pjrt.native_calls import EXECUTE, OTHER, OTHER_FUNCTIONS, RUN, WORKER
from tilewright.pjrt.records import offset, option, word

__all__ = ["INNER", "entries", "helpers", "worker"]

INNER = ("Own_Give", "Own_Error", "Own_Share")
"""Python functions that native ones call: an object is used no more; a new error for an event; its failure for another one."""

_PATTERNS = {
    "TAKE_LOCK()": f"""
spins = int64(0)
while swap_if(state, {records.LOCK}, 0, 1) != 0:
    spins += 1
    if spins & 127 == 0:
        yield_thread()
    else:
        pause()
""",
    "GIVE_LOCK()": f"atomic_store(state, {records.LOCK}, 0)",
    "DROP_MEMORY(m)": f"call_entry(state[{records.DROP_MEMORY}], m, state_at, 0, 0)",
    "DROP_EVENT(e)": f"call_entry(state[{records.DROP_EVENT}], e, state_at, 0, 0)",
    "FREE(room)": f"call_function(state[{records.FREE}], room, 0, 0)",
    # under the lock: a task whose arguments are there goes to the end of the queue
    "QUEUE(task_at)": f"""
words(task_at)[{records.LINK}] = 0
if state[{records.HEAD}] == 0:
    state[{records.HEAD}] = task_at
else:
    words(state[{records.TAIL}])[{records.LINK}] = task_at
state[{records.TAIL}] = task_at
""",
    "WAKE()": f"""
atomic_add(state, {records.SIGNAL}, 1)
if atomic_load(state, {records.SLEEPERS}) > 0:
    futex_wake(state, {records.SIGNAL})
""",
}
_LINE = re.compile(r"^( *)([A-Z_]+\(.*\))$", re.MULTILINE)


def expanded(source: str, **names: Any) -> str:
    """A source with its patterns written out; `{names}` are the numbers of `records` and what else is given."""

    def lines(match: re.Match[str]) -> str:
        called, _, given = match[2].partition("(")
        given = given.removesuffix(")")
        for pattern, text in _PATTERNS.items():
            name, _, taken = pattern.partition("(")
            if name == called:
                taken = taken.removesuffix(")")
                text = re.sub(rf"\b{taken}\b", given, text) if taken else text
                return textwrap.indent(text.strip("\n"), match[1])
        raise KeyError(match[2])

    numbers: dict[str, Any] = {name: value for name, value in vars(records).items() if isinstance(value, int)}
    numbers |= {"TWO_LINES": 2 * records.LINE, "LAST_OF_LINE": records.LINE - 1, "LINE_MASK": -records.LINE}
    return _LINE.sub(lines, source.format(**{**numbers, **names})).lstrip("\n")


# ---------------------------------------------------------------- all of them

_NUMBERS = {name: k for names in (BUFFER_FUNCTIONS, EVENT_FUNCTIONS, OTHER_FUNCTIONS) for k, name in enumerate(names)}


def _words(function: str, *fields: str, **others: str) -> dict[str, int]:
    """The numbers of the words of fields, by the fields' names or by `others`."""
    return {f: word(function, f) for f in fields} | {name: word(function, f) for name, f in others.items()}


def helpers() -> dict[str, str]:
    """The sources of the functions that native ones and Python call."""
    give, error = INNER.index("Own_Give"), INNER.index("Own_Error")
    call = {"ARGUMENTS": ARGUMENTS, "RESULTS": RESULTS, "BODY": BODY, "BYTES": BYTES, "no_memory": INTERRUPTED + 1}
    return {
        "DROP_MEMORY": expanded(DROP_MEMORY, give=give),
        "DROP_EVENT": expanded(DROP_EVENT, give=give),
        "NEW": expanded(NEW),
        "NEW_EVENT": expanded(NEW_EVENT),
        "COUNT_EVENT": expanded(COUNT_EVENT),
        "TAKE": expanded(TAKE),
        "RUN": expanded(RUN, **call),
        "FIRE": expanded(FIRE, error=error),
    }


def worker() -> str:
    """The source of what the thread for long calls does."""
    return expanded(WORKER, share=INNER.index("Own_Share"), no_memory=INTERRUPTED + 1)


def entries(element_count: int) -> dict[tuple[str, ...], str]:
    """The sources of the native entries, by the functions of the interface that each takes."""
    execute, host = "LoadedExecutable_Execute", "Client_BufferFromHostBuffer"
    at = {
        "element": offset("Buffer_ElementType", "element"),
        "is_deleted": offset("Buffer_IsDeleted", "is_deleted"),
        "is_on_cpu": offset("Buffer_IsOnCpu", "is_on_cpu"),
    }
    call = _words(execute, "executable", "options", "arguments", "devices", "count", "outputs", "events", "device")
    kept = {f: option(f) for f in ("sends", "receives", "kept", "kept_count")}
    given = _words(host, "data", "dims", "rank", "strides", "strides_count", "device", "memory", "layout", "done", made="buffer")
    types = {"element": offset(host, "element"), "semantics": offset(host, "semantics"), "elements": element_count}
    event = _words("Event_OnReady", "event", "callback", "user")
    other = _words("Executable_NumOutputs", "executable", "count") | _words("Memory_Kind", "memory", "text", "text_size")
    other |= _words("Error_Destroy", "error")
    return {
        BUFFER_FUNCTIONS: expanded(BUFFER, buffer=word("Buffer_Destroy", "buffer"), **at, **_NUMBERS),
        EVENT_FUNCTIONS: expanded(EVENT, **event, is_ready=offset("Event_IsReady", "is_ready"), **_NUMBERS),
        (host,): expanded(FROM_HOST, **given, **types),
        (execute,): expanded(EXECUTE, **call, **kept),
        OTHER_FUNCTIONS: expanded(OTHER, **other, **_NUMBERS),
    }
