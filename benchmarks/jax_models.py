"""The three real models of `examples/models` by `jax.jit` on JAX's CPU and on the platform `tilewright`, in turns of one run.

    python -m benchmarks.jax_models [NAME...]

Each platform runs in a process of its own (JAX chooses its platforms once for a process). Results are compared by the greatest
difference; times are processor time of all threads, as JAX's and this compiler's threads wait for each other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

MODELS = ("magika_file_types", "silero_vad", "minilm")
PLATFORMS = {"cpu": "JAX's CPU", "tilewright": "platform tilewright"}
TURNS, ALLOWED = 7, 1e-4


class _Taken(Exception):
    """Carries what a model would run, in place of a report."""


def _model(name: str) -> tuple[Callable[..., Any], Any]:
    """(function, arguments) of an example: what it hands to `common.run`."""
    import importlib

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


def _call(jax: Any, name: str) -> Callable[[], Any]:
    function, args = _model(name)
    f, arrays = jax.jit(function), jax.tree.map(jax.numpy.asarray, tuple(args))
    return lambda: jax.block_until_ready(f(*arrays))


def _serve() -> None:
    """Answers names with (seconds to the first result, the result), then each further line with processor seconds of a call."""
    import jax

    calls: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in calls:
            calls[name] = _call(jax, name)
            began = time.perf_counter()
            result = calls[name]()
            answer: Any = [time.perf_counter() - began, np.asarray(result).astype(float).tolist()]
        else:
            calls[name]()
            began, clock = time.process_time(), time.perf_counter()
            for _ in range(3):
                calls[name]()
            answer = [(time.process_time() - began) / 3, (time.perf_counter() - clock) / 3]
        print("ANSWER " + json.dumps(answer), flush=True)


class _Process:
    def __init__(self, platform: str) -> None:
        environment = {**os.environ, "JAX_PLATFORMS": platform, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        program = "import tilewright.pjrt as p; p.initialize(); from benchmarks.jax_models import _serve; _serve()"
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([sys.executable, "-P", "-c", program], env=environment, text=True, **pipes)

    def ask(self, name: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(name, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        raise RuntimeError(f"the process ended ({self.process.wait()}) at {name}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="NAME", default=[], help=", ".join(MODELS))
    names = parser.parse_args(argv).models or MODELS
    ways = {platform: _Process(platform) for platform in PLATFORMS}
    print("| model | first call, s: CPU | here | warm call, ms of processor time: CPU | here | here / CPU | results differ by |")
    print("|---|---|---|---|---|---|---|")
    is_fine = True
    for name in names:
        firsts = {platform: way.ask(name) for platform, way in ways.items()}
        costs: dict[str, list[float]] = {platform: [] for platform in ways}
        for _ in range(TURNS):
            for platform, way in ways.items():
                costs[platform].append(way.ask(name)[0])
        cpu, here = (min(costs[platform]) for platform in PLATFORMS)
        results = [np.array(firsts[platform][1]) for platform in PLATFORMS]
        difference = float(np.abs(results[0] - results[1]).max())
        is_fine = is_fine and difference <= ALLOWED
        first = " | ".join(f"{firsts[platform][0]:.1f}" for platform in PLATFORMS)
        print(f"| `{name}` | {first} | {1e3 * cpu:.2f} | {1e3 * here:.2f} | {here / cpu:.2f} | {difference:.1e} |", flush=True)
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
