"""The evaluator: StableHLO programs op by op in NumPy. The oracle that compiled kernels are checked against.

It shares the program model with the rest and none of its index analysis.
"""

from interp import rules as _rules  # fills the table of rules
from interp.errors import DeadlockError, ExecutionError, InputError, LimitError, UnknownTargetError
from interp.machine import Limits, TraceEvent
from interp.run import evaluate, run_parallel

__all__ = [
    "DeadlockError",
    "ExecutionError",
    "InputError",
    "LimitError",
    "Limits",
    "TraceEvent",
    "UnknownTargetError",
    "evaluate",
    "run_parallel",
]
del _rules
