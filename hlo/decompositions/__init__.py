"""CHLO in terms of StableHLO: every op that has a decomposition, and why the others have none."""

from __future__ import annotations

from hlo.decompositions import functions as _functions  # fill the table
from hlo.decompositions import structured as _structured
from hlo.decompositions.registry import DECLINED, decomposition, rules
from hlo.decompositions.rewrite import decompose

__all__ = ["DECLINED", "decompose", "decomposition", "rules"]
del _functions, _structured
