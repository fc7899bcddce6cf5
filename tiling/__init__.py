"""Tiles, fusions and schedules: which ops become one kernel, in which loops, with what in which buffer."""

from tiling.analysis import TileAnalysis, TiledValue, reached_tiles, tile_analysis
from tiling.edit import with_loop_order, with_schedule
from tiling.machine import Machine
from tiling.plan import Decision, EvaluatorStep, Fusion, Pin, Plan
from tiling.planner import plan
from tiling.prove import Obligation, Proof, prove
from tiling.schedule import Buffer, Contract, FoldStep, Loop, Nest, Phase, Schedule, Scope, Store
from tiling.symbolic import SymbolicTile, exact_tile, symbolic_tile

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
    "Obligation",
    "Phase",
    "Pin",
    "Plan",
    "Proof",
    "Schedule",
    "Scope",
    "Store",
    "SymbolicTile",
    "TileAnalysis",
    "TiledValue",
    "exact_tile",
    "plan",
    "prove",
    "reached_tiles",
    "symbolic_tile",
    "tile_analysis",
    "with_loop_order",
    "with_schedule",
]
