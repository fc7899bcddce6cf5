"""Code generation: from plans to numba source to compiled, callable programs."""

from codegen.executable import ArgumentError, Executable, Kernel, RunStats, compile
from codegen.supports import supports

__all__ = ["ArgumentError", "Executable", "Kernel", "RunStats", "compile", "supports"]
