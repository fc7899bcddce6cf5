"""Tiles, fusions and schedules: which ops become one kernel, in which loops, with what in which buffer."""

from tiling.analysis import TileAnalysis, TiledValue, reached_tiles, tile_analysis, tiled
from tiling.coalescing import Coalescing, coalesced, coalescing
from tiling.concrete import ConcreteTile
from tiling.edges import Edge
from tiling.edit import with_loop_order, with_schedule
from tiling.machine import Machine
from tiling.plan import Carry, ControlStep, Decision, EvaluatorStep, Fusion, Pin, Plan
from tiling.planner import plan
from tiling.propagate import operand_tiles, result_tiles
from tiling.prove import Obligation, Proof, prove, prove_memory
from tiling.schedule import Buffer, Contract, FoldStep, Loop, Nest, Phase, Schedule, Scope, Store
from tiling.space import DimensionKind, SpaceDimension, Tile, TilingSpace
from tiling.symbolic import SymbolicTile, exact_tile, symbolic_tile

__all__ = [
    "Buffer",
    "Carry",
    "Coalescing",
    "ConcreteTile",
    "Contract",
    "ControlStep",
    "Decision",
    "DimensionKind",
    "Edge",
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
    "SpaceDimension",
    "Store",
    "SymbolicTile",
    "Tile",
    "TileAnalysis",
    "TiledValue",
    "TilingSpace",
    "coalesced",
    "coalescing",
    "exact_tile",
    "operand_tiles",
    "plan",
    "prove",
    "prove_memory",
    "reached_tiles",
    "result_tiles",
    "symbolic_tile",
    "tile_analysis",
    "tiled",
    "with_loop_order",
    "with_schedule",
]
