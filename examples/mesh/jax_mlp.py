"""A layer of JAX over a mesh, one process a device: mpiexec -n 4 python examples/mesh/jax_mlp.py"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import tilewright


def main() -> None:
    mesh = tilewright.Mesh({"x": 2, "y": 2})
    devices = AbstractMesh((2, 2), ("x", "y"))

    def along(*axes: str | None) -> NamedSharding:
        spec: Any = PartitionSpec
        return NamedSharding(devices, spec(*axes))

    @tilewright.jit(in_shardings=(along("x"), along(None, "y"), along("y")), out_shardings=along("x"))
    def mlp(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return jnp.tanh(x @ up) @ down

    chance = np.random.default_rng(0)
    x, up, down = (chance.normal(size=shape).astype(np.float32) / 8 for shape in ((64, 32), (32, 128), (128, 32)))
    # Whole arrays, or arrays in tiles, here by a function of the slices that a process holds.
    rows = mesh.array(lambda at: x[at], ("x",), shape=x.shape)
    y = mlp(rows, up, down)
    print(y)
    assert np.allclose(y.gather(), np.tanh(x @ up) @ down, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()
