"""What native functions and Python share: records in C memory, as numbers of their words.

    memory    elements, counted: by buffers, by tasks that read or write them, by NumPy's views
    buffer    what jaxlib holds: a memory (0: deleted), the event that its elements are there (0: they are), its type
    event     something that ends, counted; whoever is to hear of it is in its list
    task      a call that is on its way
    program   what a call needs to know, kept by `executables.Program`

    device    its memory (the default one) and its number; its memories' records follow: each its device, its number and its kind

A handle of any of these but a memory of elements is the address of its record. Counts change in one step; the rest of buffers,
events and tasks changes under one lock (`LOCK`), which nobody holds while something else is called.
"""

from __future__ import annotations

from tilewright.pjrt.layout import ARGUMENTS, ExecuteOptions

__all__ = ["word"]

LINE = 64

# ---- the state: one for a process
LOCK = 0
SIGNAL, SLEEPERS = 8, 9  # what sleeping workers look at
HEAD, TAIL, PENDING, WORKERS, STOP, SPIN, TURN = 16, 17, 18, 19, 20, 21, 22
MALLOC, FREE, PYTHON, DEVICE, ITEM_BYTES = 24, 25, 26, 27, 29  # DEVICE: the first one
BUFFERS, MEMORIES, EVENTS, TASKS = 32, 33, 34, 35  # how many there are
DROP_MEMORY, DROP_EVENT, NEW, NEW_EVENT, TAKE, RUN, FIRE, COUNT_EVENT = range(40, 48)  # addresses of functions
CANCELLED, NO_MEMORY = 48, 49  # handles of failures that are never dropped
READY = 56  # the record of the event that has ended, and well
STATE_WORDS = 64

# ---- a memory: its record lies before its elements, or stands for elements elsewhere
COUNT, DATA, ROOM, OWNER, MEMORY_WORDS = 0, 1, 2, 3, 4  # OWNER: the handle of the object whose elements they are, or 0

# ---- a device, and each of its memories: which is the other one, and its number; of a memory also the name of its kind
OTHER, NUMBER, DEVICE_WORDS = 0, 1, 2
TEXT, TEXT_SIZE, PLACE_WORDS = 2, 3, 4

# ---- a buffer
MEMORY, EVENT, KEPT, REFERENCES, ELEMENT, RANK, SIZE, PLACE, MARKED, DIMS = range(10)
"""KEPT: the memory of a deleted buffer with REFERENCES; PLACE: the device's memory that it is in; MARKED: 1 while a call looks
for what it donates among its other arguments. At DIMS the sizes, then the dimensions from the fastest."""

# ---- an event: its count comes first, as a memory's does
ENDED, LISTENERS, FAILURE = 1, 2, 3
GOING, FINE, FAILED = 0, 1, 2
EVENT_WORDS = 4
# a listener: jaxlib's function and what it gets, or 0 and a task that waits
NEXT, CALLBACK, USER, LISTENER_WORDS = 0, 1, 2, 3

# ---- what a new buffer is made from: no ADDRESS and no OWNER means memory of its own; LATER that its elements come later
(NEW_ELEMENT, NEW_RANK, NEW_DIMS, NEW_SIZE, NEW_ADDRESS, NEW_OWNER, NEW_COMING, NEW_PLACE, NEW_BUFFER) = range(9)
NEW_WORDS = 9
LATER = -1

# ---- a program
CALL, GIVEN, MADE, ROWS, DONATED, DONATIONS, CALLS, NANOSECONDS, HOSTED, TARGET, REPLICAS, PARTITIONS = range(12)
"""CALL: the record of `codegen.call.xla_call`, or 0; ROWS: what each result is made from; DONATED, how many DONATIONS;
CALLS that are on their way; NANOSECONDS of the last one; HOSTED: whether steps are Python's; its caller's thread runs it;
TARGET: its device, where a call names none; of several devices: REPLICAS of PARTITIONS."""
PROGRAM_WORDS = 12

# ---- a task: a link, what it runs, and as many words for each argument and each result
(LINK, PROGRAM, DEPENDENCIES, RESULT_EVENT, STATUS, TROUBLE) = range(6)
OWN = 8  # four words for the body of the program's call
FRAME = 16  # the words of a call frame that the body reads
REQUEST = 32
TASK_HEAD = 48
GIVEN_WORDS = 3 + LISTENER_WORDS  # memories, events that were not there, addresses, listeners: each kind in a row
MADE_WORDS = 3  # memories, addresses, buffers

# ---- of a call of a native function: the arguments' address, the answer, the state, whether it may not refuse
OWN_ARGUMENTS, OWN_ANSWER, OWN_STATE, OWN_FORCED = range(4)
DONE, ASK = 0, 1  # an answer: 0, the handle of an error, or that Python is to be asked

MOST_PENDING = 32
INLINE_NANOSECONDS = 50_000
"""A call that took so long the last time is made in the caller's thread: another one hears of it after some ten thousand."""
COPIED_BYTES = 1 << 16
"""Of jaxlib's memory: what is lent and smaller is copied."""


def word(function: str, field: str) -> int:
    """The number of the word of a function's arguments in which a field begins.

    >>> word("Event_Destroy", "event"), word("LoadedExecutable_Execute", "executable")
    (2, 2)
    """
    return offset(function, field) // 8


def offset(function: str, field: str) -> int:
    """The place of a field in a function's arguments, in bytes."""
    place: int = getattr(ARGUMENTS[function], field).offset
    return place


def option(field: str) -> int:
    """The number of the word of the options of a call in which a field begins."""
    return int(getattr(ExecuteOptions, field).offset) // 8
