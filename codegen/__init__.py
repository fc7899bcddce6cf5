"""Code generation: from plans to numba source to compiled, callable programs."""

from codegen.autotune import Trial, autotune
from codegen.executable import ArgumentError, Executable, Kernel, RunStats, compile
from codegen.machine_memory import calibrated_machine
from codegen.memory_safety import MemorySafetyWarning
from codegen.plans import remembered_plan
from codegen.supports import supports

__all__ = [
    "ArgumentError",
    "Executable",
    "Kernel",
    "MemorySafetyWarning",
    "RunStats",
    "Trial",
    "autotune",
    "calibrated_machine",
    "compile",
    "remembered_plan",
    "supports",
]
