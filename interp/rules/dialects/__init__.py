"""Ops that are not StableHLO's: CHLO, XLA's own, sharding, the few of MLIR's dialects."""
