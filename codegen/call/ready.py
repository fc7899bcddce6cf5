"""What every program needs beside its own kernels, there before the first one is called.

Importing this file imports all that compiles but numba and LLVM's front end; `get_ready` loads the launcher and the functions of
small calls and of calls from XLA. Whoever decorates a function with `tilewright.jit` wants to call it: the first call then pays
for its own program alone.
"""

from __future__ import annotations

import functools

from codegen.call import direct, xla_handler
from codegen.launcher import native_threads
from codegen.remembered.machine import calibrated_machine
from codegen.remembered.plans import planner_digest
from hlo.errors import SettingError
from tiling.planning.garbage import few_collections

__all__ = ["get_ready"]


def get_ready() -> None:
    """Loads, or compiles into an empty cache, what is the same for all programs. Only the first call of a process costs anything.

    Settings that are wrong are not complained about here: the call that they count in does.
    """
    try:
        _get_ready()
    except SettingError:
        return


@functools.cache
def _get_ready() -> None:
    calibrated_machine()
    planner_digest()
    with few_collections():
        native_threads.prepare(with_workers=False)  # these are for programs that have work for several threads
        direct.prepare()
        xla_handler.prepare()
