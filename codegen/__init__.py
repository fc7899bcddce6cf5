"""Code generation: from plans to numba source to compiled, callable programs."""

from codegen.call.compile import compile
from codegen.call.executable import ArgumentError, Executable
from codegen.call.kernels import Kernel, RunStats
from codegen.call.memory_safety import MemorySafetyWarning, WrongScheduleWarning
from codegen.remembered.machine import calibrated_machine
from codegen.remembered.plans import remembered_plan
from codegen.ship import on_demand as _on_demand  # adds `Executable.save`
from codegen.supports import supports
from codegen.tune.autotune import Trial, autotune

__all__ = [
    "ArgumentError",
    "Executable",
    "Kernel",
    "MemorySafetyWarning",
    "RunStats",
    "Trial",
    "WrongScheduleWarning",
    "autotune",
    "calibrated_machine",
    "compile",
    "remembered_plan",
    "supports",
]
del _on_demand
