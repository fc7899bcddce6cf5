"""What this machine can run: its architecture, its system, its CPU's features as Linux names them."""

from __future__ import annotations

import functools
import os
import platform

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
        found = set()
    return frozenset(found or ({"asimd"} if architecture() == "aarch64" else ()))


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
