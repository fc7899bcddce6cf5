"""What differs on other systems, as far as it can be said here."""

from __future__ import annotations

from codegen.call.launch import futex_number
from codegen.target import clock_number
from tiling.machine import _sysctl, _sysctl_caches


def test_the_monotonic_clock_has_another_number_on_macos() -> None:
    for triple in ("arm64-apple-darwin23.1.0", "x86_64-apple-macosx14.0.0"):
        assert clock_number(triple) == 6
    assert clock_number("x86_64-unknown-linux-gnu") == 1
    assert clock_number("aarch64-unknown-linux-gnu") == 1


def test_a_system_call_has_a_number_on_its_system_only() -> None:
    assert futex_number("linux", "x86_64") == 202
    assert futex_number("linux", "aarch64") == 98
    assert futex_number("darwin", "x86_64") is None
    assert futex_number("darwin", "arm64") is None


def test_caches_from_sysctl() -> None:
    mac = {"hw.perflevel0.l1dcachesize": 131072, "hw.perflevel0.l2cachesize": 16 << 20, "hw.l1dcachesize": 65536}
    assert _sysctl_caches(mac.get) == {1: 131072, 2: 16 << 20}
    intel = {"hw.l1dcachesize": 32768, "hw.l2cachesize": 262144, "hw.l3cachesize": 8 << 20}
    assert _sysctl_caches(intel.get) == {1: 32768, 2: 262144, 3: 8 << 20}
    assert _sysctl_caches(lambda name: None) == {}


def test_a_name_that_nobody_knows() -> None:
    assert _sysctl("hw.nothing") is None
