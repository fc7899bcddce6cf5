"""Products for 64-bit Arm: the loops that are emitted (anywhere), and what comes out (under an emulator)."""

from __future__ import annotations

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hlo
import tiling
from benchmarks.assembly import CPUS, assembly_of, main_loop
from codegen.lib.micro_kernels.contract import micro_shape
from codegen.native.jit import kernel_assembly
from codegen.native.signature import KernelSignature, Param
from codegen.remembered.machine import machine_for
from codegen.supports import supports
from codegen.target import Target
from tests.codegen.contract.test_contractions import dot
from tests.emulated import needs_emulator, run
from tests.pairs import fast_cover
from tiling.loops.ir import Contract
from tiling.machine import Machine

LINUX = "aarch64-unknown-linux-gnu"
TARGETS = {
    "neon": Target.from_features(LINUX, "generic", "+neon"),
    "dotprod": Target.from_features(LINUX, "generic", "+neon,+dotprod"),
    "i8mm": Target.from_features(LINUX, "generic", "+neon,+dotprod,+i8mm"),
    "sve256": Target.from_features(LINUX, "generic", "+neon,+sve", sve_bytes=32),
    "sve512": Target.from_features(LINUX, "generic", "+neon,+sve,+i8mm", sve_bytes=64),
}
SIGNS = list(itertools.product(("int8", "uint8"), repeat=2))


def emulated(target: str) -> str:
    """The emulator's CPU that has such registers."""
    return f"max,{target}=on" if target.startswith("sve") else "max,sve=off"


def named(signs: tuple[str, str]) -> str:
    """Two types of bytes as `KERNELS` names them."""
    return " x ".join(kind.replace("uint", "u").replace("int", "i") for kind in signs)


# ------------------------------------------------------------------ loops


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("cpu", ["generic", *(c for c in CPUS if "SVE" not in c)])
def test_floats_are_multiplied_by_a_lane_with_no_spill(cpu: str, name: str) -> None:
    """24 sums, four vectors of a row, and one load of each row's element: nothing is copied into all lanes."""
    loop = main_loop(assembly_of(name, CPUS.get(cpu, TARGETS["dotprod"])))
    assert not loop.spills and loop.registers <= 32
    assert not loop.named("dup|ins|fmov|movi") and not any("mov v" in x for x in loop.instructions)
    by_lane = [x for x in loop.multiplies if x.endswith("[0]")]
    assert len(loop.multiplies) % 24 == 0 and len(by_lane) >= 0.8 * len(loop.multiplies)
    loads = loop.named("ldp|ldr|ld1r|ldur")
    assert len(loads) <= 9 * len(loop.multiplies) / 24, "for each step two pairs of vectors and six elements"


@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("cpu", ["generic", "cortex-a55", "neoverse-n1", "apple-m1"])
def test_bytes_are_multiplied_by_four_of_a_lane_with_no_spill(cpu: str, signs: tuple[str, str]) -> None:
    loop = main_loop(assembly_of(named(signs), CPUS.get(cpu, TARGETS["dotprod"])))
    wanted = "sdot" if signs[1] == "int8" else "udot"
    assert {x.split()[0] for x in loop.multiplies} == {wanted}
    by_lane = [x for x in loop.multiplies if "4b[" in x]
    corrections = len(loop.multiplies) - len(by_lane)
    assert not loop.spills and len(by_lane) % 40 == 0, "ten rows of two vectors, two steps"
    assert corrections == 0, "the columns' sums are found once for all rows"
    assert len(loop.named("eor")) == (len(by_lane) // 4 if signs[0] != signs[1] else 0), "one for the eight bytes of a row"


@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("cpu", ["generic", "neoverse-v1"])
def test_rows_of_bytes_are_multiplied_by_columns(cpu: str, signs: tuple[str, str]) -> None:
    """Eight rows by eight columns, twice eight steps; mixed signs have their instruction, which no correction follows."""
    target = TARGETS["i8mm"] if cpu == "generic" else CPUS[cpu]
    loop = main_loop(assembly_of(named(signs), target))
    wanted = "usmmla" if signs[0] != signs[1] else "smmla" if signs[0] == "int8" else "ummla"
    assert {x.split()[0] for x in loop.multiplies} == {wanted} and len(loop.multiplies) == 32
    assert not loop.spills and not loop.named("eor")
    assert len(loop.named("zip[12]|mov|ldp|ldr")) <= 24, "a vector of each row, parted in two, and eight of columns"


def test_mixed_signs_are_not_corrected_where_an_instruction_takes_them() -> None:
    """In sums along memory, and in SVE's registers."""
    sizes = "32, 6, 256, a, 0, 256, b, 0, 256, c, 0, 6, 1, False"
    for left, right in (("int8", "uint8"), ("uint8", "int8")):
        params = (Param("a", left, 1), Param("b", right, 1), Param("c", "int32", 1))
        for target, wanted in (("i8mm", "usdot"), ("dotprod", "udot" if right == "uint8" else "sdot"), ("sve512", "usdot")):
            source = f"def kernel(begin, end, a, b, c):\n    gemm_dots({sizes})\n"
            loop = main_loop(kernel_assembly(source, KernelSignature(params), TARGETS[target]))
            assert {x.split()[0] for x in loop.multiplies} == {wanted}
            assert bool(loop.named("eor")) is (target == "dotprod")


@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("cpu", ["generic", "cortex-a72"])
def test_bytes_are_multiplied_to_16_bits_where_there_are_no_dot_products(cpu: str, signs: tuple[str, str]) -> None:
    """All were widened to 32 bits: 69 of 322 instructions of the loop moved sums to the stack and back."""
    target = TARGETS["neon"] if cpu == "generic" else CPUS[cpu]
    loop = main_loop(assembly_of(named(signs), target))
    s = "s" if signs[1] == "int8" else "u"
    rows = 5 if signs[0] == signs[1] else 4
    sums = 4 * rows + (4 if rows == 4 else 0)
    assert len(loop.named(f"{s}mull2?")) == len(loop.named(f"{s}adalp")) == sums and len(loop.multiplies) == 2 * sums
    assert not loop.spills and not loop.named("[us]?shll2?|[us]shr|shl|mla")


@pytest.mark.parametrize("name", ["f32", "f64", "i8 x i8", "u8 x u8"])
def test_vectors_of_known_length_fill_registers_of_sve(name: str) -> None:
    """LLVM takes vectors apart into NEON's where it is not told the length."""
    loop = main_loop(assembly_of(name, CPUS["a64fx SVE"]))
    assert not loop.spills and len(loop.multiplies) == (48 if name[0] == "f" else 24)
    assert all(x.split()[1].startswith("z") for x in loop.multiplies)
    assert len(loop.named("ld1rw|ld1rd")) == 12 and not loop.named("dup|mov|ins")


def test_registers_of_sve_are_as_long_as_is_said() -> None:
    for features, size in (("+neon", 32), ("+neon,+sve", 48)):
        with pytest.raises(ValueError, match=f"expected 16, 32, 64, 128 or 256 and a target with .sve, found {size}"):
            Target.from_features(LINUX, "generic", features, sve_bytes=size)
    assert TARGETS["sve512"].lanes(4) == 16 and TARGETS["neon"].sve_bytes == TARGETS["i8mm"].sve_bytes == 0


# ------------------------------------------------------------------ plans


def test_plans_know_what_a_target_sums_at_once() -> None:
    """Ten rows of two vectors lie in registers, or eight; with more products for each lane a product of bytes costs less."""
    module = hlo.parse(dot(160, 96, 512, ("i8", "i8", "i32")))
    seconds = {}
    chosen = {"neon": (1, "gemm_bytes", 10), "dotprod": (4, "gemm_bytes", 10), "i8mm": (8, "gemm_mmla", 8)}
    for name, (products, routine, rows) in chosen.items():
        machine = machine_for(TARGETS[name], Machine(cores=1))
        assert machine.byte_products == products and machine.vector_bytes == 16
        made = tiling.plan(module, machine=machine, supports=supports)
        (c,) = [s for f in made.fusions for p in f.schedule.phases for s in p.all_steps if isinstance(s, Contract)]
        assert c.kernel.routine == routine and (c.rows, c.columns) == (rows, 8)
        seconds[name] = made.fusions[-1].estimate.seconds
    assert seconds["i8mm"] < 0.8 * seconds["dotprod"] < 0.4 * seconds["neon"]


# ------------------------------------------------------------------ results


def _bytes(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """The least and the greatest number, and what lies beside them and in the middle."""
    info = np.iinfo(kind)
    middle = (int(info.min) + int(info.max)) // 2
    return rng.choice(np.array([info.min, info.max, info.min + 1, info.max - 1, middle, middle + 1], kind), shape)


def _panels(right: np.ndarray, panel: int, together: int) -> np.ndarray:
    """The right factor in panels of groups of steps; 77 where there is no column."""
    k, n = right.shape
    out = np.full((-(-n // panel), k // together, panel, together), 77, right.dtype)
    for j in range(n):
        out[j // panel, :, j % panel] = right[:, j].reshape(-1, together)
    return out.reshape(-1)


@needs_emulator
@pytest.mark.parametrize(("signs", "target", "known"), fast_cover(itertools.product(SIGNS, TARGETS, (True, False))))
def test_sums_of_bytes_are_exact(signs: tuple[str, str], target: str, known: bool, tmp_path: Path) -> None:
    """Rests of rows, of columns and of steps; each factor at its ends, where 16 bits do not hold a sum of two products."""
    rng = np.random.default_rng(7)
    t, panel = TARGETS[target], 2 * TARGETS[target].lanes(4)
    names = (*zip(("a", "b", "b8", "columns"), (signs[0], *[signs[1]] * 3), strict=True), ("sizes", "int64"), ("c", "int32"))
    signature = KernelSignature(tuple(Param(*x, 1) for x in names))
    for m, n, k in ((23, 21, 88), (3, 8, 8)) if known else ((23, 21, 88),):
        a, b = _bytes(signs[0], (m, k), rng), _bytes(signs[1], (k, n), rng)
        a[0], b[:, 0] = np.iinfo(signs[0]).min, np.iinfo(signs[1]).min
        a[1], b[:, 1] = np.iinfo(signs[0]).max, np.iinfo(signs[1]).max
        sizes = f"{m}, {n}, {k}" if known else "sizes[0], sizes[1], sizes[2]"
        odd = f"{m}, {n}, {k - 4}" if known else "sizes[0], sizes[1], sizes[3]"  # steps of four
        row = n + 2
        source = (
            "def kernel(begin, end, a, b, b8, columns, sizes, c):\n"
            f"    gemm_bytes({odd}, a, 0, {k}, b, 0, {panel * k}, c, 1, {row}, {panel})\n"
            f"    gemm_dots({sizes}, a, 0, {k}, columns, 0, {k}, c, {1 + m * row}, {row}, 1, False)\n"
            f"    gemm_mmla({sizes}, a, 0, {k}, b8, 0, {panel * k}, c, {1 + 2 * m * row}, {row}, {panel})\n"
        )
        c = np.full(1 + 3 * m * row, 5, np.int32)
        arrays = [a, _panels(b, panel, 4), _panels(b, panel, 8), np.ascontiguousarray(b.T), np.array([m, n, k, k - 4]), c]
        found = run(source, signature, t, arrays, tmp_path, emulated(target))
        expected = c.copy()
        expected[1:].reshape(3, m, row)[:, :, :n] = a.astype(np.int32) @ b.astype(np.int32)
        expected[1 : 1 + m * row].reshape(m, row)[:, :n] -= a[:, -4:].astype(np.int32) @ b[-4:].astype(np.int32)
        np.testing.assert_array_equal(found, expected)


@needs_emulator
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("target", ["neon", "sve256", "sve512"])
def test_sums_of_floats(target: str, kind: str, tmp_path: Path) -> None:
    """Rests of rows, columns and steps that are known and that are not; whole numbers exactly, others within roundings."""
    m, n, k = 23, 37, 45
    t, dtype = TARGETS[target], np.dtype(getattr(ml_dtypes, kind, kind))
    panel = micro_shape(t, max(4, dtype.itemsize), n).panel
    rng = np.random.default_rng(5)
    for known, whole in ((True, False), (False, True)):
        a, b = (rng.integers(-4, 5, s) if whole else rng.standard_normal(s) for s in ((m, k), (k, n)))
        a, b = a.astype(dtype), b.astype(dtype)
        sizes = f"{m}, {n}, {k}" if known else "sizes[0], sizes[1], sizes[2]"
        call = f"gemm_block({sizes}, a, 0, {k}, 1, b, 0, {panel * k}, {panel}, c, 0, {n}, False, {panel})"
        kinds = (("a", kind), ("b", kind), ("sizes", "int64"), ("c", kind))
        signature = KernelSignature(tuple(Param(*x, 1) for x in kinds))
        arrays = [a, _panels(b, panel, 1), np.array([m, n, k]), np.full((m, n), 5, dtype)]
        source = f"def kernel(begin, end, a, b, sizes, c):\n    {call}\n"
        found = run(source, signature, t, arrays, tmp_path, emulated(target)).astype(np.float64)
        expected = a.astype(np.float64) @ b.astype(np.float64)
        if whole:
            np.testing.assert_array_equal(found, expected.astype(dtype).astype(np.float64))
        else:
            rounding = float(ml_dtypes.finfo(dtype).eps)
            np.testing.assert_allclose(found, expected, rtol=rounding, atol=1e-5 if dtype.itemsize < 8 else 1e-13)
