"""HLO text as XLA prints it: tuples around loops and branches, and fusions, are planned as what is in them."""

from __future__ import annotations

import numpy as np

import codegen
import hlo
import interp
import tiling
from hlo.module import walk
from hlo.types import TupleType
from tiling.program.flatten import flatten

LOOP = """HloModule loop

body {
  state = (f32[3,4], (s32[], f32[4])) parameter(0)
  x = f32[3,4] get-tuple-element(state), index=0
  rest = (s32[], f32[4]) get-tuple-element(state), index=1
  i = s32[] get-tuple-element(rest), index=0
  row = f32[4] get-tuple-element(rest), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  wide = f32[3,4] broadcast(row), dimensions={1}
  sum = f32[3,4] add(x, wide)
  y = f32[3,4] tanh(sum)
  after = (s32[], f32[4]) tuple(j, row)
  ROOT out = (f32[3,4], (s32[], f32[4])) tuple(y, after)
}

condition {
  state = (f32[3,4], (s32[], f32[4])) parameter(0)
  rest = (s32[], f32[4]) get-tuple-element(state), index=1
  i = s32[] get-tuple-element(rest), index=0
  limit = s32[] constant(5)
  ROOT more = pred[] compare(i, limit), direction=LT
}

ENTRY main {
  x = f32[3,4] parameter(0)
  row = f32[4] parameter(1)
  zero = s32[] constant(0)
  rest = (s32[], f32[4]) tuple(zero, row)
  before = (f32[3,4], (s32[], f32[4])) tuple(x, rest)
  barred = (f32[3,4], (s32[], f32[4])) opt-barrier(before)
  done = (f32[3,4], (s32[], f32[4])) while(barred), condition=condition, body=body
  y = f32[3,4] get-tuple-element(done), index=0
  last = (s32[], f32[4]) get-tuple-element(done), index=1
  count = s32[] get-tuple-element(last), index=0
  ROOT results = (f32[3,4], s32[]) tuple(y, count)
}
"""

NESTED = """HloModule nested

inner_body {
  s = (s32[], f32[5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[5] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[5] add(x, x)
  ROOT out = (s32[], f32[5]) tuple(j, y)
}

inner_condition {
  s = (s32[], f32[5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  two = s32[] constant(2)
  ROOT more = pred[] compare(i, two), direction=LT
}

outer_body {
  s = (s32[], f32[5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[5] get-tuple-element(s), index=1
  zero = s32[] constant(0)
  begin = (s32[], f32[5]) tuple(zero, x)
  end = (s32[], f32[5]) while(begin), condition=inner_condition, body=inner_body
  y = f32[5] get-tuple-element(end), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT out = (s32[], f32[5]) tuple(j, y)
}

outer_condition {
  s = (s32[], f32[5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT more = pred[] compare(i, three), direction=LT
}

ENTRY main {
  x = f32[5] parameter(0)
  zero = s32[] constant(0)
  begin = (s32[], f32[5]) tuple(zero, x)
  end = (s32[], f32[5]) while(begin), condition=outer_condition, body=outer_body
  ROOT y = f32[5] get-tuple-element(end), index=1
}
"""

BRANCHES = """HloModule branches

up {
  p = (f32[6], f32[6]) parameter(0)
  a = f32[6] get-tuple-element(p), index=0
  b = f32[6] get-tuple-element(p), index=1
  c = f32[6] add(a, b)
  ROOT r = (f32[6], f32[6]) tuple(c, a)
}

down {
  p = (f32[6], f32[6]) parameter(0)
  a = f32[6] get-tuple-element(p), index=0
  b = f32[6] get-tuple-element(p), index=1
  c = f32[6] subtract(a, b)
  ROOT r = (f32[6], f32[6]) tuple(b, c)
}

ENTRY main {
  which = pred[] parameter(0)
  x = f32[6] parameter(1)
  e = f32[6] exponential(x)
  both = (f32[6], f32[6]) tuple(x, e)
  r = (f32[6], f32[6]) conditional(which, both, both), true_computation=up, false_computation=down
  s = f32[6] get-tuple-element(r), index=0
  t = f32[6] get-tuple-element(r), index=1
  ROOT y = f32[6] multiply(s, t)
}
"""

FUSED = """HloModule fused

inside {
  a = f32[8,9] parameter(0)
  b = f32[8,9] parameter(1)
  s = f32[8,9] add(a, b)
  t = f32[8,9] tanh(s)
  ROOT r = (f32[8,9], f32[8,9]) tuple(s, t)
}

after {
  a = f32[8,9] parameter(0)
  ROOT n = f32[8,9] negate(a)
}

ENTRY main {
  x = f32[8,9] parameter(0)
  y = f32[8,9] parameter(1)
  f = (f32[8,9], f32[8,9]) fusion(x, y), kind=kLoop, calls=inside
  s = f32[8,9] get-tuple-element(f), index=0
  t = f32[8,9] get-tuple-element(f), index=1
  m = f32[8,9] multiply(s, t)
  ROOT n = f32[8,9] fusion(m), kind=kLoop, calls=after
}
"""


def _compiled(text: str, *arrays: np.ndarray) -> codegen.Executable:
    """The program compiled without the evaluator and without tuples; its results are the evaluator's."""
    module = hlo.parse(text)
    hlo.verify(module)
    program = flatten(module, module.function().name, codegen.supports)
    ops = [x for op in program.ops for x in (op, *(inner for r in op.regions for inner in walk(r)))]
    assert not [v for op in ops for v in (*op.operands, *op.results) if isinstance(v.type, TupleType)]
    executable = codegen.compile(module, module.function().name)
    assert executable.fallbacks == []
    for found, expected in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    return executable


def test_a_loop_over_a_tuple_runs_in_kernels() -> None:
    rng = np.random.default_rng(0)
    x, row = rng.normal(size=(3, 4)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    (loop,) = _compiled(LOOP, x, row).plan.controls
    assert [c.how for c in loop.carries].count("invariant") == 1, "the row never changes"


def test_loops_over_tuples_nest() -> None:
    x = np.arange(5, dtype=np.float32)
    (found,) = _compiled(NESTED, x)(x)
    np.testing.assert_array_equal(found, 64 * x)


def test_branches_that_return_tuples_run_in_kernels() -> None:
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    for which in (True, False):
        _compiled(BRANCHES, np.array(which), x)


def test_the_fusions_of_a_dump_are_planned_anew() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 8, 9)).astype(np.float32)
    (kernel,) = _compiled(FUSED, x, y).plan.fusions
    assert [op.name.partition(".")[2] for op in kernel.ops] == ["add", "tanh", "multiply", "negate"]


def test_without_code_in_view_tuples_go_as_well() -> None:
    module = hlo.parse(LOOP)
    plan = tiling.plan(module, entry=module.function().name)
    assert not [v for op in plan.program.ops for v in op.results if isinstance(v.type, TupleType)]
