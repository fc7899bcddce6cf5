"""What this machine can run: its architecture, its system, its CPU's features as Linux names them."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from collections.abc import Callable

__all__ = ["architecture", "default_threads", "features", "missing", "system"]


def architecture() -> str:
    """x86_64 or aarch64, however the system spells it."""
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())


def system() -> str:
    """Linux or Darwin."""
    return platform.system()


@functools.cache
def features() -> frozenset[str]:
    """The CPU's features; those of every 64-bit Arm CPU where the system does not list them."""
    found: set[str] = set()
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.lower().startswith(("flags", "features")):
                    found.update(line.partition(":")[2].split())
                    break
    except OSError:
        found = of_macos(_sysctl) if sys.platform == "darwin" else set()
    return frozenset(found or ({"asimd"} if architecture() == "aarch64" else ()))


# What macOS calls otherwise than Linux, in lower case; and its names of what 64-bit Arm may have.
_MACOS = {
    "sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "avx1.0": "avx", "lahf": "lahf_lm", "lzcnt": "abm",
    "prefetchw": "3dnowprefetch", "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
}  # fmt: skip
_MACOS_ARM = {
    "hw.optional.AdvSIMD": "asimd", "hw.optional.arm.FEAT_FP16": "asimdhp", "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_I8MM": "i8mm", "hw.optional.arm.FEAT_BF16": "bf16",
}  # fmt: skip


def of_macos(ask: Callable[[str], bytes]) -> set[str]:
    """The features by what `sysctl` answers for a name: text, a number, or nothing.

    >>> sorted(of_macos(lambda name: b"SSE3 AVX1.0\\0" if name == "machdep.cpu.features" else b""))
    ['avx', 'pni']
    """
    lists = ("machdep.cpu.features", "machdep.cpu.leaf7_features", "machdep.cpu.extfeatures")
    words = [w for name in lists for w in ask(name).rstrip(b"\0").decode("ascii", "replace").lower().split()]
    found = {_MACOS.get(w, w) for w in words}
    return found | {feature for name, feature in _MACOS_ARM.items() if any(ask(name))}


def _sysctl(name: str) -> bytes:
    size, function = ctypes.c_size_t(), ctypes.CDLL(None).sysctlbyname
    if function(name.encode(), None, ctypes.byref(size), None, ctypes.c_size_t()):
        return b""
    room = ctypes.create_string_buffer(size.value)
    return b"" if function(name.encode(), room, ctypes.byref(size), None, ctypes.c_size_t()) else room.raw[: size.value]


def missing(wanted: list[str]) -> list[str]:
    """Those of the wanted features that this CPU lacks."""
    return sorted(set(wanted) - features())


def default_threads() -> int:
    """TILEWRIGHT_NUM_THREADS, else the CPUs that this process may use. Raises ValueError for what is no number from 1 on."""
    wanted = os.environ.get("TILEWRIGHT_NUM_THREADS", "").strip()
    if wanted:
        if not wanted.isdecimal() or int(wanted) < 1:
            raise ValueError(f"TILEWRIGHT_NUM_THREADS: expected a whole number from 1 on, found {wanted!r}")
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
