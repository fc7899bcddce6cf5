"""How many CPUs this process may use: its affinity mask, and the quotas of the control groups that it is in (Linux)."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["cpu_quota", "usable_cpus"]


def usable_cpus() -> int:
    """The number of threads that can run at once: no more than the affinity mask has CPUs, or the control group's quota grants.

    >>> 1 <= usable_cpus() <= (os.cpu_count() or 1)
    True
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _own_quota()
    return cpus if quota is None else max(1, min(cpus, math.ceil(quota)))


@functools.cache
def _own_quota() -> float | None:
    return cpu_quota()


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The CPUs' worth of time that the control groups grant, version 1 or 2, the least of all levels; None for no limit.

    `root` is where `/proc` and the mounted hierarchies are looked for.
    """
    found = [q for folder in _folders(root) for q in (_quota_v2(folder), _quota_v1(folder)) if q is not None]
    return min(found, default=None)


def _folders(root: Path) -> Iterator[Path]:
    """The folders of this process's groups that may limit its CPU time, each with those above it."""
    groups = [line.split(":", 2) for line in _text(root / "proc/self/cgroup").splitlines() if line.count(":") >= 2]
    for line in _text(root / "proc/self/mountinfo").splitlines():
        own, _, rest = line.partition(" - ")
        mount, kind = own.split(), rest.split()
        if len(mount) < 5 or len(kind) < 3 or not _controls_cpu(kind[0], kind[2].split(",")):
            continue
        for _, controllers, group in groups:
            if (controllers == "") if kind[0] == "cgroup2" else ("cpu" in controllers.split(",")):
                top = root / _unescaped(mount[4]).lstrip("/")
                inner = _below(group, _unescaped(mount[3]))
                yield from (top.joinpath(*inner.parts[:n]) for n in range(len(inner.parts) + 1))


def _controls_cpu(kind: str, options: list[str]) -> bool:
    return kind == "cgroup2" or (kind == "cgroup" and "cpu" in options)


def _below(group: str, mounted: str) -> PurePosixPath:
    """A group's path from the folder that is mounted; that folder itself where the group lies outside (a container's view)."""
    try:
        inner = PurePosixPath(group).relative_to(mounted)
    except ValueError:
        return PurePosixPath()
    return PurePosixPath() if ".." in inner.parts else inner


def _unescaped(text: str) -> str:
    """A path of mountinfo, where blanks are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def _quota_v2(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split()
    return _ratio(words[0], words[1]) if len(words) == 2 else None


def _quota_v1(folder: Path) -> float | None:
    return _ratio(_text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str) -> float | None:
    """quota / period; None where the quota is no limit (`max`, -1) or one of them cannot be read."""
    if not (quota.isascii() and quota.isdigit() and period.isascii() and period.isdigit()):
        return None
    return int(quota) / int(period) if int(quota) and int(period) else None


def _text(path: Path) -> str:
    """A file's text; nothing where there is none (another system, another version, no access)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
