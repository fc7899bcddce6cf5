"""The three real models of `examples/models` by `jax.jit` on JAX's CPU and on the platform `tilewright`, in turns of one run.

    python -m benchmarks.jax_models [NAME...]

They are programs for `benchmarks.jax_programs`, which says what is compared and what the columns are.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import jax_programs

MODELS = ("magika_file_types", "silero_vad", "minilm")
ALLOWED = 1e-4


class _Taken(Exception):
    """Carries what a model would run, in place of a report."""


def _model(name: str) -> tuple[Callable[..., Any], Any]:
    """(function, arguments) of an example: what it hands to `common.run`."""
    module = importlib.import_module(f"examples.models.{name}")

    def take(title: str, function: Any, args: Any, *_: Any, **__: Any) -> Any:
        raise _Taken(function, args)

    vars(module)["run"] = take
    own: Any = module
    given: tuple[Any, ...] = ()
    if name == "magika_file_types":
        given = (own.some_files(),)
    elif name == "silero_vad":
        given = (own.recording(8.0),)
    try:
        own.report(*given)
    except _Taken as taken:
        function, args = taken.args
        return function, args
    raise AssertionError(f"{name} ran nothing")


def _program(name: str) -> tuple[Callable[..., Any], Any, dict[str, Any], float]:
    jax: Any = importlib.import_module("jax")
    function, args = _model(name)
    return function, jax.tree.map(jax.numpy.asarray, tuple(args)), {}, ALLOWED


PROGRAMS = {name: partial(_program, name) for name in MODELS}

if __name__ == "__main__":
    sys.exit(jax_programs.main(["--file", __file__, *sys.argv[1:]]))
