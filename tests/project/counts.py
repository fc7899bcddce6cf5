"""What can be counted of the house, beside the same of another revision: the table of docs/architecture.md.

    python -m tests.project.counts 641c94c
    python -m tests.project.counts 641c94c --by-room           lines of the compiler, room by room, and how many are in new files
    python -m tests.project.counts 641c94c --by-behavior       statements of what does the same, group by group
"""

from __future__ import annotations

import argparse
import ast
import io
import pathlib
import re
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.project.behaviors import BEHAVIORS, definitions, statements

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("hlo", "indexing", "tiling", "codegen", "interp", "tilewright", "tilewright_runtime")


def sources(root: pathlib.Path, folders: tuple[str, ...]) -> Iterator[tuple[pathlib.Path, str]]:
    """The Python files of some folders, and what they say."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root), path.read_text("utf-8")


def late_imports(text: str) -> int:
    """How many imports stand inside functions.

    >>> late_imports("import a\\ndef f():\\n    def g():\\n        from b import c\\n    import d\\n")
    2
    """
    functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return len({x.lineno for f in functions for x in ast.walk(f) if isinstance(x, (ast.Import, ast.ImportFrom))})


def counts(root: pathlib.Path) -> dict[str, int]:
    """The counts of a tree, by what is counted."""
    own = list(sources(root, PACKAGES))
    tests = list(sources(root, ("tests",)))
    folders = Counter(p.parent for p, _ in (*own, *tests, *sources(root, ("benchmarks",))) if p.name != "__init__.py")
    compiler = [text for p, text in own if p.parts[0] in ("tiling", "codegen")]
    found = {
        "imports inside functions": sum(late_imports(text) for _, text in own),
        "`if TYPE_CHECKING`": sum(len(re.findall(r"^\s*if TYPE_CHECKING", text, re.MULTILINE)) for _, text in own),
        "lines with `id(…)`": sum(len(re.findall(r"^.*\bid\(.*$", text, re.MULTILINE)) for _, text in own),
        "lines of the compiler that ask for an op's name": sum(
            len(re.findall(r"^.*\bop\.name (?:==|!=|in) .*$", text, re.MULTILINE)) for text in compiler
        ),
        "`monkeypatch.setattr` in tests": sum(text.count("monkeypatch.setattr") for _, text in tests),
        "files in the fullest folder": max(folders.values()),
        "folders with more than 20 files": sum(n > 20 for n in folders.values()),
        "files of more than 550 lines": sum(text.count("\n") > 550 for _, text in own),
    }
    lines: Counter[str] = Counter()
    for p, text in own:
        lines[p.parts[0]] += text.count("\n")
        if p.parts[0] in ("tiling", "codegen"):
            lines["/".join(p.parts[:2]) if len(p.parts) > 2 else f"{p.parts[0]} itself"] += text.count("\n")
    return {**found, **{f"lines of {room}": n for room, n in sorted(lines.items())}}


@contextmanager
def tree_of(revision: str) -> Iterator[pathlib.Path]:
    """The files of another revision, in a folder while the context lasts."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        yield pathlib.Path(folder)


def by_room(revision: str) -> Iterator[tuple[str, int, int, int]]:
    """Of each room of the compiler the lines then, now, and now in files that have come since; all rooms last.

    Files that have moved, by what git finds alike, count then where they went, those that are gone where they were.
    """

    def git(*words: str) -> list[list[str]]:
        out = subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
        return [line.split("\t") for line in out.splitlines()]

    def room(path: str) -> str:
        return str(pathlib.PurePath(*pathlib.PurePath(path).parent.parts[:2]))

    totals: dict[str, list[int]] = {}
    with tree_of(revision) as tree:
        old = [p for p, _ in sources(tree, ("tiling", "codegen"))]
        at = {p.as_posix(): p.as_posix() for p in old}  # where they went, commit by commit
        for _, before, after in git("log", "--reverse", "-M", "--name-status", "--diff-filter=R", "--format=", f"{revision}.."):
            at |= {p: after for p, here in at.items() if here == before}
        lines = [(room(at[p.as_posix()]), 0, (tree / p).read_text("utf-8").count("\n")) for p in old]
    for (path,) in git("ls-files", "tiling/*.py", "codegen/*.py"):
        count = (ROOT / path).read_text("utf-8").count("\n")
        lines += [(room(path), 1, count), (room(path), 2, 0 if path in at.values() else count)]
    for name, column, count in lines:
        if name.split("/")[0] in ("tiling", "codegen"):
            totals.setdefault(name, [0, 0, 0])[column] += count
    for name, (then, now, new) in sorted(totals.items()):
        yield name, then, now, new
    then, now, new = (sum(t[k] for t in totals.values()) for k in range(3))
    yield "together", then, now, new


def by_behavior(then: pathlib.Path, now: pathlib.Path) -> Iterator[tuple[str, int, int, int, str]]:
    """Of each group the statements then, now for the same, and for what is new; of all groups; of the rest of the compiler."""
    before, after = (sum(statements(text) for _, text in sources(root, ("tiling", "codegen"))) for root in (then, now))
    sums = [0, 0, 0]
    for b in BEHAVIORS:
        found = [sum(n for _, n in definitions(*x)) for x in ((then, b.then), (now, b.now), (now, b.new))]
        sums = [x + y for x, y in zip(sums, found, strict=True)]
        yield b.name, found[0], found[1], found[2], b.came
    yield "these groups", sums[0], sums[1], sums[2], ""
    yield "everything else", before - sums[0], after - sums[1] - sums[2], 0, "not told apart: the rooms above say what came"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("revision")
    parser.add_argument("--by-room", action="store_true", help="lines of the compiler, room by room")
    parser.add_argument("--by-behavior", action="store_true", help="statements of what does the same, group by group")
    chosen = parser.parse_args()
    if chosen.by_room:
        for row in by_room(chosen.revision):
            print("| {} | {:,} | {:,} | {:,} |".format(*row))
        raise SystemExit
    with tree_of(chosen.revision) as tree:
        if chosen.by_behavior:
            for name, old, same, new, came in by_behavior(tree, ROOT):
                print(f"| {name} | {old:,} | {same:,} | {new:,} | {came} |")
        else:
            before, after = counts(tree), counts(ROOT)
            for name in dict.fromkeys([*after, *before]):
                print(f"| {name} | {before.get(name, '-')} | {after.get(name, '-')} |")
