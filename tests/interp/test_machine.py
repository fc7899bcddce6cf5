"""The machine: inputs, regions on lanes, deep nesting, limits, the trace."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlo
import interp
from hlo.attributes import DotDimensions
from tests.interp.building import apply, close, function, make, scalar_region, tensor, type_of


def twice() -> hlo.Module:
    return function([tensor((2, 3), "f32")], lambda x: [make("stablehlo.add", [x, x], [x.type])])


def test_inputs_are_checked() -> None:
    m = twice()
    good = np.ones((2, 3), np.float32)
    with pytest.raises(interp.InputError, match=r"expected 1 array for @main .* found 0"):
        interp.evaluate(m)
    with pytest.raises(interp.InputError, match=r"expected 1 array .* found 2"):
        interp.evaluate(m, good, good)
    with pytest.raises(interp.InputError, match=r"argument 0.*expected tensor<2x3xf32>.*found float64"):
        interp.evaluate(m, good.astype(np.float64))
    with pytest.raises(interp.InputError, match=r"argument 0.*expected tensor<2x3xf32>, found shape \[3, 2\]"):
        interp.evaluate(m, good.T)
    with pytest.raises(interp.InputError, match="no function @other"):
        interp.evaluate(m, good, entry="other")
    assert issubclass(interp.InputError, hlo.TilewrightError)


def test_results_belong_to_the_caller() -> None:
    t = tensor((2,), "f32")
    m = function([t], lambda x: [make("stablehlo.reshape", [x], [t])])
    x = np.ones(2, np.float32)
    (y,) = interp.evaluate(m, x)
    y[0] = 5
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 101])
def test_reduce_keeps_the_order_of_a_body_that_does_not_commute(n: int) -> None:
    t = tensor((), "i32")
    first = hlo.Block([t, t])  # (a, b) -> b, unless b is 0: the last element that is not 0
    zero = make("stablehlo.constant", [], [t], value=hlo.DenseArray(t, np.zeros((), np.int32)))
    is_zero = make("stablehlo.compare", [first.arguments[1], zero.result], [tensor((), "i1")], comparison_direction="EQ")
    pick = make("stablehlo.select", [is_zero.result, *first.arguments], [t])
    first.ops += [zero, is_zero, pick]
    close(first, pick.results, "stablehlo.return")
    x = np.arange(1, n + 1, dtype=np.int32)
    found = apply("stablehlo.reduce", [x, np.array(0, np.int32)], t, [first], dimensions=(0,))
    assert int(found) == n


def test_reduce_sums_as_a_tree() -> None:
    x = np.full(1 << 20, 0.1, np.float32)
    zero = np.zeros((), np.float32)
    found = apply("stablehlo.reduce", [x, zero], tensor((), "f32"), [scalar_region("stablehlo.add", "f32")], dimensions=(0,))
    exact = float(np.float32(0.1)) * (1 << 20)
    assert abs(float(found) - exact) <= exact * 2e-7


def test_reduce_accumulates_in_the_type_of_its_body() -> None:
    x = np.full(300, 1, np.int8)
    body = scalar_region("stablehlo.add", "i32")
    found = apply("stablehlo.reduce", [x, np.zeros((), np.int8)], tensor((), "i32"), [body], dimensions=(0,))
    assert int(found) == 300
    narrow_ = scalar_region("stablehlo.add", "i8")
    assert int(apply("stablehlo.reduce", [x, np.zeros((), np.int8)], tensor((), "i8"), [narrow_], dimensions=(0,))) == 300 - 256


def test_reduce_over_some_dimensions() -> None:
    x = np.random.default_rng(0).integers(-9, 9, (3, 4, 5, 2)).astype(np.int64)
    found = apply(
        "stablehlo.reduce",
        [x, np.array(7, np.int64)],
        tensor((4, 2), "i64"),
        [scalar_region("stablehlo.add", "i64")],
        dimensions=(2, 0),
    )
    np.testing.assert_array_equal(found, x.sum((0, 2)) + 7)


def test_a_region_with_an_op_on_whole_tensors_runs_lane_by_lane() -> None:
    """The body sums a table that it builds from its arguments: broadcast to a vector, then reduce inside the region."""
    t, v = tensor((), "f32"), tensor((3,), "f32")
    body = hlo.Block([t, t])
    spread = make("stablehlo.broadcast_in_dim", [body.arguments[0]], [v], broadcast_dimensions=())
    zero = make("stablehlo.constant", [], [t], value=hlo.DenseArray(t, np.zeros((), np.float32)))
    inner = make("stablehlo.reduce", [spread.result, zero.result], [t], [scalar_region("stablehlo.add", "f32")], dimensions=(0,))
    both = make("stablehlo.add", [inner.result, body.arguments[1]], [t])
    body.ops += [spread, zero, inner, both]
    close(body, both.results, "stablehlo.return")
    x = np.array([[1, 2], [3, 4]], np.float32)
    found = apply("stablehlo.reduce", [x, np.zeros((), np.float32)], tensor((2,), "f32"), [body], dimensions=(1,))
    # fold: body(init = 0, body(x0, x1)) = 3*0 + (3*x0 + x1)
    assert found.tolist() == [5, 13]


def test_deep_nesting_needs_no_python_stack() -> None:
    """2,000 regions inside one another: each body of a reduce holds the next reduce."""
    t, v = tensor((), "i32"), tensor((1,), "i32")
    depth = 2000
    block = scalar_region("stablehlo.add", "i32")
    for _ in range(depth):
        outer = hlo.Block([t, t])
        wide = make("stablehlo.reshape", [outer.arguments[0]], [v])
        inner = make("stablehlo.reduce", [wide.result, outer.arguments[1]], [t], [block], dimensions=(0,))
        outer.ops += [wide, inner]
        block = close(outer, inner.results, "stablehlo.return")
    x = np.array([4], np.int32)
    found = apply("stablehlo.reduce", [x, np.array(3, np.int32)], t, [block], dimensions=(0,))
    assert int(found) == 7


def test_deep_calls_need_no_python_stack() -> None:
    t = tensor((), "i32")
    functions = {}
    depth = 3000
    for k in range(depth):
        block = hlo.Block([t])
        x = block.arguments[0]
        op = make("func.call", [x], [t], callee=f"f{k + 1}") if k + 1 < depth else make("stablehlo.negate", [x], [t])
        block.ops.append(op)
        functions["main" if k == 0 else f"f{k}"] = hlo.Function("main", close(block, op.results), result_types=(t,))
    (found,) = interp.evaluate(hlo.Module(functions), np.array(5, np.int32))
    assert int(found) == -5


def test_limits() -> None:
    t = tensor((1000, 1000), "f32")
    m = function([tensor((), "f32")], lambda x: [b := make("stablehlo.broadcast_in_dim", [x], [t], broadcast_dimensions=()),
                                                 make("stablehlo.negate", [b.result], [t])])  # fmt: skip
    one = np.ones((), np.float32)
    with pytest.raises(interp.LimitError, match="negate: needs 4000000 bytes"):
        interp.evaluate(m, one, limits=interp.Limits(memory_bytes=1_000_000))
    interp.evaluate(m, one, limits=interp.Limits(memory_bytes=9_000_000, steps=2))
    with pytest.raises(interp.LimitError, match="more than 1 steps"):
        interp.evaluate(m, one, limits=interp.Limits(steps=1))


def test_recursion_without_end_meets_the_step_limit() -> None:
    t = tensor((), "i32")
    m = function([t], lambda x: [make("func.call", [x], [t], callee="main")])
    with pytest.raises(interp.LimitError, match="more than 10000 steps"):
        interp.evaluate(m, np.array(0, np.int32), limits=interp.Limits(steps=10_000))


def test_values_die_after_their_last_use() -> None:
    t = tensor((1000,), "f64")

    def chain(x: hlo.Value) -> list[hlo.Op]:
        ops = [make("stablehlo.negate", [x], [t])]
        for _ in range(50):
            ops.append(make("stablehlo.negate", [ops[-1].result], [t]))
        return ops

    x = np.ones(1000)
    interp.evaluate(function([t], chain), x, limits=interp.Limits(memory_bytes=8000 * 4))


def test_the_trace_sees_every_op() -> None:
    events: list[interp.TraceEvent] = []
    x = np.arange(1, 81, dtype=np.float32)
    t = tensor((), "f32")
    m = function(
        [type_of(x), t],
        lambda a, i: [make("stablehlo.reduce", [a, i], [t], [scalar_region("stablehlo.add", "f32")], dimensions=(0,))],
    )
    interp.evaluate(m, x, np.zeros((), np.float32), trace=events.append)
    assert events[-1].op.name == "stablehlo.reduce" and float(events[-1].outputs[0]) == 3240
    inner = [e for e in events if e.op.name == "stablehlo.add"]
    assert inner[0].lanes == 1 and inner[0].process == (0, 0)
    np.testing.assert_array_equal(inner[0].inputs[0], x[0::2])
    np.testing.assert_array_equal(inner[0].outputs[0], x[0::2] + x[1::2])


def test_dot_general_is_rounded_once() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(5, 3, 300)).astype(np.float32), rng.normal(size=(300, 5, 4)).astype(np.float32)
    dims = DotDimensions((0,), (1,), (2,), (0,))
    found = apply("stablehlo.dot_general", [a, b], tensor((5, 3, 4), "f32"), dot_dimension_numbers=dims)
    exact = np.einsum("bik,kbj->bij", a.astype(np.longdouble), b.astype(np.longdouble)).astype(np.float32)
    assert np.mean(found == exact) > 0.98
    np.testing.assert_allclose(found, exact, rtol=2e-7)


def test_dot_general_of_integers_wraps_around() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-(2**31), 2**31, (6, 6)).astype(np.int32) for _ in range(2))
    dims = DotDimensions((), (), (1,), (0,))
    found = apply("stablehlo.dot_general", [a, b], tensor((6, 6), "i32"), dot_dimension_numbers=dims)
    exact = (a.astype(object) @ b.astype(object) + 2**31) % 2**32 - 2**31
    assert found.tolist() == exact.tolist()


def test_dot_general_of_small_types() -> None:
    a = np.array([[1.5, 2]]).astype(ml_dtypes.float8_e4m3fn)
    b = np.array([[2.0], [0.25]]).astype(ml_dtypes.float8_e5m2)
    dims = DotDimensions((), (), (1,), (0,))
    assert apply("stablehlo.dot_general", [a, b], tensor((1, 1), "f32"), dot_dimension_numbers=dims).tolist() == [[3.5]]
    flags = np.array([[True, False], [False, False]])
    assert apply("stablehlo.dot_general", [flags, flags], type_of(flags), dot_dimension_numbers=dims).tolist() == flags.tolist()


def test_a_missing_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from interp import registry

    monkeypatch.delitem(registry._RULES, "stablehlo.add")
    with pytest.raises(interp.ExecutionError, match=r"interp\.rules has no rule for stablehlo\.add"):
        interp.evaluate(twice(), np.ones((2, 3), np.float32))


def test_a_rule_is_registered_once() -> None:
    from interp.registry import rule

    with pytest.raises(ValueError, match=r"two rules for stablehlo\.add"):
        rule("stablehlo.add")(lambda ctx, op: None)
