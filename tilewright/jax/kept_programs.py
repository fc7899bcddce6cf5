"""Whole programs in the disk cache, by the digest of their text: a second process neither parses nor plans what it has.

    keep(module, threads, executable)  puts down that a program was compiled, and its call where that is data
    find(text, threads)                what was put down, or None

A call that is data is one of `codegen.call.recorded`.

The key holds the text and all that plans and kernels depend on: settings, machine, target, versions, this project's own source.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen import Executable, calibrated_machine
from codegen.call.recorded import recorded, restored
from codegen.native import object_cache
from codegen.native.jit import stamp
from codegen.native.source_digest import source_digest
from codegen.remembered.plans import changes, planner_digest
from codegen.target import default_target
from hlo.errors import Declined
from hlo.module import Module, Op, walk
from hlo.registry import is_added
from hlo.settings import debug_modes
from hlo.types import TensorType
from tilewright.jax.tokens import is_token
from tiling.passing import skipped

__all__ = ["Kept", "added_op", "donated", "find", "keep", "own_digest"]


@dataclass(frozen=True)
class Kept:
    """What is kept of a program: which arguments it is given to overwrite, their types, and its call."""

    donated: tuple[bool, ...]
    dtypes: tuple[np.dtype[Any], ...]
    record: bytes

    def executable(self, make: Callable[[], Executable], threads: int | None) -> Executable | Declined:
        """The program, ready to run; `make` compiles it, where more is asked of it than to run."""
        if not self.record:
            return Declined("its call is not all data")
        return restored(self.record, make, threads)


def donated(module: Module) -> tuple[bool, ...]:
    """Of each argument that is an array, whether the caller gives it away."""
    main = module.function()
    attributes: tuple[Mapping[str, Any], ...] = tuple(main.argument_attributes) or tuple({} for _ in main.arguments)
    return tuple(
        "tf.aliasing_output" in a or "jax.buffer_donor" in a
        for k, a in enumerate(attributes)
        if not is_token(main, k)
    )


def keep(module: Module, threads: int | None, executable: Executable) -> None:
    """Puts a program down, unless it is there already, has no text, or has ops of other packages: those are not in the key."""
    arguments = module.function().arguments
    types = [v.type.dtype for v in arguments if isinstance(v.type, TensorType)]
    if module.source is None or len(types) != len(arguments) or not _is_usual():
        return
    key = _key(module.source.text, threads)
    dtypes = [str(t) for t in types]
    if object_cache.has(key) or [*map(np.dtype, dtypes)] != types or added_op(module) is not None:
        return
    record = recorded(executable)
    head = {"donated": donated(module), "dtypes": dtypes}
    object_cache.write(key, object_cache.packed(head, b"" if isinstance(record, Declined) else record))


def find(text: str, threads: int | None) -> Kept | None:
    """What is kept of a program."""
    payload = object_cache.read(_key(text, threads)) if _is_usual() else None
    if payload is None:
        return None
    head, record = object_cache.unpacked(payload)
    return Kept(tuple(head["donated"]), tuple(map(np.dtype, head["dtypes"])), record)


def added_op(module: Module) -> Op | None:
    """The first op that another package has defined; None where there is none."""
    return next((op for f in module.functions.values() for op in walk(f.body) if is_added(op.definition)), None)


def _is_usual() -> bool:
    """False where somebody wants to see how programs are compiled."""
    return not debug_modes() and not os.environ.get("TILEWRIGHT_PRINT", "").strip()


@functools.cache
def own_digest() -> str:
    """A digest of this package: it reads what JAX prints, and says what its windows mean."""
    return source_digest(["tilewright"])


def _key(text: str, threads: int | None) -> str:
    digests = [planner_digest(), own_digest(), stamp()]
    settings = [digests, default_target().key, repr(calibrated_machine()), sorted(skipped()), changes().hex()]
    return hashlib.sha256(f"program {json.dumps([threads, settings])} {text}".encode()).hexdigest()
