"""Graphs with ops that have no form in JAX's terms: programs, and between them what is left to torch's eager mode.

    a -> program -> b -> aten.multinomial (torch) -> c -> program -> d

An op is left to torch where no table has it, where its tensors are of a kind that NumPy lacks (quantized, sparse, another
device), where it holds graphs of its own (`torch.cond`), and where its form cannot be traced: one whose shape depends on values
(`nonzero`). The last is found at the first call; the graph is then parted anew. Graphs here write to none of their inputs, so a
call that failed half way is repeated from its beginning, with the random numbers that it began with.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

from tilewright.torch.graph import Graph, NoForm
from tilewright.torch.ops import Ops

__all__ = ["Pieces", "parts"]

_log = logging.getLogger("tilewright")
NUMBER = "tilewright_number"  # what a node is called in its own graph and in those that it is parted into


class Pieces:
    """A graph of ATen ops, callable with tensors. `left` names the ops that torch runs, in the order of the graph.

    `make(graph, name)` gives the program of a graph (`tilewright.torch.backend.Program`).
    """

    def __init__(self, module: Any, ops: Ops, make: Callable[[Graph, str], Callable[..., tuple[Any, ...]]], name: str) -> None:
        self._module, self._ops, self._make, self._name = module, ops, make, name
        self._is_random = Graph(module, ops).is_random
        self._left: dict[int, str] = {}  # number of a node -> its op
        self._lock = threading.Lock()
        self.programs: tuple[Any, ...] = ()
        for number, node in enumerate(module.graph.nodes):
            node.meta[NUMBER] = number
            why = ops.why_not(node)
            if why:
                self._leave(number, node, why)
        self._call = self._parted()

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(self._left[k] for k in sorted(self._left))

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        torch = self._ops.use.torch
        while True:
            call, state = self._call, torch.get_rng_state() if self._is_random else None
            try:
                return call(*inputs)
            except NoForm as e:
                with self._lock:
                    number = e.node.meta[NUMBER]
                    if number not in self._left:  # else another thread has seen it
                        self._leave(number, e.node, e.reason)
                        self._call = self._parted()
                if state is not None:
                    torch.set_rng_state(state)

    def _leave(self, number: int, node: Any, why: str) -> None:
        self._left[number] = str(node.target)
        _log.warning("torch: %s: %s is left to torch: %s", self._name, node.target, why)

    def _parted(self) -> Callable[..., tuple[Any, ...]]:
        """The graph as one program, or as torch's module that calls programs and pieces of its own."""
        if not self._left:
            whole = self._make(Graph(self._module, self._ops), self._name)
            self.programs = (whole,)
            return whole
        torch = self._ops.use.torch
        part = parts(self._module.graph.nodes, self._left)
        split = torch.fx.passes.split_module.split_module
        made = split(self._module, None, lambda node: part[node.meta[NUMBER]], tuple_return=True)
        programs: list[Any] = []
        for k in sorted({p for p in part.values() if p % 2 == 0}):
            piece = getattr(made, f"submod_{k}")
            program = self._make(Graph(piece, self._ops), f"{self._name}, its piece {len(programs) + 1}")
            delattr(made, f"submod_{k}")  # torch gives a module's name to nothing else
            setattr(made, f"submod_{k}", program)
            programs.append(program)
        self.programs = tuple(programs)

        def call(*inputs: Any) -> tuple[Any, ...]:
            with torch.no_grad():  # what is differentiated was differentiated by the tracer
                found = made(*inputs)
            return tuple(found) if isinstance(found, list | tuple) else (found,)

        return call


def parts(nodes: Any, left: Any) -> dict[int, int]:
    """number of a node -> the number of its part: even ones are programs, odd ones torch's; what is read has no larger number.

    So there are as few parts as ops have to wait for each other.
    """
    found: dict[int, int] = {}
    for node in nodes:
        if node.op != "call_function":
            continue
        before = [found[n.meta[NUMBER]] for n in node.all_input_nodes if n.meta[NUMBER] in found]
        number, latest = node.meta[NUMBER], max(before, default=0)
        if getattr(node.target, "__name__", "") == "getitem" and before:
            found[number] = latest  # an element of a tuple is where the tuple is
        else:
            odd = number in left
            found[number] = next(k for k in itertools.count(latest) if k % 2 == odd)
    return found
