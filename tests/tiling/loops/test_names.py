"""Program names in generated source: harmless whatever they are."""

from __future__ import annotations

import keyword

import numpy as np
import pytest

import codegen
import hlo
from hlo import Block, Function, Module, Op, TensorType, element_type
from hlo.registry import definition

HOSTILE = [
    "exp", "float32", "range", "import os", "x); __import__('os')", "a\nb", "class", "kernel", "begin", "é", "0", "_" * 40,
    "i0", "t0", "v1", "a1", "rt1", "task", "gemm_block", "min", "k0", "\x00", "A" * 300,
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_changes_nothing(name: str) -> None:
    t = TensorType((4, 8), element_type("f32"))
    block = Block([t, t], [name, name])
    add = Op(definition("stablehlo.add"), block.arguments, {}, (), (t,), names=[name])
    scale = Op(definition("stablehlo.exponential"), add.results, {}, (), (t,), names=[name])
    block.ops += [add, scale, Op(definition("func.return"), scale.results)]
    module = Module({"main": Function("main", block, result_types=(t,))})
    hlo.verify(module)
    executable = codegen.compile(module)
    x, y = np.full((4, 8), 0.25, np.float32), np.full((4, 8), 0.5, np.float32)
    np.testing.assert_allclose(executable(x, y)[0], np.exp(x + y), rtol=1e-6)
    for kernel in executable.kernels:
        for b in kernel.buffers:
            assert b.name.isascii() and b.name.isidentifier() and not keyword.iskeyword(b.name)
