"""The entry points: one function of a module on arrays, or a grid of functions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hlo import Block, Function, Module, Op
from hlo.calls import check_size
from hlo.foreign import copied
from hlo.identity import IdentityDict
from hlo.limits import check_ranks
from hlo.types import TensorType, TokenType, TupleType, Type
from interp.analysis import BlockPlan
from interp.errors import InputError, LimitError
from interp.grid import Grid, Meeting, ProcessId, Receive, Send
from interp.machine import Budget, Context, Limits, Machine, TraceEvent, Wait

__all__ = ["Transport", "evaluate", "run_parallel", "run_process"]

CustomCalls = Mapping[str, Callable[..., Any]]
Trace = Callable[[TraceEvent], None]


def evaluate(
    module: Module,
    *arrays: Any,
    entry: str = "main",
    custom_calls: CustomCalls | None = None,
    trace: Trace | None = None,
    limits: Limits | None = None,
    wide: bool = True,
) -> tuple[Any, ...]:
    """results = entry(*arrays), op by op, in NumPy.

    One value for each argument of the function: an array of exactly its element type (`ml_dtypes` for the types that
    NumPy lacks, the storage type for a quantized one) and shape (any size where the type says `?`); None for a token, a
    tuple for a tuple. The results come in the same forms, as arrays of their own that may be written to.

    custom_calls  target name -> function(op, *operands) that returns an array or a tuple of them. The operands are copies,
                  its own to keep and to write; read-only views for a function marked by `hlo.foreign.borrows`
    trace         is called with a `TraceEvent` after every op, whose arrays are read-only and may be kept
    limits        what the program may use
    wide          whether long sums of products are made in float64 and rounded once. False: in the type of the result, float32
                  at least, as compiled kernels do: less exact, in a fraction of the time

    Raises InputError for values that do not fit, ExecutionError where an op cannot be executed, LimitError at a limit.
    Specification: "Sequential execution".

    >>> import hlo
    >>> from hlo.registry import definition
    >>> t = hlo.TensorType((2,), hlo.element_type("f32"))
    >>> body = hlo.Block([t])
    >>> add = hlo.Op(definition("stablehlo.add"), [body.arguments[0]] * 2, result_types=[t])
    >>> body.ops += [add, hlo.Op(definition("func.return"), add.results)]
    >>> module = hlo.Module({"main": hlo.Function("main", body, result_types=(t,))})
    >>> evaluate(module, np.array([1, 2], np.float32))
    (array([2., 4.], dtype=float32),)
    """
    function = _function(module, entry)
    check_size(module, entry)
    check_ranks(module)
    results = _run(module, {(0, 0): function}, (1, 1), arrays, (), custom_calls, trace, limits, wide=wide)
    return results[0, 0]


def run_parallel(
    module: Module,
    programs: Sequence[Sequence[str]],
    *inputs: Any,
    infeed: Sequence[str] = (),
    custom_calls: CustomCalls | None = None,
    trace: Trace | None = None,
    limits: Limits | None = None,
) -> tuple[Any, ...]:
    """The results of `programs[0][0]`, then of `programs[0][1]`, …: one process for each replica (row) and partition (column).

    `programs` holds function names. `inputs` are the arguments of all processes, one process after the other, in the
    forms that `evaluate` takes; so are the results. Each `infeed` op takes what the next of the functions `infeed`
    returns. `limits` hold for all processes together.

    Raises what `evaluate` raises, and DeadlockError, naming ops and processes, when processes wait that nobody will
    answer. An error in one process ends all. Specification: "Parallel execution".
    """
    if not programs or not programs[0] or len({len(row) for row in programs}) > 1:
        raise InputError("expected programs as a list of replicas with as many partitions each, at least one")
    functions = {(r, p): _function(module, name) for r, row in enumerate(programs) for p, name in enumerate(row)}
    for name in infeed:
        _function(module, name)
    grid = (len(programs), len(programs[0]))
    results = _run(module, functions, grid, inputs, infeed, custom_calls, trace, limits)
    return tuple(value for process in functions for value in results[process])


class Transport(Protocol):
    """What carries values between the processes of a grid that are processes of the machine."""

    def meet(self, op: Op, participants: Sequence[ProcessId], tag: Any, payload: Any) -> Mapping[ProcessId, Any]:
        """Every participant's payload, by process, once all have come with this tag."""
        ...

    def send(self, op: Op, channel: Any, payload: Any) -> None:
        """Puts a payload into a channel."""
        ...

    def receive(self, op: Op, channel: Any) -> Any:
        """The oldest payload of a channel, once there is one."""
        ...


def run_process(
    module: Module,
    *arrays: Any,
    process: ProcessId,
    grid: tuple[int, int],
    transport: Transport,
    entry: str = "main",
    infeed: Sequence[str] = (),
    custom_calls: CustomCalls | None = None,
) -> tuple[Any, ...]:
    """The results of one process of a grid of (replicas, partitions); the other processes run elsewhere.

    As `run_parallel` for this process alone: `transport` answers where it waits for others, and raises what it likes where none
    will come. `infeed` is this process's own.
    """
    function = _function(module, entry)
    check_size(module, entry)
    check_ranks(module)
    answer = _answers(transport)
    return _run(module, {process: function}, grid, arrays, infeed, custom_calls, None, None, answer)[process]


def _answers(transport: Transport) -> Callable[[Wait], Any]:
    def answer(request: Wait) -> Any:
        if isinstance(request, Meeting):
            return transport.meet(request.op, request.participants, request.tag, request.payload)
        if isinstance(request, Send):
            return transport.send(request.op, request.channel, request.payload)
        assert isinstance(request, Receive)
        return transport.receive(request.op, request.channel)

    return answer


def _function(module: Module, name: str) -> Function:
    try:
        found = module.function(name)
    except KeyError as e:
        raise InputError(str(e.args[0])) from None
    if found.is_declaration:
        raise InputError(f"@{name} is declared only; it has no body to run")
    return found


def _run(
    module: Module,
    functions: dict[ProcessId, Function],
    grid: tuple[int, int],
    inputs: Sequence[Any],
    infeed: Sequence[str],
    custom_calls: CustomCalls | None,
    trace: Trace | None,
    limits: Limits | None,
    answer: Callable[[Wait], Any] | None = None,
    wide: bool = True,
) -> dict[ProcessId, tuple[Any, ...]]:
    expected = sum(len(f.arguments) for f in functions.values())
    if len(inputs) != expected:
        names = ", ".join(f"@{f.name} {f.type}" for f in functions.values())
        raise InputError(f"expected {expected} array{'s' * (expected != 1)} for {names}, found {len(inputs)}")
    budget, feed, fed = Budget(limits or Limits()), deque(infeed), list[tuple[Any, ...]]()
    plans: dict[Block, BlockPlan] = {}
    machines: dict[ProcessId, Machine] = {}
    rest = iter(inputs)
    with np.errstate(all="ignore"):
        for process, function in functions.items():
            context = Context(module, budget, process, grid, custom_calls or {}, trace, feed, fed, wide=wide)
            machines[process] = Machine(context, plans)
            values = [_checked(next(rest), a.type, i, function) for i, a in enumerate(function.arguments)]
            if trace is not None:  # what it keeps stays, whatever becomes of the caller's arrays
                values = [copied(v) for v in values]
            machines[process].start(function.body, values)
        if answer is None:
            Grid(machines).run()
        else:
            for machine in machines.values():
                request = machine.run()
                while request is not None:
                    request = machine.run(answer(request))
    final = [v for m in machines.values() for v in m.results or () if isinstance(v, np.ndarray)]
    if budget.limits.memory_bytes is not None and sum(v.nbytes for v in final) > budget.limits.memory_bytes:
        raise LimitError(
            f"the results take {sum(v.nbytes for v in final)} bytes, more than the limit of {budget.limits.memory_bytes} bytes"
        )
    taken: IdentityDict[Any, None] = IdentityDict()
    taken.update((x, None) for x in inputs)
    if trace is not None:
        return {p: tuple(copied(v) for v in m.results or ()) for p, m in machines.items()}
    return {p: tuple(_own(v, taken) for v in m.results or ()) for p, m in machines.items()}


def _checked(value: Any, t: Type, index: int, function: Function) -> Any:
    """An argument's value in the form that rules take. Raises InputError when it does not fit the type."""
    name = function.arguments[index].name
    label = f"argument {index}{f' (%{name})' if name else ''} of @{function.name}"
    if isinstance(t, TensorType):
        if isinstance(value, np.ma.MaskedArray):
            raise InputError(f"{label}: expected an array, found a masked one, whose mask would be lost", function.location)
        x = value if isinstance(value, np.ndarray) else np.asarray(value)
        if x.dtype != t.dtype:
            raise InputError(f"{label}: expected {t} ({t.dtype} elements), found {x.dtype} elements", function.location)
        if x.ndim != t.rank or any(n is not None and n != m for n, m in zip(t.shape, x.shape, strict=True)):
            raise InputError(f"{label}: expected {t}, found shape {list(x.shape)}", function.location)
        for k, bound in enumerate(t.bounds or ()):
            if bound is not None and x.shape[k] > bound:
                raise InputError(f"{label}: expected at most {bound} in dimension {k} of {t}, found {x.shape[k]}")
        return x
    if isinstance(t, TupleType):
        if not isinstance(value, tuple) or len(value) != len(t.elements):
            raise InputError(f"{label}: expected a tuple of {len(t.elements)} values, found {type(value).__name__}")
        return tuple(_checked(v, e, index, function) for v, e in zip(value, t.elements, strict=True))
    if isinstance(t, TokenType) and value is not None:
        raise InputError(f"{label}: expected None, which stands for a token, found {type(value).__name__}")
    return value


def _own(value: Any, taken: IdentityDict[Any, None]) -> Any:
    """A result as an array that belongs to the caller: contiguous, writeable, no alias of an input or another result."""
    if isinstance(value, tuple):
        return tuple(_own(v, taken) for v in value)
    if not isinstance(value, np.ndarray):
        return value
    flags = value.flags
    if value in taken or not (flags.owndata and flags.writeable and flags.c_contiguous):
        value = np.array(value, order="C")
    taken[value] = None
    return value
