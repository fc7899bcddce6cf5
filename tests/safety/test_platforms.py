"""What differs on other systems, as far as it can be said here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import codegen
from codegen.target import clock_number, default_target
from codegen.waiting import sleep_call
from tiling.machine import _sysctl, _sysctl_caches

ROOT = Path(codegen.__file__).resolve().parents[1]


def test_the_monotonic_clock_has_another_number_on_macos() -> None:
    for triple in ("arm64-apple-darwin23.1.0", "x86_64-apple-macosx14.0.0"):
        assert clock_number(triple) == 6
    assert clock_number("x86_64-unknown-linux-gnu") == 1
    assert clock_number("aarch64-unknown-linux-gnu") == 1


def test_a_system_call_has_a_number_on_its_system_only() -> None:
    assert sleep_call("x86_64-unknown-linux-gnu") == 202
    assert sleep_call("aarch64-unknown-linux-gnu") == 98
    assert sleep_call("x86_64-apple-macosx14.0.0") == sleep_call("arm64-apple-darwin23.1.0") == "ulock"
    assert sleep_call("x86_64-unknown-freebsd14") == sleep_call("riscv64-unknown-linux-gnu") == "poll"


# Threads that wait as on another system: macOS's two functions stand here on Linux's call, and count.
ELSEWHERE = """
import ctypes, sys, time
import numpy as np
import codegen, hlo
from codegen.launcher import native_threads
from codegen.lib import threads
from codegen.native.lower import LoadedObject, library_object, publish
from codegen.target import default_target

way, number = sys.argv[1], threads.sleep_call(default_target().triple)
target = default_target()
loaded = LoadedObject(library_object(f'''
target triple = "{target.triple}"
@counts = global [2 x i64] zeroinitializer
declare i64 @syscall(i64, ...)
define i32 @__ulock_wait(i32 %how, ptr %at, i64 %value, i32 %timeout) {{
  %n = atomicrmw add ptr @counts, i64 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 {number}, ptr %at, i64 128, i64 %value, i64 0, i64 0, i64 0)
  ret i32 0
}}
define i32 @__ulock_wake(i32 %how, ptr %at, i64 %value) {{
  %second = getelementptr i64, ptr @counts, i64 1
  %n = atomicrmw add ptr %second, i64 1 seq_cst
  %r = call i64 (i64, ...) @syscall(i64 {number}, ptr %at, i64 129, i64 1073741824, i64 0, i64 0, i64 0)
  ret i32 0
}}
define ptr @counted() {{
  ret ptr @counts
}}
''', target), target)
for name in ("__ulock_wait", "__ulock_wake"):
    publish(name, loaded.address(name))
counts = (ctypes.c_int64 * 2).from_address(ctypes.CFUNCTYPE(ctypes.c_void_p)(loaded.address("counted"))())
threads.sleep_call = lambda triple: way
native_threads.Pool.stop = lambda pool: None  # which asks the system's own library
t = "tensor<1024x4096xf32>"
text = f"func.func @main(%x: {t}) -> {t} {{ %0 = stablehlo.tanh %x : {t} return %0 : {t} }}"
run = codegen.compile(hlo.parse(text), threads=2)
x = np.linspace(-2, 2, 1024 * 4096, dtype=np.float32).reshape(1024, 4096)
for k in range(20):
    assert np.allclose(run(x)[0], np.tanh(x), rtol=1e-5)
    time.sleep(0.002)  # the workers go to sleep
print(*counts)
"""


@pytest.mark.skipif(not isinstance(sleep_call(default_target().triple), int), reason="it stands on Linux's call")
@pytest.mark.parametrize("way", ["ulock", "poll"])
def test_threads_wait_as_on_other_systems(way: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_NO_CACHE": "1", "TILEWRIGHT_NUM_THREADS": "2"}
    found = subprocess.run(
        [sys.executable, "-P", "-c", ELSEWHERE, way], env=environment, capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr
    waits, wakes = map(int, found.stdout.split())
    assert (waits > 0 and wakes > 0) if way == "ulock" else waits == wakes == 0


def test_caches_from_sysctl() -> None:
    mac = {"hw.perflevel0.l1dcachesize": 131072, "hw.perflevel0.l2cachesize": 16 << 20, "hw.l1dcachesize": 65536}
    assert _sysctl_caches(mac.get) == {1: 131072, 2: 16 << 20}
    intel = {"hw.l1dcachesize": 32768, "hw.l2cachesize": 262144, "hw.l3cachesize": 8 << 20}
    assert _sysctl_caches(intel.get) == {1: 32768, 2: 262144, 3: 8 << 20}
    assert _sysctl_caches(lambda name: None) == {}


def test_a_name_that_nobody_knows() -> None:
    assert _sysctl("hw.nothing") is None
