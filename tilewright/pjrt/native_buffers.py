"""Source of native functions: memories, buffers and events (`native_source` says how they are written)."""

from __future__ import annotations

__all__ = [
    "BUFFER", "BUFFER_FUNCTIONS", "COUNT_EVENT", "DROP_EVENT", "DROP_MEMORY", "EVENT", "EVENT_FUNCTIONS", "FIRE", "FROM_HOST",
    "NEW", "NEW_EVENT", "TAKE",
]  # fmt: skip

# ---------------------------------------------------------------- memories and buffers

DROP_MEMORY = """
def kernel(begin, end):
    state = words(end)
    memory = words(begin)
    if atomic_add(memory, {COUNT}, -1) == 1:
        atomic_add(state, {MEMORIES}, -1)
        if memory[{OWNER}] > 0:
            call_function(state[{PYTHON}], begin, {give}, 0)
        FREE(memory[{ROOM}])
"""

DROP_EVENT = """
def kernel(begin, end):
    state = words(end)
    event = words(begin)
    if atomic_add(event, {COUNT}, -1) == 1:
        atomic_add(state, {EVENTS}, -1)
        if event[{FAILURE}] != 0:
            call_function(state[{PYTHON}], begin, {give}, 0)
        FREE(begin)
"""

NEW = """
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
            buffer[{EVENT}] = new[{NEW_COMING}]
            buffer[{PLACE}] = new[{NEW_PLACE}]
            buffer[{KEPT}] = 0
            buffer[{MARKED}] = 0
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

NEW_EVENT = """
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

COUNT_EVENT = """
def kernel(begin, end):
    atomic_add(words(begin), {COUNT}, 1)
"""

TAKE = """
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

BUFFER = """
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
        a[{buffer} + 1] = words(buffer[{PLACE}])[{OTHER}]
    elif end == {Buffer_Memory}:
        a[{buffer} + 1] = buffer[{PLACE}]
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

FROM_HOST = """
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
    place = a[{memory}]
    if place == 0:
        device = a[{device}]
        if device == 0:
            device = state[{DEVICE}]
        place = words(device)[{OTHER}]
    if is_taken:
        size = words(state[{ITEM_BYTES}])[element]
        is_taken = size > 0
        dims = words(a[{dims}])
        strides = words(a[{strides}])
        is_dense = True
        for k in range(rank):
            n = dims[rank - 1 - k]
            if a[{strides_count}] > 0 and n != 1 and strides[rank - 1 - k] != size:
                is_dense = False
            size *= n
        # jaxlib gives strides of 0 for what has no elements, such as a token
        is_taken = is_taken and (is_dense or size == 0)
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
                new[{NEW_COMING}] = 0
                new[{NEW_PLACE}] = place
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

EVENT = """
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

FIRE = """
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
