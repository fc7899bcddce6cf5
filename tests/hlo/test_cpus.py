"""The CPUs that a process may use, with made-up control groups: both versions, nested, seen from inside a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import hlo.cpus
from codegen.launcher.native_threads import default_threads
from hlo.cpus import cpu_quota, usable_cpus
from tiling.machine import Machine

V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:8 - cgroup cgroup rw,cpu,cpuacct"
OTHERS = "34 25 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n22 1 8:1 / / rw - ext4 /dev/sda1 rw"
ONE, TWO = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup"


def system(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    """A folder that looks like the system's root."""
    texts = {"proc/self/cgroup": cgroup, "proc/self/mountinfo": f"{mounts}\n{OTHERS}\n", **files}
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def v1(folder: str, quota: int, period: int = 100_000) -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": f"{period}\n"}


def v2(folder: str, quota: str) -> dict[str, str]:
    return {f"{folder}/cpu.max": f"{quota}\n"}


CASES: dict[str, tuple[str, str, dict[str, str], float | None]] = {
    "v2": ("0::/a\n", V2, v2(f"{TWO}/a", "200000 100000"), 2),
    "v2, half a CPU more": ("0::/a\n", V2, v2(f"{TWO}/a", "75000 50000"), 1.5),
    "v2, no limit": ("0::/a\n", V2, v2(f"{TWO}/a", "max 100000"), None),
    "v2, the group above": ("0::/a/b/c\n", V2, {**v2(f"{TWO}/a", "300000 100000"), **v2(f"{TWO}/a/b/c", "max 100000")}, 3),
    "v2, the least of all": ("0::/a/b\n", V2, {**v2(f"{TWO}/a", "200000 100000"), **v2(f"{TWO}/a/b", "400000 100000")}, 2),
    "v2, a namespace's root": ("0::/\n", V2, v2(TWO, "100000 100000"), 1),
    "v2, moved out of the namespace": ("0::/../other\n", V2, v2(TWO, "100000 100000"), 1),
    "v2, a container's mount": ("0::/docker/7\n", V2.replace("0:26 /", "0:26 /docker/7"), v2(TWO, "150000 100000"), 1.5),
    "v2, a blank in the path": (
        "0::/a\n", V2.replace("/sys/fs/cgroup", r"/sys/fs/my\040groups"), v2("sys/fs/my groups/a", "200000 100000"), 2,
    ),
    "v1": ("4:memory:/x\n3:cpu,cpuacct:/a\n", V1, v1(f"{ONE}/a", 250_000), 2.5),
    "v1, no limit": ("3:cpu,cpuacct:/a\n", V1, v1(f"{ONE}/a", -1), None),
    "v1, nested": ("3:cpu,cpuacct:/a/b\n", V1, {**v1(f"{ONE}/a", 100_000), **v1(f"{ONE}/a/b", -1)}, 1),
    "v1, the host's path in a container": ("3:cpu,cpuacct:/docker/7\n", V1, v1(ONE, 400_000), 4),
    "v1, mounted there": ("3:cpu,cpuacct:/docker/7\n", V1.replace("0:29 /", "0:29 /docker/7"), v1(ONE, 400_000), 4),
    "both, v1 has the CPUs": ("3:cpu,cpuacct:/a\n0::/a\n", f"{V1}\n{V2}", v1(f"{ONE}/a", 200_000), 2),
    "v1, cpuset is not cpu": ("3:cpuset:/a\n", V1.replace("cpu,cpuacct", "cpuset"), v1("sys/fs/cgroup/cpuset/a", 100_000), None),
    "garbage": ("what\n::\n", "no mounts", v2(TWO, "1 2 3"), None),
    "a period of nothing": ("0::/\n", V2, v2(TWO, "1000 0"), None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_quotas(tmp_path: Path, case: str) -> None:
    cgroup, mounts, files, wanted = CASES[case]
    if case == "v1, the host's path in a container":  # its own folder is not there; the one above is what is mounted
        assert not (tmp_path / ONE / "docker").exists()
    assert cpu_quota(system(tmp_path, cgroup, mounts, files)) == wanted


def test_no_control_groups(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(
    ("quota", "mask", "wanted"), [(None, 6, 6), (0.2, 6, 1), (1.5, 6, 2), (4.0, 6, 4), (8.0, 6, 6), (4.0, 3, 3)]
)
def test_threads_follow_quota_and_mask(quota: float | None, mask: int, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_NUM_THREADS", raising=False)
    monkeypatch.setattr(hlo.cpus, "_own_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(mask)), raising=False)
    assert usable_cpus() == default_threads() == Machine.detect().cores == wanted
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "9")  # a wish is a wish
    assert default_threads() == Machine.detect().cores == 9
