"""The builder: every method once with its result type, broadcasting as XLA's documentation describes it, errors at the wrong call."""

# ruff: noqa: E501 (rows as they are)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlo
import interp
from hlo.attributes import ChannelHandle, ConvDimensions, DotDimensions, GatherDimensions, RaggedDotDimensions, ScatterDimensions
from hlo.builder import GENERATED, Builder
from hlo.builder.binary import BINARY, COMPARISONS
from hlo.builder.generated import ALIASES

F, I, P, S = "f32[4]", "s32[4]", "pred[4]", "f32[]"  # noqa: E741
Q = "tensor<4x!quant.uniform<i8:f32, 1.0>>"


def add(b: Any) -> Callable[[Any, Any], Any]:
    return lambda x, y: b.add(x, y)


# method -> (types of the parameters, call, result types)
Row = tuple[tuple[str, ...], Callable[..., Any], str]
CASES: dict[str, Row] = {}
FLOATS = """abs acos acosh asin asinh atan atanh bessel_i1e cbrt ceil chlo_tan cosh cosine digamma erf erf_inv erfc exponential
exponential_minus_one floor lgamma log log_plus_one logistic negate real imag round_nearest_afz round_nearest_even rsqrt sign sine sinh
sqrt square tan tanh conj _asin_acos_kernel copy cos sin exp expm1 log1p neg round""".split()
for n in FLOATS:
    CASES[n] = ((F,), lambda b, x, n=n: getattr(b, n)(x), F)
for n in ("not_", "popcnt", "count_leading_zeros", "clz", "population_count"):
    CASES[n] = ((I,), lambda b, x, n=n: getattr(b, n)(x), I)
for n in ("is_finite", "is_inf", "is_neg_inf", "is_pos_inf"):
    CASES[n] = ((F,), lambda b, x, n=n: getattr(b, n)(x), P)
for n in BINARY:
    kind = I if n in ("and_", "or_", "xor", "xor_") or n.startswith("shift") else F
    CASES[n] = ((kind, kind), lambda b, x, y, n=n: getattr(b, n)(x, y), "c64[4]" if n == "complex" else kind)
for n in COMPARISONS:
    CASES[n] = ((F, F), lambda b, x, y, n=n: getattr(b, n)(x, y), P)
for n in [g for g in GENERATED if g.startswith("broadcast_") and g not in ("broadcast_compare", "broadcast_select")]:
    bits = n[10:] in ("and", "or", "xor") or "shift" in n
    kind, wide = (I, "s32[3,4]") if bits else (F, "f32[3,4]")
    CASES[n] = ((wide, kind), lambda b, x, y, n=n: getattr(b, n)(x, y, (1,)), "c64[3,4]" if "complex" in n else wide)

BN = ("f32[2,3]", "f32[3]", "f32[3]", "f32[3]", "f32[2,3]")
GATHER = GatherDimensions((1,), (0,), (), (), (0,), 1)
SCATTER = ScatterDimensions((1,), (0,), (), (), (0,), 1)
CASES |= {
    "mulhi": ((I, I), lambda b, x, y: b.mulhi(x, y), I),
    "compare": ((F, F), lambda b, x, y: b.compare(x, y, "LT"), P),
    "broadcast_compare": (("f32[3,4]", F), lambda b, x, y: b.broadcast_compare(x, y, "LT", None, (1,)), "pred[3,4]"),
    "broadcast_select": ((P, F, F), lambda b, p, x, y: b.broadcast_select(p, x, y), F),
    "select": ((P, F, S), lambda b, p, x, y: b.select(p, x, y), F),
    "clamp": ((S, F, S), lambda b, x, y, z: b.clamp(x, y, z), F),
    "constant_like": ((F,), lambda b, x: b.constant_like(x, hlo.attributes.TypedFloat(2.0, "f32")), F),
    "reduce_precision": ((F,), lambda b, x: b.reduce_precision(x, 5, 10), F),
    "convert": ((F,), lambda b, x: b.convert(x, "bf16"), "bf16[4]"),
    "convert_element_type": ((F,), lambda b, x: b.convert_element_type(x, "s8"), "s8[4]"),
    "bitcast_convert": (("f64[4]",), lambda b, x: b.bitcast_convert(x, "f32"), "f32[4,2]"),
    "bitcast_convert_type": (("f16[4,2]",), lambda b, x: b.bitcast_convert_type(x, "f32"), F),
    "bitcast": ((F,), lambda b, x: b.bitcast(x, "s32[2,2]"), "s32[2,2]"),
    "uniform_dequantize": ((Q,), lambda b, x: b.uniform_dequantize(x), F),
    "uniform_quantize": ((F,), lambda b, x: b.uniform_quantize(x, result_type=Q), Q),
    "broadcast": ((F,), lambda b, x: b.broadcast(x, (2, 3)), "f32[2,3,4]"),
    "broadcast_in_dim": (("f32[4,1]",), lambda b, x: b.broadcast_in_dim(x, (4, 2, 3), (0, 2)), "f32[4,2,3]"),
    "reshape": (("f32[4,6]",), lambda b, x: b.reshape(x, (3, 8), (1, 0)), "f32[3,8]"),
    "collapse": (("f32[4,2,3]",), lambda b, x: b.collapse(x, (1, 2)), "f32[4,6]"),
    "transpose": (("f32[2,3]",), lambda b, x: b.transpose(x, (1, 0)), "f32[3,2]"),
    "reverse": (("f32[2,3]",), lambda b, x: b.reverse(x, (1,)), "f32[2,3]"),
    "rev": (("f32[2,3]",), lambda b, x: b.rev(x, [0]), "f32[2,3]"),
    "slice": ((F,), lambda b, x: b.slice(x, (1,), (4,), (2,)), "f32[2]"),
    "slice_in_dim": (("f32[2,8]",), lambda b, x: b.slice_in_dim(x, 1, 7, 2, 1), "f32[2,3]"),
    "pad": ((F, S), lambda b, x, z: b.pad(x, z, [(1, 2, 1)]), "f32[10]"),
    "concatenate": ((F, F), lambda b, x, y: b.concatenate((x, y), 0), "f32[8]"),
    "concat_in_dim": ((F, F), lambda b, x, y: b.concat_in_dim((x, y), 0), "f32[8]"),
    "iota": ((), lambda b: b.iota("s32[4,8]", 1), "s32[4,8]"),
    "dynamic_slice": (("f32[3,4]", "s32[2]"), lambda b, x, i: b.dynamic_slice(x, i, (1, 2)), "f32[1,2]"),
    "dynamic_update_slice": ((F, "f32[2]", "s32[]"), lambda b, x, u, i: b.dynamic_update_slice(x, u, [i]), F),
    "gather": (("f32[5,2]", "s32[3,1]"), lambda b, x, i: b.gather(x, i, GATHER, (1, 2)), "f32[3,2]"),
    "dynamic_gather": (("f32[5,2]", "s32[3,1]", "s32[2]"), lambda b, x, i, n: b.dynamic_gather(x, i, n, GATHER), "f32[3,?]"),
    "scatter": (("f32[5,2]", "s32[3,1]", "f32[3,2]"), lambda b, x, i, u: b.scatter(x, i, u, add(b), SCATTER), "f32[5,2]"),
    "torch_index_select": (("f32[5,2]", "s32[3]"), lambda b, x, i: b.torch_index_select(x, i, 0, 0), "f32[3,2]"),
    "rng_normal": ((S, S), lambda b, m, s: b.rng_normal(m, s, "f32[2,3]"), "f32[2,3]"),
    "rng_uniform": ((S, S), lambda b, m, s: b.rng_uniform(m, s, F), F),
    "rng": ((S, S, "s64[1]"), lambda b, m, s, n: b.rng(m, s, n, "UNIFORM", result_type=F), F),
    "rng_bit_generator": (("u64[2]",), lambda b, s: b.rng_bit_generator("THREE_FRY", s, "u32[5]"), "u64[2] u32[5]"),
    "tuple": ((F, I), lambda b, x, y: b.tuple((x, y)), "(f32[4], s32[4])"),
    "get_tuple_element": (("(f32[4], s32[4])",), lambda b, t: b.get_tuple_element(t, 1), I),
    "infeed": ((), lambda b: b.infeed(F), "f32[4] token[]"),
    "outfeed": ((F, "token[]"), lambda b, x, t: b.outfeed(x, t), "token[]"),
    "send": ((F, "token[]"), lambda b, x, t: b.send(x, t, ChannelHandle(1, 1)), "token[]"),
    "recv": (("token[]",), lambda b, t: b.recv(t, ChannelHandle(1, 1), result_type=[F, "token[]"]), "f32[4] token[]"),
    "after_all": (("token[]", "token[]"), lambda b, x, y: b.after_all([x, y]), "token[]"),
    "create_token": ((), lambda b: b.create_token(), "token[]"),
    "custom_call": ((F,), lambda b, x: b.custom_call("f", [x], "f32[3,3]"), "f32[3,3]"),
    "composite": ((F,), lambda b, x: b.composite(x, "a.b", b.function(b.abs, [F]), result_type=F), F),
    "composite_call": ((F,), lambda b, x: b.composite_call(lambda y: b.neg(y), [x], "a.b"), F),
    "call": ((F, F), lambda b, x, y: b.call(add(b), x, y), F),
    "while_": (("s32[]", F), lambda b, i, x: b.while_(lambda i, x: b.lt(i, b.constant(3)), lambda i, x: (b.add(i, b.constant(1)), b.add(x, x)), (i, x)), "s32[] f32[4]"),
    "conditional": (("pred[]", F), lambda b, p, x: b.conditional(p, x, b.abs, (x, x), b.add), F),
    "if_": (("pred[]", F), lambda b, p, x: b.if_(p, lambda: b.abs(x), lambda: b.neg(x)), F),
    "case": (("s32[]", F), lambda b, i, x: b.case(i, [lambda: b.abs(x), lambda: b.neg(x)]), F),
    "conditional of many": (("s32[]", F), lambda b, i, x: b.conditional(i, [b.abs, b.neg, b.exp], [x, x, x]), F),
    "map": ((F, F), lambda b, x, y: b.map((x, y), add(b)), F),
    "reduce": (("f32[2,3]", S), lambda b, x, z: b.reduce(x, z, add(b), (1,)), "f32[2]"),
    "reduce_all": (("f32[2,3]", S), lambda b, x, z: b.reduce_all(x, z, add(b)), S),
    "reduce_window": (("f32[4,6]", S), lambda b, x, z: b.reduce_window(x, z, add(b), (2, 3), (2, 3), "SAME"), "f32[2,2]"),
    "select_and_scatter": (("f32[4,6]", "f32[2,2]", S), lambda b, x, s, z: b.select_and_scatter(x, b.ge, (2, 3), (2, 3), "VALID", s, z, add(b)), "f32[4,6]"),
    "sort": ((F, I), lambda b, x, y: b.sort((x, y), lambda a, c, *_: b.lt(a, c)), "f32[4] s32[4]"),
    "top_k": ((F,), lambda b, x: b.top_k(x, 2), "f32[2] s32[2]"),
    "all_reduce": ((F,), lambda b, x: b.all_reduce(x, add(b), [[0, 1]]), F),
    "cross_replica_sum": ((F,), lambda b, x: b.cross_replica_sum(x), F),
    "all_gather": ((F,), lambda b, x: b.all_gather(x, 0, 2, [[0, 1]]), "f32[8]"),
    "reduce_scatter": ((F,), lambda b, x: b.reduce_scatter(x, add(b), 0, 2, [[0, 1]]), "f32[2]"),
    "all_to_all": (("f32[4,16]",), lambda b, x: b.all_to_all(x, 1, 0, 4, [[0, 1, 2, 3]]), "f32[16,4]"),
    "collective_permute": ((F,), lambda b, x: b.collective_permute(x, [[0, 1], [1, 0]]), F),
    "collective_broadcast": ((F,), lambda b, x: b.collective_broadcast(x, [[0, 1]]), F),
    "replica_id": ((), lambda b: b.replica_id(), "u32[]"),
    "partition_id": ((), lambda b: b.partition_id(), "u32[]"),
    "optimization_barrier": ((F,), lambda b, x: b.optimization_barrier(x), F),
    "get_dimension_size": ((F,), lambda b, x: b.get_dimension_size(x, 0), "s32[]"),
    "set_dimension_size": ((F, "s32[]"), lambda b, x, n: b.set_dimension_size(x, n, 0), "f32[<=4]"),
    "cholesky": (("f32[3,3]",), lambda b, x: b.cholesky(x, True), "f32[3,3]"),
    "triangular_solve": (("f32[3,3]", "f32[3,2]"), lambda b, x, y: b.triangular_solve(x, y, True, True, False, "NO_TRANSPOSE"), "f32[3,2]"),
    "fft": (("f32[8]",), lambda b, x: b.fft(x, "RFFT", (8,)), "c64[5]"),
    "dot": (("f32[2,3]", "f32[3]"), lambda b, x, y: b.dot(x, y), "f32[2]"),
    "dot_general": (("f32[5,2,3]", "f32[5,3,7]"), lambda b, x, y: b.dot_general(x, y, DotDimensions((0,), (0,), (2,), (1,))), "f32[5,2,7]"),
    "einsum": (("f32[2,3]", "f32[3,4]"), lambda b, x, y: b.einsum(x, y, "ij,jk->ik", result_type="f32[2,4]"), "f32[2,4]"),
    "unary_einsum": (("f32[2,3]",), lambda b, x: b.unary_einsum(x, "ij->i", result_type="f32[2]"), "f32[2]"),
    "ragged_dot": (("f32[4,3]", "f32[2,3,5]", "s32[2]"), lambda b, x, y, g: b.ragged_dot(x, y, g, RaggedDotDimensions(DotDimensions((), (), (1,), (1,)), (0,), (0,)), result_type="f32[4,5]"), "f32[4,5]"),
    "conv": (("f32[1,2,8,8]", "f32[5,2,3,3]"), lambda b, x, k: b.conv(x, k, (2, 2), "SAME"), "f32[1,5,4,4]"),
    "conv_with_general_padding": (("f32[1,2,8]", "f32[5,2,3]"), lambda b, x, k: b.conv_with_general_padding(x, k, (1,), [(1, -1)]), "f32[1,5,6]"),
    "conv_with_general_dimensions": (("f32[1,8,2]", "f32[3,2,5]"), lambda b, x, k: b.conv_with_general_dimensions(x, k, (1,), "VALID", ConvDimensions(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))), "f32[1,6,5]"),
    "conv_general": (("f32[1,8,2]", "f32[3,2,5]"), lambda b, x, k: b.conv_general(x, k, (1,), [(1, 1)], ConvDimensions(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))), "f32[1,8,5]"),
    "conv_general_dilated": (("f32[1,4,8]", "f32[4,2,3]"), lambda b, x, k: b.conv_general_dilated(x, k, (1,), [(0, 0)], (2,), (2,), None, 2), "f32[1,4,11]"),
    "batch_norm_inference": (BN[:1] + BN[1:4] + BN[1:2], lambda b, x, s, o, m, v: b.batch_norm_inference(x, s, o, m, v, 0.1, 1), "f32[2,3]"),
    "batch_norm_training": (BN[:3], lambda b, x, s, o: b.batch_norm_training(x, s, o, 0.1, 1), "f32[2,3] f32[3] f32[3]"),
    "batch_norm_grad": (BN, lambda b, x, s, m, v, g: b.batch_norm_grad(x, s, m, v, g, 0.1, 1), "f32[2,3] f32[3] f32[3]"),
    "dynamic_iota": (("s32[2]",), lambda b, n: b.dynamic_iota(n, 0, result_type="f32[?,?]"), "f32[?,?]"),
    "dynamic_reshape": ((F, "s32[2]"), lambda b, x, n: b.dynamic_reshape(x, n, result_type="f32[?,?]"), "f32[?,?]"),
    "dynamic_broadcast_in_dim": ((F, "s32[2]"), lambda b, x, n: b.dynamic_broadcast_in_dim(x, n, (1,), result_type="f32[?,4]"), "f32[?,4]"),
    "dynamic_pad": ((F, S, "s32[1]", "s32[1]", "s32[1]"), lambda b, *v: b.dynamic_pad(*v, result_type="f32[?]"), "f32[?]"),
    "real_dynamic_slice": ((F, "s32[1]", "s32[1]", "s32[1]"), lambda b, *v: b.real_dynamic_slice(*v, result_type="f32[?]"), "f32[?]"),
    "dynamic_conv": (("f32[1,8,2]", "f32[3,2,5]", "s32[1,2]"), lambda b, x, k, p: b.dynamic_conv(x, k, p, ConvDimensions(0, 2, (1,), 1, 2, (0,), 0, 2, (1,)), 1, 1, result_type="f32[1,?,5]"), "f32[1,?,5]"),
    "shape_of": (("f32[?,4]",), lambda b, x: b.shape_of(x), "tensor<2xindex>"),
    "scaled_dot": (("f8e4m3fn[3,4]", "f8e4m3fn[4,5]", "f8e8m0fnu[3,2]", "f8e8m0fnu[2,5]"), lambda b, *v: b.scaled_dot(*v, DotDimensions((), (), (1,), (0,)), result_type="f32[3,5]"), "f32[3,5]"),
    "ragged_all_to_all": ((F, "f32[6]", *("s32[2]",) * 4), lambda b, *v: b.ragged_all_to_all(*v, replica_groups=((0, 1),)), "f32[6]"),
    "rng_get_and_update_state": ((), lambda b: b.rng_get_and_update_state(4, result_type="u64[2]"), "u64[2]"),
    "add_dependency": ((F, "token[]"), lambda b, x, t: b.add_dependency(x, t), F),
    "domain": ((F,), lambda b, x: b.domain(x), F),
    "fusion": ((F, F), lambda b, x, y: b.fusion((x, y), add(b)), F),
    "stochastic_convert": ((F, "u32[4]"), lambda b, x, r: b.stochastic_convert(x, r, result_type="s8[4]"), "s8[4]"),
    "collective_reduce": ((F,), lambda b, x: b.collective_reduce(x, add(b), [[0, 1]]), F),
    "convolution": (("f32[1,2,8]", "f32[5,2,3]"), lambda b, x, k: b.convolution(x, k, ConvDimensions(0, 1, (2,), 1, 0, (2,), 0, 1, (2,)), 1, 1, result_type="f32[1,5,6]"), "f32[1,5,6]"),
    "async_start": ((F,), lambda b, x: b.async_start([x], lambda y: b.all_gather(y, 0, 2, [[0, 1]])), "!stablehlo.future<tensor<8xf32>>"),
    "async_done": ((F,), lambda b, x: b.async_done(b.async_start([x], lambda y: b.all_gather(y, 0, 2, [[0, 1]])), result_type="f32[8]"), "f32[8]"),
    "chlo_constant": ((), lambda b: b.chlo_constant(hlo.DenseArray(hlo.TensorType((2,), hlo.element_type("f32")), np.ones(2, np.float32))), "f32[2]"),
    "arith_constant": ((), lambda b: b.arith_constant(hlo.attributes.TypedInteger(1, "index")), "index"),
    "propagation_barrier": ((F,), lambda b, x: b.propagation_barrier(x), F),
    "reshard": ((F,), lambda b, x: b.reshard(x, hlo.attributes.Foreign("#sdy.sharding<@mesh, [{}]>")), F),
    "sharding_constraint": ((F,), lambda b, x: b.sharding_constraint(x, hlo.attributes.Foreign("#sdy.sharding<@mesh, [{}]>")), F),
    "sharding_group": ((F,), lambda b, x: (b.sharding_group(x, hlo.attributes.TypedInteger(1, "i64")), x)[1], F),
    "manual_computation": ((F,), lambda b, x: b.manual_computation([x], lambda y: b.neg(y), result_type=F), F),
    "cast": (("f32[?]",), lambda b, x: b.cast(x, result_type=F), F),
    "dim": (("f32[?,4]",), lambda b, x: b.dim(x, b.arith_constant(hlo.attributes.TypedInteger(0, "index"))), "index"),
    "elided_constant": ((), lambda b: b.elided_constant(result_type=F), F),
    "scan": (("f32[5,4]", F), lambda b, x, c: b.emit("chlo.scan", (x, c), {"dimension": 0, "operandSegmentSizes": (1, 1)}, (b.region(lambda v, a: (b.add(v, a), b.add(v, a)), [hlo.builder.type_of(F)] * 2),), [hlo.builder.type_of("f32[5,4]"), hlo.builder.type_of(F)]), "f32[5,4] f32[4]"),
}  # fmt: skip


def built(row: Row) -> tuple[hlo.Module, list[hlo.Value]]:
    parameters, call, _ = row
    b = Builder("main")
    made = call(b, *[b.parameter(k, t, f"p{k}") for k, t in enumerate(parameters)])
    values = list(made) if isinstance(made, tuple) else [made]
    return b.build(*values), values


@pytest.mark.parametrize("name", sorted(CASES))
def test_method(name: str) -> None:
    module, values = built(CASES[name])
    expected = CASES[name][2]
    types = [expected] if expected.startswith(("(", "tensor<")) else expected.split(" ")
    assert [str(v.type).partition(", #")[0] for v in values] == [
        t if t == "index" or t[0] == "!" else str(hlo.builder.type_of(t)).partition(", #")[0] for t in types
    ]
    hlo.verify(module)
    if "xla." not in str(module):
        again = hlo.parse(str(module))
        hlo.verify(again)
        assert str(again) == str(module)


def test_every_op_has_a_method() -> None:
    written = set(BINARY.values())
    for d in hlo.registry.definitions():
        if d.name in ("func.call", "func.return", "stablehlo.return", "sdy.return"):
            continue
        stem = hlo.builder.generated.method_name(d)
        has = d.name in GENERATED.values() or d.name in written or (hasattr(Builder, stem) and d.name.startswith("stablehlo."))
        assert has or d.name == "xla.bitcast", d.name
    for alias, name in ALIASES.items():
        assert getattr(Builder, alias) is getattr(Builder, name)
    lacking = {n for n in GENERATED if n not in CASES}
    assert not lacking, "each op has a row of CASES, its small program"


@pytest.mark.parametrize(
    ("lhs", "rhs", "dims", "result"),
    [
        ("f32[2,3]", "f32[2,3]", None, "tensor<2x3xf32>"),
        ("f32[2,3]", "f32[]", None, "tensor<2x3xf32>"),
        ("f32[]", "f32[2,3]", None, "tensor<2x3xf32>"),
        ("f32[2,3]", "f32[3]", (1,), "tensor<2x3xf32>"),
        ("f32[2,3]", "f32[2]", (0,), "tensor<2x3xf32>"),
        ("f32[2,3]", "f32[1,3]", None, "tensor<2x3xf32>"),
        ("f32[2,1]", "f32[1,3]", None, "tensor<2x3xf32>"),
        ("f32[1,2,5]", "f32[1,5]", (1, 2), "tensor<1x2x5xf32>"),
        ("f32[4,2,5]", "f32[1,5]", (0, 2), "tensor<4x2x5xf32>"),
        ("f32[5]", "f32[3,5]", (1,), "tensor<3x5xf32>"),
        ("f32[0,1]", "f32[1,3]", None, "tensor<0x3xf32>"),
    ],
)
def test_implicit_broadcasting(lhs: str, rhs: str, dims: tuple[int, ...] | None, result: str) -> None:
    b = Builder("main")
    x, y = b.parameter(0, lhs), b.parameter(1, rhs)
    z = b.sub(x, y, dims)
    assert str(z.type) == result
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(v.shape), np.float32) for v in (x, y)]
    wide = list(arrays)
    if dims is not None:
        small = 0 if arrays[0].ndim < arrays[1].ndim else 1
        shape = [1] * max(a.ndim for a in arrays)
        for n, k in zip(arrays[small].shape, dims, strict=True):
            shape[k] = n
        wide[small] = arrays[small].reshape(shape)
    (found,) = interp.evaluate(b.build(z), *arrays)
    np.testing.assert_array_equal(found, wide[0] - wide[1])


@pytest.mark.parametrize(
    ("parameters", "call", "op", "label"),
    [
        (("f32[2,3]", "f32[3]"), lambda b, x, y: b.add(x, y), "stablehlo.add", "broadcast_dimensions"),
        (("f32[2,3]", "f32[3]"), lambda b, x, y: b.add(x, y, (2,)), "stablehlo.add", "broadcast_dimensions"),
        (("f32[2,3,4]", "f32[3,2]"), lambda b, x, y: b.add(x, y, (1, 0)), "stablehlo.add", "broadcast_dimensions"),
        (("f32[2,3]", "f32[4,3]"), lambda b, x, y: b.add(x, y), "stablehlo.add", "implicit broadcasting"),
        (("f32[2,3]", "s32[2,3]"), lambda b, x, y: b.add(x, y), "stablehlo.add", "C1"),
        (("f32[2,3]",), lambda b, x: b.transpose(x, (1, 1)), "stablehlo.transpose", "C2"),
        (("f32[2,3]",), lambda b, x: b.transpose(x), "stablehlo.transpose", "signature"),
        (("f32[2,3]",), lambda b, x: b.slice(x, (0, 0), (2, 4)), "stablehlo.slice", "C3"),
        (("f32[2,3]",), lambda b, x: b.reshape(x, (7,)), "stablehlo.reshape", "C2"),
        (("f32[2,3,4]",), lambda b, x: b.collapse(x, (0, 2)), "Collapse", "dimensions"),
        (("f32[2,3]", S), lambda b, x, z: b.reduce(x, z, b.add, (2,)), "stablehlo.reduce", "C4"),
        (("pred[]", F), lambda b, p, x: b.conditional(p, x, b.abs), "stablehlo.case", "arguments"),
        (("f32[2]",), lambda b, x: b.call("nowhere", x), "func.call", "callee"),
        (("f32[1,2,8]", "f32[5,2,3]"), lambda b, x, k: b.conv(x, k, (1,), "FULL"), "stablehlo.convolution", "padding"),
        (("f32[1,2,8]", "f32[5,3,3]"), lambda b, x, k: b.conv(x, k, (1,), "SAME"), "stablehlo.convolution", "C14"),
        (("f32[2,2,2]", "f32[2]"), lambda b, x, y: b.dot(x, y), "stablehlo.dot", "C1"),
        ((F,), lambda b, x: b.add(x, 1.0), "stablehlo.add", None),
        ((F,), lambda b, x: b.dot(x, 3), "dot", "arguments"),
        ((F,), lambda b, x: b.slice_in_dim(x, 0, 1, 1, 5), "slice_in_dim", "arguments"),
    ],
)  # fmt: skip
def test_errors_come_from_the_wrong_call(parameters: tuple[str, ...], call: Any, op: str, label: str | None) -> None:
    b = Builder("main")
    values = [b.parameter(k, t) for k, t in enumerate(parameters)]
    with pytest.raises(hlo.VerificationError) as caught:
        call(b, *values)
    assert (caught.value.op, caught.value.constraint) == (op, label), str(caught.value)
    assert caught.value.location is not None and caught.value.location.file == __file__
    assert "found" in caught.value.message or label == "signature"


def test_parameters_and_types_are_checked() -> None:
    b = Builder("main")
    x = b.parameter(0, F)
    for bad in (
        lambda: b.parameter(0, F),
        lambda: b.parameter(1, "f33[2]"),
        lambda: b.parameter(1, "f32[2"),
        lambda: b.constant("x", F),
    ):
        with pytest.raises(hlo.VerificationError, match=r"found|expected"):
            bad()
    b.parameter(2, F)
    with pytest.raises(hlo.VerificationError, match="expected parameters 0 to 1"):
        b.build(x)


def test_a_loop_runs() -> None:
    b = Builder("main")
    n, x = b.parameter(0, "s32[]"), b.parameter(1, "f32[3]")
    zero = b.constant(0)
    _, out = b.while_(
        lambda i, v: b.lt(i, n), lambda i, v: (b.add(i, b.constant(1)), b.add(v, b.constant([1.0, 2.0, 3.0]))), (zero, x)
    )
    top = b.sort(out, lambda p, q: b.gt(p, q))
    total = b.reduce(top, b.constant(0.0), b.add)
    module = hlo.parse(str(b.build(top, total)))
    a, s = interp.evaluate(module, np.int32(4), np.zeros(3, np.float32))
    np.testing.assert_array_equal(a, [12, 8, 4])
    assert s == 24
    for text in (hlo.to_hlo_text(module),):
        again = hlo.parse(text)
        np.testing.assert_array_equal(interp.evaluate(again, np.int32(4), np.zeros(3, np.float32))[0], [12, 8, 4])


def test_errors_of_the_callers_own_computation_pass_through() -> None:
    b = Builder("main")
    x, z = b.parameter(0, F), b.parameter(1, S)

    def wrong(*_: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        b.reduce(x, z, wrong)
