"""The table of docs/own-target.md: what each way out says of the shipped programs' kernels, and by name what it does not."""

from __future__ import annotations

import pathlib
from collections import Counter

import pytest

from codegen.c.source import c_source
from codegen.call.program.assembly import Assembly
from codegen.call.program.nodes import Compute, below
from codegen.call.program.whole_loops import with_whole_loops
from codegen.kernel.print_numba import print_numba
from codegen.native.lower import python_function
from codegen.target import Target
from hlo.errors import Declined
from indexing.show.affine import affine_map
from tests.goldens.prints import MACHINES
from tests.goldens.programs import FILES
from tests.shipped_plans import planned
from tiling import Plan, as_linalg, as_mlir, isl_schedule, loops_text

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "own-target.md"
AVX2 = Target.from_features("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx,+avx2,+fma,+f16c,+sse,+sse2")


def named(reason: str) -> str:
    """A reason without the names of one program's values."""
    return "an index that is a greatest or least of others" if reason.startswith("the index max") else reason


def rows(plans: list[Plan]) -> list[str]:
    """The table's rows: way, said, declined with reasons."""
    fusions = [(p, f) for plan in plans for p in plan.nested() for f in p.fusions]
    kernels = [
        n.source.kernel for plan in plans for a in [Assembly(plan)]
        for n in below(with_whole_loops(a.nodes, a.sizes)) if isinstance(n, Compute)
    ]  # fmt: skip
    edges = [m for p in plans for f in p.fusions for m in (r.map for r in f.reads)]
    ways = {
        "loops as text (`tiling.loops_text`)": [loops_text(p, f.name) for p, f in fusions],
        "MLIR (`tiling.as_mlir`)": [as_mlir(f.schedule, f.name) for _, f in fusions],
        "MLIR with linalg (`tiling.as_linalg`)": [as_linalg(f.schedule, f.name) for _, f in fusions],
        "isl's schedule trees (`tiling.isl_schedule`)": [isl_schedule(f.schedule) for _, f in fusions],
        "index maps as `affine_map` (`indexing.affine_map`)": [affine_map(m) for m in edges],
        "C (`codegen.c.source.c_source`)": [c_source(k, AVX2) for k in kernels],
        "Python with NumPy (`kernel.function`)": [python_function(print_numba(k), "<kernel>") for k in kernels],
    }
    made = []
    for way, found in ways.items():
        declined = Counter(named(x.reason) for x in found if isinstance(x, Declined))
        why = "; ".join(f"{reason} ({n})" for reason, n in sorted(declined.items())) or "-"
        made.append(f"| {way} | {len(found) - sum(declined.values())} of {len(found)} | {why} |")
    return made


@pytest.mark.slow
def test_the_table_of_ways_out_is_what_they_say() -> None:
    plans = [planned(path, MACHINES["avx2"], kernels=True) for path in FILES.values()]
    page = PAGE.read_text("utf-8").splitlines()
    missing = [row for row in rows(plans) if row not in page]
    assert not missing, "\n".join(missing)
