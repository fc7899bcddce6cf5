"""What no kernel covers runs in the evaluator: one op at a time, or the whole program.

The only place of this package that knows the evaluator; it is imported when the first such op runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from codegen.call.library import LIBRARY_STEPS
from codegen.call.processes import Processes
from hlo.clone import captured_values, clone_block
from hlo.foreign import given_to
from hlo.module import Block, Function, Module, Op, Value
from hlo.registry import definition
from tiling import EvaluatorStep

CustomCalls = Mapping[str, Callable[..., Any]]
"""Target name -> function(op, *operands) that returns an array or a tuple of them, as the evaluator takes it."""

__all__ = ["BegunOp", "CustomCalls", "EndedOp", "PreparedOp", "evaluate_program", "op_reads"]


def op_reads(op: Op) -> list[Value]:
    """What an op reads, each value once: its operands, and what its regions read from outside them."""
    return list(dict.fromkeys([*op.operands, *(v for b in op.regions for v in captured_values(b))]))


def evaluate_program(
    module: Module,
    arrays: Sequence[np.ndarray],
    entry: str,
    custom_calls: CustomCalls | None = None,
    processes: Processes | None = None,
) -> tuple[Any, ...]:
    """The results of a whole function; with `processes` those of this process of the grid, which waits for the others."""
    import interp

    if processes is not None:
        from interp.central import CentralTransport, needs_order

        me, grid = processes.process, processes.grid
        central = None
        if needs_order(module, entry):  # which message is the oldest is one process's to say
            central = CentralTransport(module, me, grid, processes.give, processes.take)
        found = interp.run_process(
            module, *arrays, process=me, grid=grid, transport=central or processes, entry=entry, infeed=processes.infeed,
            custom_calls=custom_calls,
        )  # fmt: skip
        if central is not None:
            central.finish()
        return tuple(found)
    return tuple(interp.evaluate(module, *arrays, entry=entry, custom_calls=custom_calls))


class PreparedOp:
    """One op of a flattened program that no kernel covers: `prepared(arrays)` gives its results.

    `arrays` are the values of `op_reads(op)`; `views` make their arrays, and the results', from addresses. A library's function
    runs it where there is one, a custom call is made directly, and a collective goes to the other `processes`; the evaluator runs
    the rest, and whatever gives no result of the right type.
    """

    def __init__(
        self, module: Module, step: EvaluatorStep, custom_calls: CustomCalls | None, processes: Processes | None = None
    ) -> None:
        op = self.op = step.op
        self.custom_calls, self.processes = custom_calls, processes
        self.direct: Callable[..., Any] | None = LIBRARY_STEPS[op.name] if step.library else None
        if op.name == "stablehlo.custom_call":
            self.direct = (custom_calls or {}).get(op.attr("call_target_name"))
        self.exchange = processes.step(op) if processes is not None else None
        self.direct = self.exchange or self.direct
        reads = op_reads(op)
        body = Block([v.type for v in reads], [f"arg{k}" for k in range(len(reads))])
        environment = dict(zip(reads, body.arguments, strict=True))
        copy = Op(op.definition, [environment[v] for v in op.operands], op.attributes,
                  [clone_block(b, environment) for b in op.regions], [r.type for r in op.results], op.location,
                  op.extra)  # fmt: skip
        body.ops += [copy, Op(definition("func.return"), copy.results)]
        self.name = "step"
        while self.name in module.functions:
            self.name += "_"
        function = Function(self.name, body, result_types=tuple(r.type for r in op.results))
        self.module = Module({**module.functions, self.name: function}, module.name)
        self.places = [reads.index(v) for v in op.operands]
        self.count = len(reads)
        self.views = [_view_of(v) for v in (*reads, *op.results)]

    @property
    def library(self) -> bool:
        """True where the evaluator has no part in it."""
        return self.direct is not None

    def __call__(self, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        if self.direct is not None:
            with np.errstate(all="ignore"):
                found = self.direct(self.op, *given_to(self.direct, tuple([arrays[k] for k in self.places])))
            results = tuple(found) if isinstance(found, (tuple, list)) else () if found is None else (found,)
            if self.exchange is not None:
                return results
            if len(results) == len(self.op.results) and all(map(_fits, results, self.op.results)):
                return results
            if self.op.name == "stablehlo.custom_call":  # it was called once; the evaluator says what is wrong with its results
                target = self.op.attr("call_target_name")
                return evaluate_program(self.module, arrays, self.name, {target: lambda op, *operands: found})
        return evaluate_program(self.module, arrays, self.name, self.custom_calls, self.processes)


class BegunOp:
    """The begin of a collective: `begun(arrays)` begins it and gives no results; `end` waits for them.

    An object has one exchange on its way: calls of a program on several processes come one after the other.
    """

    library = True
    direct = exchange = None

    def __init__(self, step: EvaluatorStep, processes: Processes) -> None:
        self.op = step.op
        reads = op_reads(step.op)
        self.views, self.count = [_view_of(v) for v in reads], len(reads)
        self.places = [reads.index(v) for v in step.op.operands]
        self._begin = processes.begin(step.op)
        self._end: Callable[[], tuple[np.ndarray, ...]] | None = None

    def __call__(self, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        assert self._begin is not None
        self._end = self._begin(self.op, *[arrays[k] for k in self.places])
        return ()

    def end(self) -> tuple[np.ndarray, ...]:
        """The results."""
        assert self._end is not None
        waits, self._end = self._end, None
        return waits()


class EndedOp:
    """The end of a collective that was begun: `ended([])` gives its results."""

    library = True
    direct = exchange = None
    count = 0

    def __init__(self, begun: BegunOp) -> None:
        self._begun = begun
        self.views = [_view_of(v) for v in begun.op.results]

    def __call__(self, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):
            return self._begun.end()


def _view_of(v: Value) -> Callable[[int], np.ndarray]:
    """What makes an array of a value's elements at an address; the memory stays the caller's."""
    shape, dtype = v.tensor.static_shape, np.dtype(v.tensor.dtype)
    kind = ctypes.c_char * v.tensor.size_bytes

    def view(address: int) -> np.ndarray:
        memory: Any = kind.from_address(address)
        return np.ndarray(shape, dtype, memory)

    return view


def _fits(a: Any, v: Value) -> bool:
    a = np.asarray(a)
    return a.shape == v.shape and (a.dtype == v.tensor.dtype or v.tensor.dtype.name in ("float16", "bfloat16"))
