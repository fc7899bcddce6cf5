# ruff: noqa: F401 (each import fills the table)
"""The definitions of all ops. Importing this package fills the registry: a new file of definitions is one more import here."""

from hlo.ops import (
    asynchronous,
    collective,
    contraction,
    control,
    convolution,
    custom_calls,
    dynamic,
    effects,
    elementwise,
    gathering,
    linalg,
    movement,
    representation,
    scatter,
    structure,
    windows,
)
from hlo.ops.dialects import chlo, foreign, sharding, xla
from hlo.registry import close_own

close_own()
