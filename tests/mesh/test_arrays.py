"""Arrays in tiles: who holds what, as files and back, and functions of JAX over a mesh."""

from __future__ import annotations

import json
import pathlib
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.mesh.launch import run
from tiling.mesh import kept
from tiling.mesh.arrays import ShardedArray, ShardingError, sharding_along
from tiling.mesh.mesh import Mesh


def on_threads(count: int, process: Callable[[int, Callable[[np.ndarray], list[np.ndarray]]], object]) -> list[object]:
    """What `process(number, exchange)` gives on each of some threads, which take the place of processes."""
    everyone = threading.Barrier(count)
    told: list[np.ndarray] = [np.empty(0)] * count
    found: list[object] = [None] * count

    def body(p: int) -> None:
        def exchange(array: np.ndarray) -> list[np.ndarray]:
            told[p] = array
            everyone.wait(60)
            made = list(told)
            everyone.wait(60)
            return made

        found[p] = process(p, exchange)

    threads = [threading.Thread(target=body, args=(p,)) for p in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    return found


def test_a_sharded_array_is_saved_and_read_on_other_meshes(tmp_path: pathlib.Path) -> None:
    whole = np.arange(35, dtype=np.float32).reshape(5, 7)
    four, eight = Mesh({"x": 2, "y": 2}), Mesh({"z": 8})

    def save(p: int, exchange: Callable[[np.ndarray], list[np.ndarray]]) -> object:
        made = ShardedArray.made((5, 7), sharding_along(four, ("x",), 2), four, p, exchange, whole.__getitem__)
        assert made.tile.base is not None and np.array_equal(made.gather(), whole)
        kept.save(made, tmp_path)
        return made.is_owner

    assert on_threads(4, save) == [True, False, True, False]
    assert len(list(tmp_path.iterdir())) == 3  # two tiles, each by one of those that hold it

    def load(p: int, exchange: Callable[[np.ndarray], list[np.ndarray]]) -> object:
        found = kept.load(tmp_path, sharding_along(eight, (None, "z"), 2), eight, p, exchange)
        return found.tile.shape == (5, 1 if p < 7 else 0) and np.array_equal(found.gather(), whole)

    assert on_threads(8, load) == [True] * 8

    index = json.loads((tmp_path / "index.json").read_text("utf-8"))
    (tmp_path / "index.json").write_text(json.dumps({**index, "tiles": index["tiles"][:1]}), "utf-8")
    with pytest.raises(ShardingError, match=r"expected 35 elements at .*, found 21"):
        kept.load(tmp_path, None, Mesh({"x": 1}), 0, lambda a: [a])


@pytest.mark.jax
@pytest.mark.mpi
@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_functions_of_jax_over_a_mesh(tmp_path: pathlib.Path, n: int) -> None:
    """`tilewright.jit` with shardings of an AbstractMesh; arrays that are spread, in and out; files."""
    done = run(n, "-m", "tests.mesh.jax_jit", str(tmp_path), JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
