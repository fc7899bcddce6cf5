"""The comparison with JAX runs, compares before it times, and measures memory; attention's scratch stays small."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
from benchmarks import compare_jax
from tests.commands.command_line import ROOT
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


@pytest.mark.jax
def test_a_form_is_compared_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import forms
    from benchmarks.cases.forms import cases

    case = next(c for c in cases() if c.name == "L2 rows")
    small = replace(case, arguments=(replace(case.arguments[0], shape=(16, 32)),))
    row = forms.measure(small, 2, 0.0)
    assert (row.problem, row.fallbacks) == (None, ())
    assert row.ms > 0
    assert row.error < 1e-6
    right = codegen.Executable.__call__
    monkeypatch.setattr(codegen.Executable, "__call__", lambda self, *a: tuple(r * np.float32(1.001) for r in right(self, *a)))
    monkeypatch.setattr(forms, "interleave", lambda *a: pytest.fail("it was timed"))
    assert (forms.measure(small, 2, 0.0).problem or "").startswith("differs by")


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


RESULTS = {
    "schema": "tilewright.performance/1",
    "machine": {"cpu": "a CPU", "cores": 2, "python": "3.11", "jax": "1", "numba": "2", "numpy": "3"},
    "limits": {"bytes_per_second": {"1024": 2e9, "1048576": 1e9}, "flops_per_second": 1e12},
    "rows": [
        {"name": "a", "what": "x|y", "between": "packing", "limit_seconds": 0.01, "limit_kind": "memory", "fallbacks": [],
         "problem": None, "seconds": {"Tilewright": 0.02, "JAX": 0.05, "another": 0.03}},
        {"name": "b", "what": "z", "between": "", "limit_seconds": 0.01, "limit_kind": "arithmetic", "fallbacks": [],
         "problem": "the results differ from JAX's", "seconds": {}},
        {"name": "c", "what": "z", "between": "", "limit_seconds": 0.01, "limit_kind": "memory", "fallbacks": ["a while"],
         "problem": None, "seconds": {"Tilewright": 0.02}},
    ],
}  # fmt: skip


def test_the_performance_page_is_made_from_results() -> None:
    from benchmarks import performance

    text = performance.page(RESULTS)
    assert "| `a` | x\\|y | 10 memory | 20 | 50% | 50 | 30 | 1.50 | packing |" in text
    assert "| `b` | z | 10 arithmetic | the results differ from JAX's | - | - | - | - |  |" in text
    assert "in the evaluator: a while" in text
    with pytest.raises(ValueError, match=r"tilewright\.performance/1"):
        performance.page({})


def test_the_limit_is_the_larger_one() -> None:
    from benchmarks import performance

    found = RESULTS["limits"]
    assert isinstance(found, dict)
    assert performance.limit_of(1000, 1e6, found) == (1e-6, "arithmetic")
    assert performance.limit_of(4096, 1e6, found) == (4096e-9, "memory")


@pytest.mark.jax
def test_every_workload_can_be_traced() -> None:
    import jax

    from benchmarks.cases.workloads import WORKLOADS

    assert len({w.name for w in WORKLOADS}) == len(WORKLOADS) >= 25
    for w in WORKLOADS:
        jax.eval_shape(w.function, *(jax.ShapeDtypeStruct(s.shape, s.dtype) for s in w.specs))


def test_results_that_differ_are_seen() -> None:
    from benchmarks import performance

    x = [np.ones(4, np.float32)]
    assert performance._agrees(x, x, 0.0)
    assert not performance._agrees([x[0] + 1], x, 1e-3)
    assert not performance._agrees([x[0] * np.float32("nan")], x, 1e-3)
