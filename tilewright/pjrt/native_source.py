"""What jaxlib calls again and again, as source of native functions: buffers, events, calls of programs, and the thread that makes
those that take long.

Each is a kernel of `codegen.native.jit`. `entries` get (address of the words `OWN_…` of `records`, which of their functions is
meant), and leave to Python what they do not take. `helpers` are called by those and by Python, with (address, address of the
state). A line `NAME(…)` in capitals stands for the lines of a pattern.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

from codegen.call.xla_call import ARGUMENTS, BODY, BYTES, INTERRUPTED, RESULTS
from tilewright.pjrt import records
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


# ---------------------------------------------------------------- memories and buffers

_DROP_MEMORY = """
def kernel(begin, end):
    state = words(end)
    memory = words(begin)
    if atomic_add(memory, {COUNT}, -1) == 1:
        atomic_add(state, {MEMORIES}, -1)
        if memory[{OWNER}] > 0:
            call_function(state[{PYTHON}], begin, {give}, 0)
        FREE(memory[{ROOM}])
"""

_DROP_EVENT = """
def kernel(begin, end):
    state = words(end)
    event = words(begin)
    if atomic_add(event, {COUNT}, -1) == 1:
        atomic_add(state, {EVENTS}, -1)
        if event[{FAILURE}] != 0:
            call_function(state[{PYTHON}], begin, {give}, 0)
        FREE(begin)
"""

_NEW = """
def kernel(begin, end):
    # a buffer with its memory: 0 where there is no room for them
    state = words(end)
    new = words(begin)
    new[{NEW_BUFFER}] = 0
    is_own = new[{NEW_ADDRESS}] == 0 and new[{NEW_OWNER}] == 0
    size = int64(0)
    if is_own:
        size = new[{NEW_SIZE}]
    room = call_function(state[{MALLOC}], size + {TWO_LINES}, 0, 0)
    if room != 0:
        rank = new[{NEW_RANK}]
        buffer_at = call_function(state[{MALLOC}], 8 * ({DIMS} + 2 * rank), 0, 0)
        if buffer_at == 0:
            FREE(room)
        else:
            memory_at = (room + {LAST_OF_LINE}) & {LINE_MASK}
            memory = words(memory_at)
            memory[{COUNT}] = 1
            memory[{ROOM}] = room
            memory[{OWNER}] = new[{NEW_OWNER}]
            memory[{DATA}] = new[{NEW_ADDRESS}]
            if is_own:
                memory[{DATA}] = memory_at + {LINE}
            buffer = words(buffer_at)
            buffer[{MEMORY}] = memory_at
            buffer[{EVENT}] = new[{NEW_EVENT}]
            buffer[{KEPT}] = 0
            buffer[{REFERENCES}] = 0
            buffer[{ELEMENT}] = new[{NEW_ELEMENT}]
            buffer[{RANK}] = rank
            buffer[{SIZE}] = new[{NEW_SIZE}]
            dims = words(new[{NEW_DIMS}])
            for k in range(rank):
                buffer[{DIMS} + k] = dims[k]
                buffer[{DIMS} + rank + k] = rank - 1 - k
            atomic_add(state, {MEMORIES}, 1)
            atomic_add(state, {BUFFERS}, 1)
            new[{NEW_BUFFER}] = buffer_at
"""

_NEW_EVENT = """
def kernel(begin, end):
    # begin is the address of [how often it is counted, the event: 0 where there is no room for it]
    state = words(end)
    new = words(begin)
    event_at = call_function(state[{MALLOC}], 8 * {EVENT_WORDS}, 0, 0)
    new[1] = event_at
    if event_at != 0:
        event = words(event_at)
        event[{COUNT}] = new[0]
        event[{ENDED}] = {GOING}
        event[{LISTENERS}] = 0
        event[{FAILURE}] = 0
        atomic_add(state, {EVENTS}, 1)
"""

_COUNT_EVENT = """
def kernel(begin, end):
    atomic_add(words(begin), {COUNT}, 1)
"""

_TAKE = """
def kernel(begin, end):
    # begin is the address of [a buffer, its memory, its event or 0]: both are counted once more; no memory where it is deleted
    state = words(end)
    taken = words(begin)
    buffer = words(taken[0])
    TAKE_LOCK()
    taken[1] = buffer[{MEMORY}]
    taken[2] = 0
    if taken[1] != 0:
        atomic_add(words(taken[1]), {COUNT}, 1)
        taken[2] = buffer[{EVENT}]
        if taken[2] != 0:
            atomic_add(words(taken[2]), {COUNT}, 1)
    GIVE_LOCK()
"""

BUFFER_FUNCTIONS = (
    "Buffer_ElementType", "Buffer_Dimensions", "Buffer_UnpaddedDimensions", "Buffer_DynamicDimensionIndices",
    "Buffer_OnDeviceSizeInBytes", "Buffer_Device", "Buffer_Memory", "Buffer_IsDeleted", "Buffer_IsOnCpu", "Buffer_ReadyEvent",
    "Buffer_UnsafePointer", "Buffer_OpaqueDeviceMemoryDataPointer", "Buffer_IncreaseExternalReferenceCount",
    "Buffer_DecreaseExternalReferenceCount", "Buffer_Delete", "Buffer_Destroy",
)  # fmt: skip

_BUFFER = """
def kernel(begin, end):
    own = words(begin)
    a = words(own[{OWN_ARGUMENTS}])
    state_at = own[{OWN_STATE}]
    state = words(state_at)
    buffer_at = a[{buffer}]
    buffer = words(buffer_at)
    answer = int64({DONE})
    memory_at = int64(0)
    if end == {Buffer_ElementType}:
        put_int(own[{OWN_ARGUMENTS}] + {element}, buffer[{ELEMENT}])
    elif end == {Buffer_Dimensions} or end == {Buffer_UnpaddedDimensions}:
        a[{buffer} + 1] = buffer_at + 8 * {DIMS}
        a[{buffer} + 2] = buffer[{RANK}]
    elif end == {Buffer_DynamicDimensionIndices}:
        a[{buffer} + 1] = buffer_at + 8 * {DIMS}
        a[{buffer} + 2] = 0
    elif end == {Buffer_OnDeviceSizeInBytes}:
        a[{buffer} + 1] = buffer[{SIZE}]
    elif end == {Buffer_Device}:
        a[{buffer} + 1] = state[{DEVICE}]
    elif end == {Buffer_Memory}:
        a[{buffer} + 1] = state[{SPACE}]
    elif end == {Buffer_IsDeleted}:
        is_deleted = int64(0)
        if buffer[{MEMORY}] == 0:
            is_deleted = int64(1)
        put_byte(own[{OWN_ARGUMENTS}] + {is_deleted}, is_deleted)
    elif end == {Buffer_IsOnCpu}:
        put_byte(own[{OWN_ARGUMENTS}] + {is_on_cpu}, 1)
    elif end == {Buffer_ReadyEvent}:
        TAKE_LOCK()
        event_at = buffer[{EVENT}]
        if buffer[{MEMORY}] == 0:
            answer = int64({ASK})
        elif event_at != 0:
            atomic_add(words(event_at), {COUNT}, 1)
        GIVE_LOCK()
        if event_at == 0:
            event_at = state_at + 8 * {READY}
        a[{buffer} + 1] = event_at
    elif end == {Buffer_UnsafePointer} or end == {Buffer_OpaqueDeviceMemoryDataPointer}:
        TAKE_LOCK()
        memory_at = buffer[{MEMORY}]
        if memory_at == 0:
            memory_at = buffer[{KEPT}]
        address = int64(0)
        if memory_at != 0:
            address = words(memory_at)[{DATA}]
        GIVE_LOCK()
        memory_at = int64(0)
        a[{buffer} + 1] = address
        if address == 0:
            answer = int64({ASK})
    elif end == {Buffer_IncreaseExternalReferenceCount}:
        TAKE_LOCK()
        if buffer[{MEMORY}] == 0:
            answer = int64({ASK})
        else:
            buffer[{REFERENCES}] += 1
        GIVE_LOCK()
    elif end == {Buffer_DecreaseExternalReferenceCount}:
        TAKE_LOCK()
        if buffer[{REFERENCES}] < 1:
            answer = int64({ASK})
        else:
            buffer[{REFERENCES}] -= 1
            if buffer[{REFERENCES}] == 0:
                memory_at = buffer[{KEPT}]
                buffer[{KEPT}] = 0
        GIVE_LOCK()
    elif end == {Buffer_Delete}:
        TAKE_LOCK()
        memory_at = buffer[{MEMORY}]
        buffer[{MEMORY}] = 0
        if memory_at != 0 and buffer[{REFERENCES}] > 0:
            buffer[{KEPT}] = memory_at
            memory_at = int64(0)
        GIVE_LOCK()
    elif end == {Buffer_Destroy}:
        memory_at = buffer[{MEMORY}]
        if buffer[{KEPT}] != 0:
            DROP_MEMORY(buffer[{KEPT}])
        if buffer[{EVENT}] != 0:
            DROP_EVENT(buffer[{EVENT}])
        atomic_add(state, {BUFFERS}, -1)
        FREE(buffer_at)
    else:
        answer = int64({ASK})
    if memory_at != 0:
        DROP_MEMORY(memory_at)
    own[{OWN_ANSWER}] = answer
"""

_FROM_HOST = """
def kernel(begin, end):
    # what is dense, and small or to be copied
    own = words(begin)
    at = own[{OWN_ARGUMENTS}]
    a = words(at)
    state_at = own[{OWN_STATE}]
    state = words(state_at)
    element = int_at(at + {element})
    rank = a[{rank}]
    semantics = int_at(at + {semantics})
    is_taken = a[{layout}] == 0 and 0 <= element and element < {elements} and rank < 16
    is_here = (a[{device}] == 0 or a[{device}] == state[{DEVICE}]) and (a[{memory}] == 0 or a[{memory}] == state[{SPACE}])
    if is_taken and is_here:
        size = words(state[{ITEM_BYTES}])[element]
        is_taken = size > 0
        dims = words(a[{dims}])
        strides = words(a[{strides}])
        for k in range(rank):
            n = dims[rank - 1 - k]
            if a[{strides_count}] > 0 and n != 1 and strides[rank - 1 - k] != size:
                is_taken = False
            size *= n
        if is_taken and (semantics < 2 or size <= {COPIED_BYTES}):
            room = call_function(state[{MALLOC}], 8 * {NEW_WORDS}, 0, 0)
            if room != 0:
                new = words(room)
                new[{NEW_ELEMENT}] = element
                new[{NEW_RANK}] = rank
                new[{NEW_DIMS}] = a[{dims}]
                new[{NEW_SIZE}] = size
                new[{NEW_ADDRESS}] = 0
                new[{NEW_OWNER}] = 0
                new[{NEW_EVENT}] = 0
                call_entry(state[{NEW}], room, state_at, 0, 0)
                buffer_at = new[{NEW_BUFFER}]
                FREE(room)
                if buffer_at != 0:
                    copy_bytes(words(words(buffer_at)[{MEMORY}])[{DATA}], a[{data}], size)
                    a[{done}] = state_at + 8 * {READY}
                    a[{made}] = buffer_at
                    own[{OWN_ANSWER}] = {DONE}
"""

# ---------------------------------------------------------------- events

EVENT_FUNCTIONS = ("Event_IsReady", "Event_Error", "Event_OnReady", "Event_Await", "Event_Destroy")

_EVENT = """
def kernel(begin, end):
    own = words(begin)
    at = own[{OWN_ARGUMENTS}]
    a = words(at)
    state_at = own[{OWN_STATE}]
    state = words(state_at)
    event_at = a[{event}]
    event = words(event_at)
    ended = atomic_load(event, {ENDED})
    if end == {Event_IsReady}:
        is_ready = int64(0)
        if ended != {GOING}:
            is_ready = int64(1)
        put_byte(at + {is_ready}, is_ready)
        own[{OWN_ANSWER}] = {DONE}
    elif end == {Event_Error} or end == {Event_Await}:
        if ended == {FINE}:
            own[{OWN_ANSWER}] = {DONE}
    elif end == {Event_OnReady}:
        if ended == {GOING}:
            room = call_function(state[{MALLOC}], 8 * {LISTENER_WORDS}, 0, 0)
            if room != 0:
                listener = words(room)
                TAKE_LOCK()
                ended = event[{ENDED}]
                if ended == {GOING}:
                    listener[{NEXT}] = event[{LISTENERS}]
                    listener[{CALLBACK}] = a[{callback}]
                    listener[{USER}] = a[{user}]
                    event[{LISTENERS}] = room
                    own[{OWN_ANSWER}] = {DONE}
                GIVE_LOCK()
                if ended != {GOING}:
                    FREE(room)
        if ended == {FINE}:
            call_function(a[{callback}], 0, a[{user}], 0)
            own[{OWN_ANSWER}] = {DONE}
    elif end == {Event_Destroy}:
        DROP_EVENT(event_at)
        own[{OWN_ANSWER}] = {DONE}
"""

_FIRE = """
def kernel(begin, end):
    # an event ends: well, or with the failure that it has
    state_at = end
    state = words(state_at)
    event = words(begin)
    calls = int64(0)
    is_woken = False
    TAKE_LOCK()
    listener_at = event[{LISTENERS}]
    event[{LISTENERS}] = 0
    while listener_at != 0:
        listener = words(listener_at)
        following = listener[{NEXT}]
        if listener[{CALLBACK}] == 0:
            waiting = words(listener[{USER}])
            waiting[{DEPENDENCIES}] -= 1
            if waiting[{DEPENDENCIES}] == 0:
                QUEUE(listener[{USER}])
                is_woken = True
        else:
            listener[{NEXT}] = calls
            calls = listener_at
        listener_at = following
    if event[{FAILURE}] == 0:
        atomic_store(event, {ENDED}, {FINE})
    else:
        atomic_store(event, {ENDED}, {FAILED})
    GIVE_LOCK()
    if is_woken:
        WAKE()
    while calls != 0:
        listener = words(calls)
        error = int64(0)
        if event[{FAILURE}] != 0:
            error = call_function(state[{PYTHON}], begin, {error}, 0)
        call_function(listener[{CALLBACK}], error, listener[{USER}], 0)
        following = listener[{NEXT}]
        FREE(calls)
        calls = following
"""

# ---------------------------------------------------------------- calls

_EXECUTE = """
def kernel(begin, end):
    own = words(begin)
    a = words(own[{OWN_ARGUMENTS}])
    state_at = own[{OWN_STATE}]
    state = words(state_at)
    program = words(a[{executable}])
    options = words(a[{options}])
    count = a[{count}]
    is_taken = program[{CALL}] != 0 and a[{devices}] == 1 and count == program[{GIVEN}]
    is_taken = is_taken and options[{sends}] == 0 and options[{receives}] == 0
    is_taken = is_taken and (a[{device}] == 0 or a[{device}] == state[{DEVICE}])
    is_taken = is_taken and state[{WORKERS}] > 0 and state[{STOP}] == 0
    is_taken = is_taken and (own[{OWN_FORCED}] != 0 or state[{PENDING}] < {MOST_PENDING})
    task_at = int64(0)
    results = program[{MADE}]
    if is_taken:
        task_at = call_function(state[{MALLOC}], 8 * ({TASK_HEAD} + {GIVEN_WORDS} * count + {MADE_WORDS} * results), 0, 0)
    if task_at != 0:
        task = words(task_at)
        task[{PROGRAM}] = a[{executable}]
        task[{STATUS}] = 0
        task[{TROUBLE}] = 0
        task[{RESULT_EVENT}] = 0
        given = words(task_at + 8 * {TASK_HEAD})
        given_events = words(task_at + 8 * ({TASK_HEAD} + count))
        listeners_at = task_at + 8 * ({TASK_HEAD} + 3 * count)
        made_at = task_at + 8 * ({TASK_HEAD} + {GIVEN_WORDS} * count)
        made = words(made_at)
        buffers = words(made_at + 16 * results)
        request_at = task_at + 8 * {REQUEST}
        request = words(request_at)
        rows = program[{ROWS}]
        number = int64(0)
        for k in range(results):
            if number == k:
                copy_bytes(request_at, rows + 8 * {NEW_WORDS} * k, 8 * {NEW_WORDS})
                call_entry(state[{NEW}], request_at, state_at, 0, 0)
                if request[{NEW_BUFFER}] != 0:
                    buffers[k] = request[{NEW_BUFFER}]
                    made[k] = words(buffers[k])[{MEMORY}]
                    number += 1
        is_taken = number == results
        is_there = True
        is_quick = program[{NANOSECONDS}] <= {INLINE_NANOSECONDS}
        event_at = int64(0)
        if is_taken:
            arguments = words(words(a[{arguments}])[0])
            TAKE_LOCK()
            for k in range(count):
                argument = words(arguments[k])
                if argument[{MEMORY}] == 0:
                    is_taken = False
                if argument[{EVENT}] != 0 and words(argument[{EVENT}])[{ENDED}] != {FINE}:
                    is_there = False
            if program[{HOSTED}] != 0 and not is_there:
                is_taken = False
            if is_taken and not (is_there and is_quick):
                event_at = call_function(state[{MALLOC}], 8 * {EVENT_WORDS}, 0, 0)
                is_taken = event_at != 0
            if is_taken:
                dependencies = int64(0)
                for k in range(count):
                    argument = words(arguments[k])
                    given[k] = argument[{MEMORY}]
                    atomic_add(words(given[k]), {COUNT}, 1)
                    given_events[k] = 0
                    argument_event_at = argument[{EVENT}]
                    if argument_event_at != 0:
                        argument_event = words(argument_event_at)
                        if argument_event[{ENDED}] != {FINE}:
                            atomic_add(argument_event, {COUNT}, 1)
                            given_events[k] = argument_event_at
                            if argument_event[{ENDED}] == {GOING}:
                                listener_at = listeners_at + 8 * {LISTENER_WORDS} * k
                                listener = words(listener_at)
                                listener[{NEXT}] = argument_event[{LISTENERS}]
                                listener[{CALLBACK}] = 0
                                listener[{USER}] = task_at
                                argument_event[{LISTENERS}] = listener_at
                                dependencies += 1
                donated = words(program[{DONATED}])
                held = words(options[{kept}])
                for d in range(program[{DONATIONS}]):
                    argument = words(arguments[donated[d]])
                    is_given = argument[{REFERENCES}] == 0 and argument[{MEMORY}] != 0
                    for k in range(options[{kept_count}]):
                        if held[k] == donated[d]:
                            is_given = False
                    if is_given:
                        atomic_add(words(argument[{MEMORY}]), {COUNT}, -1)
                        argument[{MEMORY}] = 0
                outputs = words(0)
                if results > 0:
                    outputs = words(words(a[{outputs}])[0])
                for k in range(results):
                    outputs[k] = buffers[k]
                task[{DEPENDENCIES}] = dependencies
                program[{CALLS}] += 1
                state[{PENDING}] += 1
                state[{TASKS}] += 1
                if event_at != 0:
                    event = words(event_at)
                    event[{COUNT}] = results + 1
                    if a[{events}] != 0:
                        event[{COUNT}] = results + 2
                    event[{ENDED}] = {GOING}
                    event[{LISTENERS}] = 0
                    event[{FAILURE}] = 0
                    atomic_add(state, {EVENTS}, 1)
                    task[{RESULT_EVENT}] = event_at
                    for k in range(results):
                        words(buffers[k])[{EVENT}] = event_at
                        atomic_add(words(made[k]), {COUNT}, 1)
                    if dependencies == 0:
                        QUEUE(task_at)
            GIVE_LOCK()
        if is_taken and event_at != 0:
            if dependencies == 0:
                WAKE()
        elif is_taken:
            call_entry(state[{RUN}], task_at, state_at, 0, 0)
            is_taken = task[{STATUS}] == 0
            for k in range(count):
                DROP_MEMORY(given[k])
            TAKE_LOCK()
            program[{CALLS}] -= 1
            state[{PENDING}] -= 1
            state[{TASKS}] -= 1
            GIVE_LOCK()
        if not is_taken:
            for k in range(number):
                DROP_MEMORY(made[k])
                atomic_add(state, {BUFFERS}, -1)
                FREE(buffers[k])
        if event_at == 0:
            FREE(task_at)
        if is_taken:
            if a[{events}] != 0:
                if event_at == 0:
                    words(a[{events}])[0] = state_at + 8 * {READY}
                else:
                    words(a[{events}])[0] = event_at
            own[{OWN_ANSWER}] = {DONE}
"""

OTHER_FUNCTIONS = (
    "Executable_NumOutputs", "Executable_NumReplicas", "Executable_NumPartitions", "Memory_Kind", "Error_Destroy",
)  # fmt: skip

_OTHER = """
def kernel(begin, end):
    own = words(begin)
    a = words(own[{OWN_ARGUMENTS}])
    state = words(own[{OWN_STATE}])
    if end == {Executable_NumOutputs}:
        a[{count}] = words(a[{executable}])[{MADE}]
        own[{OWN_ANSWER}] = {DONE}
    elif end == {Executable_NumReplicas} or end == {Executable_NumPartitions}:
        a[{count}] = 1
        own[{OWN_ANSWER}] = {DONE}
    elif end == {Memory_Kind}:
        a[{text}] = state[{KIND_TEXT}]
        a[{text_size}] = state[{KIND_SIZE}]
        own[{OWN_ANSWER}] = {DONE}
    elif a[{error}] == 0:
        own[{OWN_ANSWER}] = {DONE}
"""

_RUN = """
def kernel(begin, end):
    # the kernels of a task whose arguments are there
    state = words(end)
    task = words(begin)
    program = words(task[{PROGRAM}])
    record = words(program[{CALL}])
    count = program[{GIVEN}]
    results = program[{MADE}]
    given = words(begin + 8 * {TASK_HEAD})
    given_data_at = begin + 8 * ({TASK_HEAD} + 2 * count)
    given_data = words(given_data_at)
    for k in range(count):
        given_data[k] = words(given[k])[{DATA}]
    made_at = begin + 8 * ({TASK_HEAD} + {GIVEN_WORDS} * count)
    made = words(made_at)
    made_data = words(made_at + 8 * results)
    for k in range(results):
        made_data[k] = words(made[k])[{DATA}]
    started = clock_ns()
    room = call_function(state[{MALLOC}], record[{BYTES}], 0, 0)
    if room == 0:
        task[{STATUS}] = {no_memory}
    else:
        task[{FRAME} + {ARGUMENTS}] = given_data_at
        task[{FRAME} + {RESULTS}] = made_at + 8 * results
        task[{OWN}] = begin + 8 * {FRAME}
        task[{OWN} + 1] = program[{CALL}]
        task[{OWN} + 2] = (room + {LAST_OF_LINE}) & {LINE_MASK}
        task[{OWN} + 3] = 0
        call_entry(record[{BODY}], begin + 8 * {OWN}, 0, 0, 0)
        task[{STATUS}] = task[{OWN} + 3]
        FREE(room)
    if program[{HOSTED}] == 0:
        program[{NANOSECONDS}] = clock_ns() - started
"""

_WORKER = """
def kernel(begin, end):
    # begin is the address of [state]: a thread that runs tasks until it is stopped
    state_at = words(begin)[0]
    state = words(state_at)
    turn = state[{TURN}]
    since = clock_ns()
    spun = int64(0)
    while atomic_load(state, {TURN}) == turn:
        seen = atomic_load(state, {SIGNAL})
        TAKE_LOCK()
        task_at = state[{HEAD}]
        if task_at != 0:
            state[{HEAD}] = words(task_at)[{LINK}]
        GIVE_LOCK()
        if task_at == 0:
            spun += 1
            if spun & 63 == 0 and clock_ns() - since > state[{SPIN}]:
                atomic_add(state, {SLEEPERS}, 1)
                futex_wait(state, {SIGNAL}, seen)
                atomic_add(state, {SLEEPERS}, -1)
                since = clock_ns()
            else:
                pause()
        else:
            task = words(task_at)
            program = words(task[{PROGRAM}])
            count = program[{GIVEN}]
            results = program[{MADE}]
            given = words(task_at + 8 * {TASK_HEAD})
            given_events = words(task_at + 8 * ({TASK_HEAD} + count))
            made = words(task_at + 8 * ({TASK_HEAD} + {GIVEN_WORDS} * count))
            event_at = task[{RESULT_EVENT}]
            trouble = int64(0)
            if atomic_load(state, {STOP}) != 0:
                trouble = state[{CANCELLED}]
            for k in range(count):
                if trouble == 0 and given_events[k] != 0 and words(given_events[k])[{ENDED}] == {FAILED}:
                    trouble = call_function(state[{PYTHON}], given_events[k], {share}, 0)
                    if trouble == 0:
                        trouble = state[{CANCELLED}]
            if trouble == 0:
                call_entry(state[{RUN}], task_at, state_at, 0, 0)
                if task[{STATUS}] == {no_memory}:
                    trouble = state[{NO_MEMORY}]
                elif task[{STATUS}] != 0:
                    trouble = state[{CANCELLED}]
            words(event_at)[{FAILURE}] = trouble
            for k in range(count):
                DROP_MEMORY(given[k])
                if given_events[k] != 0:
                    DROP_EVENT(given_events[k])
            for k in range(results):
                DROP_MEMORY(made[k])
            TAKE_LOCK()
            program[{CALLS}] -= 1
            state[{PENDING}] -= 1
            state[{TASKS}] -= 1
            GIVE_LOCK()
            call_entry(state[{FIRE}], event_at, state_at, 0, 0)
            DROP_EVENT(event_at)
            FREE(task_at)
            since = clock_ns()
            spun = int64(0)
"""


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
        "DROP_MEMORY": expanded(_DROP_MEMORY, give=give),
        "DROP_EVENT": expanded(_DROP_EVENT, give=give),
        "NEW": expanded(_NEW),
        "NEW_EVENT": expanded(_NEW_EVENT),
        "COUNT_EVENT": expanded(_COUNT_EVENT),
        "TAKE": expanded(_TAKE),
        "RUN": expanded(_RUN, **call),
        "FIRE": expanded(_FIRE, error=error),
    }


def worker() -> str:
    """The source of what the thread for long calls does."""
    return expanded(_WORKER, share=INNER.index("Own_Share"), no_memory=INTERRUPTED + 1)


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
    other = _words("Executable_NumOutputs", "executable", "count") | _words("Memory_Kind", "text", "text_size")
    other |= _words("Error_Destroy", "error")
    return {
        BUFFER_FUNCTIONS: expanded(_BUFFER, buffer=word("Buffer_Destroy", "buffer"), **at, **_NUMBERS),
        EVENT_FUNCTIONS: expanded(_EVENT, **event, is_ready=offset("Event_IsReady", "is_ready"), **_NUMBERS),
        (host,): expanded(_FROM_HOST, **given, **types),
        (execute,): expanded(_EXECUTE, **call, **kept),
        OTHER_FUNCTIONS: expanded(_OTHER, **other, **_NUMBERS),
    }
