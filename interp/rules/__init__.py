# ruff: noqa: F401 (each import fills the table)
"""One rule for each op, by family. Importing this package fills the table (`interp.registry`): a new file is one more import."""

from interp.rules import (
    collectives,
    contraction,
    control,
    convolution,
    custom_calls,
    dynamic,
    elementwise,
    fourier,
    gathering,
    linear_algebra,
    movement,
    normalization,
    quantized,
    random,
    reduction,
    scattering,
    sorting,
    windows,
)
from interp.rules.dialects import chlo, foreign, sharding, xla
