#!/usr/bin/env python3
"""Two revisions of this project on the same programs, in turns: is anything slower than before?

    python benchmarks/revisions.py 641c94c                        every case of forms, streams, contractions, performance, fusions
    python benchmarks/revisions.py main~20 --suites streams --only 'reductions,x + x.T'
    python benchmarks/revisions.py 641c94c --prepare               compile into the folder of --kept, time nothing
    python benchmarks/revisions.py ../older-checkout --json        a folder in place of a revision

Each revision has a process and a cache of kernels of its own. JAX lowers each case once, both processes compile the same text and
run it on the same arguments, and their results are compared before anything is timed; then the processes take turns. Printed are
medians in ms and before over after (above 1, this revision is faster), the geometric means by group, and what is below 0.9.
`--prepare` and `--kept` part compiling, which a busy machine may do, from timing, which needs an idle one.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
if __name__ == "__main__" and "--serve" not in sys.argv:
    sys.path.insert(0, str(ROOT))

SUITES = ("forms", "streams", "contractions", "performance", "fusions")


# ---------------------------------------------------------------- the process of one revision


def serve() -> int:
    """Answers lines of JSON: `load` compiles a program, runs it and writes its results; `time` gives the seconds of calls.

    It is started with -P: all that it imports is of its own revision.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the project prints is no answer
    import ml_dtypes  # noqa: F401  (its names become NumPy types)
    import numpy as np

    import codegen
    import hlo

    executable: Any = None
    arrays: list[Any] = []
    kept: list[Any] = []
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if "load" in asked:
                folder = pathlib.Path(asked["load"])
                arrays = [_placed(folder / f"argument{k}", *kind) for k, kind in enumerate(asked["arguments"])]
                executable, kept = None, []
                executable = codegen.compile(hlo.parse((folder / "program.mlir").read_text()))
                results = [np.asarray(r) for r in executable(*arrays)]
                for k, r in enumerate(results):
                    np.ascontiguousarray(r).tofile(folder / f"{asked['name']}{k}")
                answer = {"results": [[list(r.shape), r.dtype.name] for r in results], "file": codegen.__file__}
            else:
                clock = time.process_time if asked["processor"] else time.perf_counter
                seconds: list[float] = []
                kept[:] = executable(*arrays)
                while len(seconds) < 3 or (sum(seconds) < asked["time"] and len(seconds) < 2000):
                    kept.clear()  # as a loop of steps does: the next result may take the place of the last one
                    start = clock()
                    kept[:] = executable(*arrays)
                    seconds.append(clock() - start)
                answer = {"seconds": statistics.median(seconds)}
        except Exception as error:  # noqa: BLE001  # a case of the other revision may be one that this one cannot run
            answer = {"problem": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)
    return 0


def _placed(file: pathlib.Path, shape: Sequence[int], dtype: str) -> Any:
    """An array from a file, a line of the cache after the beginning of a page: where it lies is no difference of revisions."""
    import numpy as np

    size = file.stat().st_size
    memory = np.empty(size + 8192, np.uint8)
    begin = (64 - memory.ctypes.data) % 4096
    memory[begin : begin + size] = np.fromfile(file, np.uint8)
    return memory[begin : begin + size].view(np.dtype(dtype)).reshape(shape)


class Revision:
    """A process that runs programs with the packages of one folder."""

    def __init__(self, name: str, folder: pathlib.Path, cache: pathlib.Path, threads: int, more: Sequence[str] = ()) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TILEWRIGHT_")}
        environment = {
            **inherited, "PYTHONPATH": str(folder), "TILEWRIGHT_CACHE": str(cache), "XDG_CACHE_HOME": str(cache),
            "TILEWRIGHT_NUM_THREADS": str(threads), **dict(x.split("=", 1) for x in more),
        }  # fmt: skip
        self.name = name
        command = [sys.executable, "-P", str(pathlib.Path(__file__).resolve()), "--serve"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True, cwd=cache)

    def ask(self, **what: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.name} ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# ---------------------------------------------------------------- the cases


@dataclass(frozen=True)
class Program:
    """A case of any of the suites: a JAX function and the arguments that it is called with."""

    group: str
    name: str
    function: Any
    arguments: list[Any]
    wide: bool


def programs(suites: Sequence[str], only: str | None) -> Iterator[Program]:
    """The cases of the suites, one at a time; arguments are made when a case is reached."""
    import numpy as np

    patterns = only.split(",") if only else ["*"]

    def wanted(*names: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)

    if "performance" in suites:
        from benchmarks.cases.workloads import WORKLOADS

        for w in WORKLOADS:
            if wanted("performance", w.name):
                yield Program("performance", w.name, w.function, list(w.arguments(np.random.default_rng(0))), False)
    if "contractions" in suites:
        from benchmarks import contractions

        for c in contractions.cases():
            if wanted("contractions", c.name):
                rng = np.random.default_rng(0)
                yield Program("contractions", c.name, c.function, [_operand(rng, *o) for o in c.operands], True)
    if "fusions" in suites:
        from benchmarks.cases.fused import jax_cases

        for name, function, make in jax_cases():
            if wanted("fusions", name):
                yield Program("fusions", name, function, list(make()), False)
    for suite in ("streams", "forms"):
        if suite in suites:
            from benchmarks.cases import forms, streams

            for case in {"streams": streams, "forms": forms}[suite].cases():
                if wanted(suite, case.group, case.name):
                    arrays = [g.make(7 + k) for k, g in enumerate(case.arguments)]
                    wide = any("64" in a.dtype.name for a in arrays)
                    yield Program(f"{suite}: {case.group}", case.name, case.function, arrays, wide)


def _operand(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    import ml_dtypes  # noqa: F401  (its names become NumPy types)
    import numpy as np

    kind = np.dtype(dtype)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(max(info.min, -1000), min(info.max, 1000) + 1, shape).astype(kind)
    if kind.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    return rng.standard_normal(shape).astype(kind)


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Row:
    """One case: medians of both, or why there are none."""

    group: str
    name: str
    problem: str | None = None
    before_ms: float = 0.0
    after_ms: float = 0.0

    @property
    def ratio(self) -> float:
        return self.before_ms / self.after_ms


def measure(
    program: Program, before: Revision, after: Revision, folder: pathlib.Path, turns: int, seconds: float, processor: bool = False
) -> Row:
    """Lowers a case, lets both load it, compares their results and times them in turns (`turns` of 0: not at all)."""
    import jax
    import numpy as np

    from benchmarks.forms import LIMITS, difference

    row = Row(program.group, program.name)
    with jax.enable_x64(program.wide):
        text = jax.jit(program.function, keep_unused=True).lower(*program.arguments).as_text()
    (folder / "program.mlir").write_text(text)
    for k, a in enumerate(program.arguments):
        np.ascontiguousarray(a).tofile(folder / f"argument{k}")
    kinds = [[list(a.shape), a.dtype.name] for a in program.arguments]
    both = (before, after)
    for r in both:
        r.ask(load=str(folder), arguments=kinds, name=r.name)
    loaded = {r.name: r.answer() for r in both}
    for name, found in loaded.items():
        if "problem" in found:
            return replace(row, problem=f"{name}: {found['problem']}")
    narrowest = max([LIMITS.get(a.dtype.name, 0.0) for a in program.arguments], default=0.0)
    for k, (shape, dtype) in enumerate(loaded["after"]["results"]):
        x, y = (np.fromfile(folder / f"{r.name}{k}", np.dtype(dtype)).reshape(shape) for r in (after, before))
        if y.dtype.kind == "c":
            x, y = x.view(x.real.dtype), y.view(y.real.dtype)
        apart = difference(x, y)
        limit = max(narrowest, LIMITS.get(dtype, 0.0)) if y.dtype.kind not in "biu" else 1e-3
        if not apart <= limit:
            return replace(row, problem=f"result {k} differs by {apart:.1e}")
    if not turns:
        return row
    spent: dict[str, list[float]] = {"before": [], "after": []}
    for turn in range(turns):
        for r in both if turn % 2 else both[::-1]:
            r.ask(time=seconds, processor=processor)
            spent[r.name].append(r.answer()["seconds"])
    return replace(row, before_ms=statistics.median(spent["before"]) * 1e3, after_ms=statistics.median(spent["after"]) * 1e3)


@contextlib.contextmanager
def tree_of(revision: str) -> Iterator[pathlib.Path]:
    """The folder of a revision: the folder itself, or a work tree of Git that goes at the end."""
    if pathlib.Path(revision).is_dir():
        yield pathlib.Path(revision).resolve()
        return
    place = tempfile.mkdtemp(prefix="revision-")

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(ROOT), "worktree", *words], check=True, capture_output=True)

    git("add", "--detach", "--force", place, revision)
    try:
        yield pathlib.Path(place)
    finally:
        git("remove", "--force", place)


def show(rows: Sequence[Row], bound: float) -> None:
    """Geometric means by group, what had a problem, and what is below the bound."""
    from benchmarks.tables import geometric_mean

    timed = [r for r in rows if r.after_ms]
    print(f"\n{'geometric means of before/after':44} cases")
    for group in [*dict.fromkeys(r.group for r in timed), "all"]:
        ratios = [r.ratio for r in timed if group in (r.group, "all")]
        if ratios:
            print(f"  {group:42} {len(ratios):4}  {geometric_mean(ratios):.3f}  least {min(ratios):.2f}")
    for r in rows:
        if r.problem:
            print(f"  not timed: {r.group}: {r.name}: {r.problem}")
    slower = sorted((r for r in timed if r.ratio < bound), key=lambda r: r.ratio)
    print(f"\nbelow {bound}: {len(slower)} of {len(timed)}")
    for r in slower:
        print(f"  {r.ratio:5.2f}  {r.group}: {r.name}  {r.before_ms:.4f} -> {r.after_ms:.4f} ms")


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("revision", help="what Git calls the one before, or a folder that holds it")
    p.add_argument("--suites", default=",".join(SUITES), help=f"some of {', '.join(SUITES)}, separated by commas")
    p.add_argument("--only", metavar="PATTERNS", help="suites, groups or cases, separated by commas; * and ? match")
    p.add_argument("--turns", type=int, default=7, metavar="N", help="turns of each (default: 7)")
    p.add_argument("--seconds", type=float, default=0.03, metavar="S", help="each turn lasts this long (default: 0.03)")
    p.add_argument("--threads", type=int, default=2, metavar="N", help="threads of both (default: 2)")
    p.add_argument("--processor-time", action="store_true", help="of the whole process, not the wall's: one thread, busy machine")
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable of the environment, for both")
    p.add_argument("--below", type=float, default=0.9, metavar="X", help="list what is below this (default: 0.9)")
    p.add_argument("--kept", type=pathlib.Path, metavar="FOLDER", help="keep both caches of kernels there")
    p.add_argument("--prepare", action="store_true", help="compile and compare, time nothing")
    p.add_argument("--json", action="store_true", help="print JSON")
    args = p.parse_args(argv)
    unknown = set(args.suites.split(",")) - set(SUITES)
    if any("=" not in x for x in args.set) or (args.processor_time and args.threads != 1):
        p.error("--set takes NAME=VALUE, and --processor-time goes with --threads 1")
    if unknown or args.turns < 1 or args.threads < 1:
        p.error(f"unknown suites: {', '.join(sorted(unknown))}" if unknown else "--turns and --threads must be at least 1")
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kept = (args.kept or folder / "kept").resolve()
        trees = {"before": stack.enter_context(tree_of(args.revision)), "after": ROOT}

        def start(name: str) -> Revision:
            (kept / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            found = Revision(name, trees[name], kept / name, args.threads, args.set)
            stack.callback(found.close)
            return found

        before, after = start("before"), start("after")
        for k, program in enumerate(programs(args.suites.split(","), args.only)):
            place = folder / str(k)
            place.mkdir()
            row = measure(program, before, after, place, 0 if args.prepare else args.turns, args.seconds, args.processor_time)
            shutil.rmtree(place)
            rows.append(row)
            times = f"{row.before_ms:10.4f} {row.after_ms:10.4f} {row.ratio:6.2f}" if row.after_ms else row.problem or "agree"
            print(f"{row.group:34} {row.name:34} {times}", file=sys.stderr if args.json else sys.stdout, flush=True)
    if not rows:
        p.error(f"no case matches {args.only}")
    if args.json:
        print(json.dumps({"schema": "tilewright.revisions/1", "rows": [asdict(r) for r in rows]}, indent=2))
    else:
        show(rows, args.below)
    return 1 if any(r.problem for r in rows) else 0


if __name__ == "__main__":
    sys.exit(serve() if "--serve" in sys.argv[1:2] else main())
