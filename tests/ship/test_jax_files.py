"""JAX functions as files: called as the function is, with its trees, where JAX is not."""

from __future__ import annotations

import collections
import pathlib
from typing import Any

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


def test_what_a_file_cannot_say_is_refused(tmp_path: pathlib.Path) -> None:
    pair = collections.namedtuple("pair", "a b")
    x = np.ones(3, np.float32)
    with pytest.raises(tilewright.TilewrightError, match=r"results: a pair is no tuple, list or dictionary by names"):
        tilewright.jit(lambda x: pair(x, x)).save(tmp_path / "pair.tw", x)
    with pytest.raises(tilewright.TilewrightError, match="static arguments are not arrays"):
        tilewright.jit(lambda x, n: x * n, static_argnums=1).save(tmp_path / "static.tw", x, 3)
    assert not list(tmp_path.iterdir())
