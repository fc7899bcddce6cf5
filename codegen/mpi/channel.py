"""MPI with waits that end: what this process sends and receives, who has failed or ended, and the agreement of all.

A wait ends with what it waits for, with the failure of another process, with the news that a process which it waits for has
ended, or after TILEWRIGHT_MESH_SECONDS (120). (A process that is killed ends all: MPI's own launcher sees to that.)
"""

from __future__ import annotations

import atexit
import functools
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI

from codegen.mpi.errors import MeshError, PeerError
from hlo.module import Op
from hlo.settings import positive_setting

__all__ = ["Channel", "the_channel"]

PATIENCE_SECONDS = 120
_SPIN_SECONDS = 3e-4  # a wait that is longer sleeps between two looks
_PAUSE_SECONDS = (2e-5, 1e-3)
_GROUP_TAGS = 1 << 15  # MPI has at least so many
_LAST_LOOKS = 1000  # at a request whose partner has ended: what it sent is on its way


@functools.cache
def the_channel() -> Channel:
    """The channel of this process; the first call is one that all processes make."""
    return Channel()


class Channel:
    """What one process sends to and receives from the others, by their ranks."""

    def __init__(self) -> None:
        world = MPI.COMM_WORLD
        self.rank, self.size = world.Get_rank(), world.Get_size()
        self.comm, self._news, self._last = world.Dup(), world.Dup(), world.Dup()
        here = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.neighbours = here.Get_size()  # on this machine, this one counted
        here.Free()
        self._groups: dict[tuple[int, ...], MPI.Intracomm] = {}
        self.calls = 0  # of whole programs whose messages this process sends and takes: what one leaves is nobody's in the next
        self.failure: MeshError | None = None
        self._told = False
        self._meetings = 0  # of all processes (`gather`): how many this one has begun, and how many it has come out of
        self._met = 0
        self._left: dict[int, int] = {}  # process that failed or ended -> the meetings that it came out of before
        self._ended: set[int] = set()
        self._sending: list[MPI.Request] = []
        self._begun: list[MPI.Request | Sequence[MPI.Request]] = []
        self._given_up: list[MPI.Request] = []  # MPI may still write into their buffers, which they keep
        atexit.register(self._end)
        self._hook = sys.excepthook
        sys.excepthook = self._uncaught

    # ------------------------------------------------------------ groups

    def make_group(self, ranks: tuple[int, ...], number: int) -> None:
        """Makes the communicator of some ranks, in this order. All of them call it, with one number, in the same order of groups.

        (A process's own count of groups is no such number: two that meet now may have met others before.)
        """
        if ranks not in self._groups:
            self._groups[ranks] = self.comm.Create_group(self.comm.Get_group().Incl(list(ranks)), number % _GROUP_TAGS)

    def group(self, ranks: tuple[int, ...]) -> MPI.Intracomm:
        """The communicator of some ranks, made before."""
        return self._groups[ranks]

    # ------------------------------------------------------------ waiting

    def hold(self, requests: MPI.Request | Sequence[MPI.Request]) -> None:
        """Keeps what has been begun, and its buffers, until `release`, or for ever where that is not called."""
        self._begun.append(requests)

    def release(self, requests: MPI.Request | Sequence[MPI.Request]) -> None:
        """What was begun has ended."""
        self._begun = [r for r in self._begun if r is not requests]

    def wait(
        self, requests: MPI.Request | Sequence[MPI.Request], op: Op | None, partners: Iterable[int], meeting: int = 0
    ) -> None:
        """Returns when all requests are done. Raises PeerError and MeshError as the module says."""
        pending = [requests] if isinstance(requests, MPI.Request) else list(requests)
        try:
            self.until(lambda: MPI.Request.Testall(pending), op, partners, meeting)
        except BaseException:
            self._given_up += pending
            raise

    def until(self, is_done: Callable[[], bool], op: Op | None, partners: Iterable[int], meeting: int = 0) -> None:
        """Returns when `is_done()` says so, which may depend on what `partners` do.

        Of a `meeting` of all processes, those that came out of it have done their part, whatever became of them then: what they
        found wrong after it, this process finds wrong by itself.
        """
        began = time.monotonic()
        while time.monotonic() - began < _SPIN_SECONDS:
            if is_done():
                return
            os.sched_yield()
        awaited = set(partners) - {self.rank}
        looks = 0
        patience = positive_setting("TILEWRIGHT_MESH_SECONDS") or PATIENCE_SECONDS
        while not is_done():
            self._hear()
            if self.failure is not None and not (meeting and all(met >= meeting for met in self._left.values())):
                raise self.failure
            gone = sorted(r for r in awaited & self._ended if not meeting or self._left[r] < meeting)
            looks += bool(gone)
            waited = time.monotonic() - began
            if looks > _LAST_LOOKS:
                raise MeshError(f"{self._place(op)} waits for process {gone[0]}, which has ended")
            if waited > patience:
                whom = ", ".join(map(str, sorted(awaited)))
                raise MeshError(f"{self._place(op)} has waited {patience} s for some of the processes {whom}")
            time.sleep(min(max(waited / 8, _PAUSE_SECONDS[0]), _PAUSE_SECONDS[1]))

    def _place(self, op: Op | None) -> str:
        what = "what all processes tell one another" if op is None else f"{op.name} ({op.location})" if op.location else op.name
        return f"process {self.rank}: {what}"

    def _hear(self) -> None:
        """Takes the news that have come."""
        while self._news.iprobe(source=MPI.ANY_SOURCE):
            kind, rank, text, self._left[rank] = self._news.recv(source=MPI.ANY_SOURCE)
            if kind == "ended":
                self._ended.add(rank)
            elif self.failure is None:
                self.failure = PeerError(f"process {rank} failed: {text}", rank)

    # ------------------------------------------------------------ news

    def _tell(self, kind: str, text: str) -> None:
        if not self._told and not MPI.Is_finalized():
            self._told = True
            others = [r for r in range(self.size) if r != self.rank]
            self._sending += [self._news.isend((kind, self.rank, text, self._met), dest=r) for r in others]

    def failed(self, error: BaseException) -> None:
        """Tells the others, once, that this process goes no further; a failure that is another's is known to all."""
        if not isinstance(error, PeerError):
            text = str(error) or type(error).__name__
            if self.failure is None:
                self.failure = MeshError(f"process {self.rank} failed: {text}")
            self._tell("failed", text)

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self.failed(error)
        self._hook(kind, error, trace)

    def _end(self) -> None:
        self._tell("ended", "")

    def settle(self, own: bool) -> list[bool] | None:
        """After a failure: which processes failed by themselves, by rank; None where some do not answer.

        Every process that goes on comes here, for the failure reaches all that wait.
        """
        flags = np.zeros(self.size, np.int8)
        request = self._last.Iallgather(np.array([own], np.int8), flags)
        end = time.monotonic() + (positive_setting("TILEWRIGHT_MESH_SECONDS") or PATIENCE_SECONDS)
        while not request.Test():
            self._hear()
            if self._ended or time.monotonic() > end:
                self._given_up.append(request)
                return None
            time.sleep(_PAUSE_SECONDS[1])
        return [bool(f) for f in flags]

    def abort(self, message: str) -> None:
        """Ends all processes, with a message of this one's."""
        print(f"process {self.rank}: {message}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)

    # ------------------------------------------------------------ objects

    def gather(self, value: object) -> list[Any]:
        """The values of all processes, by rank. All of them call it."""
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        everyone = range(self.size)
        self._meetings += 1
        sizes = np.zeros(self.size, np.int64)
        self.wait(self.comm.Iallgather(np.array([data.size]), sizes), None, everyone, self._meetings)
        found = np.zeros(int(sizes.sum()), np.uint8)
        self.wait(self.comm.Iallgatherv(data, [found, sizes.tolist()]), None, everyone, self._meetings)
        self._met = self._meetings
        ends = np.cumsum(sizes).tolist()
        return [pickle.loads(found[end - size : end].tobytes()) for end, size in zip(ends, sizes.tolist(), strict=True)]

    def post(self, value: object, rank: int, tag: int) -> None:
        """Sends a value to a rank and goes on."""
        self._sending = [r for r in self._sending if not r.Test()]
        self._sending.append(self.comm.isend(value, dest=rank, tag=tag))

    def take(self, rank: int, op: Op | None, tag: int) -> Any:
        """The oldest value that a rank has posted; waits for one."""
        found: list[MPI.Message] = []

        def has_come() -> bool:
            message = self.comm.improbe(source=rank, tag=tag)
            if message is not None:
                found.append(message)
            return message is not None

        self.until(has_come, op, [rank])
        # Its elements may be on their way still: a large message is sent while both sides look at it.
        request, values = found[0].irecv(), []

        def is_here() -> bool:
            done, value = request.test()
            if done:
                values.append(value)
            return bool(done)

        try:
            self.until(is_here, op, [rank])
        except BaseException:
            self._given_up.append(request)
            raise
        return values[0]
