"""One process of the tests: runs every program of `tests.mesh.programs`, and those in the global view that are named.

    mpiexec -n 4 python -m tests.mesh.worker ["a stencil" ...]

Process 0 prints what differs, as JSON.
"""

from __future__ import annotations

import json
import sys

import numpy as np

import codegen
import hlo
import interp
from codegen.mpi.channel import the_channel
from codegen.mpi.mesh import Mesh
from tests.mesh.global_programs import PROGRAMS, GlobalProgram
from tests.mesh.programs import Case, cases
from tilewright.check import compare
from tilewright.inputs import random_arrays
from tiling.mesh.annotations import meshes_of


def faults(case: Case) -> list[str]:
    """What is wrong with a case's results on all processes; known to process 0 alone."""
    module = hlo.parse(case.text, case.name)
    hlo.verify(module)
    replicas, partitions = case.grid
    rank, n = the_channel().rank, replicas * partitions
    arrays = [random_arrays(module.entry, seed, module) for seed in range(n)]
    executable = codegen.compile(module, mesh=Mesh({"replica": replicas, "partition": partitions}), infeed=case.infeed)
    found = []
    if case.by_mpi and executable.fallbacks:
        found.append(f"runs in the evaluator: {executable.fallbacks}")
    if case.overlaps and not any("beside kernels" in step for step in executable.library):
        found.append(f"nothing runs beside its exchanges: {executable.library}")
    results = the_channel().gather([executable(*arrays[rank]) for _ in range(2)])
    if rank:
        return []
    grid, feed = [["main"] * partitions] * replicas, case.infeed * n
    expected = interp.run_parallel(module, grid, *(a for process in arrays for a in process), infeed=feed)
    for k in range(2):
        flat = [np.asarray(a) for process in results for a in process[k]]
        checks = [compare(a, np.asarray(b)) for a, b in zip(flat, expected, strict=True)]
        found += [f"run {k}, result {i}: {c}" for i, c in enumerate(checks) if not c.passed]
    return found


def global_faults(program: GlobalProgram) -> list[str]:
    """What is wrong with a program in the global view; every second process gives whole arrays, the others make their tiles."""
    module = hlo.parse(program.text, program.name)
    arrays = random_arrays(module.entry, 1, module)
    executable = codegen.compile(module, mesh=Mesh(dict(meshes_of(module)["m"].axes)))
    makes = the_channel().rank % 2 == 1
    given = [(lambda at, a=a: a[at]) if makes else a for a in arrays]
    results = executable.gather(executable(*given))
    expected = interp.evaluate(module, *arrays)
    checks = [compare(a, np.asarray(b)) for a, b in zip(results, expected, strict=True)]
    return [f"result {i}: {c}" for i, c in enumerate(checks) if not c.passed]


def main() -> None:
    found = {case.name: faults(case) for case in cases(the_channel().size)}
    found |= {p.name: global_faults(p) for p in PROGRAMS if p.name in sys.argv[1:]}
    if the_channel().rank == 0:
        json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
