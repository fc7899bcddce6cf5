"""The comparison with JAX runs, compares before it times, and measures memory; attention's scratch stays small."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import codegen
import hlo
from benchmarks import compare_jax
from tests.command_line import ROOT
from tests.test_examples import make_examples
from tilewright.inputs import random_arrays

HAS_PROC = sys.platform == "linux"


@pytest.mark.jax
def test_one_workload_end_to_end() -> None:
    script = ROOT / "benchmarks" / "compare_jax.py"
    command = [sys.executable, str(script), "--only", "layer_norm", "--turns", "2", "--min-seconds", "0", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["schema"] == "tilewright.compare_jax/1"
    (result,) = document["results"]
    assert (result["name"], result["problem"], result["fallbacks"]) == ("layer_norm", None, [])
    assert result["tilewright"]["runs"] == result["jax"]["runs"] == 2
    assert result["ratio"] == pytest.approx(result["jax"]["median"] / result["tilewright"]["median"])
    assert 0 <= result["max_rel"] <= 1e-5


@pytest.mark.jax
def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = codegen.Executable.__call__
    monkeypatch.setattr(codegen.Executable, "__call__", lambda self, *a: tuple(r * np.float32(1.001) for r in right(self, *a)))
    monkeypatch.setattr(compare_jax, "interleave", lambda *a: pytest.fail("it was timed"))
    workload = compare_jax.Workload("layer_norm", "layer_norm", {"rows": 16, "columns": 32})
    result = compare_jax.measure(workload, 2, 0.0, 0)
    assert (result.problem, result.ratio) == ("the results differ", None)
    compare_jax.show([result])
    assert "the results differ (rel 0.001" in capsys.readouterr().out


@pytest.mark.skipif(not HAS_PROC, reason="resident memory is read from Linux's /proc")
def test_the_growth_of_resident_memory_is_seen() -> None:
    size = 64 << 20
    grown = compare_jax.peak_rss_growth_bytes(lambda: np.ones(size, np.uint8).sum())
    still = compare_jax.peak_rss_growth_bytes(lambda: 1 + 1)
    assert grown is not None
    assert still is not None
    assert 0.9 * size < grown < 1.5 * size
    assert still < size // 8


@pytest.mark.jax
@pytest.mark.skipif(not HAS_PROC, reason="resident memory is read from Linux's /proc")
def test_attention_over_4096_positions_never_holds_its_scores() -> None:
    """The scores alone would be 512 MB. The runtime's own count of scratch is below 16 MB, and resident memory bears it out."""
    module = hlo.parse(make_examples().lower("causal_attention", seq=4096))
    arrays = random_arrays(module.entry, 0)
    executable = codegen.compile(module)
    assert executable.fallbacks == []
    assert len(executable.plan.fusions) <= 2
    assert executable.stats.scratch_bytes < 16_000_000
    first = compare_jax.peak_rss_growth_bytes(lambda: executable(*arrays))
    warm = compare_jax.peak_rss_growth_bytes(lambda: executable(*arrays))
    assert first is not None
    assert warm is not None
    result_bytes = arrays[0].nbytes
    assert first < 16_000_000 + result_bytes + 8_000_000  # code that is loaded on the first call
    assert warm < 16_000_000
