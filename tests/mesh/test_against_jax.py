"""JAX's partitioner beside this one: the same programs on virtual devices, and never more bytes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.mesh.launch import ROOT, SECONDS


@pytest.mark.jax
@pytest.mark.slow
def test_no_program_sends_more_than_jaxs() -> None:
    """Products in every sharding, layers, training steps, windows, sorts, gathers: equal results, and bytes at most JAX's."""
    command = [sys.executable, "-m", "tests.mesh.jax_worker"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=6 * SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 248
    assert {name: row["failed"] for name, row in found.items() if "failed" in row} == {}
    assert {name: row["error"] for name, row in found.items() if row["error"] > 1e-5} == {}
    assert {name: (row["ours"], row["jax"]) for name, row in found.items() if row["ours"] > row["jax"]} == {}
