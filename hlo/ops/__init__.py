"""The definitions of all ops. Importing this package fills the registry."""

from hlo.ops import (
    chlo,
    collective,
    contraction,
    control,
    dynamic,
    effects,
    elementwise,
    foreign,
    gathering,
    linalg,
    movement,
    sharding,
    structure,
    windows,
    xla,
)

__all__ = [
    "chlo",
    "collective",
    "contraction",
    "control",
    "dynamic",
    "effects",
    "elementwise",
    "foreign",
    "gathering",
    "linalg",
    "movement",
    "sharding",
    "structure",
    "windows",
    "xla",
]
