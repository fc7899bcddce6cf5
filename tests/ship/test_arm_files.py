"""Whole programs for 64-bit Arm: libraries and C that a cross compiler links, run under an emulator."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import codegen
import hlo
import tiling
from codegen.c.compile import flags
from codegen.remembered.machine import machine_for
from codegen.ship.library import c_sources, shared_library
from codegen.ship.save import plan_for
from codegen.ship.targets import file_target
from codegen.target import Target
from tests.emulated import COMPILER, EMULATOR, needs_emulator
from tests.ship.shipping import PROGRAMS
from tests.ship.test_c_library import PROGRAM, close, results_of, run

# Products of bytes of all signs and one of floats, with rests of rows, columns and steps.
PRODUCTS = """func.func @main(
    %a: tensor<37x70xi8>, %b: tensor<70x45xi8>, %u: tensor<70x45xui8>, %x: tensor<37x70xf32>, %w: tensor<70x45xf32>
  ) -> (tensor<37x45xi32>, tensor<37x45xi32>, tensor<37x45xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<37x70xi8>, tensor<70x45xi8>) -> tensor<37x45xi32>
  %1 = stablehlo.dot_general %a, %u, contracting_dims = [1] x [0] : (tensor<37x70xi8>, tensor<70x45xui8>) -> tensor<37x45xi32>
  %t = stablehlo.tanh %x : tensor<37x70xf32>
  %2 = stablehlo.dot_general %t, %w, contracting_dims = [1] x [0] : (tensor<37x70xf32>, tensor<70x45xf32>) -> tensor<37x45xf32>
  return %0, %1, %2 : tensor<37x45xi32>, tensor<37x45xi32>, tensor<37x45xf32>
}"""
DOTS = {"aarch64": set(), "aarch64-dotprod": {"sdot", "udot"}, "aarch64-i8mm": {"smmla", "usmmla"}}


def instructions(path: Path) -> set[str]:
    """The instructions for products of bytes in a library's code."""
    text = subprocess.run([str(COMPILER).replace("-gcc", "-objdump"), "-d", path], capture_output=True, text=True, check=True)
    return set(re.findall(r"\b([su]dot|usdot|sudot|[su]mmla|usmmla)\b", text.stdout))


@needs_emulator
@pytest.mark.parametrize("target", DOTS)
def test_a_library_runs_on_the_cpu_that_it_is_for(target: str, tmp_path: Path) -> None:
    """LLVM makes the code: four threads call it at once."""
    executable = codegen.compile(hlo.parse(PRODUCTS))
    (library, _) = shared_library(executable, tmp_path / "libmodel.so", target, compiler=[str(COMPILER)])
    found = instructions(library)
    assert found <= DOTS[target] and bool(found) == bool(DOTS[target])
    (tmp_path / "main.c").write_text(PROGRAM)
    run([COMPILER, "main.c", "-o", "main", "-L.", "-lmodel", "-pthread", "-Wl,-rpath,$ORIGIN"], tmp_path)
    emulator = [EMULATOR, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={tmp_path}"]
    close(results_of(executable, [*emulator, "./main"], tmp_path), executable)


@needs_emulator
@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["neon", "sve512"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_on_arm(name: str, vectors: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SVE's registers, which no target of files has, all that kernels do with vectors of known length goes through them."""
    chosen = file_target("aarch64-i8mm")
    if vectors == "sve512":
        sve = Target.from_features(chosen.target.triple, "generic", "+neon,+sve", sve_bytes=64)
        chosen = replace(chosen, target=sve)
    monkeypatch.setattr("codegen.ship.library.file_target", lambda _: chosen)
    executable = codegen.compile(hlo.load(PROGRAMS[name]))
    shared_library(executable, tmp_path / "libmodel.so", "aarch64", compiler=[str(COMPILER)])
    (tmp_path / "main.c").write_text(PROGRAM)
    run([COMPILER, "-DTURNS=1", "main.c", "-o", "main", "-L.", "-lmodel", "-pthread"], tmp_path)
    cpu = "max,sve512=on" if vectors == "sve512" else "max,sve=off"
    emulator = [EMULATOR, "-cpu", cpu, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={tmp_path}"]
    close(results_of(executable, [*emulator, "./main"], tmp_path), executable)


@needs_emulator
@pytest.mark.parametrize("target", ["aarch64-dotprod", "aarch64-i8mm"])
@pytest.mark.parametrize("is_told", [True, False])
def test_c_uses_products_of_bytes_where_the_compiler_may(is_told: bool, target: str, tmp_path: Path) -> None:
    executable = codegen.compile(hlo.parse(PRODUCTS))
    c_sources(executable, tmp_path / "model", target)
    (tmp_path / "main.c").write_text(PROGRAM)
    own = [f for f in flags(file_target(target).target) if f.startswith("-m")] if is_told else []
    sources = sorted((tmp_path / "model").glob("*.c"))
    more = ["-std=gnu11", "-O1", "-static", "-ffp-contract=off", "-fwrapv", "-w", "-I", "model"]
    run([COMPILER, *more, *own, "main.c", *sources, "-o", "main", "-lm", "-pthread"], tmp_path)
    found = instructions(tmp_path / "main")
    assert found <= DOTS[target] and bool(found) is is_told
    close(results_of(executable, [EMULATOR, "./main"], tmp_path), executable)


def test_a_plan_is_made_again_for_other_products_of_bytes() -> None:
    """All have NEON's vectors: a plan with products of matrices was taken for CPUs without them."""
    made = tiling.plan(hlo.parse(PRODUCTS), machine=machine_for(file_target("aarch64-i8mm").target, tiling.Machine()))
    for name, products in (("aarch64", 1), ("aarch64-dotprod", 4), ("aarch64-i8mm", 8)):
        plan = plan_for(made, file_target(name))
        assert plan.machine.byte_products == products and (plan is made) is (products == 8)


def test_names_of_arm_targets() -> None:
    assert [file_target(n).features for n in DOTS] == [("asimd",), ("asimd", "asimddp"), ("asimd", "asimddp", "i8mm")]
    assert [file_target(n).target.byte_products for n in DOTS] == [1, 4, 8]
    assert flags(file_target("aarch64-dotprod").target)[-1] == "-march=armv8.2-a+dotprod"
    assert not any(f.startswith("-m") for f in flags(file_target("aarch64").target))
