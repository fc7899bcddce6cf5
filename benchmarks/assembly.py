"""The inner loops of products for CPUs that need not be this one: instructions, registers, and cycles by LLVM's models of them.

    python -m benchmarks.assembly                      what each loop holds, for all CPUs
    python -m benchmarks.assembly --mca llvm-mca-19    and the cycles of a turn that llvm-mca counts, beside its limit
    python -m benchmarks.assembly --show neoverse-n1 "i8 x i8"       the loop itself

A loop's limit are the cycles of its multiply-adds alone, by the same model. What a loop waits for beyond it is loads, broadcasts,
moves, or too few instructions that begin in a cycle. Caches are not in the model: all loads hit the first one.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from codegen.lib.micro_kernels.contract import micro_shape
from codegen.native.jit import kernel_assembly
from codegen.native.signature import KernelSignature, Param
from codegen.target import Target

__all__ = ["CPUS", "KERNELS", "Loop", "assembly_of", "cycles", "main_loop"]

_LINUX = "aarch64-unknown-linux-gnu"
_MULTIPLIES = re.compile(r"(?:fmla|fmls|fmad|[su]dot|usdot|sudot|[us]?mlal2?|mla|[su]mull2?|(?:us|[us])mmla|[su]adalp)$")


CPUS = {
    "cortex-a72": Target.from_features(_LINUX, "cortex-a72", "+neon"),
    "cortex-a55": Target.from_features(_LINUX, "cortex-a55", "+neon,+dotprod"),
    "neoverse-n1": Target.from_features(_LINUX, "neoverse-n1", "+neon,+dotprod"),
    "neoverse-v1": Target.from_features(_LINUX, "neoverse-v1", "+neon,+dotprod,+i8mm"),
    "apple-m1": Target.from_features(_LINUX, "apple-m1", "+neon,+dotprod"),
    "neoverse-v1 SVE": Target.from_features(_LINUX, "neoverse-v1", "+neon,+dotprod,+i8mm,+sve", sve_bytes=32),
    "a64fx SVE": Target.from_features(_LINUX, "a64fx", "+neon,+sve", sve_bytes=64),
}
"""Targets; the CPU is named as llvm-mca does."""

KERNELS = {
    "f32": ("float32",) * 3,
    "f64": ("float64",) * 3,
    "f16": ("float16",) * 3,
    "bf16": ("bfloat16",) * 3,
    "i8 x i8": ("int8", "int8", "int32"),
    "u8 x u8": ("uint8", "uint8", "int32"),
    "u8 x i8": ("uint8", "int8", "int32"),
    "i8 x u8": ("int8", "uint8", "int32"),
}
"""Element types of the factors and of the result."""


@dataclass(frozen=True)
class Loop:
    """The instructions of an innermost loop, in order.

    >>> Loop(("ldr q1, [x0], #16", "fmla v0.4s, v1.4s, v2.s[0]", "b.ne .LBB0_1")).registers
    3
    """

    instructions: tuple[str, ...]

    def named(self, pattern: str) -> list[str]:
        """The instructions whose mnemonics match a pattern from their beginning to their end."""
        return [x for x in self.instructions if re.fullmatch(pattern, x.split()[0])]

    @property
    def multiplies(self) -> list[str]:
        """The multiply-adds, and the halves of those that take two instructions."""
        return [x for x in self.instructions if _MULTIPLIES.match(x.split()[0])]

    @property
    def spills(self) -> list[str]:
        """What goes to the stack, or comes from there."""
        return [x for x in self.instructions if "[sp" in x]

    @property
    def registers(self) -> int:
        """How many vector registers are in use."""
        return len({n for x in self.instructions for n in re.findall(r"\b[vqdshz](\d+)\b", x.partition(" ")[2])})


def assembly_of(kernel: str, target: Target) -> str:
    """The assembly of a product of 96 x 256 by 256 x 96, whose right factor lies in panels."""
    kinds = KERNELS[kernel]
    if kinds[2] == "int32":
        panel = 2 * target.lanes(4)
        routine = "gemm_mmla" if target.byte_matrices else "gemm_bytes"
        call = f"{routine}(96, 96, 256, a, 0, 256, b, 0, {256 * panel}, c, 0, 96, {panel})"
    else:
        panel = micro_shape(target, 8 if kinds[2] == "float64" else 4).panel
        call = f"gemm_block(96, 96, 256, a, 0, 256, 1, b, 0, {256 * panel}, {panel}, c, 0, 96, False, {panel})"
    params = tuple(Param(name, kind, 1) for name, kind in zip("abc", kinds, strict=True))
    return kernel_assembly(f"def kernel(begin, end, a, b, c):\n    {call}\n", KernelSignature(params), target)


def main_loop(text: str) -> Loop:
    """The innermost loop with most multiply-adds. Raises ValueError for code that has none.

    >>> main_loop(".LBB0_1:\\n fmla v0.4s, v1.4s, v2.4s\\n b.ne .LBB0_1\\n").instructions
    ('fmla v0.4s, v1.4s, v2.4s', 'b.ne .LBB0_1')
    """
    found: list[Loop] = []
    label, inside = "", list[str]()
    for line in text.splitlines():
        words = line.split("//")[0].split()
        if not words or (words[0].startswith(".") and not words[0].endswith(":")):
            continue
        if words[0].endswith(":"):
            label, inside = words[0][:-1], []
            continue
        inside.append(" ".join(words))
        if words[0].startswith(("b.", "cbnz", "cbz", "tbnz")) and words[-1] == label:
            found.append(Loop(tuple(inside)))
    loops = [x for x in found if x.multiplies]
    if not loops:
        raise ValueError(f"expected a loop with multiply-adds, found {len(found)} loops and none in them")
    return max(loops, key=lambda x: len(x.multiplies))


def cycles(instructions: Sequence[str], cpu: str, mca: str, features: str = "") -> float:
    """The cycles of a turn of a loop, in the steady state, that `mca` counts. Raises RuntimeError with what it says."""
    turns = 200
    text = "\n".join(instructions)
    command = [mca, "-mtriple=aarch64", f"-mcpu={cpu}", f"-mattr={features}", f"-iterations={turns}", "-instruction-info=false"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    found = re.search(r"^Total Cycles:\s+(\d+)", done.stdout, re.MULTILINE)
    if done.returncode or found is None:
        raise RuntimeError(f"{mca} failed:\n{done.stderr[:2000]}")
    return int(found[1]) / turns


def _row(cpu: str, kernel: str, mca: str | None) -> str:
    target = CPUS[cpu]
    loop = main_loop(assembly_of(kernel, target))
    others = len(loop.instructions) - len(loop.multiplies)
    cells = [cpu, kernel, str(len(loop.multiplies)), str(others), str(loop.registers), str(len(loop.spills))]
    if mca:
        turn = cycles(loop.instructions, target.cpu, mca, target.features)
        least = cycles(loop.multiplies, target.cpu, mca, target.features)
        cells += [f"{turn:.1f}", f"{least:.1f}", f"{least / turn:.0%}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description="Inner loops of products for Arm CPUs")
    parser.add_argument("--mca", help="llvm-mca, which counts cycles by LLVM's models")
    parser.add_argument("--show", nargs=2, metavar=("CPU", "KERNEL"), help="print this loop")
    given = parser.parse_args()
    if given.show:
        cpu, kernel = given.show
        print("\n".join(main_loop(assembly_of(kernel, CPUS[cpu])).instructions))
        return
    if given.mca and not shutil.which(given.mca):
        sys.exit(f"{given.mca}: not found on the path")
    names = ["CPU", "factors", "multiply-adds", "others", "registers", "spills"]
    names += ["cycles", "limit", "of limit"] if given.mca else []
    print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|")
    for cpu in CPUS:
        for kernel in KERNELS:
            print(_row(cpu, kernel, given.mca))


if __name__ == "__main__":
    main()
