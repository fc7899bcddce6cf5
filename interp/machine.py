"""The machine that executes blocks: an explicit stack, so that nesting and recursion cost no Python frames.

A rule computes one op. Most rules are plain functions from arrays to arrays. A rule that needs a region or a function
executed is a generator: it yields a `Call` and is sent that block's results. A rule that needs another process yields a
`Wait` and is sent the answer of the grid (`interp.grid`).

Scalar regions (of `reduce`, `sort`, `scatter`, …) are executed once for many elements: their arguments are `Lanes`,
arrays with leading dimensions of which each position is an execution of its own. An elementwise op computes on all
lanes at once; any other op whose operands vary over the lanes is executed once for each lane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlo import Block, Module, Op, TilewrightError, Value
from hlo.foreign import read_only
from hlo.identity import IdentityDict
from hlo.types import TensorType
from interp.analysis import BlockPlan, plan_blocks
from interp.errors import ExecutionError, LimitError, at
from interp.registry import Rule

__all__ = ["Budget", "Call", "Context", "Lanes", "Limits", "Machine", "TraceEvent", "Wait"]

_STEPS_A_QUESTION = 8  # a fraction of a millisecond


@dataclass(frozen=True)
class Lanes:
    """A value that differs from lane to lane: the first `rank` dimensions of `array` count the lanes."""

    array: np.ndarray[Any, Any]
    rank: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape[: self.rank])


@dataclass(frozen=True)
class Call:
    """Yielded by a rule: execute `block` on `arguments` and send back the tuple of its results.

    `is_function` gives the block values of its own; a region shares those of the function around it.
    """

    block: Block
    arguments: tuple[Any, ...] = ()
    is_function: bool = False


@dataclass(frozen=True)
class Wait:
    """Yielded by a rule: a request to the grid of processes (`interp.grid`), which sends the answer back."""

    op: Op


@dataclass(frozen=True)
class Limits:
    """What a program may use: `steps` executed ops, `memory_bytes` of values alive at once. None: no limit.

    `is_over`, which is asked between ops now and then, tells that nobody waits for the results any more.
    """

    steps: int | None = None
    memory_bytes: int | None = None
    is_over: Callable[[], bool] | None = None


@dataclass(frozen=True)
class TraceEvent:
    """One executed op: its input and output values, and the process (replica, partition) it ran in.

    Inside a scalar region that runs for many elements at once, `lanes` > 0 and arrays have that many leading dimensions.
    """

    op: Op
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    process: tuple[int, int]
    lanes: int = 0


class Budget:
    """What the processes of one run have used, together, of what they may.

    Memory is counted by buffer: arrays that are views of one buffer count once, as the whole buffer.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.steps = 0
        self.live_bytes = 0
        self._holders: IdentityDict[np.ndarray, int] = IdentityDict()

    def hold(self, value: Any) -> None:
        """A name has come to stand for `value`."""
        for buffer in _buffers(value):
            count = self._holders.get(buffer, 0)
            self._holders[buffer] = count + 1
            if not count:
                self.live_bytes += buffer.nbytes

    def release(self, value: Any) -> None:
        """A name that stood for `value` is gone."""
        for buffer in _buffers(value):
            count = self._holders.pop(buffer) - 1
            if count:
                self._holders[buffer] = count
            else:
                self.live_bytes -= buffer.nbytes


@dataclass
class Context:
    """What rules may ask for besides their operands. `infeed` and `outfeed` are shared by all processes."""

    module: Module
    budget: Budget
    process: tuple[int, int] = (0, 0)
    grid: tuple[int, int] = (1, 1)
    custom_calls: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    trace: Callable[[TraceEvent], None] | None = None
    infeed: deque[str] = field(default_factory=deque)
    outfeed: list[tuple[Any, ...]] = field(default_factory=list)
    draws: int = 0  # how many `rng` ops have been executed
    wide: bool = True  # whether long sums of products are made in float64

    def error(self, op: Op, message: str, kind: type[ExecutionError] = ExecutionError) -> ExecutionError:
        """The error to raise for `op`, with its place."""
        return kind(message, *at(op, self.module), op=op.name)

    def step(self, op: Op) -> None:
        """Counts one execution. Raises LimitError past the limit."""
        self.budget.steps += 1
        allowed = self.budget.limits.steps
        if allowed is not None and self.budget.steps > allowed:
            raise LimitError(f"more than {allowed} steps", *at(op, self.module), op=op.name)
        is_over = self.budget.limits.is_over
        if is_over is not None and self.budget.steps % _STEPS_A_QUESTION == 0 and is_over():
            raise LimitError("nobody waits for the results", *at(op, self.module), op=op.name)

    def reserve(self, op: Op, size_bytes: int) -> None:
        """Asks for `size_bytes` on top of what is alive. Raises LimitError when that is more than allowed."""
        allowed, alive = self.budget.limits.memory_bytes, self.budget.live_bytes
        if allowed is not None and alive + size_bytes > allowed:
            message = f"needs {size_bytes} bytes on top of {alive}, more than the limit of {allowed} bytes"
            raise LimitError(message, *at(op, self.module), op=op.name)

    def call(self, op: Op, name: str, arguments: Sequence[Any]) -> Call:
        """What a rule yields to have the function `name` executed. Raises ExecutionError when there is none."""
        function = self.module.functions.get(name)
        if function is None or function.is_declaration:
            raise self.error(op, f"there is no function @{name} to call")
        if len(function.arguments) != len(arguments):
            raise self.error(op, f"@{name} takes {len(function.arguments)} arguments, found {len(arguments)}")
        return Call(function.body, tuple(arguments), is_function=True)


class _Frame:
    """A block in execution."""

    __slots__ = ("block", "has_lanes", "plan", "position", "values")

    def __init__(self, block: Block, plan: BlockPlan, values: dict[Value, Any], has_lanes: bool) -> None:
        self.block = block
        self.plan = plan
        self.values = values
        self.position = 0
        self.has_lanes = has_lanes


class _Pending:
    """A rule in the middle of its work, waiting for a block or for other processes."""

    __slots__ = ("frame", "generator", "inputs", "op", "rule")

    def __init__(self, rule: Rule, op: Op, inputs: tuple[Any, ...], frame: _Frame, generator: Generator[Any, Any, Any]) -> None:
        self.rule = rule
        self.op = op
        self.inputs = inputs
        self.frame = frame
        self.generator = generator


class Machine:
    """One process: executes a function, step by step, until it ends or waits for other processes."""

    def __init__(self, context: Context, plans: dict[Block, BlockPlan]) -> None:
        self.context = context
        self._plans = plans
        self._stack: list[_Frame | _Pending] = []
        self.results: tuple[Any, ...] | None = None

    def start(self, block: Block, arguments: Sequence[Any]) -> None:
        """Prepares the execution of a function's block."""
        self._enter(Call(block, tuple(arguments), is_function=True), None)

    def run(self, answer: Any = None) -> Wait | None:
        """Executes until the function has ended (`results` is set; returns None) or until a rule waits.

        `answer` is what the rule that waited is sent.
        """
        while self._stack:
            top = self._stack[-1]
            if isinstance(top, _Pending):
                sent, answer = answer, None
                waiting = self._resume(top, sent)
                if waiting is not None:
                    return waiting
            elif top.position < len(top.plan.steps):
                self._execute(top)
            else:
                answer = self._leave(top)
        return None

    # ------------------------------------------------------------ blocks

    def _plan(self, block: Block) -> BlockPlan:
        plan = self._plans.get(block)
        if plan is None:
            self._plans.update(plan_blocks(block))
            plan = self._plans[block]
        return plan

    def _enter(self, call: Call, caller: _Frame | None) -> None:
        values = {} if call.is_function or caller is None else caller.values
        lanes = any(isinstance(a, Lanes) for a in call.arguments)
        if caller is not None and not call.is_function:
            lanes = lanes or caller.has_lanes
        frame = _Frame(call.block, self._plan(call.block), values, lanes)
        for parameter, value in zip(call.block.arguments, call.arguments, strict=True):
            self._store(frame, parameter, value)
        for unused in frame.plan.dies_on_entry:
            self._forget(frame, unused)
        self._stack.append(frame)

    def _leave(self, frame: _Frame) -> tuple[Any, ...]:
        results = tuple(frame.values[v] for v in frame.plan.results)
        for v in frame.plan.dies_on_exit:
            self._forget(frame, v)
        self._stack.pop()
        if not self._stack:
            self.results = results
        return results

    def _store(self, frame: _Frame, name: Value, value: Any) -> None:
        budget = self.context.budget
        if budget.limits.memory_bytes is not None:
            budget.hold(value)
            budget.release(frame.values.get(name))
            if isinstance(name.owner, Op):
                self.context.reserve(name.owner, 0)
        frame.values[name] = value

    def _forget(self, frame: _Frame, name: Value) -> None:
        gone = frame.values.pop(name, None)
        if self.context.budget.limits.memory_bytes is not None:
            self.context.budget.release(gone)

    # ------------------------------------------------------------ ops

    def _execute(self, frame: _Frame) -> None:
        op, captured, found = frame.plan.steps[frame.position]
        frame.position += 1
        self.context.step(op)
        if found is None:
            raise self.context.error(op, f"the table interp.rules has no rule for {op.name} (interp.registry.rule adds one)")
        values = frame.values
        inputs = tuple([values[v] for v in op.operands])
        try:
            if frame.has_lanes:
                outputs = self._on_lanes(found, op, inputs, captured, frame)
            else:
                self._reserve_results(found, op)
                if found.is_elementwise and len(inputs) > 1:
                    self._check_shapes(op, inputs)
                outputs = found.function(self.context, op, *inputs)
        except MemoryError as e:
            raise self._exhausted(op, e) from e
        except (ValueError, IndexError) as e:
            if found.calls_out:
                raise
            raise self._misfit(op, inputs, e) from e
        except Exception as e:
            if found.calls_out or isinstance(e, TilewrightError):
                raise
            raise self._failed(op, e) from e
        if isinstance(outputs, Generator):
            self._stack.append(_Pending(found, op, inputs, frame, outputs))
        else:
            self._finish(op, inputs, outputs, frame)

    def _resume(self, pending: _Pending, sent: Any) -> Wait | None:
        try:
            request = pending.generator.send(sent)
        except StopIteration as end:
            self._stack.pop()
            self._finish(pending.op, pending.inputs, end.value, pending.frame)
            return None
        except MemoryError as e:
            raise self._exhausted(pending.op, e) from e
        except (ValueError, IndexError) as e:
            if pending.rule.calls_out:
                raise
            raise self._misfit(pending.op, pending.inputs, e) from e
        except Exception as e:
            if pending.rule.calls_out or isinstance(e, TilewrightError):
                raise
            raise self._failed(pending.op, e) from e
        if isinstance(request, Wait):
            return request
        self._enter(request, pending.frame)
        return None

    def _finish(self, op: Op, inputs: tuple[Any, ...], outputs: Any, frame: _Frame) -> None:
        results = tuple([np.asarray(r) if isinstance(r, np.generic) else r for r in _results(outputs)])
        if len(results) != len(op.results):
            raise self.context.error(op, f"its rule gave {len(results)} results, not {len(op.results)}")
        for name, value in zip(op.results, results, strict=True):
            self._check(op, name, value)
            self._store(frame, name, value)
        if self.context.trace is not None:
            self._tell(op, inputs, results)
        for v in frame.plan.dies_after[frame.position - 1]:
            self._forget(frame, v)

    def _check(self, op: Op, name: Value, value: Any) -> None:
        """A result must have the element type and the dimensions that the program states."""
        t = name.type
        if not isinstance(t, TensorType):
            return
        skip = 0
        if isinstance(value, Lanes):
            value, skip = value.array, value.rank
        if not isinstance(value, np.ndarray) or value.dtype != t.dtype:
            found = getattr(value, "dtype", type(value).__name__)
            raise self.context.error(op, f"expected a result of element type {t.dtype}, found {found}")
        shape = value.shape[skip:]
        if len(shape) != len(t.shape) or any(n is not None and n != m for n, m in zip(t.shape, shape, strict=True)):
            raise self.context.error(op, f"expected a result of type {t}, found shape {list(shape)}")

    def _tell(self, op: Op, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        assert self.context.trace is not None
        rank = max((v.rank for v in (*inputs, *outputs) if isinstance(v, Lanes)), default=0)
        bare = [tuple(read_only(v.array if isinstance(v, Lanes) else v) for v in vs) for vs in (inputs, outputs)]
        self.context.trace(TraceEvent(op, bare[0], bare[1], self.context.process, rank))

    def _reserve_results(self, found: Rule, op: Op) -> None:
        """Refuses a result that is too large before it is allocated."""
        if self.context.budget.limits.memory_bytes is None or found.is_view:
            return
        total = 0
        for r in op.results:
            if isinstance(r.type, TensorType) and r.type.is_static:
                total += r.type.size_bytes
        self.context.reserve(op, total)

    def _check_shapes(self, op: Op, inputs: tuple[Any, ...]) -> None:
        """Operands of an elementwise op have one shape or none; NumPy would stretch dimensions of 1."""
        shapes = {x.shape for x in inputs if x.ndim}
        if len(shapes) > 1:
            raise self.context.error(op, "expected operands of one shape, found " + ", ".join(str(list(x.shape)) for x in inputs))

    def _misfit(self, op: Op, inputs: tuple[Any, ...], error: Exception) -> ExecutionError:
        """Sizes that only turn out at run time may not fit each other; NumPy says so in its own words."""
        shapes = ", ".join(str(list(x.shape)) if isinstance(x, np.ndarray) else type(x).__name__ for x in inputs)
        return self.context.error(op, f"operands of shapes {shapes or '(none)'} do not fit: {error}")

    def _failed(self, op: Op, error: Exception) -> ExecutionError:
        """A rule that is wrong: it may be of another package."""
        return self.context.error(op, f"its evaluator rule failed: {type(error).__name__}: {error}")

    def _exhausted(self, op: Op, error: MemoryError) -> LimitError:
        types = ", ".join(str(r.type) for r in op.results)
        return LimitError(f"the machine's memory does not suffice for {types}: {error}", *at(op, self.context.module), op=op.name)

    # ------------------------------------------------------------ lanes

    def _on_lanes(self, found: Rule, op: Op, inputs: tuple[Any, ...], captured: tuple[Value, ...], frame: _Frame) -> Any:
        """Executes an op where some values may vary over lanes."""
        shape = next((v.shape for v in inputs if isinstance(v, Lanes)), None)
        if shape is None and not any(isinstance(frame.values.get(v), Lanes) for v in captured):
            return found.function(self.context, op, *inputs)
        if found.is_transparent and (shape is None or not op.regions):
            return found.function(self.context, op, *inputs)
        if shape is None:
            shape = next(w.shape for v in captured if isinstance(w := frame.values.get(v), Lanes))
        rank = len(shape)
        if found.is_view and len(op.operands) == len(op.results) == 1 and op.operands[0].rank == op.results[0].rank == 0:
            return inputs[0]  # a scalar stays itself
        if found.is_elementwise:
            outputs = found.function(self.context, op, *_aligned(inputs, rank))
            if isinstance(outputs, tuple):
                return tuple(Lanes(o, rank) for o in outputs)
            return Lanes(outputs, rank)
        return self._lane_by_lane(found, op, inputs, captured, frame, shape)

    def _lane_by_lane(
        self,
        found: Rule,
        op: Op,
        inputs: tuple[Any, ...],
        captured: tuple[Value, ...],
        frame: _Frame,
        shape: tuple[int, ...],
    ) -> Generator[Any, Any, Any]:
        """An op that computes on whole tensors, once for each lane; captured values are cut to the lane meanwhile."""
        varying = {v: w for v in captured if isinstance(w := frame.values.get(v), Lanes)}
        collected: list[tuple[Any, ...]] = []
        frame.has_lanes = False
        for lane in np.ndindex(*shape):
            self.context.step(op)
            frame.values.update({v: _slice(w, lane) for v, w in varying.items()})
            outputs = found.function(self.context, op, *(_slice(v, lane) for v in inputs))
            if isinstance(outputs, Generator):
                outputs = yield from outputs
            collected.append(_results(outputs))
        frame.values.update(varying)
        frame.has_lanes = True
        stacked = []
        for k, r in enumerate(op.results):
            if not isinstance(r.type, TensorType):
                raise self.context.error(op, f"expected a tensor where executions differ, found {r.type}")
            cells = [c[k] for c in collected]
            array = np.stack(cells) if cells else np.zeros((0, *(n or 0 for n in r.type.shape)), r.type.dtype)
            stacked.append(Lanes(array.reshape(*shape, *array.shape[1:]), len(shape)))
        return tuple(stacked)


def _results(outputs: Any) -> tuple[Any, ...]:
    """What a rule returned, as the tuple of its results: a tuple is that already, None stands for no result."""
    if isinstance(outputs, tuple):
        return outputs
    return () if outputs is None else (outputs,)


def _slice(value: Any, lane: tuple[int, ...]) -> Any:
    return np.asarray(value.array[lane]) if isinstance(value, Lanes) else value


def _aligned(inputs: tuple[Any, ...], rank: int) -> list[Any]:
    """Arrays that broadcast together: dimensions of size 1 between the lanes and the elements of smaller operands."""
    inner = [v.array.ndim - rank if isinstance(v, Lanes) else v.ndim for v in inputs]
    deepest = max(inner)
    aligned = []
    for v, n in zip(inputs, inner, strict=True):
        if isinstance(v, Lanes):
            shape = v.array.shape
            aligned.append(v.array.reshape(*shape[:rank], *(1,) * (deepest - n), *shape[rank:]))
        else:
            aligned.append(v)
    return aligned


def _buffers(value: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays that own the memory of a value."""
    if isinstance(value, Lanes):
        value = value.array
    if isinstance(value, tuple):
        return [b for v in value for b in _buffers(v)]
    if not isinstance(value, np.ndarray):
        return []
    while isinstance(value.base, np.ndarray):
        value = value.base
    return [value]
