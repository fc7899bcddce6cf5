"""Programs of libraries by `jax.jit` on JAX's CPU and on the platform `tilewright`: results, first calls, and warm ones in turns.

    python -m benchmarks.jax_programs [NAME...]              those of `benchmarks/cases/libraries.py`
    python -m benchmarks.jax_programs --file FILE [NAME...]  yours

FILE is any Python file with a dictionary PROGRAMS: a name to a function without arguments, which returns `(function, arguments)`,
with options of `jax.jit` after them, and after those the error that is allowed. It names no platform: each backend runs it in a
process of its own, with an empty disk cache, told apart by JAX_PLATFORMS alone. Results are compared leaf by leaf: integers must
be equal, the error of others is measured against the leaf's largest element. The seconds of a first call are by the clock and, in
parentheses, of all processors, helper processes included. The programs of the first line need flax, optax, equinox and diffrax
beside the `jax` extra.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

PLATFORMS = ("cpu", "tilewright")
OWN = pathlib.Path(__file__).parent / "cases" / "libraries.py"
TURNS, SECONDS_OF_A_TURN = 7, 0.3
ALLOWED = {"float64": 1e-8, "complex128": 1e-8, "float32": 3e-4, "complex64": 3e-4, "bfloat16": 3e-2, "float16": 5e-3}


def load(path: str) -> dict[str, Any]:
    """The programs of a file."""
    import runpy

    sys.path.append(str(pathlib.Path(path).resolve().parent))
    programs: dict[str, Any] = runpy.run_path(path)["PROGRAMS"]
    return programs


def _whole(made: Any) -> Any:
    """(function, arguments, options, allowed error)"""
    return *made, *({}, None)[len(made) - 2 :]


def _processor_seconds(pid: int) -> float:
    """Of a process and all that it started, those that ended included."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(map(int, stat[11:15]))
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(_processor_seconds, children))


def serve(path: str, name: str, kept: str) -> None:
    """Runs a program once and writes its results to a file, then some times more for each line that comes."""
    jax: Any = importlib.import_module("jax")
    function, arguments, options, allowed = _whole(load(path)[name]())
    f = jax.jit(function, **options)
    is_donating = bool({"donate_argnums", "donate_argnames"} & set(options))

    def call() -> tuple[float, float, Any]:
        given = jax.tree.map(lambda x: x.copy() if isinstance(x, jax.Array) else x, arguments) if is_donating else arguments
        clock, processor = time.perf_counter(), time.process_time()
        results = jax.block_until_ready(f(*given))
        return time.perf_counter() - clock, time.process_time() - processor, results

    before = _processor_seconds(os.getpid())
    first, _, results = call()
    in_all = _processor_seconds(os.getpid()) - before
    leaves = [
        np.asarray(x if isinstance(getattr(x, "dtype", None), np.dtype) else jax.random.key_data(x))
        for x in jax.tree.leaves(results)
    ]
    pathlib.Path(kept).write_bytes(pickle.dumps(leaves))
    print("ANSWER " + json.dumps([first, in_all, allowed]), flush=True)
    for _ in sys.stdin:
        times: list[tuple[float, float]] = []
        while sum(clock for clock, _ in times) < SECONDS_OF_A_TURN and len(times) < 50:
            times.append(call()[:2])
        print("ANSWER " + json.dumps([statistics.median(column) for column in zip(*times, strict=True)]), flush=True)


class Process:
    """A program on one platform; `first` are the seconds to its first result, or what went wrong."""

    def __init__(self, platform: str, path: str, name: str, folder: str) -> None:
        self.kept = pathlib.Path(folder) / f"{platform}.pickle"
        self.errors = open(pathlib.Path(folder) / f"{platform}.stderr", "w+")  # noqa: SIM115 (open while the process writes to it)
        environment = {**os.environ, "JAX_PLATFORMS": platform, "XDG_CACHE_HOME": f"{folder}/{platform}"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        program = f"import sys; from benchmarks.jax_programs import serve; serve({path!r}, {name!r}, {str(self.kept)!r})"
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.process = subprocess.Popen([sys.executable, "-P", "-c", program], env=environment, text=True, **pipes)
        self.first = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        self.errors.seek(0)
        return (self.errors.read().strip().splitlines() or [f"ended with {self.process.wait()}"])[-1]

    def ask(self) -> Any:
        assert self.process.stdin is not None
        print("again", file=self.process.stdin, flush=True)
        return self._answer()

    def leaves(self) -> list[np.ndarray]:
        import ml_dtypes  # noqa: F401 (pickles of bfloat16 need the type)

        found: list[np.ndarray] = pickle.loads(self.kept.read_bytes())
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


def difference(expected: list[np.ndarray], found: list[np.ndarray], of_program: float | None) -> tuple[float, str]:
    """(the greatest error of a leaf against its largest element, what is beyond what the program or its element type allows)."""
    shapes = [[(x.shape, x.dtype) for x in leaves] for leaves in (expected, found)]
    if shapes[0] != shapes[1]:
        return float("inf"), "other shapes or element types"
    greatest, wrong = 0.0, ""
    for number, (x, y) in enumerate(zip(expected, found, strict=True)):
        if x.dtype.kind in "biu" or "int" in x.dtype.name:
            error, allowed = float(np.mean(x != y)) if x.size else 0.0, 0.0
        else:
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            u, v = x.astype(wide), y.astype(wide)
            is_finite = np.isfinite(u)
            same_special = np.array_equal(u[~is_finite], v[~is_finite], equal_nan=True)
            largest = max(float(np.abs(u[is_finite]).max(initial=0)), 1e-30)
            error = float(np.abs(u - v)[is_finite].max(initial=0)) / largest if same_special else float("inf")
            allowed = of_program or ALLOWED.get(x.dtype.name, 0.13)
        greatest = max(greatest, error)
        if not error <= allowed and not wrong:
            wrong = f"leaf {number} ({x.dtype}{list(x.shape)}): {error:.1e}"
    return greatest, wrong


def row(path: str, name: str) -> tuple[str, bool]:
    with tempfile.TemporaryDirectory() as folder:
        ways = []
        try:
            for platform in PLATFORMS:
                ways.append(Process(platform, path, name, folder))
                if isinstance(ways[-1].first, str):
                    return f"| `{name}` | {platform} fails: {ways[-1].first} | | | | | |", False
            greatest, wrong = difference(ways[0].leaves(), ways[1].leaves(), ways[0].first[2])
            turns = [[way.ask() for way in ways] for _ in range(TURNS)]
        finally:
            for way in ways:
                way.end()
    firsts = " | ".join(f"{way.first[0]:.1f} ({way.first[1]:.1f})" for way in ways)
    (cpu, cpu_all), (here, here_all) = ([1e3 * min(t[w][of] for t in turns) for of in (0, 1)] for w in (0, 1))
    ratio = statistics.median(t[1][0] / t[0][0] for t in turns)
    said = wrong or (f"agree, {greatest:.0e}" if greatest else "equal")
    times = f"{cpu:.3g} ({cpu_all:.3g}) | {here:.3g} ({here_all:.3g}) | {ratio:.2f}"
    return f"| `{name}` | {firsts} | {times} | {said} |", not wrong


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", default=str(OWN))
    parser.add_argument("programs", nargs="*", metavar="NAME", default=[])
    given = parser.parse_args(argv)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    names = given.programs or list(load(given.file))
    print("Warm calls: by the clock (processor time of all threads), the least of seven turns; the ratio is the turns' median.\n")
    print("| program | first call, s: CPU | here | warm call, ms: CPU | here | here / CPU | results |")
    print("|---|---|---|---|---|---|---|")
    is_fine = True
    for name in names:
        line, agrees = row(given.file, name)
        is_fine = is_fine and agrees
        print(line, flush=True)
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
