"""The CPUs that files are made for, by name, and what a CPU must have to run each one's code.

Code is LLVM's for Linux, and C's where this LLVM knows no such CPU.

    host          this CPU, with all that LLVM knows of it         x86-64-v2, -v3, -v4   the levels of the x86-64 psABI
    aarch64       64-bit Arm with its vectors                      x86-64                every x86-64 CPU
    aarch64-dotprod, aarch64-i8mm    the same with dot products of bytes, and with those of mixed signs (Linux only)
    …-macos, …-windows    the same CPUs on other systems than Linux (through C, which Zig compiles and links)

Features are named as Linux names them in `/proc/cpuinfo`: whoever loads a file has no LLVM to ask.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.native.passes import is_made_by_llvm
from codegen.ship.errors import ExportError
from codegen.target import NAMED_TARGETS, Target, default_target, host_target, is_macos

__all__ = ["NAMES", "FileTarget", "default_name", "file_target"]

_V2 = "+cmov,+cx16,+cx8,+fxsr,+mmx,+popcnt,+sahf,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3"
_LEVELS = {"x86-64": "baseline", "x86-64-v3": "avx2", "x86-64-v4": "avx512"}
_CPUS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")
_ARMS = {"aarch64": "+neon", "aarch64-dotprod": "+neon,+dotprod", "aarch64-i8mm": "+neon,+dotprod,+i8mm"}
_SYSTEMS = {"macos": "apple-macos11", "windows": "pc-windows-gnu"}
NAMES = ("host", *dict.fromkeys((*_CPUS, *_ARMS)), *(f"{cpu}-{system}" for system in _SYSTEMS for cpu in _CPUS))

# LLVM's name of what compilers use by themselves -> Linux's name. What is not here makes no code that is not asked for.
_LINUX = {
    "cmov": "cmov", "cx8": "cx8", "cx16": "cx16", "fxsr": "fxsr", "mmx": "mmx", "popcnt": "popcnt", "sahf": "lahf_lm",
    "sse": "sse", "sse2": "sse2", "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "sse4a": "sse4a",
    "avx": "avx", "avx2": "avx2", "f16c": "f16c", "fma": "fma", "fma4": "fma4", "xop": "xop", "bmi": "bmi1", "bmi2": "bmi2",
    "tbm": "tbm", "lzcnt": "abm", "movbe": "movbe", "adx": "adx", "gfni": "gfni", "pclmul": "pclmulqdq",
    "vpclmulqdq": "vpclmulqdq", "avxvnni": "avx_vnni", "avxifma": "avx_ifma", "avx512f": "avx512f", "avx512bw": "avx512bw",
    "avx512cd": "avx512cd", "avx512dq": "avx512dq", "avx512vl": "avx512vl", "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg", "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16", "avx512vpopcntdq": "avx512_vpopcntdq", "avx512vp2intersect": "avx512_vp2intersect",
    "amx-tile": "amx_tile", "amx-int8": "amx_int8", "amx-bf16": "amx_bf16", "xsave": "xsave", "prfchw": "3dnowprefetch",
}  # fmt: skip
_ARM_LINUX = {
    "neon": "asimd", "fullfp16": "asimdhp", "dotprod": "asimddp", "i8mm": "i8mm", "bf16": "bf16", "sve": "sve", "sve2": "sve2",
}  # fmt: skip


@dataclass(frozen=True)
class FileTarget:
    """A CPU that code is made for: its name, LLVM's target, the features that it needs, whether its code goes through C."""

    name: str
    target: Target
    features: tuple[str, ...]
    through_c: bool = False

    @property
    def architecture(self) -> str:
        """What `platform.machine()` says there."""
        return "aarch64" if self.target.triple.startswith(("aarch64", "arm64")) else self.target.triple.partition("-")[0]

    @property
    def system(self) -> str:
        """What `platform.system()` says there."""
        return "Darwin" if is_macos(self.target.triple) else "Windows" if "windows" in self.target.triple else "Linux"


def default_name() -> str:
    """The target of files that name none: what kernels are compiled for here (TILEWRIGHT_TARGET), by the name in files."""
    target = default_target()
    return next((n for n, own in _LEVELS.items() if target == Target.named(own)), "host") if target != host_target() else "host"


def file_target(name: str) -> FileTarget:
    """The target of a name. Raises ExportError for another one, and for code of another architecture that LLVM here cannot make.

    >>> file_target("aarch64").target.vector_bytes, file_target("aarch64-dotprod").features
    (16, ('asimd', 'asimddp'))
    """
    host = host_target()
    if name == "host":
        return FileTarget(name, host, _features(host))
    if name in _ARMS:
        target = Target.from_features("aarch64-unknown-linux-gnu", "generic", _ARMS[name])
        return FileTarget(name, target, _features(target), through_c=not is_made_by_llvm(target.triple))
    if name not in NAMES:
        raise ExportError(
            f"target {name!r}: expected one of host, {', '.join(_CPUS)}, these with -macos or -windows,"
            f" {' or '.join(x for x in _ARMS if x not in _CPUS)}"
        )
    cpu, _, system = name.rpartition("-")
    if system in _SYSTEMS:
        return _elsewhere(name, cpu, _SYSTEMS[system])
    if not host.triple.startswith("x86_64"):
        raise ExportError(f"target {name!r}: this machine ({host.triple.partition('-')[0]}) makes code for host and aarch64")
    made = Target.named(_LEVELS[name]) if name in _LEVELS else Target.from_features(host.triple, name, _V2)
    return FileTarget(name, made, _features(made))


def _elsewhere(name: str, cpu: str, system: str) -> FileTarget:
    """A CPU under another system."""
    if cpu == "aarch64":
        return FileTarget(name, Target.from_features(f"aarch64-{system}", "generic", "+neon"), ("asimd",), through_c=True)
    level, features = NAMED_TARGETS[_LEVELS[cpu]] if cpu in _LEVELS else (cpu, _V2)
    target = Target.from_features(f"x86_64-{system}", level, features)
    return FileTarget(name, target, _features(target), through_c=True)


def _features(target: Target) -> tuple[str, ...]:
    names = _LINUX if target.triple.startswith("x86_64") else _ARM_LINUX
    have = [f[1:] for f in target.features.split(",") if f.startswith("+")]
    return tuple(sorted({names[f] for f in have if f in names}))
