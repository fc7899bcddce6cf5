"""The print of a program's plan and kernels for a named machine, the same on every computer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from codegen.call.program.assembly import Assembly
from codegen.call.program.nodes import Compute, below
from codegen.call.program.whole_loops import with_whole_loops
from codegen.source.emit import PhaseSource
from codegen.supports import supports
from hlo import Module
from tiling import Buffer, Machine, Plan, plan

# Two machines that no setting, calibration or computer changes: vectors of AVX2 on two cores, of AVX-512 on sixteen.
MACHINES = {
    "avx2": Machine(
        cores=2, vector_bytes=32, vector_registers=16, fma_per_cycle=2, hertz=3.0e9, l1_bytes=32 << 10, l2_bytes=1 << 20,
        l3_bytes=16 << 20, l1_bytes_per_second=150e9, l2_bytes_per_second=80e9, l3_bytes_per_second=40e9,
        memory_bytes_per_second=40e9, launch_seconds=5e-6, rows_at_a_time=4,
    ),
    "avx512": Machine(
        cores=16, vector_bytes=64, vector_registers=32, fma_per_cycle=2, hertz=3.0e9, l1_bytes=48 << 10, l2_bytes=2 << 20,
        l3_bytes=64 << 20, l1_bytes_per_second=250e9, l2_bytes_per_second=120e9, l3_bytes_per_second=50e9,
        memory_bytes_per_second=160e9, launch_seconds=8e-6,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Print:
    """A program's plan, the reasons for it, and the source of its kernels."""

    program: str
    plan: str
    kernels: str
    counts: str

    @property
    def text(self) -> str:
        """Plan and kernels, as they are kept for the programs that are shipped."""
        return f"{self.plan}\n\n{self.kernels}"

    @property
    def row(self) -> str:
        """Counts and digests, as they are kept for all others."""
        return f"{self.counts}; plan {digest(self.plan)}, kernels {digest(self.kernels)}, program {digest(self.program)}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def printed(module: Module, machine: str = "avx2") -> Print:
    """What the compiler makes of the module's main function on a machine of `MACHINES`; nothing is compiled."""
    made = plan(module, "main", MACHINES[machine], supports)
    sources = kernels(made)
    counts = f"{len(sources)} kernels, {len(made.fallbacks)} evaluated"
    return Print(str(module), "\n\n".join(p.explain() for p in made.nested()), "\n\n".join(sources), counts)


def kernels(made: Plan) -> list[str]:
    """The kernels of a plan, those of its loops' bodies too."""
    assembly = Assembly(made)
    computes = [n for n in below(with_whole_loops(assembly.nodes, assembly.sizes)) if isinstance(n, Compute)]
    return [_kernel(n.name, n.source) for n in computes]


def _kernel(name: str, source: PhaseSource) -> str:
    lines = [f"# {name}: {source.tasks} tasks{', long' if source.is_long else ''}"]
    for what, buffers in (("written", source.written), ("walked", source.walked), ("scratch", source.scratch),
                          ("local", source.local)):  # fmt: skip
        if buffers:
            lines.append(f"# {what}: {', '.join(sorted(map(_buffer, buffers)))}")
    return "\n".join([*lines, source.source.rstrip("\n")])


def _buffer(b: Buffer) -> str:
    return f"{b.name} {b.element}{list(b.shape)}"
