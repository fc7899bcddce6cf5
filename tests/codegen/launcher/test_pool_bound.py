"""What the memory pool keeps: as much as calls lately needed at once, nothing when there are no calls, never above its limit."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import codegen
import hlo
import tilewright
from codegen.launcher import memory
from codegen.launcher.memory import FLOOR_BYTES, SPAN_SECONDS, MemoryPool
from hlo.errors import SettingError

LARGE = 4 * FLOOR_BYTES  # of address space; nobody writes to it


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    @staticmethod
    def sleep(seconds: float) -> None:
        time.sleep(0.001)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(memory, "time", made)
    yield made
    made.now += 1000 * SPAN_SECONDS  # whoever still watches a pool comes to the end


def call(pool: MemoryPool, size: int = LARGE) -> memory.Lease:
    """What a call does that makes one result."""
    pool.begin(size)
    lease = pool.lease(size, "output")
    pool.end(size)
    return lease


def test_four_dropped_results_leave_one(clock: Clock) -> None:
    pool = MemoryPool()
    held = [call(pool) for _ in range(4)]
    assert pool.free_bytes == 0 and pool.count("output").live_bytes == 4 * LARGE
    del held
    assert pool.free_bytes == LARGE and pool.count("output").live_bytes == 0
    clock.now += 3 * SPAN_SECONDS
    for _ in range(2000):  # a thread looks again, while the program does nothing
        if pool._watch is None:
            break
        time.sleep(0.005)
    assert pool._watch is None and pool.free_bytes == 0


def test_what_is_dropped_when_no_call_was_lately_goes_at_once(clock: Clock) -> None:
    pool = MemoryPool()
    held = call(pool)
    clock.now += 3 * SPAN_SECONDS
    held.release()
    assert pool.free_bytes == 0 and pool._watch is None


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_loop_of_calls_finds_the_memory_of_the_call_before(clock: Clock, at_once: int) -> None:
    pool = MemoryPool()
    seen = set()
    for _ in range(20):
        for _ in range(at_once):
            pool.begin(LARGE)
        leases = [pool.lease(LARGE, "output") for _ in range(at_once)]
        for _ in range(at_once):
            pool.end(LARGE)
        seen |= {x.address for x in leases}
        del leases
        clock.now += 0.4 * SPAN_SECONDS
    assert len(seen) == at_once
    assert pool.free_bytes == at_once * LARGE


def test_programs_in_turns_find_the_memory_of_their_own_last_calls(clock: Clock) -> None:
    """A forward pass and a backward one: what one leases is of no use for the other, and both are called again and again."""
    pool = MemoryPool()
    seen = set()
    for _ in range(6):
        forward = call(pool, LARGE)
        backward = call(pool, 2 * LARGE)
        seen |= {forward.address, backward.address}
        del forward, backward
        clock.now += 0.4 * SPAN_SECONDS
    assert len(seen) == 2 and pool.free_bytes == 3 * LARGE
    clock.now += 3 * SPAN_SECONDS
    for _ in range(2000):
        if pool._watch is None:
            break
        time.sleep(0.005)
    assert pool._watch is None and pool.free_bytes == 0


def test_a_result_that_the_next_call_replaces(clock: Clock) -> None:
    """r = f(…) again and again: while the next result is made, the one before is alive."""
    pool = MemoryPool()
    r = None
    seen = set()
    for _ in range(10):
        r = call(pool)
        seen.add(r.address)
    assert len(seen) == 2 and pool.free_bytes == LARGE and r is not None


def test_the_block_that_came_back_first_goes_first() -> None:
    pool = MemoryPool(limit_bytes=3 << 20)
    sizes = [1 << 20, 2 << 20, 1 << 20]
    leases = [pool.lease(n, "output") for n in sizes]
    addresses = [x.address for x in leases]
    for x in leases:
        x.release()
    assert pool.free_bytes == 3 << 20
    again = [pool.lease(n, "output").address for n in (2 << 20, 1 << 20)]
    assert again == addresses[1:]


def test_small_calls_keep_up_to_the_floor(clock: Clock) -> None:
    pool = MemoryPool()
    leases = [pool.lease(1 << 20, "output") for _ in range(40)]
    del leases
    assert pool.free_bytes == FLOOR_BYTES


def test_the_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_POOL_LIMIT", "3k")
    pool = MemoryPool()
    leases = [pool.lease(1024, "output") for _ in range(5)]
    del leases
    assert pool.limit_bytes == 3072 and pool.free_bytes == 3072
    pool.limit_bytes = 1024
    assert pool.free_bytes == 1024
    pool.limit_bytes = 0
    assert pool.free_bytes == 0
    with pytest.raises(ValueError, match="limit_bytes: expected 0 or more, found -1"):
        pool.limit_bytes = -1
    monkeypatch.delenv("TILEWRIGHT_POOL_LIMIT")
    assert MemoryPool().limit_bytes == memory.LIMIT_BYTES


@pytest.mark.parametrize("text", ["much", "-1", "1.5G", "G", "1T", "٣"])
def test_a_setting_that_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TILEWRIGHT_POOL_LIMIT", text)
    with pytest.raises(SettingError, match="TILEWRIGHT_POOL_LIMIT: expected a number of bytes, as 1048576, 512M or 2G, found"):
        MemoryPool().lease(1, "output")


def test_programs_tell_the_pool_what_they_need() -> None:
    n = 2 << 20
    text = f"""func.func @main(%x: tensor<{n}xf64>) -> tensor<{n}xf64> {{
      %0 = stablehlo.add %x, %x : tensor<{n}xf64>
      return %0 : tensor<{n}xf64>
    }}"""
    exe = codegen.compile(hlo.parse(text))
    pool = tilewright.memory_pool
    assert pool is memory.pool
    pool.clear()
    assert pool.free_bytes == 0
    x = np.ones(n)
    held = [exe(x) for _ in range(5)]
    assert all(r[0] == 2 for (r,) in held)
    assert pool.free_bytes <= FLOOR_BYTES
    del held
    gc.collect()
    assert pool.free_bytes <= max(FLOOR_BYTES, exe._need_bytes) and exe._need_bytes < 1.3 * 8 * n
    pool.clear()
    assert pool.free_bytes == 0


def test_a_finalizer_in_the_middle_of_the_pool_waits_for_nothing() -> None:
    """Collections at every allocation lease, return and count: a lock that they waited for would be this thread's own."""
    pool = MemoryPool(limit_bytes=1 << 16)
    kept: list[memory.Lease] = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            kept.append(pool.lease(512, "inner"))
            if len(kept) > 3:
                del kept[:]
            assert pool.count("inner").live_bytes >= 0
            pool.clear()

    def work() -> None:
        before = gc.get_threshold()
        try:
            for k in range(2000):
                gc.set_threshold(1 + k % 5)
                Cycle()
                pool.begin(2 << 20)
                pool.lease(1024, "output").release()
                pool.end(2 << 20)
        finally:
            gc.set_threshold(*before)
            gc.collect()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    kept.clear()
    assert pool.count("output").live_bytes == 0 == pool.count("inner").live_bytes
    pool.clear()
    assert pool.free_bytes == 0
