# ruff: noqa: E501  (programs are written as they are printed)
"""The process grid: collectives with every grouping, channels, infeed, deadlocks, failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo
import interp

ADD = """({
      ^bb0(%x: tensor<i64>, %y: tensor<i64>):
        %s = stablehlo.add %x, %y : tensor<i64>
        stablehlo.return %s : tensor<i64>
    })"""
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = {}, type = 0>"


def grid(text: str, programs: list[list[str]], *inputs: Any, **more: Any) -> tuple[Any, ...]:
    module = hlo.parse(text)
    hlo.verify(module)
    return interp.run_parallel(module, programs, *inputs, **more)


def one(op: str, operand: str = "4xi64", result: str | None = None) -> str:
    """A module whose @main applies `op` to its argument %0."""
    result = result or operand
    return f"""func.func @main(%0: tensor<{operand}>) -> tensor<{result}> {{
      %r = {op} : (tensor<{operand}>) -> tensor<{result}>
      return %r : tensor<{result}>
    }}"""


def spread(replicas: int, partitions: int) -> list[list[str]]:
    return [["main"] * partitions for _ in range(replicas)]


def numbered(count: int, size: int = 4) -> list[np.ndarray]:
    """Process k gets k*10 + [0, 1, …]."""
    return [10 * k + np.arange(size) for k in range(count)]


def test_all_gather() -> None:
    op = f'"stablehlo.all_gather"(%0) {{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, {CHANNEL.format(0)}}}'
    a, b = np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]])
    for found in grid(one(op, "2x2xi64", "2x4xi64"), spread(2, 1), a, b):
        assert found.tolist() == [[1, 2, 5, 6], [3, 4, 7, 8]]


def test_all_reduce() -> None:
    op = f'"stablehlo.all_reduce"(%0) {ADD} {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, {CHANNEL.format(0)}}}'
    for found in grid(one(op), spread(2, 1), np.array([1, 2, 3, 4]), np.array([5, 6, 7, 8])):
        assert found.tolist() == [6, 8, 10, 12]


@pytest.mark.parametrize(
    ("channel", "flags", "groups", "expected"),
    [
        # 2 replicas x 2 partitions; processes in order (0,0) (0,1) (1,0) (1,1) hold 0, 10, 20, 30
        (0, "", "[[0, 1]] : 1x2", [20, 40, 20, 40]),  # cross_replica: a partition of both replicas
        (1, "", "[[0, 1]] : 1x2", [60, 60, 60, 60]),  # cross_replica_and_partition: everybody
        (1, "", "[[0], [1]] : 2x1", [10, 10, 50, 50]),  # each replica with its partitions
        (1, ", use_global_device_ids", "[[0, 3], [1, 2]] : 2x2", [30, 30, 30, 30]),  # flattened_ids
        (1, ", use_global_device_ids", "[[0, 1, 2], [3, -1, -1]] : 2x3", [30, 30, 30, 30]),  # groups of different sizes
    ],
)
def test_the_strategies_of_all_reduce(channel: int, flags: str, groups: str, expected: list[int]) -> None:
    rows, _, shape = groups.partition(" : ")
    op = f'"stablehlo.all_reduce"(%0) {ADD} {{replica_groups = dense<{rows}> : tensor<{shape}xi64>, {CHANNEL.format(channel)}{flags}}}'
    found = grid(one(op, "i64"), spread(2, 2), *(np.array(10 * k) for k in range(4)))
    assert [int(v) for v in found] == expected


def test_all_to_all() -> None:
    def op(channel: int) -> str:
        return f""""stablehlo.all_to_all"(%0) {{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64,
          replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, {CHANNEL.format(channel)}}}"""

    a, b = np.arange(1, 9).reshape(2, 4), np.arange(9, 17).reshape(2, 4)
    expected = [[[1, 2], [5, 6], [9, 10], [13, 14]], [[3, 4], [7, 8], [11, 12], [15, 16]]]
    assert [f.tolist() for f in grid(one(op(0), "2x4xi64", "4x2xi64"), spread(2, 1), a, b)] == expected
    assert [f.tolist() for f in grid(one(op(1), "2x4xi64", "4x2xi64"), spread(1, 2), a, b)] == expected  # cross_partition


def test_collective_broadcast() -> None:
    op = f'"stablehlo.collective_broadcast"(%0) {{replica_groups = dense<[[2, 1]]> : tensor<1x2xi64>, {CHANNEL.format(0)}}}'
    inputs = [np.array([[2 * k + 1, 2 * k + 2]]) for k in range(4)]
    found = grid(one(op, "1x2xi64"), spread(4, 1), *inputs)
    assert [f.tolist() for f in found] == [[[0, 0]], [[5, 6]], [[5, 6]], [[0, 0]]]


def test_collective_broadcast_of_several_operands() -> None:
    text = f"""func.func @main(%0: tensor<2xi64>, %1: tensor<1xi32>) -> (tensor<2xi64>, tensor<1xi32>) {{
      %r:2 = "stablehlo.collective_broadcast"(%0, %1) {{replica_groups = dense<[[2, 1]]> : tensor<1x2xi64>, {CHANNEL.format(0)}}}
        : (tensor<2xi64>, tensor<1xi32>) -> (tensor<2xi64>, tensor<1xi32>)
      return %r#0, %r#1 : tensor<2xi64>, tensor<1xi32>
    }}"""
    inputs = [x for k in range(3) for x in (np.array([2 * k + 1, 2 * k + 2]), np.array([k + 7], np.int32))]
    found = [f.tolist() for f in grid(text, spread(3, 1), *inputs)]
    assert found == [[0, 0], [0], [5, 6], [9], [5, 6], [9]]


def test_collective_broadcast_from_roots_that_the_program_chooses() -> None:
    text = f"""func.func @main(%0: tensor<1xi64>, %1: tensor<1xi32>, %2: tensor<2xi32>) -> (tensor<1xi64>, tensor<1xi32>) {{
      %r:2 = "stablehlo.collective_broadcast"(%0, %1, %2) {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, has_dynamic_root,
        {CHANNEL.format(0)}}} : (tensor<1xi64>, tensor<1xi32>, tensor<2xi32>) -> (tensor<1xi64>, tensor<1xi32>)
      return %r#0, %r#1 : tensor<1xi64>, tensor<1xi32>
    }}"""
    roots = np.array([1, 0], np.int32)
    inputs = [x for k in range(2) for x in (np.array([k + 1]), np.array([k + 7], np.int32), roots)]
    assert [f.tolist() for f in grid(text, spread(2, 1), *inputs)] == [[2], [7], [2], [7]]
    inputs[2] = inputs[5] = np.array([1, 2], np.int32)
    with pytest.raises(hlo.TilewrightError, match="expected roots from 0 to 1, found 2"):
        grid(text, spread(2, 1), *inputs)


@pytest.mark.parametrize(("channel", "shape"), [(0, (3, 1)), (1, (1, 3))])
def test_collective_permute(channel: int, shape: tuple[int, int]) -> None:
    op = f'"stablehlo.collective_permute"(%0) {{source_target_pairs = dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>, {CHANNEL.format(channel)}}}'
    found = grid(one(op), spread(*shape), *numbered(3))
    assert [f.tolist() for f in found] == [[0] * 4, [0, 1, 2, 3], [10, 11, 12, 13]]


def test_reduce_scatter() -> None:
    op = f""""stablehlo.reduce_scatter"(%0) {ADD} {{scatter_dimension = 1 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
      {CHANNEL.format(0)}}}"""
    a, b = np.arange(1, 9).reshape(2, 4), np.arange(9, 17).reshape(2, 4)
    found = grid(one(op, "2x4xi64", "2x2xi64"), spread(2, 1), a, b)
    assert [f.tolist() for f in found] == [[[10, 12], [18, 20]], [[14, 16], [22, 24]]]


def test_each_process_knows_its_place() -> None:
    text = """func.func @main() -> (tensor<ui32>, tensor<ui32>) {
      %r = stablehlo.replica_id : tensor<ui32>
      %p = stablehlo.partition_id : tensor<ui32>
      return %r, %p : tensor<ui32>, tensor<ui32>
    }"""
    assert [int(v) for v in grid(text, spread(2, 2))] == [0, 0, 0, 1, 1, 0, 1, 1]


SEND = """func.func @send(%v: tensor<2xi64>, %t: !stablehlo.token) -> !stablehlo.token {
      %r = "stablehlo.send"(%v, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true}
        : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token
      return %r : !stablehlo.token
    }
    func.func @recv(%t: !stablehlo.token) -> (tensor<2xi64>, !stablehlo.token) {
      %v, %r = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>, is_host_transfer = true}
        : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
      return %v, %r : tensor<2xi64>, !stablehlo.token
    }"""


@pytest.mark.parametrize("programs", [[["send"], ["recv"]], [["recv"], ["send"]]])
def test_send_and_recv(programs: list[list[str]]) -> None:
    inputs = [np.array([3, 4]), None, None] if programs[0] == ["send"] else [None, np.array([3, 4]), None]
    found = grid(SEND, programs, *inputs)
    assert [f.tolist() for f in found if f is not None] == [[3, 4]]
    assert len(found) == 3


def test_infeed_and_outfeed() -> None:
    text = """func.func @main(%t: !stablehlo.token) -> (tensor<2xi64>, tensor<2xi64>) {
      %a:2 = "stablehlo.infeed"(%t) {infeed_config = ""} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
      %b:2 = "stablehlo.infeed"(%a#1) {infeed_config = ""} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
      %o = "stablehlo.outfeed"(%b#0, %b#1) {outfeed_config = ""} : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token
      return %a#0, %b#0 : tensor<2xi64>, tensor<2xi64>
    }
    func.func @first() -> tensor<2xi64> {
      %c = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
      return %c : tensor<2xi64>
    }
    func.func @second() -> tensor<2xi64> {
      %c = stablehlo.constant dense<[3, 4]> : tensor<2xi64>
      return %c : tensor<2xi64>
    }"""
    found = grid(text, [["main"]], None, infeed=["first", "second"])
    assert [f.tolist() for f in found] == [[1, 2], [3, 4]]
    with pytest.raises(interp.ExecutionError, match=r"3:14: stablehlo.infeed: the infeed has no more data"):
        grid(text, [["main"]], None, infeed=["first"])


def test_asynchronous_collectives() -> None:
    text = f"""func.func @main(%0: tensor<4xi64>) -> tensor<8xi64> {{
      %f = "stablehlo.async_start"(%0) ({{
        ^bb0(%a: tensor<4xi64>):
          %g = "stablehlo.all_gather"(%a) {{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
            {CHANNEL.format(0)}}} : (tensor<4xi64>) -> tensor<8xi64>
          stablehlo.return %g : tensor<8xi64>
      }}) : (tensor<4xi64>) -> !stablehlo.future<tensor<8xi64>>
      %r = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<8xi64>>) -> tensor<8xi64>
      return %r : tensor<8xi64>
    }}"""
    for found in grid(text, spread(2, 1), *numbered(2)):
        assert found.tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


GATHER = '"stablehlo.all_gather"(%0) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}'


def test_a_process_that_never_comes_is_named() -> None:
    text = one(GATHER, "4xi64", "8xi64") + "\nfunc.func @idle(%0: tensor<4xi64>) -> tensor<4xi64> { return %0 : tensor<4xi64> }"
    with pytest.raises(interp.DeadlockError) as caught:
        grid(text, [["main"], ["idle"]], *numbered(2))
    message = str(caught.value)
    assert "process (0, 0) waits at stablehlo.all_gather" in message
    assert "process (1, 0), which has ended" in message
    assert message.startswith("<text>:2:12")


def test_processes_that_wait_at_different_ops_are_named() -> None:
    reduce_ = f'"stablehlo.all_reduce"(%0) {ADD} {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}'
    text = one(GATHER, "4xi64", "8xi64") + "\n" + one(reduce_).replace("@main", "@other")
    with pytest.raises(
        interp.DeadlockError, match=r"\(0, 0\) waits at stablehlo.all_gather.*\(1, 0\), which waits at stablehlo.all_reduce"
    ):
        grid(text, [["main"], ["other"]], *numbered(2))


def test_a_message_that_nobody_sends() -> None:
    with pytest.raises(interp.DeadlockError, match="a message that nobody sends in channel 1"):
        grid(SEND, [["recv"]], None)


def test_an_error_in_one_process_ends_all() -> None:
    text = (
        one(GATHER, "4xi64", "8xi64")
        + """
    func.func @fails(%0: tensor<4xi64>) -> tensor<4xi64> {
      %r = stablehlo.custom_call @boom(%0) : (tensor<4xi64>) -> tensor<4xi64>
      return %r : tensor<4xi64>
    }"""
    )
    with pytest.raises(interp.ExecutionError, match="unknown target 'boom'"):
        grid(text, [["main"], ["fails"]], *numbered(2))


def test_collectives_work_in_a_single_process() -> None:
    op = '"stablehlo.all_gather"(%0) {all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>}'
    (found,) = interp.evaluate(hlo.parse(one(op)), np.arange(4))
    assert found.tolist() == [0, 1, 2, 3]


def test_the_grid_is_checked() -> None:
    module = hlo.parse(one(GATHER, "4xi64", "8xi64"))
    with pytest.raises(interp.InputError, match="no function @absent"):
        interp.run_parallel(module, [["absent"]])
    with pytest.raises(interp.InputError, match="as many partitions each"):
        interp.run_parallel(module, [["main"], []])
    with pytest.raises(interp.InputError, match=r"expected 2 arrays .* found 1"):
        interp.run_parallel(module, [["main"], ["main"]], np.arange(4))


def test_limits_hold_for_all_processes_together() -> None:
    text = """func.func @main(%0: tensor<i64>) -> tensor<i64> {
      %r = "stablehlo.while"(%0) ({
        ^bb0(%i: tensor<i64>):
          %c = stablehlo.constant dense<true> : tensor<i1>
          stablehlo.return %c : tensor<i1>
      }, {
        ^bb0(%i: tensor<i64>):
          stablehlo.return %i : tensor<i64>
      }) : (tensor<i64>) -> tensor<i64>
      return %r : tensor<i64>
    }"""
    with pytest.raises(interp.LimitError, match="more than 500 steps"):
        grid(text, spread(2, 1), np.array(0), np.array(0), limits=interp.Limits(steps=500))


def test_the_trace_tells_processes_apart() -> None:
    seen = set()
    op = f'"stablehlo.all_reduce"(%0) {ADD} {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}'
    grid(one(op), spread(2, 1), *numbered(2), trace=lambda e: seen.add((e.process, e.op.name)))
    assert {p for p, name in seen if name == "stablehlo.all_reduce"} == {(0, 0), (1, 0)}
