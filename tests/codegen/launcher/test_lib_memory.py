"""The memory pool: alignment, reuse, lifetime through views, counts, the limit."""

from __future__ import annotations

import gc
import os

import ml_dtypes
import numpy as np
import pytest

from codegen.launcher.memory import HUGE_BYTES, MemoryPool, rounded_bytes
from tests.threads import in_threads, needs_fork


@pytest.mark.parametrize("size", [0, 1, 63, 4096, 100_000, HUGE_BYTES, 5_000_000])
def test_alignment_and_writing(size: int) -> None:
    pool = MemoryPool()
    lease = pool.lease(size, "output")
    assert lease.address % (HUGE_BYTES if rounded_bytes(size) >= HUGE_BYTES else 64) == 0
    array = lease.array((size,), np.uint8)
    array[:] = 7
    assert array.flags.writeable and array.flags.c_contiguous and (array == 7).all()


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.bool_, ml_dtypes.bfloat16])
def test_any_type_and_shape(dtype: type) -> None:
    a = MemoryPool().lease(3 * 0 * 16, "output").array((3, 0), dtype)
    assert a.shape == (3, 0)
    b = MemoryPool().lease(np.dtype(dtype).itemsize, "output").array((), dtype)
    assert b.shape == () and b.dtype == dtype


def test_memory_comes_back_only_with_the_last_view() -> None:
    pool = MemoryPool()
    a = pool.lease(4000, "output").array((10, 100), np.float32)
    address = a.ctypes.data
    view = a[2:, ::2].T
    a[:] = 3
    del a
    gc.collect()
    other = pool.lease(4000, "output")
    assert other.address != address and (view == 3).all()
    assert pool.count("output").live_bytes == 8000
    del view
    again = pool.lease(4000, "output")
    assert again.address == address
    assert (pool.count("output").live_bytes, pool.count("output").peak_bytes) == (8000, 8000)


def test_counts_by_kind() -> None:
    pool = MemoryPool()
    lease = pool.lease(100, "scratch")
    assert (pool.count("scratch").live_bytes, pool.count("output").live_bytes) == (100, 0)
    lease.release()
    lease.release()
    assert (pool.count("scratch").live_bytes, pool.count("scratch").peak_bytes) == (0, 100)
    pool.count("scratch").reset_peak()
    assert pool.count("scratch").peak_bytes == 0


def test_free_memory_stays_under_the_limit() -> None:
    pool = MemoryPool(limit_bytes=2048)
    leases = [pool.lease(1024, "output") for _ in range(5)]
    del leases
    assert pool.free_bytes == 2048
    pool.clear()
    assert pool.free_bytes == 0


def test_rounding_wastes_at_most_an_eighth() -> None:
    for size in range(1, 20_000, 7):
        rounded = rounded_bytes(size)
        assert rounded >= size and rounded % 64 == 0
        assert rounded - size < max(64, size / 7)


def test_threads_never_share_a_block() -> None:
    pool = MemoryPool()
    clashes = []

    def work(mark: int) -> None:
        for _ in range(300):
            a = pool.lease(512, "output").array((512,), np.uint8)
            a[:] = mark
            if not (a == mark).all():
                clashes.append(mark)

    in_threads(work, 4)
    assert clashes == []


@needs_fork
def test_a_child_of_a_fork_changes_none_of_its_parents_arrays() -> None:
    pool = MemoryPool()
    kept = pool.lease(HUGE_BYTES, "output").array((HUGE_BYTES,), np.uint8)
    kept[:] = 1
    pool.lease(HUGE_BYTES, "output").release()  # a block that both processes lease next
    child = os.fork()
    if child == 0:
        kept[:] = 2
        pool.lease(HUGE_BYTES, "output").array((HUGE_BYTES,), np.uint8)[:] = 3
        os._exit(0)
    mine = pool.lease(HUGE_BYTES, "output").array((HUGE_BYTES,), np.uint8)
    mine[:] = 4
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (kept == 1).all() and (mine == 4).all()
