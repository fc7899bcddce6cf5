"""The direction of imports: hlo <- indexing <- tiling <- codegen; interp sees hlo only; tilewright sees all; and no circle."""

from __future__ import annotations

import ast
import functools
import graphlib
import pathlib
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

MAY_IMPORT = {
    "hlo": set(),
    "indexing": {"hlo"},
    "tiling": {"hlo", "indexing"},
    "codegen": {"hlo", "indexing", "tiling", "tilewright_runtime"},
    "interp": {"hlo"},
    "tilewright": {"hlo", "indexing", "tiling", "codegen", "interp", "tilewright_runtime"},
    "tilewright_runtime": set(),
}

# Third-party libraries, by package: what is not here is not to be imported there. JAX and the tests' libraries are nobody's.
LIBRARIES = {
    "hlo": {"numpy", "ml_dtypes"},
    "indexing": {"numpy", "ml_dtypes", "islpy", "sympy"},
    "tiling": {"numpy", "ml_dtypes", "islpy", "sympy"},
    "codegen": {"numpy", "ml_dtypes", "numba", "llvmlite"},
    "interp": {"numpy", "ml_dtypes"},
    "tilewright": {"numpy", "ml_dtypes", "rich"},
    "tilewright_runtime": {"numpy"},
}

# The front door to JAX and to notebooks: optional extras, imported inside the functions that need them. MLIR bytecode has no
# other stable reader than the one that jaxlib carries; one file asks for it, and only when it is given bytecode.
OPTIONAL = {
    "hlo/text/bytecode.py": {"jaxlib"},
    "tilewright_runtime/program.py": {"ml_dtypes"},
    "codegen/mpi/channel.py": {"mpi4py"},
    "codegen/mpi/collectives.py": {"mpi4py"},
    "codegen/mpi/folding.py": {"mpi4py"},
    "tilewright/jax/bridge.py": {"jax"},
    "tilewright/jax/calls/front.py": {"jax"},
    "tilewright/jax/lowering.py": {"jax"},
    "tilewright/jax/calls/results.py": {"jax"},
    "tilewright/pjrt/__init__.py": {"jax"},
    "tilewright/pjrt/client.py": {"jaxlib"},
    "tilewright/pjrt/ffi.py": {"jaxlib"},
    "tilewright/pjrt/partitioning.py": {"jaxlib"},
    "tilewright/pjrt/lowering.py": {"jax"},
    "tilewright/pjrt/registration.py": {"jax", "jaxlib"},
    "tilewright/jax/lapack.py": {"scipy"},
    "tilewright/torch/packages.py": {"jax", "torch", "torchax"},
    "tilewright/drawing/figures.py": {"matplotlib"},
    "tilewright/drawing/graph.py": {"matplotlib"},
    "tilewright/drawing/panels.py": {"matplotlib"},
    "tilewright/pictures.py": {"matplotlib", "ipywidgets", "IPython"},
}


# The evaluator runs what no kernel covers. One file knows it, and only inside the functions that call it; the other direction,
# which would make the oracle depend on what it judges, stays closed.
EXCEPTIONS = {("codegen/call/fallback.py", "interp")}


IMPORTERS = ("importlib.import_module", "__import__", "import_module")


@functools.cache
def importing(source: str) -> tuple[ast.Import | ast.ImportFrom | ast.Call, ...]:
    """The nodes of a file that import, wherever they stand in it. (Each file is asked about several times.)"""

    def imports(n: ast.AST) -> bool:
        if isinstance(n, ast.Call):
            return isinstance(n.func, (ast.Name, ast.Attribute)) and ast.unparse(n.func) in IMPORTERS
        return isinstance(n, (ast.Import, ast.ImportFrom))

    return tuple(n for n in ast.walk(ast.parse(source)) if imports(n))  # type: ignore[misc]


def imported(source: str) -> Iterator[tuple[int, str]]:
    """(line, top-level module) of every absolute import in a file, wherever it stands in it."""
    for node in importing(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0 and node.module:
                yield node.lineno, node.module.partition(".")[0]
        else:
            for a in node.args[:1]:
                if isinstance(a, ast.Constant) and isinstance(a.value, str):
                    yield node.lineno, a.value.partition(".")[0]


def complaints(package: str, name: str, source: str) -> list[str]:
    """What a file of `package` imports against the table."""
    found = []
    for line, module in imported(source):
        if module == package or module in sys.stdlib_module_names:
            continue
        if module in MAY_IMPORT:
            if module not in MAY_IMPORT[package] and (name, module) not in EXCEPTIONS:
                found.append(f"{name}:{line}: {package} must not import {module}")
        elif module not in LIBRARIES[package] | OPTIONAL.get(name, set()):
            found.append(f"{name}:{line}: {package} must not import the library {module}")
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"{package}/ has no Python file"
    found = [c for f in files for c in complaints(package, str(f.relative_to(ROOT)), f.read_text("utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("interp", "from indexing import compose"),
        ("interp", "def f():\n    import codegen.lib as c"),
        ("hlo", "if True:\n    from tiling.planning.model import x"),
        ("indexing", "import importlib\nimportlib.import_module('codegen')"),
        ("tiling", "import tilewright"),
        ("hlo", "import sympy"),
        ("codegen", "import jax"),
    ],
)
def test_the_check_sees_a_wrong_import(package: str, source: str) -> None:
    assert len(complaints(package, "f.py", source)) == 1


def test_the_check_lets_right_imports_pass() -> None:
    source = "from __future__ import annotations\nimport os\nimport numpy as np\nimport hlo.types\nfrom tiling import plan\n"
    assert complaints("codegen", "f.py", source) == []


# ---------------------------------------------------------------- late imports

_ISL = "`import indexing` is light: islpy comes with the first question that boxes and rules do not answer"
_LLVM = "LLVM comes with the first kernel that is compiled, not with a call of one that is kept"
_START = "the command line starts, completes and complains before anything heavy is loaded"
_OPTIONAL = "an optional extra"

# The files that import inside functions, or for types alone, and why; all others import at their top.
LATE = {
    "codegen/call/direct.py": _LLVM,
    "codegen/call/fallback.py": "the evaluator comes with the first op that no kernel covers",
    "codegen/lib/narrow.py": "a helper process does without ml_dtypes, which only stepping through a kernel needs",
    "codegen/lib/scalar.py": "a helper process does without ml_dtypes, which only stepping through a kernel needs",
    "codegen/mpi/mesh.py": _OPTIONAL,
    "codegen/native/jit.py": _LLVM,
    "codegen/native/library_objects.py": _LLVM,
    "codegen/native/lower.py": _LLVM,
    "codegen/native/workers.py": "a helper process does without hlo",
    "codegen/target.py": "a helper process does without hlo; LLVM is asked for the host once",
    "codegen/ship/on_demand.py": "what writes files comes with the first file",
    "indexing/exact/images.py": _ISL,
    "indexing/map.py": _ISL,
    "indexing/map_simplifier.py": _ISL,
    "indexing/operations.py": _ISL,
    "indexing/questions.py": _ISL,
    "indexing/regions.py": _ISL,
    "indexing/exact/relation.py": _ISL,
    "tilewright/__init__.py": "`import tilewright` is light: a name's package comes with its first use",
    "tilewright/cli.py": _START,
    "tilewright/commands/programs.py": _START,
    "tilewright/loading.py": "a compiled program's file is run where what reads programs' texts is not installed",
    "tilewright/torch/packages.py": _OPTIONAL,
    "tilewright/drawing/figures.py": _OPTIONAL,
    "tilewright/drawing/graph.py": _OPTIONAL,
    "tilewright/jax/bridge.py": "an optional extra; what partitions programs comes with the first mesh",
    "tilewright/jax/calls/results.py": _OPTIONAL,
    "tilewright/jax/lapack.py": _OPTIONAL,
    "tilewright/jax/calls/front.py": _OPTIONAL,
    "tilewright/jax/lowering.py": _OPTIONAL,
    "tilewright/drawing/panels.py": _OPTIONAL,
    "tilewright/pictures.py": _OPTIONAL,
    "tilewright/pjrt/__init__.py": _OPTIONAL,
    "tilewright/pjrt/client.py": _OPTIONAL,
    "tilewright/pjrt/ffi.py": _OPTIONAL,
    "tilewright/pjrt/partitioning.py": _OPTIONAL,
    "tilewright/pjrt/lowering.py": _OPTIONAL,
    "tilewright/pjrt/registration.py": _OPTIONAL,
    "tilewright/commands/progress.py": _START,
    "tilewright/commands/report.py": _START,
    "tilewright/commands/tools.py": _START,
}


def late_imports(source: str) -> list[int]:
    """The lines of imports inside functions and under TYPE_CHECKING."""

    def is_late(n: ast.AST) -> bool:
        if isinstance(n, ast.If):
            return "TYPE_CHECKING" in ast.unparse(n.test)
        return isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))

    inside = (x for n in ast.walk(ast.parse(source)) if is_late(n) for x in ast.walk(n))
    return sorted({x.lineno for x in inside if isinstance(x, (ast.Import, ast.ImportFrom))})


def test_imports_stand_at_the_top_but_where_a_reason_is_given() -> None:
    files = {f.relative_to(ROOT).as_posix(): f for p in MAY_IMPORT for f in (ROOT / p).rglob("*.py")}
    assert {name for name, f in files.items() if late_imports(f.read_text("utf-8"))} == set(LATE)


def test_late_imports_are_seen() -> None:
    source = "import a\nif TYPE_CHECKING:\n    import b\nclass C:\n    def f(self):\n        if x:\n            from c import d\n"
    assert late_imports(source) == [3, 7]


# ---------------------------------------------------------------- circles


def modules_of(root: pathlib.Path, packages: Iterable[str]) -> dict[str, pathlib.Path]:
    """Dotted name -> file of every module of the packages; a package goes by its own name."""
    files = (f for p in packages for f in (root / p).rglob("*.py"))
    return {".".join(f.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): f for f in files}


def imports_of(module: str, source: str, is_package: bool, known: Collection[str]) -> set[str]:
    """The known modules that a module imports, wherever it does: at the top, in functions, for types alone, by name."""
    found: set[str] = set()

    def add(name: str) -> None:
        while name and name not in known:
            name = name.rpartition(".")[0]
        found.add(name)

    for node in importing(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                add(alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: None if is_package and node.level == 1 else -(node.level - is_package)]
            base = ".".join([*(above if node.level else []), *([node.module] if node.module else [])])
            for alias in node.names:
                add(f"{base}.{alias.name}")
        else:
            for a in node.args[:1]:
                if isinstance(a, ast.Constant) and isinstance(a.value, str):
                    add(a.value)
    return found - {"", module}


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The groups of modules that import each other, in whatever number of steps."""
    order = graphlib.TopologicalSorter(graph)
    try:
        order.prepare()
    except graphlib.CycleError:
        reach = {m: _reached(m, graph) for m in graph}
        groups = {frozenset(n for n in reach[m] if m in reach[n]) for m in graph if m in reach[m]}
        return sorted(map(sorted, groups))
    return []


def _reached(start: str, graph: Mapping[str, Collection[str]]) -> set[str]:
    seen: set[str] = set()
    todo = [*graph[start]]
    while todo:
        m = todo.pop()
        if m not in seen:
            seen.add(m)
            todo.extend(graph[m])
    return seen


def graph_of(root: pathlib.Path, packages: Iterable[str]) -> dict[str, set[str]]:
    """Module -> what it imports; a package is a module, too."""
    known = modules_of(root, packages)
    return {m: imports_of(m, f.read_text("utf-8"), f.name == "__init__.py", known) for m, f in known.items()}


def test_no_modules_import_each_other() -> None:
    """Imports inside functions and for types alone count: they once hid that 56 files of tiling were one circle."""
    graph = graph_of(ROOT, MAY_IMPORT)
    assert len(graph) > 250
    assert circles(graph) == []


@pytest.mark.parametrize("package", ["codegen", "tiling"])
def test_no_rooms_use_each_other(package: str) -> None:
    """A room, a folder of a package, stands above all rooms that it uses."""
    rooms: dict[str, set[str]] = {}
    for module, imports in graph_of(ROOT, [package]).items():
        room = ".".join(module.split(".")[:2])
        rooms.setdefault(room, set()).update({".".join(m.split(".")[:2]) for m in imports} - {room})
    assert len(rooms) > 5
    assert circles(rooms) == []


@pytest.mark.parametrize(
    "back",
    [
        "import p.a",
        "from p import a",
        "from p.a import x",
        "from . import a",
        "from .a import x",
        "def f():\n    from p.a import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import x",
        "import importlib\nimportlib.import_module('p.a')",
    ],
)
def test_the_check_sees_a_circle(tmp_path: pathlib.Path, back: str) -> None:
    (tmp_path / "p").mkdir()
    for name, text in (("__init__", "from p.a import x"), ("a", "from p.b import y"), ("b", "import p.c"), ("c", back)):
        (tmp_path / "p" / f"{name}.py").write_text(text)
    assert circles(graph_of(tmp_path, ["p"])) == [["p.a", "p.b", "p.c"]]
    (tmp_path / "p" / "c.py").write_text("import p")
    assert circles(graph_of(tmp_path, ["p"])) == [["p", "p.a", "p.b", "p.c"]]
    (tmp_path / "p" / "c.py").write_text("import q")
    assert circles(graph_of(tmp_path, ["p"])) == []


def test_no_folder_has_more_than_twenty_files() -> None:
    counts: dict[pathlib.Path, int] = {}
    for top in (*MAY_IMPORT, "tests", "benchmarks", "examples", "docs"):
        for f in (ROOT / top).rglob("*.py"):
            folder = f.parent.relative_to(ROOT)
            counts[folder] = counts.get(folder, 0) + (f.name != "__init__.py")
    assert len(counts) > 50
    assert {folder: n for folder, n in counts.items() if n > 20} == {}


def test_every_top_level_package_is_in_the_table_and_ships_its_types() -> None:
    with open(ROOT / "pyproject.toml", "rb") as f:
        project = tomllib.load(f)
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(MAY_IMPORT)
    for package in MAY_IMPORT:
        assert (ROOT / package / "py.typed").is_file(), f"{package}/py.typed is missing"


def loaded_after(code: str) -> set[str]:
    """The top-level modules, and the rooms of packages, that a fresh process has loaded when it has run `code`."""
    script = (
        f"import sys\n{code}\n"
        "sys.stderr.write('\\n' + ' '.join({'.'.join(m.split('.')[:n]) for m in sys.modules for n in (1, 2)}))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def test_import_tilewright_is_light() -> None:
    heavy = {"numpy", "numba", "sympy", "islpy", "jax", "rich", "ml_dtypes"}
    assert not loaded_after("import tilewright, tilewright.cli; tilewright.cli.parser()") & heavy


def test_run_imports_neither_sympy_nor_jax(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "add.mlir"
    program.write_text(
        "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        "  %0 = stablehlo.add %a, %a : tensor<8xf32>\n  return %0 : tensor<8xf32>\n}\n"
    )
    loaded = loaded_after(f"from tilewright.cli import main\nassert main(['run', {str(program)!r}]) == 0")
    assert "llvmlite" in loaded, "the program was not compiled"
    assert not loaded & {"numba", "sympy", "jax", "jaxlib", "matplotlib"}


def test_a_function_on_one_device_loads_nothing_of_meshes() -> None:
    pytest.importorskip("jax")
    loaded = loaded_after("import tilewright\nassert tilewright.jit(lambda x: x + 1)(2.0) == 3.0")
    assert "tiling.planning" in loaded
    assert "codegen.mpi" not in loaded


def test_every_public_name_resolves() -> None:
    import tilewright

    for name in tilewright.__all__:
        assert getattr(tilewright, name) is not None
    assert set(tilewright._HOME) | {"__version__"} == set(tilewright.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tilewright.no_such_name
