# ruff: noqa: E501  (programs are written as they are printed)
"""Ops whose vectorised rules are intricate, against loops over single elements written from the specification."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import hlo
import interp
from interp.rules.scattering import takes_turns

RNG = np.random.default_rng


def text_of(array: np.ndarray, element: str = "i64") -> str:
    return "tensor<" + "".join(f"{n}x" for n in array.shape) + element + ">"


def run(op: str, inputs: list[np.ndarray], result: np.ndarray | str, elements: list[str] | None = None) -> np.ndarray:
    names = [text_of(x, e) for x, e in zip(inputs, elements or ["i64"] * len(inputs), strict=True)]
    goal = result if isinstance(result, str) else text_of(result, (elements or ["i64"])[0])
    arguments = ", ".join(f"%{i}: {t}" for i, t in enumerate(names))
    module = hlo.parse(
        f"func.func @main({arguments}) -> {goal} {{\n%r = {op} : ({', '.join(names)}) -> {goal}\nreturn %r : {goal}\n}}"
    )
    hlo.verify(module)
    return interp.evaluate(module, *inputs)[0]


def body(line: str, element: str = "i64") -> str:
    return f"""({{ ^bb0(%x: tensor<{element}>, %y: tensor<{element}>):
      {line}
      stablehlo.return %s : tensor<{element}> }})"""


# acc * 3 - update: neither associative nor commutative, so that the order of updates shows.
ORDERED = body("""%three = stablehlo.constant dense<3> : tensor<i64>
      %p = stablehlo.multiply %x, %three : tensor<i64>
      %s = stablehlo.subtract %p, %y : tensor<i64>""")
ADD = body("%s = stablehlo.add %x, %y : tensor<i64>")
MUL = body("%s = stablehlo.multiply %x, %y : tensor<i64>")
MAX = body("%s = stablehlo.maximum %x, %y : tensor<i64>")
LAST = "({ ^bb0(%x: tensor<i64>, %y: tensor<i64>):\n stablehlo.return %y : tensor<i64> })"
FOLDS = {ORDERED: lambda a, b: 3 * a - b, ADD: lambda a, b: a + b, MUL: lambda a, b: a * b, MAX: max, LAST: lambda a, b: b}


@pytest.mark.parametrize("seed", range(40))
def test_reduce_window(seed: int) -> None:
    rng = RNG(seed)
    rank = int(rng.integers(1, 4))
    shape = rng.integers(0 if seed % 7 == 0 else 1, 8, rank)
    window, stride, base, dilation = (rng.integers(1, 4, rank) for _ in range(4))
    if seed % 5 == 0:
        window = window * 3  # enough overlap for the folds of powers of two
    padding = rng.integers(0, 4, (rank, 2))
    x = rng.integers(-5, 6, tuple(shape))
    first = LAST if seed % 3 == 0 else ADD  # keeps order: the last element of each window
    fold = FOLDS[first]
    init = 7
    grown = np.full(
        [lo + (max(0, (n - 1) * b + 1) if n else 0) + hi for n, b, (lo, hi) in zip(shape, base, padding, strict=True)], init
    )
    for i in np.ndindex(*shape):
        grown[tuple(lo + k * b for k, b, (lo, _) in zip(i, base, padding, strict=True))] = x[i]
    spans = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    sizes = [(n - s) // t + 1 if n and s <= n else 0 for n, s, t in zip(grown.shape, spans, stride, strict=True)]
    expected = np.zeros(sizes, np.int64)
    for o in np.ndindex(*sizes):
        acc = init
        for k in np.ndindex(*window):
            acc = fold(acc, int(grown[tuple(a * t + b * d for a, t, b, d in zip(o, stride, k, dilation, strict=True))]))
        expected[o] = acc
    numbers = {"window_dimensions": window, "window_strides": stride, "base_dilations": base, "window_dilations": dilation}
    attributes = ", ".join(f"{k} = array<i64: {', '.join(map(str, v))}>" for k, v in numbers.items())
    op = f'"stablehlo.reduce_window"(%0, %1) {first} {{{attributes}, padding = dense<{padding.tolist()}> : tensor<{rank}x2xi64>}}'
    np.testing.assert_array_equal(run(op, [x, np.array(init)], expected), expected)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("region", FOLDS, ids=["ordered", "add", "mul", "max", "last"])
def test_scatter(seed: int, region: str) -> None:
    rng = RNG(seed)
    # operand [batch, a, b, c]: batching dimension 0, index vectors address (b, a), windows over c and b
    shape = (2, 4, 3, 5)
    count = int(rng.integers(0, 6))
    x = rng.integers(-4, 5, shape)
    indices = rng.integers(-2, 6, (count, 2, 2))  # [scatter, batch, vector]
    window = (int(rng.integers(1, 4)), int(rng.integers(1, 6)))  # b, c
    updates = rng.integers(-4, 5, (count, window[0], 2, window[1]))  # [scatter, b, batch, c]
    expected = x.copy()
    for s, i, b, j in itertools.product(range(count), range(window[0]), range(2), range(window[1])):
        at = (b, int(indices[s, b, 1]), int(indices[s, b, 0]) + i, j)
        if all(0 <= k < n for k, n in zip(at, shape, strict=True)):
            expected[at] = FOLDS[region](int(expected[at]), int(updates[s, i, b, j]))
    op = f"""\"stablehlo.scatter"(%0, %1, %2) {region} {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1, 3],
      inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [1], scatter_dims_to_operand_dims = [2, 1],
      index_vector_dim = 2>, indices_are_sorted = false, unique_indices = false}}"""
    np.testing.assert_array_equal(run(op, [x, indices, updates], expected), expected)


ROUNDED, OTHERS = ("add", "multiply"), ("maximum", "minimum")
WORDS = {
    "f32": ROUNDED + OTHERS, "f16": ROUNDED + OTHERS, "bf16": ROUNDED + OTHERS, "complex<f32>": ROUNDED,
    "i32": (*ROUNDED, *OTHERS, "or", "xor"), "i1": (*ROUNDED, *OTHERS, "or", "xor"),
}  # fmt: skip


@pytest.mark.parametrize(("element", "word"), [(element, word) for element, words in WORDS.items() for word in words])
def test_many_updates_of_few_places_take_few_steps(element: str, word: str) -> None:
    """The greatest element of each of 17 segments took 20,000 steps: as many as the longest segment has elements."""
    dtype = np.dtype(np.complex64) if element.startswith("complex") else hlo.element_type(element).dtype
    rng = RNG(0)
    x, news = (rng.integers(-2, 3, n).astype(dtype) for n in (7, 400))
    if np.dtype(dtype).kind == "f":
        news[::50], news[1::9] = np.nan, -0.0
    places = rng.integers(-1, 8, (400, 1))
    goal, types = text_of(x, element), f"{text_of(x, element)}, {text_of(places)}, {text_of(news, element)}"
    op = (
        '%r = "stablehlo.scatter"(%whole, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], '
        f"scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> {body(f'%s = stablehlo.{word} %x, %y : tensor<{element}>', element)}"
    )
    text = f"func.func @main(%whole: {text_of(x, element)}, %i: {text_of(places)}, %u: {text_of(news, element)}) -> {goal}"
    module = hlo.parse(f"{text} {{ {op} : ({types}) -> {goal}\n return %r : {goal} }}")
    scalar = f"tensor<{element}>"
    one = hlo.parse(
        f"func.func @main(%x: {scalar}, %y: {scalar}) -> {scalar} {{ %s = stablehlo.{word} %x, %y : {scalar} return %s : {scalar} }}"
    )
    expected = x.copy()
    for (at,), new in zip(places, news, strict=True):
        if 0 <= at < 7:
            (expected[at],) = interp.evaluate(one, expected[at], new)
    turns = (element, word) in (("complex<f32>", "multiply"), ("i1", "add"), ("i1", "multiply"))
    assert takes_turns(module.entry.body.ops[0]) == turns
    (found,) = interp.evaluate(module, x, places, news, limits=interp.Limits(steps=400 if turns else 24))
    np.testing.assert_array_equal(found, expected)
    if np.dtype(dtype).kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("seed", range(20))
def test_gather(seed: int) -> None:
    rng = RNG(seed)
    shape = (2, 4, 3, 5)
    x = rng.integers(-99, 99, shape)
    indices = rng.integers(-2, 7, (2, 3, 2))  # [vector, gather, batch]
    sizes = (1, 1, int(rng.integers(0, 4)), int(rng.integers(0, 6)))
    expected = np.zeros((sizes[2], 3, 2, sizes[3]), np.int64)  # offset, gather, batch, offset
    for p, g, b, q in np.ndindex(*expected.shape):
        start_b = min(max(int(indices[0, g, b]), 0), shape[2] - sizes[2])
        start_a = min(max(int(indices[1, g, b]), 0), shape[1] - sizes[1])
        expected[p, g, b, q] = x[b, start_a, start_b + p, q]
    op = f"""\"stablehlo.gather"(%0, %1) {{dimension_numbers = #stablehlo.gather<offset_dims = [0, 3], collapsed_slice_dims = [1],
      operand_batching_dims = [0], start_indices_batching_dims = [2], start_index_map = [2, 1], index_vector_dim = 0>,
      slice_sizes = array<i64: {", ".join(map(str, sizes))}>, indices_are_sorted = false}}"""
    np.testing.assert_array_equal(run(op, [x, indices], expected), expected)


@pytest.mark.parametrize("seed", range(20))
def test_select_and_scatter(seed: int) -> None:
    rng = RNG(seed)
    shape = tuple(rng.integers(3, 7, 2))
    window, stride = rng.integers(1, 4, 2), rng.integers(1, 3, 2)
    padding = [[int(rng.integers(0, w)), int(rng.integers(0, w))] for w in window]
    x = rng.integers(-3, 4, shape)
    sizes = [(n + lo + hi - w) // s + 1 for n, w, s, (lo, hi) in zip(shape, window, stride, padding, strict=True)]
    source = rng.integers(-9, 9, sizes)
    expected = np.full(shape, 5)
    for o in np.ndindex(*sizes):
        best: tuple[int, ...] | None = None
        for k in np.ndindex(*window):
            at = tuple(int(a * s + b - p[0]) for a, s, b, p in zip(o, stride, k, padding, strict=True))
            if all(0 <= i < n for i, n in zip(at, shape, strict=True)) and (best is None or not x[best] >= x[at]):
                best = at
        if best is not None:
            expected[best] = 3 * expected[best] - source[o]
    ge = "({ ^bb0(%x: tensor<i64>, %y: tensor<i64>):\n %s = stablehlo.compare GE, %x, %y : (tensor<i64>, tensor<i64>) -> tensor<i1>\n"
    op = f"""\"stablehlo.select_and_scatter"(%0, %1, %2) {ge} stablehlo.return %s : tensor<i1> }}, {ORDERED[1:]} {{
      window_dimensions = array<i64: {", ".join(map(str, window))}>, window_strides = array<i64: {", ".join(map(str, stride))}>,
      padding = dense<{padding}> : tensor<2x2xi64>}}"""
    np.testing.assert_array_equal(run(op, [x, source, np.array(5)], expected), expected)


COMPARATORS = {
    "rising": ("%s = stablehlo.compare LT, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>", lambda p, q: p[0] < q[0]),
    "falling": ("%s = stablehlo.compare GT, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>", lambda p, q: p[0] > q[0]),
    "by the second": ("%s = stablehlo.compare LT, %c, %d : (tensor<i64>, tensor<i64>) -> tensor<i1>", lambda p, q: p[1] < q[1]),
    "by a sum": (
        """%p = stablehlo.add %a, %c : tensor<i64>
           %q = stablehlo.add %b, %d : tensor<i64>
           %s = stablehlo.compare LT, %p, %q : (tensor<i64>, tensor<i64>) -> tensor<i1>""",
        lambda p, q: sum(p) < sum(q),
    ),
    "by parity, then falling": (
        """%one = stablehlo.constant dense<1> : tensor<i64>
           %p = stablehlo.and %a, %one : tensor<i64>
           %q = stablehlo.and %b, %one : tensor<i64>
           %l = stablehlo.compare LT, %p, %q : (tensor<i64>, tensor<i64>) -> tensor<i1>
           %e = stablehlo.compare EQ, %p, %q : (tensor<i64>, tensor<i64>) -> tensor<i1>
           %g = stablehlo.compare GT, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>
           %t = stablehlo.and %e, %g : tensor<i1>
           %s = stablehlo.or %l, %t : tensor<i1>""",
        lambda p, q: (p[0] % 2 < q[0] % 2) or (p[0] % 2 == q[0] % 2 and p[0] > q[0]),
    ),
}


def stable_sorted(pairs: list[tuple[int, int]], less: Any) -> list[tuple[int, int]]:
    done: list[tuple[int, int]] = []
    for p in pairs:
        k = len(done)
        while k and less(p, done[k - 1]):
            k -= 1
        done.insert(k, p)
    return done


def sort_text(lines: str, shape: str, dimension: int, element: str = "i64") -> str:
    t = f"tensor<{shape}x{element}>"
    return f"""func.func @main(%0: {t}, %1: {t}) -> ({t}, {t}) {{
      %r:2 = "stablehlo.sort"(%0, %1) ({{
        ^bb0(%a: tensor<{element}>, %b: tensor<{element}>, %c: tensor<{element}>, %d: tensor<{element}>):
          {lines}
          stablehlo.return %s : tensor<i1>
      }}) {{dimension = {dimension} : i64, is_stable = true}} : ({t}, {t}) -> ({t}, {t})
      return %r#0, %r#1 : {t}, {t}
    }}"""


@pytest.mark.parametrize("name", COMPARATORS)
@pytest.mark.parametrize("n", [1, 2, 3, 17, 100])
def test_sort_by_any_comparator(name: str, n: int) -> None:
    lines, less = COMPARATORS[name]
    rng = RNG(n)
    x, y = rng.integers(-6, 7, (3, n, 2)), rng.integers(-6, 7, (3, n, 2))
    a, b = interp.evaluate(hlo.parse(sort_text(lines, f"3x{n}x2", 1)), x, y)
    for i, j in itertools.product(range(3), range(2)):
        expected = stable_sorted(list(zip(x[i, :, j].tolist(), y[i, :, j].tolist(), strict=True)), less)
        assert list(zip(a[i, :, j].tolist(), b[i, :, j].tolist(), strict=True)) == expected


def test_sort_by_a_comparator_that_contradicts_itself_is_a_permutation() -> None:
    """NaN compared as a number is neither before nor after anything, which is no order."""
    lines = """%p = stablehlo.multiply %a, %c : tensor<f64>
               %q = stablehlo.multiply %b, %d : tensor<f64>
               %s = stablehlo.compare LT, %p, %q : (tensor<f64>, tensor<f64>) -> tensor<i1>"""
    rng = RNG(0)
    x, y = rng.normal(size=(2, 40)), rng.normal(size=(2, 40))
    x[:, ::7] = np.nan
    a, b = interp.evaluate(hlo.parse(sort_text(lines, "2x40", 1, "f64")), x, y)
    for i in range(2):
        assert sorted(map(repr, zip(a[i].tolist(), b[i].tolist(), strict=True))) == sorted(
            map(repr, zip(x[i].tolist(), y[i].tolist(), strict=True))
        )


def test_sort_puts_nan_last_and_keeps_zeros_in_place_as_jax_asks() -> None:
    text = sort_text("%s = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f64>, tensor<f64>) -> tensor<i1>", "6", 0, "f64")
    x = np.array([0.0, np.nan, -0.0, -np.inf, 1.0, -np.nan])
    a, b = interp.evaluate(hlo.parse(text), x, np.arange(6.0))
    assert b.tolist() == [5, 3, 2, 0, 4, 1]
    assert np.isnan(a[[0, 5]]).all()


@pytest.mark.parametrize("seed", range(25))
def test_convolution(seed: int) -> None:
    rng = RNG(seed)
    features, batches = ((1, 1), (2, 1), (1, 2))[seed % 3]
    size, kernel = rng.integers(1, 6, 2), rng.integers(1, 4, 2)
    stride, lhs_dilation, rhs_dilation = (rng.integers(1, 3, 2) for _ in range(3))
    padding = rng.integers(-1, 4, (2, 2))
    reversal = rng.integers(0, 2, 2).astype(bool)
    x = rng.integers(-5, 6, (2, *size, 4))  # b 0 1 f
    k = rng.integers(-5, 6, (*kernel, 4 // features, 6))  # 0 1 i o
    grown = [(n - 1) * d + 1 + lo + hi for n, d, (lo, hi) in zip(size, lhs_dilation, padding, strict=True)]
    spans = [(n - 1) * d + 1 for n, d in zip(kernel, rhs_dilation, strict=True)]
    if min(grown) < 0:
        return
    sizes = [(n - m) // s + 1 if n and m <= n else 0 for n, m, s in zip(grown, spans, stride, strict=True)]
    expected = np.zeros((2 // batches, 6, *sizes), np.int64)  # b f 0 1
    for b, o, p, q in np.ndindex(*expected.shape):
        group = o // (6 // (features * batches))
        source = b + group * (2 // batches) if batches > 1 else b
        for i, j, c in np.ndindex(*kernel, 4 // features):
            at = [a * s + t * d - pad[0] for a, s, t, d, pad in zip((p, q), stride, (i, j), rhs_dilation, padding, strict=True)]
            if any(v % d for v, d in zip(at, lhs_dilation, strict=True)):
                continue
            at = [v // d for v, d in zip(at, lhs_dilation, strict=True)]
            if all(0 <= v < n for v, n in zip(at, size, strict=True)):
                channel = c + group * (4 // features) if features > 1 else c
                tap = [n - 1 - t if r else t for t, n, r in zip((i, j), kernel, reversal, strict=True)]
                expected[b, o, p, q] += x[source, at[0], at[1], channel] * k[tap[0], tap[1], c, o]
    numbers = {"window_strides": stride, "lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation}
    attributes = ", ".join(f"{n} = array<i64: {', '.join(map(str, v))}>" for n, v in numbers.items())
    op = f"""\"stablehlo.convolution"(%0, %1) {{{attributes}, padding = dense<{padding.tolist()}> : tensor<2x2xi64>,
      window_reversal = array<i1: {", ".join(str(bool(r)).lower() for r in reversal)}>,
      dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, f, 0, 1]>,
      feature_group_count = {features} : i64, batch_group_count = {batches} : i64}}"""
    np.testing.assert_array_equal(run(op, [x, k], expected), expected)
    floats = run(op, [x.astype(np.float32), k.astype(np.float32)], text_of(expected, "f32"), ["f32", "f32"])
    np.testing.assert_array_equal(floats, expected)
