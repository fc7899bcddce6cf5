"""A helper process that compiles kernels: what `codegen.native.workers` starts."""

from __future__ import annotations

import gc
import os
import pickle
import sys

from codegen.native import library_objects
from codegen.native.jit import build_object
from codegen.native.workers import Job, Made

__all__ = ["serve"]

NEW_OBJECTS = 100_000
"""For which the collector waits, as in the caller (`tiling.planning.garbage`): most of what there is are imports."""


def serve() -> None:
    """Compile the jobs that come in on standard input until it ends; the answers go out on what was standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    sent: set[str] = set()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    while True:
        try:
            job: Job = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: Made | str
        try:
            functions, code = build_object(job)
            new = [name for name in functions if name not in sent]
            answer = Made(functions, code, {name: library_objects.payload(name) for name in new})
            sent.update(new)
        except Exception as error:  # noqa: BLE001 (the caller compiles it again, and raises)
            answer = str(error)
        pickle.dump(answer, answers)
        answers.flush()
