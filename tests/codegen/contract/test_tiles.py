"""Products by tile registers: what is emitted (anywhere), and what comes out (where the CPU has tiles)."""

from __future__ import annotations

import ctypes
import mmap
import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import codegen
import hlo
import tilewright_runtime
from codegen.launcher.launch import Plan, Step
from codegen.native.jit import compile_kernel, kernel_assembly
from codegen.native.signature import KernelSignature, Param
from codegen.remembered.machine import machine_for
from codegen.target import Target, default_target, host_target
from tests.codegen.contract.test_contractions import check, dot
from tests.ship.shipping import needs_linker
from tiling.machine import Machine

ON_X86 = pytest.mark.skipif(not host_target().triple.startswith("x86_64-unknown-linux"), reason="LLVM makes code for Linux here")
HAS_TILES = pytest.mark.skipif("amx-int8" not in default_target().tile_features, reason="this CPU has no tiles of bytes")
ROOT = Path(__file__).parents[3]
BYTES = {"i8": "int8", "ui8": "uint8"}
SIGNED = {"i8": "s", "ui8": "u"}

SOURCE = """
def kernel(begin, end, a, b, c, sizes):
    for t in range(begin, end):
        gemm_bytes({m}, {n}, {k}, a, 0, {row}, b, 0, {panel_stride}, c, 0, {ldc}, {panel})
"""


def signature(left: str = "i8", right: str = "i8") -> KernelSignature:
    names = ("a", BYTES[left]), ("b", BYTES[right]), ("c", "int32"), ("sizes", "int64")
    return KernelSignature(tuple(Param(name, kind, align=1) for name, kind in names))


def source(m: int, n: int, k: int, panel: int = 32, known: bool = True) -> str:
    sizes = (m, n, k) if known else ("sizes[0]", "sizes[1]", "sizes[2]")
    return SOURCE.format(m=sizes[0], n=sizes[1], k=sizes[2], row=k, panel_stride=k * panel, ldc=n, panel=panel)


@ON_X86
@pytest.mark.parametrize(("left", "right"), list(product(BYTES, BYTES)))
def test_every_sign_has_its_instruction_and_no_pass_for_an_offset(left: str, right: str) -> None:
    text = kernel_assembly(source(128, 128, 256), signature(left, right), Target.named("amx"))
    assert f"tdpb{SIGNED[left]}{SIGNED[right]}d" in text and "ldtilecfg" in text and "tilerelease" in text
    assert "syscall" in text, "Linux refuses tiles to whom has not asked"
    assert "vpdpbusd" in text, "where they are refused, vectors compute it"


@ON_X86
def test_other_targets_and_small_products_use_no_tiles() -> None:
    for target, (m, n, k) in (
        ("avx512vnni", (128, 128, 256)),
        ("avx2", (128, 128, 256)),
        ("amx", (2, 512, 512)),
        ("amx", (16, 16, 16)),
    ):
        text = kernel_assembly(source(m, n, k), signature(), Target.named(target))
        assert "tdpb" not in text and "ldtilecfg" not in text, (target, m, n, k)


def test_a_machine_has_the_tiles_of_its_target() -> None:
    machine = Machine(tile_products=1024, byte_products=4, vector_bytes=64)
    linux = "x86_64-unknown-linux-gnu"
    with_tiles = Target.from_features(linux, "sapphirerapids", "+avx512f,+avx512bw,+avx512vl,+avx512dq,+amx-tile,+amx-int8")
    assert machine_for(with_tiles, Machine()).tile_products == 1024
    assert machine_for(Target.from_features(linux, "x86-64-v3", "+avx2,+fma"), machine).tile_products == 1
    assert Target.from_features("x86_64-apple-darwin", "x", with_tiles.features).tile_products == 1, "there nothing asks for them"
    assert machine.products_per_lane(1) == 32 and machine.products_per_lane(2) == 16
    assert Machine(byte_products=4).products_per_lane(1) == 4 and Machine(byte_products=4).products_per_lane(2) == 1


def _packed(right: np.ndarray, panel: int) -> np.ndarray:
    """The right factor in panels of groups of four steps; garbage where there is no column."""
    k, n = right.shape
    out = np.full((-(-n // panel), k // 4, panel, 4), 77, right.dtype)
    for j in range(n):
        out[j // panel, :, j % panel, :] = right[:, j].reshape(-1, 4)
    return out.reshape(-1)


def _run(text: str, kinds: tuple[str, str], arrays: Sequence[np.ndarray]) -> None:
    addresses = np.array([x.ctypes.data for x in arrays], np.int64)
    Plan([Step(compile_kernel(text, signature(*kinds)), 1, (0, 1, 2, 3))]).run(addresses, 1)


SIZES = [
    (3, 32, 64), (16, 16, 64), (17, 33, 68), (31, 64, 128), (32, 32, 4), (33, 48, 60), (48, 17, 1028), (64, 96, 1024),
    (65, 40, 2048), (100, 20, 2052), (40, 31, 4100), (129, 130, 132),
    (40, 830, 2052),
]  # fmt: skip


@HAS_TILES
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_sums_are_exact_for_all_sizes_and_signs(seed: int, known: bool) -> None:
    """Rests of rows, columns and k, several runs of k, panels of one tile and of two, sizes that only the call knows."""
    rng, chosen = np.random.default_rng(seed), random.Random(seed)
    for m, n, k in SIZES:
        kinds = chosen.choice(list(BYTES)), chosen.choice(list(BYTES))
        panel = chosen.choice((16, 32))
        left, right = (
            rng.integers(np.iinfo(t).min, np.iinfo(t).max, shape, t, endpoint=True)
            for t, shape in ((BYTES[kinds[0]], (m, k)), (BYTES[kinds[1]], (k, n)))
        )
        out = np.full(m * n + 64, 123456, np.int32)
        _run(source(m, n, k, panel, known), kinds, (left, _packed(right, panel), out, np.array([m, n, k])))
        np.testing.assert_array_equal(out[: m * n].reshape(m, n), left.astype(np.int32) @ right.astype(np.int32), f"{m} {n} {k}")
        assert (out[m * n :] == 123456).all()


@HAS_TILES
def test_sums_wrap_at_32_bits() -> None:
    for kinds, x, y in ((("i8", "i8"), -128, -128), (("ui8", "ui8"), 255, 255), (("ui8", "i8"), 255, -128)):
        m, n, k = 35, 33, 1 << 18
        left, right = np.full((m, k), x, BYTES[kinds[0]]), np.full((k, n), y, BYTES[kinds[1]])
        out = np.zeros(m * n, np.int32)
        _run(source(m, n, k), kinds, (left, _packed(right, 32), out, np.zeros(3, np.int64)))
        assert set(out.tolist()) == {(x * y * k + (1 << 31)) % (1 << 32) - (1 << 31)}


@HAS_TILES
def test_nothing_is_touched_outside_of_the_operands() -> None:
    """Each operand ends where a page begins that nobody may read or write."""
    m, n, k, panel = 37, 45, 196, 32
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    held, arrays = [], []
    for content in (left.reshape(-1), _packed(right, panel), np.zeros(m * n, np.int32), np.zeros(3, np.int64)):
        pages = -(-content.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        room = mmap.mmap(-1, pages + mmap.PAGESIZE)
        end = ctypes.addressof(ctypes.c_char.from_buffer(room)) + pages
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        array = np.frombuffer(room, content.dtype, content.size, pages - content.nbytes)
        array[:] = content
        held.append(room)
        arrays.append(array)
    _run(source(m, n, k, panel), ("i8", "i8"), arrays)
    np.testing.assert_array_equal(arrays[2].reshape(m, n), left.astype(np.int32) @ right.astype(np.int32))


@HAS_TILES
@pytest.mark.parametrize("seed", range(2))
def test_programs_agree_with_the_evaluator(seed: int) -> None:
    chosen = random.Random(f"tiles {seed}")
    for _ in range(4):
        m, n, k = (chosen.randint(1, 150) for _ in range(3))
        types = chosen.choice(list(BYTES)), chosen.choice(list(BYTES)), "i32"
        check(dot(m, n, k, types, chosen.choice(("mk", "km")), chosen.choice(("kn", "nk")), chosen.choice((0, 3))), seed)


RUN = """
import numpy as np, codegen, hlo
from tests.codegen.contract.test_contractions import dot
def product():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (70, 130)).astype(np.int8), rng.integers(-128, 128, (130, 90)).astype(np.int8)
    (found,) = codegen.compile(hlo.parse(dot(70, 90, 130, ("i8", "i8", "i32"))))(a, b)
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))
"""

REFUSED = """
import ctypes
class Stack(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))
room = ctypes.create_string_buffer(8192)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.sigaltstack(ctypes.byref(Stack(ctypes.addressof(room), 0, 8192)), None) == 0
assert libc.syscall(158, 0x1023, ctypes.c_long(18)) == -1, "a handler's stack is too small for the state of tiles"
product()
"""

FORKED = """
import os
product()
child = os.fork()
if not child:
    product()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@HAS_TILES
@pytest.mark.parametrize("body", [REFUSED, FORKED], ids=["refused", "forked"])
def test_processes(body: str) -> None:
    """A process that Linux refuses tiles computes by vectors; one that is forked may use them as its parent may."""
    done = subprocess.run([sys.executable, "-c", RUN + body], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


LOADED = """
import sys, numpy as np, tilewright_runtime
a, b, expected = (np.load(f"{sys.argv[1]}/{name}.npy") for name in ("a", "b", "c"))
(found,) = tilewright_runtime.load(f"{sys.argv[1]}/product.tw")(a, b)
np.testing.assert_array_equal(found, expected)
assert "codegen" not in sys.modules
"""


@HAS_TILES
@needs_linker
def test_files_ask_for_tiles_themselves_and_need_them(tmp_path: Path) -> None:
    executable = codegen.compile(hlo.parse(dot(70, 90, 130, ("ui8", "i8", "i32"))))
    executable.save(tmp_path / "product.tw")
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (70, 130)).astype(np.uint8), rng.integers(-128, 128, (130, 90)).astype(np.int8)
    for name, array in (("a", a), ("b", b), ("c", a.astype(np.int32) @ b.astype(np.int32))):
        np.save(tmp_path / f"{name}.npy", array)
    command = [sys.executable, "-c", LOADED, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        there = tilewright_runtime.machine.features() - {"amx_tile", "amx_int8", "amx_bf16"}
        patch.setattr("tilewright_runtime.machine.features", lambda: there)
        with pytest.raises(tilewright_runtime.FileError, match="amx_int8"):
            tilewright_runtime.load(tmp_path / "product.tw")
