# ruff: noqa: F401 (each import fills the table)
"""The definitions of all ops. Importing this package fills the registry: a new file of definitions is one more import here."""

from hlo.ops import (
    chlo,
    collective,
    contraction,
    control,
    convolution,
    dynamic,
    effects,
    elementwise,
    foreign,
    gathering,
    linalg,
    movement,
    scatter,
    sharding,
    structure,
    windows,
    xla,
)
from hlo.registry import close_own

close_own()
