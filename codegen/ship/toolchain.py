"""The compiler and linker of files: Zig's, which pip brings for every system and which links for others, or the system's own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.c.compile import c_compiler, flags
from codegen.ship.errors import ExportError
from codegen.ship.targets import FileTarget
from codegen.target import host_target

__all__ = ["Toolchain", "toolchain"]

_GLIBC = "2.17"  # what a file asks of the system's C library: any Linux since 2012
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-s")


@dataclass(frozen=True)
class Toolchain:
    """`command` compiles and links C, objects and assembly, for other machines, too, if it `crosses`."""

    command: tuple[str, ...]
    crosses: bool

    def link(self, inputs: Sequence[Path], output: Path, target: FileTarget) -> None:
        """Makes a shared library. Raises ExportError with the first lines of what the compiler says."""
        own = [] if not self.crosses else ["-target", _zig_target(target), "-fno-sanitize=undefined"]
        # Kernels in C have the target's instructions; the call itself and object code need none.
        per_kernel = [f for f in flags(target.target) if f.startswith(("-m", "-f"))] if target.through_c else []
        if self.crosses:  # (Zig takes CPUs' names there, and no architecture's)
            per_kernel = [f for f in per_kernel if not f.startswith("-march=")]
        ends = ["-Wl,-z,defs", "-Wl,-z,noexecstack"] if target.system == "Linux" else []
        command = [*self.command, *own, *_FLAGS, *per_kernel, "-shared", "-pthread", *map(str, inputs), "-o", str(output), *ends]
        command.append("-lm")
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ExportError(f"{self.command[0]} cannot be started: {error}") from error
        if done.returncode:
            raise ExportError(f"{' '.join(self.command)} failed:\n{done.stderr[:2000]}")


def toolchain(target: FileTarget, command: Sequence[str] | None = None) -> Toolchain:
    """What links for a target: `command` if it is given, Zig where it is installed, else the system's C compiler.

    Raises ExportError where there is neither, and for another architecture where there is no Zig.
    """
    if command is not None:
        return Toolchain(tuple(command), "zig" in " ".join(command))
    if importlib.util.find_spec("ziglang") is not None:
        return Toolchain((sys.executable, "-m", "ziglang", "cc"), True)
    here = host_target().triple.partition("-")[0]
    found = c_compiler()
    if found is None:
        raise ExportError("no linker: pip install 'tilewright[ship]' brings Zig's; neither it nor cc, gcc or clang is here")
    own = FileTarget("host", host_target(), ())
    if (here, own.system) != (target.architecture, target.system):
        wanted = target.architecture if here != target.architecture else target.system
        raise ExportError(
            f"{found} links for {here} ({own.system}), not for {wanted}: pip install 'tilewright[ship]' brings Zig"
        )
    return Toolchain((found,), False)


def _zig_target(target: FileTarget) -> str:
    if target.system == "Darwin":
        return f"{target.architecture}-macos"
    if target.system == "Windows":
        return f"{target.architecture}-windows-gnu"
    return f"{target.architecture}-linux-gnu.{_GLIBC}"
