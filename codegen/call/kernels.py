"""What is seen of a compiled program: its kernels, what compiling took, what its steps take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from codegen.kernel import ir as kernel_ir
from codegen.native.jit import CompiledKernel
from tiling import Buffer, Fusion
from tiling.show.html import source_to_html
from tiling.words import amount, count

__all__ = ["Kernel", "RunStats", "StepTime"]


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
        """The source as a plain Python function of (begin, end, *flat arrays)."""
        return self.compiled.python


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
