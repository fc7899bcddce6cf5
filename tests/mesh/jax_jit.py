"""One process of the tests of `tilewright.jit` over a mesh: `mpiexec -n 2 (or 4) python -m tests.mesh.jax_jit FOLDER`."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import tilewright
from codegen.mpi.channel import the_channel
from tiling.mesh.arrays import ShardingError


def main(folder: pathlib.Path) -> None:
    rank, columns = the_channel().rank, the_channel().size // 2
    is_low = rank < columns
    grid, mesh = AbstractMesh((2, columns), ("x", "y")), tilewright.Mesh({"x": 2, "y": columns})
    chance = np.random.default_rng(0)
    w, b, x = (chance.normal(size=shape).astype(np.float32) for shape in ((6, 8), (8,), (5, 6)))

    def along(*names: str | None) -> NamedSharding:
        return NamedSharding(grid, P(*names))

    @tilewright.jit(in_shardings=({"w": along(None, "y"), "b": along("y")}, None), out_shardings=along(None, "y"))
    def layer(p: dict[str, Any], x: Any) -> Any:
        return {"y": jnp.tanh(x @ p["w"]) + p["b"]}

    expected = np.tanh(x @ w) + b
    # Whole arrays; then arrays that are spread: what nothing is said about stays as it is.
    y = layer({"w": w, "b": jnp.asarray(b)}, x)["y"]
    assert y.shape == (5, 8) and y.tile.shape == (5, 8 // columns) and y.slices[1].start == rank % columns * 4
    assert np.allclose(y.gather(), expected, atol=1e-5)
    spread = mesh.array(lambda at: x[at], ("x",), x.shape)
    assert spread.tile.shape == (3 if is_low else 2, 6)
    again = layer({"w": mesh.array(w, (None, "y")), "b": b}, spread)["y"]
    assert np.allclose(again.gather(), expected, atol=1e-5)
    sent = [[c.kind for c in layer.executable({"w": w, "b": b}, a).spread.communications] for a in (x, spread)]
    assert sent == [[], ["all_gather"]], sent

    # Inside of JAX's own transformations it is the function.
    tree = jax.eval_shape(lambda a: jax.grad(lambda q: layer({"w": q, "b": b}, x)["y"].sum())(a), jnp.asarray(w))
    assert tree.shape == w.shape

    # A body for one process, with its own collectives.
    def total(a: Any) -> Any:
        def own(part: Any) -> Any:
            return jax.lax.psum(part.sum(0, keepdims=True), "x") + jax.lax.axis_index("y")

        return jax.shard_map(own, mesh=grid, in_specs=P("x", "y"), out_specs=P(None, "y"))(a)

    z = tilewright.jit(total, mesh=mesh)(w)
    assert np.allclose(z.gather(), w.sum(0, keepdims=True) + np.repeat(np.arange(columns), 8 // columns), atol=1e-5)

    # Saved by four processes in tiles, read in others, or whole; a damaged file is told.
    mesh.save(again, folder / "y")
    back = mesh.load(folder / "y", ("x",))
    assert back.tile.shape[0] == (3 if is_low else 2) and np.array_equal(back.gather(), again.gather())
    assert np.array_equal(np.asarray(mesh.load(folder / "y")), again.gather())
    sixteen = mesh.array(x.astype(jnp.bfloat16), (("x", "y"),))
    mesh.save(sixteen, folder / "sixteen")
    assert np.array_equal(np.asarray(mesh.load(folder / "sixteen")), x.astype(jnp.bfloat16))
    names = sorted(p.name for p in (folder / "y").iterdir())
    if rank == 0:
        index = json.loads((folder / "y" / "index.json").read_text())
        assert names == sorted([*(t["file"] for t in index["tiles"]), "index.json"]) and len(names) == columns + 1
        path = folder / "y" / index["tiles"][0]["file"]
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    the_channel().gather(None)
    with pytest.raises(ShardingError, match="its checksum is another"):
        mesh.load(folder / "y")
    # An array that has to be spread otherwise is told, by all alike; after that nothing goes on.
    with pytest.raises(ShardingError, match=r"argument 1: expected tensor<6x8xf32> as .*, found <array"):
        layer({"w": mesh.array(w, ("x",)), "b": b}, x)
    if rank == 0:
        print("done")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
