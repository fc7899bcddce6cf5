"""Remembered plans: found again in another process, harmless when damaged, not used for another program."""

from __future__ import annotations

from pathlib import Path

import pytest

import codegen
import hlo
from codegen.native import object_cache
from codegen.tune import remembered_plans as plans

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_NO_CACHE", raising=False)
    return tmp_path


def count_searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    import tiling.plan.planner

    calls: list[int] = []
    original = tiling.plan.planner.best_tiles

    def counted(*args, **kwargs):  # type: ignore[no-untyped-def]
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(tiling.plan.planner, "best_tiles", counted)
    return calls


def test_a_second_plan_searches_nothing_and_is_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_searches(monkeypatch)
    module = hlo.load(EXAMPLES / "gelu_mlp.mlir")
    first = codegen.remembered_plan(module)
    assert calls
    calls.clear()
    second = codegen.remembered_plan(hlo.load(EXAMPLES / "gelu_mlp.mlir"))
    assert not calls
    assert second.explain() == first.explain()


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"pins": 1}', b'{"pins": [[[99], [1]]], "decisions": [], "looked_at": [1]}']
)
def test_a_damaged_record_is_made_anew(folder: Path, damage: bytes) -> None:
    module = hlo.load(EXAMPLES / "softmax.mlir")
    key = plans._key(module, "main", codegen.remembered_plan(module).machine)
    object_cache.write(key, damage)
    assert len(codegen.remembered_plan(module).fusions) == 1
    for path in (folder / "objects").iterdir():
        path.write_bytes(path.read_bytes()[:-3])
    assert len(codegen.remembered_plan(module).fusions) == 1


def test_programs_that_differ_in_an_attribute_have_different_keys() -> None:
    text = (EXAMPLES / "softmax.mlir").read_text()
    module = hlo.parse(text)
    machine = codegen.remembered_plan(module).machine
    other = hlo.parse(text.replace("dense<0.000000e+00>", "dense<1.000000e+00>"))
    assert plans._key(module, "main", machine) != plans._key(other, "main", machine)


def test_autotune_is_remembered_and_right(folder: Path) -> None:
    import numpy as np

    import interp

    module = hlo.parse("""
    func.func @main(%x: tensor<96x128xf32>, %w: tensor<128x64xf32>) -> tensor<96x64xf32> {
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<96x128xf32>, tensor<128x64xf32>) -> tensor<96x64xf32>
      %1 = stablehlo.tanh %0 : tensor<96x64xf32>
      return %1 : tensor<96x64xf32>
    }""")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape).astype(np.float32) / 8 for v in module.entry.arguments]
    tuned, trials = codegen.autotune(module, *arrays, candidates=3, repeat=2)
    measured = {t.tile_sizes: t.measured_seconds for t in trials}
    assert len(measured) >= 3
    assert tuned.fusions[0].tile_sizes == min(measured, key=lambda t: measured[t])
    executable = codegen.compile(module)
    assert executable.plan.fusions[0].tile_sizes == tuned.fusions[0].tile_sizes
    np.testing.assert_allclose(executable(*arrays)[0], interp.evaluate(module, *arrays)[0], rtol=1e-5, atol=1e-6)


def test_autotune_reaches_the_kernels_after_one_that_it_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    import numpy as np

    module_of_autotune = importlib.import_module("codegen.autotune")

    def the_last_is_fastest(base, number, sizes, arrays, repeat, deadline, entry):  # type: ignore[no-untyped-def]
        return {tried: 1.0 / (1 + k) for k, tried in enumerate(sizes)}

    monkeypatch.setattr(module_of_autotune, "measured_tiles", the_last_is_fastest)
    module = hlo.parse("""
    func.func @main(%x: tensor<64x128xf32>, %y: tensor<96x64xf32>) -> (tensor<64x128xf32>, tensor<96x64xf32>) {
      %0 = stablehlo.tanh %x : tensor<64x128xf32>
      %1 = stablehlo.tanh %y : tensor<96x64xf32>
      return %0, %1 : tensor<64x128xf32>, tensor<96x64xf32>
    }""")
    arrays = [np.zeros(v.shape, np.float32) for v in module.entry.arguments]
    tuned, trials = codegen.autotune(module, *arrays, candidates=3)
    tried = {f.name: [t.tile_sizes for t in trials if t.fusion == f.name] for f in tuned.fusions}
    assert all(len(mine) > 1 for mine in tried.values()) and len(tried) == 2
    assert [f.tile_sizes for f in tuned.fusions] == [mine[-1] for mine in tried.values()]
