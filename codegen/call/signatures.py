"""What a kernel's machine code is told of its arguments: types, alignment, and which of them go past the caches."""

from __future__ import annotations

from codegen.call.alignment import declared_alignment
from codegen.call.program.layout import in_lines
from codegen.native.signature import KernelSignature, Param, Scratch
from codegen.source.emit import PhaseSource
from tiling.machine import Machine

__all__ = ["kernel_signature", "scratch_places"]


def kernel_signature(source: PhaseSource, machine: Machine, gap_bytes: int = 0) -> KernelSignature:
    """The arguments of a kernel on a machine."""
    shared_bytes = machine.l3_bytes
    exceeds = sum(b.size_bytes for b in source.buffers) > shared_bytes
    params = tuple(
        Param(
            b.name, b.element.dtype.name, declared_alignment(b),
            # What the shared cache would not keep until it is read need not go through it.
            stream=b in source.written and 2 * b.size_bytes >= shared_bytes and exceeds,
            # Beyond a short run nothing is read soon: the next run is asked for.
            ahead=source.walked[b] or machine.ahead_bytes if b in source.walked and 2 * b.size_bytes >= shared_bytes else 0,
        )
        for b in source.buffers
    )  # fmt: skip
    places, _ = scratch_places(source, gap_bytes)
    scratch = [Scratch(b.name, b.element.dtype.name, offset) for b, offset in zip(source.scratch, places, strict=True)]
    scratch += [Scratch(b.name, b.element.dtype.name, 0, stack_bytes=in_lines(b.size_bytes)) for b in source.local]
    return KernelSignature(params, tuple(scratch))


def scratch_places(source: PhaseSource, gap_bytes: int = 0) -> tuple[list[int], int]:
    """Where each scratch buffer of a kernel starts in its thread's scratch, `gap_bytes` between two, and the size of that."""
    places, total = [], 0
    for b in source.scratch:
        places.append(total)
        total += in_lines(b.size_bytes) + gap_bytes
    return places, total
