"""Measures the network between the processes that MPI has started: what a step of a collective waits, its bytes, and how much
of a collective goes on while a process computes."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from codegen.mpi.channel import Channel
from codegen.mpi.errors import MeshError
from tiling.mesh.network import Network

__all__ = ["measure_network"]

_SMALL_BYTES, _LARGE_BYTES = 8, 1 << 20
_ROUNDS = 21


def measure_network(channel: Channel) -> Network:
    """The network by all-gathers of small and large pieces, the same on all processes, which all call it.

    The model is `Network.seconds`: so many steps of a ring, and so many bytes. Raises MeshError for one process.
    """
    if channel.size < 2:
        raise MeshError("a network is measured between two processes at least: mpiexec -n 2 tilewright calibrate --mpi")
    small, large = _seconds(channel, _SMALL_BYTES), _seconds(channel, _LARGE_BYTES)
    steps = channel.size - 1
    sent = steps * (_LARGE_BYTES - _SMALL_BYTES)
    own = small / steps, sent / max(large - small, 1e-9)
    everyone = channel.gather(own)
    slowest = max(e[0] for e in everyone), min(e[1] for e in everyone)
    work = Network().work_per_second
    hidden = min(channel.gather(_hidden(channel, large)))
    return Network(float(f"{slowest[0]:.3g}"), float(f"{slowest[1]:.3g}"), work, round(hidden, 2))


def _seconds(channel: Channel, size: int, work: Callable[[], object] = lambda: None) -> float:
    """The median of some all-gathers of `size` bytes of each process, with `work` before each is waited for."""
    given, found = np.zeros(size, np.uint8), np.empty(size * channel.size, np.uint8)
    everyone = range(channel.size)
    spent = []
    for _ in range(_ROUNDS):
        channel.gather(None)  # all begin together
        began = time.perf_counter()
        request = channel.comm.Iallgather(given, found)
        work()
        channel.wait(request, None, everyone)
        spent.append(time.perf_counter() - began)
    return median(spent)


def _hidden(channel: Channel, large: float) -> float:
    """Which share of a large all-gather, or of as much work, the two take less together than one after the other."""
    values = np.ones(1 << 12, np.float32)

    def work(times: int) -> None:
        for _ in range(times):
            np.multiply(values, 1.0000001, out=values)

    def working(times: int) -> float:
        spent = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            work(times)
            spent.append(time.perf_counter() - began)
        return median(spent)

    times = max(1, round(100 * large / max(working(100), 1e-9)))  # about as long as the all-gather
    alone = working(times)
    both = _seconds(channel, _LARGE_BYTES, lambda: work(times))
    return min(1.0, max(0.0, (alone + large - both) / min(alone, large)))
