"""`tilewright.Mesh`: the processes that MPI has started, as rows and columns with names."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from codegen.call.processes import Processes
from codegen.mpi.errors import MeshError
from hlo.module import Module
from tiling import Plan
from tiling.mesh.annotations import has_annotations
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

    def partitioned(self, module: Module, entry: str) -> Partitioned | None:
        """What each process runs of a program in the global view; None for one that is each process's already."""
        return partition(module, entry, self) if has_annotations(module) else None

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
