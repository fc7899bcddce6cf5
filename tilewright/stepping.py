"""The passes of the compiler, and what each makes of a program."""

from __future__ import annotations

import codegen
from hlo.module import Module, as_module
from tiling import Plan, plan
from tiling.passing import Pass
from tiling.pipeline import PIPELINE, check_settings
from tiling.show.stages import Stages, stages_of

__all__ = ["passes", "stages"]


def passes() -> tuple[Pass, ...]:
    """Every pass of the compiler, in the order in which they run: name, source, target, optional, within, why.

    >>> [p.name for p in passes() if p.target == "program" and not p.optional]
    ['inline', 'untuple', 'quantized', 'promote_bodies']
    """
    return PIPELINE


def stages(subject: Module | Plan, entry: str = "main") -> Stages:
    """What each pass makes of a module's entry function (or of the program of a plan): its ops, then each kernel's loops.

    Printed it shows the stages that change something; in a notebook it steps through them with what changed marked.
    `.after(name)` gives what one pass made. Raises KeyError when there is no function `entry`, SettingError for a wrong
    TILEWRIGHT_SKIP.

    >>> import hlo
    >>> found = stages(hlo.parse('''func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
    ...   %0 = stablehlo.tanh %x : tensor<8x8xf32>
    ...   %1 = stablehlo.add %0, %x : tensor<8x8xf32>
    ...   return %1 : tensor<8x8xf32>
    ... }'''))
    >>> print(found.after("collapse_loops")[0].text)
    add_1: result f32[8, 8] at (0, 0), 256 bytes
    x: argument f32[8, 8] at (0, 0), 256 bytes
    phase 0: one task
      for i1 in [0, 63]
        add_1[i1 floordiv 8, i1 mod 8] = add(tanh(x[i1 floordiv 8, i1 mod 8]), x[i1 floordiv 8, i1 mod 8])
    """
    check_settings()
    made = subject if isinstance(subject, Plan) else plan(as_module(subject), entry, supports=codegen.supports)
    return stages_of(made, codegen.supports)
