"""The evaluator: StableHLO programs op by op in NumPy. The oracle that compiled kernels are checked against.

It shares the program model with the rest and none of its index analysis.
"""

from interp import rules as _rules  # fills the table of rules
from interp.errors import DeadlockError, ExecutionError, InputError, LimitError, UnknownTargetError
from interp.machine import Limits, TraceEvent
from interp.refine import refined
from interp.run import Transport, evaluate, run_parallel, run_process

__all__ = [
    "DeadlockError",
    "ExecutionError",
    "InputError",
    "LimitError",
    "Limits",
    "TraceEvent",
    "Transport",
    "UnknownTargetError",
    "evaluate",
    "refined",
    "run_parallel",
    "run_process",
]
del _rules
