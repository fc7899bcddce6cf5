"""Library functions that kernels call by name: shared, cached, recalled; and the short way through numba."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
from codegen.kernel.parse import parse
from codegen.kernel.straight import is_straight
from codegen.lib import outline
from codegen.lib.micro_kernels import blocks
from codegen.lib.micro_kernels.contract import gemm_block
from codegen.native import jit, library_objects
from codegen.native.jit import compile_kernel, kernel_ir
from codegen.native.lower import LoadedObject, emit_object, library_object, lower, optimise
from codegen.native.signature import KernelSignature, Param
from codegen.outlined import Functions
from codegen.target import Target
from codegen.tune.probe import run
from tiling.planning.garbage import NEW_OBJECTS

ROOT = Path(__file__).parents[3]


def product(n: int, extra: str = "") -> tuple[str, KernelSignature]:
    """c = a @ b for 32 x 32 by 32 x n, in one kernel of its own."""
    source = (
        "def kernel(begin, end, a, b, c):\n"
        "    for t in range(begin, end):\n"
        f"        gemm_block(32, {n}, 32, a, 0, 32, 1, b, 0, 64, {n}, c, 0, {n}, False, 64)\n{extra}"
    )
    return source, KernelSignature(tuple(Param(x, "float32") for x in "abc"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and neither kernels nor library functions in memory."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(jit, "_kernels", {})
    monkeypatch.setattr(library_objects, "_loaded", {})
    jit.stats.reset()
    return tmp_path


def _works(source: str, signature: KernelSignature, n: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((32, 32)).astype(np.float32), rng.standard_normal((32, n)).astype(np.float32)
    c = np.zeros((32, n), np.float32)
    run(compile_kernel(source, signature), 0, 1, a.ravel(), b.ravel(), c.ravel())
    want = a @ b
    if "sqrt" in source:
        want[0, 0] = np.sqrt(want[0, 0])
    np.testing.assert_allclose(c, want, rtol=1e-5, atol=1e-4)


def test_two_kernels_share_one_block(cache: Path) -> None:
    _works(*product(64), 64)
    assert len(library_objects._loaded) == 1
    _works(*product(64, "        c[0] = sqrt(c[0])\n"), 64)
    assert len(library_objects._loaded) == 1
    assert jit.stats.compiled == 2
    _works(*product(128), 128)
    assert len(library_objects._loaded) == 2
    assert len(list((cache / "objects").iterdir())) == 5


@pytest.mark.parametrize(("dtype", "n", "functions"), [("float32", 12, 0), ("complex64", 12, 1), ("complex64", 8, 0)])
def test_complex_products_count_as_four(cache: Path, dtype: str, n: int, functions: int) -> None:
    """A Lindblad equation has 44 of 12 x 12 x 12 in eight kernels, each of which held its copies: 4.6 s of compiling, now 1.5."""
    call = f"gemm_block({n}, {n}, {n}, a, 0, {n}, 1, b, 0, {16 * n}, 16, c, 0, {n}, False, 16)"
    source = f"def kernel(begin, end, a, b, c):\n    {call}\n"
    kernel = compile_kernel(source, KernelSignature(tuple(Param(x, dtype, 8) for x in "abc")))
    a, b, c = np.eye(n, dtype=dtype), np.zeros((n, 16), dtype), np.zeros((n, n), dtype)
    b[:, :n] = np.arange(n * n).reshape(n, n) * (1j if "complex" in dtype else 1)
    run(kernel, 0, 1, a.ravel(), b.ravel(), c.ravel())
    np.testing.assert_array_equal(c, b[:, :n])
    assert len(library_objects._loaded) == functions


def test_a_block_whose_code_is_there_is_not_written_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for a kernel that does more, nor for one whose buffers have other names and are aligned to an element alone."""
    texts: list[str] = []
    write = outline._module_text
    monkeypatch.setattr(outline, "_module_text", lambda *x: (texts.append(x[0]), write(*x))[1])
    source, signature = product(64)
    _works(source, signature, 64)
    _works(*product(64, "        c[0] = sqrt(c[0])\n"), 64)
    narrow = KernelSignature(tuple(Param(x, "float32", 4, f"of {x}") for x in "abc"))
    _works(source, narrow, 64)
    assert (len(texts), jit.stats.compiled) == (1, 3)


def test_code_that_kernels_call_stays_when_its_name_is_forgotten(cache: Path) -> None:
    """A test that emptied the table freed the code under a kernel that it called afterwards."""
    source, signature = product(64)
    kernel = compile_kernel(source, signature)
    (code,) = (weakref.ref(o) for o in library_objects._loaded.values())
    library_objects._loaded.clear()
    gc.collect()
    assert code() is not None
    a, b, c = np.ones(32 * 32, np.float32), np.ones(32 * 64, np.float32), np.zeros(32 * 64, np.float32)
    run(kernel, 0, 1, a, b, c)
    assert (c == 32).all()


def test_both_come_back_from_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _works(*product(64), 64)
    jit.forget_kernels()
    monkeypatch.setattr(library_objects, "_loaded", {})
    _works(*product(64), 64)
    assert (jit.stats.compiled, jit.stats.disk_hits) == (1, 1)


def test_a_block_that_the_cache_lost_is_compiled_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _works(*product(64), 64)
    (name,) = library_objects._loaded
    lost = cache / "objects" / f"{library_objects._key(name, jit.stamp())}.o"
    lost.unlink()
    jit.forget_kernels()
    monkeypatch.setattr(library_objects, "_loaded", {})
    _works(*product(64), 64)
    assert (jit.stats.compiled, jit.stats.disk_hits) == (2, 0)
    assert lost.exists()


def test_collections_are_few_while_kernels_are_compiled() -> None:
    class Watched(jit.MachineCode):
        def compile(self, kernels: Any) -> list[jit.CompiledKernel]:
            seen.append(gc.get_threshold()[0])
            return super().compile(kernels)

    seen: list[int] = []
    before = gc.get_threshold()
    module = hlo.parse("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n%0 = stablehlo.negate %x : tensor<2xf32>\n"
                       "return %0 : tensor<2xf32> }")  # fmt: skip
    codegen.compile(module, target=Watched())
    assert seen == [NEW_OBJECTS]
    assert gc.get_threshold() == before


def test_people_see_the_whole_kernel() -> None:
    assert "tilewright_lib_" not in kernel_ir(*product(64))


def test_kernels_are_compiled_without_numba(tmp_path: Path) -> None:
    """Its import takes longer than most kernels; what the walk does not take still goes through it."""
    script = (
        "import sys\n"
        "from codegen.native.jit import KernelSignature, Param, compile_kernel\n"
        "source = 'def kernel(begin, end, x):\\n    for i in range(begin, min(end, 7)):\\n        x[i] = exp(x[i])\\n'\n"
        "compile_kernel(source, KernelSignature((Param('x', 'float32', 4),)))\n"
        "assert 'llvmlite' in sys.modules and 'numba' not in sys.modules\n"
        "source = source.replace('min(end, 7)', 'end, begin + 1')\n"
        "compile_kernel(source, KernelSignature((Param('x', 'float32', 4),)))\n"
        "assert 'numba' in sys.modules\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, env=env)


def test_source_of_more_python_than_kernels_have_is_numbas(cache: Path) -> None:
    source = (
        "def kernel(begin, end, x):\n    for i in range(begin, end):\n"
        "        t = (1.5, 2.5, 3.5)\n        x[i] = len(t) + round(t[0])\n"
    )
    compiled = compile_kernel(source, KernelSignature((Param("x", "float64", 8),)))
    x = np.zeros(2)
    run(compiled, 0, 2, x)
    assert x.tolist() == [5, 5]


@pytest.mark.parametrize(
    ("given", "sizes"),
    [("32, 40, 32", ()), ("end, 40, 32", (3,)), ("end, 40, end", (31, 32)), ("end, end, end", (29, 39, 31))],
)
def test_a_short_pipeline_gives_the_same_bits(given: str, sizes: tuple[int, ...], cache: Path) -> None:
    """Blocks of f32 take it, also those whose sizes are found out at run time; what is converted does not, nor other steps."""
    target = Target.named("avx2")
    outs = []
    source, signature = product(40)
    source = source.replace("32, 40, 32", given)
    functions = _functions(source, signature, target)
    ((name, function),) = functions.items()
    assert function.is_written_out
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(32 * 32).astype(np.float32), rng.standard_normal(64 * 40).astype(np.float32)
    left = iter(sizes)
    m, n, k = (next(left) if x == "end" else int(x) for x in given.split(", "))
    for short in (False, True):
        loaded = LoadedObject(library_object(function.text(), target, short), target)
        c = np.zeros((32, 40), np.float32)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3, *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64] * 3)
        kind(loaded.address(name))(m, n, k, a.ctypes.data, 0, 32, b.ctypes.data, 0, 64, c.ctypes.data, 0, 40)
        outs.append(c)
    want = np.zeros((32, 40), np.float32)
    want[:m, :n] = a.reshape(32, 32)[:m, :k] @ b[: 32 * 40].reshape(32, 40)[:k, :n]
    np.testing.assert_allclose(outs[0], want, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(*outs)
    narrow = KernelSignature((Param("a", "float16"), Param("b", "float16"), Param("c", "float32")))
    others = [(source, narrow), (source.replace("a, 0, 32", "a, 0, end"), signature)]
    assert not any(f.is_written_out for x in others for f in _functions(*x, target).values())


def _blocks(m: int, n: int, k: int, left: int, c: int, *levels: int) -> tuple[Any, ...]:
    """The arguments of a `gemm_block` of rows of A that are `left` elements apart, and rows of C that are `c` apart."""
    return m, n, k, "a", 0, left, 1, "b", 0, 64 * k + 64, 64, "c", 0, c, False, 64, *levels


def test_a_known_part_of_a_vector_stays_known_where_columns_are_few(cache: Path) -> None:
    """A product of 17 columns took twice as long by code for any number of lanes that are left."""
    signature = KernelSignature(tuple(Param(x, "float32", 4) for x in "abc"))
    names = set()
    for columns in (17, 18):
        text = ", ".join(map(str, _blocks(34, columns, 64, 64, columns)))
        source = f"def kernel(begin, end, a, b, c):\n    for t in range(begin, end):\n        gemm_block({text})\n"
        names |= set(_functions(source, signature, Target.named("avx512")))
    assert len(names) == 2


@pytest.mark.parametrize(
    "calls",
    [
        [_blocks(56, 128, 64, 70, 130), _blocks(28, 192, 192, 200, 192), _blocks(34, 448, 68, 68, 448)],
        [_blocks(34, 48, 64, 64, 48), _blocks(50, 48, 100, 101, 56)],
        [_blocks(56, 312, 32, 32, 312), _blocks(92, 311, 36, 40, 320)],
        [_blocks(34, 64, 3, 40, 64, 4, 5, 192), _blocks(34, 64, 3, 31, 80, 4, 9, 192)],
        [_blocks(34, 64, 3, 40, 64, 12, 5, 192, 3, 2, 64), _blocks(34, 64, 3, 31, 80, 10, 9, 192, 3, 1, 70)],
    ],
    ids=["whole panels", "part of one", "masks", "windows", "windows of channels"],
)
def test_blocks_of_several_sizes_are_one_function(calls: list[tuple[Any, ...]], cache: Path) -> None:
    """How many blocks of rows, panels and steps there are, and how far apart rows lie, comes with the call; sums stay right."""
    signature = KernelSignature(tuple(Param(x, "float32", 4) for x in "abc"))
    rng = np.random.default_rng(0)
    names = set()
    for call in calls:
        text = ", ".join(map(str, call))
        source = f"def kernel(begin, end, a, b, c):\n    for t in range(begin, end):\n        gemm_block({text})\n"
        names |= set(_functions(source, signature, Target.named("avx512")))
        a, b = (rng.standard_normal(size).astype(np.float32) for size in (40_000, 120_000))
        c, exact = np.full(60_000, 7, np.float32), np.full(60_000, 7.0)
        run(compile_kernel(source, signature), 0, 1, a, b, c)
        arrays = {"a": a.astype(np.float64), "b": b.astype(np.float64), "c": exact}
        gemm_block(*(arrays.get(x, x) for x in call))
        np.testing.assert_allclose(c, exact, rtol=1e-4, atol=1e-3)
    assert len(names) == 1


@pytest.mark.parametrize("rows", [1, 4, 6, 14])
def test_rows_of_one_kind_are_walked_through_in_blocks_of_the_same_heights(rows: int) -> None:
    for m in range(1, 200):
        like = blocks.alike_rows(m, rows)
        kinds = [[height for height, *_ in blocks._bands(x, rows)] for x in (m, like)]
        assert kinds[0] == kinds[1], (m, like)
        assert like == blocks.alike_rows(like, rows) and (like > rows) == (m > rows)


@pytest.mark.parametrize(("panel", "lanes"), [(64, 16), (32, 16), (16, 16), (8, 8)])
def test_columns_of_one_kind_leave_as_many_vectors_and_masks(panel: int, lanes: int) -> None:
    for n in range(1, 400):
        like = blocks.alike_columns(n, panel, lanes)
        kinds = [(min(x // panel, 2), -(-(x % panel) // lanes), x % lanes == 0) for x in (n, like)]
        assert kinds[0] == kinds[1], (n, like)


@pytest.mark.parametrize(
    ("levels", "functions"), [((), 0), ((1, 0, 0), 0), ((2, 8, 128), 1), (("int64(1)", "int64(8)", "int64(128)"), 1)]
)
def test_a_small_block_that_one_call_repeats_is_a_function(levels: tuple[int | str, ...], functions: int) -> None:
    """Kernels of dilated convolutions held each of their blocks as thousands of lines in line, as often as they call it."""
    call = ", ".join(map(str, (16, 16, 8, "a", 0, 16, 1, "b", "{}", 128, 16, "c", 0, 16, False, 16, *levels)))
    source = "def kernel(begin, end, a, b, c):\n    for t in range(begin, end):\n"
    source += "".join(f"        gemm_block({call.format(at)})\n" for at in (0, 256))
    signature, found = KernelSignature(tuple(Param(x, "float32") for x in "abc")), Functions()
    text = str(lower(source, "<kernel>", signature, "entry", Target.named("avx512"), found, parse(source)))
    assert (len(found), text.count("call void @tilewright_lib_")) == (functions, 2 * functions)


def test_transposes_of_rows_of_several_lengths_are_one_function(cache: Path) -> None:
    signature = KernelSignature(tuple(Param(x, "float32", 4) for x in "xy"))
    names = set()
    for cols, length in ((168, 168), (200, 231), (72, 72)):
        source = f"def kernel(begin, end, x, y):\n    transpose(64, {cols}, x, 0, {length}, y, 0, 64)\n"
        names |= set(_functions(source, signature, Target.named("avx512")))
        x, y = np.arange(64 * 256, dtype=np.float32), np.full(64 * 256, -1, np.float32)
        run(compile_kernel(source, signature), 0, 1, x, y)
        want = np.full_like(y, -1)
        want[: cols * 64] = x[: 64 * length].reshape(64, length)[:, :cols].T.ravel()
        np.testing.assert_array_equal(y, want)
    assert len(names) == 1


@pytest.mark.parametrize(
    ("given", "written_out"),
    [("32, 40, 4", True), ("end, 40, 4", False), ("32, end, 4", False), ("end, 40, 16", True), ("end, 40, end", True)],
)
def test_few_steps_of_k_over_rows_that_are_counted_take_the_whole_pipeline(given: str, written_out: bool) -> None:
    """All steps of k are written out in the loop over the rows, which the short pipeline would leave as it is."""
    source, signature = product(40)
    (function,) = _functions(source.replace("32, 40, 32", given), signature, Target.named("avx2")).values()
    assert function.is_written_out is written_out


def _functions(source: str, signature: KernelSignature, target: Target) -> Functions:
    functions: Functions = {}
    lower(source, "<kernel>", signature, "entry", target, functions, parse(source))
    assert functions
    return functions


@pytest.mark.parametrize(
    ("line", "straight"),
    [
        ("y[0] = select(lt(x[0], float32(0.0)), exp(x[1]), divide(x[1], y[0]))", True),
        ("y[t] = x[0]", False),
        ("y[0] = x[0]\n        for i in range(9):\n            y[i] = x[0]", False),
        ("while y[0] < x[0]:\n            y[0] = add(y[0], y[0])", False),
        ("transpose(8, 8, x, 0, 8, y, 0, 8)", False),
    ],
)
def test_code_without_loops_takes_one_pipeline_and_gives_the_same_bits(line: str, straight: bool) -> None:
    source = f"def kernel(begin, end, x, y):\n    for t in range(begin, end):\n        {line}\n"
    kernel, target = parse(source), Target.named("avx2")
    assert is_straight(kernel) == straight
    if not straight:
        return
    signature = KernelSignature((Param("x", "float32", 4), Param("y", "float32", 4)))
    entries = []
    for short in (False, True):
        module = lower(source, "<kernel>", signature, "entry", target, None, kernel)
        optimise(module, target, short)
        entries.append(LoadedObject(emit_object(module, target), target))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    for first, second in ((-1, 0.3), (2, 0.7), (0, -3), (np.nan, 1), (-1, np.inf), (1, np.inf)):
        found = []
        for entry in entries:
            x, y = np.array([first, second], np.float32), np.array([0.1], np.float32)
            table = np.array([x.ctypes.data, y.ctypes.data])
            kind(entry.address("entry"))(0, 1, table.ctypes.data, None)
            found.append(y.view(np.int32))
        np.testing.assert_array_equal(*found)


def test_a_brief_kernel_is_vectorised_as_any_other_and_its_loops_are_written_out_once() -> None:
    source = (
        "def kernel(begin, end, x, y):\n    for t in range(begin, end):\n        y[t] = divide(x[t], y[t])\n"
        "    for i in range(begin + 1, end):\n        y[i] = multiply(y[i - 1], x[i])\n"
    )
    params, target = (Param("x", "float32", 4), Param("y", "float32", 4)), Target.named("avx2")
    usual, brief = KernelSignature(params), KernelSignature(params, is_brief=True)
    assert jit.kernel_key(source, usual, target) != jit.kernel_key(source, brief, target)
    texts = [kernel_ir(source, s, target) for s in (usual, brief)]
    assert all("store <8 x float>" in text for text in texts)
    several, few = (text.count("store float") for text in texts)
    assert several > few == 2  # what the vectors leave over, and the chain
    x = np.linspace(0.5, 1.5, 101, dtype=np.float32)
    made = [np.ones_like(x), np.ones_like(x)]
    for signature, y in zip((usual, brief), made, strict=True):
        run(compile_kernel(source, signature), 0, x.size, x, y)
    np.testing.assert_array_equal(*made)
    np.testing.assert_allclose(made[0], x[0] * np.cumprod(np.append(1, x[1:])), rtol=1e-5)


def test_what_a_call_runs_once_for_microseconds_is_brief() -> None:
    text = """func.func @main(%x: tensor<64xf32>, %y: tensor<2048x4096xf32>) -> (tensor<64xf32>, tensor<2048x4096xf32>) {
      %0 = stablehlo.exponential %x : tensor<64xf32>
      %1 = stablehlo.exponential %y : tensor<2048x4096xf32>
      return %0, %1 : tensor<64xf32>, tensor<2048x4096xf32> }"""
    made = codegen.compile(hlo.parse(text))
    assert {k.buffers[0].size_bytes > 1000: k.compiled.signature.is_brief for k in made.kernels} == {False: True, True: False}
