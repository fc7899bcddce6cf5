"""A helper process that compiles kernels: what `codegen.native.workers` starts."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import sys
import threading

from codegen.native import library_objects, lower
from codegen.native.jit import build_object
from codegen.native.workers import IDLE_SECONDS, Errand, Job, Made, Ping

__all__ = ["serve"]

NEW_OBJECTS = 100_000
"""For which the collector waits, as in the caller (`tiling.planning.garbage`): most of what there is are imports."""


def serve() -> None:
    """Compile the jobs that come in on standard input until it ends; the answers go out on what was standard output.

    What compiles is loaded before the first job is there. Where none comes for a while, the caller needs no more.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    sent: set[str] = set()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    idle = _idle()
    lower.prepare()
    gc.enable()
    while True:
        try:
            job: Job | Errand | Ping = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        idle.cancel()
        answer: Made | Ping | str | None
        try:
            answer = job if isinstance(job, Ping) else _answer(job, sent)
        except Exception as error:  # noqa: BLE001 (the caller compiles it again, and raises)
            answer = str(error)
        pickle.dump(answer, answers)
        answers.flush()
        idle = _idle()


def _idle() -> threading.Timer:
    """Ends this process unless it is cancelled."""
    timer = threading.Timer(IDLE_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
    return timer


def _answer(job: Job | Errand, sent: set[str]) -> Made | None:
    """What a job gives; None for an errand that was done. Library functions that were sent before are not sent again."""
    if isinstance(job, Errand):
        _complete("codegen")
        getattr(importlib.import_module(job.module), job.function)(job.argument)
        return None
    functions, code = build_object(job)
    new = [name for name in functions if name not in sent]
    sent.update(new)
    return Made(functions, code, {name: library_objects.payload(name) for name in new})


def _complete(name: str) -> None:
    """Runs the file of a package that a helper began without (`codegen.native.helper`)."""
    package = sys.modules[name]
    if not hasattr(package, "__all__"):
        assert package.__spec__ is not None and package.__spec__.loader is not None
        package.__spec__.loader.exec_module(package)
