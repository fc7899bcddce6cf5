"""Contractions and convolutions of every layout, type and size agree with the evaluator, whatever the target's vectors are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.native.jit import forget_kernels
from codegen.supports import supports
from hlo.types import element_type
from tests.machines import MACHINES, narrower_targets
from tests.pairs import fast_cover
from tiling.loops.ir import Contract, Scope
from tiling.machine import Machine

TARGETS = narrower_targets()
TOLERANCE = {"bf16": 1e-2, "f16": 2e-3, "f32": 2e-5, "f64": 1e-12}


def arrays_for(module: hlo.Module, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    found = []
    for v in module.entry.arguments:
        kind = v.tensor.element.dtype
        if kind.kind in "iu":
            info = np.iinfo(kind)
            found.append(rng.integers(info.min, info.max, v.shape, kind, endpoint=True))
        else:
            found.append(rng.standard_normal(v.shape).astype(kind))
    return found


def check(text: str, seed: int = 0, compiled: bool = True) -> codegen.Executable:
    module = hlo.parse(text)
    arrays = arrays_for(module, seed)
    executable = codegen.compile(module)
    assert not compiled or not executable.fallbacks
    for found, expected in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        assert found.dtype == expected.dtype
        if expected.dtype.kind in "iub":
            np.testing.assert_array_equal(found, expected, err_msg=text)
            continue
        name = executable.plan.program.results[0].tensor.element.name
        wide = expected.astype(np.float64)
        np.testing.assert_allclose(
            found.astype(np.float64), wide, rtol=0, atol=TOLERANCE[name] * max(np.abs(wide).max(initial=0), 1e-30), err_msg=text
        )
    return executable


def tensor(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def dot(m: int, n: int, k: int, types: tuple[str, str, str] = ("f32",) * 3, left: str = "mk", right: str = "kn",
        batch: int = 0) -> str:  # fmt: skip
    """op(A) op(B); `left` and `right` say how the factors lie, b for the batch."""
    size = {"m": m, "n": n, "k": k, "b": batch}
    lead = "b" if batch else ""
    a, b = (tensor([size[x] for x in lead + order], t) for order, t in ((left, types[0]), (right, types[1])))
    out = tensor([size[x] for x in lead + "mn"], types[2])
    batching = "batching_dims = [0] x [0], " if batch else ""
    contracting = f"contracting_dims = [{(lead + left).index('k')}] x [{(lead + right).index('k')}]"
    return f"""func.func @main(%a: {a}, %b: {b}) -> {out} {{
      %r = stablehlo.dot_general %a, %b, {batching}{contracting} : ({a}, {b}) -> {out}
      return %r : {out} }}"""


def convolution(seed: int, types: tuple[str, str, str] = ("f32",) * 3) -> str:
    """A convolution with everything chosen at random: layouts, strides, dilations, padding, reversal, groups."""
    rng = random.Random(seed)
    rank = rng.choice((1, 2, 2, 2, 3))
    groups = rng.choice((1, 1, 1, 2, 4))
    by_batch = groups > 1 and rng.random() < 0.3
    cin, cout = groups * rng.choice((1, 3, 8, 16)), groups * rng.choice((1, 4, 8, 16, 20))
    n = rng.choice((1, 2, 3)) * (groups if by_batch else 1)
    window = [rng.choice((1, 2, 3, 5)) for _ in range(rank)]
    stride = [rng.choice((1, 1, 2, 3)) for _ in range(rank)]
    base = [rng.choice((1, 1, 1, 2)) for _ in range(rank)]
    spread = [rng.choice((1, 1, 2)) for _ in range(rank)]
    pads = [(rng.choice((0, 1, 2)), rng.choice((0, 1, 3))) for _ in range(rank)]
    reverse = [rng.random() < 0.2 for _ in range(rank)]
    sizes = [rng.choice((5, 9, 14, 17)) + (w - 1) * d for w, d in zip(window, spread, strict=True)]
    outs = [
        ((s - 1) * b + 1 + sum(p) - ((w - 1) * d + 1)) // t + 1
        for s, b, p, w, d, t in zip(sizes, base, pads, window, spread, stride, strict=True)
    ]

    def laid(first: int, second: int, spatial: Sequence[int], letters: str) -> tuple[list[int], str]:
        names = [letters[0], letters[1], *map(str, range(rank))]
        values = dict(zip(names, (first, second, *spatial), strict=True))
        last = [letters[0], *names[2:], letters[1]]
        order = rng.choice((names, last, last, [*names[2:], *names[:2]]))
        return [values[x] for x in order], f"[{', '.join(order)}]"

    x, data = laid(n, cin, sizes, "bf")
    w, kernel = laid(cin if by_batch else cin // groups, cout, window, "io")
    out, result = laid(n // (groups if by_batch else 1), cout, outs, "bf")
    numbers = lambda name, values: f"{name} = array<i64: {', '.join(map(str, values))}>"  # noqa: E731
    a, b, c = tensor(x, types[0]), tensor(w, types[1]), tensor(out, types[2])
    return f"""func.func @main(%a: {a}, %b: {b}) -> {c} {{
      %r = "stablehlo.convolution"(%a, %b) {{
        {numbers("window_strides", stride)}, padding = dense<{[list(p) for p in pads]}> : tensor<{rank}x2xi64>,
        {numbers("lhs_dilation", base)}, {numbers("rhs_dilation", spread)},
        window_reversal = array<i1: {", ".join(str(r).lower() for r in reverse)}>,
        dimension_numbers = #stablehlo.conv<{data}x{kernel}->{result}>,
        feature_group_count = {1 if by_batch else groups} : i64, batch_group_count = {groups if by_batch else 1} : i64
      }} : ({a}, {b}) -> {c}
      return %r : {c} }}"""


SIZES = [(1, 1, 1), (1, 70, 33), (70, 1, 33), (5, 3, 300), (64, 64, 64), (127, 65, 129), (13, 50, 1000), (100, 36, 2)]
BATCHES = [(100, (4, 4, 4)), (3, (33, 65, 100)), (40, (8, 8, 8)), (5, (1, 64, 64))]


@pytest.mark.parametrize(("size", "left", "right"), fast_cover(itertools.product(SIZES, ("mk", "km"), ("kn", "nk"))))
def test_dots_in_every_layout(size: tuple[int, int, int], left: str, right: str) -> None:
    check(dot(*size, left=left, right=right))


TYPES = [
    ("bf16", "bf16", "bf16"), ("bf16", "bf16", "f32"), ("f16", "f16", "f16"), ("f16", "f16", "f32"), ("f32", "f32", "f64"),
    ("f64", "f64", "f64"), ("i8", "i8", "i32"), ("ui8", "i8", "i32"), ("ui8", "ui8", "i32"), ("i8", "ui8", "i32"),
    ("i8", "i8", "i8"), ("i16", "i16", "i32"), ("i32", "i32", "i32"), ("i64", "i64", "i64"), ("ui32", "ui32", "ui32"),
]  # fmt: skip
BOTH_LAYOUTS = [("mk", "kn"), ("km", "nk")]


@pytest.mark.parametrize(
    ("types", "size", "layout"), fast_cover(itertools.product(TYPES, [(37, 70, 9), (7, 33, 1027)], BOTH_LAYOUTS))
)
def test_dots_of_other_types(types: tuple[str, str, str], size: tuple[int, int, int], layout: tuple[str, str]) -> None:
    check(dot(*size, types, *layout))


@pytest.mark.parametrize(("problem", "left", "right"), fast_cover(itertools.product(BATCHES, ("mk", "km"), ("kn", "nk"))))
def test_batches(problem: tuple[int, tuple[int, int, int]], left: str, right: str) -> None:
    batch, size = problem
    check(dot(*size, left=left, right=right, batch=batch))


def test_sums_of_16_bit_floats_are_rounded_once() -> None:
    """Found by a table of shapes: sums of a bfloat16 result were kept in bfloat16 while they grew."""
    ones = np.ones((1, 4096), element_type("bf16").dtype)
    for left, right in (("mk", "kn"), ("mk", "nk")):
        for m, n in ((1, 64), (32, 64), (32, 1)):
            (found,) = codegen.compile(hlo.parse(dot(m, n, 4096, ("bf16",) * 3, left, right)))(
                np.repeat(ones, m, 0), np.ones((4096, n) if right == "kn" else (n, 4096), ones.dtype)
            )
            assert (found == 4096).all(), (m, n, right)


def some_slow(first: int, slow: int, end: int) -> list[Any]:
    """Seeds, those from `slow` on as slow tests."""
    return [pytest.param(k, marks=pytest.mark.slow if k >= slow else ()) for k in range(first, end)]


@pytest.mark.parametrize("seed", some_slow(0, 6, 12))
@pytest.mark.every_target
def test_convolutions(seed: int) -> None:
    check(convolution(seed))


@pytest.mark.parametrize("seed", some_slow(6, 12, 200))
def test_more_convolutions(seed: int) -> None:
    check(convolution(seed), seed)


@pytest.mark.parametrize("seed", [203, 204, 205])
@pytest.mark.parametrize("types", [("bf16",) * 3, ("f64",) * 3, ("i8", "i8", "i32")])
def test_convolutions_of_other_types(seed: int, types: tuple[str, str, str]) -> None:
    check(convolution(seed, types))


@pytest.mark.parametrize(("m", "n", "k"), [(7, 37, 70), (3, 5, 1030)])
@pytest.mark.every_target
def test_bytes_of_every_sign_at_their_ends(m: int, n: int, k: int) -> None:
    """The dot instructions take one factor unsigned and one signed: what is added for that is taken off again."""
    rng = np.random.default_rng(k)
    for left, right, layout in itertools.product(("i8", "ui8"), ("i8", "ui8"), ("kn", "nk")):
        a, b = (
            rng.choice(np.array([np.iinfo(t).min, np.iinfo(t).max], t), shape)
            for t, shape in ((element_type(left).dtype, (m, k)), (element_type(right).dtype, (k, n)))
        )
        for out in ("i32", "ui32") if (left, right, layout) == ("ui8", "i8", "kn") else ("i32",):
            executable = codegen.compile(hlo.parse(dot(m, n, k, (left, right, out), "mk", layout)))
            (found,) = executable(a, b if layout == "kn" else np.ascontiguousarray(b.T))
            expected = a.astype(np.int64) @ b.astype(np.int64)
            np.testing.assert_array_equal(found, expected.astype(found.dtype), f"{left} {right} {layout} {out}")


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_bytes_are_widened_ahead(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each panel of columns widened the rows again: 1024 x 1024 x 1024 took 8.4 ms with AVX2, 6.7 now. Long sums still do."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    forget_kernels()
    for m, n, k in ((100, 140, 292), (131, 270, 1026), (64, 128, 1 << 14)):
        for left, right in itertools.product(("i8", "ui8"), repeat=2):
            made = check(dot(m, n, k, (left, right, "i32")))
            assert "gemm_bytes(" in made.source


def test_few_rows_of_bytes_are_multiplied_in_blocks() -> None:
    """Packing was estimated byte by byte, and plain loops taken for eight rows: 13.4 ms where 2.6 are enough."""
    machine = Machine(cores=2, vector_bytes=64, vector_registers=32, byte_products=4)
    for m, n, k, routine in ((8, 128, 128, "gemm_bytes"), (16, 96, 128, "gemm_bytes"), (8, 4096, 4096, "gemm_block")):
        for left, right in itertools.product(("i8", "ui8"), repeat=2):
            made = tiling.plan(hlo.parse(dot(m, n, k, (left, right, "i32"))), machine=machine, supports=supports)
            steps = [s for f in made.fusions for p in f.schedule.phases for s in p.all_steps]
            assert [s.kernel.routine for s in steps if isinstance(s, Contract)] == [routine], (m, n, k, left, right)


@pytest.mark.parametrize("seed", [15, 57, 123])
def test_bytes_of_one_quad_or_less(seed: int) -> None:
    """Found by random convolutions: a depth of one had no depth loop, one of three a quad's number that nothing defined."""
    check(convolution(seed, ("i8", "i8", "i32")), seed)


@pytest.mark.parametrize("target", TARGETS)
def test_narrower_targets(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    forget_kernels()
    for left, right in (("mk", "kn"), ("km", "nk")):
        executable = check(dot(50, 70, 90, left=left, right=right))
        assert executable.plan.machine.vector_bytes == (32 if target == "avx2" else 16)
    for types in (("bf16",) * 3, ("f64",) * 3, ("i8", "i8", "i32"), ("ui8", "i8", "i32"), ("i32",) * 3):
        check(dot(30, 40, 51, types))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_copy_of_a_computed_operand_has_the_operands_type(side: str) -> None:
    """Bytes that are converted and shifted on their way into the product: the copy once kept them as bytes."""
    m, k, n = 48, 40, 64
    kept, computed = ((k, n), (m, k)) if side == "left" else ((m, k), (k, n))
    order = ("%s", "%x") if side == "left" else ("%x", "%s")
    types = [f"tensor<{'x'.join(map(str, s))}xf32>" for s in (computed, kept)]
    left, right = (types[0], types[1]) if side == "left" else (types[1], types[0])
    module = hlo.parse(f"""func.func @main(%x: {types[1]}, %w: {types[0].replace("f32", "i8")}) -> tensor<{m}x{n}xf32> {{
      %0 = stablehlo.convert %w : ({types[0].replace("f32", "i8")}) -> {types[0]}
      %c = stablehlo.constant dense<3.5> : {types[0]}
      %s = stablehlo.subtract %0, %c : {types[0]}
      %1 = stablehlo.dot_general {order[0]}, {order[1]}, contracting_dims = [1] x [0] : ({left}, {right}) -> tensor<{m}x{n}xf32>
      return %1 : tensor<{m}x{n}xf32>
    }}""")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(kept, np.float32), rng.integers(-128, 128, computed).astype(np.int8)
    np.testing.assert_allclose(codegen.compile(module)(x, w)[0], interp.evaluate(module, x, w)[0], rtol=1e-5, atol=1e-3)


SLICED = """func.func @main(%x: tensor<5x16x24xf32>, %y: tensor<5x16x40xf32>, %w: tensor<64x32xf32>, %at: tensor<i32>)
      -> tensor<16x32xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %a = stablehlo.dynamic_slice %x, %at, %zero, %zero, sizes = [1, 16, 24]
        : (tensor<5x16x24xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x16x24xf32>
      %b = stablehlo.dynamic_slice %y, %at, %zero, %zero, sizes = [1, 16, 40]
        : (tensor<5x16x40xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x16x40xf32>
      %c = stablehlo.concatenate %a, %b, dim = 2 : (tensor<1x16x24xf32>, tensor<1x16x40xf32>) -> tensor<1x16x64xf32>
      %m = stablehlo.reshape %c : (tensor<1x16x64xf32>) -> tensor<16x64xf32>
      %r = stablehlo.dot_general %m, %w, contracting_dims = [1] x [0]
        : (tensor<16x64xf32>, tensor<64x32xf32>) -> tensor<16x32xf32>
      return %r : tensor<16x32xf32> }"""


@pytest.mark.parametrize("at", [0, 3, 4, 9, -2])
@pytest.mark.machine("avx512")
def test_an_operand_at_a_place_known_at_run_time_is_brought_to_the_micro_kernel(at: int) -> None:
    module = hlo.parse(SLICED)
    x, y, w = arrays_for(hlo.parse(SLICED), 1)[:3]
    executable = codegen.compile(module)
    steps = [s for f in executable.plan.fusions for p in f.schedule.phases for s in p.steps]
    assert any(isinstance(s, Contract) for s in steps)
    (found,) = executable(x, y, w, np.array(at, np.int32))
    row = min(max(at, 0), 4)
    wide = np.concatenate([x[row], y[row]], 1).astype(np.float64) @ w
    np.testing.assert_allclose(found, wide, rtol=0, atol=2e-5 * np.abs(wide).max())


@pytest.mark.machine("avx512")
def test_a_matrix_at_a_place_known_at_run_time_is_not_copied_for_one_row() -> None:
    module = hlo.parse("""func.func @main(%x: tensor<1x256xf32>, %w: tensor<4x256x128xf32>, %at: tensor<i32>)
        -> tensor<1x128xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %a = stablehlo.dynamic_slice %w, %at, %zero, %zero, sizes = [1, 256, 128]
        : (tensor<4x256x128xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x256x128xf32>
      %m = stablehlo.reshape %a : (tensor<1x256x128xf32>) -> tensor<256x128xf32>
      %r = stablehlo.dot_general %x, %m, contracting_dims = [1] x [0]
        : (tensor<1x256xf32>, tensor<256x128xf32>) -> tensor<1x128xf32>
      return %r : tensor<1x128xf32> }""")
    assert [len(f.stages) for f in codegen.compile(module).plan.fusions] == [1]


FEW = [(3, 3, 3, 50), (40, 70, 1, 0), (2, 5, 4, 9), (5, 1, 2, 7), (1, 1, 3, 0)]
KINDS = [("f32",) * 3, ("bf16",) * 3, ("i8", "i8", "i32"), ("complex<f32>",) * 3]


@pytest.mark.parametrize(("types", "size", "layout"), fast_cover(itertools.product(KINDS, FEW, BOTH_LAYOUTS)))
def test_sums_of_few_products_are_written_out(
    types: tuple[str, str, str], size: tuple[int, int, int, int], layout: tuple[str, str]
) -> None:
    """The last two have no rows or columns for the micro-kernel, the first ones too few."""
    m, n, k, batch = size
    if types[0].startswith("complex"):
        module = hlo.parse(dot(m, n, k, types, *layout, batch=batch))
        rng = np.random.default_rng(0)
        pairs = [rng.standard_normal((*v.shape, 2)).astype(np.float32) for v in module.entry.arguments]
        arrays = [p.view(np.complex64)[..., 0] for p in pairs]
        (found,), (expected,) = codegen.compile(module)(*arrays), interp.evaluate(module, *arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        return
    check(dot(m, n, k, types, *layout, batch=batch))


def test_a_product_of_one_step_is_added_to_a_zero() -> None:
    """0 + (-1 * 0) is +0, as a sum from zero is."""
    module = hlo.parse(dot(20, 30, 1))
    arrays = [np.full((20, 1), -1, np.float32), np.zeros((1, 30), np.float32)]
    (found,), (expected,) = codegen.compile(module)(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def einsum(left: str, right: str, out: str, size: dict[str, int], types: tuple[str, str, str] = ("f32",) * 3) -> str:
    """A product of two factors by letters, transposed into the order that `out` wants."""
    both = [x for x in left if x in right and x in out]
    summed = [x for x in left if x in right and x not in out]
    made = [*both, *(x for x in left if x not in both + summed), *(x for x in right if x not in both + summed)]
    typed = ((left, types[0]), (right, types[1]), (made, types[2]), (out, types[2]))
    a, b, d, r = (tensor([size[x] for x in letters], t) for letters, t in typed)
    lists = lambda letters, where: ", ".join(str(where.index(x)) for x in letters)  # noqa: E731
    batching = f"batching_dims = [{lists(both, left)}] x [{lists(both, right)}], " if both else ""
    contracting = f"contracting_dims = [{lists(summed, left)}] x [{lists(summed, right)}]"
    return f"""func.func @main(%a: {a}, %b: {b}) -> {r} {{
      %d = stablehlo.dot_general %a, %b, {batching}{contracting} : ({a}, {b}) -> {d}
      %r = stablehlo.transpose %d, dims = [{lists(out, "".join(made))}] : ({d}) -> {r}
      return %r : {r} }}"""


LETTERS = [
    ("ijb", "jkb", "ikb"), ("bij", "bjk", "kbi"), ("ij", "jk", "ki"), ("jib", "kjb", "bki"), ("ijk", "kjl", "li"),
    ("bthd", "bshd", "bhts"), ("bhts", "bshd", "bthd"), ("btd", "btf", "fd"), ("cd", "abcd", "ab"), ("abij", "abjk", "aikb"),
    ("ij", "j", "ij"), ("ij", "kl", "ikjl"), ("bi", "bj", "jbi"),
]  # fmt: skip


@pytest.mark.parametrize(("letters", "seed", "element"), fast_cover(itertools.product(LETTERS, range(2), ("f32", "bf16"))))
def test_factors_and_results_in_any_order(letters: tuple[str, str, str], seed: int, element: str) -> None:
    rng = random.Random(seed)
    size = {x: rng.choice((1, 3, 5, 17, 33, 40)) for x in sorted({*letters[0], *letters[1]})}
    check(einsum(*letters, size if element == "f32" else {**size, "j": 20, "i": 50}, (element,) * 3))


FEW_COLUMNS = [(300, 3, 200), (70, 1, 400), (65, 5, 1000), (200, 2, 33)]
NARROW = [("f32",) * 3, ("bf16",) * 3, ("i8", "i8", "i32")]


@pytest.mark.parametrize(
    ("types", "size", "right", "batch"), fast_cover(itertools.product(NARROW, FEW_COLUMNS, ("kn", "nk"), (0, 3)))
)
def test_columns_along_which_the_result_is_not_consecutive(
    types: tuple[str, str, str], size: tuple[int, int, int], right: str, batch: int
) -> None:
    check(dot(*size, types, left="km", right=right, batch=batch))


GRADIENTS = [(2, 24, 9, 11, 17), (1, 3, 40, 14, 20), (3, 20, 33, 7, 5)]


@pytest.mark.parametrize(("types", "pad", "shape"), fast_cover(itertools.product(NARROW[:2], [0, 1], GRADIENTS)))
def test_gradients_of_kernels_with_channels_first(types: tuple[str, str, str], pad: int, shape: tuple[int, ...]) -> None:
    """A convolution whose window is as large as its input: sums run along the last index of both factors."""
    batch, inputs, outputs, height, width = shape
    x, g = tensor((batch, inputs, height, width), types[0]), tensor((batch, outputs, height, width), types[1])
    side = 1 + 2 * pad
    out = tensor((outputs, inputs, side, side), types[2])
    check(f"""func.func @main(%x: {x}, %g: {g}) -> {out} {{
      %r = "stablehlo.convolution"(%x, %g) {{
        window_strides = array<i64: 1, 1>, padding = dense<{pad}> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 1>,
        rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, false>,
        dimension_numbers = #stablehlo.conv<[f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1]>,
        feature_group_count = 1 : i64, batch_group_count = 1 : i64
      }} : ({x}, {g}) -> {out}
      return %r : {out} }}""")


@pytest.mark.parametrize("types", [("f32",) * 3, ("bf16",) * 3, ("i8", "i8", "i32")])
@pytest.mark.parametrize("shape", [(2, 24, 9, 37, 3), (1, 64, 11, 16, 2), (3, 15, 20, 5, 3)])
def test_windows_with_one_output_channel(types: tuple[str, str, str], shape: tuple[int, ...]) -> None:
    batch, inputs, height, width, side = shape
    x, w = tensor((batch, inputs, height, width), types[0]), tensor((1, inputs, side, side), types[1])
    out = tensor((batch, 1, height + 3 - side, width + 3 - side), types[2])
    check(f"""func.func @main(%x: {x}, %w: {w}) -> {out} {{
      %r = "stablehlo.convolution"(%x, %w) {{
        window_strides = array<i64: 1, 1>, padding = dense<1> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 1>,
        rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, false>,
        dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>,
        feature_group_count = 1 : i64, batch_group_count = 1 : i64
      }} : ({x}, {w}) -> {out}
      return %r : {out} }}""")


def test_a_weight_that_is_no_number_meets_padding_also_where_it_is_converted() -> None:
    """0 * inf is NaN: the weights are read as they are where the image is padding, computed ones as well."""
    x, out = tensor((2, 6, 4, 6), "f32"), tensor((2, 20, 4, 6), "f32")
    h, w = tensor((3, 3, 6, 20), "bf16"), tensor((3, 3, 6, 20), "f32")
    module = hlo.parse(f"""func.func @main(%x: {x}, %h: {h}) -> {out} {{
      %w = stablehlo.convert %h : ({h}) -> {w}
      %r = "stablehlo.convolution"(%x, %w) {{
        window_strides = array<i64: 1, 1>, padding = dense<1> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 1>,
        rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, false>,
        dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[0, 1, i, o]->[b, f, 0, 1]>,
        feature_group_count = 1 : i64, batch_group_count = 1 : i64
      }} : ({x}, {w}) -> {out}
      return %r : {out} }}""")
    image, weights = arrays_for(module, 0)
    weights[0, 1, 2, 3], weights[2, 2, 0, 7] = np.inf, -np.inf
    (found,), (expected,) = codegen.compile(module)(image, weights), interp.evaluate(module, image, weights)
    assert np.isnan(expected[:, 3]).any() and np.isnan(expected[:, 7]).any()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


@pytest.mark.parametrize("at", [(0, 1, 0, 3), (2, 2, 0, 0), (1, 1, 0, 5)])
@pytest.mark.parametrize("channels_first", [False, True])
def test_a_weight_that_is_no_number_meets_padding_in_plain_loops(channels_first: bool, at: tuple[int, ...]) -> None:
    """0 * inf is NaN: a depthwise convolution leaves out no product with padding that is not 0 for sure."""
    image = (2, 6, 9, 21) if channels_first else (2, 9, 21, 6)
    order = "[b, f, 0, 1]" if channels_first else "[b, 0, 1, f]"
    x, w = tensor(image, "f32"), tensor((3, 3, 1, 6), "f32")
    module = hlo.parse(f"""func.func @main(%x: {x}, %w: {w}) -> {x} {{
      %r = "stablehlo.convolution"(%x, %w) {{
        window_strides = array<i64: 1, 1>, padding = dense<1> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 1>,
        rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, false>,
        dimension_numbers = #stablehlo.conv<{order}x[0, 1, i, o]->{order}>,
        feature_group_count = 6 : i64, batch_group_count = 1 : i64
      }} : ({x}, {w}) -> {x}
      return %r : {x} }}""")
    images, weights = arrays_for(module, 0)
    weights[at] = np.inf
    executable = codegen.compile(module)
    (found,), (expected,) = executable(images, weights), interp.evaluate(module, images, weights)
    assert not executable.fallbacks
    assert np.isnan(expected).any() == (at != (1, 1, 0, 5))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0]
BELOW_NORMAL = [1e-40, -1e-40, 1.5e-45]


@pytest.mark.parametrize("seed", [pytest.param(k, marks=() if k < 106 else pytest.mark.slow) for k in range(100, 180)])
def test_convolutions_of_special_values(seed: int) -> None:
    """NaN where the evaluator has NaN, the same infinities; the same signs of zeros where no product is below the normal ones."""
    module = hlo.parse(convolution(seed))
    rng = np.random.default_rng(seed)
    special = SPECIAL + (BELOW_NORMAL if seed % 2 else [])
    share = rng.choice((0.02, 0.3))
    arrays = []
    for a in arrays_for(module, seed):
        chosen = rng.random(a.shape) < share
        arrays.append(np.where(chosen, rng.choice(special, a.shape), np.where(rng.random(a.shape) < 0.3, 0, a)).astype(a.dtype))
    executable = codegen.compile(module)
    assert not executable.fallbacks
    with np.errstate(all="ignore"):
        (found,), (want,) = executable(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.where(np.isinf(want), want, 0)[numbers], np.where(np.isinf(found), found, 0)[numbers])
    finite = np.isfinite(want)
    scale = max(float(np.abs(want[finite]).max(initial=0)), 1e-30)
    np.testing.assert_allclose(found[finite], want[finite], rtol=0, atol=2e-5 * scale)
    if not seed % 2:
        zeros = (want == 0) & (found == 0)
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(want[zeros]))


@pytest.mark.parametrize(("rows", "columns", "packed"), [(512, 512, True), (48, 512, False), (512, 256, False)])
def test_panels_of_more_pages_than_addresses_are_kept_for_are_packed(rows: int, columns: int, packed: bool) -> None:
    """512 x 512 x 512, its panels read in place of a second cache of 2 MB, took 1.25 times as long as packed ones."""
    a, b, c = (f"tensor<{m}x{n}xf32>" for m, n in ((rows, 512), (512, columns), (rows, columns)))
    text = f"""func.func @main(%a: {a}, %b: {b}) -> {c} {{
      %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({a}, {b}) -> {c}
      return %y : {c}
    }}"""
    made = tiling.plan(hlo.parse(text), machine=replace(MACHINES["avx512"], l2_bytes=2 << 20), supports=supports)
    (fusion,) = made.fusions
    (step,) = [s for s in fusion.schedule.main.steps if isinstance(s, Contract)]
    assert (step.right.buffer.scope is Scope.SHARED) == packed and tiling.prove(fusion).holds


@pytest.mark.parametrize(("channels", "divides"), [(32, False), (4, False), (3, True)])
def test_windows_of_bytes_are_packed_by_their_own_loops(channels: int, divides: bool) -> None:
    """A row of a window was packed byte by byte, at places found by divisions: 8 x 28 x 28 x 128 took 4.7 ms, 2.3 now. What zeros
    must fill up still is, as its groups of four go over the ends of the window's loops."""
    x, w, out = f"tensor<2x9x10x{channels}xi8>", f"tensor<3x3x{channels}x64xi8>", "tensor<2x9x10x64xi32>"
    module = hlo.parse(
        f"func.func @main(%x: {x}, %w: {w}) -> {out} {{\n"
        "  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],\n"
        "    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}\n"
        f"    : ({x}, {w}) -> {out}\n  return %y : {out}\n}}"
    )
    machine = Machine(cores=2, vector_bytes=64, vector_registers=32, byte_products=4)
    made = tiling.plan(module, machine=machine, supports=supports)
    executable = codegen.compile(made)
    (source,) = [k.source for k in executable.kernels if "gemm_bytes(" in k.source]
    packing = source[source.index("for task") : source.index("gemm_bytes(")]
    assert ("_left[" in packing, "//" in packing.replace("task //", "")) == (True, divides)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, v.shape).astype(np.int8) for v in module.entry.arguments]
    np.testing.assert_array_equal(executable(*arrays)[0], interp.evaluate(module, *arrays)[0])
