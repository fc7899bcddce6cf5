"""The launcher's own kernels as source: a run of all steps, what a worker thread does, and the request for the workers."""

from __future__ import annotations

import textwrap

from codegen.launcher import words

__all__ = ["OWN_SOURCE", "RUN_SOURCE", "WORKER_SOURCE"]

_TAKE = f"""
zone = {{thread}} % {words.MOST_ZONES}
zones = min(pool[{words.LIMIT}], {words.MOST_ZONES})
share = int64({words.SHARE})
for turn in range(zones):
    lower = tasks * zone // zones
    upper = tasks * (zone + 1) // zones
    counter = {words.NEXT} + {words.LINE_WORDS} * zone
    first = lower + atomic_load(pool, counter)
    while first < upper:
        size = max(chunk, (upper - first) // share)
        first = lower + atomic_add(pool, counter, size)
        if first < upper:
            began = int64(0)
            if traced != 0:
                began = clock_ns()
            call_entry(step[{words.ENTRY}], first, min(first + size, upper), step[{words.TABLE}], scratch)
            if traced != 0:
                taken = atomic_add(words(traced), 0, 1)
                if taken < words(traced)[1]:
                    event = words(traced + 8 * ({words.EVENT_HEAD_WORDS} + {words.EVENT_WORDS} * taken))
                    event[0] = pool[{words.NUMBER}]
                    event[1] = {{thread}}
                    event[2] = first
                    event[3] = min(first + size, upper)
                    event[4] = began
                    event[5] = clock_ns()
            first += size
    # another thread's zone: what is left of it is for all who are done
    share = {words.SHARE} * zones
    zone += 1
    if zone == zones:
        zone = int64(0)
"""
"""How a thread takes part in a step of `tasks` tasks. More threads than zones start in others' zones."""


def _taking_part(thread: str, indent: int) -> str:
    return textwrap.indent(_TAKE.format(thread=thread).strip("\n"), " " * indent)


WORKER_SOURCE = f"""
def kernel(begin, end):
    # begin is the address of [pool state, thread number]
    own = words(begin)
    pool = words(own[0])
    number = own[1]
    last = int64(0)
    seen = int64(0)
    spins = int64(0)
    since = clock_ns()
    while atomic_load(pool, {words.STOP}) == 0:
        phase = atomic_load(pool, {words.PHASE})
        if phase == last or (phase & 1) == 0:
            if phase != seen:
                # A step has ended: the wait for the next one begins, however long ago there was something to do here.
                seen = phase
                since = clock_ns()
            spins += 1
            if spins & 63 != 0:
                pause()
            elif current_cpu() == pool[{words.CPU}]:
                # It is on the CPU of the thread that it waits for, which cannot go on beside it; another one may be idle, and
                # the system would look after some milliseconds only, or never.
                leave_cpu(pool[{words.CPU}])
                if current_cpu() == pool[{words.CPU}]:
                    yield_thread()
            if spins & 63 == 0 and clock_ns() - since > pool[{words.SPIN}]:
                atomic_add(pool, {words.SLEEPERS}, 1)
                futex_wait(pool, {words.PHASE}, phase)
                atomic_add(pool, {words.SLEEPERS}, -1)
                since = clock_ns()
        else:
            if current_cpu() == pool[{words.CPU}]:
                leave_cpu(pool[{words.CPU}])  # where it was woken: both would share one CPU for the whole step
            atomic_add(pool, {words.ACTIVE}, 1)
            if atomic_load(pool, {words.PHASE}) == phase and number < pool[{words.LIMIT}]:
                step = words(pool[{words.STEP}])
                tasks = step[{words.TASKS}]
                chunk = step[{words.CHUNK}]
                scratch = pool[{words.SCRATCH}] + number * pool[{words.STRIDE}]
                traced = pool[{words.TRACED}]
{_taking_part("number", 16)}
            atomic_add(pool, {words.ACTIVE}, -1)
            last = phase
            since = clock_ns()
"""

RUN_SOURCE = f"""
def kernel(begin, end):
    # begin is the address of the run's record
    run = words(begin)
    threads = run[{words.THREADS}]
    times = run[{words.TIMES}]
    traced = run[{words.EVENTS}]
    scratch = run[{words.BASE}]
    number = run[{words.POSITION}]
    count = run[{words.COUNT}]
    turns = int64(0)
    room = int64({words.FIRST_LOOK})
    since = int64(0)
    stopped = count
    owns = False
    entered = int64(0)
    if threads > 1:
        # one run at a time has the workers; several may ask at once, and each takes back what it added
        owns = atomic_add(words(run[{words.POOL}]), {words.OWNER}, 1) == 0
        if owns:
            # sleepers wake beside the first steps, which are seldom for all threads, and stay awake for the next ones
            pool = words(run[{words.POOL}])
            pool[{words.SPIN}] = pool[{words.WITHIN}]
            pool[{words.CPU}] = current_cpu()
            entered = clock_ns()
            if atomic_load(pool, {words.SLEEPERS}) > 0:
                futex_wake(pool, {words.PHASE})
        else:
            atomic_add(words(run[{words.POOL}]), {words.OWNER}, -1)
            threads = int64(1)
    while number < count:
        turns += 1
        if turns >= room:
            # often enough to be heard at once, seldom enough to cost nothing, however long the steps are
            turns = int64(0)
            now = clock_ns()
            if now - since < {words.LOOK_NANOSECONDS}:
                room = min(2 * room, int64({words.MOST_TURNS}))
            else:
                room = int64(1)
                since = now
                if interrupted():
                    stopped = int64(-1)
                    break
        address = run[{words.STEPS}] + number * {8 * words.STEP_WORDS}
        step = words(address)
        kind = step[{words.KIND}]
        if kind == {words.KERNEL}:
            tasks = step[{words.TASKS}]
            chunk = step[{words.CHUNK}]
            started = int64(0)
            if times != 0:
                started = clock_ns()
            if threads == 1 or tasks <= chunk:
                if traced != 0:
                    started = clock_ns()
                if owns and step[{words.FIRST}] != 0:
                    # the routine has threads itself, for which a worker that spins would leave no core
                    words(run[{words.POOL}])[{words.SPIN}] = 0
                call_entry(step[{words.ENTRY}], 0, tasks, step[{words.TABLE}], scratch)
                if owns and step[{words.FIRST}] != 0:
                    words(run[{words.POOL}])[{words.SPIN}] = words(run[{words.POOL}])[{words.WITHIN}]
                if traced != 0:
                    taken = atomic_add(words(traced), 0, 1)
                    if taken < words(traced)[1]:
                        event = words(traced + 8 * ({words.EVENT_HEAD_WORDS} + {words.EVENT_WORDS} * taken))
                        event[0] = number
                        event[1] = 0
                        event[2] = 0
                        event[3] = tasks
                        event[4] = started
                        event[5] = clock_ns()
            else:
                pool = words(run[{words.POOL}])
                pool[{words.STEP}] = address
                pool[{words.SCRATCH}] = scratch
                pool[{words.STRIDE}] = run[{words.ROOM}]
                pool[{words.LIMIT}] = threads
                pool[{words.TRACED}] = traced
                pool[{words.NUMBER}] = number
                for z in range(min(threads, {words.MOST_ZONES})):
                    atomic_store(pool, {words.NEXT} + {words.LINE_WORDS} * z, 0)
                atomic_add(pool, {words.PHASE}, 1)
                if atomic_load(pool, {words.SLEEPERS}) > 0:
                    futex_wake(pool, {words.PHASE})
{_taking_part("int64(0)", 16)}
                atomic_add(pool, {words.PHASE}, 1)
                waits = int64(0)
                while atomic_load(pool, {words.ACTIVE}) > 0:
                    waits += 1
                    if waits > 2000:
                        yield_thread()
                    else:
                        pause()
            if times != 0:
                words(times)[number] += clock_ns() - started
            if step[{words.LONG}] != 0 and interrupted():
                stopped = int64(-1)
                break
            number += 1
        elif kind == {words.COPY}:
            table = words(step[{words.TABLE}])
            if table[0] != table[1]:
                copy_bytes(table[1], table[0], step[{words.FIRST}])
            number += 1
        elif kind == {words.UNLESS}:
            number += 1
            if byte_at(words(step[{words.TABLE}])[0]) == 0:
                number = step[{words.FIRST}]
        elif kind == {words.JUMP}:
            number = step[{words.FIRST}]
        elif kind == {words.EXCHANGE}:
            cells = words(run[{words.CELLS}])
            mine = words(step[{words.FIRST}])
            other = words(step[{words.SECOND}])
            a = cells[mine[1]]
            b = cells[other[1]]
            for k in range(mine[0]):
                cells[mine[k + 1]] = b
            for k in range(other[0]):
                cells[other[k + 1]] = a
            number += 1
        elif kind == {words.SELECT}:
            branch = int_at(words(step[{words.TABLE}])[0])
            if branch < 0 or branch >= step[{words.FIRST}]:
                branch = step[{words.FIRST}] - 1
            number += 1 + branch
        else:
            stopped = number
            break
        if run[{words.SINGLE}] != 0:
            stopped = number
            break
    if owns:
        pool = words(run[{words.POOL}])
        # the next call often follows at once: a wait that is little beside the run spares waking them
        pool[{words.SPIN}] = min(max(pool[{words.BETWEEN}], (clock_ns() - entered) // {words.SPIN_SHARE}), pool[{words.WITHIN}])
        atomic_add(pool, {words.OWNER}, -1)
    run[{words.POSITION}] = stopped
"""

OWN_SOURCE = f"""
def kernel(begin, end):
    # begin is the address of [pool state, whether the pool was free]: from then on it never is
    own = words(begin)
    own[1] = 0
    if atomic_add(words(own[0]), {words.OWNER}, 1) == 0:
        own[1] = 1
    else:
        atomic_add(words(own[0]), {words.OWNER}, -1)
"""
