"""JAX functions as files: called as the function is, with its trees, where JAX is not."""

from __future__ import annotations

import dataclasses
import pathlib
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright
import tilewright_runtime
from tests.ship.shipping import needs_linker
from tilewright_runtime.trees import TreeError

pytestmark = [pytest.mark.jax, needs_linker]


def layer(params: dict[str, Any], x: Any, *, scale: Any) -> dict[str, Any]:
    y = x @ params["w"] + params["b"][0]
    return {"y": y * scale, "parts": (y.sum(), [x, None])}


def test_a_function_is_called_as_it_was(tmp_path: pathlib.Path) -> None:
    draw = np.random.default_rng(0)
    params = {"w": draw.standard_normal((8, 4), np.float32), "b": (draw.standard_normal(4, np.float32),)}
    x, scale = draw.standard_normal((3, 8), np.float32), np.float32(2.5)
    function = tilewright.jit(layer, output="numpy")
    expected = function(params, x, scale=scale)
    function.save(tmp_path / "layer.tw", params, x, scale=scale)
    program: Any = tilewright.load(tmp_path / "layer.tw")
    found = program(params, x, scale=scale)
    assert list(found) == ["y", "parts"] or sorted(found) == ["parts", "y"]
    assert found["parts"][1][1] is None and isinstance(found["parts"], tuple) and isinstance(found["parts"][1], list)
    for a, b in ((found["y"], expected["y"]), (found["parts"][0], expected["parts"][0]), (found["parts"][1][0], x)):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    with pytest.raises(TreeError, match=r"arguments\[0\]\[0\]: expected a dictionary of b, w, found \['w'\]"):
        program({"w": params["w"]}, x, scale=scale)
    with pytest.raises(TreeError, match=r"arguments\[0\]: expected a tuple of 2, found tuple of 1"):
        program(params, scale=scale)


def test_several_shapes_in_one_step(tmp_path: pathlib.Path) -> None:
    """A function of any number of rows: one file, an entry for each number that it is asked for."""
    function = tilewright.jit(lambda x, p: {"y": x @ p["w"]}, output="numpy")
    p = {"w": np.arange(12, dtype=np.float32).reshape(4, 3)}
    rows = [np.random.default_rng(n).standard_normal((n, 4), np.float32) for n in (1, 3, 8)]
    function.save_for(tmp_path / "rows.tw", [(x, p) for x in rows])
    program: Any = tilewright.load(tmp_path / "rows.tw")
    for x in rows:
        assert program(x, p)["y"].tobytes() == np.asarray(function(x, p)["y"]).tobytes()
    with pytest.raises(tilewright_runtime.ArrayError, match=r"no entry of .*rows.tw takes these arguments: .*f32.1, 4.*f32.8, 4"):
        program(np.ones((2, 4), np.float32), p)
    with pytest.raises(ValueError, match="at least one call"):
        function.save_for(tmp_path / "none.tw", [])


class Moments(NamedTuple):
    mu: Any
    nu: Any


@dataclasses.dataclass
class Layer:
    w: Any
    moments: Any
    scale: float = 2.0


class Bare:
    """A node whose parts have no names."""

    part: Any = None


def bare(x: Any) -> Bare:
    made = Bare()
    made.part = x
    return made


def test_named_tuples_and_dataclasses_are_taken_by_the_names_of_their_parts(tmp_path: pathlib.Path) -> None:
    """The state of an optimizer, and JAX's own results of several parts; static fields are the program's."""
    import jax

    jax.tree_util.register_dataclass(Layer, data_fields=["w", "moments"], meta_fields=["scale"])

    def step(layer: Layer, x: Any) -> tuple[Layer, Any]:
        m = Moments(layer.moments.mu + x.sum(), None)
        return Layer(layer.w * layer.scale, m, layer.scale), jax.numpy.linalg.qr(x)

    x = np.random.default_rng(0).standard_normal((4, 4), np.float32)
    layer = Layer(x[0], Moments(np.float32(3), None), scale=0.5)
    function = tilewright.jit(step, output="numpy")
    expected, qr = function(layer, x)
    function.save(tmp_path / "step.tw", layer, x)
    program: Any = tilewright.load(tmp_path / "step.tw")
    found, parts = program(layer, x)
    assert type(found).__name__ == "Layer" and found._fields == ("w", "moments") and found.moments.nu is None
    assert found.w.tobytes() == np.asarray(expected.w).tobytes() and found.moments.mu == expected.moments.mu
    assert parts._fields == ("Q", "R") and parts.R.tobytes() == np.asarray(qr.R).tobytes()
    again, _ = program(pickle.loads(pickle.dumps(found)), x)  # a result is an argument of the next step
    assert again.w.tobytes() == np.asarray(expected.w * np.float32(0.5)).tobytes()
    with pytest.raises(TreeError, match=r"arguments\[0\]\[0\]\.moments: expected a Moments of mu, nu, found tuple"):
        program(Layer(x[0], (x[0, 0], None)), x)


def test_python_numbers_are_scalars_of_their_kind(tmp_path: pathlib.Path) -> None:
    function = tilewright.jit(lambda x, n, s, up: (x * s + n) * up, output="numpy")
    x = np.arange(6, dtype=np.float32)
    function.save(tmp_path / "f.tw", x, 3, 0.5, True)
    program: Any = tilewright.load(tmp_path / "f.tw")
    assert program(x, 7, 1.5, False).tobytes() == np.asarray(function(x, 7, 1.5, False)).tobytes()
    for wrong, message in (((x, 7.0, 1.5, True), "argument 1 .*expected i32"), ((x, 1, 2, True), "argument 2 .*expected f32"),
                           ((x, 1, 1.5, 1), "argument 3 .*expected i1"), ((x, 1 << 40, 1.5, True), "outside of its type"),
                           ((2.0, 1, 1.5, True), "argument 0 .*expected f32.6")):  # fmt: skip
        with pytest.raises(tilewright_runtime.ArrayError, match=message):
            program(*wrong)


def test_what_a_file_cannot_say_is_refused(tmp_path: pathlib.Path) -> None:
    import jax

    jax.tree_util.register_pytree_node(Bare, lambda bare: ((bare.part,), None), lambda _, parts: Bare())
    x = np.ones(3, np.float32)
    with pytest.raises(tilewright.TilewrightError, match=r"results: a Bare is no tuple, list or dictionary, and its parts"):
        tilewright.jit(bare).save(tmp_path / "bare.tw", x)
    with pytest.raises(tilewright.TilewrightError, match=r"a dictionary with the key True: keys are text or whole numbers"):
        tilewright.jit(lambda p: p[True]).save(tmp_path / "key.tw", {True: x})
    with pytest.raises(tilewright.TilewrightError, match="static arguments are not arrays"):
        tilewright.jit(lambda x, n: x * n, static_argnums=1).save(tmp_path / "static.tw", x, 3)
    assert not list(tmp_path.iterdir())
