"""`tilewright export`: a program as a file for `tilewright.load`, as a shared library for C, or as C."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import codegen
from codegen.ship.errors import ExportError
from codegen.ship.library import c_sources, shared_library
from codegen.ship.save import save
from codegen.ship.targets import default_name
from hlo.errors import Declined
from hlo.module import Module
from interp.refine import refined
from tilewright.commands import report
from tilewright.commands.programs import DeclinedError, entry_of, load
from tilewright.commands.progress import Clock

__all__ = ["COMMANDS"]


def export(args: argparse.Namespace) -> int:
    """Writes what was asked for, and says what it is."""
    if args.kind != "program" and len(args.targets) > 1:
        raise ExportError(f"--kind {args.kind}: one --target, found {', '.join(args.targets)}")
    if args.header and args.kind != "shared":
        raise ExportError(f"--header goes with --kind shared, found --kind {args.kind}")
    clock = Clock()
    with clock.step(f"reading {args.file}", "parse"):
        modules = [load(f) for f in (args.file, *args.also)]
        functions = [entry_of(m, args.entry, f) for m, f in zip(modules, (args.file, *args.also), strict=True)]
    if args.shapes:
        with clock.step("refining", "refine"):
            made_of = [(m, f.name, shapes) for m, f in zip(modules, functions, strict=True) for shapes in args.shapes]
            modules = [_refined(*row) for row in made_of]
            functions = [m.function(name) for m, (_, name, _) in zip(modules, made_of, strict=True)]
    with clock.step("compiling", "compile"):
        made = [codegen.compile(m, f.name, threads=args.threads) for m, f in zip(modules, functions, strict=True)]
    began = time.perf_counter()
    one = args.targets[0] if args.targets else default_name()
    paths: tuple[Path, ...]
    with clock.step("writing", "write"):
        if args.kind == "program":
            save(made, args.output, args.targets)
            paths = (Path(args.output),)
        elif len(made) > 1:
            raise ExportError(f"--kind {args.kind}: one program, found {len(made)}")
        elif args.kind == "shared":
            paths = shared_library(made[0], args.output, one, args.header)
        else:
            paths = c_sources(made[0], args.output, one)
    document: dict[str, Any] = {
        "schema": "tilewright.export/1", "file": args.file, "entry": functions[0].name, "kind": args.kind,
        "targets": args.targets or [one], "files": [{"path": str(p), "bytes": os.path.getsize(p)} for p in paths],
        "kernels": sum(len(m.kernels) for m in made), "seconds": {**clock.seconds, "write": time.perf_counter() - began},
    }  # fmt: skip
    if args.json:
        print(json.dumps(report.jsonable(document), indent=2, allow_nan=False))
    else:
        for row in document["files"]:
            print(report.printable(f"{row['path']}: {row['bytes']} bytes"))
    return 0


def _refined(module: Module, entry: str, shapes: Sequence[Sequence[int]]) -> Module:
    """The program of these shapes. Raises DeclinedError where there is none, InputError for shapes that do not fit."""
    found = refined(module, shapes, entry)
    if isinstance(found, Declined):
        shown = ",".join("x".join(map(str, s)) or "scalar" for s in shapes)
        raise DeclinedError(f"no program of shapes {shown}: {found.reason}")
    return found


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"export": export}
