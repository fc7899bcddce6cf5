"""What a compiled program asks of the grid of processes that it runs in (`codegen.mpi` answers by MPI)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hlo.module import Module, Op
from tiling import Plan

__all__ = ["Processes", "SpreadProgram"]


class SpreadProgram(Protocol):
    """A program in the global view, partitioned (`tiling.mesh.partition.Partitioned`): what each process runs, and its tiles."""

    @property
    def module(self) -> Module:
        """What each process runs."""
        ...

    @property
    def arguments(self) -> Sequence[object]:
        """How each argument is spread."""
        ...

    def local(self, k: int, given: Any, process: int) -> Any:
        """A process's tile of argument k."""
        ...

    def result(self, k: int, tile: np.ndarray, process: int, exchange: Callable[[np.ndarray], list[np.ndarray]]) -> Any:
        """Result k as an array that knows how it is spread, of which a process has computed its tile."""
        ...

    def explain(self) -> str:
        """How values are spread, and each communication with its reason."""
        ...


class Processes(Protocol):
    """One process of a grid of (replicas, partitions), and its way to the others.

    `infeed` names the functions that its `infeed` ops call, `threads` is its share of the machine's.
    """

    process: tuple[int, int]
    grid: tuple[int, int]
    infeed: Sequence[str]
    threads: int

    def start(self, plan: Plan) -> None:
        """Makes sure that all processes run the same plan. Raises where they do not."""
        ...

    def step(self, op: Op) -> Callable[..., Any] | None:
        """The function (op, *arrays) -> results that runs a collective; None for what is none, or goes by `meet`."""
        ...

    def begin(self, op: Op) -> Callable[..., Callable[[], tuple[np.ndarray, ...]]] | None:
        """The function (op, *arrays) that begins a collective, and returns what waits for its results; None for other ops."""
        ...

    def agree(self, what: str, text: str) -> None:
        """Raises where other processes do not say the same; all of them call it."""
        ...

    def failed(self, error: BaseException) -> None:
        """Tells the others, once, that this process goes no further."""
        ...

    def everyones(self, array: np.ndarray) -> list[np.ndarray]:
        """The arrays of all processes, by rank; all of them call it."""
        ...

    def begin_program(self) -> None:
        """A whole program begins, on all processes: channels are empty."""
        ...

    def give(self, process: tuple[int, int], value: Any) -> None:
        """Hands a value to a process and goes on."""
        ...

    def take(self, process: tuple[int, int], op: Op | None) -> Any:
        """The next value that a process hands to this one; waits for it."""
        ...

    def meet(self, op: Op, participants: Sequence[tuple[int, int]], tag: Any, payload: Any) -> Mapping[tuple[int, int], Any]:
        """Every participant's payload, by process."""
        ...

    def send(self, op: Op, channel: Any, payload: Any) -> None:
        """Puts a payload into a channel."""
        ...

    def receive(self, op: Op, channel: Any) -> Any:
        """The oldest payload of a channel."""
        ...
