"""What the proofs about memory cost: CPU seconds of the proof beside CPU seconds of planning, program by program.

    python -m benchmarks.compiling.proofs                               # examples, tests/programs, transposed ones; no JAX needed
    python -m benchmarks.compiling.proofs examples transposed --rows    # some classes, a row for each program
    python -m benchmarks.compiling.proofs convolutions contractions families training --every 4    # programs lowered by JAX
    python -m benchmarks.compiling.proofs step.mlir ...                 # programs in files

Planning is `tiling.plan`, the proof all of `memory_fault`: the key, and where it is not known what `prove_memory` shows. Sources
are printed before: the compiler needs them. Times are CPU seconds of the process: what else runs does not count. Each
program starts with nothing remembered; within one program, kernels that are alike are proved once, as in `codegen.compile`.
Printed are the kernels, how many were proved anew, both times, the proof's time in parts of planning's, and what is not proved.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import codegen
import hlo
import tiling
from codegen.call import memory_safety
from codegen.call.memory_safety import memory_fault
from codegen.call.program.assembly import fusion_source

ROOT = Path(__file__).parents[2]
CLASSES = ("examples", "programs", "transposed", "convolutions", "contractions", "families", "training")
WITHOUT_JAX = CLASSES[:3]
FAMILIES = ("structured", "library", "transforms", "algorithms", "special", "numpy_api", "elementwise", "large")

Program = tuple[str, Callable[[], hlo.Module]]


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one program (or of several), its kernels, and how many of them had to be proved."""

    kernels: int = 0
    proved: int = 0
    planning_seconds: float = 0.0
    proof_seconds: float = 0.0
    faults: tuple[str, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.kernels + other.kernels, self.proved + other.proved, self.planning_seconds + other.planning_seconds,
            self.proof_seconds + other.proof_seconds, (*self.faults, *other.faults),
        )  # fmt: skip

    @property
    def share(self) -> float:
        """The proof's time in parts of planning's."""
        return self.proof_seconds / self.planning_seconds if self.planning_seconds else 0.0


def cost(module: hlo.Module) -> Cost:
    """What planning a program and proving its kernels take, with no proof remembered."""
    memory_safety._proved.clear()
    gc.collect()
    start = time.process_time()
    plan = tiling.plan(module, supports=codegen.supports)
    planning = time.process_time() - start
    excess = plan.machine.excess_precision
    kernels = [(f, fusion_source(f, excess)) for p in plan.nested() for f in p.fusions]
    for source in (s for _, sources in kernels for s in sources):
        _ = source.source  # printed for the compiler, with or without a proof
    start = time.process_time()
    faults = [(f, memory_fault(f, sources)) for f, sources in kernels]
    proof = time.process_time() - start
    bad = tuple(f"{f.name}: {fault}" for f, fault in faults if fault is not None)
    return Cost(len(kernels), len(memory_safety._proved) + len(bad), planning, proof, bad)


# ---------------------------------------------------------------- programs


def _files(paths: Sequence[Path]) -> Iterator[Program]:
    for p in paths:
        yield p.stem, lambda p=p: hlo.load(p)  # type: ignore[misc]


def _transposed() -> Iterator[Program]:
    table = importlib.import_module("tests.codegen.contract.test_transposed_convolutions").CASES
    for name, case in table.items():
        yield name, lambda c=case: hlo.parse(c.text)  # type: ignore[misc]


def _contractions(convolutions: bool) -> Iterator[Program]:
    jax = importlib.import_module("jax")
    module = importlib.import_module("benchmarks.contractions")
    for case in module.cases():
        if any(len(s) > 3 for s, _ in case.operands) != convolutions:
            continue

        def lowered(c: Any = case) -> hlo.Module:
            shapes = [jax.ShapeDtypeStruct(s, jax.numpy.dtype(t)) for s, t in c.operands]
            return hlo.parse(jax.jit(c.function, keep_unused=True).lower(*shapes).as_text())

        yield case.name, lowered


def _families() -> Iterator[Program]:
    jax = importlib.import_module("jax")
    slow = importlib.import_module("tests.jax_families.slow").SLOW
    for family in FAMILIES:
        table = importlib.import_module(f"tests.jax_families.{family}").PROGRAMS
        names = [n for n, p in table.items() if not p.slow and n not in slow.get(family, ())]
        for name in names[:: max(1, len(names) // 20)]:

            def lowered(p: Any = table[name]) -> hlo.Module:
                with jax.enable_x64(p.x64):
                    return hlo.parse(jax.jit(p.function).lower(*p.args).as_text())

            yield f"{family}: {name}", lowered


def _training() -> Iterator[Program]:
    planning = importlib.import_module("benchmarks.compiling.planning")
    yield "transformer 2, AdamW", lambda: planning.transformer(2)
    yield "ResNet-26, AdamW", lambda: planning.resnet(26)
    yield "state space model 256", lambda: planning.ssm(256)
    for name in ("mlp_gradient", "resnet_block", "batch_norm_training", "embedding_gradient"):
        yield from _files([ROOT / "tests" / "programs" / f"{name}.mlir"])


def programs(kind: str) -> Iterator[Program]:
    """The programs of a class."""
    if kind == "examples":
        return _files(sorted((ROOT / "examples").glob("*.mlir")))
    if kind == "programs":
        return _files(sorted((ROOT / "tests" / "programs").glob("*.mlir")))
    if kind in ("convolutions", "contractions"):
        return _contractions(kind == "convolutions")
    return {"transposed": _transposed, "families": _families, "training": _training}[kind]()


# ---------------------------------------------------------------- table


def show(name: str, c: Cost) -> None:
    """Prints one row."""
    print(
        f"{name:40} {c.kernels:5d} kernels {c.proved:5d} proved {c.planning_seconds:8.2f} s planning"
        f" {c.proof_seconds:7.3f} s proof {c.share:7.1%} {len(c.faults) or 'none'} not proved",
        flush=True,
    )
    for f in c.faults:
        print(f"    {f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="*", default=[], help=f"files, or classes: {', '.join(CLASSES)}")
    parser.add_argument("--every", type=int, default=1, help="every n-th program of a class (default: 1)")
    parser.add_argument("--rows", action="store_true", help="a row for each program, not for each class alone")
    given = parser.parse_args()
    os.environ["TILEWRIGHT_NO_CACHE"] = "1"
    cost(hlo.load(ROOT / "examples" / "softmax.mlir"))  # modules are loaded and tables made
    for what in given.what or WITHOUT_JAX:
        total, worst, name_of_worst = Cost(), Cost(), ""
        is_class = what in CLASSES
        for name, module in list(programs(what) if is_class else _files([Path(what)]))[:: given.every]:
            try:
                found = cost(module())
            except hlo.errors.TilewrightError as e:
                print(f"{name:40} {e}")
                continue
            total += found
            if found.share > worst.share:
                worst, name_of_worst = found, name
            if given.rows or not is_class:
                show(name, found)
        if is_class:
            show(what, total)
            print(f"    the largest share: {name_of_worst}, {worst.share:.1%} of {worst.planning_seconds:.2f} s")


if __name__ == "__main__":
    main()
