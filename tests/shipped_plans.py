"""Plans of the shipped programs: each is made once in a process, whichever tests look at it."""

from __future__ import annotations

import functools
from pathlib import Path

import codegen
import hlo
import tiling
from tiling import Machine

MACHINE = Machine(cores=2, vector_bytes=64, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)


@functools.cache
def planned(path: Path, machine: Machine = MACHINE, kernels: bool = False) -> tiling.Plan:
    """The plan of a file's verified program, with `kernels` for what kernels can be written for. Plans do not change."""
    module = hlo.load(path)
    hlo.verify(module)
    return tiling.plan(module, machine=machine, supports=codegen.supports) if kernels else tiling.plan(module, machine=machine)
