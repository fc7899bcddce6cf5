"""Kernels built by the system's C compiler: a second target beside LLVM's machine code, with the same interface to its callers.

    CCompiler().compile(kernels)      as `codegen.native.jit.compile_kernels`, of which only signatures and entries are shared
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codegen.c.source import ARM_INSTRUCTIONS, INSTRUCTIONS, c_source
from codegen.kernel.ir import Kernel
from codegen.kernel.print_numba import print_numba
from codegen.native.jit import CompiledKernel, kernel_key
from codegen.native.signature import KernelSignature
from codegen.target import Target, default_target
from hlo.errors import Declined, TilewrightError

__all__ = ["FLAGS", "CCompiler", "CCompilerError", "c_compiler", "entry_source", "flags"]

FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno", "-ffp-contract=off", "-fwrapv", "-fPIC", "-shared", "-w")
"""No fast mathematics: results are those of the operations as they are written, none fused that is not written so."""


class CCompilerError(TilewrightError):
    """There is no C compiler, it failed, or a kernel has no form in C; the message says which."""


def c_compiler() -> str | None:
    """The path of the system's C compiler: cc, gcc or clang; None where there is none."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def flags(target: Target) -> tuple[str, ...]:
    """What a C compiler is told: `FLAGS`, and the instructions that the target has.

    >>> [f for f in flags(Target.from_features("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma,-avx512f")) if f[:2] == "-m"]
    ['-mavx2', '-mfma']
    """
    have = {item[1:] for item in target.features.split(",") if item.startswith("+")}
    if target.is_arm:
        dots = sorted(ARM_INSTRUCTIONS & have)
        return (*FLAGS, *([f"-march=armv8.2-a+{'+'.join(dots)}"] if dots else []))
    return (*FLAGS, *(f"-m{name}" for name in sorted(INSTRUCTIONS & have) if target.triple.startswith("x86_64")))


def entry_source(kernel: Kernel, signature: KernelSignature, symbol: str) -> str:
    """A function `symbol(begin, end, buffers, scratch)` that calls the kernel: the launcher's interface to machine code."""
    arguments = ["begin", "end", *(f"buffers[{k}]" for k in range(len(signature.params)))]
    lines = [f"void {symbol}(int64_t begin, int64_t end, void **buffers, void *scratch) {{"]
    for k, s in enumerate(signature.scratch):
        if s.stack_bytes:
            lines.append(f"    _Alignas(64) char frame{k}[{s.stack_bytes}];")
            arguments.append(f"(void *)frame{k}")
        else:
            arguments.append(f"(void *)((char *)scratch + {s.offset_bytes})")
    passed = ", ".join(arguments)
    lines += [f"    (void){n};" for n in ("buffers", "scratch") if n not in passed]
    return "\n".join([*lines, f"    {kernel.name}({passed});", "}", ""])


@dataclass
class CCompiler:
    """Compiles kernels by printing them as C; `sources` has what was printed, by each kernel's name in its title.

    `target` says which instructions may be used. Raises CCompilerError for what has no form in C: nothing falls back.
    """

    target: Target = field(default_factory=default_target)
    sources: dict[str, str] = field(default_factory=dict)

    def compile(self, kernels: Sequence[tuple[Kernel, KernelSignature]]) -> list[CompiledKernel]:
        """The compiled form of each kernel, loaded from a shared object that is built now, equal ones once."""
        made: dict[str, CompiledKernel] = {}
        out = []
        for kernel, signature in kernels:
            key = kernel_key(kernel, signature, self.target)
            if key not in made:
                made[key] = self._compiled(key, kernel, signature)
            out.append(made[key])
        return out

    def _compiled(self, key: str, kernel: Kernel, signature: KernelSignature) -> CompiledKernel:
        source = c_source(kernel, self.target)
        if isinstance(source, Declined):
            raise CCompilerError(f"{kernel.title}: {source.reason}")
        self.sources[kernel.title] = source
        symbol = f"tilewright_c_{hashlib.sha256(key.encode()).hexdigest()[:24]}"
        library = self._built(f"{source}\n{entry_source(kernel, signature, symbol)}", symbol)
        entry = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
        assert entry is not None
        return CompiledKernel(key, print_numba(kernel), "", signature, self.target, entry, library)

    def _built(self, source: str, name: str) -> ctypes.CDLL:
        compiler = c_compiler()
        if compiler is None:
            raise CCompilerError("no C compiler: neither cc nor gcc nor clang is on the path")
        # What is loaded stays when the folder is gone.
        with tempfile.TemporaryDirectory(prefix="tilewright-c-") as folder:
            at, to = Path(folder) / f"{name}.c", Path(folder) / f"{name}.so"
            at.write_text(source, "utf-8")
            done = subprocess.run([compiler, *flags(self.target), str(at), "-o", str(to), "-lm"], capture_output=True, text=True)
            if done.returncode:
                raise CCompilerError(f"{compiler} failed:\n{done.stderr[:2000]}")
            return ctypes.CDLL(str(to))
