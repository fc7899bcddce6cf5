"""The direction of imports: hlo <- indexing <- tiling <- codegen; interp sees hlo only; tilewright sees all."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

MAY_IMPORT = {
    "hlo": set(),
    "indexing": {"hlo"},
    "tiling": {"hlo", "indexing"},
    "codegen": {"hlo", "indexing", "tiling"},
    "interp": {"hlo"},
    "tilewright": {"hlo", "indexing", "tiling", "codegen", "interp"},
}

# Third-party libraries, by package: what is not here is not to be imported there. JAX and the tests' libraries are nobody's.
LIBRARIES = {
    "hlo": {"numpy", "ml_dtypes"},
    "indexing": {"numpy", "ml_dtypes", "islpy", "sympy"},
    "tiling": {"numpy", "ml_dtypes", "islpy", "sympy"},
    "codegen": {"numpy", "ml_dtypes", "numba", "llvmlite"},
    "interp": {"numpy", "ml_dtypes"},
    "tilewright": {"numpy", "ml_dtypes", "rich"},
}

# The front door to JAX and to notebooks: optional extras, imported inside the functions that need them. MLIR bytecode has no
# other stable reader than the one that jaxlib carries; one file asks for it, and only when it is given bytecode.
OPTIONAL = {
    "hlo/text/bytecode.py": {"jaxlib"},
    "tilewright/jax_bridge.py": {"jax"},
    "tilewright/lapack.py": {"scipy"},
    "tilewright/figures.py": {"matplotlib"},
    "tilewright/graph.py": {"matplotlib"},
    "tilewright/panels.py": {"matplotlib"},
    "tilewright/pictures.py": {"matplotlib", "ipywidgets", "IPython"},
}


# The evaluator runs what no kernel covers. One file knows it, and only inside the functions that call it; the other direction,
# which would make the oracle depend on what it judges, stays closed.
EXCEPTIONS = {("codegen/call/fallback.py", "interp")}


def imported(source: str) -> Iterator[tuple[int, str]]:
    """(line, top-level module) of every absolute import in a file, wherever it stands in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__", "import_module"):
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


def test_every_top_level_package_is_in_the_table_and_ships_its_types() -> None:
    with open(ROOT / "pyproject.toml", "rb") as f:
        project = tomllib.load(f)
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(MAY_IMPORT)
    for package in MAY_IMPORT:
        assert (ROOT / package / "py.typed").is_file(), f"{package}/py.typed is missing"


def loaded_after(code: str) -> set[str]:
    """The top-level modules that a fresh process has loaded when it has run `code`."""
    script = f"import sys\n{code}\nsys.stderr.write('\\n' + ' '.join({{m.partition('.')[0] for m in sys.modules}}))"
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
    assert "numba" in loaded, "the program was not compiled"
    assert not loaded & {"sympy", "jax", "jaxlib", "matplotlib"}


def test_every_public_name_resolves() -> None:
    import tilewright

    for name in tilewright.__all__:
        assert getattr(tilewright, name) is not None
    assert set(tilewright._HOME) | {"__version__"} == set(tilewright.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tilewright.no_such_name
