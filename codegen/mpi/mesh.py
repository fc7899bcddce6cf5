"""`tilewright.Mesh`: the processes that MPI has started, as rows and columns with names."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from codegen.call.processes import Processes
from codegen.mpi.errors import MeshError
from codegen.remembered.network import calibrated_network
from hlo.module import Module
from tiling import Plan
from tiling.mesh import kept
from tiling.mesh.annotations import has_annotations
from tiling.mesh.arrays import ShardedArray, sharding_along
from tiling.mesh.mesh import Mesh as Axes
from tiling.mesh.partition import Partitioned, partition

__all__ = ["GENERATION", "Mesh", "grid_of"]

GENERATION = 1
"""Raised with every change after which two processes could not talk."""


class Mesh(Axes):
    """Named axes and their sizes, of processes that `mpiexec -n SIZE` has started: `tilewright.compile(module, mesh=mesh)`.

    A program's ids of replicas and partitions are those of the axes `replica` and `partition` where the mesh has these; else the
    module's `mhlo.num_replicas` and `mhlo.num_partitions` decide, and without them every process is a replica.

    >>> mesh = Mesh({"x": 2, "y": 4})
    >>> mesh.size, mesh.place(6)
    (8, {'x': 1, 'y': 2})
    """

    # ------------------------------------------------------------ arrays

    def array(
        self, given: Any, spec: Sequence[str | Sequence[str] | None] = (), shape: Sequence[int] | None = None
    ) -> ShardedArray:
        """An array spread along the axes that `spec` names for each dimension (None: whole), as in JAX's PartitionSpec.

        `given` is the whole array, of which each process takes its tile, or, with a `shape`, a function that makes the tile of
        some slices: for arrays that no process could hold. All processes call it alike. Raises ShardingError for a spec that
        does not go with the shape, and MeshError without MPI.
        """
        channel = self._channel()
        if shape is None:
            given = np.asarray(given)
            shape = given.shape
        make = given.__getitem__ if isinstance(given, np.ndarray) else given
        sharding = sharding_along(self, spec, len(shape))
        return ShardedArray.made(shape, sharding, self, channel.rank, channel.gather, make)

    def load(self, folder: str | os.PathLike[str], spec: Sequence[str | Sequence[str] | None] = ()) -> ShardedArray:
        """An array that `save` wrote, on this mesh or another, spread along the axes that `spec` names. All processes call it."""
        channel = self._channel()
        rank = len(json.loads((pathlib.Path(folder) / "index.json").read_text("utf-8"))["shape"])
        return kept.load(folder, sharding_along(self, spec, rank), self, channel.rank, channel.gather)

    def save(self, array: ShardedArray, folder: str | os.PathLike[str]) -> None:
        """Writes an array: one .npy for each tile, and an index with checksums (`tiling.mesh.kept`). All processes call it."""
        kept.save(array, folder)

    def _channel(self) -> Any:
        if importlib.util.find_spec("mpi4py") is None:
            raise MeshError("arrays on many processes need MPI: pip install 'tilewright[mpi]'")
        from codegen.mpi.channel import the_channel

        found = the_channel()
        if found.size != self.size:
            raise MeshError(f"the mesh {self} has {self.size} processes, MPI runs {found.size}")
        return found

    # ------------------------------------------------------------ programs

    def partitioned(self, module: Module, entry: str) -> Partitioned | None:
        """What each process runs of a program in the global view; None for one that is each process's already."""
        return partition(module, entry, self, calibrated_network()) if has_annotations(module) else None

    def join(
        self,
        plan: Plan,
        compile: Callable[[Module], Callable[..., Any]],
        is_partitioned: bool = False,
        infeed: Sequence[str] = (),
    ) -> Processes:
        """This process of the grid, once all have found that they run the same program.

        Of a program that was partitioned for this mesh, all processes are partitions, whatever the axes are called.

        Raises MeshError where MPI is not installed or runs another number of processes, or where they differ, and says how.
        """
        if importlib.util.find_spec("mpi4py") is None:
            raise MeshError("programs on many processes need MPI: pip install 'tilewright[mpi]'")
        from codegen.mpi.processes import MpiProcesses

        text = hashlib.sha256(str(plan.module).encode()).hexdigest()[:16]
        names = {
            "version": _versions(), "mesh": str(self), "program": f"@{plan.program.name} of {text}",
            "machine that is planned for": str(plan.machine),
        }  # fmt: skip
        if is_partitioned:
            names["network that is planned for"] = str(calibrated_network())
        grid = (1, self.size) if is_partitioned else grid_of(plan.module, self)
        made = MpiProcesses(grid, compile, names, infeed)
        made.start(plan)
        return made


def grid_of(module: Module, mesh: Axes) -> tuple[int, int]:
    """How many replicas and partitions a module's processes are. Raises MeshError where the mesh has another number.

    >>> import hlo
    >>> module = hlo.parse("module attributes {mhlo.num_partitions = 4 : i32} { func.func @main() { return } }")
    >>> grid_of(module, Mesh({"x": 4}))
    (1, 4)
    """
    axes = dict(mesh.axes)
    if set(axes) <= {"replica", "partition"}:
        return axes.get("replica", 1), axes.get("partition", 1)
    replicas, partitions = (_number(module.attributes.get(f"mhlo.num_{w}")) for w in ("replicas", "partitions"))
    if replicas * partitions == mesh.size:
        return replicas, partitions
    if replicas * partitions != 1:
        raise MeshError(f"the program is for {replicas} x {partitions} replicas and partitions, the mesh {mesh} has {mesh.size}")
    return mesh.size, 1


def _versions() -> str:
    """What two processes must have alike, to exchange and to compute alike."""
    others = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba"))
    return f"generation {GENERATION}, {others}"


def _number(value: object) -> int:
    found = getattr(value, "value", value)
    return found if isinstance(found, int) else 1
