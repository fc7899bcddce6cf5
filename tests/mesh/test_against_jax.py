"""JAX's partitioner beside this one: the same programs on virtual devices, and never more bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.mesh.launch import ROOT, SECONDS


def _rows(module: str) -> dict[str, dict[str, Any]]:
    """What a worker prints: a row for each of its programs, by name."""
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=12 * SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert {name: row["failed"] for name, row in found.items() if "failed" in row} == {}
    assert {name: row["error"] for name, row in found.items() if row["error"] > 1e-5} == {}
    return found


@pytest.mark.jax
@pytest.mark.slow
def test_no_program_sends_more_than_jaxs() -> None:
    """Products in every sharding, layers, training steps, windows, sorts, gathers: equal results, and bytes at most JAX's."""
    found = _rows("tests.mesh.jax_worker")
    assert len(found) == 417
    assert {name: (row["ours"], row["jax"]) for name, row in found.items() if row["ours"] > row["jax"]} == {}


@pytest.mark.jax
@pytest.mark.slow
def test_dimensions_that_no_mesh_divides_send_no_more_than_xlas() -> None:
    """Functions whose values are constrained to tiles of unequal sizes: equal results, and bytes at most XLA's partitioner's.

    Of the selective scan's parts of 15, 7, 3 and 1 elements two cost 16 bytes more than XLA's (1016, 1000).
    """
    found = _rows("tests.mesh.jax_uneven")
    assert len(found) == 25
    more = {name: (row["ours"], row["jax"]) for name, row in found.items() if row["ours"] > row["jax"]}
    assert set(more) <= {"selective scan, sequence"} and all(a < 1.05 * b for a, b in more.values()), more
