"""Tiles, fusions and schedules: which ops become one kernel, in which loops, with what in which buffer."""

from tiling.choices.valid_tilings import Tiling, powers_of_two, valid_tilings
from tiling.cost_model import CostModel, Estimate
from tiling.files.isl_schedule import isl_schedule
from tiling.files.linalg import as_linalg
from tiling.files.loops import LoopsError, loops_text
from tiling.files.mlir import as_mlir
from tiling.files.parse_loops import parse_loops
from tiling.files.plan_file import PlanFileError, load_plan
from tiling.loops.ir import Buffer, Contract, FoldStep, Loop, Nest, Phase, Schedule, Scope, Store
from tiling.machine import Machine
from tiling.planning.edit import with_loop_order, with_schedule
from tiling.planning.model import Carry, ControlStep, Decision, EvaluatorStep, Fusion, Pin, Plan
from tiling.planning.plan import plan
from tiling.planning.reasons import Edge
from tiling.proving.coalescing import Coalescing, coalesced, coalescing
from tiling.proving.obligations import prove, prove_memory
from tiling.proving.proof import Obligation, Proof
from tiling.show import html as _html  # fill the tables of printers
from tiling.show import text as _text
from tiling.tiles.analysis import TileAnalysis, TiledValue, reached_tiles, tile_analysis, tiled
from tiling.tiles.concrete import ConcreteTile
from tiling.tiles.propagate import operand_tiles, result_tiles
from tiling.tiles.space import DimensionKind, SpaceDimension, Tile, TilingSpace
from tiling.tiles.symbolic import SymbolicTile, exact_tile, symbolic_tile

__all__ = [
    "Buffer",
    "Carry",
    "Coalescing",
    "ConcreteTile",
    "Contract",
    "ControlStep",
    "CostModel",
    "Decision",
    "DimensionKind",
    "Edge",
    "Estimate",
    "EvaluatorStep",
    "FoldStep",
    "Fusion",
    "Loop",
    "LoopsError",
    "Machine",
    "Nest",
    "Obligation",
    "Phase",
    "Pin",
    "Plan",
    "PlanFileError",
    "Proof",
    "Schedule",
    "Scope",
    "SpaceDimension",
    "Store",
    "SymbolicTile",
    "Tile",
    "TileAnalysis",
    "TiledValue",
    "Tiling",
    "TilingSpace",
    "as_linalg",
    "as_mlir",
    "coalesced",
    "coalescing",
    "exact_tile",
    "isl_schedule",
    "load_plan",
    "loops_text",
    "operand_tiles",
    "parse_loops",
    "plan",
    "powers_of_two",
    "prove",
    "prove_memory",
    "reached_tiles",
    "result_tiles",
    "symbolic_tile",
    "tile_analysis",
    "tiled",
    "valid_tilings",
    "with_loop_order",
    "with_schedule",
]
del _html, _text
