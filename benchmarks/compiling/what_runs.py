"""Which functions of the index maps and of the tile algebra run while programs are compiled.

    python -m benchmarks.compiling.what_runs                    # the examples and five of tests/programs
    python -m benchmarks.compiling.what_runs step.mlir ...      # programs in files
    python -m benchmarks.compiling.what_runs --functions        # their names, too

Counted are functions that are called at least once between a module and its kernels' sources: flattening, planning, proofs of
memory, printing. Machine code is made without any of them. What is remembered of earlier programs is forgotten first.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import codegen
import hlo
import tiling
from codegen.call.memory_safety import safe_assembly
from indexing import clear_caches

__all__ = ["PROGRAMS", "Ran", "called", "functions_of", "table"]

ROOT = Path(__file__).parents[2]
FOLDERS = ("indexing", "tiling/tiles")
PROGRAMS = (
    *sorted((ROOT / "examples").glob("*.mlir")),
    *(ROOT / "tests" / "programs" / f"{name}.mlir"
      for name in ("cross_entropy", "embedding_gradient", "max_pooling", "resnet_block", "rotary")),
)  # fmt: skip

Ran = Mapping[str, frozenset[str]]
"""Module, as its path without the ending -> the qualified names of its functions."""


def compiled(module: hlo.Module) -> None:
    """All that compiling does to a module before kernels become machine code."""
    safe_assembly(tiling.plan(module, supports=codegen.supports))


def called(programs: Iterable[hlo.Module], run: Callable[[hlo.Module], object] = compiled) -> Ran:
    """The functions of `FOLDERS` that are called while `run` is called with each program."""
    seen: set[Any] = set()
    modules = list(programs)
    clear_caches()
    with _profiled(seen):
        for m in modules:
            run(m)
    found: dict[str, set[str]] = {}
    for code in seen:
        path = Path(code.co_filename)
        name = path.relative_to(ROOT).with_suffix("").as_posix() if path.is_relative_to(ROOT) else ""
        if name.startswith(tuple(f"{f}/" for f in FOLDERS)):
            found.setdefault(name, set()).add(code.co_qualname)
    known = functions_of()
    return {name: frozenset(found.get(name, set()) & all_of) for name, all_of in known.items()}


@contextmanager
def _profiled(seen: set[Any]) -> Iterator[None]:
    def see(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(before)


def functions_of() -> Ran:
    """All functions of `FOLDERS` that stand in a module or a class of it, by their qualified names."""
    found: dict[str, frozenset[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            names: set[str] = set()
            todo: list[tuple[str, ast.AST]] = [("", ast.parse(path.read_text(encoding="utf-8")))]
            while todo:
                prefix, node = todo.pop()
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.ClassDef):
                        todo.append((f"{prefix}{child.name}.", child))
                    elif isinstance(child, ast.FunctionDef):
                        names.add(prefix + child.name)
            if names:
                found[path.relative_to(ROOT).with_suffix("").as_posix()] = frozenset(names)
    return found


def table(ran: Ran, names: bool = False) -> str:
    """One line for each module: how many of its functions ran, of how many."""
    everything = functions_of()
    lines = [f"{'module':30} ran   of"]
    for module, functions in everything.items():
        lines.append(f"{module:30} {len(ran[module]):3}  {len(functions):3}")
        lines += [f"    {n}" for n in sorted(ran[module])] if names else []
    for folder in FOLDERS:
        mine = [m for m in everything if m.startswith(f"{folder}/")]
        lines.append(f"{folder}: functions of {sum(bool(ran[m]) for m in mine)} of {len(mine)} modules ran")
    return "\n".join(lines)


def main() -> None:
    about = "which functions of the index maps and of the tile algebra run while programs are compiled"
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiling.what_runs", description=about)
    parser.add_argument("files", nargs="*", type=Path, help="programs; the examples and five of tests/programs by default")
    parser.add_argument("--functions", action="store_true", help="print the functions' names")
    given = parser.parse_args()
    ran = called(hlo.load(p) for p in given.files or PROGRAMS)
    print(table(ran, given.functions))


if __name__ == "__main__":
    main()
