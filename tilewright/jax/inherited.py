"""Whether a fork left this process with a JAX that had started elsewhere.

XLA's and MLIR's threads stay in the process that started them. In a child of a fork, whatever JAX hands to one of them is waited
for for ever, now and then only: small computations run in the thread that asks. JAX warns of that in the parent and goes on.
Tilewright's own runtime starts its threads anew in a child, so what it compiled is run there as ever.
"""

from __future__ import annotations

import os
import sys

__all__ = ["started_in"]

started_in: list[int] = []
"""The process that JAX was started in, where this one is a child of its; else nothing."""


def _after_in_child() -> None:
    bridge = sys.modules.get("jax._src.xla_bridge")
    # Not `backends_are_initialized`, which waits for a lock that a thread of the parent's may have held.
    if bridge is not None and (bridge._backends or bridge._backend_lock.locked()) and not started_in:
        started_in.append(os.getppid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
