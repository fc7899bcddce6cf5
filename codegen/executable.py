"""Compiled programs: kernels, the memory between them, and the call.

codegen.compile(module)  ->  Executable  ->  exe(*arrays) -> tuple of arrays
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codegen import launch, memory
from codegen.emit import PhaseSource, emit_phase
from codegen.fallback import CustomCalls, evaluate_op, evaluate_program, op_reads
from codegen.jit import CompiledKernel, KernelSignature, Param, Scratch, compile_kernel, stats
from codegen.lifetimes import Lifetime, place
from codegen.plans import remembered_plan
from codegen.quick import SMALL_BYTES, QuickCall, address_of
from codegen.supports import supports
from hlo.errors import Declined, TilewrightError
from hlo.module import DenseArray, Module, Value
from hlo.registry import Literal
from hlo.types import TensorType
from tiling import Buffer, EvaluatorStep, Fusion, Plan, Scope, plan

__all__ = ["Executable", "Kernel", "RunStats", "compile"]


class ArgumentError(TilewrightError):
    """An array that does not fit the program's argument."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """One compiled phase of a fusion: `source` is the Python that was compiled, `function` runs it unmodified, step by step."""

    name: str
    fusion: Fusion
    tasks: int
    scratch_bytes: int  # of one thread
    buffers: tuple[Buffer, ...]
    compiled: CompiledKernel

    @property
    def source(self) -> str:
        return self.compiled.source

    def _repr_html_(self) -> str:
        from tiling.html import source_to_html

        return source_to_html(f"{self.name}: {self.tasks} tasks, {self.scratch_bytes} bytes of scratch a thread", self.source)

    @property
    def function(self) -> Any:
        """The source as a plain Python function of (begin, end, *flat arrays)."""
        return self.compiled.python


@dataclass
class RunStats:
    """Where the kernels came from, and what a call needs beside its arguments and results."""

    compiled: int = 0
    cache_hits: int = 0
    compile_seconds: float = 0.0
    scratch_bytes: int = 0


@dataclass(frozen=True, eq=False)
class _Segment:
    """Kernels that run in one launch, or one op for the evaluator."""

    launch: launch.Plan | None
    kernels: tuple[Kernel, ...]
    op: EvaluatorStep | None = None


@dataclass(eq=False)
class Executable:
    """A compiled program. Call it with one array for each argument; it may be called from several threads at once.

    `plan` says what is computed where, `kernels` and `source` show the code, `fallbacks` what runs in the evaluator, `stats`
    what compiling took and how much scratch a call uses. `custom_calls` runs the program's custom calls, by target name.
    """

    plan: Plan
    threads: int | None = None
    custom_calls: CustomCalls | None = None
    stats: RunStats = field(default_factory=RunStats)

    def __post_init__(self) -> None:
        program = self.plan.program
        self.whole = _whole_program_reason(self.plan)
        self._slots: dict[int, int] = {}
        self._segments: list[_Segment] = []
        self._fixed: list[tuple[int, np.ndarray]] = []
        self._quick: QuickCall | None = None
        if self.whole is None:
            before = (stats.compiled, stats.disk_hits + stats.memory_hits, stats.compile_seconds)
            for v in program.arguments:
                self._slot(v)
            self._build()
            self.stats.compiled = stats.compiled - before[0]
            self.stats.cache_hits = stats.disk_hits + stats.memory_hits - before[1]
            self.stats.compile_seconds = stats.compile_seconds - before[2]

    # ------------------------------------------------------------ compile

    def _slot(self, key: Value | Buffer) -> int:
        """The number of the address of a value (or of a fusion's shared scratch)."""
        return self._slots.setdefault(id(key), len(self._slots))

    def _build(self) -> None:
        program = self.plan.program
        self._keep: list[Any] = []
        lives: dict[int, list[int]] = {}  # slot -> first and last step
        sizes: dict[int, int] = {}
        pending: list[Kernel] = []
        steps: list[launch.Step] = []
        position = 0

        def flush() -> None:
            if steps:
                self._segments.append(_Segment(launch.Plan(tuple(steps)), tuple(pending)))
                steps.clear()
                pending.clear()

        def touch(slot: int, size: int) -> None:
            lives.setdefault(slot, [position, position])[1] = position
            sizes[slot] = size

        for step in self.plan.steps:
            if isinstance(step, Fusion):
                made = self._fusion(step)
                if isinstance(made, Declined):
                    step = EvaluatorStep(step.name, step.stages[-1].op, made.reason)
                else:
                    for kernel in made:
                        for b in kernel.buffers:
                            touch(self._slot(b if b.scope is Scope.SHARED else _value(b)), b.size_bytes)
                        steps.append(
                            launch.Step(
                                kernel.compiled,
                                kernel.tasks,
                                tuple(
                                    self._slot(b if b.scope is Scope.SHARED else _value(b)) for b in kernel.buffers
                                ),
                                _chunk(kernel.tasks, self.plan.machine.cores),
                                kernel.scratch_bytes,
                            )
                        )
                        pending.append(kernel)
                        position += 1
                    continue
            flush()
            for v in (*op_reads(step.op), *step.op.results):
                touch(self._slot(v), v.tensor.size_bytes)
            self._segments.append(_Segment(None, (), step))
            position += 1
        flush()
        given = {self._slot(v) for v in program.arguments}
        results = {self._slot(v) for v in program.results}
        constants = self._constants(given)
        inner = [s for s in lives if s not in given and s not in results and s not in constants]
        offsets, total = place([Lifetime(sizes[s], *lives[s]) for s in inner])
        self._offsets = dict(zip(inner, offsets, strict=True))
        self._arena_bytes = total
        threads = self.threads or self.plan.machine.cores
        thread_bytes = max((s.launch.scratch_stride for s in self._segments if s.launch is not None), default=0)
        self.stats.scratch_bytes = total + threads * thread_bytes
        self._quick = self._quick_call(total)

    def _quick_call(self, arena_bytes: int) -> QuickCall | None:
        """The short way to call a small program, or None."""
        program = self.plan.program
        values = [*program.arguments, *program.results]
        moved = arena_bytes + sum(v.tensor.size_bytes for v in values)
        if len(self._segments) != 1 or self._segments[0].launch is None or not QuickCall.takes(self._segments[0].launch, moved):
            return None
        slots = [self._slots.get(id(v)) for v in values]
        given, made = slots[: len(program.arguments)], slots[len(program.arguments) :]
        fixed = {slot: address_of(a) for slot, a in self._fixed}
        if None in made or len(set(made)) != len(made) or set(made) & {*given, *fixed}:
            return None
        rows = [(slot, v.shape, v.tensor.dtype) for slot, v in zip(slots, values, strict=True) if slot is not None]
        count = len(program.arguments)
        return QuickCall(rows[:count], rows[count:], fixed, self._offsets, arena_bytes, self._segments[0].launch)

    def _constants(self, given: set[int]) -> set[int]:
        """Addresses of constants that kernels or results read."""
        found = set()
        for op in self.plan.program.ops:
            if isinstance(op.definition.semantics, Literal) and id(op.results[0]) in self._slots:
                dense: DenseArray = op.attr("value")
                slot = self._slot(op.results[0])
                self._fixed.append((slot, np.array(dense.array, order="C")))
                found.add(slot)
        return found - given

    def _fusion(self, fusion: Fusion) -> list[Kernel]:
        sources: list[PhaseSource] = []
        for phase in fusion.schedule.phases:
            made = emit_phase(fusion.schedule, phase, fusion.name)
            if isinstance(made, Declined):
                raise RuntimeError(f"{fusion.name} was planned but cannot be written: {made.reason}")
            sources.append(made)
        kernels = []
        for k, source in enumerate(sources):
            offset, scratch = 0, []
            for b in source.scratch:
                scratch.append(Scratch(b.name, b.element.dtype.name, offset))
                offset += -(-b.size_bytes // 64) * 64
            params = tuple(
                Param(
                    b.name, b.element.dtype.name, _alignment(b),
                    # What the shared cache would not keep until it is read need not go through it.
                    stream=b in source.written and 2 * b.size_bytes >= self.plan.machine.l3_bytes,
                )
                for b in source.buffers
            )
            compiled = compile_kernel(source.source, KernelSignature(params, tuple(scratch)))
            name = fusion.name if k == len(sources) - 1 else f"{fusion.name}_pack{k}"
            kernels.append(Kernel(name, fusion, source.tasks, offset, source.buffers, compiled))
            self._keep.extend(source.buffers)
        return kernels

    # ------------------------------------------------------------ look

    def _repr_html_(self) -> str:
        """The plan, then each kernel's source."""
        return self.plan._repr_html_() + "".join(k._repr_html_() for k in self.kernels)

    @property
    def kernels(self) -> list[Kernel]:
        """The compiled kernels, in the order in which they run."""
        return [k for s in self._segments for k in s.kernels]

    @property
    def fallbacks(self) -> list[str]:
        """What runs in the evaluator, with the reason."""
        if self.whole is not None:
            return [f"the whole program: {self.whole}"]
        return [f"{s.op.op.name} (%{s.op.name}): {s.op.reason}" for s in self._segments if s.op is not None]

    @property
    def source(self) -> str:
        """The source of all kernels."""
        parts = [f"# {k.name}\n{k.source}" for k in self.kernels]
        return "\n\n".join([*parts, *(f"# in the evaluator: {f}" for f in self.fallbacks)])

    # ------------------------------------------------------------ run

    def __call__(self, *arrays: Any) -> tuple[np.ndarray, ...]:
        """Runs the program. Raises ArgumentError when an array has not the argument's shape and type."""
        if self._quick is not None:
            results = self._quick(arrays)
            if results is not None:
                return results
        return self._run(arrays, None)

    def profile(self, *arrays: Any) -> tuple[tuple[np.ndarray, ...], list[float]]:
        """(results, seconds of each of `kernels`)."""
        times: list[float] = []
        return self._run(arrays, times), times

    def _run(self, arrays: Sequence[Any], times: list[float] | None) -> tuple[np.ndarray, ...]:
        program = self.plan.program
        given = self._arguments(arrays)
        if self.whole is not None:
            return evaluate_program(self.plan.module, given, program.name, self.custom_calls)
        slots = len(self._slots)
        addresses = np.zeros(slots, np.int64)
        views: dict[int, np.ndarray] = {}
        for v, a in zip(program.arguments, given, strict=True):
            addresses[self._slots[id(v)]] = address_of(a)
            views[self._slots[id(v)]] = a
        for slot, a in self._fixed:
            addresses[slot] = address_of(a)
            views[slot] = a
        arena = memory.pool.lease(max(self._arena_bytes, 64), "scratch") if self._offsets else None
        if arena is not None:
            for slot, offset in self._offsets.items():
                addresses[slot] = arena.address + offset
        outputs: list[np.ndarray] = []
        made: dict[int, np.ndarray] = {}
        for v in program.results:
            known = self._slots.get(id(v))
            if known is not None and known in views:
                outputs.append(views[known].copy())
                continue
            if known is None:
                outputs.append(_literal(v))
                continue
            if known in made:
                outputs.append(made[known])
                continue
            t = v.tensor
            array = memory.pool.lease(max(t.size_bytes, 1), "output").array(t.static_shape, t.dtype)
            addresses[known] = address_of(array)
            made[known] = array
            outputs.append(array)
        for segment in self._segments:
            if segment.launch is not None:
                spent = np.zeros(len(segment.kernels), np.int64) if times is not None else None
                segment.launch.run(addresses, self.threads, spent)
                if times is not None and spent is not None:
                    times += [float(t) * 1e-9 for t in spent]
            elif segment.op is not None:
                self._evaluate(segment.op, addresses, {**views, **made}, arena)
        if arena is not None:
            arena.release()
        return tuple(outputs)

    def _evaluate(self, step: EvaluatorStep, addresses: np.ndarray, views: dict[int, np.ndarray], arena: Any) -> None:
        def view(v: Value) -> np.ndarray:
            slot = self._slots[id(v)]
            if slot in views:
                return views[slot]
            t = v.tensor
            whole: np.ndarray = arena.array((self._arena_bytes,), np.uint8)
            start = self._offsets[slot]
            return whole[start : start + t.size_bytes].view(t.dtype).reshape(t.static_shape)

        reads = [view(v) for v in op_reads(step.op)]
        results = evaluate_op(self.plan.module, step.op, reads, self.custom_calls)
        for v, a in zip(step.op.results, results, strict=True):
            if id(v) in self._slots:
                np.copyto(view(v), a)

    def _arguments(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        wanted = self.plan.program.arguments
        if len(arrays) != len(wanted):
            raise ArgumentError(f"expected {len(wanted)} arrays, found {len(arrays)}")
        given = []
        for k, (v, a) in enumerate(zip(wanted, arrays, strict=True)):
            t = v.type
            if not isinstance(t, TensorType):
                given.append(a)  # a token or a tuple: the evaluator runs such a program whole, and checks it
                continue
            a = np.asarray(a)
            same = len(t.shape) == a.ndim and all(n is None or n == m for n, m in zip(t.shape, a.shape, strict=True))
            if not same or a.dtype != t.dtype:
                name = f" (%{v.name})" if v.name else ""
                raise ArgumentError(
                    f"argument {k}{name}: expected {t}, found an array of shape {list(a.shape)}, {a.dtype}"
                )
            if not a.flags.c_contiguous or not a.flags.aligned:
                a = np.array(a, order="C")
            given.append(a)
        return given


def _alignment(b: Buffer) -> int:
    """Bytes that a kernel may take a buffer to be aligned to."""
    small = b.scope is Scope.RESULT and b.size_bytes <= SMALL_BYTES
    return b.element.itemsize_bytes if small or b.scope is Scope.ARGUMENT else 64


def _value(b: Buffer) -> Value:
    assert b.value is not None
    return b.value


def _literal(v: Value) -> np.ndarray:
    assert v.op is not None
    dense: DenseArray = v.op.attr("value")
    return np.array(dense.array)


def _chunk(tasks: int, threads: int) -> int:
    """Tasks taken at a time: enough pieces that threads finish together, few enough that taking them costs nothing."""
    return max(1, tasks // (threads * 32))


def _whole_program_reason(made: Plan) -> str | None:
    """Why the evaluator must run the whole program, or None: values that are no arrays of a fixed shape pass between its ops."""
    for op in made.program.ops:
        for v in (*op.operands, *op.results):
            if not isinstance(v.type, TensorType):
                return f"{op.name} has a value of type {v.type}"
            if not v.type.is_static:
                return f"{op.name} has a value whose shape is known only at run time, {v.type}"
    for v in made.program.arguments:
        if not isinstance(v.type, TensorType) or not v.type.is_static:
            return f"an argument of type {v.type}"
    return None


def compile(
    module_or_plan: Module | Plan,
    entry: str = "main",
    threads: int | None = None,
    custom_calls: CustomCalls | None = None,
) -> Executable:
    """The compiled form of a module's entry function, or of a plan that was made (and perhaps edited) before.

    `custom_calls` maps the target names of custom calls to functions (op, *operands) that return an array or a tuple of them.
    Always succeeds on a verified module: what no kernel covers runs in the evaluator, and `fallbacks` says so.
    Raises KeyError when there is no function `entry`.
    """
    if isinstance(module_or_plan, Plan):
        given = module_or_plan
        if all(supports(op) is None for f in given.fusions for op in f.ops):
            return Executable(given, threads, custom_calls)
        # A plan made without knowing what can be generated: made again with it.
        return Executable(plan(given.module, given.program.name, given.machine, supports), threads, custom_calls)
    return Executable(remembered_plan(module_or_plan, entry), threads, custom_calls)
