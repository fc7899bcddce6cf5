"""The example programs: made by the script beside them, compiled natively, in agreement with the evaluator and with JAX."""

from __future__ import annotations

import importlib.util
import types

import numpy as np
import pytest

import codegen
import hlo
import interp
from tests.commands.command_line import ROOT
from tilewright.check import compare
from tilewright.inputs import random_arrays

NAMES = ("softmax", "layer_norm", "gelu_mlp", "causal_attention", "encoder_block")

# Sizes that no tile size divides, beside sizes that are smaller than any tile.
SMALL = {
    "softmax": [{"rows": 5, "columns": 7}, {"rows": 67, "columns": 1003}],
    "layer_norm": [{"rows": 3, "columns": 9}, {"rows": 130, "columns": 515}],
    "gelu_mlp": [{"rows": 4, "model": 6, "hidden": 10}, {"rows": 37, "model": 65, "hidden": 131}],
    "causal_attention": [{"heads": 2, "seq": 9, "width": 4}, {"batch": 2, "heads": 3, "seq": 147, "width": 24}],
    "encoder_block": [
        {"seq": 5, "model": 12, "heads": 3, "hidden": 20},
        {"seq": 77, "model": 60, "heads": 5, "hidden": 150},
    ],
}


def make_examples() -> types.ModuleType:
    """The script under `examples/`, which imports JAX."""
    spec = importlib.util.spec_from_file_location("make_examples", ROOT / "examples" / "make_examples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up by name.
    import sys

    sys.modules["make_examples"] = module
    spec.loader.exec_module(module)
    return module


def jax_results(name: str, sizes: dict[str, int], arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    import jax

    function, _ = make_examples().resolve(name, sizes)
    return [np.asarray(x) for x in jax.tree.leaves(jax.jit(function)(*arrays))]


def test_every_shipped_program_is_listed() -> None:
    assert sorted(p.stem for p in (ROOT / "examples").glob("*.mlir")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_programs_parse_verify_and_print(name: str) -> None:
    module = hlo.load(ROOT / "examples" / f"{name}.mlir")
    hlo.verify(module)
    again = hlo.parse(str(module))
    hlo.verify(again)
    assert str(again) == str(module)


@pytest.mark.jax
@pytest.mark.parametrize("name", NAMES)
def test_the_script_makes_the_shipped_program(name: str) -> None:
    import jax

    text = make_examples().lower(name)
    if jax.__version__ == "0.10.2":
        assert text == (ROOT / "examples" / f"{name}.mlir").read_text("utf-8")
    shipped = hlo.load(ROOT / "examples" / f"{name}.mlir").entry
    assert hlo.parse(text).entry.type == shipped.type


@pytest.mark.jax
@pytest.mark.parametrize(("name", "sizes"), [(n, s) for n in NAMES for s in SMALL[n]])
def test_small_programs_agree_with_the_evaluator_and_with_jax(name: str, sizes: dict[str, int]) -> None:
    module = hlo.parse(make_examples().lower(name, **sizes))
    hlo.verify(module)
    arrays = random_arrays(module.entry, 11)
    executable = codegen.compile(module)
    assert executable
    assert not executable.fallbacks
    results = executable(*arrays)
    for label, expected in (("evaluator", interp.evaluate(module, *arrays)), ("JAX", jax_results(name, sizes, arrays))):
        assert len(expected) == len(results)
        for a, b in zip(results, expected, strict=True):
            c = compare(a, np.asarray(b))
            assert c.passed, f"{label}: {c}"


@pytest.mark.jax
@pytest.mark.parametrize("name", NAMES)
def test_shipped_programs_agree_with_the_evaluator_and_with_jax(name: str) -> None:
    module = hlo.load(ROOT / "examples" / f"{name}.mlir")
    arrays = random_arrays(module.entry, 0)
    executable = codegen.compile(module)
    assert executable
    assert not executable.fallbacks
    (result,) = executable(*arrays)
    (evaluated,) = interp.evaluate(module, *arrays)
    (from_jax,) = jax_results(name, {}, arrays)
    for label, expected in (("evaluator", evaluated), ("JAX", from_jax)):
        c = compare(result, np.asarray(expected))
        assert c.passed, f"{label}: {c}"
