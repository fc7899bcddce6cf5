"""Reads and runs files of compiled programs with NumPy and the standard library alone: load("model.tw")(*arrays)."""

from tilewright_runtime.container import FileError, is_program_file
from tilewright_runtime.program import ArrayError, LoadedProgram, load

__all__ = ["ArrayError", "FileError", "LoadedProgram", "is_program_file", "load"]
