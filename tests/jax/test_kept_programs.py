"""Programs in the disk cache: what is restored from its record runs as what was compiled, and shows the same when it is asked."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import tilewright
from codegen.call.recorded import RestoredExecutable, recorded, restored
from codegen.native import jit, library_objects
from codegen.remembered import plans
from hlo.errors import Declined
from hlo.registry import Move
from indexing.caches import Memo
from indexing.deriving import edges
from tests.added_ops import add_op, program
from tilewright.jax import first_call, kept_programs
from tilewright.jax.first_call import parsed

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax.numpy as jnp
    from jax import lax


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(jit, "_kernels", {})
    monkeypatch.setattr(library_objects, "_loaded", {})
    return tmp_path


def forget() -> None:
    """As in another process: nothing is in memory."""
    jit._kernels.clear()
    library_objects._loaded.clear()


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("it was compiled anew")


LOOP = """
func.func @main(%x: tensor<40x24xf32>, %n: tensor<i32>, %which: tensor<i32>) -> (tensor<40x24xf32>, tensor<24xf32>, tensor<i32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %w = stablehlo.constant dense<[0.5, 0.25, 0.125]> : tensor<3xf32>
  %i, %y, %z = stablehlo.while(%a = %zero, %b = %x, %c = %x) : tensor<i32>, tensor<40x24xf32>, tensor<40x24xf32>
  cond {
    %t = stablehlo.compare LT, %a, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %next = stablehlo.add %a, %one : tensor<i32>
    %s = stablehlo.tanh %b : tensor<40x24xf32>
    %u = stablehlo.add %s, %c : tensor<40x24xf32>
    stablehlo.return %next, %u, %b : tensor<i32>, tensor<40x24xf32>, tensor<40x24xf32>
  }
  %ws = stablehlo.slice %w [0:1] : (tensor<3xf32>) -> tensor<1xf32>
  %ww = stablehlo.broadcast_in_dim %ws, dims = [0] : (tensor<1xf32>) -> tensor<24xf32>
  %r = "stablehlo.case"(%which) ({
    stablehlo.return %ww : tensor<24xf32>
  }, {
    %e = stablehlo.exponential %ww : tensor<24xf32>
    stablehlo.return %e : tensor<24xf32>
  }) : (tensor<i32>) -> tensor<24xf32>
  return %y, %r, %i : tensor<40x24xf32>, tensor<24xf32>, tensor<i32>
}
"""
LARGE = """
func.func @main(%x: tensor<600x512xf32>, %w: tensor<512x256xf32>) -> tensor<600x256xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<600x512xf32>, tensor<512x256xf32>) -> tensor<600x256xf32>
  %1 = stablehlo.tanh %0 : tensor<600x256xf32>
  return %1 : tensor<600x256xf32>
}
"""


def arguments(module: hlo.Module) -> list[Any]:
    rng = np.random.default_rng(0)
    types = [v.tensor for v in module.function().arguments]
    return [rng.standard_normal(t.static_shape).astype(t.dtype) if t.rank else np.array(1, t.dtype) for t in types]


@pytest.mark.parametrize("text", [LOOP, LARGE], ids=["loop", "large"])
def test_a_restored_program_computes_and_shows_the_same(cache: Path, text: str) -> None:
    module = hlo.parse(text)
    compiled = codegen.compile(module)
    assert not compiled.fallbacks and not compiled.library
    data = recorded(compiled)
    assert isinstance(data, bytes)
    given = arguments(module)
    wanted = compiled(*given)
    forget()
    runs = restored(data, never)
    assert not isinstance(runs, Declined)
    for _ in range(2):
        for a, b in zip(runs(*given), wanted, strict=True):
            assert a.tobytes() == b.tobytes()
    asked = []
    shows = restored(data, lambda: asked.append(1) or codegen.compile(hlo.parse(text)))
    assert not isinstance(shows, Declined)
    assert shows.source == compiled.source and len(shows.kernels) == len(compiled.kernels)
    assert [t.name for t in shows.timeline(*given)[1]] == [t.name for t in compiled.timeline(*given)[1]]
    assert asked == [1]
    with pytest.raises(codegen.ArgumentError, match="expected"):
        shows(*given[1:])
    with pytest.raises(AttributeError, match="no_such"):
        _ = shows.no_such


def test_two_threads_may_ask_for_what_a_restored_program_lacks(cache: Path) -> None:
    """One asks while the other one's compile ends: what it looked for in vain is there by then."""
    compiled = codegen.compile(hlo.parse(LARGE))
    data = recorded(compiled)
    assert isinstance(data, bytes)
    found = restored(data, lambda: codegen.compile(hlo.parse(LARGE)))
    assert isinstance(found, RestoredExecutable)
    late = found.__getattr__  # its lookup has failed already
    assert found.plan is late("plan") and type(found) is codegen.Executable
    with pytest.raises(AttributeError, match="nothing"):
        late("nothing")


def test_a_record_without_its_kernels_or_of_another_form_is_not_used(cache: Path) -> None:
    data = recorded(codegen.compile(hlo.parse(LARGE)))
    assert isinstance(data, bytes)
    for bad in (b"", b"12345678", data[:40], data.replace(b'"kernels"', b'"carnels"')):
        assert isinstance(restored(bad, never), Declined)
    forget()
    for path in (cache / "objects").iterdir():
        path.unlink()
    found = restored(data, never)
    assert isinstance(found, Declined) and "gone" in found.reason


def test_calls_that_are_no_data_have_no_record(cache: Path) -> None:
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n %0 = stablehlo.custom_call @mine(%x) : (tensor<4xf32>)"
    text += " -> tensor<4xf32>\n return %0 : tensor<4xf32> }"
    module = hlo.parse(text)
    found = recorded(codegen.compile(module, custom_calls={"mine": lambda op, x: x}))
    assert isinstance(found, Declined) and "library" in found.reason


def test_a_program_with_an_op_of_another_package_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was, by its text: when the op's access function was another one, the program of the old one ran."""

    def shifted(by: int) -> Any:
        return lambda op, output, d, ix: ix.read(0, ((d[0] + by) % 9, d[1]))

    x, found = np.arange(36, dtype=np.float32).reshape(9, 4), []
    for by in (1, 2):
        forget()
        with monkeypatch.context() as patch:
            patch.setattr(edges, "_KNOWN", Memo(8))  # as in another process
            add_op(patch, "example.shifted", shifted(by), Move())
            module = program("example.shifted")
            assert module.source is not None and kept_programs.find(module.source.text, None) is None
            executable = codegen.compile(module)
            found.append(executable(x)[0])
            kept_programs.keep(module, None, executable)
            assert first_call._effect(module) == "it has example.shifted, which another process does not know"
    for by, y in zip((1, 2), found, strict=True):
        np.testing.assert_array_equal(y, np.roll(x, -by, 0))


def test_what_is_kept_holds_for_the_settings_that_it_was_made_with(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = parsed(LARGE)
    executable = codegen.compile(module)
    kept_programs.keep(module, None, executable)
    found = kept_programs.find(LARGE, None)
    assert found is not None and found.record and found.donated == (False, False)
    assert kept_programs.find(LARGE, 1) is None and kept_programs.find(LARGE + " ", None) is None
    for name, value in (
        ("TILEWRIGHT_SKIP", "merge_nests"), ("TILEWRIGHT_EXCESS_PRECISION", "allow"), ("TILEWRIGHT_DEBUG", "guard"),
        ("TILEWRIGHT_PRINT", "changed"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
        assert kept_programs.find(LARGE, None) is None, name
        monkeypatch.delenv(name)
    assert kept_programs.find(LARGE, None) is not None
    plans.remember(module, "main", dataclasses.replace(executable.plan))
    assert kept_programs.find(LARGE, None) is None, "another plan was chosen since"


@pytest.mark.jax
def test_a_second_process_neither_parses_nor_plans(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any, k: Any) -> Any:
        return {"y": lax.fori_loop(0, 3, lambda i, v: jnp.tanh(v) + k, x), "same": k, "n": x.shape[0] * 1.5}

    x, k = np.linspace(0, 1, 52, dtype=np.float32).reshape(4, 13), np.float32(2)
    wanted = tilewright.jit(f, output="numpy")(x, k)
    forget()
    monkeypatch.setattr(codegen, "compile", never)
    monkeypatch.setattr(hlo, "parse", never)
    again = tilewright.jit(f, donate_argnums=(), output="numpy")
    for _ in range(2):
        found = again(x, k)
        assert {n: np.asarray(v).tobytes() for n, v in found.items()} == {n: np.asarray(v).tobytes() for n, v in wanted.items()}
    monkeypatch.undo()
    assert again.executable(x, k).plan.program.ops and again.lower(x, k).functions


@pytest.mark.jax
def test_a_second_process_calls_through_jax_without_planning(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What JAX's own call needs is in the record: sizes and constants, not the plan."""
    def f(x: Any) -> Any:
        return jnp.tanh(x).sum(0), jnp.arange(3.0), x

    x = jnp.linspace(0, 1, 52).reshape(4, 13)
    wanted = tilewright.jit(f)(x)
    forget()
    monkeypatch.setattr(codegen, "compile", never)
    again = tilewright.jit(f)
    for _ in range(3):
        assert [np.asarray(v).tobytes() for v in again(x)] == [np.asarray(v).tobytes() for v in wanted]
    assert again._front is not None and again._front.served >= 1
