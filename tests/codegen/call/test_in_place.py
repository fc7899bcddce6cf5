"""Results written over the arguments that are given away for them: the same numbers, in that memory, and nowhere else."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import codegen
import hlo
import interp
import tilewright
import tiling
from codegen.call.recorded import recorded, restored
from codegen.call.runs.arguments import writeable
from codegen.launcher import memory
from hlo.errors import Declined
from tiling.program.updates.in_place import is_update

ROWS, COLUMNS = 24, 40
TYPE = f"tensor<{ROWS}x{COLUMNS}xf32>"
ROW = f"tensor<1x{COLUMNS}xf32>"


def program(arguments: str, body: str, results: str, types: str) -> hlo.Module:
    return hlo.parse(f"func.func @main({arguments}) -> ({types}) {{\n{body}\n  return {results} : {types}\n}}")


def given(k: int) -> str:
    return f"{{tf.aliasing_output = {k} : i32}}"


def arrays_of(module: hlo.Module, seed: int = 0) -> list[np.ndarray]:
    """Arguments in whole lines of the cache, as JAX's are."""
    rng = np.random.default_rng(seed)
    made = []
    for v in module.function().arguments:
        wanted = rng.integers(0, ROWS, v.shape) if v.tensor.element.is_integer else rng.standard_normal(v.shape)
        made.append(memory.in_lines(wanted.astype(v.tensor.dtype)))
    return made


def check(module: hlo.Module, expected: dict[int, int] | None = None, seed: int = 0) -> codegen.Executable:
    """In place and after copies the results are the evaluator's; `expected` are the arguments that are written over."""
    exe = codegen.compile(module, donate=True)
    if expected is not None:
        assert exe.plan.written_over == expected
    given = arrays_of(module, seed)
    wanted = interp.evaluate(module, *given)
    copies = [a.copy() for a in given]
    for k, (found, good) in enumerate(zip(exe(*given), wanted, strict=True)):
        np.testing.assert_allclose(found, good, rtol=2e-5, atol=1e-5, err_msg=f"result {k}, after copies")
    for a, b in zip(given, copies, strict=True):
        np.testing.assert_array_equal(a, b)  # nothing was given away
    results = exe.call_in_place(*given)
    for k, (found, good) in enumerate(zip(results, wanted, strict=True)):
        np.testing.assert_allclose(found, good, rtol=2e-5, atol=1e-5, err_msg=f"result {k}, in place")
    for argument, result in exe.plan.written_over.items():
        assert results[result] is given[argument]
    for k, (a, b) in enumerate(zip(given, copies, strict=True)):
        if k not in exe.plan.written_over:
            np.testing.assert_array_equal(a, b, err_msg=f"argument {k} is the caller's")
    return exe


INSERT = program(
    f"%buffer: {TYPE} {given(0)}, %row: {ROW}, %at: tensor<i32>",
    f"""  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.dynamic_update_slice %buffer, %row, %at, %zero : ({TYPE}, {ROW}, tensor<i32>, tensor<i32>) -> {TYPE}""",
    "%0", TYPE,
)  # fmt: skip


def test_an_insertion_stores_the_new_row_alone() -> None:
    exe = check(INSERT, {0: 0})
    (update,) = exe.plan.fusions
    assert is_update(update.stages[-1].op)
    assert COLUMNS * 4 <= update.estimate.memory_bytes < ROWS * COLUMNS * 4


def test_without_donations_nothing_is_written_over() -> None:
    exe = codegen.compile(INSERT)
    assert not exe.plan.written_over and not exe.plan.reuses
    given_away = arrays_of(INSERT)
    before = given_away[0].copy()
    assert exe.call_in_place(*given_away)[0] is not given_away[0]
    np.testing.assert_array_equal(given_away[0], before)


def test_what_a_later_store_of_the_loop_reads_is_read_before() -> None:
    """Momentum and a step by it: the old momentum is read for both."""
    module = program(
        f"%p: {TYPE} {given(1)}, %m: {TYPE} {given(0)}, %g: {TYPE}",
        f"""  %h = stablehlo.constant dense<0.9> : {TYPE}
  %0 = stablehlo.multiply %m, %h : {TYPE}
  %1 = stablehlo.add %0, %g : {TYPE}
  %2 = stablehlo.multiply %m, %1 : {TYPE}
  %3 = stablehlo.subtract %p, %2 : {TYPE}""",
        "%1, %3", f"{TYPE}, {TYPE}",
    )  # fmt: skip
    check(module, {0: 1, 1: 0})


def test_what_only_a_later_store_reads_is_read_before_the_first() -> None:
    """The first store is over %a and does not read it; the second one does, in the same iteration."""
    module = program(
        f"%a: {TYPE} {given(0)}, %g: {TYPE}",
        f"""  %0 = stablehlo.add %g, %g : {TYPE}
  %1 = stablehlo.tanh %0 : {TYPE}
  %2 = stablehlo.subtract %a, %1 : {TYPE}""",
        "%0, %2", f"{TYPE}, {TYPE}",
    )  # fmt: skip
    exe = check(module, {0: 0})
    assert len(exe.kernels) == 1 and "w0 = " in exe.source


def test_two_values_change_places() -> None:
    """Of two kernels one has to come first: the other one's value keeps memory of its own."""
    module = program(
        f"%a: {TYPE} {given(0)}, %b: {TYPE} {given(1)}",
        f"  %0 = stablehlo.negate %b : {TYPE}\n  %1 = stablehlo.cosine %a : {TYPE}", "%0, %1", f"{TYPE}, {TYPE}",
    )  # fmt: skip
    check(module, {0: 0})


def test_a_dimension_that_is_written_out() -> None:
    """Two stores of one iteration, each of which reads its own element."""
    module = hlo.parse(f"""func.func @main(%a: tensor<10x2xf32> {given(0)}, %b: tensor<10xf32>) -> tensor<10x2xf32> {{
      %0 = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<10xf32>) -> tensor<10x2xf32>
      %1 = stablehlo.tanh %a : tensor<10x2xf32>
      %2 = stablehlo.compare GT, %0, %a : (tensor<10x2xf32>, tensor<10x2xf32>) -> tensor<10x2xi1>
      %3 = stablehlo.select %2, %1, %0 : tensor<10x2xi1>, tensor<10x2xf32>
      return %3 : tensor<10x2xf32>
    }}""")
    check(module, {0: 0})


def test_elements_that_are_read_elsewhere_keep_their_memory() -> None:
    body = f"  %0 = stablehlo.reverse %a, dims = [0] : {TYPE}\n  %1 = stablehlo.add %0, %a : {TYPE}"
    module = program(f"%a: {TYPE} {given(0)}", body, "%1", TYPE)
    check(module, {})


def test_an_update_for_another_result_is_made_on_a_copy() -> None:
    """The argument's memory is that of a result that has to be computed apart."""
    module = program(
        f"%buffer: {TYPE} {given(1)}, %row: {ROW}, %at: tensor<i32>",
        f"""  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.dynamic_update_slice %buffer, %row, %at, %zero : ({TYPE}, {ROW}, tensor<i32>, tensor<i32>) -> {TYPE}
  %1 = stablehlo.reverse %0, dims = [1] : {TYPE}""",
        "%0, %1", f"{TYPE}, {TYPE}",
    )  # fmt: skip
    exe = check(module, {})
    assert "after a copy" in exe.plan.explain()


def test_the_argument_itself_is_a_result() -> None:
    check(program(f"%a: {TYPE} {given(0)}", f"  %0 = stablehlo.tanh %a : {TYPE}", "%a, %0", f"{TYPE}, {TYPE}"), {})
    check(program(f"%a: {TYPE} {given(0)}", f"  %0 = stablehlo.tanh %a : {TYPE}", "%0, %0", f"{TYPE}, {TYPE}"), {0: 0})


def test_a_loop_takes_the_argument_as_its_value() -> None:
    module = program(
        f"%a: {TYPE} {given(1)}, %row: {ROW}",
        f"""  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %most = stablehlo.constant dense<9> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, {TYPE}
  cond {{
    %c = stablehlo.compare LT, %i, %most : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %n = stablehlo.add %i, %one : tensor<i32>
    %u = stablehlo.dynamic_update_slice %x, %row, %n, %zero : ({TYPE}, {ROW}, tensor<i32>, tensor<i32>) -> {TYPE}
    stablehlo.return %n, %u : tensor<i32>, {TYPE}
  }}""",
        "%0#0, %0#1", f"tensor<i32>, {TYPE}",
    )  # fmt: skip
    check(module, {0: 1})


def test_only_arrays_that_a_call_may_change_are_changed() -> None:
    exe = codegen.compile(INSERT, donate=True)
    buffer, row, at = arrays_of(INSERT)
    wanted = exe(buffer, row, at)[0]
    read_only = buffer.copy()
    read_only.flags.writeable = False
    shifted = memory.in_lines(np.zeros(ROWS * COLUMNS + 1, np.float32))[1:].reshape(ROWS, COLUMNS)
    shifted[:] = buffer
    for own in (read_only, shifted, np.asfortranarray(buffer)):
        before = own.copy()
        (found,) = exe.call_in_place(own, row, at)
        assert found is not own
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(own, before)
    inside = buffer[3:4]  # the new row is one of the buffer's own
    (found,) = exe.call_in_place(buffer, inside, at)
    assert found is not buffer


def test_what_lies_in_another_argument_is_not_written() -> None:
    room = memory.in_lines(np.zeros(1024, np.float32))
    parts = [room[:512], room[16:32], room[480:544], room[544:560], room[560:576], room[578:594]]
    assert writeable(parts, range(6)) == {3, 4}  # the last one begins in the middle of a line
    parts[4].flags.writeable = False
    assert writeable([*parts, room[640:704], room[704:]], range(8)) == {3, 6, 7}
    assert writeable([room, *parts], range(7)) == set()


def test_guards_records_files_and_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exe = codegen.compile(INSERT, donate=True)
    arrays = arrays_of(INSERT)
    wanted = interp.evaluate(INSERT, *arrays)[0]
    data = recorded(exe)
    assert not isinstance(data, Declined)
    again = restored(data, lambda: exe)
    assert not isinstance(again, Declined)
    np.testing.assert_array_equal(again(*arrays)[0], wanted)
    own = arrays_of(INSERT)
    assert again.call_in_place(*own)[0] is own[0]
    exe.plan.save(tmp_path / "plan.json")
    assert tiling.load_plan(tmp_path / "plan.json").written_over == {0: 0}
    exe.save(tmp_path / "program")
    before = arrays[0].copy()
    np.testing.assert_array_equal(tilewright.load(tmp_path / "program")(*arrays)[0], wanted)
    np.testing.assert_array_equal(arrays[0], before)
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "guard")
    np.testing.assert_array_equal(codegen.compile(INSERT, donate=True)(*arrays)[0], wanted)


def test_plans_with_and_without_donations_are_remembered_apart() -> None:
    for _ in range(2):
        assert codegen.compile(INSERT, donate=True).plan.written_over == {0: 0}
        assert not codegen.compile(INSERT).plan.written_over


def random_updates(seed: int) -> hlo.Module:
    """A few values of one type through elementwise ops, updates, reversals, sums of rows and products; some are given away."""
    rng = random.Random(seed)
    count = rng.randint(2, 4)
    values = [f"%a{k}" for k in range(count)]
    lines = ["  %zero = stablehlo.constant dense<0> : tensor<i32>", "  %none = stablehlo.constant dense<0.0> : tensor<f32>"]
    for k in range(rng.randint(2, 9)):
        x, y, r = rng.choice(values[-5:]), rng.choice(values), f"%v{k}"
        kind = rng.choice(("unary", "binary", "binary", "update", "update", "reverse", "sum", "slide"))
        if kind == "unary":
            lines.append(f"  {r} = stablehlo.{rng.choice(('tanh', 'negate', 'cosine'))} {x} : {TYPE}")
        elif kind == "binary":
            lines.append(f"  {r} = stablehlo.{rng.choice(('add', 'subtract', 'maximum'))} {x}, {y} : {TYPE}")
        elif kind == "update":
            types = f"({TYPE}, {ROW}, tensor<i32>, tensor<i32>) -> {TYPE}"
            lines.append(f"  {r} = stablehlo.dynamic_update_slice {x}, %row, %at, %zero : {types}")
        elif kind == "reverse":
            lines.append(f"  {r} = stablehlo.reverse {x}, dims = [{rng.randint(0, 1)}] : {TYPE}")
        elif kind == "sum":
            lines += [
                f"  {r}s = stablehlo.reduce({x} init: %none) applies stablehlo.add across dimensions = [1] : "
                f"({TYPE}, tensor<f32>) -> tensor<{ROWS}xf32>",
                f"  {r}b = stablehlo.broadcast_in_dim {r}s, dims = [0] : (tensor<{ROWS}xf32>) -> {TYPE}",
                f"  {r} = stablehlo.subtract {y}, {r}b : {TYPE}",
            ]
        else:
            lines += [
                f"  {r}s = stablehlo.slice {x} [1:{ROWS}, 0:{COLUMNS}] : ({TYPE}) -> tensor<{ROWS - 1}x{COLUMNS}xf32>",
                f"  {r} = stablehlo.pad {r}s, %none, low = [1, 0], high = [0, 0], interior = [0, 0] : "
                f"(tensor<{ROWS - 1}x{COLUMNS}xf32>, tensor<f32>) -> {TYPE}",
            ]
        values.append(r)
    results = [rng.choice(values[-4:]) for _ in range(rng.randint(1, count + 1))]
    places = rng.sample(range(len(results)), min(len(results), rng.randint(1, count)))
    away = dict(zip(rng.sample(range(count), len(places)), places, strict=True))
    arguments = [f"%a{k}: {TYPE} {given(away[k]) if k in away else ''}" for k in range(count)]
    return program(", ".join([*arguments, f"%row: {ROW}", "%at: tensor<i32>"]), "\n".join(lines), ", ".join(results),
                   ", ".join([TYPE] * len(results)))  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    check(random_updates(seed), seed=seed)


def test_random_programs_write_over_many_arguments() -> None:
    """The programs above are worth something: most of them have results in place."""
    found = [len(tiling.plan(random_updates(seed), donate=True).written_over) for seed in range(30)]
    assert sum(map(bool, found)) >= 15
