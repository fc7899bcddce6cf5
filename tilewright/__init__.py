"""Tilewright: symbolic index analysis, tiling and fusion of tensor programs, with a checked CPU code generator.

The names below come from the packages that define them (`hlo`, `indexing`, `tiling`, `codegen`, `interp`) and are imported when
they are first used, so that `import tilewright` costs next to nothing.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import logging  # noqa: F401 (its handler of forks is registered before the one below)
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _check_packages() -> None:
    """Raises ImportError where a package of another project answers to one of the names; nothing of it is executed.

    `python -m` and `python -c` look in the working folder first, and a folder there may well be called `codegen`.
    """
    for name in ("codegen", "hlo", "indexing", "interp", "tilewright_runtime", "tiling"):
        module = sys.modules.get(name)
        if module is None:
            spec = importlib.util.find_spec(name)
            origin = spec.origin if spec is not None else None
            folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        else:
            origin, folders = getattr(module, "__file__", None), list(getattr(module, "__path__", ()))
        ours = os.path.join(_ROOT, name)
        found = folders[0] if folders else origin
        if found is None or not _is_same(found, ours):
            raise ImportError(
                f"`{name}` was imported from {found or 'nowhere'}, which is not Tilewright's (that is {ours}): "
                f"rename that one, start Python in another folder, or with -P",
                name=name,
                path=found,
            )


def _is_same(found: str, ours: str) -> bool:
    return os.path.abspath(found) == ours or (os.path.exists(ours) and os.path.exists(found) and os.path.samefile(found, ours))


_check_packages()

from tilewright.jax import inherited  # noqa: E402, F401 (asks at each fork, whether or not the JAX front end is there yet)

if TYPE_CHECKING:
    from codegen import Executable, compile
    from codegen.launcher.memory import pool as memory_pool
    from codegen.mpi.mesh import Mesh
    from hlo import Declined, Module, ParseError, TilewrightError, VerificationError, parse, verify
    from indexing import IndexingMap, compose, input_to_output, output_to_input, parse_map
    from interp import evaluate, refined
    from tilewright.explorer.front import explore
    from tilewright.jax.bridge import from_jax
    from tilewright.jax.jit import jit
    from tilewright.loading import load
    from tilewright.stepping import passes, stages
    from tilewright.torch.export import from_torch
    from tiling import Plan, plan

_HOME = {
    "Declined": "hlo",
    "Executable": "codegen",
    "IndexingMap": "indexing",
    "Mesh": "codegen.mpi.mesh",
    "Module": "hlo",
    "ParseError": "hlo",
    "Plan": "tiling",
    "TilewrightError": "hlo",
    "VerificationError": "hlo",
    "compile": "codegen",
    "compose": "indexing",
    "evaluate": "interp",
    "explore": "tilewright.explorer.front",
    "from_jax": "tilewright.jax.bridge",
    "from_torch": "tilewright.torch.export",
    "input_to_output": "indexing",
    "jit": "tilewright.jax.jit",
    "load": "tilewright.loading",
    "memory_pool": "codegen.launcher.memory:pool",
    "output_to_input": "indexing",
    "parse": "hlo",
    "parse_map": "indexing",
    "passes": "tilewright.stepping",
    "plan": "tiling",
    "refined": "interp",
    "stages": "tilewright.stepping",
    "verify": "hlo",
}

__all__ = [
    "Declined",
    "Executable",
    "IndexingMap",
    "Mesh",
    "Module",
    "ParseError",
    "Plan",
    "TilewrightError",
    "VerificationError",
    "__version__",
    "compile",
    "compose",
    "evaluate",
    "explore",
    "from_jax",
    "from_torch",
    "input_to_output",
    "jit",
    "load",
    "memory_pool",
    "output_to_input",
    "parse",
    "parse_map",
    "passes",
    "plan",
    "refined",
    "stages",
    "verify",
]


_importing = threading.RLock()


def _before_fork() -> None:
    _importing.acquire()
    forks = sys.modules.get("codegen.forks")
    if forks is not None:  # imported only while this waited: its own hook was not yet asked
        forks.before_fork()


if hasattr(os, "register_at_fork"):
    # A child of a fork would wait for ever for a module that another thread was importing: a fork waits until it is there, and
    # does so before `logging` takes its lock, which the import may want: what is registered last is asked first.
    os.register_at_fork(before=_before_fork, after_in_parent=_importing.release, after_in_child=_importing.release)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without the collector, which would find nothing: what is imported stays, and beside JAX each walk is a long one."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def __getattr__(name: str) -> Any:
    """Imports a public name from its home when it is first asked for (PEP 562). Raises AttributeError for any other."""
    if name not in _HOME:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    home, _, inner = _HOME[name].partition(":")
    with _importing, _uncollected():
        value = getattr(importlib.import_module(home), inner or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
