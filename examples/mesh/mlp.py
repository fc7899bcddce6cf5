"""The layers of `mlp.mlir` from Python, one process a device: mpiexec -n 4 python examples/mesh/mlp.py"""

from __future__ import annotations

import pathlib

import numpy as np

import tilewright


def main() -> None:
    module = tilewright.parse(pathlib.Path(__file__).with_name("mlp.mlir").read_text("utf-8"))
    run = tilewright.compile(module, mesh=tilewright.Mesh({"x": 2, "y": 2}))
    chance = np.random.default_rng(0)
    x, up, down = (chance.normal(size=shape).astype(np.float32) / 8 for shape in ((64, 32), (32, 128), (128, 32)))
    # Whole arrays, of which each process takes its tile; a function makes the tile alone, of what no process could hold whole.
    tiles = run(x, up, lambda at: down[at])
    (whole,) = run.gather(tiles)
    assert np.allclose(whole, np.tanh(x @ up) @ down, rtol=1e-4, atol=1e-5)
    if run.processes is not None and run.processes.process == (0, 0) and run.spread is not None:
        print(run.spread.explain())


if __name__ == "__main__":
    main()
