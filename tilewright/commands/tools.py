"""The commands around programs: `passes`, `doctor`, `cache`, `diff`, `completion`, `picture`, `explore`."""

from __future__ import annotations

import argparse
import difflib
import importlib.metadata
import json
import os
import platform
import sys
import time
import webbrowser
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hlo.errors import Location
from tilewright import __version__
from tilewright.commands import report
from tilewright.inputs import InputError

__all__ = ["COMMANDS"]

_LIBRARIES = ("numpy", "numba", "llvmlite", "islpy", "sympy", "ml_dtypes", "rich", "jax", "scipy", "matplotlib", "ipywidgets")
_FEATURES = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "amx_tile", "asimd", "sve")


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(report.jsonable(document), indent=2, allow_nan=False))


def _print_coloured(lines: Iterable[tuple[str, str]]) -> None:
    """Prints (text, style) lines; styles only on a terminal, and none when NO_COLOR is set."""
    from rich.console import Console
    from rich.text import Text

    plain = bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty()
    console = Console(emoji=False, markup=False, highlight=False, no_color=plain, soft_wrap=True)
    for text, style in lines:
        console.print(Text(report.printable(text), style="" if plain else style))


# ---------------------------------------------------------------- passes


def show_passes(args: argparse.Namespace) -> int:
    """`tilewright passes`: every pass in order, from what to what, whether it can be skipped, and why it stands there."""
    from tiling.pipeline import PIPELINE, check_settings

    check_settings()
    rows = [
        {"name": p.name, "source": p.source, "target": p.target, "optional": p.optional, "within": p.within, "why": p.why}
        for p in PIPELINE
    ]
    if args.json:
        _print_json({"schema": "tilewright.passes/1", "passes": rows})
        return 0
    width = max(len(str(r["name"])) + (2 if r["within"] else 0) for r in rows) + 2
    print(f"{'pass':<{width}}{'from -> to':<20}{'optional':<10}why")
    for r in rows:
        name, way = ("  " if r["within"] else "") + str(r["name"]), f"{r['source']} -> {r['target']}"
        print(f"{name:<{width}}{way:<20}{'yes' if r['optional'] else 'no':<10}{r['why']}")
    print(
        "\nindented: applied by the pass above that is not, op by op or nest by nest. The last loops are proved, and written as"
        "\nkernels: typed statements, of which numba source and C are prints. To see what each pass makes: tilewright source"
        "\nFILE --stages; to leave optional ones out: TILEWRIGHT_SKIP=NAME,…"
    )
    return 0


# ---------------------------------------------------------------- calibrate


def calibrate(args: argparse.Namespace) -> int:
    """`tilewright calibrate`: measures the machine, and keeps what was found for later plans."""
    from codegen.tune import calibrate as measuring

    machine = measuring.calibrate()
    if args.json:
        _print_json({"schema": "tilewright.calibrate/1", "machine": str(machine), **asdict(machine)})
    else:
        print(report.printable(str(machine)))
    return 0


# ---------------------------------------------------------------- doctor


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the closest one above it that exists."""
    try:
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass  # the loop finds what there is
    except OSError:  # too long a name: nothing will ever be there
        return False
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)


def doctor(args: argparse.Namespace) -> int:
    """`tilewright doctor`: what runs here, and whether it works: a kernel is compiled, run and compared."""
    import numpy as np

    import codegen
    import hlo
    from codegen.native import object_cache
    from tiling import machine

    text = (
        "func.func @main(%x: tensor<1024xf32>) -> tensor<1024xf32> {\n"
        "  %0 = stablehlo.tanh %x : tensor<1024xf32>\n  return %0 : tensor<1024xf32>\n}"
    )
    x = np.linspace(-3, 3, 1024, dtype=np.float32)
    start = time.perf_counter()
    (found,) = codegen.compile(hlo.parse(text))(x)
    seconds = time.perf_counter() - start
    works = bool(np.allclose(found, np.tanh(x), rtol=1e-5))
    here = machine.Machine.detect()
    flags = machine._cpu_flags()
    folder = object_cache.cache_folder()
    entries = _entries(folder)
    document = {
        "schema": "tilewright.doctor/1",
        "version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": _versions(),
        "machine": str(here),
        "cpu_features": [f for f in _FEATURES if f in flags],
        "threads": here.cores,
        "threading": "own pool of native threads" if sys.platform == "linux" else "the caller's thread",
        "cache": {
            "folder": str(folder),
            "enabled": object_cache.cache_enabled(),
            "writable": _writable(folder),
            "files": len(entries),
            "size_bytes": sum(size for _, size, _ in entries),
        },
        "kernel_works": works,
        "kernel_seconds": seconds,
    }
    if args.json:
        _print_json(document)
        return 0 if works else 1
    print(f"tilewright    {__version__}, Python {document['python']}, {document['platform']}")
    for name, version in _versions().items():
        print(f"{name:<13} {version or 'not installed (optional)'}")
    print(f"machine       {here}")
    print(f"cpu features  {' '.join(f for f in _FEATURES if f in flags) or 'unknown'}")
    print(f"threading     {document['threading']}, {here.cores} threads")
    size = report.bytes_text(sum(s for _, s, _ in entries))
    state = "" if object_cache.cache_enabled() else ", switched off"
    state += "" if _writable(folder) else ", NOT WRITABLE: kernels are compiled anew in every process"
    print(report.printable(f"cache         {folder}: {len(entries)} files, {size}{state}"))
    print(f"a kernel      {'ok' if works else 'WRONG RESULT'}, {report.seconds_text(seconds)} to plan, compile and run")
    return 0 if works else 1


# ---------------------------------------------------------------- cache


def _entries(folder: Path) -> list[tuple[Path, int, float]]:
    """(path, bytes, time of last change) of the cache's own files, oldest first; other files are never touched."""
    found = []
    for sub, pattern in (("objects", "*.o"), ("sources", "kernel_*.py"), ("plans", "*")):
        for path in (folder / sub).glob(pattern) if os.path.isdir(folder / sub) else ():
            if not path.is_file() or path.is_symlink():
                continue
            info = path.stat()
            found.append((path, info.st_size, info.st_mtime))
    return sorted(found, key=lambda e: e[2])


def cache(args: argparse.Namespace) -> int:
    """`tilewright cache show|prune|clear`."""
    from codegen.native import object_cache

    folder = object_cache.cache_folder()
    entries = _entries(folder)
    removed: list[tuple[Path, int, float]] = []
    if args.action == "clear":
        removed = entries
    elif args.action == "prune":
        oldest_allowed = time.time() - args.days * 86400
        total = sum(size for _, size, _ in entries)
        for entry in entries:
            if entry[2] < oldest_allowed or (args.max_bytes is not None and total > args.max_bytes):
                removed.append(entry)
                total -= entry[1]
    for path, _, _ in removed:
        path.unlink(missing_ok=True)
    left = entries if not removed else _entries(folder)
    document = {
        "schema": "tilewright.cache/1",
        "folder": str(folder),
        "enabled": object_cache.cache_enabled(),
        "files": len(left),
        "size_bytes": sum(size for _, size, _ in left),
        "removed_files": len(removed),
        "removed_bytes": sum(size for _, size, _ in removed),
    }
    if args.json:
        _print_json(document)
    else:
        if args.action != "show":
            print(f"removed  {len(removed)} files, {report.bytes_text(sum(size for _, size, _ in removed))}")
        print(report.printable(f"folder   {folder}{'' if document['enabled'] else ' (switched off)'}"))
        print(f"holds    {len(left)} files, {report.bytes_text(sum(size for _, size, _ in left))}")
    return 0


# ---------------------------------------------------------------- diff


def _plan_text(path: str, entry: str | None) -> tuple[list[dict[str, Any]], str]:
    """(fusions, explanation) of a program, of a document tilewright.plan/1, or of a file of `Plan.save`.

    Raises InputError for a file that is none of these, PlanFileError for a saved plan that is not made again as it was.
    """
    from tilewright.commands import programs

    if path.endswith(".json"):
        try:
            document = json.loads(Path(path).read_text("utf-8"))
        except ValueError as e:
            raise InputError(f"no JSON: {e}", Location(path)) from None
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema == "tilewright.plan/1" and {"fusions", "explanation"} <= document.keys():
            return document["fusions"], document["explanation"]
        if not str(schema).startswith("tilewright.plan_file/"):
            raise InputError(
                "expected the JSON of `tilewright plan --json` or `plan.explain(\"json\")` (tilewright.plan/1, with its fusions "
                "and explanation), or a file of `plan.save`",
                Location(path),
            )
    import codegen
    import tiling

    if path.endswith(".json"):
        kept = tiling.load_plan(path)
        return report.fusions(kept), str(kept.explain())

    module = programs.load(path)
    function = programs.entry_of(module, entry, path)
    made = tiling.plan(module, function.name, codegen.calibrated_machine(), codegen.supports)
    return report.fusions(made), str(made.explain())


def diff(args: argparse.Namespace) -> int:
    """`tilewright diff A B`: what changes between two plans; exit code 1 when they differ."""
    first, before = _plan_text(args.file, args.entry)
    second, after = _plan_text(args.other, args.entry)
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), args.file, args.other, lineterm="", n=2))
    totals = [
        (name, sum(f[key] for f in first), sum(f[key] for f in second))
        for name, key in (("scratch", "scratch_bytes"), ("moved unfused", "bytes_unfused"), ("moved fused", "bytes_fused"))
    ]
    if args.json:
        document = {
            "schema": "tilewright.diff/1",
            "first": {"file": args.file, "fusions": first},
            "second": {"file": args.other, "fusions": second},
            "totals": {name.replace(" ", "_") + "_bytes": [a, b] for name, a, b in totals},
            "diff": lines,
        }
        _print_json(document)
        return 1 if lines else 0
    print(f"fusions        {len(first)} -> {len(second)}")
    for name, a, b in totals:
        print(f"{name:<14} {report.bytes_text(a)} -> {report.bytes_text(b)}")
    styles = {"+": "green", "-": "red", "@": "cyan"}
    _print_coloured((line, styles.get(line[:1], "")) for line in lines)
    return 1 if lines else 0


# ---------------------------------------------------------------- completion


def completion(args: argparse.Namespace) -> int:
    """`tilewright completion bash|zsh|fish`: a script for the shell, made from the options themselves."""
    from tilewright.commands.completion import script

    print(script(args.shell, args.parser))
    return 0


# ---------------------------------------------------------------- picture


def picture(args: argparse.Namespace) -> int:
    """`tilewright picture KIND FILE -o OUT.png`: one of the pictures of `tilewright.pictures` as a file."""
    from tilewright import pictures
    from tilewright.commands import programs

    module = programs.load(args.file)
    function = programs.entry_of(module, args.entry, args.file)
    figure = pictures.from_program(args.kind, module, function, op=args.op, at=args.at)
    known = figure.canvas.get_supported_filetypes()
    if Path(args.output).suffix.lower().lstrip(".") not in known:
        raise pictures.PictureError(f"{args.output}: expected a name that ends in .png, .svg or .pdf")
    figure.savefig(args.output, dpi=120)
    print(report.printable(f"written  {args.output}"))
    if args.kind in pictures.OF_ONE_OP:
        number, op, count = pictures.picked_op(function, args.op)
        others = "" if count == 1 else f", one of {count}: --op NUMBER or --op %NAME shows another"
        name = f" %{op.results[0].name}" if op.results[0].name else ""
        print(report.printable(f"shows    op {number}, {op.name}{name}{others}"))
    return 0


def explore(args: argparse.Namespace) -> int:
    """`tilewright explore FILE`: the page of `tilewright.explore` as a file, which any browser shows without a network."""
    from tilewright.commands import programs
    from tilewright.explorer.front import explore as explored

    module = programs.load(args.file)
    entry = programs.entry_of(module, args.entry, args.file).name
    stem = "program" if args.file == "-" else Path(args.file).name.partition(".")[0]
    written = explored(module, entry=entry).save(args.output or f"{stem}.html")
    print(report.printable(f"written  {written}"))
    if args.open and not webbrowser.open(written.resolve().as_uri()):
        print(report.printable("no browser was found: open the file in one"), file=sys.stderr)
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "diff": diff,
    "passes": show_passes,
    "picture": picture,
    "explore": explore,
    "doctor": doctor,
    "calibrate": calibrate,
    "cache": cache,
    "completion": completion,
}
