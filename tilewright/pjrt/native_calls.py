"""Source of native functions: calls of programs, and the thread that makes those that take long (`native_source`)."""

from __future__ import annotations

__all__ = [
    "EXECUTE", "OTHER", "OTHER_FUNCTIONS", "RUN", "WORKER",
]  # fmt: skip

# ---------------------------------------------------------------- calls

EXECUTE = """
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
    place = a[{device}]
    if place == 0:
        place = program[{TARGET}]
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
                request[{NEW_PLACE}] += words(place)[{OTHER}]
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
            # Python says what is wrong where a donated argument is another one, too
            donated = words(program[{DONATED}])
            held = words(options[{kept}])
            marks = int64(0)
            if program[{DONATIONS}] > 0:
                for d in range(program[{DONATIONS}]):
                    is_given = True
                    for k in range(options[{kept_count}]):
                        if held[k] == donated[d]:
                            is_given = False
                    if is_given:
                        argument = words(arguments[donated[d]])
                        marks += 1 - argument[{MARKED}]
                        argument[{MARKED}] = 1
                for k in range(count):
                    marks -= words(arguments[k])[{MARKED}]
                for d in range(program[{DONATIONS}]):
                    words(arguments[donated[d]])[{MARKED}] = 0
            if marks != 0:
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

OTHER = """
def kernel(begin, end):
    own = words(begin)
    a = words(own[{OWN_ARGUMENTS}])
    state = words(own[{OWN_STATE}])
    if end == {Executable_NumOutputs}:
        a[{count}] = words(a[{executable}])[{MADE}]
        own[{OWN_ANSWER}] = {DONE}
    elif end == {Executable_NumReplicas}:
        a[{count}] = words(a[{executable}])[{REPLICAS}]
        own[{OWN_ANSWER}] = {DONE}
    elif end == {Executable_NumPartitions}:
        a[{count}] = words(a[{executable}])[{PARTITIONS}]
        own[{OWN_ANSWER}] = {DONE}
    elif end == {Memory_Kind}:
        memory = words(a[{memory}])
        a[{text}] = memory[{TEXT}]
        a[{text_size}] = memory[{TEXT_SIZE}]
        own[{OWN_ANSWER}] = {DONE}
    elif a[{error}] == 0:
        own[{OWN_ANSWER}] = {DONE}
"""

RUN = """
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

WORKER = """
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
