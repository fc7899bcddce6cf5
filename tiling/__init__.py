"""Tiles, fusions and schedules: which ops become one kernel, in which loops, with what in which buffer."""

from tiling.machine import Machine
from tiling.plan import Decision, EvaluatorStep, Fusion, Pin, Plan
from tiling.planner import plan
from tiling.schedule import Buffer, Contract, FoldStep, Loop, Nest, Phase, Schedule, Scope, Store

__all__ = [
    "Buffer",
    "Contract",
    "Decision",
    "EvaluatorStep",
    "FoldStep",
    "Fusion",
    "Loop",
    "Machine",
    "Nest",
    "Phase",
    "Pin",
    "Plan",
    "Schedule",
    "Scope",
    "Store",
    "plan",
]
