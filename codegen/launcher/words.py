"""The words that the launcher's native code and Python share: of the pool's state, of a step's descriptor, of a run's record."""

from __future__ import annotations

# words of the pool's shared state; each hot one has a cache line of its own
PHASE, ACTIVE, SLEEPERS, STOP, STEP, SCRATCH, STRIDE, LIMIT = 0, 16, 32, 64, 65, 66, 67, 68
SPIN, WORKERS, OWNER, TRACED, NUMBER, BETWEEN, WITHIN, CPU = 69, 70, 71, 72, 73, 74, 75, 76
# How long a worker that has nothing to do looks for the next step before it sleeps: waking a sleeper takes some 20 microseconds,
# and several times as long where an idle CPU belongs to a guest. Within a run more steps are to come; after it a share of what it
# took is waited, as who calls again and again does so after some time for arguments and results.
SPIN_NANOSECONDS = 50_000
SPIN_SHARE = 8
SPIN_WITHIN_NANOSECONDS = 1_000_000
SHARE = 2  # what is left of a thread's zone is taken in that many pieces
FIRST_LOOK, MOST_TURNS, LOOK_NANOSECONDS = 32, 1024, 5_000_000  # how often a run looks for signals: after so many steps
NEXT = 80  # of the zones: the number of tasks that are taken, each in a line of its own
LINE_WORDS = 8
MOST_ZONES = 64  # more threads share them
STATE_WORDS = NEXT + LINE_WORDS * MOST_ZONES
# words of a step's descriptor
ENTRY, TASKS, CHUNK, TABLE, KIND, FIRST, SECOND, LONG, STEP_WORDS = 0, 1, 2, 3, 4, 5, 6, 7, 8
# kinds of steps; a step's first and second word are its target, its size in bytes, its lists of cells
KERNEL, COPY, EXCHANGE, JUMP, UNLESS, SELECT, HOST = 0, 1, 2, 3, 4, 5, 6
# words of a run's record
POOL, STEPS, COUNT, BASE, ROOM, THREADS, TIMES, POSITION, CELLS, SINGLE, EVENTS, RUN_WORDS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16
# a run that is traced has [how many events, room for how many], then the words of each: step, thread, tasks, nanoseconds
EVENT_HEAD_WORDS, EVENT_WORDS = 2, 6
