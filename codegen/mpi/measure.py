"""Measures the network between the processes that MPI has started: what a step of a collective waits, and its bytes."""

from __future__ import annotations

import time
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
    return Network(float(f"{slowest[0]:.3g}"), float(f"{slowest[1]:.3g}"), work)


def _seconds(channel: Channel, size: int) -> float:
    """The median of some all-gathers of `size` bytes of each process."""
    given, found = np.zeros(size, np.uint8), np.empty(size * channel.size, np.uint8)
    everyone = range(channel.size)
    spent = []
    for _ in range(_ROUNDS):
        channel.gather(None)  # all begin together
        began = time.perf_counter()
        channel.wait(channel.comm.Iallgather(given, found), None, everyone)
        spent.append(time.perf_counter() - began)
    return median(spent)
