"""Remembered plans: found again in another process, harmless when damaged, not used for another program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import codegen
import hlo
from codegen.native import jit, object_cache
from codegen.native.signature import KernelSignature
from codegen.remembered import plans

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_NO_CACHE", raising=False)
    return tmp_path


def count_searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    from tiling.planning import planner

    calls: list[int] = []
    original = planner.best_tiles

    def counted(*args, **kwargs):  # type: ignore[no-untyped-def]
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(planner, "best_tiles", counted)
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
@pytest.mark.machine("avx512")
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


@pytest.mark.machine("avx512")
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


@pytest.mark.machine("avx512")
def test_autotune_reaches_the_kernels_after_one_that_it_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    import numpy as np

    module_of_autotune = importlib.import_module("codegen.tune.autotune")

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


LOADED = """
import pathlib, sys
import numpy as np
import codegen, hlo
module = hlo.load(sys.argv[1])
codegen.compile(module)
for name, found in sorted(sys.modules.items()):
    if name.partition(".")[0] in ("hlo", "indexing", "tiling", "codegen"):
        print(found.__file__)
"""


def test_every_file_that_plans_and_compiles_is_in_the_digests(folder: Path) -> None:
    """They once took the files of single folders by name, and missed the others."""
    from codegen.native.source_digest import sources

    command = [sys.executable, "-c", LOADED, str(EXAMPLES / "softmax.mlir")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=EXAMPLES.parent)
    used = {Path(line) for line in done.stdout.split()}
    assert len(used) > 100
    kernel, *others = ({*sources(p).values()} for p in ("codegen", "tiling", "indexing", "hlo"))
    planner = kernel.union(*others)
    assert used <= planner
    assert {p for p in used if "codegen" in p.parts} <= kernel
    assert {*(EXAMPLES.parent / "hlo" / "decompositions").glob("*.py")} <= planner


def test_the_digest_sees_every_change_of_a_file_and_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from codegen.native.source_digest import source_digest

    monkeypatch.syspath_prepend(tmp_path)
    room = tmp_path / "a_package" / "room"
    room.mkdir(parents=True)
    with pytest.raises(LookupError, match="a_package"):
        source_digest(["a_package"])
    first, second = tmp_path / "a_package" / "__init__.py", room / "deep.py"
    seen = set()
    for a, b in (("x = 1", "y = 2"), ("x = 1", "y = 3"), ("x = 2", "y = 3"), ("x = 2y", " = 3")):
        first.write_text(a)
        second.write_text(b)
        seen.add(source_digest(["a_package"]))
    second.rename(room / "other.py")
    seen.add(source_digest(["a_package"]))
    assert len(seen) == 5


def test_keys_of_plans_and_kernels_follow_the_digest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = hlo.load(EXAMPLES / "softmax.mlir")
    machine = codegen.calibrated_machine()
    signature, source = KernelSignature(()), "def kernel(begin, end):\n    pass\n"

    def keys() -> set[str]:
        return {plans._key(module, "main", machine), jit.kernel_key(source, signature, jit.default_target())}

    before = keys()
    assert keys() == before
    monkeypatch.setattr(plans, "planner_digest", lambda: "another")
    monkeypatch.setattr(jit, "_generator_digest", lambda: "another")
    assert not keys() & before
