"""What is seen of a compiled program: its kernels, what compiling took, what its steps take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from codegen.kernel import ir as kernel_ir
from codegen.native.jit import CompiledKernel
from tiling import Buffer, Fusion
from tiling.show.html import source_to_html
from tiling.words import amount, count

__all__ = ["BRIEF_SECONDS", "Kernel", "RunStats", "StepTime", "chunk_of", "is_short", "seconds_of"]

SHORT_SECONDS = 4e-6
BRIEF_SECONDS = 1e-5  # of a kernel that no loop repeats: less than a thousandth of what compiling it takes


@dataclass(frozen=True, eq=False)
class Kernel:
    """One compiled phase of a fusion: `source` is it as Python, `function` runs that step by step, `statements` are its tree."""

    name: str
    fusion: Fusion
    tasks: int
    scratch_bytes: int  # of one thread
    buffers: tuple[Buffer, ...]
    compiled: CompiledKernel
    statements: kernel_ir.Kernel

    @property
    def source(self) -> str:
        return self.compiled.source

    @property
    def _facts(self) -> str:
        return f"{self.name}: {count(self.tasks, 'task')}, {amount(self.scratch_bytes)} of scratch a thread"

    def __repr__(self) -> str:
        return f"<Kernel {self._facts}>"

    def _repr_html_(self) -> str:
        return source_to_html(self._facts, self.source, is_open=True)

    @property
    def function(self) -> Any:
        """The source as a plain Python function of (begin, end, *flat arrays), which are `buffers`, then `scratch`."""
        return self.compiled.python

    def scratch(self) -> list[np.ndarray]:
        """Flat arrays for what `function` takes behind its buffers: one thread's scratch, laid out as the machine code's.

        >>> import codegen, hlo
        >>> kernel = codegen.compile(hlo.load("tests/programs/rotary.mlir")).kernels[0]
        >>> [a.dtype.name for a in kernel.scratch()]
        ['float32', 'float32', 'float32']
        >>> arrays = [np.ones(b.size_elems, b.element.dtype) for b in kernel.buffers]
        >>> kernel.function(0, 1, *arrays, *kernel.scratch())
        """
        memory = np.zeros(self.scratch_bytes, np.uint8)
        made = []
        for s in self.compiled.signature.scratch:
            dtype = np.dtype(getattr(ml_dtypes, s.dtype, None) or s.dtype)
            piece = np.zeros(s.stack_bytes, np.uint8) if s.stack_bytes else memory[s.offset_bytes :]
            made.append(piece[: piece.size // dtype.itemsize * dtype.itemsize].view(dtype))
        return made


@dataclass(frozen=True)
class StepTime:
    """What one step of a call took; `kind` is kernel, library, evaluator or copy."""

    name: str
    kind: str
    seconds: float


@dataclass
class RunStats:
    """Where the kernels came from, what a call needs beside its arguments and results, and what took how long.

    `plan_seconds` are the planner's, `source_seconds` those of writing and proving the kernels, `compile_seconds` those of
    machine code, here and in other processes.
    """

    compiled: int = 0
    cache_hits: int = 0
    compile_seconds: float = 0.0
    scratch_bytes: int = 0
    plan_seconds: float = 0.0
    source_seconds: float = 0.0


def is_short(fusion: Fusion) -> bool:
    """True for a kernel that one thread has done by the time that another has heard of it."""
    return seconds_of(fusion) < SHORT_SECONDS


def seconds_of(fusion: Fusion) -> float:
    """What one thread takes for a fusion, by the machine's model."""
    e = fusion.estimate
    return e.arithmetic_seconds * fusion.threads + e.traffic_seconds


def chunk_of(tasks: int, threads: int) -> int:
    """Tasks taken at a time: enough pieces that threads finish together, few enough that taking them costs nothing."""
    return max(1, tasks // (threads * 32))
