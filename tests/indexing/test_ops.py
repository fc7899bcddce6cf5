"""Maps of every op: enumerated against the evaluator, and inverted against isl.

A result element depends on an operand element when changing the latter changes the former. The maps must contain every such
pair, and where the op reads whatever it may read, nothing else.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import islpy
import numpy as np
import pytest

import hlo
import interp
from hlo import Declined
from hlo.registry import definitions
from indexing import IndexingMap, MapSet, input_to_output, output_to_input
from indexing.exact.isl import relation_for_each_runtime
from tests.indexing.index_helpers import op_of
from tests.indexing.op_examples import EXAMPLES

# (example, operand) whose elements need not all matter, and why the maps still name them.
MAY_READ = {
    ("select", 1): "the predicate chooses",
    ("select", 2): "the predicate chooses",
    ("pad", 1): "read where the operand is not",
    ("pad, negative", 1): "read where the operand is not",
    ("dynamic_update_slice", 0): "read where the update is not",
    ("scatter", 0): "the sum of all that lands",
    ("scatter", 1): "an index vector may move an update to any place",
    ("scatter", 2): "the values decide",
    ("select_and_scatter", 0): "the values decide",
    ("select_and_scatter", 1): "the values decide",
    ("sort", 0): "the values decide",
    ("top_k", 0): "the values decide",
    ("cholesky", 0): "a triangle is enough",
    ("triangular_solve", 0): "a triangle is enough",
    ("triangular_solve", 1): "each column by itself, and only from above",
    ("rfft", 0): "the symmetric half",
    ("fft", 0): "sums may cancel",
    ("bitcast_convert, wider", 0): "some bytes",
    ("bitcast_convert, narrower", 0): "some bytes",
    ("ragged_dot", 0): "group_sizes decide",
    ("ragged_dot", 1): "group_sizes decide",
    ("scan", 0): "the body decides, which may mix all that it gets",
    ("scan", 1): "the body decides, which may mix all that it gets",
    ("reduce_window", 1): "the init value of every window",
}


def inputs_of(op: hlo.Op, seed: int) -> list[np.ndarray]:
    """Distinct values; small integers for indices, so that they stay inside."""
    rng = np.random.default_rng(seed)
    out = []
    for v in op.operands:
        dtype, shape = v.tensor.dtype, v.shape
        n = int(np.prod(shape))
        if dtype == np.bool_:
            x: Any = rng.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            x = (
                rng.integers(0, 3, shape).astype(dtype)
                if dtype.itemsize == 4
                else rng.permutation(n).reshape(shape).astype(dtype)
            )
        elif dtype.kind == "c":
            x = (rng.permutation(n) + 1j * rng.permutation(n)).reshape(shape).astype(dtype)
        else:
            x = (rng.permutation(n) + 1.0).reshape(shape).astype(dtype)
            if op.name in ("stablehlo.triangular_solve", "stablehlo.cholesky") and shape[-1] == shape[-2]:
                x += 100 * np.eye(shape[-1], dtype=dtype)
        out.append(x)
    if op.name == "stablehlo.clamp":
        out[0][...], out[2][...] = 2, 4
    return out


def changes(x: np.ndarray, j: int) -> list[np.ndarray]:
    """The array with element j replaced, in several ways."""
    out = []
    for value in [not x.flat[j]] if x.dtype == np.bool_ else [x.flat[j] + 1, x.flat[j] + 50, x.flat[j] - 50]:
        if x.dtype.kind in "iu":
            value = int(value) % 100 if x.dtype.itemsize > 1 else int(value) % 128
        y = x.copy()
        y.flat[j] = value
        out.append(y)
    return out


def observed(op: hlo.Op, module: hlo.Module, output: int, operand: int) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(result index, operand index) pairs that changing an element shows."""
    pairs = set()
    for seed in range(2):
        inputs = inputs_of(op, seed)
        base = interp.evaluate(module, *inputs)[output]
        for j, index in enumerate(np.ndindex(*op.operands[operand].shape)):
            for y in changes(inputs[operand], j):
                changed = list(inputs)
                changed[operand] = y
                out = interp.evaluate(module, *changed)[output]
                pairs |= {(tuple(map(int, i)), index) for i in np.argwhere(differs(out, base))}
    return pairs


def differs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Elementwise; two NaNs are alike."""
    return (a != b) & ~((a != a) & (b != b))


def enumerated(op: hlo.Op, maps: MapSet, inputs: list[np.ndarray] | None) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(result index, operand index) pairs of the maps; runtime values are read from the inputs, or take all values."""
    pairs = set()
    for m in maps:
        sides = [range(b.lower, b.upper + 1) for _, b in (*m.dims, *m.ranges)]
        for point in product(*sides):
            d, s = point[: len(m.dims)], point[len(m.dims) :]
            for rt in runtime_values(op, m, d, s, inputs):
                if m.holds(d, [*s, *rt]):
                    pairs.add((d, tuple(m.evaluate(d, [*s, *rt]))))
    return pairs


def runtime_values(op: hlo.Op, m: IndexingMap, d: Any, s: Any, inputs: list[np.ndarray] | None) -> list[tuple[int, ...]]:
    if inputs is None or not m.runtimes:
        return list(product(*[range(v.interval.lower, v.interval.upper + 1) for v in m.runtimes]))
    values = []
    for v in m.runtimes:
        at = IndexingMap(m.dims, v.element, m.ranges).evaluate(d, s)
        value = int(inputs[op.operands.index(v.producer)][tuple(at)])
        values.append(min(max(value, v.interval.lower), v.interval.upper))
    return [tuple(values)]


def module_of(op: hlo.Op, arguments: str, line: str) -> hlo.Module:
    types = [str(r.type) for r in op.results]
    names = ", ".join(f"%r#{k}" for k in range(len(types))) if len(types) > 1 else "%r"
    text = f"func.func @main({arguments}) -> ({', '.join(types)}) {{\n  {line}\n  return {names} : {', '.join(types)}\n}}"
    return hlo.parse(text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_maps_against_the_evaluator(name: str) -> None:
    line, arguments = EXAMPLES[name]
    module = module_of(op_of(line, arguments), arguments, line)
    op = module.root
    for output in range(len(op.results)):
        for operand, maps in enumerate(output_to_input(op, output)):
            seen = observed(op, module, output, operand)
            # With the runtime values of the very run, or over all of them where the operand itself gives them.
            every = enumerated(op, maps, None)
            assert seen <= every, f"{name}: {sorted(seen - every)[:3]} not in {maps!r}"
            if any(m.runtimes for m in maps) and (name, operand) not in MAY_READ:
                exact = set()
                for seed in range(2):
                    exact |= enumerated(op, maps, inputs_of(op, seed))
                assert seen == exact
            elif (name, operand) not in MAY_READ and op.operands[operand].tensor.dtype.kind not in "iu":
                assert seen == every, f"{name}, operand {operand}: {sorted(every - seen)[:3]} never matter"


@pytest.mark.parametrize("name", EXAMPLES)
def test_input_to_output_is_the_exact_inverse(name: str) -> None:
    op = op_of(*EXAMPLES[name])
    for operand in range(len(op.operands)):
        for output, back in enumerate(input_to_output(op, operand)):
            there = output_to_input(op, output)[operand]
            a, b = union(there), union(back)
            if a is None or b is None:
                assert a is b
            else:
                assert a.is_equal(b.reverse()), f"{name}: {there!r} and {back!r}"


def union(maps: MapSet) -> islpy.Map | None:
    total = None
    for m in maps:
        r = relation_for_each_runtime(m)
        total = r if total is None else total.union(r)
    return total


def test_every_definition_has_maps_or_says_why_not() -> None:
    """Elementwise ops share one access function, so one of them stands for all."""
    from indexing.deriving.collectives import EXCHANGES
    from indexing.deriving.may_read import MAY_READ as BOUNDED

    shown = {op_of(*e).definition.access for e in EXAMPLES.values() if not isinstance(op_of(*e).definition.access, Declined)}
    shown_names = {op_of(*e).name for e in EXAMPLES.values()}
    missing = []
    for d in definitions():
        if isinstance(d.access, Declined):
            assert d.access.reason, d.name
            if d.name in BOUNDED and d.name not in shown_names:
                missing.append(d.name)
        elif d.access not in shown and not reads_nothing(d):
            missing.append(d.name)
    # Tokens and tuples no example can change (test_tuples has the latter); bitcasts are tested with layouts.
    assert set(missing) <= {"xla.add_dependency", "xla.bitcast", "stablehlo.get_tuple_element"}
    assert not set(EXCHANGES) & set(BOUNDED)


def reads_nothing(d: Any) -> bool:
    return not d.operands
