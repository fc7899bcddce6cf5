"""Machines by name, for tests that look at plans, sources or vector sizes: `@pytest.mark.machine("avx512")` plans for one.

Results are computed on whatever is there: a plan for wide vectors runs on narrow ones, too.
"""

from __future__ import annotations

import random

from codegen.target import Target, host_target
from tiling.machine import Machine

MACHINES = {
    "avx512": Machine(cores=2, vector_bytes=64, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20),
    "avx2": Machine(cores=2, vector_bytes=32, vector_registers=16, l1_bytes=32 << 10, l2_bytes=512 << 10, l3_bytes=32 << 20),
    "baseline": Machine(cores=2, vector_bytes=16, vector_registers=16, l1_bytes=32 << 10, l2_bytes=256 << 10, l3_bytes=8 << 20),
}


def x86_targets() -> list[str]:
    """The named targets whose kernels this CPU runs, the widest first."""
    return [n for n in MACHINES if host_target().triple.startswith("x86_64") and not Target.named(n).missing_features]


def narrower_targets() -> list[str]:
    """Those that differ from the host's: narrower vectors, and the instructions that every x86-64 has."""
    return [n for n in x86_targets() if n == "baseline" or Target.named(n).vector_bytes < host_target().vector_bytes]


def any_machine(seed: int) -> Machine:
    """A machine drawn by lot: other caches, registers and cores lead to other tiles, fusions and loops."""
    choose = random.Random(seed)
    return Machine(
        cores=choose.choice([1, 2, 4, 8, 64]),
        vector_bytes=choose.choice([16, 32, 64]),
        vector_registers=choose.choice([16, 32]),
        l1_bytes=choose.choice([16, 32, 48, 64]) << 10,
        l2_bytes=choose.choice([128, 256, 512, 1024, 2048]) << 10,
        l3_bytes=choose.choice([1, 4, 8, 32, 64]) << 20,
        rows_at_a_time=choose.choice([1, 4]),
        byte_products=choose.choice([1, 4]),
        pair_products=choose.choice([1, 2]),
        launch_seconds=choose.choice([5e-7, 5e-6, 5e-5]),
    )
