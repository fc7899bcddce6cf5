"""gemm_block and transposes against NumPy: sizes around the tiles, strides, element types, every target."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from codegen.lib.micro_kernels.contract import micro_shape
from codegen.native.jit import compile_kernel, kernel_assembly
from codegen.native.signature import KernelSignature, Param
from codegen.target import Target, host_target
from codegen.tune.probe import run
from tests.machines import narrower_targets
from tests.pairs import fast_cover

TARGETS = ["host", *narrower_targets()]
SIZES = [(1, 1, 1), (6, 64, 8), (13, 70, 9), (30, 17, 3), (7, 130, 33), (16, 16, 2)]


def _gemm(
    m: int, n: int, k: int, dtypes: tuple[str, str, str], target: str, literal: bool, accumulate: str, packed: bool, ta: bool
) -> None:
    t = Target.named(target)
    kinds = [np.dtype(getattr(ml_dtypes, d, d)) for d in dtypes]
    panel = micro_shape(t, kinds[2].itemsize, n).panel
    stride, ldb = (k * panel, panel) if packed else (panel, n)
    # begin is 0 and end is 1: sizes that the compiler cannot know
    sizes = [str(s) if literal else f"end + {s - 1}" for s in (m, n, k)]
    rs, cs = (1, m) if ta else (k, 1)
    source = "def kernel(begin, end, a, b, c, p):\n"
    if packed:
        at = f"p[j // {panel} * {k * panel} + i * {panel} + j % {panel}]"
        source += f"    for i in range({sizes[2]}):\n        for j in range({sizes[1]}):\n            {at} = b[{n} * i + j]\n"
    source += (
        f"    gemm_block({', '.join(sizes)}, a, 2, {rs}, {cs}, {'p' if packed else 'b'}, 0, {stride}, {ldb},"
        f" c, 3, {n + 5}, {accumulate}, {panel})\n"
    )
    params = tuple(Param(x, d, 1) for x, d in zip("abcp", (*dtypes, dtypes[1]), strict=True))
    kernel = compile_kernel(source, KernelSignature(params), t)
    rng = np.random.default_rng(m * n + k)
    a, b = (rng.integers(-4, 4, size).astype(kind) for size, kind in ((m * k + 2, kinds[0]), (k * n, kinds[1])))
    c = rng.integers(-4, 4, 3 + m * (n + 5)).astype(kinds[2])
    p = np.zeros(k * panel * -(-n // panel), kinds[1])
    expected, stepped = c.copy(), c.copy()
    block = expected[3:].reshape(m, n + 5)[:, :n]
    wide = np.float64 if kinds[2].kind == "f" else np.int64
    left = a[2:].astype(wide)
    product = (left.reshape(k, m).T if ta else left.reshape(m, k)) @ b.astype(wide).reshape(k, n)
    block[:] = product + (block if accumulate != "False" else 0)
    run(kernel, 0, 1, a, b, c, p)
    np.testing.assert_array_equal(c, expected)
    kernel.python(0, 1, a, b, stepped, p)
    np.testing.assert_array_equal(stepped, expected)


@pytest.mark.parametrize(("size", "target", "packed"), fast_cover(itertools.product(SIZES, TARGETS, (False, True))))
def test_known_sizes(size: tuple[int, int, int], target: str, packed: bool) -> None:
    _gemm(*size, ("float64" if packed else "float32",) * 3, target, True, str(packed), packed, False)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", SIZES[2:5])
def test_sizes_known_only_at_run_time(size: tuple[int, int, int], target: str) -> None:
    _gemm(*size, ("float32",) * 3, target, False, "end > 0", True, True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("literal", [True, False])
def test_panels_that_are_asked_for_ahead(literal: bool, target: str) -> None:
    """Long panels that follow each other: whole blocks of rows, a rest of them, the last panel and a rest of columns."""
    _gemm(31, 203, 70, ("float32",) * 3, target, literal, "True", True, False)
    _gemm(31, 203, 70, ("float32",) * 3, target, literal, "False", False, False)


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="x86-64 targets")
def test_the_next_panel_comes_while_one_is_multiplied() -> None:
    """Without it each panel's first pass waited for the shared cache: a fifth of a product of 2048 rows on AVX2."""

    def prefetches(n: int) -> list[str]:
        source = (
            "def kernel(begin, end, a, b, c):\n"
            f"    gemm_block(48, {n}, 256, a, 0, 256, 1, b, 0, 4096, 16, c, 0, {n}, True, 16)\n"
        )
        text = kernel_assembly(source, KernelSignature(tuple(Param(x, "float32") for x in "abc")), Target.named("avx2"))
        return [line.split()[0] for line in text.splitlines() if "prefetch" in line]

    assert prefetches(16) == []  # nothing follows
    assert prefetches(64) == ["prefetcht0"] * 6 + ["prefetcht1"]  # the rows of the result, and one step of k for four


@pytest.mark.parametrize("dtypes", [
    ("bfloat16", "bfloat16", "float32"), ("float16", "float16", "float32"), ("int8", "int8", "int32"),
    ("uint8", "int8", "int32"), ("int64",) * 3, ("float32", "float32", "float64"),
])  # fmt: skip
def test_narrow_operands_accumulate_in_the_result_type(dtypes: tuple[str, str, str]) -> None:
    _gemm(13, 70, 9, dtypes, "host", True, "True", True, False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("n", [1, 17, 18, 23, 31])
def test_nothing_is_stored_beyond_the_last_column(dtype: str, n: int) -> None:
    """LLVM's masked store of one 16-bit lane wrote two: the elements after a row were cleared."""
    source = f"def kernel(begin, end, a, b, c):\n    gemm_block(1, {n}, 4, a, 0, 4, 1, b, 0, 128, 32, c, 0, {n}, False, 32)\n"
    kernel = compile_kernel(source, KernelSignature((Param("a", "float32", 1), Param("b", dtype, 1), Param("c", dtype, 1))))
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    c = np.full(40, 7, kind)
    run(kernel, 0, 1, np.ones(4, np.float32), np.ones(128, kind), c)
    np.testing.assert_array_equal(c.astype(float), [4] * n + [7] * (40 - n))


@pytest.mark.parametrize(
    ("literal", "size", "target", "dtype"),
    fast_cover(itertools.product((True, False), [(7, 2, 16), (15, 3, 8)], TARGETS, ["float32", "complex64", "complex128"]), 2),
)
def test_asking_for_what_comes_next_changes_no_sum(literal: bool, size: tuple[int, int, int], target: str, dtype: str) -> None:
    """Both ways of ``parts``, known and unknown sizes, with levels: what is asked for may lie behind the end of B."""
    t, (m, columns, k) = Target.named(target), size
    rows, depth = (str(s) if literal else f"end + {s - 1}" for s in (m, k))
    panel = 2 * t.lanes(np.dtype(dtype).itemsize)
    n = columns * panel - panel // 2
    sides = f"a, i * {m * 3 * k}, {3 * k}, 1, b, 0, {3 * k * panel}, {panel}, c, i * {m * n}, {n}"
    text = "".join(
        f"    for i in range({parts}):\n        gemm_ahead({rows}, {n}, {depth}, {sides},"
        f" {again}, {panel}, {1 << 20}, i, {parts}, 3, {k}, {k * panel})\n"
        for parts, again in ((2, "False"), (1, "True"))
    )
    source = f"def kernel(begin, end, a, b, c):\n{text}"
    signature = KernelSignature(tuple(Param(x, dtype, np.dtype(dtype).itemsize) for x in "abc"))
    kernel = compile_kernel(source, signature, t)
    rng = np.random.default_rng(4)

    def whole_numbers(*shape: int) -> Any:
        x = rng.integers(-4, 4, (2, *shape))
        return (x[0] + 1j * x[1] if "complex" in dtype else x[0]).astype(dtype)

    a, b = whole_numbers(2 * m, 3 * k), whole_numbers(columns, 3 * k, panel)
    c, stepped = np.zeros((2, 2 * m, n), dtype)
    run(kernel, 0, 1, a, b, c)
    kernel.python(0, 1, a.ravel(), b.ravel(), stepped.reshape(-1))
    expected = a @ np.concatenate(b, 1)[:, :n]
    expected[:m] *= 2
    np.testing.assert_array_equal(c, expected)
    np.testing.assert_array_equal(stepped, expected)
    assert "prefetch" in kernel_assembly(source, signature, t)


def test_micro_kernels_keep_their_accumulators_in_registers() -> None:
    target = Target.named("host")
    shape = micro_shape(target, 4)
    source = (
        "def kernel(begin, end, a, b, c):\n"
        f"    gemm_block({shape.rows}, {shape.panel}, 64, a, 0, 64, 1, b, 0, 0, {shape.panel}, c, 0, {shape.panel}, False,"
        f" {shape.panel})\n"
    )
    text = kernel_assembly(source, KernelSignature(tuple(Param(x, "float32") for x in "abc")), target)
    vectors = [line for line in text.splitlines() if "rsp" in line and ("mm" in line)]
    assert not vectors, "spills"


def test_rows_that_meet_along_k_are_not_kept_beside_the_sums() -> None:
    """A window's row i at step 1 is row i + 1 at step 0: LLVM kept all of them, and the sums went through memory."""
    target = Target.named("host")
    columns = 2 * target.lanes(4)
    rows = micro_shape(target, 4, columns).rows
    source = (
        "def kernel(begin, end, a, b, c):\n"
        f"    gemm_block({rows}, {columns}, 64, a, 0, 1, 1, b, 0, {columns}, {columns}, c, 0, {columns}, False, {columns})\n"
    )
    text = kernel_assembly(source, KernelSignature(tuple(Param(x, "float32") for x in "abc")), target)
    vectors = [line for line in text.splitlines() if "rsp" in line and ("mm" in line)]
    assert not vectors, "spills"


def test_a_panel_must_hold_whole_vectors() -> None:
    source = "def kernel(begin, end, a, b, c):\n    gemm_block(1, 1, 1, a, 0, 1, 1, b, 0, 1, 1, c, 0, 1, False, 3)\n"
    with pytest.raises(Exception, match="panel of 3 columns"):
        compile_kernel(source, KernelSignature(tuple(Param(x, "float32") for x in "abc")))


@pytest.mark.parametrize(("dtype", "target", "literal"), [
    *((dtype, "host", False) for dtype in ("float32", "float64", "int8", "bfloat16", "complex64")),
    ("float32", "host", True), *(("float32", target, False) for target in TARGETS[1:]), ("int8", TARGETS[-1], False),
])  # fmt: skip
def test_transposes_write_nothing_beside(dtype: str, literal: bool, target: str) -> None:
    """Sizes below, at and beyond a block: what is around them in the destination stays."""
    lines, places, at = [], [], 3
    for rows, cols in ((1, 1), (1, 17), (3, 10), (16, 5), (33, 18), (65, 40)):
        lines.append(f"    transpose({rows}, {cols}, x, 5, 71, y, {at}, {rows + 2})\n")
        places.append((rows, cols, at))
        at += cols * (rows + 2) + 5
    if not literal:  # one, whose sizes the kernel reads
        sizes = "s[3 * k], s[3 * k + 1], x, 5, 71, y, s[3 * k + 2], s[3 * k] + 2"
        lines = [f"    for k in range({len(places)} * end):\n        transpose({sizes})\n"]
    kernel = compile_kernel(
        "def kernel(begin, end, x, y, s):\n" + "".join(lines),
        KernelSignature((*(Param(v, dtype, 1) for v in "xy"), Param("s", "int64", 8))), Target.named(target),
    )  # fmt: skip
    kind = np.uint16 if dtype == "bfloat16" else np.dtype(dtype)
    x = np.random.default_rng(0).integers(0, 100, 5 + 65 * 71).astype(kind)
    found, wanted = np.full(at, 7, kind), np.full(at, 7, kind)
    for rows, cols, to in places:
        m = x[5 : 5 + rows * 71].reshape(rows, 71)[:, :cols]
        np.lib.stride_tricks.as_strided(wanted[to:], (cols, rows), (wanted.itemsize * (rows + 2), wanted.itemsize))[...] = m.T
    run(kernel, 0, 1, x, found, np.array(places, np.int64).reshape(-1))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("dtype", "target", "literal"), [
    *((dtype, "host", True) for dtype in ("float32", "float64", "int8", "uint16", "complex64")),
    *(("float32", target, True) for target in TARGETS[1:]),
    ("float32", "host", False), ("float64", TARGETS[-1], False),
])  # fmt: skip
def test_transpose_and_copy(dtype: str, target: str, literal: bool) -> None:
    rows, cols = 37, 50
    size = (lambda v: str(v)) if literal else (lambda v: f"end + {v - 1}")
    source = (
        "def kernel(begin, end, x, y, z):\n"
        f"    transpose({size(rows)}, {size(cols)}, x, 1, {cols}, y, 2, {rows + 3})\n"
        f"    copy_rows({size(rows)}, {size(cols)}, x, 1, {cols}, z, 0, {cols + 1})\n"
    )
    kernel = compile_kernel(source, KernelSignature(tuple(Param(v, dtype, 1) for v in "xyz")), Target.named(target))
    x = np.random.default_rng(0).integers(0, 100, rows * cols + 1).astype(dtype)
    m = x[1:].reshape(rows, cols)
    sizes = (2 + cols * (rows + 3), rows * (cols + 1))
    out, stepped = ([np.full(s, 7, dtype) for s in sizes] for _ in range(2))
    run(kernel, 0, 1, x, *out)
    kernel.python(0, 1, x, *stepped)
    for got, body in zip(out, stepped, strict=True):
        np.testing.assert_array_equal(got, body)
    y, z = out
    np.testing.assert_array_equal(y[2:].reshape(cols, rows + 3)[:, :rows], m.T)
    assert (y[2:].reshape(cols, rows + 3)[:, rows:] == 7).all() and (y[:2] == 7).all()
    np.testing.assert_array_equal(z.reshape(rows, cols + 1)[:, :cols], m)


@pytest.mark.parametrize(("dtype", "together"), [("uint16", 2), ("int8", 4), ("int8", 8), ("uint16", 4)])
@pytest.mark.parametrize("target", ["host", *TARGETS[1:]])
def test_elements_side_by_side_are_turned_as_one(dtype: str, together: int, target: str) -> None:
    """Groups of steps of k of a product's factor: any distances, nothing written beside."""
    lines, places, at = [], [], 3
    for rows, cols in ((1, 1), (3, 10), (16, 5), (33, 18), (40, 33)):
        lines.append(f"    transpose({rows}, {cols}, x, 5, 301, y, {at}, {rows * together + 3}, {together})\n")
        places.append((rows, cols, at))
        at += cols * (rows * together + 3) + 5
    kernel = compile_kernel(
        "def kernel(begin, end, x, y):\n" + "".join(lines), KernelSignature(tuple(Param(v, dtype, 1) for v in "xy")),
        Target.named(target),
    )  # fmt: skip
    x = np.random.default_rng(0).integers(0, 100, 5 + 40 * 301).astype(dtype)
    found, stepped, wanted = (np.full(at, 7, dtype) for _ in range(3))
    for rows, cols, to in places:
        for c in range(cols):
            for r in range(rows):
                for e in range(together):
                    wanted[to + c * (rows * together + 3) + r * together + e] = x[5 + r * 301 + c * together + e]
    run(kernel, 0, 1, x, found)
    kernel.python(0, 1, x, stepped)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(stepped, wanted)
